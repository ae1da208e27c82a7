"""Identifier agreement: whether a passage names the same identifiers as a query or claim."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from ragfault.judges.checks.lexicon import load_rarity
from ragfault.judges.checks.passages import split_passage
from ragfault.judges.domain.mentions import WILDCARD, Mention, extract_mentions, prepare_text
from ragfault.judges.domain.patterns import compile_pattern
from ragfault.judges.domain.profile import DomainProfile, IdentifierKind
from ragfault.text import split_content_words
from ragfault.text.quantities import parse_quantities

NormalForm = tuple[str, ...]
MIN_COVERED_SHARE = 0.6
"""A stretch that says so much of a claim but for its identifier is about the same thing."""
NEARLY_ALL_SHARE, MIN_OWN_RATIO = 0.8, 0.5
"""An identifier stands in the wrong place where another's stretch says nearly all of the claim, its own less than half
of that."""
UNIT_PATTERN = re.compile(r"[ -]?([^\W\d_]+)")
FIGURE_PATTERN = re.compile(r"\d[\d,]*(?:\.\d+)*")
SCALED_TABLE_PATTERN = re.compile(
    r"\bin (?:[a-z$€£]+ ){0,2}(?:thousand|million|billion)s?\b|\(?[$€£]? ?(?:000s?|mn?|bn)\)", re.IGNORECASE
)
"""Where a table counts in thousands or millions, only the digits of its figures can be compared."""


class IdentifierConflict(NamedTuple):
    """A claim that names another thing than the passages."""

    reason: str
    is_contradiction: bool
    """Whether a passage says the same of another one, so that the claim is contradicted."""


class IdentifierScope(NamedTuple):
    """A stretch for which an identifier speaks: a passage, or a sentence of one."""

    text: str
    raw_text: str
    """With its lines."""
    mentions: tuple[Mention, ...]


def explain_query_conflict(profile: DomainProfile, query: str, text: str) -> str | None:
    """Why a text speaks about something else than the query asks for; None where it does not.

    Of a kind of identifier that the query names, the text names at least one, and none that the query names.
    What names none of that kind is left to the judge.

    >>> from ragfault.judges.domain.profile import load_profile
    >>> explain_query_conflict(load_profile("legal"), "What does Section 12 say?", "Section 9 covers parental leave.")
    'the query asks about Section 12, the passage speaks about Section 9'
    """
    asked = extract_mentions(profile, query)
    for kind in profile.identifiers:
        if "relevance" not in kind.where or kind.name not in asked or _allows_others(kind, query):
            continue
        wanted = [one for one in asked[kind.name] if not one.is_reference]
        held = extract_mentions(profile, text).get(kind.name, ())
        if not wanted or any(_mentions_agree(kind, one, other) for one in wanted for other in held):
            continue
        others = [
            one
            for one in held
            if not one.is_reference and any(_are_rivals(kind, want, one) for want in wanted)
        ]
        if others and not any(_occurs_plainly(kind, one, prepare_text(text), text) for one in wanted):
            return f"the query asks about {_join_mentions(wanted)}, the passage speaks about {_join_mentions(others)}"
    return None


def explain_claim_conflict(profile: DomainProfile, claim: str, text: str) -> str | None:
    """Why a text cannot support a claim: it names another thing of the same sort, or not that thing.

    >>> from ragfault.judges.domain.profile import load_profile
    >>> explain_claim_conflict(load_profile("medical"), "Give 10 mg of it.", "Give 10 mcg of it.")
    'the claim says 10 mg, the passage 10 mcg'
    >>> explain_claim_conflict(load_profile("medical"), "Give 0.5 g of it.", "Give 500 mg of it.")
    """
    found = detect_conflict(profile, claim, (text,))
    return found.reason if found else None


def detect_conflict(
    profile: DomainProfile, claim: str, texts: Sequence[str], query: str = ""
) -> IdentifierConflict | None:
    """The first identifier of a claim that passages, taken together, do not bear out.

    A value that the query gives, as in "after six years" or "I take 20 mg", need not be borne out; a section or
    version that it asks about must.
    """
    said, asked = extract_mentions(profile, claim), extract_mentions(profile, query) if query else {}
    for kind in profile.identifiers:
        if "support" not in kind.where:
            continue
        ours = [one for one in said.get(kind.name, ()) if not one.is_reference]
        given = asked.get(kind.name, ()) if "relevance" not in kind.where else ()
        for mention in ours:
            if any(_mentions_agree(kind, mention, one) for one in given):
                continue
            found = _check_mention(kind, mention, ours, claim, _split_scopes(profile, kind, texts))
            if found:
                return found
    return None


def align_spelling(profile: DomainProfile, text: str, others: Sequence[str]) -> str:
    """A text with its identifiers spelled as other texts spell the very same ones, so that any judge sees them agree.

    >>> from ragfault.judges.domain.profile import load_profile
    >>> align_spelling(load_profile("medical"), "Give 0.5 g by mouth.", ["Give 500 mg orally."])
    'Give 500 mg orally.'
    """
    spelled = prepare_text(text)
    for kind, ours in extract_mentions(profile, text).items():
        theirs = [one for other in others for one in extract_mentions(profile, other).get(kind, ())]
        for one in ours:
            same = [
                other.written
                for other in theirs
                if (one.category, one.forms[0]) == (other.category, other.forms[0])
            ]
            listed = sum(other.start == one.start for other in ours) > 1
            if same and not listed and one.written.casefold() not in {shown.casefold() for shown in same}:
                spelled = spelled.replace(one.written, same[0], 1)
    return text if spelled == prepare_text(text) else spelled


def _check_mention(
    kind: IdentifierKind,
    mention: Mention,
    claim_mentions: Sequence[Mention],
    claim: str,
    scopes: Sequence[IdentifierScope],
) -> IdentifierConflict | None:
    """How the stretches that hold an identifier compare with those that hold another in its place."""
    told = frozenset(split_content_words(_remove_mentions(claim, claim_mentions)))
    whole = load_rarity().sum_rarity(told)
    own, best, rival = -1.0, 0.0, None
    neutral: list[Mention] = []
    for unit in scopes:
        weight = load_rarity().sum_rarity(told.intersection(split_content_words(unit.text))) if told else 0.0
        if any(_mentions_agree(kind, mention, one) for one in unit.mentions) or _occurs_plainly(
            kind, mention, unit.text, unit.raw_text
        ):
            own = max(own, weight)
            continue
        others = [one for one in unit.mentions if _is_rival_mention(kind, one, mention, claim_mentions)]
        if others and (rival is None or weight > best):
            best, rival = weight, others
        neutral += [
            one
            for one in unit.mentions
            if one.category == mention.category and not _are_rivals(kind, mention, one)
        ]
    same = rival is not None and best >= MIN_COVERED_SHARE * whole
    if own >= 0 and (
        len(claim_mentions) > 1 or not 0 < NEARLY_ALL_SHARE * whole <= best or own >= MIN_OWN_RATIO * best
    ):
        return None
    if rival:
        return IdentifierConflict(
            f"the claim says {mention.written}, the passage {_join_mentions(rival)}", is_contradiction=same
        )
    if neutral:
        return IdentifierConflict(
            f"the claim says {mention.written}, the passage only {_join_mentions(neutral)}",
            is_contradiction=False,
        )
    return IdentifierConflict(f"no passage says {mention.written}", is_contradiction=False)


def _split_scopes(
    profile: DomainProfile, kind: IdentifierKind, texts: Sequence[str]
) -> list[IdentifierScope]:
    """The stretches for which an identifier of this kind speaks."""
    pieces = texts if kind.reach == "chunk" else [one.text for text in texts for one in split_passage(text)]
    return [
        IdentifierScope(prepare_text(text), text, extract_mentions(profile, text).get(kind.name, ()))
        for text in pieces
    ]


def _is_rival_mention(
    kind: IdentifierKind, other: Mention, mention: Mention, claim_mentions: Sequence[Mention]
) -> bool:
    """Whether an identifier is a rival of one of the claim, and none that the claim says too."""
    return (
        not other.is_reference
        and _are_rivals(kind, mention, other)
        and not any(_mentions_agree(kind, our, other) for our in claim_mentions)
    )


def _allows_others(kind: IdentifierKind, query: str) -> bool:
    """Whether a query may be answered by another identifier of a kind than it names."""
    return bool(kind.unless) and compile_pattern(kind.unless).search(prepare_text(query)) is not None


def _mentions_agree(kind: IdentifierKind, expected: Mention, actual: Mention) -> bool:
    """Whether an identifier that is held is the one asked for, or, where that will do, a part of it."""
    if expected.category != actual.category and expected.category and actual.category:
        return False
    return any(_form_matches(kind, one, other) for one in expected.forms for other in actual.forms)


def _form_matches(kind: IdentifierKind, expected: NormalForm, actual: NormalForm) -> bool:
    if kind.form == "parts" and "".join(expected) == "".join(actual):
        return True
    if len(expected) != len(actual) and (kind.must == "equal" or len(expected) > len(actual)):
        return False
    return all(one == other or WILDCARD in (one, other) for one, other in zip(expected, actual, strict=False))


def _are_rivals(kind: IdentifierKind, expected: Mention, actual: Mention) -> bool:
    """Whether two identifiers name different things of one sort; a whole is no rival of its part."""
    return expected.category == actual.category and not any(
        _form_matches(kind, one, other) or (kind.must == "within" and _form_matches(kind, other, one))
        for one in expected.forms
        for other in actual.forms
    )


# --- in other looks --------------------------------------------------------------------------------


def _occurs_plainly(kind: IdentifierKind, mention: Mention, text: str, raw_text: str) -> bool:
    """Whether an identifier stands in a text without the looks that the pattern asks for."""
    if kind.form in {"quantity", "money"}:
        return _has_figure(kind.form, mention, text)
    if kind.form == "date":
        return False
    if kind.form == "parts" and "." not in mention.label:
        return _has_heading(mention, raw_text)
    return _compile_label(mention.label).search(text) is not None


def _has_figure(form: str, mention: Mention, text: str) -> bool:
    """Whether a quantity stands in a text by its bare figure, as in a table, or with a unit of another spelling."""
    figure = FIGURE_PATTERN.search(mention.label)
    if figure is None:
        return False
    loose = SCALED_TABLE_PATTERN.search(text) is not None
    wanted = _normalize_digits(figure.group(), loose)
    for match in FIGURE_PATTERN.finditer(text):
        if _has_no_unit(text, match):
            if _normalize_digits(match.group(), loose) == wanted:
                return True
            continue
        unit = UNIT_PATTERN.match(text, match.end())
        found = parse_quantities(f"{match.group()} {unit[1]}") if unit and form == "quantity" else ()
        if any(
            one.unit and mention.category.endswith(one.unit) and (f"{one.value:f}",) in mention.forms
            for one in found
        ):
            return True
    return False


def _has_no_unit(text: str, match: re.Match[str]) -> bool:
    """Whether a figure has no unit of its own."""
    before, after = text[: match.start()][-1:], text[match.end() :][:14].lstrip(" -")
    return not (
        before.isalnum()
        or before in {"$", "€", "£", "¥"}
        or after[:1] == "%"
        or (after[:1].isalpha() and not after.startswith("degree"))
    )


def _normalize_digits(figure: str, ignore_scale: bool) -> str:
    plain = figure.replace(",", "")
    if ignore_scale:
        return plain.replace(".", "").strip("0")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def _has_heading(mention: Mention, raw_text: str) -> bool:
    """Whether a line of a text opens with a label, as in "12. Leave", or it has the mark of a part, as in "(b)"."""
    whole, *marks = re.split(r"(?=\()", mention.label)
    if not marks:
        return re.search(rf"(?m)^\W{{0,4}}{re.escape(whole)}(?:[.):]|\W*\|)", raw_text) is not None
    named = _compile_label(whole, ends=r"(?!\()").search(raw_text) is not None
    return named and all(re.search(rf"(?:^|[\s;:.,]){re.escape(mark)}", raw_text) for mark in marks)


@cache
def _compile_label(label: str, ends: str = "") -> re.Pattern[str]:
    """A label as a word of its own."""
    return re.compile(rf"(?<!\w)(?<!\d\.){re.escape(label)}(?!\w|\.\d){ends}", re.IGNORECASE)


def _remove_mentions(text: str, removed: Sequence[Mention]) -> str:
    """A text without some of its mentions."""
    text = prepare_text(text)
    for one in removed:
        text = f"{text[: one.start]}{' ' * (one.end - one.start)}{text[one.end :]}"
    return text


def _join_mentions(mentions: Sequence[Mention]) -> str:
    """Some mentions in words."""
    names = list(dict.fromkeys(one.written for one in mentions))
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
