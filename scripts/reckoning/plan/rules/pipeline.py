"""Pipeline parallelism: layers per stage, and what does not go with it."""

from __future__ import annotations

from collections.abc import Iterator

from reckoning.plan.memory import partition
from reckoning.plan.rules.core import Objection, Setup, rule

START_LAYER_PATCH = "sglang-pp-start-layer"
PARTITION = "SGLANG_PP_LAYER_PARTITION"


@rule(
    "pp-layer-partition",
    level="reject",
    summary="Each stage gets a layer, and SGLANG_PP_LAYER_PARTITION has pp numbers that add up to the layers.",
    references=("https://github.com/sgl-project/sglang/issues/29162",),
)
def pp_layer_partition(setup: Setup) -> Iterator[Objection]:
    layers, pp, stated = setup.facts.layers, setup.pp, setup.env.get(PARTITION)
    if layers and pp > layers:
        yield Objection(
            f"pp_size {pp} has more stages than the model has layers ({layers})", f"use pp_size <= {layers}"
        )
    if stated is None or (pp == 1 and setup.at_least("0.5.23")):
        return
    parts = stated.split(",")
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        yield Objection(f"{PARTITION}={stated!r} is not a list of positive numbers", "write it as 19,20,20,19")
    elif len(parts) != pp:
        yield Objection(f"{PARTITION}={stated} names {len(parts)} stages, and pp_size is {pp}", f"give {pp} numbers")
    elif layers and sum(map(int, parts)) != layers:
        total = sum(map(int, parts))
        yield Objection(
            f"{PARTITION}={stated} adds up to {total} layers, and the model has {layers}", "correct the sum"
        )


@rule(
    "pp-start-layer",
    level="reject",
    versions=">=0.5.9,<0.5.18",
    summary=f"Triton attention asks layer 0 for its value size on every stage; patch {START_LAYER_PATCH} mends it.",
    references=(
        "https://github.com/sgl-project/sglang/issues/30335",
        "https://github.com/sgl-project/sglang/pull/13837",
    ),
)
def pp_start_layer(setup: Setup) -> Iterator[Objection]:
    uses_triton = "triton" in setup.attention_backends.values()
    if setup.pp <= 1 or setup.device == "cpu" or not uses_triton or START_LAYER_PATCH in setup.patches:
        return
    remedy = f"add {START_LAYER_PATCH} to the arm's patches, or use SGLang 0.5.23"
    layers = setup.facts.layers
    if layers and layers >= setup.pp and _some_index_exists_by_luck(setup, layers):
        yield Objection(
            "every later stage reads the value size of a wrong layer: index 0 - start_layer happens to exist with this "
            "partition, so the server starts by luck",
            remedy,
            level="warn",
        )
        return
    yield Objection(
        "IndexError in get_value_buffer: a stage that does not hold layer 0 is asked for it (PP + Triton attention)",
        remedy,
    )


def _some_index_exists_by_luck(setup: Setup, layers: int) -> bool:
    try:
        sizes = partition(layers, setup.pp, setup.env.get(PARTITION))
    except ValueError:
        return False
    starts = [sum(sizes[:stage]) for stage in range(len(sizes))]
    return all(start <= size for start, size in zip(starts[1:], sizes[1:], strict=True))


@rule(
    "pp-speculation",
    level="reject",
    versions="<0.5.23",
    summary="Pipeline parallelism does not go with speculative decoding.",
    references=("https://github.com/sgl-project/sglang/pull/30775",),
)
def pp_speculation(setup: Setup) -> Iterator[Objection]:
    if setup.pp > 1 and setup.speculative not in (None, "DFLASH"):
        yield Objection(
            f"pp_size {setup.pp} with {setup.speculative}: the engine asserts that pipeline parallelism is not "
            "compatible with speculative decoding",
            "set pp_size to 1, or drop speculation",
        )


@rule(
    "pp-speculation-eagle-only",
    level="reject",
    versions=">=0.5.23",
    summary="Since 0.5.23 pipeline parallelism allows EAGLE alone: on prefill nodes, or with SGLANG_ENABLE_PP_SPEC=1.",
    references=("https://github.com/sgl-project/sglang/pull/30775",),
)
def pp_speculation_eagle_only(setup: Setup) -> Iterator[Objection]:
    if setup.pp <= 1 or setup.speculative in (None, "DFLASH"):
        return
    opted_in = setup.env.get("SGLANG_ENABLE_PP_SPEC", "").lower() in ("1", "true", "yes", "on")
    if setup.speculative != "EAGLE":
        yield Objection(f"pp_size {setup.pp} allows EAGLE only, not {setup.speculative}", "set pp_size to 1")
    elif not opted_in and setup.value("disaggregation_mode", "null") != "prefill":
        yield Objection(
            f"pp_size {setup.pp} with EAGLE outside a prefill node needs an opt-in",
            "set SGLANG_ENABLE_PP_SPEC to 1 in the arm's env",
        )


@rule(
    "pp-mixed-chunk",
    level="reject",
    versions="<0.5.12",
    summary="Older versions assert that pipeline parallelism does not go with mixed chunked prefill (read in 0.5.9).",
)
def pp_mixed_chunk(setup: Setup) -> Iterator[Objection]:
    if setup.pp > 1 and setup.value("enable_mixed_chunk", False):
        yield Objection(
            f"pp_size {setup.pp} with enable_mixed_chunk: the engine asserts that they are incompatible",
            "remove enable_mixed_chunk",
        )


@rule(
    "pp-no-overlap",
    level="note",
    summary="Pipeline parallelism switches the overlap schedule off: a difference beside the layout itself.",
)
def pp_no_overlap(setup: Setup) -> Iterator[Objection]:
    if setup.pp > 1 and not setup.settings.get("disable_overlap_schedule", False):
        yield Objection(
            "SGLang switches the overlap schedule off with pp > 1: compared with a tp arm, two things differ",
            "for a clean comparison add a tp arm with disable_overlap_schedule: true",
        )
