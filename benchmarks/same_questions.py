"""Measure how well a made question that asks the same as another one is noticed.

    python -m benchmarks.same_questions DATA

Found: of pairs of authored questions that ask the same in other words. False: of the pairs of different questions, with
different answers, on one paragraph of SQuAD 2.0 (DATA holds squad2_questions).
"""

from __future__ import annotations

import argparse
from itertools import combinations
from pathlib import Path

from benchmarks.datasets import read_rows
from ragfault.apps.testsets.making.filters import ask_the_same
from ragfault.model.grouping import group_by

PARAPHRASES = (
    ("How much does a bisque firing in Wren cost?", "What is the price of a bisque firing in Wren?"),
    ("Who must be there when the gas kiln is fired?", "Which person has to be present during gas firings?"),
    ("How long in advance do I have to book a firing?", "How many days ahead must a firing be booked?"),
    ("What does error E-7 mean?", "What is the meaning of the error E-7?"),
    ("Where is the first-aid box?", "Where do I find the first aid box?"),
    ("Who looks after the electric kilns?", "Who is responsible for the electric kilns?"),
    ("When may I open the lid of the kiln?", "At which temperature can the lid be opened?"),
    ("Why do iron glazes turn dull?", "What makes iron glazes dull?"),
    ("How do I become a member?", "What do I have to do to join as a member?"),
    ("How long are logs kept?", "For how many days are the logs stored?"),
    ("How many requests can I send per day for free?", "What is the daily number of free requests?"),
    ("Which berths are reserved for ferries?", "At which berths do ferries moor?"),
    ("Who decides on exceptions for dangerous goods?", "Which person may allow exceptions for dangerous goods?"),
    ("When are blood samples taken?", "At what time of day is blood drawn?"),
    ("What is the deposit for the television?", "How much do I pay as a deposit for the television?"),
    ("Can children visit patients?", "Are children allowed to visit?"),
    ("How often does bus 14 run?", "What is the interval of bus 14?"),
    ("What happens if I cancel late?", "What are the consequences of a late cancellation?"),
    ("How far ahead do tide forecasts reach?", "How many days of tide forecasts are available?"),
    ("When do ferries stop running?", "At what wind speed are ferries suspended?"),
    ("Which mask is needed for sanding?", "What kind of mask do I wear for sanding?"),
    ("How hot can Heron get?", "What is the maximum temperature of Heron?"),
    ("How do I reset a forgotten password?", "What should I do when I forgot my password?"),
    ("Is the car park free for patients?", "Do patients have to pay for the car park?"),
)


def list_different(folder: Path) -> list[tuple[str, str]]:
    """List the pairs of questions on one paragraph whose answers have nothing in common."""
    rows = [row for row in read_rows(folder, "squad2_questions") if row["answerable"]]
    return [
        (first["query"], second["query"])
        for group in group_by(rows, lambda row: row["gold_pid"]).values()
        for first, second in combinations(group, 2)
        if {answer.lower() for answer in first["answers"]}.isdisjoint(answer.lower() for answer in second["answers"])
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("data", type=Path)
    different = list_different(parser.parse_args().data)
    for name, pairs in (("found", PARAPHRASES), ("false", different)):
        hits = sum(ask_the_same(*pair) for pair in pairs)
        print(f"{name}: {hits} of {len(pairs):,}, {hits / len(pairs):.1%}")


if __name__ == "__main__":
    main()
