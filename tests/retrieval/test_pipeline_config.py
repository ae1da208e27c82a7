"""Laws of the text form of pipelines: calls, the catalogue of stages, recipes and their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from installed import skip_without
from ragfault.model.errors import InputError, UnknownName, UsageError
from ragfault.model.records import Chunk, Document
from ragfault.retrieval.index import ChunkIndex
from ragfault.retrieval.pipeline_config import (
    PipelineConfig,
    build_index,
    check_pipeline_config,
    format_pipeline_config,
    load_pipeline,
    matches_embedder,
    read_pipeline_config,
    replace_stage,
)
from ragfault.retrieval.stage_registry import STAGE_KINDS, STAGES, get_stage_kind, load_reranker, make_stage

skip_without("bm25s", reason="the extra `retrieval` is not installed")

TEXTS = {
    "ferry": "The last ferry leaves the harbour at 22:40. On Sundays it leaves at 21:10.",
    "dogs": "Dogs travel free of charge. They are kept on a lead on deck.",
    "fares": "A ticket costs nine pounds. Children pay half of that.",
}
DOCUMENTS = [Document(id=name, text=text) for name, text in TEXTS.items()]
SAMPLES = {
    "shorten": "shorten(12)",
    "restrict": "restrict(document=dogs)",
    "budget": "budget(200)",
    "rerank": "rerank(lexical)",
    "adaptive": "adaptive(0.1)",
}
"""Calls of stages that need a value, or a lighter part than their own default."""


@pytest.fixture(scope="module")
def index() -> ChunkIndex:
    return build_index(PipelineConfig(chunker="sentences(32)", embedder="latent(dimensions=4)"), DOCUMENTS)


@pytest.mark.parametrize("name", STAGES)
def test_every_stage_of_the_catalogue_runs(name: str, index: ChunkIndex):
    """Each stage can be asked for by its name, is for one of the known steps, and hands hits on."""
    recipe = PipelineConfig(
        chunker="sentences(32)", embedder="latent(dimensions=4)", stages={"retrieve": "sparse(k=3)"}
    )
    if name == "adaptive":
        recipe = replace_stage(recipe, "rerank", "rerank(lexical)")
    text = SAMPLES.get(name, name)
    recipe = replace_stage(recipe, get_stage_kind(text), text)
    assert get_stage_kind(text) in STAGE_KINDS
    from ragfault.retrieval.pipeline_config import build_pipeline

    trace = build_pipeline(recipe, index)("Do dogs travel free on the last ferry?")
    assert trace.chunks, name
    assert [step.name for step in trace.steps or ()] == list(recipe.stages)


@pytest.mark.parametrize(
    ("text", "offer"),
    [
        ("hybird", "hybrid"),
        ("top(many=3)", "k"),
        ("hybrid(methd=rrf)", "method"),
        ("hybrid(method=rff)", "rrf"),
        ("reorder(thirdz)", "thirds"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(text: str, offer: str, index: ChunkIndex):
    """A stage, an option or a value that does not exist is refused with what there is."""
    with pytest.raises(UnknownName, match=offer):
        make_stage(text, index)


def test_a_reranker_that_does_not_exist_is_refused():
    """A reranker is a judge of the package or a known service."""
    with pytest.raises(UnknownName, match="lexical"):
        load_reranker("lexcal")


RECIPES = [
    PipelineConfig(),
    PipelineConfig(
        chunker="recursive(256, overlap=32)",
        embedder="latent(dimensions=16)",
        stages={
            "what is asked": "expand(terms=3)",
            "find": 'hybrid(k=30, method=sum, norm="minmax", dense=2.0)',
            "rerank": "rerank(lexical, depth=10)",
            "keep": "top(5)",
            "order": "reorder(ends)",
        },
    ),
    PipelineConfig(stages={"filter": 'restrict(language="e\\"n", year__from=2024)', "retrieve": "sparse"}),
]


@pytest.mark.parametrize("recipe", RECIPES, ids=["plain", "full", "quoted"])
def test_a_recipe_that_was_written_is_read_back(recipe: PipelineConfig, tmp_path: Path):
    """A file that `write_recipe` wrote gives the same recipe, stages in the same order."""
    path = tmp_path / "pipeline.toml"
    path.write_text(format_pipeline_config(recipe, "made by hand\nor not"), encoding="utf-8")
    back = read_pipeline_config(path)
    assert back == recipe
    assert list(back.stages) == list(recipe.stages)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("[indx]\n", UnknownName, '"index"'),
        ('[index]\nchunkr = "fixed(64)"\n', UnknownName, '"chunker"'),
        ('[index]\nchunker = "fxed(64)"\n[stages]\nfind = "sparse"', UnknownName, '"fixed"'),
        ('[index]\nembedder = "latant"\n[stages]\nfind = "sparse"', UnknownName, '"latent"'),
        ('[stages]\nfind = "sparce"\n', UnknownName, '"sparse"'),
        ("[stages]\nfind = 3\n", InputError, "should be a text"),
        ("stages = 3\n", InputError, "is a table"),
        ('[stages]\nkeep = "top(5)"\n', UsageError, "no stage that retrieves"),
        ('[stages]\nfind = "dense"\n', UsageError, "no embedder"),
        ("[stages\n", InputError, "not TOML"),
    ],
)
def test_a_file_with_a_fault_is_refused(text: str, error: type[Exception], message: str, tmp_path: Path):
    """Every fault of a file is named, with what was meant where that is clear."""
    path = tmp_path / "pipeline.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(error, match=message):
        read_pipeline_config(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path):
    """A path without a file is an input error."""
    with pytest.raises(InputError, match="cannot read"):
        read_pipeline_config(tmp_path / "pipeline.toml")


def test_a_file_loads_into_a_pipeline_that_runs(tmp_path: Path):
    """A pipeline over documents finds what was asked, and its trace names the stages of the file."""
    path = tmp_path / "pipeline.toml"
    path.write_text(
        '[index]\nchunker = "sentences(32)"\n[stages]\nfind = "sparse(k=5)"\nkeep = "top(1)"\n', encoding="utf-8"
    )
    trace = load_pipeline(path, DOCUMENTS)("When does the last ferry leave?")
    assert [chunk.document for chunk in trace.chunks or ()] == ["ferry"]
    assert [step.name for step in trace.steps or ()] == ["find", "keep"]


def test_an_index_of_another_making_is_refused(tmp_path: Path, index: ChunkIndex):
    """A file that names another chunker or another embedder than made the index does not load over it."""
    path = tmp_path / "pipeline.toml"
    path.write_text(format_pipeline_config(PipelineConfig(chunker="sentences(64)")), encoding="utf-8")
    with pytest.raises(UsageError, match="was cut by"):
        load_pipeline(path, index)
    other = PipelineConfig(chunker="sentences(32)", embedder="latent(dimensions=9)")
    path.write_text(format_pipeline_config(other), encoding="utf-8")
    with pytest.raises(UsageError, match="new embedder"):
        load_pipeline(path, index)
    path.write_text(
        format_pipeline_config(PipelineConfig(chunker="sentences(32)", embedder="latent(dimensions=4)")),
        encoding="utf-8",
    )
    assert load_pipeline(path, index)("dogs").chunks
    bare = ChunkIndex.build([Chunk(id="a", text="Dogs.")])
    with pytest.raises(UsageError, match="no embedder"):
        load_pipeline(path, bare)


def test_a_stage_comes_where_it_belongs():
    """A stage that is put into a recipe stands in the order of the steps, and takes the place of those of its step."""
    recipe = PipelineConfig(stages={"find": "sparse", "keep": "top(3)"})
    result = replace_stage(replace_stage(recipe, "compress", "compress"), "rerank", "rerank(lexical)")
    assert [get_stage_kind(text) for text in result.stages.values()] == ["retrieve", "rerank", "select", "compress"]
    assert replace_stage(result, "rerank", None).get_stage("rerank") is None
    assert replace_stage(result, "select", "top(9)").get_stage("select") == "top(9)"


def test_two_documents_of_one_id_are_refused():
    """A corpus with an id twice, or without a document, is no corpus."""
    with pytest.raises(InputError, match='id "ferry"'):
        build_index(PipelineConfig(), [DOCUMENTS[0], DOCUMENTS[0]])
    with pytest.raises(InputError, match="no document"):
        build_index(PipelineConfig(), [])


def test_an_invalid_config_is_refused_before_any_computation():
    """A recipe is checked as a whole: its chunker, its embedder, its stages."""
    with pytest.raises(UnknownName):
        check_pipeline_config(PipelineConfig(embedder="minilmm"))
    with pytest.raises(UsageError):
        check_pipeline_config(PipelineConfig(embedder="latent(colour=3)"))


@pytest.mark.parametrize(
    ("stage", "error", "message"),
    [("top(kk=5)", UnknownName, '"k"'), ("top(1, 2)", UsageError, "too many"), ("shorten", UsageError, "threshold")],
)
def test_an_invalid_stage_is_refused_with_its_file(stage: str, error, message: str, tmp_path: Path):
    """Options are checked when the file is read, before a corpus is cut and embedded for it."""
    (tmp_path / "pipeline.toml").write_text(f"[stages]\nfind = 'sparse'\nthen = '{stage}'\n", encoding="utf-8")
    with pytest.raises(error, match=message):
        read_pipeline_config(tmp_path / "pipeline.toml")


def test_an_embedder_of_a_longer_name_is_another_one():
    """A name that another one begins with is not that one; what was fitted is known by what was asked."""
    assert not matches_embedder("endpoint:text-embedding-3", "endpoint:text-embedding-3-small")
    assert not matches_embedder("latent/1 dimensions=8 seed=1 unfitted", "latent/1 dimensions=8 seed=10 fitted=ab")
    assert matches_embedder("latent/1 dimensions=8 seed=1 unfitted", "latent/1 dimensions=8 seed=1 fitted=ab")
