"""Settings of a server and the limits on its requests."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

from msgspec import Struct

from ragfault import judges
from ragfault.errors import UsageError
from ragfault.evaluation.online.sampling import SamplingPolicy
from ragfault.io.redaction import parse_redaction_kinds
from ragfault.server.storage.store import is_store_folder

MIN_TOKEN_LENGTH = 16
"""Characters of a token that is chosen by hand, where others can try it."""


class RequestLimits(Struct, frozen=True, kw_only=True):
    """How much is taken; what is beyond is refused with the reason, and counted."""

    body: int = 8_000_000
    """Bytes of a request as it comes."""
    decompressed: int = 32_000_000
    """Bytes of a request when it is unpacked."""
    trace: int = 1_000_000
    """Bytes of one trace as JSON."""
    traces: int = 10_000
    """Traces in one request."""
    unscored: int = 100_000
    """Traces that may wait to be judged; then ingest answers 429 until some are."""
    pending_writes: int = 256
    """Requests that may wait for the disk; then ingest answers 429."""
    rate: float = 0.0
    """Requests a second that one client may send on average, twice as many in a burst; 0: any number; as many looks."""
    timeout: float = 60.0
    """Seconds within which a body has come whole, and the head of a request."""


class ServerSettings(Struct, frozen=True, kw_only=True):
    """How a server stores, listens, scores and forgets."""

    store: str | Path
    """The folder of the store, which is made where there is none, or its address: `clickhouse://HOST/DATABASE`."""
    folder: Path | None = None
    """Where files lie beside the store; None: in its folder, or in ./ragfault-data where it is an address."""
    host: str = "127.0.0.1"
    port: int = 4318
    token: str | None = None
    """A token with the role admin, beside those that the store keeps; needed wherever others can reach the server."""
    judge: str = judges.DEFAULT_JUDGE
    profile: str = "general"
    metrics: str | tuple[str, ...] = "default"
    workers: int = 1
    """Processes that judge; 0: traces are kept, and wait."""
    check: str | None = None
    """A better judge that is asked about a sample of the traces, "llm:MODEL"; None: nobody is."""
    share: float = 0.05
    """The chance of a trace to be in that sample; of those that tell more it is greater."""
    check_options: dict[str, Any] = {}
    """Options of that judge, as `judges.llm.settings.Settings` has them; budgets are for each day (UTC)."""
    cohort_fields: tuple[str, ...] = ("model", "release", "prompt_version")
    """The fields that divide traffic into cohorts."""
    reference_minutes: int = 24 * 60
    """How many minutes from its beginning are the reference that a metric on a route is held against."""
    retention_days: float | None = None
    """How long traces are kept; None: for ever."""
    max_bytes: int | None = None
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
    limits: RequestLimits = RequestLimits()

    def __post_init__(self) -> None:
        SamplingPolicy(share=self.share)
        if self.check is not None and not {"budget", "budget_tokens"} & set(self.check_options):
            raise UsageError(
                f"{self.check} is asked day and night: say what a day may come to, with --budget 5 (US$) or "
                '--budget "200000 tokens".'
            )
        if not is_loopback(self.host) and not self.token:
            raise UsageError(
                f"{self.host} can be reached by others, so that a token is needed. Give one with --token or "
                "RAGFAULT_TOKEN, or listen on 127.0.0.1."
            )
        if not is_loopback(self.host) and len(self.token or "") < MIN_TOKEN_LENGTH:
            raise UsageError(
                f"the token can be guessed: beyond this machine it has {MIN_TOKEN_LENGTH} characters or more. "
                "Make one with: openssl rand -hex 32."
            )
        if self.workers < 0:
            raise UsageError(f"workers are 0 or more, got {self.workers}.")
        parse_redaction_kinds(self.redact)
        if not 1 <= self.speed <= 3600:
            raise UsageError(f"a second is 1 to 3,600 seconds of the demo, got {self.speed:g}.")

    @property
    def data_folder(self) -> Path:
        """Where files lie beside the store: runs, promoted cases, caches."""
        return self.folder or Path(self.store if is_store_folder(self.store) else "ragfault-data")

    @property
    def runs_folder(self) -> Path:
        """Where the runs lie that were exported or imported."""
        return self.data_folder / "runs"


def is_loopback(host: str) -> bool:
    """Whether an address is of this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
