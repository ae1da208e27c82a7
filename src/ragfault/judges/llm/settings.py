"""Which model is asked, how, and within what bounds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

__all__ = ["PROVIDERS", "Provider", "Settings"]

Count = Annotated[int, Meta(ge=1)]
Above = Annotated[float, Meta(gt=0)]
Amount = Annotated[float, Meta(ge=0, le=1e9)]


class Provider(Struct, frozen=True):
    """A service that answers in the manner of OpenAI's chat completions."""

    base_url: str
    """Where it is; empty: the user must say so."""
    keys: tuple[str, ...]
    """Environment variables that may hold its key, the first one found counts; empty: it wants none."""


PROVIDERS = {
    "openai": Provider("https://api.openai.com/v1", ("OPENAI_API_KEY",)),
    "azure": Provider("", ("AZURE_OPENAI_API_KEY",)),
    "anthropic": Provider("https://api.anthropic.com/v1", ("ANTHROPIC_API_KEY",)),
    "google": Provider(
        "https://generativelanguage.googleapis.com/v1beta/openai", ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    ),
    "ollama": Provider("http://localhost:11434/v1", ()),
    "lmstudio": Provider("http://localhost:1234/v1", ()),
    "vllm": Provider("http://localhost:8000/v1", ()),
}
"""Name → where it is and where its key is. A model is named PROVIDER/MODEL; MODEL alone is OpenAI's, or at its URL."""


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which model is asked, how, and within what bounds.

    The first group says what is asked and is in the fingerprint and in the keys of the cache; the second how it is
    carried, and changes no verdict.
    """

    model: str
    """The model as its service names it, without the provider."""
    provider: str = "openai"
    """One of `PROVIDERS`."""
    base_url: str | None = None
    """Another place than the provider's own."""
    temperature: Amount | None = 0.0
    """None: the service's own, for models that take no temperature."""
    max_tokens: Count = 4096
    """The longest reply, in tokens."""
    parameters: dict[str, Any] = {}
    """Other parameters of the request: `seed`, `reasoning_effort`, `top_p` …"""
    votes: Count = 1
    """How often each call is made; verdicts are the majority or the mean, with their spread."""
    context: Count | None = None
    """The longest request and reply together, in tokens; None: what the catalogue of prices says of the model."""
    images: Literal["none", "data", "url"] = "data"
    """Which images of chunks are sent: none, those that the trace holds itself, or also https addresses."""
    structured: Literal["auto", "schema", "object", "none"] = "auto"
    """What holds the reply to its schema: the service, or the prompt alone (object: any JSON); auto finds out."""
    reverse: bool = False
    """Whether answer relevance comes from questions that the answer answers: a third call."""

    concurrency: Count = 16
    """Calls under way at once, at the most."""
    timeout: Above = 120.0
    """Seconds for one try."""
    tries: Count = 6
    """How often a call is tried that meets a limit, a fault of the server, or a broken line."""
    budget: Amount | None = None
    """US$ that all calls together may cost; None: no bound."""
    budget_tokens: Annotated[int, Meta(ge=0)] | None = None
    """Tokens, sent and received, that all calls together may have."""
    price: tuple[Amount, Amount] | None = None
    """US$ for a million tokens sent, and received; None: those of the catalogue."""
    cache: str | None = None
    """The file that keeps replies; None: the user's own (see `ragfault cache`); "none": none is kept."""
