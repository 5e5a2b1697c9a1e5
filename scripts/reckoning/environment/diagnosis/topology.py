"""How do the GPUs reach each other, and will peer-to-peer over PCIe hang?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from reckoning.environment.diagnosis.proof import P2P_REMEDY, step
from reckoning.environment.finding import Finding, Level
from reckoning.environment.scope import Feature, Scope

Facts = Mapping[str, Any]
Pair = tuple[int, int]


def check(facts: Facts, scope: Scope) -> Iterator[Finding]:
    """Yield what topology, peer access and access control say."""
    driver = facts.get("driver") or {}
    links = gpu_links(driver.get("topology"))
    if not links:
        return
    kinds = sorted(set(links.values()))
    nvlink = all(kind.startswith("NV") for kind in kinds)
    yield scope.finding(
        "gpu-links",
        Level.OK,
        (Feature.MULTI_GPU,),
        found=("NVLink between all GPUs: " if nvlink else "GPUs linked by ") + ", ".join(kinds),
        where="nvidia-smi topo -m",
    )
    if not nvlink:
        yield from _pcie(facts, scope, links)
    yield from _blocked(driver, scope)
    yield from _sockets(scope, links)


def gpu_links(matrix: str | None) -> dict[Pair, str]:
    """Read the matrix of `nvidia-smi topo -m` (or `-p2p r`): each ordered pair of GPUs and the word between them."""
    links: dict[Pair, str] = {}
    columns: list[int] = []
    for line in (matrix or "").splitlines():
        words = line.split()
        if not columns and words and all(re.fullmatch(r"GPU\d+", word) for word in words[:1]):
            columns = [int(word[3:]) for word in words if re.fullmatch(r"GPU\d+", word)]
            continue
        row = re.match(r"^\s*GPU(\d+)\s", line)
        if row and columns:
            for column, word in zip(columns, words[1:], strict=False):
                if column != int(row[1]):
                    links[(int(row[1]), column)] = word
    return links


def redirecting_bridges(facts: Facts) -> list[str]:
    """Return the PCIe bridges whose access control sends peer traffic up to the root complex."""
    acs = (facts.get("pci") or {}).get("acs") or []
    return [item["device"] for item in acs if "ReqRedir+" in item["control"] or "CmpltRedir+" in item["control"]]


def _pcie(facts: Facts, scope: Scope, links: dict[Pair, str]) -> Iterator[Finding]:
    bridges = redirecting_bridges(facts)
    flags = (facts.get("host") or {}).get("kernel_flags") or []
    through = any(re.fullmatch(r"(?:(?:intel_|amd_)?iommu)=(?:pt|off)", flag) for flag in flags)
    risky = bridges or not through
    if not risky:
        return
    facts_found = [f"PCIe only ({', '.join(sorted(set(links.values())))})"]
    if bridges:
        facts_found.append(f"ACS redirects peer traffic at {len(bridges)} bridges ({', '.join(bridges[:4])})")
    if not through:
        facts_found.append("booted without iommu=pt")
    if step(facts, "peers").get("ok"):
        facts_found.append(
            "plain copies between the GPUs were tried and are right, kernels that write to peers were not"
        )
    yield scope.finding(
        "p2p-may-hang",
        Level.WARN if bridges else Level.NOTE,
        (Feature.PAIR,) if bridges else (Feature.MULTI_GPU,),
        found="; ".join(facts_found),
        where="nvidia-smi topo -m, lspci, the kernel's command line",
        needed="peer traffic that passes: ACS off, iommu=pt",
        why="With ACS or a translating IOMMU, peer copies hang or deliver other data although `nvidia-smi topo -p2p` "
        "says OK; two GPUs are hit most, since custom all-reduce turns itself off only for more than two on PCIe.",
        remedy=P2P_REMEDY,
    )


def _blocked(driver: Mapping[str, Any], scope: Scope) -> Iterator[Finding]:
    words = {pair: word for pair, word in gpu_links(driver.get("p2p")).items() if word != "OK"}
    if words:
        listed = ", ".join(f"GPU{a}-GPU{b} {word}" for (a, b), word in sorted(words.items())[:6])
        yield scope.finding(
            "p2p-not-supported",
            Level.NOTE,
            (Feature.MULTI_GPU,),
            found=f"{len(words)} ordered pairs without peer-to-peer reads: {listed}",
            where="nvidia-smi topo -p2p r",
            why=(
                "Traffic goes through the host's memory (CNS: chipset not supported, GNS: GPU not supported, TNS: "
                "topology)."
            ),
            remedy="no remedy is needed; expect slower all-reduce",
        )


def _sockets(scope: Scope, links: dict[Pair, str]) -> Iterator[Finding]:
    across = {pair for pair, word in links.items() if word == "SYS"}
    if across:
        yield scope.finding(
            "gpus-across-sockets",
            Level.NOTE,
            (Feature.MULTI_GPU,),
            found=f"{len(across) // 2} pairs of GPUs are on different sockets (SYS)",
            where="nvidia-smi topo -m",
            why=(
                "Their traffic crosses the processors' link: the choice of the GPUs in a pair matters for tp and pp "
                "groups."
            ),
        )
