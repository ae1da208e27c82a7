"""Batch endpoints of OpenAI and Anthropic: create a batch, look at it, and read its results."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple, Protocol

import msgspec

from ragfault.judges.llm.settings import LLMSettings, ModelEndpoint, redact_secrets
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
from ragfault.judges.llm.transport.reply_cache import ModelCall, ModelMessage
from ragfault.model.errors import JudgeStopped

ANTHROPIC_VERSION = "2023-06-01"
OPENAI_END_STATES = frozenset({"completed", "failed", "expired", "cancelled"})
BATCH_PROVIDERS = ("openai", "anthropic")


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

    async def request(self, method: str, path: str, *, repeat: bool = True, **options: Any) -> bytes:
        """Return the body of a successful reply. Raises JudgeStopped for a refusal, a redirect, or after all attempts.

        Raises ConnectionError where `repeat` is False and the request may have arrived.
        """
        import aiohttp

        attempts, limit = 0, aiohttp.ClientTimeout(total=max(self._settings.timeout, 600.0))
        while True:
            attempts += 1
            # Of the headers with a key, aiohttp keeps only `Authorization` from the host that a redirect names.
            try:
                async with (
                    aiohttp.ClientSession(headers=self._headers, timeout=limit, trust_env=True) as session,
                    session.request(method, self._endpoint.base_url + path, allow_redirects=False, **options) as reply,
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
        raise JudgeStopped(
            "the batch endpoint replied with something that is not JSON. Is it a batch endpoint?"
        ) from None


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
        recent = [batch for batch in batches if datetime.fromisoformat(batch["created_at"]).timestamp() >= created - 60]
        for batch in recent:
            if batch["processing_status"] == "ended" and batch.get("results_url"):
                lines = await self._client.read_lines(f"/messages/batches/{batch['id']}/results")
                first: dict[str, Any] = next(lines, {})
                if str(first.get("custom_id", "")).startswith(label):
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
        input_counts = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        text = "".join(part["text"] for part in message["content"] if part["type"] == "text")
        refusal = "the model refused" if message.get("stop_reason") == "refusal" else ""
        prompt = sum(usage.get(name) or 0 for name in input_counts) if usage else None
        truncated = message.get("stop_reason") == "max_tokens"
        return BatchAnswer(
            line["custom_id"], CompletionAnswer(text, prompt, usage.get("output_tokens"), truncated, refusal)
        )


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
