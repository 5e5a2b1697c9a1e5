"""The CUDA toolkit: which one the JIT compilers will use, and what lies in it.

FlashInfer (`jit/cpp_ext.py`) and TVM-FFI (which SGLang's own kernels use) look for it alike: CUDA_HOME, CUDA_PATH, the
parent of the folder of the nvcc on PATH, /usr/local/cuda. Links are not resolved: a wrapper in /usr/local/bin gives
/usr/local.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

from reckoning.environment.probing.machine import Machine

HEADERS = (
    "cuda.h",
    "cuda_runtime.h",
    "cuda_fp8.h",
    "cuda_fp16.h",
    "curand.h",
    "curand_kernel.h",
    "cublas_v2.h",
    "nv/target",
    "cuda/std/version",
)
LIBRARY_NAME = re.compile(r"^lib(?:cudart|cuda|curand)\.so(?:\.\d+)*$")
SYSTEM_LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib64")
WSL_LIBRARIES = "/usr/lib/wsl/lib"
_RELEASE = re.compile(r"release (\d+\.\d+), V([\d.]+)")
_CUDA_VERSION = re.compile(r"#\s*define\s+CUDA_VERSION\s+(\d+)")


def toolkit_facts(machine: Machine) -> dict[str, Any]:
    """Return the search, every nvcc seen, and what the chosen toolkit holds."""
    home, rule = find_cuda_home(machine)
    others = [str(path) for path in sorted(machine.path("/usr/local").glob("cuda*/bin/nvcc"))]
    used = machine.variable("FLASHINFER_NVCC") or (f"{home}/bin/nvcc" if home else None)
    paths = list(dict.fromkeys([*([used] if used else []), *machine.which_all("nvcc"), *others]))
    on_path = machine.which_all("nvcc")
    nvccs = [_nvcc(machine, path, used=path == used, on_path=path in on_path) for path in paths]
    chosen = next((item for item in nvccs if item["used"]), None)
    return {
        "cuda_home": home,
        "rule": rule,
        "cuda_home_exists": bool(home) and Path(str(home)).is_dir(),
        "nvccs": nvccs,
        "includes": _includes(home, chosen),
        "libraries": _libraries(machine, home, chosen),
        "ldconfig": _ldconfig(machine),
        "max_gcc": _max_gcc(home, chosen),
    }


def find_cuda_home(machine: Machine) -> tuple[str | None, str]:
    """Return the toolkit folder as FlashInfer derives it, and the rule that fired."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        value = machine.variable(name)
        if value is not None:
            return value, name
    nvcc = machine.which("nvcc")
    if nvcc:
        return os.path.dirname(os.path.dirname(nvcc)), "nvcc on PATH"  # noqa: PTH120 (as FlashInfer does it)
    default = machine.path("/usr/local/cuda")
    if default.exists():
        return str(default), "/usr/local/cuda"
    return None, "none"


def _nvcc(machine: Machine, path: str, *, used: bool, on_path: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "path": path,
        "real_path": os.path.realpath(path),
        "exists": Path(path).exists(),
        "used": used,
        "on_path": on_path,
        "release": None,
        "version": None,
        "output": None,
        "include_folders": [],
        "library_folders": [],
        "top": None,
        "gpu_code": [],
    }
    if not facts["exists"]:
        return facts
    result = machine.run([path, "--version"])
    facts["output"] = (result.output or result.errors).strip()[:2000]
    found = _RELEASE.search(result.output)
    if found:
        facts["release"], facts["version"] = found[1], found[2]
    if used:
        facts.update(_nvcc_profile(machine, path))
        listed = machine.run([path, "--list-gpu-code"])
        facts["gpu_code"] = re.findall(r"^sm_\w+$", listed.output, re.MULTILINE) if listed.ok else []
    return facts


def _nvcc_profile(machine: Machine, path: str) -> dict[str, Any]:
    """Ask nvcc itself which folders it adds (`--dryrun` runs nothing)."""
    with tempfile.TemporaryDirectory(prefix="reckoning-") as folder:
        source = Path(folder) / "empty.cu"
        source.write_text("")
        result = machine.run([path, "--dryrun", "-c", str(source), "-o", str(source.with_suffix(".o"))])
    lines = (result.errors + result.output).splitlines()
    top = next((line.split("TOP=", 1)[1] for line in lines if re.match(r"#\$ TOP=", line)), None)
    includes = [line for line in lines if re.match(r"#\$ (?:SYSTEM_)?INCLUDES=", line)]
    libraries = [line for line in lines if re.match(r"#\$ LIBRARIES=", line)]
    quoted = [os.path.normpath(item) for line in includes for item in re.findall(r'"(?:-I|-isystem)?(/[^"]*)"', line)]
    folders = [os.path.normpath(item) for line in libraries for item in re.findall(r'"-L([^"]*)"', line)]
    return {
        "top": os.path.normpath(top) if top else None,
        "include_folders": list(dict.fromkeys(quoted)),
        "library_folders": list(dict.fromkeys(folders)),
    }


def _includes(home: str | None, nvcc: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the folders with headers: where each comes from, and which headers lie in it."""
    folders: dict[str, str] = {}
    if home:
        folders[f"{home}/include"] = "cuda_home"
        folders[f"{home}/include/cccl"] = "cuda_home-cccl"
        for target in sorted(Path(home).glob("targets/*/include")):
            folders.setdefault(str(target), "targets")
            folders.setdefault(f"{target}/cccl", "targets")
    for folder in nvcc["include_folders"] if nvcc else []:
        if folders.get(folder) in (None, "targets"):
            folders[folder] = "nvcc"
    return [_include(path, origin) for path, origin in folders.items()]


def _include(path: str, origin: str) -> dict[str, Any]:
    folder = Path(path)
    present = [name for name in HEADERS if (folder / name).is_file()]
    version = None
    if "cuda.h" in present:
        text = (folder / "cuda.h").read_text(encoding="utf-8", errors="replace")
        found = _CUDA_VERSION.search(text)
        version = int(found[1]) if found else None
    return {
        "path": path,
        "real_path": os.path.realpath(path),
        "origin": origin,
        "exists": folder.is_dir(),
        "headers": present,
        "cuda_version": version,
    }


def _libraries(machine: Machine, home: str | None, nvcc: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the folders with libraries: their part in a link, and which of the CUDA libraries lie in them."""
    folders: dict[str, str] = {}
    if home:
        for name, part in (
            ("lib64", "lib64"),
            ("lib64/stubs", "lib64-stubs"),
            ("lib", "lib"),
            ("lib/stubs", "lib-stubs"),
        ):
            folders[f"{home}/{name}"] = part
        for target in sorted(Path(home).glob("targets/*/lib")):
            folders[str(target)] = "targets"
            folders[f"{target}/stubs"] = "targets-stubs"
    if nvcc and nvcc["top"]:
        folders.setdefault(f"{nvcc['top']}/lib64", "nvcc")
    for folder in nvcc["library_folders"] if nvcc else []:
        folders.setdefault(folder, "nvcc")
    for flag in re.findall(r"-L\s*(\S+)", machine.environ.get("FLASHINFER_EXTRA_LDFLAGS", "")):
        folders[flag] = "extra-ldflags"
    for folder in filter(None, machine.environ.get("LIBRARY_PATH", "").split(os.pathsep)):
        folders[folder] = "library-path"
    for folder in SYSTEM_LIBRARIES:
        folders.setdefault(str(machine.path(folder)), "system")
    folders.setdefault(str(machine.path(WSL_LIBRARIES)), "wsl")
    return [_library_folder(path, part) for path, part in folders.items()]


def _library_folder(path: str, part: str) -> dict[str, Any]:
    try:
        names = sorted(item.name for item in Path(path).iterdir() if LIBRARY_NAME.match(item.name))
        exists = True
    except OSError:
        names, exists = [], False
    return {"path": path, "part": part, "exists": exists, "files": names}


def _ldconfig(machine: Machine) -> dict[str, str]:
    """Return the run-time linker's CUDA libraries: name to path."""
    program = machine.which("ldconfig") or "/sbin/ldconfig"
    result = machine.run([program, "-p"])
    entries = re.findall(r"^\s*(lib(?:cudart|cuda)\.so[\w.]*) .*=> (\S+)", result.output, re.MULTILINE)
    return dict(reversed(entries))


def _max_gcc(home: str | None, nvcc: dict[str, Any] | None) -> int | None:
    """Return the newest gcc (major) that the toolkit's own header allows, or None when it does not say."""
    folders = [*(nvcc["include_folders"] if nvcc else []), *([f"{home}/include"] if home else [])]
    for folder in folders:
        header = Path(folder) / "crt" / "host_config.h"
        if header.is_file():
            found = re.search(r"__GNUC__\s*>\s*(\d+)", header.read_text(encoding="utf-8", errors="replace"))
            if found:
                return int(found[1])
    return None
