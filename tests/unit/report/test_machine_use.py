"""The chapter about GPUs and host: what it draws, what it says of a throttled launch, and why it may be empty."""

import io
import json
import re

import pandas as pd
import pytest

from reckoning.files import read_json, write_json, write_table
from reckoning.launch.telemetry import findings_of, read_samples
from reckoning.report import render
from reckoning.report.collect import collect
from reckoning.report.figures.telemetry import BINS, heat, measures
from reckoning.report.machine_use import gpu_table, host_table, why_no_heat_map
from reckoning.report.view import arm_rows, cast_of
from tests.unit.report import specimen

TINY = {"arms": ["ep8", "ep4"], "levels": (1, 32), "blocks": 1}
POINTS = [{"index": 0, "start_s": 20.0, "end_s": 40.0}]


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results"
    specimen.write(folder, **TINY)
    plan = read_json(folder / "plan.json")
    plan["machine"] = {**plan["machine"], "device": "cuda"}
    write_json(folder / "plan.json", plan)
    return folder


def record(folder, arm, *, gpus=(0, 1), idle=1.0, busy=1.0, missing="the sampler left no sample", **values):
    """Write a launch as the launcher does: from raw samples, one a second for a minute, through its own tables."""
    launch = folder / "launches" / arm / "block1"
    launch.mkdir(parents=True)
    rows = []
    for second in range(60):
        at_s, running = second + 0.5, 20 <= second + 0.5 <= 40
        rows.append({"host": {"at_s": at_s, "server_cpu_cores": 3.0 if running else 9.0, "server_memory_mb": 5000.0}})
        for gpu in gpus:
            told = {"power_w": 100.0 * (2 + gpu) if running else 50.0, "power_limit_w": 600.0, "throttle_reasons": 0}
            told |= {"utilisation_share": busy if running else idle, "temperature_c": 60.0 + gpu}
            told |= {key: value(second, gpu) for key, value in values.items()}
            rows.append({"gpu": {"at_s": at_s, "gpu": gpu, **told}})
    (launch / "raw").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sampled = read_samples(launch / "raw", POINTS)
    write_table(launch / "telemetry.parquet", sampled.gpus)
    write_table(launch / "host.parquet", sampled.host)
    found = [dict(zip(("code", "level", "text"), one, strict=True)) for one in findings_of(sampled, missing)]
    write_json(
        launch / "outcome.json", {"schema_version": 1, "arm": arm, "block": 1, "status": "ok", "findings": found}
    )


def chapter(folder):
    render(folder, folder.parent / "page.html")
    page = (folder.parent / "page.html").read_text()
    section = re.search(r'<section id="telemetry".*?</section>', page, re.DOTALL)[0]
    text = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", section, flags=re.DOTALL)
    return page, section, " ".join(re.sub(r"<[^>]+>", " ", text).split())


def rows_of(table):
    return [dict(zip(table.data.columns, row, strict=True)) for row in table.data.rows]


def tables(folder):
    found = collect(folder)
    cast = cast_of(found, arm_rows(found, None))
    return rows_of(gpu_table(found, cast)), rows_of(host_table(found, cast))


def test_a_row_per_launch_counts_only_what_was_sampled_while_points_ran(results):
    record(results, "ep4", busy=0.5, throttle_reasons=lambda second, gpu: 4 * (gpu == 1 and second % 2))
    (gpus,), (host,) = tables(results)
    assert gpus == {
        "arm": "ep4",
        "block": 1,
        "gpus": 2,
        "utilisation_share": 0.5,
        "power_w": pytest.approx((200 + 300) / 2),
        "temperature_c": 61.0,
        "capped_share": pytest.approx(0.25),  # every second sample of one GPU of two
        "slowed_share": 0.0,
    }
    assert (host["server_cpu_cores"], host["server_memory_gb"], host["host_cpu_share"]) == (3.0, 5.0, None)


def test_heat_maps_come_from_the_launchers_file(results):
    record(results, "ep8", pcie_rx_mb_s=lambda second, gpu: 1500.0, pcie_tx_mb_s=lambda second, gpu: None)
    _, section, text = chapter(results)
    assert re.findall(r'<figure class="figure" id="([^"]+)"', section) == ["telemetry-ep8-1"]
    csv = json.loads(re.search(r'id="data-telemetry-ep8-1">(.*?)</script>', section, re.DOTALL)[1])["csv"]
    table = pd.read_csv(io.StringIO(csv))
    assert list(table.columns) == ["gpu", "from_s", "utilisation_percent", "power_percent", "pcie_rx_gb_s"]
    assert set(table["pcie_rx_gb_s"]) == {1.5}
    assert table["power_percent"].max() == pytest.approx(50.0)  # 300 of 600 W
    assert "Blank" not in text and "No GPU" not in text


def test_a_throttled_launch_is_flagged_where_gpus_and_run_order_are_shown(results):
    record(results, "ep8")
    record(results, "ep4", throttle_reasons=lambda second, gpu: 0x60 if gpu == 1 else 0x4)
    page, _, text = chapter(results)
    assert "ep4 , block 1: slowed down while points were measured: GPU 1 (software thermal, hardware thermal)" in text
    assert "ep8 , block 1: slowed" not in text
    assert len(re.findall("ok, GPU slowed down", page)) == 1


def test_a_power_cap_is_told_and_no_fault(results):
    record(results, "ep4", throttle_reasons=lambda second, gpu: 0x4)
    page, _, text = chapter(results)
    assert "power-capped" in text and "100 %" in text.replace("\u202f", " ").replace("\xa0", " ")
    assert "warn" not in text and "GPU slowed down" not in page


def test_a_run_on_the_processor_has_the_host_and_says_why_there_is_no_gpu(results):
    plan = read_json(results / "plan.json")
    write_json(results / "plan.json", {**plan, "machine": {**plan["machine"], "device": "cpu"}})
    record(results, "ep4", gpus=(), missing=None)
    _, section, text = chapter(results)
    assert "<figure" not in section
    assert "The servers ran on the processor: there was no GPU to sample." in text
    assert "What each server took of the host" in text
    assert 'id="table-gpu-use"' not in section


def test_a_missing_driver_is_named_once(results):
    for arm in ("ep4", "ep8"):
        record(results, arm, gpus=(), missing="NVML does not answer: Driver Not Loaded")
    _, section, text = chapter(results)
    assert "<figure" not in section
    assert text.count("NVML does not answer: Driver Not Loaded") == 1


def test_gpus_that_tell_nothing_give_no_empty_heat_map(results):
    nothing = dict.fromkeys(("power_w", "power_limit_w", "utilisation_share"), lambda second, gpu: None)
    record(results, "ep4", **nothing)
    _, section, text = chapter(results)
    assert "<figure" not in section
    assert "their driver told neither utilisation nor power nor PCIe traffic" in text


def test_results_from_before_telemetry_say_so(results):
    assert why_no_heat_map(collect(results)).startswith("No GPU telemetry was recorded")


def test_a_broken_file_is_named_and_costs_only_itself(results):
    record(results, "ep4")
    (results / "launches/ep4/block1/telemetry.parquet").write_bytes(b"PAR1")
    page, _, text = chapter(results)
    assert "launches/ep4/block1/telemetry.parquet" in page
    assert "What each server took of the host" in text


@pytest.mark.parametrize(("seconds", "beat"), [(47, 1.0), (3600, 1.0), (20, 0.1), (3, 1.0), (500, 60.0)])
@pytest.mark.parametrize("jitter", [0.0, 0.3])
def test_an_even_beat_leaves_no_gap_and_the_axis_is_even(seconds, beat, jitter):
    count = int(seconds / beat)
    times = [beat * (one + jitter * (one % 2)) for one in range(count)]
    table = pd.DataFrame([(at_s + 0.04 * gpu * beat, gpu, 0.5) for at_s in times for gpu in (0, 1)])
    grid = heat(measures(table.set_axis(["at_s", "gpu", "utilisation_share"], axis=1)), "utilisation")
    assert not grid.isna().to_numpy().any()
    assert len(grid.columns) <= BINS
    steps = pd.Series(grid.columns).diff().dropna()
    assert (steps - steps.median()).abs().max() <= 0.0011 if len(steps) else True


def test_a_time_without_samples_is_a_gap_as_long_as_it_lasted():
    times = [*range(30), *range(60, 90)]
    table = pd.DataFrame({"at_s": [float(one) for one in times], "gpu": 0, "utilisation_share": 1.0})
    grid = heat(measures(table), "utilisation")
    blank = grid.columns[grid.loc[0].isna()]
    assert blank.min() == pytest.approx(30, abs=1.5) and blank.max() == pytest.approx(58.5, abs=1.5)
    assert len(blank) == pytest.approx(len(grid.columns) / 3, abs=1.5)
