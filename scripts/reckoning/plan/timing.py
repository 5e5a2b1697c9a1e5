"""How long a run takes: launches x (start + warm-up + points + stop), with the basis of every number stated.

The rate of a level is, in this order: `expected.tok_s` of the experiment, the published value of the same arm, the
median of the published arms, or an assumption. Levels between two known ones are interpolated on log-log axes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reckoning.experiment import Workload

# Starts that were seen: 30-36 s on a CPU; on GPUs 50-65 s with warm caches, one minute for CUDA graphs, three with
# DFlash, and 330 s for the 553 GiB of Kimi K2.6 from local disks (about 2 GiB/s).
CPU_START_S = 35.0
GPU_START_S = 60.0
GRAPH_CAPTURE_S = 60.0
SPECULATION_START_S = 120.0
LOADING_GIB_PER_S = 2.0
# Rates at one stream, and the exponent with which they grow with the streams: an assumption for unknown machines.
ASSUMED_TOK_S = {"cpu": 20.0, "cuda": 60.0}
ASSUMED_GROWTH = 0.6
ASSUMED_PREFILL_TOK_S = {"cpu": 500.0, "cuda": 5000.0}


@dataclass(frozen=True)
class LaunchTime:
    """The parts of one launch of an arm, in seconds."""

    start_s: float
    warmup_s: float
    measure_s: float
    stop_s: float
    basis: tuple[str, ...]

    @property
    def total_s(self) -> float:
        return self.start_s + self.warmup_s + self.measure_s + self.stop_s


@dataclass(frozen=True)
class TimeModel:
    """What is known about rates and starts before a run."""

    device: str
    expected: Mapping[str, Any]
    published: Mapping[str, Mapping[int, float]]
    repeats: int
    cooldown_s: float = 0.0

    def launch(
        self, arm: str, workloads: Sequence[Workload], *, weights_gib: float | None, graphs: bool, speculative: bool
    ) -> LaunchTime:
        """Return the time of one launch of `arm`; `weights_gib` are those of the whole server."""
        start_s, start_basis = self._start(weights_gib, graphs=graphs, speculative=speculative)
        warmup_s = measure_s = 0.0
        basis = [start_basis]
        for workload in workloads:
            for level in workload.concurrency:
                rate, rate_basis = self._rate(arm, workload.name, level)
                warmup_s += self._duration(workload, workload.warmup_requests_per_stream * level, rate)
                once = self._duration(workload, workload.requests_at(level), rate)
                if workload.arrival == "poisson" and workload.request_rate_per_s and workload.requests_at(level):
                    once = max(once, workload.requests_at(level) / workload.request_rate_per_s)
                bounded = min(max(once, workload.min_duration_s), workload.max_duration_s or math.inf)
                measure_s += self.repeats * (bounded + workload.cooldown_s)
                basis.append(f"{workload.name}: {rate_basis}")
        stop_s = self.expected["stop_s"] + self.cooldown_s
        return LaunchTime(start_s, warmup_s, measure_s, stop_s, tuple(dict.fromkeys(basis)))

    def _start(self, weights_gib: float | None, *, graphs: bool, speculative: bool) -> tuple[float, str]:
        if self.expected["start_s"] is not None:
            return self.expected["start_s"], "start: expected.start_s"
        if self.device == "cpu":
            return CPU_START_S, f"start: {CPU_START_S:.0f} s as seen on CPUs"
        loading = (weights_gib or 0.0) / LOADING_GIB_PER_S
        total = GPU_START_S + loading + GRAPH_CAPTURE_S * graphs + SPECULATION_START_S * speculative
        weights = f"{weights_gib:.0f} GiB at {LOADING_GIB_PER_S:g} GiB/s" if weights_gib else "weights of unknown size"
        return total, f"start: {GPU_START_S:.0f} s + {weights}, graphs {GRAPH_CAPTURE_S:.0f} s, speculation 120 s"

    def _rate(self, arm: str, workload: str, level: int) -> tuple[float, str]:
        stated = {int(key): rate for key, rate in self.expected["tok_s"].get(workload, {}).items() if key.isdigit()}
        if stated:
            return interpolated(stated, level), "expected.tok_s"
        own = self.published.get(arm)
        if own:
            return interpolated(own, level), f"published values of {arm}"
        if self.published:
            rates = [interpolated(rates, level) for rates in self.published.values()]
            return statistics.median(rates), "median of the published arms"
        rate = ASSUMED_TOK_S[self.device] * level**ASSUMED_GROWTH
        return rate, f"assumed {ASSUMED_TOK_S[self.device]:.0f} tok/s x C^{ASSUMED_GROWTH}"

    def _duration(self, workload: Workload, requests: int | None, rate: float) -> float:
        if requests is None:
            return max(workload.min_duration_s, workload.max_duration_s or 0.0)
        prefill = self.expected.get("prefill_tok_s") or ASSUMED_PREFILL_TOK_S[self.device]
        return requests * (workload.output_tokens / rate + (workload.input_tokens or 0) / prefill)


def interpolated(rates: Mapping[int, float], level: int) -> float:
    """Return the rate at `level`: log-linear between known ones, proportional below the first, flat beyond the last."""
    levels = sorted(rates)
    if level <= levels[0]:
        return rates[levels[0]] * level / levels[0]
    if level >= levels[-1]:
        return rates[levels[-1]]
    above = next(known for known in levels if known >= level)
    below = levels[levels.index(above) - 1] if above != level else above
    if above == below:
        return rates[level]
    share = math.log(level / below) / math.log(above / below)
    return math.exp(math.log(rates[below]) * (1 - share) + math.log(rates[above]) * share)


def spoken(seconds: float) -> str:
    """Return a duration as people say it: "about 9 h 20 min", "about 3 min", "under a minute"."""
    if seconds < 60:
        return "under a minute"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"about {minutes} min"
    if minutes < 48 * 60:
        rounded = 10 * round(minutes / 10)
        return f"about {rounded // 60} h {rounded % 60} min" if rounded % 60 else f"about {rounded // 60} h"
    days, hours = divmod(round(minutes / 60), 24)
    return f"about {days} d {hours} h" if hours else f"about {days} d"
