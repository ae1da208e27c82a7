"""Two judges beside each other: verdicts matched item by item, metrics paired, differences named."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from endpoint import make_traces, serve_model
from ragfault.cli.commands import run_command as command
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.runs.run import Run
from ragfault.labels.judges.comparison import JudgeComparison, compare_judges, compare_run_judges, pair_verdicts
from ragfault.labels.judges.runner import run_judge
from ragfault.model.errors import BudgetExceeded, InputError, UsageError
from ragfault.model.records import Trace, Usage, Verdicts
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
    assert "lexical/6 beside embedded/5: 1 trace" in capsys.readouterr().out
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
