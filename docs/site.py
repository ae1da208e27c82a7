"""Hook into mkdocs: notebooks become pages, decisions are listed, and links that leave docs/ become plain names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.structure.files import File, Files

FOLDER = Path(__file__).parent
OUTSIDE = re.compile(
    r"\[([^\]]+)\]\((\.\./)+(?:src|ci-templates|deploy|examples|benchmarks|tests|training|README|llms)[^)]*\)"
)
"""A link from a page to a file of the repository that is no page."""


def on_config(config: Any) -> Any:
    """Put the decisions into the menu, in their order."""
    listed = [f"decisions/{path.name}" for path in sorted((FOLDER / "decisions").glob("*.md"))]
    for entry in config.nav:
        if isinstance(entry, dict) and "Look up" in entry:
            entry["Look up"][-1] = {"Decisions": listed}
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each notebook."""
    for path in sorted((FOLDER / "notebooks").glob("*.ipynb")):
        name = f"notebooks/{path.stem}.md"
        files.append(File.generated(config, name, content=render_notebook(nbformat.read(path, as_version=4))))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace links to files that are no pages by their names."""
    return OUTSIDE.sub(r"\1", markdown)


def render_notebook(notebook: Any) -> str:
    """Render a notebook as Markdown: prose unchanged, code in fences, the outputs below."""
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            shown = output.get("data", {})
            text = output.get("text") or shown.get("text/plain")
            parts.append(shown.get("text/html") or f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"
