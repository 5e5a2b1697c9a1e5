"""Why a launch failed, in the shape of outcome.json: the first cause that the log tells, else what we saw."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Any

from reckoning.serverlog import LogReading

HIDDEN = "[hidden]"


class LaunchFailed(Exception):
    """A launch ended without its measurement. Carries what the launcher itself saw.

    `from_log`: a cause that the log tells is nearer to the truth than this sighting and takes its place. `exit_code` is
    that of a server that ended by itself.
    """

    def __init__(
        self,
        class_: str,
        cause: str,
        remedy: str,
        *,
        stage: str | None = None,
        evidence: str = "",
        from_log: bool = True,
        exit_code: int | None = None,
    ) -> None:
        super().__init__(cause)
        self.class_, self.cause, self.remedy = class_, cause, remedy
        self.stage, self.evidence, self.from_log, self.exit_code = stage, evidence, from_log, exit_code


def describe(failed: LaunchFailed, reading: LogReading | None, secrets: Iterable[str] = ()) -> dict[str, Any]:
    """Return `failure` of outcome.json. What the launcher saw stays visible beside a cause that the log told."""
    found = reading.cause if reading and failed.from_log else None
    stage = failed.stage or (reading.last_stage if reading else None)
    if found:
        failure = {
            "class": found.class_,
            "stage": found.stage or stage,
            "cause": found.cause,
            "evidence": found.evidence,
            "remedy": found.remedy,
            "seen": failed.cause,
        }
    else:
        failure = {
            "class": failed.class_,
            "stage": stage,
            "cause": failed.cause,
            "evidence": failed.evidence,
            "remedy": failed.remedy,
            "seen": failed.cause,
        }
    failure["log_excerpt"] = reading.excerpt if reading else ""
    return {key: hide(value, secrets) if isinstance(value, str) else value for key, value in failure.items()}


def hide(text: str, secrets: Iterable[str]) -> str:
    """Return the text without the secrets, nor anything that is written like one (`api_key='...'`, `hf_...`)."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= 4:
            text = text.replace(secret, HIDDEN)
    return SECRET_IN_TEXT.sub(lambda found: (found[1] or "") + HIDDEN, text)


SECRET_IN_TEXT = re.compile(
    r"((?:api[_-]?key|password|secret|hf_token|access[_-]?token)['\"]?\s*[=:]\s*['\"]?)(?!None\b|null\b|\*+)[^\s'\",)}\[]+"
    r"|(\b(?=hf_|sk-))(?:hf_|sk-)[A-Za-z0-9_-]{6,}",
    re.IGNORECASE,
)
SECRET_KEY = re.compile(r"api_?key|password|secret|(?:hf|access|auth|bearer)_?token", re.IGNORECASE)


def without_secrets(value: Any, secrets: Iterable[str] = ()) -> Any:
    """Return a JSON value with the content of every secret key hidden, and every known secret in its texts.

    At any depth; empty values of secret keys stay as they are.
    """
    if isinstance(value, dict):
        return {
            key: HIDDEN
            if SECRET_KEY.search(str(key)) and item not in (None, "", False)
            else without_secrets(item, secrets)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(item, secrets) for item in value]
    return hide(value, secrets) if isinstance(value, str) else value


def command_secrets(command: list[str], env: dict[str, str]) -> list[str]:
    """Return the secret values in a command and its environment."""
    found = [value for name, value in env.items() if SECRET_KEY.search(name) and value]
    for word, following in itertools.pairwise([*command, ""]):
        name, equals, rest = word.partition("=")
        if name.startswith("--") and SECRET_KEY.search(name.replace("-", "_")):
            found.append(rest if equals else following)
    return [value for value in found if value]
