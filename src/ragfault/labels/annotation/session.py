"""Session of one person who answers questions one after the other: each label is on disk before the next is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from ragfault.labels.label import Label, QuestionName, normalize_name
from ragfault.labels.reading.label_files import append_label, read_saved_labels, remove_label

Content = TypeVar("Content")

KEY_ALIASES = {"\x1b[D": "b", "\x7f": "z", "\x08": "z", "\r": "", "\n": ""}
"""Letters that keys without a letter stand for."""


class Question(NamedTuple, Generic[Content]):
    """Question to a person."""

    content: Content
    """What is asked about."""
    name: QuestionName
    """`Label.question` of the labels that answer it."""
    answers: Mapping[str, Callable[[], Label | None]]
    """Key → label that it stands for; None if the person changes their mind."""


class SavedLabel(NamedTuple):
    """Label of this session that can be undone."""

    position: int
    """Position of the question that was shown."""
    label: Label
    previous: Label | None
    """Earlier label of the person for the same question."""


class Session(Generic[Content]):
    """Walk over questions, whatever they are about.

    Questions that the same person answered before, in this file, are skipped: the session resumes where it ended.
    `layout` is that of the file; `previous` are the earlier labels, by default those of the file.

    >>> import tempfile
    >>> label = Label(trace="1", subject=("answer", "refused"), value=True, annotator="ann")
    >>> question = Question("Does it refuse?", label.question, {"y": lambda: label})
    >>> session = Session([question], tempfile.mkdtemp() + "/labels.jsonl", "ann")
    >>> session.press("y"), session.question, session.label_count
    (True, None, 1)
    """

    def __init__(
        self,
        questions: Iterable[Question[Content]],
        path: str | Path,
        annotator: str,
        layout: str = "verdicts",
        previous: Iterable[Label] | None = None,
    ) -> None:
        self.path, self.layout = Path(path), layout
        person = normalize_name(annotator)
        previous = read_saved_labels(path, layout) if previous is None else previous
        self._answers = {label.question: label for label in previous if label.person == person}
        self._saved: list[SavedLabel] = []
        self._remaining: Iterator[Question[Content]] = iter(questions)
        self._shown: list[Question[Content]] = []
        self._position = -1
        self.skip()

    @property
    def question(self) -> Question[Content] | None:
        """Return the current question; None at the end."""
        return self._shown[self._position] if 0 <= self._position < len(self._shown) else None

    @property
    def answer(self) -> Label | None:
        """Return the last label of the person for the current question, of this session or before."""
        return None if self.question is None else self._answers.get(self.question.name)

    @property
    def label_count(self) -> int:
        """Return the number of labels of this session, without those that were undone."""
        return len(self._saved)

    @property
    def answered_count(self) -> int:
        """Return the number of questions that were answered in this session."""
        return len({saved.label.question for saved in self._saved} & {question.name for question in self._shown})

    def press(self, key: str) -> bool:
        """Save the label that a key stands for, and advance if it answers the question; False if there is none."""
        question = self.question
        build = None if question is None else question.answers.get(key)
        label = None if build is None else build()
        if question is None or label is None:
            return False
        append_label(self.path, label, self.layout)
        self._saved.append(SavedLabel(self._position, label, self._answers.get(label.question)))
        self._answers[label.question] = label
        if label.question == question.name:
            self.skip()
        return True

    def skip(self) -> None:
        """Advance to the next question that is not answered."""
        while True:
            self._position += 1
            if self._position >= len(self._shown):
                question = next(self._remaining, None)
                if question is None:
                    self._position = len(self._shown)
                    return
                self._shown.append(question)
            if self.answer is None:
                return

    def back(self) -> bool:
        """Return to the previous question; False at the first."""
        if self._position <= 0:
            return False
        self._position -= 1
        return True

    def undo(self) -> bool:
        """Remove the last label of this session, also from the file, and ask again; False without one."""
        if not self._saved:
            return False
        last = self._saved.pop()
        remove_label(self.path, last.label, self.layout)
        del self._answers[last.label.question]
        if last.previous is not None:
            self._answers[last.label.question] = last.previous
        self._position = last.position
        return True


def ask_questions(
    session: Session[Content], read: Callable[[], str | None], show: Callable[[Question[Content], str], None]
) -> bool:
    """Ask until every question is answered or the person quits; return whether questions are left.

    Space skips, b goes back, z undoes, q quits; any other key is one of the question, or means nothing. `show` prints
    the current question and gets the last key.
    """
    key = ""
    while (question := session.question) is not None:
        show(question, key)
        pressed = _read_command(read)
        if pressed in (None, "q"):
            return True
        key = pressed or ""
        walk: dict[str, Callable[[], object]] = {" ": session.skip, "b": session.back, "z": session.undo}
        if key in walk:
            walk[key]()
        else:
            session.press(key)
    return False


def _read_command(read: Callable[[], str | None]) -> str | None:
    """Return the next key that means something; None if there are no more."""
    while (key := read()) is not None:
        key = KEY_ALIASES.get(key, key).lower()
        if key:
            return key
    return None
