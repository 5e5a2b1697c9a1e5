"""Which arms of a plan use which functions of the engine, so that a finding stops only what it concerns."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from reckoning.environment.finding import Finding, Level

FUSED_MAJORS = (9, 10)  # GPUs on which SGLang fuses all-reduce with FlashInfer's kernels by default


class Feature(StrEnum):
    """A function of the engine that a fault of the machine can break."""

    CUDA = "any CUDA arm"
    JIT = "kernels compiled at run time"
    FLASHINFER = "FlashInfer kernels"
    SAMPLING = "FlashInfer sampling"
    SPECULATION = "speculative decoding (DFlash)"
    TRITON = "Triton kernels"
    MULTI_GPU = "more than one GPU"
    PAIR = "two GPUs with custom all-reduce"
    MODEL = "the model's files"


@dataclasses.dataclass(frozen=True)
class Arm:
    """What the diagnosis needs of an arm."""

    slug: str
    settings: Mapping[str, Any]
    env: Mapping[str, str]
    features: frozenset[Feature]

    @property
    def gpus(self) -> int:
        """GPUs that the arm needs: tp x pp, times dp where attention is not data-parallel."""
        replicas = 1 if self.settings.get("enable_dp_attention") else _size(self.settings, "dp_size")
        return _size(self.settings, "tp_size") * _size(self.settings, "pp_size") * replicas


class Scope:
    """The plan seen from the machine: its device, its arms and what they use."""

    def __init__(self, facts: Mapping[str, Any], plan: Mapping[str, Any] | None) -> None:
        self.plan = plan
        self.machine: Mapping[str, Any] = (plan or {}).get("machine") or {}
        self.model: Mapping[str, Any] = (plan or {}).get("model") or {}
        self.cpu = self.machine.get("device") == "cpu"
        flashinfer = has_flashinfer(facts)
        fused = any(_major(item) in FUSED_MAJORS for item in (facts.get("driver") or {}).get("gpus") or [])
        workloads = (plan or {}).get("workloads") or {}
        self.arms = tuple(
            _arm(item, flashinfer, workloads, cpu=self.cpu, fused=fused)
            for item in (plan or {}).get("arms") or []
            if item.get("status", "runnable") == "runnable"
        )

    def using(self, features: Iterable[Feature]) -> tuple[str, ...]:
        """Return the slugs of the arms that use one of the features."""
        wanted = set(features)
        return tuple(sorted(arm.slug for arm in self.arms if arm.features & wanted))

    def finding(
        self,
        code: str,
        level: Level,
        features: Iterable[Feature] = (),
        *,
        concerns: Iterable[str] | None = None,
        **texts: str,
    ) -> Finding:
        """Return a finding with its level as it counts for this plan.

        On a CPU experiment a CUDA fault is a note; so is one that concerns no arm of the plan.
        """
        features = tuple(features)
        slugs = tuple(sorted(concerns)) if concerns is not None else self.using(features)
        if level in (Level.WARN, Level.FAIL) and features and self.plan is not None:
            if self.cpu and Feature.MODEL not in features:
                level = Level.NOTE
                texts["why"] = (texts.get("why", "") + " This experiment runs on a CPU and does not need it.").strip()
            elif not slugs:
                level = Level.NOTE
                texts["why"] = (texts.get("why", "") + " No arm of this plan uses it.").strip()
        return Finding(code=code, level=level, scope=tuple(f.value for f in features), concerns=slugs, **texts)


def has_flashinfer(facts: Mapping[str, Any]) -> bool:
    """Return whether FlashInfer is installed; unknown packages count as installed, since SGLang depends on it."""
    packages = (facts.get("python") or {}).get("packages") or []
    return not packages or any(item["name"] == "flashinfer-python" for item in packages)


def _major(gpu: Mapping[str, Any]) -> int | None:
    major = str(gpu.get("compute_cap") or "").partition(".")[0]
    return int(major) if major.isdigit() else None


def _arm(item: Mapping[str, Any], flashinfer: bool, workloads: Mapping[str, Any], *, cpu: bool, fused: bool) -> Arm:
    settings = item.get("settings") or {}
    features = {Feature.MODEL}
    if not cpu:
        features |= {Feature.CUDA, Feature.JIT, *_kernels(settings, flashinfer, workloads)}
        features |= _parallel(settings)
        if fused and flashinfer and Feature.MULTI_GPU in features and _fuses_all_reduce(settings):
            features.add(Feature.FLASHINFER)
    return Arm(item["slug"], settings, item.get("env") or {}, frozenset(features))


def _kernels(settings: Mapping[str, Any], flashinfer: bool, workloads: Mapping[str, Any]) -> set[Feature]:
    found: set[Feature] = set()
    attention = [
        settings.get(name) for name in ("attention_backend", "prefill_attention_backend", "decode_attention_backend")
    ]
    named = [str(value) for value in attention if value]
    speculative = bool(settings.get("speculative_algorithm"))
    if not named or any("triton" in name for name in named):
        found.add(Feature.TRITON)
    if speculative:
        found.add(Feature.SPECULATION)
    if not flashinfer:
        return found
    draft = settings.get("speculative_draft_attention_backend")
    moe = str(settings.get("moe_runner_backend") or "")
    uses = (
        not named
        or any(name.startswith(("flashinfer", "trtllm")) for name in named)
        or moe.startswith("flashinfer")
        or bool(settings.get("enable_flashinfer_allreduce_fusion"))
        or (speculative and (draft or "flashinfer") == "flashinfer")
    )
    if _samples(settings, workloads):
        found.add(Feature.SAMPLING)
        uses = True
    if uses:
        found.add(Feature.FLASHINFER)
    return found


def _fuses_all_reduce(settings: Mapping[str, Any]) -> bool:
    """Whether SGLang turns FlashInfer's fused all-reduce on by itself (on sm_90 and sm_100, for large MoE models)."""
    switched_off = settings.get("enforce_disable_flashinfer_allreduce_fusion") or settings.get("enable_dp_attention")
    return _size(settings, "tp_size") > 1 and not switched_off


def _samples(settings: Mapping[str, Any], workloads: Mapping[str, Any]) -> bool:
    """Whether FlashInfer's sampling kernels are compiled: not for another backend, not for greedy decoding."""
    if settings.get("sampling_backend") not in (None, "flashinfer"):
        return False
    if not workloads:
        return True
    temperatures = [workload.get("temperature") for workload in workloads.values()]
    return any(value is None or value > 0 for value in temperatures)


def _parallel(settings: Mapping[str, Any]) -> set[Feature]:
    world = _size(settings, "tp_size") * _size(settings, "pp_size")
    found = {Feature.MULTI_GPU} if world > 1 else set()
    if _size(settings, "tp_size") == 2 and not settings.get("disable_custom_all_reduce"):
        found.add(Feature.PAIR)
    return found


def _size(settings: Mapping[str, Any], name: str) -> int:
    value = settings.get(name)
    return value if isinstance(value, int) and value > 0 else 1
