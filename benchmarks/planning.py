"""How long planning takes: the model experiment (19 arms, goal < 3 s) and a dry run of 1 000 launches (goal < 20 s).

    python benchmarks/planning.py [--runs N]

Each figure is the best of N whole processes, start of Python included. The dry run happens in a copy of the repository,
so that neither results nor locks of this one are touched. A process that only imports Snakemake is the peer: what is
above it in the dry run is ours and Snakemake's own building of 1 000 jobs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
KIMI = "config/kimi-k2.6-pro6000.yaml"


def best_of(runs: int, command: list[str], folder: Path) -> float:
    """Return the shortest wall time of `command` in seconds; it must succeed."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    plan = [sys.executable, "-m", "reckoning.plan"]
    snakemake = [sys.executable, "-m", "snakemake", "-n", "--cores", "1"]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        subprocess.run(["git", "clone", "-q", str(REPOSITORY), str(copy)], check=True)
        rows = [
            ("empty Python", best_of(runs, [sys.executable, "-c", "pass"], copy), None),
            ("import Snakemake (peer)", best_of(runs, [sys.executable, "-c", "import snakemake.api"], copy), None),
            ("plan of the default experiment", best_of(runs, [*plan, "config/config.yaml"], copy), None),
            ("plan of the model experiment, 19 arms", best_of(runs, [*plan, KIMI, "--json"], copy), 3.0),
            (
                "plan of 1 000 launches",
                best_of(runs, [*plan, "config/config.yaml", "--config", "blocks=250"], copy),
                None,
            ),
            ("dry run of the default experiment", best_of(runs, snakemake, copy), 5.0),
            ("dry run of 1 000 launches", best_of(runs, [*snakemake, "--config", "blocks=250"], copy), 20.0),
        ]
    peer = rows[1][1]
    print(f"{'what':40} {'seconds':>8} {'x peer':>7} {'goal':>6}")
    for name, seconds, goal in rows:
        print(f"{name:40} {seconds:8.2f} {seconds / peer:7.1f} {'' if goal is None else f'< {goal:g}':>6}")


if __name__ == "__main__":
    main()
