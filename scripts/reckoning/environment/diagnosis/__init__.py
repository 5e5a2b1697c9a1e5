"""From facts to findings: pure functions, one module per question."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from reckoning.environment.diagnosis import (
    architecture,
    backends,
    build,
    caches,
    driver,
    gpus,
    machine,
    packages,
    proof,
    toolkit,
    topology,
)
from reckoning.environment.finding import Finding, Level
from reckoning.environment.scope import Scope

CHECKS = (
    driver.check,
    gpus.check,
    toolkit.check,
    architecture.check,
    build.check,
    proof.check,
    packages.check,
    backends.check,
    topology.check,
    caches.check,
    machine.check,
)
_ORDER = (Level.FAIL, Level.WARN, Level.NOTE, Level.OK)


def diagnose(facts: Mapping[str, Any], plan: Mapping[str, Any] | None = None) -> list[Finding]:
    """Return the findings, the gravest first; within a level in the order of a launch (driver, toolkit, build, ...).

    Pure: the same facts and plan give the same findings on every machine. Facts may lack keys; what is unknown is not
    judged. `plan` (plan.json) decides which arms a finding concerns and whether CUDA matters at all.
    """
    scope = Scope(facts, plan)
    findings = [finding for check in CHECKS for finding in check(facts, scope)]
    return sorted(_merged(findings), key=lambda finding: _ORDER.index(finding.level))


_SAME_FAULT = {"proof-link": "link-", "proof-compile-sampling": "header-curand", "proof-compile": "header-"}


def _merged(findings: list[Finding]) -> list[Finding]:
    """Where a look at files and a trial found one fault, keep the look (it knows the remedy) with the trial's words."""
    merged = list(findings)
    for trial in findings:
        prefix = _SAME_FAULT.get(trial.code)
        if prefix is None or trial.level is Level.OK:
            continue
        looks = [item for item in merged if item.code.startswith(prefix) and item.level is trial.level]
        if looks:
            merged.remove(trial)
            said = trial.found.partition("failed: ")[2]
            merged = [
                dataclasses.replace(item, why=f"{item.why} Tried: {said}".strip()) if item in looks else item
                for item in merged
            ]
    return merged
