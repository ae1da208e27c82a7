"""Nuggets: the facts that a good answer states, vital and okay ones, from references or from pooled answers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ragfault.errors import InputError
from ragfault.judges.assembly import split_statements
from ragfault.protocols import Judge
from ragfault.records import Trace, Verdicts
from ragfault.text import normalize_answer

VITAL_SHARE = 0.5
"""A nugget that at least this share of the references or answers states is vital."""
MIN_ANSWERS = 2
"""Of a single answer nothing tells vital nuggets from okay ones."""
MAX_NUGGETS = 20
"""Nuggets of an item at most, those of most answers first; as TREC RAG 2024 has it."""


class NuggetResult(Struct, frozen=True, kw_only=True):
    """Items with their nuggets, and why some have none."""

    items: tuple[Trace, ...]
    vital: int
    okay: int
    unchanged: int
    """Items that had facts already."""
    without: dict[str, int]
    """Reason → number of items without a nugget."""


def add_nuggets(
    items: Iterable[Trace], judge: Judge, answers: Iterable[Trace] = (), *, replace_facts: bool = False
) -> NuggetResult:
    """Add nuggets to items: as `facts`, with the okay ones listed again in `metadata.okay_facts`.

    Statements of a reference are nuggets. Of `answers`, which belong to an item by their id or their query, each claim
    that the judge calls supported by the chunks of its trace is one; where no chunks were recorded, a claim that two
    answers make. Claims that the judge finds in each other are one nugget, in the words of the first. A nugget is
    vital if half of the references, or half of the answers, state it, by the judge; else it is okay. Items with facts
    keep them, unless `replace_facts`. The judge must offer claim and fact verdicts.

    Raises InputError for a set without an item.

    >>> from ragfault.judges import load_judge
    >>> item = Trace(id="1", query="Who built the quay?", reference="Ann Lee built the quay. It was in 1907.")
    >>> result = add_nuggets([item], load_judge("lexical"))
    >>> result.items[0].facts, result.vital
    (('Ann Lee built the quay.', 'It was in 1907.'), 2)
    """
    listed = list(items)
    if not listed:
        raise InputError("the evaluation set has no item.")
    pooled = match_answers(listed, answers)
    changed: list[Trace] = []
    counts: defaultdict[str, int] = defaultdict(int)
    without: defaultdict[str, int] = defaultdict(int)
    for item in listed:
        if item.facts and not replace_facts:
            counts["unchanged"] += 1
            changed.append(item)
            continue
        facts, vital = _list_nuggets(item, pooled.get(item.id, []), judge)
        if not facts:
            without[_explain_none(item, pooled.get(item.id, []))] += 1
            changed.append(item)
            continue
        counts["vital"] += len(vital)
        counts["okay"] += len(facts) - len(vital)
        changed.append(_write_nuggets(item, facts, vital, judge, len(pooled.get(item.id, []))))
    return NuggetResult(
        items=tuple(changed),
        vital=counts["vital"],
        okay=counts["okay"],
        unchanged=counts["unchanged"],
        without=dict(without),
    )


def match_answers(items: Sequence[Trace], answers: Iterable[Trace]) -> dict[str, list[Trace]]:
    """Return the answered traces of each item by its id: those with its query, else those with its id.

    >>> answer = Trace(id="x", query="when is it open", answer="At 7.")
    >>> [trace.id for trace in match_answers([Trace(id="1", query="When is it open?")], [answer])["1"]]
    ['x']
    """
    by_query = {normalize_answer(item.query) or item.query: item.id for item in items}
    ids = {item.id for item in items}
    matched: defaultdict[str, list[Trace]] = defaultdict(list)
    for trace in answers:
        name = by_query.get(normalize_answer(trace.query) or trace.query, trace.id if trace.id in ids else None)
        if name is not None and (trace.answer or "").strip():
            matched[name].append(trace)
    return dict(matched)


def _explain_none(item: Trace, answers: Sequence[Trace]) -> str:
    if item.answerable is False:
        return "it is unanswerable: a refusal is right"
    if not answers:
        return "no reference and no answer" if not item.references else "the reference makes no statement"
    return "one answer alone" if len(answers) < MIN_ANSWERS else "no claim of the answers is supported"


def _list_nuggets(item: Trace, answers: Sequence[Trace], judge: Judge) -> tuple[list[str], set[str]]:
    """Return the nuggets of an item in order, and which of them are vital."""
    if item.answerable is False:
        return [], set()
    references = [split_statements(reference) for reference in item.references]
    texts = [*item.references, *(answer.answer or "" for answer in answers)]
    if not item.references and len(answers) < MIN_ANSWERS:
        return [], set()
    nuggets = _merge_claims(item.query, (claim for group in references for claim in group), judge)
    from_references = set(nuggets)
    doubtful: list[str] = []
    for claim, is_supported in _list_claims(answers, judge):
        if _has_nugget(item.query, claim, nuggets, judge):
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
    places = {nugget: at for at, nugget in enumerate(nuggets)}
    ranked = sorted(nuggets, key=lambda nugget: (nugget not in vital, -stated[nugget], places[nugget]))[:MAX_NUGGETS]
    return sorted(ranked, key=places.__getitem__), vital & set(ranked)


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
    return {nugget: sum(row[at] for row in rows) for at, nugget in enumerate(nuggets)}


def _observe_facts(query: str, facts: Sequence[str], answer: str, judge: Judge) -> list[bool]:
    """Return for each fact whether a text states it, by the judge; False where it gives no verdict."""
    if not facts:
        return []
    (verdicts,) = judge.observe([Trace(id="nugget", query=query, answer=answer, facts=tuple(facts))])
    present = _read_present(verdicts)
    return [present.get(fact, False) or fact == answer for fact in facts]


def _read_present(verdicts: Verdicts) -> dict[str, bool]:
    return {verdict.fact: verdict.present for verdict in verdicts.fact or ()}


def _write_nuggets(item: Trace, facts: Sequence[str], vital: set[str], judge: Judge, answers: int) -> Trace:
    okay = [fact for fact in facts if fact not in vital]
    source = {"judge": judge.fingerprint, "references": len(item.references), "answers": answers}
    metadata = {name: value for name, value in item.metadata.items() if name != "okay_facts"}
    metadata |= {"nuggets": source, "review": "pending"} | ({"okay_facts": okay} if okay else {})
    return replace(item, facts=tuple(facts), metadata=metadata)


def apply_key(items: Iterable[Trace], traces: Iterable[Trace]) -> Iterator[Trace]:
    """Yield the traces that ask what an item asks, with the answer key of the item.

    Reference, facts, gold and answerability are those of the item, also where the trace has some of its own; so is
    the id, so that runs of several systems are compared item by item (a second trace of an item has ID#2).

    >>> item = Trace(id="1", query="When is it open?", facts=("It opens at 7.",))
    >>> [trace.facts for trace in apply_key([item], [Trace(id="x", query="when is it open", answer="At 7.")])]
    [('It opens at 7.',)]
    """
    by_query: dict[str, Trace] = {}
    by_id: dict[str, Trace] = {}
    seen: Counter[str] = Counter()
    for item in items:
        by_query.setdefault(normalize_answer(item.query) or item.query, item)
        by_id[item.id] = item
    for trace in traces:
        key = by_query.get(normalize_answer(trace.query) or trace.query) or by_id.get(trace.id)
        if key is None:
            continue
        seen[key.id] += 1
        shared = {name: key.metadata[name] for name in ("kind", "okay_facts") if name in key.metadata}
        yield replace(
            trace,
            id=key.id if seen[key.id] == 1 else f"{key.id}#{seen[key.id]}",
            reference=key.reference,
            facts=key.facts,
            gold=key.gold,
            answerable=key.answerable,
            metadata={name: value for name, value in trace.metadata.items() if name != "okay_facts"} | shared,
        )
