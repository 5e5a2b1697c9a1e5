"""Files written whole or not at all, and JSON that every reader accepts.

Whatever a stage writes appears under its final name only when it is complete: a temporary file in the same folder,
flushed to the disk, then renamed. A reader therefore never sees half a file, whenever the writer was killed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any


def jsonable(value: Any) -> Any:
    """Return `value` as plain JSON types: dataclasses and mappings as dicts, sets sorted, numpy scalars as numbers.

    NaN and infinities become None: they have no JSON form, and a browser's `JSON.parse` rejects them.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, Enum):
        return jsonable(value.value)
    if isinstance(value, str | bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, set | frozenset):
        return sorted((jsonable(item) for item in value), key=repr)
    if hasattr(value, "tolist"):  # numpy arrays and scalars, pandas columns
        return jsonable(value.tolist())
    if hasattr(value, "__iter__"):
        return [jsonable(item) for item in value]
    raise TypeError(f"no JSON form for {type(value).__name__}: {value!r}")


def json_text(value: Any, *, indent: int | None = 2, sort_keys: bool = False) -> str:
    """Return strict JSON text (never NaN or Infinity)."""
    return json.dumps(jsonable(value), indent=indent, sort_keys=sort_keys, ensure_ascii=False, allow_nan=False)


def digest(value: Any) -> str:
    """Return the SHA-256 (hex) of the canonical JSON of `value`: equal values give equal digests on every machine."""
    return hashlib.sha256(json_text(value, indent=None, sort_keys=True).encode()).hexdigest()


def sha256_file(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 (hex) of a file's bytes."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it takes the name `path`, on any error it is removed."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as stream:
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(target)
        _sync_folder(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to `path` whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` (UTF-8) to `path` whole or not at all."""
    write_bytes(path, text.encode())


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write `value` as strict, indented JSON to `path` whole or not at all."""
    write_text(path, json_text(value) + "\n")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read JSON; a file that is not JSON raises ValueError with its name and the place of the fault."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error


def write_table(path: str | os.PathLike[str], table: Any, *, csv: bool = False) -> None:
    """Write a pandas DataFrame as Parquet (and, with `csv`, as CSV under the same stem), whole or not at all."""
    target = Path(path)
    with replacing(target) as temporary:
        table.to_parquet(temporary, index=False)
    if csv:
        with replacing(target.with_suffix(".csv")) as temporary:
            table.to_csv(temporary, index=False)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
