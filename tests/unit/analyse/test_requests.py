"""One launch's requests: censoring, tokens per chunk, histograms of flat memory, against numpy and by hand."""

import numpy as np
import pandas as pd
import pytest

from reckoning.analyse.energy import energy_j_per_token
from reckoning.analyse.requests import read_launch_requests


def write(path, rows):
    defaults = {
        "point": 0, "workload": "chat", "concurrency": 4, "phase": "steady", "outcome": "ok", "ttft_ms": None,
        "tpot_ms": None, "e2e_ms": None, "output_tokens": None, "chunks": 0, "chunk_gap_ms": None, "chunk_tokens": None,
    }  # fmt: skip
    pd.DataFrame([defaults | row for row in rows]).to_parquet(path)
    return read_launch_requests(path)


def test_chunks_of_several_tokens(tmp_path):
    """CASE 34: chunks at 100, 140, 180, 220 ms with 1, 4, 4, 4 tokens: 10 ms per token, 40 ms per chunk."""
    row = {"chunk_gap_ms": [40.0, 40.0, 40.0], "chunk_tokens": [1, 4, 4, 4], "output_tokens": 13, "chunks": 4}
    found = write(tmp_path / "r.parquet", [row] * 20)
    assert found.points[0]["itl_ms"] == pytest.approx(10)
    assert found.points[0]["chunk_gap_ms"] == pytest.approx(40)
    assert found.quantiles["chat", 4, "itl_ms"][0].value == pytest.approx(10, rel=1e-3)
    assert found.quantiles["chat", 4, "itl_ms"][0].requests == 20 * 12
    assert found.quantiles["chat", 4, "chunk_gap_ms"][0].requests == 20 * 3


def test_unknown_tokens_per_chunk_give_no_time_per_token(tmp_path):
    row = {"chunk_gap_ms": [40.0, 40.0], "chunk_tokens": None, "output_tokens": 13, "chunks": 3}
    found = write(tmp_path / "r.parquet", [row] * 20)
    assert "itl_ms" not in found.points[0]
    assert found.points[0]["chunk_gap_ms"] == pytest.approx(40)


def test_mixed_knowledge_uses_the_known_part(tmp_path):
    known = {"chunk_gap_ms": [20.0], "chunk_tokens": [1, 2], "output_tokens": 3, "chunks": 2}
    single = {"chunk_gap_ms": [7.0], "chunk_tokens": None, "output_tokens": 2, "chunks": 2}
    unknown = {"chunk_gap_ms": [90.0], "chunk_tokens": None, "output_tokens": 9, "chunks": 2}
    found = write(tmp_path / "r.parquet", [known, single, unknown])
    assert found.points[0]["itl_ms"] == pytest.approx((10 + 10 + 7) / 3)


def chunked(gaps, tokens, point):
    """Return a row whose chunks after the first bring `tokens` each."""
    n = len(gaps)
    return {
        "chunk_gap_ms": list(gaps),
        "chunk_tokens": [1] + [tokens] * n,
        "output_tokens": 1 + tokens * n,
        "chunks": n + 1,
        "point": point,
    }


def test_gap_quantiles_are_those_of_numpy_within_a_bin(tmp_path):
    rng = np.random.default_rng(1)
    gaps = [rng.lognormal(2, 0.7, 50) for _ in range(200)]
    found = write(tmp_path / "r.parquet", [chunked(g, 1, k % 3) for k, g in enumerate(gaps)])
    values = [q.value for q in found.quantiles["chat", 4, "itl_ms"]]
    assert values == pytest.approx(list(np.quantile(np.concatenate(gaps), [0.5, 0.9, 0.99])), rel=2e-3)
    for point in range(3):
        assert found.points[point]["itl_ms"] == pytest.approx(np.mean(np.concatenate(gaps[point::3])))


def test_batches_and_whole_agree(tmp_path, monkeypatch):
    rng = np.random.default_rng(2)
    rows = [chunked(rng.lognormal(2, 1, n), 2, n % 2) for n in rng.integers(0, 9, 300)]
    whole = write(tmp_path / "r.parquet", rows)
    monkeypatch.setattr("reckoning.analyse.requests._BATCH_ROWS", 7)
    parts = read_launch_requests(tmp_path / "r.parquet")
    assert parts.points[1]["itl_ms"] == pytest.approx(whole.points[1]["itl_ms"])
    assert parts.quantiles == whole.quantiles


def test_timed_out_requests_are_censored_not_dropped(tmp_path):
    """15 of 20 answered in 1..15 ms, 5 timed out: the median is the mean of ranks 10 and 11, p90 is not known."""
    rows = [{"e2e_ms": float(k), "ttft_ms": float(k), "tpot_ms": 1.0} for k in range(1, 16)]
    rows += [{"outcome": "total-timeout", "ttft_ms": 2.5 if k == 0 else None} for k in range(5)]
    found = write(tmp_path / "r.parquet", rows * 3)
    median, p90, _ = found.quantiles["chat", 4, "e2e_ms"]
    assert (median.state, median.censored) == ("censored", 15)
    assert median.value == pytest.approx(10, abs=0.6)
    assert (p90.state, p90.value) == ("censored", None)
    ttft = found.quantiles["chat", 4, "ttft_ms"][0]
    assert ttft.censored == 12  # the first token of one in five was seen
    assert found.points[0]["e2e_ms"] == median.value


def test_only_the_steady_window_counts_and_warm_up_is_no_request(tmp_path):
    rows = [{"ttft_ms": 10.0}] * 10 + [{"ttft_ms": 500.0, "phase": p} for p in ("warmup", "ramp", "drain")]
    found = write(tmp_path / "r.parquet", rows)
    assert found.points[0]["ttft_ms"] == 10.0
    assert found.requests == 12
    assert found.failed == 0


def test_other_failures_are_counted_and_have_no_latency(tmp_path):
    rows = [{"ttft_ms": 10.0}] * 10 + [{"outcome": "http-status", "ttft_ms": 1.0}] * 5
    found = write(tmp_path / "r.parquet", rows)
    assert found.failed == 5
    assert found.quantiles["chat", 4, "ttft_ms"][0].requests == 10


def test_an_empty_table(tmp_path):
    path = tmp_path / "r.parquet"
    write(path, [{"ttft_ms": 1.0}])
    pd.read_parquet(path).iloc[:0].to_parquet(path)
    assert read_launch_requests(path).requests == 0


def test_distributions_are_a_cdf(tmp_path):
    rows = [{"ttft_ms": float(k)} for k in range(1, 102)]
    (found,) = write(tmp_path / "r.parquet", rows).distributions
    assert found.q[0] == 0
    assert found.q[-1] == 1
    assert found.values[100] == pytest.approx(51)
    assert (np.diff(found.values) >= 0).all()


POINT = {"steady_start_s": 10.0, "steady_end_s": 20.0, "output_tok_s": 50.0}


class TestEnergy:
    def test_by_hand(self):
        """Two GPUs, one at a steady 300 W, one rising from 100 to 300 W (mean 200): 500 W / 50 tok/s = 10 J/token."""
        times = np.linspace(10, 20, 11)
        frame = pd.concat(
            [
                pd.DataFrame({"at_s": times, "gpu": 0, "power_w": 300.0}),
                pd.DataFrame({"at_s": times, "gpu": 1, "power_w": np.linspace(100, 300, 11)}),
                pd.DataFrame({"at_s": [1.0, 30.0], "gpu": 0, "power_w": 9999.0}),
            ]
        )
        assert energy_j_per_token(frame, POINT) == pytest.approx(10)

    def test_a_gpu_without_samples_in_the_window_gives_none(self):
        frame = pd.DataFrame({"at_s": [11, 12, 13, 1], "gpu": [0, 0, 0, 1], "power_w": 100.0})
        assert energy_j_per_token(frame, POINT) is None

    @pytest.mark.parametrize("missing", ["steady_start_s", "output_tok_s"])
    def test_without_window_or_tokens_there_is_no_energy(self, missing):
        frame = pd.DataFrame({"at_s": [11, 12, 13], "gpu": 0, "power_w": 100.0})
        assert energy_j_per_token(frame, POINT | {missing: None}) is None
        assert energy_j_per_token(None, POINT) is None
