"""Operation metrics: latency, tokens, cost, errors and empty retrievals."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Literal

from ragfault.metrics.catalog import AnnotatedValue, MetricResult, Undefined, metric
from ragfault.model.records import Trace, Verdicts


@metric(layer="operation", better="lower", range=(0.0, math.inf), fields="latency", source="as recorded")
def latency(
    trace: Trace, verdicts: Verdicts, *, part: Literal["total", "retrieval", "generation"] = "total"
) -> MetricResult:
    """Duration of the trace, in milliseconds.

    `part` = total (where it is not recorded: retrieval + generation, and the row says so), retrieval or
    generation. Undefined where that was not recorded.

    >>> from ragfault.model.records import Latency
    >>> latency(Trace(id="1", query="q", latency=Latency(retrieval=20)), Verdicts(trace="1"), part="retrieval")
    20
    """
    spent = trace.latency
    if spent is None:
        return Undefined("latency not recorded")
    if part == "retrieval":
        value = spent.retrieval
    elif part == "generation":
        value = spent.generation
    else:
        value = spent.total
        if value is None and spent.retrieval is not None and spent.generation is not None:
            return AnnotatedValue(spent.retrieval + spent.generation, "retrieval + generation")
    return Undefined(f"{part} latency not recorded") if value is None else value


@metric(layer="operation", better="lower", range=(0.0, math.inf), fields="tokens", source="as recorded")
def tokens(
    trace: Trace, verdicts: Verdicts, *, part: Literal["total", "prompt", "completion"] = "total"
) -> MetricResult:
    """Number of tokens that the generator was paid for.

    `part` = total, prompt or completion. Undefined where that was not recorded.
    """
    if trace.tokens is None:
        return Undefined("tokens not recorded")
    prompt, completion = trace.tokens.prompt, trace.tokens.completion
    if part == "total":
        value = None if prompt is None or completion is None else prompt + completion
    else:
        value = prompt if part == "prompt" else completion
    return Undefined(f"{part} tokens not recorded") if value is None else value


@metric(
    layer="operation",
    better="lower",
    range=(0.0, math.inf),
    fields="tokens model",
    source="the price catalogue genai-prices, or the rates given",
    extra="cost",
    packages="genai_prices",
)
def cost(
    trace: Trace, verdicts: Verdicts, *, prompt: float | None = None, completion: float | None = None
) -> MetricResult:
    """Cost of the generator's tokens, in US$.

    `prompt` and `completion` are US$ per million tokens; without them the price of the trace's model is
    looked up in the catalogue carried by genai-prices, at the time of the trace. Undefined without tokens,
    or where the model has no known price.
    """
    if trace.tokens is None or trace.tokens.prompt is None or trace.tokens.completion is None:
        return Undefined("tokens not recorded")
    if prompt is not None and completion is not None:
        return (trace.tokens.prompt * prompt + trace.tokens.completion * completion) / 1e6
    if prompt is not None or completion is not None:
        return Undefined("only one of the two rates is given")
    if trace.model is None:
        return Undefined("the model is not recorded")
    return _lookup_price(trace.model, trace.tokens.prompt, trace.tokens.completion, trace.time)


def _lookup_price(model: str, prompt: int, completion: int, time: datetime | None) -> MetricResult:
    """Return the price of a call in US$ from the price catalog."""
    from genai_prices import Usage, calc_price

    try:
        usage = Usage(input_tokens=prompt, output_tokens=completion)
        price = calc_price(usage, model_ref=model, genai_request_timestamp=time)
    except LookupError:
        return Undefined(f'no known price for the model "{model}"')
    return float(price.total_price)


@metric(layer="operation", better="lower", verdicts="use", fields="chunks answer", source="unused context, by length")
def context_waste(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Share of the context's tokens that lie in unused chunks.

    Tokens of the chunks that the answer did not use / tokens of all chunks, tokens taken as proportional to
    characters. In [0, 1]. Undefined with no chunks or no answer.
    """
    if not trace.chunks:
        return Undefined("chunks not recorded" if trace.chunks is None else "nothing retrieved")
    if not trace.answer:
        return Undefined("no answer")
    if not verdicts.use:
        return Undefined("the judge offers no use verdicts")
    sizes = [len(chunk.text) for chunk in trace.chunks]
    if not sum(sizes):
        return Undefined("the chunks hold no text")
    unused = sum(size for size, use in zip(sizes, verdicts.use, strict=True) if not use.used)
    return unused / sum(sizes)


@metric(layer="operation", better="lower", fields="error", source="as recorded")
def error(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Error: 1 where the pipeline failed on the query, else 0.

    1 or 0; never undefined.
    """
    return float(trace.error is not None)


@metric(layer="operation", better="lower", fields="chunks", source="as recorded")
def empty_retrieval(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Empty retrieval: 1 where the retriever returned no chunk, else 0.

    1 or 0. Undefined where chunks were not recorded.
    """
    return Undefined("chunks not recorded") if trace.chunks is None else float(not trace.chunks)


@metric(layer="operation", better="lower", fields="answer", source="as recorded")
def blank_answer(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Blank answer: 1 where no answer is recorded, or it is empty or white space, else 0.

    1 or 0. Undefined where the pipeline failed, which `error` counts.

    >>> [blank_answer(Trace(id="1", query="q", answer=text), Verdicts(trace="1")) for text in (None, " ", "Yes.")]
    [1.0, 1.0, 0.0]
    """
    if trace.error is not None:
        return Undefined("the pipeline failed")
    return float(trace.answer is None or not trace.answer.strip())


@metric(layer="operation", better="lower", fields="answer citations", source="as recorded")
def uncited_answer(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Uncited answer: 1 where the answer of a system that cites has no citation, else 0.

    1 where the list of citations is empty, else 0; a refusal counts as well. Undefined without an answer, and where
    citations were not recorded.

    >>> answered = Trace(id="1", query="q", answer="In 1921.", citations=())
    >>> uncited_answer(answered, Verdicts(trace="1"))
    1.0
    """
    if trace.answer is None or not trace.answer.strip():
        return Undefined("no answer")
    return Undefined("citations not recorded") if trace.citations is None else float(not trace.citations)
