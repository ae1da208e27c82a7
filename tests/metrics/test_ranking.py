"""The ranked metrics on one trace: published values, cases worked by hand, and laws."""

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragfault.metrics.ranking import RANK_METRICS, compute_rank_metric, ranking_from_lists
from ragfault.model.errors import InputError, UnknownName, UsageError

NAMES = sorted(RANK_METRICS)


def value(name, ids, gold, k=None, **parameters):
    """Return the value for one trace; None if undefined."""
    values, defined = compute_rank_metric(name, ranking_from_lists(ids, gold), k, **parameters)
    return float(values[0]) if defined[0] else None


# --- published values ------------------------------------------------------------------------------

# terrierteam/ir_measures, tests/test_pytrec_eval.py; the runs in trec_eval's order
GRADED = {"D0": 1, "D1": -1, "D2": 0, "D3": 2, "D4": 0}, {"D0": 1, "D3": 2, "D4": -1, "D5": 0}
PRECISION = {"D0": -1, "D1": 1, "D3": 2, "D4": 1}, {"D0": 1, "D3": 0, "D4": -1}
SETS = {"D0": 0, "D1": 1, "D2": 2, "D3": 2, "D4": 0}, {"D0": 1, "D3": 2, "D5": 0}
RUNS = ["D0", "D2", "D3", "D1", "D4"], ["D1", "D4", "D2", "D3"]
SECOND = ["D1", "D0", "D2", "D3"]


@pytest.mark.parametrize(
    ("name", "k", "relevant", "gold", "expected"),
    [
        ("ndcg", None, 1, GRADED, (0.76018, 0.32739)),
        ("ndcg", 3, 1, GRADED, (0.76018, 0.0)),
        ("average_precision", None, 1, GRADED, (0.8333, 0.125)),
        ("average_precision", None, 2, GRADED, (0.33333, 0.25)),
        ("precision", None, 1, SETS, (0.6, 0.25)),
        ("recall", None, 1, SETS, (1.0, 0.5)),
        ("f1", None, 1, SETS, (0.75, 0.33333)),
    ],
)
def test_values_of_ir_measures(name, k, relevant, gold, expected):
    """The values that ir_measures asserts of trec_eval hold here."""
    values = [value(name, ids, judged, k, relevant=relevant) for ids, judged in zip(RUNS, gold, strict=True)]
    assert values == pytest.approx(expected, abs=1e-4)


def test_precision_of_ir_measures():
    """The values that ir_measures asserts of P@4 hold here."""
    # terrierteam/ir_measures, tests/test_pytrec_eval.py::test_P
    values = [value("precision", ids, gold, 4) for ids, gold in zip((RUNS[0], SECOND), PRECISION, strict=True)]
    assert values == [0.5, 0.25]


@pytest.mark.parametrize(
    ("name", "ids", "gold", "k", "gain", "expected"),
    [
        # AmenRa/ranx, tests/unit/ranx/meta/evaluate_test.py
        ("average_precision", "123457", dict.fromkeys("1456", 1), 6, None, 0.525),
        ("recall", "123457", dict.fromkeys("1456", 1), 5, None, 3 / 4),
        # AmenRa/ranx, tests/unit/ranx/metrics_test.py
        ("r_precision", "2431567", dict.fromkeys("123", 1), None, None, 2 / 3),
        ("recall", "2431567", dict.fromkeys("123", 1), 2, None, 1 / 3),
        ("ndcg", "12345", {"2": 5, "4": 4, "5": 3, "10": 2}, 10, "linear", 0.6108112659356222),
        ("ndcg", "12345", {"2": 5, "4": 4, "5": 3, "10": 2}, 10, "exponential", 0.6347656803723495),
        # truera/trulens, tests/unit/test_groundtruth_agreement.py
        ("ndcg", "Avwxy", {"A": 1.0, "B": 0.8}, None, "linear", 0.6645649565734895),
        ("ndcg", "BA", {"A": 1.0, "B": 0.8}, None, "linear", 0.9509457695419298),
    ],
)
def test_values_of_ranx_and_trulens(name, ids, gold, k, gain, expected):
    """The values that ranx and trulens assert hold here."""
    assert value(name, ids, gold, k, **({"gain": gain} if gain else {})) == pytest.approx(expected, abs=1e-9)


# --- duplicates ------------------------------------------------------------------------------------


def test_a_duplicate_gains_nothing():
    """A relevant chunk retrieved twice counts once, so that nDCG stays at 1."""
    # truera/trulens 2.13, AutoRAG and RAGnarok-AI give 1.63 here
    assert value("ndcg", ["A", "A"], {"A": 1}) == 1.0
    assert value("recall", ["A", "A"], {"A": 1, "B": 1}) == 0.5
    assert value("precision", ["A", "A"], {"A": 1}) == 1.0


def test_a_duplicate_leaves_its_place():
    """The first occurrence keeps its rank, and what follows the second moves up."""
    ids, gold = ["x", "x", "A", "x", "A", "B"], {"A": 1, "B": 1}
    assert value("reciprocal_rank", ids, gold) == 1 / 2
    assert value("average_precision", ids, gold) == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert value("hit", ids, {"B": 1}, k=3) == 1.0


# --- worked by hand --------------------------------------------------------------------------------


def test_by_hand():
    """One ranking, every metric, worked with pencil and paper."""
    ids, gold = ["x", "a", "b", "y", "c"], {"a": 1, "b": 2, "c": 1, "d": 3}
    assert value("recall", ids, gold, 3) == 2 / 4
    assert value("precision", ids, gold, 3) == 2 / 3
    assert value("f1", ids, gold, 3) == pytest.approx(2 * 2 / (3 + 4))
    assert value("hit", ids, gold, 1) == 0.0
    assert value("reciprocal_rank", ids, gold) == 1 / 2
    assert value("average_precision", ids, gold) == pytest.approx((1 / 2 + 2 / 3 + 3 / 5) / 4)
    assert value("r_precision", ids, gold) == 2 / 4
    got = 1 / math.log2(3) + 2 / math.log2(4) + 1 / math.log2(6)
    best = 3 + 2 / math.log2(3) + 1 / math.log2(4) + 1 / math.log2(5)
    assert value("ndcg", ids, gold) == pytest.approx(got / best)


def test_rbp_by_hand():
    """Weights of 0.2, 0.16, 0.128 … fall on relevant chunks, or on their grades; a cut leaves the later ones out."""
    ids, gold = ["x", "a", "b"], {"a": 1, "b": 3}
    assert value("rbp", ids, gold) == pytest.approx(0.16 + 0.128)
    assert value("rbp", ids, gold, 2) == pytest.approx(0.16)
    assert value("rbp", ids, gold, relevant=2) == pytest.approx(0.128)
    assert value("rbp", ids, gold, gain="linear") == pytest.approx(0.16 + 3 * 0.128)
    assert value("rbp", ids, gold, p=0.5) == pytest.approx(1 / 4 + 1 / 8)
    for wrong in ({"p": 0}, {"p": 1}, {"p": math.nan}):
        with pytest.raises(UsageError):
            value("rbp", ids, gold, **wrong)
    with pytest.raises(UnknownName):
        value("rbp", ids, gold, gain="exponential")


def test_bpref_by_hand():
    """Each relevant chunk loses by the judged chunks before it that are not relevant, and by no other."""
    ids, gold = ["?", "a", "no", "b", "bad", "c"], {"a": 1, "b": 2, "c": 1, "no": 0, "bad": 0, "never": 0, "d": 1}
    # R = 4 relevant, N = 3 judged not relevant: before a 0 of them, before b 1, before c 2; d was not retrieved
    assert value("bpref", ids, gold) == pytest.approx((1 + 2 / 3 + 1 / 3 + 0) / 4)
    # with relevant=2 only b is, and the judged a and no stand before it: min(2, 1) / min(6, 1) = 1
    assert value("bpref", ids, gold, relevant=2) == 0.0
    assert value("bpref", ids, gold, 2) == pytest.approx(1 / 4)
    assert value("bpref", ["no", "a"], {"a": 1, "no": -1}) == 1.0


@given(st.permutations("abcdef"), st.sets(st.sampled_from("abcdef"), min_size=1))
def test_unjudged_chunks_leave_bpref_alone(ids, inserted):
    """A chunk without a grade changes bpref nowhere."""
    gold = {"a": 1, "b": 0, "c": 2, "d": 0, "missing": 1}
    longer = [name for id in ids for name in ([f"new-{id}"] if id in inserted else []) + [id]]
    assert value("bpref", longer, gold) == value("bpref", ids, gold)


@given(st.permutations("abcdef"), st.floats(0.05, 0.95))
def test_rbp_of_a_relevant_list(ids, p):
    """Of n chunks that are all relevant the sum is 1 − p^n."""
    assert value("rbp", ids, dict.fromkeys(ids, 1), p=p) == pytest.approx(1 - p ** len(ids))


def test_mlflow_by_hand():
    """mlflow divides precision by the chunks retrieved, and gains 1 for every relevant chunk."""
    # mlflow.metrics.precision_at_k(5) and ndcg_at_k(2) of ["a", "x"] against ["a", "b"]
    ids, gold = ["a", "x"], {"a": 1, "b": 3}
    assert value("precision", ids, gold, 5, over="retrieved") == 1 / 2
    assert value("precision", ids, gold, 1, over="retrieved") == 1.0
    assert value("ndcg", ids, gold, 2, gain="binary") == pytest.approx(1 / (1 + 1 / math.log2(3)))
    with pytest.raises(UnknownName):
        value("precision", ids, gold, over="found")


def test_exponential_gain_by_hand():
    """The exponential gain is 2^grade − 1, and a negative grade gains nothing with it either."""
    assert value("ndcg", ["b", "a", "n"], {"a": 3, "b": 1, "n": -5}, gain="exponential") == pytest.approx(
        (1 + 7 / math.log2(3)) / (7 + 1 / math.log2(3))
    )


def test_precision_divides_by_k():
    """A short list is punished by precision at k, and not by precision without k."""
    assert value("precision", ["a"], {"a": 1}, 10) == 0.1
    assert value("precision", ["a"], {"a": 1}) == 1.0


def test_threshold_leaves_ndcg_alone():
    """`relevant` changes which chunks count, and never what a grade gains."""
    gold = {"a": 1, "b": 2}
    assert value("recall", ["a"], gold, relevant=2) == 0.0
    assert value("ndcg", ["a"], gold, relevant=2) == value("ndcg", ["a"], gold)
    assert value("ndcg", ["a"], {"a": 1}, relevant=2) == 1.0
    assert value("recall", ["a"], {"a": 1}, relevant=2) is None


# --- undefined and zero ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_undefined_without_relevant_gold(name):
    """Without relevant gold there is no value, judged or not."""
    assert value(name, ["a"], {}) is None
    assert value(name, ["a"], {"a": 0, "b": -1}) is None
    assert value(name, [], {}, 3) is None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [None, 1, 10])
def test_nothing_retrieved_is_zero(name, k):
    """With relevant gold and nothing retrieved the value is 0, not undefined."""
    assert value(name, [], {"a": 1}, k) == 0.0
    assert value(name, ["x"], {"a": 1}, k) == 0.0


# --- laws ------------------------------------------------------------------------------------------

rankings = st.lists(st.sampled_from("abcdefgh"), max_size=8)
golds = st.dictionaries(st.sampled_from("abcdefghij"), st.sampled_from([-1, 0, 1, 2, 3, 0.5]), max_size=8)
cuts = st.none() | st.integers(1, 9)


@given(rankings, golds, cuts, st.sampled_from(["linear", "exponential"]))
def test_between_zero_and_one(ids, gold, k, gain):
    """Every value lies in [0, 1], and is 0 where it is not defined."""
    for name in NAMES:
        values, defined = compute_rank_metric(
            name, ranking_from_lists(ids, gold), k, **({"gain": gain} if name == "ndcg" else {})
        )
        assert 0 <= values[0] <= 1
        assert defined[0] or values[0] == 0


@given(st.permutations("abcdef"), golds, cuts, st.integers(0, 4))
def test_moving_a_better_chunk_up_never_lowers(ids, gold, k, place):
    """To swap two neighbours so that the higher grade comes first lowers no metric."""
    if gold.get(ids[place], 0) < gold.get(ids[place + 1], 0):
        better = [*ids[:place], ids[place + 1], ids[place], *ids[place + 2 :]]
        for name in NAMES:
            before, after = value(name, ids, gold, k), value(name, better, gold, k)
            assert before is after is None or after >= before - 1e-12


@given(golds, cuts)
def test_the_perfect_ranking_has_ndcg_one(gold, k):
    """Gold in falling order is a perfect ranking."""
    ids = sorted(gold, key=lambda id: -gold[id])
    assert value("ndcg", ids, gold, k) in {1.0, None}


@given(rankings, golds)
def test_no_cut_is_a_cut_at_the_end(ids, gold):
    """Without k a metric is the one at the length of the list, nDCG apart: its ideal is then longer."""
    end = len(set(ids))
    for name in set(NAMES) - {"ndcg"}:
        assert not end or value(name, ids, gold) == value(name, ids, gold, end)


@given(st.lists(st.sampled_from("abcdefgh"), max_size=8, unique=True), golds, st.data())
def test_duplicates_change_nothing(ids, gold, data):
    """A repeated id, anywhere after its first place, changes no metric."""
    if ids:
        first = data.draw(st.integers(0, len(ids) - 1))
        again = data.draw(st.integers(first + 1, len(ids)))
        doubled = [*ids[:again], ids[first], *ids[again:]]
        for name in NAMES:
            assert value(name, ids, gold) == value(name, doubled, gold)


@given(rankings, golds)
def test_recall_and_hit_rise_with_k(ids, gold):
    """A longer look finds no less."""
    for name in ("recall", "hit", "reciprocal_rank", "average_precision"):
        series = [value(name, ids, gold, k) or 0.0 for k in range(1, 10)]
        assert series == sorted(series)


# --- usage -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_wrong_parameters(name):
    """k below 1 and a threshold that unjudged chunks would pass are refused."""
    for wrong in ({"k": 0}, {"k": -3}, {"relevant": 0}, {"relevant": -1}, {"relevant": math.nan}):
        with pytest.raises(UsageError):
            compute_rank_metric(name, ranking_from_lists(["a"], {"a": 1}), **wrong)


def test_wrong_names():
    """An unknown metric or gain is named, with the nearest that exists."""
    ranking = ranking_from_lists(["a"], {"a": 1})
    with pytest.raises(UnknownName, match='Did you mean "recall"'):
        compute_rank_metric("recal", ranking)
    with pytest.raises(UnknownName, match='Did you mean "exponential"'):
        compute_rank_metric("ndcg", ranking, gain="exponental")


@pytest.mark.parametrize("grade", [math.nan, math.inf, -math.inf])
def test_grades_are_finite(grade):
    """A grade that is not a finite number is an error of the input, not a value."""
    with pytest.raises(InputError, match="finite"):
        ranking_from_lists(["a"], {"a": grade})


def test_grades_beyond_the_exponential():
    """A grade whose exponential gain would overflow is refused and stays fine with the linear gain."""
    with pytest.raises(InputError, match="linear"):
        value("ndcg", ["a"], {"a": 5000}, gain="exponential")
    assert value("ndcg", ["a"], {"a": 5000}) == 1.0


def test_a_ranking_travels():
    """A ranking can be sent to another process."""
    ranking = ranking_from_lists(["a", "b"], {"b": 2})
    assert (
        compute_rank_metric("ndcg", pickle.loads(pickle.dumps(ranking)))[0] == compute_rank_metric("ndcg", ranking)[0]
    )
