"""Findings and log readings as text for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from reckoning.environment.finding import Finding, Level
from reckoning.serverlog import LogReading

_STYLE = {Level.FAIL: "bold red", Level.WARN: "yellow", Level.NOTE: "cyan", Level.OK: "green"}


def show_findings(findings: Sequence[Finding], *, everything: bool = False, console: Console | None = None) -> None:
    """Print the findings, the gravest first; those in order only as a count unless `everything`."""
    console = console or Console(highlight=False, soft_wrap=True)
    for finding in findings:
        if finding.level is Level.OK and not everything:
            continue
        console.print(
            f"[{_STYLE[finding.level]}]{finding.level.value:4}[/] [bold]{finding.code}[/]: {escape(finding.found)}"
        )
        for name, text in (
            ("where", finding.where),
            ("needed", finding.needed),
            ("why", finding.why),
            ("remedy", finding.remedy),
            ("concerns", ", ".join(finding.concerns or finding.scope)),
        ):
            if text:
                console.print(f"       {name + ':':9} {escape(text)}")
    counts = Counter(finding.level for finding in findings)
    console.print(", ".join(f"{counts.get(level, 0)} {level.value}" for level in _STYLE))


def show_reading(reading: LogReading, *, console: Console | None = None) -> None:
    """Print what a server log says."""
    console = console or Console(highlight=False, soft_wrap=True)
    console.print(f"stages:   {' > '.join(stage.name for stage in reading.stages) or 'none'}")
    cause = reading.cause
    if cause is None:
        console.print("[green]no failure found[/]" + (" (the server became ready)" if reading.ready else ""))
        return
    console.print(f"[bold red]{cause.class_}[/] in the stage: {cause.stage}")
    for name, text in (
        ("cause", cause.cause),
        ("evidence", f"line {cause.line}: {cause.evidence}"),
        ("symptom", cause.symptom or ""),
        ("remedy", cause.remedy),
    ):
        if text:
            console.print(f"{name + ':':9} {escape(text)}")
