"""Arms: inheritance, variation over factors, and names that are safe and distinct."""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from reckoning.experiment.names import remedy_for, slug
from reckoning.experiment.shapes import ArmRequest, Unavailable

RESERVED_SETTINGS = {
    "model_path": "set model.path",
    "model": "set model.path",
    "served_model_name": "set model.served_name",
    "device": "set machine.device",
    "host": "remove it; servers listen on 127.0.0.1 only",
    "port": "remove it; a free port is chosen for each launch",
    "nccl_port": "remove it; a free port is chosen for each launch",
    "api_key": "remove it; servers listen on 127.0.0.1 only and need no key",
    "admin_api_key": "remove it; servers listen on 127.0.0.1 only and need no key",
}
_SECRET = re.compile(r"(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|CREDENTIAL)", re.IGNORECASE)
_NOT_SECRET = re.compile(r"TOKEN(S|IZER)", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_TEXT_ENDINGS = ("revision", "path", "name", "key", "addr", "host", "template", "parser", "config", "args")
Report = Callable[[tuple[str, ...], Any, str, str], None]


@dataclass(frozen=True)
class _Layer:
    settings: dict[str, Any]
    env: dict[str, Any]
    patches: frozenset[str]

    def with_(self, settings: Mapping[str, Any], env: Mapping[str, Any], patches: Iterable[str]) -> _Layer:
        chosen = set(self.patches)
        for patch in patches:
            if patch.startswith("-"):
                chosen.discard(patch[1:])
            else:
                chosen.add(patch)
        return _Layer(_overlaid(self.settings, settings), _overlaid(self.env, env), frozenset(chosen))


def resolve(config: Mapping[str, Any], report: Report) -> list[ArmRequest]:
    """Return the arms of a completed config in the order of the file; faults go to `report`."""
    raw = {name: _filled(arm) for name, arm in config["arms"].items()}
    shared = _Layer({}, {}, frozenset()).with_(
        config["server"]["settings"], config["server"]["env"], config["engine"]["patches"]
    )
    _check_layer(("server",), config["server"], report)
    for name, arm in raw.items():
        _check_layer(("arms", name), arm, report)
    layers = _inherited(raw, shared, report)
    arms: list[ArmRequest] = []
    for name, arm in raw.items():
        if arm["abstract"] or name not in layers:
            continue
        arms.extend(_expanded(name, arm, layers[name], report))
    _check_distinct(arms, report)
    return arms


def _filled(arm: Mapping[str, Any] | None) -> dict[str, Any]:
    empty = {"why": "", "settings": {}, "env": {}, "patches": [], "abstract": False, "vary": None, "name": None}
    return {**empty, "unavailable": None, **(arm or {})}


def _overlaid(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**below, **above}
    return {key: value for key, value in merged.items() if value is not None}


def parents_of(arm: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names that a raw arm extends; `extends: a, b` and `extends: [a, b]` are the same."""
    extends = arm.get("extends") or []
    return tuple(name.strip() for name in extends.split(",")) if isinstance(extends, str) else tuple(extends)


def _inherited(raw: Mapping[str, dict], shared: _Layer, report: Report) -> dict[str, _Layer]:
    done: dict[str, _Layer] = {}

    def layer(name: str, above: tuple[str, ...]) -> _Layer | None:
        if name in done:
            return done[name]
        if name in above:
            circle = " -> ".join((*above[above.index(name) :], name))
            report(("arms", above[-1], "extends"), name, f"arms extend each other in a circle: {circle}", "break it")
            return None
        result = shared
        for parent in parents_of(raw[name]):
            if parent not in raw:
                report(("arms", name, "extends"), parent, "there is no arm of this name", remedy_for(parent, raw))
                return None
            above_parent = layer(parent, (*above, name))
            if above_parent is None:
                return None
            own = _difference(above_parent, shared)
            result = result.with_(*own)
        arm = raw[name]
        done[name] = result.with_(arm["settings"], arm["env"], arm["patches"])
        return done[name]

    for name in raw:
        layer(name, ())
    return done


def _difference(layer: _Layer, shared: _Layer) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Return what makes `layer` out of `shared`, so that the second of two parents overrides only what it changed."""

    def changed(now: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
        new = {key: value for key, value in now.items() if key not in before or before[key] != value}
        return {**new, **{key: None for key in before if key not in now}}

    patches = sorted(layer.patches - shared.patches) + [f"-{patch}" for patch in sorted(shared.patches - layer.patches)]
    return changed(layer.settings, shared.settings), changed(layer.env, shared.env), patches


def _expanded(name: str, arm: Mapping[str, Any], layer: _Layer, report: Report) -> list[ArmRequest]:
    if arm["vary"] is None:
        if arm["name"] is not None:
            report(("arms", name, "name"), arm["name"], "a name pattern without vary", "add vary, or remove name")
        return [_request(name, name, arm, layer)]
    factors = {factor: _factor_levels(factor, levels) for factor, levels in arm["vary"].items()}
    for factor, levels in factors.items():
        if not levels:
            report(("arms", name, "vary", factor), [], "a factor without levels", "list at least one")
        for label, settings in levels:
            if settings is None:
                reason = "the level of a labelled factor must be a mapping of settings"
                report(("arms", name, "vary", factor, label), None, reason, "write {setting: value}")
                return []
            _check_settings(("arms", name, "vary", factor), settings, report)
    pattern = arm["name"] or "-".join([name, *(f"{factor.replace('_', '-')}-{{{factor}}}" for factor in factors)])
    fields = {field for _, field, _, _ in string.Formatter().parse(pattern) if field is not None}
    if fields != set(factors):
        reason = "the pattern must name every varied factor once, in braces"
        report(("arms", name, "name"), pattern, reason, f"use {', '.join('{' + factor + '}' for factor in factors)}")
        return []
    made = []
    for combination in itertools.product(*factors.values()):
        labels = {factor: label for factor, (label, _) in zip(factors, combination, strict=True)}
        varied = layer
        for _, settings in combination:
            varied = varied.with_(settings, {}, ())
        made.append(_request(pattern.format(**labels), name, arm, varied))
    return made


def _factor_levels(factor: str, levels: Any) -> list[tuple[str, dict[str, Any] | None]]:
    if isinstance(levels, Mapping):
        return [(str(label), dict(chosen) if isinstance(chosen, Mapping) else None) for label, chosen in levels.items()]
    return [(_label(value), {factor: value}) for value in levels]


def _label(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "default" if value is None else str(value)


def _request(label: str, name: str, arm: Mapping[str, Any], layer: _Layer) -> ArmRequest:
    unavailable = arm["unavailable"]
    parents = parents_of(arm) if label == name else (name,)
    return ArmRequest(
        name=label,
        slug=slug(label),
        why=arm["why"],
        settings=dict(sorted(layer.settings.items())),
        env=dict(sorted(layer.env.items())),
        patches=tuple(sorted(layer.patches)),
        parents=parents,
        unavailable=Unavailable(unavailable["reason"], unavailable.get("reference")) if unavailable else None,
    )


def _check_layer(path: tuple[str, ...], layer: Mapping[str, Any], report: Report) -> None:
    _check_settings((*path, "settings"), layer["settings"], report)
    for key, value in layer["env"].items():
        here = (*path, "env", key)
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
            report(here, value, "not a name of an environment variable", "use letters, digits and underscores")
        elif _SECRET.search(_NOT_SECRET.sub("", key)):
            reason = "looks like a secret; plans and reports show the environment of every arm"
            report(here, "(hidden)", reason, "export it in the shell that runs the workflow: launches inherit it")
        elif value is not None and "\0" in value:
            report(here, value, "holds a NUL character", "remove it")


def _check_settings(path: tuple[str, ...], settings: Mapping[str, Any], report: Report) -> None:
    for key, value in settings.items():
        here = (*path, key)
        if key in RESERVED_SETTINGS:
            report(here, value, "the workflow itself sets this server argument", RESERVED_SETTINGS[key])
        elif not re.fullmatch(r"[a-z][a-z0-9_]*", key):
            remedy = f"write {key.strip('-').replace('-', '_').lower()}"
            report(here, value, "not the Python name of a server argument", remedy)
        elif isinstance(value, str) and _NUMBER.fullmatch(value) and not key.endswith(_TEXT_ENDINGS):
            report(here, value, "text where a number is meant", "write it without quotes, exponent or leading zero")


def _check_distinct(arms: list[ArmRequest], report: Report) -> None:
    first: dict[str, ArmRequest] = {}
    for arm in arms:
        path = ("arms", arm.name)
        if not arm.slug:
            report(path, arm.name, "nothing of this name can be used for a folder", "use a name with a-z or 0-9 in it")
        elif arm.slug in first:
            other = first[arm.slug].name
            reason = f"both {other!r} and {arm.name!r} would use the folder {arm.slug}"
            report(path, arm.name, reason, "rename one of the two (case and punctuation do not count)")
        else:
            first[arm.slug] = arm
