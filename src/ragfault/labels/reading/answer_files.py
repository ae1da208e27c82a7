"""Files of answers that people gave, one JSON record a line: written by one process at a time, each line synced."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from ragfault.io.atomic_files import convert_write_errors, lock_folder, write_atomically
from ragfault.io.files import MAX_LINE, iterate_lines, open_bytes
from ragfault.model.errors import BadLine

Answer = TypeVar("Answer", bound=Struct)


class AnswerFile(NamedTuple, Generic[Answer]):
    """Content of a file of answers."""

    answers: list[Answer]
    bad_lines: list[BadLine]
    """Lines that are not answers, in order."""
    is_torn: bool
    """Whether the last bad line is the last of the file and lacks its end: the writer was killed in the middle."""

    @property
    def faults(self) -> list[BadLine]:
        """List the bad lines other than a torn one, which was never acknowledged and which the next answer replaces."""
        return self.bad_lines[:-1] if self.is_torn else self.bad_lines


def read_answers(path: str | Path, answer_type: type[Answer]) -> AnswerFile[Answer]:
    """Read the answers of a file (JSON Lines, plain or compressed), and collect all lines that are not answers.

    Raises InputError for a file that cannot be opened.
    """
    answers: list[Answer] = []
    bad_lines: list[BadLine] = []
    decoder = msgspec.json.Decoder(answer_type)
    is_torn = False
    stream = open_bytes(str(path))
    with stream.body as body:
        for number, line, _ in iterate_lines(body):
            if not line.strip():
                continue
            try:
                answers.append(decoder.decode(line))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                bad_lines.append(BadLine(str(path), number, str(error)))
                is_torn = not line.endswith(b"\n") and not _is_json(line)
    if stream.read_error:
        bad_lines.append(BadLine(str(path), len(answers) + len(bad_lines) + 1, stream.read_error))
        is_torn = False
    return AnswerFile(answers, bad_lines, is_torn)


def append_answer(path: str | Path, answer: Struct, check: Callable[[], None] = lambda: None) -> None:
    """Append an answer to a file, made if missing, and sync it to disk, one writer at a time.

    `check` runs while no other process writes; if it raises, nothing is written. A last line that a killed process
    left incomplete was never acknowledged, and is overwritten.
    """
    path = Path(path)
    with lock_folder(path), convert_write_errors(path):
        check()
        with path.open("ab+") as file:
            length = file.seek(0, os.SEEK_END)
            file.seek(max(0, length - 1))
            begin = b""
            if file.read(1) not in (b"", b"\n"):
                file.seek(max(0, length - MAX_LINE))
                last = file.read().rpartition(b"\n")[2]
                begin = b"\n" * _is_json(last)
                file.truncate(length - len(last) * (not begin))
            file.write(begin + msgspec.json.encode(answer) + b"\n")
            file.flush()
            os.fsync(file.fileno())


def remove_answer(path: str | Path, answer: Struct) -> None:
    """Remove the last line that holds an answer; other lines, and answers of other people, stay as they are."""
    path = Path(path)
    with lock_folder(path):
        lines = path.read_bytes().splitlines(keepends=True)
        line = msgspec.json.encode(answer)
        last = max((index for index, saved in enumerate(lines) if saved.strip() == line), default=None)
        if last is not None:
            write_atomically(path, b"".join(lines[:last] + lines[last + 1 :]))


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True
