"""What an answer contradicts: the sentence that was shown on the same statement, and says otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from ragfault.model.records import ClaimVerdict, Trace
from ragfault.text.entities import extract_entities
from ragfault.text.normalization import NEGATIONS, STOP_WORDS, split_content_words, split_words
from ragfault.text.sentences import split_sentences

SAME_STATEMENT = 0.75
"""The share of a claim's words without its values from which a sentence is about the same statement: of the authored
claims that no chunk states and the judge doubts 4 % reach it (`python -m benchmarks.contradictions`)."""


class RivalSentence(Struct, frozen=True):
    """A sentence that was shown, and the claim of the answer that says otherwise."""

    claim: str
    sentence: str
    chunk: str


def find_rival_sentence(trace: Trace, claims: Sequence[ClaimVerdict]) -> RivalSentence | None:
    """Find the first claim of a bad answer that contradicts a chunk, with the sentence; None if no chunk is about it.

    A claim contradicts a sentence about the same statement: one that has its words, save for the names and numbers of
    the claim, and names or numbers of its own in the place of these. A claim without other words is about the query.

    >>> from ragfault.model.records import Chunk
    >>> trace = Trace(id="1", query="When does it open?", chunks=(Chunk(id="a", text="The office opens at 8."),))
    >>> claim = ClaimVerdict(claim="The office opens at 9.", start=0, end=22, support="unsupported")
    >>> find_rival_sentence(trace, [claim]).sentence
    'The office opens at 8.'
    >>> beside = ClaimVerdict(claim="Dogs may come in at 9.", start=0, end=22, support="unsupported")
    >>> find_rival_sentence(trace, [beside])
    """
    for claim in claims:
        ranked = [(measure_rivalry(trace.query, claim.claim, text), text, chunk) for chunk, text in _list_shown(trace)]
        share, sentence, chunk = max(ranked, key=lambda item: item[0], default=(0.0, "", ""))
        if share >= SAME_STATEMENT:
            return RivalSentence(claim.claim, sentence, chunk)
    return None


def measure_rivalry(query: str, claim: str, sentence: str) -> float:
    """Measure how far a sentence is about the statement of a claim and says otherwise, in [0, 1].

    The share of the claim's words without its own names and numbers that the sentence has. 0 where it has all words of
    the claim in their order, or nothing in the place of these names and numbers.

    >>> measure_rivalry("", "It opens at 9.", "It opens at 8."), measure_rivalry("", "It opens.", "It opens.")
    (1.0, 0.0)
    """
    claimed, shown = frozenset(split_content_words(claim)), frozenset(split_content_words(sentence))
    values, rivals = _list_values(claim) - shown, _list_values(sentence) - claimed
    if (values and not rivals) or _is_part(claim, sentence):
        return 0.0
    stated = claimed - values or frozenset(split_content_words(query))
    return len(stated & shown) / len(stated) if stated else 0.0


def _is_part(claim: str, sentence: str) -> bool:
    """Return whether a sentence has all words of weight of a claim in their order, and perhaps others between them."""
    rest = iter(split_words(sentence))
    return all(word in rest for word in split_words(claim) if word not in STOP_WORDS or word in NEGATIONS)


def _list_values(text: str) -> frozenset[str]:
    """List the words of the names and numbers of a text."""
    named = {word for entity in extract_entities(text) for word in split_words(entity)}
    return frozenset(word for word in split_words(text) if word in named or word[0].isdigit())


def _list_shown(trace: Trace) -> Iterator[tuple[str, str]]:
    for chunk in trace.chunks or ():
        for start, end in split_sentences(chunk.text):
            yield chunk.id, chunk.text[start:end]
