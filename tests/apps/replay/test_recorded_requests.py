"""Laws of recorded requests: chunks are found exactly, and only they change."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest

from ragfault.apps.replay.requests.chunk_places import RequestRefused
from ragfault.apps.replay.requests.request_template import (
    RequestTemplate,
    pool_templates,
    read_template,
    render_request,
)
from ragfault.io.trace_reader import read_traces
from ragfault.model.records import Chunk, ConversationTurn, Trace
from recorded_requests import FRAMINGS, NEW, PASSAGES, RECORDERS, write_messages

LEAST_SHARE = 0.95
"""Share of the recorded requests in which the chunks must be found and changed exactly."""


def read_recorded(tool: str, framing: str, number: int, folder: Path) -> Trace:
    """Return the trace of a question as a tool records it."""
    query, answer, chunks = PASSAGES[number]
    prompt, record = RECORDERS[tool]
    path = folder / "trace.json"
    path.write_text(record(query, answer, chunks, write_messages(prompt, framing, query, chunks)), encoding="utf-8")
    [trace] = read_traces(path)
    return trace


def list_changes(chunks: Sequence[Chunk]) -> list[list[Chunk]]:
    """List what is shown instead of some chunks: fewer, others first, in another order, and a new one."""
    changes = [list(chunks), list(reversed(chunks)), [*chunks[-1:], *chunks[:-1]], [NEW, *chunks[1:]]]
    if len(chunks) > 1:
        changes += [list(chunks[1:]), list(chunks[:-1]), [chunks[-1]], [NEW]]
    return [*changes, [NEW, *chunks]]


def check_changes(template: RequestTemplate, tool: str, framing: str, number: int) -> str:
    """Return why a request cannot be changed, or "" where each change gives what the framework itself would send."""
    query, _, chunks = PASSAGES[number]
    own = {chunk.text: chunk for chunk in template.chunks}
    for shown in list_changes(chunks):
        try:
            rendered = render_request(template, [own.get(chunk.text, chunk) for chunk in shown])
        except RequestRefused as error:
            return str(error)
        expected = write_messages(RECORDERS[tool][0], framing, query, shown)
        assert [turn.text for turn in rendered] == [message["content"] for message in expected]
    return ""


def read_system(tool: str, framing: str, folder: Path) -> list[RequestTemplate]:
    """Return the requests of all questions as one system records them."""
    traces = [read_recorded(tool, framing, number, folder) for number in range(len(PASSAGES))]
    return [read_template(trace.messages or (), trace.chunks or ()) for trace in traces]


@pytest.mark.parametrize("tool", RECORDERS)
def test_the_request_of_every_tool_is_read(tool: str, tmp_path: Path):
    """The messages that the model got are in the trace, in their order and with their roles."""
    query, _, chunks = PASSAGES[0]
    trace = read_recorded(tool, "joined", 0, tmp_path)
    expected = write_messages(RECORDERS[tool][0], "joined", query, chunks)
    assert [(turn.role, turn.text) for turn in trace.messages or ()] == [
        (message["role"], message["content"]) for message in expected
    ]


def test_a_changed_request_is_the_one_that_the_framework_would_send(tmp_path: Path):
    """Chunks left out, moved or put in give the prompt that the framework writes for them, else a refusal.

    Read together with others of its system, at least 95 % of the requests are changed exactly.
    """
    reasons: list[str] = []
    for tool, framing in product(RECORDERS, FRAMINGS):
        templates = read_system(tool, framing, tmp_path)
        for number, template in enumerate(templates):
            check_changes(template, tool, framing, number)
        pooled = enumerate(pool_templates(templates))
        reasons += [check_changes(template, tool, framing, number) for number, template in pooled]
    assert reasons.count("") >= LEAST_SHARE * len(reasons), {reason for reason in reasons if reason}


def ask(text: str) -> list[ConversationTurn]:
    return [ConversationTurn(role="user", text=text)]


CHUNKS = (Chunk(id="a", text="The ferry leaves at noon from the north pier."), Chunk(id="b", text="Dogs travel free."))
REFUSED = {
    "a chunk that was shortened": (ask("The ferry leaves at noon from … Dogs travel free. When?"), CHUNKS),
    "a chunk in other words": (ask("The boat goes at noon. Dogs travel free. When?"), CHUNKS),
    "a chunk that was not shown": (ask("The ferry leaves at noon from the north pier. When?"), CHUNKS),
    "a chunk that stands there twice": (
        ask(f"{CHUNKS[0].text}\n{CHUNKS[1].text}\nAgain: {CHUNKS[0].text}\nWhen?"),
        CHUNKS,
    ),
    "a chunk without text": (ask("Dogs travel free."), (Chunk(id="c"), CHUNKS[1])),
    "no chunk": (ask("When?"), ()),
    "no request": ([], CHUNKS),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_request_without_every_chunk_is_refused(case: str):
    """A request in which not all chunks stand exactly once is refused."""
    messages, chunks = REFUSED[case]
    with pytest.raises(RequestRefused):
        read_template(messages, chunks)


def test_titles_that_the_trace_does_not_record_are_not_guessed():
    """Where the text between chunks cannot be given to one of them, no chunk is moved."""
    text = f"Alpha says\n{CHUNKS[0].text}\nwhile Beta and Gamma add\n{CHUNKS[1].text}\nbut not\nThe end of it.\nWhen?"
    third = Chunk(id="c", text="The end of it.")
    template = read_template(ask(text), (*CHUNKS, third))
    with pytest.raises(RequestRefused):
        render_request(template, CHUNKS[:1])


def test_a_chunk_within_another_keeps_its_place():
    """A short chunk that is a part of a long one keeps its own place."""
    inner = Chunk(id="c", text="leaves at noon")
    template = read_template(ask(f"{CHUNKS[0].text}\n\n{inner.text}\n\nWhen?"), (CHUNKS[0], inner))
    assert render_request(template, (inner,))[0].text == "leaves at noon\n\nWhen?"
    assert render_request(template, CHUNKS[:1])[0].text == f"{CHUNKS[0].text}\n\nWhen?"


def test_the_recorded_request_is_sent_as_it_was():
    """With the same chunks in their order the request is the recorded one, whatever stands between them."""
    messages = ask(f"{CHUNKS[0].text}  \n~~\n\t{CHUNKS[1].text} When?")
    assert render_request(read_template(messages, CHUNKS), CHUNKS) == tuple(messages)


def test_chunks_of_several_messages_keep_their_messages():
    """Where each message shows some chunks, one that is left out makes the others move up."""
    messages = [*ask(f"First: {CHUNKS[0].text}"), *ask(f"Then: {CHUNKS[1].text}\nWhen?")]
    texts = [turn.text for turn in render_request(read_template(messages, CHUNKS), CHUNKS[1:])]
    assert texts == [f"First: {CHUNKS[1].text}", "Then: \nWhen?"]


def test_a_lone_chunk_is_framed_as_the_chunks_of_other_requests():
    """Also where so little stands before the chunks that the frame of the first is among it."""
    chunks = [Chunk(id="a", text="At ten."), Chunk(id="b", text="Daily, at noon.")]

    def ask(count: int) -> list[ConversationTurn]:
        shown = "\n\n".join(f"[{at}] {chunk.text}" for at, chunk in enumerate(chunks[:count], 1))
        return [ConversationTurn(role="user", text=f"Passages:\n{shown}\n\nQuestion: When?")]

    templates = pool_templates([read_template(ask(count), chunks[:count]) for count in (2, 1)])
    assert list(render_request(templates[1], chunks)) == ask(2)
