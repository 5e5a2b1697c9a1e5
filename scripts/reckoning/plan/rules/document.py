"""The list of rules in docs/rules.md, written from the registry so that the two cannot differ."""

from __future__ import annotations

from reckoning.experiment.places import REPOSITORY
from reckoning.plan.rules.core import LEVELS, REGISTRY, Rule

DOCUMENT = REPOSITORY / "docs" / "rules.md"
BEGIN, END = "<!-- rules: begin (python -m reckoning.plan --rules) -->", "<!-- rules: end -->"


def table() -> str:
    """Return the Markdown table of all rules, the gravest first, then by id."""
    rows = ["| rule | level | SGLang | says | see |", "| --- | --- | --- | --- | --- |"]
    for rule in sorted(REGISTRY.values(), key=lambda rule: (LEVELS.index(rule.level), rule.id)):
        rows.append(_row(rule))
    return "\n".join(rows)


def _row(rule: Rule) -> str:
    links = ", ".join(f"[{_short(link)}]({link})" for link in rule.references)
    versions = f"`{rule.versions}`" if rule.versions else "all"
    return f"| `{rule.id}` | {rule.level} | {versions} | {rule.summary.replace('|', chr(92) + '|')} | {links} |"


def _short(link: str) -> str:
    owner, project, _, number = link.removeprefix("https://github.com/").split("/")
    return f"{project if owner != 'sgl-project' else 'sglang'}#{number}"


def updated(text: str) -> str:
    """Return the document with its table replaced by the current one."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"
