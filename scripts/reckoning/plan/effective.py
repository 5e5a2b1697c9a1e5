"""What the engine makes of the settings: defaults that depend on the machine, and values that it silently changes.

Followed from SGLang's own resolution (server_args.py of 0.5.12.post1, arg_groups/ of 0.5.23): chunked prefill size,
graph batch size and memory fraction by GPU memory, DeepEP's ep = tp, DFlash's 48 running requests, pipeline
parallelism without overlap, dp attention's division of the prefill chunk.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reckoning.plan.rules.core import Setup

# All-to-all backends that span the tensor-parallel group, so that SGLang sets ep_size to tp_size.
SPANNING_A2A = (
    *("deepep", "deepep_v2", "mooncake", "nixl", "flashinfer", "flashinfer_megamoe", "megamoe"),
    *("mori", "pplx", "ascend_fuseep"),
)
SPECULATIVE_RUNNING_REQUESTS = 48
DEFAULT_BLOCK_SIZE = 16

# By GPU memory below (MiB): chunked prefill size, graph batch size for tp < 4, and for tp >= 4.
_BY_MEMORY = (
    (20 * 1024, 2048, 8, 8),
    (35 * 1024, 2048, 24, 80),
    (60 * 1024, 4096, 32, 160),
    (160 * 1024, 8192, 256, 512),
)
_LARGEST = (16384, 512, 512)
_BY_MEMORY_SINCE_0_5_23 = {35 * 1024: (4096, 48, 160)}


@dataclass(frozen=True)
class Change:
    """One argument that will not be what was asked for, or that was left open and gets a consequential value."""

    argument: str
    requested: Any
    effective: Any
    why: str


@dataclass(frozen=True)
class Effective:
    """The parallel layout and the limits that a server will run with, as far as they can be known without it."""

    tp: int
    pp: int
    ep: int
    replicas: int
    attn_dp: int
    attn_cp: int
    moe_tp: int
    chunked_prefill_size: int | None
    max_running_requests: int | None
    decode_graphs: bool
    graph_max_bs: int | None
    overlap: bool
    mem_fraction: float | None
    estimated_fraction: float | None
    block_size: int | None
    changes: tuple[Change, ...] = ()

    @property
    def attn_tp(self) -> int:
        """Ranks that share the heads of one attention layer."""
        return max(1, self.tp // max(1, self.attn_dp * self.attn_cp))

    @property
    def world(self) -> int:
        """GPUs that one server needs over all nodes."""
        return self.tp * self.pp * self.replicas


def effective(setup: Setup) -> Effective:
    """Return what the engine will run with; nothing here depends on the other arms."""
    changes: list[Change] = []
    new = setup.at_least("0.5.23")
    tp, pp, ep = setup.tp, setup.pp, setup.ep
    replicas, attn_dp = _data_parallel(setup)
    a2a = setup.value("moe_a2a_backend", "none")
    if a2a in SPANNING_A2A and ep != tp:
        changes.append(Change("ep_size", setup.settings.get("ep_size"), tp, f"moe_a2a_backend {a2a} spans all of tp"))
        ep = tp
    chunk = _chunk(setup, attn_dp, new, changes)
    running = _running(setup, changes)
    overlap = _overlap(setup, changes, new)
    graphs = _decode_graphs(setup, changes)
    graph_bs = _graph_batch(setup, new, running) if graphs else None
    draft = setup.draft
    block = None
    if setup.speculative == "DFLASH":
        stated = setup.value("speculative_dflash_block_size", setup.value("speculative_num_draft_tokens"))
        block = stated or (draft.block_size if draft else None)
        if block is None:
            changes.append(
                Change(
                    "speculative_num_draft_tokens",
                    None,
                    DEFAULT_BLOCK_SIZE,
                    "no draft config was found to take it from",
                )
            )
            block = DEFAULT_BLOCK_SIZE
    partial = Effective(
        tp=tp,
        pp=pp,
        ep=ep,
        replicas=replicas,
        attn_dp=attn_dp,
        attn_cp=setup.attn_cp,
        moe_tp=tp // ep // setup.moe_dp if ep > 0 and setup.moe_dp > 0 else 0,
        chunked_prefill_size=chunk,
        max_running_requests=running,
        decode_graphs=graphs,
        graph_max_bs=graph_bs,
        overlap=overlap,
        mem_fraction=None,
        estimated_fraction=None,
        block_size=block,
        changes=tuple(changes),
    )
    estimated = _estimated_fraction(setup, partial, new=new)
    stated = setup.settings.get("mem_fraction_static")
    return dataclasses.replace(
        partial, mem_fraction=estimated if stated is None else stated, estimated_fraction=estimated
    )


def _data_parallel(setup: Setup) -> tuple[int, int]:
    """Return (replicas, attention groups): dp_size means the one or the other, by enable_dp_attention."""
    stated = setup.value("attn_dp_size", 1)
    if isinstance(stated, int) and stated > 1:
        return setup.dp, stated
    if setup.value("enable_dp_attention", False):
        return 1, setup.dp
    return setup.dp, 1


def _memory_mib(setup: Setup) -> float | None:
    return None if setup.gpu_memory_gib is None or setup.device == "cpu" else setup.gpu_memory_gib * 1024


def _by_memory(setup: Setup, new: bool) -> tuple[int, int, int] | None:
    memory = _memory_mib(setup)
    if memory is None:
        return None
    for limit, *sizes in _BY_MEMORY:
        if memory < limit:
            return _BY_MEMORY_SINCE_0_5_23.get(limit, tuple(sizes)) if new else tuple(sizes)
    return _LARGEST


def _chunk(setup: Setup, attn_dp: int, new: bool, changes: list[Change]) -> int | None:
    sizes = _by_memory(setup, new)
    chunk = setup.settings.get("chunked_prefill_size", sizes[0] if sizes else None)
    if attn_dp > 1 and isinstance(chunk, int) and chunk > 0:
        why = f"dp attention divides the prefill chunk by {attn_dp}"
        changes.append(
            Change("chunked_prefill_size", setup.settings.get("chunked_prefill_size"), chunk // attn_dp, why)
        )
        return chunk // attn_dp
    return chunk


def _running(setup: Setup, changes: list[Change]) -> int | None:
    running = setup.settings.get("max_running_requests")
    if running is None and setup.speculative is not None:
        why = "SGLang's default with speculative decoding"
        changes.append(Change("max_running_requests", None, SPECULATIVE_RUNNING_REQUESTS, why))
        return SPECULATIVE_RUNNING_REQUESTS
    return running


def _overlap(setup: Setup, changes: list[Change], new: bool) -> bool:
    if setup.value("disable_overlap_schedule", False):
        return False
    if setup.pp > 1:
        return False  # the rule pp-no-overlap says so
    if setup.speculative in ("DFLASH", "NGRAM") and not new:
        why = f"{setup.speculative} runs without overlap in this version"
        changes.append(Change("disable_overlap_schedule", False, True, why))
        return False
    return True


def _decode_graphs(setup: Setup, changes: list[Change]) -> bool:
    if setup.device == "cpu" or setup.value("disable_cuda_graph", False):
        return False
    if setup.value("disable_decode_cuda_graph", False) or setup.value("cuda_graph_backend_decode") == "disabled":
        return False
    backend = setup.value("attention_backend")
    if backend in ("torch_native", "flex_attention"):
        changes.append(Change("disable_cuda_graph", False, True, f"attention_backend {backend} runs without graphs"))
        return False
    if setup.value("moe_a2a_backend") == "deepep" and setup.value("deepep_mode") == "normal":
        changes.append(Change("disable_cuda_graph", False, True, "deepep_mode normal runs without graphs"))
        return False
    return True


def _graph_batch(setup: Setup, new: bool, running: int | None) -> int | None:
    names = ("cuda_graph_bs_decode", "cuda_graph_max_bs_decode") if new else ("cuda_graph_bs", "cuda_graph_max_bs")
    listed, largest = (setup.settings.get(name) for name in names)
    if isinstance(listed, list | tuple) and listed:
        return max(listed)
    if largest is not None:
        return largest
    sizes = _by_memory(setup, new)
    if sizes is None:
        return None
    batch = sizes[1] if setup.tp < 4 else sizes[2]
    return min(batch, running) if running is not None else batch


def _estimated_fraction(setup: Setup, so_far: Effective, *, new: bool) -> float | None:
    """Return the mem_fraction_static that SGLang would take by its own estimate of what must stay free (MiB)."""
    memory = _memory_mib(setup)
    if memory is None:
        return None
    chunk = so_far.chunked_prefill_size or 0
    reserved = 512 + max(chunk if chunk > 0 else 16384, 2048) * 1.5 + so_far.tp * so_far.pp / 8 * 1024
    graph_bs = so_far.graph_max_bs or 0
    reserved += graph_bs * 2
    if so_far.attn_dp > 1:
        reserved += graph_bs * so_far.attn_dp * (4.5 if graph_bs > 300 else 3)
    if so_far.decode_graphs and not setup.value("disable_piecewise_cuda_graph", False) and setup.facts.uses_mla:
        reserved += 1536
    if memory > 60 * 1024:
        reserved = max(reserved, 10 * 1024)
    if setup.speculative is not None and not new and setup.speculative != "NGRAM":
        reserved += (6 if setup.speculative == "STANDALONE" else 4) * 1024
    return round((memory - reserved) / memory, 3)
