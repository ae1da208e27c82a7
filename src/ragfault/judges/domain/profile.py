"""Domain profiles in TOML, and the patterns of identifiers that they name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from ragfault.model.errors import InputError, JudgeError, UnknownName
from ragfault.model.whole_files import parse_toml, read_text

if TYPE_CHECKING:
    import regex

MAX_PATTERN_CHARS = 2_000
"""A longer pattern is refused."""
SEARCH_WINDOW, WINDOW_OVERLAP = 2_000, 200
"""A text is searched in windows of this many characters, so that the time is linear in its length."""
MAX_SEARCH_SECONDS = 0.5
"""Seconds of processor time that the search of one window may take."""


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> regex.Pattern[str]:
    """Compile a pattern without regard to case, unless it asks for it by (?-i:…)."""
    import regex

    return regex.compile(pattern, regex.IGNORECASE | regex.VERSION0)


def find_matches(pattern: str, text: str, start: int = 0, end: int | None = None) -> list[regex.Match[str]]:
    """Return all matches in a part of a text, in order. Raises JudgeError if the search takes too long."""
    try:
        return list(compile_pattern(pattern).finditer(text, start, end, timeout=MAX_SEARCH_SECONDS))
    except TimeoutError:
        raise JudgeError(
            f"the pattern {pattern} takes too long on some texts. Nest no repeat in another of the same characters, "
            "bound the repeats, as in {1,9}, or make them possessive, as in \\d++."
        ) from None


def iterate_matches(pattern: str, text: str) -> Iterator[regex.Match[str]]:
    """Yield all matches in a text, window by window. Raises JudgeError if a window takes too long.

    >>> [match.group() for match in iterate_matches("[0-9]+", "12 and 13" + " " * 5000 + "14")]
    ['12', '13', '14']
    """
    position = 0
    while position < len(text):
        end = min(len(text), position + SEARCH_WINDOW)
        next_position = end if end == len(text) else end - WINDOW_OVERLAP
        for match in find_matches(pattern, text, position, end):
            if match.end() > next_position and match.start() > position and end < len(text):
                next_position = min(next_position, match.start())
                break
            yield match
            next_position = max(next_position, match.end())
        position = next_position


@lru_cache(maxsize=256)
def check_pattern(pattern: str) -> str:
    r"""Return a pattern that compiles, matches something, and does not run away on its own characters repeated.

    Raises InputError for any other. A pattern that runs away only on other texts fails there, after
    `MAX_SEARCH_SECONDS`.

    >>> check_pattern(r"section (?P<id>[0-9]+)")
    'section (?P<id>[0-9]+)'
    >>> check_pattern("(a+)+b")
    Traceback (most recent call last):
    ragfault.model.errors.InputError: the pattern (a+)+b takes too long on some texts. Nest no repeat in another of the
    same characters, bound the repeats, as in {1,9}, or make them possessive, as in \d++.
    """
    import regex

    if len(pattern) > MAX_PATTERN_CHARS:
        raise InputError(f"a pattern has at most {MAX_PATTERN_CHARS:,} characters, this one has {len(pattern):,}.")
    try:
        if find_matches(pattern, ""):
            raise InputError(f"the pattern {pattern} matches the empty text. Let it require a character.")
        pairs = {pattern[place : place + 2] for place in range(len(pattern))}
        for sample in sorted({*"a0 ", *pattern, *pairs}):
            # The pattern itself contains what a search requires before it tries anything.
            find_matches(pattern, f"{sample * (SEARCH_WINDOW // 2)}\0{pattern}")
    except (regex.error, RecursionError, OverflowError) as error:
        raise InputError(f"the pattern {pattern} is not a regular expression: {error}.") from None
    except JudgeError as error:
        raise InputError(str(error)) from None
    return pattern


PROFILES = ("general", "legal", "medical", "financial", "technical")
"""The packaged domain profiles."""
IDENTIFIER_FORMS = {
    "text": "in small letters, through `spellings`",
    "code": "only its letters and digits: CVE-2021-44228 is CVE 2021 44228",
    "parts": "numbers with parts: 12(b), 2.3.1; Roman numerals in figures",
    "name": "a symbol such as json.loads(), with or without what it belongs to",
    "quantity": "a number with a unit, in base units: 0.5 g is 500 mg",
    "money": "an amount with its currency: $1.2 million is $1,200,000",
    "date": "a day, month, quarter, half or year: Q3 2023 holds 30 September 2023",
}
"""Normal forms of identifiers, in which they are compared."""
MAX_PROFILE_CHARS, MAX_IDENTIFIERS = 100_000, 64
"""A profile has at most this many characters, and this many kinds of identifier."""

Probability = Annotated[float, Meta(ge=0, le=1)]
AgreementScope = Literal["relevance", "support"]


class RelevanceLevels(Struct, frozen=True, kw_only=True):
    """Relevance from which a passage counts as high, medium and low; below that it counts as none."""

    high: Probability = 0.75
    medium: Probability = 0.5
    low: Probability = 0.25


class SupportThresholds(Struct, frozen=True, kw_only=True):
    """Probabilities below which a claim counts neither as supported nor as inferred, whatever the judge decides."""

    supported: Probability = 0.0
    inferred: Probability = 0.0


class PromptWording(Struct, frozen=True, kw_only=True):
    """Domain wording for the prompts of a judge that asks a language model."""

    guidance: str = ""
    """Text at the end of its instructions."""
    retrieval: str = ""
    """Replaces its instructions for grading chunks; empty: its own."""
    generation: str = ""
    """Replaces its instructions for judging answers; empty: its own."""


class IdentifierKind(Struct, frozen=True, kw_only=True):
    """A kind of identifier: its pattern, the form in which it is compared, and where it must agree."""

    name: str
    form: str = "text"
    """One of `IDENTIFIER_FORMS`."""
    pattern: str = ""
    """Group `id` is the identifier, `what` its category, `more` others after it. Empty: by form or spellings."""
    must: Literal["equal", "within"] = "equal"
    """"equal", or "within" if it may also be a part of the expected one: 12(b) is within 12."""
    where: tuple[AgreementScope, ...] = ("relevance", "support")
    """Comparisons in which it must agree: passage with query, passage with claim, or both."""
    reach: Literal["chunk", "sentence"] = "chunk"
    """Scope of an identifier: the chunk for a section or version, the sentence for a dose or amount."""
    unless: str = ""
    """A query with this pattern may be answered with another one: "which version", "since 2.3"."""
    aside: str = ""
    """Right after this pattern it is a mere reference and never compared: "subject to Section 9"."""
    spellings: tuple[tuple[str, str], ...] = ()
    """Pairs of other spelling and canonical spelling."""


class DomainProfile(Struct, frozen=True, kw_only=True):
    """The identifiers that must agree exactly in a domain, and its thresholds.

    >>> profile = load_profile("legal")
    >>> profile.name, [kind.name for kind in profile.identifiers][:2], profile.levels.low
    ('legal', ['statute', 'regulation'], 0.25)
    """

    name: str
    about: str = ""
    levels: RelevanceLevels = RelevanceLevels()
    support: SupportThresholds = SupportThresholds()
    prompts: PromptWording = PromptWording()
    identifiers: tuple[IdentifierKind, ...] = ()
    """A span of text belongs to the first kind that matches it."""
    digest: str = ""
    """Digest of its file, for a judge's fingerprint."""

    @property
    def is_empty(self) -> bool:
        """True if the profile changes nothing in a judge."""
        return not self.identifiers and (self.levels, self.support, self.prompts) == (
            RelevanceLevels(),
            SupportThresholds(),
            PromptWording(),
        )


def load_profile(name: str | Path | DomainProfile) -> DomainProfile:
    """Load a packaged profile by its name, or one from a TOML file of the user (`*.toml`).

    Raises UnknownName for an unknown profile or key; InputError if the file cannot be read, a value is of the
    wrong type, or a pattern is invalid or too slow.

    >>> load_profile("leagal")
    Traceback (most recent call last):
    ragfault.model.errors.UnknownName: no domain profile "leagal". Did you mean "legal"? ...
    """
    if isinstance(name, DomainProfile):
        return name
    return (
        _load_packaged(name) if name in PROFILES else _parse_profile(_format_name(name), read_profile(name), str(name))
    )


def read_profile(name: str | Path) -> str:
    """Return the TOML text of a profile."""
    if name in PROFILES:
        return files("ragfault.judges.domain").joinpath("profiles", f"{name}.toml").read_text(encoding="utf-8")
    path = Path(name)
    if path.suffix.lower() != ".toml" and not path.is_file():
        raise UnknownName("domain profile", str(name), PROFILES, hint="List them with: ragfault judge profile")
    text = read_text(path)
    if len(text) > MAX_PROFILE_CHARS:
        raise InputError(
            f"the domain profile {path} has {len(text):,} characters; at most {MAX_PROFILE_CHARS:,} are read."
        )
    return text


@cache
def _load_packaged(name: str) -> DomainProfile:
    return _parse_profile(name, read_profile(name), name)


def _format_name(path: str | Path) -> str:
    """Return the name of a profile by its file, as one word of a fingerprint."""
    return "".join(character if character.isalnum() or character in "-_." else "-" for character in Path(path).stem)


def _parse_profile(name: str, text: str, source: str) -> DomainProfile:
    table = parse_toml(text, f"the domain profile {source}")
    allowed = ("about", "levels", "support", "prompts", "identifier")
    _check_keys(f"key of the domain profile {source}", table, allowed)
    tables = table.get("identifier", [])
    if not isinstance(tables, list) or len(tables) > MAX_IDENTIFIERS:
        raise InputError(f"{source}: identifier is a list of at most {MAX_IDENTIFIERS} tables. Write [[identifier]].")
    kinds = tuple(_parse_identifier(identifier, source) for identifier in tables)
    duplicates = {kind.name for kind in kinds if sum(kind.name == other.name for other in kinds) > 1}
    if duplicates:
        raise InputError(f"{source}: two identifiers are named {min(duplicates)}. Give each a name of its own.")
    levels = _parse_section(table.get("levels", {}), RelevanceLevels, "levels", source)
    support = _parse_section(table.get("support", {}), SupportThresholds, "support", source)
    if not levels.high >= levels.medium >= levels.low or support.supported < support.inferred:
        raise InputError(f"{source}: thresholds run from high to low: high ≥ medium ≥ low, supported ≥ inferred.")
    prompts = _parse_section(table.get("prompts", {}), PromptWording, "prompts", source)
    about = table.get("about", "")
    if not isinstance(about, str):
        raise InputError(f"{source}: about should be a text.")
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return DomainProfile(
        name=name, about=about, levels=levels, support=support, prompts=prompts, identifiers=kinds, digest=digest
    )


def _parse_identifier(table: Any, source: str) -> IdentifierKind:
    name = table.get("name") if isinstance(table, dict) else None
    if not isinstance(name, str) or not name.strip():
        raise InputError(f'{source}: each [[identifier]] has a name, a text such as "section".')
    spellings = table.get("spellings", {})
    values = {**table, "spellings": _parse_spellings(spellings, name, source)}
    kind: IdentifierKind = _parse_section(values, IdentifierKind, f"identifier {name}", source)
    if kind.form not in IDENTIFIER_FORMS:
        raise UnknownName(f"form of the identifier {name} in {source}", kind.form, IDENTIFIER_FORMS)
    if not kind.pattern and kind.form not in {"money", "date"} and not kind.spellings:
        raise InputError(f"{source}: the identifier {name} needs a pattern, or spellings to be found by.")
    for pattern in (kind.pattern, kind.unless, kind.aside):
        try:
            if pattern and source not in PROFILES:
                check_pattern(pattern)
        except InputError as error:
            raise InputError(f"{source}: identifier {name}: {error}") from None
    return kind


def _parse_spellings(table: Any, name: str, source: str) -> list[tuple[str, str]]:
    """Turn canonical spelling → other spellings into pairs of spelling and canonical spelling."""
    try:
        spellings = msgspec.convert(table, dict[str, list[str]])
    except msgspec.ValidationError:
        raise InputError(
            f'{source}: spellings of the identifier {name} are lines such as section = ["sec", "§"].'
        ) from None
    return [(spelling, canonical) for canonical, variants in spellings.items() for spelling in (canonical, *variants)]


def _parse_section(table: Any, record: type[Any], name: str, source: str) -> Any:
    """Convert a table to a record, with known keys and values of the right type."""
    if not isinstance(table, dict):
        raise InputError(f"{source}: {name} is a table. Write its keys below its name.")
    _check_keys(f"key of {name} in {source}", table, [field.name for field in msgspec.structs.fields(record)])
    try:
        return msgspec.convert(table, record)
    except msgspec.ValidationError as error:
        raise InputError(f"{source}: {name}: {_format_error(str(error))}") from None


def _format_error(error: str) -> str:
    problem, _, path = error.partition(" - at `$")
    key = path.strip("`.").partition("[")[0]
    return f"{key}: {problem[:1].lower()}{problem[1:]}." if key else f"{problem}."


def _check_keys(kind: str, table: Any, allowed: Any) -> None:
    for key in table:
        if key not in allowed:
            raise UnknownName(kind, key, allowed, listed=True)
