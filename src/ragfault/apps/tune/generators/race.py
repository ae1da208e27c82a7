"""The race of generators: successive elimination on paired differences within a limit of calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ragfault.apps.tune.generators.records import AnswerOutcome, DroppedGenerator, DropReason, RaceRound
from ragfault.model.errors import UsageError
from ragfault.stats.distributions import t_cdf

ALPHA = 0.05
"""Chance that the best generator is dropped as worse, over all comparisons of a race."""
MIN_ROUND = 8
"""Fewest new questions of a round."""
TURN = 16
"""Questions that one generator answers before it is the turn of the next."""
FIRST_ROUND = 32
"""Questions of the first round without a limit of calls; each next one has twice as many."""

MeasureAnswers = Callable[[str, Sequence[int]], Sequence[Sequence[AnswerOutcome]]]
"""Generator and positions of questions → the outcomes of its answers to each, one for each repetition."""
ExcludeGenerator = Callable[[Sequence[Sequence[AnswerOutcome]]], bool]
"""Outcomes of a generator → True where it breaks a bound."""


class GeneratorRace(NamedTuple):
    """Result of a race."""

    chosen: str
    undecided: tuple[str, ...]
    """Others that were still in the race at its end."""
    rounds: tuple[RaceRound, ...]
    calls: int
    outcomes: dict[str, list[Sequence[AnswerOutcome]]]
    """Generator → outcomes on the first questions, as far as it came."""
    early: bool = False
    """True where a round other than the last dropped more generators than its plan."""


def plan_round(field: int, rivals: int, size: int, questions: int, spare: int | None, repetitions: int = 1) -> int:
    """Return the number of questions that the generators of a field have answered after the next round.

    With `spare` calls a round takes half of them, and all where one of the `rivals` remains after it (sequential
    halving, Karnin et al. 2013, with larger first rounds); more, where the calls left suffice for every question.
    Without a limit the rounds have 32, 64, … questions.

    >>> plan_round(6, 5, 0, 200, 320), plan_round(3, 2, 46, 200, 84), plan_round(6, 5, 32, 200, None)
    (26, 74, 64)
    """
    if spare is None:
        return min(max(FIRST_ROUND, 2 * size), questions)
    round_calls = spare
    if rivals > 2:
        next_field = field - rivals // 2
        enough = field * (spare - (questions - size) * next_field * repetitions) // (field - next_field)
        round_calls = max(spare // 2, enough)
    return min(size + max(round_calls // (field * repetitions), 0 if size else MIN_ROUND), questions)


class RaceTerms(NamedTuple):
    """Terms of a race."""

    calls: int | None = None
    """Most answers that may be requested; None: as many as the questions allow."""
    repetitions: int = 1
    """Answers of a generator to a question."""
    alpha: float = ALPHA
    stay: str | None = None
    """Generator that answers every question of the race."""


FREE_RACE = RaceTerms()


def race_generators(
    names: Sequence[str],
    questions: int,
    measure: MeasureAnswers,
    terms: RaceTerms = FREE_RACE,
    exclude: ExcludeGenerator = lambda _: False,
) -> GeneratorRace:
    """Race generators over questions, in their order, and return the one with the highest mean at the end.

    After each round those drop out that are worse than the leader beyond doubt: a one-sided paired t test at `alpha`
    over the number of comparisons of the race (Bonferroni), so that the best is dropped so in at most a share `alpha`
    of races. With a limit of `calls` the field also halves after each round, and what is then dropped is only behind.
    The generator `stay` answers every question of the race, so that the best of the others can be compared with it on
    all of them; it is returned itself only where the others are worse beyond doubt or break a bound.

    Raises UsageError for fewer than two names, names that are equal, or too few calls.

    >>> good = lambda name, at: [[AnswerOutcome(0.5 + 0.4 * (name == "b") + 0.01 * (i % 3))] for i in at]
    >>> race = race_generators(["a", "b", "c"], 100, good, RaceTerms(calls=90))
    >>> race.chosen, race.calls, [dropped.reason for dropped in race.rounds[0].dropped]
    ('b', 45, ['worse', 'worse'])
    """
    calls, repetitions, alpha, stay = terms
    if len(names) < 2 or len(set(names)) < len(names):
        raise UsageError("a race needs two generators or more, each with a name of its own.")
    least = len(names) * repetitions * MIN_ROUND
    if calls is not None and calls < least:
        raise UsageError(
            f"{calls:,} calls are too few for {len(names)} generators: the first round takes {least:,}. "
            "Raise the limit, or race fewer."
        )
    last = max(1, math.ceil(math.log2(len(names) if calls is not None else max(2, questions / FIRST_ROUND))) + 1)
    level = alpha / ((len(names) - 1) * last)
    field, outcomes, rounds, spent = list(names), {name: list[Any]() for name in names}, list[RaceRound](), 0
    size, more, early = 0, True, False
    while more and len(field) > 1:
        racing = len(field) - (stay is not None)
        final = calls is not None and racing <= 2
        before, size = size, plan_round(len(field), racing, size, questions, calls and calls - spent, repetitions)
        if size == before:
            break
        for name, rows in measure_in_turn(field, range(before, size), measure).items():
            outcomes[name] += rows
            spent += len(rows) * repetitions
        more = not final and size < questions
        ranked = _rank_field(field, outcomes, exclude)
        rivals = [name for name in ranked if name != stay]
        plan = racing if calls is None or not more else math.ceil(racing / 2)
        keep = len(field) if plan == racing else ranked.index(rivals[plan - 1]) + 1
        dropped = _drop_generators(ranked, outcomes, level, keep, exclude, stay)
        early = early or (more and racing - len(dropped) < plan)
        gone = {generator.name for generator in dropped}
        field = [name for name in ranked if name not in gone]
        rounds.append(
            RaceRound(questions=size, generators=tuple(ranked), leader=field[0], calls=spent, dropped=dropped)
        )
    winner = next((name for name in field if name != stay), field[0])
    others = [name for name in field if name != winner]
    means = {name: average_repetitions(outcomes[name]) for name in field}
    undecided = [name for name in others if name != stay or compute_lead_p_value(means[winner] - means[name]) > level]
    return GeneratorRace(winner, tuple(undecided), tuple(rounds), spent, outcomes, early)


def measure_in_turn(
    names: Sequence[str], positions: Sequence[int], measure: MeasureAnswers
) -> dict[str, list[Sequence[AnswerOutcome]]]:
    """Measure generators on the same questions, a few questions of each in turn.

    So a load that comes and goes slows all of them alike.
    """
    rows: dict[str, list[Sequence[AnswerOutcome]]] = {name: [] for name in names}
    for start in range(0, len(positions), TURN):
        for name in names:
            rows[name] += measure(name, positions[start : start + TURN])
    return rows


def average_repetitions(outcomes: Sequence[Sequence[AnswerOutcome]]) -> np.ndarray[Any, Any]:
    """Return the mean value of the repetitions for each question."""
    return np.array([sum(outcome.value for outcome in answers) / len(answers) for answers in outcomes])


def _rank_field(
    field: Sequence[str], outcomes: dict[str, list[Sequence[AnswerOutcome]]], exclude: ExcludeGenerator
) -> list[str]:
    """Sort the generators: within the bounds first, then the higher mean, then the cheaper."""

    def key(name: str) -> tuple[bool, float, float]:
        costs = [outcome.cost for answers in outcomes[name] for outcome in answers if outcome.cost is not None]
        mean = float(average_repetitions(outcomes[name]).mean())
        return exclude(outcomes[name]), -round(mean, 9), sum(costs) / len(costs) if costs else 0.0

    return sorted(field, key=key)


def _drop_generators(
    ranked: Sequence[str],
    outcomes: dict[str, list[Sequence[AnswerOutcome]]],
    level: float,
    keep: int,
    exclude: ExcludeGenerator,
    stay: str | None,
) -> tuple[DroppedGenerator, ...]:
    leader = average_repetitions(outcomes[ranked[0]])
    within = not exclude(outcomes[ranked[0]])
    dropped: list[DroppedGenerator] = []
    for index, name in enumerate(ranked[1:], 1):
        if name == stay:
            continue
        gaps = leader - average_repetitions(outcomes[name])
        p = compute_lead_p_value(gaps)
        breaks = within and exclude(outcomes[name])
        if breaks or p <= level or index >= keep:
            reason: DropReason = "breaks a bound" if breaks else "worse" if p <= level else "behind"
            dropped.append(DroppedGenerator(name=name, reason=reason, n=len(gaps), behind=float(gaps.mean()), p=p))
    return tuple(dropped)


def compute_lead_p_value(gaps: Any) -> float:
    """Return the one-sided p value of a mean lead of 0, by Student's t; 1 where the lead is not above 0.

    Where all gaps are equal and above 0, the p value is that of so many equal signs.

    >>> compute_lead_p_value(np.zeros(20)), compute_lead_p_value(np.full(20, 0.1)) < 1e-5
    (1.0, True)
    """
    values = np.asarray(gaps, float)
    mean = float(values.mean())
    if mean <= 0:
        return 1.0
    error = float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    if error <= 1e-12:
        return 0.5 ** len(values)
    return 1 - t_cdf(mean / error, len(values) - 1) if math.isfinite(error) else 0.5
