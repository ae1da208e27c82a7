"""Generation metrics against a reference answer: overlap of words, n-grams and meaning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ragfault.metrics.catalog import MetricResult, Undefined, metric
from ragfault.model.records import Trace, Verdicts
from ragfault.text.normalization import normalize_answer


def _take_best(trace: Trace, compare: Callable[[str, str], float]) -> MetricResult:
    """Return the highest value of compare(answer, reference) over the references."""
    if not trace.answer:
        return Undefined("no answer")
    if not trace.references:
        return Undefined("no reference")
    return max(compare(trace.stated or "", reference) for reference in trace.references)


@metric(layer="generation", fields="answer reference", source="SQuAD, Rajpurkar et al. 2016")
def token_f1(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """The overlap of the answer's words with the reference's, as SQuAD scores it.

    F1 of the bags of words after SQuAD normalisation (lower case, no punctuation, no articles). Where
    either is empty after that, 1 if both are, else 0. In [0, 1].

    >>> token_f1(Trace(id="1", query="q", answer="He ate an apple.", reference="he ate the Apple"), Verdicts(trace="1"))
    1.0
    """
    return _take_best(trace, _compute_token_f1)


def _compute_token_f1(answer: str, reference: str) -> float:
    ours, theirs = normalize_answer(answer).split(), normalize_answer(reference).split()
    if not ours or not theirs:
        return float(ours == theirs)
    common = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * common / (len(ours) + len(theirs))


@metric(layer="generation", fields="answer reference", source="ROUGE-N, Lin 2004", positive="n")
def ngram_f1(trace: Trace, verdicts: Verdicts, *, n: int = 2) -> MetricResult:
    """The overlap of the answer's n-grams with the reference's: runs of n words, so that their order counts.

    With A and R the bags of n-grams after SQuAD normalisation, 2·|A ∩ R| / (|A| + |R|), an n-gram counted as often as
    both have it; the best of several references. An answer of fewer than n words scores 0; references of fewer than n
    words are passed over. With n=1 it is `token_f1`. In [0, 1]; undefined without an answer, or a reference of n words.

    >>> trace = Trace(id="1", query="q", answer="the dog bit a man", reference="a man bit the dog")
    >>> ngram_f1(trace, Verdicts(trace="1"), n=1), ngram_f1(trace, Verdicts(trace="1"), n=2)
    (1.0, 0.0)
    """
    if not trace.answer:
        return Undefined("no answer")
    if not trace.references:
        return Undefined("no reference")
    ours = _count_ngrams(trace.stated or "", n)
    references = [counts for counts in (_count_ngrams(reference, n) for reference in trace.references) if counts]
    if not references:
        return Undefined(f"no reference has {n} words")
    return max(2 * (ours & theirs).total() / (ours.total() + theirs.total()) for theirs in references)


def _count_ngrams(passage: str, n: int) -> Counter[tuple[str, ...]]:
    """Count the runs of n words of a text after SQuAD normalisation."""
    words = normalize_answer(passage).split()
    return Counter(zip(*(words[start:] for start in range(n)), strict=False))


@metric(layer="generation", fields="answer reference", source="SQuAD, Rajpurkar et al. 2016")
def exact_match(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Exact match: 1 where the answer is the reference after SQuAD normalisation, else 0.

    1 or 0.

    >>> exact_match(Trace(id="1", query="q", answer="The Apple!", reference="apple"), Verdicts(trace="1"))
    1.0
    """
    return _take_best(trace, lambda answer, reference: float(normalize_answer(answer) == normalize_answer(reference)))


@metric(
    layer="generation",
    fields="answer reference",
    source="Papineni et al. 2002; sacrebleu, Post 2018",
    extra="overlap",
    packages="sacrebleu",
)
def bleu(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Sentence BLEU of the answer against the reference.

    sacrebleu's sentence score (13a tokens, exponential smoothing, effective order) divided by 100. In [0, 1].
    """
    return _take_best(trace, lambda answer, reference: _compute_sacrebleu("BLEU", answer, reference))


@metric(
    layer="generation",
    fields="answer reference",
    source="Popović 2015; sacrebleu, Post 2018",
    extra="overlap",
    packages="sacrebleu",
)
def chrf(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """chrF2 of the answer against the reference: overlap of character 6-grams.

    sacrebleu's sentence score divided by 100. In [0, 1].
    """
    return _take_best(trace, lambda answer, reference: _compute_sacrebleu("CHRF", answer, reference))


def _compute_sacrebleu(name: str, answer: str, reference: str) -> float:
    score: float = _load_scorer(name).sentence_score(answer, [reference]).score
    return min(1.0, score / 100)


@lru_cache
def _load_scorer(name: str) -> Any:
    """Create a sacrebleu or rouge-score scorer, once."""
    if name == "ROUGE":
        from rouge_score.rouge_scorer import RougeScorer

        return RougeScorer(["rougeL"], use_stemmer=True)
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    return BLEU(effective_order=True) if name == "BLEU" else CHRF()


@metric(
    layer="generation",
    fields="answer reference",
    source="Lin 2004; rouge-score",
    extra="overlap",
    packages="rouge_score",
)
def rouge_l(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """ROUGE-L of the answer against the reference: their longest common subsequence of stems.

    rouge-score's F-measure with stemming. In [0, 1].
    """
    return _take_best(
        trace, lambda answer, reference: float(_load_scorer("ROUGE").score(reference, answer)["rougeL"].fmeasure)
    )


@metric(
    layer="generation",
    range=(-1.0, 1.0),
    verdicts="similarity",
    fields="answer reference",
    source="cosine of embeddings",
)
def semantic_similarity(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """The cosine of the judge's embeddings of answer and reference.

    In [-1, 1]; what it means depends on the embedding, which the judge's fingerprint names. Undefined
    without a reference or where the judge has no embedding.
    """
    if not trace.answer:
        return Undefined("no answer")
    if not trace.references:
        return Undefined("no reference")
    return Undefined("the judge offers no similarity") if verdicts.similarity is None else verdicts.similarity
