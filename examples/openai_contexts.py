"""The client of OpenAI: every answer is scored with the contexts it was made from, while the program goes on.

Run it with `python examples/openai_contexts.py`; it asks no network and needs no key, because it asks a little server
of its own. Leave `base_url` and `api_key` out to ask OpenAI, or name any endpoint that speaks as it does.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version

from openai import OpenAI

from ragfault.evaluation.online.background import BackgroundScorer
from ragfault.evaluation.online.scorer import ScoredTrace
from ragfault.integrations.openai import measure_client

HANDBOOK = ["The last ferry to the island leaves at 22:40 every evening.", "Dogs travel free on the ferry, on a lead."]
ANSWERS = iter(["The last ferry leaves at 22:40.", "The last ferry leaves at noon on Sundays."])


class Parrot(BaseHTTPRequestHandler):
    """An endpoint that says what it was told to say."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": next(ANSWERS)}}
        created = {"id": "1", "object": "chat.completion", "created": 1, "model": "parrot-1", "choices": [choice]}
        body = json.dumps(created).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main() -> None:
    """Ask twice, once with an answer that the handbook does not support, and print what was scored."""
    print(f"openai {version('openai')}")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Parrot)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    result: list[ScoredTrace] = []
    query = "When does the last ferry leave?"
    prompt = "Answer from this:\n" + "\n".join(HANDBOOK) + f"\n\nQuestion: {query}"
    with (
        BackgroundScorer(result.append, metrics=["context_relevance", "groundedness"]) as background,
        OpenAI(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="none") as plain,
    ):
        client = measure_client(plain, background, route="counter")
        for _ in range(2):
            client.chat.completions.create(
                model="parrot-1", messages=[{"role": "user", "content": prompt}], query=query, contexts=HANDBOOK
            )
    server.shutdown()
    server.server_close()
    for scored in result:
        print(f"{scored.trace.query} → {scored.trace.answer}")
        print(f"  {len(scored.trace.chunks or ())} chunks by {scored.trace.model}")
        print(f"  groundedness {scored.values['groundedness']:.2f}")


if __name__ == "__main__":
    main()
