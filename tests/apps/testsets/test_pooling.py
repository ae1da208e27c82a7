"""Laws of pools: they hold what each retriever ranks high, and the estimate counts what they miss."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from ragfault.apps.testsets.making.make import make_testset
from ragfault.apps.testsets.passages import CorpusIndex
from ragfault.apps.testsets.pooling import apply_pool_labels, estimate_unseen, load_retrievers, pool_passages
from ragfault.cli.commands import run_command
from ragfault.labels.label import Label
from ragfault.labels.reading.label_files import write_labels
from ragfault.model.errors import InputError, UsageError


def label_all(pooled, relevant=lambda item, chunk: True):
    """Label each passage of each pool high or none."""
    return [
        Label(trace=item.id, subject=("chunk", chunk.id, "level"), value="high" if relevant(item, chunk) else "none")
        for item in pooled
        for chunk in item.chunks
    ]


def test_a_pool_holds_the_best_passage_of_each_retriever_once(corpus):
    items = make_testset(corpus, 10).items
    index = CorpusIndex(corpus)
    retrievers = load_retrievers(index)
    assert len(retrievers) >= 2
    for item in pool_passages(corpus, items, depth=2):
        ids = [chunk.id for chunk in item.chunks]
        assert len(ids) == len(set(ids)) <= 2 * len(retrievers)
        places = {(chunk.document, chunk.start) for chunk in item.chunks}
        for score in retrievers.values():
            scores = score(item.query)
            assert scores.max() <= 0 or index.passages[int(scores.argmax())].key in places
        assert set(item.metadata["pool"]["chunks"]) == set(ids)


def test_the_order_is_random_and_the_same_for_a_seed(corpus):
    items = make_testset(corpus, 10).items
    first, again, other = (pool_passages(corpus, items, depth=5, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert [set(item.chunks) for item in map(strip, first)] == [set(item.chunks) for item in map(strip, other)]


def strip(item):
    """Return an item whose chunks can be compared as a set."""
    return msgspec.structs.replace(item, chunks=tuple(chunk.id for chunk in item.chunks))


def test_relevant_passages_become_gold_once_and_others_do_not(corpus):
    items = [msgspec.structs.replace(item, gold=None) for item in make_testset(corpus, 8).items]
    pooled = pool_passages(corpus, items, depth=3)
    gold_ids = {item.id: item.chunks[0].id for item in pooled}
    labels = label_all(pooled, lambda item, chunk: chunk.id == gold_ids[item.id])
    labelled, estimate = apply_pool_labels(corpus, pooled, labels)
    texts = {document.id: document.text for document in corpus}
    for item, source in zip(labelled, pooled, strict=True):
        [span] = item.gold.spans
        assert texts[span.document][span.start : span.end] == span.quote
        assert (span.document, span.start) == (source.chunks[0].document, source.chunks[0].start)
        assert item.chunks is None
        assert "pool" not in item.metadata
    assert estimate.relevant == estimate.queries == 8
    again, _ = apply_pool_labels(corpus, pool_passages(corpus, labelled, depth=3), labels)
    assert [item.gold for item in again] == [item.gold for item in labelled]


def test_without_a_relevant_passage_nothing_is_estimated(corpus):
    pooled = pool_passages(corpus, make_testset(corpus, 4).items)
    _, estimate = apply_pool_labels(corpus, pooled, label_all(pooled, lambda *_: False))
    assert (estimate.relevant, estimate.unseen) == (0, None)
    _, estimate = apply_pool_labels(corpus, pooled, [])
    assert (estimate.queries, estimate.labelled) == (0, 0)


def test_the_estimate_is_near_the_number_that_independent_retrievers_miss():
    rng, missed, estimated = random.Random(5), 0, 0.0
    for _ in range(200):
        returned = [sum(rng.random() < 0.4 for _ in range(4)) for _ in range(60)]
        missed += returned.count(0)
        estimated += estimate_unseen([{n: returned.count(n) for n in range(1, 5)}], 4)
    assert estimated == pytest.approx(missed, rel=0.15)


def test_the_command_goes_from_a_set_to_gold(tmp_path: Path, corpus, capsys):
    (tmp_path / "docs").mkdir()
    for document in corpus:
        (tmp_path / "docs" / Path(document.id).name).write_text(document.text, encoding="utf-8")
    folder, items = str(tmp_path / "docs"), tmp_path / "set.jsonl"
    run_command(["testset", "make", folder, "-o", str(items), "-n", "6"])
    pool = tmp_path / "pool.jsonl"
    assert run_command(["testset", "pool", folder, str(items), "-o", str(pool), "--depth", "3"]) == 0
    from ragfault import read_traces

    labels = tmp_path / "labels.jsonl"
    write_labels(labels, label_all(list(read_traces(pool))))
    out = tmp_path / "labelled.jsonl"
    capsys.readouterr()
    assert run_command(["testset", "pool", folder, str(pool), "--labels", str(labels), "-o", str(out)]) == 0
    assert "returned by no retriever" in capsys.readouterr().out
    assert all(item.gold.spans for item in read_traces(out))


def test_an_empty_set_and_no_depth_are_refused(corpus):
    with pytest.raises(InputError):
        pool_passages(corpus, [])
    with pytest.raises(UsageError):
        pool_passages(corpus, make_testset(corpus, 2).items, depth=0)
