"""Backups: a consistent copy of a store while it is used, in a tar file, and its restoration, checked."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import msgspec
from msgspec import Struct

from ragfault.apps.watch.server.storage.duckdb.store import DATABASE_FILE, DuckDBStore, count_rows
from ragfault.apps.watch.server.storage.store import TraceStore
from ragfault.io.atomic_files import convert_write_errors
from ragfault.model.errors import InputError, OutputError, UsageError
from ragfault.model.version import __version__

MANIFEST_FILE = "manifest.json"
COPY_FOLDER = ".backup."
"""Prefix of the folder that the copy of the database lies in while it is sent."""
BESIDE = ("promoted.jsonl", "audit.jsonl*", "runs/*/*")
"""Files beside the database that belong to a backup."""
MAX_MANIFEST = 100_000_000
PART = 1 << 20
"""Bytes that are in memory at once."""


class BackupFile(Struct, frozen=True):
    """Size and checksum of a file."""

    bytes: int
    sha256: str


class BackupManifest(Struct, frozen=True, kw_only=True):
    """Contents of a backup, by which it is checked."""

    version: str
    """Of the ragfault that made it."""
    created: float
    """Seconds since 1970, UTC."""
    schema: int
    tables: dict[str, int]
    """Table → rows."""
    files: dict[str, BackupFile]
    """Path within the backup → size and checksum."""


@contextmanager
def prepare_backup(store: TraceStore, folder: Path) -> Iterator[Iterator[bytes]]:
    """Copy a store and the files of its folder; provide the parts of a tar file.

    The copy is of one moment, and writes go on meanwhile. It needs as much room in the folder as the store. Raises
    UsageError for a store that is no folder, OutputError where there is no room.
    """
    with convert_write_errors(folder), tempfile.TemporaryDirectory(prefix=COPY_FOLDER, dir=folder) as copied:
        database = Path(copied, DATABASE_FILE)
        created = time.time()
        tables = store.copy_database(database)
        paths = {DATABASE_FILE: database}
        for pattern in BESIDE:
            for path in sorted(folder.glob(pattern)):
                if path.is_file():
                    paths[path.relative_to(folder).as_posix()] = path
        files = {name: BackupFile(path.stat().st_size, _hash_file(path)) for name, path in paths.items()}
        manifest = BackupManifest(
            version=__version__, created=created, schema=store.compute_totals().schema, tables=tables, files=files
        )
        yield _build_tar(manifest, paths)


def _build_tar(manifest: BackupManifest, paths: dict[str, Path]) -> Iterator[bytes]:
    content = msgspec.json.format(msgspec.json.encode(manifest))
    yield from (_build_header(MANIFEST_FILE, len(content), manifest.created), content, _pad(len(content)))
    for name, path in paths.items():
        size = manifest.files[name].bytes
        yield _build_header(name, size, manifest.created)
        # a log that grows meanwhile is cut where it ended before
        with path.open("rb") as file:
            left = size
            while left and (part := file.read(min(PART, left))):
                left -= len(part)
                yield part
        yield _pad(size)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _build_header(name: str, size: int, created: float) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mtime = size, int(created)
    return info.tobuf(tarfile.PAX_FORMAT)


def _pad(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_backup(path: Path, folder: Path | None = None) -> BackupManifest:
    """Check every file of a backup against its manifest, and extract them where a folder is given.

    Raises InputError for anything that is not a whole backup.
    """
    try:
        with tarfile.open(path, "r:") as archive:
            return _check_members(archive, path, folder)
    except (tarfile.TarError, EOFError, msgspec.MsgspecError) as error:
        raise InputError(f"{path} is not a complete backup: {error}. Make another.") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from None


def _check_members(archive: tarfile.TarFile, path: Path, folder: Path | None) -> BackupManifest:
    head = archive.next()
    content = archive.extractfile(head) if head is not None and head.name == MANIFEST_FILE else None
    if head is None or content is None or head.size > MAX_MANIFEST:
        raise InputError(f"{path} is not a backup of a store: it has no manifest.")
    manifest = msgspec.json.decode(content.read(), type=BackupManifest)
    met: set[str] = set()
    for member in archive:
        if member.name == MANIFEST_FILE:
            continue
        known = manifest.files.get(member.name)
        place = PurePosixPath(member.name)
        source = archive.extractfile(member) if member.isfile() else None
        if known is None or source is None or place.is_absolute() or ".." in place.parts or member.name in met:
            raise InputError(f'{path} holds "{member.name[:80]}", which is not a file of its manifest.')
        met.add(member.name)
        digest = hashlib.sha256()
        with _open_target(folder, place) as target:
            while part := source.read(PART):
                digest.update(part)
                if target is not None:
                    target.write(part)
        if (member.size, digest.hexdigest()) != (known.bytes, known.sha256):
            raise InputError(f'"{member.name}" of {path} is not what its manifest says: the backup was changed.')
    if missing := sorted(set(manifest.files) - met):
        raise InputError(f'{path} lacks "{missing[0]}": the backup is not whole. Make another.')
    return manifest


@contextmanager
def _open_target(folder: Path | None, place: PurePosixPath) -> Iterator[BinaryIO | None]:
    if folder is None:
        yield None
        return
    target = folder / place
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as file:
        yield file


def write_backup(store: TraceStore, folder: Path, out: Path) -> BackupManifest:
    """Write a backup of a store that no server runs on, check it, and return its manifest.

    Raises OutputError where `out` exists or cannot be written, and what `prepare_backup` raises.
    """
    check_output(out)
    with prepare_backup(store, folder) as parts:
        return save_backup(parts, out)


def check_output(out: Path) -> None:
    """Raise OutputError where there is a file already."""
    if out.exists():
        raise OutputError(f"{out} exists. Name another file with -o.")


def delete_copies(folder: Path) -> None:
    """Delete the copies that a server left which was killed while it sent a backup."""
    for path in folder.glob(f"{COPY_FOLDER}*"):
        shutil.rmtree(path, ignore_errors=True)


def save_backup(parts: Iterator[bytes], out: Path) -> BackupManifest:
    """Write the parts of a backup under a temporary name, check it, and rename it."""
    draft = out.with_name(f".{out.name}.part")
    with convert_write_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            with draft.open("wb") as file:
                for part in parts:
                    file.write(part)
            manifest = check_backup(draft)
            draft.replace(out)
        finally:
            draft.unlink(missing_ok=True)
    return manifest


@contextmanager
def _discard_empty_folders(folder: Path) -> Iterator[None]:
    """Remove a folder that a failed step made, and the folders made above it, where they are empty."""
    created = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        yield
    except BaseException:
        for place in created:
            with suppress(OSError):
                place.rmdir()
        raise


def restore_backup(path: Path, folder: Path) -> BackupManifest:
    """Restore a backup into a folder without a store; every checksum and the rows of every table are checked first.

    Raises InputError for a backup that is not whole, OutputError where the folder holds a store.
    """
    if (folder / DATABASE_FILE).exists():
        raise OutputError(f"{folder} holds a store already. Restore into another folder.")
    with convert_write_errors(folder), _discard_empty_folders(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".restore.", dir=folder) as draft:
            manifest = check_backup(path, Path(draft))
            if DATABASE_FILE not in manifest.files:
                raise InputError(f"{path} has no database: it is not a backup of a store.")
            rows = count_rows(Path(draft, DATABASE_FILE))
            if rows != manifest.tables:
                raise InputError(f"the tables of {path} do not have the rows that its manifest says. Make another.")
            # it opens, and gets the migrations that it lacks
            DuckDBStore(Path(draft)).close()
            for name in sorted(manifest.files, key=lambda name: name == DATABASE_FILE):
                target = folder / name
                if target.exists():
                    raise OutputError(f"{target} exists. Restore into an empty folder.")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(Path(draft, name), target)
    return manifest


def require_folder(place: str | Path) -> Path:
    """Return the folder of a store. Raises UsageError for the address of a service."""
    if "://" in str(place):
        raise UsageError("a store on ClickHouse is backed up there: BACKUP DATABASE … TO …, and RESTORE DATABASE.")
    return Path(place)
