"""Paths into records: names joined by dots, `[0]`, `[-1]`, and `*` for numbered names.

`[]` stands for every item of a list or every row of an object of equally long lists, `[type=retriever]` for the items
whose `type` is that, `[name~search|find]` for those whose `name` holds one of these words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

ABSENT: Any = type("Absent", (), {"__repr__": lambda _: "ABSENT"})()
"""What a path that leads nowhere gives; None is a value."""
PLACE = r"-?\d+|[^\[\]=~]+[=~][^\[\]]*"
BRACKETS = re.compile(rf"^(.*?)((?:\[(?:{PLACE})?\])+)$", re.DOTALL)
BRACKET = re.compile(rf"\[({PLACE})?\]")
MAX_PATH_DEPTH = 10
"""Deepest objects whose keys are columns."""
MAX_EMBEDDED_BYTES = 2**24
"""Longest text that is parsed on the way of a path."""


def parse_embedded(value: Any) -> Any:
    """Parse a text that is a JSON object or list; return anything else unchanged.

    >>> parse_embedded('{"query": "When?"}'), parse_embedded("[1040")
    ({'query': 'When?'}, '[1040')
    """
    if isinstance(value, str) and value[:1] in "{[ \n\r\t" and value.rstrip()[-1:] in ("}", "]"):
        try:
            return msgspec.json.decode(value) if len(value) <= MAX_EMBEDDED_BYTES else value
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            pass
    return value


class ColumnFunction(str):
    """A function of a record in the place of a column; as a text it is the name of the function.

    >>> column = ColumnFunction.wrap(lambda record: record["hits"][0]["body"])
    >>> get_path({"hits": [{"body": "At ten."}]}, column)
    'At ten.'
    """

    function: Callable[[Any], Any]

    @classmethod
    def wrap(cls, function: Callable[[Any], Any]) -> ColumnFunction:
        """Return a function as a column."""
        column = cls(f"{getattr(function, '__name__', type(function).__name__)}()")
        column.function = function
        return column

    def call(self, record: Any) -> Any:
        """Return what the function makes of a record; `ABSENT` where it looks for a part that the record lacks."""
        try:
            return self.function(record)
        except (LookupError, TypeError, AttributeError):
            return ABSENT


def get_path(record: Any, path: str) -> Any:
    """Return the value at a path, or `ABSENT`.

    A name is taken literally first, dots, brackets and all. `NAME[]` gives a list of what the rest of the path finds
    in each item, `NAME[KEY=VALUE]` one of what it finds in the items that have this value,
    `context_*` one of the values of `context_1`, `context_2` … in the order of their numbers.

    >>> turns = {"messages": [{"content": "Hello"}, {"content": "When?"}]}
    >>> get_path(turns, "messages[-1].content"), get_path(turns, "messages[].content"), get_path(turns, "a.b")
    ('When?', ['Hello', 'When?'], ABSENT)
    >>> get_path({"doc_2": "b", "doc_10": "c", "doc_1": "a"}, "doc_*")
    ['a', 'b', 'c']
    >>> get_path({"steps": [{"type": "llm"}, {"type": "search", "output": "b"}]}, "steps[type=search].output")
    ['b']
    >>> get_path({"hits": {"text": ["a", "b"], "rank": [1, 2]}}, "hits[].text")
    ['a', 'b']
    """
    if isinstance(path, ColumnFunction):
        return path.call(record)
    record = parse_embedded(record)
    if isinstance(record, dict):
        return record[path] if path in record else _get_below_object(record, path)
    if isinstance(record, (list, tuple)):
        step, _, rest = path.partition(".")
        if step.removeprefix("-").isdecimal() and -len(record) <= int(step) < len(record):
            return get_path(record[int(step)], rest) if rest else record[int(step)]
    return ABSENT


def _get_below_object(record: dict[str, Any], path: str) -> Any:
    """Try every prefix of the path as the name of a key, the longest first."""
    ends = [len(path), *(i for i in range(len(path) - 1, 0, -1) if path[i] == ".")]
    for end in ends:
        step, rest = path[:end], path[end + 1 :]
        if rest and step in record:
            matches = get_path(record[step], rest)
        elif (brackets := BRACKETS.match(step)) and brackets[1] in record:
            matches = _get_items(record[brackets[1]], BRACKET.findall(brackets[2]), rest)
        elif "*" in step:
            matches = _get_numbered(record, step, rest)
        else:
            continue
        if matches is not ABSENT:
            return matches
    return ABSENT


def _get_items(value: Any, brackets: list[str], rest: str) -> Any:
    """Return an item, or what the rest of the path finds in every item."""
    value = parse_embedded(value)
    if not brackets:
        return get_path(value, rest) if rest else value
    if isinstance(value, dict) and not brackets[0]:
        value = _list_rows(value)
    if not isinstance(value, (list, tuple)):
        return ABSENT
    if "=" in brackets[0] or "~" in brackets[0]:
        value = [item for item in value if _has_value(item, brackets[0])]
        if not value:
            return ABSENT
        if len(brackets) > 1 and brackets[1]:
            return _get_items(value, brackets[1:], rest)
    elif brackets[0]:
        place = int(brackets[0])
        return _get_items(value[place], brackets[1:], rest) if -len(value) <= place < len(value) else ABSENT
    matches = [_get_items(item, brackets[1:], rest) for item in value]
    if matches and all(item is ABSENT for item in matches):
        return ABSENT
    return [None if item is ABSENT else item for item in matches]


def _has_value(item: Any, condition: str) -> bool:
    """Tell whether an item has the value that a place such as `type=retriever` or `name~search|find` asks for."""
    mark = "=" if "=" in condition else "~"
    key, _, expected = condition.partition(mark)
    value = get_path(item, key)
    if mark == "=":
        return bool(value == expected)
    return isinstance(value, str) and any(word in value.lower() for word in expected.split("|"))


def _list_rows(value: dict[str, Any]) -> list[dict[str, Any]] | None:
    """List the rows of an object of equally long lists; None where it is none."""
    lists = list_parallel(value)
    sizes = {len(item) for item in lists.values()}
    return [{key: item[i] for key, item in lists.items()} for i in range(sizes.pop())] if len(sizes) == 1 else None


def list_parallel(value: dict[str, Any]) -> dict[str, list[Any]]:
    """List the lists of an object; where some stand in a list of one query, as in Chroma, these alone.

    >>> list_parallel({"ids": [["a", "b"]], "documents": [["Oslo", "Bergen"]], "included": ["documents"]})
    {'ids': ['a', 'b'], 'documents': ['Oslo', 'Bergen']}
    """
    lists = {key: part for key, part in value.items() if isinstance(part, list)}
    nested = {key: part[0] for key, part in lists.items() if len(part) == 1 and isinstance(part[0], list)}
    return nested if len(nested) > 1 else lists


def list_numbered(names: Any, pattern: str) -> list[str]:
    """List the names that a pattern with one `*` in the place of a number fits, by their numbers.

    >>> list_numbered(["doc10", "doc2", "docs"], "doc*")
    ['doc2', 'doc10']
    """
    head, _, tail = pattern.partition("*")
    form = re.compile(re.escape(head) + r"(\d{1,9})" + re.escape(tail))
    matches = [(int(match[1]), name) for name in names if (match := form.fullmatch(name))]
    return [name for _, name in sorted(matches)]


def _get_numbered(record: dict[str, Any], pattern: str, rest: str) -> Any:
    names = list_numbered(record, pattern)
    values = [get_path(record[name], rest) if rest else record[name] for name in names]
    return [None if value is ABSENT else value for value in values] if names else ABSENT


def count_spread(path: str) -> int:
    """Count the places of a path at which it takes many items.

    >>> count_spread("a[].b[type=c].d[0]")
    2
    """
    places = BRACKET.findall(path)
    return sum(not place or "=" in place or "~" in place for place in places)


def get_root(record: dict[str, Any], path: str) -> list[str]:
    """List the keys of the record that a path begins at; more than one where it has a `*`.

    >>> get_root({"a.b": 1, "c": {}}, "a.b"), get_root({"docs": []}, "docs[].text"), get_root({"d1": 1}, "d*")
    (['a.b'], ['docs'], ['d1'])
    """
    ends = [len(path), *(i for i in range(len(path) - 1, 0, -1) if path[i] == ".")]
    for end in ends:
        step = path[:end]
        if step in record:
            return [step]
        if (brackets := BRACKETS.match(step)) and brackets[1] in record:
            return [brackets[1]]
        if "*" in step and (names := list_numbered(record, step)):
            return names
    return []


def remove_paths(record: dict[str, Any], paths: list[str]) -> dict[str, Any]:
    """Return the record without what the paths lead to; objects that are emptied go, too.

    >>> remove_paths({"inputs": {"question": "When?", "user": 3}, "docs": [{"text": "a"}]}, ["inputs.question", "docs"])
    {'inputs': {'user': 3}}
    """
    spare = dict(record)
    for path in paths:
        _remove_path(spare, path)
    return spare


def _remove_path(spare: dict[str, Any], path: str) -> None:
    for name in get_root(spare, path):
        rest = path[len(name) + 1 :] if path.startswith(f"{name}.") else ""
        inner = parse_embedded(spare[name])
        if rest and isinstance(inner, dict):
            inner = dict(inner)
            _remove_path(inner, rest)
            if inner:
                spare[name] = inner
                continue
        if not rest or not isinstance(inner, (list, tuple)):
            del spare[name]


def list_paths(
    record: dict[str, Any], depth: int = MAX_PATH_DEPTH, prefix: str = "", is_leaf: Callable[[Any], bool] = bool
) -> Iterator[tuple[str, Any]]:
    """Yield every path down to a depth with its value, the objects themselves included; not into what `is_leaf`.

    Of lists, only those of a single object are entered.
    """
    for name, content in record.items():
        path, value = f"{prefix}{name}", parse_embedded(content)
        yield path, value
        if isinstance(value, dict) and depth > 1 and not (is_leaf is not bool and is_leaf(value)):
            yield from list_paths(value, depth - 1, f"{path}.", is_leaf)
        while isinstance(value, list) and len(value) == 1 and isinstance(value[0], (list, dict)):
            path, value = f"{path}[0]", value[0]
        if path.endswith("[0]") and isinstance(value, dict) and depth > 1:
            yield from list_paths(value, depth - 1, f"{path}.", is_leaf)
