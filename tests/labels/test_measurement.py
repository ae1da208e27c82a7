"""How far a judge agrees with people: figures by hand, labels of every form, and laws of invariance."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from ragfault.cli.commands import run_command
from ragfault.cli.commands import run_command as command
from ragfault.io.field_values import InvalidRecord
from ragfault.labels.judges.measurement import JudgeMeasurement
from ragfault.labels.judges.measuring import measure_judge
from ragfault.labels.label import Label
from ragfault.labels.reading.label_files import append_label
from ragfault.labels.reading.label_parser import LabelRule, parse_grades, parse_spans
from ragfault.labels.reading.lines import AnswerLabel, ChunkLabel, ClaimLabel, HumanVerdicts, LabelLine, list_label_line
from ragfault.model.errors import BadTraces, InputError, JudgeError, UnknownName, UsageError
from ragfault.model.records import AnswerVerdict, Chunk, ChunkVerdict, ClaimVerdict, Gold, Trace, Verdicts
from ragfault.report.builders.agreement import build_measurement
from ragfault.report.json_documents import encode_document
from ragfault.report.renderers.terminal import render_terminal
from remembered import LEXICAL
from sample_runs import FixedJudge, evaluate_pairs, pair

DATA = Path(__file__).parents[3] / "shared" / "data"
ANSWER = "The office opens at 7:30. It is closed on Sundays."
"""Two claims: characters 0–25 and 26–50."""


def label_trace(name: str, grounded: float | None, label: Any, claims: Sequence[float] = (), **metadata: Any):
    """Build a trace with a label, and verdicts: the probability of the answer, and of each claim."""
    places = ((0, 25), (26, 50))
    result = tuple(
        ClaimVerdict(
            claim=ANSWER[start:end],
            start=start,
            end=end,
            support="supported" if p >= 0.5 else "unsupported",
            p=p,
            unsure=0.4 <= p <= 0.6,
        )
        for p, (start, end) in zip(claims, places, strict=False)
    )
    trace = Trace(
        id=name,
        query="When does it open?",
        chunks=(Chunk(id="a", text="Opens 7:30."),),
        answer=ANSWER,
        metadata={"label": label, **metadata},
    )
    return trace, Verdicts(trace=name, claim=result, answer=AnswerVerdict(relevance=1.0, grounded=grounded))


def measure_recorded(pairs: Sequence[tuple[Trace, Verdicts]], **options: Any) -> JudgeMeasurement:
    """Measure a judge with recorded verdicts."""
    options = {"group": "id", "resamples": 50} | options
    return measure_judge([trace for trace, _ in pairs], judge=FixedJudge([seen for _, seen in pairs]), **options)


def values(result: JudgeMeasurement) -> dict[str, float | None]:
    return {figure.name: figure.value for figure in result.overall.figures}


SIX = [
    label_trace("a", 0.9, 0),
    label_trace("b", 0.8, 0),
    label_trace("c", 0.3, 0),
    label_trace("d", 0.6, 1),
    label_trace("e", 0.2, 1),
    label_trace("f", 0.1, 1),
]
"""Bad are d, e and f, with scores 0.4, 0.8 and 0.9; good are a, b and c, with 0.1, 0.2 and 0.7."""


def lines(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def row(name: str, answer: str, **more: Any) -> dict[str, Any]:
    text = "The harbour office opens at 7:30 on weekdays. On Sundays it is closed."
    return {"id": name, "query": "When does it open?", "contexts": [text], "answer": answer, **more}


# --- figures ---------------------------------------------------------------------------------------


def test_the_figures_are_those_counted_by_hand():
    """Of six answers one good one is called bad and one bad one good: every figure as counted on paper."""
    result = values(measure_recorded(SIX, threshold="own"))
    assert result["positives"] == 0.5
    assert result["precision"] == pytest.approx(2 / 3)  # c, e, f are called bad; e and f are
    assert result["recall"] == pytest.approx(2 / 3)
    assert result["f1"] == pytest.approx(2 / 3)
    assert result["auroc"] == pytest.approx(8 / 9)  # of nine pairs only d < c is out of order
    assert result["average_precision"] == pytest.approx((1 + 1 + 3 / 4) / 3)
    assert result["recall_at_precision"] == pytest.approx(2 / 3)  # f and e; with c precision is below 0.8
    assert result["sensitivity"] == pytest.approx(2 / 3)
    assert result["specificity"] == pytest.approx(2 / 3)
    assert result["balanced_accuracy"] == pytest.approx(2 / 3)
    assert result["best_balanced_accuracy"] == pytest.approx(5 / 6)  # from 0.4 on: all bad, and c
    assert result["balanced_accuracy_lost"] == pytest.approx(1 / 6)
    assert result["kappa"] == pytest.approx(1 / 3)  # four of six alike, half of them by chance
    assert result["alpha"] == pytest.approx(1 - (4 / 12) / (72 / 132))
    assert result["brier"] == pytest.approx((0.01 + 0.04 + 0.49 + 0.36 + 0.04 + 0.01) / 6)
    assert result["calibration_error"] == pytest.approx((0.1 + 0.2 + 0.7 + 0.6 + 0.2 + 0.1) / 6)


def test_a_threshold_is_a_score_from_which_on_answers_are_bad():
    """At 0.75 only e and f are called bad, at 0 all; what is no score is refused."""
    assert values(measure_recorded(SIX, threshold=0.75))["precision"] == 1.0
    assert values(measure_recorded(SIX, threshold="0"))["recall"] == 1.0
    with pytest.raises(UsageError, match="not a score"):
        measure_recorded(SIX, threshold=7)
    with pytest.raises(UnknownName, match='no threshold "best"'):
        measure_recorded(SIX, threshold="best")


def test_the_folds_do_not_see_their_own_labels():
    """Scores that say nothing gain nothing from a threshold chosen elsewhere; separable ones lose nothing."""
    parted = [label_trace(f"t{at}", 0.9 if at % 2 else 0.1, int(at % 2 == 0)) for at in range(40)]
    result = measure_recorded(parted)
    assert values(result)["f1"] == 1.0
    assert result.cut == pytest.approx(0.5)
    lone = [label_trace(f"t{at}", 1 - at / 40, int(at == 39)) for at in range(40)]
    assert values(measure_recorded(lone))["f1"] == 0.0  # the only bad answer is never among the others


def test_without_a_threshold_there_is_no_f1():
    """One group leaves no other fold to choose a threshold on: F1, precision and recall say so and are not zero."""
    figures = {figure.name: figure for figure in measure_recorded(SIX, group="query").overall.figures}
    for name in ("f1", "precision", "recall"):
        assert figures[name].value is None
        assert figures[name].reason == "no fold has both classes in the others"
    assert figures["sensitivity"].value == pytest.approx(2 / 3)
    assert values(measure_recorded(SIX, group="query", threshold="own"))["f1"] == pytest.approx(2 / 3)


def test_the_own_calls_may_exceed_every_threshold():
    """What the threshold costs is negative where the judge's word knows more than its score, and so is its interval."""
    pairs = []
    for at in range(40):
        trace, seen = label_trace(f"t{at}", None, at % 2, (0.9,))
        word = "unsupported" if at % 2 and at > 10 else "supported"
        pairs.append((trace, replace(seen, claim=(replace(seen.claim[0], support=word),))))
    lost = measure_recorded(pairs, resamples=500).overall.figure("balanced_accuracy_lost")
    assert lost.value == pytest.approx(-0.375)
    assert -1.0 <= lost.low < lost.value < lost.high < 0.0


def ranked(name: str, seen: Sequence[float], people: Any) -> tuple[Trace, Verdicts]:
    """Build a trace with graded chunks, and the judge's verdicts on them."""
    ids = [f"{name}{at}" for at in range(len(seen))]
    trace = Trace(
        id=name,
        query="When does it open?",
        chunks=tuple(Chunk(id=item, text="Opens 7:30.") for item in ids),
        metadata={"grades": people},
    )
    verdicts = tuple(ChunkVerdict(chunk=i, relevance=r, level="low") for i, r in zip(ids, seen, strict=True))
    return trace, Verdicts(trace=name, chunk=verdicts)


def test_grades_agree_by_how_far_they_are_apart():
    """Grades of people beside the judge's relevance in as many parts: weighted kappas and alpha counted by hand."""
    rows = [ranked("a", (0.9, 0.6, 0.1), [2, 1, 0]), ranked("b", (0.5, 0.2, 0.95), [2, 0, 2])]
    result = values(measure_recorded(rows, task="relevance"))
    # people 2 1 0 2 0 2, the judge 2 1 0 1 0 2: one miss by one place; margins 2, 1, 3 and 2, 2, 2
    chance = (2 * 2 + 1 * 2 + 1 * 2 + 3 * 2 + 2 * (2 * 2 + 3 * 2)) / 6
    square = (2 * 2 + 1 * 2 + 1 * 2 + 3 * 2 + 4 * (2 * 2 + 3 * 2)) / 6
    assert result["kappa_linear"] == pytest.approx(1 - 1 / chance)
    assert result["kappa_quadratic"] == pytest.approx(1 - 1 / square)
    assert 0 < result["alpha_ordinal"] < 1
    words = [ranked("a", (0.9, 0.6, 0.1), ["high", "medium", "none"]), ranked("b", (0.3,), ["low"])]
    assert values(measure_recorded(words, task="relevance"))["kappa_linear"] == pytest.approx(1.0)


def test_metrics_stand_beside_those_of_people():
    """Groundedness by the judge's claims and by people's, on the same answers: means, difference, correlation."""
    rows = []
    for at in range(6):
        trace, seen = label_trace(f"t{at}", None, 0, (0.9, 0.2) if at % 2 else (0.9, 0.9))
        marked = [[26, 50]] if at in (1, 2, 3) else []
        rows.append((replace(trace, metadata={"spans": marked}), seen))
    (result,) = measure_recorded(rows).metrics
    assert (result.metric, result.layer, result.n) == ("groundedness", "generation", 6)
    assert (result.judge.mean, result.human.mean) == (0.75, 0.75)
    assert result.difference.mean == 0.0
    assert result.correlation.value == pytest.approx(1 / 3)  # alike on four of six, three of each kind
    assert "groundedness  generation  6" in render_terminal(build_measurement(measure_recorded(rows)), width=120)


def test_labels_speak_only_of_what_they_say():
    """Chunks that are relevant or not tell no level; grades do; a label of the whole answer tells no metric."""
    names = lambda result: [item.metric for item in result.metrics]  # noqa: E731
    assert names(measure_recorded(SIX)) == []
    two = [ranked("a", (0.9, 0.1), [1, 0]), ranked("b", (0.9, 0.6), [1, 0])]
    result = names(measure_recorded(two, task="relevance"))
    assert result == ["context_relevance(low=0, medium=1)", "context_precision", "context_ranking"]
    four = [ranked("a", (0.9, 0.1), [3, 0]), ranked("b", (0.9, 0.6), [2, 1])]
    assert names(measure_recorded(four, task="relevance")) == [
        "context_relevance",
        "context_precision",
        "context_ranking",
    ]


@pytest.mark.long
def test_the_labels_of_a_run_measure_its_verdicts(tmp_path: Path):
    """What people said of the items of a run stands beside its verdicts: no judge looks again."""
    run = evaluate_pairs(tmp_path, [pair(f"q{at}", "hn", "su") for at in range(4)])
    for at in range(4):
        verdicts_of = HumanVerdicts(
            claim=(
                ClaimLabel(start=0, end=14, support="supported"),
                ClaimLabel(start=15, end=29, support="contradicted" if at else "supported"),
            ),
            chunk=(ChunkLabel(chunk=f"q{at}-0", level="high"), ChunkLabel(chunk=f"q{at}-1", level="low")),
            answer=AnswerLabel(refused=at == 3),
        )
        for label in list_label_line(LabelLine(trace=f"q{at}", verdicts=verdicts_of, by="ann")):
            append_label(tmp_path / "labels.jsonl", label)
    result = measure_judge(tmp_path / "labels.jsonl", run=run, threshold="own")
    assert (result.task, result.judge, result.overall.n) == ("support", "told/1", 8)
    assert values(result)["accuracy"] == pytest.approx(7 / 8)
    labels_of = {item.metric: (item.judge.mean, item.human.mean) for item in result.metrics}
    assert labels_of["groundedness"] == (0.5, pytest.approx(5 / 8))
    assert labels_of["contradiction"] == (0.0, pytest.approx(3 / 8))
    assert labels_of["context_relevance"] == (0.5, pytest.approx(0.65))
    assert labels_of["refusal"] == (0.0, 0.25)
    assert measure_judge(tmp_path / "labels.jsonl", run=run, task="relevance").overall.unit == "chunk"
    assert command(["judge", "measure", str(tmp_path / "labels.jsonl"), "--run", str(run.path)]) == 0
    append_label(tmp_path / "few.jsonl", Label(trace="q1", subject=("missing",), value=()))
    with pytest.raises(InputError, match="holds no label of a claim or a chunk"):
        measure_judge(tmp_path / "few.jsonl", run=run)


def test_two_grades_are_no_scale():
    """Relevant or not, and grades that are no whole numbers, have kappa alone."""
    for grades in ([1, 0], [0.5, 2.5]):
        result = values(measure_recorded([ranked("a", (0.9, 0.1), grades)], task="relevance"))
        assert "kappa" in result
        assert "kappa_linear" not in result


@pytest.mark.parametrize("seed", [-1, 0.5])
def test_a_seed_is_a_natural_number(seed: float):
    """A seed below 0, or one that is not whole, is refused before anything is read."""
    with pytest.raises(UsageError, match="seed"):
        measure_judge("nowhere.jsonl", seed=seed)


def test_groups_are_never_split():
    """An answer copied twenty times into one group widens the interval of the share instead of narrowing it."""
    copied = [
        (replace(trace, id=f"{trace.id}{at}", metadata={**trace.metadata, "source_id": trace.id}), seen)
        for trace, seen in SIX
        for at in range(20)
    ]
    copied = [(trace, replace(seen, trace=trace.id)) for trace, seen in copied]
    overall, apart = (measure_recorded(copied, group="source_id").overall, measure_recorded(copied, group="id").overall)
    assert (overall.groups, apart.groups) == (6, 120)
    wide, narrow = overall.figure("positives"), apart.figure("positives")
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def test_within_groups_style_gains_nothing():
    """A judge that only knows the model has AUROC 0.5 within models, and the number of groups is told."""
    pairs = [
        label_trace(f"{model}{at}", grounded, int(at < bad), model=model)
        for model, grounded, bad in (("x", 0.1, 3), ("y", 0.9, 1))
        for at in range(4)
    ]
    result = measure_recorded(pairs, within="model")
    assert values(result)["auroc_within"] == 0.5
    assert values(result)["auroc"] == pytest.approx(0.75)
    assert result.cells == 2


def answers_of(bad: dict[str, int], scores: dict[str, float], **metadata: Any) -> list[tuple[Trace, Verdicts]]:
    """Build ten answers of each generator, some of them bad, all with the score of their generator."""
    return [
        label_trace(f"{name}{at}{metadata}", 1 - scores[name], int(at < count), generator=name, **metadata)
        for name, count in bad.items()
        for at in range(10)
    ]


def test_generators_are_ordered_as_people_and_as_the_judge_have_them():
    """Of three generators the judge has one pair the other way round: tau is a third, and both places are shown."""
    bad, scores = {"x": 1, "y": 4, "z": 8}, {"x": 0.5, "y": 0.2, "z": 0.9}
    result = measure_recorded(answers_of(bad, scores))
    (order,) = result.generator_rankings
    assert [(rate.name, rate.human, round(rate.judge, 3)) for rate in order.generators] == [
        ("x", 0.1, 0.5),
        ("y", 0.4, 0.2),
        ("z", 0.8, 0.9),
    ]
    assert order.kendall_tau.value == pytest.approx(1 / 3)
    text = render_terminal(build_measurement(result), width=120)
    assert "Order of generator: Kendall's τ +0.333" in text
    assert measure_recorded(SIX).generator_rankings == ()
    assert measure_recorded(answers_of({"x": 1, "y": 4}, scores)).generator_rankings == ()


def test_generators_are_ordered_for_each_value_of_a_column():
    """With --by each value has an order of its own beside that of all answers."""
    bad = {"x": 1, "y": 4, "z": 8}
    right = answers_of(bad, {"x": 0.1, "y": 0.4, "z": 0.8}, task="a")
    wrong = answers_of(bad, {"x": 0.8, "y": 0.4, "z": 0.1}, task="b")
    rankings = measure_recorded([*right, *wrong], by="task").generator_rankings
    assert [(order.value, order.kendall_tau.value) for order in rankings][1:] == [("a", 1.0), ("b", -1.0)]
    alike = measure_recorded(answers_of(bad, dict.fromkeys(bad, 0.5))).generator_rankings[0].kendall_tau
    assert alike.value is None
    assert alike.reason


def test_each_value_of_a_column_has_its_row():
    """--by gives the same figures as measuring the traces of one value alone, at the judge's own word."""
    pairs = [(replace(t, metadata={**t.metadata, "task": "xy"[at % 2]}), seen) for at, (t, seen) in enumerate(SIX)]
    result = measure_recorded(pairs, by="task", threshold="own")
    alone = measure_recorded([pair for pair in pairs if pair[0].metadata["task"] == "x"], threshold="own")
    assert [part.value for part in result.slices] == ["x", "y"]
    assert result.slices[0].figures == alone.overall.figures
    with pytest.raises(UnknownName, match=r'no column "tusk"\. Did you mean "task"'):
        measure_recorded(pairs, by="tusk")


def test_figures_that_need_two_classes_say_which_is_absent():
    """Where no answer is bad there is no AUROC, with the reason, and nothing is made up."""
    result = measure_recorded(SIX[:3])
    assert result.overall.figure("auroc").value is None
    assert result.overall.figure("auroc").reason == "none is positive"
    assert "– none is positive" in render_terminal(build_measurement(result), width=120)
    assert f"0 bad (no value of {result.positive.rsplit(maxsplit=1)[-1]})" in render_terminal(
        build_measurement(result), width=120
    )


def test_an_answer_is_unsure_by_its_own_probability():
    """An answer is unsure between 0.36 and 0.64 of its own probability, and accuracy is split by that."""
    pairs = [
        label_trace("a", 0.37, 0, (0.9, 0.45)),
        label_trace("b", 0.35, 1, (0.45, 0.1)),
        label_trace("c", 0.65, 0, (0.9, 0.95)),
        label_trace("d", 0.63, 0, (0.55, 0.9)),
    ]
    result = values(measure_recorded(pairs))
    assert result["unsure"] == 0.5
    assert result["accuracy_sure"] == 1.0
    assert result["accuracy_unsure"] == 0.5


def test_without_a_probability_of_the_answer_its_worst_claim_counts():
    """The score is one less the least probability of a claim; an answer that claims nothing is good."""
    pairs = [label_trace("a", None, 1, (0.9, 0.2)), label_trace("b", None, 0, (0.7,)), label_trace("c", None, 0)]
    result = measure_recorded(pairs, threshold=0.75)
    assert values(result)["precision"] == 1.0
    assert values(result)["auroc"] == 1.0


# --- the levels below the answer -------------------------------------------------------------------


def test_marked_spans_tell_of_claims_and_sentences():
    """A claim is bad where it touches a marked span; a sentence likewise, with the worst of its claims."""
    pairs = [
        label_trace("a", 0.1, 1, (0.9, 0.1), spans=[{"start": 29, "end": 35}]),
        label_trace("b", 0.9, 0, (0.9, 0.8), spans=[]),
    ]
    result = measure_recorded(pairs, threshold="own")
    assert [(view.unit, view.n, view.positives) for view in result.views] == [
        ("answer", 2, 1),
        ("claim", 4, 1),
        ("sentence", 4, 1),
    ]
    assert all(view.figure("f1").value == 1.0 for view in result.views)
    spanned = {figure.name: figure.value for figure in result.span_agreement.figures}
    assert spanned == {"found": 1.0, "precision": 6 / 24, "recall": 1.0, "f1": pytest.approx(12 / 30)}


def test_a_bad_answer_without_a_mark_tells_nothing_of_its_claims():
    """Where people called an answer bad and marked nothing in it, its claims and sentences are left out."""
    pairs = [
        label_trace("a", 0.1, 1, (0.9, 0.2), spans=[]),
        label_trace("b", 0.9, 0, (0.9, 0.9), spans=[]),
        label_trace("c", 0.1, 1, (0.9, 0.2), spans=[[26, 50]]),
    ]
    result = measure_recorded(pairs)
    assert [(view.unit, view.n, view.positives) for view in result.views] == [
        ("answer", 3, 2),
        ("claim", 4, 1),
        ("sentence", 4, 1),
    ]
    assert "1 bad answers without a marked stretch count only as answers" in result.notes


def test_support_is_measured_on_claims():
    """Claims come from spans, from labels of their own, or are the whole answer; those not in it are judged apart."""
    spanned = measure_recorded([label_trace("a", 0.1, 1, (0.9, 0.1), spans=[[29, 35]])], task="support")
    assert (spanned.overall.unit, spanned.overall.n, spanned.overall.positives) == ("claim", 2, 1)
    overall = measure_recorded([label_trace("a", 0.1, 1, (0.9, 0.1)), label_trace("b", 0.9, 0, (0.9,))], task="support")
    assert (overall.overall.n, values(overall)["auroc"]) == (2, 1.0)
    listed = [
        {"claim": "The office opens at 7:30.", "label": "supported"},
        {"start": 26, "end": 50, "label": "refuted"},
        {"claim": "It is never open.", "label": 1},
        {"claim": "It is old.", "label": None},
    ]
    trace, seen = label_trace("a", 0.1, None, (0.9, 0.1))
    trace = replace(trace, metadata={"claims": listed})
    apart = Verdicts(trace="a#claim-2", claim=(), answer=AnswerVerdict(relevance=1.0, grounded=0.2))
    result = measure_judge([trace], judge=FixedJudge([seen, apart]), resamples=20)
    assert (result.task, result.overall.n, values(result)["auroc"]) == ("support", 3, 1.0)
    assert result.notes == ("1 claims have no label and do not count",)


def test_relevance_is_measured_on_chunks():
    """A grade belongs to the only chunk, a list runs parallel, an object names ids, and gold is read last."""

    def seen(name: str, *relevance: float) -> Verdicts:
        chunk = tuple(
            ChunkVerdict(chunk=f"{name}{at}", relevance=value, level="low") for at, value in enumerate(relevance)
        )
        return Verdicts(trace=name, chunk=chunk)

    def trace(name: str, size: int, **fields: Any) -> Trace:
        chunks = tuple(Chunk(id=f"{name}{at}", text="x") for at in range(size))
        return Trace(id=name, query="q", chunks=chunks, **fields)

    pairs = [
        (trace("a", 1, metadata={"grade": 3}), seen("a", 0.9)),
        (trace("b", 2, metadata={"grade": [2, 0]}), seen("b", 0.8, 0.1)),
        (trace("c", 2, metadata={"grade": {"c1": 1}}), seen("c", 0.3, 0.2)),
    ]
    result = measure_recorded(pairs, positive=2, threshold="own")
    assert (result.task, result.positive, result.overall.n, result.overall.positives) == (
        "relevance",
        "grade ≥ 2",
        4,
        2,
    )
    assert values(result)["f1"] == 1.0
    assert values(measure_recorded(pairs))["positives"] == 0.75
    gold = [(trace("d", 2, gold=Gold(chunks={"d0": 1, "d1": 0, "z": 1})), seen("d", 0.9, 0.3))]
    assert measure_recorded(gold).overall.n == 2
    assert values(measure_recorded(gold))["unsure"] is None


# --- labels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "label", "bad"),
    [
        ("label", 1, True),
        ("label", "0", False),
        ("label", True, True),
        ("label", "Not_Attributable", True),
        ("label", "entailment", False),
        ("is_grounded", 1, False),
        ("supported", "no", True),
        ("attribution", 1, False),
    ],
)
def test_labels_are_read_as_people_write_them(column: str, label: Any, bad: bool):
    """Numbers, truths and the usual words; in a column such as `supported` one is good."""
    assert LabelRule("answer", column).is_positive(label) is bad


@pytest.mark.parametrize("number", ["nan", float("nan"), "inf", "1e999", 10**400])
def test_a_number_that_is_not_finite_is_no_label(number: Any):
    """What is no number of this world is refused as an unknown label or grade, and no threshold either."""
    for task in ("answer", "support", "relevance"):
        with pytest.raises(InvalidRecord, match="is not known to be"):
            LabelRule(task, "label").is_positive(number)
    with pytest.raises(InvalidRecord, match="is not a number"):
        LabelRule("relevance", "grade", ("2",)).is_positive(number)
    assert LabelRule("relevance", "grade", (str(number),)).threshold is None


def test_labels_that_are_not_known_are_refused_together(tmp_path: Path):
    """Bad lines and labels are reported together, equal ones once with their lines; skipped, they are counted."""
    path = lines(
        tmp_path / "t.jsonl",
        [
            row("a", "It opens at 7:30.", label="fine"),
            row("b", "It opens at 9:00.", label=1),
            {"id": "c"},
            row("d", "It opens at 7:30.", label=0),
            row("e", "It opens at 7:30.", label=3),
            row("f", "It opens at 7:30.", label=None),
        ],
    )
    with pytest.raises(BadTraces) as caught:
        measure_judge(path)
    assert caught.value.count == 3
    for part in (
        "3 of 6 traces cannot be read",
        "t.jsonl:3: field `query` is missing",
        't.jsonl:1: the label "fine" is not known to be bad or not - at `label`. Name the bad ones with positive',
        "(2 lines like this: 1, 5)",
    ):
        assert part in str(caught.value)
    result = measure_judge(path, on_bad="skip", resamples=20)
    assert (result.skipped, result.unlabelled, result.traces) == (3, 1, 2)
    assert "1 without a label, 3 lines or labels that cannot be read" in render_terminal(
        build_measurement(result), width=120
    )


def test_a_sample_is_no_larger_than_it_must_be():
    """Whole groups are drawn until there are as many traces as were asked for, and then no more."""
    assert measure_recorded(SIX, limit=3).traces == 3
    pairs = [(replace(t, metadata={**t.metadata, "pair": at // 2}), seen) for at, (t, seen) in enumerate(SIX)]
    assert measure_recorded(pairs, limit=3, group="pair").traces == 4


def test_grades_of_no_chunk_are_refused():
    """Grades by ids of which no chunk has any are a fault; further ids beside known ones are passed over."""
    chunks = (Chunk(id="a", text="x"),)
    assert parse_grades({"a": 1, "z": 2}, chunks, "grades") == {"a": 1}
    assert LabelRule("relevance", "grades").grade(1) == (True, 1, 1)
    with pytest.raises(InvalidRecord, match='no chunk has the id "z"'):
        parse_grades({"z": 2}, chunks, "grades")


def test_the_positive_labels_can_be_named(tmp_path: Path):
    """--positive names the bad labels, however they are written; one that is nowhere is refused."""
    pairs = [label_trace("a", 0.1, "Generic"), label_trace("b", 0.9, "fine"), label_trace("c", 0.4, "not-quite")]
    result = measure_recorded(pairs, positive=["generic", "Not quite"])
    assert (result.overall.positives, result.positive) == (2, "label = generic or not quite")
    with pytest.raises(UnknownName, match=r'no label "genric"\. Did you mean "generic"'):
        measure_recorded(pairs, positive="genric")


def test_spans_are_pairs_objects_or_texts_within_the_answer():
    """A span that is not in the answer is a fault with its place."""
    assert parse_spans('[[0, 3], {"text": "7:30"}]', ANSWER, "spans") == ((0, 3), (20, 24))
    for bad, problem in (
        ([[0, 99]], r"the span 0–99 is not within the answer \(50 characters\) - at `spans\[0\]`"),
        (["nowhere"], "neither start and end nor a text"),
        ([[0.5, 2]], "not whole numbers"),
        ({"start": 0}, "Expected `array`"),
    ):
        with pytest.raises(InvalidRecord, match=problem):
            parse_spans(bad, ANSWER, "spans")


def test_an_unknown_column_is_reported_with_the_existing_ones(tmp_path: Path):
    """Neither a mapped column that is absent nor a file without labels is passed over in silence."""
    path = lines(tmp_path / "t.jsonl", [row("a", "It opens at 7:30.", mark=1)])
    with pytest.raises(InputError, match=r'no column `mork` to read `label` from. Did you mean "mark"'):
        measure_judge(path, map={"label": "mork"})
    with pytest.raises(InputError, match=r"no column is known to hold human labels. There are: mark"):
        measure_judge(path)
    assert measure_judge(path, map={"label": "mark"}, resamples=20).overall.positives == 1


# --- laws ------------------------------------------------------------------------------------------


def sample(path: Path) -> list[dict[str, Any]]:
    """Return labeled answers about the handbook's office hours."""
    hours = ("7:30", "8:15", "9:00", "10:45")
    return [
        row(
            f"r{at}",
            f"It opens at {hours[at % 4]}." + (" On Sundays it is closed." if at % 3 else ""),
            label=int(at % 4 > 0),
            source_id=f"s{at % 9}",
        )
        for at in range(60)
    ]


def same(first: JudgeMeasurement, second: JudgeMeasurement) -> bool:
    """Compare two measurements in all but source and speed."""
    plain = [msgspec.to_builtins(replace(result, source=(), speed=first.speed)) for result in (first, second)]
    return plain[0] == plain[1]


@pytest.mark.long
def test_figures_depend_neither_on_the_order_of_lines_nor_on_workers(tmp_path: Path):
    """Backwards and on two processes every figure and interval is the same, also of a sample."""
    rows = sample(tmp_path)
    forth = lines(tmp_path / "forth.jsonl", rows)
    back = lines(tmp_path / "back.jsonl", rows[::-1])
    options: dict[str, Any] = {"judge": "lexical", "resamples": 100, "within": "source_id", "limit": 40}
    result = measure_judge(forth, **options)
    assert same(result, measure_judge(back, **options))
    assert same(result, measure_judge(forth, workers=2, **options))
    assert 40 <= result.traces < 60
    assert not same(result, measure_judge(forth, **{**options, "seed": 1}))


@pytest.mark.long
def test_every_format_gives_the_same_figures(tmp_path: Path):
    """JSONL, gzip, JSON, CSV and Parquet of the same labels are measured the same."""
    rows = [{**item, "spans": [[0, 5]] if item["label"] else []} for item in sample(tmp_path)]
    result = measure_judge(lines(tmp_path / "t.jsonl", rows), judge="lexical", resamples=20)
    (tmp_path / "t.json").write_text(json.dumps(rows))
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress((tmp_path / "t.jsonl").read_bytes()))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    with (tmp_path / "t.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(
            {**item, "contexts": json.dumps(item["contexts"]), "spans": json.dumps(item["spans"])} for item in rows
        )
    for name in ("t.json", "t.jsonl.gz", "t.parquet", "t.csv"):
        assert same(result, measure_judge(tmp_path / name, judge="lexical", resamples=20)), name


def test_the_failures_of_a_judge_are_counted_and_reported():
    """A trace on which the judge fails is left out with its reason; silence is counted apart."""
    failed = (SIX[0][0], Verdicts(trace="a", failures={"*": "out of tea"}))
    silent = (SIX[1][0], Verdicts(trace="b"))
    result = measure_recorded([failed, silent, *SIX[2:]])
    assert (result.traces, result.failed, result.unjudged) == (4, 1, 1)
    assert result.failures == {"out of tea": 1}
    assert "failed on 1: out of tea" in render_terminal(build_measurement(result))
    with pytest.raises(JudgeError, match='"told/1" cannot be measured here: out of tea'):
        measure_recorded([failed])


def test_a_measurement_is_json():
    """What is written as JSON is read back as the same measurement."""
    result = measure_recorded(SIX)
    assert msgspec.json.decode(encode_document(result), type=JudgeMeasurement) == result


def test_the_terminal_is_not_steered_by_labels():
    """Escape sequences in values of a file do not reach the terminal."""
    pairs = [label_trace("a", 0.1, 1, kind="\x1b[31mred"), label_trace("b", 0.9, 0, kind="plain")]
    assert "\x1b" not in render_terminal(build_measurement(measure_recorded(pairs, by="kind")))


# --- the command line ------------------------------------------------------------------------------


@pytest.mark.long
def test_the_verb_prints_a_table_and_writes_json_and_charts(tmp_path: Path, capsys: Any):
    """The verb ends with 0, says what it guessed, and leaves JSON and a page; nothing is overwritten unasked."""
    rows = [{**item, "kind": "<script>"} for item in sample(tmp_path)]
    path = lines(tmp_path / "t.jsonl", rows)
    out, page = tmp_path / "m.json", tmp_path / "m.html"
    command = ["judge", "measure", str(path), "--judge", "lexical", "-o", str(out), "--html", str(page), "--by", "kind"]
    assert run_command(command) == 0
    output = capsys.readouterr()
    assert "task answer: the labels are of answers; label = 1 is bad; groups by source_id" in output.err
    assert "AUROC" in output.out
    assert msgspec.json.decode(out.read_bytes(), type=JudgeMeasurement).overall.n == 60
    text = page.read_text(encoding="utf-8")
    assert "&lt;script&gt;" in text
    assert text.count("<script>") == 1
    assert text.count("<svg") == 3
    assert run_command(command) == 2
    assert "exists already" in capsys.readouterr().err


def test_bad_lines_are_left_out_on_request(tmp_path: Path, capsys: Any):
    """--skip-bad keeps bad lines and labels beside the output; without it they end the command with 2."""
    path = lines(tmp_path / "t.jsonl", [*sample(tmp_path), {"id": "no"}, row("x", "It is.", label="hm")])
    assert run_command(["judge", "measure", str(path)]) == 2
    assert "2 of 62 traces cannot be read" in capsys.readouterr().err
    out = tmp_path / "m.json"
    assert run_command(["judge", "measure", str(path), "--skip-bad", "-q", "-o", str(out)]) == 0
    assert len((tmp_path / "m.json.bad.jsonl").read_text().splitlines()) == 2
    assert run_command(["judge", "measure", str(path), "--skip-bad", "--judge", "lexicon"]) == 2
    assert 'no judge "lexicon". Did you mean "lexical"?' in capsys.readouterr().err


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the labelled data sets are not at {DATA}")
@pytest.mark.parametrize(
    ("name", "options", "area"),
    [
        ("wice_dev", {}, 0.815),
        ("begin_dev", {"by": "subset"}, 0.709),
        ("trec_dl19", {"positive": "2", "group": "query"}, 0.596),
    ],
)
def test_the_labelled_sets_give_the_figures_of_the_docs(name: str, options: dict[str, Any], area: float):
    """Without any map the sets are read, and the lexical judge has the AUROC that its page states."""
    result = measure_judge(DATA / f"{name}.jsonl.gz", judge=LEXICAL, resamples=20, **options)
    assert result.unlabelled == result.failed == result.unjudged == 0
    assert values(result)["auroc"] == pytest.approx(area, abs=0.02)


# --- biases, and figures that nobody asked for ------------------------------------------------------


def test_f1_is_predicted_for_other_shares_of_bad_answers():
    """At the judge's own decision, from sensitivity and specificity; at the share that was measured it is F1 itself."""
    result = values(measure_recorded([*SIX, *(label_trace(f"g{at}", 0.9, 0) for at in range(9))], threshold="own"))
    sensitivity, specificity = result["sensitivity"], result["specificity"]
    for percent in (5, 10, 20, 40):
        share = percent / 100
        detected, false = share * sensitivity, (1 - share) * (1 - specificity)
        assert result[f"f1_at_{percent}"] == pytest.approx(
            2 * detected / (2 * detected + share * (1 - sensitivity) + false)
        )
    assert result["f1_at_20"] == pytest.approx(result["f1"])  # 3 of 15 are bad


def test_the_bias_is_the_mean_score_less_the_share_of_bad_answers():
    assert values(measure_recorded(SIX))["bias"] == pytest.approx((0.4 + 0.8 + 0.9 + 0.1 + 0.2 + 0.7) / 6 - 0.5)


@pytest.mark.parametrize(("slope", "expected"), [(1, 1.0), (-1, -1.0), (0, None)])
def test_verbosity_compares_answers_with_the_same_label(slope: int, expected: float | None):
    """1 for a judge that rates the longer of two equally labelled answers better, whatever it makes of the labels."""
    pairs = [
        label_trace(f"{label}{size}", 0.5 + slope * size / 100 - 0.3 * label, label)
        for label in (0, 1)
        for size in range(1, 9)
    ]
    pairs = [(replace(trace, answer="x" * int(trace.id[1:])), seen) for trace, seen in pairs]
    assert values(measure_recorded(pairs))["verbosity"] == (None if expected is None else pytest.approx(expected))


class FirstChunkJudge:
    """Judge that reads only the first chunk."""

    fingerprint = "first/1"
    offers = FixedJudge.offers

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        return [
            Verdicts(
                trace=trace.id,
                answer=AnswerVerdict(relevance=1.0, grounded=0.9 if trace.answer == trace.chunks[0].text else 0.2),
            )
            for trace in traces
        ]


def test_a_judge_that_minds_the_order_of_chunks_is_reported():
    """Half of the traces have two chunks, and all of those flip; `lexical` reads all chunks, and none of its do."""
    texts = ["The office opens at 7:30.", "Dogs may enter on a lead."]
    traces = [
        Trace(
            id=str(at),
            query=f"When does office {at} open?",
            chunks=tuple(Chunk(id=text, text=text) for text in texts[: 1 + at % 2]),
            answer=texts[0],
            metadata={"label": at % 3 % 2},
        )
        for at in range(20)
    ]
    result = measure_judge(traces, judge=FirstChunkJudge(), resamples=20)
    flips = result.overall.figure("order_flips")
    assert (result.permutations, flips.n, flips.value) == (10, 10, 1.0)
    assert result.overall.figure("order_shift").value == pytest.approx(0.7)
    assert measure_judge(traces, judge=LEXICAL, resamples=20).overall.figure("order_flips").value == 0.0
    assert measure_judge(traces, judge=FirstChunkJudge(), resamples=20, permutations=3).permutations == 3
    unasked = measure_judge(traces, judge=FirstChunkJudge(), resamples=20, permutations=0)
    assert (unasked.permutations, unasked.overall.figure("order_flips")) == (0, None)


def test_relevance_is_measured_with_its_chunks_in_another_order():
    """Each chunk keeps its label wherever it is shown."""
    texts = ("The office opens at 7:30.", "Dogs may enter on a lead.", "The café is closed.")
    traces = [
        Trace(
            id=str(at),
            query="When does the office open?",
            chunks=tuple(Chunk(id=text, text=text) for text in texts),
            metadata={"grades": [1, 0, 0], "group": at},
        )
        for at in range(4)
    ]
    result = measure_judge(traces, judge=LEXICAL, resamples=20)
    assert result.overall.figure("order_flips").n == 12
    assert result.overall.figure("order_flips").value == 0.0


def test_kinds_languages_and_pairs_get_figures_unasked():
    """A column `pair` gives AUROC within pairs, `kind` and `language` rows; a column with one value gives none."""
    columns = [{"kind": "xy"[at % 2], "language": "en", "pair": at // 2} for at in range(6)]
    pairs = [
        (replace(trace, metadata={**trace.metadata, **more}), seen)
        for (trace, seen), more in zip([SIX[at] for at in (0, 3, 1, 4, 2, 5)], columns, strict=True)
    ]
    result = measure_recorded(pairs)
    assert (result.by, result.within) == (("kind",), ("pair",))
    assert [(row.column, row.value, row.n) for row in result.slices] == [("kind", "x", 3), ("kind", "y", 3)]
    assert result.overall.figure("auroc_within").value == 1.0
    shown = render_terminal(build_measurement(measure_recorded(pairs, by="kind,pair")), width=80)
    assert "By kind" in shown
    assert "By pair" in shown
