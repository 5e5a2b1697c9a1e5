"""Patches on a source tree: decide, write all files or none, read them again.

A tree is a folder that holds the package: site-packages, an unpacked wheel, a source checkout with `python/<package>`,
or the package folder itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from reckoning import files
from reckoning.patches.definition import Patch, PatchError
from reckoning.patches.resolve import Resolution, resolve


def base_folder(tree: Path, package_folder: str) -> Path:
    """Return the folder below which paths like `<package_folder>/...` are found, for every layout of a tree."""
    for base in (tree, tree / "python", tree / "site-packages"):
        if (base / package_folder).is_dir():
            return base
    if tree.name == package_folder and tree.is_dir():
        return tree.parent
    raise PatchError([f"{tree}: holds no folder {package_folder!r}; give the folder that contains it (site-packages)"])


def status(patches: Iterable[Patch], versions: Mapping[str, str], base: Path) -> Resolution:
    """Decide the set against the files below `base` without changing any."""
    return resolve(patches, versions, lambda path: _read(base / path))


def apply(patches: Iterable[Patch], versions: Mapping[str, str], base: Path) -> tuple[Resolution, dict[str, str]]:
    """Apply the set below `base`, whole or not at all; return the decision and {path: sha256} of the changed files.

    A second run changes nothing. Raises PatchError with every reason when the set does not fit.
    """
    resolution = status(patches, versions, base)
    if resolution.errors:
        raise PatchError(resolution.errors)
    return resolution, write_contents(base, resolution.contents)


def revert(patches: Iterable[Patch], versions: Mapping[str, str], base: Path) -> tuple[Resolution, dict[str, str]]:
    """Take an applied set back: new text becomes old text again, added files are removed."""
    forward = list(patches)
    backward = [
        replace(patch, edits=tuple(edit.reversed() for edit in patch.edits), files=())
        for patch in forward
        if patch.edits
    ]
    resolution = status(backward, versions, base)
    if resolution.errors:
        raise PatchError(resolution.errors)
    hashes = write_contents(base, resolution.contents)
    for patch in forward:
        for item in patch.files:
            if _read(base / item.path) == item.content:
                (base / item.path).unlink()
                drop_byte_code(base / item.path)
    return resolution, hashes


def write_contents(base: Path, contents: Mapping[str, str]) -> dict[str, str]:
    """Write all `contents` below `base`, or restore every file if one fails; return their verified hashes.

    Each file is replaced, not rewritten in place, so that a hard link elsewhere (a package cache) keeps the original.
    """
    before = {path: (base / path).read_bytes() if (base / path).exists() else None for path in contents}
    try:
        for path, content in contents.items():
            files.write_text(base / path, content)
        hashes = {path: files.sha256_file(base / path) for path in contents}
        wrong = [path for path, text in contents.items() if hashes[path] != hashlib.sha256(text.encode()).hexdigest()]
        if wrong:
            raise PatchError([f"{base / path}: reads back differently from what was written" for path in wrong])
    except BaseException:
        for path, content in before.items():
            if content is None:
                (base / path).unlink(missing_ok=True)
            else:
                files.write_bytes(base / path, content)
        raise
    for path in contents:
        drop_byte_code(base / path)
    return hashes


def drop_byte_code(source: Path) -> None:
    """Remove compiled forms of `source`, so that no interpreter runs the text that was there before."""
    for compiled in (source.parent / "__pycache__").glob(f"{source.stem}.*.pyc"):
        compiled.unlink(missing_ok=True)


def _read(path: Path) -> str | None:
    return path.read_bytes().decode() if path.is_file() else None
