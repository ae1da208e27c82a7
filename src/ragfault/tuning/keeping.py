"""What a tuning keeps on disk: chunks, indexes, and what stages found, each with the time that it took."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from ragfault import __version__
from ragfault.errors import InputError, RunError
from ragfault.records import Chunk, Document
from ragfault.retrieval.chunking import chunker
from ragfault.retrieval.index import Index
from ragfault.retrieval.recipes import NOTHING, Recipe, embedder_of
from ragfault.retrieval.records import Query

__all__ = ["Built", "Step", "Store", "digest"]


class Step(Struct, frozen=True):
    """What the stages until here made of a question."""

    places: tuple[int, ...]
    """The chunks that were found, by their places in the index."""
    scores: tuple[float | None, ...]
    ms: float
    """What the last of these stages took."""
    query: Query | None = None
    """The query as the stages left it, where they changed it."""


class Built(Struct, frozen=True):
    """An index and the seconds that cutting and embedding took."""

    index: Index
    seconds: float


def digest(*parts: str) -> str:
    """A short name for texts.

    >>> digest("a", "b") != digest("ab")
    True
    """
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


class Store:
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
        whole = hashlib.sha256(__version__.encode())
        for document in documents:
            whole.update(msgspec.json.encode(document))
        self.corpus = whole.hexdigest()[:16]
        self._built: dict[str, Built] = {}
        self._chunks: dict[str, tuple[tuple[Chunk, ...], float]] = {}
        self._steps: dict[str, dict[str, Step]] = {}
        self._new: set[str] = set()

    def key(self, recipe: Recipe) -> str:
        """The name of the index of a recipe."""
        made = embedder_of(recipe) if recipe.embedder != NOTHING else None
        return digest(self.corpus, recipe.chunker, made.fingerprint if made else NOTHING)

    def built(self, recipe: Recipe) -> Built:
        """The index of a recipe, made where it is not there yet."""
        key = self.key(recipe)
        if key not in self._built:
            self._built[key] = self._open(key, recipe) or self._build(key, recipe)
        return self._built[key]

    def has(self, recipe: Recipe) -> bool:
        """Whether the index of a recipe is there already."""
        key = self.key(recipe)
        return key in self._built or (self.folder is not None and (self.folder / "index" / key).is_dir())

    def _open(self, key: str, recipe: Recipe) -> Built | None:
        if self.folder is None or not (self.folder / "index" / key).is_dir():
            return None
        place = self.folder / "index" / key
        try:
            index = Index.open(place, embedder_of(recipe))
            seconds = float((place / "seconds.txt").read_text(encoding="ascii"))
        except (RunError, OSError, ValueError):
            shutil.rmtree(place)
            return None
        return Built(index, seconds)

    def _build(self, key: str, recipe: Recipe) -> Built:
        chunks, cutting = self.chunks(recipe.chunker)
        start = time.perf_counter()
        index = Index.build(chunks, embedder_of(recipe), chunker=recipe.chunker)
        seconds = cutting + time.perf_counter() - start
        if self.folder is not None:
            place = self.folder / "index" / key
            draft = place.with_name(f"{key}.draft")
            draft.parent.mkdir(parents=True, exist_ok=True)
            index.save(draft)
            (draft / "seconds.txt").write_text(f"{seconds:.6f}", encoding="ascii")
            shutil.rmtree(place, ignore_errors=True)
            draft.rename(place)
        return Built(index, seconds)

    def chunks(self, text: str) -> tuple[tuple[Chunk, ...], float]:
        """The chunks that a chunker cuts, and the seconds that it took."""
        if text not in self._chunks:
            cut = chunker(text)
            start = time.perf_counter()
            made = tuple(chunk for document in self.documents for chunk in cut(document))
            if not any(chunk.text.strip() for chunk in made):
                raise InputError(
                    f"no document of the corpus has any text: {text} cut {len(self.documents):,} documents to nothing."
                )
            self._chunks[text] = (made, time.perf_counter() - start)
        return self._chunks[text]

    def steps(self, key: str) -> dict[str, Step]:
        """Query → what the stages of that key made of it; an id may stand for another query the next time."""
        if key not in self._steps:
            self._steps[key] = self._read(key)
        return self._steps[key]

    def put(self, key: str, query: str, step: Step) -> None:
        """Keep what stages made of a query."""
        self.steps(key)[query] = step
        self._new.add(key)

    def _read(self, key: str) -> dict[str, Step]:
        if self.folder is None or not (self.folder / "steps" / key).is_file():
            return {}
        try:
            return msgspec.msgpack.decode((self.folder / "steps" / key).read_bytes(), type=dict[str, Step])
        except (OSError, msgspec.MsgspecError):
            return {}

    def flush(self) -> None:
        """Write what is new."""
        if self.folder is not None and self._new:
            (self.folder / "steps").mkdir(parents=True, exist_ok=True)
            for key in self._new:
                draft = self.folder / "steps" / f".{key}"
                draft.write_bytes(msgspec.msgpack.encode(self._steps[key]))
                draft.replace(self.folder / "steps" / key)
        self._new.clear()

    def prepare(self, recipes: Iterable[Recipe], workers: int) -> None:
        """Make the indexes of recipes that are not there yet, on so many processes."""
        if workers < 2 or self.folder is None:
            return
        wanted = {self.key(recipe): recipe for recipe in recipes if not self.has(recipe)}
        if len(wanted) < 2:
            return
        from concurrent.futures import ProcessPoolExecutor
        from concurrent.futures.process import BrokenProcessPool
        from multiprocessing import get_context

        # A pool that breaks has made nothing that this process cannot make itself, or say why not.
        size = min(workers, len(wanted))
        with suppress(BrokenProcessPool), ProcessPoolExecutor(size, mp_context=get_context("spawn")) as pool:
            for done in [pool.submit(_alone, self.folder, self.documents, one) for one in wanted.values()]:
                done.result()


def _alone(folder: Path, documents: Sequence[Document], recipe: Recipe) -> None:
    """Make one index, in a process of its own."""
    Store(folder, documents).built(recipe)
