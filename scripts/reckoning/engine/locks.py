"""Lock files: how they are compiled, and what a weekly look at them finds.

`python -m reckoning.engine.locks compile [NAME ...]` makes envs/NAME.lock from envs/NAME.in as envs/locks.yaml says;
`python -m reckoning.engine.locks check [NAME ...]` changes nothing and says which pins have newer releases and whether
the lock still resolves from the package index.
"""

from __future__ import annotations

import argparse
import fnmatch
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from packaging.utils import canonicalize_name
from packaging.version import Version

from reckoning import files
from reckoning.engine.spec import ENVS, EngineError

_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(?P<version>[^ ;\\]+)(?: *; *(?P<marker>[^\\]+))?")


@dataclass(frozen=True)
class Pin:
    """One requirement of a lock: name, version, marker and the accepted SHA-256 hashes."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]

    def text(self) -> str:
        """Return the lines of this pin as pip reads them."""
        head = f"{self.name}=={self.version}" + (f" ; {self.marker}" if self.marker else "")
        return " \\\n".join([head, *(f"    --hash=sha256:{value}" for value in self.hashes)]) + "\n"


def parse(text: str) -> list[Pin]:
    """Return the pins of a lock file. Anything that is neither a pin, a hash nor a comment raises EngineError."""
    pins: list[Pin] = []
    for line in text.splitlines():
        stripped = line.strip().rstrip("\\").strip()
        found = _PIN.match(stripped)
        if stripped.startswith("--hash=sha256:") and pins:
            last = pins[-1]
            pins[-1] = Pin(
                last.name, last.version, last.marker, (*last.hashes, stripped.removeprefix("--hash=sha256:"))
            )
        elif found:
            pins.append(Pin(found["name"], found["version"], (found["marker"] or "").strip(), ()))
        elif stripped and not stripped.startswith("#"):
            raise EngineError(f"lock line {line!r} is neither a pin nor a hash")
    return pins


def select(pins: Iterable[Pin], options: Mapping[str, Any]) -> list[Pin]:
    """Apply `only` and `without` of envs/locks.yaml to freshly compiled pins."""
    kept = [pin for pin in pins if _matches(pin.name, options.get("only", ["*"]))]
    return [pin for pin in kept if not _matches(pin.name, options.get("without", []))]


def load_options(envs: Path = ENVS) -> dict[str, dict[str, Any]]:
    """Read envs/locks.yaml."""
    return yaml.safe_load((envs / "locks.yaml").read_text(encoding="utf-8"))


def compile_lock(name: str, envs: Path = ENVS, *, keep: bool = True, upgrade: bool = False) -> list[Pin]:
    """Resolve envs/`name`.in with uv and return the pins; versions of the present lock are preferred unless `upgrade`.

    Hashes of every file are in it, no index host is.
    """
    options = _options(name, envs)
    if "pins" in options:
        return [Pin(key, value["version"], "", tuple(value["hashes"])) for key, value in options["pins"].items()]
    source = envs / options.get("from", f"{name}.in")
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / f"{name}.lock"
        if keep and not upgrade and (envs / f"{name}.lock").exists():
            shutil.copy(envs / f"{name}.lock", output)
        command = [*_uv(), "pip", "compile", "-q", "--universal", "--python-version", options.get("python", "3.11")]
        command += ["--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url"]
        if "excludes" in options:
            command += ["--excludes", str(envs / options["excludes"])]
        if "overrides" in options:
            command += ["--overrides", str(envs / options["overrides"])]
        command += [*(["--upgrade"] if upgrade else []), str(source), "-o", str(output)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=envs)
        if done.returncode != 0:
            raise EngineError(f"{source.name}: does not resolve: {done.stderr.strip()[-1500:]}")
        return select(parse(output.read_text(encoding="utf-8")), options)


def lock_text(pins: Iterable[Pin]) -> str:
    """Return a lock file's text."""
    return "".join(pin.text() for pin in pins)


def conda_text(name: str, pins: Iterable[Pin], python: str) -> str:
    """Return the conda spec that installs exactly the lock: Python from conda, everything else from the lock file."""
    document = {
        "name": f"reckoning-{name}",
        "channels": ["conda-forge", "nodefaults"],
        "dependencies": [f"python ={python}", "pip", {"pip": [_conda_pin(pin) for pin in pins]}],
    }
    head = (
        f"# Made from {name}.lock by `python -m reckoning.engine.locks compile {name}`; a test holds the two equal.\n"
    )
    return head + yaml.safe_dump(document, sort_keys=False, width=200)


def newest(pins: Iterable[Pin], envs: Path = ENVS) -> list[Pin]:
    """Return the newest release of each pinned package, whatever the others allow."""
    names = "\n".join(sorted({pin.name for pin in pins}))
    command = [*_uv(), "pip", "compile", "-q", "--universal", "--python-version", "3.11", "--no-deps", "--no-header"]
    done = subprocess.run(
        [*command, "--no-annotate", "-"], input=names, capture_output=True, text=True, check=False, cwd=envs
    )
    if done.returncode != 0:
        raise EngineError(f"the package index does not answer: {done.stderr.strip()[-500:]}")
    return parse(done.stdout)


def newer(pins: Iterable[Pin], candidates: Iterable[Pin]) -> dict[str, tuple[str, str]]:
    """Return {name: (pinned, newest)} for every pin of which `candidates` has a higher version."""
    latest: dict[str, Version] = {}
    for pin in candidates:
        name = canonicalize_name(pin.name)
        latest[name] = max(latest.get(name, Version("0")), Version(pin.version))
    highest: dict[str, Version] = {}
    for pin in pins:
        name = canonicalize_name(pin.name)
        highest[name] = max(highest.get(name, Version("0")), Version(pin.version))
    return {
        name: (str(version), str(latest[name]))
        for name, version in sorted(highest.items())
        if name in latest and latest[name] > version
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; exit status 1 when a lock no longer resolves or differs from its .in file."""
    parser = argparse.ArgumentParser(prog="python -m reckoning.engine.locks", description=__doc__)
    parser.add_argument("command", choices=["compile", "check"])
    parser.add_argument("names", nargs="*", help="locks of envs/locks.yaml (default: all)")
    parser.add_argument("--upgrade", action="store_true", help="compile: raise every pin to the newest that fits")
    parser.add_argument("--envs", type=Path, default=ENVS)
    options = parser.parse_args(arguments)
    failures = 0
    for name in options.names or load_options(options.envs):
        try:
            if options.command == "compile":
                print(_compile_to_disk(name, options.envs, options.upgrade))
            else:
                failures += _check(name, options.envs)
        except EngineError as error:
            print(f"{name}: error: {error}", file=sys.stderr)
            failures += 1
    return 1 if failures else 0


def _compile_to_disk(name: str, envs: Path, upgrade: bool) -> str:
    pins = compile_lock(name, envs, upgrade=upgrade)
    files.write_text(envs / f"{name}.lock", lock_text(pins))
    conda = _options(name, envs).get("conda")
    if conda:
        files.write_text(envs / conda["file"], conda_text(name, pins, conda["python"]))
    return f"{name}.lock: {len(pins)} pins"


def _check(name: str, envs: Path) -> int:
    present = parse((envs / f"{name}.lock").read_text(encoding="utf-8"))
    again = compile_lock(name, envs)
    key = [(pin.name, pin.version, pin.marker) for pin in present]
    same = key == [(pin.name, pin.version, pin.marker) for pin in again]
    gone = sorted({value for pin in present for value in pin.hashes} - {value for pin in again for value in pin.hashes})
    fitting = newer(present, compile_lock(name, envs, upgrade=True))
    released = newer(present, newest(present, envs))
    state = "still resolves" if same else "no longer matches its .in file: compile it again"
    print(f"{name}: {len(present)} pins, {state}; {len(released)} have a newer release, {len(fitting)} could be raised")
    for package, (old, new) in released.items():
        fits = fitting.get(package)
        note = (
            "fits"
            if fits and fits[1] == new
            else f"{fits[1]} fits"
            if fits
            else "held back by its .in file or another pin"
        )
        print(f"  {package} {old} -> {new} ({note})")
    if gone:
        print(f"  {len(gone)} locked files are no longer on the index, the first is sha256:{gone[0]}")
    return 0 if same and not gone else 1


def _conda_pin(pin: Pin) -> str:
    return f"{pin.name}=={pin.version}" + (f" ; {pin.marker}" if pin.marker else "")


def _options(name: str, envs: Path) -> dict[str, Any]:
    options = load_options(envs)
    if name not in options:
        raise EngineError(f"no lock {name!r} in {envs / 'locks.yaml'}; there are {', '.join(options)}")
    return options[name] or {}


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(canonicalize_name(name), pattern) for pattern in patterns)


def _uv() -> list[str]:
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if not found:
        raise EngineError("uv is not installed; it is in envs/workflow.lock")
    return [found]


if __name__ == "__main__":
    sys.exit(main())
