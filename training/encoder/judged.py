"""Measure judges as a user gets them: python -m training.encoder.judged DATA JUDGE [JUDGE ...].

Each judge reads whole answers of sets that the encoder was not trained on, finds their claims itself and says whether
an answer is grounded. Printed are the AUROC of that probability with its interval, F1 of bad answers below one half,
and how many answers were left without a claim. `embedded` has seen texts of these sets.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ragfault.judges.loading import load_judge
from ragfault.model.gold_evidence import AGREEMENT_UNSURE
from ragfault.model.records import Chunk, ConversationTurn, Trace, Verdicts
from ragfault.stats.classification import auroc
from training.data_files import read_rows
from training.encoder.claims import (
    TRANSFER_SETS,
    LabelledAnswer,
    list_contrast,
    list_items,
    list_ragtruth,
    split_answer,
)
from training.encoder.rows import authored_lines
from training.encoder.stacking import compare_judges


def list_answers(data: Path, count: int) -> Iterator[tuple[str, list[LabelledAnswer], list[str]]]:
    """Yield each set with at most so many of its answers and their texts."""
    rows = {name: read_rows(data, name) for name in TRANSFER_SETS}
    for name, answers in rows.items():
        chosen = random.Random(6).sample(answers, min(count, len(answers)))
        yield name.removesuffix("_dev"), [split_answer(name, row) for row in chosen], [row["answer"] for row in chosen]
    texts = {str(row["id"]): row["answer"] for row in read_rows(data, "ragtruth_train")}
    chosen = list(list_ragtruth(data, 1))[:count]
    yield "ragtruth", chosen, [texts[item.id] for item in chosen]
    for name, items in (("contrast", list(list_contrast(data))), ("w7", list(list_items("w7"))[: 2 * count])):
        yield name, items, [" ".join(item.claims) for item in items]


def build_trace(item: LabelledAnswer, answer: str, place: int) -> Trace:
    """Build the trace of a labelled answer."""
    roles = ("user", "assistant")
    return Trace(
        id=str(place),
        query=item.query,
        history=tuple(ConversationTurn(role=roles[number % 2], text=text) for number, text in enumerate(item.history))
        or None,
        chunks=tuple(Chunk(id=f"c{number}", text=text) for number, text in enumerate(item.chunks)),
        answer=answer,
    )


def describe_pairs(items: list[LabelledAnswer], verdicts: list[Verdicts], grounded: np.ndarray) -> str:
    """Describe the contrast pairs: how many have both true answers above the falsehood, and what is contradicted."""
    pairs: dict[str, dict[str, float]] = {}
    contradicted = {"true": 0, "copied": 0, "false": 0}
    for item, verdict, value in zip(items, verdicts, grounded.tolist(), strict=True):
        pairs.setdefault(item.group, {})[item.id] = value
        contradicted[item.id] += any(claim.support == "contradicted" for claim in verdict.claim or ())
    complete = [pair for pair in pairs.values() if len(pair) == len(contradicted)]
    above = np.mean([min(pair["true"], pair["copied"]) > pair["false"] for pair in complete])
    return f"both above the falsehood {above:.2f}; called contradicted {contradicted}"


def describe_keys(judge: str, writer: str) -> str:
    """Describe how a judge reads the answers of a writer beside their references."""
    session_of = load_judge(judge).open_session
    read, same = [], []
    for row in (row for group, row in authored_lines("keys") if f"-{writer}-" in group):
        session = session_of(row["query"])
        for text, label in row["answers"]:
            read.append(session.score_agreement(text, [row["reference"]]))
            same.append(label == "same")
    if None in read:
        return f"keys {writer} {judge}: answers are compared by words"
    odds, right = np.array(read, float), np.array(same)
    wrong = (odds[right] < AGREEMENT_UNSURE[0]).mean()
    accuracy = ((odds >= 0.5) == right).mean()
    return (
        f"keys {writer} {judge}: n={len(read)} AUROC {auroc(odds, right):.3f} accuracy {accuracy:.3f} "
        f"right ones called wrong {wrong:.3f}"
    )


def main() -> None:
    """Print the figures of each set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("judges", nargs="+")
    parser.add_argument("--count", type=int, default=200, help="answers of each set")
    options = parser.parse_args()
    for name, items, texts in list_answers(options.data, options.count):
        traces = [build_trace(*pair, place) for place, pair in enumerate(zip(items, texts, strict=True))]
        bad = np.array([item.bad for item in items], bool)
        groups = [item.group for item in items]
        for judge in options.judges:
            verdicts = [load_judge(judge).observe([trace])[0] for trace in traces]
            grounded = np.array([
                1.0 if verdict.answer is None or verdict.answer.grounded is None else verdict.answer.grounded
                for verdict in verdicts
            ])  # fmt: skip
            if name == "contrast":
                print(describe_pairs(items, verdicts, grounded))
            empty = np.array([not verdict.claim for verdict in verdicts])
            area = compare_judges({judge: (1 - grounded).tolist()}, bad, groups)[judge]
            called = grounded < 0.5
            hits = (called & bad).sum()
            print(
                f"{name:18} {judge:10} n {len(items):4} bad {bad.mean():.2f}  AUROC {area.value:.3f} "
                f"[{area.low:.3f}, {area.high:.3f}]  F1 {2 * hits / (called.sum() + bad.sum()):.3f}  "
                f"called bad {called.mean():.2f}  no claim {empty.sum()} ({(empty & bad).sum()} bad)",
                flush=True,
            )
    for judge in options.judges:
        print(describe_keys(judge, "w17"), flush=True)


if __name__ == "__main__":
    main()
