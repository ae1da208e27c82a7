"""A comment on a pull request: the verdict on its first line, and below it what it rests on."""

from __future__ import annotations

from ragfault.findings import Bisection, Gate
from ragfault.report import bisection, gate
from ragfault.report.gate import SIGNS
from ragfault.report.markdown import code, escape
from ragfault.report.wording import lead

__all__ = ["LONGEST", "MARK", "comment"]

LONGEST = 60_000
"""Characters: GitHub takes 65,536, GitLab a million."""

SHOWN = 3
"""Rules on the first line."""

MARK = "<!-- ragfault -->"
"""The last line, by which a later comment of ragfault finds the one to replace."""


def comment(
    decided: Gate | None, found: Bisection | None, card: str = "", notes: tuple[str, ...] = ()
) -> str:
    """A gate, a bisection, or both, as the Markdown of one comment.

    The first line is the layer that broke where one did, else what the gate decided and by which rules, else that
    nothing was asked. Below it stand `notes`, the bisection and, folded, the gate's tables and the scorecard `card`.
    What would make it longer than `LONGEST` is left out from the end, and that is said.

    >>> comment(None, None, notes=("no baseline",)).splitlines()[0]
    '### ❔ ragfault: evaluated, nothing was asked of it'
    """
    parts = [_first(decided, found), "\n".join(f"> {escape(note)}" for note in notes)]
    if found is not None:
        parts.append(_body(bisection.markdown(found)))
    if decided is not None:
        parts.append(_folded("Bars and metrics, one by one", gate.markdown(decided)))
    if card:
        parts.append(_folded("Scorecard", card))
    return _cut([part.strip() for part in parts if part.strip()])


def _first(decided: Gate | None, found: Bisection | None) -> str:
    if found is not None and found.verdict == "fault":
        return f"### ❌ {escape(lead(found))}"
    if decided is None and found is None:
        return "### ❔ ragfault: evaluated, nothing was asked of it"
    told = [] if decided is None else [_decided(decided)]
    told += [] if found is None else [escape(lead(found)).rstrip(".")]
    return f"### {'❔ ' if decided is None else ''}{'. '.join(told)}"


def _decided(gate: Gate) -> str:
    """What a gate decided, and the rules that it hangs on."""
    rules = [str(each.bar) for each in gate.decisions if each.result == gate.result]
    rules += [each.rule for each in gate.drops if each.result == gate.result]
    if gate.result == "pass":
        return f"{SIGNS[gate.result]}: {len(rules)} of {len(rules)}"
    more = f" and {len(rules) - SHOWN} more" if len(rules) > SHOWN else ""
    return f"{SIGNS[gate.result]}: {', '.join(map(code, rules[:SHOWN]))}{more}"


def _body(text: str) -> str:
    """Markdown without its first heading, which the comment has said."""
    first, _, rest = text.partition("\n")
    return rest.strip() if first.startswith("###") else text


def _folded(summary: str, text: str) -> str:
    """Markdown behind a line to click on, its headings smaller than that of the comment."""
    small = "\n".join(
        f"#### {line.lstrip('# ')}" if line.startswith("#") else line for line in text.splitlines()
    )
    return f"<details><summary>{summary}</summary>\n\n{small}\n\n</details>"


def _cut(parts: list[str]) -> str:
    """As many parts as there is room for, from the first on."""
    kept: list[str] = []
    left = LONGEST
    for part in parts:
        if len(part) > left:
            kept.append("*The rest is too long for a comment: it is in the reports of this job.*")
            break
        kept.append(part)
        left -= len(part)
    return "\n\n".join([*kept, MARK]) + "\n"
