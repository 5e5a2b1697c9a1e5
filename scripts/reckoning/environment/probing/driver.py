"""The NVIDIA driver and the GPUs, as nvidia-smi tells."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

from reckoning.environment.probing.machine import Machine

GPU_FIELDS = (
    "index",
    "name",
    "uuid",
    "pci.bus_id",
    "driver_version",
    "compute_cap",
    "memory.total",
    "memory.used",
    "power.draw",
    "enforced.power.limit",
    "power.default_limit",
    "power.max_limit",
    "clocks.sm",
    "clocks.max.sm",
    "clocks.mem",
    "clocks.max.mem",
    "clocks_event_reasons.active",
    "ecc.mode.current",
    "mig.mode.current",
    "persistence_mode",
    "compute_mode",
    "pcie.link.gen.current",
    "pcie.link.gen.max",
    "pcie.link.gen.gpumax",
    "pcie.link.gen.hostmax",
    "pcie.link.width.current",
    "pcie.link.width.max",
    "temperature.gpu",
    "utilization.gpu",
)
_UNITS = {
    "memory.total": "memory_total_mib",
    "memory.used": "memory_used_mib",
    "power.draw": "power_draw_w",
    "enforced.power.limit": "power_limit_w",
    "power.default_limit": "power_default_limit_w",
    "power.max_limit": "power_max_limit_w",
    "clocks.sm": "clock_sm_mhz",
    "clocks.max.sm": "clock_sm_max_mhz",
    "clocks.mem": "clock_memory_mhz",
    "clocks.max.mem": "clock_memory_max_mhz",
    "temperature.gpu": "temperature_c",
    "utilization.gpu": "utilization_percent",
}


def driver_facts(machine: Machine) -> dict[str, Any]:
    """Return the driver's version and CUDA ceiling, the GPUs, their topology and the processes on them."""
    program = machine.which("nvidia-smi")
    module = machine.text("/proc/driver/nvidia/version") or ""
    found = re.search(r"(?:Kernel Module|NVRM version:.*?)\s+(\d+\.\d+(?:\.\d+)?)", module)
    facts: dict[str, Any] = {
        "nvidia_smi": program,
        "header": None,
        "version": None,
        "cuda_ceiling": None,
        "kernel_module": found[1] if found else None,
        "gpus": [],
        "processes": [],
        "topology": None,
        "p2p": None,
        "error": None,
    }
    if not program:
        return facts
    header = machine.run([program], timeout_s=30)
    lines = header.output.splitlines()
    facts["header"] = next((line.strip("| ") for line in lines if "Driver Version" in line), None)
    facts["error"] = None if header.ok else (header.errors or header.output).strip()[:500] or "no answer in time"
    version = re.search(r"Driver Version:\s*([\d.]+)", header.output)
    ceiling = re.search(r"CUDA Version:\s*(\d+\.\d+)", header.output)
    facts["cuda_ceiling"] = ceiling[1] if ceiling else None
    facts["gpus"] = _gpus(machine, program)
    facts["version"] = version[1] if version else next((gpu["driver_version"] for gpu in facts["gpus"]), None)
    facts["processes"] = _processes(machine, program)
    facts["topology"] = _output(machine, [program, "topo", "-m"])
    facts["p2p"] = _output(machine, [program, "topo", "-p2p", "r"])
    return facts


def _gpus(machine: Machine, program: str) -> list[dict[str, Any]]:
    fields = list(GPU_FIELDS)
    for _ in range(len(GPU_FIELDS)):
        query = f"--query-gpu={','.join(fields)}"
        result = machine.run([program, query, "--format=csv,noheader,nounits"], timeout_s=30)
        unknown = re.search(r'Field "([\w.]+)" is not a valid field', result.output + result.errors)
        if unknown and unknown[1] in fields:  # an older nvidia-smi does not know every field
            fields.remove(unknown[1])
            continue
        if not result.ok:
            return []
        rows = csv.reader(io.StringIO(result.output), skipinitialspace=True)
        return [_gpu(fields, row) for row in rows if len(row) == len(fields)]
    return []


def _gpu(fields: list[str], row: list[str]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for field, text in zip(fields, row, strict=True):
        name = _UNITS.get(field, field.replace(".", "_"))
        facts[name] = _value(field, text.strip())
    return facts


def _value(field: str, text: str) -> Any:
    if text.startswith("[") or text in ("N/A", ""):
        return None
    if field in _UNITS or field == "index" or field.startswith("pcie."):
        try:
            number = float(text)
        except ValueError:
            return None
        return int(number) if number.is_integer() else number
    return text


def _processes(machine: Machine, program: str) -> list[dict[str, Any]]:
    query = "--query-compute-apps=pid,process_name,used_memory,gpu_uuid"
    result = machine.run([program, query, "--format=csv,noheader,nounits"], timeout_s=30)
    rows = csv.reader(io.StringIO(result.output if result.ok else ""), skipinitialspace=True)
    return [
        {
            "pid": int(row[0]) if row[0].isdigit() else None,
            "name": row[1].split(" ")[0].rsplit("/", 1)[-1],
            "memory_mib": _value("memory.used", row[2]),
            "gpu_uuid": row[3],
        }
        for row in rows
        if len(row) == 4
    ]


def _output(machine: Machine, argv: list[str]) -> str | None:
    result = machine.run(argv, timeout_s=30)
    return re.sub(r"\x1b\[[\d;]*m", "", result.output) if result.ok else None
