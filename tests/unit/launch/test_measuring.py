import pandas as pd
import pytest

from reckoning.launch.http_client import Endpoint
from reckoning.launch.measuring import nothing_measured, random_weights, target_of, warmup_seconds


def test_random_weights_are_those_we_make_and_dummies():
    plan = {"model": {"maker": None}, "arms": [{"slug": "a", "settings": {"load_format": "dummy"}}, {"slug": "b"}]}
    assert random_weights(plan, "a") and not random_weights(plan, "b")
    assert random_weights(plan | {"model": {"maker": "tiny-kimi"}}, "b")


def test_warmup_time_is_the_sum_over_points_of_first_start_to_last_end():
    rows = [(0, "warmup", 1.0, 2.0), (0, "warmup", 1.5, 3.5), (0, "steady", 4.0, 9.0), (1, "warmup", 10.0, 10.5)]
    requests = pd.DataFrame(rows, columns=["point", "phase", "start_s", "end_s"])
    assert warmup_seconds(requests) == pytest.approx(2.5 + 0.5)
    assert warmup_seconds(nothing_measured().requests) is None


def test_a_server_that_tells_nothing_of_itself_is_not_taken_for_sglang():
    plan = {"model": {"path": "/m"}}
    target = target_of(plan, Endpoint("::1", 30000, "key"), "name", {})
    assert (target.base_url, target.kind, target.api_key) == ("http://[::1]:30000", "openai", "key")
    assert (target.model, target.tokenizer_path) == ("name", "/m")
    assert target_of(plan, Endpoint("127.0.0.1", 1), "name", {"version": "0.5"}).kind == "sglang"
