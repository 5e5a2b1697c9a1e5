"""The cross-check, with a stand-in for the engine's interpreter that writes what bench_serving writes."""

import json
import math
import stat
import sys
from pathlib import Path

import pytest
from scripted_server import ScriptedServer, chat

from reckoning.load import Measured, Target, measure_points
from reckoning.load.crosscheck import Runner, compare, cross_check

STAND_IN = """#!{python}
import json, sys, time
arguments = dict(zip(sys.argv, sys.argv[1:]))
requests = [json.loads(line) for line in open(arguments["--dataset-path"])]
{body}
with open(arguments["--output-file"], "a") as output:
    row = {{"tag": None, "request_rate": float("inf"), "output_throughput": 50.0, "mean_ttft_ms": float("nan"),
            "mean_tpot_ms": 8.0, "server_info": {{"api_key": "sk-1"}}}}
    output.write(json.dumps(row) + "\\n")
"""


def engine(folder: Path, body: str = "") -> str:
    file = folder / "engine-python"
    file.write_text(STAND_IN.format(python=sys.executable, body=body))
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


@pytest.fixture
def measured(chat_workload: dict) -> tuple[Measured, dict]:
    point = {
        "index": 0,
        "workload": "chat",
        "concurrency": 2,
        "repeat": 1,
        "seed": 3,
        "requests": 6,
        "warmup_requests": 0,
    }
    with ScriptedServer(lambda n, body: chat(8, gap_s=0.002)) as server:
        target = Target(server.url, "m", kind="openai")
        return measure_points(target, [point], {"chat": chat_workload}, seed=1, limits={}), chat_workload


def check(folder: Path, measured: tuple[Measured, dict], python: str, **options: object) -> dict:
    target = Target("http://127.0.0.1:1", "m", str(folder), kind="openai")
    points = options.pop("points", [{"workload": "chat", "concurrency": 2}])
    alive = options.pop("alive", lambda: None)
    runner = Runner(python, folder / "bench", **options)
    return cross_check(target, runner, points, {"chat": measured[1]}, measured[0], seed=1, alive=alive)


def test_the_same_requests_go_to_both_and_the_ratio_is_ours_over_theirs(tmp_path: Path, measured: tuple) -> None:
    [entry] = check(tmp_path, measured, engine(tmp_path, "assert len(requests) == 6"))["entries"]
    assert (entry["status"], entry["reason"]) == ("ok", None)
    ours = measured[0].points[0]["output_tok_s_whole_run"]
    assert entry["metrics"]["output_tok_s_whole_run"] == {"ours": ours, "theirs": 50.0, "ratio": ours / 50.0}
    assert entry["metrics"]["ttft_ms"]["ratio"] is None
    rows = measured[0].requests
    assert entry["metrics"]["tpot_ms"]["ratio"] == pytest.approx(rows.tpot_ms.mean() / 8.0)
    sent = [json.loads(line) for line in (tmp_path / "bench/chat-c2-requests.jsonl").read_text().splitlines()]
    assert all(one["max_tokens"] == 8 and one["ignore_eos"] and one["stream_options"]["include_usage"] for one in sent)
    assert not math.isnan(entry["metrics"]["ttft_ms"]["theirs"] or 0.0)


def test_a_rerun_does_not_read_the_line_of_the_run_before(tmp_path: Path, measured: tuple) -> None:
    python = engine(tmp_path)
    for _ in range(2):
        check(tmp_path, measured, python)
    assert len((tmp_path / "bench/chat-c2-result.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("body", "options", "words"),
    [
        ("print('no GPU today'); sys.exit(3)", {}, "ended with 3: no GPU today"),
        ("time.sleep(60)", {"timeout_s": 0.5}, "not done within 0.5 s"),
        ("time.sleep(60)", {"alive": lambda: "process 7 has ended"}, "process 7 has ended"),
        ("sys.exit(0)", {}, "wrote no result"),
    ],
)
def test_what_goes_wrong_is_an_entry_with_its_reason(
    tmp_path: Path, measured: tuple, body: str, options: dict, words: str
) -> None:
    [entry] = check(tmp_path, measured, engine(tmp_path, body), **options)["entries"]
    assert entry["status"] == "failed"
    assert words in entry["reason"]
    assert entry["metrics"] == {}


def test_a_point_that_was_not_measured_is_skipped(tmp_path: Path, measured: tuple) -> None:
    points = [{"workload": "chat", "concurrency": 64}]
    [entry] = check(tmp_path, measured, engine(tmp_path), points=points)["entries"]
    assert (entry["status"], entry["command"]) == ("skipped", None)


def test_a_missing_or_zero_value_gives_no_ratio() -> None:
    compared = compare({"output_tok_s_whole_run": 10.0, "tpot_ms": None}, {"output_throughput": 0.0})
    assert compared["output_tok_s_whole_run"] == {"ours": 10.0, "theirs": 0.0, "ratio": None}
    assert compared["tpot_ms"]["ratio"] is None
