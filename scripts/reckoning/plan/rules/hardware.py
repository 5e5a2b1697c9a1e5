"""What the GPU and its links allow: kernels by architecture, and the PCIe path."""

from __future__ import annotations

from collections.abc import Iterator

from reckoning.plan.rules.core import Objection, Setup, rule

_TRTLLM_REFERENCES = (
    "https://github.com/flashinfer-ai/flashinfer/issues/5445",
    "https://github.com/sgl-project/sglang/pull/18758",
)


def _is_sm12x(setup: Setup) -> bool:
    return setup.architecture is not None and setup.architecture // 10 == 12


@rule(
    "trtllm-mla-architecture",
    level="reject",
    summary="trtllm_mla has kernels for sm_100 and sm_103 alone; SGLang's own check lets sm_120 pass.",
    references=_TRTLLM_REFERENCES,
)
def trtllm_mla_architecture(setup: Setup) -> Iterator[Objection]:
    if setup.architecture is None or setup.architecture // 10 == 10:
        return
    for name, backend in setup.attention_backends.items():
        if backend == "trtllm_mla":
            yield Objection(
                f"{name} trtllm_mla needs tcgen05 (sm_100, sm_103), and this GPU is sm_{setup.architecture}: "
                '"Unsupported architecture"',
                "use triton or flashinfer",
            )


@rule(
    "trtllm-mha-prefill-sm120",
    level="reject",
    versions="<0.5.23",
    summary="trtllm_mha as prefill backend runs on sm_100 alone.",
    references=_TRTLLM_REFERENCES,
)
def trtllm_mha_prefill(setup: Setup) -> Iterator[Objection]:
    chosen = setup.settings.get("prefill_attention_backend") or setup.settings.get("attention_backend")
    if chosen == "trtllm_mha" and setup.architecture is not None and setup.architecture // 10 != 10:
        yield Objection(
            f"trtllm_mha as prefill backend needs sm_100 or sm_103, and this GPU is sm_{setup.architecture}",
            "use triton or flashinfer for prefill",
        )


@rule(
    "trtllm-mha-fp8-sm120",
    level="reject",
    versions=">=0.5.23",
    summary="Since 0.5.23 trtllm_mha prefill runs on sm_90, sm_100 and sm_120, on sm_120 without an FP8 KV cache.",
    references=_TRTLLM_REFERENCES,
)
def trtllm_mha_fp8(setup: Setup) -> Iterator[Objection]:
    chosen = setup.settings.get("prefill_attention_backend") or setup.settings.get("attention_backend")
    if chosen != "trtllm_mha" or setup.architecture is None:
        return
    if setup.architecture // 10 not in (9, 10, 12):
        yield Objection(
            f"trtllm_mha needs sm_90, sm_100 or sm_120, and this GPU is sm_{setup.architecture}", "use triton"
        )
    elif _is_sm12x(setup) and setup.settings.get("kv_cache_dtype") == "fp8_e4m3":
        yield Objection("trtllm_mha prefill on sm_120 does not read an FP8 KV cache", "use another KV dtype or triton")


@rule(
    "trtllm-moe-architecture",
    level="reject",
    summary="The TRT-LLM-gen MoE runners have kernels for sm_100 and sm_103 alone.",
    references=_TRTLLM_REFERENCES,
)
def trtllm_moe_architecture(setup: Setup) -> Iterator[Objection]:
    runner = setup.settings.get("moe_runner_backend")
    if runner not in ("flashinfer_trtllm", "flashinfer_trtllm_routed") or setup.architecture is None:
        return
    if setup.architecture // 10 != 10:
        yield Objection(
            f"moe_runner_backend {runner} needs tcgen05 (sm_100, sm_103), and this GPU is sm_{setup.architecture}",
            "leave it at auto: sm_120 takes the Marlin, Triton or CUTLASS path",
        )


@rule(
    "attention-architecture",
    level="reject",
    summary="fa3 runs on sm_80 to sm_90 (with MLA on sm_90), flashmla on sm_90, cutlass_mla on sm_100.",
)
def attention_architecture(setup: Setup) -> Iterator[Objection]:
    if setup.architecture is None:
        return
    allowed = {"fa3": (9,) if setup.facts.uses_mla else (8, 9), "flashmla": (9,), "cutlass_mla": (10,)}
    for name, backend in setup.attention_backends.items():
        if backend in allowed and setup.architecture // 10 not in allowed[backend]:
            families = " or ".join(f"sm_{family}x" for family in allowed[backend])
            yield Objection(
                f"{name} {backend} runs on {families}, and this GPU is sm_{setup.architecture}", "use triton"
            )


@rule(
    "hybrid-gdn-flashinfer",
    level="reject",
    versions="<0.5.12",
    summary="On Blackwell, older versions take triton or trtllm_mha alone for hybrid linear-attention (GDN) models.",
    references=("https://github.com/sgl-project/sglang/issues/35080",),
)
def hybrid_gdn_flashinfer(setup: Setup) -> Iterator[Objection]:
    hybrid = "linear_attention" in (setup.facts.get("layer_types") or ()) or setup.facts.get("linear_num_value_heads")
    blackwell = setup.architecture is not None and setup.architecture // 10 in (10, 12)
    if hybrid and blackwell and setup.settings.get("attention_backend") == "flashinfer":
        yield Objection("flashinfer attention with a hybrid GDN model on Blackwell: the engine asserts", "use triton")


@rule(
    "pcie-pair-custom-all-reduce",
    level="warn",
    summary="Two GPUs over PCIe: P2P may hang, and custom all-reduce may return wrong data; it is off from three on.",
    references=(
        "https://github.com/NVIDIA/nccl/issues/2079",
        "https://github.com/vllm-project/vllm/issues/33041",
    ),
)
def pcie_pair_custom_all_reduce(setup: Setup) -> Iterator[Objection]:
    off = setup.value("disable_custom_all_reduce", False)
    if setup.device == "cuda" and setup.nvlink is False and setup.tp == 2 and not off:
        yield Objection(
            "tp 2 over PCIe uses SGLang's custom all-reduce, which hangs or corrupts data on boards with ACS or a weak "
            "P2P path",
            "check P2P first, or set disable_custom_all_reduce: true and NCCL_P2P_DISABLE=1",
        )
