"""Measure how far the metrics of steps move where a fault that they look for was injected.

    python -m benchmarks.step_metrics [--judge NAME] [--page benchmarks/RESULTS.md]

The simulated agent of the demo answers its questions twice, the second time with a fault on three of five of them. On
the questions that the fault strikes: the mean of the metric without and with it, and how often it ranks the answer with
the fault as the worse one (ties count half). On the others the metric should not move.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from benchmarks import step_faults
from benchmarks.step_faults import FaultyAgent, write_table
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.datasets.agent import SimulatedAgent
from ragfault.metrics.catalog import get_definitions
from ragfault.model.records import Chunk, Trace
from ragfault.stats.classification import auroc


def change_figures(text: str) -> str:
    """Change every figure of a text."""
    return re.sub(r"\d", lambda digit: str((int(digit[0]) + 3) % 10), text)


class DisclosingAgent(FaultyAgent):
    """The search also returns its best section with other figures, and the answer says what it says."""

    is_disclosing = True

    def search(self, query, question):
        best = super().search(query, question)
        other = replace(best[0], id=f"{best[0].id}-old", text=change_figures(best[0].text))
        return [*best, Chunk(**{name: getattr(other, name) for name in Chunk.__struct_fields__})]

    def read(self, question, query, chunks, texts):
        return super().read(question, query, [chunk for chunk in chunks if not chunk.id.endswith("-old")], texts)

    def write(self, question, noted):
        text = super().write(question, noted)
        return f"{text} An older section says: {change_figures(noted)}" if self.is_disclosing and noted else text


class CherryPickingAgent(DisclosingAgent):
    """The answer is silent about the section with other figures."""

    @property
    def is_disclosing(self):
        return False

    def is_affected(self, question: Trace) -> bool:  # noqa: ARG002
        return True


class ContradictedUser(FaultyAgent):
    """The user asserts the rule with other figures, and the answer keeps to what was read."""

    def answer_question(self, question):
        trace = super().answer_question(question)
        if self.is_affected(question) and (noted := next(s.output for s in trace.steps or () if s.kind == "read")):
            asserted = change_figures(noted)
            answer = f"You are right. {asserted}" if self.is_agreeing else trace.answer
            return replace(trace, query=f"I read this: {asserted} {question.query}", answer=answer)
        return trace

    is_agreeing = False

    def is_affected(self, question: Trace) -> bool:  # noqa: ARG002
        return True


class SycophanticAgent(ContradictedUser):
    """The answer repeats what the user asserts."""

    is_agreeing = True


class MetricCase(NamedTuple):
    """A metric, the agent without the fault and the one with it."""

    metric: str
    agent: type[SimulatedAgent]
    faulty: type[FaultyAgent]


CASES = (
    MetricCase("step_error", SimulatedAgent, step_faults.FailingTool),
    MetricCase("swallowed_error", SimulatedAgent, step_faults.FailingSearch),
    MetricCase("swallowed_error", SimulatedAgent, step_faults.FailingTool),
    MetricCase("redundant_steps", SimulatedAgent, step_faults.Loop),
    MetricCase("redundant_steps", SimulatedAgent, step_faults.SameResults),
    MetricCase("retrieval_gain", SimulatedAgent, step_faults.ReversedRanking),
    MetricCase("retrieval_gain", SimulatedAgent, step_faults.LostIndex),
    MetricCase("step_use", SimulatedAgent, step_faults.IgnoredReading),
    MetricCase("step_use", SimulatedAgent, step_faults.WrongSentences),
    MetricCase("rewrite_fidelity", SimulatedAgent, step_faults.LostEntity),
    MetricCase("rewrite_fidelity", SimulatedAgent, step_faults.OffTopicRewrite),
    MetricCase("hop_support", SimulatedAgent, step_faults.InventedFigures),
    MetricCase("hop_support", SimulatedAgent, step_faults.IgnoredReading),
    MetricCase("cherry_picking", DisclosingAgent, CherryPickingAgent),
    MetricCase("sycophancy", ContradictedUser, SycophanticAgent),
)


def score_questions(agent: SimulatedAgent, metric: str, judge: str) -> dict[str, float | None]:
    """Score every question with the metric."""
    with tempfile.TemporaryDirectory() as folder:
        run = evaluate(agent.answer_all(), Path(folder) / "run", judge=judge, metrics=[metric])
        return {result.trace: result.value for result in run.scores()}


def format_row(case: MetricCase, judge: str) -> str:
    """Measure one case, as a row of the table."""
    agent, faulty = case.agent(0), case.faulty(1)
    before, after = score_questions(agent, case.metric, judge), score_questions(faulty, case.metric, judge)
    is_affected = {question.id: faulty.is_affected(question) for question in agent.handbook.questions}
    sign = 1 if get_definitions()[case.metric].better == "higher" else -1
    cells = [case.metric, case.faulty.__name__]
    for affected in (True, False):
        pairs = [(before[name], after[name]) for name in before if is_affected[name] == affected]
        old, new = (
            ([value for value in side if value is not None] for side in zip(*pairs, strict=True)) if pairs else ([], [])
        )
        if not old or not new:
            only = f"{np.mean(new):.2f} (undefined without it)" if new and affected else "–"
            cells += [only, "–", f"{len(new)}"] if affected else ["–"]
            continue
        rank = auroc([sign * v for v in (*old, *new)], [True] * len(old) + [False] * len(new))
        means = f"{np.mean(old):.2f} → {np.mean(new):.2f}"
        cells += [means, f"{rank:.2f}", f"{len(new)}"] if affected else [means]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table, or write it between the marks of a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--judge", default="embedded")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    lines = [
        "| metric | fault | without → with it | ranks it as worse | scored | other questions |",
        "|---|---|---|---|---|---|",
    ]
    for case in CASES:
        lines.append(format_row(case, options.judge))
        print(lines[-1], flush=True)
    if options.page:
        write_table(options.page, "step metrics", lines)


if __name__ == "__main__":
    main()
