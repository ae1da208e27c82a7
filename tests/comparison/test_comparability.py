"""Comparability of two runs: differences of the record are named, left out, and never blamed on a layer."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from benchmarks.faults.changes import invent
from benchmarks.faults.situations import EXIT_CODES, SITUATIONS, build_pair, expect, load_demo_traces
from ragfault.comparison.bisection import bisect
from ragfault.comparison.compare import compare
from ragfault.comparison.gate.gate import gate
from ragfault.comparison.paired_runs import pair_runs
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.runs.run import Run
from ragfault.model.errors import RunError
from ragfault.model.records import Chunk, Gold, Span, Trace
from ragfault.report.json_documents import encode_document
from remembered import LEXICAL
from sample_runs import Pair, evaluate_system, make_verdicts

N = 120
TEXT = "The ferry sails at {0} past nine from berth {0}. Tickets cost {0} pounds and are sold on board until noon"


def worded(pairs: Sequence[Pair]) -> list[Pair]:
    """Give the chunks texts long enough to clip."""
    return [(on_chunks(trace, lambda c: replace(c, text=TEXT.format(c.id))), seen) for trace, seen in pairs]


def on_chunks(trace: Trace, change: Callable[[Chunk], Chunk]) -> Trace:
    return replace(trace, chunks=tuple(map(change, trace.chunks or ())))


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return evaluate_system(tmp_path_factory.mktemp("base") / "old", worded(make_verdicts(N, 1)))


def alter(place: Path, change: Callable[[Trace], Trace], share: float = 1.0, seed: int = 1, **faults: float) -> Run:
    """Evaluate a system with the traces of a share changed."""
    pairs = worded(make_verdicts(N, seed, **faults))
    return evaluate_system(place, [(change(t) if at < share * N else t, v) for at, (t, v) in enumerate(pairs)])


def edit_gold(trace: Trace) -> Trace:
    return replace(trace, gold=Gold(chunks={f"{trace.id}-2": 1.0}))


def rename(trace: Trace) -> Trace:
    return on_chunks(trace, lambda chunk: replace(chunk, id=f"v2/{chunk.id}"))


def clip(trace: Trace) -> Trace:
    return on_chunks(trace, lambda chunk: replace(chunk, text=chunk.text[:40]))


MISMATCHES = {
    "queries": (lambda t: replace(t, query=f"Who was {t.id}?"), "the queries differ on 50 % of pairs"),
    "labels": (edit_gold, "labels (gold) differ on 50 % of pairs"),
    "texts": (clip, "clipped in the record"),
    "fields": (lambda t: replace(t, chunks=None), "chunks are not recorded in the candidate on 50 % of pairs"),
}


def test_chunks_under_mostly_new_ids_are_cut_anew_and_not_clipped(tmp_path: Path):
    """Where an id says at which character its chunk begins, few chunks of a finer cut have the id of a longer one."""
    words = [f"word{number}" for number in range(6000)]
    runs = []
    for name, size, step in (("old", 60, 60), ("new", 6, 66)):  # the first and each eleventh begin where old ones do
        starts = [(number * step) % 5940 for number in range(3 * N)]
        chunks = [Chunk(id=f"a.md#{at}", text=" ".join(words[at : at + size])) for at in starts]
        traces = [
            Trace(
                id=f"{at}", query=f"Where is word{at}?", chunks=tuple(chunks[3 * at : 3 * at + 3]), answer=f"Word {at}."
            )
            for at in range(N)
        ]
        runs.append(evaluate(traces, tmp_path / name, judge=LEXICAL))
    assert "clipped" not in bisect(*runs).sentence


def test_texts_that_a_window_cuts_are_counted_also_where_others_are_not(tmp_path: Path):
    """Last chunks that are clipped in some traces and whole in others are named on all pairs that have one clipped."""
    shared = [Chunk(id=f"s{at}", text=f"Pier {at} opens at six and closes late in the evening.") for at in range(5)]

    def build(cut: bool) -> list[Trace]:
        last = [[replace(chunk, text=chunk.text[:30]), chunk] for chunk in shared]
        return [
            Trace(
                id=str(at),
                query=f"When does ferry {at} leave?",
                chunks=(Chunk(id=f"own{at}", text=f"Ferry {at} leaves at nine."), last[at % 5][not cut or at % 2]),
                answer=f"Ferry {at} leaves at nine.",
            )
            for at in range(N)
        ]

    runs = [evaluate(build(cut), tmp_path / str(cut), judge=LEXICAL, metrics=["groundedness"]) for cut in (False, True)]
    expected = "under the same ids on 50 % of pairs: clipped in the record, or before it"
    assert expected in bisect(*runs).sentence
    assert expected.replace("candidate", "baseline") in bisect(*reversed(runs)).sentence


@pytest.mark.parametrize("kind", MISMATCHES)
def test_a_mismatch_is_named_and_blocks(baseline: Run, tmp_path: Path, kind: str):
    """It is said with its share, no layer is blamed, and neither "no fault" nor a pass comes of it."""
    change, words = MISMATCHES[kind]
    new = alter(tmp_path / "new", change, 0.5)
    bisection = bisect(baseline, new, margin=0.3)
    assert bisection.verdict == "cannot tell"
    assert words in bisection.sentence
    [mismatch] = bisection.comparison.mismatches
    assert (mismatch.kind, mismatch.pairs, mismatch.share) == (kind, N // 2, 0.5)
    assert gate(new, baseline=baseline, max_drop=0.3).exit_code == 3
    assert f'"kind": "{kind}"' in encode_document(compare(baseline, new))


def test_edited_labels_are_left_out_where_they_differ(baseline: Run, tmp_path: Path):
    """Recall is compared on the pairs whose gold is the same on both sides, and on no other."""
    comparison = compare(baseline, alter(tmp_path / "new", edit_gold, 0.25), metrics=["recall@3", "groundedness"])
    counts = {change.metric: change.n for change in comparison.changes}
    assert counts == {"recall@3": N * 3 // 4, "groundedness": N}
    assert comparison.mismatches[0].left_out == ("recall@3",)


def test_gold_of_a_corpus_cut_anew_is_no_edited_label(baseline: Run, tmp_path: Path):
    """Where gold names new ids of the same spans, and each run knows its own ids only, the labels are the same."""
    span = Span(document="d", start=0, end=9)

    def label(name: str) -> Callable[[Trace], Trace]:
        return lambda t: replace(t, gold=Gold(chunks={f"{t.id}-0{name}": 1.0}, spans=(span,)))

    def cut(trace: Trace) -> Trace:
        return label("n")(on_chunks(trace, lambda c: replace(c, id=f"{c.id}n", text=c.text[len(c.text) // 2 :])))

    old = alter(tmp_path / "old", label(""))
    assert not compare(old, alter(tmp_path / "new", cut)).mismatches
    assert compare(old, alter(tmp_path / "edited", label("n"))).mismatches[0].kind == "labels"


def test_renamed_ids_follow_their_texts(baseline: Run, tmp_path: Path):
    """Chunks under new ids are the old ones by their text: recall stays, the mismatch is said, nothing is blocked."""
    bisection = bisect(baseline, alter(tmp_path / "new", rename, 0.4), margin=0.3)
    assert bisection.verdict == "no fault"
    assert "gold is re-anchored by text" in bisection.sentence
    recall = next(change for change in bisection.comparison.changes if change.metric == "recall@3")
    assert recall.difference is not None
    assert recall.difference.mean == 0
    assert not any(clue.name == "ids" for clue in bisection.differences)


def test_texts_lost_under_some_ids_are_a_difference_of_the_record(baseline: Run, tmp_path: Path):
    """Where ids that have text in one run have none in the other, metrics that read texts are left out there."""
    new = alter(
        tmp_path / "new", lambda t: on_chunks(t, lambda c: replace(c, text="" if c.id.endswith("2") else c.text))
    )
    bisection = bisect(baseline, new, margin=0.3)
    assert not bisection.faults
    assert "chunk texts are not recorded in the candidate on 100 % of pairs" in bisection.sentence


def test_renumbered_ids_follow_their_texts(baseline: Run, tmp_path: Path):
    """An old id that now stands for another text does not count as the gold it was."""

    def rotate(trace: Trace) -> Trace:
        ids = [chunk.id for chunk in trace.chunks or ()]
        turned = dict(zip(ids, [*ids[1:], ids[0]], strict=True))
        return on_chunks(trace, lambda chunk: replace(chunk, id=turned[chunk.id]))

    assert bisect(baseline, alter(tmp_path / "new", rotate), margin=0.3).verdict == "no fault"


@pytest.mark.long
def test_renamed_ids_hide_no_fault(baseline: Run, tmp_path: Path):
    """Ids renamed on half of the traces hide no loss of relevant chunks."""
    bisection = bisect(baseline, alter(tmp_path / "new", rename, 0.5, seed=2, retrieval=0.4))
    assert bisection.verdict == "fault"
    assert bisection.faults[0].layer == "retrieval"


def test_a_mismatch_hides_no_fault(baseline: Run, tmp_path: Path):
    """Answers that leave out facts are found although the chunk texts are clipped."""
    bisection = bisect(baseline, alter(tmp_path / "new", clip, seed=2, truncation=0.4))
    assert [fault.layer for fault in bisection.faults] == ["generation"]
    assert "clipped in the record" in bisection.sentence


def test_edited_texts_under_new_ids_follow_what_is_left_of_them(baseline: Run, tmp_path: Path):
    """A passage whose id and some words changed is still the gold that it was."""

    def edit(trace: Trace) -> Trace:
        return on_chunks(trace, lambda c: replace(c, id=f"{c.id}@v2", text=f"{c.text} on Sundays"))

    bisection = bisect(baseline, alter(tmp_path / "new", edit), margin=0.3)
    assert bisection.verdict == "no fault"
    assert "with the same text, or nearly, on 100 %" in bisection.sentence


def test_other_texts_under_new_ids_are_other_chunks(baseline: Run, tmp_path: Path):
    """Ids that are all new do not make passages of other words the same."""

    def other(trace: Trace) -> Trace:
        return on_chunks(trace, lambda c: replace(c, id=f"{c.id}@v2", text=f"Museum {c.id} shows nets, ropes and maps"))

    assert pair_runs(baseline, alter(tmp_path / "new", other)).renamed_ids is None


def test_case_and_final_marks_make_no_other_query(baseline: Run, tmp_path: Path):
    """A query without its question mark is the same query."""
    new = alter(tmp_path / "new", lambda t: replace(t, query=f"{t.query.upper()} ?"))
    assert not compare(baseline, new).mismatches


@pytest.mark.parametrize(("share", "verdict"), [(0.4, "cannot tell"), (0.8, "no fault")])
def test_traces_without_a_partner_are_counted_in_the_verdict(tmp_path: Path, share: float, verdict: str):
    """How many traces of the candidate were not compared is said; where most were not, nothing is shown of it."""
    pairs = make_verdicts(N, 1)
    old = evaluate_system(tmp_path / "old", pairs[: int(share * N)])
    new = evaluate_system(tmp_path / "new", pairs)
    bisection = bisect(old, new, margin=0.3)
    assert bisection.verdict == verdict
    assert f"{round((1 - share) * N)} of {N} traces of the candidate have no partner" in bisection.sentence
    assert gate(new, baseline=old, max_drop=0.3).exit_code == (3 if verdict == "cannot tell" else 0)


@pytest.mark.parametrize(("share", "verdict"), [(0.6, "cannot tell"), (0.95, "no fault")])
def test_missing_traces_exclude_no_fault(tmp_path: Path, share: float, verdict: str):
    """A candidate without a tenth of the baseline's traces may lack those that failed."""
    pairs = make_verdicts(N, 1)
    old = evaluate_system(tmp_path / "old", pairs)
    new = evaluate_system(tmp_path / "new", pairs[: int(share * N)])
    assert bisect(old, new, margin=0.3).verdict == verdict


@pytest.mark.parametrize("kind", MISMATCHES)
def test_a_mismatch_of_few_pairs_hides_no_fault_of_the_others(baseline: Run, tmp_path: Path, kind: str):
    """What no more of the pairs than the margin record otherwise is left out and said; the others are compared."""
    change = MISMATCHES[kind][0]
    pairs = [
        (replace(change(trace) if at < N / 20 else trace, answer=f"It is said: {trace.answer}"), seen)
        for at, (trace, seen) in enumerate(worded(make_verdicts(N, 1, grounding=0.4)))
    ]
    result = bisect(baseline, evaluate_system(tmp_path / "new", pairs))
    assert result.comparison.mismatches
    assert not any(mismatch.blocks for mismatch in result.comparison.mismatches)
    assert [fault.layer for fault in result.faults] == ["generation"]


def test_a_copy_under_a_new_id_is_no_renaming(baseline: Run, tmp_path: Path):
    """Where the old chunk is still retrieved, one with the same text beside it is a copy."""

    def copy(trace: Trace) -> Trace:
        first, *rest = trace.chunks or ()
        return replace(trace, chunks=(first, replace(first, id=f"copy of {first.id}"), *rest[:-1]))

    comparison = compare(baseline, alter(tmp_path / "new", copy), metrics=["recall@3"])
    assert not comparison.mismatches


def test_added_text_is_no_clipping(baseline: Run, tmp_path: Path):
    """Texts that go on after a full sentence were edited, which is a change of the system."""
    old = evaluate_system(
        tmp_path / "old",
        [(on_chunks(t, lambda c: replace(c, text=f"{c.text}.")), v) for t, v in worded(make_verdicts(N, 1))],
    )
    new = alter(tmp_path / "new", lambda t: on_chunks(t, lambda c: replace(c, text=f"{c.text}. It sails on Sundays.")))
    assert not compare(old, new).mismatches


def test_white_space_is_no_difference(baseline: Run, tmp_path: Path):
    """The same words with other spaces are the same chunks."""
    new = alter(tmp_path / "new", lambda t: on_chunks(t, lambda c: replace(c, text=c.text.replace(" ", "\n"))))
    comparison = compare(baseline, new)
    assert comparison.same_chunks == comparison.pairs
    assert not comparison.mismatches


@pytest.fixture(scope="module")
def demo() -> list[Trace]:
    return load_demo_traces()


def test_failed_attempts_that_are_logged_beside_their_retries_are_counted(baseline: Run, tmp_path: Path):
    """Errors without a partner are said, and over 5 % of them exclude "no fault" and a pass."""
    pairs = worded(make_verdicts(N, 1))
    failed = [(replace(t, id=f"{t.id}-0", answer=None, error="timeout"), seen) for t, seen in pairs[:20]]
    candidate = evaluate_system(tmp_path / "new", [*pairs, *failed])
    bisection = bisect(baseline, candidate, margin=0.3)
    assert bisection.verdict == "cannot tell"
    assert (
        f"20 of {N + 20} traces of the candidate (20 of them errors or blank answers) have no partner"
        in bisection.sentence
    )
    assert gate(candidate, baseline=baseline, max_drop=0.3).exit_code == 3


def test_an_attempt_that_was_retried_is_no_failure_of_its_query(baseline: Run, tmp_path: Path):
    """Where a query was tried twice, the attempt with an answer is compared, and the other one has no partner."""
    pairs = [(replace(t, id=f"{t.id}-again"), seen) for t, seen in worded(make_verdicts(N, 1))]
    failed = [(replace(t, id=f"{t.id}-first", answer=None, error="rate limit"), seen) for t, seen in pairs[:40]]
    bisection = bisect(baseline, evaluate_system(tmp_path / "new", [*failed, *pairs]), margin=0.3)
    assert bisection.verdict == "cannot tell"
    assert f"40 of {N + 40} traces of the candidate (40 of them errors or blank answers)" in bisection.sentence


@pytest.fixture(scope="module")
def evaluate_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sequence[Trace]], Run]:
    """Return what evaluates traces, and the same traces once: most situations begin with the same baseline."""
    runs: dict[bytes, Run] = {}

    def evaluate_traces(traces: Sequence[Trace]) -> Run:
        key = hashlib.sha256(msgspec.json.encode(traces)).digest()
        if key not in runs:
            runs[key] = evaluate(traces, tmp_path_factory.mktemp("side") / "run", judge=LEXICAL)
        return runs[key]

    return evaluate_traces


def sample_situations() -> Iterator[Any]:
    """Yield each situation with or without an answer key, by turns, and with both where its words depend on the key.

    `python -m benchmarks.faults.situations` tries all of them with both, on runs of two sizes.
    """
    for number, (name, situation) in enumerate(SITUATIONS.items()):
        for key in (True, False) if situation.phrase_without_key else (number % 2 == 0,):
            yield pytest.param(name, key, id=f"{name}-{'key' if key else 'no key'}")


@pytest.mark.parametrize(("name", "key"), list(sample_situations()))
@pytest.mark.long
def test_each_situation_has_its_verdict(
    demo: list[Trace], evaluate_once: Callable[[Sequence[Trace]], Run], name: str, key: bool
):
    """Each situation of the bench has one of its right exit codes and, with an answer key, its words."""
    situation = expect(SITUATIONS[name], key=key)
    bisection = bisect(*map(evaluate_once, build_pair(demo, situation, key=key, n=104)), margin=0.05)
    assert EXIT_CODES[bisection.verdict] in situation.exit_codes
    assert situation.phrase in bisection.sentence
    if situation.layer is not None:
        assert bisection.faults[0].layer == situation.layer


@pytest.mark.long
@pytest.mark.parametrize(
    "other", [{"judge": "embedded"}, {"judge": "lexical", "gold": "ignore"}], ids=["judge", "gold"]
)
def test_scores_of_another_judge_or_use_of_gold_are_no_fault(demo: list[Trace], tmp_path: Path, other: dict[str, str]):
    """Another judge, or another use of gold, is refused; where it is asked for, no metric of verdicts is tested."""
    baseline = evaluate(demo, tmp_path / "old", judge=LEXICAL)
    candidate = evaluate([invent(trace) for trace in demo], tmp_path / "new", **other)
    with pytest.raises(RunError, match="anyway"):
        bisect(baseline, candidate)
    result = bisect(baseline, candidate, anyway=True)
    assert result.verdict == "cannot tell"
    assert result.comparison.mismatches[-1].kind == "judges"
    assert "groundedness" in result.comparison.mismatches[-1].left_out
    assert "groundedness" not in {change.metric for change in result.comparison.changes}
