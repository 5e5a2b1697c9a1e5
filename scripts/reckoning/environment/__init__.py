"""What this machine is, and what on it will break which arm.

`probe` collects raw facts, `diagnose` turns facts into findings without looking at the machine, `check` does both for
an experiment.
"""

from reckoning.environment.check import check, judged
from reckoning.environment.diagnosis import diagnose
from reckoning.environment.facts import probe
from reckoning.environment.finding import Finding, Level

__all__ = ["Finding", "Level", "check", "diagnose", "judged", "probe"]
