"""Secrets out of every string before it reaches a page: keys, tokens, passwords, user names, home paths.

Two rules. A value whose *name* says secret (`api_key`, `HF_TOKEN`) is replaced whole. Every other string is searched
for the known forms of credentials and for home paths. The user names met in home paths are then removed wherever else
they stand, as in `alice@node7`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

REMOVED = "[removed]"
COMMON_USERS = frozenset(
    (
        "root",
        "user",
        "users",
        "ubuntu",
        "debian",
        "admin",
        "runner",
        "default",
        "home",
        "public",
        "shared",
        "data",
        "model",
    )
)

_SECRET_NAME = re.compile(
    r"(?:^|[_.\-])(?:api_?key|access_?key(?:_?id)?|private_?key|secret(?:_?key)?|secrets|password|passwd|passphrase"
    r"|credentials?|authorization|auth_?token|access_?token|bearer_?token|(?:hf|hub|github|gh|ngc|wandb)_?token|token)$",
    re.IGNORECASE,
)
_VOCABULARY_NAME = re.compile(
    r"(?:^|_)(?:eos|bos|pad|unk|mask|sep|cls|stop|image|first|last|next|per)_token$", re.IGNORECASE
)

_HOME = re.compile(r"(?P<home>(?:/home|/Users|/export/home|[A-Za-z]:\\Users)[/\\](?P<user>[^/\\\s\"'<>:;,)\]]+))")
_ROOT_HOME = re.compile(r"(?<![\w./-])/root(?=[/\s\"':;,)\]]|$)")

_VALUE = r"(?:\"[^\"]*\"|'[^']*'|[^\s,;&\"'}\])]+)"
_SECRET_WORD = (
    r"(?:[A-Za-z0-9]+[_\-])*(?:api[_\-]?key|access[_\-]?key|private[_\-]?key|secret(?:[_\-]?key)?|password|passwd|"
    r"passphrase|auth[_\-]?token|access[_\-]?token|(?:hf|hub|github|gh|ngc|wandb|bearer)[_\-]?token)"
)
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
        REMOVED,
    ),
    (re.compile(r"(?i)(\bauthorization\b[\"']?\s*[:=]\s*[\"']?)(?:(?:bearer|basic)\s+)?[^\s\"',;]+"), rf"\1{REMOVED}"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=\-]{8,}"), rf"\1 {REMOVED}"),
    (re.compile(rf"(?i)(--{_SECRET_WORD}(?:\s+|=))(?!-){_VALUE}"), rf"\1{REMOVED}"),
    (
        re.compile(rf"(?i)(?<![\w-])({_SECRET_WORD}[\"']?\s*[:=]\s*)(?!None\b|null\b|False\b|True\b){_VALUE}"),
        rf"\1{REMOVED}",
    ),
    (re.compile(r"(?i)((?:^|[\s,{(\"'])TOKEN[\"']?\s*=\s*)[^\s,;\"']{6,}"), rf"\1{REMOVED}"),
    (re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"), REMOVED),
    (re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_\-]{5,}"), REMOVED),
    (re.compile(r"\bhf_[A-Za-z0-9]{8,}"), REMOVED),
    (re.compile(r"\bnvapi-[A-Za-z0-9_\-]{8,}"), REMOVED),
    (re.compile(r"\b(?:gh[opusr]_[A-Za-z0-9]{8,}|github_pat_\w{8,}|glpat-[\w\-]{8,})"), REMOVED),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}"), REMOVED),
    (re.compile(r"\bxox[abprs]-[A-Za-z0-9\-]{8,}"), REMOVED),
    (re.compile(r"\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]*"), REMOVED),
    (
        re.compile(r"(?i)(\b(?:user(?:name)?|logname|login)[\"']?\s*[:=]\s*[\"']?)(?!None\b|null\b)[A-Za-z_][\w.\-]*"),
        rf"\1{REMOVED}",
    ),
    (re.compile(r"\b[\w.+\-]+@[\w\-]+(?:\.[\w\-]+)+\b"), "[address removed]"),
)


@dataclass(frozen=True)
class Redactor:
    """Removes secrets from strings and from whole JSON values.

    `users` are user names to remove wherever they stand as a word, beside those that a home path gives away. `root` is
    the folder of the experiment's repository: paths below it are shown from there.
    """

    users: frozenset[str] = frozenset()
    root: str = ""

    def text(self, text: str) -> str:
        """Return `text` without secrets; home paths become `~`."""
        if self.root:
            text = text.replace(self.root + "/", "")
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        text = _HOME.sub("~", text)
        text = _ROOT_HOME.sub("~", text)
        for user in sorted(self.users, key=len, reverse=True):
            text = re.sub(rf"(?<![\w]){re.escape(user)}(?![\w])", "[user]", text)
        return text

    def value(self, value: Any, name: str = "") -> Any:
        """Return a JSON value without secrets: by the name of a key first, then by the form of its text."""
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(item, str(key)) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return self._items(value)
        if isinstance(value, str):
            return REMOVED if value and is_secret_name(name) else self.text(value)
        return value

    def _items(self, values: Iterable[Any]) -> list[Any]:
        """Return the items of a list without secrets; a command's `--api-key` takes the next item with it."""
        kept: list[Any] = []
        after_secret_option = False
        for item in values:
            if after_secret_option and isinstance(item, str) and not item.startswith("--"):
                kept.append(REMOVED)
            else:
                kept.append(self.value(item))
            after_secret_option = (
                isinstance(item, str) and item.startswith("--") and is_secret_name(item.lstrip("-").replace("-", "_"))
            )
        return kept


def is_secret_name(name: str) -> bool:
    """Say whether a key of this name holds a credential: `HF_TOKEN` does, `eos_token` and `max_total_tokens` do not."""
    return bool(_SECRET_NAME.search(name)) and not _VOCABULARY_NAME.search(name)


def users_in(values: Iterable[Any]) -> frozenset[str]:
    """Return the user names that home paths in these JSON values give away, but for names that are ordinary words."""
    found: set[str] = set()
    stack = list(values)
    while stack:
        value = stack.pop()
        if isinstance(value, Mapping):
            stack.extend(value.keys())
            stack.extend(value.values())
        elif isinstance(value, list | tuple):
            stack.extend(value)
        elif isinstance(value, str):
            found.update(match["user"] for match in _HOME.finditer(value))
    return frozenset(user for user in found if len(user) > 2 and user.lower() not in COMMON_USERS)
