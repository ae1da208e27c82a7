"""Comparisons and bisections in the terminal, as Markdown and as JSON: true, plain, and harmless."""

from __future__ import annotations

import json
import math
import re

import pytest
from msgspec.structs import replace

from ragfault import evaluate
from ragfault.comparison.bisection import bisect, bisect_segments
from ragfault.comparison.compare import compare, compare_segments
from ragfault.comparison.gate.gate import gate
from ragfault.comparison.paired_runs import pair_runs
from ragfault.comparison.records import Bisection, Comparison
from ragfault.comparison.settings import ComparisonSettings
from ragfault.io.runs.run import Run
from ragfault.model.records import Chunk, Citation, Latency, Trace
from ragfault.report import comparison_wording
from ragfault.report.builders.bisection import build_bisection
from ragfault.report.builders.comparison import build_comparison
from ragfault.report.json_documents import encode_document
from ragfault.report.renderers.markdown import render_markdown
from ragfault.report.renderers.terminal import render_terminal
from remembered import LEXICAL
from sample_reports import HOSTILE
from sample_runs import evaluate_pairs, pair


@pytest.fixture(scope="module")
def compared(runs: tuple[Run, Run]) -> Comparison:
    return compare(*runs)


@pytest.fixture(scope="module")
def bisected(runs: tuple[Run, Run]) -> Bisection:
    return bisect(*runs)


def attack(at: int, levels: str) -> tuple:
    """Build a trace in which every text is an attack; without relevant chunks its answer has no support."""
    trace, seen = pair(f"{HOSTILE}{at}", levels, "u" if "h" not in levels else "s", route=HOSTILE)
    chunks = tuple(Chunk(id=f"{levels}{chunk.id}", text=f"{HOSTILE} | {levels}") for chunk in trace.chunks)
    trace = replace(
        trace, query=f"{HOSTILE} | `{at}`", chunks=chunks, model=f"{HOSTILE}{levels}", answer=f"{trace.answer} {levels}"
    )
    return trace, replace(
        seen,
        chunk=tuple(replace(v, chunk=c.id) for v, c in zip(seen.chunk, chunks, strict=True)),
        use=tuple(replace(v, chunk=c.id) for v, c in zip(seen.use, chunks, strict=True)),
    )


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """Runs of hostile texts, the second with worse chunks."""
    folder = tmp_path_factory.mktemp("<b>hostile")
    sides = []
    for name, levels in (("old|<script>", "hh"), ("new", "nn")):
        (folder / name).mkdir()
        sides.append(evaluate_pairs(folder / name, [attack(at, levels) for at in range(30)]))
    return sides[0], sides[1]


def test_every_metric_that_is_measured_has_a_line(compared: Comparison):
    """In the terminal and in Markdown each measured metric stands with means and difference; the others are named."""
    text, page = (render_terminal(build_comparison(compared), width=140), render_markdown(build_comparison(compared)))
    for change in compared.changes:
        shown = rf"^{re.escape(change.metric)}( ↓)?  "
        assert (re.search(shown, text, re.MULTILINE) is not None) == (change.n > 0)
        assert change.metric in text
        assert f"`{change.metric}`" in page
        if change.n:
            assert comparison_wording.format_means(change) in text
            assert comparison_wording.format_change(change) in page


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_no_line_is_wider_than_the_terminal(compared: Comparison, bisected: Bisection, width: int):
    """At any width the text fits, without colour there is no escape sequence, with colour there is."""
    for result, build in ((compared, build_comparison), (bisected, build_bisection)):
        text = render_terminal(build(result), width=width)
        assert max(map(len, text.splitlines())) <= width
        assert "\x1b" not in text
        assert "\x1b[" in render_terminal(build(result), width=width, color=True)


def test_what_got_worse_names_losers_before_winners(compared: Comparison):
    """The traces that moved most stand with both values; a metric where lower is better counts its rises as losses."""
    waste = next(change for change in compared.changes if change.metric == "context_waste")
    assert (waste.state, waste.verdict) == ("rose", "worse")
    assert comparison_wording.summarize_movers(waste).startswith(
        f"{waste.rose} traces worse: {waste.gains[0].trace} (0.000 → 1.000)"
    )
    section = render_markdown(build_comparison(compared)).split("What got worse")[1]
    assert "context_waste" in section
    assert "tokens" not in section


def test_the_terminal_names_the_traces_of_the_surest_losses_and_counts_the_others(compared: Comparison):
    """Five metrics are enough to look at; Markdown has all."""
    section = render_terminal(build_comparison(compared), width=400).split("What got worse")[1]
    lost = comparison_wording.list_regressions(compared.changes)
    assert [name for line in section.splitlines()[1:6] for name in line.replace(":", "").split()[:1]] == [
        item.metric for item in lost[:5]
    ]
    assert f"and {len(lost) - 5} more" in section


def test_cannot_tell_says_how_many_would(compared: Comparison):
    """Beside a metric that cannot be told stands about how many pairs would tell."""
    [change] = [item for item in compared.changes if item.metric == "answer_relevance"]
    assert comparison_wording.describe_verdict(change) == f"cannot tell (n ≈ {change.needed:,})"
    row = next(
        r for r in render_terminal(build_comparison(compared), width=100).splitlines() if "answer_relevance " in r
    )
    assert re.search(rf"\? cannot tell +{change.needed:,}", row)


def test_the_first_line_of_markdown_is_the_verdict(compared: Comparison, bisected: Bisection):
    """A pull request's comment says what came of it before anything else."""
    assert render_markdown(build_bisection(bisected)).splitlines()[0].startswith("### ❌ fault: Retrieval broke")
    assert re.match(r"### 🔻 worse: \d+ of \d+ answers became bad", render_markdown(build_comparison(compared)))


def test_a_bisection_says_sentence_suspects_and_every_branch(bisected: Bisection):
    """The terminal and Markdown hold the sentence, each fault's suspects and remedies, and all branches with why."""
    for text in (render_terminal(build_bisection(bisected), width=400), render_markdown(build_bisection(bisected))):
        plain = re.sub(r"&#(\d+);", lambda match: chr(int(match[1])), text)
        assert bisected.sentence in plain
        for ruling in bisected.tree:
            assert ruling.branch in plain
            assert comparison_wording.format_ruling_reason(ruling) in plain
        assert all(f"{suspect.stage} (" in plain for suspect in bisected.faults[0].suspects)
        assert "; ".join(bisected.faults[0].remedies) in plain
        assert all(clue.text in plain for clue in bisected.differences)
        assert bisected.faults[0].examples[0].trace in plain


def test_json_holds_all_and_no_infinity(compared: Comparison, bisected: Bisection):
    """Every field under its name, each change with its verdict, an infinite end null."""
    data = json.loads(encode_document(compared))
    assert [row["verdict"] for row in data["changes"]] == [change.verdict for change in compared.changes]
    data = json.loads(encode_document(bisected))
    assert (data["verdict"], data["faults"][0]["layer"]) == ("fault", "retrieval")
    assert data["faults"][0]["evidence"][0]["verdict"] == "worse"
    first = compared.changes[0]
    endless = replace(first, difference=replace(first.difference, low=-math.inf))
    text = encode_document(replace(compared, changes=(endless,)))
    assert json.loads(text)["changes"][0]["difference"]["low"] is None
    assert "−∞" in render_terminal(build_comparison(replace(compared, changes=(endless,))), width=140)


@pytest.mark.long
def test_segments_stand_one_after_the_other(runs: tuple[Run, Run]):
    """Each segment has its line and its verdict; the parts of a comparison are told apart by name."""
    side = pair_runs(*runs)
    parts = compare_segments(side, "route", ComparisonSettings(metrics=["groundedness"]))
    text = render_terminal(build_comparison(parts), width=140)
    assert [part.segment for part in parts] == re.findall(r"^route (\w+): ", text, re.MULTILINE)
    assert len(json.loads(encode_document(parts))) == 6
    assert render_markdown(build_comparison(parts)).count("\n#### route ") == 6
    assert "23 pairs by id" in text
    segments = bisect_segments(side, "route")
    assert "23 pairs by id" in render_terminal(build_bisection(segments, "route"), width=200)
    page = render_markdown(build_bisection(segments, "route"))
    assert page.startswith("### ❌ fault: 6 segments by route: ")
    assert all(f"| {name} |" in page for name, _ in segments)


def test_hostile_texts_do_nothing(attacked: tuple[Run, Run]):
    """No escape sequence reaches a terminal, no markup and no cell's end reaches Markdown."""
    result = bisect(*attacked)
    assert result.verdict == "fault"
    assert result.faults[0].examples
    segments = bisect_segments(pair_runs(*attacked), "route")
    compared = compare(*attacked)
    texts = [
        render_terminal(build_bisection(result), width=100),
        render_terminal(build_bisection(segments, "route"), width=100),
        render_terminal(build_comparison(compared), width=100),
    ]
    pages = [
        render_markdown(build_bisection(result)),
        render_markdown(build_bisection(segments, "route")),
        render_markdown(build_comparison(compared)),
    ]
    for text in [*texts, *pages]:
        assert not set(text) & {"\x1b", "\u202e", "\u2028"}
    for page in pages:
        assert "<script" not in page
        assert "<img" not in page
        for block in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
            assert len({line.count("|") for line in block.splitlines()}) == 1


def test_the_same_run_twice_is_never_a_fault(runs: tuple[Run, Run]):
    """A run beside itself: no metric is worse or better, and no branch is at fault."""
    result = bisect(runs[0], runs[0])
    assert result.verdict == "no fault"
    text = render_terminal(build_bisection(result), width=400)
    assert "▼" not in text
    assert "▲" not in text
    assert "✗" not in text
    assert "identical chunks on every pair; identical answers and citations on every pair" in text


def test_runs_that_failed_throughout_have_no_equal_chunks_and_answers(tmp_path):
    """Neither was recorded: that the errors are equal is all that is known of them."""
    traces = [Trace(id=str(at), query=f"When does ferry {at} leave?", error="timeout") for at in range(20)]
    failed = evaluate(traces, tmp_path / "failed", judge=LEXICAL)
    text = render_terminal(build_comparison(compare(failed, failed)), width=140)
    assert "chunks on every pair" not in text
    assert "answers on every pair" not in text
    assert "same chunks" not in text


def test_answers_that_lost_their_citations_alone_are_not_called_other_answers(tmp_path):
    """Where one side records citations, answers are counted with their citations, and called so."""
    chunk = Chunk(id="a", text="The ferry leaves at 09:30.")
    cited = [
        Trace(
            id=str(at),
            query="When?",
            chunks=(chunk,),
            error="timed out" if at < 7 else None,
            answer=None if at < 7 else "At 09:30.",
            citations=None if at < 7 else (Citation(chunk="a"),),
        )
        for at in range(12)
    ]
    sides = [cited, [replace(trace, citations=None) for trace in cited]]
    runs = [evaluate(side, tmp_path / str(at), judge=LEXICAL) for at, side in enumerate(sides)]
    text = render_terminal(build_comparison(compare(*runs)), width=400)
    assert "identical answers and citations on 7 of them" in text
    assert "identical answers on" not in text


def test_what_few_pairs_have_in_common_goes_without_saying(runs: tuple[Run, Run]):
    """Answers that are identical on fewer than half of the pairs are not mentioned."""
    compared = compare(*runs)
    assert 0 < 2 * compared.same_answers < compared.pairs
    assert "identical" not in render_terminal(build_comparison(compared), width=400)


@pytest.mark.parametrize("count", [1, 7, 8])
def test_of_fewer_than_eight_pairs_no_interval_no_p_and_no_verdict_is_printed(tmp_path, count):
    """Below eight independent pairs a change is its size alone, and whoever reads it is told why."""
    sides = [
        [
            Trace(
                id=f"{at}", query=f"Question {at}?", answer="Yes.", latency=Latency(total=700 + at + slower * (9 + at))
            )
            for at in range(count)
        ]
        for slower in (0, 100)
    ]
    runs = [evaluate(side, tmp_path / str(at), metrics=["latency"], judge="none") for at, side in enumerate(sides)]
    compared = compare(*runs)
    text = render_terminal(build_comparison(compared), width=400)
    few = count < 8
    assert ("[too few]" in text) == few
    assert ("fewer than 8 independent pairs" in text) == few
    assert (compared.changes[0].p is None, compared.changes[0].verdict == "cannot tell") == (few, few)
    assert "∞" not in text
    [decision] = gate(runs[1], baseline=runs[0], metrics=["latency"]).regression_decisions
    assert (decision.result == "cannot tell") == few
