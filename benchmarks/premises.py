"""Measure false premises: what the rule of numbers finds among questions without an answer, and accuses among others.

    python -m benchmarks.premises DATA

DATA holds squad2_paragraphs, squad2_questions and clapnq_dev; each question stands beside its own passage. The last
lines are questions on one paragraph that differ in one word, one with an answer and one without. The probability of
an answer is not measured here, as its weights were fitted on these sets (`python -m training.answerability DATA`).
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

from benchmarks.judge import rows

from ragfault.records import Chunk, Trace
from ragfault.testsets.premises import check_premise


def is_accused(query: str, passage: str) -> bool:
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
    texts = {row["pid"]: row["text"] for row in rows(data, "squad2_paragraphs")}
    cases = [
        ("SQuAD 2", row["query"], texts[row["gold_pid"]], bool(row["answerable"]))
        for row in rows(data, "squad2_questions")
    ]
    by_passage = defaultdict(list)
    for _, query, passage, answers in cases:
        by_passage[passage].append((query, answers))
    near = {
        (query, passage, answers)
        for passage, asked in by_passage.items()
        for query, answers in asked
        if any(answers != other and differ_in_one_word(query, text) for text, other in asked)
    }
    cases += [("one word differs", *case) for case in sorted(near)]
    cases += [
        ("CLAPnq", row["query"], "\n".join(row["contexts"]), bool(row["answerable"]))
        for row in rows(data, "clapnq_dev")
    ]
    counts: defaultdict[tuple[str, bool], list[bool]] = defaultdict(list)
    for name, query, passage, answers in cases:
        counts[name, answers].append(is_accused(query, passage))
    for (name, answers), accused in counts.items():
        kind = "with an answer" if answers else "without an answer"
        print(
            f"{name:17} {kind:17} {sum(accused):4} of {len(accused):5} called false ({sum(accused) / len(accused):.1%})"
        )


if __name__ == "__main__":
    main()
