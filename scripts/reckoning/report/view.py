"""What the page shows, as plain values a template can print: no logic is left for the template but loops and ifs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reckoning.report.collect import Results
from reckoning.report.figures.model import Cast
from reckoning.report.palette import looks
from reckoning.report.quantities import finite

STATUS_WORDS = {
    "ok": "measured",
    "partial": "partly measured",
    "failed": "failed",
    "rejected": "rejected by the plan",
    "unavailable": "not available here",
    "missing": "not run yet",
}
FEW = 5
DEFAULT_CONFIG = "config/config.yaml"


@dataclass(frozen=True)
class ArmRow:
    """One arm in the table of what ran: `rerun` is the shell line that repeats exactly this arm, or None."""

    slug: str
    label: str
    status: str
    status_words: str
    why: str
    reason: str
    remedy: str
    launches: str
    command: str
    rerun: str | None
    failures: tuple[Mapping[str, Any], ...]


def arm_rows(results: Results, config: str | None) -> tuple[ArmRow, ...]:
    """Return every arm of the findings, or of the plan where there are no findings yet."""
    arms = results.findings.get("arms") or [_planned_arm(arm, results) for arm in results.plan.get("arms") or []]
    return tuple(_arm_row(arm, results, config) for arm in arms)


def _arm_row(arm: Mapping[str, Any], results: Results, config: str | None) -> ArmRow:
    slug, status = str(arm.get("slug")), str(arm.get("status") or "missing")
    launches = arm.get("launches") or {}
    planned = launches.get("planned") or 0
    return ArmRow(
        slug=slug,
        label=str(arm.get("name") or slug),
        status=status,
        status_words=STATUS_WORDS.get(status, status),
        why=str(arm.get("why") or ""),
        reason=str(arm.get("reason") or ""),
        remedy=str(arm.get("remedy") or ""),
        launches=f"{launches.get('ok') or 0} of {planned}" if planned else "none",
        command=shell_lines(arm.get("command_line") or arm.get("command") or []),
        rerun=rerun_command(results, slug, config) if planned else None,
        failures=grouped_failures(arm.get("failures") or []),
    )


def grouped_failures(failures: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Return failures that are alike as one, with all their blocks in words and the evidence of the first."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for failure in failures:
        groups.setdefault(tuple(str(failure.get(name)) for name in ("class", "stage", "cause", "remedy")), []).append(
            failure
        )
    return tuple({**alike[0], "blocks": _blocks([one.get("block") for one in alike])} for alike in groups.values())


def _blocks(blocks: Sequence[Any]) -> str:
    known = [str(block) for block in blocks if block is not None]
    if not known:
        return "Unknown block"
    return f"Block {known[0]}" if len(known) == 1 else f"Blocks {', '.join(known[:-1])} and {known[-1]}"


def _planned_arm(arm: Mapping[str, Any], results: Results) -> dict[str, Any]:
    slug = arm.get("slug")
    outcomes = [outcome for (name, _), outcome in results.outcomes.items() if name == slug]
    planned = sum(launch.get("arm") == slug for launch in results.plan.get("launches") or [])
    ok = sum(outcome.get("status") == "ok" for outcome in outcomes)
    failed = [outcome for outcome in outcomes if outcome.get("status") == "failed"]
    problems = [problem for problem in arm.get("problems") or [] if problem.get("level") in ("reject", "unavailable")]
    status = arm.get("status")
    if status == "runnable":
        status = "ok" if ok and ok == planned else "partial" if ok else "failed" if failed else "missing"
    return {
        **arm,
        "status": status,
        "reason": " ".join(str(problem.get("reason")) for problem in problems),
        "remedy": " ".join(str(problem.get("remedy")) for problem in problems if problem.get("remedy")),
        "launches": {"planned": planned, "ok": ok, "failed": len(failed)},
        "failures": [{**(outcome.get("failure") or {}), "block": outcome.get("block")} for outcome in failed],
    }


def shell_lines(command: Sequence[Any] | str) -> str:
    """Return a command as shell text: a variable or an option a line, with placeholders readable as `$PORT`."""
    words = _shell_words(command)
    lines: list[list[str]] = [[]]
    for place, word in enumerate(words):
        in_settings = place > 0 and all(map(_is_assignment, words[:place]))
        if lines[-1] and (word.startswith("--") or in_settings):
            lines.append([])
        lines[-1].append(word)
    return " \\\n  ".join(" ".join(line) for line in lines)


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()


def _shell_words(command: Sequence[Any] | str) -> list[str]:
    if isinstance(command, str):
        try:
            return [_quoted(word) for word in shlex.split(command)]
        except ValueError:
            return [command]
    return [_quoted(str(word)) for word in command]


def _quoted(word: str) -> str:
    """Return a word as a shell takes it; placeholders become variables, and an assignment keeps its name unquoted."""
    placeholder = {"{python}": "python", "{port}": "$PORT", "{nccl_port}": "$NCCL_PORT"}.get(word)
    name, _, value = word.partition("=")
    if placeholder or word in ("python", "$PORT", "$NCCL_PORT"):
        return placeholder or word
    if _is_assignment(word):
        return f"{name}={shlex.quote(value)}"
    return shlex.quote(word)


def rerun_command(results: Results, slug: str, config: str | None) -> str:
    """Return the workflow command that repeats every launch of one arm and no other."""
    experiment = results.experiment
    if config is None:
        config = DEFAULT_CONFIG if experiment == "cpu" else f"config/{experiment}.yaml"
    option = "" if config == DEFAULT_CONFIG else f" --configfile {shlex.quote(config)}"
    return f"snakemake --cores 1{option} results/{experiment}/arms/{slug}.json -R measure"


def cast_of(results: Results, rows: Sequence[ArmRow]) -> Cast:
    """Return labels and looks of the arms, and the few that are shown first: those that a decision is about."""
    order = [str(arm.get("slug")) for arm in results.plan.get("arms") or []] + [row.slug for row in rows]
    order += [str(one.get("arm")) for one in results.findings.get("estimates") or []]
    labels = {row.slug: row.label for row in rows}
    baseline = results.findings.get("baseline") or results.plan.get("baseline")
    return Cast(labels=labels, looks=looks(order), first=_first(results, baseline), baseline=baseline)


def _first(results: Results, baseline: Any) -> tuple[str, ...]:
    recommendations = results.findings.get("recommendations") or []
    chosen = [str(one["arm"]) for one in recommendations if one.get("arm")]
    chosen += [str(baseline)] if baseline else []
    chosen += [str(one["runner_up"]["arm"]) for one in recommendations if one.get("runner_up")]
    peaks: dict[str, float] = {}
    for one in results.findings.get("estimates") or []:
        value = finite(one.get("estimate"))
        if one.get("metric") == "output_tok_s" and value is not None:
            peaks[one["arm"]] = max(peaks.get(one["arm"], 0), value)
    chosen += sorted(peaks, key=lambda slug: -peaks[slug])
    return tuple(slug for slug in dict.fromkeys(chosen) if slug in peaks)[:FEW]


def devices_of(results: Results) -> tuple[dict[str, int], str]:
    """Return how many devices each arm uses (tp x pp, times dp for replicas of their own) and what one is called."""
    settings = {str(arm.get("slug")): arm.get("settings") or {} for arm in results.plan.get("arms") or []}
    settings |= {
        str(arm.get("slug")): arm["settings"] for arm in results.findings.get("arms") or [] if arm.get("settings")
    }
    counts = {}
    for slug, given in settings.items():
        replicas = 1 if given.get("enable_dp_attention") else _size(given.get("dp_size"))
        counts[slug] = _size(given.get("tp_size")) * _size(given.get("pp_size")) * replicas
    machine = results.plan.get("machine") or {}
    return counts, "process" if machine.get("device") == "cpu" else "GPU"


def _size(value: Any) -> int:
    number = finite(value)
    return int(number) if number and number >= 1 else 1


def link_to(results: Results, file: str, out: Path) -> str | None:
    """Return a relative link from the page to a file of the results; None where it is missing or would show a home."""
    path = results.folder / file
    if not path.exists():
        return None
    link = os.path.relpath(path.resolve(), out.resolve().parent)
    return None if results.redactor.text(link) != link else link
