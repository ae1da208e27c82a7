"""Tests of the public API: exact, documented, and light to import."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

import ragfault
from ragfault.apps.registry import list_apps
from ragfault.model import errors

PUBLIC_NAMES = [
    "BisectionSettings",
    "Chunk",
    "Citation",
    "ComparisonSettings",
    "EvaluationSettings",
    "GateSettings",
    "Gold",
    "HistorySettings",
    "RescoringSettings",
    "Run",
    "Score",
    "Span",
    "Trace",
    "Verdicts",
    "ablate",
    "analyze",
    "bisect",
    "compare",
    "diagnose",
    "evaluate",
    "gate",
    "history",
    "metric",
    "read_traces",
    "rescore",
    "rubric",
    "write_traces",
]
HEAVY_PACKAGES = ("numpy", "pyarrow", "rich", "sentencex", "rapidfuzz", "pandas", "concurrent.futures.process")


def test_the_public_names_are_exact():
    """`__all__` and `dir` list the 28 public names and, besides dunder names, nothing else."""
    assert sorted(ragfault.__all__) == sorted(PUBLIC_NAMES)
    assert [name for name in dir(ragfault) if not name.startswith("__")] == sorted(PUBLIC_NAMES)
    assert {"__version__", "__doc__"} <= set(dir(ragfault))


def test_every_public_name_has_a_docstring():
    for name in PUBLIC_NAMES:
        assert getattr(ragfault, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'no_such'"):
        _ = ragfault.no_such


@pytest.mark.parametrize("code", ["import ragfault", "from ragfault.cli.commands import main; main(['--help'])"])
def test_start_imports_no_heavy_package(code: str):
    """`import ragfault` and `ragfault --help` import none of the heavy packages."""
    program = (
        f"import atexit, sys; names = {HEAVY_PACKAGES!r}; "
        "atexit.register(lambda: print([n for n in names if n in sys.modules], file=sys.stderr)); " + code
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert process.stderr.strip() == "[]"


def test_the_overview_loads_no_module_of_an_app_but_its_entry():
    """`ragfault --help` reads the table of the apps: of each app it imports `app` alone."""
    program = (
        "import atexit, sys; from ragfault.cli.commands import main; "
        "loaded = lambda: [n for n in sys.modules if n.startswith('ragfault.apps.') and n.count('.') > 2]; "
        "atexit.register(lambda: print(*loaded(), file=sys.stderr)); main(['--help'])"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert set(process.stderr.split()) == {f"ragfault.apps.{app.name}.app" for app in list_apps()}


def test_the_docstring_draws_the_tree_of_errors():
    """Every error is in the docstring of `errors`, inherits from RagfaultError and survives pickling."""
    for value in vars(errors).values():
        if isinstance(value, type) and issubclass(value, Exception):
            assert value.__name__ in (errors.__doc__ or "")
            assert issubclass(value, errors.RagfaultError)
    for error in (
        errors.UnknownName("metric", "ndgc", ["ndcg"], "hint"),
        errors.MissingExtra("bleu", "overlap"),
        errors.BadTraces([errors.BadLine("f", 1, "p")], 3),
        errors.RunError("gone"),
    ):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy)) == (type(error), str(error))


ROWS = [
    {"question": f"When does ferry {n} leave?", "contexts": ["Ferries leave at six."], "response": "At six."}
    for n in range(4)
]
INPUTS = {
    "traces": lambda: list(ragfault.read_traces(ROWS)),
    "a generator": lambda: ragfault.read_traces(ROWS),
    "dicts": lambda: ROWS,
    "Arrow": lambda: __import__("pyarrow").Table.from_pylist(ROWS),
    "pandas": lambda: pytest.importorskip("pandas").DataFrame(ROWS),
    "polars": lambda: pytest.importorskip("polars").DataFrame(ROWS),
}


@pytest.mark.parametrize("form", INPUTS)
def test_functions_that_take_traces_take_records_and_frames(form, tmp_path):
    """Traces, dicts in foreign names and frames give the same traces wherever traces are taken."""
    expected = list(ragfault.read_traces(ROWS))
    make = INPUTS[form]
    assert list(ragfault.read_traces(make())) == expected
    assert ragfault.write_traces(make(), tmp_path / "t.jsonl") == len(expected)
    assert list(ragfault.read_traces(tmp_path / "t.jsonl")) == expected
    run = ragfault.evaluate(make(), tmp_path / "run", judge="lexical", metrics=["groundedness"])
    assert list(run.traces()) == expected


@pytest.mark.parametrize("form", [name for name in INPUTS if name != "a generator"])
def test_functions_of_runs_say_that_traces_become_runs(form):
    """Where a run is needed, traces in any form are refused with the function that makes a run of them."""
    given = INPUTS[form]()
    for call in (
        lambda: ragfault.diagnose(given),
        lambda: ragfault.analyze(given),
        lambda: ragfault.compare(given, given),
        lambda: ragfault.bisect(given, given),
        lambda: ragfault.gate(given, ["groundedness>=0.5"]),
        lambda: ragfault.history([given] * 3),
        lambda: ragfault.rescore(given, "out"),
    ):
        with pytest.raises(errors.RunError, match=r"a run or its path is needed.*ragfault.evaluate\("):
            call()


@pytest.mark.parametrize("given", [3, [1, 2], [3.5]])
def test_what_is_no_trace_is_refused_with_what_is_read(given, tmp_path):
    """Numbers are refused in one sentence by every function that takes traces."""
    for call in (
        lambda: list(ragfault.read_traces(given)),
        lambda: ragfault.write_traces(given, tmp_path / "t.jsonl"),
        lambda: ragfault.evaluate(given, tmp_path / "run", judge="lexical"),
    ):
        with pytest.raises(errors.InputError, match="traces are read from a path, from records"):
            call()


def test_a_run_that_ignores_gold_is_rescored_without_it(tmp_path):
    """Gold stays ignored, unless it is asked for."""
    run = ragfault.evaluate(ROWS, tmp_path / "run", judge="lexical", metrics=["error"], gold="ignore")
    assert ragfault.rescore(run, tmp_path / "again").manifest.gold == "ignore"
    assert ragfault.rescore(run, tmp_path / "applied", gold="apply").manifest.gold == "apply"
