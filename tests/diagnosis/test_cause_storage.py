"""Laws of stored causes: a run holds them from its evaluation on, and every analysis reads them there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from ragfault import Chunk, Gold, Run, Trace, analyze, diagnose, evaluate, rescore
from ragfault.comparison.answer_changes import count_answer_changes
from ragfault.comparison.paired_runs import pair_runs
from ragfault.diagnosis.causes.records import AnswerCause
from ragfault.diagnosis.causes.selection import select_causes
from ragfault.diagnosis.causes.storage import rate_trace, read_causes
from ragfault.diagnosis.run_table import RunTable
from ragfault.io.formats.arrow import make_schema, records_to_table
from ragfault.io.runs.samples import sample_run
from ragfault.io.runs.writer import ROW_GROUP_SIZES, write_manifest, write_row_groups
from ragfault.labels.correction import HumanLabels
from ragfault.labels.label import Label, fingerprint_answer
from ragfault.labels.reading.label_files import append_label
from ragfault.labels.reading.reference_scores import load_reference_scores
from ragfault.labels.records import LabelProvenance
from ragfault.model.causes import CauseLabel
from remembered import LEXICAL

DUES = Chunk(id="dues", text="Harbour dues are paid at the office by the slip.")
TIDE = Chunk(id="tide", text="Each tide gate opens at 05:40 and stays open for two hours.")


def build_trace(number: int) -> Trace:
    """Build a trace: blank answers, missed passages and right answers in turn."""
    gold, query = Gold(chunks={"tide": 1}), f"When does tide gate {number} open?"
    answer = ("", "It opens at noon.", "It opens at 05:40.")[number % 3]
    return Trace(
        id=f"{number}",
        query=query,
        chunks=((TIDE, DUES) if number % 3 == 2 else (DUES,)),
        answer=answer,
        gold=gold,
        reference="05:40",
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return evaluate(map(build_trace, range(30)), tmp_path_factory.mktemp("stored") / "run", judge=LEXICAL)


def store_causes(run: Run, out: Path, causes: list[AnswerCause]) -> Run:
    """Copy a run with other causes in it."""
    shutil.copytree(run.path, out)
    table = records_to_table(causes, make_schema(AnswerCause))
    written = write_row_groups([table], out / "causes.parquet", ROW_GROUP_SIZES["causes"])
    checksums = {**run.manifest.checksums, "causes.parquet": written.checksum}
    write_manifest(out, replace(run.manifest, checksums=checksums))
    return Run(out)


def test_a_run_stores_the_causes_that_its_verdicts_show(run: Run):
    """Each answer is rated once, from its trace and verdicts with the key applied, in the order of the run."""
    stored = list(run.read_records("causes", AnswerCause))
    assert stored == [rate_trace(trace, verdicts, {}) for trace, verdicts in run.evidence()]
    assert {cause.cause for cause in stored} == {"blank", "not_retrieved", None}


def test_every_analysis_reads_the_stored_causes(run: Run, tmp_path: Path):
    """Where a run stores another cause than its verdicts show, all of them name the stored one."""
    changed = [
        replace(cause, cause="stale_source", stage="source") if cause.cause == "blank" else cause
        for cause in run.read_records("causes", AnswerCause)
    ]
    ids = [cause.trace for cause in changed if cause.cause == "stale_source"]
    other = store_causes(run, tmp_path / "other", changed)
    assert {cause.trace for cause in select_causes(other, ["stale-source"])} == set(ids)
    assert {item.cause.cause for item in diagnose(other, ids=ids) if item.cause} == {"stale_source"}
    assert {item.trace for item in diagnose(other) if item.cause and item.cause.cause == "stale_source"} == set(ids)
    answers = analyze(other).answers
    assert answers is not None
    assert {count.cause for count in answers.causes} == {"stale_source", "not_retrieved"}
    changes = count_answer_changes(pair_runs(other, other))
    assert changes is not None
    assert {item.cause: item.bad[0] for item in changes.causes} == {"stale_source": len(ids), "not_retrieved": 10}
    sampled = sample_run(other, 10)
    assert {cause.cause for cause in RunTable(sampled).causes} <= {"stale_source", "not_retrieved", None}


def test_only_labelled_traces_are_rated_anew(run: Run, tmp_path: Path):
    """A label of a trace goes before its stored cause, and leaves the others as they are."""
    unchanged = [replace(cause, reason="as stored") for cause in run.read_records("causes", AnswerCause)]
    other = store_causes(run, tmp_path / "other", unchanged)
    items = {"2": {("answer", "refused"): (True,)}}
    labels = HumanLabels(source=LabelProvenance(labelers="ann", traces=1), values={}, items=items)
    causes = RunTable(other, labels).causes
    assert [cause.trace for cause in causes if cause.reason != "as stored"] == ["2"]
    trace, verdicts = next(iter(run.evidence(["2"])))
    assert causes[2] == rate_trace(trace, verdicts, items["2"])


def test_a_run_without_stored_causes_has_the_same(run: Run, tmp_path: Path):
    """The runs of earlier versions have none: they are found when they are read."""
    old = tmp_path / "old"
    shutil.copytree(run.path, old)
    (old / "causes.parquet").unlink()
    unchanged = {name: value for name, value in run.manifest.checksums.items() if name != "causes.parquet"}
    write_manifest(old, replace(run.manifest, checksums=unchanged))
    assert list(read_causes(Run(old))) == list(read_causes(run))


def test_a_rescored_run_has_the_causes_of_its_own_settings(run: Run, tmp_path: Path):
    """With gold ignored nothing says that a passage was not retrieved; the number of workers changes nothing."""
    runs = [rescore(run, tmp_path / f"{workers}", gold="ignore", workers=workers) for workers in (1, 2)]
    names = {cause.cause for cause in read_causes(runs[0])}
    assert "not_retrieved" not in names
    assert "blank" in names
    assert len({(item.path / "causes.parquet").read_bytes() for item in runs}) == 1


def write_cause_labels(path: Path, labels: dict[str, CauseLabel]) -> Path:
    """Write a file of labels of causes, as `ragfault label` does."""
    for trace, value in labels.items():
        shown = fingerprint_answer(build_trace(int(trace)))
        append_label(path, Label(trace=trace, subject=("cause",), value=value, annotator="ann", shown=shown))
    return path


def test_a_cause_that_people_name_goes_before_the_computed_one(run: Run, tmp_path: Path):
    """A label of a cause overrides it, one of a right answer takes it away, and one of another answer says nothing."""
    path = write_cause_labels(tmp_path / "labels.jsonl", {"0": "failed", "1": "right", "2": "invented"})
    append_label(path, Label(trace="3", subject=("cause",), value="failed", annotator="ann", shown="a-other"))
    causes = RunTable(run, load_reference_scores(path, run)).causes
    assert [cause.cause for cause in causes[:4]] == ["failed", None, "invented", "blank"]
    assert [cause.rating.outcome for cause in causes[:4]] == ["bad", "right", "bad", "bad"]
    assert [cause.rating.source for cause in causes[:3]] == ["labels"] * 3


def test_the_agreement_with_people_compares_what_was_computed(run: Run, tmp_path: Path):
    """Outcome, stage and cause are compared before the labels correct them; a right answer called bad is none of it."""
    labels: dict[str, CauseLabel] = {"0": "blank", "1": "not_covered", "2": "invented", "3": "failed", "5": "right"}
    path = write_cause_labels(tmp_path / "labels.jsonl", labels)
    agreement = analyze(run, labels=load_reference_scores(path, run)).cause_agreement
    assert agreement is not None
    assert agreement.stage is not None
    assert agreement.cause is not None
    assert (agreement.answers, agreement.outcome.mean) == (5, 0.8)
    assert (agreement.stage.mean, agreement.cause.mean, agreement.stage.n) == (0.75, 0.25, 4)
    assert {count.cause: (count.same_stage, count.same_cause) for count in agreement.causes} == {
        "blank": (1, 1),
        "not_covered": (1, 0),
        "invented": (0, 0),
        "failed": (1, 0),
    }
