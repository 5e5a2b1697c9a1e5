"""The JIT caches: where they lie, for which toolkit they were built, stale locks, and what is older than its source."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

from reckoning.environment.probing.machine import Machine

MOST_FILES = 20_000


def cache_facts(machine: Machine, packages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry per cache folder, present or not."""
    home = Path(machine.variable("HOME") or os.path.expanduser("~"))  # noqa: PTH111 (HOME may be unset)
    flashinfer = Path(machine.variable("FLASHINFER_WORKSPACE_BASE") or home) / ".cache" / "flashinfer"
    places = {
        "flashinfer": flashinfer,
        "tvm-ffi": Path(machine.variable("TVM_FFI_CACHE_DIR") or home / ".cache" / "tvm-ffi"),
        "triton": Path(machine.variable("TRITON_CACHE_DIR") or home / ".triton" / "cache"),
        "sglang": home / ".cache" / "sglang",
        "deep-gemm": Path(machine.variable("DG_JIT_CACHE_DIR") or home / ".cache" / "deep_gemm"),
        "torch-extensions": Path(machine.variable("TORCH_EXTENSIONS_DIR") or home / ".cache" / "torch_extensions"),
    }
    sources = {name: _newest_source(name, packages) for name in ("flashinfer", "sglang")}
    return [_cache(name, path, sources.get("sglang" if name == "tvm-ffi" else name)) for name, path in places.items()]


def _cache(name: str, path: Path, source: dict[str, Any] | None) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": name,
        "path": str(path),
        "exists": path.is_dir(),
        "size_mib": None,
        "built": [],
        "locks": [],
        "cuda_homes": [],
        "versions": [],
        "newest_source": source,
    }
    if not facts["exists"]:
        return facts
    size, homes, locks, built = 0, set(), [], []
    now = time.time()
    for index, (folder, _, names) in enumerate(os.walk(path)):
        if index > MOST_FILES:
            break
        for file in names:
            item = Path(folder) / file
            try:
                state = item.stat()
            except OSError:
                continue
            size += state.st_size
            if file.endswith(".lock") or file == "lock":
                locks.append({"path": str(item), "age_s": round(now - state.st_mtime), "held": _held(item)})
            elif file == "build.ninja":
                homes.update(_cuda_home_of(item))
            elif file.endswith(".so"):
                built.append({"path": str(item.relative_to(path)), "age_s": round(now - state.st_mtime)})
    facts.update(size_mib=round(size / (1 << 20), 1), locks=locks[:200], built=sorted(built, key=str)[:500])
    facts["cuda_homes"] = sorted(homes)
    if name == "flashinfer":
        facts["versions"] = sorted(item.name for item in path.iterdir() if item.is_dir() and item.name[0].isdigit())
    return facts


def _cuda_home_of(ninja: Path) -> list[str]:
    try:
        text = ninja.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    found = re.search(r"^cuda_home = (.+)$", text, re.MULTILINE) or re.search(
        r"^nvcc = (.+)/bin/nvcc$", text, re.MULTILINE
    )
    return [found[1].strip()] if found else []


def _held(lock: Path) -> bool:
    """Return whether a process holds this file lock now (read from /proc/locks; nothing is locked to find out)."""
    try:
        inode = lock.stat().st_ino
        return bool(re.search(rf":{inode}\s", Path("/proc/locks").read_text()))
    except OSError:
        return False


def _newest_source(name: str, packages: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the newest CUDA source of a package: a kernel older than it was built from something else."""
    wanted = {"flashinfer": ("flashinfer-python", "flashinfer/data"), "sglang": ("sglang", "sglang/jit_kernel")}[name]
    location = next((item["location"] for item in packages if item["name"] == wanted[0]), None)
    folder = Path(location) / wanted[1] if location else None
    if folder is None or not folder.is_dir():
        return None
    newest, path = 0.0, None
    for parent, _, names in os.walk(folder):
        if "cutlass" in parent or "cccl" in parent:
            continue
        for file in names:
            if file.endswith((".cu", ".cuh", ".h", ".jinja")):
                when = (Path(parent) / file).stat().st_mtime
                if when > newest:
                    newest, path = when, str(Path(parent) / file)
    return {"path": path, "age_s": round(time.time() - newest)} if path else None
