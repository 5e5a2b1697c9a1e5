"""Who is best for latency and who for throughput, and how sure that is.

"The arm that came out best is the best" is one claim: it is made only when the arm is shown against every other arm.
That intersection of tests keeps the error rate whatever the number of arms (Gutmann and Maymin 1987: the selected arm
is tested against the others at the full level, because the claim fails as soon as one comparison does). Holm's
correction runs over the claims: two per workload.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reckoning.analyse.cells import Cell, Cells
from reckoning.analyse.compare import Contrast, Estimate, peak_winner
from reckoning.analyse.design import Design
from reckoning.statistics.contrasts import holm


@dataclass(frozen=True)
class Winner:
    """The best arm for a use. `others`: every other arm against it, nearest first (a ratio below 1: fewer tokens).

    `certainty`: shown (against every other arm), tie (equivalent to the arms in `tied`), not-shown, single-run (no
    intervals), only-arm, none (no data).
    """

    use: str
    workload: str
    arm: str | None
    cell: Cell | None
    estimate: Estimate | None
    others: tuple[Contrast, ...]
    p: float | None
    certainty: str
    tied: tuple[str, ...] = ()


def winners(
    cells: Cells, design: Design, estimates: Sequence[Estimate], best: Sequence[Contrast], peak: Sequence[Contrast]
) -> list[Winner]:
    """Return the winners of every workload: latency at the lowest level measured, throughput over all levels."""
    found = []
    for workload in design.workloads or cells.workloads(design.primary):
        levels = cells.levels(design.primary, workload)
        if not levels:
            found += [Winner(use, workload, None, None, None, (), None, "none") for use in ("latency", "throughput")]
            continue
        lowest = Cell(workload, levels[0])
        at_lowest = [c for c in best if c.cell == lowest and c.metric == design.primary]
        arms = list(cells.of(design.primary)[lowest])
        arm = at_lowest[0].reference if at_lowest else arms[0]
        found.append(_winner("latency", lowest, arm, at_lowest, estimates, design))
        arm, cell = peak_winner(cells, design, workload)
        found.append(
            _winner("throughput", cell, arm, [c for c in peak if c.cell.workload == workload], estimates, design)
        )
    adjusted = holm([winner.p for winner in found])
    return [_certain(winner, p, design) for winner, p in zip(found, adjusted, strict=True)]


def _winner(  # noqa: PLR0917
    use: str, cell: Cell, arm: str, others: Sequence[Contrast], estimates: Sequence[Estimate], design: Design
) -> Winner:
    estimate = next(e for e in estimates if e.arm == arm and e.cell == cell and e.metric == design.primary)
    sign = 1 if design.metrics[design.primary].better == "lower" else -1
    ordered = sorted(others, key=lambda c: sign * (c.pair.ratio if c.pair.ratio is not None else -sign * float("inf")))
    p_values = [c.pair.p for c in others]
    p = max(p_values) if p_values and None not in p_values else None
    return Winner(use, cell.workload, arm, cell, estimate, tuple(ordered), p, "")


def _certain(winner: Winner, p_adjusted: float | None, design: Design) -> Winner:
    if winner.arm is None:
        return winner
    tied = tuple(c.arm for c in winner.others if c.p_equivalence is not None and c.p_equivalence <= design.alpha)
    if not winner.others:
        certainty = "only-arm"
    elif winner.estimate.interval.n == 1 or all(c.pair.n <= 1 for c in winner.others):
        certainty = "single-run"
    elif tied:
        certainty = "tie"
    elif p_adjusted is not None and p_adjusted <= design.alpha:
        certainty = "shown"
    else:
        certainty = "not-shown"
    return replace(winner, p=p_adjusted, certainty=certainty, tied=tied)
