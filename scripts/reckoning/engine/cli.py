"""Command line: build an engine, check a server's log, probe what patches do."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reckoning import files
from reckoning.engine import EngineError, build, read_proof
from reckoning.engine.probe import probe
from reckoning.patches import PatchError


def main(arguments: list[str] | None = None) -> int:
    """Run `python -m reckoning.engine`; return the exit status (1: does not hold, 2: cannot be done)."""
    parser = argparse.ArgumentParser(prog="python -m reckoning.engine", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("build", help="build the engine and overlays of a plan")
    one.add_argument("plan", type=Path, help="results/<experiment>/plan.json")
    one.add_argument("--out", type=Path, help="engine.json (default: beside the plan)")
    one.add_argument("--log", type=Path)
    one.add_argument("--root", type=Path, default=Path(), help="the repository (default: the current folder)")
    two = commands.add_parser("proof", help="does this server log prove that the patched tree ran?")
    two.add_argument("engine", type=Path, help="engine.json")
    two.add_argument("arm", help="slug of the arm")
    two.add_argument("log", type=Path, help="server.log")
    three = commands.add_parser("probe", help="run the probes of an arm's patches, with each patch and without it")
    three.add_argument("engine", type=Path, help="engine.json")
    three.add_argument("arm", help="slug of the arm")
    three.add_argument("--root", type=Path, default=Path(), help="the repository (default: the current folder)")
    options = parser.parse_args(arguments)
    try:
        if options.command == "build":
            out = options.out or options.plan.with_name("engine.json")
            build(files.read_json(options.plan), options.root.resolve(), out, options.log, print)
            print(f"wrote {out}")
            return 0
        return _proof(options) if options.command == "proof" else _probe(options)
    except (EngineError, PatchError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _proof(options: argparse.Namespace) -> int:
    engine = files.read_json(options.engine)
    proof = read_proof(options.log.read_text(errors="replace"), engine["overlays"][engine["arms"][options.arm]])
    for item in proof.modules:
        print(f"pid {item['pid']}: {item['module']} from {item['file']} sha256 {item['sha256'][:16]}")
    for fault in proof.faults:
        print(f"not proven: {fault}")
    return 0 if proof.proven else 1


def _probe(options: argparse.Namespace) -> int:
    effects = probe(files.read_json(options.engine), options.arm, options.root.resolve())
    for effect in effects:
        state = {True: "effect shown", False: "NO EFFECT", None: "no probe that runs by itself"}[effect.shown]
        print(f"{effect.patch}: {state}\n  with the patch: {effect.patched}")
        if effect.unpatched:
            print(f"  without it: {effect.unpatched}")
    return 1 if any(effect.shown is False for effect in effects) else 0
