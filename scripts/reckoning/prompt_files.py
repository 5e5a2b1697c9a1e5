"""Files of prompts that a user writes: a YAML list of `id` and `text`, or JSON lines.

They are read when an experiment is planned, so that a fault is known then, and when it is measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


class WorkloadError(ValueError):
    """A workload that cannot be turned into requests; the message names the key, the value and the remedy."""


@dataclass(frozen=True)
class Text:
    """One prompt of a workload before it becomes a request: text, chat messages, or token ids."""

    id: str
    content: str | list[int] | list[dict[str, Any]]
    prompt_tokens: int | None = None
    output_tokens: int | None = None


def read_file(kind: str, path: Path, text_field: str | None, at_most: int | None = None) -> list[Text]:
    """Return the prompts of a workload of kind `prompts` or `jsonl`; of JSON lines the first `at_most`."""
    return read_prompts(path) if kind == "prompts" else read_jsonl(path, text_field or "prompt", at_most)


def read_prompts(path: Path) -> list[Text]:
    """Return the prompts of a YAML file; WorkloadError names the file and everything that is wrong with it."""
    try:
        entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise WorkloadError(f"{path}: not YAML{where}: {getattr(error, 'problem', None) or error}") from error
    if not isinstance(entries, list) or not entries:
        raise WorkloadError(f"{path}: expected a list of prompts, each with `id` and `text`")
    texts, faults = [], []
    for number, entry in enumerate(entries):
        if isinstance(entry, Mapping) and isinstance(entry.get("text"), str) and entry["text"].strip():
            texts.append(Text(str(entry.get("id", number)), entry["text"]))
        else:
            faults.append(f"entry {number + 1} has no `text`")
    return _without_faults(path, texts, faults)


def read_jsonl(path: Path, text_field: str, at_most: int | None = None) -> list[Text]:
    """Return the prompts of a file of JSON lines, of the first `at_most` lines; WorkloadError as `read_prompts`."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise WorkloadError(f"{path}: not text in UTF-8: {error}") from error
    texts, faults = [], []
    for number, line in enumerate(lines[:at_most], 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except json.JSONDecodeError as error:
            faults.append(f"line {number}: not JSON ({error})")
            continue
        content = entry.get("messages") or entry.get(text_field) if isinstance(entry, Mapping) else None
        if (isinstance(content, str) and content.strip()) or (isinstance(content, list) and content):
            length = entry.get("output_tokens")
            texts.append(Text(str(entry.get("id", number)), content, output_tokens=length))
        else:
            faults.append(f"line {number}: neither `{text_field}` (text) nor `messages`")
    return _without_faults(path, texts, faults)


def _without_faults(path: Path, texts: list[Text], faults: list[str]) -> list[Text]:
    if faults or not texts:
        more = f"; and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise WorkloadError(f"{path}: {'; '.join(faults[:5]) or 'no prompts'}{more}")
    return texts
