"""Laws of made evaluation sets."""

from __future__ import annotations

import random
import re

import pytest

from ragfault.apps.testsets.making.make import make_testset
from ragfault.apps.testsets.making.questions import find_list, match_definition, read_table
from ragfault.apps.testsets.making.withheld import make_withheld
from ragfault.apps.testsets.making.wording import QueryStyle, QueryWriter, choose_answer, fit_style
from ragfault.apps.testsets.passages import CorpusIndex
from ragfault.model.errors import InputError, UnknownName, UsageError
from ragfault.model.records import Chunk, Document, Trace
from ragfault.text.normalization import split_content_words


def test_the_same_seed_makes_the_same_set(corpus):
    first, second, other = (make_testset(corpus, 30, seed=seed) for seed in (3, 3, 4))
    assert first.items == second.items
    assert first.items != other.items


def test_every_gold_span_quotes_its_document(corpus):
    texts = {document.id: document.text for document in corpus}
    spans = [span for item in make_testset(corpus, 40).items if item.gold for span in item.gold.spans]
    assert len(spans) > 30
    for span in spans:
        text = texts[span.document]
        assert text[span.start : span.end] == span.quote
        assert text[: span.start].endswith(span.prefix)
        assert text[span.end :].startswith(span.suffix)


def test_a_smaller_number_than_requested_has_a_reason(corpus):
    enough, short = make_testset(corpus, 24), make_testset(corpus[:1], 500)
    assert len(enough.items) == 24
    assert len(short.items) < 500
    assert any("of 500 items" in note for note in short.notes)
    assert all(item.reason for item in short.rejected)


TOWNS = ("Arnis", "Bardow", "Celbin", "Dorvik", "Eldena", "Fehring")
WORKS_OF_TOWNS = [
    Document(id=f"{work}.md", text=f"# {work.title()}\n\n{text}")
    for work, text in zip(
        ("bridges", "mills", "schools", "wells", "gates", "fairs", "ferries"),
        (
            "The stone bridge of Arnis was designed by Ola Brandt, who came from the hills with his three sons.",
            "The flour mill of Bardow was repaired in 1911 after a flood, and a second wheel was bought for it.",
            "The music school of Celbin was opened by Siv Aune, whose pupils sing at the market each spring.",
            "The deep well of Dorvik was cleaned in 1874 with a new pump, and the old one lies in the museum.",
            "The south gate of Eldena was painted by Geir Foyn, as the council wished to have it in blue again.",
            "The horse fair of Fehring was closed in 1933 for lack of buyers, and the stables are a cinema now.",
            f"The night ferry calls at {', '.join(TOWNS[:-1])} and {TOWNS[-1]} from May until the first ice comes.",
        ),
        strict=True,
    )
]


def test_the_set_has_each_kind_that_the_corpus_has_material_for(corpus):
    kinds = dict.fromkeys(
        ("extractive", "factoid", "definition", "list", "table", "unanswerable", "false premise"), 1.0
    )
    counts = make_testset([*corpus, *WORKS_OF_TOWNS], 24, mix=kinds).counts
    assert all(counts[kind] >= 2 for kind in kinds)


def test_the_gold_answer_is_a_name_or_a_number_or_else_the_sentence(corpus):
    for item in make_testset(corpus, 20, mix={"extractive": 1}).items:
        first = item.reference[0]
        assert first.isupper() or first.isdigit() or item.reference == item.facts[0]


def test_a_factoid_question_has_a_stretch_of_its_sentence_as_answer(corpus):
    items = make_testset(corpus, 12, mix={"factoid": 1}).items
    assert len(items) == 12
    for item in items:
        assert item.reference in item.gold.spans[0].quote
        assert item.reference not in item.query
        assert not {"what", "who", "which", "how"}.isdisjoint(item.query.split())


def test_a_table_question_has_its_row_as_gold(corpus):
    for item in make_testset(corpus, 6, mix={"table": 1}).items:
        (span,) = item.gold.spans
        assert item.reference in span.quote
        assert span.quote.count("|") == 4


def test_questions_without_an_answer_have_no_gold_and_name_what_was_swapped():
    items = make_testset(WORKS_OF_TOWNS, 5, mix={"unanswerable": 1}).items
    assert len(items) == 5
    for item in items:
        assert item.answerable is False
        assert item.gold is None
        assert "was replaced by" in item.metadata["note"]


def test_what_each_document_says_of_its_own_name_is_answerable_of_any():
    """Each town has its office hours: a question that asks them of another town has an answer."""
    towns = ("Arnis", "Bardow", "Celbin", "Dorvik", "Eldena", "Fehring", "Glowe", "Husby", "Ilsum", "Juist")
    text = (
        "By the sea, the harbour office of {} opens at {}:00 on weekdays and closes late. In winter, a berth in {} "
        "costs {} euros a night."
    )
    documents = [Document(id=town, text=text.format(town, 5 + i, town, 30 + 3 * i)) for i, town in enumerate(towns)]
    swapped = [
        item.query
        for item in make_testset(documents, 20, mix={"unanswerable": 1}).items
        if item.metadata["kind"] == "unanswerable"
    ]
    assert swapped == []


def test_a_set_that_falls_short_names_the_language_and_no_rejection_that_there_was_not():
    """Of Chinese text no draft is made at all: none was rejected."""
    text = "港务局在工作日上午八点开门，下午五点关门。 " * 12
    result = make_testset([Document(id="a", text=text)], 4)
    assert (result.items, result.rejected) == ((), ())
    assert result.notes[-2:] == (
        "0 of 4 items: no more drafts of these kinds from 1 passages pass the checks; another mix may give more",
        "1 of 1 passages are in another language: nothing is asked about them by rules, which are for English, but "
        "only by a model (--judge llm:MODEL)",
    )


def test_of_a_german_passage_nothing_is_asked_in_english():
    german = "# Hafen\n\nDas Hafenamt öffnet werktags um 8 Uhr. Ein Liegeplatz kostet 12 Euro je Nacht und ist in Oslo."
    english = "The north pier of Oslo opens at eight o'clock, and the gate is closed at dusk by a warden."
    documents = [Document(id="de.md", text=german), Document(id="en.md", text=english)]
    assert make_testset(documents[:1], 4).items == ()
    result = make_testset(documents, 4)
    assert {item.gold.spans[0].document for item in result.items} == {"en.md"}
    assert result.notes[-1].startswith("1 of 2 passages are in another language: nothing is asked about them")
    texts = (
        "Das Hafenamt von Tarvik öffnet werktags um 8 Uhr und wird von Eva Dahl aus Oslo geführt.",
        "Die Bücherei ist von Dienstag bis Samstag für alle Leser offen und wird von Nils Rask betreut.",
        "Die Fähre nach Brenholm fährt im Sommer mit vierzig Rädern auf dem Deck und ist auch für Kinder da.",
    )
    withheld = make_withheld([Document(id=text[:9], text=text) for text in texts], 3, share=0.34)
    assert (withheld.items, withheld.rejected) == ((), ())


def test_a_false_premise_states_another_number_than_its_fact(corpus):
    items = make_testset(corpus, 6, mix={"false premise": 1}).items
    assert items
    for item in items:
        old, new = item.metadata["note"].split(" was replaced by ")
        assert new in item.query.split()
        assert old in " ".join(item.facts)


@pytest.mark.parametrize(
    ("text", "premises"),
    [
        ("The daemon of the harbour waits for 60 seconds between two checks of the gauge.", 1),
        ("3. Fill out the form of the harbour office in the hall beside the pier.", 0),
        ("There are many ways you could conduct 1:1s in the harbour office of the town.", 0),
        ("A request for a berth must be sent at least 6 weeks before the start of the season.", 0),
        ("The repair of a hull takes about 30 minutes in the yard beside the old pier.", 0),
        ("If the boat lies at the quay for 3 days, the owner of the boat pays twice.", 0),
        ("The office sends a 400 response where a request of a skipper is not valid.", 0),
        ("The daemon of the harbour runs on a machine of 32 bit beside the gauge.", 0),
        ("The daemon of the harbour waits for ~60 seconds between two checks of the gauge.", 0),
        ("For example, the daemon of the harbour waits for 60 seconds between two checks.", 0),
        ("13 days for their care in the house beside the harbour of the old town.", 0),
    ],
)
def test_a_false_premise_is_a_clause_with_a_quantity_that_has_no_bound(text, premises):
    result = make_testset([Document(id="a.md", text=text)], 1, mix={"false premise": 1})
    assert result.counts.get("false premise", 0) == premises


def test_an_unanswerable_question_asks_plainly_about_a_name_that_the_corpus_lists_beside_the_one_it_replaces():
    for item in make_testset(WORKS_OF_TOWNS, 5, mix={"unanswerable": 1}).items:
        old, new = item.metadata["note"].split(" was replaced by ")
        assert re.match(r"(\w+: )?(by what|by whom|in what year) ", item.query)
        assert {old, new} <= set(TOWNS)
        assert new in item.query.split()


def test_where_no_name_is_listed_beside_another_nothing_unanswerable_is_asked_and_withholding_is_named():
    result = make_testset(WORKS_OF_TOWNS[:-1], 5, mix={"unanswerable": 1})
    assert "unanswerable" not in result.counts
    assert "--withhold" in result.notes[0]


def test_passages_that_say_the_same_are_not_ambiguous():
    pier = (
        "## Opening\n\nThe north pier of the town opens at eight o'clock, and the gate is closed at dusk by a warden."
    )
    hall = (
        "## Opening\n\nThe fish hall sells to traders from five o'clock on, and to all others when the clock strikes."
    )
    same, different = (
        make_testset([Document(id="a.md", text=pier), Document(id="b.md", text=other)], 1, mix={"ambiguous": 1})
        for other in (pier.replace("opens", "is open"), hall)
    )
    assert "ambiguous" not in same.counts
    assert different.counts == {"ambiguous": 1}


@pytest.mark.parametrize("heading", ["Overview", "Next steps", "Before you start"])
def test_a_heading_that_names_a_part_of_any_document_is_no_ambiguous_question(heading):
    texts = (
        "The north pier of the town opens at eight o'clock, and the gate is closed at dusk by a warden.",
        "The fish hall sells to traders from five o'clock on, and to all others when the clock strikes.",
    )
    documents = [Document(id=f"{at}.md", text=f"## {heading}\n\n{text}") for at, text in enumerate(texts)]
    assert "ambiguous" not in make_testset(documents, 1, mix={"ambiguous": 1}).counts


def test_a_section_without_text_is_no_place_of_an_ambiguous_question():
    text = "The north pier of the town opens at eight o'clock, and the gate is closed at dusk by a warden."
    documents = [
        Document(id="a.md", text=f"## Piers\n\n{text}"),
        Document(id="b.md", text=f"## Piers\n\n### West\n\n{text.replace('north', 'west').replace('eight', 'nine')}"),
    ]
    assert "ambiguous" not in make_testset(documents, 1, mix={"ambiguous": 1}).counts


def test_a_term_that_two_sentences_define_is_not_asked_for():
    lock = "A lock gate is a door that holds back the water of a canal on its way to the sea."
    other = "A lock gate is a gate that the guards of the town close before the fair in the square."
    counts = [
        make_testset(
            [Document(id=f"{at}", text=text) for at, text in enumerate(texts)], 1, mix={"definition": 1}
        ).counts
        for texts in ((lock,), (lock, other))
    ]
    assert [count.get("definition", 0) for count in counts] == [1, 0]


def test_a_list_is_asked_for_by_its_heading_and_steps_by_their_name():
    items = "walk to the north pier\n{}ring the bell of the warden\n{}wait for the boat at the steps"
    texts = [
        f"## {heading}\n\nPlease do this:\n\n{mark}{items.format(mark, mark)}"
        for heading, mark in (("Ways to the harbour", "- "), ("Calling the harbour boat", "1. "))
    ]
    queries = [make_testset([Document(id="a.md", text=text)], 1, mix={"list": 1}).items[0].query for text in texts]
    assert queries[0] in ("list of Ways to the harbour: Please do this", "all Ways to the harbour: Please do this")
    assert queries[1] == "steps of Calling the harbour boat: Please do this"


def test_a_table_without_its_head_or_with_one_key_for_several_rows_is_not_asked_for():
    """A long table is cut into passages, and only the first has the head."""
    rows = "| Ferry | Price |\n|---|---|\n| North | 10 crowns |\n| South | 12 crowns |\n| Night | 15 crowns |"
    headless = rows.replace("|---|---|\n", "")
    alike = rows.replace("South", "North").replace("Night", "North")
    counts = [
        make_testset([Document(id="a.md", text=f"# Fares\n\n{text}")], 1, mix={"table": 1}).counts.get("table", 0)
        for text in (rows, headless, alike)
    ]
    assert counts == [1, 0, 0]


def test_gold_that_stands_in_the_corpus_twice_is_not_asked_for(corpus):
    result = make_testset([corpus[0], Document(id="copy.md", text=corpus[0].text)], 5)
    assert result.items == ()
    assert {item.reason for item in result.rejected} >= {"ambiguous: its gold is in the corpus twice"}


def test_a_question_about_one_of_several_like_documents_names_it():
    towns = ("Arnis", "Bardow", "Celbin", "Dorvik")
    text = (
        "## Berths\n\nThe owner of a boat receives {} keys of the gate for the whole of the summer season in the town."
    )
    documents = [Document(id=town, text=text.format(3 + i), title=f"Harbour of {town}") for i, town in enumerate(towns)]
    items = make_testset(documents, 4, mix={"factoid": 1}).items
    assert [item.query for item in items if item.gold.spans[0].document not in item.query] == []
    assert len(items) == 4


def test_a_question_stands_below_the_heading_of_its_sentence():
    text = (
        "# Guide\n\n## Lantern\n\nA lamp of the pier is lit by hand at dusk.\n\n"
        "## Machines\n\nThe crane can lift 40 tons of stone from a barge."
    )
    (item,) = make_testset([Document(id="a.md", text=text)], 1, mix={"factoid": 1}).items
    assert item.query.startswith("Machines: how many")
    assert item.metadata["section"] == "Machines"


def test_words_of_links_and_entities_are_no_words_of_a_passage():
    text = "See the [map of the pier](https://maps.example.org/kfcwn?x=jsp) for the way to the old harbour&nbsp;office."
    assert {"kfcwn", "jsp", "nbsp", "org"}.isdisjoint(CorpusIndex([Document(id="a", text=text)]).passages[0].stems)


def test_a_word_that_the_corpus_writes_small_is_no_name_and_a_comma_ends_one():
    text = "- For the box, Include any reason and include the date. We met in Oyo, Luba and Oslo. Please include all."
    index = CorpusIndex([Document(id="a", text=text * 2)])
    answers = {
        choose_answer(sentence, random.Random(seed), index.is_proper_name).text
        for sentence in ("For the box, Include any reason in Oslo.", "We met in Oyo, Luba and Oslo.")
        for seed in range(20)
    }
    assert answers == {"Oslo", "Oyo", "Luba"}


def test_an_item_of_a_list_has_all_lines_that_are_indented_below_it():
    text = (
        "Bring all of these papers along:\n\n- a form that the\n  owner of it signed\n- a map\n  - of the bay\n- a fee"
    )
    (passage,) = CorpusIndex([Document(id="a", text=text)]).passages
    assert find_list(passage).items == ("a form that the owner of it signed", "a map of the bay", "a fee")


def test_no_query_contains_the_answer_that_it_asks_for(corpus):
    for item in make_testset(corpus, 30, mix={"extractive": 1}).items:
        assert not set(split_content_words(item.reference)) <= set(split_content_words(item.query))


def test_a_wider_gap_shares_fewer_words_with_the_passage(corpus):
    def measure_shared(gap: tuple[float, float]) -> float:
        index = CorpusIndex(corpus)
        writer = QueryWriter(index, QueryStyle(gap=gap), random.Random(1))
        shared = total = 0
        for sentence in index.sentences * 3:
            passage = index.passages[sentence.passage]
            query = writer.write(passage, sentence.text, choose_answer(sentence.text, writer.rng), "which") or ""
            words = split_content_words(query)
            shared += sum(word in passage.stems for word in words)
            total += len(words)
        return shared / total

    assert measure_shared((1, 1)) < measure_shared((0, 0)) == 1


def test_the_style_follows_the_lengths_and_the_gap_of_a_log():
    chunks = (Chunk(id="a", text="The ferry leaves the northern harbour at ten."),)
    log = [Trace(id=f"{at}", query=f"ferry harbour crossing {chr(97 + at)}way", chunks=chunks) for at in range(25)]
    style = fit_style(log)
    assert set(style.sizes) == {4}
    assert style.questions == 0
    assert style.lower == 1
    assert style.gap[0] > QueryStyle().gap[0]
    assert style.source == "25 queries"


def test_a_log_of_few_queries_sets_no_style():
    assert fit_style(Trace(id=f"{at}", query="ferry harbour") for at in range(50)) is None


def test_wrong_requests_are_refused(corpus):
    with pytest.raises(UnknownName):
        make_testset(corpus, 5, mix={"riddle": 1})
    with pytest.raises(UsageError):
        make_testset(corpus, 0)
    with pytest.raises(InputError):
        make_testset([Document(id="a", text="Too short.")], 5)


def test_code_and_headings_are_no_sentences():
    text = "# The old stone bridge of Brenholm town\n\n```\nthe call returns open(path) and closes it at the end\n```\n"
    assert CorpusIndex([Document(id="a.md", text=text)]).sentences == []


@pytest.mark.parametrize(
    ("sentence", "term"),
    [
        ("A tide gauge is an instrument for water levels.", "tide gauge"),
        ("Included in its price is a meal for two.", None),
        ("This is a harbour.", None),
        ("The outcome was one of the worst years of the war.", None),
        ("Tides are a common reason of delays.", None),
    ],
)
def test_a_definition_needs_a_term(sentence, term):
    assert match_definition(sentence) == term


def test_lists_and_tables_are_read_with_their_places(corpus):
    index = CorpusIndex(corpus[:1])
    text = corpus[0].text
    (block,) = [block for passage in index.passages if not passage.is_table and (block := find_list(passage))]
    assert text[block.start : block.end].startswith("- mooring")
    assert len(block.items) == 3
    (table,) = [table for passage in index.passages if (table := read_table(passage))]
    assert table[0] == ("Ferry", "Departure", "Price")
    assert [text[row.start : row.end].count("crowns") for row in table[1]] == [1, 1, 1]
