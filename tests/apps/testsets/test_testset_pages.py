"""The pages on which people review a set: nobody overwrites another unseen, and nothing that was stored is lost."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from msgspec.structs import replace

from installed import skip_without

skip_without("duckdb", reason="the dashboard needs the extra `server`")
skip_without("fastapi", reason="the dashboard needs the extra `server`")
skip_without("jinja2", reason="the dashboard needs the extra `server`")

from browser import COLOURS, Visit, list_violations, start_browser
from dashboard_server import Client, DashboardServer
from ragfault.apps.testsets.reviews import LAYOUT
from ragfault.apps.watch.server.app import create_app
from ragfault.apps.watch.server.settings import ServerSettings
from ragfault.labels.reading.label_files import read_saved_labels
from ragfault.model.errors import InputError, UsageError
from ragfault.model.records import Gold, Span, Trace

TEXT = "The quay of Ostrey was built by Ann Lee in 1907. It carries 40 carts an hour across the river Bren."
ITEMS = (
    Trace(
        id="built/1",
        query="Who built the quay?",
        reference="Ann Lee",
        facts=("Ann Lee built it.", "It was 1907."),
        gold=Gold(spans=(Span(document="quay.md", start=0, end=48, quote=TEXT[:48], suffix=TEXT[48:90]),)),
        answerable=True,
        metadata={"okay_facts": ["It was 1907."], "kind": "extractive"},
    ),
    Trace(id="carts", query="How many carts? <script>alert(1)</script>", answerable=True),
    Trace(id="long", query="names_of_projects_that_only_the_harbour_office_knows_and_nobody_else_ever_wrote_down?"),
)


def write_set(path: Path, items: tuple[Trace, ...] = ITEMS) -> Path:
    (path / "next").write_bytes(b"".join(msgspec.json.encode(item) + b"\n" for item in items))
    (path / "next").replace(path / "set.jsonl")
    (path / "docs").mkdir(exist_ok=True)
    (path / "docs" / "quay.md").write_text(TEXT)
    return path / "set.jsonl"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, Client]]:
    """A server on loopback with a set, its corpus, and no token."""
    server = DashboardServer(tmp_path / "s", page_files={"testset": write_set(tmp_path), "corpus": tmp_path / "docs"})
    with server.serving() as url:
        yield tmp_path, Client(url)


def open_form(client: Client, id: str, by: str = "ann", show: str = "waiting") -> dict[str, str]:
    """Return the fields of the form of an item as a browser would send them."""
    page = client.ask(f"/testset/item?by={by}&show={show}&id={id}").text
    form = page[page.index('<form method="post" action="/testset/item"') :]
    fields = dict(re.findall(r'<input[^>]* name="(\w+)" value="([^"]*)"', form))
    fields |= dict(re.findall(r'<textarea[^>]* name="(\w+)"[^>]*>\n(.*?)</textarea>', form, re.DOTALL))
    fields["answerable"] = re.search(r'<option value="(\w*)" selected>', form)[1]  # type: ignore[index]
    return {name: html.unescape(value) for name, value in fields.items()}


def send(client: Client, fields: dict[str, str], **changed: str) -> Any:
    """Send a form with changes."""
    return client.ask("/testset/item", fields | {"decision": "accepted"} | changed)


def test_an_accepted_form_that_was_not_changed_is_a_review_without_an_edit(served: tuple[Path, Client]):
    path, client = served
    answer = send(client, open_form(client, "built/1"))
    assert (answer.status, answer.headers["location"]) == (303, "/testset/item?id=carts&show=waiting&by=ann")
    [review] = read_saved_labels(path / "reviews.jsonl", LAYOUT)
    assert (review.trace, review.annotator, review.value, review.edited) == ("built/1", "ann", "accepted", None)


def test_query_answers_nuggets_and_spans_are_edited(served: tuple[Path, Client]):
    path, client = served
    changed = {
        "query": "Who built the quay of Ostrey?", "reference": "Ann Lee\nMs Lee", "vital": "Ann Lee built it.",
        "okay": "In 1907.", "span": "quay.md | 40 carts an hour", "answerable": "no",
    }  # fmt: skip
    assert send(client, open_form(client, "built/1"), **changed).status == 303
    [review] = read_saved_labels(path / "reviews.jsonl", LAYOUT)
    item = review.edited
    assert (item.query, item.references, item.answerable) == (changed["query"], ("Ann Lee", "Ms Lee"), False)
    assert (item.facts, item.metadata["okay_facts"]) == (("Ann Lee built it.", "In 1907."), ["In 1907."])
    span = item.gold.spans[0]
    assert TEXT[span.start : span.end] == span.quote == "40 carts an hour"
    assert open_form(client, "built/1", show="all")["query"] == changed["query"]


def test_words_that_do_not_stand_in_the_corpus_are_refused_and_nothing_typed_is_lost(served: tuple[Path, Client]):
    path, client = served
    answer = send(client, open_form(client, "carts"), span="quay.md | no such words", vital="A & B")
    assert answer.status == 422
    assert "occur 0 times in quay.md" in answer.text
    assert "quay.md | no such words</textarea>" in answer.text
    assert "A &amp; B</textarea>" in answer.text
    assert not (path / "reviews.jsonl").exists()


def test_a_page_that_is_older_than_the_reviewers_own_review_is_a_conflict(served: tuple[Path, Client]):
    path, client = served
    first, second = (open_form(client, "carts") for _ in range(2))
    assert send(client, first, query="How many carts an hour?").status == 303
    answer = send(client, second, query="How many carts a day?")
    assert answer.status == 409
    assert "How many carts an hour?" in answer.text
    assert "How many carts a day?</textarea>" in answer.text
    assert len(list(read_saved_labels(path / "reviews.jsonl", LAYOUT))) == 1
    again = dict(re.findall(r'name="(previous|shown)" value="([^"]*)"', answer.text))
    assert send(client, second | again, query="How many carts a day?").status == 303
    stored = read_saved_labels(path / "reviews.jsonl", LAYOUT)[1]
    assert stored.edited.query == "How many carts a day?"


def test_an_item_that_changed_or_left_the_set_is_a_conflict(served: tuple[Path, Client]):
    path, client = served
    carts, built = open_form(client, "carts"), open_form(client, "built/1")
    write_set(path, (replace(ITEMS[1], query="How many carts in all?"),))
    changed = send(client, carts, query="How many carts a day?")
    assert (changed.status, "How many carts in all?" in changed.text) == (409, True)
    gone = send(client, built, query="Who built it?")
    assert (gone.status, "Who built it?</textarea>" in gone.text) == (409, True)
    assert not (path / "reviews.jsonl").exists()


def test_two_reviewers_do_not_see_each_other_until_they_differ(served: tuple[Path, Client]):
    _, client = served
    send(client, open_form(client, "carts", "ann"), query="How many carts an hour?")
    assert "an hour" not in client.ask("/testset/item?by=ben&id=carts&show=all").text
    assert "an hour" not in client.ask("/testset?by=ben&show=all").text
    assert "an hour" not in client.ask("/testset.json?by=ben&show=all").text
    send(client, open_form(client, "carts", "ben"), decision="rejected")
    view = json.loads(client.ask("/testset.json?by=cho&show=disputed").text)
    assert [line["id"] for line in view["lines"]] == ["carts"]
    assert (view["agreement"]["shared"], view["agreement"]["agreement"][0]) == (1, 0.0)
    assert view["agreement"]["reasons"] == [["carts", "decision"]]
    page = client.ask("/testset/item?by=cho&show=disputed&id=carts").text
    assert "How many carts an hour?" in page
    assert "<bdi>ben</bdi>: rejected" in page


def test_an_adjudicator_decides_and_the_reviewed_set_is_downloaded(served: tuple[Path, Client]):
    _, client = served
    send(client, open_form(client, "carts", "ann"))
    send(client, open_form(client, "carts", "ben"), decision="rejected")
    fields = open_form(client, "carts", "cho", "disputed")
    assert send(client, fields, query="How many carts cross?").headers["location"] == "/testset?show=disputed&by=cho"
    items = [json.loads(line) for line in client.ask("/testset/reviewed.jsonl?adjudicator=cho").text.splitlines()]
    assert [item["query"] for item in items if item["id"] == "carts"] == ["How many carts cross?"]
    waiting = [json.loads(line) for line in client.ask("/testset/reviewed.jsonl").text.splitlines()]
    assert len(waiting) == 3
    assert client.ask("/testset/reviewed.jsonl?adjudicator=nobody").status == 404


def test_a_question_is_written_with_words_of_the_corpus_changed_and_withdrawn(served: tuple[Path, Client]):
    path, client = served
    fields = open_form(client, "")
    shown = send(client, fields, query="Which river?", decision="search", search="river Bren")
    assert (shown.status, "across the river Bren" in shown.text, "Which river?</textarea>" in shown.text) == (
        200,
        True,
        True,
    )
    assert not (path / "reviews.jsonl").exists()
    assert send(client, fields, query="Which river?", span="quay.md | the river Bren").status == 303
    assert send(client, fields, query="Which river?").status == 409
    [name] = [line["id"] for line in json.loads(client.ask("/testset.json?by=ann&show=written").text)["lines"]]
    assert send(client, open_form(client, name), query="Which river is it?").status == 303
    assert open_form(client, name, "ben")["query"] == "Which river is it?"
    assert send(client, open_form(client, name), decision="rejected").status == 303
    assert json.loads(client.ask("/testset.json?show=written").text)["lines"] == []


def test_texts_of_a_set_are_escaped(served: tuple[Path, Client]):
    _, client = served
    for page in ("/testset?by=ann", "/testset/item?by=ann&id=carts"):
        text = client.ask(page).text
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert" in text


@pytest.mark.long
def test_a_page_of_a_large_set_has_at_most_a_megabyte(tmp_path: Path):
    """With 5,000 items of long texts; markup in any field of an item, its id included, is text."""
    evil = '"><img src=x onerror=alert(1)></textarea>'
    items = tuple(
        Trace(
            id=f"{evil}/{number}",
            query=evil + "ü" * 4000,
            reference=evil,
            facts=(evil,),
            gold=Gold(spans=(Span(document=evil, start=0, end=9, quote=evil, prefix=evil, suffix=evil),)),
            metadata={"kind": evil, "okay_facts": [evil]},
        )
        for number in range(5000)
    )
    server = DashboardServer(
        tmp_path / "s", page_files={"testset": write_set(tmp_path, items), "corpus": tmp_path / "docs"}
    )
    with server.serving() as url:
        client = Client(url)
        fields = {"by": evil, "text": evil, "page": "3"}
        pages = [f"/testset?{urlencode(fields | {'show': show})}" for show in ("all", "waiting", "disputed")]
        for address in (*pages, f"/testset/item?{urlencode({'id': items[7].id, 'by': evil})}", "/testset/item?id=../x"):
            text = client.ask(address).text
            assert "<img src=x" not in text
            assert len(text.encode()) <= 1_000_000


def test_a_form_without_the_stamp_of_the_server_or_a_name_is_refused(served: tuple[Path, Client]):
    path, client = served
    fields = open_form(client, "carts")
    assert send(client, fields, csrf_token="0").status == 403
    assert send(client, fields, by=" ").status == 422
    assert send(client, fields, decision="perhaps").status == 422
    assert not (path / "reviews.jsonl").exists()


def test_reviewers_with_tokens_are_named_by_them_and_only_admins_write(tmp_path: Path):
    token = "a-long-token-of-the-admin"
    server = DashboardServer(tmp_path / "s", page_files={"testset": write_set(tmp_path)}, token=token)
    with server.serving() as url:
        admin = Client(url).sign_in(token)
        for name, role in (("ann", "admin"), ("ben", "read")):
            issued = admin.send("/tokens", name=name, role=role).text
            text = re.search(r'id="issued-token"[^>]*>([^<]+)', issued)[1]  # type: ignore[index]
            client = Client(url).sign_in(text)
            page = client.ask("/testset/item?id=carts&by=somebody").text
            assert ("To review, sign in" in page) == (role == "read")
            stamp = re.search(r'name="csrf_token" value="(\w+)"', page)[1]  # type: ignore[index]
            shown = re.search(r'name="shown" value="([^"]*)"', page)[1]  # type: ignore[index]
            fields = {"csrf_token": stamp, "id": "carts", "shown": shown, "previous": "", "by": "somebody"}
            answer = client.ask("/testset/item", fields | {"decision": "rejected"})
            assert answer.status == (303 if role == "admin" else 403)
        assert Client(url).ask("/testset").status == 303
        audit = json.loads(admin.ask("/audit.json").text)
    [review] = read_saved_labels(tmp_path / "reviews.jsonl", LAYOUT)
    assert review.annotator == "ann"
    assert ("ann", "testset_review", "carts") in {(row["who"], row["action"], row.get("target")) for row in audit}


def test_a_set_that_cannot_be_read_is_an_error_before_a_store_is_opened(tmp_path: Path):
    with pytest.raises(InputError):
        create_app(ServerSettings(store=tmp_path / "s", page_files={"testset": tmp_path / "none.jsonl"}))
    assert not (tmp_path / "s").exists()
    with pytest.raises(UsageError, match="need a set"):
        create_app(ServerSettings(store=tmp_path / "s", page_files={"corpus": tmp_path}))
    assert not (tmp_path / "s").exists()


@pytest.mark.browser
@pytest.mark.long
def test_axe_finds_nothing_in_light_and_dark_wide_and_narrow(served: tuple[Path, Client]):
    _, client = served
    send(client, open_form(client, "built/1", "ann"), query="Who?")
    send(client, open_form(client, "built/1", "ben"))
    pages = ["/testset?by=ann&show=all", "/testset/item?by=cho&show=disputed&id=built/1", "/testset/item?by=ann"]
    with start_browser() as chromium, Visit(chromium, client.url, color_scheme="light") as visit:
        for path in pages:
            visit.open(path)
            assert list_violations(visit.page) == [], path
            visit.page.emulate_media(color_scheme="dark")
            visit.page.set_viewport_size({"width": 420, "height": 900})
            assert list_violations(visit.page, [*COLOURS, "target-size", "scrollable-region-focusable"]) == [], path
            assert visit.page.evaluate("document.documentElement.scrollWidth") <= 420, path
            visit.page.emulate_media(color_scheme="light")
            visit.page.set_viewport_size({"width": 1300, "height": 900})


@pytest.mark.browser
@pytest.mark.long
def test_a_person_reviews_a_set_in_a_browser_without_a_script(served: tuple[Path, Client]):
    path, client = served
    size = {"width": 420, "height": 900}
    with (
        start_browser() as chromium,
        Visit(chromium, client.url, "/testset", java_script_enabled=False, viewport=size) as visit,
    ):
        page = visit.page
        page.fill('input[name="by"]', "ann")
        page.get_by_role("button", name="Show", exact=True).click()
        page.click("a.go >> nth=0")
        page.fill("#query", "Who built the old quay?")
        page.fill("#vital", "Ann Lee built it.\nIt is made of stone.")
        page.get_by_role("button", name="Accept").click()
        page.wait_for_url("**id=carts**")
        page.get_by_role("button", name="Reject").click()
        page.wait_for_url("**id=long**")
    reviews = list(read_saved_labels(path / "reviews.jsonl", LAYOUT))
    assert [review.value for review in reviews] == ["accepted", "rejected"]
    assert reviews[0].edited.facts == ("Ann Lee built it.", "It is made of stone.", "It was 1907.")
