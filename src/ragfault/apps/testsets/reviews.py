"""Reviews of items by people, which are labels: decisions, edits, agreement, and adjudication."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ragfault.apps.testsets.passages import quote_span
from ragfault.io.field_values import make_content_id
from ragfault.labels.agreement import RaterAgreement, estimate_agreement
from ragfault.labels.label import Label, normalize_name
from ragfault.labels.reading.lines import Decision
from ragfault.model.errors import InputError, UnknownName
from ragfault.model.records import Document, Gold, Span, Trace
from ragfault.stats.estimates import BootstrapEstimate

DECISIONS: tuple[Decision, ...] = get_args(Decision)
LAYOUT = "reviews"
"""Layout of a file of reviews."""
ITEM = ("item",)
"""Subject of a review."""
NEW = "new"
"""Fingerprint in the review of an item that the reviewer wrote."""
FORM_FIELDS = ("query", "answerable", "reference", "vital", "okay", "span")
FORM_HELP = """\
# One field a line, NAME: TEXT. Delete or add lines of reference, vital, okay and span; lines with # are ignored.
# vital: a fact that a good answer states; okay: one that it may leave out; span: DOCUMENT | words of the document.
# answerable: yes, no, or empty.
"""


class ItemDispute(Struct, frozen=True, kw_only=True):
    """An item on which reviewers differ."""

    item: str
    query: str
    reason: str
    """The word "decision", or the fields of the item that differ."""
    reviews: tuple[Label, ...]


class ReviewAgreement(Struct, frozen=True, kw_only=True):
    """Numbers of reviewed items, and the agreement of the reviewers."""

    accepted: int
    rejected: int
    pending: int
    """Items with fewer reviews than were asked for."""
    shared: int
    """Items with reviews of two people or more."""
    agreement: BootstrapEstimate | None
    """Share of the shared items with one decision; None without one."""
    alpha: BootstrapEstimate | None
    """Krippendorff's alpha of the decisions on them."""
    fields: dict[str, float]
    """Field → share of the items that all reviewers accepted in which they left it alike."""


class ReviewResult(ReviewAgreement, frozen=True, kw_only=True):
    """Items after their reviews, and the agreement of the reviewers."""

    items: tuple[Trace, ...]
    """Accepted items, as they were left, and those that wait for a review or an adjudication, as they were."""
    disputes: tuple[ItemDispute, ...]
    unmatched: int
    """Reviews of items that are not there, or were in other words; a review counts for an item as it stands."""


def fingerprint_item(item: Trace) -> str:
    """Return a fingerprint of what a person reviews in an item: query, answer key and okay facts."""
    content = (*_list_content(item).values(),)
    return make_content_id(msgspec.json.encode(content).decode(), "item-")


def _list_content(item: Trace) -> dict[str, Any]:
    okay = item.metadata.get("okay_facts") or ()
    spans = sorted((span.document, span.start, span.end) for span in (item.gold.spans if item.gold else ()))
    return {
        "query": item.query,
        "answerable": item.answerable,
        "reference": item.references,
        "facts": item.facts or (),
        "okay_facts": sorted(map(str, okay)),
        "spans": spans,
    }


def write_form(item: Trace) -> str:
    r"""Write an item as a form that a person edits.

    >>> print(write_form(Trace(id="1", query="When?", facts=("At 7.",))).split("\n")[3])
    query: When?
    """
    lines = [f"{name}: {line}".rstrip() for name, lines in list_values(item).items() for line in lines]
    return FORM_HELP + "\n".join(lines) + "\n"


ANSWERABLE_WORDS = {True: "yes", False: "no", None: ""}


def _join_line(text: str) -> str:
    return " ".join(text.split())


def read_form(form: str, item: Trace, documents: Mapping[str, Document]) -> Trace:
    """Return an item as a form has it; what the form leaves as it was stays, word by word.

    Raises InputError for a line that is none of the form's, and what `apply_values` raises.

    >>> item = Trace(id="1", query="When?", facts=("At 7.",))
    >>> read_form("query: When does it open?\\nvital: At 7.\\nokay: On Monday.", item, {}).facts
    ('At 7.', 'On Monday.')
    """
    values: dict[str, list[str]] = {name: [] for name in FORM_FIELDS}
    for line in form.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, text = line.partition(":")
        if not colon or name.strip() not in values:
            raise InputError(
                f'"{line[:60]}" is not a line of the form. Begin it with one of: {", ".join(FORM_FIELDS)}.'
            )
        if text.strip():
            values[name.strip()].append(text.strip())
    return apply_values(values, item, documents)


def list_values(item: Trace) -> dict[str, list[str]]:
    """List what a person edits in an item: the lines of each field of `FORM_FIELDS`, without line breaks."""
    okay = set(map(str, item.metadata.get("okay_facts") or ()))
    spans = item.gold.spans if item.gold is not None else ()
    return {
        "query": [_join_line(item.query)],
        "answerable": [ANSWERABLE_WORDS[item.answerable]],
        "reference": [_join_line(reference) for reference in item.references],
        "vital": [_join_line(fact) for fact in item.facts or () if fact not in okay],
        "okay": [_join_line(fact) for fact in item.facts or () if fact in okay],
        "span": [f"{span.document} | {_join_line(span.quote or '')}" for span in spans],
    }


def apply_values(values: Mapping[str, Sequence[str]], item: Trace, documents: Mapping[str, Document]) -> Trace:
    """Return an item with the lines of each field of `FORM_FIELDS`; what they leave as it was stays, word by word.

    A span that is new is located by its words, white space apart, which must stand once in its document.

    Raises InputError for a missing query, another answerability than yes, no or empty, and words that stand nowhere or
    twice.
    """
    if len(values["query"]) != 1:
        raise InputError(f"the form has {len(values['query'])} queries: an item has one.")
    answerable = {word: value for value, word in ANSWERABLE_WORDS.items()}
    word = "".join(values["answerable"][-1:]).lower()
    if word not in answerable:
        raise InputError(f'answerable is yes, no or empty, not "{word}".')
    facts = _restore([*values["vital"], *values["okay"]], item.facts or ())
    okay = _restore(values["okay"], item.facts or ())
    references = _restore(values["reference"], item.references)
    spans = tuple(_locate_span(text, item, documents) for text in values["span"])
    metadata = {name: value for name, value in item.metadata.items() if name != "okay_facts"}
    gold = item.gold
    if spans or (gold is not None and gold.spans):
        gold = replace(gold or Gold(), spans=spans)
    return replace(
        item,
        query=_restore(values["query"], (item.query,))[0],
        answerable=answerable[word],
        reference=(references[0] if len(references) == 1 else references) or None,
        facts=facts or None,
        gold=gold if gold is not None and (gold.spans or gold.chunks) else None,
        metadata=metadata | ({"okay_facts": list(okay)} if okay else {}),
    )


def _restore(lines: Sequence[str], originals: Iterable[str]) -> tuple[str, ...]:
    """Return lines, each as the original that it is but for white space."""
    originals_by_line = {_join_line(text): text for text in originals}
    return tuple(originals_by_line.get(_join_line(line), line) for line in lines)


def _locate_span(line: str, item: Trace, documents: Mapping[str, Document]) -> Span:
    name, divider, quote = (field.strip() for field in line.partition("|"))
    if not divider or not quote:
        raise InputError(f'"{line[:60]}" is not a span. Write DOCUMENT | words of the document.')
    for span in item.gold.spans if item.gold is not None else ():
        if span.document == name and _join_line(span.quote or "") == _join_line(quote):
            return span
    if name not in documents:
        raise InputError(f'the corpus has no document "{name}". New spans take the corpus (--corpus).')
    text = documents[name].text
    words = quote.split()
    starts = [i for i in range(len(text)) if text.startswith(words[0], i)]
    matches = [(at, end) for at in starts if (end := _match_words(text, at, words)) is not None]
    if len(matches) != 1:
        raise InputError(f"the words of the span occur {len(matches)} times in {name}: name more or other words.")
    start, end = matches[0]
    return quote_span(Span(document=name, start=start, end=end), text)


def _match_words(text: str, position: int, words: Sequence[str]) -> int | None:
    """Return where words end that stand at a place with any white space between them; None where they do not."""
    for word in words:
        while position < len(text) and text[position].isspace():
            position += 1
        if not text.startswith(word, position):
            return None
        position += len(word)
    return position


def create_review(item: Trace, decision: Decision, by: str, edited: Trace | None = None) -> Label:
    """Create the review of an item."""
    changed = edited is not None and fingerprint_item(edited) != fingerprint_item(item)
    return Label(
        trace=item.id,
        subject=ITEM,
        value=decision,
        annotator=by,
        time=datetime.now(UTC).replace(microsecond=0),
        shown=fingerprint_item(item),
        edited=edited if changed else None,
    )


def create_item(form: str, by: str, documents: Mapping[str, Document]) -> Label:
    """Create the review that adds a new item, as a form has it. Raises InputError as `read_form` does.

    >>> create_item("query: When does it open?", "ann", {}).edited.metadata["kind"]
    'own'
    """
    return create_written(read_form(form, EMPTY_ITEM, documents), by)


def create_written(item: Trace, by: str, decision: Decision = "accepted") -> Label:
    """Create the review that adds an item which the reviewer wrote, or replaces or withdraws what they wrote."""
    name = item.id or make_content_id(f"{item.query} {by}", "q-")
    time = datetime.now(UTC).replace(microsecond=0)
    edited = replace(item, id=name)
    return Label(trace=name, subject=ITEM, value=decision, annotator=by, time=time, shown=NEW, edited=edited)


EMPTY_ITEM = Trace(id="", query="", metadata={"kind": "own", "review": "pending"})
"""What a new item is before somebody fills it in."""


def add_written(items: Iterable[Trace], reviews: Iterable[Label]) -> tuple[list[Trace], list[Label]]:
    """Return items with those that reviewers wrote, as their authors last left them, and reviews that refer to them.

    An author accepts what they wrote; what they withdrew, or what the items have already, is not added again.

    >>> written = create_item("query: When does it open?", "ann", {})
    >>> items, [review] = add_written([], [written])
    >>> items[0].query, review.annotator, review.shown == fingerprint_item(items[0])
    ('When does it open?', 'ann', True)
    """
    item_list, review_list = list(items), list(reviews)
    item_ids = {item.id for item in item_list}
    written_reviews = {review.trace: review for review in review_list if review.shown == NEW}
    resolved: list[Label] = []
    for review in review_list:
        if review.shown != NEW:
            resolved.append(review)
        elif written_reviews[review.trace] is review and review.value == "accepted" and review.trace not in item_ids:
            item = review.edited or Trace(id=review.trace, query="")
            item_list.append(item)
            resolved.append(replace(review, shown=fingerprint_item(item), edited=None))
    return item_list, resolved


def merge_reviews(
    items: Iterable[Trace], reviews: Iterable[Label], *, adjudicator: str | None = None, needed: int = 1
) -> ReviewResult:
    """Merge reviews into the items: the decision that all reviewers share, in the same words, or the adjudicator's.

    The last review of a person for an item as it stands counts. An item is accepted or rejected where `needed` people
    reviewed it and all agree; the adjudicator's review decides alone, and is not counted in the agreement. Rejected
    items are left out; disputed ones and those with too few reviews stay as they were. What a reviewer wrote is added,
    and is an item that its author accepts (`add_written`).
    Names are compared without case and white space around them. Intervals are over items.

    Raises UnknownName for an adjudicator without a review.

    >>> item = Trace(id="1", query="When?")
    >>> result = merge_reviews([item], [create_review(item, "accepted", name) for name in ("ann", "ben")], needed=2)
    >>> result.items[0].metadata["review"], result.shared, result.agreement.value
    ('accepted', 1, 1.0)
    """
    items, reviews = add_written(items, reviews)
    by_item: dict[str, dict[str, Label]] = {}
    for review in reviews:
        by_item.setdefault(f"{review.trace} {review.shown}", {})[review.person] = review
    names = {
        name: review.annotator.strip() for item_reviews in by_item.values() for name, review in item_reviews.items()
    }
    adjudicator_name = None if adjudicator is None else normalize_name(adjudicator)
    if adjudicator is not None and adjudicator_name not in names:
        raise UnknownName("reviewer", adjudicator, sorted(names.values()), listed=True)
    merged: list[Trace] = []
    disputes: list[ItemDispute] = []
    counts: Counter[str] = Counter()
    reviewed_twice: list[tuple[Trace, dict[str, Label]]] = []
    for item in items:
        item_reviews = by_item.pop(f"{item.id} {fingerprint_item(item)}", {})
        final = None if adjudicator_name is None else item_reviews.pop(adjudicator_name, None)
        if len(item_reviews) > 1:
            reviewed_twice.append((item, item_reviews))
        reason = _find_difference(item, list(item_reviews.values()))
        if final is None and len(item_reviews) >= needed and item_reviews and reason is None:
            final = max(item_reviews.values(), key=get_time)
        if final is None:
            if reason is not None:
                disputes.append(
                    ItemDispute(item=item.id, query=item.query, reason=reason, reviews=tuple(item_reviews.values()))
                )
            counts["disputed" if reason is not None else "pending"] += 1
            merged.append(item)
            continue
        counts[str(final.value)] += 1
        if final.value == "accepted":
            merged.append(_accept(final.edited or item, [*item_reviews.values(), final], get_time(final)))
    agreement = _estimate_agreement([item_reviews for _, item_reviews in reviewed_twice])
    return ReviewResult(
        items=tuple(merged),
        accepted=counts["accepted"],
        rejected=counts["rejected"],
        pending=counts["pending"],
        shared=len(reviewed_twice),
        agreement=agreement and agreement.equal,
        alpha=agreement and agreement.alpha,
        fields=_compare_fields(reviewed_twice),
        disputes=tuple(disputes),
        unmatched=sum(map(len, by_item.values())),
    )


def get_time(review: Label) -> datetime:
    """Return the time of a review, which each has."""
    assert review.time is not None
    return review.time


def _find_difference(item: Trace, reviews: Sequence[Label]) -> str | None:
    """Return in what reviews differ: the decision, or fields of the item; None where they agree."""
    if len({review.value for review in reviews}) > 1:
        return "decision"
    if not reviews or reviews[0].value == "rejected":
        return None
    contents = [_list_content(review.edited or item) for review in reviews]
    fields = [name for name in contents[0] if any(item_content[name] != contents[0][name] for item_content in contents)]
    return ", ".join(fields) or None


def _accept(item: Trace, reviews: Sequence[Label], time: datetime) -> Trace:
    names = sorted({review.annotator.strip() for review in reviews})
    about = {"review": "accepted", "reviewed": {"by": ", ".join(names), "time": time.isoformat()}}
    return replace(item, metadata=item.metadata | about)


def _estimate_agreement(rated: Sequence[Mapping[str, Label]]) -> RaterAgreement | None:
    names = sorted({name for votes in rated for name in votes})
    table = [[votes[name].value if name in votes else None for name in names] for votes in rated]
    return estimate_agreement(table, DECISIONS, [str(i) for i in range(len(rated))]) if rated else None


def _compare_fields(reviewed_twice: Sequence[tuple[Trace, Mapping[str, Label]]]) -> dict[str, float]:
    rows = [
        [_list_content(review.edited or item) for review in item_reviews.values()]
        for item, item_reviews in reviewed_twice
        if all(review.value == "accepted" for review in item_reviews.values())
    ]
    if not rows:
        return {}
    return {name: sum(all(row[name] == own[0][name] for row in own) for own in rows) / len(rows) for name in rows[0][0]}
