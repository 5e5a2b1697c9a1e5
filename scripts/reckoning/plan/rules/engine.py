"""The engine itself: its arguments, its patches, and what it silently does."""

from __future__ import annotations

from collections.abc import Iterator

from reckoning.plan import flags
from reckoning.plan.rules.core import Objection, Setup, rule


def _flag_faults(setup: Setup, kind: str) -> Iterator[Objection]:
    written = setup.settings if setup.written is None else setup.written
    for fault in flags.faults(written, setup.flags):
        if fault.kind == kind:
            yield Objection(fault.reason, fault.remedy)


@rule("unknown-flag", level="reject", summary="Every setting is an argument of this engine version.")
def unknown_flag(setup: Setup) -> Iterator[Objection]:
    yield from _flag_faults(setup, "unknown-flag")


@rule(
    "abbreviated-flag",
    level="reject",
    summary="No setting is the beginning of another argument: argparse would silently take it for that, or refuse.",
)
def abbreviated_flag(setup: Setup) -> Iterator[Objection]:
    yield from _flag_faults(setup, "abbreviated-flag")


@rule("flag-value", level="reject", summary="Every setting has a value that the engine's parser accepts.")
def flag_value(setup: Setup) -> Iterator[Objection]:
    yield from _flag_faults(setup, "flag-value")


@rule("flag-twice", level="reject", summary="No argument is given under two of its names.")
def flag_twice(setup: Setup) -> Iterator[Objection]:
    yield from _flag_faults(setup, "flag-twice")


@rule("flag-deprecated", level="note", summary="An argument that this version calls deprecated.")
def flag_deprecated(setup: Setup) -> Iterator[Objection]:
    yield from _flag_faults(setup, "flag-deprecated")


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
