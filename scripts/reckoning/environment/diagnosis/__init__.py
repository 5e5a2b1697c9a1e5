"""From facts to findings: pure functions, one module per question."""

from __future__ import annotations

import dataclasses
import re
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


# A trial, the look that it confirms, and what its error must say for that.
_SAME_FAULT = (
    ("proof-link", "link-cudart", r"-lcudart\b"),
    ("proof-link", "link-libcuda", r"-lcuda\b"),
    ("proof-compile-sampling", "header-curand", r"curand"),
    ("proof-compile", "header-", r"fatal error"),
)


def _merged(findings: list[Finding]) -> list[Finding]:
    """Where a look at files and a trial found one fault, keep the look (it knows the remedy) with the trial's words."""
    trials = {finding.code: finding for finding in findings if finding.level is not Level.OK}
    told: set[str] = set()

    def with_trial(finding: Finding) -> Finding:
        for code, prefix, words in _SAME_FAULT:
            trial = trials.get(code)
            same = trial and finding.code.startswith(prefix) and finding.level is trial.level
            said = trial.found.partition("failed: ")[2] if trial else ""
            if same and re.search(words, said):
                told.add(code)
                return dataclasses.replace(finding, why=f"{finding.why} Tried: {said}".strip())
        return finding

    merged = [with_trial(finding) for finding in findings]
    return [finding for finding in merged if finding.code not in told or finding.level is Level.OK]
