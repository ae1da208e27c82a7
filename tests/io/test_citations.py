"""Laws of citations in the text: each form is read with its place and claim, and is neither a claim nor a fact."""

import json

import pytest

from ragfault.io.citations import CitationReader, read_citations
from ragfault.io.trace_reader import read_traces
from ragfault.judges.checks.claims import extract_claims, strip_marks
from ragfault.model.gold_evidence import match_answer
from ragfault.model.records import Chunk, Citation, Trace
from ragfault.text.citation_marks import blank_citations, find_citations

OVEN = Chunk(
    id="k7", text="The clay oven is lit at five in the morning.", document="bakery/oven.pdf", metadata={"page": 2}
)
LOAF = Chunk(id="k8", text="A rye loaf rests for two hours.", document="https://bakery.example/loaves")
CHUNKS = (OVEN, LOAF)


def read(answer, chunks=CHUNKS, *more):
    """Return the traces of these answers, and what the reader states of them."""
    stated = []
    answers = [answer, *more]
    traces = [Trace(id=str(n), query="How?", chunks=chunks, answer=text) for n, text in enumerate(answers)]
    return list(read_citations(traces, stated.append)), stated


@pytest.mark.parametrize(
    ("mark", "tail"),
    [
        ("[2]", ""),
        ("[1][2]", ""),
        ("[1, 2]", ""),
        ("[1-2]", ""),
        ("(Source 2)", ""),
        ("(sources 1 and 2)", ""),
        ("[doc 2]", ""),
        ("<sup>2</sup>", ""),
        ("[https://bakery.example/loaves]", ""),
        ("【4:0†loaves】", ""),
        ("[^b]", "\n\n[^b]: https://bakery.example/loaves"),
        ("[4]", "\n\nSources:\n[4] https://bakery.example/loaves"),
        ("[4]", "\n\n**References**\n4. [Loaves](https://bakery.example/loaves)"),
    ],
)
def test_each_form_names_its_chunk_and_claim(mark, tail):
    """A mark becomes a citation of the chunk it names, with its place and the sentence it stands in."""
    answer = f"A rye loaf rests for two hours {mark}. It is dark.{tail}"
    [trace], _ = read(answer)
    last = trace.citations[-1]
    assert last.chunk == "k8"
    assert last.claim == f"A rye loaf rests for two hours {mark}."
    assert answer[last.start : last.end] in mark


@pytest.mark.parametrize("form", ["{}[2]", "{} [2]", "{}²"])
def test_a_mark_behind_the_full_stop_belongs_to_the_sentence_before(form):
    """Where a mark stands between two sentences, it cites the first."""
    [trace], _ = read(form.format("A rye loaf rests for two hours.") + " The oven is lit at five.")
    assert [(item.chunk, item.claim) for item in trace.citations] == [("k8", "A rye loaf rests for two hours.")]


def test_a_page_chooses_among_the_chunks_of_a_document():
    """A file name with a page means the chunk of that page, without one the chunk nearest to the claim."""
    first = Chunk(id="a", text="The shop opens at six.", document="bakery/oven.pdf", metadata={"page": 1})
    [trace], _ = read("It is lit at five [oven.pdf#page=2]. The shop opens at six [oven.pdf].", (first, OVEN))
    assert [item.chunk for item in trace.citations] == ["k7", "a"]


def test_a_number_is_an_id_where_the_words_say_so():
    """Numeric ids in another order than the chunks: the sentences share their words with the chunks of those ids."""
    chunks = (Chunk(id="2", text=OVEN.text), Chunk(id="1", text=LOAF.text))
    [trace], stated = read("A rye loaf rests for two hours [1]. The clay oven is lit at five [2].", chunks)
    assert [item.chunk for item in trace.citations] == ["1", "2"]
    assert len(stated) == 1


def test_a_number_may_count_from_zero():
    """Positions that begin at 0 are told by the words."""
    [trace], _ = read("The clay oven is lit at five [0]. A rye loaf rests for two hours [1].")
    assert [item.chunk for item in trace.citations] == ["k7", "k8"]


def test_the_file_decides_and_not_the_answer():
    """The others cite positions, so that a position that was not retrieved is a fault of the answer."""
    traces, _ = read("Lit at five [1].", CHUNKS, "Rests for two hours [2].", "Sold out by noon [5].")
    assert [item.chunk for trace in traces for item in trace.citations] == ["k7", "k8", "5"]


def test_the_id_of_a_chunk_in_brackets_is_a_citation():
    """Pipelines that show the model ids get them back."""
    chunks = (Chunk(id="kb/oven-1", text=CHUNKS[0].text), Chunk(id="kb/loaf-2", text=CHUNKS[1].text))
    [trace], _ = read("The clay oven is lit at five [kb/oven-1]. A rye loaf rests for two hours [kb/loaf-2].", chunks)
    assert [item.chunk for item in trace.citations] == ["kb/oven-1", "kb/loaf-2"]


def test_marks_that_name_no_chunk_are_stated_and_not_read():
    """A text from an encyclopedia has numbers of its own."""
    [trace], stated = read("A rye loaf rests for two hours [31]. It is dark [32].")
    assert trace.citations is None
    assert len(stated) == 1


def test_a_mark_that_a_chunk_has_was_copied():
    """A mark of the source, repeated with its sentence, is no citation of the answer."""
    chunks = (Chunk(id="a", text="Rye is sown in autumn [9]."), LOAF)
    [trace], _ = read("Rye is sown in autumn [9]. A rye loaf rests for two hours [2]. It is lit at five [1].", chunks)
    assert [item.chunk for item in trace.citations] == ["k8", "a"]


def test_recorded_citations_outrank_the_text():
    """Citations that were recorded are kept as they are."""
    trace = Trace(id="1", query="How?", chunks=CHUNKS, answer="Two hours [1].", citations=(Citation(chunk="k8"),))
    assert list(read_citations([trace], print)) == [trace]


@pytest.mark.parametrize(
    "text", ["It covers 12 m² and 10⁶ crumbs.", "See [the list](https://a.example).", "In [2024] it was 3 [sic]."]
)
def test_what_is_no_mark(text):
    """Units, powers, links, years and editors' notes are text."""
    assert find_citations(text).marks == ()
    assert blank_citations(text) == text


def test_marks_and_sources_are_neither_claims_nor_facts():
    """A claim is a sentence without its marks; a list of sources makes no claim; a number in a mark answers nothing."""
    answer = "The oven is lit at five.[3] It burns oak [4]\n\nSources:\n[3] The oven book says much.\n[4] oak.pdf"
    assert [strip_marks(claim.text) for claim in extract_claims(answer)] == ["The oven is lit at five.", "It burns oak"]
    trace = Trace(id="1", query="How long?", answer="It rests for 2 hours [loaf.pdf#page=3].", reference="3 hours")
    assert match_answer(trace) is False
    named = Trace(id="1", query="How long?", answer="It rests for 3 hours.", reference="3 hours. [loaf-7.pdf]")
    assert match_answer(named) is True


def test_passages_that_begin_with_their_file_are_chunks_of_that_name(tmp_path):
    """Three sources joined in one text are three chunks, and a file in brackets cites one of them."""
    record = {
        "question": "How long does it rest?",
        "context": "loaf.pdf#page=1: It rests for two hours.\nloaf.pdf#page=2: It is dark.\noven.md: It is hot.",
        "answer": "It rests for two hours [loaf.pdf#page=1].",
    }
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps(record))
    [trace] = read_traces(path)
    assert [chunk.id for chunk in trace.chunks] == ["loaf.pdf#page=1", "loaf.pdf#page=2", "oven.md"]
    assert [item.chunk for item in trace.citations] == ["loaf.pdf#page=1"]


def test_traces_that_come_one_by_one_are_read_as_a_file_of_them():
    """After some answers that tell what a number means, an ambiguous one is read in the same way."""
    chunks = (
        Chunk(id="1", text="Oslo is old."),
        Chunk(id="2", text="Bergen is wet."),
        Chunk(id="0", text="Rome burns."),
    )
    clear = [Trace(id=str(n), query="How?", chunks=chunks, answer="Bergen is wet [1].") for n in range(5)]
    unclear = Trace(id="9", query="How?", chunks=chunks, answer="So it goes [1].")
    reader = CitationReader(len)
    read = [reader.read(trace) for trace in (*clear, unclear)]
    assert [trace.citations for trace in read] == [t.citations for t in read_citations([*clear, unclear], len)]
    assert read[-1].citations[0].chunk == "2"
