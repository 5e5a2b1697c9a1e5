"""From facts to findings: pure functions, one module per question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reckoning.environment.diagnosis import architecture, build, driver, packages, toolkit
from reckoning.environment.finding import Finding, Level
from reckoning.environment.scope import Scope

CHECKS = (driver.check, toolkit.check, architecture.check, build.check, packages.check)
_ORDER = (Level.FAIL, Level.WARN, Level.NOTE, Level.OK)


def diagnose(facts: Mapping[str, Any], plan: Mapping[str, Any] | None = None) -> list[Finding]:
    """Return the findings, the gravest first; within a level in the order of a launch (driver, toolkit, build, ...).

    Pure: the same facts and plan give the same findings on every machine. Facts may lack keys; what is unknown is not
    judged. `plan` (plan.json) decides which arms a finding concerns and whether CUDA matters at all.
    """
    scope = Scope(facts, plan)
    findings = [finding for check in CHECKS for finding in check(facts, scope)]
    return sorted(findings, key=lambda finding: _ORDER.index(finding.level))
