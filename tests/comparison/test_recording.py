"""What one run records otherwise than it happened: clipped answers, markup, chunks that were not read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

import pytest
from msgspec.structs import replace

from ragfault import bisect
from ragfault.comparison.paired_runs import pair_runs
from ragfault.comparison.records import Bisection, PairMismatch
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.runs.run import Run
from ragfault.model.records import Chunk, Citation, Gold, Trace
from ragfault.text.markup import REASONING_PATTERN
from remembered import LEXICAL

TOWNS = ("Ammer", "Birken", "Cosel", "Drewen", "Elsbach", "Fallow", "Grenze", "Hollen", "Immen", "Jarrow")
N = 60


def traces() -> list[Trace]:
    """Return answers of many lengths, each drawn from the first of three chunks."""
    result = []
    for at in range(N):
        town = f"{TOWNS[at % 10]}{'aeiou'[at // 10 % 5]}{at}"
        answer = (
            f"The ferry to {town} leaves pier {at + 3} at sunrise and carries {at * 7 + 20} passengers with bicycles"
        )
        answer += f", as long as the tide at {town} stays low." * (at % 4) + "."
        chunks = (
            Chunk(id=f"{at}-a", text=f"{answer} Tickets are sold on board."),
            Chunk(id=f"{at}-b", text=f"The museum of {town} shows nets, ropes and old maps."),
            Chunk(id=f"{at}-c", text=f"In {town} the market opens on Fridays beside the church."),
        )
        query = f"When does the ferry to {town} leave, and from where?"
        result.append(Trace(id=str(at), query=query, chunks=chunks, answer=answer))
    return result


BASELINE = traces()


def change(changed: Callable[[Trace], Trace]) -> list[Trace]:
    return [changed(trace) for trace in BASELINE]


def answered_otherwise(trace: Trace) -> Trace:
    """Return a trace whose last chunks alone were read."""
    return replace(trace, chunks=trace.chunks[1:], answer=trace.chunks[1].text)


def reworded(trace: Trace) -> Trace:
    """Return a trace that is worded anew where it is one of ten."""
    anew = int(trace.id) % 10 == 0
    return replace(trace, answer=trace.answer.replace("leaves pier", "departs from pier")) if anew else trace


RECORDS = {
    "clipped": change(lambda trace: replace(trace, answer=trace.answer[:100])),
    "html": change(lambda trace: replace(trace, answer=f"<p>{reworded(trace).answer}<br/></p>")),
    "small letters": change(lambda trace: replace(trace, answer=trace.answer.lower().rstrip("."))),
    "quotation marks": change(lambda trace: replace(trace, answer=f"“{trace.answer}”")),
    "json": change(lambda trace: replace(trace, answer=json.dumps({"answer": trace.answer, "confidence": 0.9}))),
    "reasoning": change(lambda t: replace(t, answer=f"<think>They ask for a ferry.</think>\n{t.answer}")),
    "fenced json": change(
        lambda t: replace(t, answer=f"```json\n{json.dumps({'answer': t.answer, 'sources': [t.chunks[0].id]})}\n```")
    ),
    "messages": change(
        lambda t: replace(t, answer=json.dumps({"id": "r-1", "choices": [{"message": {"content": t.answer}}]}))
    ),
    "steps of an agent": change(
        lambda t: replace(
            t, answer=f"Thought: look at the timetable.\nAction: search[{t.id}]\nFinal Answer: {t.answer}"
        )
    ),
    "joined chunks": change(
        lambda trace: replace(trace, chunks=(Chunk(id="all", text="\n---\n".join(c.text for c in trace.chunks)),))
    ),
    "masked": change(
        lambda t: replace(
            t,
            answer=re.sub(r"\d", "*", t.answer),
            chunks=tuple(replace(c, text=re.sub(r"\d", "*", c.text)) for c in t.chunks),
        )
    ),
    "masked answers": change(lambda trace: replace(trace, answer=re.sub(r"\d", "*", trace.answer))),
}
UNSIDED = (
    "html",
    "json",
    "fenced json",
    "messages",
    "steps of an agent",
    "reasoning",
    "joined chunks",
    "small letters",
    "quotation marks",
)
HARMLESS = {
    "sources": change(
        lambda t: replace(t, answer=f"{reworded(t).answer}\n\nSources:\n[1] {t.chunks[0].id}\n[2] {t.chunks[1].id}")
    )
}
HAPPENED = {
    "nothing": BASELINE,
    "fewer words": change(lambda trace: replace(trace, answer=" ".join(trace.answer.split()[:9]))),
    "other chunks": change(answered_otherwise),
    "none retrieved": change(lambda trace: replace(trace, chunks=())),
    "chunks of a copy": change(lambda trace: replace(trace, chunks=trace.chunks[1:])),
    "sources of others": change(
        lambda t: replace(
            t, answer=f"{t.answer}\n\nSources:\n[1] {TOWNS[int(t.id) % 10]}-{'aeiou'[int(t.id) // 10 % 5]}.md"
        )
    ),
    "one phrase": change(lambda trace: replace(trace, answer="Unable to answer based on given passages.")),
    "another wording": change(lambda trace: replace(trace, answer=trace.answer.replace("sunrise", "dawn"))),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Callable[[str, Sequence[Trace]], Run]:
    folder: Path = tmp_path_factory.mktemp("runs")
    options = {"judge": "lexical", "metrics": ["context_relevance", "groundedness"], "force": True}
    return lambda name, rows: evaluate(rows, folder / name, **options)


def find_mismatch(result: Bisection) -> PairMismatch:
    """Return the one mismatch, which is of the texts."""
    [mismatch] = result.comparison.mismatches
    assert mismatch.kind == "texts"
    return mismatch


@pytest.mark.long
@pytest.mark.parametrize("name", RECORDS)
def test_a_record_that_differs_is_a_mismatch_and_never_a_fault(name: str, run):
    """It is named with its share, what rests on the field is left out, and no layer is blamed."""
    result = bisect(pair_runs(run("baseline", BASELINE), run("candidate", RECORDS[name])))
    assert result.verdict == "cannot tell"
    mismatch = find_mismatch(result)
    assert mismatch.share > 0.5
    assert mismatch.share == 1 or name != "html"
    assert mismatch.left_out


@pytest.mark.long
@pytest.mark.parametrize("name", HARMLESS)
def test_the_same_answers_in_another_record_are_no_fault(name: str, run):
    """A list of sources below the answer leaves it as good as it was."""
    result = bisect(pair_runs(run("baseline", BASELINE), run("candidate", HARMLESS[name])))
    assert (result.verdict, result.faults) == ("no fault", ())


@pytest.mark.long
@pytest.mark.parametrize("name", HAPPENED)
def test_what_happened_is_no_mismatch(name: str, run):
    """Answers of fewer words, from other chunks, without chunks or in another wording are compared as they are.

    So are answers that name what was not retrieved, and the chunks of a copy of the traces in which no answer was
    written again.
    """
    result = bisect(pair_runs(run("baseline", BASELINE), run("candidate", HAPPENED[name])))
    assert not result.comparison.mismatches


@pytest.mark.long
def test_both_sides_are_looked_at(run):
    """A logger that was repaired is a mismatch as well."""
    for name, rows in RECORDS.items():
        mismatch = find_mismatch(bisect(pair_runs(run("candidate", rows), run("baseline", BASELINE))))
        assert "baseline" in mismatch.sentence or name in UNSIDED


@pytest.mark.parametrize(("anew", "mismatched"), [(10, True), (1, False)], ids=["same answers", "other answers"])
def test_lists_in_the_order_of_ids_are_no_worse_ranking(anew: int, mismatched: bool, run):
    """The same chunks by id with the same answers are a record without ranks; with other answers they are compared."""

    def answered(trace: Trace) -> Trace:
        return replace(trace, answer=f"In short: {trace.answer}") if int(trace.id) % anew == 0 else trace

    def labelled(trace: Trace) -> Trace:
        return replace(trace, gold=Gold(chunks={f"{trace.id}-c": 1.0}))

    old = [labelled(replace(trace, chunks=trace.chunks[::-1])) for trace in BASELINE]
    new = [answered(labelled(trace)) for trace in BASELINE]
    sides = [
        evaluate(side, run("place", BASELINE).path.parent / f"ids-{anew}-{at}", metrics=["ndcg"], force=True)
        for at, side in enumerate((old, new))
    ]
    result = bisect(pair_runs(*sides))
    sentences = [mismatch.sentence for mismatch in result.comparison.mismatches]
    assert any("in the order of their ids" in sentence for sentence in sentences) == mismatched
    assert bool(result.faults) != mismatched


@pytest.mark.long
@pytest.mark.parametrize(
    ("names", "mismatched"),
    [(lambda c: "1", True), (lambda c: "0", True), (lambda c: c.document, True), (lambda c: "9", False)],
)
def test_citations_by_number_or_document_are_no_fault_where_their_quotes_stand_there(names, mismatched: bool, run):
    """A citation that names its chunk otherwise is a difference of the record; one that leads nowhere is compared."""

    def cited(trace: Trace, name: Callable[[Chunk], str]) -> Trace:
        first = replace(trace.chunks[0], document=f"{trace.id}.md")
        citation = Citation(chunk=name(first), quote=trace.answer)
        return replace(trace, chunks=(first, *trace.chunks[1:]), citations=(citation,))

    old, new = (run(str(at), [cited(t, name) for t in BASELINE]) for at, name in enumerate((lambda c: c.id, names)))
    texts = [mismatch.sentence for mismatch in bisect(pair_runs(old, new)).comparison.mismatches]
    assert any("citations of the candidate name chunks by number, document" in text for text in texts) == mismatched


@pytest.mark.long
def test_a_footer_is_no_fault_and_hides_none(run):
    """A footer with another number in each answer is a notice; inventions above it lower groundedness as without it."""

    def signed(trace: Trace) -> Trace:
        return replace(trace, answer=f"{trace.answer}\n\nTicket #{int(trace.id) * 37 + 1000}, answered on 2025-06-03.")

    def invented(trace: Trace) -> Trace:
        colour = "".join("abcdefghij"[int(digit)] for digit in trace.id)
        extra = f" Captains sell {colour} kites to tourists before every storm."
        return replace(trace, answer=f"{trace.answer}{extra}") if int(trace.id) % 5 < 3 else trace

    base = run("baseline", BASELINE)
    alone, both, plain = (
        bisect(pair_runs(base, run(name, change(modify))))
        for name, modify in (("signed", signed), ("both", lambda t: signed(invented(t))), ("invented", invented))
    )
    assert alone.verdict == "cannot tell"
    assert "repeat a text on 100 % of pairs" in alone.sentence
    assert both.verdict == plain.verdict == "fault"
    assert both.faults[0].evidence[0].difference.mean == plain.faults[0].evidence[0].difference.mean


@pytest.mark.parametrize(
    "broken",
    [
        lambda t: replace(t, answer="I am sorry, I cannot find that in the schedules."),
        lambda t: replace(t, answer=" ".join(t.answer.split()[:5])),
        lambda t: replace(t, answer=f"Captains sell {TOWNS[int(t.id) % 7]} kites to tourists before storms."),
    ],
    ids=["refused", "cut short", "invented"],
)
def test_a_greeting_hides_no_fault_of_two_in_five_answers(broken: Callable[[Trace], Trace], run):
    """Refusals, answers that are cut short and inventions move groundedness as they do without the greeting."""

    def spoiled(trace: Trace) -> Trace:
        return broken(trace) if int(trace.id) % 5 < 2 else trace

    def greeted(trace: Trace) -> Trace:
        return replace(trace, answer=f"Dear passenger, here is what we know.\n\n{trace.answer}")

    base = run("baseline", BASELINE)
    plain, both = (
        bisect(pair_runs(base, run(name, change(modify))))
        for name, modify in (("spoiled", spoiled), ("greeted", lambda t: greeted(spoiled(t))))
    )
    [before], [after] = ([c for c in r.comparison.changes if c.metric == "groundedness"] for r in (plain, both))
    assert "repeat a text on 100 % of pairs" in both.sentence
    assert before.difference.mean == after.difference.mean


def test_a_sentence_that_is_all_of_many_answers_is_no_notice(run):
    """One invention that stands beside half of the answers and in the place of the others lowers groundedness."""
    claim = "Captains sell kites to tourists before every storm."
    spoiled = change(lambda t: replace(t, answer=f"{t.answer} {claim}" if int(t.id) % 2 else claim))
    assert bisect(pair_runs(run("baseline", BASELINE), run("same", spoiled))).verdict == "fault"


def test_a_sentence_in_the_place_of_one_before_is_no_notice(run):
    """Last sentences of one form with other figures are part of the answer where they replace what stood there."""

    def priced(trace: Trace, unit: str) -> Trace:
        return replace(trace, answer=f"{trace.answer} Heavy luggage of {trace.id} {unit} travels free of charge.")

    sides = run("kilograms", change(lambda t: priced(t, "kg"))), run("pounds", change(lambda t: priced(t, "lb")))
    assert not bisect(pair_runs(*sides)).comparison.mismatches


def test_the_same_answers_to_other_chunks_are_named(run):
    """Where no answer changed, the sentence says so, whatever the lists of chunks measure."""
    candidate = run("fewer", change(lambda t: replace(t, chunks=t.chunks[:-1])))
    result = bisect(pair_runs(run("baseline", BASELINE), candidate))
    assert "he answers are the same on every pair, although the recorded chunks differ on 100 %" in result.sentence


@pytest.mark.parametrize(
    ("modify", "words"),
    [
        (lambda t: replace(t, answer=re.sub(r"[^\w\s]", "", t.answer)), "hold no punctuation on 100 %"),
        (lambda t: replace(t, answer=quote(t.answer)), "answers differ in markup on 100 %"),
        (lambda t: replace(t, answer=t.answer.replace(" ", "Â\u00a0", 1)), "answers of the candidate hold damaged"),
        (
            lambda t: replace(t, answer=f"{t.answer}<script type='a'>push({{event: 'answer', at: 1 < 2}});</script>"),
            "answers differ in markup on 100 %",
        ),
        (lambda t: replace(t, answer=f"<!-- trace {t.id} of cache -->{t.answer}"), "answers differ in markup on 100 %"),
    ],
    ids=["punctuation", "escapes", "encoding", "script", "comment"],
)
def test_another_form_of_texts_is_named_and_no_fault(modify: Callable[[Trace], Trace], words: str, run):
    """Texts without punctuation, with escapes, scripts or comments, or in another encoding are said, never blamed."""
    result = bisect(pair_runs(run("baseline", BASELINE), run("formed", change(modify))))
    assert result.verdict == "cannot tell"
    assert words in result.sentence


def _mask_towns(trace: Trace) -> Trace:
    return replace(trace, answer=re.sub("|".join(rf"{town}\w+" for town in TOWNS), "[NAME]", trace.answer))


def test_masked_answers_are_named_and_no_fault(run):
    """Names that one side masks in its answers are said, and neither side is blamed for them, in either direction."""
    sides = run("plain", BASELINE), run("masked", change(_mask_towns))
    for pair, name in ((sides, "candidate"), (sides[::-1], "baseline")):
        result = bisect(pair_runs(*pair))
        assert result.verdict == "cannot tell"
        assert f'answers of the {name} are masked on 100 % of pairs ("[NAME]"), 60 of them the same' in result.sentence


def test_masks_in_half_of_the_answers_are_named_and_no_fault(run):
    """A redaction that is on for half of the answers masks names wherever they stand in these."""
    masked = change(lambda trace: _mask_towns(trace) if int(trace.id) % 2 else trace)
    result = bisect(pair_runs(run("plain", BASELINE), run("half", masked)))
    assert (result.verdict, result.faults) == ("cannot tell", ())
    assert 'answers of the candidate are masked on 50 % of pairs ("[NAME]")' in result.sentence


def test_a_fault_beside_masked_answers_is_named(run):
    """Where half of the answers are masked, inventions in the others are a fault."""

    def spoiled(trace: Trace) -> Trace:
        if int(trace.id) % 2:
            return _mask_towns(trace)
        return replace(trace, answer=f"Captains sell {TOWNS[int(trace.id) % 7]} kites to tourists before storms.")

    result = bisect(pair_runs(run("plain", BASELINE), run("spoiled", change(spoiled))))
    assert result.verdict == "fault"
    assert "are masked on 50 %" in result.sentence


def test_symbols_of_currencies_are_lost_with_the_punctuation(run):
    """Answers that lose "£" with their punctuation say no other words."""
    priced = change(lambda t: replace(t, answer=f"{t.answer[:-1]} for £{t.id}."))
    bare = change(lambda t: replace(t, answer=re.sub(r"[^\w\s]", "", f"{t.answer[:-1]} for £{t.id}.")))
    result = bisect(pair_runs(run("priced", priced), run("bare", bare)))
    assert "hold no punctuation on 100 % of pairs" in result.sentence


def test_other_figures_of_structured_answers_are_no_markup(run):
    """Where both releases answer in JSON, a price that changed is another answer, whatever the text beside it says."""

    def priced(price: int) -> Callable[[Trace], Trace]:
        return lambda t: replace(t, answer=json.dumps([{"note": t.answer, "price": price + int(t.id)}]))

    same, other = (bisect(run("old", change(priced(9))), run("new", change(priced(price)))) for price in (9, 12))
    assert "markup" not in same.sentence + other.sentence


def cited_by_quotes(trace: Trace) -> Trace:
    return replace(trace, citations=(Citation(chunk=trace.chunks[0].id, quote=trace.answer),))


@pytest.mark.long
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (lambda t: replace(t, citations=(Citation(chunk=t.chunks[0].id),)), "claims and quotes of citations are not"),
        (lambda t: replace(t, answer=json.dumps({"lines": t.answer.split(", "), "all": t.answer})), "differ in markup"),
    ],
)
def test_citations_whose_claim_cannot_be_read_are_not_called_fabricated(
    changed: Callable[[Trace], Trace], words: str, run
):
    """A citation stands by a sentence of the answer: without quotes, or in another form, nothing tells by which."""
    bisection = bisect(run("old", change(cited_by_quotes)), run("new", change(lambda t: changed(cited_by_quotes(t)))))
    assert words in bisection.sentence
    assert not bisection.faults


@pytest.mark.parametrize(("quoted", "mismatched"), [(True, True), (False, False)], ids=["quotes", "other quotes"])
def test_citations_by_address_are_no_fault_where_their_quotes_stand_there(quoted: bool, mismatched: bool, run):
    """One address for each document, in place of the ids of chunks, is another record; made-up quotes are compared."""

    def cited(trace: Trace, name: str, quote: str) -> Trace:
        return replace(trace, citations=(Citation(chunk=name, quote=quote),))

    page, invented = "https://ferries.example.org/timetable", "Captains sell kites to tourists before storms."
    old = run("ids", change(lambda t: cited(t, t.chunks[0].id, t.answer)))
    new = run("addresses", change(lambda t: cited(t, page, t.answer if quoted else invented)))
    assert ("document, address or a prefix to the id" in bisect(pair_runs(old, new)).sentence) == mismatched


def test_long_answers_without_ends_are_read_in_time_that_grows_with_their_length():
    """One that opens reasoning again and again is read as it is."""
    opened = "<think>" * 40_000
    assert REASONING_PATTERN.sub("", opened) == opened
    assert REASONING_PATTERN.sub("", "<think>No.</think>Noon.") == "Noon."


def test_answers_in_a_table_of_one_column_are_in_markup(tmp_path: Path):
    """The heading of the table is a name, and its cell holds the words of the answer."""
    new = change(lambda trace: replace(trace, answer=f"| Answer |\n|---|\n| {trace.answer} |"))
    runs = [evaluate(side, tmp_path / name, judge=LEXICAL) for name, side in (("old", BASELINE), ("new", new))]
    result = bisect(*runs)
    assert (result.verdict, result.faults) == ("cannot tell", ())
    assert "answers differ in markup on 100 % of pairs" in result.sentence


def test_a_response_to_another_query_is_named_with_its_share(tmp_path: Path):
    """A cache in front of the pipeline returns chunks and answer of another query, which retrieval never searched."""
    other = [replace(BASELINE[(at + 7) % N], id=trace.id, query=trace.query) for at, trace in enumerate(BASELINE)]
    new = [other[at] if at % 3 == 0 else trace for at, trace in enumerate(BASELINE)]
    runs = [evaluate(side, tmp_path / name, judge=LEXICAL) for name, side in (("old", BASELINE), ("new", new))]
    result = bisect(*runs)
    assert result.verdict == "fault"
    assert "On 33 % of pairs chunks and answer are together those that the baseline gave to another query" in (
        result.sentence
    )


@pytest.mark.parametrize(("changed", "mismatched"), [(4, False), (6, True)], ids=["four queries", "six queries"])
def test_copies_of_a_few_queries_show_no_habit_of_a_logger(changed: int, mismatched: bool, tmp_path: Path):
    """Each of 20 queries is asked ten times: what a few of them share may be chance, as of as many single traces."""
    copies = [replace(trace, id=f"{trace.id}-{copy}") for trace in BASELINE[:20] for copy in range(10)]
    marked = {trace.id for trace in BASELINE[:changed]}
    new = [
        replace(trace, answer=f"<p>{trace.answer}</p>") if trace.id.split("-")[0] in marked else trace
        for trace in copies
    ]
    runs = [
        evaluate(side, tmp_path / name, judge=LEXICAL, metrics=["groundedness"])
        for name, side in (("old", copies), ("new", new))
    ]
    assert bool(pair_runs(*runs).mismatch_list) == mismatched
