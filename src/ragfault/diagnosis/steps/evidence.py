"""The evidence on a suspected step: rules over its features, each a sentence about what was seen."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from ragfault.diagnosis.steps.features import CLOSED_QUESTION, FEATURE_NAMES, REPEATED, Array, extract_short_answer
from ragfault.diagnosis.steps.moves import Move, Moves
from ragfault.diagnosis.steps.operations import CALL_ERROR
from ragfault.diagnosis.steps.records import FaultyStepKind
from ragfault.model.records import Layer
from ragfault.text.entities import EntityIndex, extract_entities
from ragfault.text.number_format import format_percent

LOW_COVERAGE, FAR_QUERY, MANY_NOVEL = 0.5, 0.2, 0.3
QUOTE_LENGTH = 60


class MoveEvidence(NamedTuple):
    """One kind of fault with what was seen of it."""

    fault: FaultyStepKind
    text: str


Values = dict[str, float]


def explain_move(moves: Moves, number: int, features: Array) -> list[MoveEvidence]:
    """Explain what speaks against a move, the strongest first; empty where nothing was seen."""
    values = dict(zip(FEATURE_NAMES, features[number].tolist(), strict=True))
    move = moves.moves[number]
    checks: tuple[Callable[[Moves, int, Move, Values], MoveEvidence | None], ...] = (
        _check_errors,
        _check_repetition,
        _check_results,
        _check_answer,
        _check_statements,
    )
    return [evidence for check in checks if (evidence := check(moves, number, move, values)) is not None]


def choose_layer(move: Move, fault: FaultyStepKind) -> Layer:
    """Choose the layer that a faulty move belongs to."""
    if fault in ("call_not_executed", "tool_failed", "step_failed"):
        return "operation"
    if move.step.kind in ("generate", "cite", "read"):
        return "generation"
    searched = [part for part in (move.step, *move.results) if part.kind in ("retrieve", "rerank", "memory", "rewrite")]
    if searched or move.step.kind == "route":
        return "retrieval"
    return "operation" if move.is_call else "generation"


def _check_errors(moves: Moves, number: int, move: Move, values: Values) -> MoveEvidence | None:
    if not values["error"]:
        return None
    failed = next(part for part in (move.step, *move.results) if part.error)
    reason = " ".join((failed.error or "").split())[:QUOTE_LENGTH]
    if values["unexecuted"] and move.step.kind == "plan" and CALL_ERROR.search(failed.error or ""):
        return MoveEvidence("call_not_executed", f'its call was not executed: "{reason}"')
    following = moves.moves[number + 1] if number + 1 < len(moves.moves) else None
    after = "and is the last step" if following is None else f"and step {following.step.id} follows"
    if failed is move.step and failed.kind not in ("tool", None):
        return MoveEvidence("step_failed", f'it failed ("{reason}"), {after}')
    name = "a tool" if failed is move.step or failed.kind is None else f"its {failed.kind} step {failed.id}"
    return MoveEvidence("tool_failed", f'{name} failed ("{reason}"), {after}')


def _check_repetition(moves: Moves, number: int, move: Move, values: Values) -> MoveEvidence | None:
    if values["query_repeat"] < REPEATED or not values["same_query_before"]:
        return None
    earlier = [
        other.step.id
        for other in moves.moves[:number]
        if other.query_words and len(other.query_words & move.query_words) >= REPEATED * len(other.query_words)
    ]
    before = f"step {earlier[0]}" if earlier else "an earlier step"
    if values["chunks"] and values["new_chunks"] == 0:
        return MoveEvidence("nothing_new", f"it asks nearly the same as {before} and returns no new chunk")
    return MoveEvidence("repeated_call", f"it asks nearly the same as {before}")


def _check_results(moves: Moves, number: int, move: Move, values: Values) -> MoveEvidence | None:  # noqa: ARG001
    if not move.query or not values["chunks"]:
        return None
    if values["query_question"] < FAR_QUERY and values["query_new"] > LOW_COVERAGE:
        return MoveEvidence("off_target", "its query shares few words with the question and what was read before")
    if values["returned_question"] < FAR_QUERY:
        share = format_percent(values["returned_question"])
        return MoveEvidence("off_target", f"no chunk that it returned covers more than {share} of the question's words")
    return None


def _check_answer(moves: Moves, number: int, move: Move, values: Values) -> MoveEvidence | None:
    if not values["is_last"] or move.is_call or not move.text.strip():
        return None
    answer = " ".join(extract_short_answer(move.text).split())[:QUOTE_LENGTH]
    if values["answer_refuses"]:
        return MoveEvidence("refused_answer", f'it gives up: "{answer}"')
    if not any(part.returned for part in moves.moves[:number]):
        return MoveEvidence("unfounded_answer", "it answers, and no step before it records what was read")
    if values["answer_found"] < LOW_COVERAGE and not CLOSED_QUESTION.search(moves.trace.query):
        return MoveEvidence("unsupported_answer", f'the words of its answer are in nothing that was read: "{answer}"')
    if values["answer_read"] and values["answer_support"] < LOW_COVERAGE:
        share = format_percent(values["answer_support"])
        return MoveEvidence(
            "unsupported_answer", f"no chunk that was read covers more than {share} of the words of question and answer"
        )
    return None


def _states_number(amount: str, text: str) -> bool:
    """Return whether a text has the number of an amount, under whatever unit: `24 eur` in `{"amount": 24}`."""
    number = re.match(r"\d[\d.,]*(?= \D|$)", amount)
    return number is not None and re.search(rf"(?<![\d.]){re.escape(number[0])}(?!\d|[.,]\d)", text) is not None


def _check_statements(moves: Moves, number: int, move: Move, values: Values) -> MoveEvidence | None:
    if not values["novel"] or values["novel_share"] < MANY_NOVEL or not (number or values["is_last"]):
        return None
    before = [moves.trace.query, *(part.returned + "\n" + part.text for part in moves.moves[:number])]
    known, words = EntityIndex(*before), "\n".join(before).lower()
    novel = sorted(
        name
        for name in extract_entities(move.text[:4000])
        if name not in known and name not in words and not (name.isdigit() or _states_number(name, words))
    )[:3]
    if not novel:
        return None
    return MoveEvidence(
        "unsupported_statement", f"it names what neither the query nor a step before it mentions: {', '.join(novel)}"
    )
