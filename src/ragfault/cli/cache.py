"""Command group `cache`: stored replies of language models."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragfault.model.errors import OutputError, UsageError
from ragfault.options.output import align_columns, json_option, print_json
from ragfault.text.number_format import format_cost

if TYPE_CHECKING:
    from ragfault.judges.llm.transport.reply_cache import CacheFile, CacheGroup


UNIT_SECONDS = {"h": 3600, "d": 86400, "w": 7 * 86400}

cache_option = click.option(
    "--cache", "name", metavar="FILE", help="Cache file.  [default: RAGFAULT_CACHE, or the user's cache folder]"
)


@click.group(
    epilog="""\b
Examples:
  ragfault judge cache stats
  ragfault judge cache prune --older 90d
  ragfault judge cache export replies.jsonl"""
)
def cache() -> None:
    """Look after the replies of models that were paid for."""


@cache.command()
@cache_option
@json_option
def stats(name: str | None, kind: str | None) -> None:
    """Show how many replies are kept, by model and kind of call, and what they cost."""
    from ragfault.judges.llm.transport.reply_cache import summarize_cache

    place = _locate_cache(name)
    groups: list[CacheGroup] = []
    if place.is_file():
        with _open_cache(place) as file:
            groups = summarize_cache(file)
    if kind == "json":
        from ragfault.report.json_documents import CacheSummary

        print_json(CacheSummary(path=str(place), bytes=_measure_size(place), groups=tuple(groups)))
        return
    if not groups:
        click.echo(f"no replies are stored in {place}")
        return
    for line in _format_table(groups):
        click.echo(line)
    click.echo(f"\n{_measure_size(place) / 1e6:,.1f} MB in {place}")


@cache.command(
    epilog="""\b
Examples:
  ragfault judge cache prune --older 30d
  ragfault judge cache prune --model openai/gpt-4o-mini --yes"""
)
@cache_option
@click.option("--older", metavar="AGE", help="Only replies older than this: 12h, 30d, 8w.")
@click.option("--model", help="Only replies of this model: MODEL or PROVIDER/MODEL.")
@click.option("--all", "everything", is_flag=True, help="All replies.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
def prune(
    name: str | None, older: str | None, model: str | None, everything: bool, yes: bool, kind: str | None
) -> None:
    """Remove replies; they are paid for again when they are needed.

    The usage of runs is kept, so that their budgets hold.
    """
    from ragfault.judges.llm.transport.reply_cache import prune_cache

    if not (older or model or everything) or (everything and (older or model)):
        raise UsageError("nothing was selected for removal: give --older 30d, --model MODEL, both, or --all.")
    seconds = _parse_age(older) if older else None
    place, count = _locate_cache(name), 0
    if place.is_file():
        which = (f" of {model}" if model else "") + (f" older than {older}" if older else "")
        if yes or _confirm_removal(f"Remove {'the' if which else 'all'} replies{which} from {place}?"):
            with _open_cache(place) as file:
                count = prune_cache(file, older=seconds, model=model)
                file.vacuum()
    if kind == "json":
        from ragfault.report.json_documents import CacheRemoval

        print_json(CacheRemoval(path=str(place), bytes=_measure_size(place), removed=count))
    elif place.is_file():
        click.echo(f"{count:,} replies removed; {_measure_size(place) / 1e6:,.1f} MB in {place}")
    else:
        click.echo(f"no replies are stored in {place}")


@cache.command()
@cache_option
@click.argument("out", type=click.Path(dir_okay=False))
@click.option("--force", is_flag=True, help="Replace an existing file OUT.")
@json_option
def export(name: str | None, out: str, force: bool, kind: str | None) -> None:
    """Write all replies to OUT, a .jsonl or .parquet file.

    Each with its kind, model, tokens, cost and time; the key is a hash of what was asked.
    """
    from ragfault.judges.llm.transport.reply_cache import export_replies
    from ragfault.report.output import check_output_path

    place, target = _locate_cache(name), check_output_path(out, force=force)
    if target.suffix not in (".jsonl", ".parquet"):
        raise UsageError(f"{out} should end in .jsonl or .parquet.")
    if not place.is_file():
        raise UsageError(f"there is nothing to export: no replies are stored in {place}.")
    draft = target.with_name(f".{target.name}.draft")
    try:
        with _open_cache(place) as file:
            write = _write_parquet if target.suffix == ".parquet" else _write_jsonl
            count = write(export_replies(file), draft)
        draft.replace(target)
    except OSError as error:
        raise OutputError(f"cannot write {out}: {error.strerror or error}. Choose another path.") from error
    finally:
        draft.unlink(missing_ok=True)
    if kind == "json":
        from ragfault.report.json_documents import WrittenReplies

        print_json(WrittenReplies(path=out, replies=count))
    else:
        click.echo(f"{count:,} replies in {out}")


def _confirm_removal(question: str) -> bool:
    """Return whether the user confirms; raises UsageError without a terminal."""
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise UsageError(
            "there was no confirmation, so nothing was removed. Give --yes to remove without asking."
        ) from None
    return agreed


def _locate_cache(name: str | None) -> Path:
    from ragfault.judges.llm.transport.reply_cache import default_cache_path, resolve_cache_path

    return resolve_cache_path(name) or default_cache_path()


def _open_cache(path: Path) -> Any:
    """Open the file, closed at the end."""
    from contextlib import closing

    from ragfault.judges.llm.transport.reply_cache import CacheFile

    file: CacheFile = CacheFile(path)
    return closing(file)


def _measure_size(path: Path) -> int:
    """Measure bytes on the disk, with what has not been merged yet."""
    parts = (path, path.with_name(path.name + "-wal"))
    return sum(part.stat().st_size for part in parts if part.is_file())


def _parse_age(age: str) -> float:
    match = re.fullmatch(r"(\d+)\s*([hdw])", age.strip().lower())
    if match is None:
        raise UsageError(f'--older is a number of hours, days or weeks, such as 12h, 30d or 8w, not "{age}".')
    return int(match[1]) * UNIT_SECONDS[match[2]]


def _format_table(groups: list[CacheGroup]) -> list[str]:
    """Format the lines of a table of what is kept."""
    rows: list[tuple[str, ...]] = [("model", "kind", "replies", "tokens sent", "received", "cost", "oldest", "newest")]
    for group in groups:
        days = (datetime.fromtimestamp(moment, UTC).date().isoformat() for moment in (group.oldest, group.newest))
        numbers = (f"{group.calls:,}", f"{group.prompt:,}", f"{group.completion:,}", format_cost(group.cost))
        rows.append((f"{group.provider}/{group.model}", group.kind, *numbers, *days))
    return align_columns(rows, left=2)


def _write_jsonl(rows: Iterator[dict[str, object]], target: Path) -> int:
    import msgspec

    count = 0
    with target.open("wb") as file:
        for row in rows:
            file.write(msgspec.json.encode(row) + b"\n")
            count += 1
    return count


def _write_parquet(rows: Iterator[dict[str, object]], target: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbers = {name: pa.int64() for name in ("prompt", "completion", "time")}
    texts = ("key", "text", "kind", "provider", "model")
    floats = dict.fromkeys(("cost", "seconds"), pa.float64())
    kinds = {**dict.fromkeys(texts, pa.string()), **numbers, "cut": pa.bool_(), **floats}
    count = 0
    with pq.ParquetWriter(target, pa.schema(list(kinds.items())), compression="zstd") as writer:
        while some := [row for _, row in zip(range(2048), rows, strict=False)]:
            writer.write_table(pa.Table.from_pylist(some, schema=writer.schema))
            count += len(some)
    return count
