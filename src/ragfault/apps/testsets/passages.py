"""Passages of a corpus: their sentences, words and statistics, from which questions are made."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from ragfault.io.field_values import make_content_id
from ragfault.judges.checks.languages import is_foreign
from ragfault.judges.embedded.word_vectors import embed_word_vectors
from ragfault.model.records import Document, Span
from ragfault.retrieval.chunking.chunker import load_chunker
from ragfault.retrieval.chunking.structure import LIST_ITEM, iterate_lines, parse_blocks
from ragfault.text.normalization import STOP_WORDS, split_words, stem_word
from ragfault.text.sentences import split_sentences

Array = np.ndarray[Any, Any]

WORD = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*")
PASSAGE_CHUNKER = "recursive(200)"
MIN_PASSAGE_WORDS = 12
MIN_SENTENCE_WORDS, MAX_SENTENCE_WORDS = 6, 60
CONTEXT_CHARACTERS = 64
"""Characters before and after a span that are kept with it."""
SAME_TEXTS = 0.7
"""Share of the words of two texts in both, with the same numbers, from which they say the same."""
CODE_SIGNS = re.compile(r"[{}<>\\=$`]|::|//|\b\w+\(|(?:^|\s)--\w|\[[A-Z_]+\]")
UNSEEN = re.compile(
    r"(?<=\])\([^()\s]*(?: \"[^\"]*\")?\)|\b\w+://[^\s)>\]]+|&#?\w{2,8};|\{[%{].*?[%}]\}|<[/a-zA-Z][^<>]*>"
)
"""Targets of links, entities, template and HTML tags: no words of a text as it is read."""
MID_CAPITAL = re.compile(r"(?<=[a-z,] )[A-Z][\w-]*")
FENCE = re.compile(r"\s*(`{3,}|~{3,})")
LEAST_INDENT = 3
"""Spaces from which on a paragraph is a literal block."""
DIRECTIVE = re.compile(r"\s*\.\. (?!code|sourcecode|parsed-literal|literalinclude|highlight)")
"""A directive of reStructuredText whose indented text is prose, such as a note."""


class CorpusPassage(NamedTuple):
    """A piece of a document that holds one thought or a few."""

    document: str
    start: int
    end: int
    text: str
    heading: str
    """The heading above it, or the title of the document; empty without one."""
    is_table: bool
    stems: Counter[str]
    """Counts of its words without stop words, in normal form."""

    @property
    def key(self) -> tuple[str, int]:
        """Its place, which identifies it."""
        return (self.document, self.start)


class Sentence(NamedTuple):
    """A sentence of a passage."""

    passage: int
    """Position of the passage in the corpus."""
    start: int
    """First character in the document."""
    end: int
    text: str
    heading: str
    """The heading above it, or the title of the document; empty without one."""


def quote_span(span: Span, text: str) -> Span:
    """Return a span with its quote, and up to CONTEXT_CHARACTERS before and after it, from the text of its document.

    >>> quote_span(Span(document="d", start=4, end=9), "The night ferry").prefix
    'The '
    """
    return replace(
        span,
        quote=text[span.start : span.end],
        prefix=text[max(0, span.start - CONTEXT_CHARACTERS) : span.start],
        suffix=text[span.end : span.end + CONTEXT_CHARACTERS],
    )


class CorpusIndex:
    """The passages and sentences of a corpus, with the rarity of its words.

    >>> text = "# Ferries\\n\\n" + "The night ferry leaves Oslo at ten o'clock. " * 3
    >>> index = CorpusIndex([Document(id="d", text=text)])
    >>> len(index.passages), index.passages[0].heading, index.sentences[0].text
    (1, 'Ferries', "The night ferry leaves Oslo at ten o'clock.")
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        self.documents = tuple(documents)
        self.titles = {document.id: document.title for document in self.documents}
        self.texts = {document.id: document.text for document in self.documents}
        self.passages = [passage for document in self.documents for passage in cut_passages(document)]
        self.sentences: list[Sentence] = []
        self.places: defaultdict[str, list[int]] = defaultdict(list)
        """Stem → the passages that have it."""
        self._forms: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._capitals: Counter[str] = Counter()
        self.headings = {document.id: list_headings(document) for document in self.documents}
        self.code = {document.id: find_code(document.text) for document in self.documents}
        """Document → the places of its code, of which nothing is asked."""
        for index, passage in enumerate(self.passages):
            for stem in passage.stems:
                self.places[stem].append(index)
            for match in WORD.finditer(passage.text):
                if match.group().islower():
                    self._forms[stem_word(match.group())][match.group()] += 1
            self._capitals.update(MID_CAPITAL.findall(passage.text))
            if not passage.is_table:
                self.sentences += [
                    sentence
                    for sentence in list_sentences(index, passage, self.headings[passage.document])
                    if not self.is_code(passage.document, sentence.start, sentence.end)
                ]

    @cached_property
    def digest(self) -> str:
        """A digest of the ids and texts of the documents."""
        return make_content_id("\0".join(f"{name}\0{text}" for name, text in sorted(self.texts.items())), "corpus-")

    def compute_rarity(self, stem: str) -> float:
        """Return the natural logarithm of all passages / passages with the stem, at least 0.1."""
        return max(0.1, math.log((len(self.passages) + 1) / (len(self.places.get(stem, ())) + 0.5)))

    def list_forms(self, stem: str) -> Counter[str]:
        """Return the spellings of a stem in the corpus with their counts, names apart."""
        return self._forms.get(stem, Counter())

    def is_proper_name(self, word: str) -> bool:
        """Return whether a word has a digit, or a capital within sentences of the corpus, and seldom small letters."""
        small = self.list_forms(stem_word(word.lower()))[word.lower()]
        return any(map(str.isdigit, word)) or self._capitals[word] > small

    @cached_property
    def embeddings(self) -> Array:
        """A vector of word meanings for each passage."""
        return embed_word_vectors([passage.text for passage in self.passages])

    @cached_property
    def foreign(self) -> frozenset[int]:
        """The passages in a language that the judges of the package do not know."""
        return frozenset(at for at, passage in enumerate(self.passages) if is_foreign(passage.text))

    @cached_property
    def _rarities(self) -> dict[str, float]:
        return {stem: self.compute_rarity(stem) for stem in self.places}

    def score_passages(self, stems: Iterable[str]) -> dict[int, float]:
        """Return the passages that share a word with a query; each with the share of its rarity that it has, (0, 1]."""
        scores: Counter[int] = Counter()
        total = 0.0
        for stem in set(stems):
            rarity = self._rarities.get(stem)
            if rarity is None:
                continue
            total += rarity
            for passage in self.places[stem]:
                scores[passage] += rarity  # type: ignore[assignment]
        return {passage: score / total for passage, score in scores.items()} if total else {}

    def is_code(self, document: str, start: int, end: int) -> bool:
        """Return whether a stretch of a document touches a code block."""
        return any(first < end and start < last for first, last in self.code[document])

    def make_span(self, document: str, start: int, end: int) -> Span:
        """Return a span of a document with its quote and the text around it."""
        return quote_span(Span(document=document, start=start, end=end), self.texts[document])


def find_code(text: str) -> list[tuple[int, int]]:
    r"""Return the places of code, settings and data in a text: fenced blocks, and paragraphs that are indented.

    What is indented below a list item or a note is prose. A text that is mostly indented is a layout, not code.

    >>> text = "Set it so:\n\n    wait: 3\n\n- Go on.\n\n    This is prose.\n\n```yaml\nwait: 4\n```\n"
    >>> [text[start:end] for start, end in find_code(text)]
    ['    wait: 3', '```yaml\nwait: 4\n```']
    """
    fenced: list[tuple[int, int]] = []
    indented: list[tuple[int, int]] = []
    fence, start, opener, before = "", -1, "", ""
    for position, line in [*iterate_lines(text), (len(text), "")]:
        bare, is_indented = line.strip(), len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip()) >= LEAST_INDENT
        if fence:
            if bare.startswith(fence) and not bare.strip(fence[0]):
                fenced.append((start, position + len(line)))
                fence, start = "", -1
        elif match := FENCE.match(line):
            fence, start = match[1], position
        elif start >= 0 and not is_indented:
            # a paragraph that goes on without an indent only begins with one
            indented += [(start, position - 1)] if not bare else []
            start = -1
        elif start < 0 and is_indented and not before and opener and not LIST_ITEM.match(opener):
            start = -1 if DIRECTIVE.match(opener) else position
        if bare and not is_indented:
            opener = bare
        before = bare
    if fence:
        fenced.append((start, len(text)))
    is_layout = 2 * sum(end - start for start, end in indented) > len(text)
    return sorted(fenced + ([] if is_layout else indented))


def list_headings(document: Document) -> list[tuple[int, str]]:
    """List the headings of a document, each with its place."""
    starts = (start for start, _ in parse_blocks(document.text).headings)
    return [(start, document.text[start:].partition("\n")[0].strip("#= \t").rstrip()) for start in starts]


def find_heading(headings: Sequence[tuple[int, str]], position: int) -> str:
    """Return the last heading that begins before a place; empty without one."""
    above = bisect_right(headings, position, key=lambda heading: heading[0])
    return headings[above - 1][1] if above else ""


def cut_passages(document: Document) -> list[CorpusPassage]:
    """Cut a document into passages of at most 200 tokens; a table is one by itself, short pieces are left out."""
    headings = list_headings(document)
    passages = []
    for chunk in load_chunker(PASSAGE_CHUNKER)(document):
        assert chunk.start is not None
        assert chunk.end is not None
        text = document.text[chunk.start : chunk.end]
        if len(WORD.findall(text)) < MIN_PASSAGE_WORDS and chunk.kind != "table":
            continue
        first_word = next((match.start() + chunk.start for match in WORD.finditer(text)), chunk.start)
        heading = find_heading(headings, first_word) or document.title or ""
        stems = Counter(stem for stem in split_words(UNSEEN.sub(" ", text)) if stem not in STOP_WORDS)
        passages.append(CorpusPassage(document.id, chunk.start, chunk.end, text, heading, chunk.kind == "table", stems))
    return passages


def list_sentences(passage_index: int, passage: CorpusPassage, headings: Sequence[tuple[int, str]]) -> list[Sentence]:
    """List the sentences of a passage that questions can be made of: prose of some length, without headings."""
    sentences = []
    for start, end in split_sentences(passage.text):
        text = passage.text[start:end]
        words = WORD.findall(text)
        if not MIN_SENTENCE_WORDS <= len(words) <= MAX_SENTENCE_WORDS:
            continue
        if text.startswith(("#", "|", ">", "..")) or text[-1] == "?":
            continue
        if CODE_SIGNS.search(text) or sum(word[0].isdigit() for word in words) * 3 > len(words):
            continue
        heading = find_heading(headings, passage.start + start) or passage.heading
        sentences.append(Sentence(passage_index, passage.start + start, passage.start + end, text, heading))
    return sentences


def say_the_same(first: str, second: str) -> bool:
    """Return whether two texts have the same numbers and nearly the same words."""
    left, right = set(split_words(first)), set(split_words(second))
    numbers = {word for word in left ^ right if word[0].isdigit()}
    return not numbers and len(left & right) >= SAME_TEXTS * len(left | right)
