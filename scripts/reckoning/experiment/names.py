"""Names that are safe as folders, and help for those who mistype one."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable

LONGEST_SLUG = 60


def slug(label: str) -> str:
    """Return the folder name of a label: `[a-z0-9][a-z0-9-]*`, or "" when nothing of it can be kept.

    Accents are removed, everything else outside a-z and 0-9 becomes one hyphen: "tp4/ep2" -> "tp4-ep2", "../x" -> "x".
    """
    plain = unicodedata.normalize("NFKD", label).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:LONGEST_SLUG].rstrip("-")


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return the known name nearest to `word`, or None when none is near."""
    folded = {name.lower().replace("-", "_"): name for name in known}
    near = difflib.get_close_matches(word.lower().replace("-", "_"), folded, n=1, cutoff=0.6)
    return folded[near[0]] if near else None


def remedy_for(word: str, known: Iterable[str]) -> str:
    """Return what to advise one who wrote `word` where only `known` names are possible."""
    names = list(known)
    near = did_you_mean(word, names)
    return f"did you mean {near}?" if near else f"use one of: {', '.join(names)}"
