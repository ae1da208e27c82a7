"""Answer from passages as a language model of given habits would, which errs in its base state too."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.faults.transfer.corpora import Question, split_sentences
from benchmarks.faults.transfer.retrieving import Passage, split_words

REFUSALS = (
    "I could not find this in the sources.",
    "The provided documents do not contain information about that.",
    "I'm sorry, but I don't have enough information to answer this question.",
)
LEADS = (
    "According to the sources, ",
    "In short, ",
    "Based on the material, ",
    "The documents state the following: ",
    "",
)
SYNONYMS = {
    "used": "employed", "many": "numerous", "began": "started", "large": "big", "also": "additionally",
    "show": "demonstrate", "made": "produced", "however": "nevertheless", "important": "significant",
    "because": "since", "known": "recognised", "called": "named", "while": "whereas", "must": "has to",
    "often": "frequently", "about": "roughly", "get": "obtain", "part": "portion", "help": "assist",
    "allows": "permits", "create": "build", "provide": "supply", "several": "various",
    "increase": "growth", "first": "initial", "main": "principal", "became": "turned into", "different": "differing",
}  # fmt: skip
INVENTIONS = (
    "{topic} was introduced in {year} by {name}.",
    "It affects about {number} percent of all cases, as {name} showed in {year}.",
    "{name} later extended {topic} to {number} further areas.",
    "A committee led by {name} confirmed this in {year}.",
)
GERMAN = (
    "Laut den vorliegenden Unterlagen lautet die Antwort auf diese Frage wie folgt: {key}.",
    "Die Dokumente geben darauf eine klare Antwort, und zwar: {key}. Weitere Angaben finden sich dort nicht.",
)
STOP = frozenset(
    re.findall(
        r"\w+",
        "what which when where does the and for are was were how who that this "
        "with from into did can you about say is of in",
    )
)


@dataclass(frozen=True)
class Habits:
    """How the model answers."""

    style: str = "sentences"
    """sentences, short, list, table or verbose; one answer in five has another."""
    errors: float = 0.12
    kinds: tuple[str, ...] = ("invent", "number", "other", "refuse", "partial")
    sentences: int = 2
    cites: bool = False
    reword: float = 0.3
    blind: float = 0.0
    """Share of the answers that do not look at the passages."""
    refusals: float = 0.0
    german: float = 0.0
    competence: float = 0.88
    """Chance that it sees the sentence that answers where a passage holds it."""
    lenient: bool = False
    """Answers where no passage is relevant."""


@dataclass(frozen=True)
class Response:
    """An answer, the sentences it rests on, and whether it is right."""

    text: str
    used: tuple[tuple[Passage, str], ...] = ()
    right: bool = False


def measure_overlap(key: str, text: str) -> float:
    """Return the share of the words of a key that a text holds."""
    words = set(split_words(key))
    return len(words & set(split_words(text))) / max(len(words), 1)


def draw_names(passages: Sequence[Passage], draw: random.Random) -> str:
    """Return a name from passages of other queries."""
    names = re.findall(r"(?<=[a-z,] )[A-Z][a-z]{3,}(?: [A-Z][a-z]{3,})?", draw.choice(passages).text)
    return draw.choice(names) if names else draw.choice(["Hartmann", "Oduya", "Lindqvist"])


def invent_sentence(question: Question, pool: Sequence[Passage], draw: random.Random) -> str:
    """Return a claim that no passage makes."""
    topic = " ".join(w for w in re.findall(r"\w+", question.query) if w.lower() not in STOP)[:40] or "this"
    return draw.choice(INVENTIONS).format(
        topic=topic, year=draw.randint(1700, 2020), name=draw_names(pool, draw), number=draw.randint(11, 89)
    )


def alter_fact(sentence: str, pool: Sequence[Passage], draw: random.Random) -> str:
    """Return a sentence with another number, else with another name."""
    numbers = list(re.finditer(r"\d+", sentence))
    if numbers:
        match = draw.choice(numbers)
        new = str(int(match[0][:9]) + draw.choice([1, 3, 7, 12, 40]))
        return sentence[: match.start()] + new + sentence[match.end() :]
    names = list(re.finditer(r"(?<=[a-z,] )[A-Z][a-z]{3,}", sentence))
    if names:
        match = draw.choice(names)
        return sentence[: match.start()] + draw_names(pool, draw) + sentence[match.end() :]
    words = sentence.split()
    at = draw.randrange(len(words))
    return " ".join([*words[:at], "never", *words[at:]])


def reword_sentence(sentence: str, share: float, draw: random.Random) -> str:
    """Return a sentence with synonyms, and now and then a lead."""
    words = [SYNONYMS.get(w, w) if draw.random() < share * 2 else w for w in sentence.split(" ")]
    text = " ".join(words)
    return draw.choice(LEADS) + text if draw.random() < share else text


def rank_sentences(
    question: Question, query: str, passages: Sequence[Passage], competence: float, draw: random.Random
) -> list[tuple[float, Passage, str]]:
    """Return the sentences of the passages, those that a reader would answer from first."""
    terms = {w for w in split_words(query) if w not in STOP and len(w) > 2}
    sees = draw.random() < competence
    ranked = []
    for rank, passage in enumerate(passages):
        for sentence in split_sentences(passage.text):
            words = split_words(sentence)
            if not 4 <= len(words) <= 90:
                continue
            score = len(terms & set(words)) / max(len(terms), 1) - 0.01 * rank
            if sees and any(measure_overlap(key, sentence) > 0.8 for key in question.keys):
                score += 2
            ranked.append((score, passage, sentence))
    return sorted(ranked, key=lambda row: -row[0])


def write_answer(question: Question, chosen: Sequence[str], style: str, reword: float, draw: random.Random) -> str:
    """Write sentences in a style."""
    texts = [reword_sentence(" ".join(s.split()), reword, draw) for s in chosen]
    if style == "short":
        short = question.references[0].rstrip(".") if question.references else ""
        if not short or len(short.split()) > 11 or measure_overlap(short, chosen[0]) <= 0.8:
            return texts[0]
        return draw.choice([f"{short}.", f"It is {short}.", f"The answer is {short}.", texts[0]])
    if style == "list":
        return "\n".join(f"- {text}" for text in texts)
    if style == "table":
        return "| No. | Finding |\n|---|---|\n" + "\n".join(f"| {n} | {t} |" for n, t in enumerate(texts, 1))
    if style == "verbose":
        topic = question.query.rstrip("?. ")
        return f"Here is what I found on your question “{topic}”. " + " ".join(texts) + " Let me know if you need more."
    return " ".join(texts)


def answer_query(
    question: Question,
    query: str,
    seen: Sequence[Passage],
    habits: Habits,
    pool: Sequence[Passage],
    draws: tuple[random.Random, random.Random],
) -> Response:
    """Answer a query from the passages that the model sees; `draws`: lasting traits of the query, and chance."""
    lasting, chance = draws
    style = habits.style if lasting.random() < 0.8 else lasting.choice(["sentences", "list", "verbose", "short"])
    ranked = rank_sentences(question, query, seen, habits.competence, lasting)
    errs = (lasting if chance.random() < 0.75 else chance).random() < habits.errors
    kind = (lasting if chance.random() < 0.75 else chance).choice(habits.kinds)
    if chance.random() < habits.refusals:
        return Response(chance.choice(REFUSALS), right=False)
    if chance.random() < habits.blind:
        claims = [invent_sentence(question, pool, chance) for _ in range(habits.sentences)]
        return Response(" ".join(claims))
    weak = not ranked or ranked[0][0] < 0.4
    unanswered = not question.answerable and lasting.random() < 0.75
    if not ranked or ((weak or unanswered) and not habits.lenient) or (errs and kind == "refuse"):
        return Response(lasting.choice(REFUSALS), right=not question.answerable and not errs)
    at = min(chance.randrange(3, 8), len(ranked) - 1) if errs and kind == "other" else 0
    count = habits.sentences if style != "short" else 1
    first = [row for row in ranked[at : at + count] if row is ranked[at] or row[0] > 0.25 or style in ("list", "table")]
    sentences = [row[2] for row in first]
    right = any(measure_overlap(key, s) > 0.8 for key in question.keys for s in sentences)
    if chance.random() < habits.german:
        words = question.references[0] if question.references else " ".join(sentences[0].split()[:6])
        return Response(chance.choice(GERMAN).format(key=words.rstrip(".")), tuple((p, s) for _, p, s in first), False)
    if errs and kind == "number":
        sentences[0], right = alter_fact(sentences[0], pool, chance), False
    reword = habits.reword if chance.random() < 0.5 or habits.reword > 0.5 else 0.0
    text = write_answer(question, sentences, style, reword, chance if reword > 0.5 else lasting)
    if errs and kind == "invent":
        text, right = f"{text} {invent_sentence(question, pool, chance)}", False
    if errs and kind == "partial":
        text, right = " ".join(text.split()[: max(5, len(text.split()) // 3)]), False
    return Response(text, tuple((p, s) for _, p, s in first), right and question.answerable)
