"""Run cases that need no model through the functions of other tools and of ragfault.

python -m benchmarks.peers --install DIR     virtual environments, as benchmarks.judge_cost makes them
python -m benchmarks.peers --run DIR         the table of docs/peers.md
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import venv
from pathlib import Path

from benchmarks import judge_cost
from benchmarks.judge_cost import PEERS

MODULES = {
    "ragas": "ragas.metrics",
    "deepeval": "deepeval.metrics",
    "trulens": "trulens.feedback",
    "phoenix": "phoenix.evals",
    "ragfault": "ragfault.evaluation",
}

TIED_SCRIPT = """
import os
os.environ["OPENAI_API_KEY"] = "unused"
import pandas as pd
from trulens.feedback.groundtruth import GroundTruthAgreement
golden = pd.DataFrame([{"query": "q", "expected_chunks": [{"text": "a"}]}])
found = GroundTruthAgreement(golden)
print(found.precision_at_k("q", ["a", "b", "c", "d"], [0.5, 0.5, 0.5, 0.5], 1))
"""

NO_CLAIMS_SCRIPT = """
from deepeval.metrics import FaithfulnessMetric
found = FaithfulnessMetric.__new__(FaithfulnessMetric)
found.verdicts, found.penalize_ambiguous_claims, found.strict_mode, found.threshold = [], False, False, 0.5
print(found._calculate_score())
"""

UNCORRECTED_SCRIPT = """
import numpy as np
from trulens.core.utils.stats import paired_permutation_pvalue
random, alarms = np.random.default_rng(0), 0
for _ in range(300):
    metrics = random.normal(size=(8, 60)) * 0.3
    alarms += any(paired_permutation_pvalue(one, permutations=1000) < 0.05 for one in metrics)
print(alarms / 300)
"""

COVERAGE_SCRIPT = """
import numpy as np
from trulens.core.utils.stats import bootstrap_ci
random, held = np.random.default_rng(0), 0
for _ in range(2000):
    low, high = bootstrap_ci(random.normal(size=8), n_bootstrap=1000)
    held += low <= 0 <= high
print(held / 2000)
"""

RAGFAULT_TIED_SCRIPT = """
from ragfault import Chunk, Gold, Trace
from ragfault.metrics.catalog import compute_score
from ragfault.metrics.selection import select_metrics
from ragfault.model.records import Verdicts
chunks = tuple(Chunk(id=name, text=name, score=0.5) for name in "abcd")
trace = Trace(id="1", query="q", chunks=chunks, gold=Gold(chunks={"a": 1.0}))
print(compute_score(select_metrics(["precision@1"])[0], trace, Verdicts(trace="1")).value)
"""

RAGFAULT_NO_CLAIMS_SCRIPT = """
from ragfault.evaluation.online.scorer import score_response
found = score_response("When?", ["At noon."], "Thank you for asking!", metrics=["groundedness"])
print(found.scores[0].status, "-", found.scores[0].reason)
"""

RAGFAULT_CORRECTED_SCRIPT = """
import numpy as np
from ragfault.stats.significance import holm_adjust, sign_flip_test
random, alarms = np.random.default_rng(0), 0
for _ in range(300):
    metrics = random.normal(size=(8, 60)) * 0.3
    alarms += min(holm_adjust([sign_flip_test(row * 0, row, resamples=1000).p for row in metrics])) < 0.05
print(alarms / 300)
"""

RAGFAULT_COVERAGE_SCRIPT = """
import numpy as np
from ragfault.stats.differences import paired_difference
random, held = np.random.default_rng(0), 0
for _ in range(2000):
    found = paired_difference(np.zeros(8), random.normal(size=8))
    held += found.low <= 0 <= found.high
print(held / 2000)
"""

CASES = (
    ("P@1 of four tied chunks, the right one first (1.0)", "trulens", TIED_SCRIPT, RAGFAULT_TIED_SCRIPT),
    ("faithfulness of an answer without a claim", "deepeval", NO_CLAIMS_SCRIPT, RAGFAULT_NO_CLAIMS_SCRIPT),
    (
        "8 metrics, nothing changed: share of comparisons with an alarm (0.05)",
        "trulens",
        UNCORRECTED_SCRIPT,
        RAGFAULT_CORRECTED_SCRIPT,
    ),
    ("coverage of a 95 % interval of 8 differences (0.95)", "trulens", COVERAGE_SCRIPT, RAGFAULT_COVERAGE_SCRIPT),
)


def install_tools(folder: Path) -> None:
    """Create a virtual environment for each tool, and one for ragfault's core."""
    judge_cost.install_tools(folder, tuple(PEERS))
    venv.create(folder / "ragfault", with_pip=True)
    command = [folder / "ragfault" / "bin/python", "-m", "pip", "install", "-q", judge_cost.ROOT]
    subprocess.run([str(part) for part in command], check=True)


def run_script(python: Path | str, code: str) -> str:
    """Run a script and return the last line that it prints; its exit code if it prints nothing."""
    done = subprocess.run([str(python), "-W", "ignore", "-c", code], check=False, capture_output=True, text=True)
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return lines[-1] if lines else f"exit {done.returncode}"


def measure_environment(python: Path | str) -> tuple[int, float]:
    """Return the number of packages in an environment, and their megabytes."""
    code = (
        "import importlib.metadata as m, json, os\n"
        "found = list(m.distributions())\n"
        "size = sum(f.locate().stat().st_size for d in found for f in (d.files or ()) if f.locate().is_file())\n"
        "print(json.dumps([len(found), size / 1e6]))"
    )
    count, size = json.loads(run_script(python, code))
    return count, size


def time_import(python: Path | str, module: str) -> float:
    """Return the seconds to import a module (median of five, warm), or NaN where it cannot be imported."""
    seconds = []
    for _ in range(6):
        start_time = time.perf_counter()
        done = subprocess.run([str(python), "-W", "ignore", "-c", f"import {module}"], check=False, capture_output=True)
        if done.returncode:
            return float("nan")
        seconds.append(time.perf_counter() - start_time)
    return sorted(seconds[1:])[2]


def main() -> None:
    """Install, or run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", type=Path)
    parser.add_argument("--run", type=Path)
    options = parser.parse_args()
    if options.install:
        install_tools(options.install)
    if not options.run:
        return
    print("| case | tool | it says | ragfault says |\n|---|---|---|---|")
    for title, tool, code, ragfault_script in CASES:
        peer_output = run_script(options.run / tool / "bin/python", code)
        print(f"| {title} | {tool} | {peer_output} | {run_script(sys.executable, ragfault_script)} |")
    print("\n| tool | packages | MB installed | seconds to import |\n|---|---|---|---|")
    for tool in PEERS:
        python = options.run / tool / "bin/python"
        count, size = measure_environment(python)
        print(f"| {PEERS[tool][0]} | {count} | {size:,.0f} | {time_import(python, MODULES[tool]):.2f} |")
    core_interpreter = options.run / "ragfault" / "bin/python"
    if core_interpreter.exists():
        count, size = measure_environment(core_interpreter)
        print(
            f"| ragfault, the core | {count} | {size:,.0f} | {time_import(core_interpreter, MODULES['ragfault']):.2f} |"
        )


if __name__ == "__main__":
    main()
