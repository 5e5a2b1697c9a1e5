"""Patches on files: all or none, verified, again without effect, and back."""

from __future__ import annotations

import hashlib
import os
import py_compile
from pathlib import Path

import pytest

from reckoning import files
from reckoning.patches import Edit, PatchError, apply, revert, status
from reckoning.patches.tree import base_folder
from tests.unit.patches.conftest import make_patch

VERSIONS = {"sglang": "0.5.12.post1"}
TWO_FILES = make_patch("p", Edit("sglang/a.py", "x = 1\n", "x = 2\n"), Edit("sglang/b.py", "z = 1\n", "z = 2\n"))


def contents(tree: Path) -> dict[str, str]:
    return {str(path.relative_to(tree)): path.read_text() for path in sorted(tree.rglob("*.py"))}


def test_apply_writes_what_was_decided_and_returns_the_hashes(tree):
    _, hashes = apply([TWO_FILES], VERSIONS, tree)
    assert contents(tree)["sglang/a.py"] == "x = 2\ny = 1\n"
    assert hashes == {
        "sglang/a.py": hashlib.sha256(b"x = 2\ny = 1\n").hexdigest(),
        "sglang/b.py": hashlib.sha256(b"z = 2\n").hexdigest(),
    }


def test_status_changes_nothing(tree):
    before = contents(tree)
    status([TWO_FILES], VERSIONS, tree)
    assert contents(tree) == before


def test_a_second_run_changes_nothing(tree):
    apply([TWO_FILES], VERSIONS, tree)
    times = {path: path.stat().st_mtime_ns for path in tree.rglob("*.py")}
    resolution, hashes = apply([TWO_FILES], VERSIONS, tree)
    assert hashes == {}
    assert [outcome.status for outcome in resolution.outcomes] == ["already-upstream"]
    assert times == {path: path.stat().st_mtime_ns for path in tree.rglob("*.py")}


def test_revert_restores_every_byte(tree):
    before = contents(tree)
    patch = make_patch("p", *TWO_FILES.edits, files=[("stub/__init__.py", "s = 1\n")])
    apply([patch], VERSIONS, tree)
    revert([patch], VERSIONS, tree)
    assert contents(tree) == before


def test_a_set_that_does_not_fit_leaves_every_file_alone(tree):
    before = contents(tree)
    bad = make_patch("bad", Edit("sglang/b.py", "gone\n", "new\n"))
    with pytest.raises(PatchError, match=r"bad: sglang 0\.5\.12\.post1: sglang/b\.py"):
        apply([TWO_FILES, bad], VERSIONS, tree)
    assert contents(tree) == before


def test_a_failure_while_writing_restores_the_files_already_written(tree, monkeypatch):
    before = contents(tree)
    real = files.write_text

    def fail_on_second(path, text):
        if Path(path).name == "b.py":
            raise OSError(28, "No space left on device")
        real(path, text)

    monkeypatch.setattr(files, "write_text", fail_on_second)
    with pytest.raises(OSError, match="No space left"):
        apply([TWO_FILES], VERSIONS, tree)
    assert contents(tree) == before


def test_a_file_that_reads_back_differently_is_an_error_and_is_restored(tree, monkeypatch):
    before = contents(tree)
    real = files.write_text
    monkeypatch.setattr(files, "write_text", lambda path, text: real(path, text.replace("z = 2", "z = 3")))
    with pytest.raises(PatchError, match="reads back differently"):
        apply([TWO_FILES], VERSIONS, tree)
    assert contents(tree) == before


def test_a_hard_linked_original_is_not_changed(tree, tmp_path):
    """Package caches link files into several environments."""
    cached = tmp_path / "cached.py"
    os.link(tree / "sglang" / "a.py", cached)
    apply([TWO_FILES], VERSIONS, tree)
    assert cached.read_text() == "x = 1\ny = 1\n"


def test_byte_code_of_the_old_text_is_removed(tree):
    compiled = Path(py_compile.compile(str(tree / "sglang" / "a.py")))
    other = Path(py_compile.compile(str(tree / "sglang" / "__init__.py")))
    apply([TWO_FILES], VERSIONS, tree)
    assert not compiled.exists()
    assert other.exists()


def test_line_ends_are_kept(tree):
    (tree / "sglang" / "a.py").write_bytes(b"x = 1\r\ny = 1\r\n")
    patch = make_patch("p", Edit("sglang/a.py", "x = 1", "x = 2"))
    apply([patch], VERSIONS, tree)
    assert (tree / "sglang" / "a.py").read_bytes() == b"x = 2\r\ny = 1\r\n"


@pytest.mark.parametrize("layout", [".", "python", "site-packages"])
def test_every_layout_of_a_tree_is_found(tmp_path, layout):
    (tmp_path / layout / "sglang").mkdir(parents=True)
    assert base_folder(tmp_path, "sglang").resolve() == (tmp_path / layout).resolve()
    assert base_folder(tmp_path / layout / "sglang", "sglang").resolve() == (tmp_path / layout).resolve()


def test_a_tree_without_the_package_is_refused(tmp_path):
    with pytest.raises(PatchError, match="holds no folder 'sglang'"):
        base_folder(tmp_path, "sglang")
