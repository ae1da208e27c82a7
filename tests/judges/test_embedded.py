"""The embedded judge: its parts against plain reckoning, and laws of its verdicts."""

from __future__ import annotations

import pickle
import tracemalloc
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragfault.io.datasets.demo_handbook import load_handbook
from ragfault.judges.checks.lexicon import load_idf
from ragfault.judges.checks.passages import Passage, SentenceIndex
from ragfault.judges.embedded import network
from ragfault.judges.embedded.arrays import PassageArrays, detect_foreign
from ragfault.judges.embedded.features import FEATURE_NAMES, measure_runs
from ragfault.judges.embedded.judge import FOREIGN_REASON, UNSURE_RANGE
from ragfault.judges.embedded.network import STATE_SIZE, SupportNetwork, TreeEnsemble, WordStates
from ragfault.judges.embedded.support import TEXT_TYPES, classify_text, combine_claims, load_support_model
from ragfault.judges.embedded.word_vectors import load_arrays, load_vectors
from ragfault.judges.loading import load_judge
from ragfault.model.records import Chunk, Trace
from ragfault.text.normalization import split_words

JUDGE = load_judge("embedded")
CHUNKS = (
    Chunk(id="a", text="The ferry to Vell leaves the north quay at 07:40. Bicycles travel free of charge."),
    Chunk(id="b", text="Dogs must be kept on a lead. The crossing takes 35 minutes in good weather."),
)


def seen(answer: str, query: str = "When does the ferry to Vell leave?", chunks=CHUNKS):
    return JUDGE.observe([Trace(id="1", query=query, chunks=chunks, answer=answer)])[0]


def walk(packed: dict[str, np.ndarray], row: np.ndarray) -> float:
    """Return the sum of the leaves of one row, node by node."""
    feature, threshold, left, right, value = (
        packed[f"claims.{name}"] for name in ("feature", "bar", "left", "right", "value")
    )
    total = 0.0
    for root in packed["claims.roots"]:
        at = root
        while left[at] != at:
            at = right[at] if row[feature[at]] > threshold[at] else left[at]
        total += float(value[at])
    return total


def test_words_of_an_unsupported_claim_are_marked():
    """What no chunk says is marked by its place in the answer, inside its claim; a supported claim has no marks."""
    answer = "The ferry to Vell leaves at 07:40. It doesn't carry **500** lamas [1], and bicycles travel free."
    first, second = seen(answer).claim
    assert first.unsupported_spans == ()
    assert second.support == "unsupported"
    words = [answer[start:end] for start, end in second.unsupported_spans]
    assert any("500" in word for word in words)
    assert not any("bicycles" in word for word in words)
    assert all(second.start <= start < end <= second.end for start, end in second.unsupported_spans)


# --- parts ----------------------------------------------------------------------------------------


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_trees_are_walked_to_their_leaves(seed: int):
    """All rows at once give what each row gives when it is led through tree after tree."""
    packed = load_arrays("support.npz")
    rows = np.random.default_rng(seed).normal(1.0, 2.0, (3, len(FEATURE_NAMES) + 1))
    result = TreeEnsemble.unpack(packed, "claims")(rows)
    assert result == pytest.approx([walk(packed, row) for row in rows], abs=1e-9)


def test_the_network_reads_each_claim_by_itself():
    """The words of one claim do not reach into the next: in a row or alone, the odds are the same."""
    rng = np.random.default_rng(0)
    table = load_vectors()
    sizes = (4, 1, 90, 7)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    states = WordStates(
        rng.integers(0, table.stem_count, len(owner)),
        rng.integers(0, table.stem_count, len(owner)),
        rng.random((len(owner), STATE_SIZE)).astype(np.float32),
        owner,
    )
    features = rng.random((len(sizes), len(FEATURE_NAMES)))
    full, _ = load_support_model().network(states, features)
    for number in range(len(sizes)):
        part = owner == number
        alone = WordStates(*(state[part] for state in states[:3]), claim_numbers=np.zeros(part.sum(), int))
        assert load_support_model().network(alone, features[[number]])[0] == pytest.approx(full[[number]], abs=1e-4)


def test_a_convolution_by_hand():
    """Two words, one number each, reach three: the sums of the products with what stands beside, negative ones 0."""
    from ragfault.judges.embedded.network import _convolve

    weight = np.array([[[1.0]], [[10.0]], [[100.0]]], np.float32)  # the word before, the word, the word after
    result = _convolve(np.array([[1.0], [2.0]], np.float32), np.array([2, 3]), (weight, np.array([-20.0])))
    assert result.tolist() == [[190.0], [1.0]]


@given(st.lists(st.booleans(), max_size=40))
def test_runs_are_counted(hits: list[bool]):
    """Each place says how many true ones end there in a row."""
    expected, length = [], 0
    for hit in hits:
        length = length + 1 if hit else 0
        expected.append(length)
    assert measure_runs(np.array(hits, bool)).tolist() == expected


def test_length_alone_hardly_counts():
    """More claims never make an answer better, and beyond the worst five not worse either."""
    odds = np.array([-1.0, -2.0, -3.0, -3.5, -3.5])
    assert combine_claims(odds[:1]) == pytest.approx(-1.0)
    assert combine_claims(odds[:1]) < combine_claims(odds[:2]) < combine_claims(odds)
    assert combine_claims(np.append(odds, np.full(200, -3.5))) == pytest.approx(combine_claims(odds))


def test_monotone_trees_rise_with_words_that_are_missing():
    """A claim of which more words are in no passage is never better supported, by the trees that hold to it."""
    inputs = np.random.default_rng(1).random((20, len(FEATURE_NAMES) + 2))
    missing = inputs.copy()
    missing[:, FEATURE_NAMES.index("lost")] += 0.5
    trees = load_support_model().monotone_trees
    assert (trees(missing) >= trees(inputs)).all()


def test_vectors_are_integers():
    """What is computed from the table is exact, and so the same on every machine."""
    table = load_vectors().table
    assert np.array_equal(table, table.round())
    assert abs(table).max() <= 127


@pytest.mark.parametrize(
    ("query", "claims", "records", "expected"),
    [
        ("When was it built?", ["It was built in 1930.", "It is old."], 0.0, "answer"),
        ("Summarize the following news:", ["It rained."], 0.0, "summary"),
        ("Write an overview of this business.", ["It is open."], 0.9, "record"),
        ("", ["The bridge is 640 metres long."], 0.0, "claim"),
        ("i went there last year, it was lovely", ["It is the oldest park of the city."], 0.0, "dialogue"),
    ],
)
def test_shapes(query, claims, records, expected):
    """The shape is told by the query, the claims and the share of the passages that are records."""
    assert classify_text(query, claims, records) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Die Fähre nach Vell verlässt den Nordkai jeden Morgen.", True),
        ("La capital de Francia es París y es su ciudad más grande.", True),
        ("The ferry to Vell leaves the north quay every morning.", False),
        ("Open 09:00 17:00 Monday Friday", False),
        ("640", False),
    ],
)
def test_other_languages_are_detected(text, expected):
    """Many words that the table does not know and few stop words: another language than English."""
    table = load_vectors()
    assert detect_foreign(table.get_rows(split_words(text)), table).tolist() == [expected]


def test_the_weights_are_small():
    """All weights together stay below five megabytes."""
    room = files("ragfault.judges.embedded")
    assert (
        sum(room.joinpath(f"{name}.npz").read_bytes().__len__() for name in ("vectors", "support", "relevance")) < 5e6
    )


# --- verdicts --------------------------------------------------------------------------------------


def test_a_threshold_is_in_the_fingerprint():
    """A judge with another threshold is another judge."""
    assert load_judge("embedded", inferred=0.6).fingerprint != JUDGE.fingerprint


def test_synonyms_hold():
    """A claim in other words of the same meaning is supported, which words alone do not see."""
    chunks = (Chunk(id="a", text="The clinic has four physicians and one nurse. It opens at eight."),)
    claim = seen("The clinic has four doctors and one nurse.", "Who works at the clinic?", chunks).claim[0]
    assert claim.support in {"supported", "inferred"}
    assert claim.p > 0.5


def test_an_invented_statement_is_unsupported():
    """What shares next to nothing with the chunks does not pass, however harmless it sounds."""
    for answer in ("The harbour master has cancelled everything.", "Most passengers praise the warm welcome on board."):
        verdicts = seen(answer)
        assert verdicts.claim[0].support == "unsupported"
        assert verdicts.answer.grounded < 0.5


def test_groundedness_follows_the_claims():
    """The copied answer is grounded; with a wrong hour, or an invention beside it, it is less so."""
    good = seen("The ferry to Vell leaves the north quay at 07:40.").answer.grounded
    wrong = seen("The ferry to Vell leaves the north quay at 09:40.").answer.grounded
    mixed = seen("The ferry to Vell leaves the north quay at 07:40. The captain was born in Lisbon.").answer.grounded
    assert good > 0.7
    assert wrong < 0.5
    assert mixed < good


def test_a_claim_in_another_language_is_unsure():
    """The judge says that it cannot tell, and why."""
    verdicts = seen("Die Fähre nach Vell verlässt den nördlichen Anleger jeden Morgen sehr früh.")
    assert verdicts.claim[0].unsure
    assert verdicts.claim[0].reason == FOREIGN_REASON
    assert verdicts.answer.grounded == 0.5


@pytest.mark.long
def test_unsure_is_a_band_of_probabilities():
    """Every claim between one third and two thirds is marked, and none below or above the thresholds of all types."""
    highest = max(UNSURE_RANGE[1], load_support_model().claim_thresholds.max())
    for verdicts in JUDGE.observe(load_handbook().traces["v2"][:40]):
        for claim in verdicts.claim or ():
            if UNSURE_RANGE[0] < claim.p < UNSURE_RANGE[1]:
                assert claim.unsure
            elif claim.p <= UNSURE_RANGE[0]:
                assert not claim.unsure
            elif claim.p >= highest and claim.unsure:  # it all but copies a sentence that says otherwise
                assert claim.support in ("supported", "inferred")


@pytest.mark.long
def test_in_an_answer_of_several_claims_the_probability_decides():
    """Of several claims in one answer each is supported exactly from the threshold of the type of text on."""
    for trace, verdicts in zip(traces := load_handbook().traces["v2"], JUDGE.observe(traces), strict=True):
        claims = verdicts.claim or ()
        if len(claims) < 2 or any(claim.reason == FOREIGN_REASON for claim in claims):
            continue
        text_type = classify_text(trace.query, [claim.claim for claim in claims], 0.0)
        threshold = load_support_model().claim_thresholds[TEXT_TYPES.index(text_type)]
        for claim in claims:
            if abs(claim.p - threshold) > 0.011:  # exact checks say why, and put what is unsupported just below it
                assert (claim.support in ("supported", "inferred")) == (claim.p >= threshold)


def test_relevance_is_of_one_chunk():
    """What stands in the other chunks changes nothing, nor does their order."""
    query = "Do bicycles cost extra on the ferry?"
    both = {item.chunk: item.relevance for item in seen("", query).chunk}
    for chunk in CHUNKS:
        assert seen("", query, (chunk,)).chunk[0].relevance == both[chunk.id]
    assert {item.chunk: item.relevance for item in seen("", query, CHUNKS[::-1]).chunk} == both
    assert both["a"] > both["b"]


def test_verdicts_are_of_one_trace():
    """Alone, in a batch, backwards, and from a copied judge: the same verdicts."""
    traces = [
        Trace(id=str(number), query="When?", chunks=CHUNKS[: 1 + number % 2], answer=answer)
        for number, answer in enumerate(
            ("It leaves at 07:40.", "Dogs travel free.", "", "It takes 35 minutes. So be it.")
        )
    ]
    batch = JUDGE.observe(traces)
    assert [JUDGE.observe([trace])[0] for trace in traces] == batch
    assert JUDGE.observe(traces[::-1])[::-1] == batch
    assert pickle.loads(pickle.dumps(JUDGE)).observe(traces) == batch


def test_nothing_to_judge():
    """Without chunks no answer is grounded or not; an answer that claims nothing is."""
    assert JUDGE.observe([Trace(id="1", query="q", answer="It leaves.")])[0].answer.grounded is None
    assert seen("").answer.grounded == 1.0
    assert seen("It leaves at 07:40.", chunks=(Chunk(id="a", text="   "),)).failures == {}


@given(st.text(max_size=300), st.text(max_size=300), st.text(max_size=80))
@settings(max_examples=60, deadline=None)
def test_no_text_breaks_it(chunk: str, answer: str, query: str):
    """Whatever stands in a trace, every part is judged, and every probability is one."""
    verdicts = seen(answer, query, (Chunk(id="a", text=chunk), Chunk(id="b", text="The ferry leaves at 07:40.")))
    assert verdicts.failures == {}
    assert all(0 <= item.p <= 1 for item in verdicts.claim)
    assert all(0 <= item.relevance <= 1 for item in verdicts.chunk)
    assert 0 <= verdicts.answer.grounded <= 1


def test_the_ground_is_of_the_passages_alone():
    """Words, runs and vectors are made without a claim; a sentence's vector has length one."""
    ground = PassageArrays(
        SentenceIndex([Passage(chunk.id, chunk.text) for chunk in CHUNKS]), load_vectors(), load_idf()
    )
    assert np.linalg.norm(ground.sentence_vectors, axis=1) == pytest.approx(np.ones(len(ground.sizes)), abs=1e-6)
    assert len(ground.get_ngrams(2)) == len(ground.tokens) - 1
    assert isinstance(load_support_model().network, SupportNetwork)


def test_asked_at_once_or_one_by_one():
    """What is asked at once is answered as when each group is asked by itself, whatever stands beside it."""
    query = "When does the ferry to Vell leave?"
    chunks = tuple(Passage(chunk.id, chunk.text) for chunk in CHUNKS)
    record = Passage("r", "{'name': 'Vell Quay', 'WiFi': False, 'hours': {'Monday': '9:0-17:0'}}")
    groups = [
        (["The ferry leaves at 07:40.", "Cats travel free of charge.", "It takes 35 minutes."], chunks),
        (["The ferry leaves at 08:40."], chunks[:1]),
        (["It has WiFi.", "Die Fähre nach Vell verlässt den Nordkai jeden Morgen um acht Uhr."], (record,)),
        (["Dogs are kept on a lead."], (Passage("answer", "On a lead."),)),
        ([], chunks),
        (["It rains."], ()),
        (["It rains."], (Passage("blank", " "),)),
    ]
    together = JUDGE.open_session(query)
    together.prefetch(groups)
    for claims, passages in groups:
        first, alone = (reading.score_entailment(claims, passages) for reading in (together, JUDGE.open_session(query)))
        assert [seen.p for seen in first] == pytest.approx([seen.p for seen in alone], abs=1e-6)
        assert [seen._replace(p=0.0) for seen in first] == [seen._replace(p=0.0) for seen in alone]


def test_repeated_words_need_memory_in_proportion():
    """A claim of thousands of words beside a sentence of thousands is judged within a few megabytes."""
    passages, claim = (Passage("a", "Anna " * 6_000),), "Anna " * 6_000
    tracemalloc.start()
    try:
        [entailment] = JUDGE.open_session("Who?").score_entailment([claim.strip()], passages)
        assert tracemalloc.get_traced_memory()[1] < 200_000_000
    finally:
        tracemalloc.stop()
    assert entailment.support != "unsupported"


def test_claims_in_blocks_are_aligned_as_at_once(monkeypatch: pytest.MonkeyPatch):
    """However few comparisons are made at once, the probabilities are the same."""
    claims = [f"The ferry leaves at 07:4{number}. Dogs are kept on a lead." for number in range(5)]
    passages = tuple(Passage(chunk.id, chunk.text) for chunk in CHUNKS)
    at_once = JUDGE.open_session("When?").score_entailment(claims, passages)
    monkeypatch.setattr(network, "MAX_COMPARISONS", 1)
    assert JUDGE.open_session("When?").score_entailment(claims, passages) == at_once
