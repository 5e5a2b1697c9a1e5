"""From the launches' files, or from any tidy table of points, to tables and findings.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from reckoning.analyse.assemble import findings_of
from reckoning.analyse.crosscheck import cross_checks
from reckoning.analyse.design import design_from_plan
from reckoning.analyse.gather import gather, read_outcomes
from reckoning.analyse.outside import read_published
from reckoning.analyse.own_table import read_design_file, read_own_table
from reckoning.analyse.results import compute
from reckoning.analyse.tables import write_tables
from reckoning.experiment.places import REPOSITORY
from reckoning.files import read_json, write_json

__all__ = ["analyse_experiment", "analyse_table"]


def analyse_experiment(results: Path) -> dict[str, Any]:
    """Read `results/{experiment}/` and write its `tables/` and `findings.json`; return the findings.

    Needs plan.json; every launch may be missing, failed or broken, which then stands in the findings. Raises
    FileNotFoundError without a plan and ValueError when the plan is not JSON.
    """
    plan = read_json(results / "plan.json")
    launches = read_outcomes(results, plan)
    times = sorted(launch.started_at for launch in launches if launch.started_at)
    design = design_from_plan(plan, times[0] if times else None)
    evidence = gather(results, plan, design, launches)
    checks = cross_checks(results, launches, design.confidence)
    found = compute(design, evidence, _outside(plan, "published"), _outside(plan, "predicted"), checks)
    findings = findings_of(found)
    write_tables(results / "tables", found, findings)
    write_json(results / "findings.json", findings)
    return findings


def analyse_table(points: Path, design: Path | None, out: Path, tables: Path | None = None) -> dict[str, Any]:
    """Analyse a table of the user's own, write `out` (and `tables/`), and return the findings.

    Raises `own_table.TableError` with every fault of the design or the columns; faults of rows become exclusions.
    """
    raw = read_design_file(design)
    made, evidence = read_own_table(points, raw)
    published = read_published((design or points).parent / raw["published"]) if raw.get("published") else None
    found = compute(made, evidence, published)
    findings = findings_of(found)
    if tables is not None:
        write_tables(tables, found, findings)
    write_json(out, findings)
    return findings


def _outside(plan: dict[str, Any], key: str) -> pd.DataFrame | None:
    """Return a table from outside that the plan links, or None; one that cannot be read is left out."""
    path = plan.get(key) or (plan.get("analysis") or {}).get(key)
    places = [Path(path), REPOSITORY / path] if path else []
    found = next((place for place in places if place.is_file()), None)
    return None if found is None else read_published(found)
