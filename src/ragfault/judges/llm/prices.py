"""What a call costs: by the price that was given, or by the catalogue of prices, which is read offline."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from ragfault.errors import UsageError
from ragfault.judges.llm.endpoint import host, local
from ragfault.judges.llm.settings import Settings

__all__ = ["NANO", "Cost", "context", "costs"]

NANO = 1_000_000_000
"""Amounts are kept in whole billionths of a US$, rounded up, so that sums are exact."""
FREE = frozenset({"ollama", "lmstudio", "vllm"})
"""Providers that are a machine of one's own."""
CATALOGUED = frozenset({"openai", "azure", "anthropic", "google"})
SMALL, LARGE = 1_000, 1_000_000

Cost = Callable[[int, int], int | None]
"""(tokens sent, tokens received) → billionths of a US$, or None where no price is known."""


def costs(settings: Settings) -> Cost:
    """What a call to the model of settings costs.

    A machine of one's own costs nothing unless a price is given. Raises UsageError where a budget in US$ is set and no
    price is known.

    >>> costs(Settings(model="m", price=(0.15, 0.6)))(1000, 100)
    210000
    """
    if settings.price is not None:
        return _linear(*settings.price)
    if local(settings) or settings.provider in FREE:
        return _linear(0, 0)
    found = _catalogued(settings)
    if found is None and settings.budget is not None:
        raise UsageError(
            f"the price of {settings.model} at {host(settings)} is not known, so a budget in US$ cannot be kept. "
            f"{_lacking()}Give --price IN,OUT (US$ for a million tokens sent and received), or a budget in tokens: "
            '--budget "200000 tokens".'
        )
    return found or _unknown


def _lacking() -> str:
    """What to install where the catalogue of prices is not."""
    found = find_spec("genai_prices") is not None
    return "" if found else "Prices come with: pip install 'ragfault[llm]'. Or: "


def context(settings: Settings) -> int | None:
    """The longest request and reply together, in tokens, as far as the catalogue knows."""
    if local(settings):
        return None
    found = getattr(_model(settings), "context_window", None)
    return int(found) if found else None


def _linear(sent: float, received: float) -> Cost:
    """The same price for every token; prices are in US$ for a million."""
    into, out = sent * NANO / 1_000_000, received * NANO / 1_000_000

    def cost(prompt: int, completion: int) -> int:
        return math.ceil(round(prompt * into + completion * out, 3))

    return cost


def _unknown(prompt: int, completion: int) -> None:  # noqa: ARG001 - the shape of a cost
    return None


def _catalogued(settings: Settings) -> Cost | None:
    """The price of the catalogue; where it rises with the length of a request, each call is looked up."""
    model = _model(settings)
    if model is None:
        return None

    def cost(prompt: int, completion: int) -> int:
        from genai_prices import Usage, calc_price

        usage = Usage(input_tokens=prompt, output_tokens=completion)
        found = calc_price(usage, settings.model, **_named(settings))
        return math.ceil(round(float(found.total_price) * NANO, 3))

    try:
        ends = cost(SMALL, 0), cost(LARGE, 0), cost(0, SMALL), cost(SMALL, SMALL), cost(LARGE, SMALL)
    except LookupError:
        return None
    even = (
        ends[1] * SMALL == ends[0] * LARGE and ends[3] == ends[0] + ends[2] and ends[4] == ends[1] + ends[2]
    )
    return _linear(ends[1] / NANO, ends[2] / NANO * LARGE / SMALL) if even else cost


def _named(settings: Settings) -> dict[str, Any]:
    """How the catalogue is told whose model is meant: by its provider, or by the address of another service."""
    if (settings.base_url is None and settings.provider in CATALOGUED) or settings.provider == "azure":
        return {"provider_id": settings.provider}
    return {"provider_api_url": settings.base_url or ""}


def _model(settings: Settings) -> Any:
    """The entry of the catalogue; None where there is none, or no catalogue is installed."""
    return _looked_up(settings.model, *next(iter(_named(settings).items())))


@lru_cache(64)
def _looked_up(model: str, field: str, value: str) -> Any:
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return None
    try:
        named: dict[str, Any] = {field: value}
        return calc_price(Usage(input_tokens=1, output_tokens=1), model, **named).model
    except (LookupError, ValueError):
        return None
