"""Limits and thresholds of the config: the schema has every one that the code reads, and a value reaches the code."""

import jsonschema
import pandas as pd
import pytest

from reckoning.experiment import ExperimentError, read
from reckoning.experiment.schema import experiment_schema
from reckoning.launch import measuring
from reckoning.launch.measuring import Hooks, Measurement, measure
from reckoning.launch.progress import Progress
from reckoning.launch.run import DEFAULT_LIMITS
from reckoning.load import Measured, Target
from reckoning.load.flags import DEFAULTS, flags_of
from reckoning.plan import make_plan, plan_to_json
from reckoning.plan.surroundings import Surroundings
from tests.unit.experiment.small import small
from tests.unit.load.test_flags import GOOD


def section(name):
    return experiment_schema()["$defs"][name]["properties"]


def plan_of(**changes):
    return plan_to_json(make_plan(read(small(**changes), "x"), Surroundings(version="0.5.12.post1")))


def test_the_schema_has_every_limit_of_a_launch_with_the_same_default():
    assert {key: one["default"] for key, one in section("limits").items()} == DEFAULT_LIMITS


def test_the_schema_has_every_threshold_of_a_flag_with_the_same_default():
    written = section("analysis")
    assert {key: written[key]["default"] for key in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize("name", ["limits", "analysis"])
def test_every_default_is_within_its_own_bounds(name):
    for key, one in section(name).items():
        jsonschema.validate(one["default"], {**one, "$defs": experiment_schema()["$defs"]}), key


@pytest.mark.parametrize(
    ("section_name", "key", "value"),
    [
        ("limits", "release_s", -1),
        ("limits", "log_mib", 0),
        ("limits", "log_mib", 1.5),
        ("limits", "max_attempts", 0),
        ("analysis", "max_cached_share", 1.1),
        ("analysis", "max_client_cpu_share", -0.1),
        ("analysis", "max_client_lag_mean_ms", -1),
        ("analysis", "max_client_lag_p99_ms", "10"),
        ("analysis", "max_client_lag_mean_share", 2),
        ("analysis", "max_client_lag_p99_share", None),
    ],
)
def test_a_value_out_of_bounds_is_a_fault_that_names_its_key(section_name, key, value):
    with pytest.raises(ExperimentError, match=f"{section_name}.{key}"):
        read(small(**{section_name: {key: value}}), "x")


def test_limits_reach_the_plan_and_repeat_nothing():
    changed = {"release_s": 7, "log_mib": 3, "max_attempts": 5}
    plan = plan_of(limits=changed)
    assert {key: plan["limits"][key] for key in changed} == changed
    assert [one["digest"] for one in plan["launches"]] == [one["digest"] for one in plan_of()["launches"]]


# One point for each threshold, beyond its default and within the changed one, or the other way round.
THRESHOLDS = [
    ("max_cached_share", 0.6, {"cached_token_share": 0.55, "distinct_prompts": 200}, "cached-prompts"),
    ("max_client_lag_mean_ms", 3, {"client_lag_mean_ms": 2.5, "mean_ttft_ms": 100.0}, "client-limited"),
    ("max_client_lag_p99_ms", 30, {"client_lag_p99_ms": 25.0, "mean_ttft_ms": 100.0}, "client-limited"),
    ("max_client_lag_mean_share", 0.03, {"client_lag_mean_ms": 2.5, "mean_ttft_ms": 100.0}, "client-limited"),
    ("max_client_lag_p99_share", 0.3, {"client_lag_p99_ms": 25.0, "mean_ttft_ms": 100.0}, "client-limited"),
    ("max_client_cpu_share", 0.9, {"client_cpu_share": 0.85}, "client-limited"),
]


@pytest.mark.parametrize(("key", "value", "point", "flag"), THRESHOLDS, ids=[one[0] for one in THRESHOLDS])
def test_a_threshold_of_the_config_decides_the_flag_of_a_point(monkeypatch, key, value, point, flag):
    """From the config's text through the plan and the launch to the limits that the load client judges by."""
    given = {}

    def measured(*_, limits, **__):
        given.update(limits)
        return Measured()

    monkeypatch.setattr(measuring, "measure_points", measured)

    def flags(**analysis):
        given.clear()
        plan = plan_of(analysis=analysis)
        hooks = Hooks(lambda: None, Progress("", lambda _: None, lambda: None), lambda _: None, lambda: None)
        target = Target("http://127.0.0.1:1", "m")
        done = measure(plan, plan["launches"][0], target, hooks, launch_clock_start=0.0, runner=None, raw_folder=None)
        assert isinstance(done, Measurement) and isinstance(done.requests, pd.DataFrame)
        return flags_of(GOOD | point, {}, given)

    assert flags() == [flag]
    assert flags(**{key: value}) == []
