"""Laws of the reports: what they say, and that texts of traces stay texts."""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ragfault import Trace, evaluate
from ragfault.diagnosis.causes.table import CAUSES
from ragfault.diagnosis.records import Findings
from ragfault.diagnosis.run_analysis import analyze, diagnose
from ragfault.model.records import Chunk, Gold, Latency
from ragfault.report import output as json_report
from ragfault.report import run_verdict, safe_text
from ragfault.report.builders.causes import build_head, describe_answers
from ragfault.report.builders.diagnosis import build_diagnoses
from ragfault.report.builders.scorecard import build_findings, build_verdicts
from ragfault.report.document import Table
from ragfault.report.json_documents import encode_document
from ragfault.report.markdown.syntax import escape_markdown
from ragfault.report.renderers.html import render_html
from ragfault.report.renderers.markdown import render_markdown
from ragfault.report.renderers.terminal import render_first_fitting, render_terminal
from ragfault.report.wording import describe_judge_trust, list_run_warnings
from ragfault.text.number_format import format_percent
from remembered import LEXICAL
from sample_runs import evaluate_pairs, pair

NASTY = "\x1b[31m[red]evil[/red]\x1b]8;;http://x.example\x07 | <script>alert(1)</script>\n# *b* @you \u202e `c` &amp;"


@pytest.fixture(scope="module")
def findings(tmp_path_factory) -> Findings:
    """A run with a bit of everything, on two routes."""
    pairs = [
        pair("a", "hmm", "ss", route="faq", time=datetime(2026, 5, 1, tzinfo=UTC)),
        pair("b", "nn", "uc", used="--", relevance=0.1, missing=("the date",), route="faq"),
        pair("c", "h", "", route="law", latency=Latency(total=1200)),
        pair("d", "hn", "su", route="law"),
    ]
    return analyze(evaluate_pairs(tmp_path_factory.mktemp("report"), pairs))


@pytest.fixture(scope="module")
def nasty(tmp_path_factory) -> Findings:
    """A run whose every text from outside is hostile."""
    trace, seen = pair("a", "hn", "su", missing=(NASTY,), error=NASTY)
    trace = replace(trace, id=NASTY, query=NASTY, route="=cmd|' /C calc'!A1" + NASTY, answer=NASTY)
    trace = replace(trace, chunks=tuple(replace(chunk, text=NASTY) for chunk in trace.chunks))
    seen = replace(
        seen,
        trace=NASTY,
        claim=tuple(replace(claim, claim=NASTY) for claim in seen.claim),
        chunk=tuple(replace(chunk, reason=NASTY) for chunk in seen.chunk),
        failures={"truth": NASTY},
    )
    other = pair("b", "h", "s", route="\x1b[2J@evil")
    trace = replace(trace, reference="x")
    return analyze(evaluate_pairs(tmp_path_factory.mktemp("nasty"), [(trace, seen), other]))


# --- plain -----------------------------------------------------------------------------------------


@given(st.text())
def test_a_clean_text_is_one_harmless_line(text):
    """Whatever goes in, no control character, escape or line end comes out; cleaning twice changes nothing."""
    clean = safe_text.clean_text(text)
    assert not {unicodedata.category(sign) for sign in clean if sign not in "\u200c\u200d"} & {"Cc", "Cf", "Cs"}
    assert "\x1b" not in clean
    assert "\n" not in clean
    assert safe_text.clean_text(clean) == clean


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[1;31mX\x1b[0m",
        "\x1b]0;title\x07X",
        "\x1b]8;;http://e\x1b\\X",
        "\x9b31mX",
        "\x1bPq#0\x1b\\X",
        "\x1b(BX",
        "X\x1b",
    ],
)
def test_terminal_sequences_are_removed_completely(text):
    """Not only the escape character is dropped but the sequence that it begins."""
    assert safe_text.clean_text(text) == "X"


@given(st.floats(0, 1))
def test_a_percentage_never_rounds_to_all_or_nothing(share):
    """100 % means all, 0 % means none."""
    assert (format_percent(share) == "100 %") == (share == 1)
    assert (format_percent(share) == "0 %") == (share == 0)


# --- terminal --------------------------------------------------------------------------------------


def test_the_scorecard_shows_each_layer_with_counts_and_targets(findings):
    """A line for a metric: mean, interval, plot, scored, undefined, failed, and how its target stands."""
    text = render_terminal(build_findings(findings), width=110)
    line = next(line for line in text.splitlines() if line.startswith("groundedness"))
    assert line.split()[1] == "0.500"
    assert line.split()[-10:] == ["3", "of", "4", "1", "0", ">", "0.85", "?", "cannot", "tell"]
    assert "[too few]" in line
    assert "●" not in line
    for heading in (
        "Retrieval",
        "Generation",
        "Across the layers",
        "Operation",
        "Trade-offs",
        "RAG health",
        "Worst traces",
        "What to change",
        "By route",
    ):
        assert f"\n{heading}" in text, heading
    assert "contradiction ↓" in text


def test_metrics_without_a_value_share_a_line_with_their_reason(findings):
    """What is undefined everywhere is told once, by reason, and not in the tables."""
    text = render_terminal(build_findings(findings), width=300)
    assert "recall@5, precision@5, hit@5, ndcg@10, reciprocal_rank: no gold" in text
    assert text.count("ndcg@10") == 1


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal(findings, width):
    """Narrow terminals get fewer columns and folded texts."""
    text = render_terminal(build_findings(findings), width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "groundedness" in text


def test_colour_only_where_asked(findings):
    """Without colour there is no escape sequence; with it the words are the same."""
    bare, painted = (
        render_terminal(build_findings(findings), width=90),
        render_terminal(build_findings(findings), width=90, color=True),
    )
    assert "\x1b" not in bare
    assert "\x1b[" in painted
    words = [safe_text.clean_text(line).split() for line in painted.splitlines()]
    assert words == [line.split() for line in bare.splitlines()]


def test_the_first_screen_counts_each_bad_answer_once(tmp_path):
    """Answers sum to the traces and causes to the bad answers; the fix first is the one that reaches most of them."""
    chunk = (Chunk(id="a", text="The pier opens at nine and closes at ten."),)
    given = {"It opens at nine.": 9, "It was painted green by forty apprentices.": 6, "": 3}
    answers = [answer for answer, count in given.items() for _ in range(count)]
    traces = [
        Trace(id=f"{n}", query=f"When does pier {n} open?", chunks=chunk, answer=answer, reference="At nine.")
        for n, answer in enumerate(answers)
    ]
    findings = analyze(evaluate(traces, tmp_path / "run", judge=LEXICAL))
    counts = findings.answers
    assert (counts.right, counts.bad, counts.total) == (9, 9, 18)
    assert sum(cause.answers for cause in counts.causes) == counts.bad
    assert sum(fix.answers for fix in counts.fixes) <= counts.bad
    assert counts.fixes[0].answers == max(fix.answers for fix in counts.fixes)
    for shown in (1, 2, 9):
        table = next(block for block in build_head(findings, shown=shown) if isinstance(block, Table))
        assert sum(int(row[0]) for row in table.rows) == counts.bad


def test_the_head_is_the_same_in_every_format(findings):
    """The terminal, Markdown and HTML state the sentence on the answers."""
    sentence = describe_answers(findings.answers)
    for text in (
        render_terminal(build_findings(findings), width=200),
        render_markdown(build_findings(findings)),
        render_html(build_findings(findings).lead),
    ):
        assert safe_text.clean_text(sentence).split(";")[0].split("(")[0] in text


def test_retrieval_is_rated_by_gold_and_not_by_chunks_of_no_use(tmp_path):
    """Four of five chunks are of no use and the gold is always first: all of it was found, at rank 1."""
    others = tuple(Chunk(id=f"o{n}", text=f"Moorings of row {n} cost the same.") for n in range(4))
    traces = [
        Trace(
            id=f"{n}",
            query=f"When does pier {n} open?",
            chunks=(Chunk(id="a", text="The pier opens at nine."), *others),
            answer="It opens at nine.",
            gold=Gold(chunks={"a": 1}),
        )
        for n in range(20)
    ]
    findings = analyze(evaluate(traces, tmp_path / "run", judge=LEXICAL))
    summary = findings.retrieval
    assert (summary.source, summary.recall.mean, summary.rank, summary.chunks) == ("gold", 1.0, 1.0, 5.0)
    assert summary.useful < 5
    assert findings.health[0].interval == summary.recall


def test_a_run_without_rated_answers_says_what_was_measured(tmp_path):
    """Where no answer is rated, the first screen has no cause and no fix."""
    for name, trace in (
        ("terse", Trace(id="1", query="Who built pier 1?", answer="Ada Byron")),
        ("none", Trace(id="1", query="When?", reference="At ten.")),
    ):
        findings = analyze(evaluate(iter([trace]), tmp_path / name, judge=LEXICAL))
        assert (findings.answers.right, findings.answers.bad) == (0, 0)
        assert not any(isinstance(block, Table) for block in build_head(findings))
    run = evaluate_pairs(tmp_path / "some", [pair("a", "h", "s")], ["precision@5", "recall@5", "redundancy", "latency"])
    assert any("redundancy 0.000" in line for line in run_verdict.describe_unrated(analyze(run)))


def test_eight_traces_have_intervals_with_a_picture(tmp_path):
    """From eight independent traces on a metric has an interval and a picture of it."""
    texts = []
    for count in (7, 8):
        pairs = [pair(f"t{at}", "h", "s") for at in range(count)]
        run = evaluate_pairs(tmp_path / str(count), pairs, ["redundancy", "groundedness"])
        texts.append(render_terminal(build_findings(analyze(run)), width=110))
    assert ["●" in text for text in texts] == [False, True]
    assert ["[too few]" in text for text in texts] == [True, False]


def test_a_run_in_another_language_warns_of_a_judge_that_knows_english_only(tmp_path):
    """Every format warns where a tenth of the traces is not English, and none does of English or of a model."""
    german = ("Wie lange ist die Frist zum Ende?", "Die Frist dauert drei Monate, nicht sechs.")
    english = ("How long is the notice to the end?", "The notice takes three months, not six, from the first day.")
    pairs = [pair(f"t{number}", "h", "s") for number in range(12)]

    def analyze_texts(name, foreign):
        texts = [german if number < foreign else english for number in range(12)]
        changed = [
            (replace(trace, query=text[0], answer=text[1]), verdicts)
            for (trace, verdicts), text in zip(pairs, texts, strict=True)
        ]
        findings = analyze(evaluate_pairs(tmp_path / name, changed, ["redundancy"]))
        assert findings.languages.get("de", 0) == foreign
        return replace(findings, manifest=replace(findings.manifest, judge="embedded/7 a=b"))

    many, few, none = analyze_texts("two", 2), analyze_texts("one", 1), analyze_texts("none", 0)
    [warning] = list_run_warnings(many)
    assert "at least 2 of 12 traces have a query or answer in another language; embedded/7" in warning
    for page in (render_terminal(build_findings(many)), render_markdown(build_findings(many))):
        assert "at least 2 of 12 traces" in page.splitlines()[2] + page.splitlines()[4]
    assert list_run_warnings(few) == list_run_warnings(none) == []
    model = replace(many, manifest=replace(many.manifest, judge="llm:some-model/1"))
    assert list_run_warnings(model) == []
    measured = replace(many, manifest=replace(many.manifest, judge="encoder/8 a=b"))
    [warning] = list_run_warnings(measured)
    assert "German" in warning


def test_no_problem_is_called_absent_where_no_judge_looked(tmp_path):
    """A run without a judge says that nobody looked, and has no trust in a judge to describe."""
    findings = analyze(evaluate_pairs(tmp_path, [pair("a", "h", "s")], ["redundancy"]))
    findings = replace(findings, remedies=(), manifest=replace(findings.manifest, judge="none"))
    assert run_verdict.describe_no_problem(findings) == "No problem was looked for: there was no judge."
    failed = replace(findings, manifest=replace(findings.manifest, judge="llm/2", failed=3))
    assert run_verdict.describe_no_problem(failed) == "No problem was found where there are scores; 3 failed."
    assert describe_judge_trust("none") is None


def test_no_problem_is_called_absent_where_nothing_was_measured(tmp_path):
    """Questions without contexts and answers have no problem, since none was looked for."""
    findings = analyze(
        evaluate(iter([Trace(id="1", query="When?", reference="At ten.")]), tmp_path / "run", judge=LEXICAL)
    )
    assert run_verdict.describe_no_problem(findings).startswith("No problem was looked for: no metric of retrieval")


@pytest.mark.parametrize("text", [NASTY, NASTY * 40])
def test_the_summary_is_short_and_harmless_whatever_the_traces_hold(nasty, text):
    """Long and hostile texts neither leave 25 lines of 80 columns nor bring control characters."""
    causes = tuple(replace(item, examples=(text,)) for item in nasty.answers.causes)
    hostile = replace(nasty, answers=replace(nasty.answers, causes=causes))
    lines = render_first_fitting(build_verdicts(hostile, "runs/" + text[:50]), 25, width=80)
    assert len(lines.splitlines()) <= 25
    assert max(map(len, lines.splitlines())) <= 80
    assert "\x1b" not in lines


def test_texts_of_traces_are_never_markup_in_the_terminal(nasty):
    """Rich markup is shown as it stands, escape sequences are gone."""
    text = render_terminal(build_findings(nasty), width=500)
    assert "[red]evil[/red]" in text
    assert not any(sign in text for sign in "\x1b\x07\u202e")
    described = render_terminal(build_diagnoses(nasty.worst), width=500)
    assert "[red]evil[/red]" in described
    assert not any(sign in described for sign in "\x1b\x07\u202e")


def test_a_diagnosis_in_full():
    """Every problem with its reason and the remedies of its kind once; a trace without one says so."""
    text = render_terminal(
        build_diagnoses([diagnose(*pair("x", "hnn", "uu")), diagnose(*pair("y", "h", "s"))]), width=200
    )
    assert "irrelevant chunks ×2" in text
    assert "unsupported claims ×2" in text
    assert text.count(f"bad, {CAUSES['invented'].stage}: {CAUSES['invented'].title}") == 1
    assert text.count("require a citation for each claim") == 1
    assert "no problem among 3 things looked at" in text


# --- Markdown --------------------------------------------------------------------------------------


def cells(line):
    """Split a row of a table into its cells."""
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_every_table_is_complete(findings):
    """Each row of a table has as many cells as its heading."""
    width = 0
    for line in render_markdown(build_findings(findings)).splitlines():
        if not line.startswith("|"):
            width = 0
            continue
        width = width or line.count("|")
        assert line.count("|") == width, line


def test_the_markdown_holds_the_scorecard(findings):
    """A row of the table is the aggregate."""
    text = render_markdown(build_findings(findings))
    row = next(cells(line) for line in text.splitlines() if line.startswith("| `groundedness` |"))
    assert row[1] == "0.500"
    assert row[3:6] == ["3 of 4", "1", "0"]
    assert "❔ cannot tell" in row[6]
    assert "<summary>Insights" in text


def test_texts_of_traces_are_never_markdown(nasty):
    """No tag, pipe, heading, link, mention or code of a trace takes effect, and no table is broken by one."""
    text = render_markdown(build_findings(nasty))
    assert "<script" not in text
    assert "&amp;amp;" not in text
    assert "&#60;script&#62;" in text
    assert "@you" not in text
    assert "[red]" not in text
    assert "`c`" not in text
    assert "\x1b" not in text
    test_every_table_is_complete(nasty)


@given(st.text())
def test_escaped_text_has_no_active_sign(text):
    """Whatever goes in, what comes out holds no sign that Markdown acts on, save the entities themselves."""
    import html

    escaped = escape_markdown(text)
    assert not set(escaped) & set("\\`*_{}[]<>|~@!$")
    assert html.unescape(escaped).replace("&", "") == safe_text.clean_text(text).replace("&", "") or "&" in text


# --- JSON and CSV ----------------------------------------------------------------------------------


def test_json_is_the_record(findings):
    """The JSON reads back as the findings, every field by name; no NaN or Infinity stands in it."""
    text = encode_document(findings)
    data = json.loads(text, parse_constant=pytest.fail)
    assert data["scorecard"]["aggregates"][0]["metric"] == findings.scorecard.aggregates[0].metric
    assert [item["kind"] for item in data["remedies"]] == [item.kind for item in findings.remedies]
    latency = next(item for item in data["scorecard"]["aggregates"] if item["metric"] == "latency")
    assert latency["interval"]["high"] is None
    assert [item["count"] for item in data["quality"]] == [item.count for item in findings.quality]


def test_csv_has_a_row_for_every_metric_and_segment(findings):
    """All traces first, then each route; numbers are numbers and what is absent is empty."""
    rows = list(csv.DictReader(io.StringIO(json_report.encode_findings_csv(findings))))
    assert tuple(rows[0]) == json_report.CSV_COLUMNS
    assert len(rows) == 3 * len(findings.scorecard.aggregates)
    row = next(row for row in rows if row["metric"] == "groundedness")
    assert (float(row["mean"]), row["scored"], row["undefined"], row["result"]) == (0.5, "3", "1", "cannot tell")
    assert {row["segment"] for row in rows} == {"", "faq", "law"}
    silent = next(row for row in rows if row["metric"] == "ndcg@10")
    assert (silent["mean"], silent["reason"]) == ("", "no gold")


def test_no_cell_is_a_formula(nasty):
    """A text that begins like a formula begins with an apostrophe, on one line, without control characters."""
    rows = list(csv.DictReader(io.StringIO(json_report.encode_findings_csv(nasty))))
    assert any(row["segment"].startswith("'=cmd") for row in rows)
    assert any(row["segment"] == "'@evil" for row in rows)
    for row in rows:
        for name in ("by", "segment", "metric", "target", "reason"):
            assert not row[name].startswith(("=", "+", "-", "@", "\t", "\r"))


@given(st.text())
def test_a_cell_is_never_a_formula(text):
    """Whatever goes in, no spreadsheet takes it for one."""
    assert not json_report.escape_csv_cell(text).startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
