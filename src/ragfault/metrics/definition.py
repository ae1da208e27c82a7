"""What a metric is: a pure function of (trace, verdicts), tagged with layer, needs, direction and range.

A metric is defined by decorating a function and asked for by a value that prints and parses alike:

>>> str(parse("recall(relevant=2)@20"))
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
from ragfault.metrics.grammar import Value, read, write
from ragfault.ports import PARTS, Part
from ragfault.records import Layer, Score, Trace, Verdicts

__all__ = ["Definition", "Metric", "Noted", "Undefined", "definitions", "metric", "parse", "score"]

SLACK = 1e-9
"""What rounding may add to a range."""

ENTRY_POINTS = "ragfault.metrics"
"""The entry-point group whose modules are imported for the metrics they define."""


class Undefined(Struct, frozen=True):
    """What a metric returns when it has no value for a trace."""

    reason: str


class Noted(Struct, frozen=True):
    """A value that rests on a convention, with the convention's name."""

    value: float
    reason: str


Result = float | Noted | Undefined
Function = Callable[..., Result]


class Definition(Struct, frozen=True, kw_only=True):
    """A metric as it stands in the catalogue."""

    name: str
    function: Function
    layer: Layer
    better: Literal["higher", "lower"]
    range: tuple[float, float]
    verdicts: tuple[Part, ...] = ()
    """The kinds of verdict it reads."""
    fields: tuple[str, ...] = ()
    """The fields of the trace it reads."""
    source: str = ""
    """Where the formula comes from."""
    extra: str | None = None
    """The extra whose packages it needs."""
    packages: tuple[str, ...] = ()
    cut: bool = False
    """Whether `@k` can be asked for."""
    parameters: dict[str, Value] = {}
    """Parameters and their defaults."""
    positive: tuple[str, ...] = ()
    """Parameters that must be above 0."""
    scales: tuple[str, ...] = ()
    """Parameters that set the scale of the value, so that another value for them voids the range."""

    @property
    def summary(self) -> str:
        """The first sentence of its docstring."""
        return self.text.split("\n", 1)[0]

    @property
    def text(self) -> str:
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
    parameters: tuple[tuple[str, Value], ...] = ()
    """Those that differ from their defaults, sorted by name."""

    def __str__(self) -> str:
        return write(self.name, self.k, self.parameters)

    @property
    def definition(self) -> Definition:
        """Its entry in the catalogue."""
        return _find(self.name)

    @property
    def range(self) -> tuple[float, float]:
        """Its least and greatest value; without end where a parameter that sets the scale was changed."""
        definition = self.definition
        if any(key in definition.scales for key, _ in self.parameters):
            return -math.inf, math.inf
        return definition.range


_catalogue: dict[str, Definition] = {}
_loaded: list[str] = []


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
) -> Callable[[Function], Function]:
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
    >>> score(parse("answer_words"), Trace(id="1", query="q", answer="Four words are here"), Verdicts(trace="1")).value
    4.0
    """

    def enter(function: Function) -> Function:
        name = _free(function)
        keywords = {
            p.name: p.default
            for p in inspect.signature(function).parameters.values()
            if p.kind is inspect.Parameter.KEYWORD_ONLY
        }
        _catalogue[name] = Definition(
            name=name,
            function=function,
            layer=layer,
            better=better,
            range=(float(range[0]), float(range[1])),
            verdicts=_parts(verdicts, layer),
            fields=tuple(fields.split()),
            source=source,
            extra=extra,
            packages=tuple(packages.split()),
            cut="k" in keywords,
            parameters={key: value for key, value in keywords.items() if key != "k"},
            positive=tuple(positive.split()),
            scales=tuple(scales.split()),
        )
        return function

    return enter


def _parts(verdicts: str, layer: str) -> tuple[Part, ...]:
    """The kinds of verdict that are named, in their usual order."""
    named = verdicts.split()
    for part in named:
        if part not in PARTS:
            raise UnknownName("kind of verdict", part, PARTS)
    if layer not in get_args(Layer):
        raise UnknownName("layer", layer, get_args(Layer))
    return tuple(part for part in PARTS if part in named)


def _free(function: Function) -> str:
    """The function's name, unless another function has it in the catalogue."""
    old = _catalogue.get(function.__name__)
    if old is not None:
        place, new = (f"{f.__module__}.{f.__qualname__}" for f in (old.function, function))
        if place != new:
            raise UsageError(f'the name "{old.name}" is taken by {place}. Give the new metric another one.')
    return function.__name__


def definitions() -> dict[str, Definition]:
    """The catalogue: every metric that is defined, by name, entry points included.

    >>> definitions()["ndcg"].layer
    'retrieval'
    """
    _load()
    return dict(_catalogue)


def _load() -> None:
    """Import the modules that other packages announce under the entry-point group, once."""
    if ENTRY_POINTS not in _loaded:
        _loaded.append(ENTRY_POINTS)
        for point in entry_points(group=ENTRY_POINTS):
            point.load()


def _find(name: str) -> Definition:
    if name not in _catalogue:
        _load()
    try:
        return _catalogue[name]
    except KeyError:
        raise UnknownName("metric", name, _catalogue, hint="List them with: ragfault metrics") from None


def parse(text: str) -> Metric:
    """Read a metric from its text: `name`, `name@k`, `name(parameter=value, …)@k`.

    Nothing is evaluated. Values are whole numbers, decimals, true, false, none, words or quoted text.

    Raises UnknownName for a metric or parameter that does not exist, UsageError for a malformed text,
    a value of the wrong kind, or a cut-off where there can be none; MissingExtra where the metric needs
    packages that are not installed.

    >>> parse("ndcg@10") == parse(" ndcg(gain=linear) @ 10 ")
    True
    """
    name, k, given = read(text)
    definition = _find(name)
    if k is not None and not definition.cut:
        raise UsageError(f'"{text}": {name} has no cut-off. Ask for: {name}')
    for key, value in given.items():
        if key not in definition.parameters:
            hint = f"{name} has no parameters." if not definition.parameters else ""
            raise UnknownName(f"parameter of {name}", key, definition.parameters, hint)
        _check(definition, key, value)
    if not definition.installed and definition.extra:
        raise MissingExtra(name, definition.extra)
    changed = {
        key: _like(value, definition.parameters[key])
        for key, value in given.items()
        if value != definition.parameters[key]
    }
    return Metric(name, k, tuple(sorted(changed.items())))


def _check(definition: Definition, key: str, value: Value) -> None:
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


def _like(value: Value, default: Value) -> Value:
    """The value in the type of its default, so that equal metrics print alike."""
    return float(value) if isinstance(default, float) and isinstance(value, int) else value


def score(metric: Metric, trace: Trace, verdicts: Verdicts) -> Score:
    """Compute one metric on one trace.

    Always returns a row: scored, undefined with the reason, or failed where the judge lost a part that
    the metric reads or the metric itself broke.

    >>> score(parse("context_relevance"), Trace(id="7", query="q", chunks=()), Verdicts(trace="7", chunk=()))
    Score(trace='7', metric='context_relevance', layer='retrieval', status='undefined', value=None,
          reason='nothing retrieved')
    """
    definition = metric.definition
    lost = _lost(definition, verdicts)
    if lost is not None:
        return _row(metric, definition, trace, "failed", None, lost)
    keywords: dict[str, Value] = dict(metric.parameters)
    if metric.k is not None:
        keywords["k"] = metric.k
    try:
        result = definition.function(trace, verdicts, **keywords)
        if isinstance(result, Undefined):
            return _row(metric, definition, trace, "undefined", None, result.reason)
        value, reason = (result.value, result.reason) if isinstance(result, Noted) else (result, None)
        number = float(value)
    except Exception as error:  # noqa: BLE001 - the door to functions that users write: one bad row, not a lost run
        return _row(metric, definition, trace, "failed", None, f"{type(error).__name__}: {error}")
    low, high = metric.range
    if not (math.isfinite(number) and low - SLACK <= number <= high + SLACK):
        why = f"the metric returned {number:g}, and its range is {low:g} to {high:g}"
        return _row(metric, definition, trace, "failed", None, why)
    return _row(metric, definition, trace, "scored", number, reason)


def _lost(definition: Definition, verdicts: Verdicts) -> str | None:
    """Why a part that the metric reads was lost, if one was."""
    if not verdicts.failures or not definition.verdicts:
        return None
    for part in (*definition.verdicts, "*"):
        if part in verdicts.failures:
            return verdicts.failures[part]
    return None


def _row(
    metric: Metric,
    definition: Definition,
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
