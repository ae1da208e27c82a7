"""Write the notebooks of docs/notebooks/ anew, executed; with --check, say whether their cells are those of this file.

python docs/notebooks.py [--check] [--only NAME] [--out FOLDER]
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

HERE = Path(__file__).parent / "notebooks"

LOCATE = """
# Measure, then locate

Two releases of a RAG system answered the same 104 questions. The second one answers worse. Which layer broke?
Everything here runs on this machine: no key, no network. It needs `pip install 'ragfault[report]' pandas`.

---
from ragfault import bisect, compare, evaluate, gate
from ragfault.io.datasets import write_handbook

folder = write_handbook("handbook", force=True)
---
## Measure

A run is a folder of tables: traces, what the judge saw in each, and every metric. Shown in a notebook, it is
its scorecard: each mean with a 95 % interval, and how many traces have a value at all.

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
found = bisect(old, new)
found
---
The traces that show it best are evidence that one can read:

---
telling = found.faults[0].telling[0]
print(telling.query)
print("before:", telling.before[:200])
print("after: ", telling.after[:200])
---
## Guard

The same decision for a CI: bars, and a baseline that must not be undercut.

---
gate(new, ["groundedness>=0.85"], baseline=old, max_drop=0.05)
"""

MEND = """
# Locate, then mend

The bisection blamed retrieval, and pointed at chunker, index and embedder. Here retrieval is looked into,
searched for a better pipeline, and the gain is proved on questions that took no part in the search. It needs
`pip install 'ragfault[report,retrieval]'`.

---
from ragfault import bisect, evaluate
from ragfault.io.datasets import write_handbook
from ragfault.reports.terminal.tuning import render
from ragfault.retrieval.pipeline_config import Recipe
from ragfault.io import read_traces
from ragfault.io.documents import read_documents
from ragfault.tuning import Space, lint, tune

write_handbook("handbook", force=True)
old = evaluate("handbook/traces-v1.jsonl", "runs/v1", force=True)
new = evaluate("handbook/traces-v2.jsonl", "runs/v2", force=True)
print(bisect(old, new).sentence)
---
## What is known to go wrong

Six pitfalls of retrieval are looked for in the run itself:

---
for pitfall in lint(new):
    print(f"{'found' if pitfall.found else '-':<6} {pitfall.name}: {pitfall.evidence}")
---
## Search

`tune` tries chunkers, ways to search and what follows on one half of the questions, and measures what it
recommends on the other half, against the present pipeline (here one that cuts as small as release 2 does) and against
plain BM25. The space is kept small, so that it takes seconds.

---
tuned = tune(
    read_documents("handbook/documents"),
    list(read_traces("handbook/questions.jsonl")),
    baseline=Recipe(chunker="fixed(16)"),
    subject_to=["tokens<=2000"],
    space=Space(chunkers=("sentences(128)", "recursive(256)"), embedders=(), queries=()),
)
print(render(tuned, width=110))
---
## What it leaves

A recipe, which loads into a pipeline with `ragfault.retrieval`, and which `ragfault tune -o FOLDER` writes as
`pipeline.toml`.

---
tuned.recipe
"""

NOTEBOOKS = {"measure-locate.ipynb": LOCATE, "locate-mend.ipynb": MEND}


def cells(text: str) -> list[Any]:
    """Prose and code by turns, as the cells of a notebook."""
    made = []
    for at, part in enumerate(re.split(r"^---$", text.strip("\n"), flags=re.MULTILINE)):
        new = nbformat.v4.new_code_cell if at % 2 else nbformat.v4.new_markdown_cell
        made.append(new(part.strip("\n"), id=f"cell-{at}"))
    return made


def executed(text: str, folder: Path) -> Any:
    """A notebook whose cells were run from top to bottom in a folder."""
    made = nbformat.v4.new_notebook(cells=cells(text))
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    NotebookClient(made, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    for cell in made.cells:
        cell.metadata.clear()  # when each cell ran is no part of the page
        if cell.cell_type != "code":
            continue
        cell.outputs = [each for each in cell.get("outputs", ()) if each.get("name") != "stderr"]
        for output in cell.outputs:
            if "text/html" in output.get("data", {}):
                output["data"].pop("text/plain", None)
    made.metadata.pop("language_info", None)
    return made


def main() -> None:
    """Write, or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", help="One of them, by name.")
    parser.add_argument("--out", type=Path, default=HERE)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name, text in NOTEBOOKS.items():
        if given.only not in (None, name):
            continue
        if given.check:
            there = nbformat.read(given.out / name, as_version=4)
            if [cell.source for cell in there.cells] != [cell.source for cell in cells(text)]:
                sys.exit(f"{name} is not what docs/notebooks.py would write. Run: python docs/notebooks.py")
            continue
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(executed(text, Path(folder)), given.out / name)


if __name__ == "__main__":
    main()
