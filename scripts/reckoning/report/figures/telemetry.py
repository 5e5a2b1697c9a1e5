"""What the GPUs did meanwhile: utilisation, power as a fraction of the limit, and PCIe traffic, GPU by time.

Reads `launches/{arm}/block{n}/telemetry.parquet` (written by `reckoning.launch.telemetry`): one row per GPU and sample
with `at_s` (since the launch's start), `gpu` (index) and any of `utilisation_share`, `power_w` with `power_limit_w`,
`pcie_rx_mb_s`, `pcie_tx_mb_s`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
import seaborn as sns

from reckoning.report.figures.canvas import Sheet, drawing, finish
from reckoning.report.figures.model import Cast, Figure, FigureData
from reckoning.report.quantities import percent, significant

BINS = 60
SPARE = 1.5  # a sample may be late by half its beat before a bin of that length misses it
PANELS = {
    "utilisation": ("utilisation", "%"),
    "power": ("power, share of limit", "%"),
    "pcie_rx": ("PCIe in", "GB/s"),
    "pcie_tx": ("PCIe out", "GB/s"),
}


def measures(table: pd.DataFrame) -> pd.DataFrame:
    """Return the samples with the columns of PANELS, as far as the table has what they need."""
    found = table[["at_s", "gpu"]].copy()
    if "utilisation_share" in table:
        found["utilisation"] = 100 * table["utilisation_share"]
    if {"power_w", "power_limit_w"} <= set(table):
        found["power"] = 100 * table["power_w"] / table["power_limit_w"]
    for name in ("pcie_rx", "pcie_tx"):
        if f"{name}_mb_s" in table:
            found[name] = table[f"{name}_mb_s"] / 1000
    return found


def telemetry_figure(arm: str, block: int, table: pd.DataFrame, cast: Cast) -> Figure | None:
    """Return the heat maps of one launch, or None when the table lacks what they need."""
    if not {"at_s", "gpu"} <= set(table):
        return None
    samples = measures(table).replace([np.inf, -np.inf], np.nan)
    names = [name for name in PANELS if name in samples and samples[name].notna().any()]
    if not names:
        return None
    grids = {name: heat(samples, name) for name in names}
    label = cast.label(arm)
    return Figure(
        key=f"telemetry-{arm}-{block}",
        title=f"What the GPUs did: {label}, block {block}",
        caption=(
            "GPU by time. High utilisation at a low share of the power limit is a stall: the GPUs wait, for "
            f"memory or for each other.{' Blank: nothing was sampled.' if _gaps(grids) else ''}"
        ),
        alt=(
            f"Heat maps of {samples['gpu'].nunique()} GPUs over {significant(samples['at_s'].max())} s. "
            f"{_means(samples, names)}"
        ),
        data=FigureData(
            ("gpu", "from_s", *(f"{name}_{_unit_key(PANELS[name][1])}" for name in names)), _rows(grids, names, samples)
        ),
        draw=lambda sheet: _draw(sheet, grids),
        category="telemetry",
    )


def _gaps(grids: Mapping[str, pd.DataFrame]) -> bool:
    return any(grid.isna().to_numpy().any() for grid in grids.values())


def heat(samples: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the mean of a measure per GPU (rows) and time bin (columns: its start in s).

    All bins are equally long and none is left out: where nothing was sampled there is a gap, and only there. So a bin
    is never so short that an even beat of samples would miss it.
    """
    known = samples.dropna(subset=[name])
    end = max(float(samples["at_s"].max()), 1e-9)
    beat = samples.sort_values("at_s").groupby("gpu")["at_s"].diff().median()
    width = max(end / BINS, 0.0 if pd.isna(beat) else float(SPARE * beat))
    bins = max(1, math.ceil(end / width - 1e-9))
    place = np.minimum(known["at_s"] / width, bins - 1).astype(int)
    grid = known.assign(bin=place).pivot_table(index="gpu", columns="bin", values=name, aggfunc="mean")
    grid = grid.reindex(index=sorted(samples["gpu"].unique()), columns=range(bins))
    return grid.set_axis([round(one * width, 3) for one in range(bins)], axis=1).rename_axis(columns="start")


def _draw(sheet: Sheet, grids: Mapping[str, pd.DataFrame]) -> str:
    columns = 1 if sheet.narrow else min(2, len(grids))
    rows = -(-len(grids) // columns)
    tall = max(110, 46 + 15 * max(len(grid) for grid in grids.values()))
    with drawing(sheet, rows * tall + 14, rows, columns) as (figure, cells):
        flat = list(cells.flat)
        for axes, (name, grid) in zip(flat, grids.items(), strict=False):
            title, unit = PANELS[name]
            top = 100 if unit == "%" else float(np.nanmax(grid.to_numpy())) or 1
            sns.heatmap(
                grid,
                ax=axes,
                vmin=0,
                vmax=top,
                cmap="cividis",
                rasterized=True,
                xticklabels=False,
                cbar_kws={"label": unit},
            )
            marks = range(0, len(grid.columns), 15)
            axes.set_xticks([mark + 0.5 for mark in marks], [f"{grid.columns[mark]:.0f}" for mark in marks])
            axes.collections[0].colorbar.outline.set_visible(False)
            axes.set_title(title, loc="left")
            axes.set_xlabel("s since the start of the launch")
            axes.set_ylabel("GPU")
            axes.tick_params(axis="both", rotation=0)
        for axes in flat[len(grids) :]:
            axes.set_visible(False)
        return finish(figure, sheet)


def _rows(grids: Mapping[str, pd.DataFrame], names: list[str], samples: pd.DataFrame) -> tuple[tuple[object, ...], ...]:
    starts = sorted({start for grid in grids.values() for start in grid.columns})
    rows = []
    for gpu in sorted(samples["gpu"].unique()):
        for start in starts:
            values = [grids[name].get(start, pd.Series(dtype=float)).get(gpu) for name in names]
            rows.append(
                (
                    int(gpu),
                    float(start),
                    *(None if value is None or pd.isna(value) else round(float(value), 3) for value in values),
                )
            )
    return tuple(rows)


def _unit_key(unit: str) -> str:
    return {"%": "percent", "GB/s": "gb_s"}[unit]


def _means(samples: pd.DataFrame, names: list[str]) -> str:
    parts = []
    for name in names:
        title, unit = PANELS[name]
        mean = samples[name].mean()
        parts.append(f"Mean {title} {percent(mean / 100) if unit == '%' else significant(mean) + ' ' + unit}")
    return ". ".join(parts) + "."
