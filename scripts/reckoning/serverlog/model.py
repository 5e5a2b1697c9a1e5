"""The values that a reading of a server log consists of."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Stage:
    """A stage of a server's life, at the log line where it began.

    `line` counts from 1; `at` is the wall time as the log wrote it (`2026-11-29 17:15:03`), or None.
    """

    name: str
    line: int
    at: str | None = None


@dataclasses.dataclass(frozen=True)
class Cause:
    """Why a server failed, with the line that proves it and what to do about it.

    `class_` is one of `FAILURE_CLASSES`; `stage` the stage in which the evidence was written; `evidence` the log line
    itself and `line` its number (counted from 1, 0 when the evidence is not a line); `symptom` a later line that
    people usually quote instead of the cause, or None.
    """

    class_: str
    stage: str | None
    cause: str
    evidence: str
    line: int
    remedy: str
    symptom: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the cause with `class_` under its public name `class`."""
        fields = dataclasses.asdict(self)
        return {"class": fields.pop("class_"), **fields}


@dataclasses.dataclass(frozen=True)
class LogReading:
    """All that was read: stages in order of their beginning, the first cause if any, and lines worth showing.

    `excerpt` surrounds the evidence, or is the end of the log when nothing failed. `decode_batches` counts decode
    steps that the server logged, by whether a CUDA graph ran them: `{"graph": n, "eager": m}`.
    """

    stages: tuple[Stage, ...]
    last_stage: str | None
    cause: Cause | None
    excerpt: str
    lines: int
    decode_batches: dict[str, int]

    @property
    def ready(self) -> bool:
        """Whether the server said that it was ready (it may have failed since)."""
        return any(stage.name == "ready" for stage in self.stages)

    def as_json(self) -> dict[str, Any]:
        """Return the reading as plain JSON types."""
        return {
            "stages": [dataclasses.asdict(stage) for stage in self.stages],
            "last_stage": self.last_stage,
            "cause": self.cause.as_json() if self.cause else None,
            "excerpt": self.excerpt,
            "lines": self.lines,
            "decode_batches": dict(self.decode_batches),
        }
