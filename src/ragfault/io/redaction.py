"""Redaction of personal data and secrets in traces and spans.

Masks carry a keyed fingerprint, so that parts of a trace agree; those of a complete trace are then numbered.
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

from ragfault.io.formats.paths import parse_embedded
from ragfault.io.otel.spans import OtelSpan, SpanEvent
from ragfault.model.errors import UnknownName
from ragfault.model.records import Trace
from ragfault.text.redaction import (
    MASK_PATTERN,
    SENSITIVE_KINDS,
    SensitiveKind,
    SensitiveSpan,
    detect_sensitive,
    replace_sensitive,
)

PLACEHOLDER = re.compile(r"\[(email|phone|card|key) ([0-9]{1,6})\]")
"""Final placeholder: the kind and the number within the trace."""
ID_FIELDS = frozenset({"id", "parent", "conversation", "document", "chunk", "gold"})
"""Fields that are ids across traces: their masks stay unnumbered, so that different ids stay different."""
WORD_PATTERN = re.compile(r"[^\s\"'&,;:()\[\]{}<>\\]+")
CARD_NUMBER_MIN, CARD_NUMBER_LIMIT = 10**12, 10**19
"""Range of numbers that may be card numbers."""
MAX_DEPTH = 64

TextFunction = Callable[[str], str]


def parse_redaction_kinds(names: str | Iterable[str]) -> tuple[SensitiveKind, ...]:
    """Parse names of kinds into a fixed order; `all` stands for all of them. Raises UnknownName.

    >>> parse_redaction_kinds("phone, email"), parse_redaction_kinds("all") == SENSITIVE_KINDS
    (('email', 'phone'), True)
    """
    asked = [name.strip() for name in (names.split(",") if isinstance(names, str) else names) if name.strip()]
    for name in asked:
        if name not in (*SENSITIVE_KINDS, "all"):
            raise UnknownName("kind of redaction", name, (*SENSITIVE_KINDS, "all"))
    return tuple(kind for kind in SENSITIVE_KINDS if kind in asked or "all" in asked)


class RedactedTrace(NamedTuple):
    """A redacted trace."""

    trace: Trace
    counts: Counter[str]
    """Kind → number of occurrences."""


class MaskedSpans(NamedTuple):
    """Masked spans and log records."""

    spans: tuple[OtelSpan, ...]
    events: tuple[SpanEvent, ...]
    counts: Counter[str]


class Redactor:
    """Redactor of every text of a trace, for these kinds of values: email, phone, card, key.

    Equal values of a trace become equal placeholders, `[email 1]`; ids become masks, `[email~0c5f…]`, equal across
    traces under one secret (drawn at random by default). Raises UnknownName for an unknown kind.

    >>> trace = Trace(id="1", query="Who is ann@example.org?", answer="Ann (ann@example.org, not bob@example.org).")
    >>> redacted = Redactor("email").redact_trace(trace)
    >>> redacted.trace.query, redacted.trace.answer, redacted.counts["email"]
    ('Who is [email 1]?', 'Ann ([email 1], not [email 2]).', 3)
    """

    def __init__(self, kinds: str | Iterable[str], secret: str | None = None) -> None:
        self.kinds = parse_redaction_kinds(kinds)
        self._key = secrets.token_bytes(32) if secret is None else blake2b(secret.encode()).digest()

    def redact_trace(self, trace: Trace) -> RedactedTrace:
        """Return the trace with numbered placeholders; the same object where nothing was redacted."""
        mask = _TextMasker(self)
        given = msgspec.to_builtins(trace, builtin_types=(datetime,))
        masked = mask(given, numbers=False)
        numbering = _MaskNumbering(masked)
        masked = numbering.replace_masks(masked)
        if not mask.counts and not numbering.placeholders:
            return RedactedTrace(trace, mask.counts)
        return RedactedTrace(msgspec.convert(masked, Trace), mask.counts)

    def mask_spans(self, spans: Iterable[OtelSpan], events: Iterable[SpanEvent] = ()) -> MaskedSpans:
        """Mask spans and log records; the trace that is built of them is numbered by `redact_trace`.

        >>> attributes = {"input.value": "Who is ann@example.org?"}
        >>> masked = Redactor("email", "s").mask_spans([OtelSpan(trace="a", id="b", attributes=attributes)])
        >>> masked.spans[0].attributes["input.value"][:14]
        'Who is [email~'
        """
        spans, events = tuple(spans), tuple(events)
        mask = _TextMasker(self)
        done, beside = mask([[*map(_extract_span_parts, spans)], [*map(_extract_event_parts, events)]])
        return MaskedSpans(
            tuple(map(_replace_span_parts, spans, done)), tuple(map(_replace_event_parts, events, beside)), mask.counts
        )

    def make_mask(self, match: SensitiveSpan) -> str:
        """Return the mask of a value."""
        value = f"{match.kind} {match.value}".encode("utf-8", "surrogatepass")
        return f"[{match.kind}~{blake2b(value, key=self._key, digest_size=8).hexdigest()}]"


def _extract_span_parts(span: OtelSpan) -> list[Any]:
    return [[span.name, span.message], span.attributes, span.resource, [*map(_extract_event_parts, span.events)]]


def _extract_event_parts(event: SpanEvent) -> list[Any]:
    return [event.name, event.attributes]


def _replace_span_parts(span: OtelSpan, parts: list[Any]) -> OtelSpan:
    (name, message), attributes, resource, events = parts
    return msgspec.structs.replace(
        span,
        name=name,
        message=message,
        attributes=attributes,
        resource=resource,
        events=tuple(map(_replace_event_parts, span.events, events)),
    )


def _replace_event_parts(event: SpanEvent, parts: list[Any]) -> SpanEvent:
    return msgspec.structs.replace(event, name=parts[0], attributes=parts[1])


class _TextMasker:
    """Masks and counts the sensitive values of texts."""

    def __init__(self, redactor: Redactor) -> None:
        self._kinds, self._make_mask = redactor.kinds, redactor.make_mask
        self.counts: Counter[str] = Counter()
        self._cued_values: dict[str, SensitiveSpan] = {}

    def __call__(self, value: Any, *, numbers: bool = True) -> Any:
        """Mask a value; what a cue revealed in one place is masked everywhere."""
        masked = map_texts(value, self._mask_text, numbers=numbers)
        return map_texts(masked, self._mask_repeats, numbers=numbers) if self._cued_values else masked

    def _mask_text(self, text: str, depth: int = 0) -> str:
        matches = detect_sensitive(text, self._kinds)
        if not matches:
            return text
        inner = parse_embedded(text)
        if not isinstance(inner, str) and depth < 4:
            masked = map_texts(inner, lambda part: self._mask_text(part, depth + 1))
            return msgspec.json.encode(masked).decode()
        for match in matches:
            self.counts[match.kind] += 1
            raw = text[match.start : match.end]
            if match.by_context and WORD_PATTERN.fullmatch(raw):
                self._cued_values[raw] = match
        return replace_sensitive(text, matches, self._make_mask)

    def _mask_repeats(self, text: str) -> str:
        def given(match: re.Match[str]) -> str:
            raw = match[0].strip(".!?*")
            cued = self._cued_values.get(raw)
            if cued is None:
                return match[0]
            self.counts[cued.kind] += 1
            return match[0].replace(raw, self._make_mask(cued))

        return WORD_PATTERN.sub(given, text)


def map_texts(value: Any, change: TextFunction, depth: int = 0, *, numbers: bool = True) -> Any:
    """Apply a function to every text of a value, keys included; long integers count as texts.

    Without `numbers`, number fields stay so. What is nested deeper than `MAX_DEPTH` is changed as the text of its JSON.
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, (dict, list, tuple)) and depth >= MAX_DEPTH:
        return change(msgspec.json.encode(value).decode())
    if isinstance(value, dict):
        return {
            change(str(key)): map_texts(item, change, depth + 1, numbers=numbers or key == "metadata")
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [map_texts(item, change, depth + 1, numbers=numbers) for item in value]
    if numbers and type(value) in (int, float) and CARD_NUMBER_MIN <= value < CARD_NUMBER_LIMIT and value == int(value):
        changed = change(str(int(value)))
        return value if changed == str(int(value)) else changed
    return value


class _MaskNumbering:
    """Numbers the masks of a trace by kind, in order of occurrence."""

    def __init__(self, value: Any) -> None:
        self.placeholders: dict[str, str] = {}
        self._last_numbers: Counter[str] = Counter()
        map_texts(value, self._note_numbers, numbers=False)

    def _note_numbers(self, text: str) -> str:
        """Note numbers that are in use already, so that they are not assigned again."""
        if "[" in text:
            for kind, number in PLACEHOLDER.findall(text):
                self._last_numbers[kind] = max(self._last_numbers[kind], int(number))
        return text

    def replace_masks(self, value: Any, keep_ids: bool = True) -> Any:
        """Replace masks by numbered placeholders, except in the fields that hold ids."""
        if isinstance(value, str):
            return MASK_PATTERN.sub(self._get_placeholder, value) if "~" in value else value
        if isinstance(value, dict):
            return {
                key if keep_ids else self.replace_masks(key): item
                if keep_ids and (key in ID_FIELDS or (key == "chunks" and _is_id_list(item)))
                else self.replace_masks(item, keep_ids and key != "metadata")
                for key, item in value.items()
            }
        return [self.replace_masks(item, keep_ids) for item in value] if isinstance(value, list) else value

    def _get_placeholder(self, match: re.Match[str]) -> str:
        kind = match[1]
        if match[0] not in self.placeholders:
            self._last_numbers[kind] += 1
            self.placeholders[match[0]] = f"[{kind} {self._last_numbers[kind]}]"
        return self.placeholders[match[0]]


def _is_id_list(value: Any) -> bool:
    """Tell the `chunks` of a step, which are ids, from those of a trace, which are objects."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
