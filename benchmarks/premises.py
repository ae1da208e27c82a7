"""Measure the rule of numbers for false premises: how many questions with and without an answer it calls false.

    python -m benchmarks.premises DATA

DATA holds squad2_paragraphs, squad2_questions and clapnq_dev; each question stands beside its own passage. The last
lines are questions on one paragraph that differ in one word, one with an answer and one without. The probability of
an answer is not measured here, as its weights were fitted on these sets (`python -m training.answerability DATA`).
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

from benchmarks.datasets import read_rows
from ragfault.apps.testsets.premises import check_premise
from ragfault.model.records import Chunk, Trace


def is_called_false(query: str, passage: str) -> bool:
    """Return whether the premise of a question is called false."""
    check = check_premise(Trace(id="1", query=query, chunks=(Chunk(id="a", text=passage),)))
    return check is not None and check.outcome == "false premise"


def differ_in_one_word(first: str, other: str) -> bool:
    """Return whether two questions of equal length differ in one word."""
    left, right = (text.lower().rstrip("?").split() for text in (first, other))
    return len(left) == len(right) and sum(a != b for a, b in zip(left, right, strict=True)) == 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    data = parser.parse_args().data
    texts = {row["pid"]: row["text"] for row in read_rows(data, "squad2_paragraphs")}
    cases = [
        ("SQuAD 2", row["query"], texts[row["gold_pid"]], bool(row["answerable"]))
        for row in read_rows(data, "squad2_questions")
    ]
    by_passage = defaultdict(list)
    for _, query, passage, has_answer in cases:
        by_passage[passage].append((query, has_answer))
    near_pairs = {
        (query, passage, has_answer)
        for passage, asked in by_passage.items()
        for query, has_answer in asked
        if any(has_answer != other and differ_in_one_word(query, text) for text, other in asked)
    }
    cases += [("one word differs", *case) for case in sorted(near_pairs)]
    cases += [
        ("CLAPnq", row["query"], "\n".join(row["contexts"]), bool(row["answerable"]))
        for row in read_rows(data, "clapnq_dev")
    ]
    counts: defaultdict[tuple[str, bool], list[bool]] = defaultdict(list)
    for name, query, passage, has_answer in cases:
        counts[name, has_answer].append(is_called_false(query, passage))
    for (name, has_answer), called_false in counts.items():
        kind = "with an answer" if has_answer else "without an answer"
        count, total = sum(called_false), len(called_false)
        print(f"{name:17} {kind:17} {count:4} of {total:5} called false ({count / total:.1%})")


if __name__ == "__main__":
    main()
