"""Prompt inputs: the chunks, claims, citations and facts of a trace as the model sees them, each with an id."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from html.parser import HTMLParser
from typing import Any, Literal, NamedTuple

import msgspec

from ragfault.judges.assembly import make_topic_check, split_statements
from ragfault.judges.checks.answers import locate_citing_sentence
from ragfault.judges.checks.claims import Claim, extract_claims
from ragfault.judges.checks.passages import Passage
from ragfault.judges.lexical.judge import LexicalJudge
from ragfault.judges.llm.prompts.fences import FencedText, remove_hidden
from ragfault.judges.llm.settings import LLMSettings
from ragfault.records import Chunk, Citation, Trace

IMAGE_KEYS = ("image", "image_url", "url")
"""Where the metadata of a chunk may hold its picture."""
MAX_IMAGE_LENGTH = 8_000_000
"""The longest picture that is sent, in characters."""
DATA_URL = re.compile(r"data:image/(?:png|jpeg|jpg|gif|webp);base64,[A-Za-z0-9+/=]+\Z")
IMAGE_URL = re.compile(r"https://[^\s<>\"'\\\x00-\x20]{1,2000}\Z")


def select_image(chunk: Chunk, allowed: Literal["none", "data", "url"]) -> str | None:
    """The picture of a chunk of the kind "image", from its metadata or its text; None where there is none to send.

    Pictures that the trace holds itself (`data:`) are sent, and with `sent="url"` also addresses that begin with
    https. Files are never read and nothing is fetched here.

    >>> select_image(Chunk(id="a", kind="image", metadata={"image_url": "https://example.com/a.png"}), "url")
    'https://example.com/a.png'
    >>> select_image(Chunk(id="a", kind="image", text="/etc/passwd"), "url") is None
    True
    """
    if chunk.kind != "image" or allowed == "none":
        return None
    for place in (*(chunk.metadata.get(key) for key in IMAGE_KEYS), chunk.text):
        held = place.get("url") if isinstance(place, dict) else place
        if not isinstance(held, str) or len(held) > MAX_IMAGE_LENGTH:
            continue
        held = held.strip()
        if DATA_URL.match(held) or (allowed == "url" and IMAGE_URL.match(held)):
            return held
    return None


MAX_TABLE_LENGTH = 500_000
"""A longer text is shown as it is."""


def format_table(text: str) -> str:
    """A table or record as Markdown: JSON, HTML, or values between commas, semicolons or tabs.

    What is none of these, Markdown among it, stays as it is.

    >>> print(format_table('[{"town": "Oslo", "founded": 1040}, {"town": "Bergen"}]'))
    | town | founded |
    | --- | --- |
    | Oslo | 1040 |
    | Bergen |  |
    >>> print(format_table('{"town": "Oslo", "rivers": ["Akerselva", "Lysakerelva"]}'))
    | town | Oslo |
    | --- | --- |
    | rivers | Akerselva, Lysakerelva |
    """
    bare = text.strip()
    if not bare or len(bare) > MAX_TABLE_LENGTH:
        return text
    if bare[0] in "[{":
        rows = _parse_json_rows(bare)
    elif "<t" in bare.lower():
        rows = _parse_html_rows(bare)
    else:
        rows = _parse_separated(bare)
    return _format_markdown(rows) if rows else text


def _format_markdown(rows: Sequence[Sequence[str]]) -> str:
    """Rows as Markdown, the first of them the heading."""
    width = max(map(len, rows))
    lines = ["| " + " | ".join([*map(_escape_cell, row), *[""] * (width - len(row))]) + " |" for row in rows]
    return "\n".join([lines[0], "| " + " | ".join(["---"] * width) + " |", *lines[1:]])


def _escape_cell(text: str) -> str:
    """A value on one line, with no bar that would end it."""
    return " ".join(text.split()).replace("|", "\\|")


def _parse_json_rows(text: str) -> list[list[str]]:
    """The rows of a list of records, a list of lists, or a single record; of several, one below the other, too."""
    try:
        held = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        try:
            held = [msgspec.json.decode(line) for line in text.splitlines() if line.strip()]
        except (msgspec.DecodeError, RecursionError):
            return []
    if isinstance(held, Mapping):
        return [[str(key), _format_cell(value)] for key, value in held.items()]
    if not isinstance(held, list) or not held:
        return []
    if all(isinstance(one, Mapping) for one in held):
        keys = list(dict.fromkeys(key for one in held for key in one))
        return [keys, *([_format_cell(one.get(key)) for key in keys] for one in held)] if keys else []
    if all(isinstance(one, list) for one in held) and any(held):
        return [[_format_cell(value) for value in one] for one in held]
    return []


def _format_cell(value: Any) -> str:
    """A value of a cell."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and not any(isinstance(one, list | Mapping) for one in value):
        return ", ".join(map(_format_cell, value))
    return msgspec.json.encode(value).decode()


def _parse_separated(text: str) -> list[list[str]]:
    """The rows of values between tabs, semicolons or commas, where all rows are of one length."""
    for sign in "\t;,":
        if sign not in text.partition("\n")[0]:
            continue
        try:
            rows = [row for row in csv.reader(io.StringIO(text), delimiter=sign) if row]
        except csv.Error:
            continue
        if len(rows) > 1 and len({len(row) for row in rows}) == 1:
            return rows
    return []


class _HtmlTableParser(HTMLParser):
    """Collects the rows of all tables of a text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[list[str]] = []
        self._open = False

    def handle_starttag(self, tag: str, attrs: Iterable[tuple[str, str | None]]) -> None:  # noqa: ARG002
        """A new row, or a new cell of it."""
        if tag == "tr":
            self.rows.append([])
            self._open = False
        elif tag in {"td", "th"}:
            if not self.rows:
                self.rows.append([])
            self.rows[-1].append("")
            self._open = True
        elif tag == "br" and self._open:
            self.rows[-1][-1] += " "

    def handle_endtag(self, tag: str) -> None:
        """The end of a cell."""
        if tag in {"td", "th", "tr", "table"}:
            self._open = False

    def handle_data(self, data: str) -> None:
        """Words of the open cell; before the first row, as in a caption, a row of their own."""
        if self._open:
            self.rows[-1][-1] += data
        elif data.strip():
            self.rows.append([data])


def _parse_html_rows(text: str) -> list[list[str]]:
    """The rows of all tables of an HTML text, and what stands between them."""
    parser = _HtmlTableParser()
    parser.feed(text)
    parser.close()
    rows = [row for row in parser.rows if any(cell.strip() for cell in row)]
    return rows if any(len(row) > 1 for row in rows) else []


class PromptChunk(NamedTuple):
    """A chunk as a model sees it."""

    name: str
    """`c1` for the first, and so on."""
    chunk: Chunk
    text: str
    """Its text, without what is not seen; tables as Markdown."""
    image: str | None = None

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to see."""
        return not self.image and not self.text.strip()

    @property
    def is_unsent_image(self) -> bool:
        """Whether it is a picture that is not shown."""
        return self.is_blank and self.chunk.kind == "image"


class PromptCitation(NamedTuple):
    """A citation of the answer."""

    name: str
    """`k1` for the first, and so on."""
    citation: Citation
    claim: str
    """What it stands by; "" where that is not known."""
    chunk_name: str | None
    """The name of the chunk that it points to; None where that was not retrieved, or holds nothing."""
    claim_name: str | None
    """The name of the claim whose very words it stands by."""


class PromptInputs(NamedTuple):
    """All of a trace that is asked about."""

    trace: Trace
    chunks: tuple[PromptChunk, ...] | None
    """None where no chunks were recorded, or nothing of them but their ids."""
    claims: tuple[Claim, ...]
    answer_parts: tuple[FencedText, ...]
    """The whole answer: its claims under `s1`, `s2` …, what stands between them under `answer`."""
    citations: tuple[PromptCitation, ...]
    facts: tuple[FencedText, ...]
    references: tuple[FencedText, ...]
    statements: tuple[tuple[FencedText, ...], ...]
    """What the chunks are expected to cover: the facts, else the sentences of each reference."""

    @property
    def visible_chunks(self) -> tuple[PromptChunk, ...]:
        """The chunks that there is something to see of."""
        return tuple(one for one in self.chunks or () if not one.is_blank)


def build_prompt_inputs(trace: Trace, settings: LLMSettings) -> PromptInputs:
    """What of a trace is asked about; claims are cut as for every other judge."""
    shown = _prepare_chunks(trace.chunks, settings)
    passages = [Passage(chunk.id, chunk.text) for chunk in trace.chunks or ()]
    answer = trace.answer or ""
    lexical = LexicalJudge().open_session(trace.query)
    said = (
        tuple(extract_claims(answer, make_topic_check(trace.query, passages, lexical)))
        if answer.strip()
        else ()
    )
    facts = number_texts("f", trace.facts or ())
    expected = (
        [trace.facts] if trace.facts is not None else [split_statements(one) for one in trace.references]
    )
    return PromptInputs(
        trace=trace,
        chunks=shown,
        claims=said,
        answer_parts=_split_answer(answer, said),
        citations=_resolve_citations(trace, shown or (), said),
        facts=facts,
        references=number_texts("r", trace.references),
        statements=_number_lists(expected),
    )


def number_texts(letter: str, texts: Sequence[str]) -> tuple[FencedText, ...]:
    """Texts under a letter and their number, from 1.

    >>> number_texts("f", ["Oslo is old."])
    (FencedText(name='f1', text='Oslo is old.'),)
    """
    return tuple(FencedText(f"{letter}{place}", text) for place, text in enumerate(texts, 1))


def _number_lists(lists: Sequence[Sequence[str]]) -> tuple[tuple[FencedText, ...], ...]:
    """Several lists of statements, numbered through."""
    found: list[tuple[FencedText, ...]] = []
    count = 0
    for texts in lists:
        found.append(tuple(FencedText(f"t{count + place}", text) for place, text in enumerate(texts, 1)))
        count += len(texts)
    return tuple(found)


def _prepare_chunks(chunks: Sequence[Chunk] | None, settings: LLMSettings) -> tuple[PromptChunk, ...] | None:
    """The chunks as a model sees them; None where there is nothing to see but that there were some."""
    if chunks is None:
        return None
    shown = []
    for place, chunk in enumerate(chunks, 1):
        picture = select_image(chunk, settings.images)
        text = "" if chunk.kind == "image" and _is_address(chunk.text) else remove_hidden(chunk.text)
        if chunk.kind in {"table", "record"}:
            text = format_table(text)
        shown.append(PromptChunk(f"c{place}", chunk, text, picture))
    textless = all(one.is_blank and not one.is_unsent_image for one in shown)
    return None if shown and textless else tuple(shown)


def _is_address(text: str) -> bool:
    """Whether a text is the address of a picture and no words about it."""
    bare = text.strip()
    return bare.startswith("data:") or ("://" in bare[:12] and not any(sign.isspace() for sign in bare))


def _split_answer(answer: str, claims_in_answer: Sequence[Claim]) -> tuple[FencedText, ...]:
    """The whole answer in its order, claims and what is between them."""
    pieces: list[FencedText] = []
    place = 0
    for number, claim in enumerate(claims_in_answer, 1):
        pieces += [
            FencedText("answer", answer[place : claim.start].strip()),
            FencedText(f"s{number}", claim.text),
        ]
        place = claim.end
    pieces.append(FencedText("answer", answer[place:].strip()))
    return tuple(piece for piece in pieces if piece.text)


def _resolve_citations(
    trace: Trace, chunks: Sequence[PromptChunk], claims_in_answer: Sequence[Claim]
) -> tuple[PromptCitation, ...]:
    """The citations, each with what it stands by and where it points."""
    if not (trace.answer or "").strip():
        return ()
    names = {one.chunk.id: one.name for one in reversed(chunks) if not one.is_blank}
    same = {claim.text: f"s{number}" for number, claim in reversed(list(enumerate(claims_in_answer, 1)))}
    cited = []
    for place, citation in enumerate(trace.citations or ()):
        claim = (
            citation.claim
            or locate_citing_sentence(citation, place, trace.answer or "")
            or citation.quote
            or ""
        )
        cited.append(
            PromptCitation(
                f"k{place + 1}", citation, claim, names.get(citation.chunk), same.get(claim.strip())
            )
        )
    return tuple(cited)
