"""What an interpreter has installed, asked of that interpreter itself, without importing the packages."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reckoning.engine.spec import EngineError

_QUESTION = r"""
import hashlib, importlib.machinery, importlib.metadata, importlib.util, json, sys
packages, records = {}, {}
for item in importlib.metadata.distributions():
    name = (item.metadata["Name"] or "").lower().replace("_", "-")
    if name and name not in packages:
        packages[name] = item.version
        record = item.read_text("RECORD")
        records[name] = hashlib.sha256(record.encode()).hexdigest() if record else None
folders = {}
for name in sys.argv[1:]:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    folders[name] = list(spec.submodule_search_locations)[0] if spec and spec.submodule_search_locations else None
print("RECKONING" + json.dumps({
    "python_version": "%d.%d.%d" % sys.version_info[:3], "executable": sys.executable, "packages": packages,
    "records": records, "folders": folders}))
"""


@dataclass(frozen=True)
class Installed:
    """An interpreter: its version, installed distributions, and where the asked-for packages lie."""

    python: str
    python_version: str
    packages: dict[str, str]
    records: dict[str, str | None]
    folders: dict[str, str | None]


def clean_environment() -> dict[str, str]:
    """Return our environment without what would make another interpreter import our packages."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"}
    return {name: value for name, value in os.environ.items() if name not in hidden}


def inspect(python: str | Path, import_names: list[str], path: Sequence[str] = ()) -> Installed:
    """Ask `python` what it has; `path` is its PYTHONPATH, for a site folder that is only reached through it."""
    environment = {**clean_environment(), **({"PYTHONPATH": os.pathsep.join(path)} if path else {})}
    command = [str(python), "-c", _QUESTION, *import_names]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=300, check=False, cwd=Path(python).parent
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(
            f"engine.python: {python} does not run ({error}); give the path of a Python interpreter"
        ) from error
    lines = [line for line in done.stdout.splitlines() if line.startswith("RECKONING")]
    if done.returncode != 0 or not lines:
        raise EngineError(
            f"engine.python: {python} answered with exit status {done.returncode}: {done.stderr.strip()[-500:]}"
        )
    answer = json.loads(lines[-1].removeprefix("RECKONING"))
    return Installed(str(python), answer["python_version"], answer["packages"], answer["records"], answer["folders"])
