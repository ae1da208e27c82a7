"""Forms of pages: fields of this server's own forms, sent by an admin."""

from __future__ import annotations

from urllib.parse import parse_qsl

from fastapi import Depends, Request
from starlette.exceptions import HTTPException

from ragfault.http.bodies import read_body
from ragfault.http.request_limits import RequestLimits
from ragfault.model.errors import UsageError

FORM_LIMITS = RequestLimits(body=64_000, decompressed=64_000)
"""Limits on form bodies."""

FormFields = dict[str, str]


async def read_admin_form(request: Request) -> FormFields:
    """Return the fields of a form of this server, sent by an admin. Raises 401, 403, 413."""
    fields = await read_form(request)
    request.app.state.access.check_role(request, "admin")
    return fields


async def read_form(request: Request) -> FormFields:
    """Return the fields of a form of this server. Raises 403, 413."""
    body = await read_body(request, FORM_LIMITS)
    try:
        fields = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=100))
    except ValueError as error:
        raise HTTPException(400, f"the form cannot be read: {error}.") from None
    request.app.state.access.check_csrf_token(request, fields.get("csrf_token", ""))
    return fields


AdminForm = Depends(read_admin_form)


def read_author(request: Request, fields: FormFields) -> str:
    """Return the author of a form: the name of the token, otherwise the name that the form states."""
    token = request.app.state.access.read_token(request)
    return token.name if token is not None else fields.get("by", "").strip()[:80] or "dashboard"


def parse_count(text: str, most: int, noun: str) -> int:
    """Parse a number from 1 to `most`. Raises UsageError for anything else; `noun` names what is counted."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= most:
        raise UsageError(f'the number of {noun} is from 1 to {most:,}, not "{text[:40]}".')
    return int(text)
