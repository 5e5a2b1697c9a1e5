"""Every figure that the data of an experiment allow, in the order of the page."""

from __future__ import annotations

from typing import Any

from reckoning.report.collect import Results
from reckoning.report.figures.curves import throughput_figure
from reckoning.report.figures.forest import forest_figure
from reckoning.report.figures.model import Cast, Figure
from reckoning.report.quantities import finite


def figures_of(found: Results, cast: Cast) -> tuple[Figure, ...]:
    """Return the figures; one whose data are missing is left out, and the page says so in its place."""
    findings = found.findings
    confidence = finite(findings.get("confidence")) or 0.95
    margin = finite(findings.get("equivalence_margin")) or 0.05
    figures: list[Figure] = []
    for workload in workloads_of(findings):
        estimates = [one for one in _of(findings, "estimates", workload) if one.get("metric") == "output_tok_s"]
        if any(finite(one.get("estimate")) is not None for one in estimates):
            figures.append(throughput_figure(workload, estimates, cast, confidence))
        contrasts = [one for one in _of(findings, "contrasts", workload) if _is_verdict_on_throughput(one)]
        if any(finite(one.get("ratio")) is not None for one in contrasts):
            figures.append(forest_figure(workload, contrasts, cast, margin, confidence))
    return tuple(figures)


def workloads_of(findings: Any) -> list[str]:
    """Return the workloads that have estimates, in the findings' order."""
    return list(dict.fromkeys(one["workload"] for one in findings.get("estimates") or []))


def _of(findings: Any, kind: str, workload: str) -> list[Any]:
    return [one for one in findings.get(kind) or [] if one.get("workload") == workload]


def _is_verdict_on_throughput(one: Any) -> bool:
    return one.get("family", "baseline") == "baseline" and one.get("metric") == "output_tok_s"
