"""What the machine did while points were measured: a row per launch, what slowed it down, and why no GPU is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from reckoning.environment.diagnosis.gpus import POWER_CAP, SLOWED
from reckoning.report import tables as column
from reckoning.report.collect import Results
from reckoning.report.figures.model import Cast
from reckoning.report.quantities import exact
from reckoning.report.tables import Table, table

# Codes of the launcher's findings that this chapter prints. The power limit has a column of the table.
CODES = frozenset({"gpu-throttled", "host-busy", "gpu-telemetry", "telemetry-incomplete"})
DISTURBED = {"gpu-throttled": "GPU slowed down", "host-busy": "other programs busy"}


def gpu_table(found: Results, cast: Cast) -> Table:
    """Return one row per launch with samples of GPUs: over all of its GPUs, while points were measured."""
    return table(
        "gpu-use",
        "What the GPUs of each launch did while points were measured",
        _rows(found.telemetry, cast, _of_gpus),
        [
            *_launch(cast),
            column.whole("GPUs", "gpus"),
            column.share("utilisation", "utilisation_share"),
            column.number("W per GPU", "power_w"),
            column.number("max °C", "temperature_c", exact),
            column.share("power-capped", "capped_share"),
            column.share("slowed", "slowed_share"),
        ],
    )


def host_table(found: Results, cast: Cast) -> Table:
    """Return one row per launch with samples of the host: cores as a mean, memory as the highest."""
    return table(
        "host-use",
        "What each server took of the host while points were measured",
        _rows(found.host, cast, _of_host),
        [
            *_launch(cast),
            column.number("server's busy cores", "server_cpu_cores"),
            column.number("server's memory, GB", "server_memory_gb"),
            column.share("host's processors busy", "host_cpu_share"),
        ],
    )


def _launch(cast: Cast) -> list[column.Column]:
    return [column.arm("arm", "arm", cast), column.whole("block", "block")]


def _rows(
    recordings: Mapping[tuple[str, int], pd.DataFrame], cast: Cast, use: Callable[[pd.DataFrame], dict[str, Any]]
) -> list[dict[str, Any]]:
    places = {slug: place for place, slug in enumerate(cast.looks)}
    launches = sorted(recordings, key=lambda one: (places.get(one[0], len(places)), one))
    measured = [(launch, _measured(recordings[launch])) for launch in launches]
    return [{"arm": arm, "block": block, **use(part)} for (arm, block), part in measured if len(part)]


def _of_gpus(samples: pd.DataFrame) -> dict[str, Any]:
    use = {
        "gpus": samples["gpu"].nunique() if "gpu" in samples else None,
        "utilisation_share": _of(samples, "utilisation_share", "mean"),
        "power_w": _of(samples, "power_w", "mean"),
        "temperature_c": _of(samples, "temperature_c", "max"),
        "capped_share": None,
        "slowed_share": None,
    }
    if _of(samples, "throttle_reasons", "max") is not None:
        reasons = samples["throttle_reasons"].dropna().astype("int64")
        use["capped_share"] = float((reasons & POWER_CAP != 0).mean())
        use["slowed_share"] = float((reasons & sum(SLOWED) != 0).mean())
    return use


def _of_host(samples: pd.DataFrame) -> dict[str, Any]:
    memory = _of(samples, "server_memory_mb", "max")
    return {
        "server_cpu_cores": _of(samples, "server_cpu_cores", "mean"),
        "server_memory_gb": None if memory is None else memory / 1000,
        "host_cpu_share": _of(samples, "host_cpu_share", "mean"),
    }


def _measured(samples: pd.DataFrame) -> pd.DataFrame:
    """Return the samples taken while a point ran, or all of a table that does not say."""
    return samples[samples["point"].notna()] if "point" in samples else samples


def _of(samples: pd.DataFrame, name: str, how: str) -> float | None:
    if name not in samples or not samples[name].notna().any():
        return None
    return float(samples[name].agg(how))


def launch_notes(found: Results) -> list[dict[str, Any]]:
    """Return what the launches' outcomes say about telemetry, {arm, block, code, level, text}, warnings first."""
    notes = [
        {"arm": arm, "block": block, **one}
        for (arm, block), outcome in sorted(found.outcomes.items())
        for one in _findings(outcome)
        if one.get("code") in CODES
    ]
    return sorted(notes, key=lambda one: one.get("level") != "warn")


def slowed(outcome: Mapping[str, Any]) -> str:
    """Return words for the run order when a GPU of the launch was slowed, or others used the host, else nothing."""
    codes = {one.get("code") for one in _findings(outcome)}
    return ", ".join(words for code, words in DISTURBED.items() if code in codes)


def why_no_heat_map(found: Results) -> str:
    """Return why the page shows no GPU."""
    if (found.plan.get("machine") or {}).get("device") == "cpu":
        return "The servers ran on the processor: there was no GPU to sample."
    texts = [
        str(one.get("text"))
        for outcome in found.outcomes.values()
        for one in _findings(outcome)
        if one.get("code") == "no-gpu-telemetry"
    ]
    if texts:
        return f"No GPU was sampled: {'; '.join(dict.fromkeys(texts))}."
    if found.telemetry:
        return "The GPUs were sampled, but their driver told neither utilisation nor power nor PCIe traffic."
    return "No GPU telemetry was recorded, so utilisation, power and PCIe traffic are not known here."


def _findings(outcome: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = outcome.get("findings")
    return [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list | tuple) else []
