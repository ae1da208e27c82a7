"""Records of replays: the attempts at one cause, what they prove, and the counts of a run."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ragfault.comparison.records import ChangeState
from ragfault.diagnosis.causes.records import AnswerOutcome, Stage
from ragfault.model.causes import CauseName
from ragfault.model.records import Usage

Intervention = Literal[
    "the same again", "gold only", "gold first", "without the suspected chunk", "without any chunk", "retrieved again"
]
"""What was changed in the request; `retrieved again`: the chunks that the user's retriever returns."""

Expectation = Literal["right", "bad"]
"""What the answers become if the named cause is the true one."""

ProofOutcome = Literal["proven", "refuted", "not decided", "not replayed"]
"""What a replay says of a cause; `not replayed`: the request could not be changed exactly, or nothing to change."""


class ReplayedAnswer(Struct, frozen=True, kw_only=True):
    """One answer that the model gave again."""

    intervention: Intervention
    attempt: int
    """Number of this attempt at the intervention, from 1."""
    chunks: tuple[str, ...]
    """Ids of the chunks that the model saw."""
    answer: str | None
    """None where the call failed."""
    outcome: AnswerOutcome | None = None
    """Right, bad or unsure, decided as `evaluate` decides; None where the call failed."""
    error: str | None = None
    """Why the call failed."""


class CauseProof(Struct, frozen=True, kw_only=True):
    """What a replay says of the cause of one bad answer."""

    trace: str
    query: str
    cause: CauseName
    stage: Stage
    outcome: ProofOutcome
    reason: str
    """Why, in a sentence."""
    intervention: Intervention | None = None
    """The change that was tried; None where the cause was not replayed."""
    expected: Expectation | None = None
    right: int = 0
    """Attempts with the change that gave a right answer."""
    attempts: int = 0
    """Attempts with the change that gave a right or a bad answer."""
    same_right: int = 0
    """Attempts at the recorded request that gave a right answer."""
    same_attempts: int = 0
    """Attempts at the recorded request that gave a right or a bad answer."""
    old_answer: str | None = None
    """The answer as it was recorded."""
    answers: tuple[ReplayedAnswer, ...] = ()
    """Every answer of the replay, in the order in which they were asked for."""


class ProofCount(Struct, frozen=True, kw_only=True):
    """The replays of one cause over a run."""

    cause: CauseName
    stage: Stage
    title: str
    """The cause in words."""
    answers: int
    """Bad answers with this cause."""
    sampled: int
    """Those that were asked again."""
    proven: int
    refuted: int
    undecided: int


class ReplayReport(Struct, frozen=True, kw_only=True):
    """The causes of a run, put to the proof on the user's own model."""

    run: str
    """The path of the run."""
    model: str
    """What was asked: the model and where it runs, or the app of the user."""
    judge: str
    """The fingerprint of the judge that rated the answers."""
    old_models: tuple[str, ...] = ()
    """The models that gave the recorded answers, as the replayed traces record them."""
    noise: float
    """The share of right answers that the recorded requests give when they are asked again, over the run."""
    counts: tuple[ProofCount, ...]
    """Most answers first."""
    proofs: tuple[CauseProof, ...]
    usage: Usage | None = None
    """Calls, tokens and cost; None for an app of the user."""
    stopped: str | None = None
    """Why the replay ended before its last call, such as a spent budget; None: it did not."""


class ConfiguredAnswer(Struct, frozen=True, kw_only=True):
    """The answer to one query in one configuration of the system."""

    configuration: str
    chunks: tuple[str, ...]
    """Ids of the chunks that were shown."""
    answer: str | None
    """None where the call failed or was not made."""
    outcome: AnswerOutcome | None = None
    """Right, bad or unsure, decided as `evaluate` decides; None without an answer."""
    error: str | None = None
    """The error, if there is no answer."""


class AskedQuery(Struct, frozen=True, kw_only=True):
    """One query that was asked in every configuration."""

    trace: str
    query: str
    answers: tuple[ConfiguredAnswer, ...]
    """In the order of the configurations."""


class ConfigurationCost(Struct, frozen=True, kw_only=True):
    """What the answers of one configuration were, and what one of them took on average."""

    configuration: str
    right: int
    bad: int
    unsure: int
    failed: int
    prompt: float | None
    """Tokens of the request; None where they are not known."""
    completion: float | None
    """Tokens of the answer."""
    cost: float | None
    """US$."""
    seconds: float | None


class FixReplay(Struct, frozen=True, kw_only=True):
    """A fix, put to the proof on queries that were not used to find the fault."""

    run: str
    """The path of the run."""
    fix: str
    """What was changed in the requests."""
    model: str
    """What was asked: the model and where it runs, or the app of the user."""
    judge: str
    """The fingerprint of the judge that rated the answers."""
    outcome: ProofOutcome
    """Proven: more answers become right. Refuted: the gain is below the margin, or a loss."""
    gain: float | None
    """Share of right answers with the fix, less that of the same requests without it; None without a query."""
    low: float | None = None
    """Ends of the 95 % interval of the gain."""
    high: float | None = None
    margin: float
    """Smallest gain that matters."""
    needed: int | None = None
    """If not decided: about how many queries would decide; None if unknown."""
    sampled: int
    """Queries with both answers."""
    became_right: int
    """Queries whose answer becomes right."""
    became_bad: int
    """Queries whose answer becomes bad."""
    unchanged: int
    """Queries whose request the fix leaves as it was."""
    used: int
    """Traces left out, since their queries were used to find the fault."""
    costs: tuple[ConfigurationCost, ...]
    """Without the fix, and with it."""
    queries: tuple[AskedQuery, ...]
    refused: tuple[tuple[str, int], ...] = ()
    """Each reason why a sampled query was not asked, and of how many."""
    usage: Usage | None = None
    """Calls, tokens and cost; None for an app of the user."""
    stopped: str | None = None
    """Why the replay ended before its last call; None: it did not."""


class ChangeShare(Struct, frozen=True, kw_only=True):
    """What parts of a system have to do with a change of the share of right answers."""

    parts: tuple[str, ...]
    """One part: its share of the change. Two: how far they depend on each other. None: the whole change."""
    effect: float
    low: float
    high: float
    """Ends of the 95 % interval."""
    p: float
    """The p value of the test that the effect is 0, corrected by Holm over all shares."""
    state: ChangeState
    share: float | None = None
    """The part of the fall that it explains; None if no fall is shown."""


class ChangeReplay(Struct, frozen=True, kw_only=True):
    """The change between two runs, divided among the parts of the system that were swapped."""

    baseline: str
    candidate: str
    """The paths of the runs."""
    model: str
    """What was asked, for the candidate and, if it is another, for the baseline."""
    judge: str
    """The fingerprint of the judge that rated the answers."""
    parts: tuple[str, ...]
    """Parts that differ: chunks, prompt, settings, model or app."""
    total: ChangeShare | None
    """The whole change; None where no pair has an answer in every configuration."""
    shares: tuple[ChangeShare, ...] = ()
    """In the order of the parts; they sum to the whole change."""
    interactions: tuple[ChangeShare, ...] = ()
    sampled: int
    """Pairs with an answer in every configuration."""
    changed: int
    """Pairs whose requests differ, of which the pairs were drawn."""
    pairs: int
    """All pairs of the two runs."""
    costs: tuple[ConfigurationCost, ...]
    """For each configuration: baseline, the parts that are the candidate's, …, candidate."""
    queries: tuple[AskedQuery, ...]
    refused: tuple[tuple[str, int], ...] = ()
    """Each reason why a sampled pair was not asked, and of how many."""
    usage: Usage | None = None
    """Calls, tokens and cost; None for an app of the user."""
    stopped: str | None = None
    """Why the replay ended before its last call; None: it did not."""


class ReplayPlan(Struct, frozen=True, kw_only=True):
    """What a replay would ask, and what it would cost."""

    model: str
    """What would be asked."""
    traces: int
    """Traces, queries or pairs of traces that would be asked about."""
    calls: int
    """Calls at most."""
    tokens: int = 0
    """Tokens sent by that many calls, estimated; 0 for an app of the user."""
    cost: float | None = None
    """US$, estimated; None where the price is not known."""
    max_cost: float | None = None
    """US$ if every reply has the maximum length."""
    temperatures: tuple[float | None, ...] = ()
    """Temperatures of the requests; None: the default of the service."""
    temperature_source: Literal["given", "recorded", "default"] = "default"
    """Whether the command gives the temperature, the requests record it, or neither."""
