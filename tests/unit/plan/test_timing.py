"""The time model: sums that can be done by hand, each with its basis."""

import pytest

from reckoning.experiment import read
from reckoning.experiment.schema import experiment_schema
from reckoning.plan import make_plan
from reckoning.plan.surroundings import Surroundings
from reckoning.plan.timing import interpolated, spoken
from tests.unit.experiment.small import chat, small


def plan_of(published=None, **changes):
    base = {
        "blocks": 4,
        "repeats": 2,
        "expected": {"start_s": 100, "stop_s": 10, "tok_s": {"chat": {1: 10, 4: 40, 16: 160}}},
    }
    config = small(**{**base, **changes})
    return make_plan(read(config, "x"), Surroundings(version="0.5.12.post1", published=published or {}))


def test_a_run_is_launches_times_start_warm_up_points_and_stop():
    # every level: C requests of 8 tokens at 10 C tok/s take 0.8 s to warm up, and 2 C requests 1.6 s, twice
    time = plan_of().time
    launch = 100 + 3 * 0.8 + 3 * 2 * 1.6 + 10
    assert time["per_block_s"] == pytest.approx(2 * launch, abs=0.11)
    assert time["total_s"] == pytest.approx(4 * 2 * launch, abs=0.11)
    assert time["launches"] == 8
    assert time["basis"] == ["start: expected.start_s", "chat: expected.tok_s"]


def test_the_parts_of_a_launch_add_up():
    parts = plan_of().arm("a").time
    assert parts["launch_s"] == pytest.approx(
        parts["start_s"] + parts["warmup_s"] + parts["measure_s"] + parts["stop_s"], abs=0.21
    )


def test_what_the_usual_changes_would_make_of_it():
    time = plan_of().time
    changes = {other["change"]: other["total_s"] for other in time["what_if"]}
    assert changes["--config blocks=3"] == pytest.approx(time["total_s"] * 3 / 4, abs=0.2)
    assert changes["--config blocks=5"] == pytest.approx(time["total_s"] * 5 / 4, abs=0.2)
    assert changes["--config repeats=1"] == pytest.approx(plan_of(repeats=1).time["total_s"], abs=0.2)
    assert changes["--config levels=1,16"] == pytest.approx(plan_of(levels="1,16").time["total_s"], abs=0.2)


@pytest.mark.parametrize(
    ("workload", "measured_s"),
    [
        ({"min_duration_s": 30}, 3 * 2 * 30),
        ({"max_duration_s": 1}, 3 * 2 * 1),
        ({"requests_per_stream": None, "max_duration_s": 60}, 3 * 2 * 60),
        ({"cooldown_s": 5}, 3 * 2 * (1.6 + 5)),
        (
            {"arrival": "poisson", "request_rate_per_s": 0.5, "requests_per_stream": None, "min_requests": 20},
            3 * 2 * 40,
        ),
    ],
)
def test_bounds_rates_and_pauses_count(workload, measured_s):
    assert plan_of(workloads=chat(**workload)).arm("a").time["measure_s"] == pytest.approx(measured_s)


def test_long_prompts_take_their_time():
    long = {"chat": {**chat()["chat"], "kind": "random", "input_tokens": 1000, "concurrency": [1], "file": None}}
    expected = {"start_s": 1, "prefill_tok_s": 500, "tok_s": {"chat": {1: 8}}}
    assert plan_of(workloads=long, expected=expected).arm("a").time["measure_s"] == pytest.approx(2 * 2 * (1 + 2))


def test_published_values_of_the_arm_then_their_median_then_an_assumption():
    expected = {"start_s": 1}
    own = plan_of(published={"a": {1: 8.0, 16: 8.0}}, expected=expected).time["basis"]
    assert own[1:] == ["chat: published values of a", "chat: median of the published arms"]
    assert "assumed" in plan_of(expected=expected).time["basis"][1]


@pytest.mark.parametrize(("level", "rate"), [(1, 10.0), (16, 160.0), (4, 40.0), (100, 160.0), (2, 20.0), (8, 80.0)])
def test_rates_between_levels_lie_on_a_line_in_logarithms(level, rate):
    assert interpolated({1: 10.0, 16: 160.0}, level) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5, "under a minute"),
        (90, "about 2 min"),
        (59 * 60, "about 59 min"),
        (33_600, "about 9 h 20 min"),
        (36_000, "about 10 h"),
        (50 * 3600, "about 2 d 2 h"),
        (48 * 3600, "about 2 d"),
    ],
)
def test_durations_as_people_say_them(seconds, text):
    assert spoken(seconds) == text


def test_starts_on_a_gpu_grow_with_weights_graphs_and_speculation():
    from tests.unit.plan.setups import INT4, KIMI

    arms = {
        "eager": {"settings": {"tp_size": 8, "disable_cuda_graph": True}},
        "graphs": {"settings": {"tp_size": 8}},
        "pp": {"settings": {"pp_size": 8, "disable_cuda_graph": True}},
    }
    known = experiment_schema()["$defs"]["facts"]["properties"]
    facts = {key: value for key, value in {**KIMI, **INT4}.items() if key in known}
    plan = make_plan(
        read(small(arms=arms, machine={"device": "cuda", "gpus": 8}, model={"path": "m", "facts": facts}), "x")
    )
    starts = {arm.slug: arm.time["start_s"] for arm in plan.arms}
    assert starts["eager"] == pytest.approx(60 + 554 / 2, rel=0.05)  # 330 s were seen for this model
    assert starts["graphs"] == pytest.approx(starts["eager"] + 60)
    assert starts["pp"] == pytest.approx(starts["eager"], rel=0.05)  # the same weights over eight stages
