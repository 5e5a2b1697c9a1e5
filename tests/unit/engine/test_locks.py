"""Lock files: complete, hashed, without a host, and equal to the conda specs beside them."""

from __future__ import annotations

import re
import subprocess

import pytest
import yaml
from packaging.markers import Marker
from packaging.utils import canonicalize_name

from reckoning.engine import load_specs, locks
from reckoning.engine.locks import Pin, newer, parse, select
from reckoning.engine.spec import ENVS, EngineError

LOCKS = sorted(ENVS.glob("*.lock"))


def pins(name: str) -> list[Pin]:
    return parse((ENVS / f"{name}.lock").read_text())


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_every_pin_is_exact_and_hashed_and_no_host_is_named(path):
    text = path.read_text()
    found = parse(text)
    assert found
    for pin in found:
        assert pin.hashes, pin.name
        assert all(re.fullmatch(r"[0-9a-f]{64}", value) for value in pin.hashes), pin.name
    assert "://" not in text and "index" not in text.replace("tree-sitter-index", "")


def test_every_lock_is_in_the_list_and_has_its_source():
    options = locks.load_options()
    assert {path.stem for path in LOCKS} == options.keys()
    for name, settings in options.items():
        assert "pins" in (settings or {}) or (ENVS / (settings or {}).get("from", f"{name}.in")).exists()


@pytest.mark.parametrize(
    "name", [name for name, settings in locks.load_options().items() if "conda" in (settings or {})]
)
def test_the_conda_spec_is_equal_to_the_lock(name):
    settings = locks.load_options()[name]["conda"]
    document = yaml.safe_load((ENVS / settings["file"]).read_text())
    (listed,) = [item["pip"] for item in document["dependencies"] if isinstance(item, dict)]
    expected = [f"{pin.name}=={pin.version}" + (f" ; {pin.marker}" if pin.marker else "") for pin in pins(name)]
    assert listed == expected
    assert f"python ={settings['python']}" in document["dependencies"]


def test_every_conda_spec_belongs_to_a_lock():
    listed = {settings["conda"]["file"] for settings in locks.load_options().values() if "conda" in (settings or {})}
    specs = {path.name for path in ENVS.glob("*.yaml")} - {"locks.yaml", "engines.yaml"}
    assert specs == listed


@pytest.mark.parametrize("name", sorted(load_specs()))
def test_an_engine_is_locked_at_its_version_for_both_pythons(name):
    spec = load_specs()[name]
    locked = {pin.name: pin.version for pin in parse(spec.locks[-1].path.read_text())}
    assert locked[spec.package] == spec.version
    assert spec.supports("3.11") and spec.supports("3.12")


def test_the_cuda_13_engine_has_the_versions_that_work_together():
    locked = {pin.name: pin.version for pin in pins("sglang-0.5.12.post1-cu130")}
    assert locked["torch"] == "2.11.0" and locked["flashinfer-python"] == "0.6.11.post1"
    assert locked["cuda-toolkit"].startswith("13.0.")  # what the index's torch 2.11.0 asks for: it is the cu130 build
    assert tuple(map(int, locked["kernels"].split(".")[:2])) < (0, 15)  # newer ones break transformers 5.6.0


def test_the_cpu_engine_has_no_gpu_package():
    excluded = {line for line in (ENVS / "sglang-cpu.excludes").read_text().splitlines() if line and line[0] != "#"}
    locked = {pin.name for pin in pins("sglang-0.5.12.post1-cpu")}
    assert not locked & excluded
    assert not {name for name in locked if name.startswith(("nvidia-", "cuda-"))}


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
@pytest.mark.parametrize("python", ["3.11.9", "3.12.1"])
def test_one_version_of_each_package_for_a_linux_machine(path, python):
    machine = {"python_full_version": python, "python_version": python[:4]}
    machine |= {"sys_platform": "linux", "platform_machine": "x86_64", "platform_system": "Linux", "os_name": "posix"}
    machine |= {"implementation_name": "cpython", "platform_python_implementation": "CPython"}
    chosen = [
        canonicalize_name(pin.name)
        for pin in parse(path.read_text())
        if not pin.marker or Marker(pin.marker).evaluate(machine)
    ]
    assert len(chosen) == len(set(chosen))


def test_a_line_that_is_no_pin_is_refused():
    with pytest.raises(EngineError, match="neither a pin nor a hash"):
        parse("sglang>=0.5\n")


def test_packages_are_chosen_by_name():
    found = [Pin(name, "1", "", ("a",)) for name in ("torch", "nvidia-cublas", "triton")]
    assert [pin.name for pin in select(found, {"only": ["torch", "nvidia-*"]})] == ["torch", "nvidia-cublas"]
    assert [pin.name for pin in select(found, {"without": ["nvidia-*"]})] == ["torch", "triton"]


def test_newer_releases_are_compared_as_versions():
    present = [Pin("a", "1.9", "", ()), Pin("b", "2.0", "", ()), Pin("c", "1", "", ()), Pin("c", "2", "x", ())]
    latest = [Pin("a", "1.10", "", ()), Pin("b", "2.0", "", ()), Pin("c", "2", "", ())]
    assert newer(present, latest) == {"a": ("1.9", "1.10")}


def test_check_tells_a_lock_that_no_longer_resolves(monkeypatch, capsys, tmp_path):
    """A release was withdrawn from the index: uv answers with an error."""

    def refuse(command, **_):
        return subprocess.CompletedProcess(command, 1, "", "there is no version of a==1.0")

    (tmp_path / "locks.yaml").write_text("one: {}\n")
    (tmp_path / "one.lock").write_text(f"a==1.0 \\\n    --hash=sha256:{'0' * 64}\n")
    monkeypatch.setattr(subprocess, "run", refuse)
    assert locks.main(["check", "--envs", str(tmp_path)]) == 1
    assert "one: error: one.in: does not resolve: there is no version of a==1.0" in capsys.readouterr().err


def test_check_lists_what_is_newer_and_what_holds_it_back(monkeypatch, capsys, tmp_path):
    (tmp_path / "locks.yaml").write_text("one: {}\n")
    text = "".join(f"{name}==1.0 \\\n    --hash=sha256:{'0' * 64}\n" for name in ("free", "held"))
    (tmp_path / "one.lock").write_text(text)
    raised = [Pin("free", "2.0", "", ("0" * 64,)), Pin("held", "1.0", "", ("0" * 64,))]
    monkeypatch.setattr(locks, "compile_lock", lambda name, envs, upgrade=False: raised if upgrade else parse(text))
    monkeypatch.setattr(locks, "newest", lambda pins, envs: [Pin("free", "2.0", "", ()), Pin("held", "3.0", "", ())])
    assert locks.main(["check", "--envs", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "2 have a newer release, 1 could be raised" in out
    assert "free 1.0 -> 2.0 (fits)" in out and "held 1.0 -> 3.0 (held back" in out
