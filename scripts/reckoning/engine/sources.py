"""What an engine is built from, as one digest."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from reckoning import files, patches
from reckoning.engine.spec import ENVS, spec_for


def sources_digest(engine: Mapping[str, Any], patch_names: Collection[str] = (), envs: Path = ENVS) -> str:
    """Return the SHA-256 (hex) over the locks of a plan's engine and every file of the patches.

    Equal digests mean the same packages with the same edits. An existing engine counts by its interpreter's path and
    version, since what is installed there is not ours to hash.
    """
    if engine["kind"] == "managed":
        locks = [
            [lock.path.name, lock.when, files.sha256_file(lock.path)] for lock in spec_for(engine["lock"], envs).locks
        ]
    else:
        locks = [engine.get("python"), engine.get("version")]
    edits = [
        [str(path.relative_to(envs)), files.sha256_file(path)]
        for patch in patches.expand(patch_names, envs / "patches")
        for path in sorted((envs / "patches" / patch.id).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]
    return files.digest([locks, edits])
