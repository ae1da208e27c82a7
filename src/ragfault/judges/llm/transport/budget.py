"""Prices of model calls and the budget: reserve the upper bound before a call, settle it afterwards."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import msgspec

from ragfault.errors import UsageError
from ragfault.judges.llm.settings import LLMSettings, endpoint_host, is_local
from ragfault.judges.llm.transport.calls import ModelCall
from ragfault.judges.llm.transport.reply_cache import CachedReply, CacheFile, store_reply
from ragfault.records import Usage

NANO = 1_000_000_000
"""Amounts are kept in whole billionths of a US$, rounded up, so that sums are exact."""
LOCAL_PROVIDERS = frozenset({"ollama", "lmstudio", "vllm"})
"""Providers that are a machine of one's own."""
CATALOG_PROVIDERS = frozenset({"openai", "azure", "anthropic", "google"})
SMALL_CALL, LARGE_CALL = 1_000, 1_000_000

CostFunction = Callable[[int, int], int | None]
"""(tokens sent, tokens received) → billionths of a US$, or None where no price is known."""


def load_cost_function(settings: LLMSettings) -> CostFunction:
    """What a call to the model of settings costs.

    A machine of one's own costs nothing unless a price is given. Raises UsageError where a budget in US$ is set and no
    price is known.

    >>> load_cost_function(LLMSettings(model="m", price=(0.15, 0.6)))(1000, 100)
    210000
    """
    if settings.price is not None:
        return _linear_cost(*settings.price)
    if is_local(settings) or settings.provider in LOCAL_PROVIDERS:
        return _linear_cost(0, 0)
    found = _catalog_cost(settings)
    if found is None and settings.budget is not None:
        raise UsageError(
            f"the price of {settings.model} at {endpoint_host(settings)} is not known, so a budget in US$ cannot be kept. "
            f"{_install_hint()}Give --price IN,OUT (US$ for a million tokens sent and received), or a budget in tokens: "
            '--budget "200000 tokens".'
        )
    return found or _unknown_cost


def _install_hint() -> str:
    """What to install where the catalogue of prices is not."""
    found = find_spec("genai_prices") is not None
    return "" if found else "Prices come with: pip install 'ragfault[llm]'. Or: "


def lookup_context_window(settings: LLMSettings) -> int | None:
    """The longest request and reply together, in tokens, as far as the catalogue knows."""
    if is_local(settings):
        return None
    found = getattr(_catalog_model(settings), "context_window", None)
    return int(found) if found else None


def _linear_cost(sent: float, received: float) -> CostFunction:
    """The same price for every token; prices are in US$ for a million."""
    into, out = sent * NANO / 1_000_000, received * NANO / 1_000_000

    def cost(prompt: int, completion: int) -> int:
        return math.ceil(round(prompt * into + completion * out, 3))

    return cost


def _unknown_cost(prompt: int, completion: int) -> None:  # noqa: ARG001 - the shape of a cost
    return None


def _catalog_cost(settings: LLMSettings) -> CostFunction | None:
    """The price of the catalogue; where it rises with the length of a request, each call is looked up."""
    model = _catalog_model(settings)
    if model is None:
        return None

    def cost(prompt: int, completion: int) -> int:
        from genai_prices import Usage, calc_price

        usage = Usage(input_tokens=prompt, output_tokens=completion)
        found = calc_price(usage, settings.model, **_catalog_key(settings))
        return math.ceil(round(float(found.total_price) * NANO, 3))

    try:
        ends = (
            cost(SMALL_CALL, 0),
            cost(LARGE_CALL, 0),
            cost(0, SMALL_CALL),
            cost(SMALL_CALL, SMALL_CALL),
            cost(LARGE_CALL, SMALL_CALL),
        )
    except LookupError:
        return None
    even = (
        ends[1] * SMALL_CALL == ends[0] * LARGE_CALL
        and ends[3] == ends[0] + ends[2]
        and ends[4] == ends[1] + ends[2]
    )
    return _linear_cost(ends[1] / NANO, ends[2] / NANO * LARGE_CALL / SMALL_CALL) if even else cost


def _catalog_key(settings: LLMSettings) -> dict[str, Any]:
    """How the catalogue is told whose model is meant: by its provider, or by the address of another service."""
    if (settings.base_url is None and settings.provider in CATALOG_PROVIDERS) or settings.provider == "azure":
        return {"provider_id": settings.provider}
    return {"provider_api_url": settings.base_url or ""}


def _catalog_model(settings: LLMSettings) -> Any:
    """The entry of the catalogue; None where there is none, or no catalogue is installed."""
    return _lookup_model(settings.model, *next(iter(_catalog_key(settings).items())))


@lru_cache(64)
def _lookup_model(model: str, field: str, value: str) -> Any:
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return None
    try:
        named: dict[str, Any] = {field: value}
        return calc_price(Usage(input_tokens=1, output_tokens=1), model, **named).model
    except (LookupError, ValueError):
        return None


MESSAGE_TOKENS, REQUEST_TOKENS = 16, 64
"""Tokens that a service adds to each message, and to a request, at the most."""
MAX_IMAGE_TOKENS = 50_000
"""Tokens of an image, at the most, whatever its size and the model."""


class CallCost(NamedTuple):
    """What a call costs."""

    prompt: int
    completion: int
    cost: int | None
    """Billionths of a US$; None where no price is known."""


def bound_cost(call: ModelCall, settings: LLMSettings, cost: CostFunction) -> CallCost:
    """What a call can cost at the most: no token is shorter than a byte."""
    size = (
        REQUEST_TOKENS + len(msgspec.json.encode(call.schema)) + len(msgspec.json.encode(settings.parameters))
    )
    for message in call.messages:
        size += (
            MESSAGE_TOKENS
            + len(message.text.encode("utf-8", "replace"))
            + MAX_IMAGE_TOKENS * len(message.images)
        )
    return CallCost(size, settings.max_tokens, cost(size, settings.max_tokens))


class CallBudget:
    """What is spent under one name, killed commands included, and the bounds that it keeps to.

    All of it stands in the file, so that what was set aside by a command that was killed stays set aside.
    """

    def __init__(self, file: CacheFile, name: str, settings: LLMSettings) -> None:
        self._file, self.name = file, name
        self._max_tokens = settings.budget_tokens
        self._max_cost = None if settings.budget is None else round(settings.budget * NANO)
        self._hits = 0

    def begin(self, *, fresh: bool) -> None:
        """Make the purse; `afresh` forgets what was spent under its name."""
        with self._file.transaction() as connection:
            if fresh:
                connection.execute("delete from purses where name = ?", (self.name,))
                connection.execute("delete from reservations where purse = ?", (self.name,))
            connection.execute("insert or ignore into purses (name) values (?)", (self.name,))

    def reserve(self, bound: CallCost) -> int | None:
        """Set aside what a call can cost; None where that would pass the budget."""
        with self._file.transaction() as connection:
            if not self._fits(connection, bound):
                return None
            done = connection.execute(
                "insert into reservations (purse, prompt, completion, cost) values (?, ?, ?, ?)",
                (self.name, *bound),
            )
        return done.lastrowid

    def _fits(self, connection: sqlite3.Connection, bound: CallCost) -> bool:
        if self._max_tokens is None and self._max_cost is None:
            return True
        _, _, prompt, completion, cost, _ = _sum_spending(connection, self.name)
        within = (
            self._max_tokens is None
            or prompt + completion + bound.prompt + bound.completion <= self._max_tokens
        )
        return within and (self._max_cost is None or cost + (bound.cost or 0) <= self._max_cost)

    def settle(self, ticket: int, amount: CallCost, reply: tuple[bytes, CachedReply] | None = None) -> None:
        """Put what a call did cost in the place of what was set aside for it, and keep its reply at the same moment."""
        with self._file.transaction() as connection:
            if reply is not None:
                store_reply(connection, *reply)
            connection.execute("delete from reservations where id = ?", (ticket,))
            connection.execute(
                "update purses set calls = calls + 1, cached = cached + ?, prompt = prompt + ?, "
                "completion = completion + ?, cost = cost + ?, unpriced = unpriced + ? where name = ?",
                (self._hits, *amount[:2], amount.cost or 0, amount.cost is None, self.name),
            )
            self._hits = 0

    def release(self, ticket: int) -> None:
        """Give back what was set aside for a call that was not charged for."""
        with self._file.transaction() as connection:
            connection.execute("delete from reservations where id = ?", (ticket,))

    def count_hit(self) -> None:
        """Count a call that the cache answered."""
        self._hits += 1

    def save_hits(self) -> None:
        """Write down the hits that no payment has carried along."""
        if self._hits:
            with self._file.transaction() as connection:
                connection.execute(
                    "update purses set cached = cached + ? where name = ?", (self._hits, self.name)
                )
                self._hits = 0

    def usage(self) -> Usage:
        """What was spent; what is set aside counts as spent."""
        with self._file.connection() as connection:
            calls, cached, prompt, completion, cost, unpriced = _sum_spending(connection, self.name)
        return Usage(
            calls=calls,
            cached=cached + self._hits,
            prompt=prompt,
            completion=completion,
            cost=None if unpriced else cost / NANO,
        )

    def describe_spending(self) -> str:
        """Spent and budget in words: "US$ 4.9981 of US$ 5 in 1,204 calls"."""
        spent = self.usage()
        parts = []
        if self._max_cost is not None:
            parts.append(f"US$ {spent.cost or 0:.4f} of US$ {self._max_cost / NANO:g}")
        if self._max_tokens is not None:
            parts.append(f"{spent.prompt + spent.completion:,} of {self._max_tokens:,} tokens")
        return f"{' and '.join(parts)} in {spent.calls:,} calls"


def _sum_spending(connection: sqlite3.Connection, name: str) -> tuple[int, int, int, int, int, int]:
    """Calls, hits, tokens sent and received, cost and calls without a price, with what is set aside."""
    row = connection.execute(
        "select calls + n, cached, p.prompt + s, p.completion + r, p.cost + c, unpriced + u from purses p, "
        "(select count(*) n, coalesce(sum(prompt), 0) s, coalesce(sum(completion), 0) r, coalesce(sum(cost), 0) c, "
        "count(*) - count(cost) u from reservations where purse = ?1) where name = ?1",
        (name,),
    ).fetchone()
    return row or (0, 0, 0, 0, 0, 0)
