"""A second opinion: SGLang's own bench_serving at chosen points of the same launch, on the same requests.

It runs from the engine's interpreter against the server that was just measured. The ratio ours / theirs of one launch
is one number; its interval over launches is the analysis' business.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from .foreign_results import read_results
from .prompts import WorkloadError, endpoint_of, prompt_sequence, read_texts
from .server import Server, ServerError
from .session import Alive, Measured, Target
from .tokenizer import find_tokenizer

SCHEMA_VERSION = 1
STARTER = Path(__file__).with_name("run_bench_serving.py")
METRICS = {  # ours -> bench_serving's name; both are means over all requests of the whole run
    "output_tok_s_whole_run": "output_throughput",
    "ttft_ms": "mean_ttft_ms",
    "tpot_ms": "mean_tpot_ms",
    "e2e_ms": "mean_e2e_latency_ms",
}


class CannotCheck(Exception):
    """Why bench_serving cannot run a point; the entry becomes `skipped` or `failed` with it."""


@dataclass(frozen=True)
class Runner:
    """How bench_serving is started: the engine's interpreter, its environment, a folder for what it leaves."""

    python: str
    folder: Path
    env: Mapping[str, str] | None = None
    timeout_s: float = 1800.0


def cross_check(
    target: Target,
    runner: Runner,
    points: Sequence[Mapping[str, Any]],
    workloads: Mapping[str, Mapping[str, Any]],
    measured: Measured,
    *,
    seed: int,
    alive: Alive = lambda: None,
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Return the content of crosscheck.json: one entry for each of `points` ({workload, concurrency}).

    Never raises for what the server or bench_serving does: an entry is `ok`, `failed` or `skipped`, with its reason.
    """
    entries = []
    for asked in points:
        name, concurrency = asked["workload"], asked["concurrency"]
        entry: dict[str, Any] = {"workload": name, "concurrency": concurrency, "status": "ok", "reason": None}
        entry |= {"metrics": {}, "client": None, "command": None, "notes": []}
        progress(f"bench_serving: {name} at C={concurrency}")
        try:
            ours = _ours(measured, name, concurrency)
            count = max(ours["requests"], concurrency)
            file = _requests_file(target, runner.folder, workloads, asked, count=count, seed=seed)
            entry["command"] = _command(target, runner, file, count, concurrency)
            theirs, entry["notes"] = _run(target, runner, entry["command"], alive)
            entry["client"] = _client(entry["command"])
            entry["metrics"] = compare(ours, theirs)
        except (WorkloadError, ServerError) as problem:
            entry |= {"status": "skipped", "reason": str(problem)}
        except CannotCheck as problem:
            entry |= {"status": "failed", "reason": str(problem)}
        entries.append(entry)
    return {"schema_version": SCHEMA_VERSION, "tool": "sglang.bench_serving", "entries": entries}


def compare(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """Return for each metric ours, theirs and ours / theirs; None where one of them is missing or zero."""
    compared = {}
    for metric, their_name in METRICS.items():
        mine, other = ours.get(metric), theirs.get(their_name)
        ratio = mine / other if mine and other else None
        compared[metric] = {"ours": mine, "theirs": other, "ratio": ratio}
    return compared


def _ours(measured: Measured, workload: str, concurrency: int) -> dict[str, Any]:
    """Our own means at this point over its repeats, from all successful requests as bench_serving takes them."""
    entries = [
        entry
        for entry in measured.points
        if (entry["workload"], entry["concurrency"], entry["status"]) == (workload, concurrency, "ok")
    ]
    if not entries:
        raise WorkloadError(f"no good point of workload {workload!r} at concurrency {concurrency} in this launch")
    rows = measured.requests
    rows = rows[
        rows.point.isin([entry["index"] for entry in entries]) & (rows.phase != "warmup") & (rows.outcome == "ok")
    ]
    rates = [entry["output_tok_s_whole_run"] for entry in entries if entry["output_tok_s_whole_run"]]
    means = {name: _mean(rows[name]) for name in METRICS if name in rows.columns}
    requests = max(sum(entry["requests"]["by_class"].values()) for entry in entries)
    return {"output_tok_s_whole_run": sum(rates) / len(rates) if rates else None, **means, "requests": requests}


def _mean(column: pd.Series) -> float | None:
    known = column.dropna()
    return float(known.mean()) if len(known) else None


def _requests_file(
    target: Target,
    folder: Path,
    workloads: Mapping[str, Mapping[str, Any]],
    asked: Mapping[str, Any],
    *,
    count: int,
    seed: int,
) -> Path:
    """Write the same requests that we sent, in the form of bench_serving's `openai` data set."""
    name, concurrency = asked["workload"], asked["concurrency"]
    workload = workloads[name]
    endpoint = endpoint_of(workload, target.kind)
    if endpoint != "chat" or workload.get("arrival", "closed") != "closed":
        raise WorkloadError("bench_serving takes the same requests only from closed-loop workloads of endpoint chat")
    server = Server(target.base_url, target.kind, target.api_key)

    def tokenizer() -> Any:
        return find_tokenizer(target.tokenizer_path, server, target.model)

    texts = read_texts(workload, endpoint, tokenizer, seed)
    fresh = f"check-{seed:x}-{concurrency}" if workload.get("fresh_prompts") else None
    prompts = prompt_sequence(texts, workload, endpoint, target.model, seed=seed, fresh_label=fresh)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-c{concurrency}-requests.jsonl"
    lines = []
    for prompt in itertools.islice(prompts, count):
        body = msgspec.json.decode(prompt.body)
        body.pop("model")
        lines.append(msgspec.json.encode(body))
    file.write_bytes(b"\n".join(lines) + b"\n")
    return file


def _command(target: Target, runner: Runner, file: Path, count: int, concurrency: int) -> list[str]:
    if target.tokenizer_path is None:
        raise WorkloadError("bench_serving needs the path of the model's tokenizer")
    result = file.with_name(file.name.replace("-requests.jsonl", "-result.jsonl"))
    result.unlink(missing_ok=True)  # it is opened for appending
    return [
        *(runner.python, str(STARTER), "--backend", "sglang-oai-chat"),
        *("--base-url", target.base_url.rstrip("/"), "--model", target.model, "--tokenizer", target.tokenizer_path),
        *("--dataset-name", "openai", "--dataset-path", str(file), "--num-prompts", str(count)),
        *("--max-concurrency", str(concurrency), "--warmup-requests", str(concurrency), "--seed", "1"),
        *("--disable-tqdm", "--output-file", str(result)),
    ]


def _run(target: Target, runner: Runner, command: Sequence[str], alive: Alive) -> tuple[dict[str, Any], list[str]]:
    """Run bench_serving in a session of its own, end it at the limit or with the server, and read what it wrote."""
    if target.kind == "sglang":
        flush = Server(target.base_url, target.kind, target.api_key).flush(60.0, alive)
        if not flush.done:
            raise CannotCheck(f"cache flush not confirmed: {flush.reason}")
    result = Path(command[-1])
    log = result.with_suffix(".log")
    env = dict(os.environ if runner.env is None else runner.env)
    if target.api_key:
        env["OPENAI_API_KEY"] = target.api_key
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env, start_new_session=True
        )
        reason = _wait(process, runner.timeout_s, alive)
    if reason is None and process.returncode != 0:
        reason = f"bench_serving ended with {process.returncode}: {_last_words(log)}"
    if reason is not None:
        raise CannotCheck(reason)
    if not result.is_file():
        raise CannotCheck(f"bench_serving wrote no result: {_last_words(log)}")
    results = read_results(result)
    if not results.rows:
        raise CannotCheck(f"bench_serving's result cannot be read: {'; '.join(results.notes)}")
    return results.rows[-1], results.notes


def _wait(process: subprocess.Popen[bytes], timeout_s: float, alive: Alive) -> str | None:
    until = time.monotonic() + timeout_s
    reason = None
    while process.poll() is None and reason is None:
        time.sleep(0.2)
        reason = alive()
        if reason is None and time.monotonic() > until:
            reason = f"bench_serving was not done within {timeout_s:g} s"
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)  # its own session: start_new_session made pid the group's number
        process.wait()
    return reason


def _client(command: Sequence[str]) -> str | None:
    """Which client ran, in its starter's words: the first line of its output."""
    lines = Path(command[-1]).with_suffix(".log").read_text(errors="replace").splitlines()
    return next((line for line in lines if " of sglang " in line), None)


def _last_words(log: Path, length: int = 400) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return " | ".join(lines[-3:])[-length:] or "(no output)"
