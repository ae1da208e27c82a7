"""Measure the cost of making an evaluation set with a language model: calls, tokens, duplicates and failures.

    python -m benchmarks.testset_costs --install DIR
    python -m benchmarks.testset_costs --run DIR [--count 44] [--draws 3] [--tools ragas deepeval …]

`--install` makes a virtual environment for each other tool below DIR, with the versions named here (this needs the
package registry). `--run` has every tool make a set of the same documents, those of the demo, by its defaults, once
with an endpoint that always answers, once with one that refuses 5 % of the requests (429) and breaks off 2 % of the
replies. All ask a local endpoint that answers by rule with sentences of the documents: no model is asked, so nothing
is measured of quality. A tool whose environment is missing is skipped, and named.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

from benchmarks.costs.writing import WritingEndpoint
from benchmarks.judge_cost import RAGFAULT, TOOL_ENVIRONMENT, get_interpreter, print_table
from ragfault.io.datasets.demo_handbook import load_handbook

ROOT = Path(__file__).parent.parent
TIMEOUT_SECONDS = 300
"""Seconds for one set."""
PEERS = {
    "ragas": (
        "ragas==0.4.3", "langchain-community==0.3.31", "openai==1.109.1", "instructor==1.3.2", "rapidfuzz==3.14.5",
    ),
    "deepeval": (
        "deepeval==4.3.1", "openai==3.54.0", "chromadb", "langchain-community", "langchain-text-splitters", "tiktoken",
    ),
}  # fmt: skip
"""Tool → what is installed for it."""
MODEL_ONLY = f"{RAGFAULT}, kinds that a model words"
TOOLS = (RAGFAULT, MODEL_ONLY, *PEERS)
FAULTS = {"none": (0.0, 0.0), "5 % refused, 2 % broken off": (0.05, 0.02)}


def run_tool(
    tool: str, folder: Path, documents: Path, count: int, faults: tuple[float, float], seed: int
) -> dict[str, Any]:
    """Let a tool make a set in a process of its own; return its result with the counts of the endpoint."""
    name = tool.partition(",")[0]
    environment = {
        **os.environ,
        **TOOL_ENVIRONMENT,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src"))),
        "MIX": "model" if tool == MODEL_ONLY else "default",
    }
    texts = [path.read_text("utf-8") for path in sorted(documents.iterdir())]
    with WritingEndpoint(texts, refused=faults[0], broken=faults[1], seed=seed) as endpoint:
        command = [
            get_interpreter(folder, name),
            "-m",
            f"benchmarks.costs.make_{name}",
            str(documents),
            endpoint.url,
            str(count),
        ]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                cwd=documents.parent,
                env=environment,
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            result = {
                "version": tool,
                "queries": [],
                "seconds": TIMEOUT_SECONDS,
                "cpu": 0,
                "error": f"not done in {TIMEOUT_SECONDS} s",
            }
        else:
            if not done.stdout:
                sys.exit(f"{tool} failed:\n{done.stderr.decode(errors='replace')[-3000:]}")
            result = json.loads(done.stdout)
        counts = endpoint.get_counts().get("testset", {})
        return result | counts | {"limited": endpoint.refused}


def format_cells(result: dict[str, Any]) -> list[str]:
    """Format the cells of a tool's row."""
    queries = result["queries"]
    distinct_queries = {" ".join(re.findall(r"\w+", query.lower())) for query in queries}
    calls, items, duplicates = result.get("calls", 0), len(queries), len(queries) - len(distinct_queries)

    def format_share(value: float) -> str:
        """Format a count for each distinct query."""
        return f"{value / len(distinct_queries):,.1f}" if distinct_queries else "–"

    return [
        str(items),
        str(duplicates),
        f"{calls:,}",
        format_share(calls),
        format_share(result.get("prompt", 0)),
        format_share(result.get("completion", 0)),
        str(result.get("embeddings", 0)),
        str(result["limited"]),
        str(result.get("spoilt", 0)),
        f"{result['seconds']:.0f}",
        " ".join(result["error"].split())[:100] or "–",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", type=Path, metavar="DIR")
    parser.add_argument("--run", type=Path, metavar="DIR")
    parser.add_argument("--count", type=int, default=44, help="items; DeepEval: 4 of each of 11 documents (44)")
    parser.add_argument("--draws", type=int, default=3, help="runs with faults (3)")
    parser.add_argument("--tools", nargs="*", default=list(TOOLS))
    options = parser.parse_args()
    if options.install is not None:
        for tool, packages in PEERS.items():
            venv.create(options.install / tool, with_pip=True)
            command = [
                get_interpreter(options.install, tool),
                "-m",
                "pip",
                "install",
                "-q",
                "--no-cache-dir",
                *packages,
            ]
            subprocess.run(command, check=True)
    if options.run is None:
        return
    head = ("tool", "items", "repeated", "calls", "calls an item", "tokens sent an item", "received an item",
            "calls for embeddings", "refused", "broken off", "seconds", "ended by")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        documents = Path(folder, "docs")
        documents.mkdir()
        for name, text in load_handbook().documents.items():
            (documents / name).write_text(text, "utf-8")
        conditions = [("none", 0), *(("5 % refused, 2 % broken off", seed) for seed in range(options.draws))]
        for label, seed in conditions:
            rows = []
            for tool in options.tools:
                if not Path(get_interpreter(options.run, tool.partition(",")[0])).exists():
                    print(f"{tool}: skipped, not installed below {options.run}", file=sys.stderr)
                    continue
                result = run_tool(tool, options.run, documents, options.count, FAULTS[label], seed)
                name = (
                    tool.replace(RAGFAULT, result["version"])
                    if tool.startswith(RAGFAULT)
                    else result["version"] or tool
                )
                rows.append([name, *format_cells(result)])
            print(f"\nFaults: {label} (seed {seed}). {options.count} items asked for.")
            print_table(head, rows)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
