"""Answer requests for questions about a corpus, by rule: with its sentences and headings that stand in the prompt.

Equal requests get equal replies. A share of the requests is refused (429), a share of the replies is broken off: which
ones depends on their number alone.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
from collections.abc import Iterable
from typing import Any

from benchmarks.costs.replies import CurrentWork, find_schema
from benchmarks.costs.server import EMBEDDING_SIZE, CountingEndpoint, RequestHandler

FENCED = re.compile(r"^<<(\w+) ([a-z][\w. ]*)>>\n(.*?)\n<</\1 \2>>$", re.DOTALL | re.MULTILINE)
"""Texts of ragfault's requests."""
SENTENCE = re.compile(r"[A-Z][^.|#\n]{30,300}\.")
QUESTION_FIELDS = ("question", "query", "input", "rewritten_input", "user_input")
DEFAULT_LIST_LENGTH = 3
"""Items of a list whose length the prompt does not state."""


def flatten(text: str) -> str:
    """Return a text without escapes, marks and double spaces, as prompts quote it in several ways."""
    return " ".join(re.sub(r"\\[nrt]|[\\*_`\"']", " ", text).split())


class CorpusWriter:
    """Writer of replies about the sentences of a corpus that a prompt quotes."""

    def __init__(self, texts: Iterable[str]) -> None:
        joined = list(texts)
        self.sentences = [(flatten(match), match) for text in joined for match in SENTENCE.findall(text)]
        self.headings = [match for text in joined for match in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]

    def __call__(self, schema: dict[str, Any] | None, prompt: str, _: CurrentWork) -> str:
        fenced = {name: text for _, name, text in FENCED.findall(prompt)}
        if "a" in fenced or "p1" in fenced:
            return json.dumps(self.answer_ragfault(fenced, prompt))
        if '"prompt_value":' in prompt:  # a request of Ragas to repair a malformed reply
            original = json.JSONDecoder().raw_decode(prompt.rpartition('"prompt_value":')[2].lstrip())[0]
            return json.dumps({"text": self(find_schema({}, original), original, _)})
        flat = flatten(prompt)
        quoted = [sentence for key, sentence in self.sentences if key in flat] or [self.sentences[0][1]]
        start = int(hashlib.sha256(prompt.encode()).hexdigest()[:8], 16) % len(quoted)
        order = quoted[start:] + quoted[:start]
        if schema is None:
            return order[0]
        return json.dumps(self.fill_schema(schema, schema, "", 0, order, prompt))

    def answer_ragfault(self, fenced: dict[str, str], prompt: str) -> dict[str, Any]:
        if "a" not in fenced:
            shown = {name: set(re.findall(r"\w+", text)) for name, text in fenced.items() if name[0] == "p"}
            checks = []
            for name, text in fenced.items():
                if name[0] == "q":
                    asked = set(re.findall(r"\w+", text))
                    best = max(shown, key=lambda key: len(shown[key] & asked))
                    checks.append({"id": name, "needs": [best], "also": [], "known": False, "clear": True})
            return {"questions": checks}
        number = int(re.findall(r"Number of questions: (\d+)", prompt)[-1])
        asked_before = fenced.get("asked", "")
        sentences = [text for text in SENTENCE.findall(fenced["a"]) if make_question(text)[0] not in asked_before]
        written = [
            {"question": make_question(text)[0], "answer": make_question(text)[1], "quotes": [text]}
            for text in sentences[:number]
        ]
        if "b" in fenced and written:
            written[0]["quotes"] += SENTENCE.findall(fenced["b"])[:1]
        return {"questions": written}

    def fill_schema(
        self, node: dict[str, Any], root: dict[str, Any], key: str, at: int, order: list[str], prompt: str
    ) -> Any:
        """Return a value that fits a schema, the `at`-th of its list."""
        if "$ref" in node:
            node = root["$defs"][node["$ref"].rpartition("/")[2]] | {}
        options = node.get("anyOf") or node.get("allOf")
        if options:
            return (
                None
                if any(option.get("type") == "null" for option in options)
                else self.fill_schema(options[0], root, key, at, order, prompt)
            )
        if "enum" in node or "const" in node:
            return node.get("const", (node.get("enum") or [None])[0])
        kind = node.get("type")
        if kind == "object":
            if key == "mapping":
                return {reader["name"]: find_list(prompt, "themes") for reader in find_list(prompt, "personas")}
            fields = node.get("properties", {})
            return {name: self.fill_schema(part, root, name, at, order, prompt) for name, part in fields.items()}
        if kind == "array":
            return self.fill_list(node.get("items", {}), root, key, order, prompt)
        if kind in ("integer", "number"):
            return 4 if kind == "integer" else 0.9
        if kind == "boolean":
            return True
        sentence = order[at % len(order)]
        if key in QUESTION_FIELDS:
            return make_question(sentence)[0]
        return f"Reader {int(hashlib.sha256(prompt.encode()).hexdigest()[:6], 16)}" if key == "name" else sentence

    def fill_list(
        self, node: dict[str, Any], root: dict[str, Any], key: str, order: list[str], prompt: str
    ) -> list[Any]:
        if key == "headlines":
            return [heading for heading in self.headings if heading in prompt][:10]
        if key in ("entities", "output", "themes"):
            return self.list_terms(order)
        if key == "combinations":
            concepts = find_list(prompt, "lists_of_concepts")
            return [list(pair) for pair in zip(*concepts[:2], strict=False)][:DEFAULT_LIST_LENGTH]
        asked = re.findall(r"(?:exactly |generate |list of )(\d+)\b", prompt)
        count = int(asked[-1]) if asked and key == "data" else 2 if key == "data" else DEFAULT_LIST_LENGTH
        return [self.fill_schema(node, root, key, i, order, prompt) for i in range(min(count, 10))]

    def list_terms(self, order: list[str]) -> list[str]:
        """Return the names in the quoted sentences, or their longest words."""
        names = [name for text in order for name in re.findall(r"(?<=[a-z,] )[A-Z]\w+(?: [A-Z]\w+)*", text)]
        return list(dict.fromkeys(names))[:8] or [max(text.split(), key=len) for text in order[:4]]


def find_list(prompt: str, name: str) -> list[Any]:
    """Return the last JSON list of a name in a prompt; empty without one."""
    place = prompt.rfind(f'"{name}":')
    if place < 0:
        return []
    listed = json.JSONDecoder().raw_decode(prompt[place:].partition(":")[2].lstrip())[0]
    return listed if isinstance(listed, list) else []


def make_question(sentence: str) -> tuple[str, str]:
    """Return a question that a sentence answers, and its answer."""
    words = re.findall(r"\w+", sentence)
    names = [word for word in words[1:] if word[0].isupper() or word.isdigit()] or [max(words, key=len)]
    return f"Which {' '.join(word for word in reversed(words) if word != names[-1])}?", names[-1]


class WritingEndpoint(CountingEndpoint):
    """Endpoint that refuses a share of the requests, and breaks off a share of the replies."""

    def __init__(self, texts: Iterable[str], *, refused: float = 0.0, broken: float = 0.0, seed: int = 0) -> None:
        super().__init__([{}], replies=CorpusWriter(texts), handler=RefusingHandler)
        self.scene = CurrentWork("testset", {})
        self.share_refused, self.share_broken = refused, broken
        self.refused, self.seen, self.seed = 0, 0, seed

    def draw_refusal(self) -> bool:
        """Count a request, and return whether it is refused."""
        with self.lock:
            self.seen += 1
            number = self.seen
        refused = random.Random(f"refused {self.seed} {number}").random() < self.share_refused
        self.refused += refused
        return refused

    def answer(self, sent: dict[str, Any], messages: Any) -> tuple[str, int, int]:
        text, prompt, completion = super().answer(sent, messages)
        with self.lock:
            counts = self.counts[self.scene.metric]
            if random.Random(f"broken {self.seed} {counts.calls}").random() < self.share_broken:
                counts.spoilt += 1
                text = text[: len(text) // 2]
        return text, prompt, completion

    def create_embeddings(self, sent: dict[str, Any]) -> dict[str, Any]:
        message = super().create_embeddings(sent)
        asked = sent["input"] if isinstance(sent["input"], list) else [sent["input"]]
        for row, text in zip(message["data"], asked, strict=True):
            vector = [1e-3] * EMBEDDING_SIZE
            for word in re.findall(r"\w+", str(text).lower()):
                vector[int(hashlib.md5(word.encode(), usedforsecurity=False).hexdigest()[:6], 16) % EMBEDDING_SIZE] += 1
            length = math.hypot(*vector)
            row["embedding"] = [value / length for value in vector]
        return message


class RefusingHandler(RequestHandler):
    """One request, which may be refused; the connection ends with it.

    Over connections that stay open Ragas ends with "Event loop is closed": each of its stages has a loop of its own.
    """

    endpoint: WritingEndpoint
    protocol_version = "HTTP/1.0"

    def do_POST(self) -> None:  # noqa: N802 - named by the standard library
        if self.path.endswith(("completions", "responses")) and self.endpoint.draw_refusal():
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps({"error": {"message": "rate limit reached", "type": "requests"}}).encode()
            self.send_response(429)
            self.send_header("Content-Type", "application/json")
            self.send_header("Retry-After", "1")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        super().do_POST()
