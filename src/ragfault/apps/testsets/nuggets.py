"""Nuggets: the facts that a good answer states, vital and okay ones, from references or from pooled answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ragfault.judges.assembly import split_statements
from ragfault.judges.llm.prompts.untrusted_text import scan_text
from ragfault.model.errors import InputError
from ragfault.model.protocols import Judge
from ragfault.model.records import Chunk, Trace
from ragfault.text.normalization import normalize_answer, split_content_words

VITAL_SHARE = 0.5
"""A nugget that at least this share of the references or answers states is vital."""
MIN_ANSWERS = 2
"""Of a single answer nothing tells vital nuggets from okay ones."""
MAX_NUGGETS = 20
"""Nuggets of an item at most, those of most answers first; as TREC RAG 2024 has it."""


class NuggetCounts(Struct, frozen=True, kw_only=True):
    """Numbers of nuggets, and why some items have none."""

    vital: int
    """Nuggets without which an answer is incomplete."""
    okay: int
    unchanged: int
    """Items that had facts already."""
    without: dict[str, int]
    """Reason → number of items without a nugget."""
    contradicted: int = 0
    """Pooled nuggets that another one contradicts: okay ones, whatever the number of answers that state them."""
    unmatched: dict[str, int] = {}
    """Reason → number of answers that belong to no item."""


class NuggetResult(NuggetCounts, frozen=True, kw_only=True):
    """Items with their nuggets."""

    items: tuple[Trace, ...]


class KeyResult(Struct, frozen=True, kw_only=True):
    """Traces with the answer key of their item, and why others have none."""

    traces: tuple[Trace, ...]
    unmatched: dict[str, int]
    """Reason → number of traces that were left out."""


def add_nuggets(
    items: Iterable[Trace], judge: Judge, answers: Iterable[Trace] = (), *, replace_facts: bool = False
) -> NuggetResult:
    """Add nuggets to items: as `facts`, with the okay ones listed again in `metadata.okay_facts`.

    Statements of a reference are nuggets. Of `answers`, which belong to an item by their id or their query, each claim
    that the judge calls supported by the chunks of its trace is one; where no chunks were recorded, a claim that two
    answers make. Claims that the judge finds in each other are one nugget, in the words of the first. A nugget is
    vital if half of the references, or half of the answers, state it, by the judge; else it is okay. Identical answers
    to a query count once. A pooled nugget that another nugget contradicts is okay, and stands in
    `metadata.nuggets.contradicted`. Instructions to a model are no nuggets. Items with facts keep them, unless
    `replace_facts`. The judge must offer claim and fact verdicts.

    Raises InputError for a set without an item.

    >>> from ragfault.judges.loading import load_judge
    >>> item = Trace(id="1", query="Who built the quay?", reference="Ann Lee built the quay. It was in 1907.")
    >>> result = add_nuggets([item], load_judge("lexical"))
    >>> result.items[0].facts, result.vital
    (('Ann Lee built the quay.', 'It was in 1907.'), 2)
    """
    items_list = list(items)
    if not items_list:
        raise InputError("the evaluation set has no item.")
    pooled, unmatched = match_answers(items_list, answers)
    changed: list[Trace] = []
    counts: defaultdict[str, int] = defaultdict(int)
    without: defaultdict[str, int] = defaultdict(int)
    for item in items_list:
        if item.facts and not replace_facts:
            counts["unchanged"] += 1
            changed.append(item)
            continue
        facts, vital, contradicted = _list_nuggets(item, pooled.get(item.id, []), judge)
        if not facts:
            without[_explain_none(item, pooled.get(item.id, []))] += 1
            changed.append(item)
            continue
        counts["vital"] += len(vital)
        counts["okay"] += len(facts) - len(vital)
        counts["contradicted"] += len(contradicted)
        source = {"references": len(item.references), "answers": len(pooled.get(item.id, []))}
        changed.append(_write_nuggets(item, facts, vital, contradicted, {"judge": judge.fingerprint} | source))
    return NuggetResult(
        items=tuple(changed),
        vital=counts["vital"],
        okay=counts["okay"],
        unchanged=counts["unchanged"],
        without=dict(without),
        contradicted=counts["contradicted"],
        unmatched=unmatched,
    )


def match_answers(items: Sequence[Trace], answers: Iterable[Trace]) -> tuple[dict[str, list[Trace]], dict[str, int]]:
    """Return the different answers to each item by its id, and reason → number of answers that belong to none.

    Of identical answers to an item, white space apart, the first with chunks is taken, else the first.

    >>> answer = Trace(id="x", query="when is it open", answer="At 7.")
    >>> matched, unmatched = match_answers([Trace(id="1", query="When is it open?")], [answer, answer])
    >>> [trace.id for trace in matched["1"]], unmatched
    (['x'], {})
    """
    find_item = _index_items(items)
    matched: defaultdict[str, dict[str, Trace]] = defaultdict(dict)
    unmatched: defaultdict[str, int] = defaultdict(int)
    for trace in answers:
        text = " ".join((trace.answer or "").split())
        item = find_item(trace)
        if isinstance(item, str):
            unmatched[item] += 1
        elif text and (text not in matched[item.id] or (trace.chunks and not matched[item.id][text].chunks)):
            matched[item.id][text] = trace
    return {name: list(group.values()) for name, group in matched.items()}, dict(unmatched)


def _index_items(items: Iterable[Trace]) -> Callable[[Trace], Trace | str]:
    """Return what finds the item of a trace, or the reason why it has none.

    An item asks the query of the trace, word for word where there is one such, else normalised; of several with
    different answer keys the one with the id of the trace. A trace without a query has the item with its id.
    """
    by_query: defaultdict[str, list[Trace]] = defaultdict(list)
    by_id: defaultdict[str, list[Trace]] = defaultdict(list)
    for item in items:
        for query in {item.query, _normalize_query(item.query)}:
            by_query[query].append(item)
        by_id[item.id].append(item)

    def find_item(trace: Trace) -> Trace | str:
        if trace.query.strip():
            exact = [item for item in by_query.get(trace.query, ()) if item.query == trace.query]
            fitting = exact or by_query.get(_normalize_query(trace.query), [])
            fitting = [item for item in fitting if item.id == trace.id] or fitting
        else:
            fitting = by_id.get(trace.id, [])
        if not fitting:
            return "the item with the id asks another query" if trace.id in by_id else "no item asks the query"
        if any(_get_key(item) != _get_key(fitting[0]) for item in fitting):
            return "several items with different answer keys ask the query"
        return fitting[0]

    return find_item


def _normalize_query(query: str) -> str:
    return normalize_answer(query) or query


def _get_key(item: Trace) -> tuple[Any, ...]:
    return item.references, item.facts, item.gold, item.answerable, item.metadata.get("okay_facts")


def _explain_none(item: Trace, answers: Sequence[Trace]) -> str:
    if item.answerable is False:
        return "it is unanswerable: a refusal is right"
    if not answers:
        return "no reference and no answer" if not item.references else "the reference makes no statement"
    return "one answer alone" if len(answers) < MIN_ANSWERS else "no claim of the answers is supported"


def _list_nuggets(item: Trace, answers: Sequence[Trace], judge: Judge) -> tuple[list[str], set[str], list[str]]:
    """Return the nuggets of an item in order, which of them are vital, and the pooled ones that others contradict."""
    if item.answerable is False:
        return [], set(), []
    references = [split_statements(reference) for reference in item.references]
    texts = [*item.references, *(answer.answer or "" for answer in answers)]
    if not item.references and len(answers) < MIN_ANSWERS:
        return [], set(), []
    stated_first = (claim for group in references for claim in group if not scan_text("reference", claim))
    nuggets = _merge_claims(item.query, stated_first, judge)
    from_references = set(nuggets)
    doubtful: list[str] = []
    for claim, is_supported in _list_claims(answers, judge):
        if scan_text("answer", claim) or _has_nugget(item.query, claim, nuggets, judge):
            continue
        if is_supported or _has_nugget(item.query, claim, doubtful, judge):
            nuggets.append(claim)
        else:
            doubtful.append(claim)
    stated = _count_texts(item.query, nuggets, texts, judge)
    references_of = _count_texts(item.query, nuggets, item.references, judge)
    answers_of = {nugget: stated[nugget] - references_of[nugget] for nugget in nuggets}
    vital = {
        nugget
        for nugget in nuggets
        if (nugget in from_references and references_of[nugget] >= VITAL_SHARE * len(item.references))
        or (len(answers) >= MIN_ANSWERS and answers_of[nugget] >= VITAL_SHARE * len(answers))
    }
    if len(item.references) == 1:
        vital |= from_references
    contradicted = _list_contradicted(item.query, nuggets, from_references, judge)
    vital.difference_update(contradicted)
    positions = {nugget: i for i, nugget in enumerate(nuggets)}
    ranked = sorted(nuggets, key=lambda nugget: (nugget not in vital, -stated[nugget], positions[nugget]))[:MAX_NUGGETS]
    return (
        sorted(ranked, key=positions.__getitem__),
        vital & set(ranked),
        [nugget for nugget in contradicted if nugget in ranked],
    )


def _list_contradicted(query: str, nuggets: Sequence[str], trusted: set[str], judge: Judge) -> list[str]:
    """Return the nuggets, but for trusted ones, that another one contradicts, by the judge or as two bare values."""
    pooled = [nugget for nugget in nuggets if nugget not in trusted]
    pairs = [(nugget, other_nugget) for nugget in pooled for other_nugget in nuggets if other_nugget != nugget]
    traces = [
        Trace(id=f"{i}", query=query, answer=nugget, chunks=(Chunk(id="other", text=other_nugget),))
        for i, (nugget, other_nugget) in enumerate(pairs)
    ]
    contradicted: set[str] = set()
    for (nugget, other_nugget), verdicts in zip(pairs, judge.observe(traces) if traces else (), strict=True):
        if any(claim.support == "contradicted" for claim in verdicts.claim or ()) or (
            _is_bare_value(nugget) and _is_bare_value(other_nugget)
        ):
            contradicted |= {nugget, other_nugget} - trusted
    return [nugget for nugget in pooled if nugget in contradicted]


def _is_bare_value(text: str) -> bool:
    """Return whether a text is numbers alone, with at most words such as "at".

    >>> _is_bare_value("At 7:30."), _is_bare_value("It opens at 7:30.")
    (True, False)
    """
    words = split_content_words(text)
    return bool(words) and all(word[0].isdigit() for word in words)


def _merge_claims(query: str, claims: Iterable[str], judge: Judge) -> list[str]:
    merged: list[str] = []
    for claim in claims:
        if not _has_nugget(query, claim, merged, judge):
            merged.append(claim)
    return merged


def _list_claims(answers: Sequence[Trace], judge: Judge) -> Iterator[tuple[str, bool]]:
    """Yield the claims of answers that are no refusals; each with whether the chunks of its trace support it."""
    for trace, verdicts in zip(answers, judge.observe(answers) if answers else (), strict=True):
        if verdicts.answer is not None and verdicts.answer.refused:
            continue
        if verdicts.claim is None:
            yield from ((claim, False) for claim in split_statements(trace.answer or ""))
        for verdict in verdicts.claim or ():
            if verdict.support in ("supported", "inferred"):
                yield verdict.claim, True


def _has_nugget(query: str, claim: str, nuggets: Sequence[str], judge: Judge) -> bool:
    """Return whether a claim says what a nugget says, or part of it, by the judge."""
    if claim in nuggets:
        return True
    return any(_observe_facts(query, [claim], nugget, judge)[0] for nugget in nuggets)


def _count_texts(query: str, nuggets: Sequence[str], texts: Sequence[str], judge: Judge) -> Mapping[str, int]:
    """Return how many of some texts state each nugget."""
    rows = [_observe_facts(query, nuggets, text, judge) for text in texts]
    return {nugget: sum(row[i] for row in rows) for i, nugget in enumerate(nuggets)}


def _observe_facts(query: str, facts: Sequence[str], answer: str, judge: Judge) -> list[bool]:
    """Return for each fact whether a text states it, by the judge; False where it gives no verdict."""
    if not facts:
        return []
    (verdicts,) = judge.observe([Trace(id="nugget", query=query, answer=answer, facts=tuple(facts))])
    present = {verdict.fact: verdict.present for verdict in verdicts.fact or ()}
    return [present.get(fact, False) or fact == answer for fact in facts]


def _write_nuggets(
    item: Trace, facts: Sequence[str], vital: set[str], contradicted: Sequence[str], source: Mapping[str, Any]
) -> Trace:
    okay = [fact for fact in facts if fact not in vital]
    about = {**source} | ({"contradicted": list(contradicted)} if contradicted else {})
    metadata = {name: value for name, value in item.metadata.items() if name != "okay_facts"}
    metadata |= {"nuggets": about, "review": "pending"} | ({"okay_facts": okay} if okay else {})
    return replace(item, facts=tuple(facts), metadata=metadata)


def apply_key(items: Iterable[Trace], traces: Iterable[Trace]) -> KeyResult:
    """Return the traces that ask what an item asks, with the answer key of the item.

    Reference, facts, gold and answerability are those of the item, also where the trace has some of its own; its id
    stays. Queries are compared normalised; of several items with one query and different keys the id decides. An id
    alone decides only where the trace has no query. Every other trace is left out, and counted with the reason.

    >>> item = Trace(id="1", query="When is it open?", facts=("It opens at 7.",))
    >>> result = apply_key([item], [Trace(id="x", query="when is it open"), Trace(id="1", query="Which fee?")])
    >>> [(trace.id, trace.facts) for trace in result.traces], result.unmatched
    ([('x', ('It opens at 7.',))], {'the item with the id asks another query': 1})
    """
    find_item = _index_items(items)
    keyed: list[Trace] = []
    unmatched: defaultdict[str, int] = defaultdict(int)
    for trace in traces:
        key = find_item(trace)
        if isinstance(key, str):
            unmatched[key] += 1
            continue
        copied = {name: key.metadata[name] for name in ("kind", "okay_facts") if name in key.metadata}
        metadata = {name: value for name, value in trace.metadata.items() if name != "okay_facts"} | copied
        keyed.append(
            replace(
                trace,
                reference=key.reference,
                facts=key.facts,
                gold=key.gold,
                answerable=key.answerable,
                metadata=metadata,
            )
        )
    return KeyResult(traces=tuple(keyed), unmatched=dict(unmatched))
