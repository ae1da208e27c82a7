"""Scores as OpenTelemetry has them: a `gen_ai.evaluation.result` for each, and a span beside the scored one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from ragfault import __version__
from ragfault.errors import MissingExtra
from ragfault.judges.assemble import level
from ragfault.online import Scored
from ragfault.records import Score, Trace
from ragfault.runs import Measure
from ragfault.sources.spans import Origin

__all__ = ["OTLP", "logs", "origin", "rated", "refused", "spans"]

OTLP = "otlp"
"""The key of the metadata under which a trace that came as spans keeps where it came from."""
EVENT = "gen_ai.evaluation.result"
SPAN = "ragfault.evaluate"
TRACE_ID, SPAN_ID = re.compile(r"(?!0{32})[0-9a-f]{32}"), re.compile(r"(?!0{16})[0-9a-f]{16}")
INFO = 9

Measures = Mapping[str, Measure]


def origin(trace: Trace) -> Origin | None:
    """Where the scores of a trace go back to; None where it did not come as spans."""
    try:
        found = msgspec.convert(trace.metadata.get(OTLP), Origin)
    except msgspec.ValidationError:
        return None
    return found if TRACE_ID.fullmatch(trace.id) and SPAN_ID.fullmatch(found.span) else None


def rated(scored: Scored) -> Iterator[Score]:
    """The scores that say something: those with a value, and those that were lost."""
    return (score for score in scored.scores if score.status != "undefined")


def logs(outcomes: Iterable[Scored], measures: Measures, now: int) -> bytes:
    """An `ExportLogsServiceRequest` with an event for each score, on the span that wrote the answer.

    Names and attributes are those of OpenTelemetry's semantic conventions for generative AI.
    """
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    request = ExportLogsServiceRequest()
    for service, group in _by_service(outcomes).items():
        part = request.resource_logs.add()
        _attach(part.resource, {"service.name": service})
        scope = part.scope_logs.add()
        scope.scope.name, scope.scope.version = "ragfault", __version__
        for scored in group:
            found = origin(scored.trace)
            for score in rated(scored):
                if found is None:
                    break
                record = scope.log_records.add(
                    time_unix_nano=now,
                    observed_time_unix_nano=now,
                    severity_number=INFO,
                    event_name=EVENT,
                    trace_id=bytes.fromhex(scored.trace.id),
                    span_id=bytes.fromhex(found.span),
                )
                _attach(record, _result(score, found, measures.get(score.metric)))
    return bytes(request.SerializeToString())


def spans(outcomes: Iterable[Scored], now: int) -> bytes:
    """An `ExportTraceServiceRequest` with a span for each trace, beneath the one that wrote the answer.

    A span that was sent cannot be changed; so the scores stand on one of their own, whose id follows from that of the
    trace and the judge: sent twice, it is there once.
    """
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest()
    for service, group in _by_service(outcomes).items():
        part = request.resource_spans.add()
        _attach(part.resource, {"service.name": service})
        scope = part.scope_spans.add()
        scope.scope.name, scope.scope.version = "ragfault", __version__
        for scored in group:
            found = origin(scored.trace)
            if found is not None:
                trace, about = bytes.fromhex(scored.trace.id), bytes.fromhex(found.span)
                name = f"{scored.trace.id} {scored.verdicts.judge}".encode()
                span = scope.spans.add(
                    trace_id=trace,
                    span_id=blake2b(name, digest_size=8).digest(),
                    parent_span_id=about,
                    name=SPAN,
                    kind=1,
                    start_time_unix_nano=now,
                    end_time_unix_nano=now,
                )
                span.links.add(trace_id=trace, span_id=about)
                _attach(span, _attributes(scored))
    return bytes(request.SerializeToString())


def refused(body: bytes, signal: str) -> int:
    """How many records or spans an answer says were not taken."""
    from google.protobuf.message import DecodeError

    try:
        if signal == "logs":
            from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

            return int(ExportLogsServiceResponse.FromString(body).partial_success.rejected_log_records)
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

        return int(ExportTraceServiceResponse.FromString(body).partial_success.rejected_spans)
    except DecodeError:
        return 0


def check() -> None:
    """Raise MissingExtra where the package that knows the messages is not installed."""
    try:
        import opentelemetry.proto.logs.v1.logs_pb2  # noqa: F401
    except ImportError:
        raise MissingExtra("sending scores by OTLP", "server") from None


# --- attributes ------------------------------------------------------------------------------------


def _by_service(outcomes: Iterable[Scored]) -> dict[str, list[Scored]]:
    """The outcomes by the service whose spans they are about."""
    found: dict[str, list[Scored]] = defaultdict(list)
    for scored in outcomes:
        service = scored.trace.metadata.get("service")
        found[service if isinstance(service, str) and service else "ragfault"].append(scored)
    return found


def _result(score: Score, found: Origin, measure: Measure | None) -> dict[str, Any]:
    """The attributes of one event; those that are not known are None."""
    share = measure is not None and (measure.low, measure.high) == (0.0, 1.0)
    return {
        "gen_ai.evaluation.name": score.metric,
        "gen_ai.evaluation.score.value": score.value,
        "gen_ai.evaluation.score.label": level(score.value) if share and score.value is not None else None,
        "gen_ai.evaluation.explanation": score.reason,
        "gen_ai.response.id": found.response,
        "error.type": "ragfault.failed" if score.status == "failed" else None,
        "ragfault.layer": score.layer,
    }


def _attributes(scored: Scored) -> dict[str, Any]:
    """The attributes of the span of one trace."""
    made: dict[str, Any] = {"openinference.span.kind": "EVALUATOR", "ragfault.judge": scored.verdicts.judge}
    return made | {f"ragfault.score.{score.metric}": score.value for score in rated(scored)}


def _attach(message: Any, attributes: Mapping[str, Any]) -> None:
    """Add those attributes that have a value."""
    for key, value in attributes.items():
        if value is None:
            continue
        added = message.attributes.add(key=key).value
        if isinstance(value, str):
            added.string_value = value.encode("utf-8", "replace").decode()
        else:
            added.double_value = value
