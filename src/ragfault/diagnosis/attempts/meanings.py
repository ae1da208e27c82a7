"""Which answers to one query mean the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ragfault.diagnosis.attempts.records import ComparisonMethod
from ragfault.judges.encoder.agreement import compare_words, settle_agreement
from ragfault.judges.encoder.judge import EncoderJudge, EncoderSession
from ragfault.labels.correction import Codes, Mask
from ragfault.model.grouping import group_positions
from ragfault.model.records import Trace

MAX_COMPARED = 200
"""Pairs of answers that the encoder compares: flakiness is that of as many queries, drawn at random."""
WEIGHTS = (0.48, 2.79, 0.5, 0.99, -0.16, 0.21, 0.23, 0.17, 0.08)
INTERCEPT = -0.97
"""Weights of `describe_pair`, fitted by `training/attempts.py` on three fifths of the questions of EVOUNA NQ."""
MOST_LOGIT = 5.0


class AnswerMeanings(NamedTuple):
    """Which answers of a query mean the same."""

    codes: Codes
    """A number for the meaning of each answer within its query, from 1."""
    is_compared: Mask
    """Which answers are of queries whose answers were all compared."""
    method: ComparisonMethod


def group_meanings(traces: Sequence[Trace], queries: Codes, judge: str) -> AnswerMeanings:
    """Group the answers of each query by what they say.

    Two answers mean the same if they are equal in another spelling, or if neither answers. Otherwise a model on the
    agreement head of the encoder and on shared words decides. A judge that costs money is not asked. Queries are
    compared in random order until `MAX_COMPARED` pairs were read, so that those compared are a sample of all. A run
    without a judge is compared if words settle every pair.
    """
    compare = _PairReader(judge)
    codes, is_compared = np.ones(len(traces), np.int64), np.zeros(len(traces), bool)
    groups = list(group_positions(queries.tolist()).values())
    for place in np.random.default_rng(0).permutation(len(groups)).tolist():
        rows = sorted(groups[place], key=lambda row: traces[row].attempt)
        numbers = _number_meanings([traces[row] for row in rows], compare)
        if numbers is None:
            break
        codes[rows], is_compared[rows] = numbers, True
    if compare.method == "spelling" and not is_compared.all():
        # the queries that words settle are no sample of all queries
        is_compared[:] = False
    return AnswerMeanings(codes, is_compared, compare.method)


def _number_meanings(attempts: Sequence[Trace], compare: _PairReader) -> list[int] | None:
    """Return the numbers of the meanings of the answers to a query; None if two of them could not be compared."""
    firsts: list[Trace] = []
    numbers = []
    for trace in attempts:
        for number, first in enumerate(firsts, 1):
            same = compare(trace, first)
            if same is None:
                return None
            if same:
                numbers.append(number)
                break
        else:
            firsts.append(trace)
            numbers.append(len(firsts))
    return numbers


class _PairReader:
    """Comparison of two answers to one query, by words where they settle it, else by the encoder."""

    def __init__(self, judge: str) -> None:
        self._judge = None if judge.partition("/")[0] == "none" else EncoderJudge()
        self.method: ComparisonMethod = "spelling" if self._judge is None else "agreement"
        self._left = MAX_COMPARED
        self._known: dict[tuple[str, str, str], bool | None] = {}

    def __call__(self, first: Trace, second: Trace) -> bool | None:
        left, right = ((trace.answer or "").strip() for trace in (first, second))
        if not left or not right:
            return left == right
        key = (first.query, left, right)
        if key not in self._known:
            settled = settle_agreement(left, right)
            self._known[key] = self._read_pair(*key) if settled is None else settled
        return self._known[key]

    def _read_pair(self, query: str, left: str, right: str) -> bool | None:
        if self._judge is None or self._left <= 0:
            return None
        self._left -= 1
        session = self._judge.open_session(query)
        refusals = [session.is_refusal(left), session.is_refusal(right)]
        if any(refusals):
            return all(refusals)
        return bool(describe_pair(session, query, left, right) @ np.array(WEIGHTS) + INTERCEPT > 0)


def describe_pair(session: EncoderSession, query: str, left: str, right: str) -> np.ndarray:
    """Describe two answers: the higher agreement of one with the other as log-odds, and what their words share.

    An answer that says more than another one agrees with it. The words are those of `compare_words`, on average of
    both directions.
    """
    agreements = (session.score_agreement(left, [right]), session.score_agreement(right, [left]))
    agreement = max(item or 0.0 for item in agreements)
    low, high = agreement, 1 - agreement
    with np.errstate(divide="ignore"):
        odds = float(np.clip(np.log(low) - np.log(high), -MOST_LOGIT, MOST_LOGIT))
    words = (compare_words(query, left, right) + compare_words(query, right, left)) / 2
    return np.array([odds, *words])
