"""The layout of the package: the tables of docs/architecture.md, the apps, and limits that keep files readable."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "ragfault"
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

# Guides, with room above them: a call is never packed onto fewer lines, nor an idea split, to stay below.
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 80
MAX_FOLDER_MODULES = 20
MAX_PACKAGES = 17


def read_rows(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading of the architecture page."""
    section = ARCHITECTURE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


FLOORS = {name: int(row[0]) for row in read_rows("Floors of the package") for name in re.findall(r"`([\w.]+)`", row[1])}
"""Package or module → its floor."""

REGISTRY = "ragfault.apps.registry"
"""The table of the apps, the one module of `apps` that others may import."""

HEAVY = {
    library: set(re.findall(r"`(\w+)`", row[1]))
    for row in read_rows("Heavy libraries")
    for library in re.findall(r"`(\w+)`", row[0])
}
"""Library → the packages that may import it."""

SLOW_LIBRARIES = {
    "pyarrow", "sklearn", "scipy", "pandas", "polars", "duckdb", "rich", "regex", "rapidfuzz", "onnxruntime",
    "tokenizers", "opentelemetry", "openai", "fsspec",
}  # fmt: skip
"""Libraries that are imported in the functions that use them."""
LIBRARY_MODULES = {
    "ragfault.io.formats.arrow",
    "ragfault.io.formats.trec",
    "ragfault.metrics.qrels",
    "ragfault.retrieval.stores.lance",
}
"""Modules that read or write what a slow library holds."""
WEB_LIBRARIES = {"fastapi", "starlette", "uvicorn", "pydantic", "h11", "jinja2"}
WEB_FOLDER = re.compile(r"ragfault\.(?:http|apps\.\w+\.(?:pages|server))\b")
"""Modules that answer requests, which declare their routes and types by the libraries of the web."""
FOREIGN_FOLDER = re.compile(r"ragfault\.(?:integrations|apps\.\w+\.frameworks)\.")
"""Modules for users of another library, who have loaded it."""


@cache
def parse_modules() -> dict[Path, ast.Module]:
    """Return the syntax tree of every module, parsed once for all tests."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def name_module(path: Path) -> str:
    """Return the dotted name of a module."""
    parts = ("ragfault", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = frozenset(map(name_module, PACKAGE.rglob("*.py")))
APPS = {path.parent.name for path in PACKAGE.glob("apps/*/app.py")}


def list_imports(path: Path) -> list[tuple[int, str]]:
    """Return every import of a module as (line, dotted name of a module), function-local ones included."""
    imports = []
    for node in ast.walk(parse_modules()[path]):
        if isinstance(node, ast.Import):
            imports += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            module = node.module or ""
            for alias in node.names:
                full = f"{module}.{alias.name}"
                imports.append((node.lineno, full if full in MODULES else module))
    return imports


def top_package(dotted: str) -> str:
    """Return the package or module right below `ragfault` that a dotted name lies in."""
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def name_app(dotted: str) -> str | None:
    """Return the app that a dotted name lies in; None outside the apps, and for the table of the apps."""
    parts = dotted.split(".")
    return parts[2] if parts[:2] == ["ragfault", "apps"] and len(parts) > 2 and dotted != REGISTRY else None


def get_floor(dotted: str) -> int:
    """Return the floor of a module."""
    return FLOORS["apps.registry" if dotted == REGISTRY else top_package(dotted)]


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def test_every_package_has_a_floor():
    """Each package and module right below `ragfault` stands in the table, and the table names no other."""
    there = {path.stem for path in PACKAGE.glob("*.py")}
    there |= {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert there | {"apps.registry"} == set(FLOORS)
    assert sum((PACKAGE / name).is_dir() for name in there) <= MAX_PACKAGES


def test_imports_go_to_lower_floors():
    """A package imports itself and packages of lower floors only."""
    wrong = []
    for path in parse_modules():
        here = name_module(path)
        for line, name in list_imports(path):
            if name.split(".")[0] != "ragfault" or (top_package(name) == top_package(here) and here != REGISTRY):
                continue
            if not get_floor(name) < get_floor(here):
                wrong.append(f"{place(path, line)}: {here} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_no_app_is_imported_but_by_itself():
    """Nothing outside `apps` and no other app imports an app, so that its folder can be deleted."""
    wrong = []
    for path in parse_modules():
        here = name_app(name_module(path))
        for line, name in list_imports(path):
            if name_app(name) not in (None, here):
                wrong.append(f"{place(path, line)}: {name_module(path)} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_no_text_names_the_module_of_another_app():
    """No string outside an app, docstrings and names of modules included, names a module or a folder of it."""
    wrong = []
    for path, tree in parse_modules().items():
        here = name_app(name_module(path))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = set(re.findall(r"\bapps[./](\w+)", node.value)) & APPS - {here}
                wrong += [f"{place(path, node.lineno)}: names {name}" for name in named]
    assert not wrong, "\n".join(wrong)


def test_tests_of_the_core_import_no_app():
    """The tests of a package of the core are those of the core alone: tests of apps lie in tests/apps."""
    wrong = []
    for name in set(FLOORS) & {path.name for path in (ROOT / "tests").iterdir()} - {"apps"}:
        for path in (ROOT / "tests" / name).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                wrong += [f"{place(path, node.lineno)}: {module}" for module in modules if name_app(module)]
    assert not wrong, "\n".join(wrong)


def test_heavy_libraries_stay_in_their_packages():
    """A heavy library is imported only by the packages that the table names."""
    wrong = []
    for path in parse_modules():
        here = top_package(name_module(path))
        for line, name in list_imports(path):
            library = name.split(".")[0]
            if library in HEAVY and here not in HEAVY[library]:
                wrong.append(f"{place(path, line)}: {here} imports {library}")
    assert not wrong, "\n".join(wrong)


def list_loaded(path: Path) -> set[str]:
    """Return what the import of a module imports at once: imports in functions and for types alone are left out."""
    loaded: set[str] = set()
    pending: list[ast.stmt] = list(parse_modules()[path].body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            loaded |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & MODULES
            loaded |= {node.module, *inner}
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            pending += node.orelse
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ClassDef):
            pending += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
    return loaded


def list_folders(dotted: str) -> set[str]:
    """Return the packages that a module lies in, which Python imports before it."""
    parts = dotted.split(".")
    return {".".join(parts[:end]) for end in range(1, len(parts))}


@cache
def list_reached(leaf: str) -> frozenset[str]:
    """Return all that the import of a module loads in a fresh process, itself included."""
    graph = load_graph()
    reached: set[str] = set()
    pending = {leaf}
    while pending:
        name = pending.pop()
        reached.add(name)
        pending |= (graph.get(name, set()) | list_folders(name)) - reached
    return frozenset(reached)


@cache
def load_graph() -> dict[str, set[str]]:
    return {name_module(path): list_loaded(path) for path in parse_modules()}


def list_libraries(leaf: str) -> set[str]:
    """Return the top packages that the import of a module loads."""
    return {name.split(".")[0] for name in list_reached(leaf)}


def test_leaves_load_no_slow_library():
    """The import of a module loads a slow library only where it is made for it, and those of the web to serve."""
    wrong = []
    for leaf in sorted(MODULES - LIBRARY_MODULES):
        if FOREIGN_FOLDER.match(leaf):
            continue
        slow = SLOW_LIBRARIES if WEB_FOLDER.match(leaf) else SLOW_LIBRARIES | WEB_LIBRARIES
        wrong += [f"{leaf} loads {name}" for name in sorted(list_libraries(leaf) & slow)]
    assert not wrong, "\n".join(wrong)


def test_leaves_load_no_app():
    """The import of a module loads no app but its own."""
    loaded = {(leaf, name_app(name)) for leaf in MODULES for name in list_reached(leaf) if name_app(name)}
    assert {pair for pair in loaded if name_app(pair[0]) != pair[1]} == set()


def test_records_load_no_arithmetic():
    """The records of a result can be imported without numpy, which the functions that fill them need."""
    rooms = ("model", "stats", "labels", "diagnosis", "comparison")
    records = {
        leaf for leaf in MODULES if leaf.split(".")[-1] in ("records", "estimates") and top_package(leaf) in rooms
    }
    assert len(records) > len(rooms)
    assert {leaf for leaf in records if "numpy" in list_libraries(leaf)} == set()


def test_drawings_and_sentences_load_no_arithmetic():
    """What draws, words and renders reports knows their records only: no analysis, reader or judge comes with it."""
    modules = {
        leaf for leaf in MODULES if re.match(r"ragfault\.report\.(charts|renderers|\w*wording|format|safe_text)", leaf)
    }
    assert len(modules) > 8
    assert {leaf for leaf in modules if "numpy" in list_libraries(leaf)} == set()


def find_cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of nodes that reach each other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    cycles: list[list[str]] = []

    def connect(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in graph[node]:
            if target not in index:
                connect(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            at = stack.index(node)
            component = stack[at:]
            del stack[at:]
            if len(component) > 1:
                cycles.append(sorted(component))

    for node in list(graph):
        if node not in index:
            connect(node)
    return cycles


def test_files_import_each_other_in_one_direction():
    """No two files of the package import each other, directly or through others."""
    graph: dict[str, set[str]] = defaultdict(set)
    for path in parse_modules():
        here = name_module(path)
        graph[here] |= {name for _, name in list_imports(path) if name in MODULES and name != here}
    assert find_cycles(dict(graph)) == []


def test_files_and_folders_are_small():
    """Lines of a file and modules in a folder stay within the limits."""
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in parse_modules()}
    folders = defaultdict(int)
    for path in lines:
        folders[path.parent] += 1
    assert {place(path, count) for path, count in lines.items() if count > MAX_FILE_LINES} == set()
    assert {place(path, count) for path, count in folders.items() if count > MAX_FOLDER_MODULES} == set()


def test_functions_are_short():
    """No function has more lines of code than the limit, its docstring not counted."""
    long = []
    for path, tree in parse_modules().items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            docstring = ast.get_docstring(node, clean=False)
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            lines -= docstring.count("\n") + 1 if docstring else 0
            if lines > MAX_FUNCTION_LINES:
                long.append(f"{place(path, node.lineno)}: {node.name} has {lines} lines")
    assert not long, "\n".join(long)


FOREIGN_NAMES = {
    "set_recall", "set_P", "set_F", "recip_rank", "map_cut", "Rprec", "RBP", "ContextualRecallMetric", "answerText",
    "context_1", "context_2", "dox", "ndcg_10", "FIELD__from", "FIELD__to", "FIELD__holds", "SPAN_KIND_SERVER", "Title",
}  # fmt: skip
"""Names of other tools and of data, which docstrings give as examples."""


def test_docstrings_name_what_there_is():
    """A word in backticks in a docstring is a name in the package, or a name of data or of another tool."""
    names, named = set(FOREIGN_NAMES), defaultdict(set)
    for path, tree in parse_modules().items():
        code = path.read_text(encoding="utf-8")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                docstring = ast.get_docstring(node, clean=False) or ""
                code = code.replace(docstring, "", 1)
                prose = re.sub(r"(?m)^\s*(?:>>>|\.\.\.).*$", "", docstring)
                for name in re.findall(r"`([A-Za-z_]\w*)`", prose):
                    named[name].add(f"{place(path, node.lineno)}: {node.name} names {name}")
        names.update(re.findall(r"\w+", code))
    assert not {text for name in named.keys() - names for text in named[name]}


def test_functions_keep_their_names():
    """A function or class of the package is imported under its own name."""
    renamed = [
        f"{place(path, node.lineno)}: {alias.name} as {alias.asname}"
        for path, tree in parse_modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ragfault"
        for alias in node.names
        if alias.asname not in (None, alias.name)
        and f"{node.module}.{alias.name}" not in MODULES
        and not alias.name.isupper()
    ]
    assert not renamed, "\n".join(renamed)


def test_class_names_occur_once():
    """A class name is unique in the package, so that it names one concept."""
    places = defaultdict(list)
    for path, tree in parse_modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(place(path, node.lineno))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_inner_modules_have_no_list_of_exports():
    """Only packages and the tree of errors list their exports; an inner module exports what has no underscore."""
    lists = [
        place(path, node.lineno)
        for path, tree in parse_modules().items()
        if path.name != "__init__.py" and path.stem != "errors"
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
    ]
    assert lists == []


def test_no_pattern_repeats_a_group_possessively():
    """Python before 3.11.5 takes what such a group began to match and did not: `(?>(?:…)*)` says the same."""
    for path in PACKAGE.rglob("*.py"):
        repeated = re.search(r"\)(?:[*+?]|\{[0-9,]+\})\+", path.read_text(encoding="utf-8"))
        assert repeated is None, f"{path}: {repeated}"
