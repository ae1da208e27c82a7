"""The recipe of a pipeline: all of it as text, in a file `pipeline.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ragfault.errors import InputError, UnknownName, UsageError
from ragfault.records import Document
from ragfault.retrieval.calls import read_call
from ragfault.retrieval.chunking import chunker
from ragfault.retrieval.embedders import load_embedder
from ragfault.retrieval.index import Index
from ragfault.retrieval.pipeline import Pipeline
from ragfault.retrieval.stages import STEPS, Step, check_stage, make_stage, step_of

__all__ = [
    "Recipe",
    "build_index",
    "cook",
    "embedder_of",
    "load_pipeline",
    "made_by",
    "read_recipe",
    "with_stage",
    "write_recipe",
]

TABLES = {"index": ("chunker", "embedder"), "stages": None}
"""Tables of the file with their keys; stages have names of the user's own."""
NOTHING = "none"
UNFITTED = " unfitted"
"""Ends the fingerprint of an embedder that has seen no corpus yet."""


class Recipe(Struct, frozen=True, kw_only=True):
    """How a corpus is cut, embedded and searched, each part in the grammar of calls."""

    chunker: str = "recursive(512)"
    embedder: str = NOTHING
    """"none": it is searched by words alone."""
    stages: dict[str, str] = field(default_factory=lambda: {"retrieve": "sparse", "select": "top(10)"})
    """Name of the stage → what it is, in the order in which they run."""

    @property
    def name(self) -> str:
        """It in a line."""
        parts = (self.chunker, *(() if self.embedder == NOTHING else (self.embedder,)), *self.stages.values())
        return " · ".join(parts)

    def stage(self, step: Step) -> str | None:
        """The first stage of a step; None where it has none."""
        return next((text for text in self.stages.values() if step_of(text) == step), None)


def with_stage(recipe: Recipe, step: Step, text: str | None) -> Recipe:
    """The recipe with another stage in place of those of a step; None leaves the step out.

    A step that it had not comes where it belongs.

    >>> with_stage(Recipe(), "rerank", "rerank(lexical)").stages
    {'retrieve': 'sparse', 'rerank': 'rerank(lexical)', 'select': 'top(10)'}
    """
    stages = {name: held for name, held in recipe.stages.items() if step_of(held) != step}
    if text is not None:
        stages[step] = text
        order = {name: STEPS.index(step_of(held)) for name, held in stages.items()}
        stages = {name: stages[name] for name in sorted(stages, key=order.__getitem__)}
    return replace(recipe, stages=stages)


def read_recipe(path: str | Path) -> Recipe:
    """The recipe in a file.

    Raises InputError where it cannot be read or a value is of the wrong kind, UnknownName for a table, key, stage,
    chunker or embedder that does not exist, UsageError where no stage retrieves.
    """
    place = Path(path)
    try:
        found = tomllib.loads(place.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {place}: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{place} is not TOML: {error}") from None
    for name, table in found.items():
        _check_table(place, name, table)
    recipe = Recipe(
        **{key: found.get("index", {}).get(key, getattr(Recipe(), key)) for key in ("chunker", "embedder")},
        stages=found.get("stages", {}),
    )
    check_recipe(recipe, str(place))
    return recipe


def _check_table(place: Path, name: str, table: Any) -> None:
    if name not in TABLES:
        raise UnknownName(f"table of {place}", name, TABLES)
    if not isinstance(table, dict):
        raise InputError(f"{place}: {name} is a table. Write [{name}] and its keys below it.")
    known = TABLES[name]
    for key, value in table.items():
        if known is not None and key not in known:
            raise UnknownName(f"key of [{name}] in {place}", key, known)
        if not isinstance(value, str):
            raise InputError(f'{place}: {key} of [{name}] should be a text such as "top(5)", not {value!r}.')


def check_recipe(recipe: Recipe, where: str = "the recipe") -> None:
    """Refuse a recipe that cannot be cooked, before anything is computed."""
    steps = {name: step_of(text) for name, text in recipe.stages.items()}
    if "retrieve" not in steps.values():
        raise UsageError(f'{where} has no stage that retrieves. Add one, such as: retrieve = "hybrid"')
    chunker(recipe.chunker)
    embedder_of(recipe)
    for text in recipe.stages.values():
        if check_stage(text).name in ("dense", "hybrid", "diverse") and recipe.embedder == NOTHING:
            raise UsageError(
                f'{where} has the stage "{text}" and no embedder. Name one, such as: embedder = "latent"'
            )


def write_recipe(recipe: Recipe, comment: str = "") -> str:
    """The recipe as TOML, below comment lines.

    >>> print(write_recipe(Recipe(chunker="sentences(256)")).strip())
    [index]
    chunker = "sentences(256)"
    embedder = "none"
    <BLANKLINE>
    [stages]
    retrieve = "sparse"
    select = "top(10)"
    """
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    lines += ["[index]", f"chunker = {_quoted(recipe.chunker)}", f"embedder = {_quoted(recipe.embedder)}"]
    lines += ["", "[stages]"]
    lines += [f"{_key(name)} = {_quoted(text)}" for name, text in recipe.stages.items()]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A basic string of TOML: JSON's, whose escapes TOML shares."""
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007F")


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else _quoted(name)


def embedder_of(recipe: Recipe) -> Any:
    """The embedder of a recipe, not yet fitted; None where it has none."""
    if recipe.embedder == NOTHING:
        return None
    call = read_call(recipe.embedder)
    try:
        return load_embedder(call.name, *call.values, **call.options)
    except TypeError as error:
        raise UsageError(f'the embedder "{recipe.embedder}" cannot be made: {error}.') from None


def build_index(recipe: Recipe, corpus: Iterable[Document]) -> Index:
    """The index of a recipe: documents cut and embedded.

    Raises InputError where the corpus is empty, has no text, or two documents have one id.
    """
    documents = tuple(corpus)
    seen: set[str] = set()
    for document in documents:
        if document.id in seen:
            raise InputError(f'two documents have the id "{document.id}": give each its own.')
        seen.add(document.id)
    if not documents:
        raise InputError("the corpus holds no document.")
    cut = chunker(recipe.chunker)
    chunks = [chunk for document in documents for chunk in cut(document)]
    return Index.build(chunks, embedder_of(recipe), chunker=recipe.chunker)


def cook(recipe: Recipe, index: Index) -> Pipeline:
    """The pipeline of a recipe over an index."""
    return Pipeline({name: make_stage(text, index) for name, text in recipe.stages.items()})


def load_pipeline(path: str | Path, source: Iterable[Document] | Index) -> Pipeline:
    """The pipeline that a file describes, over the documents of a corpus or over an index that is there already.

    Raises what `read_recipe` and `build_index` raise, and UsageError where the index was made by another chunker or
    another embedder than the file names: cut and embedded otherwise, it is another pipeline.
    """
    recipe = read_recipe(path)
    if not isinstance(source, Index):
        return cook(recipe, build_index(recipe, source))
    made = source.making
    if made.chunker and made.chunker != recipe.chunker:
        raise UsageError(
            f"the index was cut by {made.chunker}, and {path} says {recipe.chunker}. Index the corpus again."
        )
    _same_embedder(recipe, source, path)
    return cook(recipe, source)


def _same_embedder(recipe: Recipe, index: Index, path: str | Path) -> None:
    wanted, held = embedder_of(recipe), index.making.embedder
    if wanted is None or held is None:
        if wanted is not None:
            raise UsageError(
                f"the index has no embedder, and {path} says {recipe.embedder}. Index the corpus again."
            )
        return
    if not made_by(wanted.fingerprint, held):
        raise UsageError(
            f"the index was made with {held}, and {path} says {wanted.fingerprint.removesuffix(UNFITTED)}. "
            "Index the corpus again with the new embedder."
        )


def made_by(asked: str, held: str) -> bool:
    """Whether the embedder of one fingerprint is that of another; one that is not fitted yet knows not all of its own.

    >>> made_by("latent/1 dimensions=8 unfitted", "latent/1 dimensions=8 fitted=ab12")
    True
    >>> made_by("endpoint:text-embedding-3", "endpoint:text-embedding-3-small")
    False
    """
    known = asked.removesuffix(UNFITTED)
    return held == asked or (known != asked and held.startswith(f"{known} fitted="))
