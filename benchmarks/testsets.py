"""Rank retrieval pipelines by a made evaluation set and by people's questions, and compare the two rankings.

    python -m benchmarks.testsets rank --data ../shared/data --corpus squad2 --corpus cranfield -n 400

Kendall's tau between the rankings of 26 pipelines (chunking, BM25, latent and word vectors, MiniLM, fusions), mean and
range of several made sets; the same over the pairs of pipelines that differ significantly on people's questions; and
what is lost in nDCG@10 by choosing the pipeline with a made set. The ceiling is tau between two sets of people's
questions of the same number, estimated from one.
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.datasets import read_rows
from ragfault.apps.testsets.records import QUESTION_KINDS
from ragfault.judges.embedded.word_vectors import embed_word_vectors
from ragfault.model.records import Chunk, Document, Gold, Span, Trace
from ragfault.retrieval.chunking.chunker import load_chunker
from ragfault.retrieval.embedders.registry import load_embedder
from ragfault.retrieval.index import BM25Index
from ragfault.text.normalization import fold_case

Array = np.ndarray[Any, Any]
DEPTH = 10


class QuestionSet(NamedTuple):
    """A corpus with people's questions about it."""

    documents: list[Document]
    questions: list[Trace]


def read_squad2(folder: Path) -> QuestionSet:
    documents = [
        Document(id=row["pid"], text=row["text"], title=row["title"]) for row in read_rows(folder, "squad2_paragraphs")
    ]
    rows = [row for row in read_rows(folder, "squad2_questions") if row["answerable"]]
    return QuestionSet(documents, [build_question(row["id"], row["query"], {row["gold_pid"]: 1}) for row in rows])


def read_cranfield(folder: Path) -> QuestionSet:
    rows = read_rows(folder, "cranfield_docs")
    documents = [Document(id=row["docid"], text=row["text"], title=row["title"]) for row in rows if row["text"].strip()]
    grades: dict[str, dict[str, float]] = {}
    for row in read_rows(folder, "cranfield_qrels"):
        if row["label"] > 0:
            grades.setdefault(row["qid"], {})[row["docid"]] = row["label"]
    queries = read_rows(folder, "cranfield_queries")
    return QuestionSet(
        documents,
        [build_question(row["qid"], row["query"], grades[row["qid"]]) for row in queries if row["qid"] in grades],
    )


def read_clapnq(folder: Path) -> QuestionSet:
    rows = read_rows(folder, "clapnq_dev")
    documents = [Document(id=row["id"], text="\n\n".join(row["contexts"])) for row in rows]
    return QuestionSet(
        documents, [build_question(row["id"], row["query"], {row["id"]: 1}) for row in rows if row["answerable"]]
    )


def read_chunking(folder: Path) -> QuestionSet:
    paths = sorted((folder / "chunking_corpora").glob("*.md"))
    documents = [Document(id=path.stem, text=path.read_text(encoding="utf-8")) for path in paths]
    questions = [
        Trace(
            id=row["id"],
            query=row["query"],
            gold=Gold(
                spans=tuple(
                    Span(document=row["corpus"], start=span["start_index"], end=span["end_index"])
                    for span in row["gold_spans"]
                )
            ),
        )
        for row in read_rows(folder, "chunking_questions")
    ]
    return QuestionSet(documents, questions)


CORPORA: dict[str, Callable[[Path], QuestionSet]] = {
    "squad2": read_squad2,
    "cranfield": read_cranfield,
    "clapnq": read_clapnq,
    "chunking": read_chunking,
}


def build_question(name: str, query: str, grades: dict[str, float]) -> Trace:
    return Trace(id=name, query=query, gold=Gold(chunks=grades))


def list_gold(question: Trace, by_document: bool) -> list[tuple[Span, float]]:
    """Return the units of gold with their grades; a whole document is a span without end."""
    assert question.gold is not None
    units = [(Span(document=name, start=0, end=0), grade) for name, grade in question.gold.chunks.items()]
    if by_document:
        spans = {span.document: span.grade for span in question.gold.spans}
        return units + [(Span(document=name, start=0, end=0), grade) for name, grade in spans.items()]
    return units + [(span, span.grade) for span in question.gold.spans]


class ChunkedCorpus:
    """The chunks of a corpus by one chunker, and the score of each chunk for each query by one search."""

    def __init__(self, documents: Sequence[Document], chunker: str) -> None:
        self.chunks: list[Chunk] = [chunk for document in documents for chunk in load_chunker(chunker)(document)]
        self.texts = [chunk.text for chunk in self.chunks]
        self.documents = np.array([chunk.document for chunk in self.chunks])
        self.starts = np.array([chunk.start for chunk in self.chunks])
        self.ends = np.array([chunk.end for chunk in self.chunks])
        self._embedded: dict[str, tuple[Any, Array]] = {}

    def score(self, search: str, queries: Sequence[str]) -> Array:
        """Score all chunks for all queries by a search: bm25 K1 B, plain K1 B (not stemmed), or an embedder."""
        kind, *numbers = search.split()
        if kind in ("bm25", "plain"):
            k1, b = map(float, numbers)
            if kind == "plain":
                return score_unstemmed(self.texts, queries, k1, b)
            index = BM25Index(k1, b).fit(self.texts)
            return np.stack([index.score_texts(query) for query in queries])
        if search not in self._embedded:
            embed = make_embedder(kind, numbers, self.texts)
            self._embedded[search] = (embed, embed(self.texts))
        embed, rows = self._embedded[search]
        return embed(list(queries)) @ rows.T

    def find_unit_masks(self, units: Sequence[tuple[Span, float]]) -> list[Array]:
        """Return for each unit a mask of the chunks that hold at least half of the span, or a part of the document."""
        masks = []
        for span, _ in units:
            inside = self.documents == span.document
            if span.end > span.start:
                shared = np.minimum(self.ends, span.end) - np.maximum(self.starts, span.start)
                inside = inside & (shared * 2 >= np.minimum(span.end - span.start, self.ends - self.starts))
            masks.append(inside)
        return masks


def make_embedder(kind: str, numbers: Sequence[str], texts: Sequence[str]) -> Callable[[Sequence[str]], Array]:
    if kind == "words":
        return embed_word_vectors
    if kind == "latent":
        embedder = load_embedder("latent", dimensions=int(numbers[0]))
        embedder.fit(texts)  # type: ignore[attr-defined]
        return embedder.embed
    model = load_minilm()
    return lambda texts: np.concatenate([model.embed(texts[i : i + 64]) for i in range(0, len(texts), 64)])


@cache
def load_minilm() -> Any:
    return load_embedder("minilm")


def score_unstemmed(texts: Sequence[str], queries: Sequence[str], k1: float, b: float) -> Array:
    """Score by BM25 over words as they stand."""
    from bm25s import BM25

    def split(text: str) -> list[str]:
        return [word for word in "".join(c if c.isalnum() else " " for c in fold_case(text)).split() if len(word) > 1]

    model = BM25(k1=k1, b=b)
    model.index([split(text) for text in texts], show_progress=False)
    known = model.vocab_dict
    rows = []
    for query in queries:
        words = [word for word in split(query) if word in known]
        rows.append(model.get_scores(words) if words else np.zeros(len(texts), np.float32))
    return np.stack(rows)


def fuse_ranks(left: Array, right: Array, constant: float = 60) -> Array:
    """Fuse two rankings by reciprocal ranks (Cormack and others 2009)."""

    def rank(scores: Array) -> Array:
        return (-scores).argsort(axis=1, kind="stable").argsort(axis=1)

    return 1 / (constant + 1 + rank(left)) + 1 / (constant + 1 + rank(right))


def fuse_scores(left: Array, right: Array, weight: float) -> Array:
    """Fuse two searches by their scores, each brought to 0 … 1."""

    def rescale(scores: Array) -> Array:
        low, high = scores.min(1, keepdims=True), scores.max(1, keepdims=True)
        return (scores - low) / np.maximum(high - low, 1e-9)

    return weight * rescale(left) + (1 - weight) * rescale(right)


SEARCHES = (
    "recursive(256): bm25 1.5 0.75",
    "recursive(256): bm25 0.6 0.3",
    "recursive(256): bm25 3 1",
    "recursive(256): bm25 1.2 0",
    "recursive(256): plain 1.5 0.75",
    "recursive(256): latent 64",
    "recursive(256): latent 256",
    "recursive(256): words",
    "recursive(256): minilm",
    "recursive(256): bm25 1.5 0.75 + latent 256",
    "recursive(256): bm25 1.5 0.75 + words",
    "recursive(256): bm25 1.5 0.75 + minilm",
    "recursive(256): bm25 1.5 0.75 + latent 256 @ 0.7",
    "recursive(256): bm25 1.5 0.75 + minilm @ 0.5",
    "fixed(64): bm25 1.5 0.75",
    "fixed(64): plain 1.5 0.75",
    "fixed(64): bm25 0.6 0.3",
    "fixed(64): latent 256",
    "fixed(64): words",
    "fixed(64): bm25 1.5 0.75 + latent 256",
    "sentences(40): bm25 1.5 0.75",
    "sentences(40): bm25 3 1",
    "sentences(40): latent 128",
    "sentences(40): words",
    "sentences(40): bm25 1.5 0.75 + words",
    "sentences(40): bm25 1.5 0.75 + latent 128 @ 0.7",
)
"""CHUNKER: SEARCH, or two of them fused by ranks, or (@ WEIGHT of the first) by scores."""


def score_pipelines(
    chunked: dict[str, ChunkedCorpus], questions: Sequence[Trace], searches: Sequence[str], by_document: bool
) -> Array:
    """Return nDCG@10 of each pipeline on each question."""
    queries = [question.query for question in questions]
    units = [list_gold(question, by_document) for question in questions]
    rows = []
    cached_scores: dict[tuple[str, str], Array] = {}
    for pipeline in searches:
        chunker, _, rest = pipeline.partition(": ")
        search, _, weight = rest.partition(" @ ")
        corpus = chunked[chunker]
        parts = []
        for part in search.split(" + "):
            if (chunker, part) not in cached_scores:
                cached_scores[chunker, part] = corpus.score(part, queries)
            parts.append(cached_scores[chunker, part])
        if len(parts) == 1:
            scores = parts[0]
        else:
            scores = fuse_scores(parts[0], parts[1], float(weight)) if weight else fuse_ranks(parts[0], parts[1])
        rows.append([compute_ndcg(scores[i], units[i], corpus) for i in range(len(queries))])
    return np.array(rows)


def compute_ndcg(scores: Array, units: Sequence[tuple[Span, float]], corpus: ChunkedCorpus) -> float:
    """Measure nDCG@10; a unit of gold counts at the first rank that holds it."""
    top = np.lexsort((np.arange(len(scores)), -scores))[:DEPTH]
    top = top[scores[top] > scores.min()] if scores.max() > scores.min() else top[:0]
    gains = np.zeros(DEPTH)
    for (_, grade), inside in zip(units, corpus.find_unit_masks(units), strict=True):
        hits = np.flatnonzero(inside[top])
        if len(hits):
            gains[hits[0]] += grade
    discounts = 1 / np.log2(np.arange(2, DEPTH + 2))
    ideal = np.sort([grade for _, grade in units])[::-1][:DEPTH]
    return float(gains @ discounts / (ideal @ discounts[: len(ideal)]))


def kendall_tau(left: Array, right: Array) -> float:
    """Return Kendall's tau-b of two lists of figures."""
    from scipy.stats import kendalltau

    return float(kendalltau(left, right).statistic)


def compare_rankings(people: Array, other: Array) -> tuple[float, float]:
    """Return tau, and the nDCG lost on people's questions by the pipeline that is best on the made set."""
    truth, guess = people.mean(1), other.mean(1)
    return kendall_tau(truth, guess), float(truth.max() - truth[int(guess.argmax())])


def compare_significant_pairs(people: Array, other: Array) -> float:
    """Return tau over the pairs of pipelines whose means on people's questions differ by 1.96 standard errors."""
    first, second = np.triu_indices(len(people), 1)
    difference = people[first] - people[second]
    error = difference.std(1, ddof=1) / np.sqrt(people.shape[1])
    significant = np.abs(difference.mean(1)) > 1.96 * error
    guess = other.mean(1)
    return float(np.mean(np.sign(difference.mean(1)) * np.sign(guess[first] - guess[second]), where=significant))


def estimate_ceiling(people: Array, seed: int, rounds: int = 500) -> float:
    """Estimate tau between two sets of people's questions, each of as many as there are.

    The means are drawn twice from a normal distribution with the covariance of the questions, around the observed
    means, which are first drawn together by the part of their spread that is noise.
    """
    rng = np.random.default_rng(seed)
    count = people.shape[1]
    covariance = np.cov(people) / count
    centred = people.mean(1) - people.mean()
    noise = float(np.trace(covariance) - covariance.mean() * len(people))
    means = centred * np.sqrt(max(0.0, 1 - noise / float(centred @ centred)))
    draws = rng.multivariate_normal(means, covariance, size=(rounds, 2), method="eigh")
    return float(np.mean([kendall_tau(*pair) for pair in draws]))


def prepare_corpora(documents: Sequence[Document], searches: Sequence[str]) -> dict[str, ChunkedCorpus]:
    return {name: ChunkedCorpus(documents, name) for name in dict.fromkeys(s.partition(": ")[0] for s in searches)}


def rank_corpus(folder: Path, name: str, options: argparse.Namespace) -> str:
    """Return the row of a corpus: the rankings by made sets of several seeds, and the ceiling."""
    from ragfault.apps.testsets.making.make import make_testset

    documents, questions = CORPORA[name](folder)
    questions = random.Random(options.seed).sample(questions, min(len(questions), options.people))
    searches = [search for search in SEARCHES if options.minilm or "minilm" not in search]
    corpora = prepare_corpora(documents, searches)
    by_document = name != "chunking"
    truth = score_pipelines(corpora, questions, searches, by_document)
    figures, guesses = [], []
    for seed in range(options.seed, options.seed + options.sets):
        mix = {options.kind: 1.0} if options.kind else None
        result = make_testset(documents, options.n, seed=seed, mix=mix)
        items = [item for item in result.items if item.gold and item.answerable and item.gold.spans]
        guesses.append(score_pipelines(corpora, items, searches, by_document))
        figures.append((*compare_rankings(truth, guesses[-1]), compare_significant_pairs(truth, guesses[-1])))
    if options.pipelines:
        print_places(searches, truth.mean(1), np.mean([guess.mean(1) for guess in guesses], axis=0))
    taus, lost_ndcg, significant = np.array(figures).T
    ceiling = estimate_ceiling(truth, options.seed)
    tau = f"{taus.mean():.2f} ({taus.min():.2f} to {taus.max():.2f})"
    losses = ", ".join(f"{value:.3f}" for value in lost_ndcg)
    cells = f"{tau} | {ceiling:.2f} | {significant.mean():.2f} | {losses}"
    return f"| {name} | {len(questions)} | {guesses[0].shape[1]} | {cells} |"


def print_places(searches: Sequence[str], truth: Array, guess: Array) -> None:
    """Print nDCG@10 and the place of each pipeline by people's questions and by the made set."""
    places = [(-values).argsort(kind="stable").argsort(kind="stable") + 1 for values in (truth, guess)]
    for at in truth.argsort(kind="stable")[::-1]:
        people, other = (f"{values[at]:.3f} #{place[at]}" for values, place in zip((truth, guess), places, strict=True))
        print(f"    {searches[at]}: people {people}, made {other} ({places[1][at] - places[0][at]:+d})")


SNAPSHOT_YEARS = {
    "handbook": (2018, 2021, 2024),
    "rust-forge": (2018, 2020, 2024),
    "sqlite-utils": (2020, 2022, 2026),
    "starlette": (2019, 2022, 2025),
}
PLAIN_SIGNS = re.compile(r"[\W_]+|\b(?:a|an|the)\b")


def read_snapshot(folder: Path, name: str, year: int) -> list[Document]:
    documents = []
    with tarfile.open(folder / "doc_histories" / f"{name}_{year}.tar.gz") as archive:
        for member in archive.getmembers():
            if member.isfile() and member.name.endswith((".md", ".rst", ".txt", ".html")):
                text = archive.extractfile(member).read().decode("utf-8", "replace").replace("\r\n", "\n")
                if text.strip():
                    documents.append(Document(id=member.name, text=text))
    return documents


def normalize_text(text: str) -> str:
    """Return a text in lower case without markup, signs and articles, between two spaces."""
    return f" {' '.join(PLAIN_SIGNS.sub(' ', text.lower()).split())} "


def measure_refresh(folder: Path, seed: int) -> None:
    """Print, for each pair of snapshots, how spans whose text is there or not were classified.

    Truth is independent of the alignment: the text without markup, signs, case and articles stands in the newer
    snapshot of its file ("untouched"), in another file ("elsewhere"), or nowhere ("changed").
    """
    from ragfault.apps.testsets.anchors import refresh_testset
    from ragfault.apps.testsets.passages import CorpusIndex

    print("| repository | spans | untouched: kept | elsewhere: located | changed: named | silently wrong | seconds |")
    print("|---|---|---|---|---|---|---|")
    for name, years in SNAPSHOT_YEARS.items():
        for year, later in itertools.pairwise(years):
            index = CorpusIndex(read_snapshot(folder, name, year))
            newer = read_snapshot(folder, name, later)
            sentences = random.Random(seed).sample(index.sentences, min(400, len(index.sentences)))
            spans = [index.make_span(index.passages[s.passage].document, s.start, s.end) for s in sentences]
            items = [Trace(id=f"{i}", query="?", gold=Gold(spans=(span,))) for i, span in enumerate(spans)]
            start = time.process_time()
            changes = refresh_testset(newer, items).changes
            seconds = time.process_time() - start
            texts = {document.id: normalize_text(document.text) for document in newer}
            counts: Counter[tuple[str, bool]] = Counter()
            for change in changes:
                quote = normalize_text(change.quote or "")
                is_in_document = quote in texts.get(change.document, "")
                is_in_other_document = any(quote in text for text in texts.values())
                case = "untouched" if is_in_document else "elsewhere" if is_in_other_document else "changed"
                counts[case, change.state in ("kept", "moved")] += 1
            cells = [
                f"{counts[case, right]} of {counts[case, True] + counts[case, False]}"
                for case, right in (("untouched", True), ("elsewhere", True), ("changed", False))
            ]
            shown = " | ".join([*cells, str(counts["changed", True]), f"{seconds:.1f}"])
            print(f"| {name} {year} → {later} | {len(spans)} | {shown} |", flush=True)


def alter_sentence(sentence: str, kind: str) -> str | None:
    """Return a sentence with another number, or with its first statement denied; None where it has none."""
    if kind == "number":
        numbers = list(re.finditer(r"(?<![\w.,-])\d{1,4}(?![\w.,-])", sentence))
        if len(numbers) != 1:
            return None
        number = numbers[0]
        return f"{sentence[: number.start()]}{int(number.group()) + 3}{sentence[number.end() :]}"
    match = re.search(r"\b(?:is|are|was|were|must|will|can)\b(?! not| no\b)", sentence)
    if match is None or re.search(r"\b(?:not|no|never)\b", sentence):
        return None
    return f"{sentence[: match.end()]} not{sentence[match.end() :]}"


def measure_audit(folder: Path, seed: int) -> None:
    """Print the contradictions of each newest snapshot, and how many altered copies of its sentences an audit names."""
    from datetime import date

    from ragfault.apps.testsets.audit import audit_corpus
    from ragfault.apps.testsets.passages import CorpusIndex

    print("| repository | passages | contradictions as it is | other number: named | denied: named | seconds |")
    print("|---|---|---|---|---|---|")
    for name, years in SNAPSHOT_YEARS.items():
        documents = read_snapshot(folder, name, years[-1])
        day = date(int(years[-1]), 12, 31)
        start = time.process_time()
        result = audit_corpus(documents, today=day)
        seconds = time.process_time() - start
        sentences = random.Random(seed).sample((index := CorpusIndex(documents)).sentences, len(index.sentences))
        cells = [str(result.counts.get("contradiction", 0))]
        for kind in ("number", "denied"):
            altered = [new for item in sentences if (new := alter_sentence(item.text, kind))][:100]
            extra = Document(id="altered.md", text="\n\n".join(altered))
            flagged = {
                finding.other_text
                for finding in audit_corpus([*documents, extra], today=day).findings
                if finding.kind == "contradiction" and finding.other_document == "altered.md"
            }
            cells.append(f"{len(flagged)} of {len(altered)}")
        print(f"| {name} {years[-1]} | {result.passages:,} | {' | '.join(cells)} | {seconds:.1f} |", flush=True)
        for finding in result.findings:
            if finding.kind == "contradiction":
                print(f"    {finding.text!r} {finding.other_text!r} {finding.reason}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["rank", "refresh", "audit"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--corpus", action="append", choices=list(CORPORA))
    parser.add_argument("-n", type=int, default=500)
    parser.add_argument("--people", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sets", type=int, default=3, help="made sets, each of its own seed")
    parser.add_argument("--kind", choices=QUESTION_KINDS, help="make questions of one kind alone")
    parser.add_argument("--pipelines", action="store_true", help="print the places of all pipelines")
    parser.add_argument("--minilm", action=argparse.BooleanOptionalAction, default=True)
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    if options.what == "refresh":
        measure_refresh(options.data, options.seed)
        return
    if options.what == "audit":
        measure_audit(options.data, options.seed)
        return
    print("| corpus | people's questions | made | tau | ceiling | tau of significant pairs | nDCG lost |")
    print("|---|---|---|---|---|---|---|")
    for name in options.corpus or CORPORA:
        print(rank_corpus(options.data, name, options), flush=True)


if __name__ == "__main__":
    main()
