"""A patches folder and a source tree to apply them to, small enough to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from reckoning.patches import AddedFile, Edit, Patch

PROSE = {
    "title": "t",
    "why": "w",
    "upstream": None,
    "arms": "all",
    "remove_when": "never",
    "probe": {"text": "p"},
}


def make_patch(
    name: str = "p", *edits: Edit, versions: str = ">=0.5.9,<0.5.17", files: Any = (), package="sglang"
) -> Patch:
    """Return a patch with the prose filled in."""
    added = tuple(AddedFile(path, content) for path, content in files)
    return Patch(id=name, package=package, versions=versions, edits=edits, files=added, **PROSE)


def write_patch(folder: Path, name: str, **changes: Any) -> Path:
    """Write a patch.yaml below `folder` and return its folder; `changes` replace keys, None removes one."""
    document = {
        "schema_version": 1,
        "id": name,
        "package": "sglang",
        "versions": ">=0.5.9,<0.5.17",
        "edits": [{"file": "sglang/a.py", "old": "x = 1\n", "new": "x = 2\n"}],
        **PROSE,
        **changes,
    }
    target = folder / name
    target.mkdir(parents=True)
    document = {key: value for key, value in document.items() if value is not None or key == "upstream"}
    (target / "patch.yaml").write_text(yaml.safe_dump(document))
    return target


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a site-packages folder with a package of two modules."""
    base = tmp_path / "site-packages"
    (base / "sglang").mkdir(parents=True)
    (base / "sglang" / "__init__.py").write_text("")
    (base / "sglang" / "a.py").write_text("x = 1\ny = 1\n")
    (base / "sglang" / "b.py").write_text("z = 1\n")
    return base
