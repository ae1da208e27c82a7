"""Commands `testset review` and `testset adjudicate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from ragfault.apps.testsets.cli.make import check_distinct, check_target, encode_lines
from ragfault.model.errors import InputError
from ragfault.options.output import json_option, print_json, print_notice
from ragfault.report.safe_text import clean_text
from ragfault.text.number_format import format_count, format_percent

if TYPE_CHECKING:
    from ragfault.apps.testsets.reviews import ReviewResult
    from ragfault.labels.annotation.session import Question
    from ragfault.labels.label import Label
    from ragfault.model.records import Document, Trace
    from ragfault.stats.estimates import BootstrapEstimate

T = TypeVar("T")
KEYS = "a accept, x reject, e edit, n new item, space skip, b back, z undo, q quit"


@click.command(
    epilog="""\b
Examples:
  ragfault testset review set.jsonl --by ann --corpus docs/
  ragfault testset review set.jsonl --by ben
  ragfault testset review set.jsonl --by cho --disputes
  ragfault testset adjudicate set.jsonl reviews.jsonl -o reviewed.jsonl --adjudicator cho"""
)
@click.argument("items", metavar="SET", type=click.Path())
@click.option("-o", "--out", default="reviews.jsonl", show_default=True, type=click.Path(), help="File of reviews.")
@click.option("--by", help="Name of the reviewer.  [default: the user name]")
@click.option("--corpus", type=click.Path(), help="Corpus in which new gold spans are located.")
@click.option("--disputes", is_flag=True, help="Only items on which others differ, with what each of them decided.")
def review(items: str, out: str, by: str | None, corpus: str | None, disputes: bool) -> None:
    """Accept, reject and edit the items of SET, one key each: query, reference, nuggets, gold spans.

    a accepts, x rejects, e opens the item as a form in the editor ($EDITOR) and then accepts it as it was left, n
    writes a new item, space skips, b goes back, z undoes the last review, q ends. Each review is written before the
    next item is shown; run the same command again to go on. What others decided is hidden, unless --disputes.
    """
    from ragfault.apps.testsets.review_session import ReviewSession
    from ragfault.apps.testsets.reviews import LAYOUT
    from ragfault.labels.annotation.session import Session, ask_questions
    from ragfault.options.keys import name_person, open_key_reader

    name = name_person(by)
    session = ReviewSession(items, out, corpus, print_notice)
    documents = session.load_documents()
    state = session.load()
    versions = state.find_disputes(name) if disputes else {}
    waiting = [item for item in state.list_waiting(name) if not disputes or item.id in versions]
    questions = (_ask_item(item, name, documents) for item in waiting)
    sitting = Session(questions, out, name, LAYOUT, previous=state.reviews)

    def show(question: Question[Trace], _: str) -> None:
        click.echo(_describe_item(question.content, versions.get(question.content.id, ()), sitting.answer))

    with open_key_reader() as read:
        ask_questions(sitting, read, show)
    count = sitting.answered_count
    left = format_count(len(waiting) - count, "disputed item" if disputes else "item")
    click.echo(
        f"{format_count(count, 'item')} reviewed{f', in {out}' if count else ''}; {left} to review by {name or 'you'}"
    )


def _ask_item(item: Trace, by: str, documents: Mapping[str, Document]) -> Question[Trace]:
    """Return the question about an item; a form that is left as it was gives no label."""
    from ragfault.apps.testsets.reviews import DECISIONS, FORM_HELP, create_item, create_review, read_form, write_form
    from ragfault.labels.annotation.session import Question

    def edit() -> Label | None:
        edited = _edit(write_form(item), lambda form: read_form(form, item, documents))
        return None if edited is None else create_review(item, "accepted", by, edited)

    accept, reject = (partial(create_review, item, decision, by) for decision in DECISIONS)
    write = partial(_edit, f"{FORM_HELP}query: \n", lambda form: create_item(form, by, documents))
    return Question(item, accept().question, {"a": accept, "x": reject, "e": edit, "n": write})


def _edit(form: str, parse: Callable[[str], T]) -> T | None:
    """Open a form in the editor until it can be read; None where it is left as it was or empty."""
    text = form
    while True:
        try:
            changed = click.edit(text, extension=".txt")
        except click.ClickException as error:
            print_notice(f"the form was not changed: {error.message}")
            return None
        if changed is None or not changed.strip() or changed == form:
            return None
        try:
            return parse(changed)
        except InputError as error:
            if changed == text:
                print_notice(f"the form was not changed: {error}")
                return None
            text = f"# {error}\n{changed}"


def _describe_item(item: Trace, reviews: Sequence[Label], own: Label | None) -> str:
    """Return an item as a card, with what others decided where it is disputed, and what the person decided before."""
    from ragfault.apps.testsets.reviews import FORM_HELP, write_form

    lines = [f"{item.id}  {item.metadata.get('kind', '')}", write_form(item).removeprefix(FORM_HELP).rstrip()]
    for entry in reviews:
        lines.append(f"--- {entry.annotator or 'someone'}: {entry.value}")
        if entry.edited is not None:
            lines.append(write_form(entry.edited).removeprefix(FORM_HELP).rstrip())
    if own is not None:
        lines.append(f"--- you: {own.value}")
    text = "\n".join(["", *lines, f"[{KEYS}]"])
    return "\n".join(map(clean_text, text.split("\n")))


@click.command(
    epilog="""\b
Examples:
  ragfault testset adjudicate set.jsonl reviews.jsonl
  ragfault testset adjudicate set.jsonl ann.jsonl ben.jsonl -o reviewed.jsonl --needed 2"""
)
@click.argument("items", metavar="SET", type=click.Path())
@click.argument("reviews", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("-o", "--out", type=click.Path(dir_okay=False), help="Write the items as they were left (JSON Lines).")
@click.option("--needed", type=click.IntRange(1), default=1, show_default=True, help="So many reviewers of an item.")
@click.option("--adjudicator", metavar="NAME", help="The reviewer who decides where others differ.")
@click.option("--force", is_flag=True, help="Replace an existing file OUT.")
@json_option
def adjudicate(
    items: str,
    reviews: tuple[str, ...],
    out: str | None,
    needed: int,
    adjudicator: str | None,
    force: bool,
    kind: str | None,
) -> int:
    """Merge the REVIEWS of SET: agreement of the reviewers, what they dispute, and the items that are accepted.

    Rejected items are left out of OUT; disputed ones and those with too few reviews stay as they were. Exit code 1
    where items are disputed.
    """
    from ragfault.apps.testsets.reviews import LAYOUT, merge_reviews
    from ragfault.io.atomic_files import write_atomically
    from ragfault.io.trace_reader import read_traces
    from ragfault.labels.reading.label_files import read_saved_labels

    check_target(out, force)
    check_distinct([out], reviews)
    result = merge_reviews(
        read_traces(items, notice=print_notice),
        [entry for path in reviews for entry in read_saved_labels(path, LAYOUT)],
        adjudicator=adjudicator,
        needed=needed,
    )
    if out is not None:
        write_atomically(Path(out), encode_lines(result.items))
    if kind == "json":
        print_json(result)
    else:
        for line in _format_lines(result):
            click.echo(line)
    return 1 if result.disputes else 0


def _format_lines(result: ReviewResult) -> Iterator[str]:
    yield (
        f"{format_count(result.accepted, 'item')} accepted, {result.rejected:,} rejected, "
        f"{len(result.disputes):,} disputed, {result.pending:,} pending"
    )
    if result.unmatched:
        yield f"not counted: {format_count(result.unmatched, 'review')} of items that are not there, or had other words"
    if result.agreement is not None:
        shared = format_count(result.shared, "item")
        yield f"{shared} with two reviewers or more: one decision {_format_estimate(result.agreement)}"
        if result.alpha is not None and result.alpha.value is not None:
            yield f"Krippendorff's alpha of the decisions {_format_estimate(result.alpha)}"
    for name, share in result.fields.items():
        yield f"  {name}: left alike in {format_percent(share)} of the items that all accepted"
    for dispute in result.disputes:
        names = ", ".join(f"{entry.annotator or 'someone'} {entry.value}" for entry in dispute.reviews)
        yield clean_text(f"  disputed: {dispute.item}  {dispute.reason} ({names})  {dispute.query}")


def _format_estimate(estimate: BootstrapEstimate) -> str:
    if estimate.value is None:
        return "undefined"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.2f}"
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"
