"""Settings of an LLM judge: model, endpoint, API key and limits, from a name, options and the environment."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, NoReturn
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import Meta, Struct

from ragfault.errors import UnknownName, UsageError

PositiveInt = Annotated[int, Meta(ge=1)]
PositiveFloat = Annotated[float, Meta(gt=0)]
NonNegativeFloat = Annotated[float, Meta(ge=0, le=1e9)]


class ModelProvider(Struct, frozen=True):
    """A service that answers in the manner of OpenAI's chat completions."""

    base_url: str
    """Where it is; empty: the user must say so."""
    key_variables: tuple[str, ...]
    """Environment variables that may hold its key, the first one found counts; empty: it wants none."""


PROVIDERS = {
    "openai": ModelProvider("https://api.openai.com/v1", ("OPENAI_API_KEY",)),
    "azure": ModelProvider("", ("AZURE_OPENAI_API_KEY",)),
    "anthropic": ModelProvider("https://api.anthropic.com/v1", ("ANTHROPIC_API_KEY",)),
    "google": ModelProvider(
        "https://generativelanguage.googleapis.com/v1beta/openai", ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    ),
    "ollama": ModelProvider("http://localhost:11434/v1", ()),
    "lmstudio": ModelProvider("http://localhost:1234/v1", ()),
    "vllm": ModelProvider("http://localhost:8000/v1", ()),
}
"""Name → where it is and where its key is. A model is named PROVIDER/MODEL; MODEL alone is OpenAI's, or at its URL."""


class LLMSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    temperature: NonNegativeFloat | None = 0.0
    """None: the service's own, for models that take no temperature."""
    max_tokens: PositiveInt = 4096
    """The longest reply, in tokens."""
    parameters: dict[str, Any] = {}
    """Other parameters of the request: `seed`, `reasoning_effort`, `top_p` …"""
    votes: PositiveInt = 1
    """How often each call is made; verdicts are the majority or the mean, with their spread."""
    context: PositiveInt | None = None
    """The longest request and reply together, in tokens; None: what the catalogue of prices says of the model."""
    images: Literal["none", "data", "url"] = "data"
    """Which images of chunks are sent: none, those that the trace holds itself, or also https addresses."""
    structured: Literal["auto", "schema", "object", "none"] = "auto"
    """What holds the reply to its schema: the service, or the prompt alone (object: any JSON); auto finds out."""
    reverse: bool = False
    """Whether answer relevance comes from questions that the answer answers: a third call."""

    concurrency: PositiveInt = 16
    """Calls under way at once, at the most."""
    timeout: PositiveFloat = 120.0
    """Seconds for one try."""
    tries: PositiveInt = 6
    """How often a call is tried that meets a limit, a fault of the server, or a broken line."""
    budget: NonNegativeFloat | None = None
    """US$ that all calls together may cost; None: no bound."""
    budget_tokens: Annotated[int, Meta(ge=0)] | None = None
    """Tokens, sent and received, that all calls together may have."""
    price: tuple[NonNegativeFloat, NonNegativeFloat] | None = None
    """US$ for a million tokens sent, and received; None: those of the catalogue."""
    cache: str | None = None
    """The file that keeps replies; None: the user's own (see `ragfault cache`); "none": none is kept."""


API_KEY_VARIABLE = "RAGFAULT_LLM_API_KEY"
"""The environment variable of a key that goes to whatever place is named; it counts before the provider's own."""
PROVIDER_HOSTS = {
    "openai": (".api.openai.com",),
    "azure": (".azure.com", ".azure.us", ".azure.cn"),
}
"""Provider → the ends of the hosts that are also its own and may have its key."""
LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})
USUAL_PATHS = ("", "/v1", "/openai/v1")
"""Paths behind which is one service."""
REDACTED = "[key]"
SECRET_PATTERN = re.compile(
    r"\b(?:sk|pk|rk)-[\w*-]{8,}|\bAIza[\w*-]{20,}|(?<=Bearer )[^\s\"',]+|(?<=://)[^\s/@]+@|[\w-]{0,40}\*{3}[\w*-]*"
)
"""What looks like a key, in whatever a service says: several repeat a part of it in their errors."""


class ApiKey:
    """A key that shows itself to nobody: not when printed, and not in a pickle.

    >>> ApiKey("sk-secret")
    Key([key])
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The key itself, for the one header that it belongs in."""
        return self._text

    def __repr__(self) -> str:
        return f"Key({REDACTED})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key is never written down; it is read from the environment again")


class ModelEndpoint(NamedTuple):
    """A place that answers, and what opens it."""

    base_url: str
    host: str
    key: ApiKey | None
    trusted: bool
    """Whether the place belongs to the provider, so that what the environment holds for it may go there."""


def resolve_endpoint(settings: LLMSettings) -> ModelEndpoint:
    """The place that settings name, with the key from the environment.

    Raises UnknownName for a provider that does not exist; UsageError where the URL is none, holds a key, or a key is
    needed and there is none, or none that can be sent.
    """
    place = _split_url(settings)
    ours = _is_trusted(settings, place)
    key = _read_key(settings, ours)
    if key is None and ours and PROVIDERS[settings.provider].key_variables:
        names = " or ".join((*PROVIDERS[settings.provider].key_variables, API_KEY_VARIABLE))
        raise UsageError(f"no key for {place.netloc}. Set the environment variable {names}.")
    return ModelEndpoint(_base_url(settings), place.netloc.lower(), key, ours)


def endpoint_host(settings: LLMSettings) -> str:
    """The host that is asked, with its port where that is not the usual one.

    >>> endpoint_host(LLMSettings(model="m", base_url="http://localhost:8000/v1"))
    'localhost:8000'
    """
    return _split_url(settings).netloc.lower()


def endpoint_location(settings: LLMSettings) -> str:
    """The place that is asked, as it is written down: the host, and the hash of an unusual path.

    One gateway may have several services behind it, each under a path of its own; the path itself may hold a secret.

    >>> endpoint_location(LLMSettings(model="m", base_url="http://localhost:8000/v1"))
    'localhost:8000'
    >>> endpoint_location(LLMSettings(model="m", base_url="https://gateway.example/team-a/v1"))
    'gateway.example/~283ef8'
    """
    path = urlsplit(_base_url(settings)).path
    usual = (*USUAL_PATHS, urlsplit(PROVIDERS[settings.provider].base_url).path)
    return endpoint_host(settings) + (
        "" if path in usual else f"/~{hashlib.sha256(path.encode()).hexdigest()[:6]}"
    )


def is_local(settings: LLMSettings) -> bool:
    """Whether the model runs on this machine."""
    return _split_url(settings).hostname in LOCAL_HOSTS


def redact_secrets(text: str, key: ApiKey | None = None) -> str:
    """A text that a service wrote, without any key in it, and short.

    >>> redact_secrets("Incorrect API key provided: sk-abc***********wxyz.")
    'Incorrect API key provided: [key].'
    """
    if key is not None:
        text = text.replace(key.reveal(), REDACTED)
    text = " ".join(SECRET_PATTERN.sub(REDACTED, text).split())
    return text if len(text) <= 300 else f"{text[:300]}…"


def _base_url(settings: LLMSettings) -> str:
    if settings.provider not in PROVIDERS:
        raise UnknownName("provider", settings.provider, PROVIDERS)
    found = settings.base_url or PROVIDERS[settings.provider].base_url
    if not found:
        raise UsageError(
            f"{settings.provider} is at another place for everybody. Say it with --base-url, base_url of [llm] in "
            "ragfault.toml, or RAGFAULT_LLM_BASE_URL (https://NAME.openai.azure.com/openai/v1)."
        )
    return found.rstrip("/").removesuffix("/chat/completions")


def _split_url(settings: LLMSettings) -> SplitResult:
    """The URL in its parts, none of which holds a secret."""
    try:
        place = urlsplit(_base_url(settings))
        ok = place.scheme in ("http", "https") and bool(place.hostname) and (place.port or 1) > 0
    except ValueError:
        ok = False
    if not ok:
        raise UsageError("the base URL is no http or https address. Write it like https://HOST/v1.")
    if place.username or place.password or place.query or place.fragment:
        raise UsageError(
            f"the base URL of {place.hostname} holds a user, a password or a query, which would be written down "
            f"with the run. Leave them out, and put the key into the environment variable {API_KEY_VARIABLE}."
        )
    return place


def _is_trusted(settings: LLMSettings, url: SplitResult) -> bool:
    """Whether the place is the provider's own, over a line that nobody reads."""
    own = urlsplit(PROVIDERS[settings.provider].base_url)
    name = url.hostname or ""
    if own.hostname and (url.scheme, name, url.port) == (own.scheme, own.hostname, own.port):
        return True
    return url.scheme == "https" and name.endswith(PROVIDER_HOSTS.get(settings.provider, ()))


def _read_key(settings: LLMSettings, trusted: bool) -> ApiKey | None:
    """The key from the environment; the provider's own goes to no other place than the provider's."""
    for name in (API_KEY_VARIABLE, *(PROVIDERS[settings.provider].key_variables if trusted else ())):
        if found := os.environ.get(name, "").strip():
            if not (found.isascii() and found.isprintable()):
                raise UsageError(f"the key in {name} holds a sign that no request can carry. Set it anew.")
            return ApiKey(found)
    return None


MODEL_VARIABLE, BASE_URL_VARIABLE = "RAGFAULT_LLM_MODEL", "RAGFAULT_LLM_BASE_URL"
"""Environment variables that name the model and the place, where nothing else does."""
RESERVED_PARAMETERS = frozenset(
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
SECRET_PARAMETER = re.compile(
    r"(?:^|[_-])(?:api_?key|key|token|secret|authorization|password|headers)$", re.IGNORECASE
)
"""A parameter with such a name would write a key down with the run."""


def build_settings(name: str = "", **options: Any) -> LLMSettings:
    """The settings of "MODEL" or "PROVIDER/MODEL" with these options; what neither names is in the environment.

    Raises UsageError where no model is named or a value is wrong, UnknownName for an option that does not exist.

    >>> build_settings("anthropic/claude-x", votes=3).provider
    'anthropic'
    >>> build_settings("org/model", base_url="http://localhost:8000/v1").model
    'org/model'
    """
    given = dict(options)
    name = name or given.pop("model", "") or os.environ.get(MODEL_VARIABLE, "")
    given.pop("model", None)
    if not name:
        raise UsageError(
            f"no model is named. Write --judge llm:MODEL or llm:PROVIDER/MODEL (providers: {', '.join(PROVIDERS)}), "
            f"model of [llm] in ragfault.toml, or {MODEL_VARIABLE} in the environment."
        )
    provider, slash, model = name.partition("/")
    if slash and provider in PROVIDERS:
        given["provider"], name = provider, model
    if not given.get("base_url") and (url := os.environ.get(BASE_URL_VARIABLE)):
        given["base_url"] = url
    _check_options(given)
    _check_parameters(given.get("parameters") or {})
    try:
        return msgspec.convert({"model": name, **given}, LLMSettings)
    except msgspec.ValidationError as error:
        raise UsageError(f"the settings of the model are wrong: {redact_secrets(str(error))}.") from None


def _check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that do not exist, and keys."""
    for name in options:
        if "key" in name.lower():
            raise UsageError(
                f"keys are read from the environment alone, so that no file holds them. Leave out {name}, "
                f"and set {API_KEY_VARIABLE} or the provider's own variable."
            )
        if name not in LLMSettings.__struct_fields__:
            raise UnknownName("option of a judge that asks a model", name, LLMSettings.__struct_fields__)


def _check_parameters(parameters: Mapping[str, Any]) -> None:
    for name in parameters:
        if name in RESERVED_PARAMETERS:
            raise UsageError(f"the parameter {name} is set by the judge itself. Leave it out.")
        if SECRET_PARAMETER.search(name) and name != "prompt_cache_key":
            raise UsageError(
                f"the parameter {name} may hold a secret, and parameters are written down with the run. "
                f"Keys go into the environment variable {API_KEY_VARIABLE}."
            )
