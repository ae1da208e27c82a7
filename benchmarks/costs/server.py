"""Serve the interface of OpenAI locally, answer at once, and count calls and tokens in both directions.

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

from benchmarks.costs.replies import CurrentWork, find_schema, write_reply

__all__ = ["CountingEndpoint", "RequestCounts"]

WARMUP = "warming"
"""The metric of work that is not counted."""
EMBEDDING_SIZE = 64
"""Numbers in an embedding."""
ReplyFunction = Callable[[dict[str, Any] | None, str, CurrentWork], str]


@dataclass
class RequestCounts:
    """Calls and tokens of one metric."""

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


def count_tokens(text: str) -> int:
    """Count tokens: four characters are one."""
    return -(-len(text) // 4)


def list_texts(node: Any) -> list[str]:
    """Return all texts in the messages of a request, without the names of roles and types."""
    if isinstance(node, str):
        return [node]
    if isinstance(node, list):
        return [text for part in node for text in list_texts(part)]
    if isinstance(node, dict):
        return [text for key, part in node.items() if key in ("content", "text") for text in list_texts(part)]
    return []


class ManyConnections(ThreadingHTTPServer):
    """A server that accepts as many connections at once as a tool opens."""

    request_queue_size = 1024


class CountingEndpoint:
    """The server, on a thread of its own, as a context: with `spoil` = n every n-th reply is malformed."""

    def __init__(
        self,
        traces: list[dict[str, Any]],
        *,
        spoil: int = 0,
        replies: ReplyFunction = write_reply,
        handler: type[BaseHTTPRequestHandler] | None = None,
    ) -> None:
        self.traces, self.spoil, self.replies = traces, spoil, replies
        self.counts: defaultdict[str, RequestCounts] = defaultdict(RequestCounts)
        self.scene, self.lock, self.numbers = CurrentWork(WARMUP, traces[0]), threading.Lock(), count(1)
        self.server = ManyConnections(("127.0.0.1", 0), type("Bound", (handler or RequestHandler,), {"endpoint": self}))
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        """The address of the endpoint."""
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> CountingEndpoint:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.server.shutdown()
        self.server.server_close()

    def get_counts(self) -> dict[str, dict[str, int]]:
        """Return the counts by metric, without those of warming."""
        return {metric: asdict(counts) for metric, counts in self.counts.items() if metric != WARMUP}

    def announce_work(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Note which trace and metric come next."""
        self.scene = CurrentWork(sent["metric"], self.traces[sent["trace"]])
        return {}

    def create_embeddings(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Return embeddings in which every text is the same."""
        inputs = sent["input"] if isinstance(sent["input"], list) else [sent["input"]]
        with self.lock:
            counts = self.counts[self.scene.metric]
            counts.embeddings += 1
            counts.embedded += sum(count_tokens(str(text)) for text in inputs)
        vectors = [
            {"object": "embedding", "index": i, "embedding": [0.125] * EMBEDDING_SIZE} for i in range(len(inputs))
        ]
        return {
            "object": "list",
            "model": sent["model"],
            "data": vectors,
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
        }

    def answer(self, sent: dict[str, Any], messages: Any) -> tuple[str, int, int]:
        """Return the text of a reply, and the tokens of request and reply."""
        prompt = "\n".join(list_texts(messages))
        schemas = [sent[key] for key in ("tools", "response_format", "text") if sent.get(key)]
        schema_tokens = sum(count_tokens(json.dumps(part, separators=(",", ":"))) for part in schemas)
        text = self.replies(find_schema(sent, prompt), prompt, self.scene)
        with self.lock:
            counts = self.counts[self.scene.metric]
            if self.spoil and self.scene.metric != WARMUP and next(self.numbers) % self.spoil == 0:
                text = text[: len(text) // 2] if text.startswith(("{", "[")) else "I would rather not say."
                counts.spoilt += 1
            counts.calls += 1
            counts.prompt += count_tokens(prompt) + schema_tokens
            counts.schema += schema_tokens
            counts.completion += count_tokens(text)
        return text, count_tokens(prompt) + schema_tokens, count_tokens(text)

    def complete_chat(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Return a chat completion."""
        text, prompt, completion = self.answer(sent, sent["messages"])
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if sent.get("tools"):
            tool = sent["tools"][0]["function"]["name"]
            call = {"id": "call", "type": "function", "function": {"name": tool, "arguments": text}}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if sent.get("tools") else "stop"}
        return {
            "id": "chat",
            "object": "chat.completion",
            "created": 0,
            "model": sent["model"],
            "choices": [choice],
            "usage": usage,
        }

    def create_response(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Return a reply in the form of OpenAI's Responses interface."""
        text, prompt, completion = self.answer(sent, [sent.get("instructions") or "", sent["input"]])
        content = {"type": "output_text", "text": text, "annotations": []}
        message = {"type": "message", "id": "said", "role": "assistant", "status": "completed", "content": [content]}
        usage = {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": completion,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + completion,
        }
        return {
            "id": "response",
            "object": "response",
            "created_at": 0,
            "status": "completed",
            "model": sent["model"],
            "output": [message],
            "parallel_tool_calls": False,
            "tool_choice": "auto",
            "tools": [],
            "usage": usage,
        }


class RequestHandler(BaseHTTPRequestHandler):
    """Handler of the requests of one connection."""

    endpoint: CountingEndpoint
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        routes = {
            "mark": self.endpoint.announce_work,
            "completions": self.endpoint.complete_chat,
            "responses": self.endpoint.create_response,
            "embeddings": self.endpoint.create_embeddings,
        }
        route = routes.get(self.path.partition("?")[0].rpartition("/")[2])
        body = json.dumps(route(sent) if route else {"error": {"message": "no such thing here"}}).encode()
        self.send_response(200 if route else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""
