"""The page itself: results in, one self-contained HTML file out, and the same findings as Markdown beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from reckoning.files import write_text
from reckoning.report import palette, quantities
from reckoning.report.collect import collect
from reckoning.report.content import content_of
from reckoning.report.figures.canvas import Sheet, symbol
from reckoning.report.figures.model import NARROW_PX, WIDE_PX, Figure
from reckoning.report.markdown import markdown_of
from reckoning.report.provenance import Provenance
from reckoning.report.tables import BAD, GOOD, VERDICT_MARKS

NUMBER_BEFORE_PERCENT = re.compile(r"(?<=\d) (?=%)")
TEMPLATES = Path(__file__).resolve().parents[3] / "report"


def render(results: Path, out: Path, figures: Path | None = None, config: str | None = None) -> None:
    """Render `results` (a folder results/{experiment}/) as the page `out`, and as Markdown beside it (suffix .md).

    With `figures`, every figure is also written into that folder as a lone SVG with a legend. `config` is the
    configuration file that the commands on the page name. Each file is written whole or not at all. Whatever is missing
    in the folder is said in the page. Raises NotADirectoryError when there is no such folder.
    """
    results, out = Path(results), Path(out)
    found = collect(results)
    content = content_of(found, out, config)
    page = _environment(content["provenance"]).get_template("findings.html.j2").render(content)
    if figures is not None:
        _write_figures(content, Path(figures))
    write_text(out.with_suffix(".md"), markdown_of(content))
    write_text(out, keep_together(page))


def keep_together(page: str) -> str:
    """Return the page with spaces between a number and its per cent sign at which no line breaks."""
    return NUMBER_BEFORE_PERCENT.sub("\u00a0", page)


def svg_of(figure: Figure, provenance: Provenance, *, narrow: bool = False, alone: bool = False) -> str:
    """Return one drawing of a figure: `narrow` for phones, `alone` for a file."""
    width = NARROW_PX if narrow else WIDE_PX
    key = f"{figure.key}-{'narrow' if narrow else 'wide'}"
    return figure.draw(Sheet(key, width, narrow, alone, provenance.watermark))


def embedded_json(value: Any) -> Markup:
    """Return JSON that can stand inside a `<script>` element: no character of it can end the element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _write_figures(content: Mapping[str, Any], folder: Path) -> None:
    """Write every figure; one of an earlier rendering that no longer exists is removed."""
    folder.mkdir(parents=True, exist_ok=True)
    names = set()
    for figure in content["figures"]:
        svg = svg_of(figure, content["provenance"], alone=True)
        names.add(f"{figure.key}.svg")
        write_text(folder / f"{figure.key}.svg", f'<?xml version="1.0" encoding="utf-8"?>\n{svg}\n')
    for stale in folder.glob("*.svg"):
        if stale.name not in names:
            stale.unlink()


def _environment(provenance: Provenance) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(count=quantities.count, embedded=embedded_json, day=quantities.moment, short=_short)
    environment.globals.update(
        drawing=lambda figure, narrow: Markup(svg_of(figure, provenance, narrow=narrow)),
        symbols=lambda cast: Markup("".join(symbol(look, f"mark-{look.index}") for look in cast.looks.values())),
        tone=lambda word: "good" if word in GOOD else "bad" if word in BAD else "plain",
        marks=VERDICT_MARKS,
        style=Markup((TEMPLATES / "style.css").read_text(encoding="utf-8")),
        script=Markup((TEMPLATES / "page.js").read_text(encoding="utf-8")),
        light=palette.variables(0),
        dark=palette.variables(1),
    )
    return environment


def _short(value: float | str) -> str:
    """Return what a column sorts by: seven digits tell any two estimates apart."""
    return value if isinstance(value, str) else f"{value:.7g}"
