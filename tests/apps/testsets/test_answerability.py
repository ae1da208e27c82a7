"""Laws of the answerability of questions by passages."""

from __future__ import annotations

import numpy as np
import pytest

from ragfault.apps.testsets.answerability import FEATURE_NAMES, compute_features, score_answerability

PASSAGE = (
    "The harbour of Tarvik was founded by Tom Berg, a baker, in 1857. Its stone pier shelters 23 fishing boats during "
    "the winter storms. In 1905 the council bought a crane from Hallgate Works."
)


def test_scores_are_probabilities_and_blank_passages_answer_nothing():
    scores = score_answerability("Who founded the harbour of Tarvik?", [PASSAGE, "", "Soup is warm.", "\n"])
    assert all(0 <= score <= 1 for score in scores)
    assert scores[1] == scores[3] == 0
    assert score_answerability("Who?", []) == []


@pytest.mark.parametrize(
    ("asked", "altered"),
    [
        ("Who founded the harbour of Tarvik?", "Who founded the harbour of Merrow?"),
        ("How many fishing boats does the stone pier shelter?", "How many fishing boats does the wooden pier shelter?"),
        ("From whom did the council buy a crane in 1905?", "From whom did the council buy a crane in 1931?"),
    ],
)
def test_a_word_that_the_passage_contradicts_lowers_the_score(asked, altered):
    """Of two questions that differ in one word, the one that the passage answers scores higher."""
    (right,), (wrong,) = (score_answerability(query, [PASSAGE]) for query in (asked, altered))
    assert right > wrong


def test_a_passage_on_another_subject_answers_little():
    scores = score_answerability("Who founded the harbour of Tarvik?", [PASSAGE, "Soup is warm."])
    assert scores[0] > 0.5 > scores[1]


def test_features_are_finite_whatever_the_texts():
    for query in ("", "?", "why", "what " * 200, "Τι είναι αυτό;", "12 34"):
        for passage in ("", "...", "| a | b |\n|---|---|", PASSAGE):
            features = compute_features(query, passage)
            assert features.shape == (len(FEATURE_NAMES),)
            assert np.isfinite(features).all()
