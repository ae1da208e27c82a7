"""Sitting of one person who answers items one after the other by single keys, whatever the items and answers are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct

from ragfault.labels.reading.answer_files import append_answer, remove_answer

Item = TypeVar("Item")
Answer = TypeVar("Answer", bound=Struct)

KEY_ALIASES = {"\x1b[D": "b", "\x7f": "z", "\x08": "z", "\r": "", "\n": ""}
"""Letters that keys without a letter stand for."""


class SavedAnswer(NamedTuple, Generic[Answer]):
    """Answer of this sitting that can be undone."""

    position: int
    """Position of the item that was shown."""
    answer: Answer
    decides: bool
    """Whether the answer is one to that item."""


class Sitting(Generic[Item, Answer]):
    """Walk over items in which each answer is on disk before the next item is shown."""

    def __init__(self, items: Iterable[Item], path: str | Path) -> None:
        self.path = Path(path)
        self.saved: list[SavedAnswer[Answer]] = []
        self._remaining: Iterator[Item] = iter(items)
        self._shown: list[Item] = []
        self._position = -1
        self.skip()

    @property
    def item(self) -> Item | None:
        """Return the current item; None at the end."""
        return self._shown[self._position] if 0 <= self._position < len(self._shown) else None

    @property
    def decided(self) -> dict[int, Answer]:
        """Map the positions of the items that were answered to their last answers."""
        return {saved.position: saved.answer for saved in self.saved if saved.decides}

    @property
    def decision(self) -> Answer | None:
        """Return the last answer of this sitting to the current item."""
        return self.decided.get(self._position)

    def save(self, answer: Answer, *, decides: bool = True) -> None:
        """Write an answer to disk, and advance if it decides on the current item."""
        append_answer(self.path, answer)
        self.saved.append(SavedAnswer(self._position, answer, decides))
        if decides:
            self.skip()

    def skip(self) -> None:
        """Advance to the next item without an answer."""
        while True:
            self._position += 1
            if self._position >= len(self._shown):
                item = next(self._remaining, None)
                if item is None:
                    self._position = len(self._shown)
                    return
                self._shown.append(item)
            if not self.is_answered():
                return

    def back(self) -> bool:
        """Return to the previous item; False at the first."""
        if self._position <= 0:
            return False
        self._position -= 1
        return True

    def undo(self) -> bool:
        """Remove the last answer of this sitting, also from the file, and ask again; False without one."""
        if not self.saved:
            return False
        last = self.saved.pop()
        remove_answer(self.path, last.answer)
        self._position = last.position
        return True

    def is_answered(self) -> bool:
        """Tell whether the person has answered the current item."""
        return self._position in self.decided


def ask_items(
    sitting: Sitting[Item, Answer],
    read: Callable[[], str | None],
    show: Callable[[str], None],
    answer: Callable[[str], object],
) -> bool:
    """Ask until every item is answered or the person quits; return whether items are left.

    Space skips, b goes back, z undoes, q quits. `show` prints the current item and gets the last key, `answer` gets
    any other key; one that means nothing changes nothing.
    """
    key = ""
    while sitting.item is not None:
        show(key)
        pressed = _read_command(read)
        if pressed in (None, "q"):
            return True
        key = pressed or ""
        walk: dict[str, Callable[[], object]] = {" ": sitting.skip, "b": sitting.back, "z": sitting.undo}
        walk.get(key, partial(answer, key))()
    return False


def _read_command(read: Callable[[], str | None]) -> str | None:
    """Return the next key that means something; None if there are no more."""
    while (key := read()) is not None:
        key = KEY_ALIASES.get(key, key).lower()
        if key:
            return key
    return None
