"""How the figures of a claim follow from those that were shown, in words that the encoder can read."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import permutations
from typing import NamedTuple

from ragfault.text.quantities import convert_number_words

FIGURE = re.compile(r"(?<![\w.,:/-])(\d+(?:[.,]\d+)*)(?![\w:/-]|[.,]\d)(\s?%| per ?cent| percent| Prozent| pour cent)?")
THOUSANDS = re.compile(r"\d{1,3}(?:[.,]\d{3})+")
MAX_FIGURES = 12
"""Figures that another may follow from, the first ones: of many, some make any figure."""
STEPS = 3
"""Steps in which the figures of a claim may follow from each other."""


class Figure(NamedTuple):
    """A number of a text, and whether it is a percentage."""

    value: float
    is_share: bool = False

    def __str__(self) -> str:
        return f"{self.value:.10g}"


def read_figures(text: str) -> list[Figure]:
    """Read the figures of a text; where a separator may be of thousands or of decimals, in both ways.

    >>> [str(figure) for figure in read_figures("Two weeks at 1.698 euros, less 5 %, by 18:30")]
    ['2', '1698', '1.698', '5']
    """
    figures = []
    for spelled, share in FIGURE.findall(convert_number_words(text)):
        plain = re.sub("[.,]", "", spelled)
        if THOUSANDS.fullmatch(spelled):
            figures.append(Figure(float(plain), bool(share)))
        integer, separator, decimals = spelled.replace(",", ".").rpartition(".")
        value = float(f"{integer.replace('.', '')}.{decimals}" if separator else plain)
        figures.append(Figure(value, bool(share)))
    return list(dict.fromkeys(figures))


def explain_figures(claim: str, evidence: str, known: Collection[float]) -> str:
    """Explain the figures of a claim that are not `known`, by those of its evidence; "" if some do not follow.

    >>> explain_figures("For 12 months it is £114.", "It costs £9.50 a month.", {9.5, 12.0})
    '12 × 9.5 is 114.'
    >>> explain_figures("For 12 months it is £115.", "It costs £9.50 a month.", {9.5, 12.0})
    ''
    """
    if not any(letter.isdigit() for letter in claim):
        return ""
    stated = read_figures(claim)
    new = [figure for figure in stated if figure.value and figure.value not in known]
    own = [figure for figure in stated if figure.value in known]
    base = list(dict.fromkeys([*own, *read_figures(evidence)]))[:MAX_FIGURES]
    explained: list[str] = []
    for _ in range(STEPS):
        for figure in list(new):
            way = next(_explain(figure.value, own, base), None)
            if way is not None:
                explained.append(f"{way} is {figure}.")
                new.remove(figure)
                base.append(figure)
    # One number that was written in two ways counts once.
    left = (
        {figure.value for figure in new}
        - {figure.value * 1000 for figure in stated}
        - {figure.value / 1000 for figure in stated}
    )
    return "" if left else " ".join(explained)


def _explain(value: float, own: Sequence[Figure], base: Sequence[Figure]) -> Iterator[str]:
    """Yield how a value follows: as the sum of the other figures of its claim, or from two figures."""
    if len(own) > 2 and _equals(sum(figure.value for figure in own), value):
        yield " + ".join(map(str, own))
    for left, right in permutations(base, 2):
        if right.is_share and _equals(left.value * right.value / 100, value):
            yield f"{right} % of {left}"
        elif right.is_share and _equals(left.value * (1 - right.value / 100), value):
            yield f"{left} less {right} %"
        elif right.is_share and _equals(left.value * (1 + right.value / 100), value):
            yield f"{left} plus {right} %"
        elif _equals(left.value * right.value, value):
            yield f"{left} × {right}"
        elif _equals(left.value + right.value, value):
            yield f"{left} + {right}"
        elif _equals(left.value - right.value, value):
            yield f"{left} − {right}"
        elif right.value and _equals(left.value / right.value, value):
            yield f"{left} ÷ {right}"


def _equals(first: float, second: float) -> bool:
    return abs(first - second) < 0.005
