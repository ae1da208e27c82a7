"""The mould of a file: made by its first record, it makes a trace of every one.

A line of a native file goes straight through msgspec; only what fails there, or holds a key that a trace
has not, is looked at again the slow way, which takes other forms and names the fault.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from ragfault.errors import SHOWN, InputError
from ragfault.records import Chunk, Citation, Gold, Latency, Span, Timing, Tokens, Trace
from ragfault.sources import shapes
from ragfault.sources.desk import Desk
from ragfault.sources.normalise import absent, has, leads, missing, normalise, paths, settle
from ragfault.sources.values import DEPTH, Wrong, kind

__all__ = ["Mould", "Notice", "Plan", "parse"]

Notice = Callable[[str], object]

MET = 1000
"""How many names of columns are kept, to offer one of them in the place of one that is absent."""

Big = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)] | None
Time = Annotated[float, Meta(ge=0)] | None


def _keys(record: type[msgspec.Struct], **known: Any) -> Any:
    """A struct that has the keys of a record and no others, and leaves their values unread."""
    fields = [(name, known.get(name, Raw), None) for name in record.__struct_fields__]
    return msgspec.defstruct(f"{record.__name__}Keys", fields, forbid_unknown_fields=True, gc=False)


TraceKeys = _keys(
    Trace,
    chunks=tuple[_keys(Chunk, start=Big, end=Big), ...] | None,  # type: ignore[misc]
    citations=tuple[_keys(Citation), ...] | None,  # type: ignore[misc]
    gold=_keys(Gold, spans=tuple[_keys(Span, start=Big, end=Big), ...]) | None,  # type: ignore[misc]
    turn=Count,
    latency=_keys(Latency, **dict.fromkeys(Latency.__struct_fields__, Time)) | None,
    timings=tuple[_keys(Timing, start=Time, took=Time, chunks=Count), ...] | None,  # type: ignore[misc]
    tokens=_keys(Tokens, **dict.fromkeys(Tokens.__struct_fields__, Count)) | None,
)
"""The keys that a trace may have, with whole numbers no larger than Arrow can hold, and no less than nothing
where that cannot be."""


class Plan:
    """What was asked for, the same for all files of one reading."""

    def __init__(
        self,
        given: shapes.Columns,
        shape: shapes.Shape | None,
        notice: Notice | None,
        limit: int,
        rest: bool = False,
    ) -> None:
        self.given, self.shape, self.notice, self.limit = given, shape, notice, limit
        self.rest = rest or not given
        """Whether columns that no field takes are kept as metadata."""
        self.told: str | None = None
        self.unmet = {path: field for field, paths in given.items() for path in paths}
        """The columns of the map that no record has had so far, each with its field."""
        self.met: dict[str, None] = {}
        """The columns that records have had, while some of the map are unmet."""

    def tell(self, line: str) -> None:
        """Say it once, not for each of many files."""
        if self.notice and line != self.told:
            self.told = line
            self.notice(line)

    def knows(self, names: Iterable[str]) -> bool:
        """Whether an object with these keys is a record."""
        names = set(names)
        query = self.given.get("query") or (self.shape.columns["query"] if self.shape else ())
        return any(leads(path, names) for path in query) or shapes.recognise(names) is not None

    def meet(self, record: dict[str, Any]) -> None:
        """Note which columns of the map a record has."""
        for path in [path for path in self.unmet if has(record, path)]:
            del self.unmet[path]
        if self.unmet and len(self.met) < MET:
            self.met.update(dict.fromkeys(paths(record)))

    def close(self) -> None:
        """Raise `InputError` for a column of the map that no record has had."""
        if self.unmet and self.met:
            path, field = next(iter(self.unmet.items()))
            raise InputError(absent(field, path, self.met))


class Mould:
    """Makes traces of the records of one file, once the first of them has shown its shape."""

    def __init__(self, name: str, plan: Plan) -> None:
        self.name, self.plan = name, plan
        self.columns: shapes.Columns | None = None
        self.unfold: Callable[[dict[str, Any]], dict[str, Any]] | None = None
        self.direct = self.table = False
        self.strangers = 0
        self.decode = msgspec.json.Decoder(Trace).decode
        self.keys = msgspec.json.Decoder(TraceKeys).decode

    def header(self, names: list[str]) -> None:
        """Settle the shape by the columns of a table; raises `InputError` where none can be the query."""
        self.table = True
        try:
            self._settle(dict.fromkeys(names, ""))
        except Wrong as wrong:
            raise InputError(f"{self.name}: {wrong}") from None
        for field, [path] in self.plan.given.items():
            if not leads(path, names):
                raise InputError(f"{self.name}: {absent(field, path, names)}")
            if path in names:
                self.plan.unmet.pop(path, None)

    def trace(self, payload: Any) -> Trace:
        """The trace that a payload stands for; raises `Wrong`."""
        if self.direct and type(payload) is bytes:
            trace = self._straight(payload)
            if trace is not None:
                return trace
        if isinstance(payload, Wrong):
            raise payload
        if isinstance(payload, Trace):
            if self.direct:
                return settle(payload, check=True)
            payload = msgspec.to_builtins(payload)
        record = parse(payload) if isinstance(payload, bytes) else payload
        if self.columns is None:
            self._settle(record)
            if self.direct and type(payload) is bytes:
                return self.trace(payload)
        if self.unfold:
            record = self.unfold(record)
        if self.plan.unmet:
            self.plan.meet(record)
        return normalise(record, self.columns or {}, rest=self.plan.rest, loose=self.table)

    def _straight(self, line: bytes) -> Trace | None:
        """A native line, by msgspec alone; None where it takes a closer look."""
        try:
            self.keys(line)
            trace = self.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        if line.count(b"{") + line.count(b"[") > DEPTH and _depth(line) > DEPTH:
            return None
        plain = trace.time is None and type(trace.reference) is not tuple and trace.error != ""
        return trace if plain else settle(trace)

    def _settle(self, record: dict[str, Any]) -> None:
        """Find the shape from the first record; raises `Wrong` where none fits."""
        given, shape = self.plan.given, self.plan.shape or shapes.recognise(record)
        if shape is None and "query" in given:
            shape = shapes.NATIVE
        if shape is None:
            raise Wrong(missing(("query",), record))
        columns = {**shape.columns, **given}
        self.unfold = shape.unfold
        if shape.name == "ragtruth":
            from ragfault.sources.ragtruth import join

            self.unfold = join(self.name, self.plan.limit)
            record = self.unfold(record)
        elif not any(path in record or "." in path for path in columns["query"]):
            raise Wrong(missing(columns["query"], record))
        self.direct = shape is shapes.NATIVE and not given
        self.columns = columns
        self._tell(shape, record)

    def _tell(self, shape: shapes.Shape, record: dict[str, Any]) -> None:
        used = [path for paths in (self.columns or {}).values() for path in paths if path in record]
        mapped = " by a column map" if self.plan.given else ""
        spare = [key for key in record if key not in used] if self.plan.rest else []
        more = (
            f"; kept in metadata: {', '.join(spare[:10])}{', …' if len(spare) > 10 else ''}" if spare else ""
        )
        self.plan.tell(f"read as {shape.title}{mapped} ({', '.join(used)}){more}")

    def doubt(self, desk: Desk) -> None:
        """Give up on a file whose first records are all of no known shape; raises `InputError`."""
        self.strangers += self.columns is None
        if self.strangers >= SHOWN and not desk.good:
            raise InputError(f"{self.name}: {desk.faults[-1].problem if desk.faults else 'no traces'}")


def parse(line: bytes) -> dict[str, Any]:
    """The object that a line is; raises `Wrong` with the reason where it is none.

    NaN and Infinity, which are no JSON but are written by many, come through for the checks to name.
    """
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Wrong(f"invalid UTF-8 at byte {error.start + 1}") from None
    try:
        record = json.loads(text)
    except json.JSONDecodeError as error:
        raise Wrong(f"malformed JSON: {error.msg.removesuffix(' at')} at character {error.pos + 1}") from None
    except RecursionError:
        raise Wrong("nested too deeply") from None
    except ValueError as error:
        raise Wrong(f"malformed JSON: {error}") from None
    if not isinstance(record, dict):
        raise Wrong(f"Expected `object`, got `{kind(record)}`")
    return record


def _depth(line: bytes) -> int:
    """How deep a valid line of JSON nests."""
    depth = deepest = 0
    string = escaped = False
    for byte in line:
        if string:
            string, escaped = escaped or byte != 0x22, not escaped and byte == 0x5C
        elif byte == 0x22:
            string = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest
