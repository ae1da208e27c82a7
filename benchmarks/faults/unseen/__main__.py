"""How often bisection names the layer and the stage of a fault of a kind, and on a system, that it was not made with.

    python -m benchmarks.faults.unseen [KIND …] [--group GROUP …] [--data FOLDER] [--sizes 200]
                                       [--seeds 1] [--no-key] [--cache FOLDER] [--out FILE]

The systems `shop` and `handbook` are always asked; `reports` where `--data` names a folder with `chunking_corpora/` and
`chunking_questions.jsonl.gz`. With `--no-key` gold, references and facts are removed from both sides. Prints a Markdown
table and the shares over all kinds.

*Layer*: the first fault named lies in the right layer, or none is named where there is none. *First*, *three*: the
right stage is the first, or among the first three, of the suspects of that fault. *Wrong*: a fault of another layer
is named first, or any fault where nothing broke, or "no fault" where something did. The rest: cannot tell.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from benchmarks.faults.__main__ import JUDGE, METRICS
from benchmarks.faults.words import chance
from ragfault.comparison.bisection import bisect_pairs
from ragfault.comparison.paired_runs import PairedRuns, pair_runs
from ragfault.comparison.settings import BisectionSettings
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.runs.run import Run
from ragfault.model.records import Trace

from . import damage
from .corpora import handbook_chunks, handbook_questions, report_chunks, report_questions, shop_chunks, shop_questions
from .fifth_kinds import FIFTH
from .fourth_kinds import FOURTH
from .fresh_kinds import FRESH
from .kinds import DEVELOPED, KINDS, Kind, chosen
from .second_kinds import SECOND
from .system import Parts, answer_all
from .third_kinds import THIRD

OPERATION = ("error", "empty_retrieval", "blank_answer", "uncited_answer")
"""Metrics of whether the pipeline answered, as far as the catalogue has them."""


def systems(data: Path | None) -> Iterator[tuple[Parts, tuple[Trace, ...]]]:
    """Return the systems with their questions."""
    yield Parts(name="shop", chunks=tuple(shop_chunks())), shop_questions()
    yield Parts(name="handbook", chunks=tuple(handbook_chunks()), tenants=False), handbook_questions()
    if data is not None:
        damage.REPORTS[:] = [data]
        yield Parts(name="reports", chunks=tuple(report_chunks(data))), report_questions(data)


def sampled(questions: Sequence[Trace], n: int, seed: int) -> list[Trace]:
    """Return n of the questions in an order by chance."""
    return sorted(questions, key=lambda question: chance(seed, "sampled", question.id))[:n]


GROUPS = {
    "developed": DEVELOPED,
    "held-out": frozenset(KINDS) - DEVELOPED - FRESH - SECOND - THIRD - FOURTH - FIFTH,
    "fresh": FRESH,
    "fresh-2": SECOND,
    "fresh-3": THIRD,
    "fresh-4": FOURTH,
    "fresh-5": FIFTH,
}


def judged(parts: Parts, questions: Sequence[Trace], folder: Path, key: bool) -> Run:
    """Judge what a system records, with or without its answer key; a folder that is there already is taken as it is."""
    if folder.exists():
        return Run.open(folder)
    traces = answer_all(parts, questions)
    if not key:
        traces = [replace(trace, gold=None, facts=None, reference=None) for trace in traces]
    from ragfault.metrics.catalog import get_definitions

    more = [name for name in OPERATION if name in get_definitions()]
    return evaluate(list(traces), folder, metrics=[*METRICS, *more], force=True, judge=JUDGE)


def outcome(kind: Kind, result: Any) -> dict[str, Any]:
    """Compare what a bisection says with the truth."""
    first = result.faults[0] if result.faults else None
    suspects = [getattr(s, "stage", getattr(s, "name", s)) for s in first.suspects] if first else []
    broken = bool(kind.layers) and "logging" not in kind.layers
    right = (first is not None and first.layer in kind.layers) if broken else first is None
    return {
        "layer": right,
        "first": broken and right and bool(suspects) and suspects[0] in kind.stages,
        "three": broken and right and bool(kind.stages & set(suspects[:3])),
        "wrong": (broken and (result.verdict == "no fault" or (first is not None and not right)))
        or (not broken and first is not None),
        "broken": broken,
        "says": f"{first.layer}: {', '.join(suspects[:3])}" if first else result.verdict,
        "sentence": result.sentence,
    }


def build_pairs(
    parts: Parts, questions: Sequence[Trace], names: Sequence[str], seed: int, size: int, key: bool, cache: Path | None
) -> Iterator[tuple[str, PairedRuns]]:
    """Yield each kind of fault with the runs before and after it, paired."""
    selected = sampled(questions, size, seed)
    base = replace(parts, seed=2 * seed)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (cache or Path(temporary)) / f"{parts.name}-{size}-{seed}-{'key' if key else 'none'}"
        baseline = judged(base, selected, folder / "baseline", key)
        for name, kind in chosen(list(names), parts.name).items():
            candidate = judged(kind.change(replace(base, seed=2 * seed + 1)), selected, folder / name, key)
            yield name, pair_runs(baseline, candidate, anyway=True)
            if cache is None:
                shutil.rmtree(folder / name)


def trials(parts: Parts, questions: Sequence[Trace], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run every kind of fault on a system; yield the outcome of each trial."""
    for seed in range(options.seeds):
        size = max(options.sizes)
        for name, pairs in build_pairs(parts, questions, options.kinds, seed, size, options.key, options.cache):
            for n in options.sizes:
                keep = np.zeros(len(pairs.pairing), dtype=bool)
                keep[random.Random(f"{seed}-{n}").sample(range(len(keep)), min(n, len(keep)))] = True
                result = outcome(KINDS[name], bisect_pairs(pairs, BisectionSettings(seed=seed), pair_mask=keep))
                yield {"system": parts.name, "kind": name, "seed": seed, "n": n, **result}


def row(result: dict[str, Any]) -> str:
    """Return a line of the table."""
    stage = "–" if not result["broken"] else "first" if result["first"] else "three" if result["three"] else "no"
    verdict = "wrong" if result["wrong"] else "yes" if result["layer"] else "cannot tell"
    return f"| {result['system']} | {result['kind']} | {result['n']} | {verdict} | {stage} | {result['says']} |"


def summary(results: Sequence[dict[str, Any]], sizes: Sequence[int]) -> Iterator[str]:
    """Return the shares over all kinds for every size."""
    for n in sizes:
        some = [result for result in results if result["n"] == n]
        broken = [result for result in some if result["broken"]]
        calm = [result for result in some if not result["broken"]]
        shares = {
            "right layer": (sum(r["layer"] for r in broken), len(broken)),
            "right stage first": (sum(r["first"] for r in broken), len(broken)),
            "among three": (sum(r["three"] for r in broken), len(broken)),
            "wrong": (sum(r["wrong"] for r in broken), len(broken)),
            "wrong where nothing broke": (sum(r["wrong"] for r in calm), len(calm)),
        }
        yield f"n = {n}: " + ", ".join(f"{k} {a}/{b} ({a / max(1, b):.0%})" for k, (a, b) in shares.items())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--system", choices=("handbook", "reports", "shop"), help="one of the systems alone")
    parser.add_argument("--sizes", type=int, nargs="+", default=[200])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--key", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--out", type=Path, help="write every outcome as a line of JSON")
    parser.add_argument("--group", choices=GROUPS, nargs="+", help="groups of kinds, where none is named")
    parser.add_argument("--cache", type=Path, help="keep the runs in this folder, and take those that are there")
    options = parser.parse_args()
    options.kinds = options.kinds or sorted(set().union(*(GROUPS[name] for name in options.group or GROUPS)))
    unknown = [name for name in options.kinds if name not in KINDS]
    if unknown:
        parser.error(f"no kind {', '.join(unknown)}; there are {', '.join(KINDS)}")
    start = time.perf_counter()
    print("| system | kind | n | right layer | right stage | named |\n|---|---|---|---|---|---|", flush=True)
    results = []
    for parts, questions in systems(options.data):
        if options.system not in (None, parts.name):
            continue
        for result in trials(parts, questions, options):
            results.append(result)
            print(row(result), flush=True)
            if options.out:
                lines = "".join(f"{json.dumps(trial, ensure_ascii=False)}\n" for trial in results)
                options.out.write_text(lines, encoding="utf-8")
    print("\n" + "\n".join(summary(results, options.sizes)))
    print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
