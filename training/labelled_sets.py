"""The labelled sets on which the cards of the judges are measured, whole and in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ragfault.judges.cards.card import AnswerShape
from ragfault.labels.judges.measurement import LabelTask, UnitKind
from ragfault.model.rules import BinaryVerdict
from training.authored.items import read_items
from training.data_files import Row, assign_fold, iterate_rows
from training.encoder.rows import TEST_WRITERS, is_measured

__all__ = ["SETS", "LabelledSet", "exclude_training_sources", "read_labelled_rows"]

AUTHORED = "authored"
ROLES = ("user", "assistant")
# The generators of RAGTruth that are called strong.
STRONG_GENERATORS = frozenset({"gpt-3.5-turbo-0613", "gpt-4-0613"})


class LabelledSet(NamedTuple):
    """A set of labelled data, or a part of it, and how it is measured."""

    name: str
    file: str
    key: str
    """The name under which training/cards.toml says that a judge was fitted on it."""
    shape: AnswerShape
    split: str
    task: LabelTask = "answer"
    includes: Callable[[Row], bool] = bool
    within: tuple[str, ...] = ()
    positive: str = "1"
    corrects: tuple[tuple[UnitKind, BinaryVerdict], ...] = ()
    """The unit whose rates correct a kind of verdict."""
    note: str = ""


def is_reserved(row: Row) -> bool:
    """Return whether a source of RAGTruth is held out for measuring; one in five is."""
    return assign_fold(row["source_id"]) == 0


def select_task(task: str) -> Callable[[Row], bool]:
    """Return a filter for the held-out rows of a task."""
    return lambda row: is_reserved(row) and row["task"] == task


def select_errors(kind: str) -> Callable[[Row], bool]:
    """Return a filter for the held-out answers that are good, or whose marks are all of one kind of error."""
    return lambda row: is_reserved(row) and all(kind in span["type"] for span in row["spans"])


def select_strong(row: Row) -> bool:
    """Return whether a held-out answer is by a strong generator."""
    return is_reserved(row) and row["model"] in STRONG_GENERATORS


def select_authored(column: str, value: str) -> Callable[[Row], bool]:
    """Return a filter for authored claims: of a kind, in the English test part, or of another language."""
    return lambda row: row[column] == value and (column == "language" or row["language"] == "en")


def read_labelled_rows(data: Path, file: str) -> Iterator[Row]:
    """Yield the rows of a file of public data, or the authored claims: the test part and those in other languages."""
    if file != AUTHORED:
        yield from iterate_rows(data / f"{file}.jsonl.gz")
        return
    for number, item in enumerate(read_items()):
        if item.writer in TEST_WRITERS:
            history = [{"role": ROLES[place % 2], "text": text} for place, text in enumerate(item.history)]
            yield {
                "id": f"{item.unit} {number}", "source_id": item.unit, "query": item.query, "history": history,
                "contexts": item.chunks, "answer": item.claim, "label": int(item.label != "S"), "kind": item.kind,
                "language": item.language,
            }  # fmt: skip


RAGTRUTH = "one source in five of the training file, never fitted on"
AUTHORED_PART = "units of a writer on whom nothing was trained"
KINDS = (
    "aggregation", "cause_purpose_order", "citation", "comparison_ranking", "condition_scope", "dates_durations",
    "entity_binding", "follow_up", "hedge", "list", "modality", "negation_exception", "numbers_units", "partly",
    "quantifiers", "refusal_partial", "roles", "table_list", "terse", "yes_no",
)  # fmt: skip
LANGUAGES = ("de", "es", "fr", "it", "ja", "pl", "pt", "zh")
SETS = (
    LabelledSet("RAGTruth", "ragtruth_train", "ragtruth", "mixed", RAGTRUTH, includes=is_reserved,
             within=("task", "model"),
             note="An answer is bad where people marked a stretch of it, a claim where it touches one."),
    LabelledSet("RAGTruth QA", "ragtruth_train", "ragtruth", "long answer", RAGTRUTH, includes=select_task("QA"),
             within=("model",), corrects=(("claim", "claim"),)),
    LabelledSet("RAGTruth Summary", "ragtruth_train", "ragtruth", "summary", RAGTRUTH, includes=select_task("Summary"),
             within=("model",), corrects=(("claim", "claim"),)),
    LabelledSet("RAGTruth Data-to-text", "ragtruth_train", "ragtruth", "structured data", RAGTRUTH,
             includes=select_task("Data2txt"), within=("model",), corrects=(("claim", "claim"),)),
    LabelledSet("AttributionBench", "attributionbench_dev", "attributionbench", "short claim",
             "development part and the first 500 of the test part", "support", within=("subset",),
             corrects=(("claim", "citation"),),
             note="Claims against cited passages; one in eight against several, taken together."),
    LabelledSet("WiCE", "wice_dev", "wice", "short claim", "development part", "support",
             note="Partially supported counts as bad."),
    LabelledSet("BEGIN", "begin_dev", "begin", "dialogue turn", "development part", within=("model",),
             note="Replies that are not fully attributable count as bad."),
    LabelledSet("WikiQA", "wikiqa", "wikiqa", "passage", "training and development part", "relevance",
             within=("query",), note="Single sentences; bad is what does not answer the query."),
    LabelledSet("TREC DL 2019", "trec_dl19", "trec_dl19", "passage", "judged passages", "relevance", within=("query",),
             positive="2", corrects=(("chunk", "chunk"),),
             note="Passages that five retrievers ranked high; those below grade 2 count as bad."),
    LabelledSet("RAGTruth, answers with conflicts", "ragtruth_train", "ragtruth", "mixed", RAGTRUTH,
             includes=select_errors("Conflict"), note="Good answers, and those in which people marked only conflicts."),
    LabelledSet("RAGTruth, answers with inventions", "ragtruth_train", "ragtruth", "mixed", RAGTRUTH,
             includes=select_errors("Baseless"), note="Good answers, and those with only what no chunk says."),
    LabelledSet("RAGTruth, strong generators", "ragtruth_train", "ragtruth", "mixed", RAGTRUTH, includes=select_strong,
             note="Answers of GPT-3.5 and GPT-4."),
    LabelledSet("authored, test part", AUTHORED, AUTHORED, "short claim", AUTHORED_PART, "support",
             includes=select_authored("language", "en"), note="Each claim under passages that decide it differently."),
    *(
        LabelledSet(f"authored, {kind.replace('_', ' ')}", AUTHORED, AUTHORED, "short claim", AUTHORED_PART, "support",
                    includes=select_authored("kind", kind))
        for kind in KINDS
    ),
    *(
        LabelledSet(f"authored, {language}", AUTHORED, AUTHORED, "short claim", AUTHORED_PART, "support",
                    includes=select_authored("language", language))
        for language in LANGUAGES
    ),
)  # fmt: skip


def is_unseen(row: Row, source: LabelledSet) -> bool:
    """Return whether a row is of a set, and of a source that the encoder was not trained on."""
    if not source.includes(row):
        return False
    if source.key in ("ragtruth", "trec_dl19"):
        return is_measured(str(row["source_id"]))
    if source.key == "wikiqa":
        return row["split"] != "train" or is_measured(row["source_id"])
    return assign_fold(row["source_id"]) == 0


def exclude_training_sources(source: LabelledSet, judge: str) -> LabelledSet:
    """Return the set without the sources that the model of a judge was trained on."""
    if judge != "encoder" or source.key == AUTHORED:
        return source
    split = f"{source.split}; sources that the model was not trained on"
    return source._replace(includes=partial(is_unseen, source=source), split=split)
