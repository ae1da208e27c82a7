"""Choosing a generator: the race keeps to its calls, the proof to its level, and what is shown is there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ragfault.apps.tune.generators.choice import (
    ChoiceTerms,
    GeneratorPool,
    choose_from_table,
    choose_generator,
    describe_spending,
    replay_null,
)
from ragfault.apps.tune.generators.proof import RaceEvidence, estimate_noise, find_violation, measure_gain, replay_race
from ragfault.apps.tune.generators.race import RaceTerms, measure_in_turn, race_generators
from ragfault.apps.tune.generators.records import AnswerOutcome
from ragfault.apps.tune.results import Bound
from ragfault.model.errors import InputError, UnknownName, UsageError

NAMES = ["a", "b", "c", "d", "e", "f"]


def make_table(means: list[float], questions: int, seed: int) -> np.ndarray:
    """Return 0/1 values of generators with these means, half of whose questions are as hard for all of them."""
    rng = np.random.default_rng(seed)
    own, shared = rng.random((len(means), questions)), rng.random(questions)
    level = np.where(rng.random(questions) < 0.5, shared, own)
    return (level < np.array(means)[:, None]).astype(float)


def make_groups(questions: int) -> list[str]:
    return [str(at) for at in range(questions)]


def test_race_and_measurement_stay_within_the_share_of_the_grid() -> None:
    questions = 400
    table = make_table([0.5, 0.6, 0.7, 0.4, 0.5, 0.65], questions, 0)
    choice = choose_from_table(NAMES, table, make_groups(questions), ChoiceTerms(calls=720))
    assert choice.calls + choice.proof_calls <= 0.3 * choice.grid_calls
    assert choice.grid_calls == 6 * questions


def test_a_share_too_small_for_a_measurement_is_exceeded_and_the_spending_says_so() -> None:
    choice = choose_from_table(NAMES, make_table([0.5] * 6, 400, 0), make_groups(400), ChoiceTerms(calls=100))
    assert (choice.calls, choice.proof_calls) == (48, 200)
    assert describe_spending(choice).endswith("= 248 answers, 10 % of the 2,400 calls of the grid")


@pytest.mark.parametrize("generators", [2, 3, 4, 6])
def test_few_generators_stay_within_the_share_too(generators: int) -> None:
    table = make_table([0.5] * generators, 1_000, 1)
    limit = int(0.3 * table.size)
    choice = choose_from_table(NAMES[:generators], table, make_groups(1_000), ChoiceTerms(calls=limit))
    assert 0.9 * limit < choice.calls + choice.proof_calls <= limit


def test_questions_that_choose_do_not_measure() -> None:
    asked: dict[str, set[int]] = {name: set() for name in NAMES}

    def measure(name: str, positions: object) -> list[list[AnswerOutcome]]:
        places = list(positions)  # type: ignore[call-overload]
        asked[name] |= set(places)
        return [[AnswerOutcome(0.9 if name == "b" else 0.2 + 0.01 * (at % 7))] for at in places]

    choice = choose_generator(GeneratorPool(NAMES, make_groups(200), measure), "a", ChoiceTerms(calls=300))
    dropped = {gone.name for step in choice.rounds for gone in step.dropped if gone.name != "a"}
    assert choice.recommended == "b"
    assert dropped == set(NAMES) - {"a", "b"}
    assert all(not asked["b"] - asked["a"] - asked[name] or len(asked[name]) <= 100 for name in dropped)
    assert asked["a"] == asked["b"]


def test_a_generator_that_breaks_a_bound_is_not_chosen() -> None:
    def measure(name: str, positions: object) -> list[list[AnswerOutcome]]:
        good = name == "b"
        return [[AnswerOutcome(0.9 if good else 0.5, cost=2.0 if good else 1.0)] for _ in positions]  # type: ignore[attr-defined]

    terms = ChoiceTerms(bounds=(Bound("cost", "<=", 1.5),))
    choice = choose_generator(GeneratorPool(NAMES[:3], make_groups(80), measure), "a", terms)
    assert choice.chosen != "b"
    assert {gone.reason for gone in choice.rounds[0].dropped if gone.name == "b"} == {"breaks a bound"}


def test_a_bound_without_figures_is_named_and_a_metric_without_values_is_refused() -> None:
    """A bound on what no answer recorded was not checked, and a metric that is nowhere defined decides nothing."""

    def measure(name: str, positions: object) -> list[list[AnswerOutcome]]:
        return [[AnswerOutcome(0.5 + 0.2 * (name == "b"), name != "void")] for _ in positions]  # type: ignore[attr-defined]

    terms = ChoiceTerms(bounds=(Bound("cost", "<=", 0.1),))
    choice = choose_generator(GeneratorPool(["a", "b"], make_groups(40), measure), "a", terms)
    assert choice.notes == ("cost<=0.1 was not checked: no answer that was measured has its figure",)
    with pytest.raises(InputError, match="value has no value on any answer"):
        choose_generator(GeneratorPool(["a", "b"], make_groups(40), lambda _, at: measure("void", at)), "a", terms)


def test_a_single_alternative_is_measured_on_every_question() -> None:
    table = make_table([0.5, 0.9], 60, 1)
    choice = choose_from_table(["old", "new"], table, make_groups(60))
    assert choice.holdout_questions == 60
    assert choice.calls == 0
    assert choice.recommended == "new"


def test_a_control_that_moves_withholds_the_gain() -> None:
    def measure(name: str, positions: object) -> list[list[AnswerOutcome]]:
        return [[AnswerOutcome(0.9 if name == "b" else 0.4)] for _ in positions]  # type: ignore[attr-defined]

    def control(name: str, positions: object) -> tuple[list[float], list[float]]:
        places = list(positions)  # type: ignore[call-overload]
        return [0.4] * len(places), [0.7] * len(places)

    choice = choose_generator(GeneratorPool(["a", "b"], make_groups(60), measure, control=control), "a")
    assert choice.recommended == "a"
    assert choice.gain is not None
    assert choice.gain.verdict == "no gain shown"


def test_human_labels_overrule_a_judge_that_favours_a_generator() -> None:
    rng = np.random.default_rng(3)
    truth = {name: rng.random(200) < 0.6 for name in ("a", "b")}
    judged = {"a": truth["a"] * 1.0, "b": np.minimum(1.0, truth["b"] + (rng.random(200) < 0.6))}

    def measure(name: str, positions: object) -> list[list[AnswerOutcome]]:
        return [[AnswerOutcome(float(judged[name][at]))] for at in positions]  # type: ignore[attr-defined]

    people = {name: {at: float(truth[name][at]) for at in range(100)} for name in truth}
    alone = choose_generator(GeneratorPool(["a", "b"], make_groups(200), measure), "a")
    corrected = choose_generator(GeneratorPool(["a", "b"], make_groups(200), measure, people=people), "a")
    assert alone.recommended == "b"
    assert corrected.recommended == "a"
    assert corrected.gain is not None
    assert corrected.gain.human_correction is not None
    assert corrected.gain.human_correction.labelled == 100


def test_a_loss_by_people_comes_with_their_figure_before_the_judges() -> None:
    rng = np.random.default_rng(4)
    truth = {"a": rng.random(200) < 0.8, "b": rng.random(200) < 0.3}

    def measure(name: str, positions: object) -> list[list[AnswerOutcome]]:
        return [[AnswerOutcome(float(truth["b" if name == "a" else "a"][at]))] for at in positions]  # type: ignore[attr-defined]

    people = {name: {at: float(truth[name][at]) for at in range(150)} for name in truth}
    choice = choose_generator(GeneratorPool(["a", "b"], make_groups(200), measure, people=people), "a")
    assert choice.gain is not None
    assert choice.gain.verdict == "loses"
    assert choice.reason.startswith("b loses −")
    assert "; only by the judge +" in choice.reason


def test_the_gain_that_chose_is_greater_on_average_than_the_one_measured() -> None:
    gains = [
        choose_from_table(NAMES, make_table([0.5] * 6, 80, seed), make_groups(80), ChoiceTerms(seed=seed)).gain
        for seed in range(30)
    ]
    known = [gain for gain in gains if gain is not None]
    excess = [gain.selection_gain - gain.difference.mean for gain in known]
    assert np.mean(excess) > 0
    assert all(abs(gain.corrected_gain) <= abs(gain.difference.mean) for gain in known)


@pytest.mark.long
def test_nothing_is_better_in_few_replays_where_nothing_differs() -> None:
    table = make_table([0.5, 0.6, 0.7], 120, 5)
    assert replay_null(table, make_groups(120), 400, seed=7) <= 0.08


def test_a_race_drops_the_best_as_worse_in_few_runs() -> None:
    lost = 0
    for seed in range(100):
        table = make_table([0.6, 0.5, 0.5, 0.5], 200, seed)
        rows = dict(zip(NAMES, table, strict=False))
        race = race_generators(
            NAMES[:4], 200, lambda name, at, rows=rows: [[AnswerOutcome(rows[name][place])] for place in at]
        )
        gone = [row for step in race.rounds for row in step.dropped if row.reason == "worse"]
        lost += any(row.name == "a" for row in gone)
    assert lost <= 10


def test_repetitions_tell_sampling_from_questions() -> None:
    rng = np.random.default_rng(0)
    level = rng.normal(0.5, 0.1, 400)
    rows = [[AnswerOutcome(float(value + rng.normal(0, 0.2))) for _ in range(4)] for value in level]
    noise = estimate_noise("m", rows)
    assert noise is not None
    assert noise.within == pytest.approx(0.2, abs=0.02)
    assert noise.between == pytest.approx(0.1, abs=0.02)


def test_what_cannot_be_chosen_from_says_what_to_do() -> None:
    table = make_table([0.5, 0.5, 0.5], 60, 0)
    with pytest.raises(InputError, match="At least 20 questions"):
        choose_from_table(NAMES[:3], table[:, :10], make_groups(10))
    with pytest.raises(UsageError, match="holdout"):
        choose_from_table(NAMES[:2], table[:2], make_groups(60), ChoiceTerms(holdout=1.5))
    with pytest.raises(UnknownName):
        choose_generator(GeneratorPool(["a", "b"], make_groups(60), lambda *_: []), "x")


def test_the_interval_of_a_gain_stays_within_the_range_of_differences() -> None:
    measured = {name: [[AnswerOutcome(value=value)]] * 40 for name, value in (("good", 1.0), ("bad", 0.0))}
    gain = measure_gain(measured, [str(at) for at in range(40)], None, (0.0, 1.0), seed=0)
    assert gain.difference.mean == gain.difference.high == 1.0
    assert gain.verdict == "gains"


def replay_random_race(questions: int, further: int) -> float:
    """Return the threshold at 5 % of the best of five against one on random questions, and further ones."""
    values = np.random.default_rng(1).random((6, questions))
    race = race_generators(
        NAMES,
        questions,
        lambda name, at: [[AnswerOutcome(values[NAMES.index(name), i])] for i in at],
        RaceTerms(alpha=1e-9),
    )
    gaps = np.random.default_rng(2).standard_normal(further)
    evidence = RaceEvidence(race, make_groups(questions))
    return float(np.quantile(replay_race(evidence, "a", gaps, make_groups(further), 0), 0.95))


def test_the_winner_of_a_race_without_further_questions_has_the_threshold_of_dunnett() -> None:
    """One-sided, 5 %, five treatments against one control: 2.23 (Dunnett 1955)."""
    assert abs(replay_random_race(400, 0) - 2.23) < 0.12


def test_the_more_questions_measure_the_less_the_choice_of_a_winner_counts() -> None:
    """With many it is nearly the threshold of one generator that is chosen in five of six races: 1.55."""
    assert replay_random_race(40, 40) > 1.85
    assert abs(replay_random_race(40, 4_000) - 1.65) < 0.12


def test_names_are_shuffled_together_in_a_group() -> None:
    values = np.random.default_rng(1).random((3, 40))
    single = np.repeat(values, 10, axis=1)
    race = race_generators("abc", 400, lambda name, at: [[AnswerOutcome(single["abc".index(name), i])] for i in at])
    spreads = [
        float(np.quantile(replay_race(RaceEvidence(race, groups), "a", np.zeros(1), ["x"], 0), 0.95))
        for groups in ([str(at // 10) for at in range(400)], make_groups(400))
    ]
    assert spreads[0] > 2 * spreads[1]


def test_the_winner_of_a_race_is_tested_on_its_questions_too_and_measured_on_the_others_alone() -> None:
    table = make_table([0.5, 0.5, 0.5, 0.5, 0.5, 0.62], 400, 3)
    gain = choose_from_table(NAMES, table, make_groups(400)).gain
    assert gain is not None
    assert (gain.chosen, gain.difference.n, gain.questions) == ("f", 200, 400)
    assert gain.corrected_gain <= gain.difference.mean
    alone = choose_from_table(["a", "f"], table[[0, 5]], make_groups(400)).gain
    assert alone is not None
    assert alone.questions == alone.difference.n == 400
    assert alone.p < gain.p < 0.001


def test_the_present_generator_answers_every_question_of_the_race() -> None:
    values = {"a": 0.1, "b": 0.9, "c": 0.5, "d": 0.5}

    def measure(name: str, positions: Sequence[int]) -> list[list[AnswerOutcome]]:
        return [[AnswerOutcome(values[name] + 0.01 * (at % 5))] for at in positions]

    for calls in (None, 200):
        race = race_generators(list(values), 100, measure, RaceTerms(calls, stay="a"))
        assert race.chosen == "b"
        assert race.undecided == ()
        assert len(race.outcomes["a"]) == len(race.outcomes["b"]) > len(race.outcomes["c"])
        assert race.calls <= (calls or 400)


def test_the_p_of_a_loss_is_named_as_that_of_a_gain() -> None:
    """The test is of a gain: beside a loss a bare "p 1.000" reads as if the loss were chance."""

    def measure(name: str, positions: object) -> list[list[AnswerOutcome]]:
        return [[AnswerOutcome(float((at % 3 == 0) == (name == "b")))] for at in positions]  # type: ignore[attr-defined]

    choice = choose_generator(GeneratorPool(["a", "b"], make_groups(200), measure), "a")
    assert choice.gain is not None
    assert choice.gain.verdict == "loses"
    assert "(p of a gain 1.000)" in choice.reason


@pytest.mark.long
@pytest.mark.parametrize(("value", "rivals"), [(0.9, 5), (0.5, 5), (0.5, 2)])
def test_a_present_generator_that_scores_alike_everywhere_is_beaten_by_chance_in_few_choices(value: float, rivals: int):
    gains = 0
    for seed in range(150):
        table = (np.random.default_rng(seed).random((rivals + 1, 120)) < value).astype(float)
        table[0] = value
        choice = choose_from_table(NAMES[: rivals + 1], table, make_groups(120), ChoiceTerms(seed=seed))
        gains += choice.gain is not None and choice.gain.verdict == "gains"
    assert gains <= 0.05 * 150


@pytest.mark.parametrize(("value", "name"), [(0.8, "b"), (0.79, "a")])
def test_as_good_and_cheaper_is_recommended_and_below_is_not(value: float, name: str) -> None:
    def measure(name: str, positions: object) -> list[list[AnswerOutcome]]:
        outcome = AnswerOutcome(value, cost=0.1) if name == "b" else AnswerOutcome(0.8, cost=1.0)
        return [[outcome] for _ in positions]  # type: ignore[attr-defined]

    assert choose_generator(GeneratorPool(["a", "b"], make_groups(400), measure), "a").recommended == name


def test_a_generator_that_a_bound_drops_though_it_leads_is_named() -> None:
    def measure(name: str, positions: object) -> list[list[AnswerOutcome]]:
        return [[AnswerOutcome(0.9 if name == "b" else 0.5, cost=2.0 if name == "b" else 1.0)] for _ in positions]  # type: ignore[attr-defined]

    terms = ChoiceTerms(bounds=(Bound("cost", "<=", 1.5),))
    choice = choose_generator(GeneratorPool(NAMES[:3], make_groups(80), measure), "a", terms)
    assert any(note.startswith("b was ahead by 0.4") for note in choice.notes)


def test_slow_first_answers_do_not_break_a_bound_on_latency() -> None:
    def measure(name: str, positions: object) -> list[list[AnswerOutcome]]:
        return [[AnswerOutcome(0.5, latency=5000.0 if at < 8 else 45.0)] for at in positions]  # type: ignore[attr-defined]

    assert find_violation([Bound("latency", "<=", 100.0)], measure("a", range(60))) is None


def test_generators_answer_in_turn() -> None:
    asked: list[str] = []

    def measure(name: str, positions: object) -> list[list[AnswerOutcome]]:
        asked.append(name)
        return [[AnswerOutcome(0.5)] for _ in positions]  # type: ignore[attr-defined]

    measure_in_turn(["a", "b"], range(64), measure)
    assert asked == ["a", "b"] * 4
