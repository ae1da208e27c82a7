"""Laws of the controls: a layer is blamed only for what moves more where its own output changed."""

from __future__ import annotations

import html
import re

import numpy as np
import pytest
from msgspec.structs import replace

from ragfault.comparison.bisection import bisect
from ragfault.comparison.controls import FINDS_LESS, RANKS_LOWER, judge_crossed, measure_excess
from ragfault.comparison.decision_tree import BAD_ANSWERS, RIGHT_ANSWERS, bound_drop, excludes_drop, excludes_harm
from ragfault.comparison.gate.gate import gate
from ragfault.comparison.paired_runs import pair_runs
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.datasets.demo_handbook import load_handbook
from ragfault.stats.distributions import t_quantile
from ragfault.stats.significance import equivalence_test, mcnemar_test
from remembered import LEXICAL

METRICS = ["recall@5", "ndcg@10", "context_relevance", "groundedness", "completeness", "chunk_attribution"]
TRACES = [trace for trace in load_handbook().traces["v1"] if trace.answer and trace.chunks]
FIGURE = re.compile(r"\d+")
BARE = [replace(trace, gold=None, facts=None, reference=None) for trace in TRACES]


def bisect_change(folder, old, change):
    """Bisect traces and what a change makes of them, judged by words."""
    new = [change(number, trace) for number, trace in enumerate(old)]
    return bisect(
        *(evaluate(side, folder / name, metrics=METRICS, judge=LEXICAL) for name, side in (("a", old), ("b", new)))
    )


def escape(_, trace):
    """Escape the chunk texts as HTML, as a logger does."""
    texts = [html.escape(chunk.text).replace(" ", "&nbsp;", 3) for chunk in trace.chunks]
    return replace(trace, chunks=tuple(replace(c, text=t) for c, t in zip(trace.chunks, texts, strict=True)))


def put_other_chunks_first(number, trace):
    """Put the chunks of another query before those that were read."""
    return replace(trace, chunks=(*TRACES[number - 1].chunks[:2], *trace.chunks))


def invent(number, trace):
    """Add what another query was answered to every second answer: the chunks do not say it."""
    return replace(trace, answer=f"{trace.answer} {TRACES[number - 9].answer}") if number % 2 else trace


def test_an_excess_is_the_difference_of_two_means():
    """What moves alike on both sides is no excess; its interval holds the true excess in about 95 % of samples."""
    rng = np.random.default_rng(0)
    changed = np.arange(60) < 25
    inside = 0
    for _ in range(400):
        excess = measure_excess(rng.normal(-0.3, 0.2, 60) - 0.1 * changed, changed)
        inside += excess.low <= -0.1 <= excess.high
    assert 0.92 <= inside / 400 <= 0.98


def test_copies_of_a_cluster_are_one_observation():
    """Ten attempts of each query, all alike, leave the interval of a single attempt."""
    rng = np.random.default_rng(0)
    moved, changed, groups = rng.normal(size=30), np.arange(30) < 15, np.arange(30)
    single = measure_excess(moved, changed, groups)
    copied = measure_excess(np.repeat(moved, 10), np.repeat(changed, 10), np.repeat(groups, 10))
    assert (copied.mean, copied.high) == pytest.approx((single.mean, single.high))
    assert single.high - single.mean > t_quantile(0.9, 29) * 0.2


def test_an_excess_needs_both_sides():
    """Without unchanged pairs there is no control."""
    with pytest.raises(ValueError, match="unchanged"):
        measure_excess(np.zeros(3), np.ones(3, bool))


@pytest.mark.parametrize("traces", [TRACES, BARE], ids=["key", "none"])
def test_a_record_that_changed_breaks_no_layer(traces, tmp_path):
    """Escaped chunk texts under the same ids, beside the same answers, blame nobody."""
    assert bisect_change(tmp_path, traces, escape).faults == ()


@pytest.mark.parametrize("change", [escape, lambda _, trace: trace], ids=["escaped", "same"])
def test_inventions_are_blamed_beside_a_changed_record(change, tmp_path):
    """Generation is blamed for what the invented answers add, whatever the record of the chunks became."""
    result = bisect_change(tmp_path, BARE, lambda number, trace: invent(number, change(number, trace)))
    assert [fault.layer for fault in result.faults] == ["generation"]


def test_other_chunks_under_the_same_answers_are_no_fault_without_gold(tmp_path):
    """A judge finds other chunks less relevant; as long as no answer changes, nothing says that it matters."""
    result = bisect_change(tmp_path, BARE, put_other_chunks_first)
    assert result.faults == ()
    assert result.verdict == "cannot tell"


def lose_gold(number, trace):
    """Return a trace whose gold chunks are replaced by those of another query."""
    gold = set(trace.gold.chunks) if trace.gold and trace.gold.chunks else set()
    rest = [chunk for chunk in trace.chunks if chunk.id not in gold]
    others = [chunk for chunk in TRACES[number - 7].chunks if chunk.id not in gold]
    return replace(trace, chunks=(*rest, *others)[: len(trace.chunks)])


@pytest.mark.parametrize(("change", "title"), [(put_other_chunks_first, RANKS_LOWER), (lose_gold, FINDS_LESS)])
def test_lower_gold_under_the_same_answers_has_a_title_of_its_own(change, title, tmp_path):
    """Where gold stands lower or is gone and answers are the same, the fault says so, and not that retrieval broke."""
    assert [fault.title for fault in bisect_change(tmp_path, TRACES, change).faults] == [title]


def test_an_empty_list_beside_citations_was_not_recorded(tmp_path):
    """Answers that cite chunks were given some, so that empty lists are a mismatch of the record."""
    result = bisect_change(tmp_path, TRACES, lambda _, trace: replace(trace, chunks=()))
    assert result.faults == ()
    assert [m.kind for m in result.comparison.mismatches if m.blocks] == ["fields"]


def test_answers_are_judged_crosswise(tmp_path):
    """The former answers lose their support on the chunks of other queries, and the same answers have none either."""
    lists = [replace(t, chunks=TRACES[n - 1].chunks) for n, t in enumerate(BARE)]
    sides = [evaluate(s, tmp_path / str(n), metrics=METRICS, judge=LEXICAL) for n, s in enumerate((BARE, lists))]
    crossed = judge_crossed(pair_runs(*sides))
    assert np.nanmean(crossed.old_on_new) < -0.3
    assert np.nanmax(np.abs(crossed.new_on_old)) == 0


def test_a_gate_fails_nothing_that_the_controls_take_back(tmp_path):
    """A drop that is as large where the answers are the same neither passes nor fails."""
    runs = [
        evaluate([change(n, t) for n, t in enumerate(BARE)], tmp_path / name, metrics=METRICS, judge=LEXICAL)
        for name, change in (("a", lambda _, trace: trace), ("b", escape))
    ]
    assert gate(runs[1], baseline=runs[0]).result != "fail"


def test_a_verdict_states_the_largest_drop_that_is_not_ruled_out(tmp_path):
    """The bound is the gate's: one-sided at 95 %, and no fault exactly if it lies within the margin."""
    result = bisect_change(tmp_path, BARE, lambda n, t: replace(t, answer=f"In short: {t.answer}") if n < 9 else t)
    changes = [change for change in result.comparison.changes if change.metric in METRICS and not change.identical]
    assert changes
    for change in changes:
        low = equivalence_test(change.difference, change.margin, 0.05).low
        assert bound_drop(change) == pytest.approx(max(0.0, -low))
    right = next(change for change in result.comparison.changes if change.metric == RIGHT_ANSWERS)
    unbounded = [c for c in result.comparison.changes if c.n and not excludes_drop(c)]
    assert (result.verdict == "no fault") == all(excludes_harm(change, right) for change in unbounded)


def answer_besides(number, trace):
    """Answer every eighth query with another sentence of its chunks: it is grounded, and not what was asked."""
    texts = [sentence for chunk in trace.chunks for sentence in chunk.text.split("\n\n", 1)[-1].split(". ")]
    others = [
        text
        for text in texts
        if len(text.split()) > 6 and not set(FIGURE.findall(text)) & set(FIGURE.findall(trace.answer))
    ]
    return replace(trace, answer=f"{others[0].rstrip('.')}.") if others and not number % 8 else trace


def test_answers_that_became_bad_on_the_same_chunks_are_a_fault_of_generation(tmp_path):
    """Grounded answers to another question lower no metric by its margin, and the answer key shows the harm."""
    result = bisect_change(tmp_path, TRACES, answer_besides)
    assert [fault.layer for fault in result.faults] == ["generation"]
    assert result.faults[0].evidence[0].metric == BAD_ANSWERS
    answers = result.comparison.answers
    assert result.faults[0].became_bad == answers.became_bad
    assert result.faults[0].evidence[0].p == mcnemar_test(answers.became_right, answers.became_bad)


def test_as_many_answers_that_became_right_are_no_harm(tmp_path):
    """Answers that change both ways blame nobody, and the verdict states a bound."""
    old = [answer_besides(number + 4, trace) for number, trace in enumerate(TRACES)]
    new = [answer_besides(number, trace) for number, trace in enumerate(TRACES)]
    sides = [evaluate(side, tmp_path / name, metrics=METRICS, judge=LEXICAL) for name, side in (("a", old), ("b", new))]
    result = bisect(*sides)
    assert min(result.comparison.answers.became_bad, result.comparison.answers.became_right) >= 8
    assert result.faults == ()
    assert "by more than" in result.sentence


@pytest.mark.parametrize("both", [False, True], ids=["right", "bad"])
def test_the_same_answers_on_the_same_chunks_break_nothing(both, tmp_path):
    """A run compared with itself has no harm, whatever its answers are worth."""
    old = [answer_besides(number, trace) if both else trace for number, trace in enumerate(TRACES)]
    result = bisect_change(tmp_path, old, lambda _, trace: trace)
    assert (result.verdict, result.faults) == ("no fault", ())


def write_markdown(number, trace):
    """Write an answer as a list or with its figures in bold, its citations by the same claims."""
    bold = FIGURE.sub(lambda match: f"**{match[0]}**", trace.answer)
    return replace(trace, answer=f"- {trace.answer}" if number % 2 else bold)


@pytest.mark.parametrize("traces", [TRACES, BARE], ids=["key", "none"])
def test_markdown_is_a_form_and_not_a_fault(traces, tmp_path):
    """Marks without which the answers are the same move no metric of answers, and do not stand against a comparison."""
    result = bisect_change(tmp_path, traces, write_markdown)
    assert (result.verdict, result.faults) == ("no fault", ())
    assert [mismatch.blocks for mismatch in result.comparison.mismatches] == [False]
    assert result.comparison.same_answers == result.comparison.pairs


def test_inventions_in_markdown_are_blamed(tmp_path):
    """Answers that say something else are no form of the former ones, however they are written."""
    result = bisect_change(tmp_path, BARE, lambda number, trace: write_markdown(2 * number, invent(number, trace)))
    assert [fault.layer for fault in result.faults] == ["generation"]


def mark(trace, place):
    """Write the mark of a citation behind an answer, and record no other citation."""
    return replace(trace, answer=f"{trace.answer}{place}", citations=None)


def test_answers_that_lost_the_marks_of_their_citations_cite_nothing(tmp_path):
    """Citations read off marks in the answers are a part of these: without marks an answer has none."""
    old = [mark(trace, " [1]") for trace in TRACES]
    assert [f.branch for f in bisect_change(tmp_path, old, lambda n, _: mark(TRACES[n], "")).faults] == [
        "0 uncited answer"
    ]
    gained = bisect(tmp_path / "b", tmp_path / "a")
    assert (gained.verdict, gained.faults) == ("no fault", ())


def test_marks_that_name_chunks_nobody_recorded_are_not_gone(tmp_path):
    """Without chunks a mark cannot be read as a citation: the record differs, and nobody stopped citing."""
    old = [mark(trace, " [1]") for trace in TRACES]
    result = bisect_change(tmp_path, old, lambda _, trace: replace(trace, chunks=None))
    assert (result.verdict, result.faults) == ("cannot tell", ())
