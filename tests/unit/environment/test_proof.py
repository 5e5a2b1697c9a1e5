"""The proofs: real compilers where they are, made-up ones for what does not happen here."""

import json
import shutil

import pytest

from reckoning.environment import Level, diagnose, probe
from reckoning.environment.probing.machine import Machine
from reckoning.environment.proof import prove
from reckoning.environment.proof.run import first_error
from tests.unit.environment.machines import EAGER, FLASHINFER, SAMPLED, library, plan
from tests.unit.environment.test_probe import script, toolkit

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None or shutil.which("c++") is None, reason="no nvcc on PATH")

# A compiler whose "programs" are shell scripts: the first argument decides what a source becomes.
NVCC = r"""
for word in "$@"; do
  case "$word" in
    --version) echo "Cuda compilation tools, release 13.0, V13.0.88"; exit 0 ;;
    --list-gpu-code) echo sm_120; exit 0 ;;
    --dryrun) exit 0 ;;
    *.cu) source=$word ;;
  esac
  [ "$previous" = -o ] && target=$word
  previous=$word
done
case "$source" in
  *%(broken)s.cu) echo "/x/%(broken)s.cu(3): error: identifier \"warp\" is undefined" >&2; exit 2 ;;
esac
name=$(basename "$source" .cu)
printf '#!/bin/sh\ncat %(answers)s/%%s\n%(then)s\n' "$name" > "$target"
chmod +x "$target"
"""
GPU_ROW = "0, Card, GPU-a, 0:1, 580.95.05, 12.0"
RIGHT = '{"driver": 13000, "runtime": 13000, "error": null, "devices": [{"index": 0, "error": null}]}\n'
PAIRS = (
    '{"from": 0, "to": 1, "direct": true, "error": null, "wrong_words": 0, "gib_s": 50.1}\n'
    '{"from": 1, "to": 0, "direct": true, "error": null, "wrong_words": 0, "gib_s": 49.9}\n'
)


def made_up(tmp_path, *, gpus=2, broken="nothing", then="exit 0", arithmetic=RIGHT, peers=PAIRS, **environ):
    answers = tmp_path / "answers"
    answers.mkdir()
    (answers / "arithmetic").write_text(arithmetic)
    (answers / "peers").write_text(peers)
    home = toolkit(tmp_path / "cuda", "13.0.88")
    script(home / "bin" / "nvcc", NVCC % {"broken": broken, "answers": answers, "then": then})
    script(tmp_path / "bin" / "c++", 'echo "/usr/bin/ld: cannot find -lcuda: No such file" >&2; exit 1\n')
    machine = Machine(tmp_path, {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "CUDA_HOME": str(home), **environ})
    nvcc = {"path": str(home / "bin" / "nvcc"), "used": True, "release": "13.0", "version": "13.0.88"}
    libraries = [library("lib64", "lib64", "libcudart.so"), library("stubs", "lib64-stubs", "libcuda.so")]
    facts = {
        "driver": {"gpus": [{"index": i, "name": "Card", "compute_cap": "12.0"} for i in range(gpus)]},
        "toolkit": {"cuda_home": str(home), "nvccs": [nvcc], "libraries": libraries},
        "python": None,
    }
    return machine, facts


def proved(tmp_path, **changes):
    machine, facts = made_up(tmp_path, **changes)
    facts["proof"] = prove(machine, facts)
    return facts


def codes(facts, *arms):
    return {item.code: item for item in diagnose(facts, plan(*(arms or (EAGER, SAMPLED, FLASHINFER)), temperature=1.0))}


def test_program_that_runs_everywhere(tmp_path):
    found = codes(proved(tmp_path))
    assert found["proof-compile"].level is Level.OK
    assert "sm_120f" in found["proof-compile"].found
    assert found["proof-run"].level is Level.OK
    assert found["peer-copy"].level is Level.OK
    assert "2 pairs copied the right data at 50 to 50 GiB/s" in found["peer-copy"].found


def test_compilers_first_error_is_reported_and_later_steps_are_not_done(tmp_path):
    facts = proved(tmp_path, broken="arithmetic")
    steps = facts["proof"]["steps"]
    assert steps["compile"]["error"].endswith('error: identifier "warp" is undefined')
    assert not steps["run"]["done"] and not steps["link"]["done"]
    found = codes(facts)
    assert 'identifier "warp" is undefined' in found["proof-compile"].found
    assert found["proof-compile"].concerns == ("eager-triton", "flashinfer", "sampled")


def test_link_that_fails_although_the_files_are_there(tmp_path):
    finding = codes(proved(tmp_path))["proof-link"]
    assert "cannot find -lcuda" in finding.found
    assert finding.concerns == ("flashinfer", "sampled")


def test_gpu_with_a_wrong_result_is_named(tmp_path):
    wrong = json.loads(RIGHT)
    wrong["devices"].append({"index": 1, "error": "wrong result"})
    finding = codes(proved(tmp_path, arithmetic=json.dumps(wrong) + "\n", then="exit 1"))["proof-run"]
    assert finding.level is Level.FAIL
    assert "GPU 1: wrong result" in finding.found


def test_copy_that_hangs_names_the_pair(tmp_path, monkeypatch):
    monkeypatch.setattr("reckoning.environment.proof.run.PEERS_S", 2.0)
    begun = PAIRS.splitlines()[0] + '\n{"from": 1, "to": 0, "direct": true, '
    # only the peer program must hang: it is the one whose answer ends in the middle of a line
    facts = proved(tmp_path, peers=begun, then='case "$0" in *peers) sleep 60;; esac')
    finding = codes(facts)["peer-copy-hangs"]
    assert finding.level is Level.FAIL
    assert '"from": 1, "to": 0' in finding.found
    assert "NCCL_P2P_DISABLE=1" in finding.remedy and "disable_custom_all_reduce" in finding.remedy


def test_copy_with_other_data_is_not_a_success(tmp_path):
    other = PAIRS.replace('"wrong_words": 0, "gib_s": 49.9', '"wrong_words": 77, "gib_s": 49.9')
    finding = codes(proved(tmp_path, peers=other, then='case "$0" in *peers) exit 1;; esac'))["peer-copy-wrong"]
    assert "1 to 0: 77 wrong words" in finding.found
    assert finding.level is Level.FAIL


def test_copies_through_the_host_are_noted(tmp_path):
    finding = codes(proved(tmp_path, peers=PAIRS.replace("true", "false")))["peer-copy"]
    assert finding.level is Level.NOTE


def test_one_gpu_has_no_peers(tmp_path):
    assert not proved(tmp_path, gpus=1)["proof"]["steps"]["peers"]["done"]


def test_without_gpu_and_architecture_nothing_is_tried(tmp_path):
    machine, facts = made_up(tmp_path, gpus=0)
    assert prove(machine, facts) is None
    only = prove(machine, facts, architectures=[(9, 0)])
    assert only["targets"] == ["sm_90a"]
    assert "run" not in only["steps"]


def test_first_error_of_a_linker_and_of_python():
    assert first_error("x\n/usr/bin/ld: cannot find -lcudart\ncollect2: error: ld returned 1 exit status\n") == (
        "/usr/bin/ld: cannot find -lcudart"
    )
    assert first_error('Traceback (most recent call last):\n  File "x"\nImportError: no flashinfer\n') == (
        "ImportError: no flashinfer"
    )


@needs_nvcc
def test_real_compiler_here(tmp_path):
    """Compile for sm_120 with the nvcc of this machine, as the JIT would call it."""
    facts = probe(architectures=[(12, 0)])
    proof = facts["proof"]
    assert proof["targets"] == ["sm_120f"]
    assert proof["steps"]["compile"]["ok"], proof
    headers = {name for item in facts["toolkit"]["includes"] for name in item["headers"]}
    assert proof["steps"]["compile_sampling"]["ok"] is ("curand_kernel.h" in headers)
    if "curand_kernel.h" not in headers:
        assert "curand.h: No such file or directory" in proof["steps"]["compile_sampling"]["error"]
        finding = next(item for item in diagnose(facts) if item.code == "header-curand-missing")
        assert "Tried: sampling.cu:2:10: fatal error: curand.h" in finding.why
