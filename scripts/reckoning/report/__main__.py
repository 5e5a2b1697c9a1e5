"""`python -m reckoning.report RESULTS_DIR --out FILE`: render the findings of one experiment."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reckoning.report import render


def main(arguments: list[str] | None = None) -> int:
    """Render and return the exit status: 0, or 2 when the folder is no results folder."""
    parser = argparse.ArgumentParser(
        prog="python -m reckoning.report",
        description="Render the findings of one experiment as one self-contained page.",
    )
    parser.add_argument(
        "results", type=Path, metavar="RESULTS_DIR", help="results/EXPERIMENT, as written by the workflow"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("report/findings.html"), metavar="FILE", help="default: %(default)s"
    )
    parser.add_argument(
        "--figures", type=Path, metavar="DIR", help="also write every figure as a lone SVG into this folder"
    )
    parser.add_argument("--config", metavar="FILE", help="the configuration file that the commands on the page name")
    given = parser.parse_args(arguments)
    try:
        render(given.results, given.out, given.figures, given.config)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{given.out} and {given.out.with_suffix('.md').name} ({given.out.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
