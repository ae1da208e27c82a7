"""Routes of the page of the guard."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from ragfault.apps.guard.pages.views import GuardView, load_guard
from ragfault.http.hosting import INVALID, Host, TextParam, Times, get_host, parse_route
from ragfault.http.json_routes import make_json_router
from ragfault.http.page_routes import AppPages, PageRoute
from ragfault.http.security import require_role

json_router = make_json_router()
router = APIRouter(route_class=PageRoute, dependencies=[Depends(require_role("read"))], include_in_schema=False)


@json_router.get("/guard.json", **INVALID)
def get_guard(host: Host, times: Times, route: TextParam = None) -> GuardView:
    """Return how often guards block, fix and abstain, by rail and route, up to now or between two times."""
    return load_guard(host, parse_route(route), times)


@router.get("/guard")
def show_guard(request: Request) -> Response:
    """Show how often guards block, fix and abstain, by rail and route."""
    host, query = get_host(request), request.query_params
    times, route = host.parse_range(query), query.get("route") or None
    return host.render_page(
        request,
        "guard",
        refresh_seconds=None if times.is_fixed else 30,
        view=load_guard(host, parse_route(route), times),
        times=times,
        route=route,
        routes=host.list_routes(),
    )


PAGES = AppPages((json_router, router), package="ragfault.apps.guard.pages", navigation=("/guard", "Guard"))
