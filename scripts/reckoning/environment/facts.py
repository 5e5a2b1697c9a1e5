"""One probe of the machine: all facts in one JSON."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema

from reckoning import __version__
from reckoning.environment.probing.caches import cache_facts
from reckoning.environment.probing.driver import driver_facts
from reckoning.environment.probing.host import compiler_facts, host_facts, pci_facts
from reckoning.environment.probing.machine import Machine
from reckoning.environment.probing.python_packages import python_facts
from reckoning.environment.probing.toolkit import toolkit_facts
from reckoning.environment.proof import prove as run_proof
from reckoning.environment.scrub import scrub
from reckoning.files import read_json

SCHEMA_VERSION = 1
SCHEMA = Path(__file__).resolve().parents[3] / "workflow" / "schemas" / "environment_facts.schema.json"


def probe(
    engine_python: str | None = None,
    model_path: str | None = None,
    *,
    prove: bool = True,
    architectures: Sequence[tuple[int, int]] = (),
    machine: Machine | None = None,
) -> dict[str, Any]:
    """Return the facts of this machine (their shape: `environment_facts.schema.json`). Reads only, never waits long.

    `engine_python` is the interpreter that will run the engine: without it nothing is known of torch and FlashInfer.
    `prove` also compiles and runs small programs in a temporary folder when there is a GPU (some minutes at most);
    `architectures` are compiled for, without a GPU too. Home folders, host and user names are replaced before
    anything is returned.
    """
    machine = machine or Machine()
    python = python_facts(machine, engine_python)
    facts = {
        "schema_version": SCHEMA_VERSION,
        "made_by": f"reckoning {__version__}",
        "probed_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "host": host_facts(machine, model_path),
        "toolkit": toolkit_facts(machine),
        "compilers": compiler_facts(machine),
        "driver": driver_facts(machine),
        "pci": pci_facts(machine),
        "python": python,
        "caches": cache_facts(machine, python["packages"] if python else []),
        "proof": None,
    }
    if prove or architectures:
        facts["proof"] = run_proof(
            machine, facts, architectures=architectures, engine_python=engine_python, on_gpus=prove
        )
    facts["commands"] = [result.as_fact() for result in machine.commands]
    return dict(scrub(facts))


def read_facts(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a facts file, of this machine or another; one of another shape raises ValueError that names every fault."""
    facts = read_json(path)
    validator = jsonschema.Draft202012Validator(read_json(SCHEMA))
    faults = sorted(validator.iter_errors(facts), key=lambda error: [str(part) for part in error.absolute_path])
    if faults:
        listed = [
            f"  {'.'.join(map(str, error.absolute_path)) or 'top level'}: {error.message[:200]}" for error in faults
        ]
        raise ValueError(
            f"{path} is not a facts file of schema_version {SCHEMA_VERSION} (made by `reckoning.environment probe "
            "--out`):\n" + "\n".join(listed)
        )
    return dict(facts)
