"""Where a model is asked, and the key that opens it, which nobody gets to see."""

from __future__ import annotations

import hashlib
import os
import re
from typing import NamedTuple, NoReturn
from urllib.parse import SplitResult, urlsplit

from ragfault.errors import UnknownName, UsageError
from ragfault.judges.llm.settings import PROVIDERS, Settings

__all__ = ["KEY", "Endpoint", "Key", "endpoint", "host", "local", "scrubbed", "where"]

KEY = "RAGFAULT_LLM_API_KEY"
"""The environment variable of a key that goes to whatever place is named; it counts before the provider's own."""
OWN = {
    "openai": (".api.openai.com",),
    "azure": (".azure.com", ".azure.us", ".azure.cn"),
}
"""Provider → the ends of the hosts that are also its own and may have its key."""
HERE = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})
USUAL = ("", "/v1", "/openai/v1")
"""Paths behind which is one service."""
HIDDEN = "[key]"
SECRETS = re.compile(
    r"\b(?:sk|pk|rk)-[\w*-]{8,}|\bAIza[\w*-]{20,}|(?<=Bearer )[^\s\"',]+|(?<=://)[^\s/@]+@|[\w-]{0,40}\*{3}[\w*-]*"
)
"""What looks like a key, in whatever a service says: several repeat a part of it in their errors."""


class Key:
    """A key that shows itself to nobody: not when printed, and not in a pickle.

    >>> Key("sk-secret")
    Key([key])
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The key itself, for the one header that it belongs in."""
        return self._text

    def __repr__(self) -> str:
        return f"Key({HIDDEN})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key is never written down; it is read from the environment again")


class Endpoint(NamedTuple):
    """A place that answers, and what opens it."""

    base_url: str
    host: str
    key: Key | None
    ours: bool
    """Whether the place belongs to the provider, so that what the environment holds for it may go there."""


def endpoint(settings: Settings) -> Endpoint:
    """The place that settings name, with the key from the environment.

    Raises UnknownName for a provider that does not exist; UsageError where the URL is none, holds a key, or a key is
    needed and there is none, or none that can be sent.
    """
    place = _place(settings)
    ours = _ours(settings, place)
    key = _key(settings, ours)
    if key is None and ours and PROVIDERS[settings.provider].keys:
        names = " or ".join((*PROVIDERS[settings.provider].keys, KEY))
        raise UsageError(f"no key for {place.netloc}. Set the environment variable {names}.")
    return Endpoint(_url(settings), place.netloc.lower(), key, ours)


def host(settings: Settings) -> str:
    """The host that is asked, with its port where that is not the usual one.

    >>> host(Settings(model="m", base_url="http://localhost:8000/v1"))
    'localhost:8000'
    """
    return _place(settings).netloc.lower()


def where(settings: Settings) -> str:
    """The place that is asked, as it is written down: the host, and the hash of an unusual path.

    One gateway may have several services behind it, each under a path of its own; the path itself may hold a secret.

    >>> where(Settings(model="m", base_url="http://localhost:8000/v1"))
    'localhost:8000'
    >>> where(Settings(model="m", base_url="https://gateway.example/team-a/v1"))
    'gateway.example/~283ef8'
    """
    path = urlsplit(_url(settings)).path
    usual = (*USUAL, urlsplit(PROVIDERS[settings.provider].base_url).path)
    return host(settings) + ("" if path in usual else f"/~{hashlib.sha256(path.encode()).hexdigest()[:6]}")


def local(settings: Settings) -> bool:
    """Whether the model runs on this machine."""
    return _place(settings).hostname in HERE


def scrubbed(text: str, key: Key | None = None) -> str:
    """A text that a service wrote, without any key in it, and short.

    >>> scrubbed("Incorrect API key provided: sk-abc***********wxyz.")
    'Incorrect API key provided: [key].'
    """
    if key is not None:
        text = text.replace(key.reveal(), HIDDEN)
    text = " ".join(SECRETS.sub(HIDDEN, text).split())
    return text if len(text) <= 300 else f"{text[:300]}…"


def _url(settings: Settings) -> str:
    if settings.provider not in PROVIDERS:
        raise UnknownName("provider", settings.provider, PROVIDERS)
    found = settings.base_url or PROVIDERS[settings.provider].base_url
    if not found:
        raise UsageError(
            f"{settings.provider} is at another place for everybody. Say it with --base-url, base_url of [llm] in "
            "ragfault.toml, or RAGFAULT_LLM_BASE_URL (https://NAME.openai.azure.com/openai/v1)."
        )
    return found.rstrip("/").removesuffix("/chat/completions")


def _place(settings: Settings) -> SplitResult:
    """The URL in its parts, none of which holds a secret."""
    try:
        place = urlsplit(_url(settings))
        ok = place.scheme in ("http", "https") and bool(place.hostname) and (place.port or 1) > 0
    except ValueError:
        ok = False
    if not ok:
        raise UsageError("the base URL is no http or https address. Write it like https://HOST/v1.")
    if place.username or place.password or place.query or place.fragment:
        raise UsageError(
            f"the base URL of {place.hostname} holds a user, a password or a query, which would be written down "
            f"with the run. Leave them out, and put the key into the environment variable {KEY}."
        )
    return place


def _ours(settings: Settings, place: SplitResult) -> bool:
    """Whether the place is the provider's own, over a line that nobody reads."""
    own = urlsplit(PROVIDERS[settings.provider].base_url)
    name = place.hostname or ""
    if own.hostname and (place.scheme, name, place.port) == (own.scheme, own.hostname, own.port):
        return True
    return place.scheme == "https" and name.endswith(OWN.get(settings.provider, ()))


def _key(settings: Settings, ours: bool) -> Key | None:
    """The key from the environment; the provider's own goes to no other place than the provider's."""
    for name in (KEY, *(PROVIDERS[settings.provider].keys if ours else ())):
        if found := os.environ.get(name, "").strip():
            if not (found.isascii() and found.isprintable()):
                raise UsageError(f"the key in {name} holds a sign that no request can carry. Set it anew.")
            return Key(found)
    return None
