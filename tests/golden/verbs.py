"""Output and report of every verb that has JSON, on the demo: one command after the other, in one folder."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import runpy
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet

from tests.golden.normal_form import ROOT, make_hashes, normalize, shorten

V1, V2 = "handbook/traces-v1.jsonl", "handbook/traces-v2.jsonl"
CORPUS, QUESTIONS = "handbook/documents", "handbook/questions.jsonl"
SET = f"{CORPUS} {QUESTIONS}"
AGENT = ROOT / "tests" / "golden" / "agent.py"
MODEL = "llm:small-1 --base-url <url> --price 1,2 --cache replies.sqlite"

# What a model reads differs in its last digits between processors with other instructions, and now and then in a
# verdict: of these only the fields are compared, and the kinds of what they hold.
READ_BY_MODEL = frozenset({"evaluate-default-judge", "testset-premises"})
CASES = {
    "demo": "demo handbook",
    "demo-agent": "demo agent --agent",
    "evaluate-v1": f"evaluate {V1} -o v1 --judge lexical",
    "evaluate-v2": f"evaluate {V2} -o v2 --judge lexical",
    "evaluate-all-metrics": f"evaluate few.jsonl -o all --judge lexical -m all --trusted {CORPUS}",
    "evaluate-default-judge": "evaluate dozen.jsonl -o default",
    "evaluate-profile": "evaluate few.jsonl -o legal --judge lexical --profile legal -m groundedness",
    "evaluate-model": f"evaluate few.jsonl -o model --judge {MODEL} -m groundedness -m context_relevance",
    "evaluate-agent": "evaluate agent/agent-v2.jsonl -o agent-v2 --judge lexical",
    "report": "report v2",
    "report-by-model": "report v2 --by model --worst 2",
    "report-labels": "report v2 --human-labels labels.jsonl",
    "diagnose": "diagnose v2",
    "diagnose-conversations": "diagnose agent-v2 --conversations",
    "steps": "steps agent/agent-v2.jsonl --worst 3",
    "replay-steps": "replay agent/agent-v1.jsonl few-agent.jsonl --agent <agent>:answer -m recall@3 --judge lexical",
    "plan": "plan --queries 200 --attempts 3",
    "gate": "gate v2 --threshold groundedness>=0.99 --baseline v1",
    "ci": f"ci {V2} -o ci --baseline v1 --threshold error<=0.5 --config lexical.toml",
    "compare": "compare v1 v2",
    "compare-by": "compare v1 v2 --by route",
    "bisect": "bisect v1 v2",
    "bisect-by": "bisect v1 v2 --by route",
    "bisect-three": "bisect v1 v2 v1",
    "investigate": "investigate v2 --baseline v1",
    "investigate-one": "investigate v2",
    "monitor": "monitor v1 v2",
    "monitor-against": "monitor v2 --against v1",
    "clusters": "clusters v2 --registry clusters.json",
    "promote": "promote v2 --trace tickets-01 --trace tickets-02 -o cases.jsonl",
    "rescore": "run rescore v2 -o rescored -m groundedness(strict=true) -m ndcg@3",
    "convert-trec": f"run convert {V1} run.trec --to trec --to-qrels qrels.txt",
    "rank": "run rank run.trec qrels.txt",
    "rank-per-query": "run rank run.trec qrels.txt --per-query",
    "convert-redacted": f"run convert {V2} redacted.jsonl --redact all",
    "convert-csv": f"run convert {V2} traces.csv",
    "export": "run export v1 v2 --to wandb -o tracked",
    "tune": f"tune pipeline {SET} -o tuned --chunkers sentences(256) --budget 10m",
    "adapt": "tune adapt decisions.jsonl --arm top(5) --arm top(3) --floor default=0.5 -o policy.json",
    "generator-choose": "tune generator choose v1 v2 --null-replays 5 --judge lexical",
    "guard-certify": "guard certify labelled.jsonl --judge lexical",
    "guard-replay": "guard replay v2 policy.toml",
    "testset-make": f"testset make {CORPUS} -o set.jsonl -n 20",
    "testset-convert": f"testset convert {QUESTIONS} ragas.jsonl --to ragas",
    "testset-nuggets": f"testset nuggets {QUESTIONS} -o nuggets.jsonl --judge lexical",
    "testset-key": f"testset key {QUESTIONS} {V2} -o keyed.jsonl",
    "testset-describe": f"testset describe {QUESTIONS} --corpus {CORPUS} --runs v1 --runs v2",
    "testset-pool": f"testset pool {SET} -o pool.jsonl --depth 2",
    "testset-adjudicate": f"testset adjudicate {QUESTIONS} reviews.jsonl",
    "testset-refresh": f"testset refresh {SET}",
    "testset-audit": f"testset audit {SET} --today 2026-01-31",
    "testset-premises": "testset premises dozen.jsonl",
    "lint": "lint v2",
    "lint-file": f"lint {V2}",
    "savings": "tune savings --precision 0.6 0.85 --recall 0.65 0.75 --cost 0.05 --queries 1000",
    "savings-runs": "tune savings --runs v1 v2 --cost 0.05 --queries 1000",
    "relevance": f"tune relevance <question> {CORPUS} --judge lexical",
    "stores": f"tune stores {SET}",
    "judge-measure": "judge measure labels.jsonl --run v2 --card card.json",
    "judge-calibrate": "judge calibrate v2 --judge lexical -o calibration.json",
    "judge-card": "judge card lexical",
    "judge-compare": f"judge compare lexical embedded {V2} --limit 20",
    "judge-rubric": "judge rubric rubric rubric-labels.csv",
    "judge-repeat": f"judge repeat {V2} -k 2 --limit 10 --judge lexical",
    "label-prefer": "label prefer preferences.csv",
    "label-agreement": "label agreement labels.jsonl",
    "label-suggest": "label suggest v2 -n 5",
    "serve-token": "serve token ci --store store",
    "serve-import": "serve import v2 --store store",
    "serve-backup": "serve backup store -o backup.tar",
    "serve-restore": "serve restore backup.tar --store restored",
    "cache-stats": "judge cache stats --cache replies.sqlite",
    "cache-export": "judge cache export replies.jsonl --cache replies.sqlite",
    "cache-prune": "judge cache prune --all --yes --cache replies.sqlite",
    "metrics": "metrics",
    "metrics-name": "metrics faithfulness",
    "profile": "judge profile",
    "profile-name": "judge profile legal",
    "schema": "run schema",
}
"""Name of a file of results → its command, without --json. Later commands read the files of earlier ones."""

TIMES = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC|[\d.,]+ s\b|[\d.,]+ traces(?:/s| per second)|\d+ MiB")
"""Points in time, lengths of time, speeds and memory in a report."""
TIMED_REPORTS = {"guard-replay"}
"""Names of cases whose report has a column of times."""

UNSTORED = {
    *("handbook", "agent", "store", "restored", "backup.tar"),  # made by the demo, and of bytes that differ each time
    *("tuned", "replies.jsonl", "replies.sqlite", "replies.sqlite-shm", "replies.sqlite-wal"),  # with times and keys
}
"""Names of files and folders that verbs write and that are not compared."""
VOLATILE = {"tune": {"frontier", "trials", "ms", "p50", "p95", "reason"}}
"""Name of a case → fields that hold times of this machine, or follow from them."""


def run_verbs(folder: Path) -> Iterator[tuple[str, Any]]:
    """Run every command in an empty folder; yield its name with its exit code, its document and the files it wrote."""
    from tests.support.endpoint import serve_model

    folder = folder.resolve()
    with contextlib.chdir(folder), serve_model() as server:
        known: set[Path] = set()
        for name, line in CASES.items():
            if name in PREPARATIONS:
                PREPARATIONS[name](folder)
            known |= set(list_files(folder))
            volatile = VOLATILE.get(name, set())
            with keep_records() as records:
                code, printed = run_command(split_command(line, server.url))
            report = render_report(records)
            files = [path for path in list_files(folder) if path not in known]
            yield (
                name,
                {
                    "command": line,
                    "exit_code": code,
                    "document": shorten(normalize(printed, folder, volatile)),
                    "files": {
                        str(path.relative_to(folder)): describe_file(path, folder, volatile)
                        for path in files
                        if is_stored(path)
                    },
                    **({"report": normalize(report, folder, volatile)} if report and name not in TIMED_REPORTS else {}),
                },
            )


def split_command(line: str, url: str) -> list[str]:
    """Return the arguments of a command."""
    words = {"<url>": url, "<question>": "When does the last ferry leave?", "<agent>:answer": f"{AGENT}:answer"}
    shown = [] if line == "run schema" else ["--json"]
    return [words.get(word, word) for word in line.split()] + shown


def run_command(arguments: list[str]) -> tuple[int | str | None, Any]:
    """Run `python -m ragfault` in this process; return its exit code, and its document or what it complains of."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    given, sys.argv = sys.argv, ["ragfault", *arguments]
    code: int | str | None = None
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            runpy.run_module("ragfault", run_name="__main__")
    except SystemExit as end:
        code = end.code
    finally:
        sys.argv = given
    printed, complaint = (stream.buffer.getvalue().decode() for stream in (out, err))
    try:
        return code, json.loads(printed)
    except ValueError:
        return code, {"no JSON": printed.splitlines(), "error": complaint.splitlines()}


@contextlib.contextmanager
def keep_records() -> Iterator[list[Any]]:
    """Keep the records that are encoded as JSON meanwhile."""
    from ragfault.report import json_documents

    records: list[Any] = []
    encode = json_documents.encode_document

    def keep(record: Any) -> str:
        records.append(record)
        return encode(record)

    json_documents.encode_document = keep
    try:
        yield records
    finally:
        json_documents.encode_document = encode


def render_report(records: list[Any]) -> list[str]:
    """Render the report of the last record for a terminal of 100 columns, without times; nothing if it has none."""
    from ragfault.apps.guard.certificate import Certificate
    from ragfault.apps.guard.replay import GuardReplay
    from ragfault.apps.guard.report import build_certificate, build_replay
    from ragfault.apps.tune.generators.records import GeneratorChoice
    from ragfault.apps.tune.report.generators import build_choice
    from ragfault.apps.watch.monitoring.monitor import MonitorReport
    from ragfault.apps.watch.report.monitor import build_monitor
    from ragfault.report.builders.catalogue import RECORD_BUILDERS
    from ragfault.report.renderers.terminal import render_terminal

    of_apps = {
        Certificate: build_certificate,
        GeneratorChoice: build_choice,
        GuardReplay: build_replay,
        MonitorReport: build_monitor,
    }
    build = (RECORD_BUILDERS | of_apps).get(type(records[-1])) if records else None
    if build is None:
        return []
    return [TIMES.sub("<time>", line) for line in render_terminal(build(records[-1]), width=100).splitlines()]


def list_files(folder: Path) -> list[Path]:
    """List the files below a folder in order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def is_stored(path: Path) -> bool:
    """Return whether what a verb wrote is compared."""
    return path.suffix != ".html" and not UNSTORED & set(path.parts)


def describe_file(path: Path, folder: Path, volatile: set[str]) -> Any:
    """Return the number of rows of a file, and a hash of its normal rows; of scores one for each metric."""
    rows = normalize(read_rows(path), folder, volatile)
    metrics = list(dict.fromkeys(row["metric"] for row in rows if isinstance(row, dict) and "metric" in row))
    if metrics and path.suffix == ".parquet":
        hashes = {name: make_hashes([row for row in rows if row["metric"] == name])["values"] for name in metrics}
        return {"rows": len(rows), "metrics": hashes}
    return {"rows": len(rows), "hash": make_hashes(rows)}


def read_rows(path: Path) -> list[Any]:
    """Return the rows of a file of any kind that a verb writes."""
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path).to_pylist()
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return [content.hex()]
    try:
        rows = [json.loads(text)] if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()]
    except ValueError:
        rows = text.splitlines()
    return rows


# --- what some commands read besides the demo -------------------------------------------------------


def write_rows(path: Path, rows: list[Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def read_demo(folder: Path, name: str, count: int | None = None) -> list[Any]:
    lines = (folder / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[:count]]


def prepare_inputs(folder: Path) -> None:
    """Write samples of the traces, a log of decisions, preferences, and settings."""
    few = read_demo(folder, V2, 40)
    write_rows(folder / "few.jsonl", few)
    write_rows(folder / "dozen.jsonl", few[:12])
    write_rows(folder / "few-agent.jsonl", read_demo(folder, "agent/agent-v2.jsonl", 40))
    decisions = [
        row | {"route": None, "metadata": {"arm": arm, "propensity": 0.5, "reward": 1}}
        for row, arm in zip(few, ["top(5)", "top(3)"] * 20, strict=True)
    ]
    write_rows(folder / "decisions.jsonl", decisions)
    rows = [f"{n},{'new,old,1' if n % 2 else 'old,new,2'}" if n % 5 else f"{n},old,new,1" for n in range(60)]
    (folder / "preferences.csv").write_text("\n".join(["id,first,second,winner", *rows, ""]), encoding="utf-8")
    write_rows(folder / "reviews.jsonl", [])
    (folder / "lexical.toml").write_text('[evaluate]\njudge = "lexical"\n', encoding="utf-8")
    (folder / "policy.toml").write_text("[rails.secrets]\n", encoding="utf-8")
    shutil.copy(ROOT / "docs" / "labelled.jsonl", folder)


def prepare_labels(folder: Path) -> None:
    """Write labels of two people on chunks of the second run."""
    rows = [
        {
            "trace": row["id"],
            "by": by,
            "verdicts": {
                "chunk": [
                    {"chunk": chunk["id"], "level": levels[place % len(levels)]} for chunk in row.get("chunks") or ()
                ]
            },
        }
        for by, levels in (("ann", ("high", "none", "low")), ("ben", ("high", "low")))
        for place, row in enumerate(read_demo(folder, V2))
    ]
    write_rows(folder / "labels.jsonl", rows)


def prepare_rubric_run(folder: Path) -> None:
    """Write a run with verdicts by a rubric, as if a model had judged, and labels of its answers."""
    import msgspec

    import ragfault

    traces = list(ragfault.read_traces(folder / "few.jsonl"))
    verdicts = {
        trace.id: msgspec.convert(
            {
                "trace": trace.id,
                "rubric": [{"rubric": "tone", "version": "1", "value": float(n % 2), "level": "polite"}],
            },
            ragfault.Verdicts,
        )
        for n, trace in enumerate(traces)
    }

    class RecordedJudge:
        fingerprint = "recorded/1"
        offers = frozenset({"rubric"})

        def observe(self, batch: Any) -> list[Any]:
            return [verdicts[trace.id] for trace in batch]

    ragfault.evaluate(traces, folder / "rubric", judge=RecordedJudge(), metrics=["rubric"])
    rows = [f"{trace.id},{int(n % 3 > 0)}" for n, trace in enumerate(traces)]
    (folder / "rubric-labels.csv").write_text("\n".join(["trace,value", *rows, ""]), encoding="utf-8")


PREPARATIONS = {"evaluate-v1": prepare_inputs, "report-labels": prepare_labels, "judge-rubric": prepare_rubric_run}
"""Name of a case → what writes the inputs that it and later ones need."""


def set_environment(folder: Path) -> None:
    """Set what the commands read from the environment, so that nothing of the user counts."""
    for name in [name for name in os.environ if name.startswith(("RAGFAULT_", "OPENAI_", "ANTHROPIC_"))]:
        del os.environ[name]
    os.environ |= {"RAGFAULT_CACHE": str(folder / "replies.sqlite"), "COLUMNS": "100", "TZ": "UTC"}
    os.environ |= {"OPENAI_API_KEY": "none"}
