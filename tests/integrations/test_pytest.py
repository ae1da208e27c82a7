"""Laws of the pytest plugin: what becomes of a test, and what it carries. Each session is a process of its own."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from ragfault.io.runs.run import Run
from ragfault.io.trace_writer import write_traces
from ragfault.model.records import Chunk, Trace
from sample_runs import evaluate_pairs, pair

pytest_plugins = ("pytester",)

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs: all claims supported, 30 of 200 not, and four traces alone."""
    folder = tmp_path_factory.mktemp("runs")
    for name, claims in (("good", "s" * 200), ("bad", "s" * 170 + "u" * 30), ("few", "usss")):
        pairs = [pair(f"t{at}", "h", claim) for at, claim in enumerate(claims)]
        # What is answered worse is answered otherwise: verdicts that move beside the same answer are no change.
        created = [
            (replace(trace, answer=f"{trace.answer} Or so.") if claim == "u" else trace, seen)
            for (trace, seen), claim in zip(pairs, claims, strict=True)
        ]
        (folder / "made" / name).mkdir(parents=True)
        evaluate_pairs(folder / "made" / name, created, ["groundedness", "answer_relevance"]).path.rename(folder / name)
    return folder


@pytest.fixture
def session(pytester: pytest.Pytester, runs: Path):
    """Runs pytest on a file of tests, where RUNS is the folder of runs."""

    def run(text: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(f"import pytest\nRUNS = {str(runs)!r}\n{text}")
        plugin = ("-p", "ragfault") if _installed() else ("-p", "ragfault.integrations.pytest")
        return pytester.runpytest_subprocess(*plugin, "-p", "no:cacheprovider", "-Werror", *options)

    return run


def _installed() -> bool:
    from importlib.metadata import entry_points

    return any(point.value == "ragfault.integrations.pytest" for point in entry_points(group="pytest11"))


def properties(path: Path) -> dict[str, dict[str, str]]:
    """Return the properties of each test of a JUnit file."""
    cases = ElementTree.parse(path).iter("testcase")
    return {case.get("name"): {item.get("name"): item.get("value") for item in case.iter("property")} for case in cases}


def test_the_plugin_is_declared():
    """The package names the plugin where pytest looks for it."""
    created = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    assert created["pytest11"] == {"ragfault": "ragfault.integrations.pytest"}


def test_the_plugin_loads_nothing_heavy():
    """A session that does not use it pays for no more than the package's face."""
    heavy = ("numpy", "pyarrow", "rich", "ragfault.diagnosis", "ragfault.evaluation")
    code = f"import sys, ragfault.integrations.pytest; print([n for n in {heavy!r} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


THRESHOLD_TESTS = """
@pytest.mark.parametrize("threshold", ["groundedness>=0.85", "groundedness>=0.999", "groundedness<0.5"])
def test_threshold(ragfault, threshold):
    ragfault.assert_thresholds(RUNS + "/good", threshold)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "outcomes"),
    [
        ((), {"passed": 1, "failed": 2}),
        (("--ragfault-unsure=skip",), {"passed": 1, "failed": 1, "skipped": 1}),
        (("--ragfault-unsure=pass",), {"passed": 2, "failed": 1}),
    ],
)
def test_a_threshold_passes_fails_or_is_unsure(session, options, outcomes):
    """What fails fails with the gate's text; what cannot be told fails, skips or passes, as was asked for."""
    result = session(THRESHOLD_TESTS, *options)
    result.assert_outcomes(**outcomes)
    text = result.stdout.str()
    assert "the whole interval misses the threshold" in text
    assert ("--ragfault-unsure=skip" in text) == (not options)


DROPS = """
def test_worse(ragfault):
    ragfault.assert_no_drop(RUNS + "/bad", RUNS + "/good")

def test_within(ragfault):
    found = ragfault.assert_no_drop(RUNS + "/bad", RUNS + "/good", max_drop=0.2)
    assert found.regression.pairs == 200

def test_margin(ragfault):
    ragfault.assert_no_drop(RUNS + "/bad", RUNS + "/good", margins={"groundedness": 0.2})

def test_unsure(ragfault):
    ragfault.assert_no_drop(RUNS + "/few", RUNS + "/good", unsure="skip")

def test_of_the_option(ragfault):
    ragfault.assert_no_drop(RUNS + "/bad", metrics=["answer_relevance"])

def test_wrong(ragfault):
    with pytest.raises(Exception, match="Did you mean"):
        ragfault.assert_no_drop(RUNS + "/bad", RUNS + "/good", metrics=["groundednes"])
"""


@pytest.mark.long
def test_a_drop_fails_with_the_change_and_the_traces(session, runs, pytester):
    """The message holds baseline → candidate, the difference, p and the traces; properties go to JUnit."""
    result = session(DROPS, "--ragfault-baseline", str(runs / "good"), "--junitxml=junit.xml")
    result.assert_outcomes(failed=1, passed=4, skipped=1)
    text = " ".join(result.stdout.str().replace("E  ", "").split())
    assert "fail groundedness>=baseline-0.05 mean 1.000 → 0.850, −0.150 [" in text
    assert "most on t170 (1.000 → 0.000)" in text
    retained = properties(pytester.path / "junit.xml")
    assert retained["test_worse"]["ragfault result"] == "fail"
    assert retained["test_worse"]["ragfault baseline"] == "good"
    assert retained["test_within"]["ragfault groundedness>=baseline-0.2"].startswith("pass: mean 1.000 → 0.850")
    assert retained["test_unsure"]["ragfault result"] == "cannot tell"


@pytest.mark.long
def test_without_a_baseline_a_test_is_skipped(session, runs):
    """No option, or a folder that holds no run of that name: skipped, and why; a path that is none fails."""
    text = 'def test_it(ragfault):\n    ragfault.assert_no_drop(RUNS + "/few")'
    result = session(text, "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*no baseline: give a run, or --ragfault-baseline PATH*"])
    result = session(text, "-rs", "--ragfault-baseline", str(runs / "made"))
    result.assert_outcomes(failed=1)
    result = session(text, "--ragfault-unsure=pass", "--ragfault-baseline", str(runs))
    result.assert_outcomes(passed=1)


MARKED = """
ASKED = {"evaluate": {"metrics": ["groundedness", "error"]}}

@pytest.mark.ragfault("traces.jsonl", thresholds=["groundedness>=0.2", "error<=0.5"], **ASKED)
def test_thresholds(): ...

@pytest.mark.ragfault(traces="traces.jsonl", thresholds="groundedness<0.1", baseline=True, **ASKED)
def test_fails():
    raise RuntimeError("the body does not run")

@pytest.mark.ragfault("traces.jsonl", baseline=True, max_drop=0.3, metrics=["groundedness"], **ASKED)
def test_steady(): ...

@pytest.mark.ragfault("traces.jsonl", thresholds="groundednes>=0.2", **ASKED)
def test_wrong(): ...

def test_fixture(ragfault):
    run = ragfault.evaluate("traces.jsonl", **ASKED["evaluate"])
    assert run is ragfault.evaluate(pytest.importorskip("pathlib").Path("traces.jsonl"), **ASKED["evaluate"])
    assert run.path.name == "traces"
    assert run.manifest.traces == 40
    other = ragfault.evaluate("traces.jsonl", metrics=["error"])
    assert other.path.name == "traces-2"
"""


@pytest.mark.long
def test_a_marker_needs_no_body(session, pytester, runs):
    """Traces are evaluated once a session and checked against thresholds and baseline; the run has its name."""
    created = (pair(f"t{at}", "h", answer=f"Text 0 of t{at}.") for at in range(40))
    write_traces((trace for trace, _ in created), "traces.jsonl")
    result = session(MARKED, "-rs", "--ragfault-out", "kept", "--strict-markers")
    result.assert_outcomes(passed=2, failed=2, skipped=1)
    result.stdout.fnmatch_lines(["*UnknownName: no metric of traces*Did you mean*"])
    result.stdout.no_fnmatch_line("*the body does not run*")
    assert Run.open("kept/traces").manifest.traces == 40
    again = session(MARKED, "--ragfault-out", "again", "--ragfault-baseline", "kept")
    again.assert_outcomes(passed=3, failed=2)
    again.stdout.fnmatch_lines(["*fail*groundedness<0.1*"])


@pytest.mark.long
def test_reports_are_written(session, pytester):
    """`--ragfault-report` leaves the HTML page of each run and the Markdown of each test, and says where."""
    result = session(THRESHOLD_TESTS, "--ragfault-report", "reports", "--junitxml=junit.xml")
    names = {path.name for path in (pytester.path / "reports").iterdir()}
    assert "good.html" in names
    assert len([name for name in names if name.endswith(".md")]) == 3
    assert any("good.html" in line for line in result.outlines)
    retained = properties(pytester.path / "junit.xml")
    assert all(item["ragfault report"].endswith("good.html") for item in retained.values())
    text = (pytester.path / "reports" / next(name for name in names if "0.999" in name)).read_text("utf-8")
    assert "❔ cannot tell" in text


@pytest.mark.long
def test_a_passing_test_carries_its_report(session):
    """What passed is a section of the test's report, shown with -rP."""
    result = session(THRESHOLD_TESTS, "-rP", "-k", "0.85")
    result.assert_outcomes(passed=1, deselected=2)
    result.stdout.fnmatch_lines(["*Captured ragfault call*", "*pass *groundedness>=0.85"])


TRACE_TESTS = """
@pytest.mark.ragfault_traces("traces.jsonl", metrics=["groundedness", "error"])
def test_answer(scored):
    assert scored.values["groundedness"] >= 0.9

def test_unmarked(scored):
    pass
"""


@pytest.mark.long
def test_every_trace_is_a_test(session, runs, pytester):
    """A test of each trace under its id, one evaluation for all; it carries its scores, and what is wrong with it."""
    chunk = Chunk(id="a", text="The harbour office opens at 7:30 on weekdays.")
    answers = {"good": "The harbour office opens at 7:30 on weekdays.", "bad": "The mayor lives in a lighthouse."}
    asked = "When does the harbour office open?"
    created = [Trace(id=name, query=asked, chunks=(chunk,), answer=text) for name, text in answers.items()]
    write_traces(created, pytester.path / "traces.jsonl")
    result = session(TRACE_TESTS, "--junitxml=junit.xml", "-rP")
    result.assert_outcomes(passed=1, failed=1, errors=1)
    retained = properties(pytester.path / "junit.xml")
    assert retained["test_answer[good]"]["ragfault groundedness"] == "1"
    assert retained["test_answer[bad]"]["ragfault groundedness"] == "0"
    text = result.stdout.str()
    assert "no traces are named. Mark the test" in text
    assert f"{asked}\n  groundedness = 0" in text
    assert "unsupported_claim: " in text


@pytest.mark.long
def test_a_file_that_is_missing_is_named_with_the_root_folder(session, pytester):
    """Where traces are not found, the report says so and names the folder that paths begin at, without a traceback."""
    for text in (
        '@pytest.mark.ragfault_traces("nowhere.jsonl")\ndef test_each(scored): ...',
        '@pytest.mark.ragfault("nowhere.jsonl", thresholds=["error<=0.5"])\ndef test_whole(): ...',
    ):
        result = session(text).stdout.str()
        assert "InputError: there is no file" in result
        assert f"Paths begin at pytest's root folder, {pytester.path}" in result
        assert "_hookexec" not in result
