"""Changes that come together: a harmless one beside a fault, a gain beside a loss, parts of a release, other questions.

    python -m benchmarks.faults.mixtures [SITUATION …] [--size 100] [--seeds 1] [--judge lexical]

Each situation answers questions of the demo handbook by two configurations of the fault bench's system (`system.py`).
The second column is the layer that broke ("–" for none), and beside each situation stands how often `bisect` named it
first, was silent (cannot tell, no fault) or named another one. With `--seeds 40` the rows without a fault are rates of
false alarms. Prints a Markdown table, and the first sentence of the first seed.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ragfault.comparison.bisection import bisect
from ragfault.evaluation.evaluator import evaluate
from ragfault.model.records import Gold, Trace

from .config import Config, Generation, Indexing, Search
from .corpora import load_handbook_corpus
from .injection import keep_labels
from .system import answer_questions
from .words import chance

__all__ = ["SITUATIONS", "Mixture"]

Sides = tuple[list[Trace], list[Trace]]
Change = Callable[[Trace], Trace]
CORPUS = load_handbook_corpus()
ANEW = Generation(seed=1)  # the same generator, asked again


class Mixture(Struct, frozen=True, kw_only=True):
    """Two configurations and what happened to their traces."""

    baseline: Config = Config()
    candidate: Config = Config(generation=ANEW)
    faulty: Config | None = None  # configuration of a share of the candidate's traces
    share: float = 0.0
    layer: str | None = None  # layer that broke
    change: Callable[[Sides, int], Sides] = lambda sides, _: sides


def reseed(config: Config, seed: int) -> Config:
    """Return a configuration with other seeds; what was equal stays equal."""
    return replace(
        config,
        search=replace(config.search, seed=config.search.seed + 10 * seed),
        generation=replace(config.generation, seed=config.generation.seed + 10 * seed),
    )


def draw_questions(n: int, seed: int) -> list[Trace]:
    """Draw questions of the handbook."""
    return sorted(CORPUS.questions, key=lambda question: chance(seed, "mixture", question.id))[:n]


def build(mixture: Mixture, n: int, seed: int) -> Sides:
    """Return the traces of both sides."""
    questions = draw_questions(n, seed)
    sides = [
        answer_questions(CORPUS, reseed(config, seed), questions) for config in (mixture.baseline, mixture.candidate)
    ]
    if mixture.faulty is not None:
        faulty = answer_questions(CORPUS, reseed(mixture.faulty, seed), questions)
        sides[1] = [
            bad if chance(seed, "rollout", good.id) < mixture.share else good
            for good, bad in zip(sides[1], faulty, strict=True)
        ]
    return mixture.change((sides[0], sides[1]), seed)


# --- changes of both sides ----------------------------------------------------------------------------


def on_candidate(change: Change) -> Callable[[Sides, int], Sides]:
    """Return a change of the candidate's traces."""
    return lambda sides, _: (sides[0], [change(trace) for trace in sides[1]])


def on_both(change: Change) -> Callable[[Sides, int], Sides]:
    """Return a change of the traces of both sides."""
    return lambda sides, _: ([change(trace) for trace in sides[0]], [change(trace) for trace in sides[1]])


def drop_key(trace: Trace) -> Trace:
    """Remove the answer key."""
    return replace(trace, gold=None, reference=None, facts=None)


def keep_old_gold(sides: Sides, _: int) -> Sides:
    """Keep the chunk ids of the baseline's gold, without spans, on both sides."""
    old = [replace(t, gold=t.gold and Gold(chunks=t.gold.chunks)) for t in sides[0]]
    return old, keep_labels(old, sides[1])


def lose_gold(trace: Trace) -> Trace:
    """Name gold chunks that no longer exist, in a fifth of the traces."""
    if trace.gold is None or chance("stale", trace.id) >= 0.2:
        return trace
    return replace(trace, gold=Gold(chunks={f"old-{name}": grade for name, grade in trace.gold.chunks.items()}))


def mistake_gold(trace: Trace) -> Trace:
    """Name the last chunk retrieved as gold, in a fifth of the traces."""
    if trace.gold is None or not trace.chunks or chance("wrong", trace.id) >= 0.2:
        return trace
    return replace(trace, gold=Gold(chunks={trace.chunks[-1].id: 1.0}))


def mark_release(sides: Sides, seed: int) -> Sides:
    """Record the release: the candidate's faulty traces are those of the new one."""
    old = [replace(t, metadata={**(t.metadata or {}), "release": "5.1"}) for t in sides[0]]
    new = [
        replace(t, metadata={**(t.metadata or {}), "release": "5.2" if chance(seed, "rollout", t.id) < 0.25 else "5.1"})
        for t in sides[1]
    ]
    return old, new


def mark_route(sides: Sides, seed: int) -> Sides:
    """Record the route on both sides, which tells the faulty traces from the others."""

    def mark(trace: Trace) -> Trace:
        return replace(trace, route="beta" if chance(seed, "rollout", trace.id) < 0.25 else "main")

    return [mark(t) for t in sides[0]], [mark(t) for t in sides[1]]


def share_two_fifths(sides: Sides, seed: int) -> Sides:
    """Leave two fifths of the ids in common: of the others each is in one run."""
    places = {t.id: chance(seed, "side", t.id) for t in sides[0]}
    return [t for t in sides[0] if places[t.id] < 0.7], [t for t in sides[1] if places[t.id] >= 0.3]


def ask_harder(sides: Sides, seed: int) -> Sides:
    """Add questions of two parts to the candidate, and leave half of the others in the baseline alone."""
    is_hard = {t.id: len(t.facts or ()) > 1 or " and " in t.query for t in sides[0]}
    places = {t.id: chance(seed, "side", t.id) for t in sides[0]}
    return (
        [t for t in sides[0] if not is_hard[t.id] or places[t.id] < 0.1],
        [t for t in sides[1] if is_hard[t.id] or places[t.id] < 0.4],
    )


def converse(sides: Sides, _: int) -> Sides:
    """Make five conversations of all traces."""

    def mark(side: Sequence[Trace]) -> list[Trace]:
        return [replace(t, conversation=f"c{i % 5}", turn=i // 5 + 1) for i, t in enumerate(side)]

    return mark(sides[0]), mark(sides[1])


def repeat(sides: Sides, _: int) -> Sides:
    """Repeat the first two of thirty questions ten times each, under other ids, with the answers of both runs."""

    def copy(side: Sequence[Trace]) -> list[Trace]:
        return [*side[:30], *(replace(t, id=f"{t.id}/{i}") for t in side[:2] for i in range(10))]

    return copy(sides[0]), copy(sides[1])


def take(n: int) -> Callable[[Sides, int], Sides]:
    """Return a change that leaves n pairs."""
    return lambda sides, _: (sides[0][:n], sides[1][:n])


# --- other forms of the same answer -------------------------------------------------------------------


def change_text(trace: Trace, change: Callable[[str], str]) -> Trace:
    """Change the answer and leave citations as they are."""
    return replace(trace, answer=trace.answer and change(trace.answer))


def split_answer(text: str) -> list[str]:
    """Split an answer into sentences."""
    return [part for part in re.split(r"(?<=[.!?]) ", text) if part]


def write_list(trace: Trace) -> Trace:
    """Write the answer as a list under a heading."""
    return change_text(trace, lambda text: "### Answer\n\n" + "\n".join(f"- {s}" for s in split_answer(text)))


def write_bold(trace: Trace) -> Trace:
    """Write figures in bold, with a heading before."""
    return change_text(trace, lambda text: "**Answer:** " + re.sub(r"(£?\d[\d.,:]*\d|\d)", r"**\1**", text))


def write_records(trace: Trace) -> Trace:
    """Write the answer as a table of topic and statement."""
    return change_text(
        trace,
        lambda text: (
            "| # | Statement |\n|---|---|\n" + "\n".join(f"| {i} | {s} |" for i, s in enumerate(split_answer(text), 1))
        ),
    )


def mark_sources(trace: Trace) -> Trace:
    """Write citations as numbers in the text."""
    places = {chunk.id: i for i, chunk in enumerate(trace.chunks or (), 1)}
    answer = trace.answer or ""
    for citation in trace.citations or ():
        if citation.claim and citation.claim in answer and citation.chunk in places:
            answer = answer.replace(citation.claim, f"{citation.claim.rstrip('.')} [{places[citation.chunk]}].", 1)
    return replace(trace, answer=answer or None)


HEDGES = (
    "Please note that conditions may change.", "I would recommend confirming this with the office.",
    "Keep in mind that exceptions are possible.", "If in doubt, ask a member of staff.",
    "This is based on the documents provided.", "Note that I can only speak to what the documents say.",
)  # fmt: skip
OPENINGS = (
    "Sure! Based on the documents provided, here is the answer:", "Great question!", "Thank you for asking.",
    "According to the handbook,", "From what the documents say:", "Here is what I found.",
)  # fmt: skip


def hedge(trace: Trace) -> Trace:
    """Add one of six disclaimers."""
    return change_text(trace, lambda text: f"{text} {HEDGES[int(6 * chance('hedge', trace.id))]}")


def open_warmly(trace: Trace) -> Trace:
    """Put one of six openings before the answer."""
    return change_text(trace, lambda text: f"{OPENINGS[int(6 * chance('opening', trace.id))]} {text}")


WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def spell_figures(trace: Trace) -> Trace:
    """Write whole numbers up to twelve in words."""
    return change_text(
        trace,
        lambda text: re.sub(r"(?<![\w.,:£])(\d|1[012])(?![\w:%]|[.,]\d)", lambda match: WORDS[int(match[1])], text),
    )


def write_times(trace: Trace) -> Trace:
    """Write times of day by twelve hours, and pounds in words."""

    def format_time(match: re.Match[str]) -> str:
        hour, minute = int(match[1]), match[2]
        return f"{(hour - 1) % 12 + 1}{'' if minute == '00' else f':{minute}'} {'am' if hour < 12 else 'pm'}"

    def apply(text: str) -> str:
        return re.sub(r"£(\d[\d.,]*\d|\d)", r"\1 pounds", re.sub(r"\b(\d\d):(\d\d)\b", format_time, text))

    return change_text(trace, apply)


def round_figures(trace: Trace) -> Trace:
    """Round whole numbers above a hundred to tens, and say so."""
    return change_text(
        trace,
        lambda text: re.sub(
            r"(?<![\w.,:£])(\d{3,4})(?![\w:%]|[.,]\d)", lambda m: f"about {round(int(m[1]), -1)}", text
        ),
    )


PARAPHRASES = (
    (r"\bmust not\b", "are not allowed to"), (r"\bmust\b", "need to"), (r"\bmay\b", "are able to"),
    (r"\bcosts\b", "is priced at"), (r"\bpassengers\b", "travellers"), (r"\bis open\b", "receives the public"),
    (r"\bbefore\b", "prior to"), (r"\bafter\b", "following"), (r"\bonly\b", "solely"), (r"\bevery\b", "each"),
    (r"\bwithin\b", "in the space of"), (r"\bat least\b", "a minimum of"), (r"\bis not\b", "isn't"),
    (r"\bbegins\b", "starts"), (r"\bends\b", "finishes"), (r"\bneeds\b", "requires"), (r"\bbuy\b", "purchase"),
    (r"\bget\b", "obtain"), (r"\bchildren\b", "kids"), (r"\bfree of charge\b", "without paying"),
)  # fmt: skip


def paraphrase(trace: Trace) -> Trace:
    """Write the answer in other words."""

    def apply(text: str) -> str:
        for pattern, words in PARAPHRASES:
            text = re.sub(pattern, words, text)
        return text

    return change_text(trace, apply)


def shorten(trace: Trace) -> Trace:
    """Leave the reference alone as the answer, where there is one."""
    reference = trace.reference if isinstance(trace.reference, str) else (trace.reference or (None,))[0]
    return replace(trace, answer=reference or trace.answer)


def lengthen(trace: Trace) -> Trace:
    """Add the next two sentences of the cited chunk to the answer, word for word."""
    cited = {citation.chunk for citation in trace.citations or ()}
    text = next((chunk.text for chunk in trace.chunks or () if chunk.id in cited), "")
    sentences = [s.strip() for s in re.split(r"(?<=[.!?])\s+", text) if s and s[0].isalpha()]
    added = [s for s in sentences if s not in (trace.answer or "") and s[-1] in ".!?"][:2]
    return change_text(trace, lambda answer: " ".join([answer, *added]))


# --- the situations -----------------------------------------------------------------------------------

RECUT = Indexing(chunker="window", size=1100)
OTHER_MODEL = Indexing(model="b")
INVENTS = Generation(seed=1, invention_share=0.3)
SHORT = Generation(seed=1, max_words=8)
INVENTS_ALWAYS = Config(generation=replace(INVENTS, invention_share=1.0))
MISFILTERS = Config(search=Search(misfiltered_share=0.8), generation=ANEW)
WEAK = Search(unranked_share=0.6, dense_weight=1.0)
ANN = Search(missed_share=0.05)

SITUATIONS: dict[str, Mixture] = {
    # 1 harmless beside a fault
    "cut anew": Mixture(candidate=Config(indexing=RECUT, generation=ANEW)),
    "cut anew, and invents": Mixture(candidate=Config(indexing=RECUT, generation=INVENTS), layer="generation"),
    "other embedder": Mixture(candidate=Config(indexing=OTHER_MODEL, generation=ANEW)),
    "other embedder, a fifth cut off": Mixture(
        candidate=Config(indexing=OTHER_MODEL, generation=ANEW),
        faulty=Config(indexing=OTHER_MODEL, generation=SHORT),
        share=0.2,
        layer="generation",
    ),
    "other embedder, wrong filter": Mixture(
        candidate=Config(indexing=OTHER_MODEL, search=Search(misfiltered_share=0.2), generation=ANEW), layer="retrieval"
    ),
    "chattier, stale documents": Mixture(
        candidate=Config(indexing=Indexing(stale_share=0.4), generation=ANEW),
        layer="source data",
        change=on_candidate(open_warmly),
    ),
    "hedges, wrong filter": Mixture(
        candidate=Config(search=Search(misfiltered_share=0.2), generation=ANEW),
        layer="retrieval",
        change=on_candidate(hedge),
    ),
    "lists, wrong filter": Mixture(
        candidate=Config(search=Search(misfiltered_share=0.2), generation=ANEW),
        layer="retrieval",
        change=on_candidate(write_list),
    ),
    # 2 a gain beside a loss
    "better search, invents": Mixture(
        baseline=Config(search=WEAK), candidate=Config(generation=INVENTS), layer="generation"
    ),
    "better search, refuses": Mixture(
        baseline=Config(search=WEAK),
        candidate=Config(generation=Generation(seed=1, refusal_share=0.25)),
        layer="generation",
    ),
    "better model, worse search": Mixture(
        baseline=Config(generation=Generation(invention_share=0.3)),
        candidate=Config(search=WEAK, generation=ANEW),
        layer="retrieval",
    ),
    "fresh documents, cut off": Mixture(
        baseline=Config(indexing=Indexing(stale_share=0.4)),
        candidate=Config(generation=Generation(seed=1, max_words=9)),
        layer="generation",
    ),
    "better model, stale documents": Mixture(
        baseline=Config(generation=Generation(invention_share=0.3)),
        candidate=Config(indexing=Indexing(stale_share=0.4), generation=ANEW),
        layer="source data",
    ),
    # 3 parts of a release
    "10 % invent": Mixture(faulty=INVENTS_ALWAYS, share=0.1, layer="generation"),
    "25 % invent": Mixture(faulty=INVENTS_ALWAYS, share=0.25, layer="generation"),
    "25 % invent, a release": Mixture(faulty=INVENTS_ALWAYS, share=0.25, layer="generation", change=mark_release),
    "25 % invent, a route": Mixture(faulty=INVENTS_ALWAYS, share=0.25, layer="generation", change=mark_route),
    "25 % search badly, a route": Mixture(faulty=MISFILTERS, share=0.25, layer="retrieval", change=mark_route),
    "25 % search badly": Mixture(faulty=MISFILTERS, share=0.25, layer="retrieval"),
    # 4 other questions
    "two fifths in common": Mixture(change=share_two_fifths),
    "two fifths in common, invents": Mixture(
        candidate=Config(generation=INVENTS), layer="generation", change=share_two_fifths
    ),
    "harder questions": Mixture(change=ask_harder),
    # 5 few pairs, unequal clusters
    "20 pairs": Mixture(change=take(20)),
    "40 pairs": Mixture(change=take(40)),
    "ten copies of two": Mixture(change=repeat),
    "five conversations": Mixture(change=converse),
    # 6 chance
    "asked again": Mixture(candidate=Config(generation=ANEW)),
    "asked again, no key": Mixture(candidate=Config(generation=ANEW), change=on_both(drop_key)),
    "noisy search": Mixture(
        baseline=Config(search=ANN), candidate=Config(search=replace(ANN, seed=1), generation=ANEW)
    ),
    "noisy search, no key": Mixture(
        baseline=Config(search=ANN),
        candidate=Config(search=replace(ANN, seed=1), generation=ANEW),
        change=on_both(drop_key),
    ),
    "careless model": Mixture(
        baseline=Config(generation=Generation(invention_share=0.3, refusal_share=0.1, error_rate=3)),
        candidate=Config(generation=Generation(invention_share=0.3, refusal_share=0.1, error_rate=3, seed=1)),
    ),
    # 7 keys
    "gold lost": Mixture(change=on_both(lose_gold)),
    "gold wrong": Mixture(change=on_both(mistake_gold)),
    "gold wrong, other embedder": Mixture(
        candidate=Config(indexing=OTHER_MODEL, generation=ANEW), change=on_both(mistake_gold)
    ),
    "gold of the old cut": Mixture(candidate=Config(indexing=RECUT, generation=ANEW), change=keep_old_gold),
    # 8 forms
    "lists": Mixture(change=on_candidate(write_list)),
    "bold figures": Mixture(change=on_candidate(write_bold)),
    "table of statements": Mixture(change=on_candidate(write_records)),
    "marks of sources": Mixture(change=on_candidate(mark_sources)),
    "disclaimers": Mixture(change=on_candidate(hedge)),
    "openings": Mixture(change=on_candidate(open_warmly)),
    "openings and disclaimers": Mixture(change=on_candidate(lambda trace: hedge(open_warmly(trace)))),
    "figures in words": Mixture(change=on_candidate(spell_figures)),
    "times and pounds": Mixture(change=on_candidate(write_times)),
    "rounded": Mixture(change=on_candidate(round_figures)),
    "paraphrased": Mixture(change=on_candidate(paraphrase)),
    "terse": Mixture(change=on_candidate(shorten)),
    "longer": Mixture(change=on_candidate(lengthen)),
    "from long to terse": Mixture(change=lambda s, _: ([lengthen(t) for t in s[0]], [shorten(t) for t in s[1]])),
}


def classify(mixture: Mixture, layers: Sequence[str]) -> str:
    """Classify the layers that were named."""
    if not layers:
        return "silent"
    return "right" if layers[0] == mixture.layer else "wrong"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("situations", nargs="*", metavar="SITUATION", help=", ".join(SITUATIONS).replace("%", "%%"))
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--judge", default="lexical")
    options = parser.parse_args()
    print("| situation | broke | right | silent | wrong | also named | sentence |\n|---|---|---|---|---|---|---|")
    for name in options.situations or SITUATIONS:
        mixture, counts, others, first = SITUATIONS[name], Counter[str](), Counter[str](), ""
        for seed in range(options.seeds):
            sides = build(mixture, options.size, seed)
            with tempfile.TemporaryDirectory() as folder:
                runs = [
                    evaluate(side, Path(folder, str(i)), judge=options.judge, force=True)
                    for i, side in enumerate(sides)
                ]
                result = bisect(*runs)
            layers = [fault.layer for fault in result.faults]
            outcome = classify(mixture, layers)
            counts[outcome] += 1
            others.update(layer for layer in set(layers) if layer != mixture.layer)
            first = first if seed and outcome != "wrong" else f"seed {seed}: {result.sentence}"
        named = ", ".join(f"{layer} ×{count}" for layer, count in others.items()) or "–"
        print(
            f"| {name} | {mixture.layer or '–'} | {counts['right']} | {counts['silent']} | {counts['wrong']} "
            f"| {named} | {first} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
