"""The words for the causes of bad answers, in which people and ragfault name them."""

from __future__ import annotations

from typing import Literal

CauseName = Literal[
    "failed",
    "blank",
    "not_an_answer",
    "cut_off",
    "other_language",
    "query_changed",
    "history_ignored",
    "stale_source",
    "wrong_source",
    "not_shown",
    "not_retrieved",
    "wrong_entity",
    "not_covered",
    "answered_unanswerable",
    "refused",
    "contradicted",
    "invented",
    "left_out",
    "off_topic",
    "undecided",
]
"""The cause of a bad answer; `diagnosis.causes.table.CAUSES` describes each."""

CauseLabel = CauseName | Literal["right"]
"""What a person says of an answer: the cause why it is bad, or that it is right."""
