"""Laws of report documents: what each medium makes of every kind of block, and that hostile texts do nothing."""

from __future__ import annotations

from markupsafe import Markup

from ragfault.report.document import (
    PAGE_ONLY,
    Chart,
    Details,
    Heading,
    IntervalMark,
    Link,
    Listing,
    Paragraph,
    ReportDocument,
    StyledText,
    Table,
    TableColumn,
    VerdictMark,
)
from ragfault.report.renderers.html import render_html_fragment, render_html_page
from ragfault.report.renderers.markdown import render_markdown
from ragfault.report.renderers.terminal import render_terminal

HOSTILE = "\x1b[31m<script>a</script>|\u202e[x](javascript:y)\n# b"


def build_document(text: str) -> ReportDocument:
    """Build a document with every kind of block, each with a text."""
    columns = (TableColumn("Result"), TableColumn("Name"), TableColumn("Mean", room=PAGE_ONLY))
    table = Table(columns, ((VerdictMark("fail"), text, "0.5"), (VerdictMark("pass"), StyledText(text, "code"), "0.9")))
    prose = Table((TableColumn("Result"), TableColumn("Why", prose=True)), ((VerdictMark("cannot tell"), text),))
    listing = Listing(
        (text, Listing((StyledText(text, "quote"), Link(text, "https://x.y/(z)")), ordered=True)), shown=1
    )
    body = (
        Heading(text),
        table,
        prose,
        listing,
        Chart(text, Markup("<svg></svg>")),
        Details(text, (Heading(text, 3), Paragraph((StyledText(text, "strong"), " ", Link(text, "javascript:z"))))),
    )
    return ReportDocument(text, (Heading(text, 1, VerdictMark("fault")), Paragraph(text, "warning")), body)


def test_hostile_texts_do_nothing_in_any_medium():
    """No escape sequence, no element, no link and no cell's end comes from a text."""
    document = build_document(HOSTILE)
    terminal, markdown = render_terminal(document, width=80), render_markdown(document)
    page, fragment = render_html_page(document, "test"), render_html_fragment(document)
    for text in (terminal, markdown, page, fragment):
        assert not set(text) & {"\x1b", "\u202e"}
    assert "<script>" not in markdown + fragment
    assert page.count("<script>") == 1
    assert "](javascript" not in markdown
    assert 'href="javascript' not in page
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {3, 4}


def test_every_medium_says_all_that_it_has_room_for():
    """The verdict comes first; a terminal leaves out drawings, columns of pages and items beyond those shown."""
    document = build_document("the text")
    terminal, markdown = render_terminal(document, width=80), render_markdown(document)
    assert terminal.startswith("FAULT: the text\nwarning: the text\n")
    assert markdown.startswith("### ❌ fault: the text\n\n> ⚠️ the text\n")
    assert "Mean" not in terminal
    assert "| ❌ fail | the text | 0.5 |" in markdown
    assert "✗ fail" in terminal
    assert "<svg></svg>" in render_html_page(document, "test")
    assert "1. the text" in markdown
    assert "(https" not in markdown.replace("[the text](https://x.y/%28z%29)", "")


def test_a_list_counts_what_a_terminal_does_not_show():
    """Items beyond those shown are counted; listings go with their item."""
    listing = Listing(("a", Listing(("b",)), "c", Listing(("d",)), "e"), shown=1)
    lines = render_terminal(ReportDocument("", (listing,)), width=80).splitlines()
    assert lines == ["  a", "    b", "  and 2 more"]


def test_a_heading_goes_with_what_a_medium_does_not_show():
    """Where all that is below a heading is left out, so is the heading; one above something that is shown stays."""
    chart, folded = Chart("means", Markup("<svg></svg>")), Details("bins", (Paragraph("0.1"),), PAGE_ONLY)
    body = (Heading("Charts"), chart, Heading("Both"), Heading("Drawn", 3), chart, Heading("Told", 3), Paragraph("a"))
    document = ReportDocument("", (), (*body, Heading("Folded"), folded))
    assert render_terminal(document, width=80).split() == ["Both", "Told", "a"]
    assert "Charts" not in render_markdown(document)
    assert "bins" in render_markdown(document)
    assert render_html_page(document, "test").count("<svg") == 2


def test_many_figures_of_a_row_are_named_below_it_in_a_terminal():
    """Each known figure is written after the title of its column; other media have a column for each."""
    columns = (TableColumn("Set"), TableColumn("AUROC", aside=True), TableColumn("F1", aside=True))
    document = ReportDocument("", (Table(columns, (("one", "0.9", "–"),)),))
    assert [line.split() for line in render_terminal(document, width=40).splitlines()] == [["one"], ["AUROC", "0.9"]]
    assert "| one | 0.9 | – |" in render_markdown(document)


def test_an_interval_has_a_picture_where_there_is_room():
    """A terminal draws it with signs, a page as a drawing, and Markdown leaves its column out."""
    columns = (TableColumn("Metric"), TableColumn("", room=60, graphic=True))
    document = ReportDocument("", (Table(columns, (("recall", IntervalMark(0.5, 0.25, 0.75)),)),))
    assert "●" in render_terminal(document, width=80)
    assert "●" not in render_terminal(document, width=50)
    assert render_html_page(document, "test").count("<svg") == 1
    assert "| recall |\n" in render_markdown(document)
