"""Records of replays: the attempts at one cause, what they prove, and the counts of a run."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

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
    noise: float
    """The share of right answers that the recorded requests give when they are asked again, over the run."""
    counts: tuple[ProofCount, ...]
    """Most answers first."""
    proofs: tuple[CauseProof, ...]
    usage: Usage | None = None
    """Calls, tokens and cost; None for an app of the user."""
    stopped: str | None = None
    """Why the replay ended before its last call, such as a spent budget; None: it did not."""


class ReplayPlan(Struct, frozen=True, kw_only=True):
    """What a replay would ask, and what it would cost."""

    model: str
    """What would be asked."""
    traces: int
    calls: int
    """Calls at most."""
    tokens: int
    """Tokens sent by that many calls, estimated."""
    cost: float | None
    """US$, estimated; None where the price is not known."""
    max_cost: float | None
    """US$ if every reply has the maximum length."""
