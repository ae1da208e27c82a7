"""Measure a judge on all labelled sets, and write its card.

    python training/card.py DATA_FOLDER --judge NAME [--limit N] [-w PROCESSES]

The words of the card are in training/cards.toml; the figures come from `ragfault.evaluation.agreement`, on each of
SETS. The card is written to src/ragfault/cards/NAME.json; `make docs` then brings it into docs/judge.md.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import tempfile
import time
import tomllib
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ragfault.evaluation.agreement import measure_judge
from ragfault.evaluation.agreement.measurement import JudgeMeasurement, LabelTask, UnitAgreement, UnitKind
from ragfault.judges import load_judge
from ragfault.judges.cards import AnswerShape, CardEntry, JudgeCard
from ragfault.rules import BinaryVerdict
from ragfault.stats import BootstrapEstimate, Interval

sys.path.insert(0, str(Path(__file__).parents[1]))
from training.unseen import unseen

HERE = Path(__file__).parent
PACKAGE = HERE.parent / "src/ragfault"

Row = dict[str, Any]


class Labelled(NamedTuple):
    """A set of labels, or a part of it, and how it is read."""

    name: str
    file: str
    key: str
    """The name under which training/cards.toml says that a judge was fitted on it."""
    shape: AnswerShape
    split: str
    task: LabelTask = "answer"
    keep: Callable[[Row], bool] = bool
    within: tuple[str, ...] = ()
    positive: str = "1"
    corrects: tuple[tuple[UnitKind, BinaryVerdict], ...] = ()
    """The unit whose rates correct a kind of verdict."""
    note: str = ""


def is_reserved(row: Row) -> bool:
    """Return whether a source of RAGTruth is kept for measuring; one in five is."""
    return zlib.crc32(row["source_id"].encode()) % 5 == 0


def of_task(task: str) -> Callable[[Row], bool]:
    """Return the held-out rows of a task."""
    return lambda row: is_reserved(row) and row["task"] == task


RAGTRUTH = "one source in five of the training file, never fitted on"
SETS = (
    Labelled("RAGTruth", "ragtruth_train", "ragtruth", "mixed", RAGTRUTH, keep=is_reserved, within=("task", "model"),
             note="An answer is bad where people marked a stretch of it, a claim where it touches one."),
    Labelled("RAGTruth QA", "ragtruth_train", "ragtruth", "long answer", RAGTRUTH, keep=of_task("QA"),
             within=("model",), corrects=(("claim", "claim"),)),
    Labelled("RAGTruth Summary", "ragtruth_train", "ragtruth", "summary", RAGTRUTH, keep=of_task("Summary"),
             within=("model",), corrects=(("claim", "claim"),)),
    Labelled("RAGTruth Data-to-text", "ragtruth_train", "ragtruth", "structured data", RAGTRUTH,
             keep=of_task("Data2txt"), within=("model",), corrects=(("claim", "claim"),)),
    Labelled("AttributionBench", "attributionbench_dev", "attributionbench", "short claim",
             "development part and the first 500 of the test part", "support", within=("subset",),
             corrects=(("claim", "citation"),),
             note="Claims against cited passages; one in eight against several, taken together."),
    Labelled("WiCE", "wice_dev", "wice", "short claim", "development part", "support",
             note="Partially supported counts as bad."),
    Labelled("BEGIN", "begin_dev", "begin", "dialogue turn", "development part", within=("model",),
             note="Replies that are not fully attributable count as bad."),
    Labelled("WikiQA", "wikiqa", "wikiqa", "passage", "training and development part", "relevance",
             within=("query",), note="Single sentences; bad is what does not answer the query."),
    Labelled("TREC DL 2019", "trec_dl19", "trec_dl19", "passage", "judged passages", "relevance", within=("query",),
             positive="2", corrects=(("chunk", "chunk"),),
             note="Passages that five retrievers ranked high; those below grade 2 count as bad."),
)  # fmt: skip


def rows(folder: Path, file: str) -> Iterator[Row]:
    """Yield the records of one file."""
    with gzip.open(folder / f"{file}.jsonl.gz", "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def traces(folder: Path, source: Labelled, place: Path) -> Path:
    """Return the set as a file of traces, each with its labels beside it."""
    path = place / f"{source.name}.jsonl"
    with path.open("w", encoding="utf-8") as out:
        for at, row in enumerate(rows(folder, source.file)):
            if source.keep(row):
                texts = row["contexts"] if "contexts" in row else [row["passage"]]
                chunks = [{"id": str(number), "text": text} for number, text in enumerate(texts)]
                columns = {name: row[name] for name in ("source_id", "label", "task", "model", "subset") if name in row}
                if source.task == "answer" and "spans" in row:
                    columns["spans"] = [[span["start"], span["end"]] for span in row["spans"]]
                line = {"id": str(row.get("id", at)), "query": row.get("query") or "", "chunks": chunks, **columns}
                if row.get("answer") is not None:
                    line["answer"] = row["answer"]
                out.write(json.dumps(line, ensure_ascii=False) + "\n")
    return path


def entries(source: Labelled, result: JudgeMeasurement, fitted: bool, command: str) -> Iterator[CardEntry]:
    """Yield what the card says of a set: an entry for each kind of unit but sentences."""
    for view in result.views:
        if view.unit != "sentence" and 0 < view.positives < view.n:
            yield entry(source, view, fitted, command)


def entry(source: Labelled, view: UnitAgreement, fitted: bool, command: str) -> CardEntry:
    """Return the figures of one kind of unit. Of chunks what people call relevant is positive there, and good here."""
    chunk = view.unit == "chunk"
    share = view.positives / view.n
    return CardEntry(
        set=source.name,
        shape=source.shape,
        level="chunk" if chunk else "answer" if view.unit == "answer" else "claim",
        split=source.split,
        trained_on=fitted,
        n=view.n,
        groups=view.groups,
        share_bad=round(1 - share if chunk else share, 4),
        auroc=_estimate(view, "auroc"),
        auroc_within=_estimate(view, "auroc_within"),
        f1=None if chunk else _estimate(view, "f1"),
        precision=None if chunk else _estimate(view, "precision"),
        recall=None if chunk else _estimate(view, "recall"),
        balanced_accuracy=_estimate(view, "balanced_accuracy"),
        best_balanced_accuracy=_estimate(view, "best_balanced_accuracy"),
        calibration_error=_estimate(view, "calibration_error"),
        sensitivity=_interval(view, "specificity" if chunk else "sensitivity"),
        specificity=_interval(view, "sensitivity" if chunk else "specificity"),
        corrects=dict(source.corrects).get(view.unit),
        note=source.note,
        command=command,
    )


def _estimate(view: UnitAgreement, name: str) -> BootstrapEstimate | None:
    """Return a figure with its interval, to four digits."""
    result = view.figure(name)
    if result is None or result.value is None:
        return None
    ends = (None if end is None else round(end, 4) for end in (result.low, result.high))
    return BootstrapEstimate(round(result.value, 4), *ends)


def _interval(view: UnitAgreement, name: str) -> Interval | None:
    """Return a share with its interval over groups, to four digits."""
    result = view.figure(name)
    if result is None or result.value is None or result.low is None or result.high is None:
        return None
    return Interval(
        round(result.value, 4), round(result.low, 4), round(result.high, 4), result.n, min(result.n, view.groups)
    )


def size(files: list[str]) -> str:
    """Return what the judge's files weigh in the package."""
    total = sum((PACKAGE / name).stat().st_size for name in files)
    return f"{total / 1e6:.1f} MB" if total >= 1e6 else f"{total / 1e3:.0f} kB"


def narrowed(source: Labelled, judge: str) -> Labelled:
    """Return the set without the sources that the model of minilm was trained on."""
    if judge != "minilm" or source.keep is not bool or source.key == "trec_dl19":
        return source
    folds = (0,) if source.task == "relevance" else (0, 1)
    keep = partial(of_folds, folds=folds)
    return source._replace(keep=keep, split=f"{source.split}; sources that the model was not trained on")


def of_folds(row: Row, folds: tuple[int, ...]) -> bool:
    """Return whether the source of a row is in some folds."""
    return zlib.crc32(row["source_id"].encode()) % 5 in folds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--judge", default="lexical")
    parser.add_argument("--limit", type=int, help="of each set, in whole groups drawn at random")
    parser.add_argument("-w", "--workers", type=int, default=1)
    parser.add_argument(
        "--kept", type=Path, help="what `python -m training.embedded --keep` left: see training/unseen.py"
    )
    parser.add_argument("--speed", help="in words, where it was measured elsewhere (python -m benchmarks.judge_speed)")
    parser.add_argument("-o", "--out", type=Path, help="instead of the card in the package")
    given = parser.parse_args()
    text = tomllib.loads((HERE / "cards.toml").read_text(encoding="utf-8")).get(given.judge)
    if text is None:
        parser.error(f"training/cards.toml has no section [{given.judge}]: say there what the card is to say in words")
    command = f"python training/card.py DATA --judge {given.judge}"
    command += f" --limit {given.limit}" if given.limit else ""
    command += " --kept kept.npz" if given.kept else ""
    measured: list[CardEntry] = []
    speed = given.speed or ""
    with tempfile.TemporaryDirectory() as place:
        for source in map(partial(narrowed, judge=given.judge), SETS):
            start = time.perf_counter()
            result = measure_judge(
                traces(given.data, source, Path(place)),
                judge=unseen(given.judge, given.kept, source.key) if given.kept else given.judge,
                task=source.task,
                positive=(source.positive,),
                group="query" if source.task == "relevance" else "source_id",
                within=source.within,
                threshold="cv",
                limit=given.limit,
                workers=given.workers,
            )
            measured += entries(source, result, source.key in text["fitted"], command)
            if not speed and result.speed.rate:
                speed = f"{result.speed.rate:.0f} answers of {source.name} a second on one core"
            print(f"{source.name}: {result.traces:,} traces, {time.perf_counter() - start:.0f} s", flush=True)
    card = JudgeCard(
        judge=given.judge,
        fingerprint=load_judge(given.judge).fingerprint,
        summary=text["summary"],
        reads=text["reads"],
        training=tuple(text["training"]),
        licence=text["licence"],
        size=size(text["files"]),
        speed=speed,
        measured=tuple(measured),
        weaknesses=tuple(text["weaknesses"]),
    )
    out = given.out or PACKAGE / "judges" / "cards" / f"{given.judge}.json"
    out.write_bytes(msgspec.json.format(msgspec.json.encode(card), indent=2) + b"\n")
    print(f"written: {out}")


if __name__ == "__main__":
    main()
