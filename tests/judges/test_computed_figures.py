"""Figures of a claim that follow from those that were shown: the encoder reads how."""

from __future__ import annotations

import pytest

from ragfault.judges.encoder.figures import explain_figures, read_figures
from ragfault.judges.loading import load_judge
from ragfault.model.records import Chunk, Trace

CHUNK = "Boat cover costs €9.50 a month, paid by card. Members get 20 % off a course, which costs 140 euros."


def explain(claim: str, query: str = "") -> str:
    known = {figure.value for figure in read_figures(f"{query} {CHUNK}")}
    return explain_figures(claim, f"{query} {CHUNK}", known)


@pytest.mark.parametrize(
    ("claim", "query", "expected"),
    [
        ("Twelve months come to €114.", "What are twelve months of boat cover?", "12 × 9.5 is 114."),
        ("That is 112 euros, 28 less.", "What does a member pay?", "140 less 20 % is 112."),
        ("Both come to 149.50 euros.", "", "9.5 + 140 is 149.5."),
        ("It costs €9.50.", "", ""),
        ("It costs €9.71.", "", ""),
    ],
)
def test_a_figure_follows_by_one_operation_or_is_left_alone(claim: str, query: str, expected: str):
    explained = explain(claim, query)
    assert (expected in explained) if expected else explained == ""


def test_a_figure_that_does_not_follow_leaves_all_of_its_claim_alone():
    """A right sum beside an invented figure does not speak for the claim."""
    assert explain("Twelve months come to €114, and the deposit is €77.", "And twelve months?") == ""


def judge_support(answer: str) -> float:
    trace = Trace(
        id="1", query="What do 12 months of boat cover cost in all?", chunks=(Chunk(id="a", text=CHUNK),), answer=answer
    )
    [verdicts] = load_judge("encoder").observe([trace])
    assert verdicts.claim
    [claim] = verdicts.claim
    assert claim.p is not None
    return claim.p


def test_a_right_sum_is_more_probable_than_a_wrong_one():
    right = judge_support("At €9.50 a month, 12 months of boat cover come to €114.")
    wrong = judge_support("At €9.50 a month, 12 months of boat cover come to €141.")
    assert right > wrong + 0.2
