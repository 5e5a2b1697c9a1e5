"""CUDA_VISIBLE_DEVICES as CUDA reads it."""

import pytest

from reckoning.experiment import read
from reckoning.plan import make_plan
from reckoning.plan.devices import Gpus, visible_count
from reckoning.plan.surroundings import Surroundings
from tests.unit.experiment.small import small


@pytest.mark.parametrize(
    ("variable", "installed", "count"),
    [
        (None, 8, 8),
        (None, None, None),
        ("", 8, 0),
        (" ", 8, 0),
        ("0", 8, 1),
        ("0,1,2,3", 8, 4),
        ("0, 1", 8, 2),
        ("7", 8, 1),
        ("8", 8, 0),
        ("0,8,1", 8, 1),  # CUDA stops at the first entry that it does not know
        ("-1", 8, 0),
        ("0,-1,1", 8, 1),
        ("NoDevFiles", 8, 0),
        ("0,0", 8, 0),  # listed twice: CUDA shows none
        ("GPU-1a2b3c4d-0000-1111-2222-333344445555", 8, 1),
        ("GPU-1a2b,GPU-3c4d", 8, 2),
        ("MIG-1a2b3c4d-0000-1111-2222-333344445555", 8, 1),
        ("MIG-1a2b,MIG-3c4d", 8, 1),  # one MIG instance per process
        ("0,1", None, 2),
        ("GPU-", 8, 0),
    ],
)
def test_visible_gpus(variable, installed, count):
    assert visible_count(variable, installed)[0] == count


@pytest.mark.parametrize("variable", ["", "9", "0,0", "MIG-1,MIG-2", "0,1"])
def test_the_reason_names_the_variable(variable):
    assert "CUDA_VISIBLE_DEVICES" in visible_count(variable, 8)[1]


def statuses(machine, gpus=None, visible=None, env=None):
    arms = {"tp8": {"settings": {"tp_size": 8}, "env": env or {}}}
    config = small(arms=arms, machine={"device": "cuda", **machine}, engine={"lock": "sglang-0.5.12.post1-cpu"})
    seen = Surroundings(version="0.5.12.post1", gpus=gpus or Gpus(), visible_devices=visible)
    plan = make_plan(read(config, "x"), seen)
    return plan.arm("tp8").status, [problem for problem in plan.arm("tp8").problems if problem.rule == "enough-gpus"]


def test_a_described_machine_counts_when_no_driver_is_here():
    assert statuses({"gpus": 8})[0] == "runnable"
    assert statuses({"gpus": 7})[0] == "rejected"
    assert statuses({})[0] == "runnable"  # nothing is known, so nothing is rejected


def test_the_gpus_of_this_machine_count_when_it_has_some():
    assert statuses({"gpus": 8}, gpus=Gpus(("H200",) * 2))[0] == "rejected"
    assert statuses({"gpus": 4}, gpus=Gpus(("H200",) * 8))[0] == "rejected"
    assert statuses({}, gpus=Gpus(("H200",) * 8))[0] == "runnable"


def test_the_variable_limits_and_an_arm_may_set_its_own():
    status, problems = statuses({"gpus": 8}, visible="0,1,2,3")
    assert status == "rejected"
    assert "CUDA_VISIBLE_DEVICES=0,1,2,3" in problems[0].reason
    assert statuses({"gpus": 8}, visible="0", env={"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"})[0] == "runnable"
    assert statuses({"gpus": 8}, visible="")[0] == "rejected"
