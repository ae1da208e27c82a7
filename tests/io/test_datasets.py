"""Laws of the demo data."""

import importlib.util
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from ragfault.io.datasets.agent import SimulatedAgent, write_agent_traces
from ragfault.io.datasets.demo_handbook import Handbook, load_handbook, write_handbook
from ragfault.io.trace_reader import read_traces
from ragfault.model.errors import OutputError
from ragfault.model.records import Trace

TRAINING = Path(__file__).parents[2] / "training"
VERSIONS = ("v1", "v2")


@pytest.fixture(scope="module")
def data() -> Handbook:
    return load_handbook()


def test_it_is_large_enough(data):
    """The handbook has at least 60 sections and 80 questions."""
    assert sum(text.count("\n## Section ") for text in data.documents.values()) >= 60
    assert len(data.questions) >= 80


def test_sections_are_numbered_once(data):
    """No two sections bear the same number."""
    heads = [line for text in data.documents.values() for line in text.splitlines() if line.startswith("## ")]
    assert max(Counter(head.split(".")[0] for head in heads).values()) == 1


def test_sections_are_of_one_size(data):
    """Each section has 60 to 165 words, the marks of tables counted."""
    for text in data.documents.values():
        for section in text.split("\n## ")[1:]:
            assert 60 <= len(section.split()) <= 165, section


def test_gold_spans_lie_in_their_documents(data):
    """A gold span is a stretch of its document that begins and ends with a character that can be seen."""
    for question in data.questions:
        for span in question.gold.spans if question.gold else ():
            assert 0 <= span.start < span.end <= len(data.documents[span.document])
            words = data.documents[span.document][span.start : span.end]
            assert words == words.strip() != "", question.id


def test_questions_without_gold_are_marked(data):
    """A question has gold, facts and a reference, or none of them and the mark that it cannot be answered."""
    for question in data.questions:
        parts = {question.gold is None, question.facts is None, question.reference is None}
        assert parts == {question.answerable is False}


def test_questions_are_not_answered(data):
    """A question has neither chunks nor an answer."""
    assert all(question.chunks is question.answer is None for question in data.questions)


@pytest.mark.parametrize("version", VERSIONS)
def test_versions_answer_the_same_questions(data, version):
    """Each version has one trace for each question, with the same query and answer key."""
    asked = {question.id: question for question in data.questions}
    traces = {trace.id: trace for trace in data.traces[version]}
    assert traces.keys() == asked.keys()
    assert len(data.traces[version]) == len(traces)
    for name, trace in traces.items():
        assert (trace.query, trace.facts, trace.reference) == (
            asked[name].query,
            asked[name].facts,
            asked[name].reference,
        )
        assert (trace.gold and trace.gold.spans) == (asked[name].gold and asked[name].gold.spans)


@pytest.mark.parametrize("version", VERSIONS)
def test_chunks_are_cut_from_the_documents(data, version):
    """The text of a chunk is the stretch of the document that it names."""
    for trace in data.traces[version]:
        for chunk in trace.chunks or ():
            assert chunk.text == data.documents[chunk.document][chunk.start : chunk.end]


@pytest.mark.parametrize("version", VERSIONS)
def test_chunks_that_overlap_gold_are_gold(data, version):
    """A retrieved chunk is gold exactly where it overlaps a gold span."""
    for trace in data.traces[version]:
        for chunk in trace.chunks or () if trace.gold else ():
            overlaps = any(
                chunk.document == span.document and chunk.start < span.end and span.start < chunk.end
                for span in trace.gold.spans
            )
            assert (chunk.id in trace.gold.chunks) == overlaps


@pytest.mark.parametrize("version", VERSIONS)
def test_citations_name_chunks_of_the_trace(data, version):
    """A citation points to a retrieved chunk and stands by a sentence of the answer."""
    for trace in data.traces[version]:
        for citation in trace.citations or ():
            assert citation.chunk in {chunk.id for chunk in trace.chunks}
            assert citation.claim in trace.answer


@pytest.mark.parametrize("version", VERSIONS)
def test_failed_traces_have_no_answer(data, version):
    """A trace has an answer exactly where its pipeline did not fail, and each version has failures."""
    assert all((trace.answer is None) == (trace.error is not None) for trace in data.traces[version])
    assert any(trace.error for trace in data.traces[version])


@pytest.mark.parametrize("version", VERSIONS)
def test_turns_follow_in_time(data, version):
    """The turns of a conversation count from 1 and come one after the other."""
    turns: dict[str, list[int]] = {}
    for trace in sorted(data.traces[version], key=lambda trace: trace.time):
        if trace.conversation:
            turns.setdefault(trace.conversation, []).append(trace.turn)
    assert turns
    assert all(conversations == list(range(1, len(conversations) + 1)) for conversations in turns.values())


def test_second_version_is_later_and_finds_less(data):
    """The release that got worse comes later, and fewer of its chunks are gold."""
    first, second = data.traces["v1"], data.traces["v2"]
    assert max(trace.time for trace in first) < min(trace.time for trace in second)
    assert _share_of_gold(second) < _share_of_gold(first) / 2


def _share_of_gold(traces: tuple[Trace, ...]) -> float:
    retrieved = [chunk.id in trace.gold.chunks for trace in traces if trace.gold for chunk in trace.chunks or ()]
    return sum(retrieved) / len(retrieved)


def test_recording_again_yields_the_same_bytes(monkeypatch, tmp_path):
    """The script records the committed files byte for byte."""
    monkeypatch.syspath_prepend(str(TRAINING))
    spec = importlib.util.spec_from_file_location("handbook_recorder", TRAINING / "handbook.py")
    recorder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recorder)
    write_handbook(tmp_path)
    for name, content in recorder.build_files().items():
        assert content == (tmp_path / name).read_bytes(), name


def test_written_files_are_the_data(tmp_path, data):
    """What is written to a folder reads as what is held in memory."""
    paths = write_handbook(tmp_path / "new")
    assert {path.name: path.read_text(encoding="utf-8") for path in paths if path.suffix == ".md"} == data.documents
    lines = (tmp_path / "new" / "traces-v2.jsonl").read_bytes().splitlines()
    assert tuple(msgspec.json.decode(line, type=Trace) for line in lines) == data.traces["v2"]


def test_existing_files_stay_unless_forced(tmp_path):
    """Writing over existing files is refused before anything is written, and done with force."""
    existing = tmp_path / "traces-v1.jsonl"
    existing.write_text("mine")
    with pytest.raises(OutputError, match="force=True"):
        write_handbook(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["traces-v1.jsonl"]
    assert existing.read_text() == "mine"
    write_handbook(tmp_path, force=True)
    assert existing.read_text() != "mine"


def test_a_file_in_the_way_is_an_output_error(tmp_path):
    """A folder that cannot be made is reported as such."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        write_handbook(tmp_path / "file")


def test_the_simulated_agent_gives_the_same_traces_for_the_same_seed_and_others_for_another():
    first, again, other = (SimulatedAgent(seed).answer_all() for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_every_trace_of_the_agent_has_a_question_of_the_handbook_and_ends_with_its_answer():
    traces = SimulatedAgent(0).answer_all()
    assert {trace.id for trace in traces} == {question.id for question in load_handbook().questions}
    assert all(trace.steps[-1].output == trace.answer for trace in traces)
    assert all(len(trace.history) == 2 * (trace.turn - 1) for trace in traces)


def test_the_traces_of_two_versions_of_the_agent_are_written_and_not_overwritten(tmp_path):
    paths = write_agent_traces(tmp_path)
    assert [path.name for path in paths] == ["agent-v1.jsonl", "agent-v2.jsonl"]
    assert all(trace.steps for trace in read_traces(paths[1]))
    with pytest.raises(OutputError, match="already"):
        write_agent_traces(tmp_path)
