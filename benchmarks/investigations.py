"""Measure how often an investigation names the stage of an injected fault, and how many of its quotes are false.

    python -m benchmarks.investigations [KIND …] [--group fresh-2 --group fresh-3] [--size 200] [--no-key]

The faults and systems are those of `benchmarks.faults.unseen`. *Right*: the first hypothesis names one of the stages
that the bench lists for the fault, in its layer. Prints a table, the shares, and the mean confidence beside them.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from msgspec.structs import replace

from benchmarks.faults.unseen.__main__ import GROUPS, judged, sampled, systems
from benchmarks.faults.unseen.kinds import chosen
from ragfault.comparison.investigation.hypotheses import investigate
from ragfault.comparison.investigation.records import Investigation
from ragfault.io.runs.run import Run
from ragfault.stats.intervals import wilson_interval


def count_false_quotes(result: Investigation, baseline: Run, candidate: Run) -> int:
    """Count the quotes that differ from the recorded text at the position they state."""
    false = 0
    for quote in result.quotes:
        run = baseline if quote.run == "baseline" else candidate
        [trace] = run.traces([quote.trace])
        texts = {chunk.id: chunk.text for chunk in trace.chunks or ()}
        text = (trace.answer or "") if quote.chunk is None else texts[quote.chunk]
        false += text[quote.start : quote.end] != quote.text or not quote.text
    return false


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--group", action="append", choices=list(GROUPS))
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--no-key", dest="key", action="store_false")
    options = parser.parse_args()
    groups = options.group or ["fresh-2", "fresh-3"]
    names = options.kinds or sorted({name for group in groups for name in GROUPS[group]})
    right_stages = right_layers = faults = quotes = false_quotes = harmless = blamed = 0
    confidences: list[tuple[float, bool]] = []
    print("| system | fault | named | confidence | right | quotes |\n|---|---|---|---|---|---|")
    for parts, questions in systems(None):
        base = replace(parts, seed=0)
        selected = sampled(questions, options.size, 0)
        with tempfile.TemporaryDirectory() as folder:
            baseline = judged(base, selected, Path(folder) / "baseline", options.key)
            for name, kind in chosen(list(names), parts.name).items():
                candidate = judged(kind.change(replace(base, seed=1)), selected, Path(folder) / name, options.key)
                result = investigate(candidate, baseline)
                is_fault = bool(kind.layers) and "logging" not in kind.layers
                is_right = result.layer in kind.layers and result.stage in kind.stages
                quotes += len(result.quotes)
                false_quotes += count_false_quotes(result, baseline, candidate)
                if is_fault:
                    faults += 1
                    right_stages += is_right
                    right_layers += result.layer in kind.layers
                    confidences += [] if result.confidence is None else [(result.confidence, is_right)]
                else:
                    harmless, blamed = harmless + 1, blamed + (result.verdict == "fault")
                confidence = "–" if result.confidence is None else f"{result.confidence:.2f}"
                mark = "harmless" if not is_fault else "yes" if is_right else "no"
                named = result.stage or result.layer or result.verdict
                print(f"| {parts.name} | {name} | {named} | {confidence} | {mark} | {len(result.quotes)} |", flush=True)
    low, high = wilson_interval(right_stages, faults)
    share = f"{right_stages / faults:.0%} [{low:.0%}, {high:.0%}]"
    print(f"\nright stage: {right_stages} of {faults} ({share}); right layer: {right_layers}")
    print(f"harmless changes on which a fault is named: {blamed} of {harmless}")
    print(f"quotes: {quotes}, not in the record: {false_quotes}")
    if confidences:
        mean = sum(value for value, _ in confidences) / len(confidences)
        right_share = sum(is_right for _, is_right in confidences) / len(confidences)
        confident = [is_right for value, is_right in confidences if value >= 0.5]
        print(
            f"mean confidence {mean:.2f}, right {right_share:.2f} ({len(confidences)} named); at 0.5 or more: ", end=""
        )
        print(f"{sum(confident)} of {len(confident)} right")


if __name__ == "__main__":
    main()
