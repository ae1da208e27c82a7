"""Fetching from a running server, over HTTP: a selection of its traces as a run."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

import msgspec

from ragfault.errors import InputError, UsageError
from ragfault.runs import Run
from ragfault.runs.places import RUN, check_free, resolved, settle, writing

__all__ = ["fetch_run"]

PATIENCE = 600
"""Seconds for which an answer is waited for."""


def fetch_run(
    url: str, asked: Mapping[str, Any], out: str | Path, *, token: str | None = None, force: bool = False
) -> Run:
    """The judged traces of a selection of the server at an address, written as a run.

    `asked` are the parameters of the server's `/traces.json`. Raises UsageError for what is no address, InputError
    where the server refuses or cannot be reached, OutputError where the place is taken.
    """
    out = resolved(out)
    check_free(out, force=force)
    packed = _get(f"{url.rstrip('/')}/export.zip?{urlencode(dict(asked))}", token)
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
            draft = Path(folder, "run")
            draft.mkdir()
            with zipfile.ZipFile(io.BytesIO(packed)) as archive:
                for name in sorted(RUN & set(archive.namelist())):
                    (draft / name).write_bytes(archive.read(name))
            Run.open(draft)
            settle(draft, out, force=force)
    return Run.open(out)


def _get(url: str, token: str | None) -> bytes:
    if urlsplit(url).scheme not in ("http", "https"):
        raise UsageError(
            f'"{url.partition("/export.zip")[0]}" is no address of a server: http://127.0.0.1:4318'
        )
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urlopen(Request(url, headers=headers), timeout=PATIENCE) as answer:
            found: bytes = answer.read()
            return found
    except HTTPError as error:
        with error:
            raise InputError(f"the server refuses: {_told(error.read())}") from None
    except (URLError, OSError) as error:
        raise InputError(f"cannot reach {urlsplit(url).netloc}: {getattr(error, 'reason', error)}.") from None


def _told(body: bytes) -> str:
    """What a problem says."""
    try:
        return str(msgspec.json.decode(body)["detail"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        return body[:200].decode(errors="replace")
