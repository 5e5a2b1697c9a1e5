"""What did the user ask for, and what is wrong with it?

`read_file` and `read` turn the YAML of one experiment into a frozen `Experiment`, or raise one `ExperimentError` that
names every fault with its file, line, key, value, reason and remedy.
"""

from reckoning.experiment.problems import ExperimentError, Problem
from reckoning.experiment.reading import read, read_file
from reckoning.experiment.shapes import (
    ArmRequest,
    Claim,
    Draft,
    Engine,
    Experiment,
    Hypothesis,
    Machine,
    Model,
    Unavailable,
    Workload,
)

__all__ = [
    "ArmRequest",
    "Claim",
    "Draft",
    "Engine",
    "Experiment",
    "ExperimentError",
    "Hypothesis",
    "Machine",
    "Model",
    "Problem",
    "Unavailable",
    "Workload",
    "read",
    "read_file",
]
