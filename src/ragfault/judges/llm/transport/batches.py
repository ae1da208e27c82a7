"""Batch endpoints of OpenAI and Anthropic: many calls at half the price, answered within a day.

Replies go to the reply cache, where the judge then finds them. A batch is recorded there under a label before it is
created, and with its id before it is awaited: a killed command finds it again, and pays for no call twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

import msgspec

from ragfault.errors import JudgeStopped, UsageError
from ragfault.judges.llm.settings import LLMSettings, ModelEndpoint, endpoint_location, redact_secrets
from ragfault.judges.llm.transport.budget import CallBudget, CallCost, bound_cost, load_cost_function
from ragfault.judges.llm.transport.endpoint_client import (
    COMPLETIONS_PATH,
    RETRY_STATUSES,
    CallError,
    CompletionAnswer,
    EndpointFeatures,
    build_body,
    compute_delay,
    parse_completion,
)
from ragfault.judges.llm.transport.reply_cache import (
    CachedReply,
    CacheFile,
    CallFailed,
    ModelCall,
    ModelCaller,
    ModelMessage,
    create_key_builder,
    load_reply,
)

MAX_BATCH_CALLS, MAX_BATCH_BYTES = 10_000, 90 * 2**20
"""Limits of one batch, below those of both services."""
MIN_BATCH_CALLS = 20
"""Where the budget allows fewer calls at once, no batch is awaited for them."""
MAX_BATCH_ATTEMPTS = 2
"""Batches that a call is sent in before it is sent alone."""
FIRST_POLL, MAX_POLL = 0.5, 60.0
"""Seconds between two looks at a batch, doubled up to the limit."""
BATCH_PROVIDERS = ("openai", "anthropic")
ANTHROPIC_VERSION = "2023-06-01"
OPENAI_END_STATES = frozenset({"completed", "failed", "expired", "cancelled"})


class BatchState(NamedTuple):
    """State of a batch at its service."""

    status: str
    """In the words of the service."""
    ended: bool
    done: int
    """Calls with a reply."""
    files: tuple[str, ...] = ()
    """Paths of the files with its results."""


class BatchAnswer(NamedTuple):
    """Answer to one call of a batch, or why there is none."""

    name: str
    answer: CompletionAnswer | None
    failure: str = ""


class BatchService(Protocol):
    """Protocol of one provider's batches, by paths below its base URL."""

    async def create(self, label: str, calls: Mapping[str, ModelCall], features: EndpointFeatures) -> str:
        """Create a batch of named calls, and return its id."""
        ...

    async def locate(self, label: str, count: int, created: int) -> str | None:
        """Return the id of a batch that may have been created before its id could be recorded."""
        ...

    async def check(self, batch: str) -> BatchState:
        """Return the state of a batch."""
        ...

    def parse(self, line: Mapping[str, Any]) -> BatchAnswer:
        """Return the answer in a line of the results."""
        ...


class BatchClient:
    """HTTP client of a batch endpoint; transient errors are retried, except those of a creation."""

    def __init__(self, endpoint: ModelEndpoint, settings: LLMSettings) -> None:
        self._endpoint, self._settings = endpoint, settings
        key = endpoint.key.reveal() if endpoint.key else "none"
        self._headers = (
            {"x-api-key": key, "anthropic-version": ANTHROPIC_VERSION}
            if settings.provider == "anthropic"
            else {"Authorization": f"Bearer {key}"}
        )

    async def get(self, path: str) -> Any:
        """Return the JSON of a path."""
        return _decode(await self.request("GET", path))

    async def request(self, method: str, path: str, *, repeat: bool = True, **content: Any) -> bytes:
        """Return the body of a successful reply. Raises JudgeStopped for a refusal or after all attempts.

        Raises ConnectionError where `repeat` is False and the request may have arrived.
        """
        import aiohttp

        attempts, limit = 0, aiohttp.ClientTimeout(total=max(self._settings.timeout, 600.0))
        while True:
            attempts += 1
            try:
                async with (
                    aiohttp.ClientSession(headers=self._headers, timeout=limit, trust_env=True) as session,
                    session.request(method, self._endpoint.base_url + path, **content) as reply,
                ):
                    body, status = await reply.read(), reply.status
                if status < 300:
                    return body
                message = redact_secrets(body.decode("utf-8", "replace"), self._endpoint.key)
                reason, transient = f"HTTP {status}: {message}", status in RETRY_STATUSES or status >= 500
            except (aiohttp.ClientError, TimeoutError) as error:
                reason, transient = redact_secrets(str(error) or type(error).__name__, self._endpoint.key), True
            if transient and not repeat:
                raise ConnectionError(reason)
            if not transient or attempts == self._settings.tries:
                raise JudgeStopped(
                    f"the batch endpoint of {self._endpoint.host} gives no reply ({reason}). Run the same command "
                    "again: batches that were created are found again. Or leave out --batch-api."
                )
            await asyncio.sleep(compute_delay(attempts, None))

    async def read_lines(self, path: str) -> Iterator[Any]:
        """Return the JSON lines of a file."""
        body = await self.request("GET", path)
        return (_decode(line) for line in body.splitlines() if line.strip())


def _decode(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        raise JudgeStopped("the batch endpoint replied with something that is no JSON. Is it one?") from None


class OpenAIBatches:
    """Batches of OpenAI: a file of requests, a batch with the label as metadata, and files of results."""

    def __init__(self, client: BatchClient, settings: LLMSettings) -> None:
        self._client, self._settings = client, settings

    async def create(self, label: str, calls: Mapping[str, ModelCall], features: EndpointFeatures) -> str:
        import aiohttp

        lines = [
            msgspec.json.encode(
                {
                    "custom_id": name,
                    "method": "POST",
                    "url": f"/v1{COMPLETIONS_PATH}",
                    "body": build_body(call, features, self._settings),
                }
            )
            for name, call in calls.items()
        ]
        form = aiohttp.FormData()
        form.add_field("purpose", "batch")
        form.add_field("file", b"\n".join(lines), filename=f"{label}.jsonl", content_type="application/jsonl")
        # A file that is uploaded twice costs nothing, but a form can be sent only once.
        uploaded = _decode(await self._client.request("POST", "/files", repeat=False, data=form))
        request = {
            "input_file_id": uploaded["id"],
            "endpoint": f"/v1{COMPLETIONS_PATH}",
            "completion_window": "24h",
            "metadata": {"ragfault": label},
        }
        return str(_decode(await self._client.request("POST", "/batches", repeat=False, json=request))["id"])

    async def locate(self, label: str, count: int, created: int) -> str | None:  # noqa: ARG002 - the label suffices
        path = "/batches?limit=100"
        while True:
            page = await self._client.get(path)
            for batch in page.get("data", ()):
                if (batch.get("metadata") or {}).get("ragfault") == label:
                    return str(batch["id"])
            # Newest first: none older than the label can bear it.
            if not page.get("has_more") or page["data"][-1].get("created_at", 0) < created - 3600:
                return None
            path = f"/batches?limit=100&after={page['data'][-1]['id']}"

    async def check(self, batch: str) -> BatchState:
        state = await self._client.get(f"/batches/{batch}")
        counts = state.get("request_counts") or {}
        files = [state[name] for name in ("output_file_id", "error_file_id") if state.get(name)]
        return BatchState(
            state["status"],
            state["status"] in OPENAI_END_STATES,
            counts.get("completed", 0) + counts.get("failed", 0),
            tuple(f"/files/{name}/content" for name in files),
        )

    def parse(self, line: Mapping[str, Any]) -> BatchAnswer:
        response, error = line.get("response") or {}, line.get("error") or {}
        if response.get("status_code") != 200:
            message = (response.get("body") or {}).get("error") or error
            return BatchAnswer(line["custom_id"], None, redact_secrets(str(message.get("message") or message)))
        try:
            return BatchAnswer(line["custom_id"], parse_completion(response.get("body")))
        except CallError as failure:
            return BatchAnswer(line["custom_id"], None, failure.reason)


class AnthropicBatches:
    """Message batches of Anthropic, in its own format of messages."""

    def __init__(self, client: BatchClient, settings: LLMSettings) -> None:
        self._client, self._settings = client, settings

    async def create(
        self,
        label: str,  # noqa: ARG002 - it is in the names
        calls: Mapping[str, ModelCall],
        features: EndpointFeatures,  # noqa: ARG002 - its own format has no choice
    ) -> str:
        requests = [
            {"custom_id": name, "params": _build_message_body(call, self._settings)} for name, call in calls.items()
        ]
        created = await self._client.request("POST", "/messages/batches", repeat=False, json={"requests": requests})
        return str(_decode(created)["id"])

    async def locate(self, label: str, count: int, created: int) -> str | None:
        """Return the batch whose results bear the label, or the one in work of the same size since then."""
        batches = (await self._client.get("/messages/batches?limit=100")).get("data", ())
        recent = [batch for batch in batches if _read_time(batch) >= created - 60]
        for batch in recent:
            if batch["processing_status"] == "ended" and batch.get("results_url"):
                lines = await self._client.read_lines(f"/messages/batches/{batch['id']}/results")
                if next(lines, {}).get("custom_id", "").startswith(label):
                    return str(batch["id"])
        in_work = [batch for batch in recent if batch["processing_status"] != "ended"]
        same = [batch["id"] for batch in in_work if sum(batch["request_counts"].values()) == count]
        return str(same[0]) if len(same) == 1 else None

    async def check(self, batch: str) -> BatchState:
        state = await self._client.get(f"/messages/batches/{batch}")
        counts = state.get("request_counts") or {}
        done = sum(number for name, number in counts.items() if name != "processing")
        ended = state["processing_status"] == "ended"
        return BatchState(state["processing_status"], ended, done, (f"/messages/batches/{batch}/results",))

    def parse(self, line: Mapping[str, Any]) -> BatchAnswer:
        result = line["result"]
        if result["type"] != "succeeded":
            error = (result.get("error") or {}).get("error") or {}
            return BatchAnswer(line["custom_id"], None, redact_secrets(str(error.get("message") or result["type"])))
        message, usage = result["message"], result["message"].get("usage") or {}
        sent = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        text = "".join(part["text"] for part in message["content"] if part["type"] == "text")
        refusal = "the model refused" if message.get("stop_reason") == "refusal" else ""
        prompt = sum(usage.get(name) or 0 for name in sent) if usage else None
        truncated = message.get("stop_reason") == "max_tokens"
        return BatchAnswer(
            line["custom_id"], CompletionAnswer(text, prompt, usage.get("output_tokens"), truncated, refusal)
        )


def _read_time(batch: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(batch["created_at"]).timestamp()


def _build_message_body(call: ModelCall, settings: LLMSettings) -> dict[str, Any]:
    """Build the parameters of a call in Anthropic's format."""
    body: dict[str, Any] = {
        "model": settings.model,
        "max_tokens": settings.max_tokens,
        "system": "\n\n".join(message.text for message in call.messages if message.role == "system"),
        "messages": [
            {"role": message.role, "content": _build_content(message)}
            for message in call.messages
            if message.role != "system"
        ],
        **settings.parameters,
    }
    return body if settings.temperature is None else body | {"temperature": settings.temperature}


def _build_content(message: ModelMessage) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"type": "text", "text": message.text}]
    for address in message.images:
        source = {"type": "url", "url": address}
        if address.startswith("data:"):
            kind, _, data = address.removeprefix("data:").partition(";base64,")
            source = {"type": "base64", "media_type": kind, "data": data}
        parts.append({"type": "image", "source": source})
    return parts


class StoredBatch(NamedTuple):
    """Batch in the cache file."""

    label: str
    batch: str | None
    """Id at the service; None where it was not recorded before the command died."""
    created: int
    """Seconds since 1970."""
    count: int
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
        self._service: BatchService = (AnthropicBatches if settings.provider == "anthropic" else OpenAIBatches)(
            self._client, settings
        )
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
            sent = 0
            for group in self._pack(plan()):
                if not probed:
                    # One call alone shows a wrong key or model, and which features the endpoint refuses.
                    with suppress(CallFailed):
                        await caller.ask(next(iter(group.values())))
                    probed = True
                sent += await self._send(group, get_features(), on_notice)
            if not sent and not self._awaited:
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
            batch = stored.batch or await self._service.locate(stored.label, stored.count, stored.created)
            if batch is None:
                self._forget(stored.label)
                continue
            state = await self._wait(batch, stored.count, on_notice)
            replies = 0
            failures: list[str] = []
            for path in state.files:
                for line in await self._client.read_lines(path):
                    answer = self._service.parse(line)
                    if answer.answer is None:
                        failures.append(answer.failure)
                    replies += self._store(answer)
            missing = stored.count - replies
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
