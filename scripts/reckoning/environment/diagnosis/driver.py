"""Can the driver run what the engine was built for, and does torch see the GPUs?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from reckoning.environment.diagnosis.toolkit import torch_release
from reckoning.environment.finding import Finding, Level
from reckoning.environment.scope import Feature, Scope
from reckoning.environment.versions import OLDEST_DRIVER, at_least, cuda_of_number, dotted, numbers

Facts = Mapping[str, Any]


def check(facts: Facts, scope: Scope) -> Iterator[Finding]:
    """Yield what the driver's facts say."""
    driver = facts.get("driver") or {}
    torch = (facts.get("python") or {}).get("torch") or {}
    yield from _version(facts, scope, driver)
    yield from _answers(scope, driver)
    yield from _torch(scope, driver, torch)
    yield from _library_path(facts, scope)


def _version(facts: Facts, scope: Scope, driver: Mapping[str, Any]) -> Iterator[Finding]:
    text = driver.get("version") or driver.get("kernel_module")
    version = numbers(text)
    release = torch_release(facts) or (13, 0)
    oldest = OLDEST_DRIVER.get(release[0])
    if version is None or oldest is None:
        if driver.get("nvidia_smi") or driver.get("gpus"):
            found = "the driver's version was not found"
            yield scope.finding("driver-unknown", Level.NOTE, (Feature.CUDA,), found=found, where="nvidia-smi")
        return
    ceiling = driver.get("cuda_ceiling")
    seen = f"driver {text}" + (f", which supports CUDA up to {ceiling}" if ceiling else "")
    if at_least(version, oldest):
        yield scope.finding("driver-recent", Level.OK, (Feature.CUDA,), found=seen, where="nvidia-smi")
        return
    yield scope.finding(
        "driver-too-old",
        Level.FAIL,
        (Feature.CUDA,),
        found=seen,
        where="nvidia-smi",
        needed=f"{_driver(oldest)} or newer for CUDA {release[0]}",
        why="torch then warns that the driver is too old, falls back to the CPU and goes on; nvidia-smi's 'CUDA "
        "Version' is the driver's ceiling, not the installed toolkit.",
        remedy=(
            f"update the driver to {_driver(oldest)} or newer, or use an engine built for CUDA "
            f"{ceiling or 'of this driver'}"
        ),
    )


def _answers(scope: Scope, driver: Mapping[str, Any]) -> Iterator[Finding]:
    error = driver.get("error")
    if error:
        mismatch = "version mismatch" in error
        yield scope.finding(
            "driver-broken",
            Level.FAIL,
            (Feature.CUDA,),
            found=error.splitlines()[0] if error else "",
            where=str(driver.get("nvidia_smi")),
            needed="nvidia-smi that answers",
            why="The driver's libraries and its kernel module are of different versions." if mismatch else "",
            remedy="reboot, or reload the nvidia kernel modules" if mismatch else "check the nvidia kernel module",
        )


def _torch(scope: Scope, driver: Mapping[str, Any], torch: Mapping[str, Any]) -> Iterator[Finding]:
    if torch.get("version") and not torch.get("cuda"):
        yield scope.finding(
            "torch-without-cuda",
            Level.FAIL,
            (Feature.CUDA,),
            found=f"torch {torch['version']} is built without CUDA",
            where="torch.version.cuda",
            needed="a CUDA build of torch",
            remedy="install the engine from a CUDA lock",
        )
    elif driver.get("gpus") and torch.get("available") is False:
        said = "; ".join(torch.get("warnings") or [])
        number = re.search(r"found version (\d+)", said)
        decoded = f" (the driver's ceiling is CUDA {dotted(cuda_of_number(int(number[1])))})" if number else ""
        yield scope.finding(
            "torch-sees-no-gpu",
            Level.FAIL,
            (Feature.CUDA,),
            found=f"nvidia-smi lists {len(driver['gpus'])} GPUs, torch.cuda.is_available() is False{decoded}",
            where=said[:300] or "torch.cuda.is_available()",
            needed="torch that sees the GPUs",
            why="torch goes on with the CPU.",
            remedy="read the other findings about the driver; check CUDA_VISIBLE_DEVICES",
        )


def _library_path(facts: Facts, scope: Scope) -> Iterator[Finding]:
    """LD_LIBRARY_PATH is searched before the libraries that torch brings along."""
    value = ((facts.get("host") or {}).get("variables") or {}).get("LD_LIBRARY_PATH") or ""
    folders = [folder for folder in value.split(":") if folder]
    stubs = [folder for folder in folders if folder.rstrip("/").endswith("/stubs")]
    if stubs:
        yield scope.finding(
            "stub-at-run-time",
            Level.FAIL,
            (Feature.CUDA,),
            found=f"LD_LIBRARY_PATH has {stubs[0]}",
            where="LD_LIBRARY_PATH",
            needed="stubs on the linker's path only",
            why="The toolkit's empty libcuda is loaded instead of the driver's: 'CUDA driver is a stub library'.",
            remedy="take it out of LD_LIBRARY_PATH; for linking use LIBRARY_PATH or FLASHINFER_EXTRA_LDFLAGS",
        )
    torch = torch_release(facts)
    others = [
        folder
        for folder in folders
        for found in [re.search(r"/cuda-(\d+)\.(\d+)/", folder + "/")]
        if found and torch and (int(found[1]), int(found[2])) != torch
    ]
    if others:
        yield scope.finding(
            "library-path-of-another-cuda",
            Level.WARN,
            (Feature.CUDA,),
            found=f"LD_LIBRARY_PATH has {others[0]}, torch was built for CUDA {dotted(torch)}",
            where="LD_LIBRARY_PATH",
            needed="no toolkit of another release before torch's own libraries",
            why="cuBLAS, NCCL or nvJitLink of the other release are loaded first; their symbols differ.",
            remedy="unset LD_LIBRARY_PATH where the server is started",
        )


def _driver(version: tuple[int, ...]) -> str:
    return f"{version[0]}.{version[1]}.{version[2]:02d}"
