"""The patched CPU engine for real: built from its locks, every arm's first tokens equal, the server proves its tree."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reckoning import engine, models
from reckoning.engine.probe import probe

ROOT = Path(__file__).resolve().parents[2]
ARMS = {"tp1": ("--tp-size", "1"), "tp2-ep2": ("--tp-size", "2", "--ep-size", "2"), "pp2": ("--pp-size", "2")}
START_S = 240

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> dict:
    """Return engine.json of a plan with an arm that has the CPU set and one that has none."""
    arms = [
        {"slug": "patched", "status": "runnable", "patches": ["sglang-cpu"]},
        {"slug": "plain", "status": "runnable", "patches": []},
    ]
    plan = {
        "engine": {"kind": "managed", "lock": "sglang-0.5.12.post1-cpu", "version": None, "python": None},
        "arms": arms,
    }
    return engine.build(plan, ROOT, tmp_path_factory.mktemp("engine") / "engine.json")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny-kimi"
    models.make("tiny-kimi", path)
    return path


def free_port() -> int:
    """Return a port that SGLang accepts: it needs port + 10000 as well."""
    for port in range(21000 + os.getpid() % 20000, 55000):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise OSError("no free port")


@contextmanager
def served(built: dict, arm: str, model: Path, flags: tuple[str, ...], log: Path) -> Iterator[str]:
    """Run one server until it answers, yield its address, stop its whole session."""
    overlay = built["overlays"][built["arms"][arm]]
    port = free_port()
    threads = "0|1" if "--tp-size" in flags and "2" in flags else "1"
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        **overlay["env"],
        "PYTHONPATH": os.pathsep.join(overlay["pythonpath"]),
        "SGLANG_USE_CPU_ENGINE": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "OMP_NUM_THREADS": "1",
        "SGLANG_CPU_OMP_THREADS_BIND": threads,
    }
    command = [
        built["python"],
        "-m",
        "sglang.launch_server",
        "--model-path",
        str(model),
        "--device",
        "cpu",
        "--dtype",
        "float32",
    ]
    command += ["--attention-backend", "torch_native", "--max-total-tokens", "8192", "--max-running-requests", "16"]
    command += ["--context-length", "2048", "--mem-fraction-static", "0.5", "--skip-server-warmup"]
    command += ["--host", "127.0.0.1", "--port", str(port), *flags]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, env=environment, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True, cwd=log.parent
        )
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_S
        while True:
            try:
                urllib.request.urlopen(f"{address}/health", timeout=2).close()
                break
            except OSError:
                tail = log.read_text(errors="replace")[-1500:]
                assert process.poll() is None, f"the server ended: {tail}"
                assert time.monotonic() < deadline, f"not ready after {START_S} s: {tail}"
                time.sleep(0.3)
        yield address
    finally:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, sign)
                process.wait(10)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


def first_tokens(address: str) -> list[int]:
    """Return eight greedy tokens."""
    body = {
        "text": "Write a haiku about",
        "sampling_params": {"max_new_tokens": 8, "temperature": 0, "ignore_eos": True},
    }
    request = urllib.request.Request(
        f"{address}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)["output_ids"]


def test_every_arm_generates_the_same_tokens_on_the_patched_tree(built, model, tmp_path):
    overlay = built["overlays"][built["arms"]["patched"]]
    assert {patch["status"] for patch in overlay["patches"]} == {"applied"}
    tokens = {}
    for name, flags in ARMS.items():
        log = tmp_path / f"{name}.log"
        with served(built, "patched", model, flags, log) as address:
            tokens[name] = first_tokens(address)
        proof = engine.read_proof(log.read_text(errors="replace"), overlay)
        assert proof.proven, proof.faults
        assert {"sglang.srt.utils.common", "sglang.srt.layers.moe.fused_moe_native"} <= {
            m["module"] for m in proof.modules
        }
    assert len(tokens["tp1"]) == 8
    assert tokens["tp2-ep2"] == tokens["tp1"]
    assert tokens["pp2"] == tokens["tp1"]


def test_without_the_patches_the_same_engine_cannot_even_be_imported(built):
    """And nothing of the patched arm reaches the other one: the installed package is as it was."""
    done = subprocess.run(
        [built["python"], "-c", "import sglang.srt.server_args"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin"},
    )
    assert done.returncode != 0
    assert "No module named 'triton'" in done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "import sgl_kernel; sgl_kernel.silu_and_mul(1, 2)",
        "from sgl_kernel.flash_attn import flash_attn_varlen_func as f; f()",
        "import triton\n@triton.jit\ndef kernel(x): pass\nkernel[(1,)](1)",
    ],
)
def test_a_stand_in_raises_on_the_first_call(built, code):
    overlay = built["overlays"][built["arms"]["patched"]]
    environment = {"PATH": "/usr/bin", "PYTHONPATH": os.pathsep.join(overlay["pythonpath"])}
    done = subprocess.run([built["python"], "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert "NotImplementedError" in done.stderr and "needs a GPU" in done.stderr


def test_each_probe_of_the_cpu_set_passes_with_its_patch_and_fails_without(built):
    effects = {effect.patch: effect for effect in probe(built, "patched", ROOT)}
    shown = {name: effect.shown for name, effect in effects.items()}
    others = {"sglang-cpu-experts": True, "sglang-cpu-imports": True, "sglang-cpu-mla": True}
    assert shown == {**others, "sglang-cpu-fork": None}, effects


def test_sglang_finds_no_scalar_types_and_takes_its_own(built):
    overlay = built["overlays"][built["arms"]["patched"]]
    environment = {"PATH": "/usr/bin", "PYTHONPATH": os.pathsep.join(overlay["pythonpath"])}
    code = "import sgl_kernel.scalar_type"
    done = subprocess.run([built["python"], "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert "No module named 'sgl_kernel.scalar_type'" in done.stderr
