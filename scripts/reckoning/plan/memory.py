"""Memory of one GPU, from the shapes of the model: weights by kind, KV cache per token, reserves, and what is left.

All sizes are GiB (2^30 bytes), which SGLang's log calls GB. Shapes follow SGLang's layers for the DeepSeek family
(fused q_a/kv_a projection kept whole on every rank, q_b, kv_b and o split over the attention ranks, routed experts
dealt over ep groups and split over moe_tp inside them) and the usual attention of other families. Nothing is fitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reckoning.plan.effective import Effective
from reckoning.plan.facts import ModelFacts

GIB = 2**30
# CUDA context, NCCL buffers and cuBLAS workspaces of one rank: seen as 1 to 2 GiB on H100 and H200 class machines.
CONTEXT_GIB = 0.6
NCCL_GIB_PER_GROUP = 0.4
# SGLang's own reserve for captured graphs, per sequence of the largest captured batch (server_args.py): 2 MiB.
GRAPH_GIB_PER_SEQUENCE = 2 / 1024
_BYTES = {"float32": 4.0, "fp32": 4.0, "float": 4.0, "float16": 2.0, "half": 2.0, "bfloat16": 2.0, "bf16": 2.0}
_SCALE_BYTES = 2.0


@dataclass(frozen=True)
class Stage:
    """Weights of one GPU of one pipeline stage (GiB), and the bytes that one token's KV takes on it."""

    stage: int
    layers: int
    moe_layers: int
    attention_gib: float
    dense_gib: float
    experts_gib: float
    shared_experts_gib: float
    embeddings_gib: float
    draft_gib: float
    kv_bytes_per_token: int

    @property
    def weights_gib(self) -> float:
        parts = (self.attention_gib, self.dense_gib, self.experts_gib, self.shared_experts_gib, self.embeddings_gib)
        return sum(parts) + self.draft_gib


@dataclass(frozen=True)
class Memory:
    """The estimate for the fullest GPU of a server, and for each stage. None where the machine is unknown."""

    stages: tuple[Stage, ...]
    gpu_gib: float | None
    mem_fraction: float | None
    reserve_gib: float
    graph_gib: float
    kv_pool_gib: float | None
    kv_tokens: int | None

    @property
    def weights_gib(self) -> float:
        return max(stage.weights_gib for stage in self.stages)

    @property
    def total_weights_gib(self) -> float:
        """Weights of one GPU of every stage together (with pp 1: of one GPU)."""
        return sum(stage.weights_gib for stage in self.stages)


def partition(layers: int, stages: int, stated: str | None = None) -> tuple[int, ...]:
    """Return the layers per pipeline stage: as stated, or even with the extra layers on the last stages, as SGLang."""
    if stated is not None:
        return tuple(int(part) for part in stated.split(","))
    base, extra = divmod(layers, stages)
    return tuple(base + (1 if stage >= stages - extra else 0) for stage in range(stages))


def dtype_bytes(name: str | None) -> float:
    """Return the bytes of one unquantised weight; bf16 when the model does not say."""
    return _BYTES.get(str(name or "bfloat16").removeprefix("torch."), 2.0)


def expert_bytes(facts: ModelFacts, dtype: float) -> float:
    """Return the bytes of one weight of a routed expert, with its share of the group's scale."""
    quantization = facts.quantization
    if not quantization:
        return dtype
    group = _first_group(quantization).get("weights") or {}
    bits = group.get("num_bits") or quantization.get("bits") or quantization.get("w_bit")
    size = group.get("group_size") or quantization.get("group_size")
    if bits:
        return bits / 8 + (_SCALE_BYTES / size if isinstance(size, int) and size > 0 else 0.0)
    block = quantization.get("weight_block_size")
    if quantization.get("quant_method") == "fp8" or block:
        return 1.0 + (4.0 / (block[0] * block[1]) if block else 0.0)
    if "fp4" in str(quantization.get("quant_algo", quantization.get("quant_method", ""))).lower():
        return 0.5 + 1 / 16
    return dtype


def dense_bytes(facts: ModelFacts, dtype: float) -> float:
    """Return the bytes of one weight outside the routed experts: INT4 checkpoints of Kimi leave those unquantised."""
    quantization = facts.quantization
    ignored = " ".join(map(str, quantization.get("ignore") or quantization.get("modules_to_not_convert") or ()))
    group = _first_group(quantization).get("weights") or {}
    if not quantization or group.get("num_bits") == 4 or "self_attn" in ignored:
        return dtype
    return expert_bytes(facts, dtype)


def _first_group(quantization: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(iter((quantization.get("config_groups") or {}).values()), {})


def missing_facts(facts: ModelFacts) -> list[str]:
    """Return the facts without which no estimate is made."""
    needed = ["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size"]
    if facts.experts:
        needed.append("moe_intermediate_size")
    if facts.dense_layers or not facts.experts:
        needed.append("intermediate_size")
    if facts.uses_mla:
        needed += ["qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"]
    return [name for name in needed if facts.get(name) is None]


def attention_parameters(facts: ModelFacts, ranks: int) -> float:
    """Return the attention weights of one layer on one of `ranks` attention ranks."""
    hidden, heads = facts.get("hidden_size"), facts.heads
    if not facts.uses_mla:
        head_dim = facts.get("head_dim", hidden // heads)
        kv_heads = max(1, facts.kv_heads / ranks)
        return hidden * head_dim * (2 * heads / ranks + 2 * kv_heads)
    nope, rope, value = (facts.get(name) for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    q_lora, kv_lora = facts.get("q_lora_rank"), facts.get("kv_lora_rank")
    kv_b = kv_lora * heads * (nope + value)
    split = 2 * kv_b + heads * value * hidden  # kv_b is kept beside its absorbed copies w_kc and w_vc
    split += (q_lora if q_lora else hidden) * heads * (nope + rope)
    whole = hidden * ((q_lora or 0) + kv_lora + rope)
    return whole + split / ranks


def kv_bytes_per_token(facts: ModelFacts, layers: int, ranks: int, element: float) -> int:
    """Return the bytes that one token keeps on one GPU: the latent on every rank under MLA, else its share of heads."""
    if facts.uses_mla:
        return int((facts.get("kv_lora_rank") + facts.get("qk_rope_head_dim")) * element * layers)
    head_dim = facts.get("head_dim", facts.get("hidden_size") // facts.heads)
    return int(2 * max(1, facts.kv_heads // ranks) * head_dim * element * layers)


def draft_parameters(draft: ModelFacts, ranks: int) -> float:
    """Return the weights of a DFlash draft on one GPU: its layers and the projection of the target's hidden states."""
    layers, hidden = draft.layers or 0, draft.get("hidden_size")
    inner = draft.get("intermediate_size", 0)
    per_layer = attention_parameters(draft, ranks) + 3 * hidden * inner / ranks
    targets = (draft.get("dflash_config") or {}).get("target_layer_ids") or ()
    return layers * per_layer + len(targets) * hidden * hidden


def estimate(
    facts: ModelFacts,
    layout: Effective,
    *,
    settings: Mapping[str, Any],
    draft: ModelFacts | None = None,
    layer_partition: str | None = None,
    gpu_gib: float | None = None,
) -> Memory | None:
    """Return the memory of one server, or None when the model's facts do not suffice (`missing_facts` says which)."""
    if missing_facts(facts) or layout.moe_tp < 1:
        return None
    try:
        sizes = partition(facts.layers, layout.pp, layer_partition)
    except ValueError:
        return None
    stages = []
    for index in range(len(sizes)):
        first = sum(sizes[:index])
        layers = range(first, first + sizes[index])
        stages.append(_stage(facts, layout, index, layers, settings=settings, draft=draft))
    reserve = CONTEXT_GIB + NCCL_GIB_PER_GROUP * ((layout.tp > 1) + (layout.pp > 1) + (1 < layout.ep < layout.tp))
    graph = (layout.graph_max_bs or 0) * GRAPH_GIB_PER_SEQUENCE
    pool = tokens = None
    if gpu_gib is not None and layout.mem_fraction is not None:
        usable = (gpu_gib - reserve) * layout.mem_fraction
        pools = [(usable - stage.weights_gib, stage) for stage in stages]
        pool = min(size for size, _ in pools)
        tokens = max(0, min(int(size * GIB / stage.kv_bytes_per_token) for size, stage in pools))
        limit = settings.get("max_total_tokens")
        tokens = min(tokens, limit) if isinstance(limit, int) else tokens
    return Memory(tuple(stages), gpu_gib, layout.mem_fraction, reserve, graph, pool, tokens)


def _stage(
    facts: ModelFacts,
    layout: Effective,
    index: int,
    layers: Sequence[int],
    *,
    settings: Mapping[str, Any],
    draft: ModelFacts | None,
) -> Stage:
    stated = settings.get("dtype")
    dtype = dtype_bytes(facts.get("dtype") if stated in (None, "auto") else stated)
    plain = dense_bytes(facts, dtype)
    hidden, width = facts.get("hidden_size"), facts.expert_width
    moe = sum(1 for layer in layers if facts.is_moe_layer(layer))
    redundant = settings.get("ep_num_redundant_experts", 0) or 0
    routed = 3 * hidden * (width or 0) * (facts.experts + redundant) / (layout.ep * layout.moe_tp)
    shared = 3 * hidden * (width or 0) * facts.get("n_shared_experts", 0)
    spread = 1 if settings.get("moe_a2a_backend", "none") not in (None, "none") else layout.tp
    head = hidden * facts.get("vocab_size") * dtype / (layout.attn_tp if layout.attn_dp > 1 else layout.tp)
    ends = (index == 0) + (index == layout.pp - 1 and not (layout.pp == 1 and facts.get("tie_word_embeddings", False)))
    kv = kv_bytes_per_token(facts, len(layers), layout.attn_tp, _kv_element(settings, facts))
    draft_bytes, draft_kv = _draft(draft, layout.attn_tp, kv / max(1, len(layers)))
    return Stage(
        stage=index,
        layers=len(layers),
        moe_layers=moe,
        attention_gib=attention_parameters(facts, layout.attn_tp) * len(layers) * plain / GIB,
        dense_gib=3 * hidden * facts.get("intermediate_size", 0) / layout.tp * (len(layers) - moe) * plain / GIB,
        experts_gib=moe * (routed * expert_bytes(facts, dtype) + hidden * facts.experts * dtype) / GIB,
        shared_experts_gib=moe * shared * plain / spread / GIB,
        embeddings_gib=ends * head / GIB,
        draft_gib=draft_bytes / GIB,
        kv_bytes_per_token=max(1, kv + draft_kv),
    )


def _draft(draft: ModelFacts | None, ranks: int, target_kv_per_layer: float) -> tuple[float, int]:
    """Return the weights (bytes) and KV bytes per token of the draft on one GPU.

    With an unknown shape the stated size is used, and for the cache what SGLang assumes then: a target's layer each.
    """
    if draft is None:
        return 0.0, 0
    if draft.layers and draft.get("hidden_size") and draft.heads:
        weights = draft_parameters(draft, ranks) * dtype_bytes(draft.get("dtype"))
        return weights, kv_bytes_per_token(draft, draft.layers, ranks, 2.0)
    return draft.get("weights_gib", 0.0) * GIB / ranks, int(target_kv_per_layer * (draft.layers or 0))


def _kv_element(settings: Mapping[str, Any], facts: ModelFacts) -> float:
    stated = str(settings.get("kv_cache_dtype") or "auto")
    if stated.startswith(("fp8", "mxfp8")):
        return 1.0
    if stated.startswith(("fp4", "nvfp4")):
        return 0.5 + 1 / 16
    if stated in ("bf16", "bfloat16"):
        return 2.0
    dtype = settings.get("dtype")
    return dtype_bytes(facts.get("dtype") if dtype in (None, "auto") else dtype)
