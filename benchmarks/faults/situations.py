"""Situations of pairs of runs in practice, beside faults: pipelines that stop answering, and logs that change.

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

from ragfault.comparison.bisection import bisect
from ragfault.comparison.gate.gate import gate
from ragfault.comparison.run_history import history
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.datasets.demo_handbook import load_handbook
from ragfault.io.runs.run import Run
from ragfault.model.records import Trace
from ragfault.report.builders.run_history import summarize_history

from .changes import (
    Change,
    add_confidence,
    add_dialogue,
    add_disclaimer,
    add_earlier_turns,
    add_footer,
    add_greeting,
    add_headers,
    add_invention,
    add_notice,
    add_signature,
    answer_carelessly,
    answer_with_reference,
    apply_to_share,
    blank_answer,
    chain_changes,
    change_query,
    cite_addresses,
    cite_nothing,
    clip,
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
    invent,
    misdate_documents,
    misread_chunks,
    prefix_citations,
    record_cited_chunks,
    redact_answer,
    redact_record,
    reflow,
    refuse_at_length,
    refuse_unanswerable,
    rename_documents,
    renumber,
    rephrase,
    replace_chunks,
    retrieve_misled,
    retrieve_nothing,
    retrieve_other,
    reverse_chunks,
    reword,
    show_agent_steps,
    stutter,
    translate,
    write_capitals,
    write_commas,
    write_json,
)
from .corpora import load_handbook_corpus
from .injection import pair

__all__ = ["SITUATIONS", "Situation", "build_pair", "expect", "load_demo_traces"]

EXIT_CODES = {"no fault": 0, "fault": 1, "cannot tell": 3}
HISTORY_CODES = {"recovered": 0, "no fault": 0, "fault": 1, "cannot tell": 3}
SEGMENT_SIZE, ROUTE_COUNT = 500, 8


class Situation(Struct, frozen=True, kw_only=True):
    """A change of each trace of the candidate, with the exit codes and the sentence that are right for it."""

    change: Change
    exit_codes: tuple[int, ...]  # right exit codes of bisect
    phrase: str  # words that the sentence holds
    layer: str | None = None  # layer of the first fault
    phrase_without_key: str | None = None  # words of "cannot tell" where nothing but an answer key shows the fault
    baseline: Change = lambda trace: trace  # how it changes each trace of the baseline


def load_demo_traces() -> list[Trace]:
    """Load the traces of the demo's first version."""
    return list(load_handbook().traces["v1"])


SITUATIONS = {
    "W1 40 % time out": Situation(
        change=apply_to_share(0.4, fail), exit_codes=(1,), phrase="The pipeline fails on", layer="pipeline"
    ),
    "W1 empty lists": Situation(
        change=apply_to_share(0.4, fail_empty), exit_codes=(1,), phrase="The pipeline fails on", layer="pipeline"
    ),
    "W1 12 % time out": Situation(
        change=apply_to_share(0.12, fail), exit_codes=(1,), phrase="The pipeline fails on", layer="pipeline"
    ),
    "W2 40 % blank": Situation(
        change=apply_to_share(0.4, blank_answer), exit_codes=(1,), phrase="Answers are blank on", layer="generation"
    ),
    "W3 40 % nothing": Situation(
        change=apply_to_share(0.4, retrieve_nothing),
        exit_codes=(1,),
        phrase="Retrieval returns nothing on",
        layer="retrieval",
    ),
    "W4 labels edited": Situation(change=apply_to_share(0.4, edit_labels), exit_codes=(0, 3), phrase=""),
    "W4 3 % of labels": Situation(change=apply_to_share(0.03, edit_labels), exit_codes=(0, 3), phrase=""),
    "W5 no chunks": Situation(change=drop_chunks, exit_codes=(3,), phrase="chunks are not recorded in the candidate"),
    "W5 half": Situation(
        change=apply_to_share(0.5, drop_chunks), exit_codes=(3,), phrase="chunks are not recorded in the candidate"
    ),
    "W6 40 % renamed": Situation(change=rename_documents(0.4), exit_codes=(0, 3), phrase="hunks stand under other ids"),
    "W6 renumbered": Situation(change=renumber, exit_codes=(0, 3), phrase="hunks stand under other ids"),
    "W6 half and a fault": Situation(
        change=chain_changes(rename_documents(0.5), apply_to_share(0.4, retrieve_other)),
        exit_codes=(1,),
        phrase="Retrieval ",
        layer="retrieval",
    ),
    "W6 cut anew": Situation(change=replace_chunks, exit_codes=(1, 3), phrase=""),
    "W7 a better model refuses": Situation(
        change=refuse_unanswerable, baseline=answer_carelessly, exit_codes=(0,), phrase="groundedness rose"
    ),
    "W8 other queries": Situation(change=change_query, exit_codes=(3,), phrase="the queries differ on 100 %"),
    "W9 clipped": Situation(change=clip, exit_codes=(3,), phrase="clipped in the record"),
    "W9 and a fault": Situation(change=chain_changes(clip, invent), exit_codes=(1, 3), phrase="clipped in the record"),
    "W9 white space": Situation(change=reflow, exit_codes=(0, 3), phrase=""),
    "W10 cites nothing": Situation(
        change=cite_nothing, exit_codes=(1,), phrase="Citations are gone", layer="generation"
    ),
    "W10 no citations": Situation(
        change=drop_citations, exit_codes=(3,), phrase="citations are not recorded in the candidate"
    ),
    "W11 dates wrong": Situation(
        change=misdate_documents(0.6),
        exit_codes=(1,),
        phrase="Source data broke (the sources contradict the answer key)",
        layer="source data",
        phrase_without_key="differ in their figures or units, and without an answer key nothing tells which are right",
    ),
    "W11 figures lost": Situation(
        change=drop_figures,
        exit_codes=(1,),
        phrase="Source data broke (facts of the answer key left the sources)",
        layer="source data",
        phrase_without_key="differ in their figures or units, and without an answer key nothing tells which are right",
    ),
    "W11 dates wrong, and answers invent": Situation(
        change=chain_changes(misdate_documents(0.6), apply_to_share(0.4, add_invention)),
        exit_codes=(1,),
        phrase="the answers are less grounded in the chunks",
    ),
    "answers translated": Situation(change=apply_to_share(0.4, translate), exit_codes=(1, 3), phrase=""),
    "a notice added": Situation(change=add_notice, exit_codes=(3,), phrase="answers of the candidate repeat a text on"),
    "a notice, and answers invent": Situation(
        change=chain_changes(apply_to_share(0.4, add_invention), add_notice),
        exit_codes=(1,),
        phrase="less grounded in the chunks",
    ),
    "a footer that differs": Situation(change=add_footer, exit_codes=(3,), phrase="repeat a text on"),
    "a footer, and answers invent": Situation(
        change=chain_changes(apply_to_share(0.4, add_invention), add_footer),
        exit_codes=(1,),
        phrase="less grounded in the chunks",
    ),
    "a greeting": Situation(change=add_greeting, exit_codes=(3,), phrase="repeat a text on"),
    "a greeting, and answers invent": Situation(
        change=chain_changes(apply_to_share(0.4, add_invention), add_greeting),
        exit_codes=(1,),
        phrase="less grounded in the chunks",
    ),
    "punctuation removed": Situation(change=drop_punctuation, exit_codes=(3,), phrase="hold no punctuation on"),
    "URL-encoded answers": Situation(
        change=lambda trace: replace(trace, answer=trace.answer and quote(trace.answer)),
        exit_codes=(3,),
        phrase="differ in markup on",
    ),
    "URL-encoded answers, and they invent": Situation(
        change=lambda trace: replace(
            trace, answer=trace.answer and quote(apply_to_share(0.4, add_invention)(trace).answer or "")
        ),
        exit_codes=(3,),
        phrase="answers differ in markup on",
    ),
    "answers redacted": Situation(
        change=redact_answer, exit_codes=(3,), phrase="answers of the candidate are masked on"
    ),
    "an invention everywhere": Situation(
        change=add_invention, exit_codes=(1, 3), phrase="if it is a false claim, generation broke"
    ),
    "chunk texts in Latin-1": Situation(change=misread_chunks, exit_codes=(3,), phrase="hold damaged characters on"),
    "a prefix to cited ids": Situation(
        change=prefix_citations, exit_codes=(3,), phrase="a prefix to the id, not by id, on"
    ),
    "chunks backwards, answers the same": Situation(
        change=reverse_chunks, exit_codes=(0, 1, 3), phrase="nswers are the same on every pair, although"
    ),
    "JSON in a code fence": Situation(change=write_json, exit_codes=(3,), phrase="answers differ in markup on"),
    "steps of an agent": Situation(change=show_agent_steps, exit_codes=(3,), phrase="answers differ in markup on"),
    "citations without quotes": Situation(
        change=drop_quotes, exit_codes=(3,), phrase="claims and quotes of citations are not recorded in the candidate"
    ),
    "queries behind a dialogue": Situation(change=add_dialogue, exit_codes=(3,), phrase="the queries differ on 100 %"),
    "a confidence in some": Situation(
        change=chain_changes(rephrase, apply_to_share(0.4, add_confidence)), exit_codes=(3,), phrase='("Confidence: '
    ),
    "a confidence in some, and answers invent": Situation(
        change=chain_changes(rephrase, apply_to_share(0.4, add_invention), apply_to_share(0.4, add_confidence)),
        exit_codes=(1,),
        phrase="less grounded in the chunks",
    ),
    "a disclaimer in some": Situation(
        change=chain_changes(rephrase, apply_to_share(0.6, add_disclaimer)),
        exit_codes=(3,),
        phrase="answers of the candidate repeat a text on",
    ),
    "a signature in some": Situation(
        change=chain_changes(rephrase, apply_to_share(0.4, add_signature)),
        exit_codes=(3,),
        phrase="answers of the candidate repeat a text on",
    ),
    "half of the answers redacted": Situation(
        change=apply_to_share(0.5, redact_record), exit_codes=(3,), phrase="answers of the candidate are masked on"
    ),
    "cited chunks alone": Situation(change=chain_changes(rephrase, record_cited_chunks), exit_codes=(0, 3), phrase=""),
    "citations by address": Situation(
        change=cite_addresses, exit_codes=(3,), phrase="address or a prefix to the id, not by id"
    ),
    "prompts in the answers": Situation(
        change=apply_to_share(0.5, echo_prompt),
        exit_codes=(1, 3),
        # The judge takes a prompt for talk, so that the answers are not shown to be worse.
        phrase="answers of the candidate repeat a text",
        phrase_without_key="answers of the candidate repeat a text",
    ),
    "last sentences again": Situation(change=apply_to_share(0.5, stutter), exit_codes=(1,), phrase="Generation broke"),
    "answers of twelve words": Situation(
        change=apply_to_share(0.5, cut_short), exit_codes=(1,), phrase="look at max tokens"
    ),
    "short right answers": Situation(
        change=answer_with_reference,
        exit_codes=(0,),
        phrase="answers are not shown to suffer",
        phrase_without_key="whether they are right, which is too few",
    ),
    "decimal commas": Situation(change=write_commas, exit_codes=(3,), phrase="answers differ in markup on"),
    "capitals": Situation(change=write_capitals, exit_codes=(3,), phrase="answers differ in markup on"),
    "refusals with the query": Situation(change=refuse_at_length, exit_codes=(1,), phrase="Generation broke"),
    "headers before chunks": Situation(change=add_headers, exit_codes=(0, 3), phrase=""),
    "a wrong answer before": Situation(
        change=chain_changes(add_earlier_turns, apply_to_share(0.4, retrieve_misled)),
        baseline=add_earlier_turns,
        exit_codes=(3,),
        phrase="Look at the first turn that differs",
        phrase_without_key="No layer is shown to have broken",
    ),
    "another temperature": Situation(change=reword, exit_codes=(0, 3), phrase=""),
    "nothing": Situation(change=lambda trace: trace, exit_codes=(0,), phrase="No layer broke"),
}
"""Name → situation; the first word is the row of the table that it belongs to."""
CHAINS = {
    "W12 a bad release, repaired": Situation(
        change=apply_to_share(0.4, invent),
        exit_codes=(0,),
        phrase="Worse at run-2 (generation: the answers are less grounded",
    ),
    "clipped in one release": Situation(
        change=clip, exit_codes=(3,), phrase="No metric of the tree is shown to have broken"
    ),
}
"""Name → what is wrong with the third of five releases."""
SEGMENTS = {
    "one route of eight invents": Situation(
        change=invent,
        exit_codes=(1,),
        phrase="The drop of groundedness is confined to route=route-3",
        layer="generation",
    )
}
"""Name → what is wrong with the candidate on one of eight routes."""


def expect(situation: Situation, *, key: bool) -> Situation:
    """Return a situation with what is right with or without an answer key."""
    if key or situation.phrase_without_key is None:
        return situation
    return replace(situation, exit_codes=(3,), phrase=situation.phrase_without_key, layer=None)


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
    for side in pair(load_handbook_corpus(), "none", "medium", n=SEGMENT_SIZE, seed=0):
        routed = [replace(trace, route=f"route-{crc32(trace.id.encode()) % ROUTE_COUNT}") for trace in side]
        sides.append(routed if key else [replace(t, gold=None, reference=None, facts=None) for t in routed])
    baseline, candidate = sides
    return baseline, [situation.change(trace) if trace.route == "route-3" else trace for trace in candidate]


def _copy_trace(trace: Trace, number: int) -> Trace:
    if not number:
        return trace
    conversation = trace.conversation and f"{trace.conversation}-{number}"
    return replace(trace, id=f"{trace.id}-{number}", conversation=conversation)


def judge_sides(sides: Sequence[Sequence[Trace]], folder: str) -> list[Run]:
    """Judge the runs of a situation by the lexical judge."""
    return [evaluate(list(side), Path(folder, f"run-{i}"), judge="lexical", force=True) for i, side in enumerate(sides)]


def print_row(cells: Sequence[object], situation: Situation, code: int, sentence: str) -> None:
    """Print a line of the table; the fifth cell says whether exit code and sentence are right."""
    mark = "yes" if code in situation.exit_codes and situation.phrase in sentence else "**no**"
    print(f"| {' | '.join(map(str, cells[:4]))} | {code} | {mark} | {cells[4]} | {sentence} |", flush=True)


def main() -> None:
    """Print the table."""
    names = [*SITUATIONS, *CHAINS, *SEGMENTS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("situations", nargs="*", metavar="SITUATION", help=", ".join(names).replace("%", "%%"))
    parser.add_argument("--sizes", type=int, nargs="+", default=[104, 624])
    parser.add_argument("--keys", nargs="+", choices=("key", "none"), default=["key", "none"])
    parser.add_argument("--margin", type=float, default=0.05)
    options = parser.parse_args()
    traces = load_demo_traces()
    print("| situation | key | n | verdict | exit | right | gate | sentence |\n|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.situations or names:
            for key in options.keys:
                for n in options.sizes if name not in SEGMENTS else [SEGMENT_SIZE]:
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
