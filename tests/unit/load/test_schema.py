"""points.schema.json is what the client writes."""

import json
import time
from pathlib import Path

import jsonschema
from scripted_server import ScriptedServer, chat, plain

from reckoning.files import json_text
from reckoning.load import Target, measure_points
from reckoning.load.flags import FLAGS
from reckoning.load.records import POINT_KEYS, blank_point

SCHEMA = json.loads((Path(__file__).parents[3] / "workflow/schemas/points.schema.json").read_text())


def test_good_failed_and_unmeasured_points_fit_the_schema(chat_workload: dict) -> None:
    def script(number: int, body: dict) -> list:
        return chat(8) if number < 4 else plain(503, b"busy")

    base = {"workload": "chat", "concurrency": 2, "seed": 1, "requests": 4, "warmup_requests": 0}
    points = [{"index": n, "repeat": n + 1, **base} for n in range(2)] + [
        {"index": 2, "repeat": 3, **base, "workload": "x"}
    ]
    with ScriptedServer(script, sglang=True) as server:
        target = Target(server.url, "m")
        zero = time.monotonic()
        measured = measure_points(
            target, points, {"chat": chat_workload | {"flush": True}}, seed=1, limits={}, launch_clock_start=zero
        )
    assert [entry["status"] for entry in measured.points] == ["ok", "failed", "failed"]
    document = json.loads(json_text({"schema_version": 1, "points": measured.points}))
    jsonschema.validate(document, SCHEMA)


def test_the_schema_names_every_key_and_every_flag() -> None:
    point = SCHEMA["$defs"]["point"]
    later = {
        "arrival_clock",
        "client_read_delay_p99_ms",
        "client_hot_path",
    }  # points that were measured before have none
    assert list(point["properties"]) == list(POINT_KEYS)
    assert point["required"] == [key for key in POINT_KEYS if key not in later]
    assert point["properties"]["flags"]["items"]["enum"] == list(FLAGS)
    assert set(blank_point({"index": 0, "workload": "w", "concurrency": 1, "repeat": 1})) == set(POINT_KEYS)
