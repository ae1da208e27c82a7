"""HTTP client: one POST attempt to a receiver, and the download of a run from a server."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode
from urllib.request import Request

import msgspec

from ragfault.apps.watch.server.storage.backup import BackupManifest, check_output, save_backup
from ragfault.http.client import download, open_url
from ragfault.io.atomic_files import convert_write_errors
from ragfault.io.runs.run import RUN_FILES, Run, check_free, publish_run, resolve_output
from ragfault.model.version import __version__
from ragfault.report.safe_text import clean_text
from ragfault.text.http import URL_OPENER, parse_retry_after

# seconds to wait for a response
POST_TIMEOUT = 10.0
# largest `Retry-After` that is respected, in seconds
MAX_RETRY_AFTER = 300.0
# statuses besides those from 500 on after which a retry may succeed
RETRY_STATUSES = (408, 425, 429)
# bytes of a response that are read
MAX_RESPONSE_BYTES = 100_000


class DeliveryAttempt(NamedTuple):
    """Result of one delivery attempt."""

    error: str | None = None
    """The reason of a failure; None: delivered."""
    retryable: bool = False
    """A retry may succeed."""
    retry_after: float = 0.0
    """Seconds that the receiver asked to wait."""
    status: int = 0
    """The HTTP status of a failure; 0: no response, or success."""
    body: bytes = b""
    """The response body of a success."""


def post(url: str, body: bytes, headers: dict[str, str], receiver: str) -> DeliveryAttempt:
    """Send one POST request; redirects are not followed, so that nothing reaches another host."""
    request = Request(url, body, {"User-Agent": f"ragfault/{__version__}", **headers}, method="POST")
    try:
        with URL_OPENER.open(request, timeout=POST_TIMEOUT) as answer:
            status, wait = answer.status, answer.headers.get("Retry-After")
            if status < 300:
                return DeliveryAttempt(body=answer.read(MAX_RESPONSE_BYTES))
        retryable = status in RETRY_STATUSES or status >= 500
        requested = min(MAX_RETRY_AFTER, parse_retry_after(wait) or 0.0)
        return DeliveryAttempt(f"{receiver} answered {status}", retryable, requested, status)
    except (OSError, HTTPException) as error:
        return DeliveryAttempt(f"{receiver} cannot be reached: {getattr(error, 'reason', error)}", True)
    except ValueError as error:
        # an address or a header that cannot be written down
        return DeliveryAttempt(f"{receiver} cannot be asked: {type(error).__name__}")


def fetch_run(
    url: str,
    parameters: Mapping[str, Any],
    out: str | Path,
    *,
    token: str | None = None,
    force: bool = False,
    notice: Callable[[str], object] = lambda _: None,
) -> Run:
    """Download the judged traces of a selection from a server, and write them as a run.

    `parameters` are those of the server's `/export.zip`; its notices are passed on, line by line. Raises UsageError for
    an invalid URL, InputError where the server refuses or cannot be reached, OutputError where the target exists.
    """
    out = resolve_output(out)
    check_free(out, force=force)
    packed = download(f"{url.rstrip('/')}/export.zip?{urlencode(dict(parameters))}", token)
    with convert_write_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
            draft = Path(folder, "run")
            draft.mkdir()
            with zipfile.ZipFile(io.BytesIO(packed)) as archive:
                notices = archive.comment.decode(errors="replace").splitlines()
                for name in sorted(RUN_FILES & set(archive.namelist())):
                    (draft / name).write_bytes(archive.read(name))
            Run.open(draft).verify_checksums()
            publish_run(draft, out, force=force)
    for line in notices:
        notice(clean_text(line))
    return Run.open(out)


def fetch_backup(url: str, out: Path, token: str | None) -> BackupManifest:
    """Download a backup of a server's store, check it, and return its manifest; `token` is an admin token.

    Raises UsageError for an invalid URL, InputError where the server refuses or what came is not whole, OutputError
    where `out` exists.
    """
    check_output(out)
    with open_url(f"{url.rstrip('/')}/backup.tar", token) as answer:
        return save_backup(iter(lambda: answer.read(1 << 20), b""), out)


def change_token(url: str, name: str, role: str | None, days: float | None, admin: str | None) -> str | None:
    """Make a token on a server and return it, or revoke it where `role` is None; `admin` is an admin token.

    Raises UsageError for an invalid URL, InputError where the server refuses or cannot be reached.
    """
    place = f"{url.rstrip('/')}/v1/ragfault/tokens"
    if role is None:
        download(f"{place}/{quote(name, safe='')}", admin, "DELETE")
        return None
    body = msgspec.json.encode({"name": name, "role": role, "days": days})
    return str(msgspec.json.decode(download(place, admin, "POST", body))["token"])
