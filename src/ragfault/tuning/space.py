"""The space that is searched: for each step what may stand there, in the grammar of calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from ragfault.findings.records import Kind, Remedy
from ragfault.retrieval.recipes import NOTHING, Recipe, check_recipe, with_stage
from ragfault.retrieval.stages import step_of
from ragfault.tuning.records import Bound

__all__ = ["PHASES", "Phase", "Space", "blamed", "budgets", "check_space", "default_space", "grid"]

Phase = Literal["pre-processing", "retrieval", "selection"]
PHASES: tuple[Phase, ...] = get_args(Phase)

BLAME: dict[Kind, tuple[Phase, ...]] = {
    "nothing_retrieved": ("pre-processing", "retrieval"),
    "nothing_relevant": ("pre-processing", "retrieval"),
    "missing_context": ("pre-processing", "retrieval"),
    "uncovered_statement": ("pre-processing", "retrieval"),
    "irrelevant_chunk": ("selection",),
}
"""Kind of problem → the phases that can mend it; problems of the generator none of them can."""
SHARE = 0.1
"""A kind that fewer traces show than this share blames nothing."""


class Space(Struct, frozen=True, kw_only=True):
    """What may stand at each step."""

    chunkers: tuple[str, ...] = (
        "fixed(256, overlap=32)",
        "fixed(512, overlap=64)",
        "sentences(256)",
        "recursive(256)",
        "recursive(512)",
        "recursive(1024)",
    )
    embedders: tuple[str, ...] = ("latent",)
    retrievals: tuple[str, ...] = (
        "sparse(k=50)",
        "dense(k=50)",
        "hybrid(k=50)",
        "hybrid(k=50, method=sum)",
        "hybrid(k=50, method=sum, sparse=2.0)",
        "hybrid(k=50, method=sum, dense=2.0)",
    )
    queries: tuple[str, ...] = ("expand", "decompose")
    rerankers: tuple[str, ...] = ("rerank(embedded, depth=20)", "rerank(lexical, depth=20)")
    selections: tuple[str, ...] = ("top(5)", "top(10)", "adaptive", "diverse(10)")
    compressions: tuple[str, ...] = ("compress",)
    phases: tuple[Phase, ...] = PHASES
    """The phases that are searched; the others stay as the present configuration has them."""


def default_space(embedders: Iterable[str] | None = None) -> Space:
    """The usual space, with embedders of the user's choice.

    >>> default_space(["latent", "minilm"]).embedders
    ('latent', 'minilm')
    """
    space = Space()
    chosen = space.embedders if embedders is None else tuple(dict.fromkeys(embedders))
    for name in chosen:
        check_recipe(Recipe(embedder=name), "--embedders")
    return replace(space, embedders=tuple(name for name in chosen if name != NOTHING))


def check_space(space: Space) -> None:
    """Refuse a space with a chunker, an embedder or a stage that does not exist, before anything is computed.

    >>> check_space(Space(chunkers=("fixd(64)",)))
    Traceback (most recent call last):
    ragfault.errors.UnknownName: no chunker "fixd". Did you mean "fixed"?
    """
    for name in space.chunkers:
        check_recipe(Recipe(chunker=name), "the space")
    for name in space.embedders:
        check_recipe(Recipe(embedder=name), "the space")
    for texts in (space.retrievals, space.queries, space.rerankers, space.selections, space.compressions):
        for text in texts:
            step_of(text)


def grid(space: Space, start: Recipe) -> list[Recipe]:
    """Every combination of chunker, embedder, retrieval and reranking; the other steps as in a recipe to start from."""
    found: dict[str, Recipe] = {}
    for chunker in space.chunkers:
        for retrieval in space.retrievals:
            embedders = (NOTHING,) if retrieval.startswith("sparse") else space.embedders
            for embedder in embedders:
                made = with_stage(replace(start, chunker=chunker, embedder=embedder), "retrieve", retrieval)
                for text in (None, *space.rerankers):
                    one = with_stage(made, "rerank", text)
                    found[one.name] = one
    return list(found.values())


def blamed(remedies: Iterable[Remedy]) -> tuple[Phase, ...]:
    """The phases that could mend what most traces of a run suffer from; none where retrieval is not to blame."""
    wanted = {
        phase for remedy in remedies if remedy.share.mean >= SHARE for phase in BLAME.get(remedy.kind, ())
    }
    return tuple(phase for phase in PHASES if phase in wanted)


def budgets(bounds: Iterable[Bound]) -> tuple[str, ...]:
    """Selections that keep to a bound on tokens."""
    return tuple(
        f"budget({int(bound.value)})" for bound in bounds if bound.name == "tokens" and bound.value >= 1
    )
