"""Recorded answers: traces of several generators, joined by question, and scored as they are needed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ragfault.apps.tune.generators.records import AnswerOutcome
from ragfault.judges.assembly import observe_traces
from ragfault.labels.reading.label_files import read_labels
from ragfault.labels.reading.layouts import ExpectedValues
from ragfault.metrics.aliases import resolve_alias
from ragfault.metrics.catalog import Metric, compute_score, compute_scores, parse_metric
from ragfault.model.errors import InputError, UsageError
from ragfault.model.grouping import group_by
from ragfault.model.protocols import Judge
from ragfault.model.records import Trace, Verdicts

BATCH = 32
"""Traces that are judged at once."""


class RecordedAnswers(NamedTuple):
    """Answers of several generators to the same questions."""

    names: tuple[str, ...]
    questions: tuple[Trace, ...]
    """One trace for each question, of the first generator."""
    answers: Mapping[str, Sequence[Sequence[Trace]]]
    """Generator → its answers to each question, at least one each."""
    notes: tuple[str, ...]

    @property
    def repetitions(self) -> int:
        """Least number of answers of a generator to a question."""
        return min(len(rows) for per_question in self.answers.values() for rows in per_question)

    @property
    def groups(self) -> tuple[str, ...]:
        """Group of each question: its conversation, else its sources, else itself."""
        return tuple(
            question.conversation or str(question.metadata.get("source_id") or question.id)
            for question in self.questions
        )


def make_question_key(trace: Trace) -> str:
    """Return the key by which answers to one question from the same sources are joined."""
    chunks = "\0".join(chunk.text for chunk in trace.chunks or ())
    return hashlib.sha256(f"{trace.query}\0{chunks}".encode()).hexdigest()


def join_answers(recorded: Mapping[str, Sequence[Trace]]) -> RecordedAnswers:
    """Join the traces of several generators by id where these are shared, else by query and chunks.

    Questions that a generator has not answered are left out, and counted in a note. Those on which the generators saw
    other chunks stay, and a note says that retrieval is compared there, too. Raises InputError where no question is
    left, UsageError for fewer than two generators.

    >>> old = [Trace(id="1", query="When?", answer="At ten."), Trace(id="2", query="Who?", answer="Nobody.")]
    >>> joined = join_answers({"a": old, "b": [Trace(id="1", query="When?", answer="At noon.")]})
    >>> [question.id for question in joined.questions], joined.notes
    (['1'], ('1 question without an answer of every generator is left out',))
    """
    if len(recorded) < 2:
        raise UsageError("there is one generator. Give the answers of two or more: several files, or a column `model`.")
    by_id = {name: _collect_by(traces, lambda trace: trace.id) for name, traces in recorded.items()}
    tables = by_id if _share_questions(by_id) else {}
    if not tables:
        tables = {name: _collect_by(traces, make_question_key) for name, traces in recorded.items()}
    first_name = next(iter(tables))
    keys = [key for key in tables[first_name] if all(key in table for table in tables.values())]
    if not keys:
        raise InputError(
            "no question has an answer of every generator: give traces with the same ids, or with the same queries and "
            "chunks."
        )
    every = {key for table in tables.values() for key in table}
    notes = []
    if len(every) > len(keys):
        unshared_count = len(every) - len(keys)
        noun, verb = ("question", "is") if unshared_count == 1 else ("questions", "are")
        notes.append(f"{unshared_count:,} {noun} without an answer of every generator {verb} left out")
    differing = sum(
        len({make_question_key(trace) for table in tables.values() for trace in table[key]}) > 1 for key in keys
    )
    if differing:
        notes.append(
            f"on {differing:,} of {len(keys):,} questions the generators saw other chunks or another query: there, "
            "retrieval is compared, too"
        )
    return RecordedAnswers(
        names=tuple(tables),
        questions=tuple(tables[first_name][key][0] for key in keys),
        answers={name: [table[key] for key in keys] for name, table in tables.items()},
        notes=tuple(notes),
    )


def _collect_by(traces: Sequence[Trace], key: Callable[[Trace], str]) -> dict[str, list[Trace]]:
    return group_by((trace for trace in traces if trace.answer is not None or trace.error is not None), key)


def _share_questions(tables: Mapping[str, Mapping[str, Sequence[Trace]]]) -> bool:
    """Return True where ids name questions: those of one id have one query in every generator, and half are shared."""
    first_table, *other_tables = tables.values()
    common_keys = [key for key in first_table if all(key in table for table in other_tables)]
    same = all(len({trace.query for table in tables.values() for trace in table[key]}) == 1 for key in common_keys)
    return same and 2 * len(common_keys) >= min(len(table) for table in tables.values()) > 0


def group_by_model(traces: Sequence[Trace]) -> dict[str, list[Trace]]:
    """Group traces by the model that answered.

    >>> list(group_by_model([Trace(id="1", query="?", model="a"), Trace(id="2", query="?", model="b")]))
    ['a', 'b']
    """
    groups: dict[str, list[Trace]] = {}
    for trace in traces:
        if trace.model:
            groups.setdefault(trace.model, []).append(trace)
    return groups


def parse_generation_metric(text: str) -> Metric:
    """Parse a metric by which generators are compared: higher is better, with a finite range.

    Raises UnknownName for one that does not exist, UsageError for one that cannot be maximised.

    >>> str(parse_generation_metric("faithfulness"))
    'groundedness'
    """
    metric = parse_metric(resolve_alias(text))
    if metric.definition.better != "higher" or not all(math.isfinite(end) for end in metric.range):
        raise UsageError(
            f"{text} cannot choose a generator: it takes a metric of which more is better, with a least and a greatest "
            "value, such as groundedness, answer_relevance, completeness or token_f1."
        )
    return metric


class AnswerScorer:
    """Scores answers by a metric, each once, with the judge or with stored verdicts."""

    def __init__(
        self, metric: Metric, judge: Judge | None = None, verdicts: Mapping[int, Verdicts] | None = None
    ) -> None:
        self.metric, self.judge = metric, judge
        self.limits = metric.range
        self._verdicts = dict(verdicts or {})
        self._outcomes: dict[int, AnswerOutcome] = {}
        self._traces: dict[int, Trace] = {}
        self._costs = [parse_metric(name) for name in ("cost", "latency", "tokens")]
        self.judged = 0
        """Answers that the judge was asked about."""

    def score(self, traces: Sequence[Trace]) -> list[AnswerOutcome]:
        """Return the outcome of each answer."""
        missing = list({id(trace): trace for trace in traces if id(trace) not in self._outcomes}.values())
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            for trace, verdicts in zip(batch, self._observe(batch), strict=True):
                self._outcomes[id(trace)] = self._make_outcome(trace, verdicts)
                self._traces[id(trace)] = trace
        return [self._outcomes[id(trace)] for trace in traces]

    def get_verdicts(self, trace: Trace) -> Verdicts | None:
        """Return the verdicts on an answer that was scored."""
        return self._verdicts.get(id(trace))

    def _observe(self, batch: Sequence[Trace]) -> list[Verdicts]:
        known_verdicts = [self._verdicts.get(id(trace)) for trace in batch]
        unjudged = [trace for trace, verdicts in zip(batch, known_verdicts, strict=True) if verdicts is None]
        if unjudged and self.judge is not None and self.metric.definition.verdicts:
            self.judged += len(unjudged)
            for trace, verdicts in zip(unjudged, observe_traces(self.judge, unjudged), strict=True):
                self._verdicts[id(trace)] = verdicts
        return [self._verdicts.get(id(trace)) or Verdicts(trace=trace.id, judge="none") for trace in batch]

    def _make_outcome(self, trace: Trace, verdicts: Verdicts) -> AnswerOutcome:
        score = compute_scores([self.metric], trace, verdicts)[0]
        value = score.value if trace.error is None else None
        cost, latency, tokens = (compute_score(metric, trace, verdicts).value for metric in self._costs)
        return AnswerOutcome(self.limits[0] if value is None else value, value is not None, cost, latency, tokens)


def read_human_table(path: str | Path, metric: str, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Read human values of a metric: generator → trace id → value.

    Columns: `generator`, `trace` (or `id`), and one named as the metric. Raises BadRows if a generator is not among the
    `names`, or a value is missing or not in the range of the metric.
    """
    expected = ExpectedValues({metric: parse_generation_metric(metric).range}, names)
    values: dict[str, dict[str, float]] = {}
    for label in read_labels(path, "generator values", expected=expected):
        values.setdefault(str(label.subject[2]), {})[label.trace] = float(label.value)  # type: ignore[arg-type]
    return values
