"""Judge that asks a model one typed question for each verdict, and takes the probability of yes."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ragfault.judges.assembly import OFFERED_PARTS, ScorerJudge, assemble_verdicts
from ragfault.judges.calibration import UNSURE_RANGE
from ragfault.judges.checks.claims import strip_marks
from ragfault.judges.checks.lexicon import load_idf
from ragfault.judges.checks.passages import Passage
from ragfault.judges.checks.queries import WeightedQuery
from ragfault.judges.checks.word_reading import WordReading
from ragfault.judges.domain.profile import DomainProfile
from ragfault.judges.lexical.entailment import EntailmentThresholds, LexicalSession
from ragfault.judges.llm.account import ModelAccount
from ragfault.judges.llm.estimates import CostEstimate, estimate_calls
from ragfault.judges.llm.settings import LLMSettings, build_settings, endpoint_location
from ragfault.judges.llm.transport.model_transport import LLMSession
from ragfault.judges.llm.transport.questions import VerdictReading, YesNoQuestion, build_question_call
from ragfault.judges.llm.transport.reply_cache import CallFailed, ModelCall, ModelCaller, ModelMessage
from ragfault.judges.open_models import load_open_models
from ragfault.judges.scorer import Entailment, EntailmentGroup, RelevanceScore
from ragfault.model.errors import UsageError
from ragfault.model.protocols import VerdictKind
from ragfault.model.records import ClaimSupport, Trace, Verdicts

VERSION = 1
SUPPORT_QUESTION = "Do the sources state or clearly imply everything that the statement says?"
RELEVANCE_QUESTION = "Does the source contain information that helps to answer the question?"
MAX_STATE_CHARS = 100_000
"""Longest texts of a question, in characters: about 25,000 tokens of the 32,000 that such models read."""
UNUSED_SETTINGS = ("votes", "reverse", "rubrics", "batch_api", "images", "structured", "max_tokens")
"""Settings of a judge that writes text, which this one refuses."""


class DecisionSession(WordReading):
    """The scores of one trace: support and relevance by typed questions, everything else by words."""

    def __init__(self, session: LLMSession | None, judge: DecisionJudge, query: str) -> None:
        self._session, self._settings, self._model = session, judge.settings, judge.model
        self._thresholds = thresholds = judge.thresholds
        self._query = query
        self._lexical = LexicalSession(load_idf(), thresholds, query)
        self._answers: dict[str, float] = {}

    def score_relevance(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        """Return the probability that each passage helps; of blank ones, and of tasks about the passage, by words."""
        scores = self._lexical.score_relevance(query, passages)
        if self._model or not self._settings.asks_about_retrieval or WeightedQuery(query, load_idf()).is_task:
            return scores
        asked = [number for number, passage in enumerate(passages) if passage.text.strip()]
        questions = [
            YesNoQuestion(RELEVANCE_QUESTION, {"question": query, "source": passages[number].text}) for number in asked
        ]
        for number, p in zip(asked, self._ask(questions), strict=True):
            scores[number] = RelevanceScore(p, scores[number].reason if p < 0.5 else None)
        return scores

    def score_coverage(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        return self._lexical.score_coverage(query, passages)

    def prefetch(self, groups: Sequence[EntailmentGroup]) -> None:
        """Ask about the claims of all groups at once."""
        if self._settings.asks_about_answer:
            asked = [(claim, passages) for claims, passages in groups if _have_text(passages) for claim in claims]
            self._ask([self._make_question(claim, passages) for claim, passages in asked])

    def score_entailment(self, claims: Sequence[str], passages: Sequence[Passage]) -> list[Entailment]:
        """Return the support of each claim: its probability by the model, its evidence by words."""
        read = self._lexical.score_entailment(claims, passages)
        if not self._settings.asks_about_answer or not _have_text(passages):
            return read
        probabilities = self._ask([self._make_question(claim, passages) for claim in claims])
        return [self._decide(entailment, p) for entailment, p in zip(read, probabilities, strict=True)]

    def _decide(self, read: Entailment, p: float) -> Entailment:
        support: ClaimSupport = "contradicted" if read.support == "contradicted" else "unsupported"
        if p >= self._thresholds.inferred:
            support = "supported" if p >= self._thresholds.supported else "inferred"
        reason = read.reason if support == read.support else f"the model says yes with {p:.2f}"
        unsure = UNSURE_RANGE[0] <= p <= UNSURE_RANGE[1]
        return read._replace(support=support, p=p, reason=reason, unsure=unsure, unsupported_spans=())

    def _make_question(self, claim: str, passages: Sequence[Passage]) -> YesNoQuestion:
        """Make the question whether passages support a claim, for an open model in the words it was trained on."""
        sources = [passage.text for passage in passages if passage.text.strip()]
        state = {"question": self._query, "sources": sources, "statement": strip_marks(claim)}
        if self._model is None:
            return YesNoQuestion(SUPPORT_QUESTION, state)
        model = self._model
        written = model.render_messages(self._query, sources, strip_marks(claim))
        messages = tuple(ModelMessage(role, text) for role, text in written)
        return YesNoQuestion("", state, messages, VerdictReading(model.verdict, model.supported, model.unsupported))

    def score_groundedness(self, answer: str, claims: Sequence[str], entailments: Sequence[Entailment]) -> float:  # noqa: ARG002
        return min((entailment.p for entailment in entailments), default=1.0)

    def measure_similarity(self, left: str, right: str) -> float:
        return self._lexical.measure_similarity(left, right)

    def _ask(self, questions: Sequence[YesNoQuestion]) -> list[float]:
        """Return the probability of yes of each question; none is sent twice in a session.

        Raises CallFailed where a reply has no probability, JudgeStopped where no further call can be made.
        """
        session = self._session
        assert session is not None
        listed = _build_calls(questions)
        calls = {call.content: call for call in listed if call.content not in self._answers}

        async def work(caller: ModelCaller) -> list[Any]:
            async def ask(key: str) -> str:
                async with session.admission:
                    return (await caller.ask(calls[key])).text

            return list(zip(calls, await asyncio.gather(*map(ask, calls)), strict=True))

        for key, text in session.run(work) if calls else ():
            self._answers[key] = msgspec.json.decode(text, type=float)
        return [self._answers[call.content] for call in listed]


class PlannedSession(DecisionSession):
    """Session that sends no question, and keeps the calls that it would make."""

    def __init__(self, judge: DecisionJudge, query: str, calls: list[ModelCall]) -> None:
        super().__init__(None, judge, query)
        self._calls = calls

    def _ask(self, questions: Sequence[YesNoQuestion]) -> list[float]:
        self._calls += _build_calls(questions)
        return [0.5] * len(questions)


class QuestionPlanner(ScorerJudge):
    """Judge that only plans what a decision judge would ask; verdicts are meaningless."""

    def __init__(self, judge: DecisionJudge) -> None:
        self._judge, self.calls = judge, list[ModelCall]()
        self.thresholds = judge.thresholds

    @property
    def fingerprint(self) -> str:
        return self._judge.fingerprint

    def open_session(self, query: str = "", history: Sequence[str] = ()) -> PlannedSession:  # noqa: ARG002
        return PlannedSession(self._judge, query, self.calls)


def _build_calls(questions: Sequence[YesNoQuestion]) -> list[ModelCall]:
    """Build the calls of questions; raises CallFailed for texts that are too long."""
    if any(sum(len(str(text)) for text in item.state.values()) > MAX_STATE_CHARS for item in questions):
        raise CallFailed(f"the sources are longer than the {MAX_STATE_CHARS:,} characters that are sent at once")
    return list(map(build_question_call, questions))


def _have_text(passages: Sequence[Passage]) -> bool:
    return any(passage.text.strip() for passage in passages)


class DecisionJudge(ModelAccount, ScorerJudge):
    """Judge decision:MODEL or logprobs:MODEL: one typed question for each claim, chunk, fact and citation.

    An `entry` is the name of an open model, asked in the words of `open_models.toml`, about support only.

    The model says yes or no with a probability; evidence, refusals and missing information are read by words, as by
    the judge lexical. Raises UsageError for settings of a judge that writes text.

    >>> DecisionJudge("typesafe/jev-latest").fingerprint.split()[:3]
    ['decision/1', 'typesafe/jev-latest', 'at=api.typesafe.ai']
    """

    def __init__(
        self,
        name: str = "",
        *,
        answer_format: Literal["decision", "logprobs"] = "decision",
        settings: LLMSettings | None = None,
        entry: str = "",
        supported: float = 0.7,
        inferred: float = 0.5,
        **options: Any,
    ) -> None:
        refused = [option for option in UNUSED_SETTINGS if option in options]
        if refused:
            raise UsageError(f"{', '.join(refused)}: only for a judge that writes text, llm:MODEL. Leave it out.")
        built = settings if settings is not None else build_settings(name, **options)
        self._entry, self.model = entry, load_open_models()[entry] if entry else None
        words: Any = (SUPPORT_QUESTION, RELEVANCE_QUESTION)
        built = replace(built, answer_format=answer_format, max_tokens=1)
        if self.model is not None:
            merged = {**self.model.parameters, **built.parameters}
            built = replace(built, max_tokens=self.model.max_tokens, parameters=merged)
            words = (self.model.messages, self.model.verdict, self.model.supported)
        super().__init__(built)
        self.thresholds = EntailmentThresholds(supported, inferred)
        digest = hashlib.sha256(msgspec.json.encode(words)).hexdigest()[:8]
        parameters = msgspec.json.encode(built.parameters, order="deterministic").decode().replace(" ", "_")
        self._fingerprint = (
            f"{entry or answer_format}/{VERSION} {built.provider}/{built.model} at={endpoint_location(built)} "
            f"questions={digest} {self.thresholds}{f' parameters={parameters}' if built.parameters else ''}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        options: dict[str, Any] = {"supported": self.thresholds.supported, "inferred": self.thresholds.inferred}
        options |= {"answer_format": self.settings.answer_format, "settings": self.settings, "entry": self._entry}
        return partial(DecisionJudge, **options), ()

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    def with_profile(self, profile: str | Path | DomainProfile) -> DecisionJudge:
        """Raise UsageError: the questions take no domain profile."""
        raise UsageError(f"the judge {self.fingerprint.split()[0]} takes no domain profile ({profile}). Leave it out.")

    def open_session(self, query: str = "", history: Sequence[str] = ()) -> DecisionSession:  # noqa: ARG002
        return DecisionSession(self._open_session(), self, query)

    def estimate(self, traces: Iterable[Trace]) -> CostEstimate:
        """Estimate calls and cost of judging these traces; sends nothing."""
        return estimate_calls(self.fingerprint, traces, self._plan_calls, self.settings)

    def _plan_calls(self, trace: Trace) -> list[ModelCall]:
        planner = QuestionPlanner(self)
        assemble_verdicts(trace, planner, self.levels)
        return planner.calls

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        """Return the verdicts on each trace, several traces at once; raises JudgeStopped where no call can be made."""
        self._open_session()
        with ThreadPoolExecutor(min(self.settings.concurrency, max(1, len(traces)))) as pool:
            return list(pool.map(self._judge, traces))

    def _judge(self, trace: Trace) -> Verdicts:
        verdicts = assemble_verdicts(trace, self, self.levels)
        kinds: Sequence[VerdictKind] | None = self.settings.verdicts
        if kinds is None:
            return verdicts
        return replace(verdicts, **{kind: None for kind in OFFERED_PARTS if kind not in kinds})
