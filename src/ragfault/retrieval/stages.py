"""The catalogue of stages: each by the name under which a `pipeline.toml` and the tuner ask for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, NamedTuple, get_args

from ragfault.errors import UnknownName, UsageError
from ragfault.ports import Generator, Reranker
from ragfault.retrieval.calls import Call, read_call
from ragfault.retrieval.compressing import compress
from ragfault.retrieval.filtering import infer, restrict
from ragfault.retrieval.index import Index
from ragfault.retrieval.querying import decompose, expand, rewrite, shorten
from ragfault.retrieval.records import Stage
from ragfault.retrieval.reranking import Judging, rerank
from ragfault.retrieval.selecting import adaptive, budget, distinct, diverse, reorder, top

__all__ = [
    "RERANKERS",
    "STAGES",
    "STEPS",
    "Maker",
    "Step",
    "check_stage",
    "load_generator",
    "load_reranker",
    "make_stage",
    "step_of",
]

Step = Literal["query", "filter", "retrieve", "rerank", "select", "reorder", "compress"]
"""What a stage is for; written in the order in which they should follow each other."""
STEPS: tuple[Step, ...] = get_args(Step)

SERVICES = {"cohere": "Cohere", "voyage": "Voyage", "vertex": "Vertex"}
RERANKERS = (
    "embedded",
    "lexical",
    "minilm",
    "onnx:FOLDER",
    "cohere",
    "voyage",
    "vertex:PROJECT",
    "llm:MODEL",
)
"""Who reranks: a judge by its name, a service (`cohere:MODEL`), or a language model."""
ASKED = "llm"


class Maker(NamedTuple):
    """How a stage is made."""

    step: Step
    make: Callable[..., Stage]
    """Of the index, and the values of the call."""
    line: str
    """What it does, in a line."""


@cache
def load_reranker(name: str = "embedded", budget: float | None = None) -> Reranker:
    """The reranker of a name: a judge ("embedded", "lexical", "minilm", "onnx:FOLDER"), a service ("cohere:MODEL"), or
    a language model ("llm:MODEL"), which may spend a `budget` of US$.

    Raises UnknownName for any other, UsageError for a budget of what costs nothing or keeps none.

    >>> load_reranker("lexical").fingerprint.split()[0]
    'lexical/2'
    """
    kind, colon, model = name.partition(":")
    if kind == ASKED:
        reranker: Reranker = _asked(model, budget)
        return reranker
    if budget is not None:
        raise UsageError(f'"{name}" keeps no budget; llm:MODEL does.')
    if kind in SERVICES:
        from ragfault.retrieval import services

        service: Reranker = getattr(services, SERVICES[kind])(*([model] if colon else []))
        return service
    if kind not in ("embedded", "lexical", "minilm", "onnx"):
        raise UnknownName("reranker", name, RERANKERS)
    return Judging(name)


def load_generator(name: str | None, budget: float | None = None) -> Generator | None:
    """The generator of a name, "llm:MODEL", which may spend a `budget` of US$; None for none.

    Raises UnknownName for any other, UsageError for a budget without a name.

    >>> load_generator("llm:ollama/llama3").fingerprint.split()[1]
    'ollama/llama3'
    """
    if name is None:
        if budget is not None:
            raise UsageError('nothing is asked that a budget could be for. Name a model: by="llm:MODEL"')
        return None
    kind, _, model = name.partition(":")
    if kind != ASKED:
        raise UnknownName("generator", name, (f"{ASKED}:MODEL",))
    generator: Generator = _asked(model, budget)
    return generator


@cache
def _asked(model: str, budget: float | None) -> Any:
    """One for each model and budget, so that all stages that ask it spend of the same."""
    from ragfault.judges.llm.asked import Asked

    options: dict[str, Any] = {} if budget is None else {"budget": budget}
    return Asked(model, **options)


def _reranked(
    _: Index, by: str = "embedded", k: int | None = None, depth: int = 50, budget: float | None = None
) -> Stage:
    return rerank(load_reranker(by, budget), k, depth=depth)


def _rewritten(
    _: Index, *context: str, short: int = 3, by: str | None = None, budget: float | None = None
) -> Stage:
    return rewrite(load_generator(by, budget), context=context, short=short)


def _shortened(_: Index, threshold: int, by: str | None = None, budget: float | None = None) -> Stage:
    return shorten(threshold, load_generator(by, budget))


def _decomposed(_: Index, most: int = 4, by: str | None = None, budget: float | None = None) -> Stage:
    return decompose(load_generator(by, budget), most=most)


def _hybrid(
    index: Index,
    k: int = 100,
    method: str = "rrf",
    norm: str = "minmax",
    first: int = 1,
    sparse: float = 1.0,
    dense: float = 1.0,
    constant: float = 60,
) -> Stage:
    weights = {"sparse": sparse, "dense": dense}
    return index.retrieve(
        "hybrid", k, method=method, norm=norm, first=first, weights=weights, constant=constant
    )


def _expanded(
    index: Index, terms: int = 5, depth: int = 3, by: str | None = None, budget: float | None = None
) -> Stage:
    if by is not None or budget is not None:
        return expand(generator=load_generator(by, budget))
    return expand(index.retrieve("sparse", depth), terms=terms, depth=depth)


def _diverse(index: Index, k: int = 10, weight: float = 0.7) -> Stage:
    if index.embedder is None:
        raise UsageError("the stage diverse needs an embedder. Name one, or select with top.")
    return diverse(k, index.embedder, weight)


def _compressed(_: Index, bar: float = 0.5, beside: int = 0, by: str | None = None) -> Stage:
    return compress(load_reranker(by) if by else None, bar=bar, beside=beside)


def _restricted(_: Index, **wanted: Any) -> Stage:
    return restrict(**wanted)


def _inferred(_: Index, *fields: str) -> Stage:
    return infer(fields) if fields else infer()


STAGES: dict[str, Maker] = {
    "rewrite": Maker("query", _rewritten, "adds words of the user's context to a short query"),
    "shorten": Maker("query", _shortened, "simplifies an over-long query"),
    "decompose": Maker("query", _decomposed, "searches for the parts of a query, too"),
    "expand": Maker("query", _expanded, "adds words that the first hits share"),
    "infer": Maker("filter", _inferred, "reads conditions out of the query"),
    "restrict": Maker("filter", _restricted, "asks for metadata"),
    "sparse": Maker("retrieve", lambda index, k=100: index.retrieve("sparse", k), "finds by words"),
    "dense": Maker("retrieve", lambda index, k=100: index.retrieve("dense", k), "finds by meaning"),
    "hybrid": Maker("retrieve", _hybrid, "finds by words and by meaning, and fuses"),
    "rerank": Maker("rerank", _reranked, "orders the first hits by reading them with the query"),
    "distinct": Maker("select", lambda _, threshold=0.8: distinct(threshold), "drops near duplicates"),
    "top": Maker("select", lambda _, k=10: top(k), "keeps the first"),
    "adaptive": Maker("select", lambda _, bar=0.5: adaptive(bar), "keeps as many as the query calls for"),
    "diverse": Maker("select", _diverse, "keeps hits that repeat each other least"),
    "budget": Maker("select", lambda _, tokens: budget(tokens), "keeps what fits into so many tokens"),
    "reorder": Maker("reorder", lambda _, manner="ends": reorder(manner), "puts the best at both ends"),
    "compress": Maker("compress", _compressed, "keeps the sentences that bear on the query"),
}
"""Name → how the stage is made."""


def step_of(text: str) -> Step:
    """What the stage of a call is for. Raises UnknownName for one that does not exist.

    >>> step_of("top(5)")
    'select'
    """
    return _maker(read_call(text).name).step


def make_stage(text: str, index: Index) -> Stage:
    """The stage that a call names, over an index.

    Raises UnknownName for a stage or an option that does not exist, UsageError for a value that is wrong.

    >>> from ragfault.records import Chunk
    >>> index = Index.build([Chunk(id="a", text="Dogs need a lead.")])
    >>> make_stage("hybird(k=5)", index)
    Traceback (most recent call last):
    ragfault.errors.UnknownName: no stage "hybird". Did you mean "hybrid"?
    """
    call = check_stage(text)
    try:
        return _maker(call.name).make(index, *call.values, **call.options)
    except (TypeError, ValueError) as error:
        raise UsageError(f'the stage "{text}" cannot be made: {error}.') from error


def check_stage(text: str) -> Call:
    """The call of a stage, refused where the stage or an option does not exist, or a value is lacking or too many.

    >>> check_stage("top(kk=5)")
    Traceback (most recent call last):
    ragfault.errors.UnknownName: no option of top "kk". Did you mean "k"?
    """
    call = read_call(text)
    shape = inspect.signature(_maker(call.name).make)
    known = list(shape.parameters.values())[1:]
    names = [each.name for each in known if each.kind is not each.VAR_POSITIONAL]
    if not any(each.kind is each.VAR_KEYWORD for each in known):
        for name in call.options:
            if name not in names:
                raise UnknownName(f"option of {call.name}", name, names)
    try:
        shape.bind(None, *call.values, **call.options)
    except TypeError as error:
        raise UsageError(f'the stage "{text}" cannot be made: {error}.') from None
    return call


def _maker(name: str) -> Maker:
    if name not in STAGES:
        raise UnknownName("stage", name, STAGES)
    return STAGES[name]
