"""How often is the analysis right? Simulated experiments with a known truth, and the practice of the peers beside it.

    python benchmarks/statistics/simulate.py [--experiments 10000] [--seed 20260607]

Every number is a share of simulated experiments; its own standard error at 10 000 is at most 0.5 points (0.2 at 5 % or
95 %). Values are Gaussian on the log scale: launch effect (one per launch, shared by all its levels), repeat noise, and
where stated a linear drift along the run order. The simulation is vectorised; `check_against_library` first holds the
vectorised formulas equal to `reckoning.statistics` on random data, and BCa equal to `scipy.stats.bootstrap`.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np
from scipy import special, stats

from reckoning.statistics.contrasts import Verdict, equivalence_p, holm, ratio_of_differences, verdict_of
from reckoning.statistics.drift import OrderedLog, drift_slope
from reckoning.statistics.intervals import launch_interval, prediction_interval
from reckoning.statistics.planning import power
from reckoning.statistics.variance import LaunchLogs, variance_components

CONFIDENCE = 0.95
ALPHA = 1 - CONFIDENCE
RESAMPLES = 999


def main() -> None:
    """Print every table in Markdown."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--experiments", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=20260607)
    given = parser.parse_args()
    started = time.perf_counter()
    rng = np.random.default_rng(given.seed)
    print(f"{given.experiments} simulated experiments per cell, seed {given.seed}, NumPy {np.__version__}\n")
    check_against_library(rng)
    for table in (coverage, false_verdicts, power_curve, equivalence_error, other_intervals):
        begun = time.perf_counter()
        table(given.experiments, rng)
        print(f"({time.perf_counter() - begun:.0f} s)\n")
    print(f"total {time.perf_counter() - started:.0f} s")


# --- the procedures, vectorised over experiments (first axis) -------------------------------------------------------


def t_interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the t interval of the mean over the last axis."""
    n = values.shape[-1]
    half = special.stdtrit(n - 1, 0.5 + CONFIDENCE / 2) * values.std(axis=-1, ddof=1) / math.sqrt(n)
    mean = values.mean(axis=-1)
    return mean - half, mean + half


def paired_p(differences: np.ndarray) -> np.ndarray:
    """Return the two-sided p values of the paired t test over the last axis (blocks)."""
    n = differences.shape[-1]
    t = np.abs(differences.mean(axis=-1)) / (differences.std(axis=-1, ddof=1) / math.sqrt(n))
    return 2 * special.stdtr(n - 1, -t)


def tost_p(differences: np.ndarray, margin: float) -> np.ndarray:
    """Return the TOST p values against [1/(1+margin), 1+margin] over the last axis (blocks)."""
    n = differences.shape[-1]
    error = differences.std(axis=-1, ddof=1) / math.sqrt(n)
    mean, bound = differences.mean(axis=-1), math.log1p(margin)
    return np.maximum(special.stdtr(n - 1, -(mean + bound) / error), special.stdtr(n - 1, -(bound - mean) / error))


def holm_p(p: np.ndarray) -> np.ndarray:
    """Return p values adjusted over the last axis."""
    order = np.argsort(p, axis=-1)
    m = p.shape[-1]
    stepped = np.minimum(1, np.take_along_axis(p, order, axis=-1) * (m - np.arange(m)))
    adjusted = np.empty_like(p)
    np.put_along_axis(adjusted, order, np.maximum.accumulate(stepped, axis=-1), axis=-1)
    return adjusted


def welch_p(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return Welch's two-sided p values over the last axis."""
    return stats.ttest_ind(a, b, axis=-1, equal_var=False).pvalue


def bootstrap_intervals(values: np.ndarray, rng: np.random.Generator) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return BCa and percentile intervals of the mean over the last axis (Efron 1987); degenerate ones stay NaN."""
    count, n = values.shape
    means = values[np.arange(count)[:, None, None], rng.integers(n, size=(count, RESAMPLES, n))].mean(axis=-1)
    means.sort(axis=1)
    theta = values.mean(axis=-1)
    tails = np.array([(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    below = (means < theta[:, None]).sum(axis=1) + (means == theta[:, None]).sum(axis=1)
    z0 = special.ndtri((below - 0.5 * (means == theta[:, None]).sum(axis=1)) / RESAMPLES)
    jackknife = (values.sum(axis=1, keepdims=True) - values) / (n - 1)
    centred = jackknife.mean(axis=1, keepdims=True) - jackknife
    acceleration = (centred**3).sum(axis=1) / (6 * (centred**2).sum(axis=1) ** 1.5)
    z = z0[:, None] + special.ndtri(tails)
    adjusted = special.ndtr(z0[:, None] + z / (1 - acceleration[:, None] * z))
    return {
        "BCa": tuple(_quantile_rows(means, adjusted[:, k]) for k in (0, 1)),
        "percentile": tuple(_quantile_rows(means, np.full(count, tail)) for tail in tails),
    }


def _quantile_rows(sorted_rows: np.ndarray, q: np.ndarray) -> np.ndarray:
    at = np.clip(q, 0, 1) * (sorted_rows.shape[1] - 1)
    low = np.floor(at).astype(int)
    high = np.minimum(low + 1, sorted_rows.shape[1] - 1)
    rows = np.arange(len(q))
    return sorted_rows[rows, low] + (at - low) * (sorted_rows[rows, high] - sorted_rows[rows, low])


def check_against_library(rng: np.random.Generator) -> None:
    """Hold the vectorised formulas equal to the library's on random data."""
    for n in (3, 4, 5):
        data = rng.normal(0.02, 0.03, (50, n))
        low, high = t_interval(data)
        p, q = paired_p(data), tost_p(data, 0.03)
        for row in range(50):
            pair = ratio_of_differences(data[row], CONFIDENCE)
            ours = launch_interval(np.exp(data[row]), CONFIDENCE)
            assert np.allclose([math.log(ours.low), math.log(ours.high)], [low[row], high[row]])
            assert math.isclose(pair.p, p[row])
            assert math.isclose(equivalence_p(pair, 0.03), q[row])
        assert np.allclose(holm_p(p[None])[0], holm(list(p)))
    data = rng.normal(0, 1, (20, 12))
    mine = bootstrap_intervals(data, rng)["BCa"]
    for row in range(20):
        peer = stats.bootstrap((data[row],), np.mean, n_resamples=9999, method="BCa", rng=rng).confidence_interval
        assert abs(mine[0][row] - peer.low) < 0.12 and abs(mine[1][row] - peer.high) < 0.12
    print("The vectorised formulas agree with reckoning.statistics, BCa with scipy.stats.bootstrap.\n")


# --- the tables ----------------------------------------------------------------------------------------------------


def coverage(experiments: int, rng: np.random.Generator, repeats: int = 5) -> None:
    """How often does the 95 % interval of one arm hold the truth?"""
    print(f"### Coverage of the 95 % interval of an arm (goal 94-96 %), {repeats} repeats per launch\n")
    names = ("t on launch means (Reckoning)", "pooled repeats", "one launch", "BCa", "percentile bootstrap")
    print("| launches | sigma launch / repeat | " + " | ".join(names) + " |")
    print("|---|---|" + "---|" * len(names))
    for launches in (3, 4, 5):
        for ratio in (0.5, 1.0, 2.0):
            launch = rng.normal(0, ratio, (experiments, launches, 1))
            values = launch + rng.normal(0, 1, (experiments, launches, repeats))
            means = values.mean(axis=2)
            flat = values.reshape(experiments, -1)
            intervals = [t_interval(means), t_interval(flat), t_interval(values[:, 0])]
            boot = [bootstrap_intervals(part, rng) for part in np.array_split(means, max(1, experiments // 500))]
            for name in ("BCa", "percentile"):
                intervals.append(tuple(np.concatenate([b[name][k] for b in boot]) for k in (0, 1)))
            shares = [float(((low <= 0) & (high >= 0)).mean()) for low, high in intervals]
            print(f"| {launches} | {ratio:g} | " + " | ".join(f"{share:.1%}" for share in shares) + " |")
    print()


def experiment_values(  # noqa: PLR0917
    experiments: int, shape: tuple[int, int, int, int], sigmas: tuple[float, float], drift: float, blocked: bool, rng
) -> np.ndarray:
    """Return logs (experiments, blocks, arms, levels, repeats) of identical arms.

    `drift` is the change over the whole run in units of sigma_launch, linear in the place of the launch. `blocked`:
    random order inside each block; else arm after arm, each with all its launches, as the peers do.
    """
    blocks, arms, levels, repeats = shape
    sigma_launch, sigma_repeat = sigmas
    launch = rng.normal(0, sigma_launch, (experiments, blocks, arms))
    if blocked:
        place = np.argsort(rng.random((experiments, blocks, arms)), axis=2) + arms * np.arange(blocks)[None, :, None]
    else:
        place = np.broadcast_to(np.arange(blocks)[:, None] + blocks * np.arange(arms)[None, :], launch.shape)
    launch = launch + drift * sigma_launch * place / (blocks * arms - 1)
    return launch[..., None, None] + rng.normal(0, sigma_repeat, (experiments, blocks, arms, levels, repeats))


def false_verdicts(experiments: int, rng: np.random.Generator) -> None:
    """How often are identical arms called different, anywhere in the grid of arms and levels?"""
    print("### Identical arms: experiments with at least one false verdict (goal <= 5 %), 2 repeats, sigma ratio 1\n")
    names = (
        "against the baseline (Reckoning)", "any two arms (Reckoning)",
        '"X is best" (Reckoning)', "sequential, Welch on launch means", "sequential, pooled repeats", "one launch each",
    )  # fmt: skip
    print("| arms x levels x blocks | drift | " + " | ".join(names) + " |")
    print("|---|---|" + "---|" * len(names))
    for blocks, arms, levels in ((4, 2, 6), (3, 4, 2), (4, 5, 6), (5, 5, 6), (4, 13, 6)):
        for drift in (0.0, 4.0):
            shape = (blocks, arms, levels, 2)
            ours = experiment_values(experiments, shape, (1.0, 1.0), drift, True, rng).mean(axis=4)
            peers = experiment_values(experiments, shape, (1.0, 1.0), drift, False, rng)
            pairs = [(a, b) for a in range(arms) for b in range(a)]
            difference = np.moveaxis(ours, 1, 3)  # experiments, arms, levels, blocks
            base = paired_p(difference[:, 1:] - difference[:, :1]).reshape(experiments, -1)
            every = np.stack([paired_p(difference[:, a] - difference[:, b]) for a, b in pairs], axis=1)
            shares = [
                _any_below(holm_p(base)),
                _any_below(holm_p(every.reshape(experiments, -1))),
                float(_false_best(difference, every, pairs).mean()),
                _sequential(peers.mean(axis=4)),
                _sequential(np.moveaxis(peers, 1, 3).reshape(experiments, arms, levels, -1), moved=True),
                _single(peers),
            ]
            cells = " | ".join(f"{share:.1%}" for share in shares)
            print(f"| {arms} x {levels} x {blocks} | {drift:g} sigma | {cells} |")
    print()


def _any_below(p: np.ndarray) -> float:
    return float((p <= ALPHA).any(axis=-1).mean())


def _false_best(difference: np.ndarray, every: np.ndarray, pairs: list[tuple[int, int]]) -> np.ndarray:
    """Return whether a winner is claimed for latency (first level) or throughput (each arm at its own best level).

    As in `reckoning.analyse.winners`: the largest p of the winner against all others, Holm over the two claims.
    """
    experiments, arms, _, blocks = difference.shape
    rows = np.arange(experiments)
    means = difference.mean(axis=3)
    best_level = means.argmax(axis=2)
    peaks = np.take_along_axis(
        difference, np.broadcast_to(best_level[:, :, None, None], (experiments, arms, 1, blocks)), 2
    )
    claims = []
    for values in (difference[:, :, 0], peaks[:, :, 0]):
        best = values.mean(axis=2).argmax(axis=1)
        p = paired_p(
            np.where(
                np.arange(arms)[None, :, None] == best[:, None, None], np.nan, values - values[rows, best][:, None]
            )
        )
        claims.append(np.nanmax(p, axis=1))
    return (holm_p(np.stack(claims, axis=1)) <= ALPHA).any(axis=1)


def _sequential(values: np.ndarray, moved: bool = False) -> float:
    """Return the share with a false "different" by unadjusted Welch tests against the first arm."""
    data = values if moved else np.moveaxis(values, 1, 3)
    p = welch_p(data[:, 1:], data[:, :1])
    return float((p <= ALPHA).any(axis=(1, 2)).mean())


def _single(values: np.ndarray) -> float:
    """Return the share with a false "different" when each arm is launched once and its repeats are the n."""
    one = values[:, 0]  # experiments, arms, levels, repeats
    p = welch_p(one[:, 1:], one[:, :1])
    return float((p <= ALPHA).any(axis=(1, 2)).mean())


def power_curve(experiments: int, rng: np.random.Generator) -> None:
    """How often is a true difference shown?"""
    sigma, margin, arms, levels = 0.01, 0.03, 5, 6
    print(
        f"### Power: one of {arms} arms is truly faster at all {levels} levels; both sigmas 1 %, 2 repeats, "
        f"margin {margin:.0%}\n"
    )
    print(
        "| true effect | blocks | shown at a level (Holm, 24 tests) | called equivalent | pre-registered, one test | "
        "by formula |"
    )
    print("|---|---|---|---|---|---|")
    for blocks in (3, 4, 5, 6):
        for effect in (0.0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12):
            values = experiment_values(experiments, (blocks, arms, levels, 2), (sigma, sigma), 0.0, True, rng).mean(
                axis=4
            )
            values[:, :, 1] += math.log1p(effect)
            data = np.moveaxis(values, 1, 3)
            differences = data[:, 1:] - data[:, :1]
            p = paired_p(differences)
            adjusted = holm_p(p.reshape(experiments, -1)).reshape(p.shape)[:, 0, 0]
            tost = tost_p(differences[:, 0, 0], margin)
            equivalent = tost <= ALPHA
            shown = (adjusted <= ALPHA) & ~equivalent & (differences[:, 0, 0].mean(axis=1) > 0)
            single = (p[:, 0, 0] <= ALPHA) & (differences[:, 0, 0].mean(axis=1) > 0)
            formula = power(math.log1p(effect), sigma * math.sqrt(2 * (1 + 1 / 2)), blocks)
            cells = " | ".join(f"{x:.1%}" for x in (shown.mean(), equivalent.mean(), single.mean(), formula))
            print(f"| {effect:.0%} | {blocks} | {cells} |")
    print()


def equivalence_error(experiments: int, rng: np.random.Generator) -> None:
    """How often are arms called equivalent whose true ratio is exactly the margin?"""
    margin = 0.03
    print(
        "### TOST: called equivalent although the true ratio is the margin, 1.03 (goal <= 5 %); and truly equal arms\n"
    )
    print(
        "| blocks | sd of a block's log-ratio | at the margin | truly equal: called equivalent | "
        "peers: intervals overlap at the margin |"
    )
    print("|---|---|---|---|---|")
    for blocks in (3, 4, 5):
        for sd in (0.005, 0.01, 0.02):
            at_margin = rng.normal(math.log1p(margin), sd, (experiments, blocks))
            equal = rng.normal(0, sd, (experiments, blocks))
            a = rng.normal(0, sd / math.sqrt(2), (experiments, blocks))
            b = rng.normal(math.log1p(margin), sd / math.sqrt(2), (experiments, blocks))
            overlap = (t_interval(a)[1] >= t_interval(b)[0]) & (t_interval(b)[1] >= t_interval(a)[0])
            shares = (
                (tost_p(at_margin, margin) <= ALPHA).mean(),
                (tost_p(equal, margin) <= ALPHA).mean(),
                overlap.mean(),
            )
            print(f"| {blocks} | {sd:.1%} | " + " | ".join(f"{share:.1%}" for share in shares) + " |")
    print()


def other_intervals(experiments: int, rng: np.random.Generator) -> None:
    """The library's other intervals, called one by one on a tenth of the experiments."""
    count = max(200, experiments // 10)
    print(f"### Other intervals of the library, 95 %, {count} experiments each (standard error 0.7 points at 1000)\n")
    print("| what | design | sigma launch / repeat | holds the truth |")
    print("|---|---|---|---|")
    for arms, blocks, repeats in ((1, 4, 2), (5, 4, 2), (5, 4, 5)):
        for ratio in (0.5, 1.0, 2.0):
            launch_hits = repeat_hits = 0
            for _ in range(count):
                block = rng.normal(0, 1, blocks) if arms > 1 else np.zeros(blocks)
                launches = [
                    LaunchLogs(a, b, block[b] + rng.normal(0, ratio) + rng.normal(0, 1, repeats))
                    for a in range(arms)
                    for b in range(blocks)
                ]
                c = variance_components(launches)
                launch_hits += c.sigma_launch_low <= ratio <= c.sigma_launch_high
                repeat_hits += c.sigma_repeat_low <= 1 <= c.sigma_repeat_high
            design = f"{arms} arms x {blocks} blocks x {repeats} repeats"
            print(f"| sigma_launch | {design} | {ratio:g} | {launch_hits / count:.1%} |")
            print(f"| sigma_repeat | {design} | {ratio:g} | {repeat_hits / count:.1%} |")
    for launches, repeats in ((3, 2), (4, 2), (5, 3)):
        for ratio in (0.5, 1.0, 2.0):
            hits = 0
            for _ in range(count):
                values = (rng.normal(0, ratio, (launches, 1)) + rng.normal(0, 1, (launches, repeats))).mean(
                    axis=1
                ) * 0.01
                spread = 1e-4 * rng.chisquare(20) / 20  # the repeat variance, pooled over the arms of an experiment
                interval = prediction_interval(np.exp(values), spread, 20, repeats)
                hits += interval.low <= math.exp(0.01 * (rng.normal(0, ratio) + rng.normal())) <= interval.high
            print(f"| one further run | {launches} launches x {repeats} repeats | {ratio:g} | {hits / count:.1%} |")
    for sigma_block in (0.0, 1.0):
        for blocks in (4, 5):
            hits = sum(_drift_holds(rng, blocks, sigma_block) for _ in range(count))
            design = f"5 arms x {blocks} blocks, sigma_block {sigma_block:g}"
            print(f"| slope of the drift | {design} | 1 | {hits / count:.1%} |")
    print()


def _drift_holds(rng: np.random.Generator, blocks: int, sigma_block: float, slope: float = 0.05) -> bool:
    rows, order = [], 0
    for block in range(blocks):
        luck = rng.normal(0, sigma_block)
        for arm in rng.permutation(5):
            log = slope * order + luck + rng.normal(0, 1)
            rows.append(OrderedLog(int(arm), block, "chat 1", order, arm + log))
            order += 1
    drift = drift_slope(rows)
    return drift.low <= slope <= drift.high


def verdict_check() -> None:
    """Hold the order of verdicts: equivalence first."""
    pair = ratio_of_differences([0.01, 0.0101, 0.0099])
    assert verdict_of(pair, pair.p, equivalence_p(pair, 0.03), better="higher") is Verdict.EQUIVALENT


if __name__ == "__main__":
    verdict_check()
    main()
