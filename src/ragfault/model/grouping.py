"""Groups of items: by a key, by position, and of what shares a mark with others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
Name = TypeVar("Name", bound=Hashable)


def group_by(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Map each key to its items; keys stand in the order of their first items.

    >>> group_by(["ferry", "pier", "fare"], lambda word: word[0])
    {'f': ['ferry', 'fare'], 'p': ['pier']}
    """
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def group_positions(keys: Iterable[Key]) -> dict[Key, list[int]]:
    """Map each key to the positions, from 0, at which it stands.

    >>> group_positions("abca")
    {'a': [0, 3], 'b': [1], 'c': [2]}
    """
    groups: dict[Key, list[int]] = {}
    for position, key in enumerate(keys):
        groups.setdefault(key, []).append(position)
    return groups


def join_by_marks(marks: Mapping[Name, Sequence[Key]]) -> dict[Name, Key]:
    """Map each name to one mark of its group: the names that share a mark, directly or through others.

    Each name has at least one mark. The groups are the connected components, found by union-find.

    >>> join_by_marks({"a": ["red"], "b": ["red", "blue"], "c": ["blue"], "d": ["green"]})
    {'a': 'red', 'b': 'red', 'c': 'red', 'd': 'green'}
    """
    parents: dict[Key, Key] = {}

    def find_root(mark: Key) -> Key:
        while parents.setdefault(mark, mark) != mark:
            parents[mark] = parents[parents[mark]]
            mark = parents[mark]
        return mark

    for members in marks.values():
        for other in members[1:]:
            parents[find_root(other)] = find_root(members[0])
    return {name: find_root(members[0]) for name, members in marks.items()}
