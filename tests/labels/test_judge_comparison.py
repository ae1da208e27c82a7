"""Two judges beside each other: verdicts matched item by item, metrics paired, differences named."""

from __future__ import annotations

import json
import math
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from endpoint import make_traces, serve_model
from ragfault.cli.commands import run_command as command
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.runs.run import Run
from ragfault.labels.judges.comparison import JudgeComparison, compare_judges, compare_run_judges, pair_verdicts
from ragfault.labels.judges.runner import run_judge
from ragfault.labels.label import Label, fingerprint_answer
from ragfault.labels.reading.label_files import append_label
from ragfault.model.errors import BudgetExceeded, InputError, UsageError
from ragfault.model.records import AnswerVerdict, Trace, Usage, Verdicts
from ragfault.report.builders.judges import build_judges
from ragfault.report.json_documents import encode_document
from ragfault.report.renderers.html import render_html_page
from ragfault.report.renderers.terminal import render_terminal
from sample_runs import FixedJudge, Pair, pair


def compared(pairs: Sequence[Pair], other: Sequence[Verdicts]) -> JudgeComparison:
    """Compare two judges with recorded verdicts."""
    traces = [trace for trace, _ in pairs]
    return compare_judges((FixedJudge([seen for _, seen in pairs]), FixedJudge(other)), traces, resamples=50)


def again(item: Pair, levels: str, supports: str) -> Verdicts:
    """Return other verdicts on the same trace."""
    return pair(item[0].id, levels, supports)[1]


FOUR = [pair("a", "hn", "su"), pair("b", "hl", "ss"), pair("c", "mn", "uu"), pair("d", "nn", "sc")]
OTHER = [
    again(item, levels, supports)
    for item, levels, supports in zip(FOUR, ("hn", "ml", "mn", "hn"), ("ss", "ss", "uu", "sc"), strict=True)
]


def test_kinds_of_verdict_agree_as_counted_by_hand():
    """Of eight claims seven are alike, of eight chunks six; kappa as one less the cost seen over that of chance."""
    result = {item.kind: item for item in compared(FOUR, OTHER).kinds}
    claim, chunk = result["claim"], result["chunk"]
    assert (claim.n, claim.unmatched, claim.accuracy.value) == (8, (0, 0), pytest.approx(7 / 8))
    # first: 4 supported, 3 unsupported, 1 contradicted; second: 5, 2, 1
    assert claim.kappa.value == pytest.approx((7 / 8 - (20 + 6 + 1) / 64) / (1 - (20 + 6 + 1) / 64))
    assert chunk.accuracy.value == pytest.approx(6 / 8)
    assert result["refusal"].kappa.value is None  # both always say no


def test_copies_under_other_ids_narrow_no_interval():
    """Fifty copies of two traces say as much as the two: nothing of how far the judges are apart."""
    pairs = [pair(f"{name}{copy}", levels, "ss") for copy in range(50) for name, levels in (("a", "hn"), ("b", "hl"))]
    pairs = [
        (
            replace(
                trace,
                query=f"query {trace.id[0]}",
                chunks=tuple(replace(chunk, text=f"text {at}") for at, chunk in enumerate(trace.chunks)),
            ),
            seen,
        )
        for trace, seen in pairs
    ]
    result = compared(pairs, [again(item, "ml", "su") for item in pairs])
    [groundedness] = [item for item in result.metrics if item.metric == "groundedness"]
    assert (groundedness.n, groundedness.difference.clusters) == (100, 2)


def test_a_judge_agrees_with_itself():
    """Every figure is 1, no item differs, and every difference of metrics is 0."""
    result = compared(FOUR, [seen for _, seen in FOUR])
    assert {item.accuracy.value for item in result.kinds} == {1.0}
    assert (result.disagreement_count, result.disagreements) == (0, ())
    assert {item.difference.mean for item in result.metrics} == {0.0}


def test_metrics_are_paired():
    """The difference is the second judge's mean less the first's, on the traces that both score."""
    result = {item.metric: item for item in compared(FOUR, OTHER).metrics}
    groundedness = result["groundedness"]
    assert [mean.mean for mean in groundedness.means] == [0.5, pytest.approx(5 / 8)]
    assert groundedness.difference.mean == pytest.approx(1 / 8)
    assert groundedness.layer == "generation"


def test_differences_are_named_with_both_words_and_reasons():
    """Items of each kind in turn, the furthest apart first, with the trace and what each judge says for it."""
    other = [
        replace(OTHER[0], claim=tuple(replace(item, reason="It is there.") for item in OTHER[0].claim)),
        *OTHER[1:],
    ]
    result = compared(FOUR, other)
    assert result.disagreement_count == 3
    assert [(item.trace, item.kind) for item in result.disagreements] == [
        ("a", "claim"),
        ("d", "chunk"),
        ("b", "chunk"),
    ]
    assert result.disagreements[0].values == ("unsupported", "supported")
    assert result.disagreements[0].reasons == (None, "It is there.")
    shown = render_terminal(build_judges(result), width=120)
    assert "support of claims: unsupported, supported" in shown
    assert "second: It is there." in shown


def test_claims_are_matched_by_where_they_stand():
    """Claims that judges cut differently are one where they share half of the shorter; others are counted apart."""
    trace, seen = FOUR[0]
    moved = (replace(seen.claim[0], start=2, end=14), replace(seen.claim[1], start=40, end=50))
    result = [item for item in pair_verdicts(0, trace, seen, replace(seen, claim=moved)) if item.kind == "claim"]
    assert [item.item for item in result] == ["Claim 0 holds."]
    verdict_pairs = compared([FOUR[0]], [replace(seen, claim=moved)])
    assert next(item for item in verdict_pairs.kinds if item.kind == "claim").unmatched == (1, 1)


def test_two_runs_stand_for_their_judges(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Runs of the same traces are compared without judging; traces with other answers do not count."""
    traces = [trace for trace, _ in FOUR]
    evaluate(traces, tmp_path / "one", judge=FixedJudge([seen for _, seen in FOUR]))
    changed = [*traces[:3], replace(traces[3], answer="Something else.")]
    evaluate(changed, tmp_path / "two", judge=FixedJudge(OTHER))
    out, page = tmp_path / "beside.json", tmp_path / "beside.html"
    arguments = ["judge", "compare", str(tmp_path / "one"), str(tmp_path / "two")]
    assert command([*arguments, "-o", str(out), "--html", str(page)]) == 0
    assert "told/1 beside told/1: 3 traces" in capsys.readouterr().out
    assert json.loads(out.read_text(encoding="utf-8"))["traces"] == 3
    assert "<html" in page.read_text(encoding="utf-8")
    evaluate([replace(item, answer="Not the same.") for item in traces], tmp_path / "three", judge=FixedJudge(OTHER))
    with pytest.raises(UsageError, match="share no trace with the same chunks and answer"):
        compare_run_judges(Run.open(tmp_path / "one"), Run.open(tmp_path / "three"))


def test_of_large_runs_a_random_sample_is_compared_and_every_report_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    traces = [trace for trace, _ in FOUR]
    runs = [
        evaluate(traces, tmp_path / name, judge=FixedJudge(verdicts))
        for name, verdicts in (("one", [seen for _, seen in FOUR]), ("two", OTHER))
    ]
    comparison = compare_run_judges(runs[0], runs[1], sample=2)
    assert (comparison.traces, comparison.population) == (2, 4)
    assert compare_run_judges(runs[0], runs[1]).population == 0
    page = tmp_path / "beside.html"
    paths = [str(run.path) for run in runs]
    assert command(["judge", "compare", *paths, "--limit", "2", "--html", str(page)]) == 0
    for text in (capsys.readouterr().out, page.read_text(encoding="utf-8")):
        assert "2 traces in a random sample of a run of 4" in " ".join(text.split())


def test_judges_of_the_package_are_compared_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Two names and a file of traces; without traces the names are told to be no runs."""
    row = {"id": "1", "query": "When does it open?", "contexts": ["It opens at 7."], "answer": "It opens at 7."}
    path = tmp_path / "traces.jsonl"
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    assert command(["judge", "compare", "lexical", "embedded", str(path)]) == 0
    assert "lexical/8 beside embedded/7: 1 trace" in capsys.readouterr().out
    assert command(["judge", "compare", "lexical", "embedded"]) == 2
    assert "are not two runs" in capsys.readouterr().err
    assert command(["judge", "compare", "lexical", "embedded", str(path), "--votes", "3"]) == 2
    assert "for a judge that calls a model" in capsys.readouterr().err
    with pytest.raises(InputError, match="no trace to compare"):
        compare_judges(("lexical", "embedded"), [])


def test_a_budget_is_that_of_both_judges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two judges that are paid for never spend more together; each is told what it spent itself."""
    monkeypatch.setenv("RAGFAULT_CACHE", str(tmp_path / "cache.sqlite"))
    monkeypatch.delenv("RAGFAULT_LLM_API_KEY", raising=False)
    with serve_model() as server:
        options = {"base_url": server.url, "max_tokens": 300, "budget_tokens": 10**6}
        result = compare_judges(("llm:m", "llm:n"), make_traces(4), options=(options, options))
        assert [speed.usage.calls for speed in result.speeds if speed and speed.usage] == [8, 8]
        before = server.tokens
        less = {**options, "budget_tokens": 30_000, "cache": "none"}
        with pytest.raises(BudgetExceeded):
            compare_judges(("llm:m", "llm:n"), make_traces(12), options=(less, less))
        assert server.tokens - before <= 30_000


def test_texts_of_traces_are_harmless():
    """Neither the terminal nor the page takes orders from a trace, and JSON holds every figure."""
    trace, seen = pair("<script>\x1b[2J", "h", "su")
    other = replace(seen, claim=tuple(replace(item, support="contradicted", reason="<b>\x07") for item in seen.claim))
    result = compared([(trace, seen)], [other])
    assert not set(render_terminal(build_judges(result))) & set("\x1b\x07")
    page = render_html_page(build_judges(result), "test")
    assert "<script>\x1b" not in page
    assert "&lt;b&gt;" in page
    assert json.loads(encode_document(result))["disagreement_count"] == 2


class WaitingJudge:
    """Judge that costs money and replies to nothing before it may."""

    fingerprint, offers, usage = "waiting/1", frozenset({"answer"}), Usage(calls=1)

    def __init__(self) -> None:
        self.may_reply = threading.Event()

    def begin(self, budget_id: str, *, fresh: bool) -> None:
        """Begin a budget, of which nothing is spent."""

    def end(self) -> None:
        """End; there is nothing to close."""

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        assert self.may_reply.wait(60)
        return [Verdicts(trace=trace.id) for trace in traces]


def test_progress_is_reported_while_a_paid_judge_waits():
    """Progress comes before the first reply does, so that a command beside a slow model is seen to live."""
    judge, calls = WaitingJudge(), []

    def progress(done: int, total: int) -> None:
        calls.append((done, total))
        if len(calls) > 1:
            judge.may_reply.set()

    verdicts, speed = run_judge(judge, [Trace(id="1", query="When?")], None, progress)
    assert (len(verdicts), speed.wall_clock) == (1, True)
    assert calls[:2] == [(0, 1)] * 2
    assert calls[-1] == (1, 1)


# --- which judge is better, on labels of people ----------------------------------------------------


class ScoringJudge:
    """Judge whose probability of a good answer is that of a table."""

    offers = FixedJudge.offers

    def __init__(self, name: str, grounded: dict[str, float]) -> None:
        self.fingerprint, self._grounded = name, grounded

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        return [
            Verdicts(trace=trace.id, answer=AnswerVerdict(relevance=1.0, grounded=self._grounded[trace.id]))
            for trace in traces
        ]


def hold(count: int, noises: tuple[float, float], **metadata: Any) -> JudgeComparison:
    """Compare two judges whose probabilities are the label plus noise of these sizes."""
    draw = random.Random(5)
    traces = [
        Trace(id=str(at), query=f"Query {at}?", answer="It is.", metadata={"label": at % 2, **metadata})
        for at in range(count)
    ]
    judges = [
        ScoringJudge(
            f"judge-{at}/1",
            {item.id: 1 / (1 + math.exp(2 * item.metadata["label"] - 1 + draw.gauss(0, noise))) for item in traces},
        )
        for at, noise in enumerate(noises)
    ]
    return compare_judges((judges[0], judges[1]), traces, resamples=300)


def test_the_better_judge_is_named_by_a_paired_interval():
    """The judge with less noise wins, in either place; the difference is the second less the first."""
    for noises, decision in (((3.0, 0.5), "second"), ((0.5, 3.0), "first")):
        result = hold(200, noises)
        contest = result.better
        assert (contest.decision, contest.n, contest.groups, contest.positives) == (decision, 200, 200, 100)
        first, second, difference = contest.figures[0].first, contest.figures[0].second, contest.difference
        assert difference.value == pytest.approx(second.value - first.value)
        assert difference.low * difference.high > 0
        assert contest.needed is None
        assert render_terminal(build_judges(result), width=160).startswith(
            f"judge-{int(decision == 'second')}/1 is better than judge-{int(decision == 'first')}/1 by 0."
        )


def test_equally_good_judges_are_equal_within_the_margin_or_need_more_labels():
    """With many labels the bound is below the margin; with few nothing is decided, and it says how many would do."""
    assert hold(2000, (1.0, 1.0)).better.decision == "equal"
    few = hold(40, (1.0, 1.05))
    assert few.better.decision == "undecided"
    assert few.better.needed > 40
    assert f"{few.better.needed:,} labels would decide" in " ".join(render_terminal(build_judges(few)).split())


def test_judges_that_never_differ_are_equal_only_with_enough_groups():
    """Without a difference in 72 groups less than 5 % of all differ; before that, it says how many would do."""
    assert hold(72, (0.0, 0.0)).better.decision == "equal"
    few = hold(36, (0.0, 0.0)).better
    assert (few.decision, few.needed) == ("undecided", 72)


def test_copies_of_one_source_decide_nothing():
    """Forty answers to one source are one group, of which no interval is known."""
    contest = hold(40, (3.0, 0.5), source_id="same").better
    assert (contest.groups, contest.decision, contest.needed) == (1, "undecided", None)


def test_labels_of_one_class_say_what_is_missing():
    traces = [replace(trace, metadata={"label": 0}) for trace, _ in FOUR]
    result = compare_judges((FixedJudge([seen for _, seen in FOUR]), FixedJudge(OTHER)), traces, resamples=50)
    assert result.better.difference.value is None
    assert "none of the 4 answers is labelled bad" in render_terminal(build_judges(result), width=160)


def test_labels_are_read_from_the_file_of_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Four labels cannot tell; labels that cannot be read are reported, unless asked for: then the command fails."""
    rows = [
        {"id": str(at), "query": "When?", "contexts": ["It opens at 7."], "answer": answer, "label": label}
        for at, (answer, label) in enumerate([("It opens at 7.", 0), ("It opens at 9.", 1), ("At 7.", 0), ("Soon.", 1)])
    ]
    path = tmp_path / "labelled.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert command(["judge", "compare", "lexical", "embedded", str(path), "--json", "--group", "id"]) == 3
    contest = json.loads(capsys.readouterr().out)["better"]
    assert (contest["unit"], contest["n"], contest["positives"]) == ("answer", 4, 2)
    assert contest["decision"] == "undecided"
    path.write_text("".join(json.dumps({**row, "label": 0.3}) + "\n" for row in rows), encoding="utf-8")
    assert command(["judge", "compare", "lexical", "embedded", str(path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["better"], result["traces"]) == (None, 4)
    assert "cannot be read" in result["unread_labels"]
    assert command(["judge", "compare", "lexical", "embedded", str(path), "--task", "answer"]) == 2


def test_two_runs_are_compared_on_labels_of_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Labels of `ragfault label` are those of recorded judges; eight claims cannot tell; several files are refused."""
    traces = [trace for trace, _ in FOUR]
    for name, verdicts in (("one", [seen for _, seen in FOUR]), ("two", OTHER)):
        evaluate(traces, tmp_path / name, judge=FixedJudge(verdicts))
    labels = tmp_path / "labels.jsonl"
    for trace, seen in FOUR:
        for claim in seen.claim:
            subject = ("claim", claim.start, claim.end)
            shown = fingerprint_answer(trace)
            append_label(labels, Label(trace=trace.id, subject=subject, value=claim.support, shown=shown))
    arguments = ["judge", "compare", str(tmp_path / "one"), str(tmp_path / "two"), str(labels)]
    assert command([*arguments, "--json"]) == 3
    contest = json.loads(capsys.readouterr().out)["better"]
    kappa = next(figure for figure in contest["figures"] if figure["name"] == "kappa")
    assert (contest["unit"], contest["n"]) == ("claim", 8)
    assert kappa["first"][0] == 1.0
    assert kappa["second"][0] < 1.0
    assert command([*arguments, str(labels)]) == 2
    assert command(["judge", "compare", str(tmp_path / "one"), "lexical", str(labels)]) == 2
    assert "no run at lexical" in capsys.readouterr().err
