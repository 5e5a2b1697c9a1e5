"""Every figure that the data of an experiment allow, in the order of the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reckoning.report.collect import Results
from reckoning.report.figures.comparison import predicted_figure, published_figure
from reckoning.report.figures.curves import throughput_figure
from reckoning.report.figures.forest import factor_figure, forest_figure
from reckoning.report.figures.latency import distribution_figure
from reckoning.report.figures.model import Cast, Figure
from reckoning.report.figures.pareto import pareto_figure
from reckoning.report.figures.speculation import speculation_figure
from reckoning.report.figures.sureness import order_figure, variance_figure
from reckoning.report.figures.telemetry import telemetry_figure
from reckoning.report.quantities import finite

MOST_HEAT_MAPS = 3


def figures_of(found: Results, cast: Cast, devices: Mapping[str, int], device: str) -> tuple[Figure, ...]:
    """Return the figures; one whose data are missing is left out, and the page says so in its place.

    `devices` is the number of devices that each arm uses, `device` their name (GPU, process).
    """
    findings = found.findings
    sure = f"{100 * (finite(findings.get('confidence')) or 0.95):g} %"
    figures: list[Figure | None] = []
    for workload in workloads_of(findings):
        figures += _of_workload(found, workload, cast, sure, (devices, device))
    figures.append(published_figure(findings.get("published") or [], cast, sure))
    figures.append(predicted_figure(findings.get("predicted") or [], cast))
    for (arm, block), table in _chosen_telemetry(found, cast):
        figures.append(telemetry_figure(arm, block, table, cast))
    return tuple(figure for figure in figures if figure is not None)


def _of_workload(
    found: Results, workload: str, cast: Cast, sure: str, machine: tuple[Mapping[str, int], str]
) -> list[Figure | None]:
    findings = found.findings
    margin = finite(findings.get("equivalence_margin")) or 0.05
    estimates = _of(findings, "estimates", workload)
    rates = [one for one in estimates if one.get("metric") == "output_tok_s"]
    contrasts = [one for one in _of(findings, "contrasts", workload) if _decides_throughput(one)]
    factors = [one for one in _of(findings, "factors", workload) if one.get("metric") == "output_tok_s"]
    single = [one for one in factors if one.get("kind", "single") == "single"]
    figures: list[Figure | None] = []
    if any(finite(one.get("estimate")) is not None for one in rates):
        figures.append(throughput_figure(workload, rates, cast, sure))
        figures.append(pareto_figure(workload, estimates, cast, *machine))
    if any(finite(one.get("ratio")) is not None for one in contrasts):
        figures.append(forest_figure(workload, contrasts, cast, margin, sure))
    if "distributions" in found.tables:
        figures.append(distribution_figure(workload, found.tables["distributions"], cast))
    figures.append(speculation_figure(workload, _of(findings, "speculation", workload), cast, sure))
    if any(finite(one.get("ratio")) is not None for one in single):
        figures.append(factor_figure(workload, single, cast, margin, sure))
    figures.append(variance_figure(workload, _of(findings, "variance", workload), cast))
    drift = next((one for one in _of(findings, "drift", workload) if one.get("metric") == "output_tok_s"), None)
    figures.append(order_figure(workload, estimates, run_order(found.plan), drift, cast))
    return figures


def workloads_of(findings: Mapping[str, Any]) -> list[str]:
    """Return the workloads that have estimates, in the findings' order."""
    return list(dict.fromkeys(one["workload"] for one in findings.get("estimates") or []))


def run_order(plan: Mapping[str, Any]) -> dict[tuple[str, int], int]:
    """Return the place in the run of every (arm, block), counted from 1."""
    return {(launch["arm"], launch["block"]): launch["order"] + 1 for launch in plan.get("launches") or []}


def _chosen_telemetry(found: Results, cast: Cast) -> list[tuple[tuple[str, int], Any]]:
    """Return the first recorded launch of the arms shown first, then of others, at most MOST_HEAT_MAPS."""
    rank = {slug: place for place, slug in enumerate([*cast.first, *cast.looks][::-1])}
    first: dict[str, tuple[tuple[str, int], Any]] = {}
    for (arm, block), table in sorted(found.telemetry.items(), key=lambda item: item[0][1]):
        first.setdefault(arm, ((arm, block), table))
    return [first[arm] for arm in sorted(first, key=lambda slug: -rank.get(slug, -1))][:MOST_HEAT_MAPS]


def _of(findings: Mapping[str, Any], kind: str, workload: str) -> list[Any]:
    return [one for one in findings.get(kind) or [] if one.get("workload") in (workload, None)]


def _decides_throughput(one: Mapping[str, Any]) -> bool:
    return one.get("family", "baseline") == "baseline" and one.get("metric") == "output_tok_s"
