"""Laws of judges that ask typed questions, against a programmed endpoint over real HTTP."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from installed import skip_without

skip_without("openai", reason="the extra `llm` is not installed")

from ragfault import Chunk, Run, Trace, evaluate
from ragfault.cli.commands import run_command
from ragfault.io.trace_writer import write_traces
from ragfault.judges.assembly import observe_traces
from ragfault.judges.loading import load_judge
from ragfault.model.errors import BudgetExceeded, JudgeStopped, UsageError
from ragfault.model.protocols import MeteredJudge

CHUNKS = (
    Chunk(id="hours", text="The museum opens at nine on weekdays."),
    Chunk(id="dogs", text="Dogs travel free on a lead."),
)
GOOD = Trace(
    id="good", query="When does the museum open?", chunks=CHUNKS, answer="The museum opens at nine on weekdays."
)
BAD = Trace(id="bad", query="When does the museum open?", chunks=CHUNKS, answer="The museum sells old paintings.")


def decide(state: dict[str, Any]) -> float:
    """Say yes with .95 where every word of the statement, or one of the question, is in the source."""
    source = " ".join(state.get("sources", [state.get("source", "")])).lower()
    if "statement" in state:
        return 0.95 if state["statement"].lower().strip(".") in source else 0.05
    return 0.9 if "museum" in source else 0.1


class Endpoint(ThreadingHTTPServer):
    """Endpoint of typed questions and of log-probabilities; `broken` replaces the answer about bad traces."""

    def __init__(self, broken: Any = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.broken, self.requests = broken, []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        self.requests.append((path, body))
        if path == "/v1/systemone" and body["model"] == "typed":
            state = body["state"]
            value = self.broken if self.broken is not None and "paintings" in json.dumps(state) else decide(state)
            answers = {name: {"type": item["type"], "noul": value} for name, item in body["questions"].items()}
            usage = {"input_tokens": 100, "output_tokens": 0}
            return 200, {"model": "typed-1", "answers": answers, "usage": usage}
        if path == "/v1/chat/completions" and body.get("logprobs"):
            text = body["messages"][-1]["content"]
            p = decide(json.loads(text[text.index("{") :])) if "{" in text else 0.0
            pairs = self.broken or {" Yes": p * 0.8, "yes": p * 0.1, "No": (1 - p) * 0.9, "Well": 0.1}
            top = [{"token": token, "logprob": -50.0 if not share else _log(share)} for token, share in pairs.items()]
            message = {"index": 0, "message": {"role": "assistant", "content": "Yes"}, "finish_reason": "length"}
            message["logprobs"] = {"content": [{"token": "Yes", "logprob": -0.1, "top_logprobs": top}]}
            return 200, {"choices": [message], "usage": {"prompt_tokens": 100, "completion_tokens": 1}}
        return 404, {"error": {"message": "no such route"}}


def _log(share: float) -> float:
    import math

    return math.log(share)


class Handler(BaseHTTPRequestHandler):
    """Handler that answers by the rule of its server."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, payload = self.server.answer(self.path, body)  # type: ignore[attr-defined]
        data = json.dumps(payload).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serve(broken: Any = None, kind: type[Endpoint] = Endpoint) -> Iterator[Any]:
    """Serve an endpoint on a thread."""
    endpoint = kind(broken)
    thread = threading.Thread(target=endpoint.serve_forever, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        endpoint.shutdown()
        endpoint.server_close()
        thread.join(10)


def load(endpoint: Endpoint, kind: str = "decision", **options: Any) -> Any:
    return load_judge(f"{kind}:typed", **{"base_url": endpoint.url, "cache": "none", **options})


@pytest.mark.parametrize("kind", ["decision", "logprobs"])
def test_a_verdict_is_the_probability_of_yes(kind: str):
    """A claim is supported with the model's probability; of tokens, the share of yes among yes and no."""
    with serve() as endpoint:
        judge = load(endpoint, kind)
        good, bad = judge.observe([GOOD, BAD])
        judge.end()
    assert (good.claim[0].support, bad.claim[0].support) == ("supported", "unsupported")
    assert good.claim[0].p == pytest.approx(0.95)
    assert bad.claim[0].p == pytest.approx(0.05)
    assert [chunk.relevance for chunk in good.chunk] == pytest.approx([0.9, 0.1])
    assert good.claim[0].evidence[0].chunk == "hours"


def test_each_question_is_typed_and_sent_once():
    """One question a verdict, of the documented type, with its texts as state; equal ones are not asked again."""
    with serve() as endpoint:
        judge = load(endpoint)
        judge.observe([GOOD])
        judge.end()
        bodies = [body for path, body in endpoint.requests if path == "/v1/systemone"]
    assert len(bodies) == 1 + len(CHUNKS)
    assert all(set(body) == {"model", "state", "questions"} for body in bodies)
    assert {item["type"] for body in bodies for item in body["questions"].values()} == {"noul"}
    assert len({json.dumps(body, sort_keys=True) for body in bodies}) == len(bodies)


def test_usage_is_counted_within_the_budget(tmp_path):
    """Tokens and cost are those of the endpoint; a budget that ends stops the evaluation, which can be resumed."""
    with serve() as endpoint:
        judge = load(endpoint, price=(1.0, 0.0))
        assert isinstance(judge, MeteredJudge)
        judge.observe([GOOD])
        judge.end()
        assert (judge.usage.calls, judge.usage.prompt) == (3, 300)
        assert judge.usage.cost == pytest.approx(3e-4)
        traces = [Trace(id=str(number), query="When?", chunks=CHUNKS, answer=f"Nine {number}.") for number in range(20)]
        options = {"base_url": endpoint.url, "cache": str(tmp_path / "cache.sqlite"), "budget_tokens": 2000}
        with pytest.raises(BudgetExceeded):
            evaluate(traces, tmp_path / "run", judge="decision:typed", options=options)
        sent = len(endpoint.requests)
        assert sent <= 3 + 20
        more = {**options, "budget_tokens": 100_000}
        run = evaluate(traces, tmp_path / "run", judge="decision:typed", options=more)
        questions = {json.dumps(body, sort_keys=True) for _, body in endpoint.requests}
        assert len(questions) == len(endpoint.requests)
    assert run.manifest.traces == len(traces)


@pytest.mark.parametrize("broken", ["perhaps", float("nan"), 1.5, True, {"p": 0.5}])
def test_a_probability_that_is_none_fails_its_trace_with_the_reason(broken: Any):
    """A text, a NaN, a number out of range or an object fails that trace only, and says what came."""
    with serve(broken) as endpoint:
        judge = load(endpoint)
        good, bad = observe_traces(judge, [GOOD, BAD])
        judge.end()
    assert good.claim[0].support == "supported"
    assert "probability of yes" in bad.failures["*"]


@pytest.mark.parametrize("broken", [{"Maybe": 0.9, "Well": 0.1}, {"": 1.0}])
def test_tokens_without_yes_and_no_fail_their_trace(broken: Any):
    """A reply that begins with neither yes nor no is no verdict."""
    with serve(broken) as endpoint:
        judge = load(endpoint, "logprobs")
        verdicts = observe_traces(judge, [GOOD])[0]
        judge.end()
    assert "neither" in verdicts.failures["*"]


def test_a_chat_endpoint_without_typed_questions_says_what_to_ask_instead():
    """An endpoint that has no such route stops the judge, which names the other way."""
    with serve() as endpoint:
        judge = load_judge("decision:chat-only", base_url=endpoint.url, cache="none")
        with pytest.raises(JudgeStopped, match="logprobs:"):
            judge.observe([GOOD])
        judge.end()


def test_settings_of_a_judge_that_writes_text_are_refused():
    """Votes, rubrics and batches do nothing here, so they are errors, as is a domain profile."""
    for option in ({"votes": 3}, {"reverse": True}, {"batch_api": True}, {"max_tokens": 9}):
        with pytest.raises(UsageError):
            load_judge("decision:typesafe/jev-latest", **option)
    with pytest.raises(UsageError):
        load_judge("decision:typesafe/jev-latest", profile="legal")


def test_a_cascade_asks_the_model_only_what_the_first_judge_is_unsure_of(tmp_path):
    """No question is sent about an answer that the first judge is certain of, unless it is drawn for the means."""
    traces = [GOOD, BAD]
    with serve() as endpoint:
        options = {"base_url": endpoint.url, "cache": "none"}
        run = evaluate(traces, tmp_path / "run", judge="lexical", escalate="decision:typed", options=options)
        asked = [item for item in Run.open(run.path).verdicts() if len(item.members) == 2]
        assert len(endpoint.requests) == sum(3 for _ in asked)
    assert run.manifest.usage is not None
    assert run.manifest.usage.calls == 3 * len(asked)


def test_an_open_model_is_asked_in_its_own_words():
    """A named model behind an endpoint gets its system message and its template, and only questions of support."""
    with serve({"Yes": 0.6, "No": 0.2}) as endpoint:
        judge = load_judge("bespoke-minicheck:some/tag", base_url=endpoint.url, cache="none")
        verdicts = judge.observe([GOOD])[0]
        judge.end()
        bodies = [body for _, body in endpoint.requests]
    assert verdicts.claim[0].p == pytest.approx(0.75)
    assert len(bodies) == 1
    system, user = (message["content"] for message in bodies[0]["messages"])
    assert system.startswith("Determine whether the provided claim is consistent")
    assert user == f"Document: {CHUNKS[0].text}\n{CHUNKS[1].text}\nClaim: {GOOD.answer}"
    assert judge.fingerprint.startswith("bespoke-minicheck/1 ")


class VerdictEndpoint(Endpoint):
    """Endpoint of an open model that writes its reply token by token; `broken` is the list of tokens."""

    with_shares = True

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        self.requests.append((path, body))
        message: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
        message["message"] = {"role": "assistant", "content": "".join(next(iter(shares)) for shares in self.broken)}
        if self.with_shares:
            entries = [
                {
                    "token": next(iter(shares)),
                    "logprob": -0.1,
                    "top_logprobs": [{"token": token, "logprob": _log(share)} for token, share in shares.items()],
                }
                for shares in self.broken
            ]
            message["logprobs"] = {"content": entries}
        return 200, {"choices": [message], "usage": {"prompt_tokens": 100, "completion_tokens": len(self.broken)}}


LYNX_REPLY = [
    {'{"REASONING": ["The \\"SCORE\\" of the — match"]': 1.0},
    {', "SCORE": "': 1.0},
    {"P": 0.6, "FAIL": 0.2, "Z": 0.2},
    {"ASS": 1.0},
    {'"}': 1.0},
]
"""Reply of Lynx whose verdict is two tokens long, and whose reasoning names a score."""


@pytest.mark.parametrize(
    ("name", "reply", "p", "sent"),
    [
        ("granite-guardian", [{"Yes": 0.6, "No": 0.2}], 0.25, ["system", "context", "assistant"]),
        ("granite-guardian-vllm", [{"No": 0.9, "Yes": 0.1}], 0.9, ["context", "assistant"]),
        ("lynx", LYNX_REPLY, 0.75, ["user"]),
    ],
)
def test_the_verdict_of_an_open_model_is_read_at_its_place(name: str, reply: list[dict[str, float]], p: float, sent):
    """The word for supported has its share there; without log-probabilities the word that is written counts."""
    for with_shares, expected in ((True, p), (False, float(p > 0.5))):
        with serve(reply, VerdictEndpoint) as endpoint:
            endpoint.with_shares = with_shares
            judge = load_judge(f"{name}:tag", base_url=endpoint.url, cache="none")
            verdicts = judge.observe([GOOD])[0]
            judge.end()
            [(_, body)] = endpoint.requests
        assert verdicts.claim[0].p == pytest.approx(expected)
        assert [message["role"] for message in body["messages"]] == sent
        assert body["max_tokens"] == (1000 if name == "lynx" else 1)
        config = {"guardian_config": {"risk_name": "groundedness"}}
        assert body.get("chat_template_kwargs") == (config if name.endswith("vllm") else None)


@pytest.mark.parametrize("reply", [[{'{"REASONING": ["cut': 1.0}], [{', "SCORE": "': 1.0}, {"MAYBE": 1.0}]])
def test_a_reply_without_a_verdict_fails_its_trace(reply: list[dict[str, float]]):
    """A reply that was cut off or has another word fails the trace with the reason, and does not end the run."""
    with serve(reply, VerdictEndpoint) as endpoint:
        judge = load_judge("lynx:tag", base_url=endpoint.url, cache="none")
        verdicts = observe_traces(judge, [GOOD])[0]
        judge.end()
    assert "pass" in verdicts.failures["*"]


def test_it_survives_a_pickle():
    """A copy is the same judge, without a session or a key."""
    judge = load_judge("logprobs:ollama/some-model", supported=0.8)
    assert pickle.loads(pickle.dumps(judge)).fingerprint == judge.fingerprint


def estimate(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """Return the document of a dry run."""
    command = ["evaluate", str(path), "--dry-run", "--json", "--price", "1,0", *options]
    assert run_command(command) == 0
    return json.loads(capsys.readouterr().out)


def test_a_dry_run_counts_the_questions_that_are_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The estimate has the calls that judging makes, and sends none of them."""
    path = tmp_path / "traces.jsonl"
    write_traces([GOOD, BAD], path)
    with serve() as endpoint:
        options = ("--judge", "decision:typed", "--base-url", endpoint.url)
        [kind] = estimate(path, capsys, *options)["kinds"]
        assert not endpoint.requests
        # Traces are judged at once: without a cache a question may be asked again after its reply.
        judge = load(endpoint, cache=str(tmp_path / "replies"))
        judge.observe([GOOD, BAD])
        judge.end()
    assert kind["calls"] == judge.usage.calls == 4  # each chunk once for both traces, and two claims
    assert kind["cost"] == pytest.approx(kind["prompt"] / 1e6)


def test_a_dry_run_counts_each_judge_of_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A jury asks each judge about all traces; a cascade its second one about what the first is unsure of."""
    path = tmp_path / "traces.jsonl"
    write_traces([GOOD, BAD], path)
    url = ("--base-url", "http://127.0.0.1:9/v1")
    jury = estimate(path, capsys, "--judge", "jury:decision:typed,lexical,llm:m", *url)
    assert [member["judge"].split()[0] for member in jury["members"]] == ["openai/typed", "openai/m"]
    assert [member["traces"] for member in jury["members"]] == [2, 2]
    cascade = ("--judge", "lexical", "--escalate", "decision:typed", "--certainty")
    calls = []
    for certainty in ("0.5", "1"):
        [member] = estimate(path, capsys, *cascade, certainty, *url)["members"]
        calls.append(member["traces"])
    assert calls[0] < calls[1] == 2
    assert run_command(["evaluate", str(path), "--dry-run", "--judge", "jury:lexical,embedded"]) == 2
    assert "calls none" in capsys.readouterr().err
    assert run_command(["evaluate", str(path), "--dry-run", "--judge", "jury:llm:m,decision:typed", *url]) == 0
    assert capsys.readouterr().out.count("2 traces, judged by") == 2
