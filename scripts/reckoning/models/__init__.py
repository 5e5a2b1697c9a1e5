"""How is the embedded tiny MoE made?"""

from reckoning.models.make import MAKERS, make
from reckoning.models.prepare import prepare

__all__ = ["MAKERS", "make", "prepare"]
