"""The configuration of a pipeline: chunker, embedder and stages, read from pipeline.toml, written and built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from ragfault.model.errors import InputError, UnknownName, UsageError
from ragfault.model.expressions import parse_expression
from ragfault.model.records import Document, Trace
from ragfault.model.rules import check_ids
from ragfault.model.whole_files import read_toml
from ragfault.retrieval.answers.registry import check_answer_check, make_answer_pipeline
from ragfault.retrieval.chunking.chunker import load_chunker
from ragfault.retrieval.embedders.registry import load_embedder
from ragfault.retrieval.generation.answering import answer_trace
from ragfault.retrieval.generation.settings import (
    GeneratorConfig,
    format_generator_table,
    format_toml,
    parse_generator_config,
)
from ragfault.retrieval.index import ChunkIndex
from ragfault.retrieval.pipeline import Pipeline
from ragfault.retrieval.stage_registry import STAGE_KINDS, StageKind, check_stage, get_stage_kind, make_stage

CONFIG_TABLES = {"index": ("chunker", "embedder"), "stages": None, "generator": None, "checks": None}
"""Tables of the file with their keys; stages have names of the user's own."""
NO_EMBEDDER = "none"
UNFITTED_SUFFIX = " unfitted"
"""Ends the fingerprint of an embedder that has seen no corpus yet."""


class PipelineConfig(Struct, frozen=True, kw_only=True):
    """Chunker, embedder and stages of a pipeline, each written as a call."""

    chunker: str = "recursive(512)"
    embedder: str = NO_EMBEDDER
    """"none": it is searched by words alone."""
    stages: dict[str, str] = field(default_factory=lambda: {"retrieve": "sparse", "select": "top(10)"})
    """Name of the stage → what it is, in the order in which they run."""
    generator: GeneratorConfig | None = None
    """Generator that answers from the chunks; None: the pipeline only retrieves."""
    checks: dict[str, str] = field(default_factory=dict)
    """Name of a check of the answer → what it is, in their order."""

    @property
    def name(self) -> str:
        """It in a line."""
        parts = (self.chunker, *(() if self.embedder == NO_EMBEDDER else (self.embedder,)), *self.stages.values())
        return " · ".join(parts)

    def get_stage(self, kind: StageKind) -> str | None:
        """Return the first stage of a kind; None without one."""
        return next((text for text in self.stages.values() if get_stage_kind(text) == kind), None)


def replace_stage(config: PipelineConfig, kind: StageKind, expression: str | None) -> PipelineConfig:
    """Return the configuration with another stage in place of those of a kind; None removes them.

    A step that it had not comes where it belongs.

    >>> replace_stage(PipelineConfig(), "rerank", "rerank(lexical)").stages
    {'retrieve': 'sparse', 'rerank': 'rerank(lexical)', 'select': 'top(10)'}
    """
    stages = {name: stage for name, stage in config.stages.items() if get_stage_kind(stage) != kind}
    if expression is not None:
        stages[kind] = expression
        order = {name: STAGE_KINDS.index(get_stage_kind(stage)) for name, stage in stages.items()}
        stages = {name: stages[name] for name in sorted(stages, key=order.__getitem__)}
    return replace(config, stages=stages)


def read_pipeline_config(path: str | Path) -> PipelineConfig:
    """Load the configuration from a file.

    Raises InputError where it cannot be read or a value is of the wrong kind, UnknownName for a table, key, stage,
    chunker or embedder that does not exist, UsageError where no stage retrieves.
    """
    file = Path(path)
    tables = read_toml(file)
    for name, table in tables.items():
        _check_table(file, name, table)
    config = PipelineConfig(
        **{key: tables.get("index", {}).get(key, getattr(PipelineConfig(), key)) for key in ("chunker", "embedder")},
        stages=tables.get("stages", {}),
        generator=parse_generator_config(tables["generator"], str(file)) if "generator" in tables else None,
        checks=tables.get("checks", {}),
    )
    check_pipeline_config(config, str(file))
    return config


def _check_table(path: Path, name: str, table: Any) -> None:
    if name not in CONFIG_TABLES:
        raise UnknownName(f"table of {path}", name, CONFIG_TABLES, listed=True)
    if not isinstance(table, dict):
        raise InputError(f"{path}: {name} is a table. Write [{name}] and its keys below it.")
    keys = CONFIG_TABLES[name]
    for key, value in table.items():
        if keys is not None and key not in keys:
            raise UnknownName(f"key of [{name}] in {path}", key, keys, listed=True)
        if name != "generator" and not isinstance(value, str):
            raise InputError(f'{path}: {key} of [{name}] should be a text such as "top(5)", not {value!r}.')


def check_pipeline_config(config: PipelineConfig, source: str = "the config") -> None:
    """Check a configuration before anything is computed.

    Raises UsageError where no stage retrieves, or one searches by vectors without an embedder; UnknownName for a name
    that there is not.
    """
    steps = {name: get_stage_kind(text) for name, text in config.stages.items()}
    if "retrieve" not in steps.values():
        raise UsageError(f'{source} has no stage that retrieves. Add one, such as: retrieve = "hybrid"')
    load_chunker(config.chunker)
    load_config_embedder(config)
    for text in config.checks.values():
        check_answer_check(text)
    for text in config.stages.values():
        if check_stage(text).name in ("dense", "hybrid", "diverse") and config.embedder == NO_EMBEDDER:
            raise UsageError(f'{source} has the stage "{text}" and no embedder. Name one, such as: embedder = "latent"')


def format_pipeline_config(config: PipelineConfig, comment: str = "") -> str:
    """Return the configuration as TOML, below comment lines.

    >>> print(format_pipeline_config(PipelineConfig(chunker="sentences(256)")).strip())
    [index]
    chunker = "sentences(256)"
    embedder = "none"
    <BLANKLINE>
    [stages]
    retrieve = "sparse"
    select = "top(10)"
    """
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    lines += ["[index]", f"chunker = {format_toml(config.chunker)}", f"embedder = {format_toml(config.embedder)}"]
    lines += ["", "[stages]"]
    lines += [f"{_format_key(name)} = {format_toml(text)}" for name, text in config.stages.items()]
    if config.generator is not None:
        lines += ["", *format_generator_table(config.generator)]
    if config.checks:
        lines += ["", "[checks]"]
        lines += [f"{_format_key(name)} = {format_toml(text)}" for name, text in config.checks.items()]
    return "\n".join(lines) + "\n"


def _format_key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else format_toml(name)


def load_config_embedder(config: PipelineConfig) -> Any:
    """Return the embedder of a configuration, not yet fitted; None without one. Raises UsageError for its options."""
    if config.embedder == NO_EMBEDDER:
        return None
    call = parse_expression(config.embedder)
    try:
        return load_embedder(call.name, *call.arguments, **call.options)
    except TypeError as error:
        raise UsageError(f'the embedder "{config.embedder}" cannot be made: {error}.') from None


def check_corpus(documents: Sequence[Document]) -> None:
    """Refuse documents of one id, and a corpus without any."""
    check_ids((document.id for document in documents), "documents")
    if not documents:
        raise InputError("the corpus holds no document.")


def build_index(config: PipelineConfig, corpus: Iterable[Document]) -> ChunkIndex:
    """Return the index of a configuration: documents chunked and embedded.

    Raises InputError where the corpus is empty, has no text, or two documents have one id.
    """
    documents = tuple(corpus)
    check_corpus(documents)
    cut = load_chunker(config.chunker)
    chunks = [chunk for document in documents for chunk in cut(document)]
    return ChunkIndex.build(chunks, load_config_embedder(config), chunker=config.chunker)


def build_pipeline(config: PipelineConfig, index: ChunkIndex) -> Pipeline:
    """Return the pipeline of a configuration over an index."""
    answer: Callable[[Trace], Trace] | None = None
    if config.generator is not None:
        generate = partial(answer_trace, config.generator)
        check = make_answer_pipeline(config.checks) if config.checks else None
        answer = generate if check is None else lambda trace: check(generate(trace))
    return Pipeline({name: make_stage(text, index) for name, text in config.stages.items()}, answer)


def load_pipeline(path: str | Path, source: Iterable[Document] | ChunkIndex) -> Pipeline:
    """Load the pipeline of a file over the documents of a corpus or over an existing index.

    Raises what `read_pipeline_config` and `build_index` raise, and UsageError where the index was made by another
    chunker or another embedder than the file names: cut and embedded otherwise, it is another pipeline.
    """
    config = read_pipeline_config(path)
    if not isinstance(source, ChunkIndex):
        return build_pipeline(config, build_index(config, source))
    manifest = source.manifest
    if manifest.chunker and manifest.chunker != config.chunker:
        raise UsageError(
            f"the index was cut by {manifest.chunker}, and {path} says {config.chunker}. Index the corpus again."
        )
    _check_same_embedder(config, source, path)
    return build_pipeline(config, source)


def _check_same_embedder(config: PipelineConfig, index: ChunkIndex, path: str | Path) -> None:
    requested, stored = load_config_embedder(config), index.manifest.embedder
    if requested is None or stored is None:
        if requested is not None:
            raise UsageError(f"the index has no embedder, and {path} says {config.embedder}. Index the corpus again.")
        return
    if not matches_embedder(requested.fingerprint, stored):
        raise UsageError(
            f"the index was made with {stored}, and {path} says {requested.fingerprint.removesuffix(UNFITTED_SUFFIX)}. "
            "Index the corpus again with the new embedder."
        )


def matches_embedder(requested: str, stored: str) -> bool:
    """Return True where two fingerprints are of one embedder; before fitting, a fingerprint is incomplete.

    >>> matches_embedder("latent/1 dimensions=8 unfitted", "latent/1 dimensions=8 fitted=ab12")
    True
    >>> matches_embedder("endpoint:text-embedding-3", "endpoint:text-embedding-3-small")
    False
    """
    requested_name = requested.removesuffix(UNFITTED_SUFFIX)
    return stored == requested or (requested_name != requested and stored.startswith(f"{requested_name} fitted="))
