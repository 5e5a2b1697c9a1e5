"""One fixed look per arm: a colour-blind-safe colour, a marker shape and a dash pattern.

The look depends on the arm's place in the plan alone. Eight colours are as many as stay apart for a colour-blind
reader, so the marker shape (eleven of them) and, from the ninth arm on, the dash carry the rest: no two of 88 arms look
alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# (light theme on white, dark theme on near black): every one has a contrast of at least 3:1 with its ground.
COLOURS: tuple[tuple[str, str], ...] = (
    ("#0b5fa5", "#6cb6ff"),
    ("#c8500a", "#ff9a5c"),
    ("#00785a", "#3fd0a4"),
    ("#a83a7a", "#f08fc4"),
    ("#8a6d00", "#e3c341"),
    ("#5b3fb0", "#b5a2ff"),
    ("#4a4f57", "#b9c0ca"),
    ("#8c1d2f", "#ff7b86"),
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
