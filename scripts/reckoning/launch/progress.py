"""The progress line: 'launch 5 of 12 (block 2, tp2): loading weights, 14 s; about 6 min left'."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPEAT_S = 15.0


def modelled_s(plan: Mapping[str, Any], arm: str) -> float | None:
    """Return the plan's estimate for one launch of the arm, or None when it has none."""
    for entry in plan["arms"]:
        if entry["slug"] == arm:
            value = (entry.get("time") or {}).get("launch_s")
            return float(value) if value else None
    return None


def finished(plan: Mapping[str, Any], launches_root: Path) -> dict[tuple[str, int], float]:
    """Return the whole duration of each launch of this plan that has an outcome, by (arm, block)."""
    done = {}
    for launch in plan["launches"]:
        path = launches_root / launch["arm"] / f"block{launch['block']}" / "outcome.json"
        try:
            outcome = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        if outcome.get("digest") == launch.get("digest"):
            done[launch["arm"], launch["block"]] = float(outcome["durations"]["total_s"] or 0.0)
    return done


def left_s(
    plan: Mapping[str, Any], done: Mapping[tuple[str, int], float], current: tuple[str, int], elapsed_s: float
) -> float | None:
    """Return the seconds until all launches are done: the time model, corrected by how the finished launches took.

    Without a model the mean of the finished launches serves; with neither there is no answer. The launch that runs
    counts with what is left of its own estimate.
    """
    waiting = [launch["arm"] for launch in plan["launches"] if (launch["arm"], launch["block"]) not in {*done, current}]
    modelled = {launch["arm"]: modelled_s(plan, launch["arm"]) for launch in plan["launches"]}
    others = {key: seconds for key, seconds in done.items() if key != current}
    if all(modelled.values()):
        basis = sum(modelled[arm] for arm, _ in others)
        factor = sum(others.values()) / basis if basis else 1.0
        expected = {arm: seconds * factor for arm, seconds in modelled.items()}
    elif others:
        mean = sum(others.values()) / len(others)
        expected = dict.fromkeys(modelled, mean)
    else:
        return None
    return sum(expected[arm] for arm in waiting) + max(expected[current[0]] - elapsed_s, 0.0)


def duration_words(seconds: float) -> str:
    """Return a duration in words for people: '40 s', '6 min', '2 h 05 min'."""
    if seconds < 60:
        return f"{max(round(seconds), 1)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def place_of(plan: Mapping[str, Any], arm: str, block: int) -> str:
    """Return 'launch 5 of 12 (block 2, tp2)'; the number is the launch's place in the planned order."""
    for launch in plan["launches"]:
        if launch["arm"] == arm and launch["block"] == block:
            name = next((entry["name"] for entry in plan["arms"] if entry["slug"] == arm), arm)
            return f"launch {launch['order'] + 1} of {len(plan['launches'])} (block {block}, {name})"
    raise KeyError(f"the plan has no launch of {arm} in block {block}")


@dataclass
class Progress:
    """Says what happens: at once when the stage changes, and every 15 s while it lasts."""

    place: str
    say: Callable[[str], None]
    left: Callable[[], float | None]
    stage: str = ""
    since: float = field(default_factory=time.monotonic)
    said_at: float = 0.0

    def __call__(self, stage: str, *, detail: str = "") -> None:
        """Report that `stage` goes on (or begins), with an optional detail."""
        now = time.monotonic()
        if stage != self.stage:
            self.stage, self.since, self.said_at = stage, now, 0.0
        if self.said_at and now - self.said_at < REPEAT_S:
            return
        self.said_at = now
        elapsed = now - self.since
        text = (
            f"{self.place}: {stage}"
            + (f", {detail}" if detail else "")
            + (f", {elapsed:.0f} s" if elapsed >= 1 else "")
        )
        left = self.left()
        self.say(text + (f"; about {duration_words(left)} left" if left is not None else ""))

    def of_load(self, event: Mapping[str, Any] | str) -> None:
        """Report an event of the load generator."""
        if isinstance(event, str):
            self(event)
            return
        stage = f"point {event['position'] + 1} of {event['of']} ({event['workload']}, C={event['concurrency']})"
        asked = event.get("requests")
        done = event.get("done")
        self(stage, detail="" if done is None else f"{done} of {asked} requests" if asked else f"{done} requests")


def count(items: Iterable[Any], noun: str) -> str:
    """Return '1 point', '3 points'."""
    number = sum(1 for _ in items)
    return f"{number} {noun}{'' if number == 1 else 's'}"
