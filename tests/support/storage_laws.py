"""Laws of every store, whatever its engine; a test module imports them and provides the fixture `at`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from ragfault import evaluate
from ragfault.apps.watch.monitoring.rollups import Rollup, add_derived, merge_by_key
from ragfault.apps.watch.server.storage.opening import open_store
from ragfault.apps.watch.server.storage.records import (
    AccessToken,
    AlertEvent,
    AuditRecord,
    BrowserSession,
    EventCount,
    TimelineMark,
    TraceComment,
    TraceSelection,
)
from ragfault.apps.watch.server.storage.run_transfer import export_run, import_run
from ragfault.apps.watch.server.storage.store import TraceStore
from ragfault.evaluation.online.scorer import TraceScorer
from ragfault.io.datasets.demo_handbook import load_handbook
from ragfault.io.runs.run import Run
from ragfault.labels.reading.lines import AnswerLabel, HumanVerdicts, LabelLine
from ragfault.model.errors import OutputError, UsageError
from ragfault.model.records import Chunk, Gold, Trace
from remembered import LEXICAL

duckdb = pytest.importorskip("duckdb", reason="the store needs the extra `server`")

METRICS = ("context_relevance", "groundedness", "answer_relevance", "latency")
SCORING = TraceScorer(LEXICAL, metrics=METRICS)


def judge_traces(count: int = 40) -> list:
    """Return some traces of the demo, judged."""
    return [SCORING(trace) for trace in load_handbook().traces["v1"][:count]]


def fill_store(place: str | Path, outcomes: list) -> TraceStore:
    """Return a store that holds these."""
    store = open_store(place)
    store.append_traces([row.trace for row in outcomes]).result()
    store.add_outcomes(outcomes, list_measures(), cohort_fields=("model",)).result()
    return store


def list_measures():
    from ragfault.evaluation.evaluator import describe_metric

    return tuple(map(describe_metric, SCORING.metrics))


Place = Callable[[Path], str | Path]
"""Where a store is, for a folder of a test."""


@pytest.fixture(scope="module")
def filled_store(at: Place, tmp_path_factory: pytest.TempPathFactory):
    outcomes = judge_traces()
    store = fill_store(at(tmp_path_factory.mktemp("store") / "s"), outcomes)
    yield store, outcomes
    store.close()


def list_pages(store: TraceStore, selection: TraceSelection) -> list[str]:
    """Return the ids of a selection, walked page by page."""
    ids: list[str] = []
    while True:
        page = store.list_traces(selection)
        ids += [line.id for line in page.lines]
        if page.next is None:
            return ids
        selection = replace(selection, after=page.next)


def test_a_page_ends_before_a_megabyte(at: Place, tmp_path: Path):
    """However long ids, texts and errors are, a page is at most 1 MB as JSON, and all pages together list each once."""
    store = open_store(at(tmp_path))
    long = "ü" * 400
    sent = [Trace(id=f"{at}-{'i' * 500}", query=long, answer=long, error=long * 9, model=long) for at in range(600)]
    store.append_traces(sent).result()
    page = store.list_traces(TraceSelection(limit=1000))
    assert 100 < len(page.lines) < 600
    assert len(msgspec.json.encode(page)) <= 1_000_000
    assert sorted(list_pages(store, TraceSelection(limit=1000))) == sorted(trace.id for trace in sent)
    store.close()


# --- once each -------------------------------------------------------------------------------------


def test_what_was_taken_first_stays(at: Place, tmp_path: Path):
    """A second trace of the same id changes nothing of the first, also after the store was opened anew."""
    store = open_store(at(tmp_path))
    store.append_traces([Trace(id="a", query="first")]).result()
    store.close()
    store = open_store(at(tmp_path))
    assert store.append_traces([Trace(id="a", query="second")]).result().duplicates == 1
    assert store.get_trace("a").trace.query == "first"
    store.close()


def test_a_trace_round_trips(filled_store):
    """Trace, verdicts and scores are what went in."""
    store, outcomes = filled_store
    for row in outcomes[:10]:
        stored = store.get_trace(row.trace.id)
        assert (stored.trace, stored.verdicts, stored.scores) == (row.trace, row.verdicts, row.scores)
        assert stored.state == "scored"
    assert store.get_trace("nobody") is None


def test_judging_twice_counts_once(at: Place, tmp_path: Path):
    """Outcomes that come again change no score and no roll-up."""
    outcomes = judge_traces(10)
    store = fill_store(at(tmp_path), outcomes)
    before = store.read_rollups(0, 2**31 - 1, cohort=None)
    assert store.add_outcomes(outcomes, list_measures()).result() == 0
    assert store.read_rollups(0, 2**31 - 1, cohort=None) == before
    store.close()


def test_a_failed_write_costs_no_other(at: Place, tmp_path: Path):
    """Where one of several writes in a transaction fails, the others are done."""
    store = open_store(at(tmp_path))
    bad = Trace(id="bad", query="\ud800")
    futures = [store.append_traces([trace]) for trace in (Trace(id="a", query="q"), bad, Trace(id="b", query="q"))]
    assert futures[0].result().added == futures[2].result().added == 1
    assert futures[1].exception() is not None
    assert sorted(list_pages(store, TraceSelection())) == ["a", "b"]
    store.close()


# --- what waits --------------------------------------------------------------------------------------


def test_unscored_traces_survive_a_restart(at: Place, tmp_path: Path):
    """A store that was closed before its traces were judged gives them out in the order of arrival."""
    outcomes = judge_traces(6)
    store = open_store(at(tmp_path))
    store.append_traces([row.trace for row in outcomes]).result()
    store.add_outcomes(outcomes[:2], list_measures()).result()
    store.close()
    store = open_store(at(tmp_path))
    waiting = store.list_unscored()
    assert [row.trace for row in waiting] == [row.trace for row in outcomes[2:]]
    assert [row.trace.id for row in store.list_unscored(after=waiting[0].number, limit=2)] == [
        row.trace.id for row in outcomes[3:5]
    ]
    assert store.compute_totals().waiting == 4
    store.close()


def test_a_pending_body_goes_with_its_trace(at: Place, tmp_path: Path):
    """What is held survives closing, and is let go of in the write that adds its trace."""
    store = open_store(at(tmp_path))
    numbers = store.add_pending([b"one", b"two"]).result()
    store.close()
    store = open_store(at(tmp_path))
    assert [row.body for row in store.list_pending()] == [b"one", b"two"]
    store.append_traces([Trace(id="a", query="q")], released=numbers[:1]).result()
    assert [row.body for row in store.list_pending()] == [b"two"]
    store.close()


# --- pages -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sort", ["time", "groundedness", "context_relevance"])
@pytest.mark.parametrize("order", ["ascending", "descending"])
@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_pages_meet_everything_once(filled_store, sort, order, limit):
    """Whatever the sorting and the length of a page, walking meets each trace of the selection once, in order."""
    store, _ = filled_store
    ids = list_pages(store, TraceSelection(sort=sort, order=order, limit=limit))
    assert len(ids) == len(set(ids)) > 30
    lines = {line.id: line for line in store.list_traces(TraceSelection(limit=1000)).lines}
    keys = [lines[name].time if sort == "time" else lines[name].values[sort] for name in ids]
    assert keys == sorted(keys, reverse=order == "descending")


def test_a_trace_that_comes_meanwhile_disturbs_no_page(at: Place, tmp_path: Path):
    """What comes in while pages are walked makes none of the others be met twice or not at all."""
    store = open_store(at(tmp_path))
    store.append_traces([Trace(id=str(n), query="q", time=datetime.fromtimestamp(n, UTC)) for n in range(9)]).result()
    page = store.list_traces(TraceSelection(limit=4))
    store.append_traces([Trace(id="new", query="q", time=datetime.fromtimestamp(99, UTC))]).result()
    rest = list_pages(store, TraceSelection(limit=4, after=page.next))
    assert [line.id for line in page.lines] + rest == [str(n) for n in range(8, -1, -1)]
    store.close()


def test_filters_are_those_of_the_traces(filled_store):
    """Each filter finds what looking at every trace finds."""
    store, outcomes = filled_store
    route = outcomes[0].trace.route
    checks = {
        TraceSelection(route=route): lambda row: row.trace.route == route,
        TraceSelection(text="FERRY"): lambda row: "ferry" in (row.trace.query + (row.trace.answer or "")).lower(),
        TraceSelection(metric="groundedness", high=0.5): lambda row: row.values.get("groundedness", 1) <= 0.5,
        TraceSelection(metric="groundedness", low=1.0): lambda row: row.values.get("groundedness", 0) >= 1,
        TraceSelection(state="waiting"): lambda row: False,
        TraceSelection(judge=SCORING.judge.fingerprint): lambda row: True,
        TraceSelection(ids=(outcomes[3].trace.id, "nobody")): lambda row: row.trace.id == outcomes[3].trace.id,
        TraceSelection(until=outcomes[5].trace.time.timestamp()): lambda row: row.trace.time < outcomes[5].trace.time,
    }
    for selection, keep in checks.items():
        there = {row.trace.id for row in outcomes if keep(row)}
        assert set(list_pages(store, replace(selection, limit=9))) == there, selection
        assert store.count_traces(selection) == len(there)


@pytest.mark.parametrize("key", ["", "x", "AAAA", "W10", "bnVsbA", "WzFlOTk5LDFd", "é"])
def test_a_key_that_is_none_is_refused(filled_store, key):
    """What is not the key of a page is a usage error, and nothing else."""
    store, _ = filled_store
    if key:
        with pytest.raises(UsageError):
            store.list_traces(TraceSelection(after=key))
    with pytest.raises(UsageError):
        store.list_traces(TraceSelection(limit=0))


# --- roll-ups ----------------------------------------------------------------------------------------


def test_rollups_are_sums_over_their_traces(filled_store):
    """For every metric and route, count and sum are those of the scores, at any grain, tidied or not."""
    store, outcomes = filled_store
    for grain in (1, 60, 2**31 - 1):
        rollups = store.read_rollups(0, 2**31 - 1, grain=grain)
        for name in METRICS:
            values = [row.values[name] for row in outcomes if name in row.values]
            assert sum(row.n for row in rollups if row.metric == name) == len(values)
            total = sum(row.sum for row in rollups if row.metric == name)
            assert total == pytest.approx(sum(values), rel=1e-4, abs=1e-3)
    before = store.read_rollups(0, 2**31 - 1, cohort=None)
    store.compact().result()
    assert store.read_rollups(0, 2**31 - 1, cohort=None) == before
    assert {row.cohort for row in store.read_rollups(0, 2**31 - 1, cohort="*")} > {"model=gpt-4o-mini"}


def test_rollups_do_not_depend_on_batches(at: Place, filled_store, tmp_path: Path):
    """Judged one by one, in the other order, with tidying in between, the roll-ups are the same."""
    store, outcomes = filled_store
    other = open_store(at(tmp_path))
    other.append_traces([row.trace for row in outcomes]).result()
    for at, row in enumerate(reversed(outcomes)):
        other.add_outcomes([row], list_measures(), cohort_fields=("model",)).result()
        if at % 9 == 0:
            other.compact().result()
    for grain in (1, 15):
        first, two = (row.read_rollups(0, 2**31 - 1, grain=grain, cohort=None) for row in (store, other))
        assert [round_rollup(row) for row in first] == [round_rollup(row) for row in two]
    other.close()


def round_rollup(row: Rollup) -> tuple:
    return (row.key, row.n, round(row.sum, 6), row.bins, row.undefined, row.failed)


def test_rollups_come_merged(filled_store):
    """No two roll-ups have one key."""
    store, _ = filled_store
    rollups = store.read_rollups(0, 2**31 - 1, cohort=None, grain=15)
    assert len(merge_by_key(rollups)) == len(rollups)


def test_rollups_by_hour_are_sums_of_those_by_minute(filled_store):
    """Whole hours are read from tables of their own, which say the same as minutes do; so are sums of products."""
    store, _ = filled_store
    end = 2**31 // 60 * 60
    for cohort in ("", "*", None):
        minutes = [
            replace(row, minute=row.minute - row.minute % 60) for row in store.read_rollups(0, end, cohort=cohort)
        ]
        assert list(map(round_rollup, store.read_rollups(0, end, cohort=cohort, grain=60))) == list(
            map(round_rollup, merge_by_key(minutes))
        )
    hours, minutes = (store.read_products(0, last, end) for last in (end, end - 1))
    assert hours
    assert [(row.first, row.second, row.route, row.n) for row in hours] == [
        (row.first, row.second, row.route, row.n) for row in minutes
    ]
    assert [row.xy for row in hours] == pytest.approx([row.xy for row in minutes])


def test_rollups_of_some_cohorts_are_those_of_each(filled_store):
    """Several cohorts over all routes are read at once, as routes of their own, and others are left out."""
    store, _ = filled_store
    end = 2**31 // 60 * 60
    known = sorted({row.cohort for row in store.read_rollups(0, end, cohort="*") if row.route is None})
    assert len(known) > 2
    for grain in (1, 60):
        alone = [
            row
            for cohort in known[:2]
            for row in store.read_rollups(0, end, route=f"cohort {cohort}", grain=grain, bins=False)
        ]
        several = store.read_cohort_rollups([*known[:2], "model=none"], 0, end, grain=grain)
        assert sorted(several, key=repr) == sorted(alone, key=repr)
    assert store.read_cohort_rollups([], 0, end) == ()


def test_products_merge_to_those_of_the_window(filled_store):
    """Products over a long grain are the sums of those by minute, one for each pair and route."""
    store, _ = filled_store
    by_minute, merged = (store.read_products(0, 2**31 - 1, grain=grain) for grain in (1, 2**31 - 1))
    keys = {(row.first, row.second, row.route) for row in by_minute}
    assert len(merged) == len(keys) > 0
    for row in merged:
        parts = [
            part for part in by_minute if (part.first, part.second, part.route) == (row.first, row.second, row.route)
        ]
        assert (row.n, row.xy) == (sum(part.n for part in parts), pytest.approx(sum(part.xy for part in parts)))


def test_the_worst_are_the_worst(filled_store):
    """The worst traces of a metric are those of the least values, or the greatest where lower is better."""
    store, outcomes = filled_store
    for name, sign in (("groundedness", 1), ("latency", -1)):
        values = sorted(sign * row.values[name] for row in outcomes if name in row.values)
        assert [row.badness for row in store.read_worst_traces(name, 0, 2**31 - 1, limit=7)] == values[:7]
        routes = {row.trace.route or "" for row in outcomes}
        by_route = store.read_worst_by_route({name: sign * math.inf}, 0, 2**31 - 1, limit=3)
        assert by_route == {
            (name, route): worst
            for route in routes
            if (worst := store.read_worst_traces(name, 0, 2**31 - 1, route=route, limit=3))
        }
        fence = values[len(values) // 2] * sign
        beyond = store.read_worst_by_route({name: fence}, 0, 2**31 - 1, limit=10_000)
        badness = sorted(row.badness for rows in beyond.values() for row in rows)
        assert badness == [value for value in values if value < sign * fence]
    assert store.read_worst_traces("nothing", 0, 9) == ()
    assert store.read_worst_by_route({}, 0, 9) == {}


def test_measures_are_those_that_were_met(filled_store):
    """Metrics are known by name, range and direction, those that are derived too."""
    store, _ = filled_store
    assert store.read_measures() == add_derived(list_measures())


# --- the rest ----------------------------------------------------------------------------------------


def test_metadata_survives_a_restart(at: Place, tmp_path: Path):
    """Marks, events, labels, settings, tokens and counts are there when the store is opened anew."""
    store = open_store(at(tmp_path))
    mark = TimelineMark(text="release 7", time=datetime(2031, 5, 4, tzinfo=UTC))
    assert [store.add_marks([mark], 0.0).result() for _ in range(2)] == [1, 0]
    store.add_events([AlertEvent(alert="a", time=1.0, kind="firing")], {"alarms": {"x": 1}}).result()
    label = LabelLine(trace="t", by="ann", verdicts=HumanVerdicts(answer=AnswerLabel(refused=False)))
    store.add_label(label).result()
    store.save_setting("theme", "dark").result()
    token = AccessToken(name="ci", role="ingest", hash="00", created=1.0)
    store.save_token(token).result()
    store.save_token(replace(token, role="read")).result()
    session = BrowserSession(hash="aa", token="00", created=1.0, expires=9.0, address="::1")
    store.save_session(session).result()
    comments = [TraceComment(trace="t", text=text, by="ann", time=1.0) for text in ("first", "second")]
    for comment in (*comments, TraceComment(trace="u", text="other", by="ann", time=1.0)):
        store.add_comment(comment).result()
    audit = [AuditRecord(time=float(at), who="ann", action="label", target=str(at)) for at in range(4)]
    for record in audit:
        store.add_audit(record).result()
    store.delete_audit(1.0).result()
    store.add_counts([EventCount("dropped", 5, 2), EventCount("dropped", 5, 3)]).result()
    store.close()
    store = open_store(at(tmp_path))
    assert [row.text for row in store.read_marks()] == ["release 7"]
    assert [row.kind for row in store.read_events("a")] == ["firing"]
    assert store.read_labels("t") == (label,)
    assert (store.read_setting("theme"), store.read_setting("alarms"), store.read_setting("none", 3)) == (
        "dark",
        {"x": 1},
        3,
    )
    assert [row.role for row in store.read_tokens()] == ["read"]
    assert store.read_sessions() == (session,)
    assert store.read_comments("t") == tuple(comments)
    assert store.read_audit() == tuple(reversed(audit[1:]))
    assert store.read_audit(until=3.0, limit=1) == (audit[2],)
    store.delete_session("aa").result()
    assert store.read_sessions() == ()
    assert store.read_counts() == (EventCount("dropped", 5, 5),)
    store.delete_token("ci").result()
    store.save_setting("theme", None).result()
    assert (store.read_tokens(), store.read_setting("theme")) == ((), None)
    store.close()


def test_expired_traces_are_deleted(at: Place, tmp_path: Path):
    """By age all that came earlier go, by size the first to come; roll-ups stay, and what went can come again."""
    outcomes = judge_traces(30)
    store = fill_store(at(tmp_path), outcomes)
    rolled = store.read_rollups(0, 2**31 - 1)
    bound = store.get_trace(outcomes[10].trace.id).received
    assert store.delete_expired(before=bound).result() == 10
    assert set(list_pages(store, TraceSelection())) == {row.trace.id for row in outcomes[10:]}
    assert store.read_rollups(0, 2**31 - 1) == rolled
    assert store.append_traces([outcomes[0].trace]).result().added == 1
    before = store.compute_totals().traces
    assert 0 < store.delete_expired(max_bytes=store.compute_totals().bytes * 2 // 3).result() < before
    assert store.delete_expired(max_bytes=10**12).result() == 0
    store.close()


def test_conversations_are_listed_by_their_last_trace(at: Place, tmp_path: Path):
    """Each conversation is there once with its turns, failures and first query; page by page all of them are."""
    store = open_store(at(tmp_path))
    began = datetime(2031, 5, 4, tzinfo=UTC)
    traces = [
        Trace(
            id=f"{name}-{turn}",
            query=f"{name} {turn}?",
            conversation=name,
            time=began + timedelta(minutes=10 * turn + late),
            error="broken" if turn else None,
        )
        for late, name in enumerate(("ann", "böb", "eve"))
        for turn in (1, 0)
    ]
    store.append_traces([*traces, Trace(id="x", query="alone"), Trace(id="y", query="empty", conversation="")]).result()
    shown = store.list_conversations()
    assert [(row.id, row.traces, row.errors, row.query) for row in shown] == [
        (name, 2, 1, f"{name} 0?") for name in ("eve", "böb", "ann")
    ]
    assert (shown[2].first, shown[2].last) == (began.timestamp(), began.timestamp() + 600)
    assert store.list_conversations(limit=1) == shown[:1]
    assert store.list_conversations(until=shown[0].last) == shown[1:]
    store.close()


def test_a_clock_of_elsewhere_deletes_nothing(at: Place, tmp_path: Path):
    """A trace expires by its arrival: a sender whose clock is days behind or ahead loses nothing and keeps nothing."""
    store = open_store(at(tmp_path))
    now = datetime.now(UTC)
    days = {"behind": -3, "right": 0, "ahead": 2}
    store.append_traces([Trace(id=name, query="q", time=now + timedelta(days=days[name])) for name in days]).result()
    assert store.delete_expired(before=now.timestamp() - 60).result() == 0
    assert store.compute_totals().traces == 3
    assert store.delete_expired(before=now.timestamp() + 60).result() == 3
    store.close()


# --- runs --------------------------------------------------------------------------------------------


def test_an_export_is_the_run_that_evaluate_makes(filled_store, tmp_path: Path):
    """The same traces, judge and metrics give the same run, whether they came live or from a file."""
    store, outcomes = filled_store
    live = export_run(store, TraceSelection(), tmp_path / "live")
    traces = [row.trace for row in outcomes]
    two = evaluate(traces, tmp_path / "made", judge="lexical", metrics=list(METRICS))
    assert live.manifest.gold == two.manifest.gold
    for name in ("traces", "verdicts", "scores"):
        assert live.to_arrow(name).equals(two.to_arrow(name))
    same = ("judge", "metrics", "fingerprint", "traces", "scored", "undefined", "failed")
    assert all(getattr(live.manifest, row) == getattr(two.manifest, row) for row in same)


@pytest.mark.parametrize("gold", ["apply", "ignore"])
def test_an_exported_run_says_whether_gold_was_applied(at: Place, tmp_path: Path, gold: str):
    """A run that is imported and exported keeps its use of gold, which its scores show."""
    chunk = Chunk(id="a", text="The harbour opens at six.")
    trace = Trace(id="1", query="Who sings?", chunks=(chunk,), answer="At six.", gold=Gold(chunks={"a": 1.0}))
    run = evaluate([trace], tmp_path / "run", judge="lexical", metrics=["context_relevance"], gold=gold)
    store = open_store(at(tmp_path / "store"))
    import_run(store, run)
    assert export_run(store, TraceSelection(), tmp_path / "exported").manifest.gold == gold
    store.close()


@pytest.mark.parametrize("gold", [None, "apply", "ignore"])
def test_an_export_of_both_uses_of_gold_is_the_run_of_one(at: Place, tmp_path: Path, gold: str | None):
    """Traces that were scored with gold and without it are exported as if all were scored in one way, which is told."""
    chunk = Chunk(id="a", text="The harbour opens at six.")
    traces = [
        Trace(id=n, query="Who sings?", chunks=(chunk,), answer="At six.", gold=Gold(chunks={"a": 1.0})) for n in "12"
    ]
    store = open_store(at(tmp_path / "store"))
    for trace, mode in zip(traces, ("apply", "ignore"), strict=True):
        import_run(store, evaluate([trace], tmp_path / mode, judge="lexical", metrics=["context_relevance"], gold=mode))
    notices: list[str] = []
    run = export_run(store, TraceSelection(), tmp_path / "out", gold=gold, notice=notices.append)
    same = evaluate(traces, tmp_path / "all", judge="lexical", metrics=["context_relevance"], gold=gold or "apply")
    assert run.to_arrow("scores").equals(same.to_arrow("scores"))
    assert run.manifest.gold == (gold or "apply")
    assert notices[0].startswith(f"1 trace was scored with gold {'applied' if gold == 'ignore' else 'ignored'}")
    store.close()


def test_an_export_of_a_part_is_that_part(filled_store, tmp_path: Path):
    """A selection is exported as it is found; an empty one is refused; what waits is told."""
    store, outcomes = filled_store
    route = outcomes[0].trace.route
    run = export_run(store, TraceSelection(route=route), tmp_path / "part")
    assert [trace.id for trace in run.traces()] == [e.trace.id for e in outcomes if e.trace.route == route]
    with pytest.raises(UsageError, match="nothing to export"):
        export_run(store, TraceSelection(route="nowhere"), tmp_path / "none")
    with pytest.raises(OutputError):
        export_run(store, TraceSelection(), tmp_path / "part")


def test_an_export_of_live_traffic_holds_together(at: Place, tmp_path: Path):
    """What is judged while an export is written is not in it; an export during which traces are deleted fails."""
    outcomes = judge_traces()[:5]
    store = open_store(at(tmp_path / "s"))
    store.append_traces([row.trace for row in outcomes]).result()
    store.add_outcomes(outcomes[1:], list_measures()).result()

    def late(_: str) -> None:
        store.add_outcomes(outcomes[:1], list_measures()).result()

    run = export_run(store, TraceSelection(), tmp_path / "run", notice=late)
    ids = [row.trace.id for row in outcomes[1:]]
    assert [trace.id for trace in run.traces()] == ids == [row.trace for row in run.verdicts()]
    assert [score.trace for score in run.scores()] == [row for row in ids for _ in run.manifest.metrics]
    store.append_traces([Trace(id="waits", query="q")]).result()
    with pytest.raises(OutputError, match="deleted"):
        export_run(
            store, TraceSelection(), tmp_path / "gone", notice=lambda _: store.delete_expired(before=2.0**40).result()
        )
    assert not (tmp_path / "gone").exists()
    store.close()


def test_an_import_is_undone_by_an_export(at: Place, filled_store, tmp_path: Path):
    """A run that is taken in and exported again is the same run; a prefix keeps two of them apart."""
    store, _ = filled_store
    run = export_run(store, TraceSelection(), tmp_path / "run")
    other = open_store(at(tmp_path / "other"))
    assert import_run(other, run).added == run.manifest.traces
    assert import_run(other, run).duplicates == run.manifest.traces
    back = export_run(other, TraceSelection(), tmp_path / "back")
    for name in ("traces", "verdicts", "scores"):
        assert back.to_arrow(name).equals(run.to_arrow(name))
    assert import_run(other, Run.open(run.path), prefix="again/").added == run.manifest.traces
    other.close()


def test_two_judges_are_not_mixed(at: Place, tmp_path: Path):
    """A selection that two judges saw is exported only when one is named; what still waits is told of."""
    chunk = Chunk(id="c", text="At noon the ferry leaves.")
    traces = [Trace(id=n, query="When?", chunks=(chunk,), answer="At noon.") for n in "abc"]
    store = open_store(at(tmp_path / "s"))
    store.append_traces(traces).result()
    none = TraceScorer("none", metrics=METRICS)
    store.add_outcomes([SCORING(traces[0]), none(traces[1])], list_measures()).result()
    with pytest.raises(UsageError, match="several judges"):
        export_run(store, TraceSelection(), tmp_path / "run")
    notices: list[str] = []
    run = export_run(store, TraceSelection(judge=none.judge.fingerprint), tmp_path / "run", notice=notices.append)
    assert [trace.id for trace in run.traces()] == ["b"]
    assert "2 traces are left out" in notices[0]
    store.close()


def test_readers_do_not_wait_for_the_writer(at: Place, tmp_path: Path):
    """While batches are written, pages are read, and each shows whole batches only."""
    store = open_store(at(tmp_path))
    end = time.monotonic() + 1.0
    futures = []
    while time.monotonic() < end:
        at = len(futures)
        futures.append(store.append_traces([Trace(id=f"{at}-{n}", query="q") for n in range(10)]))
        assert store.compute_totals().traces % 10 == 0
    assert sum(future.result().added for future in futures) == store.compute_totals().traces
    store.close()
