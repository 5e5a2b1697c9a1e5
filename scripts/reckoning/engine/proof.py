"""The proof that a server ran the patched tree: the edited modules say so themselves, from the server's interpreter.

Every Python file that a patch edits or adds gets one line at its end in the overlay. When the module is imported, by
whichever process of the server, that line prints the module's name, the file it came from and that file's hash to the
server's log. `read_proof` compares the log with what engine.json says the overlay holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODULE = "reckoning_overlay"
MARK = "RECKONING-OVERLAY "
FOOTER = f'\n__import__("{MODULE}").loaded(__name__, __file__)\n'
MODULE_TEXT = f'''"""Says, in the log of the process that imports it, which file a patched module really came from."""

import hashlib
import json
import os
import sys


def loaded(module, file):
    """Print one line for `module`: the path it was imported from, and the hash of that file."""
    with open(file, "rb") as stream:
        sha256 = hashlib.sha256(stream.read()).hexdigest()
    line = json.dumps({{"module": module, "file": file, "sha256": sha256, "pid": os.getpid()}})
    try:
        # One write: lines of several processes share the log and must not mix.
        os.write(2, ("{MARK}" + line + "\\n").encode())
    except OSError:
        print("{MARK}" + line, file=sys.stderr, flush=True)
'''


@dataclass(frozen=True)
class Proof:
    """What the log of one server proves: `proven`, the modules seen, and why not where it does not."""

    proven: bool
    modules: tuple[dict[str, Any], ...]
    faults: tuple[str, ...]


def read_proof(log_text: str, overlay: Mapping[str, Any]) -> Proof:
    """Compare a server's log with an entry of engine.json's `overlays`.

    Proven means: at least one edited module of each applied patch was imported, and every one that was came from the
    overlay with the recorded hash. An overlay without a path (nothing to patch) is proven by no such line.
    """
    modules = []
    for line in log_text.splitlines():
        _, found, rest = line.partition(MARK)
        if not found:
            continue
        try:
            modules.append(json.JSONDecoder().raw_decode(rest)[0])
        except ValueError:
            continue  # a line cut off by the end of the process
    faults = []
    path = overlay.get("path")
    if path is None:
        faults += [f"{item['file']}: a patched module, though this arm has no patch" for item in modules]
        return Proof(not faults, tuple(modules), tuple(dict.fromkeys(faults)))
    seen = set()
    for item in modules:
        name = _below(path, item["file"])
        if name is None:
            faults.append(f"{item['module']} was imported from {item['file']}, not from the overlay {path}")
        elif overlay["files"].get(name) != item["sha256"]:
            faults.append(f"{item['file']} has changed since the overlay was made")
        else:
            seen.add(name)
    for patch in overlay["patches"]:
        if patch["status"] == "applied" and not seen & set(patch["files"]):
            faults.append(f"no module that {patch['id']} edits was imported: {', '.join(patch['files'][:3])}")
    return Proof(not faults, tuple(modules), tuple(dict.fromkeys(faults)))


def _below(folder: str, file: str) -> str | None:
    try:
        return Path(file).resolve().relative_to(Path(folder).resolve()).as_posix()
    except ValueError:
        return None
