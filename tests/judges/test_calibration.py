"""Calibration files, and the judge that applies one."""

import random
from pathlib import Path

import msgspec
import pytest

from ragfault import Chunk, Trace
from ragfault.judges.calibration import (
    CalibrationFigures,
    CalibrationLine,
    JudgeCalibration,
    calibrate_probability,
    calibrate_verdicts,
    read_calibration,
    wrap_judge,
)
from ragfault.judges.loading import load_judge
from ragfault.model.errors import InputError, UsageError
from ragfault.model.protocols import MeteredJudge
from ragfault.model.records import AnswerVerdict, ClaimVerdict, Usage, Verdicts

FIGURES = CalibrationFigures(calibration_error=0.1, bias=0.0, bias_low=-0.1, bias_high=0.1)
CHUNK = Chunk(id="a", text="The museum opens at nine. The café on the roof closes at five.")
TRACES = [
    Trace(id=str(number), query="When does the museum open?", chunks=(CHUNK,), answer=answer)
    for number, answer in enumerate(
        ("The museum opens at nine. The café closes at six.", "Visitors may bring a dog.", "It opens at nine.", "")
    )
]


def make_line(unit, slope=1.0, intercept=0.0, threshold=None, *, helps=True, n=50):
    """Make a line of a calibration."""
    return CalibrationLine(
        unit=unit,
        n=n,
        groups=10,
        base_rate=0.2,
        slope=slope,
        intercept=intercept,
        threshold=threshold,
        before=FIGURES,
        after=FIGURES,
        helps=helps,
    )


def make_calibration(judge, *lines):
    """Make the calibration of a judge."""
    return JudgeCalibration(judge=judge.fingerprint, date="2031-05-04", lines=lines)


@pytest.mark.parametrize("name", ["lexical", "embedded"])
def test_slope_one_and_intercept_zero_change_nothing(name):
    """The identity leaves every verdict as it is, but for the name of the judge."""
    judge = load_judge(name)
    calibrated = wrap_judge(judge, make_calibration(judge, make_line("claim"), make_line("answer")))
    plain, after = judge.observe(TRACES), calibrated.observe(TRACES)
    assert [msgspec.structs.replace(verdicts, judge="") for verdicts in plain] == [
        msgspec.structs.replace(verdicts, judge="") for verdicts in after
    ]
    assert {verdicts.judge for verdicts in after} == {calibrated.fingerprint}


def test_a_line_that_does_not_help_is_not_applied():
    """What the labels did not show to help leaves the verdicts as they are."""
    judge = load_judge("lexical")
    calibrated = wrap_judge(judge, make_calibration(judge, make_line("claim", 3.0, 4.0, 0.1, helps=False)))
    assert [verdicts.claim for verdicts in calibrated.observe(TRACES)] == [
        verdicts.claim for verdicts in judge.observe(TRACES)
    ]


def test_the_order_of_probabilities_never_changes():
    """Whatever the line, what was at least as probable before is so afterwards, and stays within 0 and 1."""
    rng = random.Random(1)
    for _ in range(200):
        line = make_line("claim", 10 ** rng.uniform(-2, 2), rng.uniform(-20, 20))
        values = [calibrate_probability(p, line) for p in sorted([0.0, 1.0, *(rng.random() for _ in range(50))])]
        assert values == sorted(values)
        assert 0 <= values[0] <= values[-1] <= 1


def test_support_is_decided_anew_at_the_threshold():
    """A claim turns bad or good at the threshold and says so; the kinds of good and of bad claims are kept."""
    claims = tuple(
        ClaimVerdict(claim="x", start=0, end=1, support=support, p=p, reason="as judged")
        for support, p in [
            ("supported", 0.9),
            ("inferred", 0.8),
            ("supported", 0.6),
            ("contradicted", 0.2),
            ("unsupported", 0.75),
            ("contradicted", 0.75),
        ]
    )
    verdicts = Verdicts(trace="1", claim=claims, answer=AnswerVerdict(relevance=1.0, grounded=0.5))
    calibration = make_calibration(load_judge("lexical"), make_line("claim", 1.0, 0.0, 0.3, n=120))
    after = calibrate_verdicts(verdicts, calibration)
    assert [claim.support for claim in after.claim] == [
        "supported",
        "inferred",
        "unsupported",
        "contradicted",
        "inferred",
        "inferred",
    ]
    assert [claim.reason for claim in after.claim] == [
        *("as judged", "as judged", "calibrated on 120 labels"),
        *("as judged", "calibrated on 120 labels", "calibrated on 120 labels"),
    ]
    assert after.answer == verdicts.answer


def test_the_answer_has_a_line_of_its_own():
    """An answer with claims is calibrated by its own line; one without claims and one that failed are not."""
    calibration = make_calibration(load_judge("lexical"), make_line("answer", 1.0, 2.0))
    claim = ClaimVerdict(claim="x", start=0, end=1, support="supported", p=0.9)
    verdicts = Verdicts(trace="1", claim=(claim,), answer=AnswerVerdict(relevance=1.0, grounded=0.5))
    after = calibrate_verdicts(verdicts, calibration)
    assert after.answer.grounded == pytest.approx(0.1192, abs=1e-4)
    assert after.claim == (claim,)
    for same in (msgspec.structs.replace(verdicts, claim=()), Verdicts(trace="1", failures={"*": "lost"})):
        assert calibrate_verdicts(same, calibration).answer == same.answer


def test_a_calibration_of_another_judge_is_refused():
    """A file that was made for another judge, other settings or another profile is refused with both names."""
    lexical = load_judge("lexical")
    calibration = make_calibration(lexical, make_line("claim", 1.0, 1.0))
    for other in (load_judge("embedded"), load_judge("lexical", profile="legal"), wrap_judge(lexical, calibration)):
        with pytest.raises(UsageError, match="the calibration is of the judge") as raised:
            wrap_judge(other, calibration)
        assert other.fingerprint in str(raised.value)


def test_a_judge_without_probabilities_is_refused():
    """The judge `none` gives no claims, so that nothing can be calibrated."""
    judge = load_judge("none")
    with pytest.raises(UsageError, match="gives no probabilities"):
        wrap_judge(judge, make_calibration(judge, make_line("claim")))


def test_the_fingerprint_names_what_is_applied(tmp_path: Path):
    """Other lines have another digest; the day and lines that are not applied change nothing; a file keeps it."""
    judge = load_judge("lexical")
    calibration = make_calibration(judge, make_line("claim", 1.0, 1.0))
    path = tmp_path / "calibration.json"
    path.write_bytes(msgspec.json.encode(calibration))
    assert load_judge("lexical", calibration=path).fingerprint == calibration.fingerprint
    assert calibration.fingerprint.startswith(f"{judge.fingerprint} calibration=")
    assert make_calibration(judge, make_line("claim", 1.0, 1.1)).digest != calibration.digest
    same = make_calibration(judge, make_line("claim", 1.0, 1.0), make_line("answer", 2.0, helps=False))
    assert msgspec.structs.replace(same, date="2032-01-01").digest == calibration.digest


HOSTILE = {
    "empty": b"",
    "no object": b"[]",
    "other document": b'{"judge": "lexical"}',
    "not UTF-8": b'{"judge": "\xff"}',
    "deep": b"[" * 100_000,
    "too large": b" " * 1_000_001,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_calibration_is_refused(name, tmp_path: Path):
    """Any other file raises InputError that names it; so does one that is not there, and a folder."""
    (tmp_path / "odd.json").write_bytes(HOSTILE[name])
    for place in (tmp_path / "odd.json", tmp_path / "none.json", tmp_path):
        with pytest.raises(InputError, match=r"is not a calibration|cannot read "):
            read_calibration(place)


@pytest.mark.parametrize(
    ("key", "value"),
    [("slope", 0), ("slope", -1), ("slope", 1e300), ("intercept", 1e9), ("threshold", 2), ("n", 0), ("unit", "chunk")],
)
def test_numbers_out_of_range_are_refused(key, value, tmp_path: Path):
    """A slope that turns the order round, and any number out of its range, is refused."""
    document = msgspec.to_builtins(make_calibration(load_judge("lexical"), make_line("claim")))
    document["lines"][0][key] = value
    (tmp_path / "odd.json").write_bytes(msgspec.json.encode(document))
    with pytest.raises(InputError, match="is not a calibration"):
        read_calibration(tmp_path / "odd.json")


def test_two_lines_of_one_unit_and_control_characters_are_refused(tmp_path: Path):
    """A file with two lines for claims, or a judge whose name would steer a terminal, is refused."""
    twice = make_calibration(load_judge("lexical"), make_line("claim"), make_line("claim", 2.0))
    steering = msgspec.structs.replace(twice, judge="lexical/8\x1b[2J", lines=(make_line("claim"),))
    for document in (twice, steering):
        (tmp_path / "odd.json").write_bytes(msgspec.json.encode(document))
        with pytest.raises(InputError, match="is not a calibration"):
            read_calibration(tmp_path / "odd.json")


class PaidJudge:
    """A judge that costs money."""

    offers = frozenset(["claim"])
    fingerprint = "paid/1"
    budget = ""
    usage = Usage(calls=3)

    def begin(self, budget_id, *, fresh):
        self.budget = f"{budget_id} {fresh}"

    def end(self):
        self.budget = ""

    def observe(self, traces):
        return [Verdicts(trace=trace.id) for trace in traces]


def test_a_paid_judge_stays_one():
    """A calibrated judge that costs money keeps to its budget and reports what it spent; a free one is none."""
    paid = PaidJudge()
    calibrated = wrap_judge(paid, make_calibration(paid, make_line("claim", 1.0, 1.0)))
    assert isinstance(calibrated, MeteredJudge)
    calibrated.begin("run", fresh=True)
    assert (paid.budget, calibrated.usage.calls) == ("run True", 3)
    calibrated.end()
    assert not paid.budget
    lexical = load_judge("lexical")
    assert not isinstance(wrap_judge(lexical, make_calibration(lexical)), MeteredJudge)
