"""Redaction: what is of a kind goes, what only looks like it stays, equal stays equal, and no text makes it slow."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

import pytest

from ragfault.cli.commands import run_command as command
from ragfault.io.otel.spans import OtelSpan, SpanEvent
from ragfault.io.otel.trace_mapping import build_trace
from ragfault.io.redaction import Redactor, parse_redaction_kinds
from ragfault.io.trace_reader import read_traces
from ragfault.model.errors import UnknownName
from ragfault.model.records import Chunk, Citation, ConversationTurn, Gold, Step, TokenCounts, Trace
from ragfault.text.redaction import SENSITIVE_KINDS, detect_sensitive

A, D, W = "abcdefghijklmnopqrstuvwxyz", "0123456789", "Qw3rTy7Zx9Lk2Mn5Bv8Pc4Hd6Jf1Gs0Ta"
SECRET = {
    "openai": "sk-" + "proj-" + W,
    "anthropic": "sk-" + "ant-api03-" + W,
    "stripe": "sk" + "_live_" + W[:24],
    "aws": "AK" + "IA" + "Q3RT7ZX9LK2MN5BV",
    "github": "gh" + "p_" + W + "7a",
    "fine": "github" + "_pat_" + W,
    "gitlab": "glpat" + "-" + W[:20],
    "slack": "xo" + "xb-" + D + "12-" + D + "34-" + W[:24],
    "google": "AI" + "za" + W + "9x",
    "hub": "hf" + "_" + W,
    "jwt": "ey" + "JhbGciOiJIUzI1NiJ9.ey" + "JzdWIiOiIxMjM0In0." + W,
    "pem": "-----BEGIN " + "RSA PRIVATE KEY-----\n" + f"{W}{W}\n" * 4 + "-----END " + "RSA PRIVATE KEY-----",
}

SENSITIVE_SAMPLES = [
    ("email", "ann.lee@example.org"),
    ("email", "a+b_c@mail.example.co.uk"),
    ("email", "INFO@EXAMPLE.COM"),
    ("email", "jörg@müller.example"),
    ("email", "o'neil@example.ie"),
    ("email", "x@163.com"),
    ("email", "first.last%40example.com"),
    ("email", "me@xn--bcher-kva.example"),
    ("email", "a-b@c-d.museum"),
    ("email", "1234567@students.example.edu"),
    ("email", "n@sub.sub.example.io"),
    ("email", "r2_d2@droid.example"),
    ("phone", "+44 20 7946 0958"),
    ("phone", "+442079460958"),
    ("phone", "+1 (415) 555-2671"),
    ("phone", "+1-415-555-2671"),
    ("phone", "(415) 555-2671"),
    ("phone", "415-555-2671"),
    ("phone", "415.555.2671"),
    ("phone", "1-800-555-0199"),
    ("phone", "+49 (0)30 901820"),
    ("phone", "+49 171 1234567"),
    ("phone", "0171/1234567"),
    ("phone", "030-90182044"),
    ("phone", "0049 171 1234567"),
    ("phone", "+33 1 23 45 67 89"),
    ("phone", "01 23 45 67 89"),
    ("phone", "06.12.34.56.78"),
    ("phone", "020 7946 0958"),
    ("phone", "07700 900123"),
    ("phone", "(030) 90182044"),
    ("phone", "+91 98765 43210"),
    ("phone", "+81-3-1234-5678"),
    ("phone", "+55 11 91234-5678"),
    ("phone", "+61 2 9374 4000"),
    ("phone", "+86 138 0013 8000"),
    ("phone", "+353 1 234 5678"),
    ("phone", "+7 495 123-45-67"),
    ("card", "4111 1111 1111 1111"),
    ("card", "4111111111111111"),
    ("card", "4111-1111-1111-1111"),
    ("card", "5555 5555 5555 4444"),
    ("card", "2223003122003222"),
    ("card", "3782 822463 10005"),
    ("card", "371449635398431"),
    ("card", "6011 1111 1111 1117"),
    ("card", "3530111333300000"),
    ("card", "30569309025904"),
    ("card", "6200000000000005"),
    ("card", "4222222222222"),
    ("card", "4000 0000 0000 0000 006"),
    *(("key", secret) for secret in SECRET.values()),
]
"""Kind and value, each of which goes whole."""
CUED = [
    ("phone", "Call me at {}.", "4155552671"),
    ("phone", "Tel.: {}", "030 901820"),
    ("phone", "WhatsApp {}", "98765 43210"),
    ("phone", "phone number: {}", "555 2671 88"),
    ("key", "Authorization: Bearer {}", W),
    ("key", "api_key={}", W),
    ("key", '"client_secret": "{}"', W + "/+="),
    ("key", "AWS_SECRET_ACCESS_KEY={}", W + "ab"),
    ("key", "the token is {}.", W.lower()),
    ("key", "postgres://app:{}@db.example:5432/x", "s3cr3t.Pw"),
    ("key", "password: {}", "T7!kq9$Zr2@Lm5^Xw"),
]
"""Those that only the words before them tell."""
ALIKE = [
    "2024-05-17",
    "17.05.2024",
    "05/17/2024",
    "2024-05-17 10:30:00",
    "2024-05-17T10:30:00+02:00",
    "01.02.2024 15:30",
    "20240517103000",
    "1715940600",
    "1715940600123",
    "from 1998-2004 and 2010-2014",
    "10:30-11:45",
    "192.168.100.200",
    "10.0.0.1:8080",
    "2001:db8::ff00:42:8329",
    "255.255.255.0/24",
    "version 1.2.3.4567",
    "978-3-16-148410-0",
    "ISBN 0-306-40615-2",
    "9783161484100",
    "ISSN 0317-8471",
    "10.1000/182.2019.0412",
    "Order 20230415-0071",
    "order no. 415-555-2671",
    "Invoice 0815-4711-1234",
    "Ticket 4155552671",
    "SKU 0123-4567-8901",
    "4111 1111 1111 1112",
    "4111111111111113",
    "1234 5678 9012 3456",
    "9999999999999995",
    "0000 0000 0000 0000",
    "DE89 3704 0044 0532 0130 00",
    "GB29 NWBK 6016 1331 9268 19",
    "123-45-6789",
    "EAN 4006381333931",
    "3.14159265358979",
    "1,234,567.89",
    "+1,000,000",
    "+10 000 000 visitors",
    "12 345 678 people",
    "-273.15",
    "52.5200, 13.4050",
    "+52.520008 13.404954",
    "room 020, floor 7",
    "1 000 000 000",
    "0.123 456 789",
    "100-200-300",
    "@ann",
    "ann@",
    "user@localhost",
    "react@18.2.0",
    "vue@3.0.0-rc.one",
    "logo@2x.png",
    "git@github.com:a/b.git",
    "@app.route('/x')",
    "a @ b . c",
    "5 @ 3.50 each",
    "C++ 11 and C++17",
    "550e8400-e29b-41d4-a716-446655440000",
    "9b74c9897bac770ffc029102a200c5de",
    "sha256:" + "0f" * 32,
    "sk-learn",
    "sk-continuous-integration-for-everybody",
    "the password is required",
    "token count = 1234567890123456",
    "secret: aaaaaaaaaaaaaaaaaaaa",
    "Bearer authentication is used",
    "api_key=YOUR_API_KEY_HERE",
    "https://example.org:8080/a",
    "-----BEGIN PUBLIC KEY-----",
    "set `api_key` to your key",
    "AKIA is a prefix",
    "max_tokens=4096",
]
"""What looks like a value of a kind, and is none."""


# --- what goes, what stays ---------------------------------------------------------------------------


def test_values_of_each_kind_are_detected_completely():
    """Of the values on the list every one is found in a sentence, by its kind, from its first sign to its last."""
    missed = []
    for kind, value, text in (
        *((kind, value, f"Ask about {value}, they said") for kind, value in SENSITIVE_SAMPLES),
        *((kind, value, value) for kind, value in SENSITIVE_SAMPLES),
        *((kind, value, text.format(value)) for kind, text, value in CUED),
    ):
        matches = [(match.kind, text[match.start : match.end]) for match in detect_sensitive(text)]
        missed += [] if matches == [(kind, value)] else [(text, matches)]
    assert missed == []
    assert len(SENSITIVE_SAMPLES) + len(CUED) >= 60


@pytest.mark.parametrize("between", [",", ", ", " ", "\n", ";", "|", "\t", " or ", "/ ", ":: ", '","', "<br>"])
def test_adjacent_values_are_all_detected(between: str):
    """In tables, lists and lines of CSV the one does not hide the other."""
    values = ["+49 171 1234567", "+1-415-555-2671", "415-555-2671", "4111 1111 1111 1111", "5555555555554444"]
    values += ["ann@example.org", "3782 822463 10005", "4111-1111-1111-1111", "bob@example.org", "(415) 555-2671"]
    for value, other in zip(values, values[1:] + values[:1], strict=True):
        for pair in ((value, other), (value, value)):
            text = between.join(pair)
            assert [text[match.start : match.end] for match in detect_sensitive(text)] == list(pair), text


def test_lookalikes_stay():
    """Dates, addresses of machines, orders, books, amounts and the like are left alone."""
    assert [
        (text, detect_sensitive(f"See {text}, please.")) for text in ALIKE if detect_sensitive(f"See {text}, please.")
    ] == []
    assert [text for text in ALIKE if detect_sensitive(text)] == []
    assert len(ALIKE) >= 60


def test_the_same_value_is_known_however_it_is_written():
    """Case, gaps and brackets do not make another value."""
    for spelling, other in (
        ("Ann@Example.org", "ann@example.org"),
        ("+1 (415) 555-2671", "415.555.2671"),
        ("0049 171 1234567", "+49 171 1234567"),
        ("4111 1111 1111 1111", "4111-1111-1111-1111"),
    ):
        assert detect_sensitive(spelling)[0].value == detect_sensitive(other)[0].value


def test_kinds_are_named():
    """`all` is all of them; a name that is none is told."""
    assert parse_redaction_kinds("all") == parse_redaction_kinds(["card", "key", "phone", "email"]) == SENSITIVE_KINDS
    assert parse_redaction_kinds("") == ()
    with pytest.raises(UnknownName, match="phone"):
        parse_redaction_kinds("email,fone")


HOSTILE = [
    "a",
    "@",
    "a@",
    "@a.",
    "a.@",
    "@" + "a" * 63 + ".",
    "é@é.",
    "%40",
    "1",
    "1 ",
    "4-",
    "+1",
    "+1 ",
    "01 ",
    "((",
    "(415",
    "415-",
    "tel ",
    "tel 1",
    "tel 1111111",
    "order 0123 ",
    "sk-",
    "eyJ",
    "eyJ-",
    "eyJaaaaaaaa.",
    "SG.",
    "bearer ",
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\nA: b\n",
    "-----BEGIN ",
    "key=",
    "secret",
    "secret   ",
    "://",
    "://a:",
    "://:a",
    "[email~",
    "[email~0123456789abcdef]",
    "~",
    " ",
    "\n",
    "\\n",
    "a_a@a-",
    "x1",
    "4111 ",
]


@pytest.mark.long
@pytest.mark.parametrize("part", HOSTILE)
def test_no_text_makes_it_slow(part: str):
    """Whatever repeats, twice the text takes about twice the time, and a long one is no matter of minutes."""

    def took(size: int) -> float:
        text = part * (size // len(part))
        begin = time.process_time()
        detect_sensitive(text)
        detect_sensitive("@" + text)
        detect_sensitive("api_key=" + text)
        return time.process_time() - begin

    eighth = min(took(20_000) for _ in range(2))
    assert took(160_000) < 40 * max(eighth, 0.02)


# --- a trace -----------------------------------------------------------------------------------------

TRACE = Trace(
    id="t1",
    query="Who is ann@example.org, and may I call 4155552671?",
    chunks=(
        Chunk(id="bob@example.org", text="Mail bob@example.org or ANN@example.org.", document="d", start=3, end=43),
        Chunk(id="c2", text="The number is 4155552671.", metadata={"owner": {"mail": ["bob@example.org"]}}),
    ),
    answer="Write to ann@example.org (not bob@example.org) or call 4155552671.",
    citations=(Citation(chunk="bob@example.org", quote="Mail bob@example.org", claim="not bob@example.org"),),
    reference="bob@example.org",
    facts=("Bob has bob@example.org.",),
    gold=Gold(chunks={"bob@example.org": 1.0}),
    time=datetime(2026, 1, 2, tzinfo=UTC),
    conversation="whatsapp:+14155552671",
    history=(ConversationTurn(role="user", text="I am ann@example.org"),),
    steps=(
        Step(
            id="bob@example.org",
            name="ask ann@example.org",
            agent="bob@example.org",
            input="find ann@example.org",
            output="4155552671",
            chunks=("bob@example.org", "c2"),
            duration=1.0,
            error="bob@example.org is away",
        ),
        Step(id="2", parent="bob@example.org"),
    ),
    error="no route to ann@example.org",
    metadata={"ann@example.org": 1, "card": 4111111111111111, "id": "ann@example.org"},
)


def test_every_text_of_a_trace_is_redacted_and_equal_stays_equal():
    """Placeholders are numbered as they are met; what was the same is the same, wherever in the trace it stands."""
    redacted, counts = Redactor("all").redact_trace(TRACE)
    assert redacted.query == "Who is [email 1], and may I call [phone 1]?"
    assert [chunk.text for chunk in redacted.chunks] == ["Mail [email 2] or [email 1].", "The number is [phone 1]."]
    assert redacted.answer == "Write to [email 1] (not [email 2]) or call [phone 1]."
    assert redacted.citations[0].quote in redacted.chunks[0].text
    assert redacted.citations[0].claim in redacted.answer.replace("(", " ")
    assert (redacted.reference, redacted.facts) == ("[email 2]", ("Bob has [email 2].",))
    assert redacted.history[0].text == "I am [email 1]"
    step = redacted.steps[0]
    assert (step.name, step.agent, step.input) == ("ask [email 1]", "[email 2]", "find [email 1]")
    assert (step.output, step.error) == ("[phone 1]", "[email 2] is away")
    assert redacted.error == "no route to [email 1]"
    assert redacted.metadata == {"[email 1]": 1, "card": "[card 1]", "id": "[email 1]"}
    assert redacted.chunks[1].metadata == {"owner": {"mail": ["[email 2]"]}}
    assert (redacted.time, redacted.chunks[0].start, redacted.chunks[0].end) == (TRACE.time, 3, 43)
    assert counts["phone"] == 5
    assert not re.search(r"@|4155552671|4111111111111111", repr(redacted))


def test_ids_stay_different_and_still_meet():
    """An id that is an address becomes a mask: the same everywhere it is meant, another for another address."""
    redactor = Redactor("all")
    redacted = redactor.redact_trace(TRACE).trace
    assert redacted.chunks[0].id == redacted.citations[0].chunk == next(iter(redacted.gold.chunks))
    assert redacted.steps[0].chunks == (redacted.chunks[0].id, "c2")
    assert redacted.steps[0].id == redacted.steps[1].parent == redacted.chunks[0].id
    ids = {redactor.redact_trace(Trace(id=name, query="q")).trace.id for name in ("a@b.org", "b@b.org", "a@b.org")}
    assert len(ids) == 2
    assert redacted.conversation.startswith("whatsapp:[phone~")
    assert Redactor("all", "s").redact_trace(TRACE) == Redactor("all", "s").redact_trace(TRACE)
    assert Redactor("all", "s").redact_trace(TRACE).trace.conversation != redacted.conversation


def test_what_is_redacted_stays_as_it_is():
    """Redacting again changes nothing, and numbers that stand there are not given to others."""
    once = Redactor("all").redact_trace(TRACE).trace
    assert Redactor("all").redact_trace(once).trace is once
    mixed = Trace(id="t", query="[email 3] and a@b.org", answer="[email 1]")
    assert Redactor("all").redact_trace(mixed).trace.query == "[email 3] and [email 4]"


def test_only_the_kinds_that_were_asked_for_go():
    """What is of another kind stays; a trace without any is the same object."""
    trace, counts = Redactor("card").redact_trace(TRACE)
    assert trace.query == TRACE.query
    assert counts == {"card": 1}
    plain = Trace(id="p", query="When does the office open?")
    assert Redactor("all").redact_trace(plain).trace is plain


def test_deep_metadata_is_redacted_to_its_end():
    """No depth hides anything."""
    deep: object = "deep@example.org"
    for _ in range(300):
        deep = [deep]
    trace = Redactor("all").redact_trace(Trace(id="d", query="q", metadata={"deep": deep})).trace
    assert "@" not in repr(trace)


def test_numbers_of_metadata_are_redacted_and_fields_stay_numbers():
    """A card that was written as a number goes from metadata, whole or with a fraction of 0; counts stay counts."""
    given = Trace(
        id="n",
        query="q",
        tokens=TokenCounts(prompt=4111111111111111),
        chunks=(Chunk(id="c", start=4111111111111111, metadata={"n": 4111111111111111}),),
        metadata={"card": 4111111111111111.0, "large": 1e300, "time": 1700000000000, "part": 4111111111111111.5},
    )
    trace = Redactor("all").redact_trace(given).trace
    assert trace.tokens == given.tokens
    assert trace.chunks[0].start == given.chunks[0].start
    assert trace.chunks[0].metadata == {"n": "[card 1]"}
    assert trace.metadata == {**given.metadata, "card": "[card 1]"}


# --- spans -------------------------------------------------------------------------------------------


def test_spans_that_come_apart_agree_when_they_are_joined():
    """Masks made one request at a time become the same numbers in the trace; JSON within attributes stays JSON."""
    redactor = Redactor("all")
    chain = OtelSpan(
        trace="a" * 32,
        id="1" * 16,
        name="ask for ann@example.org",
        attributes={
            "openinference.span.kind": "CHAIN",
            "input.value": '{"query": "ring\\nann@example.org", "card": 4111111111111111}',
            "output.value": "It is ann@example.org, not bob@example.org.",
        },
        resource={"service.name": "mail-of-bob@example.org"},
        events=(SpanEvent(name="said", attributes={"text": "bob@example.org"}),),
    )
    contents = {
        "openinference.span.kind": "RETRIEVER",
        "retrieval.documents.0.document.content": "Bob: bob@example.org",
    }
    masked = OtelSpan(trace="a" * 32, id="2" * 16, parent="1" * 16, name="find", attributes=contents)
    parts = [redactor.mask_spans([chain]), redactor.mask_spans([masked])]
    assert not any("@" in repr(part) or "4111" in repr(part) for part in parts)
    trace = build_trace([span_text for part in parts for span_text in part.spans])
    redacted = redactor.redact_trace(trace).trace
    assert redacted.query == "ring\n[email 1]"
    assert [chunk.text for chunk in redacted.chunks] == ["Bob: [email 2]"]
    assert redacted.answer == "It is [email 1], not [email 2]."
    assert parts[0].counts["email"] == 6


# --- files -------------------------------------------------------------------------------------------


def test_convert_redacts(tmp_path, capsys, monkeypatch):
    """`ragfault run convert --redact` writes traces without what was to go, and says how much that was."""
    from ragfault.io.trace_writer import write_traces

    monkeypatch.setenv("RAGFAULT_REDACT_KEY", "k")
    write_traces([TRACE], tmp_path / "raw.jsonl")
    asked = ["run", "convert", str(tmp_path / "raw.jsonl"), str(tmp_path / "out.jsonl"), "--redact", "all"]
    assert command(asked) == 0
    assert "redacted:" in capsys.readouterr().err
    assert list(read_traces(tmp_path / "out.jsonl")) == [Redactor("all", "k").redact_trace(TRACE).trace]
    first = (tmp_path / "out.jsonl").read_bytes()
    assert b"@" not in first
    assert command([*asked, "--force"]) == 0
    assert (tmp_path / "out.jsonl").read_bytes() == first
    assert command([*asked[:-1], "emails", "--force"]) == 2
