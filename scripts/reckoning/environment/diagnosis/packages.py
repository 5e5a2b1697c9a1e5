"""Do the engine's packages fit each other?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from reckoning.environment.diagnosis.toolkit import torch_release
from reckoning.environment.finding import Finding, Level
from reckoning.environment.scope import Feature, Scope
from reckoning.environment.versions import dotted, local_cuda, public

Facts = Mapping[str, Any]


def check(facts: Facts, scope: Scope) -> Iterator[Finding]:
    """Yield what the installed packages say."""
    python = facts.get("python")
    if not python:
        if "python" in facts:
            yield scope.finding(
                "engine-python-unknown",
                Level.NOTE,
                (),
                found="no interpreter of the engine was asked: nothing is known of torch and FlashInfer",
                where="probe --engine-python",
                remedy="probe again with --engine-python",
            )
        return
    if python.get("error"):
        yield scope.finding(
            "engine-python-broken",
            Level.WARN,
            (Feature.MODEL,),
            found=str(python["error"])[-300:],
            where=str((python.get("interpreter") or {}).get("executable")),
            needed="an interpreter that answers",
            remedy="check engine.python in the experiment",
        )
    packages = python.get("packages") or []
    yield from _two_trees(scope, packages)
    yield from _flashinfer(facts, scope, packages)


def _two_trees(scope: Scope, packages: list[Mapping[str, Any]]) -> Iterator[Finding]:
    trees: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for item in packages:
        trees[item["name"]].append(item)
    for name, items in sorted(trees.items()):
        # A folder that stands twice on the path lists its packages twice; that is one tree.
        found = dict.fromkeys((item["version"], item["location"]) for item in items)
        if len(found) > 1:
            listed = ", ".join(f"{version} in {location}" for version, location in found)
            yield scope.finding(
                "package-twice",
                Level.WARN if name != "flashinfer-python" else Level.FAIL,
                (Feature.CUDA,),
                found=f"{name} is installed more than once: {listed}",
                where=items[0]["location"],
                needed="one tree of each package",
                why="Which one is imported depends on the order of sys.path; files of two versions can mix.",
                remedy="install the engine into a fresh environment from its lock, with PYTHONPATH unset",
            )


def _flashinfer(facts: Facts, scope: Scope, packages: list[Mapping[str, Any]]) -> Iterator[Finding]:
    versions = {item["name"]: item["version"] for item in packages if item["name"].startswith("flashinfer")}
    main = versions.get("flashinfer-python")
    if main is None:
        return
    features = (Feature.FLASHINFER, Feature.SAMPLING)
    listed = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    wrong = [name for name, version in versions.items() if public(version) != public(main)]
    torch = torch_release(facts)
    builds = {name: local_cuda(version) for name, version in versions.items()}
    foreign = {name: cuda for name, cuda in builds.items() if cuda and torch and cuda != torch}
    if wrong:
        yield scope.finding(
            "flashinfer-skew",
            Level.FAIL,
            features,
            found=listed,
            where="installed packages",
            needed=f"the version {public(main)} of all of them (a local part like +cu130 does not count)",
            why="FlashInfer refuses to be imported with parts of another version.",
            remedy="pip install " + " ".join(f"{name}=={public(main)}" for name in sorted(wrong)),
        )
    if foreign:
        name, cuda = next(iter(sorted(foreign.items())))
        yield scope.finding(
            "flashinfer-cuda-build",
            Level.FAIL,
            features,
            found=f"{name} {versions[name]} is built for CUDA {dotted(cuda)}, torch for {dotted(torch)}",
            where="installed packages",
            needed=f"the +cu{torch[0]}{torch[1]} build" if torch else "",
            why="Its libraries load another CUDA runtime than torch's.",
            remedy=f"install {name} {public(versions[name])}+cu{torch[0]}{torch[1]}" if torch else "",
        )
    if not wrong and not foreign:
        alone = len(versions) == 1
        note = "; no cubin or JIT-cache package: kernels are fetched or compiled when first used" if alone else ""
        yield scope.finding(
            "flashinfer-versions-agree", Level.NOTE if alone else Level.OK, features, found=listed + note,
            where="installed packages",
        )  # fmt: skip
