"""The cache of a tuning run: chunks, indexes and stage outputs on disk, each with the time that it took."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from ragfault.errors import InputError, RunError
from ragfault.records import Chunk, Document
from ragfault.retrieval.chunking import load_chunker
from ragfault.retrieval.index import ChunkIndex
from ragfault.retrieval.pipeline import Query
from ragfault.retrieval.pipeline_config import NO_EMBEDDER, PipelineConfig, load_config_embedder
from ragfault.version import __version__


class CachedStep(Struct, frozen=True):
    """What the stages until here made of a question."""

    places: tuple[int, ...]
    """The chunks that were found, by their places in the index."""
    scores: tuple[float | None, ...]
    ms: float
    """What the last of these stages took."""
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
    """A folder in which everything lies under the digest of what it was made from, and memory in front of it.

    What was made from another corpus, by another embedder or another version of ragfault has another name, and is
    never found.
    """

    def __init__(self, folder: Path | None, documents: Sequence[Document]) -> None:
        seen: set[str] = set()
        for document in documents:
            if document.id in seen:
                raise InputError(f'two documents have the id "{document.id}": give each its own.')
            seen.add(document.id)
        if not documents:
            raise InputError("the corpus holds no document.")
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
        return digest_texts(
            self.corpus_digest, config.chunker, embedder.fingerprint if embedder else NO_EMBEDDER
        )

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
        place = self.folder / "index" / key
        try:
            index = ChunkIndex.open(place, load_config_embedder(config))
            seconds = float((place / "seconds.txt").read_text(encoding="ascii"))
        except (RunError, OSError, ValueError):
            shutil.rmtree(place)
            return None
        return BuiltIndex(index, seconds)

    def _build_index(self, key: str, config: PipelineConfig) -> BuiltIndex:
        chunks, cutting = self.chunk_documents(config.chunker)
        start = time.perf_counter()
        index = ChunkIndex.build(chunks, load_config_embedder(config), chunker=config.chunker)
        seconds = cutting + time.perf_counter() - start
        if self.folder is not None:
            place = self.folder / "index" / key
            draft = place.with_name(f"{key}.draft")
            draft.parent.mkdir(parents=True, exist_ok=True)
            index.save(draft)
            (draft / "seconds.txt").write_text(f"{seconds:.6f}", encoding="ascii")
            shutil.rmtree(place, ignore_errors=True)
            draft.rename(place)
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
            return msgspec.msgpack.decode(
                (self.folder / "steps" / key).read_bytes(), type=dict[str, CachedStep]
            )
        except (OSError, msgspec.MsgspecError):
            return {}

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
        """Make the indexes of recipes that are not there yet, on so many processes."""
        if workers < 2 or self.folder is None:
            return
        missing = {self.compute_index_key(recipe): recipe for recipe in configs if not self.has_index(recipe)}
        if len(missing) < 2:
            return
        from concurrent.futures import ProcessPoolExecutor
        from concurrent.futures.process import BrokenProcessPool
        from multiprocessing import get_context

        # A pool that breaks has made nothing that this process cannot make itself, or say why not.
        size = min(workers, len(missing))
        with suppress(BrokenProcessPool), ProcessPoolExecutor(size, mp_context=get_context("spawn")) as pool:
            for done in [
                pool.submit(_build_in_process, self.folder, self.documents, config)
                for config in missing.values()
            ]:
                done.result()


def _build_in_process(folder: Path, documents: Sequence[Document], config: PipelineConfig) -> None:
    """Make one index, in a process of its own."""
    TuningCache(folder, documents).get_index(config)
