"""The server's log proves which tree it ran."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from reckoning import engine, files
from reckoning.engine.cli import main
from reckoning.engine.proof import MARK, read_proof
from tests.unit.engine.conftest import arm

OVERLAY = {
    "path": "/o",
    "files": {"sglang/a.py": "aa", "sglang/b.py": "bb"},
    "patches": [{"id": "two", "status": "applied", "files": ["sglang/a.py", "sglang/b.py"]}],
}


def line(file: str = "/o/sglang/a.py", sha256: str = "aa", module: str = "sglang.a") -> str:
    return MARK + json.dumps({"module": module, "file": file, "sha256": sha256, "pid": 7}) + "\n"


def test_one_edited_module_with_the_recorded_hash_is_proof():
    proof = read_proof("starting\n[12:00:00] " + line() + "ready\n", OVERLAY)
    assert proof.proven and proof.modules[0]["pid"] == 7


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("ready\n", "no module that two edits was imported"),
        (line(file="/usr/lib/sglang/a.py"), "not from the overlay"),
        (line(sha256="zz"), "has changed since"),
        (line() + line(file="/usr/lib/sglang/b.py"), "not from the overlay"),
        (line()[:40], "no module that two edits was imported"),
    ],
)
def test_anything_else_is_no_proof(log, words):
    proof = read_proof(log, OVERLAY)
    assert not proof.proven
    assert words in proof.faults[0]


def test_an_arm_without_patches_must_not_run_a_patched_module():
    plain = {"path": None, "files": {}, "patches": []}
    assert read_proof("ready\n", plain).proven
    assert not read_proof(line(), plain).proven


def test_the_interpreter_of_the_server_writes_the_proof(root, site, capsys):
    plan = {"engine": {"kind": "existing", "python": sys.executable}, "arms": [arm("plain"), arm("patched", "two")]}
    document = engine.build(plan, root, root / "engine.json", None, lambda text: None)
    overlay = document["overlays"][document["arms"]["patched"]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*overlay["pythonpath"], str(site)])}
    done = subprocess.run(
        [document["python"], "-m", "sglang.a"], env=environment, capture_output=True, text=True, check=True
    )
    assert read_proof(done.stderr, overlay).proven
    (root / "server.log").write_text(done.stderr)
    assert main(["proof", str(root / "engine.json"), "patched", str(root / "server.log")]) == 0
    assert main(["proof", str(root / "engine.json"), "plain", str(root / "server.log")]) == 1
    assert "not proven" in capsys.readouterr().out


def test_the_command_builds_from_a_plan_file(root, site, capsys):
    plan = {"engine": {"kind": "existing", "python": sys.executable}, "arms": [arm("patched", "two")]}
    files.write_json(root / "plan.json", plan)
    assert main(["build", str(root / "plan.json"), "--root", str(root)]) == 0
    assert files.read_json(root / "engine.json")["arms"].keys() == {"patched"}
    assert main(["build", str(root / "missing.json"), "--root", str(root)]) == 2
    assert "error:" in capsys.readouterr().err
