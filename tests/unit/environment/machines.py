"""Facts of machines that do not exist here: one good machine, and ways to spoil it."""

from __future__ import annotations

import copy
from typing import Any

HOME = "/usr/local/cuda-13.0"
TOPOLOGY = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNODE\tNODE\tNODE\t0-63\t0
GPU1\tNODE\t X \tNODE\tNODE\t0-63\t0
GPU2\tNODE\tNODE\t X \tNODE\t0-63\t0
GPU3\tNODE\tNODE\tNODE\t X \t0-63\t0
"""


def nvcc(version: str, path: str = f"{HOME}/bin/nvcc", *, used: bool = True, on_path: bool = True) -> dict[str, Any]:
    """An nvcc as the probe describes it; its release is the first two parts of `version`."""
    release = ".".join(version.split(".")[:2])
    return {
        "path": path,
        "real_path": path,
        "exists": True,
        "used": used,
        "on_path": on_path,
        "release": release,
        "version": version,
        "output": f"Cuda compilation tools, release {release}, V{version}",
        "include_folders": [],
        "library_folders": [],
        "top": path.removesuffix("/bin/nvcc"),
        "gpu_code": [],
    }


def include(path: str, origin: str, *headers: str, cuda_version: int | None = None) -> dict[str, Any]:
    """An include folder as the probe describes it."""
    return {
        "path": path,
        "real_path": path,
        "origin": origin,
        "exists": True,
        "headers": list(headers),
        "cuda_version": cuda_version,
    }


def library(path: str, part: str, *files: str, exists: bool = True) -> dict[str, Any]:
    """A library folder as the probe describes it."""
    return {"path": path, "part": part, "exists": exists, "files": list(files)}


def gpu(index: int = 0, **changes: Any) -> dict[str, Any]:
    """One RTX PRO 6000 as nvidia-smi describes it."""
    facts = {
        "index": index,
        "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "uuid": f"GPU-00000000-0000-0000-0000-00000000000{index}",
        "pci_bus_id": f"00000000:0{index}:00.0",
        "driver_version": "580.95.05",
        "compute_cap": "12.0",
        "memory_total_mib": 97887,
        "memory_used_mib": 4,
        "power_limit_w": 600,
        "power_default_limit_w": 600,
        "power_max_limit_w": 600,
        "clock_sm_max_mhz": 2430,
        "clocks_event_reasons_active": "0x0000000000000001",
        "ecc_mode_current": "Enabled",
        "mig_mode_current": "Disabled",
        "persistence_mode": "Enabled",
        "compute_mode": "Default",
        "pcie_link_gen_current": 1,
        "pcie_link_gen_max": 5,
        "pcie_link_gen_gpumax": 5,
        "pcie_link_gen_hostmax": 5,
        "pcie_link_width_current": 16,
        "pcie_link_width_max": 16,
        "temperature_c": 31,
        "utilization_percent": 0,
    }
    return {**facts, **changes}


def package(name: str, version: str, location: str = "/opt/engine/lib/python3.12/site-packages") -> dict[str, str]:
    """An installed package as the probe describes it."""
    return {"name": name, "version": version, "location": location}


GOOD: dict[str, Any] = {
    "schema_version": 1,
    "made_by": "test",
    "probed_at": "2026-01-01T00:00:00+00:00",
    "host": {
        "kernel": "6.8.0",
        "architecture": "x86_64",
        "wsl": False,
        "container": None,
        "cpu": {"model": "EPYC", "threads": 128, "governor": "performance", "numa_balancing": "0", "numa_nodes": 1},
        "memory_gib": 1024.0,
        "memory_limit_gib": None,
        "nofile": {"soft": 1024, "hard": 1048576},
        "shm": {"path": "/dev/shm", "total_gib": 512.0, "free_gib": 512.0},
        "disks": [
            {
                "use": "model",
                "path": "/models",
                "free_gib": 900.0,
                "total_gib": 2000.0,
                "exists": True,
                "filesystem": "xfs",
            },
            {
                "use": "caches",
                "path": "~/.cache",
                "free_gib": 200.0,
                "total_gib": 400.0,
                "exists": True,
                "filesystem": "xfs",
            },
        ],
        "time": {"clocksource": "tsc", "available": ["tsc", "hpet"], "ntp_synchronised": True},
        "kernel_flags": ["iommu=pt"],
        "variables": {},
    },
    "toolkit": {
        "cuda_home": HOME,
        "rule": "CUDA_HOME",
        "cuda_home_exists": True,
        "nvccs": [nvcc("13.0.88")],
        "includes": [
            include(
                f"{HOME}/include",
                "cuda_home",
                "cuda.h",
                "cuda_runtime.h",
                "cuda_fp8.h",
                "cuda_fp16.h",
                "curand.h",
                "curand_kernel.h",
                cuda_version=13000,
            ),
            include(f"{HOME}/include/cccl", "cuda_home-cccl", "nv/target", "cuda/std/version"),
        ],
        "libraries": [
            library(f"{HOME}/lib64", "lib64", "libcudart.so", "libcudart.so.13"),
            library(f"{HOME}/lib64/stubs", "lib64-stubs", "libcuda.so"),
            library("/usr/lib/x86_64-linux-gnu", "system", "libcuda.so.1"),
        ],
        "ldconfig": {"libcuda.so.1": "/usr/lib/x86_64-linux-gnu/libcuda.so.1"},
        "max_gcc": 15,
    },
    "compilers": {
        "cxx": {"program": "c++", "path": "/usr/bin/c++", "family": "gcc", "version": "13.3.0"},
        "nvcc_host": {"program": "gcc", "path": "/usr/bin/gcc", "family": "gcc", "version": "13.3.0"},
        "ninja": {"path": "/usr/bin/ninja", "version": "1.11.1"},
    },
    "driver": {
        "nvidia_smi": "/usr/bin/nvidia-smi",
        "header": "NVIDIA-SMI 580.95.05  Driver Version: 580.95.05  CUDA Version: 13.0",
        "version": "580.95.05",
        "cuda_ceiling": "13.0",
        "kernel_module": "580.95.05",
        "gpus": [gpu(index) for index in range(4)],
        "processes": [],
        "topology": TOPOLOGY,
        "p2p": TOPOLOGY.replace("NODE", "OK"),
        "error": None,
    },
    "pci": {"lspci": "/usr/bin/lspci", "acs": []},
    "python": {
        "interpreter": {
            "executable": "/opt/engine/bin/python",
            "has_python_h": True,
            "include": "/usr/include/python3.12",
        },
        "packages": [
            package("flashinfer-python", "0.6.11.post1"),
            package("flashinfer-cubin", "0.6.11.post1"),
            package("sglang", "0.5.12.post1"),
            package("torch", "2.11.0+cu130"),
        ],
        "torch": {
            "version": "2.11.0+cu130",
            "cuda": "13.0",
            "available": True,
            "arch_list": ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"],
            "devices": [{"name": "NVIDIA RTX PRO 6000", "capability": [12, 0]}] * 4,
            "warnings": [],
            "error": None,
        },
        "error": None,
    },
    "caches": [],
    "proof": None,
}


def machine(**changes: Any) -> dict[str, Any]:
    """The good machine with values replaced: `machine(driver__version="570.1")` sets driver.version."""
    facts = copy.deepcopy(GOOD)
    for key, value in changes.items():
        *folders, name = key.split("__")
        place = facts
        for folder in folders:
            place = place[folder]
        place[name] = value
    return facts


def with_nvcc(version: str, path: str = f"{HOME}/bin/nvcc", **changes: Any) -> dict[str, Any]:
    """The good machine with another nvcc; its headers are of the same release unless `cuda_version` is given."""
    major, minor = version.split(".")[:2]
    cuda_version = changes.pop("cuda_version", int(major) * 1000 + int(minor) * 10)
    facts = machine(toolkit__nvccs=[nvcc(version, path)], **changes)
    facts["toolkit"]["includes"][0]["cuda_version"] = cuda_version
    return facts


def without_headers(facts: dict[str, Any], *names: str) -> dict[str, Any]:
    """Take headers out of every include folder."""
    for item in facts["toolkit"]["includes"]:
        item["headers"] = [name for name in item["headers"] if name not in names]
    return facts


def plan(*arms: dict[str, Any], temperature: float = 0.0, **changes: Any) -> dict[str, Any]:
    """A CUDA plan with these arms; each is `arm(slug, **settings)`."""
    return {
        "schema_version": 1,
        "experiment": "test",
        "machine": {"device": "cuda", "gpus": 4, **changes.pop("machine", {})},
        "model": {"path": "/models/kimi", "maker": None, **changes.pop("model", {})},
        "workloads": {"chat": {"temperature": temperature, "concurrency": [1, 32]}},
        "arms": list(arms),
        **changes,
    }


def arm(slug: str, env: dict[str, str] | None = None, status: str = "runnable", **settings: Any) -> dict[str, Any]:
    """An arm of a plan."""
    return {"slug": slug, "name": slug, "status": status, "settings": settings, "env": env or {}}


TRITON = {"attention_backend": "triton", "sampling_backend": "pytorch", "disable_cuda_graph": True}
EAGER = arm("eager-triton", tp_size=4, **TRITON)
DFLASH = arm("dflash", tp_size=4, speculative_algorithm="DFLASH", **TRITON)
SAMPLED = arm("sampled", tp_size=4, attention_backend="triton")
FLASHINFER = arm("flashinfer", tp_size=4, attention_backend="flashinfer", sampling_backend="pytorch")
