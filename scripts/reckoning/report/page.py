"""The page itself: results in, one self-contained HTML file out, and the same findings as Markdown beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from reckoning.files import write_text
from reckoning.report import palette, quantities
from reckoning.report.collect import Results, collect
from reckoning.report.figures.canvas import Sheet
from reckoning.report.figures.gallery import figures_of
from reckoning.report.figures.model import NARROW_PX, WIDE_PX, Figure
from reckoning.report.provenance import Provenance, provenance_of
from reckoning.report.view import arm_rows, cast_of, link_to

TEMPLATES = Path(__file__).resolve().parents[3] / "report"


def render(results: Path, out: Path, figures: Path | None = None) -> None:
    """Render `results` (a folder results/{experiment}/) as the page `out`, and as Markdown beside it (suffix .md).

    With `figures`, every figure is also written there as a lone SVG with a legend. Each file is written whole or not at
    all. Whatever is missing in the folder is said in the page. Raises NotADirectoryError when there is no such folder.
    """
    results, out = Path(results), Path(out)
    found = collect(results)
    page, markdown, drawings = build(found, out)
    for name, svg in drawings.items() if figures is not None else ():
        write_text(Path(figures) / f"{name}.svg", svg)
    write_text(out.with_suffix(".md"), markdown)
    write_text(out, page)


def build(found: Results, out: Path) -> tuple[str, str, dict[str, str]]:
    """Return the page, the Markdown and the lone figures by key; `out` only serves the links from the page."""
    provenance = provenance_of(found)
    rows = arm_rows(found)
    cast = cast_of(found, rows)
    figures = figures_of(found, cast)
    values = {
        "found": found,
        "findings": found.findings,
        "plan": found.plan,
        "provenance": provenance,
        "arms": rows,
        "cast": cast,
        "figures": figures,
        "style": Markup((TEMPLATES / "style.css").read_text(encoding="utf-8")),
        "script": Markup((TEMPLATES / "page.js").read_text(encoding="utf-8")),
        "light": palette.variables(0),
        "dark": palette.variables(1),
        "link": lambda file: link_to(found, file, out),
    }
    environment = _environment(provenance)
    page = environment.get_template("findings.html.j2").render(values)
    return page, "", {}


def _environment(provenance: Provenance) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        estimate=quantities.estimate,
        interval=quantities.interval,
        with_interval=quantities.with_interval,
        significant=quantities.significant,
        duration=quantities.duration,
        percent=quantities.percent,
        p_value=quantities.p_value,
        count=quantities.count,
        embedded=embedded_json,
    )
    environment.globals["drawing"] = lambda figure, narrow: Markup(svg_of(figure, provenance, narrow))
    return environment


def svg_of(figure: Figure, provenance: Provenance, narrow: bool, legend: bool = False) -> str:
    """Return one drawing of a figure."""
    width = NARROW_PX if narrow else WIDE_PX
    key = f"{figure.key}-{'narrow' if narrow else 'wide'}"
    return figure.draw(Sheet(key, width, narrow, legend, provenance.watermark))


def embedded_json(value: Any) -> Markup:
    """Return JSON that can stand inside a `<script>` element: no character of it can end the element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def by_category(figures: Sequence[Figure]) -> dict[str, list[Figure]]:
    """Return the figures grouped by category, in order."""
    grouped: dict[str, list[Figure]] = {}
    for figure in figures:
        grouped.setdefault(figure.category, []).append(figure)
    return grouped
