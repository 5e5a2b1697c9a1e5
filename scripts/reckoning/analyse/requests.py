"""One launch's requests in one pass: each point's latencies, the launch's quantiles, and its distributions.

Only the steady window counts. Requests that timed out are censored: they take the highest ranks. The gaps between
chunks are read batch by batch into a histogram with bins 0.1 % wide, so that memory stays flat however many tokens
there were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reckoning.analyse.evidence import QUANTILES
from reckoning.statistics.quantiles import LaunchQuantile, launch_quantiles, requests_needed

TIMED_OUT = ("idle-timeout", "total-timeout")
TIMED = ("ttft_ms", "tpot_ms", "e2e_ms")
CDF_QUANTILES = np.linspace(0, 1, 201)

_BIN = 1e-3
_LOWEST_MS = 1e-3
_BINS = int(np.log(1e9) / _BIN) + 1
_CENTRES = _LOWEST_MS * np.exp((np.arange(_BINS) + 0.5) * _BIN)
_BATCH_ROWS = 16_384


@dataclass(frozen=True)
class Distribution:
    """Quantiles `q` and their values (ms) of one metric at one level in one launch, of `total` observations."""

    workload: str
    concurrency: int
    metric: str
    q: np.ndarray
    values: np.ndarray
    total: int


@dataclass(frozen=True)
class LaunchRequests:
    """`points`: point index -> metric -> value; `quantiles`: (workload, level, metric) -> one per `QUANTILES`."""

    points: dict[int, dict[str, float | None]] = field(default_factory=dict)
    quantiles: dict[tuple[str, int, str], list[LaunchQuantile]] = field(default_factory=dict)
    distributions: list[Distribution] = field(default_factory=list)
    requests: int = 0
    failed: int = 0


def read_launch_requests(path: Path) -> LaunchRequests:
    """Read one `requests.parquet`; columns that are missing give no value."""
    source = pq.ParquetFile(path)
    present = set(source.schema_arrow.names)
    wanted = ["point", "workload", "concurrency", "phase", "outcome", "output_tokens", *TIMED]
    rows = source.read(columns=[name for name in wanted if name in present])
    rows = rows.filter(pc.not_equal(rows["phase"], "warmup"))
    ok = _is(rows["outcome"], "ok")
    found = LaunchRequests(requests=rows.num_rows, failed=int((~ok).sum()))
    if not rows.num_rows:
        return found
    point = _numbers(rows["point"]).astype(int)
    places = _places(rows, point)
    censored = np.isin(_texts(rows["outcome"]), TIMED_OUT)
    steady = _is(rows["phase"], "steady")
    if "output_tokens" in present:
        tokens = _numbers(rows["output_tokens"])
        for index in places:
            chosen = tokens[(point == index) & ok & np.isfinite(tokens)]
            found.points.setdefault(index, {})["output_tokens_mean"] = float(chosen.mean()) if chosen.size else None
    for metric in TIMED:
        if metric in present:
            _add_times(found, metric, _numbers(rows[metric]), point, places, steady, ok, censored)
    if "chunk_gap_ms" in present:
        _add_gaps(found, source, present, places)
    return found


def _places(rows: pa.Table, point: np.ndarray) -> dict[int, tuple[str, int]]:
    """Return point index -> (workload, level), in ascending order of the index."""
    indices, first = np.unique(point, return_index=True)
    head = rows.select(["workload", "concurrency"]).take(pa.array(first)).to_pylist()
    return {int(i): (str(row["workload"]), int(row["concurrency"])) for i, row in zip(indices, head, strict=True)}


def _add_times(  # noqa: PLR0917
    found: LaunchRequests,
    metric: str,
    values: np.ndarray,
    point: np.ndarray,
    places: Mapping[int, tuple[str, int]],
    steady: np.ndarray,
    ok: np.ndarray,
    censored: np.ndarray,
) -> None:
    """Rank the steady requests of every point and level; a request that timed out before the event counts as infinite.

    The first token of a request that timed out later was seen, so its TTFT is known; its TPOT and latency are not.
    """
    known = ok | censored if metric == "ttft_ms" else ok
    ranked = np.where(known & np.isfinite(values), values, np.where(censored, np.inf, np.nan))
    usable = steady & ~np.isnan(ranked)
    levels: dict[tuple[str, int], list[np.ndarray]] = {}
    for index, place in places.items():
        chosen = ranked[usable & (point == index)]
        if chosen.size:
            median = float(np.median(chosen))
            found.points.setdefault(index, {})[metric] = median if np.isfinite(median) else None
            levels.setdefault(place, []).append(chosen)
    for (workload, level), parts in levels.items():
        together = np.sort(np.concatenate(parts))
        observed = together[np.isfinite(together)]
        lost = together.size - observed.size
        found.quantiles[workload, level, metric] = launch_quantiles(observed, lost, QUANTILES)
        at = CDF_QUANTILES * (together.size - 1)
        at = at[at <= observed.size - 1]
        values_at = np.interp(at, np.arange(observed.size), observed) if observed.size else np.array([])
        q = at / max(together.size - 1, 1)
        found.distributions.append(Distribution(workload, level, metric, q, values_at, together.size))


def _add_gaps(
    found: LaunchRequests, source: pq.ParquetFile, present: set[str], places: Mapping[int, tuple[str, int]]
) -> None:
    """Add `chunk_gap_ms` (every gap once) and `itl_ms` (a gap before k tokens is k tokens of gap / k each)."""
    sums: dict[tuple[str, int], np.ndarray] = {}
    histograms: dict[tuple[str, int, str], np.ndarray] = {}
    for metric, point, gap, weight in _gap_batches(source, present):
        bins = np.log(np.maximum(gap, _LOWEST_MS) / _LOWEST_MS) * (1 / _BIN)
        bins = np.minimum(bins, _BINS - 1).astype(np.int32)
        for index in np.unique(point):
            inside = point == index
            total = sums.setdefault((metric, int(index)), np.zeros(2))
            total += (float(gap[inside] @ weight[inside]), float(weight[inside].sum()))
            histogram = histograms.setdefault((*places[int(index)], metric), np.zeros(_BINS))
            histogram += np.bincount(bins[inside], weights=weight[inside], minlength=_BINS)
    for (metric, index), (total, weight) in sums.items():
        found.points.setdefault(index, {})[metric] = float(total / weight) if weight else None
    for (workload, level, metric), histogram in histograms.items():
        cumulative = np.cumsum(histogram)
        total = round(float(cumulative[-1]))
        values = _histogram_quantiles(cumulative, QUANTILES)
        found.quantiles[workload, level, metric] = [
            LaunchQuantile(float(value), total, 0, "ok")
            if total >= requests_needed(q)
            else LaunchQuantile(None, total, 0, "too-few-requests")
            for q, value in zip(QUANTILES, values, strict=True)
        ]
        curve = _histogram_quantiles(cumulative, CDF_QUANTILES)
        found.distributions.append(Distribution(workload, level, metric, CDF_QUANTILES, curve, total))


def _histogram_quantiles(cumulative: np.ndarray, qs: Sequence[float] | np.ndarray) -> np.ndarray:
    at = np.searchsorted(cumulative, np.maximum(np.asarray(qs) * cumulative[-1], 1e-9), side="left")
    return _CENTRES[np.minimum(at, _BINS - 1)]


def _gap_batches(source: pq.ParquetFile, present: set[str]) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield (metric, point, gap, weight), flat over the gaps of the steady, complete requests of a batch.

    A request whose chunks' tokens are unknown has no `itl_ms`, unless it had one token in each chunk.
    """
    columns = ["point", "phase", "outcome", "output_tokens", "chunk_gap_ms", "chunk_tokens"]
    for batch in source.iter_batches(_BATCH_ROWS, columns=[name for name in columns if name in present]):
        table = pa.Table.from_batches([batch])
        mask = _is(table["phase"], "steady") & _is(table["outcome"], "ok")
        if not mask.any():
            continue
        if not mask.all():
            table = table.filter(pa.array(mask))
        gaps, lengths = _flat(table["chunk_gap_ms"])
        point = np.repeat(_numbers(table["point"]).astype(int), lengths)
        yield "chunk_gap_ms", point, gaps, np.ones(gaps.size)
        tokens = _tokens_per_gap(table, lengths)
        keep = tokens > 0
        if keep.all():
            yield "itl_ms", point, gaps / tokens, tokens
        elif keep.any():
            yield "itl_ms", point[keep], gaps[keep] / tokens[keep], tokens[keep]


def _tokens_per_gap(table: pa.Table, lengths: np.ndarray) -> np.ndarray:
    """Return the tokens that each gap brought, flat; 0 where they are not known."""
    tokens = np.zeros(int(lengths.sum()))
    row = np.repeat(np.arange(lengths.size), lengths)
    known = np.zeros(lengths.size, dtype=bool)
    if "chunk_tokens" in table.column_names and table["chunk_tokens"].null_count < table.num_rows:
        counts, sizes = _flat(table["chunk_tokens"])
        known = sizes == lengths + 1
        first = np.cumsum(sizes) - sizes
        start = np.cumsum(lengths) - lengths
        usable = known[row]
        within = np.arange(tokens.size) - start[row]
        tokens[usable] = counts[(first[row] + 1 + within)[usable]]
    if "output_tokens" in table.column_names:
        single = ~known & (_numbers(table["output_tokens"]) == lengths + 1)
        tokens[single[row]] = 1.0
    return tokens


def _flat(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the flattened numbers of a list column and the length of each list (0 for null)."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0)
    lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(int)
    return array.flatten().to_numpy(zero_copy_only=False).astype(float), lengths


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Return a column as floats, NaN for null."""
    return pc.cast(column, pa.float64()).to_numpy() if column.null_count < len(column) else np.full(len(column), np.nan)


def _texts(column: pa.ChunkedArray) -> np.ndarray:
    return column.to_numpy().astype(object)


def _is(column: pa.ChunkedArray, text: str) -> np.ndarray:
    return pc.equal(column, text).fill_null(False).to_numpy()
