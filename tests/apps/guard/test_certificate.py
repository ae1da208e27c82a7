"""Certificates: the bound holds, more labels release more, and what cannot be promised is not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from ragfault.apps.guard.certificate import (
    Certificate,
    RatedAnswer,
    binomial_tail,
    certify,
    certify_answers,
    count_allowed,
    count_needed,
    find_upper_bound,
    measure_design_effect,
    read_certificate,
)
from ragfault.apps.guard.policy import parse_policy
from ragfault.apps.guard.runtime import Guard
from ragfault.apps.guard.traffic import TrafficWatcher, describe_inputs, rank_answer
from ragfault.cli.commands import run_command
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.runs.run import Run
from ragfault.labels.label import Label
from ragfault.labels.reading.label_files import write_labels
from ragfault.model.errors import InputError, UsageError
from ragfault.model.records import Chunk, ClaimSupport, Trace


def draw_answers(rng: np.random.Generator, n: int, group_size: int = 1) -> list[RatedAnswer]:
    """Draw answers whose chance to be bad is risk³; a group shares its risk and, half the time, its label."""
    answers: list[RatedAnswer] = []
    for number in range(n // group_size):
        risk = float(rng.random())
        shared = bool(rng.random() < risk**3)
        for _ in range(group_size):
            bad = shared if rng.random() < 0.5 else bool(rng.random() < risk**3)
            answers.append(RatedAnswer(risk, bad, str(number), {"risk": risk}))
    return answers


def true_risk(threshold: float) -> float:
    """Return P(bad | risk ≤ threshold) of these answers: the mean of the cubes."""
    return threshold**3 / 4


@pytest.mark.long
@pytest.mark.parametrize("group_size", [1, 3])
@pytest.mark.parametrize("alpha", [0.05, 0.1])
def test_the_bound_is_broken_in_at_most_delta_of_draws(alpha: float, group_size: int) -> None:
    rng = np.random.default_rng(7)
    thresholds = [certify_answers(draw_answers(rng, 450, group_size), alpha=alpha).threshold for _ in range(300)]
    broken = np.mean([threshold is not None and true_risk(threshold) > alpha for threshold in thresholds])
    assert broken <= 0.1 + 2 * (0.1 * 0.9 / 300) ** 0.5


def test_more_labels_release_more() -> None:
    rng = np.random.default_rng(1)
    few, many = (
        np.mean([certify_answers(draw_answers(rng, n)).threshold or 0.0 for _ in range(20)]) for n in (150, 1500)
    )
    assert few < many < (4 * 0.1) ** (1 / 3)


def test_too_few_labels_promise_nothing_even_if_all_are_good() -> None:
    answers = [RatedAnswer(i / 21, False, str(i), {"risk": i / 21}) for i in range(21)]
    part = certify_answers(answers)
    assert part.threshold is None
    assert "22 good ones are needed" in part.reason
    more = [*answers, RatedAnswer(1.0, False, "x", {"risk": 1.0})]
    assert certify_answers(more).threshold == 1.0


def test_a_judge_that_ranks_at_random_promises_nothing_above_alpha() -> None:
    rng = np.random.default_rng(3)
    answers = [RatedAnswer(float(rng.random()), bool(rng.random() < 0.3), str(i), {"risk": 0.0}) for i in range(500)]
    part = certify_answers(answers)
    assert part.threshold is None
    assert part.bound is None
    assert "more than 10 %" in part.reason


def test_answers_of_equal_risk_are_released_together() -> None:
    answers = [RatedAnswer(0.2, i >= 90, str(i), {"risk": 0.2}) for i in range(100)]
    assert certify_answers(answers).threshold is None
    assert certify_answers(answers, alpha=0.2).released == 100


def test_the_bound_of_the_released_answers_is_the_exact_one() -> None:
    rng = np.random.default_rng(5)
    part = certify_answers(draw_answers(rng, 400))
    assert part.bound is not None
    assert part.bound <= 0.1
    assert binomial_tail(part.released_bad, part.released, part.bound) == pytest.approx(0.1, abs=1e-9)
    assert find_upper_bound(0, count_needed(0.1, 0.1), 0.1) <= 0.1


def test_copies_of_answers_in_a_group_add_nothing() -> None:
    rng = np.random.default_rng(9)
    thresholds = []
    for _ in range(20):
        single = draw_answers(rng, 200)
        double = [answer for answer in single for _ in range(2)]
        labels = np.array([float(answer.bad) for answer in double])
        assert measure_design_effect(labels, [answer.group for answer in double]) == pytest.approx(2, rel=0.05)
        thresholds.append([certify_answers(answers).threshold or 0 for answers in (single, double)])
    assert np.diff(np.mean(thresholds, axis=0)) <= 0.02


def test_one_group_promises_nothing() -> None:
    """Sixty answers to one question say as much as one: 22 good ones are needed."""
    part = certify_answers([RatedAnswer(i / 60, i % 9 == 0, "When?", {"risk": i / 60}) for i in range(60)])
    assert part.threshold is None
    assert part.reason == (
        "60 labelled answers count as 1.0, as those of a group are alike; 22 good ones are needed at the least"
    )


def test_long_conversations_that_are_all_good_by_chance_break_no_more_promises_than_delta() -> None:
    """One conversation of ten has ten turns of low risk, all good or all bad: no threshold up to 0.4 keeps alpha."""
    rng, broken = np.random.default_rng(3), 0
    for _ in range(200):
        answers: list[RatedAnswer] = []
        while len(answers) < 100:
            turns, bad, name = 10 if rng.random() < 0.1 else 1, bool(rng.random() < 0.12), str(len(answers))
            risk = float(rng.random()) / 2 + (turns == 1) / 2
            answers += [RatedAnswer(risk, bad, name, {"risk": risk})] * turns
        broken += certify_answers(answers).threshold is not None
    assert broken <= 20


def test_thresholds_are_tested_where_one_more_bad_answer_passes() -> None:
    """The 38th answer may be the first bad one, the 37th not: a test there would end the sequence."""
    bad = {37: [37], 38: [38], 30: [30]}
    released = {
        first: certify_answers([RatedAnswer(i / 38, i in at, str(i), {"risk": i / 38}) for i in range(1, 39)]).released
        for first, at in bad.items()
    }
    assert released == {37: 38, 38: 38, 30: 38}
    assert count_allowed(np.array([37, 38]), 1.0, 0.1, 0.1).tolist() == [0, 1]


@pytest.mark.parametrize("wrong", [{"alpha": 0.0}, {"delta": 1.0}, {"start": 1.5}])
def test_shares_outside_of_0_and_1_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        certify_answers([], **wrong)


def make_traces(n: int) -> list[Trace]:
    """Make answers with labels, two routes by turns; one in twelve contradicts its chunk."""
    traces = []
    for i in range(n):
        chunk = Chunk(id="a", text=f"The office in room {i} opens at {i % 9 + 1}:30 on weekdays and closes at noon.")
        bad = i % 12 == 0
        answer = f"It opens at {i % 9 + 2 if bad else i % 9 + 1}:30 on weekdays."
        traces.append(
            Trace(
                id=f"t{i}",
                query=f"When does room {i} open?",
                chunks=(chunk,),
                answer=answer,
                route="web" if i % 2 else "mail",
                metadata={"label": int(bad), "source_id": f"s{i}"},
            )
        )
    return traces


def test_routes_share_delta_and_have_thresholds_of_their_own() -> None:
    pooled = certify(make_traces(80), judge="lexical")
    split = certify(make_traces(80), judge="lexical", routes=("web", "mail"))
    assert [part.route for part in pooled.routes] == [None]
    assert pooled.get_route("web") is pooled.routes[0]
    assert [(part.route, part.delta, part.n) for part in split.routes] == [("web", 0.05, 40), ("mail", 0.05, 40)]
    assert split.get_route("chat") is None
    with pytest.raises(UsageError, match="Routes: mail, web"):
        certify(make_traces(4), judge="lexical", routes=("chat",))


def test_a_certificate_by_words_releases_fewer_answers_with_words_that_no_chunk_has(tmp_path: Path) -> None:
    """The guard decides by the number that was certified: the same risk with other words is held back."""
    certificate = certify(make_traces(80), judge="lexical", ranking="words")
    assert (certificate.ranking, certificate.promises) == ("words", True)
    path = tmp_path / "certificate.json"
    path.write_bytes(msgspec.json.encode(certificate))
    assert read_certificate(path) == certificate
    guard = Guard(parse_policy(f"certificate = '{path}'\n[rails.groundedness]"), judge="lexical")
    released = guard.decide(make_traces(2)[1])
    assert (released.outcome, released.promised) == ("pass", True)
    trace = make_traces(2)[1]
    risk = guard.decide(replace(trace, answer=f"{trace.answer} The purple elephants of Vienna dance there.")).risk
    assert released.risk is not None
    assert risk is not None
    assert released.risk <= released.threshold < risk  # type: ignore[operator]


def test_the_ranking_by_words_rises_with_risk_and_with_unsupported_words() -> None:
    trace = replace(make_traces(1)[0], answer="It opens at noon.")
    longer = replace(trace, answer="It opens at noon for elephants and violins.")
    risks = [rank_answer(trace, risk, "words") for risk in (0.0, 0.2, 0.5, 1.0)]
    assert risks == sorted(set(risks))
    assert rank_answer(longer, 0.2, "words") > rank_answer(trace, 0.2, "words")
    assert all(0 < risk < 1 for risk in risks)


def test_the_command_writes_what_it_promises_and_only_then(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def write(n: int) -> str:
        path = tmp_path / f"{n}.jsonl"
        rows = [
            {"id": t.id, "query": t.query, "contexts": [t.chunks[0].text], "answer": t.answer, **t.metadata}
            for t in make_traces(n)
            if t.chunks
        ]
        path.write_text("\n".join(map(json.dumps, rows)))
        return str(path)

    out = tmp_path / "certificate.json"
    assert run_command(["guard", "certify", write(12), "--judge", "lexical", "-o", str(out), "-q"]) == 3
    assert not out.exists()
    assert run_command(["guard", "certify", write(120), "--judge", "lexical", "-o", str(out)]) == 0
    certificate = read_certificate(out)
    assert isinstance(certificate, Certificate)
    assert certificate.promises
    assert certificate.judge.startswith("lexical")
    assert set(certificate.routes[0].inputs) >= {"risk", "answer_words", "claims", "chunks"}
    shown = " ".join(capsys.readouterr().out.split())
    assert "At most 10 % of the released answers are bad in the long run, with confidence 90 %" in shown


@pytest.fixture(scope="module")
def labelled_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return evaluate(make_traces(240), tmp_path_factory.mktemp("runs") / "run", judge="lexical")


def label_traces(run: Run, path: Path, traces: Sequence[Trace], **fields: Any) -> str:
    """Label all claims of some traces of a run as they are marked."""
    verdicts = run.verdicts([trace.id for trace in traces])
    support: dict[str, ClaimSupport] = {t.id: "contradicted" if t.metadata["label"] else "supported" for t in traces}
    write_labels(
        path,
        [
            Label(
                trace=item.trace,
                subject=("claim", claim.start, claim.end),
                value=support[item.trace],
                **{name: value(at) for name, value in fields.items()},
            )
            for at, item in enumerate(verdicts)
            for claim in item.claim or ()
        ],
    )
    return str(path)


def test_labels_that_are_no_random_sample_of_the_run_are_noted(labelled_run: Run, tmp_path: Path) -> None:
    """Labels of released answers alone would promise a share released of all traffic."""
    traces = make_traces(240)
    sampled = certify(label_traces(labelled_run, tmp_path / "sampled", traces[::3]), run=labelled_run)
    assert (sampled.promises, sampled.notes) == (True, ())
    released = [trace for trace in traces if not trace.metadata["label"]]
    [note] = certify(label_traces(labelled_run, tmp_path / "released", released), run=labelled_run).notes
    assert "no random draw of the run" in note
    assert "20 others" in note


def test_labels_of_traces_sampled_with_unequal_chances_are_refused(labelled_run: Run, tmp_path: Path) -> None:
    traces = make_traces(120)
    with pytest.raises(UsageError, match="unequal chances"):
        certify(
            label_traces(labelled_run, tmp_path / "picks", traces, chance=lambda at: 0.2 + at / 200), run=labelled_run
        )
    assert certify(
        label_traces(labelled_run, tmp_path / "even", traces, chance=lambda at: 0.5), run=labelled_run
    ).promises


@pytest.mark.parametrize(("share", "is_noticed"), [(0.5, False), (0.0, True), (1.0, True)])
def test_a_pooled_promise_is_withdrawn_once_the_mix_of_routes_is_another(share: float, is_noticed: bool) -> None:
    rng = np.random.default_rng(3)

    def draw(share: float) -> RatedAnswer:
        risk, route = float(rng.random()), "web" if rng.random() < share else "mail"
        return RatedAnswer(
            risk, False, str(rng.random()), describe_inputs(Trace(id="1", query="?", route=route), 1, risk), route
        )

    part = certify_answers([draw(0.5) for _ in range(200)])
    watcher = TrafficWatcher(part.inputs)
    shifts = [watcher.observe(draw(share).inputs) for _ in range(200)]
    assert [shift.input for shift in shifts[-1:] if shift] == ["route"] * is_noticed


def test_routes_of_traffic_are_not_watched_where_labels_name_none() -> None:
    answers = [
        RatedAnswer(i / 100, False, str(i), describe_inputs(Trace(id="1", query="?"), 1, i / 100)) for i in range(60)
    ]
    assert "route" not in certify_answers(answers).inputs


def test_a_file_that_is_no_certificate_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "certificate.json"
    place.write_text('{"alpha": 0.1}')
    with pytest.raises(InputError, match="is not a certificate"):
        read_certificate(place)


@pytest.mark.parametrize("risk", [-0.4, 2.5, float("nan")])
def test_a_risk_that_is_no_probability_is_refused(risk: float):
    """Log-odds would be certified at other thresholds, and compared with probabilities at run time."""
    with pytest.raises(UsageError, match="a risk is a probability from 0 to 1"):
        certify_answers([RatedAnswer(risk, False, "1", {})])
    with pytest.raises(UsageError, match="a risk is a probability from 0 to 1"):
        rank_answer(Trace(id="1", query="When?"), risk, "words")


def test_a_ranking_that_does_not_exist_is_refused():
    """It was read as the ranking by words."""
    with pytest.raises(UsageError, match="risk, words"):
        rank_answer(Trace(id="1", query="When?"), 0.1, "odds")  # type: ignore[arg-type]
