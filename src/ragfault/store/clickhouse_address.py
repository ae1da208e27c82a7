"""Where a ClickHouse is, read from an address; the password is kept out of all that is shown."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from ragfault.errors import UsageError

__all__ = ["PASSWORD", "SCHEMES", "Address", "read_address"]

PASSWORD = "RAGFAULT_CLICKHOUSE_PASSWORD"
"""The environment variable that the password is read from where the address has none."""

SCHEMES = ("clickhouse", "clickhouses", "chdb")

FORM = "clickhouse://user:password@host:8123/database"


@dataclass(frozen=True, repr=False)
class Address:
    """A server, or the folder of an engine in this process."""

    host: str
    port: int
    user: str
    password: str
    database: str
    secure: bool
    folder: str | None = None
    """Of chdb, the same engine inside of this process: for trying out and for tests."""

    def __str__(self) -> str:
        """The address without user and password."""
        if self.folder is not None:
            return f"chdb://{self.folder}?database={self.database}"
        return f"clickhouse{'s' if self.secure else ''}://{self.host}:{self.port}/{self.database}"

    __repr__ = __str__  # so that no traceback shows the password


def read_address(text: str) -> Address:
    """An address from its text; the password also from RAGFAULT_CLICKHOUSE_PASSWORD.

    `clickhouses://` or `?secure=1` asks for TLS. `chdb:///FOLDER`, and `?database=`, is the engine in this process.
    Raises UsageError for what is no such address, without telling the password.

    >>> read_address("clickhouse://ann:geheim@db.example:9123/watched?secure=1")
    clickhouses://db.example:9123/watched
    >>> read_address("chdb:///srv/watched").folder
    '/srv/watched'
    """
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise UsageError(f"the address of the store cannot be read. Write it as {FORM}") from None
    if parts.scheme == "chdb":
        name = _options(parts.query, "database").get("database", "")
        return Address("", 0, "", "", _database(name), False, folder=_folder(unquote(parts.path)))
    secure = _secure(parts.query) or parts.scheme == "clickhouses"
    if not parts.hostname:
        raise UsageError(f"the address of the store names no host. Write it as {FORM}")
    return Address(
        host=parts.hostname,
        port=port or (8443 if secure else 8123),
        user=unquote(parts.username or "default"),
        password=unquote(parts.password or os.environ.get(PASSWORD, "")),
        database=_database(unquote(parts.path.strip("/"))),
        secure=secure,
    )


def _folder(path: str) -> str:
    if not path.strip("/"):
        raise UsageError("chdb:// needs a folder: chdb:///srv/watched")
    return path


def _database(name: str) -> str:
    """The name of a database, which stands in statements as it is and so must be plain."""
    if not name:
        return "ragfault"
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name):
        raise UsageError(
            f'"{name[:70]}" is no name of a database here: letters, digits and underscores, at most 64.'
        )
    return name


def _secure(query: str) -> bool:
    """Whether the query of an address asks for TLS."""
    value = _options(query, "secure").get("secure", "0")
    if value not in ("0", "1"):
        raise UsageError("secure is 0 or 1 in the address of a store.")
    return value == "1"


def _options(query: str, known: str) -> dict[str, str]:
    """The options of an address, of which there is one."""
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(set(options) - {known})
    if unknown:
        raise UsageError(f'the address of the store has no option "{unknown[0][:40]}". There is: {known}.')
    return options
