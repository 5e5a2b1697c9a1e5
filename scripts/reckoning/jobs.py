"""What the rules' scripts share: the plan of the active configuration, a log file and progress lines."""

from __future__ import annotations

import contextlib
import datetime
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from reckoning.experiment import read
from reckoning.plan import make_plan, plan_to_json


def plan_of(config: Mapping[str, Any], source: str = "the configuration") -> dict[str, Any]:
    """Return the plan, as plan.json holds it, of a configuration as Snakemake merged it.

    Planning is pure and quick, so a launch plans again instead of reading plan.json: if it waited for that file,
    Snakemake would either repeat every launch when the file is new or, with `ancient`, overlook a changed arm.
    Raises ExperimentError, which names every fault.
    """
    return plan_to_json(make_plan(read(config, source)))


def summary(plan: Mapping[str, Any]) -> list[str]:
    """Return the plan in a few lines: how much will run, about how long, and each arm that will not, and why."""
    statuses = [arm["status"] for arm in plan["arms"]]
    counted = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
    launches = f"{len(plan['launches'])} launches in {plan['blocks']} blocks, {plan['time']['text']}"
    lines = [f"plan of '{plan['experiment']}': {len(plan['arms'])} arms ({counted}), {launches}"]
    for arm in plan["arms"]:
        for problem in arm["problems"]:
            if problem["level"] in ("reject", "unavailable"):
                rule, reason, remedy = problem["rule"], problem["reason"], problem["remedy"]
                lines.append(f"{arm['name']} {arm['status']} [{rule}]: {reason}. Remedy: {remedy}")
    return lines


@contextlib.contextmanager
def logged(path: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that says a line to the person at the terminal and, with the wall time, to the log at `path`.

    An exception is written to the log before it goes on.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", encoding="utf-8", buffering=1) as log:

        def say(text: str) -> None:
            log.write(f"{datetime.datetime.now().astimezone():%Y-%m-%dT%H:%M:%S%z} {text}\n")
            print(f"[reckoning] {text}", file=sys.stderr, flush=True)

        try:
            yield say
        except SystemExit:  # it has been said why
            raise
        except KeyboardInterrupt:
            say("interrupted; the same command again goes on from here")
            sys.exit(130)
        except BaseException:
            log.write(traceback.format_exc())
            raise
