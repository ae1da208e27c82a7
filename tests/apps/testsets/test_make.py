"""Laws of made evaluation sets."""

from __future__ import annotations

from collections import Counter

import pytest

from ragfault.apps.testsets.description import describe_testset
from ragfault.apps.testsets.making.make import make_testset
from ragfault.apps.testsets.making.probes import BLANK
from ragfault.apps.testsets.making.style import QueryStyle, fit_style
from ragfault.apps.testsets.passages import CorpusIndex
from ragfault.cli.commands import run_command
from ragfault.diagnosis.clusters.promotion import CaseIndex
from ragfault.model.errors import InputError, UnknownName, UsageError
from ragfault.model.records import Document, Trace
from ragfault.text.normalization import split_content_words


def test_the_same_seed_makes_the_same_set(corpus):
    first, second, other = (make_testset(corpus, 30, seed=seed) for seed in (3, 3, 4))
    assert first.items == second.items
    assert first.items != other.items


def test_every_gold_span_quotes_its_document(corpus):
    texts = {document.id: document.text for document in corpus}
    spans = [span for item in make_testset(corpus, 40).items if item.gold for span in item.gold.spans]
    assert len(spans) > 16
    for span in spans:
        text = texts[span.document]
        assert text[span.start : span.end] == span.quote
        assert text[: span.start].endswith(span.prefix)
        assert text[span.end :].startswith(span.suffix)


def test_a_smaller_number_than_requested_has_a_reason(corpus):
    enough, short = make_testset(corpus, 16), make_testset(corpus[:1], 500)
    assert len(enough.items) == 16
    assert len(short.items) < 500
    assert any("of 500 items" in note for note in short.notes)
    assert all(item.reason for item in short.rejected)


def test_a_cloze_is_its_sentence_with_a_blank_for_its_reference(corpus):
    items = make_testset(corpus, 10, mix={"cloze": 1}).items
    assert len(items) == 10
    for item in items:
        assert item.query.count(BLANK) == 1
        assert item.query.replace(BLANK, item.reference) == item.facts[0]


def test_keywords_are_words_of_their_gold_as_many_as_in_the_style(corpus):
    style = QueryStyle(sizes=(3,))
    for item in make_testset(corpus, 10, mix={"keywords": 1}, style=style).items:
        assert set(split_content_words(item.query)) <= set(split_content_words(item.gold.spans[0].quote))
        assert len(item.query.split()) <= 3


def test_no_two_items_have_the_same_gold_or_nearly_the_same_query(corpus):
    items = make_testset(corpus, 60).items
    golds = Counter((span.document, span.start) for item in items for span in item.gold.spans)
    assert set(golds.values()) == {1}
    assert not [item.query for n, item in enumerate(items) if CaseIndex(items[:n]).duplicate_id(item.query)]


def test_probes_come_with_a_warning_of_their_level(corpus):
    assert any("recall on them is higher" in note for note in make_testset(corpus, 4).notes)


def test_a_mix_holds_or_what_is_missing_is_noted(corpus):
    result = make_testset(corpus[:1], 60, mix={"cloze": 0.5, "keywords": 0.5})
    for kind in ("cloze", "keywords"):
        count = result.counts.get(kind, 0)
        assert count < 30
        assert any(note.startswith(f"{kind}: {count} of 30") for note in result.notes)
    assert make_testset(corpus, 8, mix={"cloze": 0.75, "keywords": 0.25}).counts == {"cloze": 6, "keywords": 2}


def test_the_command_makes_only_one_kind_on_request(corpus, tmp_path, capsys):
    folder, out = tmp_path / "docs", tmp_path / "set.jsonl"
    folder.mkdir()
    for document in corpus:
        (folder / document.id).write_text(document.text, encoding="utf-8")
    command = ["testset", "make", str(folder), "-o", str(out), "-n", "6"]
    assert run_command([*command, "--only", "keywords", "--mix", "cloze=1"]) == 2
    assert run_command([*command, "--only", "keywords"]) == 0
    assert "(keywords 6)" in capsys.readouterr().out
    assert run_command([*command, "--only", "factoid", "--force"]) == 2


def test_a_set_of_a_language_without_sentences_of_rules_says_so():
    text = "港务局在工作日上午八点开门，下午五点关门。 " * 12
    result = make_testset([Document(id="a", text=text)], 4)
    assert (result.items, result.rejected) == ((), ())
    assert any("a (1)" in note for note in result.notes)


def test_nothing_is_asked_about_code_however_it_is_marked():
    lines = "retention: the harbour keeps the logs of every berth for ninety days in the archive of Tarvik"
    prose = "The harbour of Tarvik keeps forty berths for boats that arrive before the winter storms begin."
    for block in (
        f"```yaml\n{lines}\n```",
        f"~~~\n{lines}\n~~~",
        f"    {lines}",
        f".. code-block:: yaml\n\n   {lines}",
    ):
        index = CorpusIndex([Document(id="a", text=f"{prose}\n\n{block}\n\n{prose}\n")])
        assert [sentence.text for sentence in index.sentences] == [prose, prose]


def test_prose_that_is_indented_below_a_list_item_or_a_note_is_asked_about():
    prose = "The harbour of Tarvik keeps forty berths for boats that arrive before the winter storms begin."
    for block in (f"1. Moor.\n\n   {prose}", f".. note::\n\n   {prose}", f"    {prose}\n\n    {prose}"):
        index = CorpusIndex([Document(id="a", text=f"{block}\n")])
        assert prose in [sentence.text for sentence in index.sentences]


def test_the_rank_of_the_gold_by_bm25_is_in_each_item_and_in_the_description(corpus):
    pytest.importorskip("bm25s", reason="the extra `retrieval` is not installed")
    items = make_testset(corpus, 12).items
    ranks = [item.metadata["bm25_rank"] for item in items]
    assert min(ranks) >= 1
    described = describe_testset(items)
    assert sum(described.ranks.values()) == 12
    assert described.ranks["1"] == ranks.count(1)


def test_gold_that_stands_in_the_corpus_twice_is_not_asked_for(corpus):
    result = make_testset([corpus[0], Document(id="copy.md", text=corpus[0].text)], 5)
    assert result.items == ()
    assert {item.reason for item in result.rejected} >= {"ambiguous: its gold is in the corpus twice"}


def test_words_of_links_and_entities_are_no_words_of_a_passage():
    text = "See the [map of the pier](https://maps.example.org/kfcwn?x=jsp) for the way to the old harbour&nbsp;office."
    assert {"kfcwn", "jsp", "nbsp", "org"}.isdisjoint(CorpusIndex([Document(id="a", text=text)]).passages[0].stems)


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


def test_the_style_follows_the_lengths_of_a_log():
    log = [
        Trace(id=f"{at}", query=f"harbour ferry price north winter night {chr(97 + at % 26) * 4}{at}")
        for at in range(40)
    ]
    style = fit_style(log)
    assert set(style.sizes) == {8}
    assert (style.lower, style.source) == (1.0, "40 queries")
