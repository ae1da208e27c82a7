"""Agreement of identifiers between a passage and a query or claim, and the rewriting of their notation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from ragfault.judges.checks.lexicon import load_idf
from ragfault.judges.checks.passages import split_passage
from ragfault.judges.domain.mentions import WILDCARD, Mention, extract_mentions, prepare_text
from ragfault.judges.domain.profile import DomainProfile, IdentifierKind, find_matches
from ragfault.text.normalization import split_content_words
from ragfault.text.quantities import parse_quantities

NormalForm = tuple[str, ...]
MIN_COVERED_SHARE = 0.6
"""Minimum share of the other words of a claim in a scope on the same subject."""
NEARLY_ALL_SHARE, MIN_OWN_RATIO = 0.8, 0.5
"""An identifier is misplaced if another's scope has nearly all of the claim, and its own scope less than half of that.
"""
UNIT_PATTERN = re.compile(r"[ -]?([^\W\d_]+)")
FIGURE_PATTERN = re.compile(r"\d[\d,]*(?:\.\d+)*")
SCALED_TABLE_PATTERN = re.compile(
    r"\bin (?:[a-z$€£]+ ){0,2}(?:thousand|million|billion)s?\b|\(?[$€£]? ?(?:000s?|mn?|bn)\)", re.IGNORECASE
)
"""Mark of a table in thousands or millions, of whose figures only the digits can be compared."""


class IdentifierConflict(NamedTuple):
    """Conflict between an identifier of a claim and those of the passages."""

    reason: str
    is_contradiction: bool
    """True if a passage states the same about another identifier, so that the claim is contradicted."""


class IdentifierScope(NamedTuple):
    """The text to which an identifier applies: a passage, or a sentence of one."""

    text: str
    raw_text: str
    """The text with its line breaks."""
    mentions: tuple[Mention, ...]


def explain_query_conflict(profile: DomainProfile, query: str, text: str) -> str | None:
    """Return why a text concerns another identifier than the query; None if it does not.

    The text has identifiers of the same kind as the query, but none of those in the query. A text
    without that kind is left to the judge.

    >>> from ragfault.judges.domain.profile import load_profile
    >>> explain_query_conflict(load_profile("legal"), "What does Section 12 say?", "Section 9 covers parental leave.")
    'the query asks about Section 12, the passage is about Section 9'
    """
    query_mentions = extract_mentions(profile, query)
    for kind in profile.identifiers:
        if "relevance" not in kind.where or kind.name not in query_mentions or _allows_others(kind, query):
            continue
        expected = [mention for mention in query_mentions[kind.name] if not mention.is_reference]
        actual = extract_mentions(profile, text).get(kind.name, ())
        if not expected or any(_mentions_agree(kind, mention, other) for mention in expected for other in actual):
            continue
        rivals = [
            mention
            for mention in actual
            if not mention.is_reference
            and any(_are_rivals(kind, expected_mention, mention) for expected_mention in expected)
        ]
        if rivals and not any(_occurs_plainly(kind, mention, prepare_text(text), text) for mention in expected):
            return f"the query asks about {_join_mentions(expected)}, the passage is about {_join_mentions(rivals)}"
    return None


def detect_conflict(
    profile: DomainProfile, claim: str, texts: Sequence[str], query: str = ""
) -> IdentifierConflict | None:
    """Return a conflict for the first identifier of a claim that no passage confirms; None if all are confirmed.

    A value of the query, as in "after six years" or "I take 20 mg", needs no confirmation; a section or
    version that it asks about does.

    >>> from ragfault.judges.domain.profile import load_profile
    >>> detect_conflict(load_profile("medical"), "Give 10 mg of it.", ["Give 10 mcg of it."]).reason
    'the claim says 10 mg, the passage 10 mcg'
    >>> detect_conflict(load_profile("medical"), "Give 0.5 g of it.", ["Give 500 mg of it."])
    """
    claim_mentions, query_mentions = (
        extract_mentions(profile, claim),
        extract_mentions(profile, query) if query else {},
    )
    for kind in profile.identifiers:
        if "support" not in kind.where:
            continue
        kind_mentions = [value for value in claim_mentions.get(kind.name, ()) if not value.is_reference]
        query_values = query_mentions.get(kind.name, ()) if "relevance" not in kind.where else ()
        for mention in kind_mentions:
            if any(_mentions_agree(kind, mention, value) for value in query_values):
                continue
            conflict = _check_mention(kind, mention, kind_mentions, claim, _split_scopes(profile, kind, texts))
            if conflict:
                return conflict
    return None


def align_spelling(profile: DomainProfile, text: str, sources: Sequence[str]) -> str:
    """Rewrite the identifiers of a text in the notation of other texts, so that any judge can match them.

    >>> from ragfault.judges.domain.profile import load_profile
    >>> align_spelling(load_profile("medical"), "Give 0.5 g by mouth.", ["Give 500 mg orally."])
    'Give 500 mg orally.'
    """
    aligned = prepare_text(text)
    for kind, mentions in extract_mentions(profile, text).items():
        other_mentions = [
            mention for other_mention in sources for mention in extract_mentions(profile, other_mention).get(kind, ())
        ]
        for mention in mentions:
            spellings = [
                other_mention.written
                for other_mention in other_mentions
                if (mention.category, mention.forms[0]) == (other_mention.category, other_mention.forms[0])
            ]
            is_listed = sum(other_mention.start == mention.start for other_mention in mentions) > 1
            if (
                spellings
                and not is_listed
                and mention.written.casefold() not in {spelling.casefold() for spelling in spellings}
            ):
                aligned = aligned.replace(mention.written, spellings[0], 1)
    return text if aligned == prepare_text(text) else aligned


def _check_mention(
    kind: IdentifierKind,
    mention: Mention,
    claim_mentions: Sequence[Mention],
    claim: str,
    scopes: Sequence[IdentifierScope],
) -> IdentifierConflict | None:
    """Compare the scopes that have an identifier with those that have a rival of it."""
    claim_words = frozenset(split_content_words(_remove_mentions(claim, claim_mentions)))
    claim_weight = load_idf().sum_rarity(claim_words)
    own_weight, rival_weight, rivals = -1.0, 0.0, None
    neutral: list[Mention] = []
    for scope in scopes:
        weight = (
            load_idf().sum_rarity(claim_words.intersection(split_content_words(scope.text))) if claim_words else 0.0
        )
        if any(_mentions_agree(kind, mention, candidate) for candidate in scope.mentions) or _occurs_plainly(
            kind, mention, scope.text, scope.raw_text
        ):
            own_weight = max(own_weight, weight)
            continue
        scope_rivals = [
            candidate for candidate in scope.mentions if _is_rival_mention(kind, candidate, mention, claim_mentions)
        ]
        if scope_rivals and (rivals is None or weight > rival_weight):
            rival_weight, rivals = weight, scope_rivals
        neutral += [
            candidate
            for candidate in scope.mentions
            if candidate.category == mention.category and not _are_rivals(kind, mention, candidate)
        ]
    is_contradiction = rivals is not None and rival_weight >= MIN_COVERED_SHARE * claim_weight
    if own_weight >= 0 and (
        len(claim_mentions) > 1
        or not 0 < NEARLY_ALL_SHARE * claim_weight <= rival_weight
        or own_weight >= MIN_OWN_RATIO * rival_weight
    ):
        return None
    if rivals:
        return IdentifierConflict(
            f"the claim says {mention.written}, the passage {_join_mentions(rivals)}", is_contradiction=is_contradiction
        )
    if neutral:
        return IdentifierConflict(
            f"the claim says {mention.written}, the passage only {_join_mentions(neutral)}", is_contradiction=False
        )
    return IdentifierConflict(f"no passage says {mention.written}", is_contradiction=False)


def _split_scopes(profile: DomainProfile, kind: IdentifierKind, texts: Sequence[str]) -> list[IdentifierScope]:
    pieces = texts if kind.reach == "chunk" else [sentence.text for text in texts for sentence in split_passage(text)]
    return [
        IdentifierScope(prepare_text(text), text, extract_mentions(profile, text).get(kind.name, ())) for text in pieces
    ]


def _is_rival_mention(
    kind: IdentifierKind, rival: Mention, mention: Mention, claim_mentions: Sequence[Mention]
) -> bool:
    """Return whether a mention is a rival of one of the claim, and itself not in the claim."""
    return (
        not rival.is_reference
        and _are_rivals(kind, mention, rival)
        and not any(_mentions_agree(kind, claim_mention, rival) for claim_mention in claim_mentions)
    )


def _allows_others(kind: IdentifierKind, query: str) -> bool:
    """Return whether a query may be answered with other identifiers of a kind than its own."""
    return bool(kind.unless) and bool(find_matches(kind.unless, prepare_text(query)))


def _mentions_agree(kind: IdentifierKind, expected: Mention, actual: Mention) -> bool:
    """Return whether an identifier is the expected one or, if the kind allows it, a part of it."""
    if expected.category != actual.category and expected.category and actual.category:
        return False
    return any(_form_matches(kind, form, actual_form) for form in expected.forms for actual_form in actual.forms)


def _form_matches(kind: IdentifierKind, expected: NormalForm, actual: NormalForm) -> bool:
    if kind.form == "parts" and "".join(expected) == "".join(actual):
        return True
    if len(expected) != len(actual) and (kind.must == "equal" or len(expected) > len(actual)):
        return False
    return all(
        part == actual_part or WILDCARD in (part, actual_part)
        for part, actual_part in zip(expected, actual, strict=False)
    )


def _are_rivals(kind: IdentifierKind, expected: Mention, actual: Mention) -> bool:
    """Return whether two identifiers name different things of one category; a whole is no rival of its part."""
    return expected.category == actual.category and not any(
        _form_matches(kind, form, actual_form) or (kind.must == "within" and _form_matches(kind, actual_form, form))
        for form in expected.forms
        for actual_form in actual.forms
    )


def _occurs_plainly(kind: IdentifierKind, mention: Mention, text: str, raw_text: str) -> bool:
    """Return whether an identifier occurs in a text without the notation that its pattern requires."""
    if kind.form in {"quantity", "money"}:
        return _has_figure(kind.form, mention, text)
    if kind.form == "date":
        return False
    if kind.form == "parts" and "." not in mention.label:
        return _has_heading(mention, raw_text)
    return _compile_label(mention.label).search(text) is not None


def _has_figure(form: str, mention: Mention, text: str) -> bool:
    """Return whether a quantity occurs by its bare figure, as in a table, or with another spelling of its unit."""
    figure = FIGURE_PATTERN.search(mention.label)
    if figure is None:
        return False
    is_scaled = SCALED_TABLE_PATTERN.search(text) is not None
    digits = _normalize_digits(figure.group(), is_scaled)
    for match in FIGURE_PATTERN.finditer(text):
        if _has_no_unit(text, match):
            if _normalize_digits(match.group(), is_scaled) == digits:
                return True
            continue
        unit = UNIT_PATTERN.match(text, match.end())
        quantities = parse_quantities(f"{match.group()} {unit[1]}") if unit and form == "quantity" else ()
        if any(
            quantity.unit and mention.category.endswith(quantity.unit) and (f"{quantity.value:f}",) in mention.forms
            for quantity in quantities
        ):
            return True
    return False


def _has_no_unit(text: str, match: re.Match[str]) -> bool:
    before, after = text[: match.start()][-1:], text[match.end() :][:14].lstrip(" -")
    return not (
        before.isalnum()
        or before in {"$", "€", "£", "¥"}
        or after[:1] == "%"
        or (after[:1].isalpha() and not after.startswith("degree"))
    )


def _normalize_digits(figure: str, ignore_scale: bool) -> str:
    digits = figure.replace(",", "")
    if ignore_scale:
        return digits.replace(".", "").strip("0")
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _has_heading(mention: Mention, raw_text: str) -> bool:
    """Return whether a line opens with a label, as in "12. Leave", or the text has the mark of a part, as in "(b)"."""
    number, *marks = re.split(r"(?=\()", mention.label)
    if not marks:
        return re.search(rf"(?m)^\W{{0,4}}{re.escape(number)}(?:[.):]|\W*\|)", raw_text) is not None
    has_number = _compile_label(number, suffix=r"(?!\()").search(raw_text) is not None
    return has_number and all(re.search(rf"(?:^|[\s;:.,]){re.escape(mark)}", raw_text) for mark in marks)


@cache
def _compile_label(label: str, suffix: str = "") -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?<!\d\.){re.escape(label)}(?!\w|\.\d){suffix}", re.IGNORECASE)


def _remove_mentions(text: str, removed: Sequence[Mention]) -> str:
    text = prepare_text(text)
    for mention in removed:
        text = f"{text[: mention.start]}{' ' * (mention.end - mention.start)}{text[mention.end :]}"
    return text


def _join_mentions(mentions: Sequence[Mention]) -> str:
    names = list(dict.fromkeys(mention.written for mention in mentions))
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
