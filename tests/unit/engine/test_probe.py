"""A patch's probe is run with the patch and without it."""

from __future__ import annotations

import sys

import pytest

from reckoning import engine, files
from reckoning.engine.cli import main
from reckoning.engine.probe import probe
from tests.unit.engine.conftest import arm
from tests.unit.patches.conftest import write_patch

CODE = "import sglang.a\nassert sglang.a.x == 2, f'x is {sglang.a.x}'\nprint('x is 2')\n"


@pytest.fixture
def build(tmp_path, root, site):
    def make(code: str | None) -> dict:
        probe_text = {"text": "x", **({"code": code} if code else {})}
        edit = {"file": "sglang/a.py", "old": "x = 1\n", "new": "x = 2\n"}
        write_patch(root / "envs" / "patches", "probed", edits=[edit], probe=probe_text)
        other = {"file": "sglang/a.py", "old": "y = 1\n", "new": "y = 2\n"}
        write_patch(root / "envs" / "patches", "other", edits=[other])
        plan = {"engine": {"kind": "existing", "python": sys.executable}, "arms": [arm("a", "probed", "other")]}
        return engine.build(plan, root, root / "engine.json", None, lambda text: None)

    return make


def test_an_effect_is_shown_by_passing_with_and_failing_without(build, root):
    effects = {effect.patch: effect for effect in probe(build(CODE), "a", root)}
    assert (effects["probed"].shown, effects["probed"].patched) == (True, "x is 2")
    assert effects["probed"].unpatched == "AssertionError: x is 1"
    assert effects["other"].shown is None


def test_a_probe_that_passes_either_way_shows_nothing(build, root, capsys):
    build("print('fine')")
    assert main(["probe", str(root / "engine.json"), "a", "--root", str(root)]) == 1
    assert "probed: NO EFFECT" in capsys.readouterr().out


def test_a_probe_leaves_no_overlay_behind(build, root):
    build(CODE)
    before = sorted((root / ".engines" / "overlays").iterdir())
    assert main(["probe", str(root / "engine.json"), "a", "--root", str(root)]) == 0
    assert sorted((root / ".engines" / "overlays").iterdir()) == before
    assert files.read_json(root / "engine.json")["arms"].keys() == {"a"}
