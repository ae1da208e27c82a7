"""The places a run is made in and moved to; nothing there that is not ragfault's own is ever touched.

On a disk things appear by a rename, in an object store by a put; both whole or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import msgspec

from ragfault.errors import OutputError
from ragfault.runs.run import Manifest
from ragfault.sources.remote import Place, Remote, as_place

__all__ = [
    "check_free",
    "clear",
    "desk",
    "drop",
    "partial_path",
    "placed",
    "put",
    "resolved",
    "settle",
    "token",
    "writing",
]

RUN = frozenset({"manifest.json", "traces.parquet", "verdicts.parquet", "scores.parquet"})
"""What a run holds; a folder that holds anything else is never replaced."""

DESK = frozenset({"lock", "plan.json", "plan.json.draft", "parts", "run", "old", "input", "bad.jsonl"})
"""What a run in the making holds; a folder that holds anything else is never worked in."""


def resolved(out: str | Path) -> Path:
    """The place as it was named, or, for a link or a name such as `.`, the place that is meant."""
    out = Path(out)
    return out.resolve() if out.is_symlink() or out.name in ("", ".", "..") else out


def placed(out: str | Place) -> Place:
    """The same of a place that may be in an object store."""
    out = as_place(out)
    return out if isinstance(out, Remote) else resolved(out)


def partial_path(out: Place) -> Place:
    """Where a run is made before it is whole."""
    return out.with_name(out.name + ".partial")


def check_free(out: Place, *, force: bool = False) -> None:
    """Refuse a place that is taken: by a run unless forced, by anything else always.

    Raises OutputError; also where a store cannot be asked.
    """
    with writing(out):
        if not out.exists():
            return
    if not _is_run(out):
        if isinstance(out, Remote) and _left(out):
            return
        raise OutputError(f"{out} exists and is not a run. Choose another place with -o.")
    others = sorted(path.name for path in out.iterdir() if path.name not in RUN)
    if others and force:
        raise OutputError(
            f"{out} holds more than a run ({', '.join(others[:3])}), so it is not replaced. "
            "Move that away, or choose another place with -o."
        )
    if not force:
        raise OutputError(f"{out} exists already. Choose another place with -o, or replace it with --force.")


def _left(out: Remote) -> bool:
    """Whether nothing is there but what a commit left that was broken off: tables without a manifest."""
    return {one.name for one in out.iterdir()} <= RUN and partial_path(out).exists()


def _is_run(place: Place) -> bool:
    """Whether a folder has the manifest of a run."""
    try:
        msgspec.json.decode((place / "manifest.json").read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError):
        return False
    return True


@contextlib.contextmanager
def desk(out: Place) -> Iterator[Place]:
    """The folder where the run for `out` is made; on a disk it is held by this process alone.

    In an object store nothing can be held: two evaluations of the same traces, judge and metrics write the very same
    parts there, and one of anything else is refused by its plan. Raises OutputError where another evaluation is at
    work there, or the folder holds what is not ragfault's.
    """
    place = partial_path(out)
    with writing(place):
        _ours(place)
    if isinstance(place, Remote):
        yield place
        return
    with writing(place):
        place.mkdir(parents=True, exist_ok=True)
        lock = (place / "lock").open("ab")
    with lock:
        _hold(lock.fileno(), out)
        lock.truncate(0)
        lock.write(uuid4().hex.encode())
        lock.flush()
        try:
            yield place
        finally:
            if not (place / "plan.json").exists():
                clear(place)


def _ours(place: Place) -> None:
    """Refuse a folder that holds what is not ragfault's."""
    if not place.exists():
        return
    foreign = sorted({path.name for path in place.iterdir()} - DESK) if place.is_dir() else [place.name]
    if foreign:
        raise OutputError(
            f"{place} is needed to make the run, and it holds something else ({', '.join(foreign[:3])}). "
            "Move that away, or choose another place with -o."
        )


def token(place: Place) -> str:
    """What the process that holds a desk wrote there: who reads the same stands before the same disk."""
    if isinstance(place, Remote):
        return place.url
    try:
        return (place / "lock").read_text()
    except OSError:
        return ""


def _hold(handle: int, out: Place) -> None:
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


def clear(place: Place) -> None:
    """Remove what ragfault made in a folder, and the folder if that was all."""
    if isinstance(place, Remote):
        place.remove()
        return
    for name in DESK:
        path = place / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        place.rmdir()


def drop(place: Place) -> None:
    """Remove a folder that ragfault made, with all that is in it."""
    if isinstance(place, Remote):
        place.remove()
    else:
        shutil.rmtree(place, ignore_errors=True)


def put(place: Place, content: bytes) -> None:
    """Write a small file whole or not at all."""
    if isinstance(place, Remote):
        place.write_bytes(content)
        return
    draft = place.with_name(place.name + ".draft")
    draft.write_bytes(content)
    os.replace(draft, place)


def settle(draft: Path, out: Place, *, force: bool) -> None:
    """Move a whole run to its place; a run that stood there gives way only to `force`.

    In an object store the manifest is put last: a run is there when its manifest is.
    """
    check_free(out, force=force)
    if isinstance(out, Remote):
        (out / "manifest.json").unlink(missing_ok=True)
        for name in sorted(RUN - {"manifest.json"}):
            with (draft / name).open("rb") as file, (out / name).open("wb") as there:
                shutil.copyfileobj(file, there, 1 << 20)
        (out / "manifest.json").write_bytes((draft / "manifest.json").read_bytes())
        return
    if out.exists():
        old = draft.with_name("old")
        shutil.rmtree(old, ignore_errors=True)
        out.rename(old)
    draft.rename(out)


@contextlib.contextmanager
def writing(place: Place) -> Iterator[None]:
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
