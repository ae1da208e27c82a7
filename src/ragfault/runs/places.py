"""The places a run is made in and moved to; nothing there that is not ragfault's own is ever touched."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ragfault.errors import OutputError
from ragfault.runs.run import Manifest

__all__ = ["check_free", "clear", "desk", "partial_path", "resolved", "settle", "writing"]

RUN = frozenset({"manifest.json", "traces.parquet", "verdicts.parquet", "scores.parquet"})
"""What a run holds; a folder that holds anything else is never replaced."""

DESK = frozenset({"lock", "plan.json", "plan.json.draft", "parts", "run", "old", "input", "bad.jsonl"})
"""What a run in the making holds; a folder that holds anything else is never worked in."""


def resolved(out: str | Path) -> Path:
    """The place as it was named, or, for a link or a name such as `.`, the place that is meant."""
    out = Path(out)
    return out.resolve() if out.is_symlink() or out.name in ("", ".", "..") else out


def partial_path(out: Path) -> Path:
    """Where a run is made before it is whole."""
    return out.with_name(out.name + ".partial")


def check_free(out: Path, *, force: bool = False) -> None:
    """Refuse a place that is taken: by a run unless forced, by anything else always."""
    if not out.exists():
        return
    if not _is_run(out):
        raise OutputError(f"{out} exists and is not a run. Choose another place with -o.")
    others = sorted(path.name for path in out.iterdir() if path.name not in RUN)
    if others and force:
        raise OutputError(
            f"{out} holds more than a run ({', '.join(others[:3])}), so it is not replaced. "
            "Move that away, or choose another place with -o."
        )
    if not force:
        raise OutputError(f"{out} exists already. Choose another place with -o, or replace it with --force.")


def _is_run(place: Path) -> bool:
    """Whether a folder has the manifest of a run."""
    try:
        msgspec.json.decode((place / "manifest.json").read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError):
        return False
    return True


@contextlib.contextmanager
def desk(out: Path) -> Iterator[Path]:
    """The folder where the run for `out` is made, held by this process alone.

    Raises OutputError where another evaluation is at work there, or the folder holds what is not ragfault's.
    """
    place = partial_path(out)
    if place.exists():
        foreign = sorted({path.name for path in place.iterdir()} - DESK) if place.is_dir() else [place.name]
        if foreign:
            raise OutputError(
                f"{place} is needed to make the run, and it holds something else ({', '.join(foreign[:3])}). "
                "Move that away, or choose another place with -o."
            )
    with writing(place):
        place.mkdir(parents=True, exist_ok=True)
        lock = (place / "lock").open("wb")
    with lock:
        _hold(lock.fileno(), out)
        try:
            yield place
        finally:
            if not (place / "plan.json").exists():
                clear(place)


def _hold(handle: int, out: Path) -> None:
    """Lock a file for this process; where the system has no such locks, trust the user."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputError(
            f"another evaluation is writing {out}. Wait for it, or choose another place with -o."
        ) from None


def clear(place: Path) -> None:
    """Remove what ragfault made in a folder, and the folder if that was all."""
    for name in DESK:
        path = place / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        place.rmdir()


def settle(draft: Path, out: Path, *, force: bool) -> None:
    """Move a whole run to its place; a run that stood there gives way only to `force`."""
    check_free(out, force=force)
    if out.exists():
        old = draft.with_name("old")
        shutil.rmtree(old, ignore_errors=True)
        out.rename(old)
    draft.rename(out)


@contextlib.contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turn what the operating system says while writing into an OutputError that says what to do."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot write to {place}: {_advice(error)}") from error


def _advice(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "the disk is full. What was written is kept: free some space and run the same command again."
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return f"{error.strerror}. Choose another place with -o."
    return f"{error.strerror or error}."
