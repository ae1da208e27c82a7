"""Requests under another prompt: the system message, or the message that shows the chunks, is written anew."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from ragfault.apps.replay.requests.chunk_places import RequestRefused
from ragfault.apps.replay.requests.request_template import RequestTemplate
from ragfault.model.records import ConversationTurn

CONTEXT, QUERY = "{context}", "{query}"
"""Where a prompt has the chunks as the request shows them, and the question."""
BLANK = re.compile(r"\{(context|query)\}")


def write_prompt(
    template: RequestTemplate, request: Sequence[ConversationTurn], prompt: str, query: str
) -> tuple[ConversationTurn, ...]:
    """Write a request, rendered from a template, under another prompt.

    A prompt with `{context}` takes the place of the message that shows the chunks, any other that of the first system
    message. Raises RequestRefused where there is no such message, or the question would be lost.

    >>> from ragfault.apps.replay.requests.request_template import read_template
    >>> from ragfault.model.records import Chunk
    >>> request = [ConversationTurn(role="user", text="Context:\\n- At ten.\\n- Daily.\\n\\nQuestion: When?")]
    >>> template = read_template(request, [Chunk(id="a", text="At ten."), Chunk(id="b", text="Daily.")])
    >>> print(write_prompt(template, request, "{query} Read:\\n{context}", "When?")[0].text)
    When? Read:
    - At ten.
    - Daily.
    """
    place = _find_message(template, prompt)
    message, turn = template.messages[place], request[place]
    context = turn.text[len(message.head) : len(turn.text) - len(message.foot)] if message.slots else ""
    values = {"context": context, "query": query}
    text = BLANK.sub(lambda match: values[match[1]], prompt)
    changed = (*request[:place], replace(turn, text=text), *request[place + 1 :])
    if query in turn.text and not any(query in other.text for other in changed):
        raise RequestRefused("the prompt lacks {query}, and the message that it replaces asks the question")
    return changed


def _find_message(template: RequestTemplate, prompt: str) -> int:
    """Find the message that a prompt takes the place of."""
    if CONTEXT in prompt:
        showing = [place for place, message in enumerate(template.messages) if message.slots]
        if len(showing) != 1:
            raise RequestRefused("the chunks are not in one message, so {context} of the prompt has no one place")
        return showing[0]
    first = next((place for place, message in enumerate(template.messages) if message.role == "system"), None)
    if first is None:
        raise RequestRefused("the request has no system message: write the prompt with {context} and {query}")
    if template.messages[first].slots:
        raise RequestRefused("the system message shows the chunks: write {context} in the prompt where they belong")
    return first
