"""Out of memory: the stage in which it came decides what would help."""

from __future__ import annotations

import re

from reckoning.serverlog import stages

_REMEDIES = {
    "out-of-memory-weights": "split the weights over more GPUs (tp x pp), or use a smaller quantisation",
    "out-of-memory-kv": "lower --mem-fraction-static, or lower --max-total-tokens or --max-running-requests",
    "out-of-memory-graph-capture": "lower --mem-fraction-static (by 0.05), or lower --cuda-graph-max-bs",
    "out-of-memory-serving": "lower --mem-fraction-static, --chunked-prefill-size or --max-running-requests",
    "out-of-memory-start": "free the GPU: see which processes hold its memory (nvidia-smi)",
}
_STAGES = {
    stages.WEIGHTS: "out-of-memory-weights",
    stages.KV_CACHE: "out-of-memory-kv",
    stages.ATTENTION: "out-of-memory-kv",
    stages.GRAPH_CAPTURE: "out-of-memory-graph-capture",
    stages.HTTP_SERVER: "out-of-memory-serving",
    stages.WARM_UP: "out-of-memory-serving",
    stages.READY: "out-of-memory-serving",
}


def out_of_memory_class(stage: str | None, line: str) -> str:
    """Return the class of an out-of-memory failure by its stage, or by what its line says of itself."""
    if re.search(r"[Cc]apture .*graph", line):
        return "out-of-memory-graph-capture"
    if (
        stage in (None, stages.PROCESS_START) and "Failed to CUDA" in line
    ):  # NCCL allocates late, when graphs are captured
        return "out-of-memory-graph-capture"
    return _STAGES.get(stage or "", "out-of-memory-start")


def out_of_memory_remedy(class_: str) -> str:
    """Return what to do about an out-of-memory failure of this class."""
    return _REMEDIES[class_]
