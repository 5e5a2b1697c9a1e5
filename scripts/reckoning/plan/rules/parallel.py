"""Tensor, expert, data and pipeline parallel sizes: what divides what."""

from __future__ import annotations

from collections.abc import Iterator

from reckoning.plan.rules.core import Objection, Setup, rule


@rule(
    "ep-divides-tp",
    level="reject",
    summary="Expert parallelism splits a tensor-parallel group: ep divides tp, and ep <= tp.",
    references=("https://github.com/sgl-project/sglang/pull/11702",),
)
def ep_divides_tp(setup: Setup) -> Iterator[Objection]:
    tp, ep = setup.tp, setup.value("ep_size", 1)
    if ep < 1 or tp % ep:
        possible = ", ".join(str(size) for size in range(1, tp + 1) if tp % size == 0)
        why = (
            "an integer division by moe_tp = tp // ep // moe_dp = 0 (ZeroDivisionError)" if ep > tp else "uneven groups"
        )
        yield Objection(
            f"ep_size {ep} does not divide tp_size {tp} (moe_dp_size {setup.moe_dp}): "
            f"SGLang deals experts inside one tensor-parallel group, so this ends in {why}",
            f"with tp_size {tp} use ep_size {possible}",
        )
