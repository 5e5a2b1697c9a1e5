"""A repository with patches, and an engine made of a tiny package, so that a build takes a second."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.unit.patches.conftest import write_patch

A = "x = 1\ny = 1\n"


def site_folder(base: Path, version: str = "0.5.12.post1") -> Path:
    """Write an importable `sglang` with its metadata below `base`, as an unpacked wheel would lie there."""
    package = base / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import sglang.a\n")
    (package / "a.py").write_text(A)
    (package / "data.txt").write_text("kept\n")
    info = base / f"sglang-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")
    (info / "RECORD").write_text("sglang/__init__.py,,\n")
    return base


def wheel(folder: Path, name: str, version: str, content: str = "") -> tuple[Path, str]:
    """Write an installable wheel and return it with its SHA-256."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def arm(slug: str, *patches: str, status: str = "runnable") -> dict[str, Any]:
    """Return what the engine stage reads of an arm."""
    return {"slug": slug, "status": status, "patches": list(patches)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a repository root with one patch, `two`, that turns x = 1 into x = 2."""
    base = tmp_path / "repository"
    write_patch(base / "envs" / "patches", "two", edits=[{"file": "sglang/a.py", "old": "x = 1\n", "new": "x = 2\n"}])
    return base


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a site folder that the existing engine sees through PYTHONPATH."""
    base = site_folder(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", str(base))
    return base


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a folder that is all pip looks into."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder
