"""Which arms cannot run, and why: every rule is a named object in the registry, listed in docs/rules.md."""

from reckoning.plan.rules import parallel, speculation  # noqa: F401 - importing registers the rules
from reckoning.plan.rules.core import LEVELS, REGISTRY, Objection, Rule, Setup, judge

__all__ = ["LEVELS", "REGISTRY", "Objection", "Rule", "Setup", "judge"]
