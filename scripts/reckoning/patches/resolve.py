"""The decision, without touching a file: which edits fit this source, where exactly, and what is in the way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from packaging.utils import canonicalize_name

from reckoning.patches.definition import Edit, Patch

APPLIED = "applied"
ALREADY_UPSTREAM = "already-upstream"
NOT_NEEDED = "not-needed"
ANCHOR_MISSING = "anchor-missing"
AMBIGUOUS = "ambiguous"
OVERLAP = "overlap"
ERRORS = frozenset({ANCHOR_MISSING, AMBIGUOUS, OVERLAP})


@dataclass(frozen=True)
class Outcome:
    """What became of one patch: `status`, and `reasons` (one a line) where it needs words."""

    patch: Patch
    version: str | None
    status: str
    reasons: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether this outcome stops the whole set."""
        return self.status in ERRORS


@dataclass(frozen=True)
class Resolution:
    """Outcomes of a patch set, and `contents`: the new text of each file that changes, keyed by path."""

    outcomes: tuple[Outcome, ...]
    contents: Mapping[str, str] = field(default_factory=dict)

    @property
    def errors(self) -> list[str]:
        """Every reason that stops the set; empty when the set can be applied."""
        return [reason for outcome in self.outcomes if outcome.failed for reason in outcome.reasons]


@dataclass(frozen=True)
class _Span:
    start: int
    end: int
    new: str
    patch: str


def occurrences(text: str, part: str) -> list[tuple[int, int]]:
    """Return the non-overlapping places [start, end) of `part` in `text`."""
    places, start = [], text.find(part)
    while start >= 0:
        places.append((start, start + len(part)))
        start = text.find(part, start + len(part))
    return places


def places(text: str, edit: Edit) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return where the old text still stands and where the new text stands.

    One of the two often contains the other (a line added after an anchor): what lies inside the longer is not counted.
    """
    old, new = occurrences(text, edit.old), occurrences(text, edit.new)
    if edit.old in edit.new:
        old = [place for place in old if not _inside(place, new)]
    elif edit.new in edit.old:
        new = [place for place in new if not _inside(place, old)]
    return old, new


def resolve(
    patches: Iterable[Patch],
    versions: Mapping[str, str],
    read: Callable[[str], str | None],
) -> Resolution:
    """Decide a patch set against a source tree.

    `versions` maps distribution names to installed versions; `read` returns a file's text, or None where it does not
    exist. All places are found in the source as it is, so the order of the patches cannot matter. Any error makes
    `contents` empty: a set is applied whole or not at all.
    """
    installed = {canonicalize_name(name): version for name, version in versions.items()}
    texts: dict[str, str | None] = {}

    def text_of(path: str) -> str | None:
        if path not in texts:
            texts[path] = read(path)
        return texts[path]

    spans: dict[str, list[_Span]] = {}
    added: dict[str, tuple[str, str]] = {}
    outcomes = []
    for patch in sorted(patches, key=lambda item: item.id):
        version = installed.get(canonicalize_name(patch.package))
        outcome, patch_spans, patch_files = _resolve_one(patch, version, text_of)
        outcomes.append(outcome)
        for path, span in patch_spans:
            spans.setdefault(path, []).append(span)
        for path, content in patch_files.items():
            if path in added and added[path][1] != content:
                reason = f"{patch.id} and {added[path][0]} both add {path} with different content"
                outcomes.append(Outcome(patch, version, OVERLAP, (reason,)))
            added[path] = (patch.id, content)
    outcomes = _mark_overlaps(outcomes, spans)
    if any(outcome.failed for outcome in outcomes):
        return Resolution(tuple(outcomes))
    contents = {path: _replace(texts[path] or "", items) for path, items in spans.items()}
    contents.update({path: content for path, (_, content) in added.items()})
    return Resolution(tuple(outcomes), dict(sorted(contents.items())))


def _resolve_one(
    patch: Patch, version: str | None, text_of: Callable[[str], str | None]
) -> tuple[Outcome, list[tuple[str, _Span]], dict[str, str]]:
    if version is None:
        return Outcome(patch, None, NOT_NEEDED, (f"{patch.package} is not installed",)), [], {}
    if not patch.needed(version):
        return Outcome(patch, version, NOT_NEEDED, (f"{patch.package} {version} is outside {patch.versions}",)), [], {}
    where = f"{patch.id}: {patch.package} {version}"
    todo: list[tuple[str, _Span]] = []
    missing, ambiguous, there = [], [], []
    for edit in patch.edits_for(version):
        text = text_of(edit.file)
        if text is None:
            missing.append(f"{where}: {edit.file} does not exist")
            continue
        old, new = places(text, edit)
        quoted = repr(edit.old.strip().splitlines()[0])
        if len(old) == edit.count:
            todo += [(edit.file, _Span(start, end, edit.new, patch.id)) for start, end in old]
        elif not old and len(new) >= edit.count:
            there.append(edit.file)
        elif not old:
            missing.append(
                f"{where}: {edit.file}: the text that begins with {quoted} is not there, nor is its replacement"
            )
        else:
            ambiguous.append(
                f"{where}: {edit.file}: the text that begins with {quoted} is there {len(old)} times, not {edit.count}"
            )
    files = {}
    for item in patch.files_for(version):
        text = text_of(item.path)
        if text is None:
            files[item.path] = item.content
        elif text == item.content:
            there.append(item.path)
        else:
            ambiguous.append(f"{where}: {item.path} is to be added but exists with other content")
    if missing:
        return Outcome(patch, version, ANCHOR_MISSING, (*missing, *ambiguous)), [], {}
    if not ambiguous and there and (todo or files):
        ambiguous.append(
            f"{where}: {', '.join(sorted(set(there)))} changed already, the rest not: half of the patch is in place"
        )
    if ambiguous:
        return Outcome(patch, version, AMBIGUOUS, tuple(ambiguous)), [], {}
    if not todo and not files:
        return (
            Outcome(
                patch,
                version,
                ALREADY_UPSTREAM,
                (f"{patch.package} {version} has the change already (upstream, or applied before)",),
            ),
            [],
            {},
        )
    return Outcome(patch, version, APPLIED), todo, files


def _mark_overlaps(outcomes: list[Outcome], spans: Mapping[str, list[_Span]]) -> list[Outcome]:
    reasons: dict[str, list[str]] = {}
    for path, items in spans.items():
        ordered = sorted(items, key=lambda span: (span.start, span.end))
        for first, second in itertools.pairwise(ordered):
            if second.start < first.end:
                text = f"{first.patch} and {second.patch} edit overlapping text in {path}"
                for patch in {first.patch, second.patch}:
                    reasons.setdefault(patch, []).append(text)
    return [
        Outcome(outcome.patch, outcome.version, OVERLAP, tuple(reasons[outcome.patch.id]))
        if outcome.patch.id in reasons
        else outcome
        for outcome in outcomes
    ]


def _replace(text: str, spans: list[_Span]) -> str:
    for span in sorted(spans, key=lambda item: item.start, reverse=True):
        text = text[: span.start] + span.new + text[span.end :]
    return text


def _inside(place: tuple[int, int], others: Iterable[tuple[int, int]]) -> bool:
    return any(start <= place[0] and place[1] <= end for start, end in others)
