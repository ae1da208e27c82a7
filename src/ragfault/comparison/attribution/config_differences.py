"""Settings that differ between the configurations of two runs, and which of them the evidence supports."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ragfault.comparison.decision_tree import STAGES_BY_BRANCH, STAGES_BY_LAYER
from ragfault.comparison.records import Bisection, SettingDifference
from ragfault.comparison.stages.ranking import NO_EVIDENCE
from ragfault.comparison.stages.setting_names import find_stage, to_snake_case
from ragfault.model.errors import InputError
from ragfault.model.whole_files import read_text
from ragfault.text.redaction import detect_sensitive

CONFIG_SUFFIXES = (".yaml", ".yml", ".toml", ".json")
MAX_BYTES, MAX_SETTINGS, MAX_DEPTH = 1_000_000, 5_000, 12
# settings in a result, characters of a value
MAX_SHOWN, MAX_VALUE = 50, 40
NOT_SET = "not set"
MASKED = "masked"

SECRET_KEY = re.compile(
    r"(^|_)(api_?key|access_?key|private_?key|signing_?key|account_?key|secret|password|passwd|passphrase|token$|"
    r"credentials?|authorization|bearer|cookie|dsn|connection_string)(_|$)"
)
USER_IN_URL = re.compile(r"://[^/\s:@]*:[^/\s@]+@")

RETRIEVAL_STAGES = frozenset(
    {"reranker", "query rewriter", "chunker", "embedder", "score threshold", "top-k", "filter", "index", "ingestion"}
)


def match_settings(bisection: Bisection, baseline: str | Path, candidate: str | Path) -> Bisection:
    """Add the settings that differ between two configuration files, and whether the evidence supports each.

    A setting is *supported* where its stage is among the suspects of a fault and an observation speaks for it,
    *possible* where it could cause one otherwise, *excluded* where all chunks (for a stage of retrieval) or all answers
    (for one of generation) are the same in both runs, *not supported* where no fault of it is shown, and *unknown*
    where its name points to no stage.
    At most 50 are kept, the supported ones first. Values of keys that name a secret are masked.

    Raises InputError for a file that cannot be read.
    """
    old, new = (dict(_flatten(load_config(path), path)) for path in (baseline, candidate))
    differences = [
        _judge(bisection, key, old.get(key, _MISSING), new.get(key, _MISSING))
        for key in dict.fromkeys((*old, *new))
        if not _is_same(old.get(key, _MISSING), new.get(key, _MISSING))
    ]
    order = ("supported", "possible", "excluded", "not supported", "unknown")
    ranked = sorted(differences, key=lambda setting: order.index(setting.outcome))
    supported = [setting.text for setting in ranked if setting.outcome == "supported"]
    changed = (
        f" Changed in the configuration and supported by the evidence: {'; '.join(supported[:3])}." if supported else ""
    )
    if not differences:
        changed = " The configuration files do not differ in any setting."
    return replace(bisection, settings=tuple(ranked[:MAX_SHOWN]), sentence=f"{bisection.sentence}{changed}")


_MISSING = object()


def load_config(path: str | Path) -> Mapping[str, Any]:
    """Load a configuration file: JSON, TOML, or YAML (by the safe loader; needs PyYAML).

    Raises InputError for a file that cannot be read, is larger than 1 MB, or holds no table.
    """
    place = Path(path)
    if place.is_file() and place.stat().st_size > MAX_BYTES:
        raise InputError(f"{place} is larger than 1 MB: that is not a configuration file.")
    value = _parse(place, read_text(place))
    if not isinstance(value, dict):
        raise InputError(f"{place} holds no table of settings at its top.")
    return value


def _parse(place: Path, text: str) -> Any:
    suffix = place.suffix.lower()
    try:
        if suffix == ".json":
            return msgspec.json.decode(text)
        if suffix == ".toml":
            return tomllib.loads(text)
    except (msgspec.DecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{place} is not valid {suffix[1:].upper()}: {error}") from None
    if suffix not in CONFIG_SUFFIXES:
        raise InputError(f"{place} is not a configuration file by its name: end it in {', '.join(CONFIG_SUFFIXES)}.")
    try:
        import yaml
    except ImportError:
        raise InputError(f"{place}: YAML is read by PyYAML. Install it (pip install pyyaml), or give JSON.") from None
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InputError(f"{place} is not valid YAML: {' '.join(str(error).split())[:300]}") from None


def _flatten(table: Any, path: str | Path) -> Iterator[tuple[str, Any]]:
    """Yield each setting by its path, such as retriever.top_k; lists of tables by position."""
    count = 0
    waiting: list[tuple[str, Any, int]] = [("", table, 0)]
    while waiting:
        key, value, depth = waiting.pop()
        nested: list[tuple[str, Any]] = []
        if isinstance(value, dict) and value:
            nested = [(f"{key}.{name}" if key else str(name), part) for name, part in value.items()]
        elif isinstance(value, list) and any(isinstance(part, dict | list) for part in value):
            nested = [(f"{key}[{at}]", part) for at, part in enumerate(value)]
        count += 1 + len(nested)
        if depth > MAX_DEPTH or count > MAX_SETTINGS:
            raise InputError(f"{path} holds more than {MAX_SETTINGS:,} settings, or tables more than {MAX_DEPTH} deep.")
        if nested:
            waiting += [(name, part, depth + 1) for name, part in reversed(nested)]
        else:
            yield key, value


def _is_same(old: Any, new: Any) -> bool:
    if isinstance(old, float) and isinstance(new, float) and math.isnan(old) and math.isnan(new):
        return True
    return type(old) is type(new) and bool(old == new)


def _judge(bisection: Bisection, key: str, old: Any, new: Any) -> SettingDifference:
    stage = find_stage(key)
    outcome, why = _weigh(bisection, stage)
    before, after = (_show(key, value) for value in (old, new))
    text = f"{_clip(key)}: {before} → {after}"
    if before == after:
        text = f"{_clip(key)}: changed ({before})"
    return SettingDifference(
        setting=_clip(key), baseline=before, candidate=after, stage=stage, outcome=outcome, why=why, text=text
    )


Outcome = Literal["supported", "possible", "not supported", "excluded", "unknown"]


def _weigh(bisection: Bisection, stage: str | None) -> tuple[Outcome, str]:
    """Return whether the evidence supports that a change of a stage caused the fault, with the reason."""
    comparison = bisection.comparison
    if stage is None:
        return "unknown", "its name points to no stage"
    for fault in bisection.faults:
        for suspect in fault.suspects:
            if suspect.stage == stage:
                return (
                    "possible" if suspect.evidence == NO_EVIDENCE else "supported",
                    f"{suspect.stage} is a suspect: {suspect.evidence}",
                )
    if comparison.pairs and stage in RETRIEVAL_STAGES and comparison.same_chunks == comparison.pairs:
        return "excluded", "identical chunks on every pair exclude it"
    if comparison.pairs and stage not in RETRIEVAL_STAGES and comparison.same_answers == comparison.pairs:
        return "excluded", "identical answers on every pair exclude it"
    if not bisection.faults:
        return "not supported", "no fault is shown"
    for fault in bisection.faults:
        if stage in (*STAGES_BY_BRANCH.get(fault.branch, ()), *STAGES_BY_LAYER.get(fault.layer, ())):
            listed = ", ".join(suspect.stage for suspect in fault.suspects)
            return "possible", f"it can cause what is shown, but the evidence points to {listed}"
    layers = " and ".join(dict.fromkeys(fault.layer for fault in bisection.faults))
    return "not supported", f"what is shown is a fault of {layers}, which {stage} does not cause"


def _show(key: str, value: Any) -> str:
    if value is _MISSING:
        return NOT_SET
    if SECRET_KEY.search(to_snake_case(key).replace(".", "_").replace("[", "_")):
        return MASKED
    text = value if isinstance(value, str) else _encode(value)
    if USER_IN_URL.search(text) or any(span.kind == "key" for span in detect_sensitive(text)):
        return MASKED
    if len(text) > MAX_VALUE:
        return f"a text of {len(text):,} characters"
    return " ".join(text.split()) or '""'


def _encode(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        return str(value)[: 10 * MAX_VALUE]


def _clip(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:99]}…"
