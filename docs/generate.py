"""Write the pages of docs/ that are generated from the code; with --check, name those that differ from it.

Lines of verdicts on the demo that the other pages show are named if its commands do not print them.

python docs/generate.py [--check]
"""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import msgspec
from pictures import build_terminal, print_commands, show_demo

import ragfault
from ragfault.cli.commands import cli
from ragfault.diagnosis.causes.records import AnswerCause
from ragfault.io.formats.record_shapes import describe_fields
from ragfault.io.runs.run import Manifest
from ragfault.judges.cards.card import list_cards, load_card
from ragfault.labels.judges.measuring import measure_judge
from ragfault.metrics.aliases import ALIASES
from ragfault.metrics.catalog import MetricDefinition, format_metric, get_definitions, parse_metric
from ragfault.metrics.selection import DEFAULT_METRICS
from ragfault.model.records import Score, Trace, Verdicts
from ragfault.model.settings import Settings
from ragfault.options.records import name_flag
from ragfault.report.builders.agreement import build_measurement
from ragfault.report.builders.judges import build_card_figures
from ragfault.report.renderers.markdown import render_markdown_blocks
from ragfault.report.renderers.terminal import render_terminal

FOLDER = Path(__file__).parent
GENERATED = "<!-- made by docs/generate.py: change the code, then run `make docs` -->\n"
LAYERS = {"retrieval": "Retrieval", "generation": "Generation", "crosscut": "Cross-cut", "operation": "Operation"}


def build_cli_page() -> str:
    """Build the page of the command line: the --help of every command."""
    parts = ["# Command line\n", GENERATED, *yield_help(["ragfault"], cli)]
    for name in cli.list_commands(click.Context(cli)):
        parts += yield_command_help(["ragfault", name])
    return "\n".join(parts) + "\n"


def yield_command_help(path: list[str]) -> Iterator[str]:
    """Yield the help of a command and of those below it, each under a heading."""
    command: click.Command | None = cli
    for name in path[1:]:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), name)
    assert command is not None
    yield f"\n{'#' * min(4, len(path))} {' '.join(path)}\n"
    yield from yield_help(path, command)
    for inner in getattr(command, "commands", {}):
        yield from yield_command_help([*path, inner])


def yield_help(path: list[str], command: click.Command) -> Iterator[str]:
    above = click.Context(cli, info_name=path[0]) if len(path) > 1 else None
    for name in path[1:-1]:
        assert above is not None
        assert isinstance(above.command, click.Group)
        group = above.command.get_command(above, name)
        assert group is not None
        above = click.Context(group, info_name=name, parent=above)
    context = click.Context(command, info_name=path[-1], parent=above, max_content_width=100, terminal_width=110)
    context.help_option_names = ["-h", "--help"]
    yield from ("```text", command.get_help(context).rstrip(), "```")


END_OF_METRICS = "\n<!-- end of the metrics"
"""What follows this mark on the page of the metrics is written by hand."""


def build_metrics_page() -> str:
    """Build the page of the metrics: every one with its definition, then what is written by hand."""
    parts = ["# Metrics\n", GENERATED]
    parts.append(
        "Each metric is a pure function of a trace and its verdicts. A score is *scored*, *undefined* (with the\n"
        "reason) or *failed*; undefined scores never enter a mean. Metrics in **bold** are computed by default.\n"
    )
    entries = [d for d in get_definitions().values() if d.function.__module__.startswith("ragfault.")]
    default = {parse_metric(text).name for text in DEFAULT_METRICS}
    for layer, title in LAYERS.items():
        parts.append(f"\n## {title}\n")
        for entry in entries:
            if entry.layer == layer:
                parts += yield_metric_entry(entry, entry.name in default)
    written = (FOLDER / "metrics.md").read_text(encoding="utf-8").split(END_OF_METRICS, 1)[1]
    return "\n".join(parts) + f"\n{END_OF_METRICS}{written}"


def yield_metric_entry(entry: MetricDefinition, default: bool) -> Iterator[str]:
    text = format_metric(entry.name, entry.parameters.items()) + ("@k" if entry.has_cutoff else "")
    low, high = entry.range
    yield f"### {'**' if default else ''}`{text}`{'**' if default else ''}\n"
    yield entry.docstring.split(">>>")[0].strip() + "\n"
    reads = ", ".join([*(f"`{f}`" for f in entry.fields), *(f"*{part}* verdicts" for part in entry.verdicts)])
    extra = f" Needs `pip install 'ragfault[{entry.extra}]'`." if entry.extra else ""
    text = f"{entry.better.capitalize()} is better; {low:g} to {high:g}. Reads {reads}. Source: {entry.source}.{extra}"
    yield textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def build_tables_page() -> str:
    """Build the page of the tables of a run."""
    parts = ["# The tables of a run\n", GENERATED]
    parts.append(
        "A run is a directory: `manifest.json`, `traces.parquet`, `verdicts.parquet`, `causes.parquet`,\n"
        "`scores.parquet`. Any Parquet reader opens it:\n\n```sql\n"
        "select metric, avg(value), count(value) from 'runs/v1/scores.parquet' group by metric\n```\n"
    )
    tables = (
        ("manifest.json", Manifest),
        ("traces.parquet", Trace),
        ("verdicts.parquet", Verdicts),
        ("causes.parquet", AnswerCause),
        ("scores.parquet", Score),
    )
    for name, record in tables:
        parts += [f"\n## {name}\n", "| field | what it holds |", "|---|---|"]
        descriptions = describe_fields(record)
        for field in msgspec.structs.fields(record):
            parts.append(f"| `{field.name}` | {descriptions.get(field.name, '').replace('|', '∣')} |")
    return "\n".join(parts) + "\n"


def build_python_page() -> str:
    """Build the page of the library: every public name with its docstring."""
    parts = ["# Python\n", GENERATED]
    parts.append(
        "Everything here is `from ragfault import …`; what the page of a command names beyond it is in the package of\n"
        "that command.\n"
    )
    for name in sorted(ragfault.__all__, key=str.lower):
        value = getattr(ragfault, name)
        shown = f"{name}{format_signature(value)}" if inspect.isroutine(value) else f"class {name}"
        parts += [f"\n## {name}\n", f"```text\n{shown}\n```\n", format_docstring(value)]
        if inspect.isclass(value) and issubclass(value, Settings):
            parts += list(yield_settings_table(value))
        elif not inspect.isroutine(value):
            descriptions = describe_fields(value) if hasattr(value, "__struct_fields__") else {}
            parts += [f"- `{field}`{f': {text}' if text else ''}" for field, text in descriptions.items() if field]
            parts += [
                f"\n### {name}.{member}\n\n{format_docstring(method)}"
                for member, method in vars(value).items()
                if not member.startswith("_")
                and callable(getattr(value, member))
                and inspect.getdoc(getattr(value, member))
            ]
    return "\n".join(parts) + "\n"


def yield_settings_table(record: type[Settings]) -> Iterator[str]:
    """Yield the table of the fields of a record of settings: what each sets, its default, form and flag."""
    yield "| field | what it sets | default | written as | flag |\n|---|---|---|---|---|"
    for name, setting in record.declared.items():
        is_plain = setting.default is None or isinstance(setting.default, bool | int | float | str | tuple)
        flag = f"`{name_flag(name, setting)}`" if setting.flag is not None else ""
        cells = (
            f"`{name}`",
            setting.sentence,
            f"`{setting.default!r}`" if is_plain else "",
            setting.words if setting.form is not None else "only in Python",
            flag,
        )
        yield f"| {' | '.join(cell.replace('|', '∣') for cell in cells)} |"


def format_signature(function: Callable[..., object]) -> str:
    """Format the signature of a function: names and defaults, without types."""
    taken = inspect.signature(function).parameters.values()
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in taken]
    return re.sub(r"<function \w+ at 0x\w+>", "…", str(inspect.Signature(bare)))


def format_docstring(value: object) -> str:
    """Format a docstring with its example as a block of its own."""
    text, mark, example = (inspect.getdoc(value) or "").partition(">>>")
    return text.strip() + (f"\n\n```pycon\n{mark}{example.rstrip()}\n```" if mark else "") + "\n"


def build_readme() -> str:
    """Build the README with the real output of its command: the first sentences and the causes."""
    text = (FOLDER.parent / "README.md").read_text(encoding="utf-8")
    _, folder = show_demo()
    # computed anew from the verdicts, a run prints what its evaluation printed
    rescore = ["run", "rescore", "ragfault-demo/v1", "-o", "runs/v1"]
    lines = print_commands(rescore, folder=folder.name, color=False, width=110).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("104 answers"))
    last = next(number for number, line in enumerate(lines) if line.startswith("Fix first"))
    before, rest = text.split("```text\n", 1)
    return f"{before}```text\n{chr(10).join(lines[first : last + 1])}\n```{rest.split('```', 1)[1]}"


def list_false_lines() -> list[str]:
    """List the lines of verdicts on the demo that pages show and that its commands do not print."""
    _, folder = show_demo()
    runs = ["runs/v1", "runs/v2"]
    rescored = (["run", "rescore", f"ragfault-demo/{Path(run).name}", "-o", run, "--force"] for run in runs)
    output = print_commands(*rescored, ["bisect", *runs], folder=folder.name, color=False, width=100)
    printed, root = " ".join(output.split()), FOLDER.parent
    names = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/RESULTS.md")
    texts = {path: path.read_text(encoding="utf-8") for path in (*map(root.joinpath, names), *FOLDER.rglob("*.md"))}
    shown = [
        (path.name, " ".join(line.split()))
        for path, text in texts.items()
        for block in re.findall(r"^```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        if re.match(r"104 answers:|FAULT: Retrieval broke; \d+ of \d+ answers", block)
        for line in block.splitlines()
        if line.strip(" …")
    ]
    assert len(shown) > 20
    shown += [
        (path.name, " ".join(count.split()))
        for path, text in texts.items()
        for count in re.findall(r"\d+ of \d+ answers became bad", text)
    ]
    return [f"{name}: {line}" for name, line in shown if line not in printed]


def build_cards_page() -> str:
    """Build the page of the cards, with the figures of each judge."""
    text = (FOLDER / "cards.md").read_text(encoding="utf-8")
    notes: set[str] = set()  # of the cards before: the page says each once
    # a card without its place on the page stops here
    for name in sorted(list_cards(), key=lambda name: text.index(f"<!-- card {name}:")):
        begin, end = f"<!-- card {name}: made by docs/generate.py -->\n", f"<!-- end of card {name} -->"
        table, *paragraphs = render_markdown_blocks(build_card_figures(load_card(name))).split("\n\n")
        shown = "\n\n".join([table, *(note for note in paragraphs if note not in notes)])
        notes.update(paragraphs)
        before, rest = text.split(begin, 1)
        text = f"{before}{begin}\n{shown}\n\n{end}{rest.split(end, 1)[1]}"
    return text


def build_migration_page() -> str:
    """Build the page for users of other tools, with the equivalents of their metrics."""
    text = (FOLDER / "migrate.md").read_text(encoding="utf-8")
    begin, end = "<!-- aliases: made by docs/generate.py -->\n", "<!-- end of aliases -->"
    lines = ["| elsewhere | of | here | how it differs |", "|---|---|---|---|"]
    for alias in sorted(ALIASES, key=lambda alias: (alias.name, alias.tool)):
        name = f"`{alias.name}`" if alias.name != alias.metric else f"`{alias.name}` (the same name)"
        lines.append(f"| {name} | {alias.tool} | `{alias.metric}` | {alias.differs} |")
    before, rest = text.split(begin, 1)
    return f"{before}{begin}\n{chr(10).join(lines)}\n\n{end}{rest.split(end, 1)[1]}"


def build_measure_page() -> str:
    """Build the page of `judge measure` with the real output of its example, save the speed."""
    text = (FOLDER / "measure.md").read_text(encoding="utf-8")
    with contextlib.chdir(FOLDER):  # the report names its source
        measurement = measure_judge("labelled.jsonl")
    shown = render_terminal(build_measurement(measurement), width=110).rstrip().rpartition("\n")[0]
    before, rest = text.split("```text\n", 1)
    return f"{before}```text\n{shown}\n```{rest.split('```', 1)[1]}"


def build_index_for_agents() -> str:
    """Build `llms.txt`: the pages of the menu in its groups, each with its first sentence."""
    lines = [
        "# ragfault\n",
        "> Finds the fault in a RAG system: which layer broke, on which answers, and what to change.\n",
        "It runs without a key or a network. `ragfault demo` shows a whole diagnosis. `ragfault evaluate traces.jsonl",
        "-o runs/a` rates every answer and names the cause of each bad one. `ragfault bisect runs/a runs/b` names the",
        "layer that broke. Every verb prints JSON with `--json`. Exit codes: 0 no fault or pass, 1 fault or fail,",
        "2 wrong use or input, 3 cannot tell.",
    ]
    for group, entries in list_menu():
        lines.append(f"\n## {group}\n")
        for name in entries:
            title, sentence = read_opening((FOLDER / name).read_text(encoding="utf-8"))
            lines.append(f"- [{title}](docs/{name}){f': {sentence}' if sentence else ''}")
    return "\n".join(lines) + "\n"


def list_menu() -> Iterator[tuple[str, list[str]]]:
    """Yield each group of the menu of the site with its pages that are files, decisions apart."""
    menu = (FOLDER.parent / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n", 1)[1]
    for group, entries in re.findall(r"^  - ([^:\n]+):(.*?)(?=^  - |\Z)", menu, re.MULTILINE | re.DOTALL):
        pages = re.findall(r"[\w/-]+\.md", entries)
        yield group, [page for page in pages if (FOLDER / page).is_file()]


def read_opening(page: str) -> tuple[str, str]:
    """Return the title of a page, and the first sentence of its first paragraph."""
    title, _, body = page.removeprefix("# ").partition("\n")
    paragraphs = (" ".join(part.split()) for part in re.split(r"\n{2,}", body.replace(GENERATED, "")))
    prose = (part for part in paragraphs if re.match(r"[A-Z*`\[]", part) and not part.startswith("```"))
    plain = re.sub(r"\[([^\]]+)\]\([^)]*\)|\*\*?([^*]+)\*\*?", r"\1\2", next(prose, ""))
    return title, re.split(r"(?<=[.:])\s", plain)[0].replace(":", ".") if plain else ""


PAGES = {
    "cli.md": build_cli_page,
    "metrics.md": build_metrics_page,
    "columns.md": build_tables_page,
    "python.md": build_python_page,
    "cards.md": build_cards_page,
    "measure.md": build_measure_page,
    "migrate.md": build_migration_page,
    "../README.md": build_readme,
    "pictures/demo.svg": build_terminal,
    "../llms.txt": build_index_for_agents,
}


def main() -> int:
    stale = []
    for name, make in PAGES.items():
        path, text = FOLDER / name, make()
        if "--check" in sys.argv:
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                stale.append(name)
        else:
            path.write_text(text, encoding="utf-8")
    if stale:
        print(f"not true to the code: {', '.join(stale)}. Run: make docs", file=sys.stderr)
    false = list_false_lines()
    if false:
        print("the commands of the demo do not print:", *false, sep="\n", file=sys.stderr)
    return 1 if stale or false else 0


if __name__ == "__main__":
    sys.exit(main())
