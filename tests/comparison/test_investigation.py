"""Investigations: the cause is named with quotes that stand in the record, and nothing is named where nothing broke."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragfault import evaluate
from ragfault.cli.commands import run_command
from ragfault.comparison.investigation.hypotheses import investigate, measure_claim_origins
from ragfault.comparison.investigation.records import Investigation
from ragfault.diagnosis.causes.selection import select_causes
from ragfault.io.runs.run import Run
from ragfault.model.errors import UsageError
from ragfault.model.records import Chunk, Trace
from remembered import LEXICAL


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """Return two runs of the demo; the second one's retrieval broke."""
    folder = tmp_path_factory.mktemp("investigation")
    assert run_command(["demo", str(folder / "handbook")]) == 0
    return (
        evaluate(folder / "handbook" / "traces-v1.jsonl", folder / "v1", judge=LEXICAL),
        evaluate(folder / "handbook" / "traces-v2.jsonl", folder / "v2", judge=LEXICAL),
    )


def read_text(run: Run, trace: str, chunk: str | None) -> str:
    [recorded] = run.traces([trace])
    return recorded.answer or "" if chunk is None else {item.id: item.text for item in recorded.chunks or ()}[chunk]


def check_quotes(result: Investigation, runs: tuple[Run, Run]) -> None:
    """Assert that every quote stands in the record where it says."""
    for quote in result.quotes:
        run = runs[0] if quote.run == "baseline" else runs[1]
        text = read_text(run, quote.trace, quote.chunk)
        assert text[quote.start : quote.end] == quote.text != ""


@pytest.mark.long
def test_the_cause_is_named_with_a_fix_a_test_and_verbatim_quotes(runs: tuple[Run, Run]):
    """The demo's fault is one of the chunker; each stage has its tests, and each quote stands in the record."""
    result = investigate(runs[1], runs[0])
    assert (result.verdict, result.layer, result.stage) == ("fault", "retrieval", "chunker")
    assert result.confidence is not None
    assert result.confidence > 0.5
    assert len(result.quotes) >= 3
    check_quotes(result, runs)
    assert result.fix
    assert any("ragfault gate" in command for command in result.fix_test)
    assert all(hypothesis.tests for hypothesis in result.hypotheses)
    confidences = [item.confidence for item in result.hypotheses if item.confidence is not None]
    assert confidences == sorted(confidences, reverse=True)
    assert sum(confidences) <= 1.0


@pytest.mark.long
def test_the_test_of_the_fix_fails_on_the_broken_run_and_passes_on_the_good_one(runs: tuple[Run, Run]):
    """The proposed threshold tells the broken run from one that is as good as the baseline."""
    [command] = [line for line in investigate(runs[1], runs[0]).fix_test if line.startswith("ragfault gate")]
    threshold = command.split("--threshold ")[1].strip("'")
    assert run_command(["gate", str(runs[1].path), "--threshold", threshold]) == 1
    assert run_command(["gate", str(runs[0].path), "--threshold", threshold]) in (0, 3)


@pytest.mark.long
def test_nothing_is_named_between_equal_runs(runs: tuple[Run, Run], tmp_path: Path):
    """A run beside an evaluation of the same traces shows no fault, and proposes nothing."""
    again = evaluate(list(runs[0].traces()), tmp_path / "again", judge=LEXICAL)
    result = investigate(again, runs[0])
    assert result.verdict == "no fault"
    assert (result.stage, result.confidence, result.quotes, result.fix, result.cases) == (None, None, (), (), ())


def test_a_few_pairs_rule_nothing_out(tmp_path: Path):
    """With one pair that is the same in both runs, no layer is said to be fine."""
    text = "The ferry sails at nine."
    trace = Trace(id="1", query="When does the ferry sail?", chunks=(Chunk(id="a", text=text),), answer=text)
    old, new = (evaluate([trace], tmp_path / name, judge=LEXICAL) for name in ("old", "new"))
    result = investigate(new, old)
    assert result.verdict == "cannot tell"
    assert {hypothesis.outcome for hypothesis in result.hypotheses} == {"cannot tell"}


@pytest.mark.long
def test_a_run_alone_names_what_comes_first_and_quotes_it(runs: tuple[Run, Run]):
    """Without a baseline the kinds of problem are hypotheses; no stage is named."""
    result = investigate(runs[1])
    assert result.stage is None
    assert result.verdict in ("fault", "cannot tell")
    check_quotes(result, runs)
    assert result.hypotheses[0].tests[0].command.startswith("ragfault diagnose")


def test_origins_count_claims_by_what_retrieval_brought(tmp_path: Path):
    """Claims count as retrieval's where the trace retrieved nothing, and not where the chunk answers the question."""
    good = (Chunk(id="a", text="The ferry to the island leaves at ten in the morning from the old harbour."),)
    query, wrong = "When does the ferry to the island leave?", "The ferry to the island leaves at ten from gate 77."
    traces = [Trace(id=f"a{at}", query=query, chunks=good, answer=wrong) for at in range(6)]
    traces += [Trace(id=f"b{at}", query=query, chunks=(), answer=wrong) for at in range(4)]
    origins = measure_claim_origins(evaluate(traces, tmp_path / "run", judge=LEXICAL))
    assert origins is not None
    assert origins.traces == 10
    assert origins.from_retrieval.mean == pytest.approx(0.4, abs=0.15)
    assert origins.from_retrieval.low < 0.4 < origins.from_retrieval.high
    clean = evaluate([Trace(id="c", query=query, chunks=good, answer=good[0].text)], tmp_path / "ok", judge=LEXICAL)
    assert measure_claim_origins(clean) is None


def test_one_failing_answer_in_many_copies_is_no_fault_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Copies are one observation, markup that the judge misreads is said, and without a judge nothing is known."""
    chunks = (Chunk(id="a", text="The ferry to the island leaves at ten in the morning from the old harbour."),)
    wrong = '<p title="gate 77">The ferry to the island leaves at noon from gate 77.</p>'
    traces = [Trace(id=f"t{n}", query="When does the ferry leave?", chunks=chunks, answer=wrong) for n in range(40)]
    result = investigate(evaluate(traces, tmp_path / "copies", judge=LEXICAL))
    assert result.verdict == "cannot tell"
    assert result.sentence.startswith("40 of 40 traces fail (only 1 independent, so no interval is known: ")
    assert (result.origins.from_retrieval.low, result.origins.from_retrieval.high) == (0, 1)
    assert run_command(["investigate", str(tmp_path / "copies")]) == 3
    assert "\nbeware: 40 of 40 answers of copies are JSON, or hold tags" in capsys.readouterr().out
    unjudged = investigate(evaluate(traces, tmp_path / "unjudged", judge="none"))
    assert "0 of 40 traces fail (only 1 independent" in unjudged.sentence
    assert "(no judge looked at them: only failures of the pipeline are known)" in unjudged.sentence


@pytest.mark.long
def test_the_command_says_the_cause_first(runs: tuple[Run, Run], capsys: pytest.CaptureFixture[str]):
    """`ragfault investigate` ends with 1 on a fault, and refuses a run as its own baseline."""
    assert run_command(["investigate", str(runs[1].path), "--baseline", str(runs[0].path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("FAULT: Retrieval broke")
    assert lines[1].startswith("root cause: chunker, confidence 0.")
    assert run_command(["investigate", str(runs[1].path), "--baseline", str(runs[1].path)]) == 2


@pytest.mark.long
def test_of_a_larger_run_a_random_sample_is_investigated(runs: tuple[Run, Run]):
    """It is said how many of how many traces were drawn, and no unsupported claim of another one is counted."""
    for baseline, message in (
        (None, "40 traces of a random sample of 104"),
        (runs[0], "random sample was compared: 40 of"),
    ):
        result, complete = investigate(runs[1], baseline, sample=40), investigate(runs[1], baseline)
        assert message in " ".join((result.sentence, *result.warnings))
        assert "random sample" not in " ".join((complete.sentence, *complete.warnings))
        assert result.origins is not None
        assert complete.origins is not None
        assert result.origins.traces < complete.origins.traces


def test_the_first_fix_fits_refusals(tmp_path: Path):
    """Where answers turn into refusals, the first fix is that of refusals, and the token limit comes last."""
    towns = [f"Arl{letter}n" for letter in "abcdefghijkl"]
    texts = [
        f"The trip to {town} takes about {at + 20} minutes and costs {at + 3} euros." for at, town in enumerate(towns)
    ]

    def run(name: str, answers: list[str]) -> Run:
        traces = [
            Trace(id=town, query=f"How long is the trip to {town}?", answer=answer, chunks=(Chunk(id=town, text=text),))
            for town, text, answer in zip(towns, texts, answers, strict=True)
        ]
        return evaluate(traces, tmp_path / name, judge=LEXICAL)

    old = run("old", texts)
    refusing = investigate(run("refusing", ["I'm sorry, I don't have information about that."] * len(towns)), old)
    assert refusing.fix[0] == "relax the refusal instructions of the prompt"
    assert refusing.fix[-1] == "raise the token limit of the answer"


@pytest.mark.long
def test_a_cause_chooses_the_failing_traces_of_a_single_run(runs: tuple[Run, Run]):
    """Its cases and quotes are of answers that are bad for it; beside a baseline it chooses nothing."""
    ids = {cause.trace for cause in select_causes(runs[1], ["not-retrieved"])}
    result = investigate(runs[1], causes=["not-retrieved"])
    assert result.cases
    assert set(result.cases) <= ids
    assert {quote.trace for quote in result.quotes} <= ids
    with pytest.raises(UsageError):
        investigate(runs[1], runs[0], causes=["not-retrieved"])
