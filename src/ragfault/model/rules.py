"""Rules shared by metrics and analyses, so that a score and a diagnosis never disagree."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Literal, NamedTuple

from msgspec.structs import replace

from ragfault.model.errors import InputError
from ragfault.model.records import Chunk, ClaimVerdict, GoldVerdicts, Step, Trace, Verdicts
from ragfault.text.similarity import score_quote_match
from ragfault.text.times import assume_utc, find_asked_time

BAD_SUPPORT = ("unsupported", "contradicted")
"""The support of a claim that the chunks do not hold."""
BELOW_HALF = math.nextafter(0.5, 0.0)
"""The greatest probability below one half."""
RELEVANT_LEVELS = ("high", "medium")
"""The levels of relevance that count as relevant."""
QUOTE_TOLERANCE = 0.95
"""The least similarity at which a quote matches a span of its chunk."""
COVERAGE_THRESHOLD = 0.5
"""The share of expected statements that the chunks must support to cover the query."""
ISO_DATE = re.compile(r"(\d{4})(?:-?(\d\d)(?:-?(\d\d)([T ].+)?)?)?")
"""A year, a month, a day or a time."""


BinaryVerdict = Literal["claim", "citation", "chunk", "refusal"]
"""A kind of verdict with two outcomes: supported or not, relevant or not, refused or not."""


class RateMetric(NamedTuple):
    """A metric that is a rate of one kind of verdict."""

    verdict: BinaryVerdict
    counts_positives: bool
    """True if the rate counts the good verdicts (supported, relevant), False if the bad ones (refused)."""


RATE_METRICS: dict[str, RateMetric] = {
    "groundedness": RateMetric("claim", counts_positives=True),
    "chunk_attribution": RateMetric("citation", counts_positives=True),
    "context_relevance(low=0, medium=1)": RateMetric("chunk", counts_positives=True),
    "refusal": RateMetric("refusal", counts_positives=False),
}
"""Metrics that are a rate of one kind of verdict, printed without cut-off. Only these can be corrected for the judge's
error. Chunk relevance qualifies if its weights are 1 for relevant levels and 0 for others.
"""


def get_rate_metric(metric: str) -> RateMetric | None:
    """Return the rate that a metric computes, whatever its cut-off; None for other metrics.

    >>> get_rate_metric("groundedness"), get_rate_metric("groundedness(strict=true)")
    (RateMetric(verdict='claim', counts_positives=True), None)
    """
    return RATE_METRICS.get(metric.partition("@")[0])


def chunks_cover_query(trace: Trace, verdicts: Verdicts, threshold: float = COVERAGE_THRESHOLD) -> bool | None:
    """Return whether the chunks cover the query; None if unknown.

    Where gold was applied and tells, it decides. Else, with recall verdicts: whether at least `threshold` of them are
    covered. Without: whether something relevant was retrieved and nothing is missing.

    >>> chunks_cover_query(Trace(id="1", query="q", chunks=()), Verdicts(trace="1"))
    False
    """
    if isinstance(verdicts, GoldVerdicts) and verdicts.covered is not None:
        return verdicts.covered
    if verdicts.recall:
        return sum(item.covered for item in verdicts.recall) >= threshold * len(verdicts.recall)
    if trace.chunks is not None and not trace.chunks:
        return False
    if not verdicts.chunk or verdicts.missing is None:
        return None
    return not verdicts.missing and any(chunk.level in RELEVANT_LEVELS for chunk in verdicts.chunk)


def find_searched(trace: Trace) -> tuple[Step | None, str]:
    """Return the last text that was searched for a trace, with its step; its query where no step says otherwise.

    >>> find_searched(Trace(id="1", query="And on Sundays?"))
    (None, 'And on Sundays?')
    """
    steps = trace.steps or ()
    texts = [(step, step.input) for step in steps if step.kind == "retrieve" and step.input]
    texts = texts or [(step, step.output) for step in steps if step.kind == "rewrite" and step.output]
    return texts[-1] if texts else (None, trace.query)


def is_right_refusal(verdicts: Verdicts) -> bool:
    """Return whether the answer refuses, and gold says that the chunks do not cover the query."""
    refused = verdicts.answer is not None and verdicts.answer.refused
    return refused and isinstance(verdicts, GoldVerdicts) and verdicts.covered is False


def settle_groundedness(
    grounded: float, claims: Sequence[ClaimVerdict], failing: float = BELOW_HALF, passing: float = 0.5
) -> float:
    """Return the probability that the chunks support an answer, on the side where the verdicts on its claims are.

    One decision, not two, for those who need a side: an answer passes exactly if its claims do. It is at most
    `failing` if a claim is unsupported or contradicted, at least `passing` if none of its claims is, and unchanged
    without claims.

    >>> claim = ClaimVerdict(claim="It is free.", start=0, end=11, support="unsupported")
    >>> settle_groundedness(0.7, [claim]) < 0.5, settle_groundedness(0.7, [])
    (True, 0.7)
    """
    if any(claim.support in BAD_SUPPORT for claim in claims):
        return min(grounded, failing)
    return max(grounded, passing) if claims else grounded


def quote_matches(quote: str, chunk: str, tolerance: float = QUOTE_TOLERANCE) -> bool:
    """Return whether a chunk contains a quote, verbatim or within the tolerance.

    White space and quotation marks are normalized first.

    >>> text = "The last ferry leaves at 22:40."
    >>> quote_matches("leaves  at 22:40", text), quote_matches("leaves at 23:40", text)
    (True, False)
    """
    return score_quote_match(quote, chunk) >= tolerance


def get_asked_time(trace: Trace) -> datetime | None:
    """Return the time whose state a query asks for, in UTC: what it or an earlier turn names, else when it was asked.

    None where the trace has no time.

    >>> trace = Trace(id="1", query="What did a van cost as of 2024?", time=datetime(2026, 3, 1, tzinfo=UTC))
    >>> str(get_asked_time(trace))[:10]
    '2024-12-31'
    """
    if trace.time is None:
        return None
    return find_asked_time(trace.query, trace.time, [turn.text for turn in trace.history or () if turn.role == "user"])


def check_ids(ids: Iterable[str], noun: str) -> None:
    """Raise InputError for the first id that occurs twice; `noun` names what has the ids, in the plural.

    >>> check_ids(["a", "b", "a"], "chunks")
    Traceback (most recent call last):
    ragfault.model.errors.InputError: two chunks have the id "a": give each its own.
    """
    seen: set[str] = set()
    for id in ids:
        if id in seen:
            raise InputError(f'two {noun} have the id "{id}": give each its own.')
        seen.add(id)


def is_outdated(chunk: Chunk, time: datetime, max_age: float | None = None) -> bool | None:
    """Return whether a chunk was not valid at a time, or older than `max_age` days; None without a date.

    A time without a zone is in UTC.

    >>> is_outdated(Chunk(id="a", metadata={"valid_to": "2025-12"}), datetime(2026, 1, 1, tzinfo=UTC))
    True
    """
    begin = parse_date(chunk.metadata.get("valid_from"))
    end = parse_date(chunk.metadata.get("valid_to"), end=True)
    updated = parse_date(chunk.metadata.get("updated_at")) if max_age is not None else None
    if begin is None and end is None and updated is None:
        return None
    asked_time = assume_utc(time)
    is_too_old = updated is not None and max_age is not None and asked_time - updated > timedelta(days=max_age)
    return bool((begin and asked_time < begin) or (end and asked_time > end) or is_too_old)


def parse_date(value: object, *, end: bool = False) -> datetime | None:
    """Parse an ISO year, month, day or time, without a zone in UTC: its first moment, or with `end` its last one.

    None for anything else, such as a number that is no year.

    >>> [str(parse_date(value, end=True))[:16] for value in ("2024-02", 2025, "2025-03-01T12:00+02:00", "soon")]
    ['2024-02-29 23:59', '2025-12-31 23:59', '2025-03-01 12:00', 'None']
    """
    text = value.isoformat() if isinstance(value, date) else str(value)
    shape = ISO_DATE.fullmatch(text)
    if shape is None:
        return None
    try:
        if shape[4]:
            return assume_utc(datetime.fromisoformat(text))
        start = datetime(int(shape[1]), int(shape[2] or 1), int(shape[3] or 1), tzinfo=UTC)
        if not end:
            return start
        after = start + timedelta(days=1 if shape[3] else 31 if shape[2] else 366)
        return (after if shape[3] else after.replace(day=1)) - timedelta(microseconds=1)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
    except ValueError:
        return None


IMAGE_TEXT_KEYS = ("caption", "alt", "alt_text", "ocr", "ocr_text", "description")
"""Metadata keys of the words that stand for an image."""


def is_address(text: str) -> bool:
    """Return whether a text is the address of an image, or an image in base64, and nothing else.

    >>> is_address("https://example.org/plan.png"), is_address("The plan of the harbour")
    (True, False)
    """
    bare = text.strip()
    return bare.startswith("data:") or ("://" in bare[:12] and not any(character.isspace() for character in bare))


def is_wordless_image(chunk: Chunk) -> bool:
    """Return whether a chunk is an image without words: a judge that reads text cannot tell what it shows.

    >>> is_wordless_image(Chunk(id="a", kind="image")), is_wordless_image(Chunk(id="a", kind="image", text="Berth 2"))
    (True, False)
    """
    return chunk.kind == "image" and (not chunk.text.strip() or is_address(chunk.text))


def read_image(chunk: Chunk) -> Chunk:
    r"""Return an image with the caption, alternative text and recognised text of its metadata as its text.

    Each distinct one on a line of its own. An address in the place of the text goes to the metadata `image`, where it
    names none. Other chunks, and images with words or without any of these, are returned as they are.

    >>> read_image(Chunk(id="a", kind="image", metadata={"caption": "Plan of the harbour", "ocr": "Berth 2"})).text
    'Plan of the harbour\nBerth 2'
    """
    if not is_wordless_image(chunk):
        return chunk
    texts = [text.strip() for key in IMAGE_TEXT_KEYS if isinstance(text := chunk.metadata.get(key), str)]
    words = "\n".join(dict.fromkeys(text for text in texts if text))
    if not words:
        return chunk
    address = {"image": chunk.text.strip()} if chunk.text.strip() and not chunk.metadata.get("image") else {}
    return replace(chunk, text=words, metadata={**chunk.metadata, **address})
