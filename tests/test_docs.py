"""The docs are true: pages are there, links lead somewhere, generated parts are current, and what they show runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ragfault.cli import COMMANDS, run_command
from ragfault.records import Trace

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)


def names(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_links_lead_somewhere(page: Path):
    """Every relative link of a page is a file or folder of the repository."""
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{names(page)} → {target}"


def test_every_verb_has_a_page_that_the_readme_links():
    """Each verb is told on a page of its own, in the command-line reference, and in the README's list."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    reference = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    for verb in COMMANDS:
        page = {"cache": "llm.md", "metrics": "metrics.md", "schema": "columns.md", "lens": "lenses.md"}.get(
            verb, f"{verb}.md"
        )
        assert (ROOT / "docs" / page).is_file(), verb
        assert f"docs/{page}" in readme, verb
        assert f"## ragfault {verb}\n" in reference, verb


def test_generated_parts_are_true_to_the_code():
    """docs/generate.py would write what stands there: the reference, the catalogue, the tables, the README's output."""
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], check=False, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=names)
def test_python_in_the_docs_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The Python of each page runs from top to bottom, where the demo has been written."""
    monkeypatch.chdir(tmp_path)
    assert run_command(["demo", "handbook"]) == 0
    code = "\n".join(blocks(page, "python"))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "json")], ids=names)
def test_traces_in_the_docs_are_traces(page: Path):
    """A JSON line shown as a trace decodes as one."""
    for line in "\n".join(blocks(page, "json")).splitlines():
        assert msgspec.json.decode(line, type=Trace).query


def test_toml_in_the_docs_is_taken(tmp_path: Path):
    """Every settings file, every lens and every pipeline shown is read without complaint."""
    from ragfault.cli.options.settings import load_settings
    from ragfault.judges.domain.profile import load_profile
    from ragfault.retrieval.pipeline_config import read_pipeline_config

    readers = {"lenses.md": load_profile, "pipeline.md": read_pipeline_config}
    for page in PAGES:
        for number, text in enumerate(blocks(page, "toml")):
            path = tmp_path / f"{page.stem}-{number}.toml"
            path.write_text(text, encoding="utf-8")
            assert readers.get(page.name, load_settings)(str(path))


def test_commands_in_the_docs_name_real_options():
    """Every `ragfault …` command shown uses verbs and options that exist."""
    reference = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    for page in PAGES:
        for command in re.findall(
            r"^\s*(?:- run: )?ragfault (\w+)([^|\n#]*)", page.read_text(encoding="utf-8"), re.MULTILINE
        ):
            verb, rest = command
            if page.name == "cli.md":
                continue
            assert verb in COMMANDS, f"{names(page)}: {verb}"
            part = reference.split(f"## ragfault {verb}\n")[1].split("\n## ")[0]
            for option in re.findall(r"(?<=\s)--?[a-z-]+", rest):
                assert option in part, f"{names(page)}: ragfault {verb} {option}"


def test_the_site_is_built_and_its_links_lead_somewhere(tmp_path: Path):
    """`mkdocs build` warns of nothing: pages are in the menu, links and anchors lead on, nothing is fetched."""
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len([page for page in PAGES if "docs" in page.parts])
    for page in pages:
        fetched = re.findall(
            r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', page.read_text("utf-8")
        )
        assert not [url for url in fetched if "canonical" not in url], page.name
