"""Speculative decoding: what DFlash needs, and what it silently changes."""

from __future__ import annotations

from collections.abc import Iterator

from reckoning.plan.effective import SPECULATIVE_RUNNING_REQUESTS
from reckoning.plan.rules.core import Objection, Setup, rule

EP_GRAPH_PATCH = "sglang-dflash-ep-cuda-graph"


def _dflash(setup: Setup) -> bool:
    return setup.speculative == "DFLASH"


@rule("dflash-version", level="unavailable", versions="<=0.5.9", summary="SGLang 0.5.9 and older have no DFlash.")
def dflash_version(setup: Setup) -> Iterator[Objection]:
    if _dflash(setup):
        yield Objection(f"SGLang {setup.version} has no DFlash", "use 0.5.12.post1 or newer")


@rule(
    "dflash-needs-gpu",
    level="unavailable",
    summary="DFlash has no CPU kernels: newer versions refuse it, 0.5.12.post1 would interpret Triton ones.",
)
def dflash_needs_gpu(setup: Setup) -> Iterator[Objection]:
    if setup.device == "cpu" and _dflash(setup):
        yield Objection("DFlash needs a GPU: SGLang has no CPU kernels for it", "run this arm on a GPU machine")


@rule("dflash-draft-path", level="reject", summary="DFlash needs the path of its draft model.")
def dflash_draft_path(setup: Setup) -> Iterator[Objection]:
    if _dflash(setup) and not setup.settings.get("speculative_draft_model_path"):
        yield Objection("DFlash without a draft model", "set speculative_draft_model_path")


@rule("dflash-pp", level="reject", summary="DFlash runs with pp 1 only.")
def dflash_pp(setup: Setup) -> Iterator[Objection]:
    if _dflash(setup) and setup.pp != 1:
        yield Objection(f"DFlash supports pp_size 1 only, not {setup.pp}", "set pp_size to 1")


@rule("dflash-dp-attention", level="reject", versions="<0.5.23", summary="DFlash does not go with dp attention.")
def dflash_dp_attention(setup: Setup) -> Iterator[Objection]:
    if _dflash(setup) and setup.layout.attn_dp > 1:
        yield Objection("DFlash does not support dp attention in this version", "remove enable_dp_attention")


@rule(
    "dflash-dp-attention-head",
    level="reject",
    versions=">=0.5.23",
    summary="Since 0.5.23 DFlash goes with dp attention when enable_dp_lm_head is set.",
)
def dflash_dp_attention_head(setup: Setup) -> Iterator[Objection]:
    if _dflash(setup) and setup.layout.attn_dp > 1 and not setup.value("enable_dp_lm_head", False):
        yield Objection(
            "DFlash with dp attention borrows the target's head on every rank", "set enable_dp_lm_head: true"
        )


@rule(
    "dflash-block",
    level="reject",
    summary="The DFlash block is positive and equals the number of draft tokens when both are given.",
)
def dflash_block(setup: Setup) -> Iterator[Objection]:
    if not _dflash(setup):
        return
    block = setup.settings.get("speculative_dflash_block_size")
    tokens = setup.settings.get("speculative_num_draft_tokens")
    for name, value in (("speculative_dflash_block_size", block), ("speculative_num_draft_tokens", tokens)):
        if isinstance(value, int) and value <= 0:
            yield Objection(f"{name} is {value}", "use the block size that the draft was trained with, such as 8 or 16")
    if block is not None and tokens is not None and block != tokens:
        yield Objection(
            f"speculative_dflash_block_size {block} and speculative_num_draft_tokens {tokens} name the same thing",
            "give one of the two, or equal values",
        )


@rule("dflash-window", level="reject", summary="The draft's sliding window holds at least one block.")
def dflash_window(setup: Setup) -> Iterator[Objection]:
    window = setup.settings.get("speculative_draft_window_size")
    if not _dflash(setup) or not isinstance(window, int):
        return
    block = setup.layout.block_size
    if window <= 0:
        yield Objection(f"speculative_draft_window_size is {window}", "use a positive number, or leave it out")
    elif block is not None and window < block:
        yield Objection(f"the draft window of {window} is shorter than the block of {block}", f"use {block} or more")


@rule(
    "dflash-topk",
    level="reject",
    summary="DFlash drafts no tree: SGLang overrides another speculative_eagle_topk than 1.",
)
def dflash_topk(setup: Setup) -> Iterator[Objection]:
    topk = setup.settings.get("speculative_eagle_topk")
    if _dflash(setup) and topk not in (None, 1):
        yield Objection(
            f"speculative_eagle_topk {topk} does not apply to DFlash: SGLang overrides it to 1", "remove it"
        )


@rule("dflash-steps", level="warn", summary="DFlash overrides speculative_num_steps to 1.")
def dflash_steps(setup: Setup) -> Iterator[Objection]:
    steps = setup.settings.get("speculative_num_steps")
    if _dflash(setup) and steps not in (None, 1):
        yield Objection(
            f"speculative_num_steps {steps} is overridden to 1: the block is the unit of DFlash", "remove it"
        )


@rule(
    "speculation-running-requests",
    level="warn",
    summary="With speculation an unset max_running_requests becomes 48: larger levels queue.",
)
def speculation_running_requests(setup: Setup) -> Iterator[Objection]:
    if setup.speculative is None or setup.settings.get("max_running_requests") is not None:
        return
    above = [level for level in setup.levels if level > SPECULATIVE_RUNNING_REQUESTS]
    if above:
        yield Objection(
            f"max_running_requests is not set, and SGLang silently takes {SPECULATIVE_RUNNING_REQUESTS} with "
            f"speculation: the levels {', '.join(map(str, above))} would measure the queue",
            f"set max_running_requests: {max(above)}",
        )


@rule(
    "dflash-ep-graphs",
    level="reject",
    versions=">=0.5.11,<0.5.13",
    summary=f"DFlash with ep > 1 and CUDA graphs fails while graphs are captured; the patch {EP_GRAPH_PATCH} mends it.",
)
def dflash_ep_graphs(setup: Setup) -> Iterator[Objection]:
    layout = setup.layout
    if _dflash(setup) and layout.ep > 1 and layout.decode_graphs and EP_GRAPH_PATCH not in setup.patches:
        yield Objection(
            "AttributeError: 'NoneType' object has no attribute 'dtype' in the CUDA graph runner: with ep > 1 it "
            "copies num_token_non_padded, which the draft batch does not have",
            f"add {EP_GRAPH_PATCH} to the arm's patches, or set disable_cuda_graph: true",
        )


@rule(
    "draft-vocabulary",
    level="reject",
    summary="The draft's mask token lies inside the target's vocabulary, and the vocabularies agree.",
    references=("https://github.com/vllm-project/vllm/pull/46435",),
)
def draft_vocabulary(setup: Setup) -> Iterator[Objection]:
    if setup.speculative is None or setup.draft is None:
        return
    target, draft = setup.facts.get("vocab_size"), setup.draft.get("vocab_size")
    mask = (setup.draft.get("dflash_config") or {}).get("mask_token_id")
    if target and isinstance(mask, int) and mask >= target:
        yield Objection(
            f"the draft's mask token {mask} is outside the target's vocabulary of {target}",
            "use a draft for this target",
        )
    if target and draft and draft != target and setup.draft.get("draft_vocab_size") is None:
        yield Objection(
            f"the draft's vocabulary is {draft} and the target's {target}: acceptance would silently fall to 1",
            "use a draft for this target, or one that declares draft_vocab_size",
        )


@rule("draft-block", level="warn", summary="The block of the arm is the block that the draft was made for.")
def draft_block(setup: Setup) -> Iterator[Objection]:
    if not _dflash(setup) or setup.draft is None or setup.draft.block_size is None:
        return
    if setup.layout.block_size != setup.draft.block_size:
        yield Objection(
            f"the arm drafts blocks of {setup.layout.block_size}, and the draft was made for {setup.draft.block_size}: "
            "acceptance may suffer",
            f"set speculative_dflash_block_size: {setup.draft.block_size}",
        )
