"""From matplotlib to an SVG that a page can style: theme colours as CSS variables, one group per arm, no stray ids.

Matplotlib draws with placeholder colours, which become CSS variables, so that one drawing serves light and dark pages.
Artists tagged by `tag` become `<g class="arm" data-arm="slug">`, which the page's buttons hide and show.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import seaborn as sns
from matplotlib.figure import Figure as Drawing
from matplotlib.markers import MarkerStyle

from reckoning.report.figures.svg import GRID, INK, MUTED, page_svg
from reckoning.report.palette import ArmLook


@dataclass(frozen=True)
class Sheet:
    """One drawing surface: width in CSS pixels, whether it is the narrow variant, and whether it stands alone.

    A drawing that stands alone carries a legend and its own colours; one in the page leaves both to the page.
    """

    key: str
    width: int
    narrow: bool = False
    alone: bool = False
    watermark: str = ""

    @property
    def font_px(self) -> float:
        """The size of its text, in CSS pixels."""
        return 11.5 if self.narrow else 12


def symbol(look: ArmLook, name: str) -> str:
    """Return the mark of an arm as an SVG `<symbol>` of this id, for swatches in running text."""
    shape = MarkerStyle(look.marker)
    path = shape.get_path().transformed(shape.get_transform())
    data = []
    for points, kind in path.iter_segments(simplify=False):
        letter = {1: "M", 2: "L", 3: "Q", 4: "C", 79: "Z"}[int(kind)]
        numbers = " ".join(f"{10 + 7 * x if place % 2 == 0 else 7 - 7 * x:.1f}" for place, x in enumerate(points))
        data.append(letter + ("" if letter == "Z" else numbers))
    dash = look.dash[1]
    dashes = f' stroke-dasharray="{" ".join(f"{2 * one:g}" for one in dash)}"' if dash else ""
    tone = f"var(--arm-{look.colour_index})"
    return (
        f'<symbol id="{name}" viewBox="0 0 20 14"><path d="M0 7H20" style="stroke:{tone}" stroke-width="2"{dashes}/>'
        f'<path d="{"".join(data)}" style="fill:{tone}"/></symbol>'
    )


def tag(artists: Any, slug: str) -> None:
    """Mark artists as belonging to an arm, so that the page can hide them together."""
    for artist in artists if isinstance(artists, Iterable) else [artists]:
        artist.set_gid(f"arm:{slug}")


@dataclass(frozen=True)
class Margins:
    """Room around and between panels in CSS pixels, known beforehand: measuring it would draw every figure twice."""

    left: float = 60
    bottom: float = 46
    top: float = 8
    right: float = 14
    across: float = 0
    down: float = 0

    def apply(self, figure: Drawing, rows: int, columns: int) -> None:
        """Place the panels of a figure; none gets smaller than a few pixels, however long the labels are."""
        width, height = figure.get_size_inches() * 72
        left = min(self.left, 0.6 * width)
        panel_width = (width - left - self.right - self.across * (columns - 1)) / columns
        panel_height = (height - self.top - self.bottom - self.down * (rows - 1)) / rows
        figure.subplots_adjust(
            left=left / width,
            right=1 - self.right / width,
            bottom=self.bottom / height,
            top=1 - self.top / height,
            wspace=self.across / panel_width,
            hspace=self.down / panel_height,
        )


def text_px(lines: Iterable[str], size: float) -> float:
    """Return the width of the longest line in CSS pixels, on the safe side for every sans-serif face."""
    return max((len(part) for line in lines for part in line.splitlines()), default=0) * 0.6 * size


def shortened(label: str, most: int) -> str:
    """Return a label that fits into a figure; the tables have the whole one."""
    return label if len(label) <= most else label[: most - 1] + "…"


@contextmanager
def drawing(
    sheet: Sheet, height: float, rows: int = 1, columns: int = 1, *, margins: Margins | None = None, **options: Any
) -> Iterator[tuple[Drawing, Any]]:
    """Yield (figure, 2-D array of axes) of `sheet.width` x `height` CSS pixels in the house style.

    Without `margins`, and where a legend has to find its place, the room for labels is measured, which takes longer.
    """
    size = sheet.font_px
    style = {
        **sns.axes_style("whitegrid"),
        "svg.fonttype": "none",
        "svg.hashsalt": sheet.key,
        "text.parse_math": False,  # a `$` in an arm's name is a dollar sign
        "font.family": "sans-serif",
        "font.size": size,
        "axes.titlesize": size,
        "axes.titleweight": "bold",
        "axes.labelsize": size,
        "xtick.labelsize": size - 1,
        "ytick.labelsize": size - 1,
        "legend.fontsize": size - 1,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.titlecolor": INK,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "axes.edgecolor": MUTED,
        "axes.facecolor": "none",
        "figure.facecolor": "none",
        "savefig.facecolor": "none",
        "grid.color": GRID,
        "grid.linewidth": 0.8,
        "axes.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.spines.left": False,
        "axes.axisbelow": True,
    }
    with mpl.rc_context(style):
        fixed = margins if not sheet.alone else None
        layout = None if fixed else "constrained"
        figure = Drawing(figsize=(sheet.width / 72, height / 72), dpi=72, layout=layout)
        if fixed:
            fixed.apply(figure, rows, columns)
        else:
            figure.get_layout_engine().set(h_pad=6 / 72, w_pad=5 / 72, hspace=0.02)
        axes = figure.subplots(rows, columns, squeeze=False, **options)
        yield figure, axes


def finish(figure: Drawing, sheet: Sheet) -> str:
    """Return the figure as one `<svg>` element, with the watermark, themed colours and unique ids."""
    if sheet.watermark:
        _stamp(figure, sheet)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return page_svg(buffer.getvalue(), sheet.key, alone=sheet.alone)


def _stamp(figure: Drawing, sheet: Sheet) -> None:
    width, height = figure.get_size_inches() * 72
    size = min(width / (0.62 * len(sheet.watermark)), height / 4, 54)
    step = max(1, round(height / 520))
    for place in range(step):
        text = figure.text(
            0.5,
            (place + 0.5) / step,
            sheet.watermark,
            ha="center",
            va="center",
            rotation=14,
            fontsize=size,
            fontweight="bold",
            color=MUTED,
            alpha=0.13,
            zorder=0.1,
            in_layout=False,
        )
        text.set_gid("watermark")
