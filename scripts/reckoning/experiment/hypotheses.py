"""Hypotheses: from the user's short form to one claim per pair of arms, with explicit levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reckoning.experiment.arms import Report
from reckoning.experiment.names import remedy_for
from reckoning.experiment.shapes import ArmRequest, Claim, Hypothesis, Workload

_NEEDS_MARGIN = ("equivalent", "not-lower", "not-higher")


@dataclass(frozen=True)
class _Scope:
    """What the claims of one hypothesis refer to."""

    arms: Mapping[str, str]
    workload: Workload
    metric: str
    margin: float
    report: Report


def resolve(
    config: Mapping[str, Any], arms: Sequence[ArmRequest], workloads: Sequence[Workload], report: Report
) -> list[Hypothesis]:
    """Return the hypotheses of a completed config. Levels are those registered, not those that a command line keeps."""
    known = {workload.name: workload for workload in workloads}
    slugs = {arm.name: arm.slug for arm in arms}
    hypotheses = []
    for name, raw in config["hypotheses"].items():
        path = ("hypotheses", name)
        chosen = raw["workload"] or next(iter(known))
        if chosen not in known:
            report((*path, "workload"), chosen, "there is no workload of this name", remedy_for(chosen, known))
            continue
        scope = _Scope(slugs, known[chosen], raw["metric"], config["analysis"]["equivalence_margin"], report)
        claims: list[Claim] = []
        for index, claim in enumerate(raw["claims"]):
            claims.extend(_claims((*path, "claims", str(index)), claim, scope))
        hypotheses.append(Hypothesis(name, raw["text"], tuple(claims)))
    return hypotheses


def _claims(path: tuple[str, ...], claim: Mapping[str, Any], scope: _Scope) -> list[Claim]:
    name, relation = claim["arm"], claim["is"]
    if name not in scope.arms:
        scope.report((*path, "arm"), name, "there is no arm of this name", remedy_for(name, scope.arms))
        return []
    levels = _levels((*path, "at"), claim["at"], scope)
    margin = claim["margin"] if claim["margin"] is not None else scope.margin
    return [
        Claim(
            arm=scope.arms[name],
            reference=scope.arms[reference],
            workload=scope.workload.name,
            metric=scope.metric,
            relation=relation,
            ratio=float(claim["ratio"]),
            margin=margin if relation in _NEEDS_MARGIN else None,
            at=levels,
        )
        for reference in _references((*path, "than"), claim, scope)
    ]


def _references(path: tuple[str, ...], claim: Mapping[str, Any], scope: _Scope) -> list[str]:
    than, own = claim["than"], claim["arm"]
    if than == "all" and "all" not in scope.arms:
        return [name for name in scope.arms if name != own]
    wanted = [than] if isinstance(than, str) else list(than)
    for name in wanted:
        if name not in scope.arms:
            scope.report(path, name, "there is no arm of this name", remedy_for(name, scope.arms))
        elif name == own:
            scope.report(path, name, "an arm cannot be compared with itself", "name another arm")
    return [name for name in wanted if name in scope.arms and name != own]


def _levels(path: tuple[str, ...], at: Any, scope: _Scope) -> tuple[int, ...] | str:
    name, levels = scope.workload.name, scope.workload.concurrency
    listed = ", ".join(map(str, levels))
    if at == "peak":
        return "peak"
    if at == "every":
        return levels
    if isinstance(at, str):
        remedy = f"use a level ({listed}), a list of them, every, peak, or {{from: {levels[0]}}}"
        scope.report(path, at, "not a level", remedy)
        return ()
    if isinstance(at, Mapping):
        chosen = tuple(level for level in levels if at.get("from", 0) <= level <= at.get("to", level))
        if not chosen:
            scope.report(path, dict(at), f"no level of workload {name} lies in this range", f"its levels are {listed}")
        return chosen
    chosen = (at,) if isinstance(at, int) else tuple(at)
    for level in chosen:
        if level not in levels:
            scope.report(path, level, f"workload {name} does not measure this level", f"its levels are {listed}")
    return chosen
