"""A fresh copy of the repository's files, as a new clone would have them, and Snakemake run in it as a user would."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Workspace:
    """A folder with the workflow in it."""

    path: Path

    def snakemake(self, *arguments: str, timeout: float = 120, env: dict | None = None) -> subprocess.CompletedProcess:
        """Run Snakemake in the folder with this interpreter and return what it said."""
        return subprocess.run(
            [sys.executable, "-m", "snakemake", "--cores", "1", *arguments],
            cwd=self.path,
            text=True,
            capture_output=True,
            timeout=timeout,
            check=False,
            env={**os.environ, "PYTHONPATH": "", **(env or {})},
        )


def copy_repository(target: Path) -> Path:
    """Copy the files that git tracks (or would track) to `target`."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        source = ROOT / name
        if not name or name.startswith("tests/") or not source.exists():
            continue
        destination = target / name
        destination.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            destination.symlink_to(source.readlink())
        else:
            shutil.copy2(source, destination)
    return target


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(copy_repository(tmp_path / "reckoning"))
