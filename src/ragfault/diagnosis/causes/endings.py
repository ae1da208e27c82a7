"""How answers end: within a sentence, which in a run whose answers end with a stop shows that one was cut off."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ragfault.model.finish_reasons import get_finish_kind
from ragfault.model.records import Trace, Verdicts

ENDS = frozenset(".!?…:;)]}\"'”’»。！？*`|>")
"""Marks that end a sentence, a quotation, a citation, code or a table."""
LIST_ITEM = re.compile(r"\s*(?:[-*•|#]|\w{1,3}[.)]\s)")
"""A line of a list or a table, or a heading, which ends without a stop."""
OPEN_END = re.compile(
    r"(?:^|\s)(?:an?|the|and|or|but|of|to|with|from|for|by|at|in|into|as|than|because|which|who|whose|if|when|while|until"
    r"|between|its|their|his|our|your|my|every|is|are|was|were|has|have|will|can|must|may)(?:…|\.\.\.)?$|[,(]$"
)
"""An article, a conjunction or another word that hardly ever ends an answer."""
OPEN_CODE = re.compile(r"`\w[^`\s]*$")
MIN_SENTENCE, MIN_LINE, MIN_LIMITED = 8, 4, 4
"""Words of a text that is a sentence and not a phrase, of its last line, and of one at whose end the token limit was
reached. So 1 of 3,000 answers of RAGTruth, 25 of 3,000 of Natural Questions and 1 of 1,998 of AttributionBench and
CLAPnq end within a sentence; seven of these 27 may be whole all the same."""
MIN_CLOSED = 0.8
"""Share of the sentences that end with a stop from which a run ends its answers so: 0.99 in those sets, 0.75 in the
talk of BEGIN, where it is no fault; chosen between."""


class AnswerEndings:
    """Count of the answers of a run that end with a stop, among those that are sentences.

    >>> endings = AnswerEndings("The ferry leaves the old pier at ten past noon." for _ in range(3))
    >>> endings.closed, AnswerEndings([]).closed
    (True, False)
    """

    def __init__(self, answers: Iterable[str | None] = ()) -> None:
        self.closed_count = self.open_count = 0
        for answer in answers:
            self.add(answer)

    def add(self, answer: str | None) -> None:
        """Count the next answer, if it is a sentence."""
        text = (answer or "").rstrip()
        if len(text.split()) >= MIN_SENTENCE:
            self.closed_count += text[-1] in ENDS
            self.open_count += ends_within_sentence(text)

    @property
    def closed(self) -> bool:
        """Tell whether the answers end with a stop, so that one without was cut off; False if they are too few."""
        others = self.closed_count + max(0, self.open_count - 1)
        return (self.closed_count + 1) / (others + 2) >= MIN_CLOSED


def ends_within_sentence(answer: str) -> bool:
    """Return whether a text of several words ends within a sentence.

    >>> ends_within_sentence("The ferry leaves at noon and returns in the"), ends_within_sentence("At noon")
    (True, False)
    >>> ends_within_sentence("There are three ways to pay for a ticket:\\n1. In cash at the counter of the pier")
    False
    >>> ends_within_sentence("1. Open the doors.\\n2. Turn off the gas.\\n3. Put out flames, and do not touch the")
    True
    """
    text = answer.rstrip()
    if len(text.split()) < MIN_SENTENCE or text[-1] in ENDS:
        return False
    if has_open_code(text):
        return True
    *lines, last = text.splitlines()
    # an address, a number or a name of a file is whole where it ends
    is_word = re.sub(r"[,\-–—’']", "", last.split()[-1]).isalpha()
    is_open_item = LIST_ITEM.match(last) and not _end_items_with_stops(lines)
    return is_word and len(last.split()) >= MIN_LINE and not is_open_item


def has_open_code(text: str) -> bool:
    """Return whether a text ends within a word of code, whose mark was opened and not closed.

    A block of code without its end shows nothing: many services stop at the mark that ends it.

    >>> has_open_code("Move it to `settings"), has_open_code("Run `make` first"), has_open_code("Press the ` key")
    (True, False, False)
    """
    return "```" not in text and text.count("`") % 2 == 1 and OPEN_CODE.search(text) is not None


def _end_items_with_stops(lines: Iterable[str]) -> bool:
    """Return whether there are list items, each of which ends with a stop, so that one without it was cut off."""
    items = [line.rstrip() for line in lines if LIST_ITEM.match(line)]
    return bool(items) and all(item[-1] in ENDS for item in items)


def is_cut_off(trace: Trace, verdicts: Verdicts, *, closed: bool) -> bool:
    """Return whether an answer was cut off: by the token limit, or as its end shows.

    An end within a sentence shows it if the answers of the run are `closed`, or by a word that ends no sentence. A
    limit that was reached at the end of a sentence, or by a phrase, cut off nothing that the text shows.

    >>> trace = Trace(id="1", query="When?", answer="It opens at ten on weekdays and", finish_reason="length")
    >>> is_cut_off(trace, Verdicts(trace="1"), closed=False)
    True
    """
    text = (trace.answer or "").rstrip()
    if get_finish_kind(trace) == "limit":
        return len(text.split()) >= MIN_LIMITED and text[-1] not in ENDS
    refused = verdicts.answer is not None and verdicts.answer.refused
    if trace.finish_reason is not None or refused or not ends_within_sentence(text):
        return False
    return closed or has_open_code(text) or OPEN_END.search(text) is not None
