"""From matplotlib to an SVG that a page can style: theme colours as CSS variables, one group per arm, no stray ids.

Matplotlib draws with placeholder colours; `finish` replaces each by `var(--name, fallback)`. So one drawing serves
light and dark pages, and a lone SVG file shows the fallback. Artists tagged by `tag` become
`<g class="arm" data-arm="slug">`, which the page's buttons hide and show.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl

mpl.use("svg")
import seaborn as sns
from matplotlib.figure import Figure as Drawing
from matplotlib.markers import MarkerStyle

from reckoning.report.palette import COLOURS, ArmLook

INK, MUTED, GRID, PAPER, ZONE = "#010203", "#020305", "#030407", "#040509", "#05060b"
_THEME = {
    INK: "var(--fig-ink, #1b1f24)",
    MUTED: "var(--fig-muted, #57606a)",
    GRID: "var(--fig-grid, #d8dde3)",
    PAPER: "var(--fig-paper, #ffffff)",
    ZONE: "var(--fig-zone, #dfe6ee)",
}
_ARM = {f"#0a0b{index:02x}": f"var(--arm-{index}, {pair[0]})" for index, pair in enumerate(COLOURS)}
_SVG = "http://www.w3.org/2000/svg"
_XLINK = "{http://www.w3.org/1999/xlink}href"
_COLOUR = re.compile("|".join([*_THEME, *_ARM]))
_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")


@dataclass(frozen=True)
class Sheet:
    """One drawing surface: width in CSS pixels, whether it is the narrow variant, and whether it has a legend."""

    key: str
    width: int
    narrow: bool = False
    legend: bool = False
    watermark: str = ""

    @property
    def font_px(self) -> float:
        """The size of its text, in CSS pixels."""
        return 11.5 if self.narrow else 12


def colour(look: ArmLook) -> str:
    """Return the placeholder colour of an arm."""
    return f"#0a0b{look.colour_index:02x}"


def swatch(look: ArmLook) -> str:
    """Return the mark of an arm as a small inline SVG for running text; it says nothing to a screen reader."""
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
        '<svg class="swatch" viewBox="0 0 20 14" width="20" height="14" aria-hidden="true">'
        f'<path d="M0 7H20" style="stroke: {tone}" stroke-width="2"{dashes}/>'
        f'<path d="{"".join(data)}" style="fill: {tone}"/></svg>'
    )


def tag(artists: Any, slug: str) -> None:
    """Mark artists as belonging to an arm, so that the page can hide them together."""
    for artist in artists if isinstance(artists, Iterable) else [artists]:
        artist.set_gid(f"arm:{slug}")


@contextmanager
def drawing(
    sheet: Sheet, height: float, rows: int = 1, columns: int = 1, **options: Any
) -> Iterator[tuple[Drawing, Any]]:
    """Yield (figure, 2-D array of axes) of `sheet.width` x `height` CSS pixels in the house style."""
    size = sheet.font_px
    style = {
        **sns.axes_style("whitegrid"),
        "svg.fonttype": "none",
        "svg.hashsalt": sheet.key,
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
        figure = Drawing(figsize=(sheet.width / 72, height / 72), dpi=72, layout="constrained")
        figure.get_layout_engine().set(h_pad=6 / 72, w_pad=5 / 72, hspace=0.02)
        axes = figure.subplots(rows, columns, squeeze=False, **options)
        yield figure, axes


def finish(figure: Drawing, sheet: Sheet) -> str:
    """Return the figure as one `<svg>` element, with the watermark, themed colours and unique ids."""
    if sheet.watermark:
        _stamp(figure, sheet)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return _clean(buffer.getvalue(), sheet)


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


def _clean(text: str, sheet: Sheet) -> str:
    ElementTree.register_namespace("", _SVG)
    root = ElementTree.fromstring(text)
    _drop(root, {f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"})
    used = set(_REFERENCE.findall(text)) | {
        element.attrib[_XLINK].lstrip("#") for element in root.iter() if _XLINK in element.attrib
    }
    for element in root.iter():
        _clean_element(element, sheet.key, used)
    width, height = root.attrib["width"].removesuffix("pt"), root.attrib["height"].removesuffix("pt")
    root.attrib.clear()
    root.attrib.update({"viewBox": f"0 0 {width} {height}", "width": width, "height": height, "focusable": "false"})
    root.attrib["style"] = "stroke-linejoin: round; stroke-linecap: butt"
    return ElementTree.tostring(root, encoding="unicode")


def _drop(root: ElementTree.Element, tags: set[str]) -> None:
    """Remove matplotlib's metadata and its style sheet, whose `*` selector would reach the whole page."""
    for parent in list(root.iter()):
        for child in [child for child in parent if child.tag in tags]:
            parent.remove(child)


def _clean_element(element: ElementTree.Element, key: str, used: set[str]) -> None:
    attributes = element.attrib
    name = attributes.pop("id", None)
    if name in used:
        attributes["id"] = f"{key}-{name}"
    elif name == "watermark":
        attributes["class"] = "watermark"
    elif name and name.startswith("arm:"):
        attributes["class"] = "arm"
        attributes["data-arm"] = name.removeprefix("arm:")
    if _XLINK in attributes:
        target = attributes.pop(_XLINK)
        attributes["href"] = f"#{key}-{target[1:]}" if target.startswith("#") else target
    for attribute, value in list(attributes.items()):
        attributes[attribute] = _restyle(value, key) if attribute not in {"class", "data-arm", "id", "href"} else value
    if element.text and not element.text.strip():
        element.text = None
    if element.tail and not element.tail.strip():
        element.tail = None


def _restyle(value: str, key: str) -> str:
    value = _REFERENCE.sub(lambda match: f"url(#{key}-{match[1]})", value)
    value = _NUMBER.sub(lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), value)
    if "font:" in value or "font-family" in value:
        value = re.sub(r"(font:[^;]*?px)[^;]*", r"\1 system-ui, sans-serif", value)
        value = re.sub(r"font-family:[^;]*", "font-family: system-ui, sans-serif", value)
    return _COLOUR.sub(lambda match: _THEME.get(match[0]) or _ARM[match[0]], value)
