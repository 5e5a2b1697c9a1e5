"""Patches as the files in envs/patches/ describe them: read, checked, named sets expanded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import jsonschema
import yaml
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from reckoning import files

SCHEMA_PATH = Path(__file__).resolve().parents[3] / "workflow" / "schemas" / "patch.schema.json"
DEFAULT_FOLDER = Path(__file__).resolve().parents[3] / "envs" / "patches"


class PatchError(ValueError):
    """A patch is badly written, unknown, or does not fit the source. The message lists every fault, one a line."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))


@dataclass(frozen=True)
class Edit:
    """Replace `old`, found exactly `count` times in `file` (relative to site-packages), by `new`."""

    file: str
    old: str
    new: str
    count: int = 1
    versions: str = ""

    def reversed(self) -> Edit:
        """Return the edit that takes this one back."""
        return Edit(self.file, self.new, self.old, self.count, self.versions)


@dataclass(frozen=True)
class AddedFile:
    """A file that the patch adds under site-packages, with its content."""

    path: str
    content: str
    versions: str = ""


@dataclass(frozen=True)
class Patch:
    """One patch: why it exists, where it applies, and what it changes."""

    id: str
    title: str
    why: str
    upstream: str | None
    package: str
    versions: str
    arms: str
    remove_when: str
    probe: dict[str, str]
    edits: tuple[Edit, ...] = ()
    files: tuple[AddedFile, ...] = ()

    def needed(self, version: str) -> bool:
        """Return whether `version` of the package has the fault (local part such as +cu130 ignored)."""
        return in_range(version, self.versions)

    def edits_for(self, version: str) -> tuple[Edit, ...]:
        """Return the edits that serve `version`."""
        return tuple(edit for edit in self.edits if in_range(version, edit.versions))

    def files_for(self, version: str) -> tuple[AddedFile, ...]:
        """Return the added files that serve `version`."""
        return tuple(item for item in self.files if in_range(version, item.versions))

    @cached_property
    def sha256(self) -> str:
        """Hash of all that can change a source tree: package, versions, edits and added files, not the prose."""
        return files.digest([self.package, self.versions, self.edits, self.files])


def in_range(version: str, specifier: str) -> bool:
    """Return whether a PEP 440 `version` lies in `specifier`; pre-releases count, the local part does not."""
    return SpecifierSet(specifier).contains(Version(version), prereleases=True)


def load(folder: Path) -> Patch:
    """Read `folder/patch.yaml`; every fault in it is named in one PatchError."""
    path = folder / "patch.yaml"
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PatchError([f"{path}: cannot be read ({error.strerror})"]) from error
    except yaml.YAMLError as error:
        raise PatchError([f"{path}: not YAML: {error}"]) from error
    faults = [f"{path}: {fault}" for fault in _faults(document, folder)]
    if faults:
        raise PatchError(faults)
    added = tuple(
        AddedFile(item["path"], (folder / "files" / item["path"]).read_bytes().decode(), item.get("versions", ""))
        for item in document.pop("files", [])
    )
    edits = tuple(Edit(**item) for item in document.pop("edits", []))
    document.pop("schema_version")
    return Patch(**document, edits=edits, files=added)


def load_all(folder: Path = DEFAULT_FOLDER) -> dict[str, Patch]:
    """Read every patch below `folder`; the faults of all are named together."""
    patches: dict[str, Patch] = {}
    faults: list[str] = []
    for path in sorted(folder.glob("*/patch.yaml")):
        try:
            patches[path.parent.name] = load(path.parent)
        except PatchError as error:
            faults.extend(error.faults)
    if faults:
        raise PatchError(faults)
    return patches


def sets(folder: Path = DEFAULT_FOLDER) -> dict[str, list[str]]:
    """Return the named sets of `folder/sets.yaml`: a name that stands for several patches."""
    path = folder / "sets.yaml"
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}


def known(folder: Path = DEFAULT_FOLDER) -> list[str]:
    """Return every name that an arm may use: patches and named sets."""
    return sorted({path.parent.name for path in folder.glob("*/patch.yaml")} | set(sets(folder)))


def expand(names: Iterable[str], folder: Path = DEFAULT_FOLDER) -> list[Patch]:
    """Return the patches that `names` (patches or named sets) stand for, each once, sorted by name."""
    groups = sets(folder)
    wanted = {item for name in names for item in groups.get(name, [name])}
    available = load_all(folder)
    missing = sorted(wanted - available.keys())
    if missing:
        raise PatchError([f"{folder}: no patch {name!r}; there are {', '.join(known(folder))}" for name in missing])
    return [available[name] for name in sorted(wanted)]


def folder_sha256(folder: Path) -> str:
    """Return the hash of all files of a patch's folder, prose included (what a reader may compare)."""
    digest = hashlib.sha256()
    for path in sorted(item for item in folder.rglob("*") if item.is_file() and item.suffix != ".pyc"):
        digest.update(f"{path.relative_to(folder)}\0{files.sha256_file(path)}\n".encode())
    return digest.hexdigest()


def _faults(document: Any, folder: Path) -> list[str]:
    schema = files.read_json(SCHEMA_PATH)
    validator = jsonschema.Draft202012Validator(schema)
    errors = sorted(validator.iter_errors(document), key=lambda error: list(map(str, error.absolute_path)))
    if errors:
        return [f"{'.'.join(map(str, error.absolute_path)) or 'top level'}: {error.message}" for error in errors]
    found = []
    if document["id"] != folder.name:
        found.append(f"id: {document['id']!r} differs from the folder's name {folder.name!r}; make them equal")
    specifiers = [("versions", document["versions"])]
    for kind in ("edits", "files"):
        for index, item in enumerate(document.get(kind, [])):
            specifiers.append((f"{kind}.{index}.versions", item.get("versions", "")))
            path = item.get("file") or item["path"]
            if ".." in PurePosixPath(path).parts or PurePosixPath(path).is_absolute():
                found.append(f"{kind}.{index}: {path!r} leaves site-packages; use a relative path without '..'")
            elif kind == "files" and not (folder / "files" / path).is_file():
                found.append(f"files.{index}.path: {folder / 'files' / path} does not exist; add it or drop the entry")
            if kind == "edits" and item["old"] == item["new"]:
                found.append(f"edits.{index}: `old` and `new` are the same text; nothing would change")
    for key, text in specifiers:
        try:
            SpecifierSet(text)
        except InvalidSpecifier:
            found.append(f"{key}: {text!r} is not a PEP 440 specifier set, such as '>=0.5.9,<0.5.17'")
    return found
