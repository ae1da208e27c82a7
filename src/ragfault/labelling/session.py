"""A sitting at which one person labels: where it stands, what was said, and how it is taken back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ragfault.labelling.asking import Item, choices, labelled
from ragfault.runs.labels import (
    BLIND,
    Key,
    Label,
    Word,
    append_label,
    fingerprint,
    read_labels,
    words,
    write_labels,
)

__all__ = ["Session"]


class Session:
    """Items asked one after the other; each word is on the disk before the next item is shown.

    What the same person said before, in this file and of the same answer, is not asked again. `chances` are those with
    which traces were drawn, and stand in their labels.

    >>> from ragfault.labelling.asking import items
    >>> from ragfault.records import Trace, Verdicts
    >>> trace = Trace(id="1", query="When?", answer="No.")
    >>> import tempfile
    >>> session = Session(items(trace, Verdicts(trace="1")), tempfile.mkdtemp() + "/labels.jsonl", "ann")
    >>> session.say("y"), session.item, session.said
    (True, None, 1)
    """

    def __init__(
        self, found: Iterable[Item], path: str | Path, by: str, chances: Mapping[str, float] | None = None
    ) -> None:
        self.path, self.by, self._chances = Path(path), by, chances or {}
        self.said = 0
        """Words of this sitting, those that were taken back not counted."""
        self._words = _before(self.path, by)
        self._rest: Iterator[Item] = iter(found)
        self._shown: list[Item] = []
        self._at = -1
        self._undo: list[tuple[int, Label, Word | None]] = []
        self._onward()

    @property
    def item(self) -> Item | None:
        """What is asked now; None where all has been."""
        return self._shown[self._at] if 0 <= self._at < len(self._shown) else None

    @property
    def word(self) -> Word | None:
        """What this person said of the present item before."""
        item = self.item
        return None if item is None else self._words.get(_name(item))

    def say(self, letter: str) -> bool:
        """Say a word by its letter, write it down, and go on; False where no word of the item has that letter."""
        item = self.item
        word = next((c.word for c in choices(item.kind) if c.letter == letter), None) if item else None
        if item is None or word is None:
            return False
        label = labelled(item, word, self.by, self._chances.get(item.trace.id))
        append_label(self.path, label)
        self._undo.append((self._at, label, self.word))
        self._words[_name(item)] = word
        self.said += 1
        self._onward()
        return True

    def skip(self) -> None:
        """Leave the item unsaid, and go on."""
        self._onward()

    def back(self) -> bool:
        """Go to the item before, to say it anew; False at the first."""
        if self._at <= 0:
            return False
        self._at -= 1
        return True

    def undo(self) -> bool:
        """Take back the last word of this sitting, also from the file, and ask it again; False where there is none."""
        if not self._undo:
            return False
        self._at, label, before = self._undo.pop()
        kept = read_labels(self.path)
        last = max(at for at, each in enumerate(kept) if each == label)
        write_labels(self.path, [*kept[:last], *kept[last + 1 :]])
        name = _name(self._shown[self._at])
        del self._words[name]
        if before is not None:
            self._words[name] = before
        self.said -= 1
        return True

    def _onward(self) -> None:
        """Go to the next item of which nothing was said."""
        self._at += 1
        while True:
            while self._at >= len(self._shown):
                item = next(self._rest, None)
                if item is None:
                    self._at = len(self._shown)
                    return
                self._shown.append(item)
            if _name(self._shown[self._at]) not in self._words:
                return
            self._at += 1


Name = tuple[str, str | None, Key]


def _name(item: Item) -> Name:
    """What a word holds for: the item with the answer that was shown, or with any where that does not matter."""
    answer = None if item.key[0] in BLIND else fingerprint(item.trace)
    return item.trace.id, answer, item.key


def _before(path: Path, by: str) -> dict[Name, Word]:
    """What a person said before."""
    if not path.exists() or not path.stat().st_size:
        return {}
    found: dict[Name, Word] = {}
    for label in read_labels(path):
        if label.by == by:
            for key, word in words(label.verdicts).items():
                found[label.trace, None if key[0] in BLIND else label.answer, key] = word
    return found
