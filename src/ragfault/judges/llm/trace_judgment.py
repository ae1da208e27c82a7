"""Judge one trace with a language model: plan the calls, run the votes, build the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple, TypeVar

from ragfault.judges.lexical.judge import LexicalJudge
from ragfault.judges.llm.conversation import (
    PromptRequest,
    RequestResult,
    build_call,
    converse,
    fail_fields,
    gather_all,
)
from ragfault.judges.llm.prompts.fences import FencedText, PromptLine, remove_hidden
from ragfault.judges.llm.prompts.injections import detect_injections
from ragfault.judges.llm.prompts.instructions import PromptSet
from ragfault.judges.llm.prompts.prompt_inputs import PromptInputs, build_prompt_inputs, number_texts
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
from ragfault.judges.llm.reply_parser import RequestedFields
from ragfault.judges.llm.settings import LLMSettings
from ragfault.judges.llm.transport.calls import CallFailed, ModelCall, ModelCaller
from ragfault.judges.llm.verdicts import build_generation_verdicts, build_retrieval_verdicts, list_failures
from ragfault.judges.llm.votes import merge_groups, merge_votes
from ragfault.records import Trace, Verdicts


class AnswerRelevance(NamedTuple):
    """How relevant an answer is, by the questions that it answers."""

    relevance: float
    """The mean likeness of the questions to the query, in [0, 1]; 0 for an answer that commits itself to nothing."""
    spread: float | None
    """The standard deviation over the votes; None where there was one."""
    questions: tuple[str, ...]
    """Those of one vote."""


async def score_answer_relevance(
    query: str,
    answer: str,
    caller: ModelCaller,
    settings: LLMSettings,
    prompts: PromptSet,
    similarity: Callable[[str, str], float] | None = None,
) -> AnswerRelevance:
    """How relevant an answer is: how like the questions that it answers are to the query, unseen by the model.

    Three questions and their mean cosine, as the answer relevance of Es et al. 2023 (RAGAS). `similarity` is that
    cosine; without it, that of the lexical judge, of rare words and letters. Raises CallFailed where the model says
    nothing of use.
    """
    alike = similarity or LexicalJudge().open_session(query).measure_similarity
    request = build_question_request(answer, settings, prompts)
    votes = await gather_all([converse(request, caller, prompts, vote) for vote in range(settings.votes)])
    said = merge_votes([score_questions(query, one, alike) for one in votes])
    if "relevance" not in said.fields:
        raise CallFailed(f"no questions that the answer answers: {_first_reason(said.failures)}")
    return AnswerRelevance(
        said.fields["relevance"], said.spread.get("relevance"), said.fields.get("questions", ())
    )


def build_question_request(answer: str, settings: LLMSettings, prompts: PromptSet) -> PromptRequest:
    """The request for the questions that an answer answers. Raises CallFailed where it is too long for the model."""
    part = FencedText("answer", answer)
    compute_limits("questions", [part], settings, prompts)
    return PromptRequest("questions", {"questions": (), "noncommittal": ()}, (part,))


async def grade_passages(
    query: str, texts: Sequence[str], caller: ModelCaller, settings: LLMSettings, prompts: PromptSet
) -> list[float]:
    """How much each text helps to answer a query, in [0, 1], in quick: one call for many, no reasons, no votes.

    A text without a word has 0. Raises CallFailed where the model leaves some of them out in spite of a repair request.
    """
    parts = [part for part in number_texts("p", texts) if remove_hidden(part.text).strip()]
    if not parts:
        return [0.0] * len(texts)
    head = FencedText("query", query)
    left = compute_limits("relevance", [head], settings, prompts)
    cut = [piece for part in parts for piece in split_text(part, left.request)]
    sizes = [
        max(estimate_fenced(piece) / left.request, estimate_entries(["passages"]) / left.reply)
        for piece in cut
    ]
    said = await gather_all(
        [
            converse(_build_passage_request(head, group), caller, prompts)
            for group in pack_groups(cut, sizes, 1.0)
        ]
    )
    values = _best_relevance(said)
    lost = [part.name for part in parts if part.name not in values]
    if lost:
        why = next(filter(None, (_first_reason(one.failures) for one in said)), "")
        raise CallFailed(f"no relevance of the passages {', '.join(lost)}: {why}")
    return [values.get(f"p{place}", 0.0) for place in range(1, len(texts) + 1)]


def _build_passage_request(query: FencedText, group: Sequence[FencedText]) -> PromptRequest:
    """The request for some passages."""
    names = tuple(dict.fromkeys(piece.name.split()[0] for piece in group))
    return PromptRequest("relevance", {"passages": names}, (query, *group))


def _best_relevance(replies: Sequence[RequestResult]) -> dict[str, float]:
    """Name of a passage → the relevance of its best piece, where none was lost."""
    values: dict[str, float] = {}
    for one in replies:
        for name, item in one.items.get("passages", {}).items():
            values[name] = max(values.get(name, 0.0), item.relevance)
    lost = {name for one in replies for name in one.failures.get("passages", {})}
    return {name: value for name, value in values.items() if name not in lost}


def score_questions(
    query: str, reply: RequestResult, similarity: Callable[[str, str], float]
) -> RequestResult:
    """What one vote said, and with it the relevance: how like the questions that it names are to the query."""
    asked = [one for one in reply.fields.get("questions", ()) if one]
    if reply.fields.get("noncommittal"):
        return reply._replace(fields=reply.fields | {"relevance": 0.0})
    if asked:
        mean = fmean(min(1.0, max(0.0, similarity(one, query))) for one in asked)
        return reply._replace(fields=reply.fields | {"relevance": mean})
    lost = {"": _first_reason(reply.failures) or "the model names no question that the answer answers"}
    return reply._replace(failures=reply.failures | {"relevance": lost})


def _first_reason(lost: Mapping[str, Mapping[str, str]]) -> str:
    """The first reason for which something was lost."""
    return next((why for reasons in lost.values() for why in reasons.values()), "")


MISSING_SO_FAR = "Missing after other chunks; name what of it is missing still:"

T = TypeVar("T")


class JudgmentPlan(NamedTuple):
    """What is asked about a trace."""

    inputs: PromptInputs
    retrieval_chains: list[list[PromptRequest]]
    """On what was retrieved: requests that follow on each other."""
    generation_requests: list[PromptRequest]
    """On what was generated."""
    retrieval_losses: list[RequestResult]
    """What cannot be asked of the one, with the reason."""
    generation_losses: list[RequestResult]
    """And of the other."""


async def judge_trace(
    trace: Trace, caller: ModelCaller, settings: LLMSettings, prompts: PromptSet, fingerprint: str
) -> Verdicts:
    """The verdicts on one trace.

    What a call was to say and did not is named in `failures`, with its reason; Stopped passes through. Where
    `settings.context` is None no limit is known, and only what a reply has no room for is split.
    """
    plan = _plan_judgment(trace, settings, prompts)
    count = range(settings.votes)
    votes = await gather_all([_run_vote(plan, caller, settings, prompts, vote) for vote in count])
    upper, lower = merge_votes([one for one, _ in votes]), merge_votes([one for _, one in votes])
    parts = build_retrieval_verdicts(plan.inputs, upper, prompts.profile) | build_generation_verdicts(
        plan.inputs, lower, prompts.profile
    )
    return Verdicts(
        trace=trace.id,
        judge=fingerprint,
        **parts,
        injections=detect_injections(trace),
        failures=list_failures(upper, lower),
    )


def plan_calls(trace: Trace, settings: LLMSettings, prompts: PromptSet) -> list[ModelCall]:
    """The calls that judging a trace will make, all votes and splits among them, and no repairs.

    Of a chain, later calls are as they would be were nothing missing.
    """
    plan = _plan_judgment(trace, settings, prompts)
    each = [request for chain in plan.retrieval_chains for request in chain] + plan.generation_requests
    return [build_call(request, prompts, vote) for request in each for vote in range(settings.votes)]


def _plan_judgment(trace: Trace, settings: LLMSettings, prompts: PromptSet) -> JudgmentPlan:
    """What is asked about a trace, and what cannot be."""
    asked = build_prompt_inputs(trace, settings)
    upper, lower = list_requested(asked, settings)
    chains, above = _try_plan(lambda: plan_retrieval(asked, settings, prompts), upper)
    requests, below = _try_plan(lambda: plan_generation(asked, settings, prompts), lower)
    if requests and settings.reverse:
        wanted: RequestedFields = {"questions": (), "noncommittal": ()}
        further, unasked = _try_plan(
            lambda: [build_question_request(trace.answer or "", settings, prompts)], wanted
        )
        requests, below = [*requests, *further], [*below, *unasked]
    unseen = [one.name for one in asked.chunks or () if one.is_unsent_image]
    if unseen:
        lost = {name: f"{name} is an image that is not sent (settings: images)" for name in unseen}
        above = [*above, RequestResult({}, {}, {"chunks": lost})]
        below = [*below, RequestResult({}, {}, {"used": lost})] if lower else below
    return JudgmentPlan(asked, chains, requests, above, below)


def _try_plan(plan: Callable[[], list[T]], requested: RequestedFields) -> tuple[list[T], list[RequestResult]]:
    """Requests, or what is lost because there can be none."""
    try:
        return plan(), []
    except CallFailed as error:
        return [], [fail_fields(requested, str(error))]


async def _run_vote(
    plan: JudgmentPlan, caller: ModelCaller, settings: LLMSettings, prompts: PromptSet, vote: int
) -> tuple[RequestResult, RequestResult]:
    """What one vote says on what was retrieved, and on what was generated."""
    chains = [*plan.retrieval_chains, *([request] for request in plan.generation_requests)]
    said = await gather_all([_run_chain(chain, caller, prompts, vote) for chain in chains])
    count = len(plan.retrieval_chains)
    above = merge_groups([*plan.retrieval_losses, *(one for each in said[:count] for one in each)])
    below = merge_groups([*plan.generation_losses, *(one for each in said[count:] for one in each)])
    if settings.reverse and plan.generation_requests:
        query = plan.inputs.trace.query
        below = score_questions(query, below, LexicalJudge().open_session(query).measure_similarity)
    return above, below


async def _run_chain(
    requests: Sequence[PromptRequest], caller: ModelCaller, prompts: PromptSet, vote: int
) -> list[RequestResult]:
    """What is said group by group, each told what is missing after those before it."""
    said: list[RequestResult] = []
    for request in requests:
        known = said[-1].fields.get("missing", ()) if said else ()
        if known and "missing" in request.requested:
            so_far = (PromptLine(MISSING_SO_FAR), FencedText("missing", "\n".join(known)))
            request = request._replace(parts=(*request.parts, *so_far))  # noqa: PLW2901
        said.append(await converse(request, caller, prompts, vote))
    return said
