"""How one server is started, judged ready, watched and stopped, and its points measured."""

from .machine_lock import MachineBusy
from .reaper import reap
from .roll_up import roll_up
from .run import run_launch

__all__ = ["MachineBusy", "reap", "roll_up", "run_launch"]
