"""JSON of the verbs: one document on standard output, as its schema has it, and the same exit code."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from jsonschema import Draft202012Validator

from ragfault.cli.commands import COMMANDS, cli, run_command
from ragfault.report.json_documents import build_document_schema, list_documents

DOCUMENTS = list_documents()
ROOT = Path(__file__).parents[2]

WITHOUT_DOCUMENT = {
    "testset review": "it asks, and a person answers",
    "label ask": "it asks, and a person answers",
    "serve start": "it runs until it is ended",
    "guard proxy": "it runs until it is ended",
    "mcp": "it speaks a protocol of its own",
    "run schema": "it prints JSON as it is",
}
"""Verb that takes no --json → why."""

SERVED = {
    "serve export": "tests/apps/watch/server/test_app.py",
    "tune generator search": "tests/apps/tune/generators/test_search.py",
    "tune generator improve": "tests/apps/tune/generators/test_search.py",
    "judge clarify": "tests/judges/test_clarification.py",
}
"""Verb that needs a server that runs → where it is tested."""

VERBS = {
    "evaluate": ("{demo}/few-v2.jsonl", "-o", "{out}/run", "-m", "default", "--judge", "embedded"),
    "report": ("{demo}/v2",),
    "diagnose": ("{demo}/v2",),
    "steps": ("{demo}/v2",),
    "plan": ("--queries", "200", "--attempts", "3"),
    "gate": ("{demo}/v2", "--threshold", "groundedness>=0.99", "--baseline", "{demo}/v1"),
    "ci": (
        *("{demo}/few-v2.jsonl", "-o", "{out}/run", "--config", "{demo}/settings.toml"),
        *("--baseline", "{demo}/v1", "--threshold", "error<=0.5"),
    ),
    "compare": ("{demo}/v1", "{demo}/v2"),
    "compare --by": ("{demo}/v1", "{demo}/v2", "--by", "route"),
    "bisect": ("{demo}/v1", "{demo}/v2"),
    "bisect --by": ("{demo}/v1", "{demo}/v2", "--by", "route"),
    "bisect 3": ("{demo}/v1", "{demo}/v2", "{demo}/v1"),
    "investigate": ("{demo}/v2", "--baseline", "{demo}/v1"),
    "investigate RUN": ("{demo}/v2",),
    "monitor": ("{demo}/v2",),
    "clusters": ("{demo}/v2", "--registry", "{out}/clusters.json"),
    "promote": ("{demo}/v2", "--trace", "{trace}", "-o", "{out}/cases.jsonl"),
    "run rescore": ("{demo}/v2", "-o", "{out}/run", "-m", "groundedness(strict=true)"),
    "run rank": ("{demo}/run.trec", "{demo}/qrels.txt"),
    "rank --per-query": ("{demo}/run.trec", "{demo}/qrels.txt", "--per-query"),
    "run convert": ("{demo}/few-v2.jsonl", "{out}/traces.jsonl", "--redact", "all"),
    "run export": ("{demo}/v1", "{demo}/v2", "--to", "wandb", "-o", "{out}/tracked"),
    "tune pipeline": (
        *("{demo}/handbook/documents", "{demo}/handbook/questions.jsonl", "-o", "{out}/tuned"),
        *("--chunkers", "sentences(256)", "--budget", "1s"),
    ),
    "tune adapt": ("{demo}/decisions.jsonl", "--arm", "top(5)", "--arm", "top(3)", "--floor", "default=0.5"),
    "tune generator choose": ("{demo}/v1", "{demo}/v2", "--null-replays", "5"),
    "guard certify": ("{demo}/labelled.jsonl", "--judge", "lexical"),
    "guard replay": ("{demo}/v2", "{demo}/policy.toml"),
    "replay": ("{demo}/v2", "--app", "ragfault.text.markup:unfence", "--dry-run"),
    "replay --agent": (
        *("{demo}/agent/agent-v1.jsonl", "{demo}/agent/agent-v2.jsonl", "-m", "recall@3", "--judge", "lexical"),
        *("--agent", "ragfault.io.datasets.agent:answer_like_version_2"),
    ),
    "testset make": ("{demo}/handbook/documents", "-o", "{out}/set.jsonl", "-n", "20"),
    "testset convert": ("{demo}/handbook/questions.jsonl", "{out}/ragas.jsonl", "--to", "ragas"),
    "testset nuggets": ("{demo}/handbook/questions.jsonl", "-o", "{out}/nuggets.jsonl", "--judge", "lexical"),
    "testset key": ("{demo}/handbook/questions.jsonl", "{demo}/few-v2.jsonl", "-o", "{out}/keyed.jsonl"),
    "testset describe": ("{demo}/handbook/questions.jsonl", "--corpus", "{demo}/handbook/documents"),
    "testset pool": (
        *("{demo}/handbook/documents", "{demo}/handbook/questions.jsonl", "-o", "{out}/pool.jsonl"),
        *("--depth", "2"),
    ),
    "testset adjudicate": ("{demo}/handbook/questions.jsonl", "{demo}/reviews.jsonl"),
    "testset refresh": ("{demo}/handbook/documents", "{demo}/handbook/questions.jsonl"),
    "testset audit": ("{demo}/handbook/documents", "{demo}/handbook/questions.jsonl"),
    "testset premises": ("{demo}/eight.jsonl",),
    "lint": ("{demo}/v2",),
    "lint FILE": ("{demo}/few-v2.jsonl",),
    "tune savings": ("--precision", "0.6", "0.85", "--recall", "0.65", "0.75", "--cost", "0.05", "--queries", "1000"),
    "tune relevance": ("When does the last ferry leave?", "{demo}/handbook/documents", "--judge", "lexical"),
    "tune stores": ("{demo}/handbook/documents", "{demo}/handbook/questions.jsonl"),
    "tune retrieve": ("{demo}/handbook/documents", "{demo}/handbook/questions.jsonl", "-o", "{out}/retrieved.jsonl"),
    "judge measure": ("{demo}/labels.jsonl", "--run", "{demo}/v2", "--card", "{out}/card.json"),
    "judge calibrate": ("{demo}/v2", "--judge", "lexical"),
    "judge card": ("lexical",),
    "judge compare": ("lexical", "embedded", "{demo}/few-v2.jsonl", "--limit", "6"),
    "judge rubric": ("{demo}/rubric", "{demo}/rubric-labels.csv"),
    "label prefer": ("{demo}/preferences.csv",),
    "judge repeat": ("{demo}/few-v2.jsonl", "-k", "2", "--limit", "4", "--judge", "lexical"),
    "label agreement": ("{demo}/labels.jsonl",),
    "label suggest": ("{demo}/v2", "-n", "5"),
    "serve token": ("ci", "--store", "{out}/store"),
    "serve import": ("{demo}/v2", "--store", "{out}/store"),
    "serve backup": ("{demo}/store", "-o", "{out}/backup.tar"),
    "serve restore": ("{demo}/backup.tar", "--store", "{out}/store"),
    "judge cache stats": ("--cache", "{out}/replies.sqlite"),
    "judge cache prune": ("--cache", "{out}/replies.sqlite", "--all", "--yes"),
    "judge cache export": ("{out}/replies.jsonl", "--cache", "{demo}/replies.sqlite"),
    "metrics": (),
    "metrics NAME": ("faithfulness",),
    "judge profile": (),
    "judge profile NAME": ("legal",),
    "demo": ("{out}/handbook",),
}
"""Verb, with what tells its cases apart → arguments on the demo."""

ANSWERS = {
    "bisect": r"FAULT: Retrieval broke",
    "bisect --by": r"CANNOT TELL: 6 segments by route",
    "bisect 3": r"RECOVERED: Worse at .*",
    "judge cache export": r"0 replies in ",
    "judge cache prune": r"no replies are stored",
    "judge cache stats": r"no replies are stored",
    "ci": r"^FAULT: Retrieval broke",
    "clusters": r"\d+ of \d+ failing traces \(40 in all\)",
    "compare": r"41 metrics on 40 paired traces: 17 worse",
    "compare --by": r"route safety: \d+ of \d+ answers became bad; ",
    "run convert": r"40 traces in ",
    "demo": r"Next: ragfault evaluate \S+traces-v1\.jsonl",
    "diagnose": r"Worst 3 of 40 traces",
    "evaluate": r"40 answers: \d+ right, \d+ bad",
    "run export": r"history\.csv",
    "plan": r"200 queries with 3 attempts: a drop of 0\.050 ",
    "gate": r"FAIL: v2",
    "tune adapt": r"Changed: default\. 40 decisions; version 1",
    "tune generator choose": r"Recommended: ",
    "guard certify": r"Nothing can be promised",
    "guard replay": r"100 % of 40 answers released",
    "replay": r"Nothing was sent: asking ",
    "investigate": r"FAULT: Retrieval broke",
    "investigate RUN": r"(FAULT|CANNOT TELL): \d+ of 40 traces fail",
    "judge calibrate": r"Calibration to these labels (helps|is not shown to help)",
    "judge card": r"RAGTruth .*\n.*AUROC 0\.\d+",
    "judge compare": r"alike: relevance of chunks ",
    "judge measure": r"F1 +0\.\d+",
    "judge repeat": r"identical each time",
    "judge rubric": r"0 of 1 rubric may decide a gate",
    "label prefer": r"new is preferred to old: it wins \d+ %",
    "label agreement": r"They disagree on \d+ items",
    "label suggest": r'{"trace":"[^"]+","chance":',
    "lint": r"1 of 6 pitfalls detected: ",
    "lint FILE": r"40 traces: read as ",
    "metrics": r"context_precision +↑ ",
    "metrics NAME": r"faithfulness of Ragas is answered by groundedness",
    "monitor": r"0 alerts fired",
    "judge profile": r"legal +Statutes",
    "judge profile NAME": r"about = ",
    "promote": r"Added 1 case",
    "run rank": r"ndcg@10 +0\.\d+",
    "rank --per-query": r"average_precision\t\S+\t[01]\.\d+",
    "tune relevance": r"0\.\d+ +\w+\.md ",
    "report": r"40 answers: \d+ right, \d+ bad",
    "run rescore": r"groundedness\(strict=true\) 0\.\d+",
    "tune savings": r"saves US\$ 6\.25 a month",
    "tune retrieve": r"104 traces with ",
    "tune stores": r"nothing is missed compared with exact search",
    "serve backup": r"40 traces, checksums verified",
    "serve import": r"40 traces imported",
    "serve restore": r"40 traces, checksums verified",
    "serve token": r"^rf_\S+$",
    "steps": r"40 record no step that can be judged",
    "replay --agent": r"Rewrite steps broke: with those of the source recall@3 recovers",
    "testset audit": r"11 documents, 76 passages: nothing was noticed",
    "testset premises": r"8 questions: ",
    "testset convert": r"104 of 104 items written",
    "testset describe": r"effective size \d+",
    "testset make": r"20 items in ",
    "testset nuggets": r"\d+ vital and \d+ okay nuggets for \d+ of 104 items",
    "testset key": r"\d+ of 40 traces",
    "testset pool": r"\d+ passages for 104 items",
    "testset adjudicate": r"0 items accepted, 0 rejected, 0 disputed, 104 pending",
    "testset refresh": r"6 of 104 items hold",
    "tune pipeline": r"Recommended: ",
}
"""Case → what its first ten lines say at 80 columns, as a regular expression; white space stands for any."""

for table in (WITHOUT_DOCUMENT, SERVED, VERBS, ANSWERS):
    # the verbs of an app are tested where its folder is there
    for case in [case for case in table if case.split()[0] not in COMMANDS]:
        del table[case]


def list_verbs(command: click.Command, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield every verb that is no group, under its full name."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from list_verbs(inner, f"{path} {name}".strip())


def name_verb(case: str) -> str:
    """Return the name of the verb of a case."""
    return next(name for name in sorted(DOCUMENTS, key=len, reverse=True) if f"{case} ".startswith(f"{name} "))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo, runs of some of its traces, labels of two people, a ranking with qrels, and stored replies."""
    from ragfault.judges.llm.transport.reply_cache import CacheFile

    folder = tmp_path_factory.mktemp("demo")
    assert run_command(["demo", str(folder / "handbook")]) == 0
    for name in ("v1", "v2"):
        lines = (folder / f"handbook/traces-{name}.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        few = folder / f"few-{name}.jsonl"
        few.write_text("".join(lines[:40]), encoding="utf-8")
        assert run_command(["evaluate", str(few), "-o", str(folder / name), "--judge", "embedded", "-q"]) == 0
    (folder / "eight.jsonl").write_text("".join(lines[:8]), encoding="utf-8")
    decided = [
        json.loads(line) | {"route": None, "metadata": {"arm": arm, "propensity": 0.5, "reward": 1}}
        for line, arm in zip(lines[:40], ["top(5)", "top(3)"] * 20, strict=True)
    ]
    (folder / "decisions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in decided), encoding="utf-8")
    assert run_command(["demo", str(folder / "agent"), "--agent"]) == 0
    trec = [str(folder / "few-v1.jsonl"), str(folder / "run.trec"), "--to", "trec"]
    assert run_command(["run", "convert", *trec, "--to-qrels", str(folder / "qrels.txt")]) == 0
    write_labels(folder)
    write_rubric_run(folder)
    rows = [f"{n},{'new,old,1' if n % 2 else 'old,new,2'}" if n % 5 else f"{n},old,new,1" for n in range(60)]
    (folder / "preferences.csv").write_text("id,first,second,winner\n" + "\n".join(rows) + "\n", encoding="utf-8")
    (folder / "reviews.jsonl").write_text("")
    (folder / "settings.toml").write_text('[evaluate]\njudge = "embedded"\n', encoding="utf-8")
    CacheFile(folder / "replies.sqlite").close()
    shutil.copy(ROOT / "docs" / "labelled.jsonl", folder)
    (folder / "policy.toml").write_text("[rails.secrets]\n", encoding="utf-8")
    if "serve" in COMMANDS:
        assert run_command(["serve", "import", str(folder / "v1"), "--store", str(folder / "store")]) == 0
        assert run_command(["serve", "backup", str(folder / "store"), "-o", str(folder / "backup.tar")]) == 0
    return folder


def write_rubric_run(folder: Path) -> None:
    """Write a run with rubric verdicts, as if a language model had judged, and labels of some of its answers."""
    from ragfault.evaluation.evaluator import evaluate
    from ragfault.io.trace_reader import read_traces
    from ragfault.labels.judges.runner import RecordedJudge
    from ragfault.model.records import RubricVerdict, Verdicts

    traces = list(read_traces(folder / "few-v2.jsonl"))
    verdicts = [
        Verdicts(trace=trace.id, rubric=(RubricVerdict(rubric="tone", version="1", value=n % 2, level="polite"),))
        for n, trace in enumerate(traces)
    ]
    evaluate(traces, folder / "rubric", judge=RecordedJudge("recorded/1", verdicts), metrics=["rubric"])
    rows = [f"{trace.id},{int(n % 3 > 0)}" for n, trace in enumerate(traces)]
    (folder / "rubric-labels.csv").write_text("trace,value\n" + "\n".join(rows) + "\n", encoding="utf-8")


def write_labels(folder: Path) -> None:
    """Write labels of two people on chunks of the second run."""
    from ragfault.io.runs.run import Run

    rows = [
        {"trace": trace.id, "by": by, "verdicts": {"chunk": [{"chunk": chunk.id, "level": level} for chunk in chunks]}}
        for by, levels in (("ann", ("high", "none", "low")), ("ben", ("high", "low")))
        for place, trace in enumerate(Run.open(folder / "v2").traces())
        for chunks, level in ((trace.chunks or (), levels[place % len(levels)]),)
    ]
    (folder / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_every_verb_with_a_result_has_json_and_a_schema():
    """Each verb takes --json and has a document, or a reason why not; each document is tested here."""
    verbs = dict(list_verbs(cli))
    assert set(verbs) == set(DOCUMENTS) | set(WITHOUT_DOCUMENT)
    for name, command in verbs.items():
        assert any("--json" in parameter.opts for parameter in command.params) == (name in DOCUMENTS), name
    assert {name_verb(case) for case in VERBS} | set(SERVED) == set(DOCUMENTS)
    assert set(ANSWERS) == set(VERBS)
    for verb, file in SERVED.items():
        text = " ".join((ROOT / file).read_text(encoding="utf-8").split())
        assert ", ".join(f'"{word}"' for word in verb.split()) in text


def test_every_verb_that_reads_traces_reads_them_alike(tmp_path: Path):
    """Where there is --map there are --encoding, --turns and --id-from, and a Latin-1 file of log lines is read."""
    for name, command in list_verbs(cli):
        flags = {flag for parameter in command.params for flag in parameter.opts}
        assert flags >= {"--encoding", "--turns", "--id-from"} or "--map" not in flags, name
    log = tmp_path / "log.csv"
    rows = "1,Où est le port ?,À Saint-Malo.\n1,Où est la gare ?,À Rennes.\n"
    log.write_bytes(f"id,question,answer\n{rows}".encode("latin-1"))
    reading = ["--encoding", "latin-1", "--id-from", "line"]
    assert run_command(["ci", str(log), "-o", str(tmp_path / "run"), *reading]) == 0
    assert run_command(["judge", "repeat", str(log), "-k", "2", "--judge", "lexical", *reading]) == 0
    assert run_command(["judge", "compare", "lexical", "embedded", str(log), *reading]) == 0
    assert run_command(["judge", "repeat", str(log), "-k", "2", "--judge", "lexical"]) == 2


@pytest.mark.parametrize("verb", sorted(DOCUMENTS))
def test_the_schema_of_a_verb_is_a_schema(verb: str, capsys: pytest.CaptureFixture[str]):
    """`ragfault run schema VERB` prints a JSON schema of draft 2020-12 whose fields are described."""
    assert run_command(["run", "schema", *verb.split()]) == 0
    schema = json.loads(capsys.readouterr().out)
    Draft202012Validator.check_schema(schema)
    assert all(record["description"] for record in schema["$defs"].values() if record.get("type") == "object")


@pytest.mark.long
@pytest.mark.parametrize("case", sorted(VERBS))
def test_json_is_one_document_as_its_schema_has_it(
    case: str, demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """With --json a verb prints one document and ends with the same exit code; without, ten lines hold its answer."""
    monkeypatch.setenv("COLUMNS", "80")
    verb = name_verb(case)
    trace = json.loads((demo / "few-v2.jsonl").read_text(encoding="utf-8").split("\n", 1)[0])["id"]
    codes, printed = [], []
    for shown in ([], ["--json"]):
        out = tmp_path / ("json" if shown else "plain")
        out.mkdir()
        arguments = [text.format(demo=demo, out=out, trace=trace) for text in VERBS[case]]
        capsys.readouterr()
        codes.append(run_command([*verb.split(), *arguments, *shown]))
        printed.append(capsys.readouterr())
    assert codes[0] == codes[1], printed[1].err
    assert codes[0] != 2, printed[0].err
    first = "\n".join(printed[0].out.splitlines()[:10])
    assert re.search(ANSWERS[case].replace(" ", r"\s"), first, re.MULTILINE), first
    document: Any = json.loads(printed[1].out)
    Draft202012Validator(build_document_schema(verb)).validate(document)
