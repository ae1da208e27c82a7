"""The linter for six common retrieval pitfalls, looked for in a pipeline configuration or in a run."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec
from msgspec import Struct

from ragfault.io.runs.run import Run
from ragfault.model.errors import RunError, UsageError
from ragfault.model.expressions import parse_expression
from ragfault.model.records import Trace
from ragfault.retrieval.chunking.chunker import load_chunker
from ragfault.retrieval.index import IndexManifest
from ragfault.retrieval.pipeline_config import (
    UNFITTED_SUFFIX,
    PipelineConfig,
    check_pipeline_config,
    load_config_embedder,
    matches_embedder,
    read_pipeline_config,
)
from ragfault.retrieval.selection import COMPLEXITY_COUNTS
from ragfault.retrieval.stage_registry import get_stage_kind
from ragfault.text.number_format import format_percent

PitfallName = Literal[
    "lost in the middle",
    "static chunk size",
    "dense only",
    "filter after retrieval",
    "nothing monitored",
    "embedder changed",
]

TUNING_FILE = "search.json"
"""Result that `tune pipeline` writes next to the pipeline it recommends."""
MAX_CHUNKS = 8
"""More chunks than this, best first, and those in the middle are read worst."""
SIZE_TOLERANCE, STATIC_SHARE = 0.03, 0.5
"""Chunks are of a static size where at least `MOST` of them are within `EVEN` of one length."""
MIN_CHUNKS = 20
"""Fewer chunks say nothing about sizes."""
SEARCH_WORDS = ("retriev", "search", "dense", "sparse", "bm25", "hybrid", "vector", "fus")
LEXICAL_WORDS = ("sparse", "bm25", "hybrid", "fus", "keyword", "lexical")
DENSE_WORDS = ("dense", "vector", "embed", "semantic")
FILTER_WORDS = ("filter", "restrict", "infer")
REORDER_WORDS = ("reorder",)
EMBEDDER_KEYS = ("embedder", "embedding_model")
"""Keys of metadata that name the embedder."""

COUNT_ARGUMENTS = {"top": (0, "k"), "diverse": (0, "k"), "rerank": (1, "k")}
"""Stage → where the number stands that bounds how many chunks it leaves."""
COUNT_DEFAULTS = {"top": 10, "diverse": 10}
"""Default number of chunks of a stage."""

PITFALL_REMEDIES: dict[PitfallName, str] = {
    "lost in the middle": 'leave fewer chunks (select = "top(5)"), or put the best at both ends (reorder = "reorder")',
    "static chunk size": "cut at sentences, headings or changes of meaning; `ragfault tune pipeline` measures the gain",
    "dense only": 'search for words, too: retrieve = "hybrid"',
    "filter after retrieval": "put the filter before the stage that retrieves, so that k chunks are left that meet it",
    "nothing monitored": "set thresholds in ragfault.toml, and evaluate with metrics of retrieval",
    "embedder changed": "index the corpus again with the embedder that queries are embedded with",
}


class Pitfall(Struct, frozen=True, kw_only=True):
    """One of the six pitfalls, whether it was detected, and the evidence."""

    name: PitfallName
    detected: bool
    evidence: str
    """What was checked, and the finding."""
    remedy: str


def lint(target: PipelineConfig | Run | str | Path, index: str | Path | None = None) -> tuple[Pitfall, ...]:
    """Look for the six pitfalls in a pipeline (its file or configuration) or in a run.

    An `index` in a folder is compared with the embedder of a pipeline. A pitfall that cannot be checked counts as not
    detected, and its evidence says so. Raises InputError where a file is no pipeline, RunError where a folder is no run
    and no index.

    >>> found = lint(PipelineConfig(chunker="fixed(512)", embedder="latent", stages={"find": "dense(k=20)"}))
    >>> [one.name for one in found if one.detected]
    ['lost in the middle', 'static chunk size', 'dense only']
    """
    if isinstance(target, (str, Path)):
        path = Path(target)
        if path.is_dir():
            target = Run.open(path)
        else:
            target = read_pipeline_config(path)
            return _lint_config(target, index, path)
    if isinstance(target, Run):
        return _lint_run(target)
    check_pipeline_config(target)
    return _lint_config(target, index, None)


def _lint_config(config: PipelineConfig, index: str | Path | None, path: Path | None) -> tuple[Pitfall, ...]:
    texts = list(config.stages.values())
    steps = [get_stage_kind(text) for text in texts]
    many, ordered = _count_chunks_left(config), "reorder" in steps
    kinds = [parse_expression(text).name for text, step in zip(texts, steps, strict=True) if step == "retrieve"]
    late = [text for text, step in zip(texts, steps, strict=True) if step == "filter"]
    late = [text for text in late if texts.index(text) > steps.index("retrieve")]
    evidence = f"at most {many} chunks are left, {'put in order by a stage' if ordered else 'best first'}"
    name = parse_expression(config.chunker).name
    # a measurement against the alternatives is worth more than a rule of thumb
    suspect, measured = (False, "; `tune` recommends it") if _is_recommended(config, path) else (True, "")
    return (
        _make_pitfall("lost in the middle", suspect and many > MAX_CHUNKS and not ordered, evidence + measured),
        _make_pitfall("static chunk size", suspect and name == "fixed", f'chunker = "{config.chunker}"{measured}'),
        _make_pitfall(
            "dense only", suspect and kinds == ["dense"], f"the stages that retrieve: {', '.join(kinds)}{measured}"
        ),
        _make_pitfall(
            "filter after retrieval",
            bool(late),
            f'"{late[0]}" comes after the stage that retrieves' if late else "no filter behind the search",
        ),
        _check_monitored(path),
        _check_index_embedder(config, index),
    )


class _TunedPipeline(Struct):
    """The part of a tuning that `lint` reads."""

    config: PipelineConfig


def _is_recommended(config: PipelineConfig, path: Path | None) -> bool:
    """Tell whether the tuning next to a pipeline file recommends that pipeline."""
    if path is None:
        return False
    try:
        tuned = msgspec.json.decode((path.parent / TUNING_FILE).read_bytes(), type=_TunedPipeline)
    except (OSError, msgspec.MsgspecError):
        return False
    return tuned.config.name == config.name


def _count_chunks_left(config: PipelineConfig) -> int:
    """Return the largest number of chunks that a pipeline returns."""
    many = 0
    for text in config.stages.values():
        name = parse_expression(text).name
        if get_stage_kind(text) == "retrieve":
            many = _read_number(text, 0, "k", 100)
        elif name in COUNT_ARGUMENTS:
            many = min(many, _read_number(text, *COUNT_ARGUMENTS[name], many))
        elif name == "adaptive":
            many = min(many, COMPLEXITY_COUNTS[-1][1])
        elif name == "budget":
            # Chunks are half as long as they may be, or longer.
            many = min(many, -(-2 * _read_number(text, 0, "tokens", 1) // load_chunker(config.chunker).size))
    return many


def _read_number(text: str, position: int, key: str, default: int) -> int:
    """Return an integer among the values of a stage. Raises UsageError for any other value."""
    _, values, options, _ = parse_expression(text)
    number = options.get(key, values[position] if len(values) > position else None)
    if number is None:
        return min(default, COUNT_DEFAULTS.get(parse_expression(text).name, default))
    if isinstance(number, bool) or not isinstance(number, int):
        raise UsageError(f'the stage "{text}" cannot be made: {key} is a whole number, got {number}.')
    return number


def _check_monitored(path: Path | None) -> Pitfall:
    """Look for thresholds or targets in a settings file beside the pipeline."""
    if path is None:
        return _make_pitfall("nothing monitored", False, "not checked: a configuration does not state its monitoring")
    beside = path.parent / "ragfault.toml"
    try:
        settings = tomllib.loads(beside.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return _make_pitfall("nothing monitored", False, "not seen: no ragfault.toml is next to it")
    has_thresholds = bool(settings.get("gate", {}).get("thresholds") or settings.get("targets"))
    return _make_pitfall(
        "nothing monitored",
        not has_thresholds,
        f"{beside.name} sets {'thresholds or targets' if has_thresholds else 'no thresholds and no targets'}",
    )


def _check_index_embedder(config: PipelineConfig, index: str | Path | None) -> Pitfall:
    """Compare the embedder of an index with that of the pipeline."""
    embedder = load_config_embedder(config)
    if index is None:
        return _make_pitfall("embedder changed", False, "not seen: name the index with --index")
    try:
        manifest = msgspec.json.decode((Path(index) / "index.json").read_bytes(), type=IndexManifest)
    except (OSError, msgspec.MsgspecError) as error:
        raise RunError(f"no index at {index}: {error}.") from None
    fingerprint = embedder.fingerprint if embedder else ""
    same = bool(manifest.embedder) and matches_embedder(fingerprint, manifest.embedder or "")
    shown_embedder = fingerprint.removesuffix(UNFITTED_SUFFIX) or "nothing"
    evidence = f"the pipeline embeds with {shown_embedder}, the index was made with {manifest.embedder or 'nothing'}"
    return _make_pitfall("embedder changed", bool(fingerprint) and not same, evidence)


def _lint_run(run: Run) -> tuple[Pitfall, ...]:
    traces = list(run.traces())
    timed = [[(step.name or step.id).casefold() for step in trace.steps] for trace in traces if trace.steps]
    return (
        _check_middle(traces),
        _check_sizes(traces),
        _check_dense_only(timed),
        _check_late_filters(timed),
        _check_metrics(run),
        _check_embedders(traces),
    )


def _check_middle(traces: Sequence[Trace]) -> Pitfall:
    counts = [len(trace.chunks) for trace in traces if trace.chunks is not None]
    if not counts:
        return _make_pitfall("lost in the middle", False, "not seen: no trace has chunks")
    risky = [trace for trace in traces if trace.chunks and len(trace.chunks) > MAX_CHUNKS and not _is_reordered(trace)]
    share = f"{len(risky):,} of {len(counts):,} have more than {MAX_CHUNKS}"
    evidence = f"{median(counts):g} chunks a trace in the median; {share}"
    return _make_pitfall("lost in the middle", len(risky) > 0.1 * len(counts), f"{evidence}, best first")


def _is_reordered(trace: Trace) -> bool:
    """Return True where a stage reordered the chunks, or their scores do not fall."""
    if any(mark in (step.name or step.id).casefold() for step in trace.steps or () for mark in REORDER_WORDS):
        return True
    scores = [chunk.score for chunk in trace.chunks or () if chunk.score is not None]
    return scores != sorted(scores, reverse=True)


def _check_sizes(traces: Sequence[Trace]) -> Pitfall:
    chunks = {chunk.id: len(chunk.text) for trace in traces for chunk in trace.chunks or () if chunk.kind == "text"}
    sizes = sorted(chunks.values())
    if len(sizes) < MIN_CHUNKS:
        return _make_pitfall(
            "static chunk size", False, f"not seen: {len(sizes)} different chunks say nothing about sizes"
        )
    best, start = (0, 0), 0
    for index, size in enumerate(sizes):
        while sizes[start] < size * (1 - SIZE_TOLERANCE):
            start += 1
        best = max(best, (index - start + 1, size))
    share = best[0] / len(sizes)
    return _make_pitfall(
        "static chunk size",
        share >= STATIC_SHARE,
        f"{format_percent(share)} of {len(sizes):,} chunks are within "
        f"{format_percent(SIZE_TOLERANCE)} of {best[1]:,} characters",
    )


def _check_dense_only(stage_names: Sequence[Sequence[str]]) -> Pitfall:
    names = list(dict.fromkeys(name for names_of_trace in stage_names for name in names_of_trace))
    if not any(mark in name for name in names for mark in DENSE_WORDS):
        return _make_pitfall("dense only", False, f"not seen: {_describe_stages(names)}")
    lexical = any(mark in name for name in names for mark in LEXICAL_WORDS)
    return _make_pitfall("dense only", not lexical, _describe_stages(names))


def _describe_stages(names: Sequence[str]) -> str:
    return f"the stages of its traces: {', '.join(names)}" if names else "its traces do not record their stages"


def _check_late_filters(stage_names: Sequence[Sequence[str]]) -> Pitfall:
    if not stage_names:
        return _make_pitfall("filter after retrieval", False, f"not seen: {_describe_stages([])}")
    late: Counter[str] = Counter()
    for names in stage_names:
        searched = next((i for i, name in enumerate(names) if any(mark in name for mark in SEARCH_WORDS)), len(names))
        late.update(name for name in dict.fromkeys(names[searched + 1 :]) if any(mark in name for mark in FILTER_WORDS))
    if not late:
        return _make_pitfall("filter after retrieval", False, "no filter behind the search in any trace")
    name, count = late.most_common(1)[0]
    return _make_pitfall(
        "filter after retrieval", True, f'the stage "{name}" comes behind the search in {count:,} traces'
    )


def _check_metrics(run: Run) -> Pitfall:
    retrieval_metrics = [measure.name for measure in run.manifest.metrics if measure.layer == "retrieval"]
    evidence = (
        f"{len(retrieval_metrics)} metrics of retrieval were computed"
        if retrieval_metrics
        else "no metric of retrieval was computed"
    )
    return _make_pitfall("nothing monitored", not retrieval_metrics, evidence)


def _check_embedders(traces: Sequence[Trace]) -> Pitfall:
    """Look for different embedders of queries and chunks in their metadata."""
    embedders = Counter(_read_embedder(trace.metadata) for trace in traces)
    embedder_counts = Counter(_read_embedder(chunk.metadata) for trace in traces for chunk in trace.chunks or ())
    names = {name for name in (*embedders, *embedder_counts) if name}
    if not names:
        return _make_pitfall("embedder changed", False, "not seen: no metadata names the embedder")
    evidence = f"embedders named in the metadata: {', '.join(sorted(names))}"
    return _make_pitfall("embedder changed", len(names) > 1, evidence)


def _read_embedder(metadata: dict[str, object]) -> str:
    return next((str(metadata[key]) for key in EMBEDDER_KEYS if metadata.get(key)), "")


def _make_pitfall(name: PitfallName, detected: bool, evidence: str) -> Pitfall:
    return Pitfall(name=name, detected=detected, evidence=evidence, remedy=PITFALL_REMEDIES[name])
