"""What a figure is to the page: drawings for two widths, words that stand in for it, and its numbers as a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from reckoning.report.figures.canvas import Sheet
from reckoning.report.palette import ArmLook
from reckoning.report.quantities import finite

WIDE_PX = 900
NARROW_PX = 340


@dataclass(frozen=True)
class FigureData:
    """The numbers behind a figure: column names with their units, and rows of text, numbers or None."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]

    def csv(self) -> str:
        """Return the table as RFC 4180 text, numbers in seven significant digits; what is unknown is an empty cell."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\r\n")
        writer.writerow(self.columns)
        writer.writerows([_cell(value) for value in row] for row in self.rows)
        return stream.getvalue()


@dataclass(frozen=True)
class Figure:
    """One figure. `draw` takes a sheet and returns SVG; `alt` says in words what a reader sees.

    `group` names the figures whose arms a reader shows and hides together; without one there is nothing to hide.
    """

    key: str
    title: str
    caption: str
    alt: str
    data: FigureData
    draw: Callable[[Sheet], str]
    arms: tuple[str, ...] = ()
    category: str = "throughput"
    scope: str = ""
    group: str = ""


@dataclass(frozen=True)
class Cast:
    """The arms as figures know them: labels and looks by slug, in the order of the plan, and who is shown first."""

    labels: Mapping[str, str]
    looks: Mapping[str, ArmLook]
    first: Sequence[str]
    baseline: str | None

    def label(self, slug: str) -> str:
        """Return the label that the user wrote, or the slug."""
        return self.labels.get(slug, slug)

    def look(self, slug: str) -> ArmLook:
        """Return the look of an arm; one that the plan does not know looks like the first."""
        return self.looks.get(slug) or ArmLook(0)


def key_of(name: str) -> str:
    """Return a name as part of an HTML id or a file name."""
    kept = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in name.lower())
    return kept.strip("-") or "workload"


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return "" if finite(value) is None else f"{value:.7g}"
    text = str(value)
    # A spreadsheet runs a cell that begins like a formula; a leading apostrophe keeps it text.
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
