"""Measure how often `ragfault bisect` names the kind of step into which a fault was injected.

    python -m benchmarks.step_faults [--draws 3] [--share 0.6] [--judge NAME] [--fault NAME] [--page PAGE] [--repair]

The simulated agent of the demo answers its 104 questions twice, the second time with a fault in one step on a share of
the traces and other chances (wording, near ties). Most faults have no rule that looks for them. "A/A" is no fault.
With --repair the faulty agent is run again with the steps of each kind as the other version recorded them.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from ragfault.comparison.ablation.step_repair import repair_steps
from ragfault.comparison.bisection import bisect
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.datasets.agent import SimulatedAgent, ToolFailure
from ragfault.model.records import Trace

SHARE = 0.6


class FaultyAgent(SimulatedAgent):
    """An agent that takes one kind of step wrongly on a share of the questions."""

    share = SHARE

    def is_affected(self, question: Trace) -> bool:
        """Return whether the fault affects a question, the same ones in every draw."""
        return random.Random(f"{type(self).__name__} {question.id}").random() < self.share


class FailingTool(FaultyAgent):
    """The tool fails, and the agent answers as if nothing had happened."""

    def use_tool(self, tool, arguments, question):
        if self.is_affected(question):
            raise ToolFailure("503 service unavailable")
        return super().use_tool(tool, arguments, question)


class FailingSearch(FaultyAgent):
    """The search times out."""

    def search(self, query, question):
        if self.is_affected(question):
            raise ToolFailure("timed out after 5 s")
        return super().search(query, question)


class FailingMemory(FaultyAgent):
    """The memory cannot be reached."""

    def recall(self, question):
        if self.is_affected(question):
            raise ToolFailure("connection refused")
        return super().recall(question)


class BadArguments(FaultyAgent):
    """The plan calls the tool with arguments that it does not take."""

    def use_tool(self, tool, arguments, question):
        if self.is_affected(question):
            raise ToolFailure("validation error: unexpected argument 'q'")
        return super().use_tool(tool, arguments, question)


class Loop(FaultyAgent):
    """The plan makes the same search three times."""

    def plan(self, question, query):
        calls = super().plan(question, query)
        return [calls[0]] * 2 + calls if self.is_affected(question) else calls


class SameResults(FaultyAgent):
    """The search returns its first list to every query of the trace."""

    def search(self, query, question):
        if not self.steps or len([s for s in self.steps if s.kind == "retrieve"]) == 0:
            self.first = super().search(query, question)
        return self.first if self.is_affected(question) else super().search(query, question)


class AnswerFirst(FaultyAgent):
    """The agent answers from what it thinks, without a search."""

    def plan(self, question, query):
        return [] if self.is_affected(question) else super().plan(question, query)

    def write(self, question, noted):
        return (
            "Ask in the terminal; it opens at 08:30 every day."
            if self.is_affected(question)
            else super().write(question, noted)
        )


class WrongTool(FaultyAgent):
    """The plan asks for the weather instead of searching."""

    def plan(self, question, query):
        return [("weather", "Port Halden today")] if self.is_affected(question) else super().plan(question, query)

    def use_tool(self, tool, arguments, question):
        return "South-west 4, rain later, good." if tool == "weather" else super().use_tool(tool, arguments, question)


class LostEntity(FaultyAgent):
    """The rewrite leaves out names, numbers and the nouns that tell what is asked."""

    def rewrite(self, question, remembered):
        words = super().rewrite(question, remembered).split()
        return " ".join(["What applies to", *words[:2]]) if self.is_affected(question) else " ".join(words)


class OffTopicRewrite(FaultyAgent):
    """The rewrite asks about something else."""

    def rewrite(self, question, remembered):
        other = self.handbook.questions[(self.handbook.questions.index(_find_question(self, question)) + 37) % 104]
        return other.query if self.is_affected(question) else super().rewrite(question, remembered)


class StaleMemory(FaultyAgent):
    """The memory returns the topic of another conversation, and the rewrite follows it."""

    def recall(self, question):
        other = self.handbook.questions[(self.handbook.questions.index(_find_question(self, question)) + 53) % 104]
        return f"Asked before: {other.query}" if self.is_affected(question) else super().recall(question)

    def rewrite(self, question, remembered):
        before = remembered.removeprefix("Asked before: ")
        if self.is_affected(question) and before != remembered:
            return f"{before} {question.query}"
        return super().rewrite(question, remembered)


class LostIndex(FaultyAgent):
    """The index has lost the sections that answer."""

    def search(self, query, question):
        gold = {span.document for span in question.gold.spans} if question.gold else set()
        ranked = sorted(self.passages, key=lambda c: -self.rate(split_words(query), self.passages[c]))
        return (
            [c for c in ranked if c.document not in gold][:3]
            if self.is_affected(question)
            else super().search(query, question)
        )


class ReversedRanking(FaultyAgent):
    """The search returns the worst sections instead of the best."""

    def search(self, query, question):
        ranked = sorted(self.passages, key=lambda c: self.rate(split_words(query), self.passages[c]))
        return ranked[:3] if self.is_affected(question) else super().search(query, question)


class WrongRow(FaultyAgent):
    """The tool returns another row than the one that was asked for, and the agent trusts it."""

    def use_tool(self, tool, arguments, question):
        rows = [s for s in self.list_sentences(self.passages) if "£" in s]
        return self.random.choice(rows) if self.is_affected(question) else super().use_tool(tool, arguments, question)

    def read(self, question, query, chunks, texts):
        return " ".join(texts) if texts and self.is_affected(question) else super().read(question, query, chunks, texts)


class WrongSentences(FaultyAgent):
    """The reader notes the sentences that have least to do with the question."""

    def read(self, question, query, chunks, texts):
        if not self.is_affected(question):
            return super().read(question, query, chunks, texts)
        sentences = self.list_sentences(chunks)
        return " ".join(sorted(sentences, key=lambda s: self.rate(split_words(query), split_words(s)))[:2])


class IgnoredReading(FaultyAgent):
    """The answer ignores what was read."""

    def write(self, question, noted):
        text = "Please bring a printed ticket and arrive early. The staff at gate 3 will help you with everything else."
        return text if self.is_affected(question) else super().write(question, noted)


class InventedFigures(FaultyAgent):
    """The answer changes every number that was read."""

    def write(self, question, noted):
        text = super().write(question, noted)
        return (
            "".join(str((int(c) + 3) % 10) if c.isdigit() else c for c in text) if self.is_affected(question) else text
        )


class CutAnswer(FaultyAgent):
    """The answer stops after a few words."""

    def write(self, question, noted):
        text = super().write(question, noted)
        return " ".join(text.split()[:7]) if self.is_affected(question) else text


class Refusal(FaultyAgent):
    """The answer refuses although everything was read."""

    def write(self, question, noted):
        return "I am sorry, I cannot answer that." if self.is_affected(question) else super().write(question, noted)


def _find_question(agent: SimulatedAgent, question: Trace) -> Trace:
    return next(other for other in agent.handbook.questions if other.id == question.id)


def split_words(text: str) -> frozenset[str]:
    from ragfault.text.normalization import split_content_words

    return frozenset(split_content_words(text))


class InjectedFault(NamedTuple):
    """A fault, the kinds of step to which it belongs, and whether a rule detects it."""

    agent: type[SimulatedAgent]
    kinds: tuple[str, ...]
    has_rule: bool = False


FAULTS = (
    InjectedFault(FailingTool, ("tool",), True),
    InjectedFault(FailingSearch, ("retrieve",), True),
    InjectedFault(FailingMemory, ("memory",), True),
    InjectedFault(BadArguments, ("plan",), True),
    InjectedFault(Loop, ("plan",), True),
    InjectedFault(SameResults, ("retrieve",), True),
    InjectedFault(AnswerFirst, ("generate", "plan"), True),
    InjectedFault(WrongTool, ("plan",)),
    InjectedFault(LostEntity, ("rewrite",)),
    InjectedFault(OffTopicRewrite, ("rewrite",)),
    InjectedFault(StaleMemory, ("memory",)),
    InjectedFault(LostIndex, ("retrieve",)),
    InjectedFault(ReversedRanking, ("retrieve",)),
    InjectedFault(WrongRow, ("tool",)),
    InjectedFault(WrongSentences, ("read",)),
    InjectedFault(IgnoredReading, ("generate",)),
    InjectedFault(InventedFigures, ("generate",)),
    InjectedFault(CutAnswer, ("generate",)),
    InjectedFault(Refusal, ("generate",)),
)


class BisectionOutcome(NamedTuple):
    """Outcome of the bisection of one pair of runs."""

    verdict: str
    step: str | None
    sentence: str


def bisect_pair(baseline: Iterable[Trace], candidate: Iterable[Trace], judge: str) -> BisectionOutcome:
    """Bisect the runs of two lists of traces."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [
            evaluate(traces, Path(folder) / name, judge=judge) for name, traces in (("a", baseline), ("b", candidate))
        ]
        bisection = bisect(*runs, margin=0.1)
    named = next((fault.step for fault in bisection.faults if fault.step), None)
    return BisectionOutcome(bisection.verdict, named, bisection.sentence)


def format_row(name: str, injected: InjectedFault | None, outcomes: Sequence[BisectionOutcome]) -> str:
    """Format the outcomes of one fault as a row of the table."""
    kinds = injected.kinds if injected else ()
    right = sum(outcome.step in kinds for outcome in outcomes)
    none = sum(outcome.step is None for outcome in outcomes)
    faults = sum(outcome.verdict == "fault" for outcome in outcomes)
    wrong = sorted({str(o.step) for o in outcomes if o.step is not None and o.step not in kinds})
    cells = (
        name,
        " or ".join(kinds) or "none",
        "yes" if injected and injected.has_rule else "no",
        f"{faults} of {len(outcomes)}",
        str(right),
        str(none),
        ", ".join(wrong) or "–",
    )
    return "| " + " | ".join(cells) + " |"


REPAIR_HEADER = ["| fault | step | right step | no step | wrong step |", "|---|---|---|---|---|"]


def format_repair_row(name: str, injected: InjectedFault | None, draws: int, judge: str) -> str:
    """Repair a faulty agent with recorded steps of each kind, and format the named kinds as a row of the table."""
    named = []
    for draw in range(draws):
        agent = (injected.agent if injected else SimulatedAgent)(2 * draw + 1)
        source = SimulatedAgent(2 * draw).answer_all()
        repairs = repair_steps(agent.answer_again, source, agent.answer_all(), judge=judge)
        named.append(repairs.faulty_kind)
    kinds = injected.kinds if injected else ()
    wrong = sorted({str(kind) for kind in named if kind is not None and kind not in kinds})
    right, none = sum(kind in kinds for kind in named), named.count(None)
    cells = (name, " or ".join(kinds) or "none", str(right), str(none), ", ".join(wrong) or "–")
    return "| " + " | ".join(cells) + " |"


def write_table(page: Path, name: str, lines: Sequence[str]) -> None:
    """Replace the table between the two comments with its name on a page."""
    text, start, end = page.read_text(encoding="utf-8"), f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
    page.write_text(
        text[: text.index(start) + len(start)] + "\n".join(lines) + text[text.index(end) :], encoding="utf-8"
    )


def main() -> None:
    """Print the table, or write it between the marks of a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--share", type=float, default=SHARE)
    parser.add_argument("--judge", default="embedded")
    parser.add_argument("--fault", action="append")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--repair", action="store_true")
    options = parser.parse_args()
    FaultyAgent.share = options.share
    lines = (
        REPAIR_HEADER.copy()
        if options.repair
        else [
            "| fault | step | rule | verdict “fault” | right step | no step | wrong step |",
            "|---|---|---|---|---|---|---|",
        ]
    )
    chosen = [item for item in FAULTS if not options.fault or item.agent.__name__ in options.fault]
    agents = [*((item.agent.__name__, item) for item in chosen), *([] if options.fault else [("A/A", None)])]
    for name, item in agents:
        if options.repair:
            lines.append(format_repair_row(name, item, options.draws, options.judge))
            print(lines[-1], flush=True)
            continue
        outcomes = []
        for draw in range(options.draws):
            agent = (item.agent if item else SimulatedAgent)(2 * draw + 1)
            outcomes.append(bisect_pair(SimulatedAgent(2 * draw).answer_all(), agent.answer_all(), options.judge))
        lines.append(format_row(name, item, outcomes))
        print(lines[-1], flush=True)
        if not options.page:
            print(f"    {outcomes[0].verdict}: {outcomes[0].sentence}", flush=True)
    if options.page:
        write_table(options.page, "repaired" if options.repair else "injected", lines)


if __name__ == "__main__":
    main()
