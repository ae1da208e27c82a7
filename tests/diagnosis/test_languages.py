"""Warnings of traces in a language or in markup that the judge does not know."""

from __future__ import annotations

import pytest

from ragfault import Chunk, Trace, bisect, compare, evaluate, gate
from ragfault.cli.commands import run_command
from ragfault.comparison.investigation.hypotheses import investigate
from ragfault.diagnosis.languages import describe_foreign, describe_wrapped
from ragfault.diagnosis.run_analysis import analyze
from ragfault.io.runs.run import Run
from ragfault.judges.checks.languages import detect_language, is_foreign
from ragfault.report.builders.scorecard import build_verdict
from ragfault.report.renderers.terminal import render_terminal
from remembered import LEXICAL

GERMAN = ("Wie lange dauert die Fahrt nach Norden?", "Die Fahrt nach Norden dauert etwa zwei Stunden.")
ENGLISH = ("How long does the trip to the north take?", "The trip to the north takes about two hours.")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A run of German traces and one of English traces, both judged by words."""
    folder = tmp_path_factory.mktemp("runs")
    evaluated = {}
    for name, (query, answer) in {"german": GERMAN, "english": ENGLISH}.items():
        traces = [
            Trace(id=f"t{at}", query=f"{query} {at}", answer=answer, chunks=(Chunk(id="c", text=answer),))
            for at in range(12)
        ]
        evaluated[name] = evaluate(traces, folder / name, judge=LEXICAL, metrics=["groundedness", "context_relevance"])
    return evaluated


def test_verbs_on_two_runs_and_the_gate_warn_as_evaluate_does(runs: dict[str, Run]):
    """compare, bisect and gate say of which run the judge does not know the language, in print, too."""
    warning = "12 of 12 traces of german have a query or answer in another language; lexical/8 knows English only"
    german, english = runs["german"], runs["english"]
    gated = gate(german, ["groundedness>=0.1"])
    pair = compare(english, german)
    located = bisect(german, german)
    for warnings in (gated.warnings, pair.warnings, located.comparison.warnings):
        assert [text for text in warnings if text.startswith(warning)]
    for result in (gated, pair, located):
        assert warning[:40] in " ".join(str(result).split())


@pytest.mark.parametrize("verb", [["diagnose"], ["diagnose", "--conversations"]])
def test_verbs_on_single_traces_warn_as_well(runs: dict[str, Run], verb: list[str], capsys: pytest.CaptureFixture[str]):
    """What shows single traces says beside them that the judge does not know their language."""
    name, *options = verb
    assert run_command([name, str(runs["german"].path), *options]) == 0
    assert "12 of 12 traces of german have a query or answer in another language" in capsys.readouterr().err
    assert run_command([name, str(runs["english"].path), *options]) == 0
    assert "language" not in capsys.readouterr().err


def test_english_gets_no_warning(runs: dict[str, Run]):
    """No warning where the judge knows the language."""
    english = runs["english"]
    assert not gate(english, ["groundedness>=0.1"]).warnings
    assert not compare(english, english).warnings


def test_the_baseline_of_a_gate_is_looked_at_as_well(runs: dict[str, Run]):
    """A gate beside a German baseline says so; of the run itself it speaks once."""
    result = gate(runs["english"], baseline=runs["german"])
    assert not result.warnings
    assert result.regression is not None
    assert any("of german" in text for text in result.regression.warnings)
    assert str(gate(runs["german"], baseline=runs["german"])).count("12 of 12 traces of german") == 1


@pytest.mark.parametrize(
    "form",
    ['{"answer": "%s"}', '<p title="a b">%s</p>', "%s<script>push(1)</script>", "<think>Hm.</think>%s", "```\n%s\n```"],
)
def test_markup_that_a_judge_by_words_reads_as_words_is_named(form: str, tmp_path):
    """Answers in JSON, with tags, scripts or reasoning are said of one run alone; a model is taken to read them."""
    query, answer = ENGLISH
    chunks = (Chunk(id="c", text=answer),)
    traces = [Trace(id=f"t{n}", query=f"{query} {n}", answer=form % answer, chunks=chunks) for n in range(12)]
    run = evaluate(traces, tmp_path / "marked", judge=LEXICAL, metrics=["groundedness"])
    warning = "12 of 12 answers{} are JSON, or hold tags, code, reasoning or the like, which lexical/8 reads as words"
    assert warning.format("") in " ".join(render_terminal(build_verdict(analyze(run))).split())
    assert gate(run, ["groundedness>=0.1"]).warnings[0].startswith(warning.format(" of marked"))
    investigation = investigate(run)
    assert investigation.confidence is None
    assert " ".join((investigation.sentence, *investigation.warnings)).count(warning.format(" of marked")) == 1
    assert describe_wrapped("llm:some-model/1", 12, 12) is None


def test_short_english_answers_without_articles_are_english():
    """Words such as "yes" and "unless" are English, and so are key words, names, figures and code."""
    assert not is_foreign("Can I renew online? Yes, twice, unless it is reserved.")
    assert is_foreign("Hoe laat gaat het open? De bibliotheek gaat om negen uur open, want het is druk.")
    for text in (
        "Cheap red running shoes, size nine, waterproof, men",
        "Arlen, Borva, Celdin: 12, 30, 45",
        "i am not sure",
        "return np.zeros_like(shape, dtype=np.int8)",
    ):
        assert not is_foreign(text), text


PHRASES = (
    "Dazu kann ich leider nichts sagen, bitte wenden Sie sich an das Personal.",
    "Nie mogę odpowiedzieć na to pytanie.",
    "No puedo responder a esa pregunta.",
    "我无法回答这个问题。",
)


@pytest.mark.parametrize("phrase", PHRASES)
def test_one_phrase_in_another_language_as_every_answer_is_a_fault_of_generation(phrase: str, tmp_path):
    """The chunks are the same and no answer is; of one run alone a judge of English cannot tell, and says so."""
    towns = [f"Arl{letter}n" for letter in "abcdefghijkl"]
    queries = [f"How long does the trip to {town} take?" for town in towns]
    answers = [f"The trip to {town} takes about {at + 20} minutes." for at, town in enumerate(towns)]
    runs = []
    for name, given in (("old", answers), ("new", [phrase] * len(towns))):
        traces = [
            Trace(id=f"t{at}", query=queries[at], answer=given[at], chunks=(Chunk(id=f"c{at}", text=answers[at]),))
            for at in range(len(towns))
        ]
        runs.append(evaluate(traces, tmp_path / name, judge="embedded"))
    located = bisect(*runs)
    assert (located.verdict, [fault.layer for fault in located.faults]) == ("fault", ["generation"])
    alone = investigate(runs[1])
    assert (alone.verdict, alone.confidence) == ("cannot tell", None)
    for text in (alone.sentence, render_terminal(build_verdict(analyze(runs[1])))):
        assert "have a query or answer in another language; embedded/7 knows English only" in " ".join(text.split())


def test_no_target_is_missed_by_verdicts_in_a_language_that_the_judge_does_not_know(runs: dict[str, Run]):
    """A target or threshold that rests on the judge is neither met nor missed on German, whatever it says."""
    thresholds = ["groundedness<0.3", "context_relevance>=0.001"]
    for name, results in (("german", ["cannot tell", "cannot tell"]), ("english", ["fail", "pass"])):
        findings = analyze(runs[name], targets=thresholds)
        assert [row.result for row in findings.scorecard.aggregates] == results
        assert [decision.result for decision in gate(runs[name], thresholds).decisions] == results
        assert name == "english" or all(remedy.may_be_false_positives for remedy in findings.remedies)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("de", "Die Werkstatt ist am Montag geschlossen, weil der Meister nicht da ist."),
        ("fr", "Les billets ne sont pas remboursés, mais ils restent valables dans la semaine."),
        ("es", "El taller está cerrado los lunes porque el maestro no está."),
        ("it", "Il museo non è aperto nel mese di agosto, e la torre nemmeno."),
        ("pt", "A oficina não abre aos domingos, mas os balcões da estação abrem."),
        ("pl", "Warsztat nie jest otwarty w niedzielę, a kasa przez cały dzień się nie zamyka."),
        ("ja", "工房は月曜日に休みます。"),
        ("zh", "作坊星期一不开门。"),
        ("ru", "Мастерская закрыта по понедельникам."),
        ("nl", "De werkplaats is op maandag gesloten."),
        ("en", "The Soviet workshop (Russian: Мастерская) is closed on Mondays."),
        ("en", "Johann Strauss II"),
        ("en", "The workshop is closed on Mondays."),
    ],
)
def test_a_sentence_names_its_language(language: str, text: str):
    """A sentence names its language; names, also in another script, do not."""
    assert detect_language(text) == language


def test_the_languages_that_the_judge_reads_are_named_and_others_are_not_promised():
    """Where most are in languages that it was measured in these are named; else it is said that it was not measured."""
    read = describe_foreign("encoder/8 a=b", {"ja": 2, "de": 9, "ru": 1}, 12)
    assert read is not None
    assert "11 of 12" in read
    assert "German or Japanese" in read
    unread = describe_foreign("encoder/8 a=b", {"ru": 9, "de": 3}, 12)
    assert unread is not None
    assert "9 of 12" in unread
    assert "not measured" in unread
