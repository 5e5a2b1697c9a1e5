"""The documented JSON schema as check and as the one home of every default."""

from __future__ import annotations

import copy
import datetime
import functools
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema

from reckoning.experiment.names import did_you_mean, remedy_for
from reckoning.experiment.places import REPOSITORY

SCHEMA_FILE = REPOSITORY / "workflow" / "schemas" / "experiment.schema.json"
_TYPE_NAMES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping of keys to values",
    "null": "null",
}
_REQUIRED = "this key is required"
Fault = tuple[tuple[str, ...], Any, str, str]  # path, value, reason, remedy


@functools.cache
def experiment_schema() -> dict[str, Any]:
    """Return the schema of a user's experiment file."""
    return json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))


@functools.cache
def _validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(experiment_schema())


def faults(config: Mapping[str, Any]) -> list[Fault]:
    """Return every fault of form: unknown keys, wrong types and ranges, keys and numbers that YAML misread."""
    found = list(_unusable(config, ()))
    checkable: Any = config
    for path, *_ in sorted(found, reverse=True, key=lambda fault: fault[0]):
        checkable = _pruned(checkable, path)  # a key that is no text would make the schema's own check stumble
    for error in _validator().iter_errors(checkable):
        found.extend(_translated(error))
    return found


def without_faults(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the config without the values that are at fault, so that the rest can be checked in the same run.

    None when what is left is no experiment any more.
    """
    for _ in range(8):  # removing a value may leave its parent incomplete, and so on upwards
        found = faults(config)
        if not found:
            return dict(config)
        for path, _, reason, _ in sorted(found, key=lambda fault: fault[0], reverse=True):  # later list items first
            config = _pruned(config, path[:-1] if reason == _REQUIRED else path)
        if not isinstance(config, Mapping):
            return None
    return None


def _pruned(value: Any, path: tuple[str, ...]) -> Any:
    if not path:
        return None
    first, rest = path[0], path[1:]
    if isinstance(value, Mapping):
        kept = {key: item for key, item in value.items() if rest or str(key) != first}
        return {key: _pruned(item, rest) if str(key) == first else item for key, item in kept.items()}
    if isinstance(value, list | tuple) and first.isdigit() and int(first) < len(value):
        place = int(first)
        return [*value[:place], *([_pruned(value[place], rest)] if rest else []), *value[place + 1 :]]
    return value


def completed(value: Any, schema: Mapping[str, Any] | None = None) -> Any:
    """Return a copy of `value` with the schema's defaults in the places that it leaves open."""
    schema = _resolved(experiment_schema() if schema is None else schema)
    if isinstance(value, Mapping):
        properties = schema.get("properties", {})
        result = {}
        for key, child in properties.items():
            if key in value:
                result[key] = completed(value[key], child)
            elif "default" in child:
                result[key] = completed(copy.deepcopy(child["default"]), child)
        rest = schema.get("additionalProperties")
        for key, item in value.items():
            if key not in properties:
                result[key] = completed(item, rest) if isinstance(rest, Mapping) else copy.deepcopy(item)
        return result
    if isinstance(value, list | tuple):
        items = schema.get("items")
        return [completed(item, items) if isinstance(items, Mapping) else copy.deepcopy(item) for item in value]
    if (
        isinstance(value, float)
        and value.is_integer()
        and "integer" in _types(schema)
        and "number" not in _types(schema)
    ):
        return int(value)
    return value


def _types(schema: Mapping[str, Any]) -> list[str]:
    kind = schema.get("type", [])
    return [kind] if isinstance(kind, str) else kind


def _resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    if not reference:
        return schema
    return {**experiment_schema()["$defs"][reference.removeprefix("#/$defs/")], **schema}


def _unusable(value: Any, path: tuple[str, ...]) -> Iterator[Fault]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                yield (
                    (*path, str(key)),
                    key,
                    f"the key is {_kind(key)}, not text (YAML reads {_yaml_spelling(key)} so)",
                    "put the key in quotes",
                )
            yield from _unusable(item, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _unusable(item, (*path, str(index)))
    elif isinstance(value, float) and not math.isfinite(value):
        yield path, value, "not a finite number", "write a number"
    elif isinstance(value, datetime.date | bytes | set):
        yield path, value, f"YAML reads this as {_kind(value)}", "put the value in quotes"


def _translated(error: jsonschema.ValidationError) -> Iterator[Fault]:
    path = tuple(str(part) for part in error.absolute_path)
    if error.validator == "additionalProperties":
        known = list(error.schema.get("properties", {}))
        patterns = error.schema.get("patternProperties", {})
        for key in error.instance:
            if key not in known and not any(re.search(pattern, key) for pattern in patterns):
                yield (*path, key), error.instance[key], "no such key", remedy_for(key, known)
    elif error.validator == "required":
        for key in error.validator_value:
            if key not in error.instance:
                yield (*path, key), None, _REQUIRED, f"add {key}"
    elif error.validator == "type":
        yield path, error.instance, *_about_type(error.instance, _types(error.schema))
    elif error.validator in ("enum", "const"):
        allowed = [error.validator_value] if error.validator == "const" else error.validator_value
        choices = ", ".join("null" if item is None else str(item) for item in allowed)
        near = did_you_mean(str(error.instance), [str(item) for item in allowed if item is not None])
        meant = f"use {choices}; did you mean {near}?" if near else f"use {choices}"
        yield path, error.instance, "not one of the allowed values", meant
    else:
        reason, remedy = _about_limit(error)
        yield path, error.instance, reason, remedy


def _about_type(value: Any, allowed: list[str]) -> tuple[str, str]:
    wanted = " or ".join(_TYPE_NAMES[kind] for kind in allowed)
    numeric = "integer" in allowed or "number" in allowed
    if isinstance(value, str) and numeric:
        return f"text where {wanted} is needed", _remedy_for_text_number(value)
    if isinstance(value, bool):
        spelling = "yes, on, true" if value else "no, off, false"
        reason = f"a truth value (YAML reads {spelling} so) where {wanted} is needed"
        return reason, "put the value in quotes" if "string" in allowed else f"write {wanted}"
    if isinstance(value, int | float) and "string" in allowed:
        return f"a number where {wanted} is needed", f'put it in quotes: "{value}"'
    if value is None:
        return f"empty (null) where {wanted} is needed", f"write {wanted}, or remove the key to get the default"
    return f"{_kind(value)} where {wanted} is needed", f"write {wanted}"


def _remedy_for_text_number(text: str) -> str:
    try:
        number = float(text)
    except ValueError:
        parts = text.split(",")
        if len(parts) > 1 and all(part.strip().isdigit() for part in parts):
            return f"write [{', '.join(part.strip() for part in parts)}]"
        return "write a number without quotes"
    plain = int(number) if number.is_integer() and abs(number) < 1e15 else number
    return f"write {plain} (no quotes, no exponent, no leading zero)"


def _about_limit(error: jsonschema.ValidationError) -> tuple[str, str]:
    limit = error.validator_value
    match error.validator:
        case "minimum":
            return "too small", f"write {limit} or more"
        case "exclusiveMinimum":
            return "too small", f"write more than {limit}"
        case "maximum":
            return "too large", f"write {limit} or less"
        case "exclusiveMaximum":
            return "too large", f"write less than {limit}"
        case "minItems" | "minProperties" | "minLength":
            return "empty", "give at least one"
        case "pattern":
            return f"does not match {limit}", "use lower-case letters, digits and hyphens"
        case _:
            return error.message, "see config/README.md"


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "a truth value"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "a mapping"
        case datetime.date():
            return "a date"
        case None:
            return "null"
        case _:
            return f"a {type(value).__name__}"


def _yaml_spelling(key: Any) -> str:
    if isinstance(key, bool):
        return "yes, on, true" if key else "no, off, false"
    return "null or ~" if key is None else "bare numbers and dates"
