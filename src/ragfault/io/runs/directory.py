"""Directory of a run: check it, lock it, write to it atomically, and publish the finished run.

Files of other programs are never touched. On a disk files appear by a rename, in an object store by one put.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import msgspec

from ragfault.errors import OutputError
from ragfault.io.atomic_files import PART_SUFFIX, convert_write_errors
from ragfault.io.remote_paths import AnyPath, RemotePath, parse_path
from ragfault.io.runs.run import Manifest

RUN_FILES = frozenset({"manifest.json", "traces.parquet", "verdicts.parquet", "scores.parquet"})
"""Files of a run; a folder with any other file is never replaced."""

PARTIAL_FILES = frozenset({"lock", "plan.json", "parts", "run", "old", "input", "bad.jsonl"})
"""Files of an unfinished run; a folder with any other file is never written to."""


def resolve_output(out: str | Path) -> Path:
    """Return the path as named; resolve a link or a name such as `.`."""
    out = Path(out)
    return out.resolve() if out.is_symlink() or out.name in ("", ".", "..") else out


def parse_output(out: str | AnyPath) -> AnyPath:
    """Do the same for a place that may be in an object store."""
    out = parse_path(out)
    return out if isinstance(out, RemotePath) else resolve_output(out)


def get_partial_path(out: AnyPath) -> AnyPath:
    """Return the folder in which a run is built."""
    return out.with_name(out.name + ".partial")


def check_free(out: AnyPath, *, force: bool = False) -> None:
    """Refuse a place that is taken: by a run unless forced, by anything else always.

    Raises OutputError; also where a store cannot be asked.
    """
    with convert_write_errors(out):
        if not out.exists():
            return
    if not _has_run_manifest(out):
        if isinstance(out, RemotePath) and _is_interrupted_upload(out):
            return
        raise OutputError(f"{out} exists and is not a run. Choose another place with -o.")
    others = sorted(path.name for path in out.iterdir() if path.name not in RUN_FILES)
    if others and force:
        raise OutputError(
            f"{out} holds more than a run ({', '.join(others[:3])}), so it is not replaced. "
            "Move that away, or choose another place with -o."
        )
    if not force:
        raise OutputError(f"{out} exists already. Choose another place with -o, or replace it with --force.")


def _is_interrupted_upload(out: RemotePath) -> bool:
    """Tell whether an interrupted upload left only tables without a manifest."""
    return {file.name for file in out.iterdir()} <= RUN_FILES and get_partial_path(out).exists()


def _has_run_manifest(path: AnyPath) -> bool:
    try:
        msgspec.json.decode((path / "manifest.json").read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError):
        return False
    return True


@contextlib.contextmanager
def lock_run(out: AnyPath) -> Iterator[AnyPath]:
    """Yield the folder in which the run for `out` is built; on a disk it is locked for this process.

    In an object store nothing can be held: two evaluations of the same traces, judge and metrics write the very same
    parts there, and one of anything else is refused by its plan. Raises OutputError where another evaluation is at
    work there, or the folder holds what is not ragfault's.
    """
    place = get_partial_path(out)
    with convert_write_errors(place):
        _check_partial_folder(place)
    if isinstance(place, RemotePath):
        yield place
        return
    with convert_write_errors(place):
        place.mkdir(parents=True, exist_ok=True)
        lock = (place / "lock").open("ab")
    with lock:
        _acquire_file_lock(lock.fileno(), out)
        lock.truncate(0)
        lock.write(uuid4().hex.encode())
        lock.flush()
        try:
            yield place
        finally:
            if not (place / "plan.json").exists():
                clear_partial_run(place)


def _check_partial_folder(folder: AnyPath) -> None:
    """Refuse a folder that holds what is not ragfault's."""
    if not folder.exists():
        return
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {folder.name}
    foreign = sorted(name for name in names - PARTIAL_FILES if not name.endswith(PART_SUFFIX))
    if foreign:
        raise OutputError(
            f"{folder} is needed to make the run, and it holds something else ({', '.join(foreign[:3])}). "
            "Move that away, or choose another place with -o."
        )


def read_lock_token(folder: AnyPath) -> str:
    """Read the token of the process that locked a folder: equal tokens mean the same disk."""
    if isinstance(folder, RemotePath):
        return folder.url
    try:
        return (folder / "lock").read_text()
    except OSError:
        return ""


def _acquire_file_lock(handle: int, out: AnyPath) -> None:
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


def clear_partial_run(place: AnyPath) -> None:
    """Remove what ragfault made in a folder, and the folder if that was all."""
    if isinstance(place, RemotePath):
        place.remove_tree()
        return
    for path in (*(place / name for name in PARTIAL_FILES), *place.glob(f".*{PART_SUFFIX}")):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        place.rmdir()


def remove_folder(folder: AnyPath) -> None:
    """Remove a folder that ragfault made, with all that is in it."""
    if isinstance(folder, RemotePath):
        folder.remove_tree()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def publish_run(draft: Path, out: AnyPath, *, force: bool) -> None:
    """Move a whole run to its place; a run that stood there gives way only to `force`.

    In an object store the manifest is put last: a run is there when its manifest is.
    """
    check_free(out, force=force)
    if isinstance(out, RemotePath):
        (out / "manifest.json").unlink(missing_ok=True)
        for name in sorted(RUN_FILES - {"manifest.json"}):
            with (draft / name).open("rb") as file, (out / name).open("wb") as there:
                shutil.copyfileobj(file, there, 1 << 20)
        (out / "manifest.json").write_bytes((draft / "manifest.json").read_bytes())
        return
    if out.exists():
        old = draft.with_name("old")
        shutil.rmtree(old, ignore_errors=True)
        out.rename(old)
    draft.rename(out)
