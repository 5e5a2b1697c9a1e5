"""The tables about the ground that the measurements stand on: run order, environment, engine, patches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reckoning.report import machine_use
from reckoning.report import tables as column
from reckoning.report.collect import Results
from reckoning.report.figures.gallery import run_order
from reckoning.report.figures.model import Cast
from reckoning.report.quantities import moment
from reckoning.report.tables import Cell, Table, table


def order_table(found: Results, cast: Cast) -> Table:
    """Return the launches in the order they were planned to run, with how each ended and its seed."""
    rows = []
    places = run_order(found.plan)
    for launch in sorted(found.plan.get("launches") or [], key=lambda one: places[one["arm"], one["block"]]):
        outcome = found.outcomes.get((launch["arm"], launch["block"]), {})
        lengths = outcome.get("durations") or {}
        rows.append(
            {
                "place": places[launch["arm"], launch["block"]],
                "block": launch["block"],
                "arm": launch["arm"],
                "seed": str(launch.get("seed")),
                "ended": outcome.get("status") or "not run",
                "started_at": moment(str(outcome.get("started_at") or "")),
                "start_s": lengths.get("start_s"),
                "total_s": lengths.get("total_s"),
                "attempts": len(outcome.get("attempts") or []) or None,
                "slowed": machine_use.slowed(outcome),
            }
        )
    return table(
        "run-order",
        "Run order: every block launches every arm once, shuffled from the seed",
        rows,
        [
            column.whole("place", "place"),
            column.whole("block", "block"),
            column.arm("arm", "arm", cast),
            column.code("seed", "seed"),
            column.Column("ended", _ended, ("ended", "slowed")),
            column.text("started", "started_at"),
            column.seconds("start took", "start_s"),
            column.seconds("whole launch", "total_s"),
            column.whole("attempts", "attempts"),
        ],
    )


def _ended(row: Mapping[str, Any]) -> Cell:
    words = ", ".join(filter(None, (str(row["ended"]), row["slowed"])))
    return Cell(words, sort=words)


SEVERITY = {"fail": 0, "warn": 1, "note": 2, "ok": 3}


def environment_findings(found: Results) -> list[dict[str, Any]]:
    """Return what the environment check found, the worst first; what a reader need not act on has the level `ok`."""
    rows = [dict(one) for one in found.environment.get("findings") or []]
    return sorted(rows, key=lambda one: SEVERITY.get(str(one.get("level")), 2))


def environment_table(found: Results) -> Table:
    """Return the checks that found nothing wrong."""
    return table(
        "environment",
        "Checks that found nothing wrong",
        [one for one in environment_findings(found) if one.get("level") == "ok"],
        [
            column.code("check", "code"),
            column.text("found", "found"),
            column.code("where", "where"),
            column.text("needed", "needed"),
        ],
    )


KEY_PACKAGES = ("sglang", "sglang-cpu", "torch", "flashinfer-python", "sgl-kernel", "transformers", "triton", "kernels")


def package_tables(found: Results) -> list[Table]:
    """Return the packages that decide speed and correctness, then all, with the hash of each installed record."""
    packages = found.engine.get("packages")
    records = found.engine.get("package_records") or {}
    if not isinstance(packages, Mapping) or not packages:
        return []
    rows = [{"name": name, "version": version, "record": records.get(name)} for name, version in packages.items()]
    key = [row for row in rows if row["name"] in KEY_PACKAGES]
    columns = [column.code("package", "name"), column.code("version", "version")]
    short = [
        column.Column("SHA-256 of its record", lambda row: Cell(str(row["record"] or "")[:16], "code"), ("record",))
    ]
    made = [table("key-packages", "Packages that decide speed", key, columns)] if key else []
    return [*made, table("packages", f"All {len(rows)} packages of the engine", rows, columns + short)]


def patch_table(found: Results) -> Table:
    """Return every patch: outcome, hash, upstream link, when to remove it, and the arms that run on it."""
    return table(
        "patches",
        "Patches, applied to a copy that goes first on the server's path; installed packages are never modified",
        patch_rows(found),
        [
            column.code("patch", "id"),
            column.verdict("outcome", "status"),
            column.text("what", "title"),
            column.text("why", "why"),
            column.code("package", "package"),
            column.code("for versions", "versions"),
            column.Column("SHA-256", lambda row: Cell(str(row.get("sha256") or "")[:12], "code"), ("sha256",)),
            column.text("upstream", "upstream"),
            column.text("remove when", "remove_when"),
            column.text("arms", "arms"),
        ],
    )


def patch_rows(found: Results) -> list[dict[str, Any]]:
    """Return every patch of every overlay once per outcome, with the arms that run on it."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for name, overlay in (found.engine.get("overlays") or {}).items():
        for patch in (overlay.get("patches") if isinstance(overlay, Mapping) else None) or []:
            entry = dict(patch) if isinstance(patch, Mapping) else {"id": patch}
            row = rows.setdefault((str(entry.get("id")), str(entry.get("status"))), {**entry, "arms": []})
            row["arms"] += [slug for slug, overlay_id in (found.engine.get("arms") or {}).items() if overlay_id == name]
    return list(rows.values())


def engine_facts(found: Results) -> list[tuple[str, str]]:
    """Return what engine.json says about the engine as a whole."""
    engine = found.engine
    names = {
        "kind": "kind",
        "package": "package",
        "version": "version",
        "python_version": "Python",
        "python": "interpreter",
        "lock": "lock",
        "lock_sha256": "SHA-256 of the lock",
    }
    facts = [(words, str(engine[name])) for name, words in names.items() if engine.get(name)]
    if found.plan.get("config_sha256"):
        facts.append(("SHA-256 of the configuration", str(found.plan["config_sha256"])))
    return facts if engine else []
