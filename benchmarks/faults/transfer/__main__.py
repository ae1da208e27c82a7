"""Put faults into systems made of software and data of others, and count how often `bisect` names the right layer.

    python -m benchmarks.faults.transfer DATA

DATA is a folder of public sets with human labels (`benchmarks/datasets.py`); none of it is in the repository. Each kind
of `kinds.py` is put into each system that it can occur in; both releases answer the same queries, and each answer of a
release is drawn anew in part, as those of a language model are. Without `--key` or `--no-key` each kind runs with a key
in a third of the systems and without one in another third.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.faults.transfer.corpora import READERS, Corpus
from benchmarks.faults.transfer.kinds import HARMLESS, KINDS, Kind
from benchmarks.faults.transfer.releases import Output, build_base, hide_key, run_release
from ragfault import bisect, evaluate
from ragfault.model.errors import RagfaultError

COLUMNS = (
    *("system", "n", "key", "right layer", "right stage first", "wrong layer first", "cannot tell", "no fault"),
    *("second layer wrong", "harmless: a layer blamed"),
)


def evaluate_output(output: Output, key: bool, folder: Path, judge: str) -> Any:
    """Judge the traces of a release, with or without their key."""
    traces = output.traces if key else [hide_key(trace) for trace in output.traces]
    return evaluate(traces, str(folder), judge=judge, force=True)


def grade_result(kind: Kind, result: Any) -> dict[str, Any]:
    """Return how a verdict stands to the kind."""
    layers = [fault.layer for fault in result.faults] if result.verdict == "fault" else []
    stages = [suspect.stage for suspect in result.faults[0].suspects] if layers else []
    right = bool(layers) and layers[0] in kind.layers
    return {
        "verdict": result.verdict,
        "layers": layers,
        "stages": stages,
        "right": right,
        "stage": right and bool(stages) and stages[0] in kind.stages,
        "staged": bool(kind.stages),
        "wrong": bool(layers) and not right,
        "extra": [layer for layer in layers[1:] if layer not in kind.layers],
        "sentence": result.sentence,
    }


def run_trials(corpus: Corpus, args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Return a row for each kind, size and key of one system."""
    all_kinds = (*KINDS, *HARMLESS)
    kinds = [k for k in all_kinds if not k.systems or corpus.name in k.systems]
    kinds = [k for k in kinds if not args.kinds or k.name in args.kinds]
    rows = []
    for size in args.sizes:
        questions = corpus.questions[:size]
        base = run_release(corpus, build_base(corpus), questions)
        bases = {
            key: evaluate_output(base, key, folder / f"base-{key}", args.judge) for key in args.keys or (True, False)
        }
        for kind in kinds:
            part = (all_kinds.index(kind) + list(READERS).index(corpus.name)) % 3
            keys = args.keys or [[True], [False], []][part]
            if not keys:
                continue
            release = build_base(corpus, seed=1, **kind.change(build_base(corpus)))
            after = run_release(corpus, release, questions)
            for key in keys:
                judge = args.judge
                if kind.name == "judge-changed":
                    judge = "embedded" if judge == "lexical" else "lexical"
                row = {"system": corpus.name, "kind": kind.name, "n": len(questions), "key": key}
                row |= {"fault": bool(kind.layers), "answers": [base.right, after.right]}
                row |= {"hits": [base.hits, after.hits]}
                try:
                    row |= grade_result(kind, bisect(bases[key], evaluate_output(after, key, folder / "after", judge)))
                except RagfaultError as error:
                    row |= grade_refusal(error)
                rows.append(row)
                print(json.dumps(row), file=args.log, flush=True)
    return rows


def grade_refusal(error: RagfaultError) -> dict[str, Any]:
    """Return the row of runs that are refused."""
    nothing = {"layers": [], "stages": [], "right": False, "stage": False, "staged": False, "wrong": False, "extra": []}
    return {"verdict": "refused", "sentence": str(error), **nothing}


def print_summary(rows: list[dict[str, Any]]) -> None:
    """Print a line for each system, size and key."""
    print(f"| {' | '.join(COLUMNS)} |")
    print("|---" * len(COLUMNS) + "|")
    groups = dict.fromkeys((row["system"], row["n"], row["key"]) for row in rows)
    for group in [*groups, *((None, None, key) for key in dict.fromkeys(row["key"] for row in rows))]:
        some = [r for r in rows if r["key"] == group[2] and (group[0] is None or (r["system"], r["n"]) == group[:2])]
        faults, harmless = [r for r in some if r["fault"]], [r for r in some if not r["fault"]]
        counts = Counter(r["verdict"] for r in faults)
        staged = [r for r in faults if r["staged"]]
        shares = [
            f"{sum(r['right'] for r in faults)}/{len(faults)}",
            f"{sum(r['stage'] for r in staged)}/{len(staged)}",
            f"{sum(r['wrong'] for r in faults)}/{len(faults)}",
            f"{counts['cannot tell']}/{len(faults)}",
            f"{counts['no fault']}/{len(faults)}",
            f"{sum(bool(r['extra']) for r in faults)}/{len(faults)}",
            f"{sum(bool(r['layers']) for r in harmless)}/{len(harmless)}",
        ]
        print(f"| {group[0] or 'all'} | {group[1] or ''} | {'yes' if group[2] else 'no'} | {' | '.join(shares)} |")


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--systems", nargs="+", choices=READERS, default=list(READERS))
    parser.add_argument("--kinds", nargs="+")
    parser.add_argument("--sizes", nargs="+", type=int, default=[100])
    parser.add_argument("--key", dest="keys", action="append_const", const=True)
    parser.add_argument("--no-key", dest="keys", action="append_const", const=False)
    parser.add_argument("--judge", default="lexical")
    parser.add_argument("--log", type=argparse.FileType("w"), default=sys.stderr)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.systems:
            start = time.perf_counter()
            rows += run_trials(READERS[name](args.data), args, Path(folder))
            print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    print_summary(rows)


if __name__ == "__main__":
    main()
