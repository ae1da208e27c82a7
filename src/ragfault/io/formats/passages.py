"""Passages in records: texts, objects, lists, search results and parallel lists; and the kinds of values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from ragfault.io.formats.conversations import find_turns
from ragfault.io.formats.field_words import join_words, split_words
from ragfault.io.formats.paths import list_parallel
from ragfault.io.formats.texts import count_words, is_code, join_text, parse_list_text
from ragfault.text.citation_marks import FILE_STEM

TEXT_KEYS = (
    *("text", "content", "page_content", "passage", "passage_text", "chunk_text", "chunk", "body", "document_text"),
    *("paragraph_text", "paragraph", "snippet", "page_result", "page_snippet", "excerpt", "context", "contents"),
    *("document", "sentences", "data", "value", "cited_text"),
)
WEAK_TEXT_KEYS = ("document", "data", "value", "context")
"""Keys that hold a text in some tools, and a name or number in others."""
TEXT_KEY_RANKS = {join_words(name): rank for rank, name in reversed(list(enumerate(TEXT_KEYS)))}
WRAPPERS = (
    *("node", "document", "kwargs", "init_parameters", "payload", "_source", "entity", "chunk", "item", "metadata"),
    *("passage", "properties", "data", "source", "content"),
)
"""Keys under which a passage lies within its search result."""
LIST_KEYS = (
    *("documents", "results", "chunks", "nodes", "source_nodes", "source_documents", "matches", "hits", "passages"),
    *("contexts", "points", "items", "data", "docs", "output", "context", "retrieved_documents", "value", "citations"),
)
"""Keys under which a result holds its list of passages."""
SEPARATORS = r"\s*\|\|\|\s*|\s*<(?:sep|SEP|doc)>\s*|\s*\[SEP\]\s*|\x1e|\x1f"
SEPARATOR = re.compile(SEPARATORS)
"""Marks that nobody writes within a passage."""
RULED_SEPARATOR = re.compile(SEPARATORS + r"|\s*\n\s*(?:-{3,}|={3,}|\*{3,}|#{3,})\s*\n\s*")
"""These, and ruled lines, which a passage of Markdown holds, too."""
SINGLE_NAMES = frozenset(("passage", "chunk", "text", "document", "doc", "paragraph", "snippet", "excerpt", "node"))
"""Last words of names of columns that hold one passage."""
PASSAGE_NAMES = "passage|document|doc|context|chunk|source|snippet|excerpt"
NUMBERED_HEADING = re.compile(
    r"(?:\A|\n)\s*(?:#{1,6}[ \t]*|\*\*)?"
    rf"(?:\[(\d{{1,3}})\]|(?:{PASSAGE_NAMES})\s*\#?\s*\[?(\d{{1,3}})\]?(?:\*\*)?"
    r"(?:\s*[:.)\-]|[ \t]*(?=\n)))(?:\*\*)?\s*",
    re.IGNORECASE,
)
TAGGED_PASSAGE = re.compile(
    rf"<({PASSAGE_NAMES}|result|item)\b[^<>\n]*>((?:(?!<\1\b).)*?)</\1>", re.IGNORECASE | re.DOTALL
)
TAGGED_TEXT = re.compile(r"<(\w*(?:content|contents|text|body))>(.*?)</\1>", re.IGNORECASE | re.DOTALL)
TAG = re.compile(r"</?\w[^<>\n]*>")
"""Passages in tags of their own, the text within one beside what describes it, and any tag."""


def find_text_key(passage: dict[str, Any]) -> str | None:
    """Find the key of a passage's text: a usual one, else that of much the longest text; None where there is none.

    >>> find_text_key({"passageText": "Oslo, 1040", "n": 3}), find_text_key({"a": "x1", "b": "The last ferry leaves."})
    ('passageText', 'b')
    """
    ranked = [
        (TEXT_KEY_RANKS[join_words(key)], key)
        for key, item in passage.items()
        if join_words(key) in TEXT_KEY_RANKS
        and (isinstance(item, str) or is_text_list(item))
        and (key not in WEAK_TEXT_KEYS or not isinstance(item, str) or count_words(item) > 2)
    ]
    if ranked:
        return min(ranked)[1]
    texts = {key: item for key, item in passage.items() if isinstance(item, str) and count_words(item) >= 3}
    if not texts:
        return None
    longest = max(texts, key=lambda key: len(texts[key]))
    return longest if 2 * len(texts[longest]) >= sum(map(len, texts.values())) else None


def is_text_list(value: Any) -> bool:
    """Tell whether a value is a list of texts or of text blocks."""
    return (
        isinstance(value, (list, tuple))
        and bool(value)
        and all(
            isinstance(item, str) or (isinstance(item, dict) and isinstance(item.get("text"), str)) for item in value
        )
    )


def unwrap_passage(passage: dict[str, Any]) -> dict[str, Any]:
    """Unwrap a passage that lies within its search result, whose own keys stay beside it.

    >>> unwrap_passage({"node": {"id_": "a", "text": "Oslo"}, "score": 0.5})
    {'id_': 'a', 'text': 'Oslo', 'score': 0.5}
    """
    for _ in range(4):
        if any(isinstance(passage.get(key), str) for key in ("text", "content", "page_content")):
            return passage
        keys = WRAPPERS if find_text_key(passage) else (*WRAPPERS, *(key for key in passage if key not in WRAPPERS))
        inner_key = next(
            (key for key in keys if isinstance(passage.get(key), dict) and find_text_key(unwrap_passage(passage[key]))),
            None,
        )
        if inner_key is None or (inner_key == "metadata" and find_text_key(passage)):
            return passage
        inner = passage[inner_key]
        outer = {key: item for key, item in passage.items() if key != inner_key and key not in inner}
        passage = {**inner, **outer}
    return passage


def find_passages(value: Any) -> list[Any] | None:
    """Find the list of passages that a value is, holds under a usual key, or spreads over parallel lists.

    >>> find_passages({"hits": {"hits": [{"_source": {"text": "Oslo"}}]}})
    [{'_source': {'text': 'Oslo'}}]
    >>> find_passages({"ids": [["a"]], "documents": [["Oslo, 1040"]]})
    [{'ids': 'a', 'text': 'Oslo, 1040'}]
    """
    value = parse_list_text(value) if isinstance(value, str) else value
    if isinstance(value, (list, tuple)):
        if len(value) == 1 and isinstance(value[0], (list, tuple)) and not _is_listed_passage(value[0]):
            return find_passages(value[0])
        return list(value)
    if not isinstance(value, dict):
        return None
    if (rows := _join_parallel_lists(value)) is not None:
        return rows
    for name in LIST_KEYS:
        inner = value.get(name)
        if isinstance(inner, (list, dict)) and (matches := find_passages(inner)) is not None and name != "metadata":
            return matches
    only = next(iter(value.values())) if len(value) == 1 else None
    if isinstance(only, (dict, list)) and only and (matches := find_passages(only)) is not None:
        return matches
    if value and all(isinstance(item, dict) and find_text_key(unwrap_passage(item)) for item in value.values()):
        return [{"id": key, **item} for key, item in value.items()]
    if find_text_key(unwrap_passage(value)) is None or _is_text_by_id(value):
        texts = [{"id": key, "text": item} for key, item in value.items() if isinstance(item, str)]
        return texts if texts and len(texts) == len(value) else None
    return None


def _is_text_by_id(value: dict[str, Any]) -> bool:
    return (
        len(value) > 1
        and not any(join_words(str(key)) in TEXT_KEY_RANKS for key in value)
        and all(isinstance(item, str) and count_words(item) >= 3 for item in value.values())
    )


def is_spread_passages(value: Any) -> bool:
    """Tell whether an object is passages by itself: parallel lists, or texts and objects by their ids.

    >>> is_spread_passages({"d1": "Oslo, founded 1040.", "d2": "Bergen, founded 1070."})
    True
    >>> is_spread_passages({"asked": "When was Oslo founded?", "said": "It was founded in 1040."})
    False
    """
    if not isinstance(value, dict) or not value:
        return False
    if (rows := _join_parallel_lists(value)) is not None:
        names = {join_words(str(key)).removesuffix("s") for key in value}
        return bool(rows) and (len(rows) > 1 or "id" in names) and bool(names & SPREAD_NAMES)
    if not all(any(letter.isdigit() for letter in str(key)) for key in value):
        return False
    return all(
        find_text_key(unwrap_passage(item)) if isinstance(item, dict) else is_passage_text(item)
        for item in value.values()
    )


SPREAD_NAMES = frozenset(
    ("document", "passagetext", "text", "content", "passage", "chunk", "sentence", "id", "score", "distance", "title")
)
"""Names, without the plural, of lists that stand parallel to one another."""


def _join_parallel_lists(value: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Join an object of equally long lists, one of them of texts, to one object for each place."""
    lists = {key: part for key, part in list_parallel(value).items() if part}
    lengths = {len(part) for part in lists.values()}
    keys = [key for key, part in lists.items() if any(is_passage_text(item) for item in part)]
    if len(lists) < 2 or len(lengths) != 1 or not keys or any(isinstance(passage, dict) for passage in lists[keys[0]]):
        return None
    if any(isinstance(item, dict) and find_text_key(item) for key in LIST_KEYS for item in lists.get(key, ())):
        # a list of whole passages, next to lists of their parts
        return None
    text = min(keys, key=lambda key: TEXT_KEY_RANKS.get(join_words(key), 99 - len(str(lists[key]))))
    names = {text: "text", **{key: "score" for key in lists if join_words(key) in ("scores", "similarities")}}
    size = lengths.pop()
    return [{names.get(key, key): part[i] for key, part in lists.items()} for i in range(size)]


def expand_passage(value: Any) -> list[Any] | None:
    """Expand an object that is no passage but holds some: as parallel lists, or as a list under a usual key.

    >>> expand_passage({"document": ["Oslo, 1040", "Bergen, 1070"], "distances": [0.1, 0.2]})[1]["text"]
    'Bergen, 1070'
    """
    if not isinstance(value, dict) or any(isinstance(value.get(key), str) for key in TEXT_KEYS):
        return None
    if "sentences" not in value and (rows := _join_parallel_lists(value)) is not None:
        return rows
    lists = [value[key] for key in LIST_KEYS if isinstance(value.get(key), list)]
    return next((inner for inner in lists if _classify_list(inner) == "passages"), None)


def is_passage_text(value: Any) -> bool:
    """Tell whether a value is a text of language, or a list of sentences."""
    if isinstance(value, str):
        return count_words(value) >= 2 and not is_code(value)
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def _is_listed_passage(value: Any) -> bool:
    """Tell whether a list is one passage: a text with its score, id or title, or a title with its sentences."""
    if not isinstance(value, (list, tuple)) or not 2 <= len(value) <= 4:
        return False
    kinds = {type(item) for item in value}
    if kinds & {int, float} and kinds & {str, dict}:
        return True
    return isinstance(value[0], str) and isinstance(value[1], list) and is_text_list(value[1])


def read_listed_passage(value: Sequence[Any]) -> dict[str, Any] | None:
    """Read a passage that is a list: `[text, score]`, `[id, text]`, `[title, sentences]`; None where it is none.

    >>> read_listed_passage(["Oslo, founded 1040.", 0.5]), read_listed_passage(["Oslo", ["It is old."]])
    ({'text': 'Oslo, founded 1040.', 'score': 0.5}, {'text': 'It is old.', 'id': 'Oslo'})
    """
    matches: dict[str, Any] = {}
    objects = [item for item in value if isinstance(item, dict)]
    sentences = [item for item in value if isinstance(item, list) and is_text_list(item)]
    texts = sorted((item for item in value if isinstance(item, str)), key=len)
    if objects:
        matches |= objects[0]
    elif sentences:
        matches["text"] = join_text(sentences[0])
    elif texts:
        matches["text"] = texts.pop()
    else:
        return None
    if texts and "text" in matches:
        matches["id"] = texts[-1]
    numbers = [item for item in value if isinstance(item, (int, float)) and not isinstance(item, bool)]
    if numbers:
        matches.setdefault("score", numbers[-1])
    return matches


SplitMarks = Literal["headings", "separators", "never"]
"""Marks at which a text is split to passages: `[1]`, `Document 2:`, rules and `|||`; `|||` and the like alone; none."""


def split_passages(text: str, marks: SplitMarks = "headings") -> list[str]:
    """Split a text of several passages at marks.

    A blank line is none of them: one passage may hold it.

    >>> split_passages("Oslo, 1040 ||| Bergen, 1070"), split_passages("[1] Oslo\\n[2] Bergen"), split_passages("Oslo")
    (['Oslo, 1040', 'Bergen, 1070'], ['Oslo', 'Bergen'], ['Oslo'])
    """
    if marks == "never":
        return [text]
    if tagged := _split_tags(text):
        return tagged
    headings = list(NUMBERED_HEADING.finditer(text)) if marks == "headings" else []
    if len(headings) > 1 and not text[: headings[0].start()].strip():
        ends = [*(heading.start() for heading in headings[1:]), len(text)]
        parts = [text[heading.end() : end] for heading, end in zip(headings, ends, strict=True)]
    elif headings and headings[0].start() == 0:
        is_first = len(headings) == 1 and int(headings[0][1] or headings[0][2]) < 2
        return [text[headings[0].end() :].strip() or text] if is_first else [text]
    else:
        parts = (RULED_SEPARATOR if marks == "headings" else SEPARATOR).split(text)
    parts = [part.strip() for part in parts if part and part.strip()]
    return parts if len(parts) > 1 else [text]


NAMED_HEADING = re.compile(
    rf"^[ \t]*(?P<name>https?://\S+|{FILE_STEM}(?:#[^\s:]{{1,40}})?):(?:[ \t]+|[ \t]*\n)", re.MULTILINE
)
"""A line that begins with the name of a file or with an address: what follows is from there."""


def split_named_passages(text: str) -> list[dict[str, str]]:
    """Split a text whose passages each begin with the file they are from; empty where it is anything else.

    >>> split_named_passages("a.pdf#page=1: Oslo, 1040\\nb.pdf: Bergen, 1070")
    [{'doc_id': 'a.pdf#page=1', 'text': 'Oslo, 1040'}, {'doc_id': 'b.pdf', 'text': 'Bergen, 1070'}]
    """
    headings = list(NAMED_HEADING.finditer(text))
    if not headings or text[: headings[0].start()].strip():
        return []
    ends = [*(heading.start() for heading in headings[1:]), len(text)]
    return [
        {"doc_id": heading["name"], "text": text[heading.end() : end].strip()}
        for heading, end in zip(headings, ends, strict=True)
    ]


def _split_tags(text: str) -> list[str]:
    """Split a text that is nothing but passages in tags; empty where it is anything else."""
    matches = list(TAGGED_PASSAGE.finditer(text)) if "</" in text else []
    if not matches or TAG.sub("", TAGGED_PASSAGE.sub("", text)).strip():
        return []
    texts = [inner[2] if (inner := TAGGED_TEXT.search(match[2])) else match[2] for match in matches]
    return [bare for item in texts if (bare := item.strip())]


JOINING_MARKS = ("|||", "|", ";", ",")


def split_joined(text: str, size: int | None = None) -> list[str] | None:
    """Split a cell of ids or names at the mark that joins them, into so many where that is known; None where none does.

    >>> split_joined("a.md|b.md"), split_joined("c1; c2, c3", 2), split_joined("a.md"), split_joined("a.md|b.md", 3)
    (['a.md', 'b.md'], ['c1', 'c2, c3'], None, None)
    """
    for mark in JOINING_MARKS:
        parts = [part.strip() for part in text.split(mark)]
        if len(parts) > 1 and all(parts) and (size is None or len(parts) == size):
            return parts
    return None


def align_joined(text: str, names: str) -> tuple[list[str], list[str]] | None:
    """Split the texts in a cell, and their ids or names in another, where both are joined alike; None otherwise.

    >>> align_joined("It leaves at six.|Tickets are free.", "a.md|b.md")
    (['It leaves at six.', 'Tickets are free.'], ['a.md', 'b.md'])
    """
    texts = split_passages(text)
    if len(texts) > 1:
        parts = split_joined(names, len(texts))
        return None if parts is None else (texts, parts)
    for mark in ("|", ";"):
        columns = [[part.strip() for part in cell.split(mark)] for cell in (text, names)]
        if len(columns[0]) == len(columns[1]) > 1 and all(map(all, columns)):
            return columns[0], columns[1]
    return None


PROMPT_MARK = r"^[#* \t]*(?:(?:the|given|your|user|user's|retrieved|relevant|helpful) ){0,3}"
CONTEXT_MARK = re.compile(
    PROMPT_MARK + r"(?:contexts?|documents?|passages?|sources|search results)\b[^\n:]{0,30}:[ *]*$", re.I | re.M
)
QUESTION_MARK = re.compile(PROMPT_MARK + r"(?:question|query)\b[^\n:]{0,15}:[ *]*", re.I | re.M)
ANSWER_MARK = re.compile(PROMPT_MARK + r"(?:answer|response|assistant)\b[^\n:]{0,15}:[ *\n]*\Z", re.I | re.M)
"""Lines of a whole prompt: above what was retrieved, before the question, and where the answer is to begin."""
TAGGED_CONTEXTS = re.compile(
    r"<((?:retrieved_)?(?:contexts?|documents|passages|sources|chunks)|search_results)>(.*?)</\1>", re.I | re.S
)
TAGGED_QUESTION = re.compile(r"<((?:user_)?(?:question|query))>(.*?)</\1>", re.I | re.S)
"""The same parts in tags."""


def split_prompt(text: str) -> tuple[str, list[str]] | None:
    """Split a rendered prompt into the question and the passages that it lists; None where it is none.

    >>> split_prompt("Use this.\\nContext:\\nOslo, 1040\\n---\\nBergen, 1070\\nQuestion: When?\\nAnswer:")
    ('When?', ['Oslo, 1040', 'Bergen, 1070'])
    """
    tagged, tagged_question = TAGGED_CONTEXTS.search(text), TAGGED_QUESTION.search(text)
    if tagged and tagged_question and tagged_question[2].strip():
        contexts = tagged[2].strip()
        return tagged_question[2].strip(), split_passages(contexts) if contexts else []
    begin, question_marks = CONTEXT_MARK.search(text), list(QUESTION_MARK.finditer(text))
    if begin is None or not question_marks or question_marks[-1].start() <= begin.end():
        return None
    end = ANSWER_MARK.search(text, question_marks[-1].end())
    question = text[question_marks[-1].end() : end.start() if end else len(text)].strip()
    contexts = text[begin.end() : question_marks[-1].start()].strip()
    return (question, split_passages(contexts) if contexts else []) if question else None


def split_contexts(text: str) -> list[str]:
    """Split the passages that a prompt without the question lists, such as that of the system; empty if it has none.

    >>> split_contexts("Use this.\\nContext:\\n[1] Oslo, 1040\\n[2] Bergen, 1070")
    ['Oslo, 1040', 'Bergen, 1070']
    """
    tagged, begin = TAGGED_CONTEXTS.search(text), CONTEXT_MARK.search(text)
    contexts = tagged[2].strip() if tagged else text[begin.end() :].strip() if begin else ""
    return split_passages(contexts) if contexts else []


def choose_split(path: str, values: Sequence[Any]) -> SplitMarks:
    """Choose how the texts of a column are split: by headings where most of them have some, never by a single name.

    >>> choose_split("contexts", ["[1] Oslo\\n[2] Bergen"]), choose_split("passage", ["Oslo ||| Bergen"])
    ('headings', 'never')
    """
    if set(split_words(path)[-1:]) & SINGLE_NAMES:
        return "never"
    texts = [value for value in values if isinstance(value, str) and value.strip()]
    split = sum(len(split_passages(text)) > len(split_passages(text, "separators")) for text in texts)
    return "headings" if texts and 2 * split >= len(texts) else "separators"


def classify(value: Any) -> str:
    """Classify a value: empty, flag, number, code, word, text, codes, words, texts, passages, conversation and others.

    >>> classify("When does it leave?"), classify("d-17"), classify(["The ferry leaves."]), classify({"a": 1})
    ('text', 'code', 'texts', 'object')
    """
    value = parse_list_text(value) if isinstance(value, str) else value
    if value is None or value in ("", [], {}) or (isinstance(value, str) and not value.strip()):
        return "empty"
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, (str, list, dict)) and find_turns(value) is not None:
        return "conversation"
    if isinstance(value, str):
        return "code" if is_code(value) else "text" if count_words(value) > 1 else "word"
    if isinstance(value, (list, tuple)):
        return _classify_list(value)
    if isinstance(value, dict):
        return "passages" if _holds_passages(value) else "object"
    return "code"


def _holds_passages(value: dict[str, Any]) -> bool:
    """Tell whether an object is passages, or holds them under a usual key."""
    if is_spread_passages(value):
        return True
    inner = [value[key] for key in LIST_KEYS if isinstance(value.get(key), (list, dict)) and key != "data"]
    inner += [item for item in value.values() if len(value) == 1 and isinstance(item, (list, dict))]
    return any(
        _classify_list(item) in ("passages", "texts") if isinstance(item, list) else _holds_passages(item)
        for item in inner
    )


def _classify_list(value: Sequence[Any]) -> str:
    parts = [item for item in value if item is not None and item != ""]
    if not parts:
        return "empty"
    if all(isinstance(part, str) for part in parts):
        if all(is_code(part) for part in parts):
            return "codes"
        return "texts" if max(map(count_words, parts)) > 2 else "words"
    if all(isinstance(part, dict) for part in parts):
        text_keys = [find_text_key(unwrap_passage(part)) for part in parts]
        return "passages" if any(text_keys) else "objects"
    if all(isinstance(part, (list, tuple)) for part in parts):
        if all(_is_listed_passage(part) for part in parts):
            return "passages"
        return "texts" if len(parts) == 1 and _classify_list(parts[0]) == "texts" else "lists"
    return "numbers" if all(isinstance(part, (int, float)) for part in parts) else "lists"
