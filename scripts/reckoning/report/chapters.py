"""The tables of every chapter of the page, from the findings and what the earlier stages left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reckoning.report import tables as column
from reckoning.report.figures.model import Cast, key_of
from reckoning.report.quantities import exact, finite
from reckoning.report.tables import Table, table

# Tables show what decisions are made on; every other metric is in the data that the page links and embeds.
SHOWN = frozenset({"output_tok_s", "ttft_ms", "tpot_ms", "acceptance_length"})
SHOWN_QUANTILES = frozenset({0.5, 0.95, 0.99})
METRIC_ORDER = ("output_tok_s", "ttft_ms", "tpot_ms", "acceptance_length", "energy_j_per_token")
METRIC_HEADINGS = {
    "output_tok_s": "output tok/s",
    "ttft_ms": "TTFT (ms)",
    "tpot_ms": "TPOT (ms)",
    "itl_ms": "ITL (ms)",
    "chunk_gap_ms": "chunk gap (ms)",
    "e2e_ms": "end to end (ms)",
    "acceptance_length": "acceptance length",
    "energy_j_per_token": "energy (J/token)",
}


def estimate_tables(findings: Mapping[str, Any], cast: Cast) -> list[Table]:
    """Return one table per workload: arm and level against the metrics, each with its interval."""
    made = []
    estimates = findings.get("estimates") or []
    for workload in dict.fromkeys(one["workload"] for one in estimates):
        own = [one for one in estimates if one["workload"] == workload]
        known = [metric for metric in METRIC_ORDER if any(one["metric"] == metric for one in own)]
        metrics = known + [one for one in dict.fromkeys(one["metric"] for one in own) if one not in METRIC_HEADINGS]
        rows: dict[tuple[str, int], dict[str, Any]] = {}
        for one in own:
            row = rows.setdefault(
                (one["arm"], one["concurrency"]), {"arm": one["arm"], "concurrency": one["concurrency"]}
            )
            row.update({f"{one['metric']}{end}": one.get(name) for end, name in _ENDS.items()})
            if one["metric"] == "output_tok_s":
                row.update(n=one["n"], note=_note(one))
        columns = [column.arm("arm", "arm", cast), column.whole("C", "concurrency")]
        columns += [
            column.measured(METRIC_HEADINGS.get(one, one), (one, f"{one}_low", f"{one}_high")) for one in metrics
        ]
        columns += [column.whole("launches (n)", "n"), column.text("note", "note")]
        made.append(table(f"estimates-{key_of(workload)}", f"Estimates on {workload}", rows.values(), columns))
    return made


_ENDS = {"": "estimate", "_low": "low", "_high": "high"}


def _note(one: Mapping[str, Any]) -> str:
    return "; ".join([*([one["note"]] if one.get("note") else []), *map(str, one.get("flags") or [])])


def verdict_tables(findings: Mapping[str, Any], cast: Cast) -> list[Table]:
    """Return one table of contrasts per workload and family (against the baseline, against the best, peaks)."""
    families = {
        "baseline": "Every arm against the baseline",
        "best": "Every arm against the best at that level",
        "peak": "Every arm at its own best level against the winner at its best level",
    }
    made = []
    for family, caption in families.items():
        own = [
            one
            for one in _shown(findings, "contrasts")
            if one.get("family", "baseline") == family and (family == "baseline" or one["metric"] == "output_tok_s")
        ]
        for workload in dict.fromkeys(one["workload"] for one in own):
            rows = [one for one in own if one["workload"] == workload]
            made.append(table(f"{family}-{key_of(workload)}", f"{caption}, {workload}", rows, _contrast_columns(cast)))
    return made


def _contrast_columns(cast: Cast) -> list[column.Column]:
    return [
        column.arm("arm", "arm", cast),
        column.arm("reference", "reference", cast),
        column.whole("C", "concurrency"),
        _metric_column(),
        column.measured("ratio", ("ratio", "low", "high"), "×"),
        column.verdict("verdict", "verdict"),
        column.whole("blocks (n)", "n"),
        column.probability("p (Holm)", "p_holm"),
        column.probability("p (equivalence)", "p_equivalence"),
        column.text("note", "note"),
    ]


def factor_table(findings: Mapping[str, Any], cast: Cast) -> Table:
    """Return the effects of factors, alone and two by two."""
    rows = [
        {
            **one,
            "change": _change(one),
        }
        for one in findings.get("factors") or []
        if one.get("metric") == "output_tok_s"
    ]
    columns = [
        column.text("change", "change"),
        column.text("kind", "kind", optional=True, said=False),
        *_contrast_columns(cast)[:-1],
    ]
    return table(
        "factors", "Effects of single settings, of settings that changed together, and interactions", rows, columns
    )


def _change(one: Mapping[str, Any]) -> str:
    if one.get("from") is None and one.get("to") is None:
        return str(one["factor"])
    return f"{one['factor']}: {_setting(one.get('from'))} → {_setting(one.get('to'))}"


def _setting(value: Any) -> str:
    return "unset" if value is None else str(value)


def quantile_table(findings: Mapping[str, Any], cast: Cast) -> Table:
    """Return the tail quantiles."""
    rows = [
        {**one, "quantile": f"p{exact(100 * one['q'])}"}
        for one in _shown(findings, "quantiles")
        if one["q"] in SHOWN_QUANTILES
    ]
    return table(
        "quantiles",
        "Quantiles of latency per request; an interval is over launches",
        rows,
        [
            *_place(cast),
            column.text("quantile", "quantile"),
            column.measured("value (ms)"),
            column.whole("launches (n)", "n"),
            column.whole("requests", "requests"),
            column.whole("timed out", "censored"),
            column.text("state", "state", optional=True, said=False),
        ],
    )


def speculation_table(findings: Mapping[str, Any], cast: Cast) -> Table:
    """Return speculation by level."""
    rows = [
        {"arm": one["arm"], "reference": one.get("reference"), "workload": one["workload"], **level}
        for one in findings.get("speculation") or []
        for level in one.get("levels") or []
    ]
    return table(
        "speculation",
        "Speculation: throughput against the arm without it, and the acceptance length",
        rows,
        [
            column.arm("arm", "arm", cast),
            column.arm("without", "reference", cast),
            column.text("workload", "workload", optional=True),
            column.whole("C", "concurrency"),
            column.measured("ratio", ("ratio", "low", "high"), "×"),
            column.whole("blocks (n)", "n"),
            column.verdict("verdict", "verdict"),
            column.measured("acceptance length", ("acceptance_length", "acceptance_low", "acceptance_high")),
        ],
    )


def published_table(findings: Mapping[str, Any], cast: Cast) -> Table:
    """Return published numbers beside the measured ones."""
    rows = [
        {
            **one,
            "given": f"{'about ' if one.get('approximate') else ''}{exact(one.get('published'))}",
        }
        for one in findings.get("published") or []
    ]
    return table(
        "published",
        "Published against measured; the interval is the prediction interval of one run",
        rows,
        [
            column.arm("arm", "arm", cast),
            column.whole("C", "concurrency"),
            _metric_column(),
            column.text("published", "given"),
            column.measured("measured", ("measured", "low", "high")),
            column.measured("measured / published", ("ratio", "ratio_low", "ratio_high"), "×"),
            column.whole("launches (n)", "n"),
            column.verdict("verdict", "verdict"),
            column.text("note", "note"),
        ],
    )


def predicted_table(findings: Mapping[str, Any], cast: Cast) -> Table:
    """Return predictions beside what was measured."""
    rows = findings.get("predicted") or []
    return table(
        "predicted",
        "Predicted against measured",
        rows,
        [
            *_place(cast),
            column.number("predicted", "predicted"),
            column.measured("measured", ("measured", "low", "high")),
            column.number("measured / predicted", "ratio"),
            column.whole("launches (n)", "n"),
            column.text("source", "source"),
        ],
    )


def evidence_table(hypothesis: Mapping[str, Any], cast: Cast) -> Table:
    """Return the ratios that decided one hypothesis."""
    rows = hypothesis.get("evidence") or []
    return table(
        f"hypothesis-{key_of(str(hypothesis.get('id')))}",
        f"Evidence for {hypothesis.get('id')}",
        rows,
        [
            column.arm("arm", "arm", cast),
            column.arm("reference", "reference", cast),
            column.text("workload", "workload", optional=True),
            column.whole("C", "concurrency"),
            _metric_column(),
            column.measured("ratio", ("ratio", "low", "high"), "×"),
            column.whole("blocks (n)", "n"),
            column.probability("p", "p"),
            column.text("holds", "holds"),
        ],
    )


def variance_table(findings: Mapping[str, Any], cast: Cast) -> Table:
    """Return the variance components."""
    rows = [one for one in findings.get("variance") or [] if one.get("metric") == "output_tok_s"]
    return table(
        "variance",
        "Spread between launches and between repeats (standard deviation on the log scale)",
        rows,
        [
            column.arm("arm", "arm", cast, "all arms"),
            column.text("workload", "workload", optional=True),
            column.whole("C", "concurrency"),
            _metric_column(),
            column.share("between launches", "sigma_launch"),
            column.share("between repeats", "sigma_repeat"),
            column.whole("launches", "launches"),
            column.number("repeats that pay best", "advised_repeats"),
            column.text("note", "note"),
        ],
    )


def cross_check_table(findings: Mapping[str, Any], cast: Cast) -> Table:
    """Return our client beside SGLang's own bench_serving on the same launches."""
    rows = findings.get("cross_check") or []
    return table(
        "cross-check",
        "Our client against SGLang's bench_serving, on the same launches",
        rows,
        [
            *_place(cast),
            column.number("ours", "ours"),
            column.number("bench_serving", "theirs"),
            column.measured("ours / bench_serving", ("ratio", "low", "high"), "×"),
            column.whole("launches (n)", "n"),
            column.text("note", "note"),
        ],
    )


def exclusion_table(findings: Mapping[str, Any], cast: Cast) -> Table:
    """Return what was measured and kept out of verdicts."""
    return table(
        "exclusions",
        "Measured, kept in the data, and kept out of verdicts",
        findings.get("exclusions") or [],
        [
            column.arm("arm", "arm", cast),
            column.whole("block", "block"),
            column.text("workload", "workload", optional=True),
            column.whole("C", "concurrency"),
            column.whole("repeat", "repeat"),
            column.text("metric", "metric"),
            column.text("reason", "reason"),
        ],
    )


def hours_table(findings: Mapping[str, Any], cast: Cast) -> Table:
    """Return the hours that a batch of samples takes."""
    return table(
        "sample-hours",
        "Hours to generate a batch of samples",
        findings.get("sample_hours") or [],
        [
            *_place(cast),
            column.whole("samples", "samples"),
            column.measured("hours", ("hours", "low", "high")),
            column.number("mean output tokens", "output_tokens_mean"),
            column.whole("launches (n)", "n"),
        ],
    )


def energy_table(findings: Mapping[str, Any], cast: Cast) -> Table:
    """Return joules per output token."""
    return table(
        "energy",
        "Energy per output token",
        findings.get("energy") or [],
        [
            *_place(cast),
            column.measured("J/token", ("energy_j_per_token", "low", "high")),
            column.whole("launches (n)", "n"),
            column.text("note", "note"),
        ],
    )


def _place(cast: Cast) -> list[column.Column]:
    """Return the columns that say what a row is about: arm, workload, level and metric."""
    arm, level = column.arm("arm", "arm", cast), column.whole("C", "concurrency")
    return [arm, column.text("workload", "workload", optional=True), level, _metric_column()]


def _metric_column() -> column.Column:
    def cell(record: Mapping[str, Any]) -> column.Cell:
        return column.Cell(_metric(record), sort=_metric(record) or None)

    return column.Column("metric", cell, ("metric",), optional=True)


def _shown(findings: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    """Return the records about the metrics that decisions are made on, and about a user's own metrics."""
    return [
        one
        for one in findings.get(kind) or []
        if one.get("metric") in SHOWN or one.get("metric") not in METRIC_HEADINGS
    ]


def _metric(one: Mapping[str, Any]) -> str:
    return METRIC_HEADINGS.get(str(one.get("metric")), str(one.get("metric") or ""))


def design_words(findings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the size of the experiment as (number, what) pairs, as far as it is known."""
    design = findings.get("design") or {}
    arms = findings.get("arms") or []
    pairs: list[tuple[Any, str]] = [
        (len(arms) or None, "arms planned"),
        (sum(arm.get("status") in ("ok", "partial") for arm in arms) if arms else None, "arms measured"),
        (design.get("blocks"), "blocks"),
        (design.get("launches_ok"), "launches ok"),
        (design.get("launches_failed"), "launches failed"),
        (design.get("points"), "points"),
        (design.get("points_excluded"), "points kept out of verdicts"),
        (design.get("requests"), "requests"),
        (design.get("requests_failed"), "requests failed"),
    ]
    return [(exact(value), words) for value, words in pairs if finite(value) is not None]
