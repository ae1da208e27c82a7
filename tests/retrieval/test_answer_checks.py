"""Laws of checks after generation: no answer is replaced by a more doubtful one, and no cached one without proof."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from endpoint import Server, serve_model
from ragfault.judges.answer_edits import ABSTENTION, DISCLAIMER, MARK, QUESTION
from ragfault.judges.loading import load_judge
from ragfault.model.errors import StageFailed, UnknownName, UsageError
from ragfault.model.records import Chunk, Citation, ConversationTurn, Trace
from ragfault.retrieval.answers.cache import AnswerCache
from ragfault.retrieval.answers.checks import (
    AnswerPipeline,
    clarify,
    criticize,
    escalate,
    make_writer,
    repair,
    rephrase,
    verify,
)
from ragfault.retrieval.answers.registry import make_answer_pipeline
from ragfault.retrieval.embedders.latent import LatentEmbedder
from ragfault.retrieval.generation import answering
from ragfault.retrieval.index import ChunkIndex
from ragfault.retrieval.pipeline_config import build_pipeline, format_pipeline_config, read_pipeline_config

CHUNK = Chunk(id="a", text="The harbour office of Ostrey opens at 7:30 on weekdays.")
GOOD, BAD = "The harbour office opens at 7:30 on weekdays.", "The mayor sings opera on Sundays."
JUDGE = load_judge("lexical")


def make(answer: str, query: str = "When does the harbour office of Ostrey open?") -> Trace:
    return Trace(id="1", query=query, chunks=(CHUNK,), answer=answer)


def test_verify_cuts_marks_disclaims_or_abstains():
    """Sentences in doubt are cut or marked, answers in doubt disclaimed or withheld; good ones stay untouched."""
    trace = make(f"{GOOD} {BAD}")
    assert verify(JUDGE)(trace).answer == GOOD
    assert verify(JUDGE, "mark")(trace).answer == f"{GOOD} {BAD}{MARK}"
    assert verify(JUDGE, "disclaim")(trace).answer == DISCLAIMER + f"{GOOD} {BAD}"
    assert verify(JUDGE, "abstain")(trace).answer == verify(JUDGE)(make(BAD)).answer == ABSTENTION
    for action in ("cut", "mark", "disclaim", "abstain"):
        assert verify(JUDGE, action)(make(GOOD)) == make(GOOD)  # type: ignore[arg-type]
        assert verify(JUDGE, action)(make(" ")) == make(" ")  # type: ignore[arg-type]


def test_repair_stops_when_it_no_longer_helps():
    """A pass that leaves no doubt ends it, one that does not lower the doubt ends it with the answer before."""
    feedback: list[str] = []

    def write(answers: list[str]):
        def writer(_: Trace, text: str) -> str:
            feedback.append(text)
            return answers.pop(0)

        return writer

    trace = make(f"{GOOD} {BAD}")
    assert repair(JUDGE, write([GOOD, BAD]), passes=5)(trace).answer == GOOD
    assert feedback == [f"The passages do not support: {BAD}"]
    assert repair(JUDGE, write([BAD, GOOD]), passes=5)(trace) == trace
    assert repair(JUDGE, write([]))(make(GOOD)) == make(GOOD)
    assert repair(JUDGE, write([]))(trace) == trace


def test_a_stronger_model_is_asked_only_in_doubt():
    """Above the threshold the stronger model answers, and its answer is taken only if its risk is lower."""
    asked: list[str] = []

    def strong(trace: Trace, _: str) -> str:
        asked.append(trace.answer or "")
        return GOOD

    assert escalate(JUDGE, strong)(make(BAD)).answer == GOOD
    assert escalate(JUDGE, strong)(make(GOOD)).answer == GOOD
    assert asked == [BAD]
    assert escalate(JUDGE, lambda *_: f"{BAD} The bishop paints whales in Peru.")(make(BAD)).answer == BAD


def test_a_rewrite_that_adds_doubt_is_dropped():
    """Rephrasing and self-critique keep the original where the rewrite says what the chunks do not."""
    formal = f"Dear customer. {GOOD}"
    assert rephrase(JUDGE, lambda *_: formal, "formally")(make(GOOD)).answer == formal
    assert rephrase(JUDGE, lambda *_: BAD, "formally")(make(GOOD)).answer == GOOD
    seen: list[str] = []
    criticize(JUDGE, lambda _, text: seen.append(text) or GOOD, ["Give no advice."])(make(GOOD))
    assert "(1) Give no advice." in seen[0]
    with pytest.raises(UsageError, match="no principle"):
        criticize(JUDGE, lambda *_: GOOD, [])


def test_clarification_where_the_chunks_do_not_cover_the_query():
    """A query that no chunk covers is answered by a question, one that is covered by its answer."""
    assert clarify(JUDGE)(make(GOOD)).answer == GOOD
    assert clarify(JUDGE)(make(BAD, "Who composed the anthem of Peru?")).answer == QUESTION


def test_stages_are_steps_and_failures_have_names():
    """Each check is a step with what it was given and returned; an error names the check."""
    trace = AnswerPipeline({"verify": verify(JUDGE), "again": verify(JUDGE, "mark")})(make(f"{GOOD} {BAD}"))
    assert [(step.name, step.input, step.output) for step in trace.steps or ()] == [
        ("verify", f"{GOOD} {BAD}", GOOD),
        ("again", GOOD, GOOD),
    ]
    with pytest.raises(StageFailed, match='the check "broken" failed'):
        AnswerPipeline({"broken": lambda _: 1 / 0})(make(GOOD))  # type: ignore[arg-type, return-value]
    with pytest.raises(UsageError, match="no check"):
        AnswerPipeline({})


def test_the_writer_of_a_model_gets_everything_as_data():
    """Question, passages, answer and feedback are in the text, none of them in the instructions."""

    class Echo:
        fingerprint = "echo"

        def generate(self, instructions: str, text: str) -> str:
            assert "Ostrey" not in instructions
            return text

    text = make_writer(Echo())(make(GOOD), "too long")
    assert all(part in text for part in (CHUNK.text, GOOD, "too long", "When does"))


class Clock:
    """Clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Is the ferry from Ostrey to Hull late?", "Is the ferry to Ostrey from Hull late?"),
        ("When does the last ferry leave?", "When does the first ferry leave?"),
        ("May dogs travel?", "May dogs not travel?"),
        ("Is Ann older than Ben?", "Is Ben older than Ann?"),
        ("What is the fee for 2 tents?", "What is the fee for 3 tents?"),
    ],
)
@pytest.mark.parametrize("embedded", [False, True])
def test_questions_that_differ_in_a_word_share_no_answer(first: str, second: str, embedded: bool):
    """Directions, order, negations, names and numbers keep questions apart, however similar they are."""
    embedder = LatentEmbedder().fit([first, second]) if embedded else None
    cache = AnswerCache(lambda trace: replace(trace, answer=trace.query), embedder=embedder, similarity=0.01)
    answers = [cache(Trace(id=query, query=query, chunks=(CHUNK,))).answer for query in (first, second, first)]
    assert answers == [first, second, first]
    assert (cache.hits, cache.misses) == (1, 2)


def test_a_pipeline_file_has_checks(tmp_path: Path):
    """[checks] of a pipeline.toml are read, written again and run on answers; a wrong one is refused."""
    path = tmp_path / "pipeline.toml"
    path.write_text('[stages]\nretrieve = "sparse(5)"\n\n[checks]\nverify = "cut(lexical)"\n', encoding="utf-8")
    config = read_pipeline_config(path)
    assert config.checks == {"verify": "cut(lexical)"}
    path.write_text(format_pipeline_config(config), encoding="utf-8")
    assert read_pipeline_config(path) == config
    assert make_answer_pipeline(config.checks)(make(f"{GOOD} {BAD}")).answer == GOOD
    for wrong, error in (("cutt", UnknownName), ("cut(judgy=1)", UnknownName), ("repair", UsageError)):
        path.write_text(f'[stages]\nretrieve = "sparse"\n[checks]\na = "{wrong}"\n', encoding="utf-8")
        with pytest.raises(error):
            read_pipeline_config(path)


def test_a_cached_answer_is_dropped_with_its_passages_or_its_age():
    """A changed or absent passage, an old answer, another route and a conversation are answered anew."""
    clock = Clock()
    cache = AnswerCache(
        lambda trace: replace(trace, answer=GOOD, citations=(Citation(chunk="a"),)), max_age=60, clock=clock
    )
    trace = Trace(id="1", query="When does it open?", chunks=(CHUNK, Chunk(id="b", text="Other")))
    cache(trace)
    again = cache(replace(trace, id="2", query="when does it open", chunks=(CHUNK,)))
    assert (cache.hits, again.answer, again.metadata["cached"]["similarity"]) == (1, GOOD, 1.0)
    changed = replace(CHUNK, text="It opens at 9:00.")
    for other in (
        replace(trace, chunks=(changed,)),
        replace(trace, chunks=()),
        replace(trace, route="staff"),
        replace(trace, history=(ConversationTurn(role="user", text="Hi"),)),
    ):
        cache(other)
        assert cache.hits == 1
    clock.now = 61.0
    cache(trace)
    assert cache.hits == 1


def test_the_cache_is_bounded_and_keeps_no_failure():
    """No more than its capacity is held, the newest; an answer with an error is not stored."""
    cache = AnswerCache(
        lambda trace: replace(trace, answer="x", error="broken" if "9" in trace.query else None), capacity=2
    )
    for query in ("q 1", "q 2", "q 3", "q 9"):
        cache(Trace(id=query, query=query))
    for query, hits in (("q 3", 1), ("q 2", 2), ("q 9", 2), ("q 1", 2)):
        cache(Trace(id=query, query=query))
        assert cache.hits == hits


class WritingServer(Server):
    """Scripted model that answers with a true sentence and a false one."""

    def reply(self, messages: Sequence[Mapping[str, Any]]) -> str:
        return json.dumps({"answer": f"{GOOD} {BAD}"})


@pytest.mark.long
def test_a_pipeline_with_a_generator_checks_what_it_writes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """With [generator] and [checks] the answer of the model is cut; one that fails leaves no answer and no step."""
    path = tmp_path / "pipeline.toml"
    path.write_text(
        '[stages]\nretrieve = "sparse(5)"\n[generator]\nmodel = "llm:m"\n[checks]\nverify = "cut(lexical)"\n',
        encoding="utf-8",
    )
    index = ChunkIndex.build([CHUNK])
    monkeypatch.setenv("RAGFAULT_CACHE", str(tmp_path / "replies.sqlite"))
    for faults, answer in (({}, GOOD), ({"400": 1.0}, None)):
        answering._load_writer.cache_clear()
        with serve_model(faults, kind=WritingServer) as server:
            monkeypatch.setenv("RAGFAULT_LLM_BASE_URL", server.url)
            if answer is None:
                server.refuses = ("messages",)
            trace = build_pipeline(read_pipeline_config(path), index)("When does the harbour office of Ostrey open?")
            assert trace.answer == answer
            assert ("verify" in [step.name for step in trace.steps or ()]) == (answer is not None)
    answering._load_writer.cache_clear()
