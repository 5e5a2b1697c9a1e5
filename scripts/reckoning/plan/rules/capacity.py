"""Memory and batch limits against what the workloads ask for."""

from __future__ import annotations

from collections.abc import Iterator

from reckoning.plan.memory import missing_facts
from reckoning.plan.rules.core import Objection, Setup, rule

# The estimate was within 1 % of two measured cases; a decision to reject leaves room for three times that.
MODEL_ERROR = 0.03


@rule(
    "weights-fit",
    level="reject",
    summary="The weights of the fullest GPU, by the model's shapes, fit its memory.",
)
def weights_fit(setup: Setup) -> Iterator[Objection]:
    memory = setup.memory
    if memory is None or memory.gpu_gib is None:
        return
    if memory.weights_gib * (1 - MODEL_ERROR) > memory.gpu_gib:
        stage = max(memory.stages, key=lambda stage: stage.weights_gib)
        ranks = setup.tp * setup.pp
        yield Objection(
            f"out of memory: tp {setup.tp} x pp {setup.pp} puts one part in {ranks} of the weights on each GPU, "
            f"{stage.weights_gib:.0f} GiB ({stage.experts_gib:.0f} GiB of experts), and it has "
            f"{memory.gpu_gib:.1f} GiB; ep deals experts inside tp and saves nothing",
            _more_ranks(setup, memory.weights_gib, memory.gpu_gib),
        )


def _more_ranks(setup: Setup, weights: float, gpu: float) -> str:
    needed = setup.tp * setup.pp
    while weights * setup.tp * setup.pp / needed > gpu * 0.9:
        needed *= 2
    limit = f" (this machine shows {setup.gpus})" if setup.gpus is not None and needed > setup.gpus else ""
    return f"spread the model over tp x pp = {needed} GPUs{limit}"


@rule(
    "room-for-kv",
    level="reject",
    summary="What mem_fraction_static leaves after the weights is enough for a KV cache.",
)
def room_for_kv(setup: Setup) -> Iterator[Objection]:
    memory = setup.memory
    if memory is None or memory.kv_pool_gib is None or memory.weights_gib * (1 - MODEL_ERROR) > memory.gpu_gib:
        return
    if memory.kv_pool_gib > 0:
        return
    certain = memory.kv_pool_gib + MODEL_ERROR * memory.weights_gib < 0
    yield Objection(
        f"weights take {memory.weights_gib:.1f} of {memory.gpu_gib:.1f} GiB, and mem_fraction_static "
        f"{memory.mem_fraction} allows {memory.weights_gib + memory.kv_pool_gib:.1f} for weights and KV cache: "
        '"Not enough memory"',
        "raise mem_fraction_static, or spread the model over more GPUs",
        level=None if certain else "warn",
    )


@rule(
    "room-outside-static",
    level="warn",
    summary="mem_fraction_static leaves what SGLang itself would keep free for activations, CUDA graphs and NCCL.",
    references=("https://github.com/vllm-project/vllm/pull/57595",),
)
def room_outside_static(setup: Setup) -> Iterator[Objection]:
    stated, estimated = setup.settings.get("mem_fraction_static"), setup.layout.estimated_fraction
    if stated is None or estimated is None or setup.gpu_memory_gib is None or stated <= estimated:
        return
    kept, wanted = ((1 - fraction) * setup.gpu_memory_gib for fraction in (stated, estimated))
    yield Objection(
        f"mem_fraction_static {stated} leaves {kept:.1f} GiB for activations, CUDA graphs and NCCL, and SGLang's own "
        f"estimate is {wanted:.1f}: a start or a long prompt may run out of memory",
        f"set mem_fraction_static: {estimated:.2f}, or lower chunked_prefill_size or the largest captured batch",
    )


@rule(
    "kv-holds-level",
    level="warn",
    summary="The KV cache holds the longest requests of every level at once; otherwise the level queues.",
)
def kv_holds_level(setup: Setup) -> Iterator[Objection]:
    memory = setup.memory
    if memory is None or not memory.kv_tokens:
        return
    for demand in setup.demands:
        running = setup.layout.max_running_requests or max(demand.levels)
        short = [level for level in demand.levels if min(level, running) * demand.tokens > memory.kv_tokens]
        if short:
            yield Objection(
                f"workload {demand.workload} needs {demand.tokens} tokens per request, and the KV cache holds "
                f"{memory.kv_tokens}: at most {memory.kv_tokens // demand.tokens} full requests run at once, so the "
                f"levels {', '.join(map(str, short))} may queue or be retracted",
                "lower the levels or the lengths, raise mem_fraction_static, or use an FP8 KV cache",
            )


@rule(
    "running-limit",
    level="warn",
    summary="max_running_requests is not below a level; otherwise that level measures the queue.",
)
def running_limit(setup: Setup) -> Iterator[Objection]:
    limit = setup.settings.get("max_running_requests")
    above = [level for level in setup.levels if isinstance(limit, int) and level > limit]
    if above:
        yield Objection(
            f"max_running_requests {limit} is below the levels {', '.join(map(str, above))}: these measure the queue "
            "and are kept out of verdicts",
            f"set max_running_requests: {max(above)}, or drop these levels",
        )


@rule(
    "graphs-hold-level",
    level="warn",
    summary="CUDA graphs are captured for the batch of every level; larger batches run without, a different regime.",
    references=("https://github.com/sgl-project/sglang/pull/37531",),
)
def graphs_hold_level(setup: Setup) -> Iterator[Objection]:
    layout = setup.layout
    if not layout.decode_graphs or layout.graph_max_bs is None:
        return
    running = layout.max_running_requests
    if setup.speculative == "DFLASH" and running is not None and running > layout.graph_max_bs:
        yield Objection(
            f"DFlash with {running} running requests and graphs for {layout.graph_max_bs}: a larger batch overflows "
            f'the draft\'s buffers ("The size of tensor a ({layout.graph_max_bs}) must match the size of tensor b")',
            f"capture graphs for {running}, or set max_running_requests: {layout.graph_max_bs}",
        )
        return
    above = [level for level in setup.levels if min(level, running or level) > layout.graph_max_bs]
    if above:
        yield Objection(
            f"graphs are captured up to a batch of {layout.graph_max_bs}: the levels {', '.join(map(str, above))} run "
            "without them",
            f"raise the largest captured batch to {max(above)}",
        )


@rule(
    "memory-unknown",
    level="note",
    summary="Facts of the model or the GPU are missing, so memory is not checked.",
)
def memory_unknown(setup: Setup) -> Iterator[Objection]:
    if setup.device == "cpu":
        return
    missing = missing_facts(setup.facts)
    if missing:
        yield Objection(f"no memory estimate without {', '.join(missing)}", "complete model.facts")
    elif setup.gpu_memory_gib is None:
        yield Objection("the memory of the GPUs is not known", "set machine.gpu_memory_gib")
