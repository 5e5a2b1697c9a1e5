"""GPU memory before and after a launch: the next one starts only when what this one took has come back."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

Reader = Callable[[], list[float]]
TOLERANCE_MIB = 300.0


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


def wait_for_baseline(
    baseline_mib: Sequence[float],
    *,
    limit_s: float,
    read: Reader = read_used_mib,
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
