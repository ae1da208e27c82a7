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

from ragfault.model.errors import UnknownName, UsageError
from ragfault.model.protocols import VerdictKind
from ragfault.model.rubrics import Rubric, check_rubrics

PositiveInt = Annotated[int, Meta(ge=1)]
PositiveFloat = Annotated[float, Meta(gt=0)]
NonNegativeFloat = Annotated[float, Meta(ge=0, le=1e9)]


class ModelProvider(Struct, frozen=True):
    """Service with an OpenAI-compatible chat completions API."""

    base_url: str
    """Empty: the user must name it."""
    key_variables: tuple[str, ...]
    """Environment variables that may hold the API key, the first one set counts; empty: no key is needed."""


PROVIDERS = {
    "openai": ModelProvider("https://api.openai.com/v1", ("OPENAI_API_KEY",)),
    "azure": ModelProvider("", ("AZURE_OPENAI_API_KEY",)),
    "anthropic": ModelProvider("https://api.anthropic.com/v1", ("ANTHROPIC_API_KEY",)),
    "google": ModelProvider(
        "https://generativelanguage.googleapis.com/v1beta/openai", ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    ),
    "typesafe": ModelProvider("https://api.typesafe.ai/v1", ("TYPESAFE_API_KEY",)),
    "ollama": ModelProvider("http://localhost:11434/v1", ()),
    "lmstudio": ModelProvider("http://localhost:1234/v1", ()),
    "vllm": ModelProvider("http://localhost:8000/v1", ()),
}
"""Provider → URL and key variables. MODEL alone, without PROVIDER/, is OpenAI's or the one at the given URL."""


RETRIEVAL_VERDICTS: frozenset[VerdictKind] = frozenset({"chunk", "missing", "recall"})
"""Kinds of verdict that the call about the retrieval gives; all others are given by the call about the answer."""


class LLMSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a model: what is asked, and how calls are sent.

    The first group of fields is part of the fingerprint and of the cache keys; the second changes no verdict.
    """

    model: str
    """Name of the model at its service, without the provider."""
    provider: str = "openai"
    """One of `PROVIDERS`."""
    base_url: str | None = None
    """None: the provider's own URL."""
    temperature: NonNegativeFloat | None = 0.0
    """None: the default of the service, for models that accept no temperature."""
    max_tokens: PositiveInt = 4096
    """Longest reply, in tokens."""
    parameters: dict[str, Any] = {}
    """Other parameters of the request: `seed`, `reasoning_effort`, `top_p` …"""
    votes: PositiveInt = 1
    """Number of times each call is made; verdicts are the majority or the mean, with their spread."""
    context: PositiveInt | None = None
    """Longest request and reply together, in tokens; None: looked up in the price catalog."""
    images: Literal["none", "data", "url"] = "data"
    """Images of chunks to send: none, those embedded in the trace, or also https addresses."""
    structured: Literal["auto", "schema", "object", "none"] = "auto"
    """Enforcement of the reply schema: by the service (schema, or object: any JSON) or the prompt alone; auto tries."""
    answer_format: Literal["text", "decision", "logprobs"] = "text"
    """How the model is asked: for text, by typed questions, or for the log-probabilities of yes and no."""
    reverse: bool = False
    """Derive answer relevance from questions that the answer answers, with a third call."""
    rubrics: tuple[Rubric, ...] = ()
    """Criteria of the user, judged in the request on the answer."""
    verdicts: tuple[VerdictKind, ...] | None = None
    """Kinds of verdict to ask for: a call that gives none of them is left out, and so are its verdicts. None: all."""

    batch_api: bool = False
    """Ask by the batch endpoint of the provider: at half the price, within a day."""
    concurrency: PositiveInt = 16
    """Most calls in flight at once."""
    timeout: PositiveFloat = 120.0
    """Seconds for one attempt."""
    tries: PositiveInt = 6
    """Attempts of a call that meets a rate limit, a server error or a broken connection."""
    budget: NonNegativeFloat | None = None
    """US$ for all calls together; None: no limit."""
    budget_tokens: Annotated[int, Meta(ge=0)] | None = None
    """Tokens, sent and received, for all calls together; None: no limit."""
    price: tuple[NonNegativeFloat, NonNegativeFloat] | None = None
    """US$ for a million tokens sent, and received; None: from the price catalog."""
    cache: str | None = None
    """Path of the reply cache; None: the user's own (see `ragfault judge cache`); "none": no cache."""

    @property
    def asks_about_retrieval(self) -> bool:
        return self.verdicts is None or not RETRIEVAL_VERDICTS.isdisjoint(self.verdicts)

    @property
    def asks_about_answer(self) -> bool:
        return self.verdicts is None or bool(self.rubrics) or not RETRIEVAL_VERDICTS.issuperset(self.verdicts)


API_KEY_VARIABLE = "RAGFAULT_LLM_API_KEY"
"""Environment variable of a key for any endpoint; it takes precedence over the provider's own."""
PROVIDER_HOSTS = {"openai": (".api.openai.com",), "azure": (".azure.com", ".azure.us", ".azure.cn")}
"""Provider → endings of further hosts that may receive its key."""
LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})
USUAL_PATHS = ("", "/v1", "/openai/v1")
"""Paths that name the only service of a host."""
REDACTED = "[key]"
SECRET_PATTERN = re.compile(
    r"\b(?:sk|pk|rk)-[\w*-]{8,}|\bAIza[\w*-]{20,}|(?<=Bearer )[^\s\"',]+|(?<=://)[^\s/@]+@|[\w-]{0,40}\*{3}[\w*-]*"
)
"""Text that looks like a key: several services repeat a part of it in their error messages."""


class ApiKey:
    """API key that is hidden from repr and pickle.

    >>> ApiKey("sk-secret")
    Key([key])
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Key({REDACTED})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key is never serialized; the other process reads it from the environment")


class ModelEndpoint(NamedTuple):
    """URL and key of a model service."""

    base_url: str
    host: str
    key: ApiKey | None
    trusted: bool
    """The URL belongs to the provider, so that the provider's key may be sent there."""


def resolve_endpoint(settings: LLMSettings) -> ModelEndpoint:
    """Resolve the endpoint of settings, with the key from the environment.

    Raises UnknownName for an unknown provider; UsageError for a missing URL, one that holds a secret, or a bad key.
    """
    url = _split_url(settings)
    trusted = _is_trusted(settings, url)
    key = _read_key(settings, trusted)
    if key is None and trusted and PROVIDERS[settings.provider].key_variables:
        names = " or ".join((*PROVIDERS[settings.provider].key_variables, API_KEY_VARIABLE))
        raise UsageError(f"no key for {url.netloc}. Set the environment variable {names}.")
    return ModelEndpoint(_base_url(settings), url.netloc.lower(), key, trusted)


def endpoint_host(settings: LLMSettings) -> str:
    """Return host and port of the endpoint.

    >>> endpoint_host(LLMSettings(model="m", base_url="http://localhost:8000/v1"))
    'localhost:8000'
    """
    return _split_url(settings).netloc.lower()


def endpoint_location(settings: LLMSettings) -> str:
    """Return the endpoint as it is recorded: the host, and the hash of an unusual path.

    One gateway may have several services behind it, each under a path of its own; the path itself may hold a secret.

    >>> endpoint_location(LLMSettings(model="m", base_url="http://localhost:8000/v1"))
    'localhost:8000'
    >>> endpoint_location(LLMSettings(model="m", base_url="https://gateway.example/team-a/v1"))
    'gateway.example/~283ef8'
    """
    path = urlsplit(_base_url(settings)).path
    usual = (*USUAL_PATHS, urlsplit(PROVIDERS[settings.provider].base_url).path)
    return endpoint_host(settings) + ("" if path in usual else f"/~{hashlib.sha256(path.encode()).hexdigest()[:6]}")


def is_local(settings: LLMSettings) -> bool:
    """Check that the model runs on this machine."""
    return _split_url(settings).hostname in LOCAL_HOSTS


def redact_secrets(text: str, key: ApiKey | None = None) -> str:
    """Remove keys from a text that a service wrote, and shorten it.

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
    url = settings.base_url or PROVIDERS[settings.provider].base_url
    if not url:
        raise UsageError(
            f"{settings.provider} has another address for each customer. Name it with --base-url, base_url of [llm] in "
            "ragfault.toml, or RAGFAULT_LLM_BASE_URL (https://NAME.openai.azure.com/openai/v1)."
        )
    return url.rstrip("/").removesuffix("/chat/completions")


def _split_url(settings: LLMSettings) -> SplitResult:
    """Split the URL; refuse one that holds a secret."""
    try:
        url = urlsplit(_base_url(settings))
        valid = url.scheme in ("http", "https") and bool(url.hostname) and (url.port or 1) > 0
    except ValueError:
        valid = False
    if not valid:
        raise UsageError("the base URL is not an http or https address. Write it like https://HOST/v1.")
    if url.username or url.password or url.query or url.fragment:
        raise UsageError(
            f"the base URL of {url.hostname} holds a user, a password or a query, which would be written down "
            f"with the run. Leave them out, and put the key into the environment variable {API_KEY_VARIABLE}."
        )
    return url


def _is_trusted(settings: LLMSettings, url: SplitResult) -> bool:
    """Check that the URL is the provider's own and encrypted."""
    own = urlsplit(PROVIDERS[settings.provider].base_url)
    name = url.hostname or ""
    if own.hostname and (url.scheme, name, url.port) == (own.scheme, own.hostname, own.port):
        return True
    return url.scheme == "https" and name.endswith(PROVIDER_HOSTS.get(settings.provider, ()))


def _read_key(settings: LLMSettings, trusted: bool) -> ApiKey | None:
    """Read the key from the environment; the provider's own key goes to no other host."""
    for name in (API_KEY_VARIABLE, *(PROVIDERS[settings.provider].key_variables if trusted else ())):
        if key := os.environ.get(name, "").strip():
            if not (key.isascii() and key.isprintable()):
                raise UsageError(f"the key in {name} has a character that no request can contain. Set it again.")
            return ApiKey(key)
    return None


MODEL_VARIABLE, BASE_URL_VARIABLE = "RAGFAULT_LLM_MODEL", "RAGFAULT_LLM_BASE_URL"
"""Environment variables that name the model and its URL where nothing else does."""
RESERVED_PARAMETERS = frozenset(
    {"model", "messages", "stream", "n", "response_format", "temperature", "max_tokens", "max_completion_tokens"}
)
"""Request parameters that have settings of their own, or none."""
SECRET_PARAMETER = re.compile(r"(?:^|[_-])(?:api_?key|key|token|secret|authorization|password|headers)$", re.IGNORECASE)
"""Names of parameters that would record a key with the run."""


def build_settings(name: str = "", **options: Any) -> LLMSettings:
    """Build settings from "MODEL" or "PROVIDER/MODEL", options and the environment.

    Raises UsageError where no model is named or a value is wrong, UnknownName for an option that does not exist.

    >>> build_settings("anthropic/claude-x", votes=3).provider
    'anthropic'
    >>> build_settings("org/model", base_url="http://localhost:8000/v1").model
    'org/model'
    """
    remaining = dict(options)
    name = name or remaining.pop("model", "") or os.environ.get(MODEL_VARIABLE, "")
    remaining.pop("model", None)
    if not name:
        raise UsageError(
            f"no model is named. Write --judge llm:MODEL or llm:PROVIDER/MODEL (providers: {', '.join(PROVIDERS)}), "
            f"model of [llm] in ragfault.toml, or {MODEL_VARIABLE} in the environment."
        )
    provider, slash, model = name.partition("/")
    if slash and provider in PROVIDERS:
        remaining["provider"], name = provider, model
    if not remaining.get("base_url") and (url := os.environ.get(BASE_URL_VARIABLE)):
        remaining["base_url"] = url
    _check_options(remaining)
    _check_parameters(remaining.get("parameters") or {})
    check_rubrics(remaining.get("rubrics", ()))
    try:
        return msgspec.convert({"model": name, **remaining}, LLMSettings)
    except msgspec.ValidationError as error:
        raise UsageError(f"the settings of the model are wrong: {redact_secrets(str(error))}.") from None


def _check_options(options: Mapping[str, Any]) -> None:
    for name in options:
        if "key" in name.lower():
            raise UsageError(
                f"keys are read only from the environment, so that no file holds them. Leave out {name}, "
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
