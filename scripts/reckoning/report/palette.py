"""One fixed look per arm: a colour-blind-safe colour, a marker shape and a dash pattern.

The look depends on the arm's place in the plan alone. Eight colours are as many as stay apart for a colour-blind
reader, so the marker shape (eleven of them) and, from the ninth arm on, the dash carry the rest: no two of 88 arms look
alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# (light theme on white, dark theme on near black). Every colour has a contrast of 3:1 or more with its ground,
# and every pair is 15 or more apart in CIELAB, for normal, protan, deutan and tritan sight (Machado et al. 2009).
COLOURS: tuple[tuple[str, str], ...] = (
    ("#205c9f", "#97c4f8"),
    ("#823800", "#e76a37"),
    ("#0a7f5c", "#25c89a"),
    ("#b14282", "#e384bf"),
    ("#8a6d00", "#e3c341"),
    ("#5940b4", "#b09efe"),
    ("#494f58", "#c9cace"),
    ("#90172f", "#ff7b86"),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", "p", ">", "h")
DASHES: tuple[tuple[float, tuple[float, ...] | None], ...] = (
    (0, None),
    (0, (5, 2)),
    (0, (1.5, 1.5)),
    (0, (6, 2, 1.5, 2)),
)


@dataclass(frozen=True)
class ArmLook:
    """How one arm is drawn everywhere: `index` is its place in the plan."""

    index: int

    @property
    def colour_index(self) -> int:
        """The place of its colour in COLOURS."""
        return self.index % len(COLOURS)

    @property
    def marker(self) -> str:
        """Its marker shape, in matplotlib's letters."""
        return MARKERS[self.index % len(MARKERS)]

    @property
    def dash(self) -> tuple[float, tuple[float, ...] | None]:
        """Its dash pattern, as matplotlib's line style."""
        return DASHES[self.index // len(COLOURS) % len(DASHES)]


def looks(slugs: Iterable[str]) -> Mapping[str, ArmLook]:
    """Return the look of every arm, by its place in the plan's order."""
    return {slug: ArmLook(index) for index, slug in enumerate(dict.fromkeys(slugs))}


def variables(theme: int) -> str:
    """Return the CSS custom properties of the arm colours for a theme (0 light, 1 dark)."""
    return " ".join(f"--arm-{index}: {pair[theme]};" for index, pair in enumerate(COLOURS))
