"""The model stage: make the embedded model, or record the one that the configuration names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from reckoning import files
from reckoning.models.make import DRAFT_MAKERS, make

HASHED_BELOW_BYTES = 64 * 2**20


def prepare(model: dict[str, Any], root: Path, progress: Callable[[str], None] = print) -> dict[str, Any]:
    """Return what model.json records: path, maker, the size of every file and the hash of every small one.

    `model` is the plan's; a maker makes the folder when it is not there. Raises FileNotFoundError, with the remedy, for
    a model that neither lies at its path nor has a maker.
    """
    path = root / model["path"]
    if model.get("maker"):
        progress(f"model: {model['maker']} at {model['path']}")
        make(model["maker"], path)
        if model.get("draft") and model["maker"] in DRAFT_MAKERS:
            make(DRAFT_MAKERS[model["maker"]], root / model["draft"]["path"])
    if not path.is_dir():
        raise FileNotFoundError(
            f"model.path: {model['path']} is not a folder; download the model there, or correct the path in the config"
        )
    found = sorted(item for item in path.rglob("*") if item.is_file())
    return {
        "schema_version": 1,
        "path": model["path"],
        "maker": model.get("maker"),
        "files": {str(item.relative_to(path)): item.stat().st_size for item in found},
        "sha256": {
            str(item.relative_to(path)): files.sha256_file(item)
            for item in found
            if item.stat().st_size < HASHED_BELOW_BYTES
        },
    }
