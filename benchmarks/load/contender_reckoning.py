"""One measurement by Reckoning's own client: python contender_reckoning.py URL CONCURRENCY REQUESTS. Prints JSON."""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))  # this tree, whatever is installed
from reckoning.load import Target, measure_points


def main(url: str, concurrency: int, requests: int, tokens: int) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        prompts = Path(folder) / "prompts.yaml"
        prompts.write_text("[{id: a, text: 'Count the sheep, one after the other, until you fall asleep.'}]")
        workload = {"kind": "prompts", "file": str(prompts), "output_tokens": tokens, "ignore_eos": True}
        point = {"index": 0, "workload": "w", "concurrency": concurrency, "repeat": 1, "seed": 1}
        point |= {"requests": requests, "warmup_requests": 0}
        measured = measure_points(Target(url, "truth", kind="openai"), [point], {"w": workload}, seed=1, limits={})
    record, rows = measured.points[0], measured.requests
    good = rows[rows.outcome == "ok"]
    gaps = np.concatenate(list(good.chunk_gap_ms))
    counts = np.concatenate([np.asarray(tokens[1:]) for tokens in good.chunk_tokens])
    per_token = np.repeat(gaps / counts, counts)  # tokens of one chunk share its gap
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "output_tok_s": record["output_tok_s"],
        "output_tok_s_whole_run": record["output_tok_s_whole_run"],
        "output_tokens": record["output_tokens"],
        "ttft_mean_ms": good.ttft_ms.mean(),
        "ttft_p99_ms": good.ttft_ms.quantile(0.99),
        "tpot_mean_ms": good.tpot_ms.mean(),
        "itl_p99_ms": np.quantile(per_token, 0.99),
        "chunk_gap_p99_ms": np.quantile(gaps, 0.99),
        "ok": len(good),
        "chunks": int(good.chunks.sum()),
        "hot_cpu_s": record["client_cpu_share"] * (record["end_s"] - record["start_s"]),
        "flags": record["flags"],
        "lag_p99_ms": record["client_lag_p99_ms"],
        "max_in_flight": record["max_in_flight"],
        "peak_rss_mb": usage.ru_maxrss / 1024,
    }


if __name__ == "__main__":
    url, *numbers = sys.argv[1:]
    print(json.dumps(main(url, *map(int, numbers))))
