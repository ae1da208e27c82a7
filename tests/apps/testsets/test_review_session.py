"""Laws of review sessions: what several people read and write at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from ragfault.apps.testsets.review_session import ReviewSession, ReviewState, fingerprint_review
from ragfault.apps.testsets.reviews import EMPTY_ITEM, LAYOUT, create_review, create_written
from ragfault.labels.reading.label_files import read_saved_labels
from ragfault.model.errors import InputError
from ragfault.model.records import Trace

ITEMS = tuple(Trace(id=str(at), query=f"How long is quay {at}?") for at in range(4))


def write_set(path: Path, items: tuple[Trace, ...] = ITEMS) -> None:
    (path / "next").write_bytes(b"".join(msgspec.json.encode(item) + b"\n" for item in items))
    (path / "next").replace(path / "set.jsonl")


@pytest.fixture
def session(tmp_path: Path) -> ReviewSession:
    write_set(tmp_path)
    return ReviewSession(tmp_path / "set.jsonl", tmp_path / "reviews.jsonl")


def accept(_: ReviewState) -> None:
    """Let every review pass."""


def test_an_item_waits_for_each_person_until_that_person_reviewed_it(session: ReviewSession):
    session.add(create_review(ITEMS[0], "accepted", "Ann "), accept)
    state = session.load()
    assert [item.id for item in state.list_waiting("ann")] == ["1", "2", "3"]
    assert len(state.list_waiting("ben")) == 4


def test_an_item_that_changed_in_the_set_waits_again(session: ReviewSession, tmp_path: Path):
    session.add(create_review(ITEMS[0], "accepted", "ann"), accept)
    assert session.load().get_review("0", "ann") is not None
    write_set(tmp_path, (replace(ITEMS[0], query="How wide is quay 0?"), *ITEMS[1:]))
    assert session.load().get_review("0", "ann") is None
    assert session.load().items["0"].query == "How wide is quay 0?"


def test_disputes_are_those_of_the_others(session: ReviewSession):
    session.add(create_review(ITEMS[0], "accepted", "ann"), accept)
    session.add(create_review(ITEMS[0], "rejected", "ben"), accept)
    assert list(session.load().find_disputes("cho")) == ["0"]
    assert session.load().find_disputes("ben") == {}


def test_what_a_person_wrote_is_an_item_of_its_author(session: ReviewSession):
    session.add(create_written(replace(EMPTY_ITEM, query="Who owns the crane?"), "Ann"), accept)
    state = session.load()
    [(name, author)] = state.authors.items()
    assert (author, state.items[name].query) == ("ann", "Who owns the crane?")
    assert state.get_review(name, "ann").value == "accepted"
    assert name in {item.id for item in state.list_waiting("ben")}


def test_a_review_that_a_check_refuses_is_not_written(session: ReviewSession):
    session.add(create_review(ITEMS[0], "accepted", "ann"), accept)
    seen = []

    def refuse(state: ReviewState) -> None:
        seen.append(state.get_review("0", "ann"))
        raise InputError("no")

    with pytest.raises(InputError):
        session.add(create_review(ITEMS[0], "rejected", "ann"), refuse)
    assert [review.value for review in seen] == ["accepted"]
    assert len(list(read_saved_labels(session.reviews, LAYOUT))) == 1


def test_of_two_who_write_at_once_the_check_of_the_later_one_sees_the_review_of_the_first(session: ReviewSession):
    before = fingerprint_review(None)

    def write(at: int) -> bool:
        def check(state: ReviewState) -> None:
            if fingerprint_review(state.get_review("0", "ann")) != before:
                raise InputError("meanwhile")

        own = ReviewSession(session.items, session.reviews)
        try:
            own.add(create_review(ITEMS[0], "accepted", "ann", replace(ITEMS[0], query=f"Version {at}?")), check)
        except InputError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        written = list(pool.map(write, range(16)))
    assert sum(written) == 1
    assert len(list(read_saved_labels(session.reviews, LAYOUT))) == 1


def test_a_search_returns_the_passages_with_the_rarest_words(tmp_path: Path):
    write_set(tmp_path)
    (tmp_path / "docs").mkdir()
    for name, text in (
        ("quay.md", "The quay is long. " * 9),
        ("crane.md", "The crane on the quay lifts forty tons. " * 5),
    ):
        (tmp_path / "docs" / name).write_text(text)
    session = ReviewSession(tmp_path / "set.jsonl", tmp_path / "reviews.jsonl", tmp_path / "docs")
    assert session.search_passages("crane of the quay")[0].document == "crane.md"
    assert ReviewSession(tmp_path / "set.jsonl", tmp_path / "reviews.jsonl").search_passages("crane") == ()
