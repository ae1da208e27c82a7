"""Vector stores: each returns what exact search returns on few chunks, and what one misses is counted."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from ragfault.cli.commands import run_command
from ragfault.model.errors import InputError, MissingExtra, OutputError, UnknownName, UsageError
from ragfault.model.records import Chunk
from ragfault.retrieval.embedders.latent import LatentEmbedder
from ragfault.retrieval.filters import require_metadata
from ragfault.retrieval.index import ChunkIndex
from ragfault.retrieval.pipeline import Query
from ragfault.retrieval.stage_registry import make_stage
from ragfault.retrieval.stores.loss import measure_store_loss
from ragfault.retrieval.stores.memory import MemoryStore
from ragfault.retrieval.stores.store_index import StoreIndex, load_store

LIBRARIES = {"qdrant": "qdrant_client", "chroma": "chromadb", "milvus": "milvus_lite", "lance": "lancedb"}
POSTGRES = os.environ.get("RAGFAULT_TEST_POSTGRES")
"""Connection string of a PostgreSQL with pgvector in which a test may create and drop a table."""
TEXTS = (
    "The last ferry to the island leaves at 22:40 every evening.",
    "Dogs may travel on the ferry when they are kept on a lead.",
    "A day ticket costs twelve crowns, children pay half the fare.",
    "The harbour office opens at half past seven on weekdays.",
    "Bicycles go on the car deck and cost four crowns.",
)
CHUNKS = [Chunk(id=f"c{place}", text=text, metadata={"year": 2020 + place}) for place, text in enumerate(TEXTS)]


def build_index() -> ChunkIndex:
    return ChunkIndex.build(CHUNKS, LatentEmbedder(4))


def open_store(name: str, folder: Path):
    if name == "memory":
        return load_store("memory")
    if name == "pgvector":
        if not POSTGRES:
            pytest.skip("RAGFAULT_TEST_POSTGRES names no PostgreSQL with pgvector")
        return load_store("pgvector", dsn=POSTGRES, collection="ragfault_test")
    pytest.importorskip(LIBRARIES[name], reason=f"the extra {name} is not installed")
    return load_store(name, path=str(folder / "store"), collection="test")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["memory", "qdrant", "chroma", "milvus", "lance", "pgvector"])
def test_a_small_store_answers_as_the_index_in_memory(name: str, tmp_path: Path):
    """On five chunks every store returns the same hits in the same order, with conditions and without."""
    index, store = build_index(), open_store(name, tmp_path)
    try:
        over_store = StoreIndex.of(index, store)
        assert store.count() == len(CHUNKS)
        for text in ("When does the last ferry leave?", "What does a ticket cost?"):
            for query in (Query(text=text), require_metadata(year__from=2022)(Query(text=text), ()).query):
                exact, approximate = (searched.search("dense", text, 3, query) for searched in (index, over_store))
                assert [hit.id for hit in approximate] == [hit.id for hit in exact]
                assert [hit.score for hit in approximate] == pytest.approx([hit.score for hit in exact], abs=1e-3)
        with pytest.raises(OutputError):
            store.write(index.vectors)
    finally:
        store.drop()
    assert store.count() == 0


def test_a_store_with_another_number_of_vectors_is_refused():
    """A collection that was written for another corpus is not searched."""
    store = MemoryStore()
    store.write(np.eye(3, dtype=np.float32))
    with pytest.raises(UsageError, match="holds 3 vectors and the index 5 chunks"):
        StoreIndex.of(build_index(), store)
    with pytest.raises(UsageError, match="no embedder"):
        StoreIndex.of(ChunkIndex.build(CHUNKS), MemoryStore())


def test_stages_of_a_pipeline_search_in_the_store():
    """The stages dense and hybrid work on the index over a store; conditions that nothing meets give no hit."""
    index = StoreIndex.of(build_index(), MemoryStore())
    for expression in ("dense(k=2)", "hybrid(k=2)"):
        hits = make_stage(expression, index)(Query(text="When does the last ferry leave?"), ()).hits
        assert hits[0].id == "c0"
    query = require_metadata(year=1999)(Query(text="ferry"), ()).query
    assert index.search("dense", "ferry", 3, query) == ()


class BlindStore(MemoryStore):
    """Store that overlooks every chunk at an odd position."""

    exact = False

    def search(self, vector, k, allowed):
        places = range(self.count()) if allowed is None else allowed
        return super().search(vector, k, [place for place in places if place % 2 == 0])


def test_what_a_store_overlooks_is_counted():
    """The loss is the share of the best chunks that the store does not return, and ties cost nothing."""
    rng = np.random.default_rng(1)
    vectors, queries = (rng.normal(size=(size, 8)).astype(np.float32) for size in (400, 50))
    loss = measure_store_loss(BlindStore(), vectors, queries, 10)
    assert loss.loss == pytest.approx(0.5, abs=0.08)
    assert loss.recall.low < 1 - loss.loss < loss.recall.high
    assert loss.filtered_recall is not None
    assert loss.complete < 0.1
    copies = np.repeat(vectors[:50], 2, axis=0)
    assert measure_store_loss(BlindStore(), copies, queries, 1).loss == 0


def test_the_collection_is_dropped_also_after_a_failure():
    """A search that fails leaves no collection behind."""

    class FailingStore(MemoryStore):
        def search(self, vector, k, allowed):
            raise RuntimeError("lost")

    store = FailingStore()
    with pytest.raises(RuntimeError, match="lost"):
        measure_store_loss(store, np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32), 2)
    assert store.count() == 0


def test_wrong_names_and_empty_inputs_are_refused():
    """A store, an option or an index that does not exist, and no queries, are errors with what there is."""
    with pytest.raises(UnknownName, match="chroma"):
        load_store("croma")
    with pytest.raises(UsageError, match="cannot be made"):
        load_store("memory(depth=3)")
    with pytest.raises(InputError, match="0 queries"):
        measure_store_loss(MemoryStore(), np.eye(4, dtype=np.float32), np.empty((0, 4), np.float32))


def test_a_store_whose_client_is_absent_names_its_extra(monkeypatch: pytest.MonkeyPatch):
    """Without the client the error says what to install."""
    monkeypatch.setitem(__import__("sys").modules, "qdrant_client", None)
    with pytest.raises(MissingExtra, match=r"ragfault\[qdrant\]"):
        load_store("qdrant")


def test_the_command_prints_the_answer_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """`ragfault tune stores` says in its first line how much is missed."""
    for place, text in enumerate(TEXTS):
        (tmp_path / f"{place}.md").write_text(text, encoding="utf-8")
    asked = tmp_path / "questions.csv"
    asked.write_text("query\nWhen does the ferry leave?\nMay dogs travel?\n", encoding="utf-8")
    assert run_command(["tune", "stores", str(tmp_path / "*.md"), str(asked), "-k", "2"]) == 0
    assert capsys.readouterr().out.startswith("nothing is missed compared with exact search (5 chunks, 2 queries)")
