"""Laws of several attempts in a run: reliability by query, copies counted once, unequal numbers stated."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ragfault.comparison.gate.gate import gate
from ragfault.diagnosis.attempts import meanings
from ragfault.diagnosis.attempts.assessment import tell_judge_noise
from ragfault.diagnosis.attempts.plan import plan_attempts
from ragfault.diagnosis.run_analysis import analyze
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.runs.samples import sample_run
from ragfault.labels.judges.flakiness import JudgeFlakiness, MetricFlakiness
from ragfault.model.errors import RunError, UnknownName, UsageError
from ragfault.model.records import Chunk, Latency, Trace
from ragfault.report.builders.attempts import describe_attempts
from ragfault.report.html.report import render_run_html
from remembered import LEXICAL

METRICS = ["groundedness", "context_relevance"]


def attempt(office: int, number: int, hour: int = 7, words: str = "Office {} opens at {}:30.", **fields) -> Trace:
    """Make an attempt at a query about an office that opens at 7:30."""
    return Trace(
        id=f"q{office}",
        query=f"When does office {office} open?",
        attempt=number,
        chunks=(Chunk(id=f"c{office}", text=f"Office {office} opens at 7:30."),),
        answer=words.format(office, hour),
        **fields,
    )


def assess(traces, folder):
    """Evaluate traces, and return the report on their attempts."""
    return analyze(evaluate(traces, folder / "run", judge=LEXICAL, metrics=METRICS)).attempts


def test_single_attempts_have_no_report(tmp_path):
    """A run with one attempt of each query says nothing of attempts."""
    assert assess([attempt(office, 1) for office in range(3)], tmp_path) is None


def test_a_wrong_attempt_makes_its_query_flaky(tmp_path):
    """One wrong answer of six queries with two attempts each: five are all right, one is flaky."""
    report = assess([attempt(n, k, 9 if (n, k) == (4, 2) else 7) for k in (1, 2) for n in range(6)], tmp_path)
    assert (report.queries, report.k, report.sizes, report.copies) == (6, 2, {2: 6}, 0)
    figures = (report.all_right, report.any_right, report.flakiness, report.consistency)
    assert [item.mean for item in figures] == pytest.approx([5 / 6, 1, 1 / 6, 1])
    assert {item.n for item in figures} == {6}
    [flaky] = report.flaky
    assert flaky.query_id == "q4"
    assert [(item.trace, item.outcome, item.meaning) for item in flaky.answers] == [
        ("q4", "right", 1),
        ("q4#2", "bad", 2),
    ]


def test_another_wording_is_no_disagreement(tmp_path):
    """Answers that say the same in other words have one meaning."""
    longer = "Office {0} opens at {1}:30 in the morning."
    traces = [attempt(n, 1) for n in range(3)] + [attempt(n, 2, words=longer) for n in range(3)]
    assert assess(traces, tmp_path).flakiness.mean == 0


def test_copies_of_an_attempt_count_once(tmp_path):
    """A record that is the same in its latency too is a copy; the same answer measured again is an attempt."""
    own = [attempt(n, k, latency=Latency(total=100.0 + k)) for k in (1, 2) for n in range(4)]
    copies = [replace(trace, attempt=3) for trace in own[:3]]
    report = assess([*own, *copies], tmp_path)
    assert (report.copies, report.sizes) == (3, {2: 4})


def test_unequal_numbers_are_stated(tmp_path):
    """Queries with fewer attempts than the others are counted apart, and figures of k leave them out."""
    traces = [attempt(n, k) for k in (1, 2, 3) for n in range(5) if not (k == 3 and n == 0)]
    report = assess(traces, tmp_path)
    assert (report.k, report.sizes, report.all_right.n) == (3, {2: 1, 3: 4}, 4)
    assert "1 with 2" in describe_attempts(report)[0]


def test_a_sample_has_all_attempts_of_its_queries(tmp_path):
    """Attempts of one query are drawn together."""
    run = evaluate(
        [attempt(n, k) for k in (1, 2, 3) for n in range(40)], tmp_path / "run", judge=LEXICAL, metrics=METRICS[:1]
    )
    queries = [trace.query_id for trace in sample_run(run, 30).traces()]
    assert 9 <= len(set(queries)) < 40
    assert len(queries) == 3 * len(set(queries))


@pytest.fixture(scope="module")
def flaky_run(tmp_path_factory):
    """Return a run of 40 queries with three attempts, of which half are wrong once."""
    traces = [attempt(n, k, 9 if k == 3 and n % 2 else 7) for k in (1, 2, 3) for n in range(40)]
    return evaluate(traces, tmp_path_factory.mktemp("flaky") / "run", judge=LEXICAL, metrics=METRICS)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("groundedness pass^3>=0.8", "fail"),
        ("groundedness pass^3>=0.5", "cannot tell"),
        ("groundedness pass@3>=0.8", "pass"),
        ("groundedness>=0.5 pass@2 >= 0.8", "pass"),
        ("groundedness flaky@3<=0.1", "fail"),
        ("groundedness worst@2>=0.3", "pass"),
        ("groundedness pass^4>=0.1", "cannot tell"),
    ],
)
def test_a_threshold_may_be_on_attempts(flaky_run, text, result):
    """A threshold on all, any or the worst of k attempts is decided on queries; without k attempts nothing is."""
    [decision] = gate(flaky_run, [text]).decisions
    assert (decision.result, str(decision.threshold)) == (result, text.replace(" >= ", ">="))


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("answers pass^3>=0.8", "fail"),
        ("answers pass@3>=0.8", "pass"),
        ("answers flaky@3<=0.1", "fail"),
        ("chunks shared@2>=0.8", "pass"),
    ],
)
def test_a_threshold_may_be_on_answers_and_chunks(flaky_run, text, result):
    """Reliability of answers, their flakiness in meaning and the consistency of retrieval may be thresholds."""
    [decision] = gate(flaky_run, [text]).decisions
    assert (decision.result, str(decision.threshold)) == (result, text)


@pytest.mark.parametrize(
    "text", ["answers>=0.8", "answers worst@2>=0.5", "chunks shared@3>=0.5", "groundedness shared@2>=0.5"]
)
def test_a_statistic_that_a_subject_does_not_have_is_an_error(flaky_run, text):
    """Answers and chunks have statistics of their own, and only over attempts."""
    with pytest.raises(UsageError):
        gate(flaky_run, [text])


def test_unsure_answers_widen_the_interval(tmp_path):
    """Refusals that no key settles may be right or bad: the share of queries that are all right holds both."""
    refusal = "I don't know, the documents do not say."
    traces = [
        attempt(n, k, words=refusal if k == 2 and n % 2 else "Office {} opens at {}:30.")
        for k in (1, 2)
        # with more chunks the run itself would tell whether a refusal is right
        for n in range(18)
    ]
    report = assess(traces, tmp_path)
    assert report.unsure == 9
    assert (report.all_right.n, report.all_right.mean) == (18, pytest.approx(0.75))
    assert report.all_right.low < 0.5
    assert report.all_right.high == 1


def test_an_answer_that_says_more_agrees(tmp_path):
    """An answer with one more detail is not another meaning; another time is."""
    longer = "Office {0} opens at {1}:30, and the bakery next to it at 6:00."
    traces = [attempt(n, 1) for n in range(4)] + [attempt(n, 2, words=longer) for n in range(3)] + [attempt(3, 2, 9)]
    assert assess(traces, tmp_path).flakiness.mean == pytest.approx(1 / 4)


def test_a_threshold_that_hangs_on_queries_says_how_many(flaky_run):
    """If more queries would decide on a threshold over attempts, the decision says about how many."""
    [decision] = gate(flaky_run, ["groundedness pass^3>=0.6"]).decisions
    assert decision.result == "cannot tell"
    assert decision.needed > 40


def test_a_page_shows_flaky_queries_with_all_their_answers(flaky_run):
    """The page of a run has a section on attempts, with the right and the wrong answer of a flaky query."""
    page = render_run_html(flaky_run)
    assert 'id="attempts"' in page
    assert "Office 1 opens at 9:30." in page
    assert "Office 1 opens at 7:30." in page


@pytest.mark.parametrize(
    "text", ["context_relevance pass^3>=0.8", "groundedness pass^3>=80", "groundedness worst@3>=9"]
)
def test_a_threshold_on_attempts_needs_to_say_what_is_right(flaky_run, text):
    """A metric without a target, and a share beyond 1, are usage errors."""
    with pytest.raises(UsageError):
        gate(flaky_run, [text])


def test_more_attempts_and_more_queries_find_more(flaky_run):
    """The power of a plan grows with queries, with attempts and with the drop, by the variance of a run or without."""
    for run in (None, flaky_run):
        plan = plan_attempts(100, 2, run=run)
        larger = ((200, 2, 0.05), (100, 4, 0.05), (100, 2, 0.1))
        more = [plan_attempts(queries, size, drop=drop, run=run) for queries, size, drop in larger]
        assert all(other.power > plan.power for other in more)
        assert [option.same_cost_queries for option in plan.options] == [200, 100, 66, 40, 25]


def test_a_plan_takes_the_noise_of_a_run(tmp_path):
    """The power has a range by the interval of the noise of the run: of 40 queries 13 are hard, and 13 flaky."""
    wrong = {0: (1, 2, 3), 1: (2,), 2: ()}
    traces = [attempt(n, k, 9 if k in wrong[n % 3] else 7) for k in (1, 2, 3) for n in range(40)]
    plan = plan_attempts(100, 3, run=evaluate(traces, tmp_path / "run", judge=LEXICAL, metrics=METRICS[:1]))
    assert plan.power_low < plan.power < plan.power_high
    assert 0 < plan.noise < 0.7


def test_a_run_with_single_attempts_tells_no_noise(tmp_path):
    """A plan by such a run is an error, and so is one by a metric that the run lacks."""
    run = evaluate([attempt(n, 1) for n in range(3)], tmp_path / "run", judge=LEXICAL, metrics=METRICS[:1])
    with pytest.raises(RunError):
        plan_attempts(100, 3, run=run)
    with pytest.raises(UnknownName):
        plan_attempts(100, 3, run=run, metric="triad")
    with pytest.raises(UsageError):
        plan_attempts(1, 3)


def test_the_measured_noise_of_a_judge_is_taken_from_that_of_the_system(tmp_path):
    """The variance of a judge that was measured is taken from the noise; that of another judge is refused."""
    traces = [attempt(n, k, 9 if (n + k) % 5 == 0 else 7) for k in (1, 2) for n in range(12)]
    findings = analyze(evaluate(traces, tmp_path / "run", judge=LEXICAL, metrics=METRICS))
    noise = MetricFlakiness(metric="groundedness", n=12, deviation=0.1, drift=0.0, flips=0.1, reliability=None)
    measured = JudgeFlakiness(judge=findings.manifest.judge, repeats=3, traces=12, metrics=(noise,))
    [before], [after] = (
        [item.variance for item in assessed.attempts.metrics if item.metric == "groundedness"]
        for assessed in (findings, tell_judge_noise(findings, measured))
    )
    assert after.judge == pytest.approx(0.01)
    assert after.system + after.judge == pytest.approx(before.system)
    with pytest.raises(UsageError):
        tell_judge_noise(findings, replace(measured, judge="other"))


def test_too_many_answers_are_compared_for_a_sample_of_queries(tmp_path, monkeypatch):
    """Beyond the pairs that a judge compares, flakiness is that of some queries, equal answers included."""
    monkeypatch.setattr(meanings, "MAX_COMPARED", 4)
    longer = "Office {0} opens at {1}:30 in the morning."
    traces = [
        attempt(n, k, words=longer if n % 2 and k == 2 else "Office {} opens at {}:30.")
        for k in (1, 2)
        for n in range(20)
    ]
    report = assess(traces, tmp_path)
    assert 4 <= report.flakiness.n < 20
