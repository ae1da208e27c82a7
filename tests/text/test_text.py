"""Laws of the comparison of texts."""

import random
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragfault
from ragfault.text.entities import EntityIndex, extract_entities, extract_literals
from ragfault.text.normalization import (
    normalize_answer,
    normalize_typography,
    split_content_words,
    split_words,
    stem_word,
)
from ragfault.text.sentences import split_sentences
from ragfault.text.similarity import make_shingles, score_quote_match

SCRAPS = st.text(alphabet="aA1 .\n,-$%:/'é\"“MarchJan235kgSection§v@_", max_size=60)
TEXTS = st.text(max_size=80) | SCRAPS
QUOTE = "the committee approved a budget of eleven million for rural schools"
SOURCE = f"On Monday, {QUOTE}, and “nobody” objected to it."


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Austria", "Australia"),
        ("1921", "2921"),
        ("12", "2012"),
        ("March 14", "March 41"),
        ("$1,234", "$4,321"),
        ("listen", "silent"),
        ("Niger", "Nigeria"),
        ("5 kg", "5 km"),
        ("$5", "€5"),
        ("Section 12", "Section 9"),
        ("v2.3.1", "v2.3.10"),
        ("5 pm", "5 am"),
    ],
)
def test_items_differ(left: str, right: str) -> None:
    """Things that merely look alike share no item."""
    assert not extract_entities(left) & extract_entities(right)
    assert not any(item in EntityIndex(right) for item in extract_entities(left))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("14 March 2024", "2024-03-14"),
        ("March 14th, 2024", "the 14th of March 2024"),
        ("03/14/2024", "14/03/2024"),
        ("5 kg", "5kg"),
        ("5 kilograms", "5 kg"),
        ("three", "3"),
        ("twenty-five", "25"),
        ("50 %", "fifty percent"),
        ("$1,500,000", "1.5 million dollars"),
        ("5:30 p.m.", "17:30"),
        ("17:0", "5 PM"),
        ("version 2.3.1", "v2.3.1"),
        ("Sec. 12", "Section 12"),
        ("the U.S. army", "the US army"),
        ("the Röntgen prize", "the Rontgen prize"),
    ],
)
def test_items_agree(left: str, right: str) -> None:
    """One thing in two spellings is one item."""
    assert extract_entities(left) == extract_entities(right) != frozenset()


def test_items_names() -> None:
    """A capital that only opens a sentence makes no name; acronyms and capitalised runs do."""
    assert extract_entities("Water boils. The Oslo Accords hold. NATO agrees.") == {"oslo accords", "nato"}


def test_stock_case() -> None:
    """A name occurs in a text whatever its capitals, but only as whole words."""
    stock = EntityIndex("she went to the oslo accords talks in nigeria")
    assert "oslo accords" in stock
    assert "niger" not in stock


def test_stock_parts() -> None:
    """A full date also mentions its month and year; a year alone mentions no date."""
    assert "2024" in EntityIndex("14 March 2024")
    assert "2024-03" in EntityIndex("14 March 2024")
    assert "2024-03-14" not in EntityIndex("2024")


def test_each_of_several_texts_is_indexed_by_itself():
    index = EntityIndex("It was signed by Ann", "Lee left in March", "2024 was dry, and 5 kg fell")
    assert all(entity in index for entity in ("ann", "lee", "2024", "5 kg"))
    assert not any(entity in index for entity in ("ann lee", "2024-03", "march 2024"))
    assert "ann" not in EntityIndex()


def test_sentences_shapes() -> None:
    """List items and table rows stand alone; wrapped lines and abbreviations do not end a sentence."""
    text = "Dr. Lee came\nhome at 5 p.m. on Monday. She left.\n- Tea\n- Cakes\n1. One\n| a | b |\n| 1 | 2 |"
    sentences = [text[start:end] for start, end in split_sentences(text)]
    assert sentences == [
        "Dr. Lee came\nhome at 5 p.m. on Monday.",
        "She left.",
        "- Tea",
        "- Cakes",
        "1. One",
        "| a | b |",
        "| 1 | 2 |",
    ]


def test_words_normal() -> None:
    """Case, quotes, contractions and spellings of numbers do not matter."""
    assert split_words("It ISN’T 1,234") == split_words("it is not 1234")
    assert (
        split_content_words("twelve runners") == split_content_words("12 running") == ("12", "run")
        or stem_word("runner") != "run"
    )


def test_squad() -> None:
    """Case, punctuation, articles and white space do not matter; nothing else is touched."""
    assert normalize_answer("The  Cat, an animal!") == "cat animal"
    assert normalize_answer("another theme") == "another theme"


def test_plain() -> None:
    """White space, quotation marks and dashes have one form."""
    assert normalize_typography("“It’s\n a – b”") == '"It\'s a - b"'


def test_shingles() -> None:
    """Near-duplicates share most of their shingles, others few; an empty text has none."""
    first, two = make_shingles(SOURCE), make_shingles(SOURCE + " Good.")
    assert len(first & two) / len(first | two) >= 0.8
    assert make_shingles("") == frozenset()


@pytest.mark.parametrize(
    ("old", "new"),
    [("eleven", "twelve"), ("rural", "urban"), ("approved", "rejected"), ("budget", "fund"), ("the", "no")],
)
def test_quote_changed(old: str, new: str) -> None:
    """One changed word in a quote of ten is clearly below the tolerance of citations."""
    assert score_quote_match(QUOTE, SOURCE) == 1.0
    assert score_quote_match(QUOTE.replace(old, new, 1), SOURCE) < 0.93


def test_quote_slips() -> None:
    """White space, quotation marks, an omission and a slip of the pen are within the tolerance."""
    assert score_quote_match('and  "nobody"\nobjected', SOURCE) == 1.0
    assert score_quote_match("The comittee approved a budget of eleven million for rural schools", SOURCE) > 0.95
    assert score_quote_match("the committee approved … for rural schools", SOURCE) == 1.0


@pytest.mark.parametrize("quote", ["", "…", "a x", "mitt", "bud", "nobody approved"])
def test_quote_short(quote: str) -> None:
    """A short quote matches whole words or not at all."""
    assert score_quote_match(quote, SOURCE) < 0.95


ENTITY_TEXTS = (
    *("twelve hundred at 6 pm", "at 18:00", "1.5m", "£1,234.50 or ½ mile", "٣ km", "U.S. Army", "Dr. Łódź Müller's"),
    *("Sec. 4(b), § 12 and Fig. B", "v2.3.1", "the 1990s", "13/14/2024", "14 March 2024", "007 and 0.50", "ISO-9001"),
    *("forty-five", "Catch-Twenty Two", "a million", "straße 12", "100,000", "2000", "99.9%", "ninety percent", "3com"),
    *("-5 °C", "March, 2024"),
)


def test_an_index_holds_the_entities_and_runs_of_words_of_its_texts_and_no_others() -> None:
    """Texts that surely hold an entity not are passed over, and no other text is."""
    chance = random.Random(3)
    for _ in range(300):
        texts = [" ".join(chance.choices(ENTITY_TEXTS, k=chance.randrange(1, 5))) for _ in range(3)]
        asked = {form for text in ENTITY_TEXTS for item in extract_literals(text).values() for form in item}
        asked |= {entity for text in (*ENTITY_TEXTS, *texts) for entity in extract_entities(text)}
        forms = {form for text in texts for item in extract_literals(text).values() for form in item}
        forms |= {entity for text in texts for entity in extract_entities(text)}
        index = EntityIndex(*texts)
        assert forms <= {entity for entity in asked | forms if entity in index}
        numbers = {entity for entity in asked - forms if entity[0].isdigit()}
        assert not [entity for entity in numbers if entity in index]


@settings(max_examples=150, deadline=None)
@given(TEXTS, TEXTS)
def test_total(left: str, right: str) -> None:
    """Every function takes every text."""
    text = f"{left}\n{right}"
    spans = split_sentences(text)
    assert all(text[start:end] == text[start:end].strip() != "" for start, end in spans)
    assert all(first[1] <= two[0] for first, two in pairwise(spans))
    stock = EntityIndex(text)
    assert all(item in stock for item in extract_entities(text))
    assert 0.0 <= score_quote_match(left, right) <= 1.0
    assert set(split_content_words(text)) <= set(split_words(text))
    assert normalize_typography(normalize_typography(text)) == normalize_typography(text)
    normalize_answer(text)
    make_shingles(text)


@pytest.mark.parametrize("scrap", ["A ", "A-", "1-", "a.b.", "x@", "A of ", "Section ", "1,111", "(1) "])
def test_long(scrap: str) -> None:
    """Long monotonous texts are read in one sweep."""
    text = scrap * 10_000
    assert len(extract_entities(text)) < 10
    assert 0.0 <= score_quote_match(text[:5000], text) <= 1.0


def test_signed_figures_are_written_in_one_way():
    """No text for people formats a signed figure by itself: `format_signed` alone does, with one minus sign."""
    folder = Path(ragfault.__file__).parent
    signed = re.compile(r"\{[^{}]*:\+[,.\d]*[fg]\}")
    names = {path.name for path in folder.rglob("*.py") if signed.search(path.read_text("utf-8"))}
    assert names <= {"forest_plot.py"}, "the ticks of an axis replace their sign"


@pytest.mark.parametrize(
    "texts",
    [
        ("64 °C", "64 degrees Celsius", "64 degrees C", "64 degree Celsius"),
        ("90 °F", "90 degrees Fahrenheit"),
        ("80 km/h", "80 kilometres per hour", "80 kph"),
        ("30 mph", "30 miles per hour"),
    ],
)
def test_a_unit_of_several_words_has_the_form_of_its_symbol(texts: tuple[str, ...]):
    """However a measurement is spelled, its entity is the same."""
    assert len({extract_entities(text) for text in texts}) == 1
