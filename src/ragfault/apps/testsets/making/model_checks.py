"""Checks of questions of a model by the same model: which passages answer each, its own among others."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ragfault.apps.testsets.making.probes import Draft
from ragfault.apps.testsets.making.prompts import CHECKING_INSTRUCTIONS, CHECKING_SCHEMA
from ragfault.apps.testsets.passages import CorpusIndex
from ragfault.judges.llm.prompts.untrusted_text import FencedText, PromptLine
from ragfault.text.normalization import split_content_words

if TYPE_CHECKING:
    from ragfault.judges.llm.judge import WritingRequest

MAX_RIVALS = 3
"""Other passages that a question is checked against: those that share most words with it."""


def choose_passages(index: CorpusIndex, drafts: Sequence[Draft], rng: random.Random) -> tuple[int, ...]:
    """Return the passages of drafts of one site and those that resemble the questions most, in random order."""
    own = drafts[0].passages
    rivals: Counter[int] = Counter()
    for draft in drafts:
        scores = index.score_passages(split_content_words(f"{draft.query} {draft.reference or ''}"))
        for passage, score in scores.items():
            if passage not in own:
                rivals[passage] = max(rivals[passage], score)  # type: ignore[assignment]
    strongest = sorted(rivals, key=lambda passage: (-rivals[passage], passage))[:MAX_RIVALS]
    return tuple(rng.sample([*own, *strongest], len(own) + len(strongest)))


def build_check(index: CorpusIndex, drafts: Sequence[Draft], shown: Sequence[int]) -> WritingRequest:
    """Build the request that asks which passages answer each question, and each original of an edited one."""
    from ragfault.judges.llm.judge import WritingRequest

    asked = [draft.query for draft in drafts] + [draft.original for draft in drafts if draft.original]
    parts = [FencedText(f"p{number}", index.passages[passage].text) for number, passage in enumerate(shown, 1)]
    parts += [FencedText(f"q{number}", query) for number, query in enumerate(asked, 1)]
    return WritingRequest(CHECKING_INSTRUCTIONS, (*parts, PromptLine("Fields: questions")), CHECKING_SCHEMA)


def apply_check(
    index: CorpusIndex, drafts: Sequence[Draft], shown: Sequence[int], reply: dict[str, Any] | str
) -> Iterator[Draft]:
    """Yield the drafts, those that the check leaves out with the reason."""
    entries: dict[str, dict[str, Any]] = {}
    if isinstance(reply, dict) and isinstance(reply.get("questions"), list):
        entries = {str(entry.get("id")): entry for entry in reply["questions"] if isinstance(entry, dict)}
    labels = {f"p{number}": passage for number, passage in enumerate(shown, 1)}
    originals = [draft for draft in drafts if draft.original]
    for number, draft in enumerate(drafts, 1):
        entry = entries.get(f"q{number}")
        control = entries.get(f"q{len(drafts) + 1 + originals.index(draft)}") if draft.original else entry
        if entry is None or control is None:
            reason = f"not checked: {reply if isinstance(reply, str) else 'the reply has no entry for it'}"
        elif draft.original:
            reason = _read_edit(index, draft, (entry, control), labels)
        else:
            reason = _read_check(index, draft, entry, labels)
        yield draft._replace(rejection=reason)


def _read_check(index: CorpusIndex, draft: Draft, entry: dict[str, Any], labels: dict[str, int]) -> str:
    """Return why the reply of a check leaves a draft out; empty where it does not."""
    needs, also = (_read_passages(entry, field, labels) for field in ("needs", "also"))
    gold = set(draft.passages)
    if not needs or not needs & gold:
        return "not answerable from its gold, as the model reads it"
    if needs - gold:
        return "not answerable from only its gold: it needs another passage, too"
    if gold - needs:
        return "simplistic: one of its passages is enough"
    if other_passages := also - gold:
        return f"answered by another passage, too, in {index.passages[min(other_passages)].document}"
    return _read_wording(entry)


def _read_edit(
    index: CorpusIndex, draft: Draft, entries: tuple[dict[str, Any], dict[str, Any]], labels: dict[str, int]
) -> str:
    """Return why the reply leaves out an edited question: a passage answers it, or none answered its original."""
    entry, control = entries
    answering = _read_passages(entry, "needs", labels) | _read_passages(entry, "also", labels)
    if answering:
        return f"still answered, as the model reads it, in {index.passages[min(answering)].document}"
    if not _read_passages(control, "needs", labels) & set(draft.passages):
        return "the model finds no answer to its original either: nothing shows that the edit took it away"
    return _read_wording(entry)


def _read_wording(entry: dict[str, Any]) -> str:
    """Return what is wrong with a question by itself; empty where nothing is."""
    if entry.get("known") is True:
        return "answerable without its gold: general knowledge is enough"
    return "ambiguous: several readings, or it does not say what it is about" if entry.get("clear") is False else ""


def _read_passages(entry: dict[str, Any], field: str, labels: dict[str, int]) -> set[int]:
    return {labels[name] for name in read_texts(entry.get(field)) if name in labels}


def read_texts(value: Any) -> list[str]:
    """Return the texts of a list in a reply; none of anything else."""
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
