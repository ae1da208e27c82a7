"""Pages on which people review, edit and write the items of a set, and see how far they agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import urlencode

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from ragfault.apps.testsets.pages.views import (
    ITEMS_SHOWN,
    SHOWN_ITEMS,
    ItemSelection,
    ShownItems,
    TestsetView,
    list_items,
    load_testset,
    merge_state,
)
from ragfault.apps.testsets.review_session import ReviewSession, ReviewState, fingerprint_review
from ragfault.apps.testsets.reviews import (
    DECISIONS,
    EMPTY_ITEM,
    FORM_FIELDS,
    apply_values,
    create_review,
    create_written,
    get_time,
    list_values,
)
from ragfault.http.forms import AdminForm, FormFields, parse_count, read_author
from ragfault.http.hosting import INVALID, Host, PageHost, get_host
from ragfault.http.json_routes import make_json_router
from ragfault.http.page_routes import AppPages, PageRoute
from ragfault.http.security import require_role
from ragfault.labels.label import Label, normalize_name
from ragfault.model.errors import InputError, UnknownName, UsageError
from ragfault.model.records import Trace

json_router = make_json_router()
router = APIRouter(route_class=PageRoute, include_in_schema=False)
READER = Depends(require_role("read"))

MAX_ITEM_CHARACTERS = 20_000
"""Characters of an item that the form takes: its body is limited, and a character may take three bytes of it."""
MAX_NAME = 80
"""Characters of the name of a reviewer."""
GONE = (
    "the item is no longer in the set, and nothing was stored. Your text is below: accept it to add it as a "
    "new question."
)


class ReviewForm(NamedTuple):
    """The item of a page, as a reviewer sees it."""

    item: Trace
    own: Label | None
    """The reviewer's last review of the item as it stands."""
    shown: str
    """Fingerprint of the item; empty for a new one."""

    @property
    def current(self) -> Trace:
        """The item as the reviewer left it."""
        return self.own.edited if self.own is not None and self.own.edited is not None else self.item


class TestsetParams(BaseModel):
    """Query parameters of a page of the set: the reader, and the fields of `ItemSelection` with their bounds."""

    # not a class of tests
    __test__ = False

    by: Annotated[str, Query(max_length=80)] = ""
    show: ShownItems = "waiting"
    text: Annotated[str, Query(max_length=200)] = ""
    page: Annotated[int, Query(ge=1, le=10_000)] = 1
    needed: Annotated[int, Query(ge=1, le=9)] = 2
    adjudicator: Annotated[str, Query(max_length=80)] = ""


@json_router.get("/testset.json", **INVALID)
def get_testset(request: Request, host: Host, params: Annotated[TestsetParams, Query()]) -> TestsetView:
    """Return a page of the set that people review, and how far they agree; reviews of others are not in it."""
    token = request.app.state.access.read_token(request)
    name = params.by if token is None else token.name
    return load_testset(_find_session(host), name, ItemSelection(**params.model_dump(exclude={"by"})))


@router.get("/testset", dependencies=[READER])
def show_testset(request: Request) -> Response:
    """Show the items of the set, and the agreement of the reviewers."""
    query = request.query_params
    by, show, text = _read_reviewer(request), query.get("show", "waiting"), query.get("text", "")[:200]
    page, needed = (
        parse_count(query.get("page", "1"), 10_000, "the page"),
        parse_count(query.get("needed", "2"), 9, "reviewers of an item"),
    )
    adjudicator = query.get("adjudicator", "")[:MAX_NAME]
    if show not in SHOWN_ITEMS:
        raise UsageError(f'there is no selection "{show[:40]}". Choose one of: {", ".join(SHOWN_ITEMS)}.')
    selection = ItemSelection(show, text, page, needed, adjudicator)
    return get_host(request).render_page(
        request,
        "testset",
        view=load_testset(_find_session(get_host(request)), by, selection),
        by=by,
        asks_name=request.app.state.access.is_open,
        page_size=ITEMS_SHOWN,
        selections=SHOWN_ITEMS,
        **selection._asdict(),
        link=_make_linker(request, by),
    )


@router.get("/testset/reviewed.jsonl", dependencies=[READER])
def download_reviewed(request: Request) -> Response:
    """Return the items as reviewers left them: without rejected ones, disputed and pending ones as they were."""
    session = _get_session(request)
    needed = parse_count(request.query_params.get("needed", "2"), 9, "reviewers of an item")
    result = merge_state(session.load(), needed, request.query_params.get("adjudicator", "")[:MAX_NAME])
    request.app.state.audit.record(request, "testset_downloaded", request.url.query)
    lines = b"".join(msgspec.json.encode(item) + b"\n" for item in result.items)
    headers = {"content-disposition": 'attachment; filename="reviewed.jsonl"'}
    return Response(lines, media_type="application/jsonl", headers=headers)


@router.get("/testset/item", dependencies=[READER])
def show_item(request: Request) -> Response:
    """Show an item with its form; without an id, the form of a new one."""
    query = request.query_params
    by = _read_reviewer(request)
    form = _load_form(_get_session(request).load(), query.get("id", ""), by)
    values = {name: "\n".join(lines) for name, lines in list_values(form.current).items()}
    if sum(map(len, values.values())) > MAX_ITEM_CHARACTERS:
        raise UsageError(
            f"the item has more than {MAX_ITEM_CHARACTERS:,} characters, too many for a form. Review it in the "
            "terminal: ragfault testset review."
        )
    values |= {"show": query.get("show", "waiting"), "decision": str(form.own.value) if form.own else ""}
    return _render_item(request, form, by, values)


def _render_item(
    request: Request, form: ReviewForm, by: str, values: Mapping[str, str], error: str = "", status: int = 200
) -> Response:
    """Render the form of an item; the reviews of others are shown to those who look at disputes."""
    session, access = _get_session(request), request.app.state.access
    state, token = session.load(), access.read_token(request)
    show, search = values.get("show", "waiting"), values.get("search", "")[:200]
    disputes = state.find_disputes(by).get(form.item.id, ()) if show == "disputed" else ()
    return get_host(request).render_page(
        request,
        "testset-item",
        status,
        without_json=True,
        form=form,
        item=form.item,
        spans=form.current.gold.spans if form.current.gold is not None else (),
        values={name: values.get(name, "") for name in (*FORM_FIELDS, "decision")},
        previous=fingerprint_review(form.own),
        others=[(review, list_values(review.edited or form.item)) for review in disputes],
        by=by,
        show=show,
        asks_name=access.is_open,
        may_write=access.is_open or (token is not None and token.role == "admin"),
        is_written=_is_own(state, form, by),
        has_corpus=session.corpus is not None,
        search=search,
        passages=session.search_passages(search) if search else (),
        error=error,
        link=_make_linker(request, by),
    )


def _is_own(state: ReviewState, form: ReviewForm, by: str) -> bool:
    """Return whether the reviewer wrote the item, or writes it now."""
    return not form.shown or state.authors.get(form.item.id) == normalize_name(by)


@router.post("/testset/item")
async def post_item(request: Request, fields: FormFields = AdminForm) -> Response:
    """Store the review of an item, or an item that the reviewer wrote, and lead to the next one."""
    return await run_in_threadpool(_answer_form, request, fields)


def _answer_form(request: Request, fields: FormFields) -> Response:
    session, id = _get_session(request), fields.get("id", "")
    if request.app.state.access.is_open and not normalize_name(fields.get("by", "")):
        raise UsageError("a review has a name: write yours above the buttons.")
    by = read_author(request, fields)[:MAX_NAME]
    state = session.load()
    if id and id not in state.items:
        return _render_item(request, _load_form(state, "", by), by, fields, GONE, 409)
    form = _load_form(state, id, by)
    if fields.get("decision") == "search":
        return _render_item(request, form, by, fields)
    try:
        review = _build_review(session, state, form, fields, by)
        session.add(review, lambda latest: _check_unchanged(latest, review, fields, by))
    except InputError as error:
        return _render_item(request, form, by, fields, str(error), 422)
    except HTTPException as error:
        state = session.load()
        form = _load_form(state, id if id in state.items else "", by)
        return _render_item(request, form, by, fields, str(error.detail), 409)
    detail = f"{review.value}: {(review.edited or form.item).query}"
    request.app.state.audit.record(request, "testset_review", review.trace, detail)
    return RedirectResponse(_find_next(request, session.load(), fields, by), 303)


def _find_next(request: Request, state: ReviewState, fields: FormFields, by: str) -> str:
    """Return the address of the next item that waits for the reviewer; of the list at the end, or after a new item."""
    show, link = fields.get("show", "waiting"), _make_linker(request, by)
    waiting = list_items(state, by, show) if show in {"waiting", "disputed"} and fields.get("id") else []
    id = next((name for name in waiting if state.get_review(name, by) is None), None)
    return f"/testset?{link(show=show)}" if id is None else f"/testset/item?{link(id=id, show=show)}"


def _make_linker(request: Request, by: str) -> Callable[..., str]:
    """Return a function that encodes a query string; it carries the name of the reader where no token states it."""
    name = {"by": by} if request.app.state.access.is_open and by else {}
    return lambda **fields: urlencode(fields | name, errors="replace")


def _build_review(session: ReviewSession, state: ReviewState, form: ReviewForm, fields: FormFields, by: str) -> Label:
    """Build the review that a form states. Raises InputError where its fields cannot be read."""
    decision = next((name for name in DECISIONS if name == fields.get("decision")), None)
    if decision is None:
        raise UsageError("an item is accepted or rejected. Use the buttons of its page.")
    is_own = _is_own(state, form, by)
    if decision == "rejected":
        return create_written(form.current, by, decision) if is_own else create_review(form.item, decision, by)
    values = {name: list(filter(None, map(str.strip, fields.get(name, "").splitlines()))) for name in FORM_FIELDS}
    values["query"] = [" ".join(values["query"])] if values["query"] else []
    is_new = set(values["span"]) - set(list_values(form.current)["span"])
    edited = apply_values(values, form.current, session.load_documents() if is_new else {})
    return create_written(edited, by) if is_own else create_review(form.item, decision, by, edited)


def _check_unchanged(state: ReviewState, review: Label, fields: FormFields, by: str) -> None:
    """Raise 409 where the item, or the reviewer's own review of it, is another than the page showed."""
    id = fields.get("id", "")
    if not id:
        if review.trace in state.items:
            raise HTTPException(409, "you wrote this question already: find it among those that people wrote.")
        return
    if id not in state.items:
        raise HTTPException(409, GONE)
    own = state.get_review(id, by)
    if fingerprint_review(own) != fields.get("previous", "") and own is not None:
        raise HTTPException(
            409,
            f"{own.annotator} reviewed this item meanwhile, at {get_time(own):%H:%M:%S} UTC: {own.value}, "
            f'"{(own.edited or state.items[id]).query[:200]}". Nothing of yours was stored. Send it again to replace '
            "that review, or open the item anew.",
        )
    if state.fingerprints[id] != fields.get("shown", ""):
        raise HTTPException(
            409,
            "the item was changed in the set meanwhile, and nothing was stored. Your text is below: send it "
            f'again to review the item as it is now ("{state.items[id].query[:200]}"), or open it anew.',
        )


def _load_form(state: ReviewState, id: str, by: str) -> ReviewForm:
    if not id:
        return ReviewForm(EMPTY_ITEM, None, "")
    if id not in state.items:
        raise UnknownName("item", id, list(state.items)[:1000])
    return ReviewForm(state.items[id], state.get_review(id, by), state.fingerprints[id])


def open_session(files: Mapping[str, Path]) -> ReviewSession | None:
    """Open the set to review, with its reviews and its corpus; None without one. Raises what is wrong with them."""
    if "testset" not in files:
        if files.keys() & {"reviews", "corpus"}:
            raise UsageError("--reviews and --corpus need a set: ragfault serve --testset FILE.")
        return None
    reviews = files.get("reviews", files["testset"].parent / "reviews.jsonl")
    session = ReviewSession(files["testset"], reviews, files.get("corpus"))
    session.load()
    session.load_documents()
    return session


def _find_session(host: PageHost) -> ReviewSession | None:
    session: ReviewSession | None = host.opened["testsets"]
    return session


def _get_session(request: Request) -> ReviewSession:
    session = _find_session(get_host(request))
    if session is None:
        raise UsageError("this server has no set to review. Start it with: ragfault serve --testset FILE.")
    return session


def _read_reviewer(request: Request) -> str:
    """Return the name of the reader: that of the token, otherwise the name that the address states."""
    token = request.app.state.access.read_token(request)
    return token.name if token is not None else request.query_params.get("by", "").strip()[:MAX_NAME]


PAGES = AppPages(
    (json_router, router),
    package="ragfault.apps.testsets.pages",
    navigation=("/testset", "Test set"),
    open=open_session,
)
