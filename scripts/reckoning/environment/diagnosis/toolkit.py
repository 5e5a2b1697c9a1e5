"""Is the toolkit that the JIT compilers use whole, and do its parts and torch and the driver agree?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reckoning.environment.finding import Finding, Level
from reckoning.environment.scope import Feature, Scope
from reckoning.environment.versions import cuda_of_number, dotted, numbers, release

Facts = Mapping[str, Any]
# Folders whose headers the compilers see without being told.
SEEN_BY_COMPILER = ("cuda_home", "cuda_home-cccl", "nvcc")
ALL_JIT = (Feature.JIT, Feature.FLASHINFER)


def whole_toolkit(torch_release: tuple[int, int] | None = None) -> str:
    """Return the remedy for every partial toolkit: the whole one, of torch's CUDA release."""
    major, minor = torch_release or (13, 0)
    return (
        f"install the whole toolkit (apt-get install cuda-toolkit-{major}-{minor}) and "
        f"export CUDA_HOME=/usr/local/cuda-{major}.{minor}; do not link single files into another toolkit"
    )


def torch_release(facts: Facts) -> tuple[int, int] | None:
    """Return the CUDA release that torch was built for."""
    return release(numbers(((facts.get("python") or {}).get("torch") or {}).get("cuda")))


def used_nvcc(facts: Facts) -> Mapping[str, Any]:
    """Return the nvcc that the JIT compilers call, or an empty mapping."""
    nvccs = (facts.get("toolkit") or {}).get("nvccs") or []
    return next((item for item in nvccs if item.get("used") and item.get("release")), {})


def check(facts: Facts, scope: Scope) -> Iterator[Finding]:
    """Yield what the toolkit's facts say."""
    toolkit = facts.get("toolkit")
    if not toolkit:
        return
    nvcc = used_nvcc(facts)
    if not nvcc:
        yield _missing(facts, scope, toolkit)
        return
    yield _found(scope, toolkit, nvcc)
    yield from _arms_choose(scope, toolkit)
    yield from _several(scope, toolkit, nvcc)
    yield from _home_is_no_toolkit(scope, toolkit, nvcc)
    yield from _versions(facts, scope, toolkit, nvcc)


def _missing(facts: Facts, scope: Scope, toolkit: Mapping[str, Any]) -> Finding:
    home, rule = toolkit.get("cuda_home"), toolkit.get("rule") or "none"
    others = [item["path"] for item in toolkit.get("nvccs") or [] if item.get("release")]
    found = f"no nvcc under {home} (chosen by {rule})" if home else "no CUDA toolkit"
    also = f"; other nvcc: {', '.join(others)}" if others else ""
    return scope.finding(
        "toolkit-missing",
        Level.FAIL,
        ALL_JIT,
        found=found + also,
        where=str(home or "CUDA_HOME, CUDA_PATH, PATH, /usr/local/cuda"),
        needed="nvcc of the CUDA release that torch was built for",
        why="FlashInfer and SGLang compile kernels when they are first used.",
        remedy=f"export CUDA_HOME={others[0].removesuffix('/bin/nvcc')}"
        if others
        else whole_toolkit(torch_release(facts)),
    )


def _found(scope: Scope, toolkit: Mapping[str, Any], nvcc: Mapping[str, Any]) -> Finding:
    return scope.finding(
        "toolkit-found",
        Level.OK,
        ALL_JIT,
        found=f"nvcc {nvcc['version'] or nvcc['release']}, chosen by the rule: {toolkit.get('rule')}",
        where=str(nvcc["path"]),
    )


def _arms_choose(scope: Scope, toolkit: Mapping[str, Any]) -> Iterator[Finding]:
    """An arm that sets the search's variables itself was not probed with them."""
    own = {
        arm.slug: {name: arm.env[name] for name in ("CUDA_HOME", "CUDA_PATH") if name in arm.env} for arm in scope.arms
    }
    for slug, values in sorted(own.items()):
        different = [f"{name}={value}" for name, value in values.items() if value != toolkit.get("cuda_home")]
        if different:
            yield scope.finding(
                "arm-chooses-toolkit",
                Level.WARN,
                ALL_JIT,
                concerns=(slug,),
                found=f"arm {slug} sets {', '.join(different)}; this check looked at {toolkit.get('cuda_home')}",
                where=f"env of {slug}",
                needed="the same toolkit for the check and the arm",
                why="Nothing that is said here of headers, libraries and versions holds for that arm.",
                remedy=f"run the workflow with {different[0]} exported, or take it out of the arm",
            )


def _several(scope: Scope, toolkit: Mapping[str, Any], nvcc: Mapping[str, Any]) -> Iterator[Finding]:
    listed_nvccs = [item for item in toolkit.get("nvccs") or [] if not item.get("used") and item.get("release")]
    own = {nvcc.get("real_path"), f"{nvcc.get('top')}/bin/nvcc"}
    others = list({item.get("real_path"): item for item in listed_nvccs if item.get("real_path") not in own}.values())
    different = [item for item in others if item["release"] != nvcc["release"]]
    if others:
        listed = ", ".join(f"{item['release']} at {item['path']}" for item in others)
        yield scope.finding(
            "nvcc-several",
            Level.WARN if different else Level.NOTE,
            ALL_JIT,
            found=f"the JIT uses nvcc {nvcc['release']} ({toolkit.get('rule')}); also there: {listed}",
            where=str(nvcc["path"]),
            needed="one release, or CUDA_HOME set to the one that is meant",
            why="Another shell, service or container with another PATH compiles with another toolkit.",
            remedy=f"export CUDA_HOME={nvcc.get('top') or toolkit.get('cuda_home')} where the server is started",
        )


def _home_is_no_toolkit(scope: Scope, toolkit: Mapping[str, Any], nvcc: Mapping[str, Any]) -> Iterator[Finding]:
    """A wrapper or distribution package puts nvcc into /usr/local/bin or /usr/bin: the home holds no toolkit."""
    home, top = toolkit.get("cuda_home"), nvcc.get("top")
    real = {item["real_path"] for item in toolkit.get("includes") or [] if item.get("origin") == "cuda_home"}
    of_nvcc = {item["real_path"] for item in toolkit.get("includes") or [] if item.get("origin") == "nvcc"}
    if top and home and top != home and of_nvcc and not real & of_nvcc:
        yield scope.finding(
            "cuda-home-is-no-toolkit",
            Level.WARN,
            ALL_JIT,
            found=f"the rule '{toolkit.get('rule')}' gives {home}, but that nvcc belongs to the toolkit in {top}",
            where=str(home),
            needed=f"{home}/include and {home}/lib64 of the toolkit",
            why="JIT compilers add $CUDA_HOME/include and link with $CUDA_HOME/lib64; a wrapper script or a package in "
            "/usr/bin leads them to a folder without either.",
            remedy=f"export CUDA_HOME={top}",
        )


def header_version(toolkit: Mapping[str, Any]) -> tuple[tuple[int, int], str] | None:
    """Return the release in the cuda.h that the compilers see first, and its folder."""
    for item in toolkit.get("includes") or []:
        if item.get("origin") in SEEN_BY_COMPILER and item.get("cuda_version"):
            return cuda_of_number(item["cuda_version"]), item["path"]
    return None


def _versions(facts: Facts, scope: Scope, toolkit: Mapping[str, Any], nvcc: Mapping[str, Any]) -> Iterator[Finding]:
    """Compare four numbers: nvcc, cuda.h, torch's CUDA, the driver's ceiling."""
    compiler = release(numbers(nvcc["release"]))
    header = header_version(toolkit)
    torch = torch_release(facts)
    ceiling = release(numbers((facts.get("driver") or {}).get("cuda_ceiling")))
    four = (
        f"nvcc {dotted(compiler)}, cuda.h {dotted(header[0] if header else None)}, torch {dotted(torch)}, "
        f"driver up to {dotted(ceiling)}"
    )
    wrong = list(_disagreements(facts, scope, four))
    if not wrong and compiler and header:
        yield scope.finding("cuda-versions-agree", Level.OK, ALL_JIT, found=four, where=str(nvcc["path"]))
    yield from wrong


def _disagreements(facts: Facts, scope: Scope, four: str) -> Iterator[Finding]:
    toolkit = facts.get("toolkit") or {}
    nvcc = used_nvcc(facts)
    compiler = release(numbers(nvcc["release"]))
    header = header_version(toolkit)
    torch = torch_release(facts)
    ceiling = release(numbers((facts.get("driver") or {}).get("cuda_ceiling")))
    if compiler and header and compiler != header[0]:
        yield scope.finding(
            "nvcc-header-skew",
            Level.FAIL,
            ALL_JIT,
            found=four,
            where=f"{nvcc['path']} and {header[1]}/cuda.h",
            needed="nvcc and headers of the same major.minor release",
            why="The headers refuse another compiler: 'CUDA compiler and CUDA toolkit headers are incompatible'.",
            remedy=whole_toolkit(torch)
            + (
                f"; with toolkit wheels, pin nvidia-cuda-nvcc and nvidia-cuda-cccl to {dotted(torch)}.*"
                if torch
                else ""
            ),
        )
    if compiler and torch and compiler[0] != torch[0]:
        yield scope.finding(
            "nvcc-torch-skew",
            Level.WARN,
            ALL_JIT,
            found=four,
            where=str(nvcc["path"]),
            needed=f"nvcc {torch[0]}.x, as torch was built for CUDA {dotted(torch)}",
            why=f"Kernels are then linked to libcudart.so.{compiler[0]}, which must be found at their load beside "
            f"torch's libcudart.so.{torch[0]}; torch's own extension builder refuses this.",
            remedy=whole_toolkit(torch),
        )
    elif compiler and torch and compiler != torch:
        yield scope.finding(
            "nvcc-torch-minor",
            Level.WARN,
            ALL_JIT,
            found=four,
            where=str(nvcc["path"]),
            needed=f"nvcc {dotted(torch)} is what this torch was tested with",
            why="Minor releases are compatible at run time, but mixed wheels of nvcc, cccl and headers are not.",
            remedy=f"if compiling fails, {whole_toolkit(torch)}",
        )
    if compiler and ceiling and compiler[0] > ceiling[0]:
        yield scope.finding(
            "nvcc-newer-than-driver",
            Level.FAIL,
            ALL_JIT,
            found=four,
            where=str(nvcc["path"]),
            needed=f"a driver for CUDA {compiler[0]}, or a toolkit of CUDA {ceiling[0]}",
            why="nvidia-smi's 'CUDA Version' is the driver's ceiling, not an installed toolkit.",
            remedy="update the driver (580.65.06 or newer runs CUDA 13)",
        )
