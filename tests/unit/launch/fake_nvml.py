"""A stand-in for the module `pynvml`: its functions by their real names, answering for invented GPUs.

`FakeNvml(gpus)` is used in place of the module; `install` writes a `pynvml.py` that a process of its own imports.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml

# What NVML says, in its own units: mW, per cent, MHz, degrees, bytes, KB/s, bits.
GPU = {
    "name": "NVIDIA H200",
    "uuid": "GPU-0a",
    "power_mw": 312_500,
    "limit_mw": 600_000,
    "utilisation": 97,
    "sm_mhz": 1980,
    "memory_mhz": 3201,
    "celsius": 64,
    "used_bytes": 143_000_000_000,
    "reasons": 0,
    "rx_kb_s": 9_876_543,
    "tx_kb_s": 1_500,
}
ERRORS = {name: getattr(pynvml, name) for name in dir(pynvml) if name.startswith("NVMLError_")}


class FakeNvml:
    """The functions and constants that the sampler uses. `refuses` maps a function's name to the error it raises."""

    NVMLError = pynvml.NVMLError
    NVML_CLOCK_SM = pynvml.NVML_CLOCK_SM
    NVML_CLOCK_MEM = pynvml.NVML_CLOCK_MEM
    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU
    NVML_PCIE_UTIL_RX_BYTES = pynvml.NVML_PCIE_UTIL_RX_BYTES
    NVML_PCIE_UTIL_TX_BYTES = pynvml.NVML_PCIE_UTIL_TX_BYTES

    def __init__(self, gpus: list[dict[str, Any]], refuses: dict[str, str] | None = None) -> None:
        self._gpus = [GPU | {"uuid": f"GPU-{index}a", **gpu} for index, gpu in enumerate(gpus)]
        self._refuses = refuses or {}
        self._asked: list[tuple[str, Any]] = []
        for name, error in ERRORS.items():
            setattr(self, name, error)

    def _answer(self, function: str, handle: Any, key: str) -> Any:
        self._asked.append((function, handle))
        if function in self._refuses:
            raise ERRORS[self._refuses[function]]
        return self._gpus[handle[1]][key]

    def nvmlInit(self) -> None:
        if "nvmlInit" in self._refuses:
            raise ERRORS[self._refuses["nvmlInit"]]

    def nvmlDeviceGetCount(self) -> int:
        return len(self._gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> tuple[str, int]:
        return ("gpu", index)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> tuple[str, int]:
        for index, gpu in enumerate(self._gpus):
            if uuid in gpu.get("mig", ()):
                return ("mig", index)
        raise ERRORS["NVMLError_NotFound"]

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: tuple[str, int]) -> tuple[str, int]:
        return ("gpu", handle[1])

    def nvmlDeviceGetIndex(self, handle: tuple[str, int]) -> int:
        return handle[1]

    def nvmlDeviceGetName(self, handle: Any) -> str:
        return self._gpus[handle[1]]["name"]

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        return self._gpus[handle[1]]["uuid"]

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        return self._answer("nvmlDeviceGetPowerUsage", handle, "power_mw")

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any) -> int:
        return self._answer("nvmlDeviceGetEnforcedPowerLimit", handle, "limit_mw")

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> SimpleNamespace:
        return SimpleNamespace(gpu=self._answer("nvmlDeviceGetUtilizationRates", handle, "utilisation"), memory=1)

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int) -> int:
        key = {self.NVML_CLOCK_SM: "sm_mhz", self.NVML_CLOCK_MEM: "memory_mhz"}[kind]
        return self._answer("nvmlDeviceGetClockInfo", handle, key)

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int:
        assert sensor == self.NVML_TEMPERATURE_GPU
        return self._answer("nvmlDeviceGetTemperature", handle, "celsius")

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> SimpleNamespace:
        return SimpleNamespace(used=self._answer("nvmlDeviceGetMemoryInfo", handle, "used_bytes"))

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Any) -> int:
        return self._answer("nvmlDeviceGetCurrentClocksEventReasons", handle, "reasons")

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any) -> int:
        return self._answer("nvmlDeviceGetCurrentClocksThrottleReasons", handle, "reasons")

    def nvmlDeviceGetPcieThroughput(self, handle: Any, counter: int) -> int:
        key = {self.NVML_PCIE_UTIL_RX_BYTES: "rx_kb_s", self.NVML_PCIE_UTIL_TX_BYTES: "tx_kb_s"}[counter]
        return self._answer("nvmlDeviceGetPcieThroughput", handle, key)

    def nvmlShutdown(self) -> None:
        pass


SHIM = """
import importlib.util, json, sys
real = [entry for entry in sys.path if entry != {folder!r}]
sys.path[:] = real
del sys.modules["pynvml"]
spec = importlib.util.spec_from_file_location("fake_nvml", {source!r})
fake_nvml = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fake_nvml)
sys.modules["pynvml"] = fake_nvml.FakeNvml(**json.loads({options!r}))
"""


def install(folder: Path, gpus: list[dict[str, Any]], refuses: dict[str, str] | None = None) -> str:
    """Write a module `pynvml` for another process and return the folder to put first on its PYTHONPATH."""
    folder.mkdir(parents=True, exist_ok=True)
    options = json.dumps({"gpus": gpus, "refuses": refuses or {}})
    text = SHIM.format(folder=str(folder), source=str(Path(__file__).resolve()), options=options)
    (folder / "pynvml.py").write_text(text)
    return str(folder)
