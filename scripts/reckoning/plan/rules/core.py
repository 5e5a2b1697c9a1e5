"""Rules as small named objects: each says which versions it holds for, why, and what to do instead."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from reckoning.experiment import Unavailable
from reckoning.plan.effective import Effective, effective
from reckoning.plan.facts import ModelFacts
from reckoning.plan.flags import FlagTable
from reckoning.plan.memory import Memory, estimate
from reckoning.plan.shapes import ArmProblem

LEVELS = ("reject", "unavailable", "warn", "note")


@dataclass(frozen=True)
class Objection:
    """Why a rule speaks up about one arm, and what the user can do. `level` replaces the rule's own when given."""

    reason: str
    remedy: str
    level: str | None = None


@dataclass(frozen=True)
class Demand:
    """What one workload asks of a server at most: its levels, and the tokens of its longest request."""

    workload: str
    levels: tuple[int, ...]
    input_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True)
class Setup:
    """What rules look at: one arm on one machine with one engine. Unknown facts are None: no rule judges by them.

    `settings` are under their canonical names, `written` as the user wrote them.
    """

    settings: Mapping[str, Any]
    env: Mapping[str, str] = field(default_factory=dict)
    patches: frozenset[str] = frozenset()
    version: str | None = None
    device: str = "cuda"
    gpus: int | None = None
    gpu_source: str = "unknown"
    gpu_memory_gib: float | None = None
    compute_capability: str | None = None
    nvlink: bool | None = None
    nodes: int = 1
    facts: ModelFacts = field(default_factory=ModelFacts)
    stated_facts: Mapping[str, Any] = field(default_factory=dict)
    draft: ModelFacts | None = None
    flags: FlagTable = field(default_factory=FlagTable)
    demands: tuple[Demand, ...] = ()
    known_patches: frozenset[str] | None = None
    unavailable: Unavailable | None = None
    written: Mapping[str, Any] | None = None

    def value(self, name: str, default: Any = None) -> Any:
        """Return a setting as requested, else the engine's own default, else `default`."""
        if name in self.settings:
            return self.settings[name]
        flag = self.flags.get(name)
        return default if flag is None or flag.default is None else flag.default

    def _size(self, name: str) -> int:
        """Return a parallel size; one that makes no sense counts as 1 here, and `sizes-positive` objects to it."""
        value = self.value(name, 1)
        return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else 1

    @property
    def tp(self) -> int:
        return self._size("tp_size")

    @property
    def pp(self) -> int:
        return self._size("pp_size")

    @property
    def ep(self) -> int:
        return self._size("ep_size")

    @property
    def dp(self) -> int:
        return self._size("dp_size")

    @property
    def moe_dp(self) -> int:
        return self._size("moe_dp_size")

    @property
    def attn_cp(self) -> int:
        return self._size("attn_cp_size")

    @property
    def speculative(self) -> str | None:
        """The speculative algorithm in capitals, or None."""
        chosen = self.value("speculative_algorithm")
        return str(chosen).upper() if chosen else None

    @property
    def attention_backends(self) -> dict[str, str]:
        """The attention backends that the user chose: {setting: backend}."""
        names = ("attention_backend", "prefill_attention_backend", "decode_attention_backend")
        return {name: self.settings[name] for name in names if self.settings.get(name)}

    @property
    def levels(self) -> tuple[int, ...]:
        return tuple(sorted({level for demand in self.demands for level in demand.levels}))

    @property
    def architecture(self) -> int | None:
        """The GPU's architecture as one number: 120 for sm_120."""
        major, _, minor = (self.compute_capability or "").partition(".")
        return int(major) * 10 + int(minor or 0) if major.isdigit() and (minor or "0").isdigit() else None

    def at_least(self, version: str) -> bool:
        """Return whether the engine is of this version or newer; an unknown engine is taken for the older kind."""
        try:
            return self.version is not None and Version(self.version) >= Version(version)
        except InvalidVersion:
            return False

    @functools.cached_property
    def layout(self) -> Effective:
        """What the engine will make of the settings."""
        return effective(self)

    @functools.cached_property
    def memory(self) -> Memory | None:
        """The memory estimate, or None when the model's facts do not suffice or the sizes make no sense."""
        sizes = (self.tp, self.pp, self.ep, self.dp, self.moe_dp)
        if self.device == "cpu" or min(sizes) < 1 or (self.facts.layers or 0) < self.pp:
            return None
        return estimate(
            self.facts,
            self.layout,
            settings=self.settings,
            draft=self.draft if self.speculative else None,
            layer_partition=self.env.get("SGLANG_PP_LAYER_PARTITION"),
            gpu_gib=self.gpu_memory_gib,
        )


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
        return [
            ArmProblem(self.id, found.level or self.level, found.reason, found.remedy, reference)
            for found in self.check(setup)
        ]


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
