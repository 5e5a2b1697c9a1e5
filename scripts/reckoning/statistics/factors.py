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


def single_steps(factors: Mapping[str, Mapping[str, Any]]) -> list[FactorStep]:
    """Return every ordered pair of arms that differ in exactly one factor, each pair once.

    `factors`: arm -> factor -> value, in the order of the plan; the earlier arm is the reference.
    """
    arms = list(factors)
    steps = []
    for later, arm in enumerate(arms):
        for reference in arms[:later]:
            changed = differences(factors[reference], factors[arm])
            if len(changed) == 1:
                name = changed[0]
                before, after = factors[reference].get(name), factors[arm].get(name)
                steps.append(FactorStep(name, text_of(before), text_of(after), arm, reference))
    return steps


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the names of the factors in which two arms differ."""
    return sorted(name for name in set(one) | set(other) if one.get(name) != other.get(name))


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
