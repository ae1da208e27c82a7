"""The index: chunks with what finds them again, by words and by meaning."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ragfault.errors import InputError, OutputError, RunError, UsageError
from ragfault.ports import Embedder
from ragfault.records import Chunk
from ragfault.retrieval.catalogue import Catalogue
from ragfault.retrieval.embedders.latent import Latent
from ragfault.retrieval.lexicon import Lexicon
from ragfault.retrieval.records import Hits, Query, Stage
from ragfault.retrieval.retrieving import Kind, retrieving

__all__ = ["Index", "Making", "corpus_digest"]

FORMAT = 1
BATCH = 512
"""Texts that are embedded together."""

Array = np.ndarray[Any, Any]


class Making(Struct, frozen=True, kw_only=True):
    """How an index was made; what must be equal for it to be searched."""

    format: int = FORMAT
    embedder: str | None = None
    """The fingerprint of the embedder; None: it is searched by words alone."""
    lexicon: str | None = None
    chunker: str = ""
    corpus: str
    """A digest of the chunks."""
    chunks: int


class Index:
    """Chunks that can be searched by words (BM25), by meaning (exact cosine), or both.

    >>> chunks = [Chunk(id="a", text="The ferry leaves at ten."), Chunk(id="b", text="Dogs need a lead.")]
    >>> index = Index.build(chunks)
    >>> found = index.retrieve("sparse", k=1)(Query(text="When do ferries leave?"), ())
    >>> [(hit.id, hit.score > 0) for hit in found.hits]
    [('a', True)]
    """

    def __init__(
        self,
        chunks: Sequence[Chunk],
        making: Making,
        *,
        lexicon: Lexicon | None = None,
        embedder: Embedder | None = None,
        vectors: Array | None = None,
    ) -> None:
        self.chunks, self.making = tuple(chunks), making
        self._lexicon, self._embedder, self._vectors = lexicon, embedder, vectors
        self._catalogue = Catalogue(self.chunks)

    @property
    def embeds(self) -> bool:
        """Whether it can be searched by meaning."""
        return self._embedder is not None

    @classmethod
    def build(
        cls,
        chunks: Iterable[Chunk],
        embedder: Embedder | None = None,
        *,
        lexicon: Lexicon | None = None,
        chunker: str = "",
    ) -> Index:
        """Index chunks: by words always, by meaning where an embedder is given (one that learns is fitted here).

        Raises InputError where there is no chunk, none with text, or two with one id.
        """
        held = tuple(chunks)
        _check(held)
        texts = [chunk.text for chunk in held]
        lexicon = (lexicon or Lexicon()).fit(texts)
        if isinstance(embedder, Latent) and not embedder.fitted:
            embedder.fit(texts)
        vectors = None if embedder is None else _embedded(embedder, texts)
        making = Making(
            embedder=embedder.fingerprint if embedder else None,
            lexicon=lexicon.fingerprint,
            chunker=chunker,
            corpus=corpus_digest(held),
            chunks=len(held),
        )
        return cls(held, making, lexicon=lexicon, embedder=embedder, vectors=vectors)

    @property
    def embedder(self) -> Embedder | None:
        """Who makes its vectors; None: it is searched by words alone."""
        return self._embedder

    def retrieve(self, kind: Kind = "hybrid", k: int = 100, **fusion: Any) -> Stage:
        """The stage that finds the best `k` chunks among those that meet the conditions of the query.

        "sparse" scores by BM25, and what shares no word with the query is not found; "dense" by cosine; "hybrid" fuses
        the two (with the options of `fuse`). Several forms of a query are searched apart and fused by reciprocal ranks.
        Where no chunk meets the conditions nothing is found, and a note says so. Raises UsageError for "dense" without
        an embedder, UnknownName for a condition on a field that no chunk has.
        """
        return retrieving(self, kind, k, **fusion)

    def find(self, kind: Kind, text: str, k: int, query: Query) -> Hits:
        """The best chunks for a text by one search, among those that meet the conditions of the query."""
        scores = self.scores(kind, text)
        open_ = scores > 0 if kind == "sparse" else np.ones(len(scores), bool)
        allowed = self._catalogue.allowed(query)
        places = _best(scores, open_ if allowed is None else open_ & allowed, k)
        return tuple(replace(self.chunks[place], score=float(scores[place])) for place in places)

    def meeting(self, query: Query) -> int:
        """How many chunks meet the conditions of a query."""
        allowed = self._catalogue.allowed(query)
        return len(self.chunks) if allowed is None else int(allowed.sum())

    def scores(self, kind: Kind, text: str) -> Array:
        """The score of each chunk for a text: BM25 for "sparse", cosine for "dense"."""
        if kind == "sparse":
            assert self._lexicon is not None
            return self._lexicon.scores(text)
        assert self._embedder is not None
        assert self._vectors is not None
        return cast(Array, self._vectors @ self._embedder.embed([text], query=True)[0])

    def save(self, folder: str | Path) -> None:
        """Keep the index in a folder: manifest.json, chunks.jsonl, and what searches them.

        Raises OutputError where something other than an index stands there.
        """
        place = Path(folder)
        if place.is_file() or (
            place.exists() and not (place / "index.json").is_file() and any(place.iterdir())
        ):
            raise OutputError(f"{place} exists and is not an index. Choose another place.")
        draft = place.with_name(f".{place.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        (draft / "index.json").write_bytes(msgspec.json.format(msgspec.json.encode(self.making)))
        (draft / "chunks.jsonl").write_bytes(
            b"".join(msgspec.json.encode(one) + b"\n" for one in self.chunks)
        )
        if self._lexicon is not None:
            self._lexicon.save(draft / "words")
        if self._vectors is not None:
            np.save(draft / "vectors.npy", self._vectors)
        if isinstance(self._embedder, Latent):
            self._embedder.save(draft / "latent.npz")
        shutil.rmtree(place, ignore_errors=True)
        draft.rename(place)

    @classmethod
    def open(cls, folder: str | Path, embedder: Embedder | None = None) -> Index:
        """The index in a folder, to be searched with the embedder that made it.

        A latent embedder is kept with its index and need not be given. Raises RunError where there is no index, or one
        of a later layout; UsageError where the embedder is another one than made it: the vectors would not fit.
        """
        place = Path(folder)
        making = _making(place)
        held = (place / "latent.npz").is_file()
        if held and (embedder is None or (isinstance(embedder, Latent) and not embedder.fitted)):
            embedder = Latent.open(place / "latent.npz")
        if embedder is not None and embedder.fingerprint != making.embedder:
            raise UsageError(
                f"the index {place} was made with {making.embedder or 'no embedder'}, and it cannot be searched with "
                f"{embedder.fingerprint}. Give that embedder, or index the corpus again."
            )
        try:
            lines = (place / "chunks.jsonl").read_bytes().splitlines()
            chunks = tuple(msgspec.json.decode(line, type=Chunk) for line in lines)
            vectors = np.load(place / "vectors.npy", mmap_mode="r") if embedder is not None else None
            if corpus_digest(chunks) != making.corpus:
                raise ValueError("its chunks are not those that it was made of")
            lexicon = Lexicon.open(place / "words", len(chunks))
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise RunError(f"the index {place} is damaged ({error}). Index the corpus again.") from error
        return cls(chunks, making, lexicon=lexicon, embedder=embedder, vectors=vectors)


def _making(place: Path) -> Making:
    """How the index in a folder was made."""
    try:
        making = msgspec.json.decode((place / "index.json").read_bytes(), type=Making)
    except OSError:
        raise RunError(f"no index at {place}. Build one and save it there.") from None
    except msgspec.MsgspecError as error:
        raise RunError(f"{place / 'index.json'} is not the manifest of an index: {error}") from None
    if making.format > FORMAT:
        raise RunError(
            f"{place} has layout {making.format}, this ragfault reads up to {FORMAT}. Upgrade ragfault."
        )
    return making


def corpus_digest(chunks: Iterable[Chunk]) -> str:
    """Names the chunks of a corpus, in order."""
    whole = hashlib.sha256()
    for chunk in chunks:
        whole.update(msgspec.json.encode([chunk.id, chunk.text, chunk.metadata]))
    return whole.hexdigest()[:12]


def _check(chunks: Sequence[Chunk]) -> None:
    if not chunks:
        raise InputError("there is no chunk to index. Is the corpus empty?")
    if not any(chunk.text.strip() for chunk in chunks):
        raise InputError(f"none of {len(chunks):,} chunks has any text: there is nothing to index.")
    seen: set[str] = set()
    for chunk in chunks:
        if chunk.id in seen:
            raise InputError(f'two chunks have the id "{chunk.id}": give each its own.')
        seen.add(chunk.id)


def _embedded(embedder: Embedder, texts: Sequence[str]) -> Array:
    rows = [embedder.embed(texts[at : at + BATCH]) for at in range(0, len(texts), BATCH)]
    return np.concatenate(rows).astype(np.float32, copy=False)


def _best(scores: Array, open_: Array, k: int) -> list[int]:
    """The places of the k greatest scores among those that are open; equal ones in their order."""
    places = np.flatnonzero(open_)
    if len(places) > k:
        values = scores[places]
        bar = np.partition(values, len(values) - k)[len(values) - k]
        above, level = places[values > bar], places[values == bar]
        places = np.concatenate([above, level[: k - len(above)]])
    order = np.lexsort((places, -scores[places]))
    return cast(list[int], places[order].tolist())
