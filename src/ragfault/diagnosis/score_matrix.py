"""Scores and columns of a run in numpy: how they are read, coded, and estimated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragfault.io.runs.run import MetricInfo, Run
from ragfault.labels.correction import Codes, Floats, Mask, metric_bounds
from ragfault.metrics.aliases import ALIASES, resolve_alias
from ragfault.model.errors import RunError, UnknownName
from ragfault.stats.estimates import Interval, QuantileInterval
from ragfault.stats.intervals import mean_interval
from ragfault.stats.quantiles import quantile_interval

if TYPE_CHECKING:
    import pyarrow as pa


QUANTILES = (0.5, 0.95, 0.99)
"""The quantiles of amounts; the last only where its interval has both ends."""

SCORED, UNDEFINED, FAILED = range(3)
STATUSES = ("scored", "undefined", "failed")
# the code of what is not there
NO_CODE = -1
# columns of the scores that hold few texts, many times
TEXT_COLUMNS = ("metric", "status", "reason")

# small whole numbers, in as few bytes as they need
SmallInts = NDArray[Any]
# a code for each trace, or NONE, and the texts that the codes stand for
CodedTexts = tuple[Codes, list[str]]


class RunScores(NamedTuple):
    """The scores of a run, traces × metrics."""

    status: SmallInts
    """Place of each status in `STATUSES`."""
    values: Floats
    reason_codes: SmallInts
    reasons: list[str]
    """The texts that the codes stand for."""


def metric_name(metric: str) -> str:
    """Return the name of a metric without parameters and cut-off.

    >>> metric_name("recall(relevant=2)@20")
    'recall'
    """
    return metric.split("(", 1)[0].split("@", 1)[0].strip()


def match_metrics(text: str, names: Sequence[str], kind: str, *, exact: bool = False, hint: str = "") -> list[str]:
    """Return the metrics among `names` that a text means, white space aside.

    The one of that text, else the one of which it is another tool's name, else (unless `exact`) all of that bare name.
    Raises UnknownName (no `kind`) where there is none; it offers the closest name, those of other tools included.

    >>> match_metrics("Faithfulness", ["recall@5", "groundedness"], "metric of the run")
    ['groundedness']
    >>> match_metrics("recall", ["recall@5", "groundedness"], "metric of the run")
    ['recall@5']
    """
    for pattern in ("".join(text.split()), "".join(resolve_alias(text).split())):
        matches = [name for name in names if "".join(name.split()) == pattern]
        if not matches and not exact:
            matches = [name for name in names if metric_name(name) == pattern]
        if matches:
            return matches
    bare = {metric_name(name) for name in names}
    raise UnknownName(kind, text, names, hint, aliases=[alias.name for alias in ALIASES if alias.metric in bare])


def estimate_mean(values: Floats | Mask, clusters: Codes | None, measure: MetricInfo | None = None) -> Interval | None:
    """Estimate mean and interval of some values, cut at the range of their metric (else [0, 1]); None for none."""
    if not len(values):
        return None
    groups = None if clusters is None else clusters.tolist()
    ends = (0.0, 1.0) if measure is None else metric_bounds(measure)
    return mean_interval(values.astype(np.float64), groups, bounds=ends)


def is_amount(measure: MetricInfo) -> bool:
    """Return whether a metric is an amount from 0 without end, such as latency, tokens or cost, whose tail matters."""
    return measure.layer == "operation" and measure.low == 0 and measure.high is None


def estimate_quantiles(values: Floats, clusters: Codes | None, measure: MetricInfo) -> tuple[QuantileInterval, ...]:
    """Estimate the quantiles of an amount, each with its interval; none for other metrics and without values."""
    if not len(values) or not is_amount(measure):
        return ()
    intervals = [quantile_interval(values, quantile, clusters) for quantile in QUANTILES]
    return tuple(item for item in intervals if item.reason is None or item.quantile < QUANTILES[-1])


def encode_texts(column: pa.ChunkedArray | pa.Array) -> CodedTexts:
    """Encode a column of texts as codes; null is NO_CODE."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type):
        column = pc.dictionary_encode(column)
    encoded = column.unify_dictionaries().combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    codes = pc.fill_null(encoded.indices, NO_CODE).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, encoded.dictionary.to_pylist()


def _to_floats(column: pa.Array) -> Floats:
    import pyarrow.compute as pc

    return np.array(pc.fill_null(column, math.nan).to_numpy(), dtype=np.float64)


def read_scores(run: Run, chosen: Sequence[str]) -> RunScores:
    """Read statuses, values, reason codes (traces × chosen metrics) and the reasons, a piece of the file at a time."""
    import pyarrow as pa

    names = [measure.name for measure in run.manifest.metrics]
    is_chosen = np.array([name in chosen for name in names], dtype=bool)
    shape = (run.manifest.traces, len(chosen))
    status, values, why = np.empty(shape, np.int8), np.empty(shape), np.empty(shape, np.int32)
    reasons: dict[str, int] = {}
    row = at = 0
    for batch in run.iterate_batches("scores", [*TEXT_COLUMNS, "value"], dictionary_columns=TEXT_COLUMNS):
        if row + batch.num_rows > run.manifest.traces * len(names) or not _in_metric_order(batch["metric"], names, row):
            raise _incomplete_scores(run)
        mask = is_chosen[np.arange(row, row + batch.num_rows) % len(names)]
        row += batch.num_rows
        part = batch if mask.all() else batch.filter(pa.array(mask))
        rows = slice(at, at + part.num_rows)
        state, states = encode_texts(part["status"])
        status.reshape(-1)[rows] = np.array([STATUSES.index(name) for name in states], np.int8)[state]
        values.reshape(-1)[rows] = _to_floats(part["value"])
        reason_code, texts = encode_texts(part["reason"])
        why.reshape(-1)[rows] = np.array([*(reasons.setdefault(t, len(reasons)) for t in texts), NO_CODE])[reason_code]
        at = rows.stop
    if row != run.manifest.traces * len(names):
        raise _incomplete_scores(run)
    return RunScores(status, values, why, list(reasons))


def _in_metric_order(column: pa.Array, names: Sequence[str], start: int) -> bool:
    """Return whether the metrics of consecutive rows are in the order of the manifest."""
    codes, texts = encode_texts(column)
    expected = np.array([texts.index(name) if name in texts else NO_CODE for name in names])
    return bool((codes == expected[np.arange(start, start + len(codes)) % len(names)]).all())


def _incomplete_scores(run: Run) -> RunError:
    return RunError(
        f"{run.path / 'scores.parquet'} does not hold one row for every trace and metric of the manifest, "
        "in order. Evaluate the traces again."
    )


SEGMENT_FIELDS = ("route", "conversation", "model", "turn")
METADATA_PREFIX = "metadata."


def code_metadata(column: pa.ChunkedArray, key: str) -> CodedTexts:
    """Return the value of a key of the metadata as codes. Raises UnknownName for a key that no trace has."""
    codes, texts = encode_texts(column)
    objects = [parse_object(text) for text in texts]
    if not any(key in entry for entry in objects):
        keys = sorted({name for entry in objects for name in entry})
        names = [*SEGMENT_FIELDS, *(METADATA_PREFIX + name for name in keys)]
        raise UnknownName("field to divide by", METADATA_PREFIX + key, names)
    return _deduplicate_codes(codes, [_label_text(entry.get(key)) for entry in objects])


def _deduplicate_codes(codes: Codes, texts: Sequence[str | None]) -> CodedTexts:
    """Map codes over repeated or missing texts to codes over distinct ones."""
    names = list(dict.fromkeys(text for text in texts if text is not None))
    place = {name: i for i, name in enumerate(names)}
    table = np.array([NO_CODE if text is None else place[text] for text in texts] + [NO_CODE], dtype=np.int64)
    return table[codes], names


def _label_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    import msgspec

    return msgspec.json.encode(value).decode()


def parse_object(text: str | None) -> dict[str, Any]:
    """Parse the JSON of a cell; anything but an object is an empty one."""
    import msgspec

    value = None if text is None else msgspec.json.decode(text)
    return value if isinstance(value, dict) else {}
