"""Settings from the name of a judge, what stands beside it, and the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ragfault.errors import UnknownName, UsageError
from ragfault.judges.llm.endpoint import KEY, scrubbed
from ragfault.judges.llm.settings import PROVIDERS, Settings

__all__ = ["BASE_URL", "MODEL", "settings_of"]

MODEL, BASE_URL = "RAGFAULT_LLM_MODEL", "RAGFAULT_LLM_BASE_URL"
"""Environment variables that name the model and the place, where nothing else does."""
CHOSEN = frozenset(
    {
        "model",
        "messages",
        "stream",
        "n",
        "response_format",
        "temperature",
        "max_tokens",
        "max_completion_tokens",
    }
)
"""Parameters of a request that have settings of their own, or none."""
SECRET = re.compile(r"(?:^|[_-])(?:api_?key|key|token|secret|authorization|password|headers)$", re.IGNORECASE)
"""A parameter with such a name would write a key down with the run."""


def settings_of(named: str = "", **options: Any) -> Settings:
    """The settings of "MODEL" or "PROVIDER/MODEL" with these options; what neither names is in the environment.

    Raises UsageError where no model is named or a value is wrong, UnknownName for an option that does not exist.

    >>> settings_of("anthropic/claude-x", votes=3).provider
    'anthropic'
    >>> settings_of("org/model", base_url="http://localhost:8000/v1").model
    'org/model'
    """
    given = dict(options)
    named = named or given.pop("model", "") or os.environ.get(MODEL, "")
    given.pop("model", None)
    if not named:
        raise UsageError(
            f"no model is named. Write --judge llm:MODEL or llm:PROVIDER/MODEL (providers: {', '.join(PROVIDERS)}), "
            f"model of [llm] in ragfault.toml, or {MODEL} in the environment."
        )
    provider, slash, model = named.partition("/")
    if slash and provider in PROVIDERS:
        given["provider"], named = provider, model
    if not given.get("base_url") and (url := os.environ.get(BASE_URL)):
        given["base_url"] = url
    _known(given)
    _parameters(given.get("parameters") or {})
    try:
        return msgspec.convert({"model": named, **given}, Settings)
    except msgspec.ValidationError as error:
        raise UsageError(f"the settings of the model are wrong: {scrubbed(str(error))}.") from None


def _known(given: Mapping[str, Any]) -> None:
    """Refuse options that do not exist, and keys."""
    for name in given:
        if "key" in name.lower():
            raise UsageError(
                f"keys are read from the environment alone, so that no file holds them. Leave out {name}, "
                f"and set {KEY} or the provider's own variable."
            )
        if name not in Settings.__struct_fields__:
            raise UnknownName("option of a judge that asks a model", name, Settings.__struct_fields__)


def _parameters(parameters: Mapping[str, Any]) -> None:
    for name in parameters:
        if name in CHOSEN:
            raise UsageError(f"the parameter {name} is set by the judge itself. Leave it out.")
        if SECRET.search(name) and name != "prompt_cache_key":
            raise UsageError(
                f"the parameter {name} may hold a secret, and parameters are written down with the run. "
                f"Keys go into the environment variable {KEY}."
            )
