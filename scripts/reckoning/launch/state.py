"""Where launches keep what outlives them: the lock, the port reservations, the records of running servers."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

VARIABLE = "RECKONING_STATE_DIR"


def machine_folder() -> Path:
    """Return the folder that all users of this machine share for locks (`RECKONING_STATE_DIR` names another)."""
    folder = Path(os.environ.get(VARIABLE) or Path(tempfile.gettempdir()) / "reckoning-state")
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(PermissionError):  # made by another user: then it has these rights already
        if not folder.stat().st_mode & stat.S_ISVTX:
            folder.chmod(0o1777)
    return folder


def records_folder() -> Path:
    """Return this user's folder of records of running servers."""
    folder = machine_folder() / f"launches-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def open_shared(path: Path) -> int:
    """Open a lock file that any user may hold; never through a link. Return the descriptor.

    Opening comes before creating: in a sticky folder the kernel refuses `O_CREAT` on another user's file.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        descriptor = os.open(path, flags | os.O_CREAT, 0o666)
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, 0o666)
        return descriptor
