"""The engine itself: its arguments, its patches, and what it silently does."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from reckoning.plan import flags
from reckoning.plan.rules.core import Objection, Setup, rule


def _flag_faults(setup: Setup, *, kind: str) -> Iterator[Objection]:
    written = setup.settings if setup.written is None else setup.written
    for fault in flags.faults(written, setup.flags):
        if fault.kind == kind:
            yield Objection(fault.reason, fault.remedy)


# One rule for each kind of fault that `reckoning.plan.flags` finds.
for _kind, _level, _summary in (
    ("unknown-flag", "reject", "Every setting is an argument of this engine version."),
    (
        "abbreviated-flag",
        "reject",
        "No setting is the beginning of another argument, which argparse would take it for.",
    ),
    ("flag-value", "reject", "Every setting has a value that the engine's parser accepts."),
    ("flag-twice", "reject", "No argument is given under two of its names."),
    ("flag-deprecated", "note", "An argument that this version calls deprecated."),
):
    rule(_kind, level=_level, summary=_summary)(functools.partial(_flag_faults, kind=_kind))


@rule("flags-unchecked", level="note", summary="There is no table of this engine's arguments.")
def flags_unchecked(setup: Setup) -> Iterator[Objection]:
    if not setup.flags.flags:
        yield Objection(
            f"the arguments of SGLang {setup.version or '(version unknown)'} are not known here and not checked",
            "run python -m reckoning.plan --record-flags PYTHON with the engine's interpreter",
        )


@rule("unknown-patch", level="reject", summary="Every patch of an arm exists in envs/patches.")
def unknown_patch(setup: Setup) -> Iterator[Objection]:
    if setup.known_patches is None:
        return
    for patch in sorted(setup.patches - setup.known_patches):
        yield Objection(f"there is no patch {patch}", f"use some of {', '.join(sorted(setup.known_patches)) or 'none'}")


@rule("declared-unavailable", level="unavailable", summary="The experiment file says that the engine lacks this.")
def declared_unavailable(setup: Setup) -> Iterator[Objection]:
    if setup.unavailable is not None:
        where = f"; see {setup.unavailable.reference}" if setup.unavailable.reference else ""
        yield Objection(setup.unavailable.reason, f"remove `unavailable` when the engine has it{where}")


@rule(
    "effective-settings",
    level="note",
    summary="What the engine will change or fill in by itself, as far as it can be known before the start.",
)
def effective_settings(setup: Setup) -> Iterator[Objection]:
    for change in setup.layout.changes:
        asked = "not set" if change.requested is None else f"{change.requested}"
        yield Objection(f"{change.argument}: {asked} -> {change.effective} ({change.why})", "set it to say so")
