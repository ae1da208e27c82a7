"""Records of choosing a generator: outcomes of answers, rounds of the race, the gain and the choice."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ragfault.apps.tune.results import Bound, GainVerdict
from ragfault.stats.estimates import Difference

DropReason = Literal["worse", "behind", "breaks a bound"]


class AnswerOutcome(Struct, frozen=True):
    """Figures of one answer of a generator to a question."""

    value: float
    """Value of the metric; its least value where the metric is undefined or failed."""
    defined: bool = True
    """False if the metric was undefined or failed."""
    cost: float | None = None
    """US$; None where neither recorded nor in the price catalog."""
    latency: float | None = None
    """Milliseconds."""
    tokens: float | None = None


class GeneratorFigures(Struct, frozen=True, kw_only=True):
    """Figures of a generator on some questions."""

    name: str
    n: int
    """Number of questions."""
    value: float
    """Mean of the metric, the mean over repetitions for each question."""
    low: float
    high: float
    undefined: int
    """Answers on which the metric was undefined or failed; they count as its least value."""
    cost: float | None
    """Mean US$ of an answer."""
    latency: float | None
    """Mean milliseconds of an answer."""
    latency_p50: float | None
    """Median milliseconds of an answer."""
    latency_p95: float | None
    tokens: float | None


class DroppedGenerator(Struct, frozen=True, kw_only=True):
    """Generator that left the race."""

    name: str
    reason: DropReason
    """Worse than the leader beyond doubt; behind, when the calls did not suffice for all; or it breaks a bound."""
    n: int
    """Questions it had answered."""
    behind: float
    """Mean of the leader less its own, on these questions."""
    p: float
    """One-sided p value of being no worse than the leader."""


class RaceRound(Struct, frozen=True, kw_only=True):
    """Round of the race."""

    questions: int
    """Questions that every generator of the round had answered at its end."""
    generators: tuple[str, ...]
    leader: str
    calls: int
    """Answers requested up to its end."""
    dropped: tuple[DroppedGenerator, ...]


class SamplingNoise(Struct, frozen=True, kw_only=True):
    """Spread of repeated answers of a generator to the same question."""

    name: str
    repetitions: int
    within: float
    """Standard deviation of the answers to one question."""
    between: float
    """Standard deviation of the questions, without the spread of the answers."""
    share: float
    """Share of the variance of its mean that is due to the spread of the answers."""


class ControlTest(Struct, frozen=True, kw_only=True):
    """A/A control: the present generator against its own second answers, where nothing differs."""

    difference: Difference
    p: float


class HumanCorrection(Struct, frozen=True, kw_only=True):
    """Gain after the correction of the judge by human labels."""

    difference: Difference | None
    p: float | None
    labelled: int
    reason: str | None = None
    """Why there is no corrected gain."""


class GeneratorGain(Struct, frozen=True, kw_only=True):
    """The chosen generator less the present one, on questions that took no part in the choice."""

    chosen: str
    alternative: str
    difference: Difference
    p: float
    """One-sided p value of no gain by the sign-flip test; after a race that of the best of all that raced."""
    questions: int
    """Questions of the test: those that measured, and those of the race that both answered."""
    selection_gain: float
    """The same gain on the questions that chose, which is too high on average."""
    corrected_gain: float
    """Gain corrected for being reported only where it is significant: the conditional maximum likelihood estimate, or 0
    where that is below 0."""
    detectable: float
    """Smallest gain that so many questions show with 80 % power."""
    human_correction: HumanCorrection | None
    """With human labels; the verdict then rests on it, where it is defined."""
    verdict: GainVerdict


class GeneratorChoice(Struct, frozen=True, kw_only=True):
    """Result of choosing a generator: chosen on some questions, measured on others."""

    metric: str
    judge: str
    bounds: tuple[Bound, ...]
    recommended: str
    """The generator to use: the chosen one where its gain is shown, else the present one."""
    chosen: str
    """The best other generator of the race; the present one where none was left, or where a search kept it."""
    present: str
    reason: str
    selection_questions: int
    holdout_questions: int
    calls: int
    """Answers requested by the race."""
    proof_calls: int
    """Answers requested for the measurement and the control."""
    grid_calls: int
    """Answers of every generator to every question."""
    rounds: tuple[RaceRound, ...]
    undecided: tuple[str, ...]
    """Generators that were not told apart from the chosen one."""
    measured: tuple[GeneratorFigures, ...]
    """On the held-out questions."""
    raced: tuple[GeneratorFigures, ...]
    """On the questions that chose, the last that each answered."""
    frontier: tuple[str, ...]
    """Generators that no other dominates by value, cost and latency, on the questions all of them answered."""
    gain: GeneratorGain | None
    """None where the chosen generator is the present one."""
    noise: tuple[SamplingNoise, ...]
    control: ControlTest | None
    seed: int
    notes: tuple[str, ...] = ()
