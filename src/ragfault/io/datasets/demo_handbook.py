"""Demo data: a ferry handbook, questions about it, and the traces of two versions of a RAG system.

Version 2 is the worse release: its chunks are too small, and its prompt makes the model invent details.
`training/handbook.py` records the traces; every text is written for this purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from os import PathLike
from pathlib import Path

import msgspec
from msgspec import Struct

from ragfault.model.errors import OutputError
from ragfault.model.records import Trace


class Handbook(Struct, frozen=True, kw_only=True):
    """The demo data in memory: a corpus, questions with an answer key, and what two versions made of them.

    >>> load_handbook().traces["v2"][0].model
    'gpt-4o-mini'
    """

    documents: Mapping[str, str]
    """File name → Markdown; the spans of the gold count characters of these texts."""
    questions: tuple[Trace, ...]
    """Traces without an answer: query, route, and (but for six) reference, facts and gold spans."""
    traces: Mapping[str, tuple[Trace, ...]]
    """Version ("v1", the better one, and "v2", the worse one) → its traces in the order of time."""


def load_handbook() -> Handbook:
    """Return the demo data: 71 sections in 11 documents, 104 questions, two versions of a RAG system.

    >>> data = load_handbook()
    >>> question = data.questions[1]
    >>> question.query
    'Can I pay the purser in cash?'
    >>> span = question.gold.spans[0]
    >>> data.documents[span.document][span.start : span.end]
    'The purser takes cards only; cash has not been accepted on board since 1 March 2023.'
    """
    source = {file.name: file for file in _list_files()}
    return Handbook(
        documents={name: _read_text(file) for name, file in source.items() if name.endswith(".md")},
        questions=_decode_traces(source["questions.jsonl"]),
        traces={version: _decode_traces(source[f"traces-{version}.jsonl"]) for version in ("v1", "v2")},
    )


def write_handbook(folder: str | PathLike[str], *, force: bool = False) -> list[Path]:
    """Write the demo data as plain files into a folder, which is made where it is missing, and return their paths.

    Raises OutputError, and writes nothing, where a file exists and `force` is not set; also where one cannot be
    written.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     paths = write_handbook(folder)
    >>> [path.name for path in paths if path.suffix == ".jsonl"]
    ['labelled.jsonl', 'questions.jsonl', 'traces-v1.jsonl', 'traces-v2.jsonl']
    """
    root = Path(folder)
    goals = {
        root / "documents" / file.name if file.name.endswith(".md") else root / file.name: file
        for file in _list_files()
    }
    write_files({path: _read_text(file).encode() for path, file in goals.items()}, force=force)
    return list(goals)


def write_files(bodies: Mapping[Path, bytes], *, force: bool = False) -> None:
    """Write files, and the folders around them; none where one exists and `force` is not set.

    Raises OutputError where a file exists, or cannot be written.
    """
    if not force:
        _refuse_to_overwrite(list(bodies))
    try:
        for path, body in bodies.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
    except OSError as error:
        raise OutputError(f"the demo cannot be written to {path.parent}: {error}. Name another folder.") from error


def _refuse_to_overwrite(paths: list[Path]) -> None:
    """Raise where one of the files exists already."""
    existing = [path for path in paths if path.exists()]
    if existing:
        more = f" and {len(existing) - 1} more of its files exist" if len(existing) > 1 else " exists"
        raise OutputError(f"{existing[0]}{more} already. Name another folder, or overwrite them with --force.")


def _list_files() -> list[Traversable]:
    folder = files("ragfault.io.datasets") / "handbook"
    shipped = (file for file in folder.iterdir() if file.name.endswith((".md", ".jsonl")))
    return sorted(shipped, key=lambda file: file.name)


def _read_text(file: Traversable) -> str:
    """Read a text with plain line ends, as the spans count them."""
    return file.read_text(encoding="utf-8")


def _decode_traces(file: Traversable) -> tuple[Trace, ...]:
    return tuple(msgspec.json.decode(line, type=Trace) for line in _read_text(file).splitlines())
