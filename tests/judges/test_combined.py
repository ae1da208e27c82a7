"""Laws of judges made of judges: what a jury pools, and what a cascade shows to its second judge."""

import random
import threading

import pytest
from msgspec.structs import replace

from ragfault import Chunk, Run, Trace, evaluate
from ragfault.cli.commands import run_command
from ragfault.judges.calibration import wrap_judge
from ragfault.judges.combined import AUDIT_SHARE, combine_judges
from ragfault.judges.loading import load_judge, name_cascade, split_members
from ragfault.judges.pooling import PoolWeights, pool_verdicts
from ragfault.labels.judges.calibration import calibrate_judge
from ragfault.labels.judges.runner import RecordedJudge
from ragfault.labels.reading.reference_scores import load_second_scores
from ragfault.model.errors import JudgeError, UnknownName, UsageError
from ragfault.model.records import AnswerVerdict, ClaimVerdict, MemberVerdicts, Usage, Verdicts
from ragfault.stats.classification import auroc
from ragfault.stats.ppi import ppi_mean

CHUNK = Chunk(id="a", text="The museum opens at nine. The café on the roof closes at five.")
ANSWERS = ("The museum opens at nine.", "The café closes at six. It opens at nine.", "Visitors may bring a dog.")
TRACES = [
    Trace(id=str(number), query="When does the museum open?", chunks=(CHUNK,), answer=answer)
    for number, answer in enumerate(ANSWERS)
]


def rate(trace, p, *, refused=False):
    """Return verdicts that give one claim and the answer a probability."""
    support = "supported" if p >= 0.5 else "unsupported"
    answer = trace.answer or ""
    claim = ClaimVerdict(claim=answer, start=0, end=len(answer), support=support, p=p)
    return Verdicts(trace=trace.id, claim=(claim,), answer=AnswerVerdict(relevance=0.5, grounded=p, refused=refused))


class TableJudge(RecordedJudge):
    """Judge with a probability for each trace; it remembers which traces it saw."""

    def __init__(self, name, probabilities):
        super().__init__(name, [])
        self.probabilities, self.seen = probabilities, []

    def observe(self, traces):
        self.seen += [trace.id for trace in traces]
        return [replace(rate(trace, self.probabilities[trace.id]), judge=self.fingerprint) for trace in traces]


def make_traces(count):
    """Make traces of different content."""
    return [
        Trace(id=str(number), query="When?", chunks=(CHUNK,), answer=f"It opens at {number}.")
        for number in range(count)
    ]


# --- a jury ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("left", "right", "unsure"), [(0.9, 0.7, False), (0.9, 0.2, True), (0.1, 0.3, False)])
def test_judges_that_differ_make_a_claim_unsure(left, right, unsure):
    """A claim is unsure where the judges decide differently, and decided where they agree."""
    pooled = pool_verdicts([rate(TRACES[0], left), rate(TRACES[0], right)])["claim"][0]
    assert pooled.unsure is unsure
    assert min(left, right) <= pooled.p <= max(left, right)
    assert (pooled.support == "supported") == (pooled.p >= 0.5)


def test_with_all_weight_on_one_judge_the_jury_is_that_judge():
    """Claims and answers of a jury in which one judge has all weight are that judge's own."""
    members = [load_judge(name).observe(TRACES) for name in ("embedded", "lexical")]
    for first, second in zip(*members, strict=True):
        pooled = pool_verdicts([first, second], PoolWeights((0.0, 1.0), (0.0, 1.0)))
        assert [(item.support, round(item.p, 4)) for item in pooled["claim"]] == [
            (item.support, round(item.p, 4)) for item in second.claim
        ]


def test_a_jury_stores_the_verdicts_of_each_judge(tmp_path):
    """The verdicts of each judge can be read from a run, as it gives them alone."""
    run = evaluate(TRACES, tmp_path / "run", judge="jury:embedded,lexical")
    stored = [verdicts.members for verdicts in Run.open(run.path).verdicts()]
    for number, name in enumerate(("embedded", "lexical")):
        alone = load_judge(name).observe(TRACES)
        assert [members[number].claim for members in stored] == [verdicts.claim for verdicts in alone]
        assert [members[number].chunk for members in stored] == [verdicts.chunk for verdicts in alone]


def test_a_refusal_is_the_majoritys():
    """Two of three judges decide whether an answer refuses; of two the first."""
    yes, no = rate(TRACES[0], 0.9, refused=True), rate(TRACES[0], 0.9)
    assert pool_verdicts([no, yes, yes])["answer"].refused
    assert not pool_verdicts([no, yes])["answer"].refused


def test_what_one_judge_fails_on_is_failed_with_its_name():
    """A judge that fails on a trace fails it for the jury, which says who and why; other traces are judged."""

    class Broken(TableJudge):
        def observe(self, traces):
            if any(trace.id == "1" for trace in traces):
                raise JudgeError("the reply is not a number")
            return super().observe(traces)

    jury = combine_judges([Broken("broken/1", dict.fromkeys("012", 0.9)), load_judge("lexical")])
    verdicts = jury.observe(TRACES)
    assert "broken/1" in verdicts[1].failures["*"]
    assert "not a number" in verdicts[1].failures["*"]
    assert not verdicts[0].failures
    assert verdicts[2].claim


def test_learned_weights_leave_out_a_judge_that_guesses():
    """A jury whose weights are learned ranks held-out answers nearly as well as its best judge, not so equal ones."""
    draw = random.Random(3)
    traces = make_traces(600)
    labels = {trace.id: draw.random() < 0.4 for trace in traces}
    good = {name: min(0.99, max(0.01, (0.3 if bad else 0.7) + draw.gauss(0, 0.2))) for name, bad in labels.items()}
    jury = combine_judges(
        [TableJudge("good/1", good), TableJudge("noise/1", {name: draw.uniform(0.01, 0.99) for name in labels})]
    )
    labeled = [replace(trace, metadata={"label": int(labels[trace.id])}) for trace in traces]
    calibration = calibrate_judge(labeled[:300], judge=jury, group="id")
    line = calibration.get_line("answer")
    assert line.weights[0] > 0.9
    assert sum(line.weights) == pytest.approx(1)

    def rank(judge):
        scores = [1 - verdicts.answer.grounded for verdicts in judge.observe(traces[300:])]
        return auroc(scores, [labels[trace.id] for trace in traces[300:]])

    assert rank(wrap_judge(jury, calibration)) >= rank(jury.members[0]) - 0.005 > rank(jury)


# --- a cascade -------------------------------------------------------------------------------------


def test_the_second_judge_decides_exactly_what_the_first_is_unsure_of():
    """Unsure answers are the second judge's, sure ones the first's; it sees the first kind and some of the second."""
    traces = make_traces(400)
    draw = random.Random(5)
    first = TableJudge("first/1", {trace.id: draw.random() for trace in traces})
    second = TableJudge("second/1", {trace.id: draw.random() for trace in traces})
    verdicts = combine_judges([first, second], 0.8).observe(traces)
    unsure = {name for name, p in first.probabilities.items() if max(p, 1 - p) < 0.8}
    assert unsure <= set(second.seen)
    audited = len(set(second.seen) - unsure) / (len(traces) - len(unsure))
    assert AUDIT_SHARE / 2 < audited < AUDIT_SHARE * 2
    for item in verdicts:
        decider = second if item.trace in unsure else first
        assert item.answer.grounded == decider.probabilities[item.trace]
        assert item.chance == (1.0 if item.trace in unsure else AUDIT_SHARE)


@pytest.mark.parametrize("name", ["jury:embedded,lexical", "cascade@0.9:lexical,embedded"])
def test_a_verdict_depends_on_its_trace_only(name):
    """Alone, in any order or in any batch: the verdicts of a combined judge are the same."""
    judge = load_judge(name)
    together = {verdicts.trace: verdicts for verdicts in judge.observe(TRACES)}
    for trace in reversed(TRACES):
        assert judge.observe([trace]) == [together[trace.id]]


def test_the_second_judge_corrects_the_means_of_a_cascade(tmp_path):
    """Where the first judge is too kind although it is sure, the corrected mean is that of the second."""
    traces = make_traces(1500)
    draw = random.Random(11)
    truth = {trace.id: 0.9 if draw.random() < 0.5 else 0.1 for trace in traces}
    kind = {name: 0.9 if p < 0.5 and draw.random() < 0.3 else p for name, p in truth.items()}
    first = {name: 0.55 if draw.random() < 0.2 else p for name, p in kind.items()}
    judges = [TableJudge("first/1", first), TableJudge("second/1", truth)]
    run = evaluate(traces, tmp_path / "run", judge=combine_judges(judges), metrics=["groundedness"])
    assert load_second_scores(run) is None
    run = evaluate(traces, tmp_path / "cascade", judge=judges[0], escalate=judges[1], metrics=["groundedness"])
    labels = load_second_scores(run)
    scores = {score.trace: score.value for score in run.scores()}
    ids = [trace.id for trace in traces]
    values = labels.values_of("groundedness", ids)
    corrected = ppi_mean(
        [scores[name] for name in ids], values.values, None, sampling_probabilities=values.probabilities
    ).interval
    expected = sum(p >= 0.5 for p in truth.values()) / len(truth)
    assert corrected.low <= expected <= corrected.high
    assert sum(scores.values()) / len(scores) > corrected.high


class MeetingJudge(TableJudge):
    """Judge that costs money, and replies only once every judge of the jury was asked."""

    usage = Usage()

    def __init__(self, name, probabilities, barrier):
        super().__init__(name, probabilities)
        self.barrier = barrier

    def begin(self, budget_id, *, fresh):
        """Begin a budget, of which nothing is spent."""

    def end(self):
        """End; there is nothing to close."""

    def observe(self, traces):
        self.barrier.wait(30)
        return super().observe(traces)


def test_judges_that_wait_are_asked_at_once():
    """No judge of a jury waits for the replies of another, and their verdicts keep the order of the judges."""
    traces, barrier = make_traces(4), threading.Barrier(2)
    judges = [MeetingJudge(f"j{at}/1", {trace.id: p for trace in traces}, barrier) for at, p in enumerate((0.9, 0.2))]
    for verdicts in combine_judges([judges[0], load_judge("lexical"), judges[1]]).observe(traces):
        assert [member.answer.grounded for member in verdicts.members][::2] == [0.9, 0.2]


# --- names -----------------------------------------------------------------------------------------


def test_commas_of_an_address_do_not_split_it():
    """Only a comma before the name of a judge separates two."""
    assert split_members("jury:lexical,onnx:m?labels=a,b,llm:x/y") == ("lexical", "onnx:m?labels=a,b", "llm:x/y")
    assert split_members(name_cascade("embedded", "llm:m", 0.8)) == ("embedded", "llm:m")


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("jury:lexical", UsageError),
        ("jury:lexical,lexical", UsageError),
        ("jury@0.8:lexical,embedded", UsageError),
        ("cascade@2:lexical,embedded", UsageError),
        ("cascade@many:lexical,embedded", UsageError),
        ("cascade:lexical,embedded,none", UsageError),
        ("jury:lexical,llama", UnknownName),
    ],
)
def test_a_name_that_combines_nothing_is_refused(name, error):
    """One judge, the same twice, three in a cascade, a wrong certainty or an unknown judge: an error says so."""
    with pytest.raises(error):
        load_judge(name)


def test_judges_that_cost_money_share_the_budget():
    """The budget of a jury is divided among the judges that spend from it; together they never exceed it."""
    judge = load_judge("jury:llm:ollama/a,lexical,llm:ollama/b", budget=3.0, budget_tokens=1000)
    spending = [member.settings for member in judge.members if hasattr(member, "settings")]
    assert [(item.budget, item.budget_tokens) for item in spending] == [(1.5, 500), (1.5, 500)]


def test_a_profile_reaches_every_judge():
    """A domain profile changes the fingerprint of each judge of a jury."""
    judge = load_judge("jury:embedded,lexical", profile="legal")
    assert judge.fingerprint.count(" lens=legal:") == 2


def test_evaluate_escalates(tmp_path, capsys):
    """The command line takes a second judge and a certainty, and refuses a certainty without a second judge."""
    path = tmp_path / "traces.jsonl"
    path.write_text('{"query": "When?", "chunks": ["It opens at nine."], "answer": "It opens at nine."}\n')
    command = ["evaluate", str(path), "-o", str(tmp_path / "run"), "--judge", "lexical", "-q"]
    assert run_command([*command, "--escalate", "embedded", "--certainty", "0.9"]) == 0
    assert Run.open(tmp_path / "run").manifest.judge.startswith("cascade/1:lexical/")
    assert run_command([*command, "--certainty", "0.9", "--force"]) == 2
    assert "--escalate" in capsys.readouterr().err


def test_members_are_records_of_their_own():
    """What a judge of a jury said holds no further members, so that a run has one level of them."""
    assert "members" not in MemberVerdicts.__struct_fields__


def test_a_misspelled_member_is_named_alone() -> None:
    with pytest.raises(UnknownName, match='no judge "lexicl"'):
        load_judge("jury:embedded,lexicl")
