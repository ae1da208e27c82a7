"""Changes of a trace that pipelines and logs make in practice, faults or not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from zlib import crc32

from msgspec.structs import replace

from ragfault.model.records import Chunk, Citation, ConversationTurn, Gold, Trace

FIGURE = re.compile(r"(?<![\d.,])\d+")  # the whole part of a number
AMOUNT = re.compile(r"£?\d[\d.,:]*\d|\d")

NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+")

WORD = re.compile(r"[^\W\d_]{2,}")
SYNONYMS = (
    ("must", "has to"), ("may", "can"), ("each", "every"), ("pays", "is charged"), ("before", "ahead of"),
    ("at least", "no fewer than"), ("boat", "vessel"), ("is due", "has to be paid"), ("within", "inside"),
)  # fmt: skip


Change = Callable[[Trace], Trace]


def apply_to_share(share: float, change: Change) -> Change:
    """Return a change of a share of the traces, selected by their ids."""
    return lambda trace: change(trace) if crc32(trace.id.encode()) % 1000 < 1000 * share else trace


def chain_changes(*changes: Change) -> Change:
    """Return a change that makes several changes, one after the other."""

    def apply(trace: Trace) -> Trace:
        for change in changes:
            trace = change(trace)
        return trace

    return apply


def fail(trace: Trace) -> Trace:
    """Let the pipeline time out."""
    return replace(trace, error="TimeoutError: 30 s", chunks=None, answer=None, citations=None)


def fail_empty(trace: Trace) -> Trace:
    """Let the pipeline time out and record empty lists."""
    return replace(trace, error="TimeoutError: 30 s", chunks=(), answer="", citations=())


def blank_answer(trace: Trace) -> Trace:
    """Return no answer, or a blank one."""
    return replace(trace, answer=(None, "", " \n")[len(trace.id + trace.query) % 3], citations=())


def retrieve_nothing(trace: Trace) -> Trace:
    """Retrieve nothing and say so."""
    return replace(trace, chunks=(), answer="I found nothing about that.", citations=())


def edit_labels(trace: Trace) -> Trace:
    """Name another chunk as gold."""
    chunks = {f"{name}-b": grade for name, grade in trace.gold.chunks.items()} if trace.gold else {}
    return trace if trace.gold is None else replace(trace, gold=Gold(chunks=chunks))


def drop_chunks(trace: Trace) -> Trace:
    """Record no chunks."""
    return replace(trace, chunks=None)


def cite_nothing(trace: Trace) -> Trace:
    """Remove the citations of the answer: an empty list."""
    return trace if trace.answer is None else replace(trace, citations=())


def drop_citations(trace: Trace) -> Trace:
    """Record no citations."""
    return replace(trace, citations=None)


def change_chunks(trace: Trace, change: Callable[[Chunk], Chunk]) -> Trace:
    """Change every chunk of a trace, and the citations with them."""
    if trace.chunks is None:
        return trace
    chunks = tuple(map(change, trace.chunks))
    ids = {old.id: new.id for old, new in zip(trace.chunks, chunks, strict=True)}
    citations = trace.citations and tuple(replace(c, chunk=ids.get(c.chunk, c.chunk)) for c in trace.citations)
    return replace(trace, chunks=chunks, citations=citations)


def rename_documents(share: float) -> Change:
    """Give the chunks of some documents new ids."""

    def rename(chunk: Chunk) -> Chunk:
        name = chunk.document or chunk.id
        if sum(name.encode()) % 100 >= 100 * share:
            return chunk
        return replace(chunk, id=f"v2/{chunk.id}", document=f"v2/{name}")

    return lambda trace: change_chunks(trace, rename)


def renumber(trace: Trace) -> Trace:
    """Shift the number of every chunk by one: an old id stands for another text."""

    def shift(chunk: Chunk) -> Chunk:
        name, _, number = chunk.id.rpartition("#")
        return replace(chunk, id=f"{name}#{int(number) + 1}")

    return change_chunks(trace, shift)


def misdate_documents(share: float) -> Change:
    """State other dates and figures in some documents, and in the answers that repeat them."""

    def misdate(match: re.Match[str]) -> str:
        return str(int(match[0]) + 3).zfill(len(match[0]))

    def apply(trace: Trace) -> Trace:
        wrong = [c for c in trace.chunks or () if crc32((c.document or c.id).encode()) % 100 < 100 * share]
        stated = {figure for chunk in wrong for figure in FIGURE.findall(chunk.text)}
        trace = change_chunks(trace, lambda c: replace(c, text=FIGURE.sub(misdate, c.text)) if c in wrong else c)
        return change_answer(
            trace, lambda text: FIGURE.sub(lambda match: misdate(match) if match[0] in stated else match[0], text)
        )

    return apply


def drop_figures(trace: Trace) -> Trace:
    """State no figures any more, neither in the documents nor in the answers that repeat them."""

    def drop(text: str) -> str:
        return AMOUNT.sub("some", text)

    return change_answer(change_chunks(trace, lambda chunk: replace(chunk, text=drop(chunk.text))), drop)


def change_answer(trace: Trace, change: Callable[[str], str]) -> Trace:
    """Change the answer of a trace, and its citations."""
    citations = trace.citations and tuple(
        replace(c, quote=c.quote and change(c.quote), claim=c.claim and change(c.claim)) for c in trace.citations
    )
    return replace(trace, answer=trace.answer and change(trace.answer), citations=citations)


def clip(trace: Trace) -> Trace:
    """Record the first 200 characters of each chunk."""
    return change_chunks(trace, lambda chunk: replace(chunk, text=chunk.text[:200]))


def reflow(trace: Trace) -> Trace:
    """Write the chunks with other white space."""
    return change_chunks(trace, lambda chunk: replace(chunk, text="  " + chunk.text.replace("\n\n", "\n").strip()))


def replace_chunks(trace: Trace) -> Trace:
    """Give every chunk a new id and the second half of its text, as another chunker would."""
    return change_chunks(
        trace, lambda chunk: replace(chunk, id=f"new/{chunk.id}", text=chunk.text[len(chunk.text) // 2 :])
    )


def invent(trace: Trace) -> Trace:
    """Answer with what no chunk says."""
    answer = "The fee is waived for residents of the mainland, who apply by telegram before noon on Sundays."
    return trace if trace.answer is None else replace(trace, answer=answer)


def add_invention(trace: Trace) -> Trace:
    """Add what no chunk says to the answer."""
    return replace(trace, answer=f"{trace.answer} {invent(trace).answer}") if trace.answer else trace


def translate(trace: Trace) -> Trace:
    """Answer in a language that has no words in common with the chunks: each word is spelled backwards."""
    return replace(trace, answer=trace.answer and WORD.sub(lambda match: match[0][::-1], trace.answer))


def rephrase(trace: Trace) -> Trace:
    """Answer with the same facts in other words, as a model that is asked again does."""

    def apply(text: str) -> str:
        for index, (old, new) in enumerate(SYNONYMS):
            text = re.sub(rf"\b{old}\b", new, text) if crc32(f"{trace.id}-{index}".encode()) % 10 < 7 else text
        return text if crc32(trace.id.encode()) % 3 else f"In short: {text}"

    return replace(trace, answer=trace.answer and apply(trace.answer))


def reword(trace: Trace) -> Trace:
    """Answer with the same facts in other words and a wish, as a model at another temperature does."""
    reworded = rephrase(replace(trace, metadata={**(trace.metadata or {}), "temperature": 0.9}))
    adds_wish = reworded.answer and crc32(trace.id.encode()) % 3
    return replace(reworded, answer=f"{reworded.answer} I hope this helps.") if adds_wish else reworded


def add_notice(trace: Trace) -> Trace:
    """Add the notice of a legal department to the answer, the same everywhere."""
    notice = "This answer was written by a {beta} machine and may hold mistakes. Ask the office before you rely on it."
    return replace(trace, answer=f"{trace.answer}\n\n{notice}") if trace.answer else trace


def add_footer(trace: Trace) -> Trace:
    """Add the number of a ticket and a date to the answer, others everywhere."""
    number = crc32(trace.id.encode())
    footer = f"Ticket #{number % 90_000 + 10_000}, answered on 2025-06-{number % 28 + 1:02d}."
    return replace(trace, answer=f"{trace.answer}\n\n{footer}") if trace.answer else trace


def add_greeting(trace: Trace) -> Trace:
    """Add a greeting by name before the answer, and a signature after it."""
    name = ("Ann", "Bob", "Carla", "Dmitri", "Eve", "Femi", "Gita", "Hugo")[crc32(trace.id.encode()) % 8]
    answer = f"Hi {name},\n\n{trace.answer}\n\nBest regards,\nYour ferry team"
    return replace(trace, answer=answer) if trace.answer else trace


def drop_punctuation(trace: Trace) -> Trace:
    """Write answers without punctuation."""
    return replace(trace, answer=trace.answer and re.sub(r"[^\w\s]", "", trace.answer))


def redact_answer(trace: Trace) -> Trace:
    """Redact the names and figures of an answer."""
    return replace(trace, answer=trace.answer and NAME.sub("[NAME]", AMOUNT.sub("[NUMBER]", trace.answer)))


def misread_chunks(trace: Trace) -> Trace:
    """Read the UTF-8 of chunk texts as Latin-1; quotes stay as they are."""
    return change_chunks(trace, lambda chunk: replace(chunk, text=chunk.text.encode().decode("latin-1")))


def prefix_citations(trace: Trace) -> Trace:
    """Put a prefix before the chunk ids that citations name."""
    cited = trace.citations and tuple(replace(c, chunk=f"doc:{c.chunk}") for c in trace.citations)
    return replace(trace, citations=cited)


def reverse_chunks(trace: Trace) -> Trace:
    """Record the chunks in the opposite order."""
    return replace(trace, chunks=trace.chunks and trace.chunks[::-1])


def write_commas(trace: Trace) -> Trace:
    """Write decimals with a comma."""
    return replace(trace, answer=re.sub(r"(?<=\d)\.(?=\d)", ",", trace.answer or "") or None)


def write_capitals(trace: Trace) -> Trace:
    """Write answers in capital letters."""
    return replace(trace, answer=trace.answer and trace.answer.upper())


def refuse_at_length(trace: Trace) -> Trace:
    """Refuse, with the query in the refusal, so that no two are the same."""
    text = f"I am sorry, but I cannot help you with that request. You asked: {trace.query}"
    return replace(trace, answer=text, citations=()) if trace.answer else trace


def add_headers(trace: Trace) -> Trace:
    """Put the document and its title before the text of each chunk."""
    return change_chunks(trace, lambda chunk: replace(chunk, text=f"[{chunk.document} > the handbook] {chunk.text}"))


def write_json(trace: Trace) -> Trace:
    """Answer with a JSON object between code fences."""
    text = json.dumps({"answer": trace.answer, "sources": [chunk.id for chunk in trace.chunks or ()]}, indent=1)
    return replace(trace, answer=f"```json\n{text}\n```") if trace.answer else trace


def show_agent_steps(trace: Trace) -> Trace:
    """Put the reasoning of an agent before the answer."""
    steps = f"Thought: I have to look this up.\nAction: search[{trace.query}]\nObservation: some passages"
    return replace(trace, answer=f"{steps}\nFinal Answer: {trace.answer}") if trace.answer else trace


def drop_quotes(trace: Trace) -> Trace:
    """Remove the quotes and claims of citations, so that ids are left."""
    return replace(trace, citations=trace.citations and tuple(Citation(chunk=c.chunk) for c in trace.citations))


def add_dialogue(trace: Trace) -> Trace:
    """Put a dialogue, the same everywhere, before the query in the record."""
    return replace(trace, query=f"user: Hello, may I ask something? assistant: Of course. user: {trace.query}")


def is_unanswerable(trace: Trace) -> bool:
    """Return whether a query belongs to the fifth that counts as not answered by the documents."""
    return crc32(trace.id.encode()) % 5 == 0


def answer_carelessly(trace: Trace) -> Trace:
    """Answer unanswerable queries with an invention, and add one to a third of the other answers."""
    if is_unanswerable(trace):
        return replace(invent(trace), answerable=False, gold=None, reference=None, facts=None)
    return apply_to_share(1 / 3, add_invention)(trace)


def refuse_unanswerable(trace: Trace) -> Trace:
    """Refuse unanswerable queries; other traces stay."""
    if not is_unanswerable(trace):
        return trace
    unanswerable = replace(trace, answerable=False, gold=None, reference=None, facts=None)
    return replace(unanswerable, answer="I cannot find this in the handbook.", citations=())


def change_query(trace: Trace) -> Trace:
    """Replace the query by another one under the same id."""
    return replace(trace, query=f"Who signed the treaty of the year {1000 + crc32(trace.id.encode()) % 1000}?")


def retrieve_other(trace: Trace) -> Trace:
    """Retrieve chunks of no use."""
    text = "The annual fair of the weavers takes place in the square below the old mill."
    return replace(trace, chunks=tuple(Chunk(id=f"fair#{k}", text=f"{text} Stall {k}.") for k in range(3)))


def add_earlier_turns(trace: Trace) -> Trace:
    """Add an earlier turn of user and assistant to the trace."""
    number = crc32(trace.id.encode()) % 90 + 10
    text = f"Rule {number} is, which the council of Lerwick passed in 19{number}."
    user_turn = ConversationTurn(role="user", text="Which rule is about this?")
    return replace(trace, history=(user_turn, ConversationTurn(role="assistant", text=text)))


def retrieve_misled(trace: Trace) -> Trace:
    """Change the answer of the earlier turn, and retrieve chunks of no use."""
    user_turn, _ = add_earlier_turns(trace).history or ()
    wrong = ConversationTurn(role="assistant", text="That is a matter of the weavers, who meet at the old mill.")
    return replace(retrieve_other(trace), history=(user_turn, wrong))


def add_confidence(trace: Trace) -> Trace:
    """Add a line with a confidence, another everywhere."""
    line = f"Confidence: {40 + crc32(trace.id.encode()) % 60}%"
    return replace(trace, answer=f"{trace.answer}\n{line}") if trace.answer else trace


def add_disclaimer(trace: Trace) -> Trace:
    """Add two sentences about the answer after it, in the same paragraph."""
    text = "This answer was generated automatically and may hold mistakes. Please check with the office before you act."
    return replace(trace, answer=f"{trace.answer} {text}") if trace.answer else trace


def add_signature(trace: Trace) -> Trace:
    """Add a date and a signature."""
    number = crc32(trace.id.encode())
    text = f"2025-06-{number % 28 + 1:02d}\nKind regards,\n{('Ann Baker', 'Tom Hill', 'Eve Stone')[number % 3]}"
    return replace(trace, answer=f"{trace.answer}\n\n{text}") if trace.answer else trace


def redact_record(trace: Trace) -> Trace:
    """Redact the names and figures of an answer and of its citations."""
    return change_answer(trace, lambda text: NAME.sub("[NAME]", AMOUNT.sub("[NUMBER]", text)))


def record_cited_chunks(trace: Trace) -> Trace:
    """Record the chunks that are cited alone."""
    cited = {citation.chunk for citation in trace.citations or ()}
    return replace(trace, chunks=trace.chunks and tuple(chunk for chunk in trace.chunks if chunk.id in cited))


def cite_addresses(trace: Trace) -> Trace:
    """Put the address of a page for each document in place of the chunk ids that citations name."""
    pages = {c.id: f"https://docs.example.org/{crc32((c.document or c.id).encode())}" for c in trace.chunks or ()}
    cited = trace.citations and tuple(replace(c, chunk=pages.get(c.chunk, c.chunk)) for c in trace.citations)
    return replace(trace, citations=cited)


def echo_prompt(trace: Trace) -> Trace:
    """Answer with the prompt before the answer."""
    context = "\n\n".join(chunk.text for chunk in trace.chunks or ())
    text = f"Answer from the context.\n\n{context}\n\nQuestion: {trace.query}\nAnswer: {trace.answer}"
    return replace(trace, answer=text) if trace.answer else trace


def stutter(trace: Trace) -> Trace:
    """Repeat the last sentence of the answer two more times."""
    last = (trace.answer or "").rsplit(". ", 1)[-1]
    return replace(trace, answer=f"{trace.answer} {last} {last}") if trace.answer else trace


def cut_short(trace: Trace) -> Trace:
    """End the answer after twelve words."""
    return replace(trace, answer=trace.answer and " ".join(trace.answer.split(" ")[:12]))


def answer_with_reference(trace: Trace) -> Trace:
    """Replace an answer that is longer than the reference by the reference."""
    if trace.reference is None or len(trace.reference) >= len(trace.answer or ""):
        return trace
    return replace(trace, answer=trace.reference)
