"""Records that hold several traces: turns with a question and an answer of their own, and several answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ragfault.io.field_values import InvalidRecord
from ragfault.io.formats.conversations import ANSWER_KEYS, QUESTION_KEYS, find_text, has_roles, make_digest
from ragfault.io.formats.field_names import WORD_RANK, rank_fields
from ragfault.io.formats.field_words import join_words

RawRecord = dict[str, Any]
SPEAKERS = {
    "user": "query",
    "human": "query",
    "customer": "query",
    "bot": "answer",
    "assistant": "answer",
    "ai": "answer",
}
"""Keys that say who speaks → the field of what is spoken."""


def name_turn_parts(turn: RawRecord) -> dict[str, str]:
    """Name the parts of a turn: field → key, of several keys the one with the more usual name.

    >>> name_turn_parts({"user": "When?", "retrieval": {"results": []}, "response": {"text": "At nine."}})
    {'query': 'user', 'chunks': 'retrieval', 'answer': 'response'}
    """
    ranked: dict[str, tuple[int, str]] = {}
    for key in turn:
        speaker = SPEAKERS.get(join_words(key))
        field, rank = (speaker, 0) if speaker else next(iter(rank_fields(key)), ("", WORD_RANK))
        if field and rank < ranked.get(field, (WORD_RANK + 1, ""))[0]:
            ranked[field] = rank, key
    return {field: key for field, (_, key) in ranked.items()}


def find_turn_key(record: RawRecord) -> str | None:
    """Find the list of turns of a record that are records of their own; None where turns are only spoken.

    >>> turn = {"question": "When?", "contexts": ["At nine."], "answer": "At nine."}
    >>> find_turn_key({"id": "c", "turns": [turn]}), find_turn_key({"turns": [{"user": "When?", "bot": "At nine."}]})
    ('turns', None)
    """
    for key, turns in record.items():
        is_named = any(field == "history" for field, _ in rank_fields(key))
        if not (is_named and isinstance(turns, list) and turns and all(isinstance(turn, dict) for turn in turns)):
            continue
        if has_roles(turns):
            continue
        parts = [name_turn_parts(turn) for turn in turns]
        if all(fields.keys() >= {"query", "answer"} for fields in parts) and any("chunks" in f for f in parts):
            return key
    return None


def expand_turns(record: RawRecord) -> list[RawRecord]:
    """Expand a record to one for each of its turns, with the turns before it; a record without such stays one.

    >>> turn = {"user": "When?", "docs": ["At nine."], "bot": "At nine."}
    >>> expand_turns({"id": "c", "turns": [turn, turn]})[1]["history"]
    [{'role': 'user', 'text': 'When?'}, {'role': 'assistant', 'text': 'At nine.'}]
    """
    key = find_turn_key(record)
    if key is None:
        return [record]
    above = {name: value for name, value in record.items() if name != key}
    own = {field: name for name in above for field, _ in rank_fields(name)[:1] if field in ("id", "conversation")}
    spoken: list[dict[str, str]] = []
    rows: list[RawRecord] = []
    for number, turn in enumerate(record[key], 1):
        parts = name_turn_parts(turn)
        named = {SPEAKERS.get(join_words(name), name): value for name, value in turn.items()}
        rows.append({"turn": number, "history": list(spoken), **named})
        question, answer = find_text(turn[parts["query"]], QUESTION_KEYS), find_text(turn[parts["answer"]], ANSWER_KEYS)
        spoken += [{"role": role, "text": text} for role, text in (("user", question), ("assistant", answer)) if text]
    name = next((above[own[field]] for field in ("conversation", "id") if field in own), None)
    conversation = make_digest("".join(turn["text"] for turn in spoken)) if name is None else name
    shared = {key: value for key, value in above.items() if key not in own.values()}
    return [
        {
            **shared,
            "id": f"{above.get(own.get('id', ''), conversation)}#{number}",
            "conversation_id": conversation,
            **row,
        }
        for number, row in enumerate(rows, 1)
    ]


def find_answer_lists(records: Sequence[RawRecord], columns: Mapping[str, Sequence[str]]) -> str | None:
    """Find the column of the answer if its records list several answers of one question, and no turns or blocks.

    >>> find_answer_lists([{"samples": ["At nine.", "At ten."]}], {"answer": ("samples",)})
    'samples'
    """
    for path in columns.get("answer", ()):
        lists = [value for record in records if isinstance(value := record.get(path), list)]
        items = [item for value in lists for item in value]
        if any(isinstance(item, dict) and item.keys() & {"type", "role", "message"} for item in items):
            continue
        if any(len(value) > 1 for value in lists) and all(find_text(item, ANSWER_KEYS) for item in items):
            return path
    return None


def expand_answers(record: RawRecord, path: str) -> list[RawRecord]:
    """Expand a record to one for each of the answers that it lists: the attempts at its question.

    >>> expand_answers({"q": "When?", "samples": ["At nine.", "At ten."]}, "samples")[1]
    {'q': 'When?', 'samples': 'At ten.', 'attempt': 2}
    """
    answers = record.get(path)
    if not isinstance(answers, list) or not answers:
        return [record]
    return [{**record, path: answer, "attempt": number} for number, answer in enumerate(answers, 1)]


def expand_rows(
    rows: Iterable[tuple[int, Any]], parse: Callable[[Any], RawRecord], expand: Callable[[RawRecord], list[RawRecord]]
) -> Iterator[tuple[int, Any]]:
    """Yield the records that each record of rows is expanded to; an invalid row as it is."""
    for number, payload in rows:
        try:
            records = [payload] if number == 0 else expand(parse(payload))
        except InvalidRecord:
            records = [payload]
        yield from ((number, record) for record in records)
