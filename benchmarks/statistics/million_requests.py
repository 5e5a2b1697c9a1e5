"""Analyse one million request records: time and memory, beside the plain pandas way of getting a part of the result.

    python benchmarks/statistics/million_requests.py [--requests 1000000] [--gaps 64] [--folder DIR]

Writes a results folder of 5 arms x 4 blocks x 5 levels x 2 repeats with that many request rows (each with `--gaps`
chunk gaps), then runs `analyse_experiment` on it in a fresh process and the peer in another: pandas reads all requests,
groups by arm, level and launch and takes three quantiles of three latencies (no gaps, points, intervals or verdicts).
Goal: under 10 s and under 2 GB.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reckoning.analyse.synthetic import SCENARIOS, write_experiment
from reckoning.files import replacing

RUN = """
import json, resource, sys, time
begun, cpu = time.perf_counter(), time.process_time()
{work}
spent, cpu = time.perf_counter() - begun, time.process_time() - cpu
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
print(json.dumps({{"seconds": spent, "cpu": cpu, "gb": peak}}))
"""
OURS = """
from pathlib import Path
from reckoning.analyse import analyse_experiment
analyse_experiment(Path({folder!r}))
"""
PEER = """
from pathlib import Path
import pandas as pd
frames = []
for path in sorted(Path({folder!r}).glob("launches/*/block*/requests.parquet")):
    frames.append(pd.read_parquet(path).assign(arm=path.parts[-3], block=path.parts[-2]))
table = pd.concat(frames)
table = table[table["outcome"] == "ok"]
table.groupby(["arm", "workload", "concurrency", "block"])[["ttft_ms", "tpot_ms", "e2e_ms"]].quantile([0.5, 0.9, 0.99])
"""


def main() -> None:
    """Build the folder, run both in fresh processes, print the table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--gaps", type=int, default=64)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="reckoning-million-"))
    try:
        size = build(folder, given.requests, given.gaps)
        rows = sum(pq.ParquetFile(p).metadata.num_rows for p in folder.glob("launches/*/block*/requests.parquet"))
        print(f"{rows} request records, {rows * given.gaps} chunk gaps, {size / 1e9:.2f} GB of Parquet\n")
        print("| | wall s | CPU s | peak memory GB | ratio of CPU times |")
        print("|---|---|---|---|---|")
        ours, peer = run(OURS, folder), run(PEER, folder)
        for name, spent in (("reckoning.analyse, everything", ours), ("pandas: nine quantiles", peer)):
            numbers = f"{spent['seconds']:.1f} | {spent['cpu']:.1f} | {spent['gb']:.2f}"
            print(f"| {name} | {numbers} | {spent['cpu'] / ours['cpu']:.2f} |")
    finally:
        if given.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


def build(folder: Path, requests: int, gaps: int) -> int:
    """Write the folder; every launch's requests are its synthetic ones, repeated up to the wanted number."""
    few = SCENARIOS["small"]
    arms = (*few.arms, replace(few.arms[-1], slug="ep4-again"))
    write_experiment(folder, replace(few, arms=arms, blocks=4, levels=(1, 32, 64, 128, 256), gaps=False))
    paths = sorted(folder.glob("launches/*/block*/requests.parquet"))
    rng = np.random.default_rng(20260608)
    size = 0
    for path in paths:
        table = pq.read_table(path)
        wanted = requests // len(paths)
        table = table.take(pa.array(rng.integers(table.num_rows, size=wanted)))
        tpot = pc.fill_null(table["tpot_ms"], 10.0).to_numpy()
        values = (tpot[:, None] * rng.lognormal(0, 0.1, (wanted, gaps))).ravel()
        offsets = pa.array(np.arange(wanted + 1) * gaps, type=pa.int32())
        table = table.set_column(table.column_names.index("chunks"), "chunks", pa.array(np.full(wanted, gaps + 1)))
        tokens = pc.if_else(pc.is_null(table["output_tokens"]), None, pa.scalar(float(gaps + 1)))
        table = table.set_column(table.column_names.index("output_tokens"), "output_tokens", tokens)
        table = table.append_column("chunk_gap_ms", pa.ListArray.from_arrays(offsets, pa.array(values)))
        ones = pa.array(np.ones(wanted * (gaps + 1), dtype=np.int64))
        starts = pa.array(np.arange(wanted + 1) * (gaps + 1), type=pa.int32())
        table = table.append_column("chunk_tokens", pa.ListArray.from_arrays(starts, ones))
        with replacing(path) as temporary:
            pq.write_table(table, temporary)
        size += path.stat().st_size
    return size


def run(work: str, folder: Path) -> dict[str, float]:
    """Run `work` in a fresh interpreter and return its seconds and peak memory (imports included)."""
    code = RUN.format(work=work.format(folder=str(folder)))
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
