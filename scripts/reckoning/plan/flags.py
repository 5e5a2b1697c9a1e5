"""The server arguments that one engine version understands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Flag:
    """One server argument. `kind` is `value`, `list`, `switch` (true only) or `on-off` (has a --no- form)."""

    dest: str
    option: str
    kind: str
    default: Any = None
    type: str | None = None
    choices: tuple[Any, ...] | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class FlagTable:
    """All server arguments of one engine, by their Python name. An empty table knows nothing and checks nothing."""

    flags: Mapping[str, Flag] = field(default_factory=dict)
    source: str = "none"

    def get(self, dest: str) -> Flag | None:
        return self.flags.get(dest)
