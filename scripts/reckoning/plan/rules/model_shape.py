"""What the shapes of the model allow: heads, experts, expert widths and quantisation blocks."""

from __future__ import annotations

from collections.abc import Iterator

from reckoning.plan.rules.core import Objection, Setup, rule
from reckoning.plan.rules.parallel import divisors


@rule(
    "heads-divide",
    level="reject",
    summary="Attention heads are divisible by the ranks that share them; KV heads by them or they by the KV heads.",
    references=("https://github.com/sgl-project/sglang/issues/3436",),
)
def heads_divide(setup: Setup) -> Iterator[Objection]:
    heads, ranks = setup.facts.heads, setup.layout.attn_tp
    if heads and heads % ranks:
        yield Objection(f"{heads} attention heads cannot be split over tp={ranks}", f"use tp {divisors(heads)}")
    kv_heads = setup.facts.kv_heads
    if kv_heads and not setup.facts.uses_mla and kv_heads % ranks and ranks % kv_heads:
        yield Objection(
            f"{kv_heads} KV heads can neither be split over nor repeated on tp={ranks} ranks",
            f"use a tp that divides {kv_heads} or is a multiple of it",
        )


@rule(
    "experts-divide",
    level="reject",
    summary="Routed experts plus redundant ones are divisible by ep.",
    references=("https://github.com/vllm-project/vllm/pull/30614",),
)
def experts_divide(setup: Setup) -> Iterator[Objection]:
    experts, ep = setup.facts.experts, setup.layout.ep
    redundant = setup.value("ep_num_redundant_experts", 0) or 0
    if not experts or ep < 2 or (experts + redundant) % ep == 0:
        return
    low = redundant - (experts + redundant) % ep
    choices = [str(number) for number in (low, low + ep) if number >= 0]
    yield Objection(
        f"{experts} experts + {redundant} redundant = {experts + redundant} cannot be dealt to ep_size {ep} "
        f"({(experts + redundant) % ep} left over)",
        f"set ep_num_redundant_experts to {' or '.join(choices)}",
    )


@rule(
    "expert-width-divides",
    level="reject",
    summary="The inner width of an expert is divisible by moe_tp = tp / ep / moe_dp, and so are quantisation groups.",
    references=("https://github.com/sgl-project/sglang/pull/11702",),
)
def expert_width_divides(setup: Setup) -> Iterator[Objection]:
    width, moe_tp = setup.facts.expert_width, setup.layout.moe_tp
    if not setup.facts.experts or not width or moe_tp < 1:
        return
    if width % moe_tp:
        yield Objection(f"expert width {width} cannot be split over moe_tp={moe_tp}", _larger_ep(setup, 1))
        return
    groups = (setup.facts.quantization.get("config_groups") or {}).values()
    sizes = {(group.get("weights") or {}).get("group_size") for group in groups}
    for size in sorted(size for size in sizes if isinstance(size, int) and size > 0):
        if (width // moe_tp) % size:
            yield Objection(
                f"expert width {width} over moe_tp={moe_tp} is {width // moe_tp}, no multiple of the quantisation "
                f"group of {size}",
                _larger_ep(setup, size),
            )


@rule(
    "fp8-block-divides",
    level="reject",
    summary="With block-wise FP8, the part of an expert on one rank is a multiple of the block.",
    references=("https://github.com/sgl-project/sglang/pull/11702",),
)
def fp8_block_divides(setup: Setup) -> Iterator[Objection]:
    block = setup.facts.quantization.get("weight_block_size")
    width, moe_tp = setup.facts.expert_width, setup.layout.moe_tp
    if not block or not setup.facts.experts or not width or moe_tp < 1 or width % moe_tp:
        return
    if (width // moe_tp) % block[0]:
        yield Objection(
            f"expert width {width} over moe_tp={moe_tp} is {width // moe_tp}, no multiple of the FP8 block {block[0]}",
            _larger_ep(setup, block[0]),
        )


def _larger_ep(setup: Setup, block: int) -> str:
    """Return as remedy the smallest ep that makes the parts of an expert whole blocks."""
    tp, width = setup.tp, setup.facts.expert_width
    for ep in range(setup.layout.ep + 1, tp + 1):
        if tp % ep == 0 and width % (tp // ep) == 0 and (width // (tp // ep)) % block == 0:
            return f"use ep_size {ep} with tp_size {tp}"
    return f"use a smaller tp_size: no ep_size up to {tp} makes the parts whole"


@rule("context-fits", level="reject", summary="The longest request fits the context length.")
def context_fits(setup: Setup) -> Iterator[Objection]:
    stated = setup.settings.get("context_length")
    limit = stated or setup.facts.get("max_position_embeddings")
    name = "context_length" if stated else "the model's max_position_embeddings"
    for demand in setup.demands:
        if isinstance(limit, int) and demand.tokens > limit:
            yield Objection(
                f"workload {demand.workload} asks for {demand.input_tokens} + {demand.output_tokens} tokens, "
                f"and {name} is {limit}: every request would be refused or cut",
                "shorten the workload, or raise context_length",
            )


@rule(
    "facts-disagree",
    level="warn",
    summary="The model's config.json on disk says otherwise than the facts in the experiment file.",
)
def facts_disagree(setup: Setup) -> Iterator[Objection]:
    for key, stated in setup.stated_facts.items():
        found = setup.facts.get(key)
        if found is not None and found != stated:
            yield Objection(
                f"{key} is {found} in {setup.facts.source} and {stated} in the experiment file; the former is used",
                f"correct model.facts.{key}",
            )
