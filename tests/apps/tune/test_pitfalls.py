"""Laws of the six pitfalls: each is found where it is, and not seen where it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from installed import skip_without
from ragfault import evaluate
from ragfault.apps.tune.pitfalls import lint
from ragfault.cli.commands import run_command
from ragfault.model.errors import RunError, UsageError
from ragfault.model.records import Chunk, Document, Step, Trace
from ragfault.retrieval.pipeline_config import PipelineConfig, build_index, format_pipeline_config

skip_without("bm25s", reason="the extra `retrieval` is not installed")

GOOD = PipelineConfig(
    chunker="sentences(256)",
    embedder="latent(dimensions=4)",
    stages={"filter": "infer", "retrieve": "hybrid(k=50)", "select": "top(5)"},
)


def detect(*args: object) -> set[str]:
    return {pitfall.name for pitfall in lint(*args) if pitfall.detected}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (GOOD, set()),
        (PipelineConfig(chunker="sentences(64)", stages={"find": "sparse(k=9)"}), {"lost in the middle"}),
        (PipelineConfig(chunker="sentences(64)", stages={"find": "sparse(k=8)"}), set()),
        (PipelineConfig(chunker="sentences(64)", stages={"find": "sparse", "order": "reorder"}), set()),
        (PipelineConfig(chunker="sentences(64)", stages={"find": "sparse", "keep": "adaptive"}), set()),
        (PipelineConfig(chunker="sentences(64)", stages={"find": "sparse", "keep": "budget(256)"}), set()),
        (PipelineConfig(chunker="fixed(64)", stages={"find": "sparse(k=3)"}), {"static chunk size"}),
        (PipelineConfig(chunker="sentences(64)", embedder="latent", stages={"find": "dense(k=3)"}), {"dense only"}),
        (
            PipelineConfig(chunker="sentences(64)", stages={"find": "sparse(3)", "filter": "infer"}),
            {"filter after retrieval"},
        ),
    ],
)
def test_each_pitfall_of_a_pipeline_is_detected(config: PipelineConfig, names: set[str]):
    """A config shows the pitfalls that stand in it and no other."""
    assert detect(config) == names


def test_an_unmonitored_pipeline_is_detected(tmp_path: Path):
    """Beside a pipeline lies a settings file with thresholds or targets, or nothing is monitored."""
    path = tmp_path / "pipeline.toml"
    path.write_text(format_pipeline_config(GOOD), encoding="utf-8")
    assert detect(path) == set()
    (tmp_path / "ragfault.toml").write_text("", encoding="utf-8")
    assert detect(path) == {"nothing monitored"}
    (tmp_path / "ragfault.toml").write_text('[gate]\nthresholds = ["recall@5>=0.8"]\n', encoding="utf-8")
    assert detect(path) == set()


def test_an_index_of_another_embedder_is_detected(tmp_path: Path):
    """The embedder of the pipeline is held against the one that made the index; without an index it is not seen."""
    index = build_index(GOOD, [Document(id="d", text="Dogs need a lead. The ferry leaves at ten.")])
    index.save(tmp_path / "index")
    assert detect(GOOD, tmp_path / "index") == set()
    other = PipelineConfig(chunker=GOOD.chunker, embedder="latent(dimensions=3)", stages=GOOD.stages)
    assert detect(other, tmp_path / "index") == {"embedder changed"}
    with pytest.raises(RunError, match="no index"):
        lint(GOOD, tmp_path)


def test_the_pitfalls_of_a_run_are_read_off_its_traces(tmp_path: Path):
    """Many chunks best first, chunks of one length, stages by meaning alone with a filter behind, two embedders."""
    chunks = tuple(
        Chunk(id=f"c{at}", text="x" * 400, score=1 - at / 100, metadata={"embedder": "old"}) for at in range(30)
    )
    steps = (Step(id="vector search"), Step(id="2", name="filter by date"))
    bad = Trace(id="1", query="When?", chunks=chunks, steps=steps, metadata={"embedder": "new"})
    run = evaluate([bad], tmp_path / "bad", metrics=["error"])
    assert detect(run) == {
        "lost in the middle",
        "static chunk size",
        "dense only",
        "filter after retrieval",
        "nothing monitored",
        "embedder changed",
    }


def test_what_a_run_does_not_show_is_not_seen(tmp_path: Path):
    """A run without chunks, stages and embedders shows nothing, and the evidence says so."""
    run = evaluate([Trace(id="1", query="When?")], tmp_path / "run", metrics=["error", "recall@5"])
    pitfalls = lint(str(run.path))
    assert not any(pitfall.detected for pitfall in pitfalls)
    assert sum(pitfall.evidence.startswith("not seen") for pitfall in pitfalls) == 5


def test_an_order_for_the_reader_is_not_lost_in_the_middle(tmp_path: Path):
    """Chunks whose scores do not fall were put in order by a stage."""
    chunks = tuple(Chunk(id=f"c{at}", text="x" * at, score=abs(at - 6)) for at in range(12))
    run = evaluate([Trace(id="1", query="When?", chunks=chunks)], tmp_path / "run", metrics=["recall@5"])
    assert "lost in the middle" not in detect(run)


@pytest.mark.parametrize("stage", ["top(abc)", "budget(many)", "rerank(lexical, few)"])
def test_an_invalid_number_is_refused(stage: str):
    """A value that cannot be is an error in words, as it is where the pipeline is made."""
    with pytest.raises(UsageError, match="whole number"):
        lint(PipelineConfig(stages={"find": "sparse", "then": stage}))


@pytest.mark.parametrize(("stage", "many"), [("rerank(lexical, 5)", 5), ("top(3)", 3), ("adaptive", 7), ("top", 10)])
def test_what_is_left_is_read_by_place_or_by_name(stage: str, many: int):
    """The number of chunks that are left is found wherever the grammar lets it stand."""
    [detected] = [
        pitfall
        for pitfall in lint(PipelineConfig(stages={"find": "sparse", "then": stage}))
        if pitfall.name == "lost in the middle"
    ]
    assert f"at most {many} chunks" in detected.evidence


def test_what_cannot_be_checked_is_no_clean_bill(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The first line of a run without stages and chunks says how many pitfalls it tells nothing about."""
    evaluate([Trace(id="0", query="When does it leave?")], tmp_path / "run", metrics=["error"])
    run_command(["lint", str(tmp_path / "run")])
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.endswith("; 5 cannot be checked here")
    assert [line[0] for line in lines if "not seen" in line] == ["?"] * 5


def test_a_run_says_from_which_length_its_queries_are_over_long(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """By the lengths of its own queries; a run of one query says nothing."""
    texts = [
        "When does it leave?",
        "What does a car cost?",
        "May dogs travel?",
        "Where is the quay?",
        "Why " * 30 + "?",
    ]
    for name, count in (("several", 5), ("short", 4), ("single", 1)):
        traces = [Trace(id=str(at), query=text) for at, text in enumerate(texts[:count])]
        evaluate(traces, tmp_path / name, metrics=["error"])
        run_command(["lint", str(tmp_path / name)])
    several, short, single = capsys.readouterr().out.split("of 6 pitfalls detected")[1:]
    assert "are over-long here: 1 of 5: the stage shorten(" in several
    assert "are over-long here: 0 of 4." in short
    assert "over-long" not in single
