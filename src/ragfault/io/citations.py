"""Citations that stand in the answers of a file: what their labels mean, decided on the file as a whole.

`[2]` may be the second chunk, the chunk with the id 2, a document, or an entry of the answer's own list of sources.
Each meaning is tried on all marks of the first answers. The one that finds a chunk for most of them wins; between
meanings that find about as many, the one whose chunks share more words with the sentences that cite them.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

from msgspec.structs import replace

from ragfault.io.field_values import CHUNK_ID_KEYS, make_content_id
from ragfault.model.records import Chunk, Citation, Trace
from ragfault.text.citation_marks import LINK, CitationMark, CitedText, blank_citations, find_citations
from ragfault.text.normalization import split_content_words
from ragfault.text.sentences import LIST_MARKER, split_sentences

LabelMeaning = Literal["list", "id", "document", "position", "index"]
"""What the label of a mark names; "index" is a position counted from 0."""
MEANING_WORDS: dict[LabelMeaning, str] = {
    "list": "the entry with this label in the list of sources of the answer",
    "id": "the id of a chunk",
    "document": "the document of a chunk",
    "position": "the position of the chunk, from 1",
    "index": "the position of the chunk, from 0",
}
SAMPLE_ANSWERS = 64
"""Answers with marks that decide what marks mean."""
SAMPLE_TRACES = 512
"""Traces that wait until it is decided, counted from the first mark."""
MIN_RESOLVED = 0.5
"""Share of the labels for which a meaning must find a chunk."""
NEARLY_EQUAL = 0.9
"""A meaning that finds this share of what the best one finds is compared with it by words."""
NAME_KEYS = (
    "source",
    "title",
    "url",
    "uri",
    "file_name",
    "filename",
    "file",
    "file_path",
    "path",
    "document_title",
    "name",
)
PAGE_KEYS = ("page", "page_number", "page_label")
FRAGMENT = re.compile(r"[#?].*$|[,:]?\s*(?:p\.|pp\.|page|seite)\s*\d.*$", re.IGNORECASE)
NUMBERS = re.compile(r"\d+")


class CitedSource(NamedTuple):
    """One label of one mark, with the sentence it stands by."""

    kind: str
    label: str
    start: int
    end: int
    claim: str | None


def read_citations(traces: Iterable[Trace], notice: Callable[[str], object]) -> Iterator[Trace]:
    """Yield the traces, those without recorded citations with the ones in the text of their answers.

    >>> chunks = (Chunk(id="a", text="Oslo is old."), Chunk(id="b", text="Bergen is wet."))
    >>> trace = Trace(id="1", query="How is it?", chunks=chunks, answer="Bergen is wet [2].")
    >>> [read] = read_citations([trace], print)
    citations in the text: `[2]` is the position of the chunk, from 1
    >>> read.citations
    (Citation(chunk='b', quote=None, claim='Bergen is wet [2].', start=14, end=17),)
    """
    decision = MarkDecision(notice)
    waiting: list[Trace] = []
    try:
        for trace in traces:
            if decision.is_decided or not (waiting or list_cited_sources(trace)):
                yield decision.apply(trace)
                continue
            waiting.append(trace)
            decision.observe(trace)
            if decision.answer_count >= SAMPLE_ANSWERS or len(waiting) >= SAMPLE_TRACES:
                yield from decision.decide_and_apply(waiting)
                waiting = []
    except Exception:
        # what was read before the fault is not lost
        yield from decision.decide_and_apply(waiting)
        raise
    yield from decision.decide_and_apply(waiting)


def list_cited_sources(trace: Trace) -> list[CitedSource]:
    """List what the answer of a trace cites in its text, or what is recorded as cited of chunks without names.

    There is nothing to list if recorded citations can be compared with names of chunks, or chunks are not recorded.
    """
    if trace.citations and trace.chunks and not any(map(is_named, trace.chunks)):
        return [CitedSource("recorded", part.chunk, 0, 0, part.claim or part.quote) for part in trace.citations]
    if trace.citations is not None or not trace.answer or trace.chunks is None:
        return []
    cited = find_citations(trace.answer)
    if not cited.marks and not cited.sources:
        return []
    claims = _locate_claims(trace.answer, cited)
    sources = [
        CitedSource(mark.kind, label, mark.start, mark.end, claim)
        for mark, claim in zip(cited.marks, claims, strict=True)
        for label in mark.labels
    ]
    if not sources:
        end = len(trace.answer)
        sources = [CitedSource("name", entry.name, cited.end, end, None) for entry in cited.sources]
    return sources


def is_named(chunk: Chunk) -> bool:
    """Tell whether a chunk has a name besides its text: an id, a document or a title.

    >>> is_named(Chunk(id=make_content_id("At ten."), text="At ten.")), is_named(Chunk(id="a", text="At ten."))
    (False, True)
    """
    return len(_list_names(chunk)) > 1 or chunk.id != make_content_id(chunk.text)


def _locate_claims(answer: str, cited: CitedText) -> list[str | None]:
    """Return the sentence that each mark stands by: the one around it, else the one before, else the one after.

    A mark at the beginning of a line stands by what follows it.
    """
    plain = blank_citations(answer)
    sentences = split_sentences(plain)
    return [_locate_claim(answer, plain, sentences, mark) for mark in cited.marks]


def _locate_claim(answer: str, plain: str, sentences: Sequence[tuple[int, int]], mark: CitationMark) -> str | None:
    before = [span for span in sentences if span[0] <= mark.start]
    after = [span for span in sentences if span[0] > mark.start]
    line = plain[plain.rfind("\n", 0, mark.start) + 1 : mark.start]
    opens_line = not LIST_MARKER.sub("", line, count=1).strip()
    span = after[0] if opens_line and after else before[-1] if before else after[0] if after else None
    if span is None:
        return None
    marker = LIST_MARKER.match(plain, *span)
    start = marker.end() if marker and marker.end() < span[1] else span[0]
    return answer[start : span[1]].strip()


class MarkDecision:
    """What the marks of a file mean, by their form; made on the first answers, and then applied to all."""

    def __init__(self, notice: Callable[[str], object]) -> None:
        self.notice = notice
        self.is_decided = False
        self.answer_count = 0
        self.meanings: dict[str, LabelMeaning | None] = {}
        self._label_counts: Counter[str] = Counter()
        self._resolved: Counter[tuple[str, LabelMeaning]] = Counter()
        self._shared: Counter[tuple[str, LabelMeaning]] = Counter()
        self._examples: dict[str, str] = {}

    def observe(self, trace: Trace) -> None:
        """Try every meaning on the marks of a trace."""
        cited_sources = list_cited_sources(trace)
        self.answer_count += bool(cited_sources)
        for cited in cited_sources:
            mark = (trace.answer or "")[cited.start : cited.end].strip() or cited.label
            self._examples.setdefault(cited.kind, mark[:60])
            self._label_counts[cited.kind] += 1
            for meaning in MEANING_WORDS:
                chunk = find_cited_chunk(trace, cited, meaning)
                if chunk is not None:
                    self._resolved[cited.kind, meaning] += 1
                    self._shared[cited.kind, meaning] += measure_shared(cited.claim, chunk)  # type: ignore[assignment]

    def decide(self) -> None:
        """Decide what each form of mark means, and state it."""
        self.is_decided = True
        for kind, total in self._label_counts.items():
            if kind not in self.meanings:
                self.meanings[kind] = self._choose_meaning(kind, total)
                self._state(kind)

    def _choose_meaning(self, kind: str, total: int) -> LabelMeaning | None:
        most = max(self._resolved[kind, meaning] for meaning in MEANING_WORDS)
        if most < MIN_RESOLVED * total:
            return None
        equal = [meaning for meaning in MEANING_WORDS if self._resolved[kind, meaning] >= NEARLY_EQUAL * most]
        return max(equal, key=lambda meaning: round(self._shared[kind, meaning], 6))

    def _state(self, kind: str) -> None:
        meaning, example = self.meanings[kind], self._examples[kind]
        if meaning is None:
            as_what = "kept as metadata" if kind == "recorded" else "read neither as citations nor as claims"
            what = "recorded citations" if kind == "recorded" else "marks"
            self.notice(f"{what} such as `{example}` name no chunk: they are {as_what}")
        else:
            where = "recorded citations" if kind == "recorded" else "citations in the text"
            self.notice(f"{where}: `{example}` is {MEANING_WORDS[meaning]}")

    def decide_and_apply(self, traces: Sequence[Trace]) -> Iterator[Trace]:
        """Decide, and yield the traces that waited for it."""
        if traces:
            self.decide()
        yield from map(self.apply, traces)

    def apply(self, trace: Trace) -> Trace:
        """Return the trace with the citations of its text."""
        cited_sources = list_cited_sources(trace)
        if not cited_sources:
            return trace
        if any(cited.kind not in self.meanings for cited in cited_sources):
            # a form that the first answers did not have
            self.observe(trace)
            self.decide()
        if trace.citations:
            return self._name_recorded(trace, cited_sources)
        citations = [citation for cited in cited_sources if (citation := self._resolve(trace, cited)) is not None]
        return replace(trace, citations=tuple(citations)) if citations else trace

    def _name_recorded(self, trace: Trace, cited_sources: Sequence[CitedSource]) -> Trace:
        """Return a trace whose recorded citations name its chunks; what cannot name any becomes metadata."""
        meaning = self.meanings["recorded"]
        if meaning is None:
            labels = [cited.label for cited in cited_sources]
            return replace(trace, citations=None, metadata={"citations": labels, **trace.metadata})
        chunks = [find_cited_chunk(trace, cited, meaning) for cited in cited_sources]
        named = [
            replace(c, chunk=chunk.id) if chunk else c for c, chunk in zip(trace.citations or (), chunks, strict=True)
        ]
        return replace(trace, citations=tuple(named))

    def _resolve(self, trace: Trace, cited: CitedSource) -> Citation | None:
        meaning = self.meanings[cited.kind]
        if meaning is None:
            return None
        chunk = find_cited_chunk(trace, cited, meaning)
        mark = (trace.answer or "")[cited.start : cited.end]
        # a chunk has the same mark: the answer copied it, and it names a source of that chunk
        if chunk is None and any(mark in other.text for other in trace.chunks or ()):
            return None
        name = chunk.id if chunk else cited.label
        return Citation(chunk=name, claim=cited.claim, start=cited.start, end=cited.end)


def find_cited_chunk(trace: Trace, cited: CitedSource, meaning: LabelMeaning) -> Chunk | None:
    """Find the chunk that a label names under a meaning; of several of one document the one nearest to the claim."""
    chunks, label = trace.chunks or (), cited.label
    if meaning == "id":
        matches = [chunk for chunk in chunks if label in _list_labels(chunk)]
    elif meaning in ("position", "index"):
        place = int(label) - (meaning == "position") if label.isdigit() else -1
        matches = [chunks[place]] if 0 <= place < len(chunks) else []
    elif meaning == "document":
        matches = match_names(label, chunks)
    else:
        entries = find_citations(trace.answer or "").sources
        names = [entry.name for entry in entries if entry.label == label]
        matches = [chunk for name in names for chunk in match_names(name, chunks)]
    return max(matches, key=lambda chunk: measure_shared(cited.claim, chunk), default=None)


def _list_labels(chunk: Chunk) -> list[str]:
    """List the id of a chunk, and the marks such as `[2]` under which the generator saw it."""
    marks = (chunk.metadata.get(key) for key in CHUNK_ID_KEYS)
    return [chunk.id, *(mark.strip("[]() ") for mark in marks if isinstance(mark, str))]


def match_names(name: str, chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return the chunks that a name means: their id, document, title or address, in full or without path and page.

    >>> chunks = [Chunk(id="1", document="docs/plan.pdf", metadata={"page": page}) for page in (3, 4)]
    >>> [chunk.metadata["page"] for chunk in match_names("plan.pdf#page=4", chunks)]
    [4]
    """
    link = LINK.search(name)
    options = [*link.groups(), name] if link else [name]
    for reduce in (_normalize_name, _take_base_name, _drop_fragment):
        names = {reduced for option in options if (reduced := reduce(option))}
        matches = [chunk for chunk in chunks if names & {reduce(own) for own in _list_names(chunk)}]
        if matches:
            pages = set(NUMBERS.findall(name.rpartition(".")[2] if reduce is _drop_fragment else ""))
            on_page = [c for c in matches if pages & {str(c.metadata.get(key)) for key in PAGE_KEYS}]
            return on_page or matches
    return []


def name_cited_chunk(citation: Any, chunks: Sequence[dict[str, Any]]) -> Any:
    """Give a recorded citation the id of its chunk, where it has the `place` of the chunk, from 0, or its `document`.

    Of several chunks of one document it is the one that holds the quote, else the one nearest to the quote or claim.
    Without both, the chunk that holds the quote is cited, or one that was not retrieved.

    >>> chunks = [{"id": name, "document": "f", "text": text} for name, text in (("a", "At ten."), ("b", "At six."))]
    >>> name_cited_chunk({"place": 1}, chunks), name_cited_chunk({"document": "f", "quote": "At ten."}, chunks)
    ({'chunk': 'b'}, {'chunk': 'a', 'quote': 'At ten.'})
    """
    if not isinstance(citation, dict) or "chunk" in citation:
        return citation
    rest = {key: item for key, item in citation.items() if key not in ("place", "document")}
    place, document = citation.get("place"), citation.get("document")
    if isinstance(place, int) and 0 <= place < len(chunks):
        return {"chunk": chunks[place]["id"], **rest}
    words = str(rest.get("quote") or rest.get("claim") or "")
    if document is None:
        if place is not None or "quote" not in rest:
            return citation
        quoted = next((chunk["id"] for chunk in chunks if words in (chunk.get("text") or "")), make_content_id(words))
        return {"chunk": quoted, **rest}
    known = [
        Chunk(**{key: chunk[key] for key in ("id", "text", "document", "metadata") if chunk.get(key) is not None})
        for chunk in chunks
    ]
    matches = match_names(str(document), known)
    chunk = max(matches, key=lambda chunk: (words in chunk.text, measure_shared(words, chunk)), default=None)
    return {"chunk": chunk.id if chunk else str(document), **rest}


def _list_names(chunk: Chunk) -> list[str]:
    values = (chunk.metadata.get(key) for key in NAME_KEYS)
    return [chunk.id, *([chunk.document] if chunk.document else []), *(v for v in values if isinstance(v, str))]


def _normalize_name(name: str) -> str:
    return unquote(name).strip(" .\"'*_`").lower()


def _take_base_name(name: str) -> str:
    return _normalize_name(name).rstrip("/").rpartition("/")[2]


def _drop_fragment(name: str) -> str:
    return FRAGMENT.sub("", _take_base_name(name)).strip()


def measure_shared(claim: str | None, chunk: Chunk) -> float:
    """Return the share of the words of a claim that a chunk has, in [0, 1]; 0 without a claim."""
    words = frozenset(split_content_words(claim or ""))
    return len(words.intersection(split_content_words(chunk.text))) / len(words) if words else 0.0


class CitationReader:
    """Reader of the citations of traces that come one by one: what marks mean is decided on all answers so far.

    After as many answers as decide a file, the decision stays.

    >>> chunks = (Chunk(id="a", text="Oslo is old."), Chunk(id="b", text="Bergen is wet."))
    >>> trace = Trace(id="1", query="How is it?", chunks=chunks, answer="Bergen is wet [2].")
    >>> CitationReader(len).read(trace).citations[0].chunk
    'b'
    """

    def __init__(self, notice: Callable[[str], object]) -> None:
        self._decision = MarkDecision(notice)
        self._lock = threading.Lock()

    def read(self, trace: Trace) -> Trace:
        """Return a trace with the citations of its text, if none are recorded."""
        if not list_cited_sources(trace):
            return trace
        with self._lock:
            if self._decision.answer_count < SAMPLE_ANSWERS:
                self._decision.observe(trace)
                self._decision.meanings.clear()
                self._decision.decide()
            return self._decision.apply(trace)
