"""Laws of quotes: where in a text the words stand that someone quotes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragfault.model.rules import quote_matches
from ragfault.text.similarity import locate_quote

TEXT = "The “old” harbour—built in\n1921—has 14 piers; most were made of reinforced concrete in the winter of 1968."


@pytest.mark.parametrize(
    ("quote", "spans"),
    [
        ("has 14 piers", ["has 14 piers"]),
        ('The "old" harbour-built in 1921', ["The “old” harbour—built in\n1921"]),
        ('"has  14   piers"', ["has 14 piers"]),
        ("The “old” harbour … winter of 1968", ["The “old” harbour", "winter of 1968"]),
        (
            "most were made of reenforced concrete in the winter",
            ["most were made of reinforced concrete in the winter"],
        ),
        ("has 15 piers", []),
        ("has 14 piers … of 1969", []),
        ("arbour", []),
        ("", []),
        ("…", []),
    ],
)
def test_quoted(quote: str, spans: list[str]):
    """A quote is found word for word or nearly so, each unbroken part of it, and no part of a word."""
    assert [TEXT[start:end] for start, end in locate_quote(quote, TEXT)] == spans


@pytest.mark.parametrize(
    ("quote", "text", "spans"),
    [
        ("naïve café", "A nai\u0308ve cafe\u0301.", "nai\u0308ve cafe\u0301"),
        ("pass word", "a pass\u00a0wo\u200brd b", "pass\u00a0wo\u200brd"),
        ("是一九二一年", "港口建于一九二一年，是一九二一年的事。", "是一九二一年"),
        ("2 km²", "It is 2\u2009km² long.", "2\u2009km²"),
        ("the Leaves at noon", "See: The leaves at noon", "The leaves at noon"),
    ],
)
def test_other_spellings(quote: str, text: str, spans: str):
    """Accents apart, narrow spaces, hidden characters and other scripts do not hide a quote."""
    assert [text[start:end] for start, end in locate_quote(quote, text)] == [spans]


@given(st.text(max_size=80), st.text(max_size=80), st.text(max_size=20))
def test_offsets_are_of_the_text(left: str, quote: str, right: str):
    """Whatever is found lies within the text, is not empty, and holds the quote within the tolerance."""
    text = f"{left} {quote} {right}"
    for start, end in locate_quote(quote, text):
        assert 0 <= start < end <= len(text)


@given(
    st.lists(
        st.sampled_from(["pier", "harbour", "old", "1921", "of", "the", "re-made", "“noon”"]), min_size=1, max_size=12
    ),
    st.data(),
)
def test_runs_of_words_are_located(words: list[str], data: st.DataObject):
    """A run of the words of a text is found in it, and what is found stands there by the rule of citations too."""
    text = " ".join(words)
    low = data.draw(st.integers(0, len(words) - 1))
    high = data.draw(st.integers(low + 1, len(words)))
    quote = "  ".join(words[low:high]).replace("“", '"').replace("”", '"')
    spans = locate_quote(quote, text)
    assert len(spans) == 1
    assert quote_matches(quote, text[spans[0][0] : spans[0][1]])
