"""What happens to pairs of runs in practice, beside faults: pipelines that stop answering, and logs that change.

    python -m benchmarks.faults.situations [SITUATION …] [--sizes 104 624] [--keys key none] [--margin 0.05]

Each situation alters a copy of the demo's first version, one of them the baseline as well. Without a key, gold,
references and facts are removed from both sides. More than 104 traces are repetitions with ids of their own. A chain is
five such runs, oldest first. The row of the segment search has 500 questions of the fault bench in place of the demo.
Prints for each situation, key and size the verdict, the exit code and the first sentence of `bisect`, and whether these
are right.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from ragfault.analysis import bisect, gate, history
from ragfault.evaluation import evaluate
from ragfault.io.datasets import load_handbook
from ragfault.io.runs import Run
from ragfault.records import Chunk, Citation, Gold, Trace
from ragfault.reports.terminal.run_history import summarize_history

from .corpora import handbook_corpus
from .injection import pair

__all__ = ["SITUATIONS", "Situation", "build_pair", "demo_traces", "expect"]

EXIT_CODES = {"no fault": 0, "fault": 1, "cannot tell": 3}
HISTORY_CODES = {"recovered": 0, "no fault": 0, "fault": 1, "cannot tell": 3}
SEGMENT_PAIRS, ROUTES = 500, 8

FIGURE = re.compile(r"(?<![\d.,])\d+")  # the whole part of a number
AMOUNT = re.compile(r"£?\d[\d.,:]*\d|\d")

NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+")

WORD = re.compile(r"[^\W\d_]{2,}")
WORDINGS = (
    ("must", "has to"), ("may", "can"), ("each", "every"), ("pays", "is charged"), ("before", "ahead of"),
    ("at least", "no fewer than"), ("boat", "vessel"), ("is due", "has to be paid"), ("within", "inside"),
)  # fmt: skip

Change = Callable[[Trace], Trace]


class Situation(Struct, frozen=True, kw_only=True):
    """Situation: how it changes each trace of the candidate, and what may be said of it."""

    change: Change
    exits: tuple[int, ...]  # right exit codes of bisect
    words: str  # words that the sentence holds
    layer: str | None = None  # layer of the first fault
    unkeyed_words: str | None = None  # words of "cannot tell" where nothing but an answer key shows the fault
    baseline: Change = lambda trace: trace  # how it changes each trace of the baseline


def demo_traces() -> list[Trace]:
    """Return the first version of the demo."""
    return list(load_handbook().traces["v1"])


def among(share: float, change: Change) -> Change:
    """Change a share of the traces, chosen by their ids."""
    return lambda trace: change(trace) if crc32(trace.id.encode()) % 1000 < 1000 * share else trace


def in_turn(*changes: Change) -> Change:
    """Make several changes."""

    def apply(trace: Trace) -> Trace:
        for change in changes:
            trace = change(trace)
        return trace

    return apply


def fail(trace: Trace) -> Trace:
    """Let the pipeline time out."""
    return replace(trace, error="TimeoutError: 30 s", chunks=None, answer=None, citations=None)


def fail_empty(trace: Trace) -> Trace:
    """Let the pipeline time out and record empty lists."""
    return replace(trace, error="TimeoutError: 30 s", chunks=(), answer="", citations=())


def blank(trace: Trace) -> Trace:
    """Return no answer, or a blank one."""
    return replace(trace, answer=(None, "", " \n")[len(trace.id + trace.query) % 3], citations=())


def retrieve_nothing(trace: Trace) -> Trace:
    """Retrieve nothing and say so."""
    return replace(trace, chunks=(), answer="I found nothing about that.", citations=())


def edit_labels(trace: Trace) -> Trace:
    """Name another chunk as gold."""
    chunks = {f"{name}-b": grade for name, grade in trace.gold.chunks.items()} if trace.gold else {}
    return trace if trace.gold is None else replace(trace, gold=Gold(chunks=chunks))


def drop_chunks(trace: Trace) -> Trace:
    """Record no chunks."""
    return replace(trace, chunks=None)


def cite_nothing(trace: Trace) -> Trace:
    """Remove the citations of the answer: an empty list."""
    return trace if trace.answer is None else replace(trace, citations=())


def drop_citations(trace: Trace) -> Trace:
    """Record no citations."""
    return replace(trace, citations=None)


def change_chunks(trace: Trace, change: Callable[[Chunk], Chunk]) -> Trace:
    """Change every chunk of a trace, and the citations with them."""
    if trace.chunks is None:
        return trace
    chunks = tuple(map(change, trace.chunks))
    ids = {old.id: new.id for old, new in zip(trace.chunks, chunks, strict=True)}
    citations = trace.citations and tuple(replace(c, chunk=ids.get(c.chunk, c.chunk)) for c in trace.citations)
    return replace(trace, chunks=chunks, citations=citations)


def rename_documents(share: float) -> Change:
    """Give the chunks of some documents new ids."""

    def rename(chunk: Chunk) -> Chunk:
        name = chunk.document or chunk.id
        if sum(name.encode()) % 100 >= 100 * share:
            return chunk
        return replace(chunk, id=f"v2/{chunk.id}", document=f"v2/{name}")

    return lambda trace: change_chunks(trace, rename)


def renumber(trace: Trace) -> Trace:
    """Shift the number of every chunk by one: an old id stands for another text."""

    def shift(chunk: Chunk) -> Chunk:
        name, _, number = chunk.id.rpartition("#")
        return replace(chunk, id=f"{name}#{int(number) + 1}")

    return change_chunks(trace, shift)


def misdate_documents(share: float) -> Change:
    """State other dates and figures in some documents, and in the answers that repeat them."""

    def misdate(match: re.Match[str]) -> str:
        return str(int(match[0]) + 3).zfill(len(match[0]))

    def apply(trace: Trace) -> Trace:
        wrong = [c for c in trace.chunks or () if crc32((c.document or c.id).encode()) % 100 < 100 * share]
        stated = {figure for chunk in wrong for figure in FIGURE.findall(chunk.text)}
        trace = change_chunks(trace, lambda c: replace(c, text=FIGURE.sub(misdate, c.text)) if c in wrong else c)
        return change_answer(
            trace, lambda text: FIGURE.sub(lambda match: misdate(match) if match[0] in stated else match[0], text)
        )

    return apply


def drop_figures(trace: Trace) -> Trace:
    """State no figures any more, neither in the documents nor in the answers that repeat them."""

    def drop(text: str) -> str:
        return AMOUNT.sub("some", text)

    return change_answer(change_chunks(trace, lambda chunk: replace(chunk, text=drop(chunk.text))), drop)


def change_answer(trace: Trace, change: Callable[[str], str]) -> Trace:
    """Change the answer of a trace, and its citations."""
    citations = trace.citations and tuple(
        replace(c, quote=c.quote and change(c.quote), claim=c.claim and change(c.claim)) for c in trace.citations
    )
    return replace(trace, answer=trace.answer and change(trace.answer), citations=citations)


def clip(trace: Trace) -> Trace:
    """Record the first 200 characters of each chunk."""
    return change_chunks(trace, lambda chunk: replace(chunk, text=chunk.text[:200]))


def reflow(trace: Trace) -> Trace:
    """Write the chunks with other white space."""
    return change_chunks(trace, lambda chunk: replace(chunk, text="  " + chunk.text.replace("\n\n", "\n").strip()))


def cut_anew(trace: Trace) -> Trace:
    """Give every chunk a new id and the second half of its text."""
    return change_chunks(
        trace, lambda chunk: replace(chunk, id=f"new/{chunk.id}", text=chunk.text[len(chunk.text) // 2 :])
    )


def invent(trace: Trace) -> Trace:
    """Answer with what no chunk says."""
    answer = "The fee is waived for residents of the mainland, who apply by telegram before noon on Sundays."
    return trace if trace.answer is None else replace(trace, answer=answer)


def add_invention(trace: Trace) -> Trace:
    """Add what no chunk says to the answer."""
    return replace(trace, answer=f"{trace.answer} {invent(trace).answer}") if trace.answer else trace


def translate(trace: Trace) -> Trace:
    """Answer in a language of no common words with that of the chunks: each word is spelled backwards."""
    return replace(trace, answer=trace.answer and WORD.sub(lambda match: match[0][::-1], trace.answer))


def reword(trace: Trace) -> Trace:
    """Answer with the same facts in other words, as a model at another temperature does."""

    def apply(text: str) -> str:
        for at, (old, new) in enumerate(WORDINGS):
            text = re.sub(rf"\b{old}\b", new, text) if crc32(f"{trace.id}-{at}".encode()) % 10 < 7 else text
        return f"{text} I hope this helps." if crc32(trace.id.encode()) % 3 else text

    known = replace(trace, metadata={**(trace.metadata or {}), "temperature": 0.9})
    return replace(known, answer=known.answer and apply(known.answer))


def add_notice(trace: Trace) -> Trace:
    """Add the notice of a legal department to the answer, the same everywhere."""
    notice = "This answer was written by a {beta} machine and may hold mistakes. Ask the office before you rely on it."
    return replace(trace, answer=f"{trace.answer}\n\n{notice}") if trace.answer else trace


def add_footer(trace: Trace) -> Trace:
    """Add the number of a ticket and a date to the answer, others everywhere."""
    number = crc32(trace.id.encode())
    footer = f"Ticket #{number % 90_000 + 10_000}, answered on 2025-06-{number % 28 + 1:02d}."
    return replace(trace, answer=f"{trace.answer}\n\n{footer}") if trace.answer else trace


def add_greeting(trace: Trace) -> Trace:
    """Add a greeting by name before the answer, and a signature after it."""
    name = ("Ann", "Bob", "Carla", "Dmitri", "Eve", "Femi", "Gita", "Hugo")[crc32(trace.id.encode()) % 8]
    answer = f"Hi {name},\n\n{trace.answer}\n\nBest regards,\nYour ferry team"
    return replace(trace, answer=answer) if trace.answer else trace


def drop_punctuation(trace: Trace) -> Trace:
    """Write answers without punctuation."""
    return replace(trace, answer=trace.answer and re.sub(r"[^\w\s]", "", trace.answer))


def redact_answer(trace: Trace) -> Trace:
    """Redact the names and figures of an answer."""
    return replace(trace, answer=trace.answer and NAME.sub("[NAME]", AMOUNT.sub("[NUMBER]", trace.answer)))


def misread_chunks(trace: Trace) -> Trace:
    """Read the UTF-8 of chunk texts as Latin-1; quotes stay as they are."""
    return change_chunks(trace, lambda chunk: replace(chunk, text=chunk.text.encode().decode("latin-1")))


def prefix_citations(trace: Trace) -> Trace:
    """Put a prefix before the chunk ids that citations name."""
    cited = trace.citations and tuple(replace(c, chunk=f"doc:{c.chunk}") for c in trace.citations)
    return replace(trace, citations=cited)


def reverse_chunks(trace: Trace) -> Trace:
    """Record the chunks in the opposite order."""
    return replace(trace, chunks=trace.chunks and trace.chunks[::-1])


def write_commas(trace: Trace) -> Trace:
    """Write decimals with a comma."""
    return replace(trace, answer=re.sub(r"(?<=\d)\.(?=\d)", ",", trace.answer or "") or None)


def write_capitals(trace: Trace) -> Trace:
    """Write answers in capital letters."""
    return replace(trace, answer=trace.answer and trace.answer.upper())


def refuse_at_length(trace: Trace) -> Trace:
    """Refuse, with the query in the refusal, so that no two are the same."""
    text = f"I am sorry, but I cannot help you with that request. You asked: {trace.query}"
    return replace(trace, answer=text, citations=()) if trace.answer else trace


def add_headers(trace: Trace) -> Trace:
    """Put the document and its title before the text of each chunk."""
    return change_chunks(trace, lambda chunk: replace(chunk, text=f"[{chunk.document} > the handbook] {chunk.text}"))


def fence_json(trace: Trace) -> Trace:
    """Answer with a JSON object between code fences."""
    text = json.dumps({"answer": trace.answer, "sources": [chunk.id for chunk in trace.chunks or ()]}, indent=1)
    return replace(trace, answer=f"```json\n{text}\n```") if trace.answer else trace


def show_agent_steps(trace: Trace) -> Trace:
    """Put the reasoning of an agent before the answer."""
    steps = f"Thought: I have to look this up.\nAction: search[{trace.query}]\nObservation: some passages"
    return replace(trace, answer=f"{steps}\nFinal Answer: {trace.answer}") if trace.answer else trace


def drop_quotes(trace: Trace) -> Trace:
    """Remove the quotes and claims of citations, so that ids are left."""
    return replace(trace, citations=trace.citations and tuple(Citation(chunk=c.chunk) for c in trace.citations))


def add_dialogue(trace: Trace) -> Trace:
    """Record the query behind a dialogue, the same everywhere."""
    return replace(trace, query=f"user: Hello, may I ask something? assistant: Of course. user: {trace.query}")


def is_unknowable(trace: Trace) -> bool:
    """Return whether a query is taken for one of the fifth that the documents do not answer."""
    return crc32(trace.id.encode()) % 5 == 0


def answer_carelessly(trace: Trace) -> Trace:
    """Answer what cannot be known, and add what no chunk says to a third of the other answers."""
    if is_unknowable(trace):
        return replace(invent(trace), answerable=False, gold=None, reference=None, facts=None)
    return among(1 / 3, add_invention)(trace)


def refuse_the_unknowable(trace: Trace) -> Trace:
    """Refuse what cannot be known, and answer the rest as it is."""
    if not is_unknowable(trace):
        return trace
    known = replace(trace, answerable=False, gold=None, reference=None, facts=None)
    return replace(known, answer="I cannot find this in the handbook.", citations=())


def ask_otherwise(trace: Trace) -> Trace:
    """Ask another question under the same id."""
    return replace(trace, query=f"Who signed the treaty of the year {1000 + crc32(trace.id.encode()) % 1000}?")


def retrieve_other(trace: Trace) -> Trace:
    """Retrieve chunks of no use."""
    text = "The annual fair of the weavers takes place in the square below the old mill."
    return replace(trace, chunks=tuple(Chunk(id=f"fair#{k}", text=f"{text} Stall {k}.") for k in range(3)))


SITUATIONS = {
    "W1 40 % time out": Situation(change=among(0.4, fail), exits=(1,), words="The pipeline fails on", layer="pipeline"),
    "W1 empty lists": Situation(
        change=among(0.4, fail_empty), exits=(1,), words="The pipeline fails on", layer="pipeline"
    ),
    "W1 12 % time out": Situation(
        change=among(0.12, fail), exits=(1,), words="The pipeline fails on", layer="pipeline"
    ),
    "W2 40 % blank": Situation(change=among(0.4, blank), exits=(1,), words="Answers are blank on", layer="generation"),
    "W3 40 % nothing": Situation(
        change=among(0.4, retrieve_nothing), exits=(1,), words="Retrieval returns nothing on", layer="retrieval"
    ),
    "W4 labels edited": Situation(change=among(0.4, edit_labels), exits=(0, 3), words=""),
    "W4 3 % of labels": Situation(change=among(0.03, edit_labels), exits=(0, 3), words=""),
    "W5 no chunks": Situation(change=drop_chunks, exits=(3,), words="chunks are not recorded in the candidate"),
    "W5 half": Situation(change=among(0.5, drop_chunks), exits=(3,), words="chunks are not recorded in the candidate"),
    "W6 40 % renamed": Situation(change=rename_documents(0.4), exits=(0, 3), words="hunks stand under other ids"),
    "W6 renumbered": Situation(change=renumber, exits=(0, 3), words="hunks stand under other ids"),
    "W6 half and a fault": Situation(
        change=in_turn(rename_documents(0.5), among(0.4, retrieve_other)),
        exits=(1,),
        words="Retrieval broke",
        layer="retrieval",
    ),
    "W6 cut anew": Situation(change=cut_anew, exits=(1, 3), words=""),
    "W7 a better model refuses": Situation(
        change=refuse_the_unknowable, baseline=answer_carelessly, exits=(0,), words="groundedness rose"
    ),
    "W8 other queries": Situation(change=ask_otherwise, exits=(3,), words="the queries differ on 100 %"),
    "W9 clipped": Situation(change=clip, exits=(3,), words="clipped in the record"),
    "W9 and a fault": Situation(change=in_turn(clip, invent), exits=(1, 3), words="clipped in the record"),
    "W9 white space": Situation(change=reflow, exits=(0, 3), words=""),
    "W10 cites nothing": Situation(change=cite_nothing, exits=(1,), words="Citations are gone", layer="generation"),
    "W10 no citations": Situation(
        change=drop_citations, exits=(3,), words="citations are not recorded in the candidate"
    ),
    "W11 dates wrong": Situation(
        change=misdate_documents(0.6),
        exits=(1,),
        words="Source data broke (the sources contradict the answer key)",
        layer="source data",
        unkeyed_words="state other figures, and without an answer key nothing tells which are right",
    ),
    "W11 figures lost": Situation(
        change=drop_figures,
        exits=(1,),
        words="Source data broke (facts of the answer key left the sources)",
        layer="source data",
        unkeyed_words="state other figures, and without an answer key nothing tells which are right",
    ),
    "W11 dates wrong, and answers invent": Situation(
        change=in_turn(misdate_documents(0.6), among(0.4, add_invention)),
        exits=(1,),
        words="the answers are less grounded in the chunks",
    ),
    "answers translated": Situation(
        change=among(0.4, translate), exits=(3,), words="answers of the candidate are in another language"
    ),
    "a notice added": Situation(change=add_notice, exits=(3,), words="answers of the candidate repeat a text on"),
    "a notice, and answers invent": Situation(
        change=in_turn(among(0.4, add_invention), add_notice), exits=(1,), words="less grounded in the chunks"
    ),
    "a footer that differs": Situation(change=add_footer, exits=(3,), words="repeat a text on"),
    "a footer, and answers invent": Situation(
        change=in_turn(among(0.4, add_invention), add_footer), exits=(1,), words="less grounded in the chunks"
    ),
    "a greeting": Situation(change=add_greeting, exits=(3,), words="repeat a text on"),
    "a greeting, and answers invent": Situation(
        change=in_turn(among(0.4, add_invention), add_greeting), exits=(1,), words="less grounded in the chunks"
    ),
    "punctuation removed": Situation(change=drop_punctuation, exits=(3,), words="hold no punctuation on"),
    "URL-encoded answers": Situation(
        change=lambda trace: replace(trace, answer=trace.answer and quote(trace.answer)),
        exits=(3,),
        words="are URL-encoded on",
    ),
    "URL-encoded answers, and they invent": Situation(
        change=lambda trace: replace(
            trace, answer=trace.answer and quote(among(0.4, add_invention)(trace).answer or "")
        ),
        exits=(3,),
        words="answers say other words as well",
    ),
    "answers redacted": Situation(change=redact_answer, exits=(3,), words="answers of the candidate are masked on"),
    "an invention everywhere": Situation(
        change=add_invention, exits=(1, 3), words="if it is a false claim, generation broke"
    ),
    "chunk texts in Latin-1": Situation(change=misread_chunks, exits=(3,), words="hold damaged characters on"),
    "a prefix to cited ids": Situation(change=prefix_citations, exits=(3,), words="a prefix to the id, not by id, on"),
    "chunks backwards, answers the same": Situation(
        change=reverse_chunks, exits=(0, 1, 3), words="nswers are the same on every pair, although"
    ),
    "JSON in a code fence": Situation(change=fence_json, exits=(3,), words="answers differ in markup on"),
    "steps of an agent": Situation(change=show_agent_steps, exits=(3,), words="answers differ in markup on"),
    "citations without quotes": Situation(
        change=drop_quotes, exits=(3,), words="claims and quotes of citations are not recorded in the candidate"
    ),
    "queries behind a dialogue": Situation(change=add_dialogue, exits=(3,), words="within one fixed text on"),
    "decimal commas": Situation(change=write_commas, exits=(3,), words="answers differ in markup on"),
    "capitals": Situation(change=write_capitals, exits=(3,), words="answers differ in markup on"),
    "refusals with the query": Situation(change=refuse_at_length, exits=(1,), words="Generation broke"),
    "headers before chunks": Situation(change=add_headers, exits=(0, 3), words=""),
    "another temperature": Situation(change=reword, exits=(0, 3), words=""),
    "nothing": Situation(change=lambda trace: trace, exits=(0,), words="No layer broke"),
}
"""Name → situation; the first word is the row of the table that it belongs to."""
CHAINS = {
    "W12 a bad release, repaired": Situation(
        change=among(0.4, invent), exits=(0,), words="Worse at run-2 (generation: the answers are less grounded"
    ),
    "clipped in one release": Situation(change=clip, exits=(3,), words="No metric of the tree is shown to have broken"),
}
"""Name → what is wrong with the third of five releases."""
SEGMENTS = {
    "one route of eight invents": Situation(
        change=invent, exits=(1,), words="The drop of groundedness is confined to route=route-3", layer="generation"
    )
}
"""Name → what is wrong with the candidate on one of eight routes."""


def expect(situation: Situation, *, key: bool) -> Situation:
    """Return what is right of a situation with or without an answer key."""
    if key or situation.unkeyed_words is None:
        return situation
    return replace(situation, exits=(3,), words=situation.unkeyed_words, layer=None)


def build_pair(traces: Sequence[Trace], situation: Situation, *, key: bool, n: int) -> tuple[list[Trace], list[Trace]]:
    """Return baseline and candidate of n traces each."""
    sides = [[change(trace) for trace in traces] for change in (situation.baseline, situation.change)]
    if not key:
        sides = [[replace(t, gold=None, reference=None, facts=None) for t in side] for side in sides]
    baseline, candidate = ([_copy_trace(side[at % len(side)], at // len(side)) for at in range(n)] for side in sides)
    return baseline, candidate


def build_segment_pair(situation: Situation, *, key: bool) -> tuple[list[Trace], list[Trace]]:
    """Return baseline and candidate of 500 traces on eight routes, one of which has the fault."""
    sides = []
    for side in pair(handbook_corpus(), "none", "medium", n=SEGMENT_PAIRS, seed=0):
        routed = [replace(trace, route=f"route-{crc32(trace.id.encode()) % ROUTES}") for trace in side]
        sides.append(routed if key else [replace(t, gold=None, reference=None, facts=None) for t in routed])
    baseline, candidate = sides
    return baseline, [situation.change(trace) if trace.route == "route-3" else trace for trace in candidate]


def _copy_trace(trace: Trace, number: int) -> Trace:
    if not number:
        return trace
    talk = trace.conversation and f"{trace.conversation}-{number}"
    return replace(trace, id=f"{trace.id}-{number}", conversation=talk)


def judge_sides(sides: Sequence[Sequence[Trace]], folder: str) -> list[Run]:
    """Judge the runs of a situation by the lexical judge."""
    return [
        evaluate(list(side), Path(folder, f"run-{at}"), judge="lexical", force=True) for at, side in enumerate(sides)
    ]


def print_row(cells: Sequence[object], situation: Situation, code: int, sentence: str) -> None:
    """Print a line of the table; the fifth cell says whether exit code and sentence are right."""
    mark = "yes" if code in situation.exits and situation.words in sentence else "**no**"
    print(f"| {' | '.join(map(str, cells[:4]))} | {code} | {mark} | {cells[4]} | {sentence} |", flush=True)


def main() -> None:
    """Print the table."""
    names = [*SITUATIONS, *CHAINS, *SEGMENTS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("situations", nargs="*", metavar="SITUATION", help=", ".join(names))
    parser.add_argument("--sizes", type=int, nargs="+", default=[104, 624])
    parser.add_argument("--keys", nargs="+", choices=("key", "none"), default=["key", "none"])
    parser.add_argument("--margin", type=float, default=0.05)
    asked = parser.parse_args()
    traces = demo_traces()
    print("| situation | key | n | verdict | exit | right | gate | sentence |\n|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in asked.situations or names:
            for key in asked.keys:
                for n in asked.sizes if name not in SEGMENTS else [SEGMENT_PAIRS]:
                    if name in CHAINS:
                        good, bad = build_pair(traces, CHAINS[name], key=key == "key", n=n)
                        runs = judge_sides([good, good, bad, good, good], folder)
                        chain = history(runs, margin=asked.margin)
                        cells = (name, key, n, chain.verdict, "–")
                        print_row(cells, CHAINS[name], HISTORY_CODES[chain.verdict], summarize_history(chain))
                        continue
                    situation = SEGMENTS[name] if name in SEGMENTS else expect(SITUATIONS[name], key=key == "key")
                    runs = judge_sides(
                        build_segment_pair(situation, key=key == "key")
                        if name in SEGMENTS
                        else build_pair(traces, situation, key=key == "key", n=n),
                        folder,
                    )
                    result = bisect(*runs, margin=asked.margin)
                    passed = gate(runs[1], baseline=runs[0], max_drop=asked.margin).exit_code
                    cells = (name, key, n, result.verdict, passed)
                    print_row(cells, situation, EXIT_CODES[result.verdict], result.sentence)


if __name__ == "__main__":
    main()
