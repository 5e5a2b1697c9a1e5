"""Our client beside SGLang's bench_serving on the same launches: the ratio with an interval over launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reckoning.analyse.cells import Cell
from reckoning.analyse.evidence import Launch
from reckoning.analyse.exclusions import value_reason
from reckoning.analyse.gather import launch_folder
from reckoning.files import read_json
from reckoning.statistics.intervals import Interval, launch_interval

UNITS = {"output_tok_s_whole_run": "tok/s"}


@dataclass(frozen=True)
class CrossCheck:
    """Ours over theirs at one cell, with the geometric means of both; `failed` checks of launches gave no number."""

    arm: str
    cell: Cell
    metric: str
    ours: Interval
    theirs: Interval
    ratio: Interval
    failed: int


def cross_checks(results: Path, launches: Sequence[Launch], confidence: float) -> list[CrossCheck]:
    """Return the cross-checks of all launches that have a `crosscheck.json`."""
    values: dict[tuple[str, Cell, str], list[tuple[float, float]]] = {}
    failed: dict[tuple[str, Cell], int] = {}
    for launch in launches:
        for entry in _entries(launch_folder(results, launch.arm, launch.block) / "crosscheck.json"):
            cell = Cell(str(entry.get("workload")), int(entry.get("concurrency") or 1))
            if entry.get("status") != "ok":
                failed[launch.arm, cell] = failed.get((launch.arm, cell), 0) + 1
                continue
            for metric, pair in (entry.get("metrics") or {}).items():
                ours, theirs = pair.get("ours"), pair.get("theirs")
                if value_reason(ours, metric) is None and value_reason(theirs, metric) is None:
                    values.setdefault((launch.arm, cell, metric), []).append((float(ours), float(theirs)))
    return [
        CrossCheck(
            arm,
            cell,
            metric,
            launch_interval([ours for ours, _ in pairs], confidence),
            launch_interval([theirs for _, theirs in pairs], confidence),
            launch_interval([ours / theirs for ours, theirs in pairs], confidence),
            failed.get((arm, cell), 0),
        )
        for (arm, cell, metric), pairs in values.items()
    ]


def _entries(path: Path) -> list[Mapping[str, Any]]:
    if not path.exists():
        return []
    try:
        return list(read_json(path).get("entries") or [])
    except (ValueError, OSError, AttributeError):
        return []
