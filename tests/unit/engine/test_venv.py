"""A managed engine is built from its locks, whole or not at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from reckoning.engine import venv
from reckoning.engine.spec import EngineError, load_specs
from reckoning.engine.venv import MARK, ensure_venv
from tests.unit.engine.conftest import wheel

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """Return an empty virtual environment, made once: pip's own unpacking is most of what a tiny engine costs."""
    folder = tmp_path_factory.mktemp("template") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return folder


@pytest.fixture(autouse=True)
def copied_environments(template, monkeypatch):
    """Copy the template where a build asks for a new virtual environment; every other command runs as it is."""
    real = venv._run

    def run(command, *rest):
        if command[1:3] == ["-m", "venv"]:
            shutil.copytree(template, command[3], symlinks=True)
        else:
            real(command, *rest)

    monkeypatch.setattr(venv, "_run", run)


def write_engine(envs: Path, offline: Path, *locks: dict, **changes) -> None:
    """Write engines.yaml for `tiny`, an engine of one package that lies in `offline`."""
    _, value = wheel(offline, "tiny", "1.0", "answer = 42\n")
    envs.mkdir(parents=True, exist_ok=True)
    (envs / "tiny.lock").write_text(f"tiny==1.0 \\\n    --hash=sha256:{value}\n")
    entry = {
        "package": "tiny",
        "version": "1.0",
        "device": "cpu",
        "python": ">=3.11",
        "locks": [*locks, {"file": "tiny.lock"}],
    }
    (envs / "engines.yaml").write_text(yaml.safe_dump({"tiny": {**entry, **changes}}))


@pytest.fixture
def build(tmp_path, offline):
    write_engine(tmp_path / "envs", offline)

    def ensure(log: Path | None = None) -> tuple[Path, list[str]]:
        said: list[str] = []
        spec = load_specs(tmp_path / "envs")["tiny"]
        return ensure_venv(spec, tmp_path / ".engines", log, said.append), said

    return ensure


def test_an_engine_is_built_once_found_again_and_made_anew_after_an_interruption(build, tmp_path, monkeypatch):
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "tiny.py").write_text("answer = 0\n")
    monkeypatch.setenv("PYTHONPATH", str(shadow))  # ours, not the engine's

    python, said = build(tmp_path / "engine.log")
    folder = python.parent.parent
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [python, "-c", "import tiny; print(tiny.answer)"]
    assert subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout == "42\n"
    assert folder.parent == tmp_path / ".engines"
    assert any("step 1 of 1" in text for text in said)
    assert "tiny" in (tmp_path / "engine.log").read_text()

    assert build() == (python, [f"engine: tiny is built ({folder.name})"])

    (folder / MARK).unlink()
    (folder / "leftover").touch()
    again, said = build()
    assert again == python and not (folder / "leftover").exists()
    assert any("unfinished" in text for text in said)


def test_a_file_with_another_hash_is_refused_and_the_engine_stays_unbuilt(build, tmp_path):
    lock = tmp_path / "envs" / "tiny.lock"
    lock.write_text(lock.read_text()[:-5] + "0000\n")
    with pytest.raises(EngineError, match=r"tiny\.lock: exit status 1"):
        build()
    assert not list((tmp_path / ".engines").glob(f"*/{MARK}"))


def test_a_changed_lock_or_another_python_gets_an_engine_of_its_own(tmp_path, build):
    def key(python: str = "3.11") -> str:
        return load_specs(tmp_path / "envs")["tiny"].key(python)

    first = key()
    assert key() == first != key("3.12")
    with (tmp_path / "envs" / "tiny.lock").open("a") as stream:
        stream.write("# another lock\n")
    assert key() != first


def test_a_lock_that_names_another_version_is_noticed(tmp_path, offline, build):
    write_engine(tmp_path / "envs", offline, version="2.0")
    with pytest.raises(EngineError, match=r"holds tiny 1\.0, not 2\.0"):
        build()


def test_a_lock_that_pip_may_not_find_is_passed_over(tmp_path, offline, build):
    envs = tmp_path / "envs"
    write_engine(
        envs, offline, {"file": "special.lock", "when": "if-found"}, {"file": "torch.lock", "when": "torch-missing"}
    )
    (envs / "special.lock").write_text(f"torch==2.0+special \\\n    --hash=sha256:{'0' * 64}\n")
    _, value = wheel(offline, "torch", "2.0", "")
    (envs / "torch.lock").write_text(f"torch==2.0 \\\n    --hash=sha256:{value}\n")
    python, said = build()
    assert any("no torch==2.0+special for this machine" in text for text in said)
    subprocess.run([python, "-c", "import torch, tiny"], check=True)


def test_the_lock_for_a_missing_torch_is_left_out_when_the_first_was_found(tmp_path, offline, build):
    envs = tmp_path / "envs"
    write_engine(
        envs, offline, {"file": "special.lock", "when": "if-found"}, {"file": "torch.lock", "when": "torch-missing"}
    )
    _, value = wheel(offline, "torch", "2.0+special", "")
    (envs / "special.lock").write_text(f"torch==2.0+special \\\n    --hash=sha256:{value}\n")
    (envs / "torch.lock").write_text(f"torch==2.0 \\\n    --hash=sha256:{'0' * 64}\n")
    _, said = build()
    assert any("torch.lock not needed" in text for text in said)


def test_a_python_outside_the_engines_range_is_refused_before_anything_is_made(tmp_path, offline, build):
    write_engine(tmp_path / "envs", offline, python=">=3.99")
    with pytest.raises(EngineError, match=r"needs Python >=3\.99"):
        build()
    assert not (tmp_path / ".engines").exists()


def test_two_builders_make_one_engine(build):
    results: list[tuple[Path, list[str]]] = []
    threads = [threading.Thread(target=lambda: results.append(build())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({python for python, _ in results}) == 1
    steps = [text for _, said in results for text in said if "building tiny" in text]
    assert len(steps) == 1


def test_a_relative_folder_works_as_the_workflow_names_it(tmp_path, offline, monkeypatch):
    write_engine(tmp_path / "envs", offline)
    monkeypatch.chdir(tmp_path)
    python = ensure_venv(load_specs(tmp_path / "envs")["tiny"], Path(".engines"), None, lambda _: None)
    assert python.is_absolute()
    assert python.exists()
