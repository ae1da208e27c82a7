"""Transport of model calls with cache, budget and retries, run on an event loop in its own thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from ragfault.judges.llm.settings import LLMSettings, resolve_endpoint
from ragfault.judges.llm.transport.batches import BatchRunner
from ragfault.judges.llm.transport.budget import (
    NANO,
    CallBudget,
    CallCost,
    CostFunction,
    bound_cost,
    load_cost_function,
)
from ragfault.judges.llm.transport.endpoint_client import (
    CallError,
    CompletionAnswer,
    ConcurrencyLimiter,
    EndpointClient,
    compute_delay,
)
from ragfault.judges.llm.transport.reply_cache import (
    CachedReply,
    CacheFile,
    CallFailed,
    ModelCall,
    ModelCaller,
    ModelReply,
    create_key_builder,
    default_cache_path,
    load_reply,
    resolve_cache_path,
)
from ragfault.model.errors import BudgetExceeded, JudgeStopped, UsageError
from ragfault.model.records import Usage


class ModelTransport:
    """Source of replies on one event loop: cache, budget, limiter and retries."""

    def __init__(
        self,
        settings: LLMSettings,
        client: EndpointClient,
        budget: CallBudget,
        cost: CostFunction,
        cache: CacheFile | None,
    ) -> None:
        self._settings, self._client, self._budget, self._cost, self._cache = (settings, client, budget, cost, cache)
        self._limiter = ConcurrencyLimiter(settings.concurrency)
        self._build_key = create_key_builder(settings)
        self._pending: dict[bytes, asyncio.Task[ModelReply]] = {}
        self._in_flight: set[asyncio.Task[CompletionAnswer]] = set()
        self._budget_changed = asyncio.Condition()
        self._stopped: JudgeStopped | None = None

    async def ask(self, call: ModelCall) -> ModelReply:
        """Return the reply to a call, paid for once however many ask at the same time."""
        self._raise_if_stopped()
        key = self._build_key(call)
        task = self._pending.get(key)
        is_first = task is None
        if task is None:
            cached = load_reply(self._cache, key) if self._cache is not None else None
            if cached is not None:
                self._budget.count_hit()
                return ModelReply(cached.text, Usage(cached=1), True, cached.truncated, cached)
            task = asyncio.create_task(self._send_with_retries(key, call))
            self._pending[key] = task
            task.add_done_callback(lambda done: self._discard_task(key, done))
        reply = await asyncio.shield(task)
        if is_first:
            return reply
        self._budget.count_hit()
        return reply._replace(usage=Usage(cached=1), cached=True)

    def stop(self, error: JudgeStopped) -> None:
        """Send nothing further; calls in flight are awaited."""
        self._stopped = self._stopped or error

    async def drain(self) -> None:
        """Wait for the replies to calls in flight, so that they are stored."""
        while self._in_flight:
            await asyncio.wait(set(self._in_flight))
        await asyncio.sleep(0)

    def _raise_if_stopped(self) -> None:
        """Raise the error that stopped the transport, as a new instance for each call."""
        if self._stopped is not None:
            raise type(self._stopped)(*self._stopped.args)

    def _discard_task(self, key: bytes, task: asyncio.Task[ModelReply]) -> None:
        self._pending.pop(key, None)
        if not task.cancelled():
            task.exception()

    async def _send_with_retries(self, key: bytes, call: ModelCall) -> ModelReply:
        bound = bound_cost(call, self._settings, self._cost)
        attempts = 0
        while True:
            attempts += 1
            began = time.monotonic()
            try:
                async with self._limiter.acquire_slot(retry=attempts > 1):
                    self._raise_if_stopped()
                    began = time.monotonic()
                    return await self._send_once(key, call, bound)
            except CallError as error:
                if error.overloaded:
                    self._limiter.decrease(began)
                self._raise_if_final(error, attempts)
                await asyncio.sleep(compute_delay(attempts, error.retry_after))

    def _raise_if_final(self, error: CallError, attempts: int) -> None:
        """Raise where another attempt is of no use."""
        if error.fatal:
            self.stop(JudgeStopped(error.reason))
            self._raise_if_stopped()
        if not error.retryable:
            raise CallFailed(error.reason)
        if attempts < self._settings.tries:
            return
        if error.unreachable:
            self.stop(
                JudgeStopped(f"{error.reason}, in {attempts} tries. See that it runs, and give the same command again.")
            )
            self._raise_if_stopped()
        raise CallFailed(f"{error.reason}, in {attempts} tries")

    async def _send_once(self, key: bytes, call: ModelCall, bound: CallCost) -> ModelReply:
        ticket = await self._reserve_budget(bound)
        task = asyncio.create_task(self._client.send(call, partial(self._budget.mark_sent, ticket)))
        self._in_flight.add(task)
        began = time.monotonic()
        try:
            answer = await task
        except CallError as error:
            if error.charged:
                self._budget.settle(ticket, bound)
            else:
                self._budget.release(ticket)
            raise
        except asyncio.CancelledError:
            with suppress(JudgeStopped):
                self._budget.settle(ticket, bound)
            raise
        else:
            return self._settle_answer(ticket, key, call, bound, (answer, time.monotonic() - began))
        finally:
            self._in_flight.discard(task)
            async with self._budget_changed:
                self._budget_changed.notify_all()

    def _settle_answer(
        self, ticket: int, key: bytes, call: ModelCall, bound: CallCost, timed: tuple[CompletionAnswer, float]
    ) -> ModelReply:
        self._limiter.increase()
        answer, seconds = timed
        amount = bound
        if answer.prompt is not None and answer.completion is not None:
            amount = CallCost(answer.prompt, answer.completion, self._cost(answer.prompt, answer.completion))
        if answer.refusal:
            self._budget.settle(ticket, amount)
            raise CallFailed(answer.refusal)
        settings = self._settings
        reply = CachedReply(
            *(answer.text, answer.truncated, call.kind, settings.provider, settings.model),
            *amount,
            time=int(time.time()),
            seconds=seconds,
        )
        self._budget.settle(ticket, amount, None if self._cache is None else (key, reply))
        cost = None if amount.cost is None else amount.cost / NANO
        usage = Usage(calls=1, prompt=amount.prompt, completion=amount.completion, cost=cost)
        return ModelReply(answer.text, usage, False, answer.truncated, reply)

    async def _reserve_budget(self, bound: CallCost) -> int:
        """Reserve the bound; wait for other calls to settle where it does not fit at once."""
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
        cache_note = "" if self._cache is None else "; every reply that was paid for is in the cache"
        size = f"{bound.prompt + bound.completion:,} tokens"
        if bound.cost is not None and self._settings.budget is not None:
            size = f"US$ {bound.cost / NANO:.4f}, {size}"
        spending = self._budget.describe_spending()
        next_call = f"the next call can come to {size}. Raise it (--budget){cache_note}."
        return f"the budget is spent: {spending}, and {next_call}"


T = TypeVar("T")

ENDED_MESSAGE = "the session was closed; finished replies are kept"


class LLMSession:
    """Session that asks from any thread, on an event loop in a thread of its own."""

    def __init__(self, settings: LLMSettings, budget_id: str, *, fresh: bool) -> None:
        endpoint = resolve_endpoint(settings)
        self._settings, self._endpoint = settings, endpoint
        cost = load_cost_function(settings)
        cache = resolve_cache_path(settings.cache)
        if settings.batch_api and cache is None:
            raise UsageError("--batch-api stores its replies in the cache: give --cache FILE, not none.")
        bounded = settings.budget is not None or settings.budget_tokens is not None
        # A budget without a reply cache is kept in the usual cache file, so that it survives a kill.
        self._file = CacheFile(cache or ((resolve_cache_path(None) or default_cache_path()) if bounded else None))
        self._last_usage = Usage()
        self._closed, self._ended = False, False
        self._lock = threading.Lock()
        self.admission = asyncio.Semaphore(settings.concurrency)
        """Traces that are judged at once: when a budget ends, those that came first are done, not all half done."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="ragfault-llm", daemon=True)
        self._budget = CallBudget(self._file, budget_id, settings)
        try:
            self._budget.begin(fresh=fresh)
            self._thread.start()

            async def start() -> tuple[EndpointClient, ModelTransport]:
                client = EndpointClient(endpoint, settings)
                cache_file = self._file if cache is not None else None
                return client, ModelTransport(settings, client, self._budget, cost, cache_file)

            self._client, self._transport = self._run_on_loop(start())
        except BaseException:
            self._stop_loop()
            raise

    def run(self, work: Callable[[ModelCaller], Coroutine[Any, Any, T]]) -> T:
        """Return the result of a coroutine on the loop; raises JudgeStopped where the session is closed meanwhile."""
        with self._lock:
            if self._ended:
                raise JudgeStopped(ENDED_MESSAGE)
            future = asyncio.run_coroutine_threadsafe(work(self._transport), self._loop)
        try:
            return _await_result(future)
        except CancelledError:
            raise JudgeStopped(ENDED_MESSAGE) from None

    def fetch_in_batches(self, plan: Callable[[], Iterable[ModelCall]], on_notice: Callable[[str], None]) -> None:
        """Ask what the cache lacks by the batch endpoint; its replies are in the cache then."""
        runner = BatchRunner(self._endpoint, self._settings, self._file, self._budget)
        self.run(lambda caller: runner.run(plan, caller, lambda: self._client.features, on_notice))

    @property
    def usage(self) -> Usage:
        if not self._closed:
            with suppress(JudgeStopped):
                self._last_usage = self._budget.usage()
        return self._last_usage

    def close(self) -> None:
        """Wait for calls in flight (a second interrupt does not), store their replies, and close everything."""
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
        """Cancel unsent calls and close the connections."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
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
        self._closed = True
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        elif not self._loop.is_closed():
            self._loop.close()
        self._budget.close()
        self._file.close()


def _await_result(future: Future[T]) -> T:
    """Return the result of a future; cancel it where the wait is interrupted."""
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise
