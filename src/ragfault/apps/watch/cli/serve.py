"""Command group `serve`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragfault.apps.registry import list_apps
from ragfault.judges.loading import DEFAULT_JUDGE
from ragfault.model.errors import UsageError, require_extra
from ragfault.options.llm_judge import LLM_FLAGS, add_llm_options, resolve_judge_options
from ragfault.options.output import json_option, print_json, print_notice
from ragfault.options.settings import calibration_option, load_settings

if TYPE_CHECKING:
    from ragfault.apps.watch.server.storage.backup import BackupManifest


class ServeGroup(click.Group):
    """Group whose arguments, where the first names no command, are the options of the server."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            args = ["start", *args]
        return super().parse_args(ctx, args)


def add_page_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name files for the pages of other apps."""
    for name, text in reversed([option for app in list_apps() for option in app.page_options]):
        command = click.option(f"--{name}", type=click.Path(path_type=Path), help=text)(command)
    return command


@click.group(
    cls=ServeGroup,
    epilog="""\b
Examples:
  ragfault serve --store watched
  ragfault serve --store watched --demo
  ragfault serve token --store watched ci --role ingest
  ragfault serve export http://127.0.0.1:4318 -o runs/today --since 24h""",
)
def serve() -> None:
    """Take live traces, score them, watch each metric per route, and name the layer when one moves.

    `ragfault serve --store PATH` is short for `ragfault serve start --store PATH`.
    """


@serve.command(
    epilog="""\b
Examples:
  ragfault serve --store watched
  ragfault serve --store watched --judge embedded --workers 2 --keep 30d --size 20GB
  ragfault serve --store watched --check llm:gpt-4o-mini --budget 5
  RAGFAULT_TOKEN=… ragfault serve --store watched --host 0.0.0.0"""
)
@click.option(
    "--store",
    required=True,
    metavar="PLACE",
    help="Folder of the store (created if missing), or clickhouse://user@host:8123/database.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Folder for runs and other files.  [default: in the store; with ClickHouse ./ragfault-data]",
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; any but loopback requires a token."
)
@click.option("--port", type=click.IntRange(0, 65535), default=4318, show_default=True)
@click.option(
    "--token", envvar="RAGFAULT_TOKEN", help="Admin token. Prefer RAGFAULT_TOKEN: options are visible to other users."
)
@click.option("--judge", default=DEFAULT_JUDGE, show_default=True, help="Judge of every trace.")
@click.option("--profile", default="general", show_default=True, help="Domain profile, as for evaluate.")
@calibration_option
@click.option("--metrics", default="default", show_default=True, help="Metric set, or metric names (a,b).")
@click.option(
    "--workers",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Judging processes; with 0, traces are stored but not judged.",
)
@click.option(
    "--by", default="model,release,prompt_version", show_default=True, help="Fields that define cohorts (a,b)."
)
@click.option(
    "--check", metavar="llm:MODEL", help="Stronger judge for a sample of the traces, within --budget per day (UTC)."
)
@click.option(
    "--share",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.05,
    show_default=True,
    help="Sampling rate of --check; higher for failing, uncertain and new traces.",
)
@add_llm_options
@click.option("--keep", help="Retention period of traces: 30d.  [default: unlimited]")
@click.option("--size", help="Maximum size of the store: 20GB.  [default: unlimited]")
@click.option(
    "--reference",
    default="24h",
    show_default=True,
    help="Length of the reference period at the start.  [with --demo: 2h]",
)
@click.option(
    "--span-timeout",
    type=click.FloatRange(0, min_open=True),
    default=6.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds that a trace of spans waits after its root, longer where the traffic needs it.",
)
@click.option("--rules", type=click.Path(path_type=Path), help="TOML file of alert rules.")
@click.option("--redact", help="Redact before storing: email, phone, card, key (a,b), or all.  [default: nothing]")
@click.option("--webhook", envvar="RAGFAULT_WEBHOOK", help="URL that receives notices of incidents.")
@click.option(
    "--webhook-shape",
    "shape",
    type=click.Choice(["ragfault", "slack", "alertmanager"]),
    default="ragfault",
    show_default=True,
)
@click.option("--mail-to", multiple=True, help="E-mail address that receives notices of incidents. Repeatable.")
@click.option("--mail-from", help="Sender address of mail.")
@click.option("--smtp", help="Mail server: smtp://user@host:587 (STARTTLS), or smtps://user@host:465.")
@click.option(
    "--otlp-endpoint", "otlp", metavar="URL", help="OTLP endpoint that receives the scores of traces received as spans."
)
@click.option(
    "--otlp-header",
    "otlp_headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="Header sent with the scores. Repeatable. Prefer RAGFAULT_OTLP_HEADERS: options are visible to other users.",
)
@click.option("--otlp-spans", is_flag=True, help="Also send scores as spans.")
@click.option(
    "--rate",
    type=click.FloatRange(0),
    default=0.0,
    help="Rate limit per client, in requests per second, for ingest and for reading.  [default: none]",
)
@click.option("--session", default="12h", show_default=True, help="How long a browser stays signed in: 12h, 7d.")
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Address or network of a proxy (10.0.0.7, 10.0.0.0/8) whose X-Forwarded headers are trusted. Repeatable; "
    "needs a token.",
)
@click.option(
    "--root-path",
    default="",
    metavar="PATH",
    help="Path prefix under which a proxy serves ragfault, such as /ragfault, or its whole address, such as "
    "https://rag.example.org/ragfault: notices then link to it.",
)
@click.option("--request-log", metavar="FILE", help="Where a line of JSON is written for each request; -: the output.")
@add_page_options
@click.option("--demo", is_flag=True, help="Stream the demo's traces in accelerated time, with a fault in them.")
@click.option("--speed", type=float, default=60.0, show_default=True, help="Seconds of demo traffic per real second.")
def start(
    keep: str | None,
    size: str | None,
    metrics: str,
    by: str,
    reference: str,
    redact: str | None,
    otlp_headers: tuple[str, ...],
    rate: float,
    session: str,
    root_path: str,
    demo: bool,
    check: str | None,
    **shared: object,
) -> None:
    """Serve until Ctrl-C, or a signal, ends it: what was acknowledged is stored, and scored the next time.

    The password of a ClickHouse is read from RAGFAULT_CLICKHOUSE_PASSWORD.

    The secret that webhooks are signed with is read from RAGFAULT_WEBHOOK_SECRET, the password of the mail server from
    RAGFAULT_SMTP_PASSWORD, the secret by which redacted ids stay the same from RAGFAULT_REDACT_KEY.
    """
    with require_extra("the server", "server"):
        import fastapi  # noqa: F401 - modules of the server import it, and starlette with it, before app.py does
    from ragfault.apps.watch.server.app import run_server
    from ragfault.apps.watch.server.settings import ServerSettings
    from ragfault.http.bodies import RequestLimits

    options: dict[str, Any] = dict(shared)
    public_url, path = _split_address(root_path)
    checks = _read_check_options(check, {name: options.pop(name) for name in LLM_FLAGS})
    page_options = [name for app in list_apps() for name, _ in app.page_options]
    page_files = {name: file for name in page_options if (file := options.pop(name)) is not None}
    run_server(
        ServerSettings(
            metrics=_parse_metrics(metrics),
            cohort_fields=tuple(name for name in by.split(",") if name),
            reference_minutes=min(120, _parse_minutes(reference)) if demo else _parse_minutes(reference),
            retention_days=None if keep is None else _parse_days(keep),
            max_bytes=None if size is None else _parse_size(size),
            redact=tuple(name.strip() for name in (redact or "").split(",") if name.strip()),
            redact_key=os.environ.get("RAGFAULT_REDACT_KEY"),
            otlp_headers=_parse_headers(otlp_headers),
            smtp_password=os.environ.get("RAGFAULT_SMTP_PASSWORD"),
            secret=os.environ.get("RAGFAULT_WEBHOOK_SECRET"),
            check_options=checks,
            limits=RequestLimits(rate=rate),
            session_hours=_parse_minutes(session) / 60,
            page_files=page_files,
            public_url=public_url,
            root_path=path,
            demo=demo,
            check=check,
            **options,
        ),
        click.echo,
    )


def _read_check_options(check: str | None, flags: dict[str, Any]) -> dict[str, Any]:
    """Read the options of the judge of the sample; none where there is no such judge."""
    if check is not None:
        return resolve_judge_options(check, flags, load_settings(None).get("llm", {}))
    if flags_set := [f"--{name.replace('_', '-')}" for name, value in flags.items() if value not in (None, (), False)]:
        raise UsageError(
            f"{', '.join(flags_set)}: only with a judge that checks a sample. Name one with --check llm:MODEL."
        )
    return {}


def _parse_headers(given: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Parse headers as NAME=VALUE; those of RAGFAULT_OTLP_HEADERS are divided by commas, and may be percent-encoded."""
    from urllib.parse import unquote

    from_environment = [part.strip() for part in os.environ.get("RAGFAULT_OTLP_HEADERS", "").split(",") if part.strip()]
    headers = []
    for text in [*map(unquote, from_environment), *given]:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f'a header is NAME=VALUE, got "{name[:40]}".')
        headers.append((name.strip(), value.strip()))
    return tuple(headers)


def _parse_metrics(text: str) -> str | tuple[str, ...]:
    """Parse a set of metrics, or metrics by name."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    return names[0] if len(names) == 1 else names


def _split_address(text: str) -> tuple[str, str]:
    """Return an address, empty where the text is a path alone, and its path.

    >>> _split_address("https://rag.test/ragfault/"), _split_address("https://rag.test"), _split_address("/ragfault")
    (('https://rag.test/ragfault', '/ragfault'), ('https://rag.test', ''), ('', '/ragfault'))
    """
    url = text.rstrip("/") if text.startswith(("http://", "https://")) else ""
    return url, "".join(url.partition("://")[2].partition("/")[1:]) if url else text


def _parse_days(text: str) -> float:
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


@serve.command(
    epilog="""\b
Examples:
  ragfault serve token --store watched ci --role ingest --expires 90d
  ragfault serve token --store http://127.0.0.1:4318 ci --drop"""
)
@click.argument("name")
@click.option("--store", required=True, metavar="PLACE", help="Folder or address of the store, or URL of a server.")
@click.option(
    "--role",
    type=click.Choice(["read", "ingest", "admin"]),
    default="read",
    show_default=True,
    help="Permission: read, send traces and marks, or everything.",
)
@click.option("--expires", metavar="AGE", help="Lifetime of the token: 12h, 90d.  [default: until revoked]")
@click.option("--drop", is_flag=True, help="Revoke the token of this name.")
@click.option("--token", "admin", envvar="RAGFAULT_TOKEN", help="Admin token, if --store is the URL of a server.")
@json_option
def token(
    name: str, store: str, role: Any, expires: str | None, drop: bool, admin: str | None, kind: str | None
) -> None:
    """Create a token called NAME and print it; it is shown only once, and stored as a hash.

    Give the URL of a running server, or a store on which no server runs.
    """
    days = None if expires is None else _parse_days(expires)
    if store.startswith(("http://", "https://")):
        from ragfault.apps.watch.server.http_client import change_token

        issued = change_token(store, name, None if drop else role, days, admin)
    else:
        issued = _change_stored_token(store, name, None if drop else role, days)
    if kind == "json":
        from ragfault.apps.watch.documents import IssuedToken

        print_json(IssuedToken(name=name, role=None if drop else role, token=issued))
    elif issued is not None:
        click.echo(issued)


def _change_stored_token(store: str, name: str, role: Any, days: float | None) -> str | None:
    """Make a token in a store and return it, or delete it where it has no role."""
    from ragfault.apps.watch.server.security import issue_token
    from ragfault.apps.watch.server.storage.opening import open_store

    opened = open_store(store)
    try:
        if role is not None:
            return issue_token(opened, name, role, days)
        opened.delete_token(name).result()
        return None
    finally:
        opened.close()


@serve.command(
    epilog="""\b
Examples:
  ragfault serve backup http://127.0.0.1:4318 -o backup.tar
  ragfault serve backup watched -o backup.tar"""
)
@click.argument("place")
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="File for the backup (.tar).")
@click.option("--token", envvar="RAGFAULT_TOKEN", help="Admin token, if PLACE is the URL of a server.")
@json_option
def backup(place: str, out: Path, token: str | None, kind: str | None) -> None:
    """Back up the store at PLACE: the URL of a running server, or a folder on which no server runs.

    The backup is a consistent snapshot, with runs, promoted cases and the audit log, and its checksums are verified.
    """
    from ragfault.apps.watch.server.http_client import fetch_backup
    from ragfault.apps.watch.server.storage.backup import require_folder, write_backup
    from ragfault.apps.watch.server.storage.opening import open_store

    if place.startswith(("http://", "https://")):
        manifest = fetch_backup(place, out, token)
    else:
        folder = require_folder(place)
        if not folder.is_dir():
            raise UsageError(f"there is no store in {folder}.")
        store = open_store(folder)
        try:
            manifest = write_backup(store, folder, out)
        finally:
            store.close()
    _print_backup(out, manifest, kind)


@serve.command(
    epilog="""\b
Examples:
  ragfault serve restore backup.tar --store restored"""
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--store",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder for the restored store; it must not hold one yet.",
)
@json_option
def restore(file: Path, store: Path, kind: str | None) -> None:
    """Restore the backup FILE into a folder, after checking every checksum and the rows of every table."""
    from ragfault.apps.watch.server.storage.backup import restore_backup

    _print_backup(store, restore_backup(file, store), kind)


def _print_backup(path: Path, manifest: BackupManifest, kind: str | None) -> None:
    traces = manifest.tables.get("traces", 0)
    if kind == "json":
        from ragfault.apps.watch.documents import StoreBackup

        print_json(StoreBackup(path=str(path), traces=traces, created=manifest.created))
    else:
        click.echo(f"{traces:,} traces, checksums verified: {path}")


@serve.command(
    epilog="""\b
Examples:
  ragfault serve export http://127.0.0.1:4318 -o runs/today --since 24h
  ragfault serve export http://127.0.0.1:4318 -o runs/search --route search --state failed"""
)
@click.argument("url")
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="Directory for the run.")
@click.option("--since", help="Only traces of the last 30m, 24h, 7d.")
@click.option("--until", help="Only traces older than 30m, 24h, 7d.")
@click.option("--route")
@click.option("--model")
@click.option("--judge", help="Fingerprint of the judge, if several judged the traces.")
@click.option("--state", type=click.Choice(["scored", "failed", "error"]))
@click.option("--text", help="Only traces with these words in id, query or answer.")
@click.option(
    "--gold",
    type=click.Choice(["apply", "ignore"]),
    help="Use of gold in the scores, as for evaluate.  [default: that of the traces]",
)
@click.option("--token", envvar="RAGFAULT_TOKEN", help="Token with read permission, if the server requires one.")
@click.option("--force", is_flag=True, help="Replace an existing run.")
@json_option
def export(
    url: str,
    out: Path,
    since: str | None,
    until: str | None,
    route: str | None,
    model: str | None,
    judge: str | None,
    state: str | None,
    text: str | None,
    gold: str | None,
    token: str | None,
    force: bool,
    kind: str | None,
) -> None:
    """Write judged traces of the server at URL as a run, for report, compare, bisect and everything else."""
    import time

    from ragfault.apps.watch.server.http_client import fetch_run

    now = time.time()
    ages = {
        name: now - _parse_days(age) * 86400 for name, age in (("since", since), ("until", until)) if age is not None
    }
    picked = {"route": route, "model": model, "judge": judge, "state": state, "text": text, "gold": gold}
    limits = {name: value for name, value in picked.items() if value is not None} | ages
    run = fetch_run(url, limits, out, token=token, force=force, notice=print_notice)
    if kind == "json":
        from ragfault.report.json_documents import WrittenTraces

        print_json(WrittenTraces(path=str(run.path), traces=run.manifest.traces))
    else:
        click.echo(f"{run.manifest.traces:,} traces written to {run.path}")


@serve.command(name="import")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--store", required=True, metavar="PLACE", help="Folder or address of the store.")
@click.option("--prefix", default="", help="Prefix of each id, so that runs over the same queries do not collide.")
@json_option
def import_(run: Path, store: str, prefix: str, kind: str | None) -> None:
    """Take the traces of RUN into a store, with their verdicts and scores; those that are there stay as they are.

    The server must not run at the same time: one process owns the store.
    """
    from ragfault.apps.watch.server.storage.opening import open_store
    from ragfault.apps.watch.server.storage.run_transfer import import_run

    opened = open_store(store)
    try:
        counts = import_run(opened, run, prefix=prefix)
    finally:
        opened.close()
    if kind == "json":
        from ragfault.apps.watch.documents import ImportedTraces

        print_json(ImportedTraces(added=counts.added, duplicates=counts.duplicates))
    else:
        click.echo(f"{counts.added:,} traces imported, {counts.duplicates:,} already existed")
