"""Energy per output token, when a launch has telemetry: mean power over the steady window over tokens per second."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

FEWEST_SAMPLES = 3


def read_telemetry(folder: Path) -> pd.DataFrame | None:
    """Return `telemetry.parquet` (at_s since the launch's start, gpu, power_w, ...) of a launch, None without power."""
    path = folder / "telemetry.parquet"
    if not path.exists():
        return None
    try:
        table = pd.read_parquet(path)
    except Exception:  # a broken file has many exceptions; without telemetry there is no energy, and that is all
        return None
    return table if {"at_s", "gpu", "power_w"} <= set(table.columns) else None


def energy_j_per_token(telemetry: pd.DataFrame | None, point: Mapping[str, Any]) -> float | None:
    """Return joules per output token of a point over all GPUs, None when a GPU has too few samples in the window.

    The power of each GPU is averaged over time by the trapezoidal rule between its samples inside the steady window,
    then summed over GPUs and divided by the tokens per second of the same window.
    """
    start, end, speed = (point.get(key) for key in ("steady_start_s", "steady_end_s", "output_tok_s"))
    if telemetry is None or start is None or end is None or not speed:
        return None
    inside = telemetry[(telemetry["at_s"] >= start) & (telemetry["at_s"] <= end) & telemetry["power_w"].notna()]
    total = 0.0
    for gpu in telemetry["gpu"].unique():
        own = inside[inside["gpu"] == gpu].sort_values("at_s")
        times, power = own["at_s"].to_numpy(dtype=float), own["power_w"].to_numpy(dtype=float)
        if times.size < FEWEST_SAMPLES or times[-1] <= times[0]:
            return None
        total += float(np.trapezoid(power, times) / (times[-1] - times[0]))
    return total / float(speed) if total > 0 else None
