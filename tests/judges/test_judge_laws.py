"""Laws of the judges: what a verdict depends on, and what must never pass for support."""

import os
import pickle
import subprocess
import sys
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ragfault.judges.checks.claims import extract_claims, is_refusal
from ragfault.judges.checks.queries import split_query
from ragfault.judges.loading import JUDGES, load_judge
from ragfault.model.errors import MissingExtra, UnknownName, UsageError
from ragfault.model.protocols import VERDICT_KINDS, Judge
from ragfault.model.records import Chunk, Citation, ClaimVerdict, ConversationTurn, Trace, Verdicts

JUDGE = load_judge("lexical")
HANDBOOK = (
    Chunk(id="returns", text="Customers may return goods within 30 days of purchase. A receipt is required."),
    Chunk(id="garden", text="Roses should be watered twice a week. Prune them in March."),
    Chunk(id="shipping", text="Standard shipping to Norway takes five days and costs $12."),
)


def judge(sources: str | tuple[str, ...], answer: str, query: str = "What is said?") -> Verdicts:
    """Return the verdicts on one answer drawn from some sources."""
    texts = (sources,) if isinstance(sources, str) else sources
    chunks = tuple(Chunk(id=str(place), text=text) for place, text in enumerate(texts))
    verdicts = JUDGE.observe([Trace(id="1", query=query, chunks=chunks, answer=answer)])[0]
    assert not verdicts.failures
    return verdicts


def claim(sources: str | tuple[str, ...], answer: str) -> ClaimVerdict:
    """Return the verdict on the only claim of an answer."""
    result = judge(sources, answer).claim
    assert result is not None
    assert len(result) == 1
    return result[0]


# --- claims ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("Aspirin reduces the risk of stroke in adults.", "Aspirin increases the risk of stroke in adults."),
        ("Aspirin reduces the risk of stroke.", "Aspirin does not reduce the risk of stroke."),
        ("The drug is not safe for children.", "The drug is safe for children."),
        ("The drug is safe for children.", "The drug is unsafe for children."),
        ("The man bit the dog.", "The dog bit the man."),
        ("Google acquired YouTube in 2006.", "YouTube acquired Google in 2006."),
        ("The refund window is 30 days.", "The refund window is 60 days."),
        ("Oslo was founded in 1040 by King Harald.", "Oslo was founded in 1050 by King Harald."),
        ("The fund paid out 5 kg of gold.", "The fund paid out 5 mg of gold."),
        ("The meeting is on 14 March 2024 in Oslo.", "The meeting is on March 15, 2024 in Oslo."),
        ("Alcohol is forbidden on site.", "Alcohol is allowed on site."),
        ("Wages rose by 3 % in 2020.", "Wages fell by 3 % in 2020."),
        ("Section 9 covers parental leave.", "Section 12 covers parental leave."),
        ("{'name': 'Cafe Ole', 'attributes': {'WiFi': False}}", "The cafe has Wi-Fi."),
        ("{'hours': {'Monday': '9:0-17:0'}}", "Monday hours are 9 AM to 6 PM."),
        ("Clerks accrue 20 days a year. Managers accrue 25 days a year.", "Managers accrue 20 days a year."),
    ],
)
def test_contradicted(source: str, answer: str) -> None:
    """One changed number, date, unit, negation, opposite or role against a well aligned sentence contradicts."""
    seen = claim(source, answer)
    assert seen.support == "contradicted"
    assert seen.p is not None
    assert seen.p < 0.5
    assert seen.reason


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("Lyon is the capital of France.", "Paris is the capital of France."),
        ("Paris is the capital of France.", "Lyon is the capital of France."),
        ("Anna manages the Oslo office. Bert manages the Bergen office.", "Bert manages the Oslo office."),
        ("{'name': 'Cafe Ole', 'attributes': {'Music': None}}", "The cafe has live music."),
        ("Roses should be watered twice a week.", "The warranty covers all parts for two years."),
    ],
)
def test_unsupported(source: str, answer: str) -> None:
    """Another name in the same words, an empty field, or another subject is no support."""
    assert claim(source, answer).support in {"unsupported", "contradicted"}


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("The dog bit the man.", "The man was bitten by the dog."),
        ("Customers may return goods within 30 days of purchase.", "Goods may be returned within thirty days."),
        ("The meeting is on 14 March 2024 in Oslo.", "The meeting takes place in Oslo on March 14, 2024."),
        ("The price was $1,500,000 in total.", "In total the price was 1.5 million dollars."),
        ("Google acquired YouTube in 2006.", "In 2006, YouTube was acquired by Google."),
        ("{'name': 'Cafe Ole', 'attributes': {'WiFi': False}}", "Cafe Ole does not offer Wi-Fi."),
        ("{'hours': {'Monday': '9:0-17:0'}}", "On Monday the hours are 9 AM to 5 PM."),
        ("Don't use a phone in the car.", "Avoid using a phone in the car."),
        ("| Plan | Price |\n|---|---|\n| Basic | $10 |\n| Pro | $25 |", "The price of the Pro plan is $25."),
    ],
)
def test_paraphrase(source: str, answer: str) -> None:
    """A faithful rewording holds."""
    assert claim(source, answer).support in {"supported", "inferred"}


def test_copied() -> None:
    """An answer copied from a chunk is supported throughout, with the copied sentences as evidence."""
    for chunk in HANDBOOK:
        verdicts = JUDGE.observe([Trace(id="1", query="?", chunks=HANDBOOK, answer=chunk.text)])[0]
        assert verdicts.claim
        for seen in verdicts.claim:
            assert seen.support == "supported"
            (evidence,) = seen.evidence
            assert evidence.chunk == chunk.id
            assert chunk.text[evidence.start : evidence.end] == seen.claim


def test_spread() -> None:
    """A claim drawn from two chunks is inferred, and both are named."""
    seen = claim(
        ("The Oslo office was opened in 1998.", "The Oslo office employs 40 people."),
        "The Oslo office, opened in 1998, employs 40 people.",
    )
    assert seen.support == "inferred"
    assert {item.chunk for item in seen.evidence} == {"0", "1"}


def test_claims_checkable() -> None:
    """Questions, greetings, headings, offers and refusals are no claims; offsets point into the answer."""
    answer = (
        "Sure! Here is a summary:\n## Oslo\n- Oslo is the capital of Norway [1].\n1. It was founded in 1040.\n"
        "The passages do not mention its mayor. Do you want more? I hope this helps!"
    )
    result = extract_claims(answer)
    assert [item.text for item in result] == ["Oslo is the capital of Norway [1].", "It was founded in 1040."]
    assert all(answer[item.start : item.end] == item.text for item in result)


TALK = (
    "Thank you very much for reaching out with this interesting question!",
    "Let me gather my thoughts and go through them one after the other.",
    "As an AI language model, I strive to be accurate and impartial.",
    "I'd like to approach this from a few different angles.",
)
"""Sentences about the answering, and truisms."""


@pytest.mark.parametrize("talk", TALK)
def test_talk(talk: str) -> None:
    """Talk claims nothing, also where a source holds it and where the answer has nothing else."""
    message = "The window is 30 days."
    assert [claim.text for claim in extract_claims(f"{talk} {message}")] == [message]
    assert extract_claims(talk) == []
    assert [item.claim for item in judge((talk, message), f"{talk} {message}").claim or ()] == [message]


@pytest.mark.parametrize(
    "invented",
    [
        "A loyalty scheme returns a tenth of the amount to members as vouchers every autumn.",
        "Pensioners with a silver badge are moved to the front of the queue.",
        "I think the manager waives the fee.",
        "Let me tell you that the gate is locked after dark.",
        "We close early on holidays.",
        "You must ask first.",
        "Members may ask questions at the end of the talk.",
        "Late answers are not considered.",
        "I can help 7 people.",
        "You can talk to Anna.",
        "- Ask for help.",
    ],
)
def test_not_talk(invented: str) -> None:
    """Whoever speaks: what names, counts, forbids or tells of other affairs stays a claim."""
    result = extract_claims(f"The window is 30 days.\n{invented}")
    assert [item.text for item in result] == ["The window is 30 days.", invented.removeprefix("- ")]


def test_a_truism_that_states_something_is_a_claim() -> None:
    """It is checked, whether it was asked about or not."""
    message = "Patience is a virtue that grows with time."
    for source, query in ((message, "What is said?"), ("Roses need water.", "Is patience a virtue?")):
        assert len(judge(source, f"Roses need water. {message}", query).claim or ()) == 2


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("I'm sorry, but I cannot answer that based on the provided context.", True),
        ("Unable to answer based on given passages.", True),
        ("I don't know.", True),
        ("The documents do not contain information about the mayor.", True),
        ("Returns are accepted within 30 days. A receipt is required. The passages do not mention fees.", False),
        ("Dogs cannot eat chocolate.", False),
        ("", False),
    ],
)
def test_refused(answer: str, expected: bool) -> None:
    """An answer that declines and claims next to nothing is a refusal."""
    assert is_refusal(answer) is expected


def test_empty_answer() -> None:
    """An empty answer has no claims, answers nothing and is judged all the same."""
    verdicts = judge("Oslo is old.", "", "How old is Oslo?")
    assert verdicts.claim == ()
    assert verdicts.answer is not None
    assert verdicts.answer.relevance == 0.0
    assert not any(aspect.answered for aspect in verdicts.answer.aspects)


# --- retrieval -------------------------------------------------------------------------------------


def test_blind_to_answer() -> None:
    """Chunk, missing and recall verdicts do not move with the answer."""
    base = {"id": "1", "query": "How many days for returns?", "chunks": HANDBOOK, "facts": ("Returns within 30 days",)}
    answers = [None, "", "Thirty days.", "Roses, twice a week.", HANDBOOK[0].text]
    seen = JUDGE.observe([Trace(**base, answer=answer) for answer in answers])
    assert len({(item.chunk, item.missing, item.recall) for item in seen}) == 1


def test_relevance_order() -> None:
    """The chunk that speaks of the query is the most relevant, one on another subject is not relevant."""
    seen = JUDGE.observe([Trace(id="1", query="How long can customers return goods?", chunks=HANDBOOK)])[0].chunk
    assert seen is not None
    assert [item.chunk for item in seen] == [chunk.id for chunk in HANDBOOK]
    assert seen[0].level == "high"
    assert seen[1].level == "none"


def test_identifier() -> None:
    """Asked about Section 12, a chunk on Section 9 is not relevant, however similar the words."""
    seen = judge(
        (
            "Section 9: the notice period for tenants is two months.",
            "Section 12: the notice period for tenants is short.",
        ),
        "",
        "What does Section 12 say about the notice period for tenants?",
    ).chunk
    assert seen is not None
    assert seen[0].level == "none"
    assert seen[1].level == "high"


def test_missing() -> None:
    """What no chunk speaks of is named in the query's own words; nothing is missing from a full answer."""
    query = "How long can customers return goods, and who is the mayor of Bergen?"
    seen = JUDGE.observe([Trace(id="1", query=query, chunks=HANDBOOK)])[0].missing
    assert seen == ("who is the mayor of Bergen",)
    assert judge(HANDBOOK[0].text, "", "Is a receipt required to return goods?").missing == ()


def test_recall() -> None:
    """Facts that the chunks hold are covered, others are not; without facts the reference stands in."""
    facts = ("Returns are possible within 30 days of purchase", "Gift cards never expire")
    seen = JUDGE.observe([Trace(id="1", query="?", chunks=HANDBOOK, facts=facts)])[0].recall
    assert seen is not None
    assert [item.covered for item in seen] == [True, False]
    reference = "Standard shipping costs $12. Express shipping costs $40."
    seen = JUDGE.observe([Trace(id="1", query="?", chunks=HANDBOOK, reference=reference)])[0].recall
    assert seen is not None
    assert [item.covered for item in seen] == [True, False]


# --- the answer ------------------------------------------------------------------------------------


def test_use() -> None:
    """The chunk that an answer was drawn from is used, the others are not."""
    answer = "Goods can be returned within 30 days of purchase."
    seen = JUDGE.observe([Trace(id="1", query="Can I return goods?", chunks=HANDBOOK, answer=answer)])[0].use
    assert seen is not None
    assert [item.used for item in seen] == [True, False, False]
    assert seen[0].overlap > 0.5 > seen[1].overlap


def test_citations() -> None:
    """A citation supports where its chunk holds the claim; a chunk that was not retrieved supports nothing."""
    answer = "Goods can be returned within 30 days of purchase [returns]. Shipping to Norway costs $12 [garden]."
    citations = (
        Citation(chunk="returns"),
        Citation(chunk="garden"),
        Citation(chunk="shipping", claim="Shipping to Norway costs $12."),
        Citation(chunk="returns", quote="within 30 days"),
        Citation(chunk="lost", quote="within 30 days"),
    )
    trace = Trace(id="1", query="?", chunks=HANDBOOK, answer=answer, citations=citations)
    seen = JUDGE.observe([trace])[0].citation
    assert seen is not None
    assert [item.supports for item in seen] == [True, False, True, True, False]
    assert seen[3].claim.startswith("Goods can be returned")


@pytest.mark.parametrize("form", ["{}", "1. {}", "| No. | Finding |\n|---|---|\n| 7 | {} |"])
def test_the_number_of_an_item_or_row_is_no_part_of_what_is_cited(form: str) -> None:
    """A sentence that its chunk supports is supported in a list and in a table, whose numbers no chunk holds."""
    claim = "Goods can be returned within 30 days of purchase."
    citations = (Citation(chunk="returns", quote="within 30 days of purchase"),)
    trace = Trace(id="1", query="?", chunks=HANDBOOK, answer=form.format(claim), citations=citations)
    seen = JUDGE.observe([trace])[0].citation
    assert seen is not None
    assert [item.supports for item in seen] == [True]


def test_facts() -> None:
    """Expected facts are present, absent or contradicted."""
    facts = ("The window is 30 days", "A receipt is required", "Gift cards never expire")
    answer = "The window is 30 days. A receipt is not required."
    seen = JUDGE.observe([Trace(id="1", query="?", answer=answer, facts=facts)])[0].fact
    assert seen is not None
    assert [(item.present, item.contradicted) for item in seen] == [(True, False), (False, True), (False, False)]


def test_truth() -> None:
    """Claims agree with the reference, go against it, or are unknown to it, whatever the chunks say."""
    answer = "Oslo was founded in 1050. Oslo is the capital of Norway. Roses are red."
    reference = "Oslo, the capital of Norway, was founded in 1040."
    seen = JUDGE.observe([Trace(id="1", query="?", answer=answer, reference=reference)])[0].truth
    assert seen is not None
    assert [item.status for item in seen] == ["contradicted", "supported", "unknown"]


@pytest.mark.parametrize(
    ("answer", "statuses"),
    [
        ("Delivery of the Calder Pro takes 30 days. Delivery of the Calder Mini takes 35 days.", "supported unknown"),
        ("Delivery of the Calder Mini takes 35 days.", "contradicted"),
        (
            "Delivery of the Calder Pro takes 30 days. Delivery of the Calder Pro takes 35 days.",
            "supported contradicted",
        ),
    ],
)
def test_truth_of_another(answer: str, statuses: str) -> None:
    """Beside the answer a figure of something else than was asked about, in any case, does not contradict."""
    asked, reference = "How long does delivery of the Calder Pro take?", "Delivery of the Calder Pro takes 30 days."
    for query in (asked, asked.upper(), asked.lower()):
        seen = JUDGE.observe([Trace(id="1", query=query, answer=answer, reference=reference)])[0].truth
        assert [item.status for item in seen or ()] == statuses.split()


def test_truth_short() -> None:
    """A reference of a word or two is read as the answer to the query."""
    trace = Trace(id="1", query="When was Oslo founded?", answer="Oslo was founded in 1040.", reference="1040")
    assert [item.status for item in JUDGE.observe([trace])[0].truth or ()] == ["supported"]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ("For 60 to 90 m the table gives: Charge £410.00, With dangerous goods £640.00.", "contradicted"),
        ("For 60 to 90 m the table gives: Charge £410.00, With dangerous goods £530.00.", "supported"),
        ("For 90 to 120 m the table gives: Charge £565.00, With dangerous goods £720.00.", "unknown"),
        ("For 60 to 90 m the berth for dangerous goods is number 7.", "unknown"),
    ],
)
def test_truth_figure(answer: str, status: str) -> None:
    """A short reference said again with another amount is contradicted, other lines of its table are not."""
    query = "What does the table “Pilotage charges” give as With dangerous goods for 60 to 90 m?"
    trace = Trace(id="1", query=query, answer=answer, reference="For 60 to 90 m the With dangerous goods is £530.00.")
    assert [item.status for item in JUDGE.observe([trace])[0].truth or ()] == [status]


def test_aspects() -> None:
    """Each part of a question is answered or not."""
    query = "When was Oslo founded, and who is its mayor?"
    assert split_query(query) == ["When was Oslo founded", "who is its mayor?"]
    seen = judge("Oslo was founded in 1040.", "Oslo was founded in 1040.", query).answer
    assert seen is not None
    assert [aspect.answered for aspect in seen.aspects] == [True, False]


@pytest.mark.parametrize("name", ["lexical", "embedded"])
def test_words_do_not_tell_whether_a_terse_answer_without_chunks_answers_the_query(name: str) -> None:
    """It has no relevance, unless it repeats most of the query; a refusal and a longer answer have one."""

    def judge(answer: str, chunks: tuple[Chunk, ...] | None = None) -> float | None:
        trace = Trace(id="1", query="Where did the bishop Martin die?", chunks=chunks, answer=answer)
        verdict = load_judge(name).observe([trace])[0].answer
        assert verdict is not None
        assert verdict.relevance is not None or not verdict.aspects
        return verdict.relevance

    assert judge("Candes") is judge("In the north") is judge("Candes", (Chunk(id="a"),)) is None
    assert judge("The bishop Martin died in Candes.") == pytest.approx(1.0, abs=0.25)
    refused, other = (
        judge("I do not know."),
        judge("The ferry to the island leaves at ten in the morning from quay four."),
    )
    assert refused is not None
    assert refused < 0.2
    assert other is not None
    assert other < 0.5
    assert judge("Candes", (Chunk(id="a", text="The bishop Martin died in Candes."),)) is not None


def test_terse() -> None:
    """A terse answer is relevant by what it was drawn from; a refusal is not."""
    source, query = "Paris is the capital of France.", "What is the capital of France?"
    terse, off = judge(source, "Paris.", query).answer, judge(source, "Roses need water.", query).answer
    no = judge(source, "I don't know.", query).answer
    assert terse is not None
    assert off is not None
    assert no is not None
    assert terse.relevance > 0.6 > 0.3 > off.relevance
    assert no.refused
    assert no.relevance < 0.3


FERRY = (
    "In 1951 the harbour was rebuilt. The last ferry to Texel sailed in the winter of 1951. Dogs may board since 1952."
)
BISHOP = "Tours is an old town on the Loire. Martin was a bishop in Gaul. He died in Tours."
LEASE = "Section 12 sets the notice period for tenants at 60 days. Section 13 sets it for owners at 90 days."
TERMS = "Warranty of our models:\n- Calder Pro: two years\n- Mini: five months"
PRICES = "| model | price |\n|---|---|\n| Calder Pro | 30 euros |\n| Mini | 35 euros |\n"


@pytest.mark.parametrize(
    ("source", "query", "right", "other"),
    [
        (FERRY, "When did the last ferry to Texel sail in winter?", "1951", "1952"),
        (BISHOP, "Where did the bishop Martin die?", "Tours", "the Loire"),
        (LEASE, "What is the notice period for tenants under Section 12?", "60 days", "90 days"),
        (TERMS, "How long is the warranty of the Calder Pro?", "two years", "five months"),
        (TERMS, "How long is the warranty of the Mini?", "five months", "two years"),
        (PRICES, "What does the Calder Pro cost?", "30 euros", "35 euros"),
    ],
)
def test_a_terse_answer_is_about_what_the_sentence_that_states_it_is_about(
    source: str, query: str, right: str, other: str
):
    """The sentence nearest to the query that states it counts, and the one before; no other item, row or section."""
    verdicts = judge(source, right, query).answer, judge(source, other, query).answer
    assert verdicts[0].relevance >= 0.5
    assert verdicts[1].relevance <= 0.6 * verdicts[0].relevance
    assert verdicts[0].aspects[0].answered


@pytest.mark.parametrize(
    ("query", "source", "missing"),
    [
        ("What are the two sources of EU law?", "The law of the European Union rests on treaties.", ()),
        ("Which envoy did the UN send?", "The U.N. sent an envoy.", ()),
        ("Which envoy did the UN send?", "The EU sent an envoy.", ("UN",)),
        ("How many boats are in dock 27?", "Three boats are in the dock.", ("27",)),
    ],
)
def test_spelled_numbers_and_abbreviations_of_what_a_chunk_names_are_not_missing(
    query: str, source: str, missing: tuple[str, ...]
):
    """A chunk has what it names in full or in short, and need not count what a query counts."""
    assert judge(source, "", query).missing == missing


def test_wandering() -> None:
    """Small talk, and what a chunk says on something else, lower the relevance of an answer; detail does not."""
    query = "How long can customers return goods?"
    answer = "Customers may return goods within 30 days of purchase."
    plain, detailed, polite, talking, digressing, off = (
        judge(tuple(chunk.text for chunk in HANDBOOK), message, query).answer
        for message in (
            answer,
            f"{answer} A receipt is required.",
            f"{answer} I hope this helps!",
            f"{' '.join(TALK)} {answer}",
            f"Roses should be watered twice a week. Prune them in March. {answer}",
            "Roses should be watered twice a week.",
        )
    )
    assert plain is not None
    assert detailed is not None
    assert polite is not None
    assert talking is not None
    assert digressing is not None
    assert off is not None
    assert plain.relevance == detailed.relevance == polite.relevance
    assert talking.relevance < 0.6 * plain.relevance
    assert off.relevance < digressing.relevance < 0.8 * plain.relevance
    assert plain.aspects == talking.aspects == digressing.aspects


def test_brief() -> None:
    """A short direct answer is no less relevant for a word of courtesy."""
    source, query = "The last ferry leaves at 22:40.", "When does the last ferry leave?"
    bare, polite = judge(source, "At 22:40.", query).answer, judge(source, "Sure! At 22:40.", query).answer
    assert bare is not None
    assert polite is not None
    assert bare.relevance == polite.relevance > 0.6


def test_similarity() -> None:
    """Equal texts are alike to the full, unlike texts hardly."""
    same, other = (
        JUDGE.observe([Trace(id="1", query="?", answer="Oslo is old.", reference=text)])[0].similarity
        for text in ("Oslo is old!", "Roses need much water.")
    )
    assert same == pytest.approx(1.0)
    assert other is not None
    assert other < 0.3


# --- the port --------------------------------------------------------------------------------------


def test_port() -> None:
    """Every judge of the registry has the shape of the port, survives pickling, and says what it is in a line."""
    for name in JUDGES:
        try:
            first = load_judge(name)
        except MissingExtra:
            continue
        assert isinstance(first, Judge)
        assert first.offers <= set(VERDICT_KINDS)
        copy = pickle.loads(pickle.dumps(first))
        assert copy.fingerprint == first.fingerprint
        assert "\n" not in first.fingerprint
    assert load_judge("lexical", inferred=0.6).fingerprint != JUDGE.fingerprint


def test_registry_unknown() -> None:
    """An unknown judge or option is refused with what there is."""
    with pytest.raises(UnknownName, match="lexical"):
        load_judge("lexicl")
    with pytest.raises(UsageError):
        load_judge("lexical", temperature=0)


def test_independent() -> None:
    """The verdict on a trace is the same in any batch and order."""
    traces = [
        Trace(id="a", query="Can I return goods?", chunks=HANDBOOK, answer="Yes, within 30 days of purchase."),
        Trace(id="b", query="How are roses watered?", chunks=HANDBOOK[1:], answer="Twice a week."),
        Trace(id="c", query="What does shipping cost?", chunks=(), answer="It costs $12.", reference="$12"),
    ]
    alone = {trace.id: JUDGE.observe([trace])[0] for trace in traces}
    for order in permutations(traces):
        assert [alone[trace.id] for trace in order] == JUDGE.observe(order)


@pytest.mark.long
def test_hash_seed() -> None:
    """The verdicts are the same in a process that hashes strings otherwise."""
    script = (
        "import msgspec, sys; from ragfault.judges.loading import load_judge; from ragfault import Chunk, Trace\n"
        "chunks = (Chunk(id='a', text='Roses need water, sun and air; tulips, lilies and irises too.'),)\n"
        "trace = Trace(id='1', query='Where do quokkas, wombats and numbats sleep?', chunks=chunks,\n"
        "    answer='Quokkas, wombats and numbats sleep in burrows, caves and trees.', reference='In hollow logs.')\n"
        "sys.stdout.buffer.write(msgspec.json.encode(load_judge().observe([trace])))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(seen) == 1


def test_absent() -> None:
    """What the trace lacks has no verdict; what was looked for and not found is empty."""
    bare = JUDGE.observe([Trace(id="1", query="Why?")])[0]
    assert all(getattr(bare, part) is None for part in VERDICT_KINDS)
    looked = JUDGE.observe([Trace(id="1", query="Why?", chunks=(), answer="", citations=(), facts=())])[0]
    assert (looked.chunk, looked.use, looked.claim, looked.citation) == ((), (), (), ())
    assert (looked.fact, looked.recall) == ((), ())
    assert looked.missing == ("Why",) or looked.missing == ()
    assert looked.truth is None
    assert looked.harm is None


def test_fault_stays() -> None:
    """A trace that cannot be judged fails alone, with the reason."""
    broken = Trace(id="x", query="Why?", chunks=(Chunk(id="a", text=None),), answer="So.")  # type: ignore[arg-type]
    good = Trace(id="y", query="Why?", chunks=HANDBOOK, answer="So.")
    first, second = JUDGE.observe([broken, good])
    assert "*" in first.failures
    assert not second.failures


def test_huge() -> None:
    """A chunk of megabytes is bounded work, for an answer of many sentences too; what is not read is said."""
    chunk = Chunk(id="long", text="The quick brown fox jumps over the lazy dog number 7. " * 40_000)
    answer = "The quick brown fox jumps over the lazy dog. " * 60
    verdicts = JUDGE.observe([Trace(id="1", query="fox " * 2000, chunks=(chunk,), answer=answer)])[0]
    assert set(verdicts.failures) == {"chunk", "use"}
    assert verdicts.claim
    assert max(item.end for seen in verdicts.claim for item in seen.evidence) <= 200_000


SCRAPS = st.text(alphabet="aA1 .\n?!'{}:|[]\"*-$%0not", max_size=60)
TEXTS = st.text(max_size=60) | SCRAPS | st.sampled_from(["{'a': None}", "not", "5 kg", "1. ", "{" * 300, "| a | b |"])


@settings(max_examples=120, deadline=None)
@given(TEXTS, st.lists(TEXTS, max_size=3), TEXTS, TEXTS)
def test_total(query: str, chunks: list[str], answer: str, other: str) -> None:
    """Any text can be judged; every number is in its range and every span within its text."""
    trace = Trace(
        id="1",
        query=query,
        chunks=tuple(Chunk(id=str(place), text=text) for place, text in enumerate(chunks)),
        answer=answer,
        reference=other,
        facts=(other, query),
        citations=(Citation(chunk="0", quote=other), Citation(chunk="9", claim=query), Citation(chunk="0")),
    )
    seen = JUDGE.observe([trace])[0]
    assert not seen.failures
    assert all(0 <= item.relevance <= 1 for item in seen.chunk or ())
    assert all(0 <= item.overlap <= 1 for item in seen.use or ())
    for first in seen.claim or ():
        assert answer[first.start : first.end] == first.claim
        assert first.p is not None
        assert 0 <= first.p <= 1
        assert all(0 <= span.start <= span.end <= len(chunks[int(span.chunk)]) for span in first.evidence)
    assert seen.truth is not None
    assert seen.claim is None or len(seen.truth) == len(seen.claim)
    assert seen.similarity is not None
    assert 0 <= seen.similarity <= 1


def test_textless() -> None:
    """Chunks whose text was not recorded cannot be judged: no verdict is made of them, not even a bad one."""
    trace = Trace(id="1", query="Where is Oslo?", chunks=(Chunk(id="d7"), Chunk(id="d9")), answer="In Norway.")
    seen = JUDGE.observe([trace])[0]
    assert (seen.chunk, seen.missing, seen.claim, seen.use) == (None, None, None, None)
    assert seen.answer is not None
    assert JUDGE.observe([Trace(id="1", query="Where is Oslo?", chunks=())])[0].chunk == ()


@pytest.mark.parametrize(
    ("answer", "refusal"),
    [
        ("The handbook sections available to me do not say anything about that.", True),
        ("Sorry, that is not covered by the documentation I was given.", True),
        ("I'm not able to help with that.", True),
        ("The handbook says nothing about discounts.", True),
        ("The ticket does not cover parking.", False),
        ("Children under 5 are not covered by the family ticket.", False),
        ("The policy does not include dental care.", False),
        ("The crew says nothing is carried on deck in winter.", False),
    ],
)
def test_plain_refusals(answer: str, refusal: bool) -> None:
    """A sentence on the silence of the sources or the speaker refuses; a negative about the matter claims."""
    trace = Trace(
        id="1", query="Is there a discount?", chunks=(Chunk(id="a", text="Fares are listed."),), answer=answer
    )
    seen = JUDGE.observe([trace])[0]
    assert seen.answer is not None
    assert seen.answer.refused is refusal
    assert (not seen.claim) is refusal


@pytest.mark.parametrize("name", ["lexical", "embedded"])
@pytest.mark.parametrize(("before", "after"), [("Hello. ", ""), ("hi ", ""), ("Good morning, ", " Thanks!")])
def test_a_greeting_and_thanks_change_no_verdict(name: str, before: str, after: str):
    """Courtesies around a query are not looked for in the chunks."""
    query, answer = "can I return goods within 30 days?", "Goods may be returned within 30 days."
    plain, polite = load_judge(name).observe(
        [Trace(id="1", query=text, chunks=HANDBOOK, answer=answer) for text in (query, f"{before}{query}{after}")]
    )
    assert polite == plain


def test_a_follow_up_question_keeps_its_subject() -> None:
    """A question without a subject of its own is judged with the question before it, for passages and answer alike."""
    chunks = (
        Chunk(id="tent", text="The Fjell 3 tent has a steel frame. The Fjell 3 tent weighs 2.1 kg with its pegs."),
        Chunk(id="stove", text="The Glim stove burns alcohol and boils water in six minutes."),
    )
    follow_up = Trace(id="1", query="How heavy is it?", chunks=chunks, answer="The Fjell 3 tent weighs 2.1 kg.")
    turns = (
        ConversationTurn(role="user", text="Does the Fjell 3 tent have a steel frame?"),
        ConversationTurn(role="assistant", text="Yes."),
    )
    for name in ("embedded", "lexical"):
        alone, after = (
            load_judge(name).observe([trace])[0] for trace in (follow_up, replace(follow_up, history=turns))
        )
        assert alone.chunk is not None
        assert after.chunk is not None
        assert after.chunk[0].relevance > max(0.5, alone.chunk[0].relevance)
        assert after.chunk[1].relevance < 0.5
        assert after.answer is not None
        assert (after.answer.relevance or 0) >= 0.5
