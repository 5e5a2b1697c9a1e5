"""A results folder with invented numbers in the shape of the real one, small enough to reason about.

`write` makes a whole experiment; its options take pieces away (blocks, arms, telemetry) or put hostile text in. Values
follow a simple law, so that a test can compute any of them: see `throughput`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from reckoning.files import write_json, write_table

ARMS = {
    "tp8-eager": 26.0,
    "tp8-graphs": 60.0,
    "tp8-tuned": 98.0,
    "pp8": 37.0,
    "ep8": 65.0,
    "ep4": 69.0,
    "ep8-tuned": 74.0,
    "ep4-tuned": 77.0,
    "ep8-eplb": 7.7,
    "ep8-dflash": 86.0,
    "ep8-dflash-graphs": 118.0,
    "ep4-dflash": 112.0,
    "tp8-dflash": 121.0,
}
LEVELS = (1, 32, 64, 128, 192, 256)
HOSTILE = '<script>alert("arm")</script>'
T_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}


def throughput(arm: str, level: int) -> float:
    """Return the true output tok/s of an arm: Amdahl-like growth from its single-stream speed."""
    single = ARMS.get(arm, 50.0)
    ceiling = {"ep8": 1500, "ep4": 1530, "ep8-eplb": 860, "pp8": 600, "tp8-eager": 810}.get(arm, 1270)
    return single * level / (1 + (level - 1) * single / ceiling)


def write(
    folder: Path,
    *,
    arms: Sequence[str] = tuple(ARMS),
    ran: Sequence[str] | None = None,
    levels: Sequence[int] = LEVELS,
    blocks: int = 4,
    kind: str = "synthetic",
    labels: dict[str, str] | None = None,
    telemetry: bool = False,
    log_excerpt: str = "RuntimeError: out of memory",
    distributions: bool = True,
) -> Path:
    """Write the experiment. `ran`: the arms with measurements (default all); the others failed in every block."""
    ran = list(arms if ran is None else ran)
    names = {slug: (labels or {}).get(slug, slug) for slug in arms}
    estimates = [one for arm in ran for one in _estimates(arm, levels, blocks)]
    contrasts = [
        _contrast(arm, arms[0], level, blocks) for arm in ran if arm != arms[0] for level in levels if arms[0] in ran
    ]
    findings = {
        "schema_version": 1,
        "experiment": "specimen",
        "title": "Which way of serving Kimi K2.6 is best on 8 GPUs over PCIe?",
        "provenance": {
            "kind": kind,
            "machine": "8 × RTX PRO 6000 (96 GB), PCIe 5.0" if kind != "cpu-demonstration" else "2 CPU cores",
            "measured_at": "2026-11-20T08:15:00Z",
            "note": None,
        },
        "confidence": 0.95,
        "equivalence_margin": 0.03,
        "baseline": arms[0],
        "design": {
            "blocks": blocks,
            "repeats": 2,
            "launches_planned": len(arms) * blocks,
            "launches_ok": len(ran) * blocks,
            "launches_failed": (len(arms) - len(ran)) * blocks,
            "points": len(ran) * blocks * len(levels) * 2,
            "points_rankable": len(ran) * blocks * len(levels) * 2,
            "points_excluded": 0,
            "requests": len(ran) * blocks * sum(levels) * 6,
            "requests_failed": 0,
        },
        "metrics": {
            "output_tok_s": _metric("output throughput", "tok/s", "higher"),
            "ttft_ms": _metric("time to first token", "ms", "lower"),
            "tpot_ms": _metric("time per output token", "ms", "lower"),
        },
        "workloads": [{"name": "chat", "concurrency": list(levels)}] if ran else [],
        "arms": [_arm(slug, names[slug], slug in ran, blocks, log_excerpt) for slug in arms] + _never_ran(),
        "estimates": estimates,
        "contrasts": contrasts,
        "findings": _findings(ran, names, levels, blocks),
        "recommendations": _recommendations(ran, names, levels, blocks),
        "next": [
            {"action": "blocks", "text": "Add 2 blocks.", "buys": "ep4 against ep8 becomes decidable", "cost_s": 9800}
        ],
        **_secondary(ran, arms, levels, blocks),
    }
    write_json(folder / "findings.json", findings)
    write_json(folder / "plan.json", _plan(arms, names, levels, blocks, kind))
    write_json(folder / "environment.json", _environment())
    write_json(folder / "engine.json", _engine())
    _write_tables(folder, estimates, ran if distributions else [], levels, blocks)
    for arm in ran[:1] if telemetry else ():
        _write_telemetry(folder / "launches" / arm / "block1")
    return folder


def _metric(label: str, unit: str, better: str) -> dict[str, str]:
    return {"label": label, "unit": unit, "better": better, "statistic": "mean over requests"}


def _estimates(arm: str, levels: Sequence[int], blocks: int) -> list[dict[str, Any]]:
    rows = []
    for level in levels:
        rate = throughput(arm, level)
        for metric, unit, centre in (
            ("output_tok_s", "tok/s", rate),
            ("tpot_ms", "ms", 1000 * level / rate),
            ("ttft_ms", "ms", 90 + 2.5 * level),
        ):
            values = [centre * math.exp(_noise(arm, level, block, metric)) for block in range(1, blocks + 1)]
            mean, low, high = _interval(values)
            rows.append(
                {
                    "arm": arm,
                    "workload": "chat",
                    "concurrency": level,
                    "metric": metric,
                    "unit": unit,
                    "estimate": mean,
                    "low": low,
                    "high": high,
                    "n": blocks,
                    "launches": [
                        {"block": place + 1, "value": value, "repeats": 2, "rankable": True}
                        for place, value in enumerate(values)
                    ],
                    "note": None if blocks > 1 else "single run: no interval",
                    "flags": [],
                }
            )
    return rows


def _noise(arm: str, level: int, block: int, metric: str) -> float:
    return random.Random(f"{arm} {level} {block} {metric}").gauss(0, 0.012)


def _interval(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    logs = [math.log(value) for value in values]
    mean = sum(logs) / len(logs)
    if len(logs) < 2:
        return math.exp(mean), None, None
    spread = math.sqrt(sum((one - mean) ** 2 for one in logs) / (len(logs) - 1) / len(logs))
    half = T_975[len(logs) - 1] * spread
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def _contrast(arm: str, reference: str, level: int, blocks: int) -> dict[str, Any]:
    logs = [
        math.log(throughput(arm, level) / throughput(reference, level))
        + _noise(arm, level, block, "output_tok_s")
        - _noise(reference, level, block, "output_tok_s")
        for block in range(1, blocks + 1)
    ]
    ratio, low, high = _interval([math.exp(one) for one in logs])
    decided = low is not None and (low > 1 or high < 1)
    verdict = "single-run" if low is None else ("faster" if ratio > 1 else "slower") if decided else "inconclusive"
    return {
        "arm": arm,
        "reference": reference,
        "workload": "chat",
        "concurrency": level,
        "metric": "output_tok_s",
        "family": "baseline",
        "family_size": 72,
        "ratio": ratio,
        "low": low,
        "high": high,
        "n": blocks,
        "p": 0.00004 if decided else 0.31,
        "p_holm": 0.0021 if decided else 1.0,
        "p_equivalence": None,
        "verdict": verdict,
        "note": None,
    }


def _arm(slug: str, name: str, ran: bool, blocks: int, log_excerpt: str) -> dict[str, Any]:
    failure = {
        "class": "out-of-memory",
        "stage": "loading weights",
        "cause": "the weights of one GPU do not fit",
        "evidence": "CUDA out of memory. Tried to allocate 2.00 GiB",
        "remedy": "use more GPUs per stage",
        "log_excerpt": log_excerpt,
    }
    return {
        "slug": slug,
        "name": name,
        "status": "ok" if ran else "failed",
        "reason": None if ran else "every launch failed",
        "remedy": None if ran else "see the failures",
        "why": "one factor at a time",
        "settings": {"tp_size": 8, "ep_size": 8 if slug.startswith("ep8") else 4 if slug.startswith("ep4") else 1},
        "env": {},
        "patches": [],
        "command": [
            "{python}",
            "-m",
            "sglang.launch_server",
            "--tp-size",
            "8",
            "--model-path",
            "models/kimi",
            "--port",
            "{port}",
        ],
        "launches": {"planned": blocks, "ok": blocks if ran else 0, "failed": 0 if ran else blocks, "missing": 0},
        "failures": [] if ran else [{"block": block, **failure} for block in range(1, blocks + 1)],
    }


def _never_ran() -> list[dict[str, Any]]:
    rejected = _arm("tp2-ep4", "tp2-ep4", True, 0, "")
    unavailable = _arm("ddtree", "ddtree", True, 0, "")
    return [
        {**rejected, "status": "rejected", "reason": "ep 4 does not divide tp 2", "remedy": "use ep 1 or 2"},
        {**unavailable, "status": "unavailable", "reason": "not in the pinned release", "remedy": None},
    ]


def _findings(ran: Sequence[str], names: dict[str, str], levels: Sequence[int], blocks: int) -> list[dict[str, Any]]:
    if not ran:
        return [_finding(1, "refusal", "No launch succeeded.", verdict="none", n=0, arms=[], level=None)]
    rows = []
    for rank, (level, kind) in enumerate(((levels[0], "winner-latency"), (levels[-1], "winner-throughput")), 1):
        best = max(ran, key=lambda arm: throughput(arm, level))
        text = f"{names[best]} leads at C={level} with {throughput(best, level):.0f} tok/s (n = {blocks} launches)."
        rows.append(_finding(rank, kind, text, verdict="faster", n=blocks, arms=[best], level=level))
    return rows


def _finding(
    rank: int, kind: str, text: str, *, verdict: str, n: int, arms: list[str], level: int | None
) -> dict[str, Any]:
    scope = {"arms": arms, "workload": "chat", "concurrency": level, "metric": "output_tok_s"}
    return {
        "id": f"F{rank}",
        "kind": kind,
        "rank": rank,
        "text": text,
        "effect": None,
        "low": None,
        "high": None,
        "n": n,
        "verdict": verdict,
        "scope": scope,
    }


def _recommendations(
    ran: Sequence[str], names: dict[str, str], levels: Sequence[int], blocks: int
) -> list[dict[str, Any]]:
    rows = []
    for use, level in (("latency", levels[0]), ("throughput", levels[-1])):
        ranked = sorted(ran, key=lambda arm: -throughput(arm, level))
        if not ranked:
            continue
        best = ranked[0]
        metric = "tpot_ms" if use == "latency" else "output_tok_s"
        own = next(one for one in _estimates(best, [level], blocks) if one["metric"] == metric)
        rows.append(
            {
                "use": use,
                "workload": "chat",
                "concurrency": level,
                "arm": best,
                "name": names[best],
                "command": "python -m sglang.launch_server --model-path models/kimi --tp-size 8 --port 30000",
                "metric": metric,
                "unit": own["unit"],
                "estimate": own["estimate"],
                "low": own["low"],
                "high": own["high"],
                "n": blocks,
                "certainty": "shown" if len(ranked) > 1 and blocks > 1 else "only-arm",
                "tied_with": [],
                "runner_up": _runner_up(ranked, names, level, blocks),
                "also": [],
                "text": f"{names[best]} is the best for {use}.",
            }
        )
    return rows


def _runner_up(ranked: Sequence[str], names: dict[str, str], level: int, blocks: int) -> dict[str, Any] | None:
    if len(ranked) < 2:
        return None
    contrast = _contrast(ranked[0], ranked[1], level, blocks)
    kept = {key: contrast[key] for key in ("ratio", "low", "high", "p", "verdict")}
    return {
        "arm": ranked[1],
        "name": names[ranked[1]],
        "concurrency": level,
        "estimate": throughput(ranked[1], level),
        **kept,
    }


def _secondary(ran: Sequence[str], arms: Sequence[str], levels: Sequence[int], blocks: int) -> dict[str, Any]:
    return {
        "variance": [
            {
                "arm": arm,
                "workload": "chat",
                "concurrency": level,
                "metric": "output_tok_s",
                "sigma_launch": 0.012,
                "sigma_launch_low": 0.007,
                "sigma_launch_high": 0.031,
                "sigma_repeat": 0.006,
                "sigma_repeat_low": 0.004,
                "sigma_repeat_high": 0.011,
                "ratio": 2.0,
                "method": "anova",
                "launches": blocks,
                "repeats": 2,
                "advised_repeats": 1.2,
                "note": None,
            }
            for arm in ran
            for level in levels
            if blocks > 1
        ],
        "drift": [
            {
                "metric": "output_tok_s",
                "workload": "chat",
                "slope_per_launch": -0.0002,
                "low": -0.0006,
                "high": 0.0002,
                "change_over_run": -0.01,
                "change_low": -0.03,
                "change_high": 0.01,
                "n": len(ran) * blocks,
                "p": 0.3,
                "verdict": "no-drift-seen",
                "text": "No drift seen along the run order: -1.0 % [-3.0, 1.0] from the first launch to the last.",
            }
        ]
        if ran and blocks > 1
        else [],
        "crossovers": [
            {
                "arm": "ep4",
                "reference": "tp8-tuned",
                "workload": "chat",
                "metric": "output_tok_s",
                "answer": "crosses",
                "brackets": [{"low": 32, "high": 64, "leads_below": "tp8-tuned", "leads_above": "ep4"}],
                "leader": None,
                "levels": list(levels),
                "text": "ep4 overtakes tp8-tuned between C=32 and C=64.",
            }
        ]
        if {"ep4", "tp8-tuned"} <= set(ran)
        else [],
        "factors": [_factor(level, blocks) for level in levels] if {"tp8-eager", "tp8-graphs"} <= set(ran) else [],
        "quantiles": [
            {
                "arm": arm,
                "workload": "chat",
                "concurrency": level,
                "metric": "ttft_ms",
                "unit": "ms",
                "q": q,
                "estimate": (90 + 2.5 * level) * factor,
                "low": (90 + 2.5 * level) * factor * 0.97,
                "high": (90 + 2.5 * level) * factor * 1.03,
                "n": blocks,
                "requests": level * 6 * blocks,
                "requests_min": level * 6,
                "censored": 0,
                "state": "ok",
                "note": None,
            }
            for arm in ran
            for level in (levels[0], levels[-1])
            for q, factor in ((0.5, 1.0), (0.95, 1.5))
        ],
        "speculation": [_speculation(levels, blocks)] if {"ep8", "ep8-dflash"} <= set(ran) else [],
        "published": [_published(arm, levels[-1], blocks) for arm in ran if arm in ("ep8", "ep4", "tp8-tuned")],
        "predicted": [],
        "hypotheses": [
            {
                "id": "H3",
                "text": "ep4 and ep8 are equivalent within 3 % at C=256",
                "verdict": "supported",
                "evidence": [_evidence("ep4", "ep8", 256, blocks)],
                "answer": "ep4 / ep8 = 1.02 [1.00, 1.03], inside the margin.",
            },
            {
                "id": "H6",
                "text": "DFlash raises C=1",
                "verdict": "not-tested",
                "evidence": [],
                "answer": "No DFlash arm ran.",
            },
        ],
        "sample_hours": [],
        "energy": [],
        "exclusions": [
            {
                "arm": ran[0],
                "block": 2,
                "workload": "chat",
                "concurrency": levels[-1],
                "repeat": 1,
                "metric": None,
                "reason": "achieved concurrency 84 % of the target",
            }
        ]
        if ran
        else [],
        "refusals": [] if ran else [{"code": "all-failed", "where": "chat", "text": "No launch succeeded."}],
    }


def _evidence(arm: str, reference: str, level: int, blocks: int) -> dict[str, Any]:
    contrast = _contrast(arm, reference, level, blocks)
    kept = ("arm", "reference", "workload", "concurrency", "metric", "ratio", "low", "high", "n", "p")
    return {**{key: contrast[key] for key in kept}, "holds": "yes"}


def _factor(level: int, blocks: int) -> dict[str, Any]:
    contrast = {**_contrast("tp8-graphs", "tp8-eager", level, blocks)}
    contrast.pop("family")
    head = {"factor": "cuda_graphs", "kind": "single", "from": "off", "to": "on"}
    return {**head, **contrast, "text": f"CUDA graphs at C={level}."}


def _speculation(levels: Sequence[int], blocks: int) -> dict[str, Any]:
    rows = []
    for level in levels:
        contrast = _contrast("ep8-dflash", "ep8", level, blocks)
        kept = {key: contrast[key] for key in ("concurrency", "ratio", "low", "high", "n", "verdict")}
        rows.append({**kept, "acceptance_length": 3.8, "acceptance_low": 3.6, "acceptance_high": 4.0})
    return {
        "arm": "ep8-dflash",
        "reference": "ep8",
        "workload": "chat",
        "levels": rows,
        "pays_at": [levels[0]],
        "stops": {"low": 1, "high": 32} if len(levels) > 1 else None,
        "text": "DFlash pays at C=1 and stops paying between C=1 and C=32.",
    }


def _published(arm: str, level: int, blocks: int) -> dict[str, Any]:
    published = {"ep8": 1492.5, "ep4": 1530.5, "tp8-tuned": 1263.0}[arm]
    measured = throughput(arm, level)
    return {
        "arm": arm,
        "workload": "chat",
        "concurrency": level,
        "metric": "output_tok_s",
        "unit": "tok/s",
        "published": published,
        "approximate": False,
        "measured": measured,
        "low": measured * 0.93,
        "high": measured * 1.07,
        "ratio": measured / published,
        "ratio_low": measured * 0.93 / published,
        "ratio_high": measured * 1.07 / published,
        "n": blocks,
        "verdict": "reproduced" if 0.93 < published / measured < 1.07 else "differs",
        "note": None,
    }


def _plan(arms: Sequence[str], names: dict[str, str], levels: Sequence[int], blocks: int, kind: str) -> dict[str, Any]:
    order = [
        (arm, block) for block in range(1, blocks + 1) for arm in random.Random(block).sample(list(arms), len(arms))
    ]
    cpu = kind == "cpu-demonstration"
    return {
        "schema_version": 1,
        "experiment": "specimen",
        "title": "Which way of serving Kimi K2.6 is best on 8 GPUs over PCIe?",
        "config_sha256": "5b1e" * 16,
        "seed": 20261129,
        "blocks": blocks,
        "repeats": 2,
        "baseline": arms[0],
        "engine": {"kind": "managed", "lock": "sglang-0.5.12.post1-cu130", "version": "0.5.12.post1", "patches": []},
        "machine": {"device": "cpu"} if cpu else {"device": "cuda", "gpus": 8, "gpu_name": "RTX PRO 6000"},
        "model": {
            "path": "/home/alice/models/kimi-k2.6",
            "maker": None,
            "served_name": "kimi-k2.6",
            "facts": {},
            "draft": None,
        },
        "workloads": {"chat": {"kind": "prompts", "concurrency": list(levels), "output_tokens": 2048}},
        "analysis": {"confidence": 0.95},
        "hypotheses": [],
        "arms": [
            {"name": names[arm], "slug": arm, "status": "runnable", "problems": [], "settings": {"tp_size": 8}}
            for arm in arms
        ],
        "launches": [
            {"order": place, "block": block, "arm": arm, "seed": 1000 + place, "digest": f"{place:064x}", "points": []}
            for place, (arm, block) in enumerate(order)
        ],
        "time": {"total_s": 33600, "basis": "assumed"},
    }


def _environment() -> dict[str, Any]:
    finding = {
        "code": "toolkit-headers",
        "level": "warn",
        "found": "curand.h is missing",
        "where": "/home/alice/cuda/include",
        "needed": "curand.h of CUDA 13.0",
        "why": "FlashInfer compiles its sampling kernels at the first request",
        "remedy": "apt install cuda-toolkit-13-0",
        "concerns": ["ep8-dflash"],
    }
    calm = {"code": "driver", "level": "ok", "found": "580.82", "where": "nvidia-smi", "needed": ">= 580.65.06"}
    return {"schema_version": 1, "findings": [finding, {**calm, "why": "", "remedy": "", "concerns": []}]}


def _engine() -> dict[str, Any]:
    return {
        "schema_version": 1,
        "version": "0.5.12.post1",
        "python": "/home/alice/.venv/bin/python",
        "packages": {"sglang": "0.5.12.post1", "torch": "2.11.0+cu130", "flashinfer-python": "0.6.11.post1"},
        "package_records": {"sglang": "b2" * 32, "torch": None},
        "lock": "sglang-0.5.12.post1-cu130",
        "lock_sha256": "a1" * 32,
        "overlays": {
            "set-1": {
                "path": "x",
                "patches": [
                    {
                        "id": "sglang-pp-start-layer",
                        "title": "Ask for the first layer that the stage holds",
                        "status": "applied",
                        "package": "sglang",
                        "version": "0.5.12.post1",
                        "versions": ">=0.5.9,<0.5.17",
                        "sha256": "c3" * 32,
                        "upstream": "https://github.com/sgl-project/sglang/pull/1",
                        "why": "a stage that does not hold layer 0 fails",
                        "remove_when": "0.5.23 is the oldest supported release",
                    }
                ],
            }
        },
        "arms": {"pp8": "set-1"},
    }


def _write_tables(
    folder: Path, estimates: list[dict[str, Any]], ran: Sequence[str], levels: Sequence[int], blocks: int
) -> None:
    if not estimates:
        return
    flat = pd.DataFrame(
        [{key: value for key, value in one.items() if key not in ("launches", "flags")} for one in estimates]
    )
    write_table(folder / "tables" / "estimates.parquet", flat, csv=True)
    rows = []
    for arm in ran:
        for level in (levels[0], levels[-1]):
            for metric, centre in (("ttft_ms", 90 + 2.5 * level), ("tpot_ms", 1000 * level / throughput(arm, level))):
                for block in range(1, blocks + 1):
                    scale = centre * math.exp(_noise(arm, level, block, metric))
                    for place in range(101):
                        q = place / 100
                        value = scale * math.exp(0.35 * math.tan(2.6 * (q - 0.5)) / 2)
                        rows.append((arm, "chat", level, metric, block, q, value))
    columns = ["arm", "workload", "concurrency", "metric", "block", "q", "value"]
    if rows:
        write_table(folder / "tables" / "distributions.parquet", pd.DataFrame(rows, columns=columns))


def _write_telemetry(folder: Path) -> None:
    rows = [
        {
            "at_s": float(second),
            "gpu": gpu,
            "utilisation_share": 0.98,
            "power_w": 280 + 60 * math.sin(second / 9 + gpu),
            "power_limit_w": 600.0,
            "pcie_rx_mb_s": 9000 + 4000 * math.sin(second / 5 + gpu),
            "pcie_tx_mb_s": 8000.0,
            "sm_clock_mhz": 2400.0,
            "memory_clock_mhz": 12481.0,
            "temperature_c": 61.0 + gpu,
            "memory_used_mb": 91000.0,
            "throttle_reasons": 4 * (second % 20 == 0),
            "point": 0 if second >= 100 else None,
        }
        for second in range(0, 300, 2)
        for gpu in range(8)
    ]
    write_table(folder / "telemetry.parquet", pd.DataFrame(rows).astype({"point": "Int64"}))
    host = [
        {
            "at_s": float(second),
            "point": 0 if second >= 100 else None,
            "server_cpu_cores": 9.5,
            "server_memory_mb": 41000.0,
            "server_processes": 12,
            "host_cpu_share": 0.11,
        }
        for second in range(0, 300, 2)
    ]
    write_table(folder / "host.parquet", pd.DataFrame(host).astype({"point": "Int64"}))
