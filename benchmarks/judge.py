"""Measure the agreement of the lexical judge with people, and its speed.

    python -m benchmarks.judge DATA_FOLDER

Groundedness: AUROC and best F1 of "some claim is not supported" against people's labels, on the sources
of RAGTruth's training file that the weights were not fitted on; also within task × generator, where
style says nothing of the label. AUROC alone on sets that the weights were not fitted on. Then the relevance of
passages, also by the default judge; missing context by what the chunks hold; the focus of answers on their query; and
the labels of the small talk and the inventions of the fault bench.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.datasets import Row, build_trace, is_marked, is_reserved, read_rows
from benchmarks.faults.corpora import load_handbook_corpus, load_squad_corpus
from benchmarks.faults.injection import pair
from benchmarks.faults.phrases import INVENTIONS, WANDERINGS
from ragfault.judges.checks.answers import measure_focus
from ragfault.judges.checks.claims import extract_claims
from ragfault.judges.checks.passages import Passage
from ragfault.judges.lexical.entailment import LexicalJudge
from ragfault.judges.loading import load_judge
from ragfault.model.records import Chunk, Trace, Verdicts
from ragfault.stats.classification import auroc, auroc_within_groups, choose_threshold


def compute_risks(verdicts: Sequence[Verdicts]) -> dict[str, list[float]]:
    """Return the risk of each answer, one less the probability of support: of its worst claim, and on average."""
    claim_risks = [[1.0 - (claim.p or 0.0) for claim in verdict.claim or ()] for verdict in verdicts]
    return {
        "worst": [max(p, default=0.0) for p in claim_risks],
        "mean": [sum(p) / len(p) if p else 0.0 for p in claim_risks],
    }


def measure_ragtruth(folder: Path) -> None:
    """Print the agreement with the labels of RAGTruth, on answers of six models."""
    reserved = [row for row in read_rows(folder, "ragtruth_train") if is_reserved(row)]
    judge = load_judge("lexical")
    traces = [build_trace(row) for row in reserved]
    judge.observe(traces[:5])
    start = time.process_time()
    verdicts = judge.observe(traces)
    rate = len(traces) / (time.process_time() - start)
    label = [row["label"] for row in reserved]
    print(f"{judge.fingerprint}\nragtruth: {len(reserved)} answers, {rate:.0f} traces/s per core")
    for name, score in compute_risks(verdicts).items():
        groups = [(row["task"], row["model"]) for row in reserved]
        tasks = {
            task: auroc(
                [s for s, row in zip(score, reserved, strict=True) if row["task"] == task],
                [row["label"] for row in reserved if row["task"] == task],
            )
            for task in ("QA", "Summary", "Data2txt")
        }
        print(
            f"  {name:6} AUROC {auroc(score, label):.3f}  F1 {choose_threshold(score, label).value:.3f}"
            f"  within {auroc_within_groups(score, label, groups).value:.3f}  "
            + "  ".join(f"{task} {value:.3f}" for task, value in tasks.items())
        )
    count_marked_claims(reserved, verdicts)


def count_marked_claims(reserved: Sequence[Row], verdicts: Sequence[Verdicts]) -> None:
    """Print how often people marked a claim, by the label of the judge."""
    claims: Counter[str] = Counter()
    marked: Counter[str] = Counter()
    for row, first in zip(reserved, verdicts, strict=True):
        for claim in first.claim or ():
            claims[claim.support] += 1
            marked[claim.support] += is_marked(claim, row)
    print("  marked by people: " + ", ".join(f"{word} {marked[word] / n:.2f} of {n}" for word, n in claims.items()))


def measure_other_sets(folder: Path) -> None:
    """Print the AUROC on sets that were not used in training."""
    judge = load_judge("lexical")
    for name in ("attributionbench_dev", "wice_dev", "begin_dev"):
        retained = read_rows(folder, name)
        score = compute_risks(judge.observe([build_trace(row) for row in retained]))
        label = [row["label"] for row in retained]
        print(
            f"{name}: {len(retained)}  " + "  ".join(f"{key} AUROC {auroc(s, label):.3f}" for key, s in score.items())
        )


def measure_relevance(folder: Path) -> None:
    """Print the agreement of relevance with graded labels: AUROC over all, within queries, and nDCG@10."""
    for name, threshold in (("wikiqa", 1), ("trec_dl19", 2)):
        by_query: dict[str, list[Row]] = defaultdict(list)
        for row in read_rows(folder, name):
            by_query[row["query"]].append(row)
        traces = [
            Trace(
                id=query,
                query=query,
                chunks=tuple(Chunk(id=str(i), text=row["passage"]) for i, row in enumerate(query_rows)),
            )
            for query, query_rows in by_query.items()
        ]
        groups = [query for query, query_rows in by_query.items() for _ in query_rows]
        grades = [np.array([row["label"] for row in query_rows]) for query_rows in by_query.values()]
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


def measure_missing_context(folder: Path) -> None:
    """Print the share of queries with missing context, by whether the chunks hold the answer.

    Chunks without the answer are near ones, or those of another query. `embedded` reports the same as missing.
    """
    chance = random.Random(0)
    texts = {row["pid"]: row["text"] for row in read_rows(folder, "squad2_paragraphs")}
    questions = chance.sample([row for row in read_rows(folder, "squad2_questions") if row["gold_pid"] in texts], 800)
    sets = {
        "SQuAD 2.0": [(row["query"], [texts[row["gold_pid"]]], row["answerable"]) for row in questions],
        "CLAPnq": [(row["query"], row["contexts"], row["answerable"]) for row in read_rows(folder, "clapnq_dev")],
        "MTRAG": [
            (row["query"], row["contexts"] + row["near_contexts"], not row["label"])
            for row in read_rows(folder, "multi_turn_dev")
        ],
        "RAGTruth QA": [
            (row["query"], row["contexts"], True)
            for row in {
                row["source_id"]: row for row in read_rows(folder, "ragtruth_train") if row["task"] == "QA"
            }.values()
        ][::3],
    }
    for name, cases in sets.items():
        answerable_cases = [(query, chunks) for query, chunks, answerable in cases if answerable]
        unanswerable_cases = [(query, chunks) for query, chunks, answerable in cases if not answerable]
        mismatched_cases = [(query, chance.choice(answerable_cases)[1]) for query, _ in answerable_cases]
        parts = {"hold the answer": answerable_cases, "near": unanswerable_cases, "of another query": mismatched_cases}
        print(
            f"{name}: misses something, "
            + ", ".join(f"{part} {share_missed(pairs):.2f} of {len(pairs)}" for part, pairs in parts.items() if pairs)
        )


def share_missed(pairs: Sequence[tuple[str, list[str]]]) -> float:
    """Return the share of queries for which the judge reports missing context."""
    traces = [
        Trace(id=str(i), query=query, chunks=tuple(Chunk(id=str(n), text=text) for n, text in enumerate(chunks)))
        for i, (query, chunks) in enumerate(pairs)
        if chunks
    ]
    return sum(bool(item.missing) for item in load_judge("lexical").observe(traces)) / len(traces)


def measure_answer_focus(folder: Path) -> None:
    """Print the focus of answers to questions, by length of the answer."""
    shares: defaultdict[str, list[float]] = defaultdict(list)
    for first in map(
        build_trace, (row for row in read_rows(folder, "ragtruth_train") if is_reserved(row) and row["task"] == "QA")
    ):
        reading = LexicalJudge().open_session()
        chunks = [Passage(chunk.id, chunk.text) for chunk in first.chunks or ()]
        message = extract_claims(first.answer or "")
        known = reading.score_entailment([claim.text for claim in message], chunks)
        relevant = [seen.value for seen in reading.score_relevance(first.query, chunks)]
        share = measure_focus(first.query, first.answer or "", message, known, relevant, reading)
        shares["over 800 characters" if len(first.answer or "") > 800 else "shorter"].append(share)
    print("keeps to the query: " + ", ".join(f"{n} {sum(v) / len(v):.3f} of {len(v)}" for n, v in shares.items()))


def count_phrase_labels(folder: Path) -> None:
    """Print the labels of the claims with small talk or inventions of the fault bench."""
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
    measure_ragtruth(data)
    measure_other_sets(data)
    measure_relevance(data)
    measure_missing_context(data)
    measure_answer_focus(data)
    count_phrase_labels(data)


if __name__ == "__main__":
    main()
