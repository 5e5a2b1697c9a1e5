"""The findings as Markdown for a pull request or a chat: the same numbers, short enough to be read there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reckoning.report.figures.model import Cast
from reckoning.report.quantities import exact, finite, with_interval

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~#!@])")


def escape(text: Any) -> str:
    """Return text that Markdown shows as it is, on one line: no markup, no HTML, no mention of a user."""
    line = " ".join(str(text).split())
    return _SPECIAL.sub(r"\\\1", line).replace("&", "&amp;")


def markdown_of(content: Mapping[str, Any]) -> str:
    """Return the Markdown page from the values that the HTML templates use."""
    lines = [f"# {escape(content['title'])}", "", _provenance(content), ""]
    lines += _headlines(content)
    lines += _recommendations(content)
    lines += _arms(content)
    lines += _peaks(content)
    lines += _hypotheses(content)
    lines += _caveats(content)
    return "\n".join(lines).rstrip() + "\n"


def _provenance(content: Mapping[str, Any]) -> str:
    provenance = content["provenance"]
    parts = [
        f"**{escape(provenance.banner)}**",
        *map(escape, filter(None, (provenance.machine, provenance.measured_at))),
    ]
    return "> " + " · ".join(parts)


def _headlines(content: Mapping[str, Any]) -> list[str]:
    if not content["headlines"]:
        return ["No finding can be given.", ""]
    return ["## Findings", "", *(f"1. {escape(one['text'])}" for one in content["headlines"]), ""]


def _recommendations(content: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    for one in content["recommendations"]:
        scope = f" ({escape(one['workload'])})" if content["many_workloads"] else ""
        lines += [f"**{one['use']}{scope}**: {escape(one['text'])}", ""]
        if one["command"]:
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", one["command"])), default=0))
            lines += [f"{fence}bash", one["command"], fence, ""]
    return ["## What to deploy", "", *lines] if lines else []


def _arms(content: Mapping[str, Any]) -> list[str]:
    rows = [(arm.label, arm.status_words, arm.launches, _reason(arm)) for arm in content["arms"]]
    return ["## What ran", "", *_table(("arm", "outcome", "launches ok", "reason"), rows), ""] if rows else []


def _reason(arm: Any) -> str:
    """Return why an arm did not run and what to do, as sentences of their own."""
    parts = (arm.reason, f"Remedy: {arm.remedy}" if arm.remedy else "")
    return " ".join(part if part.endswith((".", "!", "?")) else f"{part}." for part in parts if part)


def _peaks(content: Mapping[str, Any]) -> list[str]:
    """Return, per workload, each arm's throughput at the lowest level and at its own best level."""
    estimates = [one for one in content["findings"].get("estimates") or [] if one.get("metric") == "output_tok_s"]
    lines: list[str] = []
    for workload in dict.fromkeys(one["workload"] for one in estimates):
        own = [one for one in estimates if one["workload"] == workload and finite(one.get("estimate")) is not None]
        if own:
            rows = _peak_rows(own, content["cast"])
            lowest = exact(min(one["concurrency"] for one in own))
            heads = ("arm", f"tok/s at C={lowest}", "best tok/s", "at C", "n")
            lines += [f"## Output tok/s, {escape(workload)}", "", *_table(heads, rows), ""]
    return lines


def _peak_rows(estimates: Sequence[Mapping[str, Any]], cast: Cast) -> list[tuple[str, ...]]:
    lowest = min(one["concurrency"] for one in estimates)
    rows = []
    for slug in cast.looks:
        own = [one for one in estimates if one["arm"] == slug]
        if own:
            best = max(own, key=lambda one: one["estimate"])
            first = next((one for one in own if one["concurrency"] == lowest), {})
            rows.append(
                (
                    best["estimate"],
                    (cast.label(slug), _amount(first), _amount(best), exact(best["concurrency"]), exact(best["n"])),
                )
            )
    return [row for _, row in sorted(rows, key=lambda pair: -pair[0])]


def _hypotheses(content: Mapping[str, Any]) -> list[str]:
    rows = [(one["id"], one["text"], one["verdict"], one.get("answer") or "") for one in content["hypotheses"]]
    return ["## Hypotheses", "", *_table(("", "hypothesis", "verdict", "answer"), rows), ""] if rows else []


def _caveats(content: Mapping[str, Any]) -> list[str]:
    lines = [f"- {escape(one['text'])}" for one in content["findings"].get("refusals") or []]
    lines += [f"- missing: {escape(gap.file)} ({escape(gap.tells)}): {escape(gap.why)}" for gap in content["gaps"]]
    return ["## Not said, and why", "", *lines, ""] if lines else []


def _amount(one: Mapping[str, Any]) -> str:
    return with_interval(one.get("estimate"), one.get("low"), one.get("high"))


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    return lines + ["| " + " | ".join(escape(cell) for cell in row) + " |" for row in rows]
