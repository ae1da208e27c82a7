"""Laws of the judge encoder: what it reads of replies, and that a verdict depends on nothing but its trace."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
from msgspec.structs import replace

from ragfault.judges.checks.passages import Passage
from ragfault.judges.encoder import judge, model
from ragfault.judges.encoder.agreement import restates_reference, settle_agreement
from ragfault.judges.encoder.evidence import evidence
from ragfault.judges.encoder.judge import EncoderJudge
from ragfault.judges.encoder.stack import predict_groundedness, predict_support
from ragfault.judges.loading import load_judge
from ragfault.model.gold_evidence import measure_key_agreement
from ragfault.model.records import Chunk, Trace, Verdicts

JUDGE = load_judge("encoder")
QUERY = "How long may I keep a borrowed map?"
CHUNKS = (Chunk(id="loans", text="Maps may be kept for two weeks. A reading room card is needed to borrow one."),)


def observe(answer: str, query: str = QUERY) -> Verdicts:
    """Return the verdicts on one answer."""
    verdicts = JUDGE.observe([Trace(id="1", query=query, chunks=CHUNKS, answer=answer)])[0]
    assert not verdicts.failures
    return verdicts


@pytest.mark.parametrize(
    "answer",
    [
        "Not specified in the context.",
        "N/A",
        "I could not locate the loan period in the excerpts.",
        "Nothing in the pages I was given says how long maps can be kept.",
        "Sorry, the loan rules for maps are not among my sources.",
    ],
)
def test_refusals_make_no_claim(answer: str) -> None:
    """A refusal is recognised in any wording, and nothing in it counts as a claim."""
    verdicts = observe(answer)
    assert verdicts.answer is not None
    assert verdicts.answer.refused
    assert not verdicts.claim


@pytest.mark.parametrize(
    "answer",
    [
        "You may keep it for two weeks.",
        "Two weeks.",
        "Without a reading room card you cannot borrow one.",
        "I think you may keep it for a fortnight or so.",
        "Nobody is allowed to keep a map for longer than two weeks.",
        "The library does not lend maps to visitors who have no card.",
    ],
)
def test_answers_are_not_refusals(answer: str) -> None:
    """An answer is not a refusal, also if it says that something cannot be done."""
    verdicts = observe(answer)
    assert verdicts.answer is not None
    assert not verdicts.answer.refused
    assert verdicts.claim


def test_verdicts_do_not_depend_on_the_batch() -> None:
    """The verdicts on a trace are the same alone and among others."""
    traces = [
        Trace(id=str(number), query=QUERY, chunks=CHUNKS, answer=answer)
        for number, answer in enumerate(("Two weeks.", "I don't know.", "Maps may be kept for three weeks, not more."))
    ]
    together = JUDGE.observe(traces)
    assert together == [JUDGE.observe([trace])[0] for trace in reversed(traces)][::-1]


@pytest.mark.parametrize(
    ("answer", "reference", "agrees"),
    [
        ("64 degrees Celsius", "64 °C", True),
        ("120 minutes", "two hours", True),
        ("14 March 2024", "2024-03-14", True),
        ("The Lyn Bridge.", "the Lyn bridge", True),
        ("46 °C", "64 °C", False),
        ("April 3, 1973", "April 1973", None),
        ("The bridge is open.", "Yes", None),
    ],
)
def test_spellings_are_settled_without_the_model(answer: str, reference: str, agrees: bool | None) -> None:
    """Another spelling of an amount, a date or a text agrees, another amount does not; the model reads the rest."""
    assert settle_agreement(answer, reference) is agrees


def test_it_is_the_default() -> None:
    """Where no judge is named, this one reads."""
    assert load_judge().fingerprint == load_judge("encoder").fingerprint


def test_the_answer_is_read_beside_its_reference() -> None:
    """The judge gives a probability that the answer says what a reference says, and the answer key follows it."""
    trace = Trace(id="1", query="At what heat does the wax melt?", answer="64 degrees Celsius", reference="64 °C")
    verdicts = JUDGE.observe([trace])[0]
    assert verdicts.answer is not None
    assert verdicts.answer.agreement == 1
    assert measure_key_agreement(trace, verdicts) == 1
    other = JUDGE.observe([replace(trace, answer="46 degrees Celsius")])[0]
    assert measure_key_agreement(replace(trace, answer="46 degrees Celsius"), other) == 0
    assert [item.status for item in other.truth or ()] == ["contradicted"]


def test_an_answer_passes_only_if_its_claims_do() -> None:
    """An answer is as likely to be supported as its only claim, and less likely than the weakest of several."""
    random = np.random.default_rng(0)
    for size in (2, 9):
        odds = random.normal(size=size)
        weakest = predict_support(odds).min()
        assert predict_groundedness(odds[:1]) == predict_support(odds[:1])[0]
        assert predict_groundedness(odds) < weakest


@pytest.mark.parametrize("answer", ["Maps may be kept for two weeks.", "Maps may be kept for two years, by law."])
def test_a_label_follows_its_probability(answer: str) -> None:
    """A claim is supported or inferred exactly from a probability of one half on, and its answer with it."""
    verdicts = observe(answer)
    assert verdicts.claim is not None
    assert verdicts.answer is not None
    assert verdicts.answer.grounded is not None
    [claim] = verdicts.claim
    assert claim.p is not None
    assert (claim.support in ("supported", "inferred")) == (claim.p >= 0.5) == (verdicts.answer.grounded >= 0.5)


def test_a_sentence_of_a_chunk_is_supported_and_a_word_of_it_is_read() -> None:
    """A claim that is a sentence of a chunk is settled; one that is only a part of a sentence is read."""
    session = JUDGE.open_session(QUERY)
    signs = session.read_signs(["Maps may be kept for two weeks.", "two"], [Passage("a", CHUNKS[0].text)])
    assert signs.is_verbatim.tolist() == [True, False]


@pytest.mark.parametrize("reference", ["Not answerable from the documents.", "The documents do not say who it is."])
def test_a_reference_that_refuses_is_stated_by_a_refusal_alone(reference: str) -> None:
    """A refusal agrees with a reference that says that there is no answer; a claim beside it is called wrong."""
    session = JUDGE.open_session("Who runs the map room?")
    assert session.score_agreement("Sorry, I could not find that in the excerpts.", [reference]) == 1
    assert session.score_agreement("Ada Brook runs the map room.", [reference]) < 0.25
    assert session.score_agreement("Ada Brook runs the map room.", [reference, "Ada Brook"]) > 0.6


@pytest.mark.parametrize("mark", [" [1]", " [1][2]", "【4†source】", " [plan.pdf#page=3]", " (Source 2)", "¹", " [^1]"])
def test_a_citation_mark_does_not_change_how_a_claim_is_read(mark: str) -> None:
    """A claim is as likely with a mark of its source as without it, at its end and within it."""
    for plain in ("Maps may be kept for two weeks.", "Borrowed maps must be back after a fortnight."):
        [expected], [read] = observe(plain).claim or (), observe(f"{plain[:-1]}{mark}.").claim or ()
        assert read.p == expected.p


def test_a_record_is_read_as_words() -> None:
    """The encoder reads the fields of a record as lines in words, not as the text of its literal."""
    assert "Take Out: yes" in evidence(["{'name': 'Lyn Inn', 'attributes': {'TakeOut': True}}"], "It has take-out.")


EQUAL_WINDOWS = """
from ragfault.judges.encoder.evidence import evidence
from ragfault.judges.encoder.judge import EncoderJudge
words = "amber birch cedar dahlia elm fennel garlic hazel iris jasmine".split()
chunks = [f"{' '.join(words[n:] + words[:n])} room {n}" for n in range(10)]
chunks += [word for rank, word in enumerate(words) for _ in range(rank)]
print(evidence(chunks, " ".join(words)))
"""


def test_the_choice_between_equal_windows_is_that_of_every_process() -> None:
    """Of windows with the same words the first is read, in whatever order a process keeps its sets."""
    read = {
        subprocess.run(
            [sys.executable, "-c", EQUAL_WINDOWS],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(read) == 1


def test_a_copied_claim_is_not_read() -> None:
    """A claim that is a sentence of a chunk has the same verdict whether or not the encoder reads it."""
    session, passages = JUDGE.open_session(QUERY), [Passage("a", CHUNKS[0].text)]
    claims = ["Maps may be kept for two weeks.", "Maps may be kept for two years."]
    signs = [session.read_signs(claims, passages, reads_copies=reads) for reads in (True, False)]
    assert signs[1].logits[0].tolist() == [0, 0, 0] != signs[0].logits[0].tolist()
    assert signs[1].logits[1].tolist() == signs[0].logits[1].tolist()


def test_verdicts_do_not_depend_on_the_threads() -> None:
    """Traces that are read at once have the verdicts that they have one after the other."""
    answers = ("Two weeks.", "I don't know.", "Maps may be kept for three weeks.", "A card is needed.")
    traces = [Trace(id=str(at), query=QUERY, chunks=CHUNKS, answer=answer) for at, answer in enumerate(answers * 3)]
    assert EncoderJudge(threads=1).observe(traces) == EncoderJudge(threads=4).observe(traces)


@pytest.mark.parametrize(("limit", "expected"), [("1", 1), ("3", 3), ("99", 8), ("0", 8), ("2,1", 8)])
def test_the_threads_keep_to_the_limit_of_their_environment(
    limit: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster that gives a worker so many threads is obeyed; what is not a number of threads limits nothing."""
    monkeypatch.setattr(judge, "MAX_THREADS", 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", limit)
    assert judge.count_threads() == expected


def test_threads_share_one_model() -> None:
    """Threads that ask for the encoder at once, before it is loaded, get the same one."""
    model._load_encoder.cache_clear()
    start = Barrier(4)

    def load(_: int) -> model.EncoderModel:
        start.wait()
        return model.load_encoder()

    with ThreadPoolExecutor(4) as pool:
        loaded = list(pool.map(load, range(4)))
    assert all(encoder is loaded[0] for encoder in loaded)


def test_threads_share_what_was_read_within_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread gets the features of its own pair, also while others empty the full store of pairs."""
    monkeypatch.setattr(model, "CACHED_PAIRS", 2)
    encoder, alone = model.EncoderModel(), model.load_encoder()
    pairs = [model.encode_pair(model.load_tokenizer(), f"Room {at}.", "Rooms have numbers.") for at in range(5)] * 20
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(encoder.read_features, pairs))
    assert all(np.array_equal(read, alone.read_features(pair)) for read, pair in zip(together, pairs, strict=True))
    assert len(encoder._features) <= 2 + 8


def test_the_relevance_of_a_chunk_is_of_that_chunk_alone() -> None:
    """A chunk is as relevant alone as among others; one without words is not, and one that answers is more so."""
    passages = [Passage("a", CHUNKS[0].text), Passage("b", ""), Passage("c", "The reading room has oak tables.")]
    session = JUDGE.open_session(QUERY)
    together = [score.value for score in session.score_relevance(QUERY, passages)]
    assert together == [session.score_relevance(QUERY, [passage])[0].value for passage in passages]
    assert together[0] > together[2] > together[1] == 0


@pytest.mark.parametrize(
    ("query", "answer", "reference"),
    [
        ("What does a locker cost a year?", "A locker costs 420 kroner a year.", "420 kroner"),
        ("How much can the tower crane lift?", "The tower crane lifts at most 14 tonnes.", "14 tonnes"),
        ("How many charts are kept?", "1,927 charts are kept.", "1,927"),
    ],
)
def test_a_restated_figure_does_not_count_against_an_answer(query: str, answer: str, reference: str) -> None:
    """An answer that only repeats its question and the figure of its reference is never wrong by that reference."""
    trace = Trace(id="1", query=query, answer=answer, reference=reference)
    verdicts = JUDGE.observe([trace])[0]
    assert measure_key_agreement(trace, verdicts) != 0
    assert "contradicted" not in [item.status for item in verdicts.truth or ()]


@pytest.mark.parametrize(
    ("query", "answer", "reference"),
    [
        ("By how much did the rent rise?", "It fell by 5 per cent.", "By 5 per cent"),
        ("How many of the 40 samples were usable?", "36 were unusable.", "36"),
        ("How far is the reef from the beach?", "15 km", "1.5 km"),
        ("When does the laundry close?", "The laundry does not close at 21:00.", "21:00"),
        ("Who confirms new members?", "New members confirm the treasurer.", "The treasurer"),
    ],
)
def test_other_words_or_roles_restate_nothing(query: str, answer: str, reference: str) -> None:
    """Another word, figure, negation or a name in another role is left to the model that reads."""
    assert not restates_reference(query, reference, answer)


@pytest.mark.parametrize("opening", ["", "Hi, thanks for your question. ", "**Answer:**\n\n- "])
@pytest.mark.parametrize(
    ("answer", "refuses"),
    [
        ("No, theft from an unlocked locker is not covered by the association.", False),
        ("The documents do not say whether theft is covered.", True),
    ],
)
def test_an_opening_makes_no_refusal(opening: str, answer: str, refuses: bool) -> None:
    """A greeting or a heading before an answer does not change whether it refuses."""
    trace = Trace(id="1", query="Is theft from an unlocked locker covered?", answer=opening + answer)
    verdicts = JUDGE.observe([trace])[0]
    assert verdicts.answer is not None
    assert verdicts.answer.refused is refuses
