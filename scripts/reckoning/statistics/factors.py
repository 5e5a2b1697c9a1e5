"""Which arms differ in one setting only, and which four of them form a two-by-two table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any


@dataclass(frozen=True)
class FactorStep:
    """`arm` is `reference` with `factor` changed from `before` to `after`."""

    factor: str
    before: str
    after: str
    arm: str
    reference: str


@dataclass(frozen=True)
class Interaction:
    """Does `first`'s effect depend on `second`'s? `plain` has neither change, `both` has both."""

    first: FactorStep
    second: FactorStep
    plain: str
    both: str


def text_of(value: Any) -> str:
    """Return how a setting's value is written in a sentence."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def single_steps(
    factors: Mapping[str, Mapping[str, Any]], groups: Mapping[str, Sequence[str]] | None = None
) -> list[FactorStep]:
    """Return every pair of arms that differ in one decision, each pair once.

    `factors`: arm -> factor -> value, in the order of the plan; the earlier arm is the reference. `groups`: name ->
    factors that are one decision when they change together (a name ending in `_` stands for all that begin so).
    """
    arms = list(factors)
    steps = []
    for later, arm in enumerate(arms):
        for reference in arms[:later]:
            step = _step(reference, arm, factors, groups or {})
            if step is not None:
                steps.append(step)
    return steps


def decisions(changed: Sequence[str], groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the changed factors with those of one group put together when there are several."""
    found, rest = [], list(changed)
    for group, members in groups.items():
        inside = [name for name in rest if _belongs(name, members)]
        if len(inside) > 1:
            found.append(group)
            rest = [name for name in rest if name not in inside]
    return [*found, *rest]


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the names of the factors in which two arms differ."""
    return sorted(name for name in set(one) | set(other) if one.get(name) != other.get(name))


def _step(
    reference: str, arm: str, factors: Mapping[str, Mapping[str, Any]], groups: Mapping[str, Sequence[str]]
) -> FactorStep | None:
    one, other = factors[reference], factors[arm]
    changed = differences(one, other)
    names = decisions(changed, groups)
    if len(names) != 1:
        return None
    if len(changed) == 1:
        return FactorStep(names[0], text_of(one.get(changed[0])), text_of(other.get(changed[0])), arm, reference)
    return FactorStep(names[0], _together(changed, one), _together(changed, other), arm, reference)


def _together(names: Sequence[str], values: Mapping[str, Any]) -> str:
    present = [f"{name} {text_of(values[name])}" for name in names if values.get(name) is not None]
    return ", ".join(present) or "not set"


def _belongs(name: str, members: Sequence[str]) -> bool:
    return any(name == member or (member.endswith("_") and name.startswith(member)) for member in members)


def interactions(steps: Sequence[FactorStep], arms: Sequence[str]) -> list[Interaction]:
    """Return the two-by-two tables that `steps` close: the same change with and without another change.

    `arms` in the order of the plan; the first arm of the four is the plain one.
    """
    neighbours: dict[str, list[FactorStep]] = {arm: [] for arm in arms}
    for step in steps:
        neighbours[step.reference].append(step)
        neighbours[step.arm].append(FactorStep(step.factor, step.after, step.before, step.reference, step.arm))
    found: dict[frozenset[str], Interaction] = {}
    for plain in arms:
        for first, second in combinations(neighbours[plain], 2):
            if first.factor == second.factor:
                continue
            closing = {_change(s): s.arm for s in neighbours[first.arm]}.get(_change(second))
            closing_too = {_change(s): s.arm for s in neighbours[second.arm]}.get(_change(first))
            if closing is not None and closing == closing_too:
                key = frozenset({plain, first.arm, second.arm, closing})
                found.setdefault(key, Interaction(first, second, plain, closing))
    return list(found.values())


def _change(step: FactorStep) -> tuple[str, str, str]:
    return step.factor, step.before, step.after
