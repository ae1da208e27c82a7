"""Execute and write the notebooks of docs/notebooks/; with --check, compare their cells with this file.

python docs/notebooks.py [--check] [--only NAME] [--out FOLDER] [--judge JUDGE]
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent / "notebooks"

LOCATE = """
# Measure, then locate

Two releases of a RAG system answered the same 104 questions. The second one answers worse. Which layer broke?
Everything here runs on this machine: no key, no network. It needs `pip install ragfault pandas`.

---
from ragfault import bisect, compare, evaluate, gate
from ragfault.io.datasets.demo_handbook import write_handbook

folder = write_handbook("handbook", force=True)
---
## Measure

A run is a folder of tables: traces, verdicts of the judge, and scores of every metric. In a notebook it is shown
as a scorecard: each mean with a 95 % interval and the number of traces that have a value.

---
old = evaluate("handbook/traces-v1.jsonl", "runs/v1", force=True)
new = evaluate("handbook/traces-v2.jsonl", "runs/v2", force=True)
new
---
The scores are also a data frame:

---
new.to_pandas("scores").query("metric == 'groundedness'").head()
---
## Compare

Metric by metric, on the traces that both runs share. "Steady" is shown by an equivalence test; where the data
are too few it says *cannot tell*, and how many pairs would tell.

---
compare(old, new)
---
## Locate

Many metrics fell. `bisect` walks a decision tree over them and says which layer is to blame: retrieval broke,
and the answers are worse because of it.

---
result = bisect(old, new)
result
---
The example traces show the change in full:

---
example = result.faults[0].examples[0]
print(example.query)
print("before:", example.before[:200])
print("after: ", example.after[:200])
---
## Guard

The same decision for CI: thresholds, and a baseline that the candidate must not fall below.

---
gate(new, ["groundedness>=0.85"], baseline=old, max_drop=0.05)
"""

FIX = """
# Locate, then fix

The bisection blamed retrieval, and pointed at chunker, index and embedder. This notebook inspects
retrieval, searches for a better pipeline, and proves the gain on questions that took no part in the search. It needs
`pip install 'ragfault[retrieval]'`.

---
from ragfault import bisect, evaluate
from ragfault.io.datasets.demo_handbook import write_handbook
from ragfault.apps.tune.report.pipelines import build_tuning
from ragfault.retrieval.pipeline_config import PipelineConfig
from ragfault.io.trace_reader import read_traces
from ragfault.io.documents import read_documents
from ragfault.apps.tune.search_space import SearchSpace
from ragfault.apps.tune.pitfalls import lint
from ragfault.apps.tune.tuner import tune
from ragfault.report.renderers.terminal import render_terminal

write_handbook("handbook", force=True)
old = evaluate("handbook/traces-v1.jsonl", "runs/v1", force=True)
new = evaluate("handbook/traces-v2.jsonl", "runs/v2", force=True)
print(bisect(old, new).sentence)
---
## Check for pitfalls

Six pitfalls of retrieval are checked on the run itself:

---
for pitfall in lint(new):
    print(f"{'found' if pitfall.detected else '-':<6} {pitfall.name}: {pitfall.evidence}")
---
## Search

`tune` tries chunkers, retrievers and rerankers on one half of the questions and measures the best-scoring pipeline
on the other half, against the present pipeline (here with chunks as small as in release 2) and against plain BM25. It
recommends the simplest of them unless a gain is shown.
The search space is small, so that this takes seconds.

---
tuned = tune(
    read_documents("handbook/documents"),
    list(read_traces("handbook/questions.jsonl")),
    baseline=PipelineConfig(chunker="fixed(16)"),
    subject_to=["tokens<=2000"],
    space=SearchSpace(chunkers=("sentences(128)", "recursive(256)"), embedders=(), queries=()),
)
print(render_terminal(build_tuning(tuned), width=110))
---
## Result

The configuration of a pipeline, which `ragfault.retrieval` loads and `ragfault tune pipeline -o FOLDER` writes to
`pipeline.toml`.

---
tuned.config
"""

NOTEBOOKS = {"measure-locate.ipynb": LOCATE, "locate-fix.ipynb": FIX}


def split_cells(text: str) -> list[Any]:
    """Split a text at its rules into the cells of a notebook: prose and code by turns."""
    notebook_cells = []
    for at, part in enumerate(re.split(r"^---$", text.strip("\n"), flags=re.MULTILINE)):
        new = nbformat.v4.new_code_cell if at % 2 else nbformat.v4.new_markdown_cell
        notebook_cells.append(new(part.strip("\n"), id=f"cell-{at}"))
    return notebook_cells


def execute_notebook(text: str, folder: Path, judge: str | None = None) -> Any:
    """Return a notebook whose cells were run from top to bottom in a folder, with another default judge if given."""
    notebook = nbformat.v4.new_notebook(cells=split_cells(text))
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    setup = f"import ragfault.judges.loading as loading; loading.DEFAULT_JUDGE = {judge!r}; del loading"
    client = NotebookClient(  # what a cell prints is one output, however the kernel flushes it
        notebook,
        timeout=300,
        coalesce_streams=True,
        extra_arguments=[f"--IPKernelApp.exec_lines={setup}"] if judge else [],
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    for cell in notebook.cells:
        cell.metadata.clear()  # the execution times would differ at every run
        if cell.cell_type != "code":
            continue
        cell.outputs = [output for output in cell.get("outputs", ()) if output.get("name") != "stderr"]
        for output in cell.outputs:
            if "text/html" in output.get("data", {}):
                output["data"].pop("text/plain", None)
    notebook.metadata.pop("language_info", None)
    return notebook


def main() -> None:
    """Write the notebooks, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", choices=NOTEBOOKS, help="One of them, by name.")
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--judge", help="The default judge of the cells, for a quick run.")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name, text in NOTEBOOKS.items():
        if given.only not in (None, name):
            continue
        if given.check:
            existing = nbformat.read(given.out / name, as_version=4)
            if [cell.source for cell in existing.cells] != [cell.source for cell in split_cells(text)]:
                sys.exit(f"{name} is not what docs/notebooks.py would write. Run: python docs/notebooks.py")
            continue
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(execute_notebook(text, Path(folder), given.judge), given.out / name)


if __name__ == "__main__":
    main()
