"""Why a generator stopped, in the words of the services: at its token limit, or by a content filter."""

from __future__ import annotations

from typing import Literal

from ragfault.model.records import Trace

FinishKind = Literal["limit", "filter"]
"""What a reason says of the answer: it is cut off, or a content filter replaced or ended it."""

FINISH_REASONS: dict[str, FinishKind] = {
    "length": "limit",
    "max_tokens": "limit",
    "max_output_tokens": "limit",
    "max_completion_tokens": "limit",
    "model_length": "limit",
    "model_context_window_exceeded": "limit",
    "error_limit": "limit",
    "content_filter": "filter",
    "content_filtered": "filter",
    "guardrail_intervened": "filter",
    "intervened": "filter",
    "refusal": "filter",
    "safety": "filter",
    "recitation": "filter",
    "blocklist": "filter",
    "prohibited_content": "filter",
    "spii": "filter",
    "error_toxic": "filter",
}
"""Reason, in lower case → what it says. OpenAI, Anthropic, Gemini, Bedrock, Cohere and Mistral."""


def get_finish_kind(trace: Trace) -> FinishKind | None:
    """Return what the recorded reason says of the answer; None for an ordinary end, or where no reason is recorded.

    >>> get_finish_kind(Trace(id="1", query="When?", answer="At", finish_reason="MAX_TOKENS"))
    'limit'
    """
    return FINISH_REASONS.get((trace.finish_reason or "").strip().lower().rpartition(".")[2])
