"""Measure time and peak memory of every verb that reads a run, by the number of traces.

    python -m benchmarks.verbs --traces 100000 1000000 [--verbs bisect report] [--metrics 20] [--keep FOLDER]

Evaluates both demo runs once, and repeats their tables under ids and queries of their own up to each number: the texts
of 104 traces, so that compression is better than on traffic, which peak memory does not notice; for `steps` those of
the demo's agent. Each verb runs in a process of its own, and the peak is that of its largest process.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ragfault import Run, evaluate
from ragfault.io.datasets.demo_handbook import load_handbook
from ragfault.io.runs.writer import ROW_GROUP_SIZES, write_manifest, write_row_groups
from ragfault.labels.annotation.items import create_label, describe_verdict, list_items
from ragfault.labels.reading.label_files import write_labels
from ragfault.metrics.selection import select_metrics

VERBS = {
    "diagnose": ["diagnose", "{new}"],
    "gate": ["gate", "{new}", "--baseline", "{old}"],
    "compare": ["compare", "{old}", "{new}"],
    "segments": ["compare", "{old}", "{new}", "--by", "route", "--power", "0.8"],
    "bisect": ["bisect", "{old}", "{new}"],
    "report": ["report", "{new}", "-o", "{folder}/report.html"],
    "clusters": ["clusters", "{new}"],
    "steps": ["steps", "{agent}"],
    "replay": ["guard", "replay", "{new}", "{folder}/policy.toml"],
    "testset": [
        "testset",
        "make",
        "{folder}/handbook/documents",
        "--from",
        "{new}",
        "-n",
        "20",
        "-o",
        "{folder}/set.jsonl",
    ],
    "savings": ["savings", "--runs", "{old}", "{new}", "--queries", "100000", "--cost", "0.01"],
    "lint": ["lint", "{new}"],
    "monitor": ["monitor", "{old}", "{new}"],
    "csv": ["report", "{new}", "--format", "csv", "-o", "{folder}/scores.csv"],
    "export": ["export", "{new}", "--to", "wandb", "-o", "{folder}/wandb", "--force"],
    "rescore": ["rescore", "{new}", "-o", "{folder}/rescored", "--force", "-q"],
    "history": ["bisect", "{old}", "{new}", "{old}"],
    "investigate": ["investigate", "{new}", "--baseline", "{old}"],
    "promote": ["promote", "{new}", "--cluster", "{cluster}", "-o", "{folder}/cases.jsonl"],
    "steps replayed": ["replay", "{agent}", "{agent}", "--agent", "ragfault.io.datasets.agent:answer_like_version_2"],
    "judges": ["judge", "compare", "{new}", "{lexical}"],
    "tune": [
        "tune",
        "{folder}/handbook/documents",
        "{folder}/handbook/questions.jsonl",
        "--from",
        "{new}",
        "--budget",
        "20s",
        "-o",
        "{folder}/tuned",
        "--force",
    ],
    "describe": ["testset", "describe", "{folder}/handbook/questions.jsonl", "--runs", "{old}", "--runs", "{new}"],
    "certify": ["guard", "certify", "{folder}/labels.jsonl", "--run", "{new}", "-o", "{folder}/bound.json", "--force"],
    "suggest": ["label", "suggest", "{new}", "-n", "50", "-o", "{folder}/suggested.jsonl", "--force"],
}
COPY_SECONDS = 37
"""Seconds by which each copy is later than the one before."""
LABELLED_TRACES = 300
TABLES = {"traces": "id", "verdicts": "trace", "scores": "trace"}
MEASURE_SCRIPT = (
    "import resource, subprocess, sys, time; begin = time.perf_counter(); "
    "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True); "
    "used = resource.getrusage(resource.RUSAGE_CHILDREN); "
    "print(done.returncode, time.perf_counter() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024); "
    "sys.stderr.write(done.stderr[-300:])"
)


def repeat_run(run: Run, out: Path, traces: int) -> None:
    """Write a run of the given number of traces from a small one, table by table, in bounded memory."""
    out.mkdir(parents=True)
    copies = -(-traces // run.manifest.traces)
    checksums = {}
    for name, column in TABLES.items():
        table = pq.read_table(run.path / f"{name}.parquet")
        renamed = (rename_copy(table, column, copy) for copy in range(copies))
        written = write_row_groups(renamed, out / f"{name}.parquet", ROW_GROUP_SIZES[name])
        checksums[f"{name}.parquet"] = written.checksum
    manifest = msgspec.structs.replace(
        run.manifest,
        traces=copies * run.manifest.traces,
        scored=copies * run.manifest.scored,
        undefined=copies * run.manifest.undefined,
        failed=copies * run.manifest.failed,
        checksum="",
        checksums=checksums,
    )
    write_manifest(out, manifest)


def rename_copy(table: pa.Table, column: str, copy: int) -> pa.Table:
    for name in {column, "query"} & set(table.column_names):
        place = table.column_names.index(name)
        texts = pc.binary_join_element_wise(table.column(name), f"{copy}", " no. " if name == "query" else "-")
        table = table.set_column(place, table.schema.field(name), texts.cast(table.schema.field(name).type))
    if "time" in table.column_names:
        place, field = table.column_names.index("time"), table.schema.field("time")
        shift = pa.scalar(copy * COPY_SECONDS * 1_000_000, pa.duration("us"))
        table = table.set_column(place, field, pc.add(table.column("time"), shift).cast(field.type))
    return table


def load_sources(folder: Path) -> dict[str, Any]:
    """Write the demo and a policy into a folder; return the traces that runs are made of, by their name in VERBS."""
    (folder / "policy.toml").write_text("[rails.groundedness]\n[rails.injection]\n[rails.secrets]\n", encoding="utf-8")
    for arguments in (["handbook"], ["agent", "--agent"]):
        command = [sys.executable, "-m", "ragfault", "demo", str(folder / arguments[0]), *arguments[1:]]
        subprocess.run(command, check=True, capture_output=True)
    old, new = (load_handbook().traces[version] for version in ("v1", "v2"))
    return {"old": old, "new": new, "lexical": new, "agent": folder / "agent" / "agent-v2.jsonl"}


def write_labels_of_run(run: Run, path: Path) -> None:
    """Label the claims of some answers as the run's judge does."""
    ids = [trace.id for trace in islice(run.traces(fields=["answer"]), LABELLED_TRACES)]
    items = (item for evidence in run.evidence(ids) for item in list_items(*evidence, ["claim"]))
    write_labels(path, (create_label(item, describe_verdict(item) or "", "benchmark") for item in items))


def measure_verb(arguments: list[str], limit: float) -> str:
    """Return a row of the table: exit code, seconds, those of processors, and MiB of the largest process."""
    command = [sys.executable, "-c", MEASURE_SCRIPT, sys.executable, "-m", "ragfault", *arguments]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return f"over {limit:.0f} s"
    code, seconds, processor, memory = done.stdout.split()
    note = f" | {done.stderr.strip().splitlines()[-1]}" if int(code) not in (0, 1, 3) and done.stderr.strip() else ""
    return f"{code} | {float(seconds):.1f} | {float(processor):.1f} | {float(memory):,.0f}{note}"


def pick_cluster(run: str) -> str:
    """Return the id of the first cluster that the verb `clusters` has recorded beside a run."""
    registry = Path(run).with_name("clusters.json")
    if not registry.exists():
        return "none: measure `clusters` before"
    return str(msgspec.json.decode(registry.read_bytes())["clusters"][0]["id"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--verbs", nargs="+", choices=VERBS, default=list(VERBS))
    parser.add_argument("--metrics", type=int, help="so many of the default metrics (default: all of them)")
    parser.add_argument("--limit", type=float, default=900, help="seconds that a verb may take (default: 900)")
    parser.add_argument("--keep", type=Path, help="a folder in which the runs stay for the next time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        sources = load_sources(Path(temporary))
        print(
            "| verb | traces | exit | seconds | processor s | MiB, largest process |\n|---|---|---|---|---|---|",
            flush=True,
        )
        for count in options.traces:
            places = {"folder": temporary}
            for side, traces in sources.items():
                small, large = folder / f"{side}-small", folder / f"{side}-{count}"
                places[side] = str(large)
                if not large.exists() and any(f"{{{side}}}" in VERBS[verb] for verb in options.verbs):
                    metrics = list(map(str, select_metrics("default")))[: options.metrics]
                    judge = "lexical" if side == "lexical" else "embedded"
                    run = Run(small) if small.exists() else evaluate(traces, out=small, metrics=metrics, judge=judge)
                    repeat_run(run, large, count)
            if "certify" in options.verbs:
                write_labels_of_run(Run(places["new"]), Path(temporary, "labels.jsonl"))
            for verb in options.verbs:
                places["cluster"] = pick_cluster(places["new"])
                arguments = [argument.format(**places) for argument in VERBS[verb]]
                print(f"| {verb} | {count:,} | {measure_verb(arguments, options.limit)} |", flush=True)


if __name__ == "__main__":
    main()
