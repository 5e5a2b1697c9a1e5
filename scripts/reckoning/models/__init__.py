"""How is the embedded tiny MoE made?"""

from reckoning.models.make import MAKERS, make

__all__ = ["MAKERS", "make"]
