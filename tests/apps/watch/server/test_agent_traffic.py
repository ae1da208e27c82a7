"""Live traffic of an agent: its spans over HTTP are scored, its page shows the steps, an incident names their kind."""

from __future__ import annotations

import html
import json
import random
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from installed import skip_without

skip_without("duckdb", reason="the server needs the extra `server`")
skip_without("fastapi", reason="the server needs the extra `server`")

from dashboard_server import Client, serve_app
from otlp_spans import encode_json
from ragfault.apps.watch.server.app import create_app
from ragfault.apps.watch.server.settings import ServerSettings
from ragfault.diagnosis.steps.operations import list_operation_faults
from ragfault.io.datasets.agent import SimulatedAgent, ToolFailure
from ragfault.io.otel.spans import OtelSpan
from ragfault.model.records import Step, Trace
from waiting import wait_until

pytestmark = pytest.mark.long

BEGIN, PER_MINUTE, ROUTE = 1_900_000_020, 3, "office"
OPERATIONS = {"memory": "search_memory", "plan": "plan", "tool": "execute_tool", "retrieve": "retrieval"}


class TimingOut(SimulatedAgent):
    """The search of three questions in five times out."""

    def search(self, query: str, question: Trace) -> Any:
        if random.Random(question.id).random() < 0.6:
            raise ToolFailure("timed out after 5 s")
        return super().search(query, question)


class Repeating(SimulatedAgent):
    """The plan of three questions in five makes one search three times."""

    def plan(self, question: Trace, query: str) -> list[tuple[str, str]]:
        calls = super().plan(question, query)
        return [calls[0]] * 2 + calls if random.Random(question.id).random() < 0.6 else calls


class LosingRewrites(SimulatedAgent):
    """The model that rewrites three questions in five does not answer."""

    def rewrite(self, question: Trace, remembered: str) -> str:
        if random.Random(question.id).random() < 0.6:
            raise ToolFailure("the model is overloaded")
        return super().rewrite(question, remembered)


class AgentServer:
    """A server that judges, whose clock the test sets."""

    def __init__(self, store: Path) -> None:
        self.place, self.now, self.taken = store, float(BEGIN), 0
        settings = ServerSettings(store=store, judge="lexical", reference_minutes=60)
        self.app = create_app(settings, lambda: self.now)

    def go_on_in(self, store: Path) -> AgentServer:
        """Return the same server on a copy of its store, which is closed."""
        shutil.copytree(self.place, store)
        other = AgentServer(store)
        other.now, other.taken = self.now, self.taken
        return other

    def receive(self, client: Client, agents: Sequence[SimulatedAgent], minutes: int) -> list[str]:
        """Send the spans of so many minutes of traffic and wait until all are scored; return the ids of the traces."""
        traces = [trace for agent in agents for trace in agent.answer_all()]
        sent = []
        for at, trace in enumerate(random.Random(1).sample(traces, minutes * PER_MINUTE)):
            moment = self.now + 60 * (at // PER_MINUTE) + 15 * (at % PER_MINUTE)
            sent.append(build_spans(trace, self.taken + at, moment))
        for first in range(0, len(sent), 60):
            post(client, [span for spans in sent[first : first + 60] for span in spans])
        self.taken += len(sent)
        self.now += 60 * minutes

        def is_settled() -> bool:
            state = self.app.state.server
            totals = state.store.compute_totals()
            return totals.traces == self.taken and not totals.waiting and not state.trace_assembler.pending_bodies

        wait_until(is_settled, pause=0.1)
        return [spans[0].trace for spans in sent]

    def watch(self, client: Client) -> list[dict[str, Any]]:
        """Run a few rounds of the alert scheduler and return the open incidents."""
        for _ in range(12):
            self.now += 60
            self.app.state.scheduler.run_round()
        return json.loads(client.ask("/incidents.json").text)["open"]


def build_spans(trace: Trace, number: int, moment: float) -> list[OtelSpan]:
    """Build the spans that an instrumented agent exports of a trace, in the conventions of gen_ai."""
    name, root = f"{number + 1:032x}", f"{number * 100 + 1:016x}"
    start = int(moment * 1e9)
    texts = {chunk.id: chunk.text for chunk in trace.chunks or ()}

    def build_span(at: int, step: Step) -> OtelSpan:
        began = start + int((step.start or 0.0) * 1e6)
        parent = root if step.parent is None else f"{number * 100 + 1 + int(step.parent):016x}"
        return OtelSpan(
            trace=name,
            id=f"{number * 100 + 2 + at:016x}",
            parent=parent,
            name=step.name or step.kind or "",
            start=began,
            end=began + int((step.duration or 0.0) * 1e6),
            attributes=describe_step(step, texts),
            status="ok" if step.error is None else "error",
            message=step.error or "",
        )

    steps = trace.steps or ()
    asked = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk", "ragfault.route": ROUTE}
    asked |= {"input.value": trace.query, "output.value": trace.answer or ""}
    end = start + int(1e6 * max((step.start or 0.0) + (step.duration or 0.0) for step in steps))
    return [
        OtelSpan(trace=name, id=root, name="invoke_agent clerk", start=start, end=end, attributes=asked),
        *(build_span(at, step) for at, step in enumerate(steps)),
    ]


def describe_step(step: Step, texts: dict[str, str]) -> dict[str, Any]:
    """Return the attributes of the span of a step."""
    attributes: dict[str, Any] = {"gen_ai.agent.name": "clerk"}
    if step.kind == "generate":
        parts = [{"type": "text", "content": step.output}]
        return attributes | {
            "gen_ai.operation.name": "chat",
            "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": parts}]),
        }
    if step.kind in OPERATIONS:
        attributes["gen_ai.operation.name"] = OPERATIONS[step.kind]
    else:
        attributes |= {"openinference.span.kind": "CHAIN", "ragfault.step.kind": step.kind}
    if step.kind == "retrieve":
        documents = [{"id": chunk, "content": texts[chunk]} for chunk in step.chunks or ()]
        attributes |= {"gen_ai.retrieval.query.text": step.input}
        return attributes | ({} if step.error else {"gen_ai.retrieval.documents": json.dumps(documents)})
    return attributes | {"input.value": step.input or "", "output.value": step.output or ""}


def post(client: Client, spans: list[OtelSpan]) -> None:
    """Send spans as an exporter does."""
    import urllib.request

    request = urllib.request.Request(
        client.url + "/v1/traces", encode_json(spans), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        assert json.load(answer) == {}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> AgentServer:
    """Return a server, which is closed, with 80 minutes of a well agent: they open no incident at all."""
    server = AgentServer(tmp_path_factory.mktemp("healthy") / "s")
    with serve_app(server.app) as url:
        client = Client(url)
        server.receive(client, [SimulatedAgent(seed) for seed in range(3)], 80)
        assert server.watch(client) == []
    return server


@pytest.mark.parametrize(
    ("agent", "kinds"),
    [(TimingOut, ("retrieve", "generate")), (Repeating, ("plan",)), (LosingRewrites, ("rewrite",))],
    ids=["searches fail and answers have read nothing", "plans repeat a search", "rewrites fail"],
)
def test_an_incident_names_the_kinds_of_steps(
    healthy: AgentServer, tmp_path: Path, agent: type[SimulatedAgent], kinds: tuple[str, ...]
):
    """A faulty agent opens one incident with the kinds, the onset and such traces, where a well one opened none."""
    server = healthy.go_on_in(tmp_path / "s")
    with serve_app(server.app) as url:
        client = Client(url)
        onset = server.now
        ids = server.receive(client, [agent(7)], 30)
        [incident] = [incident for incident in server.watch(client) if incident["layer"] == "operation"]
        assert incident["title"] == f"{' and '.join(kinds).capitalize()} steps broke"
        assert incident["sentence"].startswith(f"{incident['title']}: {kinds[0]} steps without a fault got worse")
        assert incident["title"] in client.ask("/incidents").text
        assert abs(incident["onset"] - onset) <= 600
        assert len(incident["traces"]) == 5
        assert set(incident["traces"]) <= set(ids)
        for id in incident["traces"]:
            _check_trace(client, id, kinds[0])


def _check_trace(client: Client, id: str, kind: str) -> None:
    """Check the page of a trace with a fault of the operation of a step: the tree, its texts, a suspected step."""
    view = json.loads(client.ask(f"/traces/{id}.json").text)
    trace = msgspec.convert(view["trace"], Trace)
    assert kind in {fault.kind for fault in list_operation_faults(trace)}
    page = client.ask(f"/traces/{id}").text
    tree = html.unescape(page[page.index('id="steps"') : page.index('id="answer"')])
    for step in trace.steps or ():
        assert step.output is None or step.output in tree
        assert step.input is None or step.input in tree
        assert step.error is None or step.error in tree
    assert {f"depth-{depth}" for depth in (0, 1, 2)} == set(re.findall(r"depth-\d", tree))
    assert "First faulty step: " in tree
    faulty = view["faulty_step"]
    assert faulty["status"] in ("fault", "cannot tell")
    if faulty["suspects"] and faulty["suspects"][0]["fault"] in ("tool_failed", "step_failed"):
        assert faulty["suspects"][0]["evidence"][0].startswith(("it failed", f"its {kind} step"))
        assert html.escape(faulty["suspects"][0]["evidence"][0], quote=False)[:20] in tree
    assert "no step is faulty" not in tree
