"""Labels of people, and what they do to figures: read, laid over verdicts, and decided on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from ragfault.cli.commands import run_command
from ragfault.comparison.bisection import bisect
from ragfault.comparison.compare import compare
from ragfault.comparison.gate.gate import gate
from ragfault.comparison.paired_runs import pair_runs
from ragfault.diagnosis.run_analysis import analyze
from ragfault.diagnosis.scorecard import TARGETS, build_scorecard
from ragfault.io.runs.run import Run
from ragfault.io.runs.writer import write_manifest
from ragfault.labels.consensus import resolve_labels
from ragfault.labels.label import Label, fingerprint_answer
from ragfault.labels.reading.human_verdicts import LabelReading, compute_values, list_labeled_items, overlay_labels
from ragfault.labels.reading.label_files import append_label, read_labels, write_labels
from ragfault.labels.reading.lines import AnswerLabel, ChunkLabel, ClaimLabel, HumanVerdicts, LabelLine, list_label_line
from ragfault.labels.reading.reference_scores import load_paired_reference_scores, load_reference_scores
from ragfault.metrics.catalog import parse_metric
from ragfault.model.errors import InputError, UsageError
from ragfault.model.records import Trace, Verdicts
from ragfault.report import output as json_report
from ragfault.report.builders.comparison import build_comparison
from ragfault.report.builders.gate import build_gate
from ragfault.report.builders.scorecard import build_findings
from ragfault.report.html.report import render_run_html
from ragfault.report.html.trace_browser import build_trace_browser
from ragfault.report.json_documents import encode_document
from ragfault.report.renderers.markdown import render_markdown
from ragfault.report.renderers.terminal import render_terminal
from sample_runs import evaluate_pairs, pair

METRICS = ("groundedness", "contradiction", "context_precision", "refusal")
WORDS = {"s": "supported", "u": "unsupported", "c": "contradicted", "i": "inferred"}


def truths(seed: int, share: float, n: int = 120) -> list[str]:
    """Draw the support of four claims for each trace, in letters."""
    rng = np.random.default_rng(seed)
    return ["".join("s" if rng.uniform() < share else "u" for _ in range(4)) for _ in range(n)]


def lenient(supports: str, seed: int) -> str:
    """Judge as a judge does that takes half of the unsupported claims for supported."""
    rng = np.random.default_rng(seed)
    return "".join("s" if sign == "s" or rng.uniform() < 0.5 else "u" for sign in supports)


def judged(place: Path, labels: list[str], salt: str = "") -> Run:
    """Write a run of answers with these claims, as the lenient judge judges them."""
    answers = [pair(f"t{at}", "hm", lenient(item, at)) for at, item in enumerate(labels)]
    for at, (trace, seen) in enumerate(answers):
        answers[at] = replace(trace, answer=f"{trace.answer}{salt}"), seen
    return evaluate_pairs(place, answers, METRICS)


def labels(result: Run, labels: list[str], n: int = 40, **more: object) -> list[Label]:
    """Label the claims of the first traces with the truth."""
    return [
        Label(
            trace=trace.id,
            subject=("claim", 15 * at, 15 * at + 14),
            value=WORDS[sign],
            annotator="ann",
            shown=fingerprint_answer(trace),
            **more,
        )
        for row, trace in zip(range(n), result.traces(), strict=False)
        for at, sign in enumerate(labels[row])
    ]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of the same queries whose answers got worse, and labels of each."""
    folder = tmp_path_factory.mktemp("corrected")
    for name, share, salt in (("old", 0.9, ""), ("new", 0.6, " Indeed.")):
        support_signs = truths(1, share)
        result = judged(folder / name, support_signs, salt)
        write_labels(folder / f"{name}.jsonl", labels(result, support_signs))
    return folder


def opened(place: Path, name: str) -> Run:
    return Run.open(place / name / "run")


# --- labels ----------------------------------------------------------------------------------------


def test_labels_come_back_as_they_were_written(tmp_path: Path):
    """What is appended line by line, or written at once, is read again the same."""
    labels = [
        Label(trace="1", annotator="ann", subject=("chunk", "a", "level"), value="high"),
        Label(trace="2", subject=("claim",), value=(), chance=0.5),
        Label(trace="2", subject=("missing",), value=("a date",), chance=0.5),
    ]
    for label in labels:
        append_label(tmp_path / "one.jsonl", label)
    write_labels(tmp_path / "two.jsonl", labels)
    assert read_labels(tmp_path / "one.jsonl") == read_labels(tmp_path / "two.jsonl") == labels


def test_nothing_is_added_to_a_line_that_was_torn(tmp_path: Path):
    """A half-written last line is a fault to a reader; the next label replaces it, for nobody was told it was saved."""
    path = tmp_path / "labels.jsonl"
    path.write_text('{"trace": "1", "verd')
    with pytest.raises(InputError, match=r"1 of 1 rows cannot be read:\n.*labels.jsonl:1: "):
        read_labels(path)
    label = Label(trace="2", subject=("missing",), value=())
    append_label(path, label)
    assert read_labels(path) == [label]


def test_every_fault_of_a_file_is_reported(tmp_path: Path):
    """All lines that are no labels are named at once, with what is wrong."""
    path = tmp_path / "labels.jsonl"
    lines = [
        '{"trace": "1", "verdicts": {"claim": [{"start": 0, "end": 4, "support": "maybe"}]}}',
        '{"trace": "2", "verdicts": {}}',
        '{"trace": "3", "verdicts": {"chunk": [{"chunk": "a"}]}}',
        '{"trace": "4", "verdicts": {"chunk": [{"chunk": "a", "relevance": 1.5}]}}',
    ]
    path.write_text("\n".join(lines))
    with pytest.raises(InputError) as caught:
        read_labels(path)
    message = str(caught.value)
    assert "3 of 4 rows cannot be read" in message
    assert all(f"labels.jsonl:{line}: " in message for line in (1, 3, 4))
    path.write_text("\n")
    with pytest.raises(InputError, match="holds no labels of verdicts"):
        read_labels(path)


def test_the_last_word_of_each_and_the_majority_of_all_holds():
    """A later word replaces the same author's earlier one; a tie says nothing; numbers are averaged."""

    def label_by(by: str, refused: bool, relevance: float) -> list[Label]:
        verdicts = HumanVerdicts(answer=AnswerLabel(refused=refused, relevance=relevance))
        return list_label_line(LabelLine(trace="1", by=by, verdicts=verdicts))

    opinions = [*label_by("ann", True, 0.2), *label_by("ann", False, 0.4), *label_by("bob", False, 0.6)]
    result = resolve_labels(opinions)["1"]
    assert result.values == {("answer", "refused"): False, ("answer", "relevance"): 0.5}
    assert (result.annotators, result.disputed) == (("ann", "bob"), 1)
    tie = resolve_labels([*label_by("ann", True, 0.5), *label_by("bob", False, 0.5)])["1"]
    assert ("answer", "refused") not in tie.values
    assert tie.disputed == 1


def test_words_on_another_answer_are_dropped():
    """With another answer than the last one shown, only words on the retrieval hold."""
    old = HumanVerdicts(
        chunk=(ChunkLabel(chunk="a", level="low"),), claim=(ClaimLabel(start=0, end=3, support="supported"),)
    )
    result = resolve_labels(
        [
            *list_label_line(LabelLine(trace="1", verdicts=old, answer="a-1")),
            *list_label_line(LabelLine(trace="1", verdicts=HumanVerdicts(missing=()), answer="a-2")),
        ]
    )["1"]
    assert set(result.values) == {("chunk", "a", "level"), ("missing",)}
    assert result.reviewed_parts == {"chunk", "missing"}


# --- verdicts --------------------------------------------------------------------------------------


def label_value(metric: str, seen: tuple[Trace, Verdicts], **labels: object) -> list[tuple[str, float | None]]:
    """Return the value of a metric from human labels of these items."""
    looked = frozenset(str(part) for part in labels.pop("looked", ()))  # type: ignore[attr-defined]
    words = {tuple(key): word for key, word in labels.pop("words", ())}  # type: ignore[attr-defined]
    return list(compute_values([parse_metric(metric)], *seen, [LabelReading(words, looked)]))


def test_a_metric_has_a_value_where_all_its_inputs_are_labelled():
    """One claim without a word leaves the trace without a label, whatever the others are."""
    seen = pair("t", "h", "su")
    both = [(("claim", 0, 14), "unsupported"), (("claim", 15, 29), "supported")]
    assert label_value("groundedness", seen, words=both, looked=["claim"]) == [("groundedness", 0.5)]
    assert label_value("groundedness", seen, words=both[:1], looked=["claim"]) == []
    assert label_value("context_adherence", seen, words=both[:1], looked=["claim"]) == []
    assert label_value("refusal", seen, words=both, looked=["claim"]) == []


def test_fields_of_the_answer_are_labelled_one_by_one():
    """Who said only whether it refuses labels refusals, and not relevance."""
    seen = pair("t", "h", "s")
    labels = {"words": [(("answer", "refused"), True)], "looked": ["answer"]}
    assert label_value("refusal", seen, **labels) == [("refusal", 1.0)]
    assert label_value("answer_relevance", seen, **labels) == []


def test_nothing_to_judge_counts_where_it_was_looked_at():
    """A trace without chunks is labelled by who looked at chunks, and not by who looked at claims."""
    seen = pair("t", "", "s")
    assert label_value("context_precision", seen, looked=["chunk"]) == [("context_precision", 0.0)]
    assert label_value("context_precision", seen, words=[(("claim", 0, 14), "supported")], looked=["claim"]) == []


def test_the_judge_is_not_read_where_people_speak():
    """Probabilities and evidence of the judge are not there for a metric that rests on people."""
    _, verdicts = pair("t", "h", "s")
    seen = overlay_labels(verdicts, LabelReading({("claim", 0, 14): "contradicted"}, frozenset(["claim"])))
    assert seen.claim[0].support == "contradicted"
    with pytest.raises(AttributeError, match="no label has p"):
        _ = seen.claim[0].p


# --- what is read ----------------------------------------------------------------------------------


def test_labels_become_values_of_metrics(place: Path):
    """Groundedness and contradiction of the labelled traces are those of the words of people."""
    result = load_reference_scores(place / "old.jsonl", opened(place, "old"))
    assert set(result.values) == {"groundedness", "contradiction"}
    want = {f"t{at}": item.count("s") / 4 for at, item in enumerate(truths(1, 0.9)[:40])}
    assert result.values["groundedness"] == want
    assert (result.source.labelers, result.source.traces, result.source.unmatched) == ("ann", 40, 0)


def test_a_trace_without_chunks_is_labelled_where_chunks_were(tmp_path: Path):
    """Labels of chunks on some traces make a trace without any, of which something was said, one of 0 by convention."""
    result = evaluate_pairs(tmp_path, [pair("full", "h", "s"), pair("empty", "", "s"), pair("bare", "", "s")], METRICS)
    labels = [
        Label(trace="full", subject=("chunk", "full-0", "level"), value="high"),
        Label(trace="full", subject=("claim", 0, 14), value="supported"),
        Label(trace="empty", subject=("claim", 0, 14), value="supported"),
    ]
    write_labels(tmp_path / "both.jsonl", labels)
    write_labels(tmp_path / "claims.jsonl", labels[1:])
    precision = load_reference_scores(tmp_path / "both.jsonl", result).values["context_precision"]
    assert precision == {"full": 1.0, "empty": 0.0}
    assert "context_precision" not in load_reference_scores(tmp_path / "claims.jsonl", result).values


def test_values_can_stand_in_a_table(place: Path, tmp_path: Path):
    """Lines or cells with the names of metrics are values; an empty cell is none; faults are told by line."""
    old = opened(place, "old")
    (tmp_path / "v.csv").write_text("trace,groundedness,refusal\nt0,0.5,\nt1,1,0\nx,1,1\n")
    result = load_reference_scores(tmp_path / "v.csv", old)
    assert result.values == {"groundedness": {"t0": 0.5, "t1": 1.0}, "refusal": {"t1": 0.0}}
    assert result.source.unmatched == 1
    (tmp_path / "v.jsonl").write_text('{"id": "t0", "groundedness": 0.5}\n{"id": "t1", "groundedness": 2}\n')
    with pytest.raises(InputError, match=r"v.jsonl:2: 2 is not in"):
        load_reference_scores(tmp_path / "v.jsonl", old)


def test_a_stronger_judge_is_taken_for_true_on_the_same_answers(place: Path, tmp_path: Path):
    """Scores of another judge count where chunks and answer are those of the run; the same judge is refused."""
    old = opened(place, "old")
    labels = truths(1, 0.9)
    pairs = [pair(f"t{at}", "hm", item) for at, item in enumerate(labels[:30])]
    pairs[0] = replace(pairs[0][0], answer="Another."), pairs[0][1]
    strong = evaluate_pairs(tmp_path, pairs, METRICS)
    with pytest.raises(InputError, match="can correct nothing"):
        load_reference_scores(strong.path, old)
    write_manifest(strong.path, replace(strong.manifest, judge="strong/1 model=x"))
    result = load_reference_scores(strong.path, old)
    assert result.source.labelers == "run, judged by strong/1"
    assert result.values["groundedness"] == {f"t{at}": labels[at].count("s") / 4 for at in range(1, 30)}


def test_marked_stretches_say_what_they_determine(place: Path, tmp_path: Path):
    """Spans of bad text give groundedness, and not how many claims are contradicted."""
    old = opened(place, "old")
    rows = [
        {"id": trace.id, "query": trace.query, "answer": trace.answer, "spans": [{"start": 0, "end": 5}] * (at % 2)}
        for at, trace in zip(range(20), old.traces(), strict=False)
    ]
    (tmp_path / "spans.jsonl").write_text("\n".join(map(json.dumps, rows)))
    result = load_reference_scores(tmp_path / "spans.jsonl", old)
    assert set(result.values) == {"groundedness"}
    assert [result.values["groundedness"][f"t{at}"] for at in (0, 1)] == [1.0, 0.75]


def test_labels_of_other_traces_are_reported_and_only_such_labels_are_refused(place: Path, tmp_path: Path):
    """Strangers are counted in a notice; where nothing fits, the error says so."""
    old = opened(place, "old")
    mine = read_labels(place / "old.jsonl")
    write_labels(tmp_path / "some.jsonl", [*mine, replace(mine[0], trace="elsewhere")])
    message: list[str] = []
    assert load_reference_scores(tmp_path / "some.jsonl", old, notice=message.append).source.unmatched == 1
    assert "40 of 120 traces" in message[0]
    write_labels(tmp_path / "none.jsonl", [replace(mine[0], trace="elsewhere")])
    with pytest.raises(InputError, match=r"none of the 1 traces of .*none.jsonl \(such as elsewhere\) is in"):
        load_reference_scores(tmp_path / "none.jsonl", old)
    with pytest.raises(InputError, match="no metric is labeled completely"):
        load_reference_scores(place / "new.jsonl", old)


def test_one_file_or_one_of_each(place: Path, tmp_path: Path):
    """Labels know their answers, so that one file serves both runs; values do not, and are refused for two."""
    runs = opened(place, "old"), opened(place, "new")
    both = [*read_labels(place / "old.jsonl"), *read_labels(place / "new.jsonl")]
    write_labels(tmp_path / "both.jsonl", both[:40])
    old, new = load_paired_reference_scores([tmp_path / "both.jsonl"], runs)
    assert (old is not None, new) == (True, None)
    two = load_paired_reference_scores([place / "old.jsonl", place / "new.jsonl"], runs)
    assert [item.source.traces for item in two if item] == [40, 40]
    (tmp_path / "v.csv").write_text("trace,groundedness\nt0,0.5\n")
    with pytest.raises(UsageError, match="give labels=… for each"):
        load_paired_reference_scores([tmp_path / "v.csv"], runs)
    with pytest.raises(UsageError, match="3 times"):
        load_paired_reference_scores(["a", "b", "c"], runs)


def test_chances_of_a_draw_are_all_or_none(place: Path, tmp_path: Path):
    """Labels that were drawn with chances weigh by them; some with and some without are refused."""
    old, support_signs = opened(place, "old"), truths(1, 0.9)
    probabilities = labels(old, support_signs, chance=0.25)
    write_labels(tmp_path / "drawn.jsonl", probabilities)
    assert set(load_reference_scores(tmp_path / "drawn.jsonl", old).probabilities.values()) == {0.25}
    write_labels(tmp_path / "mixed.jsonl", [*probabilities[:20], *labels(old, support_signs)[20:]])
    with pytest.raises(InputError, match="Keep the labels of each sample"):
        load_reference_scores(tmp_path / "mixed.jsonl", old)


# --- what is decided -------------------------------------------------------------------------------


def test_targets_and_thresholds_are_decided_on_corrected_figures(place: Path):
    """A lenient judge meets the target; people say that it is missed; the plain figure stands beside it."""
    new = opened(place, "new")
    labels = load_reference_scores(place / "new.jsonl", new)
    card = {item.metric: item for item in build_scorecard(new, labels=labels).aggregates}
    result = card["groundedness"]
    truth = np.mean([item.count("s") / 4 for item in truths(1, 0.6)])
    assert result.ppi.interval.low <= truth <= result.ppi.interval.high
    assert result.interval.low > truth
    assert result.decision_interval == result.ppi.interval
    assert card["refusal"].ppi is None
    threshold = "groundedness>=0.72"
    assert (gate(new, [threshold]).result, gate(new, [threshold], labels=(None, labels)).result) == ("pass", "fail")
    assert "and 40 labels" in gate(new, [threshold], labels=(None, labels)).decisions[0].reason


def test_correction_and_labels_exclude_each_other(place: Path):
    """Figures are corrected by a card or by labels."""
    new = opened(place, "new")
    with pytest.raises(UsageError, match="one of the two"):
        build_scorecard(new, TARGETS, corrected=True, labels=load_reference_scores(place / "new.jsonl", new))


def test_differences_are_those_that_people_would_see(place: Path):
    """The corrected difference replaces the judge's, which stands beside it; p and margins are tested on it."""
    runs = opened(place, "old"), opened(place, "new")
    labels = load_paired_reference_scores([place / "old.jsonl", place / "new.jsonl"], runs)
    result = compare(pair_runs(*runs, labels=labels))
    change = next(item for item in result.changes if item.metric == "groundedness")
    assert change.difference.method == "ppi"
    assert change.difference.low <= -0.3 + 0.05
    assert change.difference.mean < change.judge_difference.mean
    assert change.evidence_count == (40, "labelled pairs")
    assert change.verdict == "worse"
    refusal = next(item for item in result.changes if item.metric == "refusal")
    assert (refusal.ppi, refusal.judge_difference) == (None, None)
    assert bisect(pair_runs(*runs, labels=labels)).verdict == "fault"


def test_labels_of_one_side_change_nothing_and_say_so(place: Path):
    """A difference needs labels on both sides."""
    runs = opened(place, "old"), opened(place, "new")
    result = compare(pair_runs(*runs, labels=(load_reference_scores(place / "old.jsonl", runs[0]), None)))
    change = next(item for item in result.changes if item.metric == "groundedness")
    assert change.judge_difference is None
    assert change.ppi.reason == "only the baseline is labelled"


def test_reports_show_both(place: Path):
    """Each format names the corrected figure beside the one as judged, the labels, and who gave them."""
    new = opened(place, "new")
    result = analyze(new, labels=load_reference_scores(place / "new.jsonl", new))
    pages = [
        render_terminal(build_findings(result), width=140),
        render_markdown(build_findings(result)),
        render_run_html(new, result),
    ]
    for page in pages:
        assert "Corrected by labels" in page
        assert "40 labels" in page
        assert "ann, 40 traces" in page
    assert json_report.encode_findings_csv(result).splitlines()[0].endswith("ppi,ppi_low,ppi_high,labels")
    plain = json.loads(encode_document(result))
    assert plain["scorecard"]["label_source"]["labelers"] == "ann"
    assert plain["scorecard"]["aggregates"][0]["ppi"]["labelled"] == 40


def test_labels_that_were_picked_are_noticed(place: Path):
    """Where the judge has the labelled traces otherwise than all, the report says that they are no random draw."""
    new = opened(place, "new")
    result = analyze(new, labels=load_reference_scores(place / "new.jsonl", new))
    assert "Beware" not in render_terminal(build_findings(result))
    order = np.argsort([-score.value for score in new.scores() if score.metric == "groundedness"])
    labels = load_reference_scores(place / "new.jsonl", new)
    best = {f"t{at}": 1.0 for at in order[:40]}
    result = analyze(new, labels=replace(labels, values={"groundedness": best}))
    assert "Warning: by groundedness the judge scores labelled traces unlike the rest" in render_terminal(
        build_findings(result), width=200
    )


def test_comparisons_say_what_differences_rest_on(place: Path):
    """Terminal, Markdown and JSON tell labels, the figure as judged, and what stands as judged."""
    runs = opened(place, "old"), opened(place, "new")
    labels = load_paired_reference_scores([place / "old.jsonl", place / "new.jsonl"], runs)
    result = compare(pair_runs(*runs, labels=labels))
    for page in (render_terminal(build_comparison(result), width=140), render_markdown(build_comparison(result))):
        assert "by 40 labelled pairs" in page
        assert "refusal stands as judged" in page
    assert json.loads(encode_document(result))["label_sources"][0]["traces"] == 40
    gate_result = gate(runs[1], baseline=runs[0], labels=labels, metrics=["groundedness"])
    assert gate_result.result == "fail"
    assert "corrected by 40 labelled pairs" in render_terminal(build_gate(gate_result), width=300)
    assert "corrected by ann, 40 traces" in render_markdown(build_gate(gate_result))


# --- what a user types -----------------------------------------------------------------------------


def test_verbs_take_labels(place: Path, capsys: pytest.CaptureFixture[str]):
    """report, compare, bisect and gate read --human-labels; who labelled is told on standard error."""
    old, new = str(place / "old/run"), str(place / "new/run")
    mine, theirs = str(place / "old.jsonl"), str(place / "new.jsonl")
    both = ["--human-labels", mine, "--human-labels", theirs]
    assert run_command(["report", new, "--human-labels", theirs]) == 0
    assert run_command(["compare", old, new, *both]) == 0
    assert run_command(["bisect", old, new, *both]) == 1
    assert run_command(["gate", new, "--threshold", "groundedness>=0.72", "--human-labels", theirs]) == 1
    assert run_command(["gate", new, "--baseline", old, "-m", "groundedness", *both]) == 1
    message = capsys.readouterr()
    assert message.err.count("corrected by labels of ann: 40 of 120 traces of run") == 8
    assert run_command(["report", new, *both]) == 2
    assert run_command(["report", new, "--human-labels", "nowhere.jsonl"]) == 2
    assert run_command(["report", new, "--human-labels", theirs, "--corrected"]) == 2
    assert run_command(["bisect", old, new, old, "--human-labels", mine]) == 2


def test_evaluate_ends_with_corrected_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """evaluate --human-labels shows at its end what report would show."""
    rows = [
        {"id": f"q{at}", "query": "When?", "chunks": ["It opens at 7:30."], "answer": f"It opens at {at}:30."}
        for at in range(12)
    ]
    (tmp_path / "traces.jsonl").write_text("\n".join(map(json.dumps, rows)))
    values = [{"trace": f"q{at}", "groundedness": float(at == 7)} for at in range(10)]
    (tmp_path / "values.jsonl").write_text("\n".join(map(json.dumps, values)))
    asked = ["evaluate", str(tmp_path / "traces.jsonl"), "-o", str(tmp_path / "run"), "-m", "groundedness"]
    assert run_command([*asked, "--judge", "lexical", "--full", "--human-labels", str(tmp_path / "values.jsonl")]) == 0
    assert "Corrected by labels" in capsys.readouterr().out


def test_what_people_labeled_as_right_is_no_problem_and_no_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Problems and their examples follow the labels of a trace, and the judge where there is none."""
    claims = ["su", "us", "ss", "su"]
    run = evaluate_pairs(tmp_path / "run", [pair(f"t{at}", "h", item) for at, item in enumerate(claims)], METRICS)
    write_labels(tmp_path / "labels.jsonl", labels(run, ["ss", "ss", "su"], 3))
    findings = analyze(run, labels=load_reference_scores(tmp_path / "labels.jsonl", run))
    [remedy] = [item for item in findings.remedies if item.kind == "unsupported_claim"]
    assert (remedy.traces, remedy.example.trace if remedy.example else None) == (2, "t2")
    assert {item.trace for item in findings.worst if any(p.kind == "unsupported_claim" for p in item.problems)} == {
        "t2",
        "t3",
    }
    assert [item.kind for item in analyze(run).remedies if item.traces == 3] == ["unsupported_claim"]
    known = load_reference_scores(tmp_path / "labels.jsonl", run)
    shown = build_trace_browser(run, known).index
    with_problem = [name for name, kinds in zip(shown["ids"], shown["problems"], strict=True) if kinds]
    assert with_problem == ["t2", "t3"]
    assert run_command(["diagnose", str(run.path), "t0", "--human-labels", str(tmp_path / "labels.jsonl")]) == 0
    assert "unsupported" not in capsys.readouterr().out


def test_label_columns_of_the_input_that_are_not_read_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A file with labels gets a hint at the option that reads them; one without gets none."""
    trace = {"id": "1", "query": "When does it leave?", "chunks": ["It leaves at noon."], "answer": "At noon."}
    for name, more in (
        ("labeled", {"spans": [], "label": 0}),
        ("rated", {"hallucinated": True}),
        ("plain", {"label": "billing"}),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps([trace | more]), encoding="utf-8")
        run_command(["evaluate", str(tmp_path / f"{name}.json"), "-o", str(tmp_path / name), "--judge", "lexical"])
        printed = capsys.readouterr().err
        assert ("labels (spans) were not read: put them before the judge with --human-labels" in printed) == (
            name == "labeled"
        )
        assert ("labels (hallucinated) were not read: ragfault judge measure" in printed) == (name == "rated")


def test_labels_of_answers_alone_name_the_command_that_reads_them(tmp_path: Path):
    """Labels that name no claim are refused with the command that sets them against the judge."""
    run = evaluate_pairs(tmp_path / "run", [pair("t0", "h", "su")], METRICS)
    [trace] = run.traces()
    row = {"id": "t0", "query": trace.query, "answer": trace.answer, "hallucinated": True}
    (tmp_path / "answers.jsonl").write_text(json.dumps(row), encoding="utf-8")
    with pytest.raises(InputError, match=r"whole answers name no claim.*ragfault judge measure"):
        load_reference_scores(tmp_path / "answers.jsonl", run)


def test_examples_of_a_drop_follow_the_labels(tmp_path: Path):
    """A trace that people found right on both sides is no example of a drop, whatever the judge saw."""
    old = evaluate_pairs(tmp_path / "old", [pair(f"t{at}", "h", "ss") for at in range(30)], METRICS)
    new = evaluate_pairs(tmp_path / "new", [pair(f"t{at}", "h", "uu") for at in range(30)], METRICS)
    sources = (tmp_path / "of-old.jsonl", tmp_path / "of-new.jsonl")
    for run, path in zip((old, new), sources, strict=True):
        write_labels(path, labels(run, ["ss"] * 10, 10))
    paired = pair_runs(old, new, labels=load_paired_reference_scores(sources, (old, new)))
    [change] = [item for item in compare(paired).changes if item.metric == "groundedness"]
    assert change.fell == 20
    assert not {item.trace for item in change.drops} & {f"t{at}" for at in range(10)}


def test_a_chunk_labeled_by_its_relevance_alone_has_the_level_of_it():
    """The labels of a trace decide on a chunk whether they name its level or its relevance."""
    reading = LabelReading({("chunk", "a", "relevance"): 0.0}, frozenset(["chunk"]))
    assert list_labeled_items([reading])["chunk", "a", "level"] == ("none",)
