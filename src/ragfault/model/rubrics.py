"""Rubrics: criteria for answers in the words of the user, with levels and judged examples, versioned by their content.

A judge that asks a language model reads them (`--rubrics FILE`), and the metric `rubric(name=…)` scores them.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ragfault.model.errors import InputError, UsageError
from ragfault.model.records import FrozenRecord

METRIC_NAME = "rubric"
"""Metric that scores rubrics; with `name=…` one of them."""
NAME_PATTERN = re.compile(r"[a-z][a-z0-9_]{0,39}\Z")
MAX_RUBRICS, MAX_LEVELS, MAX_EXAMPLES, MAX_TEXT = 12, 7, 12, 2_000
"""Limits of the request that asks about an answer: rubrics; levels and examples of each; characters of a text."""


class RubricLevel(FrozenRecord, frozen=True, forbid_unknown_fields=True):
    """Level of a rubric: its value in [0, 1] and the words that say when it applies."""

    value: float
    description: str
    example: str = ""
    """An answer, or a part of one, at this level."""


class RubricExample(FrozenRecord, frozen=True, forbid_unknown_fields=True):
    """Answer with the value that people give it, shown to the judge."""

    answer: str
    value: float
    query: str = ""
    reason: str = ""


MET_OR_NOT = (
    RubricLevel(value=0.0, description="the answer does not meet the criterion"),
    RubricLevel(value=1.0, description="the answer meets the criterion"),
)
"""The levels where none are given."""


class Rubric(FrozenRecord, frozen=True):
    """Criterion for answers, in words, with its levels from worst to best; as text, the metric that scores it."""

    name: str
    criterion: str
    levels: tuple[RubricLevel, ...] = MET_OR_NOT
    examples: tuple[RubricExample, ...] = ()

    def __str__(self) -> str:
        return f"{METRIC_NAME}(name={self.name})"

    @property
    def version(self) -> str:
        """Hash of name, criterion, levels and examples: a rubric in which one is changed is another rubric."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:8]

    def get_level(self, value: float) -> RubricLevel:
        """Return the level nearest to a value; of two as near the lower one."""
        return min(self.levels, key=lambda level: (abs(level.value - value), level.value))


def rubric(
    criterion: str,
    *,
    name: str = "",
    levels: Sequence[RubricLevel] = MET_OR_NOT,
    examples: Sequence[RubricExample] = (),
) -> Rubric:
    """Make a rubric, which `evaluate` takes among its metrics where an `llm:` judge is asked.

    Without a `name` it is "r" and the hash of the criterion. Levels have distinct values in [0, 1]; they are sorted.
    Raises UsageError for a blank criterion, a name that is not lower-case letters, digits and underscores, fewer than
    two levels, an example whose value is no level, and texts or lists beyond the limits.

    >>> formal = rubric("The answer addresses the customer formally.", name="formal")
    >>> str(formal), [level.value for level in formal.levels]
    ('rubric(name=formal)', [0.0, 1.0])
    """
    text = " ".join(criterion.split())
    label = name or "r" + hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:7]
    sorted_levels = tuple(sorted(levels, key=lambda level: level.value))
    result = Rubric(name=label, criterion=text, levels=sorted_levels, examples=tuple(examples))
    if problem := _describe_problem(result):
        raise UsageError(f'the rubric "{label}": {problem}')
    return result


def _describe_problem(item: Rubric) -> str:
    """Describe why a rubric cannot be used; "" where it can."""
    values = [level.value for level in item.levels]
    texts = [item.criterion, *(text for level in item.levels for text in (level.description, level.example))]
    texts += [text for example in item.examples for text in (example.answer, example.query, example.reason)]
    problem = ""
    if not NAME_PATTERN.match(item.name):
        problem = "a name is lower-case letters, digits and underscores, at most 40, such as polite_tone."
    elif not item.criterion:
        problem = 'there is no criterion. Say in a sentence what a good answer does: criterion = "…"'
    elif len(values) < 2 or len(set(values)) < len(values) or not all(0 <= value <= 1 for value in values):
        problem = "it needs two levels or more, each with a value of its own from 0 to 1."
    elif any(example.value not in values for example in item.examples):
        problem = f"the value of an example is that of a level: {', '.join(f'{value:g}' for value in values)}."
    elif len(values) > MAX_LEVELS or len(item.examples) > MAX_EXAMPLES or max(map(len, texts)) > MAX_TEXT:
        problem = f"at most {MAX_LEVELS} levels, {MAX_EXAMPLES} examples, and {MAX_TEXT:,} characters a text."
    return problem


def check_rubrics(rubrics: Sequence[Rubric]) -> tuple[Rubric, ...]:
    """Return rubrics that can be judged together; raises UsageError for two of one name, and for too many."""
    names = [item.name for item in rubrics]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f'two rubrics are named "{twice}". Give each its own name.')
    if len(names) > MAX_RUBRICS:
        raise UsageError(
            f"{len(names)} rubrics: at most {MAX_RUBRICS} are judged in one request. Judge the others in another run."
        )
    return tuple(rubrics)


class _RubricTable(FrozenRecord, frozen=True, forbid_unknown_fields=True):
    criterion: str
    levels: tuple[RubricLevel, ...] = MET_OR_NOT
    examples: tuple[RubricExample, ...] = ()


def load_rubrics(path: str | Path) -> tuple[Rubric, ...]:
    """Load the rubrics of a TOML file: a table for each, with `criterion`, and `levels` and `examples` if there are.

    Raises InputError for a file that cannot be read or holds no rubric, UsageError for a rubric that cannot be used.
    """
    file = Path(path)
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{file} is not TOML: {error}") from None
    if not tables:
        raise InputError(f'{file} holds no rubric. Write one as a table: [formal] and criterion = "…" below it.')
    return check_rubrics([_convert_table(file, name, table) for name, table in tables.items()])


def _convert_table(path: Path, name: str, table: Any) -> Rubric:
    try:
        parsed = msgspec.convert(table, _RubricTable, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: the rubric [{name}] cannot be read: {error}.") from None
    return rubric(parsed.criterion, name=name, levels=parsed.levels, examples=parsed.examples)
