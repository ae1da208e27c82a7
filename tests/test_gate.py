"""Laws of bars and of the gate."""

from __future__ import annotations

import json
import math
from xml.etree import ElementTree

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ragfault.errors import UnknownName, UsageError
from ragfault.findings import Bar, Gate, decide, gate, read_bar
from ragfault.records import Latency
from ragfault.report import gate as report
from ragfault.report import tables
from ragfault.stats import Interval
from ran import pair, ran

shares = st.floats(0, 1)


def signs(text):
    """A trace for each claim: s supported, u unsupported, - no claim."""
    return [pair(f"t{at}", "h", sign.strip("-")) for at, sign in enumerate(text)]


# --- bars ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "bar"),
    [
        ("groundedness>=0.85", Bar("groundedness", ">=", 0.85)),
        (" latency <= 2000 ", Bar("latency", "<=", 2000.0)),
        ("refusal<.1", Bar("refusal", "<", 0.1)),
        ("refusal ≤ 1e-1", Bar("refusal", "<=", 0.1)),
        ("ndcg(gain=exponential)@10>=0.5", Bar("ndcg(gain=exponential)@10", ">=", 0.5)),
        ('mine(sign=">=", n=2)>-1', Bar('mine(sign=">=", n=2)', ">", -1.0)),
    ],
)
def test_a_bar_is_read_from_its_text(text, bar):
    """A metric with its parameters, a sign, a number; white space around them does not count."""
    assert read_bar(text) == bar


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
def test_anything_else_is_no_bar(text):
    """A text that is not a bar is refused with an example."""
    with pytest.raises(UsageError, match=r"groundedness>=0\.85"):
        read_bar(text)


@given(
    st.sampled_from(["groundedness", "recall(relevant=2)@20"]),
    st.sampled_from([">=", ">", "<=", "<"]),
    st.integers(-99, 99),
)
def test_a_bar_prints_as_it_is_read(metric, sign, hundredths):
    """print → read gives the same bar."""
    bar = Bar(metric, sign, hundredths / 100)
    assert read_bar(str(bar)) == bar


@given(shares, shares, shares, st.sampled_from([">=", ">", "<=", "<"]))
def test_a_bar_is_decided_on_the_ends_of_the_interval(low, high, value, sign):
    """Pass and fail need the whole interval; a bar and its opposite are never both passed or both failed."""
    assume(low <= high)
    interval = Interval((low + high) / 2, low, high, 9, 9)
    opposite = {">=": "<", ">": "<=", "<=": ">", "<": ">="}[sign]
    results = {decide(Bar("m", sign, value), interval), decide(Bar("m", opposite, value), interval)}
    assert results in ({"pass", "fail"}, {"cannot tell"})
    assert (results == {"cannot tell"}) <= (low <= value <= high)


# --- the gate --------------------------------------------------------------------------------------


def test_pass_fail_and_cannot_tell(tmp_path):
    """40 supported answers pass 0.85, fail < 0.5, and cannot tell 0.99 from 1."""
    run = ran(tmp_path, signs("s" * 40), ["groundedness", "refusal"])
    found = gate(run, ["groundedness>=0.85", "groundedness<0.5", "groundedness>=0.99", "refusal<0.1"])
    assert [item.result for item in found.decisions] == ["pass", "fail", "cannot tell", "pass"]
    assert (found.result, found.code, found.traces) == ("fail", 1, 40)


def test_the_code_of_the_whole(tmp_path):
    """0 where all pass, 3 where some cannot tell, 1 where any fails."""
    run = ran(tmp_path, signs("s" * 40), ["groundedness"])
    assert gate(run, ["groundedness>=0.85"]).code == 0
    assert gate(run, ["groundedness>=0.85", "groundedness>=0.99"]).code == 3
    assert gate(run, ["groundedness<0.85", "groundedness>=0.99"]).code == 1


def test_cannot_tell_says_how_many_traces_would(tmp_path):
    """The number named narrows the interval, at the same shares, to about the distance of the bar."""
    run = ran(tmp_path, signs("su" * 10), ["groundedness"])
    decision = gate(run, ["groundedness>=0.4"]).decisions[0]
    low = decision.aggregate.interval.low
    assert decision.result == "cannot tell"
    assert decision.needed == math.ceil(20 * ((0.5 - low) / 0.1) ** 2)
    assert f"about {decision.needed:,} scored traces" in decision.reason
    (tmp_path / "more").mkdir()
    more = ran(tmp_path / "more", signs("su" * math.ceil(decision.needed * 0.6)), ["groundedness"])
    assert gate(more, ["groundedness>=0.4"]).result == "pass"


def test_all_perfect_needs_fewer_than_the_square(tmp_path):
    """Where every trace is perfect the interval shrinks with the number, and so does what is asked for."""
    run = ran(tmp_path, signs("s" * 20), ["groundedness"])
    needed = gate(run, ["groundedness>=0.9"]).decisions[0].needed
    assert 20 < needed < 40
    (tmp_path / "more").mkdir()
    assert (
        gate(ran(tmp_path / "more", signs("s" * 40), ["groundedness"]), ["groundedness>=0.9"]).result
        == "pass"
    )


def test_a_mean_on_the_bar_can_never_be_told(tmp_path):
    """No number of traces is named where the mean stands on the bar, or where there is one trace."""
    decision = gate(ran(tmp_path, signs("su" * 4), ["groundedness"]), ["groundedness>=0.5"]).decisions[0]
    assert (decision.result, decision.needed) == ("cannot tell", None)
    (tmp_path / "one").mkdir()
    decision = gate(ran(tmp_path / "one", signs("s"), ["groundedness"]), ["groundedness>=0.5"]).decisions[0]
    assert (decision.result, decision.needed) == ("cannot tell", None)


def test_low_coverage_cannot_pass_but_can_fail(tmp_path):
    """With 30 of 90 traces scored a bar is not passed, unless less is asked for; one that fails still fails."""
    run = ran(tmp_path, signs("s" * 30 + "-" * 60), ["groundedness"])
    decision = gate(run, ["groundedness>=0.5"]).decisions[0]
    assert (decision.result, decision.coverage) == ("cannot tell", pytest.approx(1 / 3))
    assert "only 30 of 90 traces are scored (33%" in decision.reason
    assert "the answer makes no claim" in decision.reason
    assert gate(run, ["groundedness>=0.5"], coverage=0.3).result == "pass"
    assert gate(run, ["groundedness<0.5"]).result == "fail"


def test_nothing_scored_cannot_be_told(tmp_path):
    """A metric without a value decides nothing, and the decision says why there is none."""
    decision = gate(ran(tmp_path, signs("ss"), ["ndcg@10"]), ["ndcg@10>=0.5"], coverage=0).decisions[0]
    assert decision.result == "cannot tell"
    assert decision.reason == "no trace is scored (no gold)"


def test_a_metric_that_is_not_in_the_run_is_an_error(tmp_path):
    """The message offers the nearest that is."""
    run = ran(tmp_path, signs("s"), ["groundedness", "ndcg@10"])
    with pytest.raises(UnknownName, match='Did you mean "groundedness"'):
        gate(run, ["groundednes>=0.5"])
    assert gate(run, ["ndcg @ 10>=0.5"]).decisions[0].bar.metric == "ndcg@10"


@pytest.mark.parametrize("bar", ["groundedness>=85", "groundedness>=-0.1", "latency<-1"])
def test_a_bar_outside_the_range_is_an_error(tmp_path, bar):
    """A percentage for a share would always fail; it is refused instead."""
    run = ran(tmp_path, signs("s"), ["groundedness", "latency"])
    with pytest.raises(UsageError, match="lies between 0 and"):
        gate(run, [bar])


def test_no_bars_and_no_share_are_errors(tmp_path):
    """A gate without bars would pass everything."""
    run = ran(tmp_path, signs("s"), ["groundedness"])
    with pytest.raises(UsageError, match="no bar"):
        gate(run, [])
    with pytest.raises(UsageError, match="coverage"):
        gate(run, ["groundedness>0"], coverage=50)


def test_a_metric_without_end_is_decided_too(tmp_path):
    """Latencies of 100 and 110 ms lie below 2,000 and above 50."""
    made = [pair(f"t{at}", "h", "s", latency=Latency(total=100.0 + 10 * (at % 2))) for at in range(20)]
    found = gate(ran(tmp_path, made, ["latency"]), ["latency<=2000", "latency<50"])
    assert [item.result for item in found.decisions] == ["pass", "fail"]


# --- its reports -----------------------------------------------------------------------------------


@pytest.fixture
def decided(tmp_path) -> Gate:
    run = ran(tmp_path, signs("s" * 40), ["groundedness", "refusal"])
    return gate(run, ["groundedness>=0.85", "groundedness<0.5", "refusal<0.01"])


def test_junit_counts_and_tells(decided):
    """A failed bar is a failure, one that cannot be told an error, each with its reason; a passed one is neither."""
    text = report.junit(decided)
    assert text.startswith('<?xml version="1.0" encoding="UTF-8"?>\n')
    root = ElementTree.fromstring(text)
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("3", "1", "1")
    cases = root.findall("testsuite/testcase")
    assert [case.get("name") for case in cases] == ["groundedness>=0.85", "groundedness<0.5", "refusal<0.01"]
    assert [[child.tag for child in case] for case in cases] == [["system-out"], ["failure"], ["error"]]
    assert "the whole interval misses the bar" in cases[1][0].get("message")
    assert cases[0].get("classname") == "ragfault.generation"


def test_junit_holds_any_text(tmp_path):
    """Markup and control characters of a judge's message do not break the XML."""
    from msgspec.structs import replace

    trace, seen = pair("a", "h", "s")
    lost = replace(seen, claim=None, failures={"claim": "]]> <b>&\x1b[31m\x00\ufffe\x0b ende"})
    found = gate(ran(tmp_path, [(trace, lost)], ["groundedness"]), ["groundedness>=0.5"])
    message = ElementTree.fromstring(report.junit(found)).find("testsuite/testcase/error").get("message")
    assert message == "no trace is scored (]]> <b>& ende)"


def test_markdown_is_one_table(decided):
    """A row for each bar; the bar is code."""
    lines = report.markdown(decided).splitlines()
    assert lines[0].startswith("### ❌ fail: run, 40 traces, 1 pass, 1 fail, 1 cannot tell of 3 bars")
    assert len(lines) == 2 + 2 + 3
    assert "`groundedness>=0.85`" in lines[4]


def test_json_says_the_result(decided):
    """The JSON of a gate holds its result beside the decisions."""
    data = json.loads(tables.to_json(decided))
    assert data["result"] == "fail"
    assert [item["result"] for item in data["decisions"]] == ["pass", "fail", "cannot tell"]


def test_terminal_says_all(decided):
    """Result, bar and reason of each, the whole last; without colour there is no escape sequence."""
    text = report.terminal(decided, width=80)
    assert "\x1b" not in text
    assert "pass        groundedness>=0.85" in text
    assert text.splitlines()[-1] == "run: fail, 1 pass, 1 fail, 1 cannot tell of 3 bars"
    assert "\x1b[32m" in report.terminal(decided, width=80, colour=True)
    assert max(map(len, report.terminal(decided, width=50).splitlines())) <= 50
