"""Which arms cannot run, and why: every rule is a named object in the registry, listed in docs/rules.md."""

from reckoning.plan.rules import (  # noqa: F401 - importing registers the rules
    capacity,
    engine,
    experts,
    hardware,
    model_shape,
    parallel,
    pipeline,
    speculation,
)
from reckoning.plan.rules.core import LEVELS, REGISTRY, Demand, Objection, Rule, Setup, judge

__all__ = ["LEVELS", "REGISTRY", "Demand", "Objection", "Rule", "Setup", "judge"]
