"""Services that rank and embed, spoken to over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from ragfault.model.errors import UsageError
from ragfault.retrieval.embedders.registry import load_embedder
from ragfault.retrieval.rerankers import CohereReranker, VertexReranker, VoyageReranker
from ragfault.retrieval.service_client import ServiceFailed, post_json

TEXTS = ["Dogs need a lead.", "The ferry leaves at ten.", "Fares rose."]
KEY = "sk-a-very-secret-key"


class Service(ThreadingHTTPServer):
    """A service that keeps what it was asked, and answers as it is told."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], dict]] = []
        self.trouble: list[tuple[int, dict[str, str], bytes]] = []
        self.spoil = None
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, dict(self.headers), body))
        if self.server.trouble:
            status, headers, payload = self.server.trouble.pop(0)
        else:
            status, headers = 200, {}
            answer = ANSWERS[next(name for name in ANSWERS if name in self.path)](body)
            payload = json.dumps(self.server.spoil(answer) if self.server.spoil else answer).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(payload))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def shared(query: str, text: str) -> float:
    words = set(query.lower().strip("?").split())
    return len(words & set(text.lower().strip(".").split())) / len(words)


ANSWERS = {
    "/v2/rerank": lambda body: {
        "results": [
            {"index": place, "relevance_score": shared(body["query"], text)}
            for place, text in reversed(list(enumerate(body["documents"])))
        ]
    },
    "/v1/rerank": lambda body: {
        "data": [
            {"index": place, "relevance_score": shared(body["query"], text)}
            for place, text in enumerate(body["documents"])
        ]
    },
    ":rank": lambda body: {
        "records": [
            {"id": record["id"], "score": shared(body["query"], record["content"])} for record in body["records"]
        ]
    },
    "/embeddings": lambda body: {
        "data": [
            {"index": place, "embedding": [float(len(text)), 1.0, 0.0]} for place, text in enumerate(body["input"])
        ]
    },
}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    for name in ("COHERE_API_KEY", "VOYAGE_API_KEY", "GOOGLE_ACCESS_TOKEN"):
        monkeypatch.setenv(name, KEY)
    monkeypatch.setattr("ragfault.retrieval.service_client.FIRST_PAUSE", 0.01)
    with Service() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def rerankers(url: str) -> list:
    return [CohereReranker(base_url=url), VoyageReranker(base_url=url), VertexReranker("my-project", base_url=url)]


def test_scores_come_in_the_order_of_the_texts(service: Service):
    """Whatever order a service answers in, each text has its own score, and the key goes in the header alone."""
    for reranker in rerankers(service.url):
        scores = reranker.relevance("when does the ferry leave?", TEXTS)
        assert scores == [shared("when does the ferry leave?", text) for text in TEXTS]
        path, headers, body = service.asked[-1]
        assert headers["Authorization"] == f"Bearer {KEY}"
        assert KEY not in path + json.dumps(body)


def test_no_text_costs_no_request(service: Service):
    """Nothing is sent where nothing is to be ranked."""
    assert [reranker.relevance("?", []) for reranker in rerankers(service.url)] == [[], [], []]
    assert service.asked == []


def test_a_limit_is_waited_for(service: Service):
    """A service that is busy is asked again, and answers."""
    service.trouble = [(429, {"Retry-After": "0"}, b"slow down"), (503, {}, b"")]
    assert len(CohereReranker(base_url=service.url).relevance("ferry", TEXTS)) == 3
    assert len(service.asked) == 3


def test_a_refusal_is_not_tried_again_and_tells_no_key(service: Service):
    """A wrong key is said at once; the error shows what the service said, without the key in it."""
    service.trouble = [(401, {}, f"bad key {KEY}".encode())]
    with pytest.raises(ServiceFailed, match="401 bad key") as caught:
        CohereReranker(base_url=service.url).relevance("ferry", TEXTS)
    assert KEY not in str(caught.value)
    assert len(service.asked) == 1


def test_a_redirection_takes_no_key_elsewhere(service: Service):
    """A service that sends the request on gets no second one."""
    service.trouble = [(302, {"Location": f"{service.url}/elsewhere"}, b"")]
    with pytest.raises(ServiceFailed, match="302"):
        VoyageReranker(base_url=service.url).relevance("ferry", TEXTS)
    assert len(service.asked) == 1


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda answer: {"results": answer["results"][:2]}, "ranked 2 texts, and 3 were sent"),
        (lambda answer: {"results": answer["results"] * 2}, "twice"),
        (lambda answer: {"rows": []}, "not that of a ranking"),
        (lambda answer: {"results": [{"index": "x", "relevance_score": 1}]}, "not that of a ranking"),
    ],
)
def test_an_answer_that_lacks_a_score_shifts_no_other(service: Service, spoil, message):
    """What is lacking, doubled or no number is an error, never somebody else's score."""
    service.spoil = spoil
    with pytest.raises(ServiceFailed, match=message):
        CohereReranker(base_url=service.url).relevance("ferry", TEXTS)


def test_a_key_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch):
    """Without one the error names the variable of the environment."""
    monkeypatch.delenv("VOYAGE_API_KEY", raising=False)
    with pytest.raises(UsageError, match="VOYAGE_API_KEY"):
        VoyageReranker().relevance("?", ["x"])
    with pytest.raises(UsageError, match="not the address"):
        post_json("file:///etc/passwd", {})
    with pytest.raises(UsageError, match="not a project"):
        VertexReranker("../other")


def test_texts_are_embedded_behind_an_address(service: Service, monkeypatch: pytest.MonkeyPatch):
    """Rows of length 1 in the order of the texts; the key of OpenAI goes to no other address."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    embedder = load_embedder("endpoint:some-model", base_url=service.url)
    rows = embedder.embed(TEXTS)
    assert rows.shape == (3, 3)
    assert embedder.dimensions == 3
    assert np.linalg.norm(rows, axis=1) == pytest.approx([1, 1, 1])
    assert "Authorization" not in service.asked[-1][1]


def test_embeddings_that_are_not_all_there_are_refused(service: Service):
    """A row that lacks is an error."""
    service.spoil = lambda answer: {"data": answer["data"][1:]}
    with pytest.raises(ServiceFailed, match="embedded 2 texts, and 3 were sent"):
        load_embedder("endpoint:some-model", base_url=service.url).embed(TEXTS)


def test_a_service_that_is_not_there_is_named():
    """After all tries the error says where it was, and why it failed."""
    with pytest.raises(ServiceFailed, match=r"http://127.0.0.1:9/x gave no answer"):
        post_json("http://127.0.0.1:9/x", {}, attempts=1)


def test_every_service_is_named_as_the_catalogue_says():
    """vertex stands before a project, cohere and voyage alone or before a model; without its project vertex says so."""
    from ragfault.retrieval.stage_registry import load_reranker

    assert load_reranker("cohere").fingerprint == "cohere rerank-v3.5"
    assert load_reranker("voyage:rerank-lite").fingerprint == "voyage rerank-lite"
    assert "my-project" in load_reranker("vertex:my-project")._url
    with pytest.raises(UsageError, match="vertex:PROJECT"):
        load_reranker("vertex")
