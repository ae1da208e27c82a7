"""Prices of model calls, and the budget: reserve the upper bound before a call, settle it afterwards."""

from __future__ import annotations

import glob
import math
import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, NamedTuple
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from ragfault.judges.llm.settings import LLMSettings, endpoint_host, is_local
from ragfault.judges.llm.transport.reply_cache import CachedReply, CacheFile, ModelCall, store_reply
from ragfault.model.errors import UsageError
from ragfault.model.records import Usage

NANO = 1_000_000_000
"""Amounts are integers in billionths of a US$, rounded up, so that sums are exact."""
LOCAL_PROVIDERS = frozenset({"ollama", "lmstudio", "vllm"})
"""Providers that run on the user's own machine."""
CATALOG_PROVIDERS = frozenset({"openai", "azure", "anthropic", "google"})
SMALL_CALL, LARGE_CALL = 1_000, 1_000_000

CostFunction = Callable[[int, int], int | None]
"""(tokens sent, tokens received) → billionths of a US$, or None where the price is unknown."""


def load_cost_function(settings: LLMSettings, *, batch: bool = False) -> CostFunction:
    """Return the cost of calls to the model of settings, by a batch endpoint half of the catalog's price.

    Local models cost nothing unless a price is set, which is then that of every call. The price of a model that the
    catalog sells is not known at an address of this machine, where a proxy may stand in front of the service.
    Raises UsageError for a budget in US$ without a known price.

    >>> load_cost_function(LLMSettings(model="m", price=(0.15, 0.6)))(1000, 100)
    210000
    """
    if settings.price is not None:
        return _linear_cost(*settings.price)
    if settings.provider in LOCAL_PROVIDERS or (is_local(settings) and not _is_sold(settings)):
        return _linear_cost(0, 0)
    cost = _catalog_cost(settings)
    if cost is None and settings.budget is not None:
        raise UsageError(
            f"the price of {settings.model} at {endpoint_host(settings)} is not known, so a budget in US$ cannot be "
            f"kept. {_install_hint()}Give --price IN,OUT (US$ for a million tokens sent and received), or a budget in "
            'tokens: --budget "200000 tokens".'
        )
    return (_halve(cost) if batch and cost else cost) or (lambda *_: None)


def _is_sold(settings: LLMSettings) -> bool:
    """Return whether the catalog knows the model among those that its provider sells."""
    return _catalog_model(replace(settings, base_url=None)) is not None


def _halve(cost: CostFunction) -> CostFunction:
    def half(prompt: int, completion: int) -> int | None:
        full = cost(prompt, completion)
        return None if full is None else -(-full // 2)

    return half


def _install_hint() -> str:
    installed = find_spec("genai_prices") is not None
    return "" if installed else "Prices come with: pip install 'ragfault[llm]'. Or: "


def lookup_context_window(settings: LLMSettings) -> int | None:
    """Return the longest request and reply together, in tokens; None where the catalog does not know it."""
    if is_local(settings):
        return None
    window = getattr(_catalog_model(settings), "context_window", None)
    return int(window) if window else None


def _linear_cost(sent: float, received: float) -> CostFunction:
    """Return a cost function with one price for every token; prices are in US$ for a million."""
    into, out = sent * NANO / 1_000_000, received * NANO / 1_000_000

    def cost(prompt: int, completion: int) -> int:
        return math.ceil(round(prompt * into + completion * out, 3))

    return cost


def _catalog_cost(settings: LLMSettings) -> CostFunction | None:
    """Return the cost function of the catalog; it looks up each call where the price depends on its length."""
    model = _catalog_model(settings)
    if model is None:
        return None

    def cost(prompt: int, completion: int) -> int:
        from genai_prices import Usage, calc_price

        usage = Usage(input_tokens=prompt, output_tokens=completion)
        price = calc_price(usage, settings.model, **_catalog_key(settings))
        return math.ceil(round(float(price.total_price) * NANO, 3))

    try:
        samples = (
            cost(SMALL_CALL, 0),
            cost(LARGE_CALL, 0),
            cost(0, SMALL_CALL),
            cost(SMALL_CALL, SMALL_CALL),
            cost(LARGE_CALL, SMALL_CALL),
        )
    except LookupError:
        return None
    linear = (
        samples[1] * SMALL_CALL == samples[0] * LARGE_CALL
        and samples[3] == samples[0] + samples[2]
        and samples[4] == samples[1] + samples[2]
    )
    return _linear_cost(samples[1] / NANO, samples[2] / NANO * LARGE_CALL / SMALL_CALL) if linear else cost


def _catalog_key(settings: LLMSettings) -> dict[str, Any]:
    """Identify the service in the catalog: by its provider, or by its URL."""
    if (settings.base_url is None and settings.provider in CATALOG_PROVIDERS) or settings.provider == "azure":
        return {"provider_id": settings.provider}
    return {"provider_api_url": settings.base_url or ""}


def _catalog_model(settings: LLMSettings) -> Any:
    """Return the catalog entry; None where there is none, or the catalog is not installed."""
    return _lookup_model(settings.model, *next(iter(_catalog_key(settings).items())))


@lru_cache(64)
def _lookup_model(model: str, field: str, value: str) -> Any:
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return None
    try:
        service: dict[str, Any] = {field: value}
        return calc_price(Usage(input_tokens=1, output_tokens=1), model, **service).model
    except (LookupError, ValueError):
        return None


MESSAGE_TOKENS, REQUEST_TOKENS = 16, 64
"""Most tokens that a service adds to a message, and to a request."""
MAX_IMAGE_TOKENS = 50_000
"""Most tokens of an image, whatever its size and the model."""


LOCK_SUFFIX = ".lock"
"""Suffix of the files, beside the cache, that show which processes live."""


class CallCost(NamedTuple):
    """Tokens and cost of a call."""

    prompt: int
    completion: int
    cost: int | None
    """Billionths of a US$; None where the price is unknown."""


def bound_cost(call: ModelCall, settings: LLMSettings, cost: CostFunction) -> CallCost:
    """Return the upper bound of the cost of a call: no token is shorter than a byte."""
    size = REQUEST_TOKENS + len(msgspec.json.encode(call.schema)) + len(msgspec.json.encode(settings.parameters))
    for message in call.messages:
        size += MESSAGE_TOKENS + len(message.text.encode("utf-8", "replace")) + MAX_IMAGE_TOKENS * len(message.images)
    return CallCost(size, settings.max_tokens, cost(size, settings.max_tokens))


class ReservationOwner:
    """The process that makes reservations: a token, and beside the cache a file of that name that it keeps locked."""

    def __init__(self, cache: Path | None) -> None:
        self._cache = cache
        self._lock: IO[bytes] | None = None
        self.token: str | None = None
        """None before it is registered, and where a death could not be told: reservations then stay."""

    def register(self) -> list[str] | None:
        """Lock the file of this process, remove those of dead ones, and return the tokens of the living.

        None where the system has no file locks. To be called within a transaction of the cache, so that no two do it
        at once.
        """
        try:
            import fcntl
        except ImportError:
            return None
        if self._cache is None:
            return None
        if self._lock is None:
            token = uuid4().hex
            try:
                self._lock = self._cache.with_name(f"{self._cache.name}.{token}{LOCK_SUFFIX}").open("ab")
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self.close()
                return None
            self.token = token
        living = [self.token or ""]
        for path in self._cache.parent.glob(f"{glob.escape(self._cache.name)}.*{LOCK_SUFFIX}"):
            token = path.name.removeprefix(f"{self._cache.name}.").removesuffix(LOCK_SUFFIX)
            if token != self.token and not _remove_unlocked(path):
                living.append(token)
        return living

    def close(self) -> None:
        """Remove the file of this process."""
        if self._lock is not None:
            with suppress(OSError):
                os.unlink(self._lock.name)
            self._lock.close()
            self._lock = None
        self.token = None


def _remove_unlocked(path: Path) -> bool:
    """Remove the lock file of a process that is gone; return whether it was."""
    import fcntl

    try:
        with path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    except OSError:
        return False
    return True


class CallBudget:
    """Spending under one id, and its limits.

    Of a killed command, reservations of calls that were sent stay reserved, since they may have been charged for;
    those of calls that were not are freed when the budget is next begun.
    """

    def __init__(self, file: CacheFile, name: str, settings: LLMSettings) -> None:
        self._file, self.name = file, name
        self._owner = ReservationOwner(file.path)
        self._max_tokens = settings.budget_tokens
        self._max_cost = None if settings.budget is None else round(settings.budget * NANO)
        self._hits = 0

    def begin(self, *, fresh: bool) -> None:
        """Create the budget, and free what dead commands reserved and did not send; `fresh` resets its usage."""
        with self._file.transaction() as connection:
            living = self._owner.register()
            if living is not None:
                connection.execute(
                    "delete from reservations where sent = 0 and owner is not null "
                    "and owner not in (select value from json_each(?))",
                    (msgspec.json.encode(living).decode(),),
                )
            if fresh:
                connection.execute("delete from budgets where name = ?", (self.name,))
                connection.execute("delete from reservations where budget = ?", (self.name,))
            connection.execute("insert or ignore into budgets (name) values (?)", (self.name,))

    def reserve(self, bound: CallCost) -> int | None:
        """Reserve the upper bound of a call; None where that exceeds the budget."""
        with self._file.transaction() as connection:
            if not self._fits(connection, bound):
                return None
            cursor = connection.execute(
                "insert into reservations (budget, prompt, completion, cost, owner, sent) values (?, ?, ?, ?, ?, ?)",
                (self.name, *bound, self._owner.token, self._owner.token is None),
            )
        return cursor.lastrowid

    def mark_sent(self, ticket: int) -> None:
        """Record that a call is about to be sent: from now on it may be charged for, whatever becomes of this process.

        Raises JudgeStopped where that cannot be stored.
        """
        with self._file.transaction() as connection:
            connection.execute("update reservations set sent = 1 where id = ?", (ticket,))

    def close(self) -> None:
        """Give up the lock that shows that this process lives."""
        self._owner.close()

    def _fits(self, connection: sqlite3.Connection, bound: CallCost) -> bool:
        if self._max_tokens is None and self._max_cost is None:
            return True
        _, _, prompt, completion, cost, _ = _sum_spending(connection, self.name)
        within = self._max_tokens is None or prompt + completion + bound.prompt + bound.completion <= self._max_tokens
        return within and (self._max_cost is None or cost + (bound.cost or 0) <= self._max_cost)

    def settle(
        self,
        ticket: int,
        amount: CallCost,
        reply: tuple[bytes, CachedReply] | None = None,
        batch_call: str | None = None,
    ) -> bool:
        """Replace a reservation by the cost of the call, and store its reply in the same transaction.

        Returns False, and does nothing, for a call of a batch that is settled already.
        """
        with self._file.transaction() as connection:
            if batch_call is not None:
                done = connection.execute("delete from batch_calls where name = ?", (batch_call,))
                if not done.rowcount:
                    return False
            if reply is not None:
                store_reply(connection, *reply)
            connection.execute("delete from reservations where id = ?", (ticket,))
            connection.execute(
                "update budgets set calls = calls + 1, cached = cached + ?, prompt = prompt + ?, "
                "completion = completion + ?, cost = cost + ?, unpriced = unpriced + ? where name = ?",
                (self._hits, *amount[:2], amount.cost or 0, amount.cost is None, self.name),
            )
            self._hits = 0
        return True

    @property
    def owner(self) -> str | None:
        """Token of this process."""
        return self._owner.token

    def list_living(self) -> list[str] | None:
        """List the tokens of the living processes; None where the system cannot tell."""
        with self._file.transaction():
            return self._owner.register()

    def release(self, ticket: int) -> None:
        with self._file.transaction() as connection:
            connection.execute("delete from reservations where id = ?", (ticket,))

    def count_hit(self) -> None:
        self._hits += 1

    def save_hits(self) -> None:
        """Store the cache hits that no settlement stored."""
        if self._hits:
            with self._file.transaction() as connection:
                connection.execute("update budgets set cached = cached + ? where name = ?", (self._hits, self.name))
                self._hits = 0

    def usage(self) -> Usage:
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
        """Describe spending and limits: "US$ 4.9981 of US$ 5 in 1,204 calls"."""
        usage = self.usage()
        parts = []
        if self._max_cost is not None:
            parts.append(f"US$ {usage.cost or 0:.4f} of US$ {self._max_cost / NANO:g}")
        if self._max_tokens is not None:
            parts.append(f"{usage.prompt + usage.completion:,} of {self._max_tokens:,} tokens")
        return f"{' and '.join(parts)} in {usage.calls:,} calls"


def _sum_spending(connection: sqlite3.Connection, name: str) -> tuple[int, int, int, int, int, int]:
    """Return calls, hits, tokens sent and received, cost and unpriced calls, reservations included."""
    row = connection.execute(
        "select calls + n, cached, p.prompt + s, p.completion + r, p.cost + c, unpriced + u from budgets p, "
        "(select count(*) n, coalesce(sum(prompt), 0) s, coalesce(sum(completion), 0) r, coalesce(sum(cost), 0) c, "
        "count(*) - count(cost) u from reservations where budget = ?1) where name = ?1",
        (name,),
    ).fetchone()
    return row or (0, 0, 0, 0, 0, 0)
