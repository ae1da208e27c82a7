"""Laws of the fault bench: the system under test is deterministic, and every fault breaks what it says it breaks."""

from __future__ import annotations

import gzip
import json
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import msgspec
import numpy as np
import pytest

from ragfault.model.records import Trace

FOLDER = Path(__file__).parents[2] / "benchmarks" / "faults"


def bench(name: str) -> ModuleType:
    """Import a module of the fault bench by its path."""
    if "faults" not in sys.modules:
        spec = spec_from_file_location("faults", FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)])
        sys.modules["faults"] = module_from_spec(spec)
    return import_module(f"faults.{name}")


config, corpora, injection = bench("config"), bench("corpora"), bench("injection")
chunking, retrieving, system = bench("chunking"), bench("retrieving"), bench("system")
CORPUS = corpora.load_handbook_corpus()
N = 60
FAULTS = [name for name, fault in injection.FAULTS.items() if fault.branch]
GENERATION_FAULTS = [name for name, fault in injection.FAULTS.items() if fault.layer == "generation"]


def inject(name: str, strength: str = "medium", seed: int = 0) -> tuple[list[Trace], list[Trace]]:
    return injection.pair(CORPUS, name, strength, n=N, seed=seed)


def shares(name: str, changed) -> list[float]:
    """Return the share of the traces that a fault changes, by strength."""
    shares_by_strength = []
    for strength in injection.STRENGTHS:
        baseline, candidate = inject(name, strength)
        shares_by_strength.append(sum(changed(a, b) for a, b in zip(baseline, candidate, strict=True)) / N)
    return shares_by_strength


def texts(trace: Trace) -> list[tuple[str, str]]:
    """Return the ids and texts of the chunks without their scores."""
    return [(chunk.id, chunk.text) for chunk in trace.chunks]


@pytest.fixture(scope="module")
def calm() -> list[Trace]:
    """Return the traces of a candidate without a fault."""
    return inject("none")[1]


# --- the system --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(injection.FAULTS))
@pytest.mark.long
def test_the_same_seed_gives_the_same_traces(name: str):
    """A pair of runs depends on corpus, fault, strength, n and seed alone, and another seed gives another pair."""
    assert inject(name) == inject(name)
    assert inject(name)[0] != inject(name, seed=1)[0]


@pytest.mark.parametrize("name", list(injection.FAULTS))
def test_a_chunk_is_its_document_from_start_to_end(name: str):
    """The text of every chunk stands at its offsets in its document, as that was when it was indexed."""
    _, broken = injection.build_configs(name, "strong", 0)
    settings = broken.indexing
    documents = chunking.alter_documents(CORPUS.documents, settings.stale_share, settings.seed, settings.redated_share)
    documents = chunking.duplicate_documents(documents, settings.copied_share, settings.copies, settings.seed)
    for chunk in system.System(CORPUS, broken).index.chunks:
        assert chunk.text == documents[chunk.document][chunk.start : chunk.end] != ""


@pytest.mark.parametrize("name", list(injection.FAULTS))
def test_traces_survive_their_way_through_json(name: str):
    """A trace is the same after JSON, and its citations name chunks it was given."""
    for trace in inject(name, "strong")[1]:
        assert msgspec.json.decode(msgspec.json.encode(trace), type=Trace) == trace
        assert {item.chunk for item in trace.citations} <= {chunk.id for chunk in trace.chunks}
        assert all(item.claim in trace.answer for item in trace.citations)


def test_quotes_stand_in_their_chunks():
    """A generator without errors quotes word for word."""
    calm = config.Config(generation=config.Generation(error_rate=0.0))
    for trace in system.answer_questions(CORPUS, calm, CORPUS.questions[:N]):
        texts = {chunk.id: chunk.text for chunk in trace.chunks}
        assert all(item.quote in texts[item.chunk] for item in trace.citations)


def test_a_rotation_of_both_sides_changes_nothing():
    """A rotation leaves every angle as it is, so that only a one-sided one is a fault."""
    terms = [retrieving.embed([word], {}, "a") for word in ("harbour", "ferry", "ticket")]
    before, turn = np.stack(terms), retrieving.draw_rotation()
    after = before @ turn.T
    assert np.allclose(before @ before.T, after @ after.T, atol=1e-4)


# --- the questions -----------------------------------------------------------------------------------


def test_questions_have_names_of_their_own_and_true_gold():
    """Ids are unique, there are more than 500 questions, and a fact made from a sentence is that sentence."""
    assert len({item.id for item in CORPUS.questions}) == len(CORPUS.questions) > 500
    for item in CORPUS.questions[104:]:
        names = [CORPUS.documents[span.document][span.start : span.end] for span in item.gold.spans]
        assert all(text.strip() == text != "" for text in names)
        assert "-t" in item.id or list(item.facts) == names


def test_a_sample_draws_without_repetition():
    """A sample holds each question once, and asking for too many is an error."""
    assert len({item.id for item in corpora.sample(CORPUS, 500)}) == 500
    with pytest.raises(ValueError, match="the corpus handbook has"):
        corpora.sample(CORPUS, 10_000)


def test_paragraphs_in_the_shape_of_squad(tmp_path: Path):
    """The gold span of an answerable question is the sentence that holds its answer; others have none."""
    text = "The mill burned down in 1712. It was rebuilt by the monks of Tarn."
    asked = [
        {"id": "a", "query": "Who rebuilt it?", "gold_pid": "p", "answers": ["the monks of Tarn"]}
        | {"answer_start": [text.index("the monks")], "answerable": True},
        *(
            {"id": f"u{i}", "query": "Who sold it?", "gold_pid": "p", "answers": []}
            | {"answer_start": [], "answerable": False}
            for i in range(40)
        ),
    ]
    rows = {"paragraphs": [{"pid": "p", "title": "Mill", "text": text}], "questions": asked}
    for name, some in rows.items():
        with gzip.open(tmp_path / f"squad2_{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in some)
    first, *others = corpora.load_squad_corpus(tmp_path).questions
    assert first.facts == ("It was rebuilt by the monks of Tarn.",)
    assert text[first.gold.spans[0].start : first.gold.spans[0].end] == first.facts[0]
    assert 0 < len(others) < 40
    assert all(item.gold is None and item.facts is None for item in others)


# --- the faults --------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_changes_some_trace(name: str, calm: list[Trace]):
    """A fault changes traces beyond those that small errors change."""
    for strength in injection.STRENGTHS:
        assert inject(name, strength)[1] != calm
    assert injection.FAULTS[name].about


@pytest.mark.parametrize("name", [*GENERATION_FAULTS, "none"])
def test_a_fault_of_the_generator_leaves_the_chunks(name: str):
    """With any fault of the generator, and with none, chunks and gold are the same to the bit."""
    for item, other in zip(*inject(name, "strong"), strict=True):
        assert (item.chunks, item.gold) == (other.chunks, other.gold)


def test_more_chunks_begin_with_the_same_chunks():
    """Of 20 chunks the first five are the five of the baseline."""
    for item, other in zip(*inject("top-k"), strict=True):
        assert other.chunks[: len(item.chunks)] == item.chunks


def test_stale_documents_change_figures_and_nothing_else():
    """A stale document is as long as the right one and differs in digits only."""
    old = chunking.alter_documents(CORPUS.documents, 1.0, 0)
    for name, text in CORPUS.documents.items():
        differing = [(a, b) for a, b in zip(text, old[name], strict=True) if a != b]
        assert differing
        assert all(a.isdigit() and b.isdigit() for a, b in differing)


@pytest.mark.long
def test_strengths_are_in_order():
    """The strong fault hits more traces than the weak one."""
    for name in ("wrong-filter", "embedder-rotated", "index-mismatch", "stale-documents"):
        weak, medium, strong = shares(name, lambda a, b: texts(a)[:1] != texts(b)[:1])
        assert weak < medium < strong, name
    for name in ("truncated", "invented-claims", "over-refusal"):
        weak, _, strong = shares(name, lambda a, b: len(a.answer.split()) != len(b.answer.split()))
        assert weak < strong, name


def test_halves_share_no_question():
    """The halves of an A/A without pairs hold different questions."""
    left, right = injection.answer_halves(CORPUS, n=50)
    assert not {item.id for item in left} & {item.id for item in right}


def test_the_key_of_the_baseline():
    """With the baseline's labels, the gold ids of another chunking are gone and the spans stay."""
    baseline, candidate = inject("chunks-small")
    for item, other in zip(baseline, injection.keep_labels(baseline, candidate), strict=True):
        assert item.gold == other.gold
    names = {chunk.id for trace in candidate for chunk in trace.chunks}
    assert not names & {name for trace in baseline if trace.gold for name in trace.gold.chunks}
