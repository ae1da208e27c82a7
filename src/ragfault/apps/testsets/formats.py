"""Evaluation sets in the formats of other tools: BEIR, Ragas, DeepEval, LangSmith, Hugging Face datasets."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ragfault.io.atomic_files import write_atomically
from ragfault.model.errors import InputError, UnknownName, UsageError
from ragfault.model.records import Document, Gold, Trace

Row = dict[str, Any]


def _list_quotes(item: Trace) -> list[str]:
    return [span.quote for span in item.gold.spans if span.quote] if item.gold else []


def _list_documents(item: Trace) -> list[str]:
    return list(dict.fromkeys(span.document for span in item.gold.spans)) if item.gold else []


def _get_reference(item: Trace) -> str | None:
    """Return the first reference, else the facts in one text."""
    return item.references[0] if item.references else " ".join(item.facts or ()) or None


def _build_ragas_row(item: Trace) -> Row:
    return {
        "id": item.id,
        "user_input": item.query,
        "reference": _get_reference(item),
        "reference_contexts": _list_quotes(item),
        "synthesizer_name": item.metadata.get("kind"),
        "answerable": item.answerable,
    }


def _build_deepeval_row(item: Trace) -> Row:
    return {
        "input": item.query,
        "expected_output": _get_reference(item),
        "context": _list_quotes(item),
        "source_file": next(iter(_list_documents(item)), None),
        "additional_metadata": {"id": item.id, "answerable": item.answerable, **item.metadata},
    }


def _build_langsmith_row(item: Trace) -> Row:
    """Return an example; its own id has to be a UUID, so that of the item is metadata."""
    return {
        "inputs": {"question": item.query},
        "reference_outputs": {"answer": _get_reference(item)},
        "metadata": {
            "id": item.id,
            "answerable": item.answerable,
            "contexts": _list_quotes(item),
            "documents": _list_documents(item),
            **item.metadata,
        },
    }


def _build_huggingface_row(item: Trace) -> Row:
    spans = item.gold.spans if item.gold else ()
    return {
        "id": item.id,
        "question": item.query,
        "reference": _get_reference(item),
        "facts": list(item.facts or ()),
        "answerable": item.answerable,
        "kind": item.metadata.get("kind"),
        "gold": [{"document": s.document, "start": s.start, "end": s.end, "quote": s.quote} for s in spans],
    }


SET_FORMATS: dict[str, tuple[Callable[[Trace], Row], bool]] = {
    "ragas": (_build_ragas_row, False),
    "deepeval": (_build_deepeval_row, True),
    "langsmith": (_build_langsmith_row, False),
    "huggingface": (_build_huggingface_row, False),
}
"""Format → its row, and whether the file is one JSON array instead of JSON Lines."""


def write_testset(
    items: Iterable[Trace], path: str | Path, kind: str, documents: Iterable[Document] | None = None
) -> int:
    """Write an evaluation set in the format of another tool; return how many items were written.

    "ragas", "langsmith" and "huggingface" are JSON Lines, "deepeval" is a JSON array of goldens, "beir" a folder with
    corpus.jsonl, queries.jsonl and qrels/test.tsv, which needs the documents: relevance there is that of documents,
    and items without gold are left out. The other formats hold quotes; offsets only "huggingface" has.

    Raises UnknownName for another format, UsageError for "beir" without documents.
    """
    items_list = list(items)
    if kind == "beir":
        if documents is None:
            raise UsageError("BEIR holds the documents, too: give the corpus (--corpus).")
        return _write_beir(items_list, Path(path), list(documents))
    if kind not in SET_FORMATS:
        raise UnknownName("format of an evaluation set", kind, [*SET_FORMATS, "beir"])
    build, as_array = SET_FORMATS[kind]
    rows = [build(item) for item in items_list]
    data = msgspec.json.encode(rows) if as_array else b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
    write_atomically(Path(path), data)
    return len(rows)


def _write_beir(items: Sequence[Trace], folder: Path, documents: Sequence[Document]) -> int:
    """Write the three files of BEIR (Thakur and others 2021); the grade of a document is that of its best span."""
    with_gold = [item for item in items if _list_documents(item)]
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    corpus = [{"_id": document.id, "title": document.title or "", "text": document.text} for document in documents]
    queries = [{"_id": item.id, "text": item.query} for item in with_gold]
    qrels = io.StringIO()
    writer = csv.writer(qrels, delimiter="\t", lineterminator="\n")
    writer.writerow(("query-id", "corpus-id", "score"))
    for item in with_gold:
        assert item.gold is not None
        for name in _list_documents(item):
            grade = max(span.grade for span in item.gold.spans if span.document == name)
            writer.writerow((item.id, name, max(1, round(grade))))
    for name, rows in (("corpus.jsonl", corpus), ("queries.jsonl", queries)):
        write_atomically(folder / name, b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    write_atomically(folder / "qrels" / "test.tsv", qrels.getvalue().encode())
    return len(with_gold)


def read_beir(folder: str | Path) -> list[Trace]:
    """Read queries and qrels of a BEIR folder as items whose gold are ids of documents.

    Raises InputError where a file is missing or a line is not of that format.
    """
    path = Path(folder)
    try:
        lines = (path / "queries.jsonl").read_bytes().splitlines()
        queries = {str(row["_id"]): str(row["text"]) for row in map(msgspec.json.decode, filter(None, lines))}
        text = (path / "qrels" / "test.tsv").read_text(encoding="utf-8")
        grades: dict[str, dict[str, float]] = {}
        for query, document, score in list(csv.reader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE))[1:]:
            grades.setdefault(query, {})[document] = float(score)
        return [Trace(id=name, query=queries[name], gold=Gold(chunks=chunks)) for name, chunks in grades.items()]
    except (OSError, KeyError, TypeError, ValueError, msgspec.MsgspecError) as error:
        raise InputError(f"{path} is not a BEIR folder with queries.jsonl and qrels/test.tsv: {error}") from error
