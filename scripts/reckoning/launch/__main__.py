"""Command line of the launcher: run one launch, show who has the machine, clear up after a killed run.

python -m reckoning.launch run RESULTS ARM BLOCK     one launch of results/EXPERIMENT/plan.json, as the workflow runs it
python -m reckoning.launch status                    the machine's owner and the servers that this user's launches run
python -m reckoning.launch reap                      end what killed runs of this user left behind
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reckoning.files import read_json

from .machine_lock import MachineBusy, holder
from .processes import Identity
from .reaper import reap, records
from .run import run_launch


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 0, 1 for a failed launch or leftovers that could not be ended, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m reckoning.launch", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run one launch of a planned experiment")
    run.add_argument("results", type=Path, help="folder with plan.json and engine.json, such as results/cpu")
    run.add_argument("arm", help="the arm's slug")
    run.add_argument("block", type=int)
    commands.add_parser("status", help="who measures on this machine")
    commands.add_parser("reap", help="end what killed runs left behind")
    options = parser.parse_args(arguments)
    if options.command == "run":
        return _run(options.results, options.arm, options.block)
    return _status() if options.command == "status" else _reap()


def _run(results: Path, arm: str, block: int) -> int:
    environment = results / "environment.json"
    try:
        outcome = run_launch(
            read_json(results / "plan.json"),
            read_json(results / "engine.json"),
            read_json(environment) if environment.exists() else None,
            arm,
            block,
            results / "launches" / arm / f"block{block}",
            progress=lambda text: print(text, file=sys.stderr, flush=True),
        )
    except (MachineBusy, OSError, KeyError, ValueError) as error:
        # The text of a KeyError is the repr of what it was given.
        print(f"error: {error.args[0] if isinstance(error, KeyError) else error}", file=sys.stderr)
        return 2
    failure = outcome["failure"]
    if failure:
        print(f"failed ({failure['class']}, stage {failure['stage']}): {failure['cause']}\nremedy: {failure['remedy']}")
        return 1
    print(f"ok: {outcome['points']['measured']} of {outcome['points']['planned']} points measured")
    return 0


def _status() -> int:
    claim = holder()
    if claim is None:
        print("no experiment has this machine")
    else:
        owner = f"process {claim.owner.pid} of {claim.user}"
        print(f"experiment {claim.experiment} ({owner}), last launch since {claim.since}")
    for record in records():
        state = "runs" if Identity(*record["job"]).alive() else "is abandoned"
        names = ", ".join(f"{name} ({pid})" for pid, _, name in record["processes"])
        print(f"launch {record['label']} {state}: {names}")
    return 0


def _reap() -> int:
    found = reap(progress=print)
    for one in found:
        stayed = f"; could not be ended: {list(one.left)}" if one.left else ""
        print(f"launch {one.label}: {one.found} processes ended{stayed}")
    if not found:
        print("nothing was left behind")
    return 1 if any(one.left for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
