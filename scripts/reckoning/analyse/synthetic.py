"""Synthetic experiments with a known truth, written as a results folder like a real one and marked as synthetic.

For tests of the analysis and for the gallery of reports: `python -m reckoning.analyse.synthetic NAME FOLDER`.

Model, on the log scale: throughput of a point = curve of the arm at the level + block + launch + drift * order +
repeat, all Gaussian. Requests follow from it, so that the tables agree with each other: end to end = TTFT + (tokens -
1) * TPOT.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reckoning.files import write_json, write_table


@dataclass(frozen=True)
class SyntheticArm:
    """`peak_tok_s` and `single_tok_s` fix the curve: single stream at C=1, saturating towards the peak."""

    slug: str
    single_tok_s: float
    peak_tok_s: float
    settings: Mapping[str, Any] = field(default_factory=dict)
    acceptance: float | None = None
    status: str = "runnable"
    reason: str | None = None
    name: str | None = None
    fails_in: tuple[int, ...] = ()
    missing_in: tuple[int, ...] = ()

    def throughput(self, level: int) -> float:
        """Return the true output tokens per second at a level: C * s / (1 + (C - 1) * s / peak)."""
        return level * self.single_tok_s / (1 + (level - 1) * self.single_tok_s / self.peak_tok_s)


@dataclass(frozen=True)
class Scenario:
    """A synthetic experiment. Spreads are standard deviations on the log scale; `drift` is the change per launch."""

    name: str
    arms: tuple[SyntheticArm, ...]
    levels: tuple[int, ...] = (1, 32, 64, 128, 256)
    blocks: int = 4
    repeats: int = 2
    sigma_launch: float = 0.008
    sigma_repeat: float = 0.006
    sigma_block: float = 0.01
    drift: float = 0.0
    seed: int = 20260601
    requests_per_stream: int = 3
    tokens: int = 256
    timeouts_share: float = 0.0
    energy: bool = False
    gaps: bool = False
    samples: int | None = 100_000
    hypotheses: tuple[Mapping[str, Any], ...] = ()
    published: str | None = None
    margin: float = 0.03
    title: str | None = None


def write_experiment(folder: Path, scenario: Scenario) -> Path:
    """Write `folder` as the results of the scenario (without tables and findings) and return it."""
    rng = np.random.default_rng(scenario.seed)
    runnable = [arm for arm in scenario.arms if arm.status == "runnable"]
    launches, order = [], 0
    for block in range(1, scenario.blocks + 1):
        for place in rng.permutation(len(runnable)):
            launches.append((order, block, runnable[place]))
            order += 1
    block_effects = rng.normal(0, scenario.sigma_block, scenario.blocks + 1)
    planned = []
    for place, block, arm in launches:
        points = _planned_points(scenario, rng)
        planned.append(
            {"order": place, "block": block, "arm": arm.slug, "seed": place, "digest": "0" * 8, "points": points}
        )
        effect = block_effects[block] + rng.normal(0, scenario.sigma_launch) + scenario.drift * place
        if block not in arm.missing_in:
            _write_launch(folder / "launches" / arm.slug / f"block{block}", scenario, arm, planned[-1], effect, rng)
    write_json(folder / "plan.json", _plan(scenario, planned))
    write_json(folder / "truth.json", truth(scenario))
    return folder


def truth(scenario: Scenario) -> dict[str, Any]:
    """Return the true values: throughput by arm and level, and the spreads."""
    return {
        "schema_version": 1,
        "output_tok_s": {
            arm.slug: {str(level): arm.throughput(level) for level in scenario.levels}
            for arm in scenario.arms
            if arm.status == "runnable"
        },
        "sigma_launch": math.hypot(scenario.sigma_launch, scenario.sigma_block),
        "sigma_repeat": scenario.sigma_repeat,
        "drift": scenario.drift,
    }


def _planned_points(scenario: Scenario, rng: np.random.Generator) -> list[dict[str, Any]]:
    cells = [(level, repeat) for level in scenario.levels for repeat in range(1, scenario.repeats + 1)]
    return [
        {"index": index, "workload": "chat", "concurrency": cells[place][0], "repeat": cells[place][1], "seed": index}
        for index, place in enumerate(rng.permutation(len(cells)))
    ]


def _write_launch(  # noqa: PLR0917
    folder: Path,
    scenario: Scenario,
    arm: SyntheticArm,
    planned: Mapping[str, Any],
    effect: float,
    rng: np.random.Generator,
) -> None:
    failed = planned["block"] in arm.fails_in
    start = 50.0 + 10 * rng.random()
    points, requests, clock = [], [], start
    if not failed:
        for position, point in enumerate(planned["points"]):
            entry, rows, clock = _point(scenario, arm, point, position, clock, effect, rng)
            points.append(entry)
            requests.append(rows)
    measured = clock - start
    failure = {
        "class": "out-of-memory",
        "stage": "loading weights",
        "cause": "CUDA out of memory while loading weights",
        "evidence": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.31 GiB.",
        "remedy": "spread the weights over more GPUs",
        "log_excerpt": "Load weight begin.\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.31 GiB.",
    }
    hour = 9 + planned["order"] * 0.25
    write_json(
        folder / "outcome.json",
        {
            "schema_version": 1,
            "experiment": scenario.name,
            "arm": arm.slug,
            "block": planned["block"],
            "order": planned["order"],
            "digest": planned["digest"],
            "status": "failed" if failed else "ok",
            "failure": failure if failed else None,
            "attempts": [],
            "started_at": f"2026-06-{1 + int(hour // 24):02d}T{int(hour % 24):02d}:{int(hour % 1 * 60):02d}:00+00:00",
            "durations": {
                "start_s": start,
                "warmup_s": 0.0,
                "measure_s": measured,
                "stop_s": 5.0,
                "total_s": clock + 5,
            },
            "command": [part.replace("{python}", "python").replace("{port}", "30000") for part in _command(arm)],
            "env": {},
            "port": 30000,
            "pid": None,
            "stages": [],
            "differences": [],
            "points": {"planned": len(planned["points"]), "measured": len(points), "failed": 0},
            "findings": [],
        },
    )
    if not failed:
        write_json(folder / "points.json", {"schema_version": 1, "points": points})
        write_table(folder / "requests.parquet", pd.concat(requests, ignore_index=True))


def _point(  # noqa: PLR0917
    scenario: Scenario, arm: SyntheticArm, point: Mapping[str, Any], position: int, clock: float, effect: float, rng
) -> tuple[dict[str, Any], pd.DataFrame, float]:
    level = point["concurrency"]
    speed = arm.throughput(level) * math.exp(effect + rng.normal(0, scenario.sigma_repeat))
    n = max(level, 1) * scenario.requests_per_stream
    tpot = 1000 * level / speed
    ttft = (0.05 + 0.002 * level) * 1000 * np.exp(rng.normal(0, 0.2, n) - effect)
    each = tpot * np.exp(rng.normal(0, 0.03, n))
    e2e = ttft + (scenario.tokens - 1) * each
    timed_out = rng.random(n) < scenario.timeouts_share
    duration = scenario.tokens * n / speed
    rows = pd.DataFrame(
        {
            "point": point["index"],
            "workload": "chat",
            "concurrency": level,
            "repeat": point["repeat"],
            "phase": "steady",
            "stream": np.arange(n) % level,
            "request": np.arange(n),
            "prompt_id": [f"prompt-{i % 5}" for i in range(n)],
            "outcome": np.where(timed_out, "total-timeout", "ok"),
            "http_status": 200,
            "error": None,
            "finish_reason": np.where(timed_out, None, "length"),
            "start_s": clock + np.linspace(0, duration, n),
            "first_token_s": clock + np.linspace(0, duration, n) + ttft / 1000,
            "end_s": clock + np.linspace(0, duration, n) + e2e / 1000,
            "ttft_ms": ttft,
            "tpot_ms": np.where(timed_out, np.nan, each),
            "e2e_ms": np.where(timed_out, np.nan, e2e),
            "prompt_tokens": 32,
            "cached_tokens": 0,
            "requested_tokens": scenario.tokens,
            "output_tokens": np.where(timed_out, np.nan, scenario.tokens),
            "output_tokens_source": "usage",
            "chunks": scenario.tokens,
        }
    )
    if scenario.gaps:
        few = 12
        rows["chunk_gap_ms"] = list(np.repeat(each, few).reshape(n, few) * np.exp(rng.normal(0, 0.05, (n, few))))
        rows["chunk_tokens"] = [np.ones(few + 1, dtype=int)] * n
    bad = int(timed_out.sum())
    entry = {
        "index": point["index"],
        "workload": "chat",
        "concurrency": level,
        "repeat": point["repeat"],
        "position": position,
        "status": "ok",
        "reason": None,
        "start_s": clock,
        "steady_start_s": clock + 0.1,
        "steady_end_s": clock + 0.1 + duration,
        "end_s": clock + duration + 0.5,
        "requests": {"ok": n - bad, "failed": bad, "by_class": {"ok": n - bad, "total-timeout": bad}},
        "output_tokens": scenario.tokens * (n - bad),
        "output_tok_s": speed,
        "output_tok_s_whole_run": speed * 0.97,
        "achieved_concurrency": level * 0.995,
        "realised_tokens_ratio": 1.0,
        "acceptance_length": arm.acceptance * math.exp(rng.normal(0, 0.01)) if arm.acceptance else None,
        "cached_token_share": 0.0,
        "queue_share": 0.0,
        "flags": [],
    }
    if scenario.energy:
        entry["energy_j_per_token"] = 2400 / speed * math.exp(rng.normal(0, 0.01))
    return entry, rows, clock + duration + 1.0


def _command(arm: SyntheticArm) -> list[str]:
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in arm.settings.items()]
    return ["{python}", "-m", "sglang.launch_server", "--model-path", "models/kimi-k2.6", "--port", "{port}", *flags]


def _plan(scenario: Scenario, launches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "experiment": scenario.name,
        "title": scenario.title or f"Synthetic experiment: {scenario.name}",
        "config_sha256": "0" * 64,
        "seed": scenario.seed,
        "blocks": scenario.blocks,
        "repeats": scenario.repeats,
        "baseline": scenario.arms[0].slug,
        "provenance": {
            "kind": "synthetic",
            "machine": "no machine: numbers drawn from a known truth",
            "note": "Synthetic data with a known truth: no machine was measured.",
        },
        "engine": {"kind": "managed", "lock": None, "version": "0.5.12.post1", "python": None, "patches": []},
        "machine": {"device": "cuda", "gpus": 8, "gpu_name": "synthetic", "gpu_memory_gib": 96},
        "model": {"path": "models/kimi-k2.6", "maker": None, "served_name": "kimi-k2.6", "facts": {}, "draft": None},
        "workloads": {
            "chat": {"kind": "prompts", "output_tokens": scenario.tokens, "concurrency": list(scenario.levels)}
        },
        "analysis": {
            "baseline": scenario.arms[0].slug,
            "confidence": 0.95,
            "equivalence_margin": scenario.margin,
            "samples_to_generate": scenario.samples,
        },
        "hypotheses": list(scenario.hypotheses),
        "published": scenario.published,
        "limits": {},
        "arms": [_planned_arm(arm) for arm in scenario.arms],
        "launches": list(launches),
        "time": {"total_s": None, "basis": "synthetic"},
    }


def _planned_arm(arm: SyntheticArm) -> dict[str, Any]:
    problem = {
        "rule": "synthetic",
        "level": "reject" if arm.status == "rejected" else "unavailable",
        "reason": arm.reason,
    }
    return {
        "name": arm.name or arm.slug,
        "slug": arm.slug,
        "status": arm.status,
        "problems": [{**problem, "remedy": None, "reference": None}] if arm.status != "runnable" else [],
        "settings": dict(arm.settings),
        "env": {},
        "patches": [],
        "factors": {},
        "why": None,
        "command": _command(arm),
        "memory": {},
        "time": {},
    }


def _claim(arm: str, reference: str, relation: str, at: Any, *, margin: float | None = None, ratio: float = 1.0):
    return {
        "arm": arm, "reference": reference, "workload": "chat", "metric": "output_tok_s", "relation": relation,
        "ratio": ratio, "margin": margin, "at": at,
    }  # fmt: skip


TP8 = {"tp_size": 8, "disable_cuda_graph": True}
GRAPHS = {"tp_size": 8}
_TUNED = {"tp_size": 8, "num_continuous_decode_steps": 8, "max_running_requests": 256}
KIMI_ARMS = (
    SyntheticArm("tp8-eager", 26.3, 830, TP8),
    SyntheticArm("tp8-graphs", 78, 1150, GRAPHS),
    SyntheticArm("tp8-graphs-cds8", 95, 1190, {"tp_size": 8, "num_continuous_decode_steps": 8}),
    SyntheticArm("tp8-cds8", 30, 850, {**TP8, "num_continuous_decode_steps": 8}),
    SyntheticArm("tp8-tuned", 97.9, 1300, _TUNED),
    SyntheticArm("pp8", 36.9, 640, {"tp_size": 1, "pp_size": 8}),
    SyntheticArm("ep8", 65.2, 1560, {"tp_size": 8, "ep_size": 8}),
    SyntheticArm("ep4", 66.0, 1570, {"tp_size": 8, "ep_size": 4}),
    SyntheticArm("ep8-eplb", 7.7, 880, {"tp_size": 8, "ep_size": 8, "enable_eplb": True}),
    SyntheticArm(
        "ep8-dflash",
        130,
        1146,
        {"tp_size": 8, "ep_size": 8, "speculative_algorithm": "DFLASH", "speculative_dflash_block_size": 8},
        acceptance=3.8,
    ),
    SyntheticArm(
        "tp4-ep2", 0, 0, {"tp_size": 4, "ep_size": 2}, status="rejected",
        reason="a quarter of the weights does not fit into 96 GB",
    ),
    SyntheticArm(
        "ddtree", 0, 0, {"tp_size": 8, "speculative_algorithm": "DDTREE"}, status="unavailable",
        reason="not in the pinned release",
    ),
)  # fmt: skip
HYPOTHESES = (
    {
        "id": "H1",
        "text": "ep8 and ep4 beat tp8-tuned at C >= 128",
        "claims": [_claim(arm, "tp8-tuned", "higher", [128, 256]) for arm in ("ep8", "ep4")],
    },
    {
        "id": "H2",
        "text": "CUDA graphs alone give at least 2x at C=1 on tp8",
        "claims": [_claim("tp8-graphs", "tp8-eager", "higher", [1], ratio=2.0)],
    },
    {
        "id": "H3",
        "text": "ep4 and ep8 are equivalent within 3 % at C=256",
        "claims": [_claim("ep4", "ep8", "equivalent", [256], margin=0.03)],
    },
    {
        "id": "H4",
        "text": "EPLB lowers throughput at every level",
        "claims": [_claim("ep8-eplb", "ep8", "lower", [1, 32, 64, 128, 256])],
    },
    {"id": "H7", "text": "ddtree is best at C=1", "claims": [_claim("ddtree", "tp8-tuned", "higher", [1])]},
)
_FEW = KIMI_ARMS[:1] + KIMI_ARMS[4:5] + KIMI_ARMS[6:8]
_FEWER = (1, 16, 64)
_FULL = Scenario("full", KIMI_ARMS, energy=True, gaps=True, hypotheses=HYPOTHESES)
SCENARIOS: dict[str, Scenario] = {
    s.name: s
    for s in (
        _FULL,
        Scenario("small", _FEW, levels=(1, 32, 256), blocks=3, gaps=True),
        Scenario("one-arm", KIMI_ARMS[6:7], levels=_FEWER),
        Scenario("one-block", _FEW, levels=_FEWER, blocks=1),
        Scenario("two-blocks", _FEW, levels=_FEWER, blocks=2),
        Scenario("one-level", _FEW, levels=(32,)),
        Scenario("nothing-measured", tuple(replace(a, missing_in=(1, 2, 3, 4)) for a in _FEW)),
        Scenario("all-failed", tuple(replace(a, fails_in=(1, 2, 3, 4)) for a in _FEW)),
        Scenario("baseline-failed", (replace(_FEW[0], fails_in=(1, 2, 3, 4)), *_FEW[1:]), levels=_FEWER),
        Scenario("some-failed", (*_FEW[:2], replace(_FEW[2], fails_in=(2,)), replace(_FEW[3], missing_in=(4,)))),
        Scenario("identical-arms", tuple(replace(_FEW[3], slug=f"same-{k}") for k in "abcd"), levels=_FEWER, blocks=5),
        Scenario("drifting", _FEW, levels=_FEWER, blocks=5, drift=-0.004, sigma_block=0.002),
        Scenario("noisy", _FEW, levels=_FEWER, sigma_launch=0.15, sigma_repeat=0.1),
        Scenario("zero-spread", _FEW, levels=_FEWER, sigma_launch=0, sigma_repeat=0, sigma_block=0),
        Scenario("timeouts", _FEW, timeouts_share=0.008, requests_per_stream=4),
        Scenario("single-repeat", _FEW, levels=_FEWER, repeats=1),
        Scenario(
            "hostile-names",
            (
                replace(_FEW[0], name='<script>alert("x")</script>'),
                replace(_FEW[1], name='tp8 "tuned" & more / C:\\new'),
                replace(_FEW[2], name="Module (1.1) \u00e9"),
            ),
        ),
    )
}


def main() -> None:
    """Write a named scenario into a folder."""
    parser = argparse.ArgumentParser(prog="python -m reckoning.analyse.synthetic", description=main.__doc__)
    parser.add_argument("name", choices=sorted(SCENARIOS))
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    print(write_experiment(arguments.folder, SCENARIOS[arguments.name]))


if __name__ == "__main__":
    main()
