"""Runs and qrels: the order of a run, and equality with trec_eval itself."""

import math
import random

import numpy as np
import pyarrow as pa
import pytest
import pytrec_eval

from ragfault.metrics.qrels import ranking_from_columns, ranking_from_dicts
from ragfault.metrics.ranking import compute_rank_metric, ranking_from_lists
from ragfault.model.errors import InputError

TREC = {
    "map": ("average_precision", None),
    "map_cut_10": ("average_precision", 10),
    "recip_rank": ("reciprocal_rank", None),
    "ndcg": ("ndcg", None),
    "ndcg_cut_5": ("ndcg", 5),
    "P_5": ("precision", 5),
    "P_100": ("precision", 100),
    "recall_5": ("recall", 5),
    "success_5": ("hit", 5),
    "Rprec": ("r_precision", None),
    "set_P": ("precision", None),
    "set_recall": ("recall", None),
    "set_F": ("f1", None),
    "bpref": ("bpref", None),
}
ASKED = {"map", "map_cut.10", "recip_rank", "ndcg", "ndcg_cut.5", "P.5", "P.100", "recall.5", "success.5"} | {
    "Rprec",
    "set_P",
    "set_recall",
    "set_F",
    "bpref",
}


def score(kind, rng):
    match kind:
        case "distinct":
            return rng.uniform(-3, 3)
        case "tied":
            return rng.choice([2, 1, 0.0, -0.0, -1])
        case "close":  # different as 64-bit floats, mostly equal as 32-bit ones
            return 1e6 + rng.random() * 0.2
        case _:
            return rng.choice([1e300, 2e300, math.inf, -math.inf, 5.0])


def draw(seed, queries=150):
    """Return a random run and its qrels: graded and negative labels, ties, queries missing on either side."""
    rng = random.Random(seed)
    run, qrels = {}, {}
    for query in range(queries):
        shape = rng.choice(["d{}", "doc-with-a-long-name-{}", "{}", "é{}", "{}" * 9])
        docs = [shape.replace("{}", str(number)) for number in range(rng.choice([2, 20, 150]))]
        kind = rng.choice(["distinct", "tied", "close", "extreme"])
        if rng.random() < 0.9:
            run[f"q{query}"] = {doc: score(kind, rng) for doc in rng.sample(docs, rng.randint(1, len(docs)))}
        if rng.random() < 0.9:
            judged = rng.sample(docs, rng.randint(1, len(docs)))
            qrels[f"q{query}"] = {doc: rng.choice([-1, 0, 0, 1, 1, 2, 3]) for doc in judged}
            # trec_eval reads beyond its arrays, and may never return, where all labels are negative.
            qrels[f"q{query}"][judged[0]] = rng.choice([0, 1, 2])
    return run, qrels


def columns(nested, name, seed=0):
    """Return the same as shuffled columns."""
    rows = [(query, chunk, float(number)) for query, row in nested.items() for chunk, number in row.items()]
    random.Random(seed).shuffle(rows)
    query, chunk, numbers = zip(*rows, strict=True)
    return {"query": pa.array(query), "chunk": pa.array(chunk), name: pa.array(numbers)}


def grouped(run, qrels):
    """Return the same as columns whose rows follow the queries, the best first in every other query."""
    for row, (query, scores) in enumerate(run.items()):
        with np.errstate(over="ignore"):
            best_first = sorted(scores.items(), key=lambda pair: np.float32(pair[1]), reverse=True)
        run = run | {query: dict(best_first) if row % 2 else scores}
    sides = []
    for nested, name in ((run, "score"), (qrels, "grade")):
        rows = [(query, chunk, float(number)) for query, row in nested.items() for chunk, number in row.items()]
        query, chunk, numbers = zip(*rows, strict=True)
        sides.append({"query": pa.array(query), "chunk": pa.array(chunk), name: pa.array(numbers)})
    return sides


def values(ranking, name, k=None, **parameters):
    """Query → value, None where undefined."""
    result, defined = compute_rank_metric(name, ranking, k, **parameters)
    every = zip(ranking.queries, result.tolist(), defined.tolist(), strict=True)
    return {query: value if known else None for query, value, known in every}


# --- trec_eval -------------------------------------------------------------------------------------


@pytest.mark.parametrize("relevant", [1, 2])
@pytest.mark.parametrize("seed", range(10))
def test_equals_trec_eval(seed, relevant, monkeypatch):
    """Every metric of every query is trec_eval's, from dicts and from shuffled and grouped columns alike."""
    monkeypatch.setattr("ragfault.metrics.qrels.BLOCK_ROWS", 2 ** (seed + 4))
    run, qrels = draw(seed)
    expected = pytrec_eval.RelevanceEvaluator(qrels, ASKED, relevance_level=relevant).evaluate(run)
    for ranking in (
        ranking_from_dicts(run, qrels),
        ranking_from_columns(columns(run, "score"), columns(qrels, "grade")),
        ranking_from_columns(*grouped(run, qrels)),
    ):
        for theirs, (name, k) in TREC.items():
            ours = values(ranking, name, k, relevant=relevant)
            for query, row in expected.items():
                assert ours[query] == pytest.approx(row[theirs], abs=1e-12) or (ours[query], row[theirs]) == (None, 0)


@pytest.mark.parametrize("seed", range(3))
def test_equals_one_by_one(seed):
    """A run judged at once gives what its traces give one by one, in trec_eval's order."""
    run, qrels = draw(seed)
    ranking = ranking_from_dicts(run, qrels)
    for query, result in values(ranking, "ndcg", 10).items():
        scores = run.get(query, {})
        with np.errstate(over="ignore"):
            ids = sorted(scores, key=lambda id: (np.float32(scores[id]), id), reverse=True)
        alone, defined = compute_rank_metric("ndcg", ranking_from_lists(ids, qrels.get(query, {})), 10)
        assert result == (alone[0] if defined[0] else None)


# --- order -----------------------------------------------------------------------------------------


def both(run, qrels):
    return ranking_from_dicts(run, qrels), ranking_from_columns(columns(run, "score"), columns(qrels, "grade"))


def test_ties_by_id():
    """Of equal scores the id that is last in the alphabet comes first."""
    for ranking in both({"q": {"a": 1.0, "b": 1.0, "c": 1.0}}, {"q": {"b": 1}}):
        assert ranking.retrieved.rank.tolist() == [2]


def test_scores_are_single_precision():
    """Scores that differ only beyond 32 bits are ties, and -0.0 ties with 0.0."""
    for ranking in both({"q": {"a": 1 + 1e-12, "b": 1.0}, "r": {"a": 0.0, "b": -0.0}}, {"q": {"a": 1}, "r": {"a": 1}}):
        assert ranking.retrieved.rank.tolist() == [2, 2]


def test_ids_that_look_alike():
    """Ids that share a prefix, contain one another or end in a null byte are told apart."""
    names = ["a", "a\0", "aaaaaaaa", "aaaaaaaab", "aaaaaaaa\0", "aaaaaaaaaaaaaaaaa", ""]
    run = {"q": {name: float(-place) for place, name in enumerate(names)}}
    for place, name in enumerate(names, 1):
        for ranking in both(run, {"q": {name: 1}}):
            assert (ranking.retrieved.rank.tolist(), ranking.retrieved_counts.tolist()) == ([place], [len(names)])


# --- missing queries -------------------------------------------------------------------------------


def test_no_query_is_dropped():
    """A query without results scores 0, one without qrels is undefined, and both are there."""
    run, qrels = {"a": {"x": 1.0}, "b": {"x": 1.0}}, {"b": {"x": 1}, "c": {"x": 1}, "d": {"x": 0}}
    for ranking in both(run, qrels):
        assert values(ranking, "recall") == {"a": None, "b": 1.0, "c": 0.0, "d": None}
        known = zip(ranking.queries, ranking.judged.tolist(), strict=True)
        assert dict(known) == {"a": False, "b": True, "c": True, "d": True}


def test_empty_sides():
    """Without a run all gold is missed; without qrels nothing is defined; without both there is nothing."""
    none = {"query": pa.array([], pa.string()), "chunk": pa.array([], pa.string())}
    run, qrels = {"q": {"a": 1.0}}, {"q": {"a": 1}}
    no_run, no_qrels = (none | {"score": pa.array([], pa.float64())}, none | {"grade": pa.array([], pa.float64())})
    for ranking in (ranking_from_dicts({}, qrels), ranking_from_columns(no_run, columns(qrels, "grade"))):
        assert values(ranking, "ndcg") == {"q": 0.0}
    for ranking in (ranking_from_dicts(run, {}), ranking_from_columns(columns(run, "score"), no_qrels)):
        assert values(ranking, "ndcg") == {"q": None}
    for ranking in (ranking_from_dicts({}, {}), ranking_from_columns(no_run, no_qrels)):
        assert values(ranking, "ndcg") == {}


# --- columns ---------------------------------------------------------------------------------------


def test_duplicates_in_a_run():
    """A chunk listed twice keeps its better place, and those below it move up."""
    run = {"query": ["q"] * 5, "chunk": ["x", "a", "x", "b", "a"], "score": [9.0, 3.0, 8.0, 7.0, 8.5]}
    ranking = ranking_from_columns(run, {"query": ["q", "q"], "chunk": ["a", "b"], "grade": [1, 1]})
    assert (ranking.retrieved.rank.tolist(), ranking.retrieved_counts.tolist()) == ([2, 3], [3])


@pytest.mark.parametrize("seed", range(3))
def test_doubled_rows(seed):
    """A run in which many rows stand twice, the second time lower, is the run without them."""
    run, qrels = draw(seed)
    rng = random.Random(seed)
    table = pa.table(columns(run, "score"))
    again = table.take(pa.array([row for row in range(table.num_rows) if rng.random() < 0.5]))
    lower = again.set_column(2, "score", pa.compute.subtract(again["score"], 100.0))
    gold = columns(qrels, "grade")
    once, doubled = (
        ranking_from_columns(table, gold),
        ranking_from_columns(pa.concat_tables([lower, table, again]), gold),
    )
    for name in ("ndcg", "average_precision", "precision"):
        assert values(once, name) == values(doubled, name)


def test_duplicates_in_qrels():
    """A chunk judged twice alike counts once; judged differently it is an error that names it."""
    run = {"query": ["q"], "chunk": ["a"], "score": [1.0]}
    ranking = ranking_from_columns(run, {"query": ["q"] * 3, "chunk": ["a", "b", "a"], "grade": [1, 1, 1]})
    assert values(ranking, "recall") == {"q": 0.5}
    with pytest.raises(InputError, match='"q" judges chunk "a" twice'):
        ranking_from_columns(run, {"query": ["q"] * 3, "chunk": ["a", "b", "a"], "grade": [1, 1, 2]})


@pytest.mark.parametrize("seed", range(3))
def test_colliding_hashes_do_no_harm(seed, monkeypatch):
    """Were all hashes equal, the ids themselves would still decide."""
    run, qrels = draw(seed, 30)
    expected = values(ranking_from_dicts(run, qrels), "ndcg")
    monkeypatch.setattr("ragfault.metrics.qrels._hash_rows", lambda side: np.zeros(len(side.query), np.uint64))
    assert values(ranking_from_columns(columns(run, "score"), columns(qrels, "grade")), "ndcg") == expected
    assert values(ranking_from_columns(*grouped(run, qrels)), "ndcg") == expected


@pytest.mark.parametrize("kind", ["chunked", "dictionary", "large", "numpy", "sliced", "filtered", "integers"])
def test_shapes_of_columns(kind):
    """Chunked, dictionary-encoded, large, sliced and numpy columns all give the same."""
    rng = random.Random(1)
    run = {f"{query}": {f"{chunk}": rng.random() for chunk in range(40)} for query in range(30)}
    qrels = {f"{query}": {f"{chunk}": 1 for chunk in range(0, 80, 9)} for query in range(30)}
    table, gold = pa.table(columns(run, "score")), pa.table(columns(qrels, "grade"))
    expected = values(ranking_from_columns(table, gold), "average_precision")
    table = reshape(table, kind)
    assert values(ranking_from_columns(table, gold), "average_precision") == expected


def reshape(table, kind):
    query, chunk, number = table.columns
    match kind:
        case "chunked":
            return pa.concat_tables([table.slice(0, 100), table.slice(100, 0), table.slice(100)])
        case "dictionary":
            encoded = [query.dictionary_encode(), chunk.dictionary_encode()]
            full = pa.table([*encoded, number], table.column_names)
            return pa.concat_tables([full.slice(0, 7), full.slice(7)])
        case "large":
            return pa.table([query.cast(pa.large_string()), chunk.cast(pa.large_string()), number], table.column_names)
        case "numpy":
            return {name: column.to_numpy() for name, column in zip(table.column_names, table.columns, strict=True)}
        case "sliced":
            return pa.concat_tables([table, table]).combine_chunks().slice(table.num_rows // 1, table.num_rows)
        case "filtered":
            more = pa.table({"query": ["gone"], "chunk": ["gone"], "score": [1.0]})
            full = pa.concat_tables([table, more]).combine_chunks()
            encoded = pa.table(
                [full["query"].dictionary_encode(), full["chunk"].dictionary_encode(), full["score"]], full.column_names
            )
            return encoded.filter(pa.compute.not_equal(full["query"], "gone"))
        case _:
            return pa.table([query.cast(pa.int64()), chunk.cast(pa.int32()), number], table.column_names)


def test_encoded_columns_need_no_second_look(monkeypatch):
    """Sides that are encoded differently are compared by what they say."""
    monkeypatch.setattr("ragfault.metrics.qrels._make_exact_keys", None)
    run, qrels = (pa.table(columns({"q": {"a": 2.0, "b": 1.0}}, "score")), pa.table(columns({"q": {"b": 1}}, "grade")))
    for encoded in (run, reshape(run, "dictionary")):
        for other in (qrels, reshape(qrels, "dictionary"), reshape(qrels, "large")):
            assert ranking_from_columns(encoded, other).retrieved.rank.tolist() == [2]


# --- errors ----------------------------------------------------------------------------------------

GOOD = {"query": ["q"], "chunk": ["a"], "score": [1.0]}
GOLD = {"query": ["q"], "chunk": ["a"], "grade": [1]}


@pytest.mark.parametrize("wrong", [math.nan, None, "high"])
def test_scores_are_numbers(wrong):
    """A score that is not a number is an error of the input."""
    with pytest.raises(InputError):
        ranking_from_dicts({"q": {"a": wrong}}, {"q": {"a": 1}})
    with pytest.raises(InputError):
        ranking_from_dicts({"q": {"a": 10**400}}, {})
    with pytest.raises(InputError):
        ranking_from_columns(GOOD | {"score": [wrong]}, GOLD)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, None, "high"])
def test_grades_are_finite_numbers(wrong):
    """A grade that is not a finite number is an error of the input."""
    with pytest.raises(InputError):
        ranking_from_dicts({"q": {"a": 1.0}}, {"q": {"a": wrong}})
    with pytest.raises(InputError):
        ranking_from_columns(GOOD, GOLD | {"grade": [wrong]})


def test_errors_name_the_query_and_the_column():
    """The message says which query has the wrong score and which columns there are."""
    with pytest.raises(InputError, match='query "q2"'):
        ranking_from_dicts({"q1": {"a": 1.0}, "q2": {"a": math.nan}}, {})
    with pytest.raises(InputError, match='no column "chunk"'):
        ranking_from_columns({"query": ["q"], "doc": ["a"], "score": [1.0]}, GOLD)
    with pytest.raises(InputError, match="numeric score"):
        ranking_from_columns(GOOD | {"score": [1.0, 2.0]}, GOLD)
    with pytest.raises(InputError, match="numeric grade"):
        ranking_from_columns(GOOD, GOLD | {"chunk": [["a"]]})
    with pytest.raises(InputError, match='"chunk" of the run has 1 empty'):
        ranking_from_columns(GOOD | {"chunk": pa.array([None], pa.string())}, GOLD)
