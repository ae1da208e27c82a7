"""Routes of the page of adaptation, and the form that takes its policy back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from ragfault.apps.tune.adaptation.policy import load_policy, revert_policy
from ragfault.apps.tune.pages.views import AdaptationView, load_adaptation
from ragfault.http.forms import AdminForm, FormFields
from ragfault.http.hosting import INVALID, Host, Times, get_host
from ragfault.http.json_routes import make_json_router
from ragfault.http.page_routes import AppPages, PageRoute
from ragfault.http.security import require_role
from ragfault.model.errors import UsageError
from ragfault.report.json_documents import encode_document
from ragfault.report.output import write_report_file

json_router = make_json_router()
router = APIRouter(route_class=PageRoute, include_in_schema=False)


@json_router.get("/adaptation.json", **INVALID)
def get_adaptation(host: Host, times: Times) -> AdaptationView:
    """Return the policy of `ragfault tune adapt` that the server shows, and what the decisions of a window brought."""
    return load_adaptation(host, times)


@router.get("/adaptation", dependencies=[Depends(require_role("read"))])
def show_adaptation(request: Request) -> Response:
    """Show the policy that adapts retrieval, and what the decisions of live traffic brought."""
    host = get_host(request)
    times = host.parse_range(request.query_params)
    return host.render_page(request, "adaptation", view=load_adaptation(host, times), times=times)


@router.post("/adaptation")
async def post_adaptation(request: Request, fields: FormFields = AdminForm) -> Response:
    """Take back the policy that the page showed: write the one before it."""
    await run_in_threadpool(_revert_policy, request, fields.get("version", "")[:20])
    return RedirectResponse("/adaptation", 303)


def _revert_policy(request: Request, version: str) -> None:
    path: Path | None = get_host(request).opened["tune"]
    if path is None:
        raise UsageError("this server has no policy. Start it with --policy FILE.")
    policy = load_policy(path)
    if str(policy.version) != version:
        raise HTTPException(409, f"the file holds version {policy.version} by now, so that it was left as it is.")
    write_report_file(path, encode_document(revert_policy(policy)), force=True)
    request.app.state.audit.record(request, "policy_reverted", version)


def find_policy(files: Mapping[str, Path]) -> Path | None:
    """Return the file of the policy; None without one."""
    return files.get("policy")


PAGES = AppPages(
    (json_router, router),
    package="ragfault.apps.tune.pages",
    navigation=("/adaptation", "Adaptation"),
    open=find_policy,
)
