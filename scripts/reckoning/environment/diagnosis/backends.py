"""Do the arms' kernels exist for the GPUs that are here?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reckoning.environment.diagnosis.architecture import device_capabilities
from reckoning.environment.finding import Finding, Level
from reckoning.environment.scope import Arm, Feature, Scope

Facts = Mapping[str, Any]
ATTENTION = ("attention_backend", "prefill_attention_backend", "decode_attention_backend")
# TensorRT-LLM's generated kernels use tensor memory (tcgen05), which sm_100 and sm_103 have and sm_120 and sm_121 do
# not.
TRTLLM_MAJOR = 10
TRTLLM_ATTENTION = ("trtllm_mla", "trtllm_mha")
TRTLLM_MOE = ("flashinfer_trtllm", "flashinfer_trtllm_routed")
HYBRID_BACKENDS = ("triton", "trtllm_mha", "fa4")


def check(facts: Facts, scope: Scope) -> Iterator[Finding]:
    """Yield, per arm, backends that the GPUs do not have."""
    capabilities = device_capabilities(facts)
    if not capabilities or scope.cpu:
        return
    major, minor = capabilities[-1]
    for arm in scope.arms:
        for name in (*ATTENTION, "moe_runner_backend"):
            value = arm.settings.get(name)
            trtllm = TRTLLM_MOE if name == "moe_runner_backend" else TRTLLM_ATTENTION
            if value in trtllm and major != TRTLLM_MAJOR:
                yield _no_kernel(scope, arm, name, str(value), f"sm_{major}{minor}")
    if major == 12 and _hybrid(scope):
        yield from _hybrid_attention(scope)


def _no_kernel(scope: Scope, arm: Arm, name: str, value: str, gpu: str) -> Finding:
    instead = "auto, triton or flashinfer_cutlass" if name == "moe_runner_backend" else "triton or flashinfer"
    return scope.finding(
        "backend-not-for-gpu",
        Level.FAIL,
        (Feature.FLASHINFER,),
        concerns=(arm.slug,),
        found=f"{name}={value} on {gpu}",
        where=f"settings of {arm.slug}",
        needed="sm_100 or sm_103 for TensorRT-LLM's generated kernels",
        why=(
            "They use tensor memory (tcgen05), which this GPU lacks: 'Unsupported architecture', though it is a "
            "Blackwell too."
        )
        if gpu.startswith("sm_12")
        else "They exist for sm_100 and sm_103 only: 'Unsupported architecture'.",
        remedy=f"use {instead}",
    )


def _hybrid(scope: Scope) -> bool:
    """Whether the model mixes attention with gated delta nets (as Qwen3-Next does)."""
    facts = scope.model.get("facts") or {}
    text = (
        f"{facts.get('architectures') or ''} {facts.get('architecture') or ''} {facts.get('model_type') or ''}".lower()
    )
    return bool(facts.get("hybrid_gdn")) or any(name in text for name in ("qwen3next", "qwen3_next", "qwen3_5"))


def _hybrid_attention(scope: Scope) -> Iterator[Finding]:
    for arm in scope.arms:
        if any(arm.settings.get(name) == "flashinfer" for name in ATTENTION):
            yield scope.finding(
                "hybrid-attention-backend",
                Level.WARN,
                (Feature.FLASHINFER,),
                concerns=(arm.slug,),
                found=f"attention_backend=flashinfer for a hybrid gated-delta-net model (arm {arm.slug})",
                where=f"settings of {arm.slug}",
                needed=f"one of {', '.join(HYBRID_BACKENDS)} in some versions",
                why=(
                    "Whether SGLang asserts here depends on its version: several allow only these for hybrid models "
                    "on Blackwell."
                ),
                remedy="use attention_backend: triton",
            )
