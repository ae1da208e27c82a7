"""Settings and prompts are searched by calling an endpoint, and what is recommended is proved on other questions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ragfault.apps.tune.generators.recorded import AnswerScorer
from ragfault.apps.tune.generators.reflection import FailedAnswer, improve_prompt, make_prompt_writer
from ragfault.apps.tune.generators.search import GeneratorBench, GeneratorSpace, search_generators
from ragfault.apps.tune.settings import GeneratorSettings, PromptSettings
from ragfault.cli.commands import run_command
from ragfault.judges.llm.judge import LLMGenerator
from ragfault.judges.loading import load_judge
from ragfault.metrics.catalog import parse_metric
from ragfault.model.errors import InputError, UnknownName, UsageError
from ragfault.model.records import Chunk, Trace
from ragfault.retrieval.generation.answering import answer_trace
from ragfault.retrieval.generation.settings import AnswerExample, GeneratorConfig, parse_generator_config
from ragfault.retrieval.pipeline_config import (
    PipelineConfig,
    format_pipeline_config,
    load_pipeline,
    read_pipeline_config,
)
from tests.support.endpoint import FENCED, Server, serve_model


class ScriptedModel(Server):
    """Endpoint that copies the first passage where the instructions say "Quote", and invents otherwise."""

    def reply(self, messages: Sequence[Mapping[str, Any]]) -> str:
        texts = {name: text for _, name, text in FENCED.findall(messages[-1]["content"])}
        if "instructions" in texts:
            return json.dumps({"prompt": texts["instructions"] + " Quote the passage."})
        copied = texts.get("c1", "") if "Quote" in messages[0]["content"] else "The moon is made of old cheese."
        citations = [{"chunk": "c1", "quote": ""}, {"chunk": "c9", "quote": ""}]
        return json.dumps({"answer": copied, "citations": citations})


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ScriptedModel]:
    monkeypatch.setenv("RAGFAULT_CACHE", str(tmp_path / "replies.sqlite"))
    with serve_model(kind=ScriptedModel) as server:
        monkeypatch.setenv("RAGFAULT_LLM_BASE_URL", server.url)
        yield server


def make_questions(count: int) -> list[Trace]:
    return [
        Trace(
            id=str(at),
            query=f"When does gate {at} open?",
            chunks=(Chunk(id="a", text=f"Gate {at} opens at nine."), Chunk(id="b", text="Cats sleep.")),
        )
        for at in range(count)
    ]


def answer_locally(config: GeneratorConfig, trace: Trace, repetition: int) -> Trace:
    """Answer right where the model is good, and more often with fewer chunks."""
    from msgspec.structs import replace

    right = config.model == "good" and (config.chunks == 1 or int(trace.id) % 3)
    return replace(trace, answer=trace.chunks[0].text if right and trace.chunks else "The moon is made of cheese.")


def test_models_are_searched_first_and_then_the_other_settings() -> None:
    space = GeneratorSpace(model=("good", "bad"), chunks=(1, 2), order=("reversed",))
    choice, config = search_generators(
        make_questions(80),
        GeneratorConfig(model="present"),
        space,
        GeneratorSettings(share=0.5),
        judge=load_judge("lexical"),
        answer=answer_locally,
    )
    assert (config.model, config.chunks) == ("good", 1)
    assert choice.gain is not None
    assert choice.gain.verdict == "gains"
    assert choice.control is not None
    assert choice.rounds[0].generators[0] == "good"
    assert choice.grid_calls == 3 * 3 * 2 * 80
    assert choice.calls + choice.proof_calls < 0.5 * choice.grid_calls


def test_copies_of_a_question_are_in_one_group() -> None:
    """What chooses a generator holds no copy of what proves it; another passage makes it another question."""
    question = Trace(id="a", query="When?", chunks=(Chunk(id="1", text="At ten."),))
    questions = [
        question,
        replace(question, id="b"),
        replace(question, id="c", chunks=(Chunk(id="1", text="At six."),)),
    ]
    scorer = AnswerScorer(parse_metric("groundedness"), load_judge("lexical"))
    first, copy, other = GeneratorBench(questions, scorer, answer_locally).groups
    assert (first == copy, first == other) == (True, False)


def test_nothing_to_search_and_nothing_to_read_are_refused() -> None:
    with pytest.raises(UsageError, match="nothing to search"):
        search_generators(make_questions(30), GeneratorConfig(model="m"), GeneratorSpace())
    with pytest.raises(InputError, match="no question has chunks"):
        search_generators([Trace(id="1", query="?")], GeneratorConfig(model="m"), GeneratorSpace(chunks=(1,)))
    with pytest.raises(UnknownName, match="temperature"):
        parse_generator_config({"model": "llm:m", "temperatur": 0}, "pipeline.toml")
    with pytest.raises(InputError, match="at least 1"):
        parse_generator_config({"model": "llm:m", "chunks": 0}, "pipeline.toml")


def test_an_endpoint_answers_from_the_chunks_with_citations(model: ScriptedModel) -> None:
    config = GeneratorConfig(
        model="llm:answers",
        prompt="Quote.",
        chunks=1,
        citations="ids",
        format="brief",
        temperature=0.3,
        max_tokens=99,
        examples=(AnswerExample("When does the shop open?", "At ten."),),
    )
    answered = answer_trace(config, make_questions(8)[7])
    assert answered.answer == "Gate 7 opens at nine."
    assert [chunk.id for chunk in answered.chunks or ()] == ["a"]
    assert [citation.chunk for citation in answered.citations or ()] == ["a"]
    assert answered.tokens is not None
    body = model.bodies[-1]
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("answers", 0.3, 99)
    assert "At ten." in body["messages"][0]["content"]
    before = sum(model.calls.values())
    answer_trace(config, make_questions(8)[7])
    assert sum(model.calls.values()) == before
    answer_trace(config, make_questions(8)[7], repetition=1)
    assert sum(model.calls.values()) == before + 1


class ListingModel(Server):
    """Endpoint that answers by a list of statements, as the schema of the reply asks."""

    def reply(self, messages: Sequence[Mapping[str, Any]]) -> str:
        return json.dumps({"answer": ["Gates open at nine.", "- Cats sleep."], "citations": []})


def test_the_schema_lets_an_endpoint_write_only_a_list_and_cite_only_what_it_was_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAGFAULT_CACHE", str(tmp_path / "replies.sqlite"))
    with serve_model(kind=ListingModel) as server:
        monkeypatch.setenv("RAGFAULT_LLM_BASE_URL", server.url)
        config = GeneratorConfig(model="llm:lists", format="list", citations="ids")
        answered = answer_trace(config, make_questions(1)[0])
        schema = server.bodies[-1]["response_format"]["json_schema"]["schema"]["properties"]
    assert answered.answer == "- Gates open at nine.\n- Cats sleep."
    assert schema["answer"] == {"type": "array", "items": {"type": "string"}}
    assert schema["citations"]["items"]["properties"]["chunk"]["enum"] == ["c1", "c2"]


def test_a_pipeline_with_a_generator_is_written_read_and_answers(model: ScriptedModel, tmp_path: Path) -> None:
    from ragfault.model.records import Document

    generator = GeneratorConfig(
        model="llm:pipeline", prompt='Quote "exactly".\nNothing else.', chunks=1, examples=(AnswerExample("q", "a"),)
    )
    path = tmp_path / "pipeline.toml"
    path.write_text(format_pipeline_config(PipelineConfig(generator=generator)), encoding="utf-8")
    assert read_pipeline_config(path).generator == generator
    trace = load_pipeline(path, [Document(id="d", text="The gate opens at nine.")])("When does the gate open?")
    assert trace.answer == "The gate opens at nine."
    assert [step.kind for step in trace.steps or ()][-1] == "generate"


@pytest.mark.long
def test_a_prompt_is_rewritten_from_failed_claims_and_proved(model: ScriptedModel) -> None:
    present = GeneratorConfig(model="llm:prompted", prompt="Answer.")
    seen: list[FailedAnswer] = []
    ask = make_prompt_writer(LLMGenerator("writer"))

    def write(prompt: str, failures: Sequence[FailedAnswer]) -> str:
        seen.extend(failures)
        return ask(prompt, failures)

    choice, config = improve_prompt(
        make_questions(40), present, write, PromptSettings(rounds=3), judge=load_judge("lexical")
    )
    assert seen[0].claims == ("The moon is made of old cheese.",)
    assert config.prompt == "Answer. Quote the passage."
    assert choice.gain is not None
    assert choice.gain.verdict == "gains"
    assert model.calls


@pytest.mark.long
def test_the_verb_searches_an_endpoint_and_writes_a_pipeline(model: ScriptedModel, tmp_path: Path) -> None:
    from ragfault.io.trace_writer import write_traces

    write_traces(make_questions(40), tmp_path / "questions.jsonl")
    space = tmp_path / "space.toml"
    space.write_text(
        '[generator]\nmodel = "llm:searched"\nprompt = "Answer."\n[search]\nprompt = ["Quote the passage."]\n',
        encoding="utf-8",
    )
    arguments = [
        "tune",
        "generator",
        "search",
        str(tmp_path / "questions.jsonl"),
        str(space),
        "-o",
        str(tmp_path / "out"),
    ]
    assert run_command([*arguments, "--judge", "lexical", "--json"]) == 0
    config = read_pipeline_config(tmp_path / "out" / "pipeline.toml")
    assert config.generator is not None
    assert config.generator.prompt == "Quote the passage."
    space.write_text('[generator]\nmodel = "llm:m"\n[search]\nmodels = ["x"]\n', encoding="utf-8")
    assert run_command([*arguments, "--force"]) == 2
    assert model.calls


@pytest.mark.long
def test_the_verb_improves_a_prompt(model: ScriptedModel, tmp_path: Path) -> None:
    from ragfault.io.trace_writer import write_traces

    write_traces(make_questions(40), tmp_path / "questions.jsonl")
    pipeline = tmp_path / "pipeline.toml"
    present = PipelineConfig(chunker="sentences(64)", generator=GeneratorConfig(model="llm:improved", prompt="Answer."))
    pipeline.write_text(format_pipeline_config(present), encoding="utf-8")
    arguments = [
        str(tmp_path / "questions.jsonl"),
        str(pipeline),
        "-o",
        str(tmp_path / "out"),
        "--writer",
        "llm:writer",
    ]
    assert (
        run_command(["tune", "generator", "improve", *arguments, "--judge", "lexical", "--rounds", "2", "--json"]) == 0
    )
    improved = read_pipeline_config(tmp_path / "out" / "pipeline.toml")
    assert improved.chunker == "sentences(64)"
    assert improved.generator is not None
    assert "Quote" in improved.generator.prompt
    assert model.calls


def test_a_model_is_called_once_before_its_answers_count() -> None:
    calls: list[int] = []

    def answer(config: GeneratorConfig, trace: Trace, repetition: int) -> Trace:
        calls.append(repetition)
        return answer_locally(config, trace, repetition)

    scorer = AnswerScorer(parse_metric("groundedness"), load_judge("lexical"))
    bench = GeneratorBench(make_questions(20), scorer, answer)
    name = bench.add(GeneratorConfig(model="good"))
    bench.measure(name, range(10))
    bench.measure(name, range(10, 20))
    assert calls[0] < 0
    assert calls[1:] == [0] * 20


def test_prices_are_shown_without_a_call(model: ScriptedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path, space = tmp_path / "questions.jsonl", tmp_path / "space.toml"
    rows = [{"id": str(at), "query": f"When {at}?", "chunks": ["At ten."]} for at in range(30)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    space.write_text(
        '[generator]\nmodel = "llm:gpt-4o-mini"\n[search]\nmodel = ["llm:ollama/llama3"]\n', encoding="utf-8"
    )
    verb = ["tune", "generator", "search", str(path), str(space), "-o", str(tmp_path / "out"), "--price"]
    assert run_command(verb) == 0
    out = capsys.readouterr().out
    assert "llm:gpt-4o-mini" in out
    assert "llm:ollama/llama3" in out
    assert sum(model.calls.values()) == 0
