"""Print the server arguments that an installed SGLang understands, as JSON. Run by the engine's own interpreter.

    PYTHON engine_parser.py > resources/engines/sglang-VERSION.json

It asks SGLang's own argparse parser, so aliases, choices and defaults are those of a launch. Packages that SGLang
imports but that this machine lacks (Triton on a CPU) are replaced by stand-ins and listed under `stand_ins`: no code
of theirs is needed to build the parser. Only the standard library is used here.
"""

import argparse
import contextlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import io
import json
import os
import sys
import types

SCHEMA_VERSION = 1
_STAND_INS = "RECKONING_PARSER_STAND_INS"


class _Anything:
    """Takes part in any import: has every attribute, and as a decorator it returns what it decorates."""

    def __init__(self, *_args, **_keywords):
        pass

    def __getattr__(self, name):
        if name.startswith("__") or name == "backend":  # SGLang asks Triton's driver for the name of its backend
            raise AttributeError(name)
        return _Anything()

    def __call__(self, *arguments, **_keywords):
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) else _Anything()

    def __mro_entries__(self, _bases):
        return ()


class _AnyClass(type):
    def __call__(cls, *_args, **_keywords):
        return _Anything()

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything()


class _StandIn(types.ModuleType):
    __path__ = ()
    __version__ = "99.0.0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "dumps":  # SGLang pickles a class while it is imported
            return lambda _value: b""
        return _AnyClass(name, (), {}) if name[:1].isupper() else _Anything()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names):
        self._names = names

    def find_spec(self, fullname, _path=None, _target=None):
        if fullname.partition(".")[0] in self._names:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        return _StandIn(spec.name)

    def exec_module(self, module):
        pass


def main():
    stand_ins = [name for name in os.environ.get(_STAND_INS, "").split(",") if name]
    sys.meta_path.insert(0, _Finder(stand_ins))
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # some packages greet on import
            parser = _parser()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing == "sglang" or missing in stand_ins:
            raise
        os.environ[_STAND_INS] = ",".join([*stand_ins, missing])
        os.execv(sys.executable, [sys.executable, *sys.argv])
    flags = [_described(action) for action in parser._actions if action.dest != "help"]
    found = {
        "schema_version": SCHEMA_VERSION,
        "sglang_version": _version(),
        "stand_ins": stand_ins,
        "flags": sorted(flags, key=lambda flag: (flag["dest"], flag["options"])),
    }
    json.dump(found, sys.stdout, indent=1, allow_nan=False)
    sys.stdout.write("\n")


def _parser():
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return parser


def _version():
    import sglang

    version = getattr(sglang, "__version__", None)
    return version if isinstance(version, str) else importlib.metadata.version("sglang")


def _described(action):
    kind = type(action).__name__
    on_off = isinstance(action, argparse.BooleanOptionalAction)
    listed = action.nargs in ("*", "+") or (isinstance(action.nargs, int) and action.nargs > 1)
    takes_value = not on_off and action.nargs != 0
    return {
        "dest": action.dest,
        "options": [option for option in action.option_strings if not (on_off and option.startswith("--no-"))],
        "kind": "on-off" if on_off else "list" if listed else "value" if takes_value else "switch",
        "type": getattr(action.type, "__name__", None) if takes_value else None,
        "choices": None if action.choices is None else [_plain(choice) for choice in action.choices],
        "default": _plain(action.default),
        "required": bool(action.required),
        "deprecated": "deprecated" in kind.lower() or "deprecated" in (action.help or "").lower(),
    }


def _plain(value):
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value if value not in (float("inf"), float("-inf")) else str(value)
    return getattr(value, "value", None) if isinstance(getattr(value, "value", None), str) else str(value)


if __name__ == "__main__":
    main()
