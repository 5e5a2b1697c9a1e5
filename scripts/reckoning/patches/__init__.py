"""Which source edits apply to this version, and did they land?

A patch is a folder `envs/patches/<id>/` with a `patch.yaml` (schema: workflow/schemas/patch.schema.json) that names a
distribution, the versions with the fault, and edits as exact text with the number of places where it must be found.
Nothing is guessed: text that is not found exactly as often as expected is an error, never a near match.
"""

from reckoning.patches.definition import AddedFile, Edit, Patch, PatchError, expand, known, load, load_all
from reckoning.patches.resolve import Outcome, Resolution, resolve
from reckoning.patches.tree import apply, revert, status

__all__ = [
    "AddedFile",
    "Edit",
    "Outcome",
    "Patch",
    "PatchError",
    "Resolution",
    "apply",
    "expand",
    "known",
    "load",
    "load_all",
    "resolve",
    "revert",
    "status",
]
