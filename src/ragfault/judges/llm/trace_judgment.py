"""Judgment of one trace by a language model: plan the calls, run the votes, build the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple, TypeVar

from ragfault.judges.lexical.entailment import LexicalJudge
from ragfault.judges.llm.model_exchange import (
    PromptRequest,
    RequestResult,
    build_call,
    fail_fields,
    gather_all,
    merge_groups,
    merge_votes,
    request_with_repair,
)
from ragfault.judges.llm.prompts.instructions import PromptSet
from ragfault.judges.llm.prompts.prompt_inputs import PromptInputs, build_prompt_inputs, label_texts
from ragfault.judges.llm.prompts.request_plan import (
    compute_limits,
    estimate_entries,
    estimate_fenced,
    list_requested,
    pack_groups,
    plan_generation,
    plan_retrieval,
    split_text,
)
from ragfault.judges.llm.prompts.untrusted_text import FencedText, PromptLine, detect_injections, remove_hidden
from ragfault.judges.llm.reply_parser import RequestedFields
from ragfault.judges.llm.settings import LLMSettings
from ragfault.judges.llm.transport.reply_cache import CallFailed, ModelCall, ModelCaller
from ragfault.judges.llm.verdicts import build_generation_verdicts, build_retrieval_verdicts, list_failures
from ragfault.model.records import Trace, Verdicts


def build_question_request(answer: str, settings: LLMSettings, prompts: PromptSet) -> PromptRequest:
    """Build the request for the questions that an answer answers. Raises CallFailed where it is too long."""
    part = FencedText("answer", answer)
    compute_limits("questions", [part], settings, prompts)
    return PromptRequest("questions", {"questions": (), "noncommittal": ()}, (part,))


async def grade_passages(
    query: str, texts: Sequence[str], caller: ModelCaller, settings: LLMSettings, prompts: PromptSet
) -> list[float]:
    """Grade how much each text helps to answer a query, in [0, 1]: one call for many, no reasons, no votes.

    A blank text scores 0. Raises CallFailed where grades are missing after a repair request.
    """
    parts = [part for part in label_texts("p", texts) if remove_hidden(part.text).strip()]
    if not parts:
        return [0.0] * len(texts)
    query_text = FencedText("query", query)
    limits = compute_limits("relevance", [query_text], settings, prompts)
    pieces = [piece for part in parts for piece in split_text(part, limits.request)]
    sizes = [
        max(estimate_fenced(piece) / limits.request, estimate_entries(["passages"]) / limits.reply) for piece in pieces
    ]
    requests = [_build_passage_request(query_text, group) for group in pack_groups(pieces, sizes, 1.0)]
    results = await gather_all([request_with_repair(request, caller, prompts) for request in requests])
    values = _best_relevance(results)
    missing = [part.name for part in parts if part.name not in values]
    if missing:
        reason = next(filter(None, (_first_reason(result.failures) for result in results)), "")
        raise CallFailed(f"no relevance of the passages {', '.join(missing)}: {reason}")
    return [values.get(f"p{number}", 0.0) for number in range(1, len(texts) + 1)]


def _build_passage_request(query: FencedText, group: Sequence[FencedText]) -> PromptRequest:
    names = tuple(dict.fromkeys(piece.name.split()[0] for piece in group))
    return PromptRequest("relevance", {"passages": names}, (query, *group))


def _best_relevance(replies: Sequence[RequestResult]) -> dict[str, float]:
    """Map the name of a passage to the relevance of its best piece, where no piece failed."""
    values: dict[str, float] = {}
    for reply in replies:
        for name, item in reply.items.get("passages", {}).items():
            values[name] = max(values.get(name, 0.0), item.relevance)
    failed = {name for reply in replies for name in reply.failures.get("passages", {})}
    return {name: value for name, value in values.items() if name not in failed}


def score_questions(query: str, reply: RequestResult, similarity: Callable[[str, str], float]) -> RequestResult:
    """Add the relevance to one vote: the similarity of the questions it names to the query."""
    questions = [question for question in reply.fields.get("questions", ()) if question]
    if reply.fields.get("noncommittal"):
        return reply._replace(fields=reply.fields | {"relevance": 0.0})
    if questions:
        mean = fmean(min(1.0, max(0.0, similarity(question, query))) for question in questions)
        return reply._replace(fields=reply.fields | {"relevance": mean})
    reason = {"": _first_reason(reply.failures) or "the model names no question that the answer answers"}
    return reply._replace(failures=reply.failures | {"relevance": reason})


def _first_reason(failures: Mapping[str, Mapping[str, str]]) -> str:
    return next((reason for reasons in failures.values() for reason in reasons.values()), "")


MISSING_INFORMATION_PROMPT = "Missing after other chunks; name what of it is missing still:"

T = TypeVar("T")


class JudgmentPlan(NamedTuple):
    """Requests about a trace, and what cannot be asked."""

    inputs: PromptInputs
    retrieval_chains: list[list[PromptRequest]]
    """About the retrieval: requests that build on each other."""
    generation_requests: list[PromptRequest]
    """About the answer."""
    retrieval_losses: list[RequestResult]
    """Retrieval requests that cannot be made, with the reason."""
    generation_losses: list[RequestResult]
    """Generation requests that cannot be made, with the reason."""


async def judge_trace(
    trace: Trace, caller: ModelCaller, settings: LLMSettings, prompts: PromptSet, fingerprint: str
) -> Verdicts:
    """Return the verdicts on one trace.

    Fields that the model left out are named in `failures` with the reason; JudgeStopped passes through. Where
    `settings.context` is None requests are split by the length of their replies alone.
    """
    plan = _plan_judgment(trace, settings, prompts)
    vote_numbers = range(settings.votes)
    votes = await gather_all([_run_vote(plan, caller, settings, prompts, vote) for vote in vote_numbers])
    retrieval, generation = (merge_votes([result for result, _ in votes]), merge_votes([result for _, result in votes]))
    parts = build_retrieval_verdicts(plan.inputs, retrieval, prompts.profile) if settings.asks_about_retrieval else {}
    if settings.asks_about_answer:
        parts |= build_generation_verdicts(plan.inputs, generation, prompts.profile, settings.rubrics)
    return Verdicts(
        trace=trace.id,
        judge=fingerprint,
        **parts,
        injections=detect_injections(trace),
        failures=list_failures(retrieval, generation),
    )


def plan_calls(trace: Trace, settings: LLMSettings, prompts: PromptSet) -> list[ModelCall]:
    """List the calls for a trace with all votes and splits, as if nothing is missing; repair calls are left out."""
    plan = _plan_judgment(trace, settings, prompts)
    requests = [request for chain in plan.retrieval_chains for request in chain] + plan.generation_requests
    return [build_call(request, prompts, vote) for request in requests for vote in range(settings.votes)]


def _plan_judgment(trace: Trace, settings: LLMSettings, prompts: PromptSet) -> JudgmentPlan:
    inputs = build_prompt_inputs(trace, settings)
    retrieval_fields, generation_fields = list_requested(inputs, settings)
    chains, above = _try_plan(lambda: plan_retrieval(inputs, settings, prompts), retrieval_fields)
    requests, below = _try_plan(lambda: plan_generation(inputs, settings, prompts), generation_fields)
    if requests and settings.reverse:
        question_fields: RequestedFields = {"questions": (), "noncommittal": ()}
        question_requests, question_losses = _try_plan(
            lambda: [build_question_request(trace.answer or "", settings, prompts)], question_fields
        )
        requests, below = [*requests, *question_requests], [*below, *question_losses]
    unsent = [chunk.name for chunk in inputs.chunks or () if chunk.is_unsent_image]
    if unsent:
        failures = {name: f"{name} is an image that is not sent (settings: images)" for name in unsent}
        above = [*above, RequestResult({}, {}, {"chunks": failures})]
        below = [*below, RequestResult({}, {}, {"used": failures})] if generation_fields else below
    return JudgmentPlan(inputs, chains, requests, above, below)


def _try_plan(plan: Callable[[], list[T]], requested: RequestedFields) -> tuple[list[T], list[RequestResult]]:
    """Return requests, or the failed fields where there can be none."""
    try:
        return plan(), []
    except CallFailed as error:
        return [], [fail_fields(requested, str(error))]


async def _run_vote(
    plan: JudgmentPlan, caller: ModelCaller, settings: LLMSettings, prompts: PromptSet, vote: int
) -> tuple[RequestResult, RequestResult]:
    """Return the results of one vote on the retrieval and on the answer."""
    chains = [*plan.retrieval_chains, *([request] for request in plan.generation_requests)]
    results = await gather_all([_run_chain(chain, caller, prompts, vote) for chain in chains])
    count = len(plan.retrieval_chains)
    retrieval = merge_groups(
        [*plan.retrieval_losses, *(result for chain_results in results[:count] for result in chain_results)]
    )
    generation = merge_groups(
        [*plan.generation_losses, *(result for chain_results in results[count:] for result in chain_results)]
    )
    if settings.reverse and plan.generation_requests:
        query = plan.inputs.trace.query
        generation = score_questions(query, generation, LexicalJudge().open_session(query).measure_similarity)
    return retrieval, generation


async def _run_chain(
    requests: Sequence[PromptRequest], caller: ModelCaller, prompts: PromptSet, vote: int
) -> list[RequestResult]:
    """Ask request by request, each naming what is missing after those before it."""
    results: list[RequestResult] = []
    for request in requests:
        missing = results[-1].fields.get("missing", ()) if results else ()
        if missing and "missing" in request.requested:
            previous = (PromptLine(MISSING_INFORMATION_PROMPT), FencedText("missing", "\n".join(missing)))
            request = request._replace(parts=(*request.parts, *previous))  # noqa: PLW2901
        results.append(await request_with_repair(request, caller, prompts, vote))
    return results
