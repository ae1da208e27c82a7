"""Views of the set that people review: items of a page, and how far the reviewers agree."""

from __future__ import annotations

from collections import Counter
from typing import Literal, NamedTuple, cast, get_args

from msgspec import Struct

from ragfault.apps.testsets.review_session import ReviewSession, ReviewState
from ragfault.apps.testsets.reviews import ReviewAgreement, ReviewResult, merge_reviews
from ragfault.labels.reading.lines import Decision
from ragfault.model.errors import UsageError

ShownItems = Literal["waiting", "all", "reviewed", "disputed", "written"]
SHOWN_ITEMS: tuple[ShownItems, ...] = get_args(ShownItems)
"""Items of a page: those that wait for the reader, all, those the reader reviewed, disputed by others, by people."""
# items of a page
ITEMS_SHOWN = 50
QUERY_CHARACTERS = 300
DISPUTES_SHOWN = 50


class TestsetLine(Struct, frozen=True, kw_only=True):
    """An item in a list."""

    # not a class of tests
    __test__ = False

    id: str
    query: str
    kind: str
    reviewers: int
    """People who reviewed the item as it stands."""
    decision: Decision | None
    """Decision of the reader; None without one."""
    is_written: bool
    """A reviewer wrote the item."""


class AgreementView(ReviewAgreement, frozen=True, kw_only=True):
    """Numbers of reviewed items, the agreement of the reviewers, and the first disputes."""

    disputed: int
    reasons: tuple[tuple[str, str], ...]
    """The first disputed items, each with the fields that differ, or the word "decision"."""


class TestsetView(Struct, frozen=True, kw_only=True):
    """A page of the items of a set, and the agreement of its reviewers."""

    # not a class of tests
    __test__ = False

    path: str | None
    """The file of the set; None where the server has none."""
    reviewer: str
    items: int
    waiting: int
    """Items that wait for the reader."""
    matched: int
    """Items that match the filter."""
    lines: tuple[TestsetLine, ...]
    reviewers: tuple[str, ...]
    agreement: AgreementView | None


class ItemSelection(NamedTuple):
    """The items of a page, and the reviews that settle an item."""

    show: ShownItems = "waiting"
    text: str = ""
    """Words in the query, in any case."""
    page: int = 1
    needed: int = 2
    """Reviewers of an item."""
    adjudicator: str = ""
    """Reviewer who decides disputed items; empty: none."""


def load_testset(session: ReviewSession | None, name: str, selection: ItemSelection) -> TestsetView:
    """Load a page of the items; without a set it is empty. Raises UnknownName for an adjudicator without a review."""
    show, text, page, needed, adjudicator = selection
    if session is None:
        return TestsetView(
            path=None, reviewer=name, items=0, waiting=0, matched=0, lines=(), reviewers=(), agreement=None
        )
    state = session.load()
    ids = [id for id in list_items(state, name, show) if text.casefold() in state.items[id].query.casefold()]
    counts = Counter(item for item, _ in state.latest)
    return TestsetView(
        path=session.items,
        reviewer=name,
        items=len(state.items),
        waiting=len(state.list_waiting(name)),
        matched=len(ids),
        lines=tuple(_build_line(state, id, name, counts[id]) for id in ids[ITEMS_SHOWN * (page - 1) :][:ITEMS_SHOWN]),
        reviewers=tuple(sorted({review.person: review.annotator.strip() for review in state.reviews}.values())),
        agreement=_measure_agreement(merge_state(state, needed, adjudicator)),
    )


def list_items(state: ReviewState, name: str, show: str) -> list[str]:
    """List the ids of the items that a page shows to a reader. Raises UsageError for another selection."""
    if show == "waiting":
        return [item.id for item in state.list_waiting(name)]
    if show == "disputed":
        return [id for id in state.find_disputes(name) if id in state.items]
    if show == "reviewed":
        return [id for id in state.items if state.get_review(id, name) is not None]
    if show == "written":
        return list(state.authors)
    if show != "all":
        raise UsageError(f'there is no selection "{show[:40]}". Choose one of: {", ".join(SHOWN_ITEMS)}.')
    return list(state.items)


def _build_line(state: ReviewState, id: str, name: str, reviewers: int) -> TestsetLine:
    item, own = state.items[id], state.get_review(id, name)
    return TestsetLine(
        id=id,
        query=(own.edited if own is not None and own.edited is not None else item).query[:QUERY_CHARACTERS],
        kind=str(item.metadata.get("kind", ""))[:60],
        reviewers=reviewers,
        decision=None if own is None else cast(Decision, own.value),
        is_written=id in state.authors,
    )


def merge_state(state: ReviewState, needed: int, adjudicator: str) -> ReviewResult:
    """Merge the reviews of a set; the adjudicator decides where one is named."""
    return merge_reviews(state.items.values(), state.reviews, needed=needed, adjudicator=adjudicator or None)


def _measure_agreement(result: ReviewResult) -> AgreementView:
    return AgreementView(
        accepted=result.accepted,
        rejected=result.rejected,
        disputed=len(result.disputes),
        pending=result.pending,
        shared=result.shared,
        agreement=result.agreement,
        alpha=result.alpha,
        fields=result.fields,
        reasons=tuple((dispute.item, dispute.reason) for dispute in result.disputes[:DISPUTES_SHOWN]),
    )
