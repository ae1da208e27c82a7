"""Laws of tables and images: a value belongs to its row, and an image without words cannot be judged by its text."""

from __future__ import annotations

import pytest

from ragfault.judges.loading import load_judge
from ragfault.model.records import Chunk, Citation, Trace, Verdicts

TABLE = """## Charges for a crossing

| Vehicle | Price in euros | Note |
|---|---|---|
| Car | 20 | Up to 5 m. Longer ones are vans. |
| Van | 35 | Up to 7 m. |
| Motor lorry | 90 | Booking needed. |
"""


def observe(answer: str, *chunks: Chunk, judge: str = "lexical", cites: tuple[Citation, ...] | None = None) -> Verdicts:
    trace = Trace(id="1", query="What does a crossing cost?", chunks=chunks, answer=answer, citations=cites)
    return load_judge(judge).observe([trace])[0]


@pytest.mark.parametrize("judge", ["lexical", "embedded"])
def test_the_value_of_another_row_is_contradicted(judge: str):
    """A claim that gives one row the value of another is contradicted, and the reason names both rows."""
    chunk = Chunk(id="fares", text=TABLE, kind="table")
    [right] = observe("The price of a van is 35 euros.", chunk, judge=judge).claim or ()
    [wrong] = observe("The price of a van is 90 euros.", chunk, judge=judge).claim or ()
    assert right.support != "contradicted"
    assert wrong.support == "contradicted"
    assert wrong.reason == "the table has “90” in the row “Motor lorry”, not in “Van”"


@pytest.mark.parametrize(
    "answer",
    [
        "A van costs 35 euros, a motor lorry 90.",
        "A crossing costs up to 90 euros.",
        "A car costs 20 euros, which is up to 5 m.",
        "A van of the fleet costs 90 euros.",
        "A van does not cost 90 euros.",
        "A van costs less than 90 euros.",
    ],
)
def test_a_claim_that_names_no_row_or_several_is_not_judged_by_rows(answer: str):
    """So is one whose value stands in a sentence outside of the table."""
    chunks = (Chunk(id="fares", text=TABLE), Chunk(id="note", text="Since May a van of the fleet costs 90 euros."))
    reasons = [claim.reason or "" for claim in observe(answer, *chunks).claim or ()]
    assert not any(reason.startswith("the table has") for reason in reasons)


def test_an_image_without_words_leaves_open_what_it_may_support():
    """A claim that no other chunk supports cannot be told, with the reason; support by another chunk stands."""
    image = Chunk(id="plan", kind="image", text="https://example.org/plan.png")
    text = Chunk(id="a", text="Dogs travel free.")
    sound = observe("Dogs travel free.", image, text)
    assert [claim.support for claim in sound.claim or ()] == ["supported"]
    open_ = observe("The ferry leaves from berth 2.", image, text, cites=(Citation(chunk="plan"),))
    reason = "plan: an image without caption or text, which this judge cannot read"
    assert open_.claim is open_.citation is open_.chunk is None
    assert {open_.failures[part] for part in ("claim", "citation", "chunk", "use")} == {reason}
    assert open_.answer is not None
    assert open_.answer.grounded is None


@pytest.mark.parametrize("judge", ["lexical", "embedded"])
def test_images_without_words_alone_fail_with_their_reason(judge: str):
    """What nothing else can support fails with the image as its reason; a refusal makes no claim all the same."""
    image = Chunk(id="plan", kind="image", text="https://example.org/plan.png")
    alone = observe("The ferry leaves from berth 2.", image, judge=judge)
    assert alone.claim is alone.chunk is None
    assert alone.failures["claim"].startswith("plan: an image without caption or text")
    assert observe("I do not know.", image, judge=judge).claim == ()


def test_numbers_of_rows_name_no_row():
    """A first cell that only counts the rows says nothing of what a claim is about."""
    table = "| No. | Crew | Years |\n|---|---|---|\n| 1 | Ada Holm | 12 |\n| 2 | Ben Roe | 7 |\n"
    [claim] = observe("Ben Roe is on 1 ferry.", Chunk(id="crew", text=table)).claim or ()
    assert not (claim.reason or "").startswith("the table has")


FARES = "| Vehicle | Price | Share |\n|---|---|---|\n| Car | 1.2 million | 40% |\n| Van | 1,200,000 | 0.4 |\n"
STAFF = "| Name | Role | Manager |\n|---|---|---|\n| Ada Holm | engineer | Ben Roe |\n| Ben Roe | director | |\n"
CITIES = "| Region | City | Staff |\n|---|---|---|\n| North | Leeds | 40 |\n| | York | 12 |\n| South | Dover | 12 |\n"
STOPS = "| Stop | Arrives | Leaves |\n|---|---|---|\n| Dover | 09:30 | 09:45 |\n| Calais | 11:15 | 11:45 |\n"


@pytest.mark.parametrize(
    ("table", "answer"),
    [
        (FARES, "The price of the car is 1,200,000."),
        (FARES, "The share of the van is 40%."),
        (STAFF, "Ada Holm reports to a director."),
        (STAFF, "Ben Roe manages the engineer."),
        (CITIES, "The North has 12 staff in York."),
        (STOPS, "After Dover the ferry arrives at 11:15."),
        (STOPS, "The ferry leaves Dover at 09:45 and is under way until the 11:45 departure."),
        (TABLE, "The price of a car plus 15 gives 35 euros."),
    ],
)
def test_a_true_claim_on_rows_that_hang_together_is_not_contradicted_by_them(table: str, answer: str):
    """Numbers in another unit, rows that name each other or go on below, times and sums take no other row's value."""
    reasons = [claim.reason or "" for claim in observe(answer, Chunk(id="table", text=table)).claim or ()]
    assert not any(reason.startswith("the table has") for reason in reasons)


def test_the_wrong_value_of_a_table_of_times_is_still_contradicted():
    """Times are compared as they are read, with and without a leading zero."""
    [claim] = observe("The ferry leaves Dover at 11:45.", Chunk(id="table", text=STOPS)).claim or ()
    assert claim.support == "contradicted"
