"""A session of asking: an event loop on a thread of its own, with the connections, the cache and the purse."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar

from ragfault.errors import Stopped
from ragfault.judges.llm.budget import Purse
from ragfault.judges.llm.cache_file import File, default_place, named_place
from ragfault.judges.llm.calls import Caller
from ragfault.judges.llm.carrying import Carrier
from ragfault.judges.llm.endpoint import endpoint
from ragfault.judges.llm.endpoint_client import Client
from ragfault.judges.llm.prices import costs
from ragfault.judges.llm.settings import Settings
from ragfault.records import Usage

__all__ = ["Session"]

T = TypeVar("T")

ENDED = "the asking was ended; what was done is kept"


class Session:
    """Asks from any thread, with or without an event loop there, on a loop of its own.

    Raises what `endpoint` and `costs` raise, InputError for a file that cannot be used, and MissingExtra.
    """

    def __init__(self, settings: Settings, name: str, *, afresh: bool) -> None:
        place = endpoint(settings)
        cost = costs(settings)
        cache = named_place(settings.cache)
        bounded = settings.budget is not None or settings.budget_tokens is not None
        self._file = File(cache or (default_place() if bounded else None))
        self._last = Usage()
        self._closed, self._ended = False, False
        self._gate = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name="ragfault asks", daemon=True)
        try:
            self._purse = Purse(self._file, name, settings)
            self._purse.begin(afresh=afresh)
            self._thread.start()

            async def made() -> tuple[Client, Carrier]:
                client = Client(place, settings)
                kept = self._file if cache is not None else None
                return client, Carrier(settings, client, self._purse, cost, kept)

            self._client, self._carrier = self._wait(made())
        except BaseException:
            self._halt()
            raise

    def run(self, work: Callable[[Caller], Coroutine[Any, Any, T]]) -> T:
        """What the work comes to, done on the loop; the calling thread waits.

        Raises Stopped where the session is ended meanwhile.
        """
        with self._gate:
            if self._ended:
                raise Stopped(ENDED)
            future = asyncio.run_coroutine_threadsafe(work(self._carrier), self._loop)
        try:
            return _result(future)
        except CancelledError:
            raise Stopped(ENDED) from None

    @property
    def usage(self) -> Usage:
        """What was spent."""
        if not self._closed:
            with suppress(Stopped):
                self._last = self._purse.usage()
        return self._last

    def close(self) -> None:
        """Wait for what was sent, keep it, and close everything; a second interruption does not wait."""
        if self._closed:
            return
        try:
            self._loop.call_soon_threadsafe(self._carrier.stop, Stopped(ENDED))
            self._wait(self._carrier.drain())
        finally:
            with self._gate:
                self._ended = True
            with suppress(Exception):
                self._wait(self._end())
            with suppress(Stopped):
                self._purse.keep()
            self._last = self.usage
            self._closed = True
            self._halt()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return _result(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _end(self) -> None:
        """Cancel what has not been sent, and close the connections."""
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await self._client.close()
        await asyncio.sleep(0.05 if self._client.secure else 0)

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _halt(self) -> None:
        """End the loop and its thread, and close the file."""
        self._closed = True
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        elif not self._loop.is_closed():
            self._loop.close()
        self._file.close()


def _result(future: Future[T]) -> T:
    """What the work comes to; it is given up where the wait for it is interrupted."""
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise
