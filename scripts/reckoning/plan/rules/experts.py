"""Expert load balancing, all-to-all backends and MoE runners."""

from __future__ import annotations

from collections.abc import Iterator

from reckoning.plan.memory import GIB, dtype_bytes, expert_bytes
from reckoning.plan.rules.core import Objection, Setup, rule


@rule(
    "eplb-needs-ep",
    level="reject",
    summary="Expert load balancing needs ep > 1.",
    references=("https://github.com/sgl-project/sglang/issues/7266",),
)
def eplb_needs_ep(setup: Setup) -> Iterator[Objection]:
    if setup.value("enable_eplb", False) and setup.layout.ep <= 1:
        yield Objection(
            "enable_eplb with ep_size 1: there is nothing to balance, and the engine asserts", "set ep_size"
        )


@rule(
    "eplb-recorder",
    level="reject",
    summary="Expert load balancing needs the recorder mode stat.",
    references=("https://github.com/sgl-project/sglang/issues/7266",),
)
def eplb_recorder(setup: Setup) -> Iterator[Objection]:
    mode = setup.settings.get("expert_distribution_recorder_mode")
    if setup.value("enable_eplb", False) and mode not in (None, "stat", "stat_approx"):
        yield Objection(f"recorder mode {mode} fails with an AssertionError at the first rebalance", "use stat")


@rule(
    "eplb-buffer",
    level="reject",
    summary="The recorder's buffer is not longer than the interval between rebalances.",
)
def eplb_buffer(setup: Setup) -> Iterator[Objection]:
    size = setup.settings.get("expert_distribution_recorder_buffer_size")
    interval = setup.value("eplb_rebalance_num_iterations", 1000)
    if setup.value("enable_eplb", False) and isinstance(size, int) and size > interval:
        yield Objection(
            f"the recorder keeps {size} steps and a rebalance comes every {interval}", f"set the buffer to {interval}"
        )


@rule(
    "eplb-rebalance-stalls",
    level="note",
    summary="A rebalance stops the server for seconds: outliers at that time are the arm's own.",
    references=("https://github.com/sgl-project/sglang/pull/8345",),
)
def eplb_rebalance_stalls(setup: Setup) -> Iterator[Objection]:
    if setup.value("enable_eplb", False) and setup.layout.ep > 1:
        interval = setup.value("eplb_rebalance_num_iterations", 1000)
        yield Objection(
            f"every {interval} steps the server stops to move experts", "read latency tails with this in mind"
        )


@rule(
    "eplb-memory",
    level="warn",
    summary="Redundant experts take memory on every GPU.",
)
def eplb_memory(setup: Setup) -> Iterator[Objection]:
    redundant, memory = setup.value("ep_num_redundant_experts", 0) or 0, setup.memory
    if not redundant or memory is None or memory.kv_pool_gib is None:
        return
    facts = setup.facts
    size = expert_bytes(facts, dtype_bytes(facts.get("dtype")))
    per_layer = (
        3 * facts.get("hidden_size") * facts.expert_width * redundant / setup.layout.ep / setup.layout.moe_tp * size
    )
    extra = per_layer * max(stage.moe_layers for stage in memory.stages) / GIB
    if extra > 0.2 * max(memory.kv_pool_gib + extra, 0.0):
        yield Objection(
            f"{redundant} redundant experts take {extra:.1f} GiB of each GPU and leave "
            f"{max(memory.kv_pool_gib, 0):.1f} GiB for the KV cache",
            "use fewer redundant experts, or expect smaller batches",
        )


@rule(
    "ep-dispatch-without-a2a",
    level="reject",
    versions=">=0.5.23",
    summary="Without an all-to-all backend, experts cannot be picked by the static or lp dispatch.",
)
def ep_dispatch_without_a2a(setup: Setup) -> Iterator[Objection]:
    algorithm = setup.settings.get("ep_dispatch_algorithm")
    if setup.value("moe_a2a_backend", "none") == "none" and algorithm in ("static", "lp"):
        yield Objection(
            f"ep_dispatch_algorithm {algorithm} picks another replica on each rank, which needs an all-to-all backend",
            "use dynamic, or set moe_a2a_backend",
        )


@rule(
    "a2a-sets-ep",
    level="warn",
    summary="DeepEP and the other all-to-all backends set ep to tp, whatever ep_size says.",
)
def a2a_sets_ep(setup: Setup) -> Iterator[Objection]:
    backend, asked = setup.value("moe_a2a_backend", "none"), setup.settings.get("ep_size")
    if asked is not None and setup.layout.ep != asked:
        yield Objection(
            f"{backend} sets ep_size from {asked} to {setup.layout.ep} (tp_size)", f"set ep_size: {setup.tp}"
        )


@rule(
    "flashinfer-moe-ep",
    level="reject",
    summary="FlashInfer's CUTLASS and CuteDSL MoE take ep 1 or ep = tp.",
)
def flashinfer_moe_ep(setup: Setup) -> Iterator[Objection]:
    runner = setup.value("moe_runner_backend", "auto")
    if runner in ("flashinfer_cutlass", "flashinfer_cutedsl") and setup.layout.ep not in (1, setup.tp):
        yield Objection(f"{runner} with ep_size {setup.layout.ep}", f"use ep_size 1 or {setup.tp}")


@rule("cutlass-fp8-ep", level="reject", summary="CUTLASS MoE with FP8 runs with ep 1 only.")
def cutlass_fp8_ep(setup: Setup) -> Iterator[Objection]:
    quantization = setup.settings.get("quantization") or setup.facts.quantization.get("quant_method")
    if setup.value("moe_runner_backend") == "cutlass" and quantization in ("fp8", "mxfp8") and setup.layout.ep > 1:
        yield Objection(
            f"CUTLASS MoE with {quantization} and ep_size {setup.layout.ep}", "use ep_size 1, or another runner"
        )
