"""Agreement: whether a passage, by a lens, speaks about the very things that a query or a claim names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from ragfault.judges.lens import Kind, Lens
from ragfault.judges.mentions import ANY, Mention, even, mentions
from ragfault.judges.passages import read
from ragfault.judges.patterns import compiled
from ragfault.judges.rarity import rarity
from ragfault.text import content
from ragfault.text.measures import measures

__all__ = ["Conflict", "conflict", "disagreement", "misplaced", "respelled"]

Form = tuple[str, ...]
COVERED = 0.6
"""A stretch that says so much of a claim but for its identifier is about the same thing."""
NEARLY, LESS = 0.8, 0.5
"""An identifier stands in the wrong place where another's stretch says nearly all of the claim, its own less than half
of that."""
UNIT = re.compile(r"[ -]?([^\W\d_]+)")
FIGURE = re.compile(r"\d[\d,]*(?:\.\d+)*")
LOOSE = re.compile(
    r"\bin (?:[a-z$€£]+ ){0,2}(?:thousand|million|billion)s?\b|\(?[$€£]? ?(?:000s?|mn?|bn)\)", re.IGNORECASE
)
"""Where a table counts in thousands or millions, only the digits of its figures can be compared."""


class Conflict(NamedTuple):
    """A claim that names another thing than the passages."""

    reason: str
    direct: bool
    """Whether a passage says the same of another one, so that the claim is contradicted."""


class Unit(NamedTuple):
    """A stretch for which an identifier speaks: a passage, or a sentence of one."""

    text: str
    raw: str
    """With its lines."""
    held: tuple[Mention, ...]


def disagreement(lens: Lens, query: str, text: str) -> str | None:
    """Why a text speaks about something else than the query asks for; None where it does not.

    Of a kind of identifier that the query names, the text names at least one, and none that the query names.
    What names none of that kind is left to the judge.

    >>> from ragfault.judges.lens import load_lens
    >>> disagreement(load_lens("legal"), "What does Section 12 say?", "Section 9 covers parental leave.")
    'the query asks about Section 12, the passage speaks about Section 9'
    """
    asked = mentions(lens, query)
    for kind in lens.identifiers:
        if "relevance" not in kind.where or kind.name not in asked or _free(kind, query):
            continue
        wanted = [one for one in asked[kind.name] if not one.aside]
        held = mentions(lens, text).get(kind.name, ())
        if not wanted or any(_agree(kind, one, other) for one in wanted for other in held):
            continue
        others = [one for one in held if not one.aside and any(_rivals(kind, want, one) for want in wanted)]
        if others and not any(_there(kind, one, even(text), text) for one in wanted):
            return f"the query asks about {_listed(wanted)}, the passage speaks about {_listed(others)}"
    return None


def misplaced(lens: Lens, claim: str, text: str) -> str | None:
    """Why a text cannot support a claim: it names another thing of the same sort, or not that thing.

    >>> from ragfault.judges.lens import load_lens
    >>> misplaced(load_lens("medical"), "Give 10 mg of it.", "Give 10 mcg of it.")
    'the claim says 10 mg, the passage 10 mcg'
    >>> misplaced(load_lens("medical"), "Give 0.5 g of it.", "Give 500 mg of it.")
    """
    found = conflict(lens, claim, (text,))
    return found.reason if found else None


def conflict(lens: Lens, claim: str, texts: Sequence[str], query: str = "") -> Conflict | None:
    """The first identifier of a claim that passages, taken together, do not bear out.

    A value that the query gives, as in "after six years" or "I take 20 mg", need not be borne out; a section or
    version that it asks about must.
    """
    said, asked = mentions(lens, claim), mentions(lens, query) if query else {}
    for kind in lens.identifiers:
        if "support" not in kind.where:
            continue
        ours = [one for one in said.get(kind.name, ()) if not one.aside]
        given = asked.get(kind.name, ()) if "relevance" not in kind.where else ()
        for mention in ours:
            if any(_agree(kind, mention, one) for one in given):
                continue
            found = _borne(kind, mention, ours, claim, _units(lens, kind, texts))
            if found:
                return found
    return None


def respelled(lens: Lens, text: str, others: Sequence[str]) -> str:
    """A text with its identifiers spelled as other texts spell the very same ones, so that any judge sees them agree.

    >>> from ragfault.judges.lens import load_lens
    >>> respelled(load_lens("medical"), "Give 0.5 g by mouth.", ["Give 500 mg orally."])
    'Give 500 mg orally.'
    """
    spelled = even(text)
    for kind, ours in mentions(lens, text).items():
        theirs = [one for other in others for one in mentions(lens, other).get(kind, ())]
        for one in ours:
            same = [
                other.shown for other in theirs if (one.what, one.forms[0]) == (other.what, other.forms[0])
            ]
            listed = sum(other.start == one.start for other in ours) > 1
            if same and not listed and one.shown.casefold() not in {shown.casefold() for shown in same}:
                spelled = spelled.replace(one.shown, same[0], 1)
    return text if spelled == even(text) else spelled


def _borne(
    kind: Kind, mention: Mention, ours: Sequence[Mention], claim: str, units: Sequence[Unit]
) -> Conflict | None:
    """How the stretches that hold an identifier compare with those that hold another in its place."""
    told = frozenset(content(_without(claim, ours)))
    whole = rarity().total(told)
    own, best, rival = -1.0, 0.0, None
    neutral: list[Mention] = []
    for unit in units:
        weight = rarity().total(told.intersection(content(unit.text))) if told else 0.0
        if any(_agree(kind, mention, one) for one in unit.held) or _there(kind, mention, unit.text, unit.raw):
            own = max(own, weight)
            continue
        others = [one for one in unit.held if _strange(kind, one, mention, ours)]
        if others and (rival is None or weight > best):
            best, rival = weight, others
        neutral += [one for one in unit.held if one.what == mention.what and not _rivals(kind, mention, one)]
    same = rival is not None and best >= COVERED * whole
    if own >= 0 and (len(ours) > 1 or not 0 < NEARLY * whole <= best or own >= LESS * best):
        return None
    if rival:
        return Conflict(f"the claim says {mention.shown}, the passage {_listed(rival)}", direct=same)
    if neutral:
        return Conflict(f"the claim says {mention.shown}, the passage only {_listed(neutral)}", direct=False)
    return Conflict(f"no passage says {mention.shown}", direct=False)


def _units(lens: Lens, kind: Kind, texts: Sequence[str]) -> list[Unit]:
    """The stretches for which an identifier of this kind speaks."""
    pieces = texts if kind.reach == "chunk" else [one.text for text in texts for one in read(text)]
    return [Unit(even(text), text, mentions(lens, text).get(kind.name, ())) for text in pieces]


def _strange(kind: Kind, one: Mention, mention: Mention, ours: Sequence[Mention]) -> bool:
    """Whether an identifier is a rival of one of the claim, and none that the claim says too."""
    return not one.aside and _rivals(kind, mention, one) and not any(_agree(kind, our, one) for our in ours)


def _free(kind: Kind, query: str) -> bool:
    """Whether a query may be answered by another identifier of a kind than it names."""
    return bool(kind.unless) and compiled(kind.unless).search(even(query)) is not None


def _agree(kind: Kind, asked: Mention, held: Mention) -> bool:
    """Whether an identifier that is held is the one asked for, or, where that will do, a part of it."""
    if asked.what != held.what and asked.what and held.what:
        return False
    return any(_fits(kind, one, other) for one in asked.forms for other in held.forms)


def _fits(kind: Kind, asked: Form, held: Form) -> bool:
    if kind.form == "parts" and "".join(asked) == "".join(held):
        return True
    if len(asked) != len(held) and (kind.must == "equal" or len(asked) > len(held)):
        return False
    return all(one == other or ANY in (one, other) for one, other in zip(asked, held, strict=False))


def _rivals(kind: Kind, asked: Mention, held: Mention) -> bool:
    """Whether two identifiers name different things of one sort; a whole is no rival of its part."""
    return asked.what == held.what and not any(
        _fits(kind, one, other) or (kind.must == "within" and _fits(kind, other, one))
        for one in asked.forms
        for other in held.forms
    )


# --- in other looks --------------------------------------------------------------------------------


def _there(kind: Kind, mention: Mention, text: str, raw: str) -> bool:
    """Whether an identifier stands in a text without the looks that the pattern asks for."""
    if kind.form in {"quantity", "money"}:
        return _figured(kind.form, mention, text)
    if kind.form == "date":
        return False
    if kind.form == "parts" and "." not in mention.label:
        return _headed(mention, raw)
    return _word(mention.label).search(text) is not None


def _figured(form: str, mention: Mention, text: str) -> bool:
    """Whether a quantity stands in a text by its bare figure, as in a table, or with a unit of another spelling."""
    figure = FIGURE.search(mention.label)
    if figure is None:
        return False
    loose = LOOSE.search(text) is not None
    wanted = _digits(figure.group(), loose)
    for match in FIGURE.finditer(text):
        if _bare(text, match):
            if _digits(match.group(), loose) == wanted:
                return True
            continue
        unit = UNIT.match(text, match.end())
        found = measures(f"{match.group()} {unit[1]}") if unit and form == "quantity" else ()
        if any(
            one.unit and mention.what.endswith(one.unit) and (f"{one.value:f}",) in mention.forms
            for one in found
        ):
            return True
    return False


def _bare(text: str, match: re.Match[str]) -> bool:
    """Whether a figure has no unit of its own."""
    before, after = text[: match.start()][-1:], text[match.end() :][:14].lstrip(" -")
    return not (
        before.isalnum()
        or before in {"$", "€", "£", "¥"}
        or after[:1] == "%"
        or (after[:1].isalpha() and not after.startswith("degree"))
    )


def _digits(figure: str, loose: bool) -> str:
    plain = figure.replace(",", "")
    if loose:
        return plain.replace(".", "").strip("0")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def _headed(mention: Mention, raw: str) -> bool:
    """Whether a line of a text opens with a label, as in "12. Leave", or it has the mark of a part, as in "(b)"."""
    whole, *marks = re.split(r"(?=\()", mention.label)
    if not marks:
        return re.search(rf"(?m)^\W{{0,4}}{re.escape(whole)}(?:[.):]|\W*\|)", raw) is not None
    named = _word(whole, ends=r"(?!\()").search(raw) is not None
    return named and all(re.search(rf"(?:^|[\s;:.,]){re.escape(mark)}", raw) for mark in marks)


@cache
def _word(label: str, ends: str = "") -> re.Pattern[str]:
    """A label as a word of its own."""
    return re.compile(rf"(?<!\w)(?<!\d\.){re.escape(label)}(?!\w|\.\d){ends}", re.IGNORECASE)


def _without(text: str, found: Sequence[Mention]) -> str:
    """A text without some of its mentions."""
    text = even(text)
    for one in found:
        text = f"{text[: one.start]}{' ' * (one.end - one.start)}{text[one.end :]}"
    return text


def _listed(found: Sequence[Mention]) -> str:
    """Some mentions in words."""
    names = list(dict.fromkeys(one.shown for one in found))
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
