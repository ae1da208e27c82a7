"""Settings of a generator: model, prompt, context, sampling, format, citations and examples."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ragfault.model.errors import InputError, UnknownName

ChunkOrder = Literal["given", "reversed", "ends"]
"""Order of the chunks in the prompt: as retrieved, the best last, or the best at both ends."""
AnswerFormat = Literal["prose", "brief", "list"]
CitationStyle = Literal["none", "ids", "quotes"]

DEFAULT_PROMPT = (
    "Answer the question from the passages alone. Say only what they support; where they do not hold the answer, say "
    "that they do not."
)


class AnswerExample(Struct, frozen=True, forbid_unknown_fields=True):
    """Question with an answer as an expert would write it."""

    query: str
    answer: str


class GeneratorConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a generator.

    >>> GeneratorConfig(model="llm:ollama/llama3", chunks=3).name
    'llm:ollama/llama3 · chunks=3'
    """

    model: str
    """Model, as `llm:MODEL` or `llm:PROVIDER/MODEL`."""
    prompt: str = DEFAULT_PROMPT
    chunks: int | None = None
    """Most chunks that the model sees; None: all that were retrieved."""
    order: ChunkOrder = "given"
    temperature: float | None = 0.0
    """None: the default of the service."""
    max_tokens: int = 1024
    format: AnswerFormat = "prose"
    citations: CitationStyle = "none"
    """Citations that the model is asked for: none, ids of chunks, or ids with the words that support the claim."""
    examples: tuple[AnswerExample, ...] = ()

    @property
    def name(self) -> str:
        """Model, and what differs from the defaults, in a line."""
        parts = [self.model]
        for field in msgspec.structs.fields(self)[1:]:
            value = getattr(self, field.name)
            if value == field.default:
                continue
            if field.name == "prompt":
                value = hashlib.sha256(value.encode()).hexdigest()[:8]
            parts.append(f"{field.name}={len(value) if field.name == 'examples' else value}")
        return " · ".join(parts)


SEARCHED_SETTINGS = (
    "model", "prompt", "chunks", "order", "temperature", "max_tokens", "format", "citations", "examples",
)  # fmt: skip
"""Settings in the order in which they are searched: the model first."""


def parse_generator_config(table: Mapping[str, Any], source: str) -> GeneratorConfig:
    """Parse the settings of a generator from a table, such as [generator] of a pipeline.toml.

    Raises UnknownName for a key that does not exist, InputError for a value of the wrong kind.

    >>> parse_generator_config({"model": "llm:gpt-4o-mini", "temperatur": 1}, "pipeline.toml")
    Traceback (most recent call last):
    ragfault.model.errors.UnknownName: no key of [generator] in pipeline.toml "temperatur". Did you mean "temperature"?
    """
    for key in table:
        if key not in GeneratorConfig.__struct_fields__:
            raise UnknownName(f"key of [generator] in {source}", key, GeneratorConfig.__struct_fields__)
    try:
        config = msgspec.convert(dict(table), GeneratorConfig)
    except msgspec.ValidationError as error:
        raise InputError(f"{source}: [generator]: {error}.") from None
    if config.max_tokens < 1 or (config.chunks is not None and config.chunks < 1):
        raise InputError(f"{source}: [generator]: chunks and max_tokens are at least 1.")
    return config


def format_generator_table(config: GeneratorConfig) -> list[str]:
    """Return the lines of the table [generator]: the model, and what differs from the defaults.

    >>> format_generator_table(GeneratorConfig(model="llm:m", chunks=3))
    ['[generator]', 'model = "llm:m"', 'chunks = 3']
    """
    lines = ["[generator]", f"model = {format_toml(config.model)}"]
    for field in msgspec.structs.fields(config)[1:]:
        value = getattr(config, field.name)
        if value == field.default or value is None:
            continue
        if field.name == "examples":
            rows = (f"{{query = {format_toml(row.query)}, answer = {format_toml(row.answer)}}}" for row in value)
            lines.append(f"examples = [{', '.join(rows)}]")
        else:
            lines.append(f"{field.name} = {format_toml(value)}")
    return lines


def format_toml(value: str | float) -> str:
    """Format a text or a number as TOML: as JSON, whose escapes TOML shares; only DEL has to be escaped as well.

    Halves of surrogate pairs, which neither can hold, become question marks.
    """
    value = value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007F")
