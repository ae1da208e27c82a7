"""What the correction for the judge's error is worth on real runs: does it come nearer to what people say?

    python -m benchmarks.correction DATA_FOLDER [JUDGE]

The sources of RAGTruth that no weights were fitted on are cut in two halves. On one, sensitivity and specificity by
claim are measured; on the other are the runs, whose mean share of bad claims by people is known: the answers of one
generator to one task, or one in six of the sources of a task with the answers of all generators. Both halves take
their turn. The error is measured on the same task as the run, or on another one. The assumption of the correction
holds for mixed runs of the same task alone.
"""

from __future__ import annotations

import hashlib
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.judge import is_reserved, rows, trace

from ragfault.judges import load_judge
from ragfault.stats import Interval, correct_share, mean_interval

Runs = dict[tuple[str, int, str], list["Answer"]]
HOLDS = ("supported", "inferred")
TASKS = {"QA": "questions and answers", "Summary": "summaries", "Data2txt": "records to text"}


def number_of(text: str) -> int:
    """Return a number that depends on a text alone."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")


class Answer(NamedTuple):
    """The claims of one answer: whether the judge calls each bad, and whether people do."""

    source: str
    task: str
    model: str
    called: tuple[bool, ...]
    marked: tuple[bool, ...]

    @property
    def half(self) -> int:
        """The half of the sources that it belongs to."""
        return number_of(f"half {self.source}") % 2


def answers(folder: Path, name: str) -> Iterator[Answer]:
    """Yield every held-out answer that makes a claim, as the judge and as people see it."""
    selected = [row for row in rows(folder, "ragtruth_train") if is_reserved(row)]
    for row, verdicts in zip(selected, load_judge(name).observe([trace(row) for row in selected]), strict=True):
        claims = verdicts.claim or ()
        if claims:
            marked = (any(c.start < s["end"] and s["start"] < c.end for s in row["spans"]) for c in claims)
            called = (claim.support not in HOLDS for claim in claims)
            yield Answer(row["source_id"], row["task"], row["model"], tuple(called), tuple(marked))


def rates(reported: Iterable[Answer]) -> tuple[Interval, Interval]:
    """Return sensitivity and specificity by claim, with intervals over sources."""
    sides: dict[bool, list[tuple[bool, str]]] = {True: [], False: []}
    for answer in reported:
        for called, marked in zip(answer.called, answer.marked, strict=True):
            sides[marked].append((called is marked, answer.source))
    bad, good = (
        mean_interval([right for right, _ in side], [source for _, source in side], bounds=(0, 1))
        for side in (sides[True], sides[False])
    )
    return bad, good


def main(folder: Path, name: str) -> None:
    """Print the table."""
    reported = list(answers(folder, name))
    known = {
        (task, half): rates(answer for answer in reported if (answer.task, answer.half) == (task, half))
        for task in TASKS
        for half in (0, 1)
    }
    single: Runs = defaultdict(list)
    mixed: Runs = defaultdict(list)
    for answer in reported:
        single[answer.task, answer.half, answer.model].append(answer)
        mixed[answer.task, answer.half, str(number_of(f"part {answer.source}") % 6)].append(answer)
    heads = ("run", "error measured on", "runs", "distance as judged", "corrected", "held as judged", "corrected")
    print(f"| {' | '.join(heads)} | undefined |\n{'|---' * 8}|")
    for title, runs in (("all generators", mixed), ("one generator", single)):
        for task, words in TASKS.items():
            for other in sorted(TASKS, key=lambda candidate: candidate != task):
                print(line(f"{words}, {title}", task, other, runs, known))


def line(title: str, task: str, other: str, runs: Runs, known: dict[tuple[str, int], tuple[Interval, Interval]]) -> str:
    """Format the runs of one task, corrected by the error rates measured on another."""
    apart, contains, count, undefined = [0.0, 0.0], [0, 0], 0, 0
    for (of, half, _), these in runs.items():
        if of != task:
            continue
        truth = sum(sum(answer.marked) / len(answer.marked) for answer in these) / len(these)
        sources = [answer.source for answer in these]
        raw = mean_interval([sum(answer.called) / len(answer.called) for answer in these], sources, bounds=(0, 1))
        fixed = correct_share(raw, *known[other, 1 - half]).interval
        count += 1
        if fixed is None:
            undefined += 1
            continue
        for index, span in enumerate((raw, fixed)):
            apart[index] += abs(span.mean - truth)
            contains[index] += span.low <= truth <= span.high
    defined = max(1, count - undefined)
    return (
        f"| {title} | {'the same' if task == other else TASKS[other]} | {count} | {apart[0] / defined:.3f} | "
        f"{apart[1] / defined:.3f} | {contains[0]} | {contains[1]} | {undefined} |"
    )


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) == 3 else "lexical")
