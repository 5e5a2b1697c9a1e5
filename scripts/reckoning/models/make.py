"""Makes a model folder (config, tokenizer, weights) from a fixed seed, whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reckoning import files
from reckoning.models import kimi_slice, tiny_kimi

MARK = "made.json"

# A maker writes its files into an empty folder; its version is raised when the bytes that it writes change.
MAKERS: dict[str, tuple[int, Callable[[Path], dict[str, Any]]]] = {
    "kimi-k2.6-slice": (1, kimi_slice.write),
    "kimi-k2.6-slice-dflash": (1, kimi_slice.write_draft),
    "tiny-kimi": (1, tiny_kimi.write),
}
DRAFT_MAKERS = {"kimi-k2.6-slice": "kimi-k2.6-slice-dflash"}


def make(maker: str, path: Path) -> dict[str, Any]:
    """Make the model of `maker` at `path` and return its facts, with the hash of every file.

    A complete folder of the same maker and version is left as it is. The folder appears under its name only when all
    files are written; a folder that holds something else is never overwritten (FileExistsError).
    """
    if maker not in MAKERS:
        raise ValueError(f"model.maker: {maker!r} is not known; there are {', '.join(sorted(MAKERS))}")
    version, write = MAKERS[maker]
    found = _made(path)
    if found and (found["maker"], found["maker_version"]) == (maker, version) and _whole(path, found):
        return found
    if path.exists() and found is None and any(path.iterdir()):
        raise FileExistsError(f"model.path: {path} exists and was not made here; name another folder or remove it")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
    part.chmod(0o755)
    try:
        facts = write(part)
        hashes = {item.name: files.sha256_file(item) for item in sorted(part.iterdir())}
        document = {"schema_version": 1, "maker": maker, "maker_version": version, "facts": facts, "files": hashes}
        files.write_json(part / MARK, document)
        if path.exists():
            shutil.rmtree(path)
        part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return document


def _made(path: Path) -> dict[str, Any] | None:
    """Return the mark of a folder that was made here, or None."""
    if not (path / MARK).is_file():
        return None
    document = files.read_json(path / MARK)
    return document if isinstance(document, dict) and "maker" in document else None


def _whole(path: Path, document: dict[str, Any]) -> bool:
    """Return whether every file is still as it was written."""
    return all(
        (path / name).is_file() and files.sha256_file(path / name) == value for name, value in document["files"].items()
    )
