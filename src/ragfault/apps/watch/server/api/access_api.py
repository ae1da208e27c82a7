"""Routes of tokens and of the audit log, for admins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from msgspec import Struct
from pydantic.json_schema import SkipJsonSchema
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ragfault.apps.watch.server.json_routes import Server
from ragfault.apps.watch.server.security import AccessControl
from ragfault.apps.watch.server.storage.backup import prepare_backup, require_folder
from ragfault.apps.watch.server.storage.records import AccessRole, AuditRecord
from ragfault.http.bodies import read_body
from ragfault.http.json_routes import JSON, JsonRoute
from ragfault.http.problems import SCHEMA_PREFIX, problem_responses
from ragfault.http.request_limits import RequestLimits
from ragfault.http.security import require_role
from ragfault.model.errors import UsageError

# limits on the body of a request for a token
BODY_LIMITS = RequestLimits(body=10_000, decompressed=10_000)

MAX_AUDIT_LINES = 1000

router = APIRouter(
    route_class=JsonRoute,
    dependencies=[Depends(require_role("admin"))],
    responses=problem_responses(401, 403, 429, 503),
)


class TokenRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token that is asked for."""

    name: str
    role: AccessRole = "read"
    days: float | None = None
    """Days for which it is valid; None: until it is revoked."""


class TokenEntry(Struct, frozen=True, kw_only=True):
    """A token as it is listed, without its hash."""

    name: str
    role: AccessRole
    created: float
    expires: float | None = None
    """Time from which it is refused, in seconds since 1970, UTC; None: never."""
    used: float | None = None
    """Time of its last use, about a minute late; None: never."""
    by: str = ""
    """Who made it; empty: the command line."""
    sessions: int = 0
    """Browsers that are signed in with it."""


class IssuedAccessToken(Struct, frozen=True, kw_only=True):
    """A token that was made, the only time that it is shown."""

    name: str
    role: AccessRole
    token: str


class RevokedToken(Struct, frozen=True, kw_only=True):
    """A token that was revoked."""

    name: str


def list_tokens(access: AccessControl) -> tuple[TokenEntry, ...]:
    """List all tokens, the configured one too."""
    return tuple(
        TokenEntry(
            name=token.name,
            role=token.role,
            created=token.created,
            expires=token.expires,
            used=access.last_use(token),
            by=token.by,
            sessions=access.sessions.count_token(token.hash),
        )
        for token in access.tokens()
    )


def issue_token(request: Request, asked: TokenRequest) -> IssuedAccessToken:
    """Make a token for the client of a request, and record it."""
    state = request.app.state
    token = state.access.issue(asked.name, asked.role, asked.days, request.state.who)
    lasting = "for ever" if asked.days is None else f"for {asked.days:g} days"
    state.audit.record(request, "token_issued", asked.name, f"{asked.role}, {lasting}")
    return IssuedAccessToken(name=asked.name, role=asked.role, token=token)


def revoke_token(request: Request, name: str) -> RevokedToken:
    """Revoke a token for the client of a request, and record it."""
    request.app.state.access.revoke(name)
    request.app.state.audit.record(request, "token_revoked", name)
    return RevokedToken(name=name)


async def read_token_request(request: Request) -> TokenRequest:
    """Read the body of a request for a token. Raises UsageError for an invalid one."""
    try:
        return msgspec.json.decode(await read_body(request, BODY_LIMITS), type=TokenRequest)
    except msgspec.MsgspecError as error:
        raise UsageError(f'a token is asked for as {{"name": "ci", "role": "ingest", "days": 90}}: {error}.') from None


TOKEN_BODY: Any = {
    "requestBody": {"required": True, "content": {JSON: {"schema": {"$ref": f"{SCHEMA_PREFIX}TokenRequest"}}}}
}


@router.post("/v1/ragfault/tokens", responses=problem_responses(400, 408, 413, 415, 422), openapi_extra=TOKEN_BODY)
def post_token(request: Request, asked: Annotated[TokenRequest, Depends(read_token_request)]) -> IssuedAccessToken:
    """Make a token; its name must be free."""
    return issue_token(request, asked)


@router.delete("/v1/ragfault/tokens/{name:path}", responses=problem_responses(404, 422))
def delete_token(request: Request, name: str) -> RevokedToken:
    """Revoke a token, and sign out who signed in with it."""
    return revoke_token(request, name)


@router.get(
    "/backup.tar",
    responses={**problem_responses(422), 200: {"content": {"application/x-tar": {}}}},
    response_class=Response,
)
async def get_backup(request: Request, server: Server) -> Response:
    """Copy the store as of one moment, while it is written to, with its runs and logs, as a tar file."""
    settings = server.settings
    folder = require_folder(settings.store)
    prepared = prepare_backup(server.store, folder)
    parts = await run_in_threadpool(prepared.__enter__)
    await run_in_threadpool(request.app.state.audit.record, request, "backup_downloaded")
    return BackupResponse(prepared, parts)


class BackupResponse(StreamingResponse):
    """Response that sends a backup, and deletes its copy in the end, also where the client goes away."""

    media_type = "application/x-tar"

    def __init__(self, prepared: AbstractContextManager[Iterator[bytes]], parts: Iterator[bytes]) -> None:
        super().__init__(parts)
        self._prepared = prepared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._prepared.__exit__(None, None, None)


@router.get("/tokens.json")
def get_tokens(request: Request) -> tuple[TokenEntry, ...]:
    """List the tokens, with their last use."""
    return list_tokens(request.app.state.access)


@router.get("/audit.json", responses=problem_responses(422))
def get_audit(
    server: Server,
    until: Annotated[float | SkipJsonSchema[None], Query(allow_inf_nan=False)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_AUDIT_LINES)] = 200,
) -> tuple[AuditRecord, ...]:
    """List who did what, the latest first; `until` the time of the last line lists those before it."""
    return server.store.read_audit(until, limit)
