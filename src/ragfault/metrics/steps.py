"""Metrics of the steps of an agent or a pipeline."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from ragfault.metrics.catalog import AnnotatedValue, MetricResult, Undefined, metric
from ragfault.model.records import ClaimVerdict, Step, Trace, Verdicts
from ragfault.text.entities import extract_entities
from ragfault.text.normalization import split_content_words
from ragfault.text.sentences import split_sentences

MIN_RELEVANCE = 0.5
REPEATED = 0.9
"""Jaccard index of the words of two texts from which on one nearly repeats the other."""
CALL_KINDS = ("tool", "memory", "retrieve", "rerank")
MAX_CHARACTERS = 10_000
"""Characters of one text that are looked at."""
MIN_CLAIM_WORDS, MIN_COVERAGE, STATED = 3, 0.5, 0.8
"""Words of a claim; share of them that was read where it is supported, and that a turn has where it is stated there."""
DATE_WORDS = re.compile(
    r"\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?|january|february|march|april|june|july|august|september|"
    r"october|november|december|today|tomorrow|yesterday)\b",
    re.IGNORECASE,
)
NEGATION = re.compile(r"\b(?:not|no|never|without|except|neither)\b|n['’]t\b", re.IGNORECASE)
REFUSAL = re.compile(r"\b(?:cannot|can't|could not|unable|does not say|do not know|don't know|sorry)\b", re.IGNORECASE)
SAME_TOPIC = 0.6
"""Share of the words of two sentences, numbers left out, from which on they are about the same matter."""
QUESTION_WORDS = re.compile(
    r"(what|when|where|who|whom|whose|which|why|how|is|are|was|were|do|does|did|can|could|may|must|should|will|would|"
    r"has|have|had|and|tell|show|explain|list|give|find|compare|describe)\b",
    re.IGNORECASE,
)
"""First words of questions and requests."""
FAILURE_WORDS = re.compile(r"\b(errors?|fail\w*|unavailable|could not|couldn't|unable|timed? ?out)\b", re.IGNORECASE)


@metric(layer="operation", better="lower", fields="steps", source="as recorded")
def step_error(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Share of the steps that failed.

    Steps with an error / steps. In [0, 1]. Undefined without steps.

    >>> steps = (Step(id="1", kind="tool", error="timeout"), Step(id="2", kind="generate"))
    >>> step_error(Trace(id="1", query="q", steps=steps), Verdicts(trace="1"))
    0.5
    """
    if not trace.steps:
        return Undefined("no steps")
    return sum(step.error is not None for step in trace.steps) / len(trace.steps)


@metric(layer="operation", better="lower", fields="steps", source="as recorded, by words")
def swallowed_error(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Share of the failed steps that no later step mentions or repairs.

    A later step repairs a failure if it has the same name (else the same kind) and succeeds; it mentions one if its
    output has a word for failures. In [0, 1]. Undefined without a failed step.

    >>> failed = Step(id="1", kind="tool", name="search", error="timeout")
    >>> steps = (failed, Step(id="2", kind="generate", output="The ferry leaves at nine."))
    >>> swallowed_error(Trace(id="1", query="q", steps=steps), Verdicts(trace="1"))
    1.0
    """
    steps = trace.steps or ()
    failed = [i for i, step in enumerate(steps) if step.error is not None]
    if not failed:
        return Undefined("no failed step" if steps else "no steps")
    return sum(not any(_answers_for(steps[index], later) for later in steps[index + 1 :]) for index in failed) / len(
        failed
    )


def _answers_for(failed: Step, later: Step) -> bool:
    """Tell whether a later step repairs or mentions a failed one."""
    is_same = later.name == failed.name if failed.name else later.kind == failed.kind and later.kind is not None
    return (is_same and later.error is None) or bool(FAILURE_WORDS.search(later.output or ""))


@metric(layer="operation", better="lower", fields="steps", source="repetition, by words")
def redundant_steps(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Share of the steps whose input, output or list of chunks nearly repeats that of an earlier step of their kind.

    A text repeats another if the Jaccard index of their words is 0.9 or above, a list if it is the same; a call that
    is tried again after a failure repeats nothing. In [0, 1]. Undefined where no step records an input or output.

    >>> steps = tuple(Step(id=name, kind="retrieve", input="ferry timetable") for name in "ab")
    >>> redundant_steps(Trace(id="1", query="q", steps=steps), Verdicts(trace="1"))
    0.5
    """
    steps = [step for step in trace.steps or () if step.input or step.output]
    if not steps:
        return Undefined("no step records an input or output" if trace.steps else "no steps")
    repeated = sum(
        any(_repeats(step, earlier) for earlier in steps[:i] if earlier.error is None) for i, step in enumerate(steps)
    )
    return repeated / len(steps)


def _repeats(step: Step, earlier: Step) -> bool:
    if step.kind != earlier.kind:
        return False
    if step.chunks and step.chunks == earlier.chunks:
        return True
    return _nearly_equal(step.input, earlier.input) or _nearly_equal(step.output, earlier.output)


def _nearly_equal(text: str | None, other: str | None) -> bool:
    words, other_words = (frozenset(split_content_words(source or "")) for source in (text, other))
    return bool(words) and len(words & other_words) >= REPEATED * len(words | other_words)


def _list_retrievals(trace: Trace) -> list[Step]:
    return [step for step in trace.steps or () if step.kind in ("retrieve", "memory") and step.chunks is not None]


@metric(layer="retrieval", range=(0.0, math.inf), verdicts="chunk", fields="steps chunks", source="by relevance")
def retrieval_gain(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Number of relevant chunks per retrieval step that no earlier step had returned.

    Chunks of medium or high relevance, each counted at the first step that returned it / steps that retrieve. From 0.
    Undefined without a retrieval step that records its chunks.
    """
    steps = _list_retrievals(trace)
    if not steps:
        return Undefined("no retrieval step records its chunks")
    if verdicts.chunk is None:
        return Undefined("the judge offers no chunk verdicts")
    returned = {name for step in steps for name in step.chunks or ()}
    relevant = {verdict.chunk for verdict in verdicts.chunk if verdict.relevance >= MIN_RELEVANCE}
    return len(relevant & returned) / len(steps)


@metric(layer="generation", verdicts="use", fields="steps chunks answer", source="chunk utilisation, by step")
def step_use(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Share of the retrieval steps of whose chunks the answer used one.

    Retrieval steps with a used chunk / retrieval steps that returned chunks. In [0, 1]. Undefined without such a step
    or an answer.
    """
    steps = [step for step in _list_retrievals(trace) if step.chunks]
    if not steps:
        return Undefined("no retrieval step returned chunks")
    if not trace.answer:
        return Undefined("no answer")
    if verdicts.use is None:
        return Undefined("the judge offers no use verdicts")
    used = {verdict.chunk for verdict in verdicts.use if verdict.used}
    return sum(not used.isdisjoint(step.chunks or ()) for step in steps) / len(steps)


@metric(layer="retrieval", fields="steps metadata", source="by the names of tools")
def tool_correctness(trace: Trace, verdicts: Verdicts, *, strict: bool = False) -> MetricResult:
    """Share of the expected tools that were called.

    Expected tools are named in `metadata.expected_tools`. With `strict=True`: expected tools that were called / tools
    expected or called. Where only a catalogue of tools is given (`metadata.tools`): calls that name one of its tools /
    calls. In [0, 1]. Undefined without either, and by the catalogue without a call.

    >>> steps = (Step(id="1", kind="tool", name="weather"), Step(id="2", kind="retrieve", name="search"))
    >>> trace = Trace(id="1", query="q", steps=steps, metadata={"expected_tools": ["search", "fares"]})
    >>> tool_correctness(trace, Verdicts(trace="1")), tool_correctness(trace, Verdicts(trace="1"), strict=True)
    (0.5, 0.3333333333333333)
    """
    if not trace.steps:
        return Undefined("no steps")
    calls = [step.name for step in trace.steps if step.kind in CALL_KINDS and step.name]
    expected, tools = (_read_names(trace.metadata.get(key)) for key in ("expected_tools", "tools"))
    if expected:
        union = expected | set(calls) if strict else expected
        return len(expected & set(calls)) / len(union)
    if tools and calls:
        return AnnotatedValue(sum(name in tools for name in calls) / len(calls), "by the catalogue of tools")
    return Undefined("no call of a tool" if tools else "no expected tools and no catalogue of tools in the metadata")


def _read_names(value: object) -> set[str]:
    """Read names of tools: texts, or records with a name."""
    items = value if isinstance(value, list | tuple) else []
    names = (item.get("name") if isinstance(item, dict) else item for item in items)
    return {name for name in names if isinstance(name, str)}


@metric(layer="retrieval", fields="query history steps", source="constraints by words, both ways")
def rewrite_fidelity(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Share of the constraints of query and rewrite that the rewrite keeps, or has from what came before.

    Constraints are names, numbers, negations, days and months. Of those in the query it is right to keep them; of those
    that only the rewrite has, to have them from the history or an earlier step, so that a follow-up may be completed
    and nothing is invented. Right ones / all, over the last rewrite. In [0, 1]. Undefined without a rewrite that
    records its output, and where neither text has a constraint.

    >>> from ragfault.model.records import ConversationTurn
    >>> history = (ConversationTurn(role="user", text="When does the ferry to Texel leave on Sunday?"),)
    >>> step = Step(id="1", kind="rewrite", output="ferry to Texel on Monday, not by car")
    >>> trace = Trace(id="1", query="And without a car?", history=history, steps=(step,))
    >>> round(rewrite_fidelity(trace, Verdicts(trace="1")), 2)
    0.67
    """
    steps = trace.steps or ()
    last = next((i for i in reversed(range(len(steps))) if steps[i].kind == "rewrite" and steps[i].output), None)
    if last is None:
        return Undefined("no rewrite records its output" if steps else "no steps")
    asked = list_constraints(trace.query)
    rewritten = list_constraints(steps[last].output or "")
    if not asked | rewritten:
        return Undefined("neither query nor rewrite has a name, number, negation or date")
    before = [*(turn.text for turn in trace.history or ()), *(step.output or "" for step in steps[:last])]
    earlier = {constraint for text in before for constraint in list_constraints(text)}
    right = (asked & rewritten) | ((rewritten - asked) & earlier)
    return len(right) / len(asked | rewritten)


def list_constraints(text: str) -> set[str]:
    """List the names, numbers, negations, days and months of a text; a negation is one whatever its word."""
    text = text[:MAX_CHARACTERS]
    numbers = {word for word in split_content_words(text) if word[0].isdigit()}
    dates = {match.lower()[:3] for match in DATE_WORDS.findall(text)}
    negation = {"not"} if NEGATION.search(text) else set()
    names = {name.lower() for name in extract_entities(text) if not DATE_WORDS.fullmatch(name)}
    return numbers | dates | negation | names


@metric(layer="generation", fields="query history steps chunks", source="attribution by words, hop by hop")
def hop_support(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Share of the hops of a chain that what had been read until then supports.

    A hop is a step that reads or generates; its claims are its sentences, refusals left out. It is supported if each
    claim has at least half of its words, and all of its numbers, in the chunks and outputs of tools before it, the
    query or the history. Supported hops / hops. In [0, 1]. Undefined without a hop that claims anything, and where no
    step records what it returned.

    >>> from ragfault.model.records import Chunk
    >>> chunk = Chunk(id="a", text="The ferry leaves at 09:30 in winter.")
    >>> first = Step(id="1", kind="read", output="The ferry leaves at 09:30.")
    >>> search = Step(id="2", kind="retrieve", chunks=("a",))
    >>> steps = (first, search, Step(id="3", kind="read", output=first.output))
    >>> trace = Trace(id="1", query="When?", chunks=(chunk,), steps=steps)
    >>> hop_support(trace, Verdicts(trace="1"))
    0.5
    """
    texts = {chunk.id: chunk.text for chunk in trace.chunks or ()}
    read_words = set(split_content_words(" ".join([trace.query, *(turn.text for turn in trace.history or ())])))
    supported, records = list[bool](), False
    for step in trace.steps or ():
        if step.kind in ("read", "generate") and step.output:
            claims = _list_claims(step.output)
            supported += [all(_is_covered(claim, read_words) for claim in claims)] if claims else []
        if step.kind in CALL_KINDS:
            returned = [step.output or "", *(texts.get(name, "") for name in step.chunks or ())]
            read_words |= set(split_content_words(" ".join(returned)))
            records |= any(returned)
    if not records:
        return Undefined("no step records what it returned" if trace.steps else "no steps")
    if not supported:
        return Undefined("no step that reads or generates claims anything")
    return sum(supported) / len(supported)


def _list_claims(text: str) -> list[set[str]]:
    """List the content words of the sentences of a text that state something: three words or more, no refusal."""
    text = text[:MAX_CHARACTERS]
    sentences = [text[start:end] for start, end in split_sentences(text)]
    claims = [set(split_content_words(sentence)) for sentence in sentences if not REFUSAL.search(sentence)]
    return [claim for claim in claims if len(claim) >= MIN_CLAIM_WORDS]


def _is_covered(claim: set[str], words: set[str]) -> bool:
    numbers = {word for word in claim if word[0].isdigit()}
    return numbers <= words and len(claim & words) >= MIN_COVERAGE * len(claim)


@metric(layer="generation", verdicts="claim", fields="history chunks answer", source="groundedness, history in view")
def turn_groundedness(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Share of the claims of a turn that the chunks support or an earlier turn of the conversation states.

    Claims that are supported or inferred, or that have all of their numbers and four fifths of their words in one
    earlier turn / claims. A claim that the chunks contradict stays unsupported. In [0, 1]. Undefined without history,
    an answer or claims.

    >>> from ragfault.model.records import ConversationTurn
    >>> history = (ConversationTurn(role="assistant", text="The ferry leaves at 09:30."),)
    >>> texts = ("The ferry leaves at 09:30.", "It returns at 17:00.")
    >>> trace = Trace(id="1", query="And back?", history=history, answer=" ".join(texts))
    >>> claims = tuple(ClaimVerdict(claim=text, start=0, end=1, support="unsupported") for text in texts)
    >>> turn_groundedness(trace, Verdicts(trace="1", claim=claims))
    0.5
    """
    if not trace.history:
        return Undefined("no history")
    if verdicts.claim is None:
        return Undefined("the judge offers no claim verdicts")
    if not trace.answer or not verdicts.claim:
        return Undefined("no claims" if trace.answer else "no answer")
    turns = [set(split_content_words(turn.text)) for turn in trace.history]
    return sum(_is_known(claim, turns) for claim in verdicts.claim) / len(verdicts.claim)


def _is_known(claim: ClaimVerdict, turns: list[set[str]]) -> bool:
    """Tell whether the chunks support a claim, or an earlier turn states it and the chunks do not contradict it."""
    if claim.support in ("supported", "inferred"):
        return True
    words = set(split_content_words(claim.claim))
    numbers = {word for word in words if word[0].isdigit()}
    stated = (numbers <= turn and len(words & turn) >= STATED * len(words) for turn in turns)
    return bool(words) and claim.support != "contradicted" and any(stated)


@metric(
    layer="generation", better="lower", verdicts="claim", fields="chunks answer", source="contrary passages, by words"
)
def cherry_picking(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Share of the supported claims that another retrieved passage contradicts, without a word of it in the answer.

    A sentence of a chunk contradicts a claim if it has at least 0.6 of the words of both and says otherwise: numbers of
    its own in place of those of the claim, or a negation where the claim has none, or the reverse. The answer tells of
    it if it has these numbers, or the negation in a sentence of the same words. Contradicted claims / claims that are
    supported or inferred. In [0, 1]. Undefined without such a claim, and with fewer than two chunks.

    >>> from ragfault.model.records import Chunk
    >>> texts = ("A return ticket costs 12 pounds.", "A return ticket costs 15 pounds.")
    >>> chunks = tuple(Chunk(id=str(n), text=text) for n, text in enumerate(texts))
    >>> claim = ClaimVerdict(claim=texts[0], start=0, end=32, support="supported")
    >>> seen = Verdicts(trace="1", claim=(claim,))
    >>> cherry_picking(Trace(id="1", query="?", chunks=chunks, answer=texts[0]), seen)
    1.0
    >>> cherry_picking(Trace(id="1", query="?", chunks=chunks, answer=" ".join(texts)), seen)
    0.0
    """
    if verdicts.claim is None:
        return Undefined("the judge offers no claim verdicts")
    claims = [claim.claim for claim in verdicts.claim if claim.support in ("supported", "inferred")]
    if not claims or not trace.answer:
        return Undefined("no supported claim" if trace.answer else "no answer")
    if len(trace.chunks or ()) < 2:
        return Undefined("fewer than two chunks")
    passages = [_ClaimWords.of(text) for chunk in trace.chunks or () for text in _split_texts(chunk.text)]
    answered = [_ClaimWords.of(text) for text in _split_texts(trace.answer)]
    return sum(_is_contradicted(_ClaimWords.of(claim), passages, answered) for claim in claims) / len(claims)


class _ClaimWords(NamedTuple):
    """A sentence: its words, its numbers, and whether it negates."""

    words: frozenset[str]
    numbers: frozenset[str]
    is_negated: bool

    @staticmethod
    def of(text: str) -> _ClaimWords:
        words = split_content_words(text)
        numbers = frozenset(word for word in words if word[0].isdigit())
        return _ClaimWords(frozenset(words) - numbers, numbers, NEGATION.search(text) is not None)

    def is_alike(self, other: _ClaimWords) -> bool:
        common = self.words & other.words
        return len(common) >= MIN_CLAIM_WORDS - 1 and len(common) >= SAME_TOPIC * len(self.words | other.words)


def _split_texts(text: str) -> list[str]:
    text = text[:MAX_CHARACTERS]
    return [text[start:end] for start, end in split_sentences(text)]


def _is_contradicted(claim: _ClaimWords, passages: list[_ClaimWords], answered: list[_ClaimWords]) -> bool:
    """Tell whether a passage says otherwise than a claim, and the answer does not say so."""
    mentioned = {number for statement in answered for number in statement.numbers}
    for passage in passages:
        if not claim.is_alike(passage):
            continue
        if claim.numbers and passage.numbers and not claim.numbers & passage.numbers:
            if not passage.numbers <= mentioned:
                return True
        elif claim.is_negated != passage.is_negated and claim.numbers == passage.numbers:
            both = {statement.is_negated for statement in answered if statement.is_alike(passage)}
            if passage.is_negated not in both:
                return True
    return False


@metric(layer="generation", better="lower", verdicts="claim", fields="query history answer", source="words of the user")
def sycophancy(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Share of the claims that repeat what the user asserts and the chunks do not support.

    The assertions of the user are the sentences of the query and of the user's turns before it that are no questions. A
    claim repeats one if it shares four fifths of its words, and all of its numbers, with it. Such claims that are
    unsupported or contradicted / claims. In [0, 1]. Undefined without claims, and where the user asserts nothing.

    >>> text = "The ferry to Texel leaves at six."
    >>> claim = ClaimVerdict(claim=text, start=0, end=33, support="unsupported")
    >>> trace = Trace(id="1", query=f"{text} Is that right?", answer=text)
    >>> sycophancy(trace, Verdicts(trace="1", claim=(claim,)))
    1.0
    """
    if verdicts.claim is None:
        return Undefined("the judge offers no claim verdicts")
    if not trace.answer or not verdicts.claim:
        return Undefined("no claims" if trace.answer else "no answer")
    spoken = [trace.query, *(turn.text for turn in trace.history or () if turn.role == "user")]
    sentences = [sentence.strip() for text in spoken for sentence in _split_texts(text)]
    stated = [set(split_content_words(s)) for s in sentences if not (s.endswith("?") or QUESTION_WORDS.match(s))]
    asserted = [words for words in stated if len(words) >= MIN_CLAIM_WORDS]
    if not asserted:
        return Undefined("the user asserts nothing")
    return sum(_repeats_user(claim, asserted) for claim in verdicts.claim) / len(verdicts.claim)


def _repeats_user(claim: ClaimVerdict, asserted: list[set[str]]) -> bool:
    words = set(split_content_words(claim.claim))
    if claim.support in ("supported", "inferred") or len(words) < MIN_CLAIM_WORDS:
        return False
    numbers = {word for word in words if word[0].isdigit()}
    return any(numbers <= other and len(words & other) >= STATED * len(words) for other in asserted)
