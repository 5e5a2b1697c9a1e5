"""Command line: `python -m reckoning.environment probe | diagnose FACTS.json | explain server.log`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from reckoning.environment.check import findings_json
from reckoning.environment.diagnosis import diagnose
from reckoning.environment.facts import probe, read_facts
from reckoning.environment.finding import Level
from reckoning.environment.show import show_findings, show_reading
from reckoning.files import json_text, read_json, write_text
from reckoning.serverlog import LogFollower


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code (1 when something fails, 2 for bad input)."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _probe(options: argparse.Namespace) -> int:
    facts = probe(
        options.engine_python, options.model, prove=not options.no_proof, architectures=options.compile_for or ()
    )
    text = json_text(facts) + "\n"
    if options.out:
        write_text(options.out, text)
    else:
        sys.stdout.write(text)
    return 0


def _diagnose(options: argparse.Namespace) -> int:
    facts = read_facts(options.facts)
    plan = read_json(options.plan) if options.plan else None
    findings = diagnose(facts, plan)
    if options.json:
        print(json_text(findings_json(findings, (plan or {}).get("experiment"), facts.get("probed_at"))))
    else:
        show_findings(findings, everything=options.all)
    return int(any(finding.level is Level.FAIL for finding in findings))


def _explain(options: argparse.Namespace) -> int:
    if not Path(options.log).is_file():
        raise ValueError(f"{options.log}: no such file")
    follower = LogFollower(options.log)
    follower.poll()
    reading = follower.reading(stalled=not follower.reading().ready)
    print(json_text(reading.as_json())) if options.json else show_reading(reading)
    return int(reading.cause is not None)


def _capability(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    if not (major.isdigit() and minor.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not MAJOR.MINOR, like 12.0")
    return int(major), int(minor)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reckoning.environment", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("probe", help="collect the facts of this machine (reads only)")
    command.add_argument("--out", help="write them to this file instead of standard output")
    command.add_argument(
        "--engine-python", help="the interpreter that runs the engine: its torch and packages are asked"
    )
    command.add_argument("--model", help="the model's folder: its disk is looked at")
    command.add_argument("--no-proof", action="store_true", help="do not compile and run small programs on the GPUs")
    command.add_argument(
        "--compile-for",
        action="append",
        type=_capability,
        metavar="MAJOR.MINOR",
        help="compile for this compute capability, also without such a GPU (12.0 is sm_120)",
    )
    command.set_defaults(run=_probe)
    command = commands.add_parser("diagnose", help="turn facts into findings")
    command.add_argument("facts", help="a file that `probe --out` wrote, on this machine or another")
    command.add_argument("--plan", help="plan.json: which arms does each finding concern?")
    command.add_argument("--json", action="store_true", help="print environment.json instead of text")
    command.add_argument("--all", action="store_true", help="show what is in order, too")
    command.set_defaults(run=_diagnose)
    command = commands.add_parser("explain", help="name the first cause in the log of a failed server")
    command.add_argument("log")
    command.add_argument("--json", action="store_true", help="print JSON instead of text")
    command.set_defaults(run=_explain)
    return parser


if __name__ == "__main__":
    sys.exit(main())
