"""The first cause of real and rebuilt server logs.

`recorded/` holds output of SGLang 0.5.12.post1 on a CPU (paths shortened); `rebuilt/` holds logs rebuilt from public
reports, with the engine's own wording around the reported line.
"""

from pathlib import Path

import pytest

from reckoning.serverlog import FAILURE_CLASSES, read_log

LOGS = Path(__file__).parents[2] / "data" / "serverlogs"

# log: (class, stage, a part of the evidence, a part of the remedy)
EXPECTED = {
    "recorded/unsupported-flag": ("unsupported-flag", "process start", "--no-such-flag 3", "--help"),
    "recorded/invalid-choice": ("unsupported-flag", "process start", "invalid choice: 'warp'", "--help"),
    "recorded/model-path": ("model-path", "process start", "LocalEntryNotFoundError", "config.json"),
    "recorded/draft-without-weights": ("model-path", "loading weights", "`models/dflash`", "draft"),
    "recorded/ep-over-tp": ("ep-zero-division", "process start", "ZeroDivisionError", "ep that divides tp"),
    "recorded/port-in-use": ("port-in-use", "HTTP server", "[Errno 98]", "another port"),
    "recorded/fraction-low": ("memory-fraction-too-low", "KV cache", "increase --mem-fraction-static", "RAISE"),
    "recorded/quantisation": ("quantisation", "loading weights", "quantization method fp8", "--quantization"),
    "recorded/killed": ("killed", "ready", "exit code -9", "memory"),
    "recorded/nvcc-flashinfer-sampling": (
        "missing-header",
        "process start",
        "sampling.cuh:20:10",
        "libcurand-dev-13-0",
    ),
    "recorded/missing-package": ("missing-package", "process start", "No module named 'dill'", "lock"),
    "recorded/gpu-pp-start-layer": ("pp-index-error", "attention backend", "IndexError", "start-layer patch"),
    "recorded/gpu-dflash-ep-graphs": ("dflash-ep-graphs", "warm-up", "'dtype'", "patch"),
    "recorded/flashinfer-nvcc-12.8": (
        "toolkit-too-old",
        "process start",
        "SM 12.x requires CUDA >= 12.9",
        "the GPU is fine",
    ),
    "recorded/flashinfer-arch-list": ("arch-list-form", "process start", "too many values", "with spaces"),
    "rebuilt/oom-weights": ("out-of-memory-weights", "loading weights", "3.50 GiB", "more GPUs"),
    "rebuilt/oom-kv": ("out-of-memory-kv", "KV cache", "18.50 GiB", "lower --mem-fraction-static"),
    "rebuilt/oom-graph-capture": (
        "out-of-memory-graph-capture",
        "graph capture",
        "Capture cuda graph failed",
        "lower --mem-fraction-static",
    ),
    "rebuilt/nccl-calloc": (
        "out-of-memory-graph-capture",
        "graph capture",
        "Failed to CUDA calloc 10485760 bytes",
        "--cuda-graph-max-bs",
    ),
    "rebuilt/custom-all-reduce-capture": (
        "custom-all-reduce",
        "graph capture",
        "register_graph_buffers",
        "--disable-custom-all-reduce",
    ),
    "rebuilt/fraction-low": ("memory-fraction-too-low", "KV cache", "mem_fraction_static=0.5", "RAISE"),
    "rebuilt/sm75": ("toolkit-too-old", "process start", "SM 12.x requires CUDA >= 12.9", "cuda-toolkit-13-0"),
    "rebuilt/curand-warning": ("missing-header", "JIT compile", "curand.h", "libcurand-dev-13-0"),
    "rebuilt/ninja-curand": ("missing-header", "JIT compile", "fatal error: curand.h", "libcurand-dev-13-0"),
    "rebuilt/ninja-cudart": ("link", "JIT compile", "cannot find -lcudart", "whole toolkit"),
    "rebuilt/ninja-libcuda": ("link", "JIT compile", "cannot find -lcuda", "FLASHINFER_EXTRA_LDFLAGS"),
    "rebuilt/ninja-arch": ("unsupported-architecture", "JIT compile", "'compute_120f'", "FLASHINFER_CUDA_ARCH_LIST"),
    "rebuilt/ninja-skew": ("toolkit-skew", "JIT compile", "incompatible", "one toolkit"),
    "rebuilt/ninja-other": ("jit-compile", "JIT compile", 'sampling.cu(20): error: identifier "foo"', "probe"),
    "rebuilt/driver-old": ("driver-too-old", "process start", "found version 12080", "580.65.06"),
    "rebuilt/pp-triton": ("pp-index-error", "loading weights", "IndexError", "start-layer patch"),
    "rebuilt/index-error-elsewhere": ("unknown", "loading weights", "IndexError", "name.split"),
    "rebuilt/heads": (
        "assertion",
        "distributed initialisation",
        "12 is not divisible by 24",
        "divides the model's heads",
    ),
    "rebuilt/heads-bare": ("assertion", "distributed initialisation", "AssertionError", "assertion's line"),
    "rebuilt/fp8-blocks": ("quantisation", "distributed initialisation", "moe_intermediate_size=768", "block size"),
    "rebuilt/nvfp4-shape": ("quantisation", "loading weights", "3072", "ep = tp"),
    "rebuilt/graph-batch": ("graph-batch-size", "ready", "tensor a (8)", "--cuda-graph-max-bs"),
    "rebuilt/illegal-address": ("illegal-address", "ready", "illegal memory access", "CUDA_LAUNCH_BLOCKING"),
    "rebuilt/collective-timeout": ("p2p-hang", "ready", "collective operation timeout", "NCCL_P2P_DISABLE=1"),
    "rebuilt/killed": ("killed", "loading weights", "exit code: -9", "memory"),
    "rebuilt/peer-first": ("out-of-memory-weights", "loading weights", "CUDA out of memory", "more GPUs"),
    "rebuilt/watchdog": ("watchdog", "ready", "watchdog timeout", "--disable-custom-all-reduce"),
    "rebuilt/dflash-ep": ("dflash-ep-graphs", "graph capture", "'dtype'", "patch"),
    "rebuilt/trtllm": ("unsupported-architecture", "attention backend", "Unsupported architecture", "triton"),
    "rebuilt/flashinfer-skew": ("version-skew", "process start", "0.6.12", "same version"),
    "rebuilt/unbalanced": ("memory-unbalanced", "distributed initialisation", "unbalanced", "nvidia-smi"),
    "rebuilt/unknown": ("unknown", "attention backend", "routers must not be read", "self.router(x)"),
}
HEALTHY = ("recorded/ready-then-stopped", "recorded/gpu-healthy-tp2-ep2", "rebuilt/starting", "rebuilt/p2p-hang")


def text(name: str) -> str:
    return (LOGS / f"{name}.log").read_text(encoding="utf-8")


def test_every_log_is_expected():
    names = {f"{path.parent.name}/{path.stem}" for path in LOGS.glob("*/*.log")}
    assert names == set(EXPECTED) | set(HEALTHY)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_first_cause(name):
    class_, stage, evidence, remedy = EXPECTED[name]
    cause = read_log(text(name)).cause
    assert cause is not None
    assert (cause.class_, cause.stage) == (class_, stage)
    assert evidence in cause.evidence
    assert remedy in cause.remedy
    assert cause.class_ in FAILURE_CLASSES
    lines = text(name).replace("\r", "\n").split("\n")
    assert cause.evidence in lines[cause.line - 1]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_log_without_failure_has_no_cause(name):
    assert read_log(text(name)).cause is None


def test_too_old_a_toolkit_is_never_blamed_on_the_gpu():
    cause = read_log(text("rebuilt/sm75")).cause
    assert "sm75 or higher" in cause.symptom
    assert "the GPU is fine" in cause.remedy
    assert "12.9" in cause.cause


def test_driver_ceiling_is_decoded():
    assert "CUDA up to 12.8" in read_log(text("rebuilt/driver-old")).cause.cause


def test_hint_alone_is_no_failure():
    first = text("rebuilt/sm75").splitlines()[0]
    assert read_log(first + "\nThe server is fired up and ready to roll!\n").cause is None


def test_hint_does_not_explain_what_it_cannot():
    first = text("rebuilt/sm75").splitlines()[0] + "\n"
    assert read_log(first + text("rebuilt/oom-kv")).cause.class_ == "out-of-memory-kv"


def test_nccl_calloc_is_memory_also_without_context():
    cause = read_log("NCCL error: Failed to CUDA calloc 10485760 bytes\n").cause
    assert cause.class_ == "out-of-memory-graph-capture"
    assert "not the network" in cause.cause


def test_two_directions_of_memory_have_opposite_remedies():
    low = read_log("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n").cause
    high = read_log("Exception: Capture cuda graph failed: CUDA out of memory\n").cause
    assert low.remedy.startswith("RAISE")
    assert high.remedy.startswith("lower")


def test_heads_are_translated():
    cause = read_log(text("rebuilt/heads")).cause.cause
    assert "12 heads" in cause and "24" in cause and "1, 2, 3, 4, 6, 12" in cause


def test_hang_at_distributed_initialisation_is_peer_to_peer():
    cause = read_log(text("rebuilt/p2p-hang"), stalled=True).cause
    assert (cause.class_, cause.stage) == ("p2p-hang", "distributed initialisation")
    assert "NCCL_P2P_DISABLE=1" in cause.remedy and "--disable-custom-all-reduce" in cause.remedy


def test_stall_elsewhere_names_the_stage():
    cause = read_log(text("rebuilt/starting"), stalled=True).cause
    assert (cause.class_, cause.stage) == ("stall", "loading weights")


@pytest.mark.parametrize(
    ("code", "class_"), [(-9, "killed"), (137, "killed"), (-11, "crash"), (139, "crash"), (0, "exited"), (1, "exited")]
)
def test_exit_code_speaks_when_the_log_does_not(code, class_):
    assert read_log(text("rebuilt/starting"), exit_code=code).cause.class_ == class_


def test_exit_code_does_not_replace_a_cause():
    assert read_log(text("rebuilt/oom-kv"), exit_code=-9).cause.class_ == "out-of-memory-kv"


def test_exit_code_replaces_what_only_the_survivors_said():
    log = "[2026-09-14 10:00:00] Received sigquit from a child process. It usually means the child failed.\n"
    assert read_log(log).cause.class_ == "peer-lost"
    assert read_log(log, exit_code=-9).cause.class_ == "killed"


def test_traceback_that_was_handled_is_no_cause():
    """The recorded log holds a handled ModuleNotFoundError before the port's error."""
    log = text("recorded/port-in-use")
    assert "ModuleNotFoundError" in log
    assert log.index("ModuleNotFoundError") < log.index("[Errno 98]")
    assert read_log(log).cause.class_ == "port-in-use"


def test_exception_before_ready_is_survived_but_a_compile_error_is_not():
    ready = "The server is fired up and ready to roll!\n"
    trace = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    g()\nValueError: no\n'
    assert read_log(trace).cause.class_ == "unknown"
    assert read_log(trace + ready).cause is None
    assert read_log(ready + trace).cause.class_ == "unknown"
    assert (
        read_log("sampling.cuh:20:10: fatal error: curand.h: No such file or directory\n" + ready).cause.class_
        == "missing-header"
    )


def test_server_arguments_are_not_read_as_causes():
    assert "disable_custom_all_reduce" in text("recorded/ep-over-tp")
    log = "".join(line + "\n" for line in text("recorded/ep-over-tp").splitlines() if "ServerArgs(" in line)
    assert read_log(log).cause is None


def test_rejected_settings_are_quoted():
    log = (
        "Traceback (most recent call last):\n"
        '  File "/opt/sglang/srt/server_args.py", line 912, in __post_init__\n'
        "    self._handle_speculative_decoding()\n"
        "ValueError: DFLASH does not support pp_size > 1\n"
    )
    cause = read_log(log).cause
    assert cause.class_ == "rejected-setting"
    assert "DFLASH does not support pp_size > 1" in cause.cause


def test_chained_exceptions_give_the_first():
    log = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    torch.empty(1)\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB.\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n  File \"b.py\", line 2, in g\n    raise\nKeyError: 'cleanup'\n"
    )
    assert read_log("[2026-01-01 00:00:00] Load weight begin.\n" + log).cause.class_ == "out-of-memory-weights"


def test_serialised_cause_has_the_public_name():
    cause = read_log(text("rebuilt/oom-kv")).as_json()["cause"]
    assert cause["class"] == "out-of-memory-kv"
    assert "class_" not in cause


@pytest.mark.parametrize(
    ("line", "class_"),
    [
        ("ValueError: Model architectures ['NewForCausalLM'] are not supported for now.", "unsupported-model"),
        ("safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata", "model-path"),
        ("torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered", "gpu-fault"),
        ("torch.AcceleratorError: CUDA error: no kernel image is available for execution", "unsupported-architecture"),
        ("ImportError: libcudart.so.12: cannot open shared object file: No such file or directory", "library"),
        ("RuntimeError: CUDA driver version is insufficient for CUDA runtime version", "driver-too-old"),
        (
            "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes",
            "out-of-memory-host",
        ),
        ("OSError: [Errno 28] No space left on device", "out-of-memory-host"),
        (
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled system error",
            "nccl",
        ),
        ("Fatal Python error: Segmentation fault", "crash"),
        ("RuntimeError: CUDA error: CUDA driver is a stub library", "library"),
        (
            "ValueError: nccl_port at 29500 is not available in 30 seconds. nccl_port is used by a process",
            "port-in-use",
        ),
    ],
)
def test_single_lines(line, class_):
    assert read_log(line + "\n").cause.class_ == class_


@pytest.mark.parametrize(
    "line",
    [
        "[2026-01-01 00:00:00] Ignore import error when loading sglang.srt.models.x: No module named 'vllm'",
        "[2026-01-01 00:00:00] Failed to import deep_gemm: ImportError: libcuda.so.1: cannot open shared object file",
        "[2026-01-01 00:00:00] fp8 quantization is not supported by this backend, falling back to bf16",
        "[2026-01-01 00:00:00] DeepGEMM is not supported on this GPU, using Triton",
        "[2026-01-01 00:00:00] models/x does not appear to have a file named generation_config.json.",
        "[2026-01-01 00:00:00] Port 30000 is already in use, trying port 30001",
        "[2026-01-01 00:00:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down...",
        "[2026-01-01 00:00:00] Setup Custom allreduce failed with x. To silence this warning, specify the flag.",
        "[2026-01-01 00:00:00] Watchdog TokenizerManager initialized.",
        "UserWarning: Triton is not supported on current platform, roll back to CPU.",
    ],
)
def test_warnings_are_no_causes(line):
    assert read_log(line + "\n").cause is None


@pytest.mark.parametrize("name", ["asyncio.exceptions.CancelledError", "KeyboardInterrupt", "SystemExit: 0"])
def test_being_asked_to_stop_is_no_cause(name):
    log = f'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    g()\n{name}\n'
    assert read_log(log).cause is None
