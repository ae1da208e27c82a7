"""Settings of a server and the limits on its requests."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from ragfault.apps.watch.server.ingest.settling import SPAN_TIMEOUT
from ragfault.apps.watch.server.storage.opening import is_store_folder
from ragfault.http.addresses import format_address, is_loopback
from ragfault.http.request_limits import RequestLimits
from ragfault.io.redaction import parse_redaction_kinds
from ragfault.judges.loading import DEFAULT_JUDGE
from ragfault.model.errors import UsageError
from ragfault.model.settings import (
    Flag,
    NaturalInt,
    NonEmptyText,
    PathText,
    PositiveInt,
    PositiveNumber,
    Settings,
    Switch,
    TextList,
    declare,
)

# characters of a token that is chosen by hand, where other machines can reach the server
MIN_TOKEN_LENGTH = 16


PortNumber = Annotated[int, Meta(ge=0, le=65535, description="a whole number from 0 to 65535")]
PositiveShare = Annotated[float, Meta(gt=0, le=1, description="a number above 0, up to 1")]
DemoSpeed = Annotated[float, Meta(ge=1, le=3600, description="a number from 1 to 3600")]


def split_names(texts: Sequence[str]) -> tuple[str, ...]:
    """Split names that are given one by one, or with commas.

    >>> split_names(["model,release", "prompt_version"])
    ('model', 'release', 'prompt_version')
    """
    return tuple(name for text in texts for part in text.split(",") if (name := part.strip()))


def _parse_metrics(texts: Sequence[str]) -> str | tuple[str, ...]:
    """Parse a set of metrics, or metrics by name."""
    names = split_names(texts)
    return names[0] if len(names) == 1 else names


def parse_headers(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Parse headers as NAME=VALUE."""
    headers = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f'a header is NAME=VALUE, got "{name[:40]}".')
        headers.append((name.strip(), value.strip()))
    return tuple(headers)


def parse_days(text: str) -> float:
    """Parse a length of time in days."""
    return _parse_minutes(text) / (24 * 60)


def _parse_minutes(text: str) -> int:
    """Parse a length of time in minutes."""
    from ragfault.apps.watch.monitoring.alert_rules import parse_minutes

    return parse_minutes(text)


def _parse_size(text: str) -> int:
    """Parse a size in bytes.

    >>> _parse_size("20GB"), _parse_size("512 MB")
    (20000000000, 512000000)
    """
    units = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
    number, unit = text.strip()[:-2].strip(), text.strip()[-2:].upper()
    if unit not in units or not number.isdecimal() or not int(number):
        raise UsageError(f'"{text}" is not a size. Write a whole number of KB, MB, GB or TB: 20GB.')
    return int(number) * units[unit]


class ServerSettings(Settings, frozen=True, kw_only=True):
    """Settings of a server: storage, network, scoring, alerts, export and retention."""

    store: str | Path
    """The folder of the store, created where there is none, or its address: `clickhouse://HOST/DATABASE`."""
    folder: Path | None = declare(
        None,
        "Folder for runs and other files.",
        PathText,
        Flag(default="in the store; with ClickHouse ./ragfault-data", parse=Path),
    )
    host: str = declare("127.0.0.1", "Address to listen on; any but loopback requires a token.", NonEmptyText)
    port: int = declare(4318, "Port to listen on; 0: a free one.", PortNumber)
    token: str | None = declare(
        None, "Admin token. Prefer RAGFAULT_TOKEN: options are visible to other users.", NonEmptyText
    )
    judge: str = declare(DEFAULT_JUDGE, "Judge of every trace.", NonEmptyText)
    profile: str = declare("general", "Domain profile, as for evaluate.", NonEmptyText)
    calibration: str | None = declare(None, "Calibration of this judge, written by `judge calibrate -o`.", PathText)
    metrics: str | tuple[str, ...] = declare(
        "default", "Metric set, or metric names (a,b).", TextList, Flag(parse=_parse_metrics)
    )
    workers: int = declare(1, "Judging processes; with 0, traces are stored but not judged.", NaturalInt)
    check: str | None = declare(
        None,
        "Stronger judge for a sample of the traces, within a budget per day (UTC).",
        NonEmptyText,
        Flag(metavar="llm:MODEL"),
    )
    share: float = declare(
        0.05, "Sampling rate of `check`; higher for failing, uncertain and new traces.", PositiveShare
    )
    check_options: dict[str, Any] = declare({}, "Options of the judge of `check`; its budgets are per day (UTC).")
    cohort_fields: tuple[str, ...] = declare(
        ("model", "release", "prompt_version"),
        "Fields that define cohorts (a,b).",
        TextList,
        Flag(names=("--by",), default="model,release,prompt_version", parse=split_names),
    )
    reference_minutes: int = declare(
        24 * 60,
        "Time from the start of a metric on a route that is its reference: 24h.",
        PositiveInt,
        Flag(names=("--reference",), metavar="TIME", default="24h; with `demo` 2h", parse=_parse_minutes),
    )
    span_timeout: float = declare(
        SPAN_TIMEOUT,
        "Seconds that a trace of spans waits after its root, longer where the traffic needs it.",
        PositiveNumber,
        Flag(metavar="SECONDS"),
    )
    retention_days: float | None = declare(
        None,
        "Time for which traces are stored: 30d.",
        PositiveNumber,
        Flag(names=("--keep",), metavar="TIME", default="for ever", parse=parse_days),
    )
    max_bytes: int | None = declare(
        None,
        "Size of the store above which the oldest traces are deleted: 20GB.",
        PositiveInt,
        Flag(names=("--size",), metavar="SIZE", default="unlimited", parse=_parse_size),
    )
    rules: Path | None = declare(None, "TOML file of alert rules, in addition to the built-in ones.", PathText)
    webhook: str | None = declare(None, "URL that receives notices of incidents.", NonEmptyText)
    shape: Literal["ragfault", "slack", "alertmanager"] = declare(
        "ragfault",
        "Format of webhooks.",
        Literal["ragfault", "slack", "alertmanager"],
        Flag(names=("--webhook-shape",)),
    )
    secret: str | None = declare(None, "Key that webhooks are signed with (HMAC-SHA256).")
    mail_to: tuple[str, ...] = declare((), "E-mail address that receives notices of incidents.", TextList)
    mail_from: str | None = declare(None, "Sender address of mail.", NonEmptyText)
    smtp: str | None = declare(
        None, "Mail server: smtp://user@host:587 (STARTTLS), or smtps://user@host:465.", NonEmptyText
    )
    smtp_password: str | None = declare(None, "Password of the mail server.")
    otlp: str | None = declare(
        None,
        "OTLP endpoint that receives the scores of traces received as spans.",
        NonEmptyText,
        Flag(names=("--otlp-endpoint",), metavar="URL"),
    )
    otlp_headers: tuple[tuple[str, str], ...] = declare(
        (),
        "Header sent with the scores. Prefer RAGFAULT_OTLP_HEADERS: options are visible to other users.",
        TextList,
        Flag(names=("--otlp-header",), metavar="NAME=VALUE", parse=parse_headers),
    )
    otlp_spans: bool = declare(False, "Also send scores as spans.", Switch)
    redact: tuple[str, ...] = declare(
        (),
        "Kinds of values redacted before storing: email, phone, card, key (a,b), or all.",
        TextList,
        Flag(default="nothing", parse=split_names),
    )
    redact_key: str | None = declare(None, "Secret that keeps redacted ids the same after a restart.")
    session_hours: float = declare(
        12.0,
        "Time for which a browser stays signed in: 12h, 7d.",
        PositiveNumber,
        Flag(names=("--session",), metavar="TIME", default="12h", parse=lambda text: _parse_minutes(text) / 60),
    )
    trusted_proxies: tuple[str, ...] = declare(
        (),
        "Address or network of a proxy (10.0.0.7, 10.0.0.0/8) whose X-Forwarded headers are trusted; needs a token.",
        TextList,
        Flag(names=("--trusted-proxy",), metavar="ADDRESS"),
    )
    root_path: str = declare("", "Path below which a proxy shows this server, such as /ragfault.")
    public_url: str = declare(
        "", "Address at which a proxy shows this server, with the root path: https://rag.test. For links in notices."
    )
    request_log: str | None = declare(
        None, "File where a line of JSON is written for each request; -: the output.", PathText, Flag(metavar="FILE")
    )
    page_files: dict[str, Path] = declare({}, "Files that pages of other apps show, by the options of these apps.")
    demo: bool = declare(False, "Stream the demo's traces in accelerated time, with a fault in them.", Switch)
    speed: float = declare(60.0, "Seconds of demo traffic per real second.", DemoSpeed)
    limits: RequestLimits = declare(RequestLimits(), "Limits on requests.")

    def __post_init__(self) -> None:
        super().__post_init__()
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
        parse_redaction_kinds(self.redact)

    def _check_proxy(self) -> None:
        for text in self.trusted_proxies:
            try:
                ipaddress.ip_network(text.strip())
            except ValueError:
                raise UsageError(
                    f'"{text[:60]}" is not the address of a proxy. Write it as 10.0.0.7 or 10.0.0.0/8.'
                ) from None
        host = re.match(r"https?://[A-Za-z0-9.:\[\]-]+(?=/|$)|$", self.public_url)
        if not host or not re.fullmatch(r"(/[A-Za-z0-9._~-]+)*", self.root_path):
            text = self.root_path if host else self.public_url
            raise UsageError(f'"{text[:60]}" is not a root path. Write it as /ragfault, without a slash at the end.')

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
