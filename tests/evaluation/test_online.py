"""Scoring beside a running system: the caller never waits, and no score is lost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import warnings
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from ragfault.evaluation.online.background import BackgroundScorer, to_jsonl
from ragfault.evaluation.online.instrumentation import MeasuredRetriever, observe
from ragfault.evaluation.online.scorer import ScoredTrace, TraceScorer, score_response
from ragfault.judges.loading import load_judge
from ragfault.model.errors import UnknownName, UsageError
from ragfault.model.records import Chunk, Gold, Trace

TEXT = "The harbour office opens at 7:30 on weekdays."
QUERY = "When does the harbour office open?"
METRICS = ["context_relevance", "redundancy"]


def traces(count: int) -> list[Trace]:
    return [Trace(id=str(n), query=QUERY, chunks=(Chunk(id="a", text=f"{TEXT} Room {n}."),)) for n in range(count)]


def test_gold_decides_in_live_scores_as_in_a_run():
    """A trace with an answer key is scored by it, a stored verdict stays the judge's own."""
    chunks = (Chunk(id="a", text="Ships are painted blue."),)
    plain = Trace(id="1", query=QUERY, chunks=chunks, answer="It opens at 7:30.")
    score = TraceScorer("lexical", metrics=["context_relevance", "missing_context"])
    judged, keyed = score(plain), score(replace(plain, gold=Gold(chunks={"a": 1.0})))
    assert judged.scores[0].value < 1
    assert [row.value for row in keyed.scores] == [1, 0]
    assert keyed.verdicts == judged.verdicts


def test_a_response_is_scored_at_once():
    """Texts, mappings and chunks are all chunks; scores and verdicts come back."""
    for chunk in (TEXT, {"text": TEXT}, {"page_content": TEXT, "id": 7}, Chunk(id="x", text=TEXT)):
        result = score_response(QUERY, [chunk], "It opens at 7:30 on weekdays.", judge="lexical")
        assert result.values["groundedness"] == 1.0
        assert result.verdicts.chunk is not None
    with pytest.raises(UsageError, match="has no text"):
        score_response(QUERY, [object()], judge="lexical")
    with pytest.raises(UsageError, match="in a list"):
        score_response(QUERY, TEXT, judge="lexical")


def test_every_trace_is_scored_once_and_in_order():
    """What was submitted comes out, each trace once, with the same scores as at once."""
    result: list[ScoredTrace] = []
    with BackgroundScorer(result.append, judge="lexical", metrics=METRICS) as background:
        assert all(background.submit(trace) for trace in traces(50))
    assert [scored.trace.id for scored in result] == [str(n) for n in range(50)]
    assert (background.submitted, background.scored, background.dropped) == (50, 50, 0)
    alone = score_response(QUERY, result[0].trace.chunks, judge="lexical", metrics=METRICS)
    assert result[0].values == alone.values


def test_a_judge_that_is_an_object_scores_on_a_thread():
    """The outcome is the same as with the name of the judge."""
    result: list[ScoredTrace] = []
    with BackgroundScorer(result.append, judge=load_judge("lexical"), metrics=METRICS) as background:
        background.submit(traces(1)[0])
    assert result[0].values["context_relevance"] > 0


def test_flush_waits_for_what_was_submitted():
    """After it every score has reached the sink, and more can be submitted."""
    result: list[ScoredTrace] = []
    with BackgroundScorer(result.append, judge="lexical", metrics=METRICS) as background:
        for trace in traces(5):
            background.submit(trace)
        assert background.flush(60)
        assert len(result) == 5


def test_a_scorer_that_is_abandoned_ends_at_once():
    """The traces that wait stay without scores, whether a process or a thread judges; what came was delivered."""
    for judge in ("lexical", load_judge("lexical")):
        result: list[ScoredTrace] = []
        background = BackgroundScorer(result.append, judge=judge)
        for trace in traces(2_000):
            background.submit(trace)
        background.abandon()
        assert background.scored == len(result) < 2_000
        with pytest.warns(RuntimeWarning, match="drops traces"):
            assert not background.submit(traces(1)[0])


@pytest.mark.long
def test_a_worker_that_is_killed_loses_no_score():
    """What it had is given to another one."""
    result: list[ScoredTrace] = []
    with BackgroundScorer(result.append, judge="lexical", metrics=METRICS) as background:
        background.submit(traces(1)[0])
        assert background.flush(60)
        for trace in traces(200):
            background.submit(trace)
        background._worker._process.kill()
    assert background.scored == 201
    assert sum(score.status == "failed" for scored in result for score in scored.scores) == 0


def test_a_trace_that_kills_its_workers_fails_alone():
    """After two of them its scores are failed, with the reason, and nothing waits for ever."""
    result: list[ScoredTrace] = []
    background = BackgroundScorer(result.append, judge="lexical", metrics=["context_relevance"])
    background.submit(traces(1)[0])
    until = time.monotonic() + 60
    while background.scored < 1 and time.monotonic() < until:
        worker = background._worker
        if worker is not None:
            worker._process.kill()
        time.sleep(0.001)
    background.close()
    assert [score.status for score in result[0].scores] == ["failed"]
    assert "twice" in result[0].scores[0].reason


def test_what_is_beyond_the_capacity_is_counted():
    """Traces that cannot wait are dropped, told by the return value, counted, and warned of once."""
    background = BackgroundScorer(lambda _: time.sleep(0.01), judge="lexical", metrics=METRICS, capacity=3)
    with pytest.warns(RuntimeWarning, match="drops traces"):
        taken = [background.submit(trace) for trace in traces(20)]
    background.close()
    assert background.dropped == taken.count(False) > 0
    assert background.scored == taken.count(True)


def test_a_sink_that_fails_costs_no_other_score():
    """Its fault is warned of and counted; the others reach it."""
    result: list[str] = []

    def sink(scored: ScoredTrace) -> None:
        if scored.trace.id == "1":
            raise OSError("disk full")
        result.append(scored.trace.id)

    background = BackgroundScorer(sink, judge="lexical", metrics=METRICS)
    for trace in traces(3):
        background.submit(trace)
    with pytest.warns(RuntimeWarning, match="disk full"):
        background.close()
    assert result == ["0", "2"]
    assert background.sink_failures == 1


@pytest.mark.long
def test_nothing_is_lost_when_the_program_ends(tmp_path: Path):
    """A program that ends without closing leaves every score in the file."""
    program = f"""
from ragfault.evaluation.online.background import BackgroundScorer, to_jsonl
from ragfault.evaluation.online.instrumentation import MeasuredRetriever
background = BackgroundScorer(to_jsonl({str(tmp_path / "scores.jsonl")!r}), judge="lexical", metrics=["redundancy"])
retriever = MeasuredRetriever(lambda query: ["one text", "another text"], background)
for number in range(100):
    retriever(f"query {{number}}")
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    lines = (tmp_path / "scores.jsonl").read_bytes().splitlines()
    queries = [msgspec.json.decode(line, type=ScoredTrace).trace.query for line in lines]
    assert queries == [f"query {number}" for number in range(100)]


@pytest.mark.long
def test_a_retriever_is_as_it_was():
    """What it returns and what it raises reach the caller unchanged; both are scored."""
    result: list[ScoredTrace] = []
    given = [TEXT]

    def search(query: str) -> list[str]:
        if query == "broken":
            raise KeyError("index")
        return given

    with BackgroundScorer(result.append, judge="lexical", metrics=["error"]) as background:
        retriever = MeasuredRetriever(search, background, route="office")
        assert retriever(QUERY) is given
        with pytest.raises(KeyError):
            retriever("broken")
    assert [scored.values["error"] for scored in result] == [0.0, 1.0]
    assert result[0].trace.route == "office"
    assert len(result[0].trace.steps[0].chunks) == 1


def test_what_is_no_list_of_chunks_harms_nobody():
    """The caller gets it, it is counted, and warned of once."""
    with BackgroundScorer(lambda _: None, judge="lexical", metrics=METRICS) as background:
        with pytest.warns(RuntimeWarning, match="not a list of chunks"):
            assert MeasuredRetriever(lambda query: 42, background)("?") == 42
        assert MeasuredRetriever(lambda query: [object()], background)("?")
    assert (background.rejected, background.submitted) == (2, 0)


def test_observed_functions_make_one_trace():
    """The outermost call is the trace; retriever and generator within it add chunks, answer and times."""
    result: list[ScoredTrace] = []
    with BackgroundScorer(result.append, judge="lexical", metrics=METRICS) as background:

        @observe(background, "retriever")
        def search(query: str, k: int = 3) -> list[str]:
            return [TEXT]

        @observe(background, "generator")
        async def write(prompt: str) -> str:
            return "It opens at 7:30."

        @observe(background)
        async def answer(user: int, question: str) -> str:
            search(question)
            return await write("Answer!")

        assert asyncio.run(answer(1, question=QUERY)) == "It opens at 7:30."
        with pytest.raises(TypeError):
            asyncio.run(answer())
    [first, second] = [scored.trace for scored in result]
    assert (first.query, first.answer, len(first.chunks)) == (QUERY, "It opens at 7:30.", 1)
    assert [step.name for step in first.steps] == ["search", "write"]
    assert second.error.startswith("TypeError")


def test_traces_of_tasks_at_once_do_not_mix():
    """Each task has its own trace, whatever the others do meanwhile."""
    result: list[ScoredTrace] = []
    with BackgroundScorer(result.append, judge="lexical", metrics=METRICS) as background:

        @observe(background, "retriever")
        async def search(query: str) -> list[str]:
            await asyncio.sleep(0.001)
            return [f"about {query}"]

        @observe(background)
        async def answer(query: str) -> str:
            return (await search(query))[0]

        async def several() -> None:
            await asyncio.gather(*(answer(str(n)) for n in range(20)))

        asyncio.run(several())
    assert all(scored.trace.answer == f"about {scored.trace.query}" for scored in result)
    assert len(result) == 20


def test_names_are_checked_where_they_are_given():
    """A judge, metric or kind that does not exist is told to the caller, not to a worker."""
    with pytest.raises(UnknownName, match="lexical"):
        BackgroundScorer(print, judge="lexicl")
    with pytest.raises(UnknownName):
        BackgroundScorer(print, judge="lexical", metrics=["no_such"])
    with BackgroundScorer(print, judge="lexical") as background, pytest.raises(UnknownName, match="retriever"):
        observe(background, "retriver")


def test_a_retriever_of_langchain_stays_one():
    """In a chain it finds what it found before, sync and async, and each retrieval is scored."""
    pytest.importorskip("langchain_core", reason="LangChain is not installed")
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import RunnableLambda

    from ragfault.integrations.langchain import MeasuredLangChainRetriever as Measured

    class Fixed(BaseRetriever):
        def _get_relevant_documents(self, query, *, run_manager):
            if query == "broken":
                raise KeyError("index")
            return [Document(page_content=TEXT, metadata={"source": "guide"}, id="d1")]

    result: list[ScoredTrace] = []
    with BackgroundScorer(result.append, judge="lexical", metrics=METRICS) as background:
        retriever = Measured(retriever=Fixed(), background=background)
        chain = retriever | RunnableLambda(lambda documents: documents[0].page_content)
        assert chain.invoke(QUERY) == TEXT
        assert asyncio.run(chain.ainvoke(QUERY)) == TEXT
        with pytest.raises(KeyError):
            retriever.invoke("broken")
    assert [scored.trace.error for scored in result] == [None, None, "KeyError: 'index'"]
    assert result[0].trace.chunks[0] == Chunk(id="d1", text=TEXT, metadata={"source": "guide"})


def test_a_retriever_of_llamaindex_stays_one():
    """In a query engine it finds what it found before, sync and async, and each retrieval is scored."""
    pytest.importorskip("llama_index.core", reason="LlamaIndex is not installed")
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import NodeWithScore, TextNode

    from ragfault.integrations.llamaindex import MeasuredLlamaIndexRetriever as Measured

    class Fixed(BaseRetriever):
        def _retrieve(self, query_bundle):
            return [NodeWithScore(node=TextNode(text=TEXT, id_="n1", metadata={"page": 3}), score=0.5)]

    result: list[ScoredTrace] = []
    with BackgroundScorer(result.append, judge="lexical", metrics=METRICS) as background:
        retriever = Measured(Fixed(), background)
        assert retriever.retrieve(QUERY)[0].node.get_content() == TEXT
        assert asyncio.run(retriever.aretrieve(QUERY))[0].score == 0.5
    assert len(result) == 2
    chunk = result[0].trace.chunks[0]
    assert (chunk.id, chunk.score, chunk.metadata) == ("n1", 0.5, {"page": 3})


@pytest.mark.long
def test_lines_of_scores_can_be_read_again(tmp_path: Path):
    """Each line is a whole outcome."""
    place = tmp_path / "deep" / "scores.jsonl"
    with BackgroundScorer(to_jsonl(place), judge="lexical", metrics=METRICS) as background:
        background.submit(traces(1)[0])
    assert msgspec.json.decode(place.read_bytes(), type=ScoredTrace).trace == traces(1)[0]


@pytest.mark.long
def test_a_worker_that_dies_while_nothing_waits_loses_nothing():
    """What comes next goes to another worker, and is not held to be its cause."""
    result: list[ScoredTrace] = []
    with BackgroundScorer(result.append, judge="lexical", metrics=METRICS) as background:
        for trace in traces(3):
            background._worker._process.kill()
            background._worker._process.wait()
            time.sleep(0.05)
            background.submit(trace)
            assert background.flush(60)
    assert [score.status for scored in result for score in scored.scores] == ["scored"] * 6


@pytest.mark.parametrize("odd", [{"query": "lone \ud800"}, {"metadata": {"number": 2**80}}])
def test_what_cannot_be_sent_fails_alone(odd: dict):
    """A trace that no frame can hold has failed scores with the reason, and those behind it are scored."""
    result: list[ScoredTrace] = []
    with BackgroundScorer(result.append, judge="lexical", metrics=METRICS) as background:
        background.submit(msgspec.structs.replace(traces(1)[0], **odd))
        background.submit(traces(1)[0])
    assert [scored.scores[0].status for scored in result] == ["failed", "scored"]
    assert "cannot be sent" in result[0].scores[0].reason


def test_a_sink_or_judge_that_leaves_costs_its_own_score_alone():
    """Even SystemExit there ends nothing but the score that it came with."""
    result: list[str] = []

    def sink(scored: ScoredTrace) -> None:
        result.append(scored.scores[0].status)
        if len(result) == 1:
            sys.exit(1)

    class Leaving:
        fingerprint, offers = "leaving", frozenset(["chunk"])

        def observe(self, batch):
            sys.exit(2)

    for judge, status in (("lexical", "scored"), (Leaving(), "failed")):
        result.clear()
        background = BackgroundScorer(sink, judge=judge, metrics=METRICS)
        for trace in traces(2):
            background.submit(trace)
        with pytest.warns(RuntimeWarning, match="SystemExit"):
            background.close()
        assert result == [status, status]


@pytest.mark.long
def test_a_process_that_is_forked_scores_its_own_and_holds_nobody_up(tmp_path: Path):
    """The child begins anew; the parent ends at once though the child lives on."""
    program = f"""
import os, sys, time
from ragfault.evaluation.online.background import BackgroundScorer, to_jsonl
from ragfault.model.records import Trace
background = BackgroundScorer(to_jsonl({str(tmp_path)!r} + "/scores.jsonl"), judge="lexical", metrics=["redundancy"])
background.submit(Trace(id="parent", query="?", chunks=()))
assert background.flush(60)
read, write = os.pipe()
child = os.fork()
if not child:
    background.submit(Trace(id="child", query="?", chunks=()))
    assert background.flush(60)
    os.close(write)
    os.read(read, 1)
    os._exit(0)
background.close(60)
assert not background._thread.is_alive()
os.write(write, b"x")
os.close(write)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=120)
    lines = (tmp_path / "scores.jsonl").read_bytes().splitlines()
    assert sorted(msgspec.json.decode(line, type=ScoredTrace).trace.id for line in lines) == ["child", "parent"]


def test_threads_at_once_are_counted_right():
    """However many submit, each trace is counted once, and what comes after the end is dropped, not lost."""
    import threading

    result: list[ScoredTrace] = []
    background = BackgroundScorer(result.append, judge="lexical", metrics=["redundancy"])
    taken: list[bool] = []

    def several() -> None:
        taken.extend(background.submit(trace) for trace in traces(60))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=several) for _ in range(8)]
    for thread in threads:
        thread.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        background.close()
        for thread in threads:
            thread.join()
        assert not background.submit(traces(1)[0])
    sys.setswitchinterval(before)
    assert background.flush(10)
    assert len(result) == background.submitted == taken.count(True)
    assert background.dropped == taken.count(False) + 1


def test_odd_metadata_never_reaches_the_caller_as_an_error():
    """Whatever a retriever returned, its caller has it."""
    odd = [{"text": TEXT, "metadata": ["no", "mapping"]}]
    with BackgroundScorer(lambda _: None, judge="lexical", metrics=METRICS) as background:
        with pytest.warns(RuntimeWarning, match="cannot score"):
            assert MeasuredRetriever(lambda query: odd, background)("?") is odd
        assert observe(background, "retriever")(lambda query: odd)("?") is odd
    assert background.rejected == 2


@pytest.mark.long
def test_a_trace_that_takes_too_long_has_failed():
    """A worker that exceeds the limit on one trace is replaced, and says so in its scores; nothing waits for ever."""
    scored: list[ScoredTrace] = []
    with BackgroundScorer(scored.append, judge="lexical", metrics=["context_relevance"], time_limit=0.02) as background:
        for at in range(3):
            background.submit(Trace(id=str(at), query="When?", chunks=()))
        assert background.flush(60)
    assert sorted(item.trace.id for item in scored) == ["0", "1", "2"]
    reasons = [score.reason for item in scored for score in item.scores if score.status == "failed"]
    assert reasons
    assert all("longer than 0.02 seconds" in reason for reason in reasons)
