"""Export of scores over OTLP: OpenTelemetry evaluation events and spans, sent in batches on a thread."""

from __future__ import annotations

import gzip
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from queue import Empty, Full, Queue
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ragfault.apps.watch.server.background_thread import BackgroundThread
from ragfault.apps.watch.server.counters import EventCounters
from ragfault.apps.watch.server.http_client import DeliveryAttempt, post
from ragfault.apps.watch.server.settings import ServerSettings
from ragfault.evaluation.online.scorer import ScoredTrace
from ragfault.io.otel.span_tree import TraceOrigin
from ragfault.io.otel.spans import RATING_EVENT
from ragfault.io.runs.run import MetricInfo
from ragfault.judges.assembly import grade_relevance
from ragfault.model.errors import UsageError, require_extra
from ragfault.model.records import Score, Trace
from ragfault.model.version import __version__

# metadata key that holds the origin of a trace received as spans
ORIGIN_KEY = "otlp"
EVALUATION_SPAN = "ragfault.evaluate"
TRACE_ID_PATTERN, SPAN_ID_PATTERN = re.compile(r"(?!0{32})[0-9a-f]{32}"), re.compile(r"(?!0{16})[0-9a-f]{16}")
SEVERITY_INFO = 9

MeasuresByMetric = Mapping[str, MetricInfo]


def read_origin(trace: Trace) -> TraceOrigin | None:
    """Return the span that the scores of a trace refer to; None where the trace was not received as spans."""
    try:
        origin = msgspec.convert(trace.metadata.get(ORIGIN_KEY), TraceOrigin)
    except msgspec.ValidationError:
        return None
    return origin if TRACE_ID_PATTERN.fullmatch(trace.id) and SPAN_ID_PATTERN.fullmatch(origin.span) else None


def select_scores(scored: ScoredTrace) -> Iterator[Score]:
    """Return the scores that have a value or failed."""
    return (score for score in scored.scores if score.status != "undefined")


def _describe_source(resource: Any, scope: Any, service: str) -> Any:
    """Write the service of a resource and the version of ragfault into a scope; return the scope."""
    _set_attributes(resource, {"service.name": service})
    scope.scope.name, scope.scope.version = "ragfault", __version__
    return scope


def encode_logs(outcomes: Iterable[ScoredTrace], measures: MeasuresByMetric, now: int) -> bytes:
    """Encode an `ExportLogsServiceRequest` with one event per score, on the span that wrote the answer.

    Names and attributes follow OpenTelemetry's semantic conventions for generative AI.
    """
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    request = ExportLogsServiceRequest()
    for service, group in _group_by_service(outcomes).items():
        part = request.resource_logs.add()
        scope = _describe_source(part.resource, part.scope_logs.add(), service)
        for scored in group:
            origin = read_origin(scored.trace)
            for score in select_scores(scored):
                if origin is None:
                    break
                record = scope.log_records.add(
                    time_unix_nano=now,
                    observed_time_unix_nano=now,
                    severity_number=SEVERITY_INFO,
                    event_name=RATING_EVENT,
                    trace_id=bytes.fromhex(scored.trace.id),
                    span_id=bytes.fromhex(origin.span),
                )
                _set_attributes(record, _event_attributes(score, origin, measures.get(score.metric)))
    return bytes(request.SerializeToString())


def encode_spans(outcomes: Iterable[ScoredTrace], now: int) -> bytes:
    """Encode an `ExportTraceServiceRequest` with one span per trace, below the one that wrote the answer.

    A span that was sent cannot be changed, so the scores get one of their own, whose id is derived from trace and
    judge: sending it twice creates one span.
    """
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest()
    for service, group in _group_by_service(outcomes).items():
        part = request.resource_spans.add()
        scope = _describe_source(part.resource, part.scope_spans.add(), service)
        for scored in group:
            origin = read_origin(scored.trace)
            if origin is not None:
                trace, about = bytes.fromhex(scored.trace.id), bytes.fromhex(origin.span)
                name = f"{scored.trace.id} {scored.verdicts.judge}".encode()
                span = scope.spans.add(
                    trace_id=trace,
                    span_id=blake2b(name, digest_size=8).digest(),
                    parent_span_id=about,
                    name=EVALUATION_SPAN,
                    kind=1,
                    start_time_unix_nano=now,
                    end_time_unix_nano=now,
                )
                span.links.add(trace_id=trace, span_id=about)
                _set_attributes(span, _span_attributes(scored))
    return bytes(request.SerializeToString())


def count_rejected(body: bytes, signal: str) -> int:
    """Return how many records or spans a response reports as rejected."""
    from google.protobuf.message import DecodeError

    try:
        if signal == "logs":
            from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

            return int(ExportLogsServiceResponse.FromString(body).partial_success.rejected_log_records)
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

        return int(ExportTraceServiceResponse.FromString(body).partial_success.rejected_spans)
    except DecodeError:
        return 0


def require_otlp() -> None:
    """Raise MissingExtra where opentelemetry-proto is not installed."""
    with require_extra("sending scores by OTLP", "server"):
        import opentelemetry.proto.logs.v1.logs_pb2  # noqa: F401


def _group_by_service(outcomes: Iterable[ScoredTrace]) -> dict[str, list[ScoredTrace]]:
    """Group outcomes by the service that sent their spans."""
    groups: dict[str, list[ScoredTrace]] = defaultdict(list)
    for scored in outcomes:
        service = scored.trace.metadata.get("service")
        groups[service if isinstance(service, str) and service else "ragfault"].append(scored)
    return groups


def _event_attributes(score: Score, source: TraceOrigin, measure: MetricInfo | None) -> dict[str, Any]:
    """Return the attributes of one event; unknown ones are None."""
    share = measure is not None and (measure.low, measure.high) == (0.0, 1.0)
    return {
        "gen_ai.evaluation.name": score.metric,
        "gen_ai.evaluation.score.value": score.value,
        "gen_ai.evaluation.score.label": grade_relevance(score.value) if share and score.value is not None else None,
        "gen_ai.evaluation.explanation": score.reason,
        "gen_ai.response.id": source.response,
        "error.type": "ragfault.failed" if score.status == "failed" else None,
        "ragfault.layer": score.layer,
    }


def _span_attributes(scored: ScoredTrace) -> dict[str, Any]:
    """Return the attributes of the span of one trace."""
    attributes: dict[str, Any] = {"openinference.span.kind": "EVALUATOR", "ragfault.judge": scored.verdicts.judge}
    return attributes | {f"ragfault.score.{score.metric}": score.value for score in select_scores(scored)}


def _set_attributes(message: Any, attributes: Mapping[str, Any]) -> None:
    """Set the attributes that have a value."""
    for key, value in attributes.items():
        if value is None:
            continue
        added = message.attributes.add(key=key).value
        if isinstance(value, str):
            added.string_value = value.encode("utf-8", "replace").decode()
        else:
            added.double_value = value


# seconds before each attempt
RETRY_DELAYS = (0.0, 1.0, 5.0, 15.0, 30.0)
# traces whose scores may wait
QUEUE_SIZE = 10_000
# traces whose scores are sent at once
BATCH_SIZE = 256
# seconds for which scores are collected into a batch
GATHER_SECONDS = 1.0
# statuses after which OTLP asks for a retry
RETRY_STATUSES = (429, 502, 503, 504)
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def check_otlp_settings(settings: ServerSettings) -> None:
    """Raise UsageError for an invalid endpoint or header, MissingExtra where OTLP cannot be encoded."""
    if settings.otlp is None:
        if settings.otlp_headers or settings.otlp_spans:
            raise UsageError("scores go nowhere: name an endpoint with --otlp-endpoint URL.")
        return
    if urlsplit(settings.otlp).scheme not in ("http", "https") or not urlsplit(settings.otlp).netloc:
        raise UsageError("an OTLP endpoint is an address that begins with https:// or http://.")
    for name, value in settings.otlp_headers:
        if not HEADER_NAME.fullmatch(name) or not value.isprintable() or not value.isascii():
            raise UsageError(f'a header is NAME=VALUE on one line; "{name[:40]}" is none.')
    require_otlp()


class ScoreExporter(BackgroundThread):
    """Thread that sends scores in batches; beyond QUEUE_SIZE they are dropped and counted."""

    def __init__(
        self,
        settings: ServerSettings,
        counters: EventCounters,
        measures: Iterable[MetricInfo],
        retry_delays: tuple[float, ...] = RETRY_DELAYS,
        queue_size: int = QUEUE_SIZE,
    ) -> None:
        self._url, self._spans = settings.otlp, settings.otlp_spans
        self._headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
        self._headers |= dict(settings.otlp_headers)
        self._counters, self._retry_delays = counters, retry_delays
        self._measures: Mapping[str, MetricInfo] = {measure.name: measure for measure in measures}
        self._queue: Queue[ScoredTrace] = Queue(queue_size)
        self._unreachable = False
        """True if the last request could not connect."""
        super().__init__("ragfault-export")

    def start(self) -> None:
        """Start the thread where an endpoint is set; `close` sends what waits, trying once more."""
        if self._url is not None:
            super().start()

    def enqueue_scores(self, outcomes: Sequence[ScoredTrace]) -> None:
        """Enqueue the scores of traces that were received as spans; returns at once."""
        if self._url is None:
            return
        for scored in outcomes:
            if read_origin(scored.trace) is not None:
                try:
                    self._queue.put_nowait(scored)
                except Full:
                    self._counters.add("scores_unreturned", sum(1 for _ in select_scores(scored)))

    def _run(self) -> None:
        while True:
            batch = self._collect_batch()
            if batch:
                self._send_batch(batch)
            elif self._stopping.is_set():
                return

    def _collect_batch(self) -> list[ScoredTrace]:
        """Collect what arrives within GATHER_SECONDS."""
        batch: list[ScoredTrace] = []
        until = time.monotonic() + GATHER_SECONDS
        while len(batch) < BATCH_SIZE:
            left = 0.0 if self._stopping.is_set() else min(0.1, until - time.monotonic())
            try:
                batch.append(self._queue.get(timeout=left) if left > 0 else self._queue.get_nowait())
            except Empty:
                if self._stopping.is_set() or time.monotonic() >= until:
                    break
        return batch

    def _send_batch(self, batch: list[ScoredTrace]) -> None:
        now = time.time_ns()
        size = sum(1 for scored in batch for _ in select_scores(scored))
        self._send_signal("logs", encode_logs(batch, self._measures, now), size, "scores")
        if self._spans:
            self._send_signal("traces", encode_spans(batch, now), len(batch), "spans")

    def _send_signal(self, signal: str, body: bytes, size: int, unit: str) -> None:
        """Send one request with retries, and count its outcome."""
        attempt = self._deliver(f"{_strip_signal_path(self._url or '')}/v1/{signal}", gzip.compress(body, 3))
        lost = size if attempt.error is not None else min(size, max(0, count_rejected(attempt.body, signal)))
        self._counters.add(f"{unit}_returned", size - lost)
        self._counters.add(f"{unit}_unreturned", lost)

    def _deliver(self, url: str, body: bytes) -> DeliveryAttempt:
        attempt = DeliveryAttempt("the OTLP endpoint is away", retryable=True)
        for pause in self._retry_delays:
            wait = max(pause, attempt.retry_after)
            if (wait or self._unreachable) and self._stopping.wait(wait):
                return attempt
            attempt = post(url, body, self._headers, "the OTLP endpoint")
            self._unreachable = attempt.error is not None and not attempt.status
            if not attempt.retryable or (attempt.status and attempt.status not in RETRY_STATUSES):
                return attempt
        return attempt


def _strip_signal_path(url: str) -> str:
    """Remove the path of a signal from an endpoint.

    >>> _strip_signal_path("http://127.0.0.1:4318/"), _strip_signal_path("https://otel.example.org/otlp/v1/logs")
    ('http://127.0.0.1:4318', 'https://otel.example.org/otlp')
    """
    return re.sub(r"(/v1/(logs|traces))?/*$", "", url)
