"""The six pitfalls of retrieval, looked for in a pipeline or in what a pipeline left: a run."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec
from msgspec import Struct

from ragfault.errors import RunError, UsageError
from ragfault.records import Trace
from ragfault.retrieval.calls import read_call
from ragfault.retrieval.chunking import chunker
from ragfault.retrieval.index import Making
from ragfault.retrieval.recipes import UNFITTED, Recipe, check_recipe, embedder_of, made_by, read_recipe
from ragfault.retrieval.selecting import SIMPLE
from ragfault.retrieval.stages import step_of
from ragfault.runs import Run

__all__ = ["Pitfall", "lint"]

Name = Literal[
    "lost in the middle",
    "static chunk size",
    "dense only",
    "filter after retrieval",
    "nothing monitored",
    "embedder changed",
]

MANY = 8
"""More chunks than this, best first, and those in the middle are read worst."""
EVEN, MOST = 0.03, 0.5
"""Chunks are of a static size where at least `MOST` of them are within `EVEN` of one length."""
ENOUGH = 20
"""Fewer chunks say nothing about sizes."""
SEARCHES = ("retriev", "search", "dense", "sparse", "bm25", "hybrid", "vector", "fus")
LEXICAL = ("sparse", "bm25", "hybrid", "fus", "keyword", "lexical")
MEANING = ("dense", "vector", "embed", "semantic")
FILTERS = ("filter", "restrict", "infer")
ORDERS = ("reorder",)
MODELS = ("embedder", "embedding_model")
"""Keys of metadata that name the embedder."""

LIMITS = {"top": (0, "k"), "diverse": (0, "k"), "rerank": (1, "k")}
"""Stage → where the number stands that bounds how many chunks it leaves."""
DEFAULTS = {"top": 10, "diverse": 10}
"""What that is where nothing is said."""

REMEDIES: dict[Name, str] = {
    "lost in the middle": 'leave fewer chunks (select = "top(5)"), or put the best at both ends (reorder = "reorder")',
    "static chunk size": "cut at sentences, headings or changes of meaning, and let `ragfault tune` say at which size",
    "dense only": 'search for words, too: retrieve = "hybrid"',
    "filter after retrieval": "put the filter before the stage that retrieves, so that k chunks are left that meet it",
    "nothing monitored": "set bars in ragfault.toml, and evaluate with metrics of retrieval",
    "embedder changed": "index the corpus again with the embedder that queries are embedded with",
}


class Pitfall(Struct, frozen=True, kw_only=True):
    """One of the six, and what was seen of it."""

    name: Name
    found: bool
    evidence: str
    """What was looked at, and what it showed."""
    remedy: str


def lint(target: Recipe | Run | str | Path, index: str | Path | None = None) -> tuple[Pitfall, ...]:
    """Look for the six pitfalls in a pipeline (its file or recipe) or in a run.

    An `index` in a folder is held against the embedder of a pipeline. What cannot be seen is not found, and the
    evidence says so. Raises InputError where a file is no pipeline, RunError where a folder is no run and no index.

    >>> found = lint(Recipe(chunker="fixed(512)", embedder="latent", stages={"find": "dense(k=20)"}))
    >>> [one.name for one in found if one.found]
    ['lost in the middle', 'static chunk size', 'dense only']
    """
    if isinstance(target, (str, Path)):
        place = Path(target)
        if place.is_dir():
            target = Run.open(place)
        else:
            target = read_recipe(place)
            return _of_recipe(target, index, place)
    if isinstance(target, Run):
        return _of_run(target)
    check_recipe(target)
    return _of_recipe(target, index, None)


def _of_recipe(recipe: Recipe, index: str | Path | None, place: Path | None) -> tuple[Pitfall, ...]:
    texts = list(recipe.stages.values())
    steps = [step_of(text) for text in texts]
    many, ordered = _left(recipe), "reorder" in steps
    kinds = [read_call(text).name for text, step in zip(texts, steps, strict=True) if step == "retrieve"]
    late = [text for text, step in zip(texts, steps, strict=True) if step == "filter"]
    late = [text for text in late if texts.index(text) > steps.index("retrieve")]
    said = f"at most {many} chunks are left, {'put in order by a stage' if ordered else 'best first'}"
    name = read_call(recipe.chunker).name
    return (
        _made("lost in the middle", many > MANY and not ordered, said),
        _made("static chunk size", name == "fixed", f'chunker = "{recipe.chunker}"'),
        _made("dense only", kinds == ["dense"], f"the stages that retrieve: {', '.join(kinds)}"),
        _made(
            "filter after retrieval",
            bool(late),
            f'"{late[0]}" stands behind the stage that retrieves' if late else "no filter behind the search",
        ),
        _watched(place),
        _embedded(recipe, index),
    )


def _left(recipe: Recipe) -> int:
    """At most how many chunks a pipeline leaves."""
    many = 0
    for text in recipe.stages.values():
        name = read_call(text).name
        if step_of(text) == "retrieve":
            many = _number(text, 0, "k", 100)
        elif name in LIMITS:
            many = min(many, _number(text, *LIMITS[name], many))
        elif name == "adaptive":
            many = min(many, SIMPLE[-1][1])
        elif name == "budget":
            # Chunks are half as long as they may be, or longer.
            many = min(many, -(-2 * _number(text, 0, "tokens", 1) // chunker(recipe.chunker).size))
    return many


def _number(text: str, place: int, key: str, default: int) -> int:
    """A whole number among the values of a stage. Raises UsageError for anything else."""
    _, values, options = read_call(text)
    found = options.get(key, values[place] if len(values) > place else None)
    if found is None:
        return min(default, DEFAULTS.get(read_call(text).name, default))
    if isinstance(found, bool) or not isinstance(found, int):
        raise UsageError(f'the stage "{text}" cannot be made: {key} is a whole number, got {found}.')
    return found


def _watched(place: Path | None) -> Pitfall:
    """Whether a settings file beside the pipeline sets bars or targets."""
    if place is None:
        return _made("nothing monitored", False, "not seen: a recipe alone does not say what watches it")
    beside = place.parent / "ragfault.toml"
    try:
        held = tomllib.loads(beside.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return _made("nothing monitored", True, "no ragfault.toml with bars or targets lies beside it")
    bars = bool(held.get("gate", {}).get("bars") or held.get("targets"))
    return _made(
        "nothing monitored",
        not bars,
        f"{beside.name} sets {'bars or targets' if bars else 'no bar and no target'}",
    )


def _embedded(recipe: Recipe, index: str | Path | None) -> Pitfall:
    """Whether an index was made with the embedder of the pipeline."""
    wanted = embedder_of(recipe)
    if index is None:
        return _made("embedder changed", False, "not seen: name the index with --index")
    try:
        made = msgspec.json.decode((Path(index) / "index.json").read_bytes(), type=Making)
    except (OSError, msgspec.MsgspecError) as error:
        raise RunError(f"no index at {index}: {error}.") from None
    asked = wanted.fingerprint if wanted else ""
    same = bool(made.embedder) and made_by(asked, made.embedder or "")
    named = asked.removesuffix(UNFITTED) or "nothing"
    said = f"the pipeline embeds with {named}, the index was made with {made.embedder or 'nothing'}"
    return _made("embedder changed", bool(asked) and not same, said)


def _of_run(run: Run) -> tuple[Pitfall, ...]:
    traces = list(run.traces())
    timed = [[timing.name.casefold() for timing in trace.timings] for trace in traces if trace.timings]
    return (
        _middle(traces),
        _sizes(traces),
        _words(timed),
        _late(timed),
        _measured(run),
        _models(traces),
    )


def _middle(traces: Sequence[Trace]) -> Pitfall:
    counts = [len(trace.chunks) for trace in traces if trace.chunks is not None]
    if not counts:
        return _made("lost in the middle", False, "not seen: no trace has chunks")
    bad = [trace for trace in traces if trace.chunks and len(trace.chunks) > MANY and not _reordered(trace)]
    said = f"{median(counts):g} chunks a trace in the median; {len(bad):,} of {len(counts):,} have more than {MANY}"
    return _made("lost in the middle", len(bad) > 0.1 * len(counts), f"{said}, best first")


def _reordered(trace: Trace) -> bool:
    """Whether a stage put the chunks in an order for the reader, or their scores are not falling."""
    if any(mark in timing.name.casefold() for timing in trace.timings or () for mark in ORDERS):
        return True
    scores = [chunk.score for chunk in trace.chunks or () if chunk.score is not None]
    return scores != sorted(scores, reverse=True)


def _sizes(traces: Sequence[Trace]) -> Pitfall:
    chunks = {
        chunk.id: len(chunk.text) for trace in traces for chunk in trace.chunks or () if chunk.kind == "text"
    }
    sizes = sorted(chunks.values())
    if len(sizes) < ENOUGH:
        return _made(
            "static chunk size", False, f"not seen: {len(sizes)} different chunks say nothing about sizes"
        )
    best, at = (0, 0), 0
    for place, size in enumerate(sizes):
        while sizes[at] < size * (1 - EVEN):
            at += 1
        best = max(best, (place - at + 1, size))
    share = best[0] / len(sizes)
    return _made(
        "static chunk size",
        share >= MOST,
        f"{share:.0%} of {len(sizes):,} chunks are within {EVEN:.0%} of {best[1]:,} characters",
    )


def _words(timed: Sequence[Sequence[str]]) -> Pitfall:
    names = list(dict.fromkeys(name for each in timed for name in each))
    if not any(mark in name for name in names for mark in MEANING):
        return _made("dense only", False, f"not seen: {_stages(names)}")
    lexical = any(mark in name for name in names for mark in LEXICAL)
    return _made("dense only", not lexical, _stages(names))


def _stages(names: Sequence[str]) -> str:
    return (
        f"the stages of its traces: {', '.join(names)}" if names else "its traces do not record their stages"
    )


def _late(timed: Sequence[Sequence[str]]) -> Pitfall:
    if not timed:
        return _made("filter after retrieval", False, f"not seen: {_stages([])}")
    bad: Counter[str] = Counter()
    for names in timed:
        searched = next(
            (at for at, name in enumerate(names) if any(mark in name for mark in SEARCHES)), len(names)
        )
        bad.update(
            name for name in dict.fromkeys(names[searched + 1 :]) if any(mark in name for mark in FILTERS)
        )
    if not bad:
        return _made("filter after retrieval", False, "no filter behind the search in any trace")
    name, count = bad.most_common(1)[0]
    return _made(
        "filter after retrieval", True, f'the stage "{name}" comes behind the search in {count:,} traces'
    )


def _measured(run: Run) -> Pitfall:
    held = [measure.name for measure in run.manifest.metrics if measure.layer == "retrieval"]
    said = (
        f"{len(held)} metrics of retrieval were computed" if held else "no metric of retrieval was computed"
    )
    return _made("nothing monitored", not held, said)


def _models(traces: Sequence[Trace]) -> Pitfall:
    """Whether queries and chunks name different embedders in their metadata."""
    asked = Counter(_model(trace.metadata) for trace in traces)
    held = Counter(_model(chunk.metadata) for trace in traces for chunk in trace.chunks or ())
    names = {name for name in (*asked, *held) if name}
    if not names:
        return _made("embedder changed", False, "not seen: no metadata names the embedder")
    said = f"embedders named in the metadata: {', '.join(sorted(names))}"
    return _made("embedder changed", len(names) > 1, said)


def _model(metadata: dict[str, object]) -> str:
    return next((str(metadata[key]) for key in MODELS if metadata.get(key)), "")


def _made(name: Name, found: bool, evidence: str) -> Pitfall:
    return Pitfall(name=name, found=found, evidence=evidence, remedy=REMEDIES[name])
