"""Measure tables: chunks that hold the row a question asks for, and claims that take a value from another row.

    python -m benchmarks.tables [--data DATA] [--size 60] [--judges lexical,embedded]

Retrieval: the corpus is the Markdown below `docs/` and the handbook of the demo. Of up to four rows of each table a
question is made by a template from the heading of a column and the first cell; found is a row that stands in full in
one of the best five chunks. With DATA the questions of `chunking_questions` whose answer is a row of a table are asked
too (reports of companies, cells apart by "|", no rule under the head); found is the share of its characters.

Judging: the same rows as claims, true and with the value of another row of the column, beside the chunk with the row;
and, with DATA, the answers of RAGTruth about records (Data2txt) whose sources the training of `lexical` left out.
"""

from __future__ import annotations

import argparse
import random
import re
from pathlib import Path
from typing import NamedTuple

from benchmarks.datasets import build_trace, is_reserved, read_rows
from ragfault.io.datasets.demo_handbook import load_handbook
from ragfault.io.documents import read_documents
from ragfault.judges.loading import load_judge
from ragfault.model.records import Chunk, Document, Span, Trace
from ragfault.retrieval.chunking.structure import iterate_lines, parse_blocks
from ragfault.retrieval.pipeline import Query
from ragfault.retrieval.pipeline_config import PipelineConfig, build_index
from ragfault.stats.classification import auroc, auroc_within_groups
from ragfault.stats.intervals import mean_interval

ROWS_PER_TABLE, DEPTH = 4, 5
CELL_SEPARATOR = re.compile(r"(?<!\\)\|")


class TableRow(NamedTuple):
    """A row of a table with the question for one of its cells."""

    span: Span
    label: str
    column: str
    value: str
    other_value: str
    """The value of the same column in another row."""


def list_rows(document: Document, rng: random.Random) -> list[TableRow]:
    """Return up to four rows of each table whose first cell occurs once in the table."""
    chosen = []
    for first, last in parse_blocks(document.text).tables:
        lines = [
            (first + at, [cell.strip(" *`") for cell in CELL_SEPARATOR.split(line.strip().strip("|"))], len(line))
            for at, line in iterate_lines(document.text[first:last])
            if line.count("|") > 1
        ]
        if len(lines) < 4:
            continue
        head, body = lines[0][1], lines[2:]
        labels = [cells[0] for _, cells, _ in body]
        usable = [line for line in body if len(line[1]) == len(head) > 1 and labels.count(line[1][0]) == 1]
        for place, cells, length in rng.sample(usable, min(ROWS_PER_TABLE, len(usable))):
            column = rng.randrange(1, len(head))
            others = [line[1][column] for line in usable if line[1][column] not in (cells[column], "")]
            if head[column] and cells[0] and cells[column] and others:
                span = Span(document=document.id, start=place, end=place + length)
                chosen.append(TableRow(span, cells[0], head[column], cells[column], rng.choice(others)))
    return chosen


def compute_covered_share(span: Span, hits: list[Chunk]) -> float:
    """Return the share of the characters of a span that the chunks contain."""
    covered = {
        i
        for hit in hits
        if hit.document == span.document and hit.start is not None and hit.end is not None
        for i in range(max(hit.start, span.start), min(hit.end, span.end))
    }
    return len(covered) / (span.end - span.start)


def measure_retrieval(
    documents: list[Document], questions: list[tuple[str, list[Span]]], chunker: str, *, in_full: bool
) -> None:
    """Print the recall at five of each search."""
    for embedder, kind in (("none", "sparse"), ("latent", "dense"), ("latent", "hybrid")):
        index = build_index(PipelineConfig(chunker=chunker, embedder=embedder), documents)
        retrieve = index.retrieve(kind, DEPTH)
        recalls = []
        for text, spans in questions:
            hits = list(retrieve(Query(text=text), ()).hits)
            shares = [compute_covered_share(span, hits) for span in spans]
            recalls.append(float(min(shares) >= 0.999) if in_full else sum(shares) / len(shares))
        interval = mean_interval(recalls)
        bounds = f"[{interval.low:.3f}, {interval.high:.3f}]"
        print(f"{chunker:16} {kind:7} recall@{DEPTH} {interval.mean:.3f} {bounds}")


def measure_row_claims(documents: list[Document], tables: list[TableRow], chunker: str, judges: list[str]) -> None:
    """Print how well true values are told from values of another row, and what is called supported."""
    chunks = build_index(PipelineConfig(chunker=chunker), documents).chunks
    traces, labels = [], []
    for number, row in enumerate(tables):
        holders = [chunk for chunk in chunks if compute_covered_share(row.span, [chunk]) >= 0.999]
        for wrong, value in enumerate((row.value, row.other_value)):
            if holders:
                query = f"What is the {row.column} of {row.label}?"
                answer = f"The {row.column} of {row.label} is {value}."
                traces.append(Trace(id=f"{number}-{wrong}", query=query, chunks=(holders[0],), answer=answer))
                labels.append(wrong)
    for name in judges:
        scores, supported = [], [0, 0]
        for verdicts, wrong in zip(load_judge(name).observe(traces), labels, strict=True):
            claims = verdicts.claim or ()
            scores.append(1 - min((claim.p or 0.0 for claim in claims), default=0.5))
            supported[wrong] += all(claim.support in ("supported", "inferred") for claim in claims)
        half = len(labels) // 2
        print(
            f"{chunker:16} {name:9} {half} rows: AUROC {auroc(scores, labels):.3f}, "
            f"called supported: true {supported[0] / half:.1%}, value of another row {supported[1] / half:.1%}"
        )


def measure_records(folder: Path) -> None:
    """Print how well answers about records are told apart, on sources that the training of `lexical` left out."""
    answers = [row for row in read_rows(folder, "ragtruth_train") if row["task"] == "Data2txt" and is_reserved(row)]
    labels = [row["label"] for row in answers]
    verdicts = load_judge("lexical").observe([build_trace(row) for row in answers])
    scores = [1 - (item.answer.grounded or 0.0) if item.answer else 0.5 for item in verdicts]
    inner = auroc_within_groups(scores, labels, [row["model"] for row in answers])
    within = f"{inner.value:.3f}" if inner else "undefined"
    print(f"records, lexical: {len(answers)} answers: AUROC {auroc(scores, labels):.3f}, within generators {within}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--size", type=int, default=60)
    parser.add_argument("--search", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--judges", default="lexical,embedded")
    options = parser.parse_args()
    rng = random.Random(0)
    documents = list(read_documents("docs/**/*.md"))
    documents += [Document(id=name, text=text) for name, text in load_handbook().documents.items()]
    tables = [row for document in documents for row in list_rows(document, rng)]
    questions_by_row = [(f"What is the {row.column} of {row.label}?", [row.span]) for row in tables]
    print(f"{len(documents)} documents, {len(tables)} rows of their tables")
    for size in (options.size // 3, options.size, options.size * 4) if options.search else ():
        measure_retrieval(documents, questions_by_row, f"recursive({size})", in_full=True)
    for size in (options.size // 3, options.size):
        measure_row_claims(
            documents, tables, f"recursive({size})", [name for name in options.judges.split(",") if name]
        )
    if options.data:
        measure_records(options.data)
        folder = options.data / "chunking_corpora"
        reports = [Document(id=path.stem, text=path.read_text()) for path in sorted(folder.glob("*.md"))]
        questions = [
            (
                row["query"],
                [
                    Span(document=row["corpus"], start=span["start_index"], end=span["end_index"])
                    for span in row["gold_spans"]
                ],
            )
            for row in read_rows(options.data, "chunking_questions")
            if any("|" in span["content"] for span in row["gold_spans"])
        ]
        print(f"reports of companies: {len(questions)} questions whose answer is a row of a table")
        for size in (options.size, options.size * 4):
            measure_retrieval(reports, questions, f"recursive({size})", in_full=False)


if __name__ == "__main__":
    main()
