"""Matter: what of a trace is asked about, each thing under an id of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ragfault.judges.answers import citing
from ragfault.judges.assemble import meant, statements
from ragfault.judges.claims import Claim, claims
from ragfault.judges.lexical import Lexical
from ragfault.judges.llm.fences import Fenced
from ragfault.judges.llm.hidden import clear
from ragfault.judges.llm.images import image
from ragfault.judges.llm.settings import Settings
from ragfault.judges.llm.tables import table
from ragfault.judges.scorer import Passage
from ragfault.records import Chunk, Citation, Trace

__all__ = ["Cited", "Matter", "Shown", "matter", "numbered"]


class Shown(NamedTuple):
    """A chunk as a model sees it."""

    name: str
    """`c1` for the first, and so on."""
    chunk: Chunk
    text: str
    """Its text, without what is not seen; tables as Markdown."""
    image: str | None = None

    @property
    def blank(self) -> bool:
        """Whether there is nothing to see."""
        return not self.image and not self.text.strip()

    @property
    def unseen(self) -> bool:
        """Whether it is a picture that is not shown."""
        return self.blank and self.chunk.kind == "image"


class Cited(NamedTuple):
    """A citation of the answer."""

    name: str
    """`k1` for the first, and so on."""
    citation: Citation
    claim: str
    """What it stands by; "" where that is not known."""
    chunk: str | None
    """The name of the chunk that it points to; None where that was not retrieved, or holds nothing."""
    same: str | None
    """The name of the claim whose very words it stands by."""


class Matter(NamedTuple):
    """All of a trace that is asked about."""

    trace: Trace
    chunks: tuple[Shown, ...] | None
    """None where no chunks were recorded, or nothing of them but their ids."""
    claims: tuple[Claim, ...]
    pieces: tuple[Fenced, ...]
    """The whole answer: its claims under `s1`, `s2` …, what stands between them under `answer`."""
    cited: tuple[Cited, ...]
    facts: tuple[Fenced, ...]
    references: tuple[Fenced, ...]
    statements: tuple[tuple[Fenced, ...], ...]
    """What the chunks are expected to cover: the facts, else the sentences of each reference."""

    @property
    def seen(self) -> tuple[Shown, ...]:
        """The chunks that there is something to see of."""
        return tuple(one for one in self.chunks or () if not one.blank)


def matter(trace: Trace, settings: Settings) -> Matter:
    """What of a trace is asked about; claims are cut as for every other judge."""
    shown = _shown(trace.chunks, settings)
    passages = [Passage(chunk.id, chunk.text) for chunk in trace.chunks or ()]
    answer = trace.answer or ""
    lexical = Lexical().read(trace.query)
    said = tuple(claims(answer, meant(trace.query, passages, lexical))) if answer.strip() else ()
    facts = numbered("f", trace.facts or ())
    expected = [trace.facts] if trace.facts is not None else [statements(one) for one in trace.references]
    return Matter(
        trace=trace,
        chunks=shown,
        claims=said,
        pieces=_pieces(answer, said),
        cited=_cited(trace, shown or (), said),
        facts=facts,
        references=numbered("r", trace.references),
        statements=_listed(expected),
    )


def numbered(letter: str, texts: Sequence[str]) -> tuple[Fenced, ...]:
    """Texts under a letter and their number, from 1.

    >>> numbered("f", ["Oslo is old."])
    (Fenced(name='f1', text='Oslo is old.'),)
    """
    return tuple(Fenced(f"{letter}{place}", text) for place, text in enumerate(texts, 1))


def _listed(lists: Sequence[Sequence[str]]) -> tuple[tuple[Fenced, ...], ...]:
    """Several lists of statements, numbered through."""
    found: list[tuple[Fenced, ...]] = []
    count = 0
    for texts in lists:
        found.append(tuple(Fenced(f"t{count + place}", text) for place, text in enumerate(texts, 1)))
        count += len(texts)
    return tuple(found)


def _shown(chunks: Sequence[Chunk] | None, settings: Settings) -> tuple[Shown, ...] | None:
    """The chunks as a model sees them; None where there is nothing to see but that there were some."""
    if chunks is None:
        return None
    shown = []
    for place, chunk in enumerate(chunks, 1):
        picture = image(chunk, settings.images)
        text = "" if chunk.kind == "image" and _address(chunk.text) else clear(chunk.text)
        if chunk.kind in {"table", "record"}:
            text = table(text)
        shown.append(Shown(f"c{place}", chunk, text, picture))
    textless = all(one.blank and not one.unseen for one in shown)
    return None if shown and textless else tuple(shown)


def _address(text: str) -> bool:
    """Whether a text is the address of a picture and no words about it."""
    bare = text.strip()
    return bare.startswith("data:") or ("://" in bare[:12] and not any(sign.isspace() for sign in bare))


def _pieces(answer: str, said: Sequence[Claim]) -> tuple[Fenced, ...]:
    """The whole answer in its order, claims and what is between them."""
    pieces: list[Fenced] = []
    place = 0
    for number, claim in enumerate(said, 1):
        pieces += [Fenced("answer", answer[place : claim.start].strip()), Fenced(f"s{number}", claim.text)]
        place = claim.end
    pieces.append(Fenced("answer", answer[place:].strip()))
    return tuple(piece for piece in pieces if piece.text)


def _cited(trace: Trace, shown: Sequence[Shown], said: Sequence[Claim]) -> tuple[Cited, ...]:
    """The citations, each with what it stands by and where it points."""
    if not (trace.answer or "").strip():
        return ()
    names = {one.chunk.id: one.name for one in reversed(shown) if not one.blank}
    same = {claim.text: f"s{number}" for number, claim in reversed(list(enumerate(said, 1)))}
    cited = []
    for place, citation in enumerate(trace.citations or ()):
        claim = citation.claim or citing(citation, place, trace.answer or "") or citation.quote or ""
        cited.append(
            Cited(f"k{place + 1}", citation, claim, names.get(citation.chunk), same.get(claim.strip()))
        )
    return tuple(cited)
