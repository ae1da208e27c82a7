"""Measure a judge on all labelled sets, and write its card.

    python training/card.py DATA_FOLDER --judge NAME [--limit N] [-w PROCESSES]
    python training/card.py DATA_FOLDER --judge NAME --set begin     (one set again; the others as the card has them)

The texts of the card are in training/cards.toml; the figures come from `ragfault.labels`, on the sets of
training/labelled_sets.py. The card is written to src/ragfault/judges/cards/NAME.json; `make docs` then brings it into
docs/cards.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ragfault.judges.assembly import ScorerJudge
from ragfault.judges.cards.card import CardEntry, JudgeCard
from ragfault.judges.checks.lexicon import load_idf
from ragfault.judges.checks.passages import Passage
from ragfault.judges.lexical.entailment import EntailmentThresholds, LexicalSession
from ragfault.judges.loading import load_judge
from ragfault.judges.scorer import Entailment, RelevanceScore
from ragfault.labels.judges.measurement import JudgeMeasurement, UnitKind, build_entries
from ragfault.labels.judges.measuring import measure_judge
from ragfault.model.protocols import Judge
from ragfault.model.records import Trace, Verdicts
from ragfault.stats.estimates import BootstrapEstimate, Interval
from ragfault.text.normalization import split_content_words

sys.path.insert(0, str(Path(__file__).parents[1]))
from training.data_files import Row
from training.labelled_sets import SETS, LabelledSet, exclude_training_sources, read_labelled_rows
from training.unseen import CrossFittedJudge, load_cross_fitted_judge

HERE = Path(__file__).parent
PACKAGE = HERE.parent / "src/ragfault"


def write_traces(data: Path, source: LabelledSet, folder: Path) -> Path:
    """Write a set as a file of traces, each with its labels; return the path."""
    path = folder / f"{source.name}.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for index, row in enumerate(read_labelled_rows(data, source.file)):
            if source.includes(row):
                texts = row["contexts"] if "contexts" in row else [row["passage"]]
                chunks = [{"id": str(number), "text": text} for number, text in enumerate(texts)]
                columns = {name: row[name] for name in ("source_id", "label", "task", "model", "subset") if name in row}
                if source.task == "answer" and "spans" in row:
                    columns["spans"] = [[span["start"], span["end"]] for span in row["spans"]]
                trace = {"id": str(row.get("id", index)), "query": row.get("query") or "", "chunks": chunks, **columns}
                if row.get("history"):
                    trace["history"] = row["history"]
                if row.get("answer") is not None:
                    trace["answer"] = row["answer"]
                file.write(json.dumps(trace, ensure_ascii=False) + "\n")
    return path


def build_set_entries(source: LabelledSet, results: Measurements, fitted: bool, command: str) -> Iterator[CardEntry]:
    """Yield an entry for each kind of unit of a set, with the AUROC of both baselines."""
    baselines = [
        {entry.level: entry.auroc for entry in build_entries(result, command)}
        for result in (results.lexical, results.trivial)
    ]
    for entry in build_entries(results.judge, command):
        lexical, trivial = (by_level.get(entry.level) for by_level in baselines)
        unit: UnitKind = "chunk" if entry.level == "chunk" else entry.level
        figures = {name: getattr(entry, name) for name in CardEntry.__struct_fields__}
        rounded = {
            name: _round_figures(value)
            for name, value in figures.items()
            if isinstance(value, BootstrapEstimate | Interval)
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


def _round_figures(value: Any) -> Any:
    """Round a figure and the ends of its interval to four digits."""
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
    passage_words = {word for passage in passages for word in split_content_words(passage.text)}
    return len(words & passage_words) / len(words) if words else 1.0


class OverlapJudge(ScorerJudge):
    """The judge of the trivial baseline."""

    fingerprint = "overlap"

    def open_session(self, query: str = "", history: Sequence[str] = ()) -> OverlapSession:  # noqa: ARG002
        """Open a session for one trace."""
        return OverlapSession(load_idf(), EntailmentThresholds(0.5, 0.5), query)


class CachingJudge:
    """A judge that caches its verdicts, since several sets have the same traces."""

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


class JudgeWithBaselines(NamedTuple):
    """The judge and the two baselines, for the sets of one file."""

    judge: CachingJudge
    lexical: CachingJudge
    trivial: CachingJudge


def measure_set(
    source: LabelledSet, judges: JudgeWithBaselines, path: Path, limit: int | None, workers: int
) -> Measurements:
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


def measure_size(files: list[str]) -> str:
    """Return the size of the judge's files and folders in the package."""
    paths = [path for name in files for path in [PACKAGE / name, *(PACKAGE / name).glob("*")] if path.is_file()]
    total = sum(path.stat().st_size for path in paths)
    return f"{total / 1e6:.1f} MB" if total >= 1e6 else f"{total / 1e3:.0f} kB"


def is_judged(row: Row, includes: Callable[[Row], bool], known: Mapping[str, Verdicts]) -> bool:
    """Return whether a set includes a row and the row was judged."""
    return includes(row) and row["id"] in known


def update_card(card: JudgeCard, path: Path) -> JudgeCard:
    """Return the card at a path with the entries of the sets measured now; its other entries and its speed stay."""
    previous = msgspec.json.decode(path.read_bytes(), type=JudgeCard)
    if previous.fingerprint != card.fingerprint:
        sys.exit(
            f"{path} is of {previous.fingerprint}, this judge is {card.fingerprint}: measure all sets, without --set"
        )
    measured_sets = {entry.set for entry in card.measured}
    entries = [*(entry for entry in previous.measured if entry.set not in measured_sets), *card.measured]
    set_names = [source.name for source in SETS]
    entries.sort(key=lambda entry: set_names.index(entry.set))
    return replace(card, speed=previous.speed, measured=tuple(entries))


def main() -> None:
    """Measure the judge on the sets and write its card."""
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
    options = parser.parse_args()
    description = tomllib.loads((HERE / "cards.toml").read_text(encoding="utf-8")).get(options.judge)
    if description is None:
        parser.error(
            f"training/cards.toml has no section [{options.judge}]: say there what the card is to say in words"
        )
    asked = set(options.set or description["fitted"])
    fitted = [name for name in description["fitted"] if name in asked]
    if description.get("needs_kept") and fitted and not options.kept:
        parser.error(
            f"the weights of {options.judge} were fitted on {', '.join(fitted)}: name the odds of the folds without "
            "each source with --kept, or measure other sets with --set"
        )
    command = f"python training/card.py DATA --judge {options.judge}"
    command += f" --limit {options.limit}" if options.limit else ""
    command += " --kept kept.npz" if options.kept else ""
    command += "".join(f" --set {name}" for name in options.set or ())
    measured: list[CardEntry] = []
    speed = options.speed or ""
    judges: dict[str, JudgeWithBaselines] = {}
    with tempfile.TemporaryDirectory() as folder:
        selected = [source for source in SETS if not options.set or source.key in options.set]
        for full_set in map(partial(exclude_training_sources, judge=options.judge), selected):
            source = full_set
            start = time.perf_counter()
            judge = (
                load_cross_fitted_judge(options.judge, options.kept, source.key)
                if options.kept
                else load_judge(options.judge)
            )
            judges_of_file = judges.setdefault(
                source.file, JudgeWithBaselines(*map(CachingJudge, (judge, load_judge("lexical"), OverlapJudge())))
            )
            is_part = source.key == "ragtruth" and options.limit and judges_of_file.judge.verdicts
            if is_part:  # of what was drawn of the whole set
                known = judges_of_file.judge.verdicts
                source = full_set._replace(includes=partial(is_judged, includes=full_set.includes, known=known))
            path = write_traces(options.data, source, Path(folder))
            results = measure_set(source, judges_of_file, path, None if is_part else options.limit, options.workers)
            measured += build_set_entries(source, results, source.key in description["fitted"], command)
            if not speed and results.judge.speed.rate:
                speed = f"{results.judge.speed.rate:.0f} answers of {source.name} a second on one core"
            print(f"{source.name}: {results.judge.traces:,} traces, {time.perf_counter() - start:.0f} s", flush=True)
            print_unsure(results.judge)
            if isinstance(judge, CrossFittedJudge) and judge.misfits:
                print(f"  judged by the packaged weights, since their claims changed: {len(judge.misfits)} answers")
    card = JudgeCard(
        judge=options.judge,
        fingerprint=load_judge(options.judge).fingerprint,
        summary=description["summary"],
        reads=description["reads"],
        training=tuple(description["training"]),
        licence=description["licence"],
        size=measure_size(description["files"]),
        speed=speed,
        measured=tuple(measured),
        weaknesses=tuple(description["weaknesses"]),
    )
    out = options.out or PACKAGE / "judges" / "cards" / f"{options.judge}.json"
    if options.set and out.exists():
        card = update_card(card, out)
    out.write_bytes(msgspec.json.format(msgspec.json.encode(card), indent=2) + b"\n")
    print(f"written: {out}")


if __name__ == "__main__":
    main()
