"""Notification of an alert: its record, its webhook formats and its signature."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

ALERTMANAGER_HOLD = 7 * 86400.0
"""Seconds for which Alertmanager holds an alert to fire of which it hears nothing further: the end is told to it."""


class AlertNotification(Struct, frozen=True, kw_only=True):
    """What is sent of an alert."""

    kind: str
    """"firing", "reminder" or "resolved"."""
    rule: str
    severity: str
    metric: str
    route: str | None
    value: float | None
    since: float
    """When the alert began to fire, or resolved, in seconds since 1970."""
    time: float
    began: float | None = None
    """When the drop began, by the change point of the values around it."""
    layer: str
    """The layer that the decision tree names; where it names none, that of the metric."""
    blamed: bool
    """Whether the decision tree named it."""
    title: str | None = None
    """What broke, in a few words."""
    suspects: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()
    """Those that show it."""

    @property
    def key(self) -> str:
        """What tells the alert from others."""
        return f"{self.rule}/{self.metric}/{self.route or ''}"

    @property
    def sentence(self) -> str:
        """The notice in one sentence."""
        place = f" on {self.route}" if self.route else ""
        value = "" if self.value is None else f", {self.value:.3g}"
        blame = f": {self.layer}" if self.blamed else f" ({self.layer})"
        what = f" – {self.title}" if self.title else ""
        return f"{self.kind}: {self.rule} {self.metric}{value}{place}{blame}{what}"


def _format_plain(notice: AlertNotification) -> Any:
    return {"key": notice.key, "says": notice.sentence, **msgspec.to_builtins(notice)}


def _format_slack(notice: AlertNotification) -> Any:
    safe = notice.sentence.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    lines = [*(f"• {each}" for each in notice.remedies[:3]), *(f"trace {each}" for each in notice.traces[:3])]
    more = "\n".join(lines).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    blocks = [
        {"type": "section", "text": {"type": "mrkdwn", "text": each[:2900]}} for each in (safe, more) if each
    ]
    return {"text": safe, "blocks": blocks}


def _format_alertmanager(notice: AlertNotification) -> Any:
    """By the labels Alertmanager tells alerts apart: only what is the same from firing to resolved is among them."""
    labels = {
        "alertname": notice.rule,
        "severity": notice.severity,
        "metric": notice.metric,
        "route": notice.route or "",
    }
    said = {"summary": notice.sentence, "layer": notice.layer, "traces": ", ".join(notice.traces)}
    if notice.kind == "resolved":
        times = {"endsAt": _format_iso(notice.since)}
    else:
        times = {
            "startsAt": _format_iso(notice.since),
            "endsAt": _format_iso(notice.time + ALERTMANAGER_HOLD),
        }
    return [{"labels": labels, "annotations": said, **times}]


def _format_iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


WEBHOOK_FORMATS: dict[str, Callable[[AlertNotification], Any]] = {
    "ragfault": _format_plain,
    "slack": _format_slack,
    "alertmanager": _format_alertmanager,
}
"""What a notice looks like to whom: `alertmanager` is the body of its `/api/v2/alerts`."""


def sign_body(secret: str, moment: int, body: bytes) -> str:
    """The signature of a body that is sent at a moment: HMAC-SHA256 of `MOMENT.BODY`, in hex.

    >>> sign_body("s", 0, b"{}")[:16]
    'e79b1f685c78e46b'
    """
    return hmac.new(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256).hexdigest()
