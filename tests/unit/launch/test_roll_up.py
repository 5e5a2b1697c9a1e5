import pytest

from reckoning.files import write_json
from reckoning.launch import roll_up

PLAN = {
    "experiment": "x",
    "arms": [
        {"slug": "a", "name": "A", "status": "runnable", "problems": []},
        {
            "slug": "bad",
            "name": "Bad",
            "status": "rejected",
            "problems": [{"rule": "ep-divides-tp", "reason": "4 > 2"}],
        },
    ],
    "launches": [{"arm": "a", "block": block, "order": block - 1} for block in (1, 2, 3)],
}


def outcome(status: str, failure: dict | None = None) -> dict:
    points = {"planned": 2, "measured": 2, "failed": 0}
    return {"status": status, "failure": failure, "points": points, "durations": {"total_s": 9.0}, "attempts": [{}]}


def test_every_planned_launch_is_listed_with_how_it_ended(tmp_path):
    failure = {
        "class": "stall",
        "stage": "KV cache",
        "cause": "c",
        "evidence": "e",
        "remedy": "r",
        "seen": "s",
        "log_excerpt": "l",
    }
    write_json(tmp_path / "a/block1/outcome.json", outcome("ok"))
    write_json(tmp_path / "a/block2/outcome.json", outcome("failed", failure))
    found = roll_up(PLAN, "a", tmp_path)
    assert [one["status"] for one in found["launches"]] == ["ok", "failed", "missing"]
    assert (found["launches_planned"], found["launches_ok"], found["launches_failed"]) == (3, 1, 1)
    assert found["launches"][1]["failure"] == {"class": "stall", "stage": "KV cache", "cause": "c", "remedy": "r"}


def test_an_arm_that_cannot_run_keeps_its_reasons(tmp_path):
    found = roll_up(PLAN, "bad", tmp_path)
    assert (found["status"], found["launches"], found["problems"][0]["rule"]) == ("rejected", [], "ep-divides-tp")


def test_an_unknown_arm_names_those_that_exist(tmp_path):
    with pytest.raises(KeyError, match="its arms are a, bad"):
        roll_up(PLAN, "c", tmp_path)
