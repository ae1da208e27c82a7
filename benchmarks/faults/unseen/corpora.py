"""Texts and questions: a bilingual shop made here, the demo handbook, and the corpora of a chunking benchmark."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from benchmarks.faults.chunking import cut
from benchmarks.faults.config import Indexing
from benchmarks.faults.corpora import load_handbook_corpus
from benchmarks.faults.words import chance, pick
from ragfault.model.records import Chunk, Gold, Span, Trace

from .text import split_sentences

__all__ = [
    "handbook_chunks",
    "handbook_questions",
    "report_chunks",
    "report_questions",
    "shop_chunks",
    "shop_questions",
]

FIRST = ("Nordlicht", "Alder", "Brise", "Calder", "Dorn", "Esker", "Föhn", "Gale", "Heide", "Isar")
LAST = ("Kompakt", "Pro", "Mini", "Duo")
SORTS = {"heater": "Heizgerät", "kettle": "Wasserkocher", "fan": "Ventilator", "lamp": "Leuchte"}
COLOURS = (("slate grey", "schiefergrau"), ("moss green", "moosgrün"), ("cream", "cremeweiß"), ("copper", "kupfer"))
MATERIALS = (("brushed steel", "gebürsteter Stahl"), ("beech wood", "Buchenholz"), ("ceramic", "Keramik"))
PROPERTIES = {
    "weight": ("Gewicht", "kg"),
    "width": ("Breite", "cm"),
    "power": ("Leistung", "W"),
    "cable length": ("Kabellänge", "m"),
    "noise level": ("Lautstärke", "dB"),
    "colour": ("Farbe", ""),
    "material": ("Material", ""),
}
ORDERING = {
    "price": (
        "The price of the {0} is £{1}, including tax.",
        "Der Preis für das Modell {0} beträgt {1} €, inklusive Steuer.",
    ),
    "delivery": ("Delivery of the {0} takes {1} working days.", "Die Lieferung des Modells {0} dauert {1} Werktage."),
    "warranty": (
        "The warranty of the {0} lasts {1} months from purchase.",
        "Die Garantie für das Modell {0} gilt {1} Monate ab Kauf.",
    ),
    "return": (
        "The {0} can be returned within {1} days, but not after use.",
        "Das Modell {0} kann innerhalb von {1} Tagen zurückgegeben werden, jedoch nicht nach Gebrauch.",
    ),
}
ASKED = {
    "price": ("What is the price of the {0}?", "Wie hoch ist der Preis für das Modell {0}?"),
    "delivery": ("How long does delivery of the {0} take?", "Wie lange dauert die Lieferung des Modells {0}?"),
    "warranty": ("How long does the warranty of the {0} last?", "Wie lange gilt die Garantie für das Modell {0}?"),
    "return": ("Within how many days can the {0} be returned?", "In wie vielen Tagen kann {0} zurückgegeben werden?"),
}
CARE = (
    ("Clean the {0} with a dry cloth only.", "Reinigen Sie das Modell {0} nur mit einem trockenen Tuch."),
    ("Never cover the {0} while it is in use.", "Decken Sie das Modell {0} im Betrieb niemals ab."),
    ("Store the {0} upright in its box.", "Lagern Sie das Modell {0} aufrecht im Karton."),
    ("Keep the {0} away from children.", "Halten Sie das Modell {0} von Kindern fern."),
)
SHOPS = ("en", "de")


def _products() -> list[tuple[str, str]]:
    return [(f"{first} {last}", pick(tuple(SORTS), "sort", first, last)) for first in FIRST for last in LAST]


def _value(name: str, prop: str, shop: int) -> str:
    """Return a property of a product as its shop prints it; prices, delivery and returns differ between the shops."""
    luck = chance("value", name, prop)
    other = chance("value", name, prop, shop)
    match prop:
        case "colour":
            return pick(COLOURS, "colour", name)[shop]
        case "material":
            return pick(MATERIALS, "material", name)[shop]
        case "weight" | "cable length":
            figure = f"{0.8 + 5 * luck:.1f}"
        case "width" | "noise level":
            figure = str(int(18 + 40 * luck))
        case "power":
            figure = str(int(20 + 120 * luck) * 10)
        case "price":
            figure = f"{int(20 + 1400 * other):,}.90"
        case _:
            figure = str(int(3 + 40 * other))
    unit = PROPERTIES[prop][1] if prop in PROPERTIES else ""
    figure = figure.translate(str.maketrans(".,", ",.")) if shop else figure
    return f"{figure} {unit}".strip()


def _sections(name: str, sort: str, shop: int) -> Iterator[tuple[str, str]]:
    """Return the sections of a product page: a table, how to order, how to care."""
    table = [("Property", "Value") if not shop else ("Eigenschaft", "Wert"), ("---", "---")]
    table += [(PROPERTIES[p][0] if shop else p.capitalize(), _value(name, p, shop)) for p in PROPERTIES]
    kind = SORTS[sort] if shop else sort
    yield "data", f"# {name} ({kind})\n" + "\n".join(f"| {a} | {b} |" for a, b in table)
    lines = [text[shop].format(name, _value(name, prop, shop)) for prop, text in ORDERING.items()]
    yield "order", f"# {name}: {'bestellen' if shop else 'ordering'}\n" + "\n".join(lines)
    lines = [text[shop].format(name) for text in CARE]
    yield "care", f"# {name}: {'Pflege' if shop else 'care'}\n" + "\n".join(lines)


def shop_chunks() -> list[Chunk]:
    """Return the sections of all product pages of both shops as chunks; there are no offsets."""
    return [
        Chunk(id=f"{shop}:{i:03}/{section}", text=text, document=f"{shop}:{i:03}", metadata={"tenant": shop})
        for number, shop in enumerate(SHOPS)
        for i, (name, sort) in enumerate(_products())
        for section, text in _sections(name, sort, number)
    ]


def shop_questions() -> tuple[Trace, ...]:
    """Return questions about one or two properties of a product, in the language of the shop."""
    questions = []
    for number, shop in enumerate(SHOPS):
        for index, (name, _) in enumerate(_products()):
            for prop in (*PROPERTIES, *ORDERING):
                if chance("asked", shop, name, prop) < 0.55:
                    questions.append(_asked(shop, number, index, name, (prop,)))
            pair = (pick(tuple(PROPERTIES), "first", shop, name), pick(tuple(ORDERING), "second", shop, name))
            questions.append(_asked(shop, number, index, name, pair))
    return tuple(questions)


def _asked(shop: str, number: int, at: int, name: str, props: Sequence[str]) -> Trace:
    queries, facts, gold = [], [], {}
    for prop in props:
        value = _value(name, prop, number)
        if prop in PROPERTIES:
            label = PROPERTIES[prop][0] if number else prop
            queries.append(f"{label} des Modells {name}?" if number else f"What is the {prop} of the {name}?")
            facts.append(f"{name}: {label} {value}.")
            gold[f"{shop}:{at:03}/data"] = 2.0
        else:
            queries.append(ASKED[prop][number].format(name))
            facts.append(ORDERING[prop][number].format(name, value))
            gold[f"{shop}:{at:03}/order"] = 2.0
    return Trace(
        id=f"{shop}-{at:03}-{'-'.join(props)}".replace(" ", "_"),
        query=" ".join(queries),
        reference=" ".join(facts),
        facts=tuple(facts),
        gold=Gold(chunks=gold),
        route=shop,
    )


# --- handbook: the documents of the demo ---------------------------------------------------------------


def handbook_chunks() -> list[Chunk]:
    """Return the sections of the demo handbook as chunks with their places."""
    sections = cut(load_handbook_corpus().documents, Indexing())
    return [replace(chunk, metadata={"tenant": chunk.document}) for chunk in sections]


def handbook_questions() -> tuple[Trace, ...]:
    """Return the questions about the handbook that have an answer and stand alone."""
    return tuple(
        question for question in load_handbook_corpus().questions if question.gold and not question.conversation
    )


# --- reports: the corpora of a chunking benchmark ----------------------------------------------------


def report_chunks(folder: Path, window: int = 3, step: int = 2) -> list[Chunk]:
    """Return windows of so many sentences, each beginning so many sentences after the one before it."""
    chunks = []
    for path in sorted((folder / "chunking_corpora").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        spans = list(split_sentences(text))
        for index in range(0, max(1, len(spans) - window + step), step):
            part = spans[index : index + window]
            if part:
                start, end = part[0][0], part[-1][1]
                name = f"{path.stem}-{start}-{end}"
                chunks.append(
                    Chunk(
                        id=name,
                        text=text[start:end],
                        document=path.stem,
                        start=start,
                        end=end,
                        metadata={"tenant": path.stem},
                    )
                )
    return chunks


def report_questions(folder: Path) -> tuple[Trace, ...]:
    """Return the questions of `chunking_questions.jsonl.gz`, the gold spans as facts."""
    questions = []
    with gzip.open(folder / "chunking_questions.jsonl.gz", "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            facts = tuple(span["content"].strip() for span in row["gold_spans"])
            spans = tuple(
                Span(document=row["corpus"], start=span["start_index"], end=span["end_index"])
                for span in row["gold_spans"]
            )
            questions.append(
                Trace(
                    id=row["id"],
                    query=row["query"],
                    reference=" ".join(facts),
                    facts=facts,
                    gold=Gold(spans=spans),
                    route=row["corpus"],
                )
            )
    return tuple(questions)
