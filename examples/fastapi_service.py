"""FastAPI: every answer of a service is scored in the background, while the service goes on.

Run it with `python examples/fastapi_service.py`; it asks no network and needs no key, because its model is made up.
"""

from __future__ import annotations

from importlib.metadata import version

from fastapi import FastAPI
from fastapi.testclient import TestClient

from ragfault.evaluation.online.background import BackgroundScorer
from ragfault.evaluation.online.instrumentation import observe
from ragfault.evaluation.online.scorer import ScoredTrace

HANDBOOK = ["The last ferry to the island leaves at 22:40 every evening.", "Dogs travel free on the ferry, on a lead."]
ANSWERS = iter(["The last ferry leaves at 22:40.", "The last ferry leaves at noon on Sundays."])


def build_service(background: BackgroundScorer) -> FastAPI:
    """Build a service that retrieves and answers; put your own functions in their places."""

    @observe(background, "retriever")
    def retrieve(question: str) -> list[str]:
        return list(HANDBOOK)

    @observe(background, "generator")
    def generate(question: str, passages: list[str]) -> str:
        return next(ANSWERS)

    @observe(background)
    def answer(question: str) -> str:
        return generate(question, retrieve(question))

    service = FastAPI()
    service.get("/ask")(lambda question: {"answer": answer(question)})
    return service


def main() -> None:
    """Ask twice, once with an answer that the handbook does not support, and print what was scored."""
    print(f"fastapi {version('fastapi')}")
    result: list[ScoredTrace] = []
    with BackgroundScorer(result.append, metrics=["context_relevance", "groundedness"]) as background:
        client = TestClient(build_service(background))
        for _ in range(2):
            client.get("/ask", params={"question": "When does the last ferry leave?"}).raise_for_status()
    for scored in result:
        print(f"{scored.trace.query} → {scored.trace.answer}")
        print(f"  groundedness {scored.values['groundedness']:.2f}")


if __name__ == "__main__":
    main()
