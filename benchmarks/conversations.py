"""Measure retrieval, answerability, verdicts and grounding on turns of conversations with labels of answerability.

    python -m benchmarks.conversations SHARED [--page benchmarks/RESULTS.md]

SHARED holds multi_turn_dev. Four tables: retrieval with the last question alone and with the turns before it; AUROC of
low relevance of three passages for turns that cannot be answered; outcomes that `diagnose` gives to right and wrong
answers; and groundedness of answers with and without the history. Intervals resample conversations.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.datasets import Row, read_rows
from benchmarks.step_faults import write_table
from ragfault.diagnosis.run_analysis import diagnose_run
from ragfault.evaluation.evaluator import evaluate
from ragfault.judges.assembly import observe_traces
from ragfault.judges.loading import load_judge
from ragfault.model.records import Chunk, ConversationTurn, Gold, Trace
from ragfault.retrieval.index import BM25Index
from ragfault.stats.classification import auroc
from ragfault.stats.differences import paired_difference

DEPTH, PASSAGES = 5, 3
ANSWERABILITIES = ("answerable", "partial", "underspecified", "unanswerable")
REFUSAL = "I do not have an answer to this question."


def write_queries(row: Row) -> dict[str, str]:
    """Write the last question alone, and with what came before it."""
    asked = [turn["text"] for turn in row["turns"] if turn["role"] == "user"]
    answered = [turn["text"] for turn in row["turns"] if turn["role"] == "assistant"]
    before = asked[:-1] if asked and asked[-1] == row["query"] else asked
    return {
        "last question": row["query"],
        "with the question before it": " ".join([*before[-1:], row["query"]]),
        "with all questions": " ".join([*before, row["query"]]),
        "with the question and the answer before it": " ".join([*before[-1:], *answered[-1:], row["query"]]),
    }


def measure_retrieval(rows: Sequence[Row]) -> list[str]:
    """Measure BM25 among all passages of the collection: the share of the gold passages among the first five."""
    pools = {
        name: list(
            dict.fromkeys(t for r in rows if r["collection"] == name for t in (*r["contexts"], *r["near_contexts"]))
        )
        for name in sorted({row["collection"] for row in rows})
    }
    indexes = {name: BM25Index().fit(texts) for name, texts in pools.items()}
    recalls: dict[str, list[float]] = {}
    asked = [row for row in rows if row["contexts"] and len(row["turns"]) > 1]
    for row in asked:
        texts = pools[row["collection"]]
        for name, query in write_queries(row).items():
            order = np.argsort(-indexes[row["collection"]].score_texts(query), kind="stable")[:DEPTH]
            hits = {texts[place] for place in order} & set(row["contexts"])
            recalls.setdefault(name, []).append(len(hits) / min(DEPTH, len(set(row["contexts"]))))
    lines = [f"| query | recall@{DEPTH} | less the last question alone | turns |", "|---|---|---|---|"]
    for name, values in recalls.items():
        gap = paired_difference(recalls["last question"], values)
        shown = "" if name == "last question" else f"{gap.mean:+.3f} ({gap.low:+.3f} to {gap.high:+.3f})"
        lines.append(f"| {name} | {np.mean(values):.3f} | {shown} | {len(asked)} |")
    return lines


def build_trace(row: Row, answer: str | None, query: str | None = None) -> Trace:
    """Build the trace of the last turn with three passages, gold ones first, in random order."""
    texts = [*row["contexts"], *row["near_contexts"]][:PASSAGES]
    random.Random(row["id"]).shuffle(texts)
    chunks = tuple(Chunk(id=str(i), text=text) for i, text in enumerate(texts))
    gold = Gold(chunks={chunk.id: 1.0 for chunk in chunks if chunk.text in row["contexts"]})
    turns = row["turns"][:-1]
    return Trace(
        id=row["id"],
        query=query or row["query"],
        chunks=chunks,
        answer=answer,
        gold=gold if gold.chunks else None,
        history=tuple(ConversationTurn(role=turn["role"], text=turn["text"]) for turn in turns) or None,
        conversation=row["source_id"],
        reference=row["reference"],
        answerable={"unanswerable": False, "answerable": True}.get(row["answerability"]),
    )


def measure_answerability(rows: Sequence[Row], judge_name: str) -> list[str]:
    """Measure the AUROC of low relevance of the best passage for turns that cannot be answered."""
    judge = load_judge(judge_name)
    lines = ["| query | cannot be answered | unanswerable | underspecified | partial |", "|---|---|---|---|---|"]
    kinds = [row["answerability"] for row in rows]
    for name in write_queries(rows[0]):
        traces = [build_trace(row, None, write_queries(row)[name]) for row in rows]
        verdicts = observe_traces(judge, traces)
        scores = [-max((chunk.relevance for chunk in verdict.chunk or ()), default=0.0) for verdict in verdicts]
        cells = []
        for positive_kinds in (
            ("unanswerable", "underspecified"),
            ("unanswerable",),
            ("underspecified",),
            ("partial",),
        ):
            chosen = [n for n, kind in enumerate(kinds) if kind in positive_kinds or kind == "answerable"]
            value = auroc([scores[n] for n in chosen], [kinds[n] in positive_kinds for n in chosen])
            cells.append("" if value is None else f"{value:.3f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def count_outcomes(traces: Iterable[Trace], judge: str) -> dict[str, int]:
    """Count the turns by the outcome of their assessment."""
    with tempfile.TemporaryDirectory() as folder:
        run = evaluate(list(traces), Path(folder) / "run", judge=judge)
        states = [item.assessment.outcome if item.assessment else "cannot tell" for item in diagnose_run(run)]
    return {state: states.count(state) for state in ("right", "wrong", "cannot tell")}


def measure_turns(rows: Sequence[Row], judge: str) -> list[str]:
    """Measure the outcomes of the answers of people, which are right, and of answers that are wrong."""
    lines = ["| turns | answers | right | wrong | cannot tell |", "|---|---|---|---|---|"]
    for kind in ANSWERABILITIES:
        own_rows = [row for row in rows if row["answerability"] == kind]
        other_rows = [*own_rows[1:], own_rows[0]]
        wrong = "a refusal" if kind == "answerable" else "the answer to another turn"
        swapped = [REFUSAL] * len(own_rows) if kind == "answerable" else []
        answered = [row for row in rows if row["answerability"] == "answerable"]
        swapped = swapped or [answered[n % len(answered)]["reference"] for n in range(len(other_rows))]
        for name, answers in (
            ("of people, right", [row["reference"] for row in own_rows]),
            (f"wrong: {wrong}", swapped),
        ):
            counts = count_outcomes((build_trace(r, a) for r, a in zip(own_rows, answers, strict=True)), judge)
            lines.append(f"| {kind} ({len(own_rows)}) | {name} | " + " | ".join(map(str, counts.values())) + " |")
    return lines


def measure_grounding(rows: Sequence[Row], judge: str) -> list[str]:
    """Measure groundedness of the answers of people against their passages, with and without the history."""
    chosen = [row for row in rows if row["answerability"] == "answerable" and len(row["turns"]) > 1]
    traces = [build_trace({**row, "near_contexts": []}, row["reference"]) for row in chosen]
    with tempfile.TemporaryDirectory() as folder:
        run = evaluate(traces, Path(folder) / "run", judge=judge, metrics=["groundedness", "turn_groundedness"])
        scores = {(score.trace, score.metric): score.value for score in run.scores()}
    pairs = [[scores[trace.id, name] for name in ("groundedness", "turn_groundedness")] for trace in traces]
    known = np.array([pair for pair in pairs if None not in pair], float)
    gap = paired_difference(known[:, 0].tolist(), known[:, 1].tolist())
    return [
        "| metric | mean | turns with an unsupported claim | turns |",
        "|---|---|---|---|",
        *(
            f"| {name} | {column.mean():.3f}{shown} | {np.mean(column < 1):.3f} | {len(known)} |"
            for name, column, shown in (
                ("groundedness", known[:, 0], ""),
                ("turn_groundedness", known[:, 1], f", {gap.mean:+.3f} ({gap.low:+.3f} to {gap.high:+.3f})"),
            )
        ),
    ]


def main() -> None:
    """Print the tables, or write them between the marks of a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shared", type=Path)
    parser.add_argument("--judge", default="embedded")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    rows = read_rows(options.shared, "multi_turn_dev")
    tables = {
        "rewriting": lambda: measure_retrieval(rows),
        "answerability": lambda: measure_answerability(rows, options.judge),
        "turns": lambda: measure_turns(rows, options.judge),
        "grounding": lambda: measure_grounding(rows, options.judge),
    }
    for name, build in tables.items():
        lines = build()
        print(f"## {name}\n" + "\n".join(lines) + "\n", flush=True)
        if options.page:
            write_table(options.page, name, lines)


if __name__ == "__main__":
    main()
