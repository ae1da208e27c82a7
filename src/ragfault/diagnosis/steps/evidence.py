"""The evidence against a step: rules over what it asked, read and stated, each a sentence about what was seen."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import NamedTuple

from ragfault.diagnosis.steps.moves import Move, Moves
from ragfault.diagnosis.steps.operations import CALL_ERROR
from ragfault.diagnosis.steps.records import FaultyStepKind
from ragfault.diagnosis.steps.short_answers import extract_short_answer, gives_up
from ragfault.judges.checks.lexicon import load_idf
from ragfault.model.records import Layer
from ragfault.text.entities import EntityIndex, extract_entities
from ragfault.text.normalization import split_content_words
from ragfault.text.number_format import format_percent

LOW_COVERAGE, FAR_QUERY, MANY_NOVEL = 0.5, 0.2, 0.3
REPEATED = 0.7
"""Overlap of the words of two queries from which on one repeats the other."""
QUOTE_LENGTH = 60
MAX_ENTITY_CHARS = 4000
"""Entities are taken from so much of a text."""
FAILURES: tuple[FaultyStepKind, ...] = ("call_not_executed", "tool_failed", "step_failed")
"""Faults that are facts: the step itself, or what it called, failed."""
CLOSED_QUESTION = re.compile(r"^\W*(is|are|was|were|do|does|did|has|have|had|can|could|will|which of)\b", re.IGNORECASE)


class MoveEvidence(NamedTuple):
    """One kind of fault with what was seen of it."""

    fault: FaultyStepKind
    text: str


class MoveContext:
    """A move of an agent, and the moves before it."""

    def __init__(self, moves: Moves, number: int) -> None:
        self.moves, self.number, self.move = moves, number, moves.moves[number]
        self.before: tuple[Move, ...] = moves.moves[:number]

    @property
    def is_last(self) -> bool:
        return self.number == len(self.moves.moves) - 1

    @cached_property
    def question(self) -> frozenset[str]:
        return frozenset(split_content_words(self.moves.trace.query))

    @cached_property
    def read(self) -> frozenset[str]:
        """The words of everything that came back before the move."""
        return frozenset().union(*(move.returned_words for move in self.before))

    @cached_property
    def passages(self) -> list[frozenset[str]]:
        """The words of each chunk that was read before the move."""
        return [frozenset(split_content_words(chunk.text)) for move in self.before for chunk in move.chunks]


def explain_move(moves: Moves, number: int) -> list[MoveEvidence]:
    """Explain what speaks against a move, the strongest first; empty where nothing was seen."""
    context = MoveContext(moves, number)
    checks: tuple[Callable[[MoveContext], MoveEvidence | None], ...] = (
        _check_errors,
        _check_repetition,
        _check_results,
        _check_answer,
        _check_statements,
    )
    return [evidence for check in checks if (evidence := check(context)) is not None]


def choose_layer(move: Move, fault: FaultyStepKind) -> Layer:
    """Choose the layer that a faulty move belongs to."""
    if fault in FAILURES:
        return "operation"
    if move.step.kind in ("generate", "cite", "read"):
        return "generation"
    searched = [part for part in (move.step, *move.results) if part.kind in ("retrieve", "rerank", "memory", "rewrite")]
    if searched or move.step.kind == "route":
        return "retrieval"
    return "operation" if move.is_call else "generation"


def measure_share(words: Iterable[str], others: Iterable[str]) -> float:
    """Return the share of words, by rarity, that is among others; 0 without words."""
    table = load_idf()
    words = frozenset(words)
    total = table.sum_rarity(words)
    return table.sum_rarity(words & frozenset(others)) / total if total else 0.0


def measure_overlap(left: frozenset[str], right: frozenset[str]) -> float:
    """Return the Jaccard index of two sets of words, by rarity; 0 where one is empty."""
    if not left or not right:
        return 0.0
    table = load_idf()
    total = table.sum_rarity(left | right)
    return table.sum_rarity(left & right) / total if total else 0.0


def _check_errors(context: MoveContext) -> MoveEvidence | None:
    move = context.move
    if not move.errors:
        return None
    failed = next(part for part in (move.step, *move.results) if part.error)
    reason = " ".join((failed.error or "").split())[:QUOTE_LENGTH]
    is_unanswered = not move.returned.strip() and not move.chunks
    if is_unanswered and move.step.kind == "plan" and CALL_ERROR.search(failed.error or ""):
        return MoveEvidence("call_not_executed", f'its call was not executed: "{reason}"')
    following = None if context.is_last else context.moves.moves[context.number + 1]
    after = "and is the last step" if following is None else f"and step {following.step.id} follows"
    if failed is move.step and failed.kind not in ("tool", None):
        return MoveEvidence("step_failed", f'it failed ("{reason}"), {after}')
    name = "a tool" if failed is move.step or failed.kind is None else f"its {failed.kind} step {failed.id}"
    return MoveEvidence("tool_failed", f'{name} failed ("{reason}"), {after}')


def _check_repetition(context: MoveContext) -> MoveEvidence | None:
    words = context.move.query_words
    earlier = next((move for move in context.before if measure_overlap(move.query_words, words) >= REPEATED), None)
    if earlier is None:
        return None
    seen = {chunk.id for move in context.before for chunk in move.chunks}
    chunks = {chunk.id for chunk in context.move.chunks}
    if chunks and chunks <= seen:
        return MoveEvidence(
            "nothing_new", f"it asks nearly the same as step {earlier.step.id} and returns no new chunk"
        )
    return MoveEvidence("repeated_call", f"it asks nearly the same as step {earlier.step.id}")


def _check_results(context: MoveContext) -> MoveEvidence | None:
    move, question = context.move, context.question
    if not move.query or not move.chunks:
        return None
    unread = move.query_words - question - context.read
    if measure_share(question, move.query_words) < FAR_QUERY and measure_share(move.query_words, unread) > LOW_COVERAGE:
        return MoveEvidence("off_target", "its query shares few words with the question and what was read before")
    best = max(measure_share(question, split_content_words(chunk.text)) for chunk in move.chunks)
    if best < FAR_QUERY:
        share = format_percent(best)
        return MoveEvidence("off_target", f"no chunk that it returned covers more than {share} of the question's words")
    return None


def _check_answer(context: MoveContext) -> MoveEvidence | None:
    move, question = context.move, context.question
    if not context.is_last or move.is_call or not move.text.strip():
        return None
    answer = extract_short_answer(move.text)
    quote = " ".join(answer.split())[:QUOTE_LENGTH]
    if gives_up(answer):
        return MoveEvidence("refused_answer", f'it gives up: "{quote}"')
    if not any(part.returned for part in context.before):
        return MoveEvidence("unfounded_answer", "it answers, and no step before it records what was read")
    words = frozenset(split_content_words(answer))
    own = words - question
    covered = measure_share(own, context.read) if own else 1.0
    if covered < LOW_COVERAGE and not CLOSED_QUESTION.search(context.moves.trace.query):
        return MoveEvidence("unsupported_answer", f'the words of its answer are in nothing that was read: "{quote}"')
    best = max((measure_share(words | question, passage) for passage in context.passages), default=1.0)
    if best < LOW_COVERAGE:
        share = format_percent(best)
        return MoveEvidence(
            "unsupported_answer", f"no chunk that was read covers more than {share} of the words of question and answer"
        )
    return None


def _states_number(amount: str, text: str) -> bool:
    """Return whether a text has the number of an amount, under whatever unit: `24 eur` in `{"amount": 24}`."""
    number = re.match(r"\d[\d.,]*(?= \D|$)", amount)
    return number is not None and re.search(rf"(?<![\d.]){re.escape(number[0])}(?!\d|[.,]\d)", text) is not None


def _check_statements(context: MoveContext) -> MoveEvidence | None:
    if not (context.number or context.is_last):
        return None
    names = extract_entities(context.move.text[:MAX_ENTITY_CHARS])
    if not names:
        return None
    before = [context.moves.trace.query, *(part.returned + "\n" + part.text for part in context.before)]
    known, words = EntityIndex(*before), "\n".join(before).lower()
    novel = sorted(
        name
        for name in names
        if name not in known and name not in words and not (name.isdigit() or _states_number(name, words))
    )
    if len(novel) < MANY_NOVEL * len(names):
        return None
    text = f"it names what neither the query nor a step before it mentions: {', '.join(novel[:3])}"
    return MoveEvidence("unsupported_statement", text)
