"""Laws of the trusted corpus: claims are true or false by it, whatever was retrieved; a reference goes before it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ragfault.cli.commands import run_command
from ragfault.evaluation.evaluator import evaluate
from ragfault.evaluation.trusted_corpus import TrustedJudge, load_trusted_corpus
from ragfault.io.runs.run import Run
from ragfault.judges.loading import load_judge
from ragfault.metrics.catalog import compute_score, parse_metric
from ragfault.model.errors import InputError
from ragfault.model.records import Chunk, Trace
from ragfault.retrieval.index import ChunkIndex

TRUSTED = [
    Chunk(id="a", text="The night ferry to Ostrey leaves at 22:40 from pier 3."),
    Chunk(id="b", text="The harbour office of Ostrey opens at 7:30 on weekdays."),
    Chunk(id="c", text="Dogs travel free of charge on all ferries of the line."),
]
TRUE, FALSE, SILENT = (
    "The night ferry to Ostrey leaves at 22:40 from pier 3.",
    "The harbour office of Ostrey opens at 9:30 on weekdays.",
    "The mayor of Ostrey sings opera in the evening.",
)


def observe(trace: Trace):
    return TrustedJudge(load_judge("lexical"), ChunkIndex.build(TRUSTED)).observe([trace])[0]


def test_claims_are_true_or_false_whatever_was_retrieved():
    """A true claim that no chunk supports is true, a false one that a chunk supports is false, others unknown."""
    stale = Chunk(id="x", text="The harbour office of Ostrey opens at 9:30 on weekdays.")
    trace = Trace(id="1", query="When?", chunks=(stale,), answer=f"{TRUE} {FALSE} {SILENT}")
    verdicts = observe(trace)
    assert [claim.support for claim in verdicts.claim or ()] == ["unsupported", "supported", "unsupported"]
    assert [item.status for item in verdicts.truth or ()] == ["supported", "contradicted", "unknown"]
    assert compute_score(parse_metric("factual_accuracy"), trace, verdicts).value == 0.5


def test_a_reference_goes_before_the_corpus():
    """A trace with a reference is checked against that alone; a blank answer against nothing."""
    trace = Trace(id="1", query="When?", answer=TRUE, reference="Nobody knows.")
    assert observe(trace).truth == load_judge("lexical").observe([trace])[0].truth
    assert observe(msgspec.structs.replace(trace, answer="", reference=None)).truth is None


def test_without_chunks_the_answer_alone_is_checked():
    """Where no chunks were recorded the claims are still checked, and no claim verdict is invented."""
    verdicts = observe(Trace(id="1", query="When?", answer=f"{TRUE} {FALSE}"))
    assert verdicts.claim is None
    assert [item.status for item in verdicts.truth or ()] == ["supported", "contradicted"]


def test_the_corpus_is_part_of_the_judge():
    """Another corpus is another fingerprint."""
    judges = [TrustedJudge(load_judge("lexical"), ChunkIndex.build(TRUSTED[:count])) for count in (2, 3)]
    assert len({judge.fingerprint for judge in judges}) == 2


@pytest.mark.long
def test_trusted_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """`--trusted FOLDER` fills factual_accuracy, with any number of workers, and an empty folder is refused."""
    folder = tmp_path / "trusted"
    folder.mkdir()
    traces = [Trace(id=str(n), query="When?", answer=(TRUE, FALSE, SILENT)[n % 3]) for n in range(6)]
    (tmp_path / "t.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, traces)))
    command = ["evaluate", str(tmp_path / "t.jsonl"), "--judge", "lexical", "-m", "factual_accuracy", "-q"]
    assert run_command([*command, "--trusted", str(folder), "-o", str(tmp_path / "none")]) == 2
    for chunk in TRUSTED:
        (folder / f"{chunk.id}.txt").write_text(chunk.text, encoding="utf-8")
    values = []
    for workers in ("1", "2"):
        out = tmp_path / f"run{workers}"
        assert run_command([*command, "--trusted", str(folder), "-w", workers, "-o", str(out)]) == 0
        values.append([score.value for score in Run.open(out).scores()])
    assert values[0] == values[1] == [1.0, 0.0, None, 1.0, 0.0, None]
    assert run_command([*command, "--trusted", str(folder), "--dry-run"]) == 2
    with pytest.raises(InputError):
        load_trusted_corpus(tmp_path / "nothing")
    assert evaluate(traces, tmp_path / "own", judge="lexical", metrics=["error"], trusted=folder).manifest.failed == 0
