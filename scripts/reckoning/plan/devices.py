"""Which GPUs a server would see: CUDA_VISIBLE_DEVICES as CUDA reads it, and what the driver has."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Gpus:
    """The GPUs of this machine as the driver lists them; empty when there is no driver."""

    names: tuple[str, ...] = ()
    memory_gib: float | None = None
    compute_capability: str | None = None

    @property
    def count(self) -> int:
        return len(self.names)


@functools.cache
def installed_gpus() -> Gpus:
    """Return the GPUs that the NVIDIA driver of this machine lists; none when it has no driver. Touches no GPU."""
    import pynvml

    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        try:
            handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
            names = tuple(_text(pynvml.nvmlDeviceGetName(handle)) for handle in handles)
            if not handles:
                return Gpus()
            memory = min(pynvml.nvmlDeviceGetMemoryInfo(handle).total for handle in handles) / 2**30
            major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handles[0])
            return Gpus(names, round(memory, 2), f"{major}.{minor}")
        finally:
            pynvml.nvmlShutdown()
    return Gpus()


def ordinals_of(settings: Mapping[str, Any]) -> tuple[int, ...]:
    """Return which of the GPUs that it sees a server uses on its first node, by CUDA's numbering.

    Followed from SGLang's own layout (engine.py and data_parallel_controller.py of 0.5.12.post1): ranks of tp lie
    `gpu_id_step` apart, those of pp one node's tp, and replicas (dp without dp attention) behind one another.
    """

    def size(name: str, default: int = 1) -> int:
        value = settings.get(name)
        return value if isinstance(value, int) and value >= default else default

    tp, pp, nodes, step = size("tp_size"), size("pp_size"), size("nnodes"), size("gpu_id_step")
    replicas = 1 if settings.get("enable_dp_attention") else size("dp_size")
    pp_here = max(pp // nodes, 1)
    tp_here = max(tp // max(nodes // pp, 1), 1)
    used = {
        size("base_gpu_id", 0) + replica * tp * pp * step + stage * tp_here + rank * step
        for replica in range(replicas)
        for stage in range(pp_here)
        for rank in range(tp_here)
    }
    return tuple(sorted(used))


def visible_count(variable: str | None, installed: int | None) -> tuple[int | None, str]:
    """Return how many GPUs a process sees, and why.

    `variable` is CUDA_VISIBLE_DEVICES (None: not set), `installed` the GPUs of the machine (None: unknown). CUDA reads
    the list up to the first entry that it does not know, shows nothing when an entry is listed twice, and opens only
    one MIG instance per process.
    """
    if variable is None:
        return installed, "all GPUs of the machine"
    entries = [entry.strip() for entry in variable.split(",")]
    if not variable.strip():
        return 0, "CUDA_VISIBLE_DEVICES is empty"
    valid: list[str] = []
    for entry in entries:
        if not _names_a_device(entry, installed):
            break
        valid.append(entry)
    shown = f"CUDA_VISIBLE_DEVICES={variable}"
    if not valid:
        return 0, f"{shown}: its first entry names no device"
    if len(set(valid)) != len(valid):
        return 0, f"{shown}: an entry is listed twice, so CUDA shows none"
    if any(entry.upper().startswith("MIG-") for entry in valid):
        return 1, f"{shown}: CUDA opens one MIG instance per process"
    rest = f" (from {entries[len(valid)]!r} on it is ignored)" if len(valid) < len(entries) else ""
    return len(valid), shown + rest


def _names_a_device(entry: str, installed: int | None) -> bool:
    if entry.isdigit():
        return installed is None or int(entry) < installed
    return entry.upper().startswith(("GPU-", "MIG-")) and len(entry) > len("GPU-")


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
