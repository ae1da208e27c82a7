"""Laws of questions about passages that are taken out of the corpus."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ragfault.apps.testsets.making.withheld import make_withheld
from ragfault.model.errors import InputError, UsageError
from ragfault.model.records import Document


def test_the_passage_of_a_withheld_question_is_not_in_the_reduced_corpus(corpus):
    result = make_withheld(corpus, 4, share=0.2)
    texts = {document.id: document.text for document in corpus}
    reduced = "\n".join(document.text for document in result.documents)
    assert result.items
    for item in result.items:
        place = item.metadata["withheld"]
        assert texts[place["document"]][place["start"] : place["end"]] == place["quote"]
        assert place["quote"] not in reduced
        assert (item.answerable, item.gold, item.reference) == (False, None, None)


def test_the_rest_of_the_corpus_stays_word_by_word(corpus):
    result = make_withheld(corpus, 4, share=0.2)
    before, after = (sum(len(document.text) for document in documents) for documents in (corpus, result.documents))
    assert after < before
    assert "| Ferry | Departure | Price |" in result.documents[0].text


def test_no_question_is_asked_where_another_document_repeats_the_passage(corpus):
    doubled = [*corpus, *(replace(document, id=f"copy-{document.id}") for document in corpus)]
    result = make_withheld(doubled, 4, share=0.02)
    assert not result.items
    assert any("may be answerable" in item.reason for item in result.rejected)


def test_the_same_seed_holds_out_the_same_passages(corpus):
    assert make_withheld(corpus, 3, seed=4).items == make_withheld(corpus, 3, seed=4).items


def test_a_share_above_a_half_or_a_single_passage_is_an_error(corpus):
    with pytest.raises(UsageError):
        make_withheld(corpus, 3, share=0.6)
    with pytest.raises(InputError):
        make_withheld([Document(id="a", text="One short passage stands here alone.")], 3)
