"""Where files named in an experiment lie."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]


def find(path: str) -> Path | None:
    """Return the file or folder `path` (relative: to the working directory, then to the repository), or None."""
    for base in (Path.cwd(), REPOSITORY):
        candidate = base / Path(path).expanduser()
        if candidate.exists():
            return candidate
    return None
