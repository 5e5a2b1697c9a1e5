"""The whole workflow on SGLang itself, on this machine's CPU: tp1 and tp2 in one block, from the plan to the page."""

import json
import math

import pandas as pd
import pytest

from .conftest import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]


@pytest.fixture
def built(workspace):
    """Return a copy of the repository that builds its engine beside the repository's own, once for all."""
    (ROOT / ".engines").mkdir(exist_ok=True)
    (workspace.path / ".engines").symlink_to(ROOT / ".engines")
    return workspace


def test_two_arms_in_one_block(built, tmp_path):
    env = {"RECKONING_STATE_DIR": str(tmp_path / "state")}
    done = built.snakemake("report/findings.html", "--config", "blocks=1", "only=tp1,tp2", timeout=1100, env=env)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    results = built.path / "results/cpu"
    for arm in ("tp1", "tp2"):
        folder = results / f"launches/{arm}/block1"
        outcome = json.loads((folder / "outcome.json").read_text())
        assert outcome["status"] == "ok", outcome["failure"]
        assert not [item for item in outcome["findings"] if item["code"] == "overlay-not-proven"]
        info = json.loads((folder / "server_info.json").read_text())
        assert str(info).count("0.5.12.post1") >= 1
        points = json.loads((folder / "points.json").read_text())["points"]
        assert sorted((point["concurrency"], point["repeat"]) for point in points) == [(1, 1), (1, 2), (4, 1), (4, 2)]
        assert all(point["status"] == "ok" for point in points)
        requests = pd.read_parquet(folder / "requests.parquet")
        counted = requests[requests["phase"] != "warmup"]
        assert set(counted["outcome"]) == {"ok"}
        assert set(counted["output_tokens"]) == {16}
        assert (counted["ttft_ms"] > 0).all()
    findings = json.loads((results / "findings.json").read_text())
    estimates = [item for item in findings["estimates"] if item["metric"] == "output_tok_s"]
    assert {item["arm"] for item in estimates} == {"tp1", "tp2"}
    for item in estimates:
        assert item["n"] == 1
        assert item["low"] is None and item["high"] is None, "one launch has no interval"
        assert math.isfinite(item["estimate"]) and item["estimate"] > 0
    page = (built.path / "report/findings.html").read_text()
    assert "CPU demonstration: says nothing about GPUs" in page
