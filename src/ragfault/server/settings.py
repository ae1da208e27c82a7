"""What a server is told when it starts."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

from msgspec import Struct

from ragfault import judges
from ragfault.errors import UsageError
from ragfault.online.sampling import Sampling
from ragfault.sources.redacting import kinds
from ragfault.store.opening import is_folder

__all__ = ["Limits", "Settings", "loopback"]


SHORTEST = 16
"""Characters of a token that is chosen by hand, where others can try it."""


class Limits(Struct, frozen=True, kw_only=True):
    """How much is taken; what is beyond is refused with the reason, and counted."""

    body: int = 8_000_000
    """Bytes of a request as it comes."""
    unpacked: int = 32_000_000
    """Bytes of a request when it is unpacked."""
    trace: int = 1_000_000
    """Bytes of one trace as JSON."""
    traces: int = 10_000
    """Traces in one request."""
    waiting: int = 100_000
    """Traces that may wait to be judged; then ingest answers 429 until some are."""
    pending: int = 256
    """Requests that may wait for the disk; then ingest answers 429."""
    rate: float = 0.0
    """Requests a second that one client may send on average, twice as many in a burst; 0: any number; as many looks."""
    patience: float = 60.0
    """Seconds within which a body has come whole, and the head of a request."""


class Settings(Struct, frozen=True, kw_only=True):
    """How a server stores, listens, scores and forgets."""

    store: str | Path
    """The folder of the store, which is made where there is none, or its address: `clickhouse://HOST/DATABASE`."""
    folder: Path | None = None
    """Where files lie beside the store; None: in its folder, or in ./ragfault-data where it is an address."""
    host: str = "127.0.0.1"
    port: int = 4318
    token: str | None = None
    """A token with the role admin, beside those that the store keeps; needed wherever others can reach the server."""
    judge: str = judges.DEFAULT
    lens: str = "general"
    metrics: str | tuple[str, ...] = "default"
    workers: int = 1
    """Processes that judge; 0: traces are kept, and wait."""
    check: str | None = None
    """A better judge that is asked about a sample of the traces, "llm:MODEL"; None: nobody is."""
    share: float = 0.05
    """The chance of a trace to be in that sample; of those that tell more it is greater."""
    asking: dict[str, Any] = {}
    """Options of that judge, as `judges.llm.settings.Settings` has them; budgets are for each day (UTC)."""
    by: tuple[str, ...] = ("model", "release", "prompt_version")
    """The fields that divide traffic into cohorts."""
    reference: int = 24 * 60
    """How many minutes from its beginning are the reference that a metric on a route is held against."""
    days: float | None = None
    """How long traces are kept; None: for ever."""
    bytes: int | None = None
    """How large the store may grow; then the oldest traces go."""
    rules: Path | None = None
    """A TOML file of alert rules, beside those that always hold."""
    webhook: str | None = None
    """Where alerts are sent."""
    shape: str = "ragfault"
    """What they look like there: "ragfault", "slack" or "alertmanager"."""
    secret: str | None = None
    """What they are signed with (HMAC-SHA256)."""
    mail_to: tuple[str, ...] = ()
    """Who is told of alerts by mail."""
    mail_from: str | None = None
    smtp: str | None = None
    """The mail server: `smtp://user@host:587`, or `smtps://…`."""
    smtp_password: str | None = None
    otlp: str | None = None
    """Where scores of traces that came as spans are sent: an OTLP/HTTP endpoint."""
    otlp_headers: tuple[tuple[str, str], ...] = ()
    """What is sent with them: names and values."""
    otlp_spans: bool = False
    """Whether they are sent as spans, too."""
    redact: tuple[str, ...] = ()
    """The kinds of values that are replaced before anything is kept: "email", "phone", "card", "key", or "all"."""
    redact_key: str | None = None
    """A secret by which ids that are replaced stay the same from one start to the next."""
    demo: bool = False
    speed: float = 60.0
    """Seconds of the demo to a second."""
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        Sampling(share=self.share)
        if self.check is not None and not {"budget", "budget_tokens"} & set(self.asking):
            raise UsageError(
                f"{self.check} is asked day and night: say what a day may come to, with --budget 5 (US$) or "
                '--budget "200000 tokens".'
            )
        if not loopback(self.host) and not self.token:
            raise UsageError(
                f"{self.host} can be reached by others, so that a token is needed. Give one with --token or "
                "RAGFAULT_TOKEN, or listen on 127.0.0.1."
            )
        if not loopback(self.host) and len(self.token or "") < SHORTEST:
            raise UsageError(
                f"the token can be guessed: beyond this machine it has {SHORTEST} characters or more. "
                "Make one with: openssl rand -hex 32."
            )
        if self.workers < 0:
            raise UsageError(f"workers are 0 or more, got {self.workers}.")
        kinds(self.redact)
        if not 1 <= self.speed <= 3600:
            raise UsageError(f"a second is 1 to 3,600 seconds of the demo, got {self.speed:g}.")

    @property
    def files(self) -> Path:
        """Where files lie beside the store: runs, promoted cases, caches."""
        return self.folder or Path(self.store if is_folder(self.store) else "ragfault-data")

    @property
    def runs(self) -> Path:
        """Where the runs lie that were exported or imported."""
        return self.files / "runs"


def loopback(host: str) -> bool:
    """Whether an address is of this machine alone.

    >>> loopback("127.0.0.1"), loopback("::1"), loopback("localhost"), loopback("0.0.0.0"), loopback("example.org")
    (True, True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
