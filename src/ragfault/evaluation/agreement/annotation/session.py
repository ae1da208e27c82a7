"""Annotation session of one annotator, and the sample of traces that is worth labeling."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

from ragfault.errors import InputError, UsageError
from ragfault.evaluation.agreement.annotation.items import AnnotationItem, create_label, list_choices
from ragfault.evaluation.agreement.human_labels import (
    ANSWER_INDEPENDENT,
    HumanLabel,
    VerdictKey,
    VerdictValue,
    append_label,
    fingerprint_answer,
    list_values,
    read_labels,
    write_labels,
)
from ragfault.io.files import iterate_lines, open_bytes
from ragfault.io.runs import Run
from ragfault.records import Verdicts
from ragfault.stats.clusters import FloatArray

UNIFORM_SHARE = 0.5
"""The share of the picks that is drawn from all traces alike: no trace is without a chance, no weight without end."""

SURE_ERROR = 0.1
"""How wrong a verdict without a probability is taken to be: so often, where the judge is sure."""

METRIC_VERDICTS = {"groundedness": "claim", "context_relevance": "chunk", "chunk_attribution": "citation"}
"""Metric → the verdicts whose doubt is its own."""


class SuggestedTrace(Struct, frozen=True, kw_only=True):
    """A trace that is worth a label."""

    trace: str
    chance: float
    """The chance with which it was drawn."""
    uncertainty: float
    """How far the judge is expected to be wrong on it, as a standard deviation of the metric."""


def shuffle_ids(ids: Sequence[str], seed: int = 0) -> list[str]:
    """The ids in an order drawn at random, the same wherever they stand and whoever asks.

    >>> shuffle_ids(["a", "b", "c"])
    ['a', 'c', 'b']
    """
    key = str(seed).encode()
    return sorted(
        ids, key=lambda name: blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest()
    )


def estimate_uncertainty(verdicts: Verdicts, metric: str) -> float | None:
    """How far the judge is expected to be wrong on one trace; None where the metric has no verdict.

    The standard deviation of a mean of independent verdicts that are each right with the judge's own probability.

    >>> from ragfault.records import ChunkVerdict
    >>> halves = tuple(ChunkVerdict(chunk=name, relevance=0.5, level="medium") for name in "abcd")
    >>> estimate_uncertainty(Verdicts(trace="1", chunk=halves), "context_relevance")
    0.25
    """
    found: list[float] = []
    if METRIC_VERDICTS[metric] == "claim":
        found = [_correct_probability(each.p, each.unsure) for each in verdicts.claim or ()]
    elif METRIC_VERDICTS[metric] == "chunk":
        found = [each.relevance for each in verdicts.chunk or ()]
    else:
        found = [_correct_probability(each.p, each.unsure) for each in verdicts.citation or ()]
    if not found:
        return None
    return math.sqrt(sum(p * (1 - p) for p in found)) / len(found)


def _correct_probability(p: float | None, unsure: bool) -> float:
    return p if p is not None else 0.5 if unsure else SURE_ERROR


def compute_chances(uncertainty: FloatArray, n: int) -> FloatArray:
    """The chance of each trace to be drawn, so that `n` are on average: half alike, half by the judge's doubt.

    Labels narrow a rectified interval by how far the judge errs, and the best chances are in proportion to that
    error (Zrnic & Candès 2024). No chance is above 1, nor below half of that of a plain draw.

    >>> compute_chances(np.array([0.0, 0.1, 0.3, 0.4]), 2).round(3)
    array([0.25 , 0.375, 0.625, 0.75 ])
    """
    size = uncertainty.size
    if n >= size:
        return np.ones(size)
    share = uncertainty / uncertainty.sum() if uncertainty.sum() > 0 else np.full(size, 1 / size)
    wanted = UNIFORM_SHARE / size + (1 - UNIFORM_SHARE) * share
    found: FloatArray = np.minimum(1.0, n * wanted)
    for _ in range(size):
        free = found < 1
        short = n - found.sum()
        if short < 1e-9 or not free.any():
            break
        found = np.minimum(1.0, np.where(free, found * (1 + short / found[free].sum()), 1.0))
    return found


def suggest_traces(run: Run, n: int, metric: str = "groundedness", seed: int = 0) -> list[SuggestedTrace]:
    """The `n` traces of a run whose labels narrow the rectified interval of a metric most, in random order.

    They are drawn, not chosen: each with a chance that grows with the judge's own doubt (`chances`), by one
    systematic draw over the traces in random order. With the chance in each label the estimate stays without bias,
    however wrong the doubts are. Raises UsageError where the judge gives no such verdicts.
    """
    if metric not in METRIC_VERDICTS:
        raise UsageError(f"labels can be suggested for {', '.join(METRIC_VERDICTS)}; not for {metric}.")
    found = {seen.trace: estimate_uncertainty(seen, metric) for seen in run.verdicts()}
    known = {name: doubt for name, doubt in found.items() if doubt is not None}
    if not known:
        raise UsageError(
            f"{run.path} has no {METRIC_VERDICTS[metric]} verdicts: {metric} cannot be labelled there."
        )
    ids = shuffle_ids(list(known), seed)
    each = np.array([known[name] for name in ids])
    chance = compute_chances(each, n)
    edges = np.cumsum(chance) + np.random.default_rng(seed).random()
    taken = np.flatnonzero(np.floor(edges) > np.floor(edges - chance))
    picks = {
        ids[at]: SuggestedTrace(trace=ids[at], chance=float(chance[at]), uncertainty=float(each[at]))
        for at in taken.tolist()
    }
    return [picks[name] for name in shuffle_ids(list(picks), seed + 1)]


def read_suggestions(path: str | Path) -> list[SuggestedTrace]:
    """The picks of a file, in order. Raises InputError where it cannot be read or a line is no pick."""
    found = []
    stream = open_bytes(str(path))
    with stream.body as body:
        for number, line, _ in iterate_lines(body):
            if line.strip():
                try:
                    found.append(msgspec.json.decode(line, type=SuggestedTrace))
                except msgspec.MsgspecError as error:
                    raise InputError(
                        f"{path}:{number}: {error}. Make it with: ragfault label suggest"
                    ) from None
    return found


class AnnotationSession:
    """Items asked one after the other; each word is on the disk before the next item is shown.

    What the same person said before, in this file and of the same answer, is not asked again. `chances` are those with
    which traces were drawn, and stand in their labels.

    >>> from ragfault.evaluation.agreement.annotation.items import list_items
    >>> from ragfault.records import Trace, Verdicts
    >>> trace = Trace(id="1", query="When?", answer="No.")
    >>> import tempfile
    >>> session = AnnotationSession(list_items(trace, Verdicts(trace="1")), tempfile.mkdtemp() + "/labels.jsonl", "ann")
    >>> session.record("y"), session.item, session.label_count
    (True, None, 1)
    """

    def __init__(
        self,
        items: Iterable[AnnotationItem],
        path: str | Path,
        by: str,
        chances: Mapping[str, float] | None = None,
    ) -> None:
        self.path, self.by, self._chances = Path(path), by, chances or {}
        self.label_count = 0
        """Words of this sitting, those that were taken back not counted."""
        self._values = _read_previous(self.path, by)
        self._remaining: Iterator[AnnotationItem] = iter(items)
        self._shown: list[AnnotationItem] = []
        self._position = -1
        self._undo: list[tuple[int, HumanLabel, VerdictValue | None]] = []
        self._advance()

    @property
    def item(self) -> AnnotationItem | None:
        """What is asked now; None where all has been."""
        return self._shown[self._position] if 0 <= self._position < len(self._shown) else None

    @property
    def value(self) -> VerdictValue | None:
        """What this person said of the present item before."""
        item = self.item
        return None if item is None else self._values.get(_item_name(item))

    def record(self, letter: str) -> bool:
        """Say a word by its letter, write it down, and go on; False where no word of the item has that letter."""
        item = self.item
        word = next((c.value for c in list_choices(item.kind) if c.letter == letter), None) if item else None
        if item is None or word is None:
            return False
        label = create_label(item, word, self.by, self._chances.get(item.trace.id))
        append_label(self.path, label)
        self._undo.append((self._position, label, self.value))
        self._values[_item_name(item)] = word
        self.label_count += 1
        self._advance()
        return True

    def skip(self) -> None:
        """Leave the item unsaid, and go on."""
        self._advance()

    def back(self) -> bool:
        """Go to the item before, to say it anew; False at the first."""
        if self._position <= 0:
            return False
        self._position -= 1
        return True

    def undo(self) -> bool:
        """Take back the last word of this sitting, also from the file, and ask it again; False where there is none."""
        if not self._undo:
            return False
        self._position, label, before = self._undo.pop()
        kept = read_labels(self.path)
        last = max(at for at, each in enumerate(kept) if each == label)
        write_labels(self.path, [*kept[:last], *kept[last + 1 :]])
        name = _item_name(self._shown[self._position])
        del self._values[name]
        if before is not None:
            self._values[name] = before
        self.label_count -= 1
        return True

    def _advance(self) -> None:
        """Go to the next item of which nothing was said."""
        self._position += 1
        while True:
            while self._position >= len(self._shown):
                item = next(self._remaining, None)
                if item is None:
                    self._position = len(self._shown)
                    return
                self._shown.append(item)
            if _item_name(self._shown[self._position]) not in self._values:
                return
            self._position += 1


ItemName = tuple[str, str | None, VerdictKey]


def _item_name(item: AnnotationItem) -> ItemName:
    """What a word holds for: the item with the answer that was shown, or with any where that does not matter."""
    answer = None if item.key[0] in ANSWER_INDEPENDENT else fingerprint_answer(item.trace)
    return item.trace.id, answer, item.key


def _read_previous(path: Path, by: str) -> dict[ItemName, VerdictValue]:
    """What a person said before."""
    if not path.exists() or not path.stat().st_size:
        return {}
    found: dict[ItemName, VerdictValue] = {}
    for label in read_labels(path):
        if label.by == by:
            for key, word in list_values(label.verdicts).items():
                found[label.trace, None if key[0] in ANSWER_INDEPENDENT else label.answer, key] = word
    return found
