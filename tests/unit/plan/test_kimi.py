"""The model experiment: what the published account could not separate, this plan must."""

import pytest

from reckoning.experiment import read_file
from reckoning.experiment.places import REPOSITORY
from reckoning.plan import make_plan
from reckoning.plan.devices import Gpus
from reckoning.plan.surroundings import observe

CONFIG = REPOSITORY / "config" / "kimi-k2.6-pro6000.yaml"


@pytest.fixture(scope="module")
def plan():
    import dataclasses

    experiment = read_file(CONFIG)
    seen = dataclasses.replace(observe(experiment), gpus=Gpus(), visible_devices=None)  # planned for its own machine
    return make_plan(experiment, seen)


def rules(plan, slug):
    return {problem.rule for problem in plan.arm(slug).problems if problem.level in ("reject", "unavailable")}


def test_nineteen_arms_of_which_sixteen_run(plan):
    assert len(plan.arms) == 19
    assert {arm.slug: arm.status for arm in plan.arms if arm.status != "runnable"} == {
        "tp4-ep2": "rejected",
        "tp2-ep4": "rejected",
        "ddtree": "unavailable",
    }
    assert len(plan.launches) == 4 * 16


def test_arms_that_cannot_run_say_the_true_reason(plan):
    assert rules(plan, "tp4-ep2") == {"weights-fit"}
    assert "out of memory" in plan.arm("tp4-ep2").problems[0].reason
    assert rules(plan, "tp2-ep4") == {"ep-divides-tp"}
    assert "ZeroDivisionError" in plan.arm("tp2-ep4").problems[0].reason
    assert rules(plan, "ddtree") == {"declared-unavailable"}


def test_every_setting_of_tp8_tuned_can_be_read_alone(plan):
    effects = {(pair.reference, pair.arm): pair.factor for pair in plan.pairs}
    assert effects["tp8-eager", "tp8-graphs"] == "disable_cuda_graph"
    assert effects["tp8-graphs", "tp8-graphs-cds8"] == "num_continuous_decode_steps"
    assert effects["tp8-graphs-cds8", "tp8-tuned"] == "max_running_requests"


def test_further_pairs_differ_in_one_factor(plan):
    effects = {(pair.reference, pair.arm): pair.factor for pair in plan.pairs}
    assert effects["pp8", "pp8-async"] == "pp_async_batch_depth"
    assert effects["ep8", "ep4"] == "ep_size"
    assert effects["ep8-tuned", "ep4-tuned"] == "ep_size"
    assert effects["tp8-graphs", "ep8"] == "ep_size"
    assert effects["ep8", "ep8-eplb"] == "enable_eplb"
    assert effects["ep8-dflash-graphs", "ep8-dflash-window"] == "speculative_draft_window_size"
    assert effects["ep8-dflash-graphs", "ep4-dflash"] == "ep_size"


def test_the_patches_go_where_they_are_needed(plan):
    assert plan.arm("pp8").patches == ("sglang-pp-start-layer",)
    assert plan.arm("ep8-dflash-graphs").patches == ("sglang-dflash-ep-cuda-graph",)
    assert plan.arm("ep8-dflash").patches == ()
    assert plan.arm("tp8-dflash").patches == ()


def test_memory_of_pp8_is_the_published_63_to_72_gib(plan):
    stages = [stage["weights_gib"] for stage in plan.arm("pp8").memory["stages"]]
    assert stages[1] == pytest.approx(63, rel=0.03)
    assert stages[4] == pytest.approx(72, rel=0.03)
    assert all(24 * 0.8 < 95.59 - weights < 33 * 1.2 for weights in stages[1:])  # published: 24-33 left


def test_all_seven_hypotheses_are_registered_with_their_claims(plan):
    found = {hypothesis["id"]: hypothesis["claims"] for hypothesis in plan.hypotheses}
    assert list(found) == ["H1", "H2", "H3", "H4", "H5", "H6", "H6b", "H7"]
    assert found["H1"][0] == {
        "arm": "ep8",
        "reference": "tp8-tuned",
        "workload": "chat",
        "metric": "output_tok_s",
        "relation": "higher",
        "ratio": 1.0,
        "margin": None,
        "at": [128, 192, 256],
    }
    assert found["H2"][0]["ratio"] == 2.0
    assert (found["H3"][0]["relation"], found["H3"][0]["margin"]) == ("equivalent", 0.03)
    assert found["H4"][0]["at"] == [1, 32, 64, 128, 192, 256]
    assert [claim["at"] for claim in found["H6"]] == [[1], "peak"]
    assert found["H6b"][0]["relation"] == "not-lower"
    assert len(found["H7"]) == 18


def test_published_values_are_linked_and_belong_to_arms_of_the_plan(plan):
    import csv

    rows = list(csv.DictReader((REPOSITORY / plan.published).open(encoding="utf-8")))
    assert {row["arm"] for row in rows} <= {arm.slug for arm in plan.arms}
    assert {row["source"] for row in rows} == {"published account, single runs"}
    assert {row["n_runs"] for row in rows} == {"1"}


def test_the_time_of_a_run_has_its_basis(plan):
    assert plan.time["total_s"] > 0
    assert "start: expected.start_s" in plan.time["basis"]
    assert "chat: published values of ep8" in plan.time["basis"]
    assert plan.arm("ep8").time["start_s"] == 330


def test_on_four_gpus_nothing_of_it_runs():
    import dataclasses

    experiment = read_file(CONFIG)
    plan = make_plan(experiment, dataclasses.replace(observe(experiment), gpus=Gpus(), visible_devices="0,1,2,3"))
    assert not plan.runnable
    assert "enough-gpus" in rules(plan, "ep8")
