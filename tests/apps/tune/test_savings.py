"""Laws of the calculator of savings, and of judges side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from browser import list_violations, start_browser
from ragfault import evaluate
from ragfault.apps.tune.relevance import compare_relevance
from ragfault.apps.tune.report.savings import _build_rows, render_savings_html
from ragfault.apps.tune.savings import QueryCosts, add_setup, compute_run_savings, compute_savings
from ragfault.cli.commands import run_command
from ragfault.metrics.catalog import compute_score, parse_metric
from ragfault.model.errors import InputError, UsageError
from ragfault.model.records import Chunk, Document, Gold, TokenCounts, Trace, Verdicts


def test_the_worked_example_comes_out():
    """From 0.60 and 0.65 to 0.85 and 0.75 with 100,000 queries at $0.05: US$ 625 a month, 7,500 a year."""
    savings = compute_savings((0.60, 0.85), (0.65, 0.75), QueryCosts(cost=0.05, queries=100_000))
    assert savings.quality == pytest.approx((0.624, 0.797), abs=5e-4)
    assert (savings.monthly, savings.saved, savings.yearly) == ((5000, 4375), 625, 7500)


def test_no_change_saves_nothing_and_costs_never_fall_below_nothing():
    """The same figures before and after leave the cost; however great the gain, tokens are not less than none."""
    same = compute_savings((0.5, 0.5), (0.5, 0.5), QueryCosts(cost=1, queries=10))
    assert (same.saved, same.gain, same.tokens) == (0, 0, 1)
    assert compute_savings((0.1, 1.0), (0.5, 0.5), QueryCosts(cost=1, queries=10)).monthly[1] == 0


def test_the_set_up_is_paid_back_by_what_is_saved(capsys: pytest.CaptureFixture[str]):
    """US$ 3,750 at 625 a month take six months; where nothing is saved they are never paid back."""
    plain = compute_savings((0.60, 0.85), (0.65, 0.75), QueryCosts(cost=0.05, queries=100_000))
    assert add_setup(plain, {}) == plain
    paid = add_setup(plain, {"labelling": 3000, "compliance": 750})
    assert (paid.payback_months, paid.first_year) == (6.0, 3750.0)
    worse = compute_savings((0.85, 0.60), (0.75, 0.65), QueryCosts(cost=0.05, queries=100_000))
    assert add_setup(worse, {"labelling": 10}).payback_months is None
    with pytest.raises(UsageError):
        add_setup(plain, {"labelling": -1})
    command = [
        "tune",
        "savings",
        "--precision",
        "0.6",
        "0.85",
        "--recall",
        "0.65",
        "0.75",
        "--cost",
        "0.05",
        "--queries",
        "1e5",
    ]
    assert run_command([*command, "--setup", "labelling=3000", "--setup", "labelling=750"]) == 0
    assert "labelling US$ 3,750.00): paid back after 6 months" in capsys.readouterr().out.replace("6.0", "6")
    assert run_command([*command, "--setup", "much"]) == 2


@pytest.mark.parametrize("wrong", [((0, 0.5), (0.5, 0.5)), ((1.2, 0.5), (0.5, 0.5)), ((0.5, 0.5), (0, 0.5))])
def test_shares_that_cannot_be_are_refused(wrong: tuple[tuple[float, float], tuple[float, float]]):
    """A precision or recall of nothing before, or outside 0 to 1, has no savings."""
    with pytest.raises(UsageError):
        compute_savings(*wrong, QueryCosts(cost=1, queries=1))


def run(folder: Path, chunks: int, prompt: int, model: str | None = None):
    gold = Gold(chunks={"c0": 1.0})
    texts = tuple(Chunk(id=f"c{at}", text="word " * 20) for at in range(chunks))
    tokens = TokenCounts(prompt=prompt, completion=10)
    trace = Trace(id="1", query="When?", chunks=texts, gold=gold, tokens=tokens, answer="At ten.", model=model)
    return evaluate([trace], folder, metrics=["precision", "recall"])


def test_two_runs_give_measured_figures(tmp_path: Path):
    """Precision and recall are those of the runs, and the factor is that of their tokens."""
    old, new = run(tmp_path / "old", 4, 1000), run(tmp_path / "new", 2, 400)
    savings = compute_run_savings(old, new, QueryCosts(queries=100, cost=0.5))
    assert (savings.precision, savings.recall) == ((0.25, 0.5), (1, 1))
    assert (savings.tokens, savings.monthly, savings.saved) == (0.4, (50, 20), 30)
    assert compute_run_savings(old, new, QueryCosts(queries=100, cost=0.5, extra=0.1)).saved == 20


def test_latency_and_irrelevant_chunks_are_counted():
    """Hours of waiting are queries by latency; what follows the tokens is charged by the share of irrelevant chunks."""
    savings = compute_savings(
        (0.6, 0.85), (0.65, 0.75), QueryCosts(cost=0.05, queries=100_000, extra=0.01, latency=(900, 720))
    )
    assert savings.waiting == (25, 20)
    assert savings.irrelevant == (2000, 656.25)
    assert compute_savings((0.6, 0.85), (0.65, 0.75), QueryCosts(cost=0.05, queries=1)).waiting is None
    with pytest.raises(UsageError, match="at least 0"):
        compute_savings((0.6, 0.85), (0.65, 0.75), QueryCosts(cost=0.05, queries=1, latency=(-1, 1)))


@pytest.mark.long
@pytest.mark.browser
def test_the_page_computes_what_the_command_does(tmp_path: Path):
    """Whatever is typed into the page, its figures are those that Python gives for the same inputs."""
    names = ("precision", "recall", "cost", "queries", "latency", "factor", "extra")
    rows: list[tuple[Any, ...]] = [
        ((0.6, 0.85), (0.65, 0.75), 0.05, 100_000.0, (900.0, 700.0)),
        ((0.31, 0.29), (0.9, 0.4), 0.0021, 123.0, None, 1.37, 0.004),
        ((0.2, 0.97), (0.5, 0.98), 1.25, 40_321.0, (3.0, 2611.0), None, -0.01),
    ]
    cases = [{name: value for name, value in zip(names, row, strict=False) if value is not None} for row in rows]
    apart = ("precision", "recall", "factor")
    first, *_ = results = [
        compute_savings(
            case["precision"],
            case["recall"],
            QueryCosts(**{name: value for name, value in case.items() if name not in apart}),
            case.get("factor"),
            ("<b>x</b>",),
        )
        for case in cases
    ]
    page_file = tmp_path / "savings.html"
    page_file.write_text(render_savings_html(first), encoding="utf-8")
    with start_browser() as chromium:
        page = chromium.new_page()
        noise: list[str] = []
        page.on("console", lambda message: noise.append(message.text))
        page.on("request", lambda request: noise.append(request.url))
        page.goto(page_file.as_uri())
        assert list_violations(page) == []
        for savings, case in zip(results, cases, strict=True):
            figures = {id: (before, after) for id, _, _, before, after in _build_rows(savings)}
            inputs = {"latency-before": "", "latency-after": "", "tokens": "", "extra": ""}
            for name, value in case.items():
                if isinstance(value, tuple):
                    inputs |= {f"{name}-before": str(value[0]), f"{name}-after": str(value[1])}
                else:
                    inputs["tokens" if name == "factor" else name] = str(value)
            for id, text in inputs.items():
                page.fill(f"#{id}", text)
            for id, sides in figures.items():
                shown = tuple(page.inner_text(f"#figures [data-out={id}-{side}]") for side in ("before", "after"))
                assert shown == sides, (id, case)
            assert page.inner_text("#result [data-out=saved-after]") == figures["saved"][1]
            assert page.locator("#fell").is_visible() == (case["precision"][1] < case["precision"][0])
            assert page.locator("#exhausted").is_visible() == (savings.tokens == 0)
        page.fill("#precision-before", "0")
        assert page.locator("#problem").is_visible()
        assert noise == [page_file.as_uri()]
    assert "&lt;b&gt;" in page_file.read_text("utf-8")


def test_the_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The page has the figures that the command prints, before any script runs; nothing is overwritten unasked."""
    page = tmp_path / "savings.html"
    shares = ["--precision", "0.60", "0.85", "--recall", "0.65", "0.75"]
    given = [*shares, "--cost", "0.05", "--queries", "100000", "--latency", "900", "720"]
    assert run_command(["tune", "savings", *given, "--html", str(page)]) == 0
    printed, text = capsys.readouterr().out, page.read_text("utf-8")
    for figure in ("US$ 5,000.00", "US$ 4,375.00", "US$ 7,500.00", "US$ 656.25", "0.797", "20.0"):
        assert figure in printed
        assert figure in text
    assert run_command(["tune", "savings", *given, "--html", str(page)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_a_gain_beyond_the_rule_of_thumb_is_warned_of(capsys: pytest.CaptureFixture[str]):
    """Where the rule leaves no token, nobody is told without a warning that queries become free."""
    terms = ["--recall", "0.5", "0.9", "--cost", "0.05", "--queries", "1000"]
    for after, warned in (("0.8", False), ("0.95", True)):
        assert run_command(["tune", "savings", "--precision", "0.2", after, *terms]) == 0
        assert ("no token would be left" in capsys.readouterr().out) == warned


def test_a_price_is_looked_up_or_asked_for(tmp_path: Path):
    """A model of the catalogue has a price; where no model is known the message says what to give."""
    pytest.importorskip("genai_prices")
    old, new = run(tmp_path / "old", 4, 1000), run(tmp_path / "new", 2, 400)
    with pytest.raises(UsageError, match="model="):
        compute_run_savings(old, new, QueryCosts(queries=100))
    savings = compute_run_savings(old, new, QueryCosts(queries=1_000_000), model="gpt-4o-mini")
    assert savings.monthly[0] > savings.monthly[1] > 0
    assert "genai-prices" in savings.basis[2]


def test_prices_count_answers_and_the_model_of_either_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Halved prompts halve no cost of answers, another model costs its own price, and what fails saves nothing."""
    pytest.importorskip("genai_prices")
    answers = ["The ferry leaves at ten."] * 20
    runs = {
        name: write_run(tmp_path / name, prompts, answers, model=model, failed=failed)
        for name, prompts, model, failed in (
            ("old", [1000] * 20, "gpt-4o", 0),
            ("half", [500] * 20, "gpt-4o", 0),
            ("mini", [1000] * 20, "gpt-4o-mini", 0),
            ("failed", [0] * 8 + [1000] * 12, "gpt-4o", 8),
        )
    }

    def price(prompt: int, model: str) -> float:
        trace = Trace(id="1", query="When?", tokens=TokenCounts(prompt=prompt, completion=10), model=model)
        return compute_score(parse_metric("cost"), trace, Verdicts(trace="1")).value or 0.0

    before = price(1000, "gpt-4o")
    for name, after in (("half", price(500, "gpt-4o")), ("mini", price(1000, "gpt-4o-mini")), ("failed", before)):
        savings = compute_run_savings(runs["old"], runs[name], QueryCosts(queries=1000))
        assert savings.tokens == pytest.approx(after / before), name
        assert savings.saved == pytest.approx(1000 * (before - after), abs=0.006), name
    assert compute_run_savings(runs["old"], runs["failed"], QueryCosts(queries=1000, cost=1)).saved == 0
    given = compute_run_savings(runs["old"], runs["mini"], QueryCosts(queries=1000, cost=1))
    assert "not to change from gpt-4o to gpt-4o-mini" in given.basis[2]
    with pytest.raises(UsageError, match="finite"):
        compute_savings((0.5, 0.5), (0.5, 0.5), QueryCosts(cost=float("nan"), queries=1))


def test_runs_without_a_shared_figure_are_refused(tmp_path: Path):
    """Runs that measured no precision in common cannot be compared."""
    trace = Trace(id="1", query="When?", chunks=(Chunk(id="a", text="x"),))
    old = evaluate([trace], tmp_path / "old", metrics=["error"])
    with pytest.raises(UsageError, match="precision"):
        compute_run_savings(old, old, QueryCosts(queries=1, cost=1))


def test_judges_stand_side_by_side():
    """Each judge scores every chunk; documents are ranked by their best chunk, and gaps say how far judges differ."""
    texts = {"dogs": "Dogs need a lead. They travel free.", "ferry": "The last ferry leaves at 22:40."}
    documents = [Document(id=name, text=text) for name, text in texts.items()]
    comparison = compare_relevance("When does the last ferry leave?", documents, ["lexical", "embedded"])
    assert comparison.documents[0][0] == "ferry"
    assert [len(scored.values) for scored in comparison.scored] == [len(comparison.chunks)] * 2
    assert all(gap >= 0 for gap in comparison.gaps)
    assert all(scored.cost == 0 for scored in comparison.scored)


def test_an_empty_query_and_empty_documents_are_refused():
    """There is nothing to be relevant to, or nothing to be relevant."""
    with pytest.raises(InputError, match="query is empty"):
        compare_relevance("  ", [Document(id="a", text="x")])
    with pytest.raises(InputError, match="has any text"):
        compare_relevance("When?", [Document(id="a", text=" ")], ["lexical"])
    with pytest.raises(UsageError, match="how relevant"):
        compare_relevance("When?", [Document(id="a", text="x")], ["none"])


def write_run(
    folder: Path,
    prompts: list[int | None],
    answers: list[str],
    chunks: int = 2,
    prefix: str = "",
    lost: int = 0,
    model: str | None = None,
    failed: int = 0,
):
    """Evaluate a trace for each prompt size; its first chunk is relevant, and the first `lost` traces lack it.

    The first `failed` traces have an error.
    """
    texts = tuple(Chunk(id=f"c{at}", text=f"The ferry number {at} leaves at ten.") for at in range(chunks))
    traces = [
        Trace(
            id=f"{prefix}{at}",
            query=f"{prefix}When does ferry {at} leave?",
            chunks=texts[1:] if at < lost else texts,
            gold=Gold(chunks={"c0": 1.0}),
            tokens=None if prompt is None else TokenCounts(prompt=prompt, completion=10),
            answer=answer,
            model=model,
            error="timeout" if at < failed else None,
        )
        for at, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
    ]
    return evaluate(traces, folder, metrics=["precision", "recall", "refusal", "error"])


def test_what_paired_runs_save_has_an_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Tokens that scatter around the same mean save nothing that is certain, and those that halve do."""
    answered, refused = "The ferry leaves at ten.", "I don't know."
    old = write_run(tmp_path / "old", [1000 + 40 * (at % 7) for at in range(40)], [answered] * 40)
    same = write_run(tmp_path / "same", [1000 + 40 * ((at * 3 + 2) % 7) for at in range(40)], [answered] * 40)
    half = write_run(tmp_path / "half", [500 + 20 * (at % 7) for at in range(40)], [refused] * 20 + [answered] * 20, 1)
    low, high = compute_run_savings(old, same, QueryCosts(queries=100, cost=1)).saved_interval or (1, 0)
    assert low < 0 < high
    savings = compute_run_savings(old, half, QueryCosts(queries=100, cost=1))
    assert savings.saved_interval == pytest.approx((50, 50), abs=0.5)
    refusals = next(impact for impact in savings.impacts if impact.name == "answers that refuse")
    assert refusals.shares == (0, 0.5)
    assert refusals.monthly == 50
    assert refusals.interval is not None
    assert 25 < refusals.interval[0] < 50 < refusals.interval[1] < 75
    command = ["tune", "savings", "--queries", "100", "--cost", "1", "--runs", str(tmp_path / "old")]
    assert run_command([*command, str(tmp_path / "same")]) == 0
    assert "cannot tell whether it saves" in capsys.readouterr().out
    assert run_command([*command, str(tmp_path / "half")]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("saves US$ 50.00 a month [")
    assert "answers that refuse: 0 % → 50 %, 50 more a month [" in printed


def test_tokens_of_one_kind_are_compared_with_the_same_kind(tmp_path: Path):
    """Recorded prompts of one run are not compared with the chunks of another that records none."""
    answers = ["The ferry leaves at ten."] * 10
    old = write_run(tmp_path / "old", [4000] * 10, answers)
    new = write_run(tmp_path / "new", [None] * 10, answers)
    assert compute_run_savings(old, new, QueryCosts(queries=100, cost=1)).tokens == 1
    part = write_run(tmp_path / "part", [None] * 8 + [4000, 4000], answers)
    assert compute_run_savings(old, part, QueryCosts(queries=100, cost=1)).tokens == 1


def test_runs_of_other_queries_have_no_interval(tmp_path: Path):
    """Where no trace pairs, the figures stand without an interval, and the basis says why."""
    answers = ["The ferry leaves at ten."] * 10
    old, new = (
        write_run(tmp_path / "old", [400] * 10, answers),
        write_run(tmp_path / "new", [200] * 10, answers, prefix="b"),
    )
    savings = compute_run_savings(old, new, QueryCosts(queries=100, cost=1))
    assert (savings.saved, savings.saved_interval, savings.impacts) == (50, None, ())
    assert savings.basis[-1].startswith("no interval: no trace of")


def test_savings_of_a_record_that_is_clipped_are_doubted(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Chunks that one run records in part, and another judge, are named beside what they seem to save."""
    text = "The ferry to the island leaves the old harbour at ten every morning, and returns from the island at noon."
    for name, size, judge in (("old", 200, "embedded"), ("new", 40, "lexical")):
        traces = [
            Trace(
                id=f"{at}",
                query=f"When does ferry {at} leave?",
                answer="At ten.",
                gold=Gold(chunks={f"c{at}": 1.0}),
                chunks=(Chunk(id=f"c{at}", text=f"Line {at}: {text}"[:size]),),
            )
            for at in range(12)
        ]
        evaluate(traces, tmp_path / name, judge=judge, metrics=["precision", "recall", "refusal"])
    command = [
        "tune",
        "savings",
        "--queries",
        "100",
        "--cost",
        "1",
        "--runs",
        str(tmp_path / "old"),
        str(tmp_path / "new"),
    ]
    assert run_command(command) == 0
    _, *warned = [line for line in capsys.readouterr().out.splitlines() if "saves" in line or line.startswith("beware")]
    assert warned[0].startswith("beware: chunk texts of the candidate are only the beginnings of the baseline's")
    assert any("was judged by embedded/7" in line for line in warned)


def test_copies_of_one_trace_say_that_the_saving_is_not_sure(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Where all pairs are one observation there is no interval, and one of the first lines says why."""
    chunks, gold = (Chunk(id="c0", text="The ferry leaves at ten."),), Gold(chunks={"c0": 1.0})
    for name, prompt in (("old", 400), ("new", 200)):
        traces = [
            Trace(id=str(at), query="When?", chunks=chunks, gold=gold, tokens=TokenCounts(prompt=prompt))
            for at in range(30)
        ]
        evaluate(traces, tmp_path / name, metrics=["precision", "recall"])
    command = [
        "tune",
        "savings",
        "--runs",
        str(tmp_path / "old"),
        str(tmp_path / "new"),
        "--queries",
        "100",
        "--cost",
        "1",
    ]
    assert run_command(command) == 0
    assert "beware: how sure the saving is, is not known: " in "".join(capsys.readouterr().out.splitlines(True)[:3])


def test_of_three_pairs_no_interval_of_a_saving_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Three pairs show no saving, nor when it pays a set-up, nor by how many thousands more queries users notice it."""
    for name, prompts in (("old", [400, 420, 380]), ("new", [200, 230, 190])):
        write_run(tmp_path / name, prompts, ["The ferry leaves at ten."] * 3)
    command = [
        "tune",
        "savings",
        "--runs",
        str(tmp_path / "old"),
        str(tmp_path / "new"),
        "--queries",
        "100000",
        "--cost",
        "1",
    ]
    assert run_command([*command, "--setup", "labelling=3000"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("cannot tell what is saved: US$ 100,000.00 → US$ 51,666.67 a month at the tokens of ")
    assert "(labelling US$ 3,000.00): when it is paid back is not known" in printed
    assert "saves" not in printed
    assert "beware: how sure the saving is, is not known: too few independent pairs" in printed
    assert "answers that refuse: 0 % → 0 %, 0 more a month, no interval is known" in printed


def test_a_fall_that_may_be_chance_is_no_warning(tmp_path: Path):
    """Recall that is lower on one of forty traces did not fall; on all of them it did."""
    answers = ["The ferry leaves at ten."] * 40
    old, new = write_run(tmp_path / "old", [400] * 40, answers), write_run(tmp_path / "new", [400] * 40, answers, 4)
    assert compute_run_savings(old, new, QueryCosts(queries=100, cost=1)).fell == ("precision",)
    chance = write_run(tmp_path / "chance", [400] * 40, answers, lost=1)
    savings = compute_run_savings(old, chance, QueryCosts(queries=100, cost=1))
    assert (savings.recall, savings.fell) == ((1, 0.975), ())
    assert compute_savings((0.5, 0.4), (0.5, 0.6), QueryCosts(cost=1, queries=1)).fell == ("precision",)
