"""Telemetry of whole launches: on the clock of the points, only of the arm's GPUs, and never the end of a launch."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pandas as pd
import pytest

from reckoning.analyse.energy import energy_j_per_token, read_telemetry
from reckoning.launch import telemetry
from tests.unit.launch.fake_nvml import install

from .test_interruption import end, job, nothing_remains, said, wait_for

SCRIPTS = str(Path(telemetry.__file__).parents[2])


@pytest.fixture
def four_gpus(tmp_path, monkeypatch):
    """Give the sampler (and a job in a process of its own) a driver with four GPUs, or with whatever is asked for."""

    def give(gpus=({}, {}, {}, {}), refuses=None, text=None):
        folder = install(tmp_path / "nvml", list(gpus), refuses)
        if text is not None:
            (tmp_path / "nvml/pynvml.py").write_text(text)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([folder, SCRIPTS]))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return give


def planned(bench, *faults, visible=None, **changes):
    plan = bench.plan(*faults, **{"telemetry_s": 0.1, "settings": {"tp_size": 2}, **changes})
    plan["machine"] = {"device": "cuda"}
    if visible is not None:
        plan["arms"][0]["env"]["CUDA_VISIBLE_DEVICES"] = visible
    return plan


def tables(bench):
    folder = bench.launch_folder
    return pd.read_parquet(folder / "telemetry.parquet"), pd.read_parquet(folder / "host.parquet")


def found(outcome, code):
    return [one["text"] for one in outcome["findings"] if one["code"] == code]


def test_samples_and_points_are_on_one_clock(bench, four_gpus):
    four_gpus()
    outcome = bench.launch(planned(bench, "trickle=0.1", levels=(1, 2)))
    assert outcome["status"] == "ok"
    gpus, host = tables(bench)
    points = json.loads((bench.launch_folder / "points.json").read_text())["points"]
    assert set(gpus["gpu"]) == {0, 1}
    for table in (gpus, host):
        assert table["at_s"].is_monotonic_increasing
        assert table["at_s"].min() >= 0 and table["at_s"].max() <= outcome["durations"]["total_s"]
        assert set(table["point"].dropna()) == {point["index"] for point in points}
        for point in points:
            at_s = table[table["point"] == point["index"]]["at_s"]
            assert point["start_s"] <= at_s.min() and at_s.max() <= point["end_s"]
        # Sampled every 0.1 s from the start of the server until it was stopped, at once after the last point.
        first, last = min(point["start_s"] for point in points), max(point["end_s"] for point in points)
        assert table["at_s"].min() < first and table["at_s"].max() > last - 0.2
    energies = [(energy_j_per_token(read_telemetry(bench.launch_folder), point), point) for point in points]
    told = [(energy, point) for energy, point in energies if energy is not None]  # a short window has too few samples
    assert told
    for energy, point in told:
        assert energy == pytest.approx(2 * 312.5 / point["output_tok_s"])
    assert (gpus["power_w"] == 312.5).all() and (gpus["pcie_rx_mb_s"] == 9876.543).all()
    assert host["server_processes"].max() >= 1 and host["server_memory_mb"].max() > 0
    attempt = bench.launch_folder / "attempts/1"
    assert sorted(path.name for path in attempt.glob("telemetry*")) == []


def test_the_arms_own_choice_of_gpus_is_followed(bench, four_gpus):
    four_gpus()
    bench.launch(planned(bench, visible="3,1,0", levels=(1,)))
    assert set(tables(bench)[0]["gpu"]) == {3, 1}


def test_a_throttled_launch_says_so(bench, four_gpus):
    four_gpus([{}, {"reasons": 0x40, "celsius": 93}])
    outcome = bench.launch(planned(bench, "trickle=0.1", levels=(1,)))
    (text,) = found(outcome, "gpu-throttled")
    assert "GPU 1 (hardware thermal)" in text and "93 °C" in text and "GPU 0" not in text
    assert [one["level"] for one in outcome["findings"] if one["code"] == "gpu-throttled"] == ["warn"]
    assert outcome["status"] == "ok"


BROKEN = {
    "no driver": ({"refuses": {"nvmlInit": "NVMLError_DriverNotLoaded"}}, "no-gpu-telemetry"),
    "dies at once": ({"text": "import os\nos._exit(3)"}, "telemetry-incomplete"),
    "hangs": ({"text": "import time\ntime.sleep(3600)"}, "telemetry-incomplete"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_no_sampler_can_fail_a_launch(bench, four_gpus, monkeypatch, name):
    monkeypatch.setattr(telemetry, "STOP_WAIT_S", 0.5)
    options, code = BROKEN[name]
    four_gpus(**options)
    outcome = bench.launch(planned(bench, levels=(1,)))
    assert outcome["status"] == "ok"
    assert outcome["points"]["measured"] == 1
    assert found(outcome, code) and found(outcome, "no-gpu-telemetry")
    assert tables(bench)[0].empty


def test_sampling_can_be_switched_off(bench, four_gpus):
    four_gpus()
    outcome = bench.launch(planned(bench, levels=(1,), telemetry_s=0))
    assert [table.empty for table in tables(bench)] == [True, True]
    assert "limits.telemetry_s is 0" in found(outcome, "no-gpu-telemetry")[0]


def test_a_server_without_gpus_has_samples_of_the_host_alone(bench, four_gpus):
    four_gpus()
    plan = planned(bench, levels=(1,))
    plan["machine"] = {"device": "cpu"}
    outcome = bench.launch(plan)
    gpus, host = tables(bench)
    assert gpus.empty and list(gpus.columns) == list(telemetry.GPU_COLUMNS)
    assert len(host) > 1
    assert not [one for one in outcome["findings"] if "telemetry" in one["code"]]


def test_an_arm_that_never_starts_misses_no_samples(bench, four_gpus):
    four_gpus()
    plan = planned(bench, levels=(1,))
    plan["arms"][0]["command"][0] = "/nowhere/python"
    outcome = bench.launch(plan)
    assert outcome["failure"]["class"] == "not-started"
    assert not [one for one in outcome["findings"] if "telemetry" in one["code"]]
    assert [table.empty for table in tables(bench)] == [True, True]


def test_a_killed_launch_leaves_the_samples_that_it_took(bench, four_gpus):
    four_gpus()
    process = job(bench, planned(bench, "trickle=0.2", "escape-at-once"))
    said(process, "point 1 of 2")
    left = bench.launch_folder / "attempts/1" / telemetry.SAMPLES
    wait_for(lambda: len(telemetry.read_samples(left, []).gpus) >= 6)
    end(process, signal.SIGKILL)
    nothing_remains(bench)
    kept = telemetry.read_samples(left, [])
    assert set(kept.gpus["gpu"]) == {0, 1} and len(kept.host) >= 3
    assert not (bench.launch_folder / "telemetry.parquet").exists()
    assert bench.launch(planned(bench, levels=(1,)))["status"] == "ok"
    assert left.exists()  # evidence, beside the log of the interrupted attempt
    gpus, _ = tables(bench)
    assert gpus["at_s"].iloc[0] <= gpus["at_s"].iloc[-1]
