"""A managed engine's virtual environment: built from its locks under a file lock, complete or not there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from reckoning import files
from reckoning.engine.inspect import clean_environment, inspect
from reckoning.engine.spec import EngineError, EngineSpec, Lock

MARK = "complete.json"
Progress = Callable[[str], None]


@contextlib.contextmanager
def only_builder(path: Path, progress: Progress) -> Iterator[None]:
    """Hold the file lock `path`; a second builder waits and says so. Ends with the process, however that ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"engine: another process builds {path.stem}; waiting for it")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def ensure_venv(spec: EngineSpec, engines: Path, log: Path | None, progress: Progress, base: str | None = None) -> Path:
    """Return the interpreter of `spec` below `engines`, building it when it is not complete.

    `base` is the interpreter to build with (default: the one that runs this). The folder's name carries the hash of the
    locks and the Python version, and the mark inside is written last: a folder without it is an interrupted build and
    is made anew.
    """
    base = base or getattr(sys, "_base_executable", None) or sys.executable
    engines = engines.absolute()  # an interpreter is asked in its own folder, where a relative path leads nowhere
    version = ".".join(inspect(base, []).python_version.split(".")[:2])
    if not spec.supports(version):
        raise EngineError(
            f"engine {spec.name} needs Python {spec.python}; {base} is {version}. Set engine.python to one that fits"
        )
    folder = engines / spec.key(version)
    python = folder / "bin" / "python"
    if _complete(folder):
        progress(f"engine: {spec.name} is built ({folder.name})")
        return python
    with only_builder(engines / f"{folder.name}.lock", progress):
        if _complete(folder):
            return python
        if folder.exists():
            progress(f"engine: removing the unfinished build {folder.name}")
            shutil.rmtree(folder)
        with _log_stream(log) as stream:
            _build(spec, folder, base, stream, progress)
        installed = inspect(python, [])
        if installed.packages.get(spec.package) != spec.version:
            raise EngineError(
                f"{folder}: holds {spec.package} {installed.packages.get(spec.package)}, not {spec.version}"
            )
        mark = {"schema_version": 1, "engine": spec.name, "python": version, "packages": installed.packages}
        files.write_json(folder / MARK, mark)
    return python


def locked_names(lock: Path) -> list[str]:
    """Return the requirement lines (name==version and marker) of a lock file, without hashes."""
    lines = (line.strip().rstrip("\\").strip() for line in lock.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith(("#", "--"))]


def _complete(folder: Path) -> bool:
    return (folder / MARK).is_file() and (folder / "bin" / "python").exists()


def _build(spec: EngineSpec, folder: Path, base: str, stream: IO[str], progress: Progress) -> None:
    progress(f"engine: building {spec.name} into {folder} (some minutes, once)")
    _run([base, "-m", "venv", str(folder)], stream, spec.name)
    python = folder / "bin" / "python"
    for number, lock in enumerate(spec.locks, 1):
        step = f"engine: step {number} of {len(spec.locks)}"
        if lock.when == "torch-missing" and "torch" in inspect(python, []).packages:
            progress(f"{step}: {lock.path.name} not needed, torch is installed")
            continue
        progress(f"{step}: installing {len(locked_names(lock.path))} pinned packages of {lock.path.name}")
        try:
            _install(python, lock, stream, progress, step)
        except EngineError as error:
            if lock.when != "if-found":
                raise
            # pip has several words for a file that is not there; nothing was installed, and the next lock must serve.
            wanted = ", ".join(locked_names(lock.path))
            progress(f"{step}: no {wanted} for this machine ({error}); taking the next lock")


def _install(python: Path, lock: Lock, stream: IO[str], progress: Progress, step: str) -> None:
    total, seen = len(locked_names(lock.path)), 0

    def watch(line: str) -> None:
        nonlocal seen
        if line.startswith(("Collecting ", "Processing ")):
            seen += 1
            if seen % 20 == 0:
                progress(f"{step}: {seen} of {total} packages fetched")
        elif line.startswith("Installing collected packages"):
            progress(f"{step}: unpacking {seen} packages")

    command = [str(python), "-m", "pip", "install", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar", "off", "-r", str(lock.path)]
    _run(command, stream, lock.path.name, watch)


def _run(command: list[str], stream: IO[str], what: str, watch: Callable[[str], None] | None = None) -> None:
    stream.write(f"$ {' '.join(command)}\n")
    stream.flush()
    tail: list[str] = []
    process = subprocess.Popen(
        command,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        for line in process.stdout or ():
            stream.write(line)
            stream.flush()
            tail = [*tail[-19:], line.rstrip()]
            if watch:
                watch(line.strip())
        status = process.wait()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # our own session: pip and what it started
        process.wait()
        raise
    if status != 0:
        errors = [line for line in tail if "ERROR" in line] or tail[-5:]
        raise EngineError(
            f"{what}: exit status {status}: {' / '.join(errors)}. Check the network and the disk, then run again"
        )


@contextlib.contextmanager
def _log_stream(log: Path | None) -> Iterator[IO[str]]:
    if log is None:
        log = Path(os.devnull)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as stream:
        yield stream
