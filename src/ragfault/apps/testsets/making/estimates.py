"""Estimate of the calls of a model that writes an evaluation set, before the first of them."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import TYPE_CHECKING

from msgspec import Struct

from ragfault.apps.testsets.making.model_checks import MAX_RIVALS
from ragfault.apps.testsets.making.model_questions import CALLS_PER_ITEM
from ragfault.apps.testsets.making.probes import DRAFTERS
from ragfault.apps.testsets.making.prompts import (
    CHECKING_INSTRUCTIONS,
    CHECKING_SCHEMA,
    WRITING_INSTRUCTIONS,
    WRITING_SCHEMA,
)
from ragfault.apps.testsets.passages import CorpusIndex
from ragfault.apps.testsets.records import QuestionKind
from ragfault.text.number_format import format_cost

if TYPE_CHECKING:
    from ragfault.judges.llm.judge import LLMGenerator

MARK_CHARACTERS = 150
"""Characters of the marks around a text, and of a heading, an asker or a question between them."""
REPLY_TOKENS = 200
"""Estimate of the tokens of a reply, with two questions or the check of two."""


class MakingEstimate(Struct, frozen=True, kw_only=True):
    """Calls of a model that an evaluation set takes at most."""

    calls: int
    prompt: int
    """Tokens sent, estimated."""
    completion: int
    """Tokens received, estimated."""
    cost: float | None
    """US$, estimated; None where the price is unknown."""


def estimate_calls(index: CorpusIndex, counts: Mapping[QuestionKind, int], model: LLMGenerator) -> MakingEstimate:
    """Estimate the calls for so many items of each kind, none of which the cache answers; nothing is called."""
    from ragfault.judges.llm.estimates import CHARACTERS_PER_TOKEN
    from ragfault.judges.llm.transport.budget import NANO, load_cost_function

    passage = fmean(len(part.text) for part in index.passages) + MARK_CHARACTERS
    writing = len(f"{WRITING_INSTRUCTIONS}{WRITING_SCHEMA}") + passage + 2 * MARK_CHARACTERS
    checking = len(f"{CHECKING_INSTRUCTIONS}{CHECKING_SCHEMA}") + (1 + MAX_RIVALS) * passage + 2 * MARK_CHARACTERS
    items = sum(count for kind, count in counts.items() if kind not in DRAFTERS)
    # who asks is one call more, about headings
    calls = CALLS_PER_ITEM * items + (items > 0)
    prompt = round(((items > 0) * writing + items * (writing + checking)) / CHARACTERS_PER_TOKEN)
    price = load_cost_function(model.settings)(prompt, calls * REPLY_TOKENS)
    cost = None if price is None else price / NANO
    return MakingEstimate(calls=calls, prompt=prompt, completion=calls * REPLY_TOKENS, cost=cost)


def describe_estimate(estimate: MakingEstimate) -> str:
    """Describe what the calls cost at most.

    >>> describe_estimate(MakingEstimate(calls=41, prompt=30_000, completion=8_200, cost=1.25))
    'at most 41 calls, about 30,000 tokens sent and 8,200 received: US$ 1.25'
    """
    return (
        f"at most {estimate.calls:,} calls, about {estimate.prompt:,} tokens sent and {estimate.completion:,} "
        f"received: {format_cost(estimate.cost)}"
    )
