"""Records of causes: whether an answer is bad, the one cause of it, and the causes of a run."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ragfault.model.causes import CauseName
from ragfault.stats.estimates import Interval

AnswerOutcome = Literal["right", "bad", "unsure"]
"""What is known of an answer."""

OutcomeSource = Literal["labels", "answer key", "pipeline", "judge", "other run", "none"]
"""The evidence that an outcome rests on; pipeline: an error, a blank, or text that is no answer; other run: one that
answers what this one refuses."""

Stage = Literal["pipeline", "query", "source", "retrieval", "generation", "undecided"]
"""The stage at which an answer went wrong, in the order in which a query passes them."""

CostName = Literal["invented_beside", "wrong_citation"]
"""What a right answer costs its reader: a claim that no passage supports, or a citation that does not hold."""


class AnswerRating(Struct, frozen=True, kw_only=True):
    """Whether one answer is bad."""

    outcome: AnswerOutcome
    probability: float
    """The probability that the answer is bad, in [0, 1]; not calibrated yet."""
    source: OutcomeSource
    refused: bool = False
    """Whether an answer is unsure because it refuses, and no answer key says whether the passage was there."""


class AnswerCause(Struct, frozen=True, kw_only=True):
    """Whether the answer of one trace is bad, and why."""

    trace: str
    query: str
    rating: AnswerRating
    stage: Stage | None = None
    """None where the answer is not bad."""
    cause: CauseName | None = None
    probability: float | None = None
    """The probability that this is the cause, if the answer is bad, in [0, 1]; calibrated on planted causes."""
    quote: str = ""
    """The passage, claim or query that shows it; from the trace, so not to be trusted as markup."""
    reason: str = ""
    """What was seen, in a few words."""
    chunk: str | None = None
    """The id of the chunk concerned."""
    step: str | None = None
    """The id of the step concerned."""
    costs: tuple[CostName, ...] = ()
    """Faults that do not make a right answer bad, such as a wrong citation; empty for bad and unsure answers."""


class CauseCount(Struct, frozen=True, kw_only=True):
    """One cause over the traces of a run."""

    cause: CauseName
    stage: Stage
    title: str
    """The cause in words: "the passage was not retrieved"."""
    fix: str
    """What to change first."""
    answers: int
    """Bad answers with this cause."""
    examples: tuple[str, ...]
    """Ids of traces that show it."""


class CostCount(Struct, frozen=True, kw_only=True):
    """One cost over the right answers of a run: it is counted apart, and makes no answer bad."""

    cost: CostName
    title: str
    """The cost in words: "also say what no passage says"."""
    answers: int
    """Right answers with this cost."""
    examples: tuple[str, ...]
    """Ids of traces that show it."""


class FixCount(Struct, frozen=True, kw_only=True):
    """What to change, and how many bad answers that would reach."""

    fix: str
    answers: int
    causes: tuple[CauseName, ...]
    """The causes that it removes, most answers first."""


PassageSource = Literal["gold", "references", "judge"]
"""The evidence that the shown chunks hold what a query asks for."""


class RetrievalSummary(Struct, frozen=True, kw_only=True):
    """How well retrieval does over the queries that have an answer."""

    source: PassageSource
    """The evidence that `recall` rests on: gold where any trace has it, else references, else the judge."""
    recall: Interval
    """The mean share of what a query asks for that the shown chunks hold."""
    rank: float | None
    """The mean place of the first gold chunk where one was retrieved, from 1; None without gold."""
    useful: float | None
    """Chunks of high or medium relevance of a trace; None where no chunk was judged."""
    chunks: float | None
    """Chunks of a trace."""


class AnswerCounts(Struct, frozen=True, kw_only=True):
    """How many answers of a run are right, bad or unsure, and why the bad ones are bad."""

    right: int
    bad: int
    unsure: int
    refusals: int
    """Unsure answers that refuse: only an answer key or people can tell whether the passage was there."""
    share: Interval | None
    """The share of bad answers among those that are right or bad; None where there are none."""
    sources: dict[OutcomeSource, int]
    """Evidence → answers whose outcome rests on it, most first."""
    causes: tuple[CauseCount, ...]
    """Most answers first, undecided last; their counts sum to `bad`."""
    fixes: tuple[FixCount, ...]
    """What to change for the decided causes, that which reaches most answers first."""
    costs: tuple[CostCount, ...] = ()
    """What is wrong beside right answers, most answers first."""

    @property
    def total(self) -> int:
        """Return the number of answers."""
        return self.right + self.bad + self.unsure


class CauseAgreementCount(Struct, frozen=True, kw_only=True):
    """How often ragfault names what people name, for one cause of theirs."""

    cause: CauseName
    stage: Stage
    answers: int
    """Answers that people call bad for this cause."""
    same_stage: int
    same_cause: int


class CauseAgreement(Struct, frozen=True, kw_only=True):
    """How far ragfault agrees with people on causes, before their labels correct it."""

    answers: int
    """Answers that people called right, or named a cause of."""
    outcome: Interval
    """The share of them on which ragfault agrees that the answer is right, or bad."""
    stage: Interval | None
    """The share of the answers that people call bad of which ragfault names the same stage; None without any."""
    cause: Interval | None
    """The same for the cause."""
    causes: tuple[CauseAgreementCount, ...]
    """For each cause that people named, most answers first."""


def name_option(cause: CauseName) -> str:
    """Return a cause as the option `--cause` takes it.

    >>> name_option("not_retrieved")
    'not-retrieved'
    """
    return cause.replace("_", "-")
