"""Watch over traffic: silent while nothing changes, soon heard when something does."""

from __future__ import annotations

import numpy as np
import pytest

from ragfault.apps.guard.traffic import NOTICE_LEVEL, TrafficWatcher

NAMES = ("risk", "answer_words", "chunks")
Draw = dict[str, float]


def draw_inputs(rng: np.random.Generator, words: float = 60.0) -> Draw:
    """Draw the inputs of an answer: continuous, whole numbers, and always the same."""
    return {"risk": float(rng.beta(1, 6)), "answer_words": float(rng.poisson(words)), "chunks": 3.0}


def make_watcher(rng: np.random.Generator, n: int = 300) -> TrafficWatcher:
    answers = [draw_inputs(rng) for _ in range(n)]
    seed = int(rng.integers(1_000_000))
    return TrafficWatcher({name: [answer[name] for answer in answers] for name in NAMES}, seed=seed)


@pytest.mark.long
def test_without_a_shift_promises_are_withdrawn_in_at_most_the_level_of_runs() -> None:
    rng = np.random.default_rng(2)
    runs, notices = 60, 0
    for _ in range(runs):
        watcher = make_watcher(rng)
        notices += any(watcher.observe(draw_inputs(rng)) for _ in range(2_000))
    assert notices <= NOTICE_LEVEL * runs + 2 * (NOTICE_LEVEL * runs) ** 0.5


@pytest.mark.parametrize("before", [0, 1_500])
def test_longer_answers_are_noticed_soon_by_name(before: int) -> None:
    rng = np.random.default_rng(4)
    watcher = make_watcher(rng)
    assert not any(watcher.observe(draw_inputs(rng)) for _ in range(before))
    for _ in range(200):
        watcher.observe(draw_inputs(rng, words=75.0))
    assert watcher.shift is not None
    assert watcher.shift.input == "answer_words"
    assert before < watcher.shift.released <= before + 100


def test_a_notice_stays() -> None:
    rng = np.random.default_rng(6)
    watcher = make_watcher(rng)
    while not watcher.shift:
        watcher.observe(draw_inputs(rng, words=200.0))
    noticed = watcher.shift
    assert watcher.observe(draw_inputs(rng)) == noticed


def test_an_input_that_never_varied_and_now_does_is_noticed() -> None:
    rng = np.random.default_rng(8)
    watcher = make_watcher(rng)
    for _ in range(40):
        watcher.observe({**draw_inputs(rng), "chunks": 1.0})
    assert watcher.shift is not None
    assert watcher.shift.input == "chunks"
