"""Workloads: which keys each kind needs, and which levels are measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from reckoning.experiment.arms import Report
from reckoning.experiment.names import slug
from reckoning.experiment.places import find
from reckoning.experiment.shapes import Workload
from reckoning.prompt_files import WorkloadError, read_file

JSONL_LINES_CHECKED = 2000  # the rest when it is measured: every job plans again, and a data set can be long


def resolve(config: Mapping[str, Any], report: Report) -> list[Workload]:
    """Return the workloads of a completed config in the order of the file; faults go to `report`."""
    return [_workload(name, raw, report) for name, raw in config["workloads"].items()]


def _workload(name: str, raw: Mapping[str, Any], report: Report) -> Workload:
    path = ("workloads", name)
    if slug(name) != name:
        remedy = f"use lower-case letters, digits and hyphens{': ' + slug(name) if slug(name) else ''}"
        report(path, name, "not a name that is safe in files", remedy)
    kind = raw["kind"]
    if kind in ("prompts", "jsonl"):
        _check_file(path, raw, report)
    elif raw["input_tokens"] is None:
        report((*path, "input_tokens"), None, f"a workload of kind {kind} needs the prompt length", "add input_tokens")
    if (raw["arrival"] == "poisson") != (raw["request_rate_per_s"] is not None):
        reason = "arrival: poisson and request_rate_per_s belong together"
        report((*path, "request_rate_per_s"), raw["request_rate_per_s"], reason, "give both or neither")
    if raw["max_duration_s"] is not None and raw["max_duration_s"] < raw["min_duration_s"]:
        report((*path, "max_duration_s"), raw["max_duration_s"], "less than min_duration_s", "raise it")
    if raw["requests_per_stream"] is None and raw["min_requests"] is None and raw["max_duration_s"] is None:
        reason = "nothing says when a point ends"
        report(path, None, reason, "add requests_per_stream, min_requests or max_duration_s")
    levels = [raw["concurrency"]] if isinstance(raw["concurrency"], int) else raw["concurrency"]
    levels = [int(level) for level in levels]
    if len(set(levels)) != len(levels):
        report((*path, "concurrency"), levels, "a level is listed twice", "use repeats to measure a level more often")
    fields = {field.name for field in dataclasses.fields(Workload)}
    rest = {key: value for key, value in raw.items() if key in fields and key not in ("concurrency", "endpoint")}
    endpoint = raw["endpoint"] or ("generate" if kind == "random" else "chat")
    return Workload(name=name, endpoint=endpoint, concurrency=tuple(sorted(set(levels))), **rest)


def _check_file(path: tuple[str, ...], raw: Mapping[str, Any], report: Report) -> None:
    here = (*path, "file")
    if raw["file"] is None:
        report(here, None, f"a workload of kind {raw['kind']} needs a file", "add file: resources/prompts/chat.yaml")
    elif (found := find(raw["file"])) is None or not found.is_file():
        report(here, raw["file"], "there is no such file", "correct the path (it is relative to the repository)")
    else:
        try:
            read_file(raw["kind"], found, raw["text_field"], JSONL_LINES_CHECKED)
        except (WorkloadError, OSError) as error:
            report(here, raw["file"], f"the file cannot be used: {error}", "correct it; resources/prompts has examples")


def reduced(workloads: Sequence[Workload], levels: Any, report: Report) -> list[Workload]:
    """Return the workloads with only the `levels` that a command line keeps; None keeps all.

    Text is accepted, since Snakemake hands lists of `--config` on as text: 1,32 and [1, "32"] mean the same.
    """
    if levels is None:
        return list(workloads)
    parts = levels.split(",") if isinstance(levels, str) else [levels] if isinstance(levels, int) else levels
    kept: set[int] = set()
    known = sorted({level for workload in workloads for level in workload.concurrency})
    for part in parts:
        try:
            level = int(str(part).strip())
        except ValueError:
            report(("levels",), part, "not a whole number", "write levels=1,32")
            continue
        if level not in known:
            report(("levels",), level, "no workload has this level", f"use some of {', '.join(map(str, known))}")
        kept.add(level)
    chosen = []
    for workload in workloads:
        left = tuple(level for level in workload.concurrency if level in kept)
        if left:
            chosen.append(dataclasses.replace(workload, concurrency=left))
    return chosen
