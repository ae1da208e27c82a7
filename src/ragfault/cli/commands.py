"""Command line of ragfault: each command is loaded when it is called; errors become messages and exit codes.

The library raises; here its errors become one message on standard error and an exit code: 2 for a usage or input
error, 1 where a threshold is missed, 3 where the data cannot tell or some scores were lost.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import get_args

import click

from ragfault.apps.registry import Verb, VerbGroup, list_apps
from ragfault.model.version import __version__
from ragfault.options.process import GIT_OPTION, GIT_SKIP, clean_output

VERBS = {
    "evaluate": Verb("ragfault.cli.evaluate", "Judge traces, compute metrics, and write a run.", "measure"),
    "report": Verb("ragfault.cli.report", "Show a run: in the terminal, or as HTML, Markdown, JSON or CSV.", "measure"),
    "judge": Verb("ragfault.cli.judge", "Measure, calibrate and compare judges.", "measure"),
    "judge profile": Verb("ragfault.cli.catalog", "List the domain profiles, or print one as TOML.", "measure"),
    "judge cache": Verb("ragfault.cli.cache", "Manage stored replies of language models.", "measure"),
    "label": Verb("ragfault.cli.label", "Label traces in the terminal, one key press per verdict.", "measure"),
    "metrics": Verb("ragfault.cli.catalog", "List the metrics, or explain one.", "measure"),
    "bisect": Verb("ragfault.cli.compare", "Name the layer that broke between two runs.", "locate"),
    "diagnose": Verb("ragfault.cli.report", "List the problems of single traces of a run.", "locate"),
    "compare": Verb(
        "ragfault.cli.compare", "Compare two runs: each metric worse, better, steady, or cannot tell.", "locate"
    ),
    "clusters": Verb(
        "ragfault.cli.clusters", "Cluster similar failures, with ids that stay the same over runs.", "locate"
    ),
    "steps": Verb("ragfault.cli.report", "Name the first faulty step of the traces of an agent.", "locate"),
    "investigate": Verb(
        "ragfault.cli.studies.investigate", "Find a root cause: hypotheses, quotes, a fix and its test.", "locate"
    ),
    "promote": Verb("ragfault.cli.clusters", "Turn failing traces into cases of an evaluation set.", "improve"),
    "plan": Verb(
        "ragfault.cli.studies.plan", "Say how many queries and attempts find a drop between two runs.", "protect"
    ),
    "gate": Verb("ragfault.cli.gate", "Check a run against thresholds: pass, fail, or cannot tell.", "protect"),
    "ci": Verb("ragfault.cli.gate", "Evaluate, gate and bisect in one, for a job on every pull request.", "protect"),
    "demo": Verb("ragfault.cli.demo", "Show a whole diagnosis on a made-up system.", "data and settings"),
    "run": Verb("", "Convert traces, export or rescore runs, rank TREC runs.", "data and settings"),
    "run convert": Verb("ragfault.cli.conversion", "Convert traces from one format to another.", "data and settings"),
    "run export": Verb(
        "ragfault.cli.conversion", "Export runs to MLflow, or to Weights & Biases as CSV.", "data and settings"
    ),
    "run rescore": Verb(
        "ragfault.cli.evaluate", "Compute other metrics on a run without judging again.", "data and settings"
    ),
    "run rank": Verb(
        "ragfault.cli.evaluate", "Score a TREC run against qrels with ranked metrics only.", "data and settings"
    ),
    "run schema": Verb(
        "ragfault.cli.catalog",
        "Print the JSON schema of a trace, or of what a verb prints with --json.",
        "data and settings",
    ),
    "mcp": Verb(
        "ragfault.cli.mcp",
        "Let a coding agent evaluate, bisect and explain, by the Model Context Protocol.",
        "data and settings",
    ),
}
"""Verbs of the core. One of two words belongs to the group that its first word names."""

COMMANDS = {
    name: verb
    for group in get_args(VerbGroup)
    for verbs in (VERBS, *(app.verbs for app in list_apps()))
    for name, verb in verbs.items()
    if verb.group == group
}
"""Verbs of the core and of the apps that are installed, in the order of the overview."""


def load_command(name: str) -> click.Command:
    """Load the command of a verb: its own, or the group of the verbs that begin with it."""
    verb, word = COMMANDS[name], name.rsplit(maxsplit=1)[-1]
    inner = {key.split()[-1]: key for key in COMMANDS if key.startswith(f"{name} ")}
    own = getattr(import_module(verb.module), word) if verb.module else None
    assert own is None or isinstance(own, click.Command)
    if own is not None and not inner:
        return own
    commands = dict(own.commands) if isinstance(own, click.Group) else {}
    commands |= {short: load_command(key) for short, key in inner.items()}
    return click.Group(
        word, commands, help=verb.summary if own is None else own.help, epilog=None if own is None else own.epilog
    )


class CommandGroup(click.Group):
    """Group that imports the module of a command only when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [name for name in COMMANDS if " " not in name]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load_command(cmd_name) if cmd_name in self.list_commands(ctx) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.list_commands(ctx) and not args[0].startswith("-"):
            from ragfault.model.errors import UnknownName

            now = [name for name in COMMANDS if name.endswith(f" {args[0]}")]
            now += [new for app in list_apps() for old, new in app.renamed if old == args[0]]
            hint = f"Use: ragfault {now[0]}" if now else "List them with: ragfault --help"
            raise UnknownName("command", args[0], [] if now else self.list_commands(ctx), hint=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        width = max(map(len, names)) + 2
        for group in get_args(VerbGroup):
            with formatter.section(group.capitalize()):
                lines = [(name.ljust(width), COMMANDS[name].summary) for name in names if COMMANDS[name].group == group]
                formatter.write_dl(lines, col_spacing=0)


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Begin with: ragfault demo",
)
@click.version_option(__version__, prog_name="ragfault")
def cli() -> None:
    """Find the fault in a RAG system: which layer broke, on which traces, and what to change."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    # an eighth of the time of an analysis goes into looking for garbage else
    gc.set_threshold(50_000, 20, 50)
    # work is spread over processes, not within one
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # gives memory back that it no longer needs
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    sys.exit(run_command(arguments))


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code, with `--git` one of 0, 1 and 125."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if GIT_OPTION not in given:
        return _run_command(given)
    try:
        code = _run_command(given)
        return code if code in (0, 1) else GIT_SKIP
    except Exception:  # noqa: BLE001 - Python would exit with 1, which is a bad commit to git
        import traceback

        traceback.print_exc()
        return GIT_SKIP


def _run_command(arguments: Sequence[str]) -> int:
    from ragfault.model.errors import FLAGS_SHOWN, BudgetExceeded, RagfaultError

    color = True if os.environ.get("FORCE_COLOR") and not os.environ.get("NO_COLOR") else None
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    shown = FLAGS_SHOWN.set(())
    try:
        FLAGS_SHOWN.set(_list_flags(arguments))
        code = cli.main(args=list(arguments), prog_name="ragfault", standalone_mode=False, color=color)
    except click.ClickException as error:
        error.show()
        return 2
    except RagfaultError as error:
        click.echo(f"{type(error).__name__}: {clean_output(str(error))}", err=True)
        return 3 if isinstance(error, BudgetExceeded) else 2
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted. Finished work is kept: run the same command again to resume.", err=True)
        return 130
    except BrokenPipeError:
        # else Python complains of the pipe at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    finally:
        FLAGS_SHOWN.reset(shown)
    return code if isinstance(code, int) else 0


def _list_flags(arguments: Sequence[str]) -> list[str]:
    """List the flags of the command that arguments call."""
    command: click.Command | None = cli
    for argument in arguments:
        if not isinstance(command, click.Group):
            break
        command = command.get_command(click.Context(command), argument)
    return [] if command is None else [flag for parameter in command.params for flag in parameter.opts]
