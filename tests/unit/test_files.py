"""Files are whole or absent, and JSON is strict."""

import dataclasses
import enum
import json
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from reckoning.files import digest, json_text, jsonable, read_json, replacing, write_json, write_table


def test_numbers_without_a_json_form_become_null():
    text = json_text({"a": math.nan, "b": [math.inf, -math.inf, 1.5], "c": np.float64("nan"), "d": np.array([1, 2])})
    strict = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in strict JSON"))
    assert strict == {"a": None, "b": [None, None, 1.5], "c": None, "d": [1, 2]}


def test_plain_types_come_out_of_dataclasses_enums_and_sets():
    class Level(enum.Enum):
        WARN = "warn"

    @dataclasses.dataclass(frozen=True)
    class Finding:
        level: Level
        arms: frozenset

    assert jsonable(Finding(Level.WARN, frozenset({"b", "a"}))) == {"level": "warn", "arms": ["a", "b"]}
    with pytest.raises(TypeError, match="no JSON form for object"):
        jsonable(object())


def test_digest_ignores_key_order_and_notices_values():
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
    # Independent: SHA-256 of the four bytes `null`, as sha256sum prints it.
    assert digest(None) == "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"


def test_an_error_while_writing_leaves_the_old_file_and_no_other(tmp_path):
    target = tmp_path / "plan.json"
    write_json(target, {"old": True})
    with pytest.raises(RuntimeError), replacing(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert read_json(target) == {"old": True}
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_a_writer_killed_half_way_leaves_the_old_file(tmp_path):
    target = tmp_path / "plan.json"
    write_json(target, {"old": True})
    code = (
        "import sys, time\nfrom reckoning.files import replacing\n"
        f"with replacing({str(target)!r}) as t:\n t.write_text('half'); print('x', flush=True); time.sleep(60)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert writer.stdout.readline() == b"x\n"
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    assert read_json(target) == {"old": True}


def test_a_reader_never_sees_half_a_file(tmp_path):
    target = tmp_path / "big.json"
    write_json(target, list(range(20_000)))
    end = time.monotonic() + 0.5
    pid = os.fork()
    if pid == 0:
        while time.monotonic() < end:
            write_json(target, list(range(20_000)))
        os._exit(0)
    while time.monotonic() < end:
        assert len(read_json(target)) == 20_000
    os.waitpid(pid, 0)


def test_not_json_is_said_with_its_place(tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_text('{"a": ')
    with pytest.raises(ValueError, match=r"broken\.json is not JSON.*line 1 column 7"):
        read_json(broken)


def test_tables_have_a_csv_twin_with_the_same_values(tmp_path):
    table = pd.DataFrame({"arm": ["tp1", "tp2"], "output_tok_s": [1.25, None]})
    write_table(tmp_path / "points.parquet", table, csv=True)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "points.parquet"), table)
    assert (tmp_path / "points.csv").read_text() == "arm,output_tok_s\ntp1,1.25\ntp2,\n"
