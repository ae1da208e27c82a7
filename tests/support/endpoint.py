"""Endpoint with OpenAI's chat completions for tests: it reads the request, answers by rule, and counts.

It answers right, wrong, malformed, slowly or not at all, in given shares; which attempt meets which fault depends on
the seed, the request and the number of the attempt alone. On a thread:

    with serve_model({"429": 0.1}) as server: ...  # server.url, server.calls

or as its own process, until it is killed; it prints its port first, and GET /counts returns its counters:

    python tests/support/endpoint.py PORT [--faults '{"429": 0.1}'] [--delay SECONDS] [--seed N]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

STATUS = {"400": "Bad Request", "401": "Unauthorized", "404": "Not Found", "429": "Too Many Requests"}
FENCED = re.compile(r"^<<(\w+) ([a-z][\w. ]*)>>\n(.*?)\n<</\1 \2>>$", re.DOTALL | re.MULTILINE)
ASKED = re.compile(r"(?:Fields|each id once): (.*)")
FIELD = re.compile(r"(\w+)(?: \(of ([^)]*)\))?")
LETTER = {"chunks": "c", "statements": "t", "claims": "s", "used": "c", "citations": "k", "facts": "f", "truth": "s"}
LETTER |= {"passages": "p", "rubrics": "u"}


def split_words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def reply(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the correct reply by rule: shared words are relevant, and what a chunk contains is supported by
    it.
    """
    first = next(get_text(message) for message in messages if message["role"] == "user")
    texts = {name: text for _, name, text in FENCED.findall(first)}
    citations = re.findall(r"^(k\d+): ", first, re.MULTILINE)
    requests = ASKED.findall(get_text(messages[-1]))
    fields: dict[str, Any] = {}
    for name, ids in FIELD.findall(requests[-1] if requests else "questions, noncommittal"):
        letter = LETTER.get(name)
        ids_shown = citations if letter == "k" else [name for name in texts if letter and name[0] == letter]
        ids_named = [name for name in (name.split()[0] for name in ids.split(", ") if name) if name] or ids_shown
        distinct_ids = dict.fromkeys(name.split()[0] for name in ids_named if name[:1] == letter)
        fields[name] = (
            [{"id": item_id, **build_item(name, item_id, texts)} for item_id in distinct_ids]
            if letter
            else _free(name, texts)
        )
    return json.dumps(fields)


def get_text(message: Mapping[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def build_item(name: str, item_id: str, texts: Mapping[str, str]) -> dict[str, Any]:
    text = texts.get(item_id, "")
    chunk = next((c for c, chunk_text in texts.items() if c[0] == "c" and text and text.strip(".") in chunk_text), "")
    quote = text.strip(".") if chunk else ""
    query_words = split_words(texts.get("query", ""))
    overlap = round(len(split_words(text) & query_words) / (len(query_words) or 1), 2)
    return {
        "chunks": {"reason": "shares words", "relevance": overlap},
        "passages": {"relevance": overlap},
        "statements": {"chunk": chunk, "quote": quote, "covered": bool(chunk)},
        "claims": {
            "chunk": chunk,
            "quote": quote,
            "reason": "stands there" if chunk else "stands nowhere",
            "support": "supported" if chunk else "unsupported",
            "p": 0.9 if chunk else 0.1,
        },
        "used": {"used": True},
        "citations": {"supports": True, "p": 0.9},
        "facts": {"present": True, "contradicted": False},
        "truth": {"status": "unknown"},
        "rubrics": {"reason": "", "value": float("Dear" in " ".join(texts[key] for key in texts if key[0] in "as"))},
    }[name]


def _free(name: str, texts: Mapping[str, str]) -> Any:
    return {
        "missing": [],
        "aspects": [{"text": "the question", "answered": True}],
        "relevance": 1.0,
        "refused": False,
        "harm": [],
        "questions": [f"What is said here {number}?" for number in range(3)],
        "noncommittal": False,
        "lines": [f"What is known about {texts.get('text', '')}?"],
    }[name]


class Server:
    """Endpoint with its counters."""

    def __init__(
        self,
        faults: Mapping[str, float] | None = None,
        *,
        delay: float = 0.0,
        seed: int = 0,
        refuses: Sequence[str] = (),
        key: str | None = None,
        wait: str = "0.05",
        hang: float = 3600.0,
    ) -> None:
        self.faults, self.delay, self.seed, self.refuses = dict(faults or {}), delay, seed, tuple(refuses)
        self.key, self.wait, self.hang = key, wait, hang
        self.port = 0
        self.calls: Counter[str] = Counter()
        """Question → how often it came."""
        self.paid: Counter[str] = Counter()
        """Question → how often it was answered, or may have been."""
        self.delivered: Counter[str] = Counter()
        """Question → how often its answer arrived."""
        self.met: Counter[str] = Counter()
        """Fault → how often it was met."""
        self.tokens = 0
        """Tokens of all that was paid for."""
        self.now = self.most = 0
        self.keys: set[str] = set()
        self.headers: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def reply(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Return the correct reply by rule; tests of other requests have a rule of their own."""
        return reply(messages)

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._client, "127.0.0.1", port, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                if not await self._answer(lines[0], headers, body, writer):
                    break
        with contextlib.suppress(OSError):
            writer.close()

    async def _answer(self, line: str, headers: Mapping[str, str], body: bytes, writer: asyncio.StreamWriter) -> bool:
        if line.startswith("GET"):
            await self._send(writer, 200, self.counts())
            return True
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await self._completion(headers, json.loads(body), writer)
        finally:
            self.now -= 1

    async def _completion(self, headers: Mapping[str, str], body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        self.keys.add(headers.get("authorization", ""))
        self.headers = sorted(headers)
        if self.key and headers.get("authorization") != f"Bearer {self.key}":
            message = f"Incorrect API key provided: {headers.get('authorization')}"
            return await self._error(writer, 401, message)
        for name in self.refuses:
            if name in body or name == body.get("response_format", {}).get("type"):
                return await self._error(writer, 400, f"Unsupported parameter: '{name}' is not supported.", name)
        if body["model"] == "no-such-model":
            return await self._error(writer, 404, "The model no-such-model does not exist")
        self.bodies.append(body) if len(self.bodies) < 100 else None
        name = hashlib.sha256(json.dumps(body["messages"]).encode()).hexdigest()
        fault = self._fault(name, self.calls[name])
        self.calls[name] += 1
        self.met[fault] += 1
        if self.delay:
            await asyncio.sleep(self.delay)
        if fault in ("429", "500", "503", "504"):
            more = {"Retry-After": self.wait} if fault == "429" else {}
            return await self._error(writer, int(fault), f"fault {fault}", headers=more)
        return await self._paid(name, fault, body, writer)

    async def _paid(self, name: str, fault: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        """Answer a request that is charged, also where the answer does not arrive."""
        text = {"malformed": "Well, I would say so.", "wrong": '{"chunks": []}'}.get(fault) or self.reply(
            body["messages"]
        )
        limit = body.get("max_tokens") or body.get("max_completion_tokens") or 100_000
        cut = len(text) // 4 > limit
        text = text[: 4 * limit] if cut else text
        prompt = len(json.dumps([get_text(message) for message in body["messages"]])) // 4
        completion = len(text) // 4
        self.paid[name] += 1
        self.tokens += prompt + completion
        if fault == "cut":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99999\r\n\r\n{")
            return False
        if fault == "slow":
            await asyncio.sleep(self.hang)
            return False
        if fault == "garbage":
            await self._send(writer, 200, "no json at all")
            return True
        self.delivered[name] += 1
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        reason = "content_filter" if fault == "filter" else "length" if cut else "stop"
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": reason}
        payload = {"id": "1", "object": "chat.completion", "created": 1, "model": body["model"], "choices": [choice]}
        await self._send(writer, 200, payload if fault == "unmetered" else {**payload, "usage": usage})
        return True

    def _fault(self, name: str, tried: int) -> str:
        """Return the fault of an attempt; "" for none."""
        roll = int(hashlib.sha256(f"{self.seed} {name} {tried}".encode()).hexdigest()[:12], 16) / 16**12
        for fault, share in self.faults.items():
            roll -= share
            if roll < 0:
                return fault
        return ""

    async def _error(
        self,
        writer: asyncio.StreamWriter,
        status: int,
        message: str,
        parameter: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bool:
        payload = {"error": {"message": message, "type": "error", "param": parameter, "code": None}}
        await self._send(writer, status, payload, headers)
        return True

    async def _send(
        self, writer: asyncio.StreamWriter, status: int, payload: Any, headers: Mapping[str, str] | None = None
    ) -> None:
        data = payload.encode() if isinstance(payload, str) else json.dumps(payload).encode()
        head = [f"HTTP/1.1 {status} {STATUS.get(str(status), 'OK')}", f"Content-Length: {len(data)}"]
        head += ["Content-Type: application/json", *(f"{name}: {value}" for name, value in (headers or {}).items())]
        writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + data)
        await writer.drain()

    def counts(self) -> dict[str, Any]:
        """Return the counters for another process."""
        return {
            "calls": sum(self.calls.values()),
            "paid": sum(self.paid.values()),
            "delivered": sum(self.delivered.values()),
            "different": len(self.delivered),
            "tokens": self.tokens,
            "most": self.most,
            "met": dict(self.met),
            "authorized": sorted(self.keys),
        }


def make_traces(count: int, *, answer: str = "It is {n}. Nobody knows {n}.") -> list[Any]:
    """Return traces that need two distinct calls each."""
    from ragfault.model.records import Chunk, Trace

    return [
        Trace(
            id=str(number),
            query=f"What is number {number}?",
            chunks=(
                Chunk(id="a", text=f"It is {number}. Number {number} is here."),
                Chunk(id="b", text=f"Other {number}."),
            ),
            answer=answer.format(n=number),
            reference=f"It is {number}.",
        )
        for number in range(count)
    ]


@contextlib.contextmanager
def serve_model(
    faults: Mapping[str, float] | None = None, kind: type[Server] = Server, *, port: int = 0, **options: Any
) -> Iterator[Server]:
    """Serve the endpoint on a thread of its own."""
    server, loop, ready = kind(faults, **options), asyncio.new_event_loop(), threading.Event()

    async def work() -> None:
        await server.start(port)
        ready.set()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(work())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(30), "the endpoint did not start"
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(_ended(server), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


async def _ended(server: Server) -> None:
    assert server._server is not None
    server._server.close()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0.01)


async def _served(server: Server, port: int) -> None:
    await server.start(port)
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("port", type=int, nargs="?", default=0)
    parser.add_argument("--faults", type=json.loads, default={}, help='shares of the tries, such as {"429": 0.1}')
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each reply")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_served(Server(arguments.faults, delay=arguments.delay, seed=arguments.seed), arguments.port))


if __name__ == "__main__":
    sys.exit(main())
