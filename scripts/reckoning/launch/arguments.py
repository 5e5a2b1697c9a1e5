"""Requested against effective arguments: an engine that changes a setting by itself changes the experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .failures import SECRET_KEY

# What SGLang is known to set by itself: argument -> (when, why). Read from the source of 0.5.12.post1 and 0.5.23.
KNOWN = {
    "max_running_requests": "DFlash sets 48 when nothing is asked for; other limits come from the memory that is left",
    "ep_size": "the DeepEP and similar all-to-all backends set the expert parallel size to the tensor parallel size",
    "chunked_prefill_size": "under data-parallel attention each rank gets its share",
    "disable_overlap_schedule": "pipeline parallelism and some speculative algorithms switch the overlap schedule off",
    "disable_radix_cache": "some backends and speculative algorithms switch the prefix cache off",
    "page_size": "some attention backends need their own page size",
    "disable_cuda_graph": "a CPU device and some backends run without CUDA graphs",
    "speculative_num_steps": "DFlash needs no steps: it is forced to 1",
    "attention_backend": "the default depends on the GPU and the model",
}
# Worth a word even when nobody asked for a value: an effect on the comparison that is in no command line.
SILENT = {
    "max_running_requests": lambda settings: settings.get("speculative_algorithm") == "DFLASH",
    "disable_overlap_schedule": lambda settings: int(settings.get("pp_size") or 1) > 1,
    "ep_size": lambda settings: settings.get("moe_a2a_backend") not in (None, "none"),
}
UNREPORTED = object()


def differences(settings: Mapping[str, Any], info: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return `{argument, requested, effective, note}` for each argument whose effective value is not the requested one.

    `settings` maps server arguments to requested values, `info` is the server's own account. An argument that the
    server does not report cannot be compared and is left out. A silent change (nothing requested) has `requested` null.
    """
    found = []
    for argument, requested in settings.items():
        effective = effective_value(argument, info)
        if not SECRET_KEY.search(argument) and effective is not UNREPORTED and not same(requested, effective):
            found.append(_difference(argument, requested, effective))
    for argument, applies in SILENT.items():
        effective = effective_value(argument, info)
        if argument not in settings and applies(settings) and not _usual(effective):
            found.append(_difference(argument, None, effective))
    return found


def _usual(effective: Any) -> bool:
    """Whether a value that nobody asked for is none, off, or the size 1."""
    return effective is UNREPORTED or effective in (None, False) or (effective == 1 and effective is not True)


def _difference(argument: str, requested: Any, effective: Any) -> dict[str, Any]:
    note = KNOWN.get(argument, "the engine changed this setting by itself")
    return {"argument": argument, "requested": requested, "effective": effective, "note": note}


def effective_value(argument: str, info: Mapping[str, Any]) -> Any:
    """Return the effective value: the scheduler's own account goes before the arguments, which it may not honour."""
    states = info.get("internal_states")
    if argument == "max_running_requests" and isinstance(states, list):
        limits = [state.get("effective_max_running_requests_per_dp") for state in states if isinstance(state, Mapping)]
        limits = [limit for limit in limits if isinstance(limit, int)]
        if limits:
            return sum(limits)
    return info.get(argument, UNREPORTED)


def same(requested: Any, effective: Any) -> bool:
    """Return whether two spellings mean one value: 1 and 1.0, a list and a tuple, the text of a number."""
    if isinstance(requested, bool) or isinstance(effective, bool):
        return str(requested).lower() == str(effective).lower()
    if requested == effective:
        return True
    if isinstance(requested, list | tuple) and isinstance(effective, list | tuple):
        return len(requested) == len(effective) and all(map(same, requested, effective))
    try:
        return float(requested) == float(effective)
    except (TypeError, ValueError):
        return str(requested).lower() == str(effective).lower()
