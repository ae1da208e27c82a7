"""Laws of reviews: forms, agreement of reviewers, and adjudication."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ragfault.apps.testsets.reviews import (
    LAYOUT,
    create_item,
    create_review,
    create_written,
    fingerprint_item,
    merge_reviews,
    read_form,
    write_form,
)
from ragfault.labels.reading.label_files import append_label, read_saved_labels
from ragfault.model.errors import InputError, UnknownName
from ragfault.model.records import Document, Gold, Span, Trace

TEXT = "The quay of Ostrey\nwas built by Ann Lee in 1907. It is long."
DOCUMENTS = {"quay.md": Document(id="quay.md", text=TEXT)}
ITEM = Trace(
    id="1",
    query="Who built the quay?",
    reference="Ann Lee,\nin 1907",
    facts=("Ann Lee built it.", "It was 1907."),
    gold=Gold(spans=(Span(document="quay.md", start=0, end=48, quote=TEXT[:48]),)),
    answerable=True,
    metadata={"okay_facts": ["It was 1907."], "kind": "extractive"},
)


def test_a_form_that_was_not_changed_leaves_the_item_word_by_word():
    assert fingerprint_item(read_form(write_form(ITEM), ITEM, {})) == fingerprint_item(ITEM)
    assert read_form(write_form(ITEM), ITEM, {}).reference == "Ann Lee,\nin 1907"


def test_a_form_changes_query_facts_answerability_and_spans():
    form = "query: Who?\nanswerable: no\nvital: It was 1907.\nokay: It is long.\nspan: quay.md | was built by Ann Lee"
    item = read_form(form, ITEM, DOCUMENTS)
    assert (item.query, item.answerable, item.reference) == ("Who?", False, None)
    assert (item.facts, item.metadata["okay_facts"]) == (("It was 1907.", "It is long."), ["It is long."])
    span = item.gold.spans[0]
    assert TEXT[span.start : span.end] == span.quote == "was built by Ann Lee"
    assert (span.prefix, span.suffix) == (TEXT[: span.start], TEXT[span.end :])


def test_a_span_is_located_across_line_breaks():
    span = read_form("query: Who?\nspan: quay.md | Ostrey was built", ITEM, DOCUMENTS).gold.spans[0]
    assert span.quote == "Ostrey\nwas built"


@pytest.mark.parametrize(
    "form",
    [
        "answerable: yes",
        "query: a\nquery: b",
        "query: a\nanswerable: perhaps",
        "query: a\nsource: b",
        "query: a\nspan: quay.md | no such words",
        "query: a\nspan: quay.md | t",
        "query: a\nspan: other.md | quay",
        "query: a\nspan: quay.md",
    ],
)
def test_a_form_that_cannot_be_read_is_an_error(form):
    with pytest.raises(InputError):
        read_form(form, ITEM, DOCUMENTS)


def test_reviews_are_read_as_they_were_written(tmp_path):
    review = create_review(ITEM, "accepted", "ann", replace(ITEM, query="Who built it?"))
    append_label(tmp_path / "reviews.jsonl", review, LAYOUT)
    assert list(read_saved_labels(tmp_path / "reviews.jsonl", LAYOUT)) == [review]
    (tmp_path / "bad.jsonl").write_text("{}\n")
    with pytest.raises(InputError):
        list(read_saved_labels(tmp_path / "bad.jsonl", LAYOUT))


def test_an_edit_that_changes_nothing_is_no_edit():
    assert create_review(ITEM, "accepted", "ann", replace(ITEM, route="x")).edited is None


def test_an_item_is_accepted_as_its_reviewers_left_it():
    edited = replace(ITEM, query="Who built the quay of Ostrey?")
    result = merge_reviews([ITEM], [create_review(ITEM, "accepted", name, edited) for name in ("ann", "ben")], needed=2)
    assert result.items[0].query == edited.query
    assert result.items[0].metadata["reviewed"]["by"] == "ann, ben"
    assert (result.accepted, result.shared, set(result.fields.values())) == (1, 1, {1.0})


def test_a_rejected_item_is_left_out_and_one_with_too_few_reviews_waits():
    other = replace(ITEM, id="2")
    reviews = [create_review(ITEM, "rejected", "ann"), create_review(ITEM, "rejected", "ben")]
    result = merge_reviews([ITEM, other], [*reviews, create_review(other, "accepted", "ann")], needed=2)
    assert result.items == (other,)
    assert (result.rejected, result.pending) == (1, 1)


def test_reviewers_who_differ_make_a_dispute_that_the_adjudicator_decides():
    edited = replace(ITEM, query="Who built it?")
    reviews = [create_review(ITEM, "accepted", "ann", edited), create_review(ITEM, "accepted", "ben")]
    result = merge_reviews([ITEM], reviews)
    assert [dispute.reason for dispute in result.disputes] == ["query"]
    assert result.items == (ITEM,)
    decided = merge_reviews([ITEM], [*reviews, create_review(ITEM, "accepted", "cho", edited)], adjudicator="cho")
    assert decided.disputes == ()
    assert decided.items[0].query == "Who built it?"
    assert decided.agreement == result.agreement


def test_an_adjudicator_without_a_review_is_an_error_with_the_names_there_are():
    with pytest.raises(UnknownName, match="ann, ben"):
        merge_reviews([ITEM], [create_review(ITEM, "accepted", name) for name in ("ann", "ben")], adjudicator="nobody")


def test_a_name_with_other_case_or_white_space_is_the_same_person():
    reviews = [create_review(ITEM, "rejected", "ann"), create_review(ITEM, "accepted", "Ann ")]
    assert merge_reviews([ITEM], reviews, needed=2).pending == 1
    decided = merge_reviews([ITEM], [*reviews, create_review(ITEM, "rejected", "ben")], adjudicator=" ANN")
    assert (decided.accepted, decided.items[0].metadata["reviewed"]["by"]) == (1, "Ann, ben")


def test_agreement_is_that_of_the_decisions():
    items = [replace(ITEM, id=f"{at}", query=f"Who built quay {at}?") for at in range(10)]
    reviews = [create_review(item, "accepted" if at % 2 else "rejected", "ann") for at, item in enumerate(items)]
    reviews += [
        create_review(item, "accepted" if at % 2 or at == 0 else "rejected", "ben") for at, item in enumerate(items)
    ]
    result = merge_reviews(items, reviews)
    assert result.agreement.value == pytest.approx(0.9)
    assert 0.7 < result.alpha.value < 0.9


def test_the_last_review_of_a_person_counts_and_none_of_another_version():
    reviews = [create_review(ITEM, "rejected", "ann"), create_review(ITEM, "accepted", "ann")]
    result, other = (merge_reviews([item], reviews) for item in (ITEM, replace(ITEM, query="Another?")))
    assert (result.accepted, result.unmatched) == (1, 0)
    assert (other.pending, other.unmatched) == (1, 1)


def test_an_item_that_a_person_wrote_is_added():
    review = create_item("query: How long is the quay?\nvital: 40 metres", "ann", {})
    result = merge_reviews([ITEM], [review])
    assert [item.query for item in result.items] == [ITEM.query, "How long is the quay?"]
    assert result.items[1].metadata["review"] == "accepted"


def test_what_a_person_wrote_waits_for_the_reviews_of_others_like_any_item():
    written = create_item("query: How long is the quay?\nvital: 40 metres", "ann", {})
    assert merge_reviews([], [written], needed=2).pending == 1
    accepted = create_review(written.edited, "accepted", "ben")
    result = merge_reviews([], [written, accepted], needed=2)
    assert (result.accepted, result.items[0].metadata["reviewed"]["by"]) == (1, "ann, ben")
    rejected = create_review(written.edited, "rejected", "ben")
    assert [dispute.reason for dispute in merge_reviews([], [written, rejected]).disputes] == ["decision"]


def test_an_author_changes_and_withdraws_what_they_wrote():
    written = create_item("query: How long is the quay?", "ann", {})
    changed = create_written(replace(written.edited, query="How wide is the quay?"), "ann")
    assert [item.query for item in merge_reviews([], [written, changed]).items] == ["How wide is the quay?"]
    assert merge_reviews([], [written, changed, create_written(changed.edited, "ann", "rejected")]).items == ()


def test_what_a_person_wrote_is_not_added_to_a_set_that_has_it():
    written = create_item("query: How long is the quay?", "ann", {})
    merged = merge_reviews([ITEM], [written]).items
    assert len(merge_reviews(merged, [written]).items) == 2


def test_a_killed_writer_leaves_a_file_that_is_read_and_continued(tmp_path):
    path = tmp_path / "reviews.jsonl"
    first, second = (create_review(ITEM, "accepted", name) for name in ("ann", "ben"))
    append_label(path, first, LAYOUT)
    complete = path.read_bytes()
    for cut in range(1, len(complete)):
        path.write_bytes(complete + complete[:cut])
        expected = [first, first] if cut == len(complete) - 1 else [first]
        assert list(read_saved_labels(path, LAYOUT)) == expected
        append_label(path, second, LAYOUT)
        assert list(read_saved_labels(path, LAYOUT)) == [*expected, second]


def test_a_refused_review_is_not_written(tmp_path):
    def refuse():
        raise InputError("no")

    with pytest.raises(InputError):
        append_label(tmp_path / "reviews.jsonl", create_review(ITEM, "accepted", "ann"), LAYOUT, refuse)
    assert list(read_saved_labels(tmp_path / "reviews.jsonl", LAYOUT)) == []
