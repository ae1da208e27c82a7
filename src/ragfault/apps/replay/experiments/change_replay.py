"""The change between two runs, divided among the parts of the system: each is swapped on sampled pairs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from ragfault.apps.replay.asking import AskedRequest, Asker, RequestSettings, build_text_redactor, read_settings
from ragfault.apps.replay.experiments.experiment import Experiment, ExperimentAnswers, PlannedQuery, ask_experiment
from ragfault.apps.replay.planning import redact_together
from ragfault.apps.replay.rating import AnswerRater, load_run_judge
from ragfault.apps.replay.records import ChangeReplay, ChangeShare
from ragfault.apps.replay.requests.chunk_places import RequestRefused
from ragfault.apps.replay.requests.pooled import read_templates, share_writers, show_chunks
from ragfault.apps.replay.requests.request_template import RequestTemplate
from ragfault.apps.replay.settings import ReplaySettings
from ragfault.comparison.ablation.attribution import EffectOptions, ExperimentValues, attribute_change, factorial_design
from ragfault.comparison.ablation.parts import MetricAttribution, PartEffect
from ragfault.comparison.paired_runs import PairedRuns
from ragfault.io.redaction import Redactor
from ragfault.io.runs.run import MetricInfo
from ragfault.model.errors import UsageError
from ragfault.model.records import Chunk, ConversationTurn, Trace

PAIRS_OF_CHANGE = 50
"""Pairs that are asked in each configuration: with two parts at most 200 calls."""
RIGHT_ANSWERS = MetricInfo("right answers", "generation")
KEY_FIELDS = ("reference", "facts", "answerable", "gold")
"""What says whether an answer is right; the gold of a side goes with its chunks."""

PARTS = ("chunks", "prompt", "settings", "model", "app")
"""Parts in the order in which they are named. The prompt is all of the messages but the chunks."""


class PairedRequest(NamedTuple):
    """The two traces of a query, and what differs between their requests."""

    traces: tuple[Trace, Trace]
    templates: tuple[RequestTemplate | str | None, RequestTemplate | str | None]
    """None for an app of the user."""
    cluster: int

    def show(self, prompt: int, chunks: int) -> tuple[ConversationTurn, ...]:
        """Return the request with the prompt of one side and the chunks of one; raises RequestRefused."""
        template = self.templates[prompt]
        if prompt == chunks or template is None:
            return () if template is None else self.traces[prompt].messages or ()
        return show_chunks(template, self.traces[chunks].chunks or ())

    def list_parts(self) -> set[str]:
        """List the parts that differ; raises RequestRefused where they cannot be told apart."""
        chunks = [_list_texts(trace.chunks) for trace in self.traces]
        if None in self.templates:
            return {"chunks"} if chunks[0] != chunks[1] else set()
        for template in self.templates:
            if isinstance(template, str):
                raise RequestRefused(template)
        parts = {"prompt"} if self.show(0, 1) != self.show(1, 1) else set()
        parts |= {"chunks"} if self.show(1, 0) != self.show(1, 1) else set()
        return parts | ({"settings"} if read_settings(self.traces[0]) != read_settings(self.traces[1]) else set())


class PlannedChange(NamedTuple):
    """A change, before the first call."""

    experiment: Experiment
    parts: tuple[str, ...]
    changed: int
    """Pairs whose requests differ."""


def plan_change(
    paired: PairedRuns, settings: ReplaySettings, *, needs_messages: bool, has_other: bool
) -> PlannedChange:
    """Plan the requests of a random sample of the pairs whose requests differ, in each configuration of the parts.

    `has_other` says that another model or app answered for the baseline. A pair with the same request on both sides
    has the same answer, and needs no call: nothing of it can have broken.
    Raises UsageError where the requests of no pair differ, or none can be changed exactly.
    """
    places = [
        place
        for place, old, new in paired.iterate_pairs(np.arange(len(paired.pairing)))
        if has_other or _differ(old, new, needs_messages)
    ]
    if not places:
        raise UsageError(
            f"the {len(paired.pairing):,} pairs have the same requests in both runs: what changed comes after the "
            "model, or is the model itself (--before PROVIDER:MODEL)."
        )
    count = PAIRS_OF_CHANGE if settings.sample is None else settings.sample
    sampled = sorted(random.Random(settings.seed).sample(places, count)) if 0 < count < len(places) else places
    pairs = list(_read_pairs(paired, sampled, settings, needs_messages=needs_messages))
    differing, reasons = set(), {}
    for number, pair in enumerate(pairs):
        try:
            differing |= pair.list_parts()
        except RequestRefused as error:
            reasons[number] = str(error)
    answering = "model" if needs_messages else "app"
    parts = tuple(part for part in PARTS if part in differing or (part == answering and has_other))
    if not parts:
        reason = next(iter(reasons.values()), "the requests are the same but for white space")
        raise UsageError(f"no request of {len(pairs):,} sampled pairs can be divided into parts: {reason}.")
    masks = factorial_design(len(parts)).masks
    queries = [
        PlannedQuery(pair.traces[1], refused=reasons[number]) if number in reasons else _plan_pair(pair, parts, masks)
        for number, pair in enumerate(pairs)
    ]
    askers = tuple(mask >> parts.index(answering) & 1 for mask in masks) if has_other else ()
    return PlannedChange(Experiment(_name_masks(masks, parts), tuple(queries), askers), parts, len(places))


def _list_texts(chunks: Sequence[Chunk] | None) -> list[str]:
    return [chunk.text for chunk in chunks or ()]


def _differ(old: Trace, new: Trace, needs_messages: bool) -> bool:
    """Return whether the requests of a pair differ."""
    if not needs_messages:
        return _list_texts(old.chunks) != _list_texts(new.chunks)
    return (old.messages, read_settings(old)) != (new.messages, read_settings(new))


def _read_pairs(
    paired: PairedRuns, places: Sequence[int], settings: ReplaySettings, *, needs_messages: bool
) -> Iterator[PairedRequest]:
    """Read pairs with the templates of their requests, each side's read together."""
    redactor = None if settings.redact is None else Redactor(settings.redact)
    read = sorted(paired.iterate_pairs(np.array(places)), key=lambda item: item[0])
    sides: list[tuple[Trace, Trace]] = []
    for _, *pair in read:
        old, new = pair if redactor is None else (redact_together(redactor, trace)[0] for trace in pair)
        sides.append((_adopt_key(old, new), _adopt_key(new, old)))
    templates: list[list[RequestTemplate | str | None]] = [
        [*read_templates([pair[side] for pair in sides])] if needs_messages else [None] * len(sides) for side in (0, 1)
    ]
    clusters = paired.pairing.clusters
    for number, ((place, _, _), traces) in enumerate(zip(read, sides, strict=True)):
        cluster = place if clusters is None else int(clusters[place])
        old_template, new_template = templates[0][number], templates[1][number]
        if old_template is None or new_template is None:
            yield PairedRequest(traces, (None, None), cluster)
        else:
            own = share_writers(old_template, new_template), share_writers(new_template, old_template)
            yield PairedRequest(traces, own, cluster)


def _adopt_key(trace: Trace, other: Trace) -> Trace:
    """Return a trace with the answer key that only its partner has."""
    missing = {name: getattr(other, name) for name in KEY_FIELDS if getattr(trace, name) is None}
    return replace(trace, **missing)


def _name_masks(masks: Sequence[int], parts: Sequence[str]) -> tuple[str, ...]:
    names = ["+".join(part for at, part in enumerate(parts) if mask >> at & 1) for mask in masks]
    return ("baseline", *names[1:-1], "candidate")


def _plan_pair(pair: PairedRequest, parts: Sequence[str], masks: Sequence[int]) -> PlannedQuery:
    """Plan the request of a pair in each configuration."""
    settings: tuple[RequestSettings, RequestSettings] = (read_settings(pair.traces[0]), read_settings(pair.traces[1]))
    requests = []
    try:
        for mask in masks:
            # A part that is the same everywhere is the candidate's.
            side = {part: mask >> parts.index(part) & 1 if part in parts else 1 for part in PARTS}
            trace = replace(pair.traces[side["chunks"]], id=pair.traces[1].id, query=pair.traces[1].query)
            shown = pair.show(side["prompt"], side["chunks"])
            requests.append(AskedRequest(shown, trace, trace.chunks or (), 1, settings[side["settings"]]))
    except RequestRefused as error:
        return PlannedQuery(pair.traces[1], refused=str(error))
    return PlannedQuery(pair.traces[1], tuple(requests), cluster=pair.cluster)


def replay_change(
    paired: PairedRuns, planned: PlannedChange, askers: Sequence[Asker], settings: ReplaySettings
) -> ChangeReplay:
    """Ask the sampled pairs in every configuration, and divide the change of right answers among the parts.

    `askers` answer for the baseline and the candidate, or one of them for both. A part's share is its Shapley value,
    as in `ablate`: shares sum to the whole change, with 95 % intervals by conversation, and tests corrected by Holm.
    """
    experiment, parts, changed = planned
    candidate = paired.runs[1]
    rater = AnswerRater(load_run_judge(candidate.manifest, settings.judge), candidate.manifest.gold)
    answered = ask_experiment(experiment, askers, rater, build_text_redactor(settings.redact))
    attribution = divide_change(answered, parts, settings.seed)
    total = None if attribution.total is None else _build_share(attribution.total, None)
    fall = total.effect if total is not None and total.state == "dropped" else None
    return ChangeReplay(
        baseline=str(paired.runs[0].path),
        candidate=str(candidate.path),
        model=" and ".join(dict.fromkeys(asker.name for asker in reversed(askers))),
        judge=rater.judge.fingerprint,
        parts=parts,
        total=total,
        shares=tuple(_build_share(share, fall) for share in attribution.shares),
        interactions=tuple(_build_share(effect, None) for effect in attribution.interactions),
        sampled=attribution.n,
        changed=changed,
        pairs=len(paired.pairing),
        costs=answered.costs,
        queries=answered.queries,
        refused=experiment.refused,
        usage=askers[-1].usage,
        stopped=answered.stopped,
    )


def divide_change(answered: ExperimentAnswers, parts: Sequence[str], seed: int) -> MetricAttribution:
    """Divide the change of the share of right answers among the parts."""
    values = ExperimentValues(answered.values[:, :, None], answered.clusters)
    design, options = factorial_design(len(parts)), EffectOptions(seed=seed)
    return attribute_change(values, [RIGHT_ANSWERS], parts, design, options)[0]


def _build_share(effect: PartEffect, fall: float | None) -> ChangeShare:
    difference = effect.difference
    return ChangeShare(
        parts=effect.parts,
        effect=difference.mean,
        low=difference.low,
        high=difference.high,
        p=effect.adjusted,
        state=effect.state,
        share=None if fall is None else difference.mean / fall,
    )
