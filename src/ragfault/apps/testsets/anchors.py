"""Re-anchoring of gold spans after the documents of a corpus were renamed, moved or edited.

A span is found again by its quote: word for word first, then by alignment of its words. What changed within it beyond
typography, markup, case and articles is named, and never taken for unchanged.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Literal, NamedTuple
from unicodedata import normalize

from msgspec import Struct
from msgspec.structs import replace

from ragfault.apps.testsets.passages import CONTEXT_CHARACTERS, quote_span
from ragfault.judges.checks.contradictions import ANTONYMS
from ragfault.model.records import Document, Gold, Span, Trace
from ragfault.text.normalization import NEGATIONS, NUMERALS, normalize_typography, stem_word
from ragfault.text.quantities import CURRENCIES, UNITS

SpanState = Literal["kept", "moved", "changed meaning", "gone", "unverified"]
"""In its document as it was; in another document; there with other words; nowhere; without a quote to tell by."""

LETTERS = r"(?:[^\W_][\u0300-\u036f]*)+"
TOKEN = re.compile(
    rf"\{{(?:%.*?%|\{{.*?\}})\}}|{LETTERS}(?:['’.,:-]{LETTERS})*|[%$€£¥≤≥±§°]|[<>]=?(?=\s?\d)|(?<![\w-])-(?=\d)"
)
BLOCK_START = r"(?:\n|#{1,6}\s|[-*+•]\s|\d{1,3}[.)]\s|[|>]|\w[\w-]*:\s)"
SENTENCE_END = re.compile(rf"[.!?:;][)\"'”’*_]*(?:\s|$)|[|<]|\n\s*{BLOCK_START}")
SENTENCE_START = re.compile(rf"[.!?:;][)\"'”’*_]*\s|[|>]|\n\s*#{{1,6}}\s[^\n]*\n|\n\s*{BLOCK_START}|^\s*{BLOCK_START}")
LINK_END = re.compile(r"\W*?\](?:\([^()]*\)|\[[^\[\]]*\])")
"""What follows the text of a link: its target."""
ARTICLES = frozenset(("a", "an", "the"))
LONG_QUOTE = 8
"""A quote of so many words is known by itself, a shorter one by the text around it, too."""
MIN_CONTEXT = 0.4
"""Least share of the words before or after a quote that are there again."""
MIN_ALIGNMENT = 0.5
"""Least similarity of a stretch that counts as the edited quote; below it is gone."""
OWN_DOCUMENT = 0.15
"""Similarity by which another document has to be better than the one that the span was in."""
SHINGLE_WORDS = 3
MAX_CANDIDATES = 4
MAX_SHINGLE_PLACES = 40
"""A run of words at more places votes for none."""
MAX_SHOWN_WORDS = 6


class SpanChange(Struct, frozen=True, kw_only=True):
    """State of one gold span in the new corpus."""

    item: str
    """Id of the item."""
    document: str
    state: SpanState
    quote: str | None = None
    reason: str | None = None
    """What changed, or why nothing can be told; None where nothing changed."""
    span: Span | None = None
    """The span in the new corpus; None where it is gone."""


class RefreshResult(Struct, frozen=True, kw_only=True):
    """An evaluation set re-anchored in a new corpus."""

    items: tuple[Trace, ...]
    """Items that hold: every gold span is kept or moved, or there is none."""
    broken: tuple[Trace, ...]
    """Items with a span that changed its meaning, is gone or cannot be verified, as they were."""
    changes: tuple[SpanChange, ...]
    counts: dict[str, int]
    """State → number of spans."""


class DocumentToken(NamedTuple):
    """A word or sign in normal form, with its place."""

    form: str
    start: int
    end: int


class TokenizedDocument:
    """The words of a document, searchable as a sequence."""

    def __init__(self, document: Document) -> None:
        self.id, self.text = document.id, document.text
        self.tokens = list(iterate_tokens(document.text))
        forms = [token.form for token in self.tokens]
        self.joined = f" {' '.join(forms)} "
        self._offsets: list[int] = []
        offset = 0
        for form in forms:
            self._offsets.append(offset)
            offset += len(form) + 1

    def find_sequence(self, forms: Sequence[str]) -> list[int]:
        """Return the positions of the tokens at which a sequence begins."""
        sequence = f" {' '.join(forms)} "
        starts = []
        start = self.joined.find(sequence)
        while start >= 0:
            starts.append(bisect_left(self._offsets, start))
            start = self.joined.find(sequence, start + 1)
        return starts


def iterate_tokens(text: str) -> Iterator[DocumentToken]:
    r"""Iterate over the words, signs and template tags of a text in normal form ("2" for "two"), without articles.

    >>> [token.form for token in iterate_tokens("The **Night** ferry costs -5 % more{%- endif %}.")]
    ['night', 'ferry', 'costs', '-', '5', '%', 'more', '{%\xa0endif\xa0%}']
    """
    for match in TOKEN.finditer(text):
        form = normalize_typography(normalize("NFC", match.group())).casefold()
        # one word, however it is spaced
        if form[0] == "{":
            form = "\u00a0".join([form[:2], *form[2:-2].strip("-").split(), form[-2:]])
        if form not in ARTICLES:
            yield DocumentToken(NUMERALS.get(form, form), match.start(), match.end())


class AnchorIndex:
    """The documents of a corpus, for finding quotes in them."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self.documents = {document.id: TokenizedDocument(document) for document in documents}

    @cached_property
    def _shingles(self) -> dict[tuple[str, ...], list[tuple[str, int]]]:
        postings: defaultdict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
        for document in self.documents.values():
            forms = [token.form for token in document.tokens]
            for index in range(len(forms) - SHINGLE_WORDS + 1):
                postings[tuple(forms[index : index + SHINGLE_WORDS])].append((document.id, index))
        return postings

    def locate(self, span: Span) -> tuple[SpanState, Span | None, str | None]:
        """Return the state of a span, its place in this corpus, and what changed."""
        if span.quote is None or not (forms := [token.form for token in iterate_tokens(span.quote)]):
            return "unverified", None, "the span has no quote; give the corpus that it was made for: --old"
        home = self.documents.get(span.document)
        if home is not None and home.text[span.start : span.end] == span.quote and self._fits(span, home, forms):
            return _tell_state(span, home, span.start, span.end)
        exact = self._locate_exact(span, forms)
        if exact is not None:
            document, start_word = exact
            start, end = document.tokens[start_word].start, document.tokens[start_word + len(forms) - 1].end
            return _tell_state(span, document, *_extend_to_quote(document.text, start, end, span.quote))
        return self._locate_edited(span, forms)

    def _fits(self, span: Span, document: TokenizedDocument, forms: Sequence[str]) -> bool:
        """Return whether a quote at its old place is the one: it is long, alone, or its context is there."""
        return (
            len(forms) >= LONG_QUOTE
            or len(document.find_sequence(forms)) == 1
            or _score_context(span, document, span.start, span.end) >= MIN_CONTEXT
        )

    def _locate_exact(self, span: Span, forms: Sequence[str]) -> tuple[TokenizedDocument, int] | None:
        """Return the document and token at which all words of a quote stand in a row; None where none is sure."""
        home = self.documents.get(span.document)
        for documents in ([home] if home is not None else [], self.documents.values()):
            matches = [(document, i) for document in documents for i in document.find_sequence(forms)]
            if not matches:
                continue
            scored = [
                (_score_context(span, document, document.tokens[i].start, document.tokens[i + len(forms) - 1].end), i)
                for document, i in matches
            ]
            best = max(range(len(matches)), key=lambda number: (scored[number][0], -number))
            is_certain = scored[best][0] >= MIN_CONTEXT
            if is_certain or (len(matches) == 1 and (len(forms) >= LONG_QUOTE or matches[0][0] is home)):
                return matches[best]
            if matches[0][0] is home and len(forms) >= LONG_QUOTE:
                return matches[best]
        return None

    def _locate_edited(self, span: Span, forms: Sequence[str]) -> tuple[SpanState, Span | None, str | None]:
        """Align a quote with the stretches that share most runs of words with it."""
        from rapidfuzz.distance import Indel

        best: tuple[float, float, TokenizedDocument, int, int] | None = None
        for document, low, high in self._list_candidates(span, forms):
            window = [token.form for token in document.tokens[low:high]]
            bonus = OWN_DOCUMENT if document.id == span.document else 0.0
            for first_word, last_word in _list_stretches(forms, window):
                score = Indel.normalized_similarity(forms, window[first_word:last_word])
                if best is None or score + bonus > best[0]:
                    best = (score + bonus, score, document, low + first_word, low + last_word)
        if best is None or best[1] < MIN_ALIGNMENT:
            return "gone", None, "its words are nowhere in the corpus"
        _, _, document, first_word, last_word = best
        start, end = document.tokens[first_word].start, document.tokens[last_word - 1].end
        names = find_names(span.quote or "") | find_names(document.text[start:end])
        reason = describe_edit(forms, [token.form for token in document.tokens[first_word:last_word]], names)
        if reason is None:
            return "gone", None, f"its words stand in {document.id}, in another context"
        return "changed meaning", _move_span(span, document, start, end), reason

    def _list_candidates(self, span: Span, forms: Sequence[str]) -> Iterator[tuple[TokenizedDocument, int, int]]:
        """Yield the windows that most runs of words of a quote point to."""
        votes: Counter[tuple[str, int]] = Counter()
        slack = max(2, len(forms) // 4)
        context = [token.form for token in iterate_tokens(span.prefix or "")]
        sequence = [*context, *forms, *(token.form for token in iterate_tokens(span.suffix or ""))]
        for index in range(len(sequence) - SHINGLE_WORDS + 1):
            postings = self._shingles.get(tuple(sequence[index : index + SHINGLE_WORDS]), ())
            if len(postings) > MAX_SHINGLE_PLACES:
                continue
            for name, position in postings:
                votes[name, (position - index + len(context)) // slack] += 1
        for (name, bucket), _ in votes.most_common(MAX_CANDIDATES):
            document = self.documents[name]
            low = max(0, (bucket - 1) * slack)
            yield document, low, min(len(document.tokens), (bucket + 2) * slack + len(forms))


def _move_span(span: Span, document: TokenizedDocument, start: int, end: int) -> Span:
    return quote_span(replace(span, document=document.id, start=start, end=end), document.text)


def _tell_state(
    span: Span, document: TokenizedDocument, start: int, end: int
) -> tuple[SpanState, Span | None, str | None]:
    """Return the state of a span whose words stand at a place: there they may be a part of another sentence."""
    location = _move_span(span, document, start, end)
    reason = _describe_surroundings(span, document.text, start, end)
    if reason is not None:
        return "changed meaning", location, reason
    return ("kept" if document.id == span.document else "moved"), location, None


def _describe_surroundings(span: Span, text: str, start: int, end: int) -> str | None:
    """Describe what a sentence got before or after its quote, where there was nothing; None without that."""
    quote = span.quote or ""
    tail = len(quote) - max(token.end for token in iterate_tokens(quote))
    last_word = max(token.end for token in iterate_tokens(text[start:end])) + start
    before, after = text[max(0, start - CONTEXT_CHARACTERS) : start], text[last_word : end + CONTEXT_CHARACTERS]
    if before.rpartition("-->")[2].count("<!--") or (before.endswith("~~") and not (span.prefix or "").endswith("~~")):
        return "it is struck through, or within a comment"
    is_block = before.endswith("\n") and re.match(BLOCK_START, text[start:end])
    begins_sentence = span.prefix is not None and not _read_words(SENTENCE_START.split(span.prefix)[-1])
    if begins_sentence and not is_block and (added := _read_words(SENTENCE_START.split(before)[-1])):
        return f'its sentence begins earlier: "{added}"'
    suffix = f"{quote[len(quote) - tail :]}{span.suffix or ''}"
    ends_sentence = span.suffix is not None and not _read_words(SENTENCE_END.split(suffix)[0])
    if ends_sentence and (added := _read_words(SENTENCE_END.split(LINK_END.sub("", after, count=1))[0])):
        return f'its sentence goes on: "{added}"'
    return None


def _read_words(text: str) -> str:
    return " ".join(token.form for token in iterate_tokens(text))


def _list_stretches(forms: Sequence[str], window: Sequence[str]) -> list[tuple[int, int]]:
    """List the stretches of a window that begin and end where equal words of a sequence put its first and last word."""
    from rapidfuzz.distance import Indel

    blocks = [block for block in Indel.opcodes(forms, window) if block.tag == "equal"]
    starts = sorted({max(0, block.dest_start - block.src_start) for block in blocks})[:MAX_CANDIDATES]
    ends = sorted({min(len(window), block.dest_end + len(forms) - block.src_end) for block in blocks})[-MAX_CANDIDATES:]
    return [(start, end) for start in starts for end in ends if start < end]


def _extend_to_quote(text: str, start: int, end: int, quote: str) -> tuple[int, int]:
    """Extend a stretch by the signs and articles that the quote has before its first and after its last word."""
    tokens = list(iterate_tokens(quote))
    head, tail = quote[: tokens[0].start], quote[tokens[-1].end :]
    if head and text[max(0, start - len(head)) : start] == head:
        start -= len(head)
    if tail and text[end : end + len(tail)] == tail:
        end += len(tail)
    return start, end


def _score_context(span: Span, document: TokenizedDocument, start: int, end: int) -> float:
    """Return the greater share of the words before or after a quote that stand around a place; 1 without context."""
    shares = []
    for recorded, present in (
        (span.prefix, document.text[max(0, start - 2 * CONTEXT_CHARACTERS) : start]),
        (span.suffix, document.text[end : end + 2 * CONTEXT_CHARACTERS]),
    ):
        words = {token.form for token in iterate_tokens(recorded or "")}
        if words:
            shares.append(len(words & {token.form for token in iterate_tokens(present)}) / len(words))
    return max(shares, default=1.0)


def find_names(text: str) -> frozenset[str]:
    """Return the words of a text that are capitalized, its first word apart, in normal form.

    >>> sorted(find_names("The ferry leaves Oslo on Monday."))
    ['monday', 'oslo']
    """
    tokens = list(iterate_tokens(text))[1:]
    return frozenset(token.form for token in tokens if text[token.start].isupper())


def describe_edit(old: Sequence[str], new: Sequence[str], names: frozenset[str] = frozenset()) -> str | None:
    """Describe what changed between two sequences of words in normal form; None where nothing did.

    >>> describe_edit(["open", "until", "9"], ["open", "until", "10"])
    'a number changed: "9" → "10"'
    """
    from rapidfuzz.distance import Indel

    removed: list[str] = []
    added: list[str] = []
    for block in Indel.opcodes(old, new):
        if block.tag != "equal":
            removed += old[block.src_start : block.src_end]
            added += new[block.dest_start : block.dest_end]
    if not removed and not added:
        return None
    kind = _name_change(removed, added, names)
    changes = [
        " ".join(words[:MAX_SHOWN_WORDS]) + (" …" if len(words) > MAX_SHOWN_WORDS else "") for words in (removed, added)
    ]
    return f'{kind} changed: "{changes[0]}" → "{changes[1]}"'


def _name_change(removed: Sequence[str], added: Sequence[str], names: frozenset[str]) -> str:
    changed = [word for word in (*removed, *added) if word[0] != "{"]
    if not changed:
        return "a template tag"
    if any(any(map(str.isdigit, word)) for word in changed):
        return "a number"
    if any(word in NEGATIONS or word.endswith(("n't", "cannot")) for word in changed):
        return "a negation"
    if any(word in UNITS or word in CURRENCIES for word in changed):
        return "a unit"
    if names & set(changed):
        return "a name"
    stems = {stem_word(word) for word in added}
    if any(ANTONYMS.get(stem_word(word), frozenset()) & stems for word in removed):
        return "an opposite"
    return "the wording"


def refresh_testset(
    documents: Iterable[Document], items: Iterable[Trace], old: Iterable[Document] | None = None
) -> RefreshResult:
    """Re-anchor every gold span of an evaluation set in the documents of a changed corpus.

    A span is "kept" (its words stand in its document), "moved" (in another), of "changed meaning" (the aligned words
    differ by more than markup, case, punctuation and articles; what differs is named), "gone", or "unverified" (it has
    no quote, and `old` does not hold its document). An item holds where all of its spans are kept or moved; the others
    are `broken`, unchanged. Gold chunks are ids and no spans: items with nothing else are unverified.

    >>> old = Document(id="a.md", text="The ferry leaves at ten from the northern pier.")
    >>> gold = Gold(spans=(Span(document="a.md", start=0, end=24, quote=old.text[:24]),))
    >>> new = Document(id="b.md", text="Fares\\n\\nThe ferry leaves at nine from the northern pier.")
    >>> result = refresh_testset([new], [Trace(id="1", query="When?", gold=gold)])
    >>> result.changes[0].state, result.changes[0].reason
    ('changed meaning', 'a number changed: "10" → "9"')
    """
    index = AnchorIndex(documents)
    before = {document.id: document.text for document in old or ()}
    valid: list[Trace] = []
    broken: list[Trace] = []
    changes: list[SpanChange] = []
    for item in items:
        refreshed_spans = list(_refresh_item(index, before, item))
        changes += refreshed_spans
        if all(change.state in ("kept", "moved") for change in refreshed_spans):
            spans = tuple(change.span for change in refreshed_spans if change.span is not None)
            valid.append(replace(item, gold=replace(item.gold, spans=spans)) if item.gold and spans else item)
        else:
            broken.append(item)
    counts = Counter[str](change.state for change in changes)
    return RefreshResult(items=tuple(valid), broken=tuple(broken), changes=tuple(changes), counts=dict(counts))


def _refresh_item(index: AnchorIndex, before: dict[str, str], item: Trace) -> Iterator[SpanChange]:
    gold = item.gold or Gold()
    if gold.chunks and not gold.spans:
        missing = "its gold are ids of chunks, which another chunker or an edit makes void; give it spans"
        yield SpanChange(item=item.id, document="", state="unverified", reason=missing)
    for span in gold.spans:
        if span.quote is None and span.document in before:
            span = quote_span(span, before[span.document])  # noqa: PLW2901
        state, new, reason = index.locate(span)
        yield SpanChange(item=item.id, document=span.document, state=state, quote=span.quote, reason=reason, span=new)
