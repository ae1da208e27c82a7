"""Evidence on texts that changed under the same chunk id: damaged, reordered or cut, or with other figures or words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from statistics import fmean

from ragfault.comparison.stages.paired_traces import LEAST_SHARE, Evidence, PairedTraces, give, ramp
from ragfault.text.number_format import format_percent

DIGITS = re.compile(r"\d+")
DAMAGE = re.compile(
    r"[ÃÂ][\u0080-\u00bf\u2018-\u2122]|â€|\ufffd|&(?:#\d+|[a-zA-Z]{2,8});|</?[a-zA-Z][^<>]{0,80}>|[^\W\d_]\d+[^\W\d_]"
)
"""Wrong encodings, escaped characters, tags, and digits within words."""
# changed texts that are looked at
MAX_TEXTS = 1_000
# of the words of a text; more that no text of the baseline holds are no edit of a sentence or two
UNKNOWN_SHARE = 0.1


def text_rules(traces: PairedTraces) -> Evidence:
    """Observe what became of the texts under the same id; ids that stand for several in one run are left out."""
    old, new = (_texts_by_id(traces, side) for side in (0, 1))
    both = [(old[name], new[name]) for name in old if name in new]
    changed = [texts for texts in both if texts[0] != texts[1]]
    if not changed:
        return
    share = len(changed) / len(both)
    lead = f"{format_percent(share)} of the chunks that both runs retrieved under one id have another text"
    shown = ramp(share, 0.0, 0.1)
    yield from give("texts", shown, lead, "ingestion", "source documents")
    known = collect_words(chunk.text for pair in traces.pairs for chunk in pair.old.chunks or ())
    chosen = changed[:: max(1, len(changed) // MAX_TEXTS)]
    count = Counter(chain.from_iterable(describe_text_change(*texts, known) for texts in chosen))
    for name, what, stages in CHANGES:
        part = count[name] / len(chosen)
        text = f"{lead}, {format_percent(part)} of these {what}"
        yield from give(name, shown * ramp(part, LEAST_SHARE, 0.4), text, *stages)
    common = fmean(share_common_words(*texts) for texts in chosen)
    text = f"{lead}, with {format_percent(common)} of their words kept"
    yield from give("rewritten texts", shown * ramp(0.9 - common, 0.0, 0.3), text, "ingestion")


def _texts_by_id(traces: PairedTraces, side: int) -> Mapping[str, str]:
    texts: dict[str, set[str]] = {}
    for pair in traces.pairs:
        for chunk in (pair.old, pair.new)[side].chunks or ():
            texts.setdefault(chunk.id, set()).add(" ".join(chunk.text.split()))
    return {name: text for name, variants in texts.items() if len(variants) == 1 for text in variants if text}


CHANGES = (
    ("damaged characters", "with damaged characters, escapes or tags", ("ingestion",)),
    ("unknown words", "with words that no text held before", ("ingestion",)),
    ("other order", "with their words in another order", ("ingestion",)),
    ("words lost", "with words left out and none added", ("ingestion", "chunker")),
    ("other figures", "the same but for their figures", ("source documents",)),
    ("edited", "with a few words changed", ("source documents",)),
)
"""Change of a text, what it means in words, and the stages that it speaks for."""


DAMAGES = frozenset(("damaged characters", "unknown words", "other order"))
"""Changes after which a text can no longer be read as it was written."""


def collect_words(texts: Iterable[str]) -> frozenset[str]:
    """Return the words of all texts in small letters."""
    return frozenset(word for text in texts for word in text.casefold().split())


def describe_text_change(old: str, new: str, known: frozenset[str]) -> set[str]:
    """Return what a text changed by, given the words of all texts before; a name of `CHANGES` or none."""
    before, after = Counter(old.casefold().split()), Counter(new.casefold().split())
    added = after - before
    if len(DAMAGE.findall(new)) > len(DAMAGE.findall(old)):
        return {"damaged characters"}
    if not added and old.casefold() != new.casefold():
        remaining = iter(old.casefold().split())
        in_order = all(word in remaining for word in new.casefold().split())
        return {"words lost"} if in_order else {"other order"}
    if not added:
        return {"edited"}
    if Counter(DIGITS.sub("#", old).split()) == Counter(DIGITS.sub("#", new).split()):
        return {"other figures"}
    unknown = sum(count for word, count in added.items() if word not in known and not DIGITS.search(word))
    if unknown > UNKNOWN_SHARE * after.total():
        return {"unknown words"}
    return {"edited"} if share_common_words(old, new) >= 0.7 else set()


def share_common_words(before: str, after: str) -> float:
    """Return the share of the words of the longer text that both texts hold, in [0, 1].

    >>> share_common_words("open until nine", "open until ten")
    0.6666666666666666
    """
    words = before.split(), after.split()
    most = max(1, len(words[0]), len(words[1]))
    return (Counter(words[0]) & Counter(words[1])).total() / most
