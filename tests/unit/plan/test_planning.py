"""Plans as a whole: statuses, commands, digests, factors, JSON, and what each change repeats."""

import json
from pathlib import Path

import jsonschema
import pytest

from reckoning.experiment import ExperimentError, read, read_file
from reckoning.experiment.places import REPOSITORY
from reckoning.plan import make_plan, plan_from_json, plan_to_json
from reckoning.plan.surroundings import Surroundings
from tests.unit.experiment.small import chat, small

SCHEMA = json.loads((REPOSITORY / "workflow" / "schemas" / "plan.schema.json").read_text())
DEFAULT = REPOSITORY / "config" / "config.yaml"


@pytest.fixture(scope="module")
def default_plan():
    return make_plan(read_file(DEFAULT))


def plan_of(config, **seen):
    return make_plan(read(config, "x"), Surroundings(**{"version": "0.5.12.post1", **seen}))


def digests(plan):
    return {(launch.arm, launch.block): launch.digest for launch in plan.launches}


def test_the_default_experiment_runs_four_arms_rejects_one_and_lacks_one(default_plan):
    assert {arm.slug: arm.status for arm in default_plan.arms} == {
        "tp1": "runnable",
        "tp2": "runnable",
        "tp2-ep2": "runnable",
        "pp2": "runnable",
        "tp2-ep4": "rejected",
        "tp1-dflash": "unavailable",
    }
    assert default_plan.arm("tp2-ep4").problems[0].rule == "ep-divides-tp"
    assert default_plan.arm("tp1-dflash").problems[0].rule == "dflash-needs-gpu"
    assert len(default_plan.launches) == 12
    assert {launch.arm for launch in default_plan.launches} == {"tp1", "tp2", "tp2-ep2", "pp2"}
    assert default_plan.baseline == "tp1"


def test_the_command_of_the_cpu_engine(default_plan):
    assert " ".join(default_plan.arm("tp2-ep2").command) == (
        "{python} -m sglang.launch_server --model-path models/tiny-kimi --served-model-name tiny-kimi --host 127.0.0.1 "
        "--port {port} --nccl-port {nccl_port} --device cpu --attention-backend torch_native --context-length 2048 "
        "--dtype float32 --enable-cache-report --ep-size 2 --max-running-requests 16 --max-total-tokens 8192 "
        "--mem-fraction-static 0.5 --tp-size 2"
    )
    assert default_plan.arm("tp2-ep2").env == {
        "OMP_NUM_THREADS": "1",
        "SGLANG_CPU_OMP_THREADS_BIND": "0|1",
        "SGLANG_USE_CPU_ENGINE": "1",
        "TORCHDYNAMO_DISABLE": "1",
    }


def test_plan_json_has_its_documented_shape_and_reads_back(default_plan):
    data = json.loads(json.dumps(plan_to_json(default_plan), allow_nan=False))
    jsonschema.validate(data, SCHEMA)
    assert plan_to_json(plan_from_json(data)) == data
    assert plan_from_json(data).launches == default_plan.launches


def test_a_plan_of_another_version_or_half_a_plan_is_refused(default_plan):
    data = plan_to_json(default_plan)
    with pytest.raises(ValueError, match="schema_version 2"):
        plan_from_json({**data, "schema_version": 2})
    with pytest.raises(ValueError, match="lacks launches"):
        plan_from_json({key: value for key, value in data.items() if key != "launches"})


def test_arms_and_launches_are_found_by_name_and_missing_ones_named(default_plan):
    assert default_plan.launch("tp2", 3).block == 3
    with pytest.raises(KeyError, match="tp1, tp2"):
        default_plan.arm("tp9")
    with pytest.raises(KeyError, match="block 4"):
        default_plan.launch("tp2", 4)


@pytest.mark.parametrize(
    "changes",
    [
        {"title": "another", "description": "words"},
        {"blocks": 9},
        {"analysis": {"confidence": 0.9}},
        {"limits": {"start_total_s": 99}},
        {"expected": {"start_s": 9}},
        {"hypotheses": {"H": {"text": "t", "claims": [{"arm": "a", "than": "b", "is": "higher", "at": 1}]}}},
        {"x-note": "words"},
        {"arms": {"b": {"settings": {"tp_size": 2}}, "a": {"why": "words", "settings": {"tp_size": 1}}}},
        {"arms": {"a": {"settings": {"tp_size": 1}}, "b": {"settings": {"tp_size": 2}}, "new": {}}},
    ],
)
def test_changes_that_repeat_no_launch(changes):
    before, after = digests(plan_of(small())), digests(plan_of(small(**changes)))
    assert all(after[key] == digest for key, digest in before.items())


@pytest.mark.parametrize(
    ("changes", "repeated"),
    [
        ({"arms": {"a": {"settings": {"tp_size": 1}}, "b": {"extends": "a", "settings": {"tp_size": 4}}}}, {"b"}),
        ({"arms": {"a": {"settings": {"tp_size": 1}, "env": {"X": "1"}}, "b": {"settings": {"tp_size": 2}}}}, {"a"}),
        ({"arms": {"a": {"patches": ["p"], "settings": {"tp_size": 1}}, "b": {"settings": {"tp_size": 2}}}}, {"a"}),
        ({"server": {"settings": {"dtype": "float16"}}}, {"a", "b"}),
        ({"workloads": chat(output_tokens=9)}, {"a", "b"}),
        ({"repeats": 3}, {"a", "b"}),
        ({"levels": 1}, {"a", "b"}),
        ({"model": {"path": "models/other"}}, {"a", "b"}),
        ({"limits": {"request_total_s": 9}}, {"a", "b"}),
        ({"seed": 2}, {"a", "b"}),
    ],
)
def test_changes_that_repeat_the_launches_they_concern(changes, repeated):
    before, after = digests(plan_of(small())), digests(plan_of(small(**changes)))
    assert {arm for (arm, block), digest in before.items() if after[arm, block] != digest} == repeated


def test_the_first_point_of_a_level_brings_its_warm_up():
    for launch in plan_of(small(repeats=3)).launches:
        seen = set()
        for point in launch.points:
            assert point.warmup_requests == (0 if point.concurrency in seen else point.concurrency)
            assert point.requests == 2 * point.concurrency
            seen.add(point.concurrency)


def test_a_point_asks_for_the_least_number_of_requests_or_for_none():
    (first, *_) = plan_of(small(workloads=chat(min_requests=10))).launches
    assert {point.concurrency: point.requests for point in first.points} == {1: 10, 4: 10, 16: 32}
    (first, *_) = plan_of(small(workloads=chat(requests_per_stream=None, max_duration_s=60))).launches
    assert {point.requests for point in first.points} == {None}


def test_factors_are_what_differs_somewhere_and_pairs_differ_in_one():
    arms = {
        "base": {"settings": {"tp_size": 8, "dtype": "auto"}},
        "graphs": {"extends": "base", "settings": {"disable_cuda_graph": True}},
        "both": {"extends": "graphs", "settings": {"num_continuous_decode_steps": 8}},
        "patched": {"extends": "base", "patches": ["p"]},
    }
    from reckoning.plan.flags import recorded_table

    plan = plan_of(small(arms=arms, machine={"device": "cuda"}), flags=recorded_table("0.5.12.post1"))
    assert plan.arm("base").factors == {
        "disable_cuda_graph": False,
        "num_continuous_decode_steps": 1,
        "patch:p": False,
    }
    assert [(pair.arm, pair.reference, pair.factor, pair.from_, pair.to) for pair in plan.pairs] == [
        ("graphs", "base", "disable_cuda_graph", False, True),
        ("patched", "base", "patch:p", False, True),
        ("both", "graphs", "num_continuous_decode_steps", 1, 8),
    ]


def test_arms_that_cannot_run_are_in_no_pair_and_no_launch():
    arms = {"a": {"settings": {"tp_size": 2}}, "b": {"settings": {"tp_size": 2, "ep_size": 4}}}
    plan = plan_of(small(arms=arms))
    assert plan.arm("b").status == "rejected"
    assert plan.pairs == ()
    assert {launch.arm for launch in plan.launches} == {"a"}


def test_a_baseline_that_cannot_run_gives_way_to_the_first_that_can():
    arms = {"bad": {"settings": {"ep_size": 4}}, "good": {}}
    assert plan_of(small(arms=arms, analysis={"baseline": "bad"})).baseline == "good"
    assert plan_of(small(arms={"bad": {"settings": {"ep_size": 4}}})).baseline is None


def test_what_the_user_declares_unavailable_stays_in_the_plan_with_its_reason():
    unavailable = {"reason": "not there yet", "reference": "https://example.org/1"}
    plan = plan_of(small(arms={"a": {}, "tree": {"settings": {"ep_size": 3}, "unavailable": unavailable}}))
    arm = plan.arm("tree")
    assert arm.status == "unavailable"
    found = next(problem for problem in arm.problems if problem.rule == "declared-unavailable")
    assert (found.reason, "https://example.org/1" in found.remedy) == ("not there yet", True)


def test_settings_are_planned_under_one_name_whichever_was_written():
    from reckoning.plan.flags import recorded_table

    arms = {"a": {"settings": {"tensor_parallel_size": 2, "expert_parallel_size": 4}}}
    arm = plan_of(small(arms=arms), flags=recorded_table("0.5.12.post1")).arm("a")
    assert arm.settings == {"ep_size": 4, "tp_size": 2}
    assert arm.status == "rejected"


def test_labels_from_outside_stay_labels():
    plan = plan_of(small(arms={"<script>x</script>": {}, "../up": {}}))
    assert [(arm.name, arm.slug) for arm in plan.arms] == [("<script>x</script>", "script-x-script"), ("../up", "up")]


def test_a_model_of_our_own_is_planned_alike_before_and_after_it_exists(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    experiment = read(small(model={"path": "m", "maker": "tiny-kimi", "facts": {"num_hidden_layers": 4}}), "x")
    before = plan_to_json(make_plan(experiment))
    Path("m").mkdir()
    Path("m/config.json").write_text(json.dumps({"num_hidden_layers": 5}))
    assert plan_to_json(make_plan(experiment)) == before


def test_a_users_model_is_read_from_its_config_json_even_inside_a_multimodal_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("m").mkdir()
    inner = {"num_hidden_layers": 61, "n_routed_experts": 384}
    Path("m/config.json").write_text(json.dumps({"architectures": ["KimiK25"], "text_config": inner}))
    experiment = read(small(model={"path": "m", "facts": {"n_routed_experts": 256}}), "x")
    plan = make_plan(experiment)
    assert plan.model["facts"]["n_routed_experts"] == 384
    assert plan.model["facts"]["architectures"] == ["KimiK25"]
    assert "facts-disagree" in {problem.rule for problem in plan.arms[0].problems}


@pytest.mark.parametrize("text", ["{", "[]", ""])
def test_a_config_json_that_cannot_be_read_gives_way_to_the_stated_facts(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    Path("m").mkdir()
    Path("m/config.json").write_text(text)
    plan = make_plan(read(small(model={"path": "m", "facts": {"num_hidden_layers": 4}}), "x"))
    assert plan.model["facts"] == {"num_hidden_layers": 4}
    assert "cannot be read" in plan.model["facts_source"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- id: a\n  text: [", "not YAML in line 2"),
        ("text: a", "expected a list of prompts"),
        ("- id: a\n- text: b\n- text: ' '", "entry 1 has no `text`; entry 3 has no `text`"),
        (b"- text: \xff", "not YAML"),
    ],
)
def test_prompts_that_cannot_be_used_are_a_fault_of_the_experiment(tmp_path, text, said):
    (tmp_path / "p.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ExperimentError) as error:
        read(small(workloads=chat(file=str(tmp_path / "p.yaml"))), "x")
    [problem] = error.value.problems
    assert (problem.key, said in problem.reason) == ("workloads.chat.file", True), problem


def test_a_hub_name_is_found_in_the_local_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--org--name" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps({"num_experts": 128, "num_hidden_layers": 3}))
    plan = make_plan(read(small(model={"path": "org/name"}), "x"))
    assert plan.model["facts_source"].endswith("config.json")
    assert plan.model["facts"]["num_experts"] == 128
