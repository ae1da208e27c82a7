"""Carrying calls: from the cache, or to the endpoint and back within the budget, each paid for once."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from ragfault.errors import BudgetSpent, Stopped
from ragfault.judges.llm.budget import Amount, Purse, bound
from ragfault.judges.llm.cache import Kept, key_of, take
from ragfault.judges.llm.cache_file import File
from ragfault.judges.llm.calls import Call, CallFailed, Reply
from ragfault.judges.llm.carrying_pace import Pace, delay
from ragfault.judges.llm.endpoint_client import Answer, Client, Trouble
from ragfault.judges.llm.prices import NANO, Cost
from ragfault.judges.llm.settings import Settings
from ragfault.records import Usage

__all__ = ["Carrier"]


class Carrier:
    """Gets replies; lives on one event loop."""

    def __init__(
        self, settings: Settings, client: Client, purse: Purse, cost: Cost, cache: File | None
    ) -> None:
        self._settings, self._client, self._purse, self._cost, self._cache = (
            settings,
            client,
            purse,
            cost,
            cache,
        )
        self._pace = Pace(settings.concurrency)
        self._key = key_of(settings)
        self._under_way: dict[bytes, asyncio.Task[Reply]] = {}
        self._sent: set[asyncio.Task[Answer]] = set()
        self._settled = asyncio.Condition()
        self._stopped: Stopped | None = None

    async def ask(self, call: Call) -> Reply:
        """The reply to a call, paid for once, however often and by how many it is asked at once."""
        self._go()
        key = self._key(call)
        task = self._under_way.get(key)
        first = task is None
        if task is None:
            kept = take(self._cache, key) if self._cache is not None else None
            if kept is not None:
                self._purse.hit()
                return Reply(kept.text, Usage(cached=1), True, kept.cut)
            task = asyncio.create_task(self._paid(key, call))
            self._under_way[key] = task
            task.add_done_callback(lambda done: self._over(key, done))
        reply = await asyncio.shield(task)
        if first:
            return reply
        self._purse.hit()
        return reply._replace(usage=Usage(cached=1), cached=True)

    def stop(self, error: Stopped) -> None:
        """Send nothing any more; what was sent is waited for."""
        self._stopped = self._stopped or error

    async def drain(self) -> None:
        """Wait for the replies to what was sent, so that they are kept."""
        while self._sent:
            await asyncio.wait(set(self._sent))
        await asyncio.sleep(0)

    def _go(self) -> None:
        """Raise what stopped everything, anew for each call."""
        if self._stopped is not None:
            raise type(self._stopped)(str(self._stopped))

    def _over(self, key: bytes, task: asyncio.Task[Reply]) -> None:
        self._under_way.pop(key, None)
        if not task.cancelled():
            task.exception()

    async def _paid(self, key: bytes, call: Call) -> Reply:
        """The reply from the endpoint, in as many tries as there are."""
        most = bound(call, self._settings, self._cost)
        tried = 0
        while True:
            tried += 1
            began = time.monotonic()
            try:
                async with self._pace.turn(again=tried > 1):
                    self._go()
                    began = time.monotonic()
                    return await self._sending(key, call, most)
            except Trouble as trouble:
                if trouble.pressed:
                    self._pace.slower(began)
                self._give_up(trouble, tried)
                await asyncio.sleep(delay(tried, trouble.wait))

    def _give_up(self, trouble: Trouble, tried: int) -> None:
        """Raise, where another try is of no use."""
        if trouble.stop:
            self.stop(Stopped(trouble.reason))
            self._go()
        if not trouble.again:
            raise CallFailed(trouble.reason)
        if tried < self._settings.tries:
            return
        if trouble.unreached:
            self.stop(
                Stopped(
                    f"{trouble.reason}, in {tried} tries. See that it runs, and give the same command again."
                )
            )
            self._go()
        raise CallFailed(f"{trouble.reason}, in {tried} tries")

    async def _sending(self, key: bytes, call: Call, most: Amount) -> Reply:
        """Set aside, send, settle."""
        ticket = await self._reserved(most)
        task = asyncio.create_task(self._client.send(call))
        self._sent.add(task)
        try:
            answer = await task
        except Trouble as trouble:
            if trouble.spent:
                self._purse.settle(ticket, most)
            else:
                self._purse.release(ticket)
            raise
        except asyncio.CancelledError:
            with suppress(Stopped):
                self._purse.settle(ticket, most)
            raise
        else:
            return self._taken(ticket, key, call, most, answer)
        finally:
            self._sent.discard(task)
            async with self._settled:
                self._settled.notify_all()

    def _taken(self, ticket: int, key: bytes, call: Call, most: Amount, answer: Answer) -> Reply:
        """Settle an answer, and keep it."""
        self._pace.faster()
        amount = most
        if answer.prompt is not None and answer.completion is not None:
            amount = Amount(answer.prompt, answer.completion, self._cost(answer.prompt, answer.completion))
        if answer.refused:
            self._purse.settle(ticket, amount)
            raise CallFailed(answer.refused)
        asked = self._settings
        kept = Kept(
            answer.text, answer.cut, call.kind, asked.provider, asked.model, *amount, int(time.time())
        )
        self._purse.settle(ticket, amount, None if self._cache is None else (key, kept))
        cost = None if amount.cost is None else amount.cost / NANO
        usage = Usage(calls=1, prompt=amount.prompt, completion=amount.completion, cost=cost)
        return Reply(answer.text, usage, False, answer.cut)

    async def _reserved(self, most: Amount) -> int:
        """A ticket for what a call can cost; waits for others to settle where that does not fit at once."""
        while True:
            self._go()
            ticket = self._purse.reserve(most)
            if ticket is not None:
                return ticket
            if not self._sent:
                self.stop(BudgetSpent(self._spent(most)))
                self._go()
            async with self._settled:
                if self._sent:
                    await self._settled.wait()

    def _spent(self, most: Amount) -> str:
        kept = "" if self._cache is None else "; every reply that was paid for is in the cache"
        size = f"{most.prompt + most.completion:,} tokens"
        if most.cost is not None and self._settings.budget is not None:
            size = f"US$ {most.cost / NANO:.4f}, {size}"
        left = self._purse.left()
        return (
            f"the budget is spent: {left}, and the next call can come to {size}. Raise it (--budget){kept}."
        )
