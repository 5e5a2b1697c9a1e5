"""What exactly is started: the command with its placeholders filled, and an environment in which nothing is stray."""

from __future__ import annotations

import getpass
import itertools
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What a process needs to live on this machine and to find its GPUs, libraries, model and caches. All else stays out: a
# forgotten NCCL_P2P_DISABLE or SGLANG_* of the shell would change one run and be in no record of it.
PASSED_TEXT = """
PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TERM LD_LIBRARY_PATH
CUDA_HOME CUDA_PATH CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_CACHE_PATH NVIDIA_VISIBLE_DEVICES
NVIDIA_DRIVER_CAPABILITIES XDG_CACHE_HOME XDG_CONFIG_HOME HF_HOME HF_HUB_CACHE HF_TOKEN HF_HUB_OFFLINE
TRANSFORMERS_OFFLINE TRANSFORMERS_CACHE MODELSCOPE_CACHE TRITON_CACHE_DIR TORCHINDUCTOR_CACHE_DIR
TORCH_EXTENSIONS_DIR FLASHINFER_WORKSPACE_BASE TVM_FFI_CACHE_DIR SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE
http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
"""
PASSED = frozenset(PASSED_TEXT.split())
# Of the variables left out, these change how an engine computes, so leaving them out is worth a word.
TELLING = tuple("SGLANG_ SGL_ NCCL_ TORCH PYTORCH_ CUDA_ OMP_ MKL_ FLASHINFER_ TRITON_ GLOO_ UCX_".split(" "))  # noqa: SIM905
SET_BY_SNAKEMAKE = frozenset({"OMP_NUM_THREADS", "MKL_NUM_THREADS"})  # for every job, from its threads
TELLING_NAMES = frozenset({"PYTHONPATH", "PYTHONHOME", "LD_PRELOAD", "KMP_AFFINITY"})


@dataclass(frozen=True)
class ServerEnvironment:
    """`full` is what the server gets, `ours` what the experiment set, `left_out` telling names of the caller's."""

    full: dict[str, str]
    ours: dict[str, str]
    left_out: tuple[str, ...]


def fill(command: Iterable[str], values: Mapping[str, object]) -> list[str]:
    """Return the command with `{python}`, `{port}` and `{nccl_port}` replaced; other braces (JSON arguments) stay."""
    pattern = re.compile("|".join(r"\{" + re.escape(name) + r"\}" for name in values))
    return [pattern.sub(lambda found: str(values[found[0][1:-1]]), word) for word in command]


def option(command: list[str], *names: str) -> str | None:
    """Return the value of the last of the options in the command (`--port 1` or `--port=1`), or None."""
    value = None
    for word, following in itertools.pairwise([*command, None]):
        name, equals, rest = (word or "").partition("=")
        if name in names:
            value = rest if equals else following
    return value


def fixed_port(command: list[str], *names: str) -> int | None:
    """Return the port that the user wrote into the command, or None when it is left to us."""
    value = option(command, *names)
    return int(value) if value and value.isdigit() else None


def server_environment(
    arm_env: Mapping[str, str], *, overlay: Sequence[str], inherited: Mapping[str, str], ours: Mapping[str, str]
) -> ServerEnvironment:
    """Return the server's environment: what a process needs, ours, the arm's; the overlay is first on PYTHONPATH."""
    paths = [*overlay, *([arm_env["PYTHONPATH"]] if arm_env.get("PYTHONPATH") else [])]
    set_by_us = {**ours, **{name: str(value) for name, value in arm_env.items()}}
    if paths:
        set_by_us["PYTHONPATH"] = os.pathsep.join(paths)
    passed = {name: value for name, value in inherited.items() if name in PASSED or name.startswith("LC_")}
    left_out = tuple(
        sorted(
            name
            for name in inherited
            if name not in {*passed, *set_by_us, *SET_BY_SNAKEMAKE}
            and (name.startswith(TELLING) or name in TELLING_NAMES)
        )
    )
    return ServerEnvironment(passed | set_by_us, set_by_us, left_out)


SETTINGS_OF_OURS = ("TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "PYTHONUNBUFFERED")  # for measuring, not for serving


def settings_of_ours(scratch: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return variables that every launch gets: a scratch folder, which is removed afterwards, and unbuffered output.

    Compiled kernels must outlive the launch, so the compiler's cache, by default in the scratch folder, stays outside.
    """
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    cache = inherited.get("TORCHINDUCTOR_CACHE_DIR") or str(Path(tempfile.gettempdir()) / f"torchinductor_{user}")
    return dict(zip(SETTINGS_OF_OURS, (str(scratch), cache, "1"), strict=True))


def overlay_entry(engine: Mapping[str, Any], arm: str) -> Mapping[str, Any] | None:
    """Return the arm's entry of engine.json's `overlays`, or None."""
    patch_set = (engine.get("arms") or {}).get(arm)
    return (engine.get("overlays") or {}).get(patch_set) if patch_set else None


def overlay_paths(overlay: Mapping[str, Any] | None) -> list[str]:
    """Return the folders with patched packages that go first on PYTHONPATH; none when it runs unpatched."""
    if not overlay:
        return []
    folders = overlay.get("pythonpath")
    if folders is None:
        folders = [overlay["path"]] if overlay.get("path") else []
    return [str(Path(folder).resolve()) for folder in folders]
