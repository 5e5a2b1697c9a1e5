"""How one server is started, judged ready, watched and stopped, and its points measured."""

from typing import Any

from .machine_lock import MachineBusy
from .reaper import reap
from .roll_up import roll_up

__all__ = ["MachineBusy", "reap", "roll_up", "run_launch"]


def __getattr__(name: str) -> Any:
    """`run_launch` with all that it measures with is imported when it is asked for: that takes most of a second."""
    if name == "run_launch":
        from .run import run_launch

        return run_launch
    raise AttributeError(name)
