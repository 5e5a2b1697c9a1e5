"""The managed engines of envs/engines.yaml: which locks make one, for which Python."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

import yaml
from packaging.specifiers import SpecifierSet

from reckoning import files

ENVS = Path(__file__).resolve().parents[3] / "envs"


class EngineError(RuntimeError):
    """The engine cannot be built or used; the message says what was found and what to do."""


@dataclass(frozen=True)
class Lock:
    """One lock file of an engine, and the condition under which it is installed."""

    path: Path
    when: str | None = None


@dataclass(frozen=True)
class EngineSpec:
    """A managed engine: `package` at `version` from `locks`, for interpreters in the range `python`."""

    name: str
    package: str
    version: str
    device: str
    python: str
    locks: tuple[Lock, ...]

    def key(self, python_version: str) -> str:
        """Return the folder name of this engine for a Python such as 3.11: name, Python, and a hash of every lock."""
        content = [[lock.path.name, lock.when, files.sha256_file(lock.path)] for lock in self.locks]
        return f"{self.name}-py{python_version}-{files.digest([content, platform.machine()])[:12]}"

    @property
    def lock_sha256(self) -> str:
        """Return the hash of the lock that names the engine itself (the last one)."""
        return files.sha256_file(self.locks[-1].path)

    def supports(self, python_version: str) -> bool:
        """Return whether an interpreter such as 3.12 can run this engine."""
        return SpecifierSet(self.python).contains(python_version)


def load_specs(envs: Path = ENVS) -> dict[str, EngineSpec]:
    """Read envs/engines.yaml."""
    document = yaml.safe_load((envs / "engines.yaml").read_text(encoding="utf-8"))
    return {
        name: EngineSpec(
            name=name,
            package=entry["package"],
            version=entry["version"],
            device=entry["device"],
            python=entry["python"],
            locks=tuple(Lock(envs / item["file"], item.get("when")) for item in entry["locks"]),
        )
        for name, entry in document.items()
    }


def spec_for(lock: str | None, envs: Path = ENVS) -> EngineSpec:
    """Return the engine that a config's `engine.lock` names, or raise EngineError with the names that exist."""
    specs = load_specs(envs)
    if lock not in specs:
        raise EngineError(
            f"engine.lock: {lock!r} is not in {envs / 'engines.yaml'}; there are {', '.join(sorted(specs))}"
        )
    return specs[lock]
