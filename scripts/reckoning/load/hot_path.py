"""Builds and loads `hot_path.c`, the compiled form of what the client does for every token.

The library is compiled once with the machine's C compiler and kept in the user's cache, under a name that changes with
its source; where that cannot be written, it is compiled for the process alone. Where there is no compiler, or
`RECKONING_HOT_PATH=python` asks for it, the same work is done in Python: the results are the same, at several times the
CPU time (docs/accuracy.md).
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

SOURCE = Path(__file__).with_name("hot_path.c")
VARIABLE = "RECKONING_HOT_PATH"  # `python` or `compiled` (an error where it cannot be); unset: whatever there is
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O3", "-shared", "-fPIC", "-std=gnu11")
COMPILE_TIMEOUT_S = 60


_new_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.argtypes, _new_bytes.restype = (ctypes.c_void_p, ctypes.c_ssize_t), ctypes.py_object

_Place = ctypes.c_char * 0  # of any length, none included


class CannotCompile(Exception):
    """Why there is no compiled hot path."""


def library() -> ctypes.CDLL | None:
    """Return the compiled hot path, or None where Python has to do. Raises CannotCompile only when asked to compile."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", "python", "compiled"):
        raise CannotCompile(f"{VARIABLE}={wanted!r} is neither 'python' nor 'compiled'; unset it to use what there is")
    if wanted == "python":
        return None
    found = _loaded()
    if wanted == "compiled" and isinstance(found, CannotCompile):
        raise found
    return None if isinstance(found, CannotCompile) else found


def why_python() -> str:
    """Say why `library` gives None."""
    if os.environ.get(VARIABLE) == "python":
        return f"{VARIABLE}=python asks for it"
    return str(_loaded())


def gathered(code: ctypes.CDLL, addresses: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> bytes:
    """Return the bytes at these addresses, joined. Whoever asks sees to it that they are there."""
    joined = _new_bytes(None, int(sizes.sum()))
    code.gather(pointer_to(addresses), pointer_to(sizes), len(sizes), joined)  # before anyone else knows of it
    return joined


def pointer_to(array: npt.NDArray[np.int64]) -> int:
    """Where an array's numbers begin; it must own or view them whole and writable (`ctypes.data` takes three times)."""
    return ctypes.addressof(_Place.from_buffer(array))


@functools.cache
def _loaded() -> ctypes.CDLL | CannotCompile:
    try:
        try:
            return _load(_compiled(cache_folder()))
        except (OSError, RuntimeError):  # no home, or one that is full or read-only: for this process alone
            with tempfile.TemporaryDirectory(prefix="reckoning-") as folder:
                return _load(_compiled(Path(folder)))
    except (CannotCompile, OSError) as problem:
        return problem if isinstance(problem, CannotCompile) else CannotCompile(str(problem))


def cache_folder() -> Path:
    """Return this user's folder for compiled files (XDG Base Directory Specification)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reckoning"


def _compiled(folder: Path) -> Path:
    """Return the compiled library in `folder`, made now if it is not there."""
    if sys.platform != "linux" or sys.maxsize <= 1 << 32:
        raise CannotCompile("the hot path is written for 64-bit Linux")
    source = SOURCE.read_bytes()
    mark = hashlib.sha256(source + repr(FLAGS).encode()).hexdigest()[:16]
    path = folder / f"hot_path-{platform.machine()}-{mark}.so"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists():
        _refuse_foreign(path)
    else:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / "hot_path.so"
            _compile(made)
            made.replace(path)
    return path


def _refuse_foreign(path: Path) -> None:
    """A library that someone else could have written is not loaded."""
    status = path.stat()
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CannotCompile(f"{path} does not belong to this user alone; remove it")


def _compile(target: Path) -> None:
    compiler = os.environ.get("CC") or next(filter(shutil.which, COMPILERS), None)
    if compiler is None:
        raise CannotCompile(f"no C compiler: none of {', '.join(COMPILERS)} is on the path")
    words = [*compiler.split(), *FLAGS, "-o", str(target), str(SOURCE)]
    try:
        done = subprocess.run(
            words, check=False, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotCompile(f"{compiler}: {error}") from error
    if done.returncode != 0:
        raise CannotCompile(f"{' '.join(words)}: {done.stderr.strip()[-500:]}")
    target.chmod(0o700)


def _load(path: Path) -> ctypes.CDLL:
    try:
        found = ctypes.CDLL(str(path))
    except OSError as error:
        raise CannotCompile(f"{path}: {error}") from error
    pointer, whole = ctypes.c_void_p, ctypes.c_int64
    found.hear_round.argtypes = (pointer, pointer)
    found.hear_round.restype = ctypes.c_int
    found.hear_until.argtypes = (pointer, pointer, ctypes.c_int, whole, whole, whole)
    found.hear_until.restype = ctypes.c_int
    found.gather.argtypes = (pointer, pointer, whole, ctypes.c_char_p)
    found.gather.restype = None
    found.understand.argtypes = (ctypes.c_char_p, *[pointer] * 3, whole, *[pointer] * 3, whole, pointer)
    found.understand.restype = None
    return found
