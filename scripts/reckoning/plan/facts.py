"""Facts of a model that rules and the memory model need, from its config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ModelFacts:
    """A model's config.json as far as it is known; `source` says where from."""

    values: Mapping[str, Any] = field(default_factory=dict)
    source: str = "unknown"
