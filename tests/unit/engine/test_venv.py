"""A managed engine is built from its locks, whole or not at all."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from reckoning.engine.spec import EngineError, load_specs
from reckoning.engine.venv import MARK, ensure_venv
from tests.unit.engine.conftest import wheel

pytestmark = pytest.mark.slow  # each test makes a virtual environment: some seconds


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


def test_the_engine_is_built_once_and_found_again(build, tmp_path):
    python, said = build(tmp_path / "engine.log")
    answer = subprocess.run(
        [python, "-c", "import tiny; print(tiny.answer)"], capture_output=True, text=True, check=True
    )
    assert answer.stdout == "42\n"
    assert any("step 1 of 1" in text for text in said)
    assert "tiny" in (tmp_path / "engine.log").read_text()
    again, said = build()
    assert again == python
    assert said == [f"engine: tiny is built ({python.parent.parent.name})"]


def test_an_interrupted_build_is_not_taken_for_an_engine(build):
    python, _ = build()
    folder = python.parent.parent
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


def test_a_changed_lock_gets_an_engine_of_its_own(build, tmp_path):
    first, _ = build()
    with (tmp_path / "envs" / "tiny.lock").open("a") as stream:
        stream.write("# another lock\n")
    second, _ = build()
    assert first != second and first.exists()


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
    assert any("pip finds no torch==2.0+special" in text for text in said)
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


def test_our_own_python_path_does_not_reach_the_engine(build, monkeypatch, tmp_path):
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "tiny.py").write_text("answer = 0\n")
    monkeypatch.setenv("PYTHONPATH", str(shadow))
    python, _ = build()
    assert python.parent.parent.parent == tmp_path / ".engines"
    assert sys.prefix not in str(python)
