"""The command line of a server: settings in, one exact list of words out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

PYTHON, PORT, NCCL_PORT = "{python}", "{port}", "{nccl_port}"


def server_command(
    model_path: str, served_name: str, device: str, settings: Mapping[str, Any], flags: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return the command of one launch, settings in the order of their names.

    `flags` is the engine's flag table (see `reckoning.plan.flags`); a setting that it does not know becomes a flag of
    the same name, and the planner rejects the arm for it.
    """
    words = [PYTHON, "-m", "sglang.launch_server", "--model-path", model_path, "--served-model-name", served_name]
    words += ["--host", "127.0.0.1", "--port", PORT, "--nccl-port", NCCL_PORT, "--device", device]
    for name in sorted(settings):
        words += _words(name, settings[name], flags.get(name))
    return tuple(words)


def _words(name: str, value: Any, flag: Any) -> list[str]:
    option = flag.option if flag is not None else "--" + name.replace("_", "-")
    if isinstance(value, bool):
        if flag is None or flag.kind == "switch":
            return [option] if value else []
        if flag.kind == "on-off":
            return [option if value else "--no-" + option.removeprefix("--")]
        return [option, str(value)]
    if isinstance(value, Mapping):
        return [option, json.dumps(value, sort_keys=True, separators=(",", ":"))]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [option, *map(str, value)]
    return [option, _number(value)]


def _number(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) >= 1e16 else str(value)
