"""python -m reckoning.load: measure any OpenAI-compatible server from the command line."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from reckoning.files import write_json, write_table

from .flags import FLAGS
from .hot_path import CannotCompile, library, why_python
from .options import faults_of, parser, points_of, workload_of
from .server import Server, ServerError
from .session import Interrupted, Measured, Target, measure_points
from .summary import number, summary_table


def find_target(options: argparse.Namespace) -> Target:
    """Return the server's kind and model as it tells them; ServerError when it cannot be reached."""
    api_key = os.environ[options.api_key_env] if options.api_key_env else None
    kind = options.kind
    if kind == "auto":
        info = Server(options.base_url, "sglang", api_key).info()
        kind = "sglang" if isinstance(info, Mapping) and "internal_states" in info else "openai"
    if kind == "openai" and options.endpoint == "generate":
        raise ServerError("--endpoint generate is SGLang's own, and this server is none; use chat or completions")
    server = Server(options.base_url, kind, api_key)
    return Target(server.base_url, options.model or server.first_model(), options.tokenizer, kind, api_key)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    screen = Console(stderr=True)
    faults = faults_of(options)
    try:
        code = library()
    except CannotCompile as problem:
        faults.append(str(problem))
    if faults:
        for fault in faults:
            tell(screen, fault, style="red")
        return 2
    try:
        target = find_target(options)
    except ServerError as error:
        tell(screen, f"{options.base_url}: {error}", style="red")
        return 2
    points = points_of(options)
    tell(screen, f"{target.base_url} ({target.kind}), model {target.model}: {len(points)} points")
    if code is None:
        tell(screen, f"The client reads in Python, at several times the CPU time of its compiled form: {why_python()}.")
    status = 0
    ended_by = _end_on_sigterm()
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
            measured, status = interrupt.measured, 128 + (signal.SIGTERM if ended_by else signal.SIGINT)
    save(options, target, measured, len(points))
    show(measured, screen)
    if status:
        tell(screen, f"interrupted: {len(measured.points)} of {len(points)} points were finished and are saved")
        return status
    failed = sum(entry["status"] != "ok" for entry in measured.points)
    return 0 if not failed else 2 if failed == len(measured.points) else 1


def tell(screen: Console, text: str, style: str | None = None) -> None:
    """Print a line as it is: words in brackets are no markup, and numbers stay in the line's colour."""
    screen.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


def _end_on_sigterm() -> list[int]:
    """Treat SIGTERM as Ctrl-C, so that finished points are kept; the list holds the signal once it has come."""
    came: list[int] = []

    def interrupt(number: int, _: object) -> None:
        came.append(number)
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGTERM, interrupt)
    return came


def show(measured: Measured, screen: Console) -> None:
    """Print the summary, and below it what the reader of a point must know: why it failed, or its flags."""
    Console().print(summary_table(measured.points, measured.requests))
    for entry in measured.points:
        name = f"C={entry['concurrency']} repeat {entry['repeat']}"
        if entry["status"] != "ok":
            tell(screen, f"{name} failed: {entry['reason']}")
            if "stream_options" in entry["reason"] or "continuous_usage_stats" in entry["reason"]:
                tell(screen, "  This server refuses to be asked for token counts: try --usage at-end or --usage none")
        for flag in entry["flags"]:
            tell(screen, f"{name}: {flag}: {FLAGS[flag]}")


def save(options: argparse.Namespace, target: Target, measured: Measured, planned: int) -> None:
    """Write what was measured; `planned` is the number of points that were to be."""
    settings = {key: value for key, value in vars(options).items() if key not in ("out", "overwrite")}
    server = {"base_url": target.base_url, "model": target.model, "kind": target.kind}
    head = {"schema_version": 1, "server": server, "options": settings, "planned_points": planned}
    write_json(options.out / "points.json", head | {"points": measured.points})
    write_table(options.out / "requests.parquet", measured.requests)


class Bars:
    """A bar for the points and one for the requests of the running point; without a terminal a line for each point."""

    def __init__(self, screen: Console, points: int) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._screen = screen
        self._progress = Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal)
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
            if not self._screen.is_terminal:
                what = event["reason"] or f"{number(event['entry']['output_tok_s'])} tok/s"
                place = f"{event['position'] + 1} of {event['of']}"
                tell(self._screen, f"{place}: {name}: {what} ({event['elapsed_s']:.0f} s)")


if __name__ == "__main__":
    sys.exit(main())
