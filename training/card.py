"""Measure a judge on all labelled sets, and write its card.

    python training/card.py DATA_FOLDER --judge NAME [--limit N] [-w PROCESSES]
    python training/card.py DATA_FOLDER --judge NAME --set begin     (one set anew; the others as the card has them)

The words of the card are in training/cards.toml; the figures come from `ragfault.evaluation.agreement`, on each of
SETS. The card is written to src/ragfault/judges/cards/NAME.json; `make docs` then brings it into docs/judge.md.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ragfault.evaluation.agreement import measure_judge
from ragfault.evaluation.agreement.measurement import JudgeMeasurement, LabelTask, UnitKind, build_entries
from ragfault.judges import load_judge
from ragfault.judges.assembly import ScorerJudge
from ragfault.judges.cards import AnswerShape, CardEntry, JudgeCard
from ragfault.judges.checks.lexicon import load_idf
from ragfault.judges.checks.passages import Passage
from ragfault.judges.lexical.entailment import EntailmentThresholds, LexicalSession
from ragfault.judges.scorer import Entailment, RelevanceScore
from ragfault.protocols import Judge
from ragfault.records import Trace, Verdicts
from ragfault.rules import BinaryVerdict
from ragfault.stats import BootstrapEstimate, Interval
from ragfault.text import split_content_words

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


def entries(source: Labelled, results: Measurements, fitted: bool, command: str) -> Iterator[CardEntry]:
    """Yield what the card says of a set: an entry for each kind of unit but sentences, with the baselines beside."""
    baselines = [
        {entry.level: entry.auroc for entry in build_entries(result, command)}
        for result in (results.lexical, results.trivial)
    ]
    for entry in build_entries(results.judge, command):
        lexical, trivial = (by_level.get(entry.level) for by_level in baselines)
        unit: UnitKind = "chunk" if entry.level == "chunk" else entry.level
        figures = {name: getattr(entry, name) for name in CardEntry.__struct_fields__}
        rounded = {
            name: _round(value) for name, value in figures.items() if isinstance(value, BootstrapEstimate | Interval)
        }
        yield replace(
            replace(entry, **rounded),
            set=source.name,
            shape=source.shape,
            split=source.split,
            trained_on=fitted,
            share_bad=round(entry.share_bad, 4),
            kappa=None,
            alpha=None,
            corrects=dict(source.corrects).get(unit),
            auroc_lexical=round(lexical.value, 4) if lexical and lexical.value is not None else None,
            auroc_trivial=round(trivial.value, 4) if trivial and trivial.value is not None else None,
            note=source.note,
        )


def print_unsure(result: JudgeMeasurement) -> None:
    """Print of each kind of unit how often the judge is unsure, and its accuracy where it is sure and where not."""
    for agreement in result.views:
        figures = [agreement.figure(name) for name in ("unsure", "accuracy_sure", "accuracy_unsure")]
        values = [figure.value for figure in figures if figure is not None and figure.value is not None]
        if len(values) == len(figures):
            print(f"  {agreement.unit}: unsure {values[0]:.3f}, accuracy {values[1]:.3f} sure, {values[2]:.3f} unsure")


def _round(value: Any) -> Any:
    """Return a figure and the ends of its interval to four digits."""
    parts = tuple(value) if isinstance(value, BootstrapEstimate) else msgspec.structs.astuple(value)
    return type(value)(*(round(part, 4) if isinstance(part, float) else part for part in parts))


class OverlapSession(LexicalSession):
    """The trivial baseline: the share of the words of a text that the chunks have."""

    def score_relevance(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        """Return the share of the query's words that each passage has."""
        return [RelevanceScore(share_words(query, [passage])) for passage in passages]

    def score_entailment(self, claims: Sequence[str], passages: Sequence[Passage]) -> list[Entailment]:
        """Return the share of each claim's words that some passage has."""
        self._passages = passages
        shares = [share_words(claim, passages) for claim in claims]
        none = (0.0,) * len(passages)
        return [Entailment("supported" if p >= 0.5 else "unsupported", p, shares=none) for p in shares]

    def score_groundedness(self, answer: str, claims: Sequence[str], entailments: Sequence[Entailment]) -> float:  # noqa: ARG002
        """Return the share of the answer's words that some chunk has."""
        return share_words(answer, self._passages) if claims else 1.0


def share_words(text: str, passages: Sequence[Passage]) -> float:
    """Return the share of the content words of a text that some passage has; 1 without any."""
    words = set(split_content_words(text))
    have = {word for passage in passages for word in split_content_words(passage.text)}
    return len(words & have) / len(words) if words else 1.0


class OverlapJudge(ScorerJudge):
    """The judge of the trivial baseline."""

    fingerprint = "overlap"

    def open_session(self, query: str = "") -> OverlapSession:
        """Open a session for one trace."""
        return OverlapSession(load_idf(), EntailmentThresholds(0.5, 0.5), query)


class RememberingJudge:
    """A judge that looks at each trace of a file once, though several sets hold it."""

    def __init__(self, judge: Judge) -> None:
        self._judge, self.offers, self.fingerprint = judge, judge.offers, judge.fingerprint
        self.verdicts: dict[str, Verdicts] = {}

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        """Return the verdicts on each trace."""
        new = [trace for trace in traces if trace.id not in self.verdicts]
        self.verdicts |= {item.trace: item for item in self._judge.observe(new)}
        return [self.verdicts[trace.id] for trace in traces]


class Measurements(NamedTuple):
    """A judge and two baselines, measured on the same units."""

    judge: JudgeMeasurement
    lexical: JudgeMeasurement
    trivial: JudgeMeasurement


class Judges(NamedTuple):
    """The judge and the two baselines, for the sets of one file."""

    judge: RememberingJudge
    lexical: RememberingJudge
    trivial: RememberingJudge


def measure(source: Labelled, judges: Judges, path: Path, limit: int | None, workers: int) -> Measurements:
    """Measure the judge and the baselines on one set."""
    return Measurements(*(
        measure_judge(
            path,
            judge=judge,
            task=source.task,
            positive=(source.positive,),
            group="query" if source.task == "relevance" else "source_id",
            within=source.within,
            threshold="cv",
            limit=limit,
            workers=workers,
            resamples=resamples,
        )
        for judge, resamples in zip(judges, (1000, 2, 2), strict=True)
    ))  # fmt: skip


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


def was_judged(row: Row, keep: Callable[[Row], bool], known: Mapping[str, Verdicts]) -> bool:
    """Return whether a row is kept and was judged."""
    return keep(row) and row["id"] in known


def renew(card: JudgeCard, path: Path) -> JudgeCard:
    """Return the card at a path with the sets that were measured anew; its other entries and its speed stay."""
    old = msgspec.json.decode(path.read_bytes(), type=JudgeCard)
    if old.fingerprint != card.fingerprint:
        sys.exit(f"{path} is of {old.fingerprint}, this judge is {card.fingerprint}: measure all sets, without --set")
    anew = {entry.set for entry in card.measured}
    entries = [*(entry for entry in old.measured if entry.set not in anew), *card.measured]
    places = [source.name for source in SETS]
    entries.sort(key=lambda entry: places.index(entry.set))
    return replace(card, speed=old.speed, measured=tuple(entries))


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
    parser.add_argument(
        "--set", action="append", choices=sorted({source.key for source in SETS}), help="measure it alone; repeatable"
    )
    given = parser.parse_args()
    text = tomllib.loads((HERE / "cards.toml").read_text(encoding="utf-8")).get(given.judge)
    if text is None:
        parser.error(f"training/cards.toml has no section [{given.judge}]: say there what the card is to say in words")
    command = f"python training/card.py DATA --judge {given.judge}"
    command += f" --limit {given.limit}" if given.limit else ""
    command += " --kept kept.npz" if given.kept else ""
    measured: list[CardEntry] = []
    speed = given.speed or ""
    judges: dict[str, Judges] = {}
    with tempfile.TemporaryDirectory() as place:
        chosen = [source for source in SETS if not given.set or source.key in given.set]
        for full_set in map(partial(narrowed, judge=given.judge), chosen):
            source = full_set
            start = time.perf_counter()
            judge = unseen(given.judge, given.kept, source.key) if given.kept else load_judge(given.judge)
            looked = judges.setdefault(
                source.file, Judges(*map(RememberingJudge, (judge, load_judge("lexical"), OverlapJudge())))
            )
            is_part = source.key == "ragtruth" and given.limit and looked.judge.verdicts
            if is_part:  # of what was drawn of the whole set
                known = looked.judge.verdicts
                source = full_set._replace(keep=partial(was_judged, keep=full_set.keep, known=known))
            path = traces(given.data, source, Path(place))
            results = measure(source, looked, path, None if is_part else given.limit, given.workers)
            measured += entries(source, results, source.key in text["fitted"], command)
            if not speed and results.judge.speed.rate:
                speed = f"{results.judge.speed.rate:.0f} answers of {source.name} a second on one core"
            print(f"{source.name}: {results.judge.traces:,} traces, {time.perf_counter() - start:.0f} s", flush=True)
            print_unsure(results.judge)
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
    if given.set:
        card = renew(card, out)
    out.write_bytes(msgspec.json.format(msgspec.json.encode(card), indent=2) + b"\n")
    print(f"written: {out}")


if __name__ == "__main__":
    main()
