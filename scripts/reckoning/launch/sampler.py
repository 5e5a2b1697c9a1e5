"""The sampler: a small process that notes about once a second what the GPUs and the server's processes do.

Why a process of its own and not a thread of the job: the job is the load client, whose time stamps are the measurement.
NVML's PCIe counters alone block 20 ms per GPU and direction, and whatever Python runs between such calls holds the
interpreter's lock: a thread would make the client late by up to a switch interval each time, once a second, exactly
while it measures. A process shares nothing with it but the machine, and runs at a low priority.

Started by file name with one argument, the order as JSON (see `Order`). Appends one JSON object a line to the order's
`output`: `{"gpu": {...}}` per GPU, `{"host": {...}}`, or `{"note": "..."}` when something cannot be sampled. Every line
is handed to the system at once, so that a kill costs at most the line that it interrupts. The end of the input ends the
sampler: it never outlives its job. Times are seconds on the launch's clock, as in points.json: CLOCK_MONOTONIC is one
clock for all processes of a machine.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __package__:
    from . import processes
else:  # run by file name: this folder is first on the path
    import processes

SCAN_SHARE = 0.01
SCAN_AT_LEAST_EVERY_S = 5.0
SHORTEST_S = 0.1
NICENESS = 10
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Order:
    """What is sampled, and where it goes.

    `zero_s` is the launch's start on the monotonic clock and `every_s` the time between samples. `root` is the process
    whose descendants are the server. `ordinals` are the GPUs that the server uses, by CUDA's numbering (None: no GPU is
    looked at), `visible` and `numbering` its CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER (None: not set).
    """

    output: str
    zero_s: float
    every_s: float
    root: int
    ordinals: list[int] | None = None
    visible: str | None = None
    numbering: str | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU: its index as nvidia-smi counts, and NVML's handle (of a MIG instance: the instance's)."""

    index: int
    handle: Any


def queries(nvml: Any) -> dict[str, Callable[[Any], float]]:
    """Return how each column is asked for, in the columns' units: NVML says per cent, mW, KB/s and bytes.

    The two that block for 20 ms come last, so that the others belong to the time of the sample. They are what the link
    carried in those 20 ms, a spot check of each second: NVML's counters of bytes would tell the whole second, but may
    wrap at a width that is not promised, and 4 GiB are less than a second of PCIe 5.0.
    """
    return {
        "power_w": lambda handle: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "power_limit_w": lambda handle: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
        "utilisation_share": lambda handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
        "sm_clock_mhz": lambda handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": lambda handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        "temperature_c": lambda handle: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "memory_used_mb": lambda handle: nvml.nvmlDeviceGetMemoryInfo(handle).used / 1e6,
        "throttle_reasons": lambda handle: _clock_reasons(nvml, handle),
        "pcie_rx_mb_s": lambda handle: nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_RX_BYTES) / 1000,
        "pcie_tx_mb_s": lambda handle: nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_TX_BYTES) / 1000,
    }


def _clock_reasons(nvml: Any, handle: Any) -> int:
    try:
        return nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except nvml.NVMLError_FunctionNotFound:  # a driver before 535 knows the same bits by the old name
        return nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)


class GpuReader:
    """Samples of some GPUs through NVML. A value that cannot be had is None, never 0."""

    def __init__(self, nvml: Any, gpus: list[Gpu], clock: Callable[[], float]) -> None:
        self.gpus, self.clock = gpus, clock
        self._queries = queries(nvml)
        self._error = nvml.NVMLError
        # Answers that will not change. Anything else (a time-out, a GPU that fell off the bus) is asked again.
        self._final = (
            nvml.NVMLError_NotSupported,
            nvml.NVMLError_FunctionNotFound,
            nvml.NVMLError_NoPermission,
            nvml.NVMLError_InvalidArgument,
        )
        self._refused: set[tuple[int, str]] = set()

    def sample(self) -> Iterator[dict[str, Any]]:
        """Yield one row per GPU, each with its own time."""
        for place, gpu in enumerate(self.gpus):
            row: dict[str, Any] = {"at_s": self.clock(), "gpu": gpu.index}
            for column, ask in self._queries.items():
                row[column] = None
                if (place, column) in self._refused:
                    continue
                try:
                    row[column] = ask(gpu.handle)
                except self._final:
                    self._refused.add((place, column))
                except self._error:
                    pass
            yield row


def chosen_gpus(nvml: Any, order: Order) -> tuple[list[Gpu], str | None]:
    """Return the GPUs that the server uses, and a note when they cannot be told apart from others or are not there.

    CUDA_VISIBLE_DEVICES is read as CUDA reads it: up to the first entry that names no device, and as empty when one
    stands twice. Without CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA puts the fastest GPU first while NVML goes by the bus: only
    where all GPUs are alike do the two agree.
    """
    handles = {index: nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())}
    names = {_text(nvml.nvmlDeviceGetName(handle)) for handle in handles.values()}
    entries = None if order.visible is None else [entry.strip() for entry in order.visible.split(",")]
    by_number = entries is None or any(entry.isdigit() for entry in entries)
    if by_number and len(names) > 1 and order.numbering != "PCI_BUS_ID":
        everything = [Gpu(index, handle) for index, handle in handles.items()]
        return everything, (
            f"CUDA numbers unlike GPUs ({', '.join(sorted(names))}) by speed and the driver by their slots: which ones "
            "the arm uses is not known, and all were sampled; set CUDA_DEVICE_ORDER to PCI_BUS_ID in the arm's env"
        )
    visible = [Gpu(index, handle) for index, handle in handles.items()]
    if entries is not None:
        visible = _visible(nvml, entries, handles)
    used = [visible[ordinal] for ordinal in order.ordinals or () if ordinal < len(visible)]
    if used:
        return used, None
    shown = "" if order.visible is None else f" with CUDA_VISIBLE_DEVICES={order.visible}"
    return [], f"the driver lists {len(handles)} GPUs, and{shown} none of them is one that the arm uses"


def _visible(nvml: Any, entries: list[str], handles: Mapping[int, Any]) -> list[Gpu]:
    found: list[Gpu] = []
    for entry in entries:
        gpu = _named(nvml, entry, handles)
        if gpu is None:
            break
        found.append(gpu)
    kept = entries[: len(found)]
    return found if len(set(kept)) == len(kept) else []


def _named(nvml: Any, entry: str, handles: Mapping[int, Any]) -> Gpu | None:
    if entry.isdigit():
        return Gpu(int(entry), handles[int(entry)]) if int(entry) in handles else None
    if entry.upper().startswith("MIG-"):
        with contextlib.suppress(nvml.NVMLError):
            instance = nvml.nvmlDeviceGetHandleByUUID(entry)
            parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance)
            return Gpu(nvml.nvmlDeviceGetIndex(parent), instance)
        return None
    if not entry.upper().startswith("GPU-"):
        return None
    # CUDA takes the beginning of a UUID when only one GPU has it.
    uuids = {index: _text(nvml.nvmlDeviceGetUUID(handle)) for index, handle in handles.items()}
    alike = [index for index, uuid in uuids.items() if uuid.upper().startswith(entry.upper())]
    return Gpu(alike[0], handles[alike[0]]) if len(alike) == 1 else None


class HostReader:
    """Samples of the server's process tree and of the whole machine, from /proc."""

    def __init__(self, root: int, clock: Callable[[], float]) -> None:
        self.root, self.clock = root, clock
        self._tree: set[processes.Identity] = set()
        self._next_scan_s = -math.inf
        self._used_s: dict[processes.Identity, float] = {}
        self._at_s: float | None = None
        self._machine: tuple[float, float] | None = None

    def sample(self) -> dict[str, Any]:
        """Return one row.

        `server_cpu_cores`: cores that the server's processes kept busy since the sample before, of those that live in
        both (a process that comes and goes between two samples is not seen). `server_memory_mb`: their resident memory;
        what they share counts for each. `host_cpu_share`: the busy share of all cores of the machine, whoever used
        them. Null in the first row, where they need one before.
        """
        now = self.clock()
        if now >= self._next_scan_s:
            self._scan(now)
        used_s, pages = {}, 0
        for identity in self._tree:
            usage = _usage(identity)
            if usage is not None:
                used_s[identity] = usage[0]
                pages += usage[1]
        span_s = None if self._at_s is None else now - self._at_s
        both = used_s.keys() & self._used_s.keys()
        row = {
            "at_s": now,
            "server_cpu_cores": sum(used_s[one] - self._used_s[one] for one in both) / span_s if span_s else None,
            "server_memory_mb": pages * PAGE_BYTES / 1e6,
            "server_processes": len(used_s),
            "host_cpu_share": self._machine_share(),
        }
        self._at_s, self._used_s = now, used_s
        return row

    def _scan(self, now: float) -> None:
        """Look for new processes: seldom where there are so many that it would take more than 1 % of a core."""
        begun = time.process_time()
        self._tree = {status.identity for status in processes.descendants(self.root)}
        took_s = time.process_time() - begun
        self._next_scan_s = now + min(took_s / SCAN_SHARE, SCAN_AT_LEAST_EVERY_S)

    def _machine_share(self) -> float | None:
        words = (processes.PROC / "stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        # user nice system idle iowait irq softirq steal; guest times are in user and nice already
        ticks = [float(word) for word in words[:8]]
        total, idle = sum(ticks), ticks[3] + ticks[4]
        before, self._machine = self._machine, (total, idle)
        if before is None or total <= before[0]:
            return None
        return 1 - (idle - before[1]) / (total - before[0])


def _usage(identity: processes.Identity) -> tuple[float, int] | None:
    """Return the seconds of CPU that a process has used and its resident pages; None when it is gone."""
    try:
        text = (processes.PROC / str(identity.pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    if int(fields[19]) != identity.start_ticks or fields[0] in "ZX":
        return None
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S, int(fields[21])


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def open_gpus(order: Order, clock: Callable[[], float]) -> tuple[GpuReader | None, str | None]:
    """Return what samples the arm's GPUs, or None and why there is nothing to sample; with a note where one is due."""
    if order.ordinals is None:
        return None, None
    try:
        import pynvml
    except ImportError as error:
        return None, f"NVML cannot be asked: {error}"
    try:
        pynvml.nvmlInit()
        gpus, note = chosen_gpus(pynvml, order)
    except pynvml.NVMLError as error:
        return None, f"NVML does not answer: {error}"
    return (GpuReader(pynvml, gpus, clock) if gpus else None), note


def run(order: Order) -> None:
    """Sample until the end of the input."""

    def clock() -> float:
        return time.monotonic() - order.zero_s

    every_s = max(order.every_s, SHORTEST_S)
    with Path(order.output).open("a", encoding="utf-8", buffering=1) as stream:

        def tell(kind: str, what: Any) -> None:
            stream.write(json.dumps({kind: what}) + "\n")

        host = HostReader(order.root, clock)
        gpus, note = open_gpus(order, clock)
        if note:
            tell("note", note)
        begun = time.monotonic()
        while True:
            tell("host", host.sample())
            try:
                for row in gpus.sample() if gpus else ():
                    tell("gpu", row)
            except (TypeError, ValueError, AttributeError) as error:  # another NVML binding; the host is still there
                gpus = None
                tell("note", f"the GPUs were sampled only until {clock():.1f} s: {type(error).__name__}: {error}")
            # On the beat of the start, whatever a round took; beats that were missed are left out.
            passed = time.monotonic() - begun
            wait_s = (math.floor(passed / every_s) + 1) * every_s - passed
            if select.select([sys.stdin], [], [], wait_s)[0]:
                return


def main() -> None:
    """Take the order from the command line."""
    order = Order(**json.loads(sys.argv[1]))
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    run(order)


if __name__ == "__main__":
    main()
