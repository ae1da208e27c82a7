"""Defects that answers and lists show by themselves: a fault of their layer where no metric of a judge sees one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from ragfault.comparison.bisection import bisect
from ragfault.comparison.gate.gate import gate
from ragfault.comparison.stages.answer_evidence import states_other_unit
from ragfault.evaluation.evaluator import evaluate
from ragfault.model.records import Chunk, Trace
from remembered import LEXICAL

METRICS = ("groundedness", "completeness", "answer_relevance", "context_relevance")
N = 60


def answered(number: int) -> Trace:
    """Build a trace whose answer takes its two lines from its chunks."""
    lines = (
        f"The ferry to pier {number} costs £{number + 3}.",
        f"It carries {number + 40} kg of luggage for each guest.",
    )
    chunks = tuple(Chunk(id=f"{number}-{at}", text=f"{line} This is so all year.") for at, line in enumerate(lines))
    query = f"What does the ferry to pier {number} cost, and how much luggage does it carry?"
    return Trace(id=str(number), query=query, chunks=chunks, answer="\n".join(lines), facts=lines)


def repeat(trace: Trace) -> Trace:
    return replace(trace, answer=f"{trace.answer}\n{trace.answer}")


def convert(trace: Trace) -> Trace:
    return replace(trace, answer=(trace.answer or "").replace("£", "$").replace(" kg", " lb"))


def stop(trace: Trace) -> Trace:
    return replace(trace, answer=(trace.answer or "").split("\n")[0])


def thank(trace: Trace) -> Trace:
    pier = "".join("abcdefghij"[int(digit)] for digit in trace.id)
    return replace(trace, answer=f"{trace.answer}\nThank you for asking for pier {pier}, and have a pleasant crossing.")


def echo(trace: Trace) -> Trace:
    context = "\n\n".join(chunk.text for chunk in trace.chunks or ())
    return replace(trace, answer=f"Answer from the context.\n\n{context}\n\nQuestion: {trace.query}\n\n{trace.answer}")


def compare(tmp_path: Path, old: Callable[[Trace], Trace], new: Callable[[Trace], Trace], share: float = 0.4):
    """Bisect a system whose answers of a share of the queries are changed."""
    traces = [answered(number) for number in range(N)]
    sides = [[change(t) if at < share * N else t for at, t in enumerate(traces)] for change in (old, new)]
    runs = [evaluate(side, tmp_path / str(at), metrics=METRICS, judge=LEXICAL) for at, side in enumerate(sides)]
    return bisect(*runs)


def keep(trace: Trace) -> Trace:
    return trace


@pytest.mark.parametrize(
    ("change", "stage"), [(repeat, "decoding"), (convert, "model"), (stop, "max tokens"), (echo, "prompt")]
)
def test_a_defect_of_the_answers_is_a_fault_of_generation(tmp_path: Path, change: Callable[[Trace], Trace], stage: str):
    """Answers that repeat themselves, change units or end early name generation, and the stage among the suspects."""
    result = compare(tmp_path, keep, change)
    assert result.verdict == "fault"
    assert result.faults[0].layer == "generation"
    assert stage in [suspect.stage for suspect in result.faults[0].suspects]


def test_an_answer_that_is_its_only_chunk_does_not_repeat_the_prompt(tmp_path: Path):
    """Where one chunk is shown, an answer that quotes it in full answers from it."""

    def quote(trace: Trace) -> Trace:
        first = (trace.chunks or ())[0]
        return replace(trace, chunks=(first,), answer=" ".join([first.text] * 5))

    result = compare(tmp_path, keep, quote)
    assert "echoed_chunks" not in [change.metric for change in result.comparison.changes]


@pytest.mark.parametrize("change", [repeat, convert, stop])
def test_a_defect_that_is_repaired_is_no_fault(tmp_path: Path, change: Callable[[Trace], Trace]):
    """The other way round no layer is blamed."""
    assert not compare(tmp_path, change, keep).faults


def test_copies_of_chunks_are_a_fault_of_retrieval(tmp_path: Path):
    """Lists in which a copy took the place of another passage name retrieval; copies beside all passages do not."""

    def crowd(trace: Trace) -> Trace:
        first = (trace.chunks or ())[0]
        return replace(trace, chunks=(first, replace(first, id=f"{first.id}-copy")), answer=first.text)

    def add(trace: Trace) -> Trace:
        chunks = trace.chunks or ()
        return replace(trace, chunks=(*chunks, *(replace(chunk, id=f"{chunk.id}-copy") for chunk in chunks)))

    result = compare(tmp_path / "crowd", keep, crowd)
    assert result.faults[0].layer == "retrieval"
    assert "index" in [suspect.stage for suspect in result.faults[0].suspects]
    assert "copied_chunks" not in [c.metric for c in compare(tmp_path / "add", keep, add).comparison.changes]


def test_answers_that_follow_copies_do_not_repeat_themselves(tmp_path: Path):
    """An answer that says twice what its list holds twice names retrieval; one that loops without copies generation."""

    def follow(trace: Trace) -> Trace:
        first = (trace.chunks or ())[0]
        return replace(repeat(trace), chunks=(first, replace(first, id=f"{first.id}-copy")))

    assert compare(tmp_path / "copies", keep, follow).faults[0].layer == "retrieval"
    assert compare(tmp_path / "loop", keep, repeat).faults[0].layer == "generation"


def test_an_ending_without_content_may_go(tmp_path: Path):
    """Answers that are the beginning of the answer before are no fault where they are as complete.

    Nor are they called clipped, although most are of one length: they end with their sentence.
    """
    result = compare(tmp_path, thank, keep, share=1.0)
    assert not result.faults
    assert not any(mismatch.blocks for mismatch in result.comparison.mismatches)


def shorten(trace: Trace, note: str = "") -> Trace:
    """Join the chunks of a trace, with a note between them, and answer the first of its two lines."""
    text = f" {note}".join(chunk.text for chunk in trace.chunks or ())
    return replace(trace, chunks=(Chunk(id=f"{trace.id}+2", text=text),), answer=(trace.answer or "").split("\n")[0])


def test_worse_answers_over_a_corpus_cut_anew_name_its_chunker_as_the_place_to_look(tmp_path: Path):
    """Where the ids are new and the chunks longer, the data cannot tell the layer, and the sentence says why."""
    result = compare(
        tmp_path, keep, lambda trace: shorten(trace, "Boats of another line sail to the islands."), share=1
    )
    assert (result.verdict, result.faults) == ("cannot tell", ())
    assert "characters per chunk rose" in result.sentence
    assert "Look at the chunker first" in result.sentence


def test_answers_that_got_worse_beside_a_mismatch_of_the_record_are_never_called_fine(tmp_path: Path):
    """Where the logger joins chunks and answers are cut at once, the drop is said, and no layer blamed for it."""
    result = compare(tmp_path, keep, shorten, share=1.0)
    assert (result.verdict, result.faults) == ("cannot tell", ())
    assert "recorded in other chunks on 100 % of pairs" in result.sentence
    assert "completeness fell by 0.500" in result.sentence
    assert "shows no fault" not in result.sentence


def test_an_answer_that_stayed_has_no_new_defect(tmp_path: Path):
    """Where the chunks state other units beside the same answers, no unit of an answer is called another one."""

    def update(trace: Trace) -> Trace:
        chunks = tuple(replace(chunk, text=chunk.text.replace(" kg", " lb")) for chunk in trace.chunks or ())
        return replace(trace, chunks=chunks)

    result = compare(tmp_path, keep, update)
    assert "unit_mismatch" not in {change.metric for change in result.comparison.changes}


def test_pounds_are_read_as_money_or_as_a_weight():
    """A sum in pounds is the one that its chunk gives with the sign, and a weight the one that it gives in lb."""
    chunk = Chunk(id="a", text="A cabin costs £9, and a bag may weigh 20 lb.")
    answers = ("It costs 9 pounds.", "A bag may weigh 20 pounds.", "It costs 9 euros.")
    stated = [Trace(id="1", query="?", chunks=(chunk,), answer=answer) for answer in answers]
    assert [states_other_unit(trace) for trace in stated] == [False, False, True]


def lose_passage(trace: Trace) -> Trace:
    """Retrieve a passage that speaks of the price without stating it, and answer what is left."""
    text = f"What the ferry to pier {trace.id} does cost, and how much of it, guests ask at the pier of the ferry."
    chunks = (Chunk(id=f"{trace.id}-other", text=text), *(trace.chunks or ())[1:])
    return replace(trace, chunks=chunks, answer=(trace.answer or "").split("\n")[1])


def test_parts_that_answers_lose_only_with_other_chunks_are_not_blamed_on_generation(tmp_path: Path):
    """Without a key, answers that say less where other chunks were retrieved do not name the generator."""
    traces = [replace(answered(number), facts=()) for number in range(2 * N)]
    sides = (traces, [lose_passage(trace) if at % 2 else trace for at, trace in enumerate(traces)])
    runs = [evaluate(side, tmp_path / str(at), metrics=METRICS, judge=LEXICAL) for at, side in enumerate(sides)]
    result = bisect(*runs)
    assert all(fault.layer != "generation" for fault in result.faults), result.sentence


@pytest.mark.parametrize("change", [repeat, convert])
def test_a_defect_of_the_answers_fails_the_gate(tmp_path: Path, change: Callable[[Trace], Trace]):
    """A shown rise of answers that repeat themselves or change units fails, whichever metrics are named."""
    traces = [answered(number) for number in range(N)]
    sides = (traces, [change(trace) if at < 0.4 * N else trace for at, trace in enumerate(traces)])
    runs = [evaluate(side, tmp_path / str(at), metrics=METRICS, judge=LEXICAL) for at, side in enumerate(sides)]
    result = gate(runs[1], baseline=runs[0], metrics=["context_relevance"])
    assert result.result == "fail"
    assert gate(runs[0], baseline=runs[0], metrics=["context_relevance"]).result == "pass"
