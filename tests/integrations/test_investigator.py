"""A model investigates by calls of tools: its quotes are checked, its budget ends it, and its errors are told to it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from installed import skip_without

skip_without("openai", reason="the extra llm is not installed")

from endpoint import FENCED, Server, serve_model
from ragfault import evaluate
from ragfault.cli.commands import run_command
from ragfault.integrations.investigator import MAX_CALLS, investigate_by_model
from ragfault.io.runs.run import Run
from ragfault.judges.llm.judge import LLMGenerator

EMPTY = {"layer": "", "stage": "", "cause": "", "fix": "", "confidence": 0, "quotes": []}


def call(tool: str, **arguments: object) -> dict[str, object]:
    return {**EMPTY, "action": "call", "tool": tool, "arguments": json.dumps(arguments)}


class InvestigatingServer(Server):
    """Model that bisects, explains, calls a tool that is absent, and concludes with a true and a false quote."""

    endless = False

    def reply(self, messages):
        texts = {name: text for _, name, text in FENCED.findall(messages[-1]["content"])}
        number = sum(name.startswith("result") for name in texts)
        if number == 0 or self.endless:
            return json.dumps(call("bisect"))
        if number == 1:
            assert "Retrieval broke" in texts["result1"]
            return json.dumps(call("explain", run="candidate", traces=["harbour-13"]))
        if number == 2:
            return json.dumps(call("erase", run="candidate"))
        assert "no tool erase" in texts["result3"]
        answer = json.loads(texts["result2"])[0]["answer"]
        quotes = [
            {"run": "candidate", "trace": "harbour-13", "chunk": "", "text": answer[:20]},
            {"run": "candidate", "trace": "harbour-13", "chunk": "", "text": "words that nobody wrote"},
        ]
        conclusion = {
            "layer": "retrieval",
            "stage": "chunker",
            "cause": "The corpus was cut anew.",
            "fix": "Revert it.",
        }
        return json.dumps(
            {"action": "conclude", "tool": "", "arguments": "", **conclusion, "confidence": 1.7, "quotes": quotes}
        )


class EndlessServer(InvestigatingServer):
    endless = True


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """Return two runs of the demo; the second one's retrieval broke."""
    folder = tmp_path_factory.mktemp("investigator")
    assert run_command(["demo", str(folder / "handbook")]) == 0
    return (
        evaluate(folder / "handbook" / "traces-v1.jsonl", folder / "v1", judge="lexical"),
        evaluate(folder / "handbook" / "traces-v2.jsonl", folder / "v2", judge="lexical"),
    )


@pytest.fixture
def endpoint() -> Iterator[Server]:
    with serve_model(kind=InvestigatingServer) as server:
        yield server


def load(server: Server, **options) -> LLMGenerator:
    return LLMGenerator("m", **{"base_url": server.url, "cache": "none", "budget_tokens": 500_000, **options})


@pytest.mark.long
def test_a_model_concludes_after_calls_and_its_false_quotes_are_left_out(runs: tuple[Run, Run], endpoint: Server):
    """Three calls of tools, then a conclusion; one of two quotes stands in the record; confidence is cut to 1."""
    result = investigate_by_model(runs[1], runs[0], load(endpoint))
    assert (result.layer, result.stage, result.agrees, result.confidence) == ("retrieval", "chunker", True, 1.0)
    assert [name.split()[0] for name in result.calls] == ["bisect", "explain", "erase"]
    assert (len(result.quotes), result.rejected_quotes) == (1, 1)
    quote = result.quotes[0]
    [trace] = runs[1].traces([quote.trace])
    assert trace.answer is not None
    assert trace.answer[quote.start : quote.end] == quote.text
    assert result.without_model.verdict == "fault"


@pytest.mark.long
def test_a_model_that_never_concludes_ends_after_its_calls(runs: tuple[Run, Run]):
    """After eight calls there is no conclusion, and the investigation without a model stands."""
    with serve_model(kind=EndlessServer) as server:
        result = investigate_by_model(runs[1], runs[0], load(server))
    assert result.layer is None
    assert len(result.calls) == MAX_CALLS
    assert result.without_model.stage == "chunker"


@pytest.mark.long
def test_the_budget_ends_the_investigation(runs: tuple[Run, Run], endpoint: Server):
    """A budget that is too small for the calls gives no conclusion, and is not exceeded."""
    result = investigate_by_model(runs[1], runs[0], load(endpoint, budget_tokens=1_500))
    assert result.layer is None
    assert "budget" in result.cause
    assert endpoint.tokens <= 1_500


@pytest.mark.long
def test_a_model_needs_a_budget_and_a_baseline(runs: tuple[Run, Run]):
    """Without --budget or --baseline the command is refused."""
    assert run_command(["investigate", str(runs[1].path), "--by", "llm:m", "--baseline", str(runs[0].path)]) == 2
    assert run_command(["investigate", str(runs[1].path), "--by", "llm:m", "--budget", "1"]) == 2
