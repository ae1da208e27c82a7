"""Traces in a language that their judge does not know."""

from __future__ import annotations

from ragfault.io.runs import Run
from ragfault.text import lacks_english

ENGLISH_JUDGES = ("embedded", "lexical", "minilm")
"""Judges that know English only."""
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


def list_language_warnings(*runs: Run) -> tuple[str, ...]:
    """List the warnings about the languages of runs."""
    texts = (
        describe_foreign(run.manifest.judge, count_foreign(run), run.manifest.traces, run.path.name) for run in runs
    )
    return tuple(text for text in texts if text is not None)
