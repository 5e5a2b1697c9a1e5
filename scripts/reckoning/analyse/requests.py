"""One launch's requests in one pass: each point's latencies, the launch's quantiles, and its distributions.

Only the steady window counts. Requests that timed out are censored: they take the highest ranks. The gaps between chunks
are read batch by batch into a histogram with bins 0.1 % wide, so that memory stays flat however many tokens there were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from reckoning.analyse.evidence import QUANTILES
from reckoning.statistics.quantiles import LaunchQuantile, launch_quantiles, requests_needed

TIMED_OUT = ("idle-timeout", "total-timeout")
TIMED = ("ttft_ms", "tpot_ms", "e2e_ms")
GAPS = ("itl_ms", "chunk_gap_ms")
CDF_QUANTILES = np.linspace(0, 1, 201)

_BIN = 1e-3
_LOWEST_MS = 1e-3
_BINS = int(np.log(1e9) / _BIN) + 1
_BATCH_ROWS = 20_000


@dataclass(frozen=True)
class LaunchRequests:
    """`points`: point index -> metric -> value; `quantiles`: (workload, level, metric) -> one per `QUANTILES`;
    `distributions`: rows for the table of that name, without arm and block."""

    points: Mapping[int, Mapping[str, float | None]]
    quantiles: Mapping[tuple[str, int, str], list[LaunchQuantile]]
    distributions: list[pd.DataFrame]
    requests: int
    failed: int


def read_launch_requests(path: Path) -> LaunchRequests:
    """Read one `requests.parquet`; columns that are missing give no value."""
    source = pq.ParquetFile(path)
    present = set(source.schema_arrow.names)
    wanted = ["point", "workload", "concurrency", "phase", "outcome", "output_tokens", *TIMED]
    columns = [name for name in wanted if name in present]
    rows = source.read(columns=columns).to_pandas(strings_to_categorical=True, self_destruct=True)
    for name in wanted:
        if name not in rows:
            rows[name] = np.nan
    rows = rows[rows["phase"] != "warmup"]
    ok = rows["outcome"] == "ok"
    steady = rows["phase"] == "steady"
    points: dict[int, dict[str, float | None]] = {}
    for point, tokens in rows[ok].groupby("point", observed=True)["output_tokens"].mean().items():
        points.setdefault(int(point), {})["output_tokens_mean"] = float(tokens) if np.isfinite(tokens) else None
    timed = rows[steady & (ok | rows["outcome"].isin(TIMED_OUT))]
    quantiles: dict[tuple[str, int, str], list[LaunchQuantile]] = {}
    distributions: list[pd.DataFrame] = []
    for metric in TIMED:
        usable = (
            timed if metric == "ttft_ms" else timed.assign(**{metric: timed[metric].where(timed["outcome"] == "ok")})
        )
        ranked = usable[metric].where(usable[metric].notna() | (usable["outcome"] == "ok"), np.inf)
        usable = usable.assign(**{metric: ranked})[
            usable.columns.intersection(["point", "workload", "concurrency", metric])
        ]
        usable = usable[usable[metric].notna()]
        for point, value in usable.groupby("point", observed=True)[metric].median().items():
            points.setdefault(int(point), {})[metric] = float(value) if np.isfinite(value) else None
        for (workload, level), values in usable.groupby(["workload", "concurrency"], observed=True)[metric]:
            array = values.to_numpy(dtype=float)
            observed = array[np.isfinite(array)]
            censored = int(array.size - observed.size)
            key = (str(workload), int(level), metric)
            quantiles[key] = launch_quantiles(observed, censored, QUANTILES)
            distributions.append(_cdf(key, np.sort(observed), array.size))
    if {"chunk_gap_ms"} <= present:
        _add_gaps(source, present, points, quantiles, distributions)
    return LaunchRequests(points, quantiles, distributions, len(rows), int((~ok).sum()))


def _cdf(key: tuple[str, int, str], observed: np.ndarray, total: int) -> pd.DataFrame:
    """Return at most 201 quantiles of all `total` requests; those among the censored have no value and no row."""
    places = CDF_QUANTILES * (total - 1)
    places = places[places <= observed.size - 1]
    values = np.interp(places, np.arange(observed.size), observed) if observed.size else np.array([])
    return _distribution(key, places / max(total - 1, 1), values, total)


def _distribution(key: tuple[str, int, str], q: np.ndarray, values: np.ndarray, total: int) -> pd.DataFrame:
    workload, level, metric = key
    return pd.DataFrame(
        {"workload": workload, "concurrency": level, "metric": metric, "q": q, "value": values, "requests": total}
    )


def _add_gaps(
    source: pq.ParquetFile,
    present: set[str],
    points: dict[int, dict[str, float | None]],
    quantiles: dict[tuple[str, int, str], list[LaunchQuantile]],
    distributions: list[pd.DataFrame],
) -> None:
    sums: dict[tuple[str, int], np.ndarray] = {}
    histograms: dict[tuple[str, int, str], np.ndarray] = {}
    for metric, frame in _gap_batches(source, present):
        for point, part in frame.groupby("point", sort=False):
            total = sums.setdefault((metric, int(point)), np.zeros(2))
            total += (float((part["gap"] * part["weight"]).sum()), float(part["weight"].sum()))
        bins = np.log(np.maximum(frame["gap"].to_numpy(), _LOWEST_MS) / _LOWEST_MS) / _BIN
        frame = frame.assign(bin=np.minimum(bins.astype(int), _BINS - 1))
        for (workload, level), part in frame.groupby(["workload", "concurrency"], observed=True, sort=False):
            histogram = histograms.setdefault((str(workload), int(level), metric), np.zeros(_BINS))
            histogram += np.bincount(part["bin"], weights=part["weight"], minlength=_BINS)
    for (metric, point), (total, weight) in sums.items():
        points.setdefault(point, {})[metric] = total / weight if weight else None
    centres = _LOWEST_MS * np.exp((np.arange(_BINS) + 0.5) * _BIN)
    for key, histogram in histograms.items():
        cumulative = np.cumsum(histogram)
        total = round(float(cumulative[-1]))
        values = _histogram_quantiles(cumulative, centres, QUANTILES)
        quantiles[key] = [
            LaunchQuantile(value, total, 0, "ok")
            if total >= requests_needed(q)
            else LaunchQuantile(None, total, 0, "too-few-requests")
            for q, value in zip(QUANTILES, values, strict=True)
        ]
        distributions.append(
            _distribution(key, CDF_QUANTILES, np.array(_histogram_quantiles(cumulative, centres, CDF_QUANTILES)), total)
        )


def _histogram_quantiles(cumulative: np.ndarray, centres: np.ndarray, qs: Sequence[float]) -> list[float]:
    places = np.searchsorted(cumulative, np.maximum(np.asarray(qs) * cumulative[-1], 1e-9), side="left")
    return [float(centres[min(place, centres.size - 1)]) for place in places]


def _gap_batches(source: pq.ParquetFile, present: set[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield (metric, frame of point, workload, concurrency, gap, weight) for the steady, complete requests of a batch.

    `chunk_gap_ms`: every gap once. `itl_ms`: a gap before a chunk of k tokens is k tokens of gap / k each; a request whose
    chunks' tokens are unknown is left out, unless it had one token in each chunk.
    """
    columns = ["point", "workload", "concurrency", "phase", "outcome", "output_tokens", "chunk_gap_ms", "chunk_tokens"]
    for batch in source.iter_batches(_BATCH_ROWS, columns=[name for name in columns if name in present]):
        mask = np.asarray(batch["phase"].to_pandas() == "steady") & np.asarray(batch["outcome"].to_pandas() == "ok")
        if not mask.any():
            continue
        table = pa.table(batch).filter(pa.array(mask))
        gaps, lengths = _flat(table["chunk_gap_ms"])
        row = np.repeat(np.arange(table.num_rows), lengths)
        head = table.select(["point", "workload", "concurrency"]).to_pandas()
        base = head.iloc[row].reset_index(drop=True)
        yield "chunk_gap_ms", base.assign(gap=gaps, weight=1.0)
        tokens, known = _tokens_per_gap(table, lengths)
        keep = known[row] & (tokens > 0)
        yield "itl_ms", base[keep].assign(gap=gaps[keep] / tokens[keep], weight=tokens[keep])


def _flat(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    array = column.combine_chunks()
    lengths = np.nan_to_num(array.value_lengths().to_numpy(zero_copy_only=False).astype(float)).astype(int)
    return array.flatten().to_numpy(zero_copy_only=False).astype(float), lengths


def _tokens_per_gap(table: pa.Table, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens that each gap brought (flat, 0 where unknown) and which requests are known."""
    total = int(lengths.sum())
    tokens = np.zeros(total)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]) if lengths.size else np.array([], dtype=int)
    known = np.zeros(lengths.size, dtype=bool)
    if "chunk_tokens" in table.column_names and table["chunk_tokens"].null_count < table.num_rows:
        counts, sizes = _flat(table["chunk_tokens"])
        known = (sizes == lengths + 1) & (lengths > 0)
        offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        row = np.repeat(np.arange(lengths.size), lengths)
        within = np.arange(total) - starts[row]
        usable = known[row]
        tokens[usable] = counts[offsets[row[usable]] + 1 + within[usable]]
    if "output_tokens" in table.column_names:
        output = table["output_tokens"].to_pandas().to_numpy(dtype=float, na_value=np.nan)
        single = ~known & (output == lengths + 1)
        tokens[np.repeat(single, lengths)] = 1.0
        known = known | single
    return tokens, known
