"""Measure a trusted corpus: sentences it holds, the same with one number changed, and sentences it is silent on.

    python -m benchmarks.trusted DATA_FOLDER [JUDGE] [--limit 300]

The corpus is one half of the paragraphs of SQuAD 2. Sentences with a number are taken from that half (true), with one
number changed (false), and from the other half (the corpus says nothing, as far as no paragraph repeats another). Each
is an answer of one claim; what factual_accuracy counts is whether it is called supported, contradicted or unknown.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from pathlib import Path

from benchmarks.datasets import read_rows
from ragfault.evaluation.trusted_corpus import TrustedJudge, load_trusted_corpus
from ragfault.judges.loading import load_judge
from ragfault.model.records import Document, Trace
from ragfault.retrieval.pipeline_config import PipelineConfig, build_index
from ragfault.text.sentences import split_sentences

NUMBER = re.compile(r"(?<![\w.,])\d{1,4}(?![\w.,]*\d)")


def change_number(sentence: str, rng: random.Random) -> str:
    """Return the sentence with its first number moved by 1 to 9."""
    match = NUMBER.search(sentence)
    assert match is not None
    return f"{sentence[: match.start()]}{int(match.group()) + rng.randint(1, 9)}{sentence[match.end() :]}"


def list_sentences(texts: list[str]) -> list[str]:
    """List the sentences of 8 to 40 words with a number."""
    sentences = [text[start:end] for text in texts for start, end in split_sentences(text)]
    return [sentence for sentence in sentences if NUMBER.search(sentence) and 8 <= len(sentence.split()) <= 40]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("judge", nargs="?", default="embedded")
    parser.add_argument("--limit", type=int, default=300)
    options = parser.parse_args()
    rng = random.Random(0)
    paragraphs = [row["text"] for row in read_rows(options.data, "squad2_paragraphs")]
    rng.shuffle(paragraphs)
    inside, outside = paragraphs[::2], paragraphs[1::2]
    index = build_index(
        PipelineConfig(chunker="sentences(128)"), [Document(id=str(n), text=text) for n, text in enumerate(inside)]
    )
    judge = TrustedJudge(load_judge(options.judge), load_trusted_corpus(index))
    true_sentences = rng.sample(list_sentences(inside), options.limit)
    other_sentences = rng.sample(list_sentences(outside), options.limit)
    for name, texts in (
        ("true", true_sentences),
        ("one number changed", [change_number(text, rng) for text in true_sentences]),
        ("corpus silent", other_sentences),
    ):
        traces = [Trace(id=str(n), query="What is known of this?", answer=text) for n, text in enumerate(texts)]
        counts = Counter(claim.status for item in judge.observe(traces) for claim in item.truth or ())
        total = sum(counts.values())
        statuses = ("supported", "contradicted", "unknown")
        shares = ", ".join(f"{status} {counts[status] / total:.1%}" for status in statuses)
        print(f"{name:20} {total:4} claims: {shares}")


if __name__ == "__main__":
    main()
