"""The index: what is found by words and by meaning, under conditions, and after it was kept."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragfault.model.errors import InputError, OutputError, RunError, UnknownName, UsageError
from ragfault.model.records import Chunk
from ragfault.retrieval.embedders.latent import LatentEmbedder
from ragfault.retrieval.index import ChunkIndex
from ragfault.retrieval.pipeline import FilterCondition, Pipeline, Query
from ragfault.retrieval.stage_registry import make_stage

TEXTS = {
    "ferry": "The last ferry to the island leaves at 22:40 every evening.",
    "dogs": "Dogs may travel on the ferry when they are kept on a lead.",
    "fares": "A day ticket costs twelve crowns, children pay half the fare.",
    "office": "The harbour office opens at half past seven on weekdays.",
}
CHUNKS = tuple(
    Chunk(id=name, text=text, document="guide", metadata={"year": year, "language": "en"})
    for (name, text), year in zip(TEXTS.items(), (2020, 2022, 2024, 2026), strict=True)
)


@pytest.fixture(scope="module")
def index() -> ChunkIndex:
    return ChunkIndex.build(CHUNKS, LatentEmbedder(dimensions=4))


def search_ids(index: ChunkIndex, text: str, kind="hybrid", k=10, **query) -> list[str]:
    return [hit.id for hit in index.retrieve(kind, k)(Query(text=text, **query), ()).hits]


@pytest.mark.parametrize("kind", ["sparse", "dense", "hybrid"])
def test_a_text_finds_itself_first(index: ChunkIndex, kind: str):
    """Every chunk is the best answer to its own text, by words, by meaning, and by both."""
    for name, text in TEXTS.items():
        assert search_ids(index, text, kind)[0] == name


def test_only_the_sparse_search_needs_common_words(index: ChunkIndex):
    """What shares no word with the query is not found by words; by meaning every chunk has a place."""
    assert search_ids(index, "zebra", "sparse") == []
    assert len(search_ids(index, "ferry", "dense")) == len(CHUNKS)


def test_the_best_k_are_the_first_of_the_full_ranking(index: ChunkIndex):
    """The first k of a longer list are the list of k."""
    ordered = search_ids(index, "ferry ticket", "dense", 10)
    for k in (1, 2, 3):
        assert search_ids(index, "ferry ticket", "dense", k) == ordered[:k]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 45))
def test_the_exact_search_is_a_stable_sort(values, k):
    """Equal scores stand in the order of the index, whatever k."""
    from ragfault.retrieval.index import _select_best

    scores = np.array(values, np.float32)
    expected = sorted(range(len(values)), key=lambda place: (-values[place], place))[:k]
    assert _select_best(scores, np.ones(len(values), bool), k) == expected


def test_conditions_are_met_before_the_search(index: ChunkIndex):
    """With k = 1 the best of those that meet the condition is found, not the best of all if it meets it."""
    recent = (FilterCondition("year", "from", 2024),)
    assert search_ids(index, "When does the last ferry leave?", k=1, conditions=recent)[0] in ("fares", "office")


def test_a_field_that_no_chunk_has_is_refused(index: ChunkIndex):
    """A condition on it says what fields there are."""
    with pytest.raises(UnknownName, match='Did you mean "language"'):
        search_ids(index, "ferry", conditions=(FilterCondition("langage", "is", "en"),))


def test_an_inferred_condition_on_a_field_that_is_not_there_is_passed_over(index: ChunkIndex):
    """What was only read out of the query never empties the result where the corpus has no such field."""
    assert search_ids(index, "ferry", conditions=(FilterCondition("category", "is", "legal", inferred=True),))


def test_an_unmet_condition_gives_no_hit_and_a_note(index: ChunkIndex):
    """The search is never widened in silence."""
    query = Query(text="ferry", conditions=(FilterCondition("year", "from", 2030),))
    result = index.retrieve()(query, ())
    assert result.hits == ()
    assert "no chunk meets the conditions: year from 2030" in result.query.notes[0]


def test_permissions_and_validity_hold_in_the_search():
    """What one may not read, or what is no longer valid, is not found."""
    chunks = [
        Chunk(id="open", text="ferry times"),
        Chunk(id="staff", text="ferry times", metadata={"groups": ["staff"]}),
        Chunk(id="old", text="ferry times", metadata={"valid_to": "2020"}),
    ]
    built = ChunkIndex.build(chunks)
    assert search_ids(built, "ferry", "sparse") == ["open", "staff", "old"]
    asked = {"user": (), "time": datetime(2026, 1, 1, tzinfo=UTC)}
    assert search_ids(built, "ferry", "sparse", **asked) == ["open"]


def test_a_question_as_of_another_time_finds_chunks_of_that_time():
    """The stage as_of moves the search to the time that the query, or the question it follows, names."""
    chunks = [
        Chunk(id="old", text="ferry times", metadata={"valid_from": "2019-01-01", "valid_to": "2020-12-31"}),
        Chunk(id="new", text="ferry times", metadata={"valid_from": "2021-01-01"}),
    ]
    stages = {name: make_stage(name, ChunkIndex.build(chunks)) for name in ("as_of", "sparse")}

    def search_at(text: str, *earlier: str) -> list[str]:
        query = Query(text=text, time=datetime(2026, 1, 1, tzinfo=UTC), earlier=earlier)
        return [chunk.id for chunk in Pipeline(stages)(query).chunks or ()]

    assert search_at("ferry times") == ["new"]
    assert search_at("ferry times as of 2020") == search_at("ferry times?", "ferry times as of 2020") == ["old"]
    assert search_at("ferry times now", "ferry times as of 2020") == ["new"]


def test_several_forms_of_a_query_are_fused(index: ChunkIndex):
    """A decomposed query finds what each of its parts finds."""
    both = search_ids(index, "?", "sparse", variants=("dogs on a lead", "harbour office"))
    assert set(both[:2]) == {"dogs", "office"}


@pytest.mark.parametrize("text", ["", "   ", "🐙", "渡し船は何時に出ますか"])
def test_a_query_without_a_known_word_is_no_error(index: ChunkIndex, text: str):
    """An empty query, or one in another language, finds nothing by words and raises nothing."""
    assert search_ids(index, text, "sparse") == []
    search_ids(index, text, "hybrid")


def test_a_saved_index_returns_the_same_hits(index: ChunkIndex, tmp_path):
    """Saved and opened, it gives the same hits with the same scores."""
    index.save(tmp_path / "index")
    again = ChunkIndex.open(tmp_path / "index")
    for kind in ("sparse", "dense", "hybrid"):
        query = Query(text="When may dogs take the ferry?")
        first, second = (searched.retrieve(kind)(query, ()).hits for searched in (index, again))
        assert [hit.id for hit in first] == [hit.id for hit in second]
        assert [hit.score for hit in first] == pytest.approx([hit.score for hit in second], abs=1e-6)


def test_another_embedder_is_refused(index: ChunkIndex, tmp_path):
    """Vectors of one embedder are never searched with another."""
    index.save(tmp_path / "index")
    other = LatentEmbedder(dimensions=4).fit(["another corpus altogether", "with other words"])
    with pytest.raises(UsageError, match="index the corpus again"):
        ChunkIndex.open(tmp_path / "index", other)


def test_an_index_of_a_later_layout_is_refused(index: ChunkIndex, tmp_path):
    """It says which layout it reads."""
    index.save(tmp_path / "index")
    manifest = tmp_path / "index" / "index.json"
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 99'))
    with pytest.raises(RunError, match="reads up to 1"):
        ChunkIndex.open(tmp_path / "index")
    with pytest.raises(RunError, match="no index"):
        ChunkIndex.open(tmp_path / "nowhere")


def test_only_an_index_gives_way_to_an_index(index: ChunkIndex, tmp_path):
    """A folder with other things in it is never replaced."""
    (tmp_path / "mine.txt").write_text("keep me")
    with pytest.raises(OutputError, match="not an index"):
        index.save(tmp_path)
    index.save(tmp_path / "index")
    index.save(tmp_path / "index")


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ((), "no chunk to index"),
        ((Chunk(id="a"),), "has any text"),
        ((Chunk(id="a", text="x"), Chunk(id="a", text="y")), 'two chunks have the id "a"'),
    ],
)
def test_a_corpus_that_cannot_be_indexed_is_refused(chunks, message):
    """No chunk, no text, or one id twice."""
    with pytest.raises(InputError, match=message):
        ChunkIndex.build(chunks)


def test_an_index_without_an_embedder_is_searched_by_words_alone():
    """Asking it for meaning says what to do."""
    with pytest.raises(UsageError, match="Build it with one"):
        ChunkIndex.build(CHUNKS).retrieve("dense")


def test_rows_of_the_latent_embedder_depend_on_their_own_text():
    """A text alone and in company has the same row, of length 1; an unknown one zeros."""
    embedder = LatentEmbedder(dimensions=3).fit(list(TEXTS.values()))
    together = embedder.embed([*TEXTS.values(), "zzz"])
    for place, text in enumerate(TEXTS.values()):
        assert embedder.embed([text])[0] == pytest.approx(together[place], abs=1e-6)
        assert np.linalg.norm(together[place]) == pytest.approx(1, abs=1e-5)
    assert not together[-1].any()


def test_the_latent_embedder_wants_a_corpus():
    """Before it saw one it says so; a corpus without a word is refused."""
    with pytest.raises(UsageError, match="Fit it first"):
        LatentEmbedder().embed(["x"])
    with pytest.raises(InputError, match="has a word"):
        LatentEmbedder().fit(["…", "—"])


def test_an_index_whose_chunks_were_changed_is_refused(index: ChunkIndex, tmp_path):
    """Chunks that are not those that were indexed would get the scores of others."""
    index.save(tmp_path / "index")
    place = tmp_path / "index" / "chunks.jsonl"
    place.write_bytes(b"".join(place.read_bytes().splitlines(keepends=True)[1:]))
    with pytest.raises(RunError, match="damaged"):
        ChunkIndex.open(tmp_path / "index")


def test_a_file_in_the_place_of_an_index_is_not_overwritten(index: ChunkIndex, tmp_path):
    """What is no index is never written over."""
    (tmp_path / "note").write_text("mine")
    with pytest.raises(OutputError):
        index.save(tmp_path / "note")
    assert (tmp_path / "note").read_text() == "mine"


@pytest.mark.parametrize("kind", ["sparse", "dense", "hybrid"])
def test_an_empty_query_finds_nothing_and_says_so(index: ChunkIndex, kind: str):
    """Nothing is searched for, and one note tells it."""
    result = index.retrieve(kind)(Query(text=" "), ())
    assert result.hits == ()
    assert len(result.query.notes) == 1
    assert "empty" in result.query.notes[0]
