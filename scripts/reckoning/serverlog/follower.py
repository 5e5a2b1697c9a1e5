"""Following a log file while the server writes it."""

from __future__ import annotations

import codecs
import os
from pathlib import Path

from reckoning.serverlog.model import LogReading
from reckoning.serverlog.reader import LogReader

_PIECE = 1 << 20


class LogFollower:
    """Reads what was added to a log file since the last look. A missing file is an empty log; bad UTF-8 is no error.

    `size` is the number of bytes read so far: a caller that judges stalls compares it between two polls.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.size = 0
        self._reset()

    def _reset(self) -> None:
        self.size = 0
        self._reader = LogReader()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def poll(self) -> bool:
        """Read what is new; return whether the file grew. A file that became shorter is read again from its start."""
        try:
            stream = self.path.open("rb")
        except OSError:
            return False
        with stream:
            if os.fstat(stream.fileno()).st_size < self.size:
                self._reset()
            stream.seek(self.size)
            grew = False
            while piece := stream.read(_PIECE):
                self.size += len(piece)
                self._reader.feed(self._decoder.decode(piece))
                grew = True
        return grew

    def reading(self, *, stalled: bool = False, exit_code: int | None = None) -> LogReading:
        """Return what the log says so far; see `LogReader.reading` for the arguments."""
        return self._reader.reading(stalled=stalled, exit_code=exit_code)
