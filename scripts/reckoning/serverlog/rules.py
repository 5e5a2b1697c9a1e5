"""Which log line proves which cause of failure, and its remedy.

The table is read from top to bottom and the first rule that matches a line wins, so the specific stand before the
general. Every rule was made from a reported failure or a recorded log. Three kinds differ in how far a match may be
trusted:

- `DECISIVE`: the line names the cause.
- `GENERAL`: the line names a failure whose cause may follow in the same message (a compiler's output after
  "Ninja build failed").
- `SECONDARY`: the line is what one process says when another has died; any other cause found anywhere is the real one.
- `HINT`: harmless by itself, but the true cause of the listed classes when one of them comes later.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from enum import IntEnum

Text = str | Callable[[re.Match[str]], str]


class Kind(IntEnum):
    """How far a matching line may be trusted as the cause."""

    DECISIVE = 0
    GENERAL = 1
    SECONDARY = 2
    HINT = 3


@dataclasses.dataclass(frozen=True)
class Rule:
    """A pattern and its meaning. `frames` must also match the traceback above an exception, when given."""

    class_: str
    pattern: re.Pattern[str]
    cause: Text
    remedy: Text
    kind: Kind = Kind.DECISIVE
    frames: re.Pattern[str] | None = None
    explains: tuple[str, ...] = ()


FULL_TOOLKIT = "install the whole toolkit (apt-get install cuda-toolkit-13-0) and set CUDA_HOME=/usr/local/cuda-13.0"


def _rule(class_: str, pattern: str, cause: Text, remedy: Text, kind: Kind = Kind.DECISIVE, **more: str) -> Rule:
    frames = more.get("frames")
    explains = tuple(more.get("explains", "").split())
    return Rule(class_, re.compile(pattern), cause, remedy, kind, re.compile(frames) if frames else None, explains)


def _driver_version(found: re.Match[str]) -> str:
    number = int(found["number"])
    ceiling = f"{number // 1000}.{number % 1000 // 10}"
    return (
        f"the driver supports CUDA up to {ceiling} (it reports {number}), older than the CUDA that torch was built for"
    )


def _header_remedy(found: re.Match[str]) -> str:
    header = found["header"]
    if header.startswith("curand"):
        return f"{FULL_TOOLKIT}; the header alone is in the package libcurand-dev-13-0"
    if header.startswith(("nv/", "cuda/", "cub/", "thrust/")):
        return f"{FULL_TOOLKIT}; the headers alone are in the package cuda-cccl-13-0"
    if header == "Python.h":
        return "install the Python headers (apt-get install python3-dev)"
    return FULL_TOOLKIT


def _heads(found: re.Match[str]) -> str:
    count, size = int(found["count"]), int(found["size"])
    divisors = [str(number) for number in range(1, count + 1) if count % number == 0]
    few = ", ".join(divisors if len(divisors) <= 12 else [*divisors[:11], "..."])
    return f"{count} heads (or experts, or columns) cannot be split over {size} ranks; {count} can be split over {few}"


def _stage_of_weights(found: re.Match[str]) -> str:
    return (
        f"weight shapes disagree ({found['a']} against {found['b']}): a quantised tensor was split along a packed "
        "dimension"
    )


# Words that warnings use as well count only in an exception: `package.SomeError: ... words`.
RAISED = r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)\b.*?"
ROOT_OF_JIT = "jit-compile unsupported-architecture unknown assertion peer-lost"
RULES: tuple[Rule, ...] = (
    # --- hints: harmless until something that they explain follows ---
    _rule(
        "toolkit-too-old",
        r"Failed to get device capability: .*?(?P<arch>SM \S+) requires CUDA >= (?P<need>[\d.]+\d)",
        lambda m: (
            f"the nvcc that FlashInfer's JIT found is older than CUDA {m['need']}, which {m['arch']} needs; no target "
            "was left, "
            "so later checks say that the GPU is too old, which it is not"
        ),
        f"{FULL_TOOLKIT}; the GPU is fine",
        Kind.HINT,
        explains=ROOT_OF_JIT,
    ),
    _rule(
        "driver-too-old",
        r"NVIDIA driver on your system is too old \(found version (?P<number>\d+)\)",
        _driver_version,
        "update the driver to 580.65.06 or newer for CUDA 13, or use an engine built for the driver's CUDA",
        Kind.HINT,
        explains="no-gpu unknown assertion rejected-setting library unsupported-architecture jit-compile peer-lost",
    ),
    # --- tool chain ---
    _rule(
        "missing-header",
        r"(?:fatal error|catastrophic error|error): (?:cannot open source file )?[\"']?"
        r"(?P<header>[\w./+-]+\.(?:h|hpp|cuh|inl)|nv/target|cuda/\w+)[\"']?"
        r"(?:: No such file or directory|\s*$)",
        lambda m: f"the header {m['header']} is missing from the CUDA toolkit that the JIT compiles with",
        _header_remedy,
    ),
    _rule(
        "unsupported-architecture",
        r"Unsupported gpu architecture '(?P<arch>[\w]+)'",
        lambda m: f"this nvcc cannot compile for {m['arch']} (120a needs CUDA 12.8, 120f and 121a need 12.9)",
        f"{FULL_TOOLKIT}, and check FLASHINFER_CUDA_ARCH_LIST",
    ),
    _rule(
        "toolkit-skew",
        r"CUDA compiler and CUDA toolkit headers are incompatible",
        "nvcc and the CUDA headers that it finds are of different releases",
        f"make nvcc and headers come from one toolkit: {FULL_TOOLKIT}",
    ),
    _rule(
        "arch-list-form",
        r"^ValueError: (?:too many|not enough) values to unpack",
        "FLASHINFER_CUDA_ARCH_LIST is not in FlashInfer's form: it is split at spaces, and every item is major.minor",
        'write FLASHINFER_CUDA_ARCH_LIST="9.0a 12.0f", with spaces (torch\'s list has semicolons), or unset it',
        frames=r"arch\.split",
    ),
    _rule(
        "toolkit-too-old",
        r"(?P<arch>SM \S+) requires CUDA >= (?P<need>[\d.]+\d)",
        lambda m: f"the nvcc that the JIT found is older than CUDA {m['need']}, which {m['arch']} needs",
        FULL_TOOLKIT,
    ),
    _rule(
        "link",
        r"(?:ld|lld|mold)(?:\.\w+)?: cannot find -l(?P<library>[\w+.-]+)|undefined reference to `(?P<symbol>[^']+)'",
        lambda m: (
            f"the linker cannot find lib{m['library']}.so"
            if m["library"]
            else f"undefined symbol {m['symbol']} at link time"
        ),
        lambda m: (
            'point the linker at the driver\'s library: FLASHINFER_EXTRA_LDFLAGS="-L<folder of libcuda.so>" '
            "(the stub is in $CUDA_HOME/lib64/stubs; under WSL it is in /usr/lib/wsl/lib)"
            if m["library"] == "cuda"
            else f"{FULL_TOOLKIT}; a toolkit from Python wheels has lib/ and versioned names only"
        ),
    ),
    _rule(
        "jit-compile",
        r"^\S+\.(?:cu|cuh|cpp|cc|c|h|hpp|inl)(?:\(\d+\)|:\d+(?::\d+)?): (?:catastrophic |fatal )?error:? (?P<text>.*)",
        lambda m: f"the compiler's first error: {m['text']}",
        "run `python -m reckoning.environment probe` to see which part of the tool chain does not fit",
    ),
    _rule(
        "jit-compile",
        r"Ninja build failed|nvcc fatal|ninja: build stopped|ptxas fatal|Error building extension"
        r"|^FAILED: (?:\[code=\d+\] )?\S+\.(?:o|so)\b|CompilationError",
        "a kernel failed to compile when it was first needed",
        "read the compiler's first error below, and run `python -m reckoning.environment probe`",
        Kind.GENERAL,
    ),
    _rule(
        "unsupported-architecture",
        r"FlashInfer requires GPUs with sm75 or higher",
        "FlashInfer found no compile target; on a recent GPU this means that its nvcc is too old, not that the GPU is",
        f"check `nvcc --version` (sm_120 needs CUDA 12.9 or newer): {FULL_TOOLKIT}",
        Kind.GENERAL,
    ),
    _rule(
        "unsupported-architecture",
        r"no kernel image is available for execution|Unsupported architecture"
        rf"|{RAISED}not supported on this (?:GPU|architecture)",
        "a kernel was not built for this GPU's architecture",
        "use another backend for this GPU (on sm_120: triton), or a build that has its architecture",
    ),
    _rule(
        "version-skew",
        r"flashinfer-(?P<part>cubin|jit-cache) version \((?P<a>[^)]+)\) does not match"
        r" flashinfer version \((?P<b>[^)]+)\)",
        lambda m: f"flashinfer-{m['part']} is {m['a']} and flashinfer-python {m['b']}",
        "install the same version of all FlashInfer packages from one lock",
    ),
    _rule(
        "library",
        r"^(?:ImportError|OSError): (?P<what>\S+\.so[\w.]*): cannot open shared object file"
        rf"|{RAISED}(?:undefined symbol: (?P<symbol>\w+)|version `GLIBC\S*' not found)",
        lambda m: (
            f"the shared library {m['what']} is missing"
            if m["what"]
            else "a native library was built against another version of its dependency"
        ),
        "install the engine from its lock: packages built for different torch or CUDA versions are mixed",
    ),
    # --- driver and GPUs ---
    _rule(
        "driver-too-old",
        r"CUDA driver version is insufficient for CUDA runtime version"
        r"|forward compatibility was attempted on non supported HW",
        "the driver is older than the CUDA runtime of the engine",
        "update the driver to 580.65.06 or newer for CUDA 13",
    ),
    _rule(
        "library",
        r"CUDA driver is a stub library",
        "the process loaded the toolkit's stub of libcuda instead of the driver's library",
        "take the stubs folder out of LD_LIBRARY_PATH",
    ),
    _rule(
        "no-gpu",
        r"Found no NVIDIA driver|No CUDA GPUs are available|Torch not compiled with CUDA enabled"
        r"|invalid device ordinal|no CUDA-capable device",
        "the process sees no usable GPU, or fewer than it was told to use",
        "check nvidia-smi, CUDA_VISIBLE_DEVICES, and that torch is a CUDA build",
    ),
    # --- memory ---
    _rule(
        "memory-fraction-too-low",
        r"Not enough memory[.;,]? [Pp]lease try to increase --mem-fraction-static",
        "after the weights nothing is left for the KV cache inside the memory fraction",
        "RAISE --mem-fraction-static (by 0.05), or put fewer weights on a GPU (more tp, pp or ep)",
    ),
    _rule(
        "memory-unbalanced",
        r"(?:RuntimeError|ValueError): The memory capacity is unbalanced",
        "some GPUs already hold other processes' memory",
        "end or move the other processes (nvidia-smi shows them)",
    ),
    _rule(
        "custom-all-reduce",
        r"register_graph_buffers|custom_all_reduce\S* .*(?:invalid|failed)"
        r"|Failed to (?:initialize|register) custom all.?reduce",
        "SGLang's custom all-reduce failed to register its buffers; this is not a lack of memory",
        "add --disable-custom-all-reduce",
    ),
    _rule(
        "out-of-memory-host",
        r"DefaultCPUAllocator: (?:can't allocate|not enough) memory|Cannot allocate memory|No space left on device",
        "the machine's memory or disk (for example /dev/shm) ran out",
        "free memory or disk; in a container raise --shm-size",
    ),
    _rule(
        "out-of-memory",
        r"CUDA out of memory|CUDA error: out of memory"
        r"|Failed to CUDA (?:calloc|malloc|host alloc) (?P<bytes>\d+) bytes|CUBLAS_STATUS_ALLOC_FAILED"
        r"|cudaErrorMemoryAllocation|torch\.(?:cuda\.)?OutOfMemoryError",
        lambda m: (
            "GPU memory ran out"
            + (f" (NCCL asked for {m['bytes']} bytes: memory, not the network)" if m["bytes"] else "")
        ),
        "",
    ),
    # --- communication ---
    _rule(
        "p2p-hang",
        r"Watchdog caught collective operation timeout|collective operation timed? ?out|ncclRemoteError.*timeout",
        "GPUs waited for each other until the time-out",
        "try NCCL_P2P_DISABLE=1 together with --disable-custom-all-reduce; check ACS and IOMMU (iommu=pt) on PCIe "
        "machines",
    ),
    _rule(
        "nccl",
        r"NCCL error|nccl(?:UnhandledCuda|System|Internal|InvalidUsage|Remote)Error|DistBackendError",
        "NCCL failed",
        "run once with NCCL_DEBUG=WARN and read its first warning; check free GPU memory and /dev/shm",
        Kind.GENERAL,
    ),
    _rule(
        "port-in-use",
        r"[Aa]ddress already in use|EADDRINUSE|\[Errno 98\]|(?P<name>\w+) at (?P<port>\d+) is not available in",
        lambda m: (
            f"port {m['port']} ({m['name']}) is held by another process"
            if m["port"]
            else "a port that the server needs is held by another process"
        ),
        "choose another port, or end the process that listens there (ss -ltnp)",
    ),
    # --- settings ---
    _rule(
        "unsupported-flag",
        r"^[\w ./-]+: error: (?P<what>unrecognized arguments: .*|argument .*|the following arguments are required: .*"
        r"|ambiguous option: .*)",
        lambda m: f"the server's argument parser refused: {m['what']}",
        "compare with `python -m sglang.launch_server --help` of the locked version; flags change between versions",
    ),
    _rule(
        "ep-zero-division",
        r"^ZeroDivisionError\b",
        "a size became 0: expert parallel size does not divide tensor parallel size (moe tp = tp // ep)",
        "choose an ep that divides tp: in SGLang tp is the world of one pipeline stage, and ep splits it",
    ),
    _rule(
        "pp-index-error",
        r"^IndexError: list index out of range|^(?:Index|Key)Error: ",
        "a pipeline stage asked for the KV buffer of a layer that it does not hold (Triton attention under pipeline "
        "parallelism)",
        "apply the start-layer patch, or use a version that has it, or another attention backend",
        frames=r"get_(?:value|key|kv)_buffer|start_layer",
    ),
    _rule(
        "dflash-ep-graphs",
        r"^AttributeError: 'NoneType' object has no attribute 'dtype'",
        "the draft batch carries no num_token_non_padded, which the CUDA graph runner copies when ep > 1",
        "apply the DFlash + expert-parallel patch, or disable CUDA graphs for this arm",
        frames=r"populate_from_forward_batch",
    ),
    _rule(
        "graph-batch-size",
        r"The size of tensor a \((?P<a>\d+)\) must match the size of tensor b \((?P<b>\d+)\)"
        r"|shape '\[[\d, -]+\]' is invalid for input",
        "a batch larger than the CUDA graphs were captured for",
        "make --cuda-graph-max-bs at least --max-running-requests (and the highest concurrency of the sweep)",
        frames=r"graph|dflash|spec|replay|forward_batch",
    ),
    _rule(
        "quantisation",
        r"The size of tensor a \((?P<a>\d+)\) must match the size of tensor b \((?P<b>\d+)\)",
        _stage_of_weights,
        "choose tp and ep so that each rank holds whole blocks: for NVFP4 experts use ep = tp",
        frames=r"load|weight",
    ),
    _rule(
        "quantisation",
        rf"{RAISED}(?:For quantized MoE models, please make sure|weight quantization block|weight_block_size"
        r"|[Qq]uantization method .* (?:is not|does not|not supported)|is not supported for quantization method"
        r"|Minimum capability|quantization .*is not (?:supported|divisible))",
        "the quantisation does not fit this split of the experts, this GPU, or the setting",
        "choose tp and ep so that (expert width / (tp / ep)) is a multiple of the block size; leave --quantization to "
        "the model's config",
    ),
    _rule(
        "model-path",
        r"is not a (?:local folder|valid model identifier|directory)"
        r"|(?:OSError|ValueError|EntryNotFoundError): .*does not appear to have a file named"
        r"|couldn't connect to '?https?://huggingface|Repo id must (?:be|use)|RepositoryNotFoundError"
        r"|LocalEntryNotFoundError|HFValidationError"
        r"|Cannot find any model weights|FileNotFoundError: .*(?:config\.json|safetensors|model)",
        "the model, or one of its files, was not found under the given path",
        "check the path of the model (and of the draft): it must hold config.json, the tokenizer and the weights",
    ),
    _rule(
        "unsupported-model",
        rf"{RAISED}(?:Model architectures? .* (?:is|are) not supported|Unrecognized (?:model|configuration class)"
        r"|does not recognize this architecture)",
        "this version of the engine, or of transformers in it, does not know the model's architecture",
        "use a version that lists the architecture; check model_type and architectures in config.json",
    ),
    _rule(
        "model-path",
        r"SafetensorError|HeaderTooLarge|InvalidHeaderDeserialization|incomplete metadata",
        "a weight file is cut short or damaged",
        "compare its size and hash with the publisher's, and fetch it again",
    ),
    _rule(
        "assertion",
        r"^AssertionError: .*?(?P<count>\d+) is not divisible by (?P<size>\d+)",
        _heads,
        "choose a tensor parallel size that divides the model's heads, experts and vocabulary",
    ),
    _rule(
        "assertion",
        r"^AssertionError\b(?:: (?P<text>.*))?",
        lambda m: (
            f"an assertion of the engine failed: {m['text']}"
            if m["text"]
            else "an assertion of the engine failed without a message"
        ),
        "read the assertion's line above it: most often two settings of the arm exclude each other",
        Kind.GENERAL,
    ),
    # --- endings ---
    _rule(
        "gpu-fault",
        r"uncorrectable ECC|fallen off the bus|\bXid\b|unspecified launch failure|GPU is lost",
        "a GPU reported a hardware fault",
        "read the kernel's log for Xid messages and `nvidia-smi -q`; take the GPU out of service",
    ),
    _rule(
        "illegal-address",
        r"illegal memory access|CUDA error: (?:misaligned address|device-side assert)"
        r"|illegal instruction was encountered",
        "a CUDA kernel failed on the device",
        "repeat with CUDA_LAUNCH_BLOCKING=1 to find the kernel; change the attention or draft backend; check the NCCL "
        "version",
    ),
    _rule(
        "killed",
        r"exit ?code:? ?(?:is )?-9\b(?! \(SIGKILL\), a)|\bexitcode=-9\b|^Killed$|[Oo]ut of memory: Killed process"
        r"|oom-kill|with signal 9",
        "a process was killed from outside (SIGKILL), most often because the machine's memory ran out",
        "read the kernel's log for the out-of-memory killer, and lower the memory that loading needs",
    ),
    _rule(
        "crash",
        r"Fatal Python error: (?P<what>.*)|exit ?code:? ?(?P<code>-(?:4|6|7|8|11))\b|Segmentation fault"
        r"|terminate called after throwing",
        "a process crashed in native code",
        "the stack above names the library; check that torch, FlashInfer and the driver fit each other",
        Kind.GENERAL,
    ),
    _rule(
        "watchdog",
        r"[Ww]atchdog timeout \(",
        "the scheduler made no progress until the engine's watchdog ended it",
        "if it began at the first request, look for a compile error above; on PCIe try --disable-custom-all-reduce "
        "with NCCL_P2P_DISABLE=1",
    ),
    _rule(
        "missing-package",
        r"^(?:ModuleNotFoundError|ImportError): (?P<what>.*)",
        lambda m: f"a Python package of the engine is missing or broken: {m['what']}",
        "install the engine from its lock, into its own environment",
    ),
    _rule(
        "peer-lost",
        r"Connection (?:reset|closed) by peer|Broken pipe|scheduler died during initialization|crashed with exit code"
        r"|Received sigquit from a child"
        r"|^EOFError|died during init|Gloo .*(?:closed|reset)",
        "a process of the server died; its own message was not found in the log",
        "look for the first exception of the other processes",
        Kind.SECONDARY,
    ),
)
