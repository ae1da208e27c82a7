"""Normal form of golden values: floats of six digits, markers for volatile values, hashes for long lists."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Container, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

VOLATILE_KEYS = {
    *("bytes", "checksum", "checksums", "created", "memory", "ragfault", "seconds", "speed", "speeds", "token"),
    *("latency_p50", "latency_p95", "uncached_seconds", "write_seconds"),
}
"""Fields that hold a version, a time, a size on the disk, a hash of such values, or a random value."""
ROOT = Path(__file__).parents[2]
STARTED = time.time()
ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
ISO_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?")
LONG = 16_000  # characters of a list of which only the first items and a hash are stored
WIDTH = 140


def normalize(value: Any, folder: Path | None = None, volatile: Container[str] = ()) -> Any:
    """Return a value of JSON as it is stored: without what depends on the time, the place or the machine.

    `volatile` names further fields that hold such values.
    """
    if isinstance(value, Mapping):
        return {
            _normalize_text(str(key), folder): "<volatile>"
            if (key in VOLATILE_KEYS or key in volatile) and item is not None
            else normalize(item, folder, volatile)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [normalize(item, folder, volatile) for item in value]
    if isinstance(value, datetime):
        value = value.replace(tzinfo=value.tzinfo or UTC).isoformat()
    if isinstance(value, (int, float)) and not isinstance(value, bool) and is_now(value):
        return "<now>"
    if isinstance(value, float):
        return round(value, 6) + 0.0  # -0.0 is written as 0.0
    return _normalize_text(value, folder) if isinstance(value, str) else value


def is_now(seconds: float) -> bool:
    """Return whether a number is a time, in seconds or milliseconds, since this process began."""
    return any(STARTED - 2 <= seconds / unit <= time.time() + 2 for unit in (1, 1000))


def _normalize_text(text: str, folder: Path | None) -> str:
    for day in {datetime.fromtimestamp(moment, UTC).date().isoformat() for moment in (STARTED, time.time())}:
        # a day by itself, and not the beginning of a point in time
        text = re.sub(rf"(?<!\d){day}(?![\dT]| \d\d:)", "<today>", text)
    if folder is not None:
        text = text.replace(str(folder), "<folder>")
    return ISO_TIME.sub(_mark_time, ADDRESS.sub("<address>", text.replace(str(ROOT), "<repository>")))


def _mark_time(match: re.Match[str]) -> str:
    try:
        time_read = datetime.fromisoformat(match[0])
    except ValueError:
        return match[0]
    return "<now>" if is_now(time_read.replace(tzinfo=time_read.tzinfo or UTC).timestamp()) else match[0]


def shorten(value: Any) -> Any:
    """Replace the rest of each long list by its length and a hash."""
    if isinstance(value, dict):
        return {key: shorten(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) > 3 and len(json.dumps(value)) > LONG:
        return {"items": len(value), "hash": make_hashes(value), "first": shorten(value[:2])}
    return [shorten(item) for item in value]


def make_hashes(value: Any) -> dict[str, str]:
    """Return 16 digits that stand for a normal value without its sentences, and 16 for its sentences."""
    sentences: list[str] = []
    values = json.dumps(_drop_sentences(value, sentences), sort_keys=True, ensure_ascii=False, default=str)
    return {
        name: hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        for name, text in (("values", values), ("sentences", "\n".join(sentences)))
    }


def is_sentence(value: Any) -> bool:
    """Return whether a value is text for a person: a change of words, not of a result, may change it."""
    return isinstance(value, str) and " " in value


def _drop_sentences(value: Any, dropped: list[str]) -> Any:
    if isinstance(value, dict):
        return {key: _drop_sentences(item, dropped) for key, item in value.items()}
    if isinstance(value, list):
        return [_drop_sentences(item, dropped) for item in value]
    if is_sentence(value):
        dropped.append(value)
        return "<sentence>"
    return value


def format_value(value: Any, indent: int = 0) -> str:
    """Return JSON that a person reads: what fits on one line is on one line."""
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, (dict, list)) or not value or len(flat) + indent <= WIDTH:
        return flat
    inner = " " * (indent + 1)
    if isinstance(value, dict):
        parts = [f"{inner}{json.dumps(key)}: {format_value(item, indent + 1)}" for key, item in value.items()]
    else:
        parts = [inner + format_value(item, indent + 1) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return opening + "\n" + ",\n".join(parts) + "\n" + " " * indent + closing


def outline(value: Any) -> Any:
    """Return the fields of a value and the kinds of what they hold; of a list the first item stands for all.

    >>> outline({"count": 3, "rows": [{"name": "a"}, {"name": "b"}]})
    {'count': 'number', 'rows': [{'name': 'text'}]}
    """
    if isinstance(value, dict):
        return {key: outline(item) for key, item in value.items()}
    if isinstance(value, list):
        return [outline(item) for item in value[:1]]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "number"
    return "text" if isinstance(value, str) else value


def list_differences(stored: Any, now: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield each field that differs with its place, the stored value and that of now; `...` stands for none."""
    if isinstance(stored, dict) and isinstance(now, dict):
        for key in stored | now:
            yield from list_differences(stored.get(key, ...), now.get(key, ...), f"{where}.{key}" if where else key)
    elif isinstance(stored, list) and isinstance(now, list):
        for place in range(max(len(stored), len(now))):
            pair = (rows[place] if place < len(rows) else ... for rows in (stored, now))
            yield from list_differences(*pair, f"{where}[{place}]")
    elif type(stored) is not type(now) or stored != now:
        yield where, stored, now
