"""The engine's Python: asked in its own interpreter, with a time limit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reckoning.environment.probing.machine import Machine

SCRIPT = Path(__file__).resolve().parent.parent / "engine_side.py"
LIMIT_S = 180.0  # importing torch from a cold network disk takes a minute


def python_facts(machine: Machine, engine_python: str | None) -> dict[str, Any] | None:
    """Return interpreter, packages and torch of the engine, or None when no interpreter was named."""
    if engine_python is None:
        return None
    result = machine.run([engine_python, str(SCRIPT)], timeout_s=LIMIT_S, environ={"CUDA_MODULE_LOADING": "LAZY"})
    line = result.output.strip().splitlines()[-1] if result.output.strip() else ""
    try:
        facts: dict[str, Any] = json.loads(line)
    except json.JSONDecodeError:
        why = "no answer in time" if result.timed_out else (result.errors.strip() or "no output")[-500:]
        return {"interpreter": {"executable": engine_python}, "packages": [], "torch": {}, "error": why}
    return {**facts, "error": None}
