"""Relevance of documents by a language model: its budget."""

from __future__ import annotations

import pytest

from endpoint import serve_model
from installed import skip_without

skip_without("openai", reason="needs the extra llm")

from ragfault.apps.tune.relevance import compare_relevance
from ragfault.judges.llm.judge import LLMJudge
from ragfault.model.errors import BudgetExceeded
from ragfault.model.records import Document


@pytest.mark.long
def test_relevances_stay_within_the_budget_of_their_judge():
    """One judge that is asked query after query stays within one budget and reports the cost of each query."""
    documents = [Document(id="a", text="The ferry leaves at ten. It is green.")]
    with serve_model() as server:
        judge = LLMJudge("m", base_url=server.url, max_tokens=300, budget_tokens=8_000, price=(1.0, 1.0), cache="none")
        costs: list[float] = []
        with pytest.raises(BudgetExceeded):
            costs.extend(
                compare_relevance(f"{number} ferries?", documents, [judge]).scored[0].cost or 0 for number in range(20)
            )
        assert len(costs) > 2
        assert server.tokens <= 8_000
        assert sum(costs) == pytest.approx(server.tokens / 1e6)
