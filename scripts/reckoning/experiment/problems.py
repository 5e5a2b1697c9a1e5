"""Faults of an experiment file, collected so that a user sees all of them at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_LONGEST_VALUE = 120


@dataclass(frozen=True)
class Problem:
    """One fault: where it is, what was found, why that is wrong and what to write instead.

    `key` is the path in the file (`arms.tp2.settings.ep_size`), `line` is counted from 1 and None when the value did
    not come from the file (a default, or the command line).
    """

    file: str
    key: str
    value: Any
    reason: str
    remedy: str
    line: int | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return (
            f"{place}: {self.key or '(top level)'} = {shown(self.value)}\n    {self.reason}\n    Remedy: {self.remedy}"
        )


class ExperimentError(ValueError):
    """The experiment cannot be planned; `problems` holds every fault that was found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        heading = f"{count} fault{'s' if count != 1 else ''} in the experiment:"
        super().__init__("\n".join([heading, *(f"  {problem}" for problem in self.problems)]))

    def __reduce__(self) -> tuple[type, tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


def shown(value: Any) -> str:
    """Return `value` as one short line for a message."""
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."
