"""Randomised orders that every machine and every Python repeats from the seed.

Items are sorted by the SHA-256 of the seed and their own name, instead of being drawn from a random generator: the
order depends on nothing but these, never on the order of a file, the hash seed or a library's version, and an item
that is added leaves the relative order of the others as it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Item = TypeVar("Item", bound=Hashable)
_SEED_BITS = 63


def ticket(*parts: object) -> int:
    """Return the SHA-256, as an integer, of the parts written in order with an unambiguous separator."""
    text = "\x1f".join(f"{len(str(part))}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")


def derived_seed(*parts: object) -> int:
    """Return a seed (0 to 2^63 - 1) that belongs to these parts alone."""
    return ticket("seed", *parts) >> (256 - _SEED_BITS)


def shuffled(items: Iterable[Item], *seed: object, name: Callable[[Item], object] = lambda item: item) -> list[Item]:
    """Return `items` in the order that belongs to `seed`; equal items or names have no order of their own."""
    return sorted(items, key=lambda item: (ticket("order", *seed, name(item)), str(name(item))))
