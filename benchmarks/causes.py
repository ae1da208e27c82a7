"""Plant one cause in each trace of a system that answers right, and count how often it is named.

    python -m benchmarks.causes TRACES [--judge embedded] [--seed 1]

TRACES are those of a system, such as traces-v1.jsonl of `ragfault demo`. Those that the answer key calls right are
altered in thirteen ways, one for each trace in turn, and every fourth stays as it is. "With key" keeps gold, references
and facts; "without" takes them away. The plants were written beside the table of causes: its figures are those of
development.
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from ragfault import evaluate
from ragfault.diagnosis.causes.table import CAUSES
from ragfault.diagnosis.run_analysis import diagnose_run
from ragfault.model.records import Chunk, ConversationTurn, Gold, Step, Trace

REFUSALS = (
    "I could not find that in the handbook.",
    "The documents at hand say nothing about this.",
    "Sorry, I have no information on that point.",
)
INVENTIONS = (
    "It depends on the colour of the badge that the head of the quay hands out each spring.",
    "A committee of nine retired pilots decides this by drawing lots on midsummer day.",
    "The amount is refunded in full to anyone who brings two bottles of heather honey.",
)
Plant = Callable[[Trace, "System"], Trace | None]


class System:
    """The right traces of a system, and what plants need of them."""

    def __init__(self, traces: list[Trace], seed: int) -> None:
        self.traces = traces
        self.random = random.Random(seed)
        self.chunks = list({chunk.id: chunk for trace in traces for chunk in trace.chunks or ()}.values())

    def list_gold(self, trace: Trace) -> set[str]:
        """Return the ids of the chunks that hold the answer."""
        gold = trace.gold or Gold()
        covering = {chunk.id for chunk in trace.chunks or () if _hold_span(chunk, gold)}
        return covering | {name for name, grade in gold.chunks.items() if grade > 0}

    def swap_gold(self, trace: Trace) -> tuple[Chunk, ...]:
        """Return the chunks with another one in the place of each that holds the answer."""
        gold = self.list_gold(trace)
        others = [chunk for chunk in self.chunks if chunk.id not in gold | {own.id for own in trace.chunks or ()}]
        return tuple(self.random.choice(others) if chunk.id in gold else chunk for chunk in trace.chunks or ())


def _hold_span(chunk: Chunk, gold: Gold) -> bool:
    return any(
        span.document == chunk.document and (chunk.start or 0) <= span.start and span.end <= (chunk.end or 0)
        for span in gold.spans
    )


def fail(trace: Trace, _: System) -> Trace:
    """Make the pipeline fail."""
    return replace(trace, answer=None, error="TimeoutError: the reranker did not answer within 10 s")


def return_blank(trace: Trace, _: System) -> Trace:
    """Return a blank in place of the answer."""
    return replace(trace, answer="  ")


def return_provider_error(trace: Trace, _: System) -> Trace:
    """Return the message of a provider in place of the answer."""
    return replace(trace, answer="Error code: 429 - Rate limit reached for this model, please try again in 20 s.")


def drop_gold(trace: Trace, system: System) -> Trace | None:
    """Drop the passage from what was retrieved; the model refuses or invents."""
    chunks = system.swap_gold(trace)
    answer = system.random.choice(REFUSALS + INVENTIONS)
    return replace(trace, chunks=chunks, answer=answer, citations=None) if chunks != trace.chunks else None


def cut_after_search(trace: Trace, system: System) -> Trace | None:
    """Drop the passage after the search, in the reranker."""
    gold = system.list_gold(trace)
    if not gold:
        return None
    returned = tuple(chunk.id for chunk in trace.chunks or ())
    steps = (Step(id="s1", kind="retrieve", input=trace.query, chunks=returned), Step(id="s2", kind="rerank"))
    return replace(
        trace, chunks=system.swap_gold(trace), steps=steps, answer=system.random.choice(REFUSALS), citations=None
    )


def rewrite_badly(trace: Trace, system: System) -> Trace | None:
    """Rewrite the query without its names and numbers."""
    words = re.findall(r"\b[a-z]{4,}\b", trace.query)
    if not re.search(r"\d|(?<!^)\b[A-Z]\w+", trace.query[1:]) or len(words) < 2:
        return None
    steps = (
        Step(id="s1", kind="rewrite", input=trace.query, output=" ".join(words[:2])),
        Step(id="s2", kind="retrieve", input=" ".join(words[:2])),
    )
    return replace(
        trace, chunks=system.swap_gold(trace), steps=steps, answer=system.random.choice(REFUSALS), citations=None
    )


def forget_history(trace: Trace, system: System) -> Trace | None:
    """Search a follow-up as it stands."""
    history = (
        ConversationTurn(role="user", text=f"I have a question on the Ardvane Ferry Company. {trace.query}"),
        ConversationTurn(role="assistant", text="What would you like to know of it?"),
    )
    steps = (Step(id="s1", kind="retrieve", input="and how is it there?"),)
    return replace(
        trace,
        query="and how is it there?",
        history=history,
        steps=steps,
        chunks=system.swap_gold(trace),
        answer=system.random.choice(REFUSALS),
        citations=None,
    )


def refuse(trace: Trace, system: System) -> Trace:
    """Refuse beside the passage."""
    return replace(trace, answer=system.random.choice(REFUSALS), citations=None)


def change_number(trace: Trace, _: System) -> Trace | None:
    """Change a number of the answer."""
    answer, count = re.subn(r"\d+", lambda number: str(int(number[0]) + 3), trace.answer or "", count=1)
    return replace(trace, answer=answer, citations=None) if count else None


def negate(trace: Trace, _: System) -> Trace | None:
    """Negate the answer."""
    answer, count = re.subn(r"\b(is|are|must|may|can|pays?)\b", r"\1 not", trace.answer or "", count=1)
    return replace(trace, answer=answer, citations=None) if count else None


def write_invention(trace: Trace, system: System) -> Trace:
    """Write an answer that no passage has."""
    return replace(trace, answer=system.random.choice(INVENTIONS), citations=None)


def answer_another(trace: Trace, system: System) -> Trace:
    """Answer another question, whose passage was retrieved as well."""
    other = system.random.choice([item for item in system.traces if item.route != trace.route])
    return replace(trace, answer=other.answer, chunks=(*(trace.chunks or ()), *(other.chunks or ())), citations=None)


def make_unanswerable(trace: Trace, system: System) -> Trace:
    """Make a question that the corpus does not answer, and answer it all the same."""
    return replace(
        trace,
        query="Which colour do the ferries of the future have, and who chose it?",
        answerable=False,
        gold=None,
        reference=None,
        facts=None,
        answer=system.random.choice(INVENTIONS),
        citations=None,
    )


PLANTS: dict[Plant, tuple[str, ...]] = {
    fail: ("failed",),
    return_blank: ("blank",),
    return_provider_error: ("not_an_answer",),
    drop_gold: ("not_retrieved", "not_covered"),
    cut_after_search: ("not_shown",),
    rewrite_badly: ("query_changed",),
    forget_history: ("history_ignored",),
    refuse: ("refused",),
    change_number: ("contradicted",),
    negate: ("contradicted",),
    write_invention: ("invented",),
    answer_another: ("off_topic", "left_out"),
    make_unanswerable: ("answered_unanswerable",),
}
"""A plant → the causes that name it right; the first where the record has all that separates them."""


def alter_traces(system: System) -> dict[str, tuple[Trace, Plant | None]]:
    """Return the traces with one plant each, in turn; every fourth stays right."""
    plants = list(PLANTS)
    planted: dict[str, tuple[Trace, Plant | None]] = {}
    turn = 0
    for number, trace in enumerate(system.traces):
        if number % 4 == 3:
            planted[trace.id] = (trace, None)
            continue
        for _ in plants:
            plant = plants[turn % len(plants)]
            turn += 1
            altered = plant(trace, system)
            if altered is not None:
                planted[trace.id] = (altered, plant)
                break
    return planted


def select_right(path: Path, folder: Path) -> list[Trace]:
    """Return the traces whose answer the key calls right and whose passage was retrieved."""
    run = evaluate(path, folder / "all", judge="lexical")
    right = {item.trace for item in diagnose_run(run) if item.key_outcome == "right answer"}
    return [trace for trace in run.traces() if trace.id in right and trace.gold and trace.chunks]


def hide_key(trace: Trace) -> Trace:
    """Return a trace without its answer key."""
    return replace(trace, gold=None, reference=None, facts=None, answerable=None)


def measure(planted: dict[str, tuple[Trace, Plant | None]], judge: str, folder: Path, *, with_key: bool) -> None:
    """Print how many plants are found, at the right stage and with the right cause."""
    traces = [trace if with_key else hide_key(trace) for trace, _ in planted.values()]
    run = evaluate(traces, folder, judge=judge)
    counts: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    named_right: defaultdict[float, list[bool]] = defaultdict(list)
    for diagnosis in diagnose_run(run):
        plant, cause = planted[diagnosis.trace][1], diagnosis.cause
        assert cause is not None
        if plant is None:
            counts["right traces"] += 1
            counts["right traces called bad"] += cause.rating.outcome == "bad"
            continue
        expected = PLANTS[plant]
        counts["plants"] += 1
        counts["called bad"] += cause.rating.outcome == "bad"
        named = cause.cause or cause.rating.outcome
        counts["right stage"] += cause.stage == CAUSES[expected[0]].stage
        counts["right cause"] += named in expected
        if cause.probability is not None:
            named_right[cause.probability].append(named in expected)
        if named not in expected:
            wrong[f"{plant.__name__} → {named}"] += 1
    share = counts["right traces called bad"] / max(1, counts["right traces"])
    print(
        f"{'with' if with_key else 'without'} key: {counts['plants']} plants, called bad {counts['called bad']}, "
        f"right stage {counts['right stage'] / counts['plants']:.0%}, "
        f"right cause {counts['right cause'] / counts['plants']:.0%}; "
        f"right answers called bad {share:.0%} of {counts['right traces']}"
    )
    for probability, hits in sorted(named_right.items(), reverse=True):
        print(f"    stated {probability:.2f}: right {sum(hits):>2} of {len(hits)}")
    decided = sum(map(len, named_right.values()))
    error = sum(abs(sum(hits) - probability * len(hits)) for probability, hits in named_right.items()) / decided
    print(f"    calibration error of the cause's probability {error:.3f}")
    for text, count in wrong.most_common():
        print(f"    {count:>3}  {text}")


def main() -> None:
    """Measure how often the planted causes are named, with the key and without."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, help="traces of a system that answers right, such as those of the demo")
    parser.add_argument("--judge", default="embedded")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        system = System(select_right(options.traces, Path(folder)), options.seed)
        planted = alter_traces(system)
        for with_key in (True, False):
            measure(planted, options.judge, Path(folder, str(with_key)), with_key=with_key)


if __name__ == "__main__":
    main()
