"""Laws of the domain profiles: what must agree exactly, what agrees in another spelling, errors of a profile."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragfault import evaluate
from ragfault.cli.commands import run_command as command
from ragfault.io.datasets.demo_handbook import write_handbook
from ragfault.io.trace_reader import read_traces
from ragfault.judges.assembly import grade_relevance
from ragfault.judges.domain import profile as domain_profile
from ragfault.judges.domain.identifiers import align_spelling, detect_conflict, explain_query_conflict
from ragfault.judges.domain.mentions import FORM_PARSERS, extract_mentions
from ragfault.judges.domain.profile import (
    IDENTIFIER_FORMS,
    PROFILES,
    SEARCH_WINDOW,
    DomainProfile,
    RelevanceLevels,
    check_pattern,
    iterate_matches,
    load_profile,
    read_profile,
)
from ragfault.judges.loading import load_judge
from ragfault.model.errors import InputError, JudgeError, UnknownName, UsageError
from ragfault.model.protocols import Judge
from ragfault.model.records import Chunk, Trace, Verdicts

DOMAINS = [name for name in PROFILES if name != "general"]

QUERY_CASES = {
    "legal": [
        ("What does Section 12 say?", "Section 9 covers leave.", False),
        ("What does Section 12 say?", "Sections 9 and 12 cover leave.", True),
        ("What does § 12 say?", "Sec. 12 covers leave.", True),
        ("What does Section 12 say?", "Section 12(b) covers leave.", True),
        ("What does Section 12(b) say?", "Section 12(a) covers leave.", False),
        ("What does Section 12(b) say?", "Section 12. Leave. (a) Clerks. (b) Managers.", True),
        ("Explain Section 12.", "Sections 9 to 14 apply to leave.", True),
        ("Explain Section 12.", "Sections 13 to 14 apply to leave.", False),
        ("Explain Section 12.", "12. Leave\nLeave is granted under Section 9.", True),
        ("Explain Section 12.", "Subject to Section 9, leave is granted.", True),
        ("Explain Section 12.", "Article 9 covers leave.", True),
        ("What does Section 12-301 say?", "§ 12-302 covers leave.", False),
        ("Which section replaced Section 9?", "Section 12 replaced it.", True),
        ("What does Article IV say?", "Article 4 is about trade.", True),
        ("What does Article IV say?", "Article V is about trade.", False),
        ("Who may sue under 42 U.S.C. § 1983?", "42 USC 1983 lets a person sue.", True),
        ("Who may sue under 42 U.S.C. § 1983?", "42 U.S.C. § 1985 lets a person sue.", False),
        ("Fines of Regulation (EU) 2016/679?", "Regulation (EU) 2018/1725 has fines.", False),
        ("What was held in No. 19-1392?", "In No. 20-5279, the court held nothing.", False),
        ("What was held in C-311/18?", "In C-311/18 the court held much.", True),
    ],
    "medical": [
        ("What is the dose of oral vancomycin?", "Vancomycin 1 g IV every 12 hours.", True),
        ("Is oral vancomycin of use?", "Vancomycin IV is given every 12 hours.", False),
        ("Is oral vancomycin of use?", "Vancomycin by mouth is of use.", True),
        ("Therapy of stage IV melanoma", "Oral dabrafenib is given.", True),
        ("Do the 250 mg tablets hold lactose?", "Each 500 mg tablet holds lactose.", False),
        ("Do the 0.5 g tablets hold lactose?", "Each 500 mg tablet holds lactose.", True),
        ("Is 20 mg safe?", "The maximum dose is 40 mg.", True),
        ("Costs for ICD-10 E11.9", "ICD-10 E10.9 is costly.", False),
    ],
    "financial": [
        ("Revenue in Q3 2023?", "Revenue for the third quarter of 2023 rose.", True),
        ("Revenue in Q3 2023?", "Q2 2023 revenue rose.", False),
        ("Revenue in Q3 2023?", "In the three months to 30 September 2023 revenue rose.", True),
        ("Revenue in FY2022?", "Fiscal 2023 revenue rose.", False),
        ("Revenue in fiscal year 2022?", "FY22 revenue rose.", True),
        ("Margin in H1 2023?", "The Q2 2023 margin rose.", True),
        ("Margin in H1 2023?", "The H2 2023 margin rose.", False),
        ("Net income of 2022?", "Compared with 2021, net income rose.", True),
        ("When was the loss of 2022 made up for?", "In 2023.", True),
        ("Risks in the 10-K?", "The 10-Q has no risks.", False),
        ("Leases under IFRS 16", "Under IFRS 15 revenue is told.", False),
        ("Price of NYSE: IBM", "NYSE: GE rose.", False),
    ],
    "technical": [
        ("How is version 2.4 installed?", "Version 2.3 is installed so.", False),
        ("How is version 2.3 installed?", "v2.3.1 is installed so.", True),
        ("How is v2.3.1 installed?", "2.3.1 is installed so.", True),
        ("How is 2.3.1 installed?", "In version 2.3.2, install it so.", False),
        ("How is 2.3.1 installed?", "In version 2.3, install it so.", True),
        ("How is version 2.4 installed?", "It requires 2.3 or later.", True),
        ("What changed since version 2.3?", "Version 2.4 adds flags.", True),
        ("What does json.loads() do?", "json.dumps() writes text.", False),
        ("What does json.loads() do?", "loads() reads text.", True),
        ("What is CVE-2021-44228?", "CVE-2021-45046 is a flaw.", False),
        ("What is RFC 7231?", "RFC 9110 is about HTTP.", False),
        ("What does error E1234 mean?", "Error E1235 means trouble.", False),
        ("When is HTTP 404 sent?", "Status 500 is sent in trouble.", False),
        ("What does --dry-run do?", "--verbose says more.", False),
        ("Is it in versions 2.3 and 2.4?", "It is in version 2.4.", True),
    ],
}
CLAIM_CASES = {
    "legal": [
        ("Section 12 covers leave.", "Section 9 covers leave.", False),
        ("Section 12 covers leave.", "§ 12(b) covers leave.", True),
        ("Section 12(b) covers managers.", "Section 12. Leave. (a) Clerks. (b) Managers.", True),
        ("Section 12(b) covers managers.", "Section 12 covers managers.", False),
        ("It takes effect on 3 March 2021.", "It takes effect on March 3, 2021.", True),
        ("It takes effect on 3 March 2021.", "It takes effect on 2021-03-04.", False),
        ("Appeal within six months.", "Appeal within 6 months.", True),
        ("Appeal within 30 days.", "Appeal within 60 days.", False),
        ("The sections I was given say so.", "Section 55 says so.", True),
    ],
    "medical": [
        ("Give 10 mg daily.", "Give 10 mcg daily.", False),
        ("Give 0.5 g daily.", "Give 500 mg daily.", True),
        ("Give 5 mg/kg per day.", "Give 5 mg/kg/day.", True),
        ("Warfarin 10 mg daily.", "Warfarin 10 mcg daily. Aspirin 10 mg weekly.", False),
        ("Aspirin 10 mg weekly.", "Warfarin 10 mcg daily. Aspirin 10 mg weekly.", True),
        ("At most 40 mg per day.", "Start with 20 mg. Up to 40 mg per day is allowed.", True),
        ("The dose is 5 mg.", "| dose (mg) |\n|---|\n| 5 |", True),
        ("Give it twice daily.", "Give it BID.", True),
        ("Give it twice daily.", "Give it once daily.", False),
        ("Give it intravenously.", "Give it IV.", True),
        ("The INR was 2.5.", "The INR target was 3.5.", False),
        ("The pressure was 120/80 mmHg.", "The pressure was 130/80 mmHg.", False),
    ],
    "financial": [
        ("Revenue was $1.2 million.", "Revenue was $1,200,000.", True),
        ("Revenue was $1.2 million.", "Revenue was $1.3 million.", False),
        ("Revenue was $1.2 million.", "Revenue (in thousands): 1,200", True),
        ("Revenue was $5 million.", "Revenue was €5 million.", False),
        ("Revenue was over $5 million.", "Revenue was $5.3 million.", True),
        ("It rose by 50 basis points.", "It rose by 0.5%.", True),
        ("It rose by 5 percent.", "It rose by 6%.", False),
        ("It fell in the third quarter of 2023.", "It fell in Q3 2023.", True),
        ("It fell in Q3 2023.", "It fell in Q2 2023.", False),
    ],
    "technical": [
        ("Version 2.4 adds it.", "Version 2.3 adds it.", False),
        ("Call loads() first.", "Call json.loads first.", True),
        ("Use port 8080.", "Use port 8081.", False),
        ("Edit config.yaml.", "Edit config.toml.", False),
        ("Wait 30 seconds.", "Wait 0.5 minutes.", True),
        ("Heat it to 350°F.", "Heat it to 350 degrees F.", True),
    ],
}


def cases(table: dict[str, list[tuple[str, str, bool]]]) -> list[tuple[str, str, str, bool]]:
    return [(profile, *row) for profile, rows in table.items() for row in rows]


# --- what agrees -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("profile", "query", "text", "agrees"), cases(QUERY_CASES))
def test_query_conflicts(profile: str, query: str, text: str, agrees: bool) -> None:
    """A passage is refused where it speaks about another thing than the query names, and only there."""
    reason = explain_query_conflict(load_profile(profile), query, text)
    assert (reason is None) == agrees, reason


@pytest.mark.parametrize(("profile", "claim", "text", "agrees"), cases(CLAIM_CASES))
def test_claim_conflicts(profile: str, claim: str, text: str, agrees: bool) -> None:
    """A claim is refused where it names another thing than the passage, and only there."""
    conflict = detect_conflict(load_profile(profile), claim, [text])
    assert (conflict is None) == agrees, conflict


@pytest.mark.parametrize("profile", PROFILES)
@given(text=st.text(max_size=200))
def test_nothing_asked(profile: str, text: str) -> None:
    """A query and a claim without identifiers are untouched, whatever the passage holds."""
    assert explain_query_conflict(load_profile(profile), "Who is there, and why?", text) is None
    assert detect_conflict(load_profile(profile), "They are there by right.", [text]) is None


NAMED = {
    "legal": ["Section 12", "Section 9(b)", "Article IV", "42 U.S.C. § 1983", "No. 19-1392", "$1,200", "30 days"],
    "medical": ["10 mg", "5 mg/kg", "twice daily", "500 mg tablet", "ICD-10 E11.9", "INR of 2.5", "given orally"],
    "financial": ["Q3 2023", "FY2022", "$1.2 million", "7.5%", "NYSE: IBM", "IFRS 16", "30 June 2023"],
    "technical": ["version 2.4", "v2.3.1", "json.loads()", "--dry-run", "HTTP 404", "CVE-2021-44228", "RFC 7231"],
}


@given(data=st.data(), profile=st.sampled_from(DOMAINS))
def test_texts_with_all_identifiers_agree(data: st.DataObject, profile: str) -> None:
    """A passage that holds all identifiers of a query or claim is never refused, whatever else it holds."""
    values = st.sampled_from(NAMED[profile])
    asked = data.draw(st.lists(values, min_size=1, max_size=4, unique=True))
    others = data.draw(st.lists(values, max_size=4, unique=True))
    content = data.draw(st.permutations(list(dict.fromkeys(asked + others))))
    text = "; ".join(f"It speaks about {item}" for item in content) + "."
    assert explain_query_conflict(load_profile(profile), f"What about {' and '.join(asked)}?", text) is None
    assert detect_conflict(load_profile(profile), f"It is about {asked[0]}.", [text]) is None


@pytest.mark.parametrize("profile", DOMAINS)
@pytest.mark.parametrize("at", range(7))
def test_mentions_are_extracted(profile: str, at: int) -> None:
    """Each of these identifiers is found, and agrees with itself."""
    text = f"It is about {NAMED[profile][at]}."
    assert extract_mentions(load_profile(profile), text)
    assert detect_conflict(load_profile(profile), text, [text]) is None


# --- over a judge ----------------------------------------------------------------------------------


def seen(profile: str | Path, query: str, chunk: str, answer: str) -> Verdicts:
    """Return what the lexical judge sees through a profile."""
    judge = load_judge("lexical", profile=profile)
    trace = Trace(id="1", query=query, chunks=(Chunk(id="a", text=chunk),), answer=answer)
    verdicts = judge.observe([trace])[0]
    assert not verdicts.failures
    return verdicts


@pytest.mark.long
def test_general_changes_nothing(tmp_path: Path) -> None:
    """The general profile is the judge as it is: the same verdicts and fingerprint on the demo, and no wrapper."""
    write_handbook(tmp_path / "handbook")
    plain, through = load_judge("lexical"), load_judge("lexical", profile="general")
    assert plain.fingerprint == through.fingerprint
    for name in ("v1", "v2"):
        traces = list(read_traces(tmp_path / "handbook" / f"traces-{name}.jsonl"))
        assert plain.observe(traces) == through.observe(traces)


@pytest.mark.long
def test_never_raises(tmp_path: Path) -> None:
    """Other spellings aside, no profile makes a chunk more relevant or a claim more probable; none fails."""
    write_handbook(tmp_path / "handbook")
    traces = list(read_traces(tmp_path / "handbook" / "traces-v2.jsonl"))
    plain = load_judge("lexical").observe(traces)
    for profile in map(load_profile, DOMAINS):
        judge = load_judge("lexical", profile=profile)
        for trace, first, other in zip(traces, plain, judge.observe(traces), strict=True):
            assert not other.failures
            for chunk, a, b in zip(trace.chunks or (), first.chunk or (), other.chunk or (), strict=True):
                assert b.relevance <= a.relevance or align_spelling(profile, trace.query, [chunk.text]) != trace.query
            texts = [chunk.text for chunk in trace.chunks or ()]
            for message, seen in zip(first.claim or (), other.claim or (), strict=True):
                assert (seen.p or 0.0) <= (message.p or 0.0) or align_spelling(
                    profile, message.claim, texts
                ) != message.claim


def test_chunk() -> None:
    """A chunk about another version has the level "none", with the two versions in the reason."""
    result = seen("technical", "How is Foo 2.4.1 installed?", "Foo 2.4.0 is installed with one command.", "So.")
    assert result.chunk is not None
    assert result.chunk[0].level == "none"
    assert result.chunk[0].reason == "the query asks about 2.4.1, the passage is about 2.4.0"


def test_claim() -> None:
    """A dose in another unit contradicts; what no chunk gives is unsupported; both have p below the threshold."""
    chunk = "The starting dose of digoxin is 125 mcg once daily. Take it with water."
    wrong = seen("medical", "What is the dose of digoxin?", chunk, "The starting dose of digoxin is 125 mg once daily.")
    assert wrong.claim is not None
    assert wrong.claim[0].support == "contradicted"
    assert (wrong.claim[0].p or 0.0) < load_profile("medical").support.inferred


@pytest.mark.parametrize(
    ("profile", "query", "chunk", "answer"),
    [
        (
            "medical",
            "What dose?",
            "The starting dose of digoxin is 125 mcg.",
            "The starting dose of digoxin is 0.125 mg.",
        ),
        ("legal", "What does Article IV say?", "Article 4 regulates trade.", "Article IV regulates trade."),
        ("financial", "Revenue in Q3 2023?", "Revenue in the third quarter of 2023 rose.", "Revenue in Q3 2023 rose."),
        (
            "technical",
            "How long is it?",
            "The timeout is 0.5 minutes by default.",
            "The timeout is 30 seconds by default.",
        ),
    ],
)
def test_other_spelling(profile: str, query: str, chunk: str, answer: str) -> None:
    """The same thing in another spelling supports a claim, and makes a chunk relevant, as in the same spelling."""
    result = seen(profile, query, chunk, answer)
    assert result.claim is not None
    assert result.chunk is not None
    assert [item.support for item in result.claim] == ["supported"]
    same = load_judge("lexical").observe(
        [Trace(id="1", query=query, chunks=(Chunk(id="a", text=chunk),), answer=answer)]
    )[0]
    assert same.chunk is not None
    assert result.chunk[0].relevance >= same.chunk[0].relevance


def test_answer() -> None:
    """An answer about version 2.3 to a question about 2.4 is hardly relevant, whatever its chunks say."""
    chunk = "Foo runs on Linux, on Windows and on macOS."
    right, wrong = (
        seen("technical", "Where does Foo version 2.4 run?", chunk, f"Foo version {n} runs on Linux and Windows.")
        for n in ("2.4", "2.3")
    )
    assert right.answer is not None
    assert wrong.answer is not None
    assert wrong.answer.relevance < 0.25 < right.answer.relevance


def test_given_by_the_query() -> None:
    """A value that the query gives need not stand in a chunk: "after six months" is a case, no statement."""
    query, answer = "May I appeal after six months?", "You may appeal after six months."
    result = seen("legal", query, "You may appeal at any time after the ruling.", answer)
    assert "6 months" not in str([item.reason for item in result.claim or ()])


def test_levels(tmp_path: Path) -> None:
    """The levels of relevance and the thresholds of support are those of the profile."""
    assert grade_relevance(0.6, RelevanceLevels(high=0.55)) == "high"
    path = tmp_path / "strict.toml"
    path.write_text("[levels]\nhigh = 1.0\nmedium = 1.0\nlow = 1.0\n[support]\nsupported = 1.0\ninferred = 1.0\n")
    chunk = "The office opens at noon on every working day of the week."
    result = seen(path, "When does the office open?", chunk, "The office opens at noon.")
    assert result.chunk is not None
    assert result.chunk[0].level == "none"
    assert [item.support for item in result.claim or ()] == ["unsupported"]


def test_port() -> None:
    """A judge with a profile has the shape of the port, survives pickling, and names profile and digest in a line."""
    judge = load_judge("lexical", profile="legal")
    assert isinstance(judge, Judge)
    assert judge.fingerprint == f"{load_judge('lexical').fingerprint} lens=legal:{load_profile('legal').digest}"
    copy = pickle.loads(pickle.dumps(judge))
    trace = Trace(id="1", query="Section 12?", chunks=(Chunk(id="a", text="Section 9."),), answer="Section 9.")
    assert copy.observe([trace]) == judge.observe([trace])
    with pytest.raises(UsageError, match="takes no domain profile"):
        load_judge("none", profile="legal")


# --- profiles of the user ---------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", PROFILES)
def test_round_trip(name: str, tmp_path: Path) -> None:
    """A profile that is printed and saved is the same profile; its patterns are as safe as those of a user must be."""
    path = tmp_path / f"{name}.toml"
    path.write_text(read_profile(name), encoding="utf-8")
    assert load_profile(path) == load_profile(name) == load_profile(str(path))


def test_own(tmp_path: Path) -> None:
    """A profile of a user's own: a pattern and a name are enough, and the digest is that of its text."""
    path = tmp_path / "our parts.toml"
    path.write_text('[[identifier]]\nname = "part"\npattern = \'PN-(?P<id>[0-9]{4})\'\nform = "code"\n')
    profile = load_profile(path)
    assert profile.name == "our-parts"
    assert explain_query_conflict(profile, "What is PN-1234?", "pn-1235 is a bolt.")
    assert explain_query_conflict(profile, "What is PN-1234?", "pn-1234 is a nut.") is None
    before = profile.digest
    path.write_text(path.read_text() + "# changed\n")
    assert load_profile(path).digest != before


def test_prompts(tmp_path: Path) -> None:
    """A profile may instruct a language model; every domain does, and a profile with nothing else is not plain."""
    assert all(load_profile(name).prompts.guidance for name in DOMAINS)
    assert load_profile("general").is_empty
    path = tmp_path / "told.toml"
    path.write_text('[prompts]\nguidance = "Mind the part numbers."\nretrieval = "Grade the chunks."\n')
    profile = load_profile(path)
    assert (profile.prompts.guidance, profile.prompts.retrieval) == ("Mind the part numbers.", "Grade the chunks.")
    assert profile.prompts.generation == ""
    assert not profile.is_empty


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("levels = 3", "levels is a table"),
        ("[levels]\nhigh = 2", "high"),
        ("[levels]\nhigh = 0.1", "thresholds run from high to low"),
        ("[support]\nsupported = 0.5\ninferred = 0.6", "thresholds run from high to low"),
        ("[[identifier]]\npattern = 'a'", "has a name"),
        ("[[identifier]]\nname = 'a'", "needs a pattern"),
        ("[[identifier]]\nname = 'a'\npattern = '('", "not a regular expression"),
        ("[[identifier]]\nname = 'a'\npattern = 'a*'", "matches the empty text"),
        ("[[identifier]]\nname = 'a'\npattern = '(a+)+b'", "takes too long"),
        ("[[identifier]]\nname = 'a'\npattern = 'a'\nunless = '(a|ab|b)*c'", "matches the empty text|too long"),
        ("[[identifier]]\nname = 'a'\npattern = 'a'\nmust = 'rhyme'", "must"),
        ("[[identifier]]\nname = 'a'\npattern = 'a'\nwhere = ['moon']", "where"),
        ("[[identifier]]\nname = 'a'\npattern = 'a'\nspellings = 3", "spellings"),
        ("[[identifier]]\nname = 'a'\npattern = 'a'\n" * 2, "two identifiers are named a"),
        ("identifier = 3", "identifier is a list"),
        ("prompts = 3", "prompts is a table"),
        ("[prompts]\nguidance = 3", "guidance"),
        ("about = 3", "about should be a text"),
        ("[levels", "not TOML"),
    ],
)
def test_wrong(text: str, error: str, tmp_path: Path) -> None:
    """A profile that is wrong is refused with its file, the place, and what it should be."""
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=error) as caught:
        load_profile(path)
    assert str(path) in str(caught.value)


def test_unknown(tmp_path: Path) -> None:
    """A profile, key or form that does not exist is refused with the nearest that does."""
    with pytest.raises(UnknownName, match='Did you mean "medical"'):
        load_profile("medicine")
    path = tmp_path / "mine.toml"
    for text, meant in (
        ("[level]\n", "levels"),
        ("[levels]\nhihg = 1", "high"),
        ("[prompts]\nguidence = 'a'", "guidance"),
        ("[[identifier]]\nname = 'a'\npatern = 'a'", "pattern"),
        ("[[identifier]]\nname = 'a'\npattern = 'a'\nform = 'cod'", "code"),
    ):
        path.write_text(text)
        with pytest.raises(UnknownName, match=f'Did you mean "{meant}"'):
            load_profile(path)
    with pytest.raises(InputError, match="cannot read"):
        load_profile(tmp_path / "nowhere.toml")


@pytest.mark.long
@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+b",
        "(a|ab|b)+c",
        "(?=(a+)+b)a",
        r"(\w+\s?)+!",
        r"(?:\d+[.,]?)+%",
        r"(?:[a-z]+-?)+\d",
        r"(a)(?:\1+)+b",
        "(?:[0-4]|[2-9]|[1-7])+x",
    ],
)
def test_runaway(pattern: str) -> None:
    """A pattern that runs away on its own characters is refused before it meets a text."""
    with pytest.raises(InputError, match="takes too long"):
        check_pattern(pattern)


@pytest.mark.parametrize("pattern", [r"section ((\d+)+)+x", ".*.*x"])
def test_a_repeat_in_a_repeat_may_be_fast(pattern: str) -> None:
    """A pattern that is searched in time is accepted, whatever it looks like."""
    text = f"section {'1' * 900} {'a b' * 300}\0x!\n"
    assert check_pattern(pattern) == pattern
    assert all(match.group() for match in iterate_matches(pattern, text * 3))


def test_a_pattern_that_runs_away_on_a_text_fails_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the check does not foresee ends after a bounded time, with the pattern in the error."""
    monkeypatch.setattr(domain_profile, "MAX_SEARCH_SECONDS", 0.1)
    assert [match.group() for match in iterate_matches("(a+)+b", "aab")] == ["aab"]
    with pytest.raises(JudgeError, match=r"the pattern \(a\+\)\+b takes too long"):
        list(iterate_matches("(a+)+b", f"{'a' * 1900} b"))


@given(st.integers(0, 3 * SEARCH_WINDOW), st.integers(1, 60))
def test_stretches(gap: int, size: int) -> None:
    """Searching stretch by stretch finds what lies across their borders, each once."""
    text = " " * gap + "7" * size + " " * (SEARCH_WINDOW - 1) + "8" * size
    assert [match.group() for match in iterate_matches("[0-9]+", text)] == ["7" * size, "8" * size]


def test_every_form_has_a_reader() -> None:
    """The forms that are told are those that there are."""
    assert IDENTIFIER_FORMS.keys() == FORM_PARSERS.keys()


def test_an_answer_is_no_surer_than_what_the_profile_lowered() -> None:
    """What a profile does to a claim is done to the answer as a whole, which the judge judged for itself."""
    text = "Morphine is given by the oral route before surgery. The nurse records it."
    trace = Trace(
        id="1",
        query="How is morphine given?",
        chunks=(Chunk(id="a", text=text),),
        answer="The nurse records it. Morphine is given by the intravenous route before surgery.",
    )
    plain, seen = (load_judge("embedded", profile=name).observe([trace])[0] for name in ("general", "medical"))
    assert plain.answer.grounded > 0.5
    assert seen.answer.grounded == min(claim.p for claim in seen.claim) < 0.5


def test_long_texts_are_bounded() -> None:
    """Beyond a length a text is not searched, so that no text costs more than its share."""
    profile = load_profile("legal")
    assert isinstance(profile, DomainProfile)
    assert not extract_mentions(profile, "x " * 60_000 + "Section 12")


# --- on the command line ---------------------------------------------------------------------------


@pytest.mark.long
def test_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`ragfault judge profile` lists and prints; a run has the profile of the flag, else that of the settings."""
    monkeypatch.chdir(tmp_path)
    assert command(["judge", "profile"]) == 0
    assert all(name in capsys.readouterr().out for name in PROFILES[:1])
    assert command(["judge", "profile", "legal"]) == 0
    Path("house.toml").write_text(capsys.readouterr().out, encoding="utf-8")
    assert load_profile("house.toml").identifiers == load_profile("legal").identifiers
    Path("t.jsonl").write_text('{"id": "1", "query": "Section 12?", "chunks": ["Section 9."], "answer": "Yes."}\n')
    Path("ragfault.toml").write_text('[evaluate]\nprofile = "house.toml"\n')
    for flags, name in (([], "house"), (["--profile", "medical"], "medical")):
        assert command(["evaluate", "t.jsonl", "-o", name, "-q", *flags]) == 0
        assert f" lens={name}:" in (tmp_path / name / "manifest.json").read_text()
    assert command(["evaluate", "t.jsonl", "-o", "no", "--profile", "medicine"]) == 2
    assert "Did you mean" in capsys.readouterr().err


def test_library(tmp_path: Path) -> None:
    """`evaluate` passes the profile on, to a judge by name or by object; where nothing is judged there is none."""
    trace = Trace(id="1", query="Section 12?", chunks=(Chunk(id="a", text="Section 9."),), answer="Yes.")
    by_name = evaluate([trace], tmp_path / "a", profile="legal")
    by_object = evaluate([trace], tmp_path / "b", judge=load_judge(), profile="legal")
    assert by_name.manifest.judge == by_object.manifest.judge
    assert "lens=legal:" in by_name.manifest.judge
    assert evaluate([trace], tmp_path / "c", metrics=["error"], profile="legal").manifest.judge == "none"
