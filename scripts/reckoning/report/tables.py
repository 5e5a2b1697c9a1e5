"""Tables as the page shows them: cells with a text for people and a value to sort by, and the full numbers as CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reckoning.report.figures.model import Cast, FigureData
from reckoning.report.quantities import (
    UNKNOWN,
    duration,
    exact,
    finite,
    p_value,
    percent,
    significant,
    with_interval,
)

VERDICT_MARKS = {
    "faster": "▲",
    "higher": "▲",
    "supported": "✓",
    "reproduced": "✓",
    "applied": "✓",
    "ok": "✓",
    "slower": "▼",
    "lower": "▼",
    "refuted": "✗",
    "differs": "✗",
    "fail": "✗",
    "warn": "!",
    "equivalent": "≈",
}
GOOD = frozenset(
    {"faster", "higher", "supported", "reproduced", "ok", "applied", "shown", "not-needed", "already-upstream"}
)
BAD = frozenset({"slower", "lower", "refuted", "differs", "fail", "failed", "anchor-missing", "ambiguous"})


@dataclass(frozen=True)
class Cell:
    """`kind`: text, number, verdict, arm (text: its slug) or code. `sort`: what a sorted column goes by; None: last."""

    text: str
    kind: str = "text"
    sort: float | str | None = None


@dataclass(frozen=True)
class Table:
    """`numeric` says of each column whether it holds numbers; `data` is what its download holds."""

    key: str
    caption: str
    columns: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[Cell, ...], ...]
    data: FigureData


@dataclass(frozen=True)
class Column:
    """How one column is made: its heading with the unit, the cell of a record, and the keys it puts in the download.

    An `optional` column is left out of sight when all of its cells say the same; what is `said` then ends the caption.
    """

    heading: str
    cell: Callable[[Mapping[str, Any]], Cell]
    keys: tuple[str, ...]
    numeric: bool = False
    optional: bool = False
    said: bool = True


def table(key: str, caption: str, records: Iterable[Mapping[str, Any]], columns: Sequence[Column]) -> Table:
    """Return the table of some records (mappings as in findings.json)."""
    records = list(records)
    names = tuple(dict.fromkeys(name for column in columns for name in column.keys))
    names = tuple(name for name in names if not records or any(name in record for record in records))
    shown = [(column, [column.cell(record) for record in records]) for column in columns]
    same = [
        cells[0].text
        for column, cells in shown
        if column.optional and column.said and len({cell.text for cell in cells}) == 1
    ]
    shown = [(column, cells) for column, cells in shown if _tells(column, cells)]
    return Table(
        key=key,
        caption=", ".join([caption, *filter(None, same)]),
        columns=tuple(column.heading for column, _ in shown),
        numeric=tuple(column.numeric for column, _ in shown),
        rows=tuple(zip(*(cells for _, cells in shown), strict=True)) if records else (),
        data=FigureData(names, tuple(tuple(_flat(record.get(name)) for name in names) for record in records)),
    )


def _tells(column: Column, cells: Sequence[Cell]) -> bool:
    """Say whether a column tells anything: not when every cell is empty, or an optional one repeats itself."""
    texts = {cell.text for cell in cells}
    return bool(texts - {"", UNKNOWN}) and not (column.optional and len(texts) == 1)


def text(heading: str, key: str, *, optional: bool = False, said: bool = True) -> Column:
    """A column of plain words."""

    def cell(record: Mapping[str, Any]) -> Cell:
        words = _words(record.get(key))
        return Cell(words, sort=words or None)

    return Column(heading, cell, (key,), optional=optional, said=said)


def code(heading: str, key: str) -> Column:
    """A column of names as a computer knows them."""
    return Column(
        heading, lambda record: Cell(_words(record.get(key)), "code", _words(record.get(key)) or None), (key,)
    )


def arm(heading: str, key: str, cast: Cast, nobody: str = UNKNOWN) -> Column:
    """A column of arms with their marks; `nobody` stands where no arm is named."""
    order = {slug: float(place) for place, slug in enumerate(cast.looks)}

    def cell(record: Mapping[str, Any]) -> Cell:
        slug = record.get(key)
        return Cell(str(slug), "arm", order.get(str(slug))) if slug else Cell(nobody)

    return Column(heading, cell, (key,))


def verdict(heading: str, key: str) -> Column:
    """A column of verdicts."""
    return Column(
        heading, lambda record: Cell(str(record.get(key) or UNKNOWN), "verdict", str(record.get(key))), (key,)
    )


def number(heading: str, key: str, show: Callable[[Any], str] = significant) -> Column:
    """A column of numbers that have no interval."""
    return Column(heading, lambda record: Cell(show(record.get(key)), "number", finite(record.get(key))), (key,), True)


def whole(heading: str, key: str) -> Column:
    """A column of counts or levels, printed as they are."""
    return number(heading, key, exact)


def share(heading: str, key: str) -> Column:
    """A column of shares, printed as per cent."""
    return number(heading, key, percent)


def seconds(heading: str, key: str) -> Column:
    """A column of lengths of time."""
    return number(heading, key, duration)


def probability(heading: str, key: str) -> Column:
    """A column of p values."""
    return number(heading, key, p_value)


def measured(heading: str, keys: tuple[str, str, str] = ("estimate", "low", "high"), unit: str = "") -> Column:
    """A column of estimates with their intervals."""

    def cell(record: Mapping[str, Any]) -> Cell:
        middle, low, high = (record.get(key) for key in keys)
        return Cell(with_interval(middle, low, high, unit), "number", finite(middle))

    return Column(heading, cell, keys, True)


def _words(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return exact(value) if finite(value) is not None else str(value)


def _flat(value: Any) -> object:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
