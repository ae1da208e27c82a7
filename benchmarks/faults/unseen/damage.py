"""Changes of texts: what faults do to answers, queries and chunks."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.faults.words import chance
from ragfault.model.records import Chunk

from .text import terms

REPORTS: list[Path] = []
"""The folder of the reports, set where the bench starts."""
SWAPS = """
£=$ €=$ $=£ kg=lb cm=in W=kW dB=% million=billion billion=million percent=points days=weeks months=years years=months
Werktage=Wochen Monate=Jahre Tagen=Wochen
"""
"""Currencies and units, and what is written instead."""
UNITS = dict(pair.split("=") for pair in re.findall(r"\S+=\S+", SWAPS))
UNIT = re.compile(r"[£€$]|(?<=[\d ])(?:kg|cm|W|dB)\b|\b[a-zA-Z]{4,}\b")
ENGLISH = re.findall(
    r"\w+",
    """
    the and of in to is for a on with that was by are from not as at be it or we have has this year company price
    weight width power colour warranty delivery takes lasts days months returned after use
    """,
)
GERMAN = re.findall(
    r"\w+",
    """
    die und von in zu ist für ein auf mit dass war durch sind aus nicht als bei sein es oder wir haben hat dieses Jahr
    Firma Preis Gewicht Breite Leistung Farbe Garantie Lieferung dauert gilt Tage Monate zurückgegeben nach Gebrauch
    """,
)
OTHER = {**dict(zip(ENGLISH, GERMAN, strict=True)), **{g.lower(): e for e, g in zip(ENGLISH, GERMAN, strict=True)}}
WORD = r"[^\W\d_]+"
FIGURE = re.compile(r"\d+(?:[.,]\d+)*")
OPPOSITE = {
    **{"more": "less", "less": "more", "rose": "fell", "fell": "rose", "higher": "lower", "lower": "higher"},
    **{"increase": "decrease", "decrease": "increase", "increased": "decreased", "decreased": "increased"},
    **dict.fromkeys(("not", "never", "no", "nicht", "niemals", "jedoch"), ""),
    "without": "with",
}


def other_units(text: str) -> str:
    """Exchange currencies and units.

    >>> other_units("£30 for 2 days")
    '$30 for 2 weeks'
    """
    return UNIT.sub(lambda match: UNITS.get(match[0], match[0]), text)


def swapped_separators(text: str) -> str:
    """Exchange points and commas within figures."""
    return FIGURE.sub(lambda match: match[0].translate(str.maketrans(".,", ",.")), text)


def shorter_figures(text: str) -> str:
    """Drop the last digit of figures of two digits and more, but not the number of a bullet."""
    return re.sub(r"(?<=\d)\d(?![\d.,])", "", text)


def translated(text: str) -> str:
    """Replace the words of a small dictionary by those of the other language."""
    return re.sub(r"[^\W\d_]+", lambda match: OTHER.get(match[0].lower(), match[0]), text)


def negated(text: str) -> str:
    """Turn words into their opposites, and leave negations out."""
    return re.sub(r"[^\W\d_]+", lambda match: OPPOSITE.get(match[0].lower(), match[0]), text)


def without_markdown(text: str) -> str:
    """Take bullets, numbers of lists and line breaks out."""
    return " ".join(re.sub(r"^(?:\d\.|-) ", "", line) for line in text.split("\n"))


def one_word(text: str) -> str:
    """Keep the last figure, else the longest word."""
    figures = FIGURE.findall(re.sub(r"^\d\. ", "", text, flags=re.MULTILINE))
    return f"{figures[-1]}." if figures else f"{max(re.findall(WORD, text), key=len)}."


def without_names(text: str) -> str:
    """Leave out figures, and capitalised words after the first."""
    first, *rest = text.split(" ")
    return " ".join([first, *(word for word in rest if not word[:1].isupper() and not word[:1].isdigit())])


def without_alike(chunks: list[Chunk]) -> list[Chunk]:
    """Leave out every chunk that shares three tenths of its words with a lower one."""
    words = [frozenset(terms(chunk.text)) for chunk in chunks]
    return [
        chunk
        for i, chunk in enumerate(chunks)
        if not any(len(words[i] & other) > 0.3 * max(1, len(words[i])) for other in words[i + 1 :])
    ]


def html_noise(text: str) -> str:
    """Escape apostrophes, ampersands and signs, and put tags around lines and figures."""
    escaped = text.replace("&", "&amp;").replace("'", "&#39;").replace("’", "&rsquo;").replace("£", "&pound;")
    escaped = escaped.replace("€", "&euro;").replace("ü", "&uuml;").replace("ä", "&auml;").replace("$", "&#36;")
    return "\n".join(f"<p class='x'>{FIGURE.sub(lambda m: f'<b>{m[0]}</b>', line)}</p>" for line in escaped.split("\n"))


def shifted_table(text: str) -> str:
    """Move the values of a table down by a row, the last one to the first."""
    lines = text.split("\n")
    rows = [i for i, line in enumerate(lines) if line.startswith("|") and "---" not in line][1:]
    cells = [lines[at].strip("| ").split(" | ") for at in rows]
    for at, (label, _), (_, value) in zip(rows, cells, [*cells[-1:], *cells[:-1]], strict=True):
        lines[at] = f"| {label} | {value} |"
    return "\n".join(lines)


def mojibake(text: str) -> str:
    """Read UTF-8 as Windows-1252."""
    return text.encode("utf-8").decode("cp1252", errors="replace")


def ocr_noise(text: str, name: str) -> str:
    """Replace letters and digits that look alike in a fifth of the words."""
    alike = str.maketrans({"l": "1", "o": "0", "e": "c", "5": "S", "8": "B", "i": "j"})
    words = re.split(r"(\s)", text)
    return "".join(w.translate(alike) if chance("ocr", name, i) < 0.2 else w for i, w in enumerate(words))


def aged(text: str) -> str:
    """Replace figures by others, those in headings apart."""

    def other(match: re.Match[str]) -> str:
        first = int(match[0][0])
        return f"{first % 9 + 1}{match[0][1:]}"

    return "\n".join(line if line.startswith("#") else FIGURE.sub(other, line) for line in text.split("\n"))
