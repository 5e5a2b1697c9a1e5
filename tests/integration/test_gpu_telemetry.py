"""The sampler on a real NVIDIA GPU: every value that the driver gives is of the right kind and size."""

import os
import time

import pynvml
import pytest

from reckoning.launch.sampler import Order
from reckoning.launch.telemetry import Sampling, read_samples

pytestmark = pytest.mark.gpu


@pytest.fixture
def memory_mb():
    """Return the memory of GPU 0 in MB, or skip."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        pytest.skip(f"no NVIDIA GPU: {error}")
    try:
        if not pynvml.nvmlDeviceGetCount():
            pytest.skip("the driver lists no GPU")
        yield pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).total / 1e6
    finally:
        pynvml.nvmlShutdown()


def test_values_of_a_real_gpu(tmp_path, memory_mb):
    order = Order(
        output=str(tmp_path / "telemetry.jsonl"),
        zero_s=time.monotonic(),
        every_s=0.2,
        root=os.getpid(),
        ordinals=[0],
        numbering="PCI_BUS_ID",
    )
    with Sampling(order, tmp_path / "telemetry.log") as running:
        deadline = time.monotonic() + 60
        while len(read_samples(tmp_path / "telemetry.jsonl", []).gpus) < 5 and time.monotonic() < deadline:
            time.sleep(0.2)
    assert running.trouble is None
    found = read_samples(tmp_path / "telemetry.jsonl", [])
    gpus = found.gpus
    assert found.notes == ()
    assert len(gpus) >= 5 and set(gpus["gpu"]) == {0}
    assert gpus["at_s"].is_monotonic_increasing and gpus["at_s"].is_unique
    # A server GPU tells at least these; what another one does not tell is null, and never out of range.
    assert gpus["memory_used_mb"].between(0, memory_mb).all()
    for column, low, high in (
        ("power_w", 0, 3000),
        ("power_limit_w", 1, 3000),
        ("utilisation_share", 0, 1),
        ("sm_clock_mhz", 1, 10_000),
        ("memory_clock_mhz", 1, 50_000),
        ("temperature_c", 1, 120),
        ("pcie_rx_mb_s", 0, 200_000),
        ("pcie_tx_mb_s", 0, 200_000),
        ("throttle_reasons", 0, 0xFFFF),
    ):
        told = gpus[column].dropna()
        assert told.between(low, high).all(), (column, told.tolist())
    print(gpus.describe().to_string())
