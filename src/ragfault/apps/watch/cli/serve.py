"""Command group `serve`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragfault.apps.registry import list_apps
from ragfault.apps.watch.server.settings import ServerSettings, parse_days, parse_headers
from ragfault.http.request_limits import RequestLimits
from ragfault.model.errors import UsageError, require_extra
from ragfault.options.llm_judge import LLM_FLAGS, add_llm_options, resolve_judge_options
from ragfault.options.output import json_option, print_json, print_notice
from ragfault.options.records import add_fields, take_fields
from ragfault.options.settings import load_settings

if TYPE_CHECKING:
    from ragfault.apps.watch.server.storage.backup import BackupManifest

VARIABLES = {
    "token": "RAGFAULT_TOKEN",
    "webhook": "RAGFAULT_WEBHOOK",
    "secret": "RAGFAULT_WEBHOOK_SECRET",
    "smtp_password": "RAGFAULT_SMTP_PASSWORD",
    "redact_key": "RAGFAULT_REDACT_KEY",
}
"""Settings → the variable of the environment that holds it unless an option does."""


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
@add_fields(ServerSettings)
@add_llm_options
@click.option(
    "--rate",
    type=click.FloatRange(0),
    default=0.0,
    help="Rate limit per client, in requests per second, for ingest and for reading.  [default: none]",
)
@click.option(
    "--root-path",
    default="",
    metavar="PATH",
    help="Path prefix under which a proxy serves ragfault, such as /ragfault, or its whole address, such as "
    "https://rag.example.org/ragfault: notices then link to it.",
)
@add_page_options
def start(store: str, rate: float, root_path: str, **options: Any) -> None:
    """Serve until Ctrl-C, or a signal, ends it: what was acknowledged is stored, and scored the next time.

    The password of a ClickHouse is read from RAGFAULT_CLICKHOUSE_PASSWORD.

    The secret that webhooks are signed with is read from RAGFAULT_WEBHOOK_SECRET, the password of the mail server from
    RAGFAULT_SMTP_PASSWORD, the secret by which redacted ids stay the same from RAGFAULT_REDACT_KEY.
    """
    with require_extra("the server", "server"):
        import fastapi  # noqa: F401 - modules of the server import it, and starlette with it, before app.py does
    from ragfault.apps.watch.server.app import run_server

    llm_flags = {name: options.pop(name) for name in LLM_FLAGS}
    page_options = [name for app in list_apps() for name, _ in app.page_options]
    page_files = {name: file for name in page_options if (file := options.pop(name)) is not None}
    fields = _read_environment() | take_fields(ServerSettings, options)
    fields["otlp_headers"] = (*_read_headers(), *fields.get("otlp_headers", ()))
    if fields.get("demo"):
        fields["reference_minutes"] = min(120, fields.get("reference_minutes", 120))
    public_url, path = _split_address(root_path)
    settings = ServerSettings(
        store=store,
        check_options=_read_check_options(fields.get("check"), llm_flags),
        limits=RequestLimits(rate=rate),
        page_files=page_files,
        public_url=public_url,
        root_path=path,
        **fields,
    )
    run_server(settings, click.echo)


def _read_environment() -> dict[str, str]:
    """Read the settings that variables of the environment give."""
    return {name: value for name, variable in VARIABLES.items() if (value := os.environ.get(variable))}


def _read_headers() -> tuple[tuple[str, str], ...]:
    """Read the headers of RAGFAULT_OTLP_HEADERS, divided by commas; they may be percent-encoded."""
    from urllib.parse import unquote

    parts = os.environ.get("RAGFAULT_OTLP_HEADERS", "").split(",")
    return parse_headers(unquote(part.strip()) for part in parts if part.strip())


def _read_check_options(check: str | None, flags: dict[str, Any]) -> dict[str, Any]:
    """Read the options of the judge of the sample; none where there is no such judge."""
    if check is not None:
        return resolve_judge_options(check, flags, load_settings(None).get("llm", {}))
    if flags_set := [f"--{name.replace('_', '-')}" for name, value in flags.items() if value not in (None, (), False)]:
        raise UsageError(
            f"{', '.join(flags_set)}: only with a judge that checks a sample. Name one with --check llm:MODEL."
        )
    return {}


def _split_address(text: str) -> tuple[str, str]:
    """Return an address, empty where the text is a path alone, and its path.

    >>> _split_address("https://rag.test/ragfault/"), _split_address("https://rag.test"), _split_address("/ragfault")
    (('https://rag.test/ragfault', '/ragfault'), ('https://rag.test', ''), ('', '/ragfault'))
    """
    url = text.rstrip("/") if text.startswith(("http://", "https://")) else ""
    return url, "".join(url.partition("://")[2].partition("/")[1:]) if url else text


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
    days = None if expires is None else parse_days(expires)
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
        name: now - parse_days(age) * 86400 for name, age in (("since", since), ("until", until)) if age is not None
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
