"""The environment stage of an experiment: facts and findings of the machine, for its plan."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from reckoning.environment.diagnosis import diagnose
from reckoning.environment.facts import SCHEMA_VERSION, probe
from reckoning.environment.finding import Finding, Level
from reckoning.files import read_json, write_json

Path = str | os.PathLike[str]


def check(plan_path: Path, facts_path: Path, findings_path: Path, engine_python: str | None = None) -> list[Finding]:
    """Probe the machine, judge it for the plan, write both files and return the findings.

    The files are `environment_facts.json` and `environment.json`.

    A bad machine is no error here: its findings are the result, and a `fail` stops only the arms in its `concerns`.
    """
    plan = read_json(plan_path)
    python = engine_python or (plan.get("engine") or {}).get("python")
    cuda = (plan.get("machine") or {}).get("device") != "cpu"
    facts = probe(python, (plan.get("model") or {}).get("path"), prove=cuda)
    write_json(facts_path, facts)
    findings = diagnose(facts, plan)
    write_json(findings_path, findings_json(findings, plan.get("experiment"), facts.get("probed_at")))
    return findings


def judged(facts: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of `environment.json` for a machine's facts and an experiment's plan. Pure."""
    return findings_json(diagnose(facts, plan), plan.get("experiment"), facts.get("probed_at"))


def findings_json(findings: Sequence[Finding], experiment: str | None, probed_at: str | None) -> dict[str, Any]:
    """Return the content of `environment.json`."""
    counts = Counter(finding.level for finding in findings)
    return {
        "schema_version": SCHEMA_VERSION,
        "experiment": experiment,
        "probed_at": probed_at,
        "counts": {level.value: counts.get(level, 0) for level in Level},
        "stopped_arms": sorted(
            {slug for finding in findings if finding.level is Level.FAIL for slug in finding.concerns}
        ),
        "findings": [finding.as_json() for finding in findings],
    }
