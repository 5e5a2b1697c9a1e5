"""The rankable values in the shape that statistics needs: metric, workload, level -> arm -> block -> repeats."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from reckoning.analyse.design import Design
from reckoning.analyse.evidence import Evidence
from reckoning.analyse.exclusions import value_reason


@dataclass(frozen=True, order=True)
class Cell:
    """One workload at one concurrency level."""

    workload: str
    concurrency: int


LaunchValues = Mapping[int, float]
"""block -> value of the launch (geometric mean of its repeats), in the unit of the metric"""


@dataclass(frozen=True)
class Cells:
    """`logs[metric][cell][arm][block]` is the array of natural logarithms of the rankable repeats."""

    logs: Mapping[str, Mapping[Cell, Mapping[str, Mapping[int, np.ndarray]]]]
    orders: Mapping[tuple[str, int], int]

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that have at least one rankable value."""
        return tuple(metric for metric, cells in self.logs.items() if cells)

    def of(self, metric: str) -> Mapping[Cell, Mapping[str, Mapping[int, np.ndarray]]]:
        """Return the cells of a metric, in order of workload and level."""
        return self.logs.get(metric, {})

    @cached_property
    def _values(self) -> dict[tuple[str, Cell, str], dict[int, float]]:
        return {
            (metric, cell, arm): {block: math.exp(float(logs.mean())) for block, logs in blocks.items()}
            for metric, cells in self.logs.items()
            for cell, arms in cells.items()
            for arm, blocks in arms.items()
        }

    def values(self, metric: str, cell: Cell, arm: str) -> LaunchValues:
        """Return the launch values of an arm at a cell; an empty mapping when there are none."""
        return self._values.get((metric, cell, arm), {})

    def levels(self, metric: str, workload: str) -> list[int]:
        """Return the levels of a workload that have data, ascending."""
        return sorted({cell.concurrency for cell in self.of(metric) if cell.workload == workload})

    def workloads(self, metric: str) -> list[str]:
        """Return the workloads that have data, in the order of their first appearance."""
        return list(dict.fromkeys(cell.workload for cell in self.of(metric)))

    def entries(self, metric: str) -> Iterator[tuple[Cell, str, int, np.ndarray]]:
        """Yield (cell, arm, block, logarithms of the repeats)."""
        for cell, arms in self.of(metric).items():
            for arm, blocks in arms.items():
                for block, logs in blocks.items():
                    yield cell, arm, block, logs


def make_cells(evidence: Evidence, design: Design) -> Cells:
    """Sort the rankable points into cells; a value without a logarithm is left out (it is listed as an exclusion)."""
    points = evidence.points
    usable = points[points["rankable"]]
    position = {workload: place for place, workload in enumerate(design.workloads)}
    rank = {arm.slug: place for place, arm in enumerate(design.arms)}
    logs: dict[str, dict[Cell, dict[str, dict[int, list[float]]]]] = {}
    for metric in design.metrics:
        if metric not in usable:
            continue
        cells = logs.setdefault(metric, {})
        columns = usable[["workload", "concurrency", "arm", "block", metric]].dropna()
        for workload, level, arm, block, value in columns.itertuples(index=False):
            if value_reason(value, metric) is None:
                cell = Cell(str(workload), int(level))
                cells.setdefault(cell, {}).setdefault(str(arm), {}).setdefault(int(block), []).append(math.log(value))
    ordered = {
        metric: {
            cell: {
                arm: {block: np.array(cells[cell][arm][block]) for block in sorted(cells[cell][arm])}
                for arm in sorted(cells[cell], key=lambda slug: (rank.get(slug, len(rank)), slug))
            }
            for cell in sorted(cells, key=lambda c: (position.get(c.workload, len(position)), c))
        }
        for metric, cells in logs.items()
    }
    orders = {(launch.arm, launch.block): launch.order for launch in evidence.launches if launch.order is not None}
    return Cells(ordered, orders)
