"""Removing what says who and where: home folders, user and host names. Facts are meant to be sent to strangers."""

from __future__ import annotations

import getpass
import os
import re
import socket
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parent.parent  # where this program lies says who installed it


def scrub(value: Any, *, home: str | None = None, host: str | None = None, user: str | None = None) -> Any:
    """Return `value` (nested JSON) with home folders as `~` and the host's and user's names replaced."""
    home = home if home is not None else os.path.expanduser("~")  # noqa: PTH111 (HOME may be unset)
    host = host if host is not None else socket.gethostname()
    user = user if user is not None else _user()
    rules: list[tuple[re.Pattern[str], str]] = [(re.compile(re.escape(str(PACKAGE))), "<reckoning>")]
    if len(home) > 1:
        rules.append((re.compile(rf"(?<![\w.]){re.escape(home)}(?=/|$|[\s:;,'\"])"), "~"))
    rules.append((re.compile(r"/(?:home|Users)/[^/\s:;,'\"]+"), "~"))
    for name in {host, host.split(".")[0]}:
        if len(name) > 2 and name not in ("localhost", "linux"):
            rules.append((re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])"), "<host>"))
    if user and len(user) > 2 and user != "root":
        rules.append((re.compile(rf"(?<![\w.-]){re.escape(user)}(?![\w-])"), "<user>"))
    return _walk(value, rules)


def _walk(value: Any, rules: list[tuple[re.Pattern[str], str]]) -> Any:
    if isinstance(value, str):
        for pattern, name in rules:
            value = pattern.sub(name, value)
        return value
    if isinstance(value, dict):
        return {_walk(key, rules): _walk(item, rules) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(item, rules) for item in value]
    return value


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
