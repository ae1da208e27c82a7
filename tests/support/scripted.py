"""Scripted model: an in-memory caller that replies what a test wants."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

from ragfault.judges.domain.profile import load_profile
from ragfault.judges.llm.prompts.instructions import PromptSet, load_prompts
from ragfault.judges.llm.prompts.untrusted_text import MARK_DIGITS, FencedText
from ragfault.judges.llm.settings import LLMSettings
from ragfault.judges.llm.trace_judgment import judge_trace
from ragfault.judges.llm.transport.reply_cache import CachedReply, ModelCall, ModelCaller, ModelReply
from ragfault.model.records import Chunk, Citation, Trace, Usage, Verdicts

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
    "rubrics": ("u", {"reason": "", "value": 1.0}),
}
"""Field → letter of its ids, and a default item."""
FREE: dict[str, Any] = {
    "missing": [],
    "aspects": [],
    "relevance": 0.5,
    "refused": False,
    "harm": [],
    "questions": ["Who?", "What?", "When?"],
    "noncommittal": False,
}


def parse_fences(message: str) -> list[FencedText]:
    """Return the fenced texts of a message, by the mark of its first opening line."""
    first = re.search(rf"^<<([0-9a-f]{{{MARK_DIGITS}}}) ", message, re.MULTILINE)
    if first is None:
        return []
    mark = first.group(1)
    name = r"[a-z][a-z0-9.]*(?: (?:part \d+ of \d+))?"
    fence = re.compile(rf"^<<{mark} ({name})>>\n(.*?)\n<</{mark} \1>>$", re.DOTALL | re.MULTILINE)
    return [FencedText(match.group(1), match.group(2)) for match in fence.finditer(message)]


def list_requested_ids(call: ModelCall) -> dict[str, list[str]]:
    """Return what a call requests: field → ids, as the last line says, else all visible ids."""
    text = call.messages[-1].text
    names = {part.name.split()[0] for message in call.messages for part in parse_fences(message.text)}
    names |= set(re.findall(r"^(k\d+): ", call.messages[1].text, re.MULTILINE))
    requested = {}
    line = text.rsplit("Fields: ", 1)[-1] if "Fields: " in text else text.rsplit(": ", 1)[-1]
    for field, ids in re.findall(r"(\w+)(?: \(of ([^)]*)\))?(?:, |$)", line):
        letter = ITEMS[field][0] if field in ITEMS else ""
        known_ids = sorted(
            (name for name in names if letter and re.fullmatch(letter + r"\d+", name)), key=lambda name: int(name[1:])
        )
        requested[field] = ids.split(", ") if ids else known_ids
    return requested


def complete_reply(call: ModelCall, **fields: dict[str, Any]) -> dict[str, Any]:
    """Return a complete reply to a call; `said` overrides fields of items by id, or whole fields without ids."""
    reply: dict[str, Any] = {}
    for field, ids in list_requested_ids(call).items():
        if field in FREE:
            reply[field] = fields.get(field, FREE[field])
        else:
            overrides = fields.get(field, {})
            reply[field] = [{"id": item_id, **ITEMS[field][1], **overrides.get(item_id, {})} for item_id in ids]
    return reply


class Scripted:
    """Caller that replies with the result of a function of the call."""

    def __init__(self, say: Say | None = None) -> None:
        self.say = say or (lambda call: json.dumps(complete_reply(call)))
        self.calls: list[ModelCall] = []

    async def ask(self, call: ModelCall) -> ModelReply:
        """Return the reply, and record the call."""
        self.calls.append(call)
        text = self.say(call)
        return ModelReply(text, Usage(calls=1), False, False, CachedReply(text, False, call.kind, "", "", 0, 0, 0, 0))


class Failing(Scripted):
    """Caller that fails on one kind of call."""

    def __init__(self, kind: str, error: Exception) -> None:
        super().__init__()
        self.kind, self.error = kind, error

    async def ask(self, call: ModelCall) -> ModelReply:
        """Raise the error, or return a reply."""
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
    trace: Trace = TRACE, caller: ModelCaller | None = None, prompts: PromptSet = PROMPTS, **options: Any
) -> Verdicts:
    """Return the verdicts of a scripted model on a trace."""
    return asyncio.run(judge_trace(trace, caller or Scripted(), LLMSettings(model="m", **options), prompts, "llm/2"))


def make_scripted(**fields: dict[str, Any]) -> Scripted:
    """Return a model that says this beside the default reply."""
    return Scripted(lambda call: json.dumps(complete_reply(call, **fields)))
