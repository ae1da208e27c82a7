"""Demo traces of an agent: a small simulated agent answers the questions of the handbook over several turns.

It looks into its memory, rewrites the query, plans, searches, looks up tariffs with a tool, reads and answers. No model
is called: every decision follows from words, and what a model would vary (wording, near ties) from a seed.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from ragfault.io.agents.recorded_steps import RecordedSteps
from ragfault.io.datasets.demo_handbook import Handbook, load_handbook, write_files
from ragfault.model.records import Chunk, ConversationTurn, Gold, Step, StepKind, Trace
from ragfault.text.normalization import split_content_words
from ragfault.text.sentences import split_sentences

TOP_K, TURNS, FORGOTTEN_SHARE = 3, 3, 0.6
AGENT_NAME = "clerk"
REFERS_BACK = re.compile(r"^(and|is it|then)\b|\b(it|its|that|there|them|same|ones?|then)\b", re.IGNORECASE)
ASKS_PRICE = re.compile(r"\b(cost|costs|pay|price|charge|fee|fine|fare|rate|discount)\b|\bhow much\b", re.IGNORECASE)
OPENINGS = ("", "", "The handbook says: ", "According to the handbook: ", "Here is what applies. ")
THOUGHTS = ("I need the rule for this.", "Let me look this up.", "The handbook should have it.", "First the rule.")


class ToolFailure(Exception):
    """A call of a tool that failed."""


class SimulatedAgent:
    """An agent that answers questions from the handbook; a fault is a subclass that does one step wrongly."""

    def __init__(self, seed: int = 0) -> None:
        self.seed, self.handbook = seed, load_handbook()
        self.random = random.Random(seed)
        self.steps: list[Step] = []
        self.recorded = RecordedSteps()
        """Steps that are taken as recorded instead of done."""

    @cached_property
    def passages(self) -> dict[Chunk, frozenset[str]]:
        """The sections of the handbook with their words; a chunk has the title of its document in its text."""
        sections = {chunk.id: chunk for trace in self.handbook.traces["v1"] for chunk in trace.chunks or ()}
        for name, text in self.handbook.documents.items():
            for match in re.finditer(r"## Section (\d+)\. [^\n]*\n\n[^\n]+", text):
                chunk_id = f"{name.removesuffix('.md')}#{match[1]}"
                sections.setdefault(
                    chunk_id, Chunk(id=chunk_id, text=match[0], document=name, start=match.start(), end=match.end())
                )
        plain_chunks = (replace(chunk, metadata={}, score=None) for chunk in sections.values())
        return {_Hashed.of(chunk): frozenset(split_content_words(chunk.text)) for chunk in plain_chunks}

    @cached_property
    def rarity(self) -> dict[str, float]:
        """Word → 1 / number of sections that hold it."""
        words = [word for section in self.passages.values() for word in section]
        return {word: 1 / words.count(word) for word in set(words)}

    def answer_all(self) -> list[Trace]:
        """Answer every question of the handbook, in conversations of up to three turns on one route."""
        return [trace for questions in list_conversations(self.handbook) for trace in self.hold_conversation(questions)]

    def hold_conversation(self, questions: Sequence[Trace]) -> Iterator[Trace]:
        """Answer the questions of one conversation."""
        history: list[ConversationTurn] = []
        for turn, question in enumerate(questions, 1):
            self.random = random.Random(f"{self.seed} {question.id}")
            trace = self.answer_question(replace(question, history=tuple(history), turn=turn))
            yield trace
            history += [
                ConversationTurn(role="user", text=question.query),
                ConversationTurn(role="assistant", text=trace.answer or ""),
            ]

    def answer_again(self, question: Trace, recorded: RecordedSteps) -> Trace:
        """Answer a question that was answered before, with some steps taken as recorded."""
        self.random, self.recorded = random.Random(f"{self.seed} {question.id}"), recorded
        try:
            return self.answer_question(question)
        finally:
            self.recorded = RecordedSteps()

    def read_recorded_calls(self) -> list[tuple[str, str]]:
        """Read the calls of recorded plans; none where the agent plans itself."""
        plans = self.recorded.outputs if self.recorded.kind == "plan" else []
        calls = [re.search(r"(\w+)\((\".*\")\)$", str(plan)) for plan in plans]
        return [(call[1], json.loads(call[2])) for call in calls if call is not None]

    def answer_question(self, question: Trace) -> Trace:
        """Take every step from the query to the answer, and return the trace of it."""
        self.steps, chunks, texts = [], dict[str, Chunk](), list[str]()
        remembered = self.record("memory", "search_memory", question.query, lambda: self.recall(question))
        query = self.record("rewrite", "rewrite", question.query, lambda: self.rewrite(question, remembered or ""))
        for tool, arguments in self.read_recorded_calls() or self.plan(question, query or question.query):
            self.call(tool, arguments, chunks, texts, question)
        noted = self.record(
            "read", "read", None, lambda: self.read(question, query or "", list(chunks.values()), texts)
        )
        answer = self.record("generate", "answer", None, lambda: self.write(question, noted or "")) or ""
        gold = {chunk.id: 1.0 for chunk in self.passages if any(_holds(chunk, span) for span in _list_spans(question))}
        return replace(
            question,
            chunks=tuple(chunks.values()),
            answer=answer,
            steps=tuple(self.steps),
            model="simulated",
            gold=question.gold and Gold(chunks=gold, spans=question.gold.spans),
        )

    def call(self, tool: str, arguments: str, chunks: dict[str, Chunk], texts: list[str], question: Trace) -> None:
        """Plan one call of a tool and make it; what it returns is added to chunks or texts."""
        thought = self.random.choice(THOUGHTS)
        plan = self.add_step("plan", None, output=f"{thought} {tool}({json.dumps(arguments)})")
        if tool != "search":
            output = self.record("tool", tool, arguments, lambda: self.use_tool(tool, arguments, question), plan.id)
            texts += [output] if output else []
            return
        try:
            results = self.recorded.take("retrieve", lambda: self.search(arguments, question))
        except ToolFailure as failure:
            self.add_step("retrieve", "search", input=arguments, error=str(failure), parent=plan.id)
            return
        chunks.update((chunk.id, chunk) for chunk in results)
        ids = tuple(chunk.id for chunk in results)
        self.add_step("retrieve", "search", input=arguments, chunks=ids, parent=plan.id)

    def record(self, kind: StepKind, name: str, query: str | None, act: Any, parent: str | None = None) -> str | None:
        """Take a step and record it, its failure included."""
        try:
            output: str | None = self.recorded.take(kind, act)
        except ToolFailure as failure:
            self.add_step(kind, name, input=query, error=str(failure), parent=parent)
            return None
        self.add_step(kind, name, input=query, output=output, parent=parent)
        return output

    def add_step(self, kind: StepKind, name: str | None, **fields: Any) -> Step:
        """Record a step."""
        start = self.steps[-1].start + self.steps[-1].duration if self.steps else 0.0  # type: ignore[operator]
        step = Step(
            id=f"{len(self.steps) + 1}",
            kind=kind,
            name=name,
            agent=AGENT_NAME,
            start=start,
            duration=round(self.random.uniform(20, 400), 1),
            **fields,
        )
        self.steps.append(step)
        return step

    def recall(self, question: Trace) -> str:
        """Recall what the conversation is about."""
        earlier_queries = [turn.text for turn in question.history or () if turn.role == "user"]
        return f"Asked before: {earlier_queries[-1]}" if earlier_queries else "Nothing asked before."

    def rewrite(self, question: Trace, remembered: str) -> str:
        """Rewrite a follow-up question so that it can be searched by itself."""
        before = remembered.removeprefix("Asked before: ")
        refers = bool(question.history) and before != remembered and bool(REFERS_BACK.search(question.query))
        return f"{before} {question.query}" if refers else question.query

    def plan(self, question: Trace, query: str) -> list[tuple[str, str]]:
        """Choose the calls: a search for each part of the query, and the tariff where it asks for a price."""
        parts = re.split(r",? and (?=what|when|where|who|how|which|by|from|may|is)", query)
        calls = [("search", query), *(("search", part) for part in parts[1:] if len(part.split()) > 3)]
        return [*calls, *([("tariff", query)] if ASKS_PRICE.search(question.query) else [])]

    def search(self, query: str, question: Trace) -> list[Chunk]:  # noqa: ARG002 - faults read it
        """Return the sections that share most with the query, near ties by chance."""
        words = frozenset(split_content_words(query))
        return sorted(self.passages, key=lambda chunk: -self.rate(words, self.passages[chunk]))[:TOP_K]

    def rate(self, words: frozenset[str], chunk_words: frozenset[str]) -> float:
        """Return how much rare words two texts share, with a little chance."""
        common = words & chunk_words
        return sum(self.rarity.get(word, 0.0) for word in sorted(common)) * self.random.uniform(0.95, 1.05)

    def use_tool(self, tool: str, arguments: str, question: Trace) -> str:  # noqa: ARG002 - faults read it
        """Return the sentence with a price that shares most with the query."""
        return self.choose_sentences(arguments, [s for s in self.list_sentences(self.passages) if "£" in s], 1)

    def read(self, question: Trace, query: str, chunks: Sequence[Chunk], texts: Sequence[str]) -> str:  # noqa: ARG002
        """Note the sentences that share most with the query, in what was returned."""
        count = 3 if self.random.random() < 0.8 else 2
        return self.choose_sentences(query, [*self.list_sentences(chunks), *texts], count)

    def write(self, question: Trace, noted: str) -> str:  # noqa: ARG002 - faults read it
        """Answer with what was noted."""
        return self.random.choice(OPENINGS) + noted if noted else "The handbook does not say."

    def list_sentences(self, chunks: Any) -> list[str]:
        """Return the sentences of passages, without their titles."""
        bodies = [chunk.text.split("\n\n", 1)[-1] for chunk in chunks]
        return [body[start:end].strip() for body in bodies for start, end in split_sentences(body)]

    def choose_sentences(self, query: str, sentences: Sequence[str], count: int) -> str:
        """Return the sentences that share most with a query, in their order."""
        words = frozenset(split_content_words(query))
        unique = list(dict.fromkeys(sentences))
        ranked = sorted(unique, key=lambda text: -self.rate(words, frozenset(split_content_words(text))))[:count]
        return " ".join(text for text in unique if text in ranked)


class _Hashed(Chunk, frozen=True):
    """A chunk that is a key by its id."""

    def __hash__(self) -> int:
        return hash(self.id)

    @staticmethod
    def of(chunk: Chunk) -> _Hashed:
        return _Hashed(**{name: getattr(chunk, name) for name in chunk.__struct_fields__})


def _list_spans(question: Trace) -> Sequence[Any]:
    return question.gold.spans if question.gold else ()


def _holds(chunk: Chunk, span: Any) -> bool:
    overlap = min(chunk.end or 0, span.end) - max(chunk.start or 0, span.start)
    return bool(chunk.document == span.document and overlap > 0)


def list_conversations(handbook: Handbook) -> list[list[Trace]]:
    """Divide the questions of the handbook into conversations of up to three turns on one route."""
    conversations: list[list[Trace]] = []
    for route, group in groupby(handbook.questions, key=lambda question: question.route):
        waiting: list[list[Trace]] = []
        for question in group:
            follows = bool(waiting) and (
                waiting[-1][-1].conversation == question.conversation
                if question.conversation
                else len(waiting[-1]) < TURNS and not waiting[-1][-1].conversation
            )
            if follows:
                waiting[-1].append(question)
            else:
                waiting.append([question])
        conversations += [
            [replace(question, conversation=f"{route}-{number}") for question in item]
            for number, item in enumerate(waiting, 1)
        ]
    return conversations


class ForgetfulAgent(SimulatedAgent):
    """The agent of the worse release: its rewrite of a question leaves out what makes it one that can be searched."""

    def rewrite(self, question: Trace, remembered: str) -> str:
        """Rewrite three of five questions to their first words."""
        words = super().rewrite(question, remembered).split()
        is_hit = random.Random(question.id).random() < FORGOTTEN_SHARE
        return " ".join(["What applies to", *words[:2]]) if is_hit else " ".join(words)


def answer_like_version_2(question: Trace, recorded: RecordedSteps) -> Trace:
    """Answer a question like version 2 of the demo, with some steps taken as recorded."""
    return _build_version_2().answer_again(question, recorded)


@cache
def _build_version_2() -> ForgetfulAgent:
    return ForgetfulAgent(2)


def write_agent_traces(folder: str | PathLike[str], *, force: bool = False) -> list[Path]:
    """Write the traces of two versions of the simulated agent into a folder, and return their paths.

    Version 2 is the worse release: its rewrites lose what was asked. Raises OutputError where a file exists and `force`
    is not set, or where one cannot be written.
    """
    root = Path(folder)
    bodies = {
        root / f"agent-{version}.jsonl": b"".join(msgspec.json.encode(trace) + b"\n" for trace in agent.answer_all())
        for version, agent in (("v1", SimulatedAgent(1)), ("v2", ForgetfulAgent(2)))
    }
    write_files(bodies, force=force)
    return list(bodies)
