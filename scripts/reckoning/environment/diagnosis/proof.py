"""What the proofs showed. A proof outweighs a file that was or was not seen."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from reckoning.environment.diagnosis.toolkit import ALL_JIT, torch_release, whole_toolkit
from reckoning.environment.finding import Finding, Level
from reckoning.environment.scope import Feature, Scope

Facts = Mapping[str, Any]
P2P_REMEDY = (
    "set NCCL_P2P_DISABLE=1 and disable_custom_all_reduce for the arms (both: without the second, custom all-reduce "
    "stalls); or turn ACS off in the BIOS and boot with iommu=pt"
)


def step(facts: Facts, name: str) -> Mapping[str, Any]:
    """Return a step of the proof, or an empty mapping when it was not done."""
    found = (((facts.get("proof") or {}).get("steps")) or {}).get(name) or {}
    return found if found.get("done") else {}


def check(facts: Facts, scope: Scope) -> Iterator[Finding]:
    """Yield what the proofs showed."""
    proof = facts.get("proof")
    if not proof:
        return
    targets = ", ".join(proof["targets"])
    for name, features, what in (
        ("compile", ALL_JIT, f"compiling a small CUDA program for {targets}"),
        ("link", ALL_JIT, "linking it as FlashInfer does (-L$CUDA_HOME/lib64 -lcudart -lcuda)"),
        ("compile_sampling", (Feature.SAMPLING, Feature.SPECULATION), "compiling a program that includes curand.h"),
        ("run", (Feature.CUDA,), "running a small CUDA program on every GPU"),
        (
            "flashinfer",
            (Feature.SAMPLING, Feature.SPECULATION),
            "compiling FlashInfer's sampling kernels and using them",
        ),
    ):
        done = step(facts, name)
        if done:
            yield _result(facts, scope, name, features, what)
    yield from _peers(scope, step(facts, "peers"))


def _result(facts: Facts, scope: Scope, name: str, features: tuple[Feature, ...], what: str) -> Finding:
    done = step(facts, name)
    if name == "link" and re.search(r"-lcuda\b", done.get("error") or ""):
        features = (Feature.FLASHINFER,)  # SGLang's own kernels link the runtime only
    code = f"proof-{name.replace('_', '-')}"
    where = str((facts.get("proof") or {}).get("nvcc"))
    if done["ok"]:
        return scope.finding(code, Level.OK, features, found=f"{what}: works ({done['seconds']} s)", where=where)
    if name == "run":
        failed = [item for line in done.get("output") or [] for item in line.get("devices", []) if item.get("error")]
        detail = "; ".join(f"GPU {item['index']}: {item['error']}" for item in failed)
    else:
        detail = ""
    return scope.finding(
        code,
        Level.FAIL,
        features,
        found=f"{what} failed: {detail or done.get('error')}",
        where=where,
        needed="a tool chain that compiles, links and runs",
        why="This was tried, not inferred; the line is the compiler's first error.",
        remedy=whole_toolkit(torch_release(facts)) if name != "run" else "read the findings about the driver",
    )


def _peers(scope: Scope, done: Mapping[str, Any]) -> Iterator[Finding]:
    if not done:
        return
    pairs = [item for item in done.get("output") or [] if "to" in item]
    unfinished = next((item["unfinished"] for item in done.get("output") or [] if "unfinished" in item), None)
    wrong = [item for item in pairs if item["error"] or item["wrong_words"]]
    features = (Feature.MULTI_GPU,)
    why = "Tensor and expert parallel arms exchange data this way in every layer."
    if done["timed_out"]:
        yield scope.finding(
            "peer-copy-hangs",
            Level.FAIL,
            features,
            found=f"a copy between two GPUs did not end: {unfinished or 'none was reported'}",
            where="peer copy of 64 MiB",
            needed="copies that end",
            why=why + " `nvidia-smi topo -p2p` says OK on such machines.",
            remedy=P2P_REMEDY,
        )
    elif wrong:
        listed = ", ".join(f"{item['from']} to {item['to']}: {_problem(item)}" for item in wrong)
        yield scope.finding(
            "peer-copy-wrong",
            Level.FAIL,
            features,
            found=f"copies between GPUs failed or delivered other data: {listed}",
            where="peer copy of 64 MiB",
            needed="the data that were sent",
            why=why + " Wrong data show as an endless '!!!!' with HTTP 200.",
            remedy=P2P_REMEDY,
        )
    elif pairs:
        speeds = [item["gib_s"] for item in pairs]
        direct = sum(bool(item["direct"]) for item in pairs)
        yield scope.finding(
            "peer-copy",
            Level.OK if direct == len(pairs) else Level.NOTE,
            features,
            found=(
                f"{len(pairs)} pairs copied the right data at {min(speeds):.0f} to {max(speeds):.0f} GiB/s, "
                f"{direct} directly"
            ),
            where="peer copy of 64 MiB",
            why="" if direct == len(pairs) else "Pairs without direct access go through the host's memory.",
        )


def _problem(item: Mapping[str, Any]) -> str:
    return str(item["error"] or f"{item['wrong_words']} wrong words")
