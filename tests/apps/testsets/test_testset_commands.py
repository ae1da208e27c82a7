"""Laws of the commands `ragfault testset`."""

from __future__ import annotations

import io
import json
import sys

import pytest

from ragfault.cli.commands import run_command
from ragfault.io.trace_reader import read_traces


@pytest.fixture
def folder(tmp_path):
    """Return a folder of twelve short documents."""
    docs = tmp_path / "docs"
    docs.mkdir()
    for at in range(12):
        (docs / f"pier{at}.md").write_text(
            f"# Pier {at}\n\nPier {at} was built by Ola Brand in {1900 + at} from granite of the Tarvik quarry. "
            f"Its crane lifts {10 + at} tonnes of timber for the sawmill behind the railway yard every morning.\n"
        )
    return docs


def test_make_writes_a_set_that_is_read_as_traces(folder, tmp_path, capsys):
    out, rejected = tmp_path / "set.jsonl", tmp_path / "rejected.jsonl"
    code = run_command(["testset", "make", str(folder), "-o", str(out), "-n", "8", "--rejected", str(rejected)])
    assert code == 0
    traces = list(read_traces(out))
    assert len(traces) == 8
    assert {trace.metadata["review"] for trace in traces} == {"pending"}
    assert all(span.quote for trace in traces if trace.gold for span in trace.gold.spans)
    assert all(json.loads(line)["reason"] for line in rejected.read_text().splitlines())
    assert "8 items in" in capsys.readouterr().out


def test_make_tells_with_exit_code_1_that_items_are_missing(folder, tmp_path, capsys):
    out = tmp_path / "set.jsonl"
    assert run_command(["testset", "make", str(folder), "-o", str(out), "-n", "5000", "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed["items"] < printed["requested"] == 5000
    assert printed["notes"]


def test_make_does_not_replace_a_file(folder, tmp_path):
    out = tmp_path / "set.jsonl"
    out.write_text("mine\n")
    assert run_command(["testset", "make", str(folder), "-o", str(out), "-n", "2"]) == 2
    assert out.read_text() == "mine\n"


def test_a_mix_is_a_list_of_kinds_and_shares(folder, tmp_path):
    out = tmp_path / "set.jsonl"
    assert run_command(["testset", "make", str(folder), "-o", str(out), "-n", "2", "--mix", "extractive"]) == 2
    assert run_command(["testset", "make", str(folder), "-o", str(out), "-n", "2", "--mix", "keywords=1"]) == 0
    assert {trace.metadata["kind"] for trace in read_traces(out)} == {"keywords"}


def test_refresh_tells_by_its_exit_code_whether_the_set_holds(folder, tmp_path, capsys):
    out, new, broken = (tmp_path / name for name in ("set.jsonl", "new.jsonl", "broken.jsonl"))
    run_command(["testset", "make", str(folder), "-o", str(out), "-n", "8"])
    assert run_command(["testset", "refresh", str(folder), str(out)]) == 0
    for path in folder.iterdir():
        path.write_text(path.read_text().replace("Ola Brand", "Eva Dahl"))
    capsys.readouterr()
    code = run_command(["testset", "refresh", str(folder), str(out), "-o", str(new), "--broken", str(broken)])
    assert code == 1
    assert 'a name changed: "ola brand" → "eva dahl"' in capsys.readouterr().out
    assert len(new.read_text().splitlines()) + len(broken.read_text().splitlines()) == 8


def test_a_set_goes_to_beir_and_back(folder, tmp_path):
    out, beir, again = tmp_path / "set.jsonl", tmp_path / "beir", tmp_path / "again.jsonl"
    run_command(["testset", "make", str(folder), "-o", str(out), "-n", "8", "--mix", "keywords=1"])
    command = ["testset", "convert", str(out), str(beir), "--to", "beir"]
    assert run_command(command) == 2
    assert run_command([*command, "--corpus", str(folder)]) == 0
    assert run_command(["testset", "convert", str(beir), str(again)]) == 0
    before, after = (list(read_traces(path)) for path in (out, again))
    assert sorted(trace.query for trace in before) == sorted(trace.query for trace in after)
    assert run_command(["testset", "convert", str(beir), str(again)]) == 2


def test_nuggets_of_answers_are_applied_to_those_of_another_system(tmp_path, capsys):
    items, answers, out = tmp_path / "set.jsonl", tmp_path / "answers.jsonl", tmp_path / "nuggets.jsonl"
    query = "Who built the quay of Ostrey?"
    items.write_text(json.dumps({"id": "1", "query": query}) + "\n")
    text = "Ann Lee built the quay of Ostrey in 1907."
    answers.write_text(
        "".join(
            json.dumps({"id": f"{at}", "query": query, "answer": words, "chunks": [{"id": "c", "text": text}]}) + "\n"
            for at, words in enumerate((text, f"Indeed: {text}"))
        )
    )
    command = ["testset", "nuggets", str(items), "-o", str(out), "--judge", "lexical"]
    assert run_command(command) == 1
    assert "no reference and no answer" in capsys.readouterr().out
    assert run_command([*command, "--answers", str(answers), "--force"]) == 0
    assert next(read_traces(out)).facts == (text,)
    keyed = tmp_path / "keyed.jsonl"
    assert run_command(["testset", "key", str(out), str(answers), "-o", str(keyed)]) == 0
    assert [(trace.id, trace.facts) for trace in read_traces(keyed)] == [("0", (text,)), ("1", (text,))]
    assert run_command(["testset", "key", str(out), str(answers), "-o", str(answers), "--force"]) == 2
    answers.write_text(json.dumps({"id": "1", "query": "Which fee?"}) + "\n")
    capsys.readouterr()
    assert run_command(["testset", "key", str(out), str(answers), "-o", str(keyed), "--force"]) == 1
    assert "1 traces left out: the item with the id asks another query" in capsys.readouterr().out


def test_describe_writes_a_page_and_names_hard_items(folder, tmp_path, capsys):
    out, page = tmp_path / "set.jsonl", tmp_path / "set.html"
    run_command(["testset", "make", str(folder), "-o", str(out), "-n", "8", "--mix", "keywords=1"])
    run_command(["evaluate", str(out), "-o", str(tmp_path / "run"), "-m", "error", "--judge", "none"])
    capsys.readouterr()
    command = ["testset", "describe", str(out), "--html", str(page)]
    assert run_command([*command, "--corpus", str(folder)]) == 0
    assert "<svg" in page.read_text("utf-8")
    assert run_command([*command, "--metric", "error"]) == 2
    capsys.readouterr()
    assert run_command([*command, "--runs", str(tmp_path / "run"), "--metric", "error", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["difficulty"]["metric"] == "error"


def test_two_reviewers_accept_edit_and_reject_by_keys(folder, tmp_path, capsys, monkeypatch):
    out, reviews, editor = tmp_path / "set.jsonl", tmp_path / "reviews.jsonl", tmp_path / "editor.py"
    run_command(["testset", "make", str(folder), "-o", str(out), "-n", "4", "--mix", "keywords=1"])
    editor.write_text("import sys\nopen(sys.argv[1], 'a').write('okay: It is long.\\n')\n")
    monkeypatch.setenv("EDITOR", f"{sys.executable} {editor}")
    for name, keys in (("ann", "axe "), ("ben", "aae ")):
        monkeypatch.setattr("sys.stdin", io.StringIO(keys))
        assert run_command(["testset", "review", str(out), "-o", str(reviews), "--by", name]) == 0
        assert "3 items reviewed" in capsys.readouterr().out
    merged = tmp_path / "merged.jsonl"
    command = ["testset", "adjudicate", str(out), str(reviews), "-o", str(merged), "--needed", "2"]
    assert run_command(command) == 1
    assert "2 items accepted, 0 rejected, 1 disputed, 1 pending" in capsys.readouterr().out
    assert sum("It is long." in (trace.facts or ()) for trace in read_traces(merged)) == 1
    monkeypatch.setattr("sys.stdin", io.StringIO("ex"))
    monkeypatch.setenv("EDITOR", "no-such-editor")
    assert run_command(["testset", "review", str(out), "-o", str(reviews), "--by", "cho", "--disputes"]) == 0
    shown = capsys.readouterr()
    assert "--- ann: rejected" in shown.out
    assert "the form was not changed: no-such-editor" in shown.err
    assert shown.out.endswith("1 item reviewed, in " + str(reviews) + "; 0 disputed items to review by cho\n")
    assert run_command([*command, "--adjudicator", "cho", "--force"]) == 0
    assert len(list(read_traces(merged))) == 3
    capsys.readouterr()
    run_command(["testset", "adjudicate", str(merged), str(reviews)])
    assert "not counted: 5 reviews of items that are not there, or had other words" in capsys.readouterr().out


def test_a_review_is_undone_and_given_anew(folder, tmp_path, capsys, monkeypatch):
    """z removes the last review from the file, b shows an item again, and the later of two reviews counts."""
    out, reviews = tmp_path / "set.jsonl", tmp_path / "reviews.jsonl"
    run_command(["testset", "make", str(folder), "-o", str(out), "-n", "3", "--mix", "keywords=1"])
    capsys.readouterr()
    monkeypatch.setattr("sys.stdin", io.StringIO("azxbaq"))
    assert run_command(["testset", "review", str(out), "-o", str(reviews), "--by", "ann"]) == 0
    shown = capsys.readouterr().out
    assert "--- you: rejected" in shown
    assert shown.endswith(f"1 item reviewed, in {reviews}; 2 items to review by ann\n")
    decisions = [json.loads(line)["decision"] for line in reviews.read_text().splitlines()]
    assert decisions == ["rejected", "accepted"]


def test_an_empty_document_is_named_and_left_out_on_request(tmp_path, capsys):
    """What a message advises on unreadable documents or lines is an option of the command, or another command."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text("# Bridge\n\nThe canal bridge was opened by Ann Lee in 1907 for carts.\n")
    (tmp_path / "docs/b.md").write_text("")
    make = ["testset", "make", str(tmp_path / "docs"), "-o", str(tmp_path / "set.jsonl"), "-n", "1"]
    assert run_command(make) == 2
    assert "leave them out with --skip-bad" in capsys.readouterr().err
    assert run_command([*make, "--skip-bad"]) == 0
    assert "left out:" in capsys.readouterr().err
    (tmp_path / "bad.jsonl").write_text('{"id": 2\n{"id": "1", "query": "q", "chunks": [], "answer": "a"}\n')
    assert run_command(["testset", "premises", str(tmp_path / "bad.jsonl")]) == 2
    assert "leave them out: ragfault run convert IN OUT --skip-bad" in capsys.readouterr().err
