"""The machine around the GPUs: processor, memory, limits, disks, kernel settings, compilers and PCIe switches."""

from __future__ import annotations

import os
import re
import resource
import shutil
from pathlib import Path
from typing import Any

import psutil

from reckoning.environment.probing.machine import Machine

GIB = 1 << 30
# Settings that change what the tool chain or the GPUs do. No other variable is ever recorded.
VARIABLES = re.compile(
    r"^(CUDA_HOME|CUDA_PATH|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|CUDA_MODULE_LOADING|CUDA_CACHE_PATH|CC|CXX|MAX_JOBS|CPATH"
    r"|LIBRARY_PATH|LD_LIBRARY_PATH|TORCH_CUDA_ARCH_LIST|TORCH_EXTENSIONS_DIR|TRITON_CACHE_DIR|TRITON_PTXAS_PATH"
    r"|FLASHINFER_\w+|TVM_FFI_\w+|NCCL_\w+|SGLANG_\w+|SGL_\w+|DG_JIT_\w+|PYTORCH_CUDA_ALLOC_CONF|PYTORCH_ALLOC_CONF"
    r"|OMP_NUM_THREADS|NVIDIA_VISIBLE_DEVICES|NVIDIA_DRIVER_CAPABILITIES|HF_HUB_OFFLINE|TRANSFORMERS_OFFLINE)$"
)
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)


def host_facts(machine: Machine, model_path: str | None) -> dict[str, Any]:
    """Return processor, memory, limits, disks, clock and the settings that matter."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    virtual = psutil.virtual_memory()
    version = (machine.text("/proc/version") or "").strip()
    return {
        "kernel": os.uname().release,
        "architecture": os.uname().machine,
        "wsl": "microsoft" in version.lower(),
        "container": _container(machine),
        "cpu": _cpu(machine),
        "memory_gib": round(virtual.total / GIB, 1),
        "memory_available_gib": round(virtual.available / GIB, 1),
        "memory_limit_gib": _memory_limit(machine),
        "swap_gib": round(psutil.swap_memory().total / GIB, 1),
        "nofile": {"soft": soft, "hard": hard},
        "shm": _disk(machine.path("/dev/shm")),
        "disks": _disks(model_path),
        "time": _time(machine),
        "kernel_flags": _kernel_flags(machine),
        "variables": {
            name: value
            for name, value in sorted(machine.environ.items())
            if VARIABLES.match(name) and not SECRET.search(name)
        },
    }


def compiler_facts(machine: Machine) -> dict[str, Any]:
    """Return ninja and the host compiler that the JIT compilers will call."""
    compiler = machine.variable("CXX") or "c++"
    chosen = {"cxx": compiler, "nvcc_host": machine.variable("CC")}
    for name, program in (("cxx", compiler), ("nvcc_host", machine.variable("CC") or "gcc")):
        path = machine.which(program)
        result = machine.run([path, "--version"]) if path else None
        first = (result.output.splitlines() or [""])[0] if result else None
        family = "clang" if first and "clang" in first else "gcc"
        dumped = machine.run([path, "-dumpfullversion", "-dumpversion"]).output.strip() if path else None
        chosen[name] = {"program": program, "path": path, "family": family, "version": dumped, "first_line": first}
    ninja = machine.which("ninja")
    result = machine.run([ninja, "--version"]) if ninja else None
    chosen["ninja"] = {"path": ninja, "version": result.output.strip() if result and result.ok else None}
    return chosen


def pci_facts(machine: Machine) -> dict[str, Any]:
    """Return the access control (ACS) lines of PCIe bridges, as lspci prints them; they need root to be seen."""
    program = machine.which("lspci") or ("/usr/bin/lspci" if Path("/usr/bin/lspci").exists() else None)
    if not program:
        return {"lspci": None, "acs": []}
    result = machine.run([program, "-vvv"], timeout_s=30)
    bridges: list[dict[str, str]] = []
    device = ""
    for line in result.output.splitlines():
        if line and not line[0].isspace():
            device = line.split(" ", 1)[0]
        elif "ACSCtl:" in line:
            bridges.append({"device": device, "control": line.strip()})
    return {"lspci": program, "acs": bridges}


def _container(machine: Machine) -> str | None:
    if machine.path("/.dockerenv").exists():
        return "docker"
    if machine.path("/run/.containerenv").exists():
        return "podman"
    groups = machine.text("/proc/1/cgroup") or ""
    return next((name for name in ("kubepods", "docker", "lxc", "libpod") if name in groups), None)


def _cpu(machine: Machine) -> dict[str, Any]:
    text = machine.text("/proc/cpuinfo") or ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    nodes = sorted(machine.path("/sys/devices/system/node").glob("node[0-9]*"))
    governor = machine.text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    return {
        "model": model[1].strip() if model else None,
        "threads": os.cpu_count(),
        "usable_threads": len(os.sched_getaffinity(0)),
        "cores": psutil.cpu_count(logical=False),
        "sockets": len(set(re.findall(r"^physical id\s*:\s*(\d+)$", text, re.MULTILINE))) or None,
        "numa_nodes": len(nodes) or None,
        "governor": governor.strip() if governor else None,
        "numa_balancing": (machine.text("/proc/sys/kernel/numa_balancing") or "").strip() or None,
    }


def _memory_limit(machine: Machine) -> float | None:
    text = (
        machine.text("/sys/fs/cgroup/memory.max") or machine.text("/sys/fs/cgroup/memory/memory.limit_in_bytes") or ""
    )
    return round(int(text) / GIB, 1) if text.strip().isdigit() and int(text) < 1 << 60 else None


def _disk(path: Path) -> dict[str, Any] | None:
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return None
    return {"path": str(path), "total_gib": round(usage.total / GIB, 2), "free_gib": round(usage.free / GIB, 2)}


def _disks(model_path: str | None) -> list[dict[str, Any]]:
    """Return the disks that matter: the model's, the caches' and the temporary files'."""
    places = {"caches": Path("~/.cache").expanduser(), "temporary": Path(os.environ.get("TMPDIR", "/tmp"))}
    if model_path:
        places["model"] = Path(model_path).expanduser()
    mounts = sorted(psutil.disk_partitions(all=True), key=lambda part: -len(part.mountpoint))
    found = []
    for use, place in places.items():
        existing = next((folder for folder in [place, *place.absolute().parents] if folder.exists()), None)
        disk = _disk(existing) if existing else None
        if disk:
            real = os.path.realpath(existing)
            mount = next((part for part in mounts if real.startswith(part.mountpoint)), None)
            kind = mount.fstype if mount else None
            size = _folder_gib(place) if use == "model" else None
            found.append(
                {
                    "use": use,
                    "place": str(place),
                    **disk,
                    "filesystem": kind,
                    "exists": place.exists(),
                    "content_gib": size,
                }
            )
    return found


def _folder_gib(folder: Path) -> float | None:
    if not folder.is_dir():
        return None
    return round(sum(item.stat().st_size for item in folder.iterdir() if item.is_file()) / GIB, 3)


def _time(machine: Machine) -> dict[str, Any]:
    base = "/sys/devices/system/clocksource/clocksource0"
    available = machine.text(f"{base}/available_clocksource")
    current = machine.text(f"{base}/current_clocksource")
    control = machine.which("timedatectl")
    result = machine.run([control, "show", "--property=NTPSynchronized", "--value"], timeout_s=5) if control else None
    answer = result.output.strip() if result and result.ok else ""
    return {
        "clocksource": current.strip() if current else None,
        "available": available.split() if available else [],
        "ntp_synchronised": {"yes": True, "no": False}.get(answer),
    }


def _kernel_flags(machine: Machine) -> list[str]:
    """Return the boot flags about the IOMMU and PCIe, and no others (a boot line can hold names and keys)."""
    flags = (machine.text("/proc/cmdline") or "").split()
    return [
        flag for flag in flags if re.match(r"^(iommu|intel_iommu|amd_iommu|pci|pcie_\w+|pcie_acs_override)(=|$)", flag)
    ]
