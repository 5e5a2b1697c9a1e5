"""Which arms differ in one setting only, and which four of them form a two-by-two table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    only_first: str
    only_second: str


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


def interactions(steps: Sequence[FactorStep]) -> list[Interaction]:
    """Return the two-by-two tables that `steps` close: the same change with and without another change."""
    found: dict[frozenset[str], Interaction] = {}
    by_reference: dict[str, list[FactorStep]] = {}
    for step in steps:
        by_reference.setdefault(step.reference, []).append(step)
    for plain, starts in by_reference.items():
        for index, second in enumerate(starts):
            for first in starts[:index]:
                if first.factor == second.factor:
                    continue
                for closing in by_reference.get(first.arm, ()):
                    same_change = (closing.factor, closing.before, closing.after)
                    other_side = [s for s in by_reference.get(second.arm, ()) if s.arm == closing.arm]
                    if same_change == (second.factor, second.before, second.after) and other_side:
                        key = frozenset({plain, first.arm, second.arm, closing.arm})
                        found.setdefault(key, Interaction(first, second, plain, closing.arm, first.arm, second.arm))
    return list(found.values())
