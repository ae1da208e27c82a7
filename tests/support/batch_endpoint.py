"""Batch endpoints of both protocols for tests, with chat completions beside them: they answer by rule, and count."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from endpoint import reply


class BatchEndpoint:
    """Endpoint with its counters; batches end at the look of number `looks`, or when `paused` is cleared."""

    def __init__(self, *, looks: int = 2) -> None:
        self.looks = looks
        self.paused = False
        self.break_after_create = 0
        """Number of creations whose reply is lost."""
        self.errors = 0
        """Number of calls, the first of each batch, that fail."""
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.live: Counter[str] = Counter()
        """Text of a call → how often it was made alone."""
        self.batched: Counter[str] = Counter()
        """Text of a call → how often it was answered in a batch."""
        self.headers: list[dict[str, str]] = []
        self.prompt = 100
        """Tokens of a request."""
        self.url = ""

    def create(self, calls: list[dict[str, Any]], metadata: Any) -> str:
        name = f"batch_{len(self.batches)}"
        batch = {"calls": calls, "metadata": metadata, "looks": 0, "created": datetime.now(UTC)}
        for number, call in enumerate(calls):
            if number >= self.errors:
                self.batched[json.dumps(call["messages"])] += 1
        self.batches[name] = batch
        return name

    def is_ended(self, name: str) -> bool:
        return not self.paused and self.batches[name]["looks"] >= self.looks

    def complete(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        usage = {"prompt_tokens": self.prompt, "completion_tokens": 20}
        return {"choices": [{"message": {"content": reply(messages)}, "finish_reason": "stop"}], "usage": usage}

    def describe_openai(self, name: str) -> dict[str, Any]:
        batch, ended = self.batches[name], self.is_ended(name)
        failed = min(self.errors, len(batch["calls"]))
        counts = {"total": len(batch["calls"]), "completed": (len(batch["calls"]) - failed) * ended, "failed": failed}
        state = {"id": name, "status": "completed" if ended else "in_progress", "metadata": batch["metadata"]}
        files = {"output_file_id": f"out-{name}", "error_file_id": f"err-{name}" if failed else None} if ended else {}
        return state | files | {"request_counts": counts, "created_at": int(batch["created"].timestamp())}

    def write_openai_results(self, kind: str, name: str) -> str:
        lines = []
        for number, call in enumerate(self.batches[name]["calls"]):
            line: dict[str, Any] = {"custom_id": call["custom_id"]}
            if number >= self.errors and kind == "out":
                lines.append(
                    line | {"response": {"status_code": 200, "body": self.complete(call["messages"])}, "error": None}
                )
            elif number < self.errors and kind == "err":
                error = {"error": {"message": "no capacity"}}
                lines.append(line | {"response": {"status_code": 500, "body": error}, "error": None})
        return "\n".join(map(json.dumps, lines))

    def describe_anthropic(self, name: str) -> dict[str, Any]:
        batch, ended = self.batches[name], self.is_ended(name)
        count = len(batch["calls"])
        return {
            "id": name,
            "processing_status": "ended" if ended else "in_progress",
            "created_at": batch["created"].isoformat().replace("+00:00", "Z"),
            "request_counts": {"processing": 0 if ended else count, "succeeded": count if ended else 0},
            "results_url": "https://elsewhere.invalid/results" if ended else None,
        }

    def write_anthropic_results(self, name: str) -> str:
        lines = []
        for number, call in enumerate(self.batches[name]["calls"]):
            result: dict[str, Any] = {"type": "errored", "error": {"error": {"message": "no capacity"}}}
            if number >= self.errors:
                usage = {"input_tokens": 70, "cache_read_input_tokens": 30, "output_tokens": 20}
                content = [{"type": "text", "text": reply(call["messages"])}]
                message = {"content": content, "usage": usage, "stop_reason": "end_turn"}
                result = {"type": "succeeded", "message": message}
            lines.append(json.dumps({"custom_id": call["custom_id"], "result": result}))
        return "\n".join(lines)


@contextlib.contextmanager
def serve_batches(  # noqa: C901 - the paths of two protocols
    port: int = 0, **options: Any
) -> Iterator[BatchEndpoint]:
    """Serve both protocols on threads."""
    state = BatchEndpoint(**options)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def send(self, body: Any, status: int = 200) -> None:
            data = (body if isinstance(body, str) else json.dumps(body)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if match := re.fullmatch(r"/v1/files/(out|err)-(\w+)/content", path):
                self.send(state.write_openai_results(*match.groups()))
            elif match := re.fullmatch(r"/v1/messages/batches/(\w+)/results", path):
                self.send(state.write_anthropic_results(match[1]))
            elif match := re.fullmatch(r"/v1/(messages/)?batches(?:/(\w+))?", path):
                describe = state.describe_anthropic if match[1] else state.describe_openai
                if match[2]:
                    state.batches[match[2]]["looks"] += 1
                    self.send(describe(match[2]))
                else:
                    self.send({"data": [describe(name) for name in reversed(state.batches)], "has_more": False})
            elif path == "/counts":
                self.send(
                    {"live": sum(state.live.values()), "batches": len(state.batches), **count_batched_calls(state)}
                )
            elif path == "/release":
                state.paused = False
                self.send({})
            else:
                self.send({"error": {"message": "no such path"}}, 404)

        def do_POST(self) -> None:
            body = (
                self.rfile.read(int(self.headers["Content-Length"] or 0)) if "Content-Length" in self.headers else b""
            )
            if self.headers.get("Transfer-Encoding") == "chunked":
                body = b""
                while size := int(self.rfile.readline(), 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            state.headers.append({name.lower(): value for name, value in self.headers.items()})
            if self.path == "/v1/chat/completions":
                messages = json.loads(body)["messages"]
                state.live[json.dumps(messages)] += 1
                self.send(state.complete(messages))
            elif self.path == "/v1/files":
                name = f"file-{len(state.files)}"
                state.files[name] = body
                self.send({"id": name})
            elif self.path in ("/v1/batches", "/v1/messages/batches"):
                self.created(json.loads(body))
            else:
                self.send({"error": {"message": "no such path"}}, 404)

        def created(self, request: dict[str, Any]) -> None:
            if "requests" in request:
                rows = [{"custom_id": row["custom_id"], **row["params"]} for row in request["requests"]]
                name = state.create(rows, None)
            else:
                lines = [line for line in state.files[request["input_file_id"]].splitlines() if line[:1] == b"{"]
                calls = [json.loads(line) for line in lines]
                rows = [{"custom_id": call["custom_id"], **call["body"]} for call in calls]
                name = state.create(rows, request["metadata"])
            if state.break_after_create:
                state.break_after_create -= 1
                self.close_connection = True
                self.connection.close()
            else:
                self.send({"id": name})

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)


def count_batched_calls(state: BatchEndpoint) -> dict[str, int]:
    """Return how many different calls were answered in batches, and how often the most frequent one was."""
    return {"different": len(state.batched), "most": max(state.batched.values(), default=0)}


def main() -> None:
    """Serve batches that do not end before GET /release, until the process is killed; print the URL."""
    with serve_batches() as state:
        state.paused = True
        sys.stdout.write(f"{state.url}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
