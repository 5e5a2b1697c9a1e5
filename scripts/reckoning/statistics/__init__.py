"""What do the numbers support? Pure functions from launch means to intervals, tests and verdicts.

The unit is the launch: one start of a server. Values are positive (tokens per second, milliseconds) and are treated on
the log scale, so that an effect is a ratio and an interval is back-transformed. Nothing here reads or writes a file.

- `intervals`: a mean with its t interval; the prediction interval of one further run
- `contrasts`: two arms, paired by block: ratio, Holm, equivalence, verdict
- `variance`: how much varies between launches and between repeats, and how sure that is
- `planning`: what to buy next: repeats, blocks, power
- `quantiles`: tails with censored requests
- `drift`: the slope along the run order
- `crossover`: between which levels the lead changes
- `factors`: which arms differ in one setting, and two-by-two interactions
"""

from reckoning.statistics.contrasts import PairedRatio, Verdict, equivalence_p, holm, paired_ratio, verdict_of
from reckoning.statistics.intervals import MINIMUM_LAUNCHES, Interval, launch_interval, prediction_interval

__all__ = [
    "MINIMUM_LAUNCHES",
    "Interval",
    "PairedRatio",
    "Verdict",
    "equivalence_p",
    "holm",
    "launch_interval",
    "paired_ratio",
    "prediction_interval",
    "verdict_of",
]
