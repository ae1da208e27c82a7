"""A small corpus of invented texts for the tests of evaluation sets."""

from __future__ import annotations

import pytest

from ragfault.model.records import Document

ISLANDS = ("Brenholm", "Tarvik", "Ostrey", "Lindal", "Fjorsay", "Merrow", "Skarvo", "Ulvik")
TRADES = ("carpenter", "baker", "teacher", "sailor", "weaver", "doctor", "farmer", "painter")
FOUNDERS = ("Ann Lee", "Tom Berg", "Ida Voss", "Karl Munk", "Eva Dahl", "Nils Rask", "Mia Holt", "Jon Foss")

WORKS = (
    ("windmill", "repaired"), ("school", "painted"), ("bakery", "bought"), ("chapel", "closed"), ("library", "opened"),
    ("lighthouse", "designed"), ("cinema", "rented"), ("stable", "sold"),
)  # fmt: skip
PEOPLE = ("Ola Brandt", "Liv Storm", "Per Moen", "Siv Aune", "Geir Foyn", "Unn Lie", "Arne Vik", "Tor Ness")


@pytest.fixture(scope="session")
def corpus() -> list[Document]:
    """Return eight documents of prose, a list and a table each."""
    return [
        Document(
            id=f"{island.lower()}.md",
            text=(
                f"# Harbour of {island}\n\n"
                f"The harbour of {island} was founded by {founder}, a {trade}, in {1850 + 7 * at}. "
                f"Its stone pier shelters {20 + 3 * at} fishing boats during the winter storms. "
                f"In {1900 + 5 * at} the council of {island} bought a crane from Hallgate Works for the quarry.\n\n"
                f"The {WORKS[at][0]} of {island} was {WORKS[at][1]} by {PEOPLE[at]}. "
                f"A {trade}'s lantern is a lamp that guides {island} crews through fog.\n\n"
                "## Fees\n\n"
                f"Visitors of {island} pay the harbour master before noon for every night:\n\n"
                f"- mooring at the {trade} quay\n- fresh water from the northern well\n- storage of sails and ropes\n\n"
                "## Timetable\n\n"
                "| Ferry | Departure | Price |\n|---|---|---|\n"
                f"| {island} North | {6 + at}:15 | {10 + at} crowns |\n"
                f"| {island} South | {7 + at}:45 | {12 + at} crowns |\n"
                f"| {island} Night | {9 + at}:05 | {15 + at} crowns |\n"
            ),
        )
        for at, (island, trade, founder) in enumerate(zip(ISLANDS, TRADES, FOUNDERS, strict=True))
    ]
