"""Are the GPUs there, alike, free, and at their full power, width and clocks?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from reckoning.environment.finding import Finding, Level
from reckoning.environment.scope import Feature, Scope

Facts = Mapping[str, Any]
# Bits of clocks_event_reasons.active that slow a GPU for a fault of the machine (NVML: HwSlowdown, SwThermalSlowdown,
# HwThermalSlowdown, HwPowerBrakeSlowdown); idle, application clocks and the power cap are no faults.
SLOWED = {0x8: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake"}
POWER_CAP = 0x4  # SwPowerCap: the clocks are held down to keep the power limit
FREE_MIB = 1024  # a driver with persistence mode or a display holds some hundred MiB
SAME_MEMORY = 0.05


def check(facts: Facts, scope: Scope) -> Iterator[Finding]:
    """Yield what the GPUs' facts say."""
    gpus = (facts.get("driver") or {}).get("gpus") or []
    if "driver" in facts:
        yield from _enough(facts, scope, gpus)
    if not gpus:
        return
    yield from _planned(scope, gpus)
    yield from _alike(scope, gpus)
    yield from _others(facts, scope, gpus)
    yield from _links(scope, gpus)
    yield from _power(scope, gpus)
    yield from _modes(scope, gpus)


def _enough(facts: Facts, scope: Scope, gpus: list[Mapping[str, Any]]) -> Iterator[Finding]:
    devices = ((facts.get("python") or {}).get("torch") or {}).get("devices") or []
    here = max(len(gpus), len(devices))  # a container may have CUDA and no nvidia-smi
    visible = ((facts.get("host") or {}).get("variables") or {}).get("CUDA_VISIBLE_DEVICES")
    count = here if visible is None else min(here, len([item for item in visible.split(",") if item.strip()]))
    where = "nvidia-smi" + (f", CUDA_VISIBLE_DEVICES={visible}" if visible is not None else "")
    if gpus:
        kinds = Counter(gpu["name"] for gpu in gpus)
        listed = ", ".join(f"{number} x {name}" for name, number in kinds.items())
        yield scope.finding("gpus-found", Level.OK, (Feature.CUDA,), found=listed, where=where)
    if scope.plan is None or scope.cpu:
        return
    short = [arm for arm in scope.arms if arm.gpus > count]
    if short:
        most = max(arm.gpus for arm in short)
        yield scope.finding(
            "gpus-too-few",
            Level.FAIL,
            (Feature.CUDA,),
            concerns=[arm.slug for arm in short],
            found=f"{count} usable GPUs; these arms need up to {most}" if here else "no GPU",
            where=where,
            needed="tp x pp GPUs for each arm",
            remedy="run them on a larger machine, or lower tp or pp; check CUDA_VISIBLE_DEVICES",
        )


def _planned(scope: Scope, gpus: list[Mapping[str, Any]]) -> Iterator[Finding]:
    """Compare with what the experiment says of its machine."""
    if scope.plan is None or scope.cpu:
        return
    differences = []
    name, memory = scope.machine.get("gpu_name"), scope.machine.get("gpu_memory_gib")
    capability = scope.machine.get("compute_capability")
    first = gpus[0]
    if name and str(name).lower() not in first["name"].lower() and first["name"].lower() not in str(name).lower():
        differences.append(f"GPU {first['name']}, planned {name}")
    total = first.get("memory_total_mib")
    if memory and total and abs(total / 1024 - memory) > SAME_MEMORY * memory:
        differences.append(f"{total / 1024:.1f} GiB, planned {memory} GiB")
    if capability and first.get("compute_cap") and str(capability) != str(first["compute_cap"]):
        differences.append(f"compute capability {first['compute_cap']}, planned {capability}")
    if differences:
        yield scope.finding(
            "machine-is-not-the-planned",
            Level.WARN,
            (Feature.CUDA,),
            found="; ".join(differences),
            where="nvidia-smi and the experiment's machine section",
            needed="a plan made for this machine",
            why="Memory, feasibility and the rejections of the plan were computed for another GPU.",
            remedy="correct the machine section of the experiment and plan again",
        )


def _alike(scope: Scope, gpus: list[Mapping[str, Any]]) -> Iterator[Finding]:
    for field, what in (
        ("name", "model"),
        ("memory_total_mib", "memory (MiB)"),
        ("power_limit_w", "power limit (W)"),
        ("clock_sm_max_mhz", "maximum clock (MHz)"),
        ("ecc_mode_current", "ECC"),
        ("pcie_link_width_max", "PCIe width"),
    ):
        values = Counter(gpu.get(field) for gpu in gpus)
        if len(values) > 1:
            listed = ", ".join(f"{number} x {value}" for value, number in values.items())
            yield scope.finding(
                "gpus-differ",
                Level.WARN,
                (Feature.MULTI_GPU,),
                found=f"{what}: {listed}",
                where="nvidia-smi",
                needed="GPUs that are alike",
                why="In tensor and expert parallel arms the slowest GPU sets the pace of all.",
                remedy="make them alike, or choose a subset with CUDA_VISIBLE_DEVICES",
            )


def _others(facts: Facts, scope: Scope, gpus: list[Mapping[str, Any]]) -> Iterator[Finding]:
    processes = (facts.get("driver") or {}).get("processes") or []
    held = [gpu for gpu in gpus if (gpu.get("memory_used_mib") or 0) > FREE_MIB]
    if processes or held:
        names = ", ".join(f"{item['name']} (pid {item['pid']}, {item['memory_mib']} MiB)" for item in processes[:8])
        memory = ", ".join(f"GPU {gpu['index']}: {gpu['memory_used_mib']} MiB" for gpu in held)
        yield scope.finding(
            "gpus-in-use",
            Level.WARN,
            (Feature.CUDA,),
            found="; ".join(filter(None, (names, memory))),
            where="nvidia-smi",
            needed="GPUs that nobody else uses",
            why="Others' memory makes starts fail and others' work changes every number.",
            remedy="wait or stop them; this tool ends no process that it did not start",
        )


def _links(scope: Scope, gpus: list[Mapping[str, Any]]) -> Iterator[Finding]:
    narrow = [
        gpu
        for gpu in gpus
        if gpu.get("pcie_link_width_current")
        and gpu.get("pcie_link_width_max")
        and gpu["pcie_link_width_current"] < gpu["pcie_link_width_max"]
    ]
    if narrow:
        yield scope.finding(
            "pcie-narrow",
            Level.WARN,
            (Feature.MULTI_GPU,),
            found=", ".join(
                f"GPU {gpu['index']}: x{gpu['pcie_link_width_current']} of x{gpu['pcie_link_width_max']}"
                for gpu in narrow
            ),
            where="nvidia-smi (pcie.link.width)",
            needed="the full width",
            why=(
                "Without NVLink every all-reduce crosses these lanes. (The generation falls when idle; the width does "
                "not.)"
            ),
            remedy="reseat the card or riser, and look at the slot's bifurcation in the BIOS",
        )
    slow = [
        gpu
        for gpu in gpus
        if (gpu.get("pcie_link_gen_hostmax") or gpu.get("pcie_link_gen_max") or 99)
        < (gpu.get("pcie_link_gen_gpumax") or 0)
    ]
    if slow:
        yield scope.finding(
            "pcie-old-slot",
            Level.NOTE,
            (Feature.MULTI_GPU,),
            found=", ".join(
                f"GPU {gpu['index']}: slot of generation "
                f"{gpu.get('pcie_link_gen_hostmax') or gpu.get('pcie_link_gen_max')}, "
                f"card of {gpu['pcie_link_gen_gpumax']}"
                for gpu in slow
            ),
            where="nvidia-smi (pcie.link.gen)",
            why="The slot's generation bounds what the GPUs exchange.",
        )


def _power(scope: Scope, gpus: list[Mapping[str, Any]]) -> Iterator[Finding]:
    lowered = [
        gpu
        for gpu in gpus
        if gpu.get("power_limit_w")
        and gpu.get("power_default_limit_w")
        and gpu["power_limit_w"] < gpu["power_default_limit_w"]
    ]
    if lowered:
        yield scope.finding(
            "power-limit-lowered",
            Level.NOTE,
            (Feature.CUDA,),
            found=", ".join(
                f"GPU {gpu['index']}: {gpu['power_limit_w']} of {gpu['power_default_limit_w']} W" for gpu in lowered
            ),
            where="nvidia-smi",
            why="A lowered limit is a condition of the experiment: results do not carry over to the default.",
        )
    for gpu in gpus:
        reasons = [name for bit, name in SLOWED.items() if _bits(gpu.get("clocks_event_reasons_active")) & bit]
        if reasons:
            yield scope.finding(
                "gpu-slowed",
                Level.WARN,
                (Feature.CUDA,),
                found=f"GPU {gpu['index']} is slowed now: {', '.join(reasons)} ({gpu.get('temperature_c')} C)",
                where="nvidia-smi (clocks_event_reasons.active)",
                needed="full clocks",
                why="It will be slower than the others from the first measurement on.",
                remedy="look at cooling and power supply before measuring",
            )


def _modes(scope: Scope, gpus: list[Mapping[str, Any]]) -> Iterator[Finding]:
    sliced = [gpu for gpu in gpus if gpu.get("mig_mode_current") == "Enabled"]
    if sliced:
        yield scope.finding(
            "mig-enabled",
            Level.WARN,
            (Feature.MULTI_GPU,),
            found=f"MIG is on for GPU {', '.join(str(gpu['index']) for gpu in sliced)}",
            where="nvidia-smi",
            needed="whole GPUs",
            why="MIG slices cannot reach each other: more than one GPU per server does not work.",
            remedy="ask the administrator to turn MIG off, or use other GPUs",
        )
    exclusive = [gpu for gpu in gpus if gpu.get("compute_mode") in ("Exclusive_Process", "Prohibited")]
    if exclusive:
        yield scope.finding(
            "compute-mode",
            Level.WARN,
            (Feature.CUDA,),
            found=f"compute mode {exclusive[0]['compute_mode']} on {len(exclusive)} GPUs",
            where="nvidia-smi",
            needed="compute mode Default",
            why="A second process on the GPU (a draft worker, a profiler) is refused.",
            remedy="ask the administrator for the default mode",
        )
    off = [gpu for gpu in gpus if gpu.get("persistence_mode") == "Disabled"]
    if off:
        yield scope.finding(
            "persistence-off",
            Level.NOTE,
            (Feature.CUDA,),
            found=f"persistence mode is off on {len(off)} of {len(gpus)} GPUs",
            where="nvidia-smi",
            why="The driver is set up anew for each start: launches take seconds longer.",
            remedy="ask the administrator for the nvidia-persistenced service",
        )


def _bits(text: Any) -> int:
    try:
        return int(str(text), 16)
    except ValueError:
        return 0
