"""kill -9 at random moments of launches of a real engine: does the next run complete, with data of the same shape?

    python benchmarks/launch_kill.py RESULTS ARM [--kills 30] [--seed 1] [--hold "flock FILE"]

RESULTS holds plan.json and engine.json of a planned experiment (results/cpu after `snakemake --until engine`); the
launches run in a copy of it. One launch runs undisturbed and gives the reference. Then the same launch is started again
and again and its job is killed with SIGKILL at a random moment: a third of the moments lie in the start, a third in the
points, the others around readiness and in the stop. Every fifth time the guardian is killed in the same instant as
the job. After each kill the benchmark waits until no process and no port of the launch remains, or, when the guardian
is dead too, leaves that to the next run. After every ten kills a run completes, and so does the last. Prints figures;
exits with 1 when anything remained or differed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from reckoning.files import read_json, write_json
from reckoning.launch import ports, processes, reaper

MARK = "RECKONING_KILL_BENCHMARK"
PHASES = (("start", 10), ("ready", 4), ("points", 10), ("stop", 6))


@dataclass
class Run:
    """One start of the job: its progress lines with their times, from a thread of its own."""

    words: list[str]
    env: dict[str, str]
    lines: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.begun = time.monotonic()
        self.process = subprocess.Popen(
            self.words, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self.process.stderr or ():
            self.lines.append((time.monotonic() - self.begun, line.rstrip()))

    def at(self, *words: str) -> float | None:
        """When the first progress line with one of the words came, in seconds from the start."""
        return next((moment for moment, line in list(self.lines) if any(word in line for word in words)), None)


def shape(folder: Path) -> dict[str, object]:
    """Return what two launches of one plan must have in common: files, keys, columns, and requests per point."""
    requests = pd.read_parquet(folder / "requests.parquet")
    points = json.loads((folder / "points.json").read_text())["points"]
    outcome = json.loads((folder / "outcome.json").read_text())
    counted = requests[requests["phase"] != "warmup"].groupby("point").size()
    return {
        "files": sorted(path.name for path in folder.iterdir()),
        "outcome": [sorted(outcome), outcome["status"], outcome["points"]],
        "point keys": [sorted(point) for point in points],
        "points": [
            (point["index"], point["workload"], point["concurrency"], point["repeat"], point["status"])
            for point in points
        ],
        "columns": [(name, str(kind)) for name, kind in requests.dtypes.items()],
        "requests per point": {int(point): int(number) for point, number in counted.items()},
        "outcomes": sorted(requests["outcome"].unique()),
        "server_info": sorted(json.loads((folder / "server_info.json").read_text())),
    }


class Bench:
    """The launch under test and what was seen."""

    def __init__(self, results: Path, arm: str, seed: int) -> None:
        self.words = [sys.executable, "-m", "reckoning.launch", "run", str(results), arm, "1"]
        self.folder = results / "launches" / arm / "block1"
        self.env = dict(os.environ)
        self.random = random.Random(seed)
        self.faults: list[str] = []
        self.clean_s: list[float] = []
        self.killed = dict.fromkeys((name for name, _ in PHASES), 0)
        self.both = self.reaped = self.completed = self.whole = self.ended_before = 0
        self.expected: dict[str, object] | None = None

    def complete(self) -> Run:
        """Let one run complete and return it."""
        run = Run(self.words, self.env)
        run.process.wait()
        outcome = self.folder / "outcome.json"
        if run.process.returncode != 0 or not outcome.exists():
            self.faults.append(f"a run that nobody disturbed ended with {run.process.returncode}: {run.lines[-1:]}")
        else:
            self.completed += 1
            findings = json.loads(outcome.read_text())["findings"]
            self.reaped += sum(one["code"] == "abandoned-launch" for one in findings)
        self.look("after a complete run")
        return run

    def look(self, when: str) -> None:
        """Note what remains of any launch."""
        remaining = [record["label"] for record in reaper.records()]
        alive = launch_processes()
        if remaining or alive:
            self.faults.append(f"{when}: records {remaining}, processes {alive}")

    def kill(self, phase: str, reference: Run, *, guardian_too: bool) -> None:
        """Start the job and kill it at a random moment of a phase."""
        inherited = {str(record["path"]) for record in reaper.records()}, set(launch_processes())
        run = Run(self.words, self.env)
        ready, stop = reference.at("point 1 of") or 1.0, reference.at("stopping") or 2.0
        if phase == "start":
            self._sleep_until(run, None, self.random.uniform(0.2, ready))
        elif phase == "ready":
            self._sleep_until(run, ("HTTP server", "warm-up", "ready"), self.random.uniform(0, 1.5))
        elif phase == "points":
            self._sleep_until(run, ("point 1 of",), self.random.uniform(0, stop - ready))
        else:
            self._sleep_until(run, ("stopping",), self.random.uniform(0, 0.6))
        if run.process.poll() is not None:
            self.ended_before += 1
            return
        records = reaper.records()
        used = [port for record in records for port in record["ports"]]
        if guardian_too and records and records[0]["guardian"]:
            self.both += 1
            with contextlib.suppress(ProcessLookupError):
                os.kill(records[0]["guardian"][0], signal.SIGKILL)
        run.process.send_signal(signal.SIGKILL)
        run.process.wait()
        self.killed[phase] += 1
        if (self.folder / "outcome.json").exists():  # written last: then the launch must be whole
            self.whole += 1
            self.compare(f"killed in {phase} after its end")
        if not guardian_too:
            self._wait_until_clean(phase, used, inherited)

    def compare(self, when: str) -> None:
        """Note what differs from the shape of the undisturbed launch."""
        found = shape(self.folder)
        if self.expected is None:
            self.expected = found
        for key, value in self.expected.items():
            if found[key] != value:
                self.faults.append(f"{when}: {key} differs: {found[key]} != {value}")

    def _sleep_until(self, run: Run, words: tuple[str, ...] | None, offset_s: float) -> None:
        while words and run.at(*words) is None and run.process.poll() is None:
            time.sleep(0.02)
        deadline = time.monotonic() + offset_s
        while time.monotonic() < deadline and run.process.poll() is None:
            time.sleep(0.02)

    def _wait_until_clean(self, phase: str, used: list[int], inherited: tuple[set[str], set[str]]) -> None:
        """Wait until nothing of this run remains; what a run with a killed guardian left before is not its doing."""
        begun = time.monotonic()
        while (
            set(launch_processes()) - inherited[1]
            or {str(record["path"]) for record in reaper.records()} - inherited[0]
            or ports.listening(used)
        ):
            if time.monotonic() - begun > 60:
                remain = f"{launch_processes()}, ports {ports.listening(used)}, {len(reaper.records())} records"
                self.faults.append(f"killed in {phase}: after 60 s remain {remain}")
                return
            time.sleep(0.05)
        self.clean_s.append(time.monotonic() - begun)


def launch_processes() -> list[str]:
    """Return the living processes that carry the mark of a launch, or that a record names."""
    found = []
    for status in processes.all_statuses():
        with contextlib.suppress(OSError):
            environment = (processes.PROC / str(status.identity.pid) / "environ").read_bytes()
            if f"{MARK}={os.getpid()}".encode() in environment and status.state not in "ZX":
                found.append(f"{status.name} ({status.identity.pid})")
    for record in reaper.records():
        found += [
            f"{name} ({pid})" for pid, ticks, name in record["processes"] if processes.Identity(pid, ticks).alive()
        ]
    return sorted(set(found))


@contextlib.contextmanager
def held(words: str | None) -> Iterator[None]:
    """Hold something for the time of one group of runs (`flock FILE`): for machines that others use as well."""
    if not words:
        yield
        return
    holder = subprocess.Popen(
        [*shlex.split(words), "sh", "-c", "echo; read x"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout and holder.stdin
    holder.stdout.readline()
    try:
        yield
    finally:
        holder.stdin.close()
        holder.wait()


def main() -> int:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("arm")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--group", type=int, default=5, help="kills in one hold")
    parser.add_argument("--hold", help="command that holds the machine for a group of runs, such as 'flock FILE'")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="launch-kill-") as work:
        bench = Bench(marked_copy(options.results, options.arm, Path(work)), options.arm, options.seed)
        run(bench, options)
    return 1 if bench.faults else 0


def marked_copy(results: Path, arm: str, work: Path) -> Path:
    """Copy the experiment, with a variable in the arm's environment by which its processes are known."""
    plan = read_json(results / "plan.json")
    for entry in plan["arms"]:
        entry["env"] = {**entry.get("env", {}), MARK: str(os.getpid())}
    target = work / plan["experiment"]
    write_json(target / "plan.json", plan)
    shutil.copy(results / "engine.json", target)
    assert arm in {entry["slug"] for entry in plan["arms"]}, f"the plan has no arm {arm}"
    return target


def run(bench: Bench, options: argparse.Namespace) -> None:
    """Kill, complete, compare, and print the figures."""
    total = sum(weight for _, weight in PHASES)
    moments = [name for name, weight in PHASES for _ in range(round(options.kills * weight / total))]
    bench.random.shuffle(moments)
    with held(options.hold):
        reference = bench.complete()
        bench.compare("undisturbed")
    print(f"undisturbed: {time_of(bench.folder)}; requests per point {(bench.expected or {})['requests per point']}")
    for first in range(0, len(moments), options.group):
        with held(options.hold):
            for number, phase in enumerate(moments[first : first + options.group], first + 1):
                bench.kill(phase, reference, guardian_too=number % 5 == 0)
                print(f"moment {number} of {len(moments)}: in {phase}", flush=True)
            if (first + options.group) % 10 == 0 or first + options.group >= len(moments):
                reference = bench.complete()  # the machine may be quicker or slower by now
                bench.compare(f"after kill {number}")
                tries = json.loads((bench.folder / "outcome.json").read_text())["attempts"]
                print(f"completed: {time_of(bench.folder)}, attempts {[one['status'] for one in tries]}", flush=True)
    report(bench)


def time_of(folder: Path) -> str:
    """Return the durations of a launch in words."""
    durations = json.loads((folder / "outcome.json").read_text())["durations"]
    return ", ".join(f"{key.removesuffix('_s')} {value:.1f} s" for key, value in durations.items())


def report(bench: Bench) -> None:
    """Print the figures."""
    cleaned = sorted(bench.clean_s)
    print(f"kills: {sum(bench.killed.values())} {bench.killed}; guardian killed as well: {bench.both}")
    if cleaned:
        middle = cleaned[len(cleaned) // 2]
        print(
            f"until no process, record or port remained: median {middle:.2f} s, longest {cleaned[-1]:.2f} s "
            f"(n = {len(cleaned)})"
        )
    print(f"runs that ended before their moment came: {bench.ended_before}")
    print(f"killed after the outcome was written: {bench.whole}, each compared as a complete run")
    print(
        f"complete runs: {bench.completed}, of them {bench.reaped} cleared up after a launch whose guardian was killed"
    )
    print(f"faults: {len(bench.faults)}")
    for fault in bench.faults:
        print(f"  {fault}")


if __name__ == "__main__":
    sys.exit(main())
