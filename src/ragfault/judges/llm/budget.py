"""Budgets: what a call may cost at the most is set aside before it is sent, and settled when it is answered."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

import msgspec

from ragfault.judges.llm.cache import Kept, put
from ragfault.judges.llm.cache_file import File
from ragfault.judges.llm.calls import Call
from ragfault.judges.llm.prices import NANO, Cost
from ragfault.judges.llm.settings import Settings
from ragfault.records import Usage

__all__ = ["Amount", "Purse", "bound"]

MESSAGE, REQUEST = 16, 64
"""Tokens that a service adds to each message, and to a request, at the most."""
IMAGE = 50_000
"""Tokens of an image, at the most, whatever its size and the model."""


class Amount(NamedTuple):
    """What a call costs."""

    prompt: int
    completion: int
    cost: int | None
    """Billionths of a US$; None where no price is known."""


def bound(call: Call, settings: Settings, cost: Cost) -> Amount:
    """What a call can cost at the most: no token is shorter than a byte."""
    size = REQUEST + len(msgspec.json.encode(call.schema)) + len(msgspec.json.encode(settings.parameters))
    for message in call.messages:
        size += MESSAGE + len(message.text.encode("utf-8", "replace")) + IMAGE * len(message.images)
    return Amount(size, settings.max_tokens, cost(size, settings.max_tokens))


class Purse:
    """What is spent under one name, killed commands included, and the bounds that it keeps to.

    All of it stands in the file, so that what was set aside by a command that was killed stays set aside.
    """

    def __init__(self, file: File, name: str, settings: Settings) -> None:
        self._file, self.name = file, name
        self._tokens = settings.budget_tokens
        self._cost = None if settings.budget is None else round(settings.budget * NANO)
        self._hits = 0

    def begin(self, *, afresh: bool) -> None:
        """Make the purse; `afresh` forgets what was spent under its name."""
        with self._file.transaction() as connection:
            if afresh:
                connection.execute("delete from purses where name = ?", (self.name,))
                connection.execute("delete from reservations where purse = ?", (self.name,))
            connection.execute("insert or ignore into purses (name) values (?)", (self.name,))

    def reserve(self, most: Amount) -> int | None:
        """Set aside what a call can cost; None where that would pass the budget."""
        with self._file.transaction() as connection:
            if not self._fits(connection, most):
                return None
            done = connection.execute(
                "insert into reservations (purse, prompt, completion, cost) values (?, ?, ?, ?)",
                (self.name, *most),
            )
        return done.lastrowid

    def _fits(self, connection: sqlite3.Connection, most: Amount) -> bool:
        if self._tokens is None and self._cost is None:
            return True
        _, _, prompt, completion, cost, _ = _sums(connection, self.name)
        within = self._tokens is None or prompt + completion + most.prompt + most.completion <= self._tokens
        return within and (self._cost is None or cost + (most.cost or 0) <= self._cost)

    def settle(self, ticket: int, amount: Amount, reply: tuple[bytes, Kept] | None = None) -> None:
        """Put what a call did cost in the place of what was set aside for it, and keep its reply at the same moment."""
        with self._file.transaction() as connection:
            if reply is not None:
                put(connection, *reply)
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

    def hit(self) -> None:
        """Count a call that the cache answered."""
        self._hits += 1

    def keep(self) -> None:
        """Write down the hits that no payment has carried along."""
        if self._hits:
            with self._file.transaction() as connection:
                connection.execute(
                    "update purses set cached = cached + ? where name = ?", (self._hits, self.name)
                )
                self._hits = 0

    def usage(self) -> Usage:
        """What was spent; what is set aside counts as spent."""
        with self._file.reading() as connection:
            calls, cached, prompt, completion, cost, unpriced = _sums(connection, self.name)
        return Usage(
            calls=calls,
            cached=cached + self._hits,
            prompt=prompt,
            completion=completion,
            cost=None if unpriced else cost / NANO,
        )

    def left(self) -> str:
        """Spent and budget in words: "US$ 4.9981 of US$ 5 in 1,204 calls"."""
        spent = self.usage()
        parts = []
        if self._cost is not None:
            parts.append(f"US$ {spent.cost or 0:.4f} of US$ {self._cost / NANO:g}")
        if self._tokens is not None:
            parts.append(f"{spent.prompt + spent.completion:,} of {self._tokens:,} tokens")
        return f"{' and '.join(parts)} in {spent.calls:,} calls"


def _sums(connection: sqlite3.Connection, name: str) -> tuple[int, int, int, int, int, int]:
    """Calls, hits, tokens sent and received, cost and calls without a price, with what is set aside."""
    row = connection.execute(
        "select calls + n, cached, p.prompt + s, p.completion + r, p.cost + c, unpriced + u from purses p, "
        "(select count(*) n, coalesce(sum(prompt), 0) s, coalesce(sum(completion), 0) r, coalesce(sum(cost), 0) c, "
        "count(*) - count(cost) u from reservations where purse = ?1) where name = ?1",
        (name,),
    ).fetchone()
    return row or (0, 0, 0, 0, 0, 0)
