"""The pytest plugin: a test asserts bars, or that nothing got worse than in a baseline, and carries the report.

pytest loads it by itself where ragfault is installed. It offers the fixture `ragfault`, the marker `ragfault`, and
the options `--ragfault-…`; what is heavy is imported when a test first asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import pytest

from ragfault.errors import RagfaultError, UsageError

if TYPE_CHECKING:
    from ragfault.findings import Gate
    from ragfault.online import Scored
    from ragfault.records import Trace
    from ragfault.runs import Run

    Traces = str | Path | Sequence[str | Path] | Iterable[Trace]

__all__ = ["Ragfault"]

Unsure = Literal["fail", "skip", "pass"]
"""What becomes of a test where the data cannot tell."""

WIDTH = 100
READING = ("map", "shape", "qrels")
"""The options of an evaluation that say how traces are read."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("ragfault", "ragfault: evaluation of RAG systems")
    group.addoption(
        "--ragfault-baseline",
        metavar="PATH",
        help="A run that must not get worse, or a folder of runs by name.",
    )
    group.addoption("--ragfault-out", metavar="DIR", help="Keep the runs here, each under its name.")
    group.addoption("--ragfault-report", metavar="DIR", help="Write HTML and Markdown reports here.")
    group.addoption(
        "--ragfault-unsure",
        choices=get_args(Unsure),
        default="fail",
        help="What becomes of a test where the data cannot tell: fail (the default), skip or pass.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "ragfault(traces, bars=(), baseline=False, evaluate={}, unsure=None, **terms): evaluate these traces and hold "
        "the run against bars, a baseline (a path; True: the one of --ragfault-baseline), or both.",
    )
    config.addinivalue_line(
        "markers",
        "ragfault_traces(traces, **evaluate): run the test once for each trace, which the fixture `scored` gives "
        "with its verdicts and scores; all are evaluated together, once.",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each trace, under its id; nothing is judged yet. Where they cannot be read, one test says so."""
    mark = metafunc.definition.get_closest_marker("ragfault_traces")
    if mark is None or "scored" not in metafunc.fixturenames:
        return
    from ragfault.sources import read_traces

    (traces,), options = mark.args, mark.kwargs
    where = metafunc.config.rootpath / traces if isinstance(traces, str | Path) else list(traces)
    reading = {name: options[name] for name in READING if name in options}
    try:
        found = read_traces(where, **reading) if isinstance(where, Path) else where
        made = [pytest.param((where, options, trace.id), id=trace.id) for trace in found]
    except RagfaultError as error:
        made = [pytest.param(_reason(error, metafunc.config), id="unread")]
    metafunc.parametrize("scored", made, indirect=True)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give a marked test the fixture, whether it names it or not."""
    if not isinstance(item, pytest.Function) or item.get_closest_marker("ragfault") is None:
        return
    if "ragfault" not in item.fixturenames:
        item.fixturenames.append("ragfault")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember the test that runs, so that reports are attached to it."""
    item.config.stash[_ITEM] = item


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Do what the markers of a test ask for; the body runs after it."""
    for mark in reversed(list(item.iter_markers("ragfault"))):
        checks: Ragfault = item.funcargs["ragfault"]  # type: ignore[attr-defined]
        wrong = None
        try:
            checks._marked(*mark.args, **mark.kwargs)
        except AssertionError as error:
            wrong = str(error)
        except RagfaultError as error:
            wrong = _reason(error, item.config)
        if wrong is not None:
            pytest.fail(wrong, pytrace=False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say where the reports are."""
    checks = config.stash.get(_CHECKS, None)
    if checks is not None and checks.written:
        terminalreporter.section("ragfault")
        for path in sorted(checks.written):
            terminalreporter.write_line(str(path))


@pytest.fixture(scope="session")
def ragfault(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Ragfault:
    """Evaluates traces, and asserts bars or that nothing got worse."""
    checks = pytestconfig.stash[_CHECKS] = Ragfault(pytestconfig, tmp_path_factory)
    return checks


@pytest.fixture
def scored(request: pytest.FixtureRequest, ragfault: Ragfault) -> Scored:
    """One trace of the marker `ragfault_traces` with its verdicts, scores and values; they are attached to the test."""
    if not hasattr(request, "param"):
        raise UsageError('which traces? Mark the test: @pytest.mark.ragfault_traces("traces.jsonl").')
    if isinstance(request.param, str):
        pytest.fail(request.param, pytrace=False)
    where, options, name = request.param
    found = ragfault._scored(where, options)[name]
    from ragfault.findings import diagnose

    said = {one.metric: one.reason if one.value is None else f"{one.value:.6g}" for one in found.scores}
    request.node.user_properties.extend((f"ragfault {metric}", value) for metric, value in said.items())
    problems = [
        f"  {problem.kind}: {problem.text}" for problem in diagnose(found.trace, found.verdicts).problems
    ]
    lines = [found.trace.query, *(f"  {metric} = {value}" for metric, value in said.items()), *problems]
    request.node.add_report_section("setup", "ragfault", "\n".join(map(_printable, lines)))
    return found


class Ragfault:
    """What the fixture `ragfault` gives: it evaluates traces, holds runs against bars or a baseline, and reports.

    Every report is attached to the test that asked for it: as properties, which JUnit XML holds, and as the message
    of its failure; what did not fail it, as a section.
    """

    def __init__(self, config: pytest.Config, places: pytest.TempPathFactory) -> None:
        self._config, self._places = config, places
        self._runs: dict[tuple[str, str], tuple[Run, Mapping[str, Any]]] = {}
        self._pages: dict[Path, Path] = {}
        self._notes: dict[str, list[str]] = {}
        self._listed: dict[int, Run] = {}
        self._traces: dict[Path, dict[str, Scored]] = {}
        self.written: set[Path] = set()
        """The reports that were written."""

    def evaluate(self, traces: Traces, *, name: str | None = None, **options: Any) -> Run:
        """Evaluate traces, as `ragfault.evaluate` does with these options, and give the run.

        The run is kept under its name in `--ragfault-out`, replacing the one there, else in pytest's temporary
        folder. Its name is that of the file, unless given. The same file with the same options is evaluated once
        in a session.
        """
        from ragfault.evaluation import evaluate

        key = None
        if isinstance(traces, str | Path):
            key = (str(Path(traces).absolute()), repr(sorted(options.items())))
        if key is not None and key in self._runs:
            return self._runs[key][0]
        kept = self._option("out")
        folder = kept or self._places.mktemp("ragfault")
        taken = {run.path.name for run, _ in self._runs.values()}
        run = evaluate(
            traces, folder / _free(name or _named(traces), taken), force=kept is not None, **options
        )
        self._runs[key or (f"run {len(self._runs)}", "")] = (run, options)
        return run

    def assert_bars(
        self, run: Run | str | Path, *bars: str, coverage: float = 0.5, unsure: Unsure | None = None
    ) -> Gate:
        """Assert that a run reaches every bar, `groundedness>=0.85`, as `ragfault gate` decides it."""
        __tracebackhide__ = True
        return self._check(run, bars, False, unsure, coverage=coverage)

    def assert_no_drop(
        self,
        run: Run | str | Path,
        baseline: Run | str | Path | None = None,
        *,
        max_drop: float = 0.02,
        unsure: Unsure | None = None,
        **terms: Any,
    ) -> Gate:
        """Assert that no metric of a run got worse than in a baseline by more than its margin.

        `baseline` is a run, or None for that of `--ragfault-baseline`; where there is none the test is skipped.
        `terms` are those of `ragfault gate --baseline`: metrics, margins, alpha, power, coverage, anyway, seed.
        """
        __tracebackhide__ = True
        return self._check(
            run, (), True if baseline is None else baseline, unsure, max_drop=max_drop, **terms
        )

    def _scored(self, traces: Traces, options: Mapping[str, Any]) -> Mapping[str, Scored]:
        """Id → the trace with its verdicts and scores, of all traces, which are evaluated once."""
        from itertools import groupby

        from ragfault.online import Scored

        key = None if isinstance(traces, Path) else id(traces)
        run = self._listed.get(key) if key else None
        if run is None:
            run = self.evaluate(traces, **options)
            if key:
                self._listed[key] = run
        if run.path not in self._traces:
            seen = zip(
                run.traces(), run.verdicts(), groupby(run.scores(), lambda one: one.trace), strict=True
            )
            self._traces[run.path] = {
                trace.id: Scored(trace, verdicts, tuple(scores)) for trace, verdicts, (_, scores) in seen
            }
        return self._traces[run.path]

    def _marked(
        self,
        traces: Traces,
        *,
        bars: str | Sequence[str] = (),
        baseline: Run | str | Path | bool = False,
        evaluate: Mapping[str, Any] | None = None,
        unsure: Unsure | None = None,
        **terms: Any,
    ) -> None:
        """Do what a marker asks for; its paths begin at the root of the tests."""
        __tracebackhide__ = True
        root = self._config.rootpath
        run = self.evaluate(root / traces if isinstance(traces, str | Path) else traces, **(evaluate or {}))
        if isinstance(baseline, str | Path):
            baseline = root / baseline
        self._check(run, [bars] if isinstance(bars, str) else bars, baseline, unsure, **terms)

    def _check(
        self,
        run: Run | str | Path,
        bars: Sequence[str],
        baseline: Run | str | Path | bool,
        unsure: Unsure | None,
        **terms: Any,
    ) -> Gate:
        """Hold a run against bars and a baseline, attach the report, and let the test fail, skip or go on."""
        __tracebackhide__ = True
        from ragfault.findings import gate
        from ragfault.runs import Run

        run = Run.open(run) if isinstance(run, str | Path) else run
        against, missing = self._baseline(run, baseline)
        if missing and not bars:
            pytest.skip(missing)
        if missing:
            terms = {key: value for key, value in terms.items() if key == "coverage"}
        found = gate(run, bars, baseline=against, **terms)
        self._attach(run, found)
        self._settle(found, unsure or self._config.getoption("ragfault_unsure"))
        if missing:
            pytest.skip(f"the bars are passed; {missing}")
        return found

    def _baseline(self, run: Run, given: Run | str | Path | bool) -> tuple[Run | None, str | None]:
        """The run to hold against, or why there is none."""
        from ragfault.runs import Run

        if isinstance(given, Run):
            return given, None
        if given is False:
            return None, None
        place = self._option("baseline") if given is True else Path(given)
        if place is None:
            return None, "no baseline: give a run, or --ragfault-baseline PATH"
        if (place / "manifest.json").is_file() or not any(place.glob("*/manifest.json")):
            return Run.open(place), None
        if not (place / run.path.name / "manifest.json").is_file():
            return None, f"no baseline: {place} holds runs, but none called {run.path.name}"
        return Run.open(place / run.path.name), None

    def _attach(self, run: Run, found: Gate) -> None:
        """Attach what was decided to the test that runs, and write the reports that were asked for."""
        from ragfault.report import gate as report

        item = self._config.stash[_ITEM]
        item.user_properties.extend(report.properties(found))
        folder = self._option("report")
        if folder is None:
            return
        from ragfault.report.saving import save

        folder.mkdir(parents=True, exist_ok=True)
        notes = self._notes.setdefault(item.nodeid, [])
        notes.append(report.markdown(found))
        text = f"## {_safe(item.nodeid)}\n\n" + "\n".join(notes)
        self.written.add(save(folder / f"{_safe(item.nodeid)[-120:]}.md", text, force=True))
        item.user_properties.append(("ragfault report", str(self._page(run, folder))))

    def _page(self, run: Run, folder: Path) -> Path:
        """The HTML report of a run, written once."""
        place = run.path.resolve()
        if place not in self._pages:
            from ragfault.report.html import write_html

            taken = {path.stem for path in self._pages.values()}
            self._pages[place] = write_html(
                run, folder / f"{_free(_safe(run.path.name), taken)}.html", force=True
            )
            self.written.add(self._pages[place])
        return self._pages[place]

    def _settle(self, found: Gate, unsure: Unsure) -> None:
        __tracebackhide__ = True
        from ragfault.report import gate as report

        if unsure not in get_args(Unsure):
            raise UsageError(f'unsure="{unsure}" is none of: {", ".join(get_args(Unsure))}.')
        text = report.terminal(found, width=WIDTH).rstrip()
        if found.result == "fail":
            raise AssertionError(text)
        if found.result == "pass" or unsure != "fail":
            self._config.stash[_ITEM].add_report_section("call", "ragfault", text)
        if found.result == "pass" or unsure == "pass":
            return
        if unsure == "skip":
            pytest.skip(f"ragfault: {text.splitlines()[-1]}")
        raise AssertionError(
            f"{text}\n\nThe data cannot tell, and that is no pass. Give more traces, a wider margin, "
            "or let it by with --ragfault-unsure=skip (or pass)."
        )

    def _option(self, name: str) -> Path | None:
        """The path that an option gives, from where pytest was called."""
        value = self._config.getoption(f"ragfault_{name}")
        return None if value is None else self._config.invocation_params.dir / value


_ITEM = pytest.StashKey[pytest.Item]()
_CHECKS = pytest.StashKey[Ragfault]()


def _reason(error: RagfaultError, config: pytest.Config) -> str:
    """An error as the report of a test says it; where a file is missing, with the folder that paths begin at."""
    text = f"{type(error).__name__}: {error}"
    more = f"Paths begin at pytest's root folder, {config.rootpath}. Is it not the one you meant? Write options with =."
    return f"{text}\n{more}" if "there is no file" in text else text


def _named(traces: object) -> str:
    """A run's name after what it is made from: that of the file, without its suffixes."""
    if isinstance(traces, str | Path):
        return _safe(Path(traces).name.split(".")[0]) or "traces"
    return "traces"


def _printable(text: str) -> str:
    """A text of a trace without what would steer a terminal."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _safe(text: str) -> str:
    """A text that can be a file's name.

    >>> _safe("tests/test_rag.py::test_bars[v1]")
    'tests-test_rag.py-test_bars-v1'
    """
    return "-".join("".join(sign if sign.isalnum() or sign in "_." else " " for sign in text).split())


def _free(name: str, taken: Iterable[str]) -> str:
    """The name, or the first after it that is not taken.

    >>> _free("v1", ["v1", "v1-2"])
    'v1-3'
    """
    used, number, found = set(taken), 1, name
    while found in used:
        number += 1
        found = f"{name}-{number}"
    return found
