"""Cards of judges, and scorecards that are corrected by them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from ragfault.cli.commands import run_command as command
from ragfault.diagnosis.run_analysis import analyze
from ragfault.diagnosis.scorecard import build_scorecard
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.datasets.demo_handbook import write_handbook
from ragfault.io.runs.run import Run
from ragfault.judges.cards.card import CardEntry, JudgeCard, list_cards, load_card, read_card, require_card
from ragfault.judges.loading import DEFAULT_JUDGE as USUAL
from ragfault.judges.loading import JUDGES, load_judge
from ragfault.metrics.catalog import parse_metric
from ragfault.metrics.selection import DEFAULT_METRICS
from ragfault.model.errors import InputError, UnknownName, UsageError
from ragfault.model.records import AnswerVerdict
from ragfault.model.rules import RATE_METRICS, get_rate_metric
from ragfault.report import output as json_report
from ragfault.report.builders.judges import build_judge_card
from ragfault.report.builders.scorecard import build_findings
from ragfault.report.format import CORRECTED_HEADING
from ragfault.report.html.report import render_run_html
from ragfault.report.json_documents import encode_document
from ragfault.report.renderers.markdown import render_markdown
from ragfault.report.renderers.terminal import render_terminal
from ragfault.report.wording import describe_judge_trust
from ragfault.stats.estimates import Interval
from ragfault.stats.intervals import correct_share
from remembered import LEXICAL
from sample_runs import evaluate_pairs, pair


def measured(corrects: str, se: float, sp: float, n: int = 400) -> CardEntry:
    """Return invented figures of one kind of verdict."""
    return CardEntry(
        set=f"the {corrects} set",
        shape="long answer",
        level="claim",
        split="held-out sources",
        trained_on=False,
        n=2 * n,
        groups=n,
        share_bad=0.5,
        sensitivity=Interval(se, se - 0.04, se + 0.04, n, n),
        specificity=Interval(sp, sp - 0.04, sp + 0.04, n, n),
        corrects=corrects,  # type: ignore[arg-type]
        command="none",
    )


CARD = JudgeCard(
    judge="told",
    fingerprint="told/1",
    summary="It says what it was told to say.",
    reads="nothing",
    training=(),
    licence="none",
    size="none",
    speed="none",
    measured=(measured("claim", 0.8, 0.9), measured("refusal", 0.9, 0.9)),
    weaknesses=("It knows nothing.",),
)


def some(place: Path, refused: int = 0, metrics: str | list[str] = "default") -> Run:
    """Return the run of forty traces of five claims each, one in five unsupported."""
    pairs = [pair(f"t{at}", "hn", "sssiu" if at % 2 else "susis") for at in range(40)]
    for at in range(refused):
        trace, seen = pairs[at]
        pairs[at] = trace, replace(seen, answer=AnswerVerdict(relevance=1.0, refused=True))
    return evaluate_pairs(place, pairs, metrics)


def only(card, name):
    return next(item for item in card.aggregates if item.metric == name)


# --- the cards of the package ----------------------------------------------------------------------


@pytest.mark.parametrize("name", list_cards())
def test_a_card_is_of_the_judge_as_it_is(name):
    """The figures of each card were measured with the judge that the package makes today."""
    assert name in JUDGES
    try:
        judge = load_judge(name)
    except UsageError as error:
        pytest.skip(f"the judge {name} cannot be made here: {error}")
    assert load_card(name).fingerprint == judge.fingerprint


def test_the_card_without_a_name_is_that_of_the_default_judge():
    """Who names no judge gets the card of the one that looks where none is named."""
    assert load_card().judge == USUAL


@pytest.mark.parametrize("name", list_cards())
def test_a_card_says_what_it_stands_on(name):
    """Each card names weaknesses, provenance and licence, each figure its set, its size and its command."""
    card = load_card(name)
    assert card.judge == name
    assert card.weaknesses
    assert card.training
    assert card.licence
    for item in card.measured:
        assert 0 < item.groups <= item.n
        assert 0 < item.share_bad < 1
        assert item.command
        for result in (item.auroc, item.f1, item.balanced_accuracy):
            if result is not None and result.value is not None and result.low is not None:
                assert result.low <= result.value <= (result.high or 1.0)
        for share in (item.sensitivity, item.specificity):
            assert share is None or 0 <= share.low <= share.mean <= share.high <= 1


@pytest.mark.parametrize("name", list_cards())
def test_one_set_corrects_a_kind_of_verdict_on_a_shape(name):
    """No kind of verdict is corrected by two entries of one shape, and what corrects has both rates."""
    those = [item for item in load_card(name).measured if item.corrects]
    assert len(those) == len({(item.corrects, item.shape) for item in those})
    assert all(item.sensitivity and item.specificity for item in those)


def test_the_default_judge_has_a_card():
    """The card of the default judge is there, and its claim and citation verdicts can be corrected."""
    card = require_card(load_judge().fingerprint)
    assert card.select_entry("claim") is not None
    assert card.select_entry("citation") is not None


def test_a_name_without_a_card_is_an_error():
    """A judge that is not there is named with the nearest that is."""
    with pytest.raises(UnknownName, match='Did you mean "lexical"'):
        load_card("lexicall")


def test_a_file_that_is_no_card_is_an_error(tmp_path: Path):
    """A file that is not there or is something else raises InputError; a card goes through JSON unchanged."""
    (tmp_path / "odd.json").write_text('{"judge": 1}')
    with pytest.raises(InputError, match="is not the card of a judge"):
        read_card(tmp_path / "odd.json")
    with pytest.raises(InputError, match="cannot read "):
        read_card(tmp_path / "none.json")
    (tmp_path / "good.json").write_bytes(msgspec.json.encode(CARD))
    assert read_card(tmp_path / "good.json") == CARD


# --- scorecards corrected by them ------------------------------------------------------------------


def test_the_rates_are_metrics_of_the_default_set():
    """Every metric that can be corrected exists and prints as it stands in the table."""
    for text in RATE_METRICS:
        assert str(parse_metric(text)) == text
    assert sum(get_rate_metric(text) is not None for text in DEFAULT_METRICS) >= 3
    assert get_rate_metric("context_relevance") is None
    assert get_rate_metric("context_relevance(low=0, medium=1)@5") == RATE_METRICS["context_relevance(low=0, medium=1)"]


def test_groundedness_is_corrected_as_the_rest_of_the_bad(tmp_path: Path):
    """A groundedness of 0.8 by a judge of sensitivity 0.8 and specificity 0.9 is 1 − (0.2 − 0.1) / 0.7."""
    card = build_scorecard(some(tmp_path), corrected=CARD)
    result = only(card, "groundedness")
    assert result.interval.mean == pytest.approx(0.8)
    fixed = result.corrected.interval
    assert fixed.mean == pytest.approx(1 - 0.1 / 0.7)
    bad = Interval(0.2, 1 - result.interval.high, 1 - result.interval.low, 40, 40)
    rest = correct_share(bad, CARD.measured[0].sensitivity, CARD.measured[0].specificity).interval
    assert (fixed.low, fixed.high) == pytest.approx((1 - rest.high, 1 - rest.low))


def test_refusals_are_corrected_as_they_are(tmp_path: Path):
    """A refusal rate of 0.25 by a judge of 0.9 and 0.9 is (0.25 − 0.1) / 0.8."""
    result = only(build_scorecard(some(tmp_path, refused=10), corrected=CARD), "refusal")
    assert result.corrected.interval.mean == pytest.approx(0.15 / 0.8)


def test_what_is_no_rate_of_verdicts_stands_as_judged(tmp_path: Path):
    """Only the metrics of the table get corrected figures, and no figure as judged is changed by that."""
    run = some(tmp_path, metrics=["default", "groundedness(strict=true)"])
    plain, fixed = build_scorecard(run), build_scorecard(run, corrected=CARD)
    for item, other in zip(plain.aggregates, fixed.aggregates, strict=True):
        assert item == replace(other, corrected=None)
        assert other.corrected is None or other.metric in RATE_METRICS
    assert only(fixed, "groundedness(strict=true)").corrected is None
    assert plain.correction is None
    assert {item.corrects for item in fixed.correction.figures} == {"claim", "refusal"}


def test_a_kind_of_verdict_that_was_not_measured_says_so(tmp_path: Path):
    """The share of relevant chunks cannot be corrected by a card without the error of chunk verdicts."""
    name = "context_relevance(low=0, medium=1)"
    result = only(build_scorecard(some(tmp_path, metrics=[name]), corrected=CARD), name)
    assert result.corrected.interval is None
    assert result.corrected.reason == "the error of chunk verdicts is not on the card"


def test_figures_are_of_the_shape_that_is_named(tmp_path: Path):
    """By name the error on another shape corrects; a kind measured on one shape alone is corrected by that."""
    card = load_card("lexical")
    assert card.shapes[0] == "long answer"
    assert card.select_entry("claim") is card.select_entry("claim", "long answer")
    assert card.select_entry("citation", "summary") is card.select_entry("citation")
    write_handbook(tmp_path / "handbook")
    where = tmp_path / "handbook/traces-v2.jsonl"
    run = evaluate(where, tmp_path / "run", metrics=["groundedness"], judge=LEXICAL)
    result = only(build_scorecard(run, corrected="summary"), "groundedness")
    by = card.select_entry("claim", "summary")
    bad = Interval(1 - result.interval.mean, 1 - result.interval.high, 1 - result.interval.low, 1, 1)
    rest = correct_share(bad, by.sensitivity, by.specificity).interval
    assert result.corrected.interval.mean == pytest.approx(1 - rest.mean)
    assert only(build_scorecard(run, corrected=True), "groundedness").corrected != result.corrected
    with pytest.raises(UnknownName, match="There is: long answer, summary"):
        build_scorecard(run, corrected="sonnet")


def test_a_judge_without_a_card_is_an_error(tmp_path: Path):
    """A run of a judge that has no card, or of none at all, is not corrected but told."""
    with pytest.raises(UsageError, match='the judge "told" has no card'):
        build_scorecard(some(tmp_path), corrected=True)
    with pytest.raises(UsageError, match="no judge looked at these traces"):
        require_card("")


def test_a_judge_with_other_settings_is_an_error():
    """The card holds for the judge that was measured, not for one with another threshold."""
    with pytest.raises(UsageError, match="was measured with"):
        require_card(load_judge("lexical", supported=0.9).fingerprint)


def test_reports_show_both_figures_and_on_what_they_rest(tmp_path: Path):
    """Terminal, Markdown, HTML, JSON and CSV have the figures as judged and corrected; the note names the set."""
    run = some(tmp_path, refused=1)
    result = analyze(run, corrected=CARD)
    fixed = only(result.scorecard, "groundedness").corrected.interval
    texts = [render_terminal(build_findings(result), width=110), render_markdown(build_findings(result))]
    texts.append(render_run_html(run, result))
    for text in texts:
        assert CORRECTED_HEADING.lower() in text.lower().replace("&#39;", "'").replace("&#x27;", "'")
        assert f"{fixed.mean:.2f}"[:4] in text
        assert "the claim set" in text
        assert "errs here as it did on those labelled data" in " ".join(text.split())
    plain = json.loads(encode_document(result))["scorecard"]
    assert plain["correction"]["figures"][0]["set"] == "the claim set"
    row = next(item for item in plain["aggregates"] if item["metric"] == "groundedness")
    assert row["corrected"]["interval"]["mean"] == pytest.approx(fixed.mean)
    assert f"{fixed.low}" in json_report.encode_findings_csv(result)


def test_reports_say_nothing_of_correction_unasked(tmp_path: Path):
    """Without the option no report has the column."""
    result = analyze(some(tmp_path))
    assert CORRECTED_HEADING not in render_terminal(build_findings(result), width=110).lower()
    assert CORRECTED_HEADING not in render_markdown(build_findings(result)).lower()


def test_a_refuted_assumption_is_shown_instead_of_a_figure(tmp_path: Path):
    """Where fewer claims are called bad than the judge's error alone would make, the report says so."""
    run = evaluate_pairs(tmp_path, [pair(f"t{at}", "h", "sssss") for at in range(60)], ["groundedness"])
    result = analyze(run, corrected=CARD)
    assert only(result.scorecard, "groundedness").corrected.interval is None
    assert "the error here is another" in " ".join(render_terminal(build_findings(result), width=160).split())


# --- the command line ------------------------------------------------------------------------------


@pytest.mark.long
def test_report_corrected_from_the_command_line(demo_runs: Path, tmp_path: Path, monkeypatch, capsys):
    """A run of the default judge is reported with corrected figures; without a card the message says what to do."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(demo_runs / "v2", "v2")
    assert command(["report", "v2", "--corrected"]) == 0
    assert CORRECTED_HEADING in capsys.readouterr().out.lower()
    assert command(["report", "v2", "--like", "summary"]) == 0
    assert "RAGTruth Summary" in capsys.readouterr().out
    some(tmp_path / "told")
    assert command(["report", "told/run", "--corrected"]) == 2
    assert "has no card" in capsys.readouterr().err


def test_cards_are_shown_in_three_forms(capsys):
    """`ragfault judge card` prints the card for the terminal, as Markdown and as JSON; another name is an error."""
    assert command(["judge", "card"]) == 0
    assert "Known weaknesses" in capsys.readouterr().out
    assert command(["judge", "card", "lexical", "--markdown"]) == 0
    assert "| Set |" in capsys.readouterr().out
    assert command(["judge", "card", "--json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out, type=JudgeCard) == load_card()
    assert command(["judge", "card", "lexicall"]) == 2
    assert 'Did you mean "lexical"' in capsys.readouterr().err


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_card_fits_any_width(width):
    """No line of a card is wider than the terminal, and its figures are there at any width."""
    text = render_terminal(build_judge_card(CARD), width=width)
    assert all(len(line) <= width for line in text.splitlines())
    assert "the claim set" in text
    assert "0.800" in text


# --- cards of users --------------------------------------------------------------------------------


def labelled(path: Path) -> Path:
    """Write four labeled answers."""
    rows = [
        {
            "id": f"a{at}",
            "query": "When does it open?",
            "contexts": ["The office opens at 7:30 on weekdays."],
            "answer": answer,
            "label": bad,
        }
        for at, (answer, bad) in enumerate(
            [("It opens at 7:30.", 0), ("It opens at 9:00.", 1), ("At 7:30 on weekdays.", 0), ("At 8:15.", 1)]
        )
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_judge_that_was_measured_has_a_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """judge measure --card keeps the figures; the card is found by the judge's fingerprint and corrects its rates."""
    monkeypatch.chdir(tmp_path)
    labels, place = str(labelled(tmp_path / "labels.jsonl")), ".ragfault/cards/mine.json"
    arguments = ["judge", "measure", labels, "--judge", "lexical", "--task", "support", "--group", "id", "-q"]
    assert command([*arguments, "--card", place]) == 0
    assert command(["judge", "measure", "--help"]) == 0
    assert "Reports show the card in .ragfault/cards." in " ".join(capsys.readouterr().out.split())
    result = require_card(load_judge("lexical").fingerprint)
    (entry,) = result.measured
    assert (entry.level, entry.n, entry.share_bad, entry.corrects) == ("claim", 4, 0.5, "claim")
    assert entry.kappa is not None
    assert command([*arguments, "--card", place]) == 0
    assert len(read_card(place).measured) == 1  # measured again: the entry takes the place of the old one
    monkeypatch.setenv("RAGFAULT_CARDS", str(tmp_path / "elsewhere"))
    assert len(require_card(load_judge("lexical").fingerprint).measured) > 1
    monkeypatch.setenv("RAGFAULT_CARDS", place)
    assert len(require_card(load_judge("lexical").fingerprint).measured) == 1


def test_a_card_of_another_judge_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A file that holds the card of another judge stands, unless --force is given; Markdown goes by the suffix."""
    labels, place = str(labelled(tmp_path / "labels.jsonl")), tmp_path / "card.json"
    assert command(["judge", "measure", labels, "--judge", "lexical", "-q", "--card", str(place)]) == 0
    assert command(["judge", "measure", labels, "--judge", "embedded", "-q", "--card", str(place)]) == 2
    assert "exists already" in capsys.readouterr().err
    page = tmp_path / "card.md"
    assert command(["judge", "measure", labels, "--judge", "embedded", "-q", "--card", str(page)]) == 0
    assert page.read_text(encoding="utf-8").startswith("### The judge embedded")
    assert command(["judge", "card", str(place)]) == 0
    assert "Measured against human labels" in capsys.readouterr().out


def test_how_far_a_judge_can_be_trusted_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With a card the figures of its largest set, without one that it was never measured; nothing without a judge."""
    monkeypatch.chdir(tmp_path)
    known = describe_judge_trust(load_judge("embedded").fingerprint)
    assert known.startswith("embedded/7: measured against human labels on ")
    assert "balanced accuracy 0." in known
    assert "never measured against human labels (ragfault judge measure" in describe_judge_trust("mine/1 model=x")
    other = describe_judge_trust(f"{load_judge('embedded').fingerprint} lens=legal:1a97d0b4")
    assert other.startswith("embedded/7 with lens=legal:1a97d0b4: never measured")
    assert describe_judge_trust("") is None
