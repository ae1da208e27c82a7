"""Features of moves: what each asked, what came back, what it states, and what followed. No model is called."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from ragfault.diagnosis.steps.moves import Move, Moves
from ragfault.judges.checks.claims import is_refusal
from ragfault.judges.checks.lexicon import load_idf
from ragfault.text.entities import extract_entities
from ragfault.text.normalization import split_content_words
from ragfault.text.sentences import split_sentences

Array = np.ndarray[Any, Any]

GUESS = re.compile(
    r"\b(i (recall|believe|think|assume|remember)|from memory|assum(e|ing|ption)|probably|likely|perhaps|maybe|"
    r"hypothetical|simulat\w*|placeholder|for example|suppose|estimate\w*|typically|general knowledge|might be)\b",
    re.IGNORECASE,
)
GIVING_UP = re.compile(
    r"\b(insufficient|unable to|cannot (determine|find|identify|access|confirm|be determined)|can't (find|share)|"
    r"could(n't| not) (find|determine|identify|locate)|no (information|results?|answer|such|specific)|none found|"
    r"not (clear\w*|specif\w*|mention\w*|provide\w*|found|explicit\w*|available|directly)|unknown|"
    r"(provide|need) more (information|context)|there is no|do(es)? not exist|unfortunately|sorry)\b",
    re.IGNORECASE,
)
REPAIR = re.compile(
    r"\b(mistake|incorrect|wrong|correct(ed|ion|ing)? (the|that|this|version)|forgot|fix(ed)?|issue|error|apolog\w+|"
    r"instead|actually|however|failed|missing|let me (re|try)|try again|re-?(check|run|do|evaluate)\w*)\b",
    re.IGNORECASE,
)
CHECKING = re.compile(r"\b(verif\w+|confirm\w*|valid(at\w+|ity)|check\w*|double-check|ensur\w+)\b", re.IGNORECASE)
ENDING = re.compile(r"\bterminate\b|<answer>|\bfinal answer\b|\btherefore\b|\bthus\b", re.IGNORECASE)
CLOSED_QUESTION = re.compile(r"^\W*(is|are|was|were|do|does|did|has|have|had|can|could|will|which of)\b", re.IGNORECASE)
CHOICE = re.compile(r"\b(both|same|either|or|more|older|first)\b", re.IGNORECASE)
ANSWER_MARK = re.compile(r"<answer>(.*?)(</answer>|$)", re.IGNORECASE | re.DOTALL)
MAX_ENTITY_CHARS = 4000
"""Entities are taken from so much of a text."""
REPEATED = 0.7
"""Overlap of the words of two queries from which on one repeats the other."""

FEATURE_LIST = """
place place_end count place_share is_first is_last has_call has_code is_message queries text_length
error unexecuted error_before errors_before repeated_later
chunks new_chunks returned_length returned_question returned_query gain covered missing
query_repeat query_question query_new query_length same_query_before
guess giving_up repair checking ending novel novel_share numbers_new text_question text_previous copy
next_repair next_error next_repeat next_same_agent same_agent later_calls later_agents
answer_found answer_asked answer_length answer_near answer_support answer_pair answer_read answer_refuses
answer_mentioned
closed choice question_length question_names searches repeats_so_far read_before think_only
"""
FEATURE_NAMES = tuple(FEATURE_LIST.split())


def extract_marked_answer(text: str) -> str:
    """Return what a text marks as its answer, else the text."""
    marked = ANSWER_MARK.findall(text)
    return str(marked[-1][0].strip()) if marked and marked[-1][0].strip() else text


def extract_short_answer(text: str) -> str:
    """Return what a text marks as its answer, else its last sentence.

    >>> extract_short_answer("So it is Oslo. <answer> Oslo </answer>"), extract_short_answer("It was. In 1040.")
    ('Oslo', 'In 1040.')
    """
    marked = extract_marked_answer(text)
    if marked != text:
        return marked
    sentences = split_sentences(text)
    return text[sentences[-1][0] : sentences[-1][1]].strip() if sentences else text.strip()


def compute_features(moves: Moves) -> Array:
    """Return the features of each move, [moves × features]."""
    walk = _Walk(moves)
    return np.array([walk.measure(number) for number in range(len(moves.moves))], float).reshape(-1, len(FEATURE_NAMES))


def measure_share(words: Iterable[str], others: Iterable[str]) -> float:
    """Return the share of words, by rarity, that is among others; 0 without words."""
    table = load_idf()
    words = frozenset(words)
    total = table.sum_rarity(words)
    return table.sum_rarity(words & frozenset(others)) / total if total else 0.0


def measure_overlap(left: frozenset[str], right: frozenset[str]) -> float:
    """Return the Jaccard index of two sets of words, by rarity."""
    table = load_idf()
    total = table.sum_rarity(left | right)
    return table.sum_rarity(left & right) / total if total else 0.0


class _Walk:
    """The state of a trace before each move."""

    def __init__(self, moves: Moves) -> None:
        self.moves, self.trace = moves.moves, moves.trace
        self.question = frozenset(split_content_words(self.trace.query))
        self.read: list[frozenset[str]] = [frozenset()]
        self.seen: list[frozenset[str]] = [frozenset()]
        for move in self.moves:
            self.read.append(self.read[-1] | move.returned_words)
            self.seen.append(self.seen[-1] | {chunk.id for chunk in move.chunks})
        self.stated = [frozenset[str]()]
        for move in self.moves:
            self.stated.append(self.stated[-1] | move.text_words)
        self.texts = [move.text_words for move in self.moves]
        self.context, self.context_ends = self.trace.query.lower(), list[int]()
        self.known_entities = [extract_entities(self.trace.query)]
        for move in self.moves:
            self.context_ends.append(len(self.context))
            self.context += f" {move.returned} {move.text}".lower()
            entities = extract_entities(move.returned[:MAX_ENTITY_CHARS]) | extract_entities(
                move.text[:MAX_ENTITY_CHARS]
            )
            self.known_entities.append(self.known_entities[-1] | entities)
        self.overlaps: dict[tuple[int, int], float] = {}

    def overlap(self, first: int, second: int) -> float:
        """Return how far the queries of two moves are the same, each pair computed once."""
        pair = (min(first, second), max(first, second))
        if pair not in self.overlaps:
            self.overlaps[pair] = _overlap(self.moves[first], self.moves[second])
        return self.overlaps[pair]

    def measure(self, number: int) -> list[float]:
        move = self.moves[number]
        values = {
            **self._measure_place(number, move),
            **self._measure_errors(number, move),
            **self._measure_results(number, move),
            **self._measure_query(number, move),
            **self._measure_text(number, move),
            **self._measure_next(number, move),
            **self._measure_answer(number, move),
            **self._measure_question(number),
        }
        return [float(values[name]) for name in FEATURE_NAMES]

    def _measure_place(self, number: int, move: Move) -> dict[str, float]:
        count = len(self.moves)
        return {
            "place": number,
            "place_end": count - 1 - number,
            "count": count,
            "place_share": number / max(1, count - 1),
            "is_first": number == 0,
            "is_last": number == count - 1,
            "has_call": move.is_call,
            "has_code": "```" in move.text,
            "is_message": move.step.kind is None,
            "queries": len(move.query.splitlines()),
            "text_length": np.log1p(len(move.text)),
        }

    def _measure_errors(self, number: int, move: Move) -> dict[str, float]:
        later = range(number + 1, len(self.moves))
        return {
            "error": bool(move.errors),
            "unexecuted": bool(move.errors) and not move.returned.strip() and not move.chunks,
            "error_before": number > 0 and bool(self.moves[number - 1].errors),
            "errors_before": sum(bool(other.errors) for other in self.moves[:number]),
            "repeated_later": max((self.overlap(number, other) for other in later), default=0.0),
        }

    def _measure_results(self, number: int, move: Move) -> dict[str, float]:
        before, after = self.read[number], self.read[number + 1]
        names = {chunk.id for chunk in move.chunks}
        covered, gained = measure_share(self.question, before), measure_share(self.question, after)
        return {
            "chunks": len(names),
            "new_chunks": len(names - self.seen[number]) / max(1, len(names)),
            "returned_length": np.log1p(len(move.returned)),
            "returned_question": max(
                (measure_share(self.question, split_content_words(chunk.text)) for chunk in move.chunks), default=0.0
            ),
            "returned_query": measure_share(move.query_words, move.returned_words),
            "gain": gained - covered,
            "covered": gained,
            "missing": len(self.question - after),
        }

    def _measure_query(self, number: int, move: Move) -> dict[str, float]:
        earlier = [self.overlap(other, number) for other in range(number)]
        known = self.question | self.read[number]
        return {
            "query_repeat": max(earlier, default=0.0),
            "query_question": measure_share(self.question, move.query_words),
            "query_new": measure_share(move.query_words, move.query_words - known),
            "query_length": len(move.query_words),
            "same_query_before": sum(value >= REPEATED for value in earlier),
        }

    def _measure_text(self, number: int, move: Move) -> dict[str, float]:
        text, known = move.text, self.question | self.read[number] | self.stated[number]
        names = extract_entities(text[:MAX_ENTITY_CHARS])
        # an entity has one form however it is written; inside longer names it is found as text
        unknown = names - self.known_entities[number]
        novel = [name for name in unknown if self.context.find(name.lower(), 0, self.context_ends[number]) < 0]
        numbers = [word for word in move.text_words if word[0].isdigit()]
        previous = self.moves[number - 1].text_words | self.moves[number - 1].returned_words if number else frozenset()
        return {
            "guess": len(GUESS.findall(text)),
            "giving_up": len(GIVING_UP.findall(text)),
            "repair": len(REPAIR.findall(text)),
            "checking": len(CHECKING.findall(text)),
            "ending": bool(ENDING.search(text)),
            "novel": len(novel),
            "novel_share": len(novel) / max(1, len(names)),
            "numbers_new": len([word for word in numbers if word not in known]),
            "text_question": measure_share(self.question, move.text_words),
            "text_previous": measure_share(move.text_words, previous),
            "copy": max((measure_overlap(move.text_words, words) for words in self.texts[:number]), default=0.0),
            "think_only": bool(text) and not move.is_call and not ENDING.search(text),
        }

    def _measure_next(self, number: int, move: Move) -> dict[str, float]:
        later = self.moves[number + 1 :]
        following = later[0] if later else None
        return {
            "next_repair": len(REPAIR.findall(following.text)) if following else 0,
            "next_error": bool(following and following.errors),
            "next_repeat": _overlap(move, following) if following else 0.0,
            "next_same_agent": bool(following and following.step.agent == move.step.agent),
            "same_agent": number > 0 and self.moves[number - 1].step.agent == move.step.agent,
            "later_calls": sum(other.is_call for other in later),
            "later_agents": len({other.step.agent for other in later}),
        }

    def _measure_answer(self, number: int, move: Move) -> dict[str, float]:
        names = ("found", "asked", "length", "near", "support", "pair", "read", "refuses", "mentioned")
        if number < len(self.moves) - 1:
            return {f"answer_{name}": 0.0 for name in names}
        answer = extract_short_answer(move.text)
        words = frozenset(split_content_words(answer))
        own = words - self.question
        passages = [
            frozenset(split_content_words(chunk.text)) for other in self.moves[:number] for chunk in other.chunks
        ]
        near = [measure_share(self.question, passage) for passage in passages if own and own <= passage]
        return {
            "answer_found": measure_share(own, self.read[number]) if own else 1.0,
            "answer_asked": measure_share(words, self.question),
            "answer_length": len(words),
            "answer_near": max(near, default=0.0),
            "answer_support": max((measure_share(words | self.question, passage) for passage in passages), default=0.0),
            "answer_pair": self._measure_pair(words | self.question, passages),
            "answer_read": bool(passages),
            "answer_refuses": is_refusal(answer) or bool(GIVING_UP.search(answer)),
            "answer_mentioned": sum(bool(own) and own <= other.text_words for other in self.moves[:number]),
        }

    def _measure_pair(self, words: frozenset[str], passages: list[frozenset[str]]) -> float:
        """Return the share of words that two passages cover together, the first of them the best one."""
        if not passages:
            return 0.0
        best = max(passages, key=lambda passage: measure_share(words, passage))
        return max(measure_share(words, best | passage) for passage in passages)

    def _measure_question(self, number: int) -> dict[str, float]:
        query = self.trace.query
        return {
            "closed": bool(CLOSED_QUESTION.search(query)),
            "choice": bool(CHOICE.search(query)),
            "question_length": len(self.question),
            "question_names": len(extract_entities(query)),
            "searches": sum(other.is_call for other in self.moves),
            "repeats_so_far": sum(
                self.overlap(first, second) >= REPEATED for second in range(number + 1) for first in range(second)
            ),
            "read_before": bool(self.seen[number]),
        }


def _overlap(first: Move, second: Move) -> float:
    """Return how far two queries are the same."""
    if not first.query_words or not second.query_words:
        return 0.0
    return measure_overlap(first.query_words, second.query_words)
