"""CASE 43: the result lines of bench_serving as they really come."""

import json
from pathlib import Path

from reckoning.files import json_text
from reckoning.load.foreign_results import read_results

LINES = (
    b'\xef\xbb\xbf{"tag": "a", "request_rate": Infinity, "max_concurrency": 4, "mean_itl_ms": NaN, '
    b'"accept_length": null}\n'
    b"\n"
    b'{"tag": "b", "output_throughput": 12.5, "server_info": {"api_key": "sk-abc", "admin_api_key": null, '
    b'"max_total_tokens": 9, "internal_states": [{"api_key": "sk-abc"}]}}\n'
    b'{"tag": "a", "max_concurrency": 4, "output_throughput": -Infinity, "request_rate": 2.0}\n'
    b"[1]\n"
    b'{"tag": "c", "output_throughput": 99.'
)


def test_a_real_file_is_read_with_every_oddity_named(tmp_path: Path) -> None:
    file = tmp_path / "result.jsonl"
    file.write_bytes(LINES)
    results = read_results(file)
    assert [row["tag"] for row in results.rows] == ["a", "b"]
    again, other = results.rows
    assert again == {"tag": "a", "max_concurrency": 4, "output_throughput": None, "request_rate": 2.0}
    assert "max_concurrency" not in other
    assert other["server_info"]["max_total_tokens"] == 9
    assert "sk-abc" not in json_text(results.rows)
    assert json.loads(json_text(results.rows)) == results.rows
    assert [note.split(":")[0] for note in results.notes] == ["line 4", "line 5", "line 6"]
    assert "replaces the earlier one" in results.notes[0]
    assert "cut off" in results.notes[2]


def test_rows_without_a_tag_are_all_kept(tmp_path: Path) -> None:
    file = tmp_path / "result.jsonl"
    file.write_text('{"output_throughput": 1}\n{"output_throughput": 2}\n')
    assert [row["output_throughput"] for row in read_results(file).rows] == [1, 2]
