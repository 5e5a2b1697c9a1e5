"""Speculative decoding: what DFlash and its relatives need."""

from __future__ import annotations

from collections.abc import Iterator

from reckoning.plan.rules.core import Objection, Setup, rule


@rule(
    "dflash-needs-gpu",
    level="unavailable",
    summary="DFlash has no CPU implementation.",
)
def dflash_needs_gpu(setup: Setup) -> Iterator[Objection]:
    if setup.device == "cpu" and setup.speculative == "DFLASH":
        yield Objection("DFlash needs a GPU: the CPU engine refuses it", "run this arm on a GPU machine")
