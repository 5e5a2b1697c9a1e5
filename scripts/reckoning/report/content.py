"""Everything the templates print, gathered under the names that they use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reckoning.report import chapters, groundwork, machine_use, view
from reckoning.report.collect import Results
from reckoning.report.figures.gallery import figures_of, workloads_of
from reckoning.report.figures.model import Cast, Figure, FigureData
from reckoning.report.provenance import provenance_of
from reckoning.report.quantities import count, duration, estimate, exact, finite, interval, percent, with_interval

HEADLINES = 6
FAILURES = 3  # arms that failed, at the top beside the HEADLINES
# The first of each kind goes to the top of the page: what decides a deployment, then what explains it.
HEADLINE_KINDS = (
    "winner-throughput",
    "winner-latency",
    "speculation",
    "negative",
    "tie",
    "crossover",
    "factor",
    "published",
    "drift",
    "single-run",
    "refusal",
    "sample-hours",
    "variance",
    "energy",
)
EMBEDDED_BYTES = 250_000
USES = {"latency": "For interactive serving", "throughput": "For batch generation"}
CATEGORIES = ("throughput", "verdicts", "latency", "speculation", "factors", "telemetry", "sureness", "comparison")
CONTENTS = (
    ("findings", "Findings"),
    ("recommended", "What to deploy"),
    ("ran", "What ran"),
    ("throughput", "Throughput"),
    ("verdicts", "Verdicts"),
    ("latency", "Latency"),
    ("speculation", "Speculation"),
    ("factors", "Settings"),
    ("telemetry", "GPUs"),
    ("sureness", "How sure"),
    ("comparison", "Others' numbers"),
    ("hypotheses", "Hypotheses"),
    ("environment", "Environment"),
    ("engine", "Engine"),
    ("order", "Run order"),
    ("repeat", "Repeat a row"),
    ("data", "Data"),
    ("glossary", "Terms"),
)
FILES = {
    "findings.json": "estimates, verdicts, findings and recommendations",
    "plan.json": "arms, run order, seeds and commands",
    "environment.json": "what the environment check found",
    "environment_facts.json": "the raw facts behind it",
    "engine.json": "engine, packages and patches",
}
TABLE_WORDS = {
    "estimates": "estimates with intervals",
    "launches": "one row per launch",
    "points": "every measured point",
    "contrasts": "ratios and verdicts",
    "quantiles": "quantiles of latency",
    "distributions": "quantile functions per launch",
}


def content_of(found: Results, out: Path, config: str | None) -> dict[str, Any]:
    """Return the values for the templates. `out` serves the links, `config` the commands that name a configuration."""
    findings = found.findings
    arms = view.arm_rows(found, config)
    cast = view.cast_of(found, arms)
    devices, device = view.devices_of(found)
    figures = figures_of(found, cast, devices, device)
    headlines, others = headlines_of(findings)
    workloads = workloads_of(findings)
    return {
        "title": str(findings.get("title") or found.plan.get("title") or found.experiment),
        "found": found,
        "findings": findings,
        "provenance": provenance_of(found),
        "contents": CONTENTS,
        "facts": facts_of(found),
        "arms": arms,
        "arms_data": _arms_data(arms),
        "ran_words": _ran_words(arms),
        "cast": cast,
        "figures": figures,
        "chapters": _by_chapter(figures),
        "many_workloads": len(workloads) > 1,
        "headlines": headlines,
        "more_headlines": others,
        "shown_texts": {one["text"] for one in headlines},
        "no_findings": _why_none(findings),
        "recommendations": recommendations_of(findings, cast),
        "crossovers": findings.get("crossovers") or [],
        "sure_words": _sure_words(findings),
        "next": [{**one, "cost": _cost(one)} for one in findings.get("next") or []],
        "hypotheses": [
            {**one, "table": chapters.evidence_table(one, cast)} for one in findings.get("hypotheses") or []
        ],
        "engine_facts": groundwork.engine_facts(found),
        "environment": groundwork.environment_findings(found),
        "patches": groundwork.patch_rows(found),
        "no_heat_map": machine_use.why_no_heat_map(found),
        "launch_notes": machine_use.launch_notes(found),
        "tables": tables_of(found, cast),
        "config_option": _config_option(arms),
        "raw_files": _raw_files(found, out),
        "raw_tables": _raw_tables(found, out),
        "gaps": found.gaps,
    }


def tables_of(found: Results, cast: Cast) -> dict[str, Any]:
    """Return every table of the page by the name that the templates use."""
    findings = found.findings
    return {
        "estimates": chapters.estimate_tables(findings, cast),
        "hours": chapters.hours_table(findings, cast),
        "verdicts": chapters.verdict_tables(findings, cast),
        "quantiles": chapters.quantile_table(findings, cast),
        "speculation": chapters.speculation_table(findings, cast),
        "factors": chapters.factor_table(findings, cast),
        "energy": chapters.energy_table(findings, cast),
        "gpu_use": machine_use.gpu_table(found, cast),
        "host_use": machine_use.host_table(found, cast),
        "variance": chapters.variance_table(findings, cast),
        "cross_check": chapters.cross_check_table(findings, cast),
        "exclusions": chapters.exclusion_table(findings, cast),
        "published": chapters.published_table(findings, cast),
        "predicted": chapters.predicted_table(findings, cast),
        "environment": groundwork.environment_table(found),
        "patches": groundwork.patch_table(found),
        "packages": groundwork.package_tables(found),
        "order": groundwork.order_table(found, cast),
    }


def facts_of(found: Results) -> list[tuple[str, str]]:
    """Return the facts under the title: what was served, by what, and how much was measured."""
    plan, findings, design = found.plan, found.findings, found.findings.get("design") or {}
    model, engine = plan.get("model") or {}, plan.get("engine") or {}
    version = found.engine.get("version") or engine.get("version")
    arms = findings.get("arms") or plan.get("arms") or []
    measured = sum(arm.get("status") in ("ok", "partial") for arm in findings.get("arms") or [])
    launches = design.get("launches_ok")
    facts = [
        ("model", str(model.get("served_name") or Path(str(model.get("path") or "")).name or "")),
        ("engine", f"SGLang {version}" if version else ""),
        ("arms", f"{measured} of {len(arms)} measured" if arms else ""),
        ("blocks", exact(design.get("blocks") or plan.get("blocks"))),
        (
            "launches",
            f"{exact(launches)} ok, {exact(design.get('launches_failed'))} failed"
            if finite(launches) is not None
            else "",
        ),
        ("requests", exact(design.get("requests"))),
        ("confidence", percent(findings.get("confidence")) if findings.get("confidence") else ""),
        ("seed", str(plan.get("seed") or "")),
    ]
    return [(name, value) for name, value in facts if value and value != "–"]


def _by_chapter(figures: Sequence[Figure]) -> dict[str, Any]:
    first = next((figure for figure in figures if figure.key.startswith("throughput-")), None)
    chapter: dict[str, Any] = {
        name: [one for one in figures if one.category == name and one is not first] for name in CATEGORIES
    }
    return {**chapter, "first_figure": first}


def headlines_of(findings: Mapping[str, Any]) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Return the findings for the top of the page (one of a kind, the winners of every workload) and all others."""
    ranked = sorted(findings.get("findings") or [], key=lambda one: one.get("rank") or 0)
    top = [one for one in ranked if str(one.get("kind")).startswith("winner-")]
    top += [one for one in ranked if _could_not_run(one)][:FAILURES]
    for kind in HEADLINE_KINDS:
        first = next((one for one in ranked if one.get("kind") == kind), None)
        if first is not None and first not in top and len(top) < HEADLINES + FAILURES:
            top.append(first)
    return [_headline(one) for one in top], [_headline(one) for one in ranked if one not in top]


def _could_not_run(one: Mapping[str, Any]) -> bool:
    """Whether an arm was started and failed, which the plan did not foresee: a rejected one is no news."""
    return one.get("kind") == "failed-arm" and one.get("verdict") == "failed"


def _headline(one: Mapping[str, Any]) -> dict[str, str]:
    """Return a finding's sentence, and how many launches it rests on where the sentence itself does not say it."""
    text = str(one.get("text") or "")
    says = any(word in text for word in ("n =", "n=", "launch", "block"))
    evidence = "" if says or not finite(one.get("n")) else f"n = {count(one['n'], 'launch', 'launches')}"
    return {"text": text, "evidence": evidence}


def _why_none(findings: Mapping[str, Any]) -> str:
    return " ".join(str(one.get("text")) for one in (findings.get("refusals") or [])[:3])


def recommendations_of(findings: Mapping[str, Any], cast: Cast) -> list[dict[str, Any]]:
    """Return the recommendations as cards: the number, its interval and n, the runner-up in words, and the command."""
    cards = []
    for one in findings.get("recommendations") or []:
        span = interval(one.get("estimate"), one.get("low"), one.get("high"))
        at = f"at C = {exact(one['concurrency'])}" if finite(one.get("concurrency")) is not None else ""
        metric = chapters.METRIC_HEADINGS.get(str(one.get("metric")), str(one.get("metric") or ""))
        known = finite(one.get("estimate")) is not None
        evidence = [f"{metric.partition(' (')[0]} {at}".strip(), span, count(one.get("n"), "launch", "launches")]
        cards.append(
            {
                "use": USES.get(str(one.get("use")), str(one.get("use"))),
                "workload": one.get("workload"),
                "arm": one.get("arm"),
                "value": estimate(one.get("estimate"), one.get("low"), one.get("high")) if known else "",
                "unit": one.get("unit") or "",
                "evidence": ", ".join(part for part in evidence if part),
                "text": one.get("text") or "",
                "certainty": _certainty(one, cast),
                "also": _also(one.get("also") or []),
                "runner_up": _runner_up(one.get("runner_up"), cast),
                "command": view.shell_lines(one["command"]) if one.get("command") else "",
            }
        )
    return cards


def _certainty(one: Mapping[str, Any], cast: Cast) -> tuple[str, str]:
    """Return the word that says how firm a recommendation is, and its tone."""
    ties = ", ".join(cast.label(str(slug)) for slug in one.get("tied_with") or [])
    words = {
        "shown": ("shown to be the best", "good"),
        "tie": (f"tie with {ties}" if ties else "tie", "plain"),
        "not-shown": ("not shown to be the best", "warn"),
        "single-run": ("single run: not decided", "warn"),
        "only-arm": ("the only arm measured", "warn"),
    }
    return words.get(str(one.get("certainty")), ("", ""))


def _also(others: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the same arm's other metrics, those that a user feels."""
    return [
        (chapters.METRIC_HEADINGS[one["metric"]].partition(" (")[0], _with_unit(one))
        for one in others
        if one.get("metric") in chapters.SHOWN and finite(one.get("estimate")) is not None
    ]


def _with_unit(one: Mapping[str, Any]) -> str:
    return with_interval(one.get("estimate"), one.get("low"), one.get("high"), str(one.get("unit") or ""))


def _runner_up(one: Mapping[str, Any] | None, cast: Cast) -> str:
    if not one:
        return ""
    ratio = with_interval(one.get("ratio"), one.get("low"), one.get("high"), "×")
    name, level = cast.label(str(one["arm"])), exact(one.get("concurrency"))
    return f"Runner-up: {name} at C = {level}; ratio to it {ratio}, {one.get('verdict')}."


def _ran_words(arms: Sequence[view.ArmRow]) -> str:
    counts: dict[str, int] = {}
    for arm in arms:
        counts[arm.status_words] = counts.get(arm.status_words, 0) + 1
    return f"{count(len(arms), 'arm')}: " + ", ".join(f"{number} {words}" for words, number in counts.items()) + "."


def _arms_data(arms: Sequence[view.ArmRow]) -> FigureData:
    columns = ("arm", "label", "status", "launches_ok", "reason", "remedy", "rerun")
    return FigureData(
        columns,
        tuple((arm.slug, arm.label, arm.status, arm.launches, arm.reason, arm.remedy, arm.rerun) for arm in arms),
    )


def _sure_words(findings: Mapping[str, Any]) -> str:
    design = findings.get("design") or {}
    points, kept = finite(design.get("points")), finite(design.get("points_rankable"))
    if points is None:
        return "The analysis has not run."
    if not points:
        return "No point was measured."
    words = f"{exact(points)} points were measured in {count(design.get('launches_ok'), 'launch', 'launches')}; "
    words += "all of them carry verdicts." if kept == points else f"{exact(kept)} of them carry verdicts."
    failed = finite(design.get("requests_failed"))
    if finite(design.get("requests")) is not None and failed is not None:
        words += f" {exact(design['requests'])} requests were sent, {exact(failed)} failed."
    return words


def _cost(one: Mapping[str, Any]) -> str:
    """Return what an advised measurement costs, unless its sentence says so."""
    known = finite(one.get("cost_s")) is not None and "cost" not in str(one.get("text"))
    return f"about {duration(one['cost_s'])}" if known else ""


def _config_option(arms: Sequence[view.ArmRow]) -> str:
    rerun = next((arm.rerun for arm in arms if arm.rerun), "") or ""
    words = rerun.split()
    return f" --configfile {words[words.index('--configfile') + 1]}" if "--configfile" in words else ""


def _raw_files(found: Results, out: Path) -> list[dict[str, Any]]:
    return [
        {"name": name, "content": content, "link": view.link_to(found, name, out)}
        for name, content in FILES.items()
        if (found.folder / name).exists()
    ]


def _raw_tables(found: Results, out: Path) -> list[dict[str, Any]]:
    """Return every table with a link; those first in TABLE_WORDS are embedded as long as there is room."""
    rows, room = [], EMBEDDED_BYTES
    for name in sorted(found.tables, key=lambda one: (list(TABLE_WORDS).index(one) if one in TABLE_WORDS else 99, one)):
        frame = found.tables[name]
        csv = f"tables/{name}.csv"
        file = csv if (found.folder / csv).exists() else f"tables/{name}.parquet"
        # Seven bytes are fewer than any table needs per cell: what cannot fit is not written out to see.
        fits = 7 * frame.size < room
        text = frame.to_csv(index=False, lineterminator="\r\n", float_format="%.6g") if fits else ""
        embedded = 0 < len(text) <= room
        room -= len(text) if embedded else 0
        rows.append(
            {
                "key": name.replace("_", "-"),
                "name": file,
                "content": f"{TABLE_WORDS.get(name, 'a table of the analysis')}, {count(len(frame), 'row')}",
                "link": view.link_to(found, file, out),
                "data": _Text(text) if embedded else None,
            }
        )
    return rows


class _Text:
    """A table that is CSV text already."""

    def __init__(self, text: str) -> None:
        self._text = text

    def csv(self) -> str:
        """Return the text."""
        return self._text
