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
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from ragfault.analysis import bisect, gate, history
from ragfault.evaluation import evaluate
from ragfault.io.datasets import load_handbook
from ragfault.io.runs import Run
from ragfault.records import Trace
from ragfault.reports.terminal.run_history import summarize_history

from .changes import (
    Change,
    add_confidence,
    add_dialogue,
    add_disclaimer,
    add_footer,
    add_greeting,
    add_headers,
    add_invention,
    add_notice,
    add_signature,
    among,
    answer_carelessly,
    answer_with_reference,
    ask_in_talk,
    ask_otherwise,
    blank,
    cite_addresses,
    cite_nothing,
    clip,
    cut_anew,
    cut_short,
    drop_chunks,
    drop_citations,
    drop_figures,
    drop_punctuation,
    drop_quotes,
    echo_prompt,
    edit_labels,
    fail,
    fail_empty,
    fence_json,
    in_turn,
    invent,
    misdate_documents,
    mislead,
    misread_chunks,
    prefix_citations,
    record_cited_chunks,
    redact_answer,
    redact_record,
    reflow,
    refuse_at_length,
    refuse_the_unknowable,
    rename_documents,
    renumber,
    rephrase,
    retrieve_nothing,
    retrieve_other,
    reverse_chunks,
    reword,
    show_agent_steps,
    stutter,
    translate,
    write_capitals,
    write_commas,
)
from .corpora import handbook_corpus
from .injection import pair

__all__ = ["SITUATIONS", "Situation", "build_pair", "demo_traces", "expect"]

EXIT_CODES = {"no fault": 0, "fault": 1, "cannot tell": 3}
HISTORY_CODES = {"recovered": 0, "no fault": 0, "fault": 1, "cannot tell": 3}
SEGMENT_PAIRS, ROUTES = 500, 8


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
        unkeyed_words="differ in their figures, and without an answer key nothing tells which are right",
    ),
    "W11 figures lost": Situation(
        change=drop_figures,
        exits=(1,),
        words="Source data broke (facts of the answer key left the sources)",
        layer="source data",
        unkeyed_words="differ in their figures, and without an answer key nothing tells which are right",
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
    "a confidence in some": Situation(
        change=in_turn(rephrase, among(0.4, add_confidence)), exits=(3,), words='("Confidence: '
    ),
    "a confidence in some, and answers invent": Situation(
        change=in_turn(rephrase, among(0.4, add_invention), among(0.4, add_confidence)),
        exits=(1,),
        words="less grounded in the chunks",
    ),
    "a disclaimer in some": Situation(
        change=in_turn(rephrase, among(0.6, add_disclaimer)),
        exits=(3,),
        words="answers of the candidate repeat a text on",
    ),
    "a signature in some": Situation(
        change=in_turn(rephrase, among(0.4, add_signature)),
        exits=(3,),
        words="answers of the candidate repeat a text on",
    ),
    "half of the answers redacted": Situation(
        change=among(0.5, redact_record), exits=(3,), words="answers of the candidate are masked on"
    ),
    "cited chunks alone": Situation(
        change=in_turn(rephrase, record_cited_chunks), exits=(3,), words="records the chunks that are cited alone, on"
    ),
    "citations by address": Situation(
        change=cite_addresses, exits=(3,), words="address or a prefix to the id, not by id"
    ),
    "prompts in the answers": Situation(change=among(0.5, echo_prompt), exits=(1,), words="Generation broke"),
    "last sentences again": Situation(change=among(0.5, stutter), exits=(1,), words="Generation broke"),
    "answers of twelve words": Situation(change=among(0.5, cut_short), exits=(1,), words="look at max tokens"),
    "short right answers": Situation(
        change=answer_with_reference,
        exits=(3,),
        words="the answers are shorter and hold the reference in full",
        unkeyed_words="Whether they leave out what was asked cannot be told without references",
    ),
    "decimal commas": Situation(change=write_commas, exits=(3,), words="answers differ in markup on"),
    "capitals": Situation(change=write_capitals, exits=(3,), words="answers differ in markup on"),
    "refusals with the query": Situation(change=refuse_at_length, exits=(1,), words="Generation broke"),
    "headers before chunks": Situation(change=add_headers, exits=(0, 3), words=""),
    "a wrong answer before": Situation(
        change=in_turn(ask_in_talk, among(0.4, mislead)),
        baseline=ask_in_talk,
        exits=(3,),
        words="Look at the first turn that differs",
    ),
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
    baseline, candidate = ([_copy_trace(side[i % len(side)], i // len(side)) for i in range(n)] for side in sides)
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
    return [evaluate(list(side), Path(folder, f"run-{i}"), judge="lexical", force=True) for i, side in enumerate(sides)]


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
    options = parser.parse_args()
    traces = demo_traces()
    print("| situation | key | n | verdict | exit | right | gate | sentence |\n|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.situations or names:
            for key in options.keys:
                for n in options.sizes if name not in SEGMENTS else [SEGMENT_PAIRS]:
                    if name in CHAINS:
                        good, bad = build_pair(traces, CHAINS[name], key=key == "key", n=n)
                        runs = judge_sides([good, good, bad, good, good], folder)
                        chain = history(runs, margin=options.margin)
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
                    result = bisect(*runs, margin=options.margin)
                    passed = gate(runs[1], baseline=runs[0], max_drop=options.margin).exit_code
                    cells = (name, key, n, result.verdict, passed)
                    print_row(cells, situation, EXIT_CODES[result.verdict], result.sentence)


if __name__ == "__main__":
    main()
