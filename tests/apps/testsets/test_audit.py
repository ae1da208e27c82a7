"""Laws of the audit of a corpus."""

from __future__ import annotations

import json
from datetime import date

from ragfault.apps.testsets.audit import audit_corpus
from ragfault.cli.commands import run_command
from ragfault.model.records import Document, Trace

TODAY = date(2026, 1, 31)


def audit(documents, items=()):
    return audit_corpus(documents, items, today=TODAY)


def edit(corpus, number, *pairs):
    """Return a copy of a document under another id with some words replaced."""
    text = corpus[number].text
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return Document(id=f"copy-{number}.md", text=text)


def test_a_sound_corpus_has_no_findings(corpus):
    assert audit(corpus).findings == ()


def test_a_contradiction_in_one_number_negation_or_opposite_is_named(corpus):
    for document, old, new, reason in (
        (
            0,
            "founded by Ann Lee, a carpenter, in 1850",
            "founded by Ann Lee, a carpenter, in 1862",
            "1850 against 1862",
        ),
        (1, "is a lamp that guides Tarvik crews", "is not a lamp that guides Tarvik crews", "denied on one side"),
    ):
        line = next(line for line in corpus[document].text.splitlines() if old in line)
        sentence = next(part for part in line.split(". ") if old in part).strip(".") + "."
        other = Document(id="notice.md", text=f"# Notice\n\nThe harbour committee writes. {sentence.replace(old, new)}")
        findings = [finding for finding in audit([*corpus, other]).findings if finding.kind == "contradiction"]
        assert len(findings) == 1
        assert reason in findings[0].reason
        assert {findings[0].document, findings[0].other_document} == {corpus[document].id, "notice.md"}


def test_statements_on_other_subjects_do_not_contradict():
    texts = (
        "Version 3.1 of Corvane needs 512 MB of memory for the index.",
        "Version 3.2 of Corvane needs 768 MB of memory for the index.",
        "The ferry to Ostrey carries 40 cars on every crossing.",
        "The ferry to Tarvik carries 60 cars on every crossing.",
        "It was built of granite from the old quarry in 1900.",
        "It was built of granite from the old quarry in 1912.",
    )
    documents = [Document(id=f"{at}.md", text=f"# Page {at}\n\n{text} {text}") for at, text in enumerate(texts)]
    assert not [finding for finding in audit(documents).findings if finding.kind == "contradiction"]


def test_records_of_one_form_do_not_contradict():
    documents = [
        Document(id=f"{year}.md", text=f"# Report\n\nThe Hallgate Works sold {year * 7 % 900} cranes to the harbours.")
        for year in range(2001, 2009)
    ]
    assert not [finding for finding in audit(documents).findings if finding.kind == "contradiction"]


def test_a_copied_document_is_a_near_duplicate(corpus):
    copy = edit(corpus, 2, ("winter storms", "autumn storms"))
    findings = [finding for finding in audit([*corpus, copy]).findings if finding.kind == "near-duplicate"]
    assert {finding.other_document for finding in findings} == {"copy-2.md"}
    assert {finding.document for finding in findings} == {corpus[2].id}


def test_dates_are_stale_that_announce_or_state_what_has_passed():
    stale = "The new pier of Lindal will open to ferries in March 2024."
    expired = "The permit of the northern quay is valid until 31 December 2024 for all boats."
    sound = (
        "The new pier of Merrow will open to ferries in March 2031.",
        "The old pier of Ulvik was opened to the ferries in March 1924.",
        "Tickets of the old tariff remained valid until 31 March 2024, and no ferry takes them.",
        "The permit of the southern quay is valid until 31 December 2026 for all boats.",
    )
    document = Document(id="a.md", text="\n\n".join((stale, expired, *sound)))
    findings = [finding for finding in audit([document]).findings if finding.kind == "stale date"]
    assert [finding.text for finding in findings] == [stale, expired]
    assert [document.text[finding.start :].startswith(finding.text) for finding in findings] == [True, True]


def test_sections_without_text_and_documents_without_a_link_are_orphans(corpus):
    linked = [
        Document(id=f"docs/{document.id}", text=f"{document.text}\nSee [the next]({corpus[at - 1].id}).")
        for at, document in enumerate(corpus)
    ]
    alone = Document(
        id="docs/alone.md", text="# Alone\n\nThe lonely page says that the bell rings at noon.\n\n## Empty\n"
    )
    findings = [finding for finding in audit([*linked, alone]).findings if finding.kind == "orphan"]
    assert [(finding.document, finding.text) for finding in findings] == [
        ("docs/alone.md", "Empty"),
        ("docs/alone.md", ""),
    ]


def test_documents_that_no_query_retrieves_are_unreachable(corpus):
    extra = Document(
        id="moss.md", text="# Moss\n\nSphagnum grows on wet peat and keeps twenty times its weight of rain. " * 3
    )
    items = [Trace(id=d.id, query=d.text.partition("\n")[0].strip("# ")) for d in corpus]
    findings = audit([*corpus, extra], items).findings
    assert [finding.document for finding in findings if finding.kind == "unreachable"] == ["moss.md"]
    reached = audit([*corpus, extra], [*items, Trace(id="m", query="rain that sphagnum keeps")]).findings
    assert not [finding for finding in reached if finding.kind == "unreachable"]


def test_the_command_exits_with_1_and_names_what_it_noticed(tmp_path, capsys):
    docs, out = tmp_path / "docs", tmp_path / "findings.jsonl"
    docs.mkdir()
    for name, berths in (("a", 40), ("b", 60)):
        (docs / f"{name}.md").write_text(
            f"# Quay\n\nThe Tarvik quay has {berths} berths for fishing boats in winter.\n"
        )
    assert run_command(["testset", "audit", str(docs), "-o", str(out)]) == 1
    assert "40 against 60" in capsys.readouterr().out
    assert json.loads(out.read_text().splitlines()[0])["kind"] == "contradiction"
    (docs / "b.md").unlink()
    assert run_command(["testset", "audit", str(docs), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {}
