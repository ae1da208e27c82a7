"""Back-ends of the guard: each speaks the protocol of its server, and what is no clear answer fails."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from ragfault.apps.guard.policy import parse_policy
from ragfault.apps.guard.runtime import Guard
from ragfault.apps.guard.scanning.backends import BACKENDS
from ragfault.model.errors import JudgeError, RagfaultError, UsageError
from ragfault.model.records import Trace

TEXT = "Call Ada on 555 0100 or you will be sorry."
SERVERS = ("moderation", "azure", "chat", "presidio")


class Request:
    """What a server was sent."""

    def __init__(self, path: str, headers: dict[str, str], body: Any) -> None:
        self.path, self.headers, self.body = path, headers, body


@contextmanager
def serve(
    reply: Callable[[Request], tuple[int, bytes]], headers: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[str, list[Request]]]:
    """Serve replies on this machine; yield the address, and the requests as they come in."""
    requests: list[Request] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            requests.append(Request(self.path, dict(self.headers), json.loads(body)))
            status, content = reply(requests[-1])
            if status == 0:
                self.wfile.write(content)
                return
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *values: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", requests
    finally:
        server.shutdown()
        server.server_close()


def answer(value: Any, status: int = 200) -> Callable[[Request], tuple[int, bytes]]:
    return lambda request: (status, json.dumps(value).encode())


def make(kind: str, url: str, **options: Any) -> Any:
    return BACKENDS[kind](url=url, **({"model": "guard"} if kind == "chat" else {}), **options)


def moderated(flag: bool, score: float) -> dict[str, Any]:
    return {"results": [{"flagged": flag, "categories": {"hate": flag}, "category_scores": {"hate": score}}]}


def test_moderation_reports_the_categories_that_the_server_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-local")
    with serve(answer(moderated(True, 0.91))) as (url, requests):
        findings = make("moderation", url).scan(TEXT)
    assert [(item.kind, item.score) for item in findings] == [("hate", 0.91)]
    assert (requests[0].path, requests[0].body["input"]) == ("/moderations", TEXT)
    assert requests[0].headers["Authorization"] == "Bearer sk-local"


def test_moderation_with_a_threshold_goes_by_the_score() -> None:
    with serve(answer(moderated(False, 0.4))) as (url, _):
        assert make("moderation", url).scan(TEXT) == []
        assert [item.kind for item in make("moderation", url, threshold=0.3).scan(TEXT)] == ["hate"]


def test_moderation_that_flags_without_a_category_or_a_score_is_no_pass() -> None:
    with serve(answer({"results": [{**moderated(False, 0.1)["results"][0], "flagged": True}]})) as (url, _):
        assert [item.kind for item in make("moderation", url).scan(TEXT)] == ["flagged"]
    with serve(answer(moderated(False, float("nan")))) as (url, _):
        assert [item.kind for item in make("moderation", url, threshold=0.3).scan(TEXT)] == ["hate"]
    reply = {"results": [{"flagged": True, "categories": {"hate": True}, "category_scores": {}}]}
    with serve(answer(reply)) as (url, _), pytest.raises(KeyError):
        make("moderation", url, threshold=0.3).scan(TEXT)


def test_azure_reports_categories_from_the_severity_on() -> None:
    rows = [{"category": "Violence", "severity": 4}, {"category": "Hate", "severity": 0}]
    with serve(answer({"blocklistsMatch": [], "categoriesAnalysis": rows})) as (url, requests):
        findings = make("azure", url).scan(TEXT)
        assert make("azure", url, severity=6).scan(TEXT) == []
    assert [(item.kind, item.score) for item in findings] == [("Violence", 4 / 7)]
    assert requests[0].path == "/contentsafety/text:analyze?api-version=2024-09-01"
    assert requests[0].body == {"text": TEXT}


@pytest.mark.parametrize(
    ("reply", "kinds"), [("safe", []), ("\n\nunsafe\nS1,S10", ["S1", "S10"]), ("unsafe", ["unsafe"])]
)
def test_a_chat_model_says_safe_or_unsafe_with_its_categories(reply: str, kinds: list[str]) -> None:
    with serve(answer({"choices": [{"message": {"role": "assistant", "content": reply}}]})) as (url, requests):
        findings = make("chat", url).scan(TEXT)
    assert [item.kind for item in findings] == kinds
    assert requests[0].body["messages"] == [{"role": "user", "content": TEXT}]


def test_a_chat_model_that_says_something_else_fails() -> None:
    with (
        serve(answer({"choices": [{"message": {"content": "It seems fine to me."}}]})) as (url, _),
        pytest.raises(JudgeError, match="not safe or unsafe"),
    ):
        make("chat", url).scan(TEXT)


def test_presidio_reports_spans() -> None:
    rows = [{"start": 12, "end": 20, "entity_type": "PHONE_NUMBER", "score": 0.75}]
    with serve(answer(rows)) as (url, requests):
        findings = make("presidio", url).scan(TEXT)
    assert [(TEXT[item.start : item.end], item.kind) for item in findings] == [("555 0100", "PHONE_NUMBER")]
    assert requests[0].body == {"text": TEXT, "language": "en", "score_threshold": 0.5}


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize(
    "reply",
    [answer({"error": "quota"}, 429), answer({"unexpected": 1}), answer("text"), lambda request: (200, b"<html>")],
    ids=["status 429", "another object", "a string", "html"],
)
def test_a_reply_of_another_shape_fails(kind: str, reply: Callable[[Request], tuple[int, bytes]]) -> None:
    with serve(reply) as (url, _), pytest.raises(JudgeError):
        make(kind, url).scan(TEXT)


def test_a_redirect_fails_and_the_key_stays_where_it_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that redirects has not replied, and the place that it names gets no request."""
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with serve(answer(moderated(True, 0.9))) as (target, received):
        place = {"Location": f"{target}/moderations"}
        with serve(answer({}, 302), place) as (url, _), pytest.raises(JudgeError, match="status 302"):
            make("moderation", url).scan(TEXT)
        assert received == []


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_that_is_not_there_fails(kind: str) -> None:
    with serve(answer({})) as (url, _):
        pass
    with pytest.raises(JudgeError, match="no reply"):
        make(kind, url).scan(TEXT)


def test_a_server_that_speaks_another_protocol_fails() -> None:
    with (
        serve(lambda request: (0, b"SSH-2.0-x\r\n")) as (url, _),
        pytest.raises(JudgeError, match=r"no reply: SSH-2\.0-x"),
    ):
        make("moderation", url).scan(TEXT)


@pytest.mark.parametrize(("fail", "outcome"), [("closed", "block"), ("open", "pass")])
def test_a_rail_fails_as_its_policy_says_where_its_server_hangs(fail: str, outcome: str) -> None:
    def hang(request: Request) -> tuple[int, bytes]:
        time.sleep(2)
        return 200, b"{}"

    with serve(hang) as (url, _):
        policy = f"[rails.moderation]\non = ['input']\nfail = '{fail}'\ntimeout = 0.2\noptions = {{ url = '{url}' }}"
        decision = Guard(parse_policy(policy)).decide(Trace(id="1", query=TEXT))
    assert (decision.outcome, decision.failures) == (outcome, 1)


def test_masking_hides_the_spans_of_presidio() -> None:
    rows = [{"start": 12, "end": 20, "entity_type": "PHONE_NUMBER", "score": 0.75}]

    def reply(request: Request) -> tuple[int, bytes]:
        return 200, json.dumps(rows if "555 0100" in request.body["text"] else []).encode()

    with serve(reply) as (url, _):
        policy = f"[rails.presidio]\non = ['output']\noutcome = 'fix'\noptions = {{ url = '{url}' }}"
        decision = Guard(parse_policy(policy)).decide(Trace(id="1", query="Whom?", answer=TEXT))
    assert decision.outcome == "fix"
    assert "555 0100" not in (decision.text or "")
    assert (decision.text or "").startswith("Call Ada on ")


# --- ONNX ------------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path) -> Path:
    pytest.importorskip("onnx", reason="the tests build models with onnx")
    from onnx_models import write_alarm

    folder: Path = write_alarm(tmp_path / "alarm", "dogs", max_position_embeddings=16)
    return folder


def test_an_onnx_model_flags_its_labels_in_every_window(model: Path) -> None:
    scan = BACKENDS["onnx"](model=str(model), flagged=("unsafe",)).scan
    text = "the harbour office opens at seven on weekdays " * 8 + "dogs are not allowed"
    findings = scan(text)
    assert findings
    assert all(item.kind == "unsafe" and "dogs" in text[item.start : item.end] for item in findings)
    assert scan("the harbour office opens at seven") == []


def test_a_text_beyond_the_windows_fails_rather_than_passes(model: Path) -> None:
    with pytest.raises(UsageError, match="at most 64"):
        BACKENDS["onnx"](model=str(model), flagged=("unsafe",)).scan("the harbour " * 2_000)


@pytest.mark.parametrize("options", ["model = 'nowhere', flagged = ['unsafe']", "model = 'MODEL', flagged = ['rude']"])
def test_a_missing_model_or_label_is_noticed_when_the_policy_is_read(model: Path, options: str) -> None:
    with pytest.raises(RagfaultError, match=r"nowhere|rude"):
        parse_policy(f"[rails.onnx]\noptions = {{ {options.replace('MODEL', str(model))} }}")
