"""Views of engine records: the one that an arm's launch needs, and the one of a whole experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def for_arm(document: Mapping[str, Any], slug: str) -> dict[str, Any]:
    """Return a record that was built for one patch set with the arm `slug` on it, whichever arms it was built for."""
    (overlay,) = document["overlays"]
    return {**document, "arms": {**document["arms"], slug: overlay}}


def merged(documents: Mapping[str, Mapping[str, Any]], plan_engine: Mapping[str, Any]) -> dict[str, Any]:
    """Return one engine.json for an experiment from the record of each runnable arm ({slug: record})."""
    if not documents:
        return {"schema_version": 1, **plan_engine, "packages": {}, "overlays": {}, "arms": {}}
    first = next(iter(documents.values()))
    arms = {slug: next(iter(document["overlays"])) for slug, document in documents.items()}
    overlays = {name: record for document in documents.values() for name, record in document["overlays"].items()}
    return {**first, "overlays": overlays, "arms": arms}
