"""The judge minilm: a small language model that reads a claim with its evidence."""

from __future__ import annotations

import pickle
import subprocess
import sys
from importlib.util import find_spec
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from ragfault.io.datasets.demo_handbook import load_handbook
from ragfault.judges.checks.claims import extract_claims, strip_marks
from ragfault.judges.checks.lexicon import load_idf
from ragfault.judges.checks.passages import Passage, SentenceIndex
from ragfault.judges.embedded.support import TEXT_TYPES
from ragfault.judges.lexical.features import parse_statement
from ragfault.judges.loading import load_judge
from ragfault.judges.minilm.calibration import Logits, build_claim_inputs, load_calibration, locate_doubtful_span
from ragfault.judges.minilm.encoder import (
    INSTALL_COMMAND,
    WEIGHTS_PACKAGE,
    MiniLMEncoder,
    apply_delta,
    encode_pair,
    load_base_weights,
    load_delta,
    load_tokenizer,
    locate_weights,
)
from ragfault.judges.minilm.judge import MAX_EVIDENCE_CHARS, get_sentence_text, select_evidence
from ragfault.model.errors import MissingExtra, UsageError
from ragfault.model.records import Chunk, Trace

THERE = all(find_spec(name) for name in ("onnxruntime", "tokenizers", WEIGHTS_PACKAGE))
needed = pytest.mark.skipif(not THERE, reason=f"needs: {INSTALL_COMMAND}")

CHUNKS = (
    Chunk(id="a", text="The harbour office opens at 7:30 on weekdays. On Sundays it stays closed all day."),
    Chunk(id="b", text="Dogs are not allowed on the beach in summer. Parking costs £5.00 for each hour."),
)
PASSAGES = [Passage(chunk.id, chunk.text) for chunk in CHUNKS]


def trace(answer: str, name: str = "1", chunks: tuple[Chunk, ...] = CHUNKS) -> Trace:
    return Trace(id=name, query="When does the harbour office open?", chunks=chunks, answer=answer)


def p(claim: str) -> float:
    return load_judge("minilm").open_session().score_entailment([claim], PASSAGES)[0].p


# --- evidence --------------------------------------------------------------------------------------


def test_evidence_is_of_the_trace():
    """Evidence is of the trace's own sentences, in their order, each once, and not too long."""
    for first in load_handbook().traces["v2"]:
        index = SentenceIndex([Passage(chunk.id, chunk.text) for chunk in first.chunks or ()])
        for claim in extract_claims(first.answer or ""):
            chosen = select_evidence(parse_statement(strip_marks(claim.text), load_idf()), index)
            assert list(chosen) == sorted(set(chosen))
            assert all(0 <= place < len(index.sentences) for place in chosen)
            sizes = [len(get_sentence_text(index, place, None)) + 1 for place in chosen]
            assert len(sizes) < 2 or sum(sizes) <= 1.15 * MAX_EVIDENCE_CHARS + max(sizes) + len(sizes)


def test_evidence_holds_the_copied_sentence():
    """A claim that is copied from a chunk has that sentence among its evidence."""
    index = SentenceIndex(PASSAGES)
    for place in range(len(index.sentences)):
        assert place in select_evidence(parse_statement(index.get_source(place), load_idf()), index)


def test_evidence_that_shares_nothing():
    """What shares no word with the passages has no evidence, and no passages give none."""
    assert select_evidence(parse_statement("Quokkas dream.", load_idf()), SentenceIndex(PASSAGES)) == ()
    assert select_evidence(parse_statement("Quokkas dream.", load_idf()), SentenceIndex([])) == ()


# --- probabilities ---------------------------------------------------------------------------------


def test_probability():
    """The more speaks against a claim, the less probable, in every shape; the more for a passage, the more relevant."""
    levels = (-90.0, -2.0, 0.0, 2.0, 90.0)
    odds = load_calibration().predict_odds(
        np.array([build_claim_inputs(level, Logits(level, (level,))) for level in levels])
    )
    spoken = [load_calibration().predict_relevance(level) for level in levels]
    assert spoken == sorted(spoken)
    for shape in TEXT_TYPES:
        content = load_calibration().predict_support(odds, shape).tolist()
        full = [load_calibration().predict_groundedness(odds[[at]], shape) for at in range(len(levels))]
        assert content == sorted(content, reverse=True)
        assert full == sorted(full, reverse=True)
        assert all(0 <= value <= 1 for value in content + full + spoken)


def test_doubtful():
    """Neighbouring doubtful tokens make one stretch; of several the most doubtful is told; else none."""
    spans = [(0, 3), (4, 7), (8, 13), (14, 19)]
    assert locate_doubtful_span("the old ferry sinks", spans, [1.0, -1.0, 0.5, 2.0]) == "ferry sinks"
    assert locate_doubtful_span("the old ferry sinks", spans, [-1.0] * 4) is None
    assert locate_doubtful_span("", [], []) is None


# --- what is missing -------------------------------------------------------------------------------


@pytest.mark.long
def test_missing_extra():
    """Without packages or weights the judge is refused with the one command that installs them."""
    hide = (
        "import sys, importlib.util as u\n"
        "find = u.find_spec\n"
        "gone = set(sys.argv[1:])\n"
        "u.find_spec = lambda name, *rest: None if name in gone else find(name, *rest)\n"
        "from ragfault.judges.loading import load_judge\n"
        "try: load_judge('minilm')\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )

    def reported(*gone: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", hide, *gone],
            check=True,
            capture_output=True,
            text=True,
            env={"HF_HOME": "/nowhere", "PATH": "/usr/bin:/bin"},
        ).stdout

    if THERE:
        assert reported(WEIGHTS_PACKAGE).startswith("MissingExtra")
        assert INSTALL_COMMAND in reported(WEIGHTS_PACKAGE)


def test_missing_extra_survives_pickling():
    """The command of a missing extra comes along to another process."""
    error = MissingExtra("the model minilm", "", INSTALL_COMMAND)
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert INSTALL_COMMAND in str(copy)


@needed
def test_weights_of_another_making(tmp_path: Path):
    """A folder without weights, and one with others, is refused when the judge is made."""
    with pytest.raises(UsageError, match=r"holds no model\.safetensors"):
        load_judge("minilm", weights=str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match="not those that this version"):
        load_judge("minilm", weights=str(tmp_path))


@needed
def test_a_tokenizer_that_is_none(tmp_path: Path):
    """What is no tokenizer beside the weights is told with its file."""
    (tmp_path / "model.safetensors").symlink_to(locate_weights() / "model.safetensors")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match=r"tokenizer\.json is no tokenizer"):
        load_judge("minilm", weights=str(tmp_path)).open_session()


# --- the model -------------------------------------------------------------------------------------


@needed
def test_sentences():
    """What the chunks say is more probable than what they say not, in their words and in others."""
    copied = "The harbour office opens at 7:30 on weekdays."
    others = (
        "The harbour office opens at 9:15 on weekdays.",
        "The harbour office sells tickets to Norway.",
        "Cats must be kept on a lead in the car park.",
    )
    assert p(copied) > 0.7
    assert all(p(copied) > p(other) + 0.2 for other in others)
    assert p("It stays closed on Sundays.") > p("It stays open on Sundays.")
    assert p("Parking costs £5.00 for each hour.") > p("Parking costs nothing at night.")


@needed
def test_exact_checks_stand():
    """A changed number and a turned negation beside a well aligned sentence are contradicted, or doubted."""
    seen = load_judge("minilm").observe(
        [trace("The harbour office opens at 9:15 on weekdays. Dogs are allowed on the beach in summer.")]
    )[0]
    assert seen.claim is not None
    assert all(item.support == "contradicted" or item.unsure for item in seen.claim)
    assert all(item.evidence for item in seen.claim)


@needed
def test_relevance():
    """A passage that answers the query is more relevant than one on something else; another section is not."""
    reading = load_judge("minilm").open_session()
    office, beach = reading.score_relevance("When does the harbour office open?", PASSAGES)
    assert office.value > beach.value
    query = "What does Section 12 say about dogs?"
    other = reading.score_relevance(query, [Passage("9", "Section 9. Dogs are not allowed on the beach.")])[0]
    assert other.value <= 0.2
    assert "section 12" in (other.reason or "")


@needed
def test_long_passages():
    """What answers a query is found at the end of a passage longer than the model reads at once."""
    reading = load_judge("minilm").open_session()
    filler = "Parking costs five pounds for each hour and ten pounds for a day. " * 60
    query = "When does the harbour office open?"
    short, long, none = reading.score_relevance(
        query, [PASSAGES[0], Passage("l", f"{filler}{CHUNKS[0].text}"), Passage("n", filler)]
    )
    assert long.value > none.value
    assert long.value > 0.5 * short.value


@pytest.mark.long
@needed
def test_quantised_encoder():
    """Logits of claims in whole numbers are near those in 32 bits, and the same for a row alone or among others."""
    weights = apply_delta(load_base_weights(locate_weights()), load_delta())
    split = load_tokenizer(locate_weights())
    rows = [
        encode_pair(split, claim.text, [chunk.text for chunk in first.chunks or ()])
        for first in load_handbook().traces["v2"][:20]
        for claim in extract_claims(first.answer or "")
    ]
    full, quantised = (MiniLMEncoder(weights, quantised=value) for value in (False, True))
    expected, result = (np.array([item.bad for item in encoder.run(rows)]) for encoder in (full, quantised))
    assert np.corrcoef(expected, result)[0, 1] > 0.98
    assert np.abs(expected - result).max() < 1.0
    assert [quantised.run([row])[0] for row in rows] == quantised.run(rows)


@needed
def test_words_in_doubt():
    """Of a sentence that is half copied and half invented the invented words are in doubt, by the claim's offsets."""
    claim = "The harbour office opens at 7:30 on **weekdays** [1] and rents bicycles to tourists."
    copied = "On Sundays it stays closed all day."
    first, second = load_judge("minilm").open_session().score_entailment([claim, copied], PASSAGES)
    words = {word for start, end in first.unsupported_spans for word in claim[start:end].split()}
    assert first.support == "unsupported"
    assert {"rents", "bicycles", "tourists"} <= words
    assert not words & {"harbour", "opens", "7:30"}
    assert second.unsupported_spans == ()


@needed
def test_similarity():
    """A text is like itself, more like its paraphrase than like something else, and like nothing is nothing."""
    reading = load_judge("minilm").open_session()
    text = "The pub is shut on Sundays."
    assert reading.measure_similarity(text, text) == pytest.approx(1.0, abs=1e-3)
    near = reading.measure_similarity(text, "On Sunday the bar is closed.")
    assert near > reading.measure_similarity(text, "Parking costs five pounds.") + 0.2
    assert reading.measure_similarity(text, "") == 0.0
    assert reading.measure_similarity(text * 200, text * 190) > 0.95


@pytest.mark.long
@needed
def test_alone_or_together():
    """The verdict on a trace is the same in any batch and order."""
    judge = load_judge("minilm")
    traces = [
        trace("The harbour office opens at 7:30. Dogs may swim.", "a"),
        trace("Parking is £5.00 an hour.", "b", CHUNKS[1:]),
        trace("I do not know.", "c", ()),
        trace("", "d"),
    ]
    alone = {trace.id: judge.observe([trace])[0] for trace in traces}
    assert not any(item.failures for item in alone.values())
    for order in permutations(traces):
        assert [alone[item.id] for item in order] == list(judge.observe(order))


@pytest.mark.long
@needed
def test_pickled():
    """A judge that was sent to another process says the same there; the weights do not travel."""
    judge = load_judge("minilm", inferred=0.4)
    judge.observe([trace("The harbour office opens at 7:30.")])
    packed = pickle.dumps(judge)
    assert len(packed) < 1_000
    copy = pickle.loads(packed)
    assert copy.fingerprint == judge.fingerprint
    script = (
        "import pickle, sys, msgspec\n"
        "judge, trace = pickle.loads(sys.stdin.buffer.read())\n"
        "sys.stdout.buffer.write(msgspec.json.encode(judge.observe([trace])))"
    )
    first = trace("The harbour office opens at 7:30. Cats like fish.")
    there = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, input=pickle.dumps((judge, first))
    ).stdout
    import msgspec

    assert there == msgspec.json.encode(judge.observe([first]))


@pytest.mark.long
@needed
def test_fingerprint():
    """The fingerprint names weights and thresholds, and making a judge loads nothing heavy."""
    assert load_judge("minilm").fingerprint.startswith("minilm/7 weights=")
    assert load_judge("minilm", supported=0.8).fingerprint != load_judge("minilm").fingerprint
    script = (
        "import sys; from ragfault.judges.loading import load_judge; load_judge('minilm').fingerprint\n"
        "print([name for name in ('torch', 'onnx', 'onnxruntime', 'tokenizers', sys.argv[1]) if name in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", script, WEIGHTS_PACKAGE], check=True, capture_output=True, text=True
    ).stdout
    assert out.strip() == "[]"
    with pytest.raises(UsageError, match="threads"):
        load_judge("minilm", threads=0)
