"""The pytest plugin: tests assert thresholds of a run, or no regression against a baseline.

pytest loads it if ragfault is installed. It provides the fixtures `ragfault` and `scored`, the markers `ragfault` and
`ragfault_traces`, and the options `--ragfault-…`; heavy modules are imported when a test first needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import pytest

from ragfault.model.errors import RagfaultError, UsageError

if TYPE_CHECKING:
    from ragfault.comparison.gate.records import GateResult
    from ragfault.evaluation.online.scorer import ScoredTrace
    from ragfault.io.runs.run import Run
    from ragfault.model.records import Trace

    Traces = str | Path | Sequence[str | Path] | Iterable[Trace]


UnsureOutcome = Literal["fail", "skip", "pass"]
"""The outcome of a test if the data cannot tell."""

REPORT_WIDTH = 100
READ_OPTIONS = ("map", "shape", "qrels")
"""Options of an evaluation for reading traces."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("ragfault", "ragfault: evaluation of RAG systems")
    group.addoption(
        "--ragfault-baseline", metavar="PATH", help="A run that must not get worse, or a folder of runs by name."
    )
    group.addoption("--ragfault-out", metavar="DIR", help="Keep the runs here, each under its name.")
    group.addoption("--ragfault-report", metavar="DIR", help="Write HTML and Markdown reports here.")
    group.addoption(
        "--ragfault-unsure",
        choices=get_args(UnsureOutcome),
        default="fail",
        help="What becomes of a test where the data cannot tell: fail (the default), skip or pass.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "ragfault(traces, thresholds=(), baseline=False, evaluate={}, unsure=None, **terms): evaluate these traces and "
        "check the run against thresholds, a baseline (a path; True: the one of --ragfault-baseline), or both.",
    )
    config.addinivalue_line(
        "markers",
        "ragfault_traces(traces, **evaluate): run the test once for each trace, which the fixture `scored` gives "
        "with its verdicts and scores; all are evaluated together, once.",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each trace, under its id, without judging any yet.

    If they cannot be read, make one test that fails.
    """
    mark = metafunc.definition.get_closest_marker("ragfault_traces")
    if mark is None or "scored" not in metafunc.fixturenames:
        return
    from ragfault.io.trace_reader import read_traces

    (traces,), options = mark.args, mark.kwargs
    source = metafunc.config.rootpath / traces if isinstance(traces, str | Path) else list(traces)
    read_options = {name: options[name] for name in READ_OPTIONS if name in options}
    try:
        read = read_traces(source, **read_options) if isinstance(source, Path) else source
        parameters = [pytest.param((source, options, trace.id), id=trace.id) for trace in read]
    except RagfaultError as error:
        parameters = [pytest.param(_format_error(error, metafunc.config), id="unreadable")]
    metafunc.parametrize("scored", parameters, indirect=True)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Add the fixture to a marked test."""
    if not isinstance(item, pytest.Function) or item.get_closest_marker("ragfault") is None:
        return
    if "ragfault" not in item.fixturenames:
        item.fixturenames.append("ragfault")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember the running test, so that reports are attached to it."""
    item.config.stash[_CURRENT_ITEM] = item


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Run the checks of a test's markers; the body runs after them."""
    for mark in reversed(list(item.iter_markers("ragfault"))):
        fixture: RagfaultFixture = item.funcargs["ragfault"]  # type: ignore[attr-defined]
        failure = None
        try:
            fixture._run_marker(*mark.args, **mark.kwargs)
        except AssertionError as error:
            failure = str(error)
        except RagfaultError as error:
            failure = _format_error(error, item.config)
        if failure is not None:
            pytest.fail(failure, pytrace=False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List the reports."""
    fixture = config.stash.get(_FIXTURE, None)
    if fixture is not None and fixture.written_reports:
        terminalreporter.section("ragfault")
        for path in sorted(fixture.written_reports):
            terminalreporter.write_line(str(path))


@pytest.fixture(scope="session")
def ragfault(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> RagfaultFixture:
    """Evaluates traces, and asserts thresholds or that nothing got worse."""
    fixture = pytestconfig.stash[_FIXTURE] = RagfaultFixture(pytestconfig, tmp_path_factory)
    return fixture


@pytest.fixture
def scored(request: pytest.FixtureRequest, ragfault: RagfaultFixture) -> ScoredTrace:
    """One trace of the marker `ragfault_traces` with its verdicts, scores and values, attached to the test."""
    if not hasattr(request, "param"):
        raise UsageError('no traces are named. Mark the test: @pytest.mark.ragfault_traces("traces.jsonl").')
    if isinstance(request.param, str):
        pytest.fail(request.param, pytrace=False)
    source, options, trace_id = request.param
    result = ragfault._evaluate_traces(source, options)[trace_id]
    from ragfault.diagnosis.run_analysis import diagnose

    scores = {score.metric: score.reason if score.value is None else f"{score.value:.6g}" for score in result.scores}
    request.node.user_properties.extend((f"ragfault {metric}", value) for metric, value in scores.items())
    problems = [f"  {problem.kind}: {problem.text}" for problem in diagnose(result.trace, result.verdicts).problems]
    lines = [result.trace.query, *(f"  {metric} = {value}" for metric, value in scores.items()), *problems]
    request.node.add_report_section("setup", "ragfault", "\n".join(map(_strip_control, lines)))
    return result


class RagfaultFixture:
    """The value of the fixture `ragfault`.

    It evaluates traces, checks runs against thresholds or a baseline, and reports.

    Every report is attached to its test: as properties, which JUnit XML contains, and as the message of its
    failure; if it did not fail, as a section.
    """

    def __init__(self, config: pytest.Config, temporary_folders: pytest.TempPathFactory) -> None:
        self._config, self._temporary_folders = config, temporary_folders
        self._runs: dict[tuple[str, str], tuple[Run, Mapping[str, Any]]] = {}
        self._pages: dict[Path, Path] = {}
        self._notes: dict[str, list[str]] = {}
        self._runs_by_list: dict[int, Run] = {}
        self._scored_traces: dict[Path, dict[str, ScoredTrace]] = {}
        self.written_reports: set[Path] = set()
        """Paths of the reports."""

    def evaluate(self, traces: Traces, *, name: str | None = None, **options: Any) -> Run:
        """Evaluate traces, as `ragfault.evaluate` does with these options, and return the run.

        The run is stored under its name in `--ragfault-out`, replacing the one there, else in pytest's
        temporary folder. Its name is that of the file, unless given. The same file with the same options is
        evaluated once in a session.
        """
        from ragfault.evaluation.evaluator import evaluate

        key = None
        if isinstance(traces, str | Path):
            key = (str(Path(traces).absolute()), repr(sorted(options.items())))
        if key is not None and key in self._runs:
            return self._runs[key][0]
        out_folder = self._get_path("out")
        folder = out_folder or self._temporary_folders.mktemp("ragfault")
        used_names = {run.path.name for run, _ in self._runs.values()}
        run = evaluate(
            traces,
            folder / _make_unique(name or _name_run(traces), used_names),
            force=out_folder is not None,
            **options,
        )
        self._runs[key or (f"run {len(self._runs)}", "")] = (run, options)
        return run

    def assert_thresholds(
        self, run: Run | str | Path, *thresholds: str, coverage: float = 0.5, unsure: UnsureOutcome | None = None
    ) -> GateResult:
        """Assert that a run reaches every threshold, such as `groundedness>=0.85`, as `ragfault gate` decides it."""
        __tracebackhide__ = True
        return self._check_run(run, thresholds, False, unsure, coverage=coverage)

    def assert_no_drop(
        self,
        run: Run | str | Path,
        baseline: Run | str | Path | None = None,
        *,
        max_drop: float = 0.05,
        unsure: UnsureOutcome | None = None,
        **terms: Any,
    ) -> GateResult:
        """Assert that no metric of a run got worse than in a baseline by more than its margin.

        `baseline` is a run, or None for that of `--ragfault-baseline`; without one the test is skipped. `terms` are
        those of `ragfault gate --baseline`: metrics, margins, alpha, power, coverage, anyway, seed.
        """
        __tracebackhide__ = True
        return self._check_run(run, (), True if baseline is None else baseline, unsure, max_drop=max_drop, **terms)

    def _evaluate_traces(self, traces: Traces, options: Mapping[str, Any]) -> Mapping[str, ScoredTrace]:
        """Evaluate all traces once, and return them by id with their verdicts and scores."""
        from itertools import groupby

        from ragfault.evaluation.online.scorer import ScoredTrace

        key = None if isinstance(traces, Path) else id(traces)
        run = self._runs_by_list.get(key) if key else None
        if run is None:
            run = self.evaluate(traces, **options)
            if key:
                self._runs_by_list[key] = run
        if run.path not in self._scored_traces:
            rows = zip(run.evidence(), groupby(run.scores(), lambda score: score.trace), strict=True)
            self._scored_traces[run.path] = {
                trace.id: ScoredTrace(trace, verdicts, tuple(scores)) for (trace, verdicts), (_, scores) in rows
            }
        return self._scored_traces[run.path]

    def _run_marker(
        self,
        traces: Traces,
        *,
        thresholds: str | Sequence[str] = (),
        baseline: Run | str | Path | bool = False,
        evaluate: Mapping[str, Any] | None = None,
        unsure: UnsureOutcome | None = None,
        **terms: Any,
    ) -> None:
        """Run the checks of a marker; its paths are relative to the root of the tests."""
        __tracebackhide__ = True
        root = self._config.rootpath
        run = self.evaluate(root / traces if isinstance(traces, str | Path) else traces, **(evaluate or {}))
        if isinstance(baseline, str | Path):
            baseline = root / baseline
        self._check_run(run, [thresholds] if isinstance(thresholds, str) else thresholds, baseline, unsure, **terms)

    def _check_run(
        self,
        run: Run | str | Path,
        thresholds: Sequence[str],
        baseline: Run | str | Path | bool,
        unsure: UnsureOutcome | None,
        **terms: Any,
    ) -> GateResult:
        """Check a run against thresholds and a baseline, attach the report, and let the test fail, skip or go on."""
        __tracebackhide__ = True
        from ragfault.comparison.gate.gate import gate
        from ragfault.io.runs.run import Run

        run = Run.open(run) if isinstance(run, str | Path) else run
        baseline_run, missing = self._resolve_baseline(run, baseline)
        if missing and not thresholds:
            pytest.skip(missing)
        if missing:
            terms = {key: value for key, value in terms.items() if key == "coverage"}
        result = gate(run, thresholds, baseline=baseline_run, **terms)
        self._attach_report(run, result)
        self._apply_result(result, unsure or self._config.getoption("ragfault_unsure"))
        if missing:
            pytest.skip(f"the thresholds are passed; {missing}")
        return result

    def _resolve_baseline(self, run: Run, baseline: Run | str | Path | bool) -> tuple[Run | None, str | None]:
        """Return the run to compare with, or the reason why there is none."""
        from ragfault.io.runs.run import Run

        if isinstance(baseline, Run):
            return baseline, None
        if baseline is False:
            return None, None
        folder = self._get_path("baseline") if baseline is True else Path(baseline)
        if folder is None:
            return None, "no baseline: give a run, or --ragfault-baseline PATH"
        if (folder / "manifest.json").is_file() or not any(folder.glob("*/manifest.json")):
            return Run.open(folder), None
        if not (folder / run.path.name / "manifest.json").is_file():
            return None, f"no baseline: {folder} holds runs, but none called {run.path.name}"
        return Run.open(folder / run.path.name), None

    def _attach_report(self, run: Run, result: GateResult) -> None:
        """Attach the decision to the running test, and write the requested reports."""
        from ragfault.report.builders.gate import build_gate
        from ragfault.report.junit import list_gate_properties
        from ragfault.report.renderers.markdown import render_markdown

        item = self._config.stash[_CURRENT_ITEM]
        item.user_properties.extend(list_gate_properties(result))
        folder = self._get_path("report")
        if folder is None:
            return
        from ragfault.report.output import write_report_file

        folder.mkdir(parents=True, exist_ok=True)
        notes = self._notes.setdefault(item.nodeid, [])
        notes.append(render_markdown(build_gate(result)))
        text = f"## {_to_file_name(item.nodeid)}\n\n" + "\n".join(notes)
        self.written_reports.add(
            write_report_file(folder / f"{_to_file_name(item.nodeid)[-120:]}.md", text, force=True)
        )
        item.user_properties.append(("ragfault report", str(self._write_page(run, folder))))

    def _write_page(self, run: Run, folder: Path) -> Path:
        """Write the HTML report of a run, once."""
        run_folder = run.path.resolve()
        if run_folder not in self._pages:
            from ragfault.report.html.report import write_run_html

            used_names = {path.stem for path in self._pages.values()}
            self._pages[run_folder] = write_run_html(
                run, folder / f"{_make_unique(_to_file_name(run.path.name), used_names)}.html", force=True
            )
            self.written_reports.add(self._pages[run_folder])
        return self._pages[run_folder]

    def _apply_result(self, result: GateResult, unsure: UnsureOutcome) -> None:
        __tracebackhide__ = True
        from ragfault.report.builders.gate import build_gate
        from ragfault.report.renderers.terminal import render_terminal

        if unsure not in get_args(UnsureOutcome):
            raise UsageError(f'unsure="{unsure}" is none of: {", ".join(get_args(UnsureOutcome))}.')
        text = render_terminal(build_gate(result), width=REPORT_WIDTH).rstrip()
        if result.result == "fail":
            raise AssertionError(text)
        if result.result == "pass" or unsure != "fail":
            self._config.stash[_CURRENT_ITEM].add_report_section("call", "ragfault", text)
        if result.result == "pass" or unsure == "pass":
            return
        if unsure == "skip":
            pytest.skip(f"ragfault: {text.splitlines()[-1]}")
        raise AssertionError(
            f"{text}\n\nThe data cannot tell, and that is not a pass. Give more traces, a wider margin, "
            "or allow it with --ragfault-unsure=skip (or pass)."
        )

    def _get_path(self, name: str) -> Path | None:
        """Return the path in an option, relative to the folder in which pytest was called."""
        value = self._config.getoption(f"ragfault_{name}")
        return None if value is None else self._config.invocation_params.dir / value


_CURRENT_ITEM = pytest.StashKey[pytest.Item]()
_FIXTURE = pytest.StashKey[RagfaultFixture]()


def _format_error(error: RagfaultError, config: pytest.Config) -> str:
    """Format an error for the report of a test; a missing file with the folder that paths are relative to."""
    text = f"{type(error).__name__}: {error}"
    hint = f"Paths begin at pytest's root folder, {config.rootpath}. Is it not the one you meant? Write options with =."
    return f"{text}\n{hint}" if "there is no file" in text else text


def _name_run(traces: object) -> str:
    """Return a run's name by its file, without suffixes."""
    if isinstance(traces, str | Path):
        return _to_file_name(Path(traces).name.split(".")[0]) or "traces"
    return "traces"


def _strip_control(text: str) -> str:
    """Replace characters of a text that would control a terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def _to_file_name(text: str) -> str:
    """Turn a text into a file name.

    >>> _to_file_name("tests/test_rag.py::test_thresholds[v1]")
    'tests-test_rag.py-test_thresholds-v1'
    """
    return "-".join(
        "".join(character if character.isalnum() or character in "_." else " " for character in text).split()
    )


def _make_unique(name: str, taken: Iterable[str]) -> str:
    """Return the name, or the first one with a number that is not taken.

    >>> _make_unique("v1", ["v1", "v1-2"])
    'v1-3'
    """
    used_names, number, candidate = set(taken), 1, name
    while candidate in used_names:
        number += 1
        candidate = f"{name}-{number}"
    return candidate
