"""Laws of the settings file: what it may hold, what it means, and how a wrong value is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragfault.cli.commands import run_command
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.trace_reader import read_traces
from ragfault.io.trace_writer import write_traces
from ragfault.model.errors import InputError, UnknownName
from ragfault.model.records import Chunk, Trace
from ragfault.options.settings import load_settings, pick_trace_options


@pytest.fixture
def load_text(tmp_path):
    """Return a function that loads the settings of a text."""

    def read(text):
        path = tmp_path / "ragfault.toml"
        path.write_text(text, encoding="utf-8")
        return load_settings(str(path))

    return read


def test_settings_have_only_the_keys_of_the_file(load_text):
    """Settings are tables of plain values, with no key that the file does not have."""
    assert load_text("") == {}
    assert load_text("[evaluate]\nworkers = 2\n[gate]\n") == {"evaluate": {"workers": 2}, "gate": {}}
    assert load_text("[gate]\ncoverage = 1\n") == {"gate": {"coverage": 1.0}}


def test_a_lone_text_is_a_list_of_one(load_text):
    """Where a list of texts is meant, one text does."""
    assert load_text('[evaluate]\nmetrics = "error"\n') == load_text('[evaluate]\nmetrics = ["error"]\n')
    assert load_text('[gate]\nthresholds = "error<=0.1"\n') == {"gate": {"thresholds": ["error<=0.1"]}}
    settings = load_text(
        '[targets]\nthresholds = "error<=0.1"\n[targets.routes]\nlegal = "error<=0"\ntravel = ["error<=1"]\n'
    )
    assert settings["targets"] == {
        "thresholds": ["error<=0.1"],
        "routes": {"legal": ["error<=0"], "travel": ["error<=1"]},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[evaluate]\nworkers = "two"', 'workers of [evaluate] should be a whole number, 1 or more, not "two".'),
        ("[evaluate]\nworkers = 0", "workers of [evaluate] should be a whole number, 1 or more, not 0."),
        ("[evaluate]\nworkers = true", "workers of [evaluate] should be a whole number, 1 or more, not true."),
        ("[evaluate]\nbatch = 1.5", "batch of [evaluate] should be a whole number, 1 or more, not 1.5."),
        ("[evaluate]\njudge = 3", "judge of [evaluate] should be a text, not 3."),
        ("[evaluate]\nmetrics = [3]", "metrics of [evaluate] should be a text or a list of texts, not [3]."),
        ("[evaluate]\nshape = 1979-05-27", 'shape of [evaluate] should be a text, not "1979-05-27".'),
        ("[gate]\nthresholds = [3]", "thresholds of [gate] should be a text or a list of texts, not [3]."),
        ('[gate]\ncoverage = "x"', 'coverage of [gate] should be a number from 0 to 1, not "x".'),
        ("[gate]\ncoverage = 2", "coverage of [gate] should be a number from 0 to 1, not 2."),
        ("[gate]\ncoverage = nan", "coverage of [gate] should be a number from 0 to 1, not nan."),
        (
            "[targets]\nroutes = 3",
            "routes of [targets] should be a table of routes, each with a threshold or a list of thresholds",
        ),
        ("[targets.routes]\nlegal = 3", 'a list of thresholds, not {"legal":3}.'),
        ("[map]\nquery = 3", "query of [map] should be a text, not 3."),
        ("[map.latency]\ntotal = []", "latency.total of [map] should be a text, not []."),
        ("gate = 3", "gate is a table. Write [gate] and its keys below it."),
    ],
)
def test_a_wrong_value_is_reported(text, message, load_text, tmp_path):
    """A value of the wrong kind is named with its file, table and key, what it is and what it should be."""
    with pytest.raises(InputError) as caught:
        load_text(text)
    assert str(caught.value).startswith(f"{tmp_path / 'ragfault.toml'}: ")
    assert message in str(caught.value)


def test_a_wrong_name_is_reported(load_text):
    """A table or key that does not exist is refused with the nearest that does."""
    with pytest.raises(UnknownName, match=r'no table of .* "gates"\. Did you mean "gate"\?'):
        load_text("[gates]\n")
    with pytest.raises(UnknownName, match=r'no key of \[evaluate\] .* "worker"\. Did you mean "workers"\?'):
        load_text("[evaluate]\nworker = 1\n")


def test_the_map_is_that_of_a_map_file(load_text, tmp_path):
    """Tables below [map] stand for dots, as in a file that --map names."""
    text = 'query = "q"\nlatency.total = "ms"\n[chunks]\nid = "ids"\ntext = "docs"\n'
    table = load_text("[map]\n" + text.replace("[chunks]", "[map.chunks]"))["map"]
    assert table == {"query": "q", "latency.total": "ms", "chunks.id": "ids", "chunks.text": "docs"}
    (tmp_path / "map.toml").write_text(text)
    (tmp_path / "t.jsonl").write_text('{"q": "When?", "ms": 7, "ids": ["a"], "docs": ["In 1040."]}\n')
    by_settings = list(read_traces(tmp_path / "t.jsonl", **pick_trace_options({}, table)))
    assert by_settings == list(read_traces(tmp_path / "t.jsonl", map=tmp_path / "map.toml"))
    assert by_settings[0].chunks[0].id == "a"
    assert pick_trace_options({"map": ("query=other",)}, table) == {"map": {"query": "other"}}
    assert pick_trace_options({}, {}) == {}


@pytest.mark.parametrize("verb", ["evaluate", "gate", "report"])
def test_a_verb_tells_without_a_traceback(verb, tmp_path, monkeypatch, capsys):
    """On the command line a wrong value is one message and exit code 2."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.jsonl").write_text('{"id": "1", "query": "q"}\n')
    assert run_command(["evaluate", "t.jsonl", "-o", "run", "-m", "error", "-q"]) == 0
    capsys.readouterr()
    (tmp_path / "ragfault.toml").write_text('[evaluate]\nworkers = "two"\n')
    arguments = ["t.jsonl", "-o", "new"] if verb == "evaluate" else ["run"]
    assert run_command([verb, *arguments]) == 2
    assert capsys.readouterr().err.startswith("InputError: ragfault.toml: workers of [evaluate] should be")


FILES = {
    "a table of the settings": ("[compre]\nmargin = 0.1", "compare", "gate"),
    "a key of the settings": ("[gate]\ntresholds = 'error<=0.1'", "thresholds", "coverage"),
    "a margin of a comparison": ("[compare.margins]\ngroundednes = 0.1", "groundedness", "context_recall"),
    "a margin of a gate": ("[gate.margins]\ngroundednes = 0.1", "groundedness", ""),
    "a threshold": ("[targets]\nthresholds = 'groundednes>=0.1'", "groundedness", ""),
    "a field of a map": ("[map]\nqery = 'question'", "query", "answer"),
    "a field of a map file": ("qery = 'question'", "query", "answer"),
    "a table of a profile": ("[levls]\nhigh = 1", "levels", "prompts"),
    "a key of a profile": ("[levels]\nhihg = 1", "high", "medium"),
}
COMMANDS = {
    "map file": ["evaluate", "t.jsonl", "--map", "FILE", "-o", "out"],
    "profile": ["evaluate", "t.jsonl", "--judge", "lexical", "--profile", "FILE", "-o", "out"],
    "comparison": ["compare", "a", "b", "--config", "FILE"],
    "gate": ["gate", "b", "--baseline", "a", "--config", "FILE"],
    "threshold": ["report", "a", "--config", "FILE"],
    "": ["evaluate", "t.jsonl", "--judge", "lexical", "--config", "FILE", "-o", "out"],
}


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    """Return a folder with traces and two runs of them."""
    folder = tmp_path_factory.mktemp("files")
    traces = [
        Trace(
            id=str(n),
            query=f"When does ferry {n} leave?",
            chunks=(Chunk(id="a", text="Ferries leave at six."),),
            answer="At six.",
        )
        for n in range(4)
    ]
    write_traces(traces, folder / "t.jsonl")
    for name in ("a", "b"):
        evaluate(traces, folder / name, judge="lexical", metrics=["groundedness", "context_recall"])
    return folder


@pytest.mark.parametrize("kind", FILES)
def test_a_typo_in_a_file_is_refused_with_what_is_meant_and_what_there_is(kind, two_runs, monkeypatch, capsys):
    """Every table of every file that is read ends in exit code 2 at an unknown name, which offers the close one."""
    text, meant, other = FILES[kind]
    monkeypatch.chdir(two_runs)
    (two_runs / "given.toml").write_text(text)
    command = next(words for part, words in COMMANDS.items() if kind.endswith(part))
    code = run_command(["given.toml" if word == "FILE" else word for word in command])
    shown = capsys.readouterr().err
    assert code == 2
    assert f'Did you mean "{meant}"?' in shown
    assert other in shown.partition("Did you mean")[2]


def test_a_file_of_another_format_is_called_by_what_it_is_read_as(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A lone --config with YAML says that the settings of ragfault were expected there."""
    file = tmp_path / "pipeline.yaml"
    file.write_text("retriever: {top_k: 3}\n", encoding="utf-8")
    assert run_command(["bisect", "a", "b", "--config", str(file)]) == 2
    assert "It is read as ragfault.toml" in capsys.readouterr().err


def test_targets_of_a_route_that_no_trace_has_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A slip in the name of a route would leave its targets unchecked in silence."""
    config = tmp_path / "ragfault.toml"
    config.write_text('[targets.routes]\nsafty = "error<=0"\nsafety = "error<=0"\n')
    evaluate([Trace(id="1", query="When?", route="safety")], tmp_path / "run", metrics=["error"])
    assert run_command(["report", str(tmp_path / "run"), "--config", str(config)]) == 0
    assert capsys.readouterr().err == "warning: [targets.routes] names safty, and none of 1 trace has that route\n"
