"""Scanners of one text without a model, or with a small linear one: each lists its findings, with their places."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ragfault.apps.guard.scanning.ngrams import MAX_BYTES, ClassifierName, load_classifier, score_texts
from ragfault.judges.llm.prompts.untrusted_text import detect_hidden, list_mixed_words, scan_text
from ragfault.model.errors import UnknownName, UsageError
from ragfault.text.personal_data import PERSONAL_KINDS, Finding, detect_personal_data
from ragfault.text.redaction import detect_sensitive

Scanner = Callable[[str], Sequence[Finding]]
"""Function of a text that lists its findings."""


def make_scanner(kind: str, options: Mapping[str, Any]) -> Scanner:
    """Make a scanner of a kind, with its options.

    Raises UnknownName for an unknown kind or option, UsageError for an option that is missing or of no use.

    >>> make_scanner("secrets", {})("The key is AKIA1BCDEFGHIJKLMNO2.")[0].kind
    'key'
    """
    if kind not in SCANNERS:
        raise UnknownName("scanner", kind, SCANNERS)
    make, known = SCANNERS[kind]
    for name in options:
        if name not in known:
            raise UnknownName(f"option of the scanner {kind}", name, known)
    return make(**options)


MAX_REMEMBERED = 4_096
"""Passages of which the findings are kept."""
MAX_REMEMBERED_LENGTH = 4_000
"""Characters of the longest of them."""


class InjectionScanner:
    """Scanner for orders to a model in passages: the patterns of the judge's check, then a classifier of sentences.

    Findings of the latest passages are kept: those of a corpus come again.
    """

    def __init__(self, threshold: float | None = None) -> None:
        self._threshold = threshold
        self._remembered: dict[str, tuple[Finding, ...]] = {}
        self._lock = threading.Lock()

    def __call__(self, text: str) -> list[Finding]:
        return self.scan_texts((text,))[0]

    def scan_texts(self, texts: Sequence[str]) -> list[list[Finding]]:
        """List the findings of each text; the sentences of those that are new are classified together."""
        with self._lock:
            findings = {text: self._remembered.pop(text) for text in {*texts} & self._remembered.keys()}
            self._remembered |= findings
        new = [text for text in dict.fromkeys(texts) if text not in findings]
        for text, classified in zip(new, _classify("injection", new, self._threshold, as_one=False), strict=True):
            findings[text] = (*_match_patterns(text), *classified)
        if new:
            self._remember({text: findings[text] for text in new if len(text) <= MAX_REMEMBERED_LENGTH})
        return [list(findings[text]) for text in texts]

    def _remember(self, findings: Mapping[str, tuple[Finding, ...]]) -> None:
        with self._lock:
            self._remembered |= findings
            while len(self._remembered) > MAX_REMEMBERED:
                del self._remembered[next(iter(self._remembered))]


def scan_all(scan: Scanner, texts: Sequence[str]) -> list[list[Finding]]:
    """List the findings of each text, together where the scanner can do that faster."""
    return scan.scan_texts(texts) if isinstance(scan, InjectionScanner) else [list(scan(text)) for text in texts]


def _match_patterns(text: str) -> list[Finding]:
    return [_locate(text, injection.text, injection.kind) for injection in scan_text("text", text)]


def _locate(text: str, excerpt: str, kind: str) -> Finding:
    start = text.find(excerpt)
    return Finding(0, len(text), kind) if start < 0 else Finding(start, start + len(excerpt), kind)


def _classify(
    name: ClassifierName, texts: Sequence[str], threshold: float | None, *, as_one: bool
) -> list[list[Finding]]:
    longest = max(map(len, texts), default=0)
    if longest > MAX_BYTES:
        raise UsageError(f"a text has {longest:,} characters; at most {MAX_BYTES:,} are scanned.")
    classifier = load_classifier(name)
    limit = classifier.threshold if threshold is None else threshold
    return [
        [Finding(sentence.start, sentence.end, name, sentence.p) for sentence in scored]
        for scored in score_texts(classifier, texts, as_one=as_one, least=limit)
    ]


JAILBREAK = re.compile(
    r"\b(?:do anything now|DAN mode|developer mode (?:enabled|on)|jail ?break(?:en|ed|ing)?|"
    r"(?:no|without(?: any)?|free (?:of|from)(?: all)?|ignor\w+(?: all| any)?|bypass\w*(?: all| any| your)?) "
    r"(?:\w+ ){0,3}(?:restrictions|filters?|guidelines|limitations|safeguards|censorship|content polic\w+)|"
    r"(?:pretend|act|imagine|role-?play|respond|answer) (?:\w+ ){0,6}(?:unfiltered|uncensored|unrestricted|amoral|evil|"
    r"no ethic\w*|without (?:ethic|moral)\w*)|"
    r"(?:stay|remain|always be) in character (?:no matter|at all times|whatever)|"
    r"(?:never|not|don't|cannot|can't) (?:\w+ ){0,2}(?:refuse|decline|say no|break character)|"
    r"(?:print|reveal|repeat|show|output|tell me) (?:\w+ ){0,4}(?:system prompt|initial (?:prompt|instructions)|"
    r"hidden (?:prompt|instructions)|instructions (?:above|verbatim)))\b",
    re.IGNORECASE,
)
"""Phrases of role play that lifts rules, and of requests for the instructions."""


def _make_jailbreak(threshold: float | None = None) -> Scanner:
    """Scan queries for phrases of jailbreaks, for orders to a model, and by a classifier of prompts."""

    def scan(text: str) -> list[Finding]:
        findings = [Finding(*match.span(), "jailbreak") for match in JAILBREAK.finditer(text)]
        return [*findings, *_match_patterns(text), *_classify("jailbreak", (text,), threshold, as_one=True)[0]]

    return scan


def _make_toxicity(threshold: float | None = None) -> Scanner:
    return lambda text: _classify("toxicity", (text,), threshold, as_one=True)[0]


def _make_secrets() -> Scanner:
    return lambda text: [Finding(finding.start, finding.end, "key") for finding in detect_sensitive(text, ("key",))]


def _make_personal_data(kinds: Sequence[str] | None = None) -> Scanner:
    chosen_kinds = PERSONAL_KINDS if kinds is None else tuple(kinds)
    for kind in chosen_kinds:
        if kind not in PERSONAL_KINDS:
            raise UnknownName("kind of personal data", kind, PERSONAL_KINDS)
    return lambda text: detect_personal_data(text, chosen_kinds)


CODE = re.compile(
    r"```|^\s*(?:def \w+\(|class \w+[:(]|import \w|from [\w.]+ import |#include\b|public (?:static|class)\b|"
    r"function \w*\(|(?:const|let|var) \w+ ?=|SELECT .+ FROM |<\?php|#!/|</?(?:script|div|html)\b|"
    r"(?:sudo|curl|wget|rm -rf|powershell) )",
    re.MULTILINE,
)


def _make_code() -> Scanner:
    return lambda text: [Finding(*match.span(), "code") for match in CODE.finditer(text)]


def _make_hidden() -> Scanner:
    """Scan for invisible characters, reversed writing and words of mixed scripts."""

    def scan(text: str) -> list[Finding]:
        findings = [Finding(span.start, span.end, "invisible") for span in detect_hidden(text)]
        mixed = list_mixed_words(text)
        return findings + [_locate(text, word, "mixed_script") for word in mixed[:5]]

    return scan


LINK = re.compile(r"\b(?:https?|ftp|javascript|data|file):(?://)?[^\s<>()\[\]\"']+", re.IGNORECASE)
LONG_VALUE = re.compile(r"[?&#][^=&\s]{1,64}=[^&\s]{80,}")
SHORTENERS = frozenset(("bit.ly", "tinyurl.com", "t.co", "goo.gl", "is.gd", "ow.ly", "cutt.ly", "rb.gy", "shorturl.at"))


def _make_links(allowed: Sequence[str] = ()) -> Scanner:
    """Scan for links that hide where they go or carry data away, and for others than those to allowed domains."""
    domains = tuple(domain.lower().lstrip(".") for domain in allowed)

    def scan(text: str) -> list[Finding]:
        if ":" not in text:
            return []
        return [
            Finding(*match.span(), reason)
            for match in LINK.finditer(text)
            if (reason := _suspect_link(match.group(), domains)) is not None
        ]

    return scan


def _suspect_link(link: str, allowed: Sequence[str]) -> str | None:
    """Return why a link is suspicious; None: it is not."""
    try:
        parts = urlsplit(link)
        host = (parts.hostname or "").lower()
    except ValueError:
        return "malformed link"
    if parts.scheme.lower() in ("javascript", "data", "file"):
        return f"{parts.scheme.lower()} link"
    if allowed:
        return None if any(host == domain or host.endswith(f".{domain}") for domain in allowed) else "other domain"
    if parts.username is not None:
        return "user name before the host"
    if host.startswith("xn--") or ".xn--" in host or not host.isascii():
        return "host in lookalike letters"
    if re.fullmatch(r"[\d.]+|0x[0-9a-f]+", host):
        return "host is a number"
    if host in SHORTENERS:
        return "link shortener"
    return "long value in the query" if LONG_VALUE.search(link) else None


def _make_pattern(patterns: Sequence[str] = (), required: bool = False) -> Scanner:
    """Scan for regular expressions; with `required`, report a text in which one of them does not occur."""
    if not patterns:
        raise UsageError("the scanner pattern needs `patterns`, a list of regular expressions.")
    try:
        compiled = [re.compile(pattern) for pattern in patterns]
    except re.error as error:
        raise UsageError(f"the scanner pattern cannot read {error.pattern!r}: {error}.") from None
    if required:
        return lambda text: [Finding(0, len(text), "absent") for regex in compiled if regex.search(text) is None]
    return lambda text: [Finding(*match.span(), "pattern") for regex in compiled for match in regex.finditer(text)]


def _make_topic(forbidden: Sequence[str] = (), allowed: Sequence[str] = (), least: int = 1) -> Scanner:
    """Scan for words of forbidden topics, and for texts with fewer than `least` words of the allowed ones."""
    if not forbidden and not allowed:
        raise UsageError("the scanner topic needs `forbidden` or `allowed`, lists of words.")
    denied, allowed_topics = (
        re.compile(rf"\b(?:{'|'.join(map(re.escape, words))})\b", re.IGNORECASE) if words else None
        for words in (forbidden, allowed)
    )

    def scan(text: str) -> list[Finding]:
        findings = [Finding(*match.span(), "forbidden topic") for match in denied.finditer(text)] if denied else []
        if allowed_topics and sum(1 for _ in allowed_topics.finditer(text)) < least:
            findings.append(Finding(0, len(text), "other topic"))
        return findings

    return scan


SCRIPTS = {
    "latin": "A-Za-zÀ-ɏḀ-ỿ", "greek": "Ͱ-Ͽἀ-῿", "cyrillic": "Ѐ-ԯ", "hebrew": "֐-׿", "arabic": "؀-ۿݐ-ݿ",
    "devanagari": "ऀ-ॿ", "thai": "฀-๿", "hangul": "가-힯ᄀ-ᇿ", "kana": "぀-ヿ", "han": "一-鿿㐀-䶿",
}  # fmt: skip
"""Script → its letters."""
STOP_WORDS = {
    "en": "the and of to is in that for with are this what how when does was be on",
    "de": "der die das und ist nicht ein eine mit von zu wie was wann",
    "fr": "le la les des est et une dans que pour qui sur pas quand",
    "es": "el los las que una por con para como del es cuando",
    "it": "il che di per una sono con non della quando gli",
    "pt": "o que uma para com não os do da em quando",
    "nl": "de het een van en dat niet met voor zijn wanneer",
}  # fmt: skip
"""Language in Latin script → its most frequent words."""
MIN_STOP_WORDS = 2


def _make_language(languages: Sequence[str] = (), scripts: Sequence[str] = ()) -> Scanner:
    """Scan for texts of other scripts or languages; too short a text says nothing about its language."""
    for name, vocabulary, kind in ((languages, STOP_WORDS, "language"), (scripts, SCRIPTS, "script")):
        for item in name:
            if item not in vocabulary:
                raise UnknownName(kind, item, vocabulary)
    if not languages and not scripts:
        raise UsageError("the scanner language needs `languages` or `scripts`.")
    letters = "".join(SCRIPTS[name] for name in (*scripts, *(("latin",) if languages else ())))
    foreign = re.compile(rf"[^\W\d_{letters}]{{2,}}")
    words = {name: frozenset(text.split()) for name, text in STOP_WORDS.items()}

    def scan(text: str) -> list[Finding]:
        match = foreign.search(text)
        if match:
            return [Finding(*match.span(), "other script")]
        if not languages:
            return []
        tokens = re.findall(r"[^\W\d_]+", text.lower())
        counts = {name: sum(token in vocabulary for token in tokens) for name, vocabulary in words.items()}
        best = max(counts, key=lambda name: (counts[name], name in languages))
        if counts[best] >= MIN_STOP_WORDS and best not in languages:
            return [Finding(0, len(text), f"language {best}")]
        return []

    return scan


def _make_length(max_chars: int | None = None, max_tokens: int | None = None, min_chars: int = 0) -> Scanner:
    """Scan for texts that are too long or too short; tokens are estimated as four characters or a word and a third."""

    def scan(text: str) -> list[Finding]:
        if max_chars is not None and len(text) > max_chars:
            return [Finding(max_chars, len(text), "too long")]
        if max_tokens is not None and max(len(text) / 4, 4 * len(text.split()) / 3) > max_tokens:
            return [Finding(0, len(text), "too many tokens")]
        return [Finding(0, len(text), "too short")] if len(text) < min_chars else []

    return scan


SCANNERS: dict[str, tuple[Callable[..., Scanner], tuple[str, ...]]] = {
    "injection": (InjectionScanner, ("threshold",)),
    "jailbreak": (_make_jailbreak, ("threshold",)),
    "toxicity": (_make_toxicity, ("threshold",)),
    "secrets": (_make_secrets, ()),
    "personal_data": (_make_personal_data, ("kinds",)),
    "code": (_make_code, ()),
    "hidden": (_make_hidden, ()),
    "links": (_make_links, ("allowed",)),
    "pattern": (_make_pattern, ("patterns", "required")),
    "topic": (_make_topic, ("forbidden", "allowed", "least")),
    "language": (_make_language, ("languages", "scripts")),
    "length": (_make_length, ("max_chars", "max_tokens", "min_chars")),
}
"""Kind → what makes the scanner, and its options."""
