"""The registry of stages: every stage by the name under which a pipeline.toml or the tuner asks for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, NamedTuple, get_args

from ragfault.model.errors import UnknownName, UsageError
from ragfault.model.expressions import Expression, parse_expression
from ragfault.model.protocols import Generator, Reranker
from ragfault.retrieval.filters import infer_conditions, require_metadata, resolve_time
from ragfault.retrieval.index import ChunkIndex
from ragfault.retrieval.pipeline import Stage
from ragfault.retrieval.query_stages import decompose, expand, rewrite, shorten
from ragfault.retrieval.rerankers import JudgeReranker, prefer_entities, rerank
from ragfault.retrieval.search import FusionSettings
from ragfault.retrieval.selection import (
    compress,
    drop_duplicates,
    reorder,
    select_by_complexity,
    select_diverse,
    select_top,
    select_within_budget,
)

StageKind = Literal["query", "filter", "retrieve", "rerank", "select", "reorder", "compress"]
"""Kinds of stages, in the order in which they should follow each other."""
STAGE_KINDS: tuple[StageKind, ...] = get_args(StageKind)

RERANK_SERVICES = {"cohere": "CohereReranker", "voyage": "VoyageReranker", "vertex": "VertexReranker"}
RERANKERS = ("embedded", "encoder", "lexical", "onnx:FOLDER", "cohere", "voyage", "vertex:PROJECT", "llm:MODEL")
"""Rerankers: a judge by its name, a service (`cohere:MODEL`), or a language model."""
LLM_PREFIX = "llm"


class StageFactory(NamedTuple):
    """Constructor of a stage."""

    kind: StageKind
    make: Callable[..., Stage]
    """Creates a stage from the index and the arguments of the call."""
    summary: str
    """Description in a line."""


@cache
def load_reranker(name: str = "embedded", budget: float | None = None) -> Reranker:
    """Return the reranker of a name.

    A judge ("embedded", "encoder", "lexical", "onnx:FOLDER"), a service ("cohere:MODEL"), or a language model
    ("llm:MODEL") with a `budget` in US$.

    Raises UnknownName for any other, UsageError for a budget of what costs nothing or keeps none.

    >>> load_reranker("lexical").fingerprint.split()[0]
    'lexical/8'
    """
    kind, colon, model = name.partition(":")
    if kind == LLM_PREFIX:
        reranker: Reranker = _load_language_model(model, budget)
        return reranker
    if budget is not None:
        raise UsageError(f'"{name}" keeps no budget; llm:MODEL does.')
    if kind in RERANK_SERVICES:
        from ragfault.retrieval import rerankers

        service: Reranker = getattr(rerankers, RERANK_SERVICES[kind])(*([model] if colon else []))
        return service
    if kind not in ("embedded", "encoder", "lexical", "onnx"):
        raise UnknownName("reranker", name, RERANKERS)
    return JudgeReranker(name)


def load_generator(name: str | None, budget: float | None = None) -> Generator | None:
    """Return the generator of a name, "llm:MODEL", with a `budget` in US$; None for None.

    Raises UnknownName for any other, UsageError for a budget without a name.

    >>> load_generator("llm:ollama/llama3").fingerprint.split()[1]
    'ollama/llama3'
    """
    if name is None:
        if budget is not None:
            raise UsageError('nothing is asked that a budget could be for. Name a model: by="llm:MODEL"')
        return None
    kind, _, model = name.partition(":")
    if kind != LLM_PREFIX:
        raise UnknownName("generator", name, (f"{LLM_PREFIX}:MODEL",))
    generator: Generator = _load_language_model(model, budget)
    return generator


@cache
def _load_language_model(model: str, budget: float | None) -> Any:
    """Return one generator for each model and budget, so that all stages share its budget."""
    from ragfault.judges.llm.judge import LLMGenerator

    options: dict[str, Any] = {} if budget is None else {"budget": budget}
    return LLMGenerator(model, **options)


def _make_rerank(
    _: ChunkIndex, by: str = "embedded", k: int | None = None, depth: int = 50, budget: float | None = None
) -> Stage:
    return rerank(load_reranker(by, budget), k, depth=depth)


def _make_rewrite(
    _: ChunkIndex, *context: str, short: int = 3, by: str | None = None, budget: float | None = None
) -> Stage:
    return rewrite(load_generator(by, budget), context=context, short=short)


def _make_shorten(_: ChunkIndex, threshold: int, by: str | None = None, budget: float | None = None) -> Stage:
    return shorten(threshold, load_generator(by, budget))


def _make_decompose(_: ChunkIndex, limit: int = 4, by: str | None = None, budget: float | None = None) -> Stage:
    return decompose(load_generator(by, budget), limit=limit)


def _make_hybrid(
    index: ChunkIndex,
    k: int = 100,
    method: str = "rrf",
    norm: str = "minmax",
    first: int = 1,
    sparse: float = 1.0,
    dense: float = 1.0,
    constant: float = 60,
) -> Stage:
    # the parameters are the options that `hybrid(...)` takes in a pipeline.toml, so they stay apart
    return index.retrieve(
        "hybrid", k, FusionSettings(method, constant, first, {"sparse": sparse, "dense": dense}, norm)
    )


def _make_expand(
    index: ChunkIndex, terms: int = 5, depth: int = 3, by: str | None = None, budget: float | None = None
) -> Stage:
    if by is not None or budget is not None:
        return expand(generator=load_generator(by, budget))
    return expand(index.retrieve("sparse", depth), terms=terms, depth=depth)


def _make_diverse(index: ChunkIndex, k: int = 10, weight: float = 0.7) -> Stage:
    if index.embedder is None:
        raise UsageError("the stage diverse needs an embedder. Name one, or select with top.")
    return select_diverse(k, index.embedder, weight)


def _make_compress(_: ChunkIndex, threshold: float = 0.5, neighbors: int = 0, by: str | None = None) -> Stage:
    return compress(load_reranker(by) if by else None, threshold=threshold, neighbors=neighbors)


STAGES: dict[str, StageFactory] = {
    "rewrite": StageFactory("query", _make_rewrite, "adds words of the user's context to a short query"),
    "shorten": StageFactory("query", _make_shorten, "simplifies an over-long query"),
    "decompose": StageFactory("query", _make_decompose, "searches for the parts of a query, too"),
    "expand": StageFactory("query", _make_expand, "adds words that the first hits share"),
    "infer": StageFactory(
        "filter",
        lambda _, *fields: infer_conditions(fields) if fields else infer_conditions(),
        "reads conditions out of the query",
    ),
    "as_of": StageFactory("filter", lambda _: resolve_time(), "reads the time that the query asks about"),
    "restrict": StageFactory("filter", lambda _, **filters: require_metadata(**filters), "asks for metadata"),
    "sparse": StageFactory("retrieve", lambda index, k=100: index.retrieve("sparse", k), "finds by words"),
    "dense": StageFactory("retrieve", lambda index, k=100: index.retrieve("dense", k), "finds by meaning"),
    "hybrid": StageFactory("retrieve", _make_hybrid, "finds by words and by meaning, and fuses"),
    "rerank": StageFactory("rerank", _make_rerank, "orders the first hits by reading them with the query"),
    "entities": StageFactory(
        "rerank",
        lambda _, weight=0.1, depth=100: prefer_entities(weight, depth=depth),
        "prefers hits that mention the names, numbers and dates of the query",
    ),
    "distinct": StageFactory("select", lambda _, threshold=0.8: drop_duplicates(threshold), "drops near duplicates"),
    "top": StageFactory("select", lambda _, k=10: select_top(k), "keeps the first"),
    "adaptive": StageFactory(
        "select", lambda _, threshold=0.5: select_by_complexity(threshold), "keeps as many as the query calls for"
    ),
    "diverse": StageFactory("select", _make_diverse, "keeps hits that repeat each other least"),
    "budget": StageFactory(
        "select", lambda _, tokens: select_within_budget(tokens), "keeps what fits into so many tokens"
    ),
    "reorder": StageFactory("reorder", lambda _, strategy="ends": reorder(strategy), "puts the best at both ends"),
    "compress": StageFactory("compress", _make_compress, "keeps the sentences that bear on the query"),
}
"""Name → how the stage is made."""


def get_stage_kind(expression: str) -> StageKind:
    """Return the kind of the stage of an expression. Raises UnknownName for an unknown stage.

    >>> get_stage_kind("top(5)")
    'select'
    """
    return _get_factory(parse_expression(expression).name).kind


def make_stage(expression: str, index: ChunkIndex) -> Stage:
    """Return the stage of an expression over an index.

    Raises UnknownName for a stage or an option that does not exist, UsageError for a value that is wrong.

    >>> from ragfault.model.records import Chunk
    >>> index = ChunkIndex.build([Chunk(id="a", text="Dogs need a lead.")])
    >>> make_stage("hybird(k=5)", index)
    Traceback (most recent call last):
    ragfault.model.errors.UnknownName: no stage "hybird". Did you mean "hybrid"?
    """
    # checked apart, so that errors name options, and not parameters of a function
    call = check_stage(expression)
    try:
        return _get_factory(call.name).make(index, *call.arguments, **call.options)
    except (TypeError, ValueError) as error:
        raise UsageError(f'the stage "{expression}" cannot be made: {error}.') from error


def check_stage(expression: str) -> Expression:
    """Parse the expression of a stage and check its name, options and values.

    Raises UnknownName for a name that there is not, UsageError for options that do not fit.

    >>> check_stage("top(kk=5)")
    Traceback (most recent call last):
    ragfault.model.errors.UnknownName: no option of top "kk". Did you mean "k"?
    """
    call = parse_expression(expression)
    shape = inspect.signature(_get_factory(call.name).make)
    parameters = list(shape.parameters.values())[1:]
    names = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL]
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        for name in call.options:
            if name not in names:
                raise UnknownName(f"option of {call.name}", name, names)
    try:
        shape.bind(None, *call.arguments, **call.options)
    except TypeError as error:
        raise UsageError(f'the stage "{expression}" cannot be made: {error}.') from None
    return call


def _get_factory(name: str) -> StageFactory:
    if name not in STAGES:
        raise UnknownName("stage", name, STAGES)
    return STAGES[name]
