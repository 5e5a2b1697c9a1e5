"""Do nvcc, the arch lists and torch know the GPUs that are here?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from reckoning.environment.diagnosis.toolkit import torch_release, used_nvcc, whole_toolkit
from reckoning.environment.finding import Finding, Level
from reckoning.environment.scope import Feature, Scope
from reckoning.environment.versions import dotted, numbers, release

Facts = Mapping[str, Any]
# The first CUDA release whose nvcc knows a target (nvcc's release notes; the f and a forms as FlashInfer's table has
# them).
FIRST_RELEASE = {
    "75": (10, 0), "80": (11, 0), "86": (11, 1), "87": (11, 4), "89": (11, 8), "90": (11, 8), "90a": (12, 0),
    "100": (12, 8), "100a": (12, 8), "100f": (12, 9), "101": (12, 8), "101a": (12, 8), "103": (12, 9), "103a": (12, 9),
    "103f": (12, 9), "110": (13, 0), "110a": (13, 0), "110f": (13, 0), "120": (12, 8), "120a": (12, 8), "120f": (12, 9),
    "121": (12, 9), "121a": (12, 9), "121f": (12, 9),
}  # fmt: skip
FLASHINFER_SM12 = (12, 9)  # FlashInfer normalises SM 12.x to 120f / 121a, and refuses an older nvcc
ARCH_LIST = "FLASHINFER_CUDA_ARCH_LIST"
_TOKEN = re.compile(r"^(\d+)\.(\d+)([a-z]?)$")


def check(facts: Facts, scope: Scope) -> Iterator[Finding]:
    """Yield what the facts say about architectures."""
    yield from _nvcc_knows(facts, scope)
    yield from _arch_lists(facts, scope)
    yield from _torch_knows(facts, scope)


def device_capabilities(facts: Facts) -> list[tuple[int, int]]:
    """Return the compute capabilities of the GPUs, each once, oldest first."""
    found = {release(numbers(gpu.get("compute_cap"))) for gpu in (facts.get("driver") or {}).get("gpus") or []}
    for device in ((facts.get("python") or {}).get("torch") or {}).get("devices") or []:
        found.add((device["capability"][0], device["capability"][1]))
    return sorted(item for item in found if item)


def _nvcc_release(facts: Facts) -> tuple[int, int] | None:
    return release(numbers(used_nvcc(facts).get("release")))


def _nvcc_knows(facts: Facts, scope: Scope) -> Iterator[Finding]:
    compiler = _nvcc_release(facts)
    if compiler is None:
        return
    listed = used_nvcc(facts).get("gpu_code") or []
    for major, minor in device_capabilities(facts):
        name = f"sm_{major}{minor}"
        first = FIRST_RELEASE.get(f"{major}{minor}")
        gate = max(FLASHINFER_SM12, first or FLASHINFER_SM12)
        oldest = min((int(item[3:].rstrip("af")) for item in listed), default=0)
        if major * 10 + minor < oldest:
            yield _dropped(facts, scope, name)
        elif (listed and name not in listed) or (first is not None and compiler < first):
            yield _too_old(facts, scope, name, first, by_flashinfer=False)
        elif major == 12 and compiler < gate:
            yield _too_old(facts, scope, name, gate, by_flashinfer=True)
        else:
            found = f"nvcc {dotted(compiler)} compiles for {name}"
            yield scope.finding(
                "nvcc-knows-gpu", Level.OK, (Feature.JIT,), found=found, where=str(used_nvcc(facts)["path"])
            )


def _dropped(facts: Facts, scope: Scope, name: str) -> Finding:
    nvcc = used_nvcc(facts)
    return scope.finding(
        "nvcc-dropped-gpu",
        Level.FAIL,
        (Feature.JIT, Feature.FLASHINFER),
        found=f"nvcc {nvcc['release']} no longer compiles for {name}; its oldest target is {nvcc['gpu_code'][0]}",
        where=str(nvcc["path"]),
        needed="an engine and a toolkit of an older CUDA major",
        why="CUDA 13 ended support for GPUs before sm_75.",
        remedy="use an engine built for CUDA 12 with its toolkit, or a newer GPU",
    )


def _too_old(facts: Facts, scope: Scope, name: str, need: tuple[int, int] | None, *, by_flashinfer: bool) -> Finding:
    features = (Feature.FLASHINFER, Feature.SAMPLING) if by_flashinfer else (Feature.JIT, Feature.FLASHINFER)
    why = (
        "FlashInfer takes SM 12.x only from a newer nvcc. It logs that as a warning ('Failed to get device "
        "capability'), is "
        "left without a target, and later says 'FlashInfer requires GPUs with sm75 or higher'. The GPU is not too old."
        if by_flashinfer
        else "This nvcc cannot compile for the GPU."
    )
    nvcc = used_nvcc(facts)
    needed = f">= {dotted(need)}" if need else "a release that knows it"
    return scope.finding(
        "nvcc-too-old-for-gpu",
        Level.FAIL,
        features,
        found=f"nvcc {nvcc['release']} at {nvcc['path']} is used by the JIT; {name} needs {needed}",
        where=str(nvcc["path"]),
        needed=f"nvcc {needed}",
        why=why,
        remedy=whole_toolkit(torch_release(facts)),
    )


def _arch_lists(facts: Facts, scope: Scope) -> Iterator[Finding]:
    """Check the variable of this process, and that of each arm which sets its own."""
    own = {arm.slug: arm.env[ARCH_LIST] for arm in scope.arms if ARCH_LIST in arm.env}
    common = ((facts.get("host") or {}).get("variables") or {}).get(ARCH_LIST)
    if common is not None:
        slugs = set(scope.using((Feature.FLASHINFER, Feature.SAMPLING))) - set(own)
        yield from _arch_list(facts, scope, common, slugs if scope.plan is not None else None)
    for slug, value in sorted(own.items()):
        yield from _arch_list(facts, scope, str(value), {slug})


def _arch_list(facts: Facts, scope: Scope, value: str, slugs: set[str] | None) -> Iterator[Finding]:
    compiler = _nvcc_release(facts)
    features = (Feature.FLASHINFER, Feature.SAMPLING)
    tokens = value.split(" ")
    parsed = {token: _TOKEN.match(token) for token in tokens}
    bad = [token for token, found in parsed.items() if not found]
    if bad:
        yield scope.finding(
            "arch-list-form",
            Level.FAIL,
            features,
            concerns=slugs,
            found=(
                f"{ARCH_LIST}={value!r}: {', '.join(repr(token) for token in bad)} is not of the form "
                "MAJOR.MINOR[suffix]"
            ),
            where=ARCH_LIST,
            needed="items like 12.0 or 12.0f, separated by one space (not ';' as in TORCH_CUDA_ARCH_LIST)",
            why=(
                "FlashInfer splits the value at spaces and each item at its dot; anything else raises ValueError at "
                "import."
            ),
            remedy=f'export {ARCH_LIST}="{_repaired(value) or "12.0f"}"',
        )
        return
    for token, found in parsed.items():
        target = f"{found[1]}{found[2]}{found[3]}" if found else ""
        need = FIRST_RELEASE.get(target)
        if found and found[1] == "12" and not found[3]:
            need = max(FLASHINFER_SM12, need or FLASHINFER_SM12)
        if compiler and need and compiler < need:
            yield scope.finding(
                "arch-list-needs-newer-nvcc",
                Level.FAIL,
                features,
                concerns=slugs,
                found=f"{ARCH_LIST} has {token!r}, which needs CUDA {dotted(need)}; nvcc is {dotted(compiler)}",
                where=ARCH_LIST,
                needed=f"nvcc >= {dotted(need)}",
                why="A suffix by-passes FlashInfer's own version check and dies in nvcc: "
                f"'Unsupported gpu architecture compute_{target}'.",
                remedy=whole_toolkit(torch_release(facts)),
            )
    covered = {(int(found[1]), int(found[2])) for found in parsed.values() if found}
    for major, minor in device_capabilities(facts):
        if not any(have[0] == major and have[1] <= minor for have in covered):
            yield scope.finding(
                "arch-list-lacks-gpu",
                Level.FAIL,
                features,
                concerns=slugs,
                found=f"{ARCH_LIST}={value!r} does not cover sm_{major}{minor}",
                where=ARCH_LIST,
                needed=f"{major}.{minor} among its items",
                why="The kernels compile and then fail with 'no kernel image is available'.",
                remedy=f"unset {ARCH_LIST}: FlashInfer then asks the GPUs",
            )


def _repaired(value: str) -> str:
    """Return the value in FlashInfer's form, as far as it can be guessed: `12.0;12.1` gives `12.0 12.1`."""
    items = []
    for token in re.split(r"[\s;,]+", value.strip()):
        plain = token.removesuffix("+PTX").removeprefix("sm_").removeprefix("compute_")
        packed = re.fullmatch(r"(\d+)(\d)([a-z]?)", plain)
        items.append(f"{packed[1]}.{packed[2]}{packed[3]}" if packed else plain)
    return " ".join(item for item in items if _TOKEN.match(item))


def _torch_knows(facts: Facts, scope: Scope) -> Iterator[Finding]:
    torch = (facts.get("python") or {}).get("torch") or {}
    names = torch.get("arch_list") or []
    if not names:
        return
    for major, minor in device_capabilities(facts):
        if _covers(names, major, minor):
            continue
        yield scope.finding(
            "torch-lacks-gpu",
            Level.FAIL,
            (Feature.CUDA,),
            found=f"torch {torch.get('version')} was built for {' '.join(names)}, not for sm_{major}{minor}",
            where="torch.cuda.get_arch_list()",
            needed=f"a torch build with sm_{major}{minor}",
            why="Its kernels fail with 'no kernel image is available for execution on the device'.",
            remedy="install the torch of the engine's lock (CUDA 12.8 and newer builds have sm_120)",
        )


def _covers(names: list[str], major: int, minor: int) -> bool:
    """Whether machine code of the same major (and no newer minor), or PTX of any older target, is in the build."""
    for name in names:
        found = re.match(r"^(sm|compute)_(\d+)(\d)([af]?)$", name)
        if not found:
            continue
        have = (int(found[2]), int(found[3]))
        if found[1] == "sm" and have[0] == major and have[1] <= minor and found[4] != "a":
            return True
        if have == (major, minor) or (found[1] == "compute" and not found[4] and have <= (major, minor)):
            return True
    return False
