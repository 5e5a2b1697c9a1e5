"""A finding: what was found, why it matters, what to do, and which arms it concerns."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """How much a finding matters. `fail` stops the arms that it concerns, and only those."""

    OK = "ok"
    NOTE = "note"
    WARN = "warn"
    FAIL = "fail"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One result of the diagnosis.

    `code` is stable and meant for machines. `scope` names the functions of the engine that it touches (see `Feature`);
    `concerns` the slugs of the plan's arms that use one of them, sorted; both may be empty.
    """

    code: str
    level: Level
    found: str
    where: str = ""
    needed: str = ""
    why: str = ""
    remedy: str = ""
    scope: tuple[str, ...] = ()
    concerns: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the finding as plain JSON types."""
        return {
            **dataclasses.asdict(self),
            "level": self.level.value,
            "scope": list(self.scope),
            "concerns": list(self.concerns),
        }
