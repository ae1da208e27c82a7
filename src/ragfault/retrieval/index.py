"""The in-memory index of chunks: BM25 for sparse search, embeddings with exact cosine for dense search."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ragfault.model.errors import InputError, OutputError, RunError, UsageError, require_extra
from ragfault.model.protocols import Embedder
from ragfault.model.records import Chunk
from ragfault.model.rules import check_ids
from ragfault.retrieval.embedders.latent import LatentEmbedder
from ragfault.retrieval.filters import MetadataIndex
from ragfault.retrieval.pipeline import Hits, Query, Stage
from ragfault.retrieval.search import RANK_FUSION, FusionSettings, SearchKind, make_retriever

if TYPE_CHECKING:
    from bm25s import BM25


Array = np.ndarray[Any, Any]


class BM25Index:
    """BM25 (Robertson & Zaragoza 2009) in the variant of Lucene, by bm25s; English stop words do not count.

    Raises MissingExtra without the extra `retrieval`.

    >>> lexicon = BM25Index().fit(["The ferry leaves at ten.", "Dogs need a lead."])
    >>> [bool(score > 0) for score in lexicon.score_texts("When do ferries leave?")]
    [True, False]
    """

    def __init__(self, k1: float = 1.5, b: float = 0.75) -> None:
        self.k1, self.b = k1, b
        self._model: BM25 | None = None
        self._size = 0

    @property
    def fingerprint(self) -> str:
        """Its parameters."""
        return f"bm25/1 k1={self.k1:g} b={self.b:g}"

    def fit(self, texts: Sequence[str]) -> Self:
        """Index the texts."""
        package = _import_bm25s()
        self._size = len(texts)
        self._model = package.BM25(k1=self.k1, b=self.b)
        self._model.index(_tokenize(texts), show_progress=False)
        return self

    def score_texts(self, query: str) -> Array:
        """Return the score of each text; zeros where they share no word with the query."""
        assert self._model is not None
        tokens = _tokenize([query])
        vocabulary = self._model.vocab_dict
        ids = [vocabulary[word] for word in tokens.vocab if word and word in vocabulary]
        if not ids:
            return np.zeros(self._size, np.float32)
        scores: Array = self._model.get_scores_from_ids(ids)
        return scores

    def save(self, folder: Path) -> None:
        """Keep the index in a folder."""
        assert self._model is not None
        self._model.save(str(folder), show_progress=False)

    @classmethod
    def open(cls, folder: Path, size: int) -> BM25Index:
        """Load the index from a folder."""
        model = _import_bm25s().BM25.load(str(folder), show_progress=False, load_vocab=True)
        index = cls(model.k1, model.b)
        index._model, index._size = model, size
        return index


@cache
def _import_bm25s() -> Any:
    with require_extra("the search for words (BM25)", "retrieval"):
        import bm25s
    return bm25s


def _tokenize(texts: Sequence[str]) -> Any:
    from Stemmer import Stemmer

    return _import_bm25s().tokenize(list(texts), stopwords="en", stemmer=Stemmer("english"), show_progress=False)


INDEX_FORMAT = 1
EMBEDDING_BATCH = 512
"""Texts that are embedded together."""


class IndexManifest(Struct, frozen=True, kw_only=True):
    """Build parameters of an index, which must be equal for it to be searched."""

    format: int = INDEX_FORMAT
    embedder: str | None = None
    """The fingerprint of the embedder; None: it is searched by words alone."""
    bm25: str | None = None
    chunker: str = ""
    corpus: str
    """A digest of the chunks."""
    chunks: int


class ChunkIndex:
    """Chunks that can be searched by words (BM25), by meaning (exact cosine), or both.

    >>> chunks = [Chunk(id="a", text="The ferry leaves at ten."), Chunk(id="b", text="Dogs need a lead.")]
    >>> index = ChunkIndex.build(chunks)
    >>> found = index.retrieve("sparse", k=1)(Query(text="When do ferries leave?"), ())
    >>> [(hit.id, hit.score > 0) for hit in found.hits]
    [('a', True)]
    """

    def __init__(
        self,
        chunks: Sequence[Chunk],
        manifest: IndexManifest,
        *,
        bm25: BM25Index | None = None,
        embedder: Embedder | None = None,
        vectors: Array | None = None,
    ) -> None:
        self.chunks, self.manifest = tuple(chunks), manifest
        self._bm25, self._embedder, self._vectors = bm25, embedder, vectors
        self._metadata_index = MetadataIndex(self.chunks)

    @property
    def has_embedder(self) -> bool:
        """True if the index has vectors for semantic search."""
        return self._embedder is not None

    @classmethod
    def build(
        cls,
        chunks: Iterable[Chunk],
        embedder: Embedder | None = None,
        *,
        bm25: BM25Index | None = None,
        chunker: str = "",
    ) -> ChunkIndex:
        """Index chunks: by words always, by meaning where an embedder is given (one that learns is fitted here).

        Raises InputError where there is no chunk, none with text, or two with one id.
        """
        stored = tuple(chunks)
        _check_chunks(stored)
        texts = [chunk.text for chunk in stored]
        bm25 = (bm25 or BM25Index()).fit(texts)
        if isinstance(embedder, LatentEmbedder) and not embedder.fitted:
            embedder.fit(texts)
        vectors = None if embedder is None else _embed_texts(embedder, texts)
        making = IndexManifest(
            embedder=embedder.fingerprint if embedder else None,
            bm25=bm25.fingerprint,
            chunker=chunker,
            corpus=compute_corpus_digest(stored),
            chunks=len(stored),
        )
        return cls(stored, making, bm25=bm25, embedder=embedder, vectors=vectors)

    @property
    def embedder(self) -> Embedder | None:
        """The embedder of the vectors; None: lexical search only."""
        return self._embedder

    @property
    def vectors(self) -> Array | None:
        """The vectors of the chunks, a row each; None without an embedder."""
        return self._vectors

    @property
    def bm25(self) -> BM25Index | None:
        """The index of words."""
        return self._bm25

    def mask_allowed(self, query: Query) -> Array | None:
        """Return a flag for each chunk that meets the conditions of a query; None where all do."""
        return self._metadata_index.mask_allowed(query)

    def retrieve(self, kind: SearchKind = "hybrid", k: int = 100, fusion: FusionSettings = RANK_FUSION) -> Stage:
        """Return the stage that retrieves the best `k` chunks among those that meet the conditions of the query.

        "sparse" scores by BM25, and what shares no word with the query is not found; "dense" by cosine; "hybrid" fuses
        the two as `fusion` says. Several forms of a query are searched apart and fused by
        reciprocal ranks. If no chunk meets the conditions, the result is empty, with a note. Raises UsageError for
        "dense" without an embedder, UnknownName for a condition on a field that no chunk has.
        """
        return make_retriever(self, kind, k, fusion)

    def search(self, kind: SearchKind, text: str, k: int, query: Query) -> Hits:
        """Return the best chunks for a text by one search, among those that meet the conditions of the query."""
        scores = self.score_chunks(kind, text)
        open_ = scores > 0 if kind == "sparse" else np.ones(len(scores), bool)
        allowed = self._metadata_index.mask_allowed(query)
        rows = _select_best(scores, open_ if allowed is None else open_ & allowed, k)
        return tuple(replace(self.chunks[row], score=float(scores[row])) for row in rows)

    def count_matching(self, query: Query) -> int:
        """Count the chunks that meet the conditions of a query."""
        allowed = self._metadata_index.mask_allowed(query)
        return len(self.chunks) if allowed is None else int(allowed.sum())

    def score_chunks(self, kind: SearchKind, text: str) -> Array:
        """Return the score of each chunk for a text: BM25 for "sparse", cosine for "dense"."""
        if kind == "sparse":
            assert self._bm25 is not None
            return self._bm25.score_texts(text)
        assert self._embedder is not None
        assert self._vectors is not None
        return cast(Array, self._vectors @ self._embedder.embed([text], query=True)[0])

    def save(self, folder: str | Path) -> None:
        """Keep the index in a folder: manifest.json, chunks.jsonl, and what searches them.

        Raises OutputError where something other than an index stands there.
        """
        path = Path(folder)
        if path.is_file() or (path.exists() and not (path / "index.json").is_file() and any(path.iterdir())):
            raise OutputError(f"{path} exists and is not an index. Choose another place.")
        # a killed process leaves the old index, or none, and never half of one
        draft = path.with_name(f".{path.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        (draft / "index.json").write_bytes(msgspec.json.format(msgspec.json.encode(self.manifest)))
        (draft / "chunks.jsonl").write_bytes(b"".join(msgspec.json.encode(chunk) + b"\n" for chunk in self.chunks))
        if self._bm25 is not None:
            self._bm25.save(draft / "words")
        if self._vectors is not None:
            np.save(draft / "vectors.npy", self._vectors)
        if isinstance(self._embedder, LatentEmbedder):
            self._embedder.save(draft / "latent.npz")
        shutil.rmtree(path, ignore_errors=True)
        draft.rename(path)

    @classmethod
    def open(cls, folder: str | Path, embedder: Embedder | None = None) -> ChunkIndex:
        """Load the index from a folder; `embedder` must be the one that made it.

        A latent embedder is kept with its index and need not be given. Raises RunError where there is no index, or one
        of a later layout; UsageError where the embedder is another one than made it: the vectors would not fit.
        """
        path = Path(folder)
        making = _read_manifest(path)
        has_latent = (path / "latent.npz").is_file()
        if has_latent and (embedder is None or (isinstance(embedder, LatentEmbedder) and not embedder.fitted)):
            embedder = LatentEmbedder.open(path / "latent.npz")
        if embedder is not None and embedder.fingerprint != making.embedder:
            raise UsageError(
                f"the index {path} was made with {making.embedder or 'no embedder'}, and it cannot be searched with "
                f"{embedder.fingerprint}. Give that embedder, or index the corpus again."
            )
        try:
            lines = (path / "chunks.jsonl").read_bytes().splitlines()
            chunks = tuple(msgspec.json.decode(line, type=Chunk) for line in lines)
            # mapped, so that several processes share the vectors
            vectors = np.load(path / "vectors.npy", mmap_mode="r") if embedder is not None else None
            if compute_corpus_digest(chunks) != making.corpus:
                raise ValueError("its chunks are not those that it was made of")
            lexicon = BM25Index.open(path / "words", len(chunks))
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise RunError(f"the index {path} is damaged ({error}). Index the corpus again.") from error
        return cls(chunks, making, bm25=lexicon, embedder=embedder, vectors=vectors)


def _read_manifest(folder: Path) -> IndexManifest:
    """Load the manifest of the index in a folder."""
    try:
        making = msgspec.json.decode((folder / "index.json").read_bytes(), type=IndexManifest)
    except OSError:
        raise RunError(f"no index at {folder}. Build one and save it there.") from None
    except msgspec.MsgspecError as error:
        raise RunError(f"{folder / 'index.json'} is not the manifest of an index: {error}") from None
    if making.format > INDEX_FORMAT:
        raise RunError(
            f"{folder} has layout {making.format}, this ragfault reads up to {INDEX_FORMAT}. Upgrade ragfault."
        )
    return making


def compute_corpus_digest(chunks: Iterable[Chunk]) -> str:
    """Return a digest of the chunks of a corpus, in order."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(msgspec.json.encode([chunk.id, chunk.text, chunk.metadata]))
    return digest.hexdigest()[:12]


def _check_chunks(chunks: Sequence[Chunk]) -> None:
    if not chunks:
        raise InputError("there is no chunk to index. Is the corpus empty?")
    if not any(chunk.text.strip() for chunk in chunks):
        raise InputError(f"none of {len(chunks):,} chunks has any text: there is nothing to index.")
    check_ids((chunk.id for chunk in chunks), "chunks")


def _embed_texts(embedder: Embedder, texts: Sequence[str]) -> Array:
    rows = [embedder.embed(texts[i : i + EMBEDDING_BATCH]) for i in range(0, len(texts), EMBEDDING_BATCH)]
    return np.concatenate(rows).astype(np.float32, copy=False)


def _select_best(scores: Array, allowed: Array, k: int) -> list[int]:
    """Return the positions of the k greatest scores among the allowed ones; equal scores keep their order."""
    rows = np.flatnonzero(allowed)
    if len(rows) > k:
        # partition before sorting: of a million scores only k are put in order
        values = scores[rows]
        smallest = np.partition(values, len(values) - k)[len(values) - k]
        above, level = rows[values > smallest], rows[values == smallest]
        rows = np.concatenate([above, level[: k - len(above)]])
    order = np.lexsort((rows, -scores[rows]))
    return cast(list[int], rows[order].tolist())
