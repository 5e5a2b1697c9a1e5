"""The sampling process from its start to its end, and what becomes of its samples."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from reckoning.launch import telemetry
from reckoning.launch.processes import identify
from reckoning.launch.sampler import Order
from reckoning.launch.telemetry import GPU_COLUMNS, HOST_COLUMNS, Sampling, findings_of, others_at_work, read_samples
from tests.unit.launch.fake_nvml import install

POINTS = [
    {"index": 3, "start_s": 10.0, "end_s": 20.0},
    {"index": 0, "start_s": 30.0, "end_s": 40.0},
    {"index": 1, "start_s": None, "end_s": None},
]


def wait_for(condition, limit_s=20.0):
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.fixture
def with_nvml(tmp_path, monkeypatch):
    """Let processes import an invented pynvml."""

    def give(gpus, refuses=None, text=None):
        folder = install(tmp_path / "nvml", gpus, refuses)
        if text is not None:
            (tmp_path / "nvml/pynvml.py").write_text(text)
        monkeypatch.setenv("PYTHONPATH", folder)

    return give


def sampling(folder, **changes):
    order = {
        "output": str(folder / "telemetry.jsonl"),
        "zero_s": time.monotonic(),
        "every_s": 0.1,
        "root": os.getpid(),
        "ordinals": [0, 1],
    }
    return Sampling(Order(**{**order, **changes}), folder / "telemetry.log")


def lines(folder):
    path = folder / "telemetry.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def test_a_sampling_process_notes_gpus_and_host_on_the_launchs_clock(tmp_path, with_nvml):
    with_nvml([{}, {"power_mw": 5000}, {}])
    zero = time.monotonic() - 100.0
    before = time.monotonic() - zero
    with sampling(tmp_path, zero_s=zero) as running:
        process = identify(running.pid)
        wait_for(lambda: lines(tmp_path) >= 12)
    after = time.monotonic() - zero
    assert running.trouble is None
    assert not process.alive()
    found = read_samples(tmp_path / "telemetry.jsonl", [])
    assert set(found.gpus["gpu"]) == {0, 1}  # of three
    assert found.gpus[found.gpus["gpu"] == 1]["power_w"].unique() == [5.0]
    assert len(found.gpus) in (2 * len(found.host), 2 * len(found.host) - 1, 2 * len(found.host) - 2)
    for table in (found.gpus, found.host):
        assert table["at_s"].is_monotonic_increasing
        assert before <= table["at_s"].min() and table["at_s"].max() <= after
    assert found.host["at_s"].is_unique
    # This very process and its children are below `root`'s parent; below `root` there is at least the sampler.
    assert (found.host["server_processes"] >= 1).all()
    assert (found.host["server_memory_mb"] > 0).all()
    assert found.notes == ()


def test_without_a_driver_there_is_the_host_and_a_reason(tmp_path, with_nvml):
    with_nvml([], {"nvmlInit": "NVMLError_LibraryNotFound"})
    with sampling(tmp_path) as running:
        wait_for(lambda: lines(tmp_path) >= 3)
    assert running.trouble is None
    found = read_samples(tmp_path / "telemetry.jsonl", [])
    assert found.gpus.empty and len(found.host) >= 2
    ((code, level, text),) = findings_of(found, "the sampler left no sample")
    assert (code, level) == ("no-gpu-telemetry", "note")
    assert "NVML does not answer" in text


def test_a_server_on_the_processor_has_only_the_host_and_misses_nothing(tmp_path, with_nvml):
    with_nvml([{}])
    with sampling(tmp_path, ordinals=None) as running:
        wait_for(lambda: lines(tmp_path) >= 3)
    found = read_samples(tmp_path / "telemetry.jsonl", [])
    assert running.trouble is None
    assert found.gpus.empty and found.notes == () and list(findings_of(found, None)) == []


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("raise RuntimeError('no such thing')", "RuntimeError: no such thing"),
        ("import os\nos._exit(7)", "exit status 7"),
        ("import os\nos.kill(os.getpid(), 11)", "exit status -11"),
    ],
)
def test_a_sampler_that_dies_is_told_and_harms_nothing(tmp_path, with_nvml, module, words):
    with_nvml([], text=module)
    with sampling(tmp_path) as running:
        process = identify(running.pid)
        wait_for(lambda: not process.alive())
    assert "ended early" in running.trouble and words in running.trouble
    assert read_samples(tmp_path / "telemetry.jsonl", []).gpus.empty


def test_another_nvml_binding_costs_the_gpus_and_not_the_host(tmp_path, with_nvml):
    with_nvml([{}, {}])
    path = Path(os.environ["PYTHONPATH"]) / "pynvml.py"
    path.write_text(path.read_text() + "\ndel fake_nvml.FakeNvml.nvmlDeviceGetTemperature\n")
    with sampling(tmp_path) as running:
        wait_for(lambda: lines(tmp_path) >= 5)
    found = read_samples(tmp_path / "telemetry.jsonl", [])
    assert running.trouble is None
    assert found.gpus.empty and len(found.host) >= 3
    assert "nvmlDeviceGetTemperature" in found.notes[0]


def test_a_driver_that_hangs_does_not_hold_the_launch(tmp_path, with_nvml, monkeypatch):
    monkeypatch.setattr(telemetry, "STOP_WAIT_S", 0.3)
    with_nvml([], text="import time\ntime.sleep(3600)")
    with sampling(tmp_path) as running:
        process = identify(running.pid)
    assert not process.alive()
    assert "hung" in running.trouble


def test_an_interrupted_launch_does_not_wait_for_a_sample(tmp_path, with_nvml):
    with_nvml([{}])
    running = sampling(tmp_path, ordinals=[0], every_s=60.0)
    with pytest.raises(KeyboardInterrupt), running:
        process = identify(running.pid)
        wait_for(lambda: lines(tmp_path) >= 2)
        raise KeyboardInterrupt
    assert not process.alive()
    assert len(read_samples(tmp_path / "telemetry.jsonl", []).gpus) == 1


JOB = """
import json, os, sys, time
from pathlib import Path
from reckoning.launch.sampler import Order
from reckoning.launch.telemetry import Sampling
folder = Path(sys.argv[1])
order = Order(str(folder / "telemetry.jsonl"), time.monotonic(), 0.1, os.getpid(), [0])
with Sampling(order, folder / "telemetry.log") as running:
    print(running.pid, flush=True)
    time.sleep(3600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_job_leaves_its_samples_and_no_sampler(tmp_path, with_nvml, number):
    with_nvml([{}])
    scripts = str(Path(telemetry.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], scripts])}
    job = subprocess.Popen([sys.executable, "-c", JOB, str(tmp_path)], stdout=subprocess.PIPE, env=environment)
    sampler = identify(int(job.stdout.readline()))
    wait_for(lambda: lines(tmp_path) >= 6)
    job.send_signal(number)
    job.wait(20)
    job.stdout.close()
    wait_for(lambda: not sampler.alive())
    found = read_samples(tmp_path / "telemetry.jsonl", [])
    assert len(found.gpus) >= 2 and set(found.gpus["gpu"]) == {0}


def test_a_sampler_that_is_killed_leaves_its_samples(tmp_path, with_nvml):
    with_nvml([{}])
    with sampling(tmp_path, ordinals=[0]) as running:
        process = identify(running.pid)
        wait_for(lambda: lines(tmp_path) >= 6)
        os.kill(running.pid, signal.SIGKILL)
        wait_for(lambda: not process.alive())
    assert "exit status -9" in running.trouble
    assert len(read_samples(tmp_path / "telemetry.jsonl", []).gpus) >= 2


def test_no_python_no_trouble(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with sampling(tmp_path) as running:
        assert running.pid is None
    assert "could not be started" in running.trouble


def gpu_row(at_s, gpu=0, **values):
    return {"gpu": {"at_s": at_s, "gpu": gpu, **values}}


def read(tmp_path, rows, tail=""):
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + tail)
    return read_samples(path, POINTS)


def test_samples_say_which_point_ran(tmp_path):
    times = [5.0, 10.0, 15.0, 20.0, 25.0, 35.0, 41.0]
    found = read(tmp_path, [gpu_row(at_s) for at_s in times] + [{"host": {"at_s": at_s}} for at_s in times])
    for table in (found.gpus, found.host):
        assert table["at_s"].tolist() == times
        assert [None if pd.isna(point) else point for point in table["point"]] == [None, 3, 3, 3, None, 0, None]


def test_a_line_that_a_kill_cut_short_is_left_out(tmp_path):
    found = read(tmp_path, [gpu_row(1.0, power_w=1.5)], '{"gpu": {"at_s": 2.0, "gp')
    assert found.gpus["at_s"].tolist() == [1.0]
    assert read(tmp_path, [], 'null\n[1]\n{"other": 1}\n{"gpu": 3}\n\0\0\n').gpus.empty


def test_no_samples_give_empty_tables_with_all_columns(tmp_path):
    found = read_samples(tmp_path / "none", POINTS)
    assert (dict(found.gpus.dtypes.astype(str)), dict(found.host.dtypes.astype(str))) == (GPU_COLUMNS, HOST_COLUMNS)
    assert len(found.gpus) == len(found.host) == 0


def test_nulls_stay_nulls_on_the_disk(tmp_path):
    found = read(tmp_path, [gpu_row(1.0, power_w=None, throttle_reasons=None), gpu_row(2.0, power_w=0.0)])
    found.gpus.to_parquet(tmp_path / "t.parquet", index=False)
    back = pd.read_parquet(tmp_path / "t.parquet")
    assert back["power_w"].isna().tolist() == [True, False]
    assert back["throttle_reasons"].isna().tolist() == [True, True]
    assert {name: str(kind) for name, kind in back.dtypes.items()} == GPU_COLUMNS


def test_a_gpu_slowed_by_heat_while_measured_is_a_warning_and_a_power_cap_a_note(tmp_path):
    rows = [gpu_row(at_s, 0, throttle_reasons=0x4, power_limit_w=600.0) for at_s in (11.0, 12.0, 13.0)]
    rows += [gpu_row(14.0, 0, throttle_reasons=0x0, power_limit_w=600.0)]
    rows += [gpu_row(11.0, 1, throttle_reasons=0x48, temperature_c=91), gpu_row(12.0, 1, throttle_reasons=0x24)]
    rows += [gpu_row(13.0, 1, throttle_reasons=None), gpu_row(14.0, 1, throttle_reasons=0x1)]
    found = list(findings_of(read(tmp_path, rows), "x"))
    assert [(code, level) for code, level, _ in found] == [("gpu-throttled", "warn"), ("gpu-power-cap", "note")]
    assert found[0][2] == (
        "slowed down while points were measured: GPU 1 (hardware slowdown, software thermal, hardware thermal) "
        "in 2 of 3 samples, up to 91 °C"
    )
    assert found[1][2] == (
        "power held back while points were measured: GPU 0 by its limit of 600 W in 3 of 4 samples; "
        "GPU 1 by its limit in 1 of 3 samples"
    )


def test_what_slows_a_start_is_no_finding(tmp_path):
    rows = [gpu_row(at_s, throttle_reasons=0x40) for at_s in (1.0, 25.0, 99.0)]
    assert list(findings_of(read(tmp_path, rows), "x")) == []


@pytest.mark.parametrize("reasons", [0x0, 0x1, 0x2, 0x10, 0x100])
def test_idle_and_chosen_clocks_are_no_finding(tmp_path, reasons):
    assert list(findings_of(read(tmp_path, [gpu_row(11.0, throttle_reasons=reasons)]), "x")) == []


def test_missing_samples_are_told_with_what_is_known_of_the_reason(tmp_path):
    assert [text for _, _, text in findings_of(read(tmp_path, []), "limits.telemetry_s is 0")] == [
        "utilisation, power and PCIe traffic are not known: limits.telemetry_s is 0"
    ]
    note = {"note": "CUDA numbers unlike GPUs by speed"}
    assert [code for code, _, _ in findings_of(read(tmp_path, [note, gpu_row(11.0)]), "x")] == ["gpu-telemetry"]


def points_with(client_cpu_share):
    more = {"workload": "chat", "concurrency": 4, "repeat": 1, "client_cpu_share": client_cpu_share}
    return [{"index": index, **more} for index in (0, 1)]


@pytest.mark.parametrize(
    ("cores", "share", "server", "client", "others"),
    [
        (2, 0.75, 1.0, 0.3, None),  # 2 x 0.75 - 1.3 = 0.2
        (2, 1.0, 1.0, 0.3, "0.7 of 2"),
        (128, 0.1, 4.0, 0.5, None),  # 12.8 - 4.5 = 8.3, below a tenth of all
        (128, 0.2, 4.0, 0.5, "21.1 of 128"),
        (2, 1.0, None, 0.3, None),
        (2, 1.0, 1.0, None, None),
    ],
)
def test_other_programs_that_kept_processors_busy_are_a_warning(cores, share, server, client, others):
    rows = [{"point": point, "host_cpu_share": share, "server_cpu_cores": server} for point in (0, 0, 1, pd.NA)]
    host = pd.DataFrame(rows).astype({name: HOST_COLUMNS[name] for name in rows[0]})
    found = list(others_at_work(host, points_with(client), cores))
    if others is None:
        assert found == []
    else:
        [(code, level, text)] = found
        assert (code, level) == ("host-busy", "warn")
        # Point 1 has a single sample, which says nothing.
        assert f"kept up to {others} processors busy while 1 of 2 points were measured" in text
        assert "(most at chat, C=4, repeat 1)" in text
