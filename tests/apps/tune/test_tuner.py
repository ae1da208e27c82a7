"""Laws of tuning: what chooses never measures, the worse drop out, gains are shown or not, bad input is refused."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from browser import start_browser
from installed import skip_without
from ragfault import evaluate
from ragfault.apps.tune.holdout import gather_questions, select_undominated, split_questions
from ragfault.apps.tune.pitfalls import lint
from ragfault.apps.tune.report.pipelines import build_tuning
from ragfault.apps.tune.results import Bound, QuestionOutcome, TuningQuestion, TuningResult
from ragfault.apps.tune.search import PipelineSearch, plan_round_sizes, race_configs
from ragfault.apps.tune.search_space import SearchSpace, default_space, parse_bound, parse_budget
from ragfault.apps.tune.trial_workers import measure_elsewhere
from ragfault.apps.tune.trials import HitGrader, TrialRunner, TuningCache, grade_chunks, parse_tuning_metric
from ragfault.apps.tune.tuner import tune
from ragfault.cli.commands import run_command as ragfault
from ragfault.executors import ProcessExecutor
from ragfault.io.datasets.demo_handbook import write_handbook
from ragfault.io.documents import read_documents
from ragfault.io.runs.samples import sample_run
from ragfault.io.trace_reader import read_traces
from ragfault.model.errors import InputError, StageFailed, UnknownName, UsageError
from ragfault.model.records import Chunk, Document, Gold, Span, Trace
from ragfault.report.renderers.html import render_html_page
from ragfault.report.renderers.markdown import render_markdown
from ragfault.report.renderers.terminal import render_terminal
from ragfault.retrieval.pipeline_config import (
    PipelineConfig,
    format_pipeline_config,
    load_pipeline,
    read_pipeline_config,
    replace_stage,
)

skip_without("bm25s", reason="the extra `retrieval` is not installed")

SMALL = SearchSpace(
    chunkers=("fixed(64)", "sentences(64)"),
    embedders=("latent(dimensions=8)",),
    retrievals=("sparse(k=50)", "hybrid(k=50)"),
    queries=("decompose",),
    rerankers=("rerank(lexical, depth=10)",),
    selections=("top(5)",),
    compressions=(),
)
START = PipelineConfig(chunker="fixed(64)", stages={"retrieve": "sparse(k=50)", "select": "top(10)"})


@pytest.fixture(scope="module")
def handbook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "handbook"
    write_handbook(folder)
    return folder


@pytest.fixture(scope="module")
def documents(handbook: Path) -> list[Document]:
    return list(read_documents(handbook / "documents"))


@pytest.fixture(scope="module")
def questions(handbook: Path) -> list[Trace]:
    return [trace for trace in read_traces(str(handbook / "questions.jsonl")) if trace.gold is not None]


@pytest.fixture(scope="module")
def tuned(documents: list[Document], questions: list[Trace]) -> TuningResult:
    return tune(documents, questions, space=SMALL, baseline=START)


# --- gold ------------------------------------------------------------------------------------------


def test_questions_of_people_measure_first_where_others_are_synthetic():
    questions = [
        TuningQuestion(id=str(at), query="?", gold=Gold(), group=str(at), synthetic=at >= 10) for at in range(40)
    ]
    parts = split_questions(questions)
    assert {question.id for question in questions if not question.synthetic} <= {
        question.id for question in parts.holdout
    }
    assert len(parts.selection) == len(parts.holdout) == 20


def test_grades_do_not_depend_on_how_a_span_is_cut():
    """The grades of chunks without overlap add up to the grades of the spans, wherever the cuts are."""
    spans = [Span(document="d", start=10, end=40), Span(document="d", start=50, end=60, grade=2.0)]
    for cuts in ([0, 100], [0, 20, 55, 100], [*list(range(0, 101, 7)), 101]):
        chunks = [Chunk(id=str(a), document="d", start=a, end=b) for a, b in itertools.pairwise(cuts)]
        assert sum(grade_chunks(spans, chunks).values()) == pytest.approx(3.0)


def question(**gold: object) -> TuningQuestion:
    return TuningQuestion(id="q", query="?", gold=Gold(**gold), group="g")  # type: ignore[arg-type]


def test_a_chunk_without_its_gold_after_compression_does_not_count():
    """A compressed chunk counts while it holds half of the gold that it held, and spans count what is left of it."""
    text = "One is first. Two is second. Three is third."
    original = Chunk(id="a", text=text, document="d", start=0, end=len(text))
    asked = question(spans=(Span(document="d", start=14, end=28),))
    grader = HitGrader(parse_tuning_metric("ndcg@10"), [original])
    remaining, lost = (replace(original, text=part) for part in (text[14:28], text[:13] + " … " + text[29:]))
    assert grader.grade_hits(asked, [original], 0).value == grader.grade_hits(asked, [remaining], 0).value == 1
    assert grader.grade_hits(asked, [lost], 0).value == 0
    assert grader.grade_hits(asked, [lost], 0).recall == 0
    assert grader.grade_hits(asked, [remaining], 0).precision == 1


def test_gold_documents_count_by_any_of_their_chunks():
    """Where gold is documents each counts once, at its first chunk, however it is cut."""
    chunks = [Chunk(id=f"{name}{at}", text="x", document=name) for name in "ab" for at in range(3)]
    grader = HitGrader(parse_tuning_metric("reciprocal_rank"), chunks)
    result = grader.grade_hits(question(chunks={"b": 1.0}), chunks, 0)
    assert (result.value, result.recall, result.precision) == (0.5, 1, 0.5)


def test_only_metrics_of_chunks_and_gold_are_tuned():
    """A metric that needs an answer, a judge, or that is better when lower is refused."""
    for text in ("groundedness", "context_relevance", "latency", "token_f1"):
        with pytest.raises(UsageError, match="cannot be tuned"):
            parse_tuning_metric(text)
    with pytest.raises(UnknownName, match="ndcg"):
        parse_tuning_metric("ndgc@10")


# --- questions -------------------------------------------------------------------------------------


def test_what_chooses_never_measures(documents: list[Document], questions: list[Trace]):
    """No question is on both sides, nor two of one group, and every question is on one."""
    gathered = gather_questions(questions, documents)
    for seed in range(5):
        parts = split_questions(gathered.questions, 0.4, seed)
        assert {item.id for item in parts.selection} | {item.id for item in parts.holdout} == {
            item.id for item in gathered.questions
        }
        assert not {item.group for item in parts.selection} & {item.group for item in parts.holdout}
        assert len(parts.holdout) == pytest.approx(0.4 * len(gathered.questions), rel=0.2)
    assert split_questions(gathered.questions, 0.4, 1) == split_questions(gathered.questions, 0.4, 1)


def test_questions_of_one_document_stay_together_where_documents_are_many():
    """With many documents a group is a document; with few it is a stretch of overlapping gold, and that is said."""
    many = [Document(id=f"d{at}", text="x" * 50) for at in range(20)]
    traces = [
        Trace(id=f"{at}", query="?", gold=Gold(spans=(Span(document=f"d{at // 2}", start=at, end=at + 1),)))
        for at in range(40)
    ]
    gathered = gather_questions(traces, many)
    assert gathered.grouped_by.startswith("document")
    assert len({item.group for item in gathered.questions}) == 20
    item = [Document(id="d", text="x" * 500)]
    spans = [Gold(spans=(Span(document="d", start=at * 10, end=at * 10 + 15),)) for at in range(10)]
    close = [Trace(id=str(at), query="?", gold=gold) for at, gold in enumerate(spans)]
    far = [
        Trace(id=f"x{at}", query="?", gold=Gold(spans=(Span(document="d", start=200 + 9 * at, end=205 + 9 * at),)))
        for at in range(9)
    ]
    gathered = gather_questions([*close, *far], item)
    assert gathered.grouped_by.startswith("overlapping gold")
    assert len({member.group for member in gathered.questions}) == 10


def test_questions_that_cannot_be_used_are_counted(documents: list[Document], questions: list[Trace]):
    """Without gold, with gold elsewhere, with gold beyond the end: left out, and how many is said."""
    span = Span(document="nowhere.md", start=0, end=5)
    far = Span(document=documents[0].id, start=0, end=10**9)
    odd = [
        Trace(id="a", query="?"),
        Trace(id="b", query="?", gold=Gold(spans=(span,))),
        Trace(id="c", query="?", gold=Gold(spans=(far,))),
        Trace(id="d", query="?", gold=Gold(chunks={"chunk-7": 1.0})),
    ]
    gathered = gather_questions([*questions, *odd], documents)
    assert len(gathered.questions) == len(questions)
    for why in ("without gold: 1", "not in the corpus: 1", "beyond the ends", "give spans"):
        assert why in gathered.notes[0]


def test_bad_input_is_refused(documents: list[Document], questions: list[Trace]):
    """An empty corpus, a corpus without text, one question, an id twice: each says what is wrong."""
    with pytest.raises(InputError, match="holds no document"):
        tune([], questions)
    with pytest.raises(InputError, match="has text"):
        tune(
            [replace(document, text=" " * len(document.text)) for document in documents],
            questions,
            space=SMALL,
            baseline=START,
        )
    with pytest.raises(InputError, match="1 of 1 questions can be used, and at least 8"):
        tune(documents, questions[:1])
    with pytest.raises(InputError, match="two questions have the id"):
        tune(documents, [*questions, questions[0]])
    with pytest.raises(InputError, match="two documents have the id"):
        tune([*documents, documents[0]], questions)
    with pytest.raises(InputError, match="Without gold: 9"):
        tune(documents, [Trace(id=str(at), query="?") for at in range(9)])


def test_questions_that_all_hang_together_are_refused():
    """Where every question shares gold with the next, none can measure."""
    gold = Gold(spans=(Span(document="d", start=0, end=5),))
    with pytest.raises(InputError, match="hang together"):
        tune([Document(id="d", text="x" * 50)], [Trace(id=str(at), query="?", gold=gold) for at in range(12)])


# --- terms and the race ----------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["tokens", "tokens>=5", "recall<=0.5", "tokens<=x", "tokens<=1.2.3"])
def test_a_bound_that_cannot_be_is_refused(text: str):
    """A bound has a figure, a side and a number, and bounds the side that costs."""
    with pytest.raises(UsageError):
        parse_bound(text)
    with pytest.raises(UnknownName, match="latency_p95"):
        parse_bound("latency_p59<=200")


@pytest.mark.parametrize("text", ["", "0m", "10 miles", "-3m", "."])
def test_a_budget_that_cannot_be_is_refused(text: str):
    """A budget is a positive span of time."""
    with pytest.raises(UsageError):
        parse_budget(text)


def outcomes(values: np.ndarray) -> list[QuestionOutcome]:
    return [QuestionOutcome(float(value), 0, 0, 0, 1, 1) for value in values]


def test_the_race_finds_the_best_and_spends_little_on_the_others():
    """The candidate that is best by far wins, and those far behind it see the first questions only."""
    rng = np.random.default_rng(0)
    asked = [TuningQuestion(id=str(at), query="?", gold=Gold(), group=str(at)) for at in range(256)]
    field = [PipelineConfig(chunker=f"fixed({at})") for at in range(8)]
    truth = {config.name: np.clip(rng.normal(0.2 + 0.08 * at, 0.1, 256), 0, 1) for at, config in enumerate(field)}
    seen: dict[str, int] = {}

    def measure(configs: Sequence[PipelineConfig], part: Sequence[TuningQuestion]) -> dict[str, list[QuestionOutcome]]:
        for config in configs:
            seen[config.name] = max(len(part), seen.get(config.name, 0))
        return {config.name: outcomes(truth[config.name][: len(part)]) for config in configs}

    assert race_configs(field, asked, measure, 1)[0].config == field[-1]
    assert seen[field[0].name] == plan_round_sizes(256)[0]
    assert seen[field[-1].name] == 256


def test_of_equal_candidates_the_cheaper_is_better():
    """Where values tie, milliseconds decide."""
    asked = [TuningQuestion(id=str(at), query="?", gold=Gold(), group=str(at)) for at in range(10)]
    slow, quick = PipelineConfig(chunker="fixed(1)"), PipelineConfig(chunker="fixed(2)")
    cost = {slow.name: 9.0, quick.name: 1.0}
    result = race_configs(
        [slow, quick],
        asked,
        lambda configs, part: {
            config.name: [QuestionOutcome(0.5, 0, 0, 0, cost[config.name], 0) for _ in part] for config in configs
        },
        1,
    )
    assert result[0].config == quick


def test_the_frontier_is_what_nothing_dominates():
    """A point is on the frontier exactly where no other is as good in all and better in one."""
    rng = random.Random(0)
    points = [(rng.random(), rng.random(), rng.random()) for _ in range(60)]
    undominated = set(select_undominated(points))
    for at, point in enumerate(points):
        beaten = any(all(a >= b for a, b in zip(two, point, strict=True)) and two != point for two in points)
        assert (at in undominated) != beaten


@pytest.mark.long
@pytest.mark.parametrize("folder", [None, "cache"])
def test_workers_find_what_one_process_finds(
    documents: list[Document], questions: list[Trace], tmp_path: Path, folder: str | None
):
    """Two processes give the outcomes of one, times aside, and what they computed is kept, whether they share a cache.

    Questions that two configurations share take the first stages once.
    """
    asked = gather_questions(questions, documents).questions[:40]
    configs = [START, replace_stage(START, "select", "top(3)")]
    cache = TuningCache(None if folder is None else tmp_path / folder, documents)
    spread = TrialRunner(cache, parse_tuning_metric("ndcg@10"), ProcessExecutor(2))
    alone = TrialRunner(TuningCache(None, documents), parse_tuning_metric("ndcg@10"))
    measure_elsewhere(spread, configs, asked[:20])
    assert all(len(known) == 16 for known in spread.outcomes.values()), "so little work goes to no worker"
    measure_elsewhere(spread, configs, asked, least_seconds=0.0)
    for config in configs:
        elsewhere = [replace(spread.outcomes[config.name][question.id], ms=0.0) for question in asked]
        assert elsewhere == [replace(outcome, ms=0.0) for outcome in alone.measure(config, asked)]
    assert spread.computed_seconds.keys() == alone.computed_seconds.keys()
    assert {key: steps.keys() for key, steps in cache._steps.items()} == {
        key: steps.keys() for key, steps in alone.cache._steps.items()
    }


# --- the whole -------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_tuning_says_what_it_rests_on(tuned: TuningResult, questions: list[Trace]):
    """Both parts are counted, every gain is on the held-out ones, and plain BM25 and the present pipeline are there."""
    assert tuned.selection_questions + tuned.holdout_questions == len(questions)
    assert {gain.difference.n for gain in (*tuned.gains, *tuned.ablations, *tuned.rejected)} == {
        tuned.holdout_questions
    }
    assert (
        {row.n for row in tuned.measured} == {point.measured.n for point in tuned.frontier} == {tuned.holdout_questions}
    )
    assert tuned.measured[0].config == tuned.config
    assert tuned.measured[0].name.startswith("recommended")
    assert {row.config.name for row in tuned.measured} == {tuned.config.name, tuned.best.name, START.name}
    assert any(point.recommended for point in tuned.frontier)
    tokens = {row.config.name: row.tokens for row in tuned.measured}
    assert tokens[tuned.best.name] <= tokens[START.name] * 1.1
    assert any("tokens" in note for note in tuned.notes)


def test_lint_does_not_mark_what_a_tuning_next_to_it_recommends(tmp_path: Path):
    config = PipelineConfig(chunker="fixed(64)", stages={"find": "sparse(k=50)"})
    path = tmp_path / "pipeline.toml"
    path.write_text(format_pipeline_config(config), encoding="utf-8")
    assert {pitfall.name for pitfall in lint(path) if pitfall.detected} == {"lost in the middle", "static chunk size"}
    (tmp_path / "search.json").write_text(json.dumps({"config": msgspec.to_builtins(config)}), encoding="utf-8")
    assert not [pitfall for pitfall in lint(path) if pitfall.detected]
    (tmp_path / "search.json").write_text(json.dumps({"config": msgspec.to_builtins(START)}), encoding="utf-8")
    assert [pitfall for pitfall in lint(path) if pitfall.detected]


def test_the_frontier_is_one_table_of_value_latency_and_tokens(tuned: TuningResult):
    """Every point that is neither recommended nor compared is on the frontier, and the median is at most the tail."""
    compared = {row.config.name for row in tuned.measured}
    assert all(point.undominated for point in tuned.frontier if point.measured.config.name not in compared)
    assert any(point.undominated for point in tuned.frontier)
    assert all(point.measured.p50 <= point.measured.p95 for point in tuned.frontier)
    document = build_tuning(tuned)
    for text in (render_terminal(document, width=120), render_markdown(document)):
        assert "p50 ms" in text
        assert "Frontier" in text


def test_a_gain_is_shown_by_its_corrected_test_alone(tuned: TuningResult):
    """Shown are those whose p by Holm is at most 0.05; and corrected values are never below their own."""
    for gain in (*tuned.gains, *tuned.ablations, *tuned.rejected):
        assert gain.adjusted_p >= gain.p
        assert (gain.verdict != "no gain shown") == (gain.adjusted_p <= 0.05)


@pytest.mark.long
def test_a_tuning_is_the_same_again(tuned: TuningResult, documents: list[Document], questions: list[Trace]):
    """The same corpus, questions and seed choose the same pipeline and the same figures of quality."""
    again = tune(documents, questions, space=SMALL, baseline=START)
    assert again.config == tuned.config
    assert [row.value for row in again.measured] == [row.value for row in tuned.measured]


def test_cached_steps_are_not_computed_again(tmp_path: Path, documents: list[Document], questions: list[Trace]):
    """A store in a folder gives a later bench the same outcomes, times included, without a stage being run."""
    asked = gather_questions(questions, documents).questions[:20]
    config = replace(START, embedder="latent(dimensions=8)", stages={"retrieve": "hybrid(k=20)", "select": "top(5)"})
    first = TrialRunner(TuningCache(tmp_path, documents), parse_tuning_metric("ndcg@10"))
    result = first.measure(config, asked)
    first.cache.flush()
    second = TrialRunner(TuningCache(tmp_path, documents), parse_tuning_metric("ndcg@10"))
    assert second.measure(config, asked) == result
    assert not second._stages
    assert second.uncached_seconds == pytest.approx(first.uncached_seconds, abs=1e-3)


def test_a_changed_corpus_uses_no_cached_step(tmp_path: Path, documents: list[Document]):
    """One letter of one document makes another corpus."""
    TuningCache(tmp_path, documents).get_index(START)
    other = [replace(documents[0], text=documents[0].text + "."), *documents[1:]]
    assert TuningCache(tmp_path, documents).has_index(START)
    assert not TuningCache(tmp_path, other).has_index(START)


@pytest.mark.long
def test_a_pipeline_that_keeps_to_bounds_is_chosen(documents: list[Document], questions: list[Trace]):
    """With a bound on tokens what is recommended keeps to it; where nothing can, that is said."""
    result = tune(documents, questions, space=SMALL, baseline=START, subject_to=["tokens<=300"])
    assert result.measured[0].tokens <= 300 * 1.05
    broken = tune(documents, questions, space=SMALL, baseline=START, subject_to=["precision>=0.99"])
    assert any("nothing that was searched keeps to" in note for note in broken.notes)


def test_a_spent_budget_ends_the_search_with_the_best_so_far(documents: list[Document], questions: list[Trace]):
    """A search that may take no time recommends what it began with, and says at which step it stopped."""
    result = tune(documents, questions, space=SMALL, baseline=START, budget="0.001s", subject_to=["tokens<=2000"])
    assert result.config == START
    assert result.stopped_at == "chunker"
    assert any("budget was spent" in note for note in result.notes)


@pytest.mark.long
def test_a_run_says_what_is_searched(tmp_path: Path, documents: list[Document], questions: list[Trace]):
    """Irrelevant chunks blame the selection alone, nothing relevant the phases before it, a good run nothing."""
    far = Chunk(id="z", text="Bananas are yellow.")
    near = Chunk(id="a", text="The last ferry leaves at 22:40.")
    mixed = Trace(id="1", query="When does the last ferry leave?", chunks=(near, far))
    run = evaluate([mixed], tmp_path / "mixed", metrics=["context_relevance"])
    result = tune(documents, questions, space=SMALL, baseline=START, run=run)
    assert {step.step for step in result.search_steps} <= {"rerank", "select", "compress"}
    assert result.config.chunker == START.chunker
    assert any("as the diagnosis" in note for note in result.notes)
    twice = evaluate([mixed, replace(mixed, id="2")], tmp_path / "twice", metrics=["context_relevance"])
    result = tune(documents, questions, space=SMALL, baseline=START, run=sample_run(twice, 1))
    assert any("(1 of 2 traces, drawn at random)" in note for note in result.notes)
    good = evaluate([replace(mixed, chunks=(near,))], tmp_path / "good", metrics=["context_relevance"])
    result = tune(documents, questions, space=SMALL, baseline=START, run=good)
    assert any("every phase is searched" in note for note in result.notes)
    assert "chunker" in {step.step for step in result.search_steps}


def test_embedders_are_checked_first():
    """An embedder that does not exist is refused before anything is read."""
    with pytest.raises(UnknownName, match="latent"):
        default_space(["latnt"])


@pytest.mark.long
def test_indexes_are_built_by_several_processes(tmp_path: Path, documents: list[Document]):
    """Processes leave the same indexes in the folder that this one would make."""
    store = TuningCache(tmp_path / "two", documents)
    configs = [START, replace(START, chunker="sentences(64)")]
    store.prebuild_indexes(configs, 2)
    assert all(store.has_index(config) for config in configs)
    alone = TuningCache(None, documents)
    for config in configs:
        assert store.get_index(config).index.chunks == alone.get_index(config).index.chunks


# --- the command -----------------------------------------------------------------------------------


@pytest.mark.long
def test_the_command_leaves_a_pipeline_that_loads(
    tmp_path: Path, handbook: Path, documents: list[Document], capsys: pytest.CaptureFixture[str]
):
    """`ragfault tune pipeline` writes its files; the pipeline runs; a second time it asks for --force."""
    out = tmp_path / "tuned"
    arguments = [
        "tune",
        "pipeline",
        str(handbook / "documents"),
        str(handbook / "questions.jsonl"),
        "-o",
        str(out),
        "--quiet",
    ]
    arguments += ["--chunkers", "sentences(64)", "--budget", "60s"]
    assert ragfault(arguments) == 0
    shown = capsys.readouterr().out
    assert "On the held-out questions" in shown
    config = read_pipeline_config(out / "pipeline.toml")
    assert load_pipeline(out / "pipeline.toml", documents)("When does the last ferry leave?").chunks
    tuning = msgspec.json.decode((out / "search.json").read_bytes(), type=TuningResult)
    assert tuning.config == config
    assert shown.startswith(f"Recommended: {tuning.recommended}. ")
    assert len(tuning.trials) >= len(tuning.search_steps)
    assert (out / "search.html").read_text(encoding="utf-8").count("<svg") == 2
    assert ragfault(arguments) == 2
    assert "--force" in capsys.readouterr().err


def test_the_page_stands_alone(tuned: TuningResult):
    """The HTML page carries charts and figures, asks nothing of any network, and runs one script by its hash."""
    page = render_html_page(build_tuning(tuned), "tune")
    assert page.count("<svg") == 2
    assert "default-src 'none'" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert tuned.metric in page


@pytest.mark.parametrize("verb", ["lint", "savings", "relevance"])
def test_advice_is_given_on_the_command_line(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """lint leaves with 1 where a pitfall is found; savings and relevance print what they compute."""
    (tmp_path / "pipeline.toml").write_text(
        '[index]\nchunker = "fixed(64)"\n[stages]\nfind = "sparse"\n', encoding="utf-8"
    )
    (tmp_path / "dogs.md").write_text("Dogs need a lead.", encoding="utf-8")
    commands = {
        "lint": ([str(tmp_path / "pipeline.toml")], 1, "static chunk size"),
        "savings": (
            ["--precision", "0.60", "0.85", "--recall", "0.65", "0.75", "--cost", "0.05", "--queries", "100000"],
            0,
            "7,500.00 a year",
        ),
        "relevance": (
            ["Do dogs need a lead?", str(tmp_path / "dogs.md"), "--judge", "lexical", "--judge", "embedded"],
            0,
            "Difference",
        ),
    }
    arguments, code, message = commands[verb]
    group = [] if verb == "lint" else ["tune"]
    assert ragfault([*group, verb, *arguments]) == code
    assert message in capsys.readouterr().out


def test_another_query_under_the_same_id_is_searched_anew(documents, questions, tmp_path: Path):
    """Cached steps are keyed by the query, so that questions can be corrected between two tunings."""
    question = gather_questions(questions, documents).questions[0]
    changed = replace(question, query="Where is the lost property office?")
    first = TrialRunner(TuningCache(tmp_path, documents), parse_tuning_metric("ndcg@10"))
    first.measure(START, [question])
    first.cache.flush()
    again = TrialRunner(TuningCache(tmp_path, documents), parse_tuning_metric("ndcg@10"))
    remaining = again.measure(START, [changed])
    fresh = TrialRunner(TuningCache(None, documents), parse_tuning_metric("ndcg@10")).measure(START, [changed])
    assert remaining[0].tokens == fresh[0].tokens
    assert remaining[0].value == fresh[0].value


def test_a_stage_that_fails_is_not_measured(documents, questions, monkeypatch: pytest.MonkeyPatch):
    """In a search a service that fails leaves the order as it was; in a tuning that would pass for its worth."""

    class Broken:
        fingerprint = "broken"

        def relevance(self, query, texts):
            raise ConnectionError("no route to host")

    monkeypatch.setattr("ragfault.retrieval.stage_registry.load_reranker", lambda *_: Broken())
    bench = TrialRunner(TuningCache(None, documents), parse_tuning_metric("ndcg@10"))
    config = PipelineConfig(stages={"retrieve": "sparse", "rerank": "rerank(cohere)"})
    with pytest.raises(StageFailed, match="no route to host"):
        bench.measure(config, gather_questions(questions, documents).questions[:1])


def test_what_is_spent_early_still_keeps_to_the_bounds(documents, questions):
    """A search that ends at the first step recommends what it measured, and keeps to the bounds where anything does."""
    selected = gather_questions(questions, documents).questions[:20]
    bench = TrialRunner(TuningCache(None, documents), parse_tuning_metric("ndcg@10"))
    wide = replace(START, stages={"retrieve": "sparse(k=50)"})
    bound = Bound("tokens", "<=", 600.0)
    lean = replace(START, stages={"retrieve": "sparse(k=50)", "select": "budget(600)"})
    bench.measure(wide, selected)
    bench.measure(lean, selected)
    bench.deadline = 0.0
    result = PipelineSearch(bench, SMALL, wide, selected, [bound]).run()
    assert result.stopped_at == "chunker"
    assert result.config == lean
    assert result.notes == ()


@pytest.mark.long
def test_bad_documents_can_be_left_out(handbook: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """An empty file is named, with the option that leaves it out; with it the others are used."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "empty.md").write_text("")
    (tmp_path / "docs" / "dogs.md").write_text("Dogs need a lead.")
    arguments = ["tune", "relevance", "Do dogs need a lead?", str(tmp_path / "docs"), "--judge", "lexical"]
    assert ragfault(arguments) == 2
    assert "--skip-bad" in capsys.readouterr().err
    assert ragfault([*arguments, "--skip-bad"]) == 0
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for file in (handbook / "documents").iterdir():
        (corpus / file.name).write_bytes(file.read_bytes())
    (corpus / "empty.md").write_text("")
    arguments = [
        "tune",
        "pipeline",
        str(corpus),
        str(handbook / "questions.jsonl"),
        "-o",
        str(tmp_path / "out"),
        "--quiet",
    ]
    arguments += ["--chunkers", "sentences(64)", "--budget", "5s"]
    assert ragfault(arguments) == 2
    assert ragfault([*arguments, "--skip-bad"]) == 0
    assert "left out: " in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_silent_in_a_browser(tuned: TuningResult, scheme: str, tmp_path: Path):
    """Opened from a disk it asks for nothing, reports no fault, draws its charts, and follows the colour scheme."""
    from ragfault.report.output import write_report_file

    place = write_report_file(tmp_path / "search.html", render_html_page(build_tuning(tuned), "tune"))
    requests: list[str] = []
    noise: list[str] = []
    with start_browser() as browser:
        page = browser.new_page(color_scheme=scheme, viewport={"width": 400, "height": 800})
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: noise.append(message.text))
        page.on("pageerror", lambda error: noise.append(str(error)))
        page.goto((place or tmp_path / "search.html").as_uri())
        page.wait_for_timeout(300)
        assert page.locator("svg").count() == 2
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, colour[4:-1].split(",")[:3])) < 200) == (scheme == "dark")
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        page.screenshot(path=str(tmp_path / f"{scheme}.png"))
    assert noise == []
    assert requests == [(tmp_path / "search.html").as_uri()]


def test_comparisons_of_a_kind_are_corrected_together(documents, questions):
    """What is said to be shown is so after Holm's correction over all comparisons of its kind."""
    from ragfault.apps.tune.holdout import HoldoutEvaluator
    from ragfault.stats.significance import holm_adjust

    holdout = [replace(item, group=item.id) for item in gather_questions(questions, documents).questions[:12]]
    bench = TrialRunner(TuningCache(None, documents), parse_tuning_metric("ndcg@10"))
    configs = [replace(START, chunker=f"fixed({size})") for size in (64, 65, 66, 67)]
    for rank, config in enumerate(configs):
        values = [0.5 - (0.1 * rank if at < 6 else 0.0) for at in range(12)]
        outcomes = [QuestionOutcome(value, 1, 1, 1, 1, 1) for value in values]
        bench.outcomes[config.name] = {item.id: outcome for item, outcome in zip(holdout, outcomes, strict=True)}
    pairs = [("chunker", configs[0], other, "ours", "theirs") for other in configs[1:]]
    gains = HoldoutEvaluator(bench, holdout).compare_configs(pairs)
    assert [gain.adjusted_p for gain in gains] == holm_adjust([gain.p for gain in gains])
    assert all(gain.p < 0.05 < gain.adjusted_p for gain in gains)
    assert {gain.verdict for gain in gains} == {"no gain shown"}
