"""The machine as a probe sees it: its root folder, its environment variables, and commands with a time limit.

Tests give another root and other variables; the probes never look past this object.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LONGEST_OUTPUT = 200_000  # characters kept of what one command printed


@dataclasses.dataclass(frozen=True)
class CommandResult:
    """What a command printed. `code` is None when it was not found or was ended at its time limit."""

    argv: tuple[str, ...]
    code: int | None
    output: str
    errors: str
    timed_out: bool
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether the command ran and ended with code 0."""
        return self.code == 0

    def as_fact(self) -> dict[str, Any]:
        """Return the command as it is kept in the facts, without its output."""
        return {
            "argv": list(self.argv),
            "code": self.code,
            "timed_out": self.timed_out,
            "seconds": round(self.seconds, 3),
        }


class Machine:
    """A root folder, environment variables and a record of the commands that were run."""

    def __init__(self, root: str | os.PathLike[str] = "/", environ: Mapping[str, str] | None = None) -> None:
        self.root = Path(root)
        self.environ = dict(os.environ if environ is None else environ)
        self.commands: list[CommandResult] = []

    def path(self, absolute: str) -> Path:
        """Return where an absolute path of this machine lies."""
        return self.root / absolute.lstrip("/")

    def variable(self, name: str) -> str | None:
        """Return an environment variable; an empty one counts as unset, as it does for FlashInfer."""
        return self.environ.get(name) or None

    def which(self, name: str) -> str | None:
        """Return the first executable of this name on PATH, unresolved, as `which` prints it."""
        return shutil.which(name, path=self.environ.get("PATH", os.defpath))

    def which_all(self, name: str) -> list[str]:
        """Return every executable of this name on PATH, in the order of PATH."""
        found: list[str] = []
        for folder in self.environ.get("PATH", os.defpath).split(os.pathsep):
            candidate = shutil.which(name, path=folder) if folder else None
            if candidate and candidate not in found:
                found.append(candidate)
        return found

    def text(self, absolute: str, limit: int = LONGEST_OUTPUT) -> str | None:
        """Return a file's text, or None when it cannot be read."""
        try:
            with self.path(absolute).open(encoding="utf-8", errors="replace") as stream:
                return stream.read(limit)
        except OSError:
            return None

    def run(
        self,
        argv: Sequence[str],
        timeout_s: float = 15.0,
        environ: Mapping[str, str] | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> CommandResult:
        """Run a command in its own session; at the time limit its group is ended. Never raises for the command."""
        began = time.monotonic()
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env={**self.environ, "LC_ALL": "C", **(environ or {})},
                cwd=folder,
                start_new_session=True,
            )
        except OSError as error:
            result = CommandResult(tuple(argv), None, "", f"{type(error).__name__}: {error.strerror}", False, 0.0)
            self.commands.append(result)
            return result
        timed_out = False
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            timed_out = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            try:
                output, errors = process.communicate(timeout=5)
            except subprocess.TimeoutExpired:  # a child left the group and holds the pipe
                process.kill()
                output, errors = "", ""
        seconds = time.monotonic() - began
        code = None if timed_out else process.returncode
        result = CommandResult(tuple(argv), code, output[:LONGEST_OUTPUT], errors[:LONGEST_OUTPUT], timed_out, seconds)
        self.commands.append(result)
        return result
