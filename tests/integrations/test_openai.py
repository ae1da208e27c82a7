"""The client of OpenAI: what it returns is as it was, and its answers reach ragfault with their contexts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

import pytest

from endpoint import Server, serve_model
from installed import skip_without
from ragfault.evaluation.online.background import BackgroundScorer
from ragfault.evaluation.online.scorer import ScoredTrace
from ragfault.model.errors import UsageError
from ragfault.model.records import TokenCounts, Trace

skip_without("openai", reason="the client of OpenAI is not installed (ragfault[llm])")

QUERY = "When does the last ferry leave?"
CONTEXTS = ["The last ferry to the island leaves at 22:40 every evening.", "Dogs travel free."]
ANSWER = "The last ferry leaves at 22:40."
MESSAGES = [{"role": "system", "content": "Be short."}, {"role": "user", "content": QUERY}]
USAGE = {"prompt_tokens": 21, "completion_tokens": 8, "total_tokens": 29}


class ModelHandler(Server):
    """An endpoint that answers questions about ferries, by chat completions and by responses, whole or in pieces."""

    async def _answer(self, line: str, headers: Mapping[str, str], body: bytes, writer: Any) -> bool:
        asked = json.loads(body)
        self.bodies.append(asked)
        if asked["model"] == "no-such-model":
            return await self._error(writer, 404, "The model no-such-model does not exist")
        is_response = line.split()[1].endswith("/responses")
        if not asked.get("stream"):
            await self._send(writer, 200, response() if is_response else completion())
            return True
        events = [f"data: {json.dumps(item)}\n\n" for item in (pieces() if is_response else chunks())]
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        writer.write((head + "".join(events) + "data: [DONE]\n\n").encode())
        await writer.drain()
        return False


def completion() -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": ANSWER}, "finish_reason": "stop"}
    created = {"id": "1", "object": "chat.completion", "created": 1, "model": "small-1", "choices": [choice]}
    return {**created, "usage": USAGE}


def chunks() -> Iterator[dict[str, Any]]:
    created = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "small-1"}
    for word in (ANSWER[:9], ANSWER[9:], None):
        yield {**created, "choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]}
    yield {**created, "choices": [], "usage": USAGE}


def response() -> dict[str, Any]:
    text = {"type": "output_text", "text": ANSWER, "annotations": []}
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
    usage = {
        "input_tokens": 21,
        "output_tokens": 8,
        "total_tokens": 29,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    created = {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "model": "small-1",
        "output": [message],
        "usage": usage,
    }
    return {**created, "parallel_tool_calls": False, "tool_choice": "auto", "tools": [], "status": "completed"}


def pieces() -> Iterator[dict[str, Any]]:
    for place, word in enumerate((ANSWER[:9], ANSWER[9:])):
        yield {
            "type": "response.output_text.delta",
            "delta": word,
            "item_id": "m",
            "output_index": 0,
            "content_index": 0,
            "sequence_number": place,
            "logprobs": [],
        }
    yield {"type": "response.completed", "response": response(), "sequence_number": 3}


@pytest.fixture
def model_server() -> Iterator[Server]:
    with serve_model(kind=ModelHandler) as server:
        yield server


def measure_client(client: Any, *arguments: Any, **options: Any) -> Any:
    # imported by the tests that are run: the client of OpenAI takes a second, in every worker
    from ragfault.integrations import openai

    return openai.measure_client(client, *arguments, **options)


@pytest.fixture
def client(model_server: Server) -> Iterator[Any]:
    from openai import OpenAI

    with OpenAI(base_url=model_server.url, api_key="none", max_retries=0) as created:
        yield created


def assert_complete(trace: Trace) -> None:
    assert (trace.query, trace.answer, trace.model, trace.error) == (QUERY, ANSWER, "small-1", None), version("openai")
    assert trace.tokens == TokenCounts(prompt=21, completion=8)
    assert [chunk.text for chunk in trace.chunks] == CONTEXTS
    assert trace.latency.generation > 0


def test_a_completion_is_scored_with_its_contexts(model_server, client):
    """The response is as it was, nothing of ragfault's is sent, and the answer is scored in the background."""
    result: list[ScoredTrace] = []
    with BackgroundScorer(result.append, judge="lexical", metrics=["groundedness"]) as background:
        created = measure_client(client, background, route="support")
        text = created.chat.completions.create(model="small-1", messages=MESSAGES, contexts=CONTEXTS)
        assert text.choices[0].message.content == ANSWER
    assert_complete(result[0].trace)
    assert (result[0].trace.route, result[0].values) == ("support", {"groundedness": 1.0})
    assert model_server.bodies == [{"model": "small-1", "messages": MESSAGES}]


def test_a_response_is_scored_with_its_contexts(client):
    """So is one of the responses interface; its input may be a text."""
    result: list[Trace] = []
    created = measure_client(client, result.append)
    assert created.responses.create(model="small-1", input=QUERY, contexts=CONTEXTS).output_text == ANSWER
    assert_complete(result[0])


def test_a_stream_comes_through_piece_by_piece(client):
    """The caller gets every piece, and the whole answer is one trace, by either interface."""
    result: list[Trace] = []
    created = measure_client(client, result.append)
    asked = {"model": "small-1", "stream": True, "contexts": CONTEXTS}
    with created.chat.completions.create(messages=MESSAGES, **asked) as stream:
        words = [piece.choices[0].delta.content for piece in stream if piece.choices]
    assert words == [ANSWER[:9], ANSWER[9:], None]
    kinds = [event.type for event in created.responses.create(input=QUERY, **asked)]
    assert kinds == ["response.output_text.delta"] * 2 + ["response.completed"]
    assert len(result) == 2
    for trace in result:
        assert_complete(trace)


def test_a_stream_that_is_left_is_a_trace_of_what_came(client):
    """Closing it early hands on what the caller has seen."""
    result: list[Trace] = []
    created = measure_client(client, result.append)
    stream = created.chat.completions.create(model="small-1", messages=MESSAGES, stream=True, contexts=CONTEXTS)
    next(stream)
    stream.close()
    assert [trace.answer for trace in result] == [ANSWER[:9]]


def test_awaited_calls_are_scored_alike(model_server):
    """The async client, whole and streamed, by both interfaces."""
    from openai import AsyncOpenAI

    result: list[Trace] = []

    async def ask() -> None:
        async with AsyncOpenAI(base_url=model_server.url, api_key="none", max_retries=0) as plain:
            created = measure_client(plain, result.append)
            asked = {"model": "small-1", "contexts": CONTEXTS}
            text = await created.chat.completions.create(messages=MESSAGES, **asked)
            assert text.choices[0].message.content == ANSWER
            stream = await created.chat.completions.create(messages=MESSAGES, stream=True, **asked)
            assert len([piece async for piece in stream]) == 4
            assert (await created.responses.create(input=MESSAGES, **asked)).output_text == ANSWER
            async with await created.responses.create(input=QUERY, stream=True, **asked) as events:
                assert len([event async for event in events]) == 3

    asyncio.run(ask())
    assert len(result) == 4
    for trace in result:
        assert_complete(trace)


def test_an_error_is_raised_and_put_down(client):
    """The caller gets the error of the client, ragfault a trace that failed."""
    from openai import NotFoundError

    result: list[Trace] = []
    created = measure_client(client, result.append)
    with pytest.raises(NotFoundError):
        created.chat.completions.create(model="no-such-model", messages=MESSAGES)
    assert (result[0].query, result[0].answer) == (QUERY, None)
    assert result[0].error.startswith("NotFoundError")


def test_the_original_client_is_unchanged(client):
    """Only the copy is measured."""
    result: list[Trace] = []
    measure_client(client, result.append)
    client.chat.completions.create(model="small-1", messages=MESSAGES)
    assert not result


def test_contexts_are_retrieved_for_calls_without_any(client):
    """A function finds them by the query; one that fails harms nobody."""
    result: list[Trace] = []
    created = measure_client(client, result.append, contexts=lambda query: CONTEXTS if query == QUERY else [])
    created.chat.completions.create(model="small-1", messages=[{"role": "user", "content": "…"}], query=QUERY)
    assert_complete(result[0])
    broken = measure_client(client, result.append, contexts=lambda query: 1 / 0)
    with pytest.warns(RuntimeWarning, match="division by zero"):
        assert broken.chat.completions.create(model="small-1", messages=MESSAGES).choices
    assert result[1].chunks is None


def test_one_response_is_scored_at_once(client):
    """Whatever endpoint it came from, by its text."""
    from ragfault.integrations.openai import score_completion

    text = client.chat.completions.create(model="small-1", messages=MESSAGES)
    outcome = score_completion(text, QUERY, CONTEXTS, judge="lexical", metrics=["groundedness"])
    assert (outcome.values, outcome.trace.model) == ({"groundedness": 1.0}, "small-1")
    assert outcome.trace.tokens == TokenCounts(prompt=21, completion=8)
    with pytest.raises(UsageError, match="holds no text"):
        score_completion(object(), QUERY, CONTEXTS)
