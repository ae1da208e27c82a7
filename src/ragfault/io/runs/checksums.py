"""Checksums of a run: those of its tables stand in the manifest, and the manifest has one of itself."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any, cast

import msgspec

from ragfault.io.remote_paths import AnyPath, get_file_stamp, parse_path
from ragfault.model.errors import RunError


def compute_checksum(path: AnyPath) -> str:
    """Compute the SHA-256 of a file, in hex. Raises OSError where it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(cast(Any, file), "sha256").hexdigest()


def compute_manifest_checksum(content: bytes) -> str:
    """Compute the SHA-256 of a manifest without its own checksum, whatever its white space and the order of its fields.

    Raises MsgspecError for what is not a JSON object.
    """
    fields = msgspec.json.decode(content, type=dict[str, Any])
    fields.pop("checksum", None)
    return hashlib.sha256(msgspec.json.encode(fields, order="deterministic")).hexdigest()


def verify_table(path: AnyPath, expected: str | None) -> None:
    """Check that a table has the checksum of the manifest; each state of a file is read once by a process.

    Runs made without checksums are not checked. Raises RunError, and OSError where the file cannot be read.
    """
    if expected is not None:
        compare_checksums(path, _read_checksum(str(path), get_file_stamp(str(path))), expected)


def compare_checksums(path: AnyPath, actual: str, expected: str) -> None:
    """Raise RunError where the checksum of a file is not that of the manifest."""
    if actual != expected:
        raise RunError(
            f"{path} is damaged: its checksum is not that of the manifest. Copy the run again, or evaluate again."
        )


@lru_cache(maxsize=256)
def _read_checksum(name: str, stamp: str) -> str:  # noqa: ARG001 - a changed stamp means another file
    return compute_checksum(parse_path(name))
