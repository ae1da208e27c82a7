"""Records of Natural Questions: a page in words, with the places of passages and answers in it.

Both published layouts are read, that of Hugging Face and the simplified one, whose page is one text. Annotators mark a
passage (`long_answer`) and words in it (`short_answers`) by the numbers of the first word and the one after the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragfault.io.field_values import InvalidRecord

RawRecord = dict[str, Any]
YES_NO = {"YES": "Yes", "NO": "No", "1": "Yes", "0": "No"}
CROWD = 5
"""Annotators of a question from which on one alone does not make it answerable, as the set defines."""
LEAST_OF_CROWD = 2
USED = ("document_text", "document_tokens", "document_html", "question_tokens", "long_answer_candidates", "annotations")


def has_places(record: RawRecord) -> bool:
    """Tell whether annotations of a record are places of answers rather than labels of another kind.

    >>> has_places({"annotations": [{"long_answer": {}}]}), has_places({"annotations": [{"label": "good"}]})
    (True, False)
    """
    return any(note.keys() & {"long_answer", "short_answers"} for note in _list_rows(record.get("annotations")))


def flatten_natural_questions(record: RawRecord) -> RawRecord:
    """Turn the places of a record into texts: the passages of the page, the one with the answer as gold, and reference.

    The reference is the short answers, else yes or no, else the passage. A question that nobody answered from the page
    (of five or more annotators: fewer than two) is not answerable. Raises `InvalidRecord` where the places cannot be
    resolved.

    >>> passage, words = {"start_token": 0, "end_token": 4}, {"start_token": 2, "end_token": 3}
    >>> note = {"long_answer": passage, "short_answers": [words]}
    >>> page = {"question_text": "When?", "document_text": "<P> In 1040. </P>", "annotations": [note]}
    >>> flat = flatten_natural_questions(page)
    >>> flat["chunks"], flat["gold"], flat["reference"]
    ([{'id': '0-4', 'text': 'In 1040.'}], ['0-4'], ['1040.'])
    """
    words = _read_words(record)
    notes = _list_rows(record.get("annotations"))
    passages = [
        _read_place(row) for row in _list_rows(record.get("long_answer_candidates")) if row.get("top_level", True)
    ]
    marked = [span for note in notes if (span := _read_place(note.get("long_answer"))) is not None]
    ranges = sorted({span for span in passages if span is not None} | ({*marked} if not any(passages) else set()))
    answers = [text for note in notes if (text := _read_short_answer(note, words))]
    answers = answers or [_join_words(words, span) for span in marked if words]
    if not words and (marked or any(_read_places(note) for note in notes)) and not answers:
        raise InvalidRecord(
            "`annotations` are places in a document that the record does not hold (`document_text`, `document_tokens` "
            "or `document.tokens`); only the questions are read with --map query=question_text"
        )
    answered = sum(bool(_read_place(note.get("long_answer")) or _read_short_answer(note, words)) for note in notes)
    flat = {key: value for key, value in record.items() if key not in USED and key not in ("question", "document")}
    document = record.get("document") if isinstance(record.get("document"), dict) else {}
    question = record.get("question_text") or record.get("question") or {}
    title = record.get("document_title") or (document or {}).get("title")
    flat["question_text"] = question.get("text") if isinstance(question, dict) else question
    if words:
        chunks = [_make_chunk(words, span, title) for span in ranges]
        flat["chunks"] = [chunk for chunk in chunks if chunk["text"]]
        # a marked span is a passage, or lies within one as a row lies within its table
        around = [next((p for p in ranges if p[0] <= span[0] and span[1] <= p[1]), span) for span in marked]
        flat["gold"] = list(dict.fromkeys(map(_name_place, around)))
    if answers:
        flat["reference"] = list(dict.fromkeys(answers))
    if notes:
        flat["answerable"] = answered >= (LEAST_OF_CROWD if len(notes) >= CROWD else 1)
    return flat


def _read_words(record: RawRecord) -> list[str]:
    """Read the words of the page; those of HTML keep their places and are empty."""
    tokens = record.get("document_tokens")
    if isinstance(document := record.get("document"), dict):
        tokens = document.get("tokens")
    if isinstance(text := record.get("document_text"), str):
        tokens = [
            {"token": word, "html_token": word.startswith("<") and word.endswith(">")} for word in text.split(" ")
        ]
    return [
        "" if row.get("html_token") or row.get("is_html") else str(row.get("token", "")) for row in _list_rows(tokens)
    ]


def _list_rows(value: Any) -> list[RawRecord]:
    """List objects, also those that are written as an object of equally long lists."""
    if isinstance(value, dict):
        lists = {key: item for key, item in value.items() if isinstance(item, list)}
        size = min(map(len, lists.values()), default=0)
        return [{key: item[i] for key, item in lists.items()} for i in range(size)] if lists else [value]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [row if isinstance(row, dict) else {"token": row} for row in value]
    return []


def _read_place(row: Any) -> tuple[int, int] | None:
    """Read the first word and the one after the last; None where nothing is marked, which is written as -1."""
    if not isinstance(row, dict):
        return None
    start, end = row.get("start_token"), row.get("end_token")
    return (start, end) if isinstance(start, int) and isinstance(end, int) and 0 <= start < end else None


def _read_places(note: RawRecord) -> list[tuple[int, int]]:
    return [span for row in _list_rows(note.get("short_answers")) if (span := _read_place(row)) is not None]


def _read_short_answer(note: RawRecord, words: list[str]) -> str:
    """Read the short answer of an annotator: marked words, joined by commas, or yes or no; empty without one."""
    rows = _list_rows(note.get("short_answers"))
    texts = [_join_words(words, span) for span in _read_places(note)] if words else []
    texts = texts or [str(row["text"]) for row in rows if isinstance(row.get("text"), str)]
    return ", ".join(filter(None, texts)) or YES_NO.get(str(note.get("yes_no_answer")).upper(), "")


def _join_words(words: list[str], span: tuple[int, int]) -> str:
    return " ".join(word for word in words[span[0] : span[1]] if word)


def _name_place(span: tuple[int, int]) -> str:
    return f"{span[0]}-{span[1]}"


def _make_chunk(words: list[str], span: tuple[int, int], title: Any) -> RawRecord:
    chunk = {"id": _name_place(span), "text": _join_words(words, span)}
    return {**chunk, "document": title} if title else chunk
