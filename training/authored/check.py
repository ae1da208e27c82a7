"""Checks the form of the authored data and prints its balance: python -m training.authored.check [FOLDER ...]."""

import json
import re
import sys
from collections import Counter
from pathlib import Path

from training.authored.items import FOLDER, Item, UnitError, edited, read_shorts, read_units, unit_files, unit_items

REPLY_LABELS = {"refusal", "partial", "answer"}
KEY_LABELS = {"same", "different", "incomplete", "unrelated"}
SPACELESS = {"zh", "ja"}


def tokens(text: str, language: str) -> set[str]:
    """Return the words of a text, or its pairs of characters where words are not separated."""
    if language in SPACELESS:
        bare = re.sub(r"\s", "", text)
        return {bare[place : place + 2] for place in range(len(bare) - 1)}
    return set(re.findall(r"\w+", text.lower()))


def unit_faults(unit: dict, language: str) -> list[str]:
    """Return what is wrong with one unit, in sentences."""
    name = unit.get("id", "?")
    missing = [field for field in ("id", "domain", "query", "chunks", "b", "c", "claims") if not unit.get(field)]
    if missing:
        return [f"{name}: {', '.join(missing)} missing or empty"]
    faults = []
    try:
        for version in "bc":
            edited(unit["chunks"], unit[version], name)
    except UnitError as fault:
        faults.append(str(fault))
    size = sum(len(chunk) for chunk in unit["chunks"])
    least = 120 if language in SPACELESS else 300
    if size < least:
        faults.append(f"{name}: the chunks have {size} characters, fewer than {least}")
    for row in unit["claims"]:
        if len(row) < 4 or row[1] not in {"copy", "para"} or not re.fullmatch("[SCN]{3}", row[2]):
            faults.append(f"{name}: claim row {row!r}")
        elif len(set(row[2])) < 2:
            faults.append(f"{name}: {row[3]!r} has one label under all versions")
    return faults


def auroc(positive: list[float], negative: list[float]) -> float:
    """Return the probability that a positive value exceeds a negative one, ties half."""
    import bisect

    ordered = sorted(negative)
    wins = sum(bisect.bisect_left(ordered, value) + bisect.bisect_right(ordered, value) for value in positive)
    return wins / (2 * len(positive) * len(negative))


def overlap(item: Item) -> float:
    """Return the share of the claim's words that the chunks hold."""
    claim = tokens(item.claim, item.language)
    return len(claim & tokens(" ".join(item.chunks), item.language)) / max(1, len(claim))


def claim_only_accuracy(items: list[Item]) -> tuple[float, float]:
    """Return balanced accuracy of naive Bayes on words of claim and query, 5-fold by unit, and chance."""
    import math

    folds = {unit: place % 5 for place, unit in enumerate(sorted({item.unit for item in items}))}
    right: Counter[str] = Counter()
    total: Counter[str] = Counter(item.label for item in items)
    for fold in range(5):
        counts: dict[str, Counter[str]] = {label: Counter() for label in total}
        for item in items:
            if folds[item.unit] != fold:
                counts[item.label].update(tokens(f"{item.query} {item.claim}", item.language))
        vocabulary = len(set().union(*counts.values())) or 1
        sums = {label: sum(counter.values()) + vocabulary for label, counter in counts.items()}
        for item in items:
            if folds[item.unit] == fold:
                words = tokens(f"{item.query} {item.claim}", item.language)
                best = max(
                    counts, key=lambda label: sum(math.log((counts[label][word] + 1) / sums[label]) for word in words)
                )
                right[item.label] += best == item.label
    return sum(right[label] / total[label] for label in total) / len(total), 1 / len(total)


def print_balance(language: str, items: list[Item]) -> None:
    """Return counts of a language, and what the claim or the overlap alone would tell."""
    labels = Counter(item.label for item in items)
    units = {item.unit for item in items}
    claims = {(item.unit, item.claim, item.query) for item in items}
    print(f"{language}: {len(units)} units, {len(claims)} claims, {len(items)} items, {dict(sorted(labels.items()))}")
    cells = Counter((item.form, item.label) for item in items)
    print("   cells " + ", ".join(f"{form} {label} {count}" for (form, label), count in sorted(cells.items())))
    kinds = Counter(kind for kind, *_ in {(item.kind, item.unit, item.claim, item.query) for item in items})
    print("   kinds " + ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()))
    supported = [overlap(item) for item in items if item.label == "S"]
    contradicted = [overlap(item) for item in items if item.label == "C"]
    silent = [overlap(item) for item in items if item.label == "N"]
    if supported and contradicted and silent:
        print(
            f"   overlap AUROC: supported against the rest {auroc(supported, contradicted + silent):.3f}, "
            f"against contradicted {auroc(supported, contradicted):.3f}, not stated {auroc(supported, silent):.3f}"
        )
    if len(units) >= 10:
        decided = [item for item in items if item.label != "N"]
        print("   claim only: {:.3f} (chance {:.3f})".format(*claim_only_accuracy(items)), end="; ")
        print("supported or contradicted {:.3f} (chance {:.3f})".format(*claim_only_accuracy(decided)))


def short_faults(row: dict) -> list[str]:
    """Return what is wrong with a short text, in sentences."""
    missing = [field for field in ("id", "domain", "a", "b", "claims") if not row.get(field)]
    if missing:
        return [f"needs {', '.join(missing)}"]
    faults = ["both passages are the same"] if row["a"] == row["b"] else []
    for claim in row["claims"]:
        if len(claim) != 2 or not re.fullmatch("[SCN]{2}", claim[0]) or len(set(claim[0])) < 2 or not claim[1].strip():
            faults.append(f"a claim is [two different letters of S, C and N, text], not {claim!r}")
    return faults


def reply_faults(row: dict) -> list[str]:
    """Return what is wrong with a reply, in sentences."""
    stands = row.get("query") and "reply" in row and row.get("label") in REPLY_LABELS
    return [] if stands else [f"needs query, reply and a label of {sorted(REPLY_LABELS)}"]


def copy_faults(row: dict) -> list[str]:
    """Return what is wrong with a pair of near copies, in sentences."""
    if not all(row.get(field) for field in ("id", "domain", "query", "passage", "false", "true")):
        return ["needs id, domain, query, passage, false and true"]
    stands = all(len(row[kind]) == 2 and row[kind][1] not in row["passage"] for kind in ("false", "true"))
    return [] if stands else ["false and true are [change, claim], and the passage does not hold the claim"]


def key_faults(row: dict) -> list[str]:
    """Return what is wrong with a reference and its answers, in sentences."""
    if not row.get("query") or not row.get("reference") or not row.get("answers"):
        return ["needs query, reference and answers"]
    stands = all(len(pair) == 2 and pair[1] in KEY_LABELS for pair in row["answers"])
    return [] if stands else [f"an answer is [text, label] with a label of {sorted(KEY_LABELS)}"]


# Folder → what finds the faults of a row of its files.
ROW_FAULTS = {"replies": reply_faults, "keys": key_faults, "copies": copy_faults, "shorts": short_faults}


def row_faults(path: Path) -> list[str]:
    """Return what is wrong with a file of replies, keys, copies or short texts."""
    faults = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            wrong = ROW_FAULTS[path.parent.name](json.loads(line))
        except json.JSONDecodeError as fault:
            wrong = [str(fault)]
        faults += [f"{path.name}, line {number}: {fault}" for fault in wrong]
    return faults


def read_unit_files(paths: list[Path]) -> tuple[dict[str, list[Item]], list[str]]:
    """Return the items of each language, and what is wrong with the units of some files."""
    items: dict[str, list[Item]] = {}
    faults: list[str] = []
    for path in paths:
        language = path.parent.parent.name
        try:
            for unit in read_units(path):
                wrong = unit_faults(unit, language)
                faults += wrong
                if not wrong:
                    items.setdefault(language, []).extend(unit_items(unit, path.parent.name, language))
        except UnitError as fault:
            faults.append(str(fault))
    return items, faults


def main(arguments: list[str]) -> int:
    """Return checks every file, or only the files whose path contains one of the arguments."""

    def chosen(paths: list[Path]) -> list[Path]:
        return [path for path in paths if not arguments or any(part in str(path) for part in arguments)]

    items, faults = read_unit_files(chosen(unit_files()))
    for folder in ROW_FAULTS:
        for path in chosen(sorted((FOLDER / folder).glob("*.jsonl"))):
            faults += row_faults(path)
            print(f"{folder}/{path.name}: {len(path.read_text().splitlines())} rows")
    for item in [] if faults else read_shorts():
        if not arguments or any(part in f"shorts/{item.language}-{item.writer}.jsonl" for part in arguments):
            items.setdefault(f"{item.language}, short texts", []).append(item)
    for language in sorted(items):
        print_balance(language, items[language])
    for fault in faults:
        print("FAULT", fault)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
