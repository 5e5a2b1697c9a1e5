"""python -m reckoning.patches on an unpacked wheel."""

from __future__ import annotations

import pytest

from reckoning.patches.__main__ import main
from tests.unit.patches.conftest import write_patch


@pytest.fixture
def run(tmp_path, tree, capsys):
    write_patch(tmp_path / "patches", "one")

    def command(*words: str, version: str = "0.5.12") -> tuple[int, str, str]:
        fixed = ["--tree", str(tree), "--package", "sglang", "--version", version]
        status = main([words[0], *fixed, "--patches-folder", str(tmp_path / "patches"), *words[1:]])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return command


def test_status_apply_status_revert(run, tree):
    assert run("status") == (0, "one: not applied yet, fits\n", "")
    assert (tree / "sglang" / "a.py").read_text() == "x = 1\ny = 1\n"
    status, out, _ = run("apply")
    assert status == 0 and "one: applied" in out and "sglang/a.py sha256" in out
    assert (tree / "sglang" / "a.py").read_text() == "x = 2\ny = 1\n"
    assert "one: already-upstream" in run("status")[1]
    assert "one: reverted" in run("revert")[1]
    assert (tree / "sglang" / "a.py").read_text() == "x = 1\ny = 1\n"


def test_a_version_outside_needs_nothing(run, tree):
    status, out, _ = run("apply", version="0.5.23")
    assert status == 0 and "one: not-needed" in out
    assert (tree / "sglang" / "a.py").read_text() == "x = 1\ny = 1\n"


def test_a_patch_that_does_not_fit_ends_with_1_and_changes_nothing(run, tree):
    (tree / "sglang" / "a.py").write_text("rewritten\n")
    status, _, err = run("apply")
    assert status == 1
    assert "anchor" not in err and "sglang 0.5.12: sglang/a.py" in err and "nothing was changed" in err
    assert run("status")[0] == 1


def test_bad_input_ends_with_words(run):
    assert run("status", version="latest")[0] == 2
    status, _, err = run("apply", "tow")
    assert status == 1 and "no patch 'tow'; there are one" in err
