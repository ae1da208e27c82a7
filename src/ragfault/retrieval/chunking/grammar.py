"""The grammar of a chunker's text: `fixed(512, overlap=64)`, `recursive(800)`, `faq`."""

from __future__ import annotations

from typing import Any

from ragfault.errors import UnknownName, UsageError
from ragfault.ports import Embedder
from ragfault.retrieval.calls import read_call
from ragfault.retrieval.chunking.record import KINDS, Chunker
from ragfault.retrieval.embedders import load_embedder

__all__ = ["PRESETS", "SIZE", "chunker"]

SIZE = 512
"""The size of a chunk where none is asked for."""

PRESETS = {
    "technical": "semantic(1250, overlap=0.175)",
    "legal": "clauses(1000, overlap=0.225)",
    "faq": "pairs(384, overlap=0.125)",
    "papers": "sections(756, overlap=0.175)",
    "chat": "turns(450, overlap=0.275)",
}
"""Type of document → the chunker for it: the middle of what is advised for size and overlap."""

PARAMETERS = ("size", "overlap", "apart", "embedder")


def chunker(text: str = "recursive", *, embedder: Embedder | None = None) -> Chunker:
    """The chunker that a text describes: a kind or a type of document, then its parameters.

    `KIND(size, overlap=…, apart=true, embedder=NAME)`. The size is in tokens (512 where it is left out); the overlap in
    tokens, or below 1 a share of the size. Of a type of document (technical, legal, faq, papers, chat) each parameter
    can be set anew, and an overlap that is not keeps its share. `embedder` is what `semantic` compares sentences with.

    Raises UnknownName for a kind or parameter that does not exist, UsageError for what cannot be read or cannot be.

    >>> chunker("fixed(512, overlap=64)").text, chunker("faq").text, chunker("legal(800)").text
    ('fixed(512, overlap=64)', 'pairs(384, overlap=48)', 'clauses(800, overlap=180)')
    >>> chunker("recursiv(800)")
    Traceback (most recent call last):
    ragfault.errors.UnknownName: no chunker "recursiv". Did you mean "recursive"?
    """
    name, given = _read(text)
    if name in PRESETS:
        name, usual = _read(PRESETS[name])
        given = usual | given
    if name not in KINDS:
        raise UnknownName("chunker", name, [*KINDS, *PRESETS])
    size = _whole(text, "size", given.get("size", SIZE))
    overlap = given.get("overlap", 0)
    if isinstance(overlap, float):
        if not 0 <= overlap < 1:
            raise UsageError(f'"{text}": an overlap that is no whole number is a share of the size, below 1.')
        overlap = round(overlap * size)
    apart, model = given.get("apart", False), given.get("embedder", "")
    if not isinstance(apart, bool) or not isinstance(model, str):
        raise UsageError(f'"{text}": apart is true or false, and an embedder has a name.')
    if model and embedder is None and name == "semantic":
        embedder = load_embedder(model)
    elif model and name != "semantic":
        raise UsageError(f'"{text}": {name} takes no embedder; semantic does.')
    return Chunker(name, size, _whole(text, "overlap", overlap), apart, embedder, model)


def _whole(text: str, name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f'"{text}": the {name} is a whole number of tokens, got {value}.')
    return value


def _read(text: str) -> tuple[str, dict[str, Any]]:
    """Take the text of a chunker apart into name and parameters."""
    name, values, options = read_call(text)
    if len(values) > 1:
        raise UsageError(f'"{text}": the size alone stands by itself. Write NAME(SIZE, overlap=…).')
    if values and "size" in options:
        raise UsageError(f'"{text}": size is given twice.')
    for key in options:
        if key not in PARAMETERS:
            raise UnknownName("parameter of a chunker", key, PARAMETERS)
    return name, {**({"size": values[0]} if values else {}), **options}
