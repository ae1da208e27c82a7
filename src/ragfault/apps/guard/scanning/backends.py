"""Back-ends that classify a text: moderation endpoints, chat models that answer "safe" or "unsafe", ONNX models.

Each is a record of its address and settings with one method, `scan`. Keys are read from the environment alone. An
answer of another shape, or with an error, raises: the rail then fails as its policy says.
"""

from __future__ import annotations

import json
import os
import urllib.request
from http.client import HTTPException
from typing import Any

from msgspec import Struct

from ragfault.apps.guard.scanning.onnx_classifier import OnnxClassifier
from ragfault.model.errors import JudgeError
from ragfault.text.http import URL_OPENER
from ragfault.text.personal_data import Finding

MAX_REPLY = 1_000_000
"""Bytes of a reply that are read."""


class ModerationEndpoint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """OpenAI's moderation, and servers that speak its protocol: POST {url}/moderations."""

    url: str = "https://api.openai.com/v1"
    model: str = "omni-moderation-latest"
    key_env: str = "OPENAI_API_KEY"
    """Environment variable with the key."""
    timeout: float = 5.0
    threshold: float | None = None
    """Score from which a category counts; None: the server's own decision."""

    def scan(self, text: str) -> list[Finding]:
        """Return the categories of harm that the endpoint sees."""
        headers = {"Authorization": f"Bearer {os.environ.get(self.key_env, '')}"}
        reply = post_json(
            f"{self.url.rstrip('/')}/moderations", {"model": self.model, "input": text}, headers, self.timeout
        )
        result = _get(reply, "results", list)[0]
        flags, scores = _get(result, "categories", dict), _get(result, "category_scores", dict)
        if self.threshold is None and result.get("flagged") and not any(flags.values()):
            flags = {"flagged": True}
        return [
            Finding(0, len(text), name, float(scores.get(name, 1.0)))
            for name, flag in flags.items()
            if (flag if self.threshold is None else not float(scores[name]) < self.threshold)
        ]


class AzureContentSafety(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Azure AI Content Safety: POST {url}/contentsafety/text:analyze."""

    url: str
    key_env: str = "AZURE_CONTENT_SAFETY_KEY"
    version: str = "2024-09-01"
    severity: int = 2
    """Severity from 0 to 7 from which a category counts."""
    timeout: float = 5.0

    def scan(self, text: str) -> list[Finding]:
        """Return the categories whose severity is reached."""
        url = f"{self.url.rstrip('/')}/contentsafety/text:analyze?api-version={self.version}"
        headers = {"Ocp-Apim-Subscription-Key": os.environ.get(self.key_env, "")}
        reply = post_json(url, {"text": text}, headers, self.timeout)
        return [
            Finding(0, len(text), str(row["category"]), row["severity"] / 7)
            for row in _get(reply, "categoriesAnalysis", list)
            if row["severity"] >= self.severity
        ]


class ChatClassifier(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Classifier behind chat completions that replies "safe", or "unsafe" and its categories, as Llama Guard does."""

    url: str
    model: str
    key_env: str = "OPENAI_API_KEY"
    timeout: float = 5.0

    def scan(self, text: str) -> list[Finding]:
        """Return the categories that the model names; any reply but "safe" or "unsafe …" raises JudgeError."""
        headers = {"Authorization": f"Bearer {os.environ.get(self.key_env, '')}"}
        body = {"model": self.model, "temperature": 0, "messages": [{"role": "user", "content": text}]}
        reply = post_json(f"{self.url.rstrip('/')}/chat/completions", body, headers, self.timeout)
        content = _get(_get(_get(reply, "choices", list)[0], "message", dict), "content", str)
        words = content.replace(",", " ").split()
        if not words or words[0].lower() not in ("safe", "unsafe"):
            raise JudgeError(f"the classifier replied {content[:80]!r}, not safe or unsafe")
        if words[0].lower() == "safe":
            return []
        return [Finding(0, len(text), name) for name in words[1:] or ["unsafe"]]


class PresidioAnalyzer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Presidio's analyzer for personal data: POST {url}/analyze."""

    url: str
    language: str = "en"
    threshold: float = 0.5
    timeout: float = 5.0

    def scan(self, text: str) -> list[Finding]:
        """Return the spans of personal data."""
        body = {"text": text, "language": self.language, "score_threshold": self.threshold}
        rows = post_json(f"{self.url.rstrip('/')}/analyze", body, {}, self.timeout)
        if not isinstance(rows, list):
            raise JudgeError("the analyzer replied with no list of spans")
        return [Finding(row["start"], row["end"], str(row["entity_type"]), float(row["score"])) for row in rows]


BACKENDS: dict[str, Any] = {
    "moderation": ModerationEndpoint,
    "azure": AzureContentSafety,
    "chat": ChatClassifier,
    "presidio": PresidioAnalyzer,
    "onnx": OnnxClassifier,
}
"""Kind → record of the back-end."""


def post_json(url: str, body: Any, headers: dict[str, str], timeout: float) -> Any:
    """Post JSON and return the reply's; JudgeError for another status, a redirect, no connection, or no JSON."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json", **headers})
    if not url.startswith(("http://", "https://")):
        raise JudgeError(f"{url} is not an http address")
    try:
        with URL_OPENER.open(request, timeout=timeout) as response:
            if response.status >= 300:
                raise JudgeError(f"{url} replied with status {response.status}")
            return json.loads(response.read(MAX_REPLY))
    except (OSError, ValueError, HTTPException) as error:
        raise JudgeError(f"{url} gave no reply: {error}") from None


def _get(reply: Any, name: str, kind: type) -> Any:
    value = reply.get(name) if isinstance(reply, dict) else None
    if not isinstance(value, kind) or (kind is list and not value and name != "categoriesAnalysis"):
        raise JudgeError(f"the reply has no {name}")
    return value
