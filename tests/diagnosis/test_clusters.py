"""Clustering: what fails alike is found, whatever the order, and is recognised over runs and reruns."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ragfault.cli.commands import run_command as command
from ragfault.comparison.investigation.hypotheses import investigate
from ragfault.diagnosis.causes.table import CAUSES
from ragfault.diagnosis.clusters.clustering import (
    DENSITY_MINIMUM,
    cluster_by_density,
    cluster_failures,
    cluster_runs,
    compute_memberships,
    group_by_words,
)
from ragfault.diagnosis.clusters.description import (
    TracePopulation,
    compute_trends,
    distinctive_terms,
    load_population,
    name_cluster,
    read_failures,
)
from ragfault.diagnosis.clusters.records import ClusterRegistry, ClusterReport, FailingTrace
from ragfault.diagnosis.clusters.registry import (
    assign_cluster,
    load_registry,
    mute_cluster,
    record_clusters,
    resolve_cluster,
    save_registry,
    track_changes,
)
from ragfault.diagnosis.diagnosis import PROBLEM_KINDS
from ragfault.diagnosis.run_analysis import suggest_remedies
from ragfault.diagnosis.run_table import RunTable
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.runs.run import Run
from ragfault.labels.label import Label
from ragfault.labels.reading.label_files import append_label
from ragfault.labels.reading.reference_scores import load_reference_scores
from ragfault.model.errors import InputError, UnknownName, UsageError
from ragfault.report.builders.clusters import build_clusters
from ragfault.report.json_documents import encode_document
from ragfault.report.renderers.html import render_html_page
from ragfault.report.renderers.terminal import render_terminal
from ragfault.retrieval.embedders.registry import load_embedder
from sample_runs import FixedJudge, Pair, evaluate_pairs, pair

TOPICS = {
    "refund": ("the refund of a cancelled ticket", "a refund for a missed sailing", "the refund of a lost ticket"),
    "dog": ("a dog in the cabin", "the lead of a dog on deck", "food for a dog in the cabin"),
    "parking": ("parking at the harbour", "a parking permit for the harbour", "parking overnight at the harbour"),
}
WAYS: dict[str, tuple[str, str]] = {"refund": ("n", "u"), "dog": ("h", "c"), "parking": ("h", "u")}
"""The levels and supports of the traces of a topic: nothing relevant, a contradicted and an unsupported claim."""


def pairs(apiece: int, fine: int = 10) -> list[Pair]:
    """Build failures of each topic, each topic in its own way, and traces without a problem."""
    traces = []
    for name, queries in TOPICS.items():
        levels, supports = WAYS[name]
        for number in range(apiece):
            query = f"What holds for {queries[number % 3]} on day {number + 200}?"
            traces.append(pair(f"{name}-{number:02}", levels, supports, query=query))
    return traces + [pair(f"fine-{number}", "h", "s") for number in range(fine)]


def make_report(place: Path, apiece: int, seed: int | None = None) -> ClusterReport:
    """Cluster the run of such traces, shuffled by the seed."""
    failures = pairs(apiece)
    if seed is not None:
        random.Random(seed).shuffle(failures)
    return cluster_runs([evaluate_pairs(place, failures)])


def parts(report: ClusterReport) -> set[frozenset[str]]:
    return {frozenset(cluster.members) for cluster in report.clusters}


def failing(number: int, query: str, kind: str = "absent_fact", run: int = 0) -> FailingTrace:
    return FailingTrace(
        run=run, row=number, trace=f"t{number:03}", query=query, kind=kind, kinds=(kind,), text=f"About {query}"
    )


def seen(*failures: Sequence[FailingTrace]) -> list[TracePopulation]:
    """Build a population for each list of failures, all of whose traces fail."""
    return [
        TracePopulation(f"run{at}", f"print{at}", f"2031-01-0{at + 1}", "told/1", len(item))
        for at, item in enumerate(failures)
    ]


# --- memberships ---------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=4, max_size=20), st.integers(1, 4))
def test_the_memberships_of_a_failure_sum_to_one(points: list[tuple[int, int]], count: int):
    groups = [list(range(len(points)))[start::count] for start in range(count)]
    memberships = compute_memberships(np.array(points, float), groups)
    assert memberships.shape == (len(points), count)
    assert np.allclose(memberships.sum(axis=1), 1)


def test_a_failure_between_two_clusters_belongs_to_both_and_to_the_nearer_more():
    rows = np.array([[0.0, 0], [0, 1], [4, 0], [4, 1], [1.8, 0.5]])
    near, far = compute_memberships(rows, [[0, 1], [2, 3]])[4]
    assert 0.5 < near < 0.7
    assert 0.3 < far < 0.5


def test_a_member_belongs_to_its_cluster_most_and_what_lies_outside_is_named(tmp_path: Path):
    report = make_report(tmp_path / "run", 12)
    for cluster in report.clusters:
        others = [other for other in report.clusters if other is not cluster]
        assert all(
            cluster.memberships[trace] > max(other.memberships.get(trace, 0) for other in others)
            for trace in cluster.members
        )
    first = replace(report.clusters[0], memberships={**report.clusters[0].memberships, "elsewhere": 0.31})
    text = render_terminal(build_clusters(replace(report, clusters=(first,))), width=110)
    assert "in part also: elsewhere 31 %" in text


# --- what is found ---------------------------------------------------------------------------------


@pytest.mark.parametrize("apiece", [4, 35])
def test_failures_of_one_kind_and_topic_are_one_cluster(tmp_path: Path, apiece: int):
    """Few failures are grouped by words, many by density; either way what was put in as one comes out as one."""
    if apiece > 9:
        pytest.importorskip("sklearn", reason="clustering by density needs the extra cluster")
    report = make_report(tmp_path, apiece)
    assert report.failures == 3 * apiece
    assert parts(report) == {frozenset(f"{name}-{at:02}" for at in range(apiece)) for name in TOPICS}
    assert {cluster.kind for cluster in report.clusters} == {
        "nothing_relevant",
        "contradicted_claim",
        "unsupported_claim",
    }
    assert ("fewer than 30" in report.method) is (apiece < 10)


def test_a_cluster_has_share_layer_words_medoids_and_remedy(tmp_path: Path):
    """Size and share are those of its traces, layer and remedy those of its kind, the words its topic's."""
    for cluster in make_report(tmp_path, 4).clusters:
        assert cluster.size == len(cluster.members) == 4
        assert cluster.share.mean == pytest.approx(4 / 22)
        assert cluster.share.low < cluster.share.mean < cluster.share.high
        assert cluster.share.n == 22
        assert cluster.layer == PROBLEM_KINDS[cluster.kind].layer
        assert cluster.remedies == PROBLEM_KINDS[cluster.kind].steps
        assert len(cluster.examples) == 3
        assert {item.trace for item in cluster.examples} <= set(cluster.members)
        topic = cluster.members[0].split("-")[0]
        assert topic in cluster.words
        assert topic in cluster.name
        titles = CAUSES if cluster.cause else PROBLEM_KINDS
        assert cluster.name.startswith(titles[cluster.cause or cluster.kind].title)


@pytest.mark.parametrize("apiece", [4, 12])
def test_traces_may_come_in_any_order(tmp_path: Path, apiece: int):
    """A run of the same traces in another order has the same clusters under the same ids, in the same order."""
    if apiece > 9:
        pytest.importorskip("sklearn", reason="clustering by density needs the extra cluster")
    first, second = make_report(tmp_path / "a", apiece), make_report(tmp_path / "b", apiece, seed=7)
    assert first.clusters == second.clusters
    assert first.ungrouped == second.ungrouped


@given(st.permutations(range(8)))
def test_grouping_by_words_depends_on_no_order(order: list[int]):
    """Whichever failure comes first, those that share a word and a kind stay together."""
    queries = ["red boat", "red boat now", "red car", "old dog", "dog food", "a lead", "tide table", "table of tides"]
    report = group_by_words([failing(at, queries[at]) for at in order])
    groups = {
        frozenset(order[i] for i, label in enumerate(report) if label == cluster) for cluster in set(report) - {-1}
    }
    assert groups == {frozenset({0, 1, 2}), frozenset({3, 4}), frozenset({6, 7})}


def test_what_is_like_nothing_is_a_single_failure(tmp_path: Path):
    """A failure that shares neither kind nor word is in no cluster, and is counted among the single ones."""
    failures = [*pairs(3), pair("odd", "h", "s", query="Whence zeppelins?", error="out of memory")]
    report = cluster_runs([evaluate_pairs(tmp_path, failures)])
    assert report.ungrouped is not None
    assert report.ungrouped.members == ("odd",)
    assert report.ungrouped.name == "single failures"


def test_a_run_without_failures_has_no_clusters(tmp_path: Path):
    """Nothing fails, nothing is clustered, and every rendering says so."""
    report = cluster_runs([evaluate_pairs(tmp_path, [pair("a", "h", "s"), pair("b", "h", "s")])])
    assert (report.failures, report.clusters, report.ungrouped) == (0, (), None)
    assert "None of 2 traces fails" in render_terminal(build_clusters(report))
    assert "None of 2 traces fails" in render_html_page(build_clusters(report), "test")


def test_failures_that_are_all_the_same_are_one_cluster_and_no_single_ones(tmp_path: Path):
    """Copies of one failing trace, more than density needs, are a cluster."""
    copies = [pair("t", "h", "c", query="Whence zeppelins?") for _ in range(DENSITY_MINIMUM)]
    failures = [(replace(trace, id=f"t{n}"), replace(seen, trace=f"t{n}")) for n, (trace, seen) in enumerate(copies)]
    report = cluster_runs([evaluate_pairs(tmp_path, failures)])
    assert ([cluster.size for cluster in report.clusters], report.ungrouped) == ([DENSITY_MINIMUM], None)


def test_a_run_without_a_judge_is_not_known_to_be_free_of_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Where no judge looked, that is said, and clusters that were known are not called gone."""
    failing = evaluate_pairs(tmp_path / "judged", pairs(3)[:9])
    (tmp_path / "t.jsonl").write_text('{"id": "a", "query": "Who?", "chunks": ["Ada"], "answer": "Bob"}', "utf-8")
    assert command(["evaluate", str(tmp_path / "t.jsonl"), "-o", str(tmp_path / "plain"), "--judge", "none"]) == 0
    registry = ["--registry", str(tmp_path / "clusters.json")]
    assert command(["clusters", str(failing.path), *registry]) == 0
    capsys.readouterr()
    for baseline in ([], ["--against", str(failing.path)]):
        assert command(["clusters", str(tmp_path / "plain"), *registry, *baseline]) == 0
        printed = capsys.readouterr().out
        assert "None of 1 trace is known to fail; no judge looked at plain." in printed
        assert "Not seen any more" not in printed


def test_clusters_of_two_judges_name_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """What is new, gone or trends over runs of two judges may be the judges', which is stated."""
    (tmp_path / "t.jsonl").write_text('{"id": "a", "query": "Who?", "chunks": ["Ada"], "answer": "Bob"}', "utf-8")
    old, new = (str(tmp_path / name) for name in ("lexical", "embedded"))
    for path in (old, new):
        assert command(["evaluate", str(tmp_path / "t.jsonl"), "-o", path, "--judge", Path(path).name, "-q"]) == 0
    for runs, number in (([old, new], 2), ([new, "--against", old], 2), ([new], 1)):
        capsys.readouterr()
        assert command(["clusters", *runs, "--registry", str(tmp_path / f"{len(runs)}.json")]) == 0
        printed = " ".join(capsys.readouterr().out.split())
        assert ("judged by lexical/8, embedded/7: what is new, gone or trends may be" in printed) == (number == 2)


def test_runs_whose_failures_have_nothing_in_common_have_no_clusters(tmp_path: Path):
    """Over several runs, too, single failures alone are no cluster and no error."""
    odd = [pair("a", "h", "s"), pair("odd", "h", "s", query="Whence zeppelins?", error="out of memory")]
    report = cluster_runs([evaluate_pairs(tmp_path / name, odd[: 1 + (name == "new")]) for name in ("old", "new")])
    assert (report.failures, report.clusters) == (1, ())


def test_a_right_answer_does_not_fail_and_a_label_of_a_person_decides(tmp_path: Path):
    """Chunks without use beside a supported answer are a cost; whoever calls the answer bad makes it a failure."""
    run = evaluate_pairs(tmp_path, [pair("right", "n", "s"), pair("bad", "n", "u")])
    assert [failure.trace for failure in read_failures([run])[0]] == ["bad"]
    labels = tmp_path / "labels.jsonl"
    append_label(labels, Label(trace="right", subject=("cause",), value="refused", annotator="ann"))
    append_label(labels, Label(trace="bad", subject=("cause",), value="right", annotator="ann"))
    table = RunTable(run, load_reference_scores(labels, run))
    assert [(failure.trace, failure.cause) for failure in read_failures([table])[0]] == [("right", "refused")]
    arguments = ["clusters", str(run.path), "--human-labels", str(labels)]
    assert command([*arguments, "--json"]) == 0
    assert command([*arguments, "--against", str(run.path)]) == 2


def test_single_irrelevant_chunks_are_no_failure(tmp_path: Path):
    """One irrelevant chunk among relevant ones, with all else well, is how retrieval is, and not a failure."""
    run = evaluate_pairs(tmp_path, [pair("a", "hhn", "s"), pair("b", "hh", "c")])
    assert [cluster.trace for cluster in read_failures([run])[0]] == ["b"]


class CountedRun(Run):
    """A run that counts how often its traces are read with their verdicts."""

    readings = 0

    def evidence(self, ids=None):
        self.readings += 1
        return super().evidence(ids)


def test_clustering_diagnoses_every_trace_once(tmp_path: Path):
    """One pass tells which kinds of problem are doubtful and which traces fail, also against an earlier run."""
    old, new = (CountedRun(evaluate_pairs(tmp_path / name, pairs(9)).path) for name in ("old", "new"))
    _, report = track_changes(ClusterRegistry(), [new], old, "2031-01-01")
    assert report.clusters
    assert (old.readings, new.readings) == (1, 1)


class WordJudge(FixedJudge):
    """A judge that goes by words."""

    fingerprint = "embedded/7"


def test_a_kind_as_rare_as_false_alarms_is_no_failure(tmp_path: Path):
    """What the remedies leave out makes no cluster and no failure, unless another of the runs has more of it."""
    runs = []
    for name, missed in (("rare", 8), ("often", 30)):
        traces = [
            pair(f"{at}", "h", "", missing=("the hour",) if at < missed else (), query=f"When sails ferry {at}?")
            for at in range(60)
        ]
        judge = WordJudge([seen for _, seen in traces])
        runs.append(evaluate([trace for trace, _ in traces], tmp_path / name, judge=judge))
    assert [[item.kind for item in suggest_remedies(run)] for run in runs] == [
        [],
        ["missed_refusal", "missing_context"],
    ]
    reports = [cluster_runs([runs[0]]), cluster_runs([runs[1]]), cluster_runs(runs)]
    assert [report.failures for report in reports] == [0, 30, 38]
    assert [investigate(run).sentence.split(" traces fail")[0] for run in runs] == ["0 of 60", "30 of 60"]
    _, changes = track_changes(ClusterRegistry(), [runs[1]], runs[0], "2031-01-01")
    assert sum(item.before.failures for item in changes.clusters if item.before) > 0


def test_copies_of_one_trace_are_no_trend():
    """Forty failing copies in one half of the time are one observation: nothing is known of a trend."""
    rows = np.arange(80)
    failure = FailingTrace(run=0, row=0, trace="1", query="When?", kind="absent_fact", kinds=(), text="")
    failures = [replace(failure, row=row) for row in range(40)]
    population = TracePopulation("run", "print", "2031-01-01", "lexical/8", 80, times=rows * 10**9)
    [(_, independent)] = compute_trends([failures], [population])
    [(shares, copied)] = compute_trends([failures], [population._replace(clusters=np.maximum(rows, 39))])
    assert (independent, copied) == ("falling", "cannot tell")
    assert all(point.share.clusters == 1 for point in shares if point.failures)


def test_clusters_over_runs_have_a_course(tmp_path: Path):
    """Over several runs each cluster has a point for each, and rises where the last has certainly more of it."""
    quiet = [pair(f"{name}-{at}", "h", "s") for name in TOPICS for at in range(20)]
    runs = [
        evaluate_pairs(tmp_path / "old", [*quiet, *pairs(1)]),
        evaluate_pairs(tmp_path / "new", [*quiet, *pairs(9)]),
    ]
    report = cluster_runs([runs[0].path, runs[1].path])
    assert len(report.clusters) == 3
    for cluster in report.clusters:
        assert [point.failures for point in cluster.shares] == [1, 9]
        assert cluster.trend == "rising"
        assert cluster.run_counts == (1, 9)
        assert sum(point.failures for point in cluster.shares) == cluster.size


def test_a_cluster_without_words_has_the_name_of_its_kind():
    """The name is the kind of failure, and behind it the distinctive words where there are some."""
    title = PROBLEM_KINDS["absent_fact"].title
    assert name_cluster("absent_fact", ("refund", "ticket")) == f"{title}: refund, ticket"
    assert name_cluster("absent_fact", ()) == title


def test_terms_are_of_length_one_and_tell_groups_apart():
    """The weights of the terms of a group are of length 1, and each group is told by its own word first."""
    names = distinctive_terms(
        [[failing(0, "red boat"), failing(1, "boat")], [failing(2, "red car"), failing(3, "car")]]
    )
    for item in names:
        assert np.linalg.norm(list(item.terms.values())) == pytest.approx(1, abs=1e-5)
    assert [item.words[0] for item in names] == ["boat", "car"]


def test_density_leaves_out_what_lies_apart():
    """Two tight heaps are two clusters, and a row far from both is none."""
    pytest.importorskip("sklearn", reason="clustering by density needs the extra cluster")
    rng = np.random.default_rng(0)
    rows = np.vstack([rng.normal(0, 0.01, (10, 3)), rng.normal(1, 0.01, (10, 3)), [[9.0, 9.0, 9.0]]])
    labels = cluster_by_density(rows, 5)
    assert len(set(labels[:10])) == len(set(labels[10:20])) == 1
    assert labels[0] != labels[10]
    assert labels[20] == -1


def test_an_embedder_comes_by_its_port(tmp_path: Path):
    """Another embedder is fitted where it must be, and is named."""
    pytest.importorskip("scipy", reason="the latent embedder needs the extra retrieval")
    report = cluster_runs([evaluate_pairs(tmp_path, pairs(3))], embedder=load_embedder("latent", dimensions=8))
    assert report.embedder.startswith("latent/1")
    assert "unfitted" not in report.embedder


# --- what is remembered ----------------------------------------------------------------------------


def test_reruns_change_nothing(tmp_path: Path):
    """The same run again has the same ids, and leaves the registry as it was."""
    run = evaluate_pairs(tmp_path, pairs(4))
    report = cluster_runs([run])
    first, cluster = record_clusters(ClusterRegistry(), report, [load_population(run)], "2031-01-01")
    again, two = record_clusters(first, cluster_runs([run]), [load_population(run)], "2031-01-02")
    assert again == first
    assert [item.id for item in cluster.clusters] == [item.id for item in two.clusters]
    assert all(item.new for item in cluster.clusters)
    assert not any(item.new for item in two.clusters)


def test_a_cluster_keeps_its_id_and_name_in_a_run_of_other_queries():
    """Failures of the same kind with the same words are recognised, though no query is the same."""
    old = [failing(at, f"refund of ticket {at}") for at in range(4)]
    new = [failing(at, f"the ticket refund on day {9 - at}") for at in range(5)]
    registry, first = record_clusters(ClusterRegistry(), cluster_failures(old, seen(old)), seen(old), "1")
    later = [item._replace(fingerprint="later", created="2032") for item in seen(new)]
    registry, second = record_clusters(registry, cluster_failures(new, later), later, "2")
    assert [cluster.id for cluster in first.clusters] == [cluster.id for cluster in second.clusters]
    assert first.clusters[0].name == second.clusters[0].name
    assert second.clusters[0].since == "run0"
    assert [sighting.size for sighting in registry.clusters[0].sightings] == [4, 5]


def test_other_failures_are_another_cluster():
    """What shares neither words nor failures with what is known is new, and what is known and not seen is gone."""
    old = [failing(at, f"refund of ticket {at}") for at in range(4)]
    new = [failing(at, f"dog on deck {at}", "wrong_refusal") for at in range(4)]
    registry, first = record_clusters(ClusterRegistry(), cluster_failures(old, seen(old)), seen(old), "1")
    later = [item._replace(fingerprint="later") for item in seen(new)]
    registry, second = record_clusters(registry, cluster_failures(new, later), later, "2")
    assert len(registry.clusters) == 2
    assert second.clusters[0].new
    assert second.gone == (first.clusters[0].name,)


def test_a_cluster_is_recognised_once():
    """Of two clusters that are like one that is known, the liker one is it, and the other is new."""
    old = [failing(at, f"refund of ticket {at}") for at in range(6)]
    registry, first = record_clusters(ClusterRegistry(), cluster_failures(old, seen(old)), seen(old), "1")
    new = [*old[:5], *(failing(10 + at, f"refund of ticket {20 + at}", "empty_answer") for at in range(3))]
    later = [item._replace(fingerprint="later") for item in seen(new)]
    later = [item._replace(traces=20) for item in later]
    registry, second = record_clusters(registry, cluster_failures(new, later), later, "2")
    assert [(cluster.size, cluster.new) for cluster in second.clusters] == [(5, False), (3, True)]
    assert second.clusters[0].id == first.clusters[0].id
    assert len({cluster.id for cluster in registry.clusters}) == 2


def resolved() -> tuple[ClusterRegistry, str, list[FailingTrace]]:
    """Build a registry whose one cluster is resolved."""
    failures = [failing(at, f"refund of ticket {at}") for at in range(4)]
    registry, report = record_clusters(
        ClusterRegistry(), cluster_failures(failures, seen(failures)), seen(failures), "1"
    )
    return resolve_cluster(registry, report.clusters[0].id, "2"), report.clusters[0].id, failures


@pytest.mark.parametrize(
    ("fingerprint", "created", "state"),
    [("print0", "2031-01-01", "resolved"), ("older", "2030-01-01", "resolved"), ("later", "2031-02-01", "open")],
)
def test_a_resolved_cluster_reopens_in_a_later_run_alone(fingerprint: str, created: str, state: str):
    """The same run and an older one leave it resolved; a later one opens it, and the history says so."""
    registry, name, failures = resolved()
    wholes = [item._replace(fingerprint=fingerprint, created=created) for item in seen(failures)]
    registry, report = record_clusters(registry, cluster_failures(failures, wholes), wholes, "3")
    [entry] = registry.clusters
    assert (entry.id, entry.state) == (name, state)
    assert report.clusters[0].reopened is (state == "open")
    happened = [event.kind for event in entry.history]
    assert happened == ["seen", "resolved"] + ["reopened"] * (state == "open")


def test_owners_and_states_are_stored_and_shown():
    """A cluster has an owner and may be muted; an id that is not known is refused with what there is."""
    registry, name, failures = resolved()
    registry = mute_cluster(assign_cluster(registry, name, "ann", "3"), name, "4")
    _, report = record_clusters(registry, cluster_failures(failures, seen(failures)), seen(failures), "5")
    assert (report.clusters[0].assigned, report.clusters[0].state) == ("ann", "muted")
    assert "Muted and resolved" in render_terminal(build_clusters(report))
    with pytest.raises(UnknownName, match=name):
        resolve_cluster(registry, name[:-1] + "x", "6")
    assert assign_cluster(registry, name, "", "7").clusters[0].assigned is None


def test_the_registry_comes_back_from_its_file(tmp_path: Path):
    """What was written is read; nothing is an empty registry; something else is refused."""
    registry, _, _ = resolved()
    save_registry(tmp_path / "clusters.json", registry)
    assert load_registry(tmp_path / "clusters.json") == registry
    assert load_registry(tmp_path / "none.json") == ClusterRegistry()
    (tmp_path / "odd.json").write_text('{"clusters": 3}')
    with pytest.raises(InputError, match="not a registry"):
        load_registry(tmp_path / "odd.json")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


# --- the command line and its reports --------------------------------------------------------------


def test_the_command_remembers_beside_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The registry lies beside the run; what is said of a cluster is shown the next time."""
    evaluate_pairs(tmp_path, pairs(4))
    assert command(["clusters", f"{tmp_path}/run", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    name = first["clusters"][0]["id"]
    assert {cluster["id"] for cluster in first["clusters"]} == {
        cluster.id for cluster in load_registry(tmp_path / "clusters.json").clusters
    }
    assert command(["clusters", f"{tmp_path}/run", "--assign", f"{name}=ann", "--mute", name]) == 0
    assert f"{name} muted" in capsys.readouterr().out
    assert command(["clusters", f"{tmp_path}/run", "--resolve", "c-none"]) == 2
    assert "c-none" in capsys.readouterr().err
    assert command(["clusters", f"{tmp_path}/run", "--assign", name]) == 2


def test_against_an_old_run_each_cluster_says_what_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """What the old run had is told beside each cluster; what it had not is new, and what it alone had is gone."""
    refunds = [cluster for cluster in pairs(4) if "refund" in cluster[0].id or "fine" in cluster[0].id]
    others = [cluster for cluster in pairs(4) if "refund" not in cluster[0].id]
    evaluate_pairs(tmp_path / "old", refunds + others[:4])
    evaluate_pairs(tmp_path / "new", others)
    arguments = ["clusters", f"{tmp_path}/new/run", "--against", f"{tmp_path}/old/run", "--json"]
    assert command(arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert {(cluster["kind"], cluster["new"], cluster["before"]["failures"]) for cluster in report["clusters"]} == {
        ("contradicted_claim", False, 4),
        ("unsupported_claim", True, 0),
    }
    assert any("refund" in name for name in report["gone"])


def test_the_page_carries_nothing_that_runs(tmp_path: Path):
    """Texts of traces are escaped on the page, and steer no terminal; the page names what the JSON names."""
    query = "<script>alert(1)</script> \x1b[31m refund of ticket {}"
    failures = [failing(at, query.format(at)) for at in range(4)]
    report = cluster_failures(failures, seen(failures))
    page = render_html_page(build_clusters(report), "test")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert "\x1b" not in render_terminal(build_clusters(report)) + page
    assert json.loads(encode_document(report))["clusters"][0]["name"] == report.clusters[0].name
    assert "http" not in page.split("<main>")[1]


def test_the_page_replaces_nothing_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A file that stands there is refused before anything is clustered, and so is an ending that says no format."""
    evaluate_pairs(tmp_path, pairs(2))
    out = tmp_path / "clusters.html"
    assert command(["clusters", f"{tmp_path}/run", "-o", str(out)]) == 0
    assert "of 6 failing traces (16 in all)" in out.read_text()
    assert command(["clusters", f"{tmp_path}/run", "-o", str(out)]) == 2
    assert command(["clusters", f"{tmp_path}/run", "-o", str(tmp_path / "clusters.doc")]) == 2
    assert command(["clusters", f"{tmp_path}/run", "-o", str(out), "--force"]) == 0


def test_clusters_need_a_run():
    """Without a run there is nothing to cluster, which is said; a cluster of one is refused."""
    with pytest.raises(UsageError, match="one run or more"):
        cluster_runs([])
    failures = [replace(failing(at, f"refund {at}"), kind="absent_fact") for at in range(40)]
    with pytest.raises(UsageError, match="2 failures or more"):
        cluster_failures(failures, seen(failures), min_size=1)


def test_a_cluster_holds_bad_answers_of_one_cause():
    """Failures that are alike in words are apart if their answers are bad for other causes, and named by them."""
    causes = ("not_retrieved", "refused")
    failures = [
        replace(failing(at, f"May I claim a refund for ticket {at}?"), cause=causes[at % 2], row=at) for at in range(12)
    ]
    report = cluster_failures(failures, seen(failures))
    assert {cluster.cause for cluster in report.clusters} == set(causes)
    assert sum(cluster.size for cluster in report.clusters) == len(failures)
    for cluster in report.clusters:
        assert cluster.name.startswith(CAUSES[cluster.cause].title)


def test_a_cluster_keeps_its_id_only_with_its_cause():
    """The same queries are the same cluster in a later run, and another one once they fail for another reason."""
    first = [replace(failing(at, f"May I claim a refund for ticket {at}?"), cause="refused") for at in range(6)]
    registry, before = record_clusters(ClusterRegistry(), cluster_failures(first, seen(first)), seen(first), "2031")
    for cause in ("refused", "not_retrieved"):
        later = [replace(item, cause=cause) for item in first]
        _, after = record_clusters(registry, cluster_failures(later, seen(later)), seen(later), "2032")
        assert ({item.id for item in after.clusters} == {item.id for item in before.clusters}) is (cause == "refused")
