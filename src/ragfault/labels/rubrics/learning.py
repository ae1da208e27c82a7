"""Rubrics that learn from labels: judged examples for the prompt, with proof on labels that were not shown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict, replace

from ragfault.io.runs.copies import group_trace
from ragfault.io.runs.run import AnyRun, open_run
from ragfault.labels.consensus import settle_rubrics
from ragfault.labels.label import Label
from ragfault.labels.rubrics.halves import AgreementProof, LabelledAnswer, is_unseen, prove_agreement, split_labelled
from ragfault.model.errors import InputError
from ragfault.model.records import Trace
from ragfault.model.rubrics import MAX_EXAMPLES, MAX_TEXT, Rubric, RubricExample, load_rubrics
from ragfault.retrieval.generation.settings import format_toml


class LearntRubric(Struct, frozen=True, kw_only=True):
    """Rubric with examples from labels, and the labelled traces whose groups gave none."""

    rubric: Rubric
    traces: tuple[str, ...]
    """Traces whose answers are among the examples."""
    unseen: tuple[str, ...]
    """Traces that the proof is made on."""


MAX_LEARNT = 6
"""Most examples that a rubric learns."""


def learn_examples(rubric: Rubric, source: AnyRun, labels: Mapping[str, float]) -> LearntRubric:
    """Learn examples for a rubric from the labels of one half of a run's traces; the other half is held out.

    Halves are whole conversations, chosen by the hash of their names. Examples are answers on which judge and people
    differ, then others, the levels in turn, so that each is shown. Raises InputError where a half has too few labels.
    """
    halves = split_labelled(rubric, open_run(source), labels)
    fitting = [row for row in halves.learning if _fits(row.trace)]
    if not fitting:
        raise InputError(f"no labelled answer to learn from has at most {MAX_TEXT:,} characters. Label more answers.")
    if not (room := MAX_EXAMPLES - len(rubric.examples)):
        raise InputError(
            f'the rubric "{rubric.name}" has {MAX_EXAMPLES} examples, as many as it may have. Remove some.'
        )
    chosen = _choose_examples(fitting, min(MAX_LEARNT, room))
    examples = tuple(
        RubricExample(answer=row.trace.answer or "", query=row.trace.query, value=rubric.get_level(row.value).value)
        for row in chosen
    )
    return LearntRubric(
        rubric=replace(rubric, examples=(*rubric.examples, *examples)),
        traces=tuple(row.trace.id for row in chosen),
        unseen=tuple(row.trace.id for row in halves.unseen),
    )


def _fits(trace: Trace) -> bool:
    """Return whether an answer can be an example."""
    return 0 < len(trace.answer or "") <= MAX_TEXT and len(trace.query) <= MAX_TEXT


def learn_rubrics(path: str | Path, source: AnyRun, labels: Sequence[Label]) -> tuple[list[Rubric], list[str]]:
    """Learn examples for the labelled ones of the rubrics of a file; return all of them, and a line on each of these.

    `source` is a run that was judged by these rubrics.
    """
    rubrics = load_rubrics(path)
    settled = settle_rubrics(labels, rubrics[0].name if len(rubrics) == 1 else None)
    learnt = {item.name: learn_examples(item, source, settled[item.name]) for item in rubrics if item.name in settled}
    if not learnt:
        raise InputError(f"no label is by one of the rubrics {', '.join(item.name for item in rubrics)}.")
    lines = [f"{name}: {len(row.traces)} examples, {len(row.unseen)} labels held out" for name, row in learnt.items()]
    return [learnt[item.name].rubric if item.name in learnt else item for item in rubrics], lines


def prove_rubrics(before: AnyRun, after: AnyRun, labels: Sequence[Label]) -> tuple[list[Label], list[str]]:
    """Prove for each labelled rubric that its examples help; return the held-out labels, and a line on each rubric."""
    proving = {trace.id for trace in open_run(after).traces() if is_unseen(trace)}
    unseen = [label for label in labels if label.trace in proving]
    names = {item.rubric for verdicts in open_run(after).verdicts() for item in verdicts.rubric or ()}
    settled = settle_rubrics(unseen, next(iter(names)) if len(names) == 1 else None)
    proofs = {name: prove_learning(before, after, name, values, list(values)) for name, values in settled.items()}
    if not proofs:
        raise InputError("no label is of a held-out trace. Label more answers.")
    verdicts = {True: "help", False: "are not shown to help"}
    return unseen, [f"{name}: the examples {verdicts[proof.helps]}: {proof}" for name, proof in proofs.items()]


def format_rubrics(rubrics: Sequence[Rubric]) -> str:
    """Format rubrics as the TOML file that `load_rubrics` reads.

    >>> from ragfault.model.rubrics import rubric
    >>> print(format_rubrics([rubric("It is formal.", name="formal", examples=[RubricExample(answer="Hi!", value=0)])]))
    [formal]
    criterion = "It is formal."
    levels = [
        { value = 0.0, description = "the answer does not meet the criterion", example = "" },
        { value = 1.0, description = "the answer meets the criterion", example = "" },
    ]
    examples = [
        { answer = "Hi!", value = 0.0, query = "", reason = "" },
    ]
    <BLANKLINE>
    """
    lines = []
    for item in rubrics:
        lines += [f"[{item.name}]", f"criterion = {format_toml(item.criterion)}"]
        for key, records in (("levels", item.levels), ("examples", item.examples)):
            fields = [asdict(row) | {"value": float(row.value)} for row in records]
            rows = [", ".join(f"{name} = {format_toml(value)}" for name, value in row.items()) for row in fields]
            lines += [f"{key} = [", *(f"    {{ {row} }}," for row in rows), "]"]
        lines.append("")
    return "\n".join(lines)


def _choose_examples(rows: Sequence[LabelledAnswer], count: int) -> list[LabelledAnswer]:
    """Choose examples: the levels in turn, of each the disputed ones first; of equal answers one."""
    by_level: dict[float, list[LabelledAnswer]] = defaultdict(list)
    seen_texts: set[str] = set()
    for row in sorted(rows, key=lambda row: not row.is_disputed):
        if row.trace.answer not in seen_texts:
            seen_texts.add(row.trace.answer or "")
            by_level[row.value].append(row)
    examples: list[LabelledAnswer] = []
    while len(examples) < count and any(by_level.values()):
        for level in sorted(by_level):
            if by_level[level] and len(examples) < count:
                examples.append(by_level[level].pop(0))
    return examples


def prove_learning(
    before: AnyRun, after: AnyRun, rubric: str, labels: Mapping[str, float], unseen: Sequence[str]
) -> AgreementProof:
    """Prove that examples help: the paired difference of agreement with labels, only on held-out traces.

    `before` and `after` are runs of the same traces by the judge without and with the examples. Raises InputError where
    fewer than the least number of held-out traces has a verdict in both.
    """
    values: list[dict[str, float]] = []
    groups: dict[str, str] = {}
    for source in (before, after):
        run = open_run(source)
        judged_levels: dict[str, float] = {}
        for trace, verdicts in zip(run.traces(), run.verdicts(), strict=True):
            groups[trace.id] = group_trace(trace)
            for item in verdicts.rubric or ():
                if item.rubric == rubric:
                    judged_levels[trace.id] = item.value
        values.append(judged_levels)
    unseen_labels = {name: labels[name] for name in unseen if name in labels}
    return prove_agreement(unseen_labels, values[0], values[1], groups)
