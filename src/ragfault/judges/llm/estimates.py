"""Estimate of what the calls of a judge cost, before anything is sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from ragfault.judges.llm.settings import LLMSettings
from ragfault.judges.llm.transport.budget import NANO, load_cost_function
from ragfault.judges.llm.transport.reply_cache import (
    CacheFile,
    CallKind,
    ModelCall,
    create_key_builder,
    load_reply,
    resolve_cache_path,
)
from ragfault.model.errors import JudgeError
from ragfault.model.records import Trace

CHARACTERS_PER_TOKEN = 4
"""Estimate of the characters of a token."""
IMAGE_TOKENS = 1_000
"""Estimate of the tokens of an image."""
REPLY_TOKENS: dict[CallKind, int] = {
    "retrieval": 350,
    "generation": 600,
    "questions": 100,
    "relevance": 150,
    "answer": 300,
}
"""Estimate of the tokens of a reply."""


class CallEstimate(Struct, frozen=True):
    """Estimate of the calls of one kind."""

    kind: CallKind
    calls: int
    """Distinct calls."""
    cached: int
    """Calls that the cache answers."""
    prompt: int
    """Tokens sent, estimated."""
    completion: int
    """Tokens received, estimated."""
    cost: float | None
    """US$, estimated; None where the price is unknown."""
    max_cost: float | None
    """US$ if every reply had the maximum length."""


class CostEstimate(Struct, frozen=True):
    """Estimate of what judging some traces costs."""

    traces: int
    kinds: tuple[CallEstimate, ...]
    too_long: int
    """Traces that do not fit into the context of the model."""
    judge: str = ""
    """Model and endpoint."""
    members: tuple[CostEstimate, ...] = ()
    """What each judge of several that decide together costs; then `kinds` is empty."""


def estimate_calls(
    fingerprint: str, traces: Iterable[Trace], plan: Callable[[Trace], Iterable[ModelCall]], settings: LLMSettings
) -> CostEstimate:
    """Count the calls that a judge plans for traces; price those that the cache cannot answer, without repair calls.

    A trace on which `plan` raises JudgeError counts as too long.
    """
    path = resolve_cache_path(settings.cache)
    file = CacheFile(path) if path is not None and path.is_file() else None
    count = too_long = 0
    keys: set[bytes] = set()
    sizes: dict[CallKind, list[tuple[bool, int]]] = defaultdict(list)
    build_key = create_key_builder(settings)
    try:
        for trace in traces:
            count += 1
            try:
                calls = list(plan(trace))
            except JudgeError:
                too_long += 1
                continue
            for call in calls:
                key = build_key(call)
                if key not in keys:
                    keys.add(key)
                    cached = file is not None and load_reply(file, key) is not None
                    sizes[call.kind].append((cached, _count_tokens(call)))
    finally:
        if file is not None:
            file.close()
    kinds = tuple(_sum_calls(kind, rows, settings) for kind, rows in sizes.items())
    return CostEstimate(count, kinds, too_long, judge=" ".join(fingerprint.split()[1:3]))


def _count_tokens(call: ModelCall) -> int:
    size = sum(len(message.text) for message in call.messages) + len(str(call.schema))
    return size // CHARACTERS_PER_TOKEN + IMAGE_TOKENS * sum(len(message.images) for message in call.messages)


def _sum_calls(kind: CallKind, rows: list[tuple[bool, int]], settings: LLMSettings) -> CallEstimate:
    cost = load_cost_function(settings, batch=settings.batch_api)
    sizes = [size for cached, size in rows if not cached]
    # a verdict is as long as the settings say: one token, or a reasoning before it
    reply = settings.max_tokens if kind == "decision" else min(REPLY_TOKENS[kind], settings.max_tokens)
    prices = [(cost(size, reply), cost(size, settings.max_tokens)) for size in sizes]
    costs, max_costs = ([price[i] for price in prices] for i in (0, 1))
    cached, completion = len(rows) - len(sizes), reply * len(sizes)
    return CallEstimate(kind, len(rows), cached, sum(sizes), completion, _total_cost(costs), _total_cost(max_costs))


def _total_cost(prices: list[int | None]) -> float | None:
    known_prices = [price for price in prices if price is not None]
    return sum(known_prices) / NANO if len(known_prices) == len(prices) else None


def sum_estimates(estimates: Sequence[CostEstimate]) -> CostEstimate:
    """Sum the estimates of one model over several sets of traces, which share no call."""
    kinds: dict[CallKind, list[CallEstimate]] = defaultdict(list)
    for estimate in estimates:
        for item in estimate.kinds:
            kinds[item.kind].append(item)
    return CostEstimate(
        traces=sum(item.traces for item in estimates),
        kinds=tuple(_join_calls(kind, rows) for kind, rows in kinds.items()),
        too_long=sum(item.too_long for item in estimates),
        judge=estimates[0].judge if estimates else "",
    )


def _join_calls(kind: CallKind, rows: Sequence[CallEstimate]) -> CallEstimate:
    calls, cached, prompt, completion = (
        sum(getattr(row, name) for row in rows) for name in ("calls", "cached", "prompt", "completion")
    )
    costs = [[getattr(row, name) for row in rows] for name in ("cost", "max_cost")]
    cost, max_cost = (None if None in prices else sum(prices) for prices in costs)
    return CallEstimate(kind, calls, cached, prompt, completion, cost, max_cost)
