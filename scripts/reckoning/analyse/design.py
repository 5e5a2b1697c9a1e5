"""What the analysis has to know about an experiment beside its numbers: arms, baseline, margins, metrics, questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Metric:
    """How a metric is read: `better` is higher, lower or none; `statistic` says what one point's value is."""

    label: str
    unit: str
    better: str
    statistic: str


_MEDIAN = "median over the requests of the steady window"
METRICS: dict[str, Metric] = {
    "output_tok_s": Metric(
        "Output throughput", "tok/s", "higher", "tokens delivered in the steady window over its length"
    ),
    "ttft_ms": Metric("Time to first token (TTFT)", "ms", "lower", _MEDIAN),
    "tpot_ms": Metric("Time per output token (TPOT)", "ms", "lower", _MEDIAN),
    "itl_ms": Metric(
        "Inter-token latency (ITL), per token", "ms", "lower", "mean over the tokens of the steady window"
    ),
    "chunk_gap_ms": Metric("Gap between chunks", "ms", "lower", "mean over the chunks of the steady window"),
    "e2e_ms": Metric("Request latency, end to end", "ms", "lower", _MEDIAN),
    "acceptance_length": Metric("Acceptance length", "tokens", "none", "tokens per verify step, from server counters"),
    "energy_j_per_token": Metric("Energy per output token", "J/token", "none", "energy of the steady window per token"),
}
PRIMARY = "output_tok_s"
"""The metric that decides winners and recommendations."""

SPEEDS = ("output_tok_s", "ttft_ms", "tpot_ms", "e2e_ms")
"""The metrics whose contrasts are reported for every arm."""


@dataclass(frozen=True)
class Arm:
    """One arm as planned. `status` is the plan's: runnable, rejected or unavailable."""

    slug: str
    name: str
    status: str = "runnable"
    reason: str | None = None
    remedy: str | None = None
    why: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    patches: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    factors: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """When a point is kept out of verdicts (METHOD 8): shares and ratios, and seconds for the duration."""

    max_failed_share: float = 0.01
    min_achieved_concurrency: float = 0.9
    max_token_deviation: float = 0.02
    min_point_duration_s: float = 0.0


@dataclass(frozen=True)
class Design:
    """The experiment as the analysis sees it: `arms` in the order of the plan, `workloads` a name to its levels."""

    experiment: str
    title: str
    provenance: Mapping[str, Any]
    arms: tuple[Arm, ...]
    workloads: Mapping[str, tuple[int, ...]]
    baseline: str | None = None
    confidence: float = 0.95
    equivalence_margin: float = 0.03
    blocks: int | None = None
    repeats: int | None = None
    launches_planned: int | None = None
    metrics: Mapping[str, Metric] = field(default_factory=lambda: dict(METRICS))
    primary: str = PRIMARY
    compared: tuple[str, ...] = SPEEDS
    limits: Limits = Limits()
    hypotheses: tuple[Mapping[str, Any], ...] = ()
    samples: int | None = None

    @property
    def alpha(self) -> float:
        """The error rate that belongs to the confidence."""
        return 1 - self.confidence

    def arm(self, slug: str) -> Arm:
        """Return an arm by its slug; an unknown slug gives an arm of that name."""
        return next((arm for arm in self.arms if arm.slug == slug), Arm(slug, slug))

    def name(self, slug: str) -> str:
        """Return the label that the user wrote."""
        return self.arm(slug).name

    @property
    def runnable(self) -> tuple[str, ...]:
        """The slugs of the arms that were to run, in the order of the plan."""
        return tuple(arm.slug for arm in self.arms if arm.status == "runnable")


def design_from_plan(plan: Mapping[str, Any], measured_at: str | None) -> Design:
    """Read the design out of plan.json."""
    analysis = plan.get("analysis") or {}
    workloads = {
        name: tuple(sorted({int(level) for level in workload.get("concurrency", [])}))
        for name, workload in (plan.get("workloads") or {}).items()
    }
    known = Limits.__dataclass_fields__
    return Design(
        experiment=str(plan.get("experiment", "experiment")),
        title=str(plan.get("title") or plan.get("experiment", "experiment")),
        provenance=_provenance(plan, measured_at),
        arms=tuple(_arm(raw) for raw in plan.get("arms", [])),
        workloads=workloads,
        baseline=analysis.get("baseline") or plan.get("baseline"),
        confidence=float(analysis.get("confidence", 0.95)),
        equivalence_margin=float(analysis.get("equivalence_margin", 0.03)),
        blocks=plan.get("blocks"),
        repeats=plan.get("repeats"),
        launches_planned=len(plan.get("launches", [])),
        limits=Limits(**{key: float(analysis[key]) for key in known if analysis.get(key) is not None}),
        hypotheses=tuple(plan.get("hypotheses") or ()),
        samples=analysis.get("samples_to_generate"),
    )


def _arm(raw: Mapping[str, Any]) -> Arm:
    problems = [p for p in raw.get("problems") or [] if p.get("level") in {"reject", "unavailable"}]
    first = problems[0] if problems else {}
    return Arm(
        slug=raw["slug"],
        name=str(raw.get("name") or raw["slug"]),
        status=raw.get("status", "runnable"),
        reason=first.get("reason"),
        remedy=first.get("remedy"),
        why=raw.get("why"),
        settings=raw.get("settings") or {},
        env=raw.get("env") or {},
        patches=tuple(raw.get("patches") or ()),
        command=tuple(map(str, raw.get("command") or ())),
        factors=raw.get("factors") or {},
    )


def _provenance(plan: Mapping[str, Any], measured_at: str | None) -> dict[str, Any]:
    given = plan.get("provenance") or {}
    machine = plan.get("machine") or {}
    on_cpu = machine.get("device") == "cpu"
    kind = given.get("kind") or ("cpu-demonstration" if on_cpu else "measured")
    notes = {
        "cpu-demonstration": "CPU demonstration: says nothing about GPUs.",
        "synthetic": "Synthetic data with a known truth: no machine was measured.",
        "recording": "A recording of an earlier run.",
    }
    gpus = f"{machine.get('gpus')} x {machine.get('gpu_name')}" if machine.get("gpu_name") else None
    label = given.get("machine") or gpus or ("CPU" if on_cpu else None)
    return {
        "kind": kind,
        "machine": label,
        "measured_at": given.get("measured_at") or measured_at,
        "note": given.get("note") or notes.get(kind),
    }
