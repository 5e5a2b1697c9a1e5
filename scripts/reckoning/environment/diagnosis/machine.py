"""Is the machine around the GPUs fit for measuring: limits, memory, disks, clock, processor settings?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from reckoning.environment.finding import Finding, Level
from reckoning.environment.scope import Feature, Scope

Facts = Mapping[str, Any]
FILES_NEEDED = 4096  # a socket per stream on both sides, the checkpoint's shards, and shared objects
SHM_PER_GPU_GIB = 1.0
CACHE_FREE_GIB = 5.0


def check(facts: Facts, scope: Scope) -> Iterator[Finding]:
    """Yield what the host's facts say."""
    host = facts.get("host") or {}
    yield from _files(scope, host)
    yield from _shared_memory(facts, scope, host)
    yield from _disks(scope, host)
    yield from _clock(scope, host)
    yield from _processor(scope, host)
    yield from _memory(scope, host)


def _streams(scope: Scope) -> int:
    """Return the highest concurrency of the plan."""
    workloads = (scope.plan or {}).get("workloads") or {}
    return max((max(workload.get("concurrency") or [1]) for workload in workloads.values()), default=1)


def _files(scope: Scope, host: Mapping[str, Any]) -> Iterator[Finding]:
    limit = host.get("nofile") or {}
    hard = limit.get("hard")
    needed = max(FILES_NEEDED if not scope.cpu else 0, 4 * _streams(scope) + 256)
    if hard is not None and 0 <= hard < needed:
        yield scope.finding(
            "nofile-low",
            Level.WARN,
            (Feature.MODEL,),
            found=f"at most {hard} open files (soft limit {limit.get('soft')})",
            where="ulimit -Hn",
            needed=f"{needed} for {_streams(scope)} streams at once",
            why="The load generator and the server then run out of sockets, and the client is measured instead.",
            remedy=f"ulimit -n {needed} (or LimitNOFILE in the service, --ulimit nofile in the container)",
        )


def _shared_memory(facts: Facts, scope: Scope, host: Mapping[str, Any]) -> Iterator[Finding]:
    shm = host.get("shm")
    count = len((facts.get("driver") or {}).get("gpus") or [])
    if shm and count > 1 and shm["free_gib"] < SHM_PER_GPU_GIB * count:
        yield scope.finding(
            "shm-small",
            Level.WARN,
            (Feature.MULTI_GPU,),
            found=f"/dev/shm has {shm['free_gib']} GiB free",
            where="/dev/shm",
            needed=f"{SHM_PER_GPU_GIB * count:.0f} GiB for {count} GPUs",
            why="NCCL and the server's processes exchange data there; containers start with 64 MiB.",
            remedy="docker run --shm-size=32g (or --ipc=host)",
        )


def _disks(scope: Scope, host: Mapping[str, Any]) -> Iterator[Finding]:
    for disk in host.get("disks") or []:
        if disk["use"] == "model" and not disk["exists"] and not scope.model.get("maker"):
            place = str(disk.get("place") or scope.model.get("path"))
            hub = _is_hub_name(place, disk["path"])
            yield scope.finding(
                "model-missing",
                Level.WARN if hub else Level.FAIL,
                (Feature.MODEL,),
                found=f"nothing lies at {place}"
                + (": the engine will take it as the name of a repository and fetch it" if hub else ""),
                where=place,
                needed="a folder with config.json, tokenizer and weights",
                remedy="correct model.path in the experiment",
            )
        if disk["use"] != "model" and disk["free_gib"] < CACHE_FREE_GIB:
            yield scope.finding(
                "disk-full",
                Level.WARN,
                (Feature.CUDA,),
                found=f"{disk['free_gib']} GiB free for {disk['use']}",
                where=str(disk["path"]),
                needed=f"{CACHE_FREE_GIB:.0f} GiB",
                why="Compilers and JIT caches fail in odd ways on a full disk.",
                remedy="free space, or move the caches (FLASHINFER_WORKSPACE_BASE, TRITON_CACHE_DIR, TMPDIR)",
            )
        if disk["use"] == "model" and disk.get("filesystem") in ("nfs", "nfs4", "cifs", "fuse.sshfs", "lustre", "ceph"):
            yield scope.finding(
                "model-on-network",
                Level.NOTE,
                (Feature.CUDA,),
                found=f"the model lies on {disk['filesystem']}",
                where=str(disk["path"]),
                why="Each launch reads all weights: starts take long and vary; measured points do not.",
            )


def _is_hub_name(place: str, nearest_folder: str) -> bool:
    """Whether a path that does not exist reads as `organisation/model`, and no folder has that organisation's name."""
    parts = place.split("/")
    named = re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", place) is not None
    return named and not nearest_folder.rstrip("/").endswith(f"/{parts[0]}")


def _clock(scope: Scope, host: Mapping[str, Any]) -> Iterator[Finding]:
    clock = host.get("time") or {}
    source = clock.get("clocksource")
    if source in ("hpet", "acpi_pm", "jiffies", "refined-jiffies"):
        yield scope.finding(
            "clock-slow",
            Level.WARN,
            (Feature.MODEL,),
            found=f"the kernel's time source is {source}",
            where="/sys/devices/system/clocksource/clocksource0",
            needed="tsc (or the hypervisor's own clock)",
            why="Each reading of the time is a slow device access; a load generator reads it for every chunk.",
            remedy="find out why the kernel distrusts the tsc (dmesg), or boot with tsc=reliable",
        )
    elif source:
        yield scope.finding("clock", Level.OK, (), found=f"time source {source}", where="clocksource0")
    if clock.get("ntp_synchronised") is False:
        yield scope.finding(
            "clock-not-synchronised",
            Level.NOTE,
            (),
            found="the wall clock is not synchronised",
            where="timedatectl",
            why="Durations come from the monotonic clock and are right; labels of start times may be off.",
        )


def _processor(scope: Scope, host: Mapping[str, Any]) -> Iterator[Finding]:
    cpu = host.get("cpu") or {}
    if cpu.get("governor") == "powersave":
        yield scope.finding(
            "cpu-powersave",
            Level.WARN,
            (Feature.CUDA,),
            found="the processors' frequency governor is powersave",
            where="/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            needed="performance",
            why="The scheduler runs on one core between decode steps: its clock is in every TPOT at low concurrency.",
            remedy="ask the administrator for `cpupower frequency-set -g performance`",
        )
    if cpu.get("numa_balancing") not in (None, "", "0") and (cpu.get("numa_nodes") or 1) > 1:
        yield scope.finding(
            "numa-balancing",
            Level.NOTE,
            (Feature.CUDA,),
            found="automatic NUMA balancing is on",
            where="/proc/sys/kernel/numa_balancing",
            why="Pages move while requests run, which shows as latency outliers.",
            remedy="ask the administrator for `sysctl kernel.numa_balancing=0`",
        )


def _memory(scope: Scope, host: Mapping[str, Any]) -> Iterator[Finding]:
    limit, total = host.get("memory_limit_gib"), host.get("memory_gib")
    if limit and total and limit < 0.9 * total:
        yield scope.finding(
            "memory-limited",
            Level.NOTE,
            (),
            found=f"the container may use {limit} of {total} GiB",
            where="cgroup memory.max",
            why="Processes beyond it are killed (exit code -9), most often while weights load.",
        )
