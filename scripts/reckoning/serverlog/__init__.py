"""What a server's log says: which stage it reached, and the first cause when it failed.

One reader serves `python -m reckoning.environment explain server.log` and the launcher: `read_log` for a whole text,
`LogReader` for text that arrives in pieces, `LogFollower` for a file that is still growing.
"""

from reckoning.serverlog.classes import FAILURE_CLASSES
from reckoning.serverlog.follower import LogFollower
from reckoning.serverlog.model import Cause, LogReading, Stage
from reckoning.serverlog.reader import LogReader, read_log
from reckoning.serverlog.stages import STAGE_NAMES

__all__ = [
    "FAILURE_CLASSES",
    "STAGE_NAMES",
    "Cause",
    "LogFollower",
    "LogReader",
    "LogReading",
    "Stage",
    "read_log",
]
