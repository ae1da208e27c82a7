"""Laws of the names of columns in other languages: the table of words, and files with such names."""

import csv
import json

import pytest

from ragfault.io.formats import field_names
from ragfault.io.formats.field_words import load_field_words, split_words
from ragfault.io.trace_reader import read_traces

NAMES = [
    ("質問", "検索結果", "回答", "参考回答"),
    ("ユーザーの質問", "参照文書", "生成回答", "正解"),
    ("用户提问", "检索到的文档", "模型输出", "标准答案"),
    ("問題", "上下文", "回答", "參考答案"),
    ("질문", "검색 결과", "답변", "정답"),
    ("Nutzerfrage", "Gefundene Abschnitte", "Antwort des Modells", "Erwartete Antwort"),
    ("Question", "Passages récupérés", "Réponse", "Réponse attendue"),
    ("Pregunta", "Fragmentos recuperados", "Respuesta", "Respuesta esperada"),
    ("Вопрос", "Найденные документы", "Ответ", "Эталонный ответ"),
    ("السؤال", "السياق", "الإجابة", "الإجابة المرجعية"),
    ("soru", "bağlam", "cevap", "doğru_cevap"),
    ("pytanie", "kontekst", "odpowiedź", "odpowiedź_wzorcowa"),
]
ROW = ("When does the ferry leave?", "The ferry leaves the pier at nine.", "It leaves at nine.", "At nine.")


@pytest.mark.parametrize("names", NAMES, ids=lambda names: names[0])
def test_names_in_a_language_are_read_as_those_in_english(names, tmp_path):
    """Records and tables under the names of a language are read whole, without a question."""
    lines, table = tmp_path / "t.jsonl", tmp_path / "t.csv"
    query, chunks, answer, reference = names
    asked, passage, replied, expected = ROW
    record = {query: asked, chunks: [passage], answer: replied, reference: expected}
    lines.write_text(json.dumps(record, ensure_ascii=False), "utf-8")
    with table.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([names, ROW])
    for path in (lines, table):
        [trace] = read_traces(path)
        assert (trace.query, [chunk.text for chunk in trace.chunks], trace.answer) == (asked, [passage], replied)
        assert trace.references == (expected,)


def test_no_word_of_another_language_is_one_of_the_english_tables():
    """A translation never changes what an English name says."""
    english = {word for names in field_names.SYNONYMS.values() for word in split_words(names)}
    english |= {word for name in dir(field_names) if name.endswith("_WORDS") for word in getattr(field_names, name)}
    assert not {word for word, words in load_field_words().english.items() if word in english and words != (word,)}


@pytest.mark.parametrize(
    ("name", "words"),
    [("number_of_chunks", ("chunks", "number")), ("Ergebnisse der Suche", ("search", "results")), ("of", ("of",))],
)
def test_the_thing_stands_behind_its_owner(name, words):
    """The last word of a name says what it is, also where its owner follows in the name."""
    assert split_words(name) == words
