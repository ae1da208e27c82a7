"""Calibration of a judge to labels."""

import json
import random
from pathlib import Path

import msgspec
import numpy as np
import pytest

from ragfault import Chunk, Trace, evaluate
from ragfault.cli.commands import run_command
from ragfault.io.runs.run import Run
from ragfault.judges.calibration import wrap_judge
from ragfault.labels.judges.calibration import calibrate_judge, fit_log_odds_line, match_share
from ragfault.labels.judges.measuring import measure_judge
from ragfault.labels.judges.runner import RecordedJudge
from ragfault.model.errors import UsageError
from ragfault.model.records import AnswerVerdict, ClaimVerdict, Verdicts
from ragfault.report.builders.agreement import build_calibration
from ragfault.report.renderers.terminal import render_terminal
from remembered import LEXICAL

ANSWER = "The hall is red. The roof is flat. The door is open."
BOUNDS = ((0, 16), (17, 34), (35, 52))


def make_labelled(traces, *, shift=1.5, seed=0, mean=-1.5):
    """Make labelled traces, and a judge whose log-odds of bad are too high by `shift`."""
    rng = random.Random(seed)
    labelled, verdicts = [], []
    for number in range(traces):
        claims, spans = [], []
        for start, end in BOUNDS:
            odds = rng.gauss(mean, 1.5)
            if rng.random() < 1 / (1 + np.exp(-odds)):
                spans.append({"start": start, "end": end})
            p = float(1 / (1 + np.exp(odds + shift)))
            support = "supported" if p >= 0.5 else "unsupported"
            claims.append(ClaimVerdict(claim=ANSWER[start:end], start=start, end=end, support=support, p=p))
        grounded = min(claim.p for claim in claims)
        answer = AnswerVerdict(relevance=1.0, grounded=grounded)
        verdicts.append(Verdicts(trace=str(number), claim=tuple(claims), answer=answer))
        metadata = {"label": int(bool(spans)), "spans": spans, "source_id": f"s{number // 2}"}
        labelled.append(
            Trace(
                id=str(number), query="?", chunks=(Chunk(id="a", text="The hall."),), answer=ANSWER, metadata=metadata
            )
        )
    return labelled, RecordedJudge("recorded/1", verdicts)


def test_the_mean_after_calibration_is_that_of_people():
    """On the labels used as many claims are called bad as people mark, and the mean probabilities agree."""
    labelled, judge = make_labelled(400)
    calibration = calibrate_judge(labelled, judge=judge)
    calibrated = wrap_judge(judge, calibration).observe(labelled)
    claims = [claim for verdicts in calibrated for claim in verdicts.claim]
    marked = sum(len(trace.metadata["spans"]) for trace in labelled)
    assert sum(claim.support == "unsupported" for claim in claims) == marked
    assert np.mean([1 - claim.p for claim in claims]) == pytest.approx(marked / len(claims), abs=0.01)
    grounded = np.mean([verdicts.answer.grounded for verdicts in calibrated])
    assert grounded == pytest.approx(np.mean([not trace.metadata["label"] for trace in labelled]), abs=0.02)


def test_a_biased_judge_is_corrected_on_labels_it_was_not_fitted_on():
    """A judge that is too strict is shown to be, and on held-out folds calibration error and bias fall."""
    labelled, judge = make_labelled(300)
    calibration = calibrate_judge(labelled, judge=judge)
    assert [(line.unit, line.n, line.helps) for line in calibration.lines] == [
        ("claim", 900, True),
        ("answer", 300, True),
    ]
    for line in calibration.lines:
        assert line.before.bias_high < 0
        assert abs(line.after.bias) < abs(line.before.bias) / 2
        assert line.after.calibration_error < line.before.calibration_error
    assert calibration.lines[0].intercept < -1


def test_a_calibrated_judge_is_left_as_it_is():
    """Where probabilities and decisions are right, labels seldom claim that a line helps: at most one of ten times."""
    lines = []
    for seed in range(10):
        labelled, judge = make_labelled(60, shift=0, mean=0, seed=seed)
        lines.append(calibrate_judge(labelled, judge=judge).lines[0])
    assert sum(line.helps for line in lines) <= 1
    assert all("do not show" in line.reason for line in lines if not line.helps)


def test_few_labels_change_little():
    """With twelve labelled claims the line stays near intercept 0, with twelve hundred it goes where they point."""
    few, many = (
        calibrate_judge(labelled, judge=judge).lines[0].intercept
        for labelled, judge in (make_labelled(4), make_labelled(400))
    )
    assert -0.75 < few < 0
    assert -1.7 < many < -1.3


def test_labels_that_are_all_alike_say_nothing():
    """Where people mark nothing, or everything, the line changes nothing and says why."""
    labelled, judge = make_labelled(20)
    clean = [msgspec.structs.replace(trace, metadata={**trace.metadata, "label": 0, "spans": []}) for trace in labelled]
    for line in calibrate_judge(clean, judge=judge).lines:
        assert (line.slope, line.intercept, line.threshold, line.helps) == (1.0, 0.0, None, False)
        assert line.reason == "the labels call none of them bad"


def test_a_label_of_an_answer_of_several_claims_calibrates_no_claim():
    """A label of an answer gives a line for claims only where the answer is a single claim."""
    labelled, judge = make_labelled(60)
    bare = [
        msgspec.structs.replace(trace, metadata={key: trace.metadata[key] for key in ("label", "source_id")})
        for trace in labelled
    ]
    calibration = calibrate_judge(bare, judge=judge)
    assert [line.unit for line in calibration.lines] == ["answer"]
    assert "Claims stay as they are: no label says which claim is bad" in render_terminal(
        build_calibration(calibration)
    )
    single = [msgspec.structs.replace(verdicts, claim=verdicts.claim[:1]) for verdicts in judge.observe(bare)]
    lines = calibrate_judge(bare, judge=RecordedJudge("single/1", single)).lines
    assert [(line.unit, line.n) for line in lines] == [("claim", 60), ("answer", 60)]


def test_labels_that_run_against_the_judge_are_not_applied():
    """Where bad and good are swapped, a line at the lowest slope is nearer to them, and is refused with its AUROC."""
    labelled, judge = make_labelled(200)
    swapped = [
        msgspec.structs.replace(trace, metadata={**trace.metadata, "label": 1 - trace.metadata["label"], "spans": None})
        for trace in labelled
    ]
    [line] = calibrate_judge(swapped, judge=judge).lines
    assert not line.helps
    assert line.reason.startswith("the judge does not rank as these labels do (AUROC 0.")
    assert line.after.calibration_error < line.before.calibration_error


def test_the_calibration_does_not_depend_on_the_order_of_the_traces():
    """Shuffled labels give the same lines."""
    labelled, judge = make_labelled(60)
    shuffled = random.Random(3).sample(labelled, len(labelled))
    assert calibrate_judge(labelled, judge=judge).lines == calibrate_judge(shuffled, judge=judge).lines


def test_the_line_is_that_of_a_logistic_regression():
    """The fit is where the penalized likelihood has no slope, and with many labels finds the line they were made by."""
    rng = np.random.default_rng(0)
    odds = rng.normal(0, 2, 20_000)
    labels = rng.random(odds.size) < 1 / (1 + np.exp(-(0.7 * odds - 1.2)))
    slope, intercept = fit_log_odds_line(odds.tolist(), labels)
    assert (slope, intercept) == pytest.approx((0.7, -1.2), abs=0.07)
    residual = 1 / (1 + np.exp(-(slope * odds + intercept))) - labels
    assert float(odds @ residual) + 10 * (slope - 1) == pytest.approx(0, abs=1e-4)
    assert float(residual.sum()) + 4 * intercept == pytest.approx(0, abs=1e-4)


def test_labels_against_the_judge_never_turn_it_round():
    """Where people say the opposite throughout, the slope stays above 0."""
    slope, _ = fit_log_odds_line([-3.0, -2.0, 2.0, 3.0] * 200, [True, True, False, False] * 200)
    assert slope == pytest.approx(0.1)


def test_the_threshold_meets_the_share_as_nearly_as_ties_allow():
    """No other threshold calls a share nearer to that of the labels."""
    rng = np.random.default_rng(2)
    for _ in range(50):
        p = rng.integers(1, 9, 30) / 10
        labels = rng.random(30) < 0.3
        distance = abs(int((p >= match_share(p, labels)).sum()) - int(labels.sum()))
        assert distance == min(abs(int((p >= cut).sum()) - int(labels.sum())) for cut in (*np.unique(p), 1.0))


def test_a_judge_without_probabilities_and_labels_of_chunks_are_refused():
    """Neither verdicts without probabilities nor grades of chunks can be calibrated."""
    labelled, judge = make_labelled(4)
    bare = [
        msgspec.structs.replace(v, claim=tuple(msgspec.structs.replace(c, p=None) for c in v.claim))
        for v in judge.observe(labelled)
    ]
    with pytest.raises(UsageError, match="gives no probabilities"):
        calibrate_judge(labelled, judge=RecordedJudge("bare/1", bare))
    graded = [
        Trace(id=str(n), query="?", chunks=(Chunk(id="a", text="The hall is red."),), metadata={"grade": n})
        for n in range(2)
    ]
    with pytest.raises(UsageError, match="labels of chunks"):
        calibrate_judge(graded, judge=LEXICAL)


@pytest.mark.long
def test_a_run_of_a_stronger_judge_serves_as_labels(tmp_path: Path):
    """The verdicts on claims of another run of the same traces are the labels."""
    labelled, judge = make_labelled(60)
    truth = [
        msgspec.structs.replace(
            v,
            claim=tuple(
                msgspec.structs.replace(
                    c, support="unsupported" if {"start": c.start, "end": c.end} in t.metadata["spans"] else "supported"
                )
                for c in v.claim
            ),
        )
        for t, v in zip(labelled, judge.observe(labelled), strict=True)
    ]
    strong = evaluate(labelled, tmp_path / "strong", judge=RecordedJudge("strong/1", truth), metrics=["groundedness"])
    [line] = calibrate_judge(str(strong.path), judge=judge).lines
    assert (line.unit, line.n) == ("claim", 180)
    assert line.base_rate == pytest.approx(sum(len(t.metadata["spans"]) for t in labelled) / 180)
    assert line.intercept < 0


# --- the command -----------------------------------------------------------------------------------


def write_labelled(path: Path, *, good: int, bad: int) -> Path:
    """Write labelled answers that the lexical judge doubts: paraphrases that people call good, and bad ones."""
    chunk = "The pool opens at nine. Towels are lent at the door. Children swim free of charge."
    texts = {0: "Kids need not pay for swimming.", 1: "A sauna costs twelve euros."}
    rows = [
        {
            "id": f"{label}-{n}",
            "query": f"What is there for visitor {label}-{n}?",
            "contexts": [chunk],
            "answer": texts[label],
            "label": label,
            "spans": [{"start": 0, "end": len(texts[label])}] if label else [],
            "source_id": f"{label}-{n}",
        }
        for label, count in ((0, good), (1, bad))
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.long
def test_the_command_writes_a_file_that_evaluate_gate_and_measure_take(tmp_path: Path, capsys):
    """A calibration that helps is written, and evaluate, gate and measure judge by it; the run names it."""
    labels, out = write_labelled(tmp_path / "labels.jsonl", good=60, bad=12), tmp_path / "calibration.json"
    assert run_command(["judge", "calibrate", str(labels), "--judge", "lexical", "-o", str(out)]) == 0
    assert "Calibration to these labels helps" in capsys.readouterr().out
    given = ["--calibration", str(out)]
    for name, more in (("plain", []), ("calibrated", given)):
        assert (
            run_command(["evaluate", str(labels), "-o", str(tmp_path / name), "--judge", "lexical", "-q", *more]) == 0
        )
    plain, calibrated = Run.open(tmp_path / "plain"), Run.open(tmp_path / "calibrated")
    assert calibrated.manifest.judge.startswith(f"{plain.manifest.judge} calibration=")
    threshold = ["--threshold", "groundedness>=0.5"]
    capsys.readouterr()
    assert run_command(["gate", str(plain.path), *threshold]) == 1
    decided = [run_command(["gate", str(run.path), *threshold, *given]) for run in (plain, calibrated)]
    assert decided == [0, 0]
    measured = measure_judge(str(labels), judge=LEXICAL, calibration=out)
    assert measured.judge == calibrated.manifest.judge


def test_labels_that_are_too_few_write_nothing(tmp_path: Path, capsys):
    """Where the labels do not show that a calibration helps, the command says so, writes nothing and ends with 3."""
    labels, out = write_labelled(tmp_path / "labels.jsonl", good=2, bad=1), tmp_path / "calibration.json"
    assert run_command(["judge", "calibrate", str(labels), "--judge", "lexical", "-o", str(out)]) == 3
    assert "is not shown to help" in capsys.readouterr().out
    assert not out.exists()
