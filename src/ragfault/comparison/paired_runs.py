"""Two runs paired by trace, with human labels and the flakiness of their judge."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import zip_longest

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.comparison.comparability import (
    GOLD_SPANS,
    PART_METRICS,
    describe_mismatches,
    find_mismatches,
    left_out_pairs,
    read_fields,
    rests_on_verdicts,
)
from ragfault.comparison.paired_causes import CausePair, pair_causes
from ragfault.comparison.pairing import (
    RunContents,
    count_missing_marks,
    load_texts,
    pair_traces,
    read_chunks,
    read_contents,
)
from ragfault.comparison.recording.answer_pairs import differ_in_talk, mark_places, read_answer_pairs
from ragfault.comparison.recording.finders import find_recording_mismatches
from ragfault.comparison.records import PairMismatch
from ragfault.comparison.renamed_ids import (
    ScoreView,
    drop_claims,
    find_other_keys,
    find_renamed_ids,
    judge_alone,
    read_chunk_levels,
    rename_chunks,
    score_view,
)
from ragfault.comparison.run_profile import RunProfile, profile_run
from ragfault.diagnosis.run_table import RunTable, list_text_warnings
from ragfault.diagnosis.score_matrix import SCORED, UNDEFINED, metric_name
from ragfault.io.runs.run import SAMPLE_TRACES, AnyRun, MetricInfo, Run, open_run
from ragfault.io.runs.samples import sample_runs
from ragfault.labels.correction import LabelValues, PairedLabels
from ragfault.labels.judges.flakiness import JudgeFlakiness, check_judge
from ragfault.labels.records import LabelProvenance
from ragfault.metrics.catalog import get_definitions
from ragfault.model.errors import RunError, UsageError
from ragfault.model.gold_evidence import apply_gold
from ragfault.model.records import RelevanceLevel, Trace, Verdicts
from ragfault.text.notices import Stretch


def check_comparable(baseline: Run, candidate: Run, *, anyway: bool = False) -> tuple[str, ...]:
    """Raise RunError for runs of different judges or metric parameters; with `anyway` return warnings instead."""
    old, new = baseline.manifest, candidate.manifest
    warnings = []
    if old.judge != new.judge:
        message = f"{baseline.path} was judged by {old.judge}, {candidate.path} by {new.judge}"
        if not anyway:
            raise RunError(
                f"{message}: the judges could cause a difference. Judge the older one again, as `ragfault compare "
                "OLD NEW --rejudge` does, or compare them anyway with --anyway."
            )
        warnings.append(message)
    if old.gold != new.gold and (baseline.has_gold() or candidate.has_gold()):
        message = f"metrics of {baseline.path} {old.gold} gold, those of {candidate.path} {new.gold} it"
        if not anyway:
            raise RunError(
                f"{message}. Score both alike: ragfault run rescore {baseline.path} -o OTHER --gold {new.gold}, "
                "or compare them anyway with --anyway."
            )
        warnings.append(message)
    names = [{measure.name for measure in manifest.metrics} for manifest in (old, new)]
    if not names[0] & names[1]:
        raise RunError(
            f"{baseline.path} and {candidate.path} share no metric with the same parameters. "
            f"Score one like the other: ragfault run rescore {baseline.path} -o OTHER -m …"
        )
    apart = {metric_name(name) for name in names[0] - names[1]} & {metric_name(name) for name in names[1] - names[0]}
    apart -= {metric_name(name) for name in names[0] & names[1]}
    if apart:
        message = f"the runs score {', '.join(sorted(apart))} with different parameters"
        if not anyway:
            raise RunError(
                f"{message}. Score one like the other (ragfault run rescore), or compare the rest with --anyway."
            )
        warnings.append(message)
    return tuple(warnings)


Rescored = tuple[NDArray[np.bool_], dict[str, NDArray[np.float64]]]
"""Pairs, and the scores of metrics there."""


class PairedRuns:
    """Two runs side by side: their score matrices and their paired rows."""

    def __init__(
        self,
        baseline: Run,
        candidate: Run,
        *,
        anyway: bool = False,
        labels: PairedLabels = (None, None),
        flakiness: JudgeFlakiness | None = None,
    ) -> None:
        judges = [run.manifest.judge for run in (baseline, candidate)]
        self.judge_flakiness = flakiness and check_judge(flakiness, judges)
        """Flakiness of the judge of both runs."""
        self.runs = (baseline, candidate)
        self.matrices = (RunTable(baseline, labels[0]), RunTable(candidate, labels[1]))
        self.warnings = (
            *check_comparable(baseline, candidate, anyway=anyway),
            *list_text_warnings(*self.matrices),
            *describe_sample(baseline, candidate),
        )
        lists = read_chunks(baseline), read_chunks(candidate)
        old, new = map(read_contents, self.runs, lists)
        self.contents: tuple[RunContents, RunContents] = count_missing_marks((old, new))
        self.pairing = pair_traces(baseline, candidate, self.contents, self.matrices[0].clusters)
        self.renamed_ids = find_renamed_ids(self.runs, *self.contents, self.pairing)
        answers = read_answer_pairs(self.runs, self.contents, self.pairing, lists)
        talk = mark_places([pair.place for pair in answers if differ_in_talk(pair)], len(self.pairing))
        self.pairing = replace(self.pairing, other_form=self.pairing.other_form | talk)
        self.mismatch_list = (
            *find_mismatches(self.contents, self.pairing, self.renamed_ids),
            *find_recording_mismatches(self.runs, self.contents, self.pairing, lists, answers),
        )
        self._left_out: dict[str, NDArray[np.bool_]] = {}
        self._chunk_levels: dict[int, list[tuple[RelevanceLevel, ...]]] = {}
        self._ids_and_queries: tuple[list[str], list[str]] | None = None
        self._extra_metrics: dict[str, tuple[MetricInfo, tuple[NDArray[np.float64], NDArray[np.float64]]]] = {}

    @property
    def label_sources(self) -> tuple[LabelProvenance | None, LabelProvenance | None]:
        """Return the provenance of the human labels of each run."""
        old, new = (None if matrix.labels is None else matrix.labels.source for matrix in self.matrices)
        return old, new

    def ids_and_queries(self) -> tuple[list[str], list[str]]:
        """Return the ids and queries of the candidate's traces."""
        if self._ids_and_queries is None:
            table = self.runs[1].to_arrow("traces", ["id", "query"])
            self._ids_and_queries = (table["id"].to_pylist(), table["query"].to_pylist())
        return self._ids_and_queries

    @cached_property
    def failed_alone(self) -> tuple[int, int]:
        """Return how many traces of each run failed or have a blank answer, and have no partner."""
        silent = [np.delete(side.errors | side.blank, self.paired_rows(at)) for at, side in enumerate(self.contents)]
        return int(silent[0].sum()), int(silent[1].sum())

    @cached_property
    def refused(self) -> tuple[list[bool | None], list[bool | None]]:
        """Return whether the answer of each trace of both runs refuses; None where no verdict says."""
        old, new = (
            [None if verdicts.answer is None else verdicts.answer.refused for verdicts in run.verdicts()]
            for run in self.runs
        )
        return old, new

    def find_refusals(self, side: int) -> NDArray[np.bool_]:
        """Return the pairs on which the answer of a side refuses."""
        refused: NDArray[np.bool_] = np.array(self.refused[side], dtype=bool)[self.paired_rows(side)]
        return refused

    @cached_property
    def profiles(self) -> tuple[RunProfile, RunProfile]:
        """Return the profile of each run; the candidate has the baseline's ids where it renamed them."""
        old, new = (range(run.manifest.traces) for run in self.runs)
        return self._profile_rows(old, new)

    def profiles_of(self, mask: NDArray[np.bool_]) -> tuple[RunProfile, RunProfile]:
        """Return the profiles over some of the pairs."""
        old, new = (np.unique(self.paired_rows(side)[mask]).tolist() for side in (0, 1))
        return self._profile_rows(old, new)

    def _profile_rows(self, old: Sequence[int], new: Sequence[int]) -> tuple[RunProfile, RunProfile]:
        ids, documents = ({}, {}) if self.renamed_ids is None else (self.renamed_ids.ids, self.renamed_ids.documents)
        return (
            profile_run(self.contents[0], self.refused[0], old, {}, {}),
            profile_run(self.contents[1], self.refused[1], new, ids, documents),
        )

    def baseline_ids(self, ids: Sequence[str]) -> dict[str, str]:
        """Map ids of the candidate's traces to those of their partners in the baseline."""
        candidate_ids = set(ids)
        names, _ = self.ids_and_queries()
        old = self.runs[0].to_arrow("traces", ["id"])["id"]
        rows = zip(self.pairing.baseline.tolist(), self.pairing.candidate.tolist(), strict=True)
        return {names[new]: old[before].as_py() for before, new in rows if names[new] in candidate_ids}

    def has_metric(self, metric: str) -> bool:
        """Return whether a metric was added to those of the runs."""
        return metric in self._extra_metrics

    def list_added_metrics(self) -> list[str]:
        """List the metrics that were added to those of the runs."""
        return list(self._extra_metrics)

    def add_metric(self, measure: MetricInfo, baseline: NDArray[np.float64], candidate: NDArray[np.float64]) -> None:
        """Add a metric by its values on the pairs, NaN where it has none."""
        self._extra_metrics[measure.name] = (measure, (baseline, candidate))

    def paired_rows(self, side: int) -> NDArray[np.int64]:
        """Return the rows of one run that have a partner."""
        return self.pairing.candidate if side else self.pairing.baseline

    def iterate_pairs(self, places: NDArray[np.int64]) -> Iterator[tuple[int, Trace, Trace]]:
        """Yield some pairs with both traces, in the order in which the second of each is read.

        Where both runs are in one order, two traces are in memory at a time.
        """
        places_by_row: list[dict[int, list[int]]] = [{}, {}]
        for side in (0, 1):
            for row, place in zip(self.paired_rows(side)[places].tolist(), places.tolist(), strict=True):
                places_by_row[side].setdefault(row, []).append(place)
        waiting: tuple[dict[int, Trace], dict[int, Trace]] = ({}, {})
        for row, traces in enumerate(zip_longest(*(run.traces() for run in self.runs))):
            for side, trace in enumerate(traces):
                if trace is None:
                    continue
                for place in places_by_row[side].get(row, ()):
                    other = waiting[1 - side].pop(place, None)
                    if other is None:
                        waiting[side][place] = trace
                    else:
                        yield (place, other, trace) if side else (place, trace, other)

    def values(self, metric: str, side: int) -> NDArray[np.float64]:
        """Return the values of a metric on the paired traces of one run; NaN where it has none or is left out."""
        return np.where(self.left_out(metric), math.nan, self._stored_values(metric, side))

    def find_moved(self, metric: str) -> NDArray[np.bool_]:
        """Return the pairs on which a metric is scored on both sides and differs."""
        moved = self.values(metric, 1) - self.values(metric, 0)
        differing: NDArray[np.bool_] = np.isfinite(moved) & (moved != 0)
        return differing

    def _stored_values(self, metric: str, side: int) -> NDArray[np.float64]:
        if metric in self._extra_metrics:
            return self._extra_metrics[metric][1][side]
        matrix = self.matrices[side]
        at = matrix.column_index(metric)
        if at is None:
            raise UsageError(f"{metric} is not in {self.runs[side].path}.")
        values: NDArray[np.float64] = matrix.values[self.paired_rows(side), at]
        for pairs, scores in self._rescored[side]:
            if metric in scores:
                values = np.where(pairs, scores[metric], values)
        if side and self._rated_alike(metric).any():
            values = np.where(self._rated_alike(metric), self._stored_values(metric, 0), values)
        return values

    def _rated_alike(self, metric: str) -> NDArray[np.bool_]:
        """Return the pairs on which a metric has the baseline's value: nothing but the form of the answer differs."""
        reads_answer = not read_fields(metric).isdisjoint(("answer", "citations"))
        return self.pairing.other_form & self.pairing.same_chunks & reads_answer

    @cached_property
    def _rescored(self) -> tuple[list[Rescored], list[Rescored]]:
        """Return the pairs of each run on which metrics are scored again, and their scores; a later entry goes first.

        Where the keys differ, the judge scores without gold; renamed chunks have the baseline's ids and gold; claims
        within a notice do not count.
        """
        old, new = (
            [
                (mark_places(view.pairs, len(self.pairing)), score_view(run, self.paired_rows(side), view))
                for view in self._list_views(side)
            ]
            for side, run in enumerate(self.runs)
        )
        return old, new

    def _list_views(self, side: int) -> Iterator[ScoreView]:
        """Yield the views from which metrics of a run are scored again."""
        run, known = self.runs[side], get_definitions()
        shared = [name for name in self.shared_names() if metric_name(name) in known]
        if self.other_keys.any():
            names = {measure.name for matrix in self.matrices for measure in matrix.measures}
            judged = [name for name in names if metric_name(name) in known and known[metric_name(name)].verdicts]
            yield ScoreView(judged, np.flatnonzero(self.other_keys).tolist(), judge_alone)
        renamed = self.renamed_ids
        if side and renamed is not None and not renamed.has_own_gold:
            by_gold = [name for name in shared if read_fields(name) & {"gold", GOLD_SPANS}]
            yield ScoreView(by_gold, np.flatnonzero(renamed.pairs).tolist(), self._anchor_gold)
        for mismatch in self.mismatch_list:
            if mismatch.side == side:
                of_claims = [name for name in shared if metric_name(name) in PART_METRICS - {"completeness"}]
                keyed = ~self.other_keys if run.manifest.gold == "apply" else np.zeros(len(self.pairing), dtype=bool)
                yield ScoreView(of_claims, [*mismatch.stretches], _drop_notices(mismatch.stretches, keyed))

    def _anchor_gold(self, pair: int, trace: Trace, verdicts: Verdicts) -> tuple[Trace, Verdicts]:
        """Return a trace of the candidate with the ids, places and gold of the baseline."""
        assert self.renamed_ids is not None
        keys = self.contents[1].trace_keys[self.pairing.candidate[pair]]
        gold = self.contents[0].gold[self.pairing.baseline[pair]]
        return replace(rename_chunks(trace, keys, self.renamed_ids), gold=gold), verdicts

    @cached_property
    def other_keys(self) -> NDArray[np.bool_]:
        """Return the pairs on which gold is not applied: it is not the same on both sides, or names lost ids alone."""
        return find_other_keys(self.runs, self.contents, self.pairing, self.renamed_ids)

    def list_ids(self, side: int) -> list[list[str]]:
        """List the chunk ids that one run retrieved on each pair, in their order."""
        contents = self.contents[side]
        ids = [key.id for key in contents.keys]
        return [[ids[at] for at in contents.trace_keys[row]] for row in self.paired_rows(side).tolist()]

    @cached_property
    def passages(self) -> dict[str, tuple[str, str]]:
        """Return the texts of both runs by chunk id, white space normalized, for ids that stand for one in each."""
        counts = [Counter(key.id for key in contents.keys) for contents in self.contents]
        names = {name for name, count in counts[0].items() if count == 1 == counts[1][name]}
        old, new = (load_texts(run, names) if names else {} for run in self.runs)
        return {name: (old.get(name, ""), new.get(name, "")) for name in names}

    @cached_property
    def keeps_used_texts(self) -> NDArray[np.bool_]:
        """Return the pairs on which the candidate retrieved every text that the baseline's answer draws on."""
        texts = [[key.text or key.id for key in contents.keys] for contents in self.contents]
        used = [
            [place for place, use in enumerate(verdicts.use or ()) if use.used] for verdicts in self.runs[0].verdicts()
        ]
        old, new = self.contents[0].trace_keys, self.contents[1].trace_keys
        rows = zip(self.paired_rows(0).tolist(), self.paired_rows(1).tolist(), strict=True)
        keeps = [
            {texts[0][old[left][place]] for place in used[left]} <= {texts[1][key] for key in new[right]}
            for left, right in rows
        ]
        return np.array(keeps, dtype=bool)

    @cached_property
    def causes(self) -> list[CausePair]:
        """Return whether the answers of each pair are bad, and why."""
        stretches = {mismatch.side: mismatch.stretches for mismatch in self.mismatch_list if mismatch.stretches}
        notices = stretches.get(0, {}), stretches.get(1, {})
        return pair_causes(self.matrices, self.contents, self.pairing, self.other_keys, notices)

    def chunk_levels(self, side: int) -> Sequence[tuple[RelevanceLevel, ...]]:
        """Return the levels of the chunks of one run's traces, with gold applied where it is the same on both sides."""
        if side not in self._chunk_levels:
            self._chunk_levels[side] = list(read_chunk_levels(self.runs[side], self.paired_rows(side), self.other_keys))
        return self._chunk_levels[side]

    def left_out(self, metric: str) -> NDArray[np.bool_]:
        """Return the pairs on which a metric is left out: for a mismatch, or because the pipeline failed there.

        Where retrieval came before the failure, what it retrieved counts.
        """
        if metric not in self._left_out:
            fields, none = read_fields(metric), np.zeros(len(self.pairing), dtype=bool)
            out = left_out_pairs(self.mismatch_list, metric) if self.mismatch_list else none
            for side, contents in enumerate(self.contents):
                rows = self.paired_rows(side)
                if "answer" in fields or "citations" in fields:
                    out = out | contents.errors[rows]
                elif "chunks" in fields:
                    out = out | (contents.errors[rows] & (contents.chunk_counts[rows] <= 0))
            self._left_out[metric] = out
        return self._left_out[metric]

    def find_scoring_mismatch(self) -> PairMismatch | None:
        """Return the mismatch of runs whose verdicts were not made or applied alike; None where they were.

        Such runs are compared only where it is asked for.
        """
        old, new = (run.manifest for run in self.runs)
        if old.judge != new.judge:
            text = f"the baseline was judged by {old.judge}, the candidate by {new.judge}"
        elif old.gold != new.gold and any(run.has_gold() for run in self.runs):
            text = f"metrics of the baseline {old.gold} gold, those of the candidate {new.gold} it"
        else:
            return None
        names = tuple(filter(rests_on_verdicts, self.shared_names()))
        return PairMismatch(kind="judges", pairs=len(self.pairing), share=1.0, sentence=text, left_out=names)

    def find_incomparable(self, metric: str) -> NDArray[np.bool_]:
        """Return the pairs on which the stored values of a metric cannot be compared as they are."""
        if rests_on_verdicts(metric) and self.find_scoring_mismatch() is not None:
            return np.ones(len(self.pairing), dtype=bool)
        out = self.left_out(metric)
        for side, matrix in enumerate(self.matrices):
            at = matrix.column_index(metric)
            if at is not None:
                stored = matrix.values[self.paired_rows(side), at]
                values = self._stored_values(metric, side)
                out = out | ((stored != values) & ~(np.isnan(stored) & np.isnan(values)))
        return out

    def mismatches(self, pair_mask: NDArray[np.bool_], metrics: Sequence[str]) -> tuple[PairMismatch, ...]:
        """Return the mismatches on some of the pairs, with those of the metrics that are left out."""
        return describe_mismatches(self.mismatch_list, pair_mask, metrics)

    def statuses(self, metric: str, side: int) -> NDArray[np.int64]:
        """Return the status codes of a metric on the paired traces of one run; undefined where it is left out."""
        known = np.isfinite(self._stored_values(metric, side))
        at = self.matrices[side].column_index(metric)
        if metric in self._extra_metrics or at is None:
            return np.where(known & ~self.left_out(metric), SCORED, UNDEFINED)
        statuses = self.matrices[side].status[self.paired_rows(side), at]
        for pairs, scores in self._rescored[side]:
            if metric in scores:
                statuses = np.where(pairs, np.where(known, SCORED, UNDEFINED), statuses)
        if side and self._rated_alike(metric).any():
            statuses = np.where(self._rated_alike(metric), self.statuses(metric, 0), statuses)
        return np.where(self.left_out(metric), UNDEFINED, statuses)

    def is_scored(self, metric: str) -> bool:
        """Return whether a metric has a value on any pair of either run, if one that is left out."""
        return any(bool(np.isfinite(self._stored_values(metric, side)).any()) for side in (0, 1))

    def label_values(self, metric: str, side: int) -> LabelValues | None:
        """Return the human label values of a metric on the paired traces of one run; None where there are none."""
        at = None if metric in self._extra_metrics else self.matrices[side].column_index(metric)
        labels = None if at is None else self.matrices[side].label_values(at)
        return None if labels is None else labels.select(self.paired_rows(side))

    def shared_metrics(self) -> list[MetricInfo]:
        """Return the metrics that both runs have, in the order of the candidate."""
        stored = {measure.name for measure in self.matrices[0].measures} - self._extra_metrics.keys()
        mine = [measure for measure in self.matrices[1].measures if measure.name in stored]
        return [*mine, *(measure for measure, _ in self._extra_metrics.values())]

    def shared_names(self) -> list[str]:
        """Return the names of the metrics that both runs have."""
        return [measure.name for measure in self.shared_metrics()]


def _drop_notices(
    stretches: Mapping[int, Sequence[Stretch]], keyed: NDArray[np.bool_]
) -> Callable[[int, Trace, Verdicts], tuple[Trace, Verdicts]]:
    """Return the view of an answer without the claims in its notice; gold is applied on the pairs `keyed`."""
    return lambda pair, trace, verdicts: (
        trace,
        drop_claims(apply_gold(trace, verdicts) if keyed[pair] else verdicts, stretches[pair]),
    )


def pair_runs(
    baseline: AnyRun | PairedRuns,
    candidate: AnyRun | None = None,
    *,
    anyway: bool = False,
    labels: PairedLabels = (None, None),
    flakiness: JudgeFlakiness | None = None,
    sample: int = SAMPLE_TRACES,
) -> PairedRuns:
    """Pair two runs, also by their paths; paired runs are returned as they are, to be shared by analyses.

    With human `labels` of some traces (of the baseline, of the candidate), differences are corrected by them; with
    the `flakiness` of the judge their intervals are wider. Of larger runs without labels about `sample` pairs are drawn
    at random, and a warning says so; 0 takes all.
    """
    if isinstance(baseline, PairedRuns):
        return baseline
    if candidate is None:
        raise UsageError("two runs are compared, and there is one: give baseline and candidate.")
    old, new = sample_runs((open_run(baseline), open_run(candidate)), 0 if any(labels) else sample)
    return PairedRuns(old, new, anyway=anyway, labels=labels, flakiness=flakiness)


def describe_sample(*runs: Run) -> tuple[str, ...]:
    """Return the warning that samples of runs are compared, none where all of each run is."""
    if not any(run.manifest.population for run in runs):
        return ()
    sizes = " and ".join(f"{run.manifest.traces:,} of {run.manifest.population:,} traces" for run in runs)
    return (f"a random sample was compared: {sizes}; --sample 0 takes all",)
