"""The parsed experiment: frozen, complete (every default filled in), and free of any decision about what can run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Scalar = str | int | float | bool | None


@dataclass(frozen=True)
class Engine:
    """Where SGLang comes from: `managed` (built from `envs/<lock>.lock`) or `existing` (an interpreter that has it)."""

    kind: str
    lock: str | None
    python: str | None
    version: str | None
    patches: tuple[str, ...]


@dataclass(frozen=True)
class Machine:
    """The machine as the user describes it; None means: find out, or do not check."""

    device: str
    gpus: int | None
    gpu_name: str | None
    gpu_memory_gib: float | None
    compute_capability: str | None
    nvlink: bool | None
    nodes: int


@dataclass(frozen=True)
class Draft:
    """The draft model of speculative arms, with the facts that the user gave for it."""

    path: str
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Model:
    """The model to serve. `facts` are keys of a Hugging Face config.json, used while none is on disk."""

    path: str
    maker: str | None
    options: Mapping[str, Any]
    served_name: str
    facts: Mapping[str, Any]
    draft: Draft | None


@dataclass(frozen=True)
class Unavailable:
    """The user's own statement that the engine does not have what an arm needs."""

    reason: str
    reference: str | None


@dataclass(frozen=True)
class ArmRequest:
    """One configuration to compare, with everything it inherited already in place.

    `settings` are server arguments by their Python name; `patches` is the whole, sorted patch set.
    `parents` are the names that it extends, for the reader of the plan.
    """

    name: str
    slug: str
    why: str
    settings: Mapping[str, Any]
    env: Mapping[str, str]
    patches: tuple[str, ...]
    parents: tuple[str, ...] = ()
    unavailable: Unavailable | None = None


@dataclass(frozen=True)
class Workload:
    """What is asked of each server; the keys are described in config/README.md."""

    name: str
    kind: str
    why: str
    file: str | None
    text_field: str
    endpoint: str
    input_tokens: int | None
    output_tokens: int
    concurrency: tuple[int, ...]
    arrival: str
    request_rate_per_s: float | None
    requests_per_stream: int | None
    min_requests: int | None
    min_duration_s: float
    max_duration_s: float | None
    warmup_requests_per_stream: int
    cooldown_s: float
    ignore_eos: bool
    temperature: float
    top_p: float | None
    flush: bool
    fresh_prompts: bool
    continuous_usage: bool
    drain: str
    keep_raw: bool

    def requests_at(self, concurrency: int) -> int | None:
        """Return how many requests one point asks for, or None when its duration alone decides."""
        if self.requests_per_stream is None:
            return self.min_requests
        return max(self.requests_per_stream * concurrency, self.min_requests or 0)


@dataclass(frozen=True)
class Claim:
    """One comparison of a hypothesis; `at` holds levels, or "peak" for each arm's own best level."""

    arm: str
    reference: str
    workload: str
    metric: str
    relation: str
    ratio: float
    margin: float | None
    at: tuple[int, ...] | str


@dataclass(frozen=True)
class Hypothesis:
    """A statement registered before measuring: supported when all of its claims are."""

    id: str
    text: str
    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class Experiment:
    """Everything the user asked for. `arms` keep the order of the file, which decides nothing but tables."""

    source: str
    name: str
    title: str
    description: str
    blocks: int
    repeats: int
    seed: int
    engine: Engine
    machine: Machine
    model: Model
    arms: tuple[ArmRequest, ...]
    workloads: tuple[Workload, ...]
    hypotheses: tuple[Hypothesis, ...]
    analysis: Mapping[str, Any]
    limits: Mapping[str, Any]
    expected: Mapping[str, Any]
    published: str | None
    config_sha256: str
    reductions: Mapping[str, Any] = field(default_factory=dict)
