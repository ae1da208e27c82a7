"""Plan the requests for a trace, split so that each fits the context window and the reply limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from ragfault.judges.llm.conversation import PromptRequest
from ragfault.judges.llm.prompts.fences import FencedText, PromptLine
from ragfault.judges.llm.prompts.instructions import PromptSet
from ragfault.judges.llm.prompts.prompt_inputs import PromptChunk, PromptCitation, PromptInputs
from ragfault.judges.llm.reply_parser import RequestedFields
from ragfault.judges.llm.settings import LLMSettings
from ragfault.judges.llm.transport.calls import CallFailed, CallKind

TOKEN_MARGIN = 1.25
"""No tokenizer is at hand, so more is taken for certain: four bytes a token, and a quarter on top."""
FENCE_TOKENS = 32
"""The lines round a text."""
IMAGE_TOKENS = 1_500
"""A picture."""
ENTRY_TOKENS = {
    "chunks": 45,
    "statements": 60,
    "claims": 90,
    "used": 16,
    "citations": 26,
    "facts": 24,
    "truth": 18,
    "passages": 18,
}
"""Tokens of one entry of a reply."""
CUT_SLACK = 500
"""A piece of a chunk may be shorter by so many characters, to end where a word does."""

T = TypeVar("T")


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has, rather too many than too few.

    Four bytes of UTF-8 for one token: of English four characters, of Chinese one and a third.

    >>> estimate_tokens("a" * 400), estimate_tokens("")
    (125, 0)
    """
    return math.ceil(
        (len(text) if text.isascii() else len(text.encode("utf-8", "replace"))) / 4 * TOKEN_MARGIN
    )


def estimate_fenced(text: FencedText) -> int:
    """About how many tokens a text has between its fences."""
    return estimate_tokens(text.text) + FENCE_TOKENS


def estimate_entries(fields: Sequence[str]) -> int:
    """About how many tokens a reply has for one thing that these fields have an entry for."""
    return sum(ENTRY_TOKENS[field] for field in fields)


def pack_groups(items: Sequence[T], sizes: Sequence[float], limit: float) -> list[list[T]]:
    """Neighbours together as long as they fit into the room; what does not fit by itself is alone.

    >>> pack_groups("abcd", [3, 3, 5, 9], 8)
    [['a', 'b'], ['c'], ['d']]
    """
    groups: list[list[T]] = []
    filled = math.inf
    for thing, size in zip(items, sizes, strict=True):
        if filled + size > limit:
            groups.append([])
            filled = 0.0
        groups[-1].append(thing)
        filled += size
    return groups


def split_text(part: FencedText, limit: float) -> list[FencedText]:
    """A text that is larger than the room as several, all under its name, cut where a word ends.

    >>> [piece.name for piece in split_text(FencedText("c1", "word " * 1_000), 600)]
    ['c1 part 1 of 3', 'c1 part 2 of 3', 'c1 part 3 of 3']
    """
    if estimate_fenced(part) <= limit:
        return [part]
    text = part.text
    longest = max(
        40, int((limit - FENCE_TOKENS) * 4 / TOKEN_MARGIN * len(text) / len(text.encode("utf-8", "replace")))
    )
    cut: list[str] = []
    place = 0
    while place < len(text):
        end = min(len(text), place + longest)
        if end < len(text):
            gap = max(text.rfind(sign, max(place + 1, end - CUT_SLACK), end) for sign in "\n ")
            end = gap + 1 if gap > place else end
        cut.append(text[place:end])
        place = end
    return [FencedText(f"{part.name} part {at} of {len(cut)}", one) for at, one in enumerate(cut, 1)]


MIN_CHUNK_TOKENS = 250
"""So many tokens must be left for chunks, or a trace is too long to be judged."""
OTHER_TOKENS = 400
"""Tokens of a reply for all that goes by no id."""
ANSWER_FIELDS = ("aspects", "relevance", "refused", "harm")
"""What is asked of the answer as a whole."""


class ChunkPiece(NamedTuple):
    """A chunk, or a stretch of a long one, as it goes into a request."""

    chunk: PromptChunk
    text: FencedText

    @property
    def size(self) -> int:
        """About how many tokens it has."""
        return estimate_fenced(self.text) + (IMAGE_TOKENS if self.chunk.image else 0)


class TokenLimits(NamedTuple):
    """What there is room for, in tokens."""

    request: float
    """For texts."""
    reply: float
    """For entries by id."""

    def subtract(self, request: float, reply: float) -> TokenLimits:
        """What is left when some of it is taken; of a reply never less than for a few entries."""
        return TokenLimits(self.request - request, max(MIN_CHUNK_TOKENS, self.reply - reply))


def plan_retrieval(
    inputs: PromptInputs, settings: LLMSettings, prompts: PromptSet
) -> list[list[PromptRequest]]:
    """The requests for what was retrieved: chains, each of which shows all chunks group by group.

    The first chain grades the chunks and asks what is missing; statements that do not fit beside that go into chains of
    their own. Raises CallFailed where the query leaves no room for a chunk.
    """
    if not inputs.visible_chunks:
        return []
    head = [FencedText("query", inputs.trace.query)]
    left = compute_limits("retrieval", head, settings, prompts)
    chunk, statement = estimate_entries(["chunks"]), estimate_entries(["statements"])
    expected = [one for each in inputs.statements for one in each]
    rows = _group_texts(expected, left, statement, reserved=chunk * len(inputs.visible_chunks)) or [[]]
    most = max(map(len, rows))
    groups = _group_chunks(
        inputs.visible_chunks, left.subtract(max(map(_total_tokens, rows)), statement * most), chunk
    )
    return [
        [_build_grading_request(head, group, row, first=number == 0) for group in groups]
        for number, row in enumerate(rows)
    ]


def list_requested(inputs: PromptInputs, settings: LLMSettings) -> tuple[RequestedFields, RequestedFields]:
    """All that is asked about a trace: of what was retrieved, and of what was generated."""
    seen = tuple(one.name for one in inputs.visible_chunks)
    upper: RequestedFields = {"chunks": seen, "missing": ()} if seen else {}
    if seen and any(inputs.statements):
        upper["statements"] = tuple(one.name for each in inputs.statements for one in each)
    if not (inputs.trace.answer or "").strip():
        return upper, {}
    claims = tuple(f"s{number}" for number in range(1, len(inputs.claims) + 1))
    known = bool(inputs.facts or inputs.references)
    lower: RequestedFields = {
        "claims": claims if seen else (),
        "used": seen,
        "citations": tuple(one.name for one in inputs.citations if one.chunk_name and one.claim),
        "facts": tuple(one.name for one in inputs.facts),
        "truth": claims if known else (),
    }
    return upper, {name: ids for name, ids in lower.items() if ids} | _answer_fields(settings)


def plan_generation(inputs: PromptInputs, settings: LLMSettings, prompts: PromptSet) -> list[PromptRequest]:
    """The requests for what was generated: each group of claims with each group of chunks.

    What needs the answer alone is asked with the first of them. Raises CallFailed where query, facts and references
    leave no room.
    """
    if not (inputs.trace.answer or "").strip():
        return []
    known = [*inputs.facts, *inputs.references]
    beside = [FencedText(one.name, f"{one.claim} {one.citation.quote or ''}") for one in inputs.citations]
    left = compute_limits(
        "generation", [FencedText("query", inputs.trace.query), *known, *beside], settings, prompts
    )
    left = left.subtract(
        0,
        estimate_entries(["facts"]) * len(inputs.facts)
        + estimate_entries(["citations"]) * len(inputs.citations),
    )
    used, claim = estimate_entries(["used"]), estimate_entries(["claims", "truth"])
    rows = _group_claims(inputs, left, claim, reserved=used * len(inputs.visible_chunks))
    most = max(len(row.claims) for row in rows)
    groups = _group_chunks(
        inputs.visible_chunks,
        left.subtract(max(_total_tokens(row.context) for row in rows), claim * most),
        used,
    ) or [[]]
    return [
        request
        for at, row in enumerate(rows)
        for place, group in enumerate(groups)
        if (request := _build_claim_request(inputs, row, group, (at, place), _answer_fields(settings)))
        is not None
    ]


# --- requests --------------------------------------------------------------------------------------


def _build_grading_request(
    head: Sequence[FencedText], group: Sequence[ChunkPiece], statements: Sequence[FencedText], *, first: bool
) -> PromptRequest:
    """Chunks to be graded, and statements that they may cover."""
    wanted: RequestedFields = {"chunks": _chunk_names(group), "missing": ()} if first else {}
    if statements:
        wanted["statements"] = tuple(one.name for one in statements)
    return PromptRequest(
        "retrieval", wanted, (*head, *(one.text for one in group), *statements), _chunk_images(group)
    )


def _answer_fields(settings: LLMSettings) -> RequestedFields:
    """What is asked of the answer as a whole; its relevance not where it comes from questions that it answers."""
    return {name: () for name in ANSWER_FIELDS if name != "relevance" or not settings.reverse}


class ClaimGroup(NamedTuple):
    """Some claims of an answer, and what is shown of it beside."""

    claims: tuple[str, ...]
    context: tuple[FencedText, ...]


def _build_claim_request(
    inputs: PromptInputs,
    claim_group: ClaimGroup,
    group: Sequence[ChunkPiece],
    position: tuple[int, int],
    answer_fields: RequestedFields,
) -> PromptRequest | None:
    """Claims to be held against chunks; in the first request of all also what is asked of the answer as a whole."""
    seen, named = position[0] == 0, frozenset(_chunk_names(group))
    cited = [one for one in inputs.citations if one.chunk_name in named and one.claim] if seen else []
    wanted: RequestedFields = {}
    if group and claim_group.claims:
        wanted["claims"] = claim_group.claims
    if group and seen:
        wanted["used"] = _chunk_names(group)
    if cited:
        wanted["citations"] = tuple(one.name for one in cited)
    if position == (0, 0) and inputs.facts:
        wanted["facts"] = tuple(one.name for one in inputs.facts)
    if position[1] == 0 and claim_group.claims and (inputs.facts or inputs.references):
        wanted["truth"] = claim_group.claims
    if position == (0, 0):
        wanted |= answer_fields
    if not wanted:
        return None
    known = (*inputs.facts, *inputs.references) if "truth" in wanted or "facts" in wanted else ()
    parts = (
        FencedText("query", inputs.trace.query),
        *(one.text for one in group),
        *claim_group.context,
        *(part for one in cited for part in _format_citation(one, claim_group)),
        *known,
    )
    shown = sum(one.name != "answer" for one in claim_group.context)
    partial = frozenset(("claims", "truth")) if shown > len(claim_group.claims) else frozenset()
    return PromptRequest("generation", wanted, parts, _chunk_images(group), partial)


def _format_citation(citation: PromptCitation, claim_group: ClaimGroup) -> list[FencedText | PromptLine]:
    """A citation: the claim that it stands by, by its id where it is in sight, and the words that it quotes."""
    known = citation.claim_name is not None and any(
        piece.name == citation.claim_name for piece in claim_group.context
    )
    said: list[FencedText | PromptLine] = [
        PromptLine(
            f"{citation.name}: {citation.claim_name if known else 'the following'} cites {citation.chunk_name}"
        )
    ]
    if not known:
        said.append(FencedText(citation.name, citation.claim))
    if citation.citation.quote and citation.citation.quote != citation.claim:
        said.append(FencedText(f"{citation.name}.quote", citation.citation.quote))
    return said


def _chunk_names(group: Sequence[ChunkPiece]) -> tuple[str, ...]:
    """The names of the chunks of a group, each once."""
    return tuple(dict.fromkeys(one.chunk.name for one in group))


def _chunk_images(group: Sequence[ChunkPiece]) -> tuple[tuple[str, str], ...]:
    """The pictures of a group, each once."""
    return tuple({one.chunk.name: one.chunk.image for one in group if one.chunk.image}.items())


# --- room ------------------------------------------------------------------------------------------


def compute_limits(
    kind: CallKind, fixed: Sequence[FencedText], settings: LLMSettings, prompts: PromptSet
) -> TokenLimits:
    """What is left of a model's limits beside the instructions and the texts that every request has.

    Raises CallFailed where hardly anything is.
    """
    reply = max(MIN_CHUNK_TOKENS, 0.9 * settings.max_tokens - OTHER_TOKENS)
    if settings.context is None:
        return TokenLimits(math.inf, reply)
    used = estimate_tokens(prompts.instructions(kind)) + sum(map(estimate_fenced, fixed)) + OTHER_TOKENS
    left = settings.context - settings.max_tokens - used
    if left < 2 * MIN_CHUNK_TOKENS:
        raise CallFailed(
            f"the trace is too long: all but its chunks takes about {used:,} tokens, the reply up to "
            f"{settings.max_tokens:,}, and the model takes {settings.context:,}"
        )
    return TokenLimits(left, reply)


def _total_tokens(parts: Sequence[FencedText]) -> int:
    """About how many tokens some texts have."""
    return sum(map(estimate_fenced, parts))


def _group_texts(
    texts: Sequence[FencedText], limits: TokenLimits, entry: int, reserved: int
) -> list[list[FencedText]]:
    """Texts in groups that take at most half of the room; in the reply they leave what goes `beside`, or half."""
    reply = limits.reply - min(limits.reply / 2, reserved)
    sizes = [max(2 * estimate_fenced(one) / limits.request, entry / reply) for one in texts]
    return pack_groups(texts, sizes, 1.0)


def _group_claims(inputs: PromptInputs, limits: TokenLimits, entry: int, reserved: int) -> list[ClaimGroup]:
    """The answer in groups of claims, each shown with the whole answer where there is room for it."""
    if _total_tokens(inputs.answer_parts) <= limits.request / 2:
        claims = [piece._replace(text="") for piece in inputs.answer_parts if piece.name != "answer"]
        each = _group_texts(claims, limits, entry, reserved) or [[]]
        return [ClaimGroup(tuple(one.name for one in group), inputs.answer_parts) for group in each]
    short = [part for piece in inputs.answer_parts for part in split_text(piece, limits.request / 2)]
    return [
        ClaimGroup(tuple(dict.fromkeys(one.name.split()[0] for one in row if one.name[0] == "s")), tuple(row))
        for row in _group_texts(short, limits, entry, reserved)
    ]


def _group_chunks(chunks: Sequence[PromptChunk], limits: TokenLimits, entry: int) -> list[list[ChunkPiece]]:
    """Chunks in groups that fit, long ones in pieces. Raises CallFailed where there is no room for any."""
    if chunks and limits.request < MIN_CHUNK_TOKENS:
        raise CallFailed("the trace is too long: its answer leaves no room for the chunks")
    each = [
        ChunkPiece(one, text)
        for one in chunks
        for text in split_text(
            FencedText(one.name, one.text),
            max(MIN_CHUNK_TOKENS, limits.request - (IMAGE_TOKENS if one.image else 0)),
        )
    ]
    sizes = [max(one.size / limits.request, entry / limits.reply) for one in each]
    return pack_groups(each, sizes, 1.0)
