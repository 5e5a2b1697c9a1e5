"""What the GPUs and the server's processes did during a launch: the job's side of the sampler, and its two tables.

Nothing here can fail a launch: telemetry that is not there is a finding, and the tables are then empty.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import pandas as pd

from reckoning.environment.diagnosis.gpus import POWER_CAP, SLOWED

from . import sampler
from .sampler import Order

STOP_WAIT_S = 2.0
LEAST_SAMPLES = 2
OTHERS_CORES, OTHERS_SHARE = 0.5, 0.1  # what other programs may keep busy: so many processors, or such a share of all
SAMPLES = "telemetry.jsonl"
ERRORS = "telemetry.log"

# Columns of telemetry.parquet and host.parquet. Unknown is null in all of them but time and GPU.
GPU_COLUMNS = {
    "at_s": "float64",
    "gpu": "int64",
    "point": "Int64",
    "utilisation_share": "float64",
    "power_w": "float64",
    "power_limit_w": "float64",
    "pcie_rx_mb_s": "float64",
    "pcie_tx_mb_s": "float64",
    "sm_clock_mhz": "float64",
    "memory_clock_mhz": "float64",
    "temperature_c": "float64",
    "memory_used_mb": "float64",
    "throttle_reasons": "Int64",
}
HOST_COLUMNS = {
    "at_s": "float64",
    "point": "Int64",
    "server_cpu_cores": "float64",
    "server_memory_mb": "float64",
    "server_processes": "Int64",
    "host_cpu_share": "float64",
}


class Sampling:
    """The sampling process of one launch, as a context manager: leaving the block ends it, whatever it is doing."""

    def __init__(self, order: Order, errors: Path) -> None:
        self.order, self.errors = order, errors
        self.trouble: str | None = None
        self._process: subprocess.Popen | None = None

    @property
    def pid(self) -> int | None:
        """The pid of the sampling process, None when it could not be started."""
        return self._process.pid if self._process else None

    def __enter__(self) -> Sampling:
        # A session of its own: Ctrl-C and the TERM of timeout(1) go to whole groups. It ends with the end of its input.
        with self.errors.open("wb") as errors:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, sampler.__file__, json.dumps(asdict(self.order))],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    start_new_session=True,
                )
            except OSError as error:
                self.trouble = f"the sampler could not be started: {error}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        if process is None or process.stdin is None:
            return
        ended = process.poll()
        with contextlib.suppress(OSError):
            process.stdin.close()
        if kind is not None:  # the launch is being interrupted: its samples are on the disk, and nobody waits for more
            process.kill()
        try:
            process.wait(STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            ended = "hung"
            process.kill()
            # A driver that hangs can hold a process beyond KILL. It must not hold the launch as well.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_WAIT_S)
        if ended is not None:
            how = "hung" if ended == "hung" else f"ended early (exit status {ended})"
            self.trouble = f"the sampler {how}{_last_words(self.errors)}"
        with contextlib.suppress(OSError):
            if self.errors.stat().st_size == 0:
                self.errors.unlink()


def _last_words(errors: Path) -> str:
    with contextlib.suppress(OSError):
        lines = errors.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((f": {line.strip()[:300]}" for line in reversed(lines) if line.strip()), "")
    return ""


@dataclass(frozen=True)
class Telemetry:
    """The samples of a launch: one row per GPU and sample, one row per sample of the host, and the sampler's notes."""

    gpus: pd.DataFrame
    host: pd.DataFrame
    notes: tuple[str, ...] = ()


def read_samples(path: Path, points: Iterable[Mapping[str, Any]]) -> Telemetry:
    """Return what a sampler left in `path`; no file gives empty tables with all columns.

    `point` is the index of the point (as in points.json) that ran when the sample was taken, null between points. A
    line that a kill cut short is left out.
    """
    kinds = {"gpu": Mapping, "host": Mapping, "note": str}
    rows: dict[str, list[Any]] = {kind: [] for kind in kinds}
    for line in _lines(path):
        for kind, what in line.items():
            if isinstance(what, kinds.get(kind, ())):
                rows[kind].append(what)
    points = list(points)
    return Telemetry(
        _table(rows["gpu"], GPU_COLUMNS, points),
        _table(rows["host"], HOST_COLUMNS, points),
        tuple(rows["note"]),
    )


def _lines(path: Path) -> Iterator[Mapping[str, Any]]:
    with contextlib.suppress(FileNotFoundError), path.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            with contextlib.suppress(ValueError):
                value = json.loads(line)
                if isinstance(value, Mapping):
                    yield value


def _table(rows: list[Any], columns: Mapping[str, str], points: list[Mapping[str, Any]]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=list(columns))
    at_s, running = table["at_s"].astype("float64"), pd.Series(pd.NA, index=table.index, dtype="Int64")
    for point in points:
        start, end = point.get("start_s"), point.get("end_s")
        if start is not None and end is not None:
            running[(at_s >= start) & (at_s <= end)] = int(point["index"])
    table["point"] = running
    return table.astype(dict(columns))


def measured_part(table: pd.DataFrame) -> pd.DataFrame:
    """Return the samples that were taken while a point was measured: what slows a start-up spoils nothing."""
    return table[table["point"].notna()]


def findings_of(telemetry: Telemetry, missing: str | None) -> Iterator[tuple[str, str, str]]:
    """Yield (code, level, text) of what a reader should know.

    `missing` says why there may be no sample of a GPU when the sampler itself does not say it; None: the server has no
    GPU or was never started, so none is missed.

    A GPU that was slowed by heat or by the hardware measures its cooling or its power supply, not the arm: a warning.
    One that its power limit held back is in its normal state under load: a note.
    """
    if missing is not None and telemetry.gpus.empty:
        why = "; ".join(telemetry.notes) or missing
        yield "no-gpu-telemetry", "note", f"utilisation, power and PCIe traffic are not known: {why}"
    elif telemetry.notes:
        yield "gpu-telemetry", "note", "; ".join(telemetry.notes)
    slowed, capped = [], []
    for gpu, own in measured_part(telemetry.gpus).groupby("gpu"):
        reasons = own["throttle_reasons"].dropna().astype("int64")
        mask = sum(SLOWED)  # the bits are disjoint
        bad = int((reasons & mask != 0).sum())
        if bad:
            names = ", ".join(name for bit, name in SLOWED.items() if (reasons & bit != 0).any())
            hottest = own["temperature_c"].max()
            heat = "" if pd.isna(hottest) else f", up to {hottest:.0f} °C"
            slowed.append(f"GPU {gpu} ({names}) in {_share(bad, len(reasons))}{heat}")
        low = int((reasons & POWER_CAP != 0).sum())
        if low:
            limit = own["power_limit_w"].max()
            watts = "" if pd.isna(limit) else f" of {limit:.0f} W"
            capped.append(f"GPU {gpu} by its limit{watts} in {_share(low, len(reasons))}")
    if slowed:
        yield "gpu-throttled", "warn", f"slowed down while points were measured: {'; '.join(slowed)}"
    if capped:
        yield "gpu-power-cap", "note", f"power held back while points were measured: {'; '.join(capped)}"


def others_at_work(
    host: pd.DataFrame, points: Iterable[Mapping[str, Any]], cores: int
) -> Iterator[tuple[str, str, str]]:
    """Yield a warning when programs other than the server and this client kept processors busy during points.

    Theirs is what all programs kept busy (`host_cpu_share` of `cores`) less the server's and the client's own, as means
    over a point. What the kernel does for the server is in it too, hence the allowance.
    """
    points, disturbed = list(points), []
    for point in points:
        own = host[host["point"].eq(point["index"]).fillna(False)][["host_cpu_share", "server_cpu_cores"]].dropna()
        if len(own) >= LEAST_SAMPLES and point.get("client_cpu_share") is not None:
            share, server = own.mean()
            others = share * cores - server - point["client_cpu_share"]
            if others > max(OTHERS_CORES, OTHERS_SHARE * cores):
                disturbed.append((others, point))
    if disturbed:
        most, point = max(disturbed, key=lambda one: one[0])
        text = (
            f"other programs kept up to {most:.1f} of {cores} processors busy while {len(disturbed)} of {len(points)} "
            f"points were measured (most at {point['workload']}, C={point['concurrency']}, repeat {point['repeat']}): "
            "these numbers may be too low; measure on a machine that does nothing else"
        )
        yield "host-busy", "warn", text


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} samples"


def remove_samples(folder: Path) -> None:
    """Remove the raw samples of an attempt."""
    for name in (SAMPLES, ERRORS):
        with contextlib.suppress(OSError):
            (folder / name).unlink()
