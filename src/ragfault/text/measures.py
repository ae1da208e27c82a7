"""Measures: quantities with a unit, in base units, so that equal quantities are equal."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import reduce
from typing import NamedTuple

from ragfault.text.quantities import BIG, SCALE, UNITS

__all__ = ["Measure", "measures"]


class Measure(NamedTuple):
    """A quantity in base units."""

    unit: str
    """The base unit: "g" for all masses, "g/l" for all masses in a volume."""
    value: Decimal


SIZES: dict[str, tuple[str, str]] = {
    "kg": ("g", "1000"), "mg": ("g", "0.001"), "µg": ("g", "0.000001"), "ng": ("g", "0.000000001"),
    "t": ("g", "1000000"), "lb": ("g", "453.59237"), "oz": ("g", "28.349523125"),
    "ml": ("l", "0.001"), "dl": ("l", "0.1"), "cl": ("l", "0.01"), "µl": ("l", "0.000001"), "cc": ("l", "0.001"),
    "km": ("m", "1000"), "cm": ("m", "0.01"), "mm": ("m", "0.001"), "mi": ("m", "1609.344"),
    "ft": ("m", "0.3048"), "inch": ("m", "0.0254"), "yd": ("m", "0.9144"),
    "ms": ("s", "0.001"), "min": ("s", "60"), "h": ("s", "3600"), "day": ("s", "86400"), "week": ("s", "604800"),
    "mmol": ("mol", "0.001"), "µmol": ("mol", "0.000001"), "nmol": ("mol", "0.000000001"),
    "kb": ("byte", "1000"), "mb": ("byte", "1000000"), "gb": ("byte", "1000000000"),
    "tb": ("byte", "1000000000000"), "khz": ("hz", "1000"), "mhz": ("hz", "1000000"), "ghz": ("hz", "1000000000"),
    "kcal": ("cal", "1000"), "kpa": ("pa", "1000"), "bp": ("%", "0.01"),
}  # fmt: skip
"""Unit → its base unit, and how many of those it is; what is not here is its own base."""
MORE = {
    "unit": "iu", "ug": "µg", "μmol": "µmol", "umol": "µmol", "μl": "µl", "ul": "µl", "d": "day", "c": "°c", "f": "°f",
    "bps": "bp", "basis point": "bp", "percentage point": "%", "per cent": "%", "nanogram": "ng", "deciliter": "dl",
    "decilitre": "dl", "millimole": "mmol", "degree c": "°c", "degree f": "°f", "degree celsius": "°c",
    "degree fahrenheit": "°f", "degrees c": "°c", "degrees f": "°f", "degrees celsius": "°c",
    "degrees fahrenheit": "°f",
}  # fmt: skip
"""Spellings that only a measure is looked for in."""
NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d*\.?\d+"
QUANTITY = re.compile(
    rf"(?P<figure>{NUMBER})(?: ?(?:-|to|or|and) ?(?P<last>{NUMBER}))?(?:[ -]?(?P<scale>{BIG})\b)?"
    r"[ -]?(?P<units>[^\d\s].*)?",
    re.IGNORECASE,
)
OVER = re.compile(r" ?/ ?| per ", re.IGNORECASE)
DIGITS = 12
"""Quantities are compared to so many digits."""


def measures(text: str) -> tuple[Measure, ...]:
    """What a number with a unit measures, in base units; of a range its two ends; nothing where it is none.

    An unknown unit is its own base; a bare number has the unit "".

    >>> measures("500 mg") == measures("0.5 g"), measures("10 mg") == measures("10 mcg")
    (True, False)
    >>> measures("2.5-5 mg/kg")
    (Measure(unit='g/g', value=Decimal('0.0000025')), Measure(unit='g/g', value=Decimal('0.000005')))
    """
    found = QUANTITY.fullmatch(text.strip())
    if not found:
        return ()
    bases = [_base(unit) for unit in OVER.split((found["units"] or "").strip(" ."))]
    factor = reduce(lambda left, right: left / right, (size for _, size in bases))
    factor = factor.scaleb(SCALE.get((found["scale"] or "").lower(), 0))
    unit = "/".join(name for name, _ in bases)
    figures = (found[name].replace(",", "") for name in ("figure", "last") if found[name])
    return tuple(Measure(unit, _even(Decimal(figure) * factor)) for figure in figures)


def _base(unit: str) -> tuple[str, Decimal]:
    """The base unit of a unit, and how many of those it is."""
    unit = unit.lower().strip()
    for spelling in (unit, unit.removesuffix("s")):
        name = MORE.get(spelling) or UNITS.get(spelling)
        if name or spelling in SIZES:
            base, size = SIZES.get(name or spelling, (name or spelling, "1"))
            return base, Decimal(size)
    return unit.removesuffix("s"), Decimal(1)


def _even(value: Decimal) -> Decimal:
    """A value in its one spelling."""
    text = f"{Decimal(f'{value:.{DIGITS}g}'):f}"
    return Decimal(text.rstrip("0").rstrip(".") if "." in text else text)
