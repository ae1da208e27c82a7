"""How well the lexical judge agrees with people, and how fast it is.

    python -m benchmarks.judge DATA_FOLDER

Groundedness: AUROC and best F1 of "some claim is not supported" against people's labels, on the sources
of RAGTruth's training file that the weights were not fitted on; also within task × generator, where
style gives nothing away. Elsewhere AUROC alone, on sets that the weights have not seen. Then the relevance of
passages, also by the default judge, and missing context by what the chunks hold. Last, what becomes of the small
talk and the inventions of the fault bench, and how far answers keep to their query.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.faults.corpora import load_handbook_corpus, load_squad_corpus
from benchmarks.faults.injection import pair
from benchmarks.faults.phrases import INVENTIONS, WANDERINGS

from ragfault.judges import load_judge
from ragfault.judges.checks.answers import measure_focus
from ragfault.judges.checks.claims import extract_claims
from ragfault.judges.checks.passages import Passage
from ragfault.judges.lexical.entailment import LexicalJudge
from ragfault.records import Chunk, Trace, Verdicts
from ragfault.stats import auroc, auroc_within_groups, choose_threshold

Row = dict[str, Any]


def rows(folder: Path, name: str) -> list[Row]:
    """Return the records of one file."""
    with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def is_reserved(row: Row) -> bool:
    """Return whether a source is kept for measuring; one in five is."""
    return zlib.crc32(row["source_id"].encode()) % 5 == 0


def trace(row: Row) -> Trace:
    """Return a record as a trace."""
    texts = row["contexts"] if "contexts" in row else [row["passage"]]
    chunks = tuple(Chunk(id=str(i), text=text) for i, text in enumerate(texts))
    return Trace(id=row.get("id", ""), query=row.get("query") or "", chunks=chunks, answer=row.get("answer"))


def doubts(verdicts: Sequence[Verdicts]) -> dict[str, list[float]]:
    """Return how doubtful each answer is, by its worst claim and on average."""
    item = [[1.0 - (claim.p or 0.0) for claim in verdict.claim or ()] for verdict in verdicts]
    return {"worst": [max(p, default=0.0) for p in item], "mean": [sum(p) / len(p) if p else 0.0 for p in item]}


def ragtruth(folder: Path) -> None:
    """Measure the answers of six models with human labels."""
    retained = [row for row in rows(folder, "ragtruth_train") if is_reserved(row)]
    judge = load_judge("lexical")
    traces = [trace(row) for row in retained]
    judge.observe(traces[:5])
    start = time.process_time()
    verdicts = judge.observe(traces)
    rate = len(traces) / (time.process_time() - start)
    label = [row["label"] for row in retained]
    print(f"{judge.fingerprint}\nragtruth: {len(retained)} answers, {rate:.0f} traces/s per core")
    for name, score in doubts(verdicts).items():
        groups = [(row["task"], row["model"]) for row in retained]
        tasks = {
            task: auroc([s for s, row in zip(score, retained, strict=True) if row["task"] == task],
                        [row["label"] for row in retained if row["task"] == task])
            for task in ("QA", "Summary", "Data2txt")
        }  # fmt: skip
        print(
            f"  {name:6} AUROC {auroc(score, label):.3f}  F1 {choose_threshold(score, label).value:.3f}"
            f"  within {auroc_within_groups(score, label, groups).value:.3f}  "
            + "  ".join(f"{task} {value:.3f}" for task, value in tasks.items())
        )
    words(retained, verdicts)


def words(retained: Sequence[Row], verdicts: Sequence[Verdicts]) -> None:
    """Count how often people marked a claim, by the label of the judge."""
    seen: Counter[str] = Counter()
    marked: Counter[str] = Counter()
    for row, first in zip(retained, verdicts, strict=True):
        for claim in first.claim or ():
            seen[claim.support] += 1
            marked[claim.support] += any(
                claim.start < span["end"] and span["start"] < claim.end for span in row["spans"]
            )
    print("  marked by people: " + ", ".join(f"{word} {marked[word] / n:.2f} of {n}" for word, n in seen.items()))


def others(folder: Path) -> None:
    """Measure claims and replies of sets that were not used in training."""
    judge = load_judge("lexical")
    for name in ("attributionbench_dev", "wice_dev", "begin_dev"):
        retained = rows(folder, name)
        score = doubts(judge.observe([trace(row) for row in retained]))
        label = [row["label"] for row in retained]
        print(
            f"{name}: {len(retained)}  " + "  ".join(f"{key} AUROC {auroc(s, label):.3f}" for key, s in score.items())
        )


def relevance(folder: Path) -> None:
    """Measure the relevance of chunks against graded labels: AUROC over all, within queries, and nDCG@10."""
    for name, threshold in (("wikiqa", 1), ("trec_dl19", 2)):
        by_query: dict[str, list[Row]] = defaultdict(list)
        for row in rows(folder, name):
            by_query[row["query"]].append(row)
        traces = [
            Trace(
                id=query,
                query=query,
                chunks=tuple(Chunk(id=str(i), text=row["passage"]) for i, row in enumerate(judged)),
            )
            for query, judged in by_query.items()
        ]
        groups = [query for query, judged in by_query.items() for _ in judged]
        grades = [np.array([row["label"] for row in judged]) for judged in by_query.values()]
        label = (np.concatenate(grades) >= threshold).astype(int)
        for judge in ("lexical", "embedded"):
            seen = load_judge(judge).observe(traces)
            scores = [np.array([item.relevance for item in verdicts.chunk]) for verdicts in seen]
            ranked = [
                measure_tied_ndcg(score, grade) for score, grade in zip(scores, grades, strict=True) if grade.any()
            ]
            flat = np.concatenate(scores)
            inner = auroc_within_groups(flat, label, groups)
            levels = Counter(item.level for verdicts in seen for item in verdicts.chunk)
            print(
                f"{name}, {judge}: {len(flat)}  AUROC {auroc(flat, label):.3f}  within query {inner.value:.3f}  "
                f"nDCG@10 {np.mean(ranked):.3f} of {len(ranked)} queries  {dict(levels)}"
            )


def measure_tied_ndcg(scores: np.ndarray, grades: np.ndarray, depth: int = 10) -> float:
    """Return the expected nDCG of a ranking whose ties are in random order (McSherry and Najork, ECIR 2008)."""
    _, places, sizes = np.unique(-scores, return_inverse=True, return_counts=True)
    gains = np.bincount(places, grades) / sizes
    discounts = 1 / np.log2(np.arange(2, min(depth, len(grades)) + 2))
    expected, best = np.repeat(gains, sizes), -np.sort(-grades)
    return float(expected[: len(discounts)] @ discounts / (best[: len(discounts)] @ discounts))


def missing_context(folder: Path) -> None:
    """Count queries on which something is missed, where the chunks hold the answer and where they do not.

    By chunks of another query, and by chunks that are near and hold no answer. `embedded` misses the same.
    """
    chance = random.Random(0)
    texts = {row["pid"]: row["text"] for row in rows(folder, "squad2_paragraphs")}
    asked = chance.sample([row for row in rows(folder, "squad2_questions") if row["gold_pid"] in texts], 800)
    sets = {
        "SQuAD 2.0": [(row["query"], [texts[row["gold_pid"]]], row["answerable"]) for row in asked],
        "CLAPnq": [(row["query"], row["contexts"], row["answerable"]) for row in rows(folder, "clapnq_dev")],
        "MTRAG": [
            (row["query"], row["contexts"] + row["near_contexts"], not row["label"])
            for row in rows(folder, "multi_turn_dev")
        ],
        "RAGTruth QA": [
            (row["query"], row["contexts"], True)
            for row in {row["source_id"]: row for row in rows(folder, "ragtruth_train") if row["task"] == "QA"}.values()
        ][::3],
    }
    for name, cases in sets.items():
        holds = [(query, chunks) for query, chunks, answerable in cases if answerable]
        near = [(query, chunks) for query, chunks, answerable in cases if not answerable]
        other = [(query, chance.choice(holds)[1]) for query, _ in holds]
        parts = {"hold the answer": holds, "near": near, "of another query": other}
        print(f"{name}: misses something, " + ", ".join(
            f"{part} {share_missed(pairs):.2f} of {len(pairs)}" for part, pairs in parts.items() if pairs
        ))  # fmt: skip


def share_missed(pairs: Sequence[tuple[str, list[str]]]) -> float:
    """Return the share of queries of which the judge misses something in the chunks."""
    traces = [
        Trace(id=str(i), query=query, chunks=tuple(Chunk(id=str(n), text=text) for n, text in enumerate(chunks)))
        for i, (query, chunks) in enumerate(pairs)
        if chunks
    ]
    return sum(bool(item.missing) for item in load_judge("lexical").observe(traces)) / len(traces)


def measure_answer_focus(folder: Path) -> None:
    """Measure the focus of answers to questions, by length."""
    shares: defaultdict[str, list[float]] = defaultdict(list)
    for first in map(
        trace, (row for row in rows(folder, "ragtruth_train") if is_reserved(row) and row["task"] == "QA")
    ):
        reading = LexicalJudge().open_session()
        chunks = [Passage(chunk.id, chunk.text) for chunk in first.chunks or ()]
        message = extract_claims(first.answer or "")
        known = reading.score_entailment([claim.text for claim in message], chunks)
        relevant = [seen.value for seen in reading.score_relevance(first.query, chunks)]
        share = measure_focus(first.query, first.answer or "", message, known, relevant, reading)
        shares["over 800 characters" if len(first.answer or "") > 800 else "shorter"].append(share)
    print("keeps to the query: " + ", ".join(f"{n} {sum(v) / len(v):.3f} of {len(v)}" for n, v in shares.items()))


def spoken(folder: Path) -> None:
    """Count the labels of small talk and of the inventions of the fault bench."""
    for fault, phrases in (("wandering-preamble", WANDERINGS), ("invented-claims", INVENTIONS)):
        parts = [max(phrase.split("{0}"), key=len) for phrase in phrases]
        seen: Counter[str] = Counter()
        for corpus in (load_handbook_corpus(), load_squad_corpus(folder)):
            for seed in (0, 1):
                traces = pair(corpus, fault, "strong", seed=seed)[1]
                for first, verdicts in zip(traces, load_judge("lexical").observe(traces), strict=True):
                    for part in (part for part in parts if part in (first.answer or "")):
                        words = [claim.support for claim in verdicts.claim or () if part in claim.claim]
                        seen[words[0] if words else "no claim"] += 1
        print(f"{fault}: {dict(seen)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    data = parser.parse_args().data
    ragtruth(data)
    others(data)
    relevance(data)
    missing_context(data)
    measure_answer_focus(data)
    spoken(data)


if __name__ == "__main__":
    main()
