"""The server arguments that one engine version understands, and what is wrong with those that a user wrote.

A table comes from SGLang's own argparse parser (`engine_parser.py`, run by the engine's interpreter). Tables of the
versions in `envs/` are recorded in `resources/engines/`, so that a plan needs no engine.
"""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reckoning.experiment.names import did_you_mean
from reckoning.experiment.places import REPOSITORY

RECORDED = REPOSITORY / "resources" / "engines"
PARSER_PROGRAM = Path(__file__).with_name("engine_parser.py")
_LONGEST_PARSER_RUN_S = 300

# Older parsers store some arguments under a longer name than ServerArgs, the report and the community use.
_FIELD_NAMES = {
    "tensor_parallel_size": "tp_size",
    "pipeline_parallel_size": "pp_size",
    "data_parallel_size": "dp_size",
    "expert_parallel_size": "ep_size",
    "moe_data_parallel_size": "moe_dp_size",
    "attention_context_parallel_size": "attn_cp_size",
}

# Where an argument went, between the versions that we know. Names of both directions: a remedy for either version.
RENAMED = {
    "cuda_graph_max_bs": "cuda_graph_max_bs_decode",
    "cuda_graph_max_bs_decode": "cuda_graph_max_bs",
    "cuda_graph_bs": "cuda_graph_bs_decode",
    "cuda_graph_bs_decode": "cuda_graph_bs",
    "disable_piecewise_cuda_graph": "disable_prefill_cuda_graph",
    "disable_prefill_cuda_graph": "disable_piecewise_cuda_graph",
    "speculative_dflash_draft_window_size": "speculative_draft_window_size",
    "mamba_scheduler_strategy": "mamba_radix_cache_strategy",
    "stream_output": "incremental_streaming_output",
}


@dataclass(frozen=True)
class Flag:
    """One server argument. `kind` is `value`, `list`, `switch` (true only) or `on-off` (has a --no- form)."""

    dest: str
    option: str
    kind: str
    default: Any = None
    type: str | None = None
    choices: tuple[Any, ...] | None = None
    aliases: tuple[str, ...] = ()
    deprecated: bool = False


@dataclass(frozen=True)
class FlagTable:
    """All server arguments of one engine, by their Python name. An empty table knows nothing and checks nothing."""

    flags: Mapping[str, Flag] = field(default_factory=dict)
    source: str = "none"

    def get(self, name: str) -> Flag | None:
        return self.flags.get(name)

    def canonical(self, name: str) -> str:
        """Return the one name by which rules and plans call an argument: `tensor_parallel_size` -> `tp_size`."""
        name = _FIELD_NAMES.get(name, name)
        return name if name in self.flags else self._by_alias.get(name, name)

    @functools.cached_property
    def _by_alias(self) -> dict[str, str]:
        return {alias: name for name, flag in self.flags.items() for alias in flag.aliases}

    def abbreviated(self, name: str) -> list[str]:
        """Return the arguments that `name` is a beginning of: argparse would take it for the only one, silently."""
        options = {*self.flags, *self._by_alias}
        return sorted(option for option in options if option.startswith(name) and option != name)


@dataclass(frozen=True)
class FlagFault:
    """What is wrong with one setting."""

    kind: str
    name: str
    reason: str
    remedy: str


def table_from(data: Mapping[str, Any], source: str) -> FlagTable:
    """Return the table in the JSON that `engine_parser.py` printed."""
    flags: dict[str, Flag] = {}
    for raw in data["flags"]:
        names = [option.lstrip("-").replace("-", "_") for option in raw["options"]]
        dest = _FIELD_NAMES.get(raw["dest"], raw["dest"])
        if dest in flags:  # a second, usually deprecated, option for the same argument
            first = flags[dest]
            flags[dest] = Flag(**{**vars(first), "aliases": (*first.aliases, *(n for n in names if n != dest))})
            continue
        option = raw["options"][names.index(dest)] if dest in names else raw["options"][0]
        flags[dest] = Flag(
            dest=dest,
            option=option,
            kind=raw["kind"],
            default=raw["default"],
            type=raw["type"],
            choices=None if raw["choices"] is None else tuple(raw["choices"]),
            aliases=tuple(name for name in names if name != dest),
            deprecated=raw["deprecated"],
        )
    return FlagTable(flags, source)


@functools.cache
def recorded_table(version: str | None) -> FlagTable:
    """Return the recorded table of an SGLang version, or an empty one."""
    path = RECORDED / f"sglang-{version}.json"
    if version is None or not path.is_file():
        return FlagTable()
    return table_from(json.loads(path.read_text(encoding="utf-8")), f"recorded for SGLang {version}")


def read_installed(python: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Ask the SGLang of interpreter `python` for its arguments (some seconds); RuntimeError when it cannot say."""
    command = [python, str(PARSER_PROGRAM)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_LONGEST_PARSER_RUN_S, env=env, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"cannot ask {python} for its server arguments: {error}") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise RuntimeError(f"{python} cannot show its server arguments: {last}")
    return json.loads(done.stdout)


def faults(settings: Mapping[str, Any], table: FlagTable) -> Iterator[FlagFault]:
    """Yield what the engine's parser would object to, or silently take for something else."""
    if not table.flags:
        return
    seen: dict[str, str] = {}
    for name, value in settings.items():
        known = table.canonical(name)
        flag = table.get(known)
        if flag is None:
            yield _unknown(name, table)
            continue
        if known in seen:
            reason = f"{seen[known]} and {name} are the same server argument"
            yield FlagFault("flag-twice", name, reason, f"keep {known} only")
        seen[known] = name
        wrong = _wrong_value(flag, value)
        if wrong:
            yield FlagFault("flag-value", name, f"{name}: {value!r} is not {wrong}", f"give {wrong}")
        elif flag.deprecated:
            yield FlagFault("flag-deprecated", name, f"{name} is deprecated in this version", "see the engine's --help")


def well_formed(settings: Mapping[str, Any], table: FlagTable) -> dict[str, Any]:
    """Return the settings under their canonical names, without values of a wrong type: rules compute with the rest.

    An engine whose arguments are not known is taken to have those of the recorded versions.
    """
    result = {}
    for written, value in settings.items():
        name = table.canonical(written)
        flag = table.get(name) or (None if table.flags else _recorded_somewhere().get(name))
        if flag is None or _wrong_value(flag, value) is None:
            result[name] = value
    return result


@functools.cache
def _recorded_somewhere() -> dict[str, Flag]:
    versions = sorted(path.stem.removeprefix("sglang-") for path in RECORDED.glob("sglang-*.json"))
    return {name: flag for version in versions for name, flag in recorded_table(version).flags.items()}


def _unknown(name: str, table: FlagTable) -> FlagFault:
    full = table.abbreviated(name)
    moved = RENAMED.get(name)
    if moved and table.get(moved):
        return FlagFault("unknown-flag", name, f"this engine has no argument {name} ({table.source})", f"use {moved}")
    if len(full) == 1:
        reason = f"{name} is an abbreviation that argparse would silently take for {full[0]}"
        return FlagFault("abbreviated-flag", name, reason, f"write {full[0]}")
    if full:
        reason = f"{name} is the beginning of several arguments: {', '.join(full)}"
        return FlagFault("abbreviated-flag", name, reason, "write one of them in full")
    near = did_you_mean(name, table.flags)
    remedy = f"did you mean {near}?" if near else "remove it, or choose an engine version that has it"
    return FlagFault("unknown-flag", name, f"this engine has no argument {name} ({table.source})", remedy)


def _wrong_value(flag: Flag, value: Any) -> str | None:
    """Return what the value should be, or None when it is fine."""
    if flag.kind in ("switch", "on-off"):
        return None if isinstance(value, bool) else "true or false"
    if flag.kind == "list":
        items = value if isinstance(value, list | tuple) else [value]
        wrong = next((found for item in items if (found := _wrong_item(flag, item))), None)
        return f"a list, each {wrong}" if wrong else None
    return _wrong_item(flag, value)


def _wrong_item(flag: Flag, value: Any) -> str | None:
    if flag.choices is not None and value not in flag.choices:
        return "one of " + ", ".join(map(str, flag.choices))
    match flag.type:
        case "int":
            return None if isinstance(value, int) and not isinstance(value, bool) else "a whole number"
        case "float":
            return None if isinstance(value, int | float) and not isinstance(value, bool) else "a number"
        case "loads" | "json_list_type":
            return None if isinstance(value, str | list | dict) else "JSON"
        case "human_readable_int":
            return None if isinstance(value, int | str) and not isinstance(value, bool) else "a number such as 8k"
        case _:
            return None if isinstance(value, str | int | float) and not isinstance(value, bool) else "text"
