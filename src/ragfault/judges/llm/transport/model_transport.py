"""Transport of model calls with cache, budget and retries, run on an event loop in its own thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar

from ragfault.errors import BudgetExceeded, JudgeStopped
from ragfault.judges.llm.settings import LLMSettings, resolve_endpoint
from ragfault.judges.llm.transport.budget import (
    NANO,
    CallBudget,
    CallCost,
    CostFunction,
    bound_cost,
    load_cost_function,
)
from ragfault.judges.llm.transport.calls import CallFailed, ModelCall, ModelCaller, ModelReply
from ragfault.judges.llm.transport.concurrency_limiter import ConcurrencyLimiter, compute_delay
from ragfault.judges.llm.transport.endpoint_client import CallError, CompletionAnswer, EndpointClient
from ragfault.judges.llm.transport.reply_cache import (
    CachedReply,
    CacheFile,
    create_key_builder,
    default_cache_path,
    load_reply,
    resolve_cache_path,
)
from ragfault.records import Usage


class ModelTransport:
    """Gets replies; lives on one event loop."""

    def __init__(
        self,
        settings: LLMSettings,
        client: EndpointClient,
        budget: CallBudget,
        cost: CostFunction,
        cache: CacheFile | None,
    ) -> None:
        self._settings, self._client, self._budget, self._cost, self._cache = (
            settings,
            client,
            budget,
            cost,
            cache,
        )
        self._limiter = ConcurrencyLimiter(settings.concurrency)
        self._build_key = create_key_builder(settings)
        self._pending: dict[bytes, asyncio.Task[ModelReply]] = {}
        self._in_flight: set[asyncio.Task[CompletionAnswer]] = set()
        self._budget_changed = asyncio.Condition()
        self._stopped: JudgeStopped | None = None

    async def ask(self, call: ModelCall) -> ModelReply:
        """The reply to a call, paid for once, however often and by how many it is asked at once."""
        self._raise_if_stopped()
        key = self._build_key(call)
        task = self._pending.get(key)
        first = task is None
        if task is None:
            kept = load_reply(self._cache, key) if self._cache is not None else None
            if kept is not None:
                self._budget.count_hit()
                return ModelReply(kept.text, Usage(cached=1), True, kept.truncated)
            task = asyncio.create_task(self._send_with_retries(key, call))
            self._pending[key] = task
            task.add_done_callback(lambda done: self._discard_task(key, done))
        reply = await asyncio.shield(task)
        if first:
            return reply
        self._budget.count_hit()
        return reply._replace(usage=Usage(cached=1), cached=True)

    def stop(self, error: JudgeStopped) -> None:
        """Send nothing any more; what was sent is waited for."""
        self._stopped = self._stopped or error

    async def drain(self) -> None:
        """Wait for the replies to what was sent, so that they are kept."""
        while self._in_flight:
            await asyncio.wait(set(self._in_flight))
        await asyncio.sleep(0)

    def _raise_if_stopped(self) -> None:
        """Raise what stopped everything, anew for each call."""
        if self._stopped is not None:
            raise type(self._stopped)(str(self._stopped))

    def _discard_task(self, key: bytes, task: asyncio.Task[ModelReply]) -> None:
        self._pending.pop(key, None)
        if not task.cancelled():
            task.exception()

    async def _send_with_retries(self, key: bytes, call: ModelCall) -> ModelReply:
        """The reply from the endpoint, in as many tries as there are."""
        most = bound_cost(call, self._settings, self._cost)
        tried = 0
        while True:
            tried += 1
            began = time.monotonic()
            try:
                async with self._limiter.acquire_slot(retry=tried > 1):
                    self._raise_if_stopped()
                    began = time.monotonic()
                    return await self._send_once(key, call, most)
            except CallError as trouble:
                if trouble.overloaded:
                    self._limiter.decrease(began)
                self._raise_if_final(trouble, tried)
                await asyncio.sleep(compute_delay(tried, trouble.retry_after))

    def _raise_if_final(self, error: CallError, attempts: int) -> None:
        """Raise, where another try is of no use."""
        if error.fatal:
            self.stop(JudgeStopped(error.reason))
            self._raise_if_stopped()
        if not error.retryable:
            raise CallFailed(error.reason)
        if attempts < self._settings.tries:
            return
        if error.unreachable:
            self.stop(
                JudgeStopped(
                    f"{error.reason}, in {attempts} tries. See that it runs, and give the same command again."
                )
            )
            self._raise_if_stopped()
        raise CallFailed(f"{error.reason}, in {attempts} tries")

    async def _send_once(self, key: bytes, call: ModelCall, bound: CallCost) -> ModelReply:
        """Set aside, send, settle."""
        ticket = await self._reserve_budget(bound)
        task = asyncio.create_task(self._client.send(call))
        self._in_flight.add(task)
        try:
            answer = await task
        except CallError as trouble:
            if trouble.charged:
                self._budget.settle(ticket, bound)
            else:
                self._budget.release(ticket)
            raise
        except asyncio.CancelledError:
            with suppress(JudgeStopped):
                self._budget.settle(ticket, bound)
            raise
        else:
            return self._settle_answer(ticket, key, call, bound, answer)
        finally:
            self._in_flight.discard(task)
            async with self._budget_changed:
                self._budget_changed.notify_all()

    def _settle_answer(
        self, ticket: int, key: bytes, call: ModelCall, bound: CallCost, answer: CompletionAnswer
    ) -> ModelReply:
        """Settle an answer, and keep it."""
        self._limiter.increase()
        amount = bound
        if answer.prompt is not None and answer.completion is not None:
            amount = CallCost(answer.prompt, answer.completion, self._cost(answer.prompt, answer.completion))
        if answer.refusal:
            self._budget.settle(ticket, amount)
            raise CallFailed(answer.refusal)
        asked = self._settings
        kept = CachedReply(
            answer.text, answer.truncated, call.kind, asked.provider, asked.model, *amount, int(time.time())
        )
        self._budget.settle(ticket, amount, None if self._cache is None else (key, kept))
        cost = None if amount.cost is None else amount.cost / NANO
        usage = Usage(calls=1, prompt=amount.prompt, completion=amount.completion, cost=cost)
        return ModelReply(answer.text, usage, False, answer.truncated)

    async def _reserve_budget(self, bound: CallCost) -> int:
        """A ticket for what a call can cost; waits for others to settle where that does not fit at once."""
        while True:
            self._raise_if_stopped()
            ticket = self._budget.reserve(bound)
            if ticket is not None:
                return ticket
            if not self._in_flight:
                self.stop(BudgetExceeded(self._exhausted_message(bound)))
                self._raise_if_stopped()
            async with self._budget_changed:
                if self._in_flight:
                    await self._budget_changed.wait()

    def _exhausted_message(self, bound: CallCost) -> str:
        kept = "" if self._cache is None else "; every reply that was paid for is in the cache"
        size = f"{bound.prompt + bound.completion:,} tokens"
        if bound.cost is not None and self._settings.budget is not None:
            size = f"US$ {bound.cost / NANO:.4f}, {size}"
        left = self._budget.describe_spending()
        return (
            f"the budget is spent: {left}, and the next call can come to {size}. Raise it (--budget){kept}."
        )


T = TypeVar("T")

ENDED_MESSAGE = "the asking was ended; what was done is kept"


class LLMSession:
    """Asks from any thread, with or without an event loop there, on a loop of its own.

    Raises what `endpoint` and `costs` raise, InputError for a file that cannot be used, and MissingExtra.
    """

    def __init__(self, settings: LLMSettings, budget_id: str, *, fresh: bool) -> None:
        place = resolve_endpoint(settings)
        cost = load_cost_function(settings)
        cache = resolve_cache_path(settings.cache)
        bounded = settings.budget is not None or settings.budget_tokens is not None
        self._file = CacheFile(cache or (default_cache_path() if bounded else None))
        self._last_usage = Usage()
        self._closed, self._ended = False, False
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="ragfault asks", daemon=True)
        try:
            self._budget = CallBudget(self._file, budget_id, settings)
            self._budget.begin(fresh=fresh)
            self._thread.start()

            async def made() -> tuple[EndpointClient, ModelTransport]:
                client = EndpointClient(place, settings)
                kept = self._file if cache is not None else None
                return client, ModelTransport(settings, client, self._budget, cost, kept)

            self._client, self._transport = self._run_on_loop(made())
        except BaseException:
            self._stop_loop()
            raise

    def run(self, work: Callable[[ModelCaller], Coroutine[Any, Any, T]]) -> T:
        """What the work comes to, done on the loop; the calling thread waits.

        Raises Stopped where the session is ended meanwhile.
        """
        with self._lock:
            if self._ended:
                raise JudgeStopped(ENDED_MESSAGE)
            future = asyncio.run_coroutine_threadsafe(work(self._transport), self._loop)
        try:
            return _await_result(future)
        except CancelledError:
            raise JudgeStopped(ENDED_MESSAGE) from None

    @property
    def usage(self) -> Usage:
        """What was spent."""
        if not self._closed:
            with suppress(JudgeStopped):
                self._last_usage = self._budget.usage()
        return self._last_usage

    def close(self) -> None:
        """Wait for what was sent, keep it, and close everything; a second interruption does not wait."""
        if self._closed:
            return
        try:
            self._loop.call_soon_threadsafe(self._transport.stop, JudgeStopped(ENDED_MESSAGE))
            self._run_on_loop(self._transport.drain())
        finally:
            with self._lock:
                self._ended = True
            with suppress(Exception):
                self._run_on_loop(self._close_client())
            with suppress(JudgeStopped):
                self._budget.save_hits()
            self._last_usage = self.usage
            self._closed = True
            self._stop_loop()

    def _run_on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return _await_result(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _close_client(self) -> None:
        """Cancel what has not been sent, and close the connections."""
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await self._client.close()
        await asyncio.sleep(0.05 if self._client.secure else 0)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _stop_loop(self) -> None:
        """End the loop and its thread, and close the file."""
        self._closed = True
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        elif not self._loop.is_closed():
            self._loop.close()
        self._file.close()


def _await_result(future: Future[T]) -> T:
    """What the work comes to; it is given up where the wait for it is interrupted."""
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise
