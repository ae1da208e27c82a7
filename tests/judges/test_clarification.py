"""Laws of unclear rubrics: the sentence that a scripted judge and people read in two ways is found and rewritten."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from endpoint import Server, serve_model
from ragfault.cli.commands import run_command
from ragfault.labels.rubrics.halves import is_unseen
from ragfault.labels.rubrics.sentences import list_sentences, rewrite_sentence
from ragfault.model.records import Chunk, Trace
from ragfault.model.rubrics import RubricLevel, load_rubrics, rubric

CRITERION = "The answer addresses the customer formally. It names the time exactly."
LENIENT, STRICT = "It names the time in any words.", "It names the time with hours and minutes."
ANSWERS = (
    "Dear customer, it leaves at 12:00 ({}).",
    "Hey, it leaves at 12:00 ({}).",
    "Dear customer, it leaves at noon ({}).",
)


def make_traces() -> list[Trace]:
    """Return 120 answers, of which every sixth one names the time in a word."""
    chunk = Chunk(id="a", text="The ferry leaves at noon, 12:00.")
    return [
        Trace(
            id=f"t{n}",
            query=f"When does ferry {n} leave?",
            chunks=(chunk,),
            answer=ANSWERS[2 if n % 6 == 4 else n % 2].format(n),
        )
        for n in range(120)
    ]


def judge_answer(criterion: str, answer: str, unclear: str) -> float:
    """Judge by the words of a rubric; `unclear` is how the sentence that says "exactly" is read."""
    time = unclear if "exactly" in criterion else STRICT if STRICT in criterion else ""
    is_formal = "formally" not in criterion or "Dear" in answer
    return float(is_formal and (time != STRICT or "12:00" in answer))


class ReadingServer(Server):
    """Scripted model that reads "exactly" in one way as a judge, and names the sentence it is told to name."""

    reads, names = LENIENT, "r2"

    def reply(self, messages: Sequence[Mapping[str, Any]]) -> str:
        text = "\n".join(message["content"] for message in messages[1:])
        if "Fields: sentences" in text:
            return self.find_sentence(text)
        fields = json.loads(super().reply(messages))
        criterion = messages[0]["content"].partition("Rubric u1, ")[2]
        answer = text.partition("it leaves")[0][-20:] + text.partition("it leaves")[2][:20]
        for item in fields.get("rubrics", ()):
            item["value"] = judge_answer(criterion, answer, self.reads)
        return json.dumps(fields)

    def find_sentence(self, text: str) -> str:
        """Say that all disputed answers depend on the named sentence, and give both readings of the second one."""
        cases = re.findall(r"^(d\d+): people", text, re.MULTILINE)
        other = LENIENT if self.reads == STRICT else STRICT
        readings = {"r1": ("It is formal and formally so.",) * 2, "r2": (other, self.reads)}
        rows = [
            {"id": name, "cases": cases if name == self.names else [], "people": people, "judge": judge}
            for name, (people, judge) in readings.items()
        ]
        return json.dumps({"sentences": rows})


class StrictServer(ReadingServer):
    """The judge is the strict one, and the model names the wrong sentence: only the control can find the right one."""

    reads, names = STRICT, "r1"


class SilentServer(ReadingServer):
    """The model names no sentence."""

    names = ""


def read_leniently(trace: Trace) -> float:
    return judge_answer(CRITERION, trace.answer or "", LENIENT)


def read_strictly(trace: Trace) -> float:
    return judge_answer(CRITERION, trace.answer or "", STRICT)


def draw_number(trace: Trace) -> int:
    return hashlib.sha256(trace.id.encode()).digest()[0]


def err_at_random(trace: Trace) -> float:
    """Return what the lenient judge says, but the opposite of one answer in six: no sentence explains it."""
    return 1 - read_leniently(trace) if draw_number(trace) % 6 == 0 else read_leniently(trace)


def read_strictly_at_first(trace: Trace) -> float:
    """Return the strict reading in the half that is learnt from, and errors at random in the other."""
    return err_at_random(trace) if is_unseen(trace) else read_strictly(trace)


class Bench:
    """A run judged by a scripted model, with labels of people."""

    def __init__(self, folder: Path, people: Callable[[Trace], float]) -> None:
        self.folder, traces = folder, make_traces()
        (folder / "t.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, traces)))
        (folder / "rubrics.toml").write_text(f'[exact]\ncriterion = "{CRITERION}"\n', encoding="utf-8")
        rows = "".join(f"{trace.id},{people(trace)}\n" for trace in traces)
        (folder / "labels.csv").write_text(f"trace,value\n{rows}", encoding="utf-8")
        self.asked = ["--judge", "llm:m", "--rubrics", str(folder / "rubrics.toml"), "--price", "1,1"]
        self.asked += ["--cache", str(folder / "replies.sqlite")]
        assert run_command(["evaluate", str(folder / "t.jsonl"), "-o", str(folder / "run"), *self.asked, "-q"]) == 0

    def clarify(self, *options: str) -> int:
        return run_command(
            ["judge", "clarify", str(self.folder / "run"), str(self.folder / "labels.csv"), *self.asked, *options]
        )


def start(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGFAULT_LLM_BASE_URL", server.url)


def test_a_sentence_is_replaced_where_it_is_written():
    """Criterion and levels of the author have sentences; one gets other words and the rest stays as it is."""
    levels = [RubricLevel(value=0, description="none"), RubricLevel(value=1, description="A time. Or two!")]
    item = rubric(CRITERION, name="exact", levels=levels)
    sentences = list_sentences(item)
    assert [(sentence.text, sentence.value) for sentence in sentences] == [
        ("The answer addresses the customer formally.", None),
        ("It names the time exactly.", None),
        ("none", 0),
        ("A time.", 1),
        ("Or two!", 1),
    ]
    assert rewrite_sentence(item, sentences[1], STRICT).criterion.endswith(f"formally. {STRICT}")
    assert rewrite_sentence(item, sentences[4], "").levels[1].description == "A time."
    assert rewrite_sentence(item, sentences[2], "") is None
    assert len(list_sentences(rubric(CRITERION, name="exact"))) == 2


@pytest.mark.long
def test_the_sentence_that_two_read_differently_is_rewritten_with_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The model names the sentence, its reading by people settles every dispute, and held-out labels prove it."""
    with serve_model(kind=ReadingServer) as server:
        start(server, monkeypatch)
        bench = Bench(tmp_path, read_strictly)
        before = server.calls.total()
        assert bench.clarify("--dry-run", "--json") == 0
        planned = json.loads(capsys.readouterr().out)["kinds"][0]
        assert server.calls.total() == before
        assert bench.clarify("-o", str(tmp_path / "clear.toml"), "--json") == 0
        search = json.loads(capsys.readouterr().out)
        assert server.calls.total() - before <= planned["calls"] + 1
        assert bench.clarify() == 0
        assert "one sentence is read in two ways" in capsys.readouterr().out
    best = search["best"]
    assert (search["labelled"], search["disputed"], search["stricter"]) == (120, 20, search["examined"])
    assert (best["sentence"], best["wording"], best["text"]) == (1, "as people read it", STRICT)
    assert (best["settled"], best["broken"]) == (search["examined"], 0)
    as_before = [trial["unchanged"] for trial in search["trials"] if trial["wording"] == "as the judge reads it"]
    assert as_before == [1.0]
    assert search["proof"]["after"] == 1.0
    assert search["proof"]["difference"]["low"] > 0
    [clear] = load_rubrics(tmp_path / "clear.toml")
    assert clear.criterion == f"The answer addresses the customer formally. {STRICT}"


@pytest.mark.long
def test_the_control_finds_the_sentence_that_the_model_does_not_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """A judge that is too strict agrees better without the sentence, so its readings are tried, too."""
    with serve_model(kind=StrictServer) as server:
        start(server, monkeypatch)
        assert Bench(tmp_path, read_leniently).clarify("--json") == 0
    search = json.loads(capsys.readouterr().out)
    assert (search["best"]["sentence"], search["best"]["text"]) == (1, LENIENT)
    assert search["named"][1] == 0


@pytest.mark.long
def test_where_nothing_is_unclear_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Errors at random belong to no sentence, and people who agree with the judge have no dispute: exit code 3."""
    with serve_model(kind=SilentServer) as server:
        start(server, monkeypatch)
        cases = (("random", err_at_random, "nothing is unclear"), ("alike", read_leniently, "too few to find"))
        for name, people, reason in cases:
            (folder := tmp_path / name).mkdir()
            out = folder / "clear.toml"
            assert Bench(folder, people).clarify("-o", str(out)) == 3
            shown = " ".join(capsys.readouterr().out.split())
            assert "no sentence is found unclear" in shown
            assert reason in shown
            assert not out.exists()


@pytest.mark.long
def test_a_reading_that_fails_on_unseen_labels_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """What settles every dispute of one half and none of the other is shown with its proof, and not written."""
    with serve_model(kind=ReadingServer) as server:
        start(server, monkeypatch)
        assert Bench(tmp_path, read_strictly_at_first).clarify("-o", str(tmp_path / "clear.toml"), "--json") == 3
    search = json.loads(capsys.readouterr().out)
    assert (search["best"]["text"], search["clarified"]) == (STRICT, None)
    assert search["best"]["settled"] == search["examined"]
    assert search["proof"]["difference"]["low"] <= 0
    assert not (tmp_path / "clear.toml").exists()


@pytest.mark.long
def test_a_budget_ends_the_search_and_a_larger_one_resumes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """All trials spend from one budget; paid replies are kept, so that the next command asks only for the others."""
    with serve_model(kind=ReadingServer) as server:
        start(server, monkeypatch)
        bench = Bench(tmp_path, read_strictly)
        assert bench.clarify("--budget", "200000 tokens") == 3
        assert "the budget is spent" in capsys.readouterr().err
        asked = server.calls.total()
        assert bench.clarify("--json") == 0
        assert asked < server.calls.total()
        assert max(server.calls.values()) == 1


def test_another_judge_than_that_of_the_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Another model, other rubrics, or a judge without a language model is a usage error before anything is sent."""
    with serve_model(kind=ReadingServer) as server:
        start(server, monkeypatch)
        bench = Bench(tmp_path, read_strictly)
        before = server.calls.total()
        assert bench.clarify("--judge", "llm:other") == 2
        assert bench.clarify("--rubric", "tone") == 2
        (tmp_path / "rubrics.toml").write_text('[exact]\ncriterion = "It is short."\n', encoding="utf-8")
        assert bench.clarify() == 2
        assert server.calls.total() == before
