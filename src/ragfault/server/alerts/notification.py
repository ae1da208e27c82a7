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
"""Seconds for which Alertmanager keeps an alert firing without an update; its end is sent explicitly."""


class AlertNotification(Struct, frozen=True, kw_only=True):
    """Notification of an alert that fires, still fires, or is resolved."""

    kind: str
    """"firing", "reminder" or "resolved"."""
    rule: str
    severity: str
    metric: str
    route: str | None
    value: float | None
    since: float
    """Time at which the alert began to fire or was resolved, in seconds since 1970."""
    time: float
    began: float | None = None
    """Onset of the drop by the change point of the values."""
    layer: str
    """The faulty layer by the decision tree, otherwise that of the metric."""
    blamed: bool
    """The decision tree named the layer."""
    title: str | None = None
    """The fault in a few words."""
    suspects: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()
    """Example traces."""

    @property
    def key(self) -> str:
        """The identity of the alert."""
        return f"{self.rule}/{self.metric}/{self.route or ''}"

    @property
    def sentence(self) -> str:
        """The notification in one sentence."""
        place = f" on {self.route}" if self.route else ""
        value = "" if self.value is None else f", {self.value:.3g}"
        blame = f": {self.layer}" if self.blamed else f" ({self.layer})"
        what = f" – {self.title}" if self.title else ""
        return f"{self.kind}: {self.rule} {self.metric}{value}{place}{blame}{what}"


def _format_plain(notice: AlertNotification) -> Any:
    return {"key": notice.key, "says": notice.sentence, **msgspec.to_builtins(notice)}


def _format_slack(notice: AlertNotification) -> Any:
    safe = notice.sentence.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    lines = [*(f"• {text}" for text in notice.remedies[:3]), *(f"trace {text}" for text in notice.traces[:3])]
    more = "\n".join(lines).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    blocks = [
        {"type": "section", "text": {"type": "mrkdwn", "text": text[:2900]}} for text in (safe, more) if text
    ]
    return {"text": safe, "blocks": blocks}


def _format_alertmanager(notice: AlertNotification) -> Any:
    """Format for Alertmanager, which identifies alerts by labels: only what stays the same until resolved is a label."""
    labels = {
        "alertname": notice.rule,
        "severity": notice.severity,
        "metric": notice.metric,
        "route": notice.route or "",
    }
    annotations = {"summary": notice.sentence, "layer": notice.layer, "traces": ", ".join(notice.traces)}
    if notice.kind == "resolved":
        times = {"endsAt": _format_iso(notice.since)}
    else:
        times = {
            "startsAt": _format_iso(notice.since),
            "endsAt": _format_iso(notice.time + ALERTMANAGER_HOLD),
        }
    return [{"labels": labels, "annotations": annotations, **times}]


def _format_iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


WEBHOOK_FORMATS: dict[str, Callable[[AlertNotification], Any]] = {
    "ragfault": _format_plain,
    "slack": _format_slack,
    "alertmanager": _format_alertmanager,
}
"""Formats of webhooks; `alertmanager` is the body of its `/api/v2/alerts`."""


def sign_body(secret: str, moment: int, body: bytes) -> str:
    """Sign a body sent at a time: HMAC-SHA256 of `TIME.BODY`, in hex.

    >>> sign_body("s", 0, b"{}")[:16]
    'e79b1f685c78e46b'
    """
    return hmac.new(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256).hexdigest()
