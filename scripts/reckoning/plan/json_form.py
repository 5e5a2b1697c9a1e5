"""plan.json: the plan as strict JSON, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from reckoning import files
from reckoning.plan.shapes import SCHEMA_VERSION, Arm, ArmProblem, Launch, Pair, Plan, Point


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """Return the plan in the shape of plan.json (docs/architecture.md, workflow/schemas/plan.schema.json)."""
    data = files.jsonable(plan)
    for pair in data["pairs"]:
        pair["from"] = pair.pop("from_")
    return {"schema_version": SCHEMA_VERSION, **data}


def plan_from_json(data: Mapping[str, Any]) -> Plan:
    """Return the plan that plan.json holds; ValueError when it is of another version or incomplete."""
    version = data.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ValueError(f"plan.json has schema_version {version!r}; this program reads {SCHEMA_VERSION}: plan again")
    fields = {field.name for field in dataclasses.fields(Plan)}
    if missing := sorted(fields - set(data)):
        raise ValueError(f"plan.json lacks {', '.join(missing)}: plan again")
    values = {name: data[name] for name in fields}
    values["arms"] = tuple(_arm(arm) for arm in data["arms"])
    values["pairs"] = tuple(_pair(pair) for pair in data["pairs"])
    values["launches"] = tuple(_launch(launch) for launch in data["launches"])
    values["hypotheses"] = tuple(data["hypotheses"])
    return Plan(**values)


def _pair(data: Mapping[str, Any]) -> Pair:
    return Pair(data["arm"], data["reference"], data["factor"], from_=data["from"], to=data["to"])


def _arm(data: Mapping[str, Any]) -> Arm:
    changed = {
        "problems": tuple(ArmProblem(**problem) for problem in data["problems"]),
        "patches": tuple(data["patches"]),
        "parents": tuple(data["parents"]),
        "command": tuple(data["command"]),
    }
    return Arm(**{**data, **changed})


def _launch(data: Mapping[str, Any]) -> Launch:
    return Launch(**{**data, "points": tuple(Point(**point) for point in data["points"])})
