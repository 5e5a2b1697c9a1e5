"""What the planner looks up on this machine; everything after it is pure."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from reckoning import files
from reckoning.experiment import Experiment
from reckoning.experiment.places import REPOSITORY, find
from reckoning.experiment.reading import published_rates
from reckoning.plan import flags
from reckoning.plan.devices import Gpus, installed_gpus
from reckoning.plan.facts import ModelFacts, read_facts
from reckoning.plan.flags import FlagTable

_DRAFT_PATH = "speculative_draft_model_path"


@dataclass(frozen=True)
class Surroundings:
    """Facts from outside the experiment file: engine version and flags, GPUs, models on disk, texts, patches.

    `visible_devices` is CUDA_VISIBLE_DEVICES of the caller (None: not set), which an arm's own environment overrides.
    `prompt_bytes` is the length of the longest text of each workload's file. None means: not known, not checked.
    """

    version: str | None = None
    flags: FlagTable = field(default_factory=FlagTable)
    gpus: Gpus = field(default_factory=Gpus)
    visible_devices: str | None = None
    facts: ModelFacts = field(default_factory=ModelFacts)
    drafts: Mapping[str, ModelFacts] = field(default_factory=dict)
    patches: frozenset[str] | None = None
    published: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    prompt_bytes: Mapping[str, int] = field(default_factory=dict)


def observe(experiment: Experiment) -> Surroundings:
    """Look up what the plan of `experiment` depends on. Nothing is started that could touch a GPU."""
    version = experiment.engine.version
    if version is None and experiment.engine.python is not None:
        version = installed_version(experiment.engine.python)
    return Surroundings(
        version=version,
        flags=flag_table(experiment, version),
        gpus=installed_gpus() if experiment.machine.device == "cuda" else Gpus(),
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        facts=_facts(experiment, experiment.model.path, experiment.model.facts),
        drafts=draft_facts(experiment),
        patches=known_patches(),
        published=published_rates(experiment.published) if experiment.published else {},
        prompt_bytes={
            workload.name: longest_text(find(workload.file) or Path(workload.file))
            for workload in experiment.workloads
            if workload.file is not None
        },
    )


def draft_facts(experiment: Experiment) -> dict[str, ModelFacts]:
    """Return the facts of every draft model that an arm names, by its path."""
    stated = {experiment.model.draft.path: experiment.model.draft.facts} if experiment.model.draft else {}
    paths = {arm.settings.get(_DRAFT_PATH) for arm in experiment.arms} | set(stated)
    return {path: _facts(experiment, path, stated.get(path, {})) for path in sorted(filter(None, paths))}


def _facts(experiment: Experiment, path: str, given: Mapping[str, Any]) -> ModelFacts:
    """Return the facts of a model; of one that the workflow makes itself the stated ones, before and after it exists.

    The plan must not change when the model appears on disk: whatever was measured would be planned anew.
    """
    if experiment.model.maker is not None:
        return ModelFacts(dict(given), "experiment file")
    return read_facts(path, given)


@functools.cache
def known_patches() -> frozenset[str]:
    """Return the ids of patches and of named patch sets."""
    folder = REPOSITORY / "envs" / "patches"
    single = {path.parent.name for path in folder.glob("*/patch.yaml")}
    sets = folder / "sets.yaml"
    return frozenset(single | set(yaml.safe_load(sets.read_text(encoding="utf-8")) or {} if sets.is_file() else single))


@functools.cache
def longest_text(path: Path) -> int:
    """Return the UTF-8 length of the longest entry of a prompts file, the upper bound of its tokens."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return 0
    if path.suffix == ".jsonl":
        return max((len(line.encode()) for line in text.splitlines()), default=0)
    try:
        entries = yaml.safe_load(text)
    except yaml.YAMLError:
        return 0  # whoever reads the experiment says what is wrong with it
    listed = entries if isinstance(entries, list) else []
    texts = [str(entry.get("text", "")) if isinstance(entry, Mapping) else str(entry) for entry in listed]
    return max((len(item.encode()) for item in texts), default=0)


@functools.cache
def installed_version(python: str) -> str | None:
    """Return the SGLang version that an interpreter has, without importing SGLang; None when it cannot say."""
    program = "import importlib.metadata as m; print(m.version('sglang'))"
    try:
        done = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def flag_table(experiment: Experiment, version: str | None) -> FlagTable:
    """Return the arguments of the engine: as its folder records them, else as recorded for its version.

    An existing engine is asked itself, once: the answer is kept under .engines/ for as long as its files do not change.
    """
    engine = experiment.engine
    if engine.kind == "managed":
        built = sorted(
            (REPOSITORY / ".engines").glob(f"{engine.lock}-*/flags.json"), key=lambda path: path.stat().st_mtime
        )
        if built:
            return flags.table_from(_json(built[-1]), f"the parser of engine {engine.lock}")
        return flags.recorded_table(version)
    if engine.python is None or not Path(engine.python).exists():
        return flags.recorded_table(version)
    key = files.digest([engine.python, version, Path(engine.python).stat().st_mtime_ns])[:16]
    kept = REPOSITORY / ".engines" / "flags" / f"{key}.json"
    if not kept.is_file():
        try:
            answer = flags.read_installed(engine.python)
        except RuntimeError as error:
            answer = {"flags": [], "error": str(error)}  # kept too: every job plans again, and asking takes seconds
        with contextlib.suppress(OSError):  # a read-only checkout asks each time
            files.write_json(kept, answer)
    else:
        answer = _json(kept)
    if not answer["flags"]:
        return flags.recorded_table(version)
    return flags.table_from(answer, f"the parser of {engine.python}")


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))
