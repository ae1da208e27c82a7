"""Parts of two systems that can be swapped, and the records of an ablation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import update_wrapper
from hashlib import blake2b
from pathlib import Path
from re import fullmatch
from threading import Lock
from typing import Literal, Self, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ragfault.comparison.records import ChangeState
from ragfault.io.atomic_files import convert_write_errors
from ragfault.io.field_values import make_content_id
from ragfault.io.normalization import normalize_trace
from ragfault.model.errors import UsageError
from ragfault.model.records import Chunk, Layer, Trace
from ragfault.stats.estimates import Difference


class SystemConfiguration(Struct, frozen=True, kw_only=True):
    """System of parts from the baseline and the candidate, and how it ran."""

    # "baseline", "candidate", or the parts taken from the candidate joined by "+"
    name: str
    # the parts taken from the candidate; the others are the baseline's
    parts: tuple[str, ...]
    # queries on which a part failed
    errors: int = 0
    # the first of these errors
    error: str | None = None
    # whether it was found finished in the folder and not run again
    reused: bool = False
    # where its run lies; None where no folder was given
    run: str | None = None


class PartEffect(Struct, frozen=True, kw_only=True):
    """Effect of some parts on a metric, over the queries that are scored in every configuration."""

    parts: tuple[str, ...]
    """One part: its share of the change. Two: their interaction. None: the whole change."""
    difference: Difference
    """The effect with its interval."""
    p: float
    """p-value of the sign-flip test of no effect."""
    adjusted: float
    """The same, corrected by Holm: the whole changes over the metrics, all other effects over metrics and effects."""
    equivalence_p: float
    """The p of the equivalence test: that the true effect is at least the margin."""
    state: ChangeState
    identical: bool = False
    """Steady for certain: swapping changed nothing that the metric reads."""
    needed: int | None = None
    """If the result is "cannot tell": about how many scored queries would decide; None if unknown."""

    @property
    def moved(self) -> bool:
        """Return whether the effect is shown to be a rise or a drop."""
        return self.state in ("dropped", "rose")


class MetricAttribution(Struct, frozen=True, kw_only=True):
    """Change of one metric from baseline to candidate, divided among the parts."""

    metric: str
    layer: Layer
    better: Literal["higher", "lower"]
    means: tuple[float, ...]
    """Mean of the metric in each configuration, in their order; empty if no query counts."""
    n: int
    """Queries scored in every configuration; only these count, so that the shares add up."""
    lost: int
    """Queries scored in some configuration but not in every one."""
    margin: float
    """The smallest effect that matters, in the metric's units."""
    total: PartEffect | None
    """The whole change, candidate less baseline; None where no query counts."""
    shares: tuple[PartEffect, ...] = ()
    """Each part's Shapley share of it, in the order of the parts; they sum to the whole change."""
    interactions: tuple[PartEffect, ...] = ()
    """Each pair of parts: how far the effect of one depends on the other. Empty where not every swap was run."""
    verdict: str = ""
    """The part that caused the change, in words."""

    @property
    def result(self) -> ChangeState:
        """Return the state of the whole change: dropped, rose, steady or cannot tell."""
        return "cannot tell" if self.total is None else self.total.state

    def share_of(self, part: str) -> PartEffect | None:
        """Return the share of a part; None where no query counts or there is no such part."""
        return next((shares for shares in self.shares if shares.parts == (part,)), None)


class Ablation(Struct, frozen=True, kw_only=True):
    """Change between two systems, every metric divided among the parts."""

    parts: tuple[str, ...]
    """In the order in which they run."""
    queries: int
    configurations: tuple[SystemConfiguration, ...]
    """The systems that were run, the baseline first and the candidate last."""
    attributions: tuple[MetricAttribution, ...]
    """In the order of the metrics."""
    judge: str
    """The judge's fingerprint."""
    permutations: int | None
    """Number of sampled swap orders over which the shares are averaged; None: all orders, exactly."""
    confidence: float
    seed: int
    warnings: tuple[str, ...] = ()
    """Limits of the experiment's validity, in words."""

    @property
    def worsened_by(self) -> dict[str, tuple[str, ...]]:
        """Return for each part the metrics that it is shown to have worsened."""
        return {part: tuple(self._worsened_metrics(part)) for part in self.parts}

    def _worsened_metrics(self, part: str) -> list[str]:
        worse_states = {"higher": "dropped", "lower": "rose"}
        return [
            names.metric
            for names in self.attributions
            if (share := names.share_of(part)) is not None and share.state == worse_states[names.better]
        ]


SystemPart = Callable[[Trace], Trace]
"""A part that can be run: it takes the trace as the parts before it left it, and returns it with its own work added."""

# part name → part, in the order in which they run
System = Mapping[str, SystemPart]

# a generator as a plain function of query and chunks
AnswerFunction = Callable[[str, tuple[Chunk, ...]], str | Trace]

RESERVED_NAMES = ("baseline", "candidate", "made")


def retriever(function: Callable[[str], Iterable[Chunk | str]]) -> SystemPart:
    """Wrap a function from a query to chunks as a part of a system.

    Chunks may be plain strings; their id is then made from their text.

    >>> part = retriever(lambda query: ["The last ferry leaves at 22:40."])
    >>> part(Trace(id="1", query="When does the last ferry leave?")).chunks[0].text
    'The last ferry leaves at 22:40.'
    """

    def retrieve(trace: Trace) -> Trace:
        return replace(trace, chunks=tuple(map(_as_chunk, function(trace.query))))

    return cast(SystemPart, update_wrapper(retrieve, function))


def generator(function: AnswerFunction) -> SystemPart:
    """Wrap a function from query and chunks to an answer as a part of a system.

    It may return a trace instead of a text; answer, citations, model, latency, tokens and error are taken from it.

    >>> part = generator(lambda query, chunks: chunks[0].text)
    >>> part(Trace(id="1", query="When?", chunks=(Chunk(id="a", text="At noon."),))).answer
    'At noon.'
    """

    def generate(trace: Trace) -> Trace:
        result = function(trace.query, trace.chunks or ())
        if isinstance(result, str):
            return replace(trace, answer=result)
        if not isinstance(result, Trace):
            raise TypeError(f"it returned {type(result).__name__}, not an answer or a Trace")
        return replace(
            trace,
            answer=result.answer,
            citations=result.citations,
            model=result.model or trace.model,
            latency=result.latency or trace.latency,
            tokens=result.tokens or trace.tokens,
            error=result.error,
        )

    return cast(SystemPart, update_wrapper(generate, function))


def check_part_names(baseline: System, candidate: System) -> tuple[str, ...]:
    """Return the part names of two systems, which must be equal and in the same order.

    Raises UsageError where they are not, or cannot name a folder.

    >>> check_part_names({"retriever": str}, {"reader": str})
    Traceback (most recent call last):
    ragfault.model.errors.UsageError: the systems have other parts: the baseline has retriever, ...
    """
    baseline_names, candidate_names = tuple(baseline), tuple(candidate)
    if baseline_names != candidate_names:
        raise UsageError(
            f"the systems have other parts: the baseline has {', '.join(baseline_names) or 'none'}, "
            f"the candidate {', '.join(candidate_names) or 'none'}. Give both the same names in the same order; "
            "a part that one system lacks is a function that returns the trace as it came."
        )
    if not baseline_names:
        raise UsageError("the systems have no part. Give at least one, by name.")
    for name in baseline_names:
        if not fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", name) or name in RESERVED_NAMES:
            raise UsageError(
                f'a part cannot be named "{name}": use letters, digits, "_", "-" and ".", '
                f"and none of {', '.join(RESERVED_NAMES)}."
            )
    return baseline_names


def part_label(step: object) -> str:
    """Return the qualified name of a part."""
    return str(getattr(step, "__qualname__", type(step).__qualname__))


def _as_chunk(chunk: Chunk | str) -> Chunk:
    if isinstance(chunk, Chunk):
        return chunk
    if not isinstance(chunk, str):
        raise TypeError(f"it returned {type(chunk).__name__}, not a Chunk or a text")
    return Chunk(id=make_content_id(chunk), text=chunk)


def strip_outputs(trace: Trace) -> Trace:
    """Return a trace without outputs: the query, its answer key and its context.

    >>> trace = strip_outputs(Trace(id="1", query="When?", answer="At noon.", reference="At noon."))
    >>> trace.answer, trace.reference
    (None, 'At noon.')
    """
    return replace(trace, chunks=None, answer=None, citations=None, model=None, latency=None, tokens=None, error=None)


class _PartCall(Struct, frozen=True):
    """Call of a part, as stored in the log."""

    part: str
    side: int
    input: str
    trace: Trace


class PartRunner:
    """Runner of the parts of two systems, with a log of each call.

    A part that gets the same trace in another configuration is not run again, nor when an experiment that was killed
    goes on: parts that draw at random draw the same there, so that they add no noise to the effect of others.
    """

    def __init__(self, baseline: System, candidate: System, calls_path: Path) -> None:
        self.names = tuple(baseline)
        self._systems = (baseline, candidate)
        self._calls_path, self._lock = calls_path, Lock()
        self._results: dict[tuple[str, int, str], Trace] = {}

    def __enter__(self) -> Self:
        good = 0
        with convert_write_errors(self._calls_path):
            self._file = self._calls_path.open("a+b")
            self._file.seek(0)
            for line in self._file:
                try:
                    call = msgspec.json.decode(line, type=_PartCall)
                except msgspec.MsgspecError:
                    break
                if not line.endswith(b"\n"):
                    break
                self._results[call.part, call.side, call.input] = call.trace
                good += len(line)
            self._file.truncate(good)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def run(self, mask: int, start: Trace) -> Trace:
        """Fold a query through the parts of a configuration; a part that fails leaves a trace with its error."""
        trace = start
        for index, name in enumerate(self.names):
            trace = self._run_part(name, mask >> index & 1, trace)
            if trace.error:
                break
        return _finish_trace(trace, start)

    def _run_part(self, name: str, side: int, trace: Trace) -> Trace:
        """Return the output of a part, from the log or from a call."""
        step = self._systems[side][name]
        digest = _input_digest(trace)
        key = (name, 0 if step is self._systems[0][name] else side, digest or "")
        if digest and key in self._results:
            return self._results[key]
        result = _call_part(name, step, trace)
        if digest:
            with self._lock:
                self._store_result(key, result)
        return result

    def _store_result(self, key: tuple[str, int, str], result: Trace) -> None:
        self._results[key] = result
        try:
            line = msgspec.json.encode(_PartCall(*key, result))
        except (TypeError, ValueError, OverflowError):
            return
        with convert_write_errors(self._calls_path):
            self._file.write(line + b"\n")
            self._file.flush()


def _call_part(name: str, step: SystemPart, trace: Trace) -> Trace:
    """Call a part; return a trace with the error where it fails."""
    try:
        result = step(trace)
        if not isinstance(result, Trace):
            raise TypeError(f"it returned {type(result).__name__}, not a Trace")
    except Exception as error:  # noqa: BLE001 - an error of user code fails one query, not the experiment
        return replace(trace, error=f"{name}: {type(error).__name__}: {error}")
    return result


def _input_digest(trace: Trace) -> str | None:
    """Hash the input of a part; None where it cannot be serialized."""
    try:
        coded = msgspec.msgpack.encode(trace, order="deterministic")
    except (TypeError, ValueError, OverflowError):
        return None
    return blake2b(coded, digest_size=16).hexdigest()


def _finish_trace(trace: Trace, start: Trace) -> Trace:
    """Return the trace as it is judged: with the user's query, and serializable."""
    try:
        complete = normalize_trace(replace(trace, id=start.id, query=start.query), check=True)
        return msgspec.json.decode(msgspec.json.encode(complete), type=Trace)
    except (TypeError, ValueError, OverflowError) as error:
        return replace(start, error=f"the parts made a trace that cannot be written down: {error}")


def run_configuration(
    runner: PartRunner, mask: int, queries: Sequence[Trace], *, threads: int = 1, advance: Callable[[int], None]
) -> list[Trace]:
    """Yield the traces of a configuration, in the order of the queries."""
    traces = []
    for trace in _map_threads(lambda start: runner.run(mask, start), queries, threads):
        traces.append(trace)
        advance(1)
    return traces


def _map_threads(function: SystemPart, items: Sequence[Trace], threads: int) -> Iterator[Trace]:
    """Map over threads, results in order."""
    if threads == 1:
        yield from map(function, items)
        return
    pool = ThreadPoolExecutor(threads)
    try:
        yield from pool.map(function, items)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
