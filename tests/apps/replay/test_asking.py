"""Laws of asking again: temporary faults are met with another try, settings are those recorded, texts are redacted."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from installed import skip_without

skip_without("openai", reason="needs the extra llm")

from msgspec.structs import replace

from endpoint import serve_model
from programmed_model import ProgrammedServer
from ragfault.apps.replay import app_asking
from ragfault.apps.replay.interventions import KnownPassages
from ragfault.apps.replay.records import ReplayReport
from ragfault.apps.replay.store import load_result
from ragfault.cli.commands import run_command
from ragfault.model.records import Chunk, Gold, Span, Trace
from replayed_runs import make_trace, write_run

TRACES = 5
SECRETS = ("ann.meier@example.org", "+49 30 901820 33", "4111 1111 1111 1111", "sk-abcdefghijklmnop1234567890abcd")


class AppServer(ThreadingHTTPServer):
    """An app behind an address, which meets each request with its statuses in turn, the last one from then on."""

    def __init__(self, statuses: tuple[int, ...]) -> None:
        super().__init__(("127.0.0.1", 0), AppHandler)
        self.statuses = statuses
        self.calls: Counter[bytes] = Counter()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/answer?token=hidden"


class AppHandler(BaseHTTPRequestHandler):
    """Answers with the first passage."""

    server: AppServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        status = self.server.statuses[min(self.server.calls[body], len(self.server.statuses) - 1)]
        self.server.calls[body] += 1
        content = json.dumps({"answer": json.loads(body)["chunks"][0]["text"]}).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.send_header("retry-after", "0")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def serve_app(*statuses: int) -> Iterator[AppServer]:
    server = AppServer(statuses)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)


def write_failing_run(folder: Path, program: str = "invents if absent") -> Path:
    """Write a run of answers that lack their passage, with one trace that shows all passages."""
    traces = [make_trace(number, program, shown=False) for number in range(TRACES)]
    corpus = tuple(Chunk(id=f"g{at}", text=trace.metadata["right"]) for at, trace in enumerate(traces))
    return write_run([*traces, Trace(id="c", query="Which?", chunks=corpus)], folder / "run").path


def replay_address(folder: Path, url: str) -> tuple[int, ReplayReport | None]:
    from ragfault.io.runs.run import Run

    run = write_failing_run(folder)
    code = run_command(["replay", str(run), "--url", url, "--cache", str(folder / "cache.sqlite")])
    return code, load_result(Run.open(str(run)), ReplayReport)


def test_temporary_faults_of_an_address_are_met_with_another_try(tmp_path: Path):
    """After 503 and 429 the answer counts as if nothing had happened."""
    with serve_app(503, 429, 200) as server:
        code, report = replay_address(tmp_path, server.url)
    assert report is not None
    assert (code, {proof.outcome for proof in report.proofs}) == (0, {"proven"})
    assert max(server.calls.values()) >= 3


def test_a_fault_that_stays_fails_its_call_and_a_refusal_ends_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A fault of every try decides nothing; an address that refuses is asked by no further round."""
    monkeypatch.setattr(app_asking, "APP_TRIES", 2)
    with serve_app(500) as server:
        code, report = replay_address(tmp_path / "fault", server.url)
    assert report is not None
    assert {proof.outcome for proof in report.proofs} == {"not decided"}
    assert report.stopped is None
    with serve_app(401) as server:
        code, report = replay_address(tmp_path / "refusal", server.url)
    assert report is not None
    assert report.stopped is not None
    assert code == 3
    assert sum(server.calls.values()) <= app_asking.APP_THREADS


def test_an_address_that_is_not_there_ends_the_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where nothing listens the replay ends early, and the query of the address is shown nowhere."""
    monkeypatch.setattr(app_asking, "APP_TRIES", 1)
    with serve_app(200) as server:
        url = server.url
    code, report = replay_address(tmp_path, url)
    assert report is not None
    assert (code, report.stopped is not None) == (3, True)
    assert "hidden" not in str(report)


def test_requests_are_asked_with_the_settings_that_they_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The recorded temperature and length are sent, a flag overrules them, a seed is not sent; 0 if none is known."""
    settings = {"temperature": 0.7, "max_tokens": 77, "top_p": 0.9, "seed": 4}
    cases = (
        ((), settings, (0.7, 77, 0.9)),
        (("--temperature", "0.1"), settings, (0.1, 77, 0.9)),
        ((), {}, (0.0, 4096, None)),
    )
    for number, (flags, recorded, expected) in enumerate(cases):
        trace = make_trace(number, "invents", shown=True, settings=recorded)
        run = write_run([trace], tmp_path / f"run{number}")
        with serve_model({}, ProgrammedServer) as server:
            asked = ["--model", "openai:m", "--base-url", server.url, "--cache", "none"]
            run_command(["replay", str(run.path), *asked, *flags])
        sent = {(body["temperature"], body["max_tokens"], body.get("top_p")) for body in server.bodies}
        assert sent == {expected}
        assert not any("seed" in body for body in server.bodies)
        assert f"temperature {expected[0]:g} (" in capsys.readouterr().err


def test_what_is_redacted_is_neither_sent_nor_stored_nor_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """With --redact no address, number or key of a trace, an answer or an error is sent, in a file or on the screen."""
    secret = " ".join(SECRETS)
    trace = make_trace(1, "invents", shown=False)
    first, *others = trace.chunks or ()
    hidden = replace(first, text=f"{first.text} Write to {secret}.")
    system, asked = trace.messages or ()
    text = asked.text.replace(first.text, hidden.text) + f" I am {SECRETS[0]}."
    traces = [
        replace(
            trace,
            query=f"{trace.query} I am {SECRETS[0]}.",
            answer=f"It opens at 4:44. Ask {secret}.",
            chunks=(hidden, *others),
            messages=(system, replace(asked, text=text)),
        ),
        Trace(id="c", query="Which?", chunks=(Chunk(id="g1", text=f"{trace.metadata['right']} Call {secret}."),)),
    ]
    (tmp_path / "leaking_app.py").write_text(
        f"def answer(query, chunks, history):\n    assert len(chunks) > 0, {secret!r}\n    return 'Ask ' + {secret!r}\n"
    )
    run = write_run(traces, tmp_path / "run")
    capsys.readouterr()
    cache = tmp_path / "cache.sqlite"
    with serve_model({}, ProgrammedServer) as server:
        targets = (
            ["--model", "openai:m", "--base-url", server.url],
            ["--app", str(tmp_path / "leaking_app.py") + ":answer"],
        )
        for target in targets:
            for flags in (["--json"], []):
                assert (
                    run_command(["replay", str(run.path), *target, "--cache", str(cache), "--redact", "all", *flags])
                    == 0
                )
    shown = capsys.readouterr()
    stored = "".join(path.read_bytes().decode("latin-1") for path in (run.path / "apps").iterdir())
    for file in tmp_path.glob("cache.sqlite*"):
        stored += file.read_bytes().decode("latin-1")
    assert server.bodies
    for word in SECRETS:
        assert word not in shown.out + shown.err
        assert word not in stored
        assert word not in json.dumps(server.bodies, ensure_ascii=False)


def test_gold_of_another_chunking_is_looked_up_by_its_spans():
    """Where ids of gold are unknown, the shortest chunk that covers its span is the passage, else the text itself."""
    long = Chunk(id="a", text="Daily. At ten. Free.", document="d", start=0, end=20)
    short = Chunk(id="b", text="At ten.", document="d", start=7, end=14)
    span = Span(document="d", start=7, end=13, quote="At ten")
    gold = Gold(chunks={"old-7": 1.0}, spans=(span,))
    assert KnownPassages([long, short]).find_gold(gold) == (short,)
    assert [chunk.text for chunk in KnownPassages().find_gold(gold)] == ["At ten"]
    assert KnownPassages([Chunk(id="old-7", text="Known."), short]).find_gold(gold)[0].text == "Known."
    assert KnownPassages([short]).find_gold(Gold(chunks={"old-7": 1.0})) == ()
