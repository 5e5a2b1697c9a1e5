"""The roll-up of an arm: how its launches ended, in one small file that is also the target for running one arm."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reckoning.files import read_json

SCHEMA_VERSION = 1


def roll_up(plan: Mapping[str, Any], arm: str, launches_root: Path) -> dict[str, Any]:
    """Return the content of `arms/{arm}.json`: the arm, and per planned launch its outcome in a few words.

    Arms that were rejected or are unavailable have no launches and keep their reasons. A planned launch without an
    outcome is `missing`. Raises KeyError when the plan has no such arm.
    """
    entry = next((item for item in plan["arms"] if item["slug"] == arm), None)
    if entry is None:
        raise KeyError(f"the plan has no arm {arm!r}; its arms are {', '.join(item['slug'] for item in plan['arms'])}")
    launches = [_launch(item, Path(launches_root)) for item in plan["launches"] if item["arm"] == arm]
    ends = [item["status"] for item in launches]
    return {
        "schema_version": SCHEMA_VERSION,
        "experiment": plan["experiment"],
        "arm": arm,
        "name": entry["name"],
        "status": entry["status"],
        "problems": entry.get("problems", []),
        "launches_planned": len(launches),
        "launches_ok": ends.count("ok"),
        "launches_failed": ends.count("failed"),
        "launches": launches,
    }


def _launch(planned: Mapping[str, Any], root: Path) -> dict[str, Any]:
    path = root / planned["arm"] / f"block{planned['block']}" / "outcome.json"
    head = {"block": planned["block"], "order": planned["order"]}
    if not path.exists():
        return head | {"status": "missing", "failure": None, "points": None, "durations": None, "attempts": 0}
    outcome = read_json(path)
    failure = outcome["failure"]
    short = {key: failure[key] for key in ("class", "stage", "cause", "remedy")} if failure else None
    return head | {
        "status": outcome["status"],
        "failure": short,
        "points": outcome["points"],
        "durations": outcome["durations"],
        "attempts": len(outcome["attempts"]),
    }
