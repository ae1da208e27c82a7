"""Laws of chunking: what every chunker keeps to, what each kind is for, and how one is written."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragfault.model.errors import UnknownName, UsageError
from ragfault.model.records import Document
from ragfault.retrieval.chunking.chunker import CHUNKER_KINDS, CHUNKER_PRESETS, Chunker, load_chunker
from ragfault.retrieval.chunking.structure import (
    locate_clauses,
    locate_sections,
    locate_turns,
    measure_topic_shifts,
    parse_blocks,
    parse_json_levels,
)
from ragfault.retrieval.chunking.token_spans import count_tokens

PARTS = (
    "# Fares",
    "## By car\n",
    "By length. Dogs go free! Do they? Yes.\n\n",
    "| Car | 20 |\n|---|---|\n| Van | 30 |\n",
    "Q: May I pay in cash?\nA: Cards only.\n",
    "Anna: hello\n",
    "Ben: hello, Anna\n",
    "1.2 The carrier shall\n",
    "(a) carry dogs\n",
    "Article 3\n",
    "- one\n- two\n",
    "```\ncode()\n\nmore()\n```\n",
    "<table><tr><td>1</td></tr></table>\n",
    '{"a": [1, 2], "b": "c\\"d"}',
    "渡し船は十時に出る。犬は?",
    "Fähre — 😀👩‍👩‍👧 ẞ\u0301\n",
    "Tom\r\n",
    " ",
    "\n\n",
    "a" * 60,
    "|",
    "---\n",
    "\u2028\x1c\x85",
)
texts = st.lists(st.one_of(st.sampled_from(PARTS), st.text(max_size=8)), max_size=25).map("".join)
sizes = st.integers(1, 40).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size // 2)))
every = pytest.mark.parametrize("kind", CHUNKER_KINDS)


def spans(kind: str, text: str, size: int, overlap: int = 0, **more: object) -> list[tuple[int, int]]:
    chunks = Chunker(kind, size, overlap, **more)(Document(id="d", text=text))
    return [(chunk.start, chunk.end) for chunk in chunks]


def cut(name: str, text: str) -> list[str]:
    return [chunk.text for chunk in load_chunker(name)(Document(id="d", text=text))]


# --- what every chunker keeps to -------------------------------------------------------------------


@every
@given(text=texts, how=sizes)
def test_offsets_are_exact(kind, text, how):
    """The text of a chunk is that of its document between its offsets; before rows of a cut table stands its head."""
    for chunk in Chunker(kind, *how)(Document(id="d", text=text)):
        between = text[chunk.start : chunk.end]
        assert between == between.strip()
        assert chunk.text == between or (chunk.kind == "table" and chunk.text.endswith("\n" + between))
        assert chunk.document == "d"
        assert chunk.text


@every
@given(text=texts, how=sizes)
def test_nothing_is_lost(kind, text, how):
    """Every character that is no white space is in a chunk; chunks stand in their order, and none within another."""
    pieces = spans(kind, text, *how)
    covered = {place for start, end in pieces for place in range(start, end)}
    assert all(place in covered or sign.isspace() for place, sign in enumerate(text))
    assert pieces == sorted(pieces)
    assert all(before[1] < after[1] for before, after in pairwise(pieces))


@every
@given(text=texts, how=sizes)
def test_no_chunk_is_longer_than_asked(kind, text, how):
    """No chunk has more tokens than the size; a table up to four times as many."""
    for chunk in Chunker(kind, *how)(Document(id="d", text=text)):
        assert count_tokens(chunk.text) <= how[0] * (4 if chunk.kind == "table" else 1)


@every
@given(text=texts, how=sizes)
def test_neighbours_share_no_more_than_asked(kind, text, how):
    """What a chunk shares with the one before it is at most the overlap, and nothing where none is asked for."""
    for before, after in pairwise(spans(kind, text, *how)):
        assert count_tokens(text[after[0] : max(before[1], after[0])]) <= how[1]


@given(text=texts, how=sizes)
def test_windows_share_exactly_the_overlap(text, how):
    """Windows of fixed size are full but for the last, and share just so many tokens."""
    size, overlap = how
    pieces = spans("fixed", text, size, overlap)
    assert all(count_tokens(text[start:end]) == size for start, end in pieces[:-1])
    assert all(count_tokens(text[b[0] : a[1]]) == overlap for a, b in pairwise(pieces) if overlap)


@pytest.mark.parametrize("kind", ["sentences", "recursive", "semantic", "pairs", "clauses", "turns", "sections"])
def test_overlap_is_near_what_was_asked(kind):
    """In running text each chunk reaches back over at least half of the overlap."""
    text = " ".join(f"Ferry number {n} leaves at {n % 24} and takes {n % 7} cars." for n in range(200))
    for before, after in pairwise(spans(kind, text, 100, 20)):
        assert 10 <= count_tokens(text[after[0] : before[1]]) <= 20


@every
@given(text=texts, how=sizes)
def test_the_same_document_gives_the_same_chunks(kind, text, how):
    """Chunking is a function of document and parameters; ids differ within a document."""
    document = Document(id="d", text=text, metadata={"language": "en"})
    chunks = Chunker(kind, *how)(document)
    assert chunks == pickle.loads(pickle.dumps(Chunker(kind, *how)))(document)
    assert len({chunk.id for chunk in chunks}) == len(chunks)
    assert all(chunk.metadata == {"language": "en"} for chunk in chunks)


@every
def test_a_document_without_text_has_no_chunk(kind):
    """Nothing and white space give nothing."""
    assert not [spans(kind, text, 8) for text in ("", " \n\t\u2003\n") if spans(kind, text, 8)]


def test_an_id_means_a_passage():
    """The id of a chunk is made of its text: it stays when text before it changes, and differs with the text."""
    ids = [
        [chunk.id for chunk in load_chunker("recursive(6)")(Document(id="d", text=text))]
        for text in ("One is here.\n\nTwo is there.", "Before all.\n\nOne is here.\n\nTwo is there.")
    ]
    assert ids[0] == ids[1][1:]
    twice = load_chunker("recursive(4)")(Document(id="d", text="Same words here.\n\nSame words here."))
    assert twice[1].id == f"{twice[0].id}~2"


@given(st.text(max_size=60))
def test_tokens_hold_every_sign(text):
    """Every character but white space is in one token, and none is longer than 24."""
    count = count_tokens(text)
    signs = sum(not sign.isspace() for sign in text)
    assert signs / 24 <= count <= signs


# --- what each kind is for -------------------------------------------------------------------------


def test_sentences_are_not_split():
    """A chunk of sentences ends where a sentence does."""
    text = "Dr. Lee came at 5 p.m. today. She left. The ferry did not wait for anybody at all."
    assert cut("sentences(13)", text) == [
        "Dr. Lee came at 5 p.m. today.",
        "She left. The ferry did not wait for anybody at all.",
    ]


def test_recursive_goes_from_headings_to_paragraphs():
    """Sections that fit stay whole; one that does not is cut between its paragraphs; a heading keeps its text."""
    text = "# A\n\nOne two three.\n\n# B\n\nFour five six seven.\n\nEight nine ten eleven.\n\n## C\n\nTwelve."
    assert cut("recursive(9)", text) == [
        "# A\n\nOne two three.",
        "# B\n\nFour five six seven.",
        "Eight nine ten eleven.",
        "## C\n\nTwelve.",
    ]


@pytest.mark.parametrize("kind", ["recursive", "clauses", "sections", "pairs"])
def test_a_heading_is_never_alone(kind):
    """A heading stays with what follows it, also where that is a heading or too long for the chunk."""
    text = "# Fares\n\n## By car\n\n" + "Every car pays by its length. " * 9
    assert cut(f"{kind}(30)", text)[0].startswith("# Fares\n\n## By car\n\nEvery car")


def test_headings_of_other_marks():
    """A title over a rule and one between equals signs are headings; code and front of tables are not."""
    text = "Fares\n=====\n\nText.\n\n== Dogs ==\nMore.\n\n```\n# no\n```\n"
    assert [depth for _, depth in parse_blocks(text).headings] == [1, 2]


def test_json_is_cut_between_members():
    """A JSON document is cut at its outermost members first; signs within strings are none."""
    assert cut("recursive(14)", '{"a": {"x": 1},\n "b,[": {"y": 2}}') == ['{"a": {"x": 1},', '"b,[": {"y": 2}}']
    assert parse_json_levels("no JSON") is None


def test_tables_are_separate_chunks():
    """A table is one chunk of its kind, longer than the size if need be; text does not reach over it."""
    table = "| Car | Price |\n| --- | --- |\n" + "\n".join(f"| {n} | {n * 2} |" for n in range(5))
    text = f"Before it.\n\n{table}\n\nAfter it."
    chunks = load_chunker("recursive(20, overlap=5)")(Document(id="d", text=text))
    assert [(chunk.kind, chunk.text) for chunk in chunks] == [
        ("text", "Before it."),
        ("table", table),
        ("text", "After it."),
    ]


def test_a_huge_table_is_cut_between_rows():
    """Of a table beyond four times the size each chunk holds whole rows."""
    text = "| a | b |\n|---|---|\n" + "\n".join(f"| {n} | x |" for n in range(100))
    chunks = load_chunker("recursive(20)")(Document(id="d", text=text))
    assert len(chunks) > 10
    assert {chunk.kind for chunk in chunks} == {"table"}
    assert all(chunk.text.startswith("|") and chunk.text.endswith("|") for chunk in chunks)


def test_each_part_of_a_table_begins_with_its_head():
    """Heading and names of the columns stand in every part of a table that is cut; offsets are those of the rows."""
    head = "## Fares\n\n| Vehicle | Price |\n|---|---|\n"
    text = f"Cars pay.\n\n{head}" + "\n".join(f"| {n} | {n * 2} |" for n in range(60)) + "\n\nAfter it."
    before, *parts, after = load_chunker("recursive(40)")(Document(id="d", text=text))
    assert (before.text, after.text) == ("Cars pay.", "After it.")
    assert len(parts) > 4
    assert all(chunk.text.startswith(head) and count_tokens(chunk.text[len(head) :]) <= 40 for chunk in parts)
    assert parts[0].text == text[parts[0].start : parts[0].end]
    assert all(chunk.text == head + text[chunk.start : chunk.end] for chunk in parts[1:])


def test_a_head_that_would_fill_the_chunk_is_not_repeated():
    """Names of columns that take more than half of the size stand in the first part alone."""
    text = "| a | b | c | d | e | f |\n|---|---|---|---|---|---|\n" + "| 1 | 2 | 3 | 4 | 5 | 6 |\n" * 20
    chunks = load_chunker("recursive(20)")(Document(id="d", text=text))
    assert sum("| a |" in chunk.text for chunk in chunks) == 1


def test_semantic_cuts_where_the_topic_turns():
    """Where text must be cut, it is between the two topics and not within one."""
    dogs = "Dogs stay on a lead. A dog needs a muzzle. Puppies are dogs too. Every dog needs a lead."
    fares = "The fare is paid by card. Prices rose in March. A cheaper fare costs ten. Cards pay any price."
    assert cut("semantic(34)", f"{dogs} {fares}") == [dogs, fares]


def test_semantic_asks_the_embedder():
    """The vectors of the embedder that is given decide, and its fingerprint is in that of the chunker."""

    class Switch:
        fingerprint, dimensions = "switch/1", 2

        def embed(self, texts, *, query=False):
            return np.array([[1, 0] if "x" in text else [0, 1] for text in texts], np.float32)

    chunks = load_chunker("semantic(12)", embedder=Switch())
    text = "One x here. Two x here. Three here. Four here. Five here."
    assert next(chunk.text for chunk in chunks(Document(id="d", text=text))) == "One x here. Two x here."
    assert (chunks.expression, chunks.fingerprint) == ("semantic(12)", "semantic(12) switch/1")


def test_a_long_text_turns_where_its_parts_do():
    """Sentences are compared in batches, and what is found does not depend on where these end."""
    texts = [f"Dogs number {n % 7} and ferries {n % 5}." for n in range(600)]
    shifts = measure_topic_shifts(texts)
    assert len(shifts) == 599
    assert shifts[300:303] == pytest.approx(measure_topic_shifts(texts[290:310])[10:13], abs=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        "Q: May dogs come?\nA: On a lead.\n\nQ: And cats?\nA: In a box.",
        "## May dogs come?\n\nOn a lead.\n\n## And cats?\n\nIn a box.",
        "**May dogs come?**\nOn a lead.\n\n**And cats?**\nIn a box.",
        "May dogs come?\nOn a lead. Why not?\n\nAnd cats?\nIn a box.",
    ],
)
def test_pairs_keep_questions_with_answers(text):
    """However questions are marked, each chunk begins with one and ends with its answer."""
    first, second = cut("pairs(40, apart=true)", text)
    assert "dogs" in first
    assert "lead" in first
    assert "cats" in second
    assert second.endswith("box.")


def test_a_heading_goes_with_the_pair_below_it():
    """The heading of a group of questions begins the chunk of the first of them."""
    text = "# Animals\n\nQ: Dogs?\nA: Yes.\n\nQ: Cats?\nA: Yes.\n\n# Money\n\nQ: Cash?\nA: No."
    assert [chunk[:7] for chunk in cut("pairs(40, apart=true)", text)] == ["# Anima", "Q: Cats", "# Money"]


def test_clauses_are_cut_by_number():
    """Articles first, then clauses by the depth of their numbers."""
    text = "Article 1\n1.1 The carrier carries.\n(a) dogs\n(ii) cats\n1.1.1 Boxes too.\nArticle 2\n1. Nothing else."
    levels, _ = locate_clauses(text, parse_blocks(text))
    assert [[text[place:].split(maxsplit=1)[0] for place in level] for level in levels[:7]] == [
        ["Article", "Article"],
        ["1."],
        ["1.1"],
        ["1.1.1"],
        [],
        ["(a)"],
        ["(ii)"],
    ]
    assert [chunk[:9] for chunk in cut("clauses(24)", text)] == ["Article 1", "1.1.1 Box", "Article 2"]


def test_turns_are_not_split():
    """A chunk of a chat begins with a speaker; a colon in what is message is no turn."""
    text = "Anna: Hello.\nNote: this is message.\nBen (10:02): Hi.\nAnna: The ferry?\nBen: At ten."
    starts = locate_turns(text, parse_blocks(text)).levels[0]
    assert [text[place:].split(":", maxsplit=1)[0] for place in starts] == ["Anna", "Ben (10", "Anna", "Ben"]
    assert all(chunk.startswith(("Anna", "Ben")) for chunk in cut("turns(20)", text))


def test_sections_of_a_plain_paper():
    """Numbered and customary titles are sections where nothing else is."""
    text = "Abstract\n\nWe sail.\n\n1 Introduction\n\nFerries. 2 there.\n\n1.1 Aims\n\nTo sail.\n\nReferences\n\nNone."
    assert [
        text[place:].split("\n", maxsplit=1)[0] for place in locate_sections(text, parse_blocks(text)).levels[0]
    ] == ["Abstract", "1 Introduction", "References"]
    assert len(cut("sections(100, apart=true)", text)) == 3


# --- how one is written ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "size", "share", "kind"),
    [
        ("technical", (1000, 1500), (0.15, 0.20), "semantic"),
        ("legal", (800, 1200), (0.20, 0.25), "clauses"),
        ("faq", (256, 512), (0.10, 0.15), "pairs"),
        ("papers", (512, 1000), (0.15, 0.20), "sections"),
        ("chat", (300, 600), (0.25, 0.30), "turns"),
    ],
)
def test_presets_lie_in_their_ranges(name, size, share, kind):
    """Each type of document has the kind, the size and the overlap that is advised for it: the middle."""
    chunker = load_chunker(name)
    assert chunker.kind == kind
    assert chunker.size == sum(size) // 2
    assert share[0] <= chunker.overlap / chunker.size <= share[1]
    assert chunker.overlap == round(chunker.size * sum(share) / 2)


@pytest.mark.parametrize(
    "name", [*CHUNKER_KINDS, *CHUNKER_PRESETS, "fixed(8, overlap=3)", "pairs(99,apart=true)", "chat(100)"]
)
def test_a_chunker_is_its_text(name):
    """The text of a chunker makes the same one again, and is its fingerprint."""
    chunker = load_chunker(name)
    assert load_chunker(chunker.expression) == chunker
    assert chunker.fingerprint == chunker.expression


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("fixd(5)", UnknownName, 'Did you mean "fixed"'),
        ("tehnical", UnknownName, 'Did you mean "technical"'),
        ("fixed(5, overlp=2)", UnknownName, 'Did you mean "overlap"'),
        ("fixed(0)", UsageError, "at least 1"),
        ("fixed(10, overlap=6)", UsageError, "at most half"),
        ("fixed(10, overlap=-1)", UsageError, "at least 0"),
        ("fixed(10, overlap=1.5)", UsageError, "a share of the size"),
        ("fixed(ten)", UsageError, "whole number"),
        ("fixed(5, 2)", UsageError, "only the size has no name"),
        ("fixed(5, size=6)", UsageError, "given twice"),
        ("fixed(5", UsageError, "is not a chunker"),
        ("fixed(5, apart=true)", UsageError, "no parts"),
        ("fixed(5, embedder=latent)", UsageError, "takes no embedder"),
        ("semantic(5, embedder=latant)", UnknownName, 'Did you mean "latent"'),
    ],
)
def test_what_cannot_be_is_refused(name, error, message):
    """The message says what is wrong, and what was probably meant."""
    with pytest.raises(error, match=message):
        load_chunker(name)
