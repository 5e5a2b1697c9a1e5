"""An existing engine gets overlays; nothing that was installed changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from reckoning import engine, files
from reckoning.patches import PatchError
from tests.unit.engine.conftest import A, arm
from tests.unit.patches.conftest import write_patch

SCRIPTS = Path(engine.__file__).resolve().parents[2]


def existing(**changes):
    return {"kind": "existing", "lock": None, "version": None, "python": sys.executable, **changes}


def built(root: Path, *arms, engine_settings=None, progress=lambda text: None) -> dict:
    plan = {"engine": engine_settings or existing(), "arms": list(arms)}
    document = engine.build(plan, root, root / "engine.json", None, progress)
    assert files.read_json(root / "engine.json") == json.loads(files.json_text(document))
    return document


def run(document: dict, slug: str, code: str) -> subprocess.CompletedProcess:
    """Run `code` as a server of this arm would run."""
    overlay = document["overlays"][document["arms"][slug]]
    environment = {**os.environ, **overlay["env"], "PYTHONPATH": os.pathsep.join(overlay["pythonpath"])}
    return subprocess.run([document["python"], "-c", code], env=environment, capture_output=True, text=True, check=True)


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in sorted(folder.rglob("*")) if path.is_file()
    }


def test_an_arm_with_and_an_arm_without_a_patch_run_different_trees(root, site):
    document = built(root, arm("plain"), arm("patched", "two"), arm("never", "two", status="rejected"))
    assert set(document["arms"]) == {"plain", "patched"}
    code = "import sglang.a; print(sglang.a.x)"
    assert run(document, "plain", code).stdout == "1\n"
    assert run(document, "patched", code).stdout == "2\n"


def test_the_installed_package_is_not_touched(root, site):
    before = snapshot(site)
    document = built(root, arm("patched", "two"))
    run(document, "patched", "import sglang")
    assert snapshot(site) == before


def test_the_whole_package_is_copied_and_only_the_edited_file_differs(root, site):
    document = built(root, arm("patched", "two"))
    overlay = Path(document["overlays"][document["arms"]["patched"]]["path"])
    assert (overlay / "sglang" / "data.txt").read_text() == "kept\n"
    assert (overlay / "sglang" / "__init__.py").read_text() == (site / "sglang" / "__init__.py").read_text()
    assert (overlay / "sglang" / "a.py").read_text().startswith("x = 2\ny = 1\n")


def test_old_byte_code_is_never_run_in_place_of_the_patched_text(root, site):
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(site)], check=True)
    document = built(root, arm("patched", "two"))
    assert run(document, "patched", "import sglang.a; print(sglang.a.x)").stdout == "2\n"


def test_engine_json_records_the_patch_and_its_outcome(root, site):
    document = built(root, arm("patched", "two"))
    assert (document["version"], document["kind"], document["lock"]) == ("0.5.12.post1", "existing", None)
    assert document["packages"]["sglang"] == "0.5.12.post1"
    overlay = document["overlays"][document["arms"]["patched"]]
    patch = overlay["patches"][0]
    assert (patch["id"], patch["status"], patch["version"], patch["files"]) == (
        "two", "applied", "0.5.12.post1", ["sglang/a.py"],
    )  # fmt: skip
    for path, value in overlay["files"].items():
        assert files.sha256_file(Path(overlay["path"]) / path) == value


def test_a_site_folder_stays_on_the_path_behind_the_overlay_and_our_own_code_does_not(root, site, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SCRIPTS), str(site)]))
    document = built(root, arm("plain"), arm("patched", "two"))
    paths = {slug: document["overlays"][document["arms"][slug]]["pythonpath"] for slug in document["arms"]}
    assert paths["plain"] == [str(site)]
    assert paths["patched"][1:] == [str(site)] and "overlays" in paths["patched"][0]


def test_equal_patch_sets_share_an_overlay_that_is_made_once(root, site):
    document = built(root, arm("one", "two"), arm("other", "two"))
    assert document["arms"]["one"] == document["arms"]["other"]
    path = Path(document["overlays"][document["arms"]["one"]]["path"])
    made = path.stat().st_ctime_ns
    assert built(root, arm("one", "two"))["arms"] == {"one": path.name}
    assert path.stat().st_ctime_ns == made


def test_a_changed_patch_gets_an_overlay_of_its_own(root, site):
    first = built(root, arm("one", "two"))["arms"]["one"]
    path = root / "envs" / "patches" / "two" / "patch.yaml"
    path.write_text(path.read_text().replace("x = 2", "x = 3"))
    second = built(root, arm("one", "two"))
    assert second["arms"]["one"] != first
    assert run(second, "one", "import sglang.a; print(sglang.a.x)").stdout == "3\n"


def test_a_changed_source_gets_an_overlay_of_its_own(root, site):
    """An editable checkout changes without a new version."""
    first = built(root, arm("one", "two"))["arms"]["one"]
    (site / "sglang" / "b.py").write_text("new = 1\n")
    assert built(root, arm("one", "two"))["arms"]["one"] != first


def test_a_damaged_overlay_is_made_again(root, site):
    document = built(root, arm("one", "two"))
    edited = Path(document["overlays"][document["arms"]["one"]]["path"]) / "sglang" / "a.py"
    edited.write_text("x = 'tampered'\n")
    document = built(root, arm("one", "two"))
    assert run(document, "one", "import sglang.a; print(sglang.a.x)").stdout == "2\n"


def test_what_a_killed_builder_left_is_removed_and_never_used(root, site):
    left = root / ".engines" / "overlays" / ".0123.abc.part"
    left.mkdir(parents=True)
    document = built(root, arm("one", "two"))
    assert not left.exists()
    assert run(document, "one", "import sglang.a; print(sglang.a.x)").stdout == "2\n"


def test_a_patch_that_does_not_fit_stops_the_build_and_leaves_nothing(root, site):
    (site / "sglang" / "a.py").write_text("rewritten = 1\n")
    with pytest.raises(PatchError, match=r"two: sglang 0\.5\.12\.post1: sglang/a\.py"):
        built(root, arm("one", "two"))
    assert not (root / "engine.json").exists()
    assert not list((root / ".engines").glob("overlays/*"))


def test_a_patch_that_does_not_compile_stops_the_build(root, site):
    path = root / "envs" / "patches" / "two" / "patch.yaml"
    path.write_text(path.read_text().replace("x = 2", "x = = 2"))
    with pytest.raises(engine.EngineError, match="does not compile"):
        built(root, arm("one", "two"))
    assert not list((root / ".engines").glob("overlays/*"))


def test_a_patch_of_another_version_is_recorded_as_not_needed_and_makes_no_overlay(root, site):
    path = root / "envs" / "patches" / "two" / "patch.yaml"
    path.write_text(path.read_text().replace(">=0.5.9,<0.5.17", ">=0.5.13"))
    document = built(root, arm("plain"), arm("one", "two"))
    overlay = document["overlays"][document["arms"]["one"]]
    assert (overlay["path"], overlay["pythonpath"], overlay["patches"][0]["status"]) == (
        None,
        [str(site)],
        "not-needed",
    )
    assert document["overlays"][document["arms"]["plain"]]["patches"] == []


def test_compiled_kernels_of_a_patched_flashinfer_are_kept_apart(root, site):
    package = site / "flashinfer"
    package.mkdir()
    (package / "__init__.py").write_text("f = 1\n")
    info = site / "flashinfer_python-0.6.11.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: flashinfer-python\nVersion: 0.6.11\n")
    edit = {"file": "flashinfer/__init__.py", "old": "f = 1\n", "new": "f = 2\n"}
    write_patch(root / "envs" / "patches", "fi", package="flashinfer-python", versions=">=0.6", edits=[edit])
    document = built(root, arm("plain"), arm("one", "fi"), arm("both", "fi", "two"))
    bases = {
        slug: document["overlays"][document["arms"][slug]]["env"].get("FLASHINFER_WORKSPACE_BASE")
        for slug in document["arms"]
    }
    assert bases["plain"] is None
    assert bases["one"] and bases["both"] and bases["one"] != bases["both"]


def test_the_asked_for_version_must_be_there(root, site):
    with pytest.raises(engine.EngineError, match=r"0\.5\.23 was asked for, .* has sglang 0\.5\.12\.post1"):
        built(root, arm("plain"), engine_settings=existing(version="0.5.23"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (existing(python=None), "engine.python: null"),
        (existing(python="/no/such/python"), "is not an executable file"),
        (existing(python="/bin/false"), "exit status 1"),
        ({"kind": "managed", "lock": "sglang-9", "python": None}, "engine.lock: 'sglang-9' is not in"),
    ],
)
def test_an_engine_that_cannot_be_used_is_named_with_its_key(root, site, settings, words):
    (root / "envs" / "engines.yaml").write_text("{}\n")
    with pytest.raises(engine.EngineError) as caught:
        built(root, arm("plain"), engine_settings=settings)
    assert words in str(caught.value)


def test_the_interpreter_may_be_a_name_or_begin_with_home(root, site, monkeypatch, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python-here").symlink_to(sys.executable)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    for name in ("python-here", "~/bin/python-here"):
        document = built(root, arm("plain"), engine_settings=existing(python=name))
        assert document["python"] == str(tmp_path / "bin" / "python-here")


def test_the_source_is_what_the_fixture_wrote(site):
    assert (site / "sglang" / "a.py").read_text() == A
