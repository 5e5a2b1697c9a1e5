"""Reads the JSON lines of SGLang's bench_serving as they really come.

The files are opened for appending, so a rerun adds a second line; they hold `Infinity` and `NaN`, which are not JSON; a
killed run leaves half a line; and `server_info` holds secrets. Nothing of that may reach our own files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECRET_ENDINGS = ("api_key", "password", "secret", "hf_token", "authorization", "access_token")
REDACTED = "(removed)"


@dataclass(frozen=True)
class ForeignResults:
    """Rows by tag (the last one of a tag wins), and notes about every line that was not taken as it was."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_results(path: Path) -> ForeignResults:
    """Return the rows of a bench_serving result file: numbers that are not finite as None, secrets removed."""
    text = path.read_bytes().decode("utf-8-sig", "replace")
    lines = text.split("\n")
    rows: dict[Any, dict[str, Any]] = {}
    notes = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            truncated = number == len(lines)
            notes.append(
                f"line {number}: {'cut off' if truncated else 'not JSON'} ({error.msg} at {error.colno}): left out"
            )
            continue
        if not isinstance(row, dict):
            notes.append(f"line {number}: not an object: left out")
            continue
        tag = row.get("tag") if row.get("tag") is not None else f"line {number}"
        if tag in rows:
            notes.append(f"line {number}: tag {tag!r} again: this later line replaces the earlier one")
        rows[tag] = clean(row)
    return ForeignResults(list(rows.values()), notes)


def clean(value: Any) -> Any:
    """Return a copy without secrets and without numbers that strict JSON cannot hold."""
    if isinstance(value, Mapping):
        return {
            key: REDACTED if str(key).lower().endswith(SECRET_ENDINGS) and item else clean(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
