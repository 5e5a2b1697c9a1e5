"""Will the JIT caches help, or hide a fault, or hang?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from reckoning.environment.diagnosis.toolkit import ALL_JIT, used_nvcc
from reckoning.environment.finding import Finding, Level
from reckoning.environment.scope import Feature, Scope
from reckoning.environment.versions import public

Facts = Mapping[str, Any]
# A file lock that nobody holds is harmless (the file stays, the lock does not). torch's extension builder and some
# others
# use the file itself as the lock: one that is left behind blocks every later build.
FILE_IS_THE_LOCK = ("torch-extensions", "deep-gemm")
STALE_S = 1800


def check(facts: Facts, scope: Scope) -> Iterator[Finding]:
    """Yield what the caches' facts say."""
    for cache in facts.get("caches") or []:
        if cache.get("exists"):
            yield from _location(scope, cache)
            yield from _locks(scope, cache)
            yield from _other_toolkit(facts, scope, cache)
            yield from _older_than_source(scope, cache)
            yield from _hides_curand(facts, scope, cache)


def _location(scope: Scope, cache: Mapping[str, Any]) -> Iterator[Finding]:
    built = cache.get("built") or []
    versions = ", ".join(cache.get("versions") or [])
    yield scope.finding(
        f"cache-{cache['name']}",
        Level.OK,
        ALL_JIT,
        found=f"{len(built)} built libraries, {cache.get('size_mib')} MiB"
        + (f", of versions {versions}" if versions else ""),
        where=str(cache["path"]),
    )


def _locks(scope: Scope, cache: Mapping[str, Any]) -> Iterator[Finding]:
    for lock in cache.get("locks") or []:
        stale = cache["name"] in FILE_IS_THE_LOCK and not lock["held"] and lock["age_s"] > STALE_S
        stuck = lock["held"] and lock["age_s"] > STALE_S
        if stale or stuck:
            yield scope.finding(
                "cache-lock-stale" if stale else "cache-lock-held",
                Level.WARN,
                ALL_JIT,
                found=f"{lock['path']}, {lock['age_s'] // 60} minutes old, "
                + ("held by a process" if stuck else "left behind"),
                where=str(cache["path"]),
                needed="no lock that blocks a build",
                why="A server that must compile then waits without a word, and looks like a hang.",
                remedy="end the process that holds it"
                if stuck
                else f"after making sure that nothing compiles: rm {lock['path']}",
            )


def _other_toolkit(facts: Facts, scope: Scope, cache: Mapping[str, Any]) -> Iterator[Finding]:
    homes = cache.get("cuda_homes") or []
    current = (facts.get("toolkit") or {}).get("cuda_home")
    top = used_nvcc(facts).get("top")
    others = [home for home in homes if os.path.normpath(home) not in (os.path.normpath(str(current)), str(top))]
    if others and current:
        yield scope.finding(
            "cache-of-another-toolkit",
            Level.NOTE,
            ALL_JIT,
            found=f"built with CUDA_HOME={', '.join(others)}; now it is {current}",
            where=str(cache["path"]),
            needed="one spelling of CUDA_HOME for all servers that share the cache",
            why=(
                "The build files name the toolkit: with another CUDA_HOME every kernel is compiled again, in turn by "
                "each server."
            ),
            remedy="export the same CUDA_HOME everywhere, or give the experiment its own FLASHINFER_WORKSPACE_BASE",
        )


def _older_than_source(scope: Scope, cache: Mapping[str, Any]) -> Iterator[Finding]:
    source = cache.get("newest_source")
    if not source:
        return
    old = [item for item in cache.get("built") or [] if item["age_s"] > source["age_s"]]
    if old:
        tracked = cache["name"] == "flashinfer"
        yield scope.finding(
            "cache-older-than-source",
            Level.NOTE if tracked else Level.WARN,
            ALL_JIT,
            found=f"{len(old)} libraries are older than {source['path']}",
            where=str(cache["path"]),
            needed="libraries built from the sources that are installed now",
            why="FlashInfer rebuilds what its sources changed: the next start compiles."
            if tracked
            else (
                "The folder's name holds a hash of the kernel's own text, not of the headers: a patched header can "
                "go unnoticed."
            ),
            remedy="nothing; expect a longer first start"
            if tracked
            else f"rename the folder {cache['path']} and let it be built anew",
        )


def _hides_curand(facts: Facts, scope: Scope, cache: Mapping[str, Any]) -> Iterator[Finding]:
    seen = {name for item in (facts.get("toolkit") or {}).get("includes") or [] for name in item.get("headers") or []}
    if cache["name"] != "flashinfer" or not used_nvcc(facts) or "curand_kernel.h" in seen:
        return
    version = next(
        (
            public(item["version"])
            for item in (facts.get("python") or {}).get("packages") or []
            if item["name"] == "flashinfer-python"
        ),
        None,
    )
    kept = [item["path"] for item in cache.get("built") or [] if item["path"].endswith("sampling/sampling.so")]
    usable = [path for path in kept if version is None or path.startswith(f"{version}/")]
    if usable:
        yield scope.finding(
            "cache-hides-missing-header",
            Level.WARN,
            (Feature.SAMPLING, Feature.SPECULATION),
            found=f"{usable[0]} was built when curand was there; it is not there now",
            where=str(cache["path"]),
            needed="a toolkit that can build it again",
            why="The arm works until the cache is lost, another version is installed, or another user runs it.",
            remedy="install the whole toolkit now, not when the cache is gone",
        )
