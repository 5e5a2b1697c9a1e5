"""What the planner looks up on this machine; everything after it is pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from reckoning.experiment import Experiment
from reckoning.plan.facts import ModelFacts
from reckoning.plan.flags import FlagTable


@dataclass(frozen=True)
class Surroundings:
    """Facts from outside the experiment file: engine version and flags, visible GPUs, the model's config.json."""

    version: str | None = None
    gpus: int | None = None
    gpu_source: str = "unknown"
    facts: ModelFacts = field(default_factory=ModelFacts)
    draft: ModelFacts | None = None
    flags: FlagTable = field(default_factory=FlagTable)


def observe(experiment: Experiment) -> Surroundings:
    """Look up what the plan of `experiment` depends on. Nothing is started that could touch a GPU."""
    return Surroundings(
        version=experiment.engine.version,
        gpus=experiment.machine.gpus,
        gpu_source="machine.gpus",
        facts=ModelFacts(experiment.model.facts, "experiment file"),
    )
