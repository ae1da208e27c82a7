"""A local endpoint in the manner of OpenAI's that answers at once and counts: calls, and tokens both ways.

A token is taken as four characters, alike for every tool. Of a request all texts count, and the schema or the tools
that it carries, as JSON without spaces; of a reply its text. Embeddings are counted apart. Before each piece of work
a runner posts to `/mark` which trace and metric it is about: counts are kept by metric, and replies speak of the trace.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from types import TracebackType
from typing import Any

from benchmarks.costs.replies import Scene, reply, schema_of

__all__ = ["Counts", "Endpoint"]

WARMING = "warming"
"""The metric of work that is not counted."""
SIZE = 64
"""Numbers in an embedding."""
Replies = Callable[[dict[str, Any] | None, str, Scene], str]


@dataclass
class Counts:
    """What was asked for."""

    calls: int = 0
    prompt: int = 0
    """Tokens sent, the schema or the tools among them."""
    schema: int = 0
    completion: int = 0
    embeddings: int = 0
    embedded: int = 0
    """Tokens sent to be embedded."""
    spoilt: int = 0
    """Replies that were malformed on purpose."""


def tokens(text: str) -> int:
    """Count tokens: four characters are one."""
    return -(-len(text) // 4)


def texts(node: Any) -> list[str]:
    """Return all texts in the messages of a request, without the names of roles and types."""
    if isinstance(node, str):
        return [node]
    if isinstance(node, list):
        return [text for part in node for text in texts(part)]
    if isinstance(node, dict):
        return [text for key, part in node.items() if key in ("content", "text") for text in texts(part)]
    return []


class ManyConnections(ThreadingHTTPServer):
    """A server that accepts as many connections at once as a tool opens."""

    request_queue_size = 1024


class Endpoint:
    """The server, on a thread of its own, as a context: with `spoil` = n every n-th reply is malformed."""

    def __init__(
        self,
        traces: list[dict[str, Any]],
        *,
        spoil: int = 0,
        replies: Replies = reply,
        handler: type[BaseHTTPRequestHandler] | None = None,
    ) -> None:
        self.traces, self.spoil, self.replies = traces, spoil, replies
        self.counts: defaultdict[str, Counts] = defaultdict(Counts)
        self.scene, self.lock, self.numbers = Scene(WARMING, traces[0]), threading.Lock(), count(1)
        self.server = ManyConnections(("127.0.0.1", 0), type("Bound", (handler or Handler,), {"endpoint": self}))
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> Endpoint:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.server.shutdown()
        self.server.server_close()

    def get_counts(self) -> dict[str, dict[str, int]]:
        """Return the counts by metric, without those of warming."""
        return {metric: asdict(counts) for metric, counts in self.counts.items() if metric != WARMING}

    def mark(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Note which trace and metric come next."""
        self.scene = Scene(sent["metric"], self.traces[sent["trace"]])
        return {}

    def embed(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Return embeddings in which every text is the same."""
        asked = sent["input"] if isinstance(sent["input"], list) else [sent["input"]]
        with self.lock:
            counts = self.counts[self.scene.metric]
            counts.embeddings += 1
            counts.embedded += sum(tokens(str(text)) for text in asked)
        vectors = [{"object": "embedding", "index": i, "embedding": [0.125] * SIZE} for i in range(len(asked))]
        return {
            "object": "list",
            "model": sent["model"],
            "data": vectors,
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
        }

    def answer(self, sent: dict[str, Any], messages: Any) -> tuple[str, int, int]:
        """Return the text of a reply, and the tokens of request and reply."""
        prompt = "\n".join(texts(messages))
        form = [sent[key] for key in ("tools", "response_format", "text") if sent.get(key)]
        carried = sum(tokens(json.dumps(part, separators=(",", ":"))) for part in form)
        text = self.replies(schema_of(sent, prompt), prompt, self.scene)
        with self.lock:
            counts = self.counts[self.scene.metric]
            if self.spoil and self.scene.metric != WARMING and next(self.numbers) % self.spoil == 0:
                text = text[: len(text) // 2] if text.startswith(("{", "[")) else "I would rather not say."
                counts.spoilt += 1
            counts.calls += 1
            counts.prompt += tokens(prompt) + carried
            counts.schema += carried
            counts.completion += tokens(text)
        return text, tokens(prompt) + carried, tokens(text)

    def chat(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Return a chat completion."""
        text, prompt, completion = self.answer(sent, sent["messages"])
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if sent.get("tools"):
            tool = sent["tools"][0]["function"]["name"]
            called = {"id": "call", "type": "function", "function": {"name": tool, "arguments": text}}
            message = {"role": "assistant", "content": None, "tool_calls": [called]}
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if sent.get("tools") else "stop"}
        return {
            "id": "chat", "object": "chat.completion", "created": 0, "model": sent["model"],
            "choices": [choice], "usage": usage,
        }  # fmt: skip

    def respond(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Return a reply in the form of OpenAI's Responses interface."""
        text, prompt, completion = self.answer(sent, [sent.get("instructions") or "", sent["input"]])
        content = {"type": "output_text", "text": text, "annotations": []}
        message = {"type": "message", "id": "said", "role": "assistant", "status": "completed", "content": [content]}
        usage = {
            "input_tokens": prompt, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": completion,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": prompt + completion,
        }  # fmt: skip
        return {
            "id": "response", "object": "response", "created_at": 0, "status": "completed", "model": sent["model"],
            "output": [message], "parallel_tool_calls": False, "tool_choice": "auto", "tools": [], "usage": usage,
        }  # fmt: skip


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    endpoint: Endpoint
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        ways = {
            "mark": self.endpoint.mark,
            "completions": self.endpoint.chat,
            "responses": self.endpoint.respond,
            "embeddings": self.endpoint.embed,
        }
        way = ways.get(self.path.partition("?")[0].rpartition("/")[2])
        body = json.dumps(way(sent) if way else {"error": {"message": "no such thing here"}}).encode()
        self.send_response(200 if way else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""
