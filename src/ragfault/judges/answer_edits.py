"""Edits of an answer by its verdicts: cut, mark, disclaim and cite, for the guard and the checks of a pipeline."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from ragfault.model.records import Citation, Trace, Verdicts
from ragfault.model.rules import BAD_SUPPORT

SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+|\n+")
QUESTION = "I could not find a reliable answer. Could you name more precisely what you are looking for?"
DISCLAIMER = "This answer could not be verified against the documents.\n\n"
ABSTENTION = "I could not verify an answer against the documents."
MARK = " [not verified]"


def list_unsupported(verdicts: Verdicts) -> list[str]:
    """List the claims that the chunks do not support, in the order of the answer."""
    return [claim.claim for claim in verdicts.claim or () if claim.support in BAD_SUPPORT]


def cut_unsupported(trace: Trace, verdicts: Verdicts) -> Trace | None:
    """Cut the sentences with unsupported or contradicted claims from an answer; None where nothing else is left.

    >>> from ragfault.judges.loading import load_judge
    >>> from ragfault.model.records import Chunk
    >>> chunk = Chunk(id="a", text="The office opens at 7:30 on weekdays.")
    >>> trace = Trace(id="1", query="When?", chunks=(chunk,), answer="It opens at 7:30. The mayor sings opera.")
    >>> cut_unsupported(trace, load_judge("lexical").observe([trace])[0]).answer
    'It opens at 7:30.'
    """
    answer = trace.answer or ""
    bad_spans = [(claim.start, claim.end) for claim in verdicts.claim or () if claim.support in BAD_SUPPORT]
    pieces, position = [], 0
    for match in [*SENTENCE_END.finditer(answer), None]:
        end = match.end() if match else len(answer)
        if not any(start < end and position < stop for start, stop in bad_spans):
            pieces.append(answer[position:end])
        position = end
    left = "".join(pieces).strip()
    return replace(trace, answer=left) if left and left != answer.strip() else None


def mark_unsupported(trace: Trace, verdicts: Verdicts) -> str:
    """Return the answer with a mark after every claim that the chunks do not support."""
    text = trace.answer or ""
    ends = sorted({claim.end for claim in verdicts.claim or () if claim.support in BAD_SUPPORT}, reverse=True)
    for end in ends:
        text = text[:end] + MARK + text[end:]
    return text


def cite_sources(trace: Trace, verdicts: Verdicts) -> tuple[Citation, ...]:
    """Return a citation for each supported claim: the chunk of its best evidence, and its words."""
    texts = {chunk.id: chunk.text for chunk in trace.chunks or ()}
    supported: Iterable[Any] = (claim for claim in verdicts.claim or () if claim.support not in BAD_SUPPORT)
    return tuple(
        Citation(chunk=evidence.chunk, quote=texts[evidence.chunk][evidence.start : evidence.end], claim=claim.claim)
        for claim in supported
        for evidence in claim.evidence[:1]
        if evidence.chunk in texts
    )
