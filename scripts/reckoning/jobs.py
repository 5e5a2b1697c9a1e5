"""What every rule's script shares: its log file and its progress lines."""

from __future__ import annotations

import contextlib
import datetime
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def logged(path: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that says a line to the person at the terminal and, with the wall time, to the log at `path`.

    An exception is written to the log before it goes on.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", encoding="utf-8", buffering=1) as log:

        def say(text: str) -> None:
            log.write(f"{datetime.datetime.now().astimezone():%Y-%m-%dT%H:%M:%S%z} {text}\n")
            print(f"[reckoning] {text}", file=sys.stderr, flush=True)

        try:
            yield say
        except BaseException:
            log.write(traceback.format_exc())
            raise
