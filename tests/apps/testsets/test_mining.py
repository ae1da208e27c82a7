"""Laws of mined queries: each once, and in the shares of the traffic."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from ragfault.apps.testsets.making.mining import mine_queries
from ragfault.cli.commands import run_command
from ragfault.model.errors import InputError, UsageError
from ragfault.model.records import Trace

FERRY = "When does the {} ferry to {} leave?"
FARES = "What is the price of a {} ticket for {}?"
PLACES = ("Oslo", "Bergen", "Bodø", "Molde", "Narvik", "Tromsø", "Alta", "Vadsø", "Hamar", "Skien")


def make_log(n: int = 600, seed: int = 1) -> list[Trace]:
    """Make traces of two topics, three to one, on two routes, four to one, some asked often."""
    rng = random.Random(seed)
    traces = []
    for i in range(n):
        topic = FERRY if rng.random() < 0.75 else FARES
        words = ("first", "last", "late", "early") if topic is FERRY else ("child", "family", "day", "season")
        query = topic.format(rng.choice(words), rng.choice(PLACES))
        traces.append(Trace(id=str(i), query=query, route="web" if rng.random() < 0.8 else "phone"))
    return traces


def test_near_duplicates_are_one_query_and_a_changed_word_is_another():
    queries = (
        "When does the last ferry leave?", "when does the last ferry leave", "When does the LAST ferry leave??",
        "When does the first ferry leave?",
    )  # fmt: skip
    mined = mine_queries([Trace(id=str(i), query=query) for i, query in enumerate(queries)], 10)
    assert {item.query: item.metadata["provenance"]["traces"] for item in mined.items} == {queries[0]: 3, queries[3]: 1}


def test_the_sample_has_the_shares_of_the_traffic():
    traces = make_log()
    mined = mine_queries(traces, 60)
    assert len(mined.items) == 60
    assert len({item.id for item in mined.items}) == 60
    for stratum in mined.strata:
        assert abs(stratum.traffic - stratum.sample) <= 1.5 / 60
    routes = Counter(item.route for item in mined.items)
    assert abs(routes["web"] / 60 - sum(trace.route == "web" for trace in traces) / len(traces)) < 0.1
    ferries = sum("ferry" in item.query for item in mined.items) / 60
    assert abs(ferries - sum("ferry" in trace.query for trace in traces) / len(traces)) < 0.1


def test_the_same_seed_mines_the_same_and_no_answer_is_taken_over():
    traces = [msgspec.structs.replace(trace, answer="At ten.", reference="no") for trace in make_log(200)]
    first, again, other = (mine_queries(traces, 20, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert {item.id for item in first.items} != {item.id for item in other.items}
    assert all(item.answer is None and item.reference is None and item.gold is None for item in first.items)


def test_fewer_distinct_queries_than_asked_for_are_all_of_them():
    mined = mine_queries(make_log(400), 10_000)
    assert len(mined.items) == mined.distinct < 400
    with pytest.raises(UsageError):
        mine_queries(make_log(5), 0)
    with pytest.raises(InputError):
        mine_queries([Trace(id="1", query="?")], 5)


def test_the_command_fills_half_of_the_set_from_a_log(tmp_path: Path, corpus, capsys):
    (tmp_path / "docs").mkdir()
    for document in corpus:
        path = tmp_path / "docs" / Path(document.id).name
        path.write_text(document.text, encoding="utf-8")
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"".join(msgspec.json.encode(trace) + b"\n" for trace in make_log(100)))
    out = tmp_path / "set.jsonl"
    run_command(["testset", "make", str(tmp_path / "docs"), "-o", str(out), "-n", "20", "--from", str(log)])
    kinds = Counter(json.loads(line)["metadata"]["kind"] for line in out.read_text(encoding="utf-8").splitlines())
    assert kinds["mined"] == 10
    assert sum(kinds.values()) > 10
    assert "10 queries mined" in capsys.readouterr().err
