"""The training pairs of each source: two texts, a head, and a class of it."""

from __future__ import annotations

import json
import random
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ragfault.judges.encoder.evidence import SENTENCE_END, claim_text, evidence
from ragfault.judges.encoder.model import ENGLISH, MULTILINGUAL, WINDOWS
from training.authored.items import FOLDER as AUTHORED
from training.authored.items import SHORT, Item, UnitError, read_shorts, read_units, unit_files, unit_items
from training.data_files import Row, iterate_rows
from training.encoder.exchanges import (
    NUMBER,
    change_number,
    iterate_claim_exchanges,
    iterate_exchanges,
    iterate_other_names,
    list_public,
    replace_first,
)

__all__ = ["MEASURED_SHARE", "NOT_FIRST", "SOURCES", "Pair", "is_authored", "is_measured", "is_test_writer"]

# The label of rows that are known not to be of the first class and not known to be of another.
NOT_FIRST = -1
# One source in ten is kept for measuring.
MEASURED_SHARE = 10
# Authored units of these writers are never trained on: figures come from another hand than the training texts.
TEST_WRITERS = frozenset({"w7", "w17", "w22", "w35", "w43"})
ENTAILMENT = {"supported": 0, "contradicted": 1, "not_stated": 2, "not_supported": NOT_FIRST}
# Draw only a part of the claims of these writers: the training that led to the weights of version 6, from which the
# present one went on, read them several times. From another start, draw them all.
READ_WRITERS, READ_SHARE = frozenset({"w0", "w1", "w2", "w3", "w4"}), 0.3
# The languages of the authored texts, and those of them that each model learns from.
OTHER_LANGUAGES = frozenset({"de", "es", "fr", "it", "ja", "pl", "pt", "zh"})
LANGUAGES = {ENGLISH: frozenset({"en"}), MULTILINGUAL: OTHER_LANGUAGES | {"en"}}
Reader = Callable[[Path], Iterator["Pair"]]
LETTERS = {"S": 0, "C": 1, "N": 2}


@dataclass(frozen=True)
class Pair:
    """Two texts and the class of a head."""

    group: str
    first: str
    second: str
    head: str
    label: int


def is_measured(group: str) -> bool:
    """Return whether a group is kept for measuring, the same on every machine."""
    return is_test_writer(group) or zlib.crc32(group.encode()) % MEASURED_SHARE == 0


def is_test_writer(group: str) -> bool:
    """Return whether a group is of a writer of whom nothing is trained on."""
    return any(f"-{writer}-" in group for writer in TEST_WRITERS)


def is_authored(group: str) -> bool:
    """Return whether a group is of the authored texts."""
    return re.match(r"[a-z]{2}-w\d+-", group) is not None


def entailment_rows(name: str, windows: int = WINDOWS[ENGLISH]) -> Reader:
    """Return the reader of a public entailment file."""

    def read(data: Path) -> Iterator[Pair]:
        for row in iterate_rows(data / "entailment_train" / f"{name}.jsonl.gz"):
            premise = row["premise"]
            if len(premise) > 900:
                premise = evidence([premise], row["claim"], row.get("query") or "", windows)
            second = claim_text(row["claim"], row.get("query") or "")
            yield Pair(row["source_id"], premise, second, "entailment", ENTAILMENT[row["label"]])

    return read


def fever_rows(data: Path) -> Iterator[Pair]:
    """Yield FEVER, and each fifth claim once more with the evidence of a claim that shares rare words: not stated."""
    rows = list(iterate_rows(data / "entailment_train" / "fever.jsonl.gz"))
    by_word: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        for word in re.findall(r"[A-Z]\w{3,}", row["premise"]):
            by_word.setdefault(word, []).append(place)
    chance = random.Random(5)
    for place, row in enumerate(rows):
        yield Pair(row["source_id"], row["premise"], row["claim"], "entailment", ENTAILMENT[row["label"]])
        if place % 3 == 0:
            near = [
                other
                for word in re.findall(r"[A-Z]\w{3,}", row["claim"])
                for other in by_word.get(word, [])[:50]
                if rows[other]["source_id"] != row["source_id"] and rows[other]["premise"] != row["premise"]
            ]
            if near:
                other = rows[chance.choice(near)]
                # Its own evidence decides the claim; that of another one rarely does.
                yield Pair(row["source_id"], other["premise"], row["claim"], "entailment", 2)


def answer_sentences(answer: str) -> Iterator[tuple[int, int]]:
    """Yield the places of the sentences of an answer."""
    start = 0
    for end in [*(match.start() for match in SENTENCE_END.finditer(answer)), len(answer)]:
        if answer[start:end].strip():
            yield start, end
        start = end


def ragtruth_pairs(row: Row) -> Iterator[Pair]:
    """Yield the sentences of an answer: contradicted if a conflict touches one, not stated if an invention does."""
    for start, end in answer_sentences(row["answer"]):
        touching = [span for span in row["spans"] if span["start"] < end and span["end"] > start]
        label = 1 if any("Conflict" in span["type"] for span in touching) else 2 if touching else 0
        claim = row["answer"][start:end].strip()
        query = row["query"] if row["task"] == "QA" else ""
        first = evidence(row["contexts"], claim, query)
        yield Pair(str(row["source_id"]), first, claim_text(claim, query), "entailment", label)


def ragtruth_rows(data: Path) -> Iterator[Pair]:
    """Yield RAGTruth with one in five of the supported sentences."""
    chance = random.Random(7)
    for row in iterate_rows(data / "ragtruth_train.jsonl.gz"):
        if row["spans"] or chance.random() < 0.2:
            for pair in ragtruth_pairs(row):
                if pair.label or chance.random() < 0.35:
                    yield pair


def authored_items(languages: frozenset[str] = LANGUAGES[ENGLISH]) -> Iterator[Item]:
    """Yield the items of the authored units and short texts; a unit with a fault is named and left out."""
    for path in unit_files():
        if path.parent.parent.name not in languages:
            continue
        try:
            for unit in read_units(path):
                yield from list(unit_items(unit, path.parent.name, path.parent.parent.name))
        except UnitError as fault:
            print(f"left out: {fault}", flush=True)
    yield from (item for item in read_shorts() if item.language in languages)


def authored_rows(languages: frozenset[str], two_windows: float) -> Reader:
    """Return the reader of authored units, with near passages of other labels mixed in as further chunks.

    `two_windows` is the share of pairs whose evidence has two windows. One nearly always has what decides (97 % of
    claims in other words, 99 % of copies), and is faster.
    """

    def read(data: Path) -> Iterator[Pair]:
        del data
        chance = random.Random(11)
        for item in authored_items(languages):
            if item.form == SHORT or (item.writer in READ_WRITERS and chance.random() > READ_SHARE):
                continue
            chunks = list(item.chunks)
            chance.shuffle(chunks)
            first = evidence(chunks, item.claim, item.query, limit=2 if chance.random() < two_windows else 1)
            second = claim_text(item.claim, item.query, item.history)
            yield Pair(item.unit, first, second, "entailment", LETTERS[item.label])
            if chance.random() < 0.25:
                # Claims must be judged without the question, too.
                yield Pair(item.unit, first, item.claim, "entailment", LETTERS[item.label])

    return read


def authored_short_rows(languages: frozenset[str]) -> Reader:
    """Return the reader of authored short texts: each claim under its two passages."""

    def read(data: Path) -> Iterator[Pair]:
        del data
        for item in read_shorts():
            if item.language in languages:
                second = claim_text(item.claim, item.query)
                yield Pair(item.unit, item.chunks[0], second, "entailment", LETTERS[item.label])

    return read


def exchange_rows(data: Path) -> Iterator[Pair]:
    """Yield sentences of English passages beside the passage and beside one in which two words changed places."""
    passages = {}
    for item in authored_items():
        for chunk in item.chunks:
            passages.setdefault(chunk, (item.unit, chunk, item.query))
    for row in iterate_exchanges([*passages.values(), *list_public(data)]):
        first = evidence([row["passage"]], row["claim"], row["query"])
        yield Pair(row["group"], first, claim_text(row["claim"], row["query"]), "entailment", row["label"])


def claim_exchange_rows(data: Path) -> Iterator[Pair]:
    """Yield supported claims beside their passage and beside one where words changed places or a name is another."""
    del data
    items = list(authored_items())
    for row in [*iterate_claim_exchanges(items), *iterate_other_names(items)]:
        first = evidence([row["passage"]], row["claim"], row["query"])
        yield Pair(row["group"], first, claim_text(row["claim"], row["query"]), "entailment", row["label"])


def authored_lines(folder: str, languages: frozenset[str] = LANGUAGES[ENGLISH]) -> Iterator[tuple[str, Row]]:
    """Yield the rows of authored replies or keys, with a group of their own each."""
    for path in sorted((AUTHORED / folder).glob("*.jsonl")):
        if path.name.partition("-")[0] not in languages:
            continue
        for number, line in enumerate(path.read_text().splitlines()):
            if line.strip():
                yield f"{path.stem}-{folder}-{number}", json.loads(line)


def authored_key_rows(languages: frozenset[str]) -> Reader:
    """Return the reader of authored answers with their reference, each as the claim and the other as its evidence."""
    classes = {"same": 0, "different": 1, "incomplete": 2, "unrelated": NOT_FIRST}
    # A part of what the reference says is supported by it, and other statements it neither supports nor denies.
    entailed = {"same": 0, "different": 1, "incomplete": 0, "unrelated": 2}
    entails = {"same": 0, "different": 1, "incomplete": 2, "unrelated": 2}

    def read(data: Path) -> Iterator[Pair]:
        del data
        chance = random.Random(29)
        for group, row in authored_lines("keys", languages):
            for text, label in row["answers"]:
                readings = [(row["reference"], text, label)]
                if label == "same":
                    readings += change_figure(row["reference"], text, chance)
                for reference, answer, reading in readings:
                    second = claim_text(answer, row["query"])
                    yield Pair(group, reference, second, "agreement", classes[reading])
                    yield Pair(group, f"{row['query']} {reference}", second, "entailment", entailed[reading])
                    first = f"{row['query']} {answer}"
                    yield Pair(group, first, claim_text(reference, row["query"]), "entailment", entails[reading])

    return read


def change_figure(reference: str, answer: str, chance: random.Random) -> list[tuple[str, str, str]]:
    """Return a right answer with another figure, beside its reference as it is and with the same figure.

    Only a figure that stands in both is changed. So the answer alone does not say whether it is right.
    """
    shared = sorted(set(NUMBER.findall(reference)) & set(NUMBER.findall(answer)))
    if not shared:
        return []
    old = chance.choice(shared)
    new = change_number(old, chance)
    changed = replace_first(answer, old, new)
    return [(reference, changed, "different"), (replace_first(reference, old, new), changed, "same")]


def key_rows(data: Path) -> Iterator[Pair]:
    """Yield answers of the public sets against references."""
    for row in iterate_rows(data / "entailment_train" / "answers.jsonl.gz"):
        label = {"supported": 0, "contradicted": 1}.get(row["label"], NOT_FIRST)
        second = claim_text(row["claim"], row.get("query") or "")
        yield Pair(row["source_id"], row["premise"], second, "agreement", label)


def authored_replies(languages: frozenset[str] = LANGUAGES[ENGLISH]) -> Iterator[Pair]:
    """Yield authored refusals, partial answers and answers."""
    classes = {"refusal": 0, "partial": 1, "answer": 2}
    for group, row in authored_lines("replies", languages):
        yield Pair(group, row["query"], row["reply"], "reply", classes[row["label"]])


def reply_rows(languages: frozenset[str] = LANGUAGES[ENGLISH]) -> Reader:
    """Return the reader of refusals, partial answers and answers.

    XSTest counts as answers what does not refuse for safety; much of that refuses for another reason, and is left out.
    """

    def read(data: Path) -> Iterator[Pair]:
        yield from authored_replies(languages)
        chance = random.Random(13)
        for row in iterate_rows(data / "entailment_train" / "refusals.jsonl.gz"):
            if row["source"] == "xstest" and not row["refused"]:
                continue
            if row["source"] != "nomiracl" or chance.random() < 0.3:
                yield Pair(row["source_id"], row["query"], row["reply"][:600], "reply", 0 if row["refused"] else 2)

    return read


def authored_relevance(chance: random.Random, languages: frozenset[str] = LANGUAGES[ENGLISH]) -> Iterator[Pair]:
    """Yield authored questions with their own passages, and with passages of two other units of the domain."""
    by_domain: dict[str, dict[str, tuple[str, str]]] = {}
    for item in authored_items(languages):
        if item.version == "a" and item.query:
            by_domain.setdefault(item.domain, {})[item.unit] = (item.query, " ".join(item.chunks))
    for units in by_domain.values():
        for unit, (query, text) in units.items():
            yield Pair(unit, text, query, "relevance", 0)
            others = [other for other in units if other != unit]
            for other in chance.sample(others, min(2, len(others))):
                yield Pair(unit, units[other][1], query, "relevance", 1)


def answer_relevance(languages: frozenset[str]) -> Reader:
    """Return the reader of questions of authored keys with answers to them, right or wrong, and with other texts.

    An answer or passage is relevant to a question if it answers it; that it is on the topic does not suffice. Of each
    answer to another question the length and the form say nothing.
    """

    def read(data: Path) -> Iterator[Pair]:
        del data
        chance = random.Random(37)
        rows = list(authored_lines("keys", languages))
        for place, (group, row) in enumerate(rows):
            for text, label in row["answers"]:
                yield Pair(group, text, row["query"], "relevance", 1 if label == "unrelated" else 0)
            # Rows of one file are neighbours, in one language and of one hand.
            near = [other for _, other in rows[max(0, place - 12) : place + 13] if other["query"] != row["query"]]
            for other in chance.sample(near, min(3, len(near))):
                yield Pair(group, chance.choice(other["answers"])[0], row["query"], "relevance", 1)

    return read


def nomiracl_pairs(data: Path, chance: random.Random, others: float, languages: frozenset[str]) -> Iterator[Pair]:
    """Yield passages and questions of NoMIRACL in some languages, with a share of the irrelevant passages."""
    for row in iterate_rows(data / "entailment_train" / "relevance_multilingual.jsonl.gz"):
        if row["lang"] in languages and (row["relevant"] or chance.random() < others):
            first = evidence([row["passage"]], row["query"])
            yield Pair(row["source_id"], first, row["query"], "relevance", 0 if row["relevant"] else 1)


def relevance_rows(data: Path) -> Iterator[Pair]:
    """Yield passages and questions: authored ones and the public sets, with fewer of the irrelevant passages."""
    chance = random.Random(17)
    yield from authored_relevance(chance)
    for row in iterate_rows(data / "wikiqa.jsonl.gz"):
        if row["split"] == "train" and (row["label"] or chance.random() < 0.25):
            yield Pair(row["source_id"], row["passage"], row["query"], "relevance", 0 if row["label"] else 1)
    for row in iterate_rows(data / "trec_dl19.jsonl.gz"):
        if row["label"] != 1:
            first = evidence([row["passage"]], row["query"])
            yield Pair(row["source_id"], first, row["query"], "relevance", 0 if row["label"] else 1)
    yield from nomiracl_pairs(data, chance, 0.4, frozenset({"en", "de", "fr", "es"}))


def multilingual_relevance_rows(data: Path) -> Iterator[Pair]:
    """Yield passages and questions in many languages, with fewer of the irrelevant passages."""
    chance = random.Random(3)
    yield from authored_relevance(chance, LANGUAGES[MULTILINGUAL])
    languages = LANGUAGES[MULTILINGUAL] | {"ar", "bn", "fa", "fi", "hi", "id", "ko", "ru", "sw", "te", "yo"}
    yield from nomiracl_pairs(data, chance, 0.25, languages)


def read_one_window(name: str) -> Reader:
    """Return the reader of a public entailment file for the multilingual model."""
    return entailment_rows(name, WINDOWS[MULTILINGUAL])


# For each model, each source with its reader and its share of the pairs that are drawn.
SOURCES: dict[str, dict[str, tuple[Reader, float]]] = {
    ENGLISH: {
        "authored": (authored_rows(LANGUAGES[ENGLISH], 0.4), 0.4),
        "authored short texts": (authored_short_rows(LANGUAGES[ENGLISH]), 0.25),
        "exchanges": (exchange_rows, 0.08),
        "exchanges, claims": (claim_exchange_rows, 0.25),
        "lingnli": (entailment_rows("lingnli"), 0.12),
        "mnli_dev": (entailment_rows("mnli_dev"), 0.06),
        "snli": (entailment_rows("snli"), 0.01),
        "fever": (fever_rows, 0.02),
        "sufficient_facts": (entailment_rows("sufficient_facts"), 0.03),
        "condaqa": (entailment_rows("condaqa"), 0.03),
        "contractnli": (entailment_rows("contractnli"), 0.01),
        "scitail": (entailment_rows("scitail"), 0.005),
        "hans": (entailment_rows("hans"), 0.005),
        "expertqa": (entailment_rows("expertqa"), 0.02),
        "realsumm_pyrxsum": (entailment_rows("realsumm_pyrxsum"), 0.01),
        "ragtruth": (ragtruth_rows, 0.14),
        "keys": (key_rows, 0.03),
        "authored_keys": (authored_key_rows(LANGUAGES[ENGLISH]), 0.3),
        "replies": (reply_rows(), 0.03),
        "relevance": (relevance_rows, 0.1),
        "answers": (answer_relevance(LANGUAGES[ENGLISH]), 0.08),
    },
    # Short pairs first: a base that has read no entailment learns little from long passages that differ in a word.
    # OCNLI may not be used for what is sold: it measures Chinese and is not trained on.
    MULTILINGUAL: {
        "authored": (authored_rows(LANGUAGES[ENGLISH], 0.2), 0.2),
        "authored in other languages": (authored_rows(OTHER_LANGUAGES, 0.0), 0.1),
        "authored short texts": (authored_short_rows(LANGUAGES[MULTILINGUAL]), 0.6),
        "exchanges, claims": (claim_exchange_rows, 0.1),
        "ragtruth": (ragtruth_rows, 0.2),
        "lingnli": (read_one_window("lingnli"), 0.12),
        "mnli_dev": (read_one_window("mnli_dev"), 0.06),
        "snli": (read_one_window("snli"), 0.02),
        "fever": (fever_rows, 0.04),
        "sufficient_facts": (read_one_window("sufficient_facts"), 0.01),
        "condaqa": (read_one_window("condaqa"), 0.01),
        "indonli": (read_one_window("indonli"), 0.06),
        "inferes": (read_one_window("inferes"), 0.04),
        "farstail": (read_one_window("farstail"), 0.03),
        "danish_fever": (read_one_window("danish_fever"), 0.01),
        "authored_keys": (authored_key_rows(LANGUAGES[MULTILINGUAL]), 0.25),
        "replies": (reply_rows(LANGUAGES[MULTILINGUAL]), 0.01),
        "relevance": (multilingual_relevance_rows, 0.04),
        "answers": (answer_relevance(LANGUAGES[MULTILINGUAL]), 0.08),
    },
}
