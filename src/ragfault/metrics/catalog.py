"""The metric catalog: define a metric, parse its name, and compute it on a trace.

A metric is defined by decorating a function and asked for by a value that prints and parses alike:

>>> str(parse_metric("recall(relevant=2)@20"))
'recall(relevant=2)@20'
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Literal, get_args, get_type_hints

from msgspec import Struct

from ragfault.errors import MissingExtra, UnknownName, UsageError
from ragfault.metrics.expressions import ParameterValue, format_expression, parse_expression
from ragfault.protocols import VERDICT_KINDS, VerdictKind
from ragfault.records import Layer, Score, Trace, Verdicts

RANGE_TOLERANCE = 1e-9
"""What rounding may add to a range."""

ENTRY_POINT_GROUP = "ragfault.metrics"
"""The entry-point group whose modules are imported for the metrics they define."""


class Undefined(Struct, frozen=True):
    """What a metric returns when it has no value for a trace."""

    reason: str


class AnnotatedValue(Struct, frozen=True):
    """A value that rests on a convention, with the convention's name."""

    value: float
    reason: str


MetricResult = float | AnnotatedValue | Undefined
MetricFunction = Callable[..., MetricResult]


class MetricDefinition(Struct, frozen=True, kw_only=True):
    """A metric as it stands in the catalogue."""

    name: str
    function: MetricFunction
    layer: Layer
    better: Literal["higher", "lower"]
    range: tuple[float, float]
    verdicts: tuple[VerdictKind, ...] = ()
    """The kinds of verdict it reads."""
    fields: tuple[str, ...] = ()
    """The fields of the trace it reads."""
    source: str = ""
    """Where the formula comes from."""
    extra: str | None = None
    """The extra whose packages it needs."""
    packages: tuple[str, ...] = ()
    has_cutoff: bool = False
    """Whether `@k` can be asked for."""
    parameters: dict[str, ParameterValue] = {}
    """Parameters and their defaults."""
    positive: tuple[str, ...] = ()
    """Parameters that must be above 0."""
    scales: tuple[str, ...] = ()
    """Parameters that set the scale of the value, so that another value for them voids the range."""

    @property
    def summary(self) -> str:
        """The first sentence of its docstring."""
        return self.docstring.split("\n", 1)[0]

    @property
    def docstring(self) -> str:
        """Its whole docstring."""
        return inspect.getdoc(self.function) or ""

    @property
    def installed(self) -> bool:
        """Whether the packages it needs are there."""
        return all(find_spec(package) is not None for package in self.packages)


class Metric(Struct, frozen=True):
    """A metric with its parameters and cut-off; equal to any other that prints the same."""

    name: str
    k: int | None = None
    parameters: tuple[tuple[str, ParameterValue], ...] = ()
    """Those that differ from their defaults, sorted by name."""

    def __str__(self) -> str:
        return format_expression(self.name, self.k, self.parameters)

    @property
    def definition(self) -> MetricDefinition:
        """Its entry in the catalogue."""
        return _get_definition(self.name)

    @property
    def range(self) -> tuple[float, float]:
        """Its least and greatest value; without end where a parameter that sets the scale was changed."""
        definition = self.definition
        if any(key in definition.scales for key, _ in self.parameters):
            return -math.inf, math.inf
        return definition.range


_catalog: dict[str, MetricDefinition] = {}
_loaded_groups: list[str] = []


def metric(  # noqa: PLR0913 - all that a metric says of itself
    *,
    layer: Layer,
    better: Literal["higher", "lower"] = "higher",
    range: tuple[float, float] = (0.0, 1.0),
    verdicts: str = "",
    fields: str = "",
    source: str = "",
    extra: str | None = None,
    packages: str = "",
    positive: str = "",
    scales: str = "",
) -> Callable[[MetricFunction], MetricFunction]:
    """Enter a function into the catalogue as a metric of the same name.

    The function takes `(trace, verdicts)` and, by keyword, its parameters (each with a default) and, if a
    cut-off makes sense, `k: int | None = None`. It returns a number, `Noted(number, convention)`, or
    `Undefined(reason)`; it uses no model, network or clock. The first sentence of its docstring is its
    line in the catalogue. `verdicts` and `fields` name what it reads, `positive` the parameters that must be
    above 0, `scales` those that set the scale of the value; names are separated by spaces.

    Raises UsageError where the name is taken by another function, UnknownName for a verdict or layer
    that there is not.

    >>> @metric(layer="generation", fields="answer", range=(0, math.inf))
    ... def answer_words(trace, verdicts):
    ...     "The number of words in the answer."
    ...     return len(trace.answer.split()) if trace.answer else Undefined("no answer")
    >>> compute_score(parse_metric("answer_words"), Trace(id="1", query="q", answer="Four words are here"), Verdicts(trace="1")).value
    4.0
    """

    def enter(function: MetricFunction) -> MetricFunction:
        name = _claim_name(function)
        keywords = {
            p.name: p.default
            for p in inspect.signature(function).parameters.values()
            if p.kind is inspect.Parameter.KEYWORD_ONLY
        }
        _catalog[name] = MetricDefinition(
            name=name,
            function=function,
            layer=layer,
            better=better,
            range=(float(range[0]), float(range[1])),
            verdicts=_parse_verdict_kinds(verdicts, layer),
            fields=tuple(fields.split()),
            source=source,
            extra=extra,
            packages=tuple(packages.split()),
            has_cutoff="k" in keywords,
            parameters={key: value for key, value in keywords.items() if key != "k"},
            positive=tuple(positive.split()),
            scales=tuple(scales.split()),
        )
        return function

    return enter


def _parse_verdict_kinds(verdicts: str, layer: str) -> tuple[VerdictKind, ...]:
    """The kinds of verdict that are named, in their usual order."""
    named = verdicts.split()
    for part in named:
        if part not in VERDICT_KINDS:
            raise UnknownName("kind of verdict", part, VERDICT_KINDS)
    if layer not in get_args(Layer):
        raise UnknownName("layer", layer, get_args(Layer))
    return tuple(part for part in VERDICT_KINDS if part in named)


def _claim_name(function: MetricFunction) -> str:
    """The function's name, unless another function has it in the catalogue."""
    old = _catalog.get(function.__name__)
    if old is not None:
        place, new = (f"{f.__module__}.{f.__qualname__}" for f in (old.function, function))
        if place != new:
            raise UsageError(f'the name "{old.name}" is taken by {place}. Give the new metric another one.')
    return function.__name__


def get_definitions() -> dict[str, MetricDefinition]:
    """The catalogue: every metric that is defined, by name, entry points included.

    >>> get_definitions()["ndcg"].layer
    'retrieval'
    """
    _load_entry_points()
    return dict(_catalog)


def _load_entry_points() -> None:
    """Import the modules that other packages announce under the entry-point group, once."""
    if ENTRY_POINT_GROUP not in _loaded_groups:
        _loaded_groups.append(ENTRY_POINT_GROUP)
        for point in entry_points(group=ENTRY_POINT_GROUP):
            point.load()


def _get_definition(name: str) -> MetricDefinition:
    if name not in _catalog:
        _load_entry_points()
    try:
        return _catalog[name]
    except KeyError:
        raise UnknownName("metric", name, _catalog, hint="List them with: ragfault metrics") from None


def parse_metric(text: str) -> Metric:
    """Read a metric from its text: `name`, `name@k`, `name(parameter=value, …)@k`.

    Nothing is evaluated. Values are whole numbers, decimals, true, false, none, words or quoted text.

    Raises UnknownName for a metric or parameter that does not exist, UsageError for a malformed text,
    a value of the wrong kind, or a cut-off where there can be none; MissingExtra where the metric needs
    packages that are not installed.

    >>> parse_metric("ndcg@10") == parse_metric(" ndcg(gain=linear) @ 10 ")
    True
    """
    name, k, given = parse_expression(text)
    definition = _get_definition(name)
    if k is not None and not definition.has_cutoff:
        raise UsageError(f'"{text}": {name} has no cut-off. Ask for: {name}')
    for key, value in given.items():
        if key not in definition.parameters:
            hint = f"{name} has no parameters." if not definition.parameters else ""
            raise UnknownName(f"parameter of {name}", key, definition.parameters, hint)
        _check_parameter(definition, key, value)
    if not definition.installed and definition.extra:
        raise MissingExtra(name, definition.extra)
    changed = {
        key: _cast_like(value, definition.parameters[key])
        for key, value in given.items()
        if value != definition.parameters[key]
    }
    return Metric(name, k, tuple(sorted(changed.items())))


def _check_parameter(definition: MetricDefinition, key: str, value: ParameterValue) -> None:
    """Refuse a value of another kind than the parameter's default, or none of its choices."""
    default = definition.parameters[key]
    asked = f"{definition.name}({key}={value})"
    choices = get_args(get_type_hints(definition.function)[key])
    if choices and all(isinstance(choice, str) for choice in choices) and value not in choices:
        raise UsageError(f"{asked}: {key} is one of {', '.join(choices)}.")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and key in definition.positive and not float(value) > 0:  # type: ignore[arg-type]
        raise UsageError(f"{asked}: {key} must be above 0.")
    fits = {
        bool: isinstance(value, bool),
        int: number and isinstance(value, int),
        float: number,
        str: isinstance(value, str),
    }.get(type(default), value is None or number)
    if not fits:
        raise UsageError(f"{asked}: {key} is like {default!r}, and {value!r} is not.")


def _cast_like(value: ParameterValue, default: ParameterValue) -> ParameterValue:
    """The value in the type of its default, so that equal metrics print alike."""
    return float(value) if isinstance(default, float) and isinstance(value, int) else value


def compute_score(metric: Metric, trace: Trace, verdicts: Verdicts) -> Score:
    """Compute one metric on one trace.

    Always returns a row: scored, undefined with the reason, or failed where the judge lost a part that
    the metric reads or the metric itself broke.

    >>> compute_score(parse_metric("context_relevance"), Trace(id="7", query="q", chunks=()), Verdicts(trace="7", chunk=()))
    Score(trace='7', metric='context_relevance', layer='retrieval', status='undefined', value=None,
          reason='nothing retrieved')
    """
    definition = metric.definition
    lost = _get_failure(definition, verdicts)
    if lost is not None:
        return _make_score(metric, definition, trace, "failed", None, lost)
    keywords: dict[str, ParameterValue] = dict(metric.parameters)
    if metric.k is not None:
        keywords["k"] = metric.k
    try:
        result = definition.function(trace, verdicts, **keywords)
        if isinstance(result, Undefined):
            return _make_score(metric, definition, trace, "undefined", None, result.reason)
        value, reason = (
            (result.value, result.reason) if isinstance(result, AnnotatedValue) else (result, None)
        )
        number = float(value)
    except Exception as error:  # noqa: BLE001 - the door to functions that users write: one bad row, not a lost run
        return _make_score(metric, definition, trace, "failed", None, f"{type(error).__name__}: {error}")
    low, high = metric.range
    if not (math.isfinite(number) and low - RANGE_TOLERANCE <= number <= high + RANGE_TOLERANCE):
        why = f"the metric returned {number:g}, and its range is {low:g} to {high:g}"
        return _make_score(metric, definition, trace, "failed", None, why)
    return _make_score(metric, definition, trace, "scored", number, reason)


def _get_failure(definition: MetricDefinition, verdicts: Verdicts) -> str | None:
    """Why a part that the metric reads was lost, if one was."""
    if not verdicts.failures or not definition.verdicts:
        return None
    for part in (*definition.verdicts, "*"):
        if part in verdicts.failures:
            return verdicts.failures[part]
    return None


def _make_score(
    metric: Metric,
    definition: MetricDefinition,
    trace: Trace,
    status: Literal["scored", "undefined", "failed"],
    value: float | None,
    reason: str | None,
) -> Score:
    return Score(
        trace=trace.id,
        metric=str(metric),
        layer=definition.layer,
        status=status,
        value=value,
        reason=reason,
    )
