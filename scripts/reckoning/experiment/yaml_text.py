"""YAML as text: the line of every key, and the traps that a parsed document no longer shows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from reckoning.experiment.problems import Problem

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MISREAD_NUMBER = re.compile(r"[-+]?(0[0-7_]+|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)$")


@dataclass(frozen=True)
class YamlText:
    """What one YAML file says: its data, the line of each key path, and faults of the text itself."""

    data: Any
    lines: dict[tuple[str, ...], int]
    problems: tuple[Problem, ...]


def parse(text: str, file: str) -> YamlText:
    """Parse `text`; faults (syntax, keys given twice, numbers that YAML 1.1 misreads) are collected, not raised."""
    try:
        root = yaml.compose(text, Loader=_Loader)
        data = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = f"not YAML: {getattr(error, 'problem', None) or error}"
        remedy = "correct the indentation or the quotes near this line"
        return YamlText(None, {}, (Problem(file, "", None, reason, remedy, mark.line + 1 if mark else None),))
    except (ValueError, TypeError) as error:  # such as the date 2026-02-30, or a mapping as a key
        return YamlText(None, {}, (Problem(file, "", None, f"not YAML: {error}", "put the value in quotes"),))
    walk = _Walk(file)
    if root is not None:
        walk.visit(root, (), frozenset())
    return YamlText(None if walk.endless else data, walk.lines, tuple(walk.problems))


def _as_parsed(key: Any) -> str:
    """Return a key as the parsed data show it: `no` without quotes has become False."""
    if key.tag == "tag:yaml.org,2002:bool":
        return str(key.value.lower() in ("yes", "on", "true"))
    return str(key.value)


class _Walk:
    """One pass over the nodes of a document that notes lines and faults."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.lines: dict[tuple[str, ...], int] = {}
        self.problems: list[Problem] = []
        self.endless = False

    def visit(self, node: Any, path: tuple[str, ...], above: frozenset[int]) -> None:
        line = node.start_mark.line + 1
        if id(node) in above:  # an anchor that holds itself
            self.endless = True
            self._fault(path, "the anchor refers to itself", "remove the circle", line=line)
            return
        self.lines.setdefault(path, line)
        if isinstance(node, yaml.MappingNode):
            self._visit_mapping(node, path, above | {id(node)})
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.visit(item, (*path, str(index)), above | {id(node)})
        elif not node.style and _MISREAD_NUMBER.match(node.value) and node.tag.endswith((":int", ":float")):
            reason = "YAML reads this as an octal or base-60 number"
            remedy = "write a plain decimal number, or put the value in quotes"
            self._fault(path, reason, remedy, line=line, value=node.value)

    def _visit_mapping(self, node: Any, path: tuple[str, ...], above: frozenset[int]) -> None:
        seen: dict[str, int] = {}
        for key, value in node.value:
            name, line = _as_parsed(key), key.start_mark.line + 1
            here = (*path, name)
            if name in seen and key.tag != "tag:yaml.org,2002:merge":
                reason = f"the key is given twice (first on line {seen[name]}); YAML would silently keep the last"
                what = value.value if value.id == "scalar" else f"another {value.id}"
                self._fault(here, reason, "keep one of the two", line=line, value=what)
            seen.setdefault(name, line)
            self.lines.setdefault(here, line)
            self.visit(value, here, above)

    def _fault(self, path: tuple[str, ...], reason: str, remedy: str, *, line: int, value: Any = None) -> None:
        self.problems.append(Problem(self._file, ".".join(path), value, reason, remedy, line))
