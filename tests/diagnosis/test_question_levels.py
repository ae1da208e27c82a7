"""Laws of the level that questions of people give."""

from __future__ import annotations

import numpy as np

from ragfault.diagnosis.question_levels import measure_level


def test_values_of_synthetic_questions_do_not_move_the_level():
    own = [1.0] * 13 + [0.0] * 7
    levels = [measure_level("recall", [value] * 100 + own, [True] * 100 + [False] * 20) for value in (1.0, 0.2)]
    assert levels[0].own == levels[1].own
    assert levels[0].own.mean == 0.65
    assert (levels[0].synthetic.mean, round(levels[1].synthetic.mean, 9)) == (1.0, 0.2)


def test_without_synthetic_questions_there_is_no_second_level():
    assert measure_level("recall", [1.0, 0.0], [False, False]) is None


def test_the_interval_of_twenty_questions_contains_the_true_recall_at_its_rate():
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(400):
        values = (rng.uniform(size=20) < 0.64).astype(float).tolist()
        level = measure_level("recall", [1.0, *values], [True] + [False] * 20)
        hits += level.own.low <= 0.64 <= level.own.high
    assert hits >= 0.93 * 400
