"""Plan of the requests for a trace, split so that each fits the context window and the reply limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from ragfault.judges.llm.model_exchange import PromptRequest
from ragfault.judges.llm.prompts.instructions import PromptSet
from ragfault.judges.llm.prompts.prompt_inputs import PromptChunk, PromptCitation, PromptInputs
from ragfault.judges.llm.prompts.untrusted_text import FencedText, PromptLine
from ragfault.judges.llm.reply_parser import RequestedFields
from ragfault.judges.llm.settings import LLMSettings
from ragfault.judges.llm.transport.reply_cache import CallFailed, CallKind

TOKEN_MARGIN = 1.25
"""Safety factor on four bytes a token, as no tokenizer is at hand."""
FENCE_TOKENS = 32
"""Tokens of the lines around a text."""
IMAGE_TOKENS = 1_500
"""Tokens of an image."""
ENTRY_TOKENS = {
    "chunks": 45, "statements": 60, "claims": 90, "used": 16, "citations": 26, "facts": 24, "truth": 18,
    "passages": 18, "rubrics": 60,
}  # fmt: skip
"""Tokens of one entry of a reply."""
CUT_SLACK = 500
"""Characters by which a piece of a chunk may be shorter, to end at a word."""

T = TypeVar("T")


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text, rather too many than too few: four bytes a token, plus a margin.

    >>> estimate_tokens("a" * 400), estimate_tokens("")
    (125, 0)
    """
    return math.ceil((len(text) if text.isascii() else len(text.encode("utf-8", "replace"))) / 4 * TOKEN_MARGIN)


def estimate_fenced(text: FencedText) -> int:
    """Estimate the tokens of a text with its fences."""
    return estimate_tokens(text.text) + FENCE_TOKENS


def estimate_entries(fields: Sequence[str]) -> int:
    """Estimate the tokens of a reply for one id in these fields."""
    return sum(ENTRY_TOKENS[field] for field in fields)


def pack_groups(items: Sequence[T], sizes: Sequence[float], limit: float) -> list[list[T]]:
    """Pack neighbors into groups up to a limit; an oversized one is a group of its own.

    >>> pack_groups("abcd", [3, 3, 5, 9], 8)
    [['a', 'b'], ['c'], ['d']]
    """
    groups: list[list[T]] = []
    filled = math.inf
    for item, size in zip(items, sizes, strict=True):
        if filled + size > limit:
            groups.append([])
            filled = 0.0
        groups[-1].append(item)
        filled += size
    return groups


def split_text(part: FencedText, limit: float) -> list[FencedText]:
    """Split a text that exceeds the limit into pieces under its name, at word ends.

    >>> [piece.name for piece in split_text(FencedText("c1", "word " * 1_000), 600)]
    ['c1 part 1 of 3', 'c1 part 2 of 3', 'c1 part 3 of 3']
    """
    if estimate_fenced(part) <= limit:
        return [part]
    text = part.text
    longest = max(40, int((limit - FENCE_TOKENS) * 4 / TOKEN_MARGIN * len(text) / len(text.encode("utf-8", "replace"))))
    pieces: list[str] = []
    start = 0
    while start < len(text):
        end = min(len(text), start + longest)
        if end < len(text):
            word_end = max(text.rfind(separator, max(start + 1, end - CUT_SLACK), end) for separator in "\n ")
            end = word_end + 1 if word_end > start else end
        pieces.append(text[start:end])
        start = end
    return [FencedText(f"{part.name} part {number} of {len(pieces)}", piece) for number, piece in enumerate(pieces, 1)]


MIN_CHUNK_TOKENS = 250
"""Tokens that must be left for chunks; otherwise the trace is too long."""
OTHER_TOKENS = 400
"""Tokens of a reply for fields without ids."""
ANSWER_FIELDS = ("aspects", "relevance", "refused", "harm")
"""Fields about the answer as a whole."""


class ChunkPiece(NamedTuple):
    """Chunk, or a piece of a long one, in a request."""

    chunk: PromptChunk
    text: FencedText

    @property
    def size(self) -> int:
        return estimate_fenced(self.text) + (IMAGE_TOKENS if self.chunk.image else 0)


class TokenLimits(NamedTuple):
    """Room in tokens."""

    request: float
    """For texts."""
    reply: float
    """For entries by id."""

    def subtract(self, request: float, reply: float) -> TokenLimits:
        """Return what is left; of the reply never less than for a few entries."""
        return TokenLimits(self.request - request, max(MIN_CHUNK_TOKENS, self.reply - reply))


def plan_retrieval(inputs: PromptInputs, settings: LLMSettings, prompts: PromptSet) -> list[list[PromptRequest]]:
    """Plan chains of requests, each showing all chunks; the first grades them and asks what is missing.

    Statements that do not fit there get chains of their own. Raises CallFailed where no chunk fits beside the query.
    """
    if not (inputs.visible_chunks and settings.asks_about_retrieval):
        return []
    query = [FencedText("query", inputs.trace.query)]
    limits = compute_limits("retrieval", query, settings, prompts)
    chunk_tokens, statement_tokens = estimate_entries(["chunks"]), estimate_entries(["statements"])
    expected = [text for statements in inputs.statements for text in statements]
    rows = _group_texts(expected, limits, statement_tokens, reserved=chunk_tokens * len(inputs.visible_chunks)) or [[]]
    longest = max(map(len, rows))
    groups = _group_chunks(
        inputs.visible_chunks, limits.subtract(max(map(_total_tokens, rows)), statement_tokens * longest), chunk_tokens
    )
    return [
        [_build_grading_request(query, group, row, first=number == 0) for group in groups]
        for number, row in enumerate(rows)
    ]


def list_requested(inputs: PromptInputs, settings: LLMSettings) -> tuple[RequestedFields, RequestedFields]:
    """List the fields requested about the retrieval, and about the answer."""
    chunk_names = tuple(item.name for item in inputs.visible_chunks)
    retrieval: RequestedFields = {"chunks": chunk_names, "missing": ()} if chunk_names else {}
    if chunk_names and any(inputs.statements):
        retrieval["statements"] = tuple(item.name for statements in inputs.statements for item in statements)
    if not (inputs.trace.answer or "").strip():
        return retrieval, {}
    claims = tuple(f"s{number}" for number in range(1, len(inputs.claims) + 1))
    has_truth = bool(inputs.facts or inputs.references)
    generation: RequestedFields = {
        "claims": claims if chunk_names else (),
        "used": chunk_names,
        "citations": tuple(item.name for item in inputs.citations if item.chunk_name and item.claim),
        "facts": tuple(item.name for item in inputs.facts),
        "truth": claims if has_truth else (),
    }
    return retrieval, {name: ids for name, ids in generation.items() if ids} | _answer_fields(settings)


def plan_generation(inputs: PromptInputs, settings: LLMSettings, prompts: PromptSet) -> list[PromptRequest]:
    """Plan the requests about the answer: each group of claims with each group of chunks; CallFailed without room."""
    if not ((inputs.trace.answer or "").strip() and settings.asks_about_answer):
        return []
    truth_texts = [*inputs.facts, *inputs.references]
    citation_texts = [
        FencedText(citation.name, f"{citation.claim} {citation.citation.quote or ''}") for citation in inputs.citations
    ]
    limits = compute_limits(
        "generation", [FencedText("query", inputs.trace.query), *truth_texts, *citation_texts], settings, prompts
    )
    limits = limits.subtract(
        0,
        estimate_entries(["facts"]) * len(inputs.facts)
        + estimate_entries(["citations"]) * len(inputs.citations)
        + estimate_entries(["rubrics"]) * len(settings.rubrics),
    )
    used_tokens, claim_tokens = estimate_entries(["used"]), estimate_entries(["claims", "truth"])
    rows = _group_claims(inputs, limits, claim_tokens, reserved=used_tokens * len(inputs.visible_chunks))
    longest = max(len(row.claims) for row in rows)
    groups = _group_chunks(
        inputs.visible_chunks,
        limits.subtract(max(_total_tokens(row.context) for row in rows), claim_tokens * longest),
        used_tokens,
    ) or [[]]
    return [
        request
        for number, row in enumerate(rows)
        for column, group in enumerate(groups)
        if (request := _build_claim_request(inputs, row, group, (number, column), _answer_fields(settings))) is not None
    ]


def _build_grading_request(
    head: Sequence[FencedText], group: Sequence[ChunkPiece], statements: Sequence[FencedText], *, first: bool
) -> PromptRequest:
    """Build a request to grade chunks, and to check statements against them."""
    fields: RequestedFields = {"chunks": _chunk_names(group), "missing": ()} if first else {}
    if statements:
        fields["statements"] = tuple(piece.name for piece in statements)
    return PromptRequest(
        "retrieval", fields, (*head, *(piece.text for piece in group), *statements), _chunk_images(group)
    )


def _answer_fields(settings: LLMSettings) -> RequestedFields:
    """Return the fields about the answer; without relevance where it comes from questions."""
    fields: RequestedFields = {name: () for name in ANSWER_FIELDS if name != "relevance" or not settings.reverse}
    ids = tuple(f"u{number}" for number in range(1, len(settings.rubrics) + 1))
    return fields | {"rubrics": ids} if ids else fields


class ClaimGroup(NamedTuple):
    """Claims of an answer, and the context they are shown in."""

    claims: tuple[str, ...]
    context: tuple[FencedText, ...]


def _build_claim_request(
    inputs: PromptInputs,
    claim_group: ClaimGroup,
    group: Sequence[ChunkPiece],
    position: tuple[int, int],
    answer_fields: RequestedFields,
) -> PromptRequest | None:
    """Build a request to check claims against chunks; the first one also asks about the answer."""
    first_claims, chunk_names = position[0] == 0, frozenset(_chunk_names(group))
    cited = [item for item in inputs.citations if item.chunk_name in chunk_names and item.claim] if first_claims else []
    fields: RequestedFields = {}
    if group and claim_group.claims:
        fields["claims"] = claim_group.claims
    if group and first_claims:
        fields["used"] = _chunk_names(group)
    if cited:
        fields["citations"] = tuple(item.name for item in cited)
    if position == (0, 0) and inputs.facts:
        fields["facts"] = tuple(item.name for item in inputs.facts)
    if position[1] == 0 and claim_group.claims and (inputs.facts or inputs.references):
        fields["truth"] = claim_group.claims
    if position == (0, 0):
        fields |= answer_fields
    if not fields:
        return None
    truth_texts = (*inputs.facts, *inputs.references) if "truth" in fields or "facts" in fields else ()
    parts = (
        FencedText("query", inputs.trace.query),
        *(item.text for item in group),
        *claim_group.context,
        *(part for item in cited for part in _format_citation(item, claim_group)),
        *truth_texts,
    )
    claims_shown = sum(item.name != "answer" for item in claim_group.context)
    partial = frozenset(("claims", "truth")) if claims_shown > len(claim_group.claims) else frozenset()
    partial |= {"rubrics"}
    return PromptRequest("generation", fields, parts, _chunk_images(group), partial)


def _format_citation(citation: PromptCitation, claim_group: ClaimGroup) -> list[FencedText | PromptLine]:
    """Format a citation: its claim, by id where that is visible, and its quote."""
    visible = citation.claim_name is not None and any(
        piece.name == citation.claim_name for piece in claim_group.context
    )
    lines: list[FencedText | PromptLine] = [
        PromptLine(
            f"{citation.name}: {citation.claim_name if visible else 'the following'} cites {citation.chunk_name}"
        )
    ]
    if not visible:
        lines.append(FencedText(citation.name, citation.claim))
    if citation.citation.quote and citation.citation.quote != citation.claim:
        lines.append(FencedText(f"{citation.name}.quote", citation.citation.quote))
    return lines


def _chunk_names(group: Sequence[ChunkPiece]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(piece.chunk.name for piece in group))


def _chunk_images(group: Sequence[ChunkPiece]) -> tuple[tuple[str, str], ...]:
    return tuple({piece.chunk.name: piece.chunk.image for piece in group if piece.chunk.image}.items())


def compute_limits(
    kind: CallKind, fixed: Sequence[FencedText], settings: LLMSettings, prompts: PromptSet
) -> TokenLimits:
    """Compute the room beside the instructions and texts of every request; CallFailed where hardly any is left."""
    reply = max(MIN_CHUNK_TOKENS, 0.9 * settings.max_tokens - OTHER_TOKENS)
    if settings.context is None:
        return TokenLimits(math.inf, reply)
    fixed_tokens = estimate_tokens(prompts.instructions(kind)) + sum(map(estimate_fenced, fixed)) + OTHER_TOKENS
    room = settings.context - settings.max_tokens - fixed_tokens
    if room < 2 * MIN_CHUNK_TOKENS:
        raise CallFailed(
            f"the trace is too long: all but its chunks takes about {fixed_tokens:,} tokens, the reply up to "
            f"{settings.max_tokens:,}, and the model takes {settings.context:,}"
        )
    return TokenLimits(room, reply)


def _total_tokens(parts: Sequence[FencedText]) -> int:
    return sum(map(estimate_fenced, parts))


def _group_texts(texts: Sequence[FencedText], limits: TokenLimits, entry: int, reserved: int) -> list[list[FencedText]]:
    """Group texts into at most half of the request and, beside `reserved` tokens, of the reply."""
    reply = limits.reply - min(limits.reply / 2, reserved)
    sizes = [max(2 * estimate_fenced(text) / limits.request, entry / reply) for text in texts]
    return pack_groups(texts, sizes, 1.0)


def _group_claims(inputs: PromptInputs, limits: TokenLimits, entry: int, reserved: int) -> list[ClaimGroup]:
    """Group the claims, each group with the whole answer where that fits."""
    if _total_tokens(inputs.answer_parts) <= limits.request / 2:
        claims = [piece._replace(text="") for piece in inputs.answer_parts if piece.name != "answer"]
        groups = _group_texts(claims, limits, entry, reserved) or [[]]
        return [ClaimGroup(tuple(part.name for part in group), inputs.answer_parts) for group in groups]
    pieces = [part for piece in inputs.answer_parts for part in split_text(piece, limits.request / 2)]
    return [
        ClaimGroup(tuple(dict.fromkeys(part.name.split()[0] for part in row if part.name[0] == "s")), tuple(row))
        for row in _group_texts(pieces, limits, entry, reserved)
    ]


def _group_chunks(chunks: Sequence[PromptChunk], limits: TokenLimits, entry: int) -> list[list[ChunkPiece]]:
    """Group chunks that fit, long ones in pieces. Raises CallFailed where there is no room for any."""
    if chunks and limits.request < MIN_CHUNK_TOKENS:
        raise CallFailed("the trace is too long: its answer leaves no room for the chunks")
    pieces = [
        ChunkPiece(chunk, text)
        for chunk in chunks
        for text in split_text(
            FencedText(chunk.name, chunk.text),
            max(MIN_CHUNK_TOKENS, limits.request - (IMAGE_TOKENS if chunk.image else 0)),
        )
    ]
    sizes = [max(chunk.size / limits.request, entry / limits.reply) for chunk in pieces]
    return pack_groups(pieces, sizes, 1.0)
