"""How is load produced and timed? The closed-loop client and the protocol of one launch.

`measure_points` measures the points of one launch; `python -m reckoning.load` does the same against any
OpenAI-compatible server.
"""

from .session import Measured, Target, measure_points

__all__ = ["Measured", "Target", "measure_points"]
