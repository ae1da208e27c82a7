"""Laws of claim extraction and of the exact checks of a claim."""

from __future__ import annotations

import pytest

from ragfault.judges.assembly import MAX_CLAIMS
from ragfault.judges.checks.claims import extract_claims, is_refusal, locate_words, strip_marks
from ragfault.judges.checks.lexicon import load_idf
from ragfault.judges.checks.passages import MAX_PASSAGE_CHARS, Passage, SentenceIndex, normalize_spelling
from ragfault.judges.checks.refusals import is_refusal_sentence
from ragfault.judges.lexical.entailment import check_claim
from ragfault.judges.loading import load_judge
from ragfault.model.records import Chunk, Citation, Trace
from ragfault.text.normalization import split_words

CHUNK = "Ann Berg won the race, and Ben Dahl came second. Both live at No. 5 Hill Road in Oslo."


@pytest.mark.parametrize(
    "text",
    [
        "The ferry didn't carry **500** passengers, and Wi-Fi costs £5.00 [1].",
        "Anna’s café, well-known since 1,040, opens at 8:30 a.m. on weekdays.",
        "",
    ],
)
def test_words_are_located_where_they_are_spelled(text: str):
    """The text of each located word holds that word, in order; few are passed over."""
    words = split_words(normalize_spelling(strip_marks(text)))
    spans = locate_words(text, words)
    located = [(word, span) for word, span in zip(words, spans, strict=True) if span is not None]
    assert all(word in split_words(normalize_spelling(text[slice(*span)])) for word, span in located)
    assert [span for _, span in located] == sorted(span for _, span in located)
    assert len(located) >= 0.7 * len(words)


SOURCE_TALK = (
    "Passage 2 provides a list of steps.",
    "Passages 1 and 3 are about ferries.",
    "Document 4 does not say more.",
    "Source: passage 3.",
    "[2] https://example.org/ferries",
    "References: the harbour guide.",
    "None of these passages offer a timetable.",
    "The passages are focused on ferries and their crews.",
    "(Reference passage 2)",
    "Best regards,",
    "[Your Name]",
)
ANSWER_TALK = (
    "Here is what I found.",
    "Here you go!",
    "Here are the details.",
    "Here’s what the handbook says about this.",
    "The answer is as follows.",
    "This is based on the documents provided.",
    "All information is taken from the context.",
    "I've checked the documents for you.",
    "See below.",
    "Please see the table above for details.",
    "Details below.",
    "If anything is unclear, please ask.",
    "Just ask if anything is unclear.",
    "Don't hesitate to reach out.",
    "I'm happy to help with anything else.",
    "Glad I could help!",
    "Best regards.",
)
FOREIGN_TALK = (
    "Gerne helfe ich Ihnen weiter!",
    "¡Espero que esta información te sea útil!",
    "N'hésitez pas à me poser d'autres questions.",
    "Spero di esserti stato utile!",
    "Mam nadzieję, że to pomoże!",
    "Espero ter ajudado!",
    "希望以上信息对您有所帮助。",
    "ご不明な点がございましたら、お気軽にお問い合わせください。",
)


@pytest.mark.parametrize("texts", [SOURCE_TALK, ANSWER_TALK, FOREIGN_TALK])
def test_talk_about_answering_and_sources_is_no_claim(texts: tuple[str, ...]):
    """Most sentences about the passages, the answer and its reader, in nine languages, claim nothing."""
    assert sum(extract_claims(text) == [] for text in texts) >= 0.7 * len(texts)


STATEMENTS = (
    "The passages are about three metres wide.",
    "[Your ticket] is checked at the gate.",
    "Reference passages are closed in winter.",
    "Here is what the harbour charges.",
    "Here are the details of the fee of nine pounds.",
    "The answer is nine pounds.",
    "This is based on a novel.",
    "All information is taken from the passengers.",
    "I've checked the documents, and the fee is due.",
    "See the harbour below.",
    "The cabins are below.",
    "Ask the captain.",
    "Don't hesitate to contact the harbour.",
    "The captain is here with me.",
    "Gerne wird das Boot im Sommer gemietet.",
    "El puerto espera a sus huéspedes hasta las nueve.",
    "帮助中心九点开门。",
)


def test_a_statement_with_words_of_talk_is_a_claim():
    """Nearly every sentence that says something of the world in such words is checked."""
    claimed = [text for text in STATEMENTS if [claim.text for claim in extract_claims(text)] == [text]]
    assert len(claimed) >= 0.9 * len(STATEMENTS)


def test_what_a_source_says_is_judged_without_its_opening():
    """The opening that names the source is no part of what is claimed."""
    statement = "The ferry leaves at noon."
    for opening in ("The passage states that ", "This document also notes that ", "The provided context says that "):
        assert strip_marks(opening + statement) == statement
    assert strip_marks("The passage that leads to the harbour is narrow.").startswith("The passage")


@pytest.mark.parametrize(
    ("text", "is_refusal"),
    [
        ("The sections I was given do not cover the rest of the question.", True),
        ("The documents I have don't say when it opens.", True),
        ("Not specified in the context.", True),
        ("Not every ferry carries cars.", False),
        ("We do not cover dental work.", False),
        ("The ticket does not cover bicycles.", False),
    ],
)
def test_that_sources_are_silent_is_a_refusal(text: str, is_refusal: bool):
    """A sentence that says that the sources are silent refuses; one that says what a thing does not do claims."""
    assert is_refusal_sentence(text) == is_refusal
    assert bool(extract_claims(text)) != is_refusal


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("Did you know that the ferry has four decks?", "the ferry has four decks"),
        ("yes i do. did you know the harbour was built in 1902 ?", "the harbour was built in 1902"),
        ("I'm not sure but I know that the ferry leaves at noon.", "the ferry leaves at noon."),
        ("I have no idea, but I know that the ferry leaves at noon.", "the ferry leaves at noon."),
        ("I don't know much about it but the harbour is open.", "the harbour is open."),
        ("The ferry leaves at noon, doesn't it?", "The ferry leaves at noon"),
        ("The ferry leaves at noon, right?", "The ferry leaves at noon"),
    ],
)
def test_what_a_question_or_a_doubt_states_is_a_claim(text: str, stated: str):
    """A statement in the form of a question or after a doubt is the claim, where it stands, and no refusal."""
    (claim,) = extract_claims(text)
    assert (claim.text, text[claim.start : claim.end]) == (stated, stated)
    assert not is_refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "Did you know?",
        "Did you know the captain?",
        "Do you know the opening hours of the harbour office?",
        "Do you know when the ferry leaves?",
        "Do you know the year in which the harbour was built?",
        "Did you know the captain who was here before?",
        "Did you know anyone that was on the ferry?",
        "Did you know about that?",
        "Is it the first deck, or is it the second?",
        "Can you see it, or can't you?",
        "Would you like to see the harbour?",
        "I don't know.",
        "I don't know, but the passages do not mention a ferry.",
        "I don't know, but do you like ferries?",
    ],
)
def test_a_question_or_a_doubt_that_states_nothing_is_no_claim(text: str):
    """A question that asks, and a doubt that nothing follows, claim nothing."""
    assert extract_claims(text) == []


@pytest.mark.parametrize(
    ("table", "claims"),
    [
        ("| No. | Finding |\n|---|---|\n| 1 | Ferries leave at noon. |\n| 2 | Cabins cost £20. |", 2),
        ("Here it is:\n\n| Day | Departure |\n|:--|--:|\n| Monday | 9:00 |", 1),
        ("| Cabin | £20 |\n|---|---|\n| Deck | £5 |", 2),
        ("| Cabins are free |\n|---|", 1),
    ],
)
def test_the_head_of_a_table_is_no_claim(table: str, claims: int):
    """Names of columns state nothing, and a number that counts the rows is none of the row; a figure in a head may."""
    texts = [claim.text for claim in extract_claims(table)]
    assert len(texts) == claims
    assert not any(name in text for text in texts for name in ("Finding", "Departure", "| 1 |", "| 2 |"))


def missing(claim: str, query: str = "") -> str | None:
    """Return why a claim lacks a name or number."""
    index = SentenceIndex([Passage("a", CHUNK)])
    checked = check_claim(claim, index, load_idf(), frozenset(split_words(query)))
    assert checked is not None
    return checked.missing_name


@pytest.mark.parametrize("judge", ["embedded", "lexical"])
@pytest.mark.parametrize("form", ["<p>%s</p>", "<div class='a'>%s<br/></div>", "<h2>Travel</h2><ul><li>%s</li></ul>"])
def test_formatting_tags_change_no_verdict(judge: str, form: str):
    """Tags around sentences and within them are no claims, and change neither support nor groundedness."""
    chunks = (Chunk(id="a", text="The ferry takes 40 minutes. Dogs travel free, and a ticket costs 12 euros."),)

    def observe(answer: str):
        trace = Trace(id="1", query="How long does the ferry take?", chunks=chunks, answer=answer)
        return load_judge(judge).observe([trace])[0]

    plain = observe("The ferry takes 40 minutes. Cats live in Oslo.")
    marked = observe(form % "The ferry takes <b>40 minutes</b>. Cats live in <i>Oslo</i>.")
    assert [claim.support for claim in marked.claim] == [claim.support for claim in plain.claim]
    assert marked.answer.grounded == plain.answer.grounded


@pytest.mark.parametrize(
    "answer",
    [
        "<p title='Cats live in Oslo'>Dogs bark.</p>",
        "<!-- Cats live in Oslo. --> Dogs bark.",
        "<h2>Cats live in Oslo</h2>",
        "<b>Cats live in Oslo</b><br>Dogs bark.",
    ],
)
def test_no_tag_hides_a_claim(answer: str):
    """A claim in an attribute, in a comment, in bold type or in the only heading is still a claim."""
    assert any("Cats live in Oslo" in claim.text for claim in extract_claims(answer))
    assert is_refusal("<p>I do <b>not</b> know the answer.</p>")


def test_what_the_question_names_may_be_missing():
    """A name or number that only the question gives is not held against the answer."""
    assert missing("Ann Berg won the Holm Cup in 1998.") is not None
    assert missing("Ann Berg won the Holm Cup in 1998.", "Who won the Holm Cup in 1998?") is None
    assert missing("Ann Berg won the Holm Cup in 1998.", "Who won the Holm Cup?") is not None
    assert missing("Eva Lund won the race.", "Did Eva Lund win the race?") is not None  # another in its place


@pytest.mark.parametrize("judge", ["embedded", "lexical"])
def test_a_source_without_a_mark_is_judged_by_the_sentence_nearest_to_it(judge: str):
    """Of sources that an answer lists without marks, those that hold a sentence of it support it, and others do not."""
    texts = {
        "a": "A van costs 40 euros on the ferry.",
        "b": "The last ferry leaves at 22:40.",
        "c": "Dogs bark at cats.",
    }
    trace = Trace(
        id="1",
        query="What does a van cost, and when is the last ferry?",
        answer=f"{texts['a']} {texts['b']}",
        chunks=tuple(Chunk(id=name, text=text) for name, text in texts.items()),
        citations=tuple(Citation(chunk=name) for name in texts),
    )
    verdicts = load_judge(judge).observe([trace])[0].citation
    assert [(item.claim, item.supports) for item in verdicts[:2]] == [(texts["a"], True), (texts["b"], True)]
    assert not verdicts[2].supports


@pytest.mark.parametrize("judge", ["embedded", "lexical"])
def test_the_time_asked_about_is_missing_only_beside_other_years(judge: str):
    """Chunks without a year hold what is asked as of a year; those of another year, or of another event, do not."""

    def list_missing(query: str, text: str) -> tuple[str, ...]:
        trace = Trace(id="1", query=query, chunks=(Chunk(id="a", text=text),), answer="A van costs 40 euros.")
        return load_judge(judge).observe([trace])[0].missing

    asked, undated = "What does a van cost on the ferry as of March 2024?", "A van costs 40 euros on the ferry."
    assert list_missing(asked, undated) == ()
    assert list_missing(asked, f"{undated} These are the fares of 2019.") == ("March 2024",)
    assert list_missing("Who won the race of the ferry in 2023?", "Ann Berg won the race of the ferry.") == ("2023",)


def test_small_number_words_count_what_a_text_names():
    """ "The two" needs no 2 in the passages; a figure does."""
    assert missing("The two live at Hill Road in Oslo.") is None
    assert missing("The 7 live at Hill Road in Oslo.") is not None


def test_the_abbreviation_of_number_denies_nothing():
    """ "No. 5" is a number; "No, five" stays a denial."""
    assert normalize_spelling("They live at No. 5 Hill Road.") == "They live at number 5 Hill Road."
    assert normalize_spelling("No. They live elsewhere.") == "No. They live elsewhere."


@pytest.mark.parametrize("judge", ["lexical", "embedded"])
def test_an_endless_answer_is_judged_in_part_and_says_so(judge: str):
    """Of an answer of too many claims the first are judged, and what reads them fails with the count."""
    answer = " ".join(f"Boat {number} left the harbour of Oslo at noon." for number in range(MAX_CLAIMS + 7))
    trace = Trace(id="1", query="Which boats left?", chunks=(Chunk(id="a", text=CHUNK),), answer=answer)
    verdicts = load_judge(judge).observe([trace])[0]
    assert verdicts.claim is not None
    assert len(verdicts.claim) == MAX_CLAIMS
    assert f"{MAX_CLAIMS + 7:,} claims" in verdicts.failures["claim"]
    short = load_judge(judge).observe([Trace(id="2", query="Which?", chunks=trace.chunks, answer="Ann Berg won.")])[0]
    assert short.failures == {}


@pytest.mark.parametrize("judge", ["lexical", "embedded"])
def test_what_a_chunk_says_beyond_the_limit_is_left_open(judge: str):
    """Where a chunk is longer than what is read, found support stands, and nothing is called unsupported."""
    filler = "The harbour of Oslo is calm at night. " * (MAX_PASSAGE_CHARS // 38 + 1)
    chunks = (Chunk(id="book", text=f"Ann Berg won the race. {filler} The mayor of Vell is Eve Holm."),)
    within, beyond = load_judge(judge).observe(
        [
            Trace(id=answer, query="Who won?", chunks=chunks, answer=answer)
            for answer in ("Ann Berg won the race.", "The mayor of Vell is Eve Holm.")
        ]
    )
    assert within.claim is not None
    assert [claim.support for claim in within.claim] == ["supported"]
    assert beyond.claim is None
    assert beyond.failures["claim"] == "book: longer than 200,000 characters, of which this judge reads no more"
    assert beyond.answer is not None
    assert beyond.answer.grounded is None
