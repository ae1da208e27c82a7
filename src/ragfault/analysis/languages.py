"""Traces in a language or in markup that their judge does not know."""

from __future__ import annotations

from ragfault.analysis.comparison.recording.answer_pairs import MARKUP_SHARE, is_wrapped
from ragfault.io.runs import Run
from ragfault.judges.checks.claims import strip_tags
from ragfault.text import lacks_english

ENGLISH_JUDGES = ("embedded", "lexical", "minilm")
"""Judges that know English only."""
WORD_JUDGES = (*ENGLISH_JUDGES, "onnx")
"""Judges that tell by words what no chunk holds, and read markup as words."""
COMMON_WORDS = """
der das dem und ist nicht ein eine einen einem mit auf für von zu sich auch wird werden bei oder wie nach sind vom zum
zur aus beim durch le les des et est une du dans avec pas qui que au aux ce cette sont ou il elle ne sur el los las y
con por como se su lo más una del al está pero gli della di che è non sono nel alla dei delle per o os da dos em um
uma não com são na à het een van dat niet voor op aan zijn wordt worden ook naar uit og och det ett av af til till
på er är som ikke inte med den har ved fra från kan w z się nie jest i od że są przez oraz
"""
FOREIGN_WORDS = frozenset(COMMON_WORDS.split())
"""Common words of other languages in Latin script; some stand in names as well."""
MIN_FOREIGN_SHARE = 0.1
"""Least share of traces in another language that is reported: in English, lists of names look foreign too."""


def count_foreign(run: Run) -> int:
    """Count the traces whose query and answer do not look English."""
    return sum(
        lacks_english(f"{query} {answer or ''}")
        for batch in run.iterate_batches("traces", ["query", "answer"])
        for query, answer in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )


def describe_foreign(judge: str, foreign: int, traces: int, of: str = "") -> str | None:
    """Describe how many traces are in a language that the judge does not know; None where that is no trouble.

    >>> describe_foreign("embedded/3 a=b", 9, 12, of="v1")
    '9 of 12 traces of v1 hold hardly a common English word; embedded/3 knows English only: do not rely on its verdicts
     on other languages, take another judge (--judge llm:MODEL)'
    >>> describe_foreign("llm:some-model/1", 9, 12)
    """
    name = judge.split(" ", maxsplit=1)[0]
    if name.split("/")[0] not in ENGLISH_JUDGES or not foreign or foreign < MIN_FOREIGN_SHARE * traces:
        return None
    which = f"{foreign:,} of {traces:,} traces{f' of {of}' if of else ''}"
    return (
        f"{which} {'hold' if foreign != 1 else 'holds'} hardly a common English word; {name} knows English only: "
        "do not rely on its verdicts on other languages, take another judge (--judge llm:MODEL)"
    )


def count_wrapped(run: Run) -> int:
    """Count the traces whose answer is JSON, or holds tags that do not only format text, reasoning or the like."""
    batches = run.iterate_batches("traces", ["answer"])
    return sum(is_wrapped(strip_tags(answer or "")) for batch in batches for answer in batch["answer"].to_pylist())


def describe_wrapped(judge: str, wrapped: int, traces: int, of: str = "") -> str | None:
    """Describe how many answers hold markup that the judge reads as their words; None where that is no trouble.

    >>> describe_wrapped("embedded/3 a=b", 12, 12)
    '12 of 12 answers are JSON, or hold tags, reasoning or the like, which embedded/3 reads as words: record plain ones'
    """
    name = judge.split(" ", maxsplit=1)[0]
    if name.split("/")[0] not in WORD_JUDGES or wrapped < max(1, MARKUP_SHARE * traces):
        return None
    which = f"{wrapped:,} of {traces:,} answers{f' of {of}' if of else ''}"
    return f"{which} are JSON, or hold tags, reasoning or the like, which {name} reads as words: record plain ones"


def list_text_warnings(*runs: Run) -> tuple[str, ...]:
    """List the warnings about the language and the markup of runs."""
    counts = ((describe_foreign, count_foreign), (describe_wrapped, count_wrapped))
    facts = ((describe, count(run), run.manifest, run.path.name) for run in runs for describe, count in counts)
    texts = (describe(manifest.judge, number, manifest.traces, name) for describe, number, manifest, name in facts)
    return tuple(text for text in texts if text is not None)
