"""Whatever an arm asks for, the plan answers: a status and reasons, never a stack trace, and always strict JSON."""

import jsonschema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reckoning import files
from reckoning.experiment import read
from reckoning.plan import make_plan, plan_to_json
from reckoning.plan.devices import Gpus
from reckoning.plan.facts import ModelFacts
from reckoning.plan.flags import recorded_table
from reckoning.plan.surroundings import Surroundings
from tests.unit.experiment.small import small
from tests.unit.plan.setups import DRAFT, INT4, KIMI, NEW, OLD
from tests.unit.plan.test_command_line import SCHEMA

sizes = st.sampled_from([-1, 0, 1, 2, 3, 4, 8, 61, 1000])
odd = st.sampled_from([None, True, False, 0, -3, 1.5, "auto", "", [], [1, 2], {}, "DFLASH", "triton", 8])
names = st.sampled_from(sorted(recorded_table(OLD).flags))
strange = st.dictionaries(names, odd, max_size=6)
layouts = st.fixed_dictionaries(
    {},
    optional={
        **{f"{name}_size": sizes for name in ("tp", "pp", "ep", "dp", "moe_dp", "attn_cp")},
        "enable_dp_attention": st.booleans(),
        "enable_eplb": st.booleans(),
        "ep_num_redundant_experts": st.sampled_from([0, 7, 16, -1]),
        "speculative_algorithm": st.sampled_from(["DFLASH", "EAGLE", "NGRAM", "dflash", "x"]),
        "speculative_draft_model_path": st.sampled_from(["draft", "nowhere"]),
        "speculative_draft_window_size": st.sampled_from([-1, 4, 8]),
        "mem_fraction_static": st.sampled_from([0.01, 0.5, 0.99, 5]),
        "moe_a2a_backend": st.sampled_from(["deepep", "none"]),
        "max_running_requests": st.sampled_from([0, 1, 300]),
        "chunked_prefill_size": st.sampled_from([-1, 0, 4096]),
    },
)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    layouts,
    strange,
    st.sampled_from([OLD, NEW, None, "nonsense"]),
    st.sampled_from([{**KIMI, **INT4}, {}, {"num_hidden_layers": 4}, {"num_attention_heads": 3, "num_experts": 5}]),
    st.sampled_from(["cpu", "cuda"]),
)
def test_every_arm_gets_an_answer(layout, more, version, facts, device):
    from reckoning.experiment import ExperimentError
    from reckoning.experiment.arms import RESERVED_SETTINGS

    asked = {name: value for name, value in {**more, **layout}.items() if name not in RESERVED_SETTINGS}
    env = {"SGLANG_PP_LAYER_PARTITION": "3,x"} if layout.get("pp_size") == 3 else {}
    try:
        experiment = read(small(arms={"a": {"settings": asked, "env": env}}, machine={"device": device}), "x")
    except ExperimentError:
        return
    seen = Surroundings(
        version=version,
        flags=recorded_table(version),
        gpus=Gpus(("GPU",) * 8, 95.6, "12.0"),
        facts=ModelFacts(facts),
        drafts={"draft": ModelFacts(DRAFT)},
    )
    plan = make_plan(experiment, seen)
    data = plan_to_json(plan)
    files.json_text(data)
    jsonschema.validate(data, SCHEMA)
    arm = plan.arm("a")
    assert (arm.status == "runnable") == (not {"reject", "unavailable"} & {problem.level for problem in arm.problems})


def test_a_value_of_a_wrong_type_is_rejected_once_and_shown_as_it_was_written():
    config = small(arms={"a": {"settings": {"tp_size": "two", "ep_size": [2]}}})
    arm = make_plan(read(config, "x"), Surroundings(version=OLD, flags=recorded_table(OLD))).arm("a")
    assert arm.status == "rejected"
    assert {problem.rule for problem in arm.problems} == {"flag-value"}
    assert len(arm.problems) == 2
    assert arm.settings == {"tp_size": "two", "ep_size": [2]}
