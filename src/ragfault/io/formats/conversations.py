"""Conversations in records: turns by role and text, in any of the ways in which they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

from msgspec.structs import replace

from ragfault.io.formats.field_names import is_metadata_name, rank_fields
from ragfault.io.formats.field_words import join_words, split_words
from ragfault.io.formats.texts import join_text, parse_list_text
from ragfault.model.records import Chunk, Trace
from ragfault.text.normalization import split_content_words

ROLES = {
    "user": "user", "human": "user", "customer": "user", "client": "user", "enduser": "user", "requester": "user",
    "visitor": "user", "guest": "user", "usr": "user", "humanmessage": "user", "assistant": "assistant",
    "ai": "assistant", "bot": "assistant", "agent": "assistant", "model": "assistant", "gpt": "assistant",
    "chatbot": "assistant", "support": "assistant", "operator": "assistant", "aimessage": "assistant",
    "aimessagechunk": "assistant", "system": "system", "developer": "system", "systemmessage": "system",
    "tool": "tool", "function": "tool", "toolmessage": "tool", "functioncalloutput": "tool",
}  # fmt: skip
"""Names of the roles of a conversation."""
TURN_TEXT_KEYS = ("content", "text", "message", "utterance", "value", "parts", "items", "body", "output")
TURN_ROLE_KEYS = ("role", "speaker", "from", "sender", "author", "type", "who")
TURN_CHUNK_KEYS = ("retrieved_contexts", "retrieval_context", "retrievalContext", "contexts", "context", "documents")
TRANSCRIPT_LINE = re.compile(
    r"(?:^\s*(?:\*\*)?([A-Za-z]{2,12})(?:\*\*)?\s*:(?:\*\*)?|(?:^|;)\s*([A-Za-z]{2,12}) says:)\s*", re.MULTILINE
)


def find_role(name: Any) -> str | None:
    """Find the role that a name stands for, which may say that it is a message, or what was searched.

    >>> find_role("Human"), find_role("assistant_message"), find_role("retrieval"), find_role("anna")
    ('user', 'assistant', 'tool', None)
    """
    if len(str(name)) > LONGEST_ROLE:
        return None
    words = split_words(str(name))
    plain = words[:-1] if len(words) > 1 and words[-1] in ("message", "msg", "utterance", "turn") else words
    return (
        ROLES.get(join_words(str(name))) or ROLES.get("".join(plain)) or ("tool" if set(words) & SEARCH_WORDS else None)
    )


LONGEST_ROLE = 40
"""Characters of the longest name of a role."""
SEARCH_WORDS = frozenset(("retrieval", "retriever", "retrieve", "retrieved"))


def find_turns(value: Any) -> list[dict[str, Any]] | None:
    """Find the turns of a conversation as objects with `role`, `text` and perhaps `chunks`; None where it is none.

    >>> find_turns([{"speaker": "User", "text": "When?"}, {"speaker": "agent", "text": "In 1040."}])
    [{'role': 'user', 'text': 'When?'}, {'role': 'assistant', 'text': 'In 1040.'}]
    >>> find_turns("User: When?\\nAssistant: In 1040.")[0], find_turns(["In 1040."]) is None
    ({'role': 'user', 'text': 'When?'}, True)
    """
    value = parse_list_text(value) if isinstance(value, str) else value
    if isinstance(value, str):
        return _split_transcript(value)
    if isinstance(value, dict):
        inner = next((value[key] for key in ("messages", "turns", "conversation", "contents") if key in value), None)
        inner = list_messages_by_id(value) if inner is None else inner
        return find_turns(inner) if isinstance(inner, (list, str)) else None
    if not isinstance(value, (list, tuple)) or not value:
        return None
    if len(value) == 1 and isinstance(value[0], list):
        return find_turns(value[0])
    if all(isinstance(item, str) for item in value):
        turns = [_split_transcript(item, 1) for item in value]
        return [turn for item in turns for turn in item or ()] if all(turns) else None
    if all(isinstance(item, (list, tuple)) and len(item) == 2 for item in value):
        return _read_pairs(value)
    if not all(isinstance(item, dict) for item in value):
        return None
    return _read_turn_objects([dict(_unwrap_turn(item)) for item in value])


def list_messages_by_id(value: Any) -> list[dict[str, Any]] | None:
    """List the messages of an object by their ids, along the last branch where they are a tree; None where it is none.

    >>> root = {"message": {"role": "user", "content": "When?"}, "parent": None}
    >>> list_messages_by_id({"a": root, "b": {"message": None, "parent": "a"}})
    [{'role': 'user', 'content': 'When?'}]
    """
    if not isinstance(value, dict) or len(value) < 2 or not all(isinstance(node, dict) for node in value.values()):
        return None
    messages = {key: node.get("message", node) for key, node in value.items()}
    spoken = [message for message in messages.values() if message]
    if not spoken or not all(isinstance(message, dict) and message.keys() & {"role", "author"} for message in spoken):
        return None
    order, key = [], next(reversed(value))
    if all("parent" in node for node in value.values()):
        while key in value and key not in order:
            order.append(key)
            key = value[key]["parent"]
    return [message for name in (order[::-1] or value) if (message := messages[name])]


def _unwrap_turn(turn: dict[str, Any]) -> dict[str, Any]:
    """Unwrap a message that is written as the call that makes it, or as a type with its data."""
    if any(str(key)[:1].isupper() for key in turn):
        turn = _lower_keys(turn)
    if isinstance(role := turn.get("role"), dict):
        turn = {**turn, "role": role.get("label", role.get("name"))}
    if isinstance(role := turn.get("author"), dict) and isinstance(role.get("role"), str):
        turn = {**turn, "role": role["role"]}
    if isinstance(inner := turn.get("content"), dict) and "role" in inner:
        turn = {**turn, **inner}
    if returned := [item for key in ("parts", "content") for item in _list_function_results(turn.get(key))]:
        return {"role": "tool", "content": "results", "chunks": returned}
    for wrapper in ("kwargs", "data", "message"):
        inner = turn.get(wrapper)
        if isinstance(inner, dict) and any(key in inner for key in ("content", "text")):
            name = turn["id"][-1] if isinstance(turn.get("id"), list) and turn["id"] else turn.get("type")
            return {"type": name, **inner}
    return turn


def _lower_keys(value: Any) -> Any:
    """Lower the first letter of keys, as .NET serializes them in capitals."""
    if isinstance(value, dict):
        return {f"{str(key)[:1].lower()}{str(key)[1:]}": _lower_keys(item) for key, item in value.items()}
    return [_lower_keys(item) for item in value] if isinstance(value, list) else value


def _list_function_results(parts: Any) -> list[Any]:
    """List what functions returned, among the parts of a message."""
    calls = [part.get("functionResponse", part.get("function_response")) for part in _list_objects(parts)]
    results = [call.get("response") for call in calls if isinstance(call, dict)]
    results = [next(iter(r.values())) if isinstance(r, dict) and len(r) == 1 else r for r in results]
    return [item for result in results for item in (result if isinstance(result, list) else [result]) if item]


def _list_objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, (list, tuple)) else []


def _read_pairs(pairs: Sequence[Any]) -> list[dict[str, Any]] | None:
    """Read pairs of role and text, or of question and answer."""
    if not all(isinstance(item, str) for pair in pairs for item in pair):
        return None
    roles = [ROLES.get(join_words(pair[0])) for pair in pairs]
    if all(roles):
        return [{"role": role, "text": pair[1]} for role, pair in zip(roles, pairs, strict=True)]
    return None


def read_question_answer_pairs(value: Any) -> list[dict[str, Any]] | None:
    """Read a history of pairs of question and answer, in lists or in objects of two texts.

    >>> read_question_answer_pairs([["Hello", "Hi!"]])
    [{'role': 'user', 'text': 'Hello'}, {'role': 'assistant', 'text': 'Hi!'}]
    """
    value = parse_list_text(value) if isinstance(value, str) else value
    if not isinstance(value, (list, tuple)) or not value:
        return None
    pairs = [list(item.values()) if isinstance(item, dict) else item for item in value]
    if not all(isinstance(p, (list, tuple)) and len(p) == 2 and all(isinstance(t, str) for t in p) for p in pairs):
        return None
    return [
        {"role": role, "text": text} for pair in pairs for role, text in zip(("user", "assistant"), pair, strict=True)
    ]


def _read_turn_objects(turns: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    keys = list(dict.fromkeys(key for turn in turns for key in turn))
    role_key = _find_role_key(turns, keys)
    if role_key is None:
        return _read_role_keyed_turns(turns)
    matches = []
    for turn in turns:
        name = turn.get(role_key)
        role = find_role(name) if name is not None else None
        key = next((name for name in TURN_TEXT_KEYS if name in turn and name != role_key), None)
        texts = [name for name, item in turn.items() if isinstance(item, str) and name != role_key]
        key = key or max(texts, key=lambda k: len(turn[k]), default=None)
        text = join_text(turn[key]) if key else None
        if role is None:
            return None
        if text is None or not text.strip():
            # a call of a tool, which says nothing
            continue
        chunk_keys = (k for k in turn if k not in (key, role_key) and ("chunks" in dict(rank_fields(str(k)))))
        chunks = next((turn[k] for k in (*TURN_CHUNK_KEYS, *chunk_keys) if turn.get(k)), None) or _list_documents(
            turn.get(key or "")
        )
        chunks = chunks or _list_tool_outputs(turn, None if role == "assistant" else key)
        chunks = chunks or (_list_results(turn[key]) if role == "tool" and key else None)
        matches.append({"role": role, "text": text, **({} if chunks is None else {"chunks": chunks})})
    return matches or None


def _list_documents(value: Any) -> list[Any] | None:
    """List the documents and search results among the blocks of a message."""
    blocks = value if isinstance(value, list) else []
    return [b for b in blocks if isinstance(b, dict) and b.get("type") in ("document", "search_result")] or None


def _list_tool_outputs(turn: dict[str, Any], key: str | None) -> list[Any] | None:
    """List the documents that a tool returned beside its text, or the outputs of tools among the parts of a reply."""
    if key is not None:
        lists = [_list_objects(part) for name, part in turn.items() if name != key]
        texts = ("page_content", "text", "content")
        return next((p for p in lists if p and all(any(isinstance(o.get(k), str) for k in texts) for o in p)), None)
    calls = [part for part in _list_objects(turn.get("parts")) if "tool" in str(part.get("type"))]
    calls = [inner if isinstance(inner := call.get("toolInvocation"), dict) else call for call in calls]
    outputs = [call.get("output", call.get("result")) for call in calls]
    return [item for output in outputs for item in (output if isinstance(output, list) else [output]) if item] or None


def _list_results(output: Any) -> list[Any] | None:
    """List the objects of what a tool returned, unless they are the blocks of one text."""
    parts = _list_objects(output.get("content") if isinstance(output, dict) else output)
    return parts if len(parts) > 1 and not any("type" in part for part in parts) else None


def has_roles(turns: Sequence[dict[str, Any]]) -> bool:
    """Tell whether objects say who speaks."""
    return _find_role_key([dict(turn) for turn in turns], list(turns[0])) is not None


def _find_role_key(turns: list[dict[str, Any]], keys: list[str]) -> str | None:
    """Find the key whose values are names of roles, in every turn."""
    keys_in_order = [key for key in TURN_ROLE_KEYS if key in keys] + [key for key in keys if key not in TURN_ROLE_KEYS]
    for key in keys_in_order:
        values = [turn.get(key) for turn in turns]
        roles = [find_role(name) if isinstance(name, str) else None for name in values]
        if all(roles) and set(roles) != {"tool"}:
            return key
        if key in TURN_ROLE_KEYS and {"user", "assistant"} <= set(roles):
            # steps in which nobody speaks
            turns[:] = [turn for turn, role in zip(turns, roles, strict=True) if role]
            return key
    if any(join_words(str(turn.get("role"))) in ROLES for turn in turns):
        for turn in turns:
            turn.setdefault("role", turn.get("type"))
        if all(isinstance(turn["role"], str) for turn in turns):
            turns[:] = [turn for turn in turns if join_words(turn["role"]) in ROLES]
            return "role"
    return None


def _read_role_keyed_turns(turns: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """Read turns such as `{"user": "…", "assistant": "…"}`, and `{"question": …, "answer": …}`."""
    names = {**ROLES, "question": "user", "answer": "assistant", "query": "user", "response": "assistant"}
    names |= {"inputs": "user", "outputs": "assistant", "input": "user", "output": "assistant"}
    matches: list[dict[str, Any]] = []
    for turn in turns:
        spoken = [
            {"role": names[join_words(key)], "text": text}
            for key, item in turn.items()
            if join_words(key) in names and (text := join_text(item)) is not None
        ]
        if not spoken or len(spoken) < sum(not is_metadata_name(key) for key in turn):
            return None
        matches += spoken
    is_chat = len({turn["role"] for turn in matches}) > 1 or len(matches) == 1
    return matches if is_chat and (len(matches) != len(turns) or len(turns) == 1 or len(turns[0]) == 1) else None


def _split_transcript(text: str, least: int = 2) -> list[dict[str, Any]] | None:
    """Split a text whose lines begin with roles into turns."""
    marks = [mark for mark in TRANSCRIPT_LINE.finditer(text) if (mark[1] or mark[2]).lower() in ROLES]
    if len(marks) < least or text[: marks[0].start()].strip():
        return None
    if least > 1 and len({ROLES[(mark[1] or mark[2]).lower()] for mark in marks}) < 2:
        return None
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    turns = [
        {"role": ROLES[(mark[1] or mark[2]).lower()], "text": text[mark.end() : end].strip().removesuffix(";")}
        for mark, end in zip(marks, ends, strict=True)
    ]
    return [turn for turn in turns if turn["text"]] or None


def split_conversation(turns: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Split turns at the last one of the user into `history`, `query` and, where they follow, `answer` and `chunks`.

    >>> turns = [{"role": "user", "text": "When?"}, {"role": "tool", "text": "Oslo, 1040"}]
    >>> split_conversation([*turns, {"role": "assistant", "text": "In 1040."}])
    {'query': 'When?', 'answer': 'In 1040.', 'chunks': 'Oslo, 1040'}
    """
    user_turns = [i for i, turn in enumerate(turns) if turn["role"] == "user"]
    if not user_turns:
        return None
    last = user_turns[-1]
    fields: dict[str, Any] = {"query": turns[last]["text"]}
    if last:
        fields["history"] = [{"role": turn["role"], "text": turn["text"]} for turn in turns[:last]]
    after = turns[last + 1 :]
    answers = [turn["text"] for turn in after if turn["role"] == "assistant"]
    if answers:
        fields["answer"] = answers[-1]
    chunks = [turn["text"] for turn in after if turn["role"] == "tool"]
    chunk_lists = [turn["chunks"] for turn in turns[last:] if "chunks" in turn]
    if chunk_lists or chunks:
        fields["chunks"] = chunk_lists[-1] if chunk_lists else chunks[0] if len(chunks) == 1 else chunks
    return fields


ANSWER_KEYS = (
    *("answer", "response", "output", "result", "output_text", "completion", "generated_text", "text", "content"),
    *("message", "messages", "generations", "choices", "candidates", "replies", "answers", "outputs", "data", "parts"),
)
QUESTION_KEYS = ("query", "question", "user_input", "input", "prompt", "query_text", "query_str", "text", "content")
MAX_SEARCH_DEPTH = 8


def find_text(value: Any, keys: tuple[str, ...], depth: int = 0) -> str | None:
    """Find the text that a reply or request carries: itself, its blocks, or what stands under one of these keys.

    >>> find_text({"choices": [{"message": {"role": "assistant", "content": "In 1040."}}]}, ANSWER_KEYS)
    'In 1040.'
    """
    if value is None or isinstance(value, (str, bool)) or depth > MAX_SEARCH_DEPTH:
        return value if isinstance(value, str) else None
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, (list, tuple)):
        if (turns := find_turns(value)) is not None:
            return str(turns[-1]["text"])
        if value and isinstance(value[0], dict) and "type" in value[0] and (text := _join_blocks(value)):
            return text
        return next((text for item in value if (text := find_text(item, keys, depth + 1))), None)
    if not isinstance(value, dict):
        return None
    if find_role(value.get("role")) and isinstance(value.get("parts"), list):
        # a message of Gemini, whose thoughts are not its text
        return join_text(value["parts"])
    only = [item for item in value.values() if len(value) == 1 and isinstance(item, (str, dict, list))]
    parts = [value[key] for key in keys if value.get(key)] or only
    return next((text for part in parts if (text := find_text(part, keys, depth + 1))), None)


def list_turn_chunks(turns: Sequence[dict[str, Any]]) -> list[Any]:
    """List what was retrieved for each turn of the user, up to the next one; None where nothing is recorded.

    >>> said = {"role": "assistant", "text": "In 1040.", "chunks": ["Oslo, 1040"]}
    >>> list_turn_chunks([{"role": "user", "text": "When?"}, said, {"role": "user", "text": "Why?"}])
    [['Oslo, 1040'], None]
    """
    starts = [place for place, turn in enumerate(turns) if turn["role"] == "user"]
    spans = [turns[start:end] for start, end in zip(starts, [*starts[1:], len(turns)], strict=False)]
    parts = [split_conversation(list(span)) for span in spans]
    return [part.get("chunks") if part else None for part in parts]


OUTCOME_WORDS = frozenset(("outcome", "outcomes", "behavior", "behaviour", "goal", "scenario"))
"""Words of columns that say what a conversation should lead to, and seldom hold an answer."""
ANSWER_SHARE = 0.5


def is_outcome_column(path: str, pairs: Sequence[tuple[str, str]]) -> bool:
    """Tell whether a column says what should happen rather than what should be said.

    `pairs` are its texts, each with the answer and the chunks of its record: an expected answer has most of its words
    in them.

    >>> is_outcome_column("expected_outcome", [("The user knows the price", "It costs 3 euros.")])
    True
    >>> is_outcome_column("expected_outcome", [("It costs 3 euros", "That is 3 euros. It costs more at night.")])
    False
    """
    if not OUTCOME_WORDS & set(split_words(path)):
        return False
    shares = [_measure_share(outcome, spoken) for outcome, spoken in pairs]
    return not shares or sum(shares) < ANSWER_SHARE * len(shares)


def _measure_share(text: str, other: str) -> float:
    words = frozenset(split_content_words(text))
    return len(words.intersection(split_content_words(other))) / len(words) if words else 0.0


def split_turns(trace: Trace, chunks: Sequence[tuple[Chunk, ...] | None] = ()) -> Iterator[Trace]:
    """Yield a trace for each turn of the user, with the turns before it as history and its own `chunks`.

    The last turn has all that is known of the trace.

    >>> from ragfault.model.records import ConversationTurn
    >>> said = (ConversationTurn(role="user", text="Hello"), ConversationTurn(role="assistant", text="Hi!"))
    >>> [(t.id, t.turn, t.query, t.answer) for t in split_turns(Trace(id="c", query="When?", history=said))]
    [('c#1', 1, 'Hello', 'Hi!'), ('c#2', 2, 'When?', None)]
    """
    history = trace.history or ()
    user_turns = [i for i, turn in enumerate(history) if turn.role == "user"]
    name = trace.id or make_digest(trace.query + "".join(turn.text for turn in history))
    conversation = trace.conversation or name
    for number, (start, end) in enumerate(zip(user_turns, [*user_turns[1:], len(history)], strict=False), 1):
        answers = [turn.text for turn in history[start + 1 : end] if turn.role == "assistant"]
        yield Trace(
            id=f"{name}#{number}",
            query=history[start].text,
            history=history[:start] or None,
            chunks=chunks[number - 1] if number <= len(chunks) else None,
            answer=answers[-1] if answers else None,
            conversation=conversation,
            turn=number,
            model=trace.model,
            route=trace.route,
            metadata=trace.metadata,
        )
    last = len(user_turns) + 1
    yield replace(trace, id=f"{name}#{last}", conversation=conversation, turn=last)


def make_digest(text: str) -> str:
    """Derive the id of a conversation from its texts."""
    return "c-" + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def _join_blocks(blocks: Sequence[Any]) -> str | None:
    """Join the text blocks of a message; those of the list that are calls or thoughts are left out."""
    texts = [join_text(block) for block in blocks if isinstance(block, dict) and "text" in str(block.get("type"))]
    return "".join(text for text in texts if text) or None
