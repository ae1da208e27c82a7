"""The judge onnx:PATH: any cross-encoder in the layout of the hub, found on this machine."""

from __future__ import annotations

import json
import pickle
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from installed import skip_without

skip_without("onnx", reason="the tests build models with onnx")

from tokenizers import Tokenizer, models, pre_tokenizers

from onnx_models import write_classifier, write_marker, write_reranker
from ragfault.judges.checks.passages import Passage
from ragfault.judges.loading import load_judge
from ragfault.judges.onnx.judge import QUESTION_PROMPT, SUMMARY_PROMPT
from ragfault.judges.onnx.model_files import load_model_config
from ragfault.judges.onnx.session import split_windows
from ragfault.judges.scorer import Entailment, Scorer
from ragfault.model.errors import RagfaultError, UnknownName, UsageError
from ragfault.model.protocols import Judge
from ragfault.model.records import Chunk, Trace

NLI = ("entailment", "neutral", "contradiction")
CHUNKS = (
    Chunk(id="a", text="The harbour office opens at seven on weekdays and at nine on sundays."),
    Chunk(id="b", text="Dogs are allowed on the beach. Parking costs five an hour."),
)
PASSAGES = [Passage(chunk.id, chunk.text) for chunk in CHUNKS]
GOOD = "The harbour office opens at seven on weekdays."
BAD = "The ferry leaves from pier three every morning."
DENIED = "Dogs are not allowed on the beach."


def scorer(address: object, **options: object) -> Scorer:
    return load_judge(f"onnx:{address}", **options)


def seen(address: object, *claims: str, query: str = "") -> list[Entailment]:
    return list(scorer(address).open_session(query).score_entailment(claims, PASSAGES))


def trace(answer: str, name: str = "1") -> Trace:
    return Trace(id=name, query="When does the harbour office open?", chunks=CHUNKS, answer=answer)


# --- kinds -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", list(permutations(NLI)), ids="-".join)
def test_labels_in_any_order(tmp_path: Path, labels: tuple[str, ...]):
    """The order of the three labels is read from the configuration, whatever it is."""
    good, bad, denied = seen(write_classifier(tmp_path, labels), GOOD, BAD, DENIED)
    assert (good.support, bad.support, denied.support) == ("supported", "unsupported", "contradicted")
    assert good.p > 0.9 > 0.1 > bad.p
    assert good.evidence[0].chunk == "a"


@pytest.mark.parametrize(
    "labels", [("ENTAILMENT", "NEUTRAL", "CONTRADICTION"), ("Contradiction", "Neutral", "Entailment")]
)
def test_labels_in_any_case(tmp_path: Path, labels: tuple[str, ...]):
    """Case does not matter in the names of labels."""
    assert seen(write_classifier(tmp_path, labels), GOOD)[0].support == "supported"


def test_labels_in_the_address(tmp_path: Path):
    """Labels without names are refused with how to say them, and taken where they are said."""
    nameless = ("LABEL_0", "LABEL_1", "LABEL_2")
    folder = write_classifier(tmp_path, ("contradiction", "entailment", "neutral"))
    config = json.loads((folder / "config.json").read_text())
    config["id2label"] = dict(enumerate(nameless))
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match=r"\?labels=contradiction,entailment,neutral"):
        load_judge(f"onnx:{folder}")
    good, bad, denied = seen(f"{folder}?labels=contradiction,entailment,neutral", GOOD, BAD, DENIED)
    assert (good.support, bad.support, denied.support) == ("supported", "unsupported", "contradicted")


@pytest.mark.parametrize(
    ("built", "named"),
    [
        (("neutral", "entailment"), ("unsupported", "supported")),
        (("entailment", "neutral"), ("consistent", "hallucinated")),
        (("entailment", "neutral"), ("entailment", "not_entailment")),
        (("neutral", "entailment"), ("LABEL_0", "Supported")),
        (("neutral", "entailment"), ("hallucinated", "LABEL_1")),
    ],
)
def test_two_labels(tmp_path: Path, built: tuple[str, ...], named: tuple[str, ...]):
    """Of two labels one that says what it means is enough; the exact checks tell what is contradicted."""
    folder = write_classifier(tmp_path, built, id2label=dict(enumerate(named)))
    good, bad, denied = seen(folder, GOOD, BAD, DENIED)
    assert (good.support, bad.support, denied.support) == ("supported", "unsupported", "contradicted")


@pytest.mark.parametrize(("setting", "pad"), [(3, 3), (0, 0), (-1, 0), (None, 0), ("none", 0)])
def test_the_token_that_fills_up(tmp_path: Path, setting: Any, pad: int):
    """Rows are filled up with the token of the configuration; with the first where it names none that there can be."""
    folder = write_classifier(tmp_path, NLI)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"pad_token_id": setting}))
    assert load_model_config(str(folder)).pad_token == pad


def test_room_is_what_a_model_can(tmp_path: Path):
    """Models whose padding takes two places read two tokens less than they have places."""
    folder = write_classifier(tmp_path, NLI)
    config = json.loads((folder / "config.json").read_text())
    for kind, room in (("bert", 130), ("roberta", 128)):
        reported = config | {"max_position_embeddings": 130, "model_type": kind}
        (folder / "config.json").write_text(json.dumps(reported))
        assert load_model_config(str(folder)).max_tokens == room


def test_stretches_of_a_long_text_begin_with_a_sentence_again():
    """Of a long text a stretch begins with the last sentences of the one before it, where they are short."""
    split = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    split.pre_tokenizer = pre_tokenizers.Whitespace()
    text = " ".join(f"Word {number} is here." for number in range(8))
    result = [window.text for window in split_windows(split, [Passage("a", text)], 20)]
    assert result[0].endswith("Word 3 is here.")
    assert result[1].startswith("Word 3 is here. Word 4")


def test_one_number_serves_relevance(tmp_path: Path):
    """A reranker tells relevance; entailment is told by words."""
    reading = scorer(write_reranker(tmp_path)).open_session()
    office, beach = reading.score_relevance("When does the harbour office open?", PASSAGES)
    assert office.value > beach.value
    words = load_judge("lexical").open_session()
    assert reading.score_entailment([GOOD], PASSAGES) == words.score_entailment([GOOD], PASSAGES)
    assert reading.measure_similarity(GOOD, BAD) == words.measure_similarity(GOOD, BAD)


def test_one_number_can_serve_entailment(tmp_path: Path):
    """One number is read as support where that is said."""
    good, bad = seen(f"{write_reranker(tmp_path)}?serves=entailment", GOOD, BAD)
    assert good.support == "supported"
    assert bad.p < good.p


def test_tokens(tmp_path: Path):
    """A claim is as good as its worst token, with a question and without."""
    folder = write_marker(tmp_path)
    changed = GOOD.replace("seven", "three")
    for query in ("", "When does the harbour office open?"):
        good, bad = seen(folder, GOOD, changed, query=query)
        assert good.support == "supported"
        assert bad.support in {"unsupported", "contradicted"}
        assert bad.p < 0.1


def test_prompts_are_prose():
    """A model that marks tokens reads the words of its training, and no name of a variable."""
    assert "_" not in QUESTION_PROMPT + SUMMARY_PROMPT
    assert "following question" in QUESTION_PROMPT


# --- laws ------------------------------------------------------------------------------------------


def test_alone_or_together(tmp_path: Path):
    """The verdict on a trace is the same in any batch and order, and that on a claim beside any others."""
    judge = load_judge(f"onnx:{write_classifier(tmp_path, NLI)}")
    traces = [trace(text, text) for text in (GOOD, BAD, f"{DENIED} {GOOD}")]
    alone = {trace.id: judge.observe([trace])[0] for trace in traces}
    for order in permutations(traces):
        assert [alone[item.id] for item in order] == list(judge.observe(order))
    together = seen(tmp_path, GOOD, BAD, DENIED)
    assert together == [seen(tmp_path, claim)[0] for claim in (GOOD, BAD, DENIED)]
    assert not any(item.failures for item in alone.values())


def test_pickled(tmp_path: Path):
    """A judge that was sent to another process says the same there."""
    judge = load_judge(f"onnx:{write_classifier(tmp_path, NLI)}")
    packed = pickle.dumps(judge)
    assert len(packed) < 5_000
    copy = pickle.loads(packed)
    assert isinstance(copy, Judge)
    assert copy.fingerprint == judge.fingerprint
    assert copy.observe([trace(GOOD)]) == judge.observe([trace(GOOD)])


def test_long_passages(tmp_path: Path):
    """A sentence is found wherever it stands in a passage longer than the model reads at once."""
    folder = write_classifier(tmp_path, NLI, max_position_embeddings=48)
    filler = "Parking costs five an hour. " * 40
    for text in (f"{GOOD} {filler}", f"{filler}{GOOD} {filler}", filler + GOOD):
        result = scorer(folder).open_session().score_entailment([GOOD, BAD], [Passage("long", text)])
        assert [item.support for item in result] == ["supported", "unsupported"]
        span = result[0].evidence[0]
        assert text[span.start : span.end].startswith("The harbour office")


def test_nothing_to_read(tmp_path: Path):
    """What has no words, and what is held against nothing, is unsupported and no fault."""
    reading = scorer(write_classifier(tmp_path, NLI)).open_session()
    assert reading.score_entailment([], PASSAGES) == []
    assert [item.support for item in reading.score_entailment(["…", GOOD], [])] == ["unsupported"] * 2
    assert reading.score_entailment(["…"], [Passage("a", " ")])[0].p == 0.0
    assert (
        scorer(write_reranker(tmp_path / "r")).open_session().score_relevance("When?", [Passage("a", "")])[0].value
        == 0.0
    )


def test_fingerprint(tmp_path: Path):
    """The fingerprint names the model and its content, in one line."""
    first = load_judge(f"onnx:{write_classifier(tmp_path / 'one', NLI)}").fingerprint
    two = load_judge(f"onnx:{write_classifier(tmp_path / 'two', NLI[::-1])}").fingerprint
    assert first.startswith("onnx/8 model=one digest=")
    assert "\n" not in first
    assert first.split("digest=")[1][:8] != two.split("digest=")[1][:8]


# --- where models stand ----------------------------------------------------------------------------


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A model is found by its folder, its file, a relative path, and in the subfolder onnx: it is the same model."""
    folder = write_classifier(tmp_path / "m", NLI)
    monkeypatch.chdir(tmp_path)

    def digest(name: str) -> str:
        return load_judge(name).fingerprint.split("digest=")[1][:8]

    result = [digest("onnx:m"), digest("onnx:m/model.onnx")]
    (folder / "onnx").mkdir()
    (folder / "model.onnx").rename(folder / "onnx" / "model.onnx")
    result += [digest(f"onnx:{folder}"), digest("onnx:./m/onnx/model.onnx")]
    assert len(set(result)) == 1


def test_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The name of a hub model is looked up in the cache of the hub and never fetched."""
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="hf download someone/tiny-nli"):
        load_judge("onnx:someone/tiny-nli")
    content = tmp_path / "hub" / "models--someone--tiny-nli"
    write_classifier(content / "snapshots" / "0a", NLI)
    (content / "snapshots" / "0b").mkdir()
    (content / "refs").mkdir()
    (content / "refs" / "main").write_text("0a")
    assert "model=someone/tiny-nli" in load_judge("onnx:someone/tiny-nli").fingerprint


# --- what is no model ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda at: (at / "config.json").unlink(), "holds no config.json"),
        (lambda at: (at / "tokenizer.json").unlink(), "holds no tokenizer.json"),
        (lambda at: (at / "model.onnx").unlink(), "holds no model.onnx"),
        (lambda at: (at / "config.json").write_text("{'a': 1"), "is not JSON"),
        (lambda at: (at / "config.json").write_text("[" * 100_000), "is not JSON"),
        (lambda at: (at / "config.json").write_text("[1]"), "no object, but a list"),
        (lambda at: (at / "config.json").write_bytes(b"\xff\xfe\x00"), "is not JSON"),
        (lambda at: (at / "config.json").write_text(" " * 2_000_000), "something else"),
        (lambda at: (at / "config.json").write_text('{"id2label": {"0": 1, "7": []}}'), "do not name their classes"),
        (lambda at: (at / "config.json").write_text('{"id2label": 3, "num_labels": "x"}'), "do not name"),
        (lambda at: (at / "tokenizer.json").write_text("{}"), "is no tokenizer"),
        (lambda at: (at / "model.onnx").write_bytes(b"\x00" * 100), "cannot be loaded as ONNX"),
        (lambda at: (at / "model.onnx").write_bytes(b""), "cannot be loaded as ONNX"),
    ],
)
def test_spoiled(tmp_path: Path, spoil: object, says: str):
    """A folder that holds something else is refused at once, with what is wrong and where."""
    folder = write_classifier(tmp_path, NLI)
    spoil(folder)
    with pytest.raises(UsageError, match=says):
        load_judge(f"onnx:{folder}")


def test_wrong_count(tmp_path: Path):
    """A graph that gives other numbers than its labels ask for is refused at once."""
    with pytest.raises(UsageError, match="labels need"):
        load_judge(f"onnx:{write_classifier(tmp_path, NLI)}?labels=supported,unsupported")


@pytest.mark.parametrize("address", ["", "nowhere", "../nowhere", "a/b/c", "?labels=a", "/dev/null", "x" * 5000])
def test_nowhere(address: str):
    """What is no path and no name is refused with what could stand there."""
    with pytest.raises(RagfaultError):
        load_judge(f"onnx:{address}")


def test_settings(tmp_path: Path):
    """A setting that does not exist, or with a value that it cannot have, is refused."""
    folder = write_classifier(tmp_path, NLI)
    with pytest.raises(UnknownName, match='Did you mean "labels"'):
        load_judge(f"onnx:{folder}?label=a,b")
    for wrong in ("room=3", "room=many", "serves=tea"):
        with pytest.raises(UsageError, match=wrong):
            load_judge(f"onnx:{folder}?{wrong}")
    with pytest.raises(UnknownName, match="onnx:PATH"):
        load_judge("onyx")
