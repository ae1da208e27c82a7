"""Checks of a generated answer as stages of a pipeline: verify, repair, escalate, rephrase, criticize, ask, reuse.

Each stage takes the trace with its answer and returns it, changed or not. An answer is only ever replaced by one of
which the judge doubts a smaller share, or none; what was done is a step of the trace.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from ragfault.judges.answer_edits import (
    ABSTENTION,
    DISCLAIMER,
    QUESTION,
    cut_unsupported,
    list_unsupported,
    mark_unsupported,
)
from ragfault.judges.assembly import observe_traces
from ragfault.model.errors import RagfaultError, StageFailed, UsageError
from ragfault.model.protocols import Generator, Judge
from ragfault.model.records import Step, Trace, Verdicts
from ragfault.model.rules import chunks_cover_query, settle_groundedness

AnswerStage = Callable[[Trace], Trace]
"""Stage after generation: a plain callable from trace to trace."""
Writer = Callable[[Trace, str], str]
"""Trace and feedback → another answer: a stronger model, or the same one again."""
VerifyAction = Literal["cut", "mark", "disclaim", "abstain"]

REPAIR_INSTRUCTIONS = (
    "Answer the question from the passages alone. An earlier answer and what is wrong with it are given: correct it, "
    "keep what is right, and leave out what the passages do not say."
)


class AnswerPipeline:
    """Stages after generation by name, run one after the other on a trace; each is recorded as a step.

    >>> pipeline = AnswerPipeline({"shout": lambda trace: replace(trace, answer=(trace.answer or "").upper())})
    >>> trace = pipeline(Trace(id="1", query="When?", answer="at ten."))
    >>> trace.answer, [(step.name, step.output) for step in trace.steps]
    ('AT TEN.', [('shout', 'AT TEN.')])
    """

    def __init__(self, stages: Mapping[str, AnswerStage]) -> None:
        if not stages:
            raise UsageError("there is no check. Give at least one, such as verify.")
        self.stages = dict(stages)

    def __call__(self, trace: Trace) -> Trace:
        """Run the stages on a trace with an answer.

        Raises StageFailed where one raises anything but an error of ragfault.
        """
        if not (trace.answer or "").strip():
            return trace
        for name, stage in self.stages.items():
            start = time.perf_counter()
            try:
                result = stage(trace)
            except RagfaultError:
                raise
            except Exception as error:
                raise StageFailed(f'the check "{name}" failed on the query "{trace.query[:80]}": {error}') from error
            ms = 1000 * (time.perf_counter() - start)
            step = Step(id=f"check:{name}", name=name, input=trace.answer, output=result.answer, duration=ms)
            trace = replace(result, steps=(*(result.steps or ()), step))
        return trace


class JudgedAnswer(NamedTuple):
    """Answer with its verdicts."""

    trace: Trace
    verdicts: Verdicts

    @property
    def unsupported(self) -> list[str]:
        """Claims that the chunks do not support."""
        return list_unsupported(self.verdicts)

    @property
    def doubt(self) -> float:
        """Share of the claims that the chunks do not support; 0 without claims, 1 where the judge failed."""
        if self.verdicts.failures.keys() & {"*", "claim"}:
            return 1.0
        return len(self.unsupported) / max(1, len(self.verdicts.claim or ()))

    @property
    def risk(self) -> float:
        """Probability by the judge that not all of the answer is supported; the share of bad claims where unknown."""
        grounded = self.verdicts.answer.grounded if self.verdicts.answer is not None else None
        return self.doubt if grounded is None else 1 - settle_groundedness(grounded, self.verdicts.claim or ())


def judge_answer_of(trace: Trace, judge: Judge) -> JudgedAnswer:
    """Judge the answer of a trace against its chunks alone, without its answer key."""
    bare = Trace(id=trace.id, query=trace.query, history=trace.history, chunks=trace.chunks, answer=trace.answer)
    [verdicts] = observe_traces(judge, [bare])
    return JudgedAnswer(trace, verdicts)


def verify(judge: Judge, action: VerifyAction = "cut", *, threshold: float = 0.5) -> AnswerStage:
    """Verify the claims; cut or mark the sentences that the chunks do not support, disclaim, or abstain.

    "disclaim" and "abstain" are about the answer: above the `threshold` of the judge's risk. Where nothing is left
    after a cut, and where the judge failed, the answer is an abstention.
    """

    def check(trace: Trace) -> Trace:
        if not (trace.answer or "").strip():
            return trace
        judged_answer = judge_answer_of(trace, judge)
        if judged_answer.verdicts.failures.keys() & {"*", "claim"}:
            return replace(trace, answer=ABSTENTION, citations=None)
        if action in ("disclaim", "abstain"):
            if judged_answer.risk <= threshold:
                return trace
            return replace(trace, answer=ABSTENTION if action == "abstain" else DISCLAIMER + (trace.answer or ""))
        if not judged_answer.unsupported:
            return trace
        if action == "mark":
            return replace(trace, answer=mark_unsupported(trace, judged_answer.verdicts))
        return cut_unsupported(trace, judged_answer.verdicts) or replace(trace, answer=ABSTENTION, citations=None)

    return check


def repair(judge: Judge, write: Writer, *, passes: int = 2) -> AnswerStage:
    """Write the answer again with the failed claims as feedback, at most `passes` times.

    The measured stop: no claim is in doubt any more, or a pass did not lower the share of claims in doubt. The best
    answer stays.
    """

    def check(trace: Trace) -> Trace:
        best = judge_answer_of(trace, judge)
        for _ in range(passes):
            if not best.unsupported:
                break
            again = _try_write(best.trace, write, "The passages do not support: " + " | ".join(best.unsupported), judge)
            if again is None or again.doubt >= best.doubt:
                break
            best = again
        return best.trace

    return check


def escalate(judge: Judge, strong: Writer, *, threshold: float = 0.5) -> AnswerStage:
    """Ask a stronger model where the judge's risk of the answer is above a threshold; the lower risk is taken."""

    def check(trace: Trace) -> Trace:
        judged_answer = judge_answer_of(trace, judge)
        if judged_answer.risk <= threshold:
            return trace
        second = _try_write(trace, strong, "", judge)
        return second.trace if second is not None and second.risk < judged_answer.risk else trace

    return check


def rephrase(judge: Judge, write: Writer, instruction: str) -> AnswerStage:
    """Rewrite the answer by an instruction, such as a tone; the original stays where the rewrite adds doubt."""

    def check(trace: Trace) -> Trace:
        judged_answer = judge_answer_of(trace, judge)
        second = _try_write(trace, write, instruction, judge)
        return second.trace if second is not None and second.doubt <= judged_answer.doubt else trace

    return check


def criticize(judge: Judge, write: Writer, principles: Sequence[str]) -> AnswerStage:
    """Let the model hold its answer against principles, and correct it; kept where the correction adds no doubt.

    Raises UsageError where there is no principle.
    """
    if not principles:
        raise UsageError("there is no principle. Give at least one, such as: Give no medical advice.")
    listing = " ".join(f"({number}) {text}" for number, text in enumerate(principles, 1))
    return rephrase(judge, write, f"Hold the answer against these principles and correct what breaks one: {listing}")


def clarify(judge: Judge, question: str = QUESTION) -> AnswerStage:
    """Ask back in place of an answer where the judge says that the chunks do not cover the query."""

    def check(trace: Trace) -> Trace:
        judged_answer = judge_answer_of(trace, judge)
        covered = chunks_cover_query(trace, judged_answer.verdicts)
        return replace(trace, answer=question, citations=None) if covered is False else trace

    return check


def make_writer(generator: Generator) -> Writer:
    """Make the writer of a language model: question, passages, the answer so far and the feedback, as data."""

    def write(trace: Trace, feedback: str) -> str:
        passages = "\n\n".join(chunk.text for chunk in trace.chunks or ())
        parts = {"Question": trace.query, "Passages": passages, "Earlier answer": trace.answer, "Feedback": feedback}
        text = "\n\n".join(f"{name}:\n{part}" for name, part in parts.items() if part)
        return generator.generate(REPAIR_INSTRUCTIONS, text)

    return write


def _try_write(trace: Trace, write: Writer, feedback: str, judge: Judge) -> JudgedAnswer | None:
    """Return another answer with its verdicts; None where the model failed or wrote nothing."""
    try:
        answer = write(trace, feedback)
    except UsageError:
        raise
    except Exception:  # noqa: BLE001 - a model error costs the second answer, not the first
        return None
    if not answer.strip():
        return None
    return judge_answer_of(replace(trace, answer=answer, citations=None), judge)
