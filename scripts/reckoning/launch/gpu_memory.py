"""GPU memory before and after a launch: the next one starts only when what this one took has come back."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reckoning.files import write_json

from .processes import boot_id
from .state import records_folder

Reader = Callable[[], list[float]]
TOLERANCE_MIB = 300.0
NEIGHBOUR_MIB = 1024.0


def read_used_mib() -> list[float]:
    """Return the used memory of each GPU in MiB; empty without an NVIDIA driver."""
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [pynvml.nvmlDeviceGetMemoryInfo(handle).used / 2**20 for handle in handles]
    except pynvml.NVMLError:
        return []
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


@dataclass(frozen=True)
class Before:
    """GPU memory before a launch, in MiB per GPU, and what is odd about it."""

    used_mib: list[float]
    held: str | None
    neighbours: str | None


def before_launch(*, limit_s: float, read: Reader) -> Before:
    """Return the memory before a launch, and remember it until the launch has given it back.

    When the launch before was killed and its memory never seen to come back, that is waited for first (`held`: it was
    not back within `limit_s`). `neighbours` names GPUs on which others hold more than 1 GiB.
    """
    note, held = _note(), None
    with contextlib.suppress(OSError, ValueError):
        remembered = json.loads(note.read_text())
        if remembered["boot"] == boot_id():
            held = wait_for_baseline(remembered["used_mib"], limit_s=limit_s, read=read)
    used = read()
    if used:
        write_json(note, {"boot": boot_id(), "used_mib": used})
    busy = ", ".join(f"GPU {index} {mib:.0f} MiB" for index, mib in enumerate(used) if mib > NEIGHBOUR_MIB)
    return Before(used, held, f"memory is in use before the launch: {busy}" if busy else None)


def after_launch(before: Before, *, limit_s: float, read: Reader) -> str | None:
    """Wait until the launch's memory is back; return None, or words that name what is still held."""
    held = wait_for_baseline(before.used_mib, limit_s=limit_s, read=read)
    _note().unlink(missing_ok=True)
    return held


def _note() -> Path:
    return records_folder() / "gpu-memory"


def wait_for_baseline(
    baseline_mib: Sequence[float],
    *,
    limit_s: float,
    read: Reader,
    sleep: Callable[[float], None] = time.sleep,
) -> str | None:
    """Wait until each GPU is back at its memory before the launch (within 300 MiB), at most `limit_s`.

    Returns None when it is, else words that name the GPUs that hold more. Memory can come back
    as late as a minute after the exit.
    """
    waited_s, pause_s = 0.0, 0.5
    while True:
        now = read()
        above = {
            index: used - before
            for index, (used, before) in enumerate(zip(now, baseline_mib, strict=False))
            if used > before + TOLERANCE_MIB
        }
        if not above:
            return None
        if waited_s >= limit_s:
            held = ", ".join(f"GPU {index} {more:.0f} MiB" for index, more in above.items())
            return f"{limit_s:.0f} s after the stop more memory is held than before the launch: {held}"
        sleep(pause_s)
        waited_s += pause_s
