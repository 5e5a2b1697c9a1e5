"""Does a patch do what it says? Its probe is run with the arm's whole set, and with the set less that one patch."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reckoning import patches
from reckoning.engine.inspect import clean_environment, inspect
from reckoning.engine.overlay import import_names, make_overlay

LIMIT_S = 300


@dataclass(frozen=True)
class Effect:
    """What the probe of `patch` did: `shown` when it passes with the patch and fails without; None without a probe."""

    patch: str
    shown: bool | None
    patched: str
    unpatched: str


def probe(engine: Mapping[str, Any], slug: str, root: Path) -> list[Effect]:
    """Run the probe of every patch applied to an arm, in the engine's own interpreter."""
    overlay = engine["overlays"][engine["arms"][slug]]
    names = [entry["id"] for entry in overlay["patches"] if entry["status"] == "applied"]
    chosen = patches.expand(names, root / "envs" / "patches")
    inherited = [path for path in overlay["pythonpath"] if path != overlay["path"]]
    installed = inspect(engine["python"], import_names(chosen), inherited)
    effects = []
    for patch in chosen:
        code = patch.probe.get("code")
        if code is None:
            effects.append(Effect(patch.id, None, patch.probe["text"], ""))
            continue
        rest = [item for item in chosen if item is not patch]
        with tempfile.TemporaryDirectory(prefix="reckoning-probe-") as folder:
            less = make_overlay(rest, installed, Path(folder))
            passes, patched = _run(engine["python"], code, overlay["pythonpath"])
            passes_without, unpatched = _run(engine["python"], code, less.record(inherited)["pythonpath"])
        effects.append(Effect(patch.id, passes and not passes_without, patched, unpatched))
    return effects


def _run(python: str, code: str, path: Sequence[str]) -> tuple[bool, str]:
    """Return whether `code` ended well, and the last line that it or its traceback printed."""
    environment = {**clean_environment(), "PYTHONPATH": os.pathsep.join(path)}
    with tempfile.TemporaryDirectory(prefix="reckoning-probe-") as folder:
        try:
            done = subprocess.run(
                [python, "-c", code],
                env=environment,
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
                timeout=LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            return False, f"no end within {LIMIT_S} s"
    text = done.stdout if done.returncode == 0 else done.stderr
    lines = [line for line in text.splitlines() if line.strip()]
    return done.returncode == 0, lines[-1].strip() if lines else f"exit status {done.returncode}"
