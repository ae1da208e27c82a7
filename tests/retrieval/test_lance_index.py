"""The index in LanceDB: the same hits and conditions as the index in memory."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from installed import skip_without

skip_without("lancedb", reason="the extra lance is not installed")

from ragfault.model.errors import InputError, OutputError, RunError, UnknownName, UsageError
from ragfault.model.records import Chunk
from ragfault.model.rules import is_outdated
from ragfault.retrieval.embedders.latent import LatentEmbedder
from ragfault.retrieval.filters import is_valid_at
from ragfault.retrieval.index import ChunkIndex
from ragfault.retrieval.lance_index import LanceIndex
from ragfault.retrieval.pipeline import FilterCondition, Query

TEXTS = (
    "The last ferry to the island leaves at 22:40 every evening.",
    "Dogs may travel on the ferry when they are kept on a lead.",
    "A day ticket costs twelve crowns, children pay half the fare.",
    "The harbour office opens at half past seven on weekdays.",
    "It's the captain's rule: no smoking on the ferry's deck.",
)
CHUNKS = tuple(
    Chunk(
        id=f"c{place}",
        text=text,
        document="Guide" if place % 2 else "Rules",
        metadata={
            "year": 2020 + place,
            "date": f"202{place}-0{place + 1}-15",
            "language": "EN",
            "tags": ["ferry", "Dogs"] if place % 2 else ["fares"],
            **({"groups": ["staff"]} if place == 0 else {}),
            **({"valid_to": "2021-06"} if place == 1 else {}),
        },
    )
    for place, text in enumerate(TEXTS)
)


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> tuple[ChunkIndex, LanceIndex]:
    embedder = LatentEmbedder(dimensions=5)
    index = ChunkIndex.build(CHUNKS, embedder)
    return index, LanceIndex.build(CHUNKS, tmp_path_factory.mktemp("lance") / "db", embedder)


def search_ids(index: ChunkIndex | LanceIndex, kind: str = "dense", **query) -> list[str]:
    return [hit.id for hit in index.retrieve(kind, 10)(Query(text="ferry times", **query), ()).hits]


def test_permissions_and_validity_of_late_chunks_count(tmp_path):
    """Groups and validity that first stand behind the thousandth chunk bind as in memory, by their exact names."""
    permissions = [{"groups": ["Staff"]}, {"groups": "staff"}, {"valid_to": "2021"}, {"valid_from": 2030}, {}]
    chunks = [Chunk(id=f"n{place}", text=f"ferry number {place}") for place in range(1030)]
    chunks += [Chunk(id=f"late{place}", text="ferry", metadata=metadata) for place, metadata in enumerate(permissions)]
    index, database = ChunkIndex.build(chunks), LanceIndex.build(chunks, tmp_path / "db")
    for query in (
        {"user": ()},
        {"user": ("staff",)},
        {"user": ("Staff", "it's")},
        {"time": datetime(2026, 1, 1, tzinfo=UTC)},
        {},
    ):
        asked = Query(text="ferry", **query)
        assert index.count_matching(asked) == database.count_matching(asked) > 1030
    assert database.count_matching(Query(text="ferry", user=())) == 1033


def test_a_date_that_was_read_out_of_a_query_suits_a_field_of_numbers(both):
    """A year is compared as one, anything else meets nothing; neither is an error, as in memory."""
    for field, test, value in (("year", "from", "2023-05"), ("year", "to", "2021"), ("year", "is", "legal")):
        condition = FilterCondition(field, test, value, inferred=True)
        memory, database = (sorted(search_ids(index, conditions=(condition,))) for index in both)
        assert memory == database
    assert search_ids(both[1], conditions=(FilterCondition("year", "from", "2023-05", inferred=True),))


def test_a_database_of_another_layout_is_refused(tmp_path):
    """One that an older ragfault made says so, and is not searched without its permissions."""
    LanceIndex.build(CHUNKS, tmp_path / "db")
    place = tmp_path / "db" / "ragfault.json"
    place.write_text(place.read_text().replace('"format": 3', '"format": 2'))
    with pytest.raises(RunError, match="layout 2"):
        LanceIndex.open(tmp_path / "db")


def test_meaning_finds_the_same_in_the_same_order(both):
    """The search by meaning is exact in both, with the same cosines."""
    memory, database = (index.retrieve("dense", 3)(Query(text="dogs on the ferry"), ()).hits for index in both)
    assert [hit.id for hit in memory] == [hit.id for hit in database]
    assert [hit.score for hit in memory] == pytest.approx([hit.score for hit in database], abs=1e-5)
    assert database[0].metadata["year"] == memory[0].metadata["year"]


def test_words_find_the_same_texts(both):
    """Both find the texts that share a word with the query, whatever their order."""
    memory, database = (set(search_ids(index, "sparse")) for index in both)
    assert {"c0", "c1"} <= memory & database


@pytest.mark.parametrize(
    "conditions",
    [
        (FilterCondition("year", "is", 2021),),
        (FilterCondition("year", "in", (2021, 2023)),),
        (FilterCondition("year", "from", 2022), FilterCondition("year", "to", 2023)),
        (FilterCondition("date", "from", "2022"),),
        (FilterCondition("date", "to", "2022-03"),),
        (FilterCondition("date", "from", "2022-03-16"),),
        (FilterCondition("language", "is", "en"),),
        (FilterCondition("language", "is", "x' OR 1=1 --"),),
        (FilterCondition("tags", "holds", "dogs"),),
        (FilterCondition("document", "is", "guide"),),
        (FilterCondition("kind", "is", "text"),),
        (FilterCondition("category", "is", "legal", inferred=True),),
    ],
    ids=str,
)
def test_conditions_mean_the_same(both, conditions):
    """Every condition lets the same chunks pass in memory and in the database, quotes and all."""
    memory, database = (sorted(search_ids(index, conditions=conditions)) for index in both)
    assert memory == database
    query = Query(text="?", conditions=conditions)
    assert both[0].count_matching(query) == both[1].count_matching(query) == len(memory)


@pytest.mark.parametrize(
    "circumstances", [{"user": ()}, {"user": ("staff",)}, {"time": datetime(2026, 1, 1, tzinfo=UTC)}]
)
def test_permissions_and_validity_mean_the_same(both, circumstances):
    """Who may read what, and what is valid when, is the same in both."""
    memory, database = (sorted(search_ids(index, **circumstances)) for index in both)
    assert memory == database


def test_a_field_that_no_chunk_has_is_refused(both):
    """As in memory, with an offer."""
    with pytest.raises(UnknownName, match='Did you mean "year"'):
        search_ids(both[1], conditions=(FilterCondition("yaer", "is", 1),))
    with pytest.raises(UsageError, match="not a number"):
        search_ids(both[1], conditions=(FilterCondition("year", "is", "soon"),))


def test_a_database_is_opened_by_its_embedder_alone(tmp_path):
    """It stays on disk; another embedder is refused."""
    embedder = LatentEmbedder(dimensions=3)
    embedder.fit(TEXTS)
    LanceIndex.build(CHUNKS, tmp_path / "db", embedder)
    assert search_ids(LanceIndex.open(tmp_path / "db", embedder)) == search_ids(ChunkIndex.build(CHUNKS, embedder))
    with pytest.raises(UsageError, match="index the corpus again"):
        LanceIndex.open(tmp_path / "db", LatentEmbedder(dimensions=3).fit(["other words"]))
    with pytest.raises(OutputError, match="not empty"):
        LanceIndex.build(CHUNKS, tmp_path / "db")
    with pytest.raises(RunError, match="no database"):
        LanceIndex.open(tmp_path / "nowhere")


def test_a_corpus_without_text_is_refused(tmp_path):
    """Nothing is written where nothing can be found."""
    with pytest.raises(InputError, match="no chunk with text"):
        LanceIndex.build([Chunk(id="a")], tmp_path / "db")


@pytest.mark.parametrize(
    ("dates", "valid"),
    [
        ({"valid_to": "2026-03-10"}, True),
        ({"valid_to": "2026-03"}, True),
        ({"valid_to": "2026-02"}, False),
        ({"valid_to": 2026}, True),
        ({"valid_to": "9999-12-31"}, True),
        ({"valid_to": "2026-03-10T13:00+02:00"}, False),
        ({"valid_to": "2026-03-10T11:00-02:00"}, True),
        ({"valid_from": "2027"}, False),
        ({"valid_from": "2026-03"}, True),
        ({"valid_from": "0001-01-01T00:00+02:00"}, True),
        ({"valid_to": "until further notice"}, True),
        ({"valid_to": 1712013112000}, True),
    ],
)
def test_filter_metric_and_database_read_the_same_dates(dates, valid, tmp_path):
    """A year, a month and a day last to their end, times count with their zone, and what is no date binds nothing."""
    chunk, time = Chunk(id="a", text="a fare", metadata=dates), datetime(2026, 3, 10, 12, tzinfo=UTC)
    assert is_valid_at(chunk, time) is is_valid_at(chunk, time.replace(tzinfo=None)) is valid
    assert bool(is_outdated(chunk, time)) is not valid
    stored = LanceIndex.build([chunk], tmp_path / "db")
    assert stored.count_matching(Query(text="fare", time=time)) == valid
