"""The authored units as labelled items: a claim, the chunks that decide it, and a label."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
VERSIONS = "abc"
# Kind and form of the claims of short texts.
SHORT = "short"
LABELS = {"S": "supported", "C": "contradicted", "N": "not_stated"}


class UnitError(ValueError):
    """A unit breaks the form that README.md describes."""


@dataclass(frozen=True)
class Item:
    """One claim under one version of the passages."""

    unit: str
    writer: str
    language: str
    domain: str
    kind: str
    form: str
    version: str
    query: str
    history: tuple[str, ...]
    chunks: tuple[str, ...]
    claim: str
    label: str


@dataclass(frozen=True)
class NearCopy:
    """One claim that copies a sentence of a passage but for one point."""

    pair: str
    domain: str
    query: str
    passage: str
    claim: str
    is_false: bool
    change: str
    """What is false of a false one, such as "role"; how a true one says the same, such as "passive"."""


def edited(chunks: list[str], edits: list[list[str]], unit: str) -> list[str]:
    """Return the chunks with every edit applied once, each at its place in the chunks as they were."""
    places: list[tuple[int, int, str, str]] = []
    for old, new in edits:
        places_of_old = [(number, chunk.find(old)) for number, chunk in enumerate(chunks) if old in chunk]
        if len(places_of_old) != 1 or chunks[places_of_old[0][0]].count(old) != 1:
            raise UnitError(f"{unit}: {old!r} occurs {sum(chunk.count(old) for chunk in chunks)} times, not once")
        if old == new:
            raise UnitError(f"{unit}: the edit of {old!r} changes nothing")
        places.append((*places_of_old[0], old, new))
    result = list(chunks)
    following = {}
    # From the end, so that the places before stay what they were.
    for number, start, old, new in sorted(places, reverse=True):
        if start + len(old) > following.get(number, len(chunks[number])):
            raise UnitError(f"{unit}: {old!r} overlaps another edit")
        result[number] = result[number][:start] + new + result[number][start + len(old) :]
        following[number] = start
    return result


def unit_items(unit: dict, writer: str, language: str) -> Iterator[Item]:
    """Yield every claim of a unit under every version that it labels."""
    chunks = unit["chunks"]
    versions = {"a": chunks, "b": edited(chunks, unit["b"], unit["id"]), "c": edited(chunks, unit["c"], unit["id"])}
    for row in unit["claims"]:
        kind, form, labels, claim = row[:4]
        for version, letter in zip(VERSIONS, labels, strict=True):
            yield Item(
                unit=unit["id"],
                writer=writer,
                language=language,
                domain=unit["domain"],
                kind=kind,
                form=form,
                version=version,
                query=row[4] if len(row) > 4 else unit["query"],
                history=tuple(row[5] if len(row) > 5 else unit.get("history", ())),
                chunks=tuple(versions[version]),
                claim=claim,
                label=letter,
            )


def unit_files(folder: Path = FOLDER / "units") -> list[Path]:
    """Return the files of units, sorted."""
    return sorted(folder.glob("*/*/*.jsonl"))


def read_units(path: Path) -> Iterator[dict]:
    """Yield the units of one file."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.strip():
            try:
                yield json.loads(line)
            except json.JSONDecodeError as fault:
                raise UnitError(f"{path.name}, line {number}: {fault}") from fault


def read_items(folder: Path = FOLDER) -> Iterator[Item]:
    """Yield the items of all units and short texts below a folder."""
    for path in unit_files(folder / "units"):
        for unit in read_units(path):
            yield from unit_items(unit, writer=path.parent.name, language=path.parent.parent.name)
    yield from read_shorts(folder / "shorts")


def read_shorts(folder: Path = FOLDER / "shorts") -> Iterator[Item]:
    """Yield the claims of all short texts of a folder, each under its two passages."""
    for path in sorted(folder.glob("*.jsonl")):
        language, _, writer = path.stem.partition("-")
        for row in read_units(path):
            for letters, claim in row["claims"]:
                for version, letter in zip("ab", letters, strict=True):
                    yield Item(
                        unit=row["id"],
                        writer=writer,
                        language=language,
                        domain=row["domain"],
                        kind=SHORT,
                        form=SHORT,
                        version=version,
                        query=row.get("query", ""),
                        history=(),
                        chunks=(row[version],),
                        claim=claim,
                        label=letter,
                    )


def read_copies(folder: Path = FOLDER / "copies") -> Iterator[NearCopy]:
    """Yield the near copies of all files of a folder: of each passage a false and a true one."""
    for path in sorted(folder.glob("*.jsonl")):
        for row in read_units(path):
            for kind in ("false", "true"):
                change, claim = row[kind]
                yield NearCopy(row["id"], row["domain"], row["query"], row["passage"], claim, kind == "false", change)
