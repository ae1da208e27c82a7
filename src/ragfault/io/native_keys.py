"""Decoder of records in ragfault's own form: their keys, and the ranges of their numbers."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from ragfault.io.normalization import MAX_AMOUNT
from ragfault.model.records import Chunk, Citation, ConversationTurn, Gold, Latency, Span, Step, TokenCounts, Trace

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None
NonNegativeFloat = Annotated[float, Meta(ge=0)] | None
Count = Annotated[int, Meta(ge=0, lt=MAX_AMOUNT)] | None
Duration = Annotated[float, Meta(ge=0, lt=MAX_AMOUNT)] | None


def _define_key_struct(record: type[msgspec.Struct], **options: Any) -> Any:
    """Define a struct that allows the keys of a record and no others, and leaves values undecoded."""
    fields = [(name, options.get(name, Raw), None) for name in record.__struct_fields__]
    return msgspec.defstruct(f"{record.__name__}Keys", fields, forbid_unknown_fields=True, gc=False)


TokenKeys = _define_key_struct(TokenCounts, **dict.fromkeys(TokenCounts.__struct_fields__, Count)) | None
TurnKeys: Any = tuple[_define_key_struct(ConversationTurn), ...] | None  # type: ignore[misc]
TraceKeys = _define_key_struct(
    Trace,
    attempt=Annotated[int, Meta(ge=0, lt=MAX_AMOUNT)],
    history=TurnKeys,
    messages=TurnKeys,
    chunks=tuple[_define_key_struct(Chunk, start=Int64, end=Int64), ...] | None,  # type: ignore[misc]
    citations=tuple[_define_key_struct(Citation, start=Int64, end=Int64), ...] | None,  # type: ignore[misc]
    gold=_define_key_struct(Gold, spans=tuple[_define_key_struct(Span, start=Int64, end=Int64), ...]) | None,  # type: ignore[misc]
    turn=Count,
    latency=_define_key_struct(Latency, **dict.fromkeys(Latency.__struct_fields__, Duration)) | None,
    steps=tuple[  # type: ignore[misc]
        _define_key_struct(Step, start=NonNegativeFloat, duration=Duration, tokens=TokenKeys), ...
    ]
    | None,
    tokens=TokenKeys,
)
"""The keys of a trace, with integers within 64 bits, and times and counts that are neither negative nor absurd."""

check_keys = msgspec.json.Decoder(TraceKeys).decode
decode_native = msgspec.json.Decoder(Trace).decode
