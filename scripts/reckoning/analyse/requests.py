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

_DROPPED_BITS = 13
_FIRST_BIN = int(np.float32(1e-3).view(np.int32) >> _DROPPED_BITS)
_BINS = int(np.float32(1e6).view(np.int32) >> _DROPPED_BITS) - _FIRST_BIN + 1
_CENTRES = (
    (((np.arange(_BINS) + _FIRST_BIN) << _DROPPED_BITS) + (1 << (_DROPPED_BITS - 1)))
    .astype(np.int32)
    .view(np.float32)
    .astype(float)
)
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
    levels = {place: code for code, place in enumerate(dict.fromkeys(places.values()))}
    level_of = np.zeros(max(places) + 1, dtype=np.int64)
    level_of[list(places)] = [levels[place] for place in places.values()]
    tallies = {metric: _Tally(len(levels), level_of.size) for metric in ("chunk_gap_ms", "itl_ms")}
    for point, lengths, gaps, tokens in _gap_batches(source, present):
        every = tallies["chunk_gap_ms"].share(point, level_of[point], lengths, gaps)
        tallies["chunk_gap_ms"].add(every)
        if tokens is None:
            tallies["itl_ms"].add(every)
            continue
        row = np.repeat(np.arange(lengths.size), lengths)
        known = tokens > 0
        kept = np.bincount(row[known], minlength=lengths.size)
        per_token = gaps[known] / tokens[known]
        tallies["itl_ms"].add(tallies["itl_ms"].share(point, level_of[point], kept, per_token, tokens[known]))
    for metric, tally in tallies.items():
        for index in places:
            if tally.weights[index]:
                found.points.setdefault(index, {})[metric] = float(tally.sums[index] / tally.weights[index])
        for (workload, level), code in levels.items():
            _add_histogram(found, (workload, level, metric), tally.histograms[code])


def _add_histogram(found: LaunchRequests, key: tuple[str, int, str], histogram: np.ndarray) -> None:
    cumulative = np.cumsum(histogram)
    total = round(float(cumulative[-1]))
    if not total:
        return
    found.quantiles[key] = [
        LaunchQuantile(float(value), total, 0, "ok")
        if total >= requests_needed(q)
        else LaunchQuantile(None, total, 0, "too-few-requests")
        for q, value in zip(QUANTILES, _histogram_quantiles(cumulative, QUANTILES), strict=True)
    ]
    curve = _histogram_quantiles(cumulative, CDF_QUANTILES)
    found.distributions.append(Distribution(*key, CDF_QUANTILES, curve, total))


class _Tally:
    """Sums of gaps and weights by point, and histograms by level, filled batch by batch."""

    def __init__(self, levels: int, points: int) -> None:
        self.sums, self.weights = np.zeros(points), np.zeros(points)
        self.histograms = np.zeros((levels, _BINS))

    def share(
        self,
        point: np.ndarray,
        level: np.ndarray,
        lengths: np.ndarray,
        gaps: np.ndarray,
        weight: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return what flat `gaps` (ms) add to sums, weights and histograms; the rest is given by request."""
        count = lengths if weight is None else _sums(weight, lengths)
        total = _sums(gaps if weight is None else gaps * weight, lengths)
        bins = np.repeat(level * _BINS, lengths) + _bins_of(gaps)
        return (
            np.bincount(point, weights=total, minlength=self.sums.size),
            np.bincount(point, weights=count, minlength=self.weights.size),
            np.bincount(bins, weight, self.histograms.size).reshape(self.histograms.shape),
        )

    def add(self, share: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
        """Add one batch's share."""
        self.sums += share[0]
        self.weights += share[1]
        self.histograms += share[2]


def _sums(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the sum of each request's values, 0 for a request without any."""
    ends = np.concatenate([[0.0], np.cumsum(values)])[np.cumsum(lengths)]
    return np.diff(ends, prepend=0.0)


def _bins_of(gaps: np.ndarray) -> np.ndarray:
    """Return the bin of each gap: sign, exponent and the first ten bits of the fraction of a 32-bit float."""
    return np.clip((gaps.astype(np.float32).view(np.int32) >> _DROPPED_BITS) - _FIRST_BIN, 0, _BINS - 1)


def _histogram_quantiles(cumulative: np.ndarray, qs: Sequence[float] | np.ndarray) -> np.ndarray:
    at = np.searchsorted(cumulative, np.maximum(np.asarray(qs) * cumulative[-1], 1e-9), side="left")
    return _CENTRES[np.minimum(at, _BINS - 1)]


def _gap_batches(
    source: pq.ParquetFile, present: set[str]
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]]:
    """Yield (point and number of gaps by request; gaps and tokens before them, flat) of steady, complete requests.

    Tokens are None when every gap brought one, and 0 where they are not known.
    """
    columns = ["point", "phase", "outcome", "output_tokens", "chunk_gap_ms", "chunk_tokens"]
    if _one_token_per_chunk(source, present):
        columns.remove("chunk_tokens")
    for batch in source.iter_batches(_BATCH_ROWS, columns=[name for name in columns if name in present]):
        table = pa.Table.from_batches([batch])
        mask = _is(table["phase"], "steady") & _is(table["outcome"], "ok")
        if not mask.any():
            continue
        if not mask.all():
            table = table.filter(pa.array(mask))
        gaps, lengths = _flat(table["chunk_gap_ms"])
        tokens = None if "chunk_tokens" not in columns else _tokens_per_gap(table, lengths)
        yield _numbers(table["point"]).astype(int), lengths, gaps, tokens


def _one_token_per_chunk(source: pq.ParquetFile, present: set[str]) -> bool:
    """Return whether every complete request had as many tokens as chunks, so that the tokens of chunks need no look."""
    if not {"chunks", "output_tokens"} <= present:
        return False
    table = source.read(columns=["chunks", "output_tokens", "outcome"])
    table = table.filter(pc.equal(table["outcome"], "ok"))
    same = pc.equal(table["chunks"], table["output_tokens"])
    return bool(table.num_rows) and bool(pc.all(pc.fill_null(same, False)).as_py())


def _tokens_per_gap(table: pa.Table, lengths: np.ndarray) -> np.ndarray | None:
    """Return the tokens that each gap brought, flat; 0 where they are not known, None when each brought one."""
    tokens = np.zeros(int(lengths.sum()))
    row = np.repeat(np.arange(lengths.size), lengths)
    known = np.zeros(lengths.size, dtype=bool)
    if "chunk_tokens" in table.column_names and table["chunk_tokens"].null_count < table.num_rows:
        counts, sizes = _flat(table["chunk_tokens"])
        known = sizes == lengths + 1
        if known.all() and counts.size and counts.min() == counts.max() == 1:
            return None
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
    if pa.types.is_null(array.type):
        return np.array([]), np.zeros(len(array), dtype=int)
    lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(int)
    return array.flatten().to_numpy(zero_copy_only=False).astype(float), lengths


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Return a column as floats, NaN for null."""
    return pc.cast(column, pa.float64()).to_numpy() if column.null_count < len(column) else np.full(len(column), np.nan)


def _texts(column: pa.ChunkedArray) -> np.ndarray:
    return column.to_numpy().astype(object)


def _is(column: pa.ChunkedArray, text: str) -> np.ndarray:
    return pc.equal(column, text).fill_null(False).to_numpy()
