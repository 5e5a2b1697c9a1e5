"""Will a kernel compile and link: headers, libraries, ninja, the host compiler."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from reckoning.environment.diagnosis.proof import step
from reckoning.environment.diagnosis.toolkit import ALL_JIT, SEEN_BY_COMPILER, torch_release, used_nvcc, whole_toolkit
from reckoning.environment.finding import Finding, Level
from reckoning.environment.scope import Feature, Scope
from reckoning.environment.versions import numbers

Facts = Mapping[str, Any]
LINK_PATH = ("lib64", "lib64-stubs", "system", "extra-ldflags", "library-path")  # what the JIT's link line searches
ELSEWHERE = ("lib", "lib-stubs", "targets", "targets-stubs", "nvcc", "wsl")


def check(facts: Facts, scope: Scope) -> Iterator[Finding]:
    """Yield what the facts say about compiling and linking."""
    if used_nvcc(facts):
        yield from _headers(facts, scope)
        yield from _link(facts, scope)
    yield from _compilers(facts, scope)


# --- headers ---


@dataclasses.dataclass(frozen=True)
class _Headers:
    code: str
    names: tuple[str, ...]
    features: tuple[Feature, ...]
    package: str
    why: str
    proof: str = "compile"


HEADER_GROUPS = (
    _Headers(
        "header-runtime",
        ("cuda.h", "cuda_runtime.h"),
        ALL_JIT,
        "cuda-cudart-dev-13-0",
        "Every CUDA source includes them.",
    ),
    _Headers(
        "header-fp8",
        ("cuda_fp8.h",),
        ALL_JIT,
        "cuda-cudart-dev-13-0",
        "FP8 kernels and CUTLASS include it.",
    ),
    _Headers(
        "header-cccl",
        ("nv/target",),
        ALL_JIT,
        "cuda-cccl-13-0, or nvidia-cuda-cccl with toolkit wheels",
        "The half-precision and CCCL headers include it (CUDA 13 keeps it in include/cccl).",
    ),
    _Headers(
        "header-curand",
        ("curand.h", "curand_kernel.h"),
        (Feature.SAMPLING, Feature.SPECULATION),
        "libcurand-dev-13-0",
        "FlashInfer's sampling kernels include it. They are compiled at the first request that samples or speculates, "
        "so a "
        "health check and a greedy smoke test pass before the server hangs or dies; a warm JIT cache hides it too.",
        "compile_sampling",
    ),
)


def _headers(facts: Facts, scope: Scope) -> Iterator[Finding]:
    toolkit = facts["toolkit"]
    seen, hidden = _present(toolkit)
    for group in HEADER_GROUPS:
        proved = step(facts, group.proof).get("ok", False)
        missing = [name for name in group.names if name not in seen and not proved]
        if not missing:
            found, where = ", ".join(group.names), seen.get(group.names[0], "proved by compiling")
            yield scope.finding(f"{group.code}-present", Level.OK, group.features, found=found, where=where)
            continue
        elsewhere = [hidden[name] for name in missing if name in hidden]
        if elsewhere:
            yield _hidden(facts, scope, group, missing, elsewhere[0])
        else:
            yield _absent(facts, scope, group, missing)


def _present(toolkit: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return header to folder: those that the compilers see, and those that lie where they do not look."""
    seen: dict[str, str] = {}
    hidden: dict[str, str] = {}
    for item in toolkit.get("includes") or []:
        visible = item.get("origin") in SEEN_BY_COMPILER
        if item.get("origin", "").startswith("cuda_home") and toolkit.get("cuda_home") == "/usr":
            visible = True  # FlashInfer drops /usr/include from its flags, and every compiler searches it anyway
        for name in item.get("headers") or []:
            (seen if visible else hidden).setdefault(name, item["path"])
    return seen, hidden


def _absent(facts: Facts, scope: Scope, group: _Headers, missing: list[str]) -> Finding:
    folders = [item["path"] for item in facts["toolkit"].get("includes") or [] if item.get("exists")]
    return scope.finding(
        f"{group.code}-missing",
        Level.FAIL,
        group.features,
        found=f"{', '.join(missing)} not found",
        where=", ".join(folders) or str(facts["toolkit"].get("cuda_home")),
        needed=f"{', '.join(missing)} of the toolkit that the JIT uses (its package alone: {group.package})",
        why=group.why,
        remedy=whole_toolkit(torch_release(facts)),
    )


def _hidden(facts: Facts, scope: Scope, group: _Headers, missing: list[str], folder: str) -> Finding:
    return scope.finding(
        f"{group.code}-hidden",
        Level.FAIL,
        group.features,
        found=f"{', '.join(missing)} lies in {folder}, not in {facts['toolkit'].get('cuda_home')}/include",
        where=folder,
        needed="headers in $CUDA_HOME/include",
        why="A conda prefix keeps its headers under targets/, where the JIT's host compiler does not look.",
        remedy=f"export CPATH={folder}, or point CUDA_HOME at a whole toolkit",
    )


# --- linking ---


def _link(facts: Facts, scope: Scope) -> Iterator[Finding]:
    if step(facts, "link").get("ok"):
        return
    folders = facts["toolkit"].get("libraries") or []
    runtime = _holding(folders, "libcudart.so", LINK_PATH)
    driver = _holding(folders, "libcuda.so", LINK_PATH)
    yield from _link_runtime(facts, scope, folders, runtime)
    yield from _link_driver(facts, scope, folders, driver)
    if runtime and driver:
        found = f"libcudart.so in {runtime}, libcuda.so in {driver}"
        yield scope.finding("link-possible", Level.OK, ALL_JIT, found=found, where=runtime)


def _link_runtime(facts: Facts, scope: Scope, folders: list[Any], runtime: str | None) -> Iterator[Finding]:
    if runtime:
        return
    home = facts["toolkit"].get("cuda_home")
    lacks = [f"the folder {home}/lib64"] if not _folder(folders, "lib64") else []
    lacks.append("an unversioned libcudart.so")
    versioned = [
        f"{item['path']}/{name}" for item in folders for name in item["files"] if name.startswith("libcudart.so")
    ]
    usable = _holding(folders, "libcudart.so", ELSEWHERE)
    remedy = whole_toolkit(torch_release(facts))
    top = used_nvcc(facts).get("top")
    if top and top != home and usable == f"{top}/lib64":
        remedy = f"export CUDA_HOME={top}: that is where this nvcc's toolkit lies"
    elif usable:
        remedy = f'export FLASHINFER_EXTRA_LDFLAGS="-L{usable}" and LIBRARY_PATH={usable}, or {remedy}'
    yield scope.finding(
        "link-cudart",
        Level.FAIL,
        ALL_JIT,
        found="missing: " + " and ".join(lacks) + (f" (there is {versioned[0]})" if versioned else ""),
        where=f"{home}/lib64",
        needed="$CUDA_HOME/lib64/libcudart.so",
        why="Every kernel compiles, then the link dies with 'ld: cannot find -lcudart': the link line has "
        "-L$CUDA_HOME/lib64 and -lcudart, while toolkits from Python wheels have lib/ and versioned names only.",
        remedy=remedy,
    )


def _link_driver(facts: Facts, scope: Scope, folders: list[Any], driver: str | None) -> Iterator[Finding]:
    if driver:
        return
    home = facts["toolkit"].get("cuda_home")
    host = facts.get("host") or {}
    wsl = next((item for item in folders if item["part"] == "wsl" and item["files"]), None)
    usable = _holding(folders, "libcuda.so", ELSEWHERE)
    real = (facts["toolkit"].get("ldconfig") or {}).get("libcuda.so.1")
    if host.get("wsl") and wsl:
        found = f"WSL keeps the driver's library in {wsl['path']}, where the linker does not look"
        remedy = f'export FLASHINFER_EXTRA_LDFLAGS="-L{wsl["path"]} -l:libcuda.so.1"'
        if "libcuda.so" in wsl["files"]:
            remedy = f'export FLASHINFER_EXTRA_LDFLAGS="-L{wsl["path"]}"'
    elif usable:
        found = f"the stub lies in {usable}, not in {home}/lib64/stubs"
        remedy = f'export FLASHINFER_EXTRA_LDFLAGS="-L{usable}"'
    else:
        found = f"no libcuda.so in {home}/lib64/stubs nor in the linker's folders"
        found += f" (the driver's own is {real}, a run-time name only)" if real else ""
        remedy = whole_toolkit(torch_release(facts))
    yield scope.finding(
        "link-libcuda",
        Level.FAIL,
        (Feature.FLASHINFER,),
        found=found,
        where=f"{home}/lib64/stubs",
        needed="a libcuda.so to link with: the toolkit's stub or the driver's",
        why="FlashInfer links each kernel with -lcuda; without a stub it ends in 'ld: cannot find -lcuda'.",
        remedy=remedy,
    )


def _holding(folders: list[Any], name: str, parts: tuple[str, ...]) -> str | None:
    return next((item["path"] for item in folders if item["part"] in parts and name in item["files"]), None)


def _folder(folders: list[Any], part: str) -> bool:
    return any(item["part"] == part and item.get("exists") for item in folders)


# --- compilers ---


def _compilers(facts: Facts, scope: Scope) -> Iterator[Finding]:
    compilers = facts.get("compilers") or {}
    if not compilers:
        return
    if not (compilers.get("ninja") or {}).get("version"):
        yield scope.finding(
            "ninja-missing",
            Level.FAIL,
            ALL_JIT,
            found="no ninja on PATH",
            where="PATH",
            needed="ninja, which runs every JIT build",
            remedy="apt-get install ninja-build, or pip install ninja and put its folder on PATH",
        )
    yield from _host_compiler(facts, scope, compilers)
    interpreter = (facts.get("python") or {}).get("interpreter") or {}
    if interpreter.get("has_python_h") is False:
        yield scope.finding(
            "python-headers-missing",
            Level.FAIL,
            (Feature.TRITON,),
            found="Python.h not found",
            where=str(interpreter.get("include")),
            needed="the headers of the engine's Python",
            why="Triton compiles a launcher for each kernel against Python.h.",
            remedy="apt-get install python3-dev (of the engine's Python version)",
        )


def _host_compiler(facts: Facts, scope: Scope, compilers: Mapping[str, Any]) -> Iterator[Finding]:
    for part, variable in (("cxx", "CXX"), ("nvcc_host", "CC")):
        compiler = compilers.get(part) or {}
        if not compiler.get("path"):
            yield scope.finding(
                "host-compiler-missing",
                Level.FAIL,
                (*ALL_JIT, Feature.TRITON),
                found=f"{compiler.get('program', variable)} not found",
                where="PATH",
                needed="a C++ compiler",
                remedy=f"apt-get install build-essential, or set {variable}",
            )
            continue
        newest = (facts.get("toolkit") or {}).get("max_gcc")
        version = numbers(compiler.get("version"))
        if part == "nvcc_host" and compiler.get("family") == "gcc" and newest and version and version[0] > newest:
            yield scope.finding(
                "host-compiler-too-new",
                Level.FAIL,
                ALL_JIT,
                found=f"gcc {compiler['version']}; this nvcc supports gcc up to {newest}",
                where=str(compiler["path"]),
                needed=f"gcc {newest} or older",
                why="nvcc's host_config.h ends the compile: 'unsupported GNU version'.",
                remedy=f"apt-get install g++-{newest} and export CC=gcc-{newest} CXX=g++-{newest}",
            )
