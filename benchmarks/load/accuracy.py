"""How far from the truth are load generators? Each measures a server of exactly known timing.

    python benchmarks/load/accuracy.py --peers DIR          (DIR made by peers.sh; without it: only ours)

The truth server (truth_server.c) sends the first token 100 ms after a request and then, by `--shape`, one token every
10 ms or four every 25 ms, 257 in all. The client is pinned to one core, the server to another. Results are appended to
`--results` as JSON lines, so that a run can be taken in pieces; `--document FILE` puts the table between its markers.

CPU time per event is a slope: each client runs three times at each level, with one request per stream, with several
and with one again; the mean CPU time of the short runs is taken from the long one's (whole process with its children,
parsing included) and the rest divided by the difference in events. What a client needs to start, or for its first
requests, is in neither. `floor` rows are a C program that only reads (floor_client.c): what the kernel alone takes on
this machine.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TTFT_MS, TOKENS = 100.0, 257
LONGEST_S = 120.0
EVENTS_FOR_SLOPE = 60_000
MOST_ROUNDS = 12
USAGE = '{"stream_options": {"include_usage": true}}'
MARKERS = ("<!-- accuracy table -->", "<!-- end of accuracy table -->")


@dataclass(frozen=True)
class Shape:
    """How the truth server sends: `tokens` per event after the first one, every `interval_ms`."""

    name: str
    tokens: int
    interval_ms: float

    @property
    def request_s(self) -> float:
        return (TTFT_MS + (TOKENS - 1) / self.tokens * self.interval_ms) / 1e3

    @property
    def events(self) -> int:
        return 1 + (TOKENS - 1) // self.tokens

    def true_tok_s(self, concurrency: int) -> float:
        """Streams in step, each starting its next request at once: C x 257 tokens per request time."""
        return concurrency * TOKENS / self.request_s


SHAPES = {"1x10": Shape("1x10", 1, 10.0), "4x25": Shape("4x25", 4, 25.0)}


@dataclass(frozen=True)
class Setting:
    """One measurement to be made."""

    url: str
    concurrency: int
    requests: int
    folder: Path
    tokenizer: Path
    peers: Path | None


# --- contenders: command line, and how to read what they say ------------------------------------------------------


def reckoning_command(setting: Setting) -> list[str]:
    script = str(HERE / "contender_reckoning.py")
    return [sys.executable, script, setting.url, str(setting.concurrency), str(setting.requests), str(TOKENS)]


def reckoning_result(setting: Setting, output: str) -> dict[str, float]:
    found = json.loads(output.splitlines()[-1])
    return {
        "tok_s": found["output_tok_s_whole_run"],
        "steady_tok_s": found["output_tok_s"],
        "ttft_ms": found["ttft_mean_ms"],
        "gap_p99_ms": found["chunk_gap_p99_ms"],
        "itl_p99_ms": found["itl_p99_ms"],
        "tpot_ms": found["tpot_mean_ms"],
        "completed": found["ok"],
        "in_window_cpu_s": found["hot_cpu_s"],
        "peak_rss_mb": found["peak_rss_mb"],
        "lag_p99_ms": found["lag_p99_ms"],
    }


def bench_serving_command(setting: Setting, which: str) -> list[str]:
    assert setting.peers is not None
    return [
        *(
            str(setting.peers / "venv/bin/python"),
            str(HERE / "contender_bench_serving.py"),
            str(setting.peers / "sglang"),
        ),
        *(which, "--backend", "sglang-oai-chat", "--base-url", setting.url, "--model", "truth"),
        *("--tokenizer", str(setting.tokenizer), "--dataset-name", "random-ids", "--random-input-len", "16"),
        *("--random-output-len", str(TOKENS), "--random-range-ratio", "1", "--num-prompts", str(setting.requests)),
        *("--max-concurrency", str(setting.concurrency), "--disable-tqdm", "--extra-request-body", USAGE),
        *("--output-file", str(setting.folder / "result.jsonl")),
    ]


def bench_serving_result(setting: Setting, output: str) -> dict[str, float]:
    found = json.loads((setting.folder / "result.jsonl").read_text().splitlines()[-1])
    return {
        "tok_s": found["output_throughput"],
        "ttft_ms": found["mean_ttft_ms"],
        "gap_p99_ms": found["p99_itl_ms"],
        "itl_p99_ms": found["p99_itl_ms"],
        "tpot_ms": found["mean_tpot_ms"],
        "completed": found["completed"],
    }


def aiperf_command(setting: Setting) -> list[str]:
    assert setting.peers is not None
    return [
        *(str(setting.peers / "venv/bin/aiperf"), "profile", "--model", "truth", "--url", setting.url),
        *("--endpoint-type", "chat", "--streaming", "--concurrency", str(setting.concurrency)),
        *("--request-count", str(setting.requests), "--tokenizer", str(setting.tokenizer)),
        *("--synthetic-input-tokens-mean", "16", "--synthetic-input-tokens-stddev", "0"),
        *("--output-tokens-mean", str(TOKENS), "--output-tokens-stddev", "0"),
        *("--artifact-dir", str(setting.folder), "--ui", "none"),
    ]


def aiperf_result(setting: Setting, output: str) -> dict[str, float]:
    found = json.loads((setting.folder / "profile_export_aiperf.json").read_text())
    return {
        "tok_s": found["output_token_throughput"]["avg"],
        "ttft_ms": found["time_to_first_token"]["avg"],
        "gap_p99_ms": found["inter_chunk_latency"]["p99"],
        "itl_p99_ms": found["inter_chunk_latency"]["p99"],
        "tpot_ms": found["inter_token_latency"]["avg"],
        "completed": found["request_count"]["avg"],
    }


FLOOR = "floor: reading alone, in C"
CONTENDERS = {
    "reckoning": (reckoning_command, reckoning_result),
    "bench_serving (Python)": (lambda setting: bench_serving_command(setting, "python"), bench_serving_result),
    "bench_serving (Rust)": (lambda setting: bench_serving_command(setting, "rust"), bench_serving_result),
    "aiperf": (aiperf_command, aiperf_result),
}


# --- running ------------------------------------------------------------------------------------------------------


def pin(core: int) -> list[str]:
    """The words before a command that keep it on one core."""
    return ["taskset", "-c", str(core)]


@contextlib.contextmanager
def truth_server(binary: Path, shape: Shape, place: list[str]) -> Iterator[str]:
    """Run the truth server on one core; yield its address."""
    words = [str(binary), "0", f"{TTFT_MS:g}", str(TOKENS), f"{shape.interval_ms:g}", str(shape.tokens)]
    process = subprocess.Popen([*place, *words], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait()


def get(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=10) as reply:
        return json.loads(reply.read())


def run_pinned(command: list[str], place: list[str], log: Path) -> tuple[str, float]:
    """Run a contender on one core; return its standard output and its CPU time with all its children, in seconds."""
    env = os.environ | {"TOKENIZERS_PARALLELISM": "false"}
    with log.open("wb") as errors, log.with_suffix(".out").open("wb") as output:
        process = subprocess.Popen(
            [*place, *command], stdout=output, stderr=errors, cwd=log.parent, env=env, start_new_session=True
        )
        watch = threading.Timer(LONGEST_S, os.killpg, (process.pid, signal.SIGKILL))
        watch.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            watch.cancel()
            with contextlib.suppress(ProcessLookupError):  # a client's children must not outlive it
                os.killpg(process.pid, signal.SIGKILL)
    text = log.with_suffix(".out").read_text()
    if process.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {process.returncode}: {log.read_text()[-800:]}{text[-800:]}")
    return text, usage.ru_utime + usage.ru_stime


def measure(name: str, setting: Setting, place: list[str]) -> dict[str, Any]:
    """Let one contender measure; its results, its CPU time and the truth server's account of itself."""
    command, read = CONTENDERS[name]
    setting.folder.mkdir(parents=True, exist_ok=True)
    get(setting.url + "/reset")
    output, cpu_s = run_pinned(command(setting), place, setting.folder / "log")
    return {**read(setting, output), "cpu_s": cpu_s, "truth": get(setting.url + "/truth")}


def rounds_at(level: int, least: int, shape: Shape) -> int:
    """Requests per stream of a long run: enough events for a slope, within reason."""
    return max(least, min(MOST_ROUNDS, math.ceil(EVENTS_FOR_SLOPE / (level * shape.events))))


def measure_slope(name: str, setting: Setting, rounds: int, shape: Shape, place: list[str]) -> dict[str, Any]:
    """Measure a short run, a long one and the short one again; the long one's results with the CPU time per event.

    That is the long run's CPU time less the mean of the short ones', over the difference in events: what a contender
    needs to start is in neither, as far as it is the same each time. A contender that fails is a result too: `failed`
    says how, and there are no numbers. With one stream there are too few events for a slope, and no short runs.
    """
    level, alone = setting.concurrency, setting.concurrency == 1
    counts = [rounds] if alone else [1, rounds, 1]
    try:
        runs = [
            measure(name, replace(setting, requests=level * count, folder=setting.folder / str(number)), place)
            for number, count in enumerate(counts)
        ]
    except RuntimeError as error:
        return {"failed": str(error)[-400:]}
    if alone:
        return {**runs[0], "cpu_us_per_event": None}
    first, long, last = runs
    cpu_s = [first["cpu_s"], last["cpu_s"]]
    events = (long["completed"] - first["completed"]) * shape.events
    slope_us = (long["cpu_s"] - statistics.mean(cpu_s)) / events * 1e6
    return {**long, "short_cpu_s": cpu_s, "cpu_us_per_event": slope_us}


def measure_floor(binary: Path, url: str, concurrency: int, rounds: int, place: list[str]) -> dict[str, Any]:
    """CPU time per read of a program that only reads, as sockets become ready and once a millisecond."""
    found: dict[str, Any] = {}
    for pace in ("eager", "paced"):
        words = [str(binary), url.rsplit(":", 1)[1], str(concurrency), str(rounds), pace]
        run = subprocess.run([*place, *words], check=True, capture_output=True, text=True, timeout=LONGEST_S)
        one = json.loads(run.stdout)
        found[f"{pace}_us"] = (one["kernel_s"] + one["program_s"]) / one["reads"] * 1e6
    return found


def wait_for_quiet(limit: float, longest_s: float) -> float:
    """Wait until the machine's load average is below `limit`, at most `longest_s`; return the load then."""
    until = time.monotonic() + longest_s
    while (load := os.getloadavg()[0]) > limit and time.monotonic() < until:
        time.sleep(2)
    return load


def make_tokenizer(folder: Path) -> Path:
    """A small tokenizer in the form that the peers load; they need one to make prompts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    fast = Tokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    words = ["and the sheep went over the fence, and and and one after the other"] * 9
    fast.train_from_iterator(words, trainers.BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    assert len(fast.encode(" and" * TOKENS).ids) == TOKENS  # aiperf counts the tokens of the text that it was sent
    folder.mkdir(parents=True, exist_ok=True)
    fast.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return folder


def compile_c(name: str, folder: Path) -> Path:
    """Compile one of the C programs beside this file."""
    subprocess.run(["cc", "-O2", "-o", str(folder / name), str(HERE / f"{name}.c"), "-lm"], check=True)
    return folder / name


def run(options: argparse.Namespace) -> None:
    """Make every measurement that was asked for and append it to the results file."""
    names = [name for name in CONTENDERS if name == "reckoning" or options.peers is not None]
    names = [name for name in names if not options.only or any(word in name.lower() for word in options.only)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        truth, floor = compile_c("truth_server", folder), compile_c("floor_client", folder)
        tokenizer, warm = make_tokenizer(folder / "tokenizer"), {FLOOR}
        for shape in (SHAPES[name] for name in options.shape):
            with truth_server(truth, shape, pin(options.server_core)) as url:
                plan = itertools.product(range(options.repeats), options.levels, [*names, FLOOR])
                for number, (repeat, level, name) in enumerate(plan):
                    place, rounds = pin(options.client_core), rounds_at(level, 1 + options.rounds, shape)
                    setting = Setting(url, level, level, folder / str(number), tokenizer, options.peers)
                    if name not in warm:  # what it imports is in memory from now on
                        with contextlib.suppress(RuntimeError):
                            measure(name, replace(setting, folder=folder / f"warm-{number}"), place)
                        warm.add(name)
                    load = wait_for_quiet(options.quiet, options.wait)
                    result = {"contender": name, "shape": shape.name, "concurrency": level, "repeat": repeat}
                    result |= {"load_before": load, "rounds": rounds}
                    if name == FLOOR:
                        result |= measure_floor(floor, url, level, 1 + options.rounds, place)
                    else:
                        result |= measure_slope(name, setting, rounds, shape, place)
                    with options.results.open("a") as file:
                        file.write(json.dumps(result) + "\n")
                    print(row(result), flush=True)


# --- the table ----------------------------------------------------------------------------------------------------


def errors_of(result: dict[str, Any]) -> dict[str, float]:
    """Return what is wrong with a result: throughput in %, mean TTFT in ms, p99 of the gap between chunks in ms."""
    shape = SHAPES[result["shape"]]
    true = shape.true_tok_s(result["concurrency"])
    return {
        "throughput_percent": 100 * (result["tok_s"] / true - 1),
        "ttft_ms": result["ttft_ms"] - TTFT_MS,
        "gap_p99_ms": result["gap_p99_ms"],
        "cpu_us": result["cpu_us_per_event"],
        "late_p99_ms": result["truth"]["lateness_us"]["p99"] / 1e3,
        "load": result["load_before"],
    }


def row(result: dict[str, Any]) -> str:
    start = f"{result['shape']} C={result['concurrency']:<4} {result['contender']:<23}"
    if result["contender"] == FLOOR:
        return f"{start} CPU {result['eager_us']:.1f} us/read eager, {result['paced_us']:.1f} paced"
    if "failed" in result:
        return f"{start} FAILED: {result['failed']!r}"
    found = errors_of(result)
    parts = (
        start,
        f"throughput {found['throughput_percent']:+7.2f} %",
        f"TTFT {found['ttft_ms']:+8.2f} ms",
        f"chunk gap p99 {found['gap_p99_ms']:7.2f} ms",
        "" if found["cpu_us"] is None else f"CPU {found['cpu_us']:6.1f} us/event",
        f"(server late p99 {found['late_p99_ms']:.2f} ms, load {found['load']:.2f})",
    )
    return "  ".join(parts)


HEADINGS = {
    "shape": "---",
    "C": "---:",
    "client": "---",
    "throughput error": "---:",
    "x ours": "---:",
    "TTFT error": "---:",
    "x ours ": "---:",
    "chunk gap p99": "---:",
    "CPU per event": "---:",
    "x ours  ": "---:",
    "server late p99": "---:",
    "load": "---:",
}


def table(results: list[dict[str, Any]]) -> str:
    """Return the Markdown table: medians over repeats, and each contender's error as a multiple of ours."""
    groups: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    order = [*CONTENDERS, FLOOR]
    for result in results:
        key = (result["shape"], result["concurrency"], order.index(result["contender"]))
        groups.setdefault(key, []).append(result)
    ours: dict[str, float] = {}
    lines = [f"| {' | '.join(HEADINGS)} |", f"| {' | '.join(HEADINGS.values())} |"]
    for key, group in sorted(groups.items()):
        name = order[key[2]]
        if name == FLOOR:
            cells = floor_cells(group)
        elif good := [errors_of(one) for one in group if "failed" not in one]:
            found = {column: median(one[column] for one in good) for column in good[0]}
            ours = found if name == "reckoning" else ours
            cells = error_cells(found, ours)
        else:
            cells = ["failed", *["-"] * 8]
        lines.append(f"| {' | '.join([key[0], str(key[1]), name, *cells])} |")
    return "\n".join(lines)


def median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def error_cells(found: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """The cells of one contender."""
    return [
        f"{found['throughput_percent']:+.2f} %",
        ratio(found["throughput_percent"], ours.get("throughput_percent")),
        f"{found['ttft_ms']:+.2f} ms",
        ratio(found["ttft_ms"], ours.get("ttft_ms")),
        f"{found['gap_p99_ms']:.2f} ms",
        "-" if found["cpu_us"] is None else f"{found['cpu_us']:.1f} us",
        "-" if found["cpu_us"] is None else ratio(found["cpu_us"], ours.get("cpu_us")),
        f"{found['late_p99_ms']:.2f} ms",
        f"{found['load']:.2f}",
    ]


def floor_cells(group: list[dict[str, Any]]) -> list[str]:
    eager, paced = (statistics.median(one[f"{pace}_us"] for one in group) for pace in ("eager", "paced"))
    load = statistics.median(one["load_before"] for one in group)
    return [*["-"] * 5, f"{eager:.1f} us ({paced:.1f} paced)", "-", "-", f"{load:.2f}"]


def ratio(value: float, ours: float | None) -> str:
    return "-" if ours is None or ours == 0 else f"{abs(value) / abs(ours):.1f}"


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"


def put_into(document: Path, text: str) -> None:
    """Replace what stands between the document's markers."""
    whole = document.read_text()
    before, rest = whole.split(MARKERS[0])
    _, after = rest.split(MARKERS[1])
    document.write_text(f"{before}{MARKERS[0]}\n{text}\n{MARKERS[1]}{after}")


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    cli = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    cli.add_argument("--peers", type=lambda text: Path(text).resolve(), help="folder made by peers.sh")
    cli.add_argument(
        "--only", type=lambda text: text.lower().split(","), help="contenders whose names hold one of these words"
    )
    cli.add_argument("--levels", type=numbers, default=[1, 32, 128, 256, 512])
    cli.add_argument("--shape", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    cli.add_argument("--rounds", type=int, default=3, help="requests per stream beyond the first, at least")
    cli.add_argument("--repeats", type=int, default=1)
    cli.add_argument("--client-core", type=int, default=1)
    cli.add_argument("--server-core", type=int, default=0)
    cli.add_argument("--quiet", type=float, default=0.5, help="wait for a load average below this before each run")
    cli.add_argument("--wait", type=float, default=120.0, help="at most so many seconds")
    cli.add_argument("--results", type=Path, default=Path("accuracy.jsonl"))
    cli.add_argument("--table-only", action="store_true", help="print the table of --results and measure nothing")
    cli.add_argument("--document", type=Path, help="Markdown file that gets the table")
    options = cli.parse_args()
    if not options.table_only:
        run(options)
    results = [json.loads(line) for line in options.results.read_text().splitlines()]
    text = f"{machine()}.\n\n{table(results)}"
    print(text)
    if options.document:
        put_into(options.document, text)


if __name__ == "__main__":
    main()
