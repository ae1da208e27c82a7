"""One try of a call, over the wire: an answer, or what went wrong and what follows from that."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ragfault.errors import MissingExtra
from ragfault.judges.llm.calls import Call
from ragfault.judges.llm.carrying_pace import wished
from ragfault.judges.llm.endpoint import KEY, Endpoint, scrubbed
from ragfault.judges.llm.endpoint_features import Features, body, lowered, supposed
from ragfault.judges.llm.settings import Settings

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

__all__ = ["Answer", "Client", "Trouble"]

PATH = "/chat/completions"
"""Posted to as it stands: the method that the SDK has for it looks at every field of a schema anew for each call."""
BUSY = frozenset({429, 503, 529})
"""The endpoint is pressed."""
AGAIN = BUSY | {408, 409, 425}
"""The same call may go through later."""
LATE = frozenset({408, 504, 524})
"""A gateway gave up waiting: the model behind it may have replied, and be paid."""
CLOSED = frozenset({301, 302, 307, 308, 401, 402, 403, 404, 405})
"""No call will go through until something is changed."""
EMPTY = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""What is said with 429 where waiting does not help."""


class Answer(NamedTuple):
    """What came back."""

    text: str
    prompt: int | None
    """Tokens; None where the endpoint does not tell."""
    completion: int | None
    cut: bool
    refused: str
    """Why the model or a filter would not answer; empty: it did."""


class Trouble(Exception):
    """A try that brought no answer."""

    def __init__(
        self, reason: str, *, spent: bool, again: bool = True, stop: bool = False, unreached: bool = False
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.spent = spent
        """Whether it may have been charged for."""
        self.again = again
        """Whether another try may help."""
        self.stop = stop
        """Whether no call will go through."""
        self.unreached = unreached
        """Whether nobody was there."""
        self.pressed = False
        """Whether the endpoint has too much to do."""
        self.wait: float | None = None
        """Seconds to wait, where the endpoint says so."""


class Client:
    """The line to an endpoint. Made, used and closed on one event loop."""

    def __init__(self, place: Endpoint, settings: Settings) -> None:
        self._place, self._settings = place, settings
        self._features = supposed(settings)
        self.secure = place.base_url.startswith("https:")
        """Whether closing takes a moment more."""
        self._line = _connected(place, settings)

    async def send(self, call: Call) -> Answer:
        """Try a call once; what the endpoint does not take of a request is left out from then on.

        Raises Trouble.
        """
        while True:
            sent = self._features
            try:
                return await self._try(call, sent)
            except _Refused as refusal:
                left = lowered(sent, refusal.status, refusal.said, refusal.parameter, self._settings)
                if left is None:
                    raise refusal.trouble from None
                if self._features == sent:
                    self._features = left

    async def _try(self, call: Call, features: Features) -> Answer:
        from openai import APIStatusError, OpenAIError

        request = body(call, features, self._settings)
        try:
            async with asyncio.timeout(self._settings.timeout):
                found = await self._line.post(PATH, cast_to=object, body=request)
        except TimeoutError:
            raise self._late() from None
        except APIStatusError as error:
            raise self._status(error) from None
        except (OpenAIError, OSError) as error:
            raise self._broken(error) from None
        except ValueError:
            raise Trouble("the endpoint replied with something that is no JSON", spent=True) from None
        return _read(found)

    def _late(self) -> Trouble:
        made = Trouble(f"no reply within {self._settings.timeout:g} s", spent=True)
        made.pressed = True
        return made

    def _status(self, error: APIStatusError) -> Exception:
        """What an error status means."""
        status = error.status_code
        said = scrubbed(error.message, self._place.key).removeprefix(f"Error code: {status} - ")
        code = str(error.code or "")
        if status in CLOSED or (status == 429 and (code in EMPTY or "insufficient_quota" in said)):
            return Trouble(self._closed(status, said), spent=False, again=False, stop=True)
        made = Trouble(f"HTTP {status}: {said}", spent=status in LATE, again=status in AGAIN or status >= 500)
        made.pressed = status in BUSY
        made.wait = wished({key.lower(): value for key, value in error.response.headers.items()})
        if status in (400, 422) or status >= 500:
            return _Refused(status, said, str(error.param or ""), made)
        return made

    def _closed(self, status: int, said: str) -> str:
        """What to do about an endpoint that lets nobody in."""
        where = self._place.host
        if status in (401, 403):
            held = f"Set {KEY}, or the provider's own variable" if self._place.key else f"Set {KEY}"
            return f"{where} refuses the key (HTTP {status}: {said}). {held}, and run the same command again."
        if status in (402, 429):
            again = "Fill it up, and run the same command again."
            return f"the account at {where} has nothing left (HTTP {status}: {said}). {again}"
        model = self._settings.model
        return (
            f"{where} has no model {model}, or the base URL {self._place.base_url} is wrong (HTTP {status}: {said}). "
            "Name the model as the service does, and the URL up to /v1."
        )

    def _broken(self, error: Exception) -> Trouble:
        """What a line that failed means: whether a request can have arrived."""
        import aiohttp

        causes = list(_causes(error))
        if any(
            isinstance(cause, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
            for cause in causes
        ):
            said = scrubbed(str(causes[-1]) or type(causes[-1]).__name__, self._place.key)
            return Trouble(f"cannot reach {self._place.host}: {said}", spent=False, unreached=True)
        if any(isinstance(cause, aiohttp.InvalidURL) for cause in causes):
            return Trouble(self._closed(404, "not an address"), spent=False, again=False, stop=True)
        if any(isinstance(cause, TimeoutError) for cause in causes):
            return self._late()
        said = scrubbed(str(causes[-1]) or type(causes[-1]).__name__, self._place.key)
        return Trouble(f"the connection broke: {said}", spent=True)

    async def close(self) -> None:
        """Close all connections."""
        await self._line.close()


class _Refused(Exception):
    """A request that was refused, perhaps for one of its features."""

    def __init__(self, status: int, said: str, parameter: str, trouble: Trouble) -> None:
        super().__init__(said)
        self.status, self.said, self.parameter, self.trouble = status, said, parameter, trouble


def _connected(place: Endpoint, settings: Settings) -> AsyncOpenAI:
    """The client of the SDK; nothing of the environment goes to a place that is not the provider's own."""
    try:
        import aiohttp  # noqa: F401 - the transport of the client
        from openai import AsyncOpenAI, DefaultAioHttpClient
    except ImportError:
        raise MissingExtra("a judge that asks a model", "llm") from None
    line = AsyncOpenAI(
        api_key=place.key.reveal() if place.key else "none",
        base_url=place.base_url,
        max_retries=0,
        timeout=settings.timeout,
        http_client=DefaultAioHttpClient(follow_redirects=False, timeout=settings.timeout),
    )
    if not place.ours or settings.provider != "openai":
        line.organization = line.project = None
        line._custom_headers = {}
    return line


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it came from, the origin last."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__


def _read(found: Any) -> Answer:
    """The answer in a completion; raises Trouble where there is none in it."""
    found = _table(found)
    choices = found.get("choices")
    if not isinstance(choices, list) or not choices:
        raise Trouble("the endpoint replied with no choice in it", spent=True)
    choice = _table(choices[0])
    message, reason = _table(choice.get("message")), choice.get("finish_reason")
    refused = ""
    if reason == "content_filter":
        refused = "the content filter of the service stopped the reply"
    elif message.get("refusal"):
        refused = f"the model refused: {scrubbed(str(message['refusal']))}"
    text = message.get("content")
    prompt, completion = _counted(_table(found.get("usage")))
    return Answer(text if isinstance(text, str) else "", prompt, completion, reason == "length", refused)


def _counted(usage: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Tokens sent and received; what a model thought to itself is in the total of some services alone."""
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not isinstance(prompt, int) or not isinstance(completion, int) or min(prompt, completion) < 0:
        return None, None
    total = usage.get("total_tokens")
    return prompt, max(completion, total - prompt) if isinstance(total, int) else completion


def _table(found: Any) -> Mapping[str, Any]:
    """A JSON object; an empty one where something else stands."""
    return found if isinstance(found, dict) else {}
