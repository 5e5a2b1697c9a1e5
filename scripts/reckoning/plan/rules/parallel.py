"""Tensor, expert, data and pipeline parallel sizes: what divides what, and how many GPUs that takes."""

from __future__ import annotations

from collections.abc import Iterator

from reckoning.plan.rules.core import Objection, Setup, rule

SIZES = ("tp_size", "pp_size", "ep_size", "dp_size", "moe_dp_size")


def divisors(number: int) -> str:
    """Return the divisors of a number as a list for a remedy."""
    return ", ".join(str(size) for size in range(1, number + 1) if number % size == 0)


@rule("sizes-positive", level="reject", summary="Every parallel size is at least 1.")
def sizes_positive(setup: Setup) -> Iterator[Objection]:
    for name in SIZES:
        value = setup.settings.get(name, 1)
        if isinstance(value, int) and value < 1:
            yield Objection(f"{name} is {value}", "use 1 or more, or leave it out")


@rule(
    "ep-divides-tp",
    level="reject",
    summary="Expert groups lie inside one tensor-parallel group: ep divides tp, and ep <= tp.",
    references=(
        "https://github.com/sgl-project/sglang/pull/11702",
        "https://github.com/sgl-project/sglang/pull/12012",
    ),
)
def ep_divides_tp(setup: Setup) -> Iterator[Objection]:
    tp, ep = setup.tp, setup.layout.ep
    if ep < 1 or tp < 1:
        return
    sizes = f"ep_size {ep}, tp_size {tp}, moe_dp_size {setup.moe_dp}"
    if ep > tp:
        yield Objection(
            f"experts are dealt inside one tensor-parallel group, and ep is larger than tp ({sizes}): "
            f"moe_tp = tp // ep // moe_dp = 0, a ZeroDivisionError in the engine",
            f"with tp_size {tp} use ep_size {divisors(tp)}; pp_size does not widen the group",
        )
    elif tp % ep:
        yield Objection(
            f"ep does not divide tp ({sizes}): the floor division lets it pass, and the ranks get uneven groups",
            f"with tp_size {tp} use ep_size {divisors(tp)}",
        )


@rule(
    "moe-dp-layout",
    level="reject",
    summary="With moe_dp > 1: it divides tp, ep x moe_dp <= tp (equal when ep > 1), and pp is 1.",
    references=("https://github.com/sgl-project/sglang/pull/31159",),
)
def moe_dp_layout(setup: Setup) -> Iterator[Objection]:
    tp, ep, moe_dp = setup.tp, setup.layout.ep, setup.moe_dp
    if moe_dp <= 1 or min(tp, ep) < 1:
        return
    if tp % moe_dp:
        yield Objection(f"moe_dp_size {moe_dp} does not divide tp_size {tp}", f"use one of {divisors(tp)}")
    elif ep * moe_dp > tp or (ep > 1 and ep * moe_dp != tp):
        yield Objection(
            f"ep_size {ep} x moe_dp_size {moe_dp} is {ep * moe_dp}, and tp_size is {tp}",
            f"use ep_size {tp // moe_dp} with moe_dp_size {moe_dp}",
        )
    if setup.pp > 1:
        yield Objection(f"moe_dp_size {moe_dp} does not work with pp_size {setup.pp}", "set pp_size to 1")


@rule(
    "attn-cp-layout",
    level="reject",
    summary="Attention context parallelism divides tp (tp / dp with dp attention), and equals moe_dp when that is > 1.",
)
def attn_cp_layout(setup: Setup) -> Iterator[Objection]:
    cp, tp, dp = setup.attn_cp, setup.tp, setup.layout.attn_dp
    if cp > 1 and tp % (cp * dp):
        groups = f" x dp {dp}" if dp > 1 else ""
        yield Objection(f"attn_cp_size {cp}{groups} does not divide tp_size {tp}", f"use attn_cp_size {divisors(tp)}")
    if setup.moe_dp > 1 and cp != setup.moe_dp:
        yield Objection(
            f"moe_dp_size {setup.moe_dp} with attn_cp_size {cp}: the engine asserts that they are equal",
            f"set attn_cp_size: {setup.moe_dp}",
        )


@rule(
    "enough-gpus",
    level="reject",
    summary="A server needs tp x pp x dp GPUs (dp counts without dp attention) that its process can see.",
)
def enough_gpus(setup: Setup) -> Iterator[Objection]:
    if setup.device == "cpu" or setup.gpus is None:
        return
    layout = setup.layout
    here = -(-layout.world // max(1, setup.nodes))
    if here > setup.gpus:
        copies = f" x dp {layout.replicas} (replicas: no dp attention)" if layout.replicas > 1 else ""
        nodes = f" over {setup.nodes} nodes" if setup.nodes > 1 else ""
        yield Objection(
            f"tp {layout.tp} x pp {layout.pp}{copies} takes {layout.world} GPUs{nodes}, "
            f"and {setup.gpus} can be seen ({setup.gpu_source})",
            "lower a parallel size, or make more GPUs visible",
        )


@rule(
    "nodes-divide-ranks",
    level="reject",
    summary="tp x pp is divisible by the number of nodes.",
    references=("https://github.com/sgl-project/sglang/issues/3436",),
)
def nodes_divide_ranks(setup: Setup) -> Iterator[Objection]:
    nodes = max(setup.nodes, setup.value("nnodes", 1) or 1)
    if (setup.tp * setup.pp) % nodes:
        yield Objection(
            f"tp {setup.tp} x pp {setup.pp} = {setup.tp * setup.pp} ranks cannot be split over {nodes} nodes",
            f"use {divisors(setup.tp * setup.pp)} nodes, or other parallel sizes",
        )


@rule("one-node", level="unavailable", summary="This workflow starts servers on one machine.")
def one_node(setup: Setup) -> Iterator[Objection]:
    nodes = max(setup.nodes, setup.value("nnodes", 1) or 1)
    if nodes > 1:
        yield Objection(f"the server spans {nodes} nodes, and the workflow starts processes on one", "use one node")


@rule(
    "dp-attention-divides-tp",
    level="reject",
    summary="Attention data parallelism splits the tp ranks: dp divides tp.",
    references=("https://github.com/sgl-project/sglang/pull/4390",),
)
def dp_attention_divides_tp(setup: Setup) -> Iterator[Objection]:
    dp, tp = setup.layout.attn_dp, setup.tp
    if dp > 1 and tp % dp:
        yield Objection(f"dp attention over {dp} groups does not divide tp_size {tp}", f"use dp {divisors(tp)}")


@rule("dp-attention-idle", level="warn", summary="enable_dp_attention with dp 1 changes nothing.")
def dp_attention_idle(setup: Setup) -> Iterator[Objection]:
    if setup.value("enable_dp_attention", False) and setup.layout.attn_dp <= 1:
        yield Objection("enable_dp_attention has no effect with dp_size 1: SGLang turns it off", "set dp_size")


@rule(
    "dp-replicas-with-dp-attention",
    level="reject",
    versions=">=0.5.23",
    summary="Since 0.5.23 dp_size counts replicas and attn_dp_size attention groups; the two cannot be combined.",
)
def dp_replicas_with_dp_attention(setup: Setup) -> Iterator[Objection]:
    groups = setup.settings.get("attn_dp_size", 1)
    if isinstance(groups, int) and groups > 1 and setup.dp > 1:
        yield Objection(f"dp_size {setup.dp} with attn_dp_size {groups}", "keep one of the two")


@rule(
    "cpu-threads-per-rank",
    level="reject",
    summary="SGLANG_CPU_OMP_THREADS_BIND lists the cores of each tp rank, separated by |.",
)
def cpu_threads_per_rank(setup: Setup) -> Iterator[Objection]:
    stated = setup.env.get("SGLANG_CPU_OMP_THREADS_BIND")
    if setup.device != "cpu" or stated is None or stated == "all":
        return
    groups = stated.split("|")
    if len(groups) != setup.tp:
        yield Objection(
            f"SGLANG_CPU_OMP_THREADS_BIND={stated} names cores for {len(groups)} ranks, and tp_size is {setup.tp}",
            'give one group per rank, such as "0|1" for tp_size 2',
        )
