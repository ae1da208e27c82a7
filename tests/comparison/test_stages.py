"""Laws of the suspects: what is seen on the pairs of two runs decides which stage is named first."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from ragfault.comparison.bisection import describe_fault
from ragfault.comparison.decision_tree import BRANCHES, STAGES_BY_BRANCH, STAGES_BY_LAYER
from ragfault.comparison.paired_runs import pair_runs
from ragfault.comparison.records import Difference, LayerFault, MetricChange, StageEvidence, Suspect
from ragfault.comparison.stages.evidence import collect_evidence
from ragfault.comparison.stages.paired_traces import read_pairs
from ragfault.comparison.stages.ranking import load_stage_weights, rank_suspects
from ragfault.evaluation.evaluator import evaluate
from ragfault.model.records import Chunk, Step, TokenCounts, Trace
from remembered import LEXICAL

STAGES = {branch.name[0]: (branch.stages, STAGES_BY_LAYER[branch.layer]) for branch in BRANCHES}
TOPICS = ("ferry", "harbour", "cabin", "luggage", "bicycle", "ticket", "timetable", "island", "winter", "deck")


def passage(number: int) -> Chunk:
    """Build one of sixty passages, each of a document of its own."""
    topic = TOPICS[number % 10]
    text = f"The {topic} rule {number} holds for all guests. A fee of £{number + 3} is due. It was set in May."
    return Chunk(id=f"c{number}", text=text, document=f"d{number}", metadata={"language": "en"})


def answer(chunks: Sequence[Chunk]) -> str:
    return " ".join(chunk.text for chunk in chunks[:2])


def system(n: int = 60) -> list[Trace]:
    """Build the traces of a system that retrieves five of sixty passages and copies from the first two."""
    rng = random.Random(3)
    traces = []
    for number in range(n):
        chunks = tuple(passage(at) for at in rng.sample(range(60), 5))
        query = f"What holds for the {TOPICS[number % 10]} number {number}?"
        traces.append(
            Trace(
                id=f"t{number}",
                query=query,
                chunks=chunks,
                answer=answer(chunks),
                steps=(Step(id="r", kind="rewrite", output=query),),
                tokens=TokenCounts(prompt=400, completion=40),
                metadata={"release": "1.0"},
            )
        )
    return traces


def chunks_of(trace: Trace) -> list[Chunk]:
    return list(trace.chunks or ())


def with_chunks(trace: Trace, chunks: Sequence[Chunk]) -> Trace:
    return replace(trace, chunks=tuple(chunks), answer=answer(chunks))


def reordered(trace: Trace) -> Trace:
    return with_chunks(trace, chunks_of(trace)[::-1])


def redated(trace: Trace) -> Trace:
    return with_chunks(trace, [replace(c, text=c.text.replace("May", "June")) for c in chunks_of(trace)])


def damaged(trace: Trace) -> Trace:
    return with_chunks(trace, [replace(c, text=" ".join(w[::-1] for w in c.text.split())) for c in chunks_of(trace)])


def fewer(trace: Trace) -> Trace:
    return with_chunks(trace, chunks_of(trace)[:2])


def recut(trace: Trace) -> Trace:
    parts = [c.text[:40] for c in chunks_of(trace)]
    return with_chunks(trace, [Chunk(id=f"n{text}", text=text) for text in parts])


def uncovered(trace: Trace) -> Trace:
    """Replace the passages of every third document by others, as if they were not in the index."""
    rest = [c for c in chunks_of(trace) if int(c.id[1:]) % 3]
    more = [c for at in range(60) if at % 3 and (c := passage((at + int(trace.id[1:])) % 60)) not in rest]
    more = [c for c in more if int(c.id[1:]) % 3]
    return with_chunks(trace, [*rest, *more[: 5 - len(rest)]])


def copied(trace: Trace) -> Trace:
    first = chunks_of(trace)[0]
    return with_chunks(trace, [first, *(replace(first, id=f"{first.id}-{n}") for n in range(4))])


def misread(trace: Trace) -> Trace:
    if int(trace.id[1:]) % 3:
        return trace
    rng = random.Random(trace.id)
    step = Step(id="r", kind="rewrite", output="something else")
    return replace(with_chunks(trace, [passage(at) for at in rng.sample(range(60), 5)]), steps=(step,))


def cut(trace: Trace) -> Trace:
    return replace(trace, answer=" ".join((trace.answer or "").split()[:12]))


def converted(trace: Trace) -> Trace:
    return replace(trace, answer=(trace.answer or "").replace("£", "$"))


def prefaced(trace: Trace) -> Trace:
    return replace(trace, answer=f"Thank you for this good question about the matter. {trace.answer}")


def half_prompt(trace: Trace) -> Trace:
    chunks = chunks_of(trace)
    return replace(trace, answer=answer(chunks[3:]), tokens=TokenCounts(prompt=200, completion=40))


def misencoded(trace: Trace) -> Trace:
    return with_chunks(trace, [replace(c, text=c.text.replace("£", "Â£")) for c in chunks_of(trace)])


def other_figures(trace: Trace) -> Trace:
    return with_chunks(trace, [replace(c, text=c.text.replace("£", "£1")) for c in chunks_of(trace)])


def answered_for_another(trace: Trace) -> Trace:
    other = system()[(int(trace.id[1:]) + 1) % 60]
    return replace(trace, answer=other.answer)


def repeated(trace: Trace) -> Trace:
    return replace(trace, answer=" ".join([trace.answer or ""] * 3))


CASES: list[tuple[Callable[[Trace], Trace], str, str]] = [
    (reordered, "1", "reranker"),
    (damaged, "1", "ingestion"),
    (redated, "3", "source documents"),
    (fewer, "1", "top-k"),
    (recut, "1", "chunker"),
    (uncovered, "1", "index coverage"),
    (copied, "1", "index"),
    (misread, "1", "query rewriter"),
    (cut, "4", "max tokens"),
    (converted, "2", "model, prompt"),
    (prefaced, "6", "prompt"),
    (half_prompt, "4", "prompt assembly"),
    (misencoded, "1", "ingestion"),
    (other_figures, "1", "source documents"),
    (answered_for_another, "2", "answer cache"),
    (repeated, "6", "decoding"),
]


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("stages") / "old"
    evaluate(system(), place, judge=LEXICAL, metrics=("groundedness", "context_relevance", "chunk_utilization"))
    return place


def evidence_of(baseline: Path, place: Path, change: Callable[[Trace], Trace]) -> tuple[StageEvidence, ...]:
    from ragfault.io.runs.run import Run

    new = evaluate(
        [change(trace) for trace in system()],
        place,
        judge=LEXICAL,
        metrics=("groundedness", "context_relevance", "chunk_utilization"),
    )
    return collect_evidence(read_pairs(pair_runs(Run.open(baseline), new)))


@pytest.mark.long
@pytest.mark.parametrize(("change", "branch", "stage"), CASES, ids=lambda value: getattr(value, "__name__", value))
def test_the_stage_that_changed_is_the_first_suspect(
    baseline: Path, tmp_path: Path, change: Callable[[Trace], Trace], branch: str, stage: str
):
    """Of the stages of the branch the one that was changed is named first, with a sentence and a probability."""
    usual, others = STAGES[branch]
    suspects = rank_suspects(usual, evidence_of(baseline, tmp_path / "new", change), others)
    assert suspects[0].stage in stage.split(", ")
    assert any(character.isdigit() for character in suspects[0].evidence)
    assert len(suspects) <= 3
    assert 1 >= suspects[0].probability >= suspects[-1].probability > 0


def test_nothing_is_seen_where_nothing_changed(baseline: Path, tmp_path: Path):
    """Between a system and itself no observation speaks for any stage."""
    assert evidence_of(baseline, tmp_path / "new", lambda trace: trace) == ()


def test_a_setting_that_changed_speaks_for_its_stage(baseline: Path, tmp_path: Path):
    """A recorded field with one value in each run is evidence for the stage that it names, and says both values."""

    def reset(trace: Trace) -> Trace:
        return replace(trace, metadata={"release": "1.0", "embedding_model": "b"})

    def name(trace: Trace) -> Trace:
        return replace(trace, metadata={"release": "1.0", "embedding_model": "a"})

    runs = [
        evaluate(
            [change(trace) for trace in system()], tmp_path / change.__name__, judge=LEXICAL, metrics=("groundedness",)
        )
        for change in (name, reset)
    ]
    [seen] = collect_evidence(read_pairs(pair_runs(*runs)))
    assert (seen.stage, seen.text) == ("embedder", "the runs differ in embedding_model: a → b")


def test_probabilities_are_those_of_a_softmax():
    """Over all stages the probabilities add up to 1, and evidence for a stage raises its own."""
    stages = ("chunker", "index", "reranker")
    plain = rank_suspects(stages, ())
    assert sum(suspect.probability for suspect in plain) == pytest.approx(1)
    seen = StageEvidence(name="order", stage="reranker", strength=1.0, text="seen")
    [first, *_] = rank_suspects(stages, (seen,))
    assert (first.stage, first.evidence) == ("reranker", "seen")
    assert first.probability > max(suspect.probability for suspect in plain if suspect.stage == "reranker")


def test_the_same_chunks_in_another_order_are_no_fault_of_a_stage_that_changes_the_chunks():
    """Where all lists hold the same chunks in another order, chunker, filter and depth are not among the suspects."""
    seen = StageEvidence(name="order alone", stage="reranker", strength=1.0, text="seen")
    named = {suspect.stage for suspect in rank_suspects(("chunker", "reranker", "embedder"), (seen,), ("filter",))}
    assert named == {"reranker", "embedder"}


@pytest.mark.long
def test_lists_that_also_lost_chunks_do_not_only_stand_in_another_order(tmp_path: Path):
    """Where a tenth of the lists lost a chunk, which may be all that was lost, no stage is excluded."""

    def lose(trace: Trace) -> Trace:
        return replace(trace, chunks=(*trace.chunks[1:], passage(59)))

    old = system(120)
    turned = [reordered(trace) for trace in old]
    mixed = [lose(trace) if at % 10 == 0 else trace for at, trace in enumerate(turned)]
    assert "order alone" in evidence_between(tmp_path / "order", old, turned)
    assert "order alone" not in evidence_between(tmp_path / "mixed", old, mixed)


def test_the_sentence_of_a_fault_names_no_improbable_stage():
    """A suspect below one in twenty is listed below the sentence, and the first is always in it."""
    suspects = [Suspect(stage=name, probability=p, evidence="seen") for name, p in (("top-k", 0.94), ("index", 0.02))]
    change = MetricChange(
        metric="ndcg@10",
        layer="retrieval",
        better="higher",
        state="fell",
        baseline=0.9,
        candidate=0.6,
        difference=Difference(
            mean=-0.3, low=-0.4, high=-0.2, error=0.05, df=49, center=-0.3, n=50, clusters=50, method="t"
        ),
        p=0.001,
        adjusted=0.001,
        equivalence_p=1.0,
        margin=0.02,
        detectable=0.05,
        needed=None,
        n=50,
    )
    fault = LayerFault(
        layer="retrieval", branch="1", title="wrong", evidence=(change,), suspects=tuple(suspects), remedies=()
    )
    assert describe_fault(fault, {}).endswith("look at top-k.")


def test_the_weights_are_those_of_the_stages_of_the_tree():
    """No weight is negative, and every weight and prior belongs to a stage of a branch."""
    table = load_stage_weights()
    known = {stage for stages in (*STAGES_BY_BRANCH.values(), *STAGES_BY_LAYER.values()) for stage in stages}
    assert set(table.prior_logits) <= known
    assert {key.split(": ")[1] for key in table.weights if ": " in key} <= known
    assert all(weight >= 0 for weight in table.weights.values())
    assert 0 < table.first_accuracy <= table.top_accuracy <= 1


def test_answers_that_draw_on_no_chunk_say_nothing_of_the_prompt(tmp_path: Path):
    """Words that no chunk holds are no sign that a chunk did not reach the prompt."""
    sides = system(), [replace(trace, answer="Die Gebühr entfällt sonntags für alle Anwohner.") for trace in system()]
    runs = [evaluate(side, tmp_path / str(at), judge=LEXICAL) for at, side in enumerate(sides)]
    evidence = collect_evidence(read_pairs(pair_runs(*runs)))
    assert not [item for item in evidence if item.stage == "prompt assembly"]


def test_ids_that_changed_alone_are_no_evidence(tmp_path: Path):
    """Lists of the same passages under new ids have not changed."""
    renamed = [
        replace(trace, chunks=tuple(replace(chunk, id=f"{chunk.id}@v2") for chunk in chunks_of(trace)))
        for trace in system()
    ]
    runs = [evaluate(side, tmp_path / str(at), judge=LEXICAL) for at, side in enumerate((system(), renamed))]
    assert not collect_evidence(read_pairs(pair_runs(*runs)))


def scored(trace: Trace, tenant: str, scores: Sequence[float], start: int) -> Trace:
    """Return a trace with passages of a tenant, and their scores."""
    chunks = [
        replace(passage((start + at) % 60), id=f"{tenant}-{start + at}", score=score, metadata={"tenant": tenant})
        for at, score in enumerate(scores)
    ]
    return with_chunks(trace, chunks)


def evidence_between(tmp_path: Path, *sides: Sequence[Trace]) -> dict[str, set[str]]:
    """Return the stages for which each observation on two sides speaks."""
    runs = [
        evaluate(list(side), tmp_path / str(at), judge=LEXICAL, metrics=("groundedness",))
        for at, side in enumerate(sides)
    ]
    stages: dict[str, set[str]] = {}
    for item in collect_evidence(read_pairs(pair_runs(*runs))):
        stages.setdefault(item.name, set()).add(item.stage)
    return stages


def test_chunks_of_another_tenant_speak_for_the_filter(tmp_path: Path):
    """A query that had chunks of one tenant only gets one of another."""
    scores = (0.9, 0.8, 0.7, 0.6)
    old = [scored(trace, "ab"[at % 2], scores, at) for at, trace in enumerate(system())]
    leaked = [replace(passage(at % 50), id="x", score=0.85, metadata={"tenant": "ba"[at % 2]}) for at in range(60)]
    new = [
        with_chunks(trace, [trace.chunks[0], leaked[at], *trace.chunks[1:3]])
        for at, trace in enumerate(old)
        if trace.chunks
    ]
    stages = evidence_between(tmp_path, old, new)
    assert stages["other value"] == {"filter"}


@pytest.mark.long
def test_lists_against_their_scores_speak_for_the_reranker(tmp_path: Path):
    """Lists that stand in the order of their scores no longer, or scores of another sign, are those of a reranker."""
    old = [scored(trace, "a", (0.9, 0.8, 0.7), at) for at, trace in enumerate(system())]
    turned = [with_chunks(trace, (trace.chunks or ())[::-1]) for trace in old]
    assert evidence_between(tmp_path / "order", old, turned)["order by score"] == {"reranker"}
    negative = [scored(trace, "a", (-0.1, -0.2, -0.3), at + 1) for at, trace in enumerate(system())]
    assert evidence_between(tmp_path / "sign", old, negative)["sign"] == {"reranker"}


@pytest.mark.long
def test_a_least_score_shows_where_the_number_of_chunks_varies(tmp_path: Path):
    """What is gone scored below all that is left: a threshold; a constant number of chunks is a cut at a rank."""
    ladder = [tuple(0.9 - 0.1 * at - 0.02 * (number % 5) for at in range(5)) for number in range(60)]
    old = [scored(trace, "a", ladder[at], at) for at, trace in enumerate(system())]
    floored = [with_chunks(trace, [c for c in chunks_of(trace) if (c.score or 0.0) >= 0.65]) for trace in old]
    assert evidence_between(tmp_path / "floor", old, floored)["floor"] == {"score threshold"}
    ranked = [with_chunks(trace, chunks_of(trace)[:2]) for trace in old]
    stages = evidence_between(tmp_path / "rank", old, ranked)
    assert "floor" not in stages
    assert "top-k" in stages["even depth"]


def test_missing_names_speak_for_the_rewriter(tmp_path: Path):
    """Chunks that hold the words of a query but not its name or figure were searched for without these."""

    def ask(number: int, answered: int) -> Trace:
        texts = [f"The ferry rule of cabin {answered} applies on deck {answered + at}." for at in range(3)]
        chunks = tuple(Chunk(id=f"{answered}-{at}", text=text) for at, text in enumerate(texts))
        query = f"Which ferry rule applies to cabin {number}?"
        return Trace(id=f"t{number}", query=query, chunks=chunks, answer=texts[0])

    numbers = range(100, 160)
    stages = evidence_between(tmp_path, [ask(n, n) for n in numbers], [ask(n, 100 + (n + 9) % 60) for n in numbers])
    assert stages["names lost"] == {"query rewriter"}
