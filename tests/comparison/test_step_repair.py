"""Repair of steps: an agent run again with recorded steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragfault.comparison.ablation.step_repair import Agent, StepRepairs, repair_steps
from ragfault.io.agents.recorded_steps import RecordedSteps
from ragfault.io.datasets.agent import ForgetfulAgent, SimulatedAgent
from ragfault.model.errors import InputError, UsageError
from ragfault.model.records import Chunk, Step, Trace
from ragfault.options.functions import load_function

TIMES = {"Texel": "09:30", "Vlieland": "11:15", "Ameland": "13:45", "Terschelling": "15:20", "Schiermonnikoog": "16:50",
         "Marken": "17:10", "Urk": "18:05", "Norderney": "19:25"}  # fmt: skip
QUESTIONS = [
    Trace(id=name, query=f"When does the ferry to {name} leave?", facts=(f"The ferry to {name} leaves at {time}.",))
    for name, time in TIMES.items()
]


class Clerk:
    """An agent of three steps, one of which may be wrong."""

    def __init__(self, broken: str = "") -> None:
        self.broken = broken

    def search(self, query: str) -> tuple[Chunk, ...]:
        names = [name for name in TIMES if name in query]
        names = ["Texel"] if self.broken == "retrieve" else names
        return tuple(Chunk(id=name, text=f"The ferry to {name} leaves at {TIMES[name]}.") for name in names)

    def __call__(self, question: Trace, recorded: RecordedSteps) -> Trace:
        if self.broken == question.id:
            raise RuntimeError("no model")
        rewritten = "ferries" if self.broken == "rewrite" else question.query
        query = recorded.take("rewrite", lambda: rewritten)
        chunks = recorded.take("retrieve", lambda: self.search(query))
        written = chunks[0].text if chunks and self.broken != "generate" else "The harbour is closed on Mondays."
        answer = recorded.take("generate", lambda: written)
        steps = (
            Step(id="1", kind="rewrite", output=query),
            Step(id="2", kind="retrieve", input=query, chunks=tuple(chunk.id for chunk in chunks)),
            Step(id="3", kind="generate", output=answer),
        )
        return Trace(
            id=question.id, query=question.query, facts=question.facts, chunks=chunks, answer=answer, steps=steps
        )


SOURCE = [Clerk()(question, RecordedSteps()) for question in QUESTIONS]


def repair(agent: Clerk) -> StepRepairs:
    return repair_steps(agent, SOURCE, QUESTIONS, metrics=["completeness"], judge="lexical")


@pytest.mark.parametrize("broken", ["rewrite", "retrieve", "generate"])
def test_the_earliest_kind_of_step_whose_repair_recovers_the_answers_is_the_faulty_one(broken: str):
    repairs = repair(Clerk(broken))
    assert repairs.faulty_kind == broken
    assert repairs.sentence.startswith(f"{broken} steps broke")


def test_a_kind_is_not_named_while_an_earlier_one_may_recover_half_of_the_loss():
    broken = {question.id for question in QUESTIONS[:4]}

    def answer(question: Trace, recorded: RecordedSteps) -> Trace:
        return Clerk("rewrite" if question.id in broken else "generate")(question, recorded)

    repairs = repair_steps(answer, SOURCE, QUESTIONS, metrics=["completeness"], judge="lexical")
    assert repairs.faulty_kind is None
    assert repairs.sentence.startswith("cannot tell whether generate steps broke, or rewrite")


def test_few_questions_do_not_show_that_nothing_was_lost():
    repairs = repair(Clerk())
    assert (repairs.faulty_kind, repairs.kinds) == (None, ("rewrite", "retrieve", "generate"))
    assert repairs.status == "cannot tell"
    assert "completeness may have lost more than 0.05 on 8 questions; about 56 questions like these" in repairs.sentence
    single = repair_steps(Clerk(), SOURCE, QUESTIONS[:1], metrics=["completeness"], judge="lexical", margin=5)
    assert single.status == "cannot tell"
    assert (single.losses["completeness"].low, single.losses["completeness"].high) == (-1, 1)


def test_an_agent_that_lost_nothing_beyond_the_margin_has_no_faulty_step():
    repairs = repair_steps(Clerk(), SOURCE, QUESTIONS, metrics=["completeness"], judge="lexical", margin=0.5)
    assert repairs.status == "no fault"
    assert "nothing to repair" in repairs.sentence


def raise_error(question: Trace, recorded: RecordedSteps) -> Trace:
    raise RuntimeError("boom")


def leave(question: Trace, recorded: RecordedSteps) -> Trace:
    raise SystemExit(0)


def answer_nothing(question: Trace, recorded: RecordedSteps) -> Trace:
    return Trace(id=question.id, query=question.query, facts=question.facts)


@pytest.mark.parametrize(
    ("agent", "reason"),
    [
        (raise_error, "the agent failed on 8 of 8 questions, first with RuntimeError: boom"),
        (leave, "the agent failed on 8 of 8 questions, first with SystemExit: 0"),
        (lambda question, recorded: None, "failed on 8 of 8 questions, first with TypeError: it returned NoneType"),
        (answer_nothing, "the agent gave no answer to 8 of 8 questions"),
    ],
)
def test_an_agent_that_fails_everywhere_has_not_lost_nothing(agent: Agent, reason: str):
    repairs = repair_steps(agent, SOURCE, QUESTIONS, metrics=["completeness", "groundedness"], judge="lexical")
    assert repairs.status == "cannot tell"
    assert reason in repairs.sentence


def test_a_question_on_which_the_agent_fails_is_counted_and_the_others_go_on():
    repairs = repair(Clerk("Urk"))
    assert repairs.errors == {"none": 1, "rewrite": 1, "retrieve": 1, "generate": 1}
    assert repairs.losses["completeness"].n < repairs.questions


def test_questions_that_pair_with_no_source_are_refused():
    with pytest.raises(InputError, match="paired by their ids"):
        repair_steps(Clerk(), SOURCE, [Trace(id="other", query="When?")])


def test_an_agent_is_loaded_from_a_file_or_a_module(tmp_path: Path):
    (tmp_path / "harbour_agent.py").write_text("def answer(question, recorded):\n    return question\n")
    assert load_function(f"{tmp_path}/harbour_agent.py:answer").__name__ == "answer"
    for name in ("answer", "no_such_module_here:answer", f"{tmp_path}/harbour_agent.py:reply"):
        with pytest.raises(UsageError):
            load_function(name)


def test_the_simulated_agent_that_is_run_again_without_recorded_steps_answers_the_same():
    agent = ForgetfulAgent(2)
    for trace in agent.answer_all()[:12]:
        assert agent.answer_again(trace, RecordedSteps()) == trace


@pytest.mark.long
def test_the_rewrite_of_the_demo_that_lost_the_question_is_named():
    agent = ForgetfulAgent(2)
    repairs = repair_steps(agent.answer_again, SimulatedAgent(1).answer_all(), agent.answer_all(), judge="lexical")
    assert repairs.faulty_kind == "rewrite"
