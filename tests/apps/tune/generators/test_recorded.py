"""Recorded answers are joined by question, and judged only where the race needs them."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from ragfault.apps.tune.generators.recorded import AnswerScorer, join_answers, parse_generation_metric, read_human_table
from ragfault.apps.tune.generators.search import choose_recorded
from ragfault.apps.tune.settings import GeneratorSettings
from ragfault.cli.commands import run_command
from ragfault.judges.loading import load_judge
from ragfault.metrics.catalog import parse_metric
from ragfault.model.errors import InputError, UsageError
from ragfault.model.records import Chunk, Trace


def answer(name: str, at: int, text: str, source: str = "") -> Trace:
    chunk = Chunk(id="c", text=source or f"Gate {at} opens at nine.")
    return Trace(id=name, query=f"When does gate {at} open?", chunks=(chunk,), answer=text, reference="at nine")


def test_answers_without_common_ids_join_by_query_and_chunks() -> None:
    first = [answer(f"x{at}", at, "at nine") for at in range(3)]
    second = [answer(f"y{at}", at, "at ten") for at in (2, 1)]
    joined = join_answers({"x": first, "y": second})
    assert [trace.id for trace in joined.questions] == ["x1", "x2"]
    assert [row[0].id for row in joined.answers["y"]] == ["y1", "y2"]
    assert joined.notes == ("1 question without an answer of every generator is left out",)


def test_a_note_names_questions_with_other_chunks() -> None:
    joined = join_answers({"x": [answer("1", 1, "at nine")], "y": [answer("1", 1, "at nine", "Another text.")]})
    assert "retrieval is compared, too" in joined.notes[0]


def test_several_answers_are_repetitions_and_give_a_control() -> None:
    recorded = {
        name: [answer(str(at), at, text) for at in range(40) for _ in range(2)]
        for name, text in (("old", "at ten"), ("new", "at nine"))
    }
    choice = choose_recorded(recorded, settings=GeneratorSettings(metric="exact_match"))
    assert choice.control is not None
    assert choice.control.p == 1.0
    assert choice.recommended == "new"
    assert {noise.repetitions for noise in choice.noise} == {2}


def test_the_judge_sees_only_what_the_race_needs() -> None:
    texts = {"old": "It opens at nine.", "wrong": "The moon is far away.", "other": "Cats sleep all day."}
    recorded = {name: [answer(str(at), at, text) for at in range(80)] for name, text in texts.items()}
    scorer = AnswerScorer(parse_metric("groundedness"), load_judge("lexical"))
    joined = join_answers(recorded)
    scorer.score([joined.answers["old"][0][0]] * 2)
    assert scorer.judged == 1
    choice = choose_recorded(recorded, settings=GeneratorSettings(share=0.7), judge=load_judge("lexical"))
    assert choice.recommended == "old"
    assert choice.calls + choice.proof_calls < choice.grid_calls


def test_metrics_and_bounds_that_cannot_serve_are_refused() -> None:
    with pytest.raises(UsageError, match="of which more is better"):
        parse_generation_metric("contradiction")
    with pytest.raises(UsageError, match="wrong side"):
        _ = GeneratorSettings(subject_to="cost>=1").bounds
    with pytest.raises(UsageError, match="two or more"):
        join_answers({"x": []})
    with pytest.raises(InputError, match="no question"):
        join_answers({"x": [answer("1", 1, "a")], "y": [answer("2", 2, "b")]})


def test_the_verb_chooses_and_writes_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("old", "at ten"), ("new", "at nine"), ("odd", "never")):
        rows = [
            {"id": str(at), "query": f"When does gate {at} open?", "answer": text, "reference": "at nine"}
            for at in range(40)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    files = [str(tmp_path / f"{name}.jsonl") for name in ("old", "new", "odd")]
    code = run_command(["tune", "generator", "choose", *files, "-m", "exact_match", "-o", str(tmp_path / "out")])
    assert code == 0
    assert capsys.readouterr().out.startswith("Recommended: new. It gains +1.000")
    assert json.loads((tmp_path / "out" / "search.json").read_text(encoding="utf-8"))["recommended"] == "new"
    assert "Recommended: new" in (tmp_path / "out" / "search.html").read_text(encoding="utf-8")
    assert run_command(["tune", "generator", "choose", *files, "-m", "exact_match", "-o", str(tmp_path / "out")]) == 2
    assert run_command(["tune", "generator", "choose", files[0], files[0], "-m", "exact_match"]) == 2


def test_human_values_name_generator_and_trace(tmp_path: Path) -> None:
    table = tmp_path / "people.csv"
    table.write_text("generator,trace,groundedness\nold,1,0.5\n", encoding="utf-8")
    assert read_human_table(table, "groundedness", ["old"]) == {"old": {"1": 0.5}}
    with pytest.raises(InputError, match=r"people\.csv:2: no value in the column `token_f1`"):
        read_human_table(table, "token_f1", ["old"])
    with pytest.raises(InputError, match=r"people\.csv:2: .*one of new"):
        read_human_table(table, "groundedness", ["new"])


def test_human_values_are_objects_that_end_with_their_line(tmp_path: Path) -> None:
    """A line separator within a text ends no row of JSON Lines, and a row that is no object is refused by its line."""
    table = tmp_path / "people.jsonl"
    row = {"generator": "old", "trace": "1", "groundedness": 0.5, "note": "one\u2028two\x85three"}
    table.write_text(json.dumps(row, ensure_ascii=False) + "\r\n", encoding="utf-8")
    assert read_human_table(table, "groundedness", ["old"]) == {"old": {"1": 0.5}}
    table.write_text("\n[1]\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"people\.jsonl:2: not an object"):
        read_human_table(table, "groundedness", ["old"])


@pytest.mark.parametrize("value", ["7", "-3", "nan", "inf"])
def test_human_values_lie_in_the_range_of_the_metric(tmp_path: Path, value: str) -> None:
    table = tmp_path / "people.csv"
    table.write_text(f"generator,trace,groundedness\nold,1,0.5\nold,2,{value}\n", encoding="utf-8")
    with pytest.raises(InputError, match=rf"people\.csv:3: {value} is not in \[0, 1\] - at `groundedness`"):
        read_human_table(table, "groundedness", ["old"])


@pytest.mark.parametrize("holdout", ["0", "1", "1.5", "nan"])
def test_a_holdout_outside_0_and_1_is_refused_with_two_generators(tmp_path: Path, holdout: str) -> None:
    paths = [
        write_answers(tmp_path / f"{name}.jsonl", [answer(str(at), at, f"at {name}") for at in range(40)])
        for name in ("nine", "ten")
    ]
    assert run_command(["tune", "generator", "choose", *paths, "-m", "exact_match", "--holdout", holdout]) == 2


def write_answers(path: Path, traces: list[Trace]) -> str:
    path.write_text("".join(msgspec.json.encode(trace).decode() + "\n" for trace in traces), encoding="utf-8")
    return str(path)


def test_several_answers_to_one_question_may_share_its_id_in_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = [
        replace(answer(str(at), at, text), model=model, latency={"total": ms})
        for at in range(40)
        for model, text, ms in (("old", "at ten", 100.0), ("new", "at nine", 300.0))
        for _ in range(2)
    ]
    path = write_answers(tmp_path / "answers.jsonl", traces)
    assert run_command(["tune", "generator", "choose", path, "--by-model", "-m", "exact_match", "--json"]) == 0
    choice = json.loads(capsys.readouterr().out)
    assert choice["recommended"] == "new"
    assert {noise["repetitions"] for noise in choice["noise"]} == {2}
    assert [row["latency_p50"] for row in choice["measured"]] == [300, 100]


def test_ids_that_name_several_questions_do_not_join_answers() -> None:
    same_ids = {name: [answer("1", at, f"at {name}") for at in range(3)] for name in ("nine", "ten")}
    joined = join_answers(same_ids)
    assert len(joined.questions) == 3
    assert joined.repetitions == 1


def test_two_generators_are_marked_on_the_frontier(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The star stands at the name, and at 80 columns every heading stands in one line."""
    monkeypatch.setenv("COLUMNS", "80")
    paths = [
        write_answers(
            tmp_path / f"{name}.jsonl",
            [replace(answer(str(at), at, text), latency={"total": 100.0}) for at in range(40)],
        )
        for name, text in (("old", "at ten"), ("new", "at nine"))
    ]
    assert run_command(["tune", "generator", "choose", *paths, "-m", "exact_match"]) == 0
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert rows["new"][1] == "*"
    assert "Generator" in rows
    assert (rows["new"][1], rows["old"][1]) == ("*", "40")
