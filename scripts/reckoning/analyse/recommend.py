"""What to deploy: for interactive serving and for batch generation, the command, the interval and the runner-up."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any

from reckoning.analyse.compare import Contrast
from reckoning.analyse.design import Arm
from reckoning.analyse.evidence import Launch
from reckoning.analyse.results import Results
from reckoning.analyse.winners import Winner
from reckoning.analyse.words import interval, list_of, percent, ratio_range
from reckoning.launch.command import SETTINGS_OF_OURS

USES = {"latency": "interactive serving", "throughput": "batch generation"}


def recommendations(results: Results) -> list[dict[str, Any]]:
    """Return one recommendation per workload and use, as in findings.json."""
    return [_recommend(results, winner) for winner in results.winners]


def command_line(arm: Arm, launches: Iterable[Launch]) -> str | None:
    """Return the launch as one shell line: environment, then the command, with a usual port.

    Once the arm has run these are the interpreter, the patched packages and the variables that it ran with.
    """
    if not arm.command:
        return None
    measured = next((launch for launch in launches if launch.arm == arm.slug and launch.status == "ok"), None)
    python, env = "python", {name: value for name, value in arm.env.items() if value is not None}
    if measured is not None and "{python}" in arm.command[: len(measured.command)]:
        python = measured.command[arm.command.index("{python}")]
        env = {name: value for name, value in measured.env.items() if name not in SETTINGS_OF_OURS}
    filled = [part.replace("{python}", python).replace("{port}", "30000") for part in arm.command]
    filled = _without_placeholder(filled, "{nccl_port}")
    return " ".join([*(f"{name}={shlex.quote(str(value))}" for name, value in env.items()), shlex.join(filled)])


def _without_placeholder(parts: list[str], placeholder: str) -> list[str]:
    """Drop an argument that only a run of this workflow needs, with its flag."""
    kept: list[str] = []
    for part in parts:
        if placeholder in part:
            if kept and kept[-1].startswith("--") and "=" not in kept[-1] and part == placeholder:
                kept.pop()
            continue
        kept.append(part)
    return kept


def _recommend(results: Results, winner: Winner) -> dict[str, Any]:
    design = results.design
    metric = design.metrics[design.primary]
    base = {"use": winner.use, "workload": winner.workload, "metric": design.primary, "unit": metric.unit}
    if winner.arm is None:
        return {
            **base,
            "concurrency": None, "arm": None, "name": None, "command": None, "estimate": None, "low": None,
            "high": None, "n": 0, "certainty": "none", "tied_with": [], "runner_up": None, "also": [],
            "text": f"No arm can be recommended for {USES[winner.use]} ({winner.workload}): no point is rankable.",
        }  # fmt: skip
    found = winner.estimate.interval
    runner = winner.others[0] if winner.others else None
    return {
        **base,
        "concurrency": winner.cell.concurrency,
        "arm": winner.arm,
        "name": design.name(winner.arm),
        "command": command_line(design.arm(winner.arm), results.evidence.launches),
        "estimate": found.estimate,
        "low": found.low,
        "high": found.high,
        "n": found.n,
        "certainty": winner.certainty,
        "tied_with": list(winner.tied),
        "runner_up": _runner_up(results, runner) if runner else None,
        "also": _also(results, winner),
        "text": winner_sentence(results, winner) + _patches(design.arm(winner.arm)),
    }


def _patches(arm: Arm) -> str:
    """Return what else the command needs: it runs on an engine with the arm's patches."""
    if not arm.patches:
        return ""
    return f" The engine needs the patch{'es' if len(arm.patches) > 1 else ''} {list_of(arm.patches)}."


def _runner_up(results: Results, contrast: Contrast) -> dict[str, Any]:
    """Return the nearest other arm, with the ratio recommended / runner-up."""
    estimate = results.estimate(contrast.arm, contrast.cell, contrast.metric)
    pair = contrast.pair
    turned = {"faster": "slower", "slower": "faster"}.get(contrast.verdict, contrast.verdict)
    return {
        "arm": contrast.arm,
        "name": results.design.name(contrast.arm),
        "concurrency": contrast.cell.concurrency,
        "estimate": estimate.interval.estimate if estimate else None,
        "ratio": 1 / pair.ratio if pair.ratio else None,
        "low": 1 / pair.high if pair.high else None,
        "high": 1 / pair.low if pair.low else None,
        "p": pair.p,
        "verdict": str(turned),
    }


def _also(results: Results, winner: Winner) -> list[dict[str, Any]]:
    found = []
    for name in ("ttft_ms", "tpot_ms", "e2e_ms", "acceptance_length", "energy_j_per_token"):
        estimate = results.estimate(winner.arm, winner.cell, name)
        if estimate is not None:
            i = estimate.interval
            unit = results.design.metrics[name].unit
            found.append({"metric": name, "unit": unit, "estimate": i.estimate, "low": i.low, "high": i.high})
    return found


def winner_sentence(results: Results, winner: Winner) -> str:
    """Return the winner of one use in one or two sentences, saying how sure it is."""
    design = results.design
    metric = design.metrics[design.primary]
    name, found = design.name(winner.arm), winner.estimate.interval
    value = f"{interval(found.estimate, found.low, found.high, metric.unit)} at C={winner.cell.concurrency}"
    runs = f"n={found.n} launch{'es' if found.n != 1 else ''}"
    use = "at the lowest concurrency" if winner.use == "latency" else "over all levels"
    head = f"{USES[winner.use].capitalize()} ({winner.workload}): {name}, {value} ({runs})"
    if winner.certainty == "only-arm":
        return f"{head}. No other arm has a rankable point, so this is no comparison."
    runner = winner.others[0]
    other = design.name(runner.arm)
    turned = _turned(runner)
    if winner.certainty == "single-run":
        return (
            f"Not decided. {head}, has the best of single runs, {turned} against {other}: single runs cannot tell the "
            "arms apart, at least three blocks are needed."
        )
    if winner.certainty == "tie":
        tied = list_of(design.name(arm) for arm in winner.tied)
        margin = percent(design.equivalence_margin)
        return f"{head}; {name} and {tied} are equivalent within {margin}, so either will do."
    if winner.certainty == "shown":
        return f"{head} is the best arm {use}; the runner-up is {other}: {turned}."
    weak = [c for c in winner.others if c.pair.p is None or c.pair.p > design.alpha] or [runner]
    names = [design.name(contrast.arm) for contrast in weak[:4]]
    how_far = f"{_turned(weak[0])} against {names[0]}"
    return f"{head} came out first, but is not shown to be better than {list_of(names)}: {how_far}."


def _turned(contrast: Contrast) -> str:
    pair = contrast.pair
    if pair.ratio is None:
        return "no common block"
    low = 1 / pair.high if pair.high else None
    high = 1 / pair.low if pair.low else None
    return ratio_range(1 / pair.ratio, low, high)
