"""A model that says what a test wants: the shape of the port, and nothing behind it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

from ragfault.judges.domain.profile import load_profile
from ragfault.judges.llm.prompts.fences import parse_fences
from ragfault.judges.llm.prompts.instructions import PromptSet, load_prompts
from ragfault.judges.llm.settings import LLMSettings
from ragfault.judges.llm.trace_judgment import judge_trace
from ragfault.judges.llm.transport.calls import ModelCall, ModelCaller, ModelReply
from ragfault.records import Chunk, Citation, Trace, Usage, Verdicts

Say = Callable[[ModelCall], str]

ITEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "chunks": ("c", {"reason": "", "relevance": 0.5}),
    "statements": ("t", {"chunk": "", "quote": "", "covered": True}),
    "claims": ("s", {"chunk": "", "quote": "", "reason": "", "support": "supported", "p": 0.9}),
    "used": ("c", {"used": True}),
    "citations": ("k", {"supports": True, "p": 0.9}),
    "facts": ("f", {"present": True, "contradicted": False}),
    "truth": ("s", {"status": "unknown"}),
    "passages": ("p", {"relevance": 0.5}),
}
"""Field → the letter of its ids, and an item of it."""
FREE: dict[str, Any] = {
    "missing": [],
    "aspects": [],
    "relevance": 0.5,
    "refused": False,
    "harm": [],
    "questions": ["Who?", "What?", "When?"],
    "noncommittal": False,
}


def wanted(call: ModelCall) -> dict[str, list[str]]:
    """What a call asks for: field → ids, as the last line says, else all ids in sight."""
    text = call.messages[-1].text
    names = {one.name.split()[0] for message in call.messages for one in parse_fences(message.text)}
    names |= set(re.findall(r"^(k\d+): ", call.messages[1].text, re.MULTILINE))
    asked = {}
    line = text.rsplit("Fields: ", 1)[-1] if "Fields: " in text else text.rsplit(": ", 1)[-1]
    for field, ids in re.findall(r"(\w+)(?: \(of ([^)]*)\))?(?:, |$)", line):
        letter = ITEMS[field][0] if field in ITEMS else ""
        every = sorted(
            (n for n in names if letter and re.fullmatch(letter + r"\d+", n)), key=lambda n: int(n[1:])
        )
        asked[field] = ids.split(", ") if ids else every
    return asked


def right(call: ModelCall, **said: dict[str, Any]) -> dict[str, Any]:
    """A reply with all that was asked for; `said` gives fields of items by id, or whole fields that go by no id."""
    reply: dict[str, Any] = {}
    for field, ids in wanted(call).items():
        if field in FREE:
            reply[field] = said.get(field, FREE[field])
        else:
            known = said.get(field, {})
            reply[field] = [{"id": one, **ITEMS[field][1], **known.get(one, {})} for one in ids]
    return reply


class Scripted:
    """A caller that answers with what a function makes of the call."""

    def __init__(self, say: Say | None = None) -> None:
        self.say = say or (lambda call: json.dumps(right(call)))
        self.calls: list[ModelCall] = []

    async def ask(self, call: ModelCall) -> ModelReply:
        """Answer, and remember the call."""
        self.calls.append(call)
        return ModelReply(self.say(call), Usage(calls=1), cached=False)


class Failing(Scripted):
    """A caller that cannot carry one kind of call."""

    def __init__(self, kind: str, error: Exception) -> None:
        super().__init__()
        self.kind, self.error = kind, error

    async def ask(self, call: ModelCall) -> ModelReply:
        """Fail, or answer."""
        if call.kind == self.kind:
            raise self.error
        return await super().ask(call)


PROMPTS = load_prompts(load_profile("general"))
TRACE = Trace(
    id="7",
    query="When does the ferry leave, and what does it cost?",
    chunks=(
        Chunk(id="x", text="The ferry leaves at noon.\nOn Sundays it leaves at one."),
        Chunk(id="y", text="Buses cost two euros."),
        Chunk(id="z", text="The pier is made of oak."),
    ),
    answer="The ferry leaves at noon [x]. It costs nine euros. The pier is old.",
    citations=(Citation(chunk="x"), Citation(chunk="gone", claim="It costs nine euros.")),
    facts=("It leaves at noon.", "It costs eight euros."),
    reference=("At noon. Eight euros.", "At twelve."),
)


def judge(
    one: Trace = TRACE, caller: ModelCaller | None = None, prompts: PromptSet = PROMPTS, **options: Any
) -> Verdicts:
    """The verdicts on a trace by a scripted model."""
    return asyncio.run(
        judge_trace(one, caller or Scripted(), LLMSettings(model="m", **options), prompts, "llm/1")
    )


def saying(**said: dict[str, Any]) -> Scripted:
    """A model that says this, and what is usual beside."""
    return Scripted(lambda call: json.dumps(right(call, **said)))
