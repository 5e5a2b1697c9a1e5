"""The memory model against servers that were recorded on two H200: predicted first, measured afterwards."""

import json

import pytest

from reckoning.experiment import read_file
from reckoning.experiment.places import REPOSITORY
from reckoning.plan import make_plan

RECORDING = REPOSITORY / "resources" / "recordings" / "kimi-slice-h200x2" / "launches"
CONFIG = REPOSITORY / "config" / "kimi-k2.6-slice-h200x2.yaml"


@pytest.fixture(scope="module")
def plan():
    return make_plan(read_file(CONFIG))


def measured(arm):
    path = RECORDING / arm / "block1" / "server_info.json"
    if not path.is_file():
        pytest.skip(f"no recording at {path}")
    return json.loads(path.read_text(encoding="utf-8"))["internal_states"][0]["memory_usage"]


@pytest.mark.parametrize("arm", ["tp2-eager", "tp2", "tp2-ep2", "pp2"])
def test_weights_and_cache_of_recorded_servers(plan, arm):
    seen, predicted = measured(arm), plan.arm(arm).memory
    first_stage = predicted["stages"][0]["weights_gib"]  # server_info is that of rank 0
    assert first_stage == pytest.approx(seen["weight"], rel=0.01)
    assert predicted["kv_tokens"] == pytest.approx(seen["token_capacity"], rel=0.03)
