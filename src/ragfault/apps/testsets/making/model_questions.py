"""Questions in natural wording by a language model, which writes them of passages and checks them against others."""

from __future__ import annotations

import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from ragfault.apps.testsets.making.model_checks import apply_check, build_check, choose_passages, read_texts
from ragfault.apps.testsets.making.probes import Draft, clean_fact, take_answer_away
from ragfault.apps.testsets.making.prompts import (
    ASKING_INSTRUCTIONS,
    ASKING_SCHEMA,
    MAX_ASKERS,
    WRITING_INSTRUCTIONS,
    WRITING_SCHEMA,
)
from ragfault.apps.testsets.making.style import QueryStyle
from ragfault.apps.testsets.passages import WORD, CorpusIndex, Sentence, say_the_same
from ragfault.apps.testsets.records import QuestionKind
from ragfault.judges.llm.prompts.untrusted_text import FencedText, PromptLine, scan_text
from ragfault.model.errors import JudgeStopped
from ragfault.model.records import Span
from ragfault.text.sentences import split_sentences

if TYPE_CHECKING:
    from ragfault.judges.llm.judge import LLMGenerator, WritingRequest

CALLS_PER_ITEM = 2
"""Most calls for each item that is asked for: one that writes, one that checks."""
MIN_QUESTIONS, MAX_QUESTIONS = 2, 6
"""Questions that a call asks for; more than two where the corpus has few passages."""
BATCH_CALLS = 16
"""Most passages that are asked about at once."""
MAX_FAILED_RUN = 20
"""After so many failed calls in a row no further ones are made."""
MAX_ROUNDS = 3
"""How often a passage is asked about, the earlier questions in view."""
MAX_BRIDGE_PASSAGES = 6
"""A name in more passages does not join two of them."""
MAX_QUESTION_WORDS = 60
ASKER_HEADINGS = 60
"""Titles and headings of the corpus from which the model names the people who ask."""
ABOUT_TEXT = re.compile(
    r"\b(?:(?:according to|based on) (?:the|this|that|these) (?:texts?|passages?|documents?|excerpts?|context)"
    r"|(?:in|from|by) (?:the|this) (?:given |above |provided )?(?:text|passage|excerpt)s?"
    r"|(?:the|this) (?:text|passage|excerpt) (?:says?|states?|mentions?))\b",
    re.IGNORECASE,
)
"""Words of a question that is none without its passage before one's eyes."""


def list_bridges(index: CorpusIndex, rng: random.Random) -> Iterator[tuple[str, Sentence, Sentence]]:
    """Yield names that a few passages mention, each with sentences of two of them."""
    mentions: dict[str, list[Sentence]] = {}
    for sentence in index.sentences:
        for name in set(re.findall(r"(?<!^)(?<![.!?] )\b[A-Z][\w-]+(?: [A-Z][\w-]+)+", sentence.text)):
            mentions.setdefault(name, []).append(sentence)
    bridges = {
        name: sentences
        for name, sentences in mentions.items()
        if 2 <= len({sentence.passage for sentence in sentences}) <= MAX_BRIDGE_PASSAGES
    }
    for name in rng.sample(sorted(bridges), len(bridges)):
        first, *remaining = rng.sample(bridges[name], len(bridges[name]))
        elsewhere = [
            sentence
            for sentence in remaining
            if sentence.passage != first.passage and not say_the_same(first.text, sentence.text)
        ]
        if elsewhere:
            yield name, first, elsewhere[0]


class QuestionSite(NamedTuple):
    """Passages that a call asks a question about."""

    passages: tuple[int, ...]
    name: str = ""
    """What joins two passages."""
    asker: str = ""
    """The person as whom the model asks."""


class ModelWriter:
    """Writes drafts with a language model: a call that writes for each site, and one that checks what was written."""

    def __init__(
        self,
        index: CorpusIndex,
        model: LLMGenerator,
        style: QueryStyle,
        seed: int,
        reject: Callable[[Draft], str | None],
        is_full: Callable[[str], bool],
    ) -> None:
        self.index, self.model, self.style, self.seed = index, model, style, seed
        self._reject, self._is_full = reject, is_full
        self.calls = self.max_calls = 0
        self.askers: tuple[str, ...] = ()
        self.failures: Counter[str] = Counter()
        self._failed_run = 0
        self._written: defaultdict[tuple[int, ...], list[str]] = defaultdict(list)
        self.stopped = ""
        """Reason why no further call is made; empty until then."""

    def draft(self, kind: QuestionKind, count: int, missing: Callable[[], int]) -> Iterator[Draft]:
        """Yield drafts of a kind, those that the checks left out with the reason; `missing` says how many to go."""
        rng = random.Random(f"{self.seed} {kind} model")
        sites = self._list_sites(kind, rng)
        per_call = 1
        if kind != "two-passage":
            per_call = min(MAX_QUESTIONS, max(MIN_QUESTIONS, math.ceil(1.5 * count / max(1, len(self.index.passages)))))
        while missing() > 0 and not self.stopped:
            size = min(BATCH_CALLS, math.ceil(missing() / per_call), (self.max_calls - self.calls) // CALLS_PER_ITEM)
            if size < 1:
                return
            waiting = (site for site in sites if not self._is_full(self.index.passages[site.passages[0]].document))
            batch = list(islice(waiting, size))
            if not batch:
                return
            usable = []
            for site in batch:
                if any(scan_text("corpus", self.index.passages[passage].text) for passage in site.passages):
                    yield _reject_site(kind, site, "its passage holds what looks like instructions to a model")
                else:
                    self.askers = self.askers or self._name_askers()
                    usable.append(site._replace(asker=rng.choice(self.askers)))
            yield from self._write_batch(kind, usable, per_call, rng)

    def _name_askers(self) -> tuple[str, ...]:
        """Ask the model who asks, by the headings of the corpus; ("",) where it names nobody."""
        from ragfault.judges.llm.judge import WritingRequest

        headings = [heading for listed in self.index.headings.values() for _, heading in listed]
        names = list(dict.fromkeys([*filter(None, self.index.titles.values()), *headings, *self.index.titles]))
        text = "\n".join(random.Random(self.seed).sample(names, min(len(names), ASKER_HEADINGS)))
        if scan_text("corpus", text):
            return ("",)
        parts = (FencedText("headings", text), PromptLine("Fields: askers"))
        self.max_calls += 1
        (reply,) = self._ask([WritingRequest(ASKING_INSTRUCTIONS, parts, ASKING_SCHEMA)])
        askers = read_texts(reply.get("askers")) if isinstance(reply, dict) else []
        return tuple(" ".join(asker.split()) for asker in askers[:MAX_ASKERS] if asker.strip()) or ("",)

    def _list_sites(self, kind: QuestionKind, rng: random.Random) -> Iterator[QuestionSite]:
        """Yield the sites of a kind in random order, each a few times."""
        for _ in range(MAX_ROUNDS):
            if kind == "two-passage":
                for name, first, second in list_bridges(self.index, rng):
                    yield QuestionSite((second.passage, first.passage), name)
                continue
            passages = sorted({sentence.passage for sentence in self.index.sentences})
            if kind == "unanswerable":
                # the judge has to confirm that nothing answers them
                passages = [passage for passage in passages if passage not in self.index.foreign]
            for passage in rng.sample(passages, len(passages)):
                yield QuestionSite((passage,))

    def _write_batch(
        self, kind: QuestionKind, sites: Sequence[QuestionSite], per_call: int, rng: random.Random
    ) -> Iterator[Draft]:
        """Ask for the questions of some sites, check those that pass without a model, and yield all."""
        replies = self._ask([self._build_writing(kind, site, per_call, rng) for site in sites])
        open_checks: list[tuple[list[Draft], tuple[int, ...]]] = []
        for site, reply in zip(sites, replies, strict=True):
            if isinstance(reply, str):
                yield _reject_site(kind, site, f"the model wrote nothing: {reply}")
                continue
            passing: list[Draft] = []
            for draft in self._read_drafts(kind, site, reply, per_call):
                self._written[site.passages].append(draft.query)
                reason = draft.rejection or self._reject(draft)
                if reason:
                    yield draft._replace(rejection=reason)
                else:
                    passing.append(draft)
            if passing:
                open_checks.append((passing, choose_passages(self.index, passing, rng)))
        checks = self._ask([build_check(self.index, drafts, shown) for drafts, shown in open_checks])
        for (drafts, shown), reply in zip(open_checks, checks, strict=True):
            yield from apply_check(self.index, drafts, shown, reply)

    def _ask(self, requests: Sequence[WritingRequest]) -> list[dict[str, Any] | str]:
        """Return the reply to each request, or why there is none; remember whether to go on."""
        if not requests:
            return []
        if self.stopped:
            return [self.stopped] * len(requests)
        self.calls += len(requests)
        replies: list[dict[str, Any] | str] = []
        for reply in self.model.write(requests):
            if isinstance(reply, dict):
                self._failed_run = 0
                replies.append(reply)
                continue
            self.failures[str(reply)] += 1
            self._failed_run += 1
            if isinstance(reply, JudgeStopped):
                self.stopped = str(reply)
            elif self._failed_run >= MAX_FAILED_RUN and not self.stopped:
                self.stopped = f"{self._failed_run} calls in a row failed: {reply}"
            replies.append(str(reply))
        return replies

    def _build_writing(
        self, kind: QuestionKind, site: QuestionSite, per_call: int, rng: random.Random
    ) -> WritingRequest:
        from ragfault.judges.llm.judge import WritingRequest

        parts: list[FencedText | PromptLine] = []
        for label, at in zip("ab", site.passages, strict=False):
            passage = self.index.passages[at]
            if passage.heading:
                parts.append(FencedText(f"heading of {label}", passage.heading))
            parts.append(FencedText(label, passage.text))
        parts += [FencedText(label, text) for label, text in (("name", site.name), ("asker", site.asker)) if text]
        if written := self._written.get(site.passages):
            parts.append(FencedText("asked", "\n".join(written)))
        length = ""
        if self.style.source != "default":
            length = f" Length: about {rng.choice(self.style.sizes)} words without function words."
        parts.append(PromptLine(f"Kind: {kind}. Number of questions: {per_call}.{length}"))
        return WritingRequest(WRITING_INSTRUCTIONS, tuple(parts), WRITING_SCHEMA)

    def _read_drafts(
        self, kind: QuestionKind, site: QuestionSite, reply: dict[str, Any], per_call: int
    ) -> Iterator[Draft]:
        """Yield the questions of a reply as drafts, each with the sentences of its quotes as gold."""
        written = reply.get("questions")
        note = f"joined by {site.name}" if site.name else ""
        for entry in (written if isinstance(written, list) else [])[:per_call]:
            if not isinstance(entry, dict):
                continue
            query, answer, edit = (
                " ".join(str(entry.get(name) or "").split()) for name in ("question", "answer", "edit")
            )
            quotes = [quote for quote in read_texts(entry.get("quotes")) if quote.strip()]
            anchors = self._anchor_quotes(site, quotes)
            spans = tuple(self._make_span(passage, *bounds) for passage, ranges in anchors.items() for bounds in ranges)
            rejection = ""
            if not query or not answer or len(WORD.findall(query)) > MAX_QUESTION_WORDS:
                rejection = "no question of at most 60 words with an answer"
            elif ABOUT_TEXT.search(query):
                rejection = "the question points to its text"
            elif not spans or len(anchors) < len(site.passages):
                rejection = "not answerable from its gold: its quotes are not in the passage"
            elif any(self.index.is_code(span.document, span.start, span.end) for span in spans):
                rejection = "its answer is in code or settings"
            facts = tuple(clean_fact(span.quote or "") for span in spans)
            draft = Draft(kind, query, spans, facts, answer, True, site.passages, note, rejection, asker=site.asker)
            yield take_answer_away(draft, edit) if kind == "unanswerable" else draft

    def _anchor_quotes(self, site: QuestionSite, quotes: Iterable[str]) -> dict[int, list[tuple[int, int]]]:
        """Return the sentences of each passage that quotes of a reply are from; empty where a quote is in none."""
        ranges: dict[int, list[tuple[int, int]]] = {}
        for quote in quotes:
            words = [re.escape(word) for word in WORD.findall(quote)]
            pattern = re.compile(r"[\W_]+".join(words), re.IGNORECASE) if words else None
            hits = ((p, pattern.search(self.index.passages[p].text)) for p in site.passages) if pattern else ()
            p, match = next(((p, hit) for p, hit in hits if hit), (-1, None))
            if match is None:
                return {}
            for start, end in split_sentences(self.index.passages[p].text):
                if start < match.end() and match.start() < end and (start, end) not in ranges.get(p, ()):
                    ranges.setdefault(p, []).append((start, end))
        return ranges

    def _make_span(self, at: int, start: int, end: int) -> Span:
        passage = self.index.passages[at]
        return self.index.make_span(passage.document, passage.start + start, passage.start + end)


def _reject_site(kind: QuestionKind, site: QuestionSite, reason: str) -> Draft:
    return Draft(kind, "", (), (), None, None, site.passages, "", reason)
