"""An overlay: copies of the patched packages, first on the server's PYTHONPATH, so that no installed file is touched.

The folder's name is a hash of what it was made from (the interpreter's packages and the patches), so equal patch sets
share one and a changed patch gets a new one. It is made under a temporary name and renamed when it is verified.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reckoning import files
from reckoning.engine.inspect import Installed, clean_environment
from reckoning.engine.proof import FOOTER, MODULE, MODULE_TEXT
from reckoning.engine.spec import EngineError
from reckoning.patches import Patch, PatchError, Resolution, resolve
from reckoning.patches.tree import write_contents

MANIFEST = "overlay.json"
NO_OVERLAY = "none"

# Compiled results that a patched package must not share with an unpatched one: their caches are keyed by names and
# not by the sources that the patch may change.
_CACHES = {"flashinfer": "FLASHINFER_WORKSPACE_BASE", "sglang/jit_kernel": "TVM_FFI_CACHE_DIR"}


@dataclass(frozen=True)
class Overlay:
    """One patch set made for one engine: `path` is None where no file had to change."""

    id: str
    path: Path | None
    resolution: Resolution
    files: Mapping[str, str]
    env: Mapping[str, str]

    def record(self, inherited: Sequence[str] = ()) -> dict[str, Any]:
        """Return the entry of engine.json; `inherited` folders stay on the server's path, behind the overlay."""
        return {
            "path": str(self.path) if self.path else None,
            "pythonpath": [*([str(self.path)] if self.path else []), *inherited],
            "env": dict(self.env),
            "files": dict(self.files),
            "patches": [
                {
                    "id": outcome.patch.id,
                    "title": outcome.patch.title,
                    "status": outcome.status,
                    "reasons": list(outcome.reasons),
                    "package": outcome.patch.package,
                    "version": outcome.version,
                    "versions": outcome.patch.versions,
                    "sha256": outcome.patch.sha256,
                    "upstream": outcome.patch.upstream,
                    "why": outcome.patch.why.strip(),
                    "remove_when": outcome.patch.remove_when,
                    "probe": outcome.patch.probe,
                    "files": sorted(
                        {edit.file for edit in outcome.patch.edits} | {item.path for item in outcome.patch.files}
                    ),
                }
                for outcome in self.resolution.outcomes
            ],
        }


def import_names(patches: Sequence[Patch]) -> list[str]:
    """Return the package folders that the edits of `patches` lie in."""
    return sorted({edit.file.split("/", 1)[0] for patch in patches for edit in patch.edits})


def make_overlay(patches: Sequence[Patch], installed: Installed, overlays: Path) -> Overlay:
    """Make (or find) the overlay of `patches` for an interpreter; a set that does not fit raises PatchError."""
    sources = {name: Path(folder) for name, folder in installed.folders.items() if folder}

    def source_of(path: str) -> Path | None:
        name, _, rest = path.partition("/")
        return sources[name] / rest if name in sources else None

    def read(path: str) -> str | None:
        source = source_of(path)
        return source.read_bytes().decode() if source and source.is_file() else None

    resolution = _resolve(patches, installed, read)
    if not resolution.contents:
        return Overlay(NO_OVERLAY, None, resolution, {}, {})
    added = {item.path for patch in patches for item in patch.files}
    contents = {path: _with_footer(path, text, added) for path, text in resolution.contents.items()}
    packages = sorted({path.split("/", 1)[0] for path in contents} & sources.keys())
    identity = {
        "contents": {path: files.digest(text) for path, text in contents.items()},
        "packages": {name: [str(sources[name]), _fingerprint(sources[name])] for name in packages},
        "python": installed.python_version,
        "proof": MODULE_TEXT,
    }
    name = files.digest(identity)[:16]
    target = overlays / name
    env = {
        variable: str(overlays / f"{name}-cache" / variable.lower())
        for prefix, variable in _CACHES.items()
        if any(path.startswith(prefix) for path in contents)
    }
    hashes = _verified(target)
    if hashes is None:
        hashes = _write(target, contents, {name: sources[name] for name in packages}, installed.python)
    return Overlay(name, target, resolution, hashes, env)


def discard_unfinished(overlays: Path) -> None:
    """Remove what a killed builder left; the caller holds the builders' lock."""
    for part in overlays.glob(".*.part"):
        shutil.rmtree(part, ignore_errors=True)


def _resolve(patches: Sequence[Patch], installed: Installed, read: Any) -> Resolution:
    resolution = resolve(patches, installed.packages, read)
    if resolution.errors:
        raise PatchError(resolution.errors)
    return resolution


def _fingerprint(folder: Path) -> str:
    """Return a hash of names, sizes and times below `folder`: an editable checkout can change without a new version."""
    stats = ((path, path.stat()) for path in folder.rglob("*") if path.suffix != ".pyc" and path.is_file())
    return files.digest(sorted((str(path.relative_to(folder)), stat.st_size, stat.st_mtime_ns) for path, stat in stats))


def _with_footer(path: str, text: str, added: Collection[str]) -> str:
    """Let every edited module announce itself; of an added package only its top, which all imports pass."""
    if not path.endswith(".py") or (path in added and not (path.count("/") == 1 and path.endswith("/__init__.py"))):
        return text
    return text + ("" if text.endswith("\n") else "\n") + FOOTER


def _write(target: Path, contents: Mapping[str, str], packages: Mapping[str, Path], python: str) -> dict[str, str]:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    part = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part"))
    part.chmod(0o755)
    try:
        for name, source in packages.items():
            # Real copies: an edit or fresh byte code must never reach the installed file through a link.
            shutil.copytree(source, part / name, symlinks=False)
        hashes = write_contents(part, {**contents, f"{MODULE}.py": MODULE_TEXT})
        files.write_json(part / MANIFEST, {"schema_version": 1, "files": hashes})
        _compile(part, hashes, python)
        part.rename(target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    if _verified(target) is None:
        raise EngineError(f"{target}: does not read back as it was written; check the disk")
    return hashes


def _compile(part: Path, paths: Mapping[str, str], python: str) -> None:
    """Compile the edited sources with the engine's interpreter: a syntax error shows now, not in a server's log."""
    sources = [path for path in paths if path.endswith(".py")]
    command = [python, "-m", "py_compile", *sources]
    done = subprocess.run(command, cwd=part, env=clean_environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EngineError(f"a patched file does not compile: {done.stderr.strip()[-800:]}")


def _verified(target: Path) -> dict[str, str] | None:
    """Return the hashes of a complete overlay, read again from its files, or None."""
    if not (target / MANIFEST).is_file():
        return None
    hashes = files.read_json(target / MANIFEST)["files"]
    same = all(
        (target / path).is_file() and files.sha256_file(target / path) == value for path, value in hashes.items()
    )
    return hashes if same else None
