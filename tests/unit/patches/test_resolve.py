"""Outcomes of a patch against a source, decided without touching a file."""

from __future__ import annotations

import itertools

import pytest

from reckoning.patches import Edit, resolve
from tests.unit.patches.conftest import make_patch

SGLANG = {"sglang": "0.5.12.post1"}


def decide(source: dict[str, str], *patches, versions=None):
    return resolve(patches, versions or SGLANG, source.get)


def statuses(resolution) -> dict[str, str]:
    return {outcome.patch.id: outcome.status for outcome in resolution.outcomes}


def test_an_edit_that_fits_is_applied():
    found = decide({"sglang/a.py": "x = 1\ny = 1\n"}, make_patch("p", Edit("sglang/a.py", "x = 1\n", "x = 2\n")))
    assert statuses(found) == {"p": "applied"}
    assert found.contents == {"sglang/a.py": "x = 2\ny = 1\n"}


def test_moved_anchor_is_an_error_that_names_version_and_file():
    """The text was rewritten upstream: neither the old nor the new text is there (case 14)."""
    source = {"sglang/a.py": "x = torch.arange(n + 1, m + 1)\n"}
    edit = Edit("sglang/a.py", "x = self._cache[n + 1 : m + 1]\n", "x = self._cache[n : m]\n")
    found = decide(source, make_patch("p", edit))
    assert statuses(found) == {"p": "anchor-missing"}
    assert not found.contents
    assert "0.5.12.post1" in found.errors[0] and "sglang/a.py" in found.errors[0]


def test_the_new_text_without_the_old_one_is_already_upstream():
    source = {"sglang/a.py": "x = 2\n"}
    found = decide(source, make_patch("p", Edit("sglang/a.py", "x = 1\n", "x = 2\n")))
    assert statuses(found) == {"p": "already-upstream"}
    assert not found.contents and not found.errors


def test_text_that_stands_twice_is_ambiguous_and_never_guessed():
    """Two equal blocks, the patch is meant for the second (case 15)."""
    block = "    if is_sm100():\n        pick()\n"
    edit = Edit("sglang/a.py", block, block.replace("is_sm100", "is_sm120"))
    found = decide({"sglang/a.py": f"def one():\n{block}\ndef two():\n{block}"}, make_patch("p", edit))
    assert statuses(found) == {"p": "ambiguous"}
    assert "2 times, not 1" in found.errors[0]
    assert not found.contents


def test_the_expected_number_of_matches_is_honoured():
    edit = Edit("sglang/a.py", "x = 1\n", "x = 2\n", count=2)
    assert decide({"sglang/a.py": "x = 1\nx = 1\n"}, make_patch("p", edit)).contents == {
        "sglang/a.py": "x = 2\nx = 2\n"
    }
    assert statuses(decide({"sglang/a.py": "x = 1\n"}, make_patch("p", edit))) == {"p": "ambiguous"}


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("0.5.9", "applied"),
        ("0.5.10", "applied"),  # 10 > 9, not "1" < "9"
        ("0.5.8", "not-needed"),
        ("0.5.17", "not-needed"),
        ("0.5.16.post1", "applied"),
        ("0.5.18rc1", "not-needed"),
        ("0.5.9.dev3", "not-needed"),  # a development release comes before the release
        ("0.5.12+g1234abc", "applied"),  # the local part is not the version
        ("0.5.16+cu130", "applied"),
        ("0.5.6.post3.dev9882+gdb017e349", "not-needed"),
        ("0.5.13rc1", "applied"),
    ],
)
def test_versions_are_compared_as_pep_440_says(version, status):
    patch = make_patch("p", Edit("sglang/a.py", "x = 1\n", "x = 2\n"))
    assert statuses(decide({"sglang/a.py": "x = 1\n"}, patch, versions={"sglang": version})) == {"p": status}


def test_a_package_that_is_not_installed_needs_no_patch():
    patch = make_patch("p", Edit("flashinfer/a.py", "x", "y"), package="flashinfer_python")
    assert statuses(decide({}, patch)) == {"p": "not-needed"}
    assert statuses(decide({}, patch, versions={"flashinfer-python": "0.5.12"})) == {"p": "anchor-missing"}


def test_a_line_added_after_its_anchor_is_recognised_on_the_second_run():
    """The new text contains the old one, so the old text is there still."""
    patch = make_patch("p", Edit("sglang/a.py", "register(one)\n", "register(one)\nregister(two)\n"))
    first = decide({"sglang/a.py": "register(one)\n"}, patch)
    assert statuses(first) == {"p": "applied"}
    second = decide(dict(first.contents), patch)
    assert statuses(second) == {"p": "already-upstream"}
    assert not second.contents


def test_a_removed_line_is_recognised_on_the_second_run():
    """The old text contains the new one."""
    patch = make_patch("p", Edit("sglang/a.py", "import heavy\nimport light\n", "import light\n"))
    first = decide({"sglang/a.py": "import heavy\nimport light\n"}, patch)
    assert dict(first.contents) == {"sglang/a.py": "import light\n"}
    assert statuses(decide(dict(first.contents), patch)) == {"p": "already-upstream"}


def test_half_of_a_patch_in_place_is_refused():
    edits = [Edit("sglang/a.py", "x = 1\n", "x = 2\n"), Edit("sglang/b.py", "z = 1\n", "z = 2\n")]
    found = decide({"sglang/a.py": "x = 2\n", "sglang/b.py": "z = 1\n"}, make_patch("p", *edits))
    assert statuses(found) == {"p": "ambiguous"}
    assert "half of the patch" in found.errors[0]


def test_one_bad_patch_keeps_the_whole_set_out():
    good = make_patch("good", Edit("sglang/a.py", "x = 1\n", "x = 2\n"))
    bad = make_patch("bad", Edit("sglang/a.py", "gone", "new"))
    found = decide({"sglang/a.py": "x = 1\n"}, good, bad)
    assert statuses(found) == {"good": "applied", "bad": "anchor-missing"}
    assert not found.contents


def test_overlapping_edits_of_two_patches_are_refused():
    one = make_patch("one", Edit("sglang/a.py", "x = 1\ny = 1\n", "x = 2\ny = 1\n"))
    two = make_patch("two", Edit("sglang/a.py", "y = 1\n", "y = 2\n"))
    found = decide({"sglang/a.py": "x = 1\ny = 1\n"}, one, two)
    assert statuses(found) == {"one": "overlap", "two": "overlap"}
    assert "one and two edit overlapping text in sglang/a.py" in found.errors


def test_neighbouring_edits_do_not_overlap_and_the_order_does_not_matter():
    source = {"sglang/a.py": "x = 1\ny = 1\nw = 1\n"}
    patches = [
        make_patch("one", Edit("sglang/a.py", "x = 1\n", "x = 2\nextra = 0\n")),
        make_patch("two", Edit("sglang/a.py", "y = 1\n", "y = 22222\n")),
        make_patch("three", Edit("sglang/a.py", "w = 1\n", "w\n")),
    ]
    results = {decide(source, *order).contents["sglang/a.py"] for order in itertools.permutations(patches)}
    assert results == {"x = 2\nextra = 0\ny = 22222\nw\n"}


def test_an_edit_cannot_rely_on_the_text_of_another_patch():
    one = make_patch("one", Edit("sglang/a.py", "x = 1\n", "x = 2\n"))
    two = make_patch("two", Edit("sglang/a.py", "x = 2\n", "x = 3\n"))
    assert statuses(decide({"sglang/a.py": "x = 1\n"}, one, two))["two"] == "anchor-missing"


def test_added_files_are_new_or_equal_or_an_error():
    patch = make_patch("p", files=[("stub/__init__.py", "s = 1\n")])
    assert decide({}, patch).contents == {"stub/__init__.py": "s = 1\n"}
    assert statuses(decide({"stub/__init__.py": "s = 1\n"}, patch)) == {"p": "already-upstream"}
    assert statuses(decide({"stub/__init__.py": "other"}, patch)) == {"p": "ambiguous"}


def test_two_patches_that_add_the_same_file_must_agree():
    one, two = (make_patch(name, files=[("stub/__init__.py", text)]) for name, text in (("one", "1"), ("two", "2")))
    found = decide({}, one, two)
    assert not found.contents
    assert "both add stub/__init__.py" in found.errors[0]


def test_an_edit_can_be_narrowed_to_some_versions():
    patch = make_patch(
        "p", Edit("sglang/a.py", "x = 1\n", "x = 2\n", versions="<0.5.12"), Edit("sglang/b.py", "z", "w")
    )
    source = {"sglang/a.py": "x = 1\n", "sglang/b.py": "z"}
    assert set(decide(source, patch, versions={"sglang": "0.5.11"}).contents) == {"sglang/a.py", "sglang/b.py"}
    assert set(decide(source, patch).contents) == {"sglang/b.py"}
