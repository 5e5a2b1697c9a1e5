"""The engine stage: interpreter, overlays of the runnable arms, engine.json."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reckoning import files, patches
from reckoning.engine.inspect import Installed, inspect
from reckoning.engine.overlay import Overlay, discard_unfinished, import_names, make_overlay
from reckoning.engine.spec import EngineError, spec_for
from reckoning.engine.venv import ensure_venv, only_builder

__all__ = ["EngineError", "build"]


def build(
    plan: dict[str, Any],
    root: Path,
    engine_json: Path,
    log: Path | None = None,
    progress: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Build or find the plan's engine, make one overlay per distinct patch set of its runnable arms, write engine.json.

    `root` is the repository; engines and overlays lie in `root/.engines`, locks and patches in `root/envs`. Raises
    EngineError or PatchError with the remedy; nothing half made is left behind.
    """
    root = root.resolve()
    engines = root / ".engines"
    folder = root / "envs" / "patches"
    arms = {arm["slug"]: arm for arm in plan["arms"] if arm["status"] == "runnable"}
    sets = {slug: tuple(patch.id for patch in patches.expand(arm["patches"], folder)) for slug, arm in arms.items()}
    wanted = patches.expand({name for names in sets.values() for name in names}, folder)
    engine = plan["engine"]
    if engine["kind"] == "managed":
        spec = spec_for(engine["lock"], root / "envs")
        python = ensure_venv(spec, engines, log, progress, engine.get("python"))
        lock, lock_sha256, package = spec.name, spec.lock_sha256, spec.package
    else:
        python, lock, lock_sha256, package = _existing(engine), None, None, "sglang"
    inherited = _inherited_path(root) if engine["kind"] == "existing" else []
    installed = inspect(python, [package, *import_names(wanted)], inherited)
    version = _check_version(installed, package, engine.get("version"), python)
    made: dict[tuple[str, ...], Overlay] = {}
    with only_builder(engines / "overlays.lock", progress):
        discard_unfinished(engines / "overlays")
        for names in sorted(set(sets.values())):
            progress(f"engine: overlay for {', '.join(names) or 'no patch'}")
            made[names] = make_overlay(patches.expand(names, folder), installed, engines / "overlays")
    ids = {names: _overlay_id(overlay, names) for names, overlay in made.items()}
    document = {
        "schema_version": 1,
        "kind": engine["kind"],
        "python": str(python),
        "python_version": installed.python_version,
        "package": package,
        "version": version,
        "packages": dict(sorted(installed.packages.items())),
        "package_records": dict(sorted(installed.records.items())),
        "lock": lock,
        "lock_sha256": lock_sha256,
        "overlays": {ids[names]: overlay.record(inherited) for names, overlay in made.items()},
        "arms": {slug: ids[names] for slug, names in sets.items()},
    }
    files.write_json(engine_json, document)
    return document


def _overlay_id(overlay: Overlay, names: tuple[str, ...]) -> str:
    """Return the overlay's id; sets that change no file are told apart by their names, as their outcomes differ."""
    return overlay.id if overlay.path else "-".join((overlay.id, *([files.digest(names)[:8]] if names else [])))


def _inherited_path(root: Path) -> list[str]:
    """Return the folders through which an existing engine is reached: our own PYTHONPATH without our own code."""
    folders = [Path(item).resolve() for item in os.environ.get("PYTHONPATH", "").split(os.pathsep) if item]
    return [str(folder) for folder in folders if folder != root / "scripts" and not (folder / "reckoning").is_dir()]


def _existing(engine: dict[str, Any]) -> str:
    python = engine.get("python")
    if not python:
        raise EngineError(
            "engine.python: null, but engine.kind is 'existing'; give the interpreter that has SGLang installed"
        )
    found = shutil.which(Path(python).expanduser())
    if found is None:
        raise EngineError(f"engine.python: {python} is not an executable file; name the interpreter that has SGLang")
    return str(Path(found).absolute())  # not resolved: a virtual environment is known by the path of its link


def _check_version(installed: Installed, package: str, wanted: str | None, python: str | Path) -> str:
    version = installed.packages.get(package)
    if version is None:
        raise EngineError(f"{python}: has no {package} installed; install it there or name another interpreter")
    if wanted and version.partition("+")[0] != wanted.partition("+")[0]:
        raise EngineError(f"engine.version: {wanted} was asked for, {python} has {package} {version}; make them agree")
    return version
