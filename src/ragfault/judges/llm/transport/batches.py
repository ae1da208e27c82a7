"""Batch endpoints of OpenAI and Anthropic: many calls at half the price, answered within a day.

Replies go to the reply cache, where the judge then finds them. A batch is recorded there under a label before it is
created, and with its id before it is awaited: a killed command finds it again, and pays for no call twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple
from uuid import uuid4

from ragfault.judges.llm.settings import LLMSettings, ModelEndpoint, endpoint_location
from ragfault.judges.llm.transport.batch_services import (
    BATCH_PROVIDERS,
    AnthropicBatches,
    BatchAnswer,
    BatchClient,
    BatchService,
    BatchState,
    OpenAIBatches,
)
from ragfault.judges.llm.transport.budget import CallBudget, CallCost, bound_cost, load_cost_function
from ragfault.judges.llm.transport.endpoint_client import EndpointFeatures, compute_delay
from ragfault.judges.llm.transport.reply_cache import (
    CachedReply,
    CacheFile,
    CallFailed,
    ModelCall,
    ModelCaller,
    create_key_builder,
    load_reply,
)
from ragfault.model.errors import JudgeStopped, UsageError

MAX_BATCH_CALLS, MAX_BATCH_BYTES = 10_000, 90 * 2**20
"""Limits of one batch, below those of both services."""
MIN_BATCH_CALLS = 20
"""Where the budget allows fewer calls at once, no batch is awaited for them."""
MAX_BATCH_ATTEMPTS = 2
"""Batches that a call is sent in before it is sent alone."""
FIRST_POLL, MAX_POLL = 0.5, 60.0
"""Seconds between two looks at a batch, doubled up to the limit."""


class StoredBatch(NamedTuple):
    """Batch in the cache file."""

    label: str
    batch: str | None
    """Id at the service; None where it was not recorded before the command died."""
    created: int
    """Seconds since 1970."""
    calls: int
    """Calls without a stored result."""


BatchRow = tuple[str, str, bytes, str, int]
"""Name, label, key and kind of a call in a batch, and its reservation."""


class BatchRunner:
    """Batches of one run: what the cache lacks is sent, awaited and stored, within the budget."""

    def __init__(self, endpoint: ModelEndpoint, settings: LLMSettings, file: CacheFile, budget: CallBudget) -> None:
        if settings.provider not in BATCH_PROVIDERS:
            raise UsageError(
                f"--batch-api: batches of {settings.provider} are not known (known: {', '.join(BATCH_PROVIDERS)}). "
                "Leave it out."
            )
        self._settings, self._file, self._budget = settings, file, budget
        self._client = BatchClient(endpoint, settings)
        self._service: BatchService
        if settings.provider == "anthropic":
            self._service = AnthropicBatches(self._client, settings)
        else:
            self._service = OpenAIBatches(self._client, settings)
        self._service_name = f"{settings.provider}/{settings.model} at {endpoint_location(settings)}"
        self._cost = load_cost_function(settings, batch=True)
        self._build_key = create_key_builder(settings)
        self._attempts: dict[bytes, int] = {}
        self._awaited: set[str] = set()
        """Labels of the batches with calls of this run."""

    async def run(
        self,
        plan: Callable[[], Iterable[ModelCall]],
        caller: ModelCaller,
        get_features: Callable[[], EndpointFeatures],
        on_notice: Callable[[str], None],
    ) -> None:
        """Send what has no reply yet, and await it with what killed commands sent; what fails twice is left out."""
        probed = self._settings.provider == "anthropic"
        while True:
            sent_count = 0
            for group in self._pack(plan()):
                if not probed:
                    # One call alone shows a wrong key or model, and which features the endpoint refuses.
                    with suppress(CallFailed):
                        await caller.ask(next(iter(group.values())))
                    probed = True
                sent_count += await self._send(group, get_features(), on_notice)
            if not sent_count and not self._awaited:
                return
            await self._collect(on_notice)

    def _pack(self, calls: Iterable[ModelCall]) -> Iterator[dict[bytes, ModelCall]]:
        """Yield the calls that have no reply and are in no batch, by key, in groups of the size of a batch."""
        group: dict[bytes, ModelCall] = {}
        size = 0
        for call in calls:
            key = self._build_key(call)
            if key in group or self._is_known(key) or self._attempts.get(key, 0) >= MAX_BATCH_ATTEMPTS:
                continue
            group[key] = call
            size += bound_cost(call, self._settings, self._cost).prompt
            if len(group) == MAX_BATCH_CALLS or size >= MAX_BATCH_BYTES:
                yield group
                group, size = {}, 0
        if group:
            yield group

    def _is_known(self, key: bytes) -> bool:
        """Tell whether a call has a reply or is in a batch, which is then awaited."""
        if load_reply(self._file, key) is not None:
            return True
        with self._file.connection() as connection:
            row = connection.execute("select label from batch_calls where key = ?", (key,)).fetchone()
        self._awaited |= set(row or ())
        return row is not None

    async def _send(
        self, group: Mapping[bytes, ModelCall], features: EndpointFeatures, on_notice: Callable[[str], None]
    ) -> int:
        """Send what of a group the budget allows, and return the number of calls."""
        label = uuid4().hex[:24]
        calls: dict[str, ModelCall] = {}
        rows: list[BatchRow] = []
        for key, call in group.items():
            if self._is_known(key):
                continue
            ticket = self._budget.reserve(bound_cost(call, self._settings, self._cost))
            if ticket is None:
                if len(rows) < MIN_BATCH_CALLS:
                    self._release(rows)
                    return 0
                break
            name = f"{label}-{len(rows)}"
            calls[name] = call
            rows.append((name, label, key, call.kind, ticket))
            self._attempts[key] = self._attempts.get(key, 0) + 1
        if not rows:
            return 0
        created = int(time.time())
        with self._file.transaction() as connection:
            connection.execute(
                "insert into batches (label, service, owner, created) values (?, ?, ?, ?)",
                (label, self._service_name, self._budget.owner, created),
            )
            connection.executemany(
                "insert into batch_calls (name, label, key, kind, ticket) values (?, ?, ?, ?, ?)", rows
            )
            connection.executemany("update reservations set sent = 1 where id = ?", [(row[-1],) for row in rows])
        self._awaited.add(label)
        batch = await self._create(label, calls, features, created)
        with self._file.transaction() as connection:
            connection.execute("update batches set batch = ? where label = ?", (batch, label))
        on_notice(f"batch {batch}: {len(rows):,} calls sent")
        return len(rows)

    def _release(self, rows: Iterable[BatchRow]) -> None:
        for row in rows:
            self._budget.release(row[-1])

    async def _create(
        self, label: str, calls: Mapping[str, ModelCall], features: EndpointFeatures, created: int
    ) -> str:
        """Create a batch once, however often the connection breaks."""
        for attempt in range(1, self._settings.tries + 1):
            try:
                return await self._service.create(label, calls, features)
            except JudgeStopped:
                self._forget(label)
                raise
            except ConnectionError as error:
                reason = str(error)
                if (batch := await self._service.locate(label, len(calls), created)) is not None:
                    return batch
                await asyncio.sleep(compute_delay(attempt, None))
        raise JudgeStopped(f"no batch could be created: {reason}. Run the same command again.")

    async def _collect(self, on_notice: Callable[[str], None]) -> None:
        """Await the batches with calls of this run, and store their replies."""
        if not (batches := self._list_batches()):
            # They were collected by another command meanwhile, or are about to be created by one.
            self._awaited.clear()
            await asyncio.sleep(FIRST_POLL)
        for stored in batches:
            batch = stored.batch or await self._service.locate(stored.label, stored.calls, stored.created)
            if batch is None:
                self._forget(stored.label)
                continue
            state = await self._wait(batch, stored.calls, on_notice)
            replies = 0
            failures: list[str] = []
            for path in state.files:
                for line in await self._client.read_lines(path):
                    answer = self._service.parse(line)
                    if answer.answer is None:
                        failures.append(answer.failure)
                    replies += self._store(answer)
            missing = stored.calls - replies
            reason = f" ({failures[0]})" if failures else ""
            note = f"; {missing:,} were not answered{reason}, and are sent again" if missing > 0 else ""
            on_notice(f"batch {batch} {state.status}: {replies:,} replies{note}")
            self._forget(stored.label)

    async def _wait(self, batch: str, count: int, on_notice: Callable[[str], None]) -> BatchState:
        delay, done = FIRST_POLL, -1
        while True:
            state = await self._service.check(batch)
            if state.ended:
                return state
            if state.done != done:
                on_notice(f"batch {batch} {state.status}: {state.done:,} of {count:,} calls")
                done = state.done
            await asyncio.sleep(delay)
            delay = min(MAX_POLL, 2 * delay)

    def _list_batches(self) -> list[StoredBatch]:
        """List the batches of this run that can be awaited, not those that a living command is about to create."""
        living = self._budget.list_living() or []
        with self._file.connection() as connection:
            rows = connection.execute(
                "select label, batch, created, (select count(*) from batch_calls c where c.label = b.label), owner "
                "from batches b order by created"
            ).fetchall()
        return [
            StoredBatch(*row[:4])
            for row in rows
            if row[0] in self._awaited and (row[1] or row[4] == self._budget.owner or row[4] not in living)
        ]

    def _store(self, result: BatchAnswer) -> int:
        """Store a reply and its cost in one transaction; return 0 where another command did, or there is none."""
        if result.answer is None:
            return 0
        with self._file.connection() as connection:
            row = connection.execute(
                "select key, kind, ticket from batch_calls where name = ?", (result.name,)
            ).fetchone()
        if row is None:
            return 0
        key, kind, ticket = row
        answer, settings = result.answer, self._settings
        if answer.prompt is None or answer.completion is None:
            amount = self._read_reservation(ticket)
        else:
            amount = CallCost(answer.prompt, answer.completion, self._cost(answer.prompt, answer.completion))
        reply = CachedReply(
            answer.text, answer.truncated, kind, settings.provider, settings.model, *amount, int(time.time())
        )
        if answer.refusal:
            self._attempts[key] = MAX_BATCH_ATTEMPTS
        stored = None if answer.refusal else (key, reply)
        return self._budget.settle(ticket, amount, stored, batch_call=result.name)

    def _read_reservation(self, ticket: int) -> CallCost:
        with self._file.connection() as connection:
            row = connection.execute(
                "select prompt, completion, cost from reservations where id = ?", (ticket,)
            ).fetchone()
        return CallCost(*row) if row else CallCost(0, 0, None)

    def _forget(self, label: str) -> None:
        """Delete a batch, and release what was reserved for calls that no reply came to."""
        self._awaited.discard(label)
        with self._file.transaction() as connection:
            connection.execute(
                "delete from reservations where id in (select ticket from batch_calls where label = ?)", (label,)
            )
            connection.execute("delete from batch_calls where label = ?", (label,))
            connection.execute("delete from batches where label = ?", (label,))
