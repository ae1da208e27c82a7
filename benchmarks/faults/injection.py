"""The faults: each a change of the configuration, with its true layer, its branch of the decision tree, and strengths.

The name of a fault on the command line is the first argument of its decorator.

    baseline, candidate = pair(corpus, "chunks-small", "medium", n=200, seed=3)

The branch is the one of METRICS.md section 4 that a faultless bisection would name; 0 says that nothing broke. The
candidate draws its small errors with another seed, as a model does that is asked twice; its retriever is the same bit
for bit unless the fault is in the retriever, so that a fault of the generator changes no chunk.

The decorator of a fault has its weak, medium and strong setting. They are shares of the queries (of citations, chunks,
documents or sections where the docstring says so), characters, words, degrees or counts. They are chosen so that on the
handbook a medium fault changes the metric it is meant to change by 0.05 to 0.3, where the judge can detect it at all
(`check` prints the changes); a weak one is often too small to be shown with 200 traces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from ragfault.model.records import Gold, Trace

from .config import Config
from .corpora import Corpus, sample
from .system import answer_questions

__all__ = ["FAULTS", "STRENGTHS", "Fault", "Layer", "Strength", "answer_halves", "inject", "keep_labels", "pair"]

Layer = Literal["retrieval", "generation", "source", "none"]
"""The layer of a fault; "source" is the corpus of both others, "none" is no fault."""
Strength = Literal["weak", "medium", "strong"]
STRENGTHS: tuple[Strength, ...] = ("weak", "medium", "strong")
Change = Callable[[Config, Any], Config]


class Fault(NamedTuple):
    """A fault of known layer and branch."""

    name: str
    layer: Layer
    branch: int
    settings: tuple[Any, Any, Any]
    """The weak, the medium and the strong value of the setting that the fault changes."""
    change: Change

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages of the pipeline that are a right answer for the fault."""
        return STAGES[self.name]

    @property
    def about(self) -> str:
        """Its effect, the metrics that should change, and those that should not."""
        return " ".join((self.change.__doc__ or "").split())


STAGES: dict[str, tuple[str, ...]] = {
    "chunks-small": ("chunker",),
    "chunks-large": ("chunker",),
    "embedder-rotated": ("embedder",),
    "index-mismatch": ("index", "embedder"),
    "reranker-removed": ("reranker",),
    "wrong-filter": ("filter",),
    "duplicates": ("index",),
    "top-k": ("top-k",),
    "low-top-k": ("top-k",),
    "score-threshold": ("score threshold",),
    "index-coverage": ("index coverage",),
    "query-rewriter": ("query rewriter",),
    "stale-documents": ("source documents",),
    "wrong-dates": ("source documents",),
    "invented-claims": ("model", "prompt"),
    "altered-numbers": ("model",),
    "other-units": ("model", "prompt"),
    "prompt-assembly": ("prompt assembly",),
    "truncated": ("max tokens",),
    "over-refusal": ("refusal wording",),
    "fabricated-quotes": ("output schema", "model"),
    "shifted-citations": ("output schema", "model"),
    "wandering-preamble": ("prompt",),
    "wandering-digression": ("prompt",),
}
"""Fault → the stages that are a right answer."""
FAULTS: dict[str, Fault] = {}
"""Name → fault, in the order of the tree's layers; "none" and "none-rebuilt" are A/A."""


def register_fault(name: str, layer: Layer, branch: int, *settings: Any) -> Callable[[Change], Change]:
    """Register a change of the configuration as a fault with its weak, medium and strong setting."""

    def register(change: Change) -> Change:
        weak, medium, strong = settings
        FAULTS[name] = Fault(name, layer, branch, (weak, medium, strong), change)
        return change

    return register


def set_indexing(config: Config, **settings: Any) -> Config:
    """Return the configuration with other settings of its index."""
    return replace(config, indexing=replace(config.indexing, **settings))


def set_search(config: Config, **settings: Any) -> Config:
    """Return the configuration with other settings of its search."""
    return replace(config, search=replace(config.search, **settings))


def set_generation(config: Config, **settings: Any) -> Config:
    """Return the configuration with other settings of its generator."""
    return replace(config, generation=replace(config.generation, **settings))


# --- no fault ----------------------------------------------------------------------------------------


@register_fault("none", "none", 0, 1.0, 1.0, 1.0)
def _repeat(config: Config, error_rate: float) -> Config:
    """Ask the same configuration again: the generator makes other errors at the same rate. Nothing should move."""
    return set_generation(config, error_rate=error_rate)


@register_fault("none-rebuilt", "none", 0, 1, 2, 3)
def _rebuild_index(config: Config, seed: int) -> Config:
    """Rebuild the approximate index: it misses other candidates, 2 in 100. Nothing should move."""
    return set_search(config, seed=config.search.seed + 1000 * seed)


# --- retrieval ---------------------------------------------------------------------------------------


@register_fault("chunks-small", "retrieval", 1, 220, 120, 70)
def _cut_small_chunks(config: Config, size: int) -> Config:
    """Cut the documents into windows of so many characters instead of sections.

    context_relevance, context_recall and span_recall should drop, completeness after them; groundedness should not
    move much, for the generator still states what it was given. Chunk ids change: old labels no longer fit.
    """
    return set_indexing(config, chunker="window", size=size)


@register_fault("chunks-large", "retrieval", 1, 2500, 4500, 8000)
def _cut_large_chunks(config: Config, size: int) -> Config:
    """Cut the documents into large windows; the prompt has room for 8,000 characters: fewer, less specific chunks.

    span_precision should drop, and context_recall and span_recall as far as the fewer chunks hold less;
    context_relevance may even rise, because a long chunk holds more of the words of any query; groundedness should not
    move. Chunk ids change. A document of the handbook has about 4,000 characters: there medium and strong are alike.
    """
    return set_indexing(config, chunker="window", size=size)


@register_fault("embedder-rotated", "retrieval", 1, 50, 70, 85)
def _rotate_queries(config: Config, rotation_angle: float) -> Config:
    """Embed queries with a new version whose space is rotated by so many degrees against the index.

    Every retrieval metric should drop, completeness after them; groundedness and citation_validity should not.
    """
    return set_search(config, rotation_angle=rotation_angle)


@register_fault("index-mismatch", "retrieval", 1, 0.25, 0.5, 1.0)
def _mix_embedders(config: Config, share: float) -> Config:
    """Build a share of the index with another model than the one that embeds the queries.

    Every retrieval metric should drop, completeness after them; groundedness and citation_validity should not.
    """
    return set_indexing(config, mismatched_share=share)


@register_fault("reranker-removed", "retrieval", 1, 0.35, 0.7, 1.0)
def _skip_reranker(config: Config, share: float) -> Config:
    """Leave a share of the queries in the order of the first stage, because the reranker does not answer.

    context_relevance, recall@5 and context_precision should drop; groundedness should not.
    """
    return set_search(config, unranked_share=share)


@register_fault("wrong-filter", "retrieval", 1, 0.1, 0.25, 0.5)
def _restrict_to_document(config: Config, share: float) -> Config:
    """Restrict a share of the queries to a document that was not meant.

    Every retrieval metric and completeness should drop, refusals rise; groundedness should not move.
    """
    return set_search(config, misfiltered_share=share)


@register_fault("duplicates", "retrieval", 1, 0.3, 0.6, 1.0)
def _duplicate_documents(config: Config, share: float) -> Config:
    """Index a share of the documents four times, so that copies fill the list.

    redundancy should rise; context_recall and recall@5 should drop for queries that need two passages; the mean
    context_relevance may rise, since four copies of a good chunk are four good chunks. The labels know only originals.
    """
    return set_indexing(config, copied_share=share)


@register_fault("top-k", "retrieval", 0, 8, 20, 30)
def _raise_top_k(config: Config, k: int) -> Config:
    """Retrieve so many chunks instead of 5; the first 5 stay the same and the prompt has room for all.

    chunk_utilization should drop; so does the mean context_relevance over all chunks, which is no fault of the ranking:
    context_relevance@5 and recall@5 should not move, context_recall can only rise.
    """
    return set_search(config, top_k=k, budget=40_000)


@register_fault("low-top-k", "retrieval", 1, 2, 1, 1)
def _lower_top_k(config: Config, k: int) -> Config:
    """Retrieve so few chunks instead of 5.

    recall@5, span_recall and context_recall should drop, completeness after them; relevance at equal depth is the same.
    """
    return set_search(config, top_k=k)


@register_fault("score-threshold", "retrieval", 1, 0.4, 0.5, 0.65)
def _raise_min_score(config: Config, min_score: float) -> Config:
    """Leave out chunks that score less than this.

    Lists become shorter, by more for some queries than for others; recall@5 and completeness should drop.
    """
    return set_search(config, min_score=min_score)


@register_fault("index-coverage", "retrieval", 1, 0.15, 0.3, 0.6)
def _drop_chunks(config: Config, share: float) -> Config:
    """Leave a share of the chunks out of the index: they are never found again.

    recall@5, span_recall and context_relevance should drop, completeness after them.
    """
    return set_search(config, unindexed_share=share)


@register_fault("query-rewriter", "retrieval", 1, 0.15, 0.35, 0.7)
def _shorten_queries(config: Config, share: float) -> Config:
    """Search with the last three words only for a share of the queries.

    Every retrieval metric should drop for them; the others get the same chunks.
    """
    return set_search(config, misread_share=share)


# --- source ------------------------------------------------------------------------------------------


@register_fault("stale-documents", "source", 3, 0.25, 0.5, 0.9)
def _alter_figures(config: Config, share: float) -> Config:
    """Replace the figures in a share of the sections by outdated ones of the same length; spans and ids stay valid.

    factual_accuracy should drop, completeness and context_recall with it, for the expected figures are nowhere;
    groundedness, context_relevance, recall@5, span_recall and citation_validity should not move.
    """
    return set_indexing(config, stale_share=share)


@register_fault("wrong-dates", "source", 3, 0.25, 0.5, 0.9)
def _alter_dates(config: Config, share: float) -> Config:
    """Replace the dates and years in a share of the sections by others; ids, spans and lengths stay.

    factual_accuracy should drop for queries about dates, completeness and context_recall with it; answers still say
    what the chunks say.
    """
    return set_indexing(config, redated_share=share)


# --- generation --------------------------------------------------------------------------------------


@register_fault("invented-claims", "generation", 2, 0.15, 0.35, 0.7)
def _add_inventions(config: Config, share: float) -> Config:
    """Append one or two statements that no source makes to a share of the answers (baseline 0.04).

    groundedness should drop; retrieval metrics are the same to the bit, completeness should not move.
    """
    return set_generation(config, invention_share=share)


@register_fault("altered-numbers", "generation", 2, 0.15, 0.35, 0.7)
def _change_figures(config: Config, share: float) -> Config:
    """Alter one figure in a share of the answers with figures (baseline 0.03).

    groundedness, factual_accuracy, completeness and chunk_attribution should drop; retrieval metrics are the same to
    the bit, citation_validity should not move, since the quotes are right.
    """
    return set_generation(config, alteration_share=share)


@register_fault("other-units", "generation", 2, 0.3, 0.6, 1.0)
def _convert_units(config: Config, share: float) -> Config:
    """Say the amounts of a share of the answers in another currency or unit, the figures unchanged.

    groundedness and factual_accuracy should drop as far as the judge reads units; the chunks are the same to the bit.
    """
    return set_generation(config, conversion_share=share)


@register_fault("prompt-assembly", "generation", 4, 0.2, 0.4, 0.8)
def _skip_first_chunk(config: Config, share: float) -> Config:
    """Leave the first chunk out of the prompt for a share of the queries, though it was retrieved.

    completeness should drop, refusals rise; retrieval metrics are the same to the bit, groundedness should not move.
    """
    return set_generation(config, skipped_share=share)


@register_fault("truncated", "generation", 4, 30, 18, 10)
def _truncate_answers(config: Config, max_words: int) -> Config:
    """Cut answers after so many words.

    completeness should drop; retrieval metrics are the same to the bit, groundedness should not move.
    """
    return set_generation(config, max_words=max_words)


@register_fault("over-refusal", "generation", 4, 0.1, 0.25, 0.5)
def _refuse_queries(config: Config, share: float) -> Config:
    """Refuse a share of the queries whatever the chunks contain (baseline 0.02).

    completeness, answer_relevance and chunk_utilization should drop, wrong_refusal rise; a refusal has no groundedness
    and no citations, which leaves those of the others as they were; retrieval metrics are the same to the bit.
    """
    return set_generation(config, refusal_share=share)


@register_fault("fabricated-quotes", "generation", 5, 0.15, 0.35, 0.7)
def _fabricate_quotes(config: Config, share: float) -> Config:
    """Quote words that occur nowhere in a share of the citations (baseline 0.03).

    citation_validity should drop and nothing else: claims and cited chunks are the right ones.
    """
    return set_generation(config, fabrication_share=share)


@register_fault("shifted-citations", "generation", 5, 0.15, 0.35, 0.7)
def _shift_citations(config: Config, share: float) -> Config:
    """Shift every citation to the next chunk in a share of the answers (baseline 0.02 of citations).

    chunk_attribution and citation_validity should drop and nothing else.
    """
    return set_generation(config, shift_share=share)


@register_fault("wandering-preamble", "generation", 6, 0.25, 0.6, 1.0)
def _add_preamble(config: Config, share: float) -> Config:
    """Begin a share of the answers with three sentences of small talk that claim nothing about the documents.

    answer_relevance should drop and nothing else, context_adherence aside; groundedness should not move as long as the
    judge sees that small talk is no claim.
    """
    return set_generation(config, preamble_share=share)


@register_fault("wandering-digression", "generation", 6, 0.25, 0.6, 1.0)
def _add_digression(config: Config, share: float) -> Config:
    """Begin a share of the answers with two sentences of the last chunks, which are true but were not asked for.

    answer_relevance should drop and nothing else: what is said is grounded. chunk_utilization may rise.
    """
    return set_generation(config, digression_share=share)


# --- pairs of runs -----------------------------------------------------------------------------------


def inject(config: Config, name: str, strength: Strength = "medium") -> Config:
    """Return the configuration with a fault in it."""
    fault = FAULTS[name]
    return fault.change(config, fault.settings[STRENGTHS.index(strength)])


def build_configs(name: str, strength: Strength, seed: int) -> tuple[Config, Config]:
    """Build baseline and candidate of one experiment: the candidate has the fault and makes other small errors."""
    baseline = set_generation(set_indexing(set_search(Config(), seed=seed), seed=seed), seed=2 * seed)
    return baseline, inject(set_generation(baseline, seed=2 * seed + 1), name, strength)


def pair(
    corpus: Corpus, name: str, strength: Strength = "medium", *, n: int = 200, seed: int = 0
) -> tuple[list[Trace], list[Trace]]:
    """Pair the traces of baseline and candidate on the same n questions; the seed draws questions and errors."""
    questions = sample(corpus, n, seed)
    baseline, candidate = build_configs(name, strength, seed)
    return answer_questions(corpus, baseline, questions), answer_questions(corpus, candidate, questions)


def answer_halves(corpus: Corpus, *, n: int = 200, seed: int = 0) -> tuple[list[Trace], list[Trace]]:
    """Answer two sets of n questions that share none by one configuration (A/A without pairs)."""
    questions = sample(corpus, 2 * n, seed)
    base, candidate = build_configs("none", "medium", seed)
    return answer_questions(corpus, base, questions[:n]), answer_questions(corpus, candidate, questions[n:])


def keep_labels(baseline: Sequence[Trace], candidate: Sequence[Trace]) -> list[Trace]:
    """Return the candidate with the baseline's labels, as if they were not updated after the new chunking."""
    labels: dict[str, Gold | None] = {trace.id: trace.gold for trace in baseline}
    return [replace(trace, gold=labels[trace.id]) for trace in candidate]
