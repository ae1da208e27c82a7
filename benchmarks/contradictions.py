"""Tell what contradicts the chunks from what is invented, on false statements whose kind people named.

    python -m benchmarks.contradictions DATA [--judge embedded]

DATA is a folder with `ragtruth_train.jsonl.gz` and `contrast_dev`. The authored units of the writer w7 chose the
threshold; the others had no part in it. Counted are the claims that overlap false statements of one kind: those that
the judge does not support, and those that it supports, of which only people or an answer key tell that they are false.
"by label" is what the judge says, "by sentence" what `find_rival_sentence` adds to it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ragfault.diagnosis.causes.contradiction import find_rival_sentence
from ragfault.judges.loading import load_judge
from ragfault.model.protocols import Judge
from ragfault.model.records import ClaimVerdict, Trace
from ragfault.model.rules import BAD_SUPPORT
from training.authored.items import read_items

from .datasets import build_trace, is_reserved, read_rows

KINDS = ("contradicted", "invented")


class FalseStatement(NamedTuple):
    """A false stretch of an answer."""

    start: int
    end: int
    kind: str


class FalseAnswer(NamedTuple):
    """An answer with the statements in it that people call false."""

    trace: Trace
    statements: Sequence[FalseStatement]


def read_authored(writer: str = "w7") -> list[FalseAnswer]:
    """Read the authored claims that the chunks contradict, or do not state."""
    kinds = {"C": "contradicted", "N": "invented"}
    items = [item for item in read_items() if item.writer == writer and item.language == "en" and item.label in kinds]
    return [
        FalseAnswer(
            build_trace({"query": item.query, "contexts": item.chunks, "answer": item.claim}),
            [FalseStatement(0, len(item.claim), kinds[item.label])],
        )
        for item in items
    ]


def read_ragtruth(folder: Path) -> list[FalseAnswer]:
    """Read the answers with false spans to the sources on which the judge was not fitted."""
    rows = [row for row in read_rows(folder, "ragtruth_train") if row["spans"] and is_reserved(row)]
    return [
        FalseAnswer(
            build_trace(row),
            [FalseStatement(span["start"], span["end"], KINDS["Baseless" in span["type"]]) for span in row["spans"]],
        )
        for row in rows
    ]


def read_contrast(folder: Path) -> list[FalseAnswer]:
    """Read the falsehoods of the contrast pairs, which contradict their chunks."""
    rows = [json.loads(line) for line in (folder / "contrast_dev" / "dev.jsonl").read_text().splitlines()]
    return [
        FalseAnswer(
            build_trace({**row, "contexts": row["chunks"]}), [FalseStatement(0, len(row["answer"]), "contradicted")]
        )
        for row in rows
        if not row["supported"]
    ]


def find_false_claims(judge: Judge, answers: Sequence[FalseAnswer]) -> Iterator[tuple[Trace, ClaimVerdict, str]]:
    """Yield the claims that overlap false statements of one kind, with that kind."""
    for answer, verdicts in zip(answers, judge.observe([answer.trace for answer in answers]), strict=True):
        for claim in verdicts.claim or ():
            kinds = {part.kind for part in answer.statements if part.start < claim.end and claim.start < part.end}
            if len(kinds) == 1:
                yield answer.trace, claim, kinds.pop()


def print_shares(name: str, claims: Sequence[tuple[Trace, ClaimVerdict, str]]) -> None:
    """Print the shares of each kind that are named right, by the label and by the nearest sentence."""
    labeled = [claim.support == "contradicted" for _, claim, _ in claims]
    by_sentence = [
        label or find_rival_sentence(trace, [claim]) is not None
        for label, (trace, claim, _) in zip(labeled, claims, strict=True)
    ]
    for way, named in (("by label", labeled), ("by sentence", by_sentence)):
        shares = []
        for kind in KINDS:
            hits = [
                is_named == (kind == "contradicted")
                for is_named, (_, _, true) in zip(named, claims, strict=True)
                if true == kind
            ]
            shares.append(f"{kind} {sum(hits)} of {len(hits)} ({sum(hits) / max(1, len(hits)):.0%})")
        print(f"{name:<24}{way:<12}{', '.join(shares)}", flush=True)


def main() -> None:
    """Print, for each data set, how many claims of each kind are named right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--judge", default="embedded")
    options = parser.parse_args()
    judge = load_judge(options.judge)
    sets = {
        "authored w7": read_authored(),
        "RAGTruth": read_ragtruth(options.data),
        "contrast": read_contrast(options.data),
    }
    for name, answers in sets.items():
        claims = list(find_false_claims(judge, answers))
        doubted = [item for item in claims if item[1].support in BAD_SUPPORT]
        print_shares(f"{name}, doubted", doubted)
        print_shares(f"{name}, supported", [item for item in claims if item[1].support not in BAD_SUPPORT])


if __name__ == "__main__":
    main()
