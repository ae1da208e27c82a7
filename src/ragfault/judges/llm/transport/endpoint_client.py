"""Client of a chat endpoint, with concurrency that adapts to rate limits."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ragfault.judges.llm.settings import API_KEY_VARIABLE, LLMSettings, ModelEndpoint, redact_secrets
from ragfault.judges.llm.transport.questions import QUESTION_FORMATS, QuestionFormat
from ragfault.judges.llm.transport.reply_cache import ModelCall, ModelMessage
from ragfault.model.errors import require_extra
from ragfault.text.http import parse_retry_after

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI


FIRST_DELAY, MAX_DELAY = 0.5, 30.0
"""Seconds before the second attempt, doubled for each further one, and their limit."""
MAX_REQUESTED_DELAY = 120.0
"""Longest wait that a service can request, in seconds."""


class ConcurrencyLimiter:
    """Limit of concurrent calls: halved on overload, raised by one for each successful round; first in, first out."""

    def __init__(self, max_calls: int) -> None:
        self.max_calls, self.limit, self.busy = max_calls, float(max_calls), 0
        self._decreased_at = -1.0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def acquire_slot(self, *, retry: bool = False) -> AsyncIterator[None]:
        """Wait for a slot and hold it for the block."""
        if self.busy < int(self.limit) and not self._waiting:
            self.busy += 1
        else:
            await self._wait_for_slot(retry)
        try:
            yield
        finally:
            self.busy -= 1
            self._admit()

    async def _wait_for_slot(self, retry: bool) -> None:
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._waiting.appendleft if retry else self._waiting.append)(slot)
        try:
            await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled():
                self.busy -= 1
                self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting and self.busy < int(self.limit):
            slot = self._waiting.popleft()
            if not slot.done():
                self.busy += 1
                slot.set_result(None)

    def decrease(self, began: float) -> None:
        """Decrease the limit by half; a call that began before the last decrease is ignored."""
        if began > self._decreased_at:
            self.limit = max(1.0, self.limit / 2)
            self._decreased_at = time.monotonic()

    def increase(self) -> None:
        """Raise the limit by one for each round of successful calls."""
        self.limit = min(float(self.max_calls), self.limit + 1 / self.limit)
        self._admit()


def compute_delay(attempts: int, requested: float | None) -> float:
    """Return the seconds to wait before a retry: as the service requested, else exponential with jitter."""
    if requested is not None:
        return min(requested, MAX_REQUESTED_DELAY) + random.uniform(0, 0.05)
    return min(FIRST_DELAY * 2.0 ** (attempts - 1), MAX_DELAY) * random.uniform(0.5, 1.0)


WEAKER_FORMAT: dict[str, Literal["object", "none"]] = {"schema": "object", "object": "none"}
OTHER_LIMIT: dict[str, Literal["max_tokens", "max_completion_tokens"]] = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}
FORMAT_WORDS = ("response_format", "json_schema", "json_object", "structured output", "grammar", "guided")
REFUSAL_WORDS = ("support", "unknown", "unrecognized", "unexpected", "extra", "not permitted", "not allowed", "instead")


class EndpointFeatures(NamedTuple):
    """Request features that an endpoint supports."""

    reply_format: Literal["schema", "object", "none"] = "schema"
    """Enforcement of the reply schema."""
    limit_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """Name of the parameter that limits the length of a reply."""
    limit_swapped: bool = False
    """True if the endpoint refused the other name."""
    temperature: bool = True
    """True if the endpoint accepts a temperature."""


def assume_features(settings: LLMSettings) -> EndpointFeatures:
    """Return the features to try first."""
    recent_api = settings.provider in ("openai", "azure") and settings.base_url is None
    return EndpointFeatures(
        reply_format="none"
        if settings.answer_format != "text"
        else "schema"
        if settings.structured == "auto"
        else settings.structured,
        limit_name="max_completion_tokens" if recent_api else "max_tokens",
    )


def downgrade_features(
    sent: EndpointFeatures, status: int, message: str, parameter: str, settings: LLMSettings
) -> EndpointFeatures | None:
    """Return the features to try after a refusal; None where the refusal is about something else.

    >>> settings = LLMSettings(model="m")
    >>> downgrade_features(EndpointFeatures(), 400, "response_format is not supported", "", settings).reply_format
    'object'
    >>> downgrade_features(EndpointFeatures(), 400, "maximum context length is 8192 tokens", "", settings)
    """
    message = f"{parameter} {message}".lower()
    if (
        settings.structured == "auto"
        and sent.reply_format in WEAKER_FORMAT
        and any(word in message for word in FORMAT_WORDS)
    ):
        return sent._replace(reply_format=WEAKER_FORMAT[sent.reply_format])
    if status not in (400, 422) or not (parameter or any(word in message for word in REFUSAL_WORDS)):
        return None
    if sent.limit_name in message and not sent.limit_swapped and any(word in message for word in REFUSAL_WORDS):
        return sent._replace(limit_name=OTHER_LIMIT[sent.limit_name], limit_swapped=True)
    if sent.temperature and settings.temperature is not None and "temperature" in message:
        return sent._replace(temperature=False)
    return None


def build_body(call: ModelCall, features: EndpointFeatures, settings: LLMSettings) -> dict[str, Any]:
    """Build the JSON body of a call."""
    body: dict[str, Any] = {
        "model": settings.model,
        "messages": [_format_message(message) for message in call.messages],
        features.limit_name: settings.max_tokens,
        **settings.parameters,
    }
    if features.temperature and settings.temperature is not None:
        body["temperature"] = settings.temperature
    if features.reply_format == "schema":
        schema = {"name": call.kind, "strict": True, "schema": call.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif features.reply_format == "object":
        body["response_format"] = {"type": "json_object"}
    return body


def _format_message(message: ModelMessage) -> dict[str, Any]:
    if not message.images:
        return {"role": message.role, "content": message.text}
    parts: list[dict[str, Any]] = [{"type": "text", "text": message.text}]
    parts += [{"type": "image_url", "image_url": {"url": address}} for address in message.images]
    return {"role": message.role, "content": parts}


COMPLETIONS_PATH = "/chat/completions"
"""Path of the request; the method of the SDK would inspect every field of the schema for each call."""
OVERLOAD_STATUSES = frozenset({429, 503, 529})
"""Statuses of an overloaded endpoint."""
RETRY_STATUSES = OVERLOAD_STATUSES | {408, 409, 425}
"""Statuses after which the same call may succeed later."""
TIMEOUT_STATUSES = frozenset({408, 504, 524})
"""Statuses of a gateway that timed out: the model may have replied, and be charged for."""
FATAL_STATUSES = frozenset({301, 302, 307, 308, 401, 402, 403, 404, 405})
"""Statuses after which every call fails until the settings or the account change."""
QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""Codes of status 429 where waiting does not help."""


class CompletionAnswer(NamedTuple):
    """Answer of an endpoint."""

    text: str
    prompt: int | None
    """Tokens; None where the endpoint does not report them."""
    completion: int | None
    truncated: bool
    refusal: str
    """Reason of a refusal by the model or a filter; empty if it answered."""


class CallError(Exception):
    """Failed attempt of a call."""

    def __init__(
        self, reason: str, *, charged: bool, retryable: bool = True, fatal: bool = False, unreachable: bool = False
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.charged = charged
        """True if the attempt may have been charged for."""
        self.retryable = retryable
        """True if a retry may succeed."""
        self.fatal = fatal
        """True if every further call will fail, too."""
        self.unreachable = unreachable
        """True if no connection could be made."""
        self.overloaded = False
        """True if the endpoint is overloaded."""
        self.retry_after: float | None = None
        """Seconds to wait, if the endpoint states them."""


SENDING: ContextVar[Callable[[], None]] = ContextVar("SENDING", default=lambda: None)
"""What the request of this task calls before it is sent."""


class EndpointClient:
    """Client of an endpoint; created, used and closed on one event loop."""

    def __init__(self, endpoint: ModelEndpoint, settings: LLMSettings) -> None:
        self._endpoint, self._settings = endpoint, settings
        self._features = assume_features(settings)
        self.secure = endpoint.base_url.startswith("https:")
        """True if the connection uses TLS, which takes longer to close."""
        self._client = _create_client(endpoint, settings)

    @property
    def features(self) -> EndpointFeatures:
        """Return the features that the endpoint has not refused so far."""
        return self._features

    async def send(self, call: ModelCall, on_sending: Callable[[], None] = lambda: None) -> CompletionAnswer:
        """Send a call once; features that the endpoint refuses are left out from then on.

        `on_sending` is called when the request is ready, before the connection is made. Raises CallError.
        """
        SENDING.set(on_sending)
        while True:
            sent = self._features
            try:
                return await self._send_once(call, sent)
            except _RequestRefused as refusal:
                remaining = downgrade_features(sent, refusal.status, refusal.message, refusal.parameter, self._settings)
                if remaining is None:
                    raise refusal.error from None
                if self._features == sent:
                    self._features = remaining

    async def _send_once(self, call: ModelCall, features: EndpointFeatures) -> CompletionAnswer:
        from openai import APIStatusError, OpenAIError

        question_format = QUESTION_FORMATS.get(self._settings.answer_format)
        request = build_body(call, features, self._settings)
        if question_format is not None:
            request = question_format.build(call, self._settings, request)
        path = COMPLETIONS_PATH if question_format is None else question_format.path
        try:
            async with asyncio.timeout(self._settings.timeout):
                payload = await self._client.post(path, cast_to=object, body=request)
        except TimeoutError:
            raise self._timeout_error() from None
        except APIStatusError as error:
            raise self._status_error(error) from None
        except (OpenAIError, OSError) as error:
            raise self._connection_error(error) from None
        except ValueError:
            raise CallError("the endpoint replied with something that is not JSON", charged=True) from None
        return parse_completion(payload) if question_format is None else parse_answer(payload, call, question_format)

    def _timeout_error(self) -> CallError:
        error = CallError(f"no reply within {self._settings.timeout:g} s", charged=True)
        error.overloaded = True
        return error

    def _status_error(self, error: APIStatusError) -> Exception:
        status = error.status_code
        message = redact_secrets(error.message, self._endpoint.key).removeprefix(f"Error code: {status} - ")
        code = str(error.code or "")
        if status in FATAL_STATUSES or (status == 429 and (code in QUOTA_CODES or "insufficient_quota" in message)):
            return CallError(self._fatal_message(status, message), charged=False, retryable=False, fatal=True)
        call_error = CallError(
            f"HTTP {status}: {message}",
            charged=status in TIMEOUT_STATUSES,
            retryable=status in RETRY_STATUSES or status >= 500,
        )
        call_error.overloaded = status in OVERLOAD_STATUSES
        headers = error.response.headers
        call_error.retry_after = parse_retry_after(headers.get("retry-after"), headers.get("retry-after-ms"))
        if status in (400, 422) or status >= 500:
            return _RequestRefused(status, message, str(error.param or ""), call_error)
        return call_error

    def _fatal_message(self, status: int, message: str) -> str:
        where = self._endpoint.host
        if status in (401, 403):
            advice = (
                f"Set {API_KEY_VARIABLE}, or the provider's own variable"
                if self._endpoint.key
                else f"Set {API_KEY_VARIABLE}"
            )
            return f"{where} refuses the key (HTTP {status}: {message}). {advice}, and run the same command again."
        if status in (402, 429):
            advice = "Fill it up, and run the same command again."
            return f"the account at {where} has nothing left (HTTP {status}: {message}). {advice}"
        model = self._settings.model
        if self._settings.answer_format == "decision":
            return (
                f"{where} answers no typed questions for {model} at {self._endpoint.base_url}/systemone "
                f"(HTTP {status}: {message}). Ask a chat endpoint for its log-probabilities with logprobs:MODEL."
            )
        return (
            f"{where} has no model {model}, or the base URL {self._endpoint.base_url} is wrong "
            f"(HTTP {status}: {message}). Name the model as the service does, and the URL up to /v1."
        )

    def _connection_error(self, error: Exception) -> CallError:
        """Classify a connection error by whether the request may have arrived."""
        import aiohttp

        causes = list(_error_chain(error))
        if any(isinstance(cause, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError) for cause in causes):
            message = redact_secrets(str(causes[-1]) or type(causes[-1]).__name__, self._endpoint.key)
            return CallError(f"cannot reach {self._endpoint.host}: {message}", charged=False, unreachable=True)
        if any(isinstance(cause, aiohttp.InvalidURL) for cause in causes):
            return CallError(self._fatal_message(404, "not an address"), charged=False, retryable=False, fatal=True)
        if any(isinstance(cause, TimeoutError) for cause in causes):
            return self._timeout_error()
        message = redact_secrets(str(causes[-1]) or type(causes[-1]).__name__, self._endpoint.key)
        return CallError(f"the connection broke: {message}", charged=True)

    async def close(self) -> None:
        await self._client.close()


class _RequestRefused(Exception):
    """Refused request, perhaps because of one of its features."""

    def __init__(self, status: int, message: str, parameter: str, error: CallError) -> None:
        super().__init__(message)
        self.status, self.message, self.parameter, self.error = status, message, parameter, error


def _create_client(endpoint: ModelEndpoint, settings: LLMSettings) -> AsyncOpenAI:
    """Create the client of the SDK; credentials of the environment go to the provider's own host only."""
    with require_extra("a judge that asks a model", "llm"):
        import aiohttp  # noqa: F401
        from openai import AsyncOpenAI, DefaultAioHttpClient
    client = AsyncOpenAI(
        api_key=endpoint.key.reveal() if endpoint.key else "none",
        base_url=endpoint.base_url,
        max_retries=0,
        timeout=settings.timeout,
        http_client=DefaultAioHttpClient(
            follow_redirects=False, timeout=settings.timeout, event_hooks={"request": [_announce_sending]}
        ),
    )
    if not endpoint.trusted or settings.provider != "openai":
        client.organization = client.project = None
        client._custom_headers = {}
    return client


async def _announce_sending(_: object) -> None:
    """Call what the task that sends a request asked for."""
    SENDING.get()()


def _error_chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__


def parse_completion(payload: Any) -> CompletionAnswer:
    """Return the answer of a completion; raises CallError where there is none."""
    payload = _as_mapping(payload)
    choices = payload.get("choices")
    if not isinstance(choices, list) or not choices:
        raise CallError("the endpoint replied with no choice in it", charged=True)
    choice = _as_mapping(choices[0])
    message, reason = _as_mapping(choice.get("message")), choice.get("finish_reason")
    refusal = ""
    if reason == "content_filter":
        refusal = "the content filter of the service stopped the reply"
    elif message.get("refusal"):
        refusal = f"the model refused: {redact_secrets(str(message['refusal']))}"
    text = message.get("content")
    prompt, completion = _read_usage(_as_mapping(payload.get("usage")))
    return CompletionAnswer(text if isinstance(text, str) else "", prompt, completion, reason == "length", refusal)


def parse_answer(payload: Any, call: ModelCall, question_format: QuestionFormat) -> CompletionAnswer:
    """Return the probability of yes as the text of an answer; as a refusal where the reply has none."""
    answer = question_format.parse(_as_mapping(payload), call)
    text = "" if answer.p is None else repr(answer.p)
    return CompletionAnswer(text, answer.prompt, answer.completion, False, redact_secrets(answer.reason))


def _read_usage(usage: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return tokens sent and received; hidden reasoning is in the total of some services only."""
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not isinstance(prompt, int) or not isinstance(completion, int) or min(prompt, completion) < 0:
        return None, None
    total = usage.get("total_tokens")
    return prompt, max(completion, total - prompt) if isinstance(total, int) else completion


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
