"""The docs: links and paths lead somewhere, every command has its page, and what they show runs.

`make check` compares the generated pages with the code (`docs/generate.py --check`).
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ragfault.apps.guard.policy import load_policy
from ragfault.apps.tune.cli.generator import _read_space
from ragfault.cli.commands import COMMANDS
from ragfault.io.formats.record_shapes import load_shape
from ragfault.judges.domain.profile import load_profile
from ragfault.model.records import Trace
from ragfault.model.rubrics import load_rubrics
from ragfault.options.settings import load_settings
from ragfault.retrieval.pipeline_config import read_pipeline_config

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/RESULTS.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)
PYTHON_PAGES = [page for page in PAGES if re.search("^```python$", page.read_text(encoding="utf-8"), re.MULTILINE)]
RUN_PAGES = """
import json, os, shutil, sys, traceback
import ragfault.judges.loading

ragfault.judges.loading.DEFAULT_JUDGE = "lexical"
handbook, *folders = map(os.path.abspath, sys.argv[1:])
for folder in folders:
    os.chdir(folder)
    shutil.copytree(handbook, "handbook")
    with open("page.py", encoding="utf-8") as file:
        code = file.read()
    try:
        exec(compile(code, "page.py", "exec"), {"__name__": "__main__"})
        failure = ""
    except BaseException:
        failure = traceback.format_exc()
    with open("failure.txt", "w", encoding="utf-8") as file:
        file.write(failure)
"""
"""Runs the Python of each page in a folder of its own that holds the demo, by a fast judge, and writes what failed."""

SETTINGS_READERS = {
    "profiles.md": load_profile,
    "pipeline.md": read_pipeline_config,
    "guard.md": load_policy,
    "generators.md": _read_space,
    "rubrics.md": load_rubrics,
    "foreign-files.md": lambda path: load_shape(Path(path)),
}
"""Page → what reads the TOML that it shows, where that is not `ragfault.toml`."""


def name_page(page: Path) -> str:
    return str(page.relative_to(ROOT))


def read_page(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def list_blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", read_page(page), re.DOTALL | re.MULTILINE)


def test_links_lead_to_files():
    """Every relative link of a page is a file or folder of the repository."""
    broken = [
        f"{name_page(page)}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", read_page(page))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


def list_anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub and the site make them."""
    prose = re.sub(r"^```.*?^```", "", read_page(page), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", heading)) for heading in headings)
    return {re.sub(r"[\s-]+", "-", heading.strip().lower()) for heading in plain}


def test_anchors_of_links_are_headings():
    """Every link to a place in a page names one of its headings."""
    broken = [
        f"{name_page(page)}: {target}#{anchor}"
        for page in PAGES
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", read_page(page))
        if "://" not in target and anchor not in list_anchors((page.parent / target).resolve() if target else page)
    ]
    assert broken == []


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_paths_of_the_code_exist(name: str):
    """Every path that the pages for contributors name is there."""
    page = ROOT / name
    roots = {"docs/architecture.md": ROOT / "src" / "ragfault"}.get(name, ROOT)
    paths = re.findall(r"`([\w./-]+/[\w./-]*|[\w/-]+/[\w-]+\.py)`", read_page(page))
    missing = [
        path for path in paths if not any((root / path).exists() for root in (ROOT, roots)) and "." not in path[:1]
    ]
    weights = ROOT / "src" / "ragfault" / "judges"
    assert [path for path in missing if not (weights / path).exists()] == []


def test_every_command_is_in_the_generated_reference():
    """Each command, and each below it, has a section on the page of the command line."""
    reference = read_page(ROOT / "docs" / "cli.md")
    assert [name for name in COMMANDS if not re.search(rf"^#+ ragfault {name}$", reference, re.MULTILINE)] == []


def test_the_readme_is_two_screens():
    """The README has at most 110 lines and 12 links, and no output of more than 12 lines."""
    readme = ROOT / "README.md"
    assert len(read_page(readme).splitlines()) <= 110
    assert len(re.findall(r"\]\(", read_page(readme))) <= 12
    assert all(len(block.splitlines()) <= 12 for block in list_blocks(readme, "text"))
    assert all(len([line for line in block.splitlines() if line]) <= 6 for block in list_blocks(readme, "python"))


def test_the_docs_stay_few_and_short():
    """At most 46 pages are written by hand, decisions apart, and the glossary has at most 80 terms."""
    pages = [page for page in PAGES if "docs" in page.parts and page.parent.name != "decisions"]
    written = [page for page in pages if "<!-- made by docs/generate.py: change" not in read_page(page)]
    assert len(written) <= 46
    assert len(re.findall(r"^\| \*\*", read_page(ROOT / "docs" / "glossary.md"), re.MULTILINE)) <= 80


def test_every_measurement_has_its_command():
    """Each part of `benchmarks/RESULTS.md` names the command that made its figures, and modules that are there."""
    text = read_page(ROOT / "benchmarks" / "RESULTS.md")
    for part in text.split("\n## ")[1:]:
        assert re.search(r"`?(?:python|pytest|ragfault|time|OPENBLAS\S*) ", part), part.split("\n", 1)[0]
    modules = set(re.findall(r"python -m ((?:benchmarks|training)[\w.]*)", text))
    paths = {ROOT / name.replace(".", "/") for name in modules}
    assert [str(path) for path in paths if not path.with_suffix(".py").is_file() and not path.is_dir()] == []


def test_the_index_for_agents_leads_to_files():
    """Every page that `llms.txt` names is there, and it names every page that is written by hand."""
    index = read_page(ROOT / "llms.txt")
    named = re.findall(r"\]\(([^)]+)\)", index)
    assert [name for name in named if not (ROOT / name).is_file()] == []
    pages = {name_page(page) for page in PAGES if page.parent.name != "decisions" and "docs" in page.parts}
    assert pages - set(named) == set()


@pytest.fixture(scope="module")
def page_folders(demo_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    """Return the folder in which the Python of each page was run, all of them by one process, which starts once."""
    folders = {page: tmp_path_factory.mktemp("page") for page in PYTHON_PAGES}
    for page, folder in folders.items():
        (folder / "page.py").write_text("\n".join(list_blocks(page, "python")), encoding="utf-8")
    command = [sys.executable, "-W", "error", "-c", RUN_PAGES, demo_runs / "handbook", *folders.values()]
    subprocess.run(command, check=True, capture_output=True, timeout=280)
    return folders


@pytest.mark.long
@pytest.mark.parametrize("page", PYTHON_PAGES, ids=name_page)
def test_python_in_the_docs_runs(page: Path, page_folders: dict[Path, Path]):
    """The Python of each page runs from top to bottom in a folder that holds the demo, with a judge that is fast."""
    assert (page_folders[page] / "failure.txt").read_text(encoding="utf-8") == ""


def test_traces_in_the_docs_are_traces():
    """A JSON line shown as a trace decodes as one."""
    for page in PAGES:
        for line in "\n".join(list_blocks(page, "json")).splitlines():
            assert msgspec.json.decode(line, type=Trace).query, name_page(page)


def test_toml_in_the_docs_is_accepted(tmp_path: Path):
    """Every settings file, domain profile and pipeline shown is read without complaint."""
    for page in PAGES:
        for number, text in enumerate(list_blocks(page, "toml")):
            path = tmp_path / f"{page.stem}-{number}.toml"
            path.write_text(text, encoding="utf-8")
            assert SETTINGS_READERS.get(page.name, load_settings)(str(path)), name_page(page)


def test_commands_in_the_docs_name_real_options():
    """Every `ragfault …` command shown uses commands and options that exist."""
    reference = read_page(ROOT / "docs" / "cli.md")
    for page in PAGES:
        if page.name == "cli.md":
            continue
        for command, rest in re.findall(r"^\s*(?:- run: )?ragfault (\w+)([^|\n#]*)", read_page(page), re.MULTILINE):
            assert command in COMMANDS, f"{name_page(page)}: {command}"
            section = reference.split(f"## ragfault {command}\n")[1].split("\n## ")[0]
            for option in re.findall(r"(?<=\s)--?[a-z-]+", rest):
                assert option in section, f"{name_page(page)}: ragfault {command} {option}"


def test_stages_in_the_docs_can_be_imported():
    """Every function that the table of stages names is in the module that it names."""
    table = read_page(ROOT / "docs" / "retrieval.md").split("| stage | made by |")[1].split("\n\n")[0]
    names = re.findall(r"`([a-z_]+)\.(\w+)[\w.]*`", table)
    assert len(names) > 20
    for module, name in names:
        assert hasattr(importlib.import_module(f"ragfault.retrieval.{module}"), name), f"{module}.{name}"


@pytest.mark.long
def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path):
    """`mkdocs build` warns of nothing: pages are in the menu, links and anchors lead on, nothing is fetched."""
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    finished = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len([page for page in PAGES if "docs" in page.parts])
    for page in pages:
        urls = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', page.read_text("utf-8"))
        assert not [url for url in urls if "canonical" not in url], page.name
