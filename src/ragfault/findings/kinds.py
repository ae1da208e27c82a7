"""The kinds of problem: each in words, with its layer and what mends it."""

from __future__ import annotations

from msgspec import Struct

from ragfault.findings.records import Kind
from ragfault.records import Layer

__all__ = ["KINDS", "Meaning"]


class Meaning(Struct, frozen=True):
    """What a kind of problem is called, where it sits, and what to change."""

    title: str
    layer: Layer
    steps: tuple[str, ...]
    """The cheapest first."""


FETCH = (
    "rerank the chunks",
    "search by words and by meaning (hybrid search)",
    "improve the query before the search (rewrite, expand)",
    "filter by metadata",
)
WIDEN = (
    "retrieve wider (more chunks, then rerank)",
    "decompose the query and search for each part",
    "check that the corpus holds it at all",
)
GROUND = (
    "require a citation for each claim",
    "constrain generation to the chunks in the prompt",
    "lower the temperature",
    "verify the answer afterwards and drop what fails",
)
ANSWER = (
    "ask in the prompt for every part of the query to be answered",
    "raise the token limit of the answer",
    "decompose the query and retrieve wider",
)
CITE = (
    "fix the output schema: chunk ids and verbatim quotes only",
    "number the chunks in the prompt and check each citation before answering",
    "lower the temperature",
)

KINDS: dict[Kind, Meaning] = {
    "pipeline_error": Meaning(
        "pipeline errors", "operation", ("read the error of the trace", "retry and set time-outs")
    ),
    "nothing_retrieved": Meaning(
        "nothing retrieved", "retrieval", ("loosen filters and score limits", *WIDEN)
    ),
    "nothing_relevant": Meaning("nothing relevant retrieved", "retrieval", (*FETCH, WIDEN[-1])),
    "irrelevant_chunk": Meaning("irrelevant chunks", "retrieval", FETCH),
    "missing_context": Meaning("missing context", "retrieval", WIDEN),
    "uncovered_statement": Meaning("expected facts that no chunk holds", "retrieval", WIDEN),
    "empty_answer": Meaning(
        "empty answers", "generation", ("look for time-outs, filters and token limits of the generator",)
    ),
    "unsupported_claim": Meaning("unsupported claims", "generation", GROUND),
    "contradicted_claim": Meaning("claims that the chunks contradict", "generation", GROUND),
    "unanswered_aspect": Meaning("unanswered parts of the query", "generation", ANSWER),
    "absent_fact": Meaning("expected facts that the answer leaves out", "generation", ANSWER),
    "contradicted_fact": Meaning("expected facts that the answer contradicts", "generation", GROUND),
    "irrelevant_answer": Meaning(
        "answers beside the question",
        "generation",
        ("put the query last in the prompt", "shorten the preamble of the prompt", "try a stronger model"),
    ),
    "wrong_refusal": Meaning(
        "refusals although the chunks cover the query",
        "generation",
        (
            "soften the wording that tells the model when to refuse",
            "put the most relevant chunks first or last",
        ),
    ),
    "missed_refusal": Meaning(
        "answers although the chunks do not cover the query",
        "generation",
        ("tell the model to say so when the chunks do not hold the answer", *WIDEN),
    ),
    "false_claim": Meaning(
        "claims that the chunks support and the answer key contradicts",
        "crosscut",
        (
            "mend or withdraw the source documents they come from",
            "filter chunks by their dates of validity",
            "index again",
        ),
    ),
    "bad_quote": Meaning("quotes that do not stand in the chunk they name", "crosscut", CITE),
    "bad_citation": Meaning("citations of chunks that do not support the claim", "crosscut", CITE),
    "all_low": Meaning(
        "everything low",
        "crosscut",
        (
            "look at the whole pipeline on this trace, from the query to the prompt",
            "check that the corpus is meant for such queries",
        ),
    ),
}
"""Every kind of problem, in the order in which a diagnosis lists them."""
