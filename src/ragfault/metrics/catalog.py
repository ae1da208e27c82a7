"""The metric catalog: define a metric, parse its expression, and compute it on a trace.

A metric is defined by decorating a function and asked for by a value that prints and parses alike:

>>> str(parse_metric("recall(relevant=2)@20"))
'recall(relevant=2)@20'
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args, get_type_hints

from msgspec import Struct

from ragfault.model.errors import MissingExtra, UnknownName, UsageError
from ragfault.model.expressions import Scalar, format_expression, parse_expression
from ragfault.model.gold_evidence import apply_gold
from ragfault.model.protocols import VERDICT_KINDS, VerdictKind
from ragfault.model.records import GoldMode, Layer, Score, ScoreStatus, Trace, Verdicts

if TYPE_CHECKING:
    import pyarrow as pa

RANGE_TOLERANCE = 1e-9
"""Tolerance of the range for rounding errors."""
ENTRY_POINT_GROUP = "ragfault.metrics"
BUILTIN_MODULES = tuple(
    f"ragfault.metrics.{name}"
    for name in ("context", "generation", "crosscut", "gold", "operation", "overlap", "steps")
)
"""The modules that define the metrics of the package, in the order of the catalog."""
"""Entry-point group of the modules that define metrics of other packages."""


class Undefined(Struct, frozen=True):
    """The result of a metric that has no value for a trace."""

    reason: str


class AnnotatedValue(Struct, frozen=True):
    """A value that follows from a convention, with the name of the convention."""

    value: float
    reason: str


MetricResult = float | AnnotatedValue | Undefined
MetricFunction = Callable[..., MetricResult]
Outcome = tuple[ScoreStatus, float | None, str | None]
"""Status, value and reason of a score."""


class BatchFormula(NamedTuple):
    """The formula of a metric for many traces at once, with the values that its function gives for each."""

    prepare: Callable[[Sequence[Trace]], Any]
    """Returns what all metrics with this function share."""
    compute: Callable[..., Iterable[MetricResult]]
    """Takes the prepared value and the parameters of the metric."""


class MetricDefinition(Struct, frozen=True, kw_only=True):
    """An entry of the metric catalog."""

    name: str
    function: MetricFunction
    layer: Layer
    better: Literal["higher", "lower"]
    range: tuple[float, float]
    verdicts: tuple[VerdictKind, ...] = ()
    """Kinds of verdict that the metric reads."""
    fields: tuple[str, ...] = ()
    """Fields of the trace that the metric reads."""
    source: str = ""
    """Reference of the formula."""
    extra: str | None = None
    """Extra with the required packages."""
    packages: tuple[str, ...] = ()
    has_cutoff: bool = False
    """True where the metric accepts a cut-off `@k`."""
    parameters: dict[str, Scalar] = {}
    """Parameters and their defaults."""
    positive: tuple[str, ...] = ()
    """Parameters that must be above 0."""
    scales: tuple[str, ...] = ()
    """Parameters that scale the value, so that changing them voids the range."""
    batch: BatchFormula | None = None

    @property
    def summary(self) -> str:
        """First sentence of the docstring."""
        return self.docstring.split("\n", 1)[0]

    @property
    def docstring(self) -> str:
        """Docstring of the function."""
        return inspect.getdoc(self.function) or ""

    @property
    def installed(self) -> bool:
        """True where the required packages are installed."""
        return all(find_spec(package) is not None for package in self.packages)


class Metric(Struct, frozen=True):
    """A metric with its parameters and cut-off; equal to any other that prints the same."""

    name: str
    k: int | None = None
    parameters: tuple[tuple[str, Scalar], ...] = ()
    """Parameters that differ from their defaults, sorted by name."""

    def __str__(self) -> str:
        return format_metric(self.name, self.parameters, self.k)

    @property
    def definition(self) -> MetricDefinition:
        """Its entry in the catalog."""
        return _get_definition(self.name)

    @property
    def range(self) -> tuple[float, float]:
        """Lowest and highest value; infinite if a parameter that scales the value was changed."""
        definition = self.definition
        if any(key in definition.scales for key, _ in self.parameters):
            return -math.inf, math.inf
        return definition.range


def format_metric(name: str, parameters: Iterable[tuple[str, Scalar]], k: int | None = None) -> str:
    """Format a metric expression, whole decimals as integers.

    >>> format_metric("recall", [("relevant", 2.0)], 20)
    'recall(relevant=2)@20'
    """
    options = {
        key: int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value
        for key, value in parameters
    }
    return format_expression(name, (), options, k)


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
    batch: BatchFormula | None = None,
) -> Callable[[MetricFunction], MetricFunction]:
    """Add a function to the catalog as a metric of the same name.

    The function takes `(trace, verdicts)` and, by keyword, its parameters (each with a default) and, if a
    cut-off makes sense, `k: int | None = None`. It returns a number, `AnnotatedValue(number, convention)`, or
    `Undefined(reason)`; it uses no model, network or clock. The first sentence of its docstring is its
    line in the catalog. `verdicts` and `fields` name its inputs, `positive` the parameters that must be
    above 0, `scales` those that scale the value; names are separated by spaces. `batch` computes many traces at once.

    Raises UsageError if another function has the name, UnknownName for an unknown verdict or layer.

    >>> @metric(layer="generation", fields="answer", range=(0, math.inf))
    ... def answer_words(trace, verdicts):
    ...     "The number of words in the answer."
    ...     return len(trace.answer.split()) if trace.answer else Undefined("no answer")
    >>> trace = Trace(id="1", query="q", answer="Four words are here")
    >>> compute_score(parse_metric("answer_words"), trace, Verdicts(trace="1")).value
    4.0
    """

    def enter(function: MetricFunction) -> MetricFunction:
        if function.__module__ not in BUILTIN_MODULES:
            # So that a new metric cannot take the name of one of the package before that one is entered.
            _load_builtins()
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
            batch=batch,
        )
        _plan_metric.cache_clear()
        return function

    return enter


def _parse_verdict_kinds(verdicts: str, layer: str) -> tuple[VerdictKind, ...]:
    """Return the named kinds of verdict in their usual order."""
    names = verdicts.split()
    for kind in names:
        if kind not in VERDICT_KINDS:
            raise UnknownName("kind of verdict", kind, VERDICT_KINDS)
    if layer not in get_args(Layer):
        raise UnknownName("layer", layer, get_args(Layer))
    return tuple(kind for kind in VERDICT_KINDS if kind in names)


def _claim_name(function: MetricFunction) -> str:
    """Return the function's name; raise UsageError if another function has it in the catalog."""
    registered = _catalog.get(function.__name__)
    if registered is not None:
        taken, name = (f"{f.__module__}.{f.__qualname__}" for f in (registered.function, function))
        if taken != name:
            raise UsageError(f'the name "{registered.name}" is taken by {taken}. Give the new metric another one.')
    return function.__name__


def get_definitions() -> dict[str, MetricDefinition]:
    """Return the catalog: every defined metric by name, entry points included.

    >>> get_definitions()["ndcg"].layer
    'retrieval'
    """
    _load_builtins()
    _load_entry_points()
    return dict(_catalog)


def _load_builtins() -> None:
    """Import the modules that define the metrics of the package, and the names that other tools give them."""
    if "built in" not in _loaded_groups:
        _loaded_groups.append("built in")
        for module in (*BUILTIN_MODULES, "ragfault.metrics.aliases"):
            import_module(module)
        # Whichever module was imported first, the catalog has the order of the table.
        places = {module: place for place, module in enumerate(BUILTIN_MODULES)}
        for entry in sorted(_catalog.values(), key=lambda item: places.get(item.function.__module__, len(places))):
            _catalog[entry.name] = _catalog.pop(entry.name)


def _load_entry_points() -> None:
    """Import the modules of the entry-point group, once."""
    if ENTRY_POINT_GROUP not in _loaded_groups:
        _loaded_groups.append(ENTRY_POINT_GROUP)
        for point in entry_points(group=ENTRY_POINT_GROUP):
            point.load()


other_names: set[str] = set()
"""Names of metrics in other tools, proposed for a misspelled name; `metrics.aliases` fills them in."""


def _get_definition(name: str) -> MetricDefinition:
    if name not in _catalog:
        _load_builtins()
    if name not in _catalog:
        _load_entry_points()
    try:
        return _catalog[name]
    except KeyError:
        raise UnknownName("metric", name, [*_catalog, *other_names], hint="List them with: ragfault metrics") from None


def parse_metric(text: str) -> Metric:
    """Parse a metric expression: `name`, `name@k`, `name(parameter=value, …)@k`.

    Nothing is evaluated. Values are whole numbers, decimals, true, false, none, words or quoted texts. Raises
    UnknownName for an unknown metric or parameter, UsageError for a malformed expression, a value of the wrong kind, or
    a cut-off of a metric without one; MissingExtra if the metric needs packages that are not installed.

    >>> parse_metric("ndcg@10") == parse_metric(" ndcg(gain=linear) @ 10 ")
    True
    """
    name, arguments, options, k = parse_expression(text, "metric")
    if arguments:
        raise UsageError(f'"{text}": cannot read "{arguments[0]}". Write parameter=value, …')
    definition = _get_definition(name)
    if k is not None and not definition.has_cutoff:
        raise UsageError(f'"{text}": {name} has no cut-off. Ask for: {name}')
    for key, value in options.items():
        if key not in definition.parameters:
            hint = f"{name} has no parameters." if not definition.parameters else ""
            raise UnknownName(f"parameter of {name}", key, definition.parameters, hint)
        _check_parameter(definition, key, value)
    if not definition.installed and definition.extra:
        raise MissingExtra(name, definition.extra)
    changed = {
        key: float(value) if isinstance(definition.parameters[key], float) and isinstance(value, int) else value
        for key, value in options.items()
        if value != definition.parameters[key]
    }
    return Metric(name, k, tuple(sorted(changed.items())))


def _check_parameter(definition: MetricDefinition, key: str, value: Scalar) -> None:
    """Raise UsageError if a value is of another kind than the parameter's default, or not one of its choices."""
    default = definition.parameters[key]
    expression = f"{definition.name}({key}={value})"
    choices = get_args(get_type_hints(definition.function)[key])
    if choices and all(isinstance(choice, str) for choice in choices) and value not in choices:
        raise UsageError(f"{expression}: {key} is one of {', '.join(choices)}.")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and key in definition.positive and not float(value) > 0:  # type: ignore[arg-type]
        raise UsageError(f"{expression}: {key} must be above 0.")
    is_valid = {
        bool: isinstance(value, bool),
        int: number and isinstance(value, int),
        float: number,
        str: isinstance(value, str),
    }.get(type(default), value is None or number)
    if not is_valid:
        raise UsageError(f"{expression}: {key} is like {default!r}, and {value!r} is not.")


def compute_score(metric: Metric, trace: Trace, verdicts: Verdicts) -> Score:
    """Compute one metric on one trace.

    The score is scored, undefined with the reason, or failed if the judge lost a verdict that the metric reads or
    the metric itself raised.

    >>> trace = Trace(id="7", query="q", chunks=())
    >>> compute_score(parse_metric("context_relevance"), trace, Verdicts(trace="7", chunk=()))
    Score(trace='7', metric='context_relevance', layer='retrieval', status='undefined', value=None,
          reason='nothing retrieved')
    """
    plan = _plan_metric(metric)
    return _make_score(plan, trace, _compute_outcome(plan, trace, verdicts))


def _make_score(plan: MetricPlan, trace: Trace, outcome: Outcome) -> Score:
    status, value, reason = outcome
    layer = plan.definition.layer
    return Score(trace=trace.id, metric=plan.name, layer=layer, status=status, value=value, reason=reason)


class MetricPlan(NamedTuple):
    """A metric that is ready to compute: its definition and parameters, looked up once for all traces."""

    name: str
    definition: MetricDefinition
    keywords: dict[str, Scalar]
    range: tuple[float, float]


@lru_cache(1024)
def _plan_metric(metric: Metric) -> MetricPlan:
    keywords: dict[str, Scalar] = dict(metric.parameters)
    if metric.k is not None:
        keywords["k"] = metric.k
    return MetricPlan(str(metric), metric.definition, keywords, metric.range)


def _compute_outcome(plan: MetricPlan, trace: Trace, verdicts: Verdicts) -> Outcome:
    """Compute a metric on one trace; failed where the judge lost a verdict that it reads, or the metric raised."""
    if verdicts.failures and (reason := _get_failure(plan.definition, verdicts)) is not None:
        return "failed", None, reason
    try:
        return _read_result(plan, plan.definition.function(trace, verdicts, **plan.keywords))
    except Exception as error:  # noqa: BLE001 - the door to functions that users write: one bad row, not a lost run
        return "failed", None, f"{type(error).__name__}: {error}"


def _read_result(plan: MetricPlan, result: MetricResult) -> Outcome:
    """Return what a metric returned as an outcome: failed where it is not in the range of the metric."""
    if isinstance(result, Undefined):
        return "undefined", None, result.reason
    value, reason = (result.value, result.reason) if isinstance(result, AnnotatedValue) else (result, None)
    number, (low, high) = float(value), plan.range
    if math.isfinite(number) and low - RANGE_TOLERANCE <= number <= high + RANGE_TOLERANCE:
        return "scored", number, reason
    return "failed", None, f"the metric returned {number:g}, and its range is {low:g} to {high:g}"


def _get_failure(definition: MetricDefinition, verdicts: Verdicts) -> str | None:
    """Return why the judge lost a verdict that the metric reads; None if it did not."""
    for kind in (*definition.verdicts, "*") if definition.verdicts else ():
        if kind in verdicts.failures:
            return verdicts.failures[kind]
    return None


def compute_scores(
    metrics: Iterable[Metric], trace: Trace, verdicts: Verdicts, gold: GoldMode = "apply"
) -> list[Score]:
    """Compute one score for every metric on one trace, from the judge's verdicts.

    Where the trace has an answer key, gold decides, unless `gold` is "ignore". Each score is scored, undefined or
    failed as by `compute_score`.

    >>> from ragfault.model.records import Latency
    >>> trace = Trace(id="7", query="q", chunks=(), latency=Latency(total=120.0))
    >>> metrics = [parse_metric(text) for text in ("latency", "context_relevance")]
    >>> [(score.status, score.value) for score in compute_scores(metrics, trace, Verdicts(trace="7", chunk=()))]
    [('scored', 120.0), ('undefined', None)]
    """
    applied = apply_gold(trace, verdicts) if gold == "apply" else verdicts
    prepared: dict[Callable[[Sequence[Trace]], Any], Any] = {}
    plans = map(_plan_metric, metrics)
    return [_make_score(plan, trace, _compute_column(plan, [trace], [applied], prepared)[0]) for plan in plans]


def list_verdict_kinds(metrics: Iterable[Metric]) -> tuple[VerdictKind, ...] | None:
    """List the kinds of verdict that metrics read; None where one is a user's, which may read some undeclared.

    >>> list_verdict_kinds([parse_metric("groundedness"), parse_metric("latency")])
    ('claim',)
    """
    definitions = [metric.definition for metric in metrics]
    if not all(definition.function.__module__.startswith("ragfault.") for definition in definitions):
        return None
    return tuple(sorted({kind for definition in definitions for kind in definition.verdicts}))


def _may_read_verdicts(plan: MetricPlan) -> bool:
    """Return whether a metric declares verdicts, or is a user's, which may read some that it does not declare."""
    return bool(plan.definition.verdicts) or not plan.definition.function.__module__.startswith("ragfault.")


def compute_score_table(
    metrics: Iterable[Metric], traces: Sequence[Trace], verdicts: Iterable[Verdicts], gold: GoldMode = "apply"
) -> pa.Table:
    """Compute the scores of `compute_scores` for many traces, as a table with the fields of `Score`, trace by trace.

    A row for each metric on each trace, in these orders; the `verdicts` are in the order of the traces. Raises
    ValueError where their numbers differ.

    >>> from ragfault.model.records import Latency
    >>> traces = [Trace(id=name, query="q", latency=Latency(total=120.0)) for name in "ab"]
    >>> table = compute_score_table([parse_metric("latency")], traces, [Verdicts(trace=name) for name in "ab"])
    >>> table.select(["trace", "metric", "value"]).to_pylist()[1]
    {'trace': 'b', 'metric': 'latency', 'value': 120.0}
    """
    import pyarrow as pa

    plans = [_plan_metric(metric) for metric in metrics]
    # what reads none gains nothing by it
    applies = gold == "apply" and any(map(_may_read_verdicts, plans))
    applied = [apply_gold(*pair) if applies else pair[1] for pair in zip(traces, verdicts, strict=True)]
    prepared: dict[Callable[[Sequence[Trace]], Any], Any] = {}
    columns = [_compute_column(plan, traces, applied, prepared) for plan in plans]
    rows = [outcome for row in zip(*columns, strict=True) for outcome in row]
    status, value, reason = zip(*rows, strict=True) if rows else ((), (), ())
    row_plans = plans * len(traces)
    return pa.table(
        {
            "trace": pa.array([trace.id for trace in traces for _ in plans], pa.string()),
            "metric": pa.array([plan.name for plan in row_plans], pa.string()),
            "layer": pa.array([plan.definition.layer for plan in row_plans], pa.string()),
            "status": pa.array(status, pa.string()),
            "value": pa.array(value, pa.float64()),
            "reason": pa.array(reason, pa.string()),
        }
    )


def _compute_column(
    plan: MetricPlan,
    traces: Sequence[Trace],
    verdicts: Sequence[Verdicts],
    prepared: dict[Callable[[Sequence[Trace]], Any], Any],
) -> list[Outcome]:
    """Compute a metric on many traces, at once where it has a formula for that."""
    batch = plan.definition.batch
    if batch is not None and not plan.definition.verdicts:
        # Where one trace makes it raise, each is computed alone, so that the others do not fail with it.
        with contextlib.suppress(Exception):
            if batch.prepare not in prepared:
                prepared[batch.prepare] = batch.prepare(traces)
            results = batch.compute(prepared[batch.prepare], **plan.keywords)
            return [_read_result(plan, result) for result in results]
    return [_compute_outcome(plan, *pair) for pair in zip(traces, verdicts, strict=True)]
