"""What will run, in which order, with which command, memory and time, and why not the rest?"""

from reckoning.plan.json_form import plan_from_json, plan_to_json
from reckoning.plan.planning import make_plan
from reckoning.plan.shapes import Arm, ArmProblem, Launch, Pair, Plan, Point
from reckoning.plan.surroundings import Surroundings, observe

__all__ = [
    "Arm",
    "ArmProblem",
    "Launch",
    "Pair",
    "Plan",
    "Point",
    "Surroundings",
    "make_plan",
    "observe",
    "plan_from_json",
    "plan_to_json",
]
