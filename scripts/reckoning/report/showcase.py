"""`python -m reckoning.report.showcase FOLDER`: a gallery of pages, from recordings and from synthetic edge cases.

Every recording under `resources/recordings/` that holds results and every scenario of `reckoning.analyse.synthetic` is
rendered into FOLDER with an index. Use it to look at a change of the report in every state that results can be in.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

import jinja2

from reckoning.analyse import analyse_experiment
from reckoning.analyse.synthetic import SCENARIOS, write_experiment
from reckoning.files import write_text
from reckoning.report.page import TEMPLATES, render

RECORDINGS = TEMPLATES.parent / "resources" / "recordings"


def showcase(folder: Path, names: Iterable[str], recordings: Path = RECORDINGS) -> list[tuple[str, str]]:
    """Render the named scenarios and every recording into `folder`; return (name, kind) of each page."""
    pages = []
    for results in sorted(path.parent for path in recordings.glob("**/findings.json")):
        render(results, folder / f"recording-{results.name}.html")
        pages.append((f"recording-{results.name}", "recording"))
    for name in names:
        results = folder / "results" / name
        write_experiment(results, SCENARIOS[name])
        analyse_experiment(results)
        render(results, folder / f"{name}.html")
        pages.append((name, "synthetic"))
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True)
    write_text(folder / "index.html", environment.get_template("gallery.html.j2").render(pages=pages))
    return pages


def main(arguments: list[str] | None = None) -> int:
    """Make the gallery and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m reckoning.report.showcase", description="A gallery of rendered reports."
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the pages go")
    parser.add_argument(
        "--only", nargs="+", choices=sorted(SCENARIOS), default=list(SCENARIOS), help="these scenarios only"
    )
    given = parser.parse_args(arguments)
    pages = showcase(given.folder, given.only)
    print(f"{given.folder / 'index.html'} ({len(pages)} pages)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
