"""Rules as small named objects: each says which versions it holds for, why, and what to do instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from reckoning.plan.facts import ModelFacts
from reckoning.plan.flags import FlagTable
from reckoning.plan.shapes import ArmProblem

LEVELS = ("reject", "unavailable", "warn", "note")


@dataclass(frozen=True)
class Objection:
    """Why a rule speaks up about one arm, and what the user can do."""

    reason: str
    remedy: str


@dataclass(frozen=True)
class Setup:
    """What rules look at: one arm on one machine with one engine. Unknown facts are None: no rule judges by them."""

    settings: Mapping[str, Any]
    env: Mapping[str, str]
    patches: frozenset[str]
    version: str | None
    device: str
    gpus: int | None
    gpu_source: str
    gpu_memory_gib: float | None
    compute_capability: str | None
    nvlink: bool | None
    nodes: int
    facts: ModelFacts
    draft: ModelFacts | None
    flags: FlagTable
    levels: tuple[int, ...]
    longest_request: int | None
    raw_settings: Mapping[str, Any] = field(default_factory=dict)

    def value(self, name: str, default: Any = None) -> Any:
        """Return a setting as requested, else the engine's own default, else `default`."""
        if name in self.settings:
            return self.settings[name]
        flag = self.flags.get(name)
        if flag is not None and flag.default is not None:
            return flag.default
        return default

    @property
    def tp(self) -> int:
        return _whole(self.value("tp_size", 1), 1)

    @property
    def pp(self) -> int:
        return _whole(self.value("pp_size", 1), 1)

    @property
    def ep(self) -> int:
        return _whole(self.value("ep_size", 1), 1)

    @property
    def dp(self) -> int:
        return _whole(self.value("dp_size", 1), 1)

    @property
    def moe_dp(self) -> int:
        return _whole(self.value("moe_dp_size", 1), 1)

    @property
    def speculative(self) -> str | None:
        """The speculative algorithm in capitals, or None."""
        chosen = self.value("speculative_algorithm")
        return str(chosen).upper() if chosen else None


@dataclass(frozen=True)
class Rule:
    """One reason why an arm does not run, or runs differently than asked. `versions` is a PEP 440 specifier."""

    id: str
    level: str
    versions: str
    summary: str
    references: tuple[str, ...]
    check: Callable[[Setup], Iterable[Objection]]

    def applies_to(self, version: str | None) -> bool:
        """Return whether the rule holds for an engine version; an unknown version is held to every rule."""
        if not self.versions or version is None:
            return True
        try:
            return SpecifierSet(self.versions, prereleases=True).contains(Version(version).public)
        except InvalidVersion:
            return True

    def problems(self, setup: Setup) -> list[ArmProblem]:
        """Return what the rule has to say about `setup`."""
        if not self.applies_to(setup.version):
            return []
        reference = self.references[0] if self.references else None
        return [ArmProblem(self.id, self.level, found.reason, found.remedy, reference) for found in self.check(setup)]


REGISTRY: dict[str, Rule] = {}


def rule(
    id: str, *, level: str, summary: str, versions: str = "", references: Iterable[str] = ()
) -> Callable[[Callable[[Setup], Iterable[Objection]]], Callable[[Setup], Iterable[Objection]]]:
    """Register the decorated check (a generator of `Objection`) as the rule `id`."""
    if level not in LEVELS:
        raise ValueError(f"rule {id}: level {level!r} is none of {', '.join(LEVELS)}")

    def register(check: Callable[[Setup], Iterable[Objection]]) -> Callable[[Setup], Iterable[Objection]]:
        if id in REGISTRY:
            raise ValueError(f"two rules are called {id}")
        SpecifierSet(versions)
        REGISTRY[id] = Rule(id, level, versions, summary, tuple(references), check)
        return check

    return register


def judge(setup: Setup) -> tuple[ArmProblem, ...]:
    """Return what all rules say about `setup`, the gravest first, then by rule id."""
    found = [problem for rule in REGISTRY.values() for problem in rule.problems(setup)]
    return tuple(sorted(found, key=lambda problem: (LEVELS.index(problem.level), problem.rule)))


def _whole(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise
