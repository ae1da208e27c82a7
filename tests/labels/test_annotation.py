"""Labelling in the terminal: keys become labels, nothing is lost or asked twice, and people stand beside each other."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from msgspec.structs import replace

from ragfault.cli.commands import run_command as command
from ragfault.io.runs.run import Run
from ragfault.labels.annotation.items import (
    AnnotationItem,
    ask_item,
    create_label,
    list_choices,
    list_items,
    measure_annotators,
)
from ragfault.labels.annotation.sampling import (
    compute_chances,
    estimate_uncertainty,
    read_suggestions,
    shuffle_ids,
    suggest_traces,
)
from ragfault.labels.annotation.session import Session
from ragfault.labels.consensus import resolve_labels
from ragfault.labels.label import Label
from ragfault.labels.reading.label_files import read_labels
from ragfault.labels.reading.lines import build_label_line, list_label_line
from ragfault.model.causes import CauseName
from ragfault.model.errors import InputError, UsageError
from ragfault.model.records import Chunk, Citation, CitationVerdict, Evidence
from ragfault.report.terminal.annotation import COMMAND_KEYS, CardView, render_item
from ragfault.stats.ppi import ppi_mean
from sample_runs import Pair, evaluate_pairs, pair


def pairs() -> list[Pair]:
    """Return three traces with two chunks, two claims, a citation and a fact each."""
    judged_run = []
    for name in ("q1", "q2", "q3"):
        trace, seen = pair(name, "hn", "su", facts=("It opens.",))
        cited = CitationVerdict(chunk=f"{name}-0", claim="Claim 0 holds.", supports=True)
        trace = replace(trace, citations=(Citation(chunk=f"{name}-0", claim="Claim 0 holds."),))
        judged_run.append((trace, replace(seen, citation=(cited,))))
    return judged_run


@pytest.fixture
def judged_run(tmp_path: Path) -> Run:
    return evaluate_pairs(tmp_path, pairs())


def piped(arguments: list[str], keys: str, folder: Path) -> str:
    """Return the output of the command line for piped keys."""
    done = subprocess.run(
        [sys.executable, "-m", "ragfault", "label", *arguments],
        input=keys,
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def sitting(
    run: Run, path: Path, by: str = "ann", only: tuple[str, ...] = ("chunk", "claim")
) -> Session[AnnotationItem]:
    result = zip(run.traces(), run.verdicts(), strict=True)
    return Session((ask_item(item, by) for trace, seen in result for item in list_items(trace, seen, only)), path, by)


def key_of(session: Session[AnnotationItem]) -> object:
    return None if session.question is None else session.question.content.key


# --- items -----------------------------------------------------------------------------------------


def test_a_trace_is_asked_chunk_by_chunk_and_claim_by_claim():
    """Chunks come first, before the answer is shown; then claims, citations, expected facts, and the refusal."""
    trace, seen = pairs()[0]
    kinds = [item.kind for item in list_items(trace, seen)]
    assert kinds == ["chunk", "chunk", "claim", "claim", "citation", "fact", "refusal"]
    assert [item.kind for item in list_items(replace(trace, answer=None), seen)] == ["chunk", "chunk"]


def test_every_kind_has_its_letters():
    """The first letters of the levels and of the kinds of support; yes and no for the rest."""
    letters = {
        kind: "".join(item.letter for item in list_choices(kind))
        for kind in ("chunk", "claim", "citation", "fact", "refusal")
    }
    assert letters == {"chunk": "hmln", "claim": "siuc", "citation": "yn", "fact": "yn", "refusal": "yn"}


def test_the_chunks_are_judged_without_sight_of_the_answer():
    """A card for a chunk holds no word of the answer; one for a claim holds answer, chunks and marked evidence."""
    trace, seen = pairs()[0]
    trace = replace(trace, answer="Claim 0 holds. Claim 1 holds.", chunks=(Chunk(id="a", text="All holds here."),))
    seen = replace(seen, claim=tuple(replace(c, evidence=(Evidence(chunk="a", start=4, end=9),)) for c in seen.claim))
    result = list(list_items(trace, seen))
    assert "Claim 0" not in render_item(result[0], "", CardView(width=100))
    shown = render_item(result[1], "", CardView(width=100))
    assert "[a] All «holds» here." in shown
    assert "«Claim 0 holds.» Claim 1 holds." in shown


def test_the_judge_is_hidden_unless_it_is_asked_for():
    """Blind by default: the card does not say what the judge made of the item."""
    trace, seen = pairs()[0]
    claim = list(list_items(trace, seen, ["claim"]))[1]
    assert "verdict of the judge" not in render_item(claim, "")
    assert "verdict of the judge: unsupported" in render_item(claim, "", CardView(judge=True))


def test_traces_cannot_steer_the_terminal():
    """Escape sequences and control characters of a trace are not printed."""
    trace, seen = pair("q\x1b[2J", "h", "s")
    trace = replace(
        trace,
        query="When\x1b]0;title\x07?",
        chunks=(replace(trace.chunks[0], text="a\x1b[31mred\x1b[0m\r\x08 b"),),
        answer="Claim\x9b2J 0 holds.",
    )
    for item in list_items(trace, seen):
        assert not set(render_item(item, f"trace {trace.id}")) & set("\x1b\x9b\x07\r\x08")


# --- a sitting -------------------------------------------------------------------------------------


def test_each_word_is_on_the_disk_before_the_next_item(judged_run: Run, tmp_path: Path):
    """After each word the file holds one label more; a letter that is no word of the item says nothing."""
    path = tmp_path / "labels.jsonl"
    session = sitting(judged_run, path)
    for number, letter in enumerate("hnsu", 1):
        assert not session.press("x")
        assert session.press(letter)
        assert len(read_labels(path)) == number
    words = resolve_labels(read_labels(path))["q1"].values
    assert words == {
        ("chunk", "q1-0", "level"): "high",
        ("chunk", "q1-1", "level"): "none",
        ("claim", 0, 14): "supported",
        ("claim", 15, 29): "unsupported",
    }


def test_a_sitting_goes_on_where_it_was_left(judged_run: Run, tmp_path: Path):
    """What one person said is not asked again, what was skipped is; another person is asked everything."""
    path = tmp_path / "labels.jsonl"
    first = sitting(judged_run, path)
    first.press("h")
    first.skip()
    first.press("s")
    again = sitting(judged_run, path)
    assert key_of(again) == ("chunk", "q1-1", "level")
    again.press("n")
    assert key_of(again) == ("claim", 15, 29)
    assert key_of(sitting(judged_run, path, by="ben")) == ("chunk", "q1-0", "level")


def test_another_answer_is_another_question(judged_run: Run, tmp_path: Path):
    """Of an answer that has changed its claims are asked anew; what was said of the chunks stands."""
    path = tmp_path / "labels.jsonl"
    session = sitting(judged_run, path)
    for letter in "hnss":
        session.press(letter)
    trace, seen = pairs()[0]
    changed = replace(trace, answer=f"{trace.answer} Or so.")
    left = Session((ask_item(item, "ann") for item in list_items(changed, seen, ("chunk", "claim"))), path, "ann")
    assert left.question.content.kind == "claim"


def test_back_says_it_anew_and_undo_takes_it_back(judged_run: Run, tmp_path: Path):
    """Back goes to the item before and the later word wins; undo removes the last label from the file."""
    path = tmp_path / "labels.jsonl"
    session = sitting(judged_run, path)
    assert not session.back()
    assert not session.undo()
    session.press("h")
    assert session.back()
    assert session.answer.value == "high"
    session.press("l")
    assert resolve_labels(read_labels(path))["q1"].values["chunk", "q1-0", "level"] == "low"
    assert session.undo()
    assert (session.answer.value, session.label_count) == ("high", 1)
    assert session.undo()
    assert path.read_bytes() == b""
    assert key_of(session) == ("chunk", "q1-0", "level")
    assert key_of(sitting(judged_run, path)) == ("chunk", "q1-0", "level")


def test_a_killed_sitting_is_resumed(judged_run: Run, tmp_path: Path):
    """A last line that was not written to its end was never acknowledged: its item is asked again."""
    path = tmp_path / "labels.jsonl"
    sitting(judged_run, path).press("h")
    complete = path.read_bytes()
    path.write_bytes(complete + complete[:40])
    resumed = sitting(judged_run, path)
    assert key_of(resumed) == ("chunk", "q1-1", "level")
    resumed.press("l")
    assert [label.value for label in read_labels(path)] == ["high", "low"]


# --- the command line ------------------------------------------------------------------------------


@pytest.mark.long
def test_keys_that_are_piped_in_label(judged_run: Run, tmp_path: Path):
    """Keys from a pipe do what keys of a terminal do; the order is drawn at random and the same each time."""
    shown = piped([str(judged_run.path), "--by", "ann", "--only", "chunk,claim"], "h n\nzmq", tmp_path)
    labels = read_labels(tmp_path / "labels.jsonl")
    first = shuffle_ids(["q1", "q2", "q3"])[0]
    assert [(item.trace, item.subject[1]) for item in labels if item.part == "chunk"] == [(first, f"{first}-0")]
    assert "Run the same command again to resume." in shown
    assert all(item.annotator == "ann" and item.time and item.shown for item in labels)


@pytest.mark.long
def test_the_end_shows_the_agreement(judged_run: Run, tmp_path: Path):
    """Where nothing is left the command says so; a limit ends after so many traces, in the order of the file."""
    shown = piped([str(judged_run.path), "--limit", "1", "--order", "file", "--only", "refusal"], "n", tmp_path)
    assert "Every item is labelled." in shown
    assert [item.trace for item in read_labels(tmp_path / "labels.jsonl")] == ["q1"]


@pytest.mark.long
def test_traces_that_were_never_judged_are_labelled(tmp_path: Path):
    """Of a file of traces a judge finds the claims; its verdicts are not shown."""
    row = {"id": "1", "query": "When does it open?", "contexts": ["It opens at 7."], "answer": "It opens at 7."}
    (tmp_path / "traces.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    shown = piped(["traces.jsonl", "--judge", "lexical"], "hsn", tmp_path)
    words = resolve_labels(read_labels(tmp_path / "labels.jsonl"))["1"].values
    assert set(words.values()) == {"high", "supported", False}
    assert "verdict of the judge" not in shown


@pytest.mark.long
def test_a_terminal_labels_key_by_key(judged_run: Run, tmp_path: Path):
    """On a real terminal a word is written as soon as its key is pressed, without Enter; Ctrl-C keeps what was said."""
    path = tmp_path / "labels.jsonl"
    leader, follower = pty.openpty()
    arguments = ["label", str(judged_run.path), "-o", str(path), "--by", "ann", "--only", "chunk"]
    with (
        subprocess.Popen(
            [sys.executable, "-m", "ragfault", *arguments],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
            preexec_fn=own,  # noqa: PLW1509 - no thread of this process holds a lock there
            env={**os.environ, "TERM": "xterm"},
        ) as process,
        ended(process),
    ):
        os.close(follower)
        assert "How relevant is this chunk" in until(leader, "q quit")
        os.write(leader, b"h")
        assert "1 label written" in until(leader, "1 label written")
        assert len(read_labels(path)) == 1
        os.write(leader, b"\x7f")
        until(leader, "0 labels written")
        assert path.read_bytes() == b""
        os.write(leader, b"m")
        until(leader, "1 label written")
        os.write(leader, b"\x03")
        until(leader, "Finished work is kept")
        assert process.wait(60) == 130
    os.close(leader)
    assert read_labels(path)[0].value == "medium"


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End a process with the test, however it ends."""
    try:
        yield
    finally:
        process.kill()


def own() -> None:
    """Make the terminal at standard input one that Ctrl-C reaches this process from."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def until(leader: int, text: str, limit: float = 60.0) -> str:
    """Read the terminal until it shows a text."""
    shown, end = "", time.monotonic() + limit
    while text not in shown and time.monotonic() < end:
        if select.select([leader], [], [], 0.2)[0]:
            try:
                shown += os.read(leader, 65536).decode(errors="replace")
            except OSError:
                break
    assert text in shown, shown[-2000:]
    return shown


def test_unknown_kinds_and_picks_are_refused(judged_run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A kind that cannot be labelled, and picks of other traces, are told with what there is."""
    path = str(tmp_path / "labels.jsonl")
    assert command(["label", str(judged_run.path), "-o", path, "--only", "clam"]) == 2
    assert 'no kind of item "clam". Did you mean "claim"?' in capsys.readouterr().err
    (tmp_path / "picks.jsonl").write_text('{"trace": "z", "chance": 0.5, "uncertainty": 0.1}\n', encoding="utf-8")
    assert command(["label", str(judged_run.path), "-o", path, "--from", str(tmp_path / "picks.jsonl")]) == 2
    assert "name no trace of these" in capsys.readouterr().err


# --- two people ------------------------------------------------------------------------------------


def word(trace: str, by: str, support: str, level: str = "high") -> list[Label]:
    values = {("claim", 0, 9): support, ("chunk", "a", "level"): level}
    return [
        Label(trace=trace, subject=subject, value=value, annotator=by, shown="a-1") for subject, value in values.items()
    ]


def test_people_agree_as_far_as_they_say_the_same():
    """Of four claims two people say three alike: kappa and alpha as counted by hand, and the one that differs."""
    letters = {"q1": "ss", "q2": "uu", "q3": "su", "q4": "uu"}
    full = {"s": "supported", "u": "unsupported"}
    labels = [
        label
        for name, pair in letters.items()
        for at, by in enumerate(("ann", "ben"))
        for label in word(name, by, full[pair[at]])
    ]
    chunk, claim = measure_annotators(labels)
    assert (claim.annotators, claim.items, claim.shared) == (("ann", "ben"), 4, 4)
    assert claim.accuracy.value == 0.75
    assert claim.kappa.value == pytest.approx(0.5)  # half of them by chance
    assert claim.alpha.value == pytest.approx(1 - 2 * 7 / (2 * 3 * 5))
    assert [(item.trace, item.values) for item in claim.disputes] == [
        ("q3", {"ann": "supported", "ben": "unsupported"})
    ]
    assert chunk.accuracy.value == 1.0
    assert chunk.kappa.value is None  # all the same: chance would agree as well


def test_one_person_has_nobody_to_agree_with():
    """Without a second person there are no figures, and the reason; three people have alpha and no kappa."""
    (only,) = measure_annotators([Label(trace="1", subject=("answer", "refused"), value=True, annotator="ann")])
    assert only.reason == "no item has labels of two annotators"
    three = [
        label for at in range(4) for by in "abc" for label in word(f"q{at}", by, "supported" if at else "unsupported")
    ]
    result = measure_annotators(three)[1]
    assert (result.kappa, result.alpha.value) == (None, 1.0)


@pytest.mark.long
def test_two_sittings_end_in_their_agreement(judged_run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The second person is asked the same traces in the same order, and at the end sees how far both agree."""
    arguments = [str(judged_run.path), "--only", "claim"]
    piped([*arguments, "--by", "ann"], "sususu", tmp_path)
    shown = piped([*arguments, "--by", "ben"], "sususs", tmp_path)
    assert "They disagree on 1 item" in shown
    assert command(["label", "agreement", str(tmp_path / "labels.jsonl"), "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert (result["shared"], result["accuracy"][0]) == (6, pytest.approx(5 / 6))


# --- which traces ----------------------------------------------------------------------------------


def test_chances_add_up_and_favor_uncertainty():
    """So many are drawn on average, no chance is 0 or above 1, and more doubt never means less chance."""
    rng = np.random.default_rng(0)
    for n in (1, 20, 150, 199, 500):
        doubt = rng.exponential(size=200)
        result = compute_chances(doubt, n)
        assert result.sum() == pytest.approx(min(n, 200))
        assert result.min() >= min(n, 200) / 400 - 1e-12
        assert result.max() <= 1
        assert (np.diff(result[np.argsort(doubt)]) >= -1e-12).all()
    assert compute_chances(np.zeros(10), 4) == pytest.approx(np.full(10, 0.4))


@pytest.mark.long
def test_suggestions_favor_uncertain_traces(judged_run: Run, tmp_path: Path, capsys: Any):
    """As many traces as were asked for, each with its chance; the command writes them and `label --from` asks them."""
    result = suggest_traces(judged_run, 2)
    assert len(result) == 2
    assert all(0 < item.chance <= 1 for item in result)
    assert result == suggest_traces(judged_run, 2)
    path = tmp_path / "picks.jsonl"
    assert command(["label", "suggest", str(judged_run.path), "-n", "2", "-o", str(path)]) == 0
    assert read_suggestions(path) == result
    piped([str(judged_run.path), "--from", str(path), "--only", "refusal"], "nn", tmp_path)
    output = [(item.trace, item.chance) for item in read_labels(tmp_path / "labels.jsonl")]
    assert output == [(item.trace, item.chance) for item in result]
    with pytest.raises(UsageError, match="labels can be suggested for"):
        suggest_traces(judged_run, 2, "tokens")
    path.write_text("{}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"picks\.jsonl:1"):
        read_suggestions(path)


def test_uncertainty_is_the_spread_of_the_metric():
    """Of m claims that are each right with chance p: the root of the summed p(1 − p) over m."""
    _, seen = pair("q", "", "su")
    seen = replace(seen, claim=tuple(replace(item, p=p) for item, p in zip(seen.claim, (0.5, 0.9), strict=True)))
    assert estimate_uncertainty(seen, "groundedness") == pytest.approx((0.25 + 0.09) ** 0.5 / 2)
    assert estimate_uncertainty(replace(seen, claim=()), "groundedness") is None


@pytest.mark.long
def test_suggested_labels_narrow_the_interval_and_it_still_holds():
    """Where the judge knows when it doubts, picked labels give a narrower interval than as many drawn alike."""
    rng, n = np.random.default_rng(0), 1000
    widths: dict[bool, list[float]] = {True: [], False: []}
    covered = 0
    for _ in range(150):
        doubt = rng.exponential(0.1, n).clip(0.005, 0.4)
        judged = rng.uniform(0.2, 0.8, n)
        people = judged + rng.normal(0, doubt)
        for picked in (True, False):
            chance = compute_chances(doubt if picked else np.zeros(n), 80)
            labels = np.where(rng.random(n) < chance, people, np.nan)
            result = ppi_mean(judged, labels, sampling_probabilities=chance).interval
            widths[picked].append(result.high - result.low)
            covered += picked and result.low <= 0.5 <= result.high
    assert np.mean(widths[True]) < 0.9 * np.mean(widths[False])
    assert covered >= 0.9 * 150


def test_every_cause_has_a_key_that_no_command_has():
    """A press names one cause, or a right answer; the commands of the session keep their keys."""
    keys = [choice.letter for choice in list_choices("cause")]
    assert len(set(keys)) == len(keys)
    assert {choice.value for choice in list_choices("cause")} == {*get_args(CauseName), "right"}
    assert not set(keys) & {*COMMAND_KEYS, " "}


def test_a_cause_is_asked_for_only_on_request():
    """It is no verdict of a judge, so that labels of verdicts do not cost one more press for each trace."""
    trace, seen = pair("q", "", "su")
    assert "cause" not in {item.kind for item in list_items(trace, seen)}
    asked = list(list_items(trace, seen, ("cause",)))
    assert [item.key for item in asked] == [("cause",)]
    label = create_label(asked[0], "refused", "ann")
    assert list_label_line(build_label_line(label)) == [label]
