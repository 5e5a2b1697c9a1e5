"""Every shipped patch on the real wheels of the versions it speaks of, fetched without dependencies.

The wheels (100 MB) are kept in the folder that RECKONING_WHEELS names, by default ~/.cache/reckoning/wheels.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from reckoning.patches import apply, load_all, revert, status
from reckoning.patches.__main__ import main

WHEELS = Path(os.environ.get("RECKONING_WHEELS", Path.home() / ".cache" / "reckoning" / "wheels"))
SGLANG = ("0.5.9", "0.5.11", "0.5.12.post1", "0.5.16", "0.5.23")
FLASHINFER = ("0.6.11.post1",)

A, N = "applied", "not-needed"
EXPECTED = {
    #                                0.5.9  0.5.11  0.5.12.post1  0.5.16  0.5.23
    "sglang-pp-start-layer": dict(zip(SGLANG, (A, A, A, A, N), strict=True)),
    "sglang-dflash-ep-cuda-graph": dict(zip(SGLANG, (N, A, A, N, N), strict=True)),
    "sglang-cpu-experts": dict(zip(SGLANG, (A, A, A, A, A), strict=True)),
    "sglang-cpu-fork": dict(zip(SGLANG, (N, A, A, A, A), strict=True)),
    "sglang-cpu-imports": dict(zip(SGLANG, (N, A, A, A, A), strict=True)),
    "sglang-cpu-mla": dict(zip(SGLANG, (N, A, A, A, A), strict=True)),
    "flashinfer-arch-cause": {"0.6.11.post1": A},
}
CASES = [("sglang", version) for version in SGLANG] + [("flashinfer-python", version) for version in FLASHINFER]

pytestmark = pytest.mark.slow


def wheel(package: str, version: str) -> Path:
    """Return the wheel, downloading it once; skips with the reason where the index does not answer."""
    pattern = f"{package.replace('-', '_')}-{version}-*.whl"
    WHEELS.mkdir(parents=True, exist_ok=True)
    if not list(WHEELS.glob(pattern)):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
        command += ["--python-version", "3.11", "-d", str(WHEELS), f"{package}=={version}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
            reason = done.stderr.strip().splitlines()[-1:] if done.returncode else []
        except subprocess.TimeoutExpired:
            reason = ["no answer within 240 s"]
        if not list(WHEELS.glob(pattern)):
            pytest.skip(f"{package} {version} cannot be downloaded: {' '.join(reason)}")
    return next(iter(WHEELS.glob(pattern)))


def unpack(package: str, version: str, folder: Path) -> Path:
    """Unpack what the patches touch, and the package's own Python files."""
    with zipfile.ZipFile(wheel(package, version)) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.endswith((".py", "METADATA"))])
    return folder


def of(package: str):
    return [patch for patch in load_all().values() if patch.package == package]


def test_the_table_speaks_of_every_shipped_patch():
    assert EXPECTED.keys() == load_all().keys()


@pytest.mark.parametrize(("package", "version"), CASES)
def test_outcome_application_second_run_and_way_back(package, version, tmp_path):
    tree = unpack(package, version, tmp_path)
    patches, versions = of(package), {package: version}
    before = {path: path.read_bytes() for path in tree.rglob("*.py")}

    first, hashes = apply(patches, versions, tree)
    assert {o.patch.id: o.status for o in first.outcomes} == {
        patch.id: EXPECTED[patch.id][version] for patch in patches
    }
    edited = {edit.file for o in first.outcomes if o.status == A for edit in o.patch.edits_for(version)}
    added = {item.path for o in first.outcomes if o.status == A for item in o.patch.files_for(version)}
    assert hashes.keys() == edited | added
    for path in hashes:
        compile((tree / path).read_text(), path, "exec")
    untouched = {path: text for path, text in before.items() if str(path.relative_to(tree)) not in hashes}
    assert all(path.read_bytes() == text for path, text in untouched.items())

    again, hashes = apply(patches, versions, tree)
    assert hashes == {}
    assert {o.status for o in again.outcomes} <= {"already-upstream", N}

    revert(patches, versions, tree)
    assert {path: path.read_bytes() for path in tree.rglob("*.py")} == before


def test_upstream_has_the_start_layer_by_0_5_23(tmp_path):
    """Were the range wider, the newest release would be recognised and not patched twice."""
    tree = unpack("sglang", "0.5.23", tmp_path)
    patch = load_all()["sglang-pp-start-layer"]
    assert [o.status for o in status([patch], {"sglang": "0.5.16"}, tree).outcomes] == ["already-upstream"]


def test_a_patch_meant_for_another_release_is_refused_with_the_file(tmp_path):
    """0.5.16 has another DFlash worker: said to be 0.5.12, it must not be patched by guesswork."""
    tree = unpack("sglang", "0.5.16", tmp_path)
    patch = load_all()["sglang-dflash-ep-cuda-graph"]
    resolution = status([patch], {"sglang": "0.5.12"}, tree)
    assert [o.status for o in resolution.outcomes] == ["anchor-missing"]
    assert "sglang/srt/speculative/dflash_worker.py does not exist" in resolution.errors[0]


def test_the_command_works_alone_on_an_unpacked_wheel(tmp_path, capsys):
    unpack("sglang", "0.5.12.post1", tmp_path)
    fixed = ["--tree", str(tmp_path), "--package", "sglang", "--version", "0.5.12.post1", "sglang-pp-start-layer"]
    assert main(["status", *fixed]) == 0
    assert main(["apply", *fixed]) == 0
    out = capsys.readouterr().out
    assert "sglang-pp-start-layer: not applied yet, fits" in out and "sglang-pp-start-layer: applied" in out


FAKE_TORCH = """
class cuda:
    @staticmethod
    def device_count():
        return 1
    @staticmethod
    def get_device_capability(device):
        return {capability}
"""


def arch_error(tree: Path, folder: Path, capability: tuple[int, int], nvcc: str) -> str:
    """Run FlashInfer's own detection and check for a GPU and a toolkit that this machine does not have.

    The two real functions run; torch is a stand-in that names the GPU, and the toolkit's version is given.
    """
    folder.mkdir()
    (folder / "torch.py").write_text(FAKE_TORCH.format(capability=capability))
    core = (tree / "flashinfer" / "jit" / "core.py").read_text()
    check = core[core.index("def check_cuda_arch") : core.index("def clear_cache_dir")]
    script = f"""
import importlib.util, sys, types
from packaging.version import Version
for name in ("flashinfer", "flashinfer.jit"):
    sys.modules[name] = types.ModuleType(name)
cpp = sys.modules["flashinfer.jit.cpp_ext"] = types.ModuleType("flashinfer.jit.cpp_ext")
cpp.is_cuda_version_at_least = lambda text: Version({nvcc!r}) >= Version(text)
spec = importlib.util.spec_from_file_location("context", {str(tree / "flashinfer" / "compilation_context.py")!r})
context = importlib.util.module_from_spec(spec)
spec.loader.exec_module(context)
current_compilation_context = context.CompilationContext()
{check}
try:
    check_cuda_arch()
    print("accepted")
except RuntimeError as error:
    print(error)
"""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    environment.pop("FLASHINFER_CUDA_ARCH_LIST", None)
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.skipif(importlib.util.find_spec("packaging") is None, reason="needs packaging")
def test_flashinfer_names_the_cause_and_accepts_no_more_than_before(tmp_path):
    """An RTX PRO 6000 (12.0) with nvcc 12.8: the message said "sm75 or higher" for the newest GPU there is."""
    tree = unpack("flashinfer-python", "0.6.11.post1", tmp_path / "tree")
    machines = {
        "new GPU": ((12, 0), "12.8"),
        "good": ((12, 0), "13.0"),
        "hopper": ((9, 0), "12.8"),
        "old GPU": ((7, 0), "13.0"),
    }
    plain = {name: arch_error(tree, tmp_path / f"plain {name}", *machine) for name, machine in machines.items()}
    apply([load_all()["flashinfer-arch-cause"]], {"flashinfer-python": "0.6.11.post1"}, tree)
    patched = {name: arch_error(tree, tmp_path / f"patched {name}", *machine) for name, machine in machines.items()}
    assert plain["new GPU"] == "FlashInfer requires GPUs with sm75 or higher"
    assert patched["new GPU"] == "FlashInfer found no GPU architecture to compile for: SM 12.x requires CUDA >= 12.9"
    for name in ("good", "hopper", "old GPU"):
        assert patched[name] == plain[name]
    assert plain["old GPU"] == "FlashInfer requires GPUs with sm75 or higher"
    assert plain["good"] == plain["hopper"] == "accepted"
