"""The recorded experiment on two H200, against arithmetic done here and what the server itself reported."""

import json
import re

import numpy as np
import pytest
from scipy import stats

from reckoning.experiment import read_file
from reckoning.plan import make_plan, plan_to_json
from reckoning.report import render

from .conftest import ROOT

RECORDING = ROOT / "resources/recordings/kimi-slice-h200x2"
LOG = ROOT / "tests/data/serverlogs/recorded/gpu-healthy-tp2-ep2.log"


def launch_logs(arm: str, concurrency: int) -> np.ndarray:
    """Return, for each launch of an arm, the mean over its repeats of the logarithm of output tok/s."""
    means = []
    for path in sorted((RECORDING / "launches" / arm).glob("block*/points.json")):
        points = [point for point in json.loads(path.read_text())["points"] if point["concurrency"] == concurrency]
        means.append(np.mean([np.log(point["output_tok_s"]) for point in points]))
    return np.array(means)


@pytest.mark.parametrize("arm", ["tp2-eager", "tp2", "tp2-ep2", "pp2"])
@pytest.mark.parametrize("concurrency", [1, 32])
def test_intervals_are_student_t_on_launch_means(arm, concurrency):
    logs = launch_logs(arm, concurrency)
    low, high = stats.t.interval(0.95, len(logs) - 1, logs.mean(), stats.sem(logs))
    findings = json.loads((RECORDING / "findings.json").read_text())
    (found,) = (
        item
        for item in findings["estimates"]
        if (item["arm"], item["concurrency"], item["metric"]) == (arm, concurrency, "output_tok_s")
    )
    assert [found["estimate"], found["low"], found["high"]] == pytest.approx(np.exp([logs.mean(), low, high]), rel=1e-9)
    assert found["n"] == 3


def test_the_effect_of_cuda_graphs_is_the_paired_ratio():
    differences = launch_logs("tp2", 1) - launch_logs("tp2-eager", 1)
    findings = json.loads((RECORDING / "findings.json").read_text())
    (found,) = (
        item
        for item in findings["contrasts"]
        if {item["arm"], item["reference"]} == {"tp2", "tp2-eager"}
        and (item["family"], item["metric"], item["concurrency"]) == ("baseline", "output_tok_s", 1)
    )
    sign = 1 if found["arm"] == "tp2" else -1
    assert found["ratio"] == pytest.approx(np.exp(sign * differences.mean()), rel=1e-9)


def test_the_memory_model_agrees_with_what_the_server_reported():
    reported = float(re.search(r"Load weight end.*?mem usage=([\d.]+) GB", LOG.read_text()).group(1))
    plan = plan_to_json(make_plan(read_file(ROOT / "config/kimi-k2.6-slice-h200x2.yaml")))
    (arm,) = (arm for arm in plan["arms"] if arm["slug"] == "tp2-ep2")
    assert arm["memory"]["weights_gib"] == pytest.approx(reported, rel=0.03)


def test_it_renders_as_a_recording(tmp_path):
    render(RECORDING, tmp_path / "findings.html")
    page = (tmp_path / "findings.html").read_text()
    assert "Recording of an earlier run" in page
    assert "CPU demonstration" not in page
    assert not re.search(r">\s*(nan|inf)\b", page, re.IGNORECASE)
