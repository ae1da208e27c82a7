"""Query stages and reranking."""

from __future__ import annotations

import numpy as np
import pytest

from ragfault.model.errors import UnknownName, UsageError
from ragfault.model.records import Chunk
from ragfault.retrieval.index import ChunkIndex
from ragfault.retrieval.pipeline import Query, StageResult
from ragfault.retrieval.query_stages import decompose, estimate_length_limit, expand, rewrite, route, shorten
from ragfault.retrieval.rerankers import JudgeReranker, rerank

CHUNKS = (
    Chunk(id="dogs", text="Dogs may travel when they are kept on a lead."),
    Chunk(id="ferry", text="The last ferry leaves at 22:40 every evening."),
    Chunk(id="late", text="A late ferry runs every Friday evening."),
)


class Writer:
    """A generator that writes what it was told to, and remembers what it was asked."""

    fingerprint = "writer"

    def __init__(self, reply: str) -> None:
        self.reply, self.asked = reply, []

    def generate(self, instructions: str, text: str) -> str:
        self.asked.append((instructions, text))
        return self.reply


class Broken:
    """A model whose line is cut."""

    fingerprint = "broken"

    def generate(self, instructions: str, text: str) -> str:
        raise ConnectionError("no route to host")

    def relevance(self, query: str, texts: list[str]) -> list[float]:
        raise ConnectionError("no route to host")


def searched(stage, text: str) -> tuple[str, ...]:
    return stage(Query(text=text), ()).query.search_texts


def test_a_short_query_is_written_out_and_a_longer_one_is_left():
    """Only what says too little by itself is rewritten."""
    writer = Writer("What do ferry tickets cost?\nignored second line")
    assert searched(rewrite(writer), "ferry tickets") == ("What do ferry tickets cost?",)
    long = "When does the last ferry to the northern island leave on weekdays?"
    assert searched(rewrite(writer), long) == (long,)
    assert len(writer.asked) == 1


def test_the_model_that_rewrites_reads_the_context_and_the_examples_of_experts():
    """What is given beside the query stands in the instructions, and not in the query (it was ignored)."""
    writer = Writer("What do ferry tickets cost?")
    rewrite(writer, context=("island", "bike fee: What does a bicycle cost?"))(Query(text="ferry tickets"), ())
    instructions, text = writer.asked[0]
    assert instructions.endswith("example by experts: bike fee: What does a bicycle cost?")
    assert "island" in instructions
    assert text == "ferry tickets"


def test_a_query_is_data_to_the_model_that_rewrites_it():
    """The text of the user never becomes part of the instructions."""
    writer = Writer("x")
    rewrite(writer)(Query(text="ignore this"), ())
    instructions, text = writer.asked[0]
    assert "ignore this" not in instructions
    assert text == "ignore this"


@pytest.mark.parametrize("stage", [rewrite(Broken()), decompose(Broken()), expand(generator=Broken())])
def test_a_model_that_fails_costs_no_search(stage):
    """The query is searched for as it stands, and a note says why."""
    result = stage(Query(text="ferry"), ()).query
    assert result.search_texts == ("ferry",)
    assert "no route to host" in result.notes[0]


def test_an_over_long_query_keeps_what_it_asks():
    """Beyond the threshold the questions are kept; without one the last sentence that says something."""
    story = "We came by train from the north and it rained all day long. "
    assert searched(shorten(10), story + "Where is the office?") == ("Where is the office?",)
    assert searched(shorten(10), story + "Tell me the fares.") == ("Tell me the fares.",)
    assert searched(shorten(100), story) == (story,)


def test_the_length_of_queries_wants_queries():
    """The threshold comes from a distribution, and one query is none."""
    assert estimate_length_limit(["one two three"] * 5) == 3
    with pytest.raises(UsageError, match="at least 2"):
        estimate_length_limit(["alone"])


def test_decomposition_keeps_the_original_query():
    """Each question is a form of its own beside the whole; what asks one thing stays one."""
    parts = searched(decompose(), "Where is the office? When does it open?")
    assert parts == ("Where is the office? When does it open?", "Where is the office?", "When does it open?")
    assert searched(decompose(), "salt and pepper") == ("salt and pepper",)
    model = Writer("1. Where is it?\n2. When is it open?")
    assert searched(decompose(model), "Where and when?")[1:] == ("Where is it?", "When is it open?")


def test_a_query_is_expanded_by_what_its_first_hits_share():
    """Words that several of the first hits have, and the query has not, are added to it."""
    search = ChunkIndex.build(CHUNKS).retrieve("sparse")
    [expanded] = searched(expand(search), "ferry")
    assert expanded.startswith("ferry ")
    assert "even" in expanded  # the stem of evening, which both have
    with pytest.raises(UsageError, match="one of the two"):
        expand()


def test_a_route_hands_the_query_on():
    """The first rule that fits decides, and the stage of that route answers."""
    stages = {"fares": lambda query, hits: StageResult(query, (Chunk(id="fares"),))}
    stage = route({"fares": ["ticket"], "dogs": r"\bdogs?\b"}, stages, default="other")
    result = stage(Query(text="What do tickets cost?"), ())
    assert (result.query.route, [hit.id for hit in result.hits]) == ("fares", ["fares"])
    assert stage(Query(text="My dog"), ()).hits == ()
    with pytest.raises(UnknownName, match='Did you mean "fares"'):
        route({"fares": ["ticket"]}, {"fare": StageResult})


@pytest.mark.parametrize("judge", ["lexical", "embedded"])
def test_a_judge_puts_what_bears_on_the_query_first(judge: str):
    """Whatever the order before, the passage that answers comes first, with its relevance as score."""
    result = rerank(JudgeReranker(judge))(Query(text="May dogs travel?"), CHUNKS[::-1]).hits
    assert result[0].id == "dogs"
    assert all(0 <= hit.score <= 1 for hit in result)


def test_reranking_drops_only_hits_beyond_k():
    """All hits stay, those beyond the depth behind; with k the first k."""
    stage = rerank(JudgeReranker("lexical"), depth=2)
    assert [hit.id for hit in stage(Query(text="late ferry"), CHUNKS).hits] == ["ferry", "dogs", "late"]
    assert len(rerank(JudgeReranker("lexical"), 1)(Query(text="late ferry"), CHUNKS).hits) == 1
    assert rerank(JudgeReranker("lexical"))(Query(text="?"), ()).hits == ()


def test_a_reranker_that_fails_leaves_the_order():
    """Hits in their old order, and a note that says why."""
    result = rerank(Broken())(Query(text="ferry"), CHUNKS)
    assert result.hits == CHUNKS
    assert "reranking failed" in result.query.notes[0]


def test_a_judge_that_reads_no_passage_cannot_rerank():
    """It says which judges can."""
    with pytest.raises(UsageError, match="Take embedded"):
        JudgeReranker("none")


def test_a_service_that_fails_is_noted_wherever_it_stands():
    """Reranking, compression, rewriting and the search by meaning fail softly, and each says so."""
    from ragfault.retrieval.selection import compress
    from ragfault.retrieval.service_client import ServiceFailed

    class Silent:
        fingerprint, dimensions = "silent", 2

        def embed(self, texts, *, query=False):
            if query:
                raise ServiceFailed("nobody answers")
            return np.eye(2, dtype=np.float32)[[len(text) % 2 for text in texts]]

    long = Chunk(id="x", text="Dogs need a lead. Soup is sold here.")
    query = Query(text="ferry evening")
    index = ChunkIndex.build(CHUNKS, Silent())
    for stage, expected in (
        (rerank(Broken()), 1),
        (compress(Broken()), 1),
        (rewrite(Broken()), 1),
        (index.retrieve("dense"), 0),
        (index.retrieve("hybrid"), 2),
    ):
        result = stage(query, (long,))
        assert len(result.hits) == expected
        assert result.query.failures == result.query.notes
        assert len(result.query.failures) == 1


def test_scores_that_are_no_numbers_are_refused():
    """A relevance that cannot be ordered is an error of the reranker, not an order."""

    class Odd:
        fingerprint = "odd"

        def relevance(self, query, texts):
            return [float("nan")] * len(texts)

    with pytest.raises(UsageError, match="not a finite number"):
        rerank(Odd())(Query(text="?"), CHUNKS)
