"""Facts that only the engine's own interpreter knows: run by it as `PYTHON engine_side.py`, prints one JSON.

Uses the standard library only, imports torch if it is there, and never FlashInfer or SGLang (an import may compile).
"""

import importlib.metadata
import json
import pathlib
import platform
import re
import sys
import sysconfig
import warnings

NAMES = re.compile(
    r"^(torch|triton|sglang|sglang-kernel|sgl-kernel|flashinfer.*|nvidia-.*|cuda-.*|apache-tvm-ffi|ninja|transformers"
    r"|flash-attn.*|deep-gemm|sgl-deep-gemm|kernels|nccl.*|nixl.*|vllm)$"
)


def packages():
    """Every installed distribution of interest, each tree that holds it: two trees of one package are two entries."""
    found = []
    for distribution in importlib.metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        if NAMES.match(name):
            location = str(distribution.locate_file(""))
            found.append({"name": name, "version": distribution.version, "location": location})
    return sorted(found, key=lambda item: (item["name"], item["location"]))


def torch_facts():
    """What torch was built for and what it sees; its warnings are kept, since it falls back to the CPU with one."""
    facts = {
        "version": None,
        "cuda": None,
        "available": None,
        "arch_list": [],
        "devices": [],
        "warnings": [],
        "error": None,
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            import torch

            facts["version"] = torch.__version__
            facts["cuda"] = torch.version.cuda
            facts["hip"] = getattr(torch.version, "hip", None)
            facts["available"] = torch.cuda.is_available()
            facts["arch_list"] = torch.cuda.get_arch_list() if facts["available"] else built_for(torch)
            for index in range(torch.cuda.device_count() if facts["available"] else 0):
                major, minor = torch.cuda.get_device_capability(index)
                facts["devices"].append({"name": torch.cuda.get_device_name(index), "capability": [major, minor]})
            if facts["available"]:
                facts["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
                count = len(facts["devices"])
                facts["peer_access"] = [
                    [i == j or torch.cuda.can_device_access_peer(i, j) for j in range(count)] for i in range(count)
                ]
        except Exception as error:
            facts["error"] = f"{type(error).__name__}: {error}"[:500]
    facts["warnings"] = [str(item.message)[:500] for item in caught if "CUDA" in str(item.message)][:5]
    return facts


def built_for(torch):
    """The architectures in torch's build, which `get_arch_list` hides when no GPU is usable."""
    flags = torch._C._cuda_getArchFlags() if hasattr(torch._C, "_cuda_getArchFlags") else None
    return flags.split() if flags else []


def main():
    """Print the facts."""
    include = sysconfig.get_path("include")
    interpreter = {
        "executable": sys.executable,
        "version": platform.python_version(),
        "prefix": sys.prefix,
        "include": include,
        "has_python_h": pathlib.Path(include, "Python.h").is_file(),
    }
    print(json.dumps({"interpreter": interpreter, "packages": packages(), "torch": torch_facts()}))


if __name__ == "__main__":
    main()
