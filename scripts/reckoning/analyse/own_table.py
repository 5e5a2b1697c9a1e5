"""A tidy table of the user's own, and its design, as evidence: `python -m reckoning.analyse POINTS.csv`.

Faults of the design or of the columns are collected and raised together. Faults of single rows are data: such a row is
listed as an exclusion with its number and reason, and the rest is analysed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pandas as pd
import yaml

from reckoning.analyse.design import METRICS, Arm, Design, Limits, Metric
from reckoning.analyse.evidence import Evidence, Launch, points_frame
from reckoning.analyse.exclusions import flags_of, number_of, point_reasons, value_reason
from reckoning.experiment.names import remedy_for, slug
from reckoning.experiment.places import REPOSITORY
from reckoning.experiment.problems import Problem

SCHEMA_FILE = REPOSITORY / "workflow" / "schemas" / "design.schema.json"
_REQUIRED = ("arm", "block", "value")
_NUMBERS = (
    "achieved_concurrency", "realised_tokens_ratio", "requests_ok", "requests_failed", "duration_s",
    "output_tokens_mean",
)  # fmt: skip


class TableError(ValueError):
    """The table or its design cannot be used; `problems` holds every fault that was found."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, problems)))


def read_design_file(path: Path | None) -> dict[str, Any]:
    """Return the design of `path` (an empty one for None); raises TableError with every fault."""
    if path is None:
        return {}
    name = str(path)
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise TableError(
            [Problem(name, "", None, f"cannot be read: {error.strerror}", "give a readable file")]
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise TableError([Problem(name, "", None, f"is no YAML: {error}", "mend the place named")]) from None
    raw = {} if raw is None else raw
    if not isinstance(raw, dict):
        raise TableError([Problem(name, "", raw, "a design is a mapping of keys", "write `baseline: ...` and so on")])
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text(encoding="utf-8")))
    found = [
        Problem(
            name, ".".join(map(str, e.absolute_path)), e.instance, e.message, "see workflow/schemas/design.schema.json"
        )
        for e in validator.iter_errors(raw)
    ]
    if found:
        raise TableError(found)
    return raw


def read_own_table(path: Path, raw: Mapping[str, Any]) -> tuple[Design, Evidence]:
    """Return design and evidence of a CSV or Parquet table; raises TableError with every fault of its columns."""
    table = _read(path)
    columns = {ours: theirs for ours, theirs in _columns(table, raw).items() if theirs in table}
    problems = _column_problems(path, table, columns, raw)
    labels = list(dict.fromkeys(str(v).strip() for v in table[columns["arm"]])) if "arm" in columns else []
    labels = [label for label in labels if label and label.lower() != "nan"]
    slugs, more = _slugs(path, labels)
    problems += more
    baseline = raw.get("baseline")
    if baseline is not None and "arm" in columns and baseline not in slugs:
        reason = "the baseline is no arm of the table"
        problems.append(Problem(str(path), "baseline", baseline, reason, remedy_for(str(baseline), labels)))
    for claim in (claim for h in raw.get("hypotheses", []) for claim in h["claims"]):
        problems += [
            Problem(str(path), "hypotheses", claim[side], "no arm of the table", remedy_for(claim[side], labels))
            for side in ("arm", "reference")
            if "arm" in columns and claim[side] not in slugs
        ]
    if problems:
        raise TableError(problems)
    design = _design(path, raw, slugs, table, columns)
    rows, exclusions = _rows(table, columns, slugs, design)
    points = points_frame(rows, extra=(design.primary,))
    design = _with_levels(design, points, raw)
    return design, Evidence(points, tuple(_launches(design, points)), exclusions=tuple(exclusions))


def _read(path: Path) -> pd.DataFrame:
    try:
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        return pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig", skip_blank_lines=True)
    except FileNotFoundError:
        raise TableError([Problem(str(path), "", None, "there is no such file", "give the table's path")]) from None
    except Exception as error:  # pandas and pyarrow raise many kinds for a file that is no table
        remedy = "give a CSV with one header line, or a Parquet file"
        raise TableError([Problem(str(path), "", None, f"is no table: {error}", remedy)]) from None


def _columns(table: pd.DataFrame, raw: Mapping[str, Any]) -> dict[str, str]:
    """Return our name -> theirs; a column named like the metric may stand for `value`."""
    metric = (raw.get("metric") or {}).get("name", "output_tok_s")
    known = (
        "arm",
        "block",
        "order",
        "workload",
        "concurrency",
        "repeat",
        "value",
        "flags",
        "status",
        "reason",
        *_NUMBERS,
    )
    named = {name: name for name in known}
    if "value" not in table and metric in table:
        named["value"] = metric
    return named | dict(raw.get("columns") or {})


def _column_problems(
    path: Path, table: pd.DataFrame, columns: Mapping[str, str], raw: Mapping[str, Any]
) -> list[Problem]:
    have = [str(name) for name in table.columns]
    problems = [
        Problem(str(path), f"column {name}", None, f"the table has no such column (it has {', '.join(have) or 'none'})",
                f"add it, or name it in the design: columns: {{{name}: ...}}")
        for name in _REQUIRED
        if name not in columns
    ]  # fmt: skip
    problems += [
        Problem(str(path), f"columns.{ours}", theirs, "the table has no such column", remedy_for(theirs, have))
        for ours, theirs in (raw.get("columns") or {}).items()
        if theirs not in table and ours not in _REQUIRED
    ]
    if table.empty and not problems:
        problems.append(Problem(str(path), "", None, "the table has no rows", "give at least one measured point"))
    return problems


def _slugs(path: Path, labels: list[str]) -> tuple[dict[str, str], list[Problem]]:
    slugs, owner, problems = {}, {}, []
    for label in labels:
        short = slug(label) or "arm"
        if short in owner:
            reason = f"two arms have the same short name {short}: {owner[short]!r} and {label!r}"
            problems.append(Problem(str(path), "arm", label, reason, "rename one of them"))
        owner[short] = label
        slugs[label] = short
    return slugs, problems


def _design(
    path: Path, raw: Mapping[str, Any], slugs: Mapping[str, str], table: pd.DataFrame, columns: Mapping[str, str]
) -> Design:
    given = raw.get("metric") or {}
    name = given.get("name", "output_tok_s")
    known = METRICS.get(name, Metric(name, "", "higher", "as given in the table"))
    metric = Metric(
        given.get("label", known.label), given.get("unit", known.unit), given.get("better", known.better),
        "as given in the table",
    )  # fmt: skip
    described = raw.get("arms") or {}
    arms = [
        Arm(
            slug=short,
            name=label,
            settings=(described.get(label) or {}).get("settings") or {},
            command=tuple(str((described.get(label) or {}).get("command") or "").split()),
            why=(described.get(label) or {}).get("why"),
        )
        for label, short in slugs.items()
    ]
    baseline = raw.get("baseline")
    return Design(
        experiment=raw.get("experiment") or slug(path.stem) or "table",
        title=raw.get("title") or raw.get("experiment") or path.stem,
        provenance={
            "kind": "measured",
            "machine": raw.get("machine"),
            "measured_at": None,
            "note": raw.get("note") or f"Analysed from the table {path.name}.",
        },
        arms=tuple(arms),
        workloads={},
        baseline=slugs[baseline] if baseline is not None else None,
        confidence=float(raw.get("confidence", 0.95)),
        equivalence_margin=float(raw.get("equivalence_margin", 0.03)),
        blocks=raw.get("blocks"),
        repeats=raw.get("repeats"),
        metrics={name: metric},
        primary=name,
        compared=(name,),
        limits=Limits(**(raw.get("limits") or {})),
        hypotheses=tuple(_hypothesis(h, slugs) for h in raw.get("hypotheses", [])),
        samples=raw.get("samples"),
    )


def _hypothesis(raw: Mapping[str, Any], slugs: Mapping[str, str]) -> dict[str, Any]:
    claims = [{**c, "arm": slugs[c["arm"]], "reference": slugs[c["reference"]]} for c in raw["claims"]]
    return {"id": raw["id"], "text": raw.get("text") or raw["id"], "claims": claims}


def _rows(
    table: pd.DataFrame, columns: Mapping[str, str], slugs: Mapping[str, str], design: Design
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    rows, exclusions = [], []
    counted: dict[tuple, int] = {}
    for number, record in enumerate(table.to_dict("records"), start=2):
        cell = {ours: record[theirs] for ours, theirs in columns.items()}
        arm = slugs.get(str(cell["arm"]).strip())
        row: dict[str, Any] = {"arm": arm, "workload": str(cell.get("workload") or "").strip() or "all"}
        faults = [] if arm else ["the arm is empty"]
        for key, default in (("block", None), ("concurrency", 1), ("order", None)):
            row[key] = _whole(cell.get(key), default)
            if row[key] is None and key in columns and key != "order":
                faults.append(f"{key} is no whole number: {cell.get(key)!r}")
        row["status"] = str(cell.get("status") or "ok").strip() or "ok"
        row["reason"] = cell.get("reason") or None
        row["flags"] = ";".join(flags_of(cell.get("flags")))
        row |= {key: number_of(cell.get(key)) for key in _NUMBERS}
        value = cell["value"]
        value = None if isinstance(value, str) and not value.strip() else value
        usable = value_reason(value, design.primary) is None
        row[design.primary] = float(value) if usable else None
        if not faults:
            faults = point_reasons(row, design.limits)
            if not faults and not usable:
                faults = [value_reason(value, design.primary)]
            place = (arm, row["block"], row["workload"], row["concurrency"])
            counted[place] = counted.get(place, 0) + 1
            row["repeat"] = _whole(cell.get("repeat"), counted[place])
            row["rankable"] = not faults
            row["exclusion_reason"] = "; ".join(faults) or None
            rows.append(row)
        if faults:
            kept = {key: row.get(key) for key in ("block", "workload", "concurrency", "repeat")}
            reason = f"line {number}: {'; '.join(faults)}"
            exclusions.append({"arm": arm or "", **kept, "metric": None, "reason": reason})
    return rows, exclusions


def _with_levels(design: Design, points: pd.DataFrame, raw: Mapping[str, Any]) -> Design:
    planned = tuple(sorted(set(raw.get("levels") or ())))
    found = {
        str(name): planned or tuple(sorted({int(level) for level in part["concurrency"]}))
        for name, part in points.groupby("workload", sort=False)
    }
    return replace(design, workloads=found)


def _launches(design: Design, points: pd.DataFrame) -> list[Launch]:
    """Return a launch for every (arm, block) of the table, and missing ones where the design plans more blocks."""
    first = points.groupby(["arm", "block"])["order"].first() if len(points) else {}
    present = {(str(arm), int(block)): order for (arm, block), order in dict(first).items()}
    blocks = sorted({block for _, block in present} | set(range(1, (design.blocks or 0) + 1)))
    return [
        Launch(arm.slug, block, None if pd.isna(order := present.get((arm.slug, block))) else int(order),
               "ok" if (arm.slug, block) in present else "missing")
        for arm in design.arms
        for block in blocks
        if design.blocks or (arm.slug, block) in present
    ]  # fmt: skip


def _whole(value: Any, default: int | None) -> int | None:
    """Return a whole number (`4`, `4.0`, `"4"`), the default for an empty cell, None for anything else."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return default
    number = number_of(value)
    return int(number) if number is not None and number == int(number) and number >= 0 else None
