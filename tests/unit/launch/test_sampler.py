"""What the sampler makes of NVML's answers and of /proc: units, nulls, and whose GPUs and processes are looked at."""

import sys

import pynvml
import pytest

from reckoning.launch import processes, sampler
from reckoning.launch.sampler import Gpu, GpuReader, HostReader, Order, chosen_gpus, open_gpus
from reckoning.plan.devices import ordinals_of
from tests.unit.launch.fake_nvml import FakeNvml


def order(**changes):
    return Order(**{"output": "", "zero_s": 0.0, "every_s": 1.0, "root": 1, "ordinals": [0], **changes})


def sampled(nvml, gpus=(0,), times=None):
    moments = iter(times or range(1000))
    reader = GpuReader(nvml, [Gpu(index, ("gpu", index)) for index in gpus], lambda: float(next(moments)))
    return reader, list(reader.sample())


def test_the_stand_in_has_only_names_that_the_real_module_has():
    mine = {name for name in dir(FakeNvml([])) if not name.startswith("_")}
    assert mine <= set(dir(pynvml))


def test_values_are_in_the_units_of_their_columns():
    _, (row,) = sampled(FakeNvml([{}]), times=[12.5])
    assert row == {
        "at_s": 12.5,
        "gpu": 0,
        "power_w": 312.5,  # 312 500 mW
        "power_limit_w": 600.0,
        "utilisation_share": 0.97,
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 3201,
        "temperature_c": 64,
        "memory_used_mb": 143_000.0,  # 143e9 bytes
        "throttle_reasons": 0,
        "pcie_rx_mb_s": 9876.543,  # 9 876 543 KB/s
        "pcie_tx_mb_s": 1.5,
    }


def test_every_row_has_its_own_time_and_gpu():
    _, rows = sampled(FakeNvml([{}, {"power_mw": 7000}]), gpus=(0, 1), times=[1.0, 1.5])
    assert [(row["at_s"], row["gpu"], row["power_w"]) for row in rows] == [(1.0, 0, 312.5), (1.5, 1, 7.0)]


def test_zero_is_a_value_and_not_a_null():
    _, (row,) = sampled(FakeNvml([{"utilisation": 0, "rx_kb_s": 0, "tx_kb_s": 0}]))
    assert (row["utilisation_share"], row["pcie_rx_mb_s"], row["pcie_tx_mb_s"]) == (0, 0, 0)
    assert row["utilisation_share"] is not None


@pytest.mark.parametrize(
    ("function", "columns"),
    [
        ("nvmlDeviceGetPowerUsage", {"power_w"}),
        ("nvmlDeviceGetEnforcedPowerLimit", {"power_limit_w"}),
        ("nvmlDeviceGetUtilizationRates", {"utilisation_share"}),
        ("nvmlDeviceGetClockInfo", {"sm_clock_mhz", "memory_clock_mhz"}),
        ("nvmlDeviceGetTemperature", {"temperature_c"}),
        ("nvmlDeviceGetMemoryInfo", {"memory_used_mb"}),
        ("nvmlDeviceGetCurrentClocksEventReasons", {"throttle_reasons"}),
        ("nvmlDeviceGetPcieThroughput", {"pcie_rx_mb_s", "pcie_tx_mb_s"}),
    ],
)
@pytest.mark.parametrize("error", ["NVMLError_NotSupported", "NVMLError_NoPermission", "NVMLError_InvalidArgument"])
def test_what_a_gpu_does_not_tell_is_null_and_not_asked_again(function, columns, error):
    nvml = FakeNvml([{}], {function: error})
    reader, (row,) = sampled(nvml)
    assert {column for column, value in row.items() if value is None} == columns
    asked = len([name for name, _ in nvml._asked if name == function])
    (again,) = reader.sample()
    assert {column for column, value in again.items() if value is None} == columns
    assert len([name for name, _ in nvml._asked if name == function]) == asked


@pytest.mark.parametrize("error", ["NVMLError_GpuIsLost", "NVMLError_Unknown", "NVMLError_Timeout"])
def test_what_a_gpu_fails_to_tell_once_is_null_and_asked_again(error):
    nvml = FakeNvml([{}], {"nvmlDeviceGetPowerUsage": error})
    reader, (row,) = sampled(nvml)
    assert row["power_w"] is None and row["power_limit_w"] == 600.0
    nvml._refuses = {}
    (again,) = reader.sample()
    assert again["power_w"] == 312.5


def test_one_gpu_without_a_value_takes_it_from_no_other():
    class Mixed(FakeNvml):
        def nvmlDeviceGetPowerUsage(self, handle):
            if handle == ("gpu", 0):
                raise self.NVMLError_NotSupported
            return super().nvmlDeviceGetPowerUsage(handle)

    reader, _ = sampled(Mixed([{}, {}]), gpus=(0, 1))
    assert [row["power_w"] for row in reader.sample()] == [None, 312.5]


def test_an_older_driver_knows_the_reasons_by_their_old_name():
    refused = {"nvmlDeviceGetCurrentClocksEventReasons": "NVMLError_FunctionNotFound"}
    reader, (row,) = sampled(FakeNvml([{"reasons": 0x44}], refused))
    assert row["throttle_reasons"] == 0x44
    assert [row["throttle_reasons"] for row in reader.sample()] == [0x44]
    refused["nvmlDeviceGetCurrentClocksThrottleReasons"] = "NVMLError_NotSupported"
    _, (row,) = sampled(FakeNvml([{"reasons": 0x44}], refused))
    assert row["throttle_reasons"] is None


EIGHT = [{} for _ in range(8)]
CHOICES = [
    # ordinals, CUDA_VISIBLE_DEVICES, GPUs by nvidia-smi's count
    ([0, 1], None, [0, 1]),
    (list(range(8)), None, list(range(8))),
    ([0, 1], "4,5,6,7", [4, 5]),
    ([0, 1], "7, 3", [7, 3]),
    ([2, 3], "4,5,6,7", [6, 7]),
    ([0], "GPU-6a", [6]),
    ([0, 1], "gpu-6,2", [6, 2]),
    ([0, 1, 2], "0,9,1", [0]),  # CUDA stops at the first entry that it does not know
    ([0, 1], "0,-1,1", [0]),
    ([0], "1,1", []),  # twice: CUDA shows none
    ([0], "", []),
    ([0], "GPU-", []),  # the beginning of every UUID names none
    ([8], None, []),
    ([0], "MIG-x", [3]),
    ([0], "MIG-unknown", []),
]


@pytest.mark.parametrize(("ordinals", "visible", "expected"), CHOICES)
def test_only_the_gpus_of_the_arm_are_chosen(ordinals, visible, expected):
    gpus = [{**gpu, **({"mig": ["MIG-x"]} if index == 3 else {})} for index, gpu in enumerate(EIGHT)]
    chosen, note = chosen_gpus(FakeNvml(gpus), order(ordinals=ordinals, visible=visible))
    assert [gpu.index for gpu in chosen] == expected
    assert (note is None) == bool(expected)
    if visible is not None and note:
        assert f"CUDA_VISIBLE_DEVICES={visible}" in note


def test_a_mig_instance_is_asked_and_not_the_gpu_that_it_shares_with_others():
    chosen, _ = chosen_gpus(FakeNvml([{}, {"mig": ["MIG-x"]}]), order(visible="MIG-x"))
    assert chosen == [Gpu(1, ("mig", 1))]


def test_no_other_gpu_is_asked_for_anything():
    nvml = FakeNvml(EIGHT)
    chosen, _ = chosen_gpus(nvml, order(ordinals=[0, 1], visible="5,2"))
    list(GpuReader(nvml, chosen, lambda: 0.0).sample())
    assert {handle for _, handle in nvml._asked} == {("gpu", 5), ("gpu", 2)}


def test_unlike_gpus_are_told_apart_only_where_cuda_counts_like_the_driver():
    nvml = FakeNvml([{"name": "A"}, {"name": "B"}, {"name": "A"}])
    chosen, note = chosen_gpus(nvml, order(ordinals=[0]))
    assert [gpu.index for gpu in chosen] == [0, 1, 2]
    assert "CUDA_DEVICE_ORDER" in note
    assert chosen_gpus(nvml, order(ordinals=[1], numbering="PCI_BUS_ID")) == ([Gpu(1, ("gpu", 1))], None)
    assert chosen_gpus(nvml, order(ordinals=[0], visible="GPU-2a")) == ([Gpu(2, ("gpu", 2))], None)


@pytest.mark.parametrize(
    ("settings", "used"),
    [
        ({}, (0,)),
        ({"tp_size": 8, "ep_size": 8}, tuple(range(8))),
        ({"pp_size": 4}, (0, 1, 2, 3)),
        ({"tp_size": 2, "pp_size": 2}, (0, 1, 2, 3)),
        ({"tp_size": 2, "dp_size": 2}, (0, 1, 2, 3)),
        ({"tp_size": 4, "dp_size": 4, "enable_dp_attention": True}, (0, 1, 2, 3)),
        ({"tp_size": 2, "base_gpu_id": 4}, (4, 5)),
        ({"tp_size": 2, "gpu_id_step": 2}, (0, 2)),
        ({"tp_size": 16, "nnodes": 2}, tuple(range(8))),
        ({"tp_size": 8, "pp_size": 2, "nnodes": 2}, tuple(range(8))),
        ({"tp_size": "four"}, (0,)),
    ],
)
def test_the_gpus_that_a_server_uses_follow_from_its_arguments(settings, used):
    assert ordinals_of(settings) == used


def test_where_nvml_cannot_be_had_there_is_a_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([{}], {"nvmlInit": "NVMLError_DriverNotLoaded"}))
    reader, note = open_gpus(order(), lambda: 0.0)
    assert reader is None and "NVML does not answer" in note
    monkeypatch.setitem(sys.modules, "pynvml", None)  # what a missing module looks like
    reader, note = open_gpus(order(), lambda: 0.0)
    assert reader is None and "NVML cannot be asked" in note


def test_a_server_without_gpus_asks_for_none():
    assert open_gpus(order(ordinals=None), lambda: 0.0) == (None, None)


class Proc:
    """A /proc of invented processes: pid -> (parent, state, start tick, ticks of CPU used, resident pages)."""

    def __init__(self, folder):
        self.folder = folder

    def write(self, table, machine):
        for old in self.folder.glob("*/stat"):
            old.unlink()
            old.parent.rmdir()
        (self.folder / "stat").write_text(f"cpu  {' '.join(map(str, machine))}\ncpu0 1 2 3\n")
        for pid, (parent, state, start, used, pages) in table.items():
            (self.folder / str(pid)).mkdir(exist_ok=True)
            fields = [state, parent, *[0] * 9, used - used // 3, used // 3, *[0] * 6, start, 0, pages]
            (self.folder / str(pid) / "stat").write_text(f"{pid} (a (b) c) {' '.join(map(str, fields))}\n")


@pytest.fixture
def proc(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "PROC", tmp_path)
    monkeypatch.setattr(sampler, "TICKS_PER_S", 100)
    monkeypatch.setattr(sampler, "PAGE_BYTES", 4096)
    return Proc(tmp_path)


def test_the_host_row_counts_the_servers_processes_and_the_whole_machine(proc):
    moments = iter([10.0, 12.0])
    reader = HostReader(100, lambda: next(moments))
    # 100 is the guardian, 101 and 102 the server's, 7 somebody else's. Machine: user nice system idle iowait irq ...
    proc.write(
        {100: (1, "S", 5, 900, 9), 101: (100, "R", 6, 50, 1000), 102: (101, "S", 7, 10, 500), 7: (1, "R", 2, 1, 8)},
        (100, 0, 100, 700, 100, 0, 0, 0, 0, 0),
    )
    first = reader.sample()
    assert first == {
        "at_s": 10.0,
        "server_cpu_cores": None,
        "server_memory_mb": pytest.approx(1500 * 4096 / 1e6),
        "server_processes": 2,
        "host_cpu_share": None,
    }
    proc.write(
        {100: (1, "S", 5, 999, 9), 101: (100, "R", 6, 350, 1100), 102: (101, "S", 7, 30, 500), 7: (1, "R", 2, 99, 8)},
        (350, 0, 150, 900, 100, 0, 0, 0, 0, 0),
    )
    second = reader.sample()
    assert second["server_cpu_cores"] == pytest.approx((300 + 20) / 100 / 2.0)
    assert second["server_memory_mb"] == pytest.approx(1600 * 4096 / 1e6)
    assert second["host_cpu_share"] == pytest.approx(300 / 500)


def test_processes_that_come_go_or_reuse_a_pid_make_no_spike(proc):
    moments = iter([0.0, 10.0, 20.0, 21.0])
    reader = HostReader(100, lambda: next(moments))
    machine = (1, 0, 0, 9, 0, 0, 0, 0)
    proc.write({101: (100, "R", 6, 100, 10)}, machine)
    reader.sample()
    proc.write({101: (100, "R", 6, 300, 10), 102: (100, "R", 9, 5000, 10)}, machine)  # 102 is new: counted from now on
    assert reader.sample()["server_cpu_cores"] == pytest.approx(0.2)
    proc.write({102: (100, "R", 9, 5500, 10), 101: (100, "R", 15, 7, 10)}, machine)  # 101 is another process now
    row = reader.sample()
    assert (row["server_cpu_cores"], row["server_processes"]) == (pytest.approx(0.5), 2)
    proc.write({102: (100, "Z", 9, 5500, 0)}, machine)  # dead, not yet collected
    row = reader.sample()
    assert (row["server_cpu_cores"], row["server_memory_mb"], row["server_processes"]) == (0, 0, 0)
