"""Laws of notebooks: what is shown as HTML, and that the notebooks of the docs run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ragfault import analyze, bisect, compare, diagnose, gate, history
from ragfault.io.runs.run import Run
from sample_runs import evaluate_pairs, pair

nbformat = pytest.importorskip("nbformat", reason="notebooks need the packages of the group test")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """Two runs, the second of which grounds less; one name would be a script in a page."""
    folder = tmp_path_factory.mktemp("notebook")
    results = []
    for name, claims in (("good", "s" * 60), ("bad", "s" * 30 + "u" * 30)):
        pairs = [pair(f"<script>t{at}", "h", claim) for at, claim in enumerate(claims)]
        (folder / name).mkdir()
        results.append(evaluate_pairs(folder / name, pairs, ["groundedness", "answer_relevance", "latency"]))
    return results[0], results[1]


def test_what_is_shown_is_a_fragment_without_script(runs: tuple[Run, Run]):
    """Each result shows itself, without an extension, as plain HTML: no script, nothing fetched, texts escaped."""
    old, new = runs
    shown = {
        "groundedness": (new, analyze(new)),
        "worse": (compare(old, new),),
        "GENERATION": (bisect(old, new),),
        "recovered": (history([old, new, old]),),
        "fail": (gate(new, ["groundedness>=0.9"], baseline=old),),
        "&lt;script&gt;t59": (diagnose(new)[-1],),
    }
    for says, results in shown.items():
        for result in results:
            text = result._repr_html_()
            assert type(text) is str
            assert says.lower() in text.lower()
            assert text.startswith('<div class="ragfault"')
            assert not re.search(r"<script|<style|<link|<img|https?:|javascript:", text)
            assert text.count("<table") == text.count("</table>")
            assert "<table" in text or "<li>" in text


def test_ipython_shows_results_as_html(runs: tuple[Run, Run]):
    """The formatter of IPython takes the HTML of a result from the result itself."""
    formatters = pytest.importorskip("IPython.core.formatters", reason="IPython is not installed")
    data, _ = formatters.DisplayFormatter().format(gate(runs[1], ["groundedness>=0.9"]))
    assert data["text/html"].startswith('<div class="ragfault"')


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebooks_of_the_docs_run(path: Path, tmp_path: Path):
    """Each runs from top to bottom in a kernel of its own, by a fast judge, and shows HTML where the page does."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import notebooks
    finally:
        sys.path.pop(0)
    there = nbformat.read(path, as_version=4)
    assert [cell.source for cell in there.cells] == [
        cell.source for cell in notebooks.split_cells(notebooks.NOTEBOOKS[path.name])
    ]
    done = subprocess.run(
        [sys.executable, "docs/notebooks.py", "--only", path.name, "--out", str(tmp_path), "--judge", "lexical"],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    again = nbformat.read(tmp_path / path.name, as_version=4)
    for before, after in zip(there.cells, again.cells, strict=True):
        kinds = [[sorted(output.get("data", {})) for output in cell.get("outputs", ())] for cell in (before, after)]
        assert kinds[0] == kinds[1], before.source
    text = path.read_text("utf-8")
    assert '"output_type": "error"' not in text
    assert "site-packages" not in text
