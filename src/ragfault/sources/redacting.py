"""Redaction of traces and spans: what names or pays for somebody, or opens a door, is replaced before it is kept.

Two steps: values give way to masks, which carry a keyed fingerprint, so that the parts of a trace can be masked apart
and still agree; then the masks of a whole trace are numbered. What is the same value in a chunk and in the answer is
the same placeholder, so that what is grounded stays grounded.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from ragfault.errors import UnknownName
from ragfault.records import Trace
from ragfault.sources.spans import Event, Operation
from ragfault.sources.spans.contents import opened
from ragfault.text.redacting import KINDS, MASK, Found, Kind, find, mask

__all__ = ["Masked", "Redacted", "Redactor", "kinds"]

NUMBERED = re.compile(r"\[(email|phone|card|key) ([0-9]{1,6})\]")
"""What stands for a value at the end: its kind, and which of that kind it is in its trace."""
NAMES = frozenset({"id", "conversation", "document", "chunk", "gold"})
"""Fields that name something across traces: their masks are left unnumbered, so that different names stay different."""
WORD = re.compile(r"[^\s\"'&,;:()\[\]{}<>\\]+")
LONG, LONGEST = 10**12, 10**19
"""Numbers from the one to below the other may be those of a card."""
DEPTH = 64

Change = Callable[[str], str]


def kinds(names: str | Iterable[str]) -> tuple[Kind, ...]:
    """The kinds of these names, in a fixed order; `all` stands for all of them. Raises UnknownName.

    >>> kinds("phone, email"), kinds("all") == KINDS
    (('email', 'phone'), True)
    """
    asked = [name.strip() for name in (names.split(",") if isinstance(names, str) else names) if name.strip()]
    for name in asked:
        if name not in (*KINDS, "all"):
            raise UnknownName("kind of redaction", name, (*KINDS, "all"))
    return tuple(kind for kind in KINDS if kind in asked or "all" in asked)


class Redacted(NamedTuple):
    """A trace without what was to go."""

    trace: Trace
    counts: Counter[str]
    """Kind → in how many places it stood."""


class Masked(NamedTuple):
    """Spans and records of a log, in which masks stand for what was to go."""

    operations: tuple[Operation, ...]
    events: tuple[Event, ...]
    counts: Counter[str]


class Redactor:
    """Replaces values of some kinds in every text of a trace: email, phone, card, key.

    Equal values of one trace become equal placeholders, `[email 1]`, `[email 2]`; ids become masks such as
    `[email~0c5f…]`, which are equal across traces as long as the secret is. Without a secret one is drawn, so that
    nobody can ever find out by trying which value a mask stands for. Raises UnknownName for a kind that there is not.

    >>> trace = Trace(id="1", query="Who is ann@example.org?", answer="Ann (ann@example.org, not bob@example.org).")
    >>> found = Redactor("email").trace(trace)
    >>> found.trace.query, found.trace.answer, found.counts["email"]
    ('Who is [email 1]?', 'Ann ([email 1], not [email 2]).', 3)
    """

    def __init__(self, wanted: str | Iterable[str], secret: str | None = None) -> None:
        self.kinds = kinds(wanted)
        self._key = secrets.token_bytes(32) if secret is None else blake2b(secret.encode()).digest()

    def trace(self, trace: Trace) -> Redacted:
        """A trace with numbered placeholders; it is the same object where nothing in it was to go."""
        veil = _Veil(self)
        given = msgspec.to_builtins(trace, builtin_types=(datetime,))
        made = veil(given, numbers=False)
        numbering = _Numbering(made)
        made = numbering.walk(made)
        if not veil.counts and not numbering.names:
            return Redacted(trace, veil.counts)
        return Redacted(msgspec.convert(made, Trace), veil.counts)

    def spans(self, operations: Iterable[Operation], events: Iterable[Event] = ()) -> Masked:
        """Spans and records of a log with masks; the trace that is made of them is numbered by `trace`.

        >>> held = {"input.value": "Who is ann@example.org?"}
        >>> found = Redactor("email", "s").spans([Operation(trace="a", id="b", attributes=held)])
        >>> found.operations[0].attributes["input.value"][:14]
        'Who is [email~'
        """
        operations, events = tuple(operations), tuple(events)
        veil = _Veil(self)
        done, beside = veil([[*map(_spoken, operations)], [*map(_event, events)]])
        return Masked(
            tuple(map(_operation, operations, done)), tuple(map(_eventful, events, beside)), veil.counts
        )

    def name(self, found: Found) -> str:
        """The mask of a value."""
        value = f"{found.kind} {found.value}".encode("utf-8", "surrogatepass")
        return f"[{found.kind}~{blake2b(value, key=self._key, digest_size=8).hexdigest()}]"


# --- the parts of spans that are walked ------------------------------------------------------------


def _spoken(one: Operation) -> list[Any]:
    return [[one.name, one.message], one.attributes, one.resource, [*map(_event, one.events)]]


def _event(event: Event) -> list[Any]:
    return [event.name, event.attributes]


def _operation(one: Operation, made: list[Any]) -> Operation:
    (name, message), attributes, resource, events = made
    return msgspec.structs.replace(
        one,
        name=name,
        message=message,
        attributes=attributes,
        resource=resource,
        events=tuple(map(_eventful, one.events, events)),
    )


def _eventful(event: Event, made: list[Any]) -> Event:
    return msgspec.structs.replace(event, name=made[0], attributes=made[1])


# --- masks -----------------------------------------------------------------------------------------


class _Veil:
    """Masks the texts of a thing, and counts them."""

    def __init__(self, redactor: Redactor) -> None:
        self._kinds, self._name = redactor.kinds, redactor.name
        self.counts: Counter[str] = Counter()
        self._known: dict[str, Found] = {}

    def __call__(self, value: Any, *, numbers: bool = True) -> Any:
        """The value with masks; what a cue gave away in one place is masked in all others, too."""
        made = walk(value, self._masked, numbers=numbers)
        return walk(made, self._repeated, numbers=numbers) if self._known else made

    def _masked(self, text: str, depth: int = 0) -> str:
        found = find(text, self._kinds)
        if not found:
            return text
        inner = opened(text)
        if not isinstance(inner, str) and depth < 4:
            made = walk(inner, lambda part: self._masked(part, depth + 1))
            return msgspec.json.encode(made).decode()
        for each in found:
            self.counts[each.kind] += 1
            raw = text[each.start : each.end]
            if each.cued and WORD.fullmatch(raw):
                self._known[raw] = each
        return mask(text, found, self._name)

    def _repeated(self, text: str) -> str:
        def given(match: re.Match[str]) -> str:
            raw = match[0].strip(".!?*")
            found = self._known.get(raw)
            if found is None:
                return match[0]
            self.counts[found.kind] += 1
            return match[0].replace(raw, self._name(found))

        return WORD.sub(given, text)


def walk(value: Any, change: Change, depth: int = 0, *, numbers: bool = True) -> Any:
    """The value with each of its texts changed, the keys of objects too; long whole numbers are taken for texts.

    Without `numbers` those are left that do not stand in metadata: fields that are numbers stay so. What is nested
    deeper than `DEPTH` becomes the text of its JSON, and is changed as such.
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, (dict, list, tuple)) and depth >= DEPTH:
        return change(msgspec.json.encode(value).decode())
    if isinstance(value, dict):
        return {
            change(str(key)): walk(part, change, depth + 1, numbers=numbers or key == "metadata")
            for key, part in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [walk(part, change, depth + 1, numbers=numbers) for part in value]
    if numbers and type(value) in (int, float) and LONG <= value < LONGEST and value == int(value):
        made = change(str(int(value)))
        return value if made == str(int(value)) else made
    return value


# --- numbers ---------------------------------------------------------------------------------------


class _Numbering:
    """Numbers the masks of a trace by kind, in the order in which they are met."""

    def __init__(self, made: Any) -> None:
        self.names: dict[str, str] = {}
        self._last: Counter[str] = Counter()
        walk(made, self._look, numbers=False)

    def _look(self, text: str) -> str:
        """Numbers that stand there already are not given again."""
        if "[" in text:
            for kind, number in NUMBERED.findall(text):
                self._last[kind] = max(self._last[kind], int(number))
        return text

    def walk(self, value: Any, names: bool = True) -> Any:
        """The value with numbers for masks, but for those of `names`."""
        if isinstance(value, str):
            return MASK.sub(self._number, value) if "~" in value else value
        if isinstance(value, dict):
            return {
                key if names else self.walk(key): part
                if names and key in NAMES
                else self.walk(part, names and key != "metadata")
                for key, part in value.items()
            }
        if isinstance(value, list):
            return [self.walk(part, names) for part in value]
        return value

    def _number(self, match: re.Match[str]) -> str:
        kind = match[1]
        if match[0] not in self.names:
            self._last[kind] += 1
            self.names[match[0]] = f"[{kind} {self._last[kind]}]"
        return self.names[match[0]]
