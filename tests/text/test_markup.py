"""Laws of the marks of Markdown in an answer."""

from __future__ import annotations

import pytest

from ragfault.text.markup import strip_emphasis


@pytest.mark.parametrize("mark", ["*", "**", "_", "~~", "`", "***"])
def test_marks_that_nothing_closes_stay(mark: str) -> None:
    """A text of a hundred thousand marks, none of which is closed, comes back as it is, and within the time limit."""
    text = f"{mark}a " * 100_000
    assert strip_emphasis(text) == text


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("**10** days, ~~not~~ *9*", "10 days, not 9"),
        ("**a *b* c**", "a b c"),
        ("2*3*4, 3 * 4 * 5, my_own_name", "2*3*4, 3 * 4 * 5, my_own_name"),
        ("**begun\nand ended** later", "**begun\nand ended** later"),
    ],
)
def test_pairs_of_marks_go_and_products_and_names_stay(text: str, bare: str) -> None:
    """A pair of marks in one line goes, also within another; a mark within a word or between spaces is none."""
    assert strip_emphasis(text) == bare
