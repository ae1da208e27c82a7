"""Each app can be deleted: without its folder the rest imports, its verbs are gone, and tests of the core pass."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ragfault
from ragfault.apps.registry import App, list_apps
from ragfault.cli.commands import COMMANDS

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
PACKAGE = Path(ragfault.__file__).parent

IMPORT_ALL = """
import importlib, os, pkgutil, sys, traceback

def import_all(folder):
    import ragfault
    from ragfault.model.errors import MissingExtra
    assert ragfault.__file__ == os.path.join(folder, "ragfault", "__init__.py")
    for module in pkgutil.walk_packages(ragfault.__path__, "ragfault."):
        try:
            importlib.import_module(module.name)
        except MissingExtra:
            continue
        except ModuleNotFoundError as error:
            if error.name.startswith("ragfault"):
                raise

for folder in sys.argv[1:]:
    # the libraries of others stay: to import them takes longer than everything else
    for name in [name for name in sys.modules if name.partition(".")[0] == "ragfault"]:
        del sys.modules[name]
    sys.path.insert(0, folder)
    try:
        import_all(folder)
        failure = ""
    except BaseException:
        failure = traceback.format_exc()
    sys.path.remove(folder)
    with open(os.path.join(folder, "failure.txt"), "w", encoding="utf-8") as file:
        file.write(failure)
"""
"""Imports every module of each copy but those of extras that are not installed, and writes what failed."""

SHOW_PAGES = """
import sys
from ragfault.apps.watch.server.app import create_app
from ragfault.apps.watch.server.dashboard.page_renderer import create_environment
from ragfault.apps.watch.server.settings import ServerSettings
app = create_app(ServerSettings(store=sys.argv[1], workers=0))
app.state.server.store.close()
print(*create_environment().list_templates(), sep="\\n")
"""
"""Opens a server and lists the templates of its pages."""

CORE_TESTS = (
    "tests/comparison/test_quality_gate.py",
    "tests/cli/test_json.py::test_every_verb_with_a_result_has_json_and_a_schema",
    "tests/cli/test_json.py::test_the_schema_of_a_verb_is_a_schema",
    *(
        f"tests/cli/test_json.py::test_json_is_one_document_as_its_schema_has_it[{verb}]"
        for verb in ("evaluate", "report", "gate", "bisect", "clusters", "judge card", "metrics")
    ),
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return for each app a folder with a copy of the package that lacks it, all modules of which were imported."""
    folders = {app.name: tmp_path_factory.mktemp(f"without-{app.name}") for app in list_apps()}
    for name, folder in folders.items():
        # with what is compiled, which takes long
        shutil.copytree(PACKAGE, folder / "ragfault")
        shutil.rmtree(folder / "ragfault" / "apps" / name)
    run_python(ROOT, "-c", IMPORT_ALL, *map(str, folders.values()))
    return folders


@pytest.fixture(params=list_apps(), ids=lambda app: app.name)
def deleted(request: pytest.FixtureRequest, folders: dict[str, Path]) -> tuple[App, Path]:
    """An app, and a folder with a copy of the package that lacks it."""
    return request.param, folders[request.param.name]


def run_python(folder: Path, *arguments: str) -> str:
    """Run Python on the copy in a folder, and return what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    finished = subprocess.run(
        [sys.executable, *arguments],
        env=environment | {"PYTHONPATH": str(folder), "COLUMNS": "120"},
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert finished.returncode == 0, finished.stdout[-4000:] + finished.stderr[-4000:]
    return finished.stdout


def test_every_other_module_is_imported(deleted: tuple[App, Path]):
    _, folder = deleted
    assert (folder / "failure.txt").read_text(encoding="utf-8") == ""


def test_its_verbs_are_gone_and_the_others_are_there(deleted: tuple[App, Path]):
    app, folder = deleted
    shown = re.findall(r"^  (\w+)  ", run_python(folder, "-m", "ragfault", "--help"), re.MULTILINE)
    assert shown == [name for name in COMMANDS if name not in app.verbs and " " not in name]


def test_its_pages_are_gone_and_the_server_opens(deleted: tuple[App, Path], tmp_path: Path):
    app, folder = deleted
    if "serve" in app.verbs:
        pytest.skip("there is no server without it")
    if app.pages is None:
        pytest.skip("it has no pages")
    own = {path.name for path in (PACKAGE / "apps" / app.name / "pages" / "templates").glob("*.html")}
    assert own
    assert not own & set(run_python(folder, "-c", SHOW_PAGES, str(tmp_path / "store")).split())
    options = run_python(folder, "-m", "ragfault", "serve", "start", "--help")
    assert not [name for name, _ in app.page_options if f"--{name} " in options]


def test_tests_of_the_core_pass_without_any_app(tmp_path: Path):
    """Without all apps at once: each one took five times as long, and the modules are imported without each."""
    shutil.copytree(PACKAGE, tmp_path / "ragfault")
    for app in list_apps():
        shutil.rmtree(tmp_path / "ragfault" / "apps" / app.name)
    run_python(tmp_path, "-m", "pytest", "-p", "no:cacheprovider", "-m", "", *CORE_TESTS)
