"""python -m reckoning.load: measure any OpenAI-compatible server from the command line."""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from reckoning.files import write_json, write_table

from .flags import FLAGS
from .prompts import KINDS
from .server import Server, ServerError
from .session import Interrupted, Measured, Target, measure_points
from .summary import summary_table

OWN_PROMPTS = Path(__file__).resolve().parents[3] / "resources" / "prompts" / "chat.yaml"


def parser() -> argparse.ArgumentParser:
    """Return the command line; every option says what it is in the field's terms."""
    cli = argparse.ArgumentParser(
        prog="python -m reckoning.load",
        description="Measure a running server with a closed loop of C streams (or Poisson arrivals).",
        epilog="Exit status: 0 all points measured, 1 some failed, 2 nothing could be measured, 130 interrupted.",
    )
    cli.add_argument("--base-url", required=True, help="http://host:port of the server")
    cli.add_argument("--concurrency", required=True, type=levels, help="streams, e.g. 1,8,32")
    cli.add_argument("--out", required=True, type=Path, help="folder for points.json, requests.parquet and raw/")
    cli.add_argument("--model", help="model name; default: the first of /v1/models")
    cli.add_argument("--kind", choices=("auto", "sglang", "openai"), default="auto", help="default: ask the server")
    cli.add_argument("--api-key-env", metavar="NAME", help="environment variable that holds the API key")
    cli.add_argument("--tokenizer", metavar="PATH", help="tokenizer.json, or the model's folder")
    load = cli.add_argument_group("workload")
    load.add_argument("--workload", choices=KINDS, default="prompts")
    load.add_argument("--file", help="prompts (YAML list of id, text) or JSON lines; default: five prompts of our own")
    load.add_argument("--text-field", default="prompt", help="field of a JSON line that holds the prompt")
    load.add_argument("--input-tokens", type=positive, help="for random and long-context")
    load.add_argument("--output-tokens", type=positive, default=128)
    load.add_argument("--ignore-eos", action="store_true", help="ask for exactly --output-tokens (SGLang, vLLM)")
    load.add_argument("--temperature", type=float, default=0.0)
    load.add_argument("--endpoint", choices=("chat", "generate", "completions"))
    load.add_argument("--cached-prompts", action="store_true", help="do not flush, and do not make prompts unique")
    amount = cli.add_argument_group("amount")
    amount.add_argument("--requests-per-stream", type=positive, default=4)
    amount.add_argument("--repeats", type=positive, default=2)
    amount.add_argument("--min-duration", type=float, default=0.0, metavar="S")
    amount.add_argument("--max-duration", type=float, metavar="S")
    amount.add_argument("--request-rate", type=float, metavar="PER_S", help="Poisson arrivals; streams become the cap")
    amount.add_argument("--idle-timeout", type=float, default=300.0, metavar="S")
    amount.add_argument("--total-timeout", type=float, default=3600.0, metavar="S")
    amount.add_argument("--seed", type=int, default=1)
    amount.add_argument("--keep-raw", action="store_true", help="keep every byte and its time, compressed")
    return cli


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number >= 1")
    return value


def levels(text: str) -> list[int]:
    return sorted({positive(part) for part in text.split(",")})


def workload_of(options: argparse.Namespace, kind: str) -> dict[str, Any]:
    """Return the workload that the options describe, in the keys of an experiment's config."""
    file = options.file or (str(OWN_PROMPTS) if options.workload == "prompts" else None)
    flushed = kind == "sglang" and not options.cached_prompts
    workload = {
        "kind": options.workload,
        "file": file,
        "text_field": options.text_field,
        "input_tokens": options.input_tokens,
        "output_tokens": options.output_tokens,
        "ignore_eos": options.ignore_eos,
        "temperature": options.temperature,
        "flush": flushed,
        "fresh_prompts": not flushed and not options.cached_prompts,
        "min_duration_s": options.min_duration,
        "max_duration_s": options.max_duration,
        "keep_raw": options.keep_raw,
    }
    if options.endpoint:
        workload["endpoint"] = options.endpoint
    if options.request_rate:
        workload |= {"arrival": "poisson", "request_rate_per_s": options.request_rate}
    return workload


def points_of(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the points in an order that is shuffled from the seed, so that drift does not look like an effect."""
    points = [
        {
            "workload": "load",
            "concurrency": concurrency,
            "repeat": repeat,
            "seed": options.seed * 1000 + repeat,
            "requests": concurrency * options.requests_per_stream,
            "warmup_requests": concurrency,
        }
        for repeat in range(1, options.repeats + 1)
        for concurrency in options.concurrency
    ]
    random.Random(options.seed).shuffle(points)
    return [{"index": index, **point} for index, point in enumerate(points)]


def find_target(options: argparse.Namespace) -> Target:
    """Return the server's kind and model as it tells them; ServerError when it cannot be reached."""
    api_key = None
    if options.api_key_env:
        api_key = os.environ.get(options.api_key_env)
        if not api_key:
            raise ServerError(f"--api-key-env {options.api_key_env}: this environment variable is not set")
    kind = options.kind
    if kind == "auto":
        info = Server(options.base_url, "sglang", api_key).info()
        kind = "sglang" if isinstance(info, Mapping) and "internal_states" in info else "openai"
    server = Server(options.base_url, kind, api_key)
    model = options.model or server.first_model()
    if not model:
        raise ServerError("the server lists no model: name it with --model")
    return Target(server.base_url, model, options.tokenizer, kind, api_key)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    screen = Console(stderr=True)
    try:
        target = find_target(options)
    except ServerError as error:
        screen.print(f"[red]{options.base_url}: {error}[/red]", highlight=False)
        return 2
    points = points_of(options)
    screen.print(f"{target.base_url} ({target.kind}), model {target.model}: {len(points)} points", highlight=False)
    interrupted = False
    with Bars(screen, len(points)) as bars:
        try:
            measured = measure_points(
                target,
                points,
                {"load": workload_of(options, target.kind)},
                seed=options.seed,
                limits={"request_idle_s": options.idle_timeout, "request_total_s": options.total_timeout},
                progress=bars.show,
                raw_folder=options.out / "raw",
            )
        except Interrupted as interrupt:
            measured, interrupted = interrupt.measured, True
    save(options, target, measured)
    show(measured, screen)
    if interrupted:
        screen.print(f"interrupted: {len(measured.points)} of {len(points)} points were finished and are saved")
        return 130
    failed = sum(entry["status"] != "ok" for entry in measured.points)
    return 0 if not failed else 2 if failed == len(measured.points) else 1


def show(measured: Measured, screen: Console) -> None:
    """Print the summary, and below it what the reader of a point must know: why it failed, or its flags."""
    Console().print(summary_table(measured.points, measured.requests))
    for entry in measured.points:
        name = f"C={entry['concurrency']} repeat {entry['repeat']}"
        if entry["status"] != "ok":
            screen.print(f"{name} failed: {entry['reason']}", highlight=False, markup=False)
        for flag in entry["flags"]:
            screen.print(f"{name}: {flag}: {FLAGS[flag]}", highlight=False, markup=False)


def save(options: argparse.Namespace, target: Target, measured: Measured) -> None:
    settings = {key: value for key, value in vars(options).items() if key != "out"}
    server = {"base_url": target.base_url, "model": target.model, "kind": target.kind}
    write_json(
        options.out / "points.json",
        {"schema_version": 1, "server": server, "options": settings, "points": measured.points},
    )
    write_table(options.out / "requests.parquet", measured.requests)


class Bars:
    """A bar for the points and one for the requests of the running point."""

    def __init__(self, screen: Console, points: int) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=screen, transient=True)
        self._points = self._progress.add_task("points", total=points)
        self._requests = self._progress.add_task("requests", total=None)

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, event: dict[str, Any]) -> None:
        name = f"C={event['concurrency']} repeat {event['repeat']}"
        if event["event"] == "point-start":
            self._progress.reset(self._requests, total=event["requests"], description=name)
        self._progress.update(self._requests, completed=event["done"])
        if event["event"] == "point-end":
            self._progress.advance(self._points)


if __name__ == "__main__":
    sys.exit(main())
