"""Compare shares of bad claims, as judged and corrected for the judge's error, with the shares by people.

    python -m benchmarks.correction DATA_FOLDER [JUDGE]

The sources of RAGTruth that no weights were fitted on are cut in two halves. On one, sensitivity and specificity by
claim are measured; on the other are the runs, whose mean share of bad claims by people is known: the answers of one
generator to one task, or one in six of the sources of a task with the answers of all generators. Both halves take
their turn. The error is measured on the same task as the run, or on another one. The assumption of the correction
holds for mixed runs of the same task alone.
"""

from __future__ import annotations

import argparse
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.datasets import build_trace, is_marked, is_reserved, read_rows
from ragfault.judges.loading import load_judge
from ragfault.stats.estimates import Interval
from ragfault.stats.intervals import correct_share, mean_interval

Runs = dict[tuple[str, int, str], list["RatedAnswer"]]
SUPPORTED_LABELS = ("supported", "inferred")
TASKS = {"QA": "questions and answers", "Summary": "summaries", "Data2txt": "records to text"}


def hash_text(text: str) -> int:
    """Return a 32-bit hash of a text, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")


class RatedAnswer(NamedTuple):
    """Claims of one answer: whether the judge calls each of them bad, and whether people do."""

    source: str
    task: str
    model: str
    judged_bad: tuple[bool, ...]
    marked_bad: tuple[bool, ...]

    @property
    def half(self) -> int:
        """Half of the sources to which the answer belongs: 0 or 1."""
        return hash_text(f"half {self.source}") % 2


def iterate_answers(folder: Path, judge_name: str) -> Iterator[RatedAnswer]:
    """Yield every held-out answer that makes a claim, with the labels of the judge and of people."""
    selected = [row for row in read_rows(folder, "ragtruth_train") if is_reserved(row)]
    for row, verdicts in zip(
        selected, load_judge(judge_name).observe([build_trace(row) for row in selected]), strict=True
    ):
        claims = verdicts.claim or ()
        if claims:
            marked = (is_marked(c, row) for c in claims)
            called = (claim.support not in SUPPORTED_LABELS for claim in claims)
            yield RatedAnswer(row["source_id"], row["task"], row["model"], tuple(called), tuple(marked))


def compute_error_rates(answers: Iterable[RatedAnswer]) -> tuple[Interval, Interval]:
    """Return sensitivity and specificity of the judge by claim, with intervals over sources."""
    sides: dict[bool, list[tuple[bool, str]]] = {True: [], False: []}
    for answer in answers:
        for called, marked in zip(answer.judged_bad, answer.marked_bad, strict=True):
            sides[marked].append((called is marked, answer.source))
    bad, good = (
        mean_interval([right for right, _ in side], [source for _, source in side], bounds=(0, 1))
        for side in (sides[True], sides[False])
    )
    return bad, good


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("judge", nargs="?", default="lexical")
    options = parser.parse_args()
    answers = list(iterate_answers(options.data, options.judge))
    error_rates = {
        (task, half): compute_error_rates(answer for answer in answers if (answer.task, answer.half) == (task, half))
        for task in TASKS
        for half in (0, 1)
    }
    single_generator: Runs = defaultdict(list)
    all_generators: Runs = defaultdict(list)
    for answer in answers:
        single_generator[answer.task, answer.half, answer.model].append(answer)
        all_generators[answer.task, answer.half, str(hash_text(f"part {answer.source}") % 6)].append(answer)
    heads = ("run", "error measured on", "runs", "distance as judged", "corrected", "held as judged", "corrected")
    print(f"| {' | '.join(heads)} | undefined |\n{'|---' * 8}|")
    for title, runs in (("all generators", all_generators), ("one generator", single_generator)):
        for task, words in TASKS.items():
            for measured_task in sorted(TASKS, key=lambda candidate: candidate != task):
                print(format_row(f"{words}, {title}", task, measured_task, runs, error_rates))


def format_row(
    title: str, task: str, measured_task: str, runs: Runs, error_rates: dict[tuple[str, int], tuple[Interval, Interval]]
) -> str:
    """Format the runs of one task, corrected by the error rates measured on another."""
    distances, covered, count, undefined = [0.0, 0.0], [0, 0], 0, 0
    for (run_task, half, _), answers in runs.items():
        if run_task != task:
            continue
        truth = sum(sum(answer.marked_bad) / len(answer.marked_bad) for answer in answers) / len(answers)
        sources = [answer.source for answer in answers]
        raw = mean_interval(
            [sum(answer.judged_bad) / len(answer.judged_bad) for answer in answers], sources, bounds=(0, 1)
        )
        corrected = correct_share(raw, *error_rates[measured_task, 1 - half]).interval
        count += 1
        if corrected is None:
            undefined += 1
            continue
        for index, span in enumerate((raw, corrected)):
            distances[index] += abs(span.mean - truth)
            covered[index] += span.low <= truth <= span.high
    defined = max(1, count - undefined)
    measured_on = "the same" if task == measured_task else TASKS[measured_task]
    return (
        f"| {title} | {measured_on} | {count} | {distances[0] / defined:.3f} | "
        f"{distances[1] / defined:.3f} | {covered[0]} | {covered[1]} | {undefined} |"
    )


if __name__ == "__main__":
    main()
