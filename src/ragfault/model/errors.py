"""The errors that ragfault raises, drawn as one tree.

    RagfaultError
    ├── UsageError                an unknown name, or options that cannot be combined          (exit 2)
    │   ├── UnknownName           no such metric, parameter, judge, map key or format
    │   └── MissingExtra          an optional package is not installed
    ├── InputError                the input cannot be read in the expected format              (exit 2)
    │   └── BadTraces             some lines of an input are not traces; carries every bad line
    │       ├── BadDocuments      some documents of a corpus cannot be read
    │       ├── BadRunRows        some rows of a TREC run that is read as traces cannot be read
    │       └── BadRows           some rows of a TREC run, of qrels or of labels cannot be read
    ├── OutputError               the output exists, cannot be written, or the disk is full    (exit 2)
    ├── RunError                  a run on disk is missing, partial, or of other settings      (exit 2)
    ├── StageFailed               a stage of a retrieval pipeline raised, or returned no hits  (exit 2)
    ├── JudgeError                a judge could not observe a trace (becomes `failed` rows)
    └── JudgeStopped              a judge cannot continue with any trace; results are kept     (exit 2)
        └── BudgetExceeded        the next call would exceed the budget                        (exit 3)

A message says what was asked, what exists, and what to do. The library raises; the command line
prints the message without a traceback.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from typing import ClassVar, NamedTuple

MAX_BAD_LINES_SHOWN = 20
"""Number of bad lines of one input that a message shows; the rest are counted."""


FLAGS_SHOWN: ContextVar[Collection[str] | None] = ContextVar("FLAGS_SHOWN", default=None)
"""Flags of the command that runs, which messages name; None: they name the parameters of Python."""

SWITCHES = ("accept-unread", "anyway", "batch-api", "force", "skip-bad")
"""Flags without a value that messages name."""
_RENAMED = {
    "o": "out", "m": "metrics", "threshold": "thresholds", "human-labels": "labels", "ray": "address",
    "otlp-endpoint": "otlp",
}  # fmt: skip
"""Flag → the parameter of Python where that has another name."""
# a word of a command, without the punctuation of the sentence
_WORD = r"[^\s(`](?:[^\s`]*[^\s`.,;)])?"
_SHELL_COMMAND = rf"\b(?:ragfault [a-z]+|pip install|hf download|optimum-cli export)(?: {_WORD})+"
_MAPS = re.compile(r"--map (?:'[^']*'|\S+=\S+)(?: --map (?:'[^']*'|\S+=\S+))*(?<![.,;:)])")
_FLAG = re.compile(
    _SHELL_COMMAND + r"|(?<![\w/-])(?<!file )(?<!run at )(?:-([om])|--(?!ragfault)([a-z][a-z-]*[a-z]))(?![\w/-]|\.\w)"
    r"(?: (\"[^\"]+\"|[A-Z,]{3,}|\d+|\w+:[^\s.,;)]+))?"
)
_COMMAND = re.compile(
    rf"\bragfault (evaluate|bisect) ([^\s-]\S*) (?:-o |(?!-))((?>{_WORD}))(?= ?[.,;)]|$)", re.MULTILINE
)


def name_parameters(message: str) -> str:
    """Return a message with the parameters of Python functions in place of flags and commands.

    >>> name_parameters("run exists. Choose another place with -o, or replace it with --force.")
    'run exists. Choose another place with out=…, or replace it with force=True.'
    >>> name_parameters("Read it with: --map query=q --map chunks=docs[].text")
    'Read it with: map={"query": "q", "chunks": "docs[].text"}'
    >>> name_parameters("no run at v2. Make one with: ragfault evaluate TRACES -o v2")
    'no run at v2. Make one with: ragfault.evaluate("TRACES", "v2")'
    >>> name_parameters("there is no file --top.jsonl; make a run with: ragfault evaluate TRACES -o --v1.2")
    'there is no file --top.jsonl; make a run with: ragfault.evaluate("TRACES", "--v1.2")'
    >>> name_parameters("Score one like the other: ragfault run rescore a -o b --gold apply, or compare with --anyway.")
    'Score one like the other: ragfault run rescore a -o b --gold apply, or compare with anyway=True.'
    """
    message = _COMMAND.sub(lambda match: f'ragfault.{match[1]}("{match[2]}", "{match[3]}")', message)
    return _FLAG.sub(_name_parameter, _MAPS.sub(_name_map, message))


def _name_map(match: re.Match[str]) -> str:
    try:
        words = shlex.split(match[0])
    except ValueError:
        return match[0]
    pairs = [word.partition("=") for word in words if word != "--map"]
    if not all(equals for _, equals, _ in pairs):
        return "map=…"
    return f"map={json.dumps({field: column for field, _, column in pairs}, ensure_ascii=False)}"


def _name_parameter(match: re.Match[str]) -> str:
    if match[0].startswith(("ragfault ", "pip ", "hf ", "optimum-cli ")):
        # a command for a shell, as a whole
        return match[0]
    flag, value = match[1] or match[2], match[3]
    name = _RENAMED.get(flag, flag.replace("-", "_"))
    if flag in SWITCHES:
        return f"{name}=True" + (f" {value}" if value else "")
    if flag == "budget" and value and value.endswith(' tokens"'):
        return "budget_tokens=" + value[1:].removesuffix(' tokens"')
    if value and (value.startswith('"') or value.isdigit()):
        return f"{name}={value}"
    return f'{name}="{value}"' if value and "," not in value else f"{name}=({value})" if value else f"{name}=…"


_VALUE = re.compile(
    r"\"[^\"\n]*\"|(?<!\w)'[^'\n]*'(?!\w)|\b[0-9a-f]{8}(?:-[0-9a-f]{4,12}){2,4}\b|\b(?=\w*\d)[\w-]+(?:[.,:]\d+)*"
)
"""What tells messages of one kind apart: a value in quotes, a number, and an id or name with a digit."""
_PLACE = re.compile(r"\[\d+\]")


def get_message_kind(message: str) -> str:
    """Return a message without its numbers, ids and quoted values; columns, in backticks, stay.

    >>> get_message_kind('request 8f3a timed out after 31.5 s at "https://a"')
    'request … timed out after … s at …'
    """
    parts = message.split("`")
    return "`".join(_PLACE.sub("[…]", part) if i % 2 else _VALUE.sub("…", part) for i, part in enumerate(parts))


def group_messages(counts: Mapping[str, int]) -> dict[str, int]:
    """Add up the messages of one kind under the first of them, the commonest kind first.

    >>> group_messages({"timed out after 31 s": 2, "no key": 3, "timed out after 44 s": 2})
    {'timed out after 31 s': 4, 'no key': 3}
    """
    examples: dict[str, str] = {}
    grouped: dict[str, int] = {}
    for message, count in counts.items():
        example = examples.setdefault(get_message_kind(message), message)
        grouped[example] = grouped.get(example, 0) + count
    return dict(sorted(grouped.items(), key=lambda item: -item[1]))


class RagfaultError(Exception):
    """Base class of all errors that ragfault raises.

    Its text names parameters of Python; on the command line it names flags.
    """

    def __str__(self) -> str:
        message = super().__str__()
        return name_parameters(message) if FLAGS_SHOWN.get() is None else message


class UsageError(RagfaultError):
    """An unknown name, or options that cannot be combined."""


MAX_LISTED = 32
"""Most names that are listed where none is close."""


class UnknownName(UsageError):
    """A name that does not exist.

    >>> print(UnknownName("metric", "ndgc", ["ndcg", "recall"], hint="List them with: ragfault metrics"))
    no metric "ndgc". Did you mean "ndcg"? List them with: ragfault metrics

    `aliases` are other names that are understood: one is offered where it is close, and they are never listed. Names
    are listed where none is close, or always where they are `listed`, as the keys of a file are.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        known: Iterable[str],
        hint: str = "",
        aliases: Iterable[str] = (),
        listed: bool = False,
    ) -> None:
        known = list(known)
        close = get_close_matches(name, [*known, *aliases], n=1, cutoff=0.6)
        offer = f'Did you mean "{close[0]}"?' if close else ""
        if listed or (not close and len(known) <= MAX_LISTED):
            offer = " ".join(part for part in (offer, f"There is: {', '.join(known)}." if known else "") if part)
        super().__init__(" ".join(part for part in (f'no {kind} "{name}".', offer, hint) if part))
        self.kind, self.name, self.known = kind, name, known

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_error, (type(self), self.args, self.__dict__))


class MissingExtra(UsageError):
    """A capability whose optional packages are not installed.

    >>> print(MissingExtra("bleu", "overlap"))
    bleu needs packages that are not installed. Install them with: pip install 'ragfault[overlap]'

    `command` replaces the advice where no extra can install the packages.
    """

    def __init__(self, capability: str, extra: str, command: str = "") -> None:
        super().__init__(
            f"{capability} needs packages that are not installed. "
            "Install them with: " + (command or f"pip install 'ragfault[{extra}]'")
        )
        self.capability, self.extra, self.command = capability, extra, command

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.capability, self.extra, self.command))


@contextmanager
def require_extra(capability: str, extra: str, command: str = "") -> Iterator[None]:
    """Raise MissingExtra in place of the ImportError of an import inside the block.

    >>> with require_extra("bleu", "overlap"):
    ...     import no_such_package
    Traceback (most recent call last):
    ragfault.model.errors.MissingExtra: bleu needs packages that are not installed. Install them with: ...
    """
    try:
        yield
    except ImportError:
        raise MissingExtra(capability, extra, command) from None


class InputError(RagfaultError):
    """The input cannot be read in the expected format."""


class BadLine(NamedTuple):
    """A line of an input that is not a trace."""

    where: str
    """File name as given."""
    line: int
    """Line number from 1 (in tables: the row)."""
    problem: str
    """What is wrong with the line."""
    text: str = ""
    """The line itself, to be written to the file of bad lines."""

    def __str__(self) -> str:
        return f"{self.where}:{self.line}: {self.problem}"


REPEATED_FROM_FILE = ", which a file before has"
"""End of the problem of a trace whose id an earlier file of the input has."""


class BadTraces(InputError):
    """Some lines of an input are not traces; every other line was read.

    Lines of one kind, whose problems differ in a number or a quoted value, are counted at the first of them; `kinds`
    are the counts where there are more bad lines than are given.

    >>> bad_lines = [BadLine("t.jsonl", 3, "malformed JSON at character 1"), BadLine("t.jsonl", 7, "no `query`")]
    >>> print(BadTraces([*bad_lines, BadLine("t.jsonl", 9, "malformed JSON at character 8")], good=41))
    3 of 44 traces cannot be read:
      t.jsonl:3: malformed JSON at character 1 (2 lines like this: 3, 9)
      t.jsonl:7: no `query`
    Fix them, or leave them out with skip_bad=True or on_bad="skip".
    """

    noun: ClassVar[str] = "traces"
    headline: ClassVar[str] = "{count:,} of {total:,} {noun} cannot be read:"
    ways_out: ClassVar[tuple[str, str, str]] = (
        ' with skip_bad=True or on_bad="skip"',
        " with --skip-bad",
        ": ragfault run convert IN OUT --skip-bad",
    )
    """How bad lines are left out in Python, by a command with this flag, and beside one without; empty: not at all."""

    def __init__(
        self,
        bad_lines: Sequence[BadLine],
        good: int,
        count: int | None = None,
        kinds: Mapping[str, int] | None = None,
        files: Sequence[str] = (),
    ) -> None:
        count = len(bad_lines) if count is None else count
        # the first ones, and the first of each further kind
        shown = bad_lines[: 2 * MAX_BAD_LINES_SHOWN]
        if shown and all(bad_line.problem.endswith(REPEATED_FROM_FILE) for bad_line in shown):
            files = files if len(files) > 1 else list(dict.fromkeys(bad_line.where for bad_line in shown))
            lines = _explain_repeated_files(files, good, count)
            self.advice = ('If they are one set, make ids unique with --id-from "line"', "leave the others out")
        else:
            grouped = _group_bad_lines(shown, kinds or {})
            lines = [
                self.headline.format(count=count, total=good + count, good=good, noun=self.noun),
                *(f"  {line}" for line, _ in grouped),
            ]
            rest = count - sum(size for _, size in grouped)
            lines += [f"  … and {rest:,} more"] if rest > 0 else []
            self.advice = ("Fix them", "leave them out")
        super().__init__("\n".join(lines))
        self.bad_lines, self.good, self.count, self.kinds = tuple(bad_lines), good, count, dict(kinds or {})
        self.files = tuple(files)

    def __str__(self) -> str:
        flags = FLAGS_SHOWN.get()
        way_out = self.ways_out[0 if flags is None else 1 if "--skip-bad" in flags else 2]
        advice, leave_out = self.advice
        advice = advice if flags is not None else name_parameters(advice)
        return f"{super().__str__()}\n{advice}{f', or {leave_out}{way_out}' if way_out else ''}."

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.bad_lines, self.good, self.count, self.kinds, self.files))


MAX_PLACES = 5
"""Most lines of one kind whose places are named."""


def _group_bad_lines(bad_lines: Sequence[BadLine], kinds: Mapping[str, int]) -> list[tuple[str, int]]:
    """Group bad lines by kind: the first of each with the count and places of those like it, and the count."""
    groups: dict[str, list[BadLine]] = {}
    for line in bad_lines:
        groups.setdefault(get_message_kind(line.problem), []).append(line)
    one_file = len({line.where for line in bad_lines}) == 1
    grouped = []
    for kind, lines in groups.items():
        size = max(len(lines), kinds.get(kind, 0))
        places = [str(line.line) if one_file else f"{line.where}:{line.line}" for line in lines[:MAX_PLACES]]
        more = ", …" if size > len(places) else ""
        alike = f" ({size:,} lines like this: {', '.join(places)}{more})" if size > 1 else ""
        grouped.append((f"{lines[0]}{alike}", size))
    return grouped


def _name_run(file: str) -> str:
    """Return a name for the run of a file: its own without endings."""
    return shlex.quote(file.replace("\\", "/").rsplit("/", 1)[-1].split(".", 1)[0] or "RUN")


def _explain_repeated_files(files: Sequence[str], good: int, count: int) -> list[str]:
    """Explain that files have the ids of others: versions of the same traces, which are evaluated apart."""
    return [
        f"{count:,} of {good + count:,} traces have an id that a file before theirs has.",
        "If the files are versions of the same traces, choose one, or evaluate each apart and bisect the runs:",
        *(f"  ragfault evaluate {shlex.quote(file)} -o runs/{_name_run(file)}" for file in files[:MAX_BAD_LINES_SHOWN]),
    ]


class BadDocuments(BadTraces):
    """Some documents of a corpus cannot be read; every other one was read.

    >>> print(BadDocuments([BadLine("notes/a.txt", 1, "the document is empty")], good=12))
    1 of 13 documents cannot be read:
      notes/a.txt:1: the document is empty
    Fix them, or leave them out with skip_bad=True or on_bad="skip".
    """

    noun = "documents"
    ways_out = (*BadTraces.ways_out[:2], "")


class BadRunRows(BadTraces):
    """Some rows of a TREC run that is read as traces, each of several rows, cannot be read."""

    headline = "{count:,} rows cannot be read; {good:,} traces can:"


class BadRows(BadTraces):
    """Some rows of a TREC run, of qrels, or of a file that people filled in cannot be read."""

    noun = "rows"
    ways_out = ("", "", "")


class OutputError(RagfaultError):
    """The output exists already, cannot be written, or the disk is full."""


class RunError(RagfaultError):
    """A run on disk is missing, partial, or has other settings than were asked for."""


class StageFailed(RagfaultError):
    """A stage of a retrieval pipeline raised an error, or did not return a query with hits."""


class JudgeError(RagfaultError):
    """A judge could not observe a trace; its message becomes the reason of `failed` rows."""


class JudgeStopped(RagfaultError):
    """A judge cannot continue with any trace, for example because its key is refused. Results so far are kept."""


class BudgetExceeded(JudgeStopped):
    """The next call to a model would exceed the budget. Results so far are kept: raise the budget and resume."""


def _rebuild_error(
    error_type: type[RagfaultError], args: tuple[object, ...], state: dict[str, object]
) -> RagfaultError:
    """Rebuild an error after pickling."""
    error = error_type.__new__(error_type)
    error.args = args
    error.__dict__.update(state)
    return error
