"""Laws of re-anchoring gold spans."""

from __future__ import annotations

import unicodedata

import pytest
from msgspec.structs import replace

from ragfault.apps.testsets.anchors import refresh_testset
from ragfault.apps.testsets.making.make import make_testset
from ragfault.apps.testsets.passages import CorpusIndex, quote_span
from ragfault.model.records import Document, Gold, Span, Trace

TEXT = (
    "# Fares\n\nA ticket for a car of up to 5 metres costs 40 crowns on weekdays. Dogs travel free of charge on deck."
    "\n\nChildren below six years must not stay in a car during the crossing to Brenholm."
)
QUOTE = "A ticket for a car of up to 5 metres costs 40 crowns on weekdays."


def make_item(quote: str = QUOTE, text: str = TEXT, document: str = "fares.md") -> Trace:
    start = text.index(quote)
    span = CorpusIndex([Document(id=document, text=text)]).make_span(document, start, start + len(quote))
    return Trace(id="1", query="?", gold=Gold(spans=(span,)))


def refresh_one(text: str, item: Trace | None = None, name: str = "fares.md"):
    (change,) = refresh_testset([Document(id=name, text=text)], [item or make_item()]).changes
    return change


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text,
        lambda text: "# New page\n\nSomething else comes first.\n\n" + text,
        lambda text: text.replace("of up to 5 metres", "of up\nto 5   metres"),
        lambda text: text.replace("40 crowns", "**40 crowns**"),
        lambda text: text.replace("Dogs travel free", "Cats pay ten crowns"),
    ],
)
def test_a_span_whose_words_are_there_gets_its_new_place(edit):
    text = edit(TEXT)
    change = refresh_one(text)
    assert change.state == "kept"
    assert change.reason is None
    assert text[change.span.start : change.span.end] == change.span.quote
    assert change.span.quote.replace("*", "").split() == QUOTE.split()


def test_a_renamed_file_moves_its_spans():
    change = refresh_one(TEXT, name="guide/prices.md")
    assert change.state == "moved"
    assert change.span.document == "guide/prices.md"


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("40 crowns", "45 crowns", "a number"),
        ("5 metres", "5 feet", "a unit"),
        ("on weekdays", "{% if max > 5 %}on weekdays{% endif %}", "a template tag"),
        ("40 crowns", "{{ price.car2 }}% crowns", "a number"),
        ("costs 40", "never costs 40", "a negation"),
        ("on weekdays", "on Sundays", "a name"),
        ("A ticket", "A voucher", "the wording"),
    ],
)
def test_a_change_inside_the_span_is_named(old, new, kind):
    change = refresh_one(TEXT.replace(old, new))
    assert change.state == "changed meaning"
    assert change.reason.startswith(f"{kind} changed: ")


def test_a_number_that_is_written_in_words_is_the_same():
    assert refresh_one(TEXT.replace("5 metres", "five metres")).state == "kept"
    assert refresh_one(TEXT.replace("5 metres", "six metres")).reason == 'a number changed: "5" → "6"'


def test_a_removed_span_is_gone():
    assert refresh_one(TEXT.replace(QUOTE, "")).state == "gone"


def test_a_short_quote_in_another_context_is_not_taken_for_the_old_one():
    item = make_item("free of charge")
    text = "# Parking\n\nBicycles are stored free of charge behind the ticket office of the southern terminal."
    assert refresh_one(text, item, name="parking.md").state == "gone"


def test_equal_quotes_are_distinguished_by_their_context():
    text = "On weekdays the fee is due at noon. It is 5 crowns.\n\nOn Sundays the fee is due at dusk. It is 5 crowns."
    second = text.rindex("It is 5 crowns.")
    span = Span(document="d", start=second, end=len(text), quote="It is 5 crowns.", prefix=text[second - 40 : second])
    new = text.split("\n\n")
    (change,) = refresh_testset(
        [Document(id="d", text=f"{new[1]}\n\nMore.\n\n{new[0]}")], [Trace(id="1", query="?", gold=Gold(spans=(span,)))]
    ).changes
    assert change.span.start == new[1].index("It is 5")


def test_a_span_without_a_quote_is_unverified_until_the_old_corpus_is_given():
    item = make_item()
    bare = replace(item, gold=Gold(spans=(Span(document="fares.md", start=9, end=9 + len(QUOTE)),)))
    new = [Document(id="fares.md", text="News.\n\n" + TEXT)]
    assert refresh_testset(new, [bare]).changes[0].state == "unverified"
    change = refresh_testset(new, [bare], [Document(id="fares.md", text=TEXT)]).changes[0]
    assert change.state == "kept"
    assert change.span.quote == QUOTE


def test_gold_of_chunk_ids_alone_is_unverified():
    result = refresh_testset([Document(id="a", text=TEXT)], [Trace(id="1", query="?", gold=Gold(chunks={"c": 1.0}))])
    assert result.counts == {"unverified": 1}
    assert result.items == ()


def test_an_item_holds_only_with_all_of_its_spans(corpus):
    items = make_testset(corpus, 20).items
    assert refresh_testset(corpus, items).items == items
    edited = [Document(id=document.id, text=document.text.replace("18", "29")) for document in corpus]
    result = refresh_testset(edited, items)
    states = {change.item: change.state for change in result.changes if change.state not in ("kept", "moved")}
    assert states
    assert {item.id for item in result.broken} == set(states)
    assert len(result.items) + len(result.broken) == len(items)


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (
            "Dogs are allowed on the upper deck only if they are muzzled.",
            'its sentence goes on: "only if they are muzzled"',
        ),
        ("Dogs are allowed on the upper deck,\nexcept in May.", 'its sentence goes on: "except in may"'),
        (
            "It is not true that dogs are allowed on the upper deck.",
            'its sentence begins earlier: "it is not true that"',
        ),
        ("~~Dogs are allowed on the upper deck.~~", "it is struck through, or within a comment"),
        ("<!-- Dogs are allowed on the upper deck. -->", "it is struck through, or within a comment"),
        ("**Dogs are allowed on the [upper deck](deck.md).**", None),
        ("## Dogs\nDogs are allowed on the upper deck\n- and nowhere else", None),
    ],
)
def test_a_quote_that_became_a_part_of_another_sentence_changed_its_meaning(new, reason):
    quote = "Dogs are allowed on the upper deck."
    old = f"# Ferry\n\nTickets are sold on board. {quote} Bicycles travel for nothing."
    start = old.index(quote)
    span = quote_span(Span(document="a.md", start=start, end=start + len(quote)), old)
    item = Trace(id="1", query="dogs?", gold=Gold(spans=(span,)))
    (change,) = refresh_testset([Document(id="a.md", text=old.replace(quote, f"\n\n{new}\n\n"))], [item]).changes
    assert (change.state, change.reason) == (("kept", None) if reason is None else ("changed meaning", reason))


def test_a_letter_and_its_accent_are_one_letter_however_they_are_encoded():
    text = "The ferry to Tårvik leaves the pier of Osló at seven o'clock in the morning."
    span = quote_span(Span(document="a.md", start=0, end=len(text)), text)
    decomposed = Document(id="a.md", text=unicodedata.normalize("NFD", text))
    item = Trace(id="1", query="ferry?", gold=Gold(spans=(span,)))
    assert [change.state for change in refresh_testset([decomposed], [item]).changes] == ["kept"]
