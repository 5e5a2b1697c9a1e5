"""Between which concurrency levels does the lead change from one arm to the other?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class LevelLead:
    """The comparison of two arms at one level: `lead` is +1 (arm ahead), -1 (reference ahead) or 0 (not shown)."""

    level: int
    lead: int


@dataclass(frozen=True)
class Bracket:
    """The lead changes between `low` and `high`: +1 to -1 when `lead_below` is +1."""

    low: int
    high: int
    lead_below: int


@dataclass(frozen=True)
class Crossover:
    """`answer`: crosses, never (the same lead shown at every level), not-in-range (a lead shown, none against it, and
    it is not shown everywhere or shrinks towards an end, so a change may lie outside), inconclusive (no lead shown)."""

    answer: str
    brackets: tuple[Bracket, ...]
    lead: int


def find_crossovers(leads: Sequence[LevelLead], *, shrinks_at_end: bool = False) -> Crossover:
    """Return the brackets of neighbouring levels with opposite leads that are both shown; levels between may be open.

    `leads` in ascending order of level. `shrinks_at_end`: the lead at the lowest or the highest level is shown to be
    smaller than the largest lead, so that the arms approach each other towards that end.
    """
    shown = [lead for lead in leads if lead.lead]
    brackets = tuple(Bracket(a.level, b.level, a.lead) for a, b in pairwise(shown) if a.lead != b.lead)
    if brackets:
        return Crossover("crosses", brackets, 0)
    if not shown:
        return Crossover("inconclusive", (), 0)
    everywhere = len(shown) == len(leads)
    return Crossover("never" if everywhere and not shrinks_at_end else "not-in-range", (), shown[0].lead)
