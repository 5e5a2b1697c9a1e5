"""Command line: `python -m reckoning.patches status|apply|revert --tree DIR --package P --version V [PATCH ...]`.

Works on any unpacked wheel, site-packages or source checkout. Exit status: 0 done, 1 a patch does not fit, 2 bad input.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from reckoning.patches import Patch, PatchError, Resolution, apply, expand, known, load_all, revert, status
from reckoning.patches.definition import DEFAULT_FOLDER
from reckoning.patches.resolve import APPLIED
from reckoning.patches.tree import base_folder


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m reckoning.patches", description=__doc__)
    parser.add_argument("command", choices=["status", "apply", "revert"])
    parser.add_argument("patches", nargs="*", help="patches or named sets (default: all of the package)")
    parser.add_argument("--tree", type=Path, required=True, help="folder that holds the package")
    parser.add_argument("--package", required=True, help="distribution, such as sglang or flashinfer-python")
    parser.add_argument("--version", required=True, help="its version, such as 0.5.12.post1")
    parser.add_argument("--patches-folder", type=Path, default=DEFAULT_FOLDER)
    options = parser.parse_intermixed_args(arguments)
    try:
        Version(options.version)
        chosen = _chosen(options)
        versions = {options.package: options.version}
        base = base_folder(options.tree, _folder(chosen, options.package))
        if options.command == "status":
            return _report(status(chosen, versions, base), {APPLIED: "not applied yet, fits"})
        act = apply if options.command == "apply" else revert
        resolution, hashes = act(chosen, versions, base)
    except InvalidVersion:
        print(f"error: --version: {options.version!r} is not a PEP 440 version, such as 0.5.12.post1", file=sys.stderr)
        return 2
    except PatchError as error:
        print("\n".join(f"error: {fault}" for fault in error.faults), file=sys.stderr)
        print("nothing was changed", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    _report(resolution, {APPLIED: "reverted"} if options.command == "revert" else None)
    for path, value in hashes.items():
        print(f"  {path} sha256 {value}")
    return 0


def _chosen(options: argparse.Namespace) -> list[Patch]:
    wanted = canonicalize_name(options.package)
    names = options.patches or list(load_all(options.patches_folder))
    chosen = [patch for patch in expand(names, options.patches_folder) if canonicalize_name(patch.package) == wanted]
    if not chosen:
        names = ", ".join(known(options.patches_folder))
        raise PatchError([f"--package: no chosen patch serves {options.package!r}; there are {names}"])
    return chosen


def _folder(patches: list[Patch], package: str) -> str:
    """Return the import folder of a distribution, which its patches' paths begin with."""
    folders = [edit.file.split("/", 1)[0] for patch in patches for edit in patch.edits]
    return folders[0] if folders else canonicalize_name(package).replace("-", "_")


def _report(resolution: Resolution, words: Mapping[str, str] | None = None) -> int:
    for outcome in resolution.outcomes:
        print(f"{outcome.patch.id}: {(words or {}).get(outcome.status, outcome.status)}")
        for reason in outcome.reasons:
            print(f"  {reason}")
    return 1 if resolution.errors else 0


if __name__ == "__main__":
    sys.exit(main())
