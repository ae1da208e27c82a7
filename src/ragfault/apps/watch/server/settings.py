"""Settings of a server and the limits on its requests."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Any

from msgspec import Struct

from ragfault.apps.watch.server.storage.opening import is_store_folder
from ragfault.evaluation.online.scorer import SamplingPolicy
from ragfault.http.addresses import format_address, is_loopback
from ragfault.http.bodies import RequestLimits
from ragfault.io.redaction import parse_redaction_kinds
from ragfault.judges.loading import DEFAULT_JUDGE
from ragfault.model.errors import UsageError

MIN_TOKEN_LENGTH = 16  # characters of a token that is chosen by hand, where other machines can reach the server


class ServerSettings(Struct, frozen=True, kw_only=True):
    """Settings of a server: storage, network, scoring, alerts, export and retention."""

    store: str | Path
    """The folder of the store, created where there is none, or its address: `clickhouse://HOST/DATABASE`."""
    folder: Path | None = None
    """The folder of runs and caches; None: that of the store, or ./ragfault-data where the store is an address."""
    host: str = "127.0.0.1"
    port: int = 4318
    token: str | None = None
    """A token with the role admin, besides those of the store; required where other machines reach the server."""
    judge: str = DEFAULT_JUDGE
    profile: str = "general"
    calibration: str | None = None  # a file of `ragfault judge calibrate`, by which the judge is calibrated
    metrics: str | tuple[str, ...] = "default"
    workers: int = 1  # processes that judge; 0: traces are stored and wait
    check: str | None = None
    """A stronger judge for spot checks, "llm:MODEL"; None: no spot checks."""
    share: float = 0.05  # the probability that a trace is drawn for a spot check; suspicious traces have a higher one
    check_options: dict[str, Any] = {}
    """Options of that judge, as in `judges.llm.settings`; budgets are per day (UTC)."""
    cohort_fields: tuple[str, ...] = ("model", "release", "prompt_version")
    """The fields that divide traffic into cohorts."""
    reference_minutes: int = 24 * 60  # minutes from the start of a metric on a route that are its reference
    retention_days: float | None = None  # days for which traces are stored; None: for ever
    max_bytes: int | None = None  # size of the store above which the oldest traces are deleted
    rules: Path | None = None  # a TOML file of alert rules, in addition to the built-in ones
    webhook: str | None = None  # the URL that alerts are sent to
    shape: str = "ragfault"
    """The format of webhooks: "ragfault", "slack" or "alertmanager"."""
    secret: str | None = None  # the key that webhooks are signed with (HMAC-SHA256)
    mail_to: tuple[str, ...] = ()  # the addresses that alerts are mailed to
    mail_from: str | None = None
    smtp: str | None = None  # the mail server: `smtp://user@host:587`, or `smtps://…`
    smtp_password: str | None = None
    otlp: str | None = None  # the OTLP/HTTP endpoint that scores of traces received as spans are sent to
    otlp_headers: tuple[tuple[str, str], ...] = ()  # headers of these requests: names and values
    otlp_spans: bool = False  # export scores as spans, too
    redact: tuple[str, ...] = ()
    """The kinds of values that are redacted before storage: "email", "phone", "card", "key", or "all"."""
    redact_key: str | None = None  # a secret that keeps redacted ids stable across restarts
    session_hours: float = 12.0  # hours for which a browser stays signed in
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks of the proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed."""
    root_path: str = ""
    """The path below which a proxy shows this server: "/ragfault"."""
    public_url: str = ""
    """The address at which a proxy shows this server, with the root path, for links in notices: "https://rag.test"."""
    request_log: str | None = None
    """The file that a line is written to for each request; "-": standard output."""
    page_files: dict[str, Path] = {}
    """The files that pages of other apps show, by the options of `ragfault.apps.registry.App.page_options`."""
    demo: bool = False
    speed: float = 60.0  # seconds of the demo per real second
    limits: RequestLimits = RequestLimits()

    def __post_init__(self) -> None:
        SamplingPolicy(share=self.share)
        if self.check is not None and not {"budget", "budget_tokens"} & set(self.check_options):
            raise UsageError(
                f"{self.check} is asked day and night: say what a day may come to, with --budget 5 (US$) or "
                '--budget "200000 tokens".'
            )
        is_reachable = not is_loopback(self.host) or bool(self.trusted_proxies)
        if is_reachable and not self.token:
            raise UsageError(
                f"{'a proxy' if self.trusted_proxies else self.host} can be reached by others, so that a token is "
                "needed. Give one with --token or RAGFAULT_TOKEN, or listen on 127.0.0.1 without a proxy."
            )
        self._check_proxy()
        if is_reachable and len(self.token or "") < MIN_TOKEN_LENGTH:
            raise UsageError(
                f"the token can be guessed: beyond this machine it has {MIN_TOKEN_LENGTH} characters or more. "
                "Make one with: openssl rand -hex 32."
            )
        if self.workers < 0:
            raise UsageError(f"workers are 0 or more, got {self.workers}.")
        parse_redaction_kinds(self.redact)
        if not 1 <= self.speed <= 3600:
            raise UsageError(f"a second is 1 to 3,600 seconds of the demo, got {self.speed:g}.")

    def _check_proxy(self) -> None:
        for text in self.trusted_proxies:
            try:
                ipaddress.ip_network(text.strip())
            except ValueError:
                raise UsageError(
                    f'"{text[:60]}" is no address of a proxy. Write it as 10.0.0.7 or 10.0.0.0/8.'
                ) from None
        host = re.match(r"https?://[A-Za-z0-9.:\[\]-]+(?=/|$)|$", self.public_url)
        if not host or not re.fullmatch(r"(/[A-Za-z0-9._~-]+)*", self.root_path):
            text = self.root_path if host else self.public_url
            raise UsageError(f'"{text[:60]}" is no root path. Write it as /ragfault, without a slash behind.')
        if not self.session_hours > 0:
            raise UsageError(f"a session lasts for more than 0 hours, got {self.session_hours:g}.")

    def link_incident(self, id: str) -> str | None:
        """Return the address of an incident; None where others see the server at an address that it does not know."""
        url = self.public_url
        if not (url or self.trusted_proxies or self.root_path or not self.port or self.host in ("0.0.0.0", "::")):
            url = format_address(self.host, self.port)
        return f"{url}/incidents#{id}" if url else None

    @property
    def data_folder(self) -> Path:
        """The folder of runs, promoted cases and caches."""
        return self.folder or Path(self.store if is_store_folder(self.store) else "ragfault-data")

    @property
    def runs_folder(self) -> Path:
        """The folder of exported and imported runs."""
        return self.data_folder / "runs"
