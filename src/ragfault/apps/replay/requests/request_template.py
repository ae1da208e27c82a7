"""A recorded request with its chunks as slots: they can be left out, moved and replaced, and nothing else changes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from ragfault.apps.replay.requests.chunk_places import ChunkPlace, RequestRefused, locate_chunks
from ragfault.apps.replay.requests.encodings import PassageWriter, list_writers
from ragfault.model.grouping import group_by
from ragfault.model.records import Chunk, ConversationTurn

MOST_FRAME = 1_000
"""Characters before and after a chunk that may belong to it: its number, its source, its title."""
FRAME_TOKEN = re.compile(
    r"(?P<value>(?<=: )[^\s\"'][^\n]{0,200}(?=\n)|(?<=\[)[^\]\n\d][^\]\n]{0,100}(?=\])|(?<=\# )[^\n]{1,200}(?=\n)"
    r"|(?<=: )\"[^\"\n]{1,200}\"|(?<==)\"(?!\d+\")[^\"\n]{1,200}\")|(?P<number>\d+(?:\.\d+)?)"
    r"|(?P<word>\w+)|(?P<space>\s+)|(?P<sign>.)"
)
"""Parts of the text around chunks: a value that differs between chunks, a number, a word, white space, a sign."""
SIGNATURE = 24
"""Characters with which the messages of one system begin alike."""
ANCHOR, ANCHOR_WORD = 60, 12
"""Characters before and after the place of chunks, by which it is found in a request that shows none."""


class FrameToken(NamedTuple):
    """A part of the text around a chunk."""

    kind: str
    text: str

    def matches(self, other: FrameToken) -> bool:
        """Return whether both may be the same part around two chunks."""
        if self.kind != other.kind:
            return False
        return self.kind in ("value", "number") or self.text == other.text


class Slot(NamedTuple):
    """A chunk in a message with the text that belongs to it."""

    chunk: int
    """Place of the chunk in the trace, from 0."""
    written: str
    """Its text as the message has it."""
    before: tuple[FrameToken, ...] = ()
    after: tuple[FrameToken, ...] = ()


class MessageTemplate(NamedTuple):
    """A message with slots for chunks between a head and a foot."""

    role: str
    head: str
    slots: tuple[Slot, ...] = ()
    separator: str | None = None
    """None where only one chunk is shown."""
    foot: str = ""
    counters: tuple[tuple[bool, int, int], ...] = ()
    """Numbers that count the chunks: whether it stands before the chunk, which token it is, and the first number."""


class RequestTemplate(NamedTuple):
    """A request whose chunks can be changed."""

    messages: tuple[MessageTemplate, ...]
    recorded: tuple[ConversationTurn, ...]
    chunks: tuple[Chunk, ...]
    written: tuple[tuple[str, str], ...]
    """Each chunk and the text that stands for it."""
    writers: tuple[PassageWriter, ...]
    """The ways in which a passage may be written that the request did not have."""
    is_empty: bool = False
    """True if the recorded request shows no chunk."""
    fault: str = ""
    """Why chunks cannot be moved or left out, though they were found; empty: they can."""


def read_template(messages: Sequence[ConversationTurn], chunks: Sequence[Chunk]) -> RequestTemplate:
    """Read a request as a template. Raises RequestRefused as `locate_chunks` does.

    >>> request = [ConversationTurn(role="user", text="Context:\\n[1] At ten.\\n[2] Daily.\\nWhen?")]
    >>> template = read_template(request, [Chunk(id="a", text="At ten."), Chunk(id="b", text="Daily.")])
    >>> render_request(template, [Chunk(id="b", text="Daily.")])[0].text
    'Context:\\n[1] Daily.\\nWhen?'
    """
    located = locate_chunks(messages, chunks)
    written = tuple(
        (chunks[place.chunk].text, messages[place.message].text[place.start : place.end]) for place in located.places
    )
    templates = []
    fault = ""
    for number, message in enumerate(messages):
        places = [place for place in located.places if place.message == number]
        try:
            templates.append(_read_message(message, places, chunks))
        except RequestRefused as error:
            fault = str(error)
            templates.append(MessageTemplate(message.role, message.text))
    writers = list_writers(written)
    return RequestTemplate(tuple(templates), tuple(messages), tuple(chunks), written, writers, fault=fault)


def _read_message(message: ConversationTurn, places: Sequence[ChunkPlace], chunks: Sequence[Chunk]) -> MessageTemplate:
    if not places:
        return MessageTemplate(message.role, message.text)
    text = message.text
    slots = [Slot(place.chunk, text[place.start : place.end]) for place in places]
    head, foot = text[: places[0].start], text[places[-1].end :]
    if len(places) == 1:
        return MessageTemplate(message.role, head, tuple(slots), None, foot)
    gaps = [text[before.end : after.start] for before, after in pairwise(places)]
    known = [_list_values(chunks[place.chunk]) for place in places]
    afters = _share_tokens(
        [_tokenize(part[:MOST_FRAME], values) for part, values in zip([*gaps, foot], known, strict=True)]
    )
    afters = _trim(afters, last=True)
    after_sizes = [sum(len(token.text) for token in after) for after in afters]
    befores_raw = [head[-MOST_FRAME:], *(gap[size:] for gap, size in zip(gaps, after_sizes[:-1], strict=True))]
    reversed_tokens = [_tokenize(part, values)[::-1] for part, values in zip(befores_raw, known, strict=True)]
    befores = _trim([shared[::-1] for shared in _share_tokens(reversed_tokens)], last=False)
    before_sizes = [sum(len(token.text) for token in before) for before in befores]
    separators = [
        gap[size : len(gap) - before]
        for gap, size, before in zip(gaps, after_sizes[:-1], before_sizes[1:], strict=True)
    ]
    if len({separator.strip() for separator in separators}) > 1:
        raise RequestRefused(
            "the text between the chunks differs from chunk to chunk, and it is not known to which chunk it belongs"
        )
    framed = tuple(
        slot._replace(before=tuple(before), after=tuple(after))
        for slot, before, after in zip(slots, befores, afters, strict=True)
    )
    return MessageTemplate(
        role=message.role,
        head=head[: len(head) - before_sizes[0]],
        slots=framed,
        separator=separators[0],
        foot=foot[after_sizes[-1] :],
        counters=tuple(_find_counters(framed)),
    )


def _list_values(chunk: Chunk) -> tuple[str, ...]:
    """List the texts by which a request may name a chunk, the longest first."""
    values = [chunk.id, chunk.document, *(value for value in chunk.metadata.values() if isinstance(value, str))]
    return tuple(
        sorted({value for value in values if value and len(value) > 1 and len(value) <= 200}, key=len, reverse=True)
    )


def _tokenize(text: str, values: Sequence[str]) -> list[FrameToken]:
    """Split the text around a chunk; what names the chunk is a value."""
    if values:
        pattern = re.compile("|".join(rf"(?<!\w){re.escape(value)}(?!\w)" for value in values))
        tokens: list[FrameToken] = []
        position = 0
        for match in pattern.finditer(text):
            tokens += _tokenize(text[position : match.start()], ())
            tokens.append(FrameToken("value", match[0]))
            position = match.end()
        return [*tokens, *_tokenize(text[position:], ())]
    return [FrameToken(str(match.lastgroup), match[0]) for match in FRAME_TOKEN.finditer(text)]


def _share_tokens(lists: Sequence[Sequence[FrameToken]]) -> list[list[FrameToken]]:
    """Return the beginning that all lists share."""
    size = 0
    while all(len(tokens) > size for tokens in lists) and all(lists[0][size].matches(tokens[size]) for tokens in lists):
        size += 1
    return [list(tokens[:size]) for tokens in lists]


def _trim(lists: Sequence[Sequence[FrameToken]], *, last: bool) -> list[list[FrameToken]]:
    """Leave the white space at the outer end to the separator."""
    if last:
        return [list(tokens[: _count_visible(tokens)]) for tokens in lists]
    return [list(tokens[len(tokens) - _count_visible(tokens[::-1]) :]) for tokens in lists]


def _count_visible(tokens: Sequence[FrameToken]) -> int:
    """Count the tokens up to the last one that is not white space."""
    return max((place + 1 for place, token in enumerate(tokens) if token.kind != "space"), default=0)


def _find_counters(slots: Sequence[Slot]) -> list[tuple[bool, int, int]]:
    """Find the numbers that count the chunks: each is one above that of the chunk before."""
    counters = []
    for is_before in (True, False):
        frames = [slot.before if is_before else slot.after for slot in slots]
        for place, token in enumerate(frames[0]):
            texts = [tokens[place].text for tokens in frames]
            if token.kind == "number" and all(text.isdecimal() for text in texts):
                numbers = [int(text) for text in texts]
                if all(later == number + 1 for number, later in pairwise(numbers)):
                    counters.append((is_before, place, numbers[0]))
    return counters


def pool_templates(templates: Sequence[RequestTemplate]) -> list[RequestTemplate]:
    """Read requests of one system together: what one leaves open, such as the frame of a lone chunk, another shows.

    >>> lead = "Answer from these passages only."
    >>> texts = [f"{lead}\\n[1] At ten.\\nDaily.\\n[2] By bus.\\nWhen?", f"{lead}\\n[1] On foot.\\nHow?"]
    >>> bus, foot = Chunk(id="b", text="By bus."), Chunk(id="c", text="On foot.")
    >>> chunks = [[Chunk(id="a", text="At ten.\\nDaily."), bus], [foot]]
    >>> requests = [[ConversationTurn(role="user", text=text)] for text in texts]
    >>> pooled = pool_templates([read_template(*pair) for pair in zip(requests, chunks)])
    >>> render_request(pooled[1], [chunks[0][0], chunks[1][0]])[0].text
    'Answer from these passages only.\\n[1] At ten.\\nDaily.\\n[2] On foot.\\nHow?'
    """
    groups = group_by(range(len(templates)), lambda place: _sign(templates[place]))
    pooled = list(templates)
    for places in groups.values():
        own = [templates[place] for place in places]
        common = list_writers(pair for template in own for pair in template.written)
        donor = find_donor(own)
        for place, template in zip(places, own, strict=True):
            pooled[place] = _adopt_frame(donor, template)._replace(writers=common or template.writers)
    return pooled


def _sign(template: RequestTemplate) -> tuple[tuple[str, str, bool], ...]:
    """Return what requests of one system share: roles, and how the messages begin that show no chunk or some.

    Of a message with chunks the first line counts: what stands before a lone chunk may belong to it.
    """
    return tuple(
        (
            message.role,
            (message.head.split("\n")[0] if message.slots else message.head)[:SIGNATURE],
            bool(message.slots),
        )
        for message in template.messages
    )


def find_donor(templates: Sequence[RequestTemplate]) -> RequestTemplate | None:
    """Find a request that shows where chunks stand and what is between them, in one message."""
    usable = [
        template
        for template in templates
        if not template.fault
        and not template.is_empty
        and sum(bool(message.slots) for message in template.messages) == 1
    ]
    return max(usable, key=lambda template: min(2, len(template.chunks)), default=None)


def _adopt_frame(donor: RequestTemplate | None, template: RequestTemplate) -> RequestTemplate:
    """Give a lone chunk the frame that chunks have in another request, where the same stands around it."""
    if donor is None or len(donor.chunks) < 2 or len(template.chunks) != 1:
        return template
    shown = next(message for message in donor.messages if message.slots)
    first = shown.slots[0]
    messages = []
    for message in template.messages:
        if not message.slots:
            messages.append(message)
            continue
        values = _list_values(template.chunks[0])
        before = _tokenize(message.head[-MOST_FRAME:], values)[-len(first.before) :] if first.before else []
        after = _tokenize(message.foot[:MOST_FRAME], values)[: len(first.after)]
        frames = ((before, first.before), (after, first.after))
        if any(
            len(own) != len(other) or not all(token.matches(like) for token, like in zip(own, other, strict=True))
            for own, other in frames
        ):
            return template
        sizes = [sum(len(token.text) for token in own) for own, _ in frames]
        messages.append(
            message._replace(
                head=message.head[: len(message.head) - sizes[0]],
                foot=message.foot[sizes[1] :],
                slots=(message.slots[0]._replace(before=tuple(before), after=tuple(after)),),
                separator=shown.separator,
                counters=shown.counters,
            )
        )
    return template._replace(messages=tuple(messages))


def adopt_place(donor: RequestTemplate, messages: Sequence[ConversationTurn]) -> RequestTemplate:
    """Read a request that shows no chunk, by the place that chunks have in another request of the same system.

    Raises RequestRefused where the texts before and after that place do not stand in it exactly once.

    >>> shown = [ConversationTurn(role="user", text="Context:\\n- At ten.\\n- Daily.\\n\\nQuestion: When?")]
    >>> donor = read_template(shown, [Chunk(id="a", text="At ten."), Chunk(id="b", text="Daily.")])
    >>> empty = [ConversationTurn(role="user", text="Context:\\n\\nQuestion: Where?")]
    >>> render_request(adopt_place(donor, empty), [Chunk(id="c", text="On foot.")])[0].text
    'Context:\\n- On foot.\\n\\nQuestion: Where?'
    """
    slotted = [message for message in donor.messages if message.slots]
    if len(messages) != len(donor.messages) or len(slotted) != 1 or donor.fault:
        raise RequestRefused("the request shows no chunk, so the place of chunks in it is not known")
    adopted = []
    for message, own in zip(donor.messages, messages, strict=True):
        if not message.slots:
            adopted.append(MessageTemplate(own.role, own.text))
            continue
        before, after = message.head.rstrip()[-ANCHOR:], message.foot.lstrip()[:ANCHOR].split("\n")[0][:ANCHOR_WORD]
        gap = re.compile(rf"{re.escape(before)}(\s*){re.escape(after)}") if before else None
        matches = list(gap.finditer(own.text)) if gap is not None else []
        if len(matches) != 1:
            raise RequestRefused("the request shows no chunk, and differs from those that show some")
        start = matches[0].start(1)
        blank = message.head[len(message.head.rstrip()) :]
        foot = message.foot[: len(message.foot) - len(message.foot.lstrip())] + own.text[matches[0].end(1) :]
        adopted.append(message._replace(head=own.text[:start] + blank, foot=foot))
    return RequestTemplate(tuple(adopted), tuple(messages), donor.chunks, (), donor.writers, is_empty=True)


def render_request(template: RequestTemplate, chunks: Sequence[Chunk]) -> tuple[ConversationTurn, ...]:
    """Write the request with these chunks in their order: those that it had as it had them, new ones alike.

    Where it has the chunks of the record in their order, it is the recorded request. Raises RequestRefused where a
    chunk cannot be moved or a new one not be written.

    >>> request = [ConversationTurn(role="user", text="- At ten.\\n- Daily.\\nWhen?")]
    >>> old = [Chunk(id="a", text="At ten."), Chunk(id="b", text="Daily.")]
    >>> template = read_template(request, old)
    >>> render_request(template, [Chunk(id="c", text="On foot."), old[0]])[0].text
    '- On foot.\\n- At ten.\\nWhen?'
    """
    recorded_chunks = () if template.is_empty else template.chunks
    if [(chunk.id, chunk.text) for chunk in chunks] == [(chunk.id, chunk.text) for chunk in recorded_chunks]:
        return template.recorded
    if template.fault:
        raise RequestRefused(template.fault)
    remaining = list(chunks)
    filled = [message for message in template.messages if message.slots]
    turns = []
    for message, recorded in zip(template.messages, template.recorded, strict=True):
        if not message.slots:
            turns.append(recorded)
            continue
        count = len(remaining) if message is filled[-1] else min(len(message.slots), len(remaining))
        shown, remaining = remaining[:count], remaining[count:]
        turns.append(replace(recorded, text=_render_message(template, message, shown)))
    return tuple(turns)


def _render_message(template: RequestTemplate, message: MessageTemplate, chunks: Sequence[Chunk]) -> str:
    parts = [_render_slot(template, message, chunk, place) for place, chunk in enumerate(chunks)]
    if len(chunks) > 1 and message.separator is None:
        raise RequestRefused("the request shows one chunk, so what stands between several is not known")
    return message.head + (message.separator or "").join(parts) + message.foot


def _render_slot(template: RequestTemplate, message: MessageTemplate, chunk: Chunk, place: int) -> str:
    """Write a chunk at a place with the text that belongs to it."""
    own = _find_slot(template, chunk)
    slot = own or message.slots[min(place, len(message.slots) - 1)]
    written = slot.written
    if own is None:
        written = _write_passage(template, slot, chunk.text)
    frames = []
    for is_before, tokens in ((True, slot.before), (False, slot.after)):
        texts = [token.text for token in tokens]
        if own is None:
            texts = [_rename(token, template.chunks[slot.chunk], chunk) for token in tokens]
        for counter_before, token, first in message.counters:
            if counter_before == is_before and token < len(texts):
                texts[token] = str(first + place)
        frames.append("".join(texts))
    return f"{frames[0]}{written}{frames[1]}"


def _write_passage(template: RequestTemplate, slot: Slot, text: str) -> str:
    """Write a passage as the request writes passages. Raises RequestRefused where ways that differ are possible."""
    before = "".join(token.text for token in slot.before)
    after = "".join(token.text for token in slot.after)
    # A value of JSON stands between quotes, and escaped markup among tags.
    impossible = {"html"} if not {"<", ">"} & {*before, *after} else set()
    impossible |= {"json", "json in json"} if not (before.endswith('"') and after.startswith('"')) else set()
    if before.endswith(': "') and after.startswith('"'):
        impossible |= {"plain", "quoted", "html"}
    writers = [writer for writer in template.writers if writer.style.encoding not in impossible] or template.writers
    texts = {writer.write(text) for writer in writers}
    if len(texts) != 1:
        raise RequestRefused("it is not known how the request writes such a passage: its lines, quotes or signs")
    return texts.pop()


def _find_slot(template: RequestTemplate, chunk: Chunk) -> Slot | None:
    """Find the slot that a chunk of the record has."""
    for message in template.messages:
        for slot in message.slots:
            old = template.chunks[slot.chunk]
            if (old.id, old.text) == (chunk.id, chunk.text):
                return slot
    return None


def _rename(token: FrameToken, old: Chunk, new: Chunk) -> str:
    """Return what names a new chunk where the text around it named another."""
    if token.kind != "value":
        return token.text
    named = {old.id: new.id, **({old.document: new.document or new.id} if old.document else {})}
    named |= {
        value: str(new.metadata.get(key, new.document or new.id))
        for key, value in old.metadata.items()
        if isinstance(value, str) and value
    }
    quoted = token.text[:1] == '"' == token.text[-1:]
    inner = token.text[1:-1] if quoted else token.text
    if re.fullmatch(r"[\d.,-]+", inner):
        return token.text
    name = named.get(inner, str(new.metadata.get("title") or new.document or new.id))
    return f'"{name}"' if quoted else name
