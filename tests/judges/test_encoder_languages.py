"""Laws of the judge encoder in other languages than English: which model reads, and what it tells apart."""

from __future__ import annotations

import pytest

from ragfault.judges.encoder.judge import EncoderJudge
from ragfault.judges.encoder.model import ENGLISH, MULTILINGUAL
from ragfault.model.gold_evidence import measure_key_agreement
from ragfault.model.records import Chunk, Trace, Verdicts

JUDGE = EncoderJudge(threads=1)
TEXTS = {
    "de": (
        "Wann öffnet das Hallenbad?",
        "Das Hallenbad öffnet am Morgen um sieben Uhr. Am Sonntag bleibt es geschlossen, weil dann gereinigt wird.",
        "Man kann ab sieben Uhr morgens in das Hallenbad.",
        "Die Sauna kostet zwölf Euro und ist für Kinder nicht erlaubt.",
    ),
    "fr": (
        "Quand ouvre la piscine ?",
        "La piscine ouvre à sept heures du matin. Elle est fermée le dimanche pour le nettoyage.",
        "On peut entrer dans la piscine dès sept heures du matin.",
        "Le sauna coûte douze euros et les enfants ne sont pas admis.",
    ),
    "es": (
        "¿Cuándo abre la piscina?",
        "La piscina abre a las siete de la mañana. Los domingos está cerrada por limpieza.",
        "Se puede entrar en la piscina desde las siete de la mañana.",
        "La sauna cuesta doce euros y no se admiten niños.",
    ),
    "it": (
        "Quando apre la piscina?",
        "La piscina apre alle sette di mattina. La domenica è chiusa per le pulizie.",
        "Si può entrare in piscina dalle sette di mattina.",
        "La sauna costa dodici euro e i bambini non sono ammessi.",
    ),
    "pt": (
        "Quando abre a piscina?",
        "A piscina abre às sete da manhã. Aos domingos está fechada para limpeza.",
        "Pode-se entrar na piscina a partir das sete da manhã.",
        "A sauna custa doze euros e não são admitidas crianças.",
    ),
    "pl": (
        "Kiedy otwiera się basen?",
        "Basen otwiera się o siódmej rano. W niedzielę jest zamknięty z powodu sprzątania.",
        "Na basen można wejść od siódmej rano.",
        "Sauna kosztuje dwanaście euro i dzieci nie są wpuszczane.",
    ),
    "zh": (
        "游泳馆什么时候开门？",
        "游泳馆早上七点开门。星期天因为清洁不开放。",
        "早上七点起可以进入游泳馆。",
        "桑拿票价十二欧元，儿童不得入内。",
    ),
    "ja": (
        "プールは何時に開きますか。",
        "プールは朝七時に開きます。日曜日は清掃のため休みます。",
        "朝の七時からプールに入れます。",
        "サウナは十二ユーロで、子どもは入れません。",
    ),
}  # fmt: skip


def observe(query: str, chunk: str, answer: str) -> Verdicts:
    """Return the verdicts on one answer."""
    trace = Trace(id="1", query=query, chunks=(Chunk(id="a", text=chunk),), answer=answer)
    [verdicts] = JUDGE.observe([trace])
    assert not verdicts.failures
    return verdicts


@pytest.mark.parametrize("language", TEXTS)
def test_a_text_in_another_language_is_read_by_the_multilingual_model(language: str) -> None:
    """Question, chunk or answer in another language than English: then the second model reads; else the first."""
    query, chunk, answer, _ = TEXTS[language]
    assert JUDGE.open_session(query).choose_model(answer, chunk) == MULTILINGUAL
    assert JUDGE.open_session("When does the pool open?").choose_model("At seven.", "It opens at seven.") == ENGLISH


@pytest.mark.parametrize("language", TEXTS)
def test_what_a_chunk_says_in_other_words_is_likelier_than_what_it_does_not_say(language: str) -> None:
    """A paraphrase has a higher probability of support than a statement on another thing."""
    query, chunk, right, other = TEXTS[language]
    supported, invented = (observe(query, chunk, answer).claim for answer in (right, other))
    assert supported
    assert invented
    assert min(claim.p for claim in supported) > max(claim.p for claim in invented)


@pytest.mark.parametrize("language", TEXTS)
def test_a_copied_sentence_is_supported(language: str) -> None:
    """The chunk itself as answer is supported in every language."""
    query, chunk, _, _ = TEXTS[language]
    verdicts = observe(query, chunk, chunk)
    assert verdicts.claim
    assert all(claim.support == "supported" for claim in verdicts.claim)


def test_a_right_answer_in_german_is_right_by_its_key() -> None:
    """An answer that says what its reference says is no wrong one because it is not English."""
    trace = Trace(
        id="1",
        query="Wer leitet die Werkstatt?",
        chunks=(Chunk(id="a", text="Die Werkstatt wird seit Mai von Hanna Brandt geleitet."),),
        answer="Die Werkstatt leitet Hanna Brandt.",
        reference="Hanna Brandt",
    )
    other = Trace(
        id="2", query=trace.query, chunks=trace.chunks, answer="Jonas Feld leitet sie.", reference="Hanna Brandt"
    )
    right, wrong = (
        measure_key_agreement(item, verdicts)
        for item, verdicts in zip((trace, other), JUDGE.observe([trace, other]), strict=True)
    )
    assert right is not None
    assert wrong is not None
    assert right > wrong
