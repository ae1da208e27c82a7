"""Laws of documents: what a file of a corpus becomes, what it is called, and that a bad one costs no other."""

from __future__ import annotations

import gzip
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragfault.io.document_parsers import detect_charset, parse_html, parse_markdown_header
from ragfault.io.documents import read_documents
from ragfault.model.errors import BadDocuments, InputError, UnknownName


def read(where, **how):
    """Return the documents, and the faults as file name, line and problem."""
    reported = []
    documents = list(read_documents(where, on_bad=reported.append, **how))
    return documents, [(os.path.basename(fault.where), fault.line, fault.problem) for fault in reported]


def ids(where, **how):
    return [document.id for document in read(where, **how)[0]]


def put(folder, **files):
    """Write files to a folder: name with __ for the dot → text or bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / name.replace("__", ".")).write_bytes(data)
    return folder


# --- which files, and what they are called ---------------------------------------------------------


def test_a_folder_is_read_in_the_order_of_names(tmp_path):
    """Files below a folder are named relative to it; hidden ones and others are passed over, and counted by kind."""
    put(tmp_path / "b", z__txt="z", image__png=b"\x89PNG")
    put(tmp_path / ".git", config__txt="x")
    put(tmp_path, a__md="a", c__html="c", **{".hidden__txt": "x", "t__bad__jsonl": "x"})
    notices = []
    assert ids(tmp_path, notice=notices.append) == ["a.md", "b/z.txt", "c.html"]
    assert notices == [f"passed over 2 files of other kinds in {tmp_path} (1 .png, 1 .jsonl)"]


def test_files_and_globs_are_named_from_where_they_vary(tmp_path):
    """A single file is called by its name, what a glob finds from its first wildcard on."""
    put(tmp_path / "docs" / "deep", a__md="a")
    put(tmp_path / "docs", b__txt="b")
    assert ids(tmp_path / "docs" / "deep" / "a.md") == ["a.md"]
    assert ids(str(tmp_path / "docs" / "**" / "*.*")) == ["b.txt", "deep/a.md"]
    assert ids([tmp_path / "docs" / "b.txt", tmp_path / "docs" / "deep"]) == ["b.txt", "a.md"]


def test_lines_that_are_no_pairs_in_the_headers_of_many_files_are_one_notice(tmp_path):
    header = "---\ntitle: Dogs\nversions:\n  'a' b\n---\nOn a lead.\n"
    put(tmp_path, a__md=header, b__md=header, c__md=header)
    notices = []
    assert ids(tmp_path, notice=notices.append) == ["a.md", "b.md", "c.md"]
    assert notices == [f"{tmp_path / 'a.md'}: passed over in its front matter: 'a' b; and so in 2 more files"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("none.md", "there is no file"),
        ("*.md", "no document matches"),
        ("a.pdf", "of no known kind.*such as a PDF by: pdftotext"),
        ("", "no document"),
    ],
)
def test_nothing_to_read_raises_at_once(name, problem, tmp_path):
    """What is not there, or is no document, is refused before anything is read."""
    put(tmp_path, a__pdf=b"%PDF")
    with pytest.raises(InputError, match=problem):
        read_documents(tmp_path / name)


def test_patterns_after_an_exclamation_mark_leave_files_out_by_the_name_of_file_or_folder(tmp_path):
    for name in ("a.md", "b.txt", "drafts/c.md", "api/old/d.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"The text of {name}.")
    read = {
        pattern: [document.id for document in read_documents([tmp_path, f"!{pattern}"])]
        for pattern in ("*.txt", "drafts", "api/*", "old")
    }
    assert read == {
        "*.txt": ["a.md", "api/old/d.md", "drafts/c.md"],
        "drafts": ["a.md", "api/old/d.md", "b.txt"],
        "api/*": ["a.md", "b.txt", "drafts/c.md"],
        "old": ["a.md", "b.txt", "drafts/c.md"],
    }
    for pattern in ("nothing", "*"):
        with pytest.raises(InputError):
            list(read_documents([tmp_path, f"!{pattern}"]))


def test_a_duplicate_id_is_a_fault(tmp_path):
    """The first document of an id is kept, the second told."""
    put(tmp_path / "x", a__md="one")
    put(tmp_path / "y", a__md="two")
    documents, faults = read([tmp_path / "x", tmp_path / "y"])
    assert [document.text for document in documents] == ["one"]
    assert faults == [("a.md", 1, 'duplicate id "a.md"')]


# --- what a file becomes ---------------------------------------------------------------------------


def test_text_is_the_file_with_plain_line_ends(tmp_path):
    """A text file is its characters, without a byte order mark, every line end as one sign."""
    put(tmp_path, a__txt="\ufeffone\r\ntwo\rthree\n")
    [document] = read(tmp_path)[0]
    assert document.text == "one\ntwo\nthree\n"
    assert document.title is None


def test_markdown_header_is_metadata(tmp_path):
    """Pairs at the head of Markdown are metadata and no text; the title is theirs, else the first heading."""
    head = "---\ntitle: 'Dogs: all'\nyear: 2024\ndraft: false\ntags:\n  - a\n  - b\ncode: 007\nnested:\n  x: 1\n---\n"
    notices = []
    put(
        tmp_path,
        a__md=head + "# On dogs #\n\nText.",
        b__md="Before.\n\n```\n# a remark\n```\n\n# Cats #\n",
        c__md="---\nno end",
    )
    first, second, third = read(tmp_path, notice=notices.append)[0]
    assert (first.title, first.text) == ("Dogs: all", "# On dogs #\n\nText.")
    assert first.metadata == {"year": 2024, "draft": False, "tags": ["a", "b"], "code": "007", "nested": None}
    assert (second.title, second.metadata) == ("Cats", {})
    assert third.text == "---\nno end"
    assert "x: 1" in notices[0]


@given(st.text(alphabet="-: \nab[],'\"#", max_size=40))
def test_markdown_header_ends_within_the_text(text):
    """Whatever a text begins with, its front matter is a head of it, or nothing."""
    head = parse_markdown_header(text)
    assert 0 <= head.end <= len(text)
    assert bool(head.metadata) == bool(head.end)


def test_lines_and_rows_are_documents(tmp_path):
    """A record is a document: id, title and text by their columns, all else metadata; without an id its line is it."""
    rows = [
        {"_id": 7, "title": "T", "text": "one", "metadata": {"language": "en"}, "year": 2024},
        {"page_content": "two", "none": None},
        {"messages": [{"role": "user", "content": "Dogs?"}, {"role": "agent", "content": "Yes."}]},
    ]
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    put(tmp_path, b__json=json.dumps([{"id": "x", "body": "three"}, {"id": "y", "body": "four"}]))
    put(tmp_path, c__csv="id,text,date\np,five,2024-01-02\nq,'=six,\n")
    documents, faults = read(tmp_path)
    assert not faults
    assert {document.id: document.text for document in documents} == {
        "7": "one",
        "a.jsonl.gz#2": "two",
        "a.jsonl.gz#3": "user: Dogs?\n\nagent: Yes.",
        "x": "three",
        "y": "four",
        "p": "five",
        "q": "=six",
    }
    assert (documents[0].title, documents[0].metadata) == ("T", {"language": "en", "year": 2024})
    assert documents[5].metadata == {"date": "2024-01-02"}


def test_other_json_is_one_document(tmp_path):
    """JSON without texts is a document as it stands, a list of messages a chat, a table without texts a table."""
    put(
        tmp_path,
        a__json='{"fares": {"car": 20}}',
        b__json='[{"role": "user", "content": "Hi"}]',
        c__csv="fare,price\ncar,20\ndog,\n",
    )
    texts = [document.text for document in read(tmp_path)[0]]
    assert texts[:2] == ['{"fares": {"car": 20}}', "user: Hi"]
    assert texts[2] == "| fare | price |\n| --- | --- |\n| car | 20 |\n| dog |  |"


def test_a_column_can_be_named(tmp_path):
    """The text is the column that is named, and a record without it is a fault."""
    put(tmp_path, a__jsonl='{"id": "1", "story": "s", "text": "t"}\n{"id": "2", "text": "t"}\n')
    documents, faults = read(tmp_path, text="story")
    assert [(document.text, document.metadata) for document in documents] == [("s", {"text": "t"})]
    assert faults == [("a.jsonl", 2, "there is no text: none of its columns is story")]


# --- HTML ------------------------------------------------------------------------------------------


def test_a_page_is_what_is_read_of_it(tmp_path):
    """Headings, lists, tables and code become Markdown; scripts, styles and comments are gone; nothing is fetched."""
    put(
        tmp_path,
        a__html="""<!doctype html><html><head><title>The &amp; fares</title><style>p { color: red }</style>
        <script>if (a < b && c) { document.write("<p>no</p>") }</script></head><body><!-- no > -->
        <h2>Fares <i>now</i></h2><p>A car
        is <b>20</b>.<br>A dog is free.</p><ul><li>one<li>two<ol><li>deep</ol></ul>
        <table><tr><th>Who</th><th>Pays</th></tr><tr><td>a|b</td><td><p>1</p><p>2</p></td></tr></table>
        <pre>\n  code\n\n  more\n</pre><img src="http://127.0.0.1:1/x.png" alt="a ferry">5 < 6</body></html>""",
    )
    [document] = read(tmp_path)[0]
    assert document.title == "The & fares"
    assert document.text == (
        "## Fares now\n\nA car is 20.\nA dog is free.\n\n- one\n- two\n  1. deep\n\n"
        "| Who | Pays |\n| --- | --- |\n| a\\|b | 1 2 |\n\n```\n  code\n\n  more\n```\n\na ferry5 < 6"
    )


@given(
    st.lists(
        st.sampled_from(["<", ">", "/", "p", "td", "table", "<!--", "-->", "'", '"', "&", "lt;", "ul", "li", " ", "x"]),
        max_size=30,
    )
)
def test_any_markup_is_read(parts):
    """Nothing that is written raises an error."""
    assert parse_html("".join(parts)).text is not None


def test_text_between_broken_tags_stays():
    """What is no tag is text, and what is left open is closed at the end."""
    assert parse_html("a < b <c <p>d<table><tr><td>e").text == "a < b <c\n\nd\n\n| e |\n| --- |"


# --- encodings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", ["utf-8-sig", "utf-16", "utf-32"])
def test_byte_order_marks_are_heeded(mark, tmp_path):
    """What a file says of its own encoding at its very beginning is believed, for texts and for records."""
    put(tmp_path, a__txt="Fähre".encode(mark), b__jsonl='{"id": "b", "text": "Fähre"}\n'.encode(mark))
    assert [document.text for document in read(tmp_path)[0]] == ["Fähre", "Fähre"]


def test_a_page_names_its_encoding_and_so_can_the_caller(tmp_path):
    """The encoding of a page is the one it names; that of other files the one that is given; both are told."""
    put(tmp_path / "x", a__html='<meta charset="latin1"><p>Fähre'.encode("cp1252"))
    put(tmp_path / "y", a__txt="Fähre".encode("cp1252"))
    notices = []
    assert read(tmp_path / "x", notice=notices.append)[0][0].text == "Fähre"
    assert notices == [f"{tmp_path / 'x' / 'a.html'}: read as cp1252"]
    assert read(tmp_path / "y", encoding="cp1252")[0][0].text == "Fähre"
    assert detect_charset(b"<p>") is None
    with pytest.raises(UnknownName, match='Did you mean "utf-8"'):
        read_documents(tmp_path, encoding="utf-88")


# --- faults ----------------------------------------------------------------------------------------

BAD = {
    "bytes": ("a.txt", b"F\xe4hre", 1, "byte 2 is no UTF-8"),
    "empty": ("a.md", b"", 1, "the document is empty"),
    "blank": ("a.txt", b" \n\n", 1, "the document is empty"),
    "head alone": ("a.md", b"---\na: b\n---\n", 1, "the document is empty"),
    "markup alone": ("a.html", b"<p><br></p>", 1, "the document is empty"),
    "zeros": ("a.txt", b"a\0b", 1, "zero bytes"),
    "odd charset": ("a.html", b'<meta charset="klingon">x', 1, "klingon, which does not exist"),
    "broken gzip": ("a.txt.gz", gzip.compress(b"text" * 99)[:-12], 1, "truncated"),
    "malformed": ("a.json", b'{"a": [1, 2}', 1, "malformed JSON"),
    "cut off": ("a.json", b'[{"text": "x"', 1, "malformed JSON"),
    "no text": ("a.jsonl", b'{"id": "1", "title": "t"}\n', 1, "none of its columns is text or content"),
    "text of another type": ("a.jsonl", b'{"id": "1", "text": 5}\n', 1, "not a text but int"),
    "no object": ("a.jsonl", b"\n[1]\n", 2, "Expected `object`"),
    "NaN": ("a.jsonl", b'{"text": "x", "n": NaN}\n', 1, "malformed JSON"),
    "surrogate": ("a.jsonl", b'{"text": "\\ud800"}\n', 1, "malformed JSON|half a character"),
    "cells": ("a.csv", b"id,text\n1\n", 2, "1 cells in a table of 2 columns"),
    "columns": ("a.csv", b"text,text\n1,2\n", 2, "two columns are named `text`"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_costs_no_good_one(case, tmp_path):
    """A fault is told with its file and line, and every other document is read."""
    name, data, line, problem = BAD[case]
    put(tmp_path, **{name.replace(".", "__"): data}, z__md="good")
    documents, [fault] = read(tmp_path)
    assert [document.id for document in documents] == ["z.md"]
    assert fault[:2] == (name, line)
    seen = []
    with pytest.raises(BadDocuments, match=problem) as caught:
        seen.extend(read_documents(tmp_path))
    assert (caught.value.good, caught.value.count) == (1, 1)
    assert "1 of 2 documents cannot be read" in str(caught.value)
    assert len(list(read_documents(tmp_path, on_bad="skip"))) == 1


def test_lines_around_a_bad_one_are_read(tmp_path):
    """One bad line of a file costs none of its others, and keeps its text."""
    put(tmp_path, a__jsonl='{"id": "1", "text": "x"}\n{"id": "2"\n{"id": "3", "text": "z"}\n')
    problems = []
    assert [document.id for document in read_documents(tmp_path, on_bad=problems.append)] == ["1", "3"]
    assert [(fault.line, fault.text) for fault in problems] == [(2, '{"id": "2"')]


def test_an_array_that_breaks_off_gives_what_it_holds(tmp_path):
    """The whole objects of a JSON array are read, and where it ends is told."""
    put(tmp_path, a__json='[{"text": "x"},\n{"text": "y"},\n{"te')
    documents, faults = read(tmp_path)
    assert [document.id for document in documents] == ["a.json#1", "a.json#2"]
    assert faults == [("a.json", 3, "the file ends here: the list is not closed")]


def test_a_truncated_file_gives_what_came_before(tmp_path):
    """Of packed lines that break off the whole ones are read, and the break is told."""
    lines = "".join(json.dumps({"id": str(n), "text": os.urandom(30).hex()}) + "\n" for n in range(5000))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode())[:-5000])
    documents, [(_, _, problem)] = read(tmp_path)
    assert 1000 < len(documents) < 5000
    assert "truncated" in problem


def test_links_may_not_leave_the_folder(tmp_path):
    """A link to a file outside, to a folder outside, or to nothing is a fault; one within the folder is read."""
    put(tmp_path / "secret", key__txt="secret")
    home = put(tmp_path / "home", a__txt="a")
    (home / "b.txt").symlink_to(home / "a.txt")
    (home / "c.txt").symlink_to(tmp_path / "secret" / "key.txt")
    (home / "d").symlink_to(tmp_path / "secret")
    (home / "e.txt").symlink_to(home / "nowhere")
    (home / "f").symlink_to(home)
    documents, faults = read(home)
    assert [document.id for document in documents] == ["a.txt", "b.txt"]
    assert [(name, problem) for name, _, problem in faults] == [
        ("c.txt", "a link that leads out of the folder"),
        ("d", "a link that leads out of the folder"),
        ("e.txt", "a link that leads nowhere"),
    ]
    assert "secret" not in [document.text for document in read(str(home / "**" / "*.txt"))[0]]


@pytest.mark.long
def test_a_long_document_is_read_and_one_beyond_the_limit_is_a_fault(tmp_path):
    """Ten megabytes are a document; what is longer than the limit is a fault, packed or not."""
    put(tmp_path, a__txt=b"word " * 2_000_000, b__html=b"<p>word</p>" * 900_000)
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b" " * 20_000_000))
    documents, faults = read(tmp_path, limit=12_000_000)
    assert [len(document.text) for document in documents] == [10_000_000, 900_000 * 6 - 2]
    assert faults == [("c.txt.gz", 1, "the document is longer than 12,000,000 bytes")]


def test_bad_documents_are_raised_skipped_or_handed_over(tmp_path):
    """A way that does not exist is refused; a folder of nothing but bad ones is told as such."""
    with pytest.raises(UnknownName, match="way to treat bad documents"):
        read_documents(tmp_path, on_bad="drop")
    put(tmp_path, a__jsonl=b"")
    with pytest.raises(InputError, match="there is no document in it"):
        list(read_documents(tmp_path))
