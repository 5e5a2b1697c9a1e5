"""`python -m reckoning.analyse POINTS.csv --design DESIGN.yaml --out findings.json`, or a results folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reckoning.analyse import analyse_experiment, analyse_table
from reckoning.analyse.own_table import TableError

SHOWN = 12


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(
        prog="python -m reckoning.analyse",
        description="Turn measured points into estimates with intervals, verdicts and findings.",
        epilog="The table has one row per point: arm, block (the launch), workload, concurrency, repeat, value, flags. "
        "Keys of the design: workflow/schemas/design.schema.json and docs/statistics.md.",
    )
    made.add_argument("points", type=Path, help="a CSV or Parquet table, or a folder results/EXPERIMENT")
    made.add_argument("--design", type=Path, help="YAML: baseline, margin, metric, planned blocks, hypotheses")
    made.add_argument("--out", type=Path, help="where findings.json goes (default: beside the table)")
    made.add_argument("--tables", type=Path, help="a folder for the tables of estimates, contrasts and so on")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Run the command; exit code 2 for a fault of the input, 0 otherwise."""
    given = parser().parse_args(arguments)
    try:
        if given.points.is_dir():
            findings, out = analyse_experiment(given.points), given.points / "findings.json"
        else:
            out = given.out or given.points.with_name("findings.json")
            findings = analyse_table(given.points, given.design, out, given.tables)
    except (TableError, FileNotFoundError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    for finding in findings["findings"][:SHOWN]:
        print(f"{finding['id']:>4}  {finding['text']}")
    if (rest := len(findings["findings"]) - SHOWN) > 0:
        print(f"      and {rest} more")
    print(f"{len(findings['exclusions'])} exclusions. Written: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
