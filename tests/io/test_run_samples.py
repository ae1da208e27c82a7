"""Random samples of runs: what is drawn, and that it is read like a run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragfault import Run, bisect, compare, evaluate
from ragfault.cli.commands import run_command
from ragfault.comparison.paired_runs import pair_runs
from ragfault.comparison.run_history import history
from ragfault.diagnosis.clusters.clustering import cluster_runs
from ragfault.diagnosis.run_analysis import analyze
from ragfault.io.datasets.demo_handbook import load_handbook
from ragfault.io.runs.samples import sample_run, sample_runs
from ragfault.model.errors import RunError
from ragfault.model.records import Chunk, Trace
from ragfault.report.builders.clusters import build_clusters
from ragfault.report.html.report import render_run_html
from ragfault.report.renderers.terminal import render_terminal
from ragfault.report.wording import describe_trace_count
from remembered import LEXICAL


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    place: Path = tmp_path_factory.mktemp("samples")
    old, new = (
        evaluate(load_handbook().traces[version], place / version, judge=LEXICAL, metrics=["groundedness", "mrr"])
        for version in ("v1", "v2")
    )
    return old, new


def test_a_run_with_no_more_traces_is_its_own_sample(runs: tuple[Run, Run]) -> None:
    assert sample_run(runs[0], runs[0].manifest.traces) is runs[0]
    assert sample_run(runs[0], 0) is runs[0]
    assert sample_runs(runs, 10_000) == runs


def test_a_sample_holds_all_of_each_of_its_traces_in_the_order_of_the_run(runs: tuple[Run, Run]) -> None:
    run, sample = runs[0], sample_run(runs[0], 30)
    ids = [trace.id for trace in sample.traces()]
    assert len(ids) == sample.manifest.traces == 30
    assert list(sample.traces()) == list(run.traces(ids))
    assert list(sample.verdicts()) == list(run.verdicts(ids))
    assert list(sample.scores()) == list(run.scores(ids))
    counts = [sum(score.status == status for score in sample.scores()) for status in ("scored", "undefined", "failed")]
    assert counts == [sample.manifest.scored, sample.manifest.undefined, sample.manifest.failed]


def test_fields_restrict_what_is_read_of_a_trace(runs: tuple[Run, Run]) -> None:
    for run in (runs[0], sample_run(runs[0], 30)):
        expected = [Trace(id=t.id, query=t.query, chunks=t.chunks, answer=t.answer) for t in run.traces()]
        assert list(run.traces(fields=["chunks", "answer"])) == expected


@pytest.mark.parametrize("table", ["verdicts", "scores"])
def test_a_sample_refuses_a_table_in_another_order_than_the_traces(
    runs: tuple[Run, Run], tmp_path: Path, table: str
) -> None:
    place = tmp_path / "turned"
    shutil.copytree(runs[0].path, place)
    rows = pq.read_table(place / f"{table}.parquet")
    half = rows.num_rows // 2
    pq.write_table(pa.concat_tables([rows.slice(half), rows.slice(0, half)]), place / f"{table}.parquet")
    turned = Run(place, msgspec.structs.replace(runs[0].manifest, checksums={}))
    with pytest.raises(RunError, match="in the order of the run"):
        list(sample_run(turned, 30).verdicts())
    pq.write_table(rows.slice(0, half), place / f"{table}.parquet")
    with pytest.raises(RunError, match="in the order of the run"):
        list(sample_run(turned, 30).verdicts())


def test_texts_that_fill_a_dictionary_and_texts_that_do_not_are_copied_alike(tmp_path: Path) -> None:
    traces = [
        Trace(
            id=f"Trace {at}",
            query="When?",
            chunks=(Chunk(id="same", text="Open at nine."), Chunk(id=f"{at}", text=f"{at} " * 9_000)),
            metadata={"shop": at % 3},
        )
        for at in range(60)
    ]
    run = evaluate(traces, tmp_path / "long", judge="none", metrics=["mrr"])
    ids = [trace.id for trace in sample_run(run, 20).traces()]
    assert list(sample_run(run, 20).traces()) == list(run.traces(ids))
    assert len(ids) == 20


def test_a_larger_sample_includes_a_smaller_one(runs: tuple[Run, Run]) -> None:
    small, large = (set(sample_run(runs[0], most).to_arrow("traces", ["id"])["id"].to_pylist()) for most in (20, 60))
    assert small < large


def test_samples_of_two_runs_pair_with_each_other(runs: tuple[Run, Run]) -> None:
    old, new = sample_runs(runs, 40)
    assert old.to_arrow("traces", ["id"]) == new.to_arrow("traces", ["id"])


def test_runs_that_share_no_more_than_the_sample_are_read_as_they_are(runs: tuple[Run, Run], tmp_path: Path) -> None:
    some = evaluate(list(runs[1].traces())[:30], tmp_path / "some", judge=LEXICAL, metrics=["groundedness", "mrr"])
    assert sample_runs([runs[0], some], 40) == (runs[0], some)
    old, new = sample_runs([runs[0], some], 20)
    assert new.manifest.traces == 20 < old.manifest.traces < runs[0].manifest.traces


@pytest.mark.long
def test_samples_of_runs_without_common_ids_are_chosen_by_query(runs: tuple[Run, Run], tmp_path: Path) -> None:
    from msgspec.structs import replace

    renamed = [replace(trace, id=f"other-{trace.id}") for trace in runs[1].traces()]
    other = evaluate(renamed, tmp_path / "other", judge=LEXICAL, metrics=["groundedness", "mrr"])
    paired = pair_runs(runs[0], other, sample=40)
    assert paired.pairing.paired_by == "query"
    assert len(paired.pairing) == 40
    assert paired.pairing.unpaired == (0, 0)


@pytest.mark.long
def test_every_view_says_that_a_sample_was_read(runs: tuple[Run, Run]) -> None:
    total = runs[0].manifest.traces
    warning = f"a random sample was compared: 40 of {total} traces and 40 of {total} traces; --sample 0 takes all"
    paired = pair_runs(*runs, sample=40)
    assert warning in compare(paired).warnings
    assert warning in bisect(paired).comparison.warnings
    assert warning not in compare(*runs).warnings
    findings = analyze(runs[0], sample=40)
    assert describe_trace_count(findings.manifest) == f"random sample: 40 of {total} traces"
    assert f"random sample: 40 of {total} traces" in str(findings)
    assert f"random sample: 40 of {total} traces" in render_run_html(sample_run(runs[0], 40))


@pytest.mark.long
def test_a_history_follows_one_sample_of_all_runs(runs: tuple[Run, Run]) -> None:
    result = history([runs[0], runs[1], runs[0]], sample=50)
    assert result.traces == 50
    assert any("a random sample was compared" in text for text in result.warnings)


def test_the_temporary_folder_of_a_sample_goes_with_it(runs: tuple[Run, Run]) -> None:
    sample = sample_run(runs[0], 10)
    folder = sample.get_table_path("scores").parent
    assert folder.exists()
    del sample
    assert not folder.exists()


def test_clusters_say_of_which_sample_they_are(runs: tuple[Run, Run]) -> None:
    total = runs[1].manifest.traces
    report = cluster_runs([runs[1]], sample=60)
    assert (report.traces, report.population) == (60, total)
    assert f"random sample: 60 of {total} traces" in render_terminal(build_clusters(report))
    assert cluster_runs([runs[1]]).population == 0


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments",
    [["diagnose", "RUN", "--sample", "40"], ["steps", "RUN", "--sample", "40"], ["clusters", "RUN", "--sample", "40"]],
    ids=lambda arguments: arguments[0],
)
def test_every_verb_on_a_large_run_says_that_it_took_a_sample(
    runs: tuple[Run, Run], arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path, total = str(runs[0].path), runs[0].manifest.traces
    code = run_command([path if word == "RUN" else word for word in arguments])
    printed = capsys.readouterr()
    assert code in (0, 1, 3), printed
    assert f"random sample: 40 of {total} traces" in " ".join((printed.out + printed.err).split())


def test_a_diagnosis_by_id_looks_at_all_traces(runs: tuple[Run, Run], capsys: pytest.CaptureFixture[str]) -> None:
    ids = [trace.id for trace in runs[0].traces()]
    run_command(["diagnose", str(runs[0].path), *ids, "--sample", "1", "--json"])
    assert [entry["trace"] for entry in json.loads(capsys.readouterr().out)] == ids


@pytest.mark.long
def test_an_agent_is_run_again_on_one_sample_of_both_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The questions of a larger run are those of the source's sample, and that a sample was drawn is said."""
    assert run_command(["demo", str(tmp_path), "--agent"]) == 0
    runs = [
        str(evaluate(tmp_path / f"agent-{name}.jsonl", tmp_path / name, judge="none", metrics=["latency"]).path)
        for name in ("v1", "v2")
    ]
    agent = "ragfault.io.datasets.agent:answer_like_version_2"
    capsys.readouterr()
    run_command(["replay", *runs, "--agent", agent, "--judge", "lexical", "-m", "recall@3", "--sample", "20", "--json"])
    printed = capsys.readouterr()
    assert "a random sample was compared: 20 of" in printed.err
    assert json.loads(printed.out)["questions"] == 20


def test_a_sample_holds_of_each_row_group_no_more_than_what_it_takes(tmp_path: Path) -> None:
    traces = [Trace(id=f"{i}", query="When?", answer=f"{i} " * 2_000) for i in range(800)]
    run = evaluate(traces, tmp_path / "run", judge="none", metrics=["error"])
    table = run.to_arrow("traces")
    pq.write_table(table, run.get_table_path("traces"), row_group_size=20)
    run = Run(run.path, msgspec.structs.replace(run.manifest, checksums={}))
    sample = sample_run(run, 40)
    normal, counting = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(counting)
    try:
        sample.get_table_path("traces")
    finally:
        pa.set_memory_pool(normal)
    assert counting.max_memory() < table.nbytes / 4
