"""How patches are written down: faults named together, sets, and what ships."""

from __future__ import annotations

import ast

import pytest

from reckoning.patches import PatchError, expand, known, load, load_all
from reckoning.patches.definition import DEFAULT_FOLDER, sets
from tests.unit.patches.conftest import write_patch


def test_a_patch_is_read_as_it_was_written(tmp_path):
    patch = load(write_patch(tmp_path, "one"))
    assert (patch.id, patch.package, patch.versions) == ("one", "sglang", ">=0.5.9,<0.5.17")
    assert (patch.edits[0].old, patch.edits[0].new, patch.edits[0].count) == ("x = 1\n", "x = 2\n", 1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"id": "other"}, "differs from the folder's name"),
        ({"versions": "newer"}, "not a PEP 440 specifier"),
        ({"vesions": ">=1"}, "'vesions' was unexpected"),
        ({"why": None}, "'why' is a required property"),
        ({"edits": [{"file": "sglang/a.py", "old": "x", "new": "x"}]}, "same text"),
        ({"edits": [{"file": "../etc/a.py", "old": "x", "new": "y"}]}, "leaves site-packages"),
        ({"edits": [{"file": "sglang/a.py", "old": "", "new": "y"}]}, "edits.0.old"),
        ({"edits": None}, "top level"),
        ({"files": [{"path": "stub/__init__.py"}]}, "does not exist; add it"),
    ],
)
def test_a_fault_is_named_with_its_file_and_key(tmp_path, changes, words):
    folder = write_patch(tmp_path, "one", **changes)
    with pytest.raises(PatchError) as caught:
        load(folder)
    assert words in str(caught.value)
    assert str(folder / "patch.yaml") in str(caught.value)


def test_all_faults_of_all_patches_come_together(tmp_path):
    write_patch(tmp_path, "one", versions="?", id="uno")
    write_patch(tmp_path, "two", why=None)
    with pytest.raises(PatchError) as caught:
        load_all(tmp_path)
    assert len(caught.value.faults) == 3


def test_a_named_set_stands_for_its_patches_once_each(tmp_path):
    for name in ("one", "two", "three"):
        write_patch(tmp_path, name)
    (tmp_path / "sets.yaml").write_text("pair: [two, one]\n")
    assert [patch.id for patch in expand(["pair", "two", "three"], tmp_path)] == ["one", "three", "two"]
    assert known(tmp_path) == ["one", "pair", "three", "two"]


def test_an_unknown_name_is_answered_with_those_that_exist(tmp_path):
    write_patch(tmp_path, "one")
    with pytest.raises(PatchError, match="no patch 'tow'; there are one"):
        expand(["tow"], tmp_path)


def test_the_hash_changes_with_the_edit_and_not_with_the_prose(tmp_path):
    first = load(write_patch(tmp_path / "a", "one")).sha256
    prose = load(write_patch(tmp_path / "b", "one", why="other words")).sha256
    edit = load(write_patch(tmp_path / "c", "one", versions=">=0.5.10")).sha256
    assert first == prose != edit


def test_every_shipped_patch_is_valid_and_in_an_existing_set():
    shipped = load_all()
    assert {"sglang-pp-start-layer", "sglang-dflash-ep-cuda-graph", "flashinfer-arch-cause"} <= shipped.keys()
    assert {name for names in sets().values() for name in names} <= shipped.keys()


def test_every_shipped_file_is_listed_and_is_python():
    for patch in load_all().values():
        folder = DEFAULT_FOLDER / patch.id / "files"
        there = {
            str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"
        }
        assert there == {item.path for item in patch.files}, patch.id
        for item in patch.files:
            ast.parse(item.content)
