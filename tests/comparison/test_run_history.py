"""Histories of runs: the runs at which metrics changed, the layer that broke there, recovery and drift."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from benchmarks.faults.changes import clip
from benchmarks.faults.situations import load_demo_traces
from ragfault.cli.commands import run_command
from ragfault.comparison.run_history import RunHistory, history
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.runs.run import Run
from ragfault.model.errors import UnknownName, UsageError
from ragfault.model.records import Trace
from ragfault.report.builders.run_history import build_history, summarize_history
from ragfault.report.json_documents import encode_document
from ragfault.report.renderers.html import render_html_page
from ragfault.report.renderers.markdown import render_markdown
from ragfault.report.renderers.terminal import render_terminal
from remembered import LEXICAL
from sample_runs import evaluate_system, make_verdicts

pytestmark = pytest.mark.long

WATCHED = ("groundedness", "completeness", "recall@3")


def build_chain(place: Path, rates: list[dict[str, float]], n: int = 150) -> list[Run]:
    """Evaluate one run for each release, with its rates of faults."""
    return [evaluate_system(place / f"r{at}", make_verdicts(n, at, **faults)) for at, faults in enumerate(rates, 1)]


@pytest.fixture(scope="module")
def repaired(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Five releases, the third of which invents claims."""
    return build_chain(tmp_path_factory.mktemp("chain"), [{}, {}, {"grounding": 0.3}, {}, {}])


@pytest.fixture(scope="module")
def chain_history(repaired: list[Run]) -> RunHistory:
    return history(repaired)


def test_a_release_that_was_bad_and_repaired_is_worse_then_recovered(chain_history: RunHistory):
    """The headline names the run that broke, its layer, and the run at which it was back; nothing else is accused."""
    grounded = next(entry for entry in chain_history.metrics if entry.metric == "groundedness")
    assert [(shift.state, shift.run) for shift in grounded.shifts] == [("dropped", "r3"), ("rose", "r4")]
    assert grounded.shifts[0].recovered_at == "r4"
    assert chain_history.verdict == "recovered"
    [broken] = chain_history.breaks
    assert (broken.run, broken.layer, broken.recovered_at) == ("r3", "generation", "r4")
    assert "groundedness" in broken.metrics
    assert [step.verdict == "fault" for step in chain_history.steps] == [False, True, False, False]
    assert summarize_history(chain_history).startswith(
        "Worse at r3 (generation: the answers are less grounded in the chunks), recovered at r4: "
    )


def test_a_small_p_without_a_run_is_explained(chain_history: RunHistory):
    """Every metric that cannot be told although its p is small is named below the table with the reason."""
    change, level = chain_history.metrics[0], chain_history.alpha / 2
    doubtful = [
        replace(change, metric="placed nowhere", shifts=(), adjusted=level / 10),
        replace(change, metric="half of alpha", shifts=(), adjusted=1.5 * level),
        replace(change, metric="no change", shifts=(), adjusted=0.7),
    ]
    result = replace(chain_history, metrics=tuple(doubtful))
    texts = (
        re.sub(r"\s+", " ", render_terminal(build_history(result), width=100)),
        render_markdown(build_history(result)).replace("\\", ""),
        re.sub(r"\s+", " ", render_html_page(build_history(result), "bisection")),
    )
    for text in texts:
        assert re.search(r"no run is shown at which it did: [^:]*divided by the 1 metrics[^:]*: placed nowhere", text)
        assert re.search(r"the levels have half of alpha, 0.025: half of alpha \(p 0.0", text)
        assert text.count("no change") == 1


def test_every_format_opens_with_the_verdict(chain_history: RunHistory):
    """Terminal and Markdown open with the verdict and the sentence; JSON carries verdict, breaks, steps and shifts."""
    assert render_terminal(build_history(chain_history), width=400).startswith("RECOVERED: Worse at r3 (generation")
    assert render_markdown(build_history(chain_history)).startswith("### ✅ recovered: Worse at r3")
    plain = json.loads(encode_document(chain_history))
    assert (plain["verdict"], plain["broken"], len(plain["steps"])) == ("recovered", "r3", 4)
    assert plain["breaks"][0]["recovered_at"] == "r4"


def test_the_page_has_each_step_and_the_recovery(repaired: list[Run], tmp_path: Path):
    """`bisect` of a chain writes a page with the verdict, what broke and recovered, each step, and each metric."""
    page = tmp_path / "chain.html"
    assert run_command(["bisect", *(str(run.path) for run in repaired), "-o", str(page)]) == 0
    text = page.read_text("utf-8")
    assert "Worse at r3 (generation" in text
    assert re.search(r'<th scope="row">r3</th><td data-label="Layer">generation</td>.*>at r4</td>', text)
    steps = re.findall(r'</span> ([\w ]+)</span></th><td data-label="Step">(r\d → r\d)</td>', text)
    assert [name for _, name in steps] == ["r1 → r2", "r2 → r3", "r3 → r4", "r4 → r5", "r1 → r5"]
    assert steps[1][0] == "fault"
    assert not re.search(r"<(?:img|link rel=.stylesheet|script src)|https?://", text)


def test_a_recovered_chain_exits_0_and_a_broken_one_1(repaired: list[Run], capsys: pytest.CaptureFixture[str]):
    """The exit code is that of the last release; what was broken in between stands in the first line all the same."""
    paths = [str(run.path) for run in repaired]
    assert run_command(["bisect", *paths]) == 0
    assert "recovered at r4" in capsys.readouterr().out.replace("\n", " ")
    assert run_command(["bisect", *paths[:3]]) == 1
    assert "worse at r3" in capsys.readouterr().out.replace("\n", " ").lower()


def test_a_break_that_lasts_is_a_fault_at_its_run(tmp_path: Path):
    """Of six runs the fourth broke grounding for good: the run is named, and what did not break is not accused."""
    runs = build_chain(tmp_path, [{}, {}, {}, *[{"grounding": 0.3}] * 3])
    result = history(runs, metrics=WATCHED)
    shifts = {entry.metric: entry.shifts for entry in result.metrics}
    assert [shift.run for shift in shifts["groundedness"]] == ["r4"]
    assert shifts["completeness"] == ()
    assert (result.verdict, result.broken_at, result.traces) == ("fault", "r4", 150)
    assert result.overall.verdict == "fault"
    with pytest.raises(UsageError, match="at least 3 runs"):
        history(runs[:2])


def test_two_metrics_break_at_two_runs(tmp_path: Path):
    """Two breaks at different runs are two breaks, each with its own layer and recovery."""
    later = {"retrieval": 0.4}
    runs = build_chain(tmp_path, [{}, {"truncation": 0.3}, {}, later, later], n=250)
    result = history(runs)
    sharp = {part.run: part for part in result.breaks}
    assert set(sharp) == {"r2", "r4"}
    assert (sharp["r2"].layer, sharp["r2"].recovered_at) == ("generation", "r3")
    assert (sharp["r4"].layer, sharp["r4"].recovered_at) == ("retrieval", None)
    assert result.verdict == "fault"
    assert result.broken_at == "r4"


def test_a_drift_blames_no_single_run(tmp_path: Path):
    """Where every release loses a little, no single run is blamed, but the loss from first to last is a fault."""
    runs = build_chain(tmp_path, [{"grounding": 0.03 * at} for at in range(8)], n=200)
    result = history(runs)
    assert result.verdict == "fault"
    assert [part.gradual for part in result.breaks if "groundedness" in part.metrics] == [True]
    assert "little by little from r1 to r8, no single run explains it" in summarize_history(result)


def test_chains_without_a_fault_blame_no_run(tmp_path: Path):
    """Of twelve chains of three equal releases at most two are said to have broken or recovered (5 % are promised)."""
    wrong = 0
    for chain in range(12):
        runs = [evaluate_system(tmp_path / f"{chain}-{at}", make_verdicts(60, 100 * chain + at)) for at in range(3)]
        wrong += history(runs).verdict in ("fault", "recovered")
    assert wrong <= 2


def test_repeated_queries_do_not_count_twice(tmp_path: Path):
    """What differs by chance between runs of 20 traces is no change where every trace is recorded ten times."""
    few = [make_verdicts(20, at) for at in range(3)]
    runs = []
    for at, pairs in enumerate(few):
        copies = []
        for copy in range(10):
            for trace, seen in pairs:
                name = f"{trace.id}-{copy}"
                copies.append((replace(trace, id=name), replace(seen, trace=name)))
        runs.append(evaluate_system(tmp_path / f"r{at}", copies, WATCHED))
    assert all(not entry.shifts for entry in history(runs).metrics)


def test_a_release_whose_record_differs_broke_nothing(tmp_path: Path):
    """Where chunk texts are clipped from the third run on, no metric that reads them is followed over that step."""
    good = load_demo_traces()
    sides = [good, good, [clip(trace) for trace in good], [clip(trace) for trace in good]]
    runs = [evaluate(side, tmp_path / f"r{at}", judge=LEXICAL) for at, side in enumerate(sides, 1)]
    result = history(runs, margin=0.05)
    assert result.verdict == "cannot tell"
    assert not result.breaks
    assert any("r3 is not comparable with the run before" in text for text in result.warnings)


def test_bad_answers_are_counted_by_cause_and_a_followed_cause_has_its_changes(tmp_path: Path):
    """The counts of the causes add up to the bad answers of each run; the run at which the cause rose is named."""
    blank = [Trace(id=f"{at}", query=f"When does ferry {at} leave?", answer="") for at in range(60)]
    right = [replace(trace, answer="At noon.", reference="At noon.") for trace in blank]
    sides = [right, right, blank, blank]
    runs = [evaluate(side, tmp_path / f"r{at}", judge=LEXICAL) for at, side in enumerate(sides, 1)]
    result = history(runs, anyway=True)
    assert result.bad == (0, 0, 60, 60)
    assert [(entry.cause, entry.answers, entry.shifts) for entry in result.causes] == [("blank", result.bad, ())]
    followed = history(runs, anyway=True, causes=["blank"]).causes
    assert [(shift.run, shift.state) for shift in followed[0].shifts] == [("r3", "rose")]
    with pytest.raises(UnknownName):
        history(runs, causes=["no-such-cause"])
    assert run_command(["bisect", *(str(run.path) for run in runs[:2]), "--cause", "blank"]) == 2
