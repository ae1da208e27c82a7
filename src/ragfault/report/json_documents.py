"""The JSON document of each verb, and its JSON schema; both are made from the records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, Literal

import msgspec
from msgspec import NODEFAULT, Struct

from ragfault.apps.registry import list_apps
from ragfault.comparison.gate.records import GateResult
from ragfault.comparison.investigation.records import Investigation, ModelInvestigation
from ragfault.comparison.records import Bisection, Comparison, MetricChange
from ragfault.comparison.run_history import MetricHistory, RunHistory
from ragfault.diagnosis.attempts.plan import AttemptPlan
from ragfault.diagnosis.clusters.promotion import PromotionResult
from ragfault.diagnosis.clusters.records import Cluster, ClusterReport
from ragfault.diagnosis.conversations import ConversationOutcome
from ragfault.diagnosis.records import Diagnosis, Findings
from ragfault.diagnosis.steps.records import StepFindings
from ragfault.io.formats.record_shapes import describe_fields
from ragfault.judges.calibration import JudgeCalibration
from ragfault.judges.cards.card import JudgeCard
from ragfault.judges.domain.profile import DomainProfile
from ragfault.judges.llm.estimates import CostEstimate
from ragfault.judges.llm.transport.reply_cache import CacheGroup
from ragfault.labels.annotation.items import AnnotatorAgreement
from ragfault.labels.annotation.sampling import SuggestedTrace
from ragfault.labels.judges.comparison import JudgeComparison
from ragfault.labels.judges.flakiness import JudgeFlakiness
from ragfault.labels.judges.measurement import JudgeMeasurement
from ragfault.labels.preferences import PreferenceReport
from ragfault.labels.rubrics.proofs import RubricMeasurement
from ragfault.labels.rubrics.trials import Clarification
from ragfault.metrics.aliases import MetricAlias
from ragfault.metrics.catalog import MetricDefinition
from ragfault.model.records import Layer
from ragfault.report.builders.run_history import summarize_history
from ragfault.report.comparison_wording import combine_verdicts


class VerbDocument(Struct, frozen=True, kw_only=True):
    """Base of the documents that no analysis returns: immutable, keyword-only."""


class EvaluatedRun(VerbDocument, frozen=True):
    """A run that was written, and its analysis."""

    path: str
    findings: Findings


class CiResult(VerbDocument, frozen=True):
    """A run that was evaluated and compared with thresholds and a baseline."""

    path: str
    """Where the run lies."""
    traces: int
    gate: GateResult | None
    """None: neither thresholds nor a baseline were given."""
    bisection: Bisection | None
    """None: there is no baseline."""
    notes: tuple[str, ...]


class SegmentBisection(Bisection, frozen=True):
    """Bisection of one segment."""

    segment: str


class SegmentedBisection(VerbDocument, frozen=True):
    """Bisections of segments, with the verdict over all of them."""

    verdict: Literal["fault", "no fault", "cannot tell"]
    by: str
    segments: tuple[SegmentBisection, ...]


class RankedMetric(VerbDocument, frozen=True):
    """Mean of a ranked metric over the queries, with its 95 % interval."""

    metric: str
    mean: float | None
    low: float | None
    high: float | None
    scored: int
    undefined: int


class RankedValue(VerbDocument, frozen=True):
    """Value of a ranked metric on one query."""

    metric: str
    query: str
    value: float | None
    """None: undefined."""


class AcceptedCases(VerbDocument, frozen=True):
    """Cases of an evaluation set that were marked as reviewed."""

    path: str
    accepted: int


class WrittenTraces(VerbDocument, frozen=True):
    """Traces that were written, to a file or as a run."""

    path: str
    traces: int
    redacted: dict[str, int] = {}
    """Kind of redacted text → how many were replaced."""


class WrittenFiles(VerbDocument, frozen=True):
    """Files that were written."""

    files: tuple[str, ...]


class TrackedRun(VerbDocument, frozen=True):
    """A run, and its id in a tracker of experiments."""

    run: str
    id: str


class CacheSummary(VerbDocument, frozen=True):
    """Stored replies, by model and kind of call."""

    path: str
    bytes: int
    groups: tuple[CacheGroup, ...]


class CacheRemoval(VerbDocument, frozen=True):
    """Stored replies that were removed."""

    path: str
    bytes: int
    """Size of what is left."""
    removed: int


class WrittenReplies(VerbDocument, frozen=True):
    """Stored replies that were written to a file."""

    path: str
    replies: int


class MetricEntry(VerbDocument, frozen=True):
    """A metric of the catalogue."""

    name: str
    layer: Layer
    better: Literal["higher", "lower"]
    range: tuple[float | None, float | None]
    """None: it has no such end."""
    has_cutoff: bool
    parameters: dict[str, str | int | float | bool | None]
    verdicts: tuple[str, ...]
    fields: tuple[str, ...]
    source: str
    extra: str | None
    installed: bool
    definition: str
    aliases: tuple[MetricAlias, ...]
    """Its names in other tools."""


DOCUMENTS: dict[str, tuple[Any, ...]] = {
    "evaluate": (EvaluatedRun, CostEstimate),
    "report": (Findings,),
    "diagnose": (tuple[Diagnosis, ...], tuple[ConversationOutcome, ...]),
    "steps": (StepFindings,),
    "plan": (AttemptPlan,),
    "gate": (GateResult,),
    "ci": (CiResult,),
    "compare": (Comparison, tuple[Comparison, ...]),
    "bisect": (Bisection, SegmentedBisection, RunHistory),
    "investigate": (Investigation, ModelInvestigation),
    "clusters": (ClusterReport,),
    "promote": (PromotionResult, AcceptedCases),
    "run rescore": (EvaluatedRun,),
    "run rank": (tuple[RankedMetric, ...], tuple[RankedValue, ...]),
    "run convert": (WrittenTraces,),
    "run export": (WrittenFiles, tuple[TrackedRun, ...]),
    "judge measure": (JudgeMeasurement,),
    "judge calibrate": (JudgeCalibration,),
    "judge card": (JudgeCard,),
    "judge compare": (JudgeComparison,),
    "judge repeat": (JudgeFlakiness,),
    "judge rubric": (RubricMeasurement,),
    "judge clarify": (Clarification, CostEstimate),
    "label prefer": (PreferenceReport,),
    "label agreement": (tuple[AnnotatorAgreement, ...],),
    "label suggest": (tuple[SuggestedTrace, ...],),
    "judge cache stats": (CacheSummary,),
    "judge cache prune": (CacheRemoval,),
    "judge cache export": (WrittenReplies,),
    "metrics": (tuple[MetricEntry, ...], MetricEntry),
    "judge profile": (tuple[DomainProfile, ...], DomainProfile),
    "demo": (WrittenFiles,),
}
"""Verb of the core → the types of its document; several where its options decide."""

ComputedFields = dict[type, dict[str, tuple[Any, Callable[[Any], Any]]]]

COMPUTED_FIELDS: ComputedFields = {
    GateResult: {"result": (Literal["pass", "fail", "cannot tell"], lambda gate: gate.result)},
    MetricChange: {"verdict": (Literal["worse", "better", "steady", "cannot tell"], lambda change: change.verdict)},
    MetricHistory: {
        "verdict": (Literal["worse", "better", "recovered", "cannot tell"], lambda history: history.verdict)
    },
    RunHistory: {
        "verdict": (Literal["fault", "no fault", "cannot tell", "recovered"], lambda history: history.verdict),
        "broken": (str | None, lambda history: history.broken_at),
        "sentence": (str, summarize_history),
    },
}
"""Record → what its document says beyond its fields: the type, and the function of the record."""

HIDDEN_FIELDS: dict[type, tuple[str, ...]] = {Cluster: ("terms", "failure_keys", "centroid")}
"""Record → the fields that its document leaves out."""


@lru_cache(maxsize=1)
def list_documents() -> dict[str, tuple[Any, ...]]:
    """List the documents of all verbs, those of the apps that are installed included."""
    documents = dict(DOCUMENTS)
    for app in list_apps():
        documents |= import_module(app.documents).DOCUMENTS
    return documents


def encode_document(record: Any) -> str:
    """Encode the result of a verb as one JSON document, every field under its name.

    A number that is infinite or not defined is null. `build_document_schema` describes the document.

    >>> print(encode_document(WrittenFiles(files=("handbook/questions.jsonl",))), end="")
    {
      "files": [
        "handbook/questions.jsonl"
      ]
    }
    """
    return msgspec.json.format(msgspec.json.encode(_convert(record)), indent=2).decode() + "\n"


def _convert(value: Any) -> Any:
    """Convert to plain values, with what is computed of records and without what is hidden."""
    if isinstance(value, Struct):
        computed = {name: get(value) for name, (_, get) in _list_computed(type(value)).items()}
        fields = {
            name: getattr(value, name)
            for name, default in _list_fields(type(value)).items()
            if getattr(value, name) != default
        }
        return {name: _convert(part) for name, part in (computed | fields).items()}
    if isinstance(value, dict):
        return {key: _convert(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_convert(part) for part in value]
    return value


@lru_cache
def _list_computed(record: type) -> dict[str, tuple[Any, Callable[[Any], Any]]]:
    """List what is computed of a record, or of one that it derives from."""
    fields = COMPUTED_FIELDS
    for app in list_apps():
        if record.__module__.startswith(f"ragfault.apps.{app.name}."):
            fields = fields | getattr(import_module(app.documents), "COMPUTED_FIELDS", {})
    return {name: part for base in record.__mro__ for name, part in fields.get(base, {}).items()}


@lru_cache
def _list_fields(record: type[Struct]) -> dict[str, Any]:
    """List the fields of a record that are shown, each with the value at which it is left out."""
    leaves_out = record.__struct_config__.omit_defaults
    return {
        field.name: _get_default(field) if leaves_out else NODEFAULT
        for field in msgspec.structs.fields(record)
        if field.name not in HIDDEN_FIELDS.get(record, ())
    }


def _get_default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is NODEFAULT else field.default_factory()


def build_document_schema(verb: str) -> dict[str, Any]:
    """Build the JSON schema (draft 2020-12) of what a verb prints with `--json`.

    Raises KeyError for a verb without a document.

    >>> schema = build_document_schema("demo")
    >>> schema["$ref"], schema["$defs"]["WrittenFiles"]["required"]
    ('#/$defs/WrittenFiles', ['files'])
    """
    roots, records = msgspec.json.schema_components(list_documents()[verb], ref_template="#/$defs/{name}")
    types = {record.__name__: record for record in _list_records(Struct)}
    for name, record in records.items():
        if name in types:
            _complete_record(record, types[name])
    schema: dict[str, Any] = _allow_null(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": f"ragfault {verb} --json",
            **(roots[0] if len(roots) == 1 else {"anyOf": list(roots)}),
            "$defs": records,
        }
    )
    return schema


def _list_records(base: type) -> list[type]:
    """List the records of ragfault that are loaded: those of the documents, and others."""
    children: list[type] = base.__subclasses__()
    records = [record for child in children for record in (child, *_list_records(child))]
    return [record for record in records if record.__module__.startswith("ragfault.")]


def _complete_record(schema: dict[str, Any], record: type) -> None:
    """Complete the schema of a record by what its document adds and leaves out, and by the docs of its fields."""
    fields = schema["properties"]
    for name in HIDDEN_FIELDS.get(record, ()):
        del fields[name]
    for name, (kind, _) in _list_computed(record).items():
        fields[name] = msgspec.json.schema(kind)
        schema["required"] = [*schema.get("required", ()), name]
    descriptions = {name: text for base in reversed(record.__mro__[:-2]) for name, text in _describe(base).items()}
    schema["description"] = descriptions.pop("", record.__name__)
    for name in fields.keys() & descriptions.keys():
        if "$ref" not in fields[name]:
            fields[name]["description"] = descriptions[name]


def _describe(record: type) -> dict[str, str]:
    return describe_fields(record) if issubclass(record, Struct) and record is not Struct else {}


def _allow_null(schema: Any) -> Any:
    """Allow null where there is a number: JSON has no infinity."""
    if isinstance(schema, dict):
        plain = {name: _allow_null(part) for name, part in schema.items()}
        return {**plain, "type": ["number", "null"]} if plain.get("type") == "number" else plain
    return [_allow_null(part) for part in schema] if isinstance(schema, list) else schema


def describe_metric(entry: MetricDefinition, aliases: tuple[MetricAlias, ...]) -> MetricEntry:
    """Describe an entry of the catalogue as a document."""
    low, high = entry.range
    return MetricEntry(
        name=entry.name,
        layer=entry.layer,
        better=entry.better,
        range=(low, high),
        has_cutoff=entry.has_cutoff,
        parameters=dict(entry.parameters),
        verdicts=entry.verdicts,
        fields=entry.fields,
        source=entry.source,
        extra=entry.extra,
        installed=entry.installed,
        definition=entry.docstring.split(">>>")[0].strip(),
        aliases=tuple(alias for alias in aliases if alias.metric == entry.name),
    )


def combine_segments(parts: Sequence[tuple[str, Bisection]], by: str) -> SegmentedBisection:
    """Combine the bisections of segments, each with its name, into one document."""
    verdict: Any = combine_verdicts(part for _, part in parts)
    return SegmentedBisection(
        verdict=verdict,
        by=by,
        segments=tuple(SegmentBisection(segment=name, **msgspec.structs.asdict(part)) for name, part in parts),
    )
