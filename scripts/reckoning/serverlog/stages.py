"""Which log line begins which stage of a server's life (the wording of SGLang 0.5.x)."""

from __future__ import annotations

import re

PROCESS_START = "process start"
DISTRIBUTED = "distributed initialisation"
WEIGHTS = "loading weights"
KV_CACHE = "KV cache"
ATTENTION = "attention backend"
GRAPH_CAPTURE = "graph capture"
JIT_COMPILE = "JIT compile"
HTTP_SERVER = "HTTP server"
WARM_UP = "warm-up"
READY = "ready"

_PATTERNS: tuple[tuple[str, str], ...] = (
    (READY, r"The server is fired up and ready to roll"),
    (DISTRIBUTED, r"Init torch distributed begin"),
    (WEIGHTS, r"Load weight begin|Loading (?:safetensors|pt) checkpoint shards|Multi-thread loading shards"),
    (KV_CACHE, r"Load weight end|KV Cache is allocated"),
    (ATTENTION, r"Memory pool end|Init attention backend begin"),
    (GRAPH_CAPTURE, r"Capture (?:\w+[ -]){0,4}graph (?:begin|bs|num tokens)|Capturing (?:batches|num tokens)"),
    (
        JIT_COMPILE,
        r"flashinfer\.jit: |DeepGEMM (?:JIT Pre-Compile|warmup)|DeepGEMM JIT Compiling|Running FlashInfer autotune"
        r"|^\[\d+/\d+\] \S*(?:nvcc|c\+\+|g\+\+) ",
    ),
    (HTTP_SERVER, r"Uvicorn running on|Started server process|Application startup complete"),
    (WARM_UP, r'"GET /(?:get_)?model_info HTTP'),
)
STAGE_NAMES = (
    PROCESS_START,
    DISTRIBUTED,
    WEIGHTS,
    KV_CACHE,
    ATTENTION,
    GRAPH_CAPTURE,
    JIT_COMPILE,
    HTTP_SERVER,
    WARM_UP,
    READY,
)
_ANY = re.compile("|".join(f"(?P<s{index}>{pattern})" for index, (_, pattern) in enumerate(_PATTERNS)))


# No stage line lacks all of these: asking for them is many times faster than the search.
WORDS = (
    *("fired up", "Init torch", "Load", "loading shards", "KV Cache is", "Memory pool end", "attention backend begin"),
    *("Captur", "flashinfer.jit", "DeepGEMM", "autotune", "nvcc ", "c++ ", "g++ ", "Uvicorn", "server process"),
    *("startup complete", "model_info"),
)


def stage_of(line: str) -> str | None:
    """Return the stage that this log line begins, or None."""
    if not any(map(line.__contains__, WORDS)):
        return None
    found = _ANY.search(line)
    return _PATTERNS[int(found.lastgroup[1:])][0] if found and found.lastgroup else None
