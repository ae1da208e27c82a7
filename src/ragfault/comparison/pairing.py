"""Pairing of the traces of two runs by id or query, with fingerprints of what each trace holds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import fields, replace
from numpy.typing import NDArray

from ragfault.io.field_values import make_content_id
from ragfault.io.runs.run import Run
from ragfault.io.runs.samples import list_query_ids
from ragfault.labels.correction import Codes
from ragfault.model.errors import RunError
from ragfault.model.records import Gold, Trace
from ragfault.text.markup import strip_markdown

if TYPE_CHECKING:
    import pyarrow as pa

RowIndices = NDArray[np.int64]
Mask = NDArray[np.bool_]

# least share of the smaller run that must pair by id; otherwise queries are used
MIN_PAIRED_SHARE = 0.5
# pairs whose ids show whether they were recorded
MAX_IDS_READ = 100
# what ends a query is no other query
QUERY_ENDS = " ?!.？！。"
# the count of a list that a trace does not record
NOT_RECORDED = -1


class ChunkKey(Struct, frozen=True):
    """A chunk as two runs recognize it."""

    id: str
    # a fingerprint of its text, white space normalized; 0: no text
    text: int
    document: str | None
    start: int | None
    end: int | None
    # characters of its text
    size: int


class RunContents(Struct, frozen=True, eq=False, kw_only=True):
    """Fingerprints of what the traces of a run hold, one value for each trace."""

    queries: RowIndices
    # of the texts of the chunks in their order; an id stands for a chunk without text
    chunks: RowIndices
    # of the answer without Markdown, and the ids and quotes it cites
    answers: RowIndices
    # of the same with the texts of the cited chunks in place of their ids
    answers_by_text: RowIndices
    # of the answer as it is written, with its Markdown
    written: RowIndices
    # of the earlier turns; 0: none recorded
    histories: RowIndices
    # 0: none
    references: RowIndices
    # 0: none
    facts: RowIndices
    # 1: yes, 0: no, NOT_RECORDED
    answerable: RowIndices
    # NOT_RECORDED where they are absent
    chunk_counts: RowIndices
    # NOT_RECORDED where they are absent
    citation_counts: RowIndices
    # characters of the answer; 0 where it is absent
    answer_sizes: RowIndices
    # an answer is recorded, if a blank one
    answered: Mask
    # the answer is absent, empty or white space
    blank: Mask
    errors: Mask
    has_steps: Mask
    # each citation has the claim that it stands by
    has_claims: Mask
    # some citation has a claim, or a quote or a mark that leads to it
    has_quotes: Mask
    # citations are marks in the answer, such as [1], and not recorded apart from it
    has_marks: Mask
    gold: list[Gold | None]
    models: list[str | None]
    # the distinct chunks of the run
    keys: tuple[ChunkKey, ...]
    # the places in `keys` of the chunks of a trace
    trace_keys: list[tuple[int, ...]]
    # kind or name of the step that failed → traces with an error there
    failed_steps: Counter[str]

    @property
    def has_text(self) -> Mask:
        """Return whether some chunk of a trace has text."""
        texts = [key.text != 0 for key in self.keys]
        return np.array([any(texts[at] for at in places) for places in self.trace_keys], dtype=bool)


def has_all_texts(contents: RunContents, other: RunContents) -> Mask:
    """Return whether a trace has text, and lacks none of a chunk whose id has text in the other run."""
    texts = {key.id for key in other.keys if key.text}
    lost = [not key.text and key.id in texts for key in contents.keys]
    incomplete = np.array([any(lost[at] for at in places) for places in contents.trace_keys], dtype=bool)
    present = contents.has_text
    present[incomplete] = False
    return present


class TracePairing(Struct, frozen=True):
    """Paired traces of two runs, as rows of each."""

    # key of the pairing
    paired_by: Literal["id", "query"]
    baseline: RowIndices
    candidate: RowIndices
    clusters: RowIndices | None
    """A code for each pair, shared within a conversation, else by pairs of one query with the same chunks; None: all
    independent. An instruction given with other chunks each time is not one query."""
    # traces without a partner, of the baseline and of the candidate
    unpaired: tuple[int, int]
    same_chunks: Mask
    """Pairs on which both runs retrieved the same texts in the same order. Nothing is known of chunks that are not
    recorded: only where the pipeline failed on both sides are they the same."""
    # pairs with the same recorded answer and the same citations
    same_answers: Mask
    # those of them whose answers are written with other Markdown
    other_form: Mask

    def __len__(self) -> int:
        return len(self.baseline)


def fingerprint(value: Hashable) -> int:
    """Return a fingerprint of a value, never 0; another process has another of the same texts."""
    return hash(value) or 1


def normalize_space(text: str) -> str:
    """Return a text with single spaces for all white space."""
    return " ".join(text.split())


def holds_all_chunks(answer: str, chunks: Sequence[str]) -> bool:
    """Return whether an answer holds the full text of all its chunks, as one that repeats its prompt.

    A single chunk may be the answer.
    """
    plain = normalize_space(answer)
    texts = {text for chunk in chunks if (text := normalize_space(chunk))}
    return len(texts) > 1 and len(answer) >= sum(map(len, texts)) and all(text in plain for text in texts)


class ChunkRow(NamedTuple):
    """The fields of a chunk that a comparison reads: making a `Chunk` of each takes several times as long."""

    id: str
    text: str
    document: str | None
    start: int | None
    end: int | None


TraceChunks = list[Sequence[ChunkRow] | None]
"""The chunks of each trace of a run, equal ones as one object; None: not recorded."""
# of two runs
ChunkPair = tuple[TraceChunks, TraceChunks]


def read_chunks(run: Run) -> TraceChunks:
    """Read the chunks of all traces of a run."""
    from ragfault.io.formats.arrow import list_values, split_values

    # the same chunk is retrieved many times
    known: dict[ChunkRow, ChunkRow] = {}
    lists: TraceChunks = []
    for batch in run.iterate_batches("traces", ["chunks"]):
        chunks = batch.column("chunks").flatten()
        rows = list(map(ChunkRow, *(list_values(chunks.field(name)) for name in ChunkRow._fields)))
        lists += split_values(batch.column("chunks"), map(known.setdefault, rows, rows))
    return lists


def load_texts(run: Run, ids: Collection[str], shortest: bool = False) -> dict[str, str]:
    """Return the first text of each chunk id, or the shortest, white space normalized."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts: dict[str, str] = {}
    names = pa.array(list(ids), pa.string())
    for batch in run.iterate_batches("traces", ["chunks"]):
        chunks = batch.column("chunks").flatten()
        chosen = chunks.filter(pc.is_in(chunks.field("id"), value_set=names))
        for name, text in zip(chosen.field("id").to_pylist(), chosen.field("text").to_pylist(), strict=True):
            if text.strip() and (name not in texts or (shortest and len(text) < len(texts[name]))):
                texts[name] = normalize_space(text)
        if len(texts) == len(names) and not shortest:
            break
    return texts


CONTENT_FIELDS = (
    "history",
    "answer",
    "citations",
    "reference",
    "facts",
    "gold",
    "answerable",
    "steps",
    "error",
    "model",
)
"""Fields of a trace that `read_contents` reads beside the query and the chunks."""


def read_contents(run: Run, chunk_lists: TraceChunks) -> RunContents:
    """Read the fingerprints of all traces of a run, whose chunks were read."""
    places: dict[ChunkKey, int] = {}
    # text → fingerprint
    known: dict[str, int] = {}
    place_by_row: dict[ChunkRow, int] = {}
    for row in dict.fromkeys(chunk for chunks in chunk_lists for chunk in chunks or ()):
        place_by_row[row] = places.setdefault(_identify_chunk(row, known), len(places))
    keys = tuple(places)
    trace_keys = [tuple(place_by_row[chunk] for chunk in chunks or ()) for chunks in chunk_lists]
    columns: defaultdict[str, list[int]] = defaultdict(list)
    gold: list[Gold | None] = []
    models: list[str | None] = []
    failed_steps: Counter[str] = Counter()
    for trace, chunks, own in zip(run.traces(fields=CONTENT_FIELDS), chunk_lists, trace_keys, strict=True):
        gold.append(trace.gold)
        models.append(trace.model)
        # an answer that cites read chunks, whatever the log holds of them
        count = NOT_RECORDED if chunks is None or (not chunks and trace.citations) else len(chunks)
        for name, value in _fingerprint_trace(trace, [keys[at] for at in own], count).items():
            columns[name].append(value)
        if trace.error is not None:
            failed = next((step for step in reversed(trace.steps or ()) if step.error is not None), None)
            failed_steps[(failed.kind or failed.name or "unnamed") if failed else ""] += 1
    arrays = {
        field.name: np.array(columns[field.name], dtype=bool if field.type == Mask else np.int64)
        for field in fields(RunContents)
        if field.type in (Mask, RowIndices)
    }
    return RunContents(**arrays, gold=gold, models=models, keys=keys, trace_keys=trace_keys, failed_steps=failed_steps)


def count_missing_marks(contents: tuple[RunContents, RunContents]) -> tuple[RunContents, RunContents]:
    """Count no citations, in place of citations that are not recorded, where answers are cited by marks in them.

    A run that marks its citations in its answers has no other record of them: an answer without marks cites nothing.
    Without chunks nobody can tell what a mark names.
    """
    if not any(2 * side.has_marks.sum() > max(1, (side.citation_counts > 0).sum()) for side in contents):
        return contents
    old, new = (
        replace(
            side,
            citation_counts=np.where(
                side.answered & (side.chunk_counts > 0), np.maximum(side.citation_counts, 0), side.citation_counts
            ),
        )
        for side in contents
    )
    return old, new


def _identify_chunk(chunk: ChunkRow, known: dict[str, int]) -> ChunkKey:
    if chunk.text not in known:
        text = normalize_space(chunk.text)
        known[chunk.text] = fingerprint(text) if text else 0
    return ChunkKey(chunk.id, known[chunk.text], chunk.document, chunk.start, chunk.end, len(chunk.text))


def _fingerprint_trace(trace: Trace, keys: list[ChunkKey], count: int) -> dict[str, int]:
    citations = trace.citations or ()
    answer = None if trace.answer is None else strip_markdown(trace.answer), trace.citations is None
    # the sentence by a mark in the answer is read off the answer, which counts already
    claims = [item.claim and strip_markdown(item.claim) if item.start is None else None for item in citations]
    by_id = tuple([(item.chunk, item.quote, claim) for item, claim in zip(citations, claims, strict=True)])
    cited_by_id = cited_by_text = fingerprint((*answer, by_id))
    if citations:
        texts = {key.id: key.text or key.id for key in keys}
        by_text = tuple([(texts.get(name, name), quote, claim) for name, quote, claim in by_id])
        cited_by_text = fingerprint((*answer, by_text))
    return {
        "queries": fingerprint(normalize_space(trace.query).casefold().rstrip(QUERY_ENDS)),
        "chunks": fingerprint(tuple([key.text or key.id for key in keys])),
        "answers": cited_by_id,
        "answers_by_text": cited_by_text,
        "written": fingerprint(trace.answer),
        "histories": fingerprint(tuple([(turn.role, turn.text) for turn in trace.history])) if trace.history else 0,
        "references": _fingerprint_texts(trace.references),
        "facts": _fingerprint_texts(trace.facts or ()),
        "answerable": NOT_RECORDED if trace.answerable is None else int(trace.answerable),
        "chunk_counts": count,
        "citation_counts": NOT_RECORDED if trace.citations is None else len(trace.citations),
        "answer_sizes": len(trace.answer or ""),
        "answered": trace.answer is not None,
        "blank": trace.answer is None or not trace.answer.strip(),
        "errors": trace.error is not None,
        "has_steps": bool(trace.steps),
        "has_claims": all(citation.claim for citation in citations),
        "has_quotes": any(citation.claim or citation.quote for citation in citations)
        or any(mark in (trace.answer or "") for c in citations for mark in (f"[{c.chunk}]", f"({c.chunk})", "[1]")),
        "has_marks": any(citation.start is not None for citation in citations),
    }


def _fingerprint_texts(texts: Iterable[str]) -> int:
    """Return a fingerprint of texts in any order; 0 for none."""
    distinct = frozenset(map(normalize_space, texts))
    return fingerprint(distinct) if distinct else 0


def pair_traces(
    baseline: Run, candidate: Run, contents: tuple[RunContents, RunContents], clusters: Codes | None
) -> TracePairing:
    """Pair the traces of two runs: by id where at least half of the smaller run pairs so, else by query.

    All attempts of a query are paired, those of the side with fewer several times: the pairs of a query are one
    cluster, whose difference is that of the means of its attempts. Several other traces of one query pair in their
    order, those without an answer last: where one run has more of them, what has no partner may be attempts that were
    retried. Raises RunError where nothing pairs.
    """
    sides = [_read_names(run) for run in (baseline, candidate)]
    counts = [len(set(table["id"].to_pylist())) for table in sides]
    has_attempts = any(table.num_rows > count for table, count in zip(sides, counts, strict=True))
    least = min(counts)
    silent = contents[0].errors | contents[0].blank, contents[1].errors | contents[1].blank
    for how in ("id", "query"):
        old_keys, new_keys = (table[how].to_pylist() for table in sides)
        left, right = _match_keys(old_keys, new_keys, silent, has_attempts)
        if len(set(left.tolist())) >= (MIN_PAIRED_SHARE * least if how == "id" else 1):
            break
    if not len(left):
        raise RunError(
            f"no trace of {candidate.path} has the id or the query of a trace of {baseline.path}. "
            "Compare runs over the same queries."
        )
    old, new = contents
    failed = old.errors[left] & new.errors[right]
    chunks_known = (old.chunk_counts[left] != NOT_RECORDED) & (new.chunk_counts[right] != NOT_RECORDED)
    same_answers = old.answers[left] == new.answers[right]
    same_answers |= old.answers_by_text[left] == new.answers_by_text[right]
    same_answers &= (old.answered[left] & new.answered[right]) | failed
    return TracePairing(
        paired_by="id" if how == "id" and not _have_ids_of_queries(sides, (left, right)) else "query",
        baseline=left,
        candidate=right,
        clusters=clusters[left] if clusters is not None else left if has_attempts else None,
        unpaired=(sides[0].num_rows - len(set(left.tolist())), sides[1].num_rows - len(set(right.tolist()))),
        same_chunks=(old.chunks[left] == new.chunks[right]) & (chunks_known | failed),
        same_answers=same_answers,
        other_form=same_answers & (old.written[left] != new.written[right]),
    )


def _read_names(run: Run) -> pa.Table:
    """Read the id of the query, and the query, of each trace."""
    import pyarrow as pa

    batches = list(run.iterate_batches("traces", ["id", "query", "attempt"]))
    queries = [text for batch in batches for text in batch.column("query").to_pylist()]
    ids = [name for batch in batches for name in list_query_ids(batch).to_pylist()]
    return pa.table({"id": pa.array(ids, pa.string()), "query": pa.array(queries, pa.string())})


def _have_ids_of_queries(tables: Sequence[pa.Table], rows: Sequence[RowIndices]) -> bool:
    """Return whether the ids of the first pairs were made from their queries on both sides: none was recorded."""
    for table, chosen in zip(tables, rows, strict=True):
        part = table.take(chosen[:MAX_IDS_READ])
        ids, queries = (part[name].to_pylist() for name in ("id", "query"))
        if not all(id.startswith(make_content_id(query, "q-")) for id, query in zip(ids, queries, strict=True)):
            return False
    return True


def _match_keys(
    baseline_keys: list[str], candidate_keys: list[str], silent: tuple[Mask, Mask], cycled: bool
) -> tuple[RowIndices, RowIndices]:
    """Return the rows with equal keys; repeated keys pair in order, the rows that are silent last.

    If `cycled`, the rows of the side with fewer of a key are paired again until all rows have a partner.
    """
    sides = []
    for keys, last in zip((baseline_keys, candidate_keys), silent, strict=True):
        places: defaultdict[str, list[int]] = defaultdict(list)
        for row in np.argsort(last, kind="stable").tolist():
            places[keys[row]].append(row)
        sides.append(places)
    old, new = sides
    pairs = sorted(pair for key in old if key in new for pair in _pair_rows(old[key], new[key], cycled))
    rows = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return rows[:, 0], rows[:, 1]


def _pair_rows(old: list[int], new: list[int], cycled: bool) -> list[tuple[int, int]]:
    count = max(len(old), len(new)) if cycled else min(len(old), len(new))
    return [(old[place % len(old)], new[place % len(new)]) for place in range(count)]
