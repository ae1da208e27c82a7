"""Where the passage of a query is, by the chunks that a run retrieved for all of its queries."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from ragfault import evaluate
from ragfault.evaluation.passage_places import MAX_POOL_SIZE, MIN_POOL, ChunkPool, locate_passages
from ragfault.judges.loading import load_judge
from ragfault.model.records import Chunk, ConversationTurn, Gold, PassagePlace, Step, Trace, Verdicts

THINGS = ("boathouse", "library", "pool", "theatre", "museum", "stadium", "bakery", "harbour", "castle", "station")
PASSAGES = {
    f"{thing}-{day}": f"The {thing} opens on {day} at {hour} and has room for {hour * 7} visitors."
    for hour, thing in enumerate(THINGS, 8)
    for day in ("Monday", "Friday", "Sunday")
}


def ask(name: str, *shown: str, query: str | None = None, **fields: object) -> Trace:
    """Build a trace that asks for a passage and was shown some."""
    thing, day = name.split("-")
    chunks = tuple(Chunk(id=item, text=PASSAGES[item]) for item in shown)
    text = query or f"When does the {thing} open on {day}?"
    return Trace(id=name, query=text, chunks=chunks, answer="At nine.", **fields)  # type: ignore[arg-type]


def fill_pool() -> ChunkPool:
    """Fill a pool with all passages."""
    pool = ChunkPool()
    for name in PASSAGES:
        pool.add(ask(name, name))
    return pool


def locate(trace: Trace, judge: str = "lexical") -> PassagePlace | None:
    """Locate the passage of one trace in a run that retrieved all passages."""
    pool = fill_pool()
    pool.add(trace)
    return locate_passages([trace], [Verdicts(trace=trace.id)], pool, load_judge(judge))[0].place


@pytest.mark.parametrize("judge", ["lexical", "encoder"])
def test_a_passage_that_was_missed_is_among_the_chunks_of_other_queries(judge: str):
    place = locate(ask("pool-Sunday", "bakery-Monday", "castle-Friday", "station-Monday"), judge)
    assert place is not None
    assert place.elsewhere > 0.7
    assert place.chunk == "pool-Sunday"
    assert place.quote == PASSAGES["pool-Sunday"]


@pytest.mark.parametrize("judge", ["lexical", "encoder"])
def test_a_passage_that_was_shown_is_not_looked_for_elsewhere(judge: str):
    place = locate(ask("pool-Sunday", "bakery-Monday", "pool-Sunday"), judge)
    assert place is not None
    assert place.shown > max(place.elsewhere, 0.5)
    assert place.chunk is None


def test_what_no_chunk_of_the_run_says_is_nowhere():
    place = locate(ask("pool-Sunday", "bakery-Monday", query="Who is the chief executive of the Orrin shipyard?"))
    assert place is not None
    assert 1 - place.shown - place.elsewhere > max(place.shown, place.elsewhere)


def test_a_follow_up_asks_for_what_the_turns_before_it_are_about():
    history = (ConversationTurn(role="user", text="Tell me about the theatre."),)
    trace = ask("theatre-Sunday", "pool-Sunday", "bakery-Sunday", query="And on Sunday?", history=history)
    place = locate(trace)
    assert place is not None
    assert (place.chunk, place.lost) == ("theatre-Sunday", ("theatre",))
    rewritten = replace(trace, steps=(Step(id="1", kind="rewrite", output="opening of the theatre on Sunday"),))
    place_of = locate(rewritten)
    assert place_of is not None
    assert place_of.lost == ()


def test_a_rewriting_that_drops_the_subject_loses_the_passage_and_one_that_keeps_it_does_not():
    """Gold says which passage it is: what the search asked for decides between query and retrieval."""
    for text, lost in (("opening times on Sunday", ("museum",)), ("museum Sunday opening", ())):
        steps = (Step(id="1", kind="rewrite", output=text),)
        trace = ask("museum-Sunday", "pool-Sunday", steps=steps, gold=Gold(chunks={"museum-Sunday": 1}))
        place = locate(trace)
        assert place is not None
        assert place.lost == lost


def test_a_long_chunk_is_not_nearer_to_a_query_for_all_its_words():
    """Each part of it is compared alone, or a long text would have the words of any query."""
    rng = random.Random(1)
    words = ["when", "does", "the", "pool", "open", "on", "sunday"] + [f"word{number}" for number in range(60)]
    text = " ".join(rng.choice(words[7:]) if number % 40 else words[number // 40 % 7] for number in range(400))
    pool = fill_pool()
    pool.add(Trace(id="long", query="q", chunks=(Chunk(id="long", text=text),)))
    hit = pool.search("When does the pool open on Sunday?", hidden=())
    assert hit is not None
    assert hit.chunk.id == "pool-Sunday"


def test_a_list_of_questions_is_not_the_passage_of_any():
    """A table of contents has the words of every query, and answers none."""
    listed = " ".join(f"When does the {name.replace('-', ' open on ')}?" for name in PASSAGES)
    pool = fill_pool()
    pool.add(Trace(id="contents", query="q", chunks=(Chunk(id="contents", text=listed),)))
    hit = pool.search("When does the pool open on Sunday?", hidden=())
    assert hit is not None
    assert hit.chunk.id == "pool-Sunday"


def test_a_few_chunks_are_no_sample_of_a_corpus():
    pool = ChunkPool()
    for name in list(PASSAGES)[: MIN_POOL - 1]:
        pool.add(ask(name, name))
    trace = ask("pool-Sunday", "bakery-Monday")
    assert locate_passages([trace], [Verdicts(trace="x")], pool)[0].place is None


@pytest.mark.parametrize("seed", range(3))
def test_the_sample_of_many_chunks_does_not_depend_on_their_order(seed: int):
    size = MAX_POOL_SIZE // 100
    chunks = [Chunk(id=str(number), text=f"{number} " + "x" * size) for number in range(300)]
    pools = []
    for order in (seed, seed + 10):
        shuffled = random.Random(order).sample(chunks, len(chunks))
        pool = ChunkPool()
        for chunk in shuffled:
            pool.add(Trace(id=chunk.id, query="q", chunks=(chunk,)))
        pools.append(pool)
    samples = [{chunk.id for chunk in chunks if pool.list_named(chunk.id)} for pool in pools]
    assert samples[0] == samples[1]
    assert MIN_POOL < len(samples[0]) < 300


def test_a_pool_is_the_same_in_a_worker():
    pool = fill_pool()
    query = "When does the castle open on Friday?"
    assert pickle.loads(pickle.dumps(pool)).search(query, ()) == pool.search(query, ())


def test_an_evaluation_stores_the_places_whatever_the_number_of_workers(tmp_path: Path):
    traces = [ask(name, *random.Random(name).sample(sorted(PASSAGES), 3)) for name in PASSAGES]
    runs = [evaluate(traces, tmp_path / str(workers), judge="lexical", workers=workers, batch=8) for workers in (1, 2)]
    places = [[seen.place for seen in run.verdicts()] for run in runs]
    assert places[0] == places[1]
    assert any(place is not None and place.chunk for place in places[0])
