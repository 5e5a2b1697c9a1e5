"""Everything that the analysis found, computed once and handed to the sentences, the tables and findings.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from reckoning.analyse import compare, effects, hypotheses, outside, spread
from reckoning.analyse.cells import Cells, make_cells
from reckoning.analyse.crosscheck import CrossCheck
from reckoning.analyse.design import Design
from reckoning.analyse.evidence import Evidence
from reckoning.analyse.winners import Winner, winners


@dataclass(frozen=True)
class Results:
    """The results of one experiment; every list may be empty."""

    design: Design
    evidence: Evidence
    cells: Cells
    cost: spread.Costs
    estimates: Sequence[compare.Estimate]
    baseline: Sequence[compare.Contrast]
    best: Sequence[compare.Contrast]
    peak: Sequence[compare.Contrast]
    winners: Sequence[Winner]
    spreads: Sequence[spread.Spread]
    drifts: Sequence[spread.DriftOf]
    quantiles: Sequence[spread.QuantileOf]
    crossovers: Sequence[effects.CrossoverOf]
    factors: Sequence[effects.FactorEffect]
    speculation: Sequence[effects.Speculation]
    published: Sequence[outside.Published]
    predicted: Sequence[outside.Published]
    hours: Sequence[outside.SampleHours]
    hypotheses: Sequence[hypotheses.Answer]
    cross_checks: Sequence[CrossCheck] = ()

    def estimate(self, arm: str, cell, metric: str) -> compare.Estimate | None:
        """Return one estimate, or None."""
        return next((e for e in self.estimates if e.arm == arm and e.cell == cell and e.metric == metric), None)


def compute(
    design: Design,
    evidence: Evidence,
    published: pd.DataFrame | None = None,
    predicted: pd.DataFrame | None = None,
    cross_checks: Sequence[CrossCheck] = (),
) -> Results:
    """Compute every result of the design from the evidence; any subset of the evidence may be missing."""
    cells = make_cells(evidence, design)
    cost = spread.costs(evidence.launches, design)
    estimates = compare.estimates(cells, design)
    pairs = {metric: compare.all_pairs(cells, design, metric) for metric in design.compared}
    best = [c for metric, family in pairs.items() for c in compare.best_contrasts(cells, design, metric, family)]
    peak = compare.peak_contrasts(cells, design)
    spreads = spread.spreads(cells, design, cost)

    def beside(table: pd.DataFrame | None) -> list[outside.Published]:
        if table is None:
            return []
        return outside.published_comparison(table, cells, design, spreads)

    return Results(
        design=design,
        evidence=evidence,
        cells=cells,
        cost=cost,
        estimates=estimates,
        baseline=compare.baseline_contrasts(cells, design),
        best=best,
        peak=peak,
        winners=winners(cells, design, estimates, best, peak),
        spreads=spreads,
        drifts=spread.drifts(cells, design),
        quantiles=spread.quantiles_over_launches(evidence, design),
        crossovers=effects.crossovers(cells, design, pairs.get(design.primary, [])),
        factors=effects.factor_effects(cells, design),
        speculation=effects.speculation(cells, design, estimates),
        published=beside(published),
        predicted=beside(predicted),
        hours=outside.sample_hours(evidence, cells, design),
        hypotheses=hypotheses.answers(cells, design),
        cross_checks=cross_checks,
    )
