"""Versions compared as numbers, component by component."""

from __future__ import annotations

import re

# The oldest Linux driver that runs programs of a CUDA major release (CUDA 13.0 release notes, table of minimum drivers;
# within a major release minor versions are compatible).
OLDEST_DRIVER = {13: (580, 65, 6), 12: (525, 60, 13), 11: (450, 80, 2)}


def numbers(text: str | None) -> tuple[int, ...] | None:
    """Return the leading dotted numbers of a version (`580.65.06` gives (580, 65, 6)), or None when there are none."""
    found = re.match(r"\s*v?(\d+(?:\.\d+)*)", text or "")
    return tuple(int(part) for part in found[1].split(".")) if found else None


def at_least(version: tuple[int, ...], oldest: tuple[int, ...]) -> bool:
    """Compare per component, missing components as 0: (580, 9) is older than (580, 65)."""
    length = max(len(version), len(oldest))
    return _padded(version, length) >= _padded(oldest, length)


def cuda_of_number(number: int) -> tuple[int, int]:
    """Decode CUDA's packed version: 12080 is 12.8."""
    return number // 1000, number % 1000 // 10


def release(version: tuple[int, ...] | None) -> tuple[int, int] | None:
    """Return major and minor."""
    return (version[0], version[1] if len(version) > 1 else 0) if version else None


def dotted(version: tuple[int, ...] | None) -> str:
    """Return a version as text."""
    return ".".join(str(part) for part in version) if version else "unknown"


def public(version: str) -> str:
    """Return a Python version without its local part: `0.6.16+cu130` gives `0.6.16`."""
    return version.partition("+")[0]


def local_cuda(version: str) -> tuple[int, int] | None:
    """Return the CUDA release in a local version part: `0.6.16+cu130` gives (13, 0), none gives None."""
    found = re.search(r"\+(?:.*\.)?cu(\d{2,3})(\d)(?:\.|$)", version)
    return (int(found[1]), int(found[2])) if found else None


def _padded(version: tuple[int, ...], length: int) -> tuple[int, ...]:
    return version + (0,) * (length - len(version))
