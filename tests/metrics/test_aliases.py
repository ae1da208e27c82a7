"""Names of other tools for metrics: each says what answers it, and none changes a name of this catalogue."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ragfault import Trace, evaluate, write_traces
from ragfault.cli.commands import run_command
from ragfault.metrics.aliases import ALIASES, explain_aliases, resolve_alias
from ragfault.metrics.catalog import get_definitions
from ragfault.metrics.selection import select_metrics
from ragfault.model.errors import UnknownName

TRACE = Trace(id="1", query="When?", chunks=(), answer="At ten.", reference="At ten.")


def test_a_name_of_the_catalogue_is_never_changed():
    """Whatever other tools mean by it, and whatever stands behind it."""
    for name in get_definitions():
        for text in (name, f"{name}@5", f"{name}(a=1)@5"):
            assert resolve_alias(text) == text
            assert not list(explain_aliases(text))


@pytest.mark.parametrize("alias", ALIASES, ids=lambda alias: f"{alias.name}-{alias.tool}")
def test_an_alias_is_answered_by_a_metric_that_there_is(alias):
    """It says how they differ in a line, and the class that the tool calls it by is taken too."""
    assert alias.metric in get_definitions()
    assert alias.differs
    assert "\n" not in alias.differs
    if alias.name == alias.metric:
        return
    camel = "".join(word.capitalize() for word in alias.name.split("_"))
    for text in (alias.name, alias.name.upper(), f"{alias.name}_metric", alias.name.replace("_", " "), camel):
        assert resolve_alias(text) == alias.metric
        assert any(
            f" of {alias.tool} is answered by {alias.metric}: {alias.differs}" in line for line in explain_aliases(text)
        )


def test_parameters_after_an_alias_remain():
    """Parameters and cut-off go to the metric that answers it."""
    assert [str(metric) for metric in select_metrics(["faithfulness(strict=true)", "MRR@10", "HitRate@3"])] == [
        "groundedness(strict=true)",
        "reciprocal_rank@10",
        "hit@3",
    ]


def test_a_class_that_is_called_as_a_metric_here_is_answered_by_it():
    """It is said how they differ, because that name is not one of the catalogue."""
    assert resolve_alias("ContextPrecision") == "context_precision"
    explained = [line.split(" is ")[0] for line in explain_aliases("ContextPrecision")]
    assert explained == ["ContextPrecision of Ragas", "ContextPrecision of RAGChecker"]


def test_a_run_names_what_was_computed(tmp_path: Path):
    """Scores bear the name of the metric here, and each alias is told once for each tool that has it."""
    lines: list[str] = []
    run = evaluate(
        [TRACE], tmp_path / "run", judge="lexical", metrics=["faithfulness", "exact_match"], on_notice=lines.append
    )
    assert [measure.name for measure in run.manifest.metrics] == ["groundedness", "exact_match"]
    metrics = [line.split(" is ")[0] for line in lines if "answered by" in line]
    assert metrics == ["faithfulness of Ragas", "faithfulness of DeepEval", "faithfulness of RAGChecker"]


def test_an_unknown_name_stays_unknown():
    """Also where it looks like one of another tool."""
    with pytest.raises(UnknownName, match='no metric "faithfulnes"'):
        select_metrics("faithfulnes")


def test_the_catalogue_explains_an_alias(capsys: pytest.CaptureFixture[str]):
    """`ragfault metrics NAME` says what answers it, and explains that."""
    assert run_command(["metrics", "ContextualRecallMetric"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("ContextualRecallMetric of DeepEval is answered by context_recall: ")
    assert re.search(r"^context_recall\b", out, re.MULTILINE)


def test_the_command_line_tells_aliases(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Also where it is quiet, and where a run is rescored."""
    place = tmp_path / "traces.jsonl"
    assert write_traces([TRACE], place) == 1
    asked = ["--metrics", "hit_rate", "-q"]
    assert run_command(["evaluate", str(place), "-o", str(tmp_path / "run"), "--judge", "lexical", *asked]) == 0
    assert run_command(["run", "rescore", str(tmp_path / "run"), "-o", str(tmp_path / "rescored"), *asked]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["hit_rate of LlamaIndex is answered by hit"] * 2
