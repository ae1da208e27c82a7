"""Prompt inputs: chunks, claims, citations and facts of a trace as the model sees them, each with an id."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from html.parser import HTMLParser
from typing import Any, Literal, NamedTuple

import msgspec

from ragfault.judges.assembly import split_statements
from ragfault.judges.checks.answers import locate_citing_sentence
from ragfault.judges.checks.claims import Claim, extract_claims
from ragfault.judges.llm.prompts.untrusted_text import FencedText, remove_hidden
from ragfault.judges.llm.settings import LLMSettings
from ragfault.model.records import Chunk, Citation, Trace
from ragfault.model.rules import is_address

IMAGE_KEYS = ("image", "image_url", "url")
"""Metadata keys of a chunk's image."""
MAX_IMAGE_LENGTH = 8_000_000
"""Longest image that is sent, in characters."""
DATA_URL = re.compile(r"data:image/(?:png|jpeg|jpg|gif|webp);base64,[A-Za-z0-9+/=]+\Z")
IMAGE_URL = re.compile(r"https://[^\s<>\"'\\\x00-\x20]{1,2000}\Z")


def select_image(chunk: Chunk, allowed: Literal["none", "data", "url"]) -> str | None:
    """Return the image of a chunk: embedded ones for "data" and "url", https ones for "url"; nothing is fetched."""
    if chunk.kind != "image" or allowed == "none":
        return None
    for source in (*(chunk.metadata.get(key) for key in IMAGE_KEYS), chunk.text):
        url = source.get("url") if isinstance(source, dict) else source
        if not isinstance(url, str) or len(url) > MAX_IMAGE_LENGTH:
            continue
        url = url.strip()
        if DATA_URL.match(url) or (allowed == "url" and IMAGE_URL.match(url)):
            return url
    return None


MAX_TABLE_LENGTH = 500_000
"""Longer texts are shown unchanged."""


def format_table(text: str) -> str:
    """Format a table or record (JSON, HTML, separated values) as Markdown; other text is returned unchanged."""
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
    """Format rows as Markdown, the first one as the heading."""
    width = max(map(len, rows))
    lines = ["| " + " | ".join([*map(_escape_cell, row), *[""] * (width - len(row))]) + " |" for row in rows]
    return "\n".join([lines[0], "| " + " | ".join(["---"] * width) + " |", *lines[1:]])


def _escape_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _parse_json_rows(text: str) -> list[list[str]]:
    """Parse a list of records, a list of lists, a record, or JSON Lines to rows."""
    try:
        data = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        try:
            data = [msgspec.json.decode(line) for line in text.splitlines() if line.strip()]
        except (msgspec.DecodeError, RecursionError):
            return []
    if isinstance(data, Mapping):
        return [[str(key), _format_cell(value)] for key, value in data.items()]
    if not isinstance(data, list) or not data:
        return []
    if all(isinstance(record, Mapping) for record in data):
        keys = list(dict.fromkeys(key for record in data for key in record))
        return [keys, *([_format_cell(record.get(key)) for key in keys] for record in data)] if keys else []
    if all(isinstance(record, list) for record in data) and any(data):
        return [[_format_cell(value) for value in record] for record in data]
    return []


def _format_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and not any(isinstance(entry, list | Mapping) for entry in value):
        return ", ".join(map(_format_cell, value))
    return msgspec.json.encode(value).decode()


def _parse_separated(text: str) -> list[list[str]]:
    """Parse values separated by tabs, semicolons or commas, where all rows have the same length."""
    for separator in "\t;,":
        if separator not in text.partition("\n")[0]:
            continue
        try:
            rows = [row for row in csv.reader(io.StringIO(text), delimiter=separator) if row]
        except csv.Error:
            continue
        if len(rows) > 1 and len({len(row) for row in rows}) == 1:
            return rows
    return []


class _HtmlTableParser(HTMLParser):
    """Parser that collects the rows of all tables."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[list[str]] = []
        self._open = False

    def handle_starttag(self, tag: str, attrs: Iterable[tuple[str, str | None]]) -> None:  # noqa: ARG002
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
        if tag in {"td", "th", "tr", "table"}:
            self._open = False

    def handle_data(self, data: str) -> None:
        """Append text to the open cell; text outside of cells, such as a caption, is a row."""
        if self._open:
            self.rows[-1][-1] += data
        elif data.strip():
            self.rows.append([data])


def _parse_html_rows(text: str) -> list[list[str]]:
    """Parse the rows of all tables of an HTML text, and the text between them."""
    parser = _HtmlTableParser()
    parser.feed(text)
    parser.close()
    rows = [row for row in parser.rows if any(cell.strip() for cell in row)]
    return rows if any(len(row) > 1 for row in rows) else []


class PromptChunk(NamedTuple):
    """Chunk as the model sees it."""

    name: str
    """`c1` for the first, and so on."""
    chunk: Chunk
    text: str
    """Visible text; tables as Markdown."""
    image: str | None = None

    @property
    def is_blank(self) -> bool:
        """Return True where there is nothing to see."""
        return not self.image and not self.text.strip()

    @property
    def is_unsent_image(self) -> bool:
        return self.is_blank and self.chunk.kind == "image"


class PromptCitation(NamedTuple):
    """Citation of the answer."""

    name: str
    """`k1` for the first, and so on."""
    citation: Citation
    claim: str
    """Claim that it supports; "" where that is unknown."""
    chunk_name: str | None
    """Name of the cited chunk; None where it was not retrieved, or is blank."""
    claim_name: str | None
    """Name of the claim with exactly this text."""


class PromptInputs(NamedTuple):
    """Everything of a trace that the model is asked about."""

    trace: Trace
    chunks: tuple[PromptChunk, ...] | None
    """None where no chunks were recorded, or only their ids."""
    claims: tuple[Claim, ...]
    answer_parts: tuple[FencedText, ...]
    """Whole answer: its claims under `s1`, `s2` …, the text between them under `answer`."""
    citations: tuple[PromptCitation, ...]
    facts: tuple[FencedText, ...]
    references: tuple[FencedText, ...]
    statements: tuple[tuple[FencedText, ...], ...]
    """Statements that the chunks should cover: the facts, else the sentences of each reference."""

    @property
    def visible_chunks(self) -> tuple[PromptChunk, ...]:
        return tuple(chunk for chunk in self.chunks or () if not chunk.is_blank)


def build_prompt_inputs(trace: Trace, settings: LLMSettings) -> PromptInputs:
    """Collect the prompt inputs of a trace; claims are extracted as for every other judge."""
    chunks = _prepare_chunks(trace.chunks, settings)
    answer = trace.answer or ""
    claims = tuple(extract_claims(answer)) if answer.strip() else ()
    facts = label_texts("f", trace.facts or ())
    expected = (
        [trace.facts] if trace.facts is not None else [split_statements(reference) for reference in trace.references]
    )
    return PromptInputs(
        trace=trace,
        chunks=chunks,
        claims=claims,
        answer_parts=_split_answer(answer, claims),
        citations=_resolve_citations(trace, chunks or (), claims),
        facts=facts,
        references=label_texts("r", trace.references),
        statements=_number_lists(expected),
    )


def label_texts(letter: str, texts: Sequence[str]) -> tuple[FencedText, ...]:
    """Name texts by a letter and their number, from 1.

    >>> label_texts("f", ["Oslo is old."])
    (FencedText(name='f1', text='Oslo is old.'),)
    """
    return tuple(FencedText(f"{letter}{number}", text) for number, text in enumerate(texts, 1))


def _number_lists(lists: Sequence[Sequence[str]]) -> tuple[tuple[FencedText, ...], ...]:
    numbered: list[tuple[FencedText, ...]] = []
    count = 0
    for texts in lists:
        numbered.append(tuple(FencedText(f"t{count + number}", text) for number, text in enumerate(texts, 1)))
        count += len(texts)
    return tuple(numbered)


def _prepare_chunks(chunks: Sequence[Chunk] | None, settings: LLMSettings) -> tuple[PromptChunk, ...] | None:
    """Prepare the chunks for the model; None where only ids were recorded."""
    if chunks is None:
        return None
    prepared = []
    for number, chunk in enumerate(chunks, 1):
        image = select_image(chunk, settings.images)
        text = "" if chunk.kind == "image" and is_address(chunk.text) else remove_hidden(chunk.text)
        if chunk.kind in {"table", "record"}:
            text = format_table(text)
        prepared.append(PromptChunk(f"c{number}", chunk, text, image))
    textless = all(chunk.is_blank and not chunk.is_unsent_image for chunk in prepared)
    return None if prepared and textless else tuple(prepared)


def _split_answer(answer: str, claims_in_answer: Sequence[Claim]) -> tuple[FencedText, ...]:
    """Split the answer into claims and the text between them."""
    parts: list[FencedText] = []
    offset = 0
    for number, claim in enumerate(claims_in_answer, 1):
        parts += [FencedText("answer", answer[offset : claim.start].strip()), FencedText(f"s{number}", claim.text)]
        offset = claim.end
    parts.append(FencedText("answer", answer[offset:].strip()))
    return tuple(part for part in parts if part.text)


def _resolve_citations(
    trace: Trace, chunks: Sequence[PromptChunk], claims_in_answer: Sequence[Claim]
) -> tuple[PromptCitation, ...]:
    """Resolve the claim and the chunk of each citation."""
    if not (trace.answer or "").strip():
        return ()
    names = {chunk.chunk.id: chunk.name for chunk in reversed(chunks) if not chunk.is_blank}
    claim_names = {claim.text: f"s{number}" for number, claim in reversed(list(enumerate(claims_in_answer, 1)))}
    cited = []
    for index, citation in enumerate(trace.citations or ()):
        claim = citation.claim or locate_citing_sentence(citation, index, trace.answer or "") or citation.quote or ""
        cited.append(
            PromptCitation(f"k{index + 1}", citation, claim, names.get(citation.chunk), claim_names.get(claim.strip()))
        )
    return tuple(cited)
