"""Laws of thresholds and of the gate, alone and beside a baseline."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from ragfault.cli.commands import run_command as command
from ragfault.comparison.gate.gate import gate
from ragfault.comparison.gate.records import GateResult
from ragfault.diagnosis.run_analysis import analyze
from ragfault.diagnosis.thresholds import Threshold, check_threshold, parse_threshold
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.runs.run import Run
from ragfault.model.errors import RunError, UnknownName, UsageError
from ragfault.model.records import Chunk, ConversationTurn, Gold, Latency
from ragfault.report.builders.gate import build_gate
from ragfault.report.builders.scorecard import build_verdict
from ragfault.report.document import Heading, StyledText, Table, VerdictMark
from ragfault.report.json_documents import encode_document
from ragfault.report.junit import render_gate_junit
from ragfault.report.renderers.markdown import render_markdown
from ragfault.report.renderers.terminal import render_terminal
from ragfault.stats.estimates import Interval
from sample_runs import FixedJudge, evaluate_pairs, pair

shares = st.floats(0, 1)


def signs(text):
    """Build a trace for each claim: s supported, u unsupported, - no claim."""
    return [pair(f"t{at}", "h", sign.strip("-")) for at, sign in enumerate(text)]


# --- thresholds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "threshold"),
    [
        ("groundedness>=0.85", Threshold("groundedness", ">=", 0.85)),
        (" latency <= 2000 ", Threshold("latency", "<=", 2000.0)),
        ("refusal<.1", Threshold("refusal", "<", 0.1)),
        ("refusal ≤ 1e-1", Threshold("refusal", "<=", 0.1)),
        ("ndcg(gain=exponential)@10>=0.5", Threshold("ndcg(gain=exponential)@10", ">=", 0.5)),
        ('mine(sign=">=", n=2)>-1', Threshold('mine(sign=">=", n=2)', ">", -1.0)),
    ],
)
def test_a_threshold_is_read_from_its_text(text, threshold):
    """A metric with its parameters, a sign, a number; white space around them does not count."""
    assert parse_threshold(text) == threshold


@pytest.mark.parametrize(
    "text",
    [
        "",
        "groundedness",
        ">=0.5",
        "groundedness=0.5",
        "groundedness==0.5",
        "groundedness=>0.5",
        "g>=x",
        "g>=",
        "g>=1>=2>",
    ],
)
def test_anything_else_is_no_threshold(text):
    """A text that is not a threshold is refused with an example."""
    with pytest.raises(UsageError, match=r"groundedness>=0\.85"):
        parse_threshold(text)


@given(
    st.sampled_from(["groundedness", "recall(relevant=2)@20"]),
    st.sampled_from([">=", ">", "<=", "<"]),
    st.integers(-99, 99),
)
def test_a_threshold_prints_as_it_is_read(metric, sign, hundredths):
    """print → read gives the same threshold."""
    threshold = Threshold(metric, sign, hundredths / 100)
    assert parse_threshold(str(threshold)) == threshold


@given(shares, shares, shares, st.sampled_from([">=", ">", "<=", "<"]))
def test_a_threshold_is_decided_on_the_ends_of_the_interval(low, high, value, sign):
    """Pass and fail need the whole interval; a threshold and its opposite are never both passed or both failed."""
    assume(low <= high)
    interval = Interval((low + high) / 2, low, high, 9, 9)
    opposite = {">=": "<", ">": "<=", "<=": ">", "<": ">="}[sign]
    results = {
        check_threshold(Threshold("m", sign, value), interval),
        check_threshold(Threshold("m", opposite, value), interval),
    }
    assert results in ({"pass", "fail"}, {"cannot tell"})
    assert (results == {"cannot tell"}) <= (low <= value <= high)


# --- the gate --------------------------------------------------------------------------------------


def test_pass_fail_and_cannot_tell(tmp_path):
    """40 supported answers pass 0.85, fail < 0.5, and cannot tell 0.99 from 1."""
    run = evaluate_pairs(tmp_path, signs("s" * 40), ["groundedness", "refusal"])
    decision = gate(run, ["groundedness>=0.85", "groundedness<0.5", "groundedness>=0.99", "refusal<0.1"])
    assert [item.result for item in decision.decisions] == ["pass", "fail", "cannot tell", "pass"]
    assert (decision.result, decision.exit_code, decision.traces) == ("fail", 1, 40)


def test_the_exit_code_of_the_gate(tmp_path):
    """0 where all pass, 3 where some cannot tell, 1 where any fails."""
    run = evaluate_pairs(tmp_path, signs("s" * 40), ["groundedness"])
    assert gate(run, ["groundedness>=0.85"]).exit_code == 0
    assert gate(run, ["groundedness>=0.85", "groundedness>=0.99"]).exit_code == 3
    assert gate(run, ["groundedness<0.85", "groundedness>=0.99"]).exit_code == 1


def test_cannot_tell_says_how_many_traces_would(tmp_path):
    """The number named narrows the interval, at the same shares, to about the distance of the threshold."""
    run = evaluate_pairs(tmp_path, signs("su" * 10), ["groundedness"])
    decision = gate(run, ["groundedness>=0.4"]).decisions[0]
    low = decision.aggregate.interval.low
    assert decision.result == "cannot tell"
    assert decision.needed == math.ceil(20 * ((0.5 - low) / 0.1) ** 2)
    assert f"about {decision.needed:,} scored traces" in decision.reason
    (tmp_path / "more").mkdir()
    more = evaluate_pairs(tmp_path / "more", signs("su" * math.ceil(decision.needed * 0.6)), ["groundedness"])
    assert gate(more, ["groundedness>=0.4"]).result == "pass"


def test_all_perfect_needs_fewer_than_the_square(tmp_path):
    """Where every trace is perfect the interval shrinks with the number, and so does what is asked for."""
    run = evaluate_pairs(tmp_path, signs("s" * 20), ["groundedness"])
    needed = gate(run, ["groundedness>=0.9"]).decisions[0].needed
    assert 20 < needed < 40
    (tmp_path / "more").mkdir()
    assert (
        gate(evaluate_pairs(tmp_path / "more", signs("s" * 40), ["groundedness"]), ["groundedness>=0.9"]).result
        == "pass"
    )


def test_a_mean_on_the_threshold_is_never_decided(tmp_path):
    """No number of traces is named where the mean stands on the threshold, or where there is one trace."""
    decision = gate(evaluate_pairs(tmp_path, signs("su" * 4), ["groundedness"]), ["groundedness>=0.5"]).decisions[0]
    assert (decision.result, decision.needed) == ("cannot tell", None)
    (tmp_path / "one").mkdir()
    decision = gate(evaluate_pairs(tmp_path / "one", signs("s"), ["groundedness"]), ["groundedness>=0.5"]).decisions[0]
    assert (decision.result, decision.needed) == ("cannot tell", None)


def test_low_coverage_cannot_pass_but_can_fail(tmp_path):
    """With 30 of 90 traces scored a threshold is not passed, unless less is asked for; one that fails still fails."""
    run = evaluate_pairs(tmp_path, signs("s" * 30 + "-" * 60), ["groundedness"])
    decision = gate(run, ["groundedness>=0.5"]).decisions[0]
    assert (decision.result, decision.coverage) == ("cannot tell", pytest.approx(1 / 3))
    assert "only 30 of 90 traces are scored (33 %" in decision.reason
    assert "the answer makes no claim" in decision.reason
    assert gate(run, ["groundedness>=0.5"], coverage=0.3).result == "pass"
    assert gate(run, ["groundedness<0.5"]).result == "fail"


def test_nothing_scored_decides_nothing(tmp_path):
    """A metric without a value decides nothing, and the decision says why there is none."""
    decision = gate(evaluate_pairs(tmp_path, signs("ss"), ["ndcg@10"]), ["ndcg@10>=0.5"], coverage=0).decisions[0]
    assert decision.result == "cannot tell"
    assert decision.reason == "no trace is scored (no gold)"


def test_a_metric_that_is_not_in_the_run_is_an_error(tmp_path):
    """The message offers the nearest that is."""
    run = evaluate_pairs(tmp_path, signs("s"), ["groundedness", "ndcg@10"])
    with pytest.raises(UnknownName, match='Did you mean "groundedness"'):
        gate(run, ["groundednes>=0.5"])
    assert gate(run, ["ndcg @ 10>=0.5"]).decisions[0].threshold.metric == "ndcg@10"


@pytest.mark.parametrize("threshold", ["groundedness>=85", "groundedness>=-0.1", "latency<-1"])
def test_a_threshold_outside_the_range_is_an_error(tmp_path, threshold):
    """A percentage for a share would always fail; it is refused instead."""
    run = evaluate_pairs(tmp_path, signs("s"), ["groundedness", "latency"])
    with pytest.raises(UsageError, match="lies between 0 and"):
        gate(run, [threshold])


def test_no_thresholds_and_no_share_are_errors(tmp_path):
    """A gate without thresholds would pass everything."""
    run = evaluate_pairs(tmp_path, signs("s"), ["groundedness"])
    with pytest.raises(UsageError, match="no threshold"):
        gate(run, [])
    with pytest.raises(UsageError, match="coverage"):
        gate(run, ["groundedness>0"], coverage=50)


def test_a_metric_without_end_is_decided_too(tmp_path):
    """Latencies of 100 and 110 ms lie below 2,000 and above 50."""
    result = [pair(f"t{at}", "h", "s", latency=Latency(total=100.0 + 10 * (at % 2))) for at in range(20)]
    decision = gate(evaluate_pairs(tmp_path, result, ["latency"]), ["latency<=2000", "latency<50"])
    assert [item.result for item in decision.decisions] == ["pass", "fail"]


# --- beside a baseline -----------------------------------------------------------------------------


def run_of(place: Path, name: str, result, metrics=("groundedness",)) -> Run:
    """Write the run of hand-made traces, under a name of its own; a text is the list of their claims."""
    (place / name).mkdir()
    pairs = [
        (changed(trace, answer=f"{trace.answer} By {name}.") if trace.answer else trace, seen)
        for trace, seen in (signs(result) if isinstance(result, str) else result)
    ]
    return evaluate_pairs(place / name, pairs, list(metrics))


def beside(place: Path, old, new, metrics=("groundedness",), **terms) -> GateResult:
    """Decide on a new run beside an old one."""
    runs = [run_of(place, name, result, metrics) for name, result in (("old", old), ("new", new))]
    return gate(runs[1], baseline=runs[0], **terms)


def timed(*latencies: float):
    """Build a trace for each latency."""
    return [pair(f"t{at}", "h", "s", latency=Latency(total=value)) for at, value in enumerate(latencies)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "new", "result"),
    [
        ("s" * 200, "s" * 170 + "u" * 30, "fail"),
        ("s" * 200, "s" * 200, "pass"),
        ("u" * 30 + "s" * 170, "s" * 200, "pass"),
        ("u" * 3 + "s" * 197, "s" * 197 + "u" * 3, "pass"),
        ("s" * 200, "s" * 195 + "u" * 5, "cannot tell"),
        ("s" * 20, "s" * 20, "cannot tell"),
        ("su" * 20, "us" * 20, "cannot tell"),
    ],
)
def test_a_drop_is_shown_ruled_out_or_neither(tmp_path, old, new, result):
    """Fail needs a significant drop beyond the margin, pass that one is ruled out; few traces show neither."""
    decision = beside(tmp_path, old, new, max_drop=0.03 if result == "pass" else 0.02)
    decided = [item for item in decision.regression_decisions if item.change.metric == "groundedness"]
    assert [item.result for item in decided] == [result]
    assert decision.exit_code == {"pass": 0, "fail": 1, "cannot tell": 3}[result]
    assert (decided[0].needed is not None) == (result == "cannot tell")


def test_what_fails_one_way_passes_the_other(tmp_path):
    """A drop shown from one run to the other is a rise from the other to the one, and passes."""
    old, new = run_of(tmp_path, "old", "s" * 60 + "u" * 20), run_of(tmp_path, "new", "s" * 40 + "u" * 40)
    assert gate(new, baseline=old).result == "fail"
    assert gate(old, baseline=new).result == "pass"


@pytest.mark.long
def test_pass_is_the_one_sided_bound_within_the_margin(tmp_path):
    """A metric passes with any margin above its bound and with none below it; the bound is one-sided at alpha."""
    old, new = run_of(tmp_path, "old", "s" * 95 + "u" * 5), run_of(tmp_path, "new", "u" + "s" * 99)
    bound = -gate(new, baseline=old).regression_decisions[0].bound
    assert 0 < bound < 0.1
    assert gate(new, baseline=old, max_drop=bound * 1.001).result == "pass"
    assert gate(new, baseline=old, max_drop=bound * 0.999).result == "cannot tell"
    assert -gate(new, baseline=old, alpha=0.01).regression_decisions[0].bound > bound


def test_a_drop_within_the_margin_never_fails(tmp_path):
    """A drop of 0.15, however certain, does not fail a margin of 0.2; it passes where 0.2 is ruled out."""
    result = "s" * 200, "s" * 170 + "u" * 30
    assert beside(tmp_path, *result, max_drop=0.16).result == "cannot tell"
    old, new = Run.open(tmp_path / "old/run"), Run.open(tmp_path / "new/run")
    assert gate(new, baseline=old, max_drop=0.2).result == "pass"
    assert gate(new, baseline=old, margins={"groundedness": 0.2}).result == "pass"
    assert gate(new, baseline=old, max_drop=0.2, margins={"groundedness": 0.02}).result == "fail"


def test_p_is_corrected_for_the_metrics_decided(tmp_path):
    """A drop on 6 of 200 traces (p = 0.03) fails alone, and cannot be told from chance beside another metric."""
    metrics = ["groundedness", "answer_relevance"]
    old = run_of(tmp_path, "old", "s" * 200, metrics)
    new = run_of(tmp_path, "new", "s" * 194 + "u" * 6, metrics)
    alone = gate(new, baseline=old, metrics=["groundedness"], max_drop=0.02).regression_decisions[0]
    both = gate(new, baseline=old, max_drop=0.02).regression_decisions[0]
    assert (alone.result, alone.change.adjusted) == ("fail", pytest.approx(2**-5))
    assert (both.result, both.change.adjusted) == ("cannot tell", pytest.approx(2**-4))
    assert "would show it" in both.reason


def test_lower_is_better_the_other_way_round(tmp_path):
    """A latency that rose fails, one that fell passes; its margin is in milliseconds, else 5 % of its mean."""
    slow, fast = timed(*(200 + at % 7 for at in range(40))), timed(*(100 + at % 5 for at in range(40)))
    old = run_of(tmp_path, "old", fast, ["latency"])
    new = run_of(tmp_path, "new", slow, ["latency"])
    risen = gate(new, baseline=old, metrics=["latency"])
    assert risen.regression_decisions[0].rule == "latency<=baseline+5.1"
    assert (risen.result, gate(old, baseline=new, metrics=["latency"]).result) == ("fail", "pass")
    assert gate(new, baseline=old, metrics=["latency"], margins={"latency": 150}).result == "pass"


def test_the_number_of_pairs_named_would_tell(tmp_path):
    """Where nothing changed on 40 traces, about as many as are named pass, and a tenth fewer do not."""
    needed = beside(tmp_path, "s" * 40, "s" * 40, max_drop=0.02).regression_decisions[0].needed
    assert 100 < needed < 130
    for name, size, result in (("more", needed, "pass"), ("less", round(0.9 * needed), "cannot tell")):
        (tmp_path / name).mkdir()
        assert beside(tmp_path / name, "s" * size, "s" * size, max_drop=0.02).result == result


def test_lost_scores_keep_a_metric_from_passing(tmp_path):
    """One failure of the judge, and what would have passed cannot be told; what fails still fails."""
    from msgspec.structs import replace

    result = signs("s" * 200)
    old = run_of(tmp_path, "old", result)
    result[0] = (result[0][0], replace(result[0][1], claim=None, failures={"claim": "timeout"}))
    decision = gate(run_of(tmp_path, "new", result), baseline=old)
    assert decision.result == "cannot tell"
    assert (
        "1 scores were lost to failures (0 of the baseline, 1 of the candidate)"
        in decision.regression_decisions[0].reason
    )
    worse = [*result[:1], *signs("u" * 200)[1:]]
    assert gate(run_of(tmp_path, "worse", worse), baseline=old).result == "fail"


@pytest.mark.long
def test_low_coverage_cannot_pass_beside_a_baseline(tmp_path):
    """Answers that make no claim any more are no evidence: 140 of 200 left, or few traces with a partner."""
    decision = beside(tmp_path, "s" * 400, "s" * 180 + "-" * 220)
    [decided] = [item for item in decision.regression_decisions if item.change.metric == "groundedness"]
    assert (decided.result, decided.coverage) == ("cannot tell", 0.45)
    assert "only 180 of the 400 pairs that are scored in either run" in decided.reason
    old, new = Run.open(tmp_path / "old/run"), Run.open(tmp_path / "new/run")
    lower = [
        item
        for item in gate(new, baseline=old, coverage=0.4).regression_decisions
        if item.change.metric == "groundedness"
    ]
    assert [item.result for item in lower] == ["pass"]
    others = [pair(f"x{at}", "h", "s") for at in range(210)]
    apart = run_of(tmp_path, "apart", [*signs("s" * 190), *others])
    assert (
        "only 190 of 400 traces of the run have a partner" in gate(apart, baseline=old).regression_decisions[0].reason
    )


def test_missing_traces_keep_every_metric_from_passing(tmp_path):
    """A candidate that lacks over a tenth of the baseline's traces does not pass; a few new ones are said."""
    baseline = run_of(tmp_path, "all", signs("s" * 60))
    fewer = gate(run_of(tmp_path, "fewer", signs("s" * 50)), baseline=baseline, max_drop=0.05)
    assert fewer.result == "cannot tell"
    assert "10 of 60 traces of the baseline have no partner" in str(fewer.regression.warnings)
    more = gate(run_of(tmp_path, "more", signs("s" * 80)), baseline=baseline, max_drop=0.05)
    assert more.result == "pass"
    assert "20 of 80 traces of the candidate have no partner and are not compared" in str(more.regression.warnings)


def test_the_same_chunks_pass_what_reads_them_alone(tmp_path):
    """Retrieval is not doubted where both runs retrieved the very same chunks, however few."""
    metrics = ["context_relevance", "groundedness"]
    old, new = (run_of(tmp_path, name, result, metrics) for name, result in (("old", "ss"), ("new", "su")))
    decision = gate(new, baseline=old, metrics=metrics)
    assert [item.result for item in decision.regression_decisions] == ["pass", "cannot tell"]
    assert "are the same in both runs" in decision.regression_decisions[0].reason


def test_void_labels_decide_nothing(tmp_path):
    """Where the corpus was re-chunked and gold was not, recall is neither failed nor passed."""

    def build_pairs(cut: str):
        chunks = [tuple(Chunk(id=f"{cut}{at}-{k}", text=f"{cut} {at} {k}") for k in "ab") for at in range(40)]
        gold = [Gold(chunks={f"old{at}-a": 1}) for at in range(40)]
        return [pair(f"t{at}", "", "s", chunks=chunks[at], gold=gold[at]) for at in range(40)]

    drop = beside(tmp_path, build_pairs("old"), build_pairs("new"), ["recall@2"]).regression_decisions[0]
    assert (drop.result, drop.change.difference.mean) == ("cannot tell", -1.0)
    assert drop.reason.startswith("labels no longer describe the corpus: 100 % of gold ids are gone")


def test_the_metrics_are_those_of_the_tree_that_have_a_value(tmp_path):
    """Without names: of the decision tree, scored somewhere; with names: those, whole families by bare name."""
    metrics = ["groundedness", "recall@1", "latency", "refusal", "redundancy", "redundancy(threshold=0.5)"]
    old, new = (run_of(tmp_path, name, "ss", metrics) for name in ("old", "new"))
    decided = [item.change.metric for item in gate(new, baseline=old).regression_decisions]
    assert decided == ["groundedness", "context_relevance at equal depth", "right_answers"]
    named = gate(new, baseline=old, metrics=["redundancy", "redundancy( threshold=0.5 )", "recall@1"])
    assert [item.change.metric for item in named.regression_decisions] == [
        "recall@1",
        "redundancy",
        "redundancy(threshold=0.5)",
    ]
    assert named.regression_decisions[0].reason == "no pair of traces is scored on both sides"


def test_what_is_not_there_is_an_error(tmp_path):
    """A metric or margin that not both runs have, no metric at all, terms without a baseline, an impossible margin."""
    old, new = (run_of(tmp_path, name, "ss", ["groundedness", "latency"]) for name in ("old", "new"))
    for terms in ({"metrics": ["groundednes"]}, {"margins": {"groundednes": 0.1}}):
        with pytest.raises(UnknownName, match='Did you mean "groundedness"'):
            gate(new, baseline=old, **terms)
    with pytest.raises(UsageError, match="max_drop: without a baseline"):
        gate(new, ["groundedness>=0.1"], max_drop=0.1)
    with pytest.raises(UsageError, match="between 0 and 1"):
        gate(new, baseline=old, max_drop=0)
    bare = [run_of(tmp_path, name, "ss", ["latency"]) for name in ("old2", "new2")]
    with pytest.raises(UsageError, match="Name the metrics"):
        gate(bare[1], baseline=bare[0])


class Other(FixedJudge):
    """The same judge under another name."""

    fingerprint = "other/1"


def test_another_judge_is_refused_unless_asked_for(tmp_path):
    """A difference could be the judges'; with `anyway` it is decided, and the warning stands in every report."""
    old, result = run_of(tmp_path, "old", "s" * 4), signs("s" * 4)
    judge = Other([seen for _, seen in result])
    new = evaluate([trace for trace, _ in result], tmp_path / "new", judge=judge, metrics=["groundedness"])
    with pytest.raises(RunError, match="anyway=True"):
        gate(new, baseline=old)
    decision = gate(new, baseline=old, anyway=True)
    for text in (
        render_terminal(build_gate(decision), width=300),
        render_markdown(build_gate(decision)),
        render_gate_junit(decision),
    ):
        assert "comparable" in text or "judge" in text
        assert "other/1" in text


def test_the_very_same_run_passes(tmp_path):
    """Where chunks, answers and citations are the very same, however few, nothing can have got worse."""
    old = run_of(tmp_path, "old", "ssu")
    assert gate(old, baseline=old).result == "pass"


def test_thresholds_and_baseline_are_decided_together(tmp_path):
    """The whole fails where a threshold or a metric does, and cannot tell where one cannot."""
    old, new = run_of(tmp_path, "old", "s" * 200), run_of(tmp_path, "new", "s" * 200)
    assert gate(new, ["groundedness>=0.9"], baseline=old).exit_code == 0
    assert gate(new, ["groundedness>=0.999"], baseline=old).exit_code == 3
    assert gate(new, ["groundedness<0.5"], baseline=old).exit_code == 1
    assert gate(new, ["groundedness>=0.9"], baseline=old, max_drop=0.001).exit_code == 3


# --- its reports -----------------------------------------------------------------------------------


@pytest.fixture
def decided(tmp_path) -> GateResult:
    run = evaluate_pairs(tmp_path, signs("s" * 40), ["groundedness", "refusal"])
    return gate(run, ["groundedness>=0.85", "groundedness<0.5", "refusal<0.01"])


def test_junit_counts_and_tells(decided):
    """A failed threshold is a failure, an undecided one an error, each with its reason; a passed one is neither."""
    text = render_gate_junit(decided)
    assert text.startswith('<?xml version="1.0" encoding="UTF-8"?>\n')
    root = ElementTree.fromstring(text)
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("3", "1", "1")
    cases = root.findall("testsuite/testcase")
    assert [case.get("name") for case in cases] == ["groundedness>=0.85", "groundedness<0.5", "refusal<0.01"]
    assert [[child.tag for child in case] for case in cases] == [["system-out"], ["failure"], ["error"]]
    assert "the whole interval misses the threshold" in cases[1][0].get("message")
    assert cases[0].get("classname") == "ragfault.generation"


def test_junit_holds_any_text(tmp_path):
    """Markup and control characters of a judge's message do not break the XML."""
    from msgspec.structs import replace

    trace, seen = pair("a", "h", "s")
    lost = replace(seen, claim=None, failures={"claim": "]]> <b>&\x1b[31m\x00\ufffe\x0b ende"})
    decision = gate(evaluate_pairs(tmp_path, [(trace, lost)], ["groundedness"]), ["groundedness>=0.5"])
    message = ElementTree.fromstring(render_gate_junit(decision)).find("testsuite/testcase/error").get("message")
    assert message == "no trace is scored (]]> <b>& ende)"


def test_the_report_opens_with_the_result_and_lists_failures_first(decided):
    """The title is the result with its counts; a row for each threshold, the failed one first, its rule as code."""
    document = build_gate(decided)
    title, [table] = document.lead[0], document.body
    assert isinstance(title, Heading)
    assert title.mark == VerdictMark("fail")
    assert title.text == "run, 40 traces, 1 pass, 1 fail, 1 cannot tell of 3 thresholds"
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == [VerdictMark(word) for word in ("fail", "cannot tell", "pass")]
    assert [row[1] for row in table.rows] == [
        StyledText(rule, "code") for rule in ("groundedness<0.5", "refusal<0.01", "groundedness>=0.85")
    ]


def test_json_says_the_result(decided):
    """The JSON of a gate holds its result beside the decisions."""
    data = json.loads(encode_document(decided))
    assert data["result"] == "fail"
    assert [item["result"] for item in data["decisions"]] == ["pass", "fail", "cannot tell"]


@pytest.fixture
def guarded(tmp_path) -> GateResult:
    metrics = ["groundedness", "answer_relevance", "chunk_utilization"]
    old = run_of(tmp_path, "old", "s" * 200, metrics)
    result = [pair(f"t{at}", "h", "su"[at < 40], used="yn"[at in (60, 70, 80)]) for at in range(200)]
    new = run_of(tmp_path, "new", result, metrics)
    return gate(new, ["groundedness>=0.5"], baseline=old, metrics=metrics, max_drop=0.02)


def test_junit_holds_thresholds_and_metrics(guarded):
    """Each metric is a test case beside the thresholds; the baseline is a property of the suite."""
    suite = ElementTree.fromstring(render_gate_junit(guarded)).find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "1", "1")
    cases = {case.get("name"): case[0] for case in suite.findall("testcase")}
    assert {name: child.tag for name, child in cases.items()} == {
        "groundedness>=0.5": "system-out",
        "groundedness>=baseline-0.02": "failure",
        "answer_relevance>=baseline-0.02": "system-out",
        "chunk_utilization>=baseline-0.02": "error",
    }
    failed = cases["groundedness>=baseline-0.02"].get("message")
    assert failed.startswith("mean 1.000 → 0.800, −0.200 [")
    assert "most on t0 (1.000 → 0.000), t1 (1.000 → 0.000)" in failed
    properties = {item.get("name"): item.get("value") for item in suite.findall("properties/property")}
    assert "200 pairs of traces by id" in properties["comparison"]


def test_the_report_shows_what_a_metric_is_decided_on(guarded):
    """Means, difference, pairs and how many are needed; the terms of the comparison below the tables."""
    thresholds, metrics, terms = build_gate(guarded).body
    assert isinstance(thresholds, Table)
    assert isinstance(metrics, Table)
    rows = {row[0].word: row for row in metrics.rows}
    assert rows["fail"][1] == StyledText("groundedness>=baseline-0.02", "code")
    assert rows["fail"][2] == "1.000 → 0.800"
    assert rows["fail"][5] == "200"
    unsure = next(item for item in guarded.regression_decisions if item.result == "cannot tell")
    assert rows["cannot tell"][6] == f"≈ {unsure.needed:,}"
    assert "p corrected by Holm" in terms.text


def test_json_says_all_of_the_baseline(guarded):
    """Every field stands in the JSON."""
    data = json.loads(encode_document(guarded))
    assert data["result"] == "fail"
    assert [item["result"] for item in data["regression"]["decisions"]].count("fail") == 1


# --- the verb --------------------------------------------------------------------------------------


def run_gate(capsys, *arguments) -> tuple[int, str]:
    """Run `ragfault gate`; return its exit code and output."""
    code = command(["gate", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def test_the_verb_beside_a_baseline(tmp_path, capsys, monkeypatch):
    """Exit 1, 0 or 3 by what was decided; flags go before ragfault.toml, which goes before the defaults."""
    monkeypatch.chdir(tmp_path)
    run_of(tmp_path, "old", "s" * 200)
    run_of(tmp_path, "new", "s" * 170 + "u" * 30)
    pairs = ("new/run", "--baseline", "old/run")
    assert run_gate(capsys, *pairs)[0] == 1
    assert run_gate(capsys, *pairs, "--max-drop", "0.2")[0] == 0
    assert run_gate(capsys, *pairs, "--margins", "groundedness=0.16")[0] == 3
    Path("ragfault.toml").write_text("[gate]\nmax_drop = 0.2\nalpha = 0.01\n", "utf-8")
    code, text = run_gate(capsys, *pairs)
    assert code == 3
    assert "alpha 0.01" in text
    Path("ragfault.toml").write_text("[gate]\nmax_drop = 0.01\nmargins = { groundedness = 0.2 }\n", "utf-8")
    assert run_gate(capsys, *pairs)[0] == 0
    assert run_gate(capsys, *pairs, "--margins", "groundedness=0.02", "--threshold", "groundedness>=0.5")[0] == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-m", "groundedness", "--max-drop", "0.1"], "--metrics, --max-drop: this needs a baseline"),
        (["--baseline", "old/run", "--margins", "0.04"], "write METRIC=VALUE"),
        (["--baseline", "old/run", "--margins", "groundedness=0"], "above 0"),
        (["--baseline", "old/run", "--max-drop", "0"], "--max-drop"),
        (["--baseline", "nope"], "no run at nope"),
    ],
)
def test_the_verb_refuses(tmp_path, capsys, monkeypatch, arguments, says):
    """What cannot be asked for is one message and exit code 2."""
    monkeypatch.chdir(tmp_path)
    run_of(tmp_path, "old", "ss")
    code, text = run_gate(capsys, "old/run", *arguments)
    assert (code, says in " ".join(text.split())) == (2, True)


def test_the_verb_judges_the_baseline_again(tmp_path, capsys, monkeypatch):
    """`--rejudge` holds against the baseline as the run's judge sees it; without it another judge is refused."""
    monkeypatch.chdir(tmp_path)
    run_of(tmp_path, "old", "s" * 3)
    evaluate(Run.open("old/run").traces(), "new", metrics=["groundedness"])
    pairs = ("new", "--baseline", "old/run", "-m", "groundedness")
    code, text = run_gate(capsys, *pairs)
    assert (code, "--rejudge" in text) == (2, True)
    code, text = run_gate(capsys, *pairs, "--rejudge", "--max-drop", "0.999")
    assert code in (0, 3)
    assert "judging 3 traces of old/run again" in text


def test_the_settings_of_the_gate_are_checked(tmp_path, capsys, monkeypatch):
    """A margin of nothing, or an alpha that is none, is an error that says what the key holds."""
    monkeypatch.chdir(tmp_path)
    run_of(tmp_path, "old", "ss")
    for text, says in (
        ("margins = { groundedness = 0 }", "a table of metrics, each with a number above 0"),
        ("alpha = 1.0", "a number between 0 and 1"),
        ("max_drop = -0.1", "a number between 0 and 1"),
    ):
        Path("ragfault.toml").write_text(f"[gate]\n{text}\n", "utf-8")
        code, shown = run_gate(capsys, "old/run", "--baseline", "old/run")
        assert (code, says in shown) == (2, True), shown


@pytest.mark.parametrize("name", ["manifest.json", "traces.parquet", "verdicts.parquet", "scores.parquet"])
@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_a_damaged_run_never_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, damage: str):
    """A run or a baseline with one flipped bit, or cut short, in any file is an error that names the file."""
    run = evaluate_pairs(tmp_path / "a", signs("s" * 40), ["groundedness"])
    other = evaluate_pairs(tmp_path / "b", signs("s" * 40), ["groundedness"])
    asked = ["gate", str(run.path), "--threshold", "groundedness>=0.5", "--baseline", str(other.path)]
    assert command(asked) == 0
    for at, path in enumerate((run.path / name, other.path / name)):
        content = path.read_bytes()
        bad = bytearray(content)
        bad[len(bad) // 2] ^= 1
        path.write_bytes(bad if damage == "flipped" else content[: len(content) // 2])
        os.utime(path, ns=(at, at))
        capsys.readouterr()
        assert command(asked) == 2
        captured = capsys.readouterr()
        assert str(path) in captured.err
        assert "Traceback" not in captured.err + captured.out
        path.write_bytes(content)
        os.utime(path, ns=(at + 9, at + 9))


# --- dependence -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("talks", [False, True])
def test_copies_of_one_trace_are_one_observation(talks, tmp_path):
    """Fifty copies of one trace, each in a conversation of its own or in none, meet no target and pass no gate."""
    trace, seen = pair("t", "h", "s")
    pairs = [
        (changed(trace, id=f"t{n}", conversation=f"c{n}" if talks else None), changed(seen, trace=f"t{n}"))
        for n in range(50)
    ]
    run = evaluate_pairs(tmp_path / "copies", pairs)
    text = "only 1 independent"
    summary = " ".join(render_terminal(build_verdict(analyze(run))).split())
    assert f"run 50 traces, {text}" in summary
    assert "Targets met" not in summary
    result = gate(run, ["groundedness>=0.85"])
    assert result.result == "cannot tell"
    assert text in result.decisions[0].reason
    assert result.decisions[0].reason.endswith("more independent scored traces are needed")


def test_one_query_with_other_chunks_or_another_history_is_another_observation(tmp_path):
    """An instruction given with other chunks each time, or after other turns, is not one query asked again."""
    trace, seen = pair("t", "h", "s")
    chunks = [(changed(trace.chunks[0], text=f"Fact {n} of the harbour."),) for n in range(40)]
    pairs = [(changed(trace, id=f"t{n}", chunks=part), changed(seen, trace=f"t{n}")) for n, part in enumerate(chunks)]
    turns = [(ConversationTurn("user", f"Tell me about harbour {n}."),) for n in range(40)]
    asked = [(changed(trace, id=f"t{n}", history=part), changed(seen, trace=f"t{n}")) for n, part in enumerate(turns)]
    for name, several in (("chunks", pairs), ("turns", asked)):
        assert gate(evaluate_pairs(tmp_path / name, several), ["groundedness>=0.85"]).result == "pass"
