"""The plan as frozen dataclasses, in the shape of plan.json: what runs, in which order, how, and why not the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class ArmProblem:
    """What a rule found about an arm. `reject` and `unavailable` keep it from running, `warn` and `note` do not."""

    rule: str
    level: str
    reason: str
    remedy: str
    reference: str | None = None


@dataclass(frozen=True)
class Arm:
    """One arm as it will be run, or the reasons why it will not.

    `command` is exact but for the placeholders `{python}`, `{port}` and `{nccl_port}`. `factors` holds the settings
    (and patches and variables) that differ somewhere between the arms of this experiment, defaults filled in.
    """

    name: str
    slug: str
    why: str
    status: str
    problems: tuple[ArmProblem, ...]
    settings: Mapping[str, Any]
    env: Mapping[str, str]
    patches: tuple[str, ...]
    parents: tuple[str, ...]
    factors: Mapping[str, Any]
    command: tuple[str, ...]
    memory: Mapping[str, Any] | None
    time: Mapping[str, Any] | None


@dataclass(frozen=True)
class Point:
    """One measurement inside a launch; `index` is its place in the launch's shuffled order, from 0."""

    index: int
    workload: str
    concurrency: int
    repeat: int
    seed: int
    requests: int | None
    warmup_requests: int


@dataclass(frozen=True)
class Launch:
    """One start of one arm, the experimental unit. `order` is its place in the run from 0; blocks count from 1."""

    order: int
    block: int
    arm: str
    seed: int
    digest: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Pair:
    """Two arms that can run and differ in exactly one factor: the effect of that factor alone can be read from them."""

    arm: str
    reference: str
    factor: str
    from_: Any
    to: Any


@dataclass(frozen=True)
class Plan:
    """Everything that the later stages need to know, decided before any server is started."""

    experiment: str
    title: str
    description: str
    source: str
    config_sha256: str
    seed: int
    blocks: int
    repeats: int
    baseline: str | None
    reductions: Mapping[str, Any]
    engine: Mapping[str, Any]
    machine: Mapping[str, Any]
    model: Mapping[str, Any]
    workloads: Mapping[str, Mapping[str, Any]]
    analysis: Mapping[str, Any]
    hypotheses: tuple[Mapping[str, Any], ...]
    published: str | None
    limits: Mapping[str, Any]
    arms: tuple[Arm, ...]
    pairs: tuple[Pair, ...]
    launches: tuple[Launch, ...]
    time: Mapping[str, Any]

    def arm(self, slug: str) -> Arm:
        """Return the arm of this slug; KeyError names the arms that exist."""
        for arm in self.arms:
            if arm.slug == slug:
                return arm
        raise KeyError(f"no arm {slug!r} in the plan; its arms are {', '.join(arm.slug for arm in self.arms)}")

    def launch(self, slug: str, block: int) -> Launch:
        """Return the launch of an arm in a block; KeyError when it is not planned."""
        for launch in self.launches:
            if launch.arm == slug and launch.block == block:
                return launch
        raise KeyError(f"no launch of {slug!r} in block {block} in the plan")

    @property
    def runnable(self) -> tuple[Arm, ...]:
        """The arms that will be launched, in the order of the file."""
        return tuple(arm for arm in self.arms if arm.status == "runnable")
