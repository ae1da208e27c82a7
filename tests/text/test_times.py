"""Laws of the time that a query asks about."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ragfault.text.times import find_asked_time

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("What did a van cost as of 2024?", "2024-12-31"),
        ("Which fares were in force on 2025-02-03?", "2025-02-03"),
        ("fares as of 2024-02", "2024-02-29"),
        ("fares as of the end of March 2025", "2025-03-31"),
        ("fares as of 3 May 2025", "2025-05-03"),
        ("fares as of Dec. 3, 2025", "2025-12-03"),
        ("Who was the harbour master as of last month?", "2026-02-28"),
        ("The rule as it was in 2023, please.", "2023-12-31"),
        ("the price as of yesterday", "2026-02-28"),
        ("As of 2019 what did I pay?", "2019-12-31"),
        ("As of 2024-03-20T10:00, who paid?", "2024-03-20"),
    ],
)
def test_a_state_is_asked_for_at_the_end_of_the_period_named(query: str, expected: str):
    """A year, a month, a day and a relative time stand for their last moment."""
    assert find_asked_time(query, NOW).date().isoformat() == expected


@pytest.mark.parametrize(
    "query",
    [
        "Who won in 2023?",
        "What happened last year?",
        "as of 2024-02-31",
        "fares as of 2030",
        "as of now",
        "What does a seat cost as of 2000 users?",
        "Is the lamp valid at 2000 m?",
        "the rule as it was in the 1990 edition",
        "What is valid in 2020 Main Street?",
        "Which options exist as of 2024.1?",
        "the budget as of 2024/25",
        "Is the fee in force in 2024 still valid today?",
    ],
)
def test_an_event_an_impossible_day_and_the_future_leave_the_time(query: str):
    """So do an amount, an edition and an address; what names no earlier state is asked of the time it was put at."""
    assert find_asked_time(query, NOW) == NOW


def test_a_follow_up_keeps_the_time_until_it_says_now():
    """A short question, or one with a word of the one that named the time, keeps it; a new subject does not."""
    first = "What did a car cost on the ferry as of 2024?"
    assert find_asked_time("And for vans?", NOW, [first]).year == 2024
    assert find_asked_time("Could a dog travel on the upper deck of the ferry?", NOW, [first]).year == 2024
    assert find_asked_time("Which museums near the harbour open on Sunday mornings in winter?", NOW, [first]) == NOW
    assert find_asked_time("And who won in 2025?", NOW, [first]) == NOW
    assert find_asked_time("And for vans today?", NOW, [first]) == NOW
    assert find_asked_time("And for vans?", NOW, [first, "What is it now?"]) == NOW


def test_a_time_without_an_offset_is_utc():
    """The result has an offset."""
    assert find_asked_time("When?", NOW.replace(tzinfo=None)) == NOW
