"""A survey: how many traces there are, which ones exactly, and what is wrong with the rest."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from ragfault.errors import SHOWN, Fault
from ragfault.records import Trace
from ragfault.sources.files import MAX_LINE, Where
from ragfault.sources.read import read_traces

__all__ = ["Digest", "Survey", "survey"]


class Survey(msgspec.Struct, frozen=True):
    """What one pass over an input found."""

    count: int
    """Traces that can be read."""
    fingerprint: str
    """32 hex digits that stand for these traces in this order, whatever file or format they are in."""
    shape: str
    """How they were read, in words: "read as Ragas (user_input, …)"; several, joined, for files that differ."""
    bad: int = 0
    """Lines that are no trace."""
    faults: tuple[Fault, ...] = ()
    """The first of them."""
    named: bool = False
    """Whether some were named by their queries, or as if: then a trace depends on those before it."""


def survey(
    where: Where,
    *,
    map: Mapping[str, str] | str | Path | None = None,
    shape: str | None = None,
    qrels: str | os.PathLike[str] | None = None,
    max_line: int = MAX_LINE,
) -> Survey:
    """Count, check and fingerprint the traces of an input in one pass.

    Takes the input as `read_traces` does, and like it raises `InputError` and `UnknownName`, but hands the
    faults of single lines back. Standard input is spent afterwards.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "t.jsonl"
    >>> _ = path.write_text('{"id": "1", "query": "When?"}\\n{"id": "2"}\\n')
    >>> found = survey(path)
    >>> found.count, found.bad, found.faults[0].line, len(found.fingerprint)
    (1, 1, 2, 32)
    """
    digest = Digest()
    told: list[str] = []
    faults: list[Fault] = []
    bad, named = 0, False

    def note(fault: Fault) -> None:
        nonlocal bad
        bad += 1
        if len(faults) < SHOWN:
            faults.append(fault)

    for trace in read_traces(
        where, map=map, shape=shape, qrels=qrels, on_bad=note, notice=told.append, max_line=max_line
    ):
        digest.add(trace)
        named = named or trace.id.startswith("q-")
    return Survey(digest.count, digest.fingerprint, "; ".join(dict.fromkeys(told)), bad, tuple(faults), named)


class Digest:
    """The fingerprint of a sequence of traces, taken as they go by.

    >>> one, two = Digest(), Digest()
    >>> one.add(Trace(id="1", query="When?"))
    >>> (one.count, two.count, one.fingerprint == two.fingerprint)
    (1, 0, False)
    """

    def __init__(self) -> None:
        self.count = 0
        self._hash = blake2b(digest_size=16)
        self._encode = msgspec.msgpack.Encoder(order="deterministic").encode

    def add(self, trace: Trace) -> None:
        """Take in the next trace."""
        self.count += 1
        self._hash.update(self._encode(_plain(trace)))

    @property
    def fingerprint(self) -> str:
        """32 hex digits for the traces so far."""
        return self._hash.hexdigest()


def _plain(trace: Trace) -> list[Any]:
    """Every field's value, also where it is the default: a default that was written out is no difference."""
    values = list(msgspec.structs.astuple(trace))
    for place, name in enumerate(trace.__struct_fields__):
        value = values[place]
        if name in ("chunks", "citations", "timings") and value is not None:
            values[place] = [msgspec.structs.astuple(part) for part in value]
        elif name == "gold" and value is not None:
            values[place] = [value.chunks, [msgspec.structs.astuple(span) for span in value.spans]]
        elif name in ("latency", "tokens") and value is not None:
            values[place] = msgspec.structs.astuple(value)
    return values
