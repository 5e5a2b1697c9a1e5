"""What a results folder holds, read tolerantly: a file that is missing or broken is said in the page, never a crash.

Every string passes the redactor here, at the only door, so nothing behind it can show a secret.
"""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from reckoning.files import read_json
from reckoning.report.redact import COMMON_USERS, Redactor, users_in

STAGE_FILES = {
    "plan": ("plan.json", "what was planned, in which order, and why an arm was rejected"),
    "facts": ("environment_facts.json", "the raw facts about the machine"),
    "environment": ("environment.json", "what the environment check found"),
    "engine": ("engine.json", "engine, package versions and patches"),
    "findings": ("findings.json", "estimates, verdicts and recommendations"),
}
OPTIONAL = frozenset({"facts"})


@dataclass(frozen=True)
class Gap:
    """A file that the page would have used: its name under the results folder, what it tells, why it is not here."""

    file: str
    tells: str
    why: str


@dataclass(frozen=True)
class Results:
    """Everything read from `results/{experiment}/`, without secrets. A missing JSON is an empty mapping."""

    folder: Path
    plan: Mapping[str, Any]
    facts: Mapping[str, Any]
    environment: Mapping[str, Any]
    engine: Mapping[str, Any]
    findings: Mapping[str, Any]
    outcomes: Mapping[tuple[str, int], Mapping[str, Any]]
    tables: Mapping[str, pd.DataFrame]
    telemetry: Mapping[tuple[str, int], pd.DataFrame]
    host: Mapping[tuple[str, int], pd.DataFrame]
    gaps: tuple[Gap, ...]
    redactor: Redactor = field(default_factory=Redactor)

    @property
    def experiment(self) -> str:
        """The experiment's name: from the findings, the plan, or the folder."""
        return str(
            self.findings.get("experiment") or self.plan.get("experiment") or self.redactor.text(self.folder.name)
        )


def collect(folder: Path) -> Results:
    """Read a results folder. Raises NotADirectoryError when there is no such folder; nothing else is fatal."""
    if not folder.is_dir():
        raise NotADirectoryError(
            f"{folder} is not a folder of results: give results/EXPERIMENT, as written by the workflow"
        )
    gaps: list[Gap] = []
    raw = {name: _mapping(folder, file, tells, gaps, name in OPTIONAL) for name, (file, tells) in STAGE_FILES.items()}
    outcomes = _outcomes(folder, gaps)
    redactor = Redactor(users_in([*raw.values(), *outcomes.values()]) | _own_user(), _root_of(folder))
    clean = {name: redactor.value(value) for name, value in raw.items()}
    return Results(
        folder=folder,
        outcomes={key: redactor.value(outcome) for key, outcome in outcomes.items()},
        tables=_tables(folder, redactor, gaps),
        telemetry=_samples(folder, "telemetry.parquet", "GPU telemetry of one launch", redactor, gaps),
        host=_samples(folder, "host.parquet", "what one server took of the host", redactor, gaps),
        gaps=tuple(Gap(gap.file, gap.tells, redactor.text(gap.why)) for gap in gaps),
        redactor=redactor,
        **clean,
    )


def _root_of(folder: Path) -> str:
    """Return the folder that `results/{experiment}` lies in, or an empty text where results lie elsewhere."""
    parent = folder.resolve().parent
    return str(parent.parent) if parent.name == "results" and len(parent.parts) > 2 else ""


def _own_user() -> frozenset[str]:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        return frozenset()
    return frozenset({user}) if len(user) > 2 and user.lower() not in COMMON_USERS else frozenset()


def _mapping(folder: Path, file: str, tells: str, gaps: list[Gap], optional: bool = False) -> Mapping[str, Any]:
    path = folder / file
    if not path.is_file():
        if not optional:
            gaps.append(Gap(file, tells, "no such file"))
        return {}
    try:
        value = read_json(path)
    except (OSError, ValueError) as error:
        gaps.append(Gap(file, tells, f"cannot be read: {str(error).replace(str(path), file)}"))
        return {}
    if not isinstance(value, Mapping):
        gaps.append(Gap(file, tells, f"holds a {type(value).__name__}, not an object"))
        return {}
    return value


def _outcomes(folder: Path, gaps: list[Gap]) -> dict[tuple[str, int], Mapping[str, Any]]:
    outcomes = {}
    for path in sorted((folder / "launches").glob("*/block*/outcome.json")):
        block = path.parent.name.removeprefix("block")
        if not block.isdigit():
            continue
        outcome = _mapping(folder, str(path.relative_to(folder)), "how one launch ended", gaps)
        if outcome:
            outcomes[path.parent.parent.name, int(block)] = outcome
    return outcomes


def _tables(folder: Path, redactor: Redactor, gaps: list[Gap]) -> dict[str, pd.DataFrame]:
    tables: dict[str, pd.DataFrame] = {}
    for path in sorted((folder / "tables").glob("*.parquet")):
        table = _frame(path, folder, "a table of the analysis", redactor, gaps)
        if table is not None:
            tables[path.stem] = table
    if not tables:
        gaps.append(Gap("tables/", "the tables of the analysis", "no table in the folder"))
    return tables


def _samples(
    folder: Path, name: str, tells: str, redactor: Redactor, gaps: list[Gap]
) -> dict[tuple[str, int], pd.DataFrame]:
    """Return the samples of every launch that has some; a table without a row tells nothing."""
    recordings = {}
    for path in sorted((folder / "launches").glob(f"*/block*/{name}")):
        block = path.parent.name.removeprefix("block")
        table = _frame(path, folder, tells, redactor, gaps)
        if table is not None and block.isdigit() and len(table):
            recordings[path.parent.parent.name, int(block)] = table
    return recordings


def _frame(path: Path, folder: Path, tells: str, redactor: Redactor, gaps: list[Gap]) -> pd.DataFrame | None:
    try:
        table = pd.read_parquet(path)
    except Exception as error:  # pyarrow raises a dozen kinds for a truncated or foreign file
        gaps.append(Gap(str(path.relative_to(folder)), tells, f"cannot be read: {type(error).__name__}"))
        return None
    for column in table.columns:
        if table[column].dtype == object or str(table[column].dtype) in {"string", "str"}:
            clean = {cell: redactor.text(cell) for cell in table[column].unique() if isinstance(cell, str)}
            changed = {cell: text for cell, text in clean.items() if cell != text}
            if changed:
                table[column] = table[column].replace(changed)
    return table
