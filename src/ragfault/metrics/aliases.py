"""Metric names of other tools, the metric here that answers each, and how the definitions differ.

A name of this catalogue always means what it means here, also where another tool has the same one. What they mean was
read from the source of Ragas 0.4.3, DeepEval 4.3.1, TruLens 2.16, mlflow 3.17 and RAGChecker (December 2024).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from ragfault.metrics.catalog import get_definitions, other_names


class MetricAlias(Struct, frozen=True):
    """A metric name of another tool, and the metric here that replaces it."""

    name: str
    """The name, in lower case with underscores."""
    tool: str
    metric: str
    """The name of the metric here."""
    differs: str
    """The difference to the definition of the other tool."""


SUPPORTED_SHARE = "the share of claims that the chunks support, undefined where nothing is claimed"
QUERY_ONLY = "only relevance to the query, by level, made without sight of answer or reference"
DIRECT_VERDICT = "one verdict on how far the answer addresses the query; no question is generated from it"
TRUE_CLAIMS = (
    "claims that agree with the reference over those that can be checked; what is left out is for completeness"
)
WRONG_CLAIMS = (
    "of all chunks; there of chunks that entail a claim of the reference (or of the others), and claims that the "
    "reference does not support count"
)

ALIAS_TABLE: dict[str, dict[str, str]] = {
    "context_precision": {
        "context_precision of Ragas": f"average precision too; there usefulness for the reference, here {QUERY_ONLY}",
        "contextual_precision of DeepEval": "average precision too; "
        f"there usefulness for the expected output, here {QUERY_ONLY}",
        "llm_context_precision_with_reference of Ragas": f"average precision too, here by {QUERY_ONLY}",
        "llm_context_precision_without_reference of Ragas": f"average precision too, here by {QUERY_ONLY}",
        "non_llm_context_precision_with_reference of Ragas": "average precision too; "
        f"there likeness to reference contexts, here {QUERY_ONLY}",
        "context_precision of RAGChecker": "average precision, by rank; "
        f"there chunks that entail a claim of the reference over all chunks, here {QUERY_ONLY}",
    },
    "context_recall": {
        "context_recall of Ragas": "expected facts count first, sentences of the reference where there are none",
        "contextual_recall of DeepEval": "expected facts count first, statements of the reference where there are none",
        "llm_context_recall of Ragas": "expected facts count first, statements of the reference where there are none",
        "non_llm_context_recall of Ragas": "support of what the reference states; "
        "there likeness of texts to reference contexts",
        "claim_recall of RAGChecker": "all chunks together may support a claim of the reference; there one must",
    },
    "context_entity_recall": {
        "context_entity_recall of Ragas": "names, numbers, dates and identifiers matched exactly once normalised; "
        "there what a model lists",
        "context_entities_recall of Ragas": "entities matched exactly once normalised; there what a model lists",
    },
    "context_relevance": {
        "context_relevance of Ragas": "the mean of levels over the chunks; "
        "there two votes of 0 to 2 on all of them at once",
        "context_relevance of TruLens": "the mean of levels over the chunks; "
        "there a grade of 0 to 3 for each, scaled to 0 to 1",
        "contextual_relevancy of DeepEval": "the mean of levels over chunks; "
        "there relevant statements of the contexts over all of theirs",
        "context_relevance_with_cot_reasons of TruLens": "the mean of levels over chunks; "
        "there a grade of 0 to 3 for each",
        "qs_relevance of TruLens": "the mean of levels over chunks; there a grade of 0 to 3 for each",
    },
    "groundedness": {
        "groundedness of TruLens": f"{SUPPORTED_SHARE}; there the mean of grades over sentences, 0 where none is left",
        "faithfulness of Ragas": f"{SUPPORTED_SHARE}; there NaN",
        "faithfulness of DeepEval": f"{SUPPORTED_SHARE}; "
        "there all claims that nothing contradicts count, and no claims give 1, as groundedness(empty=1) has it",
        "faithfulness of RAGChecker": f"{SUPPORTED_SHARE}; there 0, as groundedness(empty=0) has it, "
        "and one chunk must entail the claim by itself",
        "response_groundedness of Ragas": f"{SUPPORTED_SHARE}; there two votes of 0 to 2 on the whole answer",
        "groundedness_measure_with_cot_reasons of TruLens": f"{SUPPORTED_SHARE}; "
        "there the mean of grades over sentences",
    },
    "answer_relevance": {
        "answer_relevance of TruLens": "a judge's relevance in 0 to 1; there a grade of 0 to 3, scaled",
        "answer_relevancy of Ragas": f"{DIRECT_VERDICT}; "
        "there the cosine of such questions with the query, 0 where noncommittal",
        "answer_relevancy of DeepEval": "one verdict on the answer; "
        "there relevant statements over statements, 1 where there are none",
        "response_relevancy of Ragas": f"{DIRECT_VERDICT}; there the cosine of such questions with the query",
        "relevance_with_cot_reasons of TruLens": "a judge's relevance in 0 to 1; there a grade of 0 to 3, scaled",
    },
    "noise_sensitivity": {
        "noise_sensitivity of Ragas": "wrong claims drawn from chunks, over all claims, by the verdicts of support, "
        "truth and relevance",
        "noise_sensitivity_in_relevant of RAGChecker": f"{WRONG_CLAIMS}: noise_sensitivity(chunks=relevant, "
        "strict=true)",
        "noise_sensitivity_in_irrelevant of RAGChecker": f"{WRONG_CLAIMS}: noise_sensitivity(chunks=irrelevant, "
        "strict=true)",
    },
    "semantic_similarity": {
        "semantic_similarity of Ragas": "the same cosine, by the judge's own embeddings",
        "answer_similarity of Ragas": "the same cosine, by the judge's own embeddings",
    },
    "exact_match": {
        "exact_match of Ragas": "after SQuAD's normalisation of case, articles and punctuation; "
        "there character by character",
        "exact_match of DeepEval": "after SQuAD's normalisation of case, articles and punctuation; "
        "there character by character",
    },
    "contradiction": {
        "hallucination of DeepEval": "contradicted claims over claims; there contradicted contexts over contexts",
        "hallucination of RAGChecker": "claims that the chunks speak against; "
        "there wrong claims that they do not support",
    },
    "precision": {
        "id_based_context_precision of Ragas": "relevant ids by the gold over all retrieved, each counted once; "
        "ask for a cut-off with precision@5",
        "precision_at_k of TruLens": "over the first k, ties in the order they came; "
        "the cut-off is asked for as precision@10",
        "precision_at_k of mlflow": "over the first k; there over the chunks retrieved among them: "
        "precision(over=retrieved)@10",
        "precision of RAGChecker": "relevant chunks over places; there claims of the answer that the reference "
        "supports over all claims, 0 without claims: claim_precision(empty=0)",
    },
    "f1": {
        "f1 of RAGChecker": "of relevant chunks; there of claims: the harmonic mean of claim_precision(empty=0) and "
        "completeness"
    },
    "recall": {
        "id_based_context_recall of Ragas": "relevant ids by the gold that were retrieved; "
        "ask for a cut-off with recall@5",
        "recall_at_k of TruLens": "over all relevant chunks; the cut-off is asked for as recall@10",
        "recall_at_k of mlflow": "undefined without relevant chunks; "
        "there 1 where nothing was retrieved either, else 0",
        "recall of RAGChecker": "relevant chunks that were retrieved; there claims of the reference that the answer "
        "states: completeness, by expected facts",
    },
    "chunk_utilization": {
        "context_utilization of Ragas": "chunks that the answer drew on over all chunks; "
        "there an average precision of their use, by rank",
        "context_utilization of RAGChecker": "chunks that the answer drew on over all; "
        "there claims of the reference in the chunks that the answer repeats",
    },
    "factual_accuracy": {
        "factual_correctness of Ragas": f"{TRUE_CLAIMS}; there the F1 of both",
        "answer_correctness of Ragas": f"{TRUE_CLAIMS}; there 0.75 of their F1 and 0.25 of the similarity",
        "answer_accuracy of Ragas": f"{TRUE_CLAIMS}; there two votes on the whole answer",
    },
    "bleu": {"bleu_score of Ragas": "of sentences, smoothed, in 0 to 1, the best of several references"},
    "rouge_l": {
        "rouge_score of Ragas": "F-measure of the longest common subsequence of stems, the best of several references"
    },
    "chrf": {"chrf_score of Ragas": "chrF2, the best of several references"},
    "harmfulness": {
        "toxicity of DeepEval": "the worst category that the judge offers; there the share of toxic opinions"
    },
    "hit": {
        "ir_hit_rate of TruLens": "whether any relevant chunk by the gold was retrieved",
        "hit_rate of LlamaIndex": "whether any relevant chunk by the gold was retrieved",
    },
    "reciprocal_rank": {"mrr of LlamaIndex": "the same; the mean is taken over the run"},
    "ndcg": {
        "ndcg_at_k of TruLens": "linear gain over all gold; the cut-off is asked for as ndcg@10",
        "ndcg_at_k of mlflow": "linear gain, there every relevant chunk gains 1: ndcg(gain=binary)@10, "
        "whose ideal is cut at k, there at the chunks retrieved",
    },
}
"""Metric here → name and tool of each metric elsewhere that it replaces → difference of the definitions."""
ALIASES = tuple(
    MetricAlias(name.partition(" of ")[0], name.partition(" of ")[2], metric, differs)
    for metric, aliases in ALIAS_TABLE.items()
    for name, differs in aliases.items()
)
"""All aliases; one whose name is that of its metric is never resolved, only documented."""
other_names.update(alias.name for alias in ALIASES)
_WORD_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\s-]+")
_NAME_PATTERN = re.compile(r"\s*([A-Za-z_][\w -]*?)\s*(?=[(@]|$)")


def resolve_alias(text: str) -> str:
    """Return the expression of the metric that replaces another tool's name; other texts are unchanged.

    Class names are accepted too: `ContextualRecallMetric`. A name of this catalog, own metrics included, never changes.

    >>> resolve_alias("faithfulness"), resolve_alias("ContextualRecall"), resolve_alias("MRR@10")
    ('groundedness', 'context_recall', 'reciprocal_rank@10')
    """
    aliases = _lookup_aliases(text)
    return text if not aliases else aliases[0].metric + text[_measure_name(text) :]


def explain_aliases(texts: str | Iterable[str]) -> Iterator[str]:
    """Yield a line for each name of another tool: the metric that replaces it, and how the two differ.

    >>> [line] = explain_aliases(["contextual_relevancy", "ndcg@10"])
    >>> line
    'contextual_relevancy of DeepEval is answered by context_relevance: the mean of levels over chunks; there relevant
     statements of the contexts over all of theirs'
    """
    for text in [texts] if isinstance(texts, str) else texts:
        for alias in _lookup_aliases(text):
            yield f"{text.strip()} of {alias.tool} is answered by {alias.metric}: {alias.differs}"


def _measure_name(text: str) -> int:
    match = _NAME_PATTERN.match(text)
    return match.end() if match else 0


def _lookup_aliases(text: str) -> list[MetricAlias]:
    """Return the aliases of a name that is not in the catalog."""
    match = _NAME_PATTERN.match(text)
    definitions = get_definitions()
    if match is None or match.group(1) in definitions:
        return []
    key = _WORD_BOUNDARY.sub("_", match.group(1)).lower().removesuffix("_metric").strip("_")
    return [alias for alias in ALIASES if alias.name == key and alias.metric in definitions]
