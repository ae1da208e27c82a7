"""Trials: configurations run on questions, with chunks, indexes and results cached."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ragfault.apps.tune.results import QuestionOutcome, TuningQuestion
from ragfault.executors import ProcessExecutor
from ragfault.metrics.aliases import resolve_alias
from ragfault.metrics.catalog import Metric, compute_score, parse_metric
from ragfault.model.errors import InputError, RagfaultError, RunError, StageFailed, UsageError
from ragfault.model.grouping import group_by
from ragfault.model.protocols import Executor
from ragfault.model.records import Chunk, Document, Gold, Span, Trace, Verdicts
from ragfault.model.version import __version__
from ragfault.retrieval.chunking.chunker import load_chunker
from ragfault.retrieval.index import ChunkIndex
from ragfault.retrieval.pipeline import Query, Stage, StageResult
from ragfault.retrieval.pipeline_config import NO_EMBEDDER, PipelineConfig, check_corpus, load_config_embedder
from ragfault.retrieval.selection import ELLIPSIS
from ragfault.retrieval.stage_registry import get_stage_kind, make_stage


class CachedStep(Struct, frozen=True):
    """Result of the first stages of a pipeline on a question."""

    places: tuple[int, ...]
    """The chunks that were found, by their places in the index."""
    scores: tuple[float | None, ...]
    ms: float
    """Duration of the last of these stages."""
    query: Query | None = None
    """The query as the stages left it, where they changed it."""


class BuiltIndex(Struct, frozen=True):
    """An index and the seconds that cutting and embedding took."""

    index: ChunkIndex
    seconds: float


def digest_texts(*parts: str) -> str:
    """Return a short digest of texts.

    >>> digest_texts("a", "b") != digest_texts("ab")
    True
    """
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


class TuningCache:
    """Cache of indexes and results of stages, in memory and in a folder, by the digest of their inputs.

    The digest covers the corpus, the embedder and the version of ragfault: a result of others is never used.
    """

    def __init__(self, folder: Path | None, documents: Sequence[Document]) -> None:
        check_corpus(documents)
        self.folder, self.documents = folder, tuple(documents)
        digest = hashlib.sha256(__version__.encode())
        for document in documents:
            digest.update(msgspec.json.encode(document))
        self.corpus_digest = digest.hexdigest()[:16]
        self._indexes: dict[str, BuiltIndex] = {}
        self._chunks: dict[str, tuple[tuple[Chunk, ...], float]] = {}
        self._steps: dict[str, dict[str, CachedStep]] = {}
        self._unsaved: set[str] = set()

    def compute_index_key(self, config: PipelineConfig) -> str:
        """Return the key of the index of a configuration."""
        embedder = load_config_embedder(config) if config.embedder != NO_EMBEDDER else None
        return digest_texts(self.corpus_digest, config.chunker, embedder.fingerprint if embedder else NO_EMBEDDER)

    def get_index(self, config: PipelineConfig) -> BuiltIndex:
        """Return the index of a configuration; build it where it is missing."""
        key = self.compute_index_key(config)
        if key not in self._indexes:
            self._indexes[key] = self._open_index(key, config) or self._build_index(key, config)
        return self._indexes[key]

    def has_index(self, config: PipelineConfig) -> bool:
        """Return True where the index of a configuration exists."""
        key = self.compute_index_key(config)
        return key in self._indexes or (self.folder is not None and (self.folder / "index" / key).is_dir())

    def _open_index(self, key: str, config: PipelineConfig) -> BuiltIndex | None:
        if self.folder is None or not (self.folder / "index" / key).is_dir():
            return None
        path = self.folder / "index" / key
        try:
            index = ChunkIndex.open(path, load_config_embedder(config))
            seconds = float((path / "seconds.txt").read_text(encoding="ascii"))
        except (RunError, OSError, ValueError):
            shutil.rmtree(path)
            return None
        return BuiltIndex(index, seconds)

    def _build_index(self, key: str, config: PipelineConfig) -> BuiltIndex:
        chunks, cutting = self.chunk_documents(config.chunker)
        start = time.perf_counter()
        index = ChunkIndex.build(chunks, load_config_embedder(config), chunker=config.chunker)
        seconds = cutting + time.perf_counter() - start
        if self.folder is not None:
            path = self.folder / "index" / key
            draft = path.with_name(f"{key}.draft")
            draft.parent.mkdir(parents=True, exist_ok=True)
            index.save(draft)
            (draft / "seconds.txt").write_text(f"{seconds:.6f}", encoding="ascii")
            shutil.rmtree(path, ignore_errors=True)
            draft.rename(path)
        return BuiltIndex(index, seconds)

    def chunk_documents(self, chunker: str) -> tuple[tuple[Chunk, ...], float]:
        """Return the chunks by a chunker, and the seconds that it took."""
        if chunker not in self._chunks:
            cut = load_chunker(chunker)
            start = time.perf_counter()
            chunks = tuple(chunk for document in self.documents for chunk in cut(document))
            if not any(chunk.text.strip() for chunk in chunks):
                raise InputError(
                    f"no document of the corpus has text: {chunker} made no chunk of {len(self.documents):,} documents."
                )
            self._chunks[chunker] = (chunks, time.perf_counter() - start)
        return self._chunks[chunker]

    def get_steps(self, key: str) -> dict[str, CachedStep]:
        """Query → what the stages of that key made of it; an id may stand for another query the next time."""
        if key not in self._steps:
            self._steps[key] = self._read_steps(key)
        return self._steps[key]

    def put_step(self, key: str, query: str, step: CachedStep) -> None:
        """Keep what stages made of a query."""
        self.get_steps(key)[query] = step
        self._unsaved.add(key)

    def _read_steps(self, key: str) -> dict[str, CachedStep]:
        if self.folder is None or not (self.folder / "steps" / key).is_file():
            return {}
        try:
            return msgspec.msgpack.decode((self.folder / "steps" / key).read_bytes(), type=dict[str, CachedStep])
        except (OSError, msgspec.MsgspecError):
            return {}

    def take_unsaved(self, queries: Iterable[str]) -> dict[str, dict[str, CachedStep]]:
        """Return what stages with new results made of some queries, and count it as saved."""
        known = list(queries)
        steps = {key: {query: self._steps[key][query] for query in known} for key in self._unsaved}
        self._unsaved.clear()
        return steps

    def flush(self) -> None:
        """Write what is new."""
        if self.folder is not None and self._unsaved:
            (self.folder / "steps").mkdir(parents=True, exist_ok=True)
            for key in self._unsaved:
                draft = self.folder / "steps" / f".{key}"
                draft.write_bytes(msgspec.msgpack.encode(self._steps[key]))
                draft.replace(self.folder / "steps" / key)
        self._unsaved.clear()

    def prebuild_indexes(self, configs: Iterable[PipelineConfig], workers: int) -> None:
        """Build the missing indexes of some configurations, in several processes."""
        if workers < 2 or self.folder is None:
            return
        missing = {self.compute_index_key(config): config for config in configs if not self.has_index(config)}
        if len(missing) < 2:
            return
        task = partial(_build_in_process, self.folder, self.documents)
        # A pool that breaks has made nothing that this process cannot make itself, or say why not.
        with suppress(RunError):
            list(ProcessExecutor(min(workers, len(missing))).map_unordered(task, missing.values()))


def _build_in_process(folder: Path, documents: Sequence[Document], config: PipelineConfig) -> None:
    """Build one index, in a separate process."""
    TuningCache(folder, documents).get_index(config)


MIN_GOLD_SHARE = 0.5
"""A chunk that was compressed counts as what it was while it holds this share of the gold that it held."""
CHARACTERS_PER_TOKEN = 4
"""Characters to a token."""


def parse_tuning_metric(text: str) -> Metric:
    """Parse a metric for tuning: computed from chunks and gold alone, higher is better.

    Raises UnknownName for one that does not exist, UsageError for one that needs an answer or a judge.

    >>> str(parse_tuning_metric("ndcg@10"))
    'ndcg@10'
    """
    metric = parse_metric(resolve_alias(text))
    definition = metric.definition
    if definition.verdicts or definition.better != "higher" or not {*definition.fields} <= {"chunks", "gold"}:
        raise UsageError(
            f"{text} cannot be tuned: retrieval is tuned by a metric of chunks and gold, such as ndcg@10, recall@5, "
            "reciprocal_rank, span_recall or span_iou."
        )
    return metric


def grade_chunks(spans: Iterable[Span], chunks: Iterable[Chunk]) -> dict[str, float]:
    """Return the grade of each chunk with gold: the grade of each span times its share within the chunk.

    >>> spans = [Span(document="d", start=0, end=10), Span(document="d", start=20, end=30)]
    >>> cut = [Chunk(id="a", document="d", start=0, end=25), Chunk(id="b", document="d", start=25, end=50)]
    >>> grade_chunks(spans, cut)
    {'a': 1.5, 'b': 0.5}
    """
    grades: dict[str, float] = {}
    remaining = list(spans)
    for chunk in chunks:
        grade = sum(span.grade * _count_shared(chunk, span) / (span.end - span.start) for span in remaining)
        if grade > 0:
            grades[chunk.id] = grade
    return grades


def _count_shared(chunk: Chunk, span: Span) -> int:
    """Count the characters that a chunk and a span share."""
    if chunk.document != span.document or chunk.start is None or chunk.end is None:
        return 0
    return max(0, min(chunk.end, span.end) - max(chunk.start, span.start))


def locate_compressed(compressed: Chunk, original: Chunk) -> tuple[Chunk, ...]:
    """Return the spans of a chunk that remain after compression, as offsets in the document.

    >>> whole = Chunk(id="a", text="One. Two. Three.", document="d", start=100, end=116)
    >>> [(part.start, part.end) for part in locate_compressed(replace(whole, text="One. … Three."), whole)]
    [(100, 104), (110, 116)]
    """
    if compressed.text == original.text or original.start is None:
        return (original,)
    spans, position = [], 0
    for text in compressed.text.split(ELLIPSIS):
        start = original.text.find(text, position)
        if start < 0:
            return (compressed,)
        position = start + len(text)
        spans.append(replace(original, text=text, start=original.start + start, end=original.start + position))
    return tuple(spans)


class HitGrader:
    """Computes the outcome of traces: the metric that is tuned, and recall, precision and overlap beside it."""

    def __init__(self, metric: Metric, chunks: Sequence[Chunk]) -> None:
        self._metric = metric
        self.chunk_places = {chunk.id: i for i, chunk in enumerate(chunks)}
        self._chunks = {chunk.id: chunk for chunk in chunks}
        self._chunks_by_document = group_by(chunks, lambda chunk: chunk.document or chunk.id)
        self._gold: dict[str, Gold] = {}

    def grade_hits(self, question: TuningQuestion, hits: Sequence[Chunk], ms: float) -> QuestionOutcome:
        """Return the outcome of hits for a question; a metric undefined despite gold counts as its least value."""
        tokens = sum(len(hit.text) for hit in hits) / CHARACTERS_PER_TOKEN
        if not question.gold.spans:
            return self._grade_documents(question, hits, ms, tokens)
        gold = self.resolve_gold(question)
        parts = [locate_compressed(hit, self._chunks.get(hit.id, hit)) for hit in hits]
        ranked = tuple(self._rename_cut_hit(hit, left, question) for hit, left in zip(hits, parts, strict=True))
        spread = Trace(id="", query="", gold=gold, chunks=tuple(part for hit_parts in parts for part in hit_parts))
        retrieved = {
            name: _compute_value(parse_metric(f"span_{name}"), spread) for name in ("recall", "precision", "iou")
        }
        by_span = self._metric.name.startswith("span_")
        value = _compute_value(self._metric, spread if by_span else Trace(id="", query="", gold=gold, chunks=ranked))
        return QuestionOutcome(value=value, ms=ms, tokens=tokens, **retrieved)

    def resolve_gold(self, question: TuningQuestion) -> Gold:
        """Return the gold of a question as grades of these chunks."""
        if question.id not in self._gold:
            overlapping = [
                chunk
                for name in dict.fromkeys(span.document for span in question.gold.spans)
                for chunk in self._chunks_by_document.get(name, ())
            ]
            grades = grade_chunks(question.gold.spans, overlapping)
            self._gold[question.id] = Gold(chunks=grades, spans=question.gold.spans)
        return self._gold[question.id]

    def _rename_cut_hit(self, hit: Chunk, parts: Sequence[Chunk], question: TuningQuestion) -> Chunk:
        """Return the hit, under another id where compression removed its gold."""
        before = self.resolve_gold(question).chunks.get(hit.id, 0.0)
        if not before or (len(parts) == 1 and parts[0] is self._chunks.get(hit.id)):
            return hit
        after = sum(grade_chunks(question.gold.spans, [part]).get(hit.id, 0.0) for part in parts)
        return hit if after >= MIN_GOLD_SHARE * before else replace(hit, id=f"{hit.id} (cut)")

    def _grade_documents(
        self, question: TuningQuestion, hits: Sequence[Chunk], ms: float, tokens: float
    ) -> QuestionOutcome:
        """Grade hits by documents: each document counts at its first chunk."""
        names = dict.fromkeys(hit.document or hit.id for hit in hits)
        trace = Trace(id="", query="", gold=question.gold, chunks=tuple(Chunk(id=name) for name in names))
        recall, precision = (_compute_value(parse_metric(name), trace) for name in ("recall", "precision"))
        both = recall + precision - recall * precision
        iou = recall * precision / both if both else 0.0
        return QuestionOutcome(_compute_value(self._metric, trace), recall, precision, iou, ms, tokens)


def _compute_value(metric: Metric, trace: Trace) -> float:
    """Return the metric on a trace; its least value where it is undefined."""
    row = compute_score(metric, trace, Verdicts(trace=trace.id))
    if row.value is not None:
        return row.value
    if row.status == "failed":
        raise UsageError(f"{metric} cannot be computed: {row.reason}.")
    low: float = metric.range[0]
    return low


UNMEASURED_KINDS = ("reorder",)
"""Steps that serve the generator: they leave the same chunks, and what they do no metric of retrieval can see."""
REWRITING_KINDS = ("compress",)
"""Steps that change texts, so that places in the index do not tell what they left."""


class SearchBudgetSpent(Exception):
    """The budget is spent; caught where the search is, and never seen outside."""


class TrialRunner:
    """Runs configurations on questions. What two of them share is computed once, and its time is charged once."""

    def __init__(self, cache: TuningCache, metric: Metric, executor: Executor | None = None) -> None:
        self.cache, self.metric, self.executor = cache, metric, executor
        self.deadline: float | None = None
        """End of the search, on the clock of `time.monotonic`."""
        self.computed_seconds: dict[str, float] = {}
        """Cache key → the seconds that its computation takes without the cache."""
        self.outcomes: dict[str, dict[str, QuestionOutcome]] = {}
        self.configs: dict[str, PipelineConfig] = {}
        self.tick: Callable[[], None] = lambda: None
        self._graders: dict[str, HitGrader] = {}
        self._stages: dict[str, Stage] = {}

    @property
    def uncached_seconds(self) -> float:
        """Seconds that all of it takes where nothing is kept from before."""
        return sum(self.computed_seconds.values())

    def measure(self, config: PipelineConfig, questions: Sequence[TuningQuestion]) -> list[QuestionOutcome]:
        """Return the outcome of each question. Raises SearchBudgetSpent after the deadline, StageFailed."""
        outcomes = self.outcomes.setdefault(config.name, {})
        self.configs[config.name] = config
        if all(question.id in outcomes for question in questions):
            return [outcomes[question.id] for question in questions]
        self.check_deadline()
        key = self.cache.compute_index_key(config)
        built = self.cache.get_index(config)
        self.computed_seconds.setdefault(key, built.seconds)
        if key not in self._graders:
            self._graders[key] = HitGrader(self.metric, built.index.chunks)
        for question in questions:
            if question.id not in outcomes:
                self.check_deadline()
                outcomes[question.id] = self._run_question(config, key, question)
        return [outcomes[question.id] for question in questions]

    def check_deadline(self) -> None:
        """Raise SearchBudgetSpent after the deadline."""
        self.tick()
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise SearchBudgetSpent

    def _run_question(self, config: PipelineConfig, key: str, question: TuningQuestion) -> QuestionOutcome:
        """Run one question through all stages, starting from the cached ones."""
        index = self.cache.get_index(config).index
        state, ms, digest = StageResult(Query(text=question.query)), 0.0, key
        keeps_query = True
        for text in config.stages.values():
            step = get_stage_kind(text)
            if step in UNMEASURED_KINDS:
                continue
            digest = digest_texts(digest, text)
            keeps_query = keeps_query and step not in REWRITING_KINDS
            cached = self.cache.get_steps(digest).get(question.query) if keeps_query else None
            if cached is not None:
                hits = tuple(
                    replace(index.chunks[i], score=score) for i, score in zip(cached.places, cached.scores, strict=True)
                )
                state, took = StageResult(cached.query or state.query, hits), cached.ms
            else:
                state, took = self._run_stage(digest, text, index, state)
                if keeps_query:
                    self._cache_step(digest, question, state, took, key)
            self.computed_seconds[f"{digest} {question.id}"] = took / 1000
            ms += took
        return self._graders[key].grade_hits(question, state.hits, ms)

    def _run_stage(self, key: str, expression: str, index: ChunkIndex, state: StageResult) -> tuple[StageResult, float]:
        """Run one stage on one query; return its result and milliseconds."""
        if key not in self._stages:
            self._stages[key] = make_stage(expression, index)
        start = time.perf_counter()
        try:
            result = self._stages[key](state.query, state.hits)
        except RagfaultError:
            raise
        except Exception as error:
            raise StageFailed(
                f'the stage "{expression}" failed on the query "{state.query.text[:80]}": '
                f"{type(error).__name__}: {error}"
            ) from error
        took = 1000 * (time.perf_counter() - start)
        if len(result[0].failures) > len(state.query.failures):
            # What passes in a search would here be measured, and kept, as what the stage is worth.
            raise StageFailed(
                f'the stage "{expression}" failed on the query "{state.query.text[:80]}": {result[0].failures[-1]}'
            )
        return StageResult(*result), took

    def _cache_step(self, step_key: str, question: TuningQuestion, state: StageResult, ms: float, key: str) -> None:
        where = self._graders[key].chunk_places
        changed = state.query != Query(text=question.query)
        rows = tuple(where[hit.id] for hit in state.hits)
        scores = tuple(hit.score for hit in state.hits)
        self.cache.put_step(step_key, question.query, CachedStep(rows, scores, ms, state.query if changed else None))
