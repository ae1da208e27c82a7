"""The choice of a generator: raced on some questions, measured against the present one on others."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from ragfault.apps.tune.generators.proof import (
    RaceEvidence,
    compute_figures,
    estimate_noise,
    find_violation,
    list_undominated,
    measure_gain,
    paired_gap,
    summarize_figure,
)
from ragfault.apps.tune.generators.race import (
    FIRST_ROUND,
    MIN_ROUND,
    GeneratorRace,
    MeasureAnswers,
    RaceTerms,
    average_repetitions,
    measure_in_turn,
    race_generators,
)
from ragfault.apps.tune.generators.records import (
    AnswerOutcome,
    ControlTest,
    GeneratorChoice,
    GeneratorGain,
    SamplingNoise,
)
from ragfault.apps.tune.recommendation import Contender, decide, describe_power
from ragfault.apps.tune.results import Bound
from ragfault.model.errors import InputError, UnknownName, UsageError
from ragfault.model.grouping import group_positions
from ragfault.model.work_settings import ignore_report
from ragfault.stats.differences import paired_difference
from ragfault.stats.significance import sign_flip_test
from ragfault.text.number_format import format_cost, format_interval, format_number, format_p_value, format_percent

MIN_QUESTIONS = 20
"""Fewer questions than this choose nothing and show nothing."""
MIN_PROOF = 100
"""Held-out questions that a limit of calls leaves: with fewer hardly any gain can be shown."""
CONTROL_ALPHA = 0.01
"""Where the control of nothing against nothing has a smaller p value, no gain is shown."""

HumanValues = Mapping[str, Mapping[int, float]]
"""Generator → position of a question → value of the metric by people."""


class QuestionParts(NamedTuple):
    """Positions of the questions that choose, and of those that measure."""

    selection: tuple[int, ...]
    holdout: tuple[int, ...]
    calls: int | None = None
    """Most answers that the race may request."""


class ChoiceTerms(NamedTuple):
    """Terms of a choice."""

    metric: str = "value"
    judge: str = "none"
    calls: int | None = None
    """Most answers that race and measurement may request; None: as many as the questions allow."""
    repetitions: int = 1
    holdout: float = 0.5
    bounds: tuple[Bound, ...] = ()
    seed: int = 0
    limits: tuple[float, float] = (0.0, 1.0)
    """Least and greatest value of the metric."""
    second_answers: bool = False
    """True where the control requests further answers of the present generator."""


DEFAULT_TERMS = ChoiceTerms()
SearchSelection = Callable[["QuestionParts"], GeneratorRace]
"""Parts of the questions → the result of a search on those that choose."""
MeasureControl = Callable[[str, Sequence[int]], tuple[Sequence[float], Sequence[float]] | None]
"""Generator and positions → values of a first and of a second answer to each question; None without second answers."""


class GeneratorPool(NamedTuple):
    """Generators to choose among, and what measures them."""

    names: Sequence[str]
    groups: Sequence[str]
    """Group of each question: a group is never on both sides, and is resampled together."""
    measure: MeasureAnswers
    people: HumanValues | None = None
    """Human values of the metric, by which the gain is corrected."""
    control: MeasureControl = lambda *_: None
    notice: Callable[[str], None] = ignore_report
    """Is told before the race which gain the questions can show."""


def choose_generator(
    pool: GeneratorPool, present: str, terms: ChoiceTerms = DEFAULT_TERMS, search: SearchSelection | None = None
) -> GeneratorChoice:
    """Choose among generators on one part of the questions and measure the choice against `present` on the other.

    `search` replaces the race. With a single alternative nothing is chosen, and every question measures. The chosen one
    is recommended by the `RULE` of `recommendation`; its gain is shown by the sign-flip test at 5 %, or by the
    corrected gain where human labels give one, and if the control shows no difference where there is none.

    Raises InputError for fewer than 20 questions or a metric without a value on any measured answer, UnknownName for a
    `present` that is not among the names, UsageError
    for a share of held-out questions that is not between 0 and 1.

    >>> def measure(name, positions):
    ...     return [[AnswerOutcome(0.6 + 0.2 * (name == "b") + 0.1 * (at % 3 - 1))] for at in positions]
    >>> choice = choose_generator(GeneratorPool("abc", [str(at) for at in range(60)], measure), "a")
    >>> choice.recommended, choice.gain.verdict, round(choice.gain.difference.mean, 2)
    ('b', 'gains', 0.2)
    """
    names, groups, measure = pool.names, pool.groups, pool.measure
    if present not in names:
        raise UnknownName("generator", present, names)
    if not 0 < terms.holdout < 1:
        raise UsageError(f"holdout is between 0 and 1, got {terms.holdout}.")
    parts = plan_parts(len(names), groups, terms, race=len(names) > 2 or search is not None)
    _announce_power(pool, present, parts, terms)
    race = search(parts) if search is not None else _race_selection(pool, present, parts, terms)
    winner = race.chosen if race is not None else next(name for name in names if name != present)
    measured = measure_in_turn(list(dict.fromkeys((winner, present))), parts.holdout, measure)
    if not any(answer.defined for rows in measured.values() for answers in rows for answer in answers):
        raise InputError(f"{terms.metric} has no value on any answer that was measured. Choose another metric.")
    unknown = [
        bound for bound in terms.bounds if all(summarize_figure(bound.name, rows) is None for rows in measured.values())
    ]
    keys = [groups[i] for i in parts.holdout]
    test = _run_control(pool.control, present, parts.holdout, keys, terms)
    # a search has seen its questions many times: only those of a race count in the test, too
    gain = None if winner == present else _prove_gain(pool, parts, measured, race, terms, counts_race=search is None)
    recommended, reason, gain = _decide(present, gain, test, race, terms, measured)
    raced = measured if race is None else race.outcomes
    reach = min(map(len, raced.values()))
    return GeneratorChoice(
        metric=terms.metric,
        judge=terms.judge,
        bounds=terms.bounds,
        recommended=recommended,
        chosen=winner,
        present=present,
        reason=reason,
        selection_questions=len(parts.selection),
        holdout_questions=len(parts.holdout),
        calls=0 if race is None else race.calls,
        proof_calls=(len(measured) * terms.repetitions + (test is not None and terms.repetitions == 1))
        * len(parts.holdout),
        grid_calls=len(names) * len(groups) * terms.repetitions,
        rounds=() if race is None else race.rounds,
        undecided=() if race is None else race.undecided,
        measured=tuple(compute_figures(name, rows, keys, terms.limits) for name, rows in measured.items()),
        raced=()
        if race is None
        else tuple(
            compute_figures(name, rows, [groups[i] for i in parts.selection[: len(rows)]], terms.limits)
            for name, rows in race.outcomes.items()
        ),
        frontier=list_undominated({name: rows[:reach] for name, rows in raced.items()}),
        gain=gain,
        noise=tuple(note for name, rows in measured.items() if (note := estimate_noise(name, rows)) is not None),
        control=test,
        seed=terms.seed,
        notes=(
            *(f"{bound} was not checked: no answer that was measured has its figure" for bound in unknown),
            *_list_bounded_leaders(race),
        ),
    )


def _list_bounded_leaders(race: GeneratorRace | None) -> list[str]:
    """List the generators that were ahead of the leader of their round and left the race for a bound."""
    return [
        f"{gone.name} was ahead by {format_number(-gone.behind, 3)} on {gone.n:,} questions, but breaks a bound: "
        "relax it to have the gain tested"
        for step in (() if race is None else race.rounds)
        for gone in step.dropped
        if gone.reason == "breaks a bound" and gone.behind < 0
    ]


def plan_parts(generators: int, groups: Sequence[str], terms: ChoiceTerms, *, race: bool = True) -> QuestionParts:
    """Divide the questions, and the calls where they are limited: at most half of them measure with a race, else all.

    At least 100 questions measure, if the holdout has so many, and every generator races on 8, though it be more calls.
    """
    holdout = terms.holdout if race else 1.0
    if terms.calls is None:
        return split_positions(groups, holdout, terms.seed, race=race)
    per_question = 2 * terms.repetitions + terms.second_answers
    spare = terms.calls // (2 if race else 1) // per_question
    holdout = min(holdout, max(spare, MIN_PROOF) / len(groups))
    parts = split_positions(groups, holdout, terms.seed, race=race)
    calls_left = terms.calls - per_question * len(parts.holdout)
    return parts._replace(calls=max(calls_left, generators * terms.repetitions * MIN_ROUND))


def split_positions(groups: Sequence[str], holdout: float, seed: int, *, race: bool = True) -> QuestionParts:
    """Divide the positions of questions at random, whole groups at a time; without a race the rest takes no part.

    Raises InputError for fewer than MIN_QUESTIONS questions, or groups so large that a part has less than half of that.

    >>> parts = split_positions(["x", "x", *map(str, range(28))], 0.5, 0)
    >>> len(parts.selection), len(parts.holdout), ({0, 1} <= {*parts.holdout}) != ({0, 1} <= {*parts.selection})
    (15, 15, True)
    """
    if len(groups) < MIN_QUESTIONS:
        raise InputError(f"At least {MIN_QUESTIONS} questions with answers are needed, and there are {len(groups):,}.")
    members = group_positions(groups)
    names = sorted(members)
    random.Random(seed).shuffle(names)
    selection: list[int] = []
    measuring: list[int] = []
    for name in names:
        (measuring if len(measuring) < holdout * len(groups) else selection).extend(members[name])
    if not race:
        return QuestionParts((), tuple(sorted(measuring)))
    if min(len(selection), len(measuring)) < MIN_QUESTIONS // 2:
        raise InputError(
            f"the questions hang together: {len(selection)} of {len(groups)} choose and {len(measuring)} measure. "
            "Add questions about others, or change --holdout."
        )
    return QuestionParts(tuple(selection), tuple(measuring))


def _race_selection(
    pool: GeneratorPool, present: str, parts: QuestionParts, terms: ChoiceTerms
) -> GeneratorRace | None:
    """Race the generators on the selection questions; None where a single alternative leaves nothing to choose."""
    if len(pool.names) < 2:
        raise UsageError("there is one generator. Give the answers of two or more.")
    if not parts.selection:
        return None
    return race_generators(
        pool.names,
        len(parts.selection),
        lambda name, positions: pool.measure(name, [parts.selection[i] for i in positions]),
        RaceTerms(parts.calls, terms.repetitions, stay=present),
        exclude=lambda outcomes: find_violation(terms.bounds, outcomes) is not None,
    )


def _prove_gain(
    pool: GeneratorPool,
    parts: QuestionParts,
    measured: Mapping[str, Sequence[Sequence[AnswerOutcome]]],
    race: GeneratorRace | None,
    terms: ChoiceTerms,
    *,
    counts_race: bool,
) -> GeneratorGain:
    """Return the gain of the first of two measured generators; `counts_race`: the race's answers are tested, too."""
    winner, present = measured
    selection, holdout = ([pool.groups[i] for i in positions] for positions in (parts.selection, parts.holdout))
    people = pool.people
    labels = (
        None
        if people is None
        else tuple([people.get(name, {}).get(i, np.nan) for i in parts.holdout] for name in (present, winner))
    )
    evidence = RaceEvidence(race, selection) if race is not None and counts_race else None
    gain = measure_gain(measured, holdout, evidence, terms.limits, terms.seed, labels)
    if race is None:
        return gain
    raced_gap = paired_gap(race.outcomes[present], race.outcomes[winner])
    return replace(gain, selection_gain=float(raced_gap.mean()))


def _run_control(
    control: MeasureControl, present: str, positions: Sequence[int], keys: Sequence[str], terms: ChoiceTerms
) -> ControlTest | None:
    values = control(present, positions)
    if values is None:
        return None
    difference = paired_difference(*values, keys, bounds=terms.limits, seed=terms.seed)
    return ControlTest(difference=difference, p=sign_flip_test(*values, keys, seed=terms.seed).p)


def _decide(
    present: str,
    gain: GeneratorGain | None,
    control: ControlTest | None,
    race: GeneratorRace | None,
    terms: ChoiceTerms,
    measured: Mapping[str, Sequence[Sequence[AnswerOutcome]]],
) -> tuple[str, str, GeneratorGain | None]:
    """Return the recommended generator, the reason, and the gain with its final verdict."""
    if gain is None:
        others = "" if race is None or not race.undecided else f"; not told apart from it: {', '.join(race.undecided)}"
        return present, f"{present} led the race on the questions that chose{others}.", None
    if control is not None and control.p <= CONTROL_ALPHA:
        gain = replace(gain, verdict="no gain shown")
        reason = (
            f"The control moved: second answers of {present} differ from its first by "
            f"{format_interval(control.difference, 3, signed=True)} (p {format_p_value(control.p)}), so that no "
            f"difference of this measurement can be trusted."
        )
        return present, reason, gain
    contender = Contender(
        gain.chosen,
        gain.difference if gain.human_correction is None else gain.human_correction.difference or gain.difference,
        gain.verdict,
        _describe_gain(gain, terms.metric),
        _describe_saving(measured[gain.chosen], measured[present]),
        _describe_violation(terms, measured[gain.chosen]),
    )
    name, reason = decide(present, [contender], violation=_describe_violation(terms, measured[present]))
    return name, reason, gain


def _announce_power(pool: GeneratorPool, present: str, parts: QuestionParts, terms: ChoiceTerms) -> None:
    """Tell which gain the questions that measure can show, by the first answers of the present generator."""
    first = (parts.selection or parts.holdout)[: MIN_ROUND if terms.calls is not None else FIRST_ROUND]
    deviation = float(average_repetitions(pool.measure(present, first)).std())
    groups = len({pool.groups[i] for i in parts.holdout})
    line = describe_power(deviation, len(parts.holdout), groups, terms.metric)
    if line is not None:
        pool.notice(line)


def _describe_violation(terms: ChoiceTerms, outcomes: Sequence[Sequence[AnswerOutcome]]) -> str:
    """Return the bound that outcomes break, with its figure; empty where they keep to all."""
    bound = find_violation(terms.bounds, outcomes)
    return "" if bound is None else f"{bound} ({summarize_figure(bound.name, outcomes):,.4g})"


def _describe_saving(new: Sequence[Sequence[AnswerOutcome]], old: Sequence[Sequence[AnswerOutcome]]) -> str:
    """Return what an answer costs less, in words; empty where it does not or the cost is not known."""
    before, after = summarize_figure("cost", old), summarize_figure("cost", new)
    if before is None or after is None or not after < before:
        return ""
    return f"costs {format_cost(after)} an answer, not {format_cost(before)}"


def _describe_gain(gain: GeneratorGain, metric: str) -> str:
    """Return the figures of a gain in words, the one that the verdict rests on first."""
    alone, people = f"{format_interval(gain.difference, 3, signed=True)}", gain.human_correction
    p = f"p {'of a gain ' if gain.verdict == 'loses' else ''}{format_p_value(gain.p)}"
    if gain.questions > gain.difference.n:
        p += f" on {gain.questions:,} with those of the race, corrected for the choice"
    where = f"{metric} against {gain.alternative} on {gain.difference.n:,} held-out questions"
    if people is None or people.difference is None or people.p is None:
        return f"{alone} {where} ({p})"
    return (
        f"{format_interval(people.difference, 3, signed=True)} {where}, corrected by people on {people.labelled:,} of "
        f"them (p {format_p_value(people.p)}); only by the judge {alone} ({p})"
    )


def replay_null(
    values: Any, groups: Sequence[str], replays: int, terms: ChoiceTerms = DEFAULT_TERMS, *, seed: int = 0
) -> float:
    """Return how often a gain is shown where nothing differs: the names of the generators shuffled for each group.

    `values` is a table of generators by questions; the first generator is the present one. The result is a share of the
    `replays`.

    >>> table = np.random.default_rng(0).random((3, 60))
    >>> replay_null(table, [str(at) for at in range(60)], 20) <= 0.2
    True
    """
    # names are shuffled by whole groups, which the choice resamples as one
    table = np.asarray(values, float)
    names = [str(i) for i in range(len(table))]
    codes = np.unique(np.asarray(groups), return_inverse=True)[1]
    gains = 0
    for index in range(replays):
        rng = np.random.default_rng((seed, index))
        shuffles = np.argsort(rng.random((codes.max() + 1, len(table))), axis=1)[codes].T
        shuffled = np.take_along_axis(table, shuffles, axis=0)
        choice = choose_from_table(names, shuffled, groups, terms._replace(seed=seed + index))
        gains += choice.gain is not None and choice.gain.verdict == "gains"
    return gains / replays


def choose_from_table(
    names: Sequence[str], values: Any, groups: Sequence[str], terms: ChoiceTerms = DEFAULT_TERMS
) -> GeneratorChoice:
    """Choose among generators by a table of values, generators by questions; the first is the present one."""
    rows = {name: np.asarray(row, float) for name, row in zip(names, values, strict=True)}

    def measure(name: str, positions: Sequence[int]) -> list[list[AnswerOutcome]]:
        return [[AnswerOutcome(float(rows[name][i]))] for i in positions]

    return choose_generator(GeneratorPool(names, groups, measure), names[0], terms)


def describe_spending(choice: GeneratorChoice) -> str:
    """Return the calls of a choice in words, with their share of the grid's.

    >>> table = np.random.default_rng(0).random((3, 60))
    >>> describe_spending(choose_from_table("abc", table, [str(at) for at in range(60)]))[:24]
    'race 90 + measurement 60'
    """
    total = choice.calls + choice.proof_calls
    share = f"{format_percent(total / choice.grid_calls)} of the {choice.grid_calls:,} calls of the grid"
    return f"race {choice.calls:,} + measurement {choice.proof_calls:,} = {total:,} answers, {share}"


def list_noise_notes(noise: Sequence[SamplingNoise]) -> tuple[str, ...]:
    """Return a sentence on the spread of repeated answers for each generator."""
    return tuple(
        f"{row.name}: the answers to one question spread by {row.within:.3f}, the questions by {row.between:.3f}; "
        f"{format_percent(row.share)} of the variance of its mean is sampling, so that further "
        "repetitions narrow its interval by "
        f"at most {format_percent(1 - (1 - row.share) ** 0.5)}"
        for row in noise
    )
