"""Planned orders: complete random blocks that every machine, Python and hash seed repeats."""

import collections
import json
import os
import random
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reckoning.experiment import read
from reckoning.experiment.places import REPOSITORY
from reckoning.plan import make_plan, order, plan_to_json
from reckoning.plan.surroundings import Surroundings
from tests.unit.experiment.small import small

names = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=12, unique=True)


def plan_of(config):
    return make_plan(read(config, "x"), Surroundings(version="0.5.12.post1"))


def arms_named(labels):
    return {label: {"settings": {"tp_size": 1}} for label in labels}


@settings(max_examples=50, deadline=None)
@given(names, st.integers(0, 2**40))
def test_a_shuffle_is_a_permutation_that_ignores_the_order_it_was_given(items, seed):
    first = order.shuffled(items, seed)
    again = list(items)
    random.Random(0).shuffle(again)
    assert sorted(first) == sorted(items)
    assert order.shuffled(again, seed) == first


@settings(max_examples=50, deadline=None)
@given(names, st.text(min_size=9, max_size=9), st.integers(0, 1000))
def test_adding_an_item_keeps_the_order_of_the_others(items, added, seed):
    longer = order.shuffled([*items, added], seed)
    assert [item for item in longer if item != added] == order.shuffled(items, seed)


def test_the_order_is_fixed_for_all_time():
    # A run that was interrupted under one version must go on under the next.
    assert order.shuffled(["tp1", "tp2", "pp2", "tp2-ep2"], 20261129, "block", 1) == ["tp2", "pp2", "tp1", "tp2-ep2"]
    assert order.derived_seed(1, "launch", "tp1", 1) == order.derived_seed(1, "launch", "tp1", 1)
    assert 0 <= order.derived_seed("x") < 2**63


def test_parts_are_kept_apart():
    assert order.ticket("ab", "c") != order.ticket("a", "bc")
    assert order.ticket(1, 23) != order.ticket(12, 3)


def test_every_order_of_four_arms_is_equally_likely():
    counts = collections.Counter(tuple(order.shuffled("abcd", seed)) for seed in range(24_000))
    assert len(counts) == 24
    expected = 24_000 / 24
    chi_squared = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_squared < 49.7  # the 0.999 quantile with 23 degrees of freedom


@settings(max_examples=25, deadline=None)
@given(st.permutations(["tp1", "tp2", "pp2", "ep4", "x/y"]), st.integers(0, 10**6), st.integers(1, 5))
def test_no_planned_order_depends_on_the_order_of_the_file(labels, seed, blocks):
    plan = plan_of(small(arms=arms_named(labels), seed=seed, blocks=blocks))
    other = plan_of(small(arms=arms_named(sorted(labels)), seed=seed, blocks=blocks))
    assert plan.launches == other.launches
    for block in range(1, blocks + 1):
        assert sorted(launch.arm for launch in plan.launches if launch.block == block) == sorted(
            arm.slug for arm in plan.arms
        )
    assert [launch.order for launch in plan.launches] == list(range(len(plan.launches)))


PROGRAM = """
import json, sys
from reckoning.experiment import read
from reckoning.experiment.places import REPOSITORY
from reckoning.plan import make_plan, plan_to_json
from reckoning.plan.surroundings import Surroundings
config = json.load(sys.stdin)
print(json.dumps(plan_to_json(make_plan(read(config, "x"), Surroundings(version="0.5.12.post1"))), sort_keys=True))
"""


@pytest.mark.parametrize("hash_seed", ["0", "1", "4242"])
def test_the_whole_plan_is_the_same_under_every_hash_seed(hash_seed):
    config = small(arms=arms_named(["b", "a", "c d"]))
    config["server"] = {"settings": {"dtype": "auto", "context_length": 100}, "env": {"B": "1", "A": "2"}}
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(REPOSITORY / "scripts")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps(config), capture_output=True, text=True, check=True, env=env
    )
    assert json.loads(done.stdout) == json.loads(json.dumps(plan_to_json(plan_of(config))))


def test_more_blocks_keep_the_launches_that_there_were():
    fewer, more = (plan_of(small(blocks=blocks)).launches for blocks in (3, 5))
    assert more[: len(fewer)] == fewer


def test_another_seed_gives_another_order_and_other_digests():
    first, second = (plan_of(small(seed=seed, blocks=8)).launches for seed in (1, 2))
    assert [launch.arm for launch in first] != [launch.arm for launch in second]
    assert {launch.digest for launch in first}.isdisjoint(launch.digest for launch in second)


def test_points_are_shuffled_anew_in_every_launch():
    launches = plan_of(small(blocks=6)).launches
    orders = {tuple((point.concurrency, point.repeat) for point in launch.points) for launch in launches}
    assert len(orders) > 6
    for launch in launches:
        assert sorted((point.concurrency, point.repeat) for point in launch.points) == [
            (level, repeat) for level in (1, 4, 16) for repeat in (1, 2)
        ]
        assert [point.index for point in launch.points] == list(range(6))
