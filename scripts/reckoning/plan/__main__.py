"""Show what an experiment would do, without touching a GPU: python -m reckoning.plan CONFIG [--json].

Exit status: 0 when at least one arm can run, 1 when none can, 2 when the experiment file is at fault.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from reckoning import files
from reckoning.experiment import ExperimentError, read_file
from reckoning.plan import make_plan, plan_to_json
from reckoning.plan.flags import RECORDED, read_installed
from reckoning.plan.rules import document
from reckoning.plan.view import show

RUNS, NOTHING_RUNS, BROKEN = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    options = _parser().parse_args(arguments)
    if options.record_flags:
        return _record(options.record_flags)
    if options.rules:
        files.write_text(document.DOCUMENT, document.updated(document.DOCUMENT.read_text(encoding="utf-8")))
        print(f"wrote the table of rules in {document.DOCUMENT}")
        return RUNS
    if options.config_file is None:
        print("give an experiment file, such as config/config.yaml", file=sys.stderr)
        return BROKEN
    try:
        plan = make_plan(read_file(options.config_file, dict(options.config)))
    except ExperimentError as error:
        print(error, file=sys.stderr)
        return BROKEN
    if options.json:
        print(files.json_text(plan_to_json(plan)))
    else:
        show(plan, every_note=options.all)
    return RUNS if plan.runnable else NOTHING_RUNS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reckoning.plan", description=__doc__.splitlines()[0])
    parser.add_argument("config_file", nargs="?", metavar="CONFIG", help="experiment file (YAML)")
    parser.add_argument("--json", action="store_true", help="print plan.json instead of tables")
    parser.add_argument("--all", action="store_true", help="show notes too, and the whole order of launches")
    parser.add_argument(
        "--config",
        nargs="+",
        action="extend",
        default=[],
        type=_override,
        metavar="KEY=VALUE",
        help="replace a top-level key, as Snakemake's --config does: blocks=5 levels=1,32 only=tp1,tp2",
    )
    parser.add_argument("--rules", action="store_true", help="renew the table of rules in docs/rules.md")
    parser.add_argument(
        "--record-flags",
        metavar="PYTHON",
        help="ask the SGLang of this interpreter for its arguments and keep them in resources/engines/",
    )
    return parser


def _override(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, yaml.safe_load(value)


def _record(python: str) -> int:
    try:
        table = read_installed(python)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return BROKEN
    path = Path(RECORDED) / f"sglang-{table['sglang_version']}.json"
    files.write_text(path, files.json_text(table, indent=1) + "\n")
    print(f"{len(table['flags'])} arguments of SGLang {table['sglang_version']} written to {path}")
    return RUNS


if __name__ == "__main__":
    sys.exit(main())
